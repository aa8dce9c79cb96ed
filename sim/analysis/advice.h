/// \file
/// Which of several simulated strategies to choose, and why: plain sentences made of their figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Two or three sentences.
///
/// Rates within a percent are equal; among equals one with room to spare goes before a tight one,
/// then the lower stage. If something fits: the fastest; what the next one loses, by parts of the
/// step at equal numbers of tokens; what does not fit; where one is FSDP, for each strategy what it
/// sends, where that travels, what is exposed and what memory it takes. If nothing fits: the
/// smallest, and changes that would make room, each found by replaying its memory. \param
/// strategies, reports  of the same order and number.
[[nodiscard]] std::vector<std::string> choice(const Experiment& experiment,
                                              const std::vector<Strategy>& strategies,
                                              const std::vector<StrategyReport>& reports);

/// A change after which a strategy fits.
struct WayOut {
  std::string change;  ///< "activation checkpointing"
  MemoryReport memory;
};

/// What would make `strategy` fit, one change at a time: full activation checkpointing, a smaller
/// micro batch with as much more accumulation, stage 3, more GPUs (the least number, whole nodes
/// beyond the first).
[[nodiscard]] std::vector<WayOut> ways_out(const Experiment& experiment, const Strategy& strategy);

}  // namespace zerosim
