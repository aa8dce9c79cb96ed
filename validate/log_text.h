/// \file
/// What reports on logs of nccl-tests have in common (collective_logs.h, fit_collectives.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "validate/validation.h"

namespace zerosim {

/// "a100_allreduce" of "runs/a100_allreduce.txt"; other extensions stay.
[[nodiscard]] std::string short_name(const std::string& log);

/// At most `width` columns, ending in ".." where some are left out.
[[nodiscard]] std::string cut(const std::string& text, std::size_t width);

/// "4.2" of 0.042; "-" of nothing.
[[nodiscard]] std::string percent(const std::optional<double>& share);

/// "note: a100_allreduce: the algbw column shows busbw", wrapped.
[[nodiscard]] std::string told_line(const char* what, const std::string& sentence);

/// Warnings and sentences that concern all logs, a line each.
[[nodiscard]] std::string warnings_text(const std::vector<Warning>& warnings);

[[nodiscard]] JsonValue number_json(const std::optional<double>& value);
[[nodiscard]] JsonValue strings_json(const std::vector<std::string>& strings);
/// [{code, message}]; an empty code is null.
[[nodiscard]] JsonValue warnings_json(const std::vector<Warning>& warnings);
/// {count, skipped, median, p90, worst}; count has those that are skipped.
void put_summary(JsonValue& json, const ValidationSummary& summary);

}  // namespace zerosim
