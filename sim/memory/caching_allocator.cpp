#include "sim/memory/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

using internal::FreeEntry;
using internal::FreeList;

std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

void change(AllocatorStat& stat, std::int64_t bytes) {
  stat.current = Bytes(stat.current.count() + bytes);
  stat.peak = std::max(stat.peak, stat.current);
}

Bytes scaled(Bytes bytes, double factor) {
  return Bytes(static_cast<std::int64_t>(factor * static_cast<double>(bytes.count())));
}

}  // namespace

// ---- Sizes (E7.1, E7.4) ------------------------------------------------------------------------

Bytes next_power2_division(Bytes size, std::int64_t divisions) {
  const auto bytes = static_cast<std::uint64_t>(size.count());
  if (std::has_single_bit(bytes)) return size;
  const std::uint64_t floor = std::bit_floor(bytes);
  const std::uint64_t step =
      floor >>
      (std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(divisions, 1))) - 1);
  if (step == 0) return Bytes(static_cast<std::int64_t>(floor << 1U));
  const std::uint64_t below = bytes & ~(step - 1);
  return Bytes(static_cast<std::int64_t>(below == bytes ? bytes : below + step));
}

Bytes rounded_request(Bytes request, const AllocConf& conf) {
  if (request < kMinBlockSize) return kMinBlockSize;
  const std::int64_t divisions = conf.roundup_divisions(request);
  if (divisions > 1 && request.count() > kMinBlockSize.count() * divisions) {
    return next_power2_division(request, divisions);
  }
  return Bytes(round_up(request.count(), kMinBlockSize.count()));
}

Bytes segment_size(Bytes rounded) {
  if (rounded <= kSmallSize) return kSmallBuffer;
  if (rounded < kMinLargeAlloc) return kLargeBuffer;
  return Bytes(round_up(rounded.count(), kRoundLarge.count()));
}

// ---- Out of memory -----------------------------------------------------------------------------

OutOfMemoryStyle out_of_memory_style(int major, int minor) {
  if (major > 2 || (major == 2 && minor >= 2)) return OutOfMemoryStyle::Torch22;
  if (major == 2 && minor == 1) return OutOfMemoryStyle::Torch21;
  if (major == 2 || minor >= 10) return OutOfMemoryStyle::Torch110;
  return OutOfMemoryStyle::Torch14;
}

std::string torch_size_text(Bytes bytes) {
  const auto size = static_cast<double>(bytes.count());
  if (bytes <= 1_KiB) return format("{} bytes", bytes.count());
  if (bytes <= 1_MiB) return format("{:.2f} KiB", size / 1024);
  if (bytes <= 1_GiB) return format("{:.2f} MiB", size / 1048576);
  return format("{:.2f} GiB", size / 1073741824);
}

namespace {

std::string old_text(const OutOfMemory& error, bool hint, int device) {
  const auto text = torch_size_text;
  std::string message = format(
      "CUDA out of memory. Tried to allocate {} (GPU {}; {} total capacity; {} already allocated; "
      "{} free; {}{} reserved in total by PyTorch)",
      text(error.segment), device, text(error.total), text(error.stats.allocated.current),
      text(error.free), error.allowed ? text(*error.allowed) + " allowed; " : "",
      text(error.stats.reserved.current));
  if (hint) {
    message +=
        " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
        "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF";
  }
  return message;
}

std::string new_text(const OutOfMemory& error, OutOfMemoryStyle style, int device) {
  const auto text = torch_size_text;
  const AllocatorStats& stats = error.stats;
  const bool first = style == OutOfMemoryStyle::Torch21;
  const char* hint = first ? "max_split_size_mb to avoid fragmentation.  See documentation for "
                             "Memory Management and PYTORCH_CUDA_ALLOC_CONF"
                           : "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
                             "fragmentation.  See documentation for Memory Management  "
                             "(https://pytorch.org/docs/stable/notes/cuda.html"
                             "#environment-variables)";
  return format(
      "CUDA out of memory. Tried to allocate {}. GPU {} has a total {} of {} of which {} is free. "
      "Including non-PyTorch memory, this process has {} memory in use. {}Of the allocated memory "
      "{} is allocated by PyTorch, and {} is reserved by PyTorch but unallocated. If reserved but "
      "unallocated memory is large try setting {}",
      text(error.segment), device, first ? "capacty" : "capacity", text(error.total),
      text(error.free), text(error.other + stats.reserved.current),
      error.allowed ? text(*error.allowed) + " allowed; " : "", text(stats.allocated.current),
      text(stats.reserved.current - stats.allocated.current), hint);
}

}  // namespace

