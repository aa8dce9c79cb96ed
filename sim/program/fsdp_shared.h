/// \file
/// What both versions of FSDP share: how a gradient is divided, and the optimizer on shards.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/program/adam.h"
#include "sim/program/frameworks.h"

namespace zerosim {

/// Groups of FSDP (D2.10, D3.7, D3.12).
struct FsdpGroups {
  GroupId shard;      ///< ranks that hold the shards of one replica: the world, or consecutive ones
  GroupId replicate;  ///< ranks that hold the same shard; of hybrid strategies only
  GroupId reshard;    ///< of an integer `reshard_after_forward` only
  int shard_ranks = 1;
  int replicas = 1;
  int reshard_ranks = 0;
};

/// Adds the groups that the strategy needs to the Program.
/// \throws ConfigError  if shards or what is kept after the forward do not divide the ranks, or a
///                      hybrid strategy does not know the GPUs of a node.
[[nodiscard]] FsdpGroups fsdp_groups(const FrameworkContext& context);

/// Gradients are divided in two steps, before and after their reduction, lest they overflow or
/// underflow: `before` doubles from 1 on while it divides `ranks` and is below ranks / before
/// (DefaultState._get_gradient_predivide_factor).
///
///     8 ranks: 4 and 2;  16: 4 and 4;  6: 4 and 1.5;  7: 2 and 3.5
struct GradientDivision {
  int before = 1;
  double after = 1;
};
[[nodiscard]] GradientDivision gradient_division(int ranks);

/// torch.optim on sharded parameters. Not modelled: fused or for-each variants on the CPU.
class FsdpOptimizer {
 public:
  /// \param group     over which norms are summed: the ranks that hold one replica
  /// \param tensors  elements of each tensor of this rank's shards, as the optimizer sees them
  FsdpOptimizer(const FrameworkContext& context, GroupId group, std::vector<std::int64_t> tensors);

  /// Allocates the moments, where an earlier step has made them.
  void initialize();
  /// Scaler, clipping and update; gradients lie where the shards do.
  void step(const MicroBatch& micro);

 private:
  void unscale();
  void clip();

  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  GroupId group_;  ///< over which norms are summed
  GroupId world_;
  std::int64_t elements_ = 0;
  int bytes_;  ///< of an element
  bool on_host_;
  bool stepped_;  ///< before the Program begins
  Adam adam_;
};

/// The checkpoint of a job's first step, one a node with cpu_ram_efficient_loading; not valid in
/// later ones. Not modelled: units on the GPU before they are sharded.
[[nodiscard]] BufferId load_checkpoint_for_fsdp(const FrameworkContext& context);

/// A kernel of autograd's thread that streams `bytes` through device memory.
OpId fsdp_kernel(RankProgramBuilder& builder, StreamId stream, std::string_view name, Bytes bytes,
                 std::string_view rule);

/// Stamps a unit's module on what is issued while it lives.
class ModuleScope {
 public:
  ModuleScope(RankProgramBuilder& builder, ModuleId module)
      : builder_(builder), before_(builder.module()) {
    builder_.set_module(module);
  }
  ~ModuleScope() { builder_.set_module(before_); }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  RankProgramBuilder& builder_;
  ModuleId before_;
};

}  // namespace zerosim
