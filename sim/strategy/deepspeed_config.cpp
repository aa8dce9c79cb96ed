#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/strategy/config_section.h"
#include "sim/strategy/strategy.h"

namespace zerosim {
namespace {

using internal::ConfigNotes;
using internal::ConfigSection;

constexpr double kNoMinimum = std::numeric_limits<double>::lowest();
constexpr std::int64_t kNoIntegerMinimum = std::numeric_limits<std::int64_t>::min();

// Flags as messages name them.
constexpr const char* kMicroBatchFlag = "--micro-batch";
constexpr const char* kGradAccumFlag = "--grad-accum";
constexpr const char* kPrecisionFlag = "--precision";
constexpr const char* kOptimizerFlag = "--optimizer";

/// Stages at which a setting has an effect, as bits 0 to 3.
constexpr unsigned kStages123 = 0b1110;
constexpr unsigned kStages12 = 0b0110;
constexpr unsigned kStage3 = 0b1000;

struct CountField {
  const char* key;
  std::int64_t ZeroOptions::*member;
  unsigned stages;
  bool has_stage3_name;  ///< also accepted with the prefix "stage3_" (A1.6)
};

// Spec A2. Defaults are those of ZeroOptions.
constexpr CountField kCountFields[] = {
    {"reduce_bucket_size", &ZeroOptions::reduce_bucket_size, kStages123, false},
    {"allgather_bucket_size", &ZeroOptions::allgather_bucket_size, kStages12, false},
    {"sub_group_size", &ZeroOptions::sub_group_size, kStage3, false},
    {"prefetch_bucket_size", &ZeroOptions::prefetch_bucket_size, kStage3, true},
    {"param_persistence_threshold", &ZeroOptions::param_persistence_threshold, kStage3, true},
    {"model_persistence_threshold", &ZeroOptions::model_persistence_threshold, kStage3, true},
    {"max_live_parameters", &ZeroOptions::max_live_parameters, kStage3, true},
    {"max_reuse_distance", &ZeroOptions::max_reuse_distance, kStage3, true},
};

struct SwitchField {
  const char* key;
  bool ZeroOptions::*member;
  unsigned stages;
  bool has_stage3_name;
};

constexpr SwitchField kSwitchFields[] = {
    {"contiguous_gradients", &ZeroOptions::contiguous_gradients, kStages123, false},
    {"reduce_scatter", &ZeroOptions::reduce_scatter, kStages123, false},
    {"use_multi_rank_bucket_allreduce", &ZeroOptions::use_multi_rank_bucket_allreduce, kStages12,
     false},
    {"overlap_comm", &ZeroOptions::overlap_comm, kStages123, false},
    {"round_robin_gradients", &ZeroOptions::round_robin_gradients, kStages12, false},
    {"allgather_sequential", &ZeroOptions::allgather_sequential, kStage3, true},
    {"use_all_reduce_for_fetch_params", &ZeroOptions::use_all_reduce_for_fetch_params, kStage3,
     true},
    {"memory_efficient_linear", &ZeroOptions::memory_efficient_linear, kStage3, false},
};

// Switches without effect on a steady training step (A2): checkpoints, checks, logs.
constexpr const char* kSwitchesWithoutEffect[] = {
    "allgather_partitions",     "load_from_fp32_weights",
    "elastic_checkpoint",       "ignore_unused_parameters",
    "override_module_apply",    "pipeline_loading_checkpoint",
    "log_trace_cache_warnings", "save_muon_momentum_buffer_in_memory",
};

/// Switches that change the schedule in ways that are not simulated, at stage 3.
struct NotSimulatedSwitch {
  const char* key;
  const char* feature;
};
constexpr NotSimulatedSwitch kNotSimulatedSwitches[] = {
    {"zero_quantized_weights", "quantised weight gathers (qwZ)"},
    {"zero_quantized_gradients", "quantised gradient reductions (qgZ)"},
    {"zero_quantized_nontrainable_weights", "quantised frozen weights"},
    {"mics_hierarchical_params_gather", "hierarchical MiCS gathers"},
    {"enable_sanity_checks", "sanity checks"},
};

/// Top-level sections that change training when their `enabled` is true.
constexpr NotSimulatedSwitch kNotSimulatedSections[] = {
    {"torch_autocast", "torch_autocast"},
    {"elasticity", "elasticity"},
    {"autotuning", "autotuning"},
    {"data_efficiency", "data efficiency"},
    {"curriculum_learning", "curriculum learning"},
    {"progressive_layer_drop", "progressive layer drop"},
    {"eigenvalue", "eigenvalues"},
    {"hybrid_engine", "the hybrid engine"},
    {"quantize_training", "quantised training"},
};

// Top-level keys that have no effect on the time or the memory of a steady step.
constexpr const char* kTopKeysWithoutEffect[] = {
    "scheduler",
    "zero_force_ds_cpu_optimizer",
    "steps_per_print",
    "dump_state",
    "disable_allgather",
    "dataloader_drop_last",
    "aio",
    "tensorboard",
    "wandb",
    "comet",
    "csv_monitor",
    "checkpoint",
    "nebula",
    "datastates",
    "seq_parallel_communication_data_type",
    "vocabulary_size",
    "graph_harvesting",
    "use_data_before_expert_parallelism",
    "memory_breakdown",
    "load_universal_checkpoint",
    "train_steps",
};

// Sections whose mere presence asks for something else than plain ZeRO training.
constexpr NotSimulatedSwitch kNotSimulatedWhenPresent[] = {
    {"sparse_attention", "sparse attention"},
    {"compression_training", "compression"},
    {"pipeline", "pipeline parallelism"},
};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// "ds_zero2" of "configs/ds_zero2.json".
std::string strategy_name(const std::string& file) {
  std::string name = file.substr(file.find_last_of('/') + 1);  // npos + 1 == 0
  for (const char* suffix : {".json", ".hjson"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - std::string(suffix).size());
  }
  return name;
}

/// "0.19" of "0.19.6".
std::string known_version(const std::string& version) {
  for (const char* known : {"0.14", "0.19"}) {
    if (version == known || version.starts_with(std::string(known) + ".")) return known;
  }
  throw ConfigError(format("--deepspeed-version: found \"{}\", expected 0.14 or 0.19", version));
}

Dtype dtype_of_word(const std::string& word) {
  if (word == "fp16" || word == "float16" || word == "half") return Dtype::F16;
  if (word == "bf16" || word == "bfloat16") return Dtype::Bf16;
  return Dtype::F32;
}

const std::vector<std::string>& dtype_words() {
  static const std::vector<std::string> kWords = {"fp32",    "fp16", "bf16",     "float32",
                                                  "float16", "half", "bfloat16", "float"};
  return kWords;
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(const JsonDocument& document, const TrainingFlags& flags, const Model& model,
                  int world_size)
      : document_(document),
        flags_(flags),
        model_(model),
        world_size_(world_size),
        root_(JsonObject(document, document.root(), ""), ConfigSection::Kind::TopLevel, notes_) {}

  Strategy read() {
    strategy_.name = strategy_name(document_.file());
    strategy_.framework = Framework::DeepSpeed;
    strategy_.version = known_version(flags_.deepspeed_version);
    note_duplicates();
    read_precision();
    read_zero();
    read_batch();
    read_dtypes();
    read_gradients();
    read_optimizer();
    read_timers();
    read_checkpointing();
    read_other_sections();
    if (notes_.not_simulated) throw ConfigError(*notes_.not_simulated);
    lint();
    strategy_.assumptions = std::move(notes_.assumptions);
    strategy_.warnings = std::move(notes_.warnings);
    return std::move(strategy_);
  }

 private:
  enum class Switch { Absent, Auto, On, Off };

  [[nodiscard]] bool fills_auto() const { return flags_.config_as != ConfigMode::DeepSpeed; }
  [[nodiscard]] bool fills_absent() const { return flags_.config_as == ConfigMode::Auto; }
  [[nodiscard]] bool at_stage(unsigned stages) const {
    return (stages >> strategy_.zero.stage & 1U) != 0;
  }
  void assume(const std::string& sentence) { notes_.assumptions.push_back(sentence); }
  void warn(const std::string& code, const std::string& message) {
    notes_.warnings.push_back({code, format("{}: {}", document_.file(), message)});
  }

  void note_duplicates() {
    for (const JsonFinding& finding : document_.duplicates()) {
      notes_.warnings.push_back(
          {finding.code, format("{}: {}: given before in the same object; strict JSON keeps this "
                                "one, DeepSpeed refuses the file",
                                to_string(finding.where), finding.what)});
    }
  }

  // ---- fp16, bf16, amp (A4) ----

  Switch read_switch(ConfigSection& section) {
    if (!section.is_set("enabled")) {
      section.warn("enabled", "fp16_section_not_enabled",
                   "missing, and false by default: the section has no effect");
      return Switch::Off;
    }
    if (!section.is_auto("enabled")) {
      return *section.boolean("enabled") ? Switch::On : Switch::Off;
    }
    if (fills_auto()) return Switch::Auto;
    static_cast<void>(section.boolean("enabled"));  // dropped, with its warning
    section.warn("enabled", "auto_precision_becomes_fp32",
                 "\"auto\" is dropped by DeepSpeed alone, which then trains in fp32");
    return Switch::Off;
  }

  Switch read_fp16() {
    std::optional<ConfigSection> section = root_.section("fp16");
    if (!section) return Switch::Absent;
    const Switch enabled = read_switch(*section);
    const std::optional<double> loss_scale = section->number("loss_scale", 0);
    const bool dynamic = enabled == Switch::On && loss_scale.value_or(0) == 0;
    static_cast<void>(section->integer("initial_scale_power", 0));
    static_cast<void>(section->integer("loss_scale_window", dynamic ? 1 : kNoIntegerMinimum));
    static_cast<void>(section->integer("hysteresis", 0));
    static_cast<void>(section->boolean("consecutive_hysteresis"));
    const double least_scale = section->number("min_loss_scale", 0).value_or(1);
    if (dynamic && least_scale == 0) {
      section->fail("min_loss_scale", "found 0, expected a number above 0", "out_of_range");
    }
    reject_if_on(*section, "auto_cast", "fp16.auto_cast");
    reject_if_on(*section, "fp16_master_weights_and_grads", "fp16 master weights");
    section->reject_unknown("unknown_key_fp16");
    return enabled;
  }

  Switch read_bf16(const std::string& key) {
    std::optional<ConfigSection> section = root_.section(key);
    if (!section) return Switch::Absent;
    const Switch enabled = read_switch(*section);
    reject_if_on(*section, "immediate_grad_update", "bf16.immediate_grad_update");
    bf16_overflow_check_ = section->boolean("check_grad_overflow");
    reject_if_on(*section, "bf16_master_weights_and_grads", "bf16 master weights");
    reject_if_on(*section, "bf16_optimizer_states", "bf16 optimizer states");
    section->reject_unknown("unknown_key_fp16");
    return enabled;
  }

  void reject_if_on(ConfigSection& section, const char* key, const char* feature) {
    if (section.boolean(key).value_or(false)) section.not_simulated(key, feature);
  }

  void read_precision() {
    if (root_.is_set("bfloat16")) {
      root_.warn("bfloat16", "old_name", "an older name that is still read; the name is bf16");
      bf16_key_ = root_.is_set("bf16") ? "bf16" : "bfloat16";
    }
    if (bf16_key_ == "bf16") static_cast<void>(root_.has("bfloat16"));
    Switch fp16 = read_fp16();
    Switch bf16 = read_bf16(bf16_key_);
    fill_precision(fp16, bf16);
    check_precision(fp16, bf16);
    strategy_.precision = fp16 == Switch::On   ? Precision::Fp16
                          : bf16 == Switch::On ? Precision::Bf16
                                               : Precision::Fp32;
    if (strategy_.precision == Precision::Fp32) {
      assume("Precision: fp32, since neither fp16 nor bf16 is enabled.");
    }
    if (strategy_.precision == Precision::Fp16) {
      assume("Dynamic loss scale: no step overflows, so no step is skipped (A4.3).");
    }
    strategy_.check_grad_overflow = strategy_.precision == Precision::Fp16 ||
                                    (strategy_.precision == Precision::Bf16 &&
                                     bf16_overflow_check_.value_or(strategy_.version != "0.14"));
    read_amp();
  }

  /// "auto", and in mode auto an absent section, come from the flag (A6).
  void fill_precision(Switch& fp16, Switch& bf16) {
    const bool any_auto = fp16 == Switch::Auto || bf16 == Switch::Auto;
    std::optional<Precision> wanted = flags_.precision;
    std::string source = format("the flag {}", kPrecisionFlag);
    if (!wanted && any_auto) {
      const bool bf16_likely = bf16 == Switch::Auto ? fp16 != Switch::On : bf16 == Switch::On;
      wanted = bf16_likely ? Precision::Bf16 : Precision::Fp16;
      source = format("{}, assumed since no flag says otherwise", to_string(*wanted));
    }
    const bool fp16_given = fp16 == Switch::On;
    fill_switch("fp16", fp16, wanted == Precision::Fp16, bf16 != Switch::On, source);
    fill_switch(bf16_key_, bf16, wanted == Precision::Bf16, !fp16_given, source);
  }

  /// \param may_add  the section may be added if the file has none
  void fill_switch(const std::string& key, Switch& state, bool on, bool may_add,
                   const std::string& source) {
    if (state == Switch::Auto) {
      assume(format("{}.enabled: \"auto\" becomes {}, from {}.", key, on, source));
    } else if (state == Switch::Absent && on && may_add && fills_absent()) {
      assume(format("{}: the file has no such section; enabled by {}, as accelerate does.", key,
                    source));
    } else {
      return;
    }
    state = on ? Switch::On : Switch::Off;
  }

  void check_precision(Switch fp16, Switch bf16) {
    if (fp16 == Switch::On && bf16 == Switch::On) {
      root_.fail(bf16_key_, "enabled together with fp16, expected at most one of them",
                 "fp16_and_bf16");
    }
    if (!flags_.precision) return;
    check_precision_flag("fp16", fp16, Precision::Fp16);
    check_precision_flag(bf16_key_, bf16, Precision::Bf16);
    const bool off = fp16 != Switch::On && bf16 != Switch::On;
    if (off && *flags_.precision != Precision::Fp32) {
      assume(format("Precision: {} {} is not seen by the file, which leaves it at fp32.",
                    kPrecisionFlag, to_string(*flags_.precision)));
    }
  }

  void check_precision_flag(const std::string& key, Switch state, Precision precision) {
    const JsonValue& section = document_.root()[key];
    if (!section.isObject() || !section.isMember("enabled")) return;
    const bool is_auto = section["enabled"].isString() && section["enabled"].asString() == "auto";
    if (is_auto || (state == Switch::On) == (*flags_.precision == precision)) return;
    throw ConfigError(document_.location(section["enabled"]),
                      format("{}.enabled: found {}, but the flag {} says {}", key,
                             state == Switch::On, kPrecisionFlag, to_string(*flags_.precision)));
  }

  void read_amp() {
    std::optional<ConfigSection> amp = root_.section("amp");
    if (!amp) return;
    if (amp->boolean("enabled").value_or(false)) amp_enabled_ = true;
  }

  // ---- zero_optimization (A2, A3) ----

  void read_zero() {
    const JsonValue& value = root_.object().raw("zero_optimization");
    if (value.isBool()) {
      read_zero_bool(value.asBool());
    } else if (std::optional<ConfigSection> zero = root_.section("zero_optimization")) {
      read_zero_section(*zero);
    } else {
      assume("zero_optimization: the file has no such section, so stage 0.");
    }
    if (amp_enabled_ && strategy_.zero.stage > 0) {
      root_.fail("amp", "enabled together with ZeRO, expected fp16 or bf16", "amp_with_zero");
    }
    if (amp_enabled_) root_.not_simulated("amp", "Apex amp");
  }

  void read_zero_bool(bool on) {
    if (flags_.config_as == ConfigMode::HuggingFace) {
      root_.fail("zero_optimization", format("found {}, expected an object with a stage", on),
                 "deprecated_zero_bool");
    }
    root_.warn("zero_optimization", "deprecated_zero_bool",
               "a bare true means stage 1; write {\"stage\": 1}");
    strategy_.zero.stage = on ? 1 : 0;
    if (std::optional<std::int64_t> size = root_.integer("allgather_size", 0)) {
      strategy_.zero.allgather_bucket_size = *size;
    }
  }

  void read_zero_section(ConfigSection& zero) {
    read_stage(zero);
    strategy_.zero.overlap_comm = strategy_.zero.stage == 3;
    fill_auto_sizes(zero);
    for (const CountField& field : kCountFields) read_count(zero, field);
    for (const SwitchField& field : kSwitchFields) read_switch_field(zero, field);
    for (const char* key : kSwitchesWithoutEffect) static_cast<void>(zero.boolean(key));
    read_old_keys(zero);
    read_offload(zero);
    read_not_simulated(zero);
    zero.reject_unknown("unknown_key_zero");
    check_zero(zero);
  }

  void read_stage(ConfigSection& zero) {
    const std::optional<std::int64_t> stage = zero.integer("stage", kNoIntegerMinimum);
    if (!stage) {
      assume("zero_optimization.stage: 0, DeepSpeed's default.");
    } else if (*stage < 0 || *stage > 3) {
      zero.fail("stage", format("found {}, expected 0, 1, 2 or 3", *stage), "bad_stage");
    }
    strategy_.zero.stage = static_cast<int>(stage.value_or(0));
  }

  /// Sizes that Accelerate and the HF Trainer compute from the model (A6).
  void fill_auto_sizes(ConfigSection& zero) {
    if (!fills_auto()) return;
    constexpr std::int64_t kLargestHidden = 1'000'000'000;  // its square fits 64 bits
    const std::int64_t hidden = std::min(model_.shape.hidden, kLargestHidden);
    const auto h = static_cast<double>(hidden);
    const std::array<std::pair<const char*, std::int64_t>, 3> sizes = {{
        {"reduce_bucket_size", hidden * hidden},
        {"stage3_prefetch_bucket_size", static_cast<std::int64_t>(0.9 * h * h)},
        {"stage3_param_persistence_threshold", 10 * hidden},
    }};
    constexpr std::array<const char*, 3> kFormulas = {"hidden^2", "0.9 hidden^2", "10 hidden"};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto& [key, size] = sizes[i];
      if (!zero.is_auto(key)) continue;
      if (hidden <= 0) {
        zero.fail(key, format("found \"auto\", which is {}, but the model has no hidden size; "
                              "expected a number or a model that says it",
                              kFormulas[i]));
      }
      zero.assume(key, format("\"auto\" becomes {} = {} elements with hidden {}", kFormulas[i],
                              size, hidden));
      filled_sizes_.emplace_back(key, size);
    }
  }

