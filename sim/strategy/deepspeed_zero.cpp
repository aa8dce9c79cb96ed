#include <algorithm>
#include <array>
#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"

namespace zerosim::internal {
namespace {

struct CountField {
  const char* key;
  const char* twin;  ///< accepted too (A1.6); or null
  std::int64_t ZeroOptions::*member;
  Stages stages;
  std::int64_t minimum;
  const char* unit;
};

// Spec A2. Defaults are those of ZeroOptions.
constexpr CountField kCountFields[] = {
    {"reduce_bucket_size", nullptr, &ZeroOptions::reduce_bucket_size, kStages123, 0, "elements"},
    {"allgather_bucket_size", nullptr, &ZeroOptions::allgather_bucket_size, kStages12, 0,
     "elements"},
    {"sub_group_size", nullptr, &ZeroOptions::sub_group_size, kStage3, 0, "elements"},
    {"stage3_prefetch_bucket_size", "prefetch_bucket_size", &ZeroOptions::prefetch_bucket_size,
     kStage3, 0, "elements"},
    {"stage3_param_persistence_threshold", "param_persistence_threshold",
     &ZeroOptions::param_persistence_threshold, kStage3, 0, "elements"},
    {"stage3_model_persistence_threshold", "model_persistence_threshold",
     &ZeroOptions::model_persistence_threshold, kStage3, 0, "elements"},
    {"stage3_max_live_parameters", "max_live_parameters", &ZeroOptions::max_live_parameters,
     kStage3, 0, "elements"},
    {"stage3_max_reuse_distance", "max_reuse_distance", &ZeroOptions::max_reuse_distance, kStage3,
     0, "elements"},
    {"stage3_module_granularity_threshold", "module_granularity_threshold",
     &ZeroOptions::module_granularity_threshold, kStage3, kNoIntegerMinimum, "elements"},
    {"zero_hpz_partition_size", nullptr, &ZeroOptions::hpz_partition_size, kStage3, 0, ""},
    {"mics_shard_size", nullptr, &ZeroOptions::mics_shard_size, kStage3, -1, ""},
};

struct SwitchField {
  const char* key;
  const char* twin;
  bool ZeroOptions::*member;
  Stages stages;
};

constexpr SwitchField kSwitchFields[] = {
    {"contiguous_gradients", nullptr, &ZeroOptions::contiguous_gradients, kStages123},
    {"reduce_scatter", nullptr, &ZeroOptions::reduce_scatter, kStages123},
    {"use_multi_rank_bucket_allreduce", nullptr, &ZeroOptions::use_multi_rank_bucket_allreduce,
     kStages12},
    {"overlap_comm", nullptr, &ZeroOptions::overlap_comm, kStages123},
    {"round_robin_gradients", nullptr, &ZeroOptions::round_robin_gradients, kStages12},
    {"stage3_use_all_reduce_for_fetch_params", "use_all_reduce_for_fetch_params",
     &ZeroOptions::use_all_reduce_for_fetch_params, kStage3},
    {"stage3_allgather_sequential", "allgather_sequential", &ZeroOptions::allgather_sequential,
     kStage3},
    {"zero_quantized_weights", nullptr, &ZeroOptions::quantized_weights, kStage3},
    {"zero_quantized_nontrainable_weights", nullptr, &ZeroOptions::quantized_nontrainable_weights,
     kStage3},
    {"zero_quantized_gradients", nullptr, &ZeroOptions::quantized_gradients, kStage3},
    {"mics_hierarchical_params_gather", nullptr, &ZeroOptions::mics_hierarchical_params_gather,
     kStage3},
    {"memory_efficient_linear", nullptr, &ZeroOptions::memory_efficient_linear, kStage3},
    {"enable_sanity_checks", nullptr, &ZeroOptions::enable_sanity_checks, kStage3},
};

/// Switches without effect on a steady training step (A2): checkpoints, checks, logs.
struct QuietSwitch {
  const char* key;
  bool fallback;
  Stages stages;
};
constexpr QuietSwitch kQuietSwitches[] = {
    {"allgather_partitions", true, kEveryStage},
    {"load_from_fp32_weights", true, kEveryStage},
    {"elastic_checkpoint", false, kEveryStage},
    {"ignore_unused_parameters", true, kStages12},
    {"override_module_apply", true, kStage3},
    {"pipeline_loading_checkpoint", false, kStage3},
    {"log_trace_cache_warnings", false, kStage3},
    {"save_muon_momentum_buffer_in_memory", false, kStage3},
};

/// `true` or `false` instead of an object (A1.7). Nothing if it is an object or absent.
std::optional<bool> zero_as_bool(DeepSpeedReading& reading) {
  const JsonValue& value = reading.root.object().raw("zero_optimization");
  if (!value.isBool()) return std::nullopt;
  const bool on = value.asBool();
  if (reading.flags.config_as == ConfigMode::HuggingFace) {
    reading.root.fail("zero_optimization", format("found {}, expected an object with a stage", on),
                      "deprecated_zero_bool");
  }
  reading.root.warn("zero_optimization", "deprecated_zero_bool",
                    "a bare true means stage 1; write {\"stage\": 1}");
  return on;
}

void read_stage(DeepSpeedReading& reading, ConfigSection& zero, std::optional<bool> as_bool) {
  int& stage = reading.strategy.zero.stage;
  if (as_bool) {
    stage = *as_bool ? 1 : 0;
    reading.root.list("zero_optimization", std::to_string(stage), Origin::File,
                      {.name = "zero_optimization.stage"});
    return;
  }
  const std::int64_t value = zero.integer_or("stage", 0, kNoIntegerMinimum);
  if (value < 0 || value > 3) {
    zero.fail("stage", format("found {}, expected 0, 1, 2 or 3", value), "bad_stage");
  }
  stage = static_cast<int>(value);
  if (stage >= 2 && reading.flags.no_sync.value_or(false)) {
    zero.fail("stage",
              format("found {}, at which no_sync() asserts, since gradients are partitioned in "
                     "every micro batch; expected stage 0 or 1, or no no_sync()",
                     stage),
              "no_sync_with_gradient_partitioning");
  }
}

struct AutoSize {
  std::int64_t size = 0;
  const char* formula = "";
};

/// Sizes that Accelerate and the HF Trainer compute from the model (A6).
std::optional<AutoSize> auto_size(const std::string& key, std::int64_t hidden) {
  const auto h = static_cast<double>(hidden);
  if (key == "reduce_bucket_size") return AutoSize{hidden * hidden, "hidden^2"};
  if (key.ends_with("prefetch_bucket_size")) {
    return AutoSize{static_cast<std::int64_t>(0.9 * h * h), "0.9 hidden^2"};
  }
  if (key.ends_with("param_persistence_threshold")) return AutoSize{10 * hidden, "10 hidden"};
  return std::nullopt;
}

/// Whether an "auto" of `key` was filled in, as Hugging Face does.
bool fill_auto(DeepSpeedReading& reading, ConfigSection& zero, const std::string& key,
               const CountField& field) {
  if (!reading.fills_auto() || !zero.is_auto(key)) return false;
  constexpr std::int64_t kLargestHidden = 1'000'000'000;  // its square fits 64 bits
  const std::int64_t hidden = std::min(reading.model.shape.hidden, kLargestHidden);
  const std::optional<AutoSize> filled = auto_size(key, hidden);
  if (!filled) return false;
  if (hidden <= 0) {
    zero.fail(key,
              format("found \"auto\", which is {}, but the model has no hidden size; expected a "
                     "number or a model that says it",
                     filled->formula),
              "auto_unresolved");
  }
  reading.strategy.zero.*field.member = filled->size;
  zero.list(key, std::to_string(filled->size), Origin::Auto,
            {.unit = field.unit,
             .reason = format("{} with hidden {}", filled->formula, hidden),
             .name = field.key});
  return true;
}

void read_count(DeepSpeedReading& reading, ConfigSection& zero, const CountField& field) {
  if (reading.notes.lists(zero.listed_name(field.key))) return;  // allgather_size
  const std::string key = name_in(zero, field.key, field.twin);
  if (fill_auto(reading, zero, key, field)) return;
  std::int64_t& target = reading.strategy.zero.*field.member;
  target = zero.integer_or(
      key, target, field.minimum,
      {.matters = reading.at_stage(field.stages), .unit = field.unit, .name = field.key});
  // At stage 3 the size has a code of its own (lint_stage3).
  const bool own_code = reading.strategy.zero.stage == 3;
  if (!own_code) note_no_effect(reading, zero, key, field.stages);
}

void read_switch(DeepSpeedReading& reading, ConfigSection& zero, const SwitchField& field) {
  const std::string key = name_in(zero, field.key, field.twin);
  bool& target = reading.strategy.zero.*field.member;
  target = zero.boolean_or(
      key, target,
      {.matters = reading.at_stage(field.stages),
       .reason = format("DeepSpeed's default at stage {}", reading.strategy.zero.stage),
       .name = field.key});
  note_no_effect(reading, zero, key, field.stages);
}

void read_quiet_switches(DeepSpeedReading& reading, ConfigSection& zero) {
  for (const QuietSwitch& option : kQuietSwitches) {
    zero.boolean_or(option.key, option.fallback, {.matters = false});
    note_no_effect(reading, zero, option.key, option.stages);
  }
  if (zero.boolean_or("legacy_stage1", false, {.matters = false})) {
    zero.fail("legacy_stage1", "found true, which DeepSpeed no longer supports, expected false",
              "removed_key");
  }
  zero.list_if_set("zeropp_loco_param");
  if (zero.is_set("zeropp_loco_param")) {
    static_cast<void>(zero.section("zeropp_loco_param"));  // an object, whatever is in it
    note_no_effect(reading, zero, "zeropp_loco_param", kStage3);
  }
}

/// 16-bit weights in one file: the current key, its twin and the key of older releases (A1.7).
void read_gather_on_save(DeepSpeedReading& reading, ConfigSection& zero) {
  constexpr const char* kKey = "stage3_gather_16bit_weights_on_model_save";
  constexpr const char* kOldKey = "stage3_gather_fp16_weights_on_model_save";
  std::string key = name_in(zero, kKey, "gather_16bit_weights_on_model_save");
  if (zero.is_set(kOldKey)) {
    zero.warn(kOldKey, "deprecated_key", format("an old key; write {}", kKey));
    if (zero.is_set(key)) {
      zero.fail(kOldKey, format("given together with {}, expected only the latter", key),
                "deprecated_and_new_together");
    }
    key = kOldKey;
  }
  reading.strategy.zero.gather_16bit_weights_on_model_save =
      zero.boolean_or(key, false, {.matters = reading.at_stage(kStage3), .name = kKey});
  note_no_effect(reading, zero, key, kStage3);
}

/// Values that follow from others.
void override_forced(DeepSpeedReading& reading) {
  ZeroOptions& options = reading.strategy.zero;
  if (options.stage == 3 && options.allgather_sequential) {
    options.prefetch_bucket_size = 1;
    reading.notes.override_setting("zero_optimization.stage3_prefetch_bucket_size", "1",
                                   "since stage3_allgather_sequential is true (rule 35)");
  }
  const bool offloads = options.offload_optimizer.device != OffloadDevice::None;
  if (reading.at_stage(kStages12) && offloads && !options.contiguous_gradients) {
    options.contiguous_gradients = true;
    reading.notes.override_setting("zero_optimization.contiguous_gradients", "true",
                                   "since offload of the optimizer forces it (A2)");
  }
}

void check_sizes(DeepSpeedReading& reading, ConfigSection& zero) {
  const ZeroOptions& options = reading.strategy.zero;
  if (options.stage >= 1 && options.reduce_bucket_size == 0) {
    zero.fail("reduce_bucket_size",
              "found 0, expected at least 1: DeepSpeed divides by it in the first backward",
              "bucket_zero");
  }
  if (reading.at_stage(kStages12) && options.allgather_bucket_size % 2 != 0) {
    zero.fail("allgather_bucket_size",
              format("found {}, expected an even number", options.allgather_bucket_size),
              "out_of_range");
  }
}

void check_groups(DeepSpeedReading& reading, ConfigSection& zero) {
  const ZeroOptions& options = reading.strategy.zero;
  if (options.stage != 3) return;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"zero_hpz_partition_size", options.hpz_partition_size},
      {"mics_shard_size", options.mics_shard_size},
  };
  for (const auto& [key, size] : sizes) {
    if (size <= 1 || reading.world_size % size == 0) continue;
    zero.fail(key,
              format("found {}, expected a divisor of the world size {}", size, reading.world_size),
              "out_of_range");
  }
}

}  // namespace

