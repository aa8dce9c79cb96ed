/// \file
/// The first half of a simulated strategy: its program built and folded, so that an engine can be
/// made with room for what it is going to run.
#pragma once

#include <optional>

#include "sim/analysis/rank_memory.h"
#include "sim/analysis/report.h"
#include "sim/base/ids.h"
#include "sim/engine/engine.h"
#include "sim/program/build.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"
#include "topology/folding.h"

namespace zerosim {

/// A strategy that is ready to run.
struct PreparedStrategy {
  Program program;
  Folding folding;
  MemoryRanks ranks;             ///< with FoldMode::On: whose memory is looked at
  FoldMode mode = FoldMode::On;  ///< as it is folded
};

/// \throws ConfigError  as build_program and fold; for FoldMode::Exact where nothing may be folded
///                      (jitter, hashed flows, CollectiveForm::Stepped);
///                      for more rank classes than this machine has memory for.
[[nodiscard]] PreparedStrategy prepare(const Experiment& experiment, const Strategy& strategy,
                                       const SimulationOptions& options = {});

/// Of an engine for this experiment: with its calibration.
[[nodiscard]] EngineOptions engine_options(const Experiment& experiment);

/// Widens `room` to what this strategy needs: SimGrid seals the platform at the first run.
void make_room(const PreparedStrategy& prepared, EngineOptions& room);

/// As simulate_strategy, of what `prepare` made of the same arguments.
[[nodiscard]] StrategyReport simulate_prepared(const Experiment& experiment,
                                               const Strategy& strategy, PreparedStrategy prepared,
                                               Engine& engine,
                                               const SimulationOptions& options = {},
                                               SimulatedRun* run = nullptr);

/// The program of one rank alone, of the steps that are simulated.
[[nodiscard]] Program program_of_rank(const Experiment& experiment, const Strategy& strategy,
                                      const SimulationOptions& options, Rank rank);

}  // namespace zerosim
