#include "validate/case_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <span>

#include "sim/base/text.h"
#include "sim/strategy/config_codes.h"
#include "validate/case_words.h"

namespace zerosim {

namespace {

constexpr std::array<std::string_view, 16> kKinds = {"fits",
                                                     "verdict",
                                                     "bytes",
                                                     "single_allocation",
                                                     "time",
                                                     "rate",
                                                     "count",
                                                     "ratio",
                                                     "order",
                                                     "min_gpus",
                                                     "max_micro_batch",
                                                     "config_error",
                                                     "config_warning",
                                                     "config_resolved",
                                                     "cause",
                                                     "advice"};
constexpr std::array<std::string_view, 2> kStrengths = {"must", "should"};
constexpr std::array<std::string_view, 3> kQualities = {"A", "B", "C"};
constexpr std::array<std::string_view, 3> kVerdicts = {"fits", "tight", "does_not_fit"};
constexpr std::array<std::string_view, 3> kPhaseWords = {"fwd", "bwd", "step"};

/// Words of a list, for messages.
std::vector<std::string> texts(std::span<const std::string_view> words) {
  return {words.begin(), words.end()};
}

template <typename Row>
std::vector<std::string> names_of(std::span<const Row> rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return names;
}

constexpr const char* kHomeOfLists = "data/cases/README.md";
constexpr const char* kHomeOfConfigCodes = "data/ds_configs/README.md";

/// \param home  where the list is that `known` is
std::string expected_text(const std::string& word, const std::vector<std::string>& known,
                          const char* home = kHomeOfLists) {
  constexpr std::size_t kFew = 16;  // more are not listed
  const std::string hint = did_you_mean(word, known);
  if (known.size() <= kFew) {
    return format("found \"{}\", expected one of {}{}", word, join(known, ", "), hint);
  }
  return format("found \"{}\", which is not in the list of {}{}", word, home, hint);
}

std::string word(JsonObject& object, const std::string& key, const std::vector<std::string>& known,
                 const char* home = kHomeOfLists) {
  std::string found = object.string(key);
  if (std::find(known.begin(), known.end(), found) == known.end()) {
    object.fail(key, expected_text(found, known, home));
  }
  return found;
}

std::vector<std::string> words(JsonObject& object, const std::string& key,
                               const std::vector<std::string>& known) {
  std::vector<std::string> found = object.strings(key);
  if (found.empty()) object.fail(key, "found an empty list, expected at least one word");
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::find(known.begin(), known.end(), found[i]) != known.end()) continue;
    throw ConfigError(object.document().location(object.raw(key)[static_cast<Json::ArrayIndex>(i)]),
                      format("{}[{}]: {}", object.path_of(key), i, expected_text(found[i], known)));
  }
  return found;
}

template <std::size_t size>
std::size_t index_of(const std::array<std::string_view, size>& list, const std::string& name) {
  return static_cast<std::size_t>(std::find(list.begin(), list.end(), name) - list.begin());
}

/// A number of at least 0.
std::optional<double> optional_amount(JsonObject& object, const std::string& key) {
  const std::optional<double> value = object.optional_number(key);
  if (value && !(*value >= 0 && std::isfinite(*value))) {
    object.fail(key, format("found {}, expected 0 or more", *value));
  }
  return value;
}

/// Reads one check: the fields of its kind, and no others.
class CheckReader {
 public:
  CheckReader(JsonObject object, const ExperimentFile& experiment)
      : object_(std::move(object)), variants_(experiment.variant_names()) {}

  CaseCheck read() {
    check_.where = object_.document().location(object_.value());
    check_.kind = static_cast<CheckKind>(index_of(kKinds, word(object_, "kind", texts(kKinds))));
    check_.strength =
        static_cast<Strength>(index_of(kStrengths, word(object_, "strength", texts(kStrengths))));
    check_.needs = words(object_, "needs", names_of(case_needs()));
    static_cast<void>(object_.optional_string("why"));
    read_fields();
    object_.reject_unknown_keys();
    return std::move(check_);
  }