std::string name_in(ConfigSection& section, const char* name, const char* twin) {
  if (twin == nullptr) return name;
  const bool twin_given = section.has(twin);
  if (section.has(name) && twin_given) {
    section.fail(twin, format("given together with {}, expected one of the two names", name),
                 "duplicate_keys");
  }
  return twin_given ? twin : name;
}

void note_no_effect(DeepSpeedReading& reading, ConfigSection& zero, const std::string& key,
                    Stages stages) {
  if (!zero.is_set(key) || reading.at_stage(stages)) return;
  zero.warn(key, "no_effect_at_stage",
            format("has no effect at stage {}", reading.strategy.zero.stage));
}

void read_zero(DeepSpeedReading& reading) {
  const std::optional<bool> as_bool = zero_as_bool(reading);
  ZeroOptions& options = reading.strategy.zero;
  if (as_bool) {  // the size beside it is of those days, too
    options.allgather_bucket_size = reading.root.integer_or(
        "allgather_size", options.allgather_bucket_size, 0,
        {.matters = false, .unit = "elements", .name = "zero_optimization.allgather_bucket_size"});
  }
  ConfigSection zero = as_bool ? reading.root.empty_section("zero_optimization")
                               : reading.root.section_or_empty("zero_optimization");
  read_stage(reading, zero, as_bool);
  options.overlap_comm = options.stage == 3;
  read_offload(reading, zero);
  for (const CountField& field : kCountFields) read_count(reading, zero, field);
  for (const SwitchField& field : kSwitchFields) read_switch(reading, zero, field);
  read_gather_on_save(reading, zero);
  read_leaf_modules(reading, zero);
  read_quiet_switches(reading, zero);
  read_zenflow(reading, zero);
  zero.reject_unknown("unknown_key_zero");
  override_forced(reading);
  check_sizes(reading, zero);
  check_groups(reading, zero);
  lint_buckets(reading, zero);
  lint_stage3(reading, zero);
  lint_parallelism(reading, zero);
}

}  // namespace zerosim::internal
