#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "sim/base/text.h"
#include "validate/published_runs.h"
#include "validate/run_split.h"

namespace zerosim {

namespace {

constexpr int kJsonVersion = 1;
constexpr std::size_t kWorstRows = 20;
constexpr std::size_t kReportWidth = 100;
constexpr std::size_t kNameWidth = 30;
constexpr std::size_t kIdWidth = 32;
constexpr std::size_t kPairWidth = 34;

using Part = std::pair<std::string, std::vector<const RunCheck*>>;

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

std::string percent(const std::optional<double>& share) {
  return share ? format("{:.1f}", *share * 100) : "-";
}

std::string signed_percent(const std::optional<double>& share) {
  return share ? format("{:+.1f}", *share * 100) : "-";
}

/// Parts of the rows by name, those with the largest median first; empty ones of no step last.
std::vector<Part> parts_by(const RunsValidation& validation,
                           const std::function<std::string(const RunCheck&)>& name,
                           bool with_trust_c) {
  std::map<std::string, std::vector<const RunCheck*>> by_name;
  for (const RunCheck& run : validation.runs) {
    if (run.trust == "C" && !with_trust_c) continue;
    by_name[name(run)].push_back(&run);
  }
  std::vector<Part> parts(by_name.begin(), by_name.end());
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return summary_of(a.second).step.median.value_or(-1) >
           summary_of(b.second).step.median.value_or(-1);
  });
  return parts;
}

std::string source_name(const RunCheck& run) {
  return format("{} {}", run.trust, run.source);
}
std::string gpu_name(const RunCheck& run) {
  return run.gpu.empty() ? "(not said)" : run.gpu;
}
std::string strategy_name(const RunCheck& run) {
  return run.strategy;
}
std::string framework_name(const RunCheck& run) {
  return run.framework.empty() ? "(not said)" : run.framework;
}
std::string split_name(const RunCheck& run) {
  return run.for_fitting ? "groups for fitting" : "groups for judging";
}

// ---- text ------------------------------------------------------------------------------------

std::string table_header(const char* title) {
  return format("\n{:<30} {:>4} {:>4} {:>4} {:>6} {:>5} {:>5} {:>3} {:>5} {}\n", title, "rows",
                "skip", "n", "bias%", "med%", "p90%", "mem", "med%", "worst step") +
         std::string(kReportWidth, '-') + "\n";
}

std::string part_line(const std::string& name, const std::vector<const RunCheck*>& runs) {
  const RunSummary summary = summary_of(runs);
  const std::string worst =
      summary.worst == nullptr
          ? ""
          : format("{} {}", signed_percent(summary.worst->step_error()), summary.worst->id);
  return format(
      "{:<30} {:>4} {:>4} {:>4} {:>6} {:>5} {:>5} {:>3} {:>5} {}\n", cut(name, kNameWidth),
      summary.rows, summary.skipped, summary.step.count - summary.step.skipped,
      signed_percent(summary.bias), percent(summary.step.median), percent(summary.step.p90),
      summary.peak.count - summary.peak.skipped, percent(summary.peak.median), cut(worst, 25));
}

std::string table_text(const char* title, const std::vector<Part>& parts) {
  std::string out = table_header(title);
  for (const auto& [name, runs] : parts) out += part_line(name, runs);
  return out;
}

std::string headline_line(const char* title, const RunHeadline& headline) {
  return format(
      "{:<20} {:>6} {:>6} {:>8} {:>12} {:>8} {:>14} {:>14}\n", title, headline.rows,
      headline.skipped,
      headline.rows == 0 ? "-" : format("{:.1f}", 100.0 * headline.skipped / headline.rows),
      percent(headline.median_of_sources), percent(headline.p90),
      percent(headline.deepspeed_median), percent(headline.deepspeed_median_with_b));
}

/// Trust A, but for the last column.
std::string headlines_text(const RunsValidation& validation) {
  return format("{:<20} {:>6} {:>6} {:>8} {:>12} {:>8} {:>14} {:>14}\n", "trust A", "rows", "skip",
                "skip %", "sources med%", "p90 %", "DeepSpeed med%", "and trust B") +
         std::string(kReportWidth, '-') + "\n" +
         headline_line("all groups", headline_of(validation)) +
         headline_line(
             "groups for fitting",
             headline_of(validation, [](const RunCheck& run) { return run.for_fitting; })) +
         headline_line("groups for judging", headline_of(validation, [](const RunCheck& run) {
                         return !run.for_fitting;
                       }));
}

std::string pair_line(const OrderPair& pair) {
  return format("  {:<12} {:<34} {:<34} {:>6.2f} {:>6.2f} {:>+6.0f}{}\n", to_string(pair.knob),
                cut(pair.slower, kPairWidth), cut(pair.faster, kPairWidth), pair.measured,
                pair.predicted, pair.error() * 100, pair.right() ? "" : " wrong");
}

