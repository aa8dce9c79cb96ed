#include "sim/program/fsdp_shared.h"

#include <numeric>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/model_loading.h"

namespace zerosim {

namespace {

/// Consecutive ranks share the shards of a replica, ranks with the same place in them a shard
/// (D2.10).
void add_hybrid_groups(const FrameworkContext& context, FsdpGroups& groups) {
  const Strategy& strategy = context.strategy;
  const int world = context.world_size;
  const auto size = static_cast<int>(strategy.fsdp.shard_group);
  if (size < 1) {
    throw ConfigError(
        format("{}: a hybrid strategy shards over the GPUs of a node, but their number is not "
               "given; expected a cluster",
               strategy.name));
  }
  if (world % size != 0) {
    throw ConfigError(format("{}: the {} ranks of a shard group do not divide the {} ranks",
                             strategy.name, size, world));
  }
  groups.shard_ranks = size;
  groups.replicas = world / size;
  groups.shard = add_group(context, {"shard", size});
  groups.replicate = add_group(context, {"replicate", groups.replicas, size});
}

}  // namespace

FsdpGroups fsdp_groups(const FrameworkContext& context) {
  const Strategy& strategy = context.strategy;
  FsdpGroups groups;
  groups.shard = context.world;
  groups.shard_ranks = context.world_size;
  if (is_hybrid(strategy.fsdp.sharding)) {
    add_hybrid_groups(context, groups);
  }
  const std::int64_t kept = strategy.fsdp.version == 2 ? strategy.fsdp.reshard_ranks : 0;
  if (kept > 0) {
    if (kept > groups.shard_ranks || groups.shard_ranks % kept != 0) {
      throw ConfigError(
          format("{}: reshard_after_forward {} does not divide the {} ranks that "
                 "shard",
                 strategy.name, kept, groups.shard_ranks));
    }
    groups.reshard_ranks = static_cast<int>(kept);
    if (kept > 1 && kept < groups.shard_ranks) {
      groups.reshard = add_group(context, {"reshard", groups.reshard_ranks});
    }
  }
  return groups;
}

GradientDivision gradient_division(int ranks) {
  int factor = 1;
  while (ranks % factor == 0 && ranks / factor > factor) {
    factor *= 2;
  }
  return {factor, static_cast<double>(ranks) / factor};
}

// On the host neither fused nor for-each variants run.
FsdpOptimizer::FsdpOptimizer(const FrameworkContext& context, GroupId group,
                             std::vector<std::int64_t> tensors)
    : strategy_(context.strategy),
      builder_(context.builder),
      group_(group),
      world_(context.world),
      elements_(std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0})),
      bytes_(dtype_bytes(strategy_.fsdp.parameter_dtype)),
      on_host_(strategy_.fsdp.cpu_offload),
      stepped_(context.first_step > strategy_.overflow_steps),
      adam_(builder_, on_host_ ? OptimizerKind::AdamTorch : strategy_.optimizer,
            {std::move(tensors), strategy_.fsdp.parameter_dtype, on_host_},
            on_host_ ? "D2.9" : "E4") {}

void FsdpOptimizer::initialize() {
  if (stepped_) {
    adam_.allocate_moments();
  }
}

void FsdpOptimizer::step(const MicroBatch& micro) {
  if (strategy_.check_grad_overflow && strategy_.precision == Precision::Fp16) {
    unscale();
  }
  if (strategy_.gradient_clipping > 0) {
    clip();
  }
  const bool overflows =
      strategy_.precision == Precision::Fp16 && micro.step < strategy_.overflow_steps;
  if (!overflows) {
    adam_.step();
  }
}

// ShardedGradScaler: whether any shard of any rank has an infinity; the host reads the answer.
void FsdpOptimizer::unscale() {
  const Bytes bytes = Bytes(elements_) * bytes_ * 2;
  if (on_host_) {
    builder_.host_pass({"unscale", bytes}, "A4.3");
  } else {
    builder_.kernel(kComputeStream, optimizer_kernel("unscale", bytes), HostWork::OptimizerLaunch,
                    "A4.3");
  }
  builder_.all_reduce(kComputeStream, world_, 1, Dtype::F32, "A4.3");
  builder_.host_wait_stream(kComputeStream, "A4.3");
}

// clip_grad_norm_: norms of shards are summed over those that hold a replica.
void FsdpOptimizer::clip() {
  const Bytes bytes = Bytes(elements_) * bytes_;
  if (on_host_) {
    builder_.host_pass({"gradient_norm", bytes}, "E4");
  } else {
    builder_.kernel(kComputeStream, optimizer_kernel("gradient_norm", bytes),
                    HostWork::OptimizerLaunch, "E4");
  }
  builder_.all_reduce(kComputeStream, group_, 1, Dtype::F32, "E4");
  if (on_host_) {
    builder_.host_wait_stream(kComputeStream, "E4");
    builder_.host_pass({"clip", bytes * 2}, "E4");
  } else {
    builder_.kernel(kComputeStream, optimizer_kernel("clip", bytes * 2), HostWork::OptimizerLaunch,
                    "E4");
  }
}

BufferId load_checkpoint_for_fsdp(const FrameworkContext& context) {
  if (context.first_step > 0) {
    return {};
  }
  return load_checkpoint(context, context.strategy.fsdp.cpu_ram_efficient_loading
                                      ? CheckpointCopies::OneANode
                                      : CheckpointCopies::EveryRank);
}

OpId fsdp_kernel(RankProgramBuilder& builder, StreamId stream, std::string_view name, Bytes bytes,
                 std::string_view rule) {
  return builder.kernel(stream, memory_kernel(name, bytes), HostWork::BackwardLaunch, rule);
}

}  // namespace zerosim
