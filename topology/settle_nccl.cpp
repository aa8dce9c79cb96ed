#include <algorithm>
#include <cmath>
#include <map>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/nccl_graph.h"

namespace zerosim {
namespace {

/// Links of the node as a job on its used GPUs finds them.
NodeShape link_shape(const Cluster& cluster) {
  const NodeTemplate& node = cluster.node;
  NodeShape shape;
  shape.gpus = cluster.gpus_per_node;
  shape.nvlink = node.nvlink;
  shape.pcie = slowest_host_path(node.graph, shape.gpus);
  if (node.intra == IntraNode::NvSwitch) {
    return shape;  // without_switch_links counts them
  }
  for (int a = 0; a < shape.gpus; ++a) {
    for (int b = a + 1; b < shape.gpus; ++b) {
      const double rate = nvlink_pair_bandwidth(node.graph, a, b).per_second();
      const auto links = static_cast<int>(std::lround(rate / node.nvlink.per_second()));
      if (links > 0) shape.mesh.push_back({a, b, links});
    }
  }
  return shape;
}

/// What is lost of one node: of each GPU (NVSwitch) or pair (mesh, the lower first, else -1).
using Lost = std::map<std::pair<int, int>, int>;

void add_lost(const LinkPerturbation& entry, const Cluster& cluster, Lost& lost) {
  const bool meshed = cluster.node.intra == IntraNode::NvLinkMesh;
  const auto add = [&](int gpu) {
    const std::pair<int, int> pair =
        meshed ? std::pair(std::min(gpu, entry.peer), std::max(gpu, entry.peer))
               : std::pair(gpu, -1);
    lost[pair] += entry.lost_links;
  };
  for (const int gpu : entry.gpus) add(gpu);
  for (int gpu = 0; entry.gpus.empty() && gpu < cluster.gpus_per_node; ++gpu) {
    if (gpu != entry.peer) add(gpu);
  }
}

bool takes_links(const LinkPerturbation& entry) {
  return entry.where == LinkPerturbation::Where::NvLink && entry.lost_links > 0;
}

/// By node, those alike once: nodes that no entry names are like the last one.
std::vector<Lost> lost_links(const Cluster& cluster) {
  std::map<int, Lost> by_node;
  Lost elsewhere;
  for (const LinkPerturbation& entry : cluster.perturbations.links) {
    for (const int node : entry.nodes) {
      if (takes_links(entry)) by_node.try_emplace(node);
    }
  }
  for (const LinkPerturbation& entry : cluster.perturbations.links) {
    if (!takes_links(entry)) continue;
    if (cluster.node.intra == IntraNode::NvLinkMesh && entry.peer < 0) {
      throw ConfigError(
          "lost NVLinks of a mesh lie between two GPUs: give \"peer\", the other one");
    }
    if (entry.nodes.empty()) {
      for (auto& [node, lost] : by_node) add_lost(entry, cluster, lost);
      add_lost(entry, cluster, elsewhere);
    }
    for (const int node : entry.nodes) add_lost(entry, cluster, by_node[node]);
  }
  std::vector<Lost> all;
  all.reserve(by_node.size() + 1);
  for (const auto& [node, lost] : by_node) all.push_back(lost);
  if (!elsewhere.empty()) all.push_back(elsewhere);
  return all;
}

[[noreturn]] void fail_too_many(int lost, int there, const std::string& where) {
  throw ConfigError(format("{} NVLinks are lost {}, where there are {}", lost, where, there));
}

/// The GPU with the fewest links left holds the rings.
NodeShape without_switch_links(NodeShape shape, const Lost& lost, const NodeTemplate& node) {
  int fewest = 0;
  for (int gpu = 0; gpu < shape.gpus; ++gpu) {
    const int there = links_to_switch(node, gpu);
    const auto entry = lost.find({gpu, -1});
    const int gone = entry == lost.end() ? 0 : entry->second;
    if (gone >= there) fail_too_many(gone, there, "on one GPU");
    fewest = gpu == 0 ? there - gone : std::min(fewest, there - gone);
  }
  shape.nvswitch = BytesPerSecond(node.nvlink.per_second() * fewest);
  return shape;
}

NodeShape without_mesh_links(NodeShape shape, const Lost& lost) {
  for (const auto& [place, links] : lost) {
    const auto [a, b] = place;
    if (b >= shape.gpus) continue;
    const auto pair =
        std::find_if(shape.mesh.begin(), shape.mesh.end(),
                     [a = a, b = b](const NvLinkPair& p) { return p.a == a && p.b == b; });
    const int there = pair == shape.mesh.end() ? 0 : pair->links;
    if (links > there) fail_too_many(links, there, format("between GPUs {} and {}", a, b));
    pair->links -= links;
  }
  return shape;
}

/// What the search finds on a node of `shape`; figures that do not follow from links are kept.
SettledNccl settled_on(const Cluster& cluster, const NodeShape& shape) {
  const int gpus = std::max(cluster.gpus_per_node, 2);
  SettledNccl result{cluster.node.intra, cluster.node.nccl};
  const GpuSpec& gpu = cluster.gpu();
  NcclGraph found = result.graph;
  if (result.intra == IntraNode::NvLinkMesh) {
    result.intra = intra_by_links(cluster.node.graph, shape.mesh, gpu, cluster.node.cpu,
                                  cluster.gpus_per_node);
  }
  set_intra_node(found, result.intra, shape, gpu, gpus);
  if (result.intra == cluster.node.intra) found.ring_efficiency = result.graph.ring_efficiency;
  if (result.graph.inter_ring_channels > 0) {
    const NcclGraph before = found;
    set_inter_node(found, gpu, before.inter_ring_channels, cluster.node.nic_bandwidth,
                   NetworkKind::InfiniBand);
    found.extra_network_latency_us = before.extra_network_latency_us;
    found.inter_ll128 = before.inter_ll128 && found.ll128;
  }
  result.graph = found;
  ZS_CHECK(ring_capacity(found).per_second() > 0, "rings of some rate on the links that are left");
  return result;
}

}  // namespace

void settle_nccl(Cluster& cluster) {
  cluster.settled.reset();
  const std::vector<Lost> all = lost_links(cluster);
  if (all.empty()) return;
  const bool meshed = cluster.node.intra == IntraNode::NvLinkMesh;
  if (!meshed && cluster.node.intra != IntraNode::NvSwitch) {
    throw ConfigError(format("NVLinks are lost on nodes ({}) that have none", cluster.node.name));
  }
  const NodeShape whole = link_shape(cluster);
  for (const Lost& lost : all) {
    const NodeShape left =
        meshed ? without_mesh_links(whole, lost) : without_switch_links(whole, lost, cluster.node);
    const SettledNccl found = settled_on(cluster, left);
    if (!cluster.settled || ring_capacity(found.graph) < ring_capacity(cluster.settled->graph)) {
      cluster.settled = found;
    }
  }
}

}  // namespace zerosim
