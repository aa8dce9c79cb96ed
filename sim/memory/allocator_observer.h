/// \file
/// The caching allocator in the engine: what each rank class allocates and frees, at host time.
///
/// Buffers on the device go to one CachingAllocator a rank class, in the pools of their stream
/// (E8); a Free's dependencies are its record_stream events (E7.8), polled at the next allocation,
/// for which the engine says what has ended. Every event goes to a MemoryLedger as well, which
/// knows the classes of ZeRO (E1) and host memory: where a MemoryLedger observed, this can.
///
///     host time of an allocation = hit + cudaMalloc x calls + cudaFree x calls + pages   (E7.10)
///
/// and the host waits for an idle device where cudaFree or a flush does.
///
/// Two allocators see every event. One has the device's capacity: it flushes, fails, and takes the
/// host's time; after its first failure it goes on as if there were no limit. The other never has
/// one: peaks and classes are its, so that a job that does not fit has a peak too.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/allocation_observer.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/memory_timeline.h"
#include "sim/program/program.h"

namespace zerosim {

/// Host time of the allocator's work (E7.10).
struct AllocatorTimes {
  Seconds hit;          ///< an allocation from the cache; part of every other one
  Seconds free;         ///< to the cache
  Seconds event;        ///< one more recorded stream at a free: cudaEventRecord
  Seconds cuda_malloc;  ///< one call
  Seconds cuda_free;    ///< one call, without its wait for the device
  Seconds map_page;     ///< of an expandable segment: cuMemCreate, cuMemMap, cuMemSetAccess
  Seconds unmap_page;
};

/// With their sources, in the .cpp.
[[nodiscard]] AllocatorTimes default_allocator_times();

/// Without the waits for the device.
[[nodiscard]] Seconds driver_time(const DriverWork& work, const AllocatorTimes& times);

struct AllocatorSetup {
  AllocatorOptions allocator;  ///< of each rank
  AllocatorTimes times = default_allocator_times();
  int ranks_of_a_node = 1;  ///< that share its host memory
  bool keep_samples = false;
};

/// The allocator at one moment.
struct AllocatorMoment {
  Bytes allocated;
  Bytes active;
  Bytes reserved;
  MemoryByClass by_class{};  ///< of `allocated`, in whole blocks
  Phase phase = Phase::Init;
  int step = 0;    ///< of the request; that of the first one in the phase Init
  std::string op;  ///< the request: "saved_activation in model.layers.31.mlp"
  Seconds at{0};