 private:
  void read_fields() {
    if (check_.kind == CheckKind::Order) {
      read_order();
      return;
    }
    check_.variant = word(object_, "variant", variants_);
    switch (check_.kind) {
      case CheckKind::Fits:
        check_.fits = object_.boolean("value");
        return;
      case CheckKind::Verdict:
        check_.one_of = words(object_, "one_of", texts(kVerdicts));
        return;
      case CheckKind::Bytes:
      case CheckKind::Time:
      case CheckKind::Rate:
        read_metric(kKinds[static_cast<std::size_t>(check_.kind)]);
        read_unit(kKinds[static_cast<std::size_t>(check_.kind)]);
        read_figure();
        return;
      case CheckKind::Count:
        read_count();
        return;
      case CheckKind::SingleAllocation:
        read_single_allocation();
        return;
      case CheckKind::Ratio:
        read_metric("");
        check_.ratio_of = word(object_, "ratio_of", variants_);
        read_bounds();
        return;
      case CheckKind::MinGpus:
      case CheckKind::MaxMicroBatch:
        read_bounds();
        return;
      case CheckKind::ConfigError:
      case CheckKind::ConfigWarning:
        read_code();
        return;
      case CheckKind::ConfigResolved:
        read_values();
        return;
      case CheckKind::Cause:
        check_.one_of = words(object_, "any_of", texts(cause_codes()));
        if (object_.has("base")) check_.base = word(object_, "base", variants_);
        return;
      case CheckKind::Advice:
        check_.one_of = words(object_, "any_of", texts(advice_codes()));
        return;
      case CheckKind::Order:
        return;
    }
  }

  /// \param kind  that the metric must be of; empty: any
  void read_metric(std::string_view kind) {
    check_.metric = word(object_, "metric", names_of(case_metrics()));
    const std::string_view own = find_metric(check_.metric)->kinds;
    if (kind.empty() || own == kind) return;
    object_.fail("metric",
                 format("found \"{}\", which kind {} checks, not {}", check_.metric, own, kind));
  }

  void read_unit(std::string_view kind) {
    check_.figure.unit = word(object_, "unit", names_of(case_units()));
    const std::string_view own = find_unit(check_.figure.unit)->kind;
    if (own != kind) {
      object_.fail("unit",
                   format("found \"{}\", which is no unit of kind {}", check_.figure.unit, kind));
    }
    const Metric* metric = find_metric(check_.metric);
    if (metric != nullptr && !metric->unit.empty() && metric->unit != check_.figure.unit) {
      object_.fail("unit", format(R"(found "{}", expected "{}", the unit of {})",
                                  check_.figure.unit, metric->unit, check_.metric));
    }
  }

  void read_figure() {
    ExpectedFigure& figure = check_.figure;
    figure.value = optional_amount(object_, "value");
    if (figure.value) {
      const std::optional<double> tolerance = optional_amount(object_, "tol");
      if (!tolerance) object_.fail("tol", "missing, expected the absolute tolerance of value");
      figure.tolerance = *tolerance;
    }
    read_bounds_of(figure);
    if (!figure.value && !figure.at_least && !figure.at_most) {
      object_.fail("value", "missing, expected value and tol, or at_least or at_most");
    }
  }

  void read_bounds() {
    read_bounds_of(check_.figure);
    if (check_.figure.at_least || check_.figure.at_most) return;
    object_.fail("at_least", "missing, expected at_least or at_most");
  }

  void read_bounds_of(ExpectedFigure& figure) {
    figure.at_least = optional_amount(object_, "at_least");
    figure.at_most = optional_amount(object_, "at_most");
    if (figure.at_least && figure.at_most && *figure.at_least > *figure.at_most) {
      object_.fail("at_most", format("found {:g}, which is below at_least {:g}", *figure.at_most,
                                     *figure.at_least));
    }
  }

  void read_count() {
    read_metric("count");
    read_figure();
    static const std::vector<std::string> kOps = {
        "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast",
        "reduce",     "all_to_all_single"};
    if (object_.has("op")) check_.op = word(object_, "op", kOps);
    if (!object_.has("phase")) return;
    const std::size_t phase = index_of(kPhaseWords, word(object_, "phase", texts(kPhaseWords)));
    check_.phase = static_cast<Phase>(phase + static_cast<std::size_t>(Phase::Forward));
  }

  void read_single_allocation() {
    read_unit("bytes");
    read_figure();
    static_cast<void>(object_.optional_string("what"));
    check_.allocated_before = optional_amount(object_, "allocated_before");
    if (check_.allocated_before) {
      const auto tolerance = optional_amount(object_, "allocated_before_tol");
      if (!tolerance) {
        object_.fail("allocated_before_tol", "missing, expected the tolerance of allocated_before");
      }
      check_.allocated_before_tolerance = *tolerance;
    }
    if (object_.has("live_at_once")) {
      constexpr std::int64_t kMostAtOnce = 1'000'000;
      check_.live_at_once =
          static_cast<int>(std::min(object_.integer_at_least("live_at_once", 1), kMostAtOnce));
    }
  }

