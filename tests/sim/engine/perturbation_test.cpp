// Uneven clusters, two or four nodes of two GPUs: what they cost, worked out by hand.
//
// A ring of 100 GB/s inside a node, two NICs of 10 GB/s, one for each GPU. A collective of S bytes
// puts S on its ranks' ring links and moves V = S between nodes, V / 2 over each NIC: 100 MB take 5
// ms, alone.

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "sim/engine/jitter.h"
#include "tests/sim/engine/engine_test_support.h"
#include "topology/nccl_graph.h"

namespace zerosim::testing {
namespace {

constexpr double ms = 1e-3;
constexpr Seconds kMs{1e-3};

Cluster uneven(int nodes, const std::string& more) {
  return parse_cluster(format(R"({{
    "version": 1, "nodes": {}, "gpus_per_node": 2,
    "node": {{"gpu": "H100-SXM5-80", "gpus": 2,
      "intra": {{"kind": "nvswitch", "ring_bandwidth": "100GB/s"}},
      "nics": {{"count": 2, "bandwidth": "10GB/s", "kind": "infiniband", "efficiency": 1}}}}{}}})",
                              nodes, more.empty() ? "" : ", " + more),
                       "uneven.json");
}

/// \param entries  of the list of perturbations
Cluster perturbed(const std::string& entries) {
  return uneven(2, R"("perturbations": [)" + entries + "]");
}

EngineOptions plain_options() {
  EngineOptions options = options_of({});
  options.collective_cost = [](const Collective& call, const ProcessGroup& group) {
    CollectiveCost cost;
    const Bytes size = collective_size(call);
    cost.loads = {{LinkClass::Kind::IntraNode, size}};
    if (group.size > 2) {  // more than a node
      cost.loads.push_back({LinkClass::Kind::Network, size});
      cost.loads.push_back({LinkClass::Kind::Fabric, size});
    }
    return cost;
  };
  return options;
}

Program program_on(const Cluster& cluster, const RankBuilder& rank, int size, int stride = 1) {
  Program program;
  program.strategy = "test";
  program.world_size = cluster.world_size();
  program.groups = {{"WORLD", size, stride}, {"OTHER", size, stride}};
  program.ranks = {rank.program()};
  check_program(program);
  return program;
}

/// End of `rank`'s program on all ranks; folded and unfolded agree.
double end_on(const Cluster& cluster, const RankBuilder& rank, int size = 0, int stride = 1) {
  const Program program =
      program_on(cluster, rank, size == 0 ? cluster.world_size() : size, stride);
  const std::vector<GroupPattern> groups = group_patterns(program);
  Engine engine(cluster, plain_options());
  const auto run = [&](FoldMode mode) {
    return engine.run(program, fold(cluster, rank_runs(program), groups, mode)).end.count();
  };
  const double end = run(FoldMode::Off);
  EXPECT_NEAR(run(FoldMode::Exact), end, 1e-9 * end);
  return end;
}

/// A kernel of 9 ms, then 100 MB with everybody.
RankBuilder kernel_then_sum() {
  RankBuilder rank;
  const OpId kernel = rank.kernel(rank.compute, 9 * kMs);
  rank.collective(rank.world, Bytes(100'000'000), {kernel});
  return rank;
}

RankBuilder sum_alone(CollectiveKind kind = CollectiveKind::AllReduce) {
  RankBuilder rank;
  rank.collective(rank.world, Bytes(100'000'000), {}, 0, kind);
  return rank;
}

#define EXPECT_MS(found, expected) EXPECT_NEAR(found, (expected)*ms, 1e-9 * (expected)*ms)

TEST(Perturbations, NothingIsUneven) {
  isolated([] { EXPECT_MS(end_on(uneven(2, ""), kernel_then_sum()), 9.0 + 5.0); });
}

// 9 ms at nine tenths: 10 ms; everybody waits.
TEST(Perturbations, AStragglerMakesAllWait) {
  isolated([] {
    EXPECT_MS(end_on(perturbed(R"({"nodes": 1, "gpus": 1, "speed": 0.9})"), kernel_then_sum()),
              10.0 + 5.0);
  });
}

