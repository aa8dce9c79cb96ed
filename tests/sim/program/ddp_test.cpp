// DDP and stage 0: D1 and B1.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::int64_t kMiBElements = 1024 * 1024 / 4;  // of fp32

Strategy ddp() {
  Strategy strategy;
  strategy.name = "ddp";
  strategy.framework = Framework::Ddp;
  strategy.precision = Precision::Fp32;
  strategy.communication_dtype = Dtype::F32;
  return strategy;
}

// D1, worked example: gradients become ready with 0.5, 0.7, 10, 12, 8, 30, 3 MiB (fp32: 4 bytes an
// element).
Model worked_example() {
  std::vector<std::int64_t> elements;
  for (const double mib : {3.0, 30.0, 8.0, 12.0, 10.0, 0.7, 0.5}) {
    elements.push_back(static_cast<std::int64_t>(mib * kMiBElements));
  }
  return test::chain(elements);
}

/// 3 x 1 MiB, registered m0, m1, m2; gradients arrive m2, m1, m0: with limits of 1 and 25 MiB the
/// buckets [m2], [m1, m0], so a layout of 3 indices and 2 sizes.
Model three_mib() {
  return test::chain({kMiBElements, kMiBElements, kMiBElements});
}

/// "step.micro" or, for one micro batch a step, the same with micro 0.
struct Call {
  int step = 0, micro = 0;
  Phase phase = Phase::Init;
  Collective collective;
  std::string_view rule;
};

std::vector<Call> calls(const Program& program) {
  std::vector<Call> found;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Collective) {
      found.push_back({op.step, op.micro_step, op.phase,
                       program.ranks[0].collectives[static_cast<std::size_t>(op.payload)],
                       op.rule});
    }
  }
  return found;
}

/// "0.1 all_reduce 900" of each call under these rules.
std::vector<std::string> listed(const Program& program, const std::vector<std::string>& rules) {
  std::vector<std::string> lines;
  for (const Call& call : calls(program)) {
    if (std::find(rules.begin(), rules.end(), call.rule) == rules.end()) continue;
    lines.push_back(format("{}.{} {} {}", call.step, call.micro, to_string(call.collective.kind),
                           call.collective.input_elements));
  }
  return lines;
}

std::vector<double> gradient_mib(const Program& program) {
  std::vector<double> mib;
  for (const Call& call : calls(program)) {
    if (call.rule != "D1.4") continue;
    mib.push_back(static_cast<double>(collective_size(call.collective).count()) / (1024 * 1024));
  }
  return mib;
}

/// Names of the kernels, waits and collectives of one phase, in order; rules that start with "D1".
std::vector<std::string> events(const Program& program, Phase phase) {
  const RankProgram& rank = program.ranks[0];
  std::vector<std::string> names;
  for (const Op& op : rank.ops) {
    if (op.phase != phase || !op.rule.starts_with("D1")) continue;
    const auto payload = static_cast<std::size_t>(op.payload);
    switch (op.kind) {
      case OpKind::Kernel:
        names.emplace_back(rank.kernels[payload].name);
        break;
      case OpKind::Collective:
        names.push_back(format("{} {}", to_string(rank.collectives[payload].kind),
                               rank.collectives[payload].input_elements));
        break;
      case OpKind::StreamWait:
      case OpKind::HostWait:
      case OpKind::Copy:
        names.emplace_back(to_string(op.kind));
        break;
      default:
        break;
    }
  }
  return names;
}

/// Bytes of all buffers of one owner.
Bytes allocated(const Program& program, std::string_view owner) {
  Bytes sum;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == owner) sum += buffer.bytes;
  }
  return sum;
}

