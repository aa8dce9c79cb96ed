// The split of a step: what the compute stream does at each instant, and if nothing, why
// (report.h).
//
// A kernel counts from the instant at which it is ready. The update of an offloaded optimizer
// counts as optimizer: the step's passes over host memory and its copies (B6.3). In the idle time
// before it the compute stream stands before its *head*: the first of its operations that has not
// ended.
//
//   head not issued, host works            -> host
//   head not issued, host waits            -> what the host waits for
//   head not issued, host has nothing to do-> communication if any is in flight, else host
//   head issued                            -> what its last dependency to end is
//
// A stream *serves communication* if it is a communicator of more than one rank, or a side stream
// one of whose operations depends on such a stream or is depended upon by it (gathers' copy-outs,
// flattening before a reduction), in any number of steps.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/error.h"

namespace zerosim {

namespace {

struct Interval {
  Seconds begin{0};
  Seconds end{0};
};

/// Sorted and disjoint intervals that cover the same instants.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> result;
  for (const Interval& interval : intervals) {
    if (result.empty() || result.back().end < interval.begin) {
      result.push_back(interval);
    } else {
      result.back().end = std::max(result.back().end, interval.end);
    }
  }
  return result;
}

/// Part of [begin, end] that the disjoint, sorted `intervals` cover.
Seconds covered(const std::vector<Interval>& intervals, Seconds begin, Seconds end) {
  auto interval = std::upper_bound(intervals.begin(), intervals.end(), begin,
                                   [](Seconds time, const Interval& i) { return time < i.end; });
  Seconds sum{0};
  for (; interval != intervals.end() && interval->begin < end; ++interval) {
    sum += std::min(end, interval->end) - std::max(begin, interval->begin);
  }
  return sum;
}

bool on_compute_stream(const Op& op) {
  return op.stream == kComputeStream &&
         (op.kind == OpKind::Kernel || op.kind == OpKind::Copy || op.kind == OpKind::StreamWait);
}

/// By stream: whether it serves communication.
std::vector<bool> communication_streams(const Program& program, const RankProgram& rank) {
  const std::size_t streams = rank.streams.size();
  std::vector<bool> serves(streams, false);
  for (std::size_t s = 0; s < streams; ++s) {
    const GroupId group = rank.streams[s].communicator;
    serves[s] = group.valid() && program.groups[group.index()].size > 1;
  }
  std::vector<bool> linked(streams * streams, false);
  for (const Op& op : rank.ops) {
    if (!op.stream.valid()) continue;
    for (const OpId dependency : rank.dependencies_of(op)) {
      const StreamId other = rank.ops[dependency.index()].stream;
      linked[op.stream.index() * streams + other.index()] = true;
      linked[other.index() * streams + op.stream.index()] = true;
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t s = 0; s < streams; ++s) {
      if (serves[s] || s == kComputeStream.index()) continue;
      for (std::size_t other = 0; other < streams; ++other) {
        if (serves[other] && linked[s * streams + other]) serves[s] = changed = true;
      }
    }
  }
  return serves;
}

/// What a timeline holds of one rank class.
struct ClassSpans {
  std::vector<const Span*> device;
  std::vector<const HostSpan*> host;
};

std::size_t class_count(const Program& program, const Timeline& timeline) {
  return timeline.ranks.empty() ? program.ranks.size() : timeline.ranks.size();
}

/// Of each rank class, in the order of the timeline.
std::vector<ClassSpans> spans_by_class(const Program& program, const Timeline& timeline) {
  std::vector<ClassSpans> classes(class_count(program, timeline));
  for (const Span& span : timeline.spans) {
    classes[static_cast<std::size_t>(span.rank_class)].device.push_back(&span);
  }
  for (const HostSpan& span : timeline.host_spans) {
    classes[static_cast<std::size_t>(span.rank_class)].host.push_back(&span);
  }
  return classes;
}

/// When each operation of one rank class was issued, ready and over.
class ClassRun {
 public:
  ClassRun(const Program& program, const Timeline& timeline, int rank_class,
           const ClassSpans& spans)
      : rank_(program.ranks[static_cast<std::size_t>(program_of(timeline, rank_class))]),
        serves_communication_(communication_streams(program, rank_)),
        issued_(rank_.ops.size()),
        ready_(rank_.ops.size()),
        end_(rank_.ops.size()) {
    for (const HostSpan* host_span : spans.host) {
      const HostSpan& span = *host_span;
      host_spans_.push_back(span);
      issued_[span.op.index()] = std::max(issued_[span.op.index()], span.end);
    }
    std::vector<bool> ran(rank_.ops.size(), false);
    std::vector<Interval> collectives;
    std::vector<Interval> in_flight;
    for (const Span* device_span : spans.device) {
      const Span& span = *device_span;
      const std::size_t op = span.op.index();
      ran[op] = true;
      issued_[op] = std::max(issued_[op], span.issued);
      ready_[op] = span.ready;
      end_[op] = span.end;
      if (!serves_communication_[span.stream.index()]) continue;
      in_flight.push_back({span.ready, span.end});
      if (rank_.ops[op].kind == OpKind::Collective) collectives.push_back({span.start, span.end});
    }
    collectives_ = merged(std::move(collectives));
    in_flight_ = merged(std::move(in_flight));
    end_coalesced_together();
    follow_program(ran);
  }

