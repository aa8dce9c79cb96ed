// DDP and stage 0: D1 and B1.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;

Strategy ddp() {
  Strategy strategy;
  strategy.name = "ddp";
  strategy.framework = Framework::Ddp;
  strategy.communication_dtype = Dtype::F32;
  return strategy;
}

// D1, worked example: gradients become ready with 0.5, 0.7, 10, 12, 8, 30, 3 MiB (fp32: 4 bytes an
// element).
Model worked_example() {
  std::vector<std::int64_t> elements;
  for (const double mib : {3.0, 30.0, 8.0, 12.0, 10.0, 0.7, 0.5}) {
    elements.push_back(static_cast<std::int64_t>(mib * 1024 * 1024 / 4));
  }
  return test::chain(elements);
}

TEST(Ddp, BucketsFollowArrivalAndCloseAtTheLimit) {
  const Program program = test::build(worked_example(), ddp(), 4);
  std::vector<double> mib;
  for (const Collective& c : test::collectives(program, Phase::Backward)) {
    EXPECT_TRUE(c.async);
    mib.push_back(static_cast<double>(collective_size(c).count()) / (1024 * 1024));
  }
  // [0.5, 0.7] reaches 1; [10, 12, 8] reaches 25; [30]; [3].
  EXPECT_THAT(mib, ElementsAre(testing::DoubleNear(1.2, 1e-5), 30, 30, 3));
}

TEST(Ddp, FirstIterationHasOneBucketAndTheSecondRebuilds) {
  const Program program = test::build(worked_example(), ddp(), 4, 0, 2);
  std::vector<int> calls(2, 0);
  int broadcasts = 0;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Collective) {
      const Collective& c = program.ranks[0].collectives[static_cast<std::size_t>(op.payload)];
      if (c.kind == CollectiveKind::Broadcast) {
        ++broadcasts;
        EXPECT_FALSE(c.recorded);  // issued in C++ (D1.2)
        EXPECT_EQ(op.step, 1);
      } else {
        ++calls[static_cast<std::size_t>(op.step)];
      }
    }
  }
  EXPECT_THAT(calls, ElementsAre(1, 4));
  EXPECT_EQ(broadcasts, 2);
}

TEST(Ddp, AccumulationReducesAtTheBoundaryOnly) {  // D1.7
  Strategy strategy = ddp();
  strategy.grad_accum = 4;
  EXPECT_EQ(test::collectives(test::build(worked_example(), strategy, 4), Phase::Backward).size(),
            4u);
}

TEST(Ddp, VolumeIs2Psi) {
  EXPECT_EQ(test::volume(test::build(worked_example(), ddp(), 4)),
            2 * parameter_count(worked_example()));
}

TEST(Single, RunsOnOneGpuOnly) {
  Strategy strategy = ddp();
  strategy.name = "single";
  strategy.framework = Framework::Single;
  EXPECT_EQ(test::volume(test::build(worked_example(), strategy, 1)), 0);
  try {
    (void)test::build(worked_example(), strategy, 2);
    FAIL() << "expected an error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "strategy \"single\" runs on one GPU, not on 2");
  }
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
