/// The caching allocator at host time: costs of E7.10, waits, and what the run ahead of the host
/// does to reserved memory (0.1, E7.8).
#include "sim/memory/allocator_observer.h"

#include <vector>

#include <gtest/gtest.h>

#include "sim/program/builder.h"
#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {
namespace {

constexpr double kUs = 1e-6;
constexpr double kMs = 1e-3;
constexpr int kRank = 0;

Bytes of(const MemoryByClass& memory, MemoryClass memory_class) {
  return memory[static_cast<std::size_t>(memory_class)];
}

AllocatorSetup setup_of(Bytes capacity, const std::string& conf = "") {
  AllocatorSetup setup;
  setup.allocator.capacity = capacity;
  setup.allocator.conf = parse_alloc_conf(conf);
  setup.times = {Seconds(2 * kUs), Seconds(1 * kUs),   Seconds(3 * kUs),   Seconds(1 * kMs),
                 Seconds(2 * kMs), Seconds(0.5 * kMs), Seconds(0.25 * kMs)};
  return setup;
}

/// A kernel of `milliseconds` on the machine of engine_test_support.h.
Kernel kernel_of(double milliseconds) {
  Kernel kernel;
  kernel.name = "test_kernel";
  kernel.flops = Flops(milliseconds * kMs);
  return kernel;
}

Program program_of(RankProgramBuilder& builder) {
  Program program;
  program.world_size = 8;
  program.module_names = {"", "model.layers.0.mlp"};
  program.ranks.push_back(builder.finish());
  check_program(program);
  return program;
}

TEST(AllocatorTimes, AreThoseOfTheSpec) {  // E7.10
  const AllocatorTimes times = default_allocator_times();
  EXPECT_GE(times.hit.count(), 1e-6);
  EXPECT_LE(times.hit.count(), 2e-6);
  EXPECT_GE(times.cuda_malloc.count(), 0.1e-3);
  EXPECT_LE(times.cuda_malloc.count(), 1e-3);
  // A flush of 300 segments: "10-100s of ms".
  DriverWork flush;
  flush.cuda_frees = 300;
  EXPECT_NEAR(driver_time(flush, times).count(), 0.09, 1e-12);
}

TEST(DriverTime, AddsCalls) {
  const AllocatorTimes times = setup_of(1_GiB).times;
  EXPECT_NEAR(driver_time({2, 3, 4, 5, true}, times).count(), (2 + 6 + 2 + 1.25) * kMs, 1e-15);
}

// cudaMalloc 2 us + 1 ms, free 1 us, hit 2 us.
TEST(AllocatorObserver, ChargesHitsAndMisses) {
  RankProgramBuilder builder(Rank(0), 1);
  BufferId first = builder.allocate(12_MiB, MemoryClass::Activations, "a");
  builder.free(first);
  builder.allocate(12_MiB, MemoryClass::Activations, "b");
  const Program program = program_of(builder);
  isolated([&] {
    AllocatorObserver observer(program, setup_of(1_GiB));
    Engine engine(test_cluster({}), options_of({}));
    expect_exact(engine.run(program, &observer).end, 1 * kMs + 5 * kUs);
    EXPECT_EQ(observer.driver_time(kRank), Seconds(1 * kMs));
  });
}

// Rule 0.1 and E7.8. A parameter of 12 MiB, gathered on a side stream, is used by a kernel of 5 ms
// and freed at once. The host asks for the next one 1 ms later, when the kernel still runs: 24 MiB.
// 5 ms later the kernel has ended: 12 MiB would have done.
TEST(AllocatorObserver, RunAheadCostsMemory) {
  isolated([] {
    Engine engine(test_cluster({}), options_of({}));
    const auto reserved = [&](int host_microseconds) {
      RankProgramBuilder builder(Rank(0), 1);
      const StreamId gather = builder.add_stream("all_gather");
      BufferId parameter =
          builder.allocate(12_MiB, MemoryClass::LiveParameters, "parameter", gather);
      builder.kernel(kComputeStream, kernel_of(5), HostWork::None, "test");
      builder.free_recorded(parameter, std::vector<StreamId>{kComputeStream}, "C4.7");
      builder.host({HostWork::ModuleCall, host_microseconds}, "test");
      BufferId next = builder.allocate(12_MiB, MemoryClass::LiveParameters, "parameter", gather);
      builder.free(next);
      const Program program = program_of(builder);
      AllocatorObserver observer(program, setup_of(1_GiB));
      (void)engine.run(program, &observer);
      EXPECT_EQ(observer.peak_allocated(kRank).allocated, 12_MiB);
      return observer.peak_reserved(kRank).reserved;
    };
    EXPECT_EQ(reserved(1000), 24_MiB);
    EXPECT_EQ(reserved(6000), 12_MiB);
  });
}

// 30 MiB of device. 20 MiB wait for a kernel of 5 ms; 25 MiB are asked for at 1 ms + 2 us + 1 us +
// 3 us: cudaMalloc fails (1 ms), the host waits until 5 ms and 1.002 ms (the kernel's issue), the
// flush frees a segment (2 ms), cudaMalloc succeeds (1 ms); 2 us: 10.004 ms.
TEST(AllocatorObserver, AFlushWaitsForTheDevice) {
  isolated([] {
    RankProgramBuilder builder(Rank(0), 1);
    const StreamId gather = builder.add_stream("all_gather");
    BufferId first = builder.allocate(20_MiB, MemoryClass::LiveParameters, "first", gather);
    builder.kernel(kComputeStream, kernel_of(5), HostWork::None, "test");
    builder.free_recorded(first, std::vector<StreamId>{kComputeStream}, "C4.7");
    builder.allocate(25_MiB, MemoryClass::TemporaryBuffers, "second");
    builder.kernel(kComputeStream, kernel_of(1), HostWork::None, "test");
    const Program program = program_of(builder);
    AllocatorObserver observer(program, setup_of(30_MiB));
    Engine engine(test_cluster({}), options_of({}));
    const Timeline timeline = engine.run(program, &observer);
    expect_exact(timeline.spans.back().issued, 10.004 * kMs);
    EXPECT_EQ(observer.allocator(kRank).stats().num_alloc_retries, 1);
    EXPECT_FALSE(observer.out_of_memory(kRank).has_value());
    EXPECT_NEAR(observer.driver_time(kRank).count(), 5 * kMs, 1e-15);
  });
}

// 12 and 3 MiB, 500 bytes: 12 + 3 MiB + 512 allocated, 12 + 20 + 2 MiB reserved.
TEST(AllocatorObserver, FindsPeaksAndTheirClasses) {
  RankProgramBuilder builder(Rank(0), 1);
  builder.set_phase(Phase::Forward);
  BufferId a = builder.allocate(12_MiB, MemoryClass::Parameters, "parameters");
  BufferId b = builder.allocate(Bytes(500), MemoryClass::Gradients, "gradient");
  builder.set_module(ModuleId(std::int32_t{1}));
  BufferId c = builder.allocate(3_MiB, MemoryClass::Activations, "saved_activation");
  builder.set_phase(Phase::Backward);
  builder.free(c);
  builder.allocate(1_MiB, MemoryClass::Logits, "logits");  // of the small segment: no, 2 MiB more
  builder.allocate_on_host(Bytes(5000), MemoryClass::OptimizerStates, "moments", true, "test");
  builder.free(a);
  builder.free(b);
  const Program program = program_of(builder);
  AllocatorSetup setup = setup_of(1_GiB);
  setup.keep_samples = true;
  AllocatorObserver observer(program, setup);
  replay(program, observer);

  const AllocatorMoment allocated = observer.peak_allocated(kRank);
  EXPECT_EQ(allocated.allocated, 15_MiB + 512_B);
  EXPECT_EQ(of(allocated.by_class, MemoryClass::Parameters), 12_MiB);
  EXPECT_EQ(of(allocated.by_class, MemoryClass::Gradients), 512_B);
  EXPECT_EQ(of(allocated.by_class, MemoryClass::Activations), 3_MiB);
  EXPECT_EQ(allocated.phase, Phase::Forward);
  EXPECT_EQ(allocated.op, "saved_activation in model.layers.0.mlp");
  EXPECT_EQ(allocated.reserved, 34_MiB);
  EXPECT_EQ(allocated.fragmentation(), 19_MiB - 512_B);
  const AllocatorMoment reserved = observer.peak_reserved(kRank);
  EXPECT_EQ(reserved.reserved, 34_MiB);  // 1 MiB + 512 bytes fit in the small segment
  EXPECT_EQ(reserved.phase, Phase::Forward);

  EXPECT_EQ(observer.ledger().peak(kRank).allocated, 15_MiB + 512_B);
  EXPECT_EQ(observer.ledger().current_host(kRank), Bytes(8192));
  ASSERT_EQ(observer.samples(kRank).size(), 7U);
  EXPECT_EQ(observer.samples(kRank).back().allocated, 1_MiB);
  EXPECT_EQ(observer.samples(kRank).back().reserved, 34_MiB);
}

// A block that is not split counts whole: 12 MiB for 11.5.
TEST(AllocatorObserver, ClassesCountWholeBlocks) {
  RankProgramBuilder builder(Rank(0), 1);
  builder.allocate(11_MiB + 1_KiB, MemoryClass::Gradients, "gradient");
  const Program program = program_of(builder);
  AllocatorObserver observer(program, setup_of(1_GiB));
  replay(program, observer);
  EXPECT_EQ(of(observer.peak_allocated(kRank).by_class, MemoryClass::Gradients), 12_MiB);
  EXPECT_EQ(of(observer.ledger().peak(kRank).by_class, MemoryClass::Gradients), 11_MiB + 1_KiB);
}

// 40 MiB of device, 20 of them taken: 30 MiB fail, and so do 10 more, which is not told.
TEST(AllocatorObserver, FollowsAJobThatDoesNotFit) {
  RankProgramBuilder builder(Rank(0), 1);
  builder.set_phase(Phase::Step);
  builder.allocate(20_MiB, MemoryClass::OptimizerStates, "exp_avg");
  builder.set_module(ModuleId(std::int32_t{1}));
  builder.allocate(30_MiB, MemoryClass::TemporaryBuffers, "fp32_gradients");
  builder.allocate(10_MiB, MemoryClass::Activations, "later");
  const Program program = program_of(builder);
  AllocatorObserver observer(program, setup_of(40_MiB));
  replay(program, observer);
  ASSERT_TRUE(observer.out_of_memory(kRank).has_value());
  const AllocatorFailure& failure = *observer.out_of_memory(kRank);
  EXPECT_EQ(failure.error.request, 30_MiB);
  EXPECT_EQ(failure.error.free, 20_MiB);
  EXPECT_EQ(failure.moment.op, "fp32_gradients in model.layers.0.mlp");
  EXPECT_EQ(failure.moment.phase, Phase::Step);
  EXPECT_EQ(failure.moment.allocated, 20_MiB);
  EXPECT_EQ(of(failure.moment.by_class, MemoryClass::OptimizerStates), 20_MiB);
  EXPECT_EQ(failure.memory_class, MemoryClass::TemporaryBuffers);
  EXPECT_EQ(observer.peak_reserved(kRank).reserved, 60_MiB);  // what it would have needed
  EXPECT_EQ(observer.allocator(kRank).stats().num_ooms, 1);
}

TEST(AllocatorObserver, BuffersOfNoBytesTakeNothing) {
  RankProgramBuilder builder(Rank(0), 1);
  BufferId buffer = builder.allocate(Bytes(0), MemoryClass::Gradients, "nothing");
  builder.free(buffer);
  const Program program = program_of(builder);
  AllocatorObserver observer(program, setup_of(1_GiB));
  replay(program, observer);
  EXPECT_EQ(observer.peak_reserved(kRank).reserved, Bytes(0));
}

TEST(AllocatorObserver, KeepsRankClassesApart) {
  RankProgramBuilder first(Rank(0), 1);
  first.allocate(12_MiB, MemoryClass::Gradients, "gradient");
  RankProgramBuilder second(Rank(1), 1);
  second.allocate(30_MiB, MemoryClass::Gradients, "gradient");
  Program program = program_of(first);
  program.ranks.push_back(second.finish());
  AllocatorObserver observer(program, setup_of(1_GiB));
  replay(program, observer, 0);
  replay(program, observer, 1);
  EXPECT_EQ(observer.peak_reserved(0).reserved, 12_MiB);
  EXPECT_EQ(observer.peak_reserved(1).reserved, 30_MiB);
}

/// The initialisation keeps 4 MiB; each step takes 12 MiB for a kernel of 5 ms that waits for the
/// step before.
Program three_steps(int warm_up_steps) {
  RankProgramBuilder builder(Rank(0), 1);
  builder.set_phase(Phase::Init);
  builder.allocate(4_MiB, MemoryClass::Parameters, "weights");
  for (int step = 0; step < 3; ++step) {
    builder.set_step(step, 0);
    builder.set_phase(Phase::Forward);
    builder.host_wait_stream(kComputeStream, "test");
    BufferId buffer = builder.allocate(12_MiB, MemoryClass::Activations, "saved");
    builder.kernel(kComputeStream, kernel_of(5), HostWork::None, "test");
    builder.free(buffer);
  }
  Program program = program_of(builder);
  program.steps = 3;
  program.warm_up_steps = warm_up_steps;
  return program;
}

// 4 + 12 MiB share a segment of 20: the last step finds its 12 in the cache. It begins at 0, asks
// for them (2 us), and its kernel runs 5 ms; the free (1 us) is over before.
TEST(AllocatorObserver, AWarmUpFillsTheCacheInNoTime) {
  isolated([] {
    const Program program = three_steps(2);
    AllocatorObserver observer(program, setup_of(1_GiB));
    Engine engine(test_cluster({}), options_of({}));
    const Timeline timeline = engine.run(program, &observer);
    ASSERT_EQ(timeline.spans.size(), 1U);
    EXPECT_EQ(timeline.step_ends[1], Seconds(0));
    expect_exact(timeline.step_ends[2], 5 * kMs + 2 * kUs);
    EXPECT_EQ(observer.allocator(kRank).stats().num_device_alloc, 1);
    EXPECT_EQ(observer.part(kRank, 3).driver_time, Seconds(0));
  });
}

// The last step asks for 12 MiB at 0, beside 4, and frees them 2 us (the hit) later: of the warm-up
// nothing else is left.
TEST(AllocatorObserver, AWarmUpIsOnePointOfACourse) {
  isolated([] {
    const Program program = three_steps(2);
    AllocatorSetup setup = setup_of(1_GiB);
    setup.keep_samples = true;
    AllocatorObserver observer(program, setup);
    Engine engine(test_cluster({}), options_of({}));
    (void)engine.run(program, &observer);
    const std::vector<MemorySample> course = observer.allocated_over_time(kRank);
    ASSERT_EQ(course.size(), 2U);
    EXPECT_EQ(course[0].at, Seconds(0));
    EXPECT_EQ(course[0].allocated, 16_MiB);
    expect_exact(course[1].at, 2 * kUs);
    EXPECT_EQ(course[1].allocated, 4_MiB);
  });
}

// Without warm-up three kernels, three requests, and before them 4 MiB, for which cudaMalloc is
// called. A free is over while its kernel runs.
TEST(AllocatorObserver, WithoutAWarmUpEveryStepCounts) {
  isolated([] {
    const Program program = three_steps(0);
    AllocatorObserver observer(program, setup_of(1_GiB));
    Engine engine(test_cluster({}), options_of({}));
    const Timeline timeline = engine.run(program, &observer);
    ASSERT_EQ(timeline.spans.size(), 3U);
    expect_exact(timeline.end, 3 * 5 * kMs + 4 * 2 * kUs + 1 * kMs);
  });
}

// 34 MiB. Initialisation 12; the first step 12 + 14, which is the peak; the second 12 + 8, for
// a segment of 20, for which another stream's 14 MiB must be flushed.
TEST(AllocatorObserver, TellsThePartsOfAJobApart) {
  RankProgramBuilder builder(Rank(0), 1);
  const StreamId gather = builder.add_stream("all_gather");
  builder.set_phase(Phase::Init);
  builder.allocate(12_MiB, MemoryClass::Parameters, "weights");
  builder.set_phase(Phase::Forward);
  BufferId first = builder.allocate(14_MiB, MemoryClass::LiveParameters, "gathered", gather);
  builder.free(first);
  builder.set_step(1, 0);
  builder.allocate(8_MiB, MemoryClass::Activations, "saved");
  Program program = program_of(builder);
  program.steps = 2;
  AllocatorObserver observer(program, setup_of(34_MiB));
  replay(program, observer);
  ASSERT_EQ(observer.parts(), 3U);
  EXPECT_EQ(observer.part(kRank, 0).peak_allocated.allocated, 12_MiB);
  const AllocatorPart second = observer.part(kRank, 1);
  EXPECT_EQ(second.peak_allocated.allocated, 26_MiB);
  EXPECT_EQ(second.peak_allocated.op, "gathered");
  EXPECT_EQ(second.peak_allocated.step, 0);
  EXPECT_EQ(of(second.class_peaks, MemoryClass::LiveParameters), 14_MiB);
  EXPECT_EQ(second.flushes, 0);
  const AllocatorPart third = observer.part(kRank, 2);
  EXPECT_EQ(third.peak_allocated.allocated, 20_MiB);
  EXPECT_EQ(third.flushes, 1);
  // Without limit nothing is flushed: 12 + 14 + a segment of 20 MiB for 8.
  EXPECT_EQ(third.peak_reserved.reserved, 46_MiB);
  EXPECT_EQ(observer.peak_allocated(kRank).allocated, 26_MiB);
  EXPECT_EQ(of(observer.current(kRank), MemoryClass::LiveParameters), Bytes(0));
}

}  // namespace
}  // namespace zerosim::testing