std::string out_of_memory_text(const OutOfMemory& error, OutOfMemoryStyle style, int device) {
  if (style == OutOfMemoryStyle::Torch14 || style == OutOfMemoryStyle::Torch110) {
    return old_text(error, style == OutOfMemoryStyle::Torch110, device);
  }
  return new_text(error, style, device);
}

DriverWork& DriverWork::operator+=(const DriverWork& other) {
  cuda_mallocs += other.cuda_mallocs;
  cuda_frees += other.cuda_frees;
  pages_mapped += other.pages_mapped;
  pages_unmapped += other.pages_unmapped;
  synchronizes = synchronizes || other.synchronizes;
  return *this;
}

// ---- Blocks ------------------------------------------------------------------------------------

CachingAllocator::CachingAllocator(AllocatorOptions options) : options_(std::move(options)) {}

void CachingAllocator::prepare_pools(StreamId stream) {
  ZS_CHECK(stream.valid(), "a pool belongs to a stream");
  const std::size_t needed = 2 * (stream.index() + 1);
  if (pools_.size() < needed) pools_.resize(needed);
  if (events_.size() < stream.index() + 1) events_.resize(stream.index() + 1);
}

std::int32_t CachingAllocator::make_block(std::int64_t address, std::int64_t size,
                                          std::int32_t pool) {
  auto index = static_cast<std::int32_t>(blocks_.size());
  if (unused_blocks_.empty()) {
    blocks_.emplace_back();
  } else {
    index = unused_blocks_.back();
    unused_blocks_.pop_back();
    at(index) = Block{};
  }
  Block& block = at(index);
  block.address = address;
  block.size = size;
  block.pool = pool;
  block.exists = true;
  return index;
}

void CachingAllocator::drop_block(std::int32_t block) {
  at(block).exists = false;
  unused_blocks_.push_back(block);
}

void CachingAllocator::link_after(std::int32_t block, std::int32_t added) {
  const std::int32_t next = at(block).next;
  at(added).prev = block;
  at(added).next = next;
  at(block).next = added;
  if (next != kNone) at(next).prev = added;
}

/// \returns the part behind the first `front` bytes, which is in no list.
std::int32_t CachingAllocator::split_off(std::int32_t block, std::int64_t front) {
  const Block whole = at(block);
  const std::int32_t rest = make_block(whole.address + front, whole.size - front, whole.pool);
  at(rest).expandable = whole.expandable;
  at(rest).mapped = whole.mapped;
  at(block).size = front;
  link_after(block, rest);
  return rest;
}

/// What goes into the list of the pool; the block's age begins.
FreeEntry CachingAllocator::mark_free(std::int32_t block) {
  Block& own = at(block);
  own.freed_at = searches_[is_small(own.pool) ? 1 : 0];
  return {own.size, own.address, block};
}

void CachingAllocator::insert_free(std::int32_t block) {
  pool(at(block).pool).free.insert(mark_free(block));
}

void CachingAllocator::erase_free(std::int32_t block) {
  const Block& own = at(block);
  pool(own.pool).free.erase({own.size, own.address, block});
}

