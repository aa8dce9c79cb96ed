#include "validate/validation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr int kJsonVersion = 1;
constexpr std::size_t kWhatWidth = 46;  // so that a line keeps to 100 columns

JsonValue number(const std::optional<double>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

JsonValue row_json(const ValidationRow& row) {
  JsonValue json(Json::objectValue);
  json["id"] = row.id;
  json["what"] = row.what;
  json["unit"] = row.unit.empty() ? JsonValue() : JsonValue(row.unit);
  json["predicted"] = number(row.predicted);
  json["measured"] = number(row.measured);
  json["relative_error"] = number(row.relative_error);
  json["skipped"] = row.skipped;
  json["why"] = row.why.empty() ? JsonValue() : JsonValue(row.why);
  return json;
}

/// `text` in at most kWhatWidth bytes; never ends inside a UTF-8 character.
std::string shortened(const std::string& text) {
  if (text.size() <= kWhatWidth) return text;
  std::size_t end = kWhatWidth - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

std::string row_text(const ValidationRow& row) {
  return format("{:<16} {:<46} {:>9.6g} {:>9.6g} {:<7} {:>+7.2f}%\n", row.id, shortened(row.what),
                *row.predicted, *row.measured, row.unit.substr(0, 7), *row.relative_error * 100);
}

std::string skipped_text(const std::vector<ValidationRow>& rows) {
  std::vector<std::pair<std::string, int>> reasons;  // in the order of the rows
  for (const ValidationRow& row : rows) {
    if (!row.skipped) continue;
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& reason) { return reason.first == row.why; });
    if (known == reasons.end()) {
      reasons.emplace_back(row.why, 1);
    } else {
      ++known->second;
    }
  }
  std::string out;
  for (const auto& [why, count] : reasons) out += format("skipped {}: {}\n", count, why);
  return out.empty() ? out : "\n" + out;
}

std::string summary_text(const ValidationSummary& summary) {
  std::string out =
      format("\n{} figures compared, {} skipped", summary.count - summary.skipped, summary.skipped);
  if (summary.worst) {
    out += format("; absolute error: median {:.2f} %, p90 {:.2f} %, worst {:.2f} %",
                  *summary.median * 100, *summary.p90 * 100, *summary.worst * 100);
  }
  return out + "\n";
}

}  // namespace

ValidationRow compared_row(std::string id, std::string what, std::string unit, double predicted,
                           double measured) {
  ValidationRow row{
      std::move(id), std::move(what), std::move(unit), predicted, measured, {}, false, ""};
  if (measured == 0) {
    row.skipped = true;
    row.why = "the published figure is 0: it has no relative error";
  } else {
    row.relative_error = (predicted - measured) / measured;
  }
  return row;
}

ValidationRow skipped_row(std::string id, std::string what, std::string why) {
  return {std::move(id), std::move(what), "", {}, {}, {}, true, std::move(why)};
}

ValidationSummary summary_of(const std::vector<ValidationRow>& rows) {
  ValidationSummary summary;
  summary.count = static_cast<int>(rows.size());
  std::vector<double> errors;
  for (const ValidationRow& row : rows) {
    if (row.relative_error) errors.push_back(std::abs(*row.relative_error));
  }
  summary.skipped = summary.count - static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  std::sort(errors.begin(), errors.end());
  const std::size_t n = errors.size();
  summary.median = (errors[(n - 1) / 2] + errors[n / 2]) / 2;
  summary.p90 = errors[(9 * n + 9) / 10 - 1];  // ceil(0.9 n)-th
  summary.worst = errors.back();
  return summary;
}

bool is_within(const ValidationSummary& summary, double tolerance) {
  return summary.worst && *summary.worst <= tolerance;
}

std::string validation_text(const Validation& validation) {
  std::string out = format("{}: predicted against published figures\n\n", validation.input);
  out += format("{:<16} {:<46} {:>9} {:>9} {:<7} {:>8}\n", "row", "what", "predicted", "published",
                "unit", "error");
  out += std::string(100, '-') + "\n";
  for (const ValidationRow& row : validation.rows) {
    if (!row.skipped) out += row_text(row);
  }
  out += skipped_text(validation.rows);
  for (const std::string& assumption : validation.assumptions)
    out += "assumed: " + assumption + "\n";
  return out + summary_text(summary_of(validation.rows));
}

JsonValue validation_json(const Validation& validation) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["input"] = validation.input;
  JsonValue& rows = json["rows"] = JsonValue(Json::arrayValue);
  for (const ValidationRow& row : validation.rows) rows.append(row_json(row));
  const ValidationSummary summary = summary_of(validation.rows);
  json["summary"]["count"] = summary.count;
  json["summary"]["skipped"] = summary.skipped;
  json["summary"]["median"] = number(summary.median);
  json["summary"]["p90"] = number(summary.p90);
  json["summary"]["worst"] = number(summary.worst);
  JsonValue& assumptions = json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& assumption : validation.assumptions) assumptions.append(assumption);
  return json;
}

}  // namespace zerosim
