#include "validate/published_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "sim/analysis/calibration_notes.h"
#include "sim/analysis/isolate.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/prepare.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"
#include "validate/run_row.h"
#include "validate/run_split.h"

namespace zerosim {

namespace {

/// Micro batches of a step that are simulated; what more add is that of the last of them.
constexpr std::int64_t kSimulatedMicroBatches = 3;

// ---- jobs ------------------------------------------------------------------------------------

/// What one simulation told.
struct JobOutcome {
  std::string why;  ///< it could not be simulated
  double step = 0;
  Bytes allocated, active, reserved, process;
  Verdict verdict = Verdict::Fits;
  std::vector<std::string> assumptions;
};

std::int64_t count_in(const JsonValue& json, const char* key) {
  return json[key].asInt64();
}

JsonValue simulated_job(const Experiment& experiment, const Strategy& strategy) {
  const SimulationOptions options;
  EngineOptions room = engine_options(experiment);
  PreparedStrategy prepared = prepare(experiment, strategy, options);
  make_room(prepared, room);
  Engine engine(experiment.cluster, room);
  const StrategyReport report =
      simulate_prepared(experiment, strategy, std::move(prepared), engine, options);
  JsonValue json(Json::objectValue);
  json["step"] = report.time.step.count();
  json["allocated"] = JsonValue(Json::Int64(report.memory.peak_allocated.count()));
  json["active"] = JsonValue(Json::Int64(report.memory.peak_active.count()));
  json["reserved"] = JsonValue(Json::Int64(report.memory.peak_reserved.count()));
  json["process"] = JsonValue(Json::Int64(needed(report.memory).count()));
  json["verdict"] = static_cast<int>(report.verdict);
  json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& sentence : report.assumptions) json["assumptions"].append(sentence);
  return json;
}

JobOutcome outcome_of(const JsonValue& json) {
  JobOutcome outcome;
  outcome.step = json["step"].asDouble();
  outcome.allocated = Bytes(count_in(json, "allocated"));
  outcome.active = Bytes(count_in(json, "active"));
  outcome.reserved = Bytes(count_in(json, "reserved"));
  outcome.process = Bytes(count_in(json, "process"));
  outcome.verdict = static_cast<Verdict>(json["verdict"].asInt());
  for (const JsonValue& sentence : json["assumptions"]) {
    outcome.assumptions.push_back(sentence.asString());
  }
  return outcome;
}

/// Simulates each job once, each in a child process: SimGrid has one cluster a process.
class JobRunner {
 public:
  /// \param job  tells jobs apart, but for the number of micro batches
  JobOutcome run(const TrainingRun& run, const std::string& job) {
    const std::int64_t micro_batches = run.strategy.grad_accum;
    if (micro_batches <= kSimulatedMicroBatches) return simulated(run, job, micro_batches);
    JobOutcome last = simulated(run, job, kSimulatedMicroBatches);
    if (!last.why.empty()) return last;
    const JobOutcome before = simulated(run, job, kSimulatedMicroBatches - 1);
    last.step +=
        static_cast<double>(micro_batches - kSimulatedMicroBatches) * (last.step - before.step);
    last.assumptions.push_back(
        format("of {} micro batches {} are simulated: each more takes what "
               "the last one adds",
               micro_batches, kSimulatedMicroBatches));
    return last;
  }

 private:
  const JobOutcome& simulated(const TrainingRun& run, const std::string& job,
                              std::int64_t micro_batches) {
    const std::string key = format("{}|{}", micro_batches, job);
    const auto known = done_.find(key);
    if (known != done_.end()) return known->second;
    Strategy strategy = run.strategy;
    strategy.grad_accum = micro_batches;
    strategy.train_batch =
        strategy.micro_batch * micro_batches * run.experiment.cluster.world_size();
    return done_.emplace(key, isolated(run.experiment, strategy)).first->second;
  }

  static JobOutcome isolated(const Experiment& experiment, const Strategy& strategy) {
    JobOutcome failed;
    try {
      const std::string sent =
          run_isolated([&] { return to_text(simulated_job(experiment, strategy), false); });
      return outcome_of(JsonDocument::from_text(sent, "simulated run").root());
    } catch (const ConfigError& error) {  // the simulator refuses what the row describes
      failed.why = error.what();
    } catch (const SimulationError& error) {
      failed.why = format("the simulation failed: {}", error.what());
    }
    return failed;
  }