bool CachingAllocator::can_merge(std::int32_t block, std::int32_t other) const {
  return allocatable(other) && at(other).mapped == at(block).mapped;
}

/// Joins the neighbour `other` to `block`. Neither is in a list.
void CachingAllocator::absorb(std::int32_t block, std::int32_t other) {
  Block& own = at(block);
  const Block& gone = at(other);
  if (own.prev == other) {
    own.address = gone.address;
    own.prev = gone.prev;
    if (own.prev != kNone) at(own.prev).next = block;
  } else {
    own.next = gone.next;
    if (own.next != kNone) at(own.next).prev = block;
  }
  own.size += gone.size;
  drop_block(other);
}

/// The same if it can be, taking `other` out of its list.
void CachingAllocator::merge(std::int32_t block, std::int32_t other) {
  if (!can_merge(block, other)) return;
  if (at(other).mapped) {
    erase_free(other);
  } else {
    pool(at(other).pool).unmapped.erase({at(other).address, other});
  }
  absorb(block, other);
}

bool CachingAllocator::allocatable(std::int32_t block) const {
  return block != kNone && !at(block).allocated && at(block).events == 0;
}

// ---- Allocation (E7.3, E7.5, E7.9) -------------------------------------------------------------

std::int64_t CachingAllocator::max_split_size() const {
  return options_.conf.max_split_size ? options_.conf.max_split_size->count()
                                      : std::numeric_limits<std::int64_t>::max();
}

bool CachingAllocator::collects_garbage() const {
  return options_.conf.memory_fraction && options_.conf.garbage_collection_threshold > 0;
}

Allocation CachingAllocator::allocate(Bytes request, StreamId stream) {
  ZS_CHECK(request >= Bytes(0), "a request has no negative size");
  Allocation result;
  if (request == Bytes(0)) return result;
  prepare_pools(stream);
  const Bytes rounded = rounded_request(request, options_.conf);
  const bool small = rounded <= kSmallSize;
  const Request asked{request.count(), rounded.count(), segment_size(rounded).count(),
                      static_cast<std::int32_t>(2 * stream.index() + (small ? 1 : 0))};
  std::int32_t block = take_cached(asked);
  result.cached = block != kNone;
  if (!result.cached) block = take_new(asked, result);
  if (block == kNone) {
    fail(asked, rounded, stream);
    result.out_of_memory = true;
    return result;
  }
  result.block = BlockId(block);
  result.size = Bytes(at(block).size);
  return result;
}

/// From the pool: its best fit, whose rest takes its place there.
std::int32_t CachingAllocator::take_cached(const Request& request) {
  FreeList& list = pool(request.pool).free;
  const FreeList::Position found = find_free(request);
  if (found == list.end()) return kNone;
  const std::int32_t block = list[found].block;
  std::int64_t inactive_split = is_split(at(block)) ? -at(block).size : 0;
  if (should_split(at(block), request.size)) {
    const std::int32_t rest = split_off(block, request.size);
    inactive_split += at(rest).size;
    list.replace(found, mark_free(rest));
  } else {
    list.erase(found);
  }
  hand_out(block, request, inactive_split);
  return block;
}

/// From the driver, or none.
std::int32_t CachingAllocator::take_new(const Request& request, Allocation& result) {
  if (collects_garbage()) collect_garbage(result.work);
  std::int32_t block = new_segment(request, result.work);
  if (block == kNone && release_oversize(request, result.work)) {
    block = new_segment(request, result.work);
  }
  if (block == kNone) {
    // The pools are not searched again, though the flush may have filled them.
    result.work += flush();
    result.flushed = true;
    ++stats_.num_alloc_retries;
    block = new_segment(request, result.work);
  }
  if (block == kNone) return kNone;
  std::int64_t inactive_split = 0;
  if (should_split(at(block), request.size)) {
    const std::int32_t rest = split_off(block, request.size);
    inactive_split = at(rest).size;
    insert_free(rest);
  }
  hand_out(block, request, inactive_split);
  return block;
}

