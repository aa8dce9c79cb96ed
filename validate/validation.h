/// \file
/// Predicted against published figures: the rows and the summary that every `zerosim validate`
/// answers with, as text and as JSON (design.md section 5).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"

namespace zerosim {

/// One figure: compared, or skipped with a reason. Never dropped.
struct ValidationRow {
  std::string id;    ///< "12:per_gpu_gb": line and column of the table
  std::string what;  ///< "7.5B, zero1, 64 ranks: model states"
  std::string unit;  ///< "GB", "GiB", "billion"; of both figures
  std::optional<double> predicted;
  std::optional<double> measured;
  std::optional<double> relative_error;  ///< (predicted - measured) / measured; none if skipped
  bool skipped = false;
  std::string why;       ///< of a skipped row; else empty
  std::string source{};  ///< title of the publication; empty: not told apart
};

/// Compares two figures; a published 0 has no relative error and is skipped.
[[nodiscard]] ValidationRow compared_row(std::string id, std::string what, std::string unit,
                                         double predicted, double measured);
[[nodiscard]] ValidationRow skipped_row(std::string id, std::string what, std::string why);

/// Absolute relative errors of what was compared; none if nothing was.
struct ValidationSummary {
  int count = 0;  ///< rows, skipped ones included
  int skipped = 0;
  std::optional<double> median;  ///< mean of the middle two if their number is even
  std::optional<double> p90;     ///< the smallest that at least 90 % do not exceed
  std::optional<double> worst;
};

struct Validation {
  std::string input;  ///< the file
  std::vector<ValidationRow> rows;
  std::vector<std::string> assumptions;  ///< one sentence each
};

/// The rows of one source.
struct SourceSummary {
  std::string source;
  ValidationSummary summary;
};
/// In the order in which sources first occur; those with a source alone.
[[nodiscard]] std::vector<SourceSummary> summaries_by_source(
    const std::vector<ValidationRow>& rows);

[[nodiscard]] ValidationSummary summary_of(const std::vector<ValidationRow>& rows);

/// Whether something was compared and no error exceeds `tolerance` (relative, 0.01 is 1 %).
[[nodiscard]] bool is_within(const ValidationSummary& summary, double tolerance);

/// A table of at most 100 columns, source by source and in each the largest error first, the
/// reasons for skipping with their counts, the summary.
[[nodiscard]] std::string validation_text(const Validation& validation);

/// {version, input, rows: [{id, what, unit, predicted, measured, relative_error, skipped, why,
/// source}], summary: {count, skipped, median, p90, worst}, sources: [{source, count, skipped,
/// median, p90, worst}], assumptions}; rows in the order of the table. What is absent is null.
[[nodiscard]] JsonValue validation_json(const Validation& validation);

}  // namespace zerosim
