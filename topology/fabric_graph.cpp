#include "topology/fabric_graph.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>

#include <boost/graph/push_relabel_max_flow.hpp>
#include <boost/range/iterator_range.hpp>

namespace zerosim {
namespace {

using Vertex = FabricGraph::vertex_descriptor;

class Drawing {
 public:
  explicit Drawing(const FabricNetwork& network) : network_(network), nics_(network.all_nics()) {}

  FabricGraph draw() {
    for (int i = 0; i < network_.places() * nics_; ++i) {
      boost::add_vertex(FabricVertex{FabricVertexKind::Nic, i, i / nics_}, graph_);
    }
    std::visit([this](const auto& chosen) { draw(chosen); }, network_.network());
    return graph_;
  }

 private:
  std::vector<Vertex> add(FabricVertexKind kind, int count) {
    std::vector<Vertex> vertices;
    vertices.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      vertices.push_back(boost::add_vertex(FabricVertex{kind, i, -1}, graph_));
    }
    return vertices;
  }
  static Vertex at(const std::vector<Vertex>& vertices, int index) {
    return vertices[static_cast<std::size_t>(index)];
  }
  void edge(Vertex from, Vertex to, const FabricEdge& edge) {
    boost::add_edge(from, to, edge, graph_);
  }
  /// A NIC and the switch it hangs from.
  void hang(int place, int nic, Vertex from) {
    const Vertex vertex =
        static_cast<Vertex>(place) * static_cast<Vertex>(nics_) + static_cast<Vertex>(nic);
    edge(vertex, from, {network_.nic_bandwidth(), -1, 1, false});
    edge(from, vertex, {network_.nic_bandwidth(), -1, 1, true});
  }
  /// One direction of a part of a link.
  void part_of(int link, double part, bool down, Vertex from, Vertex to) {
    const double rate = network_.capacity(link).per_second() * part;
    edge(from, to, {BytesPerSecond(rate), link, part, down});
  }

  void draw(const FabricNetwork::SingleSwitch& /*one*/) {
    const Vertex leaf = add(FabricVertexKind::Leaf, 1).front();
    for (int i = 0; i < network_.places() * nics_; ++i) hang(i / nics_, i % nics_, leaf);
  }

  void draw(const ClosNetwork& clos) {
    const std::vector<Vertex> leaves = add(FabricVertexKind::Leaf, clos.leaves());
    const std::vector<Vertex> spines =
        add(FabricVertexKind::Spine, clos.pods() * clos.spines_per_pod());
    for (int i = 0; i < network_.places() * nics_; ++i) {
      hang(i / nics_, i % nics_, at(leaves, clos.leaf_of(i / nics_, i % nics_)));
    }
    for (int leaf = 0; leaf < clos.leaves(); ++leaf) draw_leaf(clos, leaf, leaves, spines);
    if (clos.pods() > 1) draw_cores(clos, spines);
  }

  void draw_leaf(const ClosNetwork& clos, int leaf, const std::vector<Vertex>& leaves,
                 const std::vector<Vertex>& spines) {
    const int first = clos.pod_of_leaf(leaf) * clos.spines_per_pod();
    const bool hashed = clos.shape().hashed;
    const int cables = hashed ? clos.leaf_uplinks() : clos.spines_per_pod();
    for (int cable = 0; cable < cables; ++cable) {
      const Vertex spine = at(spines, first + cable % clos.spines_per_pod());
      both(clos.leaf_link(leaf, cable, false), clos.leaf_link(leaf, cable, true),
           hashed ? 1.0 : 1.0 / cables, at(leaves, leaf), spine);
    }
  }

  void draw_cores(const ClosNetwork& clos, const std::vector<Vertex>& spines) {
    const int plane = clos.cores_per_plane();
    const std::vector<Vertex> cores = add(FabricVertexKind::Core, clos.spines_per_pod() * plane);
    const bool hashed = clos.shape().hashed;
    const int cables = hashed ? clos.spine_uplinks() : plane;
    for (int i = 0; i < clos.pods() * clos.spines_per_pod(); ++i) {
      const int pod = i / clos.spines_per_pod();
      const int spine = i % clos.spines_per_pod();
      for (int cable = 0; cable < cables; ++cable) {
        const int in_pod = spine * cables + cable;
        both(clos.spine_link(pod, in_pod, false), clos.spine_link(pod, in_pod, true),
             hashed ? 1.0 : 1.0 / (cables * clos.spines_per_pod()), at(spines, i),
             at(cores, spine * plane + cable % plane));
      }
    }
  }

  /// Up and down between a switch and one above it; the same link twice if only the way up counts.
  void both(int up, int down, double part, Vertex lower, Vertex upper) {
    part_of(up, part, false, lower, upper);
    part_of(down, part, up == down, upper, lower);
  }