// Device memory at half the rate: 2 GB at 500 GB/s instead of 1 TB/s. Arithmetic keeps its time.
TEST(Perturbations, SlowMemory) {
  isolated([] {
    const Cluster cluster = perturbed(R"({"nodes": 0, "gpus": 0, "memory_speed": 0.5})");
    RankBuilder rank;
    rank.kernel(rank.compute, 1 * kMs, 2_GB);
    EngineOptions options = plain_options();
    options.device_memory = BytesPerSecond(1e12);
    const Program program = program_on(cluster, rank, 4);
    Engine engine(cluster, options);
    const Timeline timeline = engine.run(program);
    ASSERT_EQ(timeline.ranks.size(), 2U);
    EXPECT_EQ(timeline.ranks[1].multiplicity, 3);
    EXPECT_MS(timeline.spans[0].end.count(), 4.0);
    EXPECT_MS(timeline.spans[1].end.count(), 2.0);
  });
}

// 40 us of host work take 80 us on a host at half speed; the kernel behind it begins then.
TEST(Perturbations, ASlowHostLaunchesLate) {
  isolated([] {
    RankBuilder rank;
    rank.host(40);
    rank.kernel(rank.compute, 1 * kMs);
    EXPECT_MS(end_on(perturbed(R"({"nodes": 1, "host_speed": 0.5})"), rank), 1.08);
  });
}

// Half of V passes each NIC: 50 MB at 5 GB/s take 10 ms, and the ring is as slow as its slowest
// link.
TEST(Perturbations, ANicAtHalfSpeed) {
  isolated([] {
    EXPECT_MS(end_on(perturbed(R"({"link": "nic", "nodes": 0, "nics": 1, "bandwidth": 0.5})"),
                     sum_alone()),
              10.0);
  });
}

// 4 of 10 GB/s are gone for good: 50 MB at 6 GB/s.
TEST(Perturbations, BackgroundTrafficDoesNotGiveWay) {
  isolated([] {
    EXPECT_MS(
        end_on(perturbed(R"({"link": "nic", "nodes": 0, "background": "4GB/s"})"), sum_alone()),
        50.0 / 6);
  });
}

// A burst of 20 MB shares the NIC evenly: 4 ms at 5 GB/s each, 20 of our 50 MB are through; the
// other 30 MB take 3 ms.
TEST(Perturbations, AnotherJobSharesFairly) {
  isolated([] {
    EXPECT_MS(end_on(perturbed(R"({"job": "other", "link": "nic", "nodes": 0, "nics": 0,
                                   "bytes": "20MB", "period": "1s"})"),
                     sum_alone()),
              7.0);
  });
}

// Bursts of 10 MB every 4 ms: ours has 10 MB at 2 ms, 30 at 4, 40 at 6, 50 at 7 ms.
TEST(Perturbations, AnotherJobComesAgain) {
  isolated([] {
    EXPECT_MS(end_on(perturbed(R"({"job": "other", "link": "nic", "nodes": 0, "nics": 0,
                                   "bytes": "10MB", "period": "4ms"})"),
                     sum_alone()),
              7.0);
  });
}

// A burst that begins 4 ms late and one that is longer than its period: the second waits for the
// first. From 4 ms on half of the NIC is gone: 40 MB are through, 10 MB at 5 GB/s.
TEST(Perturbations, AnotherJobBeginsLate) {
  isolated([] {
    EXPECT_MS(end_on(perturbed(R"({"job": "other", "link": "nic", "nodes": 0, "nics": 0,
                                   "bytes": "1GB", "period": "1ms", "offset": "4ms"})"),
                     sum_alone()),
              4.0 + 2.0);
  });
}

