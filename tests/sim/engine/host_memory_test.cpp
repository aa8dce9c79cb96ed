// Work on the host and copies to and from it: times worked out beside the tests (B6.3).

#include <gtest/gtest.h>

#include "sim/program/build.h"
#include "sim/program/builder.h"
#include "tests/sim/engine/engine_test_support.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::expect_exact;
using testing::isolated;
using testing::span_of;

constexpr HostTimes kNoHostTimes{};
constexpr StreamId kStream = kComputeStream;

/// 8 GPUs a node with 400 GB/s of host memory, half of which passes reach; copies 25 GB/s.
Cluster cluster_with_memory() {
  Cluster cluster = testing::test_cluster();
  cluster.node.host_memory_bandwidth = 400_GBps;
  return cluster;
}

EngineOptions options_with_memory() {
  EngineOptions options = testing::options_of({});
  options.host.memory_efficiency = 0.5;
  return options;
}

/// Kernels and calls of modules take no time.
EngineOptions no_device_time() {
  EngineOptions options = options_with_memory();
  options.host.module_call = Seconds(0);
  options.kernel_time = [](const Kernel&) { return KernelTime{}; };
  return options;
}

Program one_rank(RankProgramBuilder& builder, int world_size) {
  Program program;
  program.strategy = "test";
  program.world_size = world_size;
  program.ranks.push_back(builder.finish());
  check_program(program);
  return program;
}

// 5 GB at 400 GB/s x 0.5 / 8 ranks = 25 GB/s: 200 ms; alone on the node 25 ms.
TEST(HostPassTime, RanksOfANodeShareItsMemory) {
  HostTimes times = kNoHostTimes;
  times.memory_efficiency = 0.5;
  const HostPass pass{"test", 5_GB};
  expect_exact(host_pass_time(times, pass, 400_GBps, 8), 0.2);
  expect_exact(host_pass_time(times, pass, 400_GBps, 1), 0.025);
}

// 8 channels of DDR4-3200 (204.8 GB/s) update 4 to 5 G parameters a second, 28 bytes each
// (kernels.md section 1).
TEST(HostPassTime, CpuAdamRunsAtReportedRates) {
  const HostPass billion{"cpu_adam", 28_GB};
  const double seconds =
      host_pass_time(default_host_times(), billion, BytesPerSecond(204.8e9), 1).count();
  EXPECT_GT(seconds, 1.0 / 5);
  EXPECT_LT(seconds, 1.0 / 4);
}

// The host thread is in the pass: what it issues next comes after it, what runs goes on.
TEST(EngineHostPass, TheNextOperationWaits) {
  isolated([] {
    RankProgramBuilder builder(Rank(0), 8);
    const Copy copy{Copy::Direction::DeviceToHost, 10_GB};  // 400 ms
    const OpId before = builder.copy(kStream, copy, "test");
    const OpId pass = builder.host_pass({"pass", 5_GB}, "test");  // 200 ms
    const StreamId other = builder.add_stream("other");
    const OpId after = builder.copy(other, {Copy::Direction::HostToDevice, 5_GB}, "test");
    const Program program = one_rank(builder, 8);
    const Timeline timeline =
        Engine(cluster_with_memory(), options_with_memory()).run(program, nullptr);
    expect_exact(span_of(timeline, before).end, 0.4);
    expect_exact(span_of(timeline, after).issued, 0.2);
    expect_exact(span_of(timeline, after).end, 0.4);
    ASSERT_EQ(timeline.host_spans.size(), 1u);
    EXPECT_EQ(timeline.host_spans[0].op, pass);
    EXPECT_FALSE(timeline.host_spans[0].waiting);
    expect_exact(timeline.host_spans[0].end, 0.2);
  });
}

// A copy of pageable memory at 40 % of 25 GB/s takes 5 GB / 10 GB/s = 500 ms, and the host waits.
TEST(EngineCopy, PageableMemoryIsSlowerAndBlocksTheHost) {
  isolated([] {
    EngineOptions options = options_with_memory();
    options.host.pageable_copy = 0.4;
    RankProgramBuilder builder(Rank(0), 8);
    const OpId slow = builder.copy(kStream, {Copy::Direction::DeviceToHost, 5_GB, false}, "test");
    const OpId fast = builder.copy(kStream, {Copy::Direction::DeviceToHost, 5_GB}, "test");
    const Program program = one_rank(builder, 8);
    const Timeline timeline = Engine(cluster_with_memory(), options).run(program, nullptr);
    expect_exact(span_of(timeline, slow).end, 0.5);
    expect_exact(span_of(timeline, fast).issued, 0.5);
    expect_exact(span_of(timeline, fast).end, 0.7);
  });
}

// A step of stage 2 with the optimizer on the CPU, S = 1e9 elements on one rank, bf16, no time on
// the device: nothing overlaps (B6.3).
//
//     gradient down    4 S           / 25 GB/s                 = 160 ms
//     scale            8 S           / (400 GB/s x 0.5)        =  40 ms
//     Adam            28 S                                     = 140 ms
//     cast             6 S                                     =  30 ms
//     weights up       2 S           / 25 GB/s                 =  80 ms
//     numbers         4 + 1 + 8 + 4 + 4 bytes / 25 GB/s        =   0.84 ns
TEST(EngineOffload, TheStepIsTheSumOfItsPassesAndCopies) {
  isolated([] {
    Strategy strategy = test::deepspeed(2);
    strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
    const Program program = test::build(test::chain({1'000'000'000}), strategy, 1);
    const Timeline timeline = Engine(cluster_with_memory(), no_device_time()).run(program, nullptr);
    ASSERT_EQ(timeline.step_ends.size(), 1u);
    expect_exact(timeline.step_ends[0], 0.160 + 0.040 + 0.140 + 0.030 + 0.080 + 0.84e-9, 1e-11);
  });
}

// Two more micro batches: 2 S down; 2 S up and down; 2 S up.
TEST(EngineOffload, AccumulationMovesTheGradientUpAndDown) {
  isolated([] {
    Strategy strategy = test::deepspeed(2);
    strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
    strategy.grad_accum = 3;
    const Program program = test::build(test::chain({1'000'000'000}), strategy, 1);
    const Timeline timeline = Engine(cluster_with_memory(), no_device_time()).run(program, nullptr);
    expect_exact(timeline.step_ends[0], 0.450 + 4 * 0.080 + 0.84e-9, 1e-11);
  });
}

TEST(EngineHostPass, NeedsTheBandwidthOfHostMemory) {
  isolated([] {
    RankProgramBuilder builder(Rank(0), 8);
    builder.host_pass({"pass", 5_GB}, "test");
    const Program program = one_rank(builder, 8);
    Engine engine(testing::test_cluster(), options_with_memory());
    try {
      static_cast<void>(engine.run(program, nullptr));
      ADD_FAILURE() << "expected SimulationError";
    } catch (const SimulationError& error) {
      EXPECT_STREQ(error.what(),
                   "the bandwidth of the host memory of cluster \"test\" is not known, and the "
                   "program works there");
    }
  });
}

}  // namespace
}  // namespace zerosim
