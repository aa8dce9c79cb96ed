/// \file
/// FSDP settings as Hugging Face has them: `fsdp_config` of accelerate and of the Trainer.
///
/// Both end in accelerate's FullyShardedDataParallelPlugin (accelerate/utils/dataclasses.py); names
/// and defaults differ. Keys may have the prefix "fsdp_" in both.
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/training_values.h"

namespace zerosim::internal {

/// The words of the Trainer's `fsdp` argument: "full_shard auto_wrap offload".
struct FsdpArgument {
  FsdpSharding sharding = FsdpSharding::FullShard;
  bool auto_wrap = false;
  bool offload = false;
};

/// `fsdp_config` of an accelerate file; defaults are those of `accelerate launch`.
/// \throws ConfigError  for a word or a number that the plugin refuses, and for a layer class that
///                      the model does not have (code "fsdp_layer_class_not_found").
void read_accelerate_fsdp(TrainingReading& reading, ConfigSection& section);

/// `fsdp_config` of the Trainer. \throws ConfigError  as above.
void read_trainer_fsdp(TrainingReading& reading, ConfigSection& section,
                       const FsdpArgument& argument);

/// What is worth a remark once the number of GPUs and the accumulation are known.
/// \param nodes  number of machines; 0: not known
void lint_fsdp(TrainingReading& reading, ConfigSection& section, std::int64_t nodes);

/// "FULL_SHARD" and so on; the place in the list, from 1, is PyTorch's number.
[[nodiscard]] const std::vector<std::string>& fsdp_sharding_names();

/// Names of the Trainer's `fsdp_config`, without prefix.
[[nodiscard]] const std::vector<std::string>& trainer_fsdp_keys();

}  // namespace zerosim::internal
