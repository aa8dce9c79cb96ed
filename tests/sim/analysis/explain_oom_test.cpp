#include "sim/analysis/explain_oom.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/size_formula.h"
#include "sim/model/sized_model.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using namespace literals;

struct Place {
  const char* cluster;
  int gpus;
  double gpu_gib;
};

Experiment experiment_of(Model model, const Place& place, std::int64_t sequence) {
  Experiment experiment;
  experiment.model = std::move(model);
  experiment.cluster = load_cluster(place.cluster, 1, place.gpus);
  experiment.cluster.node.gpu_memory = printed_gib(place.gpu_gib).bytes;
  experiment.batch.sequence = sequence;
  experiment.batch.flash_attention = false;
  return experiment;
}

OomFigures figures(double request, double allocated, double reserved, double free) {
  OomFigures result;
  result.request = printed_gib(request);
  result.allocated = printed_gib(allocated);
  result.reserved = printed_gib(reserved);
  result.free = printed_gib(free);
  return result;
}

std::vector<std::string> codes_of(const std::vector<WayOut>& ways) {
  std::vector<std::string> codes;
  for (const WayOut& way : ways) codes.push_back(way.code);
  return codes;
}

TrainingFlags unfused(Precision precision) {
  TrainingFlags flags;
  flags.precision = precision;
  flags.optimizer = OptimizerKind::AdamTorch;
  flags.checkpointing = ActivationCheckpointing::Full;
  return flags;
}

// ---- formulas ----------------------------------------------------------------------------------

struct Question {
  Bytes bytes;
  std::optional<MemoryClass> memory_class;
  const char* module = nullptr;
};

std::string formula(const Question& asked, const Strategy& strategy) {
  const Experiment experiment =
      experiment_of(load_model("llama-2-7b"), {"dgx-a100-80", 8, 80}, 1024);
  SizeQuestion question{asked.bytes, Bytes(0), {}, asked.memory_class};
  for (std::size_t i = 0; i < experiment.model.modules.size() && asked.module != nullptr; ++i) {
    if (experiment.model.modules[i].name == asked.module) {
      question.module = ModuleId(static_cast<std::int32_t>(i));
    }
  }
  const auto found = size_formula(question, experiment, strategy);
  return found ? found->text : "";
}