  std::map<std::string, JobOutcome> done_;
};

void add_once(std::vector<std::string>& sentences, const std::string& sentence) {
  if (std::find(sentences.begin(), sentences.end(), sentence) == sentences.end()) {
    sentences.push_back(sentence);
  }
}

/// Cells on which the job depends, other than the number of micro batches.
std::string job_of(const CsvTable& table, const std::vector<CsvCell>& row) {
  std::string job;
  for (const char* column : {"model",
                             "model_json",
                             "params_b",
                             "layers",
                             "hidden",
                             "heads",
                             "kv_heads",
                             "ffn",
                             "vocab",
                             "mlp_type",
                             "seq_len",
                             "source",
                             "gpu",
                             "gpus_per_node",
                             "nodes",
                             "world_size",
                             "intra_node",
                             "inter_node",
                             "framework",
                             "strategy",
                             "strategy_detail",
                             "precision",
                             "optimizer",
                             "micro_batch",
                             "activation_checkpointing",
                             "flash_attention",
                             "compile",
                             "offload",
                             "peak_memory_kind",
                             "notes"}) {
    job += cell_or_blank(table, row, column) + "|";
  }
  return job;
}

// ---- rows ------------------------------------------------------------------------------------

constexpr auto kNeededColumns = {"id",       "group",      "source",     "trust",
                                 "strategy", "world_size", "micro_batch"};

bool is_deepspeed_zero(const RunCheck& check) {
  return check.strategy.starts_with("zero") &&
         check.framework.find("DeepSpeed") != std::string::npos;
}

Bytes peak_in(const JobOutcome& outcome, PeakKind kind) {
  switch (kind) {
    case PeakKind::Allocated:
      return outcome.allocated;
    case PeakKind::Active:
      return outcome.active;
    case PeakKind::Reserved:
      return outcome.reserved;
    case PeakKind::Process:
      return outcome.process;
  }
  return {};
}

class RowValidator {
 public:
  RowValidator(const CsvTable& table, const Calibration& calibration)
      : table_(table), calibration_(calibration) {
    for (const char* column : kNeededColumns) (void)table.column(column);
  }

  RunCheck check(const std::vector<CsvCell>& row) {
    RunCheck check = described(row);
    RunReading reading = read_run(table_, row);
    if (!reading.run) {
      check.why = reading.why;
      return check;
    }
    TrainingRun& run = *reading.run;
    run.experiment.calibration = calibration_;
    find_measured_clusters(run.experiment.calibration, run.experiment.cluster, false);
    check.assumptions = run.assumptions;
    check.measured = figures_of(table_, row, run);
    if (!check.measured.step && !check.measured.peak) {
      check.why = check.measured.no_step;
      return check;
    }
    predict(run, jobs_.run(run, job_of(table_, row)), check);
    return check;
  }

  /// The row for `order_pairs`, if it has what that takes.
  [[nodiscard]] std::optional<OrderRow> order_row(const std::vector<CsvCell>& row,
                                                  const RunCheck& check) const {
    if (!check.has_step()) return std::nullopt;
    const TrainingRun run = *read_run(table_, row).run;
    const auto sequences = static_cast<double>(run.strategy.micro_batch * run.strategy.grad_accum);
    return OrderRow{check.id,
                    check.group,
                    std::string(to_string(check.measured.timer)),
                    order_knobs(table_, row),
                    check.measured.step->count() / sequences,
                    check.predicted->step.count() / sequences};
  }

 private:
  [[nodiscard]] RunCheck described(const std::vector<CsvCell>& row) const {
    const auto text = [&](std::string_view column) { return cell_or_blank(table_, row, column); };
    RunCheck check;
    check.id = text("id");
    check.group = text("group");
    check.source = text("source").substr(0, text("source").find(" | "));
    check.trust = text("trust");
    check.model = text("model");
    check.gpu = text("gpu").substr(0, text("gpu").find(" ("));
    check.framework = text("framework");
    check.strategy = text("strategy");
    check.world_size = static_cast<int>(
        csv_number(table_, row, table_.column("world_size"), {1, 1e9, true}).value_or(0));
    check.for_fitting = is_for_fitting(check.group);
    check.sharded_by_deepspeed = is_deepspeed_zero(check);
    return check;
  }

  static void predict(const TrainingRun& run, const JobOutcome& outcome, RunCheck& check) {
    if (!outcome.why.empty()) {
      check.why = outcome.why;
      return;
    }
    for (const std::string& sentence : outcome.assumptions) add_once(check.assumptions, sentence);
    const bool of_micro_batch = check.measured.timer == RunTimer::MicroBatch;
    const auto steps = static_cast<double>(of_micro_batch ? run.strategy.grad_accum : 1);
    RunPrediction prediction;
    prediction.step = Seconds(outcome.step / steps);
    prediction.verdict = outcome.verdict;
    const auto tokens = static_cast<double>(run.strategy.micro_batch * run.strategy.grad_accum *
                                            run.experiment.batch.sequence) /
                        steps;
    prediction.tokens_per_s_per_gpu = tokens / prediction.step.count();
    if (check.measured.step) {
      check.measured_tokens_per_s_per_gpu = tokens / check.measured.step->count();
    }
    if (check.measured.peak) prediction.peak = peak_in(outcome, check.measured.peak->kind);
    check.predicted = prediction;
  }

