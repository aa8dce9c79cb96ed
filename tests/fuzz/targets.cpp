#include "tests/fuzz/targets.h"

#include <array>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/model/model.h"
#include "sim/strategy/accelerate_config.h"
#include "sim/strategy/strategy.h"
#include "sim/strategy/trainer_config.h"

namespace zerosim::fuzz {
namespace {

constexpr int kWorldSize = 8;

constexpr std::array<Target, 4> kTargets = {{
    {"hjson", hjson},
    {"ds_config", ds_config},
    {"model", model},
    {"training_config", training_config},
}};

const Model& gpt2() {
  static const Model kModel = load_model("gpt2");
  return kModel;
}

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

void hjson(const std::string& bytes) {
  std::string meaning;
  std::string json;
  try {
    json = hjson_to_json(bytes);
    meaning = to_text(JsonDocument::from_hjson(bytes, "fuzz.hjson").root(), false);
  } catch (const Error&) {
    return;
  }
  const JsonDocument again = JsonDocument::from_strict_json(json, "fuzz.json");
  ZS_CHECK(to_text(again.root(), false) == meaning, "Hjson rewritten as JSON means something else");
}

void ds_config(const std::string& bytes) {
  constexpr std::array kModes = {ConfigMode::Auto, ConfigMode::DeepSpeed, ConfigMode::HuggingFace};
  TrainingFlags flags;
  flags.config_as = kModes[bytes.size() % kModes.size()];
  try {
    (void)parse_deepspeed_config(bytes, "fuzz.json", flags, gpt2(), kWorldSize);
  } catch (const Error&) {
    return;
  }
}

void model(const std::string& bytes) {
  try {
    (void)parse_model(bytes, "fuzz.json");
  } catch (const Error&) {
    return;
  }
}

void training_config(const std::string& bytes) {
  constexpr std::array kReaders = {read_accelerate_config, read_training_arguments,
                                   read_fsdp_config};
  TrainingFlags flags;
  flags.micro_batch = 1;
  try {
    (void)parse_training_config(bytes, "fuzz", flags, gpt2(), kWorldSize);
  } catch (const Error&) {
    // Another reader may take it.
  }
  try {
    const JsonDocument document = JsonDocument::from_yaml(bytes, "fuzz.yaml");
    (void)kReaders[bytes.size() % kReaders.size()](document, flags, gpt2(), kWorldSize);
  } catch (const Error&) {
    return;
  }
}

}  // namespace zerosim::fuzz
