/// \file
/// Which of several simulated strategies to choose, and why: plain sentences made of their figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/analysis/ways_out.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Two or three sentences.
///
/// Rates within a percent are equal; among equals one with room to spare goes before a tight one,
/// then the lower stage. If something fits: the fastest; what the next one loses, by parts of the
/// step at equal numbers of tokens; what does not fit; where one is FSDP, for each strategy what it
/// sends, where that travels, what is exposed and what memory it takes. If nothing fits: the
/// smallest, and the simplest changes that would make room (`ways_out`, untimed).
/// \param strategies, reports  of the same order and number.
[[nodiscard]] std::vector<std::string> choice(const Experiment& experiment,
                                              const std::vector<Strategy>& strategies,
                                              const std::vector<StrategyReport>& reports);

}  // namespace zerosim