  [[nodiscard]] const RankProgram& program() const { return rank_; }
  [[nodiscard]] Seconds issued(std::size_t op) const { return issued_[op]; }
  [[nodiscard]] Seconds ready(std::size_t op) const { return ready_[op]; }
  [[nodiscard]] Seconds end(std::size_t op) const { return end_[op]; }
  [[nodiscard]] const std::vector<HostSpan>& host_spans() const { return host_spans_; }
  [[nodiscard]] const std::vector<Interval>& collectives() const { return collectives_; }
  [[nodiscard]] const std::vector<Interval>& in_flight() const { return in_flight_; }

  /// Whether what `op` waits for last is communication.
  [[nodiscard]] bool waits_for_communication(const Op& op) const {
    const Op* waiting = &op;
    while (true) {
      OpId last;
      for (const OpId dependency : rank_.dependencies_of(*waiting)) {
        if (!last.valid() || end_[dependency.index()] > end_[last.index()]) last = dependency;
      }
      if (!last.valid()) return false;
      waiting = &rank_.ops[last.index()];
      if (serves_communication_[waiting->stream.index()]) return true;
      if (waiting->kind != OpKind::StreamWait) return false;
    }
  }

 private:
  /// What depends on one of several coalesced calls is let go by the end of all.
  void end_coalesced_together() {
    std::vector<std::size_t> next(rank_.streams.size(), rank_.ops.size());
    for (std::size_t i = rank_.ops.size(); i-- > 0;) {
      const Op& op = rank_.ops[i];
      if (op.kind != OpKind::Collective) continue;
      std::size_t& later = next[op.stream.index()];
      if (later < rank_.ops.size() && call(op).coalesced >= 0 &&
          call(op).coalesced == call(rank_.ops[later]).coalesced) {
        end_[i] = end_[later];
      }
      later = i;
    }
  }
  [[nodiscard]] const Collective& call(const Op& op) const {
    return rank_.collectives[static_cast<std::size_t>(op.payload)];
  }

  /// Times of what a Timeline does not list: stream waits, and host work of no length.
  void follow_program(const std::vector<bool>& ran) {
    std::vector<Seconds> stream_end(rank_.streams.size());
    Seconds host{0};
    for (std::size_t i = 0; i < rank_.ops.size(); ++i) {
      const Op& op = rank_.ops[i];
      issued_[i] = host = std::max(host, issued_[i]);
      if (!op.stream.valid()) {
        ready_[i] = end_[i] = host;
        continue;
      }
      if (!ran[i]) {
        Seconds time = std::max(host, stream_end[op.stream.index()]);
        for (const OpId dependency : rank_.dependencies_of(op)) {
          time = std::max(time, end_[dependency.index()]);
        }
        ready_[i] = end_[i] = time;
      }
      stream_end[op.stream.index()] = end_[i];
    }
  }