  void draw(const DragonflyNetwork& dragonfly) {
    const int size = dragonfly.switches_per_group();
    const std::vector<Vertex> switches = add(FabricVertexKind::Leaf, dragonfly.groups() * size);
    for (int i = 0; i < network_.places() * nics_; ++i) {
      hang(i / nics_, i % nics_, at(switches, dragonfly.switch_of(i / nics_)));
    }
    for (int from = 0; from < dragonfly.groups() * size; ++from) {
      const int first = dragonfly.group_of(from) * size;
      for (int to = first; to < first + size; ++to) {
        if (to == from) continue;
        part_of(dragonfly.local_link(from, to), 1, false, at(switches, from), at(switches, to));
      }
    }
    for (int from = 0; from < dragonfly.groups(); ++from) {
      for (int to = 0; to < dragonfly.groups(); ++to) {
        if (to != from) draw_global(dragonfly, from, to, switches);
      }
    }
  }

  void draw_global(const DragonflyNetwork& dragonfly, int from, int to,
                   const std::vector<Vertex>& switches) {
    for (int cable = 0; cable < dragonfly.gateways(); ++cable) {
      part_of(dragonfly.global_link(from, to), dragonfly.gateway_share(cable), false,
              at(switches, dragonfly.gateway(from, to, cable)),
              at(switches, dragonfly.gateway(to, from, cable)));
    }
  }

  void draw(const TorusNetwork& torus) {
    const std::vector<Vertex> routers = add(FabricVertexKind::Router, torus.size());
    for (int i = 0; i < network_.places() * nics_; ++i) {
      hang(i / nics_, i % nics_, at(routers, i / nics_));
    }
    for (int node = 0; node < torus.size(); ++node) {
      for (int dimension = 0; dimension < torus.dimensions(); ++dimension) {
        for (const bool up : {true, false}) {
          const int next = torus.neighbour(node, dimension, up);
          if (next < 0) continue;
          part_of(torus.link(node, dimension, up), 1, false, at(routers, node), at(routers, next));
        }
      }
    }
  }

  const FabricNetwork& network_;
  int nics_;
  FabricGraph graph_;
};

/// Graph in the form in which Boost.Graph's maximum flow wants it: an edge back for each edge.
struct FlowEdge;
using FlowTraits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
struct FlowEdge {
  std::int64_t capacity = 0;  ///< whole bytes a second: doubles never quite balance
  std::int64_t residual = 0;
  FlowTraits::edge_descriptor reverse{};
};
using FlowGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, FlowEdge>;

void add_flow_edge(FlowGraph& flow, Vertex from, Vertex to, BytesPerSecond rate) {
  const std::int64_t capacity = std::llround(rate.per_second());
  const auto there = boost::add_edge(from, to, FlowEdge{capacity, 0, {}}, flow).first;
  const auto back = boost::add_edge(to, from, FlowEdge{}, flow).first;
  flow[there].reverse = back;
  flow[back].reverse = there;
}

}  // namespace

FabricGraph expand(const FabricNetwork& network) {
  return Drawing(network).draw();
}

BytesPerSecond flow_between(const FabricGraph& graph, const std::vector<int>& from,
                            const std::vector<int>& to) {
  FlowGraph flow(boost::num_vertices(graph) + 2);
  const Vertex source = boost::num_vertices(graph);
  const Vertex sink = source + 1;
  for (const auto& edge : boost::make_iterator_range(boost::edges(graph))) {
    add_flow_edge(flow, boost::source(edge, graph), boost::target(edge, graph),
                  graph[edge].bandwidth);
  }
  const auto add_ends = [&](const std::vector<int>& places, auto add) {
    const std::set<int> chosen(places.begin(), places.end());
    for (const Vertex v : boost::make_iterator_range(boost::vertices(graph))) {
      if (graph[v].kind != FabricVertexKind::Nic || !chosen.contains(graph[v].place)) continue;
      // A NIC cannot send or take more than its own cable.
      add(v, graph[*boost::out_edges(v, graph).first].bandwidth);
    }
  };
  add_ends(from, [&](Vertex v, BytesPerSecond rate) { add_flow_edge(flow, source, v, rate); });
  add_ends(to, [&](Vertex v, BytesPerSecond rate) { add_flow_edge(flow, v, sink, rate); });
  const std::int64_t most =
      boost::push_relabel_max_flow(flow, source, sink,
                                   boost::capacity_map(boost::get(&FlowEdge::capacity, flow))
                                       .residual_capacity_map(boost::get(&FlowEdge::residual, flow))
                                       .reverse_edge_map(boost::get(&FlowEdge::reverse, flow)));
  return BytesPerSecond(static_cast<double>(most));
}

BytesPerSecond bisection_bandwidth(const FabricNetwork& network) {
  const int half = network.nodes() / 2;
  std::vector<int> first, second;
  for (int node = 0; node < half; ++node) {
    first.push_back(network.place(node));
    second.push_back(network.place(network.nodes() - half + node));
  }
  return flow_between(expand(network), first, second);
}

}  // namespace zerosim