  /// The name under which the file gives a field that has two (A1.6).
  std::string name_in(ConfigSection& zero, const char* key, bool has_stage3_name) {
    if (!has_stage3_name) return key;
    const std::string prefixed = std::string("stage3_") + key;
    const bool plain_given = zero.has(key);
    if (zero.has(prefixed) && plain_given) {
      zero.fail(key, format("given together with {}, expected one of the two names", prefixed),
                "duplicate_keys");
    }
    return plain_given ? key : prefixed;
  }

  void read_count(ConfigSection& zero, const CountField& field) {
    const std::string key = name_in(zero, field.key, field.has_stage3_name);
    std::int64_t& target = strategy_.zero.*field.member;
    for (const auto& [filled, size] : filled_sizes_) {
      if (filled == key) {
        target = size;
        return;
      }
    }
    if (const std::optional<std::int64_t> value = zero.integer(key, 0)) {
      target = *value;
    } else if (at_stage(field.stages)) {
      zero.assume(key, format("{} elements, DeepSpeed's default", target));
    }
  }

  void read_switch_field(ConfigSection& zero, const SwitchField& field) {
    const std::string key = name_in(zero, field.key, field.has_stage3_name);
    bool& target = strategy_.zero.*field.member;
    if (const std::optional<bool> value = zero.boolean(key)) {
      target = *value;
    } else if (at_stage(field.stages)) {
      zero.assume(key, format("{}, DeepSpeed's default at stage {}", target, strategy_.zero.stage));
    }
  }

