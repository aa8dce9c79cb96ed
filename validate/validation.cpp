#include "validate/validation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr int kJsonVersion = 1;

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
  json["source"] = row.source.empty() ? JsonValue() : JsonValue(row.source);
  return json;
}

/// `text` in at most `width` bytes; never ends inside a UTF-8 character.
std::string shortened(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  std::size_t end = width - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

/// Widths of the first two columns, so that a line keeps to 100.
class RowTable {
 public:
  explicit RowTable(const std::vector<ValidationRow>& rows) {
    for (const ValidationRow& row : rows) {
      if (!row.skipped) id_width_ = std::max(id_width_, std::min(row.id.size(), kLargestIdWidth));
    }
  }

  [[nodiscard]] std::string header() const {
    return format("{:<{}} {:<{}} {:>9} {:>9} {:<7} {:>8}\n", "row", id_width_, "what", what_width(),
                  "predicted", "published", "unit", "error") +
           std::string(100, '-') + "\n";
  }
  [[nodiscard]] std::string line(const ValidationRow& row) const {
    return format("{:<{}} {:<{}} {:>9.6g} {:>9.6g} {:<7} {:>+7.2f}%\n",
                  shortened(row.id, id_width_), id_width_, shortened(row.what, what_width()),
                  what_width(), *row.predicted, *row.measured, row.unit.substr(0, 7),
                  *row.relative_error * 100);
  }

 private:
  static constexpr std::size_t kLargestIdWidth = 40;
  static constexpr std::size_t kBothWidths = 62;

  [[nodiscard]] std::size_t what_width() const { return kBothWidths - id_width_; }

  std::size_t id_width_ = 16;
};

/// Those of a source that were compared, the largest error first.
std::vector<ValidationRow> worst_first(const std::vector<ValidationRow>& rows,
                                       const std::string& source) {
  std::vector<ValidationRow> own;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(own),
               [&](const ValidationRow& row) { return !row.skipped && row.source == source; });
  std::stable_sort(own.begin(), own.end(), [](const ValidationRow& a, const ValidationRow& b) {
    return std::abs(*a.relative_error) > std::abs(*b.relative_error);
  });
  return own;
}

std::string source_text(const SourceSummary& source) {
  const ValidationSummary& summary = source.summary;
  return format("{}: {} compared, median {:.2f} %, worst {:.2f} %\n", shortened(source.source, 48),
                summary.count - summary.skipped, *summary.median * 100, *summary.worst * 100);
}

std::string rows_text(const std::vector<ValidationRow>& rows) {
  const RowTable table(rows);
  std::string out = table.header();
  for (const ValidationRow& row : worst_first(rows, "")) out += table.line(row);
  for (const SourceSummary& source : summaries_by_source(rows)) {
    if (!source.summary.median) continue;
    out += source_text(source);
    for (const ValidationRow& row : worst_first(rows, source.source)) out += table.line(row);
  }
  return out;
}

JsonValue summary_json(const ValidationSummary& summary) {
  JsonValue json(Json::objectValue);
  json["count"] = summary.count;
  json["skipped"] = summary.skipped;
  json["median"] = number(summary.median);
  json["p90"] = number(summary.p90);
  json["worst"] = number(summary.worst);
  return json;
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
      std::move(id), std::move(what), std::move(unit), predicted, measured, {}, false, "", ""};
  if (measured == 0) {
    row.skipped = true;
    row.why = "the published figure is 0: it has no relative error";
  } else {
    row.relative_error = (predicted - measured) / measured;
  }
  return row;
}

ValidationRow skipped_row(std::string id, std::string what, std::string why) {
  return {std::move(id), std::move(what), "", {}, {}, {}, true, std::move(why), ""};
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

std::vector<SourceSummary> summaries_by_source(const std::vector<ValidationRow>& rows) {
  std::vector<std::string> sources;
  for (const ValidationRow& row : rows) {
    const bool known = std::find(sources.begin(), sources.end(), row.source) != sources.end();
    if (!row.source.empty() && !known) sources.push_back(row.source);
  }
  std::vector<SourceSummary> summaries;
  for (const std::string& source : sources) {
    std::vector<ValidationRow> own;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(own),
                 [&](const ValidationRow& row) { return row.source == source; });
    summaries.push_back({source, summary_of(own)});
  }
  return summaries;
}

bool is_within(const ValidationSummary& summary, double tolerance) {
  return summary.worst && *summary.worst <= tolerance;
}

std::string validation_text(const Validation& validation) {
  std::string out = format("{}: predicted against published figures\n\n", validation.input);
  out += rows_text(validation.rows);
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
  json["summary"] = summary_json(summary_of(validation.rows));
  JsonValue& sources = json["sources"] = JsonValue(Json::arrayValue);
  for (const SourceSummary& source : summaries_by_source(validation.rows)) {
    JsonValue entry = summary_json(source.summary);
    entry["source"] = source.source;
    sources.append(entry);
  }
  JsonValue& assumptions = json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& assumption : validation.assumptions) assumptions.append(assumption);
  return json;
}

}  // namespace zerosim
