/// \file
/// What must hold of a CachingAllocator at any moment, whoever drives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/memory/caching_allocator.h"

namespace zerosim::testing {

/// Sums over all blocks of a snapshot.
struct BlockSums {
  Bytes allocated;
  Bytes pending;
  Bytes mapped;
  Bytes requested;
  Bytes inactive_split;
};

/// Adds a segment up. \returns what is wrong with it, or "".
inline std::string add_segment(const SegmentView& segment, BlockSums& sums) {
  const BlockView* before = nullptr;
  for (const BlockView& block : segment.blocks) {
    const bool idle =
        block.state == BlockView::State::Free || block.state == BlockView::State::Unmapped;
    if (before != nullptr && before->address + before->size.count() != block.address) {
      return format("a gap or an overlap at {}", block.address);
    }
    if (before != nullptr && idle && before->state == block.state) {
      return format("two idle neighbours at {}", block.address);
    }
    if (block.size <= Bytes(0)) return format("an empty block at {}", block.address);
    if (block.state == BlockView::State::Allocated) sums.allocated += block.size;
    if (block.state == BlockView::State::PendingFree) sums.pending += block.size;
    if (block.state != BlockView::State::Unmapped) sums.mapped += block.size;
    if (block.state == BlockView::State::Free && segment.blocks.size() > 1 && !segment.expandable) {
      sums.inactive_split += block.size;
    }
    sums.requested += block.requested;
    if (block.requested > block.size) return format("too small a block at {}", block.address);
    before = &block;
  }
  return "";
}

/// Blocks tile their segments without overlap or gap, free neighbours are joined, and the
/// statistics are the sums that they claim to be. \returns what is broken, or "".
inline std::string broken_invariant(const CachingAllocator& allocator) {
  BlockSums sums;
  std::int64_t end = 0;
  for (const SegmentView& segment : allocator.snapshot()) {
    if (segment.blocks.front().address < end) return "segments overlap";
    end = segment.blocks.back().address + segment.blocks.back().size.count();
    std::string wrong = add_segment(segment, sums);
    if (!wrong.empty()) return wrong;
  }
  const AllocatorStats& stats = allocator.stats();
  const auto differ = [](const char* what, Bytes claimed, Bytes found) {
    return format("{} is {} and should be {}", what, claimed.count(), found.count());
  };
  if (stats.allocated.current != sums.allocated) {
    return differ("allocated", stats.allocated.current, sums.allocated);
  }
  if (stats.active.current != sums.allocated + sums.pending) {
    return differ("active", stats.active.current, sums.allocated + sums.pending);
  }
  if (stats.reserved.current != sums.mapped) {
    return differ("reserved", stats.reserved.current, sums.mapped);
  }
  if (stats.requested.current != sums.requested) {
    return differ("requested", stats.requested.current, sums.requested);
  }
  if (stats.inactive_split.current != sums.inactive_split) {
    return differ("inactive_split", stats.inactive_split.current, sums.inactive_split);
  }
  if (stats.requested.current > stats.active.current) return "requested > active";
  if (stats.active.current > stats.reserved.current) return "active > reserved";
  for (const AllocatorStat* stat : {&stats.allocated, &stats.active, &stats.reserved,
                                    &stats.requested, &stats.inactive_split}) {
    if (stat->peak < stat->current) return "a peak is below its present";
  }
  return "";
}

}  // namespace zerosim::testing
