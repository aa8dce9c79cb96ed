#include "sim/memory/allocator_observer.h"

#include <cstddef>
#include <utility>

#include "sim/base/error.h"

namespace zerosim {

/// Typical figures, not measurements of one machine: calibrate.
AllocatorTimes default_allocator_times() {
  AllocatorTimes times{};
  // E7.10: 1-2 us. The middle.
  times.hit = Seconds(1.5e-6);
  // The same lock, and merging in place of splitting; no search (estimate: half a hit).
  times.free = Seconds(0.75e-6);
  // cudaEventCreate from a pool and cudaEventRecord, without Python (kernels.md section 5 puts both
  // below 1 us).
  times.event = Seconds(1e-6);
  // E7.10: 0.1-1 ms. The geometric middle.
  times.cuda_malloc = Seconds(0.3e-3);
  // E7.10: it synchronises the device, which the engine adds; the call itself as cudaMalloc
  // (estimate). A cache of 300 segments is then flushed in 90 ms: "10-100s of ms".
  times.cuda_free = Seconds(0.3e-3);
  // A page is three driver calls that do less than cudaMalloc (estimate: a third of it).
  times.map_page = Seconds(0.1e-3);
  times.unmap_page = Seconds(0.1e-3);
  return times;
}

Seconds driver_time(const DriverWork& work, const AllocatorTimes& times) {
  return work.cuda_mallocs * times.cuda_malloc + work.cuda_frees * times.cuda_free +
         work.pages_mapped * times.map_page + work.pages_unmapped * times.unmap_page;
}

AllocatorObserver::AllocatorObserver(const Program& program, const AllocatorSetup& setup)
    : program_(&program), setup_(setup), ledger_(program, setup.keep_samples) {
  for (const RankProgram& rank_program : program.ranks) {
    ranks_.emplace_back(setup.allocator).blocks.resize(rank_program.buffers.size());
  }
}

Seconds AllocatorObserver::on_allocate(int rank_class, BufferId id, const Buffer& buffer,
                                       const Op& op, Seconds now) {
  const Seconds ledger_time = ledger_.on_allocate(rank_class, id, buffer, op, now);
  RankAllocator& own = rank(rank_class);
  own.synchronized = false;
  if (buffer.place != MemoryPlace::Device) return ledger_time;
  const Event event{id, buffer, op, now};
  Allocation allocation = own.allocator.allocate(buffer.bytes, buffer.stream);
  DriverWork work = allocation.work;
  if (allocation.out_of_memory) {
    note_failure(own, rank_class, event);
    own.allocator.lift_limits();
    allocation = own.allocator.allocate(buffer.bytes, buffer.stream);
    work += allocation.work;
  }
  own.blocks[id.index()] = allocation.block;
  own.by_class[static_cast<std::size_t>(buffer.memory_class)] += allocation.size;
  own.synchronized = work.synchronizes;
  note_peaks(own, event);
  sample(own, now);
  const Seconds driver = zerosim::driver_time(work, setup_.times);
  own.driver_time += driver;
  return setup_.times.hit + driver;
}

Seconds AllocatorObserver::on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                                   Seconds now) {
  const Seconds ledger_time = ledger_.on_free(rank_class, id, buffer, op, now);
  if (buffer.place != MemoryPlace::Device) return ledger_time;
  RankAllocator& own = rank(rank_class);
  const BlockId block = std::exchange(own.blocks[id.index()], BlockId());
  if (!block.valid()) return setup_.times.free;  // of no bytes
  const RankProgram& rank_program = program_->ranks[static_cast<std::size_t>(rank_class)];
  events_.clear();
  for (const OpId last : rank_program.dependencies_of(op)) {
    const StreamId stream = rank_program.ops[last.index()].stream;
    if (stream != buffer.stream) events_.push_back({stream, last});
  }
  own.by_class[static_cast<std::size_t>(buffer.memory_class)] -= own.allocator.size(block);
  own.allocator.free(block, events_);
  sample(own, now);
  return setup_.times.free + static_cast<double>(events_.size()) * setup_.times.event;
}