/// Pairs that are told: all, or those in the wrong order.
std::string orders_text(const RunsValidation& validation, bool all) {
  const OrderSummary summary = summary_of(validation.orders);
  std::string out =
      format("\norder: {} of {} pairs right that differ in strategy or interconnect alone\n",
             summary.right, summary.pairs);
  if (summary.pairs == 0) return out;
  out += format("ratio of their times: median error {} %, {} of {} within {:.0f} %\n",
                percent(summary.median), summary.reproduced, summary.pairs, kRatioTolerance * 100);
  if (!all && summary.right == summary.pairs) return out;
  out += format("  {:<12} {:<34} {:<34} {:>6} {:>6} {:>6}\n", "differ in", "slower", "faster",
                "meas.", "pred.", "err %");
  for (const OrderPair& pair : validation.orders) {
    if (all || !pair.right()) out += pair_line(pair);
  }
  return out;
}

std::string skipped_text(const RunsValidation& validation) {
  std::map<std::string, std::pair<int, int>> reasons;  // all, trust A
  for (const RunCheck& run : validation.runs) {
    if (run.why.empty()) continue;
    auto& [all, trusted] = reasons[run.why];
    ++all;
    if (run.trust == "A") ++trusted;
  }
  std::vector<std::pair<std::string, std::pair<int, int>>> order(reasons.begin(), reasons.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  std::string out = format("\n{:>7} {:>7}  skipped because\n", "rows", "trust A");
  for (const auto& [why, counts] : order) {
    out += format("{:>7} {:>7}  {}\n", counts.first, counts.second, why);
  }
  return order.empty() ? "" : out;
}

/// "reserved 88.5 GB -2.1 %": measured, and how far the prediction is off.
std::string memory_text(const RunCheck& run) {
  if (!run.has_peak()) return "";
  return format(" {} {:.1f} GB {:+.1f} %", to_string(run.measured.peak->kind),
                run.measured.peak->bytes.gb(), *run.peak_error() * 100);
}

std::string row_line(const RunCheck& run) {
  const std::string step =
      run.has_step()
          ? format("{:>8.4g} {:>8.4g} {:>+7.1f} {:>7.0f} {:>7.0f}", run.predicted->step.count(),
                   run.measured.step->count(), *run.step_error() * 100,
                   run.predicted->tokens_per_s_per_gpu, run.measured_tokens_per_s_per_gpu)
          : format("{:>8} {:>8} {:>7} {:>7} {:>7}", "-", "-", "-", "-", "-");
  return format(
      "{:<32} {} {}{}{}\n", cut(run.id, kIdWidth), run.trust, step, memory_text(run),
      run.predicted && run.predicted->verdict == Verdict::DoesNotFit ? " (does not fit)" : "");
}

std::string rows_text(const RunsValidation& validation, bool verbose) {
  std::vector<const RunCheck*> order;
  for (const RunCheck& run : validation.runs) {
    if (run.why.empty()) order.push_back(&run);
  }
  std::stable_sort(order.begin(), order.end(), [](const RunCheck* a, const RunCheck* b) {
    return std::abs(a->step_error().value_or(0)) > std::abs(b->step_error().value_or(0));
  });
  if (!verbose && order.size() > kWorstRows) order.resize(kWorstRows);
  std::string out =
      format("\n{:<32} {} {:>8} {:>8} {:>7} {:>7} {:>7} {}\n", verbose ? "row" : "worst rows", "t",
             "step s", "measured", "error %", "tok/s", "meas.", "peak measured, error");
  out += std::string(kReportWidth, '-') + "\n";
  for (const RunCheck* run : order) {
    out += row_line(*run);
    if (!verbose) continue;
    if (run->measured.step) out += format("    measured: {}\n", run->measured.step_from);
    for (const std::string& sentence : run->assumptions) out += "    assumed: " + sentence + "\n";
  }
  return out;
}

// ---- JSON ------------------------------------------------------------------------------------

JsonValue number(const std::optional<double>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

JsonValue text_or_null(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}

JsonValue memory_json(const RunCheck& run) {
  if (!run.measured.peak) return {};
  JsonValue json(Json::objectValue);
  json["kind"] = std::string(to_string(run.measured.peak->kind));
  json["measured"] = JsonValue(Json::Int64(run.measured.peak->bytes.count()));
  json["predicted"] =
      run.has_peak() ? JsonValue(Json::Int64(run.predicted->peak->count())) : JsonValue();
  json["relative_error"] = number(run.peak_error());
  return json;
}

JsonValue rates_json(const RunCheck& run) {
  if (!run.has_step()) return {};
  JsonValue json(Json::objectValue);
  json["predicted"] = run.predicted->tokens_per_s_per_gpu;
  json["measured"] = run.measured_tokens_per_s_per_gpu;
  return json;
}

JsonValue row_json(const RunCheck& run) {
  JsonValue json(Json::objectValue);
  json["id"] = run.id;
  json["group"] = run.group;
  json["source"] = run.source;
  json["trust"] = run.trust;
  json["model"] = run.model;
  json["gpu"] = text_or_null(run.gpu);
  json["framework"] = text_or_null(run.framework);
  json["strategy"] = run.strategy;
  json["world_size"] = run.world_size;
  json["split"] = run.for_fitting ? "fit" : "judge";
  json["timer"] = std::string(to_string(run.measured.timer));
  json["what"] = "step time";
  json["unit"] = "s";
  json["predicted"] = run.predicted ? JsonValue(run.predicted->step.count()) : JsonValue();
  json["measured"] = run.measured.step ? JsonValue(run.measured.step->count()) : JsonValue();
  json["measured_from"] = text_or_null(run.measured.step_from);
  json["relative_error"] = number(run.step_error());
  json["tokens_per_s_per_gpu"] = rates_json(run);
  json["memory"] = memory_json(run);
  json["verdict"] =
      run.predicted ? JsonValue(std::string(to_string(run.predicted->verdict))) : JsonValue();
  json["skipped"] = !run.why.empty();
  json["why"] = text_or_null(run.why);
  json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& sentence : run.assumptions) json["assumptions"].append(sentence);
  return json;
}

JsonValue errors_json(const ValidationSummary& summary) {
  JsonValue json(Json::objectValue);
  json["count"] = summary.count - summary.skipped;
  json["median"] = number(summary.median);
  json["p90"] = number(summary.p90);
  json["worst"] = number(summary.worst);
  return json;
}

JsonValue part_json(const std::string& name, const std::vector<const RunCheck*>& runs) {
  const RunSummary summary = summary_of(runs);
  JsonValue json = errors_json(summary.step);
  json["name"] = name;
  json["rows"] = summary.rows;
  json["skipped"] = summary.skipped;
  json["bias"] = number(summary.bias);
  json["memory"] = errors_json(summary.peak);
  json["worst_row"] = summary.worst == nullptr ? JsonValue() : JsonValue(summary.worst->id);
  return json;
}

JsonValue parts_json(const std::vector<Part>& parts) {
  JsonValue json(Json::arrayValue);
  for (const auto& [name, runs] : parts) json.append(part_json(name, runs));
  return json;
}

JsonValue summary_json(const RunsValidation& validation) {
  const RunHeadline headline = headline_of(validation);
  std::vector<const RunCheck*> all;
  all.reserve(validation.runs.size());
  for (const RunCheck& run : validation.runs) all.push_back(&run);
  const RunSummary summary = summary_of(all);
  JsonValue json = errors_json(summary.step);
  json["count"] = summary.rows;
  json["skipped"] = summary.skipped;
  json["memory"] = errors_json(summary.peak);
  json["trust_a_rows"] = headline.rows;
  json["trust_a_skipped"] = headline.skipped;
  json["median_of_sources"] = number(headline.median_of_sources);
  json["p90_of_rows"] = number(headline.p90);
  json["deepspeed_zero_median"] = number(headline.deepspeed_median);
  json["deepspeed_zero_median_with_b"] = number(headline.deepspeed_median_with_b);
  json["pairs"] = headline.orders.pairs;
  json["pairs_right"] = headline.orders.right;
  json["pairs_ratio_median"] = number(headline.orders.median);
  json["pairs_ratio_within_25_percent"] = headline.orders.reproduced;
  return json;
}

JsonValue orders_json(const RunsValidation& validation) {
  JsonValue json(Json::arrayValue);
  for (const OrderPair& pair : validation.orders) {
    JsonValue entry(Json::objectValue);
    entry["knob"] = std::string(to_string(pair.knob));
    entry["faster"] = pair.faster;
    entry["slower"] = pair.slower;
    entry["measured"] = pair.measured;
    entry["predicted"] = pair.predicted;
    entry["ratio_error"] = pair.error();
    entry["right"] = pair.right();
    json.append(entry);
  }
  return json;
}

}  // namespace