std::string refusal(const Model& model, const Strategy& strategy) {
  try {
    (void)test::build(model, strategy, 2);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// ---- buckets ----

TEST(Ddp, BucketsFollowArrivalAndCloseAtTheLimit) {
  const Program program = test::build(worked_example(), ddp(), 4);
  for (const Collective& c : test::collectives(program, Phase::Backward)) {
    EXPECT_TRUE(c.async);
    EXPECT_TRUE(c.recorded);
  }
  // [0.5, 0.7] reaches 1; [10, 12, 8] reaches 25; [30]; [3].
  EXPECT_THAT(gradient_mib(program), ElementsAre(testing::DoubleNear(1.2, 1e-5), 30, 30, 3));
}

// The example with bucket_cap_mb = 10. In 2.x it holds for the first bucket too: 0.5 + 0.7 + 10 =
// 11.2 >= 10; 12; 8 + 30 = 38; 3. In 1.13 the first closes at 1: 0.5 + 0.7; then 10; 12; 8 + 30; 3.
TEST(Ddp, TheFirstLimitFollowsTheVersionOfPyTorch) {
  Strategy strategy = ddp();
  strategy.ddp.bucket_cap_mib = strategy.ddp.first_bucket_mib = 10;
  EXPECT_THAT(gradient_mib(test::build(worked_example(), strategy, 4)),
              ElementsAre(testing::DoubleNear(11.2, 1e-5), 12, 38, 3));
  strategy.ddp.first_bucket_mib = 1;
  strategy.torch_version = "1.13";
  EXPECT_THAT(gradient_mib(test::build(worked_example(), strategy, 4)),
              ElementsAre(testing::DoubleNear(1.2, 1e-5), 10, 12, 38, 3));
}

// Limits are whole bytes, int(mib * 2^20): 1.5 bytes are 1, which each element of 4 bytes reaches.
TEST(Ddp, ATinyCapGivesABucketForEachTensor) {
  Strategy strategy = ddp();
  for (const double mib : {0.0, 1.5 / (1024 * 1024)}) {
    strategy.ddp.bucket_cap_mib = strategy.ddp.first_bucket_mib = mib;
    EXPECT_THAT(listed(test::build(test::chain({1, 2, 3}), strategy, 2), {"D1.4"}),
                ElementsAre("2.0 all_reduce 3", "2.0 all_reduce 2", "2.0 all_reduce 1"));
  }
}

// D1.1, D1.2: 7 parameters and 4 buckets.
TEST(Ddp, FirstIterationHasOneBucketAndTheSecondRebuilds) {
  const Program program = test::build(worked_example(), ddp(), 4, 0, 2);
  EXPECT_THAT(listed(program, {"D1.2"}), ElementsAre("1.0 broadcast 8", "1.0 broadcast 4"));
  std::vector<int> reductions(2, 0);
  for (const Call& call : calls(program)) {
    if (call.rule == "D1.2") {
      EXPECT_FALSE(call.collective.recorded);  // issued in C++
      EXPECT_EQ(call.collective.dtype, Dtype::I32);
      EXPECT_EQ(call.phase, Phase::Forward);
    } else {
      ++reductions[static_cast<std::size_t>(call.step)];
    }
  }
  EXPECT_THAT(reductions, ElementsAre(1, 4));
}

// The rebuild belongs to the forward that follows the first backward that synchronises.
TEST(Ddp, NoRebuildInALaterStepThanTheSecond) {
  EXPECT_THAT(listed(test::build(three_mib(), ddp(), 2, 1, 2), {"D1.2"}),
              ElementsAre("1.0 broadcast 4", "1.0 broadcast 2"));
  EXPECT_THAT(listed(test::build(three_mib(), ddp(), 2, 2, 2), {"D1.2"}), IsEmpty());
}

// D1.2: frozen parameters are none of the reducer's: 2 of 3.
TEST(Ddp, FrozenParametersAreNotInTheLayout) {
  Model model = three_mib();
  model.parameters[0].trainable = false;
  EXPECT_THAT(listed(test::build(model, ddp(), 2, 1, 1), {"D1.2"}),
              ElementsAre("1.0 broadcast 3", "1.0 broadcast 2"));
  for (Parameter& parameter : model.parameters) parameter.trainable = false;
  EXPECT_EQ(refusal(model, ddp()),
            "ddp: no parameter trains, which DistributedDataParallel refuses; expected at least "
            "one that requires a gradient");
}

TEST(Ddp, VolumeIs2Psi) {
  EXPECT_EQ(test::volume(test::build(worked_example(), ddp(), 4)),
            2 * parameter_count(worked_example()));
}

// ---- accumulation (D1.7) ----

TEST(Ddp, UnderNoSyncOnlyTheBoundaryReduces) {
  Strategy strategy = ddp();
  strategy.grad_accum = 4;
  EXPECT_THAT(listed(test::build(three_mib(), strategy, 4, 0, 2), {"D1.2", "D1.4"}),
              ElementsAre(format("0.3 all_reduce {}", 3 * kMiBElements), "1.0 broadcast 4",
                          "1.0 broadcast 2", format("1.3 all_reduce {}", kMiBElements),
                          format("1.3 all_reduce {}", 2 * kMiBElements)));
}

// Each micro batch reduces, so the second forward after a backward that synchronised is 0.1: one
// bucket in 0.0, then (limits 1 and 2 MiB) [1], [1 + 1].
TEST(Ddp, WithoutNoSyncEveryMicroBatchReduces) {
  Strategy strategy = ddp();
  strategy.grad_accum = 2;
  strategy.ddp.no_sync = false;
  strategy.ddp.bucket_cap_mib = 2;
  const std::string one = format("all_reduce {}", kMiBElements);
  const std::string two = format("all_reduce {}", 2 * kMiBElements);
  EXPECT_THAT(listed(test::build(three_mib(), strategy, 4, 0, 2), {"D1.2", "D1.4"}),
              ElementsAre(format("0.0 all_reduce {}", 3 * kMiBElements), "0.1 broadcast 4",
                          "0.1 broadcast 2", "0.1 " + one, "0.1 " + two, "1.0 " + one, "1.0 " + two,
                          "1.1 " + one, "1.1 " + two));
}

// ---- static_graph (rule 60) ----

TEST(Ddp, AStaticGraphRebuildsOneIterationLater) {
  Strategy strategy = ddp();
  strategy.ddp.static_graph = true;
  EXPECT_THAT(listed(test::build(three_mib(), strategy, 4, 0, 4), {"D1.2"}),
              ElementsAre("2.0 broadcast 4", "2.0 broadcast 2"));
  EXPECT_THAT(listed(test::build(three_mib(), strategy, 4, 2, 1), {"D1.2"}),
              ElementsAre("2.0 broadcast 4", "2.0 broadcast 2"));
  EXPECT_THAT(listed(test::build(three_mib(), strategy, 4, 3, 1), {"D1.2"}), IsEmpty());
}

// Its first iteration counts hooks; then it reduces which were called (3 parameters), copies and
// reduces. All are used: the host reads no map.
TEST(Ddp, AStaticGraphReducesLateInItsFirstIteration) {
  Strategy strategy = ddp();
  strategy.ddp.static_graph = true;
  EXPECT_THAT(events(test::build(three_mib(), strategy, 4, 0, 1), Phase::Backward),
              ElementsAre("copy", "all_reduce 3", "copy_to_bucket", "copy_to_bucket",
                          "copy_to_bucket", format("all_reduce {}", 3 * kMiBElements),
                          "stream_wait", "copy_from_bucket", "stream_wait"));
}

// DistributedDataParallel warns and the static graph wins: one bucket at first, a rebuild.
TEST(Ddp, AStaticGraphLooksForUnusedParametersItself) {
  Strategy strategy = ddp();
  strategy.ddp.static_graph = strategy.ddp.find_unused_parameters = true;
  const Program program = test::build(three_mib(), strategy, 4, 2, 1);
  EXPECT_THAT(listed(program, {"D1.2"}), ElementsAre("2.0 broadcast 4", "2.0 broadcast 2"));
  EXPECT_THAT(program.assumptions,
              Contains(HasSubstr("find_unused_parameters has no effect with static_graph")));
}

// ---- find_unused_parameters (D1.1) ----

// Filled in order of registration (1 MiB, then 2 MiB): [m0], [m1, m2]; launched in reverse. Never
// rebuilt; one i32 for each of 3 parameters after the last bucket.
TEST(Ddp, FindUnusedHasLimitsFromTheStartAndKeepsThem) {
  Strategy strategy = ddp();
  strategy.ddp.find_unused_parameters = true;
  strategy.ddp.bucket_cap_mib = 2;
  for (const int step : {0, 1, 2}) {
    const Program program = test::build(three_mib(), strategy, 4, step, 1);
    EXPECT_THAT(
        events(program, Phase::Backward),
        ElementsAre("copy_to_bucket", "copy_to_bucket", format("all_reduce {}", 2 * kMiBElements),
                    "copy_to_bucket", format("all_reduce {}", kMiBElements), "copy", "all_reduce 3",
                    "stream_wait", "copy_from_bucket", "stream_wait", "copy_from_bucket",
                    "stream_wait"));
    EXPECT_THAT(listed(program, {"D1.2"}), IsEmpty());
    const Collective map = calls(program).back().collective;
    EXPECT_EQ(map.dtype, Dtype::I32);
    EXPECT_FALSE(map.recorded);
  }
}

/// m1 of three is an expert that no token reaches.
Model idle_second() {
  Model model = three_mib();
  model.operators[1].gradients.clear();
  return model;
}

// The idle parameter is ready at the first hook, as zeros. Its bucket [m1, m2] goes when m2 is
// there; then [m0]. The host reads the map (copy, wait) at the first bucket with an idle one, of
// which nothing is copied back.
TEST(Ddp, IdleParametersAreReadyFirstAndTheHostReadsTheMap) {
  Strategy strategy = ddp();
  strategy.ddp.find_unused_parameters = true;
  strategy.ddp.bucket_cap_mib = 2;
  const std::vector<std::string> expected = {"zero_bucket",
                                             "copy_to_bucket",
                                             format("all_reduce {}", 2 * kMiBElements),
                                             "copy_to_bucket",
                                             format("all_reduce {}", kMiBElements),
                                             "copy",
                                             "all_reduce 3",
                                             "stream_wait",
                                             "stream_wait",
                                             "copy",
                                             "host_wait",
                                             "copy_from_bucket",
                                             "stream_wait",
                                             "copy_from_bucket"};
  const Program program = test::build(idle_second(), strategy, 4);
  EXPECT_EQ(events(program, Phase::Backward), expected);
  EXPECT_THAT(program.assumptions, Not(Contains(HasSubstr("find_unused_parameters"))));
}

// Without the option PyTorch stops in the second iteration: built as with it.
TEST(Ddp, IdleParametersWithoutFindUnusedAreAnAssumption) {
  Strategy strategy = ddp();
  strategy.ddp.bucket_cap_mib = 2;
  const Program program = test::build(idle_second(), strategy, 4);
  EXPECT_THAT(listed(program, {"D1.1", "D1.4"}),
              ElementsAre(format("2.0 all_reduce {}", 2 * kMiBElements),
                          format("2.0 all_reduce {}", kMiBElements), "2.0 all_reduce 3"));
  EXPECT_THAT(program.assumptions,
              Contains("find_unused_parameters taken as true: 1 trainable parameters get no "
                       "gradient (m1.weight is the first), with which DistributedDataParallel "
                       "stops in its second iteration (D1.1)"));
}

// ---- types ----

// A model cast to bf16: 2 bytes an element, so limits hold twice the elements (rule 62), and
// weights, moments (2 tensors), buckets and gradients are half as large; no copies by autocast.
TEST(Ddp, ACastModelIsOfOneType) {
  Strategy strategy = ddp();
  strategy.precision = Precision::Bf16;
  strategy.ddp.parameter_dtype = Dtype::Bf16;
  const Model model = test::chain({kMiBElements, kMiBElements, kMiBElements, kMiBElements});
  const Program program = test::build(model, strategy, 4);
  EXPECT_THAT(listed(program, {"D1.4"}),
              ElementsAre(format("2.0 all_reduce {}", 2 * kMiBElements),
                          format("2.0 all_reduce {}", 2 * kMiBElements)));
  for (const Call& call : calls(program)) EXPECT_EQ(call.collective.dtype, Dtype::Bf16);
  const Bytes psi(4 * kMiBElements);
  EXPECT_EQ(allocated(program, "parameters"), psi * 2);
  EXPECT_EQ(allocated(program, "exp_avg"), psi * 2);
  EXPECT_EQ(allocated(program, "exp_avg_sq"), psi * 2);
  EXPECT_EQ(allocated(program, "ddp_bucket"), psi * 2);
  EXPECT_EQ(allocated(program, "gradient"), psi * 2);
  EXPECT_EQ(program.parameter_bytes, psi * 2);
  // Fused: weight and two moments read and written, gradient read: 7 x 2 bytes.
  const std::vector<Kernel>& kernels = program.ranks[0].kernels;
  const auto adam = std::find_if(kernels.begin(), kernels.end(),
                                 [](const Kernel& kernel) { return kernel.name == "adam_fused"; });
  ASSERT_NE(adam, kernels.end());
  EXPECT_EQ(adam->bytes, psi * 14);
}

TEST(Ddp, OnlyAutocastCopiesWeights) {
  const Model model = test::llama({128, 352, 64, 1000, 1, 32});
  Strategy strategy = ddp();
  strategy.precision = Precision::Bf16;
  EXPECT_GT(allocated(test::build(model, strategy, 2), "autocast_weight").count(), 0);
  strategy.ddp.parameter_dtype = Dtype::Bf16;
  EXPECT_EQ(allocated(test::build(model, strategy, 2), "autocast_weight").count(), 0);
}

// GradScaler refuses fp16 gradients: it is not there for a model cast to fp16.
TEST(Ddp, GradScalerNeedsFp32Gradients) {
  Strategy strategy = ddp();
  strategy.precision = Precision::Fp16;
  const auto unscales = [&] {
    const Program program = test::build(three_mib(), strategy, 2);
    const std::vector<Kernel>& kernels = program.ranks[0].kernels;
    return std::count_if(kernels.begin(), kernels.end(),
                         [](const Kernel& kernel) { return kernel.name == "unscale"; });
  };
  EXPECT_EQ(unscales(), 1);
  strategy.ddp.parameter_dtype = Dtype::F16;
  EXPECT_EQ(unscales(), 0);
}

// The first two steps overflow: moments come with the first update, in step 2.
TEST(Ddp, OverflowStepsUpdateNothing) {
  Strategy strategy = ddp();
  strategy.precision = Precision::Fp16;
  BatchShape batch;
  batch.sequence = 16;
  BuildOptions options{2, 0, 3};
  strategy.overflow_steps = 2;
  const Program program = build_program(three_mib(), strategy, batch, options);
  std::vector<int> steps;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Kernel &&
        program.ranks[0].kernels[static_cast<std::size_t>(op.payload)].name == "adam_fused") {
      steps.push_back(op.step);
    }
  }
  EXPECT_THAT(steps, ElementsAre(2));
}