  /// Keys of older releases that are still read (A1.7).
  void read_old_keys(ConfigSection& zero) {
    const auto old_switch = [&](const char* old_key, const char* new_key) {
      if (!zero.is_set(old_key)) return false;
      zero.warn(old_key, "deprecated_key", format("an old key; write {}", new_key));
      const bool on = zero.boolean(old_key).value_or(false);
      if (on && zero.is_set(new_key)) {
        zero.fail(old_key, format("given together with {}, expected only the latter", new_key),
                  "deprecated_and_new_together");
      }
      return on;
    };
    old_switch("stage3_gather_fp16_weights_on_model_save",
               "stage3_gather_16bit_weights_on_model_save");
    for (const char* key :
         {"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"}) {
      static_cast<void>(zero.boolean(key));
    }
    const bool pinned = old_switch("cpu_offload_use_pin_memory", "offload_optimizer");
    const bool optimizer = old_switch("cpu_offload", "offload_optimizer");
    if (strategy_.zero.stage > 0 && (optimizer || pinned)) {
      zero.not_simulated(optimizer ? "cpu_offload" : "cpu_offload_use_pin_memory",
                         "offload of the optimizer");
    }
    if (old_switch("cpu_offload_params", "offload_param") ||
        old_switch("cpu_offload_param", "offload_param")) {
      param_offload(zero,
                    zero.is_set("cpu_offload_param") ? "cpu_offload_param" : "cpu_offload_params");
    }
    if (zero.boolean("legacy_stage1").value_or(false)) {
      zero.fail("legacy_stage1", "found true, which DeepSpeed no longer supports, expected false");
    }
  }

