/// \file
/// Renders results: tables of at most 100 columns for people, versioned JSON for programs.
#pragma once

#include <string>

#include "sim/analysis/report.h"
#include "sim/base/json.h"

namespace zerosim {

inline constexpr int kJsonVersion = 1;

/// \param list_assumptions  false: only their number.
[[nodiscard]] std::string comparison_text(const Comparison& comparison, bool list_assumptions);
[[nodiscard]] JsonValue comparison_json(const Comparison& comparison);

[[nodiscard]] std::string strategy_text(const StrategyReport& report, const Experiment& experiment);
[[nodiscard]] JsonValue strategy_json(const StrategyReport& report);

/// Collectives in order, or with `all_operations` every operation, what they are for in between.
/// \param module  of operations, only those of this module and of modules below it; "": all
[[nodiscard]] std::string schedule_text(const Program& program, bool all_operations,
                                        const std::string& module = "");
[[nodiscard]] JsonValue schedule_json(const Program& program);

[[nodiscard]] std::string model_text(const Model& model, const BatchShape& batch);
[[nodiscard]] JsonValue model_json(const Model& model, const BatchShape& batch);

}  // namespace zerosim
