#include <utility>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"
#include "sim/strategy/deepspeed_release.h"
#include "sim/strategy/strategy.h"
#include "sim/strategy/training_values.h"

namespace zerosim {
namespace {

using internal::DeepSpeedReading;

/// "ds_zero2" of "configs/ds_zero2.json".
std::string strategy_name(const std::string& file) {
  std::string name = file.substr(file.find_last_of('/') + 1);  // npos + 1 == 0
  for (const char* suffix : {".json", ".hjson"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - std::string(suffix).size());
  }
  return name;
}

void note_duplicates(DeepSpeedReading& reading) {
  for (const JsonFinding& finding : reading.document.duplicates()) {
    reading.notes.warnings.push_back(
        {finding.code,
         format("{}: {}: given before in the same object; strict JSON keeps this one, DeepSpeed "
                "refuses the file",
                to_string(finding.where), finding.what),
         finding.where});
  }
}

/// What only the command line can say.
void read_flags(DeepSpeedReading& reading) {
  const TrainingFlags& flags = reading.flags;
  Strategy& strategy = reading.strategy;
  internal::apply_overflow_steps(strategy, flags, reading.notes.assumptions);
  strategy.checkpointing = flags.checkpointing.value_or(ActivationCheckpointing::None);
  if (!flags.checkpointing) {
    reading.assume("Activation checkpointing: none, since no flag asks for it.");
  }
  const bool trainer = flags.config_as == ConfigMode::HuggingFace;
  strategy.optimizer_groups = flags.optimizer_groups.value_or(trainer ? OptimizerGroups::ByDimension
                                                                      : OptimizerGroups::One);
  if ((strategy.zero.stage == 1 || strategy.zero.stage == 2) && !flags.optimizer_groups) {
    reading.assume(trainer ? "Optimizer groups: matrices and vectors, as the Trainer makes them."
                           : "Optimizer groups: one, since no flag says otherwise.");
  }
  strategy.zero_init = flags.zero_init.value_or(ZeroInit::Zero) != ZeroInit::None;
  if (strategy.zero.stage == 3 && !flags.zero_init) {
    reading.assume("Stage 3: the model is built inside zero.Init.");
  }
}

Strategy read_sections(DeepSpeedReading& reading) {
  Strategy& strategy = reading.strategy;
  strategy.name = strategy_name(reading.document.file());
  strategy.framework = Framework::DeepSpeed;
  strategy.version = deepspeed_release(reading.flags.deepspeed_version).name;
  strategy.torch_version = parse_torch_version(reading.flags.torch_version, "--torch-version");
  note_duplicates(reading);
  internal::read_zero(reading);
  internal::read_batch(reading);
  internal::read_precision(reading);
  internal::read_dtypes(reading);
  internal::read_gradients(reading);
  internal::read_optimizer(reading);
  internal::read_timers(reading);
  internal::read_other_sections(reading);
  read_flags(reading);
  strategy.gpus_per_node = reading.flags.gpus_per_node.value_or(0);
  strategy.settings = std::move(reading.notes.settings);
  strategy.assumptions = std::move(reading.notes.assumptions);
  strategy.warnings = std::move(reading.notes.warnings);
  strategy.not_simulated = internal::first_not_simulated(strategy, reading.document.file());
  return std::move(strategy);
}

}  // namespace

Strategy load_deepspeed_config(const std::string& path, const TrainingFlags& flags,
                               const Model& model, int world_size) {
  return parse_deepspeed_config(read_file(path), path, flags, model, world_size);
}

Strategy parse_deepspeed_config(const std::string& text, const std::string& name,
                                const TrainingFlags& flags, const Model& model, int world_size) {
  if (world_size < 1) {
    throw ConfigError(format("world size: found {}, expected at least 1 rank", world_size));
  }
  const JsonDocument document = flags.config_as == ConfigMode::HuggingFace
                                    ? JsonDocument::from_strict_json(text, name)
                                    : JsonDocument::from_hjson(text, name);
  DeepSpeedReading reading(document, flags, model, world_size);
  return read_sections(reading);
}

}  // namespace zerosim