  void param_offload(ConfigSection& zero, const std::string& key) {
    if (strategy_.zero.stage == 3) {
      zero.not_simulated(key, "offload of parameters");
    } else {
      zero.warn(key, "offload_param_needs_stage_3",
                format("has no effect at stage {}, only at stage 3", strategy_.zero.stage));
    }
  }

  /// Whether the section moves anything: its device is cpu or nvme.
  bool read_device(ConfigSection& section) {
    const std::string device = section.word("device", {"none", "cpu", "nvme"}).value_or("none");
    const JsonValue& path = section.object().raw("nvme_path");
    if (device == "nvme" && !path.isString()) {
      section.fail("nvme_path", "missing, expected a path, since device is \"nvme\"");
    }
    static_cast<void>(section.boolean("pin_memory"));
    static_cast<void>(section.integer("buffer_count", 0));
    return device != "none";
  }

  void read_offload(ConfigSection& zero) {
    if (std::optional<ConfigSection> section = zero.section("offload_param")) {
      const bool moves = read_device(*section);
      static_cast<void>(section->integer("buffer_size", 0));
      static_cast<void>(section->integer("max_in_cpu", 0));
      section->reject_unknown("unknown_key_zero");
      if (moves) param_offload(zero, "offload_param");
    }
    if (std::optional<ConfigSection> section = zero.section("offload_optimizer")) {
      const bool moves = read_device(*section);
      for (const char* key : {"pipeline_read", "pipeline_write", "fast_init", "super_offload"}) {
        static_cast<void>(section->boolean(key));
      }
      static_cast<void>(section->number("cpuadam_cores_perc", 0));
      check_ratio(*section);
      section->reject_unknown("unknown_key_zero");
      if (moves && strategy_.zero.stage > 0) {
        section->not_simulated("device", "offload of the optimizer");
      }
    }
  }

