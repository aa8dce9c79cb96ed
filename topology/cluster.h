/// \file
/// A cluster: a node template (a graph) x count, plus a fabric rule. It knows no model and no
/// program.
///
/// The template is a Boost.Graph graph whose vertices are GPUs, switches, NICs and host bridges,
/// and whose edges are links with a peak rate in each direction. What collectives and copies may
/// use of it is the list of *link classes*: links that identical ranks load identically are one
/// class (design.md section 3, folding). Sources of figures: spec/topologies.md and data/gpus.csv;
/// each preset names its own.
///
/// The schema of a cluster file, version 1 (examples/cluster.json). Quantities are strings with
/// units; `?` marks what may be left out, `=` says what then holds (and is told in
/// Cluster::assumptions):
///
///     version              1
///     name               ? = the file's name
///     node                 either a preset with some figures replaced:
///       preset             a preset's name
///       gpu              ? another GPU with the same links and architecture
///       gpu_memory       ? as below
///       gpu_power_limit  ? as below
///       intra            ? {ring_bandwidth}
///       nics, host       ? as below; only the keys that are given replace something
///                          or spelled out:
///       gpu                a name of data/gpus.csv, "A100-SXM4-80"
///       gpu_memory       ? total of one GPU as the framework reports it = the GPU's
///       gpu_power_limit  ? what an operator allows a GPU (`nvidia-smi -pl`), "500W" = the board's;
///                          it lowers the clock of matrix products (kernel_efficiency.h)
///       gpus               GPUs of one node
///       intra.kind         "nvswitch", "nvlink-mesh" (every pair linked alike),
///                          "pcie" (direct GPU to GPU below one switch),
///                          "pcie-host-staged" (through host memory)
///       intra.nvlink     ? peak of one GPU, one direction = the GPU's
///       intra.pcie       ? peak of one GPU's slot, one direction = x16 of the GPU's generation
///       intra.ring_bandwidth ? what a large ring collective reaches (busbw) = by link class
///       nics             ? {count, bandwidth, kind ? = "infiniband" ("roce", "efa" (version 2),
///                          "efa-v1", "efa-v3", "tcp", "tcpx", "tcpxo"), efficiency ? = by kind};
///                          needed when nodes > 1
///       host             ? {memory ?, memory_bandwidth ? (peak of all sockets together) = by PCIe
///                          generation, cores ?, cpu ? = "intel" ("amd", "arm"), pcie ? = by PCIe
///                          generation}
///                          or drawn, as `zerosim topo import` writes it (node_graph_file.h):
///       gpu, gpu_memory, gpu_power_limit, host   as above
///       gpus             ? must be as many as the graph lists
///       intra            ? {kind ? = by the links of the GPUs that a job uses (`intra_by_links`),
///                          nvlink ?, pcie ?, ring_bandwidth ?}
///       graph.cpus         [{numa ? = its number}, ...], one for each NUMA node
///       graph.cpu_link   ? between any two of them, one direction = 16GB/s
///       graph.c2c        ? between each GPU and its CPU in place of PCIe (Grace)
///       graph.switches   ? PCIe switches: [{below: "cpu0" or "switch0" (listed before),
///                          link ? (the one upwards, peak of one direction) = intra.pcie}, ...]
///       graph.gpus         [{below, link ?}, ...]
///       graph.nics       ? [{below, link ?, bandwidth ? = nics.bandwidth}, ...]
///       graph.nvlinks    ? direct ones: [{between: [0, 1], links: 4}, ...]
///       graph.nvswitch_links ? NVLinks of every GPU into NVSwitches, or a list of each one's
///       nics             ? {bandwidth ?, kind ?, efficiency ?} as above
///       nccl             ? what NCCL's own search found (a graph file), in place of our rule:
///                          {rings ?, rings_between_nodes ?, nvls ?}, each {channels, speed of one}
///     nodes              ? = the preset's (18 of gb200-nvl72), else 1
///     gpus_per_node      ? = all GPUs of the node
///     fabric             ? the network between nodes = a switch that is no bottleneck:
///       kind             ? = "switch"; "leaf-spine", "rail-optimised", "fat-tree", "dragonfly",
///                          "torus"
///       efficiency       ? what congestion leaves of the rate of NICs and cables = 1
///       hop_latency      ? of each switch but the first (of a switch alone: of that one, beyond
///                          NCCL's own figure) = by kind of network, and of `cable_metres` = 20
///       nvlink_domain_nodes ? nodes that NVLink joins = the machine's
///       sharp            ? InfiniBand's switches reduce = false
///       placement        ? {kind ("contiguous", "scattered"), seed = 1, among = nodes}: scattered
///                          puts the nodes at random places of so many
///      leaf-spine:
///       nodes_per_leaf   ? = as many as a leaf of 64 ports takes
///       oversubscription ? ports down over ports up, 2 for 2:1 = 1
///      rail-optimised:
///       nodes_per_unit   ? nodes whose NICs r share leaf r = 20 (A100), 32
///       units_per_pod    ? units below one set of spines; more need a core = 4
///       oversubscription, core_oversubscription ? of leaves, of spines = 1
///      fat-tree:
///       ports            ? of each switch of a k-ary tree = 64
///       nodes_per_leaf, leaves_per_pod, oversubscription: in its place
///       core_oversubscription ? of spines = 1
///      these three:
///       ecmp             ? = "ideal": flows spread evenly; "hashed": each takes one cable (only
///                          without folding)
///       ecmp_efficiency  ? what an ideal spread leaves = 0.95 (InfiniBand, EFA), 0.8
///       ecmp_seed        ? of the hash = 1
///      dragonfly:
///       nodes_per_switch ? = 16 NICs
///       switches_per_group ? = 16
///       local_links      ? cables between two switches of a group = 1
///       taper            ? rate of a group's NICs over that of its global cables = 1
///       routing          ? = "adaptive"; "minimal"
///       link_bandwidth   ? of a cable = a NIC's
///      torus:
///       dimensions         [4, 4, 2]
///       link_bandwidth   ? of a cable, one direction = 50 GB/s
///     perturbations      ? a list of entries
///                          (factors are at least 0.001, a period at least 10 us),
///                          each one of
///       {nodes ?, gpus ?, and some of speed (arithmetic), memory_speed, host_speed (factors),
///        gpu (another kind with the same links), micro_batch}
///       {link, which links, and some of bandwidth (factor), background ("10GB/s" that do not give
///        way), lost_links (nvlink)}
///       {job (a name), link ("nic", "fabric"), which links, bytes, period, offset ? = 0}: bursts
///        of another job, which share the links fairly
///      which links:
///       link "nvlink"      nodes ?, gpus ?; in a mesh one GPU and its peer
///       link "pcie"        nodes ?, gpus ?
///       link "nic"         nodes ?, nics ?
///       link "fabric"      name: of a level ("leaf uplink") or of one link ("leaf3.up")
///      nodes, gpus and nics are numbers from 0: 3, "0-7", "0-3,8", [0, "4-7"] = all
///     jitter             ? {kernels ?, host ?: relative spread of their times = 0, seed ? = 1,
///                          repetitions ? = 10}
///     price_per_gpu_hour ? a number, in the reader's currency
///     assumptions        ? sentences that reports show among their own: how the file came about
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/graph/adjacency_list.hpp>

