#include "sim/analysis/request_log.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "sim/analysis/memory_report.h"
#include "sim/memory/allocator_observer.h"
#include "sim/memory/caching_allocator.h"

namespace zerosim {

namespace {

constexpr double kNear = 0.02;

Bytes distance(Bytes a, Bytes b) {
  return a > b ? a - b : b - a;
}

/// Less is better: the wrong phase, then how far from what the message says was allocated.
using Score = std::pair<bool, Bytes>;

/// The best request so far.
struct Best {
  std::optional<RequestMoment> moment;
  Score score;

  [[nodiscard]] bool takes(const Score& other) const { return !moment || other < score; }
};

/// Sees each request before the allocator does.
class RequestLog final : public AllocationObserver {
 public:
  RequestLog(const Program& program, const OomFigures& figures, const Experiment& experiment,
             const Strategy& strategy)
      : program_(&program),
        figures_(&figures),
        experiment_(&experiment),
        strategy_(&strategy),
        setup_(allocator_setup(experiment, program)),
        allocator_(program, setup_),
        wanted_allocated_(figures.allocated_at_most(setup_.allocator.other)),
        causes_(program.ranks.front().buffers.size(), MemoryCause::ModelStates) {}

  Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                      Seconds now) override {
    if (buffer.place != MemoryPlace::Device) {
      return allocator_.on_allocate(rank_class, id, buffer, op, now);
    }
    const Event event{buffer, op, cause_of(buffer, op, *strategy_, experiment_->model),
                      allocator_.allocator(rank_class).stats().allocated.current};
    look(event);
    const bool had_failed = allocator_.out_of_memory(rank_class).has_value();
    const Seconds time = allocator_.on_allocate(rank_class, id, buffer, op, now);
    if (!had_failed && allocator_.out_of_memory(rank_class)) found_.failure = moment_of(event);
    causes_[id.index()] = event.cause;
    of(event.cause) += rounded_allocation(buffer.bytes);
    by_class_[static_cast<std::size_t>(buffer.memory_class)] += rounded_allocation(buffer.bytes);
    if (is_wanted(buffer)) ++live_of_size_;
    return time;
  }

  Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                  Seconds now) override {
    if (buffer.place == MemoryPlace::Device) {
      of(causes_[id.index()]) -= rounded_allocation(buffer.bytes);
      by_class_[static_cast<std::size_t>(buffer.memory_class)] -= rounded_allocation(buffer.bytes);
      if (is_wanted(buffer)) --live_of_size_;
    }
    return allocator_.on_free(rank_class, id, buffer, op, now);
  }

  bool poll_device(int rank_class, const DeviceProgress& progress) override {
    return allocator_.poll_device(rank_class, progress);
  }
  [[nodiscard]] bool synchronized(int rank_class) const override {
    return allocator_.synchronized(rank_class);
  }

  [[nodiscard]] RequestSearch found() && {
    found_.exact = std::move(exact_.moment);
    found_.near = std::move(near_.moment);
    found_.as_full = std::move(as_full_.moment);
    found_.context = setup_.allocator.other;
    return std::move(found_);
  }

 private:
  struct Event {
    const Buffer& buffer;
    const Op& op;
    MemoryCause cause = MemoryCause::ModelStates;
    Bytes allocated;
  };

  Bytes& of(MemoryCause cause) { return by_cause_[static_cast<std::size_t>(cause)]; }

  [[nodiscard]] static Bytes segment_of(const Buffer& buffer, const AllocConf& conf) {
    return segment_size(rounded_request(buffer.bytes, conf));
  }
  [[nodiscard]] bool is_wanted(const Buffer& buffer) const {
    return figures_->request &&
           figures_->request->covers(segment_of(buffer, experiment_->alloc_conf));
  }
  [[nodiscard]] bool is_near(const Buffer& buffer) const {
    if (!figures_->request) return false;
    const Bytes off = distance(buffer.bytes, figures_->request->bytes);
    return off.gib() <= kNear * figures_->request->bytes.gib();
  }

  /// Without a figure: the more is allocated the better.
  [[nodiscard]] Score score_of(const Event& event) const {
    const bool elsewhere = figures_->phase && *figures_->phase != event.op.phase;
    return {elsewhere, wanted_allocated_ ? distance(event.allocated, *wanted_allocated_)
                                         : Bytes(0) - event.allocated};
  }

  void consider(Best& best, const Event& event) const {
    const Score score = score_of(event);
    if (best.takes(score)) best = {moment_of(event), score};
  }

  void look(const Event& event) {
    if (is_wanted(event.buffer)) consider(exact_, event);
    if (is_near(event.buffer)) consider(near_, event);
    if (wanted_allocated_) consider(as_full_, event);
    if (!found_.largest || event.buffer.bytes > found_.largest->bytes) {
      found_.largest = moment_of(event);
    }
    const Bytes after = event.allocated + event.buffer.bytes;
    if (!found_.fullest || after > found_.fullest->allocated + found_.fullest->bytes) {
      found_.fullest = moment_of(event);
    }
  }

  [[nodiscard]] RequestMoment moment_of(const Event& event) const {
    RequestMoment moment;
    moment.bytes = event.buffer.bytes;
    moment.owner = event.buffer.owner;
    moment.rule = event.op.rule;
    moment.module = event.op.module;
    if (moment.module.valid() && moment.module.index() < program_->module_names.size()) {
      moment.module_name = program_->module_names[moment.module.index()];
    }
    moment.memory_class = event.buffer.memory_class;
    moment.cause = event.cause;
    moment.phase = event.op.phase;
    moment.step = event.op.step;
    moment.allocated = event.allocated;
    moment.by_class = by_class_;
    moment.by_cause = by_cause_;
    moment.same_size_live = live_of_size_;
    return moment;
  }

  const Program* program_;
  const OomFigures* figures_;
  const Experiment* experiment_;
  const Strategy* strategy_;
  AllocatorSetup setup_;
  AllocatorObserver allocator_;
  std::optional<Bytes> wanted_allocated_;
  std::vector<MemoryCause> causes_;  ///< by BufferId
  MemoryByCause by_cause_{};
  MemoryByClass by_class_{};
  int live_of_size_ = 0;
  Best exact_, near_, as_full_;
  RequestSearch found_;
};

}  // namespace

bool OomFigures::any() const {
  return request || allocated || reserved || free;
}

std::optional<Bytes> OomFigures::unallocated() const {
  if (!allocated || !reserved) return std::nullopt;
  return std::max(reserved->bytes - allocated->bytes, Bytes(0));
}

std::optional<Bytes> OomFigures::allocated_at_most(Bytes context) const {
  if (allocated) return allocated->bytes;
  if (reserved) return reserved->bytes;
  if (!total || !free) return std::nullopt;
  const Bytes outside = context + (others ? others->bytes : Bytes(0));
  return std::max(total->bytes - free->bytes - outside, Bytes(0));
}

OomFigures figures_of(const OomMessage& message) {
  OomFigures figures;
  figures.request = message.request;
  figures.total = message.total;
  figures.allocated = message.allocated;
  figures.reserved = message.reserved;
  figures.free = message.free;
  figures.process = message.process;
  figures.others = message.others;
  figures.phase = message.phase;
  return figures;
}

RequestSearch find_requests(const OomFigures& figures, const Experiment& experiment,
                            const Strategy& strategy) {
  const Program program = memory_program(experiment, strategy);
  RequestLog log(program, figures, experiment, strategy);
  replay(program, log);
  return std::move(log).found();
}

}  // namespace zerosim