// ---- order and memory (D1.4 to D1.6) ----

// 3 MiB in buckets [1], [1 + 1]: each gradient is copied as it arrives; a full bucket goes at once;
// at the end the compute stream waits for each in order and copies back.
TEST(Ddp, CopiesLaunchesAndWaitsAreInOrder) {
  Strategy strategy = ddp();
  strategy.ddp.bucket_cap_mib = 2;
  EXPECT_THAT(events(test::build(three_mib(), strategy, 4), Phase::Backward),
              ElementsAre("copy_to_bucket", format("all_reduce {}", kMiBElements), "copy_to_bucket",
                          "copy_to_bucket", format("all_reduce {}", 2 * kMiBElements),
                          "stream_wait", "copy_from_bucket", "stream_wait", "copy_from_bucket"));
}

// A gradient of its own becomes a view by being copied into the bucket. PyTorch 2 forgets it after
// the step; in 1.13 it stays the view, is added to and divided in place.
TEST(Ddp, ViewsAreDividedInPlaceAndNotCopiedBack) {
  Strategy strategy = ddp();
  strategy.ddp.gradient_as_bucket_view = true;
  const Model model = test::chain({kMiBElements});
  const std::string reduce = format("all_reduce {}", kMiBElements);
  EXPECT_THAT(events(test::build(model, strategy, 4), Phase::Backward),
              ElementsAre("copy_to_bucket", reduce, "stream_wait"));
  strategy.torch_version = "1.13";
  EXPECT_THAT(events(test::build(model, strategy, 4), Phase::Backward),
              ElementsAre("accumulate", "divide", reduce, "stream_wait"));
  EXPECT_THAT(events(test::build(model, strategy, 4, 0, 1), Phase::Backward),
              ElementsAre("copy_to_bucket", reduce, "stream_wait"));
}

