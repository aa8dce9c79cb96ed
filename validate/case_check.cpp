#include "validate/case_check.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "sim/base/text.h"
#include "validate/case_variant.h"
#include "validate/case_words.h"

namespace zerosim {

namespace {

namespace fs = std::filesystem;

std::string quoted_list(const std::vector<std::string>& names) {
  return names.size() == 1 ? names.front() : "one of " + join(names, ", ");
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "" if all are met.
std::string unmet_needs(const CaseCheck& check) {
  std::vector<std::string> unmet;
  for (const Need& need : case_needs()) {
    if (!need.implemented && contains(check.needs, std::string(need.name))) {
      unmet.emplace_back(need.name);
    }
  }
  return unmet.empty() ? "" : "needs " + join(unmet, ", ");
}

/// A list as settings show it, "a, b"; an object as compact JSON; else `text`.
std::string shown_value(const std::string& text) {
  if (!text.starts_with('[') && !text.starts_with('{')) return text;
  try {
    const JsonDocument document = JsonDocument::from_text(text, "value");
    if (!document.root().isArray()) return to_text(document.root(), false);
    std::vector<std::string> items;
    for (const JsonValue& item : document.root()) {
      items.push_back(item.isString() ? item.asString() : to_text(item, false));
    }
    return join(items, ", ");
  } catch (const ConfigError&) {
    return text;  // a word
  }
}

/// Whether two values are the same: as words, as numbers, or as lists.
bool same_value(const std::string& a, const std::string& b) {
  if (a == b || shown_value(a) == shown_value(b)) return true;
  double x = 0;
  double y = 0;
  const auto number = [](const std::string& text, double& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  return number(a, x) && number(b, y) && x == y;
}

/// "1 x 2 + 3" of what a figure is printed in.
std::string with_unit(double value, const std::string& unit) {
  return unit.empty() || unit == "1" ? format("{:.6g}", value) : format("{:.6g} {}", value, unit);
}

std::vector<std::string> codes_of(const std::vector<Warning>& warnings) {
  std::vector<std::string> codes;
  for (const Warning& warning : warnings) {
    if (!contains(codes, warning.code)) codes.push_back(warning.code);
  }
  return codes;
}

/// Answers the checks of one case.
class CaseChecker {
 public:
  explicit CaseChecker(const CaseFile& file) {
    for (const ExperimentInputs& inputs : file.experiment.variants()) {
      variants_.emplace(inputs.variant, CaseVariant(inputs, models_));
    }
  }

  CheckOutcome check(const CaseCheck& given) {
    CheckOutcome outcome;
    outcome.check = given;
    outcome_ = &outcome;
    outcome.why = unmet_needs(given);
    if (!outcome.why.empty()) {
      outcome.result = CheckResult::Skipped;
    } else {
      answer(given);
    }
    outcome_ = nullptr;
    return outcome;
  }

 private:
  void answer(const CaseCheck& check) {
    try {
      outcome_->result = holds(check) ? CheckResult::Passed : CheckResult::Failed;
    } catch (const CaseSkip& skip) {
      outcome_->result = CheckResult::Skipped;
      outcome_->why = skip.why;
    } catch (const Error& error) {
      outcome_->result = CheckResult::Failed;
      outcome_->why = error.what();
    }
  }

  [[nodiscard]] CaseVariant& variant(const std::string& name) { return variants_.at(name); }

  /// \throws CaseSkip, Error  if there is no answer.
  [[nodiscard]] bool holds(const CaseCheck& check) {
    CaseVariant& own = variant(check.variant);
    switch (check.kind) {
      case CheckKind::Fits:
        return fits(check, own);
      case CheckKind::Verdict:
        return verdict(check, own);
      case CheckKind::Bytes:
      case CheckKind::Time:
      case CheckKind::Rate:
        return figure(check.figure,
                      own.metric(check.metric) / find_unit(check.figure.unit)->factor);
      case CheckKind::Count:
        return figure(check.figure, own.collectives(check.op, check.phase));
      case CheckKind::SingleAllocation:
        return single_allocation(check, own);
      case CheckKind::Ratio:
        return ratio(check, own);
      case CheckKind::Order:
        return order(check);
      case CheckKind::ConfigError:
        return config_error(check, own);
      case CheckKind::ConfigWarning:
        return config_warning(check, own);
      case CheckKind::ConfigResolved:
        return config_resolved(check, own);
      case CheckKind::MinGpus:
        return limit(check.figure, own.min_gpus());
      case CheckKind::MaxMicroBatch:
        return limit(check.figure, own.max_micro_batch());
      case CheckKind::Cause:
        return cause(check, own);
      case CheckKind::Advice:
        return advice(check, own);
    }
    ZS_CHECK(false, "every kind has its answer");
  }

  /// The one that is named first counts.
  bool cause(const CaseCheck& check, CaseVariant& own) {
    if (!check.base.empty()) throw CaseSkip{"two variants are not explained yet"};
    outcome_->expected = quoted_list(check.one_of);
    const std::vector<std::string>& causes = own.memory_causes();
    outcome_->found = causes.empty() ? "no cause" : join(causes, ", ");
    return !causes.empty() && contains(check.one_of, causes.front());
  }

  bool advice(const CaseCheck& check, CaseVariant& own) {
    outcome_->expected = quoted_list(check.one_of);
    const std::vector<std::string>& changes = own.memory_advice();
    outcome_->found = changes.empty() ? "no change" : join(changes, ", ");
    return std::any_of(changes.begin(), changes.end(),
                       [&](const std::string& change) { return contains(check.one_of, change); });
  }

  bool figure(const ExpectedFigure& expected, double value) {
    outcome_->expected = to_string(expected);
    outcome_->found = with_unit(value, expected.unit);
    outcome_->predicted = value;
    return expected.holds(value);
  }

  bool limit(const ExpectedFigure& expected, const std::optional<std::int64_t>& size) {
    if (size) return figure(expected, static_cast<double>(*size));
    outcome_->expected = to_string(expected);
    outcome_->found = "no size that is enough";
    return false;
  }

  bool fits(const CaseCheck& check, CaseVariant& own) {
    outcome_->expected = check.fits ? "fits" : "does not fit";
    // Host memory may tell that it does not fit where the GPU is not known.
    if (!own.inputs().cluster.host_memory_gib) own.check_gpu_memory();
    const Room room = own.room();
    if (!room.exceeds_host()) own.check_gpu_memory();
    outcome_->found = room.gpu ? std::string(to_string(*room.gpu)) : "GPU not known";
    if (room.exceeds_host()) {
      outcome_->found +=
          format(", {:.4g} GiB of host memory of {:.4g}", room.host.gib(), room.host_memory->gib());
    }
    return room.lacks() != check.fits;
  }

  bool verdict(const CaseCheck& check, CaseVariant& own) {
    outcome_->expected = quoted_list(check.one_of);
    outcome_->found = to_string(own.verdict());
    return contains(check.one_of, outcome_->found);
  }

  bool single_allocation(const CaseCheck& check, CaseVariant& own) {
    const std::string& unit = check.figure.unit;
    const double factor = find_unit(unit)->factor;
    const auto in_unit = [&](Bytes bytes) { return static_cast<double>(bytes.count()) / factor; };
    outcome_->expected = to_string(check.figure);
    ExpectedFigure before{check.allocated_before, check.allocated_before_tolerance, {}, {}, unit};
    if (before.value) outcome_->expected += format(" with {} allocated", to_string(before));
    if (check.live_at_once) outcome_->expected += format(", {} at once", *check.live_at_once);
    const AllocationSearch search = own.allocations(check.figure);
    if (search.found.empty()) {
      outcome_->found = search.nearest
                            ? format("nearest: {}", with_unit(in_unit(search.nearest->bytes), unit))
                            : "no allocation";
      return false;
    }
    const CaseAllocation* best = &search.found.front();
    for (const CaseAllocation& found : search.found) {
      const auto distance = [&](const CaseAllocation& allocation) {
        return std::abs(in_unit(allocation.allocated_before) - before.value.value_or(0));
      };
      if (before.value && distance(found) < distance(*best)) best = &found;
    }
    outcome_->predicted = in_unit(best->bytes);
    outcome_->found = with_unit(*outcome_->predicted, unit);
    if (before.value) {
      outcome_->found +=
          format(" with {} allocated", with_unit(in_unit(best->allocated_before), unit));
    }
    if (check.live_at_once) outcome_->found += format(", {} at once", search.most_at_once);
    return (!before.value || before.holds(in_unit(best->allocated_before))) &&
           (!check.live_at_once || search.most_at_once >= *check.live_at_once);
  }

  bool ratio(const CaseCheck& check, CaseVariant& own) {
    const double below = variant(check.ratio_of).metric(check.metric);
    const double above = own.metric(check.metric);
    if (below == 0) {
      outcome_->expected = to_string(check.figure);
      outcome_->found = format("{} of {} is 0", check.metric, check.ratio_of);
      return false;
    }
    return figure(check.figure, above / below);
  }

  /// The smallest unit in which figures of a metric are told.
  static std::string shown(const std::string& metric, double value) {
    const std::string_view kind = find_metric(metric)->kinds;
    if (kind == "bytes") return format("{:.4g} GiB", value / 0x1p30);
    if (kind == "time") return format("{:.4g} s", value);
    return format("{:.4g}", value);
  }

  bool order(const CaseCheck& check) {
    outcome_->expected = join(check.variants, " <= ");
    std::vector<std::string> found;
    bool ordered = true;
    double last = 0;
    for (const std::string& name : check.variants) {
      const double value = variant(name).metric(check.metric);
      if (!found.empty() && value < last * (1 - check.order_tolerance)) ordered = false;
      found.push_back(shown(check.metric, value));
      last = value;
    }
    outcome_->found = join(found, ", ");
    return ordered;
  }

  bool config_error(const CaseCheck& check, CaseVariant& own) {
    outcome_->expected = "error " + check.code;
    const ConfigOutcome& config = own.config();
    outcome_->found = config.error ? "error " + config.error->code() : "it is read";
    if (config.error && config.error->code() != check.code) outcome_->why = config.error->what();
    return config.error && config.error->code() == check.code;
  }

  /// \throws ConfigError  as reading the configuration does.
  static const Strategy& read_strategy(CaseVariant& own) {
    const ConfigOutcome& config = own.config();
    if (config.error) throw ConfigError(*config.error);
    return *config.strategy;
  }

  bool config_warning(const CaseCheck& check, CaseVariant& own) {
    outcome_->expected = "warning " + check.code;
    const std::vector<std::string> codes = codes_of(read_strategy(own).warnings);
    outcome_->found = codes.empty() ? "no warning" : join(codes, ", ");
    return contains(codes, check.code);
  }

  bool config_resolved(const CaseCheck& check, CaseVariant& own) {
    const Strategy& strategy = read_strategy(own);
    std::vector<std::string> expected;
    std::vector<std::string> found;
    for (const auto& [key, value] : check.values) {
      const Setting* setting = find_setting(strategy, key);
      if (setting != nullptr && same_value(setting->value, value)) continue;
      expected.push_back(format("{} = {}", key, value));
      found.push_back(format("{} = {}", key, setting == nullptr ? "not listed" : setting->value));
    }
    outcome_->expected =
        expected.empty() ? format("{} values", check.values.size()) : join(expected, ", ");
    outcome_->found = found.empty() ? "all of them" : join(found, ", ");
    return expected.empty();
  }

  ModelCache models_;
  std::map<std::string, CaseVariant> variants_;
  CheckOutcome* outcome_ = nullptr;
};

/// The folder itself if it is a case, else those below it that are, by name.
std::vector<std::string> cases_in(const std::string& folder) {
  std::error_code error;
  const fs::path path(folder);
  if (path.extension() == ".json" || fs::exists(path / "case.json", error)) return {folder};
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (fs::exists(entry.path() / "case.json", error)) found.push_back(entry.path().string());
  }
  if (found.empty()) {
    throw ConfigError({folder, 0, 0},
                      "found no case.json, expected the folder of a case, or one "
                      "of such folders");
  }
  std::sort(found.begin(), found.end());
  return found;
}

CaseOutcome unreadable_case(const std::string& folder, const std::string& why) {
  CaseOutcome outcome;
  outcome.id = fs::path(folder).filename().string();
  outcome.file = folder;
  outcome.unreadable = why;
  return outcome;
}

}  // namespace

std::string_view to_string(CheckResult result) {
  switch (result) {
    case CheckResult::Passed:
      return "passed";
    case CheckResult::Failed:
      return "failed";
    case CheckResult::Skipped:
      break;
  }
  return "skipped";
}

CaseOutcome check_case(const CaseFile& file) {
  CaseOutcome outcome{file.id, file.file, file.quality, "", {}};
  CaseChecker checker(file);
  for (const CaseCheck& check : file.checks) outcome.checks.push_back(checker.check(check));
  return outcome;
}

CasesValidation validate_cases(const std::vector<std::string>& folders,
                               const CasesOptions& options) {
  CasesValidation validation;
  std::vector<std::string> reasons;
  for (const std::string& given : folders) {
    for (const std::string& folder : cases_in(given)) {
      if (options.progress) options.progress(folder);
      try {
        validation.cases.push_back(check_case(load_case(folder, options.data_folder)));
      } catch (const ConfigError& error) {
        reasons.emplace_back(error.what());
        validation.cases.push_back(unreadable_case(folder, reasons.back()));
      }
    }
  }
  if (reasons.size() == validation.cases.size()) throw ConfigError(join(reasons, "\n"));
  return validation;
}

CaseCounts count_checks(const CasesValidation& validation,
                        const std::function<bool(const CaseCheck&)>& counts_in) {
  CaseCounts counts;
  for (const CaseOutcome& outcome : validation.cases) {
    for (const CheckOutcome& check : outcome.checks) {
      if (!counts_in(check.check)) continue;
      counts.passed += check.result == CheckResult::Passed ? 1 : 0;
      counts.failed += check.result == CheckResult::Failed ? 1 : 0;
      counts.skipped += check.result == CheckResult::Skipped ? 1 : 0;
    }
  }
  return counts;
}

bool musts_hold(const CasesValidation& validation) {
  const bool all_read =
      std::all_of(validation.cases.begin(), validation.cases.end(),
                  [](const CaseOutcome& outcome) { return outcome.unreadable.empty(); });
  const CaseCounts musts = count_checks(
      validation, [](const CaseCheck& check) { return check.strength == Strength::Must; });
  return all_read && musts.failed == 0;
}

}  // namespace zerosim
