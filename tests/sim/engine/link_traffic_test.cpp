/// What the links carried (Timeline::links), against bytes worked out by hand.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {
namespace {

using namespace literals;
using Kind = LinkClass::Kind;

constexpr double ms = 1e-3;

const LinkTraffic& link_named(const Timeline& timeline, const std::string& name) {
  for (const LinkTraffic& link : timeline.links) {
    if (link.name == name) return link;
  }
  ADD_FAILURE() << "no link " << name;
  static const LinkTraffic kNothing;
  return kNothing;
}

/// One class: `multiplicity` links that carry `bytes` each.
void expect_link(const Timeline& timeline, const std::string& name, std::int64_t multiplicity,
                 double bytes, double busy) {
  SCOPED_TRACE(name);
  const LinkTraffic& link = link_named(timeline, name);
  EXPECT_EQ(link.multiplicity, multiplicity);
  EXPECT_NEAR(link.bytes, bytes, 1e-9 * bytes + 1);
  EXPECT_NEAR(link.busy.count(), busy, 1e-9 * busy);
}

/// The program of one collective of all ranks of a cluster.
Program one_call(const Cluster& cluster, CollectiveKind kind, Bytes size) {
  RankBuilder rank;
  rank.collective(rank.world, size, {}, 0, kind);
  Program program = program_of({rank});
  program.world_size = cluster.world_size();
  program.groups[0].size = program.groups[1].size = cluster.world_size();
  return program;
}

// An all-gather of S = 400 MB over 2 nodes x 2 GPUs: each rank sends V = 3/4 S = 300 MB. Each GPU
// of a DGX A100 has a NIC of 24 GB/s (NCCL's 25 GB/s at 96 %): a node's two carry V / 2 = 150 MB
// each, for 150 MB / 24 GB/s = 6.25 ms. NVLink carries V, device memory 2 V (read and written).
TEST(LinkTraffic, GatherOfTwoNodes) {
  isolated([] {
    const Cluster cluster = load_cluster("dgx-a100-80", 2, 2);
    const double nic = usable_nic_bandwidth(cluster).per_second();
    const double busy = 150e6 / nic;
    const Program program = one_call(cluster, CollectiveKind::AllGather, Bytes(400'000'000));
    Engine engine(cluster);
    const Timeline timeline = engine.run(program);
    ASSERT_EQ(timeline.links.size(), 3U);  // slots are links where somebody copies
    expect_link(timeline, "node0.gpu0.nvlink", 4, 300e6, busy);
    expect_link(timeline, "node0.nic0", 4, 150e6, busy);
    expect_link(timeline, "node0.gpu0.hbm", 4, 600e6, busy);
    EXPECT_DOUBLE_EQ(link_named(timeline, "node0.nic0").capacity.per_second(), nic);
    EXPECT_NEAR(utilisation(link_named(timeline, "node0.nic0"), last_step(timeline)),
                busy / last_step(timeline).count(), 1e-9);
    EXPECT_EQ(link_named(timeline, "node0.nic0").most_at_once, 1);
  });
}

// Two collectives of 1 and 2 GB share a link of 100 GB/s until 20 ms, the second is alone until 30
// ms; a kernel of 3 GB of memory and 2 ms; a copy of 1 GB at 25 GB/s: 40 ms.
TEST(LinkTraffic, BusyTimeIsTheUnionAndBytesTheSum) {
  isolated([] {
    Figures figures;
    figures.delay = Seconds(0);
    RankBuilder rank;
    rank.collective(rank.world, 1_GB);
    rank.collective(rank.other, 2_GB);
    rank.kernel(rank.compute, Seconds(2 * ms), 3_GB);
    rank.copy(rank.stream("copies"), Copy::Direction::HostToDevice, 1_GB);
    Engine engine(test_cluster(figures), options_of(figures));
    const Timeline timeline = engine.run(program_of({rank}));
    expect_link(timeline, "node0.gpu0.nvlink", 8, 3e9, 30 * ms);
    EXPECT_EQ(link_named(timeline, "node0.gpu0.nvlink").most_at_once, 2);
    expect_link(timeline, "node0.gpu0.hbm", 8, 3e9, 2 * ms);
    expect_link(timeline, "node0.gpu0.h2d", 8, 1e9, 40 * ms);
    expect_link(timeline, "node0.gpu0.d2h", 8, 0, 0);
    EXPECT_NEAR(utilisation(link_named(timeline, "node0.gpu0.nvlink"), last_step(timeline)),
                3e9 / (100e9 * 40 * ms), 1e-12);
  });
}

// Of two steps the last counts.
TEST(LinkTraffic, IsThatOfTheLastStep) {
  isolated([] {
    RankBuilder rank;
    rank.collective(rank.world, 1_GB);
    rank.collective(rank.world, 2_GB);
    Program program = program_of({rank});
    program.steps = 2;
    program.ranks[0].ops[1].step = 1;
    Engine engine(test_cluster(), options_of({}));
    expect_link(engine.run(program), "node0.gpu0.nvlink", 8, 2e9, 20 * ms);
  });
}

/// Bytes of all links of each kind.
std::map<Kind, double> sums(const Timeline& timeline) {
  std::map<Kind, double> result;
  for (const LinkTraffic& link : timeline.links) {
    result[link.kind] += link.bytes * static_cast<double>(link.multiplicity);
  }
  return result;
}

// Whatever is folded, all links together carry what the costs of all instances say: of one of the
// world and one of each node (which do not cross nodes); a fabric has its own ways.
TEST(LinkTraffic, AllLinksCarryWhatTheCollectivesSay) {
  isolated([] {
    const Cluster cluster = parse_cluster(
        R"({"version": 1, "node": {"preset": "dgx-a100-80"}, "nodes": 4, "gpus_per_node": 4,
            "perturbations": [{"link": "nic", "nodes": 1, "nics": 0, "bandwidth": 0.5}]})",
        "slow.json");
    RankBuilder rank;
    rank.collective(rank.world, Bytes(400'000'000), {}, 0, CollectiveKind::AllGather);
    rank.collective(rank.other, Bytes(80'000'000), {}, 0, CollectiveKind::ReduceScatter);
    Program program = program_of({rank});
    program.world_size = 16;
    program.groups = {{"WORLD", 16}, {"NODE", 4}};
    const CollectiveCost world = collective_cost(cluster, CollectiveOp::AllGather,
                                                 Bytes(400'000'000), placement(cluster, {"", 16}));
    const CollectiveCost node = collective_cost(cluster, CollectiveOp::ReduceScatter,
                                                Bytes(80'000'000), placement(cluster, {"", 4}));
    std::map<Kind, double> expected;
    for (const LinkLoad& load : world.loads) {
      const double links = load.kind == Kind::Network ? 4 : 16;  // NICs of a node together
      if (load.kind == Kind::Fabric) continue;                   // a switch that is no bottleneck
      expected[load.kind] += links * static_cast<double>(load.bytes.count());
    }
    for (const LinkLoad& load : node.loads) {
      expected[load.kind] += 16 * static_cast<double>(load.bytes.count());
    }
    // 4 nodes send V = 15/16 of 400 MB.
    EXPECT_NEAR(expected[Kind::Network], 4 * 375e6, 4);
    Engine engine(cluster);
    for (const FoldMode mode : {FoldMode::Off, FoldMode::Exact}) {
      const Folding folding = fold(cluster, rank_runs(program), group_patterns(program), mode);
      for (const CollectiveForm form : {CollectiveForm::Fluid, CollectiveForm::Stepped}) {
        if (form == CollectiveForm::Stepped && mode == FoldMode::Exact) continue;
        std::map<Kind, double> found = sums(engine.run(program, folding, nullptr, 0, form));
        for (const Kind kind : {Kind::Network, Kind::IntraNode, Kind::DeviceMemory}) {
          // Step by step the last rank of each node sends over its NICs and not over NVLink.
          double all = expected[kind];
          if (form == CollectiveForm::Stepped && kind == Kind::IntraNode) all -= 4 * 375e6;
          EXPECT_NEAR(found[kind], all, 1e-9 * all) << static_cast<int>(kind);
        }
      }
    }
  });
}

}  // namespace
}  // namespace zerosim::testing
