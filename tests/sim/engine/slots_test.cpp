// Slots and uplinks: copies, rings over PCIe and traffic of NICs that meet there, by hand.
//
// Where several transfers share a link each has an equal part of it, and what one of them cannot
// use goes to the others (simgrid_notes.md section 8).

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {
namespace {

constexpr double ms = 1e-3;
constexpr Copy::Direction kDown = Copy::Direction::HostToDevice;
constexpr Copy::Direction kUp = Copy::Direction::DeviceToHost;
constexpr Bytes kHalf{500'000'000};

/// GPUs on PCIe: rings of 20 GB/s, slots and uplinks of 25 GB/s.
Cluster pcie_node(int gpus, int gpus_per_switch, IntraNode intra = IntraNode::Pcie) {
  Figures figures;
  figures.link = 20_GBps;
  Cluster cluster = test_cluster(figures, gpus);
  cluster.node.intra = intra;
  NodeShape shape;
  shape.gpus = gpus;
  shape.gpus_per_pcie_switch = gpus_per_switch;
  shape.pcie = 31.5_GBps;
  cluster.node.graph = build_node_graph(shape);
  return cluster;
}

/// A collective of S bytes puts S on its ranks' rings and, of more ranks than a node has, S on the
/// network.
EngineOptions plain_options(int node = 1000) {
  EngineOptions options = options_of({});
  options.collective_cost = [node](const Collective& call, const ProcessGroup& group) {
    CollectiveCost cost;
    const Bytes size = collective_size(call);
    cost.loads = {{LinkClass::Kind::IntraNode, size}};
    if (group.size > node || group.stride >= node) {
      cost.loads.push_back({LinkClass::Kind::Network, size});
    }
    if (group.stride >= node) cost.loads.erase(cost.loads.begin());
    return cost;
  };
  return options;
}

/// The first ranks run a program each, the others the last.
Program program_on(const Cluster& cluster, const std::vector<RankBuilder>& ranks,
                   std::vector<ProcessGroup> groups = {}) {
  Program program;
  program.strategy = "test";
  program.world_size = cluster.world_size();
  program.groups = std::move(groups);
  if (program.groups.empty()) {
    program.groups = {{"WORLD", program.world_size}, {"OTHER", program.world_size}};
  }
  for (const RankBuilder& rank : ranks) {
    program.ranks.push_back(rank.program());
    program.ranks.back().representative = Rank(program.ranks.size() - 1);
  }
  check_program(program);
  return program;
}

/// Folded; the unfolded run is the same.
struct Outcome {
  Folding folding;
  Timeline timeline;

  [[nodiscard]] Seconds end_of(OpId op, int rank) const {
    return span_of(timeline, op, class_of(folding, rank)).end;
  }
};

Outcome run_on(const Cluster& cluster, const Program& program, const EngineOptions& options) {
  Engine engine(cluster, options);
  const auto run = [&](FoldMode mode) {
    Outcome result{fold(cluster, rank_runs(program), group_patterns(program), mode), {}};
    result.timeline = engine.run(program, result.folding);
    return result;
  };
  Outcome off = run(FoldMode::Off);
  Outcome exact = run(FoldMode::Exact);
  for (const Span& span : off.timeline.spans) {
    const Seconds end = exact.end_of(
        span.op, off.folding.ranks[static_cast<std::size_t>(span.rank_class)].representative);
    EXPECT_NEAR(end.count(), span.end.count(), 1e-9 * span.end.count());
  }
  return exact;
}

// ---- Copies ------------------------------------------------------------------------------------

// 500 MB at 25 GB/s: 20 ms; two below one switch have half of its uplink each: 40 ms. Of four on
// two switches two on each.
TEST(Slots, CopiesShareTheUplinkOfTheirSwitch) {
  isolated([] {
    const auto end = [](int gpus, int copying) {
      Seconds last{0};
      isolated([&] {
        RankBuilder copies;
        const OpId copy = copies.copy(copies.compute, kDown, kHalf);
        std::vector<RankBuilder> ranks(static_cast<std::size_t>(copying), copies);
        ranks.emplace_back();
        if (gpus == copying) ranks.pop_back();
        const Cluster cluster = pcie_node(gpus, 2);
        const Outcome run = run_on(cluster, program_on(cluster, ranks), plain_options());
        last = run.end_of(copy, 0);
        expect_shared(last, copying == 1 ? 20 * ms : 40 * ms);
      });
    };
    end(2, 1);
    end(2, 2);
    end(4, 1);
    end(4, 4);
  });
}

// One begins 10 ms later (a kernel is before it): 250 MB of the first are through; then each has
// 12.5 GB/s. The first has 250 MB left: 20 ms; then the second has 250 MB left at 25 GB/s: 10 ms.
TEST(Slots, ACopyThatComesLaterTakesHalf) {
  isolated([] {
    RankBuilder first;
    const OpId early = first.copy(first.compute, kUp, kHalf);
    RankBuilder second;
    second.kernel(second.compute, Seconds(10 * ms));
    const OpId late = second.copy(second.compute, kUp, kHalf);
    const Cluster cluster = pcie_node(2, 2);
    const Outcome run = run_on(cluster, program_on(cluster, {first, second}), plain_options());
    expect_shared(run.end_of(early, 0), 30 * ms);
    expect_shared(run.end_of(late, 1), 40 * ms);
  });
}

// Up and down do not meet; neither do switches.
TEST(Slots, DirectionsAndSwitchesAreApart) {
  isolated([] {
    RankBuilder down;
    const OpId copy = down.copy(down.compute, kDown, kHalf);
    RankBuilder up;
    up.copy(up.compute, kUp, kHalf);
    const Cluster cluster = pcie_node(4, 2);
    const Outcome run = run_on(cluster, program_on(cluster, {down, up, down, up}), plain_options());
    for (int rank = 0; rank < 4; ++rank) expect_exact(run.end_of(copy, rank), 20 * ms);
  });
}

// Four alike ranks below two switches of two: where the uplinks carry nothing else they are one
// class, whose copy is two on an uplink. Where a ring crosses them, too, a transfer of two copies
// would have too small a part: two classes.
TEST(Slots, CopiesInStepAreOneTransfer) {
  RankBuilder copies;
  copies.copy(copies.compute, kDown, kHalf);
  const auto folded = [&](IntraNode intra) {
    const Cluster cluster = pcie_node(4, 2, intra);
    const Program program = program_on(cluster, {copies});
    return fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Exact);
  };
  const Folding alike = folded(IntraNode::NvSwitch);
  ASSERT_EQ(alike.ranks.size(), 1U);
  ASSERT_EQ(alike.copies.size(), 1U);
  EXPECT_EQ(alike.copies[0].multiplicity, 4);
  ASSERT_EQ(alike.copies[0].links.size(), 4U);
  for (const LinkShare& share : alike.copies[0].links) {
    const FoldedLink& link = alike.links[static_cast<std::size_t>(share.link)];
    EXPECT_EQ(share.share, link.uplink ? 2 : 1) << link.name;
    EXPECT_EQ(link.multiplicity, link.uplink ? 2 : 4) << link.name;
    EXPECT_EQ(link.capacity, 25_GBps);
  }
  const Folding crossed = folded(IntraNode::Pcie);
  EXPECT_EQ(crossed.ranks.size(), 2U);
  EXPECT_EQ(crossed.copies.size(), 2U);
}

// ---- Rings over PCIe ---------------------------------------------------------------------------

/// A gather of 1 GB beside which copying ranks copy 500 MB.
struct GatherAndCopies {
  OpId gather, copy;
  Outcome run;

  GatherAndCopies(const Cluster& cluster, int copying, Copy::Direction direction) {
    RankBuilder idle;
    gather = idle.collective(idle.world, 1_GB, {}, 0, CollectiveKind::AllGather);
    RankBuilder copies;
    copies.collective(copies.world, 1_GB, {}, 0, CollectiveKind::AllGather);
    copy = copies.copy(copies.compute, direction, kHalf);
    std::vector<RankBuilder> ranks(static_cast<std::size_t>(copying), copies);
    if (copying < cluster.world_size()) ranks.push_back(idle);
    run = run_on(cluster, program_on(cluster, ranks), plain_options());
  }
};

// Both GPUs below one switch: the gather puts V up and V down on each slot and stays below the
// switch. GPU 0's slot from the host: 12.5 GB/s for the copy (40 ms) and for the gather, whose ring
// could do 20. The 500 MB that it has left then take 25 ms.
TEST(Slots, CopyBesideAGatherOfTwoBelowOneSwitch) {
  isolated([] {
    const GatherAndCopies both(pcie_node(2, 2), 1, kDown);
    expect_shared(both.run.end_of(both.copy, 0), 40 * ms);
    expect_shared(both.run.end_of(both.gather, 1), 65 * ms);
  });
}

// Four below one switch, all copy: of the uplink 25 / 4 = 6.25 GB/s for each copy, 80 ms. It leaves
// 18.75 of a slot to the gather.
TEST(Slots, CopiesBesideAGatherOfFourBelowOneSwitch) {
  isolated([] {
    const GatherAndCopies both(pcie_node(4, 4), 4, kUp);
    expect_shared(both.run.end_of(both.gather, 3), 1000.0 / 18.75 * ms);
    expect_shared(both.run.end_of(both.copy, 3), 80 * ms);
  });
}

// Two below each of two switches: the ring 0 1 2 3 crosses from 1 to 2 and from 3 to 0, once up
// and once down on each uplink, where two copies are as well: 25 / 3 GB/s for each of the three.
// Copies end after 60 ms; the gather has 500 MB left: 25 ms at 20 GB/s.
TEST(Slots, CopiesBesideAGatherOverTwoSwitches) {
  isolated([] {
    const GatherAndCopies both(pcie_node(4, 2), 4, kDown);
    for (int rank = 0; rank < 4; ++rank) {
      expect_shared(both.run.end_of(both.copy, rank), 60 * ms);
      expect_shared(both.run.end_of(both.gather, rank), 85 * ms);
    }
  });
}

// Through host memory each of two hops goes up and down the uplink: 2 V, at 20 GB/s of V more than
// the uplink has, of which the gather alone takes all: 25/20 V. Beside GPU 0's copy to the host it
// has half of it: 12.5 GB/s are 10 GB/s of V. The copy ends after 40 ms; 600 MB of V are left.
TEST(Slots, RingsThroughTheHostTakeAllOfAnUplink) {
  isolated([] {
    const Cluster cluster = pcie_node(2, 2, IntraNode::PcieHostStaged);
    isolated([&] {
      const GatherAndCopies alone(cluster, 0, kUp);
      expect_exact(alone.run.end_of(alone.gather, 0), 50 * ms);
    });
    const GatherAndCopies both(cluster, 1, kUp);
    expect_shared(both.run.end_of(both.copy, 0), 40 * ms);
    expect_shared(both.run.end_of(both.gather, 0), 70 * ms);
  });
}

// ---- NICs --------------------------------------------------------------------------------------

/// Two nodes of two GPUs, each with a NIC of 10 GB/s below its switch; NVLinks of 100 GB/s.
Cluster two_nodes(const std::string& host_link, const std::string& more = "") {
  return parse_cluster(format(R"({{
    "version": 1, "nodes": 2,
    "node": {{"gpu": "H100-SXM5-80", "host": {{"pcie": "{}"}},
      "intra": {{"kind": "nvswitch", "ring_bandwidth": "100GB/s"}},
      "graph": {{"cpus": [{{}}], "nvswitch_links": 18,
        "switches": [{{"below": "cpu0"}}, {{"below": "cpu0"}}],
        "gpus": [{{"below": "switch0"}}, {{"below": "switch1"}}],
        "nics": [{{"below": "switch0"}}, {{"below": "switch1"}}]}},
      "nics": {{"bandwidth": "10GB/s", "kind": "infiniband", "efficiency": 1}}}}{}}})",
                              host_link, more),
                       "slots.json");
}

