/// \file
/// Model states by formula: as the ZeRO paper counts (F1), as DeepSpeed's estimators do (F4), and what each
/// stage shards. Exact integers; no simulation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Bytes per parameter of each state (exercise 1 of the user's note).
struct StateBytes {
  int parameters = 2;
  int gradients = 2;
  int master = 4;   ///< fp32 weights that the optimizer updates; 0 in fp32 training
  int moments = 8;  ///< Adam m and v in fp32
  [[nodiscard]] int total() const { return parameters + gradients + master + moments; }
};
[[nodiscard]] StateBytes state_bytes(Precision precision);

/// What a stage divides by the data-parallel size.
struct Sharding {
  std::string strategy;  ///< "ddp", "zero1", "zero2", "zero3"
  bool parameters = false;
  bool gradients = false;
  bool optimizer_states = false;
};
[[nodiscard]] const std::vector<Sharding>& shardings();

/// Model states per GPU, real-valued as the paper divides: no padding, no rounding up.
/// \throws ConfigError  if `parameters` is negative or `world_size` < 1.
[[nodiscard]] double paper_model_states(double parameters, const Sharding& sharding, int world_size,
                                        const StateBytes& bytes);

/// A figure as the ZeRO paper prints it: Figure 1 and Table 1 use decimal GB, three significant digits
/// above 1 GB in Figure 1, the table's own rounding below ("1.88", "0.47", "15.6", "4187").
[[nodiscard]] std::string paper_figure(double gigabytes);

/// DeepSpeed's estimators (F4), digits as DeepSpeed prints them.
struct EstimatorRow {
  int stage = 2;
  bool offload_optimizer = false;
  bool offload_param = false;
  bool zero_init = true;  ///< stage 3 only
  Bytes gpu;
  Bytes cpu;
};
struct EstimatorInput {
  std::int64_t parameters = 0;
  std::int64_t largest_layer = 0;
  int gpus_per_node = 1;
  int nodes = 1;
};
[[nodiscard]] std::vector<EstimatorRow> deepspeed_estimates(int stage, const EstimatorInput& input);

}  // namespace zerosim
