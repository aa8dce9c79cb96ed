/// \file
/// One table with a column for each strategy, and what is said below it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/analysis/report.h"

namespace zerosim {

/// A row: `value` of each strategy, at most `width` characters wide. Units belong into the label.
struct Metric {
  const char* label;
  std::function<std::string(const StrategyReport& report, int width)> value;  ///< empty: a heading
};
using Metrics = std::vector<Metric>;

/// At most kReportColumns wide: long names are wrapped; strategies that do not fit side by side
/// follow in a second block.
[[nodiscard]] std::string strategy_table(std::span<const StrategyReport> strategies,
                                         const Metrics& metrics);

/// Paragraphs "Warnings" and "Assumptions", each sentence once: first those that hold for all
/// strategies, then the others after the names of those that they hold for.
[[nodiscard]] std::string warnings_and_assumptions(std::span<const StrategyReport> strategies);

}  // namespace zerosim
