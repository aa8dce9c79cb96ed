// Megatron-LM's own DDP: one reduction after the last backward of a step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;

Strategy megatron(Precision precision, std::int64_t accumulation = 1) {
  TrainingFlags flags;
  flags.precision = precision;
  flags.grad_accum = accumulation;
  return named_strategy("megatron_ddp", flags, 2);
}

/// What a class of memory holds between steps: of three parameters of 100, 20 and 3 elements.
Bytes held(const Program& program, MemoryClass memory_class) {
  Bytes sum;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    const bool temporary = buffer.owner == "gradient" || buffer.owner == "fp32_gradients";
    if (buffer.memory_class == memory_class && !temporary) sum += buffer.bytes;
  }
  return sum;
}

Model small() {
  return test::chain({100, 20, 3});
}

// bf16: gradients (2 bytes read) are added to an fp32 buffer (4 + 4 bytes): 10 bytes an element, as
// they arrive: 3, 20, 100. The buffer of 123 elements is cleared (492 bytes) in the first micro
// batch, and divided (984 bytes) in the last.
TEST(MegatronDdp, AddsEachGradientToOneBuffer) {
  const Program program = test::build(small(), megatron(Precision::Bf16, 2), 2);
  EXPECT_THAT(test::events(program, "Megatron", 0),
              ElementsAre("zero_gradient_buffer 492", "accumulate 30", "accumulate 200",
                          "accumulate 1000"));
  // The norm reads 4 bytes an element and the host waits for it; clipping reads and writes; the
  // update moves 28 bytes, the copy to weights 6.
  EXPECT_THAT(test::events(program, "Megatron", 1),
              ElementsAre("accumulate 30", "accumulate 200", "accumulate 1000", "average 984",
                          "gradient_norm 492", "wait", "clip 984", "adam_fused 3444",
                          "copy_to_weights 738"));
}

// One all-reduce of all gradients at the end of the last backward; the loss (one element) each
// micro batch.
TEST(MegatronDdp, ReducesOnceAfterTheLastBackward) {
  const Program program = test::build(small(), megatron(Precision::Bf16, 2), 2);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 1", "all_reduce 1", "all_reduce 123"));
  EXPECT_EQ(test::collectives(program, Phase::Backward)[2].dtype, Dtype::F32);
  const RankProgram& rank = program.ranks[0];
  bool reduced = false;
  for (const Op& op : rank.ops) {
    const bool computes = op.kind == OpKind::Kernel && op.phase == Phase::Backward;
    EXPECT_FALSE(computes && reduced);
    reduced |= op.kind == OpKind::Collective &&
               rank.collectives[static_cast<std::size_t>(op.payload)].input_elements == 123;
  }
  EXPECT_TRUE(reduced);
}

TEST(MegatronDdp, OneRankSendsNothing) {
  TrainingFlags flags;
  const Program program = test::build(small(), named_strategy("megatron_ddp", flags, 1), 1);
  EXPECT_TRUE(test::collectives(program, Phase::Backward).empty());
}

// fp16: gradients stay fp16 (2 bytes) and are copied to fp32 for the step; the scaler looks for
// infinities first.
TEST(MegatronDdp, Fp16ReducesInFp16AndUnscales) {
  const Program program = test::build(small(), megatron(Precision::Fp16), 2);
  EXPECT_EQ(test::collectives(program, Phase::Backward).back().dtype, Dtype::F16);
  EXPECT_THAT(
      test::events(program, "Megatron"),
      ElementsAre("zero_gradient_buffer 246", "accumulate 18", "accumulate 120", "accumulate 600",
                  "average 492", "copy_gradients 738", "unscale 984", "wait", "gradient_norm 492",
                  "wait", "clip 984", "adam_fused 3444", "copy_to_weights 738"));
}

// A parameter: 2 bytes of weight, 2 of gradient (fp16) or 4 (bf16), 4 + 8 of the optimizer; fp32:
// 4, 4 and 8. Of 123.
TEST(MegatronDdp, HoldsEverythingOnEveryRank) {
  const auto bytes = [](Precision precision, MemoryClass memory_class) {
    return held(test::build(small(), megatron(precision), 2), memory_class).count() / 123;
  };
  EXPECT_EQ(bytes(Precision::Fp16, MemoryClass::Parameters), 2);
  EXPECT_EQ(bytes(Precision::Fp16, MemoryClass::Gradients), 2);
  EXPECT_EQ(bytes(Precision::Fp16, MemoryClass::OptimizerStates), 12);
  EXPECT_EQ(bytes(Precision::Bf16, MemoryClass::Gradients), 4);
  EXPECT_EQ(bytes(Precision::Fp32, MemoryClass::Parameters), 4);
  EXPECT_EQ(bytes(Precision::Fp32, MemoryClass::Gradients), 4);
  EXPECT_EQ(bytes(Precision::Fp32, MemoryClass::OptimizerStates), 8);
}

// The step that overflows is checked and not taken.
TEST(MegatronDdp, AnOverflowUpdatesNothing) {
  Strategy strategy = megatron(Precision::Fp16);
  strategy.overflow_steps = 1;
  const Program program = test::build(small(), strategy, 2, 0, 1);
  for (const Kernel& kernel : program.ranks[0].kernels) {
    EXPECT_NE(kernel.name, "adam_fused");
    EXPECT_NE(kernel.name, "copy_to_weights");
  }
}

}  // namespace
}  // namespace zerosim
