/// \file
/// Files of the Hugging Face Trainer: TrainingArguments (YAML or JSON, as TRL and LLaMA-Factory
/// take with `--config`), and the JSON that `--fsdp_config` names.
///
/// Behaviour after transformers 4.5x: training_args.py (defaults, FSDP), trainer.py (DDP).
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Reads TrainingArguments for `world_size` ranks. `deepspeed` makes it DeepSpeed, `fsdp` FSDP,
/// neither of them DDP, or a single GPU. Keys that are the training script's are ignored.
/// \throws ConfigError  with file, line and column: fp16 and bf16, FSDP and DeepSpeed, a flag or a
///                      DeepSpeed file that says something else, ...
[[nodiscard]] Strategy read_training_arguments(const JsonDocument& document,
                                               const TrainingFlags& flags, const Model& model,
                                               int world_size);

/// Reads an `fsdp_config` file alone; the `fsdp` argument is taken to be "full_shard auto_wrap".
[[nodiscard]] Strategy read_fsdp_config(const JsonDocument& document, const TrainingFlags& flags,
                                        const Model& model, int world_size);

/// Keys of TrainingArguments that tell such a file from others.
[[nodiscard]] const std::vector<std::string>& training_argument_keys();

}  // namespace zerosim