#include "sim/base/units.h"
#include "topology/fabric.h"
#include "topology/gpu.h"
#include "topology/nccl_settings.h"
#include "topology/perturbation.h"

namespace zerosim {

/// Adapters between nodes (nccl_graph.h).
enum class NetworkKind;

enum class DeviceKind { Gpu, NvSwitch, PcieSwitch, Cpu, Nic };
/// C2c: between a Grace CPU and its GPU.
enum class LinkKind { NvLink, Pcie, CpuInterconnect, Network, C2c };
/// How GPUs of one node reach each other: decides NCCL's protocols and latencies (nccl_cost.md
/// section 2).
enum class IntraNode { NvSwitch, NvLinkMesh, Pcie, PcieHostStaged };
/// Whether rings inside a node go over NVLink; else over PCIe, directly or through host memory.
[[nodiscard]] constexpr bool has_nvlink(IntraNode intra) {
  return intra == IntraNode::NvSwitch || intra == IntraNode::NvLinkMesh;
}

struct Device {
  DeviceKind kind = DeviceKind::Gpu;
  int index = 0;  ///< among its kind
  int numa = 0;
  BytesPerSecond port{};  ///< peak of a NIC, one direction; 0: not known
  bool off = false;       ///< a NIC that no job may use (NCCL_IB_HCA)
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
  double ring_channel_gbps = 0;  ///< GB/s of one channel inside one node, as NCCL counts
  double ring_efficiency = 1;    ///< what a large ring collective reaches of channels x speed
  int inter_ring_channels = 0;
  double inter_ring_channel_gbps = 0;  ///< GB/s of one channel when nodes > 1
  double inter_tree_channel_gbps = 0;  ///< of trees inside each of two nodes; 0: as rings
  bool staged = false;                 ///< GPUs of a node reach each other through host memory
  bool over_nics = false;              ///< GPUs of a node reach each other through its NICs
  int nvls_heads = 0;                  ///< 0: no in-switch reduction
  double nvls_head_gbps = 0;
  double inter_nvls_head_gbps = 0;  ///< GB/s of one head when nodes > 1
  bool ll128 = true;                ///< needs NVLink-like ordering
  bool inter_ll128 = true;          ///< and a NIC within PXB of the GPU; counts only with `ll128`
  bool tree_on_one_gpu = false;     ///< all NIC traffic of a node passes one GPU ("TREE" pattern)
  /// Least time on one node with a process for each GPU (nccl_cost.md section 7.1, T_floor; its 48
  /// us of V100 and 42 of eight PCIe cards are those of one process for all: LaunchMode).
  double launch_floor_all_reduce_us = 25;
  double launch_floor_other_us = 16;
  double inter_floor_us = 0;            ///< least time of any operation when nodes > 1: TCPX
  double kappa = 1.0;                   ///< square-root term, nccl_cost.md 7.1 (ii), one node
  double extra_network_latency_us = 0;  ///< EFA, TCP
  int ctas = 24;                        ///< SMs that a large collective holds, one node
  int inter_ctas = 16;
};

struct NodeTemplate {
  std::string name;
  std::string gpu;   ///< a GpuSpec's name
  Bytes gpu_memory;  ///< of one GPU, as the framework reports it; 0: what its kind has
  int gpus = 0;
  IntraNode intra = IntraNode::NvSwitch;
  NodeGraph graph;
  NcclGraph nccl;
  int nics = 0;
  BytesPerSecond nic_bandwidth;          ///< peak, one NIC, one direction
  double nic_efficiency = 1.0;           ///< achieved / peak (topologies.md section 1)
  NetworkKind network{};                 ///< counts if there are NICs
  double gpu_power_limit = 0;            ///< W that an operator allows; 0: the board's
  BytesPerSecond host_link;              ///< PCIe host <-> one GPU, achieved
  Bytes host_memory;                     ///< 0: not known
  BytesPerSecond host_memory_bandwidth;  ///< peak, all sockets; 0: not known
  std::string host_memory_source;        ///< where that figure comes from
  int host_cores = 0;
  std::string cpu;        ///< "intel", "amd": NCCL's row for multi-node LL
  std::string source;     ///< where the figures come from
  BytesPerSecond nvlink;  ///< peak of one NVLink, one direction; 0: none
};

/// Links that all ranks of the cluster load alike; one direction of one GPU's share.
struct LinkClass {
  /// Network: NICs; Fabric: what lies between them (fabric.h).
  enum class Kind { IntraNode, Network, HostToDevice, DeviceToHost, DeviceMemory, Fabric };
  Kind kind = Kind::IntraNode;
  std::string name;         ///< "nvlink" or "pcie", "nic", "h2d", "d2h"
  BytesPerSecond capacity;  ///< what traffic can use of it
};

/// What NCCL does with the NVLinks that are left.
struct SettledNccl {
  IntraNode intra = IntraNode::NvSwitch;
  NcclGraph graph;
};

struct Cluster {
  std::string name;
  NodeTemplate node;
  int nodes = 1;
  int gpus_per_node = 0;  ///< used ones, the first of the node; at most node.gpus
  int used_nics = 0;      ///< NICs of a node that its used GPUs drive; 0: all
  Fabric fabric;
  Perturbations perturbations;
  double price_per_gpu_hour = 0;  ///< 0: not given
  std::vector<std::string> assumptions;
  /// Where NVLinks are lost (nccl_graph.h, `settle_nccl`): NCCL uses no more of any node than the
  /// worst one has.
  std::optional<SettledNccl> settled;
  /// Of the job's environment, no part of a cluster file.
  NcclSettings nccl_settings;

