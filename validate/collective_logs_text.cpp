#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sim/base/text.h"
#include "validate/collective_logs.h"
#include "validate/log_text.h"

namespace zerosim {
namespace {

constexpr int kJsonVersion = 1;

std::string operation_name(const CollectiveLogCheck& check) {
  return check.operation ? std::string(to_string(*check.operation)) : "";
}

ValidationSummary summary_of_log(const CollectiveLogCheck& check) {
  CollectiveValidation one;
  one.logs = {check};
  return summary_of(one);
}

/// "1 KiB", "512 MiB", "8 GiB", "1008 B".
std::string size_text(Bytes size) {
  static constexpr std::array<const char*, 4> kUnits = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(size.count());
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return format("{:.4g} {}", value, kUnits[unit]);
}

std::string microseconds(Seconds time) {
  const double us = time.count() * 1e6;
  return us < 1e5 ? format("{:.2f}", us) : format("{:.0f}", us);
}

// Text.

std::string sizes_text(const CollectiveLogCheck& check) {
  std::string out = format("\n{}\n{}", check.file, operation_name(check));
  if (check.why.empty()) {
    out += format(", {} on {}", counted(check.group.ranks, "rank"), check.cluster);
  }
  out += "\n";
  for (const std::string& note : check.notes) out += told_line("note", note);
  if (!check.why.empty()) return out + told_line("skipped", check.why);
  out += format("{:>10} {:>12} {:>12} {:>12} {:>9}  {}\n", "size", "predicted us", "measured us",
                "in place us", "error %", "algorithm");
  for (const CollectivePoint& point : check.points) {
    const std::string in_place =
        point.measured_in_place ? microseconds(*point.measured_in_place) : "-";
    if (!point.predicted) {
      out += format("{:>10} {:>12} {:>12} {:>12} {:>9}  {}\n", size_text(point.size), "-",
                    microseconds(point.measured), in_place, "-", point.why);
      continue;
    }
    out += format("{:>10} {:>12} {:>12} {:>12} {:>+9.1f}  {}/{}{}\n", size_text(point.size),
                  microseconds(*point.predicted), microseconds(point.measured), in_place,
                  point.relative_error * 100, to_string(point.algorithm), to_string(point.protocol),
                  point.counts() ? "" : "  (not counted)");
  }
  for (const std::string& assumption : check.assumptions) out += told_line("assumed", assumption);
  return out;
}

const CollectivePoint* worst_point(const CollectiveLogCheck& check) {
  const CollectivePoint* worst = nullptr;
  for (const CollectivePoint& point : check.points) {
    if (!point.counts()) continue;
    if (worst == nullptr || std::abs(point.relative_error) > std::abs(worst->relative_error)) {
      worst = &point;
    }
  }
  return worst;
}

std::string log_line(const CollectiveLogCheck& check) {
  const ValidationSummary summary = summary_of_log(check);
  const CollectivePoint* worst = worst_point(check);
  return format(
      "{:<32} {:<14} {:<16} {:>5} {:>3} {:>5} {:>5} {}\n", cut(short_name(check.file), 32),
      operation_name(check), cut(check.machine_class, 16), check.group.ranks,
      summary.count - summary.skipped, percent(summary.median), percent(summary.p90),
      worst == nullptr ? ""
                       : format("{:+.0f} {}", worst->relative_error * 100, size_text(worst->size)));
}

std::string logs_text(const CollectiveValidation& validation) {
  std::vector<const CollectiveLogCheck*> order;
  for (const CollectiveLogCheck& check : validation.logs) {
    if (check.why.empty()) order.push_back(&check);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return summary_of_log(*a).median.value_or(-1) > summary_of_log(*b).median.value_or(-1);
  });
  std::string out = format("{:<32} {:<14} {:<16} {:>5} {:>3} {:>5} {:>5} {}\n", "log", "operation",
                           "machine", "ranks", "n", "med%", "p90%", "worst, at");
  out += std::string(kReportColumns, '-') + "\n";
  for (const CollectiveLogCheck* check : order) out += log_line(*check);
  return out;
}

std::string groups_text(const char* title, const std::vector<CollectiveGroupSummary>& groups) {
  std::string out = format("\n{:<28} {:>5} {:>7} {:>8} {:>8} {:>8}\n", title, "logs", "points",
                           "median %", "p90 %", "worst %");
  for (const CollectiveGroupSummary& group : groups) {
    const ValidationSummary& summary = group.summary;
    if (!summary.median) continue;
    out += format("{:<28} {:>5} {:>7} {:>8} {:>8} {:>8}\n", cut(group.name, 28), group.logs,
                  summary.count - summary.skipped, percent(summary.median), percent(summary.p90),
                  percent(summary.worst));
  }
  return out;
}

/// Reasons, with the points that each took.
std::string skipped_text(const CollectiveValidation& validation) {
  std::map<std::string, int> reasons;
  std::string out;
  for (const CollectiveLogCheck& check : validation.logs) {
    if (!check.why.empty()) {
      out += told_line("skipped", format("{}: {}", short_name(check.file), check.why));
    }
    for (const CollectivePoint& point : check.points) {
      if (check.why.empty() && !point.counts()) ++reasons[point.why];
    }
  }
  for (const auto& [why, points] : reasons) {
    out += wrap(
        format("{} {} not count: {}", counted(points, "point"), points == 1 ? "does" : "do", why),
        kReportColumns);
  }
  return out.empty() ? out : "\n" + out;
}

std::string notes_text(const CollectiveValidation& validation) {
  std::string out;
  for (const CollectiveLogCheck& check : validation.logs) {
    for (const std::string& note : check.notes) {
      out += told_line("note", format("{}: {}", short_name(check.file), note));
    }
  }
  return out.empty() ? out : "\n" + out;
}

std::string summary_text(const CollectiveValidation& validation) {
  const ValidationSummary summary = summary_of(validation);
  std::string out = format("{}, {} compared, {} not",
                           counted(static_cast<std::int64_t>(validation.logs.size()), "log"),
                           counted(summary.count - summary.skipped, "point"), summary.skipped);
  if (summary.median) {
    out += format("; absolute error: median {:.2f} %, p90 {:.2f} %, worst {:.2f} %",
                  *summary.median * 100, *summary.p90 * 100, *summary.worst * 100);
  }
  return "\n" + wrap(out, kReportColumns);
}

std::string environment_text(const CollectiveValidation& validation) {
  std::string out = warnings_text(validation.warnings);
  for (const std::string& told : validation.assumptions) out += told_line("assumed", told);
  return out.empty() ? out : "\n" + out;
}

// JSON.

JsonValue text_json(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}

JsonValue row_json(const CollectiveLogCheck& check, const CollectivePoint& point) {
  JsonValue json(Json::objectValue);
  json["id"] = format("{}:{}", check.file, point.line);
  json["log"] = check.file;
  json["operation"] = text_json(operation_name(check));
  json["size"] = JsonValue(static_cast<Json::Int64>(point.size.count()));
  json["measured"] = point.measured.count();
  json["measured_in_place"] =
      point.measured_in_place ? JsonValue(point.measured_in_place->count()) : JsonValue();
  const bool predicted = point.predicted.has_value();
  json["predicted"] = predicted ? JsonValue(point.predicted->count()) : JsonValue();
  json["relative_error"] = predicted ? JsonValue(point.relative_error) : JsonValue();
  json["algorithm"] = predicted ? JsonValue(std::string(to_string(point.algorithm))) : JsonValue();
  json["protocol"] = predicted ? JsonValue(std::string(to_string(point.protocol))) : JsonValue();
  json["skipped"] = !point.counts();
  json["why"] = text_json(point.why);
  return json;
}

JsonValue log_json(const CollectiveLogCheck& check) {
  JsonValue json(Json::objectValue);
  json["name"] = check.file;
  json["operation"] = text_json(operation_name(check));
  json["operation_from"] = text_json(check.operation_from);
  const bool known = check.why.empty();
  json["ranks"] = known ? JsonValue(check.group.ranks) : JsonValue();
  json["ranks_from"] = text_json(check.ranks_from);
  json["nodes"] = known ? JsonValue(check.group.nodes) : JsonValue();
  json["nccl_version"] = text_json(check.nccl_version);
  json["cluster"] = text_json(check.cluster);
  json["machine_class"] = text_json(check.machine_class);
  json["why"] = text_json(check.why);
  json["notes"] = strings_json(check.notes);
  json["assumptions"] = strings_json(check.assumptions);
  put_summary(json["summary"], summary_of_log(check));
  return json;
}

JsonValue groups_json(const std::vector<CollectiveGroupSummary>& groups) {
  JsonValue json(Json::arrayValue);
  for (const CollectiveGroupSummary& group : groups) {
    JsonValue entry(Json::objectValue);
    entry["name"] = group.name;
    entry["logs"] = group.logs;
    put_summary(entry, group.summary);
    json.append(entry);
  }
  return json;
}

std::vector<CollectiveGroupSummary> by_machine(const CollectiveValidation& validation) {
  return summaries_by(validation,
                      [](const CollectiveLogCheck& check) { return check.machine_class; });
}

}  // namespace

