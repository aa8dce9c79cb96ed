/// \file
/// Programs and timelines written by hand, times in seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/timeline.h"
#include "sim/program/builder.h"
#include "sim/program/program.h"

namespace zerosim::testing {

inline constexpr GroupId kGroup{std::int32_t{0}};

/// One rank class of `ranks` ranks with a compute stream, a side stream and a communicator.
class HandMade {
 public:
  explicit HandMade(int ranks) : builder_(Rank(0), ranks) {
    program_.world_size = ranks;
    program_.groups = {{"WORLD", ranks}};
    side_ = builder_.add_stream("side");
    builder_.add_communicator(kGroup, "WORLD");
    communicator_ = StreamId(side_.index() + 1);
    at(0, 0, Phase::Forward);
  }

  void at(int step, int micro_step, Phase phase) {
    builder_.set_step(step, micro_step);
    builder_.set_phase(phase);
  }

  /// A kernel that is ready at `ready`, starts at `start`, ends at `end`.
  OpId kernel(StreamId stream, double issued, double ready, double start, double end,
              KernelClass kernel_class = KernelClass::Gemm) {
    Kernel kernel;
    kernel.kernel_class = kernel_class;
    const OpId op = builder_.kernel(stream, kernel, HostWork::KernelLaunch, "test");
    span(stream, op, issued, ready, start, end);
    return op;
  }
  OpId compute(double issued, double ready, double end,
               KernelClass kernel_class = KernelClass::Gemm) {
    return kernel(kComputeStream, issued, ready, ready, end, kernel_class);
  }

  OpId all_gather(double issued, double start, double end, bool async = true) {
    Collective call;
    call.kind = CollectiveKind::AllGather;
    call.group = kGroup;
    call.async = async;
    const OpId op = builder_.collective(kComputeStream, call, "test");
    span(communicator_, op, issued, start, start, end);
    return op;
  }

  void stream_wait(StreamId stream, OpId op) { builder_.stream_wait(stream, op, "test"); }

  /// The host works on an operation of its own.
  void host_work(double start, double end) {
    const OpId op = builder_.host({HostWork::StepOverhead}, "test");
    timeline_.host_spans.push_back({0, op, Seconds(start), Seconds(end), false});
  }
  /// The host goes through its memory.
  void host_pass(double start, double end) {
    const OpId op = builder_.host_pass({"pass", Bytes(1)}, "test");
    timeline_.host_spans.push_back({0, op, Seconds(start), Seconds(end), false});
  }
  /// A copy to the device on the compute stream, issued and ready at `start`.
  void copy(double start, double end) {
    const OpId op = builder_.copy(kComputeStream, Copy{}, "test");
    span(kComputeStream, op, start, start, start, end);
  }
  void host_wait(OpId dependency, double start, double end) {
    builder_.host_wait(dependency, "test");
    const OpId next = builder_.host({HostWork::None, 0}, "test");
    const OpId wait(next.value() - 1);
    timeline_.host_spans.push_back({0, wait, Seconds(start), Seconds(end), true});
  }

  [[nodiscard]] StreamId side() const { return side_; }

  /// Ends of the steps; the first step is number 0.
  void steps(const std::vector<double>& ends) {
    program_.steps = static_cast<int>(ends.size());
    for (const double end : ends) timeline_.step_ends.emplace_back(end);
    timeline_.end = timeline_.step_ends.back();
    program_.ranks = {builder_.finish()};
  }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Timeline& timeline() const { return timeline_; }

 private:
  void span(StreamId stream, OpId op, double issued, double ready, double start, double end) {
    timeline_.spans.push_back(
        {0, stream, op, Seconds(issued), Seconds(ready), Seconds(start), Seconds(end)});
  }

  RankProgramBuilder builder_;
  StreamId side_, communicator_;
  Program program_;
  Timeline timeline_;
};

}  // namespace zerosim::testing
