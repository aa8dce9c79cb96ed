/// \file
/// `zerosim validate cases`: every check of user cases against what is simulated for it.
///
/// A check is skipped, with its reason, if something that it needs is not implemented, if the case
/// does not tell enough for an answer (an unknown GPU has no times), or if the strategy is not
/// simulated. A case that cannot be read counts as a failed `must`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "validate/case_file.h"

namespace zerosim {

enum class CheckResult { Passed, Failed, Skipped };
[[nodiscard]] std::string_view to_string(CheckResult result);  ///< "passed", "failed", "skipped"

struct CheckOutcome {
  CaseCheck check;
  CheckResult result = CheckResult::Passed;
  std::string expected;             ///< "at least 3, at most 4"
  std::string found;                ///< in the same unit; empty if skipped
  std::optional<double> predicted;  ///< of a figure, in its unit
  std::string why;                  ///< of a skipped one, or of what could not be simulated
};

struct CaseOutcome {
  std::string id;
  std::string file;
  std::string quality;     ///< empty if it could not be read
  std::string unreadable;  ///< why; else empty
  std::vector<CheckOutcome> checks;
};

struct CaseCounts {
  int passed = 0, failed = 0, skipped = 0;
  [[nodiscard]] int count() const { return passed + failed + skipped; }
};

struct CasesValidation {
  std::vector<CaseOutcome> cases;  ///< in the order of the folders
};

struct CasesOptions {
  std::string data_folder;  ///< empty: two folders above each case
  /// Told before each case, with its folder.
  std::function<void(const std::string& folder)> progress{};
};

/// \param folders  of cases, or folders of such folders
/// \throws ConfigError  if a folder holds no case; with all reasons if no case can be read.
[[nodiscard]] CasesValidation validate_cases(const std::vector<std::string>& folders,
                                             const CasesOptions& options = {});

/// The checks of one case that is read.
[[nodiscard]] CaseOutcome check_case(const CaseFile& file);

/// Of those that `counts_in` picks.
[[nodiscard]] CaseCounts count_checks(const CasesValidation& validation,
                                      const std::function<bool(const CaseCheck&)>& counts_in);
/// Whether all cases were read and no `must` failed.
[[nodiscard]] bool musts_hold(const CasesValidation& validation);

/// Per case its failed and skipped checks (with `all` those that passed too); then a table by
/// strength and by need. At most 100 columns.
[[nodiscard]] std::string cases_text(const CasesValidation& validation, bool all);

/// {version, rows: [{id, case, check, kind, variant, metric, strength, needs, result, expected,
/// found, unit, predicted, measured, relative_error, skipped, why}], unreadable: [{case, why}],
/// summary: {cases, count, passed, failed, skipped, must: {passed, failed, skipped}, should: {...},
/// needs: {memory: {...}, ...}}}. `measured` is the figure that the check states, if it states one.
[[nodiscard]] JsonValue cases_json(const CasesValidation& validation);

}  // namespace zerosim