void CachingAllocator::hand_out(std::int32_t block, const Request& request,
                                std::int64_t inactive_split) {
  Block& own = at(block);
  own.allocated = true;
  own.requested = request.asked;
  if (!own.expandable) change(stats_.inactive_split, inactive_split);
  change(stats_.allocated, own.size);
  change(stats_.active, own.size);
  change(stats_.requested, own.requested);
}

/// get_free_block: the best fit, if it may serve the request (E7.3, E7.12).
FreeList::Position CachingAllocator::find_free(const Request& request) {
  if (collects_garbage()) ++searches_[is_small(request.pool) ? 1 : 0];
  const FreeList& list = pool(request.pool).free;
  FreeList::Position found = list.best_fit(request.size);
  if (found == list.end()) return found;
  if (options_.conf.expandable_segments) found = prefer_less_expandable(list, found);
  const std::int64_t most = max_split_size();
  const std::int64_t size = list[found].size;
  const bool refused = request.size < most
                           ? size >= most
                           : size >= request.size + options_.conf.max_non_split_rounding.count();
  return refused ? list.end() : found;
}

/// A block that can grow counts with what it can grow to: a larger one that cannot grow so far fits
/// better (E7.13).
FreeList::Position CachingAllocator::prefer_less_expandable(const FreeList& list,
                                                            FreeList::Position found) const {
  for (FreeList::Position next = list.next(found);
       at(list[found].block).expandable && !(next == list.end()); next = list.next(next)) {
    if (expandable_size(list[next].block) >= expandable_size(list[found].block)) break;
    found = next;
  }
  return found;
}

std::int64_t CachingAllocator::expandable_size(std::int32_t block) const {
  const Block& own = at(block);
  const bool grows = own.next != kNone && !at(own.next).mapped;
  return own.size + (grows ? at(own.next).size : 0);
}

bool CachingAllocator::should_split(const Block& block, std::int64_t size) const {
  const std::int64_t rest = block.size - size;
  if (is_small(block.pool) || options_.conf.expandable_segments) {
    return rest >= kMinBlockSize.count();
  }
  return size < max_split_size() && rest > kSmallSize.count();
}

void CachingAllocator::fail(const Request& request, Bytes rounded, StreamId stream) {
  ++stats_.num_ooms;
  OutOfMemory& error = failure_.emplace();
  error.request = Bytes(request.asked);
  error.rounded = rounded;
  error.segment = Bytes(request.segment);
  error.stream = stream;
  error.stats = stats_;
  error.total = options_.capacity;
  error.free = device_free();
  error.other = options_.other;
  if (options_.conf.memory_fraction) {
    error.allowed = scaled(options_.capacity, *options_.conf.memory_fraction);
  }
}

// ---- Segments (E7.4, E7.9, E7.14) --------------------------------------------------------------

Bytes CachingAllocator::device_free() const {
  return std::max(Bytes(0), options_.capacity - options_.other - stats_.reserved.current);
}

bool CachingAllocator::fits(std::int64_t bytes) const {
  return unlimited_ || bytes <= device_free().count();
}

/// \returns the first of `size` addresses that nothing has had, a multiple of both page sizes.
std::int64_t CachingAllocator::take_addresses(std::int64_t size) {
  const std::int64_t first = round_up(next_address_, kLargeBuffer.count());
  next_address_ = (Bytes(first) + Bytes(size)).count();
  return first;
}

/// alloc_block: a block that is in no list, or none.
std::int32_t CachingAllocator::new_segment(const Request& request, DriverWork& work) {
  if (options_.conf.memory_fraction && !unlimited_ &&
      stats_.reserved.current + Bytes(request.segment) >
          scaled(options_.capacity, *options_.conf.memory_fraction)) {
    return kNone;
  }
  if (options_.conf.expandable_segments) return new_expandable_block(request, work);
  ++work.cuda_mallocs;
  if (!fits(request.segment)) return kNone;
  change(stats_.reserved, request.segment);
  ++stats_.num_device_alloc;
  return make_block(take_addresses(request.segment), request.segment, request.pool);
}

