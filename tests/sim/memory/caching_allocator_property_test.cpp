/// Random sequences of allocations and frees on several streams, with events that complete in the
/// order of their streams: what `broken_invariant` says holds after every call.
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/memory/caching_allocator.h"
#include "tests/sim/memory/allocator_invariants.h"

namespace zerosim {
namespace {

constexpr int kStreams = 3;
constexpr int kCalls = 400;
constexpr Bytes kCapacity = 700_MiB;

constexpr const char* kConfs[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:21,max_non_split_rounding_mb:30,roundup_power2_divisions:4",
    "garbage_collection_threshold:0.4,per_process_memory_fraction:0.8",
    "expandable_segments:True,max_split_size_mb:40,per_process_memory_fraction:0.6",
    "roundup_power2_divisions:[1:2,16:8,>:16]",
};

class Driver {
 public:
  Driver(std::uint64_t seed, const std::string& conf)
      : random_(seed), allocator_({kCapacity, 20_MiB, parse_alloc_conf(conf)}) {}

  void step() {
    if (below(3) == 0 && !live_.empty()) {
      free();
    } else if (below(40) == 0) {
      allocator_.empty_cache();
    } else {
      allocate();
    }
    ASSERT_EQ(testing::broken_invariant(allocator_), "");
    check_live();
  }

  void free_all() {
    while (!live_.empty()) free();
    allocator_.empty_cache();
  }

  [[nodiscard]] const CachingAllocator& allocator() const { return allocator_; }
  [[nodiscard]] int failures() const { return failures_; }
  [[nodiscard]] int flushes() const { return flushes_; }

 private:
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }

  /// From bytes to 90 MiB, small ones as often as large ones.
  Bytes size() {
    const std::int64_t limit = std::int64_t{1} << (4 + below(23));
    return Bytes(1 + below(limit) + (below(8) == 0 ? below(90 << 20) : 0));
  }

  void allocate() {
    for (std::int64_t& done : done_) done += below(3);
    EXPECT_TRUE(allocator_.poll_events([&](OpId event) {
      return event.value() / kStreams < done_[static_cast<std::size_t>(event.value() % kStreams)]
                 ? EventState::Completed
                 : EventState::Pending;
    }));
    const Bytes request = size();
    const Allocation allocation =
        allocator_.allocate(request, StreamId(static_cast<std::int32_t>(below(kStreams))));
    flushes_ += allocation.flushed ? 1 : 0;
    if (allocation.out_of_memory) {
      ++failures_;
      return;
    }
    EXPECT_GE(allocation.size, request);
    live_.push_back({allocation.block, request});
    requested_ += request;
  }

  /// The events of stream s are numbered s, s + kStreams, ...
  void free() {
    const auto index = static_cast<std::size_t>(below(static_cast<std::int64_t>(live_.size())));
    std::vector<StreamEvent> events;
    for (int s = 0; s < kStreams; ++s) {
      if (below(4) == 0) {
        const auto number = recorded_[static_cast<std::size_t>(s)]++;
        events.push_back(
            {StreamId(std::int32_t{s}), OpId(static_cast<std::int32_t>(number * kStreams + s))});
      }
    }
    allocator_.free(live_[index].block, events);
    requested_ -= live_[index].request;
    live_[index] = live_.back();
    live_.pop_back();
  }

  /// No two live blocks are one, and each is as large as asked for.
  void check_live() {
    std::map<std::int32_t, int> seen;
    Bytes sum;
    for (const Live& live : live_) {
      ASSERT_EQ(++seen[live.block.value()], 1);
      ASSERT_GE(allocator_.size(live.block), live.request);
      sum += allocator_.size(live.block);
    }
    const AllocatorStats& stats = allocator_.stats();
    ASSERT_EQ(stats.allocated.current, sum);
    ASSERT_GE(stats.allocated.current, requested_);
    ASSERT_GE(stats.active.current, stats.allocated.current);
    ASSERT_GE(stats.reserved.current, stats.active.current);
    ASSERT_LE(stats.reserved.current, kCapacity - 20_MiB);
  }

  struct Live {
    BlockId block;
    Bytes request;
  };

  std::mt19937_64 random_;
  CachingAllocator allocator_;
  std::vector<Live> live_;
  Bytes requested_;
  std::array<std::int64_t, kStreams> recorded_{};
  std::array<std::int64_t, kStreams> done_{};
  int failures_ = 0;
  int flushes_ = 0;
};

class RandomSequences : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomSequences, KeepTheInvariants) {
  int flushes = 0;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Driver driver(seed, GetParam());
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_NO_FATAL_FAILURE(driver.step()) << "call " << i;
    }
    flushes += driver.flushes();
    failures += driver.failures();
    driver.free_all();
    const AllocatorStats& stats = driver.allocator().stats();
    EXPECT_EQ(stats.reserved.current, Bytes(0));
    EXPECT_EQ(stats.active.current, Bytes(0));
    EXPECT_EQ(stats.requested.current, Bytes(0));
    EXPECT_EQ(stats.inactive_split.current, Bytes(0));
    EXPECT_TRUE(driver.allocator().snapshot().empty());
    EXPECT_EQ(stats.num_ooms, driver.failures());
    EXPECT_EQ(stats.num_alloc_retries, driver.flushes());
  }
  EXPECT_GT(flushes, 0);  // the sequences go where it is tight
  EXPECT_GT(failures, 0);
}

INSTANTIATE_TEST_SUITE_P(Confs, RandomSequences, ::testing::ValuesIn(kConfs));

}  // namespace
}  // namespace zerosim
