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

/// Paragraph "Warnings", each sentence once: first those that hold for all strategies, then the
/// others after the names of those that they hold for. "" if there is none.
[[nodiscard]] std::string warnings_text(std::span<const StrategyReport> strategies);
/// Paragraph "Assumptions", in the same way.
[[nodiscard]] std::string assumptions_text(std::span<const StrategyReport> strategies);
/// One line with their number and where to see them.
[[nodiscard]] std::string assumptions_count(std::span<const StrategyReport> strategies);

}  // namespace zerosim
