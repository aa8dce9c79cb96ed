#include <map>
#include <set>

#include "sim/base/text.h"
#include "validate/fit_collectives.h"
#include "validate/log_text.h"

namespace zerosim {
namespace {

constexpr int kJsonVersion = 1;
constexpr std::size_t kNameWidth = 32;

std::string name_of(const std::string& log) {
  return cut(short_name(log), kNameWidth);
}

std::string constants_text(const CollectiveFit& fit) {
  std::string out =
      format("{:<32} {:<14} {:>5} {:>5} {:>9} {:>9} {:>8} {:>9}\n", "log", "operation", "ranks",
             "nodes", "floor us", "bend us", "exponent", "GB/s");
  for (const FittedLog& log : fit.logs) {
    const CalibratedCollective& entry = log.entry;
    const CollectiveLine& line = entry.line;
    out += format("{:<32} {:<14} {:>5} {:>5} {:>9.2f} {:>9.2f} {:>8.3f} {:>9.2f}\n",
                  name_of(entry.log), to_string(log.operation), entry.ranks, entry.nodes,
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
             "operation", "times", "med.", "p90", "worst", "held", "med.", "p90", "worst");
  for (const FittedLog& log : fit.logs) {
    out += errors_line(name_of(log.entry.log), to_string(log.operation), log.fitted, log.held_out);
  }
  return out + errors_line("all", "", fit.fitted, fit.held_out);
}

/// Each sentence once, with the log or the number of logs that it is of.
std::string assumptions_text(const CollectiveFit& fit) {
  std::vector<std::string> sentences;
  std::map<std::string, std::set<std::string>> logs;
  for (const LogAssumption& assumption : fit.assumptions) {
    std::set<std::string>& own = logs[assumption.sentence];
    if (own.empty()) sentences.push_back(assumption.sentence);
    own.insert(assumption.log.empty() ? "" : short_name(assumption.log));
  }
  std::string out;
  for (const std::string& sentence : sentences) {
    const std::set<std::string>& own = logs[sentence];
    const std::string of =
        own.size() > 1 ? counted(static_cast<std::int64_t>(own.size()), "log") : *own.begin();
    out += told_line("assumed", of.empty() ? sentence : format("{}: {}", of, sentence));
  }
  return out;
}

std::string told_text(const CollectiveFit& fit) {
  std::string out;
  for (const std::string& note : fit.notes) out += told_line("note", note);
  return out + assumptions_text(fit) + warnings_text(fit.warnings);
}

JsonValue assumptions_json(const CollectiveFit& fit) {
  JsonValue json(Json::arrayValue);
  for (const LogAssumption& assumption : fit.assumptions) {
    JsonValue entry(Json::objectValue);
    entry["log"] = assumption.log.empty() ? JsonValue() : JsonValue(assumption.log);
    entry["sentence"] = assumption.sentence;
    json.append(entry);
  }
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
  json["environment"] = strings_json(entry.environment);
  put_summary(json["fitted"], log.fitted);
  put_summary(json["held_out"], log.held_out);
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
    out += told_line("skipped", format("{}: {}", short_name(log.log), log.why));
  }
  const std::string told = told_text(fit);
  return told.empty() ? out : out + "\n" + told;
}

JsonValue fit_json(const CollectiveFit& fit) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["hold_out"] = std::string(to_string(fit.hold_out));
  JsonValue& logs = json["logs"] = JsonValue(Json::arrayValue);
  for (const FittedLog& log : fit.logs) logs.append(log_json(log));
  put_summary(json["summary"]["fitted"], fit.fitted);
  put_summary(json["summary"]["held_out"], fit.held_out);
  JsonValue& skipped = json["skipped"] = JsonValue(Json::arrayValue);
  for (const SkippedLog& log : fit.skipped) {
    JsonValue entry(Json::objectValue);
    entry["log"] = log.log;
    entry["why"] = log.why;
    skipped.append(entry);
  }
  json["notes"] = strings_json(fit.notes);
  json["assumptions"] = assumptions_json(fit);
  json["warnings"] = warnings_json(fit.warnings);
  return json;
}

}  // namespace zerosim
