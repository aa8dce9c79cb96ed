/// \file
/// A cluster: a node template (a graph) x count, plus a fabric rule. It knows no model and no program.
///
/// The template is a Boost.Graph graph whose vertices are GPUs, switches, NICs and host bridges, and whose
/// edges are links with a peak rate in each direction. What collectives and copies may use of it is the list
/// of *link classes*: links that identical ranks load identically are one class (design.md section 3,
/// folding). Sources of figures: spec/topologies.md and data/gpus.csv; each preset names its own.
///
/// Not modelled yet: fabrics with more than one switch level, perturbed or mixed nodes (part 7).
#pragma once

#include <boost/graph/adjacency_list.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "topology/gpu.h"

namespace zerosim {

enum class DeviceKind { Gpu, NvSwitch, PcieSwitch, Cpu, Nic };
enum class LinkKind { NvLink, Pcie, CpuInterconnect, Network };
/// How GPUs of one node reach each other: decides NCCL's protocols and latencies (nccl_cost.md section 2).
enum class IntraNode { NvSwitch, NvLinkMesh, Pcie, PcieHostStaged };

struct Device {
  DeviceKind kind = DeviceKind::Gpu;
  int index = 0;  ///< among its kind
  int numa = 0;
};
struct Link {
  LinkKind kind = LinkKind::NvLink;
  BytesPerSecond bandwidth;  ///< peak, one direction
  Seconds latency{0};
};

using NodeGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, Device, Link>;

/// Channels and speeds that NCCL's search settles on (nccl_cost.md section 3).
struct NcclGraph {
  int ring_channels = 0;
  double ring_channel_gbps = 0;        ///< GB/s of one channel inside one node
  int inter_ring_channels = 0;
  double inter_ring_channel_gbps = 0;  ///< GB/s of one channel when nodes > 1
  int nvls_heads = 0;                  ///< 0: no in-switch reduction
  double nvls_head_gbps = 0;
  bool ll128 = true;                   ///< needs NVLink-like ordering
  double launch_floor_all_reduce_us = 25;
  double launch_floor_other_us = 16;
  double kappa = 1.0;                  ///< square-root term, nccl_cost.md 7.1 (ii), one node
  double extra_network_latency_us = 0; ///< EFA, TCP
  int ctas = 24;                       ///< SMs that a large collective holds, one node
  int inter_ctas = 16;
};

struct NodeTemplate {
  std::string name;
  std::string gpu;  ///< a GpuSpec's name
  int gpus = 0;
  IntraNode intra = IntraNode::NvSwitch;
  NodeGraph graph;
  NcclGraph nccl;
  int nics = 0;
  BytesPerSecond nic_bandwidth;      ///< peak, one NIC, one direction
  double nic_efficiency = 1.0;       ///< achieved / peak (topologies.md section 1)
  BytesPerSecond host_link;          ///< PCIe host <-> one GPU, achieved
  Bytes host_memory;                 ///< 0: not known
  int host_cores = 0;
  std::string cpu;                   ///< "intel", "amd": NCCL's row for multi-node LL
  std::string source;                ///< where the figures come from
};

/// One switch level between nodes that loads each NIC alike.
struct Fabric {
  std::string kind = "switch";
  double efficiency = 1.0;
  Seconds hop_latency{0};
};

/// Links that all ranks of the cluster load alike; one direction of one GPU's share.
struct LinkClass {
  enum class Kind { IntraNode, Network, HostToDevice, DeviceToHost, DeviceMemory };
  Kind kind = Kind::IntraNode;
  std::string name;         ///< "nvlink", "nic", "h2d", "d2h", "hbm"
  BytesPerSecond capacity;  ///< what traffic can use of it
};

struct Cluster {
  std::string name;
  NodeTemplate node;
  int nodes = 1;
  int gpus_per_node = 0;  ///< used ones; at most node.gpus
  Fabric fabric;
  double price_per_gpu_hour = 0;  ///< 0: not given
  std::vector<std::string> assumptions;

  [[nodiscard]] int world_size() const { return nodes * gpus_per_node; }
  [[nodiscard]] const GpuSpec& gpu() const { return gpu_spec(node.gpu); }
};

/// Rank classes and link classes of a cluster whose nodes are all alike: one of each.
[[nodiscard]] std::vector<LinkClass> link_classes(const Cluster& cluster);

/// Reads a preset's name ("dgx-a100-80") or a cluster file (examples/cluster.json).
/// `nodes` and `gpus_per_node`, where positive, replace what the preset or file says.
/// \throws ConfigError  with file, line, column; unknown GPU or preset with the nearest name; 0 nodes.
[[nodiscard]] Cluster load_cluster(const std::string& name_or_path, int nodes = -1,
                                   int gpus_per_node = -1);

struct ClusterPreset {
  std::string name;
  std::string description;
};
[[nodiscard]] std::vector<ClusterPreset> cluster_presets();

/// Whether every GPU of the template reaches every other and some NIC (if there are NICs).
[[nodiscard]] bool is_connected(const NodeGraph& graph);

}  // namespace zerosim
