/// \file
/// Known machines: one file per family holds their shapes, their figures and where they come from.
///
/// What a source does not print is left at 0 (host memory, cores) or, where a simulation needs a
/// figure, taken from the class of part (spec/topologies.md section 1) and said in the source.
/// Storage and management adapters are left out: NICs are those that a job uses.
#pragma once

#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/nccl_graph.h"
#include "topology/node_graph.h"

namespace zerosim {

/// Channels of one speed, GB/s of each, as a graph file of NCCL's own search has them.
struct GivenChannels {
  int count = 0;  ///< 0: by rule
  double gbps = 0;
};

/// One machine as its file, or a cluster file, states it; `make_node` turns it into a NodeTemplate.
/// What NCCL does on it follows by rule (topology/nccl_graph.h).
struct Machine {
  std::string name;
  std::string description;
  std::string gpu;
  IntraNode intra = IntraNode::NvSwitch;
  /// `intra` follows from the links of the GPUs that a job uses (`intra_by_links`).
  bool by_links = false;
  GivenChannels rings;                ///< on one node
  GivenChannels rings_between_nodes;  ///< with several
  GivenChannels nvls;                 ///< heads of in-switch reduction
  NodeShape shape;
  BytesPerSecond nic_bandwidth;  ///< peak, one NIC, one direction
  NetworkKind network = NetworkKind::InfiniBand;
  double nic_efficiency = 1.0;
  BytesPerSecond host_link;  ///< achieved, alone
  Bytes host_memory;
  BytesPerSecond host_memory_bandwidth;  ///< peak, all sockets
  std::string host_memory_source;
  int host_cores = 0;
  std::string cpu;
  std::string source;
  std::string network_assumption;  ///< told when nodes > 1; empty: the NICs are the machine's own
  int nvlink_domain_nodes = 1;     ///< nodes that NVLink joins (Fabric::nvlink_domain_nodes)
  int nodes = 1;                   ///< that come together (a rack), unless the user says otherwise
};

/// The node as a job on its first `gpus` GPUs finds it. Of a machine that is not simulated only
/// what can be drawn: its NcclGraph stays empty.
[[nodiscard]] NodeTemplate make_node(const Machine& machine, int gpus);

/// All machines, in the order in which lists show them.
[[nodiscard]] const std::vector<Machine>& machines();
/// By name or alias; null if unknown.
[[nodiscard]] const Machine* find_machine(const std::string& name);
/// Names and aliases, for messages.
[[nodiscard]] const std::vector<std::string>& machine_names();

// What the families' files begin with.

/// A machine with so many GPUs and nothing else; its name says what it is for.
[[nodiscard]] Machine machine_with(std::string name, std::string gpu, IntraNode intra, int gpus,
                                   int sockets);
/// NICs of one kind, `each` peak of one direction, that achieve what is usual for their kind.
void set_nics(Machine& machine, int count, BytesPerSecond each, NetworkKind kind);

/// NVLinks of DGX-1 and its like among eight V100, six a GPU (spec/topologies.md section 2).
[[nodiscard]] std::vector<NvLinkPair> hybrid_cube_mesh();

// One file each, in the order of `machines()`.
[[nodiscard]] std::vector<Machine> dgx_machines();  ///< NVIDIA's own, and HGX boards, to Ampere
[[nodiscard]] std::vector<Machine> hopper_and_blackwell_machines();
[[nodiscard]] std::vector<Machine> aws_machines();
[[nodiscard]] std::vector<Machine> azure_machines();
[[nodiscard]] std::vector<Machine> gcp_machines();
[[nodiscard]] std::vector<Machine> pcie_machines();  ///< servers without NVSwitch, desktops
[[nodiscard]] std::vector<Machine> amd_machines();   ///< drawn, not simulated

}  // namespace zerosim