std::string runs_text(const RunsValidation& validation, bool verbose) {
  std::string out = format("{}: predicted against measured step times\n\n", validation.input);
  out += headlines_text(validation);
  out += table_text("source, worst first (t = trust)", parts_by(validation, source_name, true));
  out += table_text("GPU (trust A and B)", parts_by(validation, gpu_name, false));
  out += table_text("strategy (trust A and B)", parts_by(validation, strategy_name, false));
  out += table_text("framework (trust A and B)", parts_by(validation, framework_name, false));
  out += table_text("split (trust A and B)", parts_by(validation, split_name, false));
  out += orders_text(validation, verbose);
  out += skipped_text(validation);
  return out + rows_text(validation, verbose);
}

JsonValue runs_json(const RunsValidation& validation) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["input"] = validation.input;
  JsonValue& rows = json["rows"] = JsonValue(Json::arrayValue);
  for (const RunCheck& run : validation.runs) rows.append(row_json(run));
  json["summary"] = summary_json(validation);
  json["sources"] = parts_json(parts_by(validation, source_name, true));
  json["gpus"] = parts_json(parts_by(validation, gpu_name, false));
  json["strategies"] = parts_json(parts_by(validation, strategy_name, false));
  json["frameworks"] = parts_json(parts_by(validation, framework_name, false));
  json["splits"] = parts_json(parts_by(validation, split_name, false));
  json["orders"] = orders_json(validation);
  return json;
}

}  // namespace zerosim
