#include "sim/memory/allocator_observer.h"

#include <algorithm>
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

namespace {

std::vector<int> programs_of(const Program& program, const std::vector<ObservedClass>& classes) {
  std::vector<int> programs;
  programs.reserve(classes.size());
  for (const ObservedClass& one : classes) programs.push_back(one.program);
  return programs_of_classes(program, std::move(programs));
}

}  // namespace

AllocatorObserver::AllocatorObserver(const Program& program, const AllocatorSetup& setup,
                                     const std::vector<ObservedClass>& classes)
    : program_(&program),
      programs_(programs_of(program, classes)),
      setup_(setup),
      ledger_(program, false, setup.ranks_of_a_node, programs_) {
  ranks_.reserve(programs_.size());
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    AllocatorOptions options = setup.allocator;
    if (i < classes.size() && classes[i].capacity) options.capacity = *classes[i].capacity;
    RankAllocator& own = ranks_.emplace_back(options);
    const std::size_t buffers = program_of(static_cast<int>(i)).buffers.size();
    own.limited.blocks.resize(buffers);
    own.unlimited.blocks.resize(buffers);
    own.parts.resize(parts());
  }
}

Seconds AllocatorObserver::on_allocate(int rank_class, BufferId id, const Buffer& buffer,
                                       const Op& op, Seconds now) {
  const Seconds ledger_time = ledger_.on_allocate(rank_class, id, buffer, op, now);
  RankAllocator& own = rank(rank_class);
  own.synchronized = false;
  if (buffer.place != MemoryPlace::Device) return ledger_time;
  const Event event{id, buffer, op, now};
  const DriverWork work = allocate_within_limit(own, rank_class, event);
  allocate_block(own.unlimited, event);
  note_peaks(own, event);
  sample(own, now);
  own.synchronized = work.synchronizes;
  const Seconds driver = zerosim::driver_time(work, setup_.times);
  own.parts[part_of(op)].driver_time += driver;
  return setup_.times.hit + driver;
}

/// After the first failure it goes on without limit.
DriverWork AllocatorObserver::allocate_within_limit(RankAllocator& own, int rank_class,
                                                    const Event& event) {
  Allocation allocation = allocate_block(own.limited, event);
  DriverWork work = allocation.work;
  if (allocation.flushed) ++own.parts[part_of(event.op)].flushes;
  if (allocation.out_of_memory) {
    note_failure(own, rank_class, event);
    own.limited.allocator.lift_limits();
    work += allocate_block(own.limited, event).work;
  }
  return work;
}

Allocation AllocatorObserver::allocate_block(Device& device, const Event& event) {
  Allocation allocation = device.allocator.allocate(event.buffer.bytes, event.buffer.stream);
  device.blocks[event.id.index()] = allocation.block;
  device.by_class[static_cast<std::size_t>(event.buffer.memory_class)] += allocation.size;
  return allocation;
}

Seconds AllocatorObserver::on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                                   Seconds now) {
  const Seconds ledger_time = ledger_.on_free(rank_class, id, buffer, op, now);
  if (buffer.place != MemoryPlace::Device) return ledger_time;
  RankAllocator& own = rank(rank_class);
  const RankProgram& rank_program = program_of(rank_class);
  events_.clear();
  for (const OpId last : rank_program.dependencies_of(op)) {
    const StreamId stream = rank_program.ops[last.index()].stream;
    if (stream != buffer.stream) events_.push_back({stream, last});
  }
  free_block(own.limited, id, buffer);
  free_block(own.unlimited, id, buffer);
  sample(own, now);
  return setup_.times.free + static_cast<double>(events_.size()) * setup_.times.event;
}

Seconds AllocatorObserver::on_empty_cache(int rank_class, const Op& op, Seconds now) {
  RankAllocator& own = rank(rank_class);
  const DriverWork work = own.limited.allocator.empty_cache();
  own.unlimited.allocator.empty_cache();
  own.synchronized = work.synchronizes;
  sample(own, now);
  const Seconds driver = zerosim::driver_time(work, setup_.times);
  own.parts[part_of(op)].driver_time += driver;
  return driver;
}

void AllocatorObserver::free_block(Device& device, BufferId id, const Buffer& buffer) const {
  const BlockId block = std::exchange(device.blocks[id.index()], BlockId());
  if (!block.valid()) return;  // of no bytes
  device.by_class[static_cast<std::size_t>(buffer.memory_class)] -= device.allocator.size(block);
  device.allocator.free(block, events_);
}

bool AllocatorObserver::poll_device(int rank_class, const DeviceProgress& progress) {
  const auto state = [&](OpId op) {
    switch (progress.state(op)) {
      case DeviceProgress::State::Ended:
        return EventState::Completed;
      case DeviceProgress::State::Running:
        return EventState::Pending;
      case DeviceProgress::State::Unknown:
        break;
    }
    return EventState::Unknown;
  };
  RankAllocator& own = rank(rank_class);
  const bool known = own.limited.allocator.poll_events(state);
  return own.unlimited.allocator.poll_events(state) && known;
}

bool AllocatorObserver::synchronized(int rank_class) const {
  return rank(rank_class).synchronized;
}

std::size_t AllocatorObserver::part_of(const Op& op) const {
  return op.phase == Phase::Init ? 0 : static_cast<std::size_t>(op.step - program_->first_step) + 1;
}

