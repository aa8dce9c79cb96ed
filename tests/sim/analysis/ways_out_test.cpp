#include "sim/analysis/ways_out.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/memory_report.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace literals;

Experiment experiment_of(const char* model, const char* cluster, int gpus, std::int64_t sequence) {
  Experiment experiment;
  experiment.model = load_model(model);
  experiment.cluster = load_cluster(cluster, 1, gpus);
  experiment.batch.sequence = sequence;
  return experiment;
}

std::vector<std::string> codes_of(const std::vector<WayOut>& ways) {
  std::vector<std::string> codes;
  for (const WayOut& way : ways) codes.push_back(way.code);
  return codes;
}

const WayOut* way_of(const std::vector<WayOut>& ways, const std::string& code) {
  const auto found =
      std::find_if(ways.begin(), ways.end(), [&](const WayOut& way) { return way.code == code; });
  return found == ways.end() ? nullptr : &*found;
}

/// pythia-1b on one GPU of so much memory.
struct OneGpu {
  Experiment experiment;
  Strategy strategy;
};
OneGpu on_one_gpu(const TrainingFlags& flags, Bytes memory) {
  OneGpu job{experiment_of("pythia-1b", "dgx-a100-40", 2, 1024), named_strategy("zero2", flags, 2)};
  job.experiment.cluster.node.gpu_memory = memory;
  return job;
}

TEST(WaysOut, SingleChangesThatAreEnoughAreMeasuredSo) {
  TrainingFlags flags;
  flags.optimizer = OptimizerKind::AdamTorch;
  flags.micro_batch = 4;
  // What it needs, less 1 GiB: there are several ways to a little less.
  const OneGpu roomy = on_one_gpu(flags, 40_GiB);
  const MemoryReport needs = replayed_memory(roomy.experiment, roomy.strategy);
  const OneGpu job = on_one_gpu(flags, needs.peak_allocated + needs.context - 1_GiB);
  ASSERT_EQ(verdict_of(replayed_memory(job.experiment, job.strategy)), Verdict::DoesNotFit);
  const std::vector<WayOut> ways = ways_out(job.experiment, job.strategy);
  ASSERT_FALSE(ways.empty());
  EXPECT_TRUE(ways.front().is_enough);
  for (const WayOut& way : ways) {
    EXPECT_FALSE(way.code.empty());
    EXPECT_FALSE(way.setting.empty()) << way.code;
    EXPECT_FALSE(way.is_pair) << way.change;
    EXPECT_EQ(way.is_enough, way.memory.has_value()) << way.code;
    EXPECT_EQ(way.memory.has_value(), way.note.empty()) << way.code;
    EXPECT_TRUE(!way.memory || verdict_of(*way.memory) != Verdict::DoesNotFit) << way.change;
    EXPECT_FALSE(way.step) << "untimed";
  }
  const WayOut* offload = way_of(ways, "offload_optimizer");
  ASSERT_NE(offload, nullptr);
  EXPECT_EQ(offload->setting, "zero_optimization.offload_optimizer: {\"device\": \"cpu\"}");
}

TEST(WaysOut, TheMildestSizeThatIsEnough) {
  // Stage 2 holds a bucket of 5e8 x 2 bytes in the backward; a few hundred MiB too little.
  const OneGpu roomy = on_one_gpu({}, 40_GiB);
  const MemoryReport needs = replayed_memory(roomy.experiment, roomy.strategy);
  const OneGpu job = on_one_gpu({}, needs.peak_allocated + needs.context - 100_MiB);
  const std::vector<WayOut> ways = ways_out(job.experiment, job.strategy);
  const WayOut* bucket = way_of(ways, "smaller_reduce_bucket");
  if (needs.peak_phase == "bwd") {
    ASSERT_NE(bucket, nullptr);
    EXPECT_EQ(bucket->setting, "zero_optimization.reduce_bucket_size: 250000000");
  }
}

TEST(WaysOut, PairsWhereNoSingleChangeIsEnough) {
  TrainingFlags flags;
  flags.micro_batch = 8;
  // States of 2 P + 14 P / 2 = 9.1 GB and activations of about as much: 5 GiB need both to go.
  const OneGpu job = on_one_gpu(flags, 5_GiB);
  const std::vector<WayOut> ways = ways_out(job.experiment, job.strategy);
  ASSERT_FALSE(ways.empty());
  EXPECT_TRUE(ways.front().is_pair);
  EXPECT_FALSE(ways.front().second_code.empty());
  EXPECT_NE(ways.front().code, ways.front().second_code);
}