  /// Reserved and not in use (E7.7).
  [[nodiscard]] Bytes fragmentation() const { return reserved - allocated; }
};

struct AllocatorFailure {
  OutOfMemory error;
  AllocatorMoment moment;  ///< `op` is the request that failed
  MemoryClass memory_class = MemoryClass::TemporaryBuffers;
};

/// A part of the job: the initialisation, or one step.
struct AllocatorPart {
  AllocatorMoment peak_allocated;  ///< the first moments at which so much was allocated,
  AllocatorMoment peak_reserved;   ///< and reserved; without limit
  MemoryByClass class_peaks{};     ///< the largest of each class, at whatever moment
  int flushes = 0;                 ///< num_alloc_retries, with the capacity
  Seconds driver_time{0};          ///< cudaMalloc, cudaFree and pages, without waits (G6)
};

struct AllocatorSample {
  Seconds at{0};
  Bytes allocated;
  Bytes active;
  Bytes reserved;
};

/// A rank class whose memory is followed.
struct ObservedClass {
  int program = 0;                  ///< of Program::ranks, that it runs
  std::optional<Bytes> capacity{};  ///< of its GPU; unset: the setup's
};

class AllocatorObserver final : public AllocationObserver {
 public:
  /// \param program  must outlive the observer.
  /// \param classes  empty: each of the program's rank programs is one
  AllocatorObserver(const Program& program, const AllocatorSetup& setup,
                    const std::vector<ObservedClass>& classes = {});

  Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                      Seconds now) override;
  Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                  Seconds now) override;
  Seconds on_empty_cache(int rank_class, const Op& op, Seconds now) override;
  bool poll_device(int rank_class, const DeviceProgress& progress) override;
  [[nodiscard]] bool synchronized(int rank_class) const override;

  /// The classes of ZeRO and host memory over time; requests rounded to 512 bytes.
  [[nodiscard]] const MemoryLedger& ledger() const { return ledger_; }
  /// With the capacity.
  [[nodiscard]] const CachingAllocator& allocator(int rank_class) const;
  /// The initialisation (what has Phase::Init), then each step of the program.
  [[nodiscard]] AllocatorPart part(int rank_class, std::size_t index) const;
  [[nodiscard]] std::size_t parts() const { return static_cast<std::size_t>(program_->steps) + 1; }
  /// The largest over all parts, the earliest among equals.
  [[nodiscard]] AllocatorMoment peak_allocated(int rank_class) const;
  [[nodiscard]] AllocatorMoment peak_reserved(int rank_class) const;
  /// Allocated, or freed and awaited by another stream (E7.8), at its largest; without limit.
  [[nodiscard]] Bytes peak_active(int rank_class) const;
  /// Live now, in whole blocks.
  [[nodiscard]] const MemoryByClass& current(int rank_class) const;
  /// The first request that failed.
  [[nodiscard]] const std::optional<AllocatorFailure>& out_of_memory(int rank_class) const;
  /// Host time of cudaMalloc, cudaFree and pages, without waits (G6), of the whole job.
  [[nodiscard]] Seconds driver_time(int rank_class) const;
  /// Without limit, in host order; empty unless they are kept.
  [[nodiscard]] const std::vector<AllocatorSample>& samples(int rank_class) const;
  /// What is allocated, of these samples: those of time 0 (warm-up steps) as one, the last.
  [[nodiscard]] std::vector<MemorySample> allocated_over_time(int rank_class) const;

 private:
  /// An AllocatorMoment before its request is put into words.
  struct Mark {
    AllocatorMoment moment;
    BufferId buffer;
    ModuleId module;
  };

  /// An AllocatorPart before that.
  struct Part {
    Mark peak_allocated;
    Mark peak_reserved;
    MemoryByClass class_peaks{};
    int flushes = 0;
    Seconds driver_time{0};
  };

  /// One allocator with what it has handed out.
  struct Device {
    explicit Device(const AllocatorOptions& options) : allocator(options) {}

    CachingAllocator allocator;
    std::vector<BlockId> blocks;  ///< by BufferId
    MemoryByClass by_class{};
  };

  struct RankAllocator {
    explicit RankAllocator(const AllocatorOptions& options) : limited(options), unlimited(options) {
      unlimited.allocator.lift_limits();
    }

    Device limited;
    Device unlimited;
    std::vector<Part> parts;
    std::optional<AllocatorFailure> failure;
    std::vector<AllocatorSample> samples;
    bool synchronized = false;
  };

  struct Event {
    BufferId id;
    const Buffer& buffer;
    const Op& op;
    Seconds now;
  };

  [[nodiscard]] const RankProgram& program_of(int rank_class) const;
  RankAllocator& rank(int rank_class);
  [[nodiscard]] const RankAllocator& rank(int rank_class) const;
  [[nodiscard]] std::size_t part_of(const Op& op) const;
  [[nodiscard]] AllocatorMoment in_words(int rank_class, const Mark& mark) const;
  DriverWork allocate_within_limit(RankAllocator& own, int rank_class, const Event& event);
  static Allocation allocate_block(Device& device, const Event& event);
  void free_block(Device& device, BufferId id, const Buffer& buffer) const;
  void note_peaks(RankAllocator& own, const Event& event) const;
  void note_failure(RankAllocator& own, int rank_class, const Event& event) const;
  static void set_moment(AllocatorMoment& moment, const AllocatorStats& stats,
                         const MemoryByClass& by_class, const Event& event);
  void sample(RankAllocator& own, Seconds now) const;

  const Program* program_;
  std::vector<int> programs_;  ///< by rank class
  AllocatorSetup setup_;
  MemoryLedger ledger_;
  std::vector<RankAllocator> ranks_;
  std::vector<StreamEvent> events_;  ///< of the present free
};

}  // namespace zerosim
