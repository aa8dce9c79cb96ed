/// \file
/// What is fuzzed: one function a parser, the same for libFuzzer and for the replay of corpora.
///
/// Each takes any bytes and returns; only zerosim::Error may come out of the parser. Corpora are in
/// tests/data/fuzz/<name of the function>.
#pragma once

#include <span>
#include <string>

namespace zerosim::fuzz {

struct Target {
  const char* name;
  void (*run)(const std::string& bytes);
};

/// hjson, ds_config, model, training_config.
[[nodiscard]] std::span<const Target> targets();

/// The Hjson front alone. Its JSON is strict, and means the same.
void hjson(const std::string& bytes);
/// A DeepSpeed file, in the mode that its length picks.
void ds_config(const std::string& bytes);
/// A config.json or a module listing.
void model(const std::string& bytes);
/// YAML or JSON: told apart by its content, and as accelerate's file, TrainingArguments or
/// fsdp_config, which its length picks.
void training_config(const std::string& bytes);

}  // namespace zerosim::fuzz