TEST(SizeFormula, ProductsOfTheJobsNumbers) {
  const Strategy zero2 = named_strategy("zero2", {}, 8);
  // Llama-2-7B: P = 6 738 415 616. 4 P / 8 = 3 369 207 808 bytes.
  EXPECT_EQ(formula({Bytes(3'369'207'808), MemoryClass::TemporaryBuffers}, zero2),
            "4 bytes x 6.738e9 parameters / 8 ranks");
  EXPECT_EQ(formula({Bytes(13'476'831'232), MemoryClass::Parameters}, zero2),
            "2 bytes x 6.738e9 parameters");
  EXPECT_EQ(formula({Bytes(1'000'000'000), MemoryClass::TemporaryBuffers}, zero2),
            "2 bytes x 500e6 elements of reduce_bucket_size");
  // A block: 4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096 = 202 383 360 elements.
  EXPECT_EQ(formula({Bytes(404'766'720), MemoryClass::LiveParameters, "model.layers.3"}, zero2),
            "2 bytes x 202.4e6 parameters of model.layers.3");
  // 1 x 1024 tokens x 32000 words x 4 = 131 072 000 bytes.
  EXPECT_EQ(formula({Bytes(131'072'000), MemoryClass::Logits}, zero2),
            "4 bytes x 1024 tokens x 32000 words");
  // 32 heads x 1024 x 1024 x 2 = 67 108 864 bytes.
  EXPECT_EQ(formula({Bytes(67'108'864), MemoryClass::Activations}, zero2),
            "2 bytes x 32 heads x 1024 tokens x 1024 tokens");
  EXPECT_EQ(formula({Bytes(123'456'789'123), MemoryClass::Activations}, zero2), "");
}

TEST(SizeFormula, SubGroupsAreFilledUpWithWholePieces) {
  Strategy zero3 = named_strategy("zero3", {}, 8);
  zero3.zero.sub_group_size = 100'000'000;
  // The largest piece has 32000 x 4096 / 8 = 16 384 000 elements: up to 116 384 000 a sub-group.
  EXPECT_EQ(formula({Bytes(4 * 110'000'001LL), MemoryClass::TemporaryBuffers}, zero3),
            "4 bytes x 110e6 elements of a sub-group (sub_group_size 100e6, filled up with whole "
            "pieces)");
  EXPECT_EQ(formula({Bytes(4 * 117'000'001LL), MemoryClass::TemporaryBuffers}, zero3), "");
}

/// 3 369 207 808 bytes are also 1 byte x P / 2, which nothing of the job has.
TEST(SizeFormula, OneByteOnlyWhereSomethingHasIt) {
  const Bytes half(3'369'207'808);
  const Strategy unquantized = named_strategy("zero2", {}, 2);
  Experiment experiment = experiment_of(load_model("llama-2-7b"), {"dgx-a100-80", 2, 80}, 1024);
  EXPECT_FALSE(size_formula({half, Bytes(0)}, experiment, unquantized));
  TrainingFlags flags;
  flags.optimizer = OptimizerKind::Adam8bit;
  const auto found = size_formula({half, Bytes(0)}, experiment, named_strategy("zero2", flags, 2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text, "1 byte x 6.738e9 parameters / 2 ranks");
}

TEST(SizeFormula, WithoutAJob) {
  // 3.74 GiB = 4 015 794 422 bytes.
  EXPECT_EQ(size_in_elements(Bytes(4'015'794'422)), "1.004e9 elements of 4 bytes, or 2.008e9 of 2");
}

// ---- a message alone ---------------------------------------------------------------------------

TEST(ExplainOom, AMessageAloneTellsOfFragmentation) {
  OomFigures message = figures(3.74, 57.88, 75.5, 1.33);
  message.total = printed_gib(79.15);
  const OomExplanation said = explain_oom(message);
  EXPECT_EQ(said.match, OomMatch::NotLookedFor);
  EXPECT_THAT(said.causes, ElementsAre("fragmentation"));
  EXPECT_THAT(codes_of(said.ways_out), ElementsAre("expandable_segments"));
  // 75.5 - 57.88 = 17.62; 79.15 - 1.33 - 75.5 = 2.32.
  EXPECT_THAT(
      said.evidence,
      ElementsAre("Fragmentation: PyTorch held 17.62 GiB that it did not use, more than the "
                  "3.74 GiB it asked for, but in no piece that large (E7).",
                  "2.32 GiB are outside PyTorch's allocator: CUDA context, kernels, NCCL."));
}

TEST(ExplainOom, OtherProcesses) {
  OomFigures message = figures(1, 10, 10.5, 0.5);
  message.total = printed_gib(24);
  EXPECT_THAT(explain_oom(message).evidence, Contains(HasSubstr("look for other processes")));
  message.process = printed_gib(11.5);  // 24 - 0.5 - 11.5 = 12 of others, 11.5 - 10.5 = 1 outside
  const OomExplanation said = explain_oom(message);
  EXPECT_THAT(said.causes, IsEmpty());
  EXPECT_THAT(said.evidence, Contains("Other processes hold 12.00 GiB of this GPU."));
  EXPECT_THAT(said.evidence, Contains(StartsWith("1024.00 MiB are outside PyTorch's allocator")));
}

TEST(ExplainOom, TheJobsOwnProcessInAContainerIsNoOther) {
  const OomMessage message = parse_oom_message(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
      "which 1.00 GiB is free. Process 12 has 78.1 GiB memory in use. Of the allocated memory "
      "70.00 "
      "GiB is allocated by PyTorch, and 7.00 GiB is reserved by PyTorch but unallocated.",
      "stdin");
  const OomExplanation said = explain_oom(figures_of(message));
  EXPECT_THAT(said.evidence, Not(Contains(HasSubstr("Other processes"))));
  // 79.15 - 1 - 77 = 1.15 GiB.
  EXPECT_THAT(said.evidence, Contains(StartsWith("1.15 GiB are outside PyTorch's allocator")));
}

// ---- published failures ------------------------------------------------------------------------

/// A 7B Llama at stage 2 on eight GPUs of 31.75 GiB: 2 P and five buffers of 4 P / 8 are 12.55 +
/// 5 x 3.14 = 28.24 GiB; the sixth does not fit.
TEST(ExplainOom, UnfusedAdamAtStage2) {
  const Experiment experiment =
      experiment_of(load_model("llama-2-7b"), {"dgx1-v100-32", 8, 31.75}, 1024);
  const Strategy strategy = named_strategy("zero2", unfused(Precision::Fp16), 8);
  const OomExplanation said = explain_oom(figures(3.14, 28.28, 28.28, 1.95), experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::Exact);
  ASSERT_TRUE(said.found);
  EXPECT_EQ(said.found->owner, "adam_quotient");
  EXPECT_EQ(said.found->phase, Phase::Step);
  EXPECT_EQ(said.found->step, 0);
  EXPECT_NEAR(said.found->allocated.gib(), 28.24, 0.05);
  EXPECT_EQ(said.formula, "4 bytes x 6.738e9 parameters / 8 ranks");
  ASSERT_FALSE(said.causes.empty());
  EXPECT_EQ(said.causes.front(), "optimizer_step_temporary");
  EXPECT_THAT(said.causes, Contains("model_states"));
  const std::vector<std::string> codes = codes_of(said.ways_out);
  EXPECT_THAT(codes, Contains("fused_optimizer"));
  EXPECT_THAT(codes, Contains("higher_stage"));
  EXPECT_FALSE(said.simulated_fits);
}

/// The same on GPUs of 39.4 GiB, where the simulated job fits (31.4 GiB): other processes left too
/// little. Each way frees at least what was short, 3.14 - 1.95 = 1.19 GiB.
TEST(ExplainOom, WaysWhereTheSimulatedJobFits) {
  const Experiment experiment =
      experiment_of(load_model("llama-2-7b"), {"dgx-a100-40", 8, 39.4}, 1024);
  const Strategy strategy = named_strategy("zero2", unfused(Precision::Fp16), 8);
  OomFigures message = figures(3.14, 28.28, 28.28, 1.95);
  message.total = printed_gib(39.4);
  message.process = printed_gib(29.5);
  const OomExplanation said = explain_oom(message, experiment, strategy);
  EXPECT_TRUE(said.simulated_fits);
  EXPECT_EQ(said.match, OomMatch::Exact);
  // 39.4 - 1.95 - 29.5 = 7.95.
  EXPECT_THAT(said.evidence, Contains("Other processes hold 7.95 GiB of this GPU."));
  EXPECT_THAT(codes_of(said.ways_out), Contains("fused_optimizer"));
  const double now = replayed_memory(experiment, strategy).peak_allocated.gib();
  for (const WayOut& way : said.ways_out) {
    if (!way.memory || !way.is_enough) continue;
    EXPECT_LE(way.memory->peak_allocated.gib(), now - 1.18) << way.change;
  }
}

/// A 13.9B model at stage 2 on four GPUs of 79.35 GiB: 25.88 + 4 x 12.94 = 77.65 GiB are allocated
/// before the first temporary.
TEST(ExplainOom, FirstTemporaryOf13B) {
  const Experiment experiment =
      experiment_of(load_model("baichuan2-13b"), {"dgx-a100-80", 4, 79.35}, 1536);
  const Strategy strategy = named_strategy("zero2", unfused(Precision::Bf16), 4);
  const OomExplanation said = explain_oom(figures(12.94, 77.65, 77.66, 0.7), experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::Exact);
  ASSERT_FALSE(said.causes.empty());
  EXPECT_EQ(said.causes.front(), "optimizer_step_temporary");
  EXPECT_THAT(said.formula, HasSubstr("/ 4 ranks"));
  ASSERT_TRUE(said.found);
  EXPECT_EQ(said.found->owner, "adam_root");
  EXPECT_NEAR(said.found->allocated.gib(), 77.65, 0.05);
  EXPECT_THAT(codes_of(said.ways_out), Contains("more_gpus"));
}

/// gpt2-xl without zero.Init: each of 32 ranks first holds 2 x 1.56e9 bytes, 2.9 GiB of 3; cut, the
/// states are 16 x 1.56e9 / 32 bytes, 0.7 GiB.
TEST(ExplainOom, TheWholeModelWithoutZeroInit) {
  Experiment experiment = experiment_of(load_model("gpt2-xl"), {"dgx-a100-40", 8, 3}, 128);
  experiment.cluster.nodes = 4;
  Strategy strategy = named_strategy("zero3", {}, 32);
  ZeroOptions& zero = strategy.zero;
  zero.reduce_bucket_size = zero.prefetch_bucket_size = 10'000'000;
  zero.max_live_parameters = zero.max_reuse_distance = 50'000'000;
  strategy.checkpointing = ActivationCheckpointing::Full;
  strategy.zero_init = false;
  const OomExplanation said = explain_oom(OomFigures(), experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::Simulated);
  ASSERT_FALSE(said.causes.empty());
  EXPECT_EQ(said.causes.front(), "whole_model_materialised");
  EXPECT_THAT(codes_of(said.ways_out), Contains("zero_init"));
}

/// Checkpoints of 60 layers x 256 000 tokens x 5376 x 2 bytes are 165 GB: no sharding helps.
TEST(ExplainOom, CheckpointsOfLongContext) {
  Experiment experiment = experiment_of(decoder_of_sizes({31'000'000'000, 60, 5376, 262'144}),
                                        {"dgx-h100", 8, 140.4}, 256'000);
  experiment.batch.flash_attention = true;
  TrainingFlags flags;
  flags.checkpointing = ActivationCheckpointing::Full;
  Strategy strategy = named_strategy("zero3", flags, 8);
  strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  const OomExplanation said = explain_oom(OomFigures(), experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::Simulated);
  EXPECT_THAT(said.causes, Contains("activations"));
  EXPECT_THAT(codes_of(said.ways_out), Contains("sequence_parallel"));
  EXPECT_THAT(codes_of(said.ways_out), Contains("offload_activations"));
}

// ---- what is not found -------------------------------------------------------------------------

Experiment small() {
  return experiment_of(load_model("gpt2"), {"dgx-a100-40", 2, 39.4}, 1024);
}

TEST(ExplainOom, LargerThanAnyBufferIsOfMoreTokens) {
  const Experiment experiment = small();
  TrainingFlags flags;
  flags.checkpointing = ActivationCheckpointing::Full;
  const Strategy strategy = named_strategy("zero1", flags, 2);
  OomFigures message;
  message.request = printed_gib(30);
  const OomExplanation said = explain_oom(message, experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::NotFound);
  EXPECT_FALSE(said.found);
  EXPECT_THAT(said.request,
              StartsWith("30.00 GiB: 8.053e9 elements of 4 bytes, or 16.11e9 of 2. No "
                         "buffer of the simulated job is that large; its largest is "));
}

/// 4 x 6 738 415 616 / 8 bytes are 3.14 GiB, in sub-groups of 1e8 elements none is above 0.5 GiB.
TEST(ExplainOom, AWholePartitionThatSubGroupsCut) {
  const Experiment experiment =
      experiment_of(load_model("llama-2-7b"), {"dgx1-v100-32", 8, 31.75}, 1024);
  Strategy strategy = named_strategy("zero3", unfused(Precision::Bf16), 8);
  strategy.zero.sub_group_size = 100'000'000;
  OomFigures message;
  message.request = printed_gib(3.14);
  const OomExplanation said = explain_oom(message, experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::NotFound);
  EXPECT_THAT(said.request, HasSubstr("cuts such buffers at sub_group_size 100e6"));
}

TEST(ExplainOom, ARequestThatComesTooEarlyIsNotTheOne) {
  // 2 bytes x 124 439 808 of gpt2 are 237.35 MiB, the weights, at the beginning; 35 GiB were
  // allocated.
  const Experiment experiment = small();
  const Strategy strategy = named_strategy("zero1", {}, 2);
  OomFigures message = figures(0.2324, 35, 35, 0.1);
  const OomExplanation said = explain_oom(message, experiment, strategy);
  EXPECT_EQ(said.match, OomMatch::TooEarly);
  EXPECT_THAT(said.request, HasSubstr("another buffer of this size"));
  EXPECT_TRUE(said.simulated_fits);
  EXPECT_THAT(said.evidence, Contains(StartsWith("The simulated job fits: it allocates")));
}

TEST(ExplainOom, AShardedJobOfOneRankIsCalledSo) {
  Experiment experiment = small();
  experiment.cluster.gpus_per_node = 1;
  const OomExplanation said = explain_oom(OomFigures(), experiment, named_strategy("zero2", {}, 1));
  EXPECT_EQ(said.causes.front(), "no_sharding");
  EXPECT_TRUE(said.simulated_fits);
  EXPECT_THAT(said.ways_out, IsEmpty());
}

TEST(ExplainOom, FragmentationComesFirst) {
  const OomExplanation said =
      explain_oom(figures(0.5, 20, 38, 0.1), small(), named_strategy("zero1", {}, 2));
  EXPECT_EQ(said.causes.front(), "fragmentation");
  EXPECT_THAT(codes_of(said.ways_out), Contains("expandable_segments"));
  Experiment expandable = small();
  expandable.alloc_conf.expandable_segments = true;
  const OomExplanation already =
      explain_oom(figures(0.5, 20, 38, 0.1), expandable, named_strategy("zero1", {}, 2));
  EXPECT_THAT(codes_of(already.ways_out), testing::Not(Contains("expandable_segments")));
}

}  // namespace
}  // namespace zerosim