void AllocatorObserver::note_peaks(RankAllocator& own, const Event& event) const {
  const AllocatorStats& stats = own.unlimited.allocator.stats();
  const auto note = [&](Mark& mark) {
    set_moment(mark.moment, stats, own.unlimited.by_class, event);
    mark.buffer = event.id;
    mark.module = event.op.module;
  };
  Part& part = own.parts[part_of(event.op)];
  if (stats.allocated.current > part.peak_allocated.moment.allocated) note(part.peak_allocated);
  if (stats.reserved.current > part.peak_reserved.moment.reserved) note(part.peak_reserved);
  for (std::size_t i = 0; i < part.class_peaks.size(); ++i) {
    part.class_peaks[i] = std::max(part.class_peaks[i], own.unlimited.by_class[i]);
  }
}

void AllocatorObserver::note_failure(RankAllocator& own, int rank_class, const Event& event) const {
  if (own.failure) return;
  const OutOfMemory& error = *own.limited.allocator.last_out_of_memory();
  Mark mark{{}, event.id, event.op.module};
  set_moment(mark.moment, error.stats, own.limited.by_class, event);
  own.failure = {error, in_words(rank_class, mark), event.buffer.memory_class};
}

void AllocatorObserver::set_moment(AllocatorMoment& moment, const AllocatorStats& stats,
                                   const MemoryByClass& by_class, const Event& event) {
  moment.allocated = stats.allocated.current;
  moment.active = stats.active.current;
  moment.reserved = stats.reserved.current;
  moment.by_class = by_class;
  moment.phase = event.op.phase;
  moment.step = event.op.step;
  moment.at = event.now;
}

void AllocatorObserver::sample(RankAllocator& own, Seconds now) const {
  if (!setup_.keep_samples) return;
  const AllocatorStats& stats = own.unlimited.allocator.stats();
  own.samples.push_back(
      {now, stats.allocated.current, stats.active.current, stats.reserved.current});
}

AllocatorMoment AllocatorObserver::in_words(int rank_class, const Mark& mark) const {
  AllocatorMoment moment = mark.moment;
  if (mark.buffer.valid()) {
    const RankProgram& rank_program = program_of(rank_class);
    moment.op = request_text(*program_, rank_program.buffers[mark.buffer.index()], mark.module);
  }
  return moment;
}

const CachingAllocator& AllocatorObserver::allocator(int rank_class) const {
  return rank(rank_class).limited.allocator;
}

AllocatorPart AllocatorObserver::part(int rank_class, std::size_t index) const {
  ZS_CHECK(index < parts(), "the part is the program's");
  const Part& own = rank(rank_class).parts[index];
  return {in_words(rank_class, own.peak_allocated), in_words(rank_class, own.peak_reserved),
          own.class_peaks, own.flushes, own.driver_time};
}

AllocatorMoment AllocatorObserver::peak_allocated(int rank_class) const {
  const std::vector<Part>& all = rank(rank_class).parts;
  const auto lower = [](const Part& a, const Part& b) {
    return a.peak_allocated.moment.allocated < b.peak_allocated.moment.allocated;
  };
  return in_words(rank_class, std::max_element(all.begin(), all.end(), lower)->peak_allocated);
}

AllocatorMoment AllocatorObserver::peak_reserved(int rank_class) const {
  const std::vector<Part>& all = rank(rank_class).parts;
  const auto lower = [](const Part& a, const Part& b) {
    return a.peak_reserved.moment.reserved < b.peak_reserved.moment.reserved;
  };
  return in_words(rank_class, std::max_element(all.begin(), all.end(), lower)->peak_reserved);
}

Bytes AllocatorObserver::peak_active(int rank_class) const {
  return rank(rank_class).unlimited.allocator.stats().active.peak;
}

const MemoryByClass& AllocatorObserver::current(int rank_class) const {
  return rank(rank_class).unlimited.by_class;
}

const std::optional<AllocatorFailure>& AllocatorObserver::out_of_memory(int rank_class) const {
  return rank(rank_class).failure;
}

Seconds AllocatorObserver::driver_time(int rank_class) const {
  Seconds sum(0);
  for (const Part& part : rank(rank_class).parts) sum += part.driver_time;
  return sum;
}

const std::vector<AllocatorSample>& AllocatorObserver::samples(int rank_class) const {
  return rank(rank_class).samples;
}

std::vector<MemorySample> AllocatorObserver::allocated_over_time(int rank_class) const {
  std::vector<MemorySample> course;
  for (const AllocatorSample& sample : samples(rank_class)) {
    if (sample.at == Seconds(0)) course.clear();
    course.push_back({sample.at, sample.allocated});
  }
  return course;
}

const RankProgram& AllocatorObserver::program_of(int rank_class) const {
  return program_->ranks[static_cast<std::size_t>(programs_[static_cast<std::size_t>(rank_class)])];
}

AllocatorObserver::RankAllocator& AllocatorObserver::rank(int rank_class) {
  ZS_CHECK(rank_class >= 0 && static_cast<std::size_t>(rank_class) < ranks_.size(),
           "the rank class is observed");
  return ranks_[static_cast<std::size_t>(rank_class)];
}

const AllocatorObserver::RankAllocator& AllocatorObserver::rank(int rank_class) const {
  ZS_CHECK(rank_class >= 0 && static_cast<std::size_t>(rank_class) < ranks_.size(),
           "the rank class is observed");
  return ranks_[static_cast<std::size_t>(rank_class)];
}

}  // namespace zerosim
