/// \file
/// Published memory figures against the formulas of sim/memory: `zerosim validate memory ROWS.csv`.
///
/// The table has (at least) the columns source, kind, model, params_b (1e9 parameters), strategy,
/// world_size, gpu_memory_gb, precision, offload, per_gpu_gb, per_cpu_gb, what and notes; the order
/// is free. A row gives one figure for each of its answers. By `kind`:
///
/// | kind | compared | predicted by | predicted is rounded |
/// |---|---|---|---|
/// | formula | per_gpu_gb, GB = 1e9 bytes | paper_model_states | as the ZeRO paper prints
/// (`paper_figure`) | | formula_max_model | params_b | capacity / bytes per parameter, times the
/// "model parallel K" of `model` | to the decimals of the row | | estimate of "Adam states" |
/// per_gpu_gb, GB | master weights and moments, sharded from zero1 on | to the decimals of the row
/// | | estimator_cold, estimator_live | per_gpu_gb, per_cpu_gb, GiB | deepspeed_estimates, with the
/// largest layer, zero_init and nodes that `notes` names | to 2 decimals, as DeepSpeed prints |
///
/// Skipped with a reason: other estimates and estimators, measured rows (they need the simulation
/// of a training job that the row does not describe in full), and rows that lack what a formula
/// needs.
#pragma once

#include <string>

#include "validate/csv.h"
#include "validate/validation.h"

namespace zerosim {

/// \throws ConfigError  if the file cannot be read.
/// \throws TraceError   with file, line and column, if it is not such a table: bad CSV, a missing
///                      column, a wrong number, an unknown kind.
[[nodiscard]] Validation validate_memory_rows(const std::string& path);

/// The same for a table that is already read.
[[nodiscard]] Validation validate_memory_rows(const CsvTable& table);

}  // namespace zerosim