bool AllocatorObserver::poll_device(int rank_class, const DeviceProgress& progress) {
  return rank(rank_class).allocator.poll_events([&](OpId op) {
    switch (progress.state(op)) {
      case DeviceProgress::State::Ended:
        return EventState::Completed;
      case DeviceProgress::State::Running:
        return EventState::Pending;
      case DeviceProgress::State::Unknown:
        break;
    }
    return EventState::Unknown;
  });
}

bool AllocatorObserver::synchronized(int rank_class) const {
  return rank(rank_class).synchronized;
}

void AllocatorObserver::note_peaks(RankAllocator& own, const Event& event) const {
  const AllocatorStats& stats = own.allocator.stats();
  const auto note = [&](Mark& mark) {
    AllocatorMoment& moment = mark.moment;
    moment.allocated = stats.allocated.current;
    moment.active = stats.active.current;
    moment.reserved = stats.reserved.current;
    moment.by_class = own.by_class;
    moment.phase = event.op.phase;
    moment.at = event.now;
    mark.buffer = event.id;
    mark.module = event.op.module;
  };
  if (stats.allocated.current > own.peak_allocated.moment.allocated) note(own.peak_allocated);
  if (stats.reserved.current > own.peak_reserved.moment.reserved) note(own.peak_reserved);
}

void AllocatorObserver::note_failure(RankAllocator& own, int rank_class, const Event& event) const {
  if (own.failure) return;
  const OutOfMemory& error = *own.allocator.last_out_of_memory();
  Mark mark{{}, event.id, event.op.module};
  mark.moment.allocated = error.stats.allocated.current;
  mark.moment.active = error.stats.active.current;
  mark.moment.reserved = error.stats.reserved.current;
  mark.moment.by_class = own.by_class;
  mark.moment.phase = event.op.phase;
  mark.moment.at = event.now;
  own.failure = {error, in_words(rank_class, mark), event.buffer.memory_class};
}

void AllocatorObserver::sample(RankAllocator& own, Seconds now) const {
  if (!setup_.keep_samples) return;
  const AllocatorStats& stats = own.allocator.stats();
  own.samples.push_back(
      {now, stats.allocated.current, stats.active.current, stats.reserved.current});
}

AllocatorMoment AllocatorObserver::in_words(int rank_class, const Mark& mark) const {
  AllocatorMoment moment = mark.moment;
  if (mark.buffer.valid()) {
    const RankProgram& rank_program = program_->ranks[static_cast<std::size_t>(rank_class)];
    moment.op = request_text(*program_, rank_program.buffers[mark.buffer.index()], mark.module);
  }
  return moment;
}

const CachingAllocator& AllocatorObserver::allocator(int rank_class) const {
  return rank(rank_class).allocator;
}

AllocatorMoment AllocatorObserver::peak_allocated(int rank_class) const {
  return in_words(rank_class, rank(rank_class).peak_allocated);
}

AllocatorMoment AllocatorObserver::peak_reserved(int rank_class) const {
  return in_words(rank_class, rank(rank_class).peak_reserved);
}

const std::optional<AllocatorFailure>& AllocatorObserver::out_of_memory(int rank_class) const {
  return rank(rank_class).failure;
}

Seconds AllocatorObserver::driver_time(int rank_class) const {
  return rank(rank_class).driver_time;
}

const std::vector<AllocatorSample>& AllocatorObserver::samples(int rank_class) const {
  return rank(rank_class).samples;
}

AllocatorObserver::RankAllocator& AllocatorObserver::rank(int rank_class) {
  return ranks_[checked_rank_class(*program_, rank_class)];
}

const AllocatorObserver::RankAllocator& AllocatorObserver::rank(int rank_class) const {
  return ranks_[checked_rank_class(*program_, rank_class)];
}

}  // namespace zerosim
