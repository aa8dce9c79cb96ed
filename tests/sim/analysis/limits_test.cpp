#include "sim/analysis/limits.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/memory_report.h"
#include "sim/base/error.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Experiment experiment_of(const std::string& model, const std::string& cluster, int nodes,
                         std::int64_t sequence) {
  Experiment experiment;
  experiment.model = load_model(model);
  experiment.cluster = load_cluster(cluster, nodes);
  experiment.batch.sequence = sequence;
  return experiment;
}

Strategy strategy_of(const std::string& name, const Experiment& experiment) {
  TrainingFlags flags;
  flags.gpus_per_node = experiment.cluster.gpus_per_node;
  return named_strategy(name, flags, experiment.cluster.world_size());
}

bool is_enough(const PlacedStrategy& placed) {
  try {
    return verdict_of(replayed_memory(placed.experiment, placed.strategy)) != Verdict::DoesNotFit;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Every size in ascending order, without any bound or halving.
std::optional<std::int64_t> least_gpus_one_by_one(const Experiment& experiment,
                                                  const Strategy& strategy, int most) {
  const Cluster& cluster = experiment.cluster;
  const int of_a_node = cluster.nodes == 1 ? cluster.node.gpus : cluster.gpus_per_node;
  for (int gpus = 1; gpus <= most; gpus += gpus < of_a_node ? 1 : of_a_node) {
    const int nodes = (gpus + of_a_node - 1) / of_a_node;
    if (is_enough(resized(experiment, strategy, nodes, gpus / nodes))) return gpus;
  }
  return std::nullopt;
}

struct Question {
  const char* model;
  const char* cluster;
  int nodes;
  const char* strategy;
  std::int64_t sequence;
};
void PrintTo(const Question& question, std::ostream* out) {
  *out << question.strategy << " of " << question.model << " on " << question.nodes << " "
       << question.cluster;
}

class Limits : public ::testing::TestWithParam<Question> {
 protected:
  Experiment experiment =
      experiment_of(GetParam().model, GetParam().cluster, GetParam().nodes, GetParam().sequence);
  Strategy strategy = strategy_of(GetParam().strategy, experiment);
};

TEST_P(Limits, LeastGpusIsTheFirstThatIsEnoughOneByOne) {
  const Limit limit = least_gpus(experiment, strategy);
  // Where nothing is enough, as many as 64 GPUs are looked at one by one.
  EXPECT_EQ(limit.size, least_gpus_one_by_one(experiment, strategy, 64));
  if (limit.size) {
    ASSERT_NE(limit.found(), nullptr);
    EXPECT_TRUE(limit.found()->is_enough());
  }
}

TEST_P(Limits, LargestMicroBatchIsTheLastThatIsEnoughOneByOne) {
  const Limit limit = largest_micro_batch(experiment, strategy);
  std::optional<std::int64_t> largest;
  const std::int64_t beyond = limit.size.value_or(0) + 8;
  for (std::int64_t size = 1; size <= beyond; ++size) {
    PlacedStrategy placed{experiment, strategy};
    placed.strategy.micro_batch = size;
    if (is_enough(placed)) largest = size;
  }
  EXPECT_EQ(limit.size, largest);
}

TEST_P(Limits, EachSizeIsTriedOnceAndWithinTheLimit) {
  const Limit gpus = least_gpus(experiment, strategy);
  const Limit micro_batch = largest_micro_batch(experiment, strategy);
  for (const Limit* limit : {&gpus, &micro_batch}) {
    std::set<std::int64_t> sizes;
    for (const LimitProbe& probe : limit->probes) {
      EXPECT_TRUE(sizes.insert(probe.size).second) << probe.size;
      EXPECT_GE(probe.size, 1);
      EXPECT_LE(probe.size, limit->last);
      EXPECT_NE(probe.memory.has_value(), !probe.refusal.empty());
    }
    EXPECT_LE(sizes.size(), 30U);
  }
}

INSTANTIATE_TEST_SUITE_P(Small, Limits,
                         ::testing::Values(Question{"qwen2-1.5b", "dgx1-v100-16", 1, "ddp", 1024},
                                           Question{"qwen2-1.5b", "dgx1-v100-16", 1, "zero1", 1024},
                                           Question{"qwen2-1.5b", "dgx1-v100-16", 1, "zero2", 1024},
                                           Question{"qwen2-1.5b", "dgx1-v100-16", 1, "zero3", 1024},
                                           Question{"qwen2-1.5b", "dgx1-v100-16", 1, "fsdp2", 512},
                                           Question{"pythia-2.8b", "a10x4-pcie", 1, "zero3", 1024},
                                           Question{"pythia-2.8b", "a10x4-pcie", 1, "zero2", 1024},
                                           Question{"pythia-2.8b", "a10x4-pcie", 2, "hsdp", 512},
                                           Question{"llama-2-7b", "dgx1-v100-16", 2, "zero3", 256},
                                           Question{"llama-2-7b", "dgx1-v100-16", 1, "zero0",
                                                    128}));

TEST(Resized, KeepsMicroBatchAndAccumulation) {
  const Experiment experiment = experiment_of("gpt2", "dgx-a100-80", 1, 128);
  Strategy strategy = strategy_of("zero2", experiment);
  strategy.micro_batch = 3;
  strategy.grad_accum = 4;
  const PlacedStrategy placed = resized(experiment, strategy, 2, 8);
  EXPECT_EQ(placed.experiment.cluster.world_size(), 16);
  EXPECT_EQ(placed.strategy.micro_batch, 3);
  EXPECT_EQ(placed.strategy.train_batch, 3 * 4 * 16);
}

TEST(Resized, AGroupThatWasANodeStillIsOne) {
  const Experiment experiment = experiment_of("gpt2", "dgx-a100-80", 2, 128);
  Strategy strategy = strategy_of("hsdp", experiment);
  ASSERT_EQ(strategy.fsdp.shard_group, 8);
  EXPECT_EQ(resized(experiment, strategy, 2, 6).strategy.fsdp.shard_group, 6);
  strategy.fsdp.shard_group = 4;  // half a node: stays
  EXPECT_EQ(resized(experiment, strategy, 2, 6).strategy.fsdp.shard_group, 4);
}

TEST(ClusterSizes, EachCountOfTheFirstNodeThenWholeNodes) {
  const std::vector<int> sizes = cluster_sizes(load_cluster("a10x4-pcie", 1, 2));
  EXPECT_THAT(std::vector<int>(sizes.begin(), sizes.begin() + 6), ElementsAre(1, 2, 3, 4, 8, 12));
  EXPECT_EQ(sizes.back(), 1024);
  // Several nodes with 3 GPUs each in use: nodes of 3.
  const std::vector<int> threes = cluster_sizes(load_cluster("a10x4-pcie", 400, 3));
  EXPECT_THAT(std::vector<int>(threes.begin(), threes.begin() + 5), ElementsAre(1, 2, 3, 6, 9));
  EXPECT_EQ(threes.back(), 2400);  // twice as many as there are
  // Of 2 x 10^6 nodes of 1000 twice as many are no int: 131072 / 1000 nodes are tried.
  Cluster huge = load_cluster("a10x4-pcie", 400, 3);
  huge.nodes = 2'000'000;
  huge.gpus_per_node = 1000;
  EXPECT_EQ(cluster_sizes(huge).back(), 131'000);
}

class ManyMicroSteps : public ::testing::TestWithParam<const char*> {};

TEST_P(ManyMicroSteps, TakeAsMuchMemoryAsThree) {
  const Experiment experiment = experiment_of("gpt2", "dgx1-v100-16", 1, 64);
  Strategy strategy = strategy_of(GetParam(), experiment);
  strategy.grad_accum = 3;
  const MemoryReport three = replayed_memory(experiment, strategy);
  strategy.grad_accum = 7;
  const MemoryReport seven = replayed_memory(experiment, strategy);
  EXPECT_EQ(seven.peak_allocated, three.peak_allocated);
  EXPECT_EQ(seven.peak_reserved, three.peak_reserved);
  EXPECT_EQ(verdict_of(seven), verdict_of(three));
}

INSTANTIATE_TEST_SUITE_P(Strategies, ManyMicroSteps,
                         ::testing::Values("ddp", "zero0", "zero1", "zero2", "zero3", "fsdp",
                                           "fsdp_grad_op", "fsdp2", "hsdp"));

TEST(LargestMicroBatch, IsThatOfAllMicroSteps) {
  const Experiment experiment = experiment_of("qwen2-1.5b", "dgx1-v100-16", 1, 1024);
  Strategy strategy = strategy_of("zero2", experiment);
  strategy.grad_accum = 5;
  PlacedStrategy placed{experiment, strategy};
  const Limit limit = largest_micro_batch(experiment, strategy);
  ASSERT_TRUE(limit.size);
  placed.strategy.micro_batch = *limit.size;
  EXPECT_TRUE(is_enough(placed));
  ++placed.strategy.micro_batch;
  EXPECT_FALSE(is_enough(placed));
}

TEST(LeastGpus, EndsWhereMoreNodesDoNotHelp) {
  // DDP holds all states on each GPU: 16 bytes x 1.5e9 and more, on 16 GB.
  const Experiment experiment = experiment_of("qwen2-1.5b", "dgx1-v100-16", 1, 128);
  const Limit limit = least_gpus(experiment, strategy_of("ddp", experiment));
  EXPECT_EQ(limit.size, std::nullopt);
  EXPECT_EQ(limit.found(), nullptr);
  const auto largest =
      std::max_element(limit.probes.begin(), limit.probes.end(),
                       [](const LimitProbe& a, const LimitProbe& b) { return a.size < b.size; });
  EXPECT_LE(largest->size, 32);
  EXPECT_EQ(limit.last, 1024);
}

TEST(LeastGpus, BeyondThoseOfTheJobAndForLessMemory) {
  const Experiment experiment = experiment_of("qwen2-1.5b", "dgx-a100-40", 1, 128);
  const Strategy strategy = strategy_of("zero3", experiment);
  const Bytes now = replayed_memory(experiment, strategy).peak_allocated;
  GpuSearch asked;
  asked.from = experiment.cluster.world_size() + 1;
  const Limit any = least_gpus(experiment, strategy, asked);
  EXPECT_EQ(any.size, 16);  // 8 GPUs are enough, but are not asked about: the next node is
  for (const LimitProbe& probe : any.probes) EXPECT_GE(probe.size, 16);
  // P = 1.54e9: states of 16 P / 8 bytes fall by 1.54e9 on 16 GPUs, by 2.06e9 on 24.
  asked.reaches = [&](const MemoryReport& memory) {
    return memory.peak_allocated < now - Bytes(1'800'000'000);
  };
  const Limit less = least_gpus(experiment, strategy, asked);
  ASSERT_NE(less.found(), nullptr);
  EXPECT_GT(*less.size, 16);
  EXPECT_LT(less.found()->memory->peak_allocated, now - Bytes(1'800'000'000));
}

TEST(LeastGpus, CountsThatTheStrategyRefusesAreToldAndPassedOver) {
  // Groups of 4 do not divide 1, 2 or 3 ranks.
  const Experiment experiment = experiment_of("gpt2", "dgx-a100-80", 1, 128);
  Strategy strategy = strategy_of("hsdp", experiment);
  strategy.fsdp.shard_group = 4;
  const Limit limit = least_gpus(experiment, strategy);
  EXPECT_EQ(limit.size, 4);
  ASSERT_EQ(limit.probes.size(), 4U);
  EXPECT_EQ(limit.probes[2].size, 3);
  EXPECT_THAT(limit.probes[2].refusal, HasSubstr("4"));
  EXPECT_FALSE(limit.probes[2].is_enough());
}

TEST(LargestMicroBatch, NoneWhereOneSequenceIsTooMuch) {
  const Experiment experiment = experiment_of("llama-2-7b", "a10x4-pcie", 1, 2048);
  const Limit limit = largest_micro_batch(experiment, strategy_of("ddp", experiment));
  EXPECT_EQ(limit.size, std::nullopt);
  ASSERT_EQ(limit.probes.size(), 1U);
  EXPECT_EQ(limit.probes.front().size, 1);
}

}  // namespace
}  // namespace zerosim