/// cudaFree of a segment that is one free block.
void CachingAllocator::release_block(std::int32_t block, DriverWork& work) {
  ZS_CHECK(!is_split(at(block)), "only a whole segment is given back");
  erase_free(block);
  change(stats_.reserved, -at(block).size);
  ++stats_.num_device_free;
  ++work.cuda_frees;
  work.synchronizes = true;
  drop_block(block);
}

/// release_available_cached_blocks (E7.9): one oversize block that is large enough, or several from
/// the largest down. Blocks of at least max_split_size are whole segments.
bool CachingAllocator::release_oversize(const Request& request, DriverWork& work) {
  if (!options_.conf.max_split_size) return false;
  const FreeList& list = pool(request.pool).free;
  const std::int64_t wanted = std::max(request.size, max_split_size());
  std::int64_t released = 0;
  std::vector<std::int32_t> victims;
  if (FreeList::Position found = list.best_fit(wanted); !(found == list.end())) {
    if (at(list[found].block).expandable) return false;
    victims.push_back(list[found].block);
    released = wanted;
  }
  for (FreeList::Position i = list.end(); !(i == list.begin()) && released < wanted;) {
    i = list.previous(i);
    if (list[i].size < max_split_size()) break;
    if (at(list[i].block).expandable) continue;
    victims.push_back(list[i].block);
    released += list[i].size;
  }
  for (const std::int32_t victim : victims) release_block(victim, work);
  return released >= wanted;
}

DriverWork CachingAllocator::empty_cache() {
  return flush();
}

/// release_cached_blocks.
DriverWork CachingAllocator::flush() {
  DriverWork work;
  work.synchronizes = true;
  complete_all_events();
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    release_free_segments(static_cast<std::int32_t>(i), work);
  }
  return work;
}

void CachingAllocator::release_free_segments(std::int32_t pool_index, DriverWork& work) {
  for (const FreeEntry& entry : pool(pool_index).free.entries()) {
    if (at(entry.block).expandable) {
      unmap(entry.block, work);
    } else if (!is_split(at(entry.block))) {
      release_block(entry.block, work);
    }
  }
}

/// garbage_collect_cached_blocks (E7.11): whole free segments of all large pools that are at least
/// as old as the average, in rounds, until enough is free; a round is not broken off. Ages are
/// searches of the large pools since the block was freed.
void CachingAllocator::collect_garbage(DriverWork& work) {
  const Bytes allowed = scaled(options_.capacity, *options_.conf.memory_fraction);
  const std::int64_t threshold =
      scaled(allowed, options_.conf.garbage_collection_threshold).count();
  std::int64_t excess = stats_.reserved.current.count() - threshold;
  if (excess <= 0) return;
  std::vector<std::int32_t> whole;
  std::int64_t total_age = 0;
  const auto age = [this](std::int32_t block) { return searches_[0] - at(block).freed_at; };
  for (std::size_t i = 0; i < pools_.size(); i += 2) {
    for (const FreeEntry& entry : pools_[i].free.entries()) {
      if (is_split(at(entry.block)) || at(entry.block).expandable) continue;
      whole.push_back(entry.block);
      total_age += age(entry.block);
    }
  }
  while (excess > 0 && !whole.empty()) {
    const double average = static_cast<double>(total_age) / static_cast<double>(whole.size());
    const auto kept = std::stable_partition(whole.begin(), whole.end(), [&](std::int32_t block) {
      return static_cast<double>(age(block)) < average;
    });
    if (kept == whole.end()) break;
    for (auto victim = kept; victim != whole.end(); ++victim) {
      total_age -= age(*victim);
      excess -= at(*victim).size;
      release_block(*victim, work);
    }
    whole.erase(kept, whole.end());
  }
}

