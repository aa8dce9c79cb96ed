/// \file
/// What ran when: the one type for predicted and measured runs.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/engine/link_traffic.h"

namespace zerosim {

/// A device operation that ran: kernel, copy or collective of one rank class.
struct Span {
  int rank_class = 0;  ///< index into Timeline::ranks
  StreamId stream;
  OpId op;
  Seconds issued{0};  ///< the host had handed it over
  Seconds ready{0};   ///< stream and dependencies had let it go, and every member had arrived
  Seconds start{0};   ///< = ready for collectives and copies; after the launch gap for kernels
  Seconds end{0};
};

/// An interval in which the host thread of a rank class worked on an operation or waited in it.
struct HostSpan {
  int rank_class = 0;
  OpId op;
  Seconds start{0};
  Seconds end{0};
  bool waiting = false;  ///< blocked on the device (HostWait, or the launch queue was full)
};

/// What a rank class of a timeline stands for.
struct TimelineRank {
  int program = 0;         ///< index into Program::ranks
  int representative = 0;  ///< a rank
  int multiplicity = 1;    ///< ranks that behave as it does
};

struct Timeline {
  std::vector<Span> spans;  ///< sorted by (start, rank class, stream, op)
  std::vector<HostSpan>
      host_spans;  ///< sorted by (start, rank class, op); zero-length ones left out
  /// End of the last operation of each step, over all rank classes; index: step - first_step.
  std::vector<Seconds> step_ends;
  Seconds end{0};
  std::vector<TimelineRank> ranks;  ///< rank classes; empty: those of the Program, in its order
  std::vector<LinkTraffic> links;   ///< in the last step; of a measured run none
};

/// From the end of the step before it, or from 0, to the end of the last step.
[[nodiscard]] Seconds last_step(const Timeline& timeline);

/// Index into Program::ranks of what a rank class runs.
[[nodiscard]] int program_of(const Timeline& timeline, int rank_class);

/// Puts spans and host spans in their order.
void sort(Timeline& timeline);

/// Hash of the spans at 1 ns: the golden value of runs too long to store. It tells when what ran on
/// which stream of which rank class, in the order of each stream; operations are not numbered, so
/// that issuing independent streams in another order at the same instants does not change it.
[[nodiscard]] std::uint64_t fingerprint(const Timeline& timeline);

}  // namespace zerosim
