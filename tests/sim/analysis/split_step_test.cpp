#include <random>

#include <gtest/gtest.h>

#include "sim/analysis/report.h"
#include "tests/sim/analysis/handmade.h"

namespace zerosim {
namespace {

using testing::HandMade;

constexpr double kExact = 1e-12;

double sum(const TimeReport& time) {
  return (time.compute + time.exposed_communication + time.host + time.optimizer).count();
}

TEST(SplitStep, KernelsWithTheirLaunchGapsAndTheHostBeforeThem) {
  // host:     0 ---------- 3 . 4        (works 0 to 3: the kernel is issued at 3)
  // compute:               3 gap 4 ===== 9 | optimizer 9 === 11
  HandMade run(2);
  run.host_work(0, 3);
  run.kernel(kComputeStream, 3, 3, 4, 9);
  run.at(0, 0, Phase::Step);
  run.compute(4, 9, 11, KernelClass::Optimizer);
  run.steps({11});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.step.count(), 11, kExact);
  EXPECT_NEAR(time.host.count(), 3, kExact);
  EXPECT_NEAR(time.compute.count(), 6, kExact);  // 3 to 9, gap included
  EXPECT_NEAR(time.optimizer.count(), 2, kExact);
  EXPECT_NEAR(time.exposed_communication.count(), 0, kExact);
  EXPECT_NEAR(time.communication.count(), 0, kExact);
}

// The CPU's update counts as optimizer, with the copy of the weights; other host work does not, nor
// does a pass outside the step (B6.3).
TEST(SplitStep, AnUpdateOnTheHostIsOptimizer) {
  // host:     0 = 1 pass (bwd)  1 == 3 works   3 ====== 9 pass   (the copy is issued at 9)
  // compute:                                             9 == 11 copy
  HandMade run(2);
  run.at(0, 0, Phase::Backward);
  run.host_pass(0, 1);
  run.at(0, 0, Phase::Step);
  run.host_work(1, 3);
  run.host_pass(3, 9);
  run.copy(9, 11);
  run.steps({11});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.optimizer.count(), 6 + 2, kExact);
  EXPECT_NEAR(time.host.count(), 1 + 2, kExact);
  EXPECT_NEAR(time.compute.count(), 0, kExact);
  EXPECT_NEAR(sum(time), 11, kExact);
}

TEST(SplitStep, GatherThatComputeWaitsForIsExposed) {
  // compute:    0 ==== 2 . . . . . . 7 ==== 10     the second kernel needs the gather's copy-out
  // WORLD:         1 ========= 6
  // side:                      6 = 7               the copy-out serves communication
  HandMade run(2);
  run.compute(0, 0, 2);
  const OpId gather = run.all_gather(1, 1, 6);
  run.stream_wait(run.side(), gather);
  const OpId copy_out = run.kernel(run.side(), 1, 6, 6, 7);
  run.stream_wait(kComputeStream, copy_out);
  run.compute(1, 7, 10);
  run.steps({10});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.compute.count(), 2 + 3, kExact);
  EXPECT_NEAR(time.exposed_communication.count(), 5, kExact);  // 2 to 7
  EXPECT_NEAR(time.host.count(), 0, kExact);
  EXPECT_NEAR(time.communication.count(), 5, kExact);  // 1 to 6
}

TEST(SplitStep, WaitForTheGatherThenForTheHost) {
  // WORLD:      0 ======= 4
  // host:       0 = 1 (wait issued)      1 ========= 6 (kernel issued)
  // compute:    . . . . . 4 . . . . . .  6 === 8
  // 0 to 1: the wait is not issued and the host works -> host. 1 to 4: gather. 4 to 6: host.
  HandMade run(2);
  const OpId gather = run.all_gather(0, 0, 4);
  run.host_work(0, 1);
  run.stream_wait(kComputeStream, gather);
  run.host_work(1, 6);
  run.compute(6, 6, 8);
  run.steps({8});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.host.count(), 1 + 2, kExact);
  EXPECT_NEAR(time.exposed_communication.count(), 3, kExact);
  EXPECT_NEAR(time.compute.count(), 2, kExact);
}

TEST(SplitStep, HostBlockedOnACollective) {
  // compute:    0 == 2 . . . . 5 . 6 === 7
  // WORLD:           2 ======= 5
  // host:         1 (waits) == 5 = 6            the kernel is issued at 6
  HandMade run(2);
  run.compute(0, 0, 2);
  const OpId gather = run.all_gather(1, 2, 5);
  run.host_wait(gather, 1, 5);
  run.host_work(5, 6);
  run.compute(6, 6, 7);
  run.steps({7});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.compute.count(), 2 + 1, kExact);
  EXPECT_NEAR(time.exposed_communication.count(), 3, kExact);  // 2 to 5
  EXPECT_NEAR(time.host.count(), 1, kExact);
}

TEST(SplitStep, OneRankWaitsForNobody) {
  // As GatherThatComputeWaitsForIsExposed, but with one rank: a side stream is the program's own
  // doing.
  HandMade run(1);
  run.compute(0, 0, 2);
  const OpId gather = run.all_gather(1, 1, 6);
  run.stream_wait(run.side(), gather);
  const OpId copy_out = run.kernel(run.side(), 1, 6, 6, 7);
  run.stream_wait(kComputeStream, copy_out);
  run.compute(1, 7, 10);
  run.steps({10});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.host.count(), 5, kExact);
  EXPECT_NEAR(time.exposed_communication.count(), 0, kExact);
  EXPECT_NEAR(time.communication.count(), 0, kExact);
}

