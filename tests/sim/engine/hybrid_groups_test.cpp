// Strided process groups, and the two communicators of hybrid sharding (D2.10, D3.12).

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/engine/collective_call.h"
#include "sim/engine/engine.h"
#include "sim/program/build.h"
#include "tests/sim/engine/engine_test_support.h"
#include "tests/sim/program/models.h"

namespace zerosim {
namespace {

// V = 2 (n - 1) / n S = S with two ranks, which drive one NIC each: an eighth of a node's rate.
TEST(StridedGroups, DriveTheNicsOfTheirGpus) {
  const Cluster cluster = load_cluster("dgx-h100", 2, 8);
  const Bytes size(64'000'000);
  const CollectiveCost one = collective_cost(cluster, CollectiveOp::AllReduce, size, {2, 2, 1});
  EXPECT_EQ(one.sent_per_rank, size);
  EXPECT_EQ(one.inter_node, size);
  const auto network = std::find_if(one.loads.begin(), one.loads.end(), [](const LinkLoad& load) {
    return load.kind == LinkClass::Kind::Network;
  });
  ASSERT_NE(network, one.loads.end());
  EXPECT_GE(network->bytes, size);
  EXPECT_EQ(
      std::count_if(one.loads.begin(), one.loads.end(),
                    [](const LinkLoad& load) { return load.kind == LinkClass::Kind::IntraNode; }),
      0);
  const Seconds together = size * 8 / link_capacity(cluster, LinkClass::Kind::Network);
  EXPECT_GE(one.idle_time(cluster).count(), together.count());
}

struct Timed {
  std::string group;
  Seconds start{0}, end{0}, idle{0};
};

/// Collectives of a hybrid run on 4 nodes of 8, shards over `shard_ranks`.
std::vector<Timed> hybrid_run(int shard_ranks) {
  const Cluster cluster = load_cluster("dgx-h100", 4, 8);
  Strategy strategy;
  strategy.name = "hsdp";
  strategy.framework = Framework::Fsdp;
  strategy.throughput_timer = false;
  strategy.gradient_clipping = 0;
  strategy.fsdp.use_orig_params = false;
  strategy.fsdp.sharding = FsdpSharding::HybridShard;
  strategy.fsdp.shard_group = shard_ranks;
  BatchShape batch;
  batch.sequence = 256;
  const Program program =
      build_program(test::llama({4096, 11008, 4096, 32000, 4, 128}), strategy, batch, {32, 2, 1});
  Engine engine(cluster);
  const Timeline timeline = engine.run(program);
  std::vector<Timed> result;
  const RankProgram& rank = program.ranks[0];
  for (const Span& span : timeline.spans) {
    const Op& op = rank.ops[span.op.index()];
    if (op.kind != OpKind::Collective) continue;
    const Collective& call = rank.collectives[static_cast<std::size_t>(op.payload)];
    const ProcessGroup& group = program.groups[call.group.index()];
    const CollectiveCost cost = collective_cost(cluster, collective_op(call.kind),
                                                collective_size(call), placement(cluster, group));
    result.push_back({group.name, span.start, span.end, cost.idle_time(cluster)});
  }
  return result;
}

bool overlap(const Timed& a, const Timed& b) {
  return a.start < b.end && b.start < a.end;
}

// Two communicators: sums over replicas run beside gathers and reductions (they would not on one,
// rule 0.3). Where both cross nodes they share the NICs and last longer than alone.
TEST(HybridSharding, CommunicatorsOverlapAndContend) {
  testing::isolated([] {
    int overlapping = 0;
    int slowed = 0;
    const std::vector<Timed> calls = hybrid_run(16);
    for (const Timed& sum : calls) {
      if (sum.group != "replicate") continue;
      const bool beside = std::any_of(calls.begin(), calls.end(), [&](const Timed& other) {
        return other.group == "shard" && overlap(sum, other);
      });
      overlapping += beside ? 1 : 0;
      slowed += beside && sum.end - sum.start > sum.idle * 1.05 ? 1 : 0;
      EXPECT_GE((sum.end - sum.start).count(), sum.idle.count() * (1 - 1e-9));
    }
    EXPECT_GE(overlapping, 3);
    EXPECT_GE(slowed, 1);
    // Calls of one communicator never do.
    for (std::size_t i = 0; i < calls.size(); ++i) {
      for (std::size_t k = i + 1; k < calls.size(); ++k) {
        if (calls[i].group == calls[k].group) {
          EXPECT_FALSE(overlap(calls[i], calls[k]));
        }
      }
    }
  });
}

// ---- By hand -----------------------------------------------------------------------------------

// Two nodes of two GPUs with a NIC of 10 GB/s each and rings of `ring` GB/s over NVLink. The
// world's gather of 100 MB puts them on every ring link and half of them on each NIC: 5 ms alone. A
// sum of replicas puts its bytes on the NIC of its two GPUs.
struct TwoNodes {
  Cluster cluster;
  testing::RankBuilder rank;
  StreamId replicas = rank.stream("nccl:REPLICAS", GroupId(2));
  Timeline timeline;

