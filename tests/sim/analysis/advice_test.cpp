#include "sim/analysis/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/memory_report.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace literals;

constexpr std::int64_t kTokensOfAStep = 8000;
constexpr int kGpus = 4;

/// A report of a step of 8000 tokens on 4 GPUs; parts in milliseconds.
StrategyReport report(const std::string& name, int stage, double compute, double communication,
                      double host, double optimizer, Bytes peak) {
  StrategyReport made;
  made.name = name;
  made.stage = stage;
  made.time.compute = Seconds(compute * 1e-3);
  made.time.exposed_communication = Seconds(communication * 1e-3);
  made.time.host = Seconds(host * 1e-3);
  made.time.optimizer = Seconds(optimizer * 1e-3);
  made.time.step = Seconds((compute + communication + host + optimizer) * 1e-3);
  made.throughput.tokens_per_s = kTokensOfAStep / made.time.step.count();
  made.throughput.tokens_per_s_per_gpu = made.throughput.tokens_per_s / kGpus;
  made.throughput.mfu = 0.5;
  made.memory.optimizer_states = peak;
  made.memory.peak_allocated = made.memory.peak_reserved = peak;
  made.memory.context = 1_GiB;
  made.memory.capacity = 80_GiB;
  if (headroom(made.memory) < Bytes(0)) made.memory.failure.emplace();
  made.verdict = verdict_of(made.memory);
  return made;
}

std::vector<std::string> sentences(const std::vector<StrategyReport>& reports, double price = 0) {
  Experiment experiment;
  experiment.cluster = load_cluster("dgx-a100-80", 1, kGpus);
  experiment.cluster.price_per_gpu_hour = price;
  return choice(experiment, std::vector<Strategy>(reports.size()), reports);
}

TEST(Choice, FastestThatFitsAndWhatTheNextOneLoses) {
  // zero2: 100 ms, 8000 / 0.1 / 4 = 20000 tokens/s per GPU, 1e6 / 20000 = 50 GPU-seconds; at 3.6 an
  // hour 50 / 3600 x 3.6 = 0.05. 80 - 39 - 1 = 40 GiB free. zero3: 125 ms: 20 % fewer tokens/s; 20
  // of the 25 ms are communication, 4 host. ddp: 85 + 1 - 80 = 6 GiB too much.
  StrategyReport zero2 = report("zero2", 2, 80, 10, 2, 8, 39_GiB);
  zero2.communication.psi = 3;
  StrategyReport zero3 = report("zero3", 3, 81, 30, 6, 8, 29_GiB);
  zero3.communication.psi = 3.5;
  const StrategyReport ddp = report("ddp", 0, 80, 5, 2, 8, 85_GiB);
  EXPECT_THAT(
      sentences({ddp, zero2, zero3}, 3.6),
      ElementsAre(
          "Choose zero2: the fastest that fits, with 20000 tokens/s per GPU (100.0 ms a step, MFU "
          "50.0 %; 50.0 GPU-seconds per million tokens, 0.05 at 3.6 per GPU-hour), and 40.0 of "
          "80.0 "
          "GiB stay free.",
          "zero3 comes next, 20.0 % slower with 10.0 GiB less memory: for the same tokens 20.0 ms "
          "more of "
          "exposed communication, 4.0 ms more of host (it sends 3.50 Psi a step, not 3.00).",
          "Does not fit: ddp needs 6.0 GiB more than the 80.0 GiB of the GPU (optimizer states "
          "85.0 "
          "GiB)."));
}

TEST(Choice, AmongEqualsTheLowerStage) {
  // 100.0 against 99.5 ms: 0.5 % apart, equal.
  const std::vector<std::string> said = sentences(
      {report("zero2", 2, 99.5, 0, 0, 0, 20_GiB), report("zero1", 1, 100, 0, 0, 0, 30_GiB)});
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_THAT(said[0], HasSubstr("Choose zero1: none that fits is faster than its 20000 tokens/s"));
  EXPECT_EQ(said[1],
            "zero2 is as fast within 1 %, with 10.0 GiB less memory, but is the higher stage.");
}

TEST(Choice, AmongEqualsRoomGoesBeforeTheLowerStage) {
  StrategyReport tight = report("zero1", 1, 100, 0, 0, 0, 77_GiB);
  tight.verdict = Verdict::Tight;
  const std::vector<std::string> said =
      sentences({tight, report("zero2", 2, 100, 0, 0, 0, 40_GiB)});
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_THAT(said[0], HasSubstr("Choose zero2: "));
  EXPECT_EQ(said[1],
            "zero1 is as fast within 1 %, with 37.0 GiB more memory, but leaves less room.");
}

