/// \file
/// The frameworks that can be built: one function and one .cpp each.
#pragma once

#include <memory>

#include "sim/program/builder.h"
#include "sim/program/training_step.h"

namespace zerosim {

/// What a framework's hooks work on. Groups are rule 0.5's.
struct FrameworkContext {
  const Model& model;
  const Strategy& strategy;
  RankProgramBuilder& builder;
  int world_size = 1;
  int first_step = 2;
  GroupId world;          ///< default group: stage 3's gathers and reduce-scatters
  GroupId data_parallel;  ///< its clone: reductions of stages 0 to 2, overflow flags
};

/// One GPU, or PyTorch DistributedDataParallel (spec D1): ddp.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_ddp(const FrameworkContext& context);
/// DeepSpeed without ZeRO (B1): zero0.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_zero0(const FrameworkContext& context);
/// Stages 1 and 2 (B2, B3, B5): zero12.cpp.
/// \param rank  whose partition is looked at (`largest_partition_rank`).
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_zero12(const FrameworkContext& context,
                                                          Rank rank);
/// Whether stage 1 gets DeepSpeed's BF16 optimizer (A4.2): bf16 with fp32 gradient accumulation.
[[nodiscard]] bool uses_bf16_optimizer(const Strategy& strategy);
/// That optimizer (B4): zero1_bf16.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_bf16_optimizer(const FrameworkContext& context);
/// Stage 3 (C): zero3.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_zero3(const FrameworkContext& context);

/// Rank whose partition touches parameters with the most elements: the largest partition gradient
/// buffer (B3.8). The lowest such rank.
[[nodiscard]] Rank largest_partition_rank(const Model& model, const ZeroOptions& options,
                                          int world_size);

}  // namespace zerosim