// A job ends with the program, even where the program never ends.
TEST(Perturbations, AnotherJobDoesNotKeepAStuckProgramGoing) {
  isolated([] {
    const Cluster cluster = perturbed(R"({"job": "other", "link": "nic", "bytes": "10MB",
                                          "period": "1ms"})");
    RankBuilder a(0);
    RankBuilder b(2);
    a.host_wait({a.collective(a.world, 1_GB)});
    a.collective(a.other, 1_GB);
    b.host_wait({b.collective(b.other, 1_GB)});
    b.collective(b.world, 1_GB);
    Program program = program_on(cluster, a, 4);
    program.ranks.push_back(b.program());
    Engine engine(cluster, plain_options());
    EXPECT_THROW(static_cast<void>(engine.run(program)), SimulationError);
  });
}

// Leaves of two nodes with 4 x 10 GB/s down and 10 GB/s up (4:1). A ring over four nodes leaves
// each leaf once: V at 10 GB/s, twice what the NICs take.
TEST(Perturbations, ARingOverAnOversubscribedLeaf) {
  isolated([] {
    const Cluster cluster = uneven(4, R"("fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2,
                                          "oversubscription": 4, "ecmp_efficiency": 1,
                                          "hop_latency": "0us"})");
    EXPECT_MS(end_on(cluster, sum_alone()), 10.0);
  });
}

// Rings of GPU 0 and of GPU 1 of each node, each with V on one NIC (10 ms alone): 2 V leave a leaf.
TEST(Perturbations, RingsSideBySideShareALeaf) {
  isolated([] {
    const Cluster cluster = uneven(4, R"("fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2,
                                          "oversubscription": 4, "ecmp_efficiency": 1,
                                          "hop_latency": "0us"})");
    EXPECT_MS(end_on(cluster, sum_alone(), 4, 2), 20.0);
  });
}

// Of an all-to-all each node sends a third of its V to each other node: 2/3 V of both nodes of a
// leaf go up: 4/3 x 100 MB at 10 GB/s.
TEST(Perturbations, AnAllToAllOverAnOversubscribedLeaf) {
  isolated([] {
    const Cluster cluster = uneven(4, R"("fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2,
                                          "oversubscription": 4, "ecmp_efficiency": 1,
                                          "hop_latency": "0us"})");
    EXPECT_MS(end_on(cluster, sum_alone(CollectiveKind::AllToAll)), 40.0 / 3);
  });
}

// 100 MB inside a node: 1 ms at 100 GB/s, and 18/17 of it where a GPU has lost one of 18 links. The
// other node's pair does not wait for it.
TEST(Perturbations, ALostNvLinkOfASwitch) {
  isolated([] {
    const Cluster cluster =
        perturbed(R"({"link": "nvlink", "nodes": 1, "gpus": 0, "lost_links": 1})");
    const Program program = program_on(cluster, sum_alone(), 2);
    Engine engine(cluster, plain_options());
    const Timeline timeline = engine.run(program);
    ASSERT_EQ(timeline.ranks.size(), 3U);  // node 0; GPU 0 of node 1; its neighbour
    EXPECT_MS(timeline.spans[0].end.count(), 1.0);
    EXPECT_MS(timeline.spans[1].end.count(), 18.0 / 17);
    EXPECT_MS(timeline.spans[2].end.count(), 18.0 / 17);
  });
}

