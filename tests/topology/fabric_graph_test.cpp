#include "topology/fabric_graph.h"

#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <boost/range/iterator_range.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

constexpr BytesPerSecond kNic = 10_GBps;

/// A fabric with what it must come to.
struct Case {
  std::string name;
  FabricKind kind = FabricKind::Switch;
  int nodes = 8;
  int nics = 1;
  ClosShape clos;
  DragonflyShape dragonfly;
  TorusShape torus;
  double bisection = 0;  ///< GB/s, one direction

  [[nodiscard]] FabricNetwork network() const {
    Fabric fabric;
    fabric.kind = kind;
    fabric.clos = clos;
    fabric.dragonfly = dragonfly;
    fabric.torus = torus;
    return {fabric, nodes, nics, kNic};
  }
};

std::ostream& operator<<(std::ostream& out, const Case& example) {
  return out << example.name;
}

ClosShape clos(int nodes_per_leaf, int leaves_per_pod, double oversubscription, double core) {
  ClosShape shape;
  shape.nodes_per_leaf = nodes_per_leaf;
  shape.leaves_per_pod = leaves_per_pod;
  shape.oversubscription = oversubscription;
  shape.core_oversubscription = core;
  return shape;
}

ClosShape hashed(ClosShape shape) {
  shape.hashed = true;
  return shape;
}

DragonflyShape dragonfly(int nodes_per_switch, int switches, double taper,
                         DragonflyRouting routing) {
  DragonflyShape shape;
  shape.nodes_per_switch = nodes_per_switch;
  shape.switches_per_group = switches;
  shape.taper = taper;
  shape.routing = routing;
  return shape;
}

std::vector<Case> cases() {
  using Kind = FabricKind;
  const auto minimal = DragonflyRouting::Minimal;
  const auto adaptive = DragonflyRouting::Adaptive;
  return {
      // Half of the NICs send at their rate.
      {"switch", Kind::Switch, 8, 2, {}, {}, {}, 8 * 10.0},
      // 1/o of that, as halves are whole leaves.
      {"leaf_spine_1", Kind::LeafSpine, 8, 2, clos(2, 0, 1, 1), {}, {}, 8 * 10.0},
      {"leaf_spine_2", Kind::LeafSpine, 8, 2, clos(2, 0, 2, 1), {}, {}, 8 * 10.0 / 2},
      {"leaf_spine_3", Kind::LeafSpine, 12, 1, clos(3, 0, 3, 1), {}, {}, 6 * 10.0 / 3},
      // Each cable of its own: 2 leaves a half with 2 cables each.
      {"leaf_spine_hashed", Kind::LeafSpine, 8, 2, hashed(clos(2, 0, 2, 1)), {}, {}, 4 * 10.0},
      // k = 4: full.
      {"fat_tree_4", Kind::FatTree, 16, 1, clos(2, 2, 1, 1), {}, {}, 8 * 10.0},
      {"fat_tree_4_hashed", Kind::FatTree, 16, 1, hashed(clos(2, 2, 1, 1)), {}, {}, 8 * 10.0},
      // Leaves 2:1 and spines 2:1: a quarter.
      {"fat_tree_tapered", Kind::FatTree, 32, 1, clos(4, 2, 2, 2), {}, {}, 16 * 10.0 / 4},
      {"rails_2", Kind::RailOptimised, 16, 4, clos(4, 4, 2, 1), {}, {}, 32 * 10.0 / 2},
      {"rails_core_2", Kind::RailOptimised, 16, 4, clos(4, 1, 1, 2), {}, {}, 32 * 10.0 / 2},
      // 2 groups of 8 NICs joined by 8 / taper cables.
      {"dragonfly_2", Kind::Dragonfly, 8, 2, {}, dragonfly(2, 2, 1, minimal), {}, 8 * 10.0},
      {"dragonfly_2_tapered",
       Kind::Dragonfly,
       8,
       2,
       {},
       dragonfly(2, 2, 2, adaptive),
       {},
       4 * 10.0},
      // 4 groups of 9 NICs, 3 cables a pair: halves are joined by 2 x 2 pairs.
      {"dragonfly_4", Kind::Dragonfly, 12, 3, {}, dragonfly(1, 3, 1, adaptive), {}, 12 * 10.0},
      {"dragonfly_minimal", Kind::Dragonfly, 12, 3, {}, dragonfly(1, 3, 1, minimal), {}, 12 * 10.0},
      // 1 cable a pair, and 2 of them over 3 switches: halves of 2 groups are joined by 4 pairs.
      {"dragonfly_sparse", Kind::Dragonfly, 12, 1, {}, dragonfly(1, 3, 1, adaptive), {}, 4 * 10.0},
      {"dragonfly_sparse_minimal",
       Kind::Dragonfly,
       12,
       1,
       {},
       dragonfly(1, 3, 1, minimal),
       {},
       4 * 10.0},
      {"dragonfly_uneven", Kind::Dragonfly, 24, 1, {}, dragonfly(2, 3, 1, adaptive), {}, 8 * 10.0},
      {"dragonfly_uneven_minimal",
       Kind::Dragonfly,
       24,
       1,
       {},
       dragonfly(2, 3, 1, minimal),
       {},
       8 * 10.0},
      // d x d: 2 d cables. d x d x d: 2 d^2.
      {"torus_4x4", Kind::Torus, 16, 2, {}, {}, {{4, 4}, kNic}, 2 * 4 * 10.0},
      {"torus_4x4x4", Kind::Torus, 64, 4, {}, {}, {{4, 4, 4}, kNic}, 2 * 16 * 10.0},
      // A ring of 8 is cut twice; a dimension of 2 has one cable each: 3.
      {"ring", Kind::Torus, 8, 4, {}, {}, {{8}, kNic}, 2 * 10.0},
      {"torus_3x2", Kind::Torus, 6, 4, {}, {}, {{3, 2}, kNic}, 3 * 10.0},
  };
}

