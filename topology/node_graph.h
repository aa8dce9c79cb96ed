/// \file
/// The graph of one node: how it is built, and the questions that presets and tests ask of it.
///
/// Paths are classed in NCCL's order (spec/topologies.md section 4): NVLink direct, through a
/// switch, through one GPU; then PCIe below one switch, below several, through a CPU, between CPUs.
#pragma once

#include <span>
#include <vector>

#include <boost/range/iterator_range.hpp>

#include "topology/cluster.h"

namespace zerosim {

using DeviceId = NodeGraph::vertex_descriptor;
using LinkId = NodeGraph::edge_descriptor;

/// All devices of a kind, in the order of their numbers.
[[nodiscard]] std::vector<DeviceId> devices_of(const NodeGraph& graph, DeviceKind kind);
/// For loops: the links of a device, whose `boost::target` is the other end, in the order in which
/// they were drawn; all links of the node.
[[nodiscard]] inline auto links_of(const NodeGraph& graph, DeviceId device) {
  return boost::make_iterator_range(boost::out_edges(device, graph));
}
[[nodiscard]] inline auto links_of(const NodeGraph& graph) {
  return boost::make_iterator_range(boost::edges(graph));
}

/// A pair of GPUs and the NVLinks that join them.
struct NvLinkPair {
  int a = 0;
  int b = 0;
  int links = 0;
};

/// What a device hangs from on the host side.
struct HostParent {
  DeviceKind kind = DeviceKind::Cpu;  ///< Cpu, or PcieSwitch of a lower number; of a NIC also Gpu
  int index = 0;
};

/// What a node looks like: enough to draw its graph. GPUs and NICs are dealt out evenly, in order:
/// the first PCIe switches (or root ports) belong to the first CPU. Where they are not, the three
/// lists of parents say where each hangs. Links that differ from their like are listed, too. A
/// "CPU" is a NUMA node, as NCCL sees it.
struct NodeShape {
  int gpus = 0;
  int sockets = 1;
  int gpus_per_pcie_switch = 0;  ///< 0: every GPU on a root port of its CPU
  std::vector<int>
      numa_nodes;       ///< of each PCIe switch, or of each CPU without switches; empty: CPU's
  BytesPerSecond pcie;  ///< peak, one direction, GPU slot and switch uplink alike
  BytesPerSecond c2c;   ///< between each GPU and its CPU in place of PCIe (Grace); 0: PCIe
  BytesPerSecond socket_link;  ///< between CPUs
  BytesPerSecond nvswitch;     ///< peak of one GPU into the switches, one direction; 0: none
  BytesPerSecond nvlink;       ///< peak of one link, one direction; 0: no mesh, and not known
  std::vector<NvLinkPair> mesh;
  int nics = 0;
  std::vector<HostParent> switch_parents;  ///< of each PCIe switch; empty: evenly
  std::vector<HostParent> gpu_parents;     ///< of each GPU; empty: evenly
  std::vector<HostParent> nic_parents;     ///< of each NIC; empty: evenly
  std::vector<int> cpu_numa;  ///< of each CPU; empty: as `numa_nodes` says, or its number
  std::vector<BytesPerSecond> switch_links;    ///< from each PCIe switch up; empty: `pcie`
  std::vector<BytesPerSecond> gpu_links;       ///< from each GPU up; empty: `pcie`
  std::vector<BytesPerSecond> nic_links;       ///< from each NIC up; empty: `pcie`, or its port
  std::vector<BytesPerSecond> nvswitch_links;  ///< of each GPU into the switches; empty: `nvswitch`
  std::vector<BytesPerSecond> nic_ports;       ///< of each NIC; empty: not known
};

[[nodiscard]] NodeGraph build_node_graph(const NodeShape& shape);

/// Every pair of `gpus` GPUs joined by an equal part of `links_per_gpu` links (the rest stays
/// unused).
[[nodiscard]] std::vector<NvLinkPair> full_mesh(int gpus, int links_per_gpu);

/// How two devices of a node reach each other, best first.
enum class PathKind {
  NvLink,
  NvSwitch,
  NvLinkViaGpu,
  PcieSwitch,
  PcieSwitches,
  HostBridge,
  System,
  None
};

[[nodiscard]] PathKind gpu_path(const NodeGraph& graph, int gpu_a, int gpu_b);
[[nodiscard]] PathKind nic_path(const NodeGraph& graph, int gpu, int nic);
/// Between two GPUs over PCIe and CPUs, whatever NVLinks join them.
[[nodiscard]] PathKind gpu_host_path(const NodeGraph& graph, int gpu_a, int gpu_b);
[[nodiscard]] bool is_on_nvswitch(const NodeGraph& graph, int gpu);

/// Sum of the NVLinks that leave a GPU, one direction.
[[nodiscard]] BytesPerSecond nvlink_bandwidth(const NodeGraph& graph, int gpu);

/// Sum of the NVLinks between two GPUs, one direction; 0 if none joins them directly.
[[nodiscard]] BytesPerSecond nvlink_pair_bandwidth(const NodeGraph& graph, int gpu_a, int gpu_b);

/// Of the path that `gpu_path` names: its narrowest link, one direction (between GPUs of a mesh the
/// sum of the links between two neighbours; of several GPUs on the way the best); 0: no path.
[[nodiscard]] BytesPerSecond gpu_path_bandwidth(const NodeGraph& graph, int gpu_a, int gpu_b);
[[nodiscard]] BytesPerSecond nic_path_bandwidth(const NodeGraph& graph, int gpu, int nic);

/// NICs that a job on the first `gpus` GPUs drives, and how fast.
struct UsedNics {
  std::vector<int> nics;
  BytesPerSecond bandwidth;  ///< of each, one direction
};
/// Of the NICs that one of these GPUs reaches without passing a CPU, or over C2C and its own CPU
/// (of all, if none is so near) those of one speed or more, where speed x number is largest: NCCL's
/// channels all have one speed. A NIC is as fast as its port, or as its link to the host if that is
/// slower or the port unknown. Those that are off do not count.
[[nodiscard]] UsedNics used_nics(const NodeGraph& graph, int gpus);
/// How many these are.
[[nodiscard]] int reachable_nics(const NodeGraph& graph, int gpus);

/// The link of a GPU, NIC or PCIe switch towards its CPU.
struct HostLink {
  HostParent parent;
  BytesPerSecond bandwidth;  ///< peak, one direction
};
[[nodiscard]] HostLink host_link(const NodeGraph& graph, DeviceKind kind, int index);

/// The slowest link between a GPU and its CPU, one direction.
[[nodiscard]] BytesPerSecond host_path_bandwidth(const NodeGraph& graph, int gpu);
/// The least of it among the first `gpus` GPUs, at least one.
[[nodiscard]] BytesPerSecond slowest_host_path(const NodeGraph& graph, int gpus);

/// PCIe switches between a device and its CPU, the nearest first.
[[nodiscard]] std::vector<int> switches_above(const NodeGraph& graph, DeviceKind kind, int index);

/// How many of the first `gpus` GPUs share the most crowded link between a GPU and its CPU.
[[nodiscard]] int gpus_per_host_link(const NodeGraph& graph, int gpus);

/// The search for rings of a mesh takes no more GPUs.
constexpr int kMaxMeshGpus = 8;

/// The most rings of link-disjoint, equally directed steps over the first `gpus` GPUs of a mesh,
/// both directions counted: NCCL's ring channels before any duplication. `links[a][b]` counts
/// links.
///
/// Two GPUs use each link in both directions, so they have as many rings as links. From three on a
/// ring and its reverse are two channels on the same links: twice the number of edge-disjoint
/// Hamiltonian cycles of the multigraph. Where all g GPUs are joined alike by m links a pair these
/// are m (g - 1) / 2, rounded down (Walecki: a complete graph of odd order, or two of even order,
/// fall into such cycles); else they are found by exhaustive search, which gives up after a million
/// steps with the most that it has found. At most `kMaxMeshGpus` GPUs.
[[nodiscard]] int mesh_rings(std::span<const NvLinkPair> mesh, int gpus);

}  // namespace zerosim
