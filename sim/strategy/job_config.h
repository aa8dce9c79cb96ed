/// \file
/// Reads how torchtitan and LLM Foundry shard: the parts of their job files that say so.
///
/// torchtitan's file is TOML; the same sections and keys are read from YAML or JSON (`yq -p toml -o
/// yaml`). Keys of other sections, and those that change no collective, are ignored.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// torchtitan: `[parallelism]`, `[training]`, `[activation_checkpoint]`, `[optimizer]`: fully_shard
/// of each block, on a mesh of one or two dimensions.
/// \throws ConfigError  with file, line and column: an unknown key in these sections, degrees whose
///                      product is not the number of ranks, ...
[[nodiscard]] Strategy read_torchtitan_config(const JsonDocument& document,
                                              const TrainingFlags& flags, const Model& model,
                                              int world_size);

/// LLM Foundry: `fsdp_config` as Composer reads it, and batch sizes, precision and clipping beside
/// it. With `reshard_after_forward` it is FSDP2.
/// \throws ConfigError  as above.
[[nodiscard]] Strategy read_llm_foundry_config(const JsonDocument& document,
                                               const TrainingFlags& flags, const Model& model,
                                               int world_size);

/// Names of sections that tell such a file from others.
[[nodiscard]] const std::vector<std::string>& torchtitan_sections();
[[nodiscard]] const std::vector<std::string>& llm_foundry_keys();

}  // namespace zerosim
