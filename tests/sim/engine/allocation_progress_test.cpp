/// What an observer may ask of the device, and when host threads stand still for it (E7.8, E7.9).
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {
namespace {

using namespace literals;
using State = DeviceProgress::State;

constexpr double us = 1e-6;
constexpr double ms = 1e-3;
constexpr Seconds kMs{1e-3};

/// Asks about the operations that frees depend on, at every allocation.
class Asks : public AllocationObserver {
 public:
  explicit Asks(const Program& program) : program_(&program) {}

  Seconds on_allocate(int, BufferId, const Buffer&, const Op&, Seconds now) override {
    allocations.emplace_back(now, states_);
    return cost;
  }
  Seconds on_free(int rank_class, BufferId, const Buffer&, const Op& op, Seconds) override {
    const RankProgram& rank = program_->ranks[static_cast<std::size_t>(rank_class)];
    for (const OpId event : rank.dependencies_of(op)) events_.push_back(event);
    return Seconds(0);
  }
  bool poll_device(int, const DeviceProgress& progress) override {
    ++polls;
    states_.clear();
    bool known = true;
    for (const OpId event : events_) {
      states_.push_back(progress.state(event));
      known = known && states_.back() != State::Unknown;
    }
    return known;
  }
  [[nodiscard]] bool synchronized(int) const override { return synchronizes; }

  std::vector<std::pair<Seconds, std::vector<State>>> allocations;
  int polls = 0;
  bool synchronizes = false;
  Seconds cost{0};

 private:
  const Program* program_;
  std::vector<OpId> events_;
  std::vector<State> states_;
};

Timeline simulate(const Program& program, AllocationObserver& observer) {
  Engine engine(test_cluster({}), options_of({}));
  return engine.run(program, &observer);
}

// A kernel of 1 ms from 0 on, a free that it holds back, then allocations at 0.9 and 1.1 ms of the
// host, which never waits and is therefore walked ahead of the device. It polls once at 0, where
// nothing is asked, and twice where the answer is not known.
TEST(AllocationProgress, TellsWhatHasEndedAtTheHostsPresent) {
  isolated([] {
    RankBuilder rank;
    const BufferId buffer = rank.allocate(1_MiB);
    const OpId kernel = rank.kernel(rank.compute, kMs);
    rank.free(buffer, {kernel});
    rank.host(900);
    rank.allocate(1_MiB);
    rank.host(200);
    rank.allocate(1_MiB);
    const Program program = program_of({rank});
    Asks asks(program);
    const Timeline timeline = simulate(program, asks);
    ASSERT_EQ(asks.allocations.size(), 3U);
    EXPECT_TRUE(asks.allocations[0].second.empty());
    expect_exact(asks.allocations[1].first, 0.9 * ms);
    EXPECT_EQ(asks.allocations[1].second, std::vector<State>{State::Running});
    expect_exact(asks.allocations[2].first, 1.1 * ms);
    EXPECT_EQ(asks.allocations[2].second, std::vector<State>{State::Ended});
    EXPECT_EQ(asks.polls, 5);
    expect_exact(timeline.end, 1.1 * ms);  // a free delays nothing
  });
}

// A stream wait behind a kernel of 1 ms ends with it, and so does a collective that waits for it
// later: 1 ms + 50 us + 1 GB / 100 GB/s = 11.05 ms.
TEST(AllocationProgress, KnowsWaitsAndCollectives) {
  isolated([] {
    RankBuilder rank;
    const StreamId side = rank.stream("side");
    const BufferId buffer = rank.allocate(1_MiB);
    const OpId kernel = rank.kernel(rank.compute, kMs);
    const OpId wait = rank.stream_wait(side, {kernel});
    const OpId gather = rank.collective(rank.world, 1_GB, {wait});
    rank.free(buffer, {wait, gather});
    for (const int microseconds : {500, 1000, 9500, 1000}) {  // 0.5, 1.5, 11 and 12 ms
      rank.host(microseconds);
      rank.allocate(1_MiB);
    }
    const Program program = program_of({rank});
    Asks asks(program);
    (void)simulate(program, asks);
    using States = std::vector<State>;
    ASSERT_EQ(asks.allocations.size(), 5U);
    EXPECT_EQ(asks.allocations[1].second, (States{State::Running, State::Running}));
    EXPECT_EQ(asks.allocations[2].second, (States{State::Ended, State::Running}));
    EXPECT_EQ(asks.allocations[3].second, (States{State::Ended, State::Running}));
    EXPECT_EQ(asks.allocations[4].second, (States{State::Ended, State::Ended}));
  });
}

// Kernels of 1 and 3 ms on two streams share the SMs: they end at 2 and 4 ms. The allocation, at 10
// us, waits for both and then takes 100 us: the next kernel is issued at 4.1 ms.
TEST(AllocationProgress, ASynchronizingAllocationWaitsForAnIdleDevice) {
  isolated([] {
    RankBuilder rank;
    const StreamId side = rank.stream("side");
    rank.kernel(rank.compute, kMs);
    rank.kernel(side, 3 * kMs);
    rank.host(10);
    rank.allocate(1_MiB);
    const OpId next = rank.kernel(rank.compute, kMs);
    const Program program = program_of({rank});
    Asks asks(program);
    asks.synchronizes = true;
    asks.cost = Seconds(100 * us);
    const Timeline timeline = simulate(program, asks);
    expect_exact(asks.allocations[0].first, 10 * us);
    expect_exact(span_of(timeline, next).issued, 4.1 * ms);
    ASSERT_EQ(timeline.host_spans.size(), 3U);
    EXPECT_TRUE(timeline.host_spans[1].waiting);
    expect_exact(timeline.host_spans[1].end, 4 * ms);
    expect_exact(timeline.host_spans[2].end, 4.1 * ms);
  });
}

// With an idle device there is nothing to wait for.
TEST(AllocationProgress, ASynchronizingAllocationOfAnIdleDeviceOnlyCosts) {
  isolated([] {
    RankBuilder rank;
    rank.host(10);
    rank.allocate(1_MiB);
    const Program program = program_of({rank});
    Asks asks(program);
    asks.synchronizes = true;
    asks.cost = Seconds(100 * us);
    expect_exact(simulate(program, asks).end, 110 * us);
  });
}

// Rank class 1 arrives late at the collective that the flush of rank class 0 waits for: 5 ms + 50
// us + 10 ms.
TEST(AllocationProgress, AFlushWaitsForTheOtherRanks) {
  isolated([] {
    RankBuilder early;
    early.collective(early.world, 1_GB);
    early.allocate(1_MiB);
    const OpId next = early.kernel(early.compute, kMs);
    RankBuilder late(4);
    late.host(5000);
    late.collective(late.world, 1_GB);
    const Program program = program_of({early, late});
    Asks asks(program);
    asks.synchronizes = true;
    Figures figures;
    Engine engine(test_cluster(figures), options_of(figures));
    const Timeline timeline = engine.run(program, &asks);
    expect_exact(span_of(timeline, next).issued, 15.05 * ms);
  });
}

// Without an observer, and with one that does not ask, a recorded free changes nothing.
TEST(AllocationProgress, RecordedFreesAreFreeOfCharge) {
  isolated([] {
    const auto program = [](bool recorded) {
      RankBuilder rank;
      const BufferId buffer = rank.allocate(1_MiB);
      const OpId kernel = rank.kernel(rank.compute, kMs);
      rank.free(buffer, recorded ? std::vector<OpId>{kernel} : std::vector<OpId>{});
      rank.host(10);
      rank.kernel(rank.compute, kMs);
      return program_of({rank});
    };
    Engine engine(test_cluster({}), options_of({}));
    const std::uint64_t expected = fingerprint(engine.run(program(false)));
    EXPECT_EQ(fingerprint(engine.run(program(true))), expected);
  });
}

}  // namespace
}  // namespace zerosim::testing