  const CsvTable& table_;
  const Calibration& calibration_;
  JobRunner jobs_;
};

bool is_asked_for(const RunsOptions& options, const std::string& id) {
  return options.rows.empty() ||
         std::find(options.rows.begin(), options.rows.end(), id) != options.rows.end();
}

void check_ids(const CsvTable& table, const RunsOptions& options) {
  std::vector<std::string> ids;
  ids.reserve(table.rows.size());
  for (const std::vector<CsvCell>& row : table.rows) ids.push_back(cell_or_blank(table, row, "id"));
  for (const std::string& asked : options.rows) {
    if (std::find(ids.begin(), ids.end(), asked) != ids.end()) continue;
    throw ConfigError(format("--rows: found \"{}\", expected the id of a row of {}{}", asked,
                             table.file, did_you_mean(asked, ids)));
  }
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::optional<double> error(double predicted, double measured) {
  return (predicted - measured) / measured;
}

ValidationRow error_row(const std::optional<double>& relative_error) {
  ValidationRow row;
  row.relative_error = relative_error;
  return row;
}

}  // namespace

std::optional<double> RunCheck::step_error() const {
  return has_step() ? error(predicted->step.count(), measured.step->count()) : std::nullopt;
}

std::optional<double> RunCheck::peak_error() const {
  return has_peak() ? error(predicted->peak->gb(), measured.peak->bytes.gb()) : std::nullopt;
}

bool is_runs_table(const CsvTable& table) {
  constexpr auto kOwnColumns = std::to_array<std::string_view>(
      {"strategy", "world_size", "micro_batch", "step_time_s", "tokens_per_s_per_gpu"});
  return std::any_of(table.header.begin(), table.header.end(), [&](const CsvCell& cell) {
    return std::find(kOwnColumns.begin(), kOwnColumns.end(), cell.text) != kOwnColumns.end();
  });
}

RunsValidation validate_runs(const std::string& path, const RunsOptions& options) {
  return validate_runs(read_csv(path), options);
}

RunsValidation validate_runs(const CsvTable& table, const RunsOptions& options) {
  RowValidator validator(table, options.calibration);
  check_ids(table, options);
  RunsValidation validation;
  validation.input = table.file;
  std::vector<OrderRow> order;
  for (const std::vector<CsvCell>& row : table.rows) {
    if (!is_asked_for(options, cell_or_blank(table, row, "id"))) continue;
    validation.runs.push_back(validator.check(row));
    if (auto entry = validator.order_row(row, validation.runs.back())) {
      order.push_back(*std::move(entry));
    }
  }
  validation.orders = order_pairs(order);
  return validation;
}

RunSummary summary_of(const std::vector<const RunCheck*>& runs) {
  RunSummary summary;
  summary.rows = static_cast<int>(runs.size());
  std::vector<ValidationRow> steps, peaks;
  std::vector<double> signed_errors;
  for (const RunCheck* run : runs) {
    if (!run->why.empty()) ++summary.skipped;
    steps.push_back(error_row(run->step_error()));
    peaks.push_back(error_row(run->peak_error()));
    const std::optional<double> step = run->step_error();
    if (!step) continue;
    signed_errors.push_back(*step);
    if (summary.worst == nullptr || std::abs(*step) > std::abs(*summary.worst->step_error())) {
      summary.worst = run;
    }
  }
  summary.step = summary_of(steps);
  summary.peak = summary_of(peaks);
  if (!signed_errors.empty()) summary.bias = median_of(std::move(signed_errors));
  return summary;
}

RunHeadline headline_of(const RunsValidation& validation, RunFilter filter) {
  std::map<std::string, std::vector<const RunCheck*>> sources;
  std::vector<const RunCheck*> all, deepspeed, deepspeed_with_b;
  for (const RunCheck& run : validation.runs) {
    if (filter != nullptr && !filter(run)) continue;
    if (run.sharded_by_deepspeed && run.trust != "C") deepspeed_with_b.push_back(&run);
    if (run.trust != "A") continue;
    if (run.sharded_by_deepspeed) deepspeed.push_back(&run);
    all.push_back(&run);
    sources[run.source].push_back(&run);
  }
  RunHeadline headline;
  const RunSummary summary = summary_of(all);
  headline.rows = summary.rows;
  headline.skipped = summary.skipped;
  headline.p90 = summary.step.p90;
  headline.deepspeed_median = summary_of(deepspeed).step.median;
  headline.deepspeed_median_with_b = summary_of(deepspeed_with_b).step.median;
  std::vector<double> medians;
  for (const auto& [source, runs] : sources) {
    if (const auto median = summary_of(runs).step.median) medians.push_back(*median);
  }
  if (!medians.empty()) headline.median_of_sources = median_of(std::move(medians));
  headline.orders = summary_of(validation.orders);
  return headline;
}

bool is_within(const RunHeadline& headline, double median, double p90) {
  return headline.median_of_sources && *headline.median_of_sources <= median && headline.p90 &&
         *headline.p90 <= p90;
}

}  // namespace zerosim