// Micro batch 0 makes views, micro batch 1 adds to them in place.
TEST(Ddp, WithoutNoSyncTheSecondMicroBatchAddsToTheViews) {
  Strategy strategy = ddp();
  strategy.ddp.gradient_as_bucket_view = true;
  strategy.ddp.no_sync = false;
  strategy.grad_accum = 2;
  const std::string reduce = format("all_reduce {}", kMiBElements);
  EXPECT_THAT(events(test::build(test::chain({kMiBElements}), strategy, 4), Phase::Backward),
              ElementsAre("copy_to_bucket", reduce, "stream_wait", "accumulate", "divide", reduce,
                          "stream_wait"));
}

/// Largest sum of what lives at once of some owners.
Bytes peak(const Program& program, const std::vector<std::string>& owners) {
  const RankProgram& rank = program.ranks[0];
  Bytes now;
  Bytes most;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
    if (std::find(owners.begin(), owners.end(), buffer.owner) == owners.end()) continue;
    now = op.kind == OpKind::Allocate ? now + buffer.bytes : now - buffer.bytes;
    most = std::max(most, now);
  }
  return most;
}

// D1.6, 3 MiB of gradients: buckets 3 MiB, twice that in iteration 2 alone; gradients another 3
// MiB, and as views one tensor (1 MiB) at a time.
TEST(Ddp, BucketsComeOnTopOfGradients) {
  Strategy strategy = ddp();
  EXPECT_EQ(peak(test::build(three_mib(), strategy, 4, 0, 1), {"ddp_bucket"}), 3_MiB);
  EXPECT_EQ(peak(test::build(three_mib(), strategy, 4, 1, 1), {"ddp_bucket"}), 6_MiB);
  EXPECT_EQ(peak(test::build(three_mib(), strategy, 4, 2, 1), {"ddp_bucket"}), 3_MiB);
  EXPECT_EQ(peak(test::build(three_mib(), strategy, 4), {"ddp_bucket", "gradient"}), 6_MiB);
  strategy.ddp.gradient_as_bucket_view = true;
  EXPECT_EQ(peak(test::build(three_mib(), strategy, 4), {"ddp_bucket", "gradient"}), 4_MiB);
}