TEST(WaysOut, TheNearestWhereNothingIsEnough) {
  const OneGpu job = on_one_gpu({}, 2_GiB);
  const std::vector<WayOut> ways = ways_out(job.experiment, job.strategy);
  ASSERT_FALSE(ways.empty());
  EXPECT_FALSE(ways.front().is_enough);
  EXPECT_TRUE(ways.front().memory);
  for (const WayOut& way : ways) EXPECT_FALSE(way.is_enough) << way.change;
}

TEST(WaysOut, OrderedByStepTime) {
  TrainingFlags flags;
  flags.optimizer = OptimizerKind::AdamTorch;
  flags.micro_batch = 4;
  const OneGpu roomy = on_one_gpu(flags, 40_GiB);
  const MemoryReport needs = replayed_memory(roomy.experiment, roomy.strategy);
  const OneGpu job = on_one_gpu(flags, needs.peak_allocated + needs.context - 1_GiB);
  const std::vector<WayOut> ways =
      ways_out(job.experiment, job.strategy, {.timed = true, .at_least_freed = {}});
  Seconds before{0};
  int timed = 0;
  for (const WayOut& way : ways) {
    if (!way.memory) continue;
    ASSERT_TRUE(way.step) << way.change;
    EXPECT_GE(*way.step, before) << way.change;
    before = *way.step;
    ++timed;
  }
  EXPECT_GE(timed, 2);
  const WayOut* offload = way_of(ways, "offload_optimizer");
  ASSERT_NE(offload, nullptr);
  EXPECT_GT(*offload->step, *step_time(job.experiment, job.strategy));
}

TEST(WaysOut, AJobOfAnotherFrameworkGetsDeepSpeedsDefaults) {
  // DDP of pythia-1b: fp32 weights, gradients and moments, 16 bytes a parameter: 15.1 GiB.
  Experiment experiment = experiment_of("pythia-1b", "dgx-a100-40", 4, 1024);
  experiment.cluster.node.gpu_memory = 14_GiB;
  const std::vector<WayOut> ways = ways_out(experiment, named_strategy("ddp", {}, 4));
  EXPECT_THAT(codes_of(ways), Contains("higher_stage"));
}

/// One GPU of 80 GiB does not hold 16 bytes x 6.7e9; with the optimizer on the CPU and without what
/// blocks save it does.
TEST(WaysOut, JobsWithoutShardsOffloadFromStage2) {
  const Experiment experiment = experiment_of("llama-2-7b", "dgx-a100-80", 1, 2048);
  TrainingFlags flags;
  flags.micro_batch = 8;
  for (const char* name : {"single", "ddp", "zero0"}) {
    const std::vector<WayOut> ways = ways_out(experiment, named_strategy(name, flags, 1));
    const auto found = std::find_if(ways.begin(), ways.end(), [](const WayOut& way) {
      return way.is_enough && way.setting.find("offload_optimizer") != std::string::npos;
    });
    ASSERT_NE(found, ways.end()) << name;
    EXPECT_NE(verdict_of(*found->memory), Verdict::DoesNotFit) << name;
    EXPECT_THAT(found->change, HasSubstr("ZeRO-2 with the optimizer on the CPU"));
    EXPECT_THAT(found->change, HasSubstr("full activation checkpointing"));
    EXPECT_THAT(
        found->setting,
        HasSubstr(R"(zero_optimization: {"stage": 2, "offload_optimizer": {"device": "cpu"}})"));
  }
}

/// The real run lacked 1 GiB where the simulated one fits: as many GPUs as the job has are too few.
TEST(WaysOut, MoreGpusWhereTheSimulatedJobFits) {
  const Experiment experiment = experiment_of("qwen2-1.5b", "dgx-a100-80", 2, 512);
  const Strategy strategy = named_strategy("zero3", {}, 2);
  const MemoryReport now = replayed_memory(experiment, strategy);
  ASSERT_NE(verdict_of(now), Verdict::DoesNotFit);
  const std::vector<WayOut> ways =
      ways_out(experiment, strategy, {.timed = false, .at_least_freed = 1_GiB});
  const WayOut* more = way_of(ways, "more_gpus");
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(more->change, "3 GPUs");  // 16 P / 2 to 16 P / 3 bytes: 4.1e9 less
  EXPECT_LE(more->memory->peak_allocated, now.peak_allocated - 1_GiB);
}

/// One GPU has no other ranks that could take a part of a sequence.
TEST(WaysOut, SequenceParallelismNeedsOtherRanks) {
  TrainingFlags flags;
  flags.micro_batch = 8;
  Experiment experiment = experiment_of("pythia-1b", "dgx-a100-40", 1, 2048);
  const std::vector<WayOut> alone = ways_out(experiment, named_strategy("single", flags, 1));
  EXPECT_THAT(codes_of(alone), Not(Contains("sequence_parallel")));
  EXPECT_THAT(codes_of(alone), Contains("fused_cross_entropy"));
  experiment.cluster.gpus_per_node = 2;
  const std::vector<WayOut> two = ways_out(experiment, named_strategy("ddp", flags, 2));
  EXPECT_THAT(codes_of(two), Contains("sequence_parallel"));
}