class FabricGraphs : public testing::TestWithParam<Case> {};

TEST_P(FabricGraphs, BisectionIsTheClosedForm) {
  EXPECT_NEAR(bisection_bandwidth(GetParam().network()).gb_per_second(), GetParam().bisection,
              1e-6);
}

/// All of a link is drawn, in each direction that counts.
TEST_P(FabricGraphs, DrawsEveryLinkWhole) {
  const FabricNetwork network = GetParam().network();
  const FabricGraph graph = expand(network);
  std::map<int, double> up, down;
  for (const auto& edge : boost::make_iterator_range(boost::edges(graph))) {
    const FabricEdge& drawn = graph[edge];
    if (drawn.link < 0) continue;
    (drawn.down ? down : up)[drawn.link] += drawn.part;
    EXPECT_NEAR(drawn.bandwidth.per_second(),
                network.capacity(drawn.link).per_second() * drawn.part, 1);
  }
  for (const auto& [link, part] : up) EXPECT_NEAR(part, 1, 1e-12) << network.name(link);
  for (const auto& [link, part] : down) EXPECT_NEAR(part, 1, 1e-12) << network.name(link);
}

std::map<int, double> shares(const FabricNetwork& network, int from, int nic, int to) {
  std::vector<FabricShare> links;
  network.route(from, nic, to, links);
  std::map<int, double> by_link;
  for (const FabricShare& share : links) {
    EXPECT_TRUE(by_link.emplace(share.link, share.share).second)
        << network.name(share.link) << " twice";
  }
  return by_link;
}

/// What leaves each vertex less what enters it, if the shares of a route are laid on the drawing.
/// Where only the way up is counted, the way down is the way up of the route back.
std::map<std::size_t, double> balance(const FabricNetwork& network, const FabricGraph& graph,
                                      int from, int nic, int to) {
  const std::map<int, double> there = shares(network, from, nic, to);
  const std::map<int, double> back = shares(network, to, nic, from);
  std::map<std::size_t, double> net;
  std::size_t laid = 0;
  for (const auto& edge : boost::make_iterator_range(boost::edges(graph))) {
    const FabricEdge& drawn = graph[edge];
    const std::map<int, double>& way = drawn.down ? back : there;
    const auto found = way.find(drawn.link);
    if (found == way.end()) continue;
    if (!drawn.down) ++laid;
    net[boost::source(edge, graph)] += found->second * drawn.part;
    net[boost::target(edge, graph)] -= found->second * drawn.part;
  }
  EXPECT_GE(laid, there.size()) << "a route over links that are not drawn";
  return net;
}

/// The switch that a NIC hangs from.
std::size_t switch_of(const FabricGraph& graph, int nic) {
  const auto edges = boost::out_edges(static_cast<std::size_t>(nic), graph);
  return boost::target(*edges.first, graph);
}

/// Every route is a flow of one message in the graph: all of it leaves the switch of the one NIC
/// and arrives at that of the other, and no vertex in between keeps or makes any.
TEST_P(FabricGraphs, EveryRouteIsAFlow) {
  const Case& example = GetParam();
  const FabricNetwork network = example.network();
  const FabricGraph graph = expand(network);
  for (int from = 0; from < example.nodes; ++from) {
    for (int to = 0; to < example.nodes; ++to) {
      if (from == to) continue;
      const int nic = (from + to) % example.nics;
      std::map<std::size_t, double> net = balance(network, graph, from, nic, to);
      net[switch_of(graph, from * example.nics + nic)] -= 1;
      net[switch_of(graph, to * example.nics + nic)] += 1;
      for (const auto& [vertex, left] : net) {
        ASSERT_NEAR(left, 0, 1e-12) << from << " to " << to << " at vertex " << vertex;
      }
    }
  }
}

/// One way or the other, an idle network carries at least what its routes promise.
TEST_P(FabricGraphs, APairHasItsNics) {
  const Case& example = GetParam();
  const FabricGraph graph = expand(example.network());
  const double most = flow_between(graph, {0}, {example.nodes - 1}).gb_per_second();
  EXPECT_LE(most, example.nics * 10.0 + 1e-6);
  EXPECT_GE(most, 10.0 - 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Fabric, FabricGraphs, testing::ValuesIn(cases()),
                         [](const auto& example) { return example.param.name; });

// 127 nodes of the SuperPOD guide: vertices are its NICs, leaves and spines.
TEST(FabricGraph, HasTheVerticesOfTheCounts) {
  Fabric fabric;
  fabric.kind = FabricKind::RailOptimised;
  fabric.clos = clos(32, 4, 1, 1);
  const FabricNetwork network(fabric, 127, 8, kNic);
  const FabricGraph graph = expand(network);
  EXPECT_EQ(boost::num_vertices(graph), 127 * 8 + 32 + 16U);
  // Two directions of each NIC's cable and of each bundle between a leaf and a spine.
  EXPECT_EQ(boost::num_edges(graph), 2U * (127 * 8 + 32 * 16));
}

}  // namespace
}  // namespace zerosim