TEST(Choice, ATightOneIsCalledSo) {
  StrategyReport tight = report("zero1", 1, 80, 0, 0, 0, 77_GiB);
  tight.verdict = Verdict::Tight;
  tight.memory.flushes = 2;
  tight.memory.flush_time = Seconds(0.0123);
  const StrategyReport other = report("zero2", 2, 100, 0, 0, 0, 40_GiB);
  EXPECT_THAT(sentences({tight, other})[0],
              HasSubstr("where the allocator flushes its cache 2 times a step, which takes 12.3 ms "
                        "of it."));
  tight.memory.flushes = 0;
  tight.memory.early_flushes = 1;
  EXPECT_THAT(sentences({tight, other})[0],
              HasSubstr("where the allocator flushes its cache in the first steps."));
}

TEST(Choice, ANarrowOneIsCalledSo) {
  // 80 - 77 - 1 = 2 GiB, less than 5 % of 80.
  EXPECT_THAT(sentences({report("zero1", 1, 80, 0, 0, 0, 77_GiB)})[0],
              HasSubstr("and 2.0 of 80.0 GiB stay free, less than such a prediction may be off."));
}

TEST(Choice, StepsOfUnequalBatchesAreComparedByToken) {
  // Twice the tokens in 240 ms: 120 ms for as many as the other, 20 ms more of compute.
  StrategyReport twice = report("zero3", 3, 240, 0, 0, 0, 20_GiB);
  twice.throughput.tokens_per_s = 2 * kTokensOfAStep / twice.time.step.count();
  twice.throughput.tokens_per_s_per_gpu = twice.throughput.tokens_per_s / kGpus;
  const std::vector<std::string> said =
      sentences({report("zero2", 2, 100, 0, 0, 0, 20_GiB), twice});
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_EQ(
      said[1],
      "zero3 comes next, 16.7 % slower with as much memory: for the same tokens 20.0 ms more of "
      "compute.");
}

TEST(VerdictOf, ByWhatTheAllocatorDoes) {
  MemoryReport memory;
  EXPECT_EQ(verdict_of(memory), Verdict::Fits);
  memory.early_flushes = 1;
  EXPECT_EQ(verdict_of(memory), Verdict::Tight);
  memory.early_flushes = 0;
  memory.flushes = 1;
  EXPECT_EQ(verdict_of(memory), Verdict::Tight);
  memory.failure.emplace();
  EXPECT_EQ(verdict_of(memory), Verdict::DoesNotFit);
}

Model parameters(std::int64_t trainable, std::int64_t frozen) {
  Model model;
  model.parameters.push_back({"a", {trainable}, trainable, ModuleId(0), true});
  model.parameters.push_back({"b", {frozen}, frozen, ModuleId(0), false});
  return model;
}

TEST(PaperModelStates, AsTheZeroPaperCounts) {
  // P = 1000, N = 8: 16 P; 4 P + 12 P / N; 2 P + 14 P / N; 16 P / N.
  const Model model = parameters(1000, 0);
  Strategy strategy;
  strategy.framework = Framework::Ddp;
  EXPECT_EQ(paper_model_states_of(model, strategy, 8), Bytes(16000));
  strategy.framework = Framework::DeepSpeed;
  strategy.zero.stage = 1;
  EXPECT_EQ(paper_model_states_of(model, strategy, 8), Bytes(4000 + 1500));
  strategy.zero.stage = 2;
  EXPECT_EQ(paper_model_states_of(model, strategy, 8), Bytes(2000 + 1750));
  strategy.zero.stage = 3;
  EXPECT_EQ(paper_model_states_of(model, strategy, 8), Bytes(2000));
  // 16 x 1000 / 7 = 2285.7
  EXPECT_EQ(paper_model_states_of(model, strategy, 7), Bytes(2286));
  strategy.precision = Precision::Fp32;
  strategy.zero.stage = 0;
  EXPECT_EQ(paper_model_states_of(model, strategy, 8), Bytes(16000));  // 4 + 4 + 8
}

TEST(PaperModelStates, FrozenParametersHaveWeightsOnly) {
  // 1000 trainable, 9000 frozen, stage 1 at N = 4: 2 x 10000 + 2 x 1000 + 12 x 1000 / 4 = 25000.
  Strategy strategy;
  strategy.framework = Framework::DeepSpeed;
  strategy.zero.stage = 1;
  EXPECT_EQ(paper_model_states_of(parameters(1000, 9000), strategy, 4), Bytes(25000));
}

}  // namespace
}  // namespace zerosim
