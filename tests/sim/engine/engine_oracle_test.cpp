/// The engine against closed forms. Each test states its equations first.
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/engine/collective_call.h"
#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {
namespace {

using namespace literals;
using ::testing::HasSubstr;

constexpr double us = 1e-6;
constexpr double ms = 1e-3;
constexpr Seconds kMs{1e-3};

Timeline simulate(const Figures& figures, const std::vector<RankBuilder>& ranks,
                  AllocationObserver* observer = nullptr) {
  Engine engine(test_cluster(figures), options_of(figures));
  return engine.run(program_of(ranks), observer);
}

// ---- Without contention ------------------------------------------------------------------------

// t = delay + S / B = 50 us + 1 GB / 100 GB/s = 10.05 ms
TEST(EngineIdle, CollectiveIsDelayAndTransfer) {
  isolated([] {
    RankBuilder rank;
    const OpId gather = rank.collective(rank.world, 1_GB);
    const Timeline timeline = simulate({}, {rank});
    const Span& span = span_of(timeline, gather);
    expect_exact(span.ready, 0);
    expect_exact(span.start, 0);
    expect_exact(span.end, 10.05 * ms);
    expect_exact(timeline.end, 10.05 * ms);
    ASSERT_EQ(timeline.step_ends.size(), 1U);
    expect_exact(timeline.step_ends[0], 10.05 * ms);
  });
}

// A kernel of 12 ms after each collective of 1, 2, 3 GB (10, 20, 30 ms + 50 us), the next
// collective after the kernel; 4 rounds: 4 x (60 + 0.15 + 36) ms = 384.6 ms.
TEST(EngineIdle, ChainOfCollectivesAndKernels) {
  isolated([] {
    RankBuilder rank;
    std::vector<OpId> after;
    for (int i = 0; i < 12; ++i) {
      const OpId gather = rank.collective(rank.world, Bytes((i % 3 + 1) * 1'000'000'000LL), after);
      after = {rank.kernel(rank.compute, 12 * kMs, {}, {gather})};
    }
    expect_exact(simulate({}, {rank}).end, 384.6 * ms);
  });
}

// The same over seconds: 200 rounds of 10.05 + 12 ms = 4.41 s. Steps of one solver for 400
// activities must not add up to more than 1e-12.
TEST(EngineIdle, LongChainStaysExact) {
  isolated([] {
    RankBuilder rank;
    std::vector<OpId> after;
    for (int i = 0; i < 200; ++i) {
      const OpId gather = rank.collective(rank.world, 1_GB, after);
      after = {rank.kernel(rank.compute, 12 * kMs, {}, {gather}, 0, 0)};
    }
    expect_exact(simulate({}, {rank}).end, 4.41);
  });
}

// Launch gap 2 us, then the longer of arithmetic and memory: 2 us + max(1 ms, 6 GB / 3 TB/s = 2
// ms), then 2 us + max(5 ms, 2 ms).
TEST(EngineIdle, KernelIsGapAndTheLongerOfArithmeticAndMemory) {
  isolated([] {
    RankBuilder rank;
    const OpId bound = rank.kernel(rank.compute, 1 * kMs, 6_GB, {}, 0, 2000);
    const OpId busy = rank.kernel(rank.compute, 5 * kMs, 6_GB, {}, 0, 2000);
    const OpId empty = rank.kernel(rank.compute, Seconds(0), {}, {}, 0, 2000);
    const Timeline timeline = simulate({}, {rank});
    expect_exact(span_of(timeline, bound).start, 2 * us);
    expect_exact(span_of(timeline, bound).end, 2.002 * ms);
    expect_exact(span_of(timeline, busy).ready, 2.002 * ms);
    expect_exact(span_of(timeline, busy).start, 2.004 * ms);
    expect_exact(span_of(timeline, busy).end, 7.004 * ms);
    expect_exact(span_of(timeline, empty).end, 7.006 * ms);
  });
}

// Copies up and down do not meet: 5 GB / 25 GB/s = 200 ms and 2.5 GB = 100 ms; a copy of nothing
// ends at once.
TEST(EngineIdle, CopiesOfTheTwoDirectionsAreIndependent) {
  isolated([] {
    RankBuilder rank;
    const StreamId second = rank.stream("copies");
    const OpId up = rank.copy(rank.compute, Copy::Direction::HostToDevice, 5_GB);
    const OpId down = rank.copy(second, Copy::Direction::DeviceToHost, Bytes(2'500'000'000));
    const OpId nothing = rank.copy(second, Copy::Direction::DeviceToHost, 0_B);
    const Timeline timeline = simulate({}, {rank});
    expect_exact(span_of(timeline, up).end, 200 * ms);
    expect_exact(span_of(timeline, down).end, 100 * ms);
    expect_exact(span_of(timeline, nothing).start, 100 * ms);
    expect_exact(span_of(timeline, nothing).end, 100 * ms);
  });
}

// Host-bound: each launch costs 10 us of host, each kernel 3 us of device. Kernel i (from 1) is
// issued at 10 i us and ends 3 us later; the last of 100 at 1003 us.
TEST(EngineHost, HostBoundChain) {
  isolated([] {
    RankBuilder rank;
    std::vector<OpId> kernels;
    for (int i = 0; i < 100; ++i) {
      kernels.push_back(rank.kernel(rank.compute, Seconds(2e-6), {}, {}, 10, 1000));
    }
    const Timeline timeline = simulate({}, {rank});
    for (int i = 0; i < 100; ++i) {
      const Span& span = span_of(timeline, kernels[static_cast<std::size_t>(i)]);
      expect_exact(span.issued, (i + 1) * 10 * us);
      expect_exact(span.ready, (i + 1) * 10 * us);
      expect_exact(span.end, (i + 1) * 10 * us + 3 * us);
    }
    expect_exact(timeline.end, 1003 * us);
    ASSERT_EQ(timeline.host_spans.size(), 100U);
    expect_exact(timeline.host_spans[99].start, 990 * us);
    expect_exact(timeline.host_spans[99].end, 1000 * us);
    EXPECT_FALSE(timeline.host_spans[99].waiting);
  });
}

// Device-bound: host 1 us, device 4 us a kernel: the i-th of 50 ends at 1 + 4 i us.
TEST(EngineHost, DeviceBoundChain) {
  isolated([] {
    RankBuilder rank;
    for (int i = 0; i < 50; ++i) {
      rank.kernel(rank.compute, Seconds(4e-6), {}, {}, 1);
    }
    expect_exact(simulate({}, {rank}).end, 201 * us);
  });
}

// The collective (10.05 ms) runs beside the host. StreamWait holds up the stream, not the host:
// kernel A (issued before the wait) 0-1 ms, kernel B waits for the collective and ends at 11.05 ms,
// and the host has done its 7 us of work at 7 us.
TEST(EngineWaits, StreamWaitHoldsTheStreamAndNotTheHost) {
  isolated([] {
    RankBuilder rank;
    const OpId gather = rank.collective(rank.world, 1_GB);
    const OpId a = rank.kernel(rank.compute, kMs);
    rank.stream_wait(rank.compute, {gather});
    const OpId b = rank.kernel(rank.compute, kMs);
    const OpId last = rank.host(7);
    const Timeline timeline = simulate({}, {rank});
    expect_exact(span_of(timeline, a).end, 1 * ms);
    expect_exact(span_of(timeline, b).start, 10.05 * ms);
    expect_exact(span_of(timeline, b).end, 11.05 * ms);
    ASSERT_EQ(timeline.host_spans.size(), 1U);
    EXPECT_EQ(timeline.host_spans[0].op, last);
    expect_exact(timeline.host_spans[0].end, 7 * us);
    EXPECT_EQ(timeline.spans.size(), 3U);  // a StreamWait is not something that runs
  });
}

// HostWait: the host waits 0-10.05 ms, works 7 us, then launches a kernel of 1 ms: 11.057 ms. A
// second wait for the past takes no time.
TEST(EngineWaits, HostWaitBlocksTheHost) {
  isolated([] {
    RankBuilder rank;
    const OpId gather = rank.collective(rank.world, 1_GB);
    const OpId wait = rank.host_wait({gather});
    rank.host_wait({gather});
    rank.host(7);
    const OpId kernel = rank.kernel(rank.compute, kMs);
    const Timeline timeline = simulate({}, {rank});
    expect_exact(span_of(timeline, kernel).issued, 10.057 * ms);
    expect_exact(span_of(timeline, kernel).end, 11.057 * ms);
    ASSERT_EQ(timeline.host_spans.size(), 2U);
    EXPECT_EQ(timeline.host_spans[0].op, wait);
    EXPECT_TRUE(timeline.host_spans[0].waiting);
    expect_exact(timeline.host_spans[0].start, 0);
    expect_exact(timeline.host_spans[0].end, 10.05 * ms);
  });
}

// Throttle (C4.4): before collective i the host waits for collective i - 2. Collectives take 1 ms
// each (100 MB, no delay) one after the other, so collective i (from 0) is issued at (i - 1) ms
// from i = 2 on.
TEST(EngineWaits, ThrottleIsAWaitAFixedNumberOfPlacesBack) {
  isolated([] {
    RankBuilder rank;
    std::vector<OpId> calls;
    for (int i = 0; i < 6; ++i) {
      if (i >= 2) {
        rank.host_wait({calls[static_cast<std::size_t>(i) - 2]});
      }
      calls.push_back(rank.collective(rank.world, Bytes(100'000'000)));
    }
    Figures figures;
    figures.delay = Seconds(0);
    const Timeline timeline = simulate(figures, {rank});
    for (int i = 0; i < 6; ++i) {
      const Span& span = span_of(timeline, calls[static_cast<std::size_t>(i)]);
      expect_exact(span.issued, std::max(0, i - 1) * ms);
      expect_exact(span.start, i * ms);
      expect_exact(span.end, (i + 1) * ms);
    }
  });
}

// Rule 0.3: two streams call the same communicator. The first call waits for kernel A (5 ms) of its
// stream; the second, issued later on an idle stream, waits behind it: 5 -> 15.05 -> 25.1 ms.
TEST(EngineCommunicator, IsFifoAcrossCallingStreams) {
  isolated([] {
    RankBuilder rank;
    const OpId a = rank.kernel(rank.compute, 5 * kMs);
    const OpId first = rank.collective(rank.world, 1_GB, {a});
    const OpId second = rank.collective(rank.world, 1_GB);
    const Timeline timeline = simulate({}, {rank});
    expect_exact(span_of(timeline, first).start, 5 * ms);
    expect_exact(span_of(timeline, first).end, 15.05 * ms);
    expect_exact(span_of(timeline, second).start, 15.05 * ms);
    expect_exact(span_of(timeline, second).end, 25.1 * ms);
  });
}

// One NCCL group: one delay for the summed 1 + 3 GB: 40.05 ms. It starts when the last call is
// issued (2 us each: 4 us). The first has a quarter of the bytes: its span ends at 4 us + 40.05 / 4
// ms. What waits for the first goes on when the kernel ends.
TEST(EngineCommunicator, CoalescedCallsAreOneKernel) {
  isolated([] {
    RankBuilder rank;
    const OpId first = rank.collective(rank.world, 1_GB, {}, 2, CollectiveKind::AllGather, 7);
    const OpId second = rank.collective(rank.world, 3_GB, {}, 2, CollectiveKind::AllGather, 7);
    const OpId kernel = rank.kernel(rank.compute, kMs, {}, {first});
    const OpId alone = rank.collective(rank.world, 1_GB, {}, 0, CollectiveKind::AllGather, 8);
    const Timeline timeline = simulate({}, {rank});
    expect_exact(span_of(timeline, first).start, 4 * us);
    expect_exact(span_of(timeline, first).end, 4 * us + 10.0125 * ms);
    expect_exact(span_of(timeline, second).start, 4 * us + 10.0125 * ms);
    expect_exact(span_of(timeline, second).end, 4 * us + 40.05 * ms);
    expect_exact(span_of(timeline, kernel).start, 4 * us + 40.05 * ms);
    expect_exact(span_of(timeline, alone).end, 4 * us + 50.1 * ms);
  });
}

// NCCL chooses for the whole of a group: 40 gathers of 100 kB would each go with LL (13.5 us of
// latency at least, 40 times the launch floor); the group of 4 MB is one Simple or LL128 kernel.
TEST(EngineCommunicator, CoalescedCallsAreChosenForTheirTotal) {
  isolated([] {
    const Cluster cluster = load_cluster("dgx-a100-80", 1);
    const CollectiveCost one =
        collective_cost(cluster, CollectiveOp::AllGather, Bytes(100'000), {8, 1});
    const CollectiveCost all =
        collective_cost(cluster, CollectiveOp::AllGather, Bytes(4'000'000), {8, 1});
    EXPECT_EQ(one.protocol, Protocol::LowLatency);
    EXPECT_NE(all.protocol, Protocol::LowLatency);
    RankBuilder rank;
    OpId last;
    for (int i = 0; i < 40; ++i) {
      last = rank.collective(rank.world, Bytes(100'000), {}, 0, CollectiveKind::AllGather,
                             /*group=*/3);
    }
    Program program = program_of({rank});
    Engine engine(cluster);
    const Timeline timeline = engine.run(program);
    expect_exact(span_of(timeline, last).end, all.idle_time(cluster).count());
    EXPECT_LT(all.idle_time(cluster) * 10, one.idle_time(cluster) * 40);
  });
}

// Class 1 computes 3 ms before, class 0 is there at once: both start at 3 ms and end at 13.05 ms.
TEST(EngineCommunicator, StartsWithItsLastMember) {
  isolated([] {
    RankBuilder fast(0);
    RankBuilder slow(1);
    const OpId fast_call = fast.collective(fast.world, 1_GB);
    const OpId work = slow.kernel(slow.compute, 3 * kMs);
    const OpId slow_call = slow.collective(slow.world, 1_GB, {work});
    Figures figures;
    const Timeline timeline = simulate(figures, {fast, slow});
    for (const auto& [op, rank_class] : {std::pair(fast_call, 0), std::pair(slow_call, 1)}) {
      const Span& span = span_of(timeline, op, rank_class);
      expect_exact(span.ready, 3 * ms);
      expect_exact(span.start, 3 * ms);
      expect_exact(span.end, 13.05 * ms);
    }
  });
}

// A group of one rank: nothing but its place in the stream.
TEST(EngineCommunicator, OneRankTakesNoTime) {
  isolated([] {
    RankBuilder rank;
    const OpId call = rank.collective(rank.world, 1_GB, {}, 3);
    Program program = program_of({rank});
    program.groups[0].size = 1;
    Engine engine(test_cluster({}), options_of({}));
    const Timeline timeline = engine.run(program);
    expect_exact(span_of(timeline, call).start, 3 * us);
    expect_exact(span_of(timeline, call).end, 3 * us);
  });
}

// Depth 2, host free of cost, kernels of 1 ms. Unready at most 2: kernel 0 is ready at once, 1 and
// 2 are queued, the launch of 3 blocks until 1 is ready (1 ms), that of 4 until 2 ms.
TEST(EngineHost, FullLaunchQueueBlocksTheHost) {
  isolated([] {
    RankBuilder rank;
    std::vector<OpId> kernels;
    for (int i = 0; i < 5; ++i) {
      kernels.push_back(rank.kernel(rank.compute, kMs));
    }
    Figures figures;
    figures.launch_queue_depth = 2;
    const Timeline timeline = simulate(figures, {rank});
    const double issued[] = {0, 0, 0, 1 * ms, 2 * ms};
    for (std::size_t i = 0; i < 5; ++i) {
      expect_exact(span_of(timeline, kernels[i]).issued, issued[i]);
    }
    expect_exact(timeline.end, 5 * ms);
    ASSERT_EQ(timeline.host_spans.size(), 2U);
    EXPECT_EQ(timeline.host_spans[0].op, kernels[3]);
    EXPECT_TRUE(timeline.host_spans[0].waiting);
    expect_exact(timeline.host_spans[0].end, 1 * ms);
    expect_exact(timeline.host_spans[1].start, 1 * ms);
  });
}

// The same with kernels of three launches and room for six: two of them wait in the queue.
TEST(EngineHost, EachLaunchTakesItsPlaceInTheQueue) {
  isolated([] {
    RankBuilder rank;
    std::vector<OpId> kernels;
    for (int i = 0; i < 4; ++i) {
      kernels.push_back(rank.kernel(rank.compute, kMs));
    }
    Program program = program_of({rank});
    for (Kernel& kernel : program.ranks[0].kernels) kernel.launches = 3;
    Figures figures;
    figures.launch_queue_depth = 6;
    Engine engine(test_cluster(figures), options_of(figures));
    const Timeline timeline = engine.run(program);
    const double issued[] = {0, 0, 0, 1 * ms};
    for (std::size_t i = 0; i < 4; ++i) {
      expect_exact(span_of(timeline, kernels[i]).issued, issued[i]);
    }
  });
}

class FixedCosts final : public AllocationObserver {
 public:
  Seconds on_allocate(int, BufferId, const Buffer& buffer, const Op&, Seconds now) override {
    calls.emplace_back(buffer.bytes, now);
    return Seconds(10e-6);
  }
  Seconds on_free(int, BufferId, const Buffer& buffer, const Op&, Seconds now) override {
    calls.emplace_back(buffer.bytes, now);
    return Seconds(1e-6);
  }
  std::vector<std::pair<Bytes, Seconds>> calls;
};

// 5 us of work, an allocation of 10 us, a kernel of 1 ms issued at 15 us, a wait until 1.015 ms, a
// free.
TEST(EngineHost, AllocationsCostWhatTheObserverSays) {
  isolated([] {
    RankBuilder rank;
    rank.host(5);
    const BufferId buffer = rank.allocate(64_MiB);
    const OpId kernel = rank.kernel(rank.compute, kMs);
    rank.host_wait({kernel});
    rank.free(buffer);
    FixedCosts costs;
    const Timeline timeline = simulate({}, {rank}, &costs);
    ASSERT_EQ(costs.calls.size(), 2U);
    EXPECT_EQ(costs.calls[0].first, 64_MiB);
    expect_exact(costs.calls[0].second, 5 * us);
    expect_exact(span_of(timeline, kernel).issued, 15 * us);
    expect_exact(costs.calls[1].second, 1.015 * ms);
    expect_exact(timeline.end, 1.016 * ms);
  });
}

// ---- With contention ---------------------------------------------------------------------------

// Two communicators share a link of 100 GB/s: 1 GB and 2 GB start at once, each at 50 GB/s until
// the first has ended after 20 ms; 1 GB is left, at 100 GB/s: 30 ms. No delay.
TEST(EngineSharing, TwoCommunicatorsShareALinkEqually) {
  isolated([] {
    RankBuilder rank;
    const OpId small = rank.collective(rank.world, 1_GB);
    const OpId large = rank.collective(rank.other, 2_GB);
    Figures figures;
    figures.delay = Seconds(0);
    const Timeline timeline = simulate(figures, {rank});
    expect_shared(span_of(timeline, small).end, 20 * ms);
    expect_shared(span_of(timeline, large).end, 30 * ms);
  });
}

// HBM probe of design.md section 3. The collective (1 GB on the link, 6 GB of HBM) starts after 50
// us and runs at the link's rate for 10 ms, drawing 600 of 3000 GB/s. The kernel (5 ms of SMs, 30
// GB) draws 3000 GB/s for 50 us (0.15 GB), 2400 GB/s for 10 ms (24 GB), then 3000 for the last 5.85
// GB: 1.95 ms. Collective: 10.05 ms; kernel: 0.05 + 10 + 1.95 = 12 ms.
TEST(EngineSharing, HbmProbe) {
  isolated([] {
    RankBuilder rank;
    const OpId kernel = rank.kernel(rank.compute, 5 * kMs, 30_GB);
    const OpId call = rank.collective(rank.world, 1_GB);
    Figures figures;
    figures.memory_bytes_per_byte = 6;
    const Timeline timeline = simulate(figures, {rank});
    expect_shared(span_of(timeline, call).end, 10.05 * ms);
    expect_shared(span_of(timeline, kernel).end, 12.0 * ms);
  });
}

// SM probe. A collective of 0.5 GB holds 27 of 108 SMs from its launch at 0 until its end at 50 us
// + 5 ms = 5.05 ms. A kernel of 10 ms (all SMs) runs at 3/4: it has done 3.7875 ms by then, 6.2125
// ms are left: 11.2625 ms.
TEST(EngineSharing, SmOccupancyProbe) {
  isolated([] {
    RankBuilder rank;
    const OpId kernel = rank.kernel(rank.compute, 10 * kMs);
    const OpId call = rank.collective(rank.world, Bytes(500'000'000));
    Figures figures;
    figures.ctas = 27;
    const Timeline timeline = simulate(figures, {rank});
    expect_shared(span_of(timeline, call).end, 5.05 * ms);
    expect_shared(span_of(timeline, kernel).end, 11.2625 * ms);
  });
}

// Two communicators hold 27 SMs each: 1 GB and 1 GB share the link until 20 ms. A kernel of 10 ms
// at 1/2 ends at 20 ms with them; one of 15 ms has 5 ms left: 25 ms.
TEST(EngineSharing, ConcurrentCollectivesAddTheirSms) {
  isolated([] {
    RankBuilder rank;
    const OpId kernel = rank.kernel(rank.compute, 15 * kMs);
    rank.collective(rank.world, 1_GB);
    rank.collective(rank.other, 1_GB);
    Figures figures;
    figures.ctas = 27;
    figures.delay = Seconds(0);
    expect_shared(span_of(simulate(figures, {rank}), kernel).end, 25 * ms);
  });
}

// More CTAs than SMs: one SM of 108 is left. 10 us kernel beside a collective of 10 ms: 1.08 ms.
TEST(EngineSharing, OneSmIsLeft) {
  isolated([] {
    RankBuilder rank;
    const OpId kernel = rank.kernel(rank.compute, Seconds(10e-6));
    rank.collective(rank.world, 1_GB);
    Figures figures;
    figures.ctas = 200;
    figures.delay = Seconds(0);
    expect_shared(span_of(simulate(figures, {rank}), kernel).end, 1.08 * ms);
  });
}

// SMs are held while waiting: class 0 launches at 0 and waits for class 1, which arrives after 4 ms
// of compute; the collective ends at 14 ms. Class 0's kernel of 10 ms runs at 3/4 from 0: 13.333
// ms. Class 1's kernel of 4 ms is alone; its next one of 3 ms starts at 4 ms, at 3/4: 8 ms.
TEST(EngineSharing, SmsAreHeldFromOwnReadiness) {
  isolated([] {
    RankBuilder early(0);
    RankBuilder late(1);
    const OpId beside = early.kernel(early.compute, 10 * kMs);
    early.collective(early.world, 1_GB);
    const OpId before = late.kernel(late.compute, 4 * kMs);
    const OpId call = late.collective(late.world, 1_GB, {before});
    const OpId after = late.kernel(late.compute, 3 * kMs);
    Figures figures;
    figures.ctas = 27;
    figures.delay = Seconds(0);
    const Timeline timeline = simulate(figures, {early, late});
    expect_shared(span_of(timeline, beside).end, 40.0 / 3 * ms);
    expect_shared(span_of(timeline, before, 1).end, 4 * ms);
    expect_shared(span_of(timeline, after, 1).end, 8 * ms);
    expect_shared(span_of(timeline, call, 1).end, 14 * ms);
  });
}

// Host-bound launches of collectives hold their SMs from the instant of issue, not before: the
// kernel of 1 ms is alone for 500 us, then the collective (issued at 500 us, 27 SMs) slows it to
// 3/4: 0.5 + 2/3 ms.
TEST(EngineSharing, SmsAreNotHeldBeforeTheLaunch) {
  isolated([] {
    RankBuilder rank;
    const OpId kernel = rank.kernel(rank.compute, kMs);
    rank.collective(rank.world, 1_GB, {}, 500);
    Figures figures;
    figures.ctas = 27;
    expect_shared(span_of(simulate(figures, {rank}), kernel).end, (0.5 + 2.0 / 3) * ms);
  });
}

// Two kernels on two streams share the SMs: 1 ms and 2 ms: 2 ms and 3 ms.
TEST(EngineSharing, StreamsShareTheSms) {
  isolated([] {
    RankBuilder rank;
    const StreamId second = rank.stream("second");
    const OpId a = rank.kernel(rank.compute, kMs);
    const OpId b = rank.kernel(second, 2 * kMs);
    const Timeline timeline = simulate({}, {rank});
    expect_shared(span_of(timeline, a).end, 2 * ms);
    expect_shared(span_of(timeline, b).end, 3 * ms);
  });
}

// A collective runs at the rate of its slowest link in any class. Class 1 uploads 5 GB and
// downloads nothing, so its memory is free; class 0's kernel of 30 GB (no arithmetic) shares HBM
// with the collective, whose 30 GB of HBM a GB of payload want 3000 GB/s: equal shares of 1500
// GB/s. Kernel: 20 ms; the collective has moved 1 GB by then: also 20 ms.
TEST(EngineSharing, CollectiveGoesAtTheRateOfItsSlowestMember) {
  isolated([] {
    RankBuilder busy(0);
    RankBuilder idle(1);
    const OpId kernel = busy.kernel(busy.compute, Seconds(0), 30_GB);
    const OpId call = busy.collective(busy.world, 1_GB);
    idle.collective(idle.world, 1_GB);
    Figures figures;
    figures.delay = Seconds(0);
    figures.memory_bytes_per_byte = 30;
    const Timeline timeline = simulate(figures, {busy, idle});
    expect_shared(span_of(timeline, kernel).end, 20 * ms);
    expect_shared(span_of(timeline, call).end, 20 * ms);
  });
}

// ---- Runs --------------------------------------------------------------------------------------

RankBuilder mixed_rank(bool swapped) {
  RankBuilder rank;
  const StreamId second = rank.stream("second");
  for (int i = 0; i < 20; ++i) {
    const Seconds a(1e-4 * (i % 7 + 1));
    const Seconds b(1.3e-4 * (i % 5 + 1));
    if (swapped) {
      rank.kernel(second, b, 200_MiB);
      rank.kernel(rank.compute, a, 100_MiB);
      rank.collective(rank.other, Bytes(3'000'000 * (i + 1)));
      rank.collective(rank.world, Bytes(5'000'000 * (i + 1)));
    } else {
      rank.collective(rank.world, Bytes(5'000'000 * (i + 1)));
      rank.kernel(rank.compute, a, 100_MiB);
      rank.collective(rank.other, Bytes(3'000'000 * (i + 1)));
      rank.kernel(second, b, 200_MiB);
    }
  }
  return rank;
}

Figures mixed_figures() {
  Figures figures;
  figures.ctas = 20;
  figures.memory_bytes_per_byte = 3;
  return figures;
}

// Runs do not influence each other; times are differences of one clock.
TEST(EngineRuns, RepeatExactly) {
  isolated([] {
    const Program program = program_of({mixed_rank(false)});
    Engine engine(test_cluster(mixed_figures()), options_of(mixed_figures()));
    const Timeline first = engine.run(program);
    EXPECT_GT(first.end.count(), 5e-3);
    for (int i = 0; i < 50; ++i) {
      const Timeline again = engine.run(program);
      ASSERT_EQ(again.spans.size(), first.spans.size());
      for (const Span& span : first.spans) {  // equal starts may change places in the last bits
        EXPECT_NEAR(span_of(again, span.op).start.count(), span.start.count(), 1e-14);
        EXPECT_NEAR(span_of(again, span.op).end.count(), span.end.count(), 1e-14);
      }
      EXPECT_EQ(fingerprint(again), fingerprint(first));
    }
  });
}

// Independent streams, host without cost: the order of issue does not matter.
TEST(EngineRuns, FingerprintDoesNotDependOnOrderOfIssue) {
  isolated([] {
    Engine engine(test_cluster(mixed_figures()), options_of(mixed_figures()));
    const Timeline a = engine.run(program_of({mixed_rank(false)}));
    const Timeline b = engine.run(program_of({mixed_rank(true)}));
    EXPECT_EQ(fingerprint(a), fingerprint(b));
    Timeline changed = b;
    changed.spans.back().end += Seconds(1e-9);
    EXPECT_NE(fingerprint(a), fingerprint(changed));
  });
}

TEST(EngineRuns, SecondEngineInAProcessIsRefused) {
  isolated([] {
    {
      const Engine first(test_cluster({}), options_of({}));
      EXPECT_THROW(Engine(test_cluster({}), options_of({})), SimulationError);
    }
    EXPECT_THROW(Engine(test_cluster({}), options_of({})), SimulationError);
  });
}

TEST(EngineRuns, ChildGoesOnWithTheInheritedEngine) {
  isolated([] {
    RankBuilder rank;
    rank.collective(rank.world, 1_GB);
    const Program program = program_of({rank});
    Engine engine(test_cluster({}), options_of({}));
    expect_exact(engine.run(program).end, 10.05 * ms);
    isolated([&] {
      expect_exact(engine.run(program).end, 10.05 * ms);
      EXPECT_THROW(Engine(test_cluster({}), options_of({})), SimulationError);
    });
  });
}

// ---- Errors ------------------------------------------------------------------------------------

template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const SimulationError& error) {
    return error.what();
  }
  return "no error";
}

TEST(EngineErrors, MismatchedCollectivesNameBoth) {
  isolated([] {
    RankBuilder a(0);
    RankBuilder b(4);
    a.collective(a.world, 1_GB);
    b.collective(b.world, 2_GB);
    Figures figures;
    Engine engine(test_cluster(figures), options_of(figures));
    EXPECT_EQ(
        error_of([&] {
          (void)engine.run(program_of({a, b}));
        }),
        "rank classes disagree about a collective on \"WORLD\": rank class 0 calls operation 0 "
        "(all_reduce of 1000000000 bytes, stream \"nccl:WORLD\") of rank class 0 (rank 0), rank "
        "class 1 calls operation 0 (all_reduce of 2000000000 bytes, stream \"nccl:WORLD\") of "
        "rank class 1 (rank 4)");
    RankBuilder c(4);
    c.collective(c.world, 1_GB, {}, 0, CollectiveKind::Broadcast);
    EXPECT_THAT(error_of([&] {
                  (void)engine.run(program_of({a, c}));
                }),
                HasSubstr("rank class 1 calls operation 0 (broadcast of 1000000000 bytes"));
    RankBuilder d(4);
    d.collective(d.world, 1_GB);
    d.collective(d.world, 1_GB);
    EXPECT_THAT(error_of([&] {
                  (void)engine.run(program_of({a, d}));
                }),
                HasSubstr("rank class 0 has no such collective, rank class 1 calls operation 1"));
    EXPECT_THAT(error_of([&] {
                  (void)engine.run(program_of({a, RankBuilder(4)}));
                }),
                HasSubstr("rank class 1 (rank 4) has no such collective"));
    // The engine is usable afterwards.
    expect_exact(engine.run(program_of({a, a})).end, 10.05 * ms);
  });
}

// Two classes call two communicators in opposite orders and wait in between.
TEST(EngineErrors, DeadlockNamesWhoWaitsForWhat) {
  isolated([] {
    RankBuilder a(0);
    RankBuilder b(4);
    a.host_wait({a.collective(a.world, 1_GB)});
    a.collective(a.other, 1_GB);
    b.host_wait({b.collective(b.other, 1_GB)});
    b.collective(b.world, 1_GB);
    Figures figures;
    figures.ctas = 27;
    Engine engine(test_cluster(figures), options_of(figures));
    EXPECT_EQ(
        error_of([&] {
          (void)engine.run(program_of({a, b}));
        }),
        "the simulation stops at 0 s although operations are left: operation 0 (all_reduce of "
        "1000000000 bytes, stream \"nccl:WORLD\") of rank class 0 (rank 0) waits for operation "
        "2 (all_reduce of 1000000000 bytes, stream \"nccl:WORLD\") of rank class 1 (rank 4), "
        "which is not launched: its host thread is at operation 1 (host_wait) of rank class 1 "
        "(rank 4)");
    // SMs that were held are free again: 10 ms of kernel take 10 ms.
    RankBuilder c;
    c.kernel(c.compute, 10 * kMs);
    expect_exact(engine.run(program_of({c})).end, 10 * ms);
  });
}

class Refuses final : public AllocationObserver {
 public:
  Seconds on_allocate(int, BufferId, const Buffer&, const Op&, Seconds) override {
    throw SimulationError("out of memory");
  }
  Seconds on_free(int, BufferId, const Buffer&, const Op&, Seconds) override { return Seconds(0); }
};

TEST(EngineErrors, ObserversMayThrowInTheMiddleOfARun) {
  isolated([] {
    RankBuilder rank;
    rank.kernel(rank.compute, 5 * kMs);
    rank.host_wait({rank.collective(rank.world, 1_GB)});
    rank.allocate(1_GiB);
    Engine engine(test_cluster({}), options_of({}));
    Refuses observer;
    EXPECT_EQ(error_of([&] { (void)engine.run(program_of({rank}), &observer); }), "out of memory");
    expect_exact(engine.run(program_of({rank})).end, 10.05 * ms);
  });
}

/// A link of no rate stands a collective still for ever.
Folding without_rate(const Cluster& cluster, const Program& program) {
  Folding folding = fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Exact);
  for (FoldedLink& link : folding.links) link.capacity = BytesPerSecond(0);
  return folding;
}

// What stands still holds no SMs of the next run and does not end in it.
TEST(EngineErrors, WhatAFailedRunLeavesIsGone) {
  isolated([] {
    Figures figures;
    figures.ctas = 27;
    const Cluster cluster = test_cluster(figures);
    RankBuilder rank;
    rank.kernel(rank.compute, 10 * kMs);
    RankBuilder stuck;
    stuck.collective(stuck.world, 1_GB);
    Engine engine(cluster, options_of(figures));
    const Program program = program_of({stuck});
    EXPECT_THAT(error_of([&] { (void)engine.run(program, without_rate(cluster, program)); }),
                HasSubstr("waits for its end"));
    expect_exact(engine.run(program_of({rank})).end, 10 * ms);
    // Before the clock moves: a kernel has started already.
    rank.allocate(1_GiB);
    Refuses observer;
    EXPECT_EQ(error_of([&] { (void)engine.run(program_of({rank}), &observer); }), "out of memory");
    expect_exact(engine.run(program_of({rank})).end, 10 * ms);
  });
}

// SimGrid's exit handler crashes on activities that are alive.
TEST(EngineErrors, TheProcessExitsAfterARunThatStandsStill) {
  const auto stands_still = [] {
    RankBuilder stuck;
    stuck.collective(stuck.world, 1_GB);
    const Cluster cluster = test_cluster();
    const Program program = program_of({stuck});
    const std::string error = error_of([&] {
      Engine engine(cluster, options_of({}));
      (void)engine.run(program, without_rate(cluster, program));
    });
    std::exit(error.find("waits for its end") == std::string::npos ? 1 : 0);
  };
  EXPECT_EXIT(stands_still(), ::testing::ExitedWithCode(0), "");
}

TEST(EngineErrors, RoomAndLinks) {
  isolated([] {
    EngineOptions options = options_of({});
    options.rank_classes = 1;
    options.links = 4;
    Cluster bare = test_cluster();
    bare.node.nccl.ring_channels = 0;
    bare.node.host_link = {};
    Engine engine(bare, options);
    RankBuilder rank;
    const Program alone = program_of({rank});
    static_cast<void>(engine.run(alone));
    EXPECT_EQ(error_of([&] {
                (void)engine.run(program_of({rank, rank}));
              }),
              "the program has 2 rank classes and 2 links, the engine has room for 1 and 4 since "
              "its first run");
    rank.collective(rank.world, 1_GB);
    EXPECT_EQ(error_of([&] { (void)engine.run(program_of({rank})); }),
              "the cluster has no link for what a collective loads");
    RankBuilder copy;
    copy.copy(copy.compute, Copy::Direction::HostToDevice, 1_GB);
    EXPECT_EQ(error_of([&] { (void)engine.run(program_of({copy})); }),
              "the cluster has no link for copies between host and device");
    Program large = program_of({RankBuilder()});
    large.world_size = 16;
    EXPECT_EQ(error_of([&] { (void)engine.run(large); }),
              "the program is for 16 ranks, the cluster \"test\" has 8");
    RankBuilder late;
    late.host(1);
    Program other_step = program_of({late});
    other_step.first_step = 2;
    EXPECT_EQ(error_of([&] { (void)engine.run(other_step); }),
              "operation 0 belongs to step 0, the program has 1 from 2 on");
  });
}

// ---- A real cluster ----------------------------------------------------------------------------

// On a preset the engine adds nothing to the cost model: an idle collective takes its idle time,
// plus 20 us until the host has launched it.
TEST(EngineIdle, CollectiveOnAPresetTakesItsIdleTime) {
  for (const int nodes : {1, 4}) {
    isolated([nodes] {
      const Cluster cluster = load_cluster("dgx-a100-80", nodes);
      Engine engine(cluster);
      for (const std::int64_t elements : {1'000LL, 4'000'000LL, 500'000'000LL}) {
        RankBuilder rank;
        const OpId call =
            rank.collective(rank.world, Bytes(elements), {}, 0, CollectiveKind::AllGather);
        Program program = program_of({rank});
        program.world_size = cluster.world_size();
        program.groups[0].size = cluster.world_size();
        program.ranks[0].ops[0].host_work = HostWork::CollectiveLaunch;
        program.ranks[0].ops[0].host_count = 1;
        const Timeline timeline = engine.run(program);
        const CollectiveCost cost = collective_cost(cluster, CollectiveOp::AllGather,
                                                    Bytes(elements), {cluster.world_size(), nodes});
        expect_exact(span_of(timeline, call).start, 20 * us);
        expect_exact(span_of(timeline, call).end, 20 * us + cost.idle_time(cluster).count());
      }
    });
  }
}

}  // namespace
}  // namespace zerosim::testing