  void check_ratio(ConfigSection& section) {
    const double ratio = section.number("ratio", 0).value_or(1);
    if (ratio > 1) {
      section.fail("ratio", format("found {}, expected 0 to 1", ratio), "out_of_range");
    }
    if (ratio < 1 && strategy_.zero.stage != 3) {
      section.fail(
          "ratio",
          format("found {}, which needs stage 3, but the stage is {}", ratio, strategy_.zero.stage),
          "partial_offload_needs_stage_3");
    }
  }

  void read_not_simulated(ConfigSection& zero) {
    const bool stage3 = strategy_.zero.stage == 3;
    for (const NotSimulatedSwitch& option : kNotSimulatedSwitches) {
      const bool on = zero.boolean(option.key).value_or(false);
      if (on && stage3) zero.not_simulated(option.key, option.feature);
    }
    const std::int64_t hpz = zero.integer("zero_hpz_partition_size", 0).value_or(1);
    if (stage3 && hpz > 1) {
      if (world_size_ % hpz != 0) {
        zero.fail("zero_hpz_partition_size",
                  format("found {}, expected a divisor of the world size {}", hpz, world_size_),
                  "out_of_range");
      }
      zero.not_simulated("zero_hpz_partition_size", "a secondary partition (hpZ)");
    }
    const std::int64_t shard = zero.integer("mics_shard_size", -1).value_or(-1);
    if (stage3 && shard > 0) zero.not_simulated("mics_shard_size", "MiCS");
    const std::string granularity =
        name_in(zero, "module_granularity_threshold", /*has_stage3_name=*/true);
    if (zero.integer(granularity, kNoIntegerMinimum).value_or(0) > 0 && stage3) {
      zero.not_simulated(granularity, "leaf modules by granularity");
    }
    for (const auto& [key, feature] :
         {NotSimulatedSwitch{"zenflow", "ZenFlow"},
          NotSimulatedSwitch{"leaf_module", "leaf modules"},
          NotSimulatedSwitch{"zeropp_loco_param", "LoCo error feedback"}}) {
      if (zero.is_set(key) && strategy_.zero.stage > 0) zero.not_simulated(key, feature);
    }
  }

  void check_zero(ConfigSection& zero) {
    const ZeroOptions& options = strategy_.zero;
    if (options.stage >= 1 && options.reduce_bucket_size == 0) {
      zero.fail("reduce_bucket_size",
                "found 0, expected at least 1: DeepSpeed divides by it in the first backward",
                "bucket_zero");
    }
    if (at_stage(kStages12) && options.allgather_bucket_size % 2 != 0) {
      zero.fail("allgather_bucket_size",
                format("found {}, expected an even number", options.allgather_bucket_size),
                "out_of_range");
    }
    if (options.stage == 3 && zero.is_set("allgather_bucket_size")) {
      zero.warn("allgather_bucket_size", "allgather_bucket_size_ignored_at_stage_3",
                "has no effect at stage 3");
    }
    lint_stage3(zero);
    lint_buckets();
  }

  // ---- batch (A4.1) ----

  /// What the file says of a batch field; "auto" and, in mode auto, nothing are filled by the flag.
  std::optional<std::int64_t> batch_field(const char* key, std::optional<std::int64_t> flag,
                                          const char* flag_name) {
    if (root_.is_auto(key)) {
      if (!fills_auto()) {
        root_.fail(key,
                   "found \"auto\", which DeepSpeed alone does not fill in, expected an integer",
                   "auto_batch_unresolved");
      }
      if (auto_batch_key_.empty()) auto_batch_key_ = key;
      if (flag) assume(format("{}: \"auto\" becomes {}, from the flag {}.", key, *flag, flag_name));
      return flag;
    }
    const std::optional<std::int64_t> value = root_.integer(key, 1);
    if (value && flag && *value != *flag) {
      root_.fail(key, format("found {}, but the flag {} says {}", *value, flag_name, *flag));
    }
    if (value || !flag || !fills_absent()) return value;
    assume(format("{}: {}, from the flag {}.", key, *flag, flag_name));
    return flag;
  }

