/// \file
/// The file that `accelerate config` writes (default_config.yaml), as YAML or JSON.
///
/// Behaviour after accelerate 1.x: commands/config/config_args.py (keys), commands/launch.py and
/// utils/launch.py (defaults), utils/dataclasses.py (plugins). What it starts is this:
/// distributed_type NO, one process; MULTI_GPU, DDP; FSDP, FSDP; DEEPSPEED, DeepSpeed with the
/// named file, or with what the plugin makes of its keys.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Reads the file for `world_size` ranks. See also Strategy::not_simulated.
/// \throws ConfigError  with file, line and column: a top-level key that accelerate refuses,
///                      num_processes other than `world_size`, a flag that says something else, ...
[[nodiscard]] Strategy read_accelerate_config(const JsonDocument& document,
                                              const TrainingFlags& flags, const Model& model,
                                              int world_size);

/// Keys at the top of such a file.
[[nodiscard]] const std::vector<std::string>& accelerate_keys();

}  // namespace zerosim
