/// \file
/// The readers of the sections of a ds_config.json, in the order of spec A. Each takes what it
/// needs from the file, checks it, fills in the Strategy and lists the resolved keys.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/strategy/config_section.h"
#include "sim/strategy/strategy.h"

namespace zerosim::internal {

// Flags as messages name them.
inline constexpr const char* kMicroBatchFlag = "--micro-batch";
inline constexpr const char* kGradAccumFlag = "--grad-accum";
inline constexpr const char* kPrecisionFlag = "--precision";
inline constexpr const char* kOptimizerFlag = "--optimizer";

/// Stages at which a setting has an effect, as bits 0 to 3.
using Stages = unsigned;
inline constexpr Stages kEveryStage = 0b1111;
inline constexpr Stages kStage0 = 0b0001;
inline constexpr Stages kStages123 = 0b1110;
inline constexpr Stages kStages12 = 0b0110;
inline constexpr Stages kStage3 = 0b1000;

/// What the readers share: the file, what to read it for, and what has been read.
struct DeepSpeedReading {
  DeepSpeedReading(const JsonDocument& read, const TrainingFlags& given, const Model& trained,
                   int ranks)
      : document(read),
        flags(given),
        model(trained),
        world_size(ranks),
        root(JsonObject(read, read.root(), ""), ConfigSection::Kind::TopLevel, notes, "") {}
  DeepSpeedReading(const DeepSpeedReading&) = delete;  // `root` points to `notes`
  DeepSpeedReading& operator=(const DeepSpeedReading&) = delete;

  /// "auto" is replaced as Hugging Face does (A6).
  [[nodiscard]] bool fills_auto() const { return flags.config_as != ConfigMode::DeepSpeed; }
  /// What the file leaves out comes from the flags, too.
  [[nodiscard]] bool fills_absent() const { return flags.config_as == ConfigMode::Auto; }
  [[nodiscard]] bool at_stage(Stages stages) const {
    return (stages >> strategy.zero.stage & 1U) != 0;
  }
  void assume(const std::string& text) { notes.assumptions.push_back(text); }

  const JsonDocument& document;
  const TrainingFlags& flags;
  const Model& model;
  int world_size;
  ConfigNotes notes;
  ConfigSection root;
  Strategy strategy;
};

/// `zero_optimization` (A2), offload (A3) and ZenFlow (A5) inside it included.
void read_zero(DeepSpeedReading& reading);
void read_offload(DeepSpeedReading& reading, ConfigSection& zero);
void read_zenflow(DeepSpeedReading& reading, ConfigSection& zero);
void read_leaf_modules(DeepSpeedReading& reading, ConfigSection& zero);
/// Says so if the file states a key of `zero_optimization` that acts at other stages only.
void note_no_effect(DeepSpeedReading& reading, ConfigSection& zero, const std::string& key,
                    Stages stages);

/// Batch sizes (A4.1) and what comes with them: accumulation, sequence parallelism.
void read_batch(DeepSpeedReading& reading);
/// `fp16`, `bf16`, `amp`, `torch_autocast` (A4).
void read_precision(DeepSpeedReading& reading);
/// `communication_data_type`, `data_types`.
void read_dtypes(DeepSpeedReading& reading);
/// Clipping, scaling and operation of the reduction, sparse gradients.
void read_gradients(DeepSpeedReading& reading);
/// `optimizer` (A4.4) and what depends on it.
void read_optimizer(DeepSpeedReading& reading);
/// Logs and timers that wait for the device (0.7).
void read_timers(DeepSpeedReading& reading);
/// All other sections and keys; unknown ones at last.
void read_other_sections(DeepSpeedReading& reading);

/// What runs, but is likely not what is wanted.
void lint_buckets(DeepSpeedReading& reading, ConfigSection& zero);
void lint_stage3(DeepSpeedReading& reading, ConfigSection& zero);
void lint_parallelism(DeepSpeedReading& reading, ConfigSection& zero);

/// The first setting that is read and checked, but cannot be simulated yet.
[[nodiscard]] std::optional<ConfigError> first_not_simulated(const Strategy& strategy,
                                                             const std::string& file);

/// The name under which the file gives a field that has two (A1.6): `name` unless only `twin` is
/// given. \throws ConfigError  if both are.
[[nodiscard]] std::string name_in(ConfigSection& section, const char* name, const char* twin);
/// Takes "fp32", "float16", "half", ...
[[nodiscard]] Dtype dtype_of_word(const std::string& word);
[[nodiscard]] const std::vector<std::string>& dtype_words();
/// "fp32", "fp16" or "bf16".
[[nodiscard]] std::string config_word(Dtype dtype);

}  // namespace zerosim::internal
