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
      const int links = links_between(node, a, b);
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
  for_selected(entry.gpus, cluster.gpus_per_node, [&](int gpu) {
    if (!entry.gpus.empty() || gpu != entry.peer) add(gpu);
  });
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

struct Channels {
  int count = 0;
  double gbps = 0;
  [[nodiscard]] double bus() const { return count * gbps; }
};
Channels rings(const NcclGraph& graph) {
  return {graph.ring_channels, graph.ring_channel_gbps};
}
Channels inter_rings(const NcclGraph& graph) {
  return {graph.inter_ring_channels, graph.inter_ring_channel_gbps};
}
Channels heads(const NcclGraph& graph) {
  return {graph.nvls_heads, graph.nvls_head_gbps};
}

bool alike(Channels a, Channels b) {
  return a.count == b.count && std::abs(a.gbps - b.gbps) <= 1e-9 * b.gbps;
}

/// Channels on the links that are left. The rule finds `whole` before and `left` then; where the
/// node has others (`given`: a file's, a log's of the machine), they stay as many and lose the part
/// that the rule's lose.
Channels carried(Channels given, Channels whole, Channels left) {
  if (alike(given, whole) || whole.bus() <= 0) return left;
  return {given.count, given.gbps * std::min(1.0, left.bus() / whole.bus())};
}

/// By the rule, with the network that the node has. Its own latency does not follow from links.
void set_network(NcclGraph& graph, const Cluster& cluster) {
  const NcclGraph& own = cluster.node.nccl;
  if (own.inter_ring_channels == 0) return;
  set_inter_node(graph, cluster.gpu(), std::max(1, nics_in_use(cluster)),
                 cluster.node.nic_bandwidth, NetworkKind::InfiniBand);
  graph.extra_network_latency_us = own.extra_network_latency_us;
  graph.inter_floor_us = own.inter_floor_us;
  graph.inter_ll128 = own.inter_ll128 && graph.ll128;
}

/// Given channels between nodes hold as long as the links inside keep up.
void keep_inter_rings(NcclGraph& graph, const Cluster& cluster) {
  const Channels given = inter_rings(cluster.node.nccl);
  NcclGraph rule = cluster.node.nccl;
  set_network(rule, cluster);
  if (alike(given, inter_rings(rule))) return;
  const double limit = kInterOverIntra * rings(graph).bus() / given.count;
  give_inter_rings(graph, given.count, std::min(given.gbps, limit));
}

/// What the search finds where of `whole` only `left` is left.
SettledNccl settled_on(const Cluster& cluster, const NodeShape& whole, const NodeShape& left) {
  const NcclGraph& own = cluster.node.nccl;
  const GpuSpec& gpu = cluster.gpu();
  const int gpus = std::max(cluster.gpus_per_node, 2);
  SettledNccl result{cluster.node.intra, own};
  NcclGraph& found = result.graph;
  if (result.intra == IntraNode::NvLinkMesh) {
    result.intra =
        intra_by_links(cluster.node.graph, left.mesh, gpu, cluster.node.cpu, cluster.gpus_per_node);
  }
  const auto set_links = [&](NcclGraph& graph, const NodeShape& shape) {
    set_intra_node(graph, result.intra, shape, gpu, gpus,
                   gpus_per_host_link(cluster.node.graph, cluster.gpus_per_node));
  };
  set_links(found, left);
  if (result.intra != cluster.node.intra) {
    set_network(found, cluster);
    return result;
  }
  found.ring_efficiency = own.ring_efficiency;
  NcclGraph rule = own;
  set_links(rule, whole);
  const Channels kept_rings = carried(rings(own), rings(rule), rings(found));
  const Channels kept_heads = carried(heads(own), heads(rule), heads(found));
  give_rings(found, kept_rings.count, kept_rings.gbps);
  found.nvls_heads = kept_heads.count;
  found.nvls_head_gbps = kept_heads.gbps;
  set_network(found, cluster);
  keep_inter_rings(found, cluster);
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
  const NodeShape links = link_shape(cluster);
  const auto without = [&](const Lost& lost) {
    return meshed ? without_mesh_links(links, lost)
                  : without_switch_links(links, lost, cluster.node);
  };
  const NodeShape whole = without({});
  for (const Lost& lost : all) {
    const SettledNccl found = settled_on(cluster, whole, without(lost));
    ZS_CHECK(ring_capacity(found.graph).per_second() > 0, "rings of some rate on what is left");
    if (!cluster.settled || ring_capacity(found.graph) < ring_capacity(cluster.settled->graph)) {
      cluster.settled = found;
    }
  }
}

}  // namespace zerosim
