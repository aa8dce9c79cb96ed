/// \file
/// Model states by formula: as the ZeRO paper counts (F1), as DeepSpeed's estimators do (F4), and
/// what each stage shards. No simulation.
///
/// P parameters, N ranks, mixed precision with Adam (`state_bytes`):
///
///     ddp    16 P
///     zero1   4 P + 12 P / N      optimizer states sharded
///     zero2   2 P + 14 P / N      and gradients
///     zero3        16 P / N       and parameters
///
/// Not modelled: padding of partitions, transient copies, gathered parameters, buffers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Bytes per parameter of each state.
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
/// The four, in the order of the stages.
[[nodiscard]] const std::vector<Sharding>& shardings();

/// Model states per GPU in bytes, real-valued as the paper divides: no padding, no rounding up.
/// \throws ConfigError  if `parameters` is negative or not finite, or `world_size` < 1.
[[nodiscard]] double paper_model_states(double parameters, const Sharding& sharding, int world_size,
                                        const StateBytes& bytes);

/// Model states of one GPU under each of `shardings()`, in their order, to whole bytes.
struct ShardingRow {
  int world_size = 1;
  std::vector<Bytes> per_gpu;
};
/// World sizes 1, 2, 4, ..., 1024.
[[nodiscard]] const std::vector<int>& usual_world_sizes();
/// One row a world size.
/// \throws ConfigError  as `paper_model_states`, and if the states leave 64 bits.
[[nodiscard]] std::vector<ShardingRow> sharding_table(double parameters,
                                                      std::span<const int> world_sizes,
                                                      const StateBytes& bytes);

/// A figure in decimal GB as the ZeRO paper prints it, trailing zeros dropped: from 100 GB on whole
/// and cut (4187.5 -> "4187", 257.75 -> "257"), below with three significant digits, below 1 GB
/// with two, rounded half up (41.25 -> "41.3", 1.875 -> "1.88", 0.46875 -> "0.47"). This one rule
/// gives every figure of Figure 1 and Table 1.
[[nodiscard]] std::string paper_figure(double gigabytes);

/// DeepSpeed's estimators (F4), as it computes them: cut to whole bytes.
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
  std::int64_t largest_layer = 0;  ///< parameters of the largest single module; stage 3 only
  int gpus_per_node = 1;
  int nodes = 1;
};
/// What DeepSpeed's estimator printed for stage 2 without offload, per GPU, when its documentation
/// (docs/code-docs/source/memory.rst) was written: 4 P + 16 P / N.
[[nodiscard]] Bytes older_stage_2_estimate(const EstimatorInput& input);
/// Stage 2: with offload, without. Stage 3: (parameters and optimizer, optimizer, neither
/// offloaded) x (zero.Init, without). The order in which DeepSpeed prints them. \throws ConfigError
/// for another stage, negative counts, or more bytes than 64 bits hold.
[[nodiscard]] std::vector<EstimatorRow> deepspeed_estimates(int stage, const EstimatorInput& input);

}  // namespace zerosim
