/// \file
/// Known machines. Each has a file here that holds its shape, its figures and where they come from.
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
};

/// The node as a job on its first `gpus` GPUs finds it.
[[nodiscard]] NodeTemplate make_node(const Machine& machine, int gpus);

/// All machines, in the order in which lists show them.
[[nodiscard]] const std::vector<Machine>& machines();
/// By name or alias; null if unknown.
[[nodiscard]] const Machine* find_machine(const std::string& name);
/// Names and aliases, for messages.
[[nodiscard]] const std::vector<std::string>& machine_names();

[[nodiscard]] Machine dgx_a100_40();
[[nodiscard]] Machine dgx_a100_80();
[[nodiscard]] Machine dgx_h100();
[[nodiscard]] Machine dgx1_v100_16();
[[nodiscard]] Machine dgx1_v100_32();
[[nodiscard]] Machine rtx4090x8_pcie();
[[nodiscard]] Machine a10x4_pcie();

}  // namespace zerosim
