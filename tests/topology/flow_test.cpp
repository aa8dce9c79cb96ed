#include "topology/flow.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/node_graph.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

NodeGraph graph_of(const std::string& preset) {
  return build_node_graph(find_machine(preset)->shape);
}

TEST(FlowLinks, NvLinkWhereItJoinsTheUsedGpus) {
  EXPECT_EQ(flow_links(graph_of("dgx-a100"), 8), FlowLinks::NvLink);
  EXPECT_EQ(flow_links(graph_of("dgx1-v100"), 8), FlowLinks::NvLink);
  EXPECT_EQ(flow_links(graph_of("rtx4090x8-pcie"), 8), FlowLinks::All);
  // Two bridged pairs: NVLink joins the first two only.
  EXPECT_EQ(flow_links(graph_of("azure-nc-a100-v4"), 2), FlowLinks::NvLink);
  EXPECT_EQ(flow_links(graph_of("azure-nc-a100-v4"), 3), FlowLinks::All);
  EXPECT_EQ(flow_links(graph_of("dgx-a100"), 1), FlowLinks::All);
}

// Bisection of a switch: half of the GPUs at full rate.
TEST(Bisection, OfSwitches) {
  const Bisection a100 = bisection(graph_of("dgx-a100"), 8);
  EXPECT_EQ(a100.bandwidth, 1200_GBps);  // 4 x 300
  EXPECT_TRUE(a100.every_half);
  EXPECT_THAT(a100.half, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(bisection(graph_of("dgx2"), 16).bandwidth, 1200_GBps);  // 8 x 150
  EXPECT_EQ(bisection(graph_of("dgx-a100"), 2).bandwidth, 300_GBps);
  // The first two of a DGX-1 have one link between them, those of a bridge twelve.
  EXPECT_EQ(bisection(graph_of("dgx1-v100"), 2).bandwidth, 25_GBps);
  EXPECT_EQ(bisection(graph_of("azure-nc-a100-v4"), 2).bandwidth, 300_GBps);
  // Of three GPUs one faces two.
  EXPECT_EQ(bisection(graph_of("dgx-a100"), 3).bandwidth, 300_GBps);
}

// DGX-1: links between {0,1,2,3} and {4,5,6,7}: 0-4:2 1-5:2 2-6:1 3-7:1 = 6 links, 150 GB/s. No
// half does with less: of the 24 links, each quad keeps 9 inside.
TEST(Bisection, OfTheCubeMeshIsBetweenTheQuads) {
  const Bisection cut = bisection(graph_of("dgx1-v100"), 8);
  EXPECT_EQ(cut.bandwidth, 150_GBps);
  EXPECT_THAT(cut.half, ElementsAre(0, 1, 2, 3));
  // Four of a full mesh with 4 links a pair: 2 x 2 pairs x 100.
  EXPECT_EQ(bisection(graph_of("hgx-a100-4"), 4).bandwidth, 400_GBps);
}

// PCIe: the socket link is the narrow place, wherever the halves lie; of one socket the slots.
TEST(Bisection, OfPcieBoxes) {
  EXPECT_EQ(bisection(graph_of("rtx4090x8-pcie"), 8).bandwidth, 16_GBps);
  EXPECT_EQ(bisection(graph_of("rtx4090x8-pcie"), 4).bandwidth, 63_GBps);  // 2 x 31.5
  // Two switches with an uplink each, on one CPU.
  EXPECT_EQ(bisection(graph_of("a100x8-pcie-single-root"), 8).bandwidth, 31.5_GBps);
}

/// Four GPUs below one CPU, one of them in a slower slot: no half is as narrow as that with it.
TEST(Bisection, FindsTheWorstHalf) {
  NodeGraph graph;
  const auto cpu = boost::add_vertex(Device{DeviceKind::Cpu, 0, 0}, graph);
  const auto hub = boost::add_vertex(Device{DeviceKind::PcieSwitch, 0, 0}, graph);
  boost::add_edge(cpu, hub, Link{LinkKind::Pcie, 10_GBps}, graph);
  for (int gpu = 0; gpu < 4; ++gpu) {
    const auto v = boost::add_vertex(Device{DeviceKind::Gpu, gpu, 0}, graph);
    const bool odd = gpu % 2 == 1;
    boost::add_edge(v, odd ? hub : cpu, Link{LinkKind::Pcie, 30_GBps}, graph);
  }
  // {0, 1} against {2, 3}: 30 below each parent, both at once: 60. {0, 2} against {1, 3}: the 10.
  const Bisection cut = bisection(graph, 4);
  EXPECT_EQ(cut.bandwidth, 10_GBps);
  EXPECT_THAT(cut.half, ElementsAre(0, 2));
}

TEST(Bisection, OfManyGpusOnlyTheFirstHalf) {
  NodeShape shape;
  shape.gpus = 72;
  shape.nvswitch = 900_GBps;
  shape.pcie = 63_GBps;
  const Bisection cut = bisection(build_node_graph(shape), 72);
  EXPECT_FALSE(cut.every_half);
  EXPECT_EQ(cut.half.size(), 36U);
  EXPECT_EQ(cut.bandwidth, 32400_GBps);  // 36 x 900
}

// A GPU receives (N-1) x through its own links at best: x = 300 / 7.
TEST(AllGatherBound, OfSwitchesIsTheRateOfAGpu) {
  const AllGatherBound bound = all_gather_bound(graph_of("dgx-a100"), 8);
  EXPECT_NEAR(bound.shard.gb_per_second(), 300.0 / 7, 1e-9);
  EXPECT_NEAR(bound.received.gb_per_second(), 300, 1e-9);
  EXPECT_EQ(bound.senders.size(), 7U);
  EXPECT_EQ(bound.outflow, 300_GBps);
  EXPECT_NEAR(all_gather_bound(graph_of("dgx2"), 16).received.gb_per_second(), 150, 1e-9);
}

// DGX-1: one GPU lets in 150 for 7 shards: x = 21.4; a quad lets out 150 for 4 shards: 37.5. The
// first counts, so that the mesh is as good as a switch: NCCL's six rings reach it.
TEST(AllGatherBound, OfTheCubeMeshIsThatOfASwitch) {
  const AllGatherBound bound = all_gather_bound(graph_of("dgx1-v100"), 8);
  EXPECT_NEAR(bound.received.gb_per_second(), 150, 1e-9);
  EXPECT_EQ(bound.senders.size(), 7U);
}

// Two sockets: four shards leave a socket over 16 GB/s: x = 4, each GPU receives 7 x 4 = 28 of its
// slot's 31.5.
TEST(AllGatherBound, OfTwoSocketsIsTheLinkBetweenThem) {
  const AllGatherBound bound = all_gather_bound(graph_of("rtx4090x8-pcie"), 8);
  EXPECT_NEAR(bound.shard.gb_per_second(), 4, 1e-9);
  EXPECT_NEAR(bound.received.gb_per_second(), 28, 1e-9);
  EXPECT_EQ(bound.senders.size(), 4U);
  EXPECT_EQ(bound.outflow, 16_GBps);
  // Four on one socket: the slots.
  EXPECT_NEAR(all_gather_bound(graph_of("rtx4090x8-pcie"), 4).received.gb_per_second(), 31.5, 1e-9);
  // Two switches of four: uplinks of 31.5, x = 7.9, but a slot takes 31.5 / 7 = 4.5.
  EXPECT_NEAR(all_gather_bound(graph_of("a100x8-pcie-single-root"), 8).received.gb_per_second(),
              31.5, 1e-9);
}

/// x by its definition: the least B+(S) / |S ∩ GPUs| of all sets of devices.
double narrowest_ratio(const NodeGraph& graph, int gpus) {
  const std::size_t devices = boost::num_vertices(graph);
  double least = std::numeric_limits<double>::infinity();
  for (unsigned set = 1; set < 1U << devices; ++set) {
    const auto inside = [&](std::size_t v) { return (set >> v & 1U) != 0; };
    int senders = 0;
    for (std::size_t v = 0; v < devices; ++v) {
      senders += inside(v) && graph[v].kind == DeviceKind::Gpu ? 1 : 0;
    }
    if (senders == 0 || senders == gpus) continue;
    double out = 0;
    for (const auto edge : boost::make_iterator_range(boost::edges(graph))) {
      const bool cut = inside(boost::source(edge, graph)) != inside(boost::target(edge, graph));
      if (cut) out += graph[edge].bandwidth.per_second();
    }
    least = std::min(least, out / senders);
  }
  return least;
}

// Oracle: every set of devices of small random graphs (2 to 6 GPUs, 1 to 4 switches).
TEST(AllGatherBound, IsTheNarrowestOfAllSets) {
  std::mt19937_64 random(7);
  const auto pick = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    NodeGraph graph;
    const int gpus = 2 + pick(5);
    const int switches = 1 + pick(4);
    for (int i = 0; i < switches; ++i) {
      const auto hub = boost::add_vertex(Device{DeviceKind::PcieSwitch, i, 0}, graph);
      if (i > 0)
        boost::add_edge(hub, static_cast<unsigned>(pick(i)),
                        Link{LinkKind::Pcie, BytesPerSecond(1e9 * (1 + pick(40)))}, graph);
    }
    for (int i = 0; i < gpus; ++i) {
      const auto gpu = boost::add_vertex(Device{DeviceKind::Gpu, i, 0}, graph);
      for (int link = 0; link <= pick(2); ++link) {
        const auto other = link == 0 ? pick(switches) : pick(static_cast<int>(gpu));
        boost::add_edge(gpu, static_cast<unsigned>(other),
                        Link{LinkKind::Pcie, BytesPerSecond(1e9 * (1 + pick(40)))}, graph);
      }
    }
    const double x = narrowest_ratio(graph, gpus);
    const AllGatherBound bound = all_gather_bound(graph, gpus);
    EXPECT_NEAR(bound.shard.per_second() / x, 1, 1e-12);
    EXPECT_NEAR(bound.outflow.per_second() / static_cast<double>(bound.senders.size()) / x, 1,
                1e-12);
  }
}

}  // namespace
}  // namespace zerosim
