// What each host synchronisation and throttle of the frameworks costs (rules 0.7, B3.5, B3.6, B1.5,
// B4.4, B6.2, C4.4, C6.5, C6.7, C8.5, D1.2), in cases small enough to work out: real Programs of a
// chain of modules on a machine where only what a test names takes time.
//
// Seconds throughout. "without": the same Program with the waits of one rule taken out, or the
// option that switches them off.

#include <functional>
#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/sim/engine/engine_test_support.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim::testing {
namespace {

constexpr std::string_view kBackward = "rms_norm_gradient";  // of a module of test::chain

struct Costs {
  HostTimes host{};
  std::map<std::string_view, double> kernels;  ///< by name; others take no time
  /// Messages of so many elements (input) last so long; others take no time.
  std::map<std::int64_t, double> messages;
};

EngineOptions options_of(const Costs& costs) {
  EngineOptions options = options_of(Figures{});
  options.host = costs.host;
  options.host.launch_queue_depth = 1 << 20;
  options.kernel_time = [costs](const Kernel& kernel) {
    const auto found = costs.kernels.find(kernel.name);
    return KernelTime{Seconds(found == costs.kernels.end() ? 0 : found->second), Seconds(0),
                      Bytes()};
  };
  options.collective_cost = [costs](const Collective& call, const ProcessGroup&) {
    CollectiveCost cost;
    const auto found = costs.messages.find(call.input_elements);
    cost.delay = Seconds(found == costs.messages.end() ? 0 : found->second);
    return cost;
  };
  return options;
}

/// End of the programs, one after another on one engine, against `expected`.
void expect_ends(const std::vector<Program>& programs, const Costs& costs,
                 const std::vector<double>& expected) {
  isolated([&] {
    Engine engine(test_cluster(), options_of(costs));
    for (std::size_t i = 0; i < programs.size(); ++i) {
      EXPECT_NEAR(engine.run(programs[i]).end.count(), expected[i], 1e-9) << "program " << i;
    }
  });
}

/// Waits of `rule` wait for nothing: those of the host, or those of the compute stream.
Program without(Program program, OpKind kind, std::string_view rule) {
  int found = 0;
  for (Op& op : program.ranks[0].ops) {
    if (op.kind == kind && op.rule == rule &&
        (kind == OpKind::HostWait || op.stream == kComputeStream)) {
      op.dependency_count = 0;
      ++found;
    }
  }
  EXPECT_GT(found, 0) << rule;
  return program;
}

/// No throughput timer, so that only the wait under test is there.
Strategy strategy_of(int stage) {
  Strategy strategy = test::deepspeed(stage);
  strategy.throughput_timer = false;
  return strategy;
}

/// One rank in fp32 with two micro batches: nothing is sent and no master weights are checked.
Strategy alone_in_fp32() {
  Strategy strategy = strategy_of(0);
  strategy.precision = Precision::Fp32;
  strategy.communication_dtype = strategy.grad_accum_dtype = Dtype::F32;
  strategy.grad_accum = 2;
  return strategy;
}

// 0.7. A micro batch: 2 module calls of 1 on the host (root and module), then backward of 5 on the
// device.
//   without: host 0-2, 2-4; device 2-7, 7-12.
//   with:    the host waits at 7 and begins again: 7-9; device 9-14.
// Cost: the 2 of host work that the device no longer hides.
TEST(Synchronisation, ThroughputTimerEndsEachMicroBatch) {
  Strategy timed = alone_in_fp32();
  timed.throughput_timer = true;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.kernels = {{kBackward, 5}};
  const Model model = test::chain({8});
  expect_ends({test::build(model, alone_in_fp32(), 1), test::build(model, timed, 1)}, costs,
              {12, 14});
}

// The timer begins at step 2 (0.7): steps 0 and 1 run as without it.
TEST(Synchronisation, ThroughputTimerBeginsAtStepTwo) {
  Strategy timed = alone_in_fp32();
  timed.throughput_timer = true;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.kernels = {{kBackward, 5}};
  expect_ends({test::build(test::chain({8}), timed, 1, 0, 1)}, costs, {12});
}

// 0.7: wall_clock_breakdown reads its timers at each engine.step(): the same case.
TEST(Synchronisation, WallClockBreakdownWaitsForCompute) {
  Strategy timed = alone_in_fp32();
  timed.wall_clock_breakdown = true;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.kernels = {{kBackward, 5}};
  const Model model = test::chain({8});
  expect_ends({test::build(model, alone_in_fp32(), 1), test::build(model, timed, 1)}, costs,
              {12, 14});
}

// 0.7: comms_logger synchronises after each message. Gradient hooks take 2, messages 3, each
// gradient fills a bucket and leaves when the next one arrives, the last one after the backward.
//   without: hooks end at 2, 4, 6; messages 4-7, 7-10, 10-13.
//   with:    hook 3 begins at 7: 4-7, hook 9, 9-12, 12-15.
TEST(Synchronisation, CommsLoggerEndsEachMessage) {
  Strategy strategy = strategy_of(2);
  strategy.zero.reduce_bucket_size = 8;
  Strategy logged = strategy;
  logged.comms_logger = true;
  Costs costs;
  costs.host.gradient_hook = Seconds(2);
  costs.messages = {{8, 3}};
  const Model model = test::chain({8, 8, 8});
  expect_ends({test::build(model, strategy, 2), test::build(model, logged, 2)}, costs, {13, 15});
}

// B1.5: stage 0 asks for the overflow of one parameter at a time. Of each of 3 parameters: 3
// launches of 1, then 2 on the device. Forward takes 3 x 8 launches (RMSNorm).
//   without: checks are launched at 27, 30, 33 and hidden behind each other.
//   with:    each adds its 2 to the host: 3 x 2 later.
TEST(Synchronisation, StageZeroChecksOneParameterAtATime) {
  Costs costs;
  costs.host.kernel_launch = costs.host.optimizer_launch = Seconds(1);
  costs.kernels = {{"overflow_check", 2}};
  const Program program = test::build(test::chain({8, 8, 8}), strategy_of(0), 1);
  // After the checks: cast (3 tensors), flatten, norm, scale, copy (3 tensors): 9 launches. The
  // optimizer has one.
  const double without_waits = 24 + 9 + 9 + 1;
  expect_ends({without(program, OpKind::HostWait, "B1.5"), program}, costs,
              {without_waits, without_waits + 6});
}

// 0.7: the overflow flag is read. The check, in 6 launches of 1, takes 4; norm (2 launches),
// flatten, cast and scale come before Adam, which takes 2.
//   without: check runs 6-10; launched at 6 + 2 + 3 + 1 = 12, runs 12-14.
//   with:    launched at 10 + 6 = 16, runs 16-18.
TEST(Synchronisation, OverflowFlagIsReadByTheHost) {
  Costs costs;
  costs.host.optimizer_launch = Seconds(1);
  costs.kernels = {{"overflow_check", 4}, {"adam_fused", 2}};
  for (const int stage : {1, 2}) {
    const Program program = test::build(test::chain({8}), strategy_of(stage), 2);
    expect_ends({without(program, OpKind::HostWait, "0.7"), program}, costs, {14, 18});
  }
}

// B4.4: the BF16 optimizer asserts that the norm is positive. The norm, launched at 1, takes 4;
// clip comes before Adam, which takes 2.
//   without: launched at 3, runs 5-7.   with: launched at 5 + 2, runs 7-9.
TEST(Synchronisation, Bf16OptimizerReadsItsNorm) {
  Strategy strategy = strategy_of(1);
  strategy.grad_accum_dtype = Dtype::F32;
  Costs costs;
  costs.host.optimizer_launch = Seconds(1);
  costs.kernels = {{"gradient_norm", 4}, {"adam_fused", 2}};
  const Program program = test::build(test::chain({8}), strategy, 2);
  expect_ends({without(program, OpKind::HostWait, "B4.4"), program}, costs, {7, 9});
}

/// Four gradients of which each fills a bucket. Backward takes 1, 1, 1 and, of the first module,
/// whose gradient comes last, 10 (a LayerNorm). Messages take 5.
Model three_short_and_a_long_one() {
  Model model = test::chain({8, 8, 8, 8});
  model.operators[0].kind = OperatorKind::LayerNorm;
  return model;
}

Strategy one_bucket_each(bool overlap) {
  Strategy strategy = strategy_of(2);
  strategy.zero.overlap_comm = overlap;
  strategy.zero.reduce_bucket_size = 8;
  return strategy;
}

Costs short_and_long() {
  Costs costs;
  costs.kernels = {{kBackward, 1}, {"layer_norm_gradient", 10}};
  costs.messages = {{8, 5}};
  return costs;
}

// B3.5: at flush k compute waits for reduction k - 1.
//   with:    backward 0-1, 1-2 | flush 1: 2-7 | 2-3 | flush 2: 7-12, compute waits for 7 | 7-17 |
//            flush 3: 17-22 | flush 4: 22-27.
//   without: the long one runs 3-13; 7-12, then 13-18, 18-23.
// Cost: 4, from 3 to 7, in which compute stands still.
TEST(Synchronisation, ComputeWaitsForThePreviousReduction) {
  const Program program = test::build(three_short_and_a_long_one(), one_bucket_each(true), 2);
  expect_ends({without(program, OpKind::StreamWait, "B3.5"), program}, short_and_long(), {23, 27});
}

// Without overlap_comm everything is in one line: 1 + 1 + 5 + 1 + 5 + 10 + 5 + 5.
TEST(Synchronisation, WithoutOverlapNothingRunsBeside) {
  expect_ends({test::build(three_short_and_a_long_one(), one_bucket_each(false), 2)},
              short_and_long(), {33});
}

// B3.6: with overlap and gradients that are not contiguous (or one reduce for each owner) the host
// synchronises before each message. It launches the long backward only when the second flush has
// waited for the first message, at 7: as B3.5, the host in place of the stream.
TEST(Synchronisation, DeviceIsSynchronisedBeforeEachMessage) {
  Strategy strategy = one_bucket_each(true);
  strategy.zero.contiguous_gradients = false;
  const Program program = test::build(three_short_and_a_long_one(), strategy, 2);
  int waits = 0;
  for (const Op& op : program.ranks[0].ops) {
    waits += op.kind == OpKind::HostWait && op.rule == "B3.6" ? 1 : 0;
  }
  EXPECT_EQ(waits, 4);
  expect_ends({program}, short_and_long(), {27});
}

// 0.7, B3.9: stage 2 with overlap synchronises in the epilogue of each micro batch. Host work of a
// micro batch 2, its message 3.
//   without: messages issued at 2 and 4: 2-5, 5-8.   with: the second begins at 5: 5-7, 7-10.
TEST(Synchronisation, EpilogueOfStageTwoEndsEachMicroBatch) {
  Strategy strategy = strategy_of(2);
  strategy.zero.overlap_comm = true;
  strategy.grad_accum = 2;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.messages = {{8, 3}};
  const Program program = test::build(test::chain({8}), strategy, 2);
  expect_ends({without(program, OpKind::HostWait, "B3.9"), program}, costs, {8, 10});
}

// The same at stage 1: at the boundary only, where the step's own host work (1) waits for 7.
TEST(Synchronisation, EpilogueOfStageOneEndsTheBoundaryOnly) {
  Strategy strategy = strategy_of(1);
  strategy.zero.overlap_comm = true;
  strategy.grad_accum = 2;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.host.step_overhead = Seconds(1);
  costs.messages = {{8, 3}};
  const Program program = test::build(test::chain({8}), strategy, 2);
  // Host 0-2, 2-4; message 4-7; the step's 1 hidden behind it, or after it.
  expect_ends({without(program, OpKind::HostWait, "B3.9"), program}, costs, {7, 8});
}

// 0.7, C6.7: stage 3 synchronises the reduction stream after each backward: as stage 2 above. The
// parameter is persistent, so nothing is gathered before the step.
TEST(Synchronisation, EpilogueOfStageThreeEndsEachMicroBatch) {
  Strategy strategy = strategy_of(3);
  strategy.grad_accum = 2;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.messages = {{8, 3}};  // the reduce-scatter; gathers have an input of 4
  const Program program = test::build(test::chain({8}), strategy, 2);
  expect_ends({without(program, OpKind::HostWait, "C6.7"), program}, costs, {8, 10});
}

// 0.7, C8.5: the step ends with a synchronisation after the gathers of persistent parameters (4
// each).
//   without: step 2: host 0-3, gathers 3-11; step 3: host 3-6, and its epilogue waits for the
//   message
//            behind the gathers: 11; gathers 11-19.
//   with:    the host of step 3 begins at 11: 11-14; gathers 14-22.
TEST(Synchronisation, GathersAfterTheStepEndIt) {
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.messages = {{4, 4}};
  const Program program = test::build(test::chain({8, 8}), strategy_of(3), 2, 2, 2);
  expect_ends({without(program, OpKind::HostWait, "C8.5"), program}, costs, {19, 22});
}

// C4.4: a wait for a gather first waits for the third before it. Seven gathers of 2, one a module,
// issued at once: 0-2, ..., 12-14; the seventh waits for the fourth: 8. Backward then takes 7 hooks
// of 3 on the host.
//   without: 7 x 3 = 21.   with: 8 + 21 = 29.
TEST(Synchronisation, FetchThrottleHoldsTheHost) {
  Strategy strategy = strategy_of(3);
  strategy.zero.prefetch_bucket_size = 0;
  strategy.zero.param_persistence_threshold = 0;
  Costs costs;
  costs.host.gradient_hook = Seconds(3);
  costs.messages = {{4, 2}};
  const Program program = test::build(test::chain({8, 8, 8, 8, 8, 8, 8}), strategy, 2);
  expect_ends({without(program, OpKind::HostWait, "C4.4"), program}, costs, {21, 29});
}

// C6.5: a reduction waits for the third before it. Ten gradients, hooks of 3, each a bucket of its
// own that leaves when the next arrives; the first four messages take 10, the others nothing.
//   without: hooks end at 3, ..., 30; messages 6-16, 16-26, 26-36, 36-46; end 46.
//   with:    bucket 4 (at 15) waits for 16, 5 (at 19) for 26, 6 (at 29) for 36, 7 (at 39) for 46;
//            three more hooks: hook 8 ends at 39, 9 at 49, 10 at 52.
TEST(Synchronisation, ReductionThrottleHoldsTheHost) {
  Strategy strategy = strategy_of(3);
  strategy.zero.reduce_bucket_size = 10;
  Costs costs;
  costs.host.gradient_hook = Seconds(3);
  costs.messages = {{1000, 10}};
  // Registered in call order; gradients arrive in reverse.
  const Model model = test::chain({10, 10, 10, 10, 10, 10, 1000, 1000, 1000, 1000});
  const Program program = test::build(model, strategy, 2);
  expect_ends({without(program, OpKind::HostWait, "C6.5"), program}, costs, {46, 52});
}

// D1.2: the rebuild broadcasts indices (2 elements, here 3) and sizes (1 element, here 3), and the
// host reads both before the second forward; then host work 2 and backward 5.
//   without: host 0-2 beside the broadcasts, which compute waits for: 6-11.   with: 6, 8, 13.
TEST(Synchronisation, RebuildingBucketsHoldsTheHost) {
  Strategy strategy;
  strategy.framework = Framework::Ddp;
  strategy.precision = Precision::Fp32;
  Costs costs;
  costs.host.module_call = Seconds(1);
  costs.kernels = {{kBackward, 5}};
  costs.messages = {{2, 3}, {1, 3}};
  const Program program = test::build(test::chain({8}), strategy, 2, 1, 1);
  expect_ends({without(program, OpKind::HostWait, "D1.2"), program}, costs, {11, 13});
}

// A4.3: GradScaler reads whether a gradient is infinite: launches of 1, unscaling takes 4, Adam 2.
//   without: Adam launched at 2, runs 5-7.   with: unscaled at 5, launched at 6, runs 6-8.
TEST(Synchronisation, GradScalerReadsItsFlag) {
  Strategy strategy;
  strategy.precision = Precision::Fp16;
  strategy.gradient_clipping = 0;
  Costs costs;
  costs.host.optimizer_launch = Seconds(1);
  costs.kernels = {{"unscale", 4}, {"adam_fused", 2}};
  const Program program = test::build(test::chain({8}), strategy, 1);
  expect_ends({without(program, OpKind::HostWait, "A4.3"), program}, costs, {7, 8});
}

}  // namespace
}  // namespace zerosim::testing