std::string collectives_text(const CollectiveValidation& validation, bool sizes) {
  std::string out;
  const bool all = sizes || validation.logs.size() == 1;
  for (const CollectiveLogCheck& check : validation.logs) {
    if (all) out += sizes_text(check);
  }
  if (validation.logs.size() > 1) {
    if (all) out += "\n";
    out += logs_text(validation);
    out += groups_text("operation", summaries_by(validation, operation_name));
    out += groups_text("machine", by_machine(validation));
    out += skipped_text(validation);
    if (!all) out += notes_text(validation);
  }
  return out + environment_text(validation) + summary_text(validation);
}

JsonValue collectives_json(const CollectiveValidation& validation) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  JsonValue& rows = json["rows"] = JsonValue(Json::arrayValue);
  JsonValue& logs = json["logs"] = JsonValue(Json::arrayValue);
  for (const CollectiveLogCheck& check : validation.logs) {
    for (const CollectivePoint& point : check.points) rows.append(row_json(check, point));
    logs.append(log_json(check));
  }
  put_summary(json["summary"], summary_of(validation));
  json["operations"] = groups_json(summaries_by(validation, operation_name));
  json["machines"] = groups_json(by_machine(validation));
  json["warnings"] = warnings_json(validation.warnings);
  json["assumptions"] = strings_json(validation.assumptions);
  return json;
}

}  // namespace zerosim