TEST(SplitStep, TailAfterTheLastKernel) {
  // compute:    0 == 2
  // WORLD:           2 == 3     4 == 6     the host is done at 0; 3 to 4 nothing happens
  HandMade run(2);
  run.compute(0, 0, 2);
  run.all_gather(0, 2, 3);
  run.all_gather(0, 4, 6);
  run.steps({6});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.compute.count(), 2, kExact);
  EXPECT_NEAR(time.exposed_communication.count(), 1 + 2, kExact);
  EXPECT_NEAR(time.host.count(), 1, kExact);
  EXPECT_NEAR(time.communication.count(), 1 + 2, kExact);
}

TEST(SplitStep, OnlyTheLastStepCounts) {
  // Step 0 ends at 5, step 1 at 9; a gather of step 0 reaches into step 1's time: 4 to 6.
  HandMade run(2);
  run.compute(0, 0, 4);
  run.all_gather(0, 4, 6);
  run.host_work(1, 5);
  run.at(1, 0, Phase::Forward);
  run.compute(1, 6, 9);
  run.steps({5, 9});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.step.count(), 4, kExact);
  EXPECT_NEAR(time.compute.count(), 3, kExact);
  EXPECT_NEAR(time.communication.count(), 1, kExact);  // 5 to 6
  EXPECT_NEAR(sum(time), time.step.count(), kExact);
}

TEST(SplitStep, ForwardAndBackwardAreAveragesOverMicroBatches) {
  // micro batch 0: forward 0 to 3, host included; backward 3 to 8. The host synchronises and works
  // until 9. Micro batch 1: forward 8 to 13 (its first kernel comes at 9), backward 13 to 20.
  HandMade run(1);
  run.host_work(0, 1);
  run.compute(1, 1, 3);
  run.at(0, 0, Phase::Backward);
  const OpId last = run.compute(1, 3, 8);
  run.at(0, 0, Phase::Step);
  run.host_wait(last, 1, 8);
  run.at(0, 1, Phase::Forward);
  run.host_work(8, 9);
  run.compute(9, 9, 13);
  run.at(0, 1, Phase::Backward);
  run.compute(9, 13, 20);
  run.at(0, 1, Phase::Step);
  run.compute(9, 20, 21, KernelClass::Optimizer);
  run.steps({21});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.forward.count(), (3.0 + 5.0) / 2, kExact);
  EXPECT_NEAR(time.backward.count(), (5.0 + 7.0) / 2, kExact);
}

TEST(SplitStep, CoalescedCallsLetGoTogether) {
  // Two calls in one NCCL group share 0 to 4 out (0 to 1, 1 to 4); a kernel that needs the first
  // one starts at 4 all the same.
  HandMade run(2);
  const OpId first = run.all_gather(0, 0, 1);
  run.all_gather(0, 1, 4);
  run.stream_wait(kComputeStream, first);
  run.compute(0, 4, 5);
  run.steps({5});
  Program program = run.program();
  for (Collective& call : program.ranks[0].collectives) call.coalesced = 7;
  const TimeReport time = split_step(program, run.timeline());
  EXPECT_NEAR(time.exposed_communication.count(), 4, kExact);
  EXPECT_NEAR(time.compute.count(), 1, kExact);
}

/// Random timelines that obey the engine's rules: streams and communicator are FIFO, an operation
/// is ready when issued and when its dependencies have ended.
class RandomTimeline : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomTimeline, PartsSumToTheStep) {
  std::mt19937_64 random(GetParam());
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto duration = [&] { return 1e-6 * static_cast<double>(1 + below(1000)); };
  HandMade run(below(2) == 0 ? 1 : 4);
  double host = 0;
  double compute = 0;
  double communicator = 0;
  double end = 0;
  double busy = 0;
  double communication = 0;
  for (int i = 0; i < 500; ++i) {
    const double work = duration();
    run.host_work(host, host + work);
    host += work;
    if (below(3) == 0) {
      const double start = std::max({host, compute, communicator});
      communicator = start + duration();
      const OpId gather = run.all_gather(host, start, communicator);
      communication += communicator - start;
      if (below(2) == 0) {
        run.stream_wait(kComputeStream, gather);
        compute = std::max({compute, host, communicator});
      }
      if (below(4) == 0 && communicator > host) {
        run.host_wait(gather, host, communicator);
        host = communicator;
      }
    } else {
      const double ready = std::max(host, compute);
      const double gap = duration() / 100;
      compute = ready + gap + duration();
      run.kernel(kComputeStream, host, ready, ready + gap, compute,
                 below(5) == 0 ? KernelClass::Optimizer : KernelClass::Memory);
      busy += compute - ready;
    }
    end = std::max({end, host, compute, communicator});
  }
  run.steps({end});
  const TimeReport time = split_step(run.program(), run.timeline());
  EXPECT_NEAR(time.step.count(), end, kExact);
  EXPECT_NEAR(sum(time), time.step.count(), kExact);
  EXPECT_NEAR((time.compute + time.optimizer).count(), busy, 1e-9);
  EXPECT_GE(time.host.count(), -kExact);
  EXPECT_GE(time.exposed_communication.count(), -kExact);
  if (run.program().world_size == 1) {
    EXPECT_EQ(time.exposed_communication.count(), 0);
  } else {
    EXPECT_NEAR(time.communication.count(), communication, 1e-9);
    EXPECT_LE(time.exposed_communication, time.communication + Seconds(kExact));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomTimeline, ::testing::Range(0U, 50U));

}  // namespace
}  // namespace zerosim