/// A gather of 100 MB of all four ranks (50 MB over each NIC: 5 ms alone), rank 0 copies 60 MB.
struct NetworkAndCopy {
  OpId gather, copy;
  Outcome run;

  explicit NetworkAndCopy(const Cluster& cluster, bool after = false) {
    RankBuilder others;
    gather = others.collective(others.world, Bytes(100'000'000), {}, 0, CollectiveKind::AllGather);
    RankBuilder first;
    first.collective(first.world, Bytes(100'000'000), {}, 0, CollectiveKind::AllGather);
    copy = first.copy(first.compute, kDown, Bytes(60'000'000),
                      after ? std::vector<OpId>{gather} : std::vector<OpId>{});
    run = run_on(cluster, program_on(cluster, {first, others}), plain_options(2));
  }
};

// A slot of 12 GB/s: 6 for what comes from the NIC, 6 for the copy. The gather's 50 MB take 25/3
// ms; the copy has 10 MB left then, at 12 GB/s.
TEST(Slots, CopyBesideTrafficOfANic) {
  isolated([] {
    const NetworkAndCopy both(two_nodes("12GB/s"));
    expect_shared(both.run.end_of(both.gather, 3), 25.0 / 3 * ms);
    expect_shared(both.run.end_of(both.copy, 0), (25.0 / 3 + 10.0 / 12) * ms);
  });
}

