/// Each rule of spec E7 by a sequence worked out by hand.
#include "sim/memory/caching_allocator.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/memory/allocator_invariants.h"

namespace zerosim {
namespace {

constexpr StreamId kFirst{std::int32_t{0}};
constexpr StreamId kSecond{std::int32_t{1}};
constexpr StreamId kThird{std::int32_t{2}};

/// An allocator beside a set of completed events, checked after every call.
class Machine {
 public:
  explicit Machine(Bytes capacity = 1_GiB, const std::string& conf = "", Bytes other = {})
      : allocator({capacity, other, parse_alloc_conf(conf)}) {}

  Allocation allocate(Bytes bytes, StreamId stream = kFirst) {
    EXPECT_TRUE(allocator.poll_events([&](OpId event) {
      return completed.count(event.value()) > 0 ? EventState::Completed : EventState::Pending;
    }));
    const Allocation allocation = allocator.allocate(bytes, stream);
    check();
    return allocation;
  }
  void free(const Allocation& allocation, const std::vector<StreamEvent>& events = {}) {
    allocator.free(allocation.block, events);
    check();
  }
  void check() const { EXPECT_EQ(testing::broken_invariant(allocator), ""); }

  [[nodiscard]] Bytes allocated() const { return allocator.stats().allocated.current; }
  [[nodiscard]] Bytes active() const { return allocator.stats().active.current; }
  [[nodiscard]] Bytes reserved() const { return allocator.stats().reserved.current; }
  [[nodiscard]] Bytes inactive_split() const { return allocator.stats().inactive_split.current; }

  /// Sizes of the free blocks by address.
  [[nodiscard]] std::vector<Bytes> free_blocks() const {
    std::vector<Bytes> sizes;
    for (const SegmentView& segment : allocator.snapshot()) {
      for (const BlockView& block : segment.blocks) {
        if (block.state == BlockView::State::Free) sizes.push_back(block.size);
      }
    }
    return sizes;
  }

