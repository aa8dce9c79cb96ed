/// \file
/// Published memory figures against ours: `zerosim validate memory ROWS.csv`.
///
/// Two kinds of tables, told apart by their header. The one has (at least) the columns kind, model,
/// params_b (1e9 parameters), strategy, world_size, gpu_memory_gb, precision, offload, per_gpu_gb,
/// per_cpu_gb, what and notes; the order is free. A row gives one figure for each of its answers.
/// By `kind`:
///
/// - formula: per_gpu_gb, GB = 1e9 bytes, against paper_model_states, rounded as the ZeRO paper
///   prints (`paper_figure`);
/// - formula_max_model: params_b against capacity / bytes per parameter, times the "model parallel
///   K" of `model`, as Table 2 of the ZeRO paper prints: K times what is printed of one part, from
///   half a trillion on to a tenth of a trillion;
/// - estimate of "Adam states": per_gpu_gb, GB, against master weights and moments, sharded from
///   zero1 on, to the decimals of the row;
/// - estimator_cold, estimator_live: per_gpu_gb, per_cpu_gb, GiB, against deepspeed_estimates, with
///   the largest layer, zero_init and nodes that `notes` names, to 2 decimals, as DeepSpeed prints;
///   "live" ones with the parameters of the preset of that name. No row says which release printed
///   it: one that has the digits of the older stage-2 formula is compared with that, and the
///   assumptions say so;
/// - measured: per_gpu_gb, GB, against the simulated job (run_row.h). `what` says which figure of
///   it: "peak allocated", or "steady allocated after the step".
///
/// The other is one of training runs (run_row.h) with the column peak_memory_gb: each row that has
/// one is compared with the simulated job, from its initialisation to a steady step. The words of
/// peak_memory_kind say with which figure: "allocated", "reserved", or reserved and context
/// ("nvidia-smi", "process"); "probably GiB" that GiB were printed as GB.
///
/// Skipped with a reason: other estimates and estimators, the largest models that ran, figures of
/// no said kind, rows whose `trust` is below A (settings are missing), runs that read_run refuses
/// or that do not say whether activations are recomputed, and rows that lack what a formula needs.
#pragma once

#include <span>
#include <string>

#include "validate/csv.h"
#include "validate/validation.h"

namespace zerosim {

/// \throws ConfigError  if the file cannot be read.
/// \throws TraceError   with file, line and column, if it is not such a table: bad CSV, a missing
///                      column, a wrong number, an unknown kind.
[[nodiscard]] Validation validate_memory_rows(const std::string& path);

/// The same of several files, one after the other.
[[nodiscard]] Validation validate_memory_rows(std::span<const std::string> paths);

/// The same for a table that is already read.
[[nodiscard]] Validation validate_memory_rows(const CsvTable& table);

}  // namespace zerosim