// A slot that is slower than the NIC (as copies see it: 4 GB/s) does not slow a collective alone:
// 5 ms. The copy behind it takes 15 ms.
TEST(Slots, NoSlotSlowsACollectiveAlone) {
  isolated([] {
    const NetworkAndCopy both(two_nodes("4GB/s"), /*after=*/true);
    expect_exact(both.run.end_of(both.gather, 3), 5 * ms);
    expect_exact(both.run.end_of(both.copy, 0), 20 * ms);
  });
}

// But one that is slower than it should be does: a quarter of 12 GB/s, 50 MB in 50/3 ms, although
// nobody copies.
TEST(Slots, ASlowSlotSlowsTheWayToItsNic) {
  isolated([] {
    const Cluster cluster = two_nodes("12GB/s", R"(, "perturbations": [
      {"link": "pcie", "nodes": 1, "gpus": 0, "bandwidth": 0.25}])");
    RankBuilder rank;
    const OpId gather = rank.collective(rank.world, Bytes(100'000'000), {}, 0);
    const Outcome run = run_on(cluster, program_on(cluster, {rank}), plain_options(2));
    expect_shared(run.end_of(gather, 0), 50.0 / 3 * ms);
  });
}

// The node's group of the same rank goes by NVLink and feels nothing: 1 ms.
TEST(Slots, NvLinksDoNotGoBySlots) {
  isolated([] {
    const Cluster cluster = two_nodes("12GB/s");
    RankBuilder rank;
    const OpId gather = rank.collective(rank.world, Bytes(100'000'000), {}, 0);
    const OpId copy = rank.copy(rank.compute, kDown, Bytes(12'000'000));
    const Outcome run =
        run_on(cluster, program_on(cluster, {rank}, {{"NODE", 2}, {"OTHER", 2}}), plain_options(2));
    expect_exact(run.end_of(gather, 3), 1 * ms);
    expect_exact(run.end_of(copy, 3), 1 * ms);
  });
}

}  // namespace
}  // namespace zerosim::testing
