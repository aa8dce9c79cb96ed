/// \file
/// What several tests ask of a node's graph, and names of tests.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "topology/node_graph.h"

namespace zerosim {

/// GoogleTest takes letters, digits and underscores.
inline std::string test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

/// Links by their ends, kinds and rates. Rates pass through text: equal to the byte a second.
using Edge = std::tuple<std::size_t, std::size_t, LinkKind, double>;
inline std::multiset<Edge> edges_of(const NodeGraph& graph) {
  std::multiset<Edge> edges;
  for (const LinkId link : links_of(graph)) {
    edges.emplace(boost::source(link, graph), boost::target(link, graph), graph[link].kind,
                  std::round(graph[link].bandwidth.per_second()));
  }
  return edges;
}

/// NUMA node of a GPU.
inline int gpu_numa(const NodeGraph& graph, int gpu) {
  return graph[devices_of(graph, DeviceKind::Gpu).at(static_cast<std::size_t>(gpu))].numa;
}

/// The NICs nearest to a GPU by `nic_path`, in order; none if the node has none.
inline std::vector<int> nearest_nics(const NodeGraph& graph, int gpu) {
  std::vector<int> nearest;
  PathKind best = PathKind::None;
  for (const DeviceId device : devices_of(graph, DeviceKind::Nic)) {
    const int nic = graph[device].index;
    const PathKind path = nic_path(graph, gpu, nic);
    if (path < best) nearest.clear();
    best = std::min(best, path);
    if (path == best) nearest.push_back(nic);
  }
  return nearest;
}

}  // namespace zerosim
