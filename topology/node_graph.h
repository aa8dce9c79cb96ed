/// \file
/// The graph of one node: how it is built, and the questions that presets and tests ask of it.
///
/// Paths are classed in NCCL's order (spec/topologies.md section 4): NVLink direct, through a
/// switch, through one GPU; then PCIe below one switch, below several, through a CPU, between CPUs.
#pragma once

#include <span>
#include <vector>

#include "topology/cluster.h"

namespace zerosim {

/// A pair of GPUs and the NVLinks that join them.
struct NvLinkPair {
  int a = 0;
  int b = 0;
  int links = 0;
};

/// What a device hangs from on the host side.
struct HostParent {
  DeviceKind kind = DeviceKind::Cpu;  ///< Cpu, or PcieSwitch of a lower number
  int index = 0;
};

/// What a node looks like: enough to draw its graph. GPUs and NICs are dealt out evenly, in order:
/// the first PCIe switches (or root ports) belong to the first CPU. Where they are not, the three
/// lists of parents say where each hangs.
struct NodeShape {
  int gpus = 0;
  int sockets = 1;
  int gpus_per_pcie_switch = 0;  ///< 0: every GPU on a root port of its CPU
  std::vector<int>
      numa_nodes;       ///< of each PCIe switch, or of each CPU without switches; empty: CPU's
  BytesPerSecond pcie;  ///< peak, one direction, GPU slot and switch uplink alike
  BytesPerSecond socket_link;  ///< between CPUs
  BytesPerSecond nvswitch;     ///< peak of one GPU into the switches, one direction; 0: none
  BytesPerSecond nvlink;       ///< peak of one link of the mesh, one direction
  std::vector<NvLinkPair> mesh;
  int nics = 0;
  std::vector<HostParent> switch_parents;  ///< of each PCIe switch; empty: evenly
  std::vector<HostParent> gpu_parents;     ///< of each GPU; empty: evenly
  std::vector<HostParent> nic_parents;     ///< of each NIC; empty: evenly
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

/// Sum of the NVLinks that leave a GPU, one direction.
[[nodiscard]] BytesPerSecond nvlink_bandwidth(const NodeGraph& graph, int gpu);

/// Sum of the NVLinks between two GPUs, one direction; 0 if none joins them directly.
[[nodiscard]] BytesPerSecond nvlink_pair_bandwidth(const NodeGraph& graph, int gpu_a, int gpu_b);

/// NICs that a GPU drives: those at the best kind of path, in order (NCCL's choice, too).
[[nodiscard]] std::vector<int> nearest_nics(const NodeGraph& graph, int gpu);

/// NICs that one of the first `gpus` GPUs reaches without passing a CPU; all of them if none is so
/// near.
[[nodiscard]] int reachable_nics(const NodeGraph& graph, int gpus);

/// How many of the first `gpus` GPUs share the most crowded link between a GPU and its CPU.
[[nodiscard]] int gpus_per_host_link(const NodeGraph& graph, int gpus);

/// The most rings of link-disjoint, equally directed steps over the first `gpus` GPUs of a mesh,
/// both directions counted: NCCL's ring channels before any duplication. `links[a][b]` counts
/// links.
///
/// Two GPUs use each link in both directions, so they have as many rings as links. From three on a
/// ring and its reverse are two channels on the same links: twice the number of edge-disjoint
/// Hamiltonian cycles of the multigraph. Where all g GPUs are joined alike by m links a pair these
/// are m (g - 1) / 2, rounded down (Walecki: a complete graph of odd order, or two of even order,
/// fall into such cycles); else they are found by exhaustive search. At most 8 GPUs.
[[nodiscard]] int mesh_rings(std::span<const NvLinkPair> mesh, int gpus);

}  // namespace zerosim
