// Tells apart the files that say how training is set up, by their content.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/strategy/accelerate_config.h"
#include "sim/strategy/fsdp_config.h"
#include "sim/strategy/job_config.h"
#include "sim/strategy/strategy.h"
#include "sim/strategy/trainer_config.h"

namespace zerosim {
namespace {

enum class FileKind {
  DeepSpeed,
  Accelerate,
  TrainingArguments,
  FsdpConfig,
  Torchtitan,
  LlmFoundry
};

/// Keys at the top of a ds_config.json that no other kind has.
constexpr const char* kDeepSpeedKeys[] = {
    "zero_optimization",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "optimizer",
    "scheduler",
    "zero_allow_untested_optimizer",
    "communication_data_type",
};

bool is_yaml_name(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

/// JSON and Hjson of a root object open with a brace, comments aside; a block of YAML does not.
bool opens_with_brace(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty()) {
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos) return false;
    text.remove_prefix(start);
    if (text.front() != '#' && !text.starts_with("//")) break;
    const std::size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end);
  }
  return text.starts_with('{') || text.starts_with("/*");
}

/// The file in the most lenient syntax that it may have; nothing if it has none.
std::optional<JsonDocument> leniently_read(const std::string& text, const std::string& path) {
  try {
    return opens_with_brace(text) ? JsonDocument::from_hjson(text, path)
                                  : JsonDocument::from_yaml(text, path);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

template <typename Keys>
int matches(const JsonValue& root, const Keys& keys) {
  int count = 0;
  for (const auto& key : keys) count += root.isMember(key) ? 1 : 0;
  return count;
}

int fsdp_matches(const JsonValue& root) {
  int count = 0;
  for (const std::string& key : internal::trainer_fsdp_keys()) {
    count += root.isMember(key) || root.isMember("fsdp_" + key) ? 1 : 0;
  }
  return count;
}

/// The kind that most of the keys belong to; DeepSpeed if none does.
FileKind kind_of(const JsonValue& root) {
  if (!root.isObject()) return FileKind::DeepSpeed;
  int deepspeed = matches(root, kDeepSpeedKeys);
  int trainer = matches(root, training_argument_keys());
  for (const char* key : {"fp16", "bf16"}) {  // sections of the one, switches of the other
    if (root[key].isObject()) {
      ++deepspeed;
      --trainer;
    }
  }
  struct Candidate {
    FileKind kind;
    int count;
  };
  const std::array<Candidate, 6> candidates = {{
      {FileKind::DeepSpeed, deepspeed},
      {FileKind::Accelerate, matches(root, accelerate_keys())},
      {FileKind::TrainingArguments, trainer},
      {FileKind::FsdpConfig, fsdp_matches(root)},
      {FileKind::Torchtitan, matches(root, torchtitan_sections())},
      {FileKind::LlmFoundry, matches(root, llm_foundry_keys())},
  }};
  Candidate best = candidates.front();
  for (const Candidate& candidate : candidates) {
    if (candidate.count > best.count) best = candidate;
  }
  return best.kind;
}

/// As accelerate and transformers do: json.load or yaml.safe_load, by the file's form.
JsonDocument strictly_read(const std::string& text, const std::string& path) {
  return opens_with_brace(text) && !is_yaml_name(path) ? JsonDocument::from_strict_json(text, path)
                                                       : JsonDocument::from_yaml(text, path);
}

}  // namespace

Strategy load_training_config(const std::string& path, const TrainingFlags& flags,
                              const Model& model, int world_size) {
  return parse_training_config(read_file(path), path, flags, model, world_size);
}

Strategy parse_training_config(const std::string& text, const std::string& name,
                               const TrainingFlags& flags, const Model& model, int world_size) {
  const std::optional<JsonDocument> seen = leniently_read(text, name);
  if (!seen && is_yaml_name(name)) static_cast<void>(JsonDocument::from_yaml(text, name));
  switch (seen ? kind_of(seen->root()) : FileKind::DeepSpeed) {
    case FileKind::Accelerate:
      return read_accelerate_config(strictly_read(text, name), flags, model, world_size);
    case FileKind::TrainingArguments:
      return read_training_arguments(strictly_read(text, name), flags, model, world_size);
    case FileKind::FsdpConfig:
      return read_fsdp_config(strictly_read(text, name), flags, model, world_size);
    case FileKind::Torchtitan:
      return read_torchtitan_config(strictly_read(text, name), flags, model, world_size);
    case FileKind::LlmFoundry:
      return read_llm_foundry_config(strictly_read(text, name), flags, model, world_size);
    case FileKind::DeepSpeed:
      break;
  }
  return parse_deepspeed_config(text, name, flags, model, world_size);
}

}  // namespace zerosim
