/// \file
/// Builds the Program of a strategy: the one entry to the builders (ddp, zero0, zero12, zero3,
/// fsdp1, fsdp2).
#pragma once

#include <optional>

#include "sim/model/model.h"
#include "sim/model/operators.h"
#include "sim/model/routing.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

struct BuildOptions {
  int world_size = 1;
  int first_step =
      2;  ///< 0: the recording step of stage 3, unallocated Adam states, DDP's one bucket
  int steps = 1;
  int warm_up_steps = 0;  ///< of them, not timed: Program::warm_up_steps
  Routing routing{};      ///< of models with experts
  /// Of the GPU, for the framework's allocator; unset: no limit. DeepSpeed flattens on the GPU if
  /// there is room (B2.5).
  std::optional<Bytes> device_memory{};
  /// Type in which a checkpoint is loaded; unset: that of the model in training.
  std::optional<Dtype> load_dtype{};
};

/// \param batch  as one rank sees it; `batch.micro_batch` and `strategy.micro_batch` agree.
/// Experts get their tokens here: the same on every rank, and in every micro batch unless the
/// routing names micro steps; at stage 3 leaf modules are folded.
/// The rank with the largest local pieces stands for all (design.md section 3): it is
/// `ranks[0].representative`.
/// \throws ConfigError  for a strategy that is not simulated yet, or that its framework refuses:
///                      DDP with nothing to train; groups of hpZ, MiCS, qgZ or hybrid sharding that
///                      do not divide the ranks; MiCS' replicas with an offloaded optimizer; what
///                      cannot be quantised; changing experts where DeepSpeed 0.14 stops.
[[nodiscard]] Program build_program(const Model& model, const Strategy& strategy,
                                    const BatchShape& batch, const BuildOptions& options);

}  // namespace zerosim
