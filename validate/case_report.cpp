// What `zerosim validate cases` answers, as text and as JSON.

#include <cmath>
#include <string>

#include "sim/base/text.h"
#include "validate/case_check.h"
#include "validate/case_words.h"

namespace zerosim {

namespace {

constexpr int kJsonVersion = 1;
constexpr std::size_t kColumns = 100;

/// "z2, memory.peak_allocated": what is checked.
std::string subject(const CaseCheck& check) {
  std::string what(to_string(check.kind));
  if (!check.metric.empty() && check.kind != CheckKind::Count) what = check.metric;
  if (check.kind == CheckKind::Ratio) {
    return format("{} of {} over {}", what, check.variant, check.ratio_of);
  }
  if (check.kind == CheckKind::Order) return "order of " + what;
  if (!check.op.empty()) what += " of " + check.op;
  if (check.phase) what += format(" in {}", to_string(*check.phase));
  return format("{}: {}", check.variant, what);
}

/// Breaks at spaces; lines after the first are indented.
std::string broken(const std::string& text, const std::string& indent) {
  std::string out;
  std::string line;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string piece = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + piece.size() > kColumns) {
      out += line + "\n";
      line = indent + piece;
    } else {
      line += (begin == 0 ? "" : " ") + piece;
    }
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string check_text(const CheckOutcome& outcome) {
  const CaseCheck& check = outcome.check;
  std::string line = format("  {:<7}  {:<6}  {}", to_string(outcome.result),
                            to_string(check.strength), subject(check));
  if (!outcome.expected.empty() && !outcome.found.empty()) {
    line += format(": expected {}, found {}", outcome.expected, outcome.found);
  }
  if (!outcome.why.empty()) line += ": " + outcome.why;
  return broken(line, std::string(19, ' '));
}

std::string counts_text(const CaseCounts& counts) {
  return format("{:>8}{:>8}{:>9}", counts.passed, counts.failed, counts.skipped);
}

CaseCounts counts_of(const CaseOutcome& outcome) {
  CasesValidation one;
  one.cases.push_back(outcome);
  return count_checks(one, [](const CaseCheck&) { return true; });
}

std::string case_text(const CaseOutcome& outcome, bool all) {
  if (!outcome.unreadable.empty()) {
    return format("{}: not read\n", outcome.id) + broken("  " + outcome.unreadable, "  ");
  }
  const CaseCounts counts = counts_of(outcome);
  std::string out = format("{} ({}): {} passed, {} failed, {} skipped\n", outcome.id,
                           outcome.quality, counts.passed, counts.failed, counts.skipped);
  for (const CheckOutcome& check : outcome.checks) {
    if (all || check.result != CheckResult::Passed) out += check_text(check);
  }
  return out;
}

auto of_strength(Strength strength) {
  return [strength](const CaseCheck& check) { return check.strength == strength; };
}

auto of_need(std::string_view need) {
  return [need](const CaseCheck& check) {
    return std::find(check.needs.begin(), check.needs.end(), need) != check.needs.end();
  };
}

JsonValue counts_json(const CaseCounts& counts) {
  JsonValue json(Json::objectValue);
  json["passed"] = counts.passed;
  json["failed"] = counts.failed;
  json["skipped"] = counts.skipped;
  return json;
}

JsonValue number_or_null(const std::optional<double>& number) {
  return number ? JsonValue(*number) : JsonValue();
}

JsonValue row_json(const CaseOutcome& outcome, std::size_t index) {
  const CheckOutcome& row = outcome.checks[index];
  const CaseCheck& check = row.check;
  JsonValue json(Json::objectValue);
  json["id"] = format("{}:{}", outcome.id, index + 1);
  json["case"] = outcome.id;
  json["check"] = static_cast<Json::UInt64>(index + 1);
  json["kind"] = std::string(to_string(check.kind));
  json["variant"] = check.variant;
  json["metric"] = check.metric.empty() ? JsonValue() : JsonValue(check.metric);
  json["strength"] = std::string(to_string(check.strength));
  json["needs"] = JsonValue(Json::arrayValue);
  for (const std::string& need : check.needs) json["needs"].append(need);
  json["result"] = std::string(to_string(row.result));
  json["expected"] = row.expected;
  json["found"] = row.found;
  json["unit"] = check.figure.unit;
  json["predicted"] = number_or_null(row.predicted);
  json["measured"] = number_or_null(check.figure.value);
  const bool relative = row.predicted && check.figure.value && *check.figure.value != 0;
  json["relative_error"] =
      relative ? JsonValue((*row.predicted - *check.figure.value) / *check.figure.value)
               : JsonValue();
  json["skipped"] = row.result == CheckResult::Skipped;
  json["why"] = row.why;
  return json;
}

}  // namespace

std::string cases_text(const CasesValidation& validation, bool all) {
  std::string out;
  for (const CaseOutcome& outcome : validation.cases) out += case_text(outcome, all);
  out += format("\n{:<14}{:>8}{:>8}{:>9}\n", "", "passed", "failed", "skipped");
  for (const Strength strength : {Strength::Must, Strength::Should}) {
    out += format("{:<14}{}\n", to_string(strength),
                  counts_text(count_checks(validation, of_strength(strength))));
  }
  for (const Need& need : case_needs()) {
    const CaseCounts counts = count_checks(validation, of_need(need.name));
    if (counts.count() > 0) out += format("{:<14}{}\n", need.name, counts_text(counts));
  }
  return out;
}

JsonValue cases_json(const CasesValidation& validation) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  JsonValue& rows = json["rows"] = JsonValue(Json::arrayValue);
  JsonValue& unreadable = json["unreadable"] = JsonValue(Json::arrayValue);
  for (const CaseOutcome& outcome : validation.cases) {
    for (std::size_t i = 0; i < outcome.checks.size(); ++i) rows.append(row_json(outcome, i));
    if (outcome.unreadable.empty()) continue;
    JsonValue entry(Json::objectValue);
    entry["case"] = outcome.id;
    entry["why"] = outcome.unreadable;
    unreadable.append(entry);
  }
  const CaseCounts counts = count_checks(validation, [](const CaseCheck&) { return true; });
  JsonValue& summary = json["summary"] = counts_json(counts);
  summary["cases"] = static_cast<Json::UInt64>(validation.cases.size());
  summary["count"] = counts.count();
  for (const Strength strength : {Strength::Must, Strength::Should}) {
    summary[std::string(to_string(strength))] =
        counts_json(count_checks(validation, of_strength(strength)));
  }
  JsonValue& needs = summary["needs"] = JsonValue(Json::objectValue);
  for (const Need& need : case_needs()) {
    needs[std::string(need.name)] = counts_json(count_checks(validation, of_need(need.name)));
  }
  return json;
}

}  // namespace zerosim
