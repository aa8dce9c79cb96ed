#include "topology/summary.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "topology/fabric_graph.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

void add_paths(const NodeGraph& graph, TopologySummary& summary) {
  summary.narrowest_path = BytesPerSecond(std::numeric_limits<double>::infinity());
  for (int a = 0; a < summary.gpus; ++a) {
    for (int b = a + 1; b < summary.gpus; ++b) {
      const BytesPerSecond rate = gpu_path_bandwidth(graph, a, b);
      summary.narrowest_path = std::min(summary.narrowest_path, rate);
      summary.widest_path = std::max(summary.widest_path, rate);
    }
  }
}

/// Used GPUs of an NVLink domain, on switches that are drawn as one.
NodeGraph domain_graph(const Cluster& cluster, int gpus) {
  NodeShape shape;
  shape.gpus = gpus;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const BytesPerSecond own = nvlink_bandwidth(cluster.node.graph, gpu % cluster.gpus_per_node);
    shape.nvswitch_links.push_back(own);
    shape.nvswitch = std::max(shape.nvswitch, own);
  }
  return build_node_graph(shape);
}

void add_network(const Cluster& cluster, TopologySummary& summary) {
  if (cluster.node.nics == 0) return;
  summary.used_nics = nics_in_use(cluster);
  const BytesPerSecond network = link_capacity(cluster, LinkClass::Kind::Network);
  summary.network_per_gpu = BytesPerSecond(network.per_second() / cluster.gpus_per_node);
}

/// Larger fabrics take too long to ask (8,192 NICs: 0.2 s; 32,768: 1.2 s).
constexpr int kMostDrawnNics = 8192;

void add_fabric(const Cluster& cluster, TopologySummary& summary) {
  const FabricNetwork network = fabric_network(cluster);
  FabricSummary fabric;
  fabric.kind = cluster.fabric.kind;
  fabric.levels = network.levels();
  const int half = cluster.nodes / 2;
  fabric.half_nics =
      BytesPerSecond(network.nic_bandwidth().per_second() * network.all_nics() * half);
  if (fabric.kind == FabricKind::Switch) {
    fabric.bisection = fabric.half_nics;
  } else {
    fabric.counts = network.counts();
    if (network.places() <= kMostDrawnNics / network.all_nics()) {
      fabric.bisection = bisection_bandwidth(network);
    }
  }
  summary.fabric = std::move(fabric);
}

}  // namespace

TopologySummary summarize(const Cluster& cluster) {
  TopologySummary summary;
  add_network(cluster, summary);
  if (cluster.nodes > 1) add_fabric(cluster, summary);
  const bool in_domain =
      cluster.fabric.nvlink_domain_nodes > 1 && cluster.node.intra == IntraNode::NvSwitch;
  const int domain_nodes =
      in_domain ? std::min(cluster.fabric.nvlink_domain_nodes, cluster.nodes) : 1;
  summary.gpus = cluster.gpus_per_node * domain_nodes;
  if (summary.gpus < 2) return summary;
  const NodeGraph graph =
      domain_nodes > 1 ? domain_graph(cluster, summary.gpus) : cluster.node.graph;
  summary.links = flow_links(graph, summary.gpus);
  add_paths(graph, summary);
  if (is_simulated_gpu(cluster.node.gpu)) {
    summary.rings = link_capacity(cluster, LinkClass::Kind::IntraNode);
  }
  if (summary.narrowest_path.per_second() <= 0) return summary;
  summary.bisection = bisection(graph, summary.gpus);
  summary.all_gather = all_gather_bound(graph, summary.gpus);
  return summary;
}

}  // namespace zerosim