TEST(WaysOut, SettingsAreThoseOfTheFramework) {
  Experiment experiment = experiment_of("pythia-1b", "dgx-a100-40", 2, 1024);
  experiment.cluster.node.gpu_memory = 16_GiB;
  TrainingFlags flags;
  flags.micro_batch = 8;
  const auto settings = [&](const char* strategy) {
    std::string all;
    for (const WayOut& way : ways_out(experiment, named_strategy(strategy, flags, 2))) {
      all += way.setting + "\n";
    }
    return all;
  };
  EXPECT_THAT(settings("zero2"), HasSubstr("train_micro_batch_size_per_gpu: "));
  const std::string fsdp = settings("fsdp_full");
  EXPECT_THAT(fsdp, HasSubstr("per_device_train_batch_size: "));
  EXPECT_THAT(fsdp, Not(HasSubstr("train_micro_batch_size_per_gpu")));
  EXPECT_THAT(fsdp, Not(HasSubstr("--num_gpus")));
}

/// FSDP jobs are not started by DeepSpeed's launcher.
TEST(WaysOut, MoreGpusByTheFrameworksLauncher) {
  const Experiment experiment = experiment_of("qwen2-1.5b", "dgx-a100-80", 2, 512);
  const auto more = [&](const char* strategy) {
    const std::vector<WayOut> ways = ways_out(experiment, named_strategy(strategy, {}, 2),
                                              {.timed = false, .at_least_freed = 1_GiB});
    const WayOut* way = way_of(ways, "more_gpus");
    return way == nullptr ? "" : way->setting;
  };
  EXPECT_EQ(more("zero3"), "--num_gpus 3");
  EXPECT_EQ(more("fsdp_full"), "torchrun --nproc-per-node 3");
}

/// A single change that is enough has both its codes.
TEST(WaysOut, OffloadFromStage2IsBothChanges) {
  Experiment experiment = experiment_of("pythia-1b", "dgx-a100-40", 1, 256);
  experiment.cluster.node.gpu_memory = 12_GiB;  // 16 bytes x 1.01e9 are 15.1 GiB
  const std::vector<WayOut> ways = ways_out(experiment, named_strategy("single", {}, 1));
  const WayOut* offload = way_of(ways, "offload_optimizer");
  ASSERT_NE(offload, nullptr);
  EXPECT_EQ(offload->second_code, "higher_stage");
  EXPECT_TRUE(offload->is_enough);
  EXPECT_FALSE(offload->is_pair);
}

TEST(WaysOut, FullyShardedJobsOffloadBoth) {
  Experiment experiment = experiment_of("pythia-1b", "dgx-a100-40", 2, 1024);
  experiment.cluster.node.gpu_memory = 8_GiB;
  const std::vector<WayOut> ways = ways_out(experiment, named_strategy("fsdp_full", {}, 2));
  const WayOut* offload = way_of(ways, "offload_optimizer");
  ASSERT_NE(offload, nullptr);
  EXPECT_FALSE(offload->is_pair);
  EXPECT_EQ(offload->second_code, "offload_param");
}

/// A bucket of 5e8 x 2 bytes is larger than the 335e6 parameters of bert-large: halved it holds as
/// much, in less memory and no more time.
TEST(FreeSavings, BucketsLargerThanTheModel) {
  const Experiment experiment = experiment_of("bert-large", "dgx-a100-40", 4, 256);
  TrainingFlags flags;
  flags.precision = Precision::Fp16;
  flags.micro_batch = 32;
  flags.grad_accum = 4;
  const Strategy strategy = named_strategy("zero2", flags, 4);
  const std::vector<WayOut> ways = free_savings(experiment, strategy);
  EXPECT_THAT(codes_of(ways), Contains("smaller_reduce_bucket"));
  const double now = replayed_memory(experiment, strategy).peak_allocated.gib();
  const Seconds step = *step_time(experiment, strategy);
  for (const WayOut& way : ways) {
    EXPECT_LE(way.memory->peak_allocated.gib(), 0.98 * now) << way.change;
    EXPECT_LE(way.step->count(), 1.01 * step.count()) << way.change;
  }
}

/// What fits has no ways out, and of what pays nothing is proposed.
TEST(FreeSavings, NoneOnOneRankWithoutSharding) {
  const Experiment experiment = experiment_of("gpt2", "dgx-a100-40", 1, 1024);
  for (const WayOut& way : free_savings(experiment, named_strategy("single", {}, 1))) {
    EXPECT_EQ(way.code, "fused_optimizer");
  }
}

}  // namespace
}  // namespace zerosim
