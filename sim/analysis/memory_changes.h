/// \file
/// The changes of a job that may make room: what `ways_out` tries.
///
/// Adding one is a function of memory_changes.cpp and a line of `changes_of`.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sim/analysis/limits.h"
#include "sim/analysis/report.h"
#include "sim/base/units.h"

namespace zerosim {

/// One change of a job. `apply` makes it, of any job that it applies to.
struct Change {
  std::string code;     ///< of data/cases/README.md, "Advice"; or two, with a space between
  std::string words;    ///< "a fused Adam"
  std::string setting;  ///< key and value
  std::function<void(PlacedStrategy&)> apply;
};

/// The same change in several strengths, the mildest first; at least one.
struct Ladder {
  std::vector<Change> rungs;
  /// What it can free of what is allocated at the peak of a steady step, at most: what it acts on.
  Bytes most_freed = Bytes(std::numeric_limits<std::int64_t>::max());
};

/// Those that apply, simple ones first: a switch, a size, then what changes the course of a step.
/// Not among them: more GPUs, which are searched for (limits.h).
/// \param memory  of the job as it is.
[[nodiscard]] std::vector<Ladder> changes_of(const PlacedStrategy& now, const MemoryReport& memory);

/// Those that may need less memory and cost no time: switches, sizes, lower stages.
[[nodiscard]] std::vector<Ladder> savings_of(const PlacedStrategy& now, const MemoryReport& memory);

/// What the simulator cannot run, where it would take away a tenth of the peak or more.
struct Proposal {
  std::string code, words, setting;
  std::string note;  ///< "most of 21.49 GiB of logits"
};
[[nodiscard]] std::vector<Proposal> proposals_of(const PlacedStrategy& now,
                                                 const MemoryReport& memory);

}  // namespace zerosim
