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
  expect_exact(host_pass_time(times, pass, {400_GBps, 8}), 0.2);
  expect_exact(host_pass_time(times, pass, {400_GBps, 1}), 0.025);
}

// The same with threads of 10 GB/s: two draw 20 of the 25 GB/s that eight ranks leave each other,
// 250 ms; three could draw 30. Alone on the node two threads take as long.
TEST(HostPassTime, ThreadsBoundARank) {
  HostTimes times = kNoHostTimes;
  times.memory_efficiency = 0.5;
  times.thread_bandwidth = 10_GBps;
  const HostPass pass{"test", 5_GB};
  expect_exact(host_pass_time(times, pass, {400_GBps, 8, 2}), 0.25);
  expect_exact(host_pass_time(times, pass, {400_GBps, 8, 3}), 0.2);
  expect_exact(host_pass_time(times, pass, {400_GBps, 1, 2}), 0.25);
  expect_exact(host_pass_time(times, pass, {400_GBps, 1, 0}), 0.025);
}

// 1 of its 5 GB are pages that the system maps and zeroes first, at 8 GB/s: 125 ms more.
TEST(HostPassTime, FreshPagesComeFirst) {
  HostTimes times = kNoHostTimes;
  times.memory_efficiency = 0.5;
  times.first_touch = 8_GBps;
  const HostPass pass{"test", 5_GB, 1_GB};
  expect_exact(host_pass_time(times, pass, {400_GBps, 8}), 0.325);
}

// ZeRO-Offload (USENIX ATC 2021), table 4: CPU-Adam on a DGX-2, 256 GB/s, 28 bytes a parameter.
TEST(HostPassTime, CpuAdamRunsAtReportedRates) {
  struct Published {
    double billions, seconds;
  };
  for (const Published& row : {Published{1, 0.22}, {2, 0.51}, {4, 1.03}, {8, 2.41}, {10, 2.57}}) {
    const HostPass pass{"cpu_adam", Bytes(static_cast<std::int64_t>(row.billions * 28e9))};
    const Seconds time = host_pass_time(default_host_times(), pass, {256_GBps, 1, 48});
    EXPECT_NEAR(time.count() / row.seconds, 1, 0.17) << row.billions;
  }
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

// Threads are those of OMP_NUM_THREADS, else a rank's share of the node's cores: of 16 cores two.
TEST(EngineHostPass, ThreadsAreGivenOrTheRanksShareOfCores) {
  isolated([] {
    Cluster cluster = cluster_with_memory();
    cluster.node.host_cores = 16;
    EngineOptions options = options_with_memory();
    options.host.thread_bandwidth = 10_GBps;
    RankProgramBuilder builder(Rank(0), 8);
    builder.host_pass({"pass", 5_GB}, "test");
    const Program program = one_rank(builder, 8);
    expect_exact(Engine(cluster, options).run(program, nullptr).host_spans[0].end, 0.25);
  });
  isolated([] {
    EngineOptions options = options_with_memory();
    options.host.thread_bandwidth = 10_GBps;
    options.host_threads = 1;
    RankProgramBuilder builder(Rank(0), 8);
    builder.host_pass({"pass", 5_GB}, "test");
    const Program program = one_rank(builder, 8);
    expect_exact(Engine(cluster_with_memory(), options).run(program, nullptr).host_spans[0].end,
                 0.5);
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
