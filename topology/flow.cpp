#include "topology/flow.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <boost/graph/connected_components.hpp>
#include <boost/range/iterator_range.hpp>

#include "sim/base/error.h"

namespace zerosim {
namespace {

/// Bytes per second, or a multiple of them: whole, so that cuts compare exactly.
using Rate = std::int64_t;
constexpr Rate kUnlimited = std::numeric_limits<Rate>::max() / 4;

using FlowTraits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;

struct FlowVertex {
  boost::default_color_type color = boost::white_color;
  long distance = 0;
  FlowTraits::edge_descriptor predecessor;
};
struct FlowEdge {
  Rate capacity = 0;
  Rate residual = 0;
  FlowTraits::edge_descriptor reverse;
};
using FlowGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, FlowVertex, FlowEdge>;
using FlowVertexId = FlowTraits::vertex_descriptor;
using FlowEdgeId = FlowTraits::edge_descriptor;

Rate whole_rate(BytesPerSecond rate) {
  return std::llround(rate.per_second());
}

/// A node's devices, as vertices of their own numbers, with its links; and what a question adds.
class Network {
 public:
  /// \param scale  multiplies the rate of every link of the node
  Network(const NodeGraph& node, int gpus, FlowLinks links, Rate scale = 1)
      : graph_(boost::num_vertices(node)), gpus_(static_cast<std::size_t>(gpus)) {
    for (const auto v : boost::make_iterator_range(boost::vertices(node))) {
      if (node[v].kind == DeviceKind::Gpu && takes_part(node[v], gpus)) {
        gpus_[static_cast<std::size_t>(node[v].index)] = v;
      }
    }
    for (const auto edge : boost::make_iterator_range(boost::edges(node))) {
      const auto a = boost::source(edge, node);
      const auto b = boost::target(edge, node);
      const bool used = takes_part(node[a], gpus) && takes_part(node[b], gpus) &&
                        (links == FlowLinks::All || node[edge].kind == LinkKind::NvLink);
      const Rate rate = scale * whole_rate(node[edge].bandwidth);
      if (used) add_link(a, b, rate, rate);
    }
  }
  // Edges know their reverse by its place in this graph.
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] FlowVertexId gpu(int index) const { return gpus_[static_cast<std::size_t>(index)]; }
  FlowVertexId add_vertex() { return boost::add_vertex(graph_); }
  FlowEdgeId add_link(FlowVertexId from, FlowVertexId to, Rate there, Rate back = 0) {
    const FlowEdgeId forward = boost::add_edge(from, to, graph_).first;
    const FlowEdgeId backward = boost::add_edge(to, from, graph_).first;
    graph_[forward] = {there, 0, backward};
    graph_[backward] = {back, 0, forward};
    return forward;
  }
  void set_capacity(const FlowEdgeId& edge, Rate rate) { graph_[edge].capacity = rate; }

  Rate max_flow(FlowVertexId from, FlowVertexId to) {
    return boost::boykov_kolmogorov_max_flow(
        graph_, boost::get(&FlowEdge::capacity, graph_), boost::get(&FlowEdge::residual, graph_),
        boost::get(&FlowEdge::reverse, graph_), boost::get(&FlowVertex::predecessor, graph_),
        boost::get(&FlowVertex::color, graph_), boost::get(&FlowVertex::distance, graph_),
        boost::get(boost::vertex_index, graph_), from, to);
  }

  /// Whether a device was on the source's side of the last minimum cut.
  [[nodiscard]] bool is_on_source_side(FlowVertexId v) const {
    return graph_[v].color == boost::black_color;
  }
  /// Rates of all links that leave that side, but those of `source`.
  [[nodiscard]] Rate outflow(FlowVertexId source) const {
    Rate sum = 0;
    for (const FlowEdgeId& edge : boost::make_iterator_range(boost::edges(graph_))) {
      const FlowVertexId from = boost::source(edge, graph_);
      const bool leaves =
          is_on_source_side(from) && !is_on_source_side(boost::target(edge, graph_));
      if (leaves && from != source) sum += graph_[edge].capacity;
    }
    return sum;
  }

 private:
  static bool takes_part(const Device& device, int gpus) {
    return device.kind != DeviceKind::Gpu || device.index < gpus;
  }

  FlowGraph graph_;
  std::vector<FlowVertexId> gpus_;
};

/// Asks for flows between two groups of a node's GPUs.
class Halves {
 public:
  Halves(const NodeGraph& node, int gpus) : network_(node, gpus, flow_links(node, gpus)) {
    source_ = network_.add_vertex();
    sink_ = network_.add_vertex();
    for (int gpu = 0; gpu < gpus; ++gpu) {
      feeds_.push_back(network_.add_link(source_, network_.gpu(gpu), 0));
      drains_.push_back(network_.add_link(network_.gpu(gpu), sink_, 0));
    }
  }

  /// From the GPUs that are true to the others.
  Rate flow(const std::vector<bool>& half) {
    for (std::size_t gpu = 0; gpu < half.size(); ++gpu) {
      network_.set_capacity(feeds_[gpu], half[gpu] ? kUnlimited : 0);
      network_.set_capacity(drains_[gpu], half[gpu] ? 0 : kUnlimited);
    }
    return network_.max_flow(source_, sink_);
  }

