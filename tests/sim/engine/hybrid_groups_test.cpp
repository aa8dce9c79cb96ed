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

}  // namespace
}  // namespace zerosim