// DGX-1: of GPU 0's six NVLinks the two to GPU 3 are in two of the three cycles. Without one of
// them every GPU has rings for two cycles: 4 channels of 20 GB/s in place of 6, on every node.
TEST(Perturbations, ALostNvLinkOfAMesh) {
  Cluster cluster = load_cluster("dgx1-v100-32", 2);
  const double whole = link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second();
  LinkPerturbation lost;
  lost.where = LinkPerturbation::Where::NvLink;
  lost.nodes = {1};
  lost.gpus = {0};
  lost.peer = 3;
  lost.lost_links = 1;
  cluster.perturbations.links = {lost};
  const CollectiveGroup node{8, 1};
  const auto transfer = [&](const Cluster& on) {
    const CollectiveCost cost = collective_cost(on, CollectiveOp::AllGather, 1_GiB, node);
    return (cost.idle_time(on) - cost.delay).count();
  };
  Cluster settled = cluster;
  settle_nccl(settled);
  EXPECT_EQ(settled.nccl().ring_channels, 4);
  EXPECT_DOUBLE_EQ(link_capacity(settled, LinkClass::Kind::IntraNode).gb_per_second(),
                   whole * 4 / 6);
  Cluster before = cluster;
  before.perturbations = {};
  EXPECT_NEAR(transfer(settled) / transfer(before), 1.5, 1e-6);

  // And so does the engine: what it takes beyond the delay is half as long again.
  const auto simulated = [&](const Cluster& on) {
    isolated([&] {
      const CollectiveCost cost = collective_cost(on, CollectiveOp::AllGather, 1_GiB, node);
      EngineOptions options = options_of({});
      options.collective_cost = [cost](const Collective&, const ProcessGroup&) {
        CollectiveCost loads;
        loads.loads = cost.loads;
        return loads;
      };
      const Program program = program_on(on, sum_alone(), 8);
      Engine engine(on, options);
      const double end = engine.run(program).end.count();
      const double whole_time = transfer(before);
      EXPECT_NEAR(end, (on.perturbations.links.empty() ? 1.0 : 1.5) * whole_time,
                  1e-3 * whole_time);
    });
  };
  simulated(before);
  simulated(settled);
}

// ---- Jitter ------------------------------------------------------------------------------------

// Mean 1, and ln of a factor has the spread s: of 100,000 each within four standard errors.
TEST(Jitter, FactorsHaveMeanOneAndTheirSpread) {
  Jitter jitter;
  jitter.kernels = 0.2;
  internal::RankJitter random(jitter, 3, 0);
  constexpr int kCount = 100'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double factor = random.kernel();
    sum += factor;
    squares += std::pow(std::log(factor) + 0.02, 2);
  }
  EXPECT_NEAR(sum / kCount, 1, 4 * 0.2 / std::sqrt(kCount));
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.2, 4 * 0.2 / std::sqrt(2.0 * kCount));
  EXPECT_EQ(random.host(), 1);
}

TEST(Jitter, SeedRankAndRepetitionDecide) {
  Jitter jitter;
  jitter.kernels = 0.1;
  const auto first = [](const Jitter& drawn, int rank, int repetition) {
    return internal::RankJitter(drawn, rank, repetition).kernel();
  };
  Jitter other = jitter;
  other.seed = 2;
  EXPECT_EQ(first(jitter, 0, 0), first(jitter, 0, 0));
  EXPECT_NE(first(jitter, 0, 0), first(jitter, 1, 0));
  EXPECT_NE(first(jitter, 0, 0), first(jitter, 0, 1));
  EXPECT_NE(first(jitter, 0, 0), first(other, 0, 0));
  Jitter with_hosts = jitter;
  with_hosts.host = 0.5;
  EXPECT_EQ(first(jitter, 5, 0), first(with_hosts, 5, 0));
}

// Each rank's kernels last their factors; the sum waits for the slowest. Another repetition draws
// others, the same one the same.
TEST(Jitter, KernelsLastTheirFactors) {
  isolated([] {
    Cluster cluster = uneven(2, "");
    cluster.perturbations.jitter.kernels = 0.1;
    const Program program = program_on(cluster, kernel_then_sum(), 4);
    const Folding off = fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Off);
    Engine engine(cluster, plain_options());
    double slowest = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const double factor = internal::RankJitter(cluster.perturbations.jitter, rank, 7).kernel();
      slowest = std::max(slowest, 9 * factor);
    }
    EXPECT_MS(engine.run(program, off, nullptr, 7).end.count(), slowest + 5);
    EXPECT_NE(engine.run(program, off, nullptr, 8).end, engine.run(program, off, nullptr, 7).end);
    const Folding exact =
        fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Exact);
    EXPECT_THROW(static_cast<void>(engine.run(program, exact)), SimulationError);
    EXPECT_EQ(engine.run(program).ranks.size(), 4U);
  });
}

}  // namespace
}  // namespace zerosim::testing
