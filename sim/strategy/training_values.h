/// \file
/// What the readers of accelerate's and the Trainer's files share: values that come from the file,
/// else from a flag, else from the tool's default, and what follows from them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/strategy/config_section.h"
#include "sim/strategy/strategy.h"

namespace zerosim::internal {

/// The file, what to read it for, and what has been read.
struct TrainingReading {
  TrainingReading(const JsonDocument& read, const TrainingFlags& given, const Model& trained,
                  int ranks);
  TrainingReading(const TrainingReading&) = delete;  // `root` points to `notes`
  TrainingReading& operator=(const TrainingReading&) = delete;

  const JsonDocument& document;
  const TrainingFlags& flags;
  const Model& model;
  int world_size;
  std::int64_t data_parallel_size;  ///< ranks that read different sequences
  ConfigNotes notes;
  ConfigSection root;
  Strategy strategy;
};

/// \throws ConfigError  code "flag_contradicts_file" if both are given and differ.
void check_flag(ConfigSection& section, const std::string& key, const std::string& in_file,
                const std::string& flag, const std::string& flag_says);

/// A count of at least 1, listed.
[[nodiscard]] std::int64_t count_or_flag(TrainingReading& reading, const std::string& key,
                                         std::optional<std::int64_t> flag,
                                         const std::string& flag_name, std::int64_t fallback,
                                         const std::string& reason);

/// Sets the precision; `in_file` is what the value of `key` means, `name` how it is listed.
void set_precision(TrainingReading& reading, const std::string& key, const std::string& name,
                   std::optional<Precision> in_file, const std::string& reason);

/// Whether blocks are recomputed; `in_file` is what the value of `key` in `section` means.
void set_checkpointing(TrainingReading& reading, ConfigSection& section, const std::string& key,
                       std::optional<bool> in_file, const std::string& reason);

/// Lists `key`, which has no place in the file.
void list_absent(TrainingReading& reading, const std::string& key, const std::string& value,
                 Origin origin, const std::string& reason);

/// The first setting that is read but not simulated.
void set_not_simulated(TrainingReading& reading, ConfigSection& section, const std::string& key,
                       const std::string& what);

/// What DDP, FSDP and a single GPU have in common: batch product, types, no ZeRO. Framework, micro
/// batch, accumulation and precision have been set.
void complete_torch_strategy(TrainingReading& reading);

/// `--overflow-steps`, once the precision is known.
/// \throws ConfigError  if it is given and nothing is scaled: only fp16 overflows.
void apply_overflow_steps(Strategy& strategy, const TrainingFlags& flags,
                          std::vector<std::string>& assumptions);

/// The strategy, with the notes moved into it.
[[nodiscard]] Strategy finished(TrainingReading& reading);

/// What DeepSpeed's file gives, after what this one says: names, settings and remarks of both.
[[nodiscard]] Strategy finished_with(TrainingReading& reading, Strategy deepspeed);

/// The text of an error without the place at its front.
[[nodiscard]] std::string message_of(const ConfigError& error);

/// "a,b" gives "a" and "b", as Python's split does.
[[nodiscard]] std::vector<std::string> split(const std::string& text, char separator);

/// The folder of `file` before a relative `path`.
[[nodiscard]] std::string beside(const std::string& file, const std::string& path);

/// Text of the file that `key` of `section` names, relative to the file that names it, else to the
/// working directory, as Python opens it. Sets `path` to where it was found.
/// \throws ConfigError  if there is no such regular file.
[[nodiscard]] std::string read_named_file(ConfigSection& section, const std::string& key,
                                          std::string& path);

/// What a DeepSpeed reader calls a flag, and what it really was.
struct FlagName {
  std::string flag;
  std::string name;
};
using FlagNames = std::vector<FlagName>;

/// The strategy that `read` returns, or the error that it throws, with other names for flags.
[[nodiscard]] Strategy read_with_names(const FlagNames& names,
                                       const std::function<Strategy()>& read);

/// Whether fp16 or bf16 is enabled "auto" and the other one is not on.
[[nodiscard]] bool leaves_precision(const JsonValue& deepspeed);

}  // namespace zerosim::internal