// ---- Expandable segments (E7.13) ---------------------------------------------------------------

/// try_allocate_expandable_block.
std::int32_t CachingAllocator::new_expandable_block(const Request& request, DriverWork& work) {
  std::int32_t block = find_expandable(request);
  if (!at(block).mapped && !map(block, std::min(at(block).size, request.size), work)) return kNone;
  while (at(block).size < request.size) {
    const std::int32_t next = at(block).next;
    ZS_CHECK(next != kNone && !at(next).mapped, "the block can grow");
    const std::int64_t missing = request.size - at(block).size;
    if (!map(next, std::min(missing, at(next).size), work)) return kNone;
    block = next;
  }
  erase_free(block);
  return block;
}

/// Address space of at least the request: unmapped, or free and then unmapped. If there is none, a
/// new segment of 9/8 of the device.
std::int32_t CachingAllocator::find_expandable(const Request& request) {
  for (const auto& [address, unmapped] : pool(request.pool).unmapped) {
    const std::int32_t before = at(unmapped).prev;
    const std::int32_t first = allocatable(before) ? before : unmapped;
    if (has_room(first, request.size)) return first;
  }
  const std::int64_t device = options_.capacity.count() + options_.capacity.count() / 8;
  const std::int64_t needed = unlimited_ ? std::max(device, request.size) : device;
  const std::int64_t size = std::max(round_up(needed, page(request.pool)), page(request.pool));
  const std::int32_t block = make_block(take_addresses(size), size, request.pool);
  at(block).mapped = false;
  at(block).expandable = true;
  pool(request.pool).unmapped.insert({at(block).address, block});
  return block;
}

bool CachingAllocator::has_room(std::int32_t block, std::int64_t size) const {
  std::int64_t room = 0;
  for (; room < size && allocatable(block); block = at(block).next) room += at(block).size;
  return room >= size;
}

/// Maps pages for the first `size` bytes of an unmapped block, which becomes free with its free
/// neighbours.
bool CachingAllocator::map(std::int32_t block, std::int64_t size, DriverWork& work) {
  const std::int32_t pool_index = at(block).pool;
  const std::int64_t bytes = round_up(size, page(pool_index));
  if (!fits(bytes)) return false;
  pool(pool_index).unmapped.erase({at(block).address, block});
  if (bytes < at(block).size) {
    const std::int32_t rest = split_off(block, bytes);
    pool(pool_index).unmapped.insert({at(rest).address, rest});
  }
  at(block).mapped = true;
  merge(block, at(block).prev);
  merge(block, at(block).next);
  insert_free(block);
  change(stats_.reserved, bytes);
  ++stats_.num_device_alloc;
  work.pages_mapped += static_cast<int>(bytes / page(pool_index));
  return true;
}

/// Gives the whole pages of a free block back; what is left of it before and behind stays free.
void CachingAllocator::unmap(std::int32_t block, DriverWork& work) {
  const std::int32_t pool_index = at(block).pool;
  const std::int64_t size = page(pool_index);
  const std::int64_t begin = round_up(at(block).address, size);
  const std::int64_t end = (at(block).address + at(block).size) / size * size;
  if (begin >= end) return;
  erase_free(block);
  std::int32_t middle = block;
  if (const std::int64_t before = begin - at(block).address; before > 0) {
    middle = split_off(block, before);
    insert_free(block);
  }
  if (at(middle).size > end - begin) insert_free(split_off(middle, end - begin));
  at(middle).mapped = false;
  merge(middle, at(middle).prev);
  merge(middle, at(middle).next);
  change(stats_.reserved, begin - end);
  ++stats_.num_device_free;
  work.pages_unmapped += static_cast<int>((end - begin) / size);
  work.synchronizes = true;
  if (is_split(at(middle))) {
    pool(pool_index).unmapped.insert({at(middle).address, middle});
  } else {
    drop_block(middle);  // release_expandable_segment
  }
}