  CachingAllocator allocator;
  std::set<std::int32_t> completed;
};

using Sizes = std::vector<Bytes>;

StreamEvent event(StreamId stream, int number) {
  return {stream, OpId(std::int32_t{number})};
}

// ---- E7.1 --------------------------------------------------------------------------------------

TEST(RoundedRequest, IsAMultipleOf512) {
  const AllocConf conf;
  EXPECT_EQ(rounded_request(Bytes(1), conf), Bytes(512));
  EXPECT_EQ(rounded_request(Bytes(512), conf), Bytes(512));
  EXPECT_EQ(rounded_request(Bytes(513), conf), Bytes(1024));
  EXPECT_EQ(rounded_request(Bytes(1'000'000), conf), Bytes(1'000'448));
}

TEST(RoundedRequest, StepsBetweenPowersOfTwo) {
  // 1024 to 2048 in 4 steps of 256: 1280 is the first that holds 1200.
  EXPECT_EQ(next_power2_division(Bytes(1200), 4), Bytes(1280));
  EXPECT_EQ(next_power2_division(Bytes(1280), 4), Bytes(1280));
  EXPECT_EQ(next_power2_division(Bytes(1281), 4), Bytes(1536));
  EXPECT_EQ(next_power2_division(Bytes(1024), 4), Bytes(1024));
  EXPECT_EQ(next_power2_division(Bytes(1025), 1), Bytes(2048));
  EXPECT_EQ(next_power2_division(Bytes(3), 8), Bytes(4));  // steps below a byte: the next power

  const AllocConf conf = parse_alloc_conf("roundup_power2_divisions:4");
  // Up to 512 x 4 bytes a request is a multiple of 512.
  EXPECT_EQ(rounded_request(Bytes(1200), conf), Bytes(1536));
  EXPECT_EQ(rounded_request(Bytes(2048), conf), Bytes(2048));
  EXPECT_EQ(rounded_request(Bytes(5000), conf), Bytes(5120));      // 4096 + 1024
  EXPECT_EQ(rounded_request(Bytes(17'000), conf), Bytes(20'480));  // 16,384 + 4096
  // 4 MiB to 8 MiB in steps of 1 MiB.
  EXPECT_EQ(rounded_request(Bytes(5'000'000), conf), 5_MiB);
  EXPECT_EQ(rounded_request(300_MiB, conf), 320_MiB);
}

TEST(RoundedRequest, StepsBySize) {
  const AllocConf conf = parse_alloc_conf("roundup_power2_divisions:[64:8,256:1,>:2]");
  EXPECT_EQ(rounded_request(40_MiB + 1_B, conf), 44_MiB);            // below 64 MiB: 32 + 3 x 4
  EXPECT_EQ(rounded_request(65_MiB, conf), 72_MiB);                  // 64 + 8
  EXPECT_EQ(rounded_request(130_MiB + 1_B, conf), 130_MiB + 512_B);  // 128: not named
  EXPECT_EQ(rounded_request(300_MiB, conf), 300_MiB);
  EXPECT_EQ(rounded_request(600_MiB, conf), 768_MiB);  // 512 + 256
}

// ---- E7.2, E8 ----------------------------------------------------------------------------------

TEST(CachingAllocator, KeepsStreamsApart) {
  Machine machine;
  const Allocation block = machine.allocate(12_MiB);
  machine.free(block);
  const Allocation other = machine.allocate(12_MiB, kSecond);
  EXPECT_FALSE(other.cached);
  EXPECT_EQ(machine.reserved(), 24_MiB);  // the sum of the streams' peaks
  EXPECT_TRUE(machine.allocate(12_MiB).cached);
}

TEST(CachingAllocator, KeepsSmallAndLargeApart) {
  Machine machine;
  machine.allocate(1_MiB);  // small: 1 MiB of a 2 MiB segment is left
  machine.allocate(1_MiB + 1_B);
  EXPECT_EQ(machine.reserved(), 2_MiB + 20_MiB);
  EXPECT_EQ(machine.free_blocks(), (Sizes{1_MiB, 20_MiB - 1_MiB - 512_B}));
  EXPECT_TRUE(machine.allocate(1_MiB).cached);
}

TEST(CachingAllocator, NothingTakesNothing) {
  Machine machine;
  const Allocation nothing = machine.allocate(Bytes(0));
  EXPECT_FALSE(nothing.block.valid());
  EXPECT_FALSE(nothing.out_of_memory);
  EXPECT_EQ(machine.reserved(), Bytes(0));
}

// ---- E7.3 --------------------------------------------------------------------------------------

// Free blocks of 30, 12 and 16 MiB: 14 MiB go into the one of 16, whose rest of 2 MiB is split off.
// The next 14 MiB go into 30.
TEST(CachingAllocator, TakesTheSmallestBlockThatFits) {
  Machine machine;
  const std::vector<Allocation> blocks = {machine.allocate(30_MiB), machine.allocate(12_MiB),
                                          machine.allocate(16_MiB)};
  for (const Allocation& block : blocks) machine.free(block);
  EXPECT_TRUE(machine.allocate(14_MiB).cached);
  EXPECT_EQ(machine.free_blocks(), (Sizes{30_MiB, 12_MiB, 2_MiB}));
  machine.allocate(14_MiB);
  EXPECT_EQ(machine.free_blocks(), (Sizes{16_MiB, 12_MiB, 2_MiB}));
}

TEST(CachingAllocator, TakesTheLowerAddressOfEqualSizes) {
  Machine machine;
  const Allocation low = machine.allocate(12_MiB);
  const Allocation high = machine.allocate(12_MiB);
  machine.free(high);
  machine.free(low);
  machine.allocate(12_MiB);
  const std::vector<SegmentView> segments = machine.allocator.snapshot();
  EXPECT_EQ(segments[0].blocks[0].state, BlockView::State::Allocated);
  EXPECT_EQ(segments[1].blocks[0].state, BlockView::State::Free);
}

// ---- E7.4 --------------------------------------------------------------------------------------

TEST(SegmentSize, DependsOnTheRequest) {
  EXPECT_EQ(segment_size(512_B), 2_MiB);
  EXPECT_EQ(segment_size(1_MiB), 2_MiB);
  EXPECT_EQ(segment_size(1_MiB + 512_B), 20_MiB);
  EXPECT_EQ(segment_size(10_MiB - 512_B), 20_MiB);
  EXPECT_EQ(segment_size(10_MiB), 10_MiB);
  EXPECT_EQ(segment_size(10_MiB + 512_B), 12_MiB);
  EXPECT_EQ(segment_size(Bytes(12'000'256)), 12_MiB);
}

// ---- E7.5, E7.7 --------------------------------------------------------------------------------

// The worked example of the spec.
TEST(CachingAllocator, WorkedExampleOfTheSpec) {
  Machine machine;
  EXPECT_EQ(machine.allocate(Bytes(1'000'000)).size, Bytes(1'000'448));
  EXPECT_EQ(machine.free_blocks(), (Sizes{Bytes(1'096'704)}));
  EXPECT_EQ(machine.allocate(Bytes(3'000'000)).size, Bytes(3'000'320));
  EXPECT_EQ(machine.free_blocks(), (Sizes{Bytes(1'096'704), Bytes(17'971'200)}));
  EXPECT_TRUE(machine.allocate(15_MiB).cached);
  EXPECT_EQ(machine.free_blocks(), (Sizes{Bytes(1'096'704), Bytes(2'242'560)}));
  const Allocation last = machine.allocate(Bytes(12'000'000));
  EXPECT_FALSE(last.cached);
  EXPECT_EQ(last.size, Bytes(12'582'912));  // rest of 582,656 <= 1 MiB: not split

  EXPECT_EQ(machine.allocated(), Bytes(32'312'320));
  EXPECT_EQ(machine.reserved(), Bytes(35'651'584));
  EXPECT_EQ(machine.reserved() - machine.allocated(), Bytes(3'339'264));
  const AllocatorStats& stats = machine.allocator.stats();
  EXPECT_EQ(stats.requested.current, Bytes(1'000'000 + 3'000'000 + 12'000'000) + 15_MiB);
  EXPECT_EQ(stats.inactive_split.current, Bytes(1'096'704 + 2'242'560));
  EXPECT_EQ(stats.num_device_alloc, 3);
}

// Rests of exactly 1 MiB and 512 bytes: the large pool keeps the first whole, the small pool
// splits.
TEST(CachingAllocator, SplitsAboveOneMebibyteOrFrom512Bytes) {
  Machine machine;
  machine.free(machine.allocate(12_MiB));
  EXPECT_EQ(machine.allocate(11_MiB).size, 12_MiB);
  machine.free(machine.allocate(14_MiB));
  EXPECT_EQ(machine.allocate(13_MiB - 512_B).size, 13_MiB - 512_B);  // rest 1 MiB + 512
  machine.allocate(1_MiB);
  EXPECT_EQ(machine.allocate(1_MiB - 512_B).size, 1_MiB - 512_B);
}

// ---- E7.6 --------------------------------------------------------------------------------------

// Three blocks of 3 MiB in a segment of 20: 11 are left.
TEST(CachingAllocator, FreesMergeWithTheirNeighbours) {
  Machine machine;
  const Allocation a = machine.allocate(3_MiB);
  const Allocation b = machine.allocate(3_MiB);
  const Allocation c = machine.allocate(3_MiB);
  EXPECT_EQ(machine.inactive_split(), 11_MiB);
  machine.free(a);
  EXPECT_EQ(machine.free_blocks(), (Sizes{3_MiB, 11_MiB}));
  machine.free(c);
  EXPECT_EQ(machine.free_blocks(), (Sizes{3_MiB, 14_MiB}));
  EXPECT_EQ(machine.inactive_split(), 17_MiB);
  machine.free(b);
  EXPECT_EQ(machine.free_blocks(), (Sizes{20_MiB}));
  EXPECT_EQ(machine.inactive_split(), Bytes(0));  // a whole segment is not split
  EXPECT_EQ(machine.reserved(), 20_MiB);          // not returned to the driver
  EXPECT_EQ(machine.allocator.stats().inactive_split.peak, 17_MiB);
}

// ---- E7.8 --------------------------------------------------------------------------------------

// Gathered on the second stream, used on the first. The free leaves it active until event 7 has
// completed, and that is seen by the next allocation only.
TEST(CachingAllocator, RecordedBlocksReturnAtTheNextAllocationAfterTheirEvent) {
  Machine machine;
  const Allocation block = machine.allocate(12_MiB, kSecond);
  machine.free(block, {event(kFirst, 7)});
  EXPECT_EQ(machine.allocated(), Bytes(0));
  EXPECT_EQ(machine.active(), 12_MiB);
  EXPECT_EQ(machine.allocator.stats().requested.current, 12_MiB);
  const Allocation second = machine.allocate(12_MiB, kSecond);
  EXPECT_FALSE(second.cached);
  EXPECT_EQ(machine.reserved(), 24_MiB);

  machine.completed = {7};
  EXPECT_EQ(machine.active(), 24_MiB);  // nobody has looked
  EXPECT_TRUE(machine.allocate(12_MiB, kSecond).cached);
  EXPECT_EQ(machine.active(), 24_MiB);
  EXPECT_EQ(machine.reserved(), 24_MiB);
}

TEST(CachingAllocator, ABlocksOwnStreamNeedsNoEvent) {
  Machine machine;
  machine.free(machine.allocate(12_MiB), {event(kFirst, 7)});
  EXPECT_FALSE(machine.allocator.has_pending_events());
  EXPECT_TRUE(machine.allocate(12_MiB).cached);
}

TEST(CachingAllocator, WaitsForTheEventsOfEveryStream) {
  Machine machine;
  machine.free(machine.allocate(12_MiB), {event(kSecond, 1), event(kThird, 2)});
  machine.completed = {1};
  EXPECT_FALSE(machine.allocate(12_MiB).cached);
  machine.completed = {1, 2};
  EXPECT_TRUE(machine.allocate(12_MiB).cached);
}

// Events of a stream complete in order: PyTorch stops at the first that has not.
TEST(CachingAllocator, AnEventHidesThoseBehindIt) {
  Machine machine;
  const Allocation a = machine.allocate(12_MiB);
  const Allocation b = machine.allocate(14_MiB);
  machine.free(a, {event(kSecond, 1)});
  machine.free(b, {event(kSecond, 2)});
  machine.completed = {2};
  EXPECT_FALSE(machine.allocate(14_MiB).cached);
  machine.completed = {1, 2};
  EXPECT_TRUE(machine.allocate(14_MiB).cached);
}

// A block that waits is no neighbour to merge with.
TEST(CachingAllocator, DoesNotMergeWithWhatWaits) {
  Machine machine;
  const Allocation a = machine.allocate(3_MiB);
  const Allocation b = machine.allocate(3_MiB);
  machine.free(b, {event(kSecond, 1)});
  machine.free(a);
  EXPECT_EQ(machine.free_blocks(), (Sizes{3_MiB, 14_MiB}));
  machine.completed = {1};
  machine.allocate(512_B);
  EXPECT_EQ(machine.free_blocks(), (Sizes{20_MiB, 2_MiB - 512_B}));
}

// Nothing was on the stream: the event has completed by the next allocation.
TEST(CachingAllocator, AnEventOfAnEmptyStreamCompletesAtOnce) {
  Machine machine;
  machine.free(machine.allocate(12_MiB), {{kSecond, OpId()}});
  EXPECT_EQ(machine.active(), 12_MiB);
  EXPECT_TRUE(machine.allocate(12_MiB).cached);
}

TEST(CachingAllocator, SaysThatItDoesNotKnow) {
  Machine machine;
  machine.free(machine.allocate(12_MiB), {event(kSecond, 1)});
  EXPECT_FALSE(machine.allocator.poll_events([](OpId) { return EventState::Unknown; }));
  EXPECT_EQ(machine.active(), 12_MiB);
  EXPECT_TRUE(machine.allocator.poll_events([](OpId) { return EventState::Completed; }));
  EXPECT_EQ(machine.active(), Bytes(0));
}

// ---- E7.9 --------------------------------------------------------------------------------------

// 40 MiB of device: 20 in one pool, 10 in another that waits for an event. 30 MiB on a third stream
// are not there; the flush waits for the event and frees both.
TEST(CachingAllocator, FlushesBeforeItGivesUp) {
  Machine machine(40_MiB);
  const Allocation a = machine.allocate(20_MiB);
  const Allocation b = machine.allocate(10_MiB, kSecond);
  EXPECT_EQ(a.work, (DriverWork{1, 0, 0, 0, false}));
  machine.free(a);
  machine.free(b, {event(kFirst, 1)});
  const Allocation c = machine.allocate(30_MiB, kThird);
  EXPECT_FALSE(c.out_of_memory);
  EXPECT_TRUE(c.flushed);
  EXPECT_EQ(c.work, (DriverWork{2, 2, 0, 0, true}));
  EXPECT_EQ(machine.reserved(), 30_MiB);
  EXPECT_EQ(machine.allocator.stats().num_alloc_retries, 1);
  EXPECT_EQ(machine.allocator.stats().num_ooms, 0);
  EXPECT_EQ(machine.allocator.stats().reserved.peak, 30_MiB);
  EXPECT_FALSE(machine.allocator.has_pending_events());
}

// 50 MiB with 6 of others. 20 + 12 MiB are reserved, of the first 17 are free but split: a flush
// finds nothing, 44 - 32 = 12 MiB are free, 14 are not.
TEST(CachingAllocator, TellsWhatFailed) {
  Machine machine(50_MiB, "", 6_MiB);
  machine.allocate(3_MiB);
  machine.allocate(12_MiB, kSecond);
  const Allocation failed = machine.allocate(Bytes(14'000'000), kSecond);
  EXPECT_TRUE(failed.out_of_memory);
  EXPECT_FALSE(failed.block.valid());
  EXPECT_EQ(failed.work, (DriverWork{2, 0, 0, 0, true}));
  ASSERT_TRUE(machine.allocator.last_out_of_memory().has_value());
  const OutOfMemory& error = *machine.allocator.last_out_of_memory();
  EXPECT_EQ(error.request, Bytes(14'000'000));
  EXPECT_EQ(error.rounded, Bytes(14'000'128));
  EXPECT_EQ(error.segment, 14_MiB);
  EXPECT_EQ(error.stream, kSecond);
  EXPECT_EQ(error.total, 50_MiB);
  EXPECT_EQ(error.other, 6_MiB);
  EXPECT_EQ(error.free, 12_MiB);
  EXPECT_EQ(error.stats.allocated.current, 15_MiB);
  EXPECT_EQ(error.stats.reserved.current, 32_MiB);
  EXPECT_EQ(error.stats.num_ooms, 1);
  EXPECT_EQ(error.stats.num_alloc_retries, 1);
  EXPECT_FALSE(error.allowed.has_value());
  EXPECT_FALSE(machine.allocate(12_MiB, kSecond).out_of_memory);

  machine.allocator.lift_limits();
  EXPECT_FALSE(machine.allocate(1_GiB).out_of_memory);
  EXPECT_EQ(machine.allocator.device_free(), Bytes(0));
}

TEST(CachingAllocator, SharesTheDeviceWithOthers) {
  Machine machine(40_MiB, "", 8_MiB);
  EXPECT_EQ(machine.allocator.device_free(), 32_MiB);
  machine.allocate(20_MiB);
  machine.allocator.set_other(10_MiB);  // a communicator is made
  EXPECT_EQ(machine.allocator.device_free(), 10_MiB);
  EXPECT_TRUE(machine.allocate(12_MiB).out_of_memory);
}

// Of 30 MiB, 20 are a segment with 3 MiB in use and 17 waiting for an event. The flush returns the
// 17 to the pool, which is not searched again: only cudaMalloc is tried.
TEST(CachingAllocator, AFlushIsNotFollowedByASearch) {
  Machine machine(30_MiB);
  machine.allocate(3_MiB);
  const Allocation large = machine.allocate(16_MiB);
  EXPECT_EQ(large.size, 17_MiB);
  machine.free(large, {event(kSecond, 1)});
  EXPECT_TRUE(machine.allocate(16_MiB).out_of_memory);
  EXPECT_TRUE(machine.allocate(16_MiB).cached);
}

// ---- E7.10: what a call did is in DriverWork; its time is allocator_observer_test.cpp's --------

// ---- E7.11 -------------------------------------------------------------------------------------

// 400 MiB, half of it allowed, collected above half of that: 100 MiB. Searches of the large pools:
// 1 D (20 on the second stream), 2 A, 3 B, 4 C (40 each): 140 MiB. A is freed at 4, B at 5, after
// E. The sixth search finds nothing: ages 2 and 1, average 1.5, 40 MiB too many: A goes, B stays.
TEST(CachingAllocator, CollectsSegmentsOlderThanTheAverage) {
  Machine machine(400_MiB, "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5");
  machine.allocate(4_MiB, kSecond);
  const Allocation a = machine.allocate(40_MiB);
  const Allocation b = machine.allocate(40_MiB);
  machine.allocate(40_MiB);
  machine.free(a);
  EXPECT_TRUE(machine.allocate(4_MiB, kSecond).cached);
  machine.free(b);
  const Allocation collecting = machine.allocate(2_MiB, kThird);
  EXPECT_EQ(collecting.work, (DriverWork{1, 1, 0, 0, true}));
  EXPECT_EQ(machine.reserved(), 120_MiB);  // 140 - 40 + 20
  EXPECT_FALSE(collecting.flushed);
  EXPECT_EQ(machine.allocator.stats().num_alloc_retries, 0);
}

TEST(CachingAllocator, CollectsNothingWithoutAMemoryFraction) {
  Machine machine(200_MiB, "garbage_collection_threshold:0.5");
  machine.free(machine.allocate(120_MiB));
  EXPECT_EQ(machine.allocate(40_MiB, kSecond).work, (DriverWork{1, 0, 0, 0, false}));
}

// Beyond the fraction cudaMalloc is not even tried.
TEST(CachingAllocator, StaysWithinItsFraction) {
  Machine machine(400_MiB, "per_process_memory_fraction:0.25");
  machine.allocate(60_MiB);
  const Allocation failed = machine.allocate(42_MiB);
  EXPECT_TRUE(failed.out_of_memory);
  EXPECT_EQ(failed.work, (DriverWork{0, 0, 0, 0, true}));
  EXPECT_EQ(machine.allocator.last_out_of_memory()->allowed, 100_MiB);
  EXPECT_EQ(machine.allocator.last_out_of_memory()->free, 340_MiB);
  EXPECT_FALSE(machine.allocate(40_MiB).out_of_memory);
}

// ---- E7.12 -------------------------------------------------------------------------------------

TEST(CachingAllocator, BlocksAboveTheSplitLimitServeOnlyLargeRequestsNearTheirSize) {
  Machine machine(1_GiB, "max_split_size_mb:100");
  machine.free(machine.allocate(150_MiB));
  EXPECT_FALSE(machine.allocate(40_MiB).cached);   // 150 are not split for 40
  EXPECT_FALSE(machine.allocate(130_MiB).cached);  // 150 >= 130 + 20
  const Allocation near = machine.allocate(131_MiB);
  EXPECT_TRUE(near.cached);
  EXPECT_EQ(near.size, 150_MiB);
}

TEST(CachingAllocator, TheRoundingOfLargeRequestsCanBeWidened) {
  Machine machine(1_GiB, "max_split_size_mb:100,max_non_split_rounding_mb:51");
  machine.free(machine.allocate(150_MiB));
  EXPECT_TRUE(machine.allocate(100_MiB).cached);  // 150 < 100 + 51
}

// Whole blocks of 150 and 130 MiB are free, 120 of 400 MiB are left. 200 MiB: no block is that
// large, both are released, from the largest down. No flush.
TEST(CachingAllocator, ReleasesOversizeBlocksBeforeItFlushes) {
  Machine machine(400_MiB, "max_split_size_mb:100");
  const Allocation a = machine.allocate(150_MiB);
  const Allocation b = machine.allocate(130_MiB);
  machine.free(a);
  machine.free(b);
  const Allocation c = machine.allocate(200_MiB);
  EXPECT_EQ(c.work, (DriverWork{2, 2, 0, 0, true}));
  EXPECT_FALSE(c.flushed);
  EXPECT_EQ(machine.reserved(), 200_MiB);
}

// 90 MiB want an oversize block of at least 100: the smallest such one, 130, is enough.
TEST(CachingAllocator, ReleasesOneOversizeBlockThatIsEnough) {
  Machine machine(330_MiB, "max_split_size_mb:100");
  const Allocation a = machine.allocate(150_MiB);
  const Allocation b = machine.allocate(130_MiB);
  machine.free(a);
  machine.free(b);
  EXPECT_EQ(machine.allocate(90_MiB).work, (DriverWork{2, 1, 0, 0, true}));
  EXPECT_EQ(machine.free_blocks(), (Sizes{150_MiB}));
}

// What is released does not suffice: it is gone, and the flush comes after all.
TEST(CachingAllocator, FlushesWhenOversizeBlocksDoNotSuffice) {
  Machine machine(300_MiB, "max_split_size_mb:100");
  const Allocation a = machine.allocate(110_MiB);
  const Allocation b = machine.allocate(60_MiB, kSecond);
  machine.free(a);
  machine.free(b);
  const Allocation c = machine.allocate(250_MiB);
  EXPECT_TRUE(c.flushed);
  EXPECT_FALSE(c.out_of_memory);
  EXPECT_EQ(c.work, (DriverWork{2, 2, 0, 0, true}));
}

// ---- E7.13 -------------------------------------------------------------------------------------

// 3 MiB map a page of 20; 30 MiB take the 17 that are left and grow by one page; 7 are left.
TEST(CachingAllocator, ExpandableSegmentsGrow) {
  Machine machine(1_GiB, "expandable_segments:True");
  EXPECT_EQ(machine.allocate(3_MiB).work, (DriverWork{0, 0, 1, 0, false}));
  EXPECT_EQ(machine.free_blocks(), (Sizes{17_MiB}));
  const Allocation large = machine.allocate(30_MiB);
  EXPECT_EQ(large.work, (DriverWork{0, 0, 1, 0, false}));
  EXPECT_FALSE(large.cached);
  EXPECT_EQ(machine.reserved(), 40_MiB);
  EXPECT_EQ(machine.free_blocks(), (Sizes{7_MiB}));
  // E7.5 of expandable segments: from 512 bytes on the rest is split off, in large pools too.
  EXPECT_EQ(machine.allocate(7_MiB - 512_B).size, 7_MiB - 512_B);
  // One segment a stream and pool: pages of 2 MiB for small requests, another for the other stream.
  EXPECT_EQ(machine.allocate(512_B).work, (DriverWork{0, 0, 1, 0, false}));
  EXPECT_EQ(machine.reserved(), 42_MiB);
  machine.allocate(41_MiB, kSecond);
  EXPECT_EQ(machine.reserved(), 42_MiB + 60_MiB);
  EXPECT_EQ(machine.allocator.snapshot().size(), 3U);
  EXPECT_EQ(machine.inactive_split(), Bytes(0));  // not counted in expandable segments
}

// Blocks of 12 and 18 MiB in two pages, 10 MiB free behind them, which can grow. When the first is
// free, 8 MiB go into it although 10 is nearer: what can grow counts with its address space.
TEST(CachingAllocator, PrefersWhatCannotGrow) {
  Machine machine(1_GiB, "expandable_segments:True");
  const Allocation first = machine.allocate(12_MiB);
  machine.allocate(18_MiB);
  machine.free(first);
  EXPECT_EQ(machine.free_blocks(), (Sizes{12_MiB, 10_MiB}));
  EXPECT_TRUE(machine.allocate(8_MiB).cached);
  EXPECT_EQ(machine.free_blocks(), (Sizes{4_MiB, 10_MiB}));
}

// 3, 30 and 4 MiB in two pages, 3 left. With 30 free, the flush unmaps no page: [0, 20) holds the
// 3, [20, 40) the 4. With the 4 free as well it unmaps [20, 40).
TEST(CachingAllocator, AFlushUnmapsWholeFreePages) {
  Machine machine(1_GiB, "expandable_segments:True");
  const Allocation a = machine.allocate(3_MiB);
  const Allocation b = machine.allocate(30_MiB);
  const Allocation c = machine.allocate(4_MiB);
  machine.free(b);
  EXPECT_EQ(machine.allocator.empty_cache(), (DriverWork{0, 0, 0, 0, true}));
  EXPECT_EQ(machine.reserved(), 40_MiB);
  machine.free(c);
  EXPECT_EQ(machine.allocator.empty_cache(), (DriverWork{0, 0, 0, 1, true}));
  machine.check();
  EXPECT_EQ(machine.reserved(), 20_MiB);
  EXPECT_EQ(machine.free_blocks(), (Sizes{17_MiB}));
  machine.free(a);
  machine.allocator.empty_cache();
  EXPECT_EQ(machine.reserved(), Bytes(0));
  EXPECT_TRUE(machine.allocator.snapshot().empty());
}

// A page in the middle is unmapped and mapped again: 17 MiB, one page in use, 45 MiB of which 2
// pages go; then 50 MiB find 3 + 40 unmapped too small and grow at the end.
TEST(CachingAllocator, UnmappedPagesAreMappedAgain) {
  Machine machine(1_GiB, "expandable_segments:True");
  const Allocation a = machine.allocate(17_MiB);
  const Allocation hole = machine.allocate(45_MiB);  // [17, 62)
  const Allocation tail = machine.allocate(10_MiB);  // [62, 72) of 80
  EXPECT_EQ(machine.reserved(), 80_MiB);
  machine.free(hole);
  machine.allocator.empty_cache();
  machine.check();
  EXPECT_EQ(machine.reserved(), 40_MiB);  // [20, 60) is gone
  EXPECT_EQ(machine.free_blocks(), (Sizes{3_MiB, 2_MiB, 8_MiB}));
  const Allocation again = machine.allocate(40_MiB);  // [17, 57): maps [20, 60)
  EXPECT_EQ(again.work.pages_mapped, 2);
  EXPECT_EQ(machine.free_blocks(), (Sizes{5_MiB, 8_MiB}));
  machine.free(again);
  machine.free(a);
  machine.free(tail);
}

TEST(CachingAllocator, ExpandableSegmentsRunOutToo) {
  Machine machine(50_MiB, "expandable_segments:True");
  const Allocation a = machine.allocate(30_MiB);  // 2 pages
  const Allocation failed = machine.allocate(20_MiB);
  EXPECT_TRUE(failed.out_of_memory);
  EXPECT_TRUE(failed.flushed);
  machine.free(a);
  // The pages of the first stream are given back for the second.
  const Allocation b = machine.allocate(35_MiB, kSecond);
  EXPECT_EQ(b.work, (DriverWork{0, 0, 2, 2, true}));
}

// ---- E7.14 -------------------------------------------------------------------------------------

TEST(CachingAllocator, EmptyCacheIsAFlushWithoutRetry) {
  Machine machine;
  const Allocation kept = machine.allocate(3_MiB);
  machine.free(machine.allocate(18_MiB));
  machine.free(machine.allocate(12_MiB, kSecond), {event(kFirst, 1)});
  machine.free(machine.allocate(512_B));
  EXPECT_EQ(machine.reserved(), 20_MiB + 18_MiB + 12_MiB + 2_MiB);
  EXPECT_EQ(machine.allocator.empty_cache(), (DriverWork{0, 3, 0, 0, true}));
  machine.check();
  EXPECT_EQ(machine.reserved(), 20_MiB);  // the used part of a segment keeps it
  EXPECT_EQ(machine.active(), 3_MiB);
  EXPECT_EQ(machine.allocator.stats().num_alloc_retries, 0);
  EXPECT_EQ(machine.allocator.stats().num_device_free, 3);
  machine.free(kept);
}

TEST(CachingAllocatorDeathTest, RefusesADoubleFree) {
  Machine machine;
  const Allocation block = machine.allocate(12_MiB);
  machine.free(block);
  EXPECT_DEATH(machine.allocator.free(block.block), "a block that is freed is in use");
}

// ---- Messages ----------------------------------------------------------------------------------

TEST(TorchSizeText, PrintsAsTheMessagesDo) {
  EXPECT_EQ(torch_size_text(Bytes(512)), "512 bytes");
  EXPECT_EQ(torch_size_text(1_KiB), "1024 bytes");
  EXPECT_EQ(torch_size_text(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(torch_size_text(1_MiB), "1024.00 KiB");
  EXPECT_EQ(torch_size_text(20_MiB), "20.00 MiB");
  EXPECT_EQ(torch_size_text(1_GiB), "1024.00 MiB");
  EXPECT_EQ(torch_size_text(Bytes(3'371'549'327)), "3.14 GiB");
}

OutOfMemory failure() {
  OutOfMemory error;
  error.segment = 3216_MiB;  // 3.140625 GiB
  error.total = 32512_MiB;   // 31.75
  error.free = 1290_MiB;     // 1.259765625
  error.other = 1_GiB;
  error.stats.allocated.current = 27468_MiB;  // 26.82421875
  error.stats.reserved.current = 30198_MiB;   // 29.490234375
  return error;
}

TEST(OutOfMemoryText, OfPyTorch1) {
  const std::string text =
      "CUDA out of memory. Tried to allocate 3.14 GiB (GPU 0; 31.75 GiB total capacity; 26.82 GiB "
      "already allocated; 1.26 GiB free; 29.49 GiB reserved in total by PyTorch)";
  EXPECT_EQ(out_of_memory_text(failure(), OutOfMemoryStyle::Torch14), text);
  EXPECT_EQ(out_of_memory_text(failure(), OutOfMemoryStyle::Torch110),
            text +
                " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
                "fragmentation.  See documentation for Memory Management and "
                "PYTORCH_CUDA_ALLOC_CONF");
}

// In use: 1 GiB + 29.490 = 30.49 GiB; 29.490 - 26.824 = 2.67 GiB are reserved and unallocated.
TEST(OutOfMemoryText, OfPyTorch2) {
  EXPECT_EQ(out_of_memory_text(failure(), OutOfMemoryStyle::Torch22, 3),
            "CUDA out of memory. Tried to allocate 3.14 GiB. GPU 3 has a total capacity of 31.75 "
            "GiB of which 1.26 GiB is free. Including non-PyTorch memory, this process has 30.49 "
            "GiB memory in use. Of the allocated memory 26.82 GiB is allocated by PyTorch, and "
            "2.67 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
            "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
            "fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)");
  EXPECT_EQ(out_of_memory_text(failure(), OutOfMemoryStyle::Torch21),
            "CUDA out of memory. Tried to allocate 3.14 GiB. GPU 0 has a total capacty of 31.75 "
            "GiB of which 1.26 GiB is free. Including non-PyTorch memory, this process has 30.49 "
            "GiB memory in use. Of the allocated memory 26.82 GiB is allocated by PyTorch, and "
            "2.67 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
            "is large try setting max_split_size_mb to avoid fragmentation.  See documentation "
            "for Memory Management and PYTORCH_CUDA_ALLOC_CONF");
}

TEST(OutOfMemoryText, NamesWhatAFractionAllows) {
  OutOfMemory error = failure();
  error.allowed = 30_GiB;
  EXPECT_NE(out_of_memory_text(error, OutOfMemoryStyle::Torch110)
                .find("1.26 GiB free; 30.00 GiB allowed; 29.49 GiB reserved in total"),
            std::string::npos);
  EXPECT_NE(out_of_memory_text(error, OutOfMemoryStyle::Torch22)
                .find("memory in use. 30.00 GiB allowed; Of the allocated memory"),
            std::string::npos);
}

TEST(OutOfMemoryText, StyleOfARelease) {
  EXPECT_EQ(out_of_memory_style(1, 9), OutOfMemoryStyle::Torch14);
  EXPECT_EQ(out_of_memory_style(1, 13), OutOfMemoryStyle::Torch110);
  EXPECT_EQ(out_of_memory_style(2, 0), OutOfMemoryStyle::Torch110);
  EXPECT_EQ(out_of_memory_style(2, 1), OutOfMemoryStyle::Torch21);
  EXPECT_EQ(out_of_memory_style(2, 2), OutOfMemoryStyle::Torch22);
  EXPECT_EQ(out_of_memory_style(2, 10), OutOfMemoryStyle::Torch22);
  EXPECT_EQ(out_of_memory_style(3, 0), OutOfMemoryStyle::Torch22);
}

}  // namespace
}  // namespace zerosim