// zero_grad of 1.13 fills with zeros: the gradients of the last step are there in this one, beside
// the one that arrives.
TEST(Ddp, GradientsOfPyTorch113Stay) {
  Strategy strategy = ddp();
  strategy.torch_version = "1.13";
  const Program program = test::build(three_mib(), strategy, 4);
  EXPECT_EQ(peak(program, {"gradient"}), 4_MiB);
  EXPECT_THAT(events(program, Phase::Step), ElementsAre("zero_gradients"));
  EXPECT_THAT(program.assumptions, Contains(HasSubstr("gradients are zeroed")));
  EXPECT_THAT(events(test::build(three_mib(), ddp(), 4), Phase::Step), IsEmpty());
}

// ---- module buffers (D1.7) ----

/// Two fp32 buffers (10 and 6 elements) and one of i64 (5).
Model with_buffers() {
  Model model = three_mib();
  model.buffers = {{ModuleId(1), "inv_freq", 10, Dtype::F32},
                   {ModuleId(2), "position_ids", 5, Dtype::I64},
                   {ModuleId(3), "inv_freq", 6, Dtype::F32}};
  return model;
}

std::vector<std::string> broadcasts(const Strategy& strategy, int first_step, int steps) {
  const Program program = test::build(with_buffers(), strategy, 4, first_step, steps);
  std::vector<std::string> lines;
  for (const Call& call : calls(program)) {
    if (call.rule != "D1.7") continue;
    EXPECT_FALSE(call.collective.recorded);
    EXPECT_EQ(call.collective.root, 0);
    EXPECT_EQ(call.phase, Phase::Forward);
    lines.push_back(format("{}.{} {} {}", call.step, call.micro, call.collective.input_elements,
                           to_string(call.collective.dtype)));
  }
  return lines;
}

