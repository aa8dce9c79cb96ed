/// \file
/// The frameworks that can be built: one function and one .cpp each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/program/builder.h"
#include "sim/program/flat_layout.h"
#include "sim/program/training_step.h"

namespace zerosim {

/// What a framework's hooks work on. Groups are rule 0.5's.
struct FrameworkContext {
  const Model& model;
  const Strategy& strategy;
  RankProgramBuilder& builder;
  Program& program;  ///< in the making: groups are added to it, and what is assumed
  int world_size = 1;
  int first_step = 2;
  GroupId world;          ///< default group: stage 3's gathers and reduce-scatters (or MiCS', C11)
  GroupId data_parallel;  ///< its clone: reductions of stages 0 to 2, overflow flags
  bool idle_experts = false;             ///< some micro batch leaves an expert without tokens
  std::optional<Bytes> device_memory{};  ///< BuildOptions::device_memory
  Dtype load_dtype = Dtype::Bf16;        ///< of the checkpoint
  Rank rank{0};                          ///< whose pieces are built (local_pieces.h)
  /// Kernels do at least what any other rank's do (BuildOptions::pieces).
  bool stands_for_all = false;
};

/// Adds a communicator to the Program.
[[nodiscard]] GroupId add_group(const FrameworkContext& context, const ProcessGroup& group);

/// One GPU, or PyTorch DistributedDataParallel (spec D1): ddp.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_ddp(const FrameworkContext& context);
/// Megatron-LM's own DDP, one reduction after the last backward: megatron_ddp.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_megatron_ddp(const FrameworkContext& context);
/// A message of DeepSpeed's reduction after the backward.
struct FallbackBucket {
  std::int64_t elements = 0;
  int tensors = 0;
};
/// How that reduction (`buffered_allreduce_fallback`: stage 0, BF16 optimizer) groups tensors of
/// these sizes: in order, a bucket closes once its elements EXCEED 500,000,000 (B1.3); no setting
/// reaches that.
[[nodiscard]] std::vector<FallbackBucket> fallback_buckets(std::span<const std::int64_t> elements);
/// DeepSpeed without ZeRO (B1): zero0.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_zero0(const FrameworkContext& context);
/// Stages 1 and 2 (B2, B3, B5): zero12.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_zero12(const FrameworkContext& context,
                                                          const FlatLayout& layout);
/// Whether stage 1 gets DeepSpeed's BF16 optimizer (A4.2): bf16 with fp32 gradient accumulation,
/// not offloaded to the CPU (to NVMe it may be, and then stays on the GPU).
[[nodiscard]] bool uses_bf16_optimizer(const Strategy& strategy);
/// That optimizer (B4): zero1_bf16.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_bf16_optimizer(const FrameworkContext& context,
                                                                  const FlatLayout& layout);
/// Stage 3 (C): zero3.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_zero3(const FrameworkContext& context);
/// PyTorch's FullyShardedDataParallel (spec D2): fsdp1.cpp.
/// \throws ConfigError  for what the release lacks or refuses: hybrid sharding and use_orig_params
///                      in 1.13, units that train in part without use_orig_params.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_fsdp1(const FrameworkContext& context);
/// PyTorch's fully_shard (D3): fsdp2.cpp.
[[nodiscard]] std::unique_ptr<FrameworkHooks> make_fsdp2(const FrameworkContext& context);

}  // namespace zerosim
