/// \file
/// Renders what `zerosim memory` answers without running time: model states by formula, the figures
/// of the ZeRO paper, DeepSpeed's estimators, and peaks replayed from a Program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/analysis/limits.h"
#include "sim/analysis/report.h"
#include "sim/base/json.h"
#include "sim/memory/model_states.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Bytes of each state, what each stage shards, and the share of one GPU for 1 to 1024 ranks.
[[nodiscard]] std::string model_states_text(std::int64_t parameters, Precision precision);
[[nodiscard]] JsonValue model_states_json(std::int64_t parameters, Precision precision);

/// Figure 1 (for `parameters` at `world_size`) and Table 1 of the ZeRO paper (arXiv 1910.02054),
/// digits as printed there. A model that Table 1 does not have gets a table of its own.
[[nodiscard]] std::string paper_text(std::int64_t parameters, int world_size);
[[nodiscard]] JsonValue paper_json(std::int64_t parameters, int world_size);

/// The tables that DeepSpeed's estimate_zero2_ and estimate_zero3_model_states_mem_needs_all_cold
/// print (F4), then the model states as the ZeRO paper counts them.
[[nodiscard]] std::string estimator_text(const EstimatorInput& input);
/// All rows of both tables as `rows`, and `chosen`, one of them, as `estimator: {gpu, host}`.
[[nodiscard]] JsonValue estimator_json(const EstimatorInput& input, const EstimatorRow& chosen);

/// How few GPUs are enough for a strategy, and which micro batch still fits.
struct MemoryLimits {
  Limit gpus;
  Limit micro_batch;
};

/// Verdict and memory of each strategy; no times but that of cache flushes.
/// \param limits  of each strategy, in the same order; empty: not asked.
[[nodiscard]] std::string memory_comparison_text(const Comparison& comparison,
                                                 const std::vector<MemoryLimits>& limits = {});
/// With limits also `minimum_gpus` and `largest_micro_batch`, null where no size is enough, and
/// under `tried` what was replayed for them.
[[nodiscard]] JsonValue memory_comparison_json(const Comparison& comparison,
                                               const std::vector<MemoryLimits>& limits = {});

}  // namespace zerosim