TEST(Ddp, EachForwardBroadcastsBuffersByType) {
  EXPECT_THAT(broadcasts(ddp(), 2, 2),
              ElementsAre("2.0 16 f32", "2.0 5 i64", "3.0 16 f32", "3.0 5 i64"));
  EXPECT_THAT(test::build(with_buffers(), ddp(), 4).assumptions,
              Contains(HasSubstr("transformers 4.57")));
  Strategy without = ddp();
  without.ddp.broadcast_buffers = false;
  EXPECT_THAT(broadcasts(without, 2, 1), IsEmpty());
}

// The forward after one under no_sync does not, be it the boundary's own.
TEST(Ddp, UnderNoSyncBuffersAreBroadcastOnceAWindow) {
  Strategy strategy = ddp();
  strategy.grad_accum = 3;
  EXPECT_THAT(broadcasts(strategy, 0, 2),
              ElementsAre("0.0 16 f32", "0.0 5 i64", "1.0 16 f32", "1.0 5 i64"));
  strategy.ddp.no_sync = false;
  EXPECT_THAT(broadcasts(strategy, 2, 1), ElementsAre("2.0 16 f32", "2.0 5 i64", "2.1 16 f32",
                                                      "2.1 5 i64", "2.2 16 f32", "2.2 5 i64"));
}

