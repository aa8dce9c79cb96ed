/// \file
/// PyTorch's CUDA caching allocator (spec E7, E8): a pure data structure, without time or engine.
///
/// The driver hands out *segments* (cudaMalloc); each is tiled by *blocks*, which are free, in use,
/// or freed but still awaited by events of other streams. Every stream has a small and a large pool
/// of free blocks, and blocks never change stream (E7.2, E8). One allocation (E7.9):
///
///     best fit in the stream's pool  ->  garbage collection  ->  cudaMalloc
///       -> release oversize blocks, cudaMalloc  ->  flush, cudaMalloc  ->  out of memory
///
/// preceded by `poll_events`. Each step and constant is that of c10/cuda/CUDACachingAllocator.cpp
/// (PyTorch 2.x); where spec E7 is silent, so are these:
/// - `requested` falls when a block returns to its pool, `allocated` already when it is freed: a
///   block that waits for events is in `active` and `requested`.
/// - Ties of size go to the lower address. The driver's addresses are not known: segments get
///   rising ones in the order in which they were made, and none is used twice.
/// - Blocks of expandable segments are left out of `inactive_split`.
/// - A request of no bytes takes no block.
///
/// Not modelled: CUDA graphs' private pools, cudaMallocAsync, IPC, cudaMalloc failing because the
/// driver's own memory is fragmented, memory of other processes that changes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/memory/alloc_conf.h"
#include "sim/memory/free_list.h"

namespace zerosim {

/// \name Constants of CUDACachingAllocator.h (E7.1, E7.2, E7.4)
///@{
inline constexpr Bytes kMinBlockSize = 512_B;    ///< every block is a multiple
inline constexpr Bytes kSmallSize = 1_MiB;       ///< largest small request
inline constexpr Bytes kSmallBuffer = 2_MiB;     ///< a segment of the small pool
inline constexpr Bytes kLargeBuffer = 20_MiB;    ///< a segment for requests below kMinLargeAlloc
inline constexpr Bytes kMinLargeAlloc = 10_MiB;  ///< from here on a segment of its own,
inline constexpr Bytes kRoundLarge = 2_MiB;      ///< rounded up to this
///@}

/// What a request is rounded up to (E7.1).
[[nodiscard]] Bytes rounded_request(Bytes request, const AllocConf& conf);
/// The next of `divisions` equal steps between powers of two: 1200 in 4 divisions is 1280. It is
/// what E7.1 rounds requests above 512 x divisions to; 0 and 1 divisions: the next power of two.
[[nodiscard]] Bytes next_power2_division(Bytes size, std::int64_t divisions);
/// Segment that a rounded request is served from where no block fits (E7.4). Also what the text of
/// an out-of-memory error says was tried.
[[nodiscard]] Bytes segment_size(Bytes rounded);

/// Names a block that is in use; reused after its end.
using BlockId = Id<struct AllocatorBlockTag>;

/// At a free: the event recorded on a stream that used the block (record_stream, E7.8).
struct StreamEvent {
  StreamId stream;
  OpId event;  ///< opaque here: what `poll_events` asks for; not valid: completed already
};

enum class EventState : std::uint8_t { Completed, Pending, Unknown };

struct AllocatorStat {
  Bytes current;
  Bytes peak;
};

/// torch.cuda.memory_stats (E7.7), over both pools.
struct AllocatorStats {
  AllocatorStat allocated;             ///< blocks in use, whole
  AllocatorStat active;                ///< and those that wait for events
  AllocatorStat reserved;              ///< segments; of expandable ones what is mapped
  AllocatorStat requested;             ///< what active blocks were asked for, not rounded
  AllocatorStat inactive_split;        ///< free parts of partly used segments: a flush keeps them
  std::int64_t num_alloc_retries = 0;  ///< flushes for an allocation
  std::int64_t num_ooms = 0;
  std::int64_t num_device_alloc = 0;  ///< cudaMalloc that succeeded, or pages mapped
  std::int64_t num_device_free = 0;   ///< cudaFree, or pages unmapped
};

/// Calls to the driver, for their host time.
struct DriverWork {
  int cuda_mallocs = 0;  ///< that failed, too
  int cuda_frees = 0;
  int pages_mapped = 0;  ///< of expandable segments
  int pages_unmapped = 0;
  bool synchronizes = false;  ///< the device was idle before it went on: cudaFree, unmap, flush

