/// \file
/// A user case: a public report, what is simulated for it, and what the simulator must or should
/// answer (data/cases/README.md). A folder with case.json and the DeepSpeed files that it names.
///
/// All lists are closed: an unknown key, kind, metric, code or variant is an error with its place
/// and the nearest name. `observed`, `tool_should_say` and `root_trouble` are for the reader; of
/// `observed` only the words are checked.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/json.h"
#include "sim/program/program.h"
#include "validate/experiment_file.h"

namespace zerosim {

enum class CheckKind {
  Fits,
  Verdict,
  Bytes,
  SingleAllocation,
  Time,
  Rate,
  Count,
  Ratio,
  Order,
  MinGpus,
  MaxMicroBatch,
  ConfigError,
  ConfigWarning,
  ConfigResolved,
  Cause,
  Advice,
};
[[nodiscard]] std::string_view to_string(CheckKind kind);  ///< "fits", "single_allocation", ...

enum class Strength { Must, Should };
[[nodiscard]] std::string_view to_string(Strength strength);  ///< "must", "should"

/// `value` +- `tolerance`, or what lies within the bounds.
struct ExpectedFigure {
  std::optional<double> value;
  double tolerance = 0;
  std::optional<double> at_least, at_most;
  std::string unit;  ///< of all four; empty: a count or a ratio

  [[nodiscard]] bool holds(double figure) const;
};
/// "3.138 +- 0.01 GiB", "at least 6, at most 8".
[[nodiscard]] std::string to_string(const ExpectedFigure& figure);

/// One expectation; which fields it has says its kind.
struct CaseCheck {
  CheckKind kind = CheckKind::Fits;
  Strength strength = Strength::Must;
  std::vector<std::string> needs;
  std::string variant;  ///< of order: the first one
  std::string metric;   ///< "memory.peak_allocated"
  ExpectedFigure figure;
  bool fits = true;                        ///< fits
  std::vector<std::string> one_of;         ///< verdict; cause and advice: `any_of`
  std::optional<double> allocated_before;  ///< single_allocation, in the unit of the figure
  double allocated_before_tolerance = 0;
  std::optional<int> live_at_once;    ///< single_allocation
  std::string op;                     ///< count: word of the recordings; empty: all
  std::optional<Phase> phase;         ///< count
  std::string ratio_of;               ///< ratio
  std::vector<std::string> variants;  ///< order
  double order_tolerance = 0.005;     ///< order, relative
  std::string code;                   ///< config_error, config_warning
  std::vector<std::pair<std::string, std::string>> values;  ///< config_resolved, as JSON prints
  std::string base;                                         ///< cause
  SourceLocation where;
};

struct CaseFile {
  std::string id;    ///< the folder's name
  std::string file;  ///< path of case.json
  std::string name, summary, quality;
  ExperimentFile experiment;
  std::vector<CaseCheck> checks;
};

/// \param folder       of the case, or its case.json
/// \param data_folder  that `ref` of models is below; empty: the folder two above that of the case
/// \throws ConfigError  with file, line, column, what was found and what was expected.
[[nodiscard]] CaseFile load_case(const std::string& folder, const std::string& data_folder = "");
/// The same for text; `file` stands for it in messages, DeepSpeed files are beside it.
[[nodiscard]] CaseFile parse_case(std::string text, const std::string& file,
                                  const std::string& data_folder);

}  // namespace zerosim
