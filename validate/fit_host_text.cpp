#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sim/base/text.h"
#include "sim/engine/calibrated_host.h"
#include "validate/fit_host.h"
#include "validate/validation.h"

namespace zerosim {
namespace {

constexpr int kJsonVersion = 1;
constexpr std::size_t kWorstRuns = 10;
constexpr std::size_t kNameWidth = 34;

using Time = double FittedRun::*;
using Part = std::vector<const FittedRun*>;

double error_of(const FittedRun& run, Time time) {
  return (run.*time - run.measured) / run.measured;
}

struct PartErrors {
  ValidationSummary summary;
  double mean = 0, bias = 0;  ///< of absolute errors; of signed ones
};

PartErrors errors_of(const Part& part, Time time) {
  PartErrors errors;
  std::vector<ValidationRow> rows;
  rows.reserve(part.size());
  for (const FittedRun* run : part) {
    rows.push_back(compared_row("", "", "s", run->*time, run->measured));
    errors.mean += std::abs(error_of(*run, time)) / static_cast<double>(part.size());
    errors.bias += error_of(*run, time) / static_cast<double>(part.size());
  }
  errors.summary = summary_of(rows);
  return errors;
}

Part part_of(const HostFit& fit, bool held_out) {
  Part part;
  for (const FittedRun& run : fit.runs) {
    if (run.held_out == held_out) part.push_back(&run);
  }
  return part;
}

/// By source, as they first occur.
std::vector<std::pair<std::string, Part>> sources_of(const Part& part) {
  std::vector<std::pair<std::string, Part>> sources;
  for (const FittedRun* run : part) {
    auto found = std::find_if(sources.begin(), sources.end(),
                              [&](const auto& entry) { return entry.first == run->source; });
    if (found == sources.end()) found = sources.insert(found, {run->source, {}});
    found->second.push_back(run);
  }
  return sources;
}

std::size_t reacting(const Part& part) {
  return static_cast<std::size_t>(
      std::count_if(part.begin(), part.end(), [](const FittedRun* run) { return run->reacts; }));
}

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

// ---- text --------------------------------------------------------------------------------------

std::string errors_text(const PartErrors& errors) {
  return format(" {:>6.1f} {:>6.1f} {:>6.1f} {:>+6.1f}", errors.mean * 100,
                errors.summary.median.value_or(0) * 100, errors.summary.p90.value_or(0) * 100,
                errors.bias * 100);
}

std::string part_line(const std::string& name, const Part& part) {
  return format("  {:<34} {:>4} {:>5}{}{}\n", cut(name, kNameWidth), part.size(), reacting(part),
                errors_text(errors_of(part, &FittedRun::before)),
                errors_text(errors_of(part, &FittedRun::after)));
}

std::string part_text(const char* name, const Part& part) {
  if (part.empty()) return "";
  std::string out = std::string(name) + "\n";
  for (const auto& [source, runs] : sources_of(part)) out += part_line(source, runs);
  return out + part_line("all", part);
}

std::string constants_text(const HostFit& fit) {
  const Seconds hook = default_host_times().deepspeed_hook;
  std::string out = format("{:<44} {:>8} {:>8}\n", "host times", "table", "fitted");
  out += format("{:<44} {:>8} {:>8.4g}\n", "factor on all host work", 1, fit.host->interpreter);
  const auto& fitted = fit.host->deepspeed_hook;
  out += format("{:<44} {:>8.1f} {:>8}\n", "one of DeepSpeed's ZeRO-3 hooks, us",
                hook.count() * 1e6, fitted ? format("{:.1f}", fitted->count() * 1e6) : "-");
  if (!fitted) out += "  (no run reacts to the hook: the factor applies to it, too)\n";
  if (fit.at_end) out += "  (at the end of what is searched: the runs ask for more)\n";
  return out;
}

std::string worst_text(const HostFit& fit) {
  std::vector<const FittedRun*> worst;
  worst.reserve(fit.runs.size());
  for (const FittedRun& run : fit.runs) worst.push_back(&run);
  std::stable_sort(worst.begin(), worst.end(), [](const FittedRun* a, const FittedRun* b) {
    return std::abs(error_of(*a, &FittedRun::after)) > std::abs(error_of(*b, &FittedRun::after));
  });
  worst.resize(std::min(worst.size(), kWorstRuns));
  std::string out = format("\n{:<44} {:>10} {:>10} {:>8} {:>8}\n", "worst runs", "measured s",
                           "fitted s", "before %", "after %");
  for (const FittedRun* run : worst) {
    out += format("{:<44} {:>10.4g} {:>10.4g} {:>+8.1f} {:>+8.1f}{}\n", cut(run->id, 44),
                  run->measured, run->after, error_of(*run, &FittedRun::before) * 100,
                  error_of(*run, &FittedRun::after) * 100, run->held_out ? "  held out" : "");
  }
  return out;
}

// ---- JSON --------------------------------------------------------------------------------------

JsonValue errors_json(const Part& part, Time time) {
  const PartErrors errors = errors_of(part, time);
  JsonValue json(Json::objectValue);
  json["count"] = errors.summary.count;
  if (!errors.summary.median) return json;
  json["mean"] = errors.mean;
  json["median"] = *errors.summary.median;
  json["p90"] = *errors.summary.p90;
  json["worst"] = *errors.summary.worst;
  json["bias"] = errors.bias;
  return json;
}

JsonValue part_json(const Part& part) {
  JsonValue json(Json::objectValue);
  json["before"] = errors_json(part, &FittedRun::before);
  json["after"] = errors_json(part, &FittedRun::after);
  return json;
}

JsonValue run_json(const FittedRun& run) {
  JsonValue json(Json::objectValue);
  json["id"] = run.id;
  json["group"] = run.group;
  json["source"] = run.source;
  json["trust"] = run.trust;
  json["held_out"] = run.held_out;
  json["reacts"] = run.reacts;
  json["measured"] = run.measured;
  json["before"] = run.before;
  json["after"] = run.after;
  return json;
}

std::size_t groups_in(const Part& part) {
  std::set<std::string> groups;
  for (const FittedRun* run : part) groups.insert(run->group);
  return groups.size();
}

}  // namespace

std::string host_fit_text(const HostFit& fit) {
  std::string out = format("{}: host times fitted to training runs\n\n", fit.input);
  if (!fit.host) {
    return out + format(
                     "nothing is fitted: of {} runs with a step time and trust A or B none "
                     "changes with the host's times ({} rows not used)\n",
                     fit.runs.size(), fit.unused);
  }
  out += constants_text(fit);
  const Part fitted = part_of(fit, false), held_out = part_of(fit, true);
  out += format("\nfitted to {} of {}, each group alike; held out: {}\n",
                counted(static_cast<int>(fitted.size()), "run"),
                counted(static_cast<int>(groups_in(fitted)), "group"),
                held_out.empty() ? "none" : fit.hold_out);
  out += format("\n{:<36} {:>4} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6}\n",
                "absolute error of step time, %", "", "of", "before", "", "", "", "after");
  out += format("{:<36} {:>4} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}\n", "", "runs",
                "host", "mean", "med.", "p90", "bias", "mean", "med.", "p90", "bias");
  out += part_text("fitted", fitted);
  out += part_text("held out", held_out);
  out += "of host: step changes by more than 0.1 % with 10 % more host time\n";
  if (fit.unused > 0) {
    out += format("not used: {} with trust C, without step time, or not simulated\n",
                  counted(fit.unused, "row"));
  }
  return out + worst_text(fit);
}

JsonValue host_fit_json(const HostFit& fit) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["input"] = fit.input;
  json["hold_out"] = fit.hold_out;
  json["host"] = JsonValue();
  if (fit.host) json["host"] = calibration_json({"", {}, {}, fit.host})["host"];
  json["at_end"] = fit.at_end;
  json["errors"]["fitted"] = part_json(part_of(fit, false));
  json["errors"]["held_out"] = part_json(part_of(fit, true));
  json["runs"] = JsonValue(Json::arrayValue);
  for (const FittedRun& run : fit.runs) json["runs"].append(run_json(run));
  json["unused"] = fit.unused;
  return json;
}

}  // namespace zerosim