  const RankProgram& rank_;
  std::vector<bool> serves_communication_;     ///< by stream
  std::vector<Seconds> issued_, ready_, end_;  ///< by operation
  std::vector<HostSpan> host_spans_;
  std::vector<Interval> collectives_;
  std::vector<Interval> in_flight_;  ///< anything on a stream that serves communication
};

/// Walks the compute stream through an interval of time and books every instant of it once.
class StepSplit {
 public:
  StepSplit(const ClassRun& run, const Interval& step) : run_(run), step_(step), now_(step.begin) {
    for (std::size_t i = 0; i < run_.program().ops.size(); ++i) {
      const Op& op = run_.program().ops[i];
      if (on_compute_stream(op) && run_.end(i) > step_.begin) walk(op, i);
    }
    unissued_until(step_.end);
  }

  void report(TimeReport& time) const {
    time.compute = seconds(compute_);
    time.exposed_communication = seconds(communication_);
    time.host = seconds(host_);
    time.optimizer = seconds(optimizer_);
  }

 private:
  // Some ten thousand pieces sum to the step to 1e-12 only if rounding errors do not add up.
  using Sum = long double;
  static Seconds seconds(Sum sum) { return Seconds(static_cast<double>(sum)); }

  void walk(const Op& op, std::size_t index) {
    unissued_until(run_.issued(index));
    book(run_.waits_for_communication(op) ? communication_ : host_, run_.ready(index));
    book(updates(op) ? optimizer_ : compute_, run_.end(index));
  }

  [[nodiscard]] bool updates(const Op& op) const {
    const bool in_step = op.phase == Phase::Step;
    switch (op.kind) {
      case OpKind::Kernel:
        return run_.program().kernels[static_cast<std::size_t>(op.payload)].kernel_class ==
               KernelClass::Optimizer;
      case OpKind::Copy:
        return in_step;
      case OpKind::Host:
        return in_step && op.payload >= 0;
      default:
        return false;
    }
  }

  /// Books what is left until `time`, at most until the end of the step.
  void book(Sum& sum, Seconds time) {
    const Seconds end = std::min(time, step_.end);
    if (end > now_) {
      sum += static_cast<Sum>(end.count()) - static_cast<Sum>(now_.count());
      now_ = end;
    }
  }

  void unissued_until(Seconds time) {
    const std::vector<HostSpan>& spans = run_.host_spans();
    while (now_ < std::min(time, step_.end)) {
      while (next_host_span_ < spans.size() && spans[next_host_span_].end <= now_) {
        ++next_host_span_;
      }
      if (next_host_span_ == spans.size()) {
        nothing_issued_until(time);
        return;
      }
      const HostSpan& span = spans[next_host_span_];
      nothing_issued_until(std::min(time, span.start));
      if (span.waiting) {
        host_waits_until(std::min(time, span.end), run_.program().ops[span.op.index()]);
      } else {
        const Op& op = run_.program().ops[span.op.index()];
        book(updates(op) && op.kind == OpKind::Host ? optimizer_ : host_, std::min(time, span.end));
      }
    }
  }

  void host_waits_until(Seconds time, const Op& op) {
    if (op.kind == OpKind::HostWait) {
      book(run_.waits_for_communication(op) ? communication_ : host_, time);
    } else {
      nothing_issued_until(time);  // its launch queue is full
    }
  }

  void nothing_issued_until(Seconds time) {
    const Seconds end = std::min(time, step_.end);
    if (end <= now_) return;
    const Seconds communication = covered(run_.in_flight(), now_, end);
    communication_ += static_cast<Sum>(communication.count());
    host_ -= static_cast<Sum>(communication.count());
    book(host_, end);
  }