// ---- Free (E7.6, E7.8) -------------------------------------------------------------------------

void CachingAllocator::free(BlockId id, std::span<const StreamEvent> events) {
  ZS_CHECK(id.valid() && id.index() < blocks_.size() && at(id.value()).exists &&
               at(id.value()).allocated,
           "a block that is freed is in use");
  Block& block = at(id.value());
  block.allocated = false;
  change(stats_.allocated, -block.size);
  wait_for_events(id.value(), events);
  if (block.events == 0) return_to_pool(id.value());
}

void CachingAllocator::wait_for_events(std::int32_t block, std::span<const StreamEvent> events) {
  for (const StreamEvent& event : events) {
    ZS_CHECK(event.stream.valid(), "an event is recorded on a stream");
    if (event.stream.value() == at(block).pool / 2) continue;
    if (events_.size() <= event.stream.index()) events_.resize(event.stream.index() + 1);
    events_[event.stream.index()].push_back({event.event, block});
    ++at(block).events;
    ++pending_events_;
  }
}

void CachingAllocator::complete_event(std::int32_t block) {
  --pending_events_;
  if (--at(block).events == 0) return_to_pool(block);
}

void CachingAllocator::complete_all_events() {
  static_cast<void>(poll_events([](OpId) { return EventState::Completed; }));
}

/// free_block.
void CachingAllocator::return_to_pool(std::int32_t block) {
  const std::int64_t size = at(block).size;
  change(stats_.active, -size);
  change(stats_.requested, -at(block).requested);
  at(block).requested = 0;
  const std::int32_t prev = at(block).prev;
  const std::int32_t next = at(block).next;
  std::int64_t inactive_split = 0;
  FreeEntry gone;  // whose place in the list becomes this block's
  if (can_merge(block, prev)) {
    gone = {at(prev).size, at(prev).address, prev};
    inactive_split -= gone.size;
    absorb(block, prev);
  }
  FreeList& list = pool(at(block).pool).free;
  if (can_merge(block, next)) {
    if (gone.block != kNone) list.erase(gone);
    gone = {at(next).size, at(next).address, next};
    inactive_split -= gone.size;
    absorb(block, next);
  }
  if (gone.block != kNone) {
    list.replace(gone, mark_free(block));
  } else {
    insert_free(block);
  }
  if (is_split(at(block))) inactive_split += at(block).size;
  if (!at(block).expandable) change(stats_.inactive_split, inactive_split);
}

// ---- Views -------------------------------------------------------------------------------------

Bytes CachingAllocator::size(BlockId block) const {
  return Bytes(at(block.value()).size);
}

std::vector<SegmentView> CachingAllocator::snapshot() const {
  std::vector<std::pair<std::int64_t, std::int32_t>> first;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const bool only_addresses = !block.mapped && block.next == kNone;
    if (block.exists && block.prev == kNone && !only_addresses) {
      first.emplace_back(block.address, static_cast<std::int32_t>(i));
    }
  }
  std::sort(first.begin(), first.end());
  std::vector<SegmentView> segments;
  for (const auto& [address, index] : first) {
    const Block& head = at(index);
    SegmentView& segment = segments.emplace_back();
    segment.stream = StreamId(head.pool / 2);
    segment.small = is_small(head.pool);
    segment.expandable = head.expandable;
    for (std::int32_t i = index; i != kNone; i = at(i).next) {
      const Block& block = at(i);
      const auto state = !block.mapped      ? BlockView::State::Unmapped
                         : block.allocated  ? BlockView::State::Allocated
                         : block.events > 0 ? BlockView::State::PendingFree
                                            : BlockView::State::Free;
      segment.blocks.push_back({block.address, Bytes(block.size), Bytes(block.requested), state});
    }
  }
  return segments;
}

}  // namespace zerosim
