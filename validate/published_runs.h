/// \file
/// Published training runs against the simulator: `zerosim validate runs ROWS.csv`.
///
/// Each row of the table (columns of data/measured/training_runs.csv; needed: id, group, source,
/// trust, strategy, world_size, micro_batch) is read as an experiment (run_row.h) and simulated;
/// its step time, token rate and peak memory are compared with what was measured (run_figures.h).
/// A row is never dropped: one that cannot be simulated, or has nothing measured, carries a reason.
///
/// Rows that describe the same job are simulated once. Of a step of many micro batches two and
/// three are simulated; the further ones take what the third has added, as a job in which each
/// micro batch runs the same kernels does:
///
///     step(A) = step(3) + (A - 3) (step(3) - step(2))
///
/// Not modelled: data loading, logging and evaluation between steps; what a row's settings do not
/// tell (its assumptions list what was taken).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/json.h"
#include "topology/calibration.h"
#include "validate/csv.h"
#include "validate/run_figures.h"
#include "validate/run_orders.h"
#include "validate/validation.h"

namespace zerosim {

/// What the simulator says of a row.
struct RunPrediction {
  Seconds step{0};  ///< as the row's timer would read it
  double tokens_per_s_per_gpu = 0;
  std::optional<Bytes> peak;  ///< of the kind that was measured
  Verdict verdict = Verdict::Fits;
};

/// One row.
struct RunCheck {
  std::string id, group, source, trust, model, gpu, framework, strategy;
  int world_size = 0;
  bool for_fitting = false;           ///< its group (run_split.h)
  bool sharded_by_deepspeed = false;  ///< ZeRO-1 to 3 by DeepSpeed
  std::string why;                    ///< it is skipped; empty: it is not
  RunFigures measured;
  double measured_tokens_per_s_per_gpu = 0;
  std::optional<RunPrediction> predicted;
  std::vector<std::string> assumptions;

  [[nodiscard]] bool has_step() const { return predicted && measured.step; }
  [[nodiscard]] bool has_peak() const { return predicted && predicted->peak && measured.peak; }
  /// (predicted - measured) / measured
  [[nodiscard]] std::optional<double> step_error() const;
  [[nodiscard]] std::optional<double> peak_error() const;
};

struct RunsValidation {
  std::string input;
  std::vector<RunCheck> runs;  ///< in the order of the table
  std::vector<OrderPair> orders;
};

/// How good a part of the rows is.
struct RunSummary {
  int rows = 0;
  int skipped = 0;
  ValidationSummary step;      ///< of absolute errors
  std::optional<double> bias;  ///< median of signed errors
  ValidationSummary peak;
  const RunCheck* worst = nullptr;  ///< by step
};

/// The figures that part 9 asks for, of rows with trust A.
struct RunHeadline {
  int rows = 0, skipped = 0;
  std::optional<double> median_of_sources;  ///< of each source's median
  std::optional<double> p90;                ///< over rows
  /// Of DeepSpeed's ZeRO rows: with trust A, with A or B.
  std::optional<double> deepspeed_median, deepspeed_median_with_b;
  OrderSummary orders;  ///< of all rows, whatever their trust
};

struct RunsOptions {
  std::vector<std::string> rows;  ///< ids; empty: all
  Calibration calibration{};      ///< of every row; empty: none
};

/// Whether the table has a column that only tables of training runs have.
[[nodiscard]] bool is_runs_table(const CsvTable& table);

/// \throws ConfigError  if the file cannot be read, or has no row of a given id.
/// \throws TraceError   with file, line and column: bad CSV, a missing column, a wrong number.
[[nodiscard]] RunsValidation validate_runs(const std::string& path,
                                           const RunsOptions& options = {});
[[nodiscard]] RunsValidation validate_runs(const CsvTable& table, const RunsOptions& options = {});

/// Which rows a summary is of.
using RunFilter = bool (*)(const RunCheck& run);
[[nodiscard]] RunSummary summary_of(const std::vector<const RunCheck*>& runs);
[[nodiscard]] RunHeadline headline_of(const RunsValidation& validation, RunFilter filter = nullptr);

/// Whether the headline keeps to its bars: `median` of sources, `p90` of rows.
[[nodiscard]] bool is_within(const RunHeadline& headline, double median, double p90);

/// Tables by source, GPU, strategy and framework, worst first; pairs in the wrong order, or with
/// `verbose` all, with their ratios; reasons for skipping; the worst rows, or with `verbose` all,
/// each with its assumptions.
[[nodiscard]] std::string runs_text(const RunsValidation& validation, bool verbose);

/// {version, input, rows: [{id, group, source, trust, gpu, strategy, split, timer, what, unit,
/// predicted, measured, relative_error, tokens_per_s_per_gpu: {predicted, measured}, memory: {kind,
/// predicted, measured, relative_error}, skipped, why, assumptions}], summary: {count, skipped,
/// median, p90, worst, .., pairs, pairs_right, pairs_ratio_median, pairs_ratio_within_25_percent},
/// sources, gpus, strategies, splits, orders: [{knob, faster, slower, measured, predicted,
/// ratio_error, right}]}; what is absent is null.
[[nodiscard]] JsonValue runs_json(const RunsValidation& validation);

}  // namespace zerosim
