/// \file
/// Changes that make a job fit, each tried by replaying its memory, and what they cost in step
/// time.
///
/// Codes are those of data/cases/README.md, "Advice". What the simulator cannot run (sequence
/// parallelism, fused losses, activations on the host, adapters of unknown targets) is proposed
/// without memory or time where it would take away enough.
///
/// Not tried: changes of the model, the sequence or the precision; faster GPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/units.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// One change, or two together.
struct WayOut {
  std::string code;                    ///< "fused_optimizer"
  std::string second_code{};           ///< of a pair, and of one change that has two codes
  bool is_pair = false;                ///< two changes
  std::string change;                  ///< "full activation checkpointing", "16 GPUs"
  std::string setting;                 ///< "zero_optimization.sub_group_size: 250000000"
  bool is_enough = true;               ///< false: the nearest, or not simulated
  std::optional<MemoryReport> memory;  ///< not set: not simulated
  std::optional<Seconds> step;         ///< of an optimizer step; not set: not timed
  std::string note{};                  ///< of what is not simulated: what it would take away
};

struct WaysOutOptions {
  /// Runs the steps, with jitter the first repetition alone, in children (isolate.h), and puts the
  /// ways in their order. A process that has had an Engine cannot.
  bool timed = false;
  /// How much less than now a change has to allocate at its peak, beside fitting: what a real run
  /// lacked although the simulated one fits.
  Bytes at_least_freed{};
};

/// What would make `strategy` fit: all else stays, the train batch too, but for more GPUs.
///
/// Every single change that is enough (of a size the mildest: halved, halved again, ...), by step
/// time if timed, among equals and otherwise the simplest first. Where none is: the pairs of the
/// changes that free most which are; where none of them is either: the nearest pair. Then what is
/// not simulated.
/// \throws ConfigError  if the strategy itself cannot be simulated.
[[nodiscard]] std::vector<WayOut> ways_out(const Experiment& experiment, const Strategy& strategy,
                                           const WaysOutOptions& options = {});

/// Changes of a job that fits which allocate less at their peak or at that of a steady step (by 2 %
/// and more), or half of the host's memory, and take no more time (by 1 % at most): `lower_stage`
/// and smaller buffers where they do not pay, `zero_init`. Timed as above.
[[nodiscard]] std::vector<WayOut> free_savings(const Experiment& experiment,
                                               const Strategy& strategy);

/// An optimizer step of the same experiment in seconds, with jitter of its first repetition; not
/// set where it is refused.
[[nodiscard]] std::optional<Seconds> step_time(const Experiment& experiment,
                                               const Strategy& strategy);

}  // namespace zerosim