 private:
  Network network_;
  FlowVertexId source_ = 0;
  FlowVertexId sink_ = 0;
  std::vector<FlowEdgeId> feeds_, drains_;
};

constexpr int kMostGpusForEveryHalf = 16;

BytesPerSecond rate_of(Rate rate) {
  return BytesPerSecond(static_cast<double>(rate));
}

/// A set of devices: its GPUs, and what it lets out.
struct SendingSet {
  std::vector<int> gpus;
  Rate outflow = 0;
  [[nodiscard]] Rate count() const { return static_cast<Rate>(gpus.size()); }
};

/// All but one GPU: the one that can receive least.
SendingSet all_but_one(const NodeGraph& graph, int gpus, FlowLinks links) {
  SendingSet least;
  least.outflow = std::numeric_limits<Rate>::max();
  for (int receiver = 0; receiver < gpus; ++receiver) {
    Network network(graph, gpus, links);
    const FlowVertexId source = network.add_vertex();
    SendingSet set;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (gpu == receiver) continue;
      network.add_link(source, network.gpu(gpu), kUnlimited);
      set.gpus.push_back(gpu);
    }
    set.outflow = network.max_flow(source, network.gpu(receiver));
    if (set.outflow < least.outflow) least = set;
  }
  return least;
}

/// A set that lets out less for each of its GPUs than `known`; without GPUs if there is none.
///
/// Rates are multiplied by the GPUs of `known`, so that all are whole: links count |S| times, the
/// source feeds B+(S) to each GPU.
SendingSet narrower_set(const NodeGraph& graph, int gpus, FlowLinks links,
                        const SendingSet& known) {
  Network network(graph, gpus, links, known.count());
  const FlowVertexId source = network.add_vertex();
  for (int gpu = 0; gpu < gpus; ++gpu) network.add_link(source, network.gpu(gpu), known.outflow);
  for (int receiver = 0; receiver < gpus; ++receiver) {
    if (network.max_flow(source, network.gpu(receiver)) == gpus * known.outflow) continue;
    SendingSet set;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (network.is_on_source_side(network.gpu(gpu))) set.gpus.push_back(gpu);
    }
    set.outflow = network.outflow(source) / known.count();
    return set;
  }
  return {};
}

}  // namespace

FlowLinks flow_links(const NodeGraph& graph, int gpus) {
  NodeGraph joined = graph;
  boost::remove_edge_if(
      [&](const NodeGraph::edge_descriptor& edge) {
        const auto idle = [&](NodeGraph::vertex_descriptor v) {
          return graph[v].kind == DeviceKind::Gpu && graph[v].index >= gpus;
        };
        return joined[edge].kind != LinkKind::NvLink || idle(boost::source(edge, joined)) ||
               idle(boost::target(edge, joined));
      },
      joined);
  std::vector<int> component(boost::num_vertices(joined));
  boost::connected_components(joined, component.data());
  std::set<int> with_gpus;
  for (const auto v : boost::make_iterator_range(boost::vertices(graph))) {
    const bool used = graph[v].kind == DeviceKind::Gpu && graph[v].index < gpus;
    if (used) with_gpus.insert(component[v]);
  }
  return gpus >= 2 && with_gpus.size() == 1 ? FlowLinks::NvLink : FlowLinks::All;
}

Bisection bisection(const NodeGraph& graph, int gpus) {
  ZS_CHECK(gpus >= 2, "halves of fewer than two GPUs");
  Halves halves(graph, gpus);
  // The last in the order of permutations: those before it come by prev_permutation.
  std::vector<bool> half(static_cast<std::size_t>(gpus), false);
  std::fill_n(half.begin(), gpus - gpus / 2, true);
  std::vector<bool> narrowest = half;
  Rate rate = halves.flow(half);
  Bisection result;
  result.every_half = gpus <= kMostGpusForEveryHalf;
  // Of an even number each cut shows up twice: GPU 0 stays where it is.
  const auto movable = half.begin() + (gpus % 2 == 0 ? 1 : 0);
  while (result.every_half && std::prev_permutation(movable, half.end())) {
    const Rate flow = halves.flow(half);
    if (flow >= rate) continue;
    rate = flow;
    narrowest = half;
  }
  result.bandwidth = rate_of(rate);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if (narrowest[static_cast<std::size_t>(gpu)] == narrowest[0]) result.half.push_back(gpu);
  }
  return result;
}

AllGatherBound all_gather_bound(const NodeGraph& graph, int gpus) {
  ZS_CHECK(gpus >= 2, "a gather among fewer than two GPUs");
  const FlowLinks links = flow_links(graph, gpus);
  SendingSet set = all_but_one(graph, gpus, links);
  for (;;) {
    ZS_CHECK(set.outflow > 0, "GPUs that do not reach each other");
    SendingSet narrower = narrower_set(graph, gpus, links, set);
    if (narrower.gpus.empty()) break;
    set = std::move(narrower);
  }
  AllGatherBound bound;
  bound.shard = BytesPerSecond(static_cast<double>(set.outflow) / static_cast<double>(set.count()));
  bound.received = BytesPerSecond((gpus - 1) * bound.shard.per_second());
  bound.senders = std::move(set.gpus);
  bound.outflow = rate_of(set.outflow);
  return bound;
}

}  // namespace zerosim