  DriverWork& operator+=(const DriverWork& other);
  friend bool operator==(const DriverWork&, const DriverWork&) = default;
};

/// What one `allocate` did.
struct Allocation {
  BlockId block;  ///< not valid: nothing was asked for, or out of memory
  Bytes size;     ///< of the block
  DriverWork work;
  bool cached = false;         ///< a free block served it
  bool flushed = false;        ///< num_alloc_retries += 1
  bool out_of_memory = false;  ///< see `CachingAllocator::last_out_of_memory`
};

/// A request that failed after all (E7.9), and what torch knew then.
struct OutOfMemory {
  Bytes request;  ///< as asked for
  Bytes rounded;
  Bytes segment;  ///< "Tried to allocate"
  StreamId stream;
  AllocatorStats stats;
  Bytes total;                   ///< capacity of the device
  Bytes free;                    ///< what cudaMemGetInfo says
  Bytes other;                   ///< not PyTorch's
  std::optional<Bytes> allowed;  ///< by the memory fraction
};

/// Wording of the message, by the PyTorch release that introduced it: 1.4, 1.10, 2.1, 2.2.
enum class OutOfMemoryStyle : std::uint8_t { Torch14, Torch110, Torch21, Torch22 };
[[nodiscard]] OutOfMemoryStyle out_of_memory_style(int major, int minor);

/// "CUDA out of memory. Tried to allocate 3.14 GiB (GPU 0; 31.75 GiB total capacity; ..." up to
/// 2.0, "... GPU 0 has a total capacity of 31.75 GiB of which ..." from 2.1 on. Without the name of
/// the Python exception.
[[nodiscard]] std::string out_of_memory_text(const OutOfMemory& error, OutOfMemoryStyle style,
                                             int device = 0);
/// As the messages print sizes: "3.14 GiB", "1024.00 MiB" (1 GiB), "512 bytes".
[[nodiscard]] std::string torch_size_text(Bytes bytes);

struct AllocatorOptions {
  Bytes capacity;  ///< of the device, as cudaGetDeviceProperties has it
  Bytes other;     ///< of it not PyTorch's: context, kernels, NCCL, other processes
  AllocConf conf;  ///< its memory fraction is of `capacity`
};

/// What lies where, as torch.cuda.memory_snapshot() tells.
struct BlockView {
  enum class State : std::uint8_t { Free, Allocated, PendingFree, Unmapped };
  std::int64_t address = 0;
  Bytes size;
  Bytes requested;
  State state = State::Free;
};
struct SegmentView {
  StreamId stream;
  bool small = false;
  bool expandable = false;
  std::vector<BlockView> blocks;  ///< by address, without gaps
};

class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorOptions options);

  /// Returns blocks whose events have completed to their pools (E7.8). To be called before each
  /// `allocate`, as process_events is.
  /// \param state  EventState of an event (OpId). Events of one stream complete in their order:
  ///               the first that has not hides those behind it.
  /// \returns false if an answer was Unknown; call again when it is known.
  template <typename State>
  bool poll_events(const State& state);

  /// Whether blocks wait for events.
  [[nodiscard]] bool has_pending_events() const { return pending_events_ > 0; }

  /// \param stream  whose pools serve it.
  [[nodiscard]] Allocation allocate(Bytes request, StreamId stream);
  /// \param events  one for each other stream that the block was recorded on; those of its own
  ///                stream do nothing.
  void free(BlockId block, std::span<const StreamEvent> events = {});
  /// torch.cuda.empty_cache(): waits for all events and gives all free segments back (E7.14).
  DriverWork empty_cache();

  /// Memory that is not PyTorch's, from now on.
  void set_other(Bytes other) { options_.other = other; }
  /// From now on everything fits: to see what a job that does not fit would have needed.
  void lift_limits() { unlimited_ = true; }

  [[nodiscard]] const AllocatorStats& stats() const { return stats_; }
  [[nodiscard]] Bytes device_free() const;
  [[nodiscard]] const std::optional<OutOfMemory>& last_out_of_memory() const { return failure_; }
  [[nodiscard]] Bytes size(BlockId block) const;
  /// By address; without expandable segments of which nothing is mapped.
  [[nodiscard]] std::vector<SegmentView> snapshot() const;

 private:
  static constexpr std::int32_t kNone = -1;

  struct Block {
    std::int64_t address = 0;
    std::int64_t size = 0;
    std::int64_t requested = 0;
    std::int64_t freed_at = 0;  ///< searches of the pool until then: its age for E7.11
    std::int32_t prev = kNone;  ///< neighbours in the segment
    std::int32_t next = kNone;
    std::int32_t pool = kNone;
    std::int32_t events = 0;
    bool allocated = false;
    bool mapped = true;  ///< false: address space of an expandable segment only
    bool expandable = false;
    bool exists = false;
  };

  /// Of one stream and size.
  struct Pool {
    internal::FreeList free;
    std::set<std::pair<std::int64_t, std::int32_t>> unmapped;  ///< by address
  };

  struct PendingEvent {
    OpId event;
    std::int32_t block = kNone;
  };

  struct Request {
    std::int64_t asked;
    std::int64_t size;     ///< rounded
    std::int64_t segment;  ///< of a cudaMalloc
    std::int32_t pool;
  };

  [[nodiscard]] static bool is_small(std::int32_t pool) { return pool % 2 != 0; }
  [[nodiscard]] std::int64_t page(std::int32_t pool) const {
    return is_small(pool) ? kSmallBuffer.count() : kLargeBuffer.count();
  }
  Block& at(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] const Block& at(std::int32_t block) const {
    return blocks_[static_cast<std::size_t>(block)];
  }
  Pool& pool(std::int32_t index) { return pools_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] static bool is_split(const Block& block) {
    return block.prev != kNone || block.next != kNone;
  }
  [[nodiscard]] std::int64_t max_split_size() const;
  [[nodiscard]] bool collects_garbage() const;

  void prepare_pools(StreamId stream);
  std::int32_t make_block(std::int64_t address, std::int64_t size, std::int32_t pool);
  void drop_block(std::int32_t block);
  std::int32_t split_off(std::int32_t block, std::int64_t front);
  void link_after(std::int32_t block, std::int32_t added);
  internal::FreeEntry mark_free(std::int32_t block);
  void insert_free(std::int32_t block);
  void erase_free(std::int32_t block);
  [[nodiscard]] bool can_merge(std::int32_t block, std::int32_t other) const;
  void absorb(std::int32_t block, std::int32_t other);
  void merge(std::int32_t block, std::int32_t other);

  [[nodiscard]] internal::FreeList::Position find_free(const Request& request);
  [[nodiscard]] internal::FreeList::Position prefer_less_expandable(
      const internal::FreeList& list, internal::FreeList::Position found) const;
  [[nodiscard]] std::int64_t expandable_size(std::int32_t block) const;
  [[nodiscard]] bool should_split(const Block& block, std::int64_t size) const;
  std::int32_t take_cached(const Request& request);
  std::int32_t take_new(const Request& request, Allocation& result);
  void hand_out(std::int32_t block, const Request& request, std::int64_t inactive_split);
  void fail(const Request& request, Bytes rounded, StreamId stream);

  std::int32_t new_segment(const Request& request, DriverWork& work);
  [[nodiscard]] bool fits(std::int64_t bytes) const;
  std::int64_t take_addresses(std::int64_t size);
  bool release_oversize(const Request& request, DriverWork& work);
  void release_block(std::int32_t block, DriverWork& work);
  DriverWork flush();
  void release_free_segments(std::int32_t pool, DriverWork& work);
  void collect_garbage(DriverWork& work);

  std::int32_t new_expandable_block(const Request& request, DriverWork& work);
  std::int32_t find_expandable(const Request& request);
  [[nodiscard]] bool has_room(std::int32_t block, std::int64_t size) const;
  [[nodiscard]] bool allocatable(std::int32_t block) const;
  bool map(std::int32_t block, std::int64_t size, DriverWork& work);
  void unmap(std::int32_t block, DriverWork& work);

  void wait_for_events(std::int32_t block, std::span<const StreamEvent> events);
  void complete_event(std::int32_t block);
  void complete_all_events();
  void return_to_pool(std::int32_t block);

  AllocatorOptions options_;
  bool unlimited_ = false;
  AllocatorStats stats_;
  std::optional<OutOfMemory> failure_;

  std::vector<Block> blocks_;
  std::vector<std::int32_t> unused_blocks_;
  std::vector<Pool> pools_;                       ///< 2 x stream: large, + 1: small
  std::array<std::int64_t, 2> searches_{};        ///< of large and small pools, for ages (E7.11)
  std::vector<std::deque<PendingEvent>> events_;  ///< by stream
  std::int64_t pending_events_ = 0;
  std::int64_t next_address_ = kSmallBuffer.count();
};

template <typename State>
bool CachingAllocator::poll_events(const State& state) {
  if (pending_events_ == 0) return true;
  bool known = true;
  for (std::deque<PendingEvent>& queue : events_) {
    while (!queue.empty()) {
      const EventState found =
          queue.front().event.valid() ? state(queue.front().event) : EventState::Completed;
      known = known && found != EventState::Unknown;
      if (found != EventState::Completed) break;
      const std::int32_t block = queue.front().block;
      queue.pop_front();
      complete_event(block);
    }
  }
  return known;
}

}  // namespace zerosim