  void read_batch() {
    const auto train = batch_field("train_batch_size", std::nullopt, "");
    const auto micro =
        batch_field("train_micro_batch_size_per_gpu", flags_.micro_batch, kMicroBatchFlag);
    const auto accum =
        batch_field("gradient_accumulation_steps", flags_.grad_accum, kGradAccumFlag);
    if (!train && !micro && !auto_batch_key_.empty()) {
      root_.fail(
          root_.is_auto("train_micro_batch_size_per_gpu") ? "train_micro_batch_size_per_gpu"
                                                          : auto_batch_key_,
          format("found \"auto\", but no flag gives the micro batch; expected a number or {}",
                 kMicroBatchFlag),
          "auto_batch_unresolved");
    }
    const BatchTriple batch = resolve_batch(train, micro, accum, world_size_, batch_location());
    strategy_.train_batch = batch.train_batch;
    strategy_.micro_batch = batch.micro_batch;
    strategy_.grad_accum = batch.grad_accum;
    list_derived("train_batch_size", train, batch.train_batch);
    list_derived("train_micro_batch_size_per_gpu", micro, batch.micro_batch);
    list_derived("gradient_accumulation_steps", accum, batch.grad_accum);
    check_flag("train_micro_batch_size_per_gpu", batch.micro_batch, flags_.micro_batch,
               kMicroBatchFlag);
    check_flag("gradient_accumulation_steps", batch.grad_accum, flags_.grad_accum, kGradAccumFlag);
  }