TEST(Ddp, ACastModelHasCastBuffers) {
  Strategy strategy = ddp();
  strategy.precision = Precision::Bf16;
  strategy.ddp.parameter_dtype = Dtype::Bf16;
  EXPECT_THAT(broadcasts(strategy, 2, 1),
              testing::UnorderedElementsAre("2.0 16 bf16", "2.0 5 i64"));
}

// Buckets of 250 MiB, closed once reached: 200 + 100 MiB, 260, 1. Several are put together and
// taken apart; one alone is not put together. Two are in flight, so the first ends before the
// third starts.
TEST(Ddp, LargeBuffersGoInBucketsTwoAtATime) {
  Model model = three_mib();
  constexpr std::int64_t kMiB = 1024 * 1024;
  for (const std::int64_t mib : {200, 100, 260, 1}) {
    model.buffers.push_back({ModuleId(1), format("bias{}", mib), mib * kMiB, Dtype::U8});
  }
  EXPECT_THAT(events(test::build(model, ddp(), 4), Phase::Forward),
              ElementsAre("flatten_buffers", format("broadcast {}", 300 * kMiB),
                          format("broadcast {}", 260 * kMiB), "stream_wait", "copy_to_buffers",
                          format("broadcast {}", kMiB), "stream_wait", "copy_to_buffers",
                          "stream_wait", "copy_to_buffers"));
}

TEST(Single, RunsOnOneGpuOnly) {
  Strategy strategy = ddp();
  strategy.name = "single";
  strategy.framework = Framework::Single;
  EXPECT_EQ(test::volume(test::build(with_buffers(), strategy, 1)), 0);
  EXPECT_EQ(refusal(worked_example(), strategy), "strategy \"single\" runs on one GPU, not on 2");
}

// B1.3: nothing during backward; one bucket of 5e8 elements at the boundary, in blocking form. In
// the step bf16 sends nothing, fp32 one element for clipping (deepspeed_recorded.md, stage 0).
TEST(Zero0, ReducesOnceAfterBackward) {
  const Model model = test::chain({300000000, 300000000, 100});
  Strategy strategy = test::deepspeed(0);
  const Program program = test::build(model, strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 600000000", "all_reduce 100"));
  EXPECT_TRUE(test::collectives(program, Phase::Step).empty());

  strategy.precision = Precision::Fp32;
  strategy.communication_dtype = strategy.grad_accum_dtype = Dtype::F32;
  EXPECT_THAT(test::summary(test::collectives(test::build(model, strategy, 4), Phase::Step)),
              ElementsAre("all_reduce 1"));
}

}  // namespace
}  // namespace zerosim