  explicit TwoNodes(const std::string& ring)
      : cluster(parse_cluster(R"({"version": 1, "nodes": 2,
          "node": {"gpu": "H100-SXM5-80", "host": {},
            "intra": {"kind": "nvswitch", "ring_bandwidth": ")" +
                                  ring + R"("},
            "graph": {"cpus": [{}], "nvswitch_links": 18,
              "switches": [{"below": "cpu0"}, {"below": "cpu0"}],
              "gpus": [{"below": "switch0"}, {"below": "switch1"}],
              "nics": [{"below": "switch0"}, {"below": "switch1"}]},
            "nics": {"bandwidth": "10GB/s", "kind": "infiniband", "efficiency": 1}}})",
                              "two_nodes.json")) {}

  void run() {
    Program program;
    program.strategy = "test";
    program.world_size = 4;
    program.groups = {{"WORLD", 4}, {"NODE", 2}, {"REPLICAS", 2, 2}};
    program.ranks = {rank.program()};
    check_program(program);
    EngineOptions options = testing::options_of({});
    options.collective_cost = [](const Collective& call, const ProcessGroup& group) {
      CollectiveCost cost;
      const Bytes size = collective_size(call);
      if (group.stride == 1) cost.loads.push_back({LinkClass::Kind::IntraNode, size});
      if (group.name != "NODE") cost.loads.push_back({LinkClass::Kind::Network, size});
      return cost;
    };
    Engine engine(cluster, options);
    timeline = engine.run(program);
  }
  [[nodiscard]] Seconds end(OpId op) const { return testing::span_of(timeline, op).end; }
};

constexpr double ms = 1e-3;

// hpZ: the node's gather beside the world's. The world's NICs keep it at 20 of 100 GB/s of NVLink,
// 5 ms; the node's has the other 80: 400 of its 800 MB, and the rest at 100 GB/s: 4 ms.
TEST(HpzByHand, TheWorldIsBoundByItsNics) {
  testing::isolated([] {
    TwoNodes hpz("100GB/s");
    const OpId world = hpz.rank.collective(hpz.rank.world, Bytes(100'000'000));
    const OpId node = hpz.rank.collective(hpz.rank.other, Bytes(800'000'000));
    hpz.run();
    testing::expect_shared(hpz.end(world), 5 * ms);
    testing::expect_shared(hpz.end(node), 9 * ms);
  });
}

// Narrow NVLinks of 30 GB/s: 15 for each. The world's 100 MB take 20/3 ms, in which the node's has
// 100 of its 250 MB; the rest takes 5 ms at 30 GB/s.
TEST(HpzByHand, BothAreBoundByNvLink) {
  testing::isolated([] {
    TwoNodes hpz("30GB/s");
    const OpId world = hpz.rank.collective(hpz.rank.world, Bytes(100'000'000));
    const OpId node = hpz.rank.collective(hpz.rank.other, Bytes(250'000'000));
    hpz.run();
    testing::expect_shared(hpz.end(world), 20.0 / 3 * ms);
    testing::expect_shared(hpz.end(node), (20.0 / 3 + 5) * ms);
  });
}

// Sums of replicas beside the world's gather: on each NIC 5 GB/s for the world's 50 MB, 10 ms, and
// 5 for the 100 MB of the replicas of its GPU, of which 50 are left then: 5 ms. The node's gather
// of 900 MB beside both: 10 GB/s of NVLink are the world's (100 MB in 10 ms), 90 its own.
TEST(HpzByHand, ReplicasShareTheNicsWithTheWorld) {
  testing::isolated([] {
    TwoNodes hpz("100GB/s");
    const OpId world = hpz.rank.collective(hpz.rank.world, Bytes(100'000'000));
    const OpId node = hpz.rank.collective(hpz.rank.other, Bytes(900'000'000));
    const OpId sum = hpz.rank.collective(hpz.replicas, Bytes(100'000'000));
    hpz.run();
    testing::expect_shared(hpz.end(world), 10 * ms);
    testing::expect_shared(hpz.end(node), 10 * ms);
    testing::expect_shared(hpz.end(sum), 15 * ms);
  });
}

}  // namespace
}  // namespace zerosim