  const ClassRun& run_;
  Interval step_;
  Seconds now_;
  std::size_t next_host_span_ = 0;
  Sum compute_ = 0, communication_ = 0, host_ = 0, optimizer_ = 0;
};

/// Forward and backward of the micro batches of one step, as events recorded on the compute stream
/// at the borders of the phases would time them.
class PhaseTimes {
 public:
  PhaseTimes(const ClassRun& run, int step, Seconds begin) : begin_(begin) {
    const std::vector<Op>& ops = run.program().ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      if (op.step == step && op.phase != Phase::Init) enter(op);
      host_ = run.issued(i);
      if (on_compute_stream(op)) device_ = std::max(device_, run.end(i));
    }
    close();
  }

  [[nodiscard]] Seconds forward() const { return average(forward_); }
  [[nodiscard]] Seconds backward() const { return average(backward_); }

 private:
  void enter(const Op& op) {
    if (op.phase == phase_ && op.micro_step == micro_step_) return;
    close();
    phase_ = op.phase;
    micro_step_ = op.micro_step;
    if (phase_ == Phase::Forward) ++micro_batches_;
  }
  void close() {
    const Seconds now = std::max({begin_, host_, device_});
    if (phase_ == Phase::Forward) forward_ += now - opened_;
    if (phase_ == Phase::Backward) backward_ += now - opened_;
    opened_ = now;
  }
  [[nodiscard]] Seconds average(Seconds sum) const {
    return micro_batches_ > 0 ? sum / micro_batches_ : Seconds(0);
  }

  Seconds begin_;
  Phase phase_ = Phase::Init;
  int micro_step_ = -1;
  int micro_batches_ = 0;
  Seconds host_{0};    ///< the host thread has come here
  Seconds device_{0};  ///< the compute stream has come here
  Seconds opened_{0};
  Seconds forward_{0};
  Seconds backward_{0};
};

TimeReport split_class(const Program& program, const Timeline& timeline, int rank_class,
                       const ClassSpans& spans) {
  ZS_CHECK(
      program.steps >= 1 && timeline.step_ends.size() == static_cast<std::size_t>(program.steps),
      "the timeline is of this program");
  const std::size_t last = timeline.step_ends.size() - 1;
  const Interval step{last > 0 ? timeline.step_ends[last - 1] : Seconds(0),
                      timeline.step_ends[last]};
  const ClassRun run(program, timeline, rank_class, spans);
  TimeReport time;
  time.step = step.end - step.begin;
  StepSplit(run, step).report(time);
  const PhaseTimes phases(run, program.first_step + static_cast<int>(last), step.begin);
  time.forward = phases.forward();
  time.backward = phases.backward();
  time.communication = covered(run.collectives(), step.begin, step.end);
  const auto index = static_cast<std::size_t>(rank_class);
  time.rank = timeline.ranks.empty() ? program.ranks[index].representative.value()
                                     : timeline.ranks[index].representative;
  return time;
}

/// Rank classes wait alike if they differ by less than what sums of some ten thousand pieces do.
bool waits_less(const TimeReport& a, const TimeReport& b) {
  return a.exposed_communication < b.exposed_communication - a.step * 1e-9;
}

}  // namespace

TimeReport split_step(const Program& program, const Timeline& timeline, int rank_class) {
  ZS_CHECK(rank_class >= 0 && static_cast<std::size_t>(rank_class) < class_count(program, timeline),
           "the rank class exists");
  const std::vector<ClassSpans> classes = spans_by_class(program, timeline);
  return split_class(program, timeline, rank_class, classes[static_cast<std::size_t>(rank_class)]);
}

TimeReport split_critical_step(const Program& program, const Timeline& timeline) {
  const std::vector<ClassSpans> classes = spans_by_class(program, timeline);
  TimeReport critical = split_class(program, timeline, 0, classes[0]);
  for (std::size_t i = 1; i < classes.size(); ++i) {
    const TimeReport time = split_class(program, timeline, static_cast<int>(i), classes[i]);
    if (waits_less(time, critical)) critical = time;
  }
  return critical;
}

}  // namespace zerosim