  [[nodiscard]] const NcclGraph& nccl() const { return settled ? settled->graph : node.nccl; }
  [[nodiscard]] IntraNode intra() const { return settled ? settled->intra : node.intra; }
  [[nodiscard]] int world_size() const { return nodes * gpus_per_node; }
  /// Whether no two ranks may behave alike (random jitter, hashed flows): folding must be off.
  [[nodiscard]] bool must_not_fold() const { return perturbations.jitter.any() || fabric.hashed(); }
  [[nodiscard]] const GpuSpec& gpu() const { return gpu_spec(node.gpu); }
  /// Total of one GPU, as the framework reports it.
  [[nodiscard]] Bytes gpu_memory() const {
    return node.gpu_memory > Bytes() ? node.gpu_memory : gpu().memory;
  }
};

/// Link classes of a cluster whose nodes are all alike, one of each kind:
///
/// - IntraNode: what a ring inside a node moves per GPU and direction (its busbw), channels x
///   speed;
/// - Network (nodes > 1): what a node's used NICs move together in one direction:
///   peak x NIC efficiency x fabric efficiency.
///   A ring crosses each node border once per channel, so V bytes of nccl_cost.md section 1 load
///   it with V;
/// - HostToDevice, DeviceToHost: one used GPU's share of the PCIe path to its CPU while all copy.
///
/// DeviceMemory is not among them: what kernels can draw from it is a figure of the engine
/// (`usable_memory_bandwidth`), and it belongs to a GPU, not to the cluster.
[[nodiscard]] std::vector<LinkClass> link_classes(const Cluster& cluster);

/// What a large ring inside a node moves per GPU and direction: channels x speed x efficiency.
[[nodiscard]] BytesPerSecond ring_capacity(const NcclGraph& nccl);

/// NVLinks between a GPU and the NVSwitches.
[[nodiscard]] int links_to_switch(const NodeTemplate& node, int gpu);
/// Direct NVLinks between two GPUs of a mesh.
[[nodiscard]] int links_between(const NodeTemplate& node, int gpu, int other);

/// NICs of a node that its used GPUs drive.
[[nodiscard]] int nics_in_use(const Cluster& cluster);

/// Capacity of one kind as above; of DeviceMemory the datasheet's rate. A fabric has no such
/// figure: of Fabric that of Network.
[[nodiscard]] BytesPerSecond link_capacity(const Cluster& cluster, LinkClass::Kind kind);

/// What traffic can use of one NIC: peak x NIC efficiency x fabric efficiency.
[[nodiscard]] BytesPerSecond usable_nic_bandwidth(const Cluster& cluster);

/// The cluster's network, with the NICs that its used GPUs drive.
/// \throws ConfigError  if it has no room for the nodes
[[nodiscard]] FabricNetwork fabric_network(const Cluster& cluster);

/// Reads a preset's name ("dgx-a100-80") or a cluster file (examples/cluster.json).
/// `nodes` and `gpus_per_node`, where positive, replace what the preset or file says.
/// \throws ConfigError  with file, line, column; unknown GPU or preset with the nearest name; 0
/// nodes.
[[nodiscard]] Cluster load_cluster(const std::string& name_or_path, int nodes = -1,
                                   int gpus_per_node = -1);

/// As `load_cluster` of a file; `file` stands for it in messages.
[[nodiscard]] Cluster parse_cluster(std::string text, const std::string& file);

/// As `load_cluster`, and machines that are only drawn, not simulated (`zerosim topo show`): with
/// GPUs that are not NVIDIA's, whose NcclGraph is empty and which `Cluster::gpu` does not know.
[[nodiscard]] Cluster load_topology(const std::string& name_or_path, int nodes = -1,
                                    int gpus_per_node = -1);

struct ClusterPreset {
  std::string name;
  std::string description;
  bool simulated = true;  ///< `load_cluster` takes it
};
[[nodiscard]] std::vector<ClusterPreset> cluster_presets();

/// Whether every GPU of the template reaches every other and some NIC (if there are NICs).
[[nodiscard]] bool is_connected(const NodeGraph& graph);

}  // namespace zerosim
