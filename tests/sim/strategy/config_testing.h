/// \file
/// Short files as text, and what reading them gives.
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/strategy.h"

namespace zerosim {

inline Model model_with_hidden(std::int64_t hidden) {
  Model model;
  model.shape.hidden = hidden;
  return model;
}

inline Strategy parse(const std::string& text, const TrainingFlags& flags = {}, int world_size = 8,
                      std::int64_t hidden = 4096) {
  return parse_deepspeed_config(text, "f.json", flags, model_with_hidden(hidden), world_size);
}

/// "[code] message" of the error that `text` ends in.
inline std::string error_of(const std::string& text, const TrainingFlags& flags = {},
                            int world_size = 8, std::int64_t hidden = 4096) {
  try {
    static_cast<void>(parse(text, flags, world_size, hidden));
  } catch (const ConfigError& error) {
    return (error.code().empty() ? "" : "[" + error.code() + "] ") + error.what();
  }
  return "no error";
}

/// A file whose second line is `line`, with a micro batch and bf16.
inline std::string with(const std::string& line) {
  return "{\"train_micro_batch_size_per_gpu\": 4, \"bf16\": {\"enabled\": true},\n" + line + "\n}";
}

/// The same with `inside` as the third line, in a zero_optimization section of `stage`.
inline std::string zero(int stage, const std::string& inside) {
  return with("\"zero_optimization\": {\"stage\": " + std::to_string(stage) + ",\n" + inside + "}");
}

inline TrainingFlags as(ConfigMode mode) {
  TrainingFlags flags;
  flags.config_as = mode;
  return flags;
}

inline TrainingFlags of_version(const std::string& version) {
  TrainingFlags flags;
  flags.deepspeed_version = version;
  return flags;
}

inline std::vector<std::string> codes(const Strategy& strategy) {
  std::vector<std::string> result;
  for (const Warning& warning : strategy.warnings) result.push_back(warning.code);
  return result;
}

/// "value" of a listed key, "value (origin)" for one that the file does not state; "-" otherwise.
inline std::string value_of(const Strategy& strategy, const std::string& key) {
  const Setting* setting = find_setting(strategy, key);
  if (setting == nullptr) return "-";
  if (setting->origin == Origin::File) return setting->value;
  return setting->value + " (" + std::string(to_string(setting->origin)) + ")";
}

}  // namespace zerosim