  [[nodiscard]] SourceLocation batch_location() const {
    const JsonValue& root = document_.root();
    for (const char* key :
         {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
      if (root.isMember(key)) return document_.location(root[key]);
    }
    return document_.location(root);
  }

  void list_derived(const char* key, std::optional<std::int64_t> given, std::int64_t value) {
    if (!given) assume(format("{}: {}, from the other batch sizes (A4.1).", key, value));
  }

  /// A derived value that contradicts a flag.
  void check_flag(const char* key, std::int64_t value, std::optional<std::int64_t> flag,
                  const char* flag_name) {
    if (!flag || *flag == value) return;
    throw ConfigError(batch_location(), format("{}: the file gives {}, but the flag {} says {}",
                                               key, value, flag_name, *flag));
  }

  // ---- types ----

  void read_dtypes() {
    const Dtype own = model_dtype(strategy_.precision);
    strategy_.communication_dtype = own;
    if (const auto word = root_.word("communication_data_type", {"fp32", "fp16", "bf16"})) {
      strategy_.communication_dtype = dtype_of_word(*word);
    } else {
      assume(format("communication_data_type: {}, as the model.", to_string(own)));
    }
    if (dtype_bytes(strategy_.communication_dtype) > dtype_bytes(own)) {
      root_.warn("communication_data_type", "communication_data_type_doubles_traffic",
                 format("gradients of {} travel as {}: twice the bytes", to_string(own),
                        to_string(strategy_.communication_dtype)));
    }
    read_data_types(own);
  }

  void read_data_types(Dtype own) {
    strategy_.grad_accum_dtype = own;
    std::optional<ConfigSection> section = root_.section("data_types");
    if (!section) {
      assume(format("data_types.grad_accum_dtype: {}, as the model.", to_string(own)));
      return;
    }
    if (const auto word = section->word("param_dtype", dtype_words())) {
      if (dtype_of_word(*word) != own) {
        section->fail("param_dtype", format("found {}, expected {}, the enabled precision",
                                            section->shown("param_dtype"), to_string(own)));
      }
    }
    static_cast<void>(section->word("buffer_dtype", dtype_words()));
    if (const auto word = section->word("grad_accum_dtype", dtype_words())) {
      accumulate_in(dtype_of_word(*word), own, *section);
    }
  }

  void accumulate_in(Dtype dtype, Dtype own, ConfigSection& section) {
    strategy_.grad_accum_dtype = dtype;
    if (dtype == own) return;
    if (strategy_.zero.stage == 0) {
      section.fail("grad_accum_dtype",
                   format("found {}, but stage 0 accumulates in the model's {} only",
                          section.shown("grad_accum_dtype"), to_string(own)));
    }
    if (strategy_.zero.stage == 2) {
      strategy_.grad_accum_dtype = own;
      section.warn("grad_accum_dtype", "grad_accum_dtype_ignored_at_stage_2",
                   format("stage 2 accumulates in the model's {} whatever is asked for (B3.11)",
                          to_string(own)));
    }
  }

  // ---- gradients ----

  void read_gradients() {
    read_clipping();
    const bool prescale = root_.boolean("prescale_gradients").value_or(false);
    const double predivide = root_.number("gradient_predivide_factor", kNoMinimum).value_or(1);
    const bool scaled = prescale || predivide != 1;
    if (scaled && strategy_.zero.stage >= 2 && strategy_.zero.reduce_scatter) {
      root_.fail(prescale ? "prescale_gradients" : "gradient_predivide_factor",
                 format("found {}, which stage {} refuses while reduce_scatter is true",
                        root_.shown(prescale ? "prescale_gradients" : "gradient_predivide_factor"),
                        strategy_.zero.stage));
    }
    if (scaled) {
      assume(
          "Scaling before the reduction costs what scaling after it costs: the same collectives, "
          "one multiplication.");
    }
    read_reduction_operation();
    reject_if_on(root_, "sparse_gradients", "sparse gradients");
    if (!root_.boolean("managed_gradient_accumulation").value_or(true)) {
      if (strategy_.zero.stage <= 1 && strategy_.zero.overlap_comm) {
        root_.fail("managed_gradient_accumulation",
                   format("found false, which stage {} refuses while overlap_comm is true",
                          strategy_.zero.stage));
      }
      root_.not_simulated("managed_gradient_accumulation", "a loop that marks its own boundaries");
    }
  }

  void read_clipping() {
    // The HF Trainer's max_grad_norm is 1.0 unless told otherwise (A6).
    constexpr double kTrainerMaxGradNorm = 1.0;
    if (fills_auto() && root_.is_auto("gradient_clipping")) {
      strategy_.gradient_clipping = kTrainerMaxGradNorm;
      assume("gradient_clipping: \"auto\" becomes 1.0, the Trainer's default max_grad_norm.");
    } else if (const auto value = root_.number("gradient_clipping", 0)) {
      strategy_.gradient_clipping = *value;
    } else {
      strategy_.gradient_clipping = strategy_.version == "0.14" ? 0.0 : 1.0;
      assume(format("gradient_clipping: {:.1f}, the default of DeepSpeed {}.",
                    strategy_.gradient_clipping, strategy_.version));
    }
  }

  void read_reduction_operation() {
    const std::string operation =
        root_.word("gradient_allreduce_op", {"mean", "sum"}).value_or("mean");
    if (operation == "mean") return;
    if (strategy_.zero.stage == 3) {
      root_.fail("gradient_allreduce_op", R"(found "sum", which stage 3 refuses, expected "mean")");
    }
    root_.not_simulated("gradient_allreduce_op", "sums of gradients");
  }

  // ---- optimizer (A4.4) ----

  void read_optimizer() {
    const bool untested_allowed = root_.boolean("zero_allow_untested_optimizer").value_or(false);
    std::optional<ConfigSection> section = root_.section("optimizer");
    if (!section || !section->is_set("type")) {
      read_client_optimizer();
      return;
    }
    const std::string type = section->object().string("type");
    check_optimizer(*section, lower_case(type), untested_allowed);
    bool torch_adam = false;
    if (section->is_set("params")) {
      // Parameters of optimizers are free-form; "auto" learning rates and the like are accepted.
      JsonObject params = section->object().object("params");
      if (params.has("max_grad_norm")) {
        params.fail("max_grad_norm", "not accepted here, expected gradient_clipping at top level");
      }
      torch_adam = params.optional_boolean("torch_adam").value_or(false);
    }
    strategy_.optimizer = torch_adam ? OptimizerKind::AdamTorchForeach : OptimizerKind::AdamFused;
    if (flags_.optimizer && *flags_.optimizer != strategy_.optimizer) {
      section->fail(
          "type",
          format("found \"{}\", which is {} in DeepSpeed, but the flag {} says {}", type,
                 to_string(strategy_.optimizer), kOptimizerFlag, to_string(*flags_.optimizer)));
    }
  }

  void read_client_optimizer() {
    strategy_.optimizer = flags_.optimizer.value_or(OptimizerKind::AdamFused);
    assume(flags_.optimizer
               ? format("optimizer: the file has none; {}, from the flag {}.",
                        to_string(strategy_.optimizer), kOptimizerFlag)
               : std::string("optimizer: the file has none; torch AdamW (fused) is assumed, as the "
                             "HF Trainer builds it."));
  }

  void check_optimizer(ConfigSection& section, const std::string& type, bool untested_allowed) {
    for (const char* adam : {"adam", "adamw", "fusedadam"}) {
      if (type == adam) return;
    }
    const bool zero = strategy_.zero.stage >= 1;
    for (const char* one_bit : {"onebitadam", "zerooneadam", "onebitlamb"}) {
      if (type == one_bit && zero) {
        section.fail("type",
                     format("found {}, which cannot be combined with ZeRO, expected Adam or "
                            "AdamW",
                            section.shown("type")),
                     "optimizer_incompatible_with_zero");
      }
    }
    bool tested = false;
    for (const char* name :
         {"cpuadam", "adagrad", "cpuadagrad", "lion", "cpulion", "fusedlion", "muon"}) {
      tested = tested || type == name;
    }
    if (zero && !tested && !untested_allowed) {
      const std::vector<std::string> known = {"adam", "adamw",   "fusedadam", "cpuadam",
                                              "lion", "adagrad", "muon"};
      section.fail(
          "type",
          format("found {}, which ZeRO has not been tested with; expected Adam or AdamW, or "
                 "zero_allow_untested_optimizer: true{}",
                 section.shown("type"), did_you_mean(type, known)),
          "untested_optimizer");
    }
    section.not_simulated("type", "optimizers other than Adam and AdamW");
  }

  // ---- timers and logs (0.7) ----

  void read_timers() {
    if (root_.is_set("comms_logger")) {
      std::optional<ConfigSection> section = root_.section("comms_logger");
      for (const char* key : {"enabled", "prof_all", "verbose", "debug"}) {
        static_cast<void>(section->boolean(key));
      }
      static_cast<void>(section->has("prof_ops"));
      section->reject_unknown("unknown_key_fp16");
      strategy_.comms_logger = true;
      root_.warn("comms_logger", "comms_logger_synchronises",
                 "the section alone, whatever its enabled says, makes the host wait for the device "
                 "after every collective");
    }
    strategy_.wall_clock_breakdown = root_.boolean("wall_clock_breakdown").value_or(false);
    if (strategy_.wall_clock_breakdown) {
      root_.warn("wall_clock_breakdown", "wall_clock_breakdown_synchronises",
                 "timers wait for the device in every micro batch");
    }
    read_flops_profiler();
    read_throughput_timer();
  }

  void read_flops_profiler() {
    std::optional<ConfigSection> section = root_.section("flops_profiler");
    if (!section || !section->boolean("enabled").value_or(false)) return;
    strategy_.wall_clock_breakdown = true;  // the profiler forces it (A4)
    assume(
        "flops_profiler: its hooks act in one step only; steady steps are simulated, with "
        "wall_clock_breakdown, which it turns on.");
  }

  void read_throughput_timer() {
    bool enabled = true;
    bool synchronized = true;
    if (std::optional<ConfigSection> timers = root_.section("timers")) {
      if (std::optional<ConfigSection> throughput = timers->section("throughput")) {
        enabled = throughput->boolean("enabled").value_or(true);
        synchronized = throughput->boolean("synchronized").value_or(true);
        throughput->reject_unknown("unknown_key_fp16");
      }
    } else {
      assume(
          "timers.throughput: on, DeepSpeed's default: the host waits for the device around "
          "every micro batch (0.7).");
    }
    strategy_.throughput_timer = enabled && synchronized;
  }

  // ---- everything else ----

  void read_checkpointing() {
    strategy_.checkpointing = flags_.checkpointing.value_or(ActivationCheckpointing::None);
    if (!flags_.checkpointing) {
      assume("Activation checkpointing: none, since no flag asks for it.");
    }
    if (root_.is_set("activation_checkpointing")) {
      assume(
          "activation_checkpointing: the section acts only on models that call DeepSpeed's own "
          "checkpoint function, so it is not simulated.");
    }
    if (strategy_.zero.stage == 3) assume("Stage 3: the model is built inside zero.Init.");
  }

  void read_other_sections() {
    for (const char* key : kTopKeysWithoutEffect) static_cast<void>(root_.has(key));
    for (const NotSimulatedSwitch& option : kNotSimulatedSections) {
      std::optional<ConfigSection> section = root_.section(option.key);
      if (section && section->boolean("enabled").value_or(false)) {
        section->not_simulated("enabled", option.feature);
      }
    }
    for (const NotSimulatedSwitch& option : kNotSimulatedWhenPresent) {
      if (root_.is_set(option.key)) root_.not_simulated(option.key, option.feature);
    }
    read_parallelism();
    note_unknown_keys();
  }

  void read_parallelism() {
    if (root_.integer("sequence_parallel_size", 1).value_or(1) > 1) {
      root_.not_simulated("sequence_parallel_size", "sequence parallelism");
    }
    if (std::optional<ConfigSection> section = root_.section("tensor_parallel")) {
      if (section->integer("autotp_size", 0).value_or(0) > 1) {
        section->not_simulated("autotp_size", "tensor parallelism");
      }
    }
    if (std::optional<ConfigSection> section = root_.section("compile")) {
      if (section->boolean("deepcompile").value_or(false)) {
        section->not_simulated("deepcompile", "DeepCompile");
      }
    }
  }

  void note_unknown_keys() {
    const JsonObject& object = root_.object();
    const std::vector<std::string> known = object.known_keys();
    for (const std::string& key : object.unknown_keys()) {
      const std::string nearest = nearest_name(key, known);
      root_.warn(key, "unknown_key_top",
                 "unknown key, which DeepSpeed ignores" + did_you_mean(key, known));
      if (!nearest.empty()) root_.warn(key, "did_you_mean", nearest);
    }
  }

  // ---- lints: they never change an outcome ----

  void lint_stage3(ConfigSection& zero) {
    const ZeroOptions& options = strategy_.zero;
    if (options.stage != 3) return;
    const std::string prefix = "stage3_";
    const auto given = [&](const char* key) {
      return zero.has(key) ? std::string(key) : prefix + key;
    };
    if (options.param_persistence_threshold == 0) {
      zero.warn(given("param_persistence_threshold"), "persistence_0_gathers_every_bias",
                "0 makes every bias and norm a gather of its own");
    }
    if (options.prefetch_bucket_size == 0) {
      zero.warn(given("prefetch_bucket_size"), "prefetch_disabled",
                "0 gathers each module only when it is needed");
    }
    if (options.max_live_parameters == 0) {
      zero.warn(given("max_live_parameters"), "max_live_0_serialises_gathers",
                "0 leaves no room to look ahead");
    }
  }

  void lint_buckets() {
    std::int64_t total = 0;
    std::int64_t largest = 0;
    for (const Parameter& parameter : model_.parameters) {
      total += parameter.elements;
      largest = std::max(largest, parameter.elements);
    }
    if (total == 0 || strategy_.zero.stage == 0) return;
    const std::int64_t bucket = strategy_.zero.reduce_bucket_size;
    if (bucket > total) {
      warn("bucket_larger_than_model",
           format("reduce_bucket_size {} is above the {} parameters of the model", bucket, total));
    }
    if (bucket < largest) {
      warn("bucket_smaller_than_largest_param",
           format("reduce_bucket_size {} is below the largest parameter of {} elements", bucket,
                  largest));
    }
  }

  void lint() {
    if (world_size_ == 1 && strategy_.zero.stage > 0) {
      warn("dp_degree_1_no_sharding",
           format("stage {} with one data-parallel rank shards nothing", strategy_.zero.stage));
    }
  }

  const JsonDocument& document_;
  const TrainingFlags& flags_;
  const Model& model_;
  int world_size_;
  ConfigNotes notes_;
  ConfigSection root_;
  Strategy strategy_;
  std::string bf16_key_ = "bf16";
  std::optional<bool> bf16_overflow_check_;
  bool amp_enabled_ = false;
  std::string auto_batch_key_;  ///< the first batch field that is "auto"
  std::vector<std::pair<std::string, std::int64_t>> filled_sizes_;  ///< zero keys that were "auto"
};

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
  return DeepSpeedReader(document, flags, model, world_size).read();
}

}  // namespace zerosim
