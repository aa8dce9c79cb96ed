#include "sim/program/zero3_partition.h"

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

Zero3Partition::Zero3Partition(const FrameworkContext& context)
    : ranks_(context.world_size), group_(context.world) {
  const std::int64_t shard = context.strategy.zero.mics_shard_size;
  if (shard <= 0) {
    return;
  }
  if (context.world_size % shard != 0) {
    throw ConfigError(format("{}: mics_shard_size {} does not divide the {} ranks",
                             context.strategy.name, shard, context.world_size));
  }
  ranks_ = shard;
  replicas_ = context.world_size / shard;
  if (replicas_ > 1 && context.strategy.zero.offload_optimizer.device != OffloadDevice::None) {
    throw ConfigError(
        format("{}: mics_shard_size {} of {} ranks with offload_optimizer: MiCS does not reduce "
               "offloaded gradients over its replicas (C11)",
               context.strategy.name, shard, context.world_size));
  }
  if (replicas_ > 1) {
    group_ = add_group(context, {"MiCS shard", static_cast<int>(shard)});
    replica_group_ =
        add_group(context, {"MiCS replicas", static_cast<int>(replicas_), static_cast<int>(shard)});
  }
}

}  // namespace zerosim
