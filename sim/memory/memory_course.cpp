#include "sim/memory/memory_course.h"

#include <algorithm>

#include "sim/base/error.h"

namespace zerosim {

namespace {

AllocatorSetup with_samples(AllocatorSetup setup) {
  setup.keep_samples = true;
  return setup;
}

/// Lets an AllocatorObserver see everything and writes down what it then holds.
class Recorder final : public AllocationObserver {
 public:
  Recorder(const Program& program, const AllocatorSetup& setup, int rank_class)
      : observer_(program, with_samples(setup)), rank_class_(rank_class) {}

  Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                      Seconds now) override {
    const Seconds time = observer_.on_allocate(rank_class, id, buffer, op, now);
    record(buffer, op, buffer.bytes);
    return time;
  }
  Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                  Seconds now) override {
    const Seconds time = observer_.on_free(rank_class, id, buffer, op, now);
    record(buffer, op, Bytes(-buffer.bytes.count()));
    return time;
  }
  Seconds on_empty_cache(int rank_class, const Op& op, Seconds now) override {
    const Seconds time = observer_.on_empty_cache(rank_class, op, now);
    MemoryEvent& event = record(op);
    event.emptied = true;
    return time;
  }
  bool poll_device(int rank_class, const DeviceProgress& progress) override {
    return observer_.poll_device(rank_class, progress);
  }
  [[nodiscard]] bool synchronized(int rank_class) const override {
    return observer_.synchronized(rank_class);
  }

  std::vector<MemoryEvent> take() { return std::move(events_); }

 private:
  void record(const Buffer& buffer, const Op& op, Bytes change) {
    if (buffer.place != MemoryPlace::Device) return;
    MemoryEvent& event = record(op);
    event.owner = buffer.owner;
    event.memory_class = buffer.memory_class;
    event.stream = buffer.stream;
    event.bytes = change;
    note_trouble(event);
  }

  /// What is held after `op`.
  MemoryEvent& record(const Op& op) {
    const AllocatorSample& sample = observer_.samples(rank_class_).back();
    MemoryEvent& event = events_.emplace_back();
    event.step = op.step;
    event.micro_step = op.micro_step;
    event.phase = op.phase;
    event.module = op.module;
    event.allocated = sample.allocated;
    event.active = sample.active;
    event.reserved = sample.reserved;
    event.by_class = observer_.current(rank_class_);
    return event;
  }

  void note_trouble(MemoryEvent& event) {
    const AllocatorStats& stats = observer_.allocator(rank_class_).stats();
    event.failed = stats.num_ooms > failures_ && failures_ == 0;
    event.flushed = stats.num_alloc_retries > flushes_;
    failures_ = stats.num_ooms;
    flushes_ = stats.num_alloc_retries;
  }

  AllocatorObserver observer_;
  int rank_class_;
  std::int64_t flushes_ = 0;
  std::int64_t failures_ = 0;
  std::vector<MemoryEvent> events_;
};

}  // namespace

std::vector<MemoryEvent> memory_course(const Program& program, const AllocatorSetup& setup,
                                       int rank_class) {
  Recorder recorder(program, setup, rank_class);
  replay(program, recorder, rank_class);
  return recorder.take();
}

std::size_t peak_of(const std::vector<MemoryEvent>& course) {
  ZS_CHECK(!course.empty(), "a course has events");
  const auto peak = std::max_element(
      course.begin(), course.end(),
      [](const MemoryEvent& a, const MemoryEvent& b) { return a.allocated < b.allocated; });
  return static_cast<std::size_t>(peak - course.begin());
}

}  // namespace zerosim