  void read_order() {
    read_metric("");
    check_.variants = words(object_, "variants", variants_);
    if (check_.variants.size() < 2) {
      object_.fail("variants", "found one variant, expected at least two");
    }
    check_.variant = check_.variants.front();
    check_.order_tolerance = optional_amount(object_, "tol").value_or(check_.order_tolerance);
  }

  void read_code() {
    std::vector<std::string> codes;
    for (const ConfigCode& row : kConfigCodes) codes.emplace_back(row.code);
    check_.code = word(object_, "code", codes, kHomeOfConfigCodes);
  }

  void read_values() {
    JsonObject values = object_.object("values");
    for (const std::string& key : values.keys()) {
      const JsonValue& value = values.raw(key);
      check_.values.emplace_back(key, value.isString() ? value.asString() : to_text(value, false));
    }
    if (check_.values.empty()) object_.fail("values", "found none, expected at least one key");
  }

  JsonObject object_;
  std::vector<std::string> variants_;
  CaseCheck check_;
};

void check_observed(JsonObject observed, const std::vector<std::string>& variants) {
  static_cast<void>(word(observed, "metric", texts(observed_metrics())));
  for (const char* key : {"value", "unit", "of", "note"}) static_cast<void>(observed.has(key));
  if (!observed.raw("variant").isNull()) static_cast<void>(word(observed, "variant", variants));
  observed.reject_unknown_keys();
}

std::string folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// "C01-name" of "cases/C01-name/", "." and "..": the name of where they lead.
std::string id_of(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

}  // namespace

std::string_view to_string(CheckKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Strength strength) {
  return kStrengths[static_cast<std::size_t>(strength)];
}

bool ExpectedFigure::holds(double figure) const {
  if (value && std::abs(figure - *value) > tolerance) return false;
  if (at_least && figure < *at_least) return false;
  return !at_most || figure <= *at_most;
}

std::string to_string(const ExpectedFigure& figure) {
  std::vector<std::string> parts;
  if (figure.value && figure.tolerance == 0) parts.push_back(format("{:g}", *figure.value));
  if (figure.value && figure.tolerance != 0) {
    parts.push_back(format("{:g} +- {:g}", *figure.value, figure.tolerance));
  }
  if (figure.at_least) parts.push_back(format("at least {:g}", *figure.at_least));
  if (figure.at_most) parts.push_back(format("at most {:g}", *figure.at_most));
  const bool plain = figure.unit.empty() || figure.unit == "1";
  return join(parts, ", ") + (plain ? "" : " " + figure.unit);
}

CaseFile load_case(const std::string& folder, const std::string& data_folder) {
  const std::filesystem::path given(folder);
  const std::filesystem::path file = given.extension() == ".json" ? given : given / "case.json";
  const std::string data =
      data_folder.empty() ? (std::filesystem::path(folder_of(file.string())) / ".." / "..").string()
                          : data_folder;
  return parse_case(read_file(file.string()), file.string(), data);
}

CaseFile parse_case(std::string text, const std::string& file, const std::string& data_folder) {
  const JsonDocument document = JsonDocument::from_text(std::move(text), file);
  JsonObject root(document, document.root(), "");
  for (const char* key : {"id", "source", "user_question", "root_trouble"}) {
    static_cast<void>(root.has(key));
  }
  CaseFile result{
      id_of(folder_of(file)),
      file,
      root.optional_string("name").value_or(""),
      root.optional_string("summary").value_or(""),
      word(root, "quality", texts(kQualities)),
      ExperimentFile(document, root.object("inputs").value(), folder_of(file), data_folder),
      {}};
  if (root.has("observed")) {
    for (const JsonObject& observed : root.objects("observed")) {
      check_observed(observed, result.experiment.variant_names());
    }
  }
  JsonObject expect = root.object("expect");
  for (const JsonObject& check : expect.objects("checks")) {
    result.checks.push_back(CheckReader(check, result.experiment).read());
  }
  static_cast<void>(expect.optional_string("tool_should_say"));
  expect.reject_unknown_keys();
  root.reject_unknown_keys();
  return result;
}

}  // namespace zerosim
