#include <filesystem>

#include "sim/base/text.h"
#include "validate/fit_collectives.h"

namespace zerosim {
namespace {

constexpr int kJsonVersion = 1;
constexpr std::size_t kNameWidth = 32;

std::string short_name(const std::string& log) {
  std::string name = std::filesystem::path(log).stem().string();
  return name.size() <= kNameWidth ? name : name.substr(0, kNameWidth - 2) + "..";
}

std::string percent(const std::optional<double>& share) {
  return share ? format("{:.1f}", *share * 100) : "-";
}

std::string constants_text(const CollectiveFit& fit) {
  std::string out =
      format("{:<32} {:<14} {:>5} {:>5} {:>9} {:>9} {:>8} {:>9}\n", "log", "operation", "ranks",
             "nodes", "floor us", "bend us", "exponent", "GB/s");
  for (const FittedLog& log : fit.logs) {
    const CalibratedCollective& entry = log.entry;
    const CollectiveLine& line = entry.line;
    out += format("{:<32} {:<14} {:>5} {:>5} {:>9.2f} {:>9.2f} {:>8.3f} {:>9.2f}\n",
                  short_name(entry.log), to_string(log.operation), entry.ranks, entry.nodes,
                  line.floor.count() * 1e6, line.bend.count() * 1e6, line.exponent,
                  line.bandwidth.gb_per_second());
  }
  return out;
}

std::string errors_line(const std::string& name, std::string_view operation,
                        const ValidationSummary& fitted, const ValidationSummary& held_out) {
  return format("{:<32} {:<14} {:>5} {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>5}\n", name, operation,
                fitted.count, percent(fitted.median), percent(fitted.p90), percent(fitted.worst),
                held_out.count, percent(held_out.median), percent(held_out.p90),
                percent(held_out.worst));
}

std::string errors_text(const CollectiveFit& fit) {
  std::string out =
      format("\n{:<32} {:<14} {:>5} {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>5}\n", "error in %",
             "operation", "sizes", "med.", "p90", "worst", "held", "med.", "p90", "worst");
  for (const FittedLog& log : fit.logs) {
    out +=
        errors_line(short_name(log.entry.log), to_string(log.operation), log.fitted, log.held_out);
  }
  return out + errors_line("all", "", fit.fitted, fit.held_out);
}

JsonValue number_json(const std::optional<double>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

JsonValue summary_json(const ValidationSummary& summary) {
  JsonValue json(Json::objectValue);
  json["count"] = summary.count;
  json["median"] = number_json(summary.median);
  json["p90"] = number_json(summary.p90);
  json["worst"] = number_json(summary.worst);
  return json;
}

JsonValue log_json(const FittedLog& log) {
  const CalibratedCollective& entry = log.entry;
  JsonValue json(Json::objectValue);
  json["log"] = entry.log;
  json["operation"] = std::string(to_string(log.operation));
  json["ranks"] = entry.ranks;
  json["nodes"] = entry.nodes;
  json["machine"] = entry.machine.name;
  JsonValue& constants = json["constants"];
  constants["floor"] = entry.line.floor.count();
  constants["bend"] = entry.line.bend.count();
  constants["exponent"] = entry.line.exponent;
  constants["bandwidth"] = entry.line.bandwidth.per_second();
  json["fitted"] = summary_json(log.fitted);
  json["held_out"] = summary_json(log.held_out);
  return json;
}

}  // namespace

std::string fit_text(const CollectiveFit& fit) {
  std::string out;
  if (!fit.logs.empty()) {
    out =
        "t(V) = V / bandwidth + (floor^4 + (bend (V / 1 MiB)^exponent)^4)^(1/4), V: sent by each "
        "rank\n\n" +
        constants_text(fit) + errors_text(fit);
  }
  if (!fit.skipped.empty()) out += "\n";
  for (const SkippedLog& log : fit.skipped) {
    out += format("skipped {}: {}\n", short_name(log.log), log.why);
  }
  return out;
}

JsonValue fit_json(const CollectiveFit& fit) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["hold_out"] = std::string(to_string(fit.hold_out));
  JsonValue& logs = json["logs"] = JsonValue(Json::arrayValue);
  for (const FittedLog& log : fit.logs) logs.append(log_json(log));
  json["summary"]["fitted"] = summary_json(fit.fitted);
  json["summary"]["held_out"] = summary_json(fit.held_out);
  JsonValue& skipped = json["skipped"] = JsonValue(Json::arrayValue);
  for (const SkippedLog& log : fit.skipped) {
    JsonValue entry(Json::objectValue);
    entry["log"] = log.log;
    entry["why"] = log.why;
    skipped.append(entry);
  }
  JsonValue& notes = json["notes"] = JsonValue(Json::arrayValue);
  for (const std::string& note : fit.notes) notes.append(note);
  return json;
}

}  // namespace zerosim
