#include "sim/strategy/trainer_config.h"

#include <algorithm>
#include <utility>

#include "sim/base/text.h"
#include "sim/strategy/ddp_options.h"
#include "sim/strategy/fsdp_config.h"
#include "sim/strategy/implied_deepspeed.h"
#include "sim/strategy/training_values.h"

namespace zerosim {
namespace internal {
namespace {

constexpr const char* kDefault = "the Trainer's default";

/// transformers/training_args.py, OptimizerNames. Bytes a trained element: fp32 weight and moments.
struct TrainerOptimizer {
  const char* name;
  OptimizerKind kind;  ///< if simulated
  int state_bytes;
  bool simulated;
};

constexpr TrainerOptimizer kOptimizers[] = {
    {"adamw_torch", OptimizerKind::AdamTorchForeach, 12, true},
    {"adamw_torch_fused", OptimizerKind::AdamFused, 12, true},
    {"adamw_apex_fused", OptimizerKind::AdamFused, 12, true},
    {"adamw_hf", OptimizerKind::AdamTorch, 12, true},
    // 8-bit moments: one byte each (bitsandbytes), block constants left out.
    {"adamw_8bit", OptimizerKind::Adam8bit, 6, true},
    {"adamw_bnb_8bit", OptimizerKind::Adam8bit, 6, true},
    {"adamw_torch_8bit", OptimizerKind::AdamFused, 6, false},
    {"adamw_torch_4bit", OptimizerKind::AdamFused, 5, false},
    {"paged_adamw_8bit", OptimizerKind::AdamFused, 6, false},
    {"paged_adamw_32bit", OptimizerKind::AdamFused, 12, false},
    {"adamw_anyprecision", OptimizerKind::AdamFused, 12, false},
    {"adamw_torch_xla", OptimizerKind::AdamFused, 12, false},
    {"adamw_torch_npu_fused", OptimizerKind::AdamFused, 12, false},
    {"stable_adamw", OptimizerKind::AdamFused, 12, false},
    {"grokadamw", OptimizerKind::AdamFused, 16, false},
    {"schedule_free_adamw", OptimizerKind::AdamFused, 12, false},
    {"schedule_free_radam", OptimizerKind::AdamFused, 12, false},
    {"schedule_free_sgd", OptimizerKind::AdamFused, 8, false},
    {"ademamix", OptimizerKind::AdamFused, 16, false},
    {"ademamix_8bit", OptimizerKind::AdamFused, 7, false},
    {"paged_ademamix_32bit", OptimizerKind::AdamFused, 16, false},
    {"paged_ademamix_8bit", OptimizerKind::AdamFused, 7, false},
    // One moment, or one of a row and of a column, or none.
    {"lion_32bit", OptimizerKind::AdamFused, 8, false},
    {"lion_8bit", OptimizerKind::AdamFused, 5, false},
    {"paged_lion_32bit", OptimizerKind::AdamFused, 8, false},
    {"paged_lion_8bit", OptimizerKind::AdamFused, 5, false},
    {"adagrad", OptimizerKind::AdamFused, 8, false},
    {"rmsprop", OptimizerKind::AdamFused, 8, false},
    {"rmsprop_bnb", OptimizerKind::AdamFused, 8, false},
    {"rmsprop_bnb_8bit", OptimizerKind::AdamFused, 5, false},
    {"rmsprop_bnb_32bit", OptimizerKind::AdamFused, 8, false},
    {"adafactor", OptimizerKind::AdamFused, 4, false},
    {"sgd", OptimizerKind::AdamFused, 4, false},
    {"lomo", OptimizerKind::AdamFused, 0, false},
    {"adalomo", OptimizerKind::AdamFused, 0, false},
    // Low-rank moments: their size depends on the rank.
    {"galore_adamw", OptimizerKind::AdamFused, 4, false},
    {"galore_adamw_8bit", OptimizerKind::AdamFused, 4, false},
    {"galore_adafactor", OptimizerKind::AdamFused, 4, false},
    {"galore_adamw_layerwise", OptimizerKind::AdamFused, 4, false},
    {"galore_adamw_8bit_layerwise", OptimizerKind::AdamFused, 4, false},
    {"galore_adafactor_layerwise", OptimizerKind::AdamFused, 4, false},
    {"apollo_adamw", OptimizerKind::AdamFused, 4, false},
    {"apollo_adamw_layerwise", OptimizerKind::AdamFused, 4, false},
};

/// Words of the `fsdp` argument (transformers/trainer_utils.py, FSDPOption).
const std::vector<std::string>& fsdp_words() {
  static const std::vector<std::string> kWords = {"full_shard",   "shard_grad_op",      "no_shard",
                                                  "hybrid_shard", "hybrid_shard_zero2", "auto_wrap",
                                                  "offload"};
  return kWords;
}

class TrainerReader {
 public:
  TrainerReader(const JsonDocument& document, const TrainingFlags& flags, const Model& model,
                int world_size)
      : reading_(document, flags, model, world_size), root_(reading_.root) {}

  Strategy read() {
    Strategy& strategy = reading_.strategy;
    const bool has_fsdp = read_fsdp_argument();
    const bool has_deepspeed = is_given("deepspeed");
    check_frameworks(has_fsdp, has_deepspeed);
    strategy.micro_batch = count_or_flag(reading_, "per_device_train_batch_size",
                                         reading_.flags.micro_batch, "--micro-batch", 8, kDefault);
    strategy.grad_accum = count_or_flag(reading_, "gradient_accumulation_steps",
                                        reading_.flags.grad_accum, "--grad-accum", 1, kDefault);
    read_precision();
    read_checkpointing();
    read_optimizer();
    strategy.gradient_clipping =
        root_.number_or("max_grad_norm", 1.0, 0, 1e30, {.reason = kDefault});
    note_compilation();
    if (has_deepspeed) return read_deepspeed();
    if (has_fsdp) {
      read_fsdp();
    } else {
      read_ddp();
    }
    complete_torch_strategy(reading_);
    if (has_fsdp) lint(*fsdp_section_);
    return finished(reading_);
  }

  /// The file is the `fsdp_config` itself.
  Strategy read_fsdp_config_alone() {
    Strategy& strategy = reading_.strategy;
    const char* unknown = "assumed, since this file does not say";
    strategy.framework = Framework::Fsdp;
    argument_.auto_wrap = true;
    list_absent(reading_, "fsdp", "full_shard auto_wrap", Origin::Default, unknown);
    strategy.micro_batch =
        listed_flag(reading_.flags.micro_batch, "per_device_train_batch_size", "--micro-batch");
    strategy.grad_accum =
        listed_flag(reading_.flags.grad_accum, "gradient_accumulation_steps", "--grad-accum");
    strategy.precision = reading_.flags.precision.value_or(Precision::Bf16);
    list_absent(reading_, "precision", std::string(to_string(strategy.precision)),
                reading_.flags.precision ? Origin::Flag : Origin::Default,
                reading_.flags.precision ? "the flag --precision" : unknown);
    set_checkpointing(reading_, root_, "gradient_checkpointing", std::nullopt, unknown);
    strategy.optimizer = reading_.flags.optimizer.value_or(OptimizerKind::AdamFused);
    list_absent(reading_, "optim",
                reading_.flags.optimizer ? std::string(to_string(strategy.optimizer))
                                         : std::string("adamw_torch_fused"),
                reading_.flags.optimizer ? Origin::Flag : Origin::Default,
                reading_.flags.optimizer ? "the flag --optimizer" : kDefault);
    list_absent(reading_, "max_grad_norm", "1.0", Origin::Default, kDefault);
    ConfigSection section(JsonObject(reading_.document, reading_.document.root(), "fsdp_config"),
                          ConfigSection::Kind::Typed, reading_.notes, "fsdp_config");
    read_trainer_fsdp(reading_, section, argument_);
    complete_torch_strategy(reading_);
    lint(section);
    return finished(reading_);
  }

 private:
  /// Not null, not "", not an empty list or mapping: what Python takes for true.
  [[nodiscard]] bool is_given(const std::string& key) {
    const JsonValue& value = root_.object().raw(key);
    if (value.isNull()) return false;
    if (value.isBool()) return value.asBool();
    if (value.isString()) return !value.asString().empty();
    return value.isNumeric() || !value.empty();
  }

  [[nodiscard]] std::int64_t listed_flag(std::optional<std::int64_t> flag, const std::string& key,
                                         const std::string& flag_name) {
    if (flag && *flag < 1) {
      throw ConfigError(format("{}: found {}, expected at least 1", flag_name, *flag));
    }
    list_absent(reading_, key, std::to_string(flag.value_or(1)),
                flag ? Origin::Flag : Origin::Default,
                flag ? format("the flag {}", flag_name)
                     : std::string("assumed, since this file does not say"));
    return flag.value_or(1);
  }

  // ---- which framework ----

  /// "full_shard auto_wrap", a list of such words, or true.
  [[nodiscard]] bool read_fsdp_argument() {
    if (!is_given("fsdp")) return false;
    const JsonValue& value = root_.object().raw("fsdp");
    std::vector<std::string> words;
    if (value.isBool()) {
      words = {"full_shard"};
    } else if (value.isArray()) {
      words = *root_.strings("fsdp");
    } else {
      words = split(*root_.string("fsdp"), ' ');
      std::erase(words, "");
    }
    apply_fsdp_words(words);
    root_.list("fsdp", join(words, " "), Origin::File);
    return true;
  }

  void apply_fsdp_words(const std::vector<std::string>& words) {
    const std::vector<std::string>& known = fsdp_words();
    std::vector<std::string> shardings;
    for (const std::string& word : words) {
      if (std::find(known.begin(), known.end(), word) == known.end()) {
        root_.fail("fsdp",
                   format("found \"{}\", expected words of {}{}", word, join(known, ", "),
                          did_you_mean(word, known)),
                   "unknown_value");
      }
      argument_.auto_wrap = argument_.auto_wrap || word == "auto_wrap";
      argument_.offload = argument_.offload || word == "offload";
      if (word != "auto_wrap" && word != "offload") shardings.push_back(word);
    }
    if (shardings.empty() && argument_.offload) {
      root_.fail("fsdp",
                 "found offload without a strategy, expected full_shard or shard_grad_op beside it",
                 "fsdp_bad_combination");
    }
    if (shardings.size() > 1) {
      root_.fail("fsdp", format("found {} together, expected one", join(shardings, " and ")),
                 "fsdp_bad_combination");
    }
    if (shardings.empty()) return;  // full_shard, the plugin's default
    const std::vector<std::string>& names = fsdp_sharding_names();
    const auto found = std::find(names.begin(), names.end(), upper_case(shardings.front()));
    argument_.sharding = static_cast<FsdpSharding>(found - names.begin());
  }

  void check_frameworks(bool has_fsdp, bool has_deepspeed) {
    if (has_fsdp && has_deepspeed) {
      root_.fail("fsdp", "found together with deepspeed, expected at most one of them",
                 "fsdp_and_deepspeed");
    }
    if (!has_fsdp && is_given("fsdp_config")) {
      root_.warn("fsdp_config", "fsdp_config_without_fsdp", "no effect without fsdp");
    }
    reading_.strategy.framework = has_deepspeed              ? Framework::DeepSpeed
                                  : has_fsdp                 ? Framework::Fsdp
                                  : reading_.world_size == 1 ? Framework::Single
                                                             : Framework::Ddp;
  }

  // ---- common values ----

  void read_precision() {
    const std::optional<bool> bf16 = root_.boolean("bf16");
    const std::optional<bool> fp16 = root_.boolean("fp16");
    if (bf16.value_or(false) && fp16.value_or(false)) {
      root_.fail("fp16", "found true together with bf16, expected at most one of them",
                 "fp16_and_bf16");
    }
    const char* key = fp16.value_or(false) ? "fp16" : "bf16";
    std::optional<Precision> precision;
    if (bf16 || fp16) {
      precision = bf16.value_or(false)   ? Precision::Bf16
                  : fp16.value_or(false) ? Precision::Fp16
                                         : Precision::Fp32;
    }
    if (!bf16 && fp16) key = "fp16";
    set_precision(reading_, key, "precision", precision, kDefault);
    precision_key_ = key;
    reading_.strategy.tf32 = root_.boolean("tf32").value_or(false);
    root_.list_if_set("tf32");
    if (root_.boolean("pure_bf16").value_or(false)) {  // LLaMA-Factory: bf16 weights, no fp32 ones
      set_not_simulated(reading_, root_, "pure_bf16", "training without fp32 weights");
    }
  }

  void read_checkpointing() {
    set_checkpointing(reading_, root_, "gradient_checkpointing",
                      root_.boolean("gradient_checkpointing"), kDefault);
    reading_.strategy.liger_kernel = root_.boolean("use_liger_kernel").value_or(false);
    root_.list_if_set("use_liger_kernel");
  }

  void read_optimizer() {
    const std::optional<std::string> name = root_.string("optim");
    const std::optional<OptimizerKind> flag = reading_.flags.optimizer;
    Strategy& strategy = reading_.strategy;
    if (!name) {
      strategy.optimizer = flag.value_or(OptimizerKind::AdamFused);
      root_.list("optim", flag ? std::string(to_string(*flag)) : "adamw_torch_fused",
                 flag ? Origin::Flag : Origin::Default,
                 {.reason = flag ? "the flag --optimizer" : kDefault});
      return;
    }
    const TrainerOptimizer& optimizer = known_optimizer(*name);
    strategy.optimizer = optimizer.kind;
    strategy.optimizer_state_bytes = optimizer.state_bytes;
    if (!optimizer.simulated) {
      strategy.optimizer_name = *name;
      set_not_simulated(reading_, root_, "optim", format("the optimizer {}", *name));
    } else if (flag) {
      check_flag(root_, "optim", std::string(to_string(optimizer.kind)), "--optimizer",
                 std::string(to_string(*flag)));
    }
    root_.list("optim", *name, Origin::File);
  }

  [[nodiscard]] const TrainerOptimizer& known_optimizer(const std::string& given) {
    // "paged_adamw" is the older name of paged_adamw_32bit, "lion" of lion_32bit.
    const std::string name = given == "paged_adamw" || given == "lion" || given == "paged_lion"
                                 ? given + "_32bit"
                                 : given;
    std::vector<std::string> known;
    for (const TrainerOptimizer& optimizer : kOptimizers) {
      if (name == optimizer.name) return optimizer;
      known.emplace_back(optimizer.name);
    }
    root_.fail("optim",
               format("found {}, which transformers does not know{}", root_.shown("optim"),
                      did_you_mean(name, known)),
               "unknown_optimizer");
  }

  void note_compilation() {
    if (!root_.boolean("torch_compile").value_or(false)) return;
    reading_.strategy.compiled = true;
    reading_.notes.assumptions.emplace_back(
        "torch_compile: the element-wise kernels of blocks are fused; the loss is not.");
  }

  // ---- DDP (transformers/trainer.py, _wrap_model) ----

  void read_ddp() {
    if (reading_.strategy.framework == Framework::Single) return;
    read_bucket_cap();
    read_find_unused_parameters();
    read_broadcast_buffers();
  }

  void read_broadcast_buffers() {
    const char* key = "ddp_broadcast_buffers";
    const std::optional<bool> in_file = root_.boolean(key);
    const std::optional<bool> flag = reading_.flags.ddp.broadcast_buffers;
    if (in_file && flag) {
      check_flag(root_, key, truth(*in_file), "--ddp-no-broadcast-buffers", truth(*flag));
    }
    const bool value = in_file.value_or(flag.value_or(true));
    reading_.strategy.ddp.broadcast_buffers = value;
    root_.list(key, truth(value),
               in_file ? Origin::File
               : flag  ? Origin::Flag
                       : Origin::Default,
               {.reason = flag ? "the flag --ddp-no-broadcast-buffers" : "PyTorch's default"});
  }

  void read_bucket_cap() {
    const char* key = "ddp_bucket_cap_mb";
    const std::optional<double> in_file = root_.number(key, 0);
    const std::optional<double> flag = reading_.flags.ddp.bucket_cap_mib;
    const auto text = [](double mib) { return to_text(JsonValue(mib), false); };
    if (in_file && flag) {
      check_flag(root_, key, text(*in_file), "--ddp-bucket-cap-mb", text(*flag));
    }
    DdpOptions& ddp = reading_.strategy.ddp;
    if (in_file) {
      set_bucket_cap(ddp, *in_file,
                     parse_torch_version(reading_.flags.torch_version, "--torch-version"));
    }
    root_.list(
        key, text(in_file.value_or(flag.value_or(ddp.bucket_cap_mib))),
        in_file ? Origin::File
        : flag  ? Origin::Flag
                : Origin::Default,
        {.unit = "MiB", .reason = flag ? "the flag --ddp-bucket-cap-mb" : "PyTorch's default"});
  }

  void read_find_unused_parameters() {
    const char* key = "ddp_find_unused_parameters";
    const bool recomputes = reading_.strategy.checkpointing != ActivationCheckpointing::None;
    const std::optional<bool> in_file = root_.boolean(key);
    const std::optional<bool> flag = reading_.flags.ddp.find_unused_parameters;
    if (in_file && flag) {
      check_flag(root_, key, truth(*in_file), "--ddp-find-unused-parameters", truth(*flag));
    }
    const bool value = in_file.value_or(flag.value_or(!recomputes));
    reading_.strategy.ddp.find_unused_parameters = value;
    const char* tools = recomputes ? "the Trainer's default with gradient_checkpointing"
                                   : "the Trainer's default without gradient_checkpointing";
    root_.list(key, truth(value),
               in_file ? Origin::File
               : flag  ? Origin::Flag
                       : Origin::Default,
               {.reason = flag ? "the flag --ddp-find-unused-parameters" : tools});
    if (value) {
      reading_.notes.assumptions.emplace_back(
          "ddp_find_unused_parameters: the host's walk through the graph is not simulated.");
    }
  }

  // ---- FSDP ----

  void read_fsdp() {
    if (root_.object().raw("fsdp_config").isString() && is_given("fsdp_config")) {
      std::string path;
      const std::string text = read_named_file(root_, "fsdp_config", path);
      root_.list("fsdp_config", path, Origin::File);
      const JsonDocument document = JsonDocument::from_strict_json(text, path);
      fsdp_section_.emplace(JsonObject(document, document.root(), "fsdp_config"),
                            ConfigSection::Kind::Typed, reading_.notes, "fsdp_config");
    } else {
      fsdp_section_.emplace(is_given("fsdp_config") ? *root_.section("fsdp_config")
                                                    : root_.section_or_empty("fsdp_config"));
    }
    const bool recomputes = reading_.strategy.checkpointing != ActivationCheckpointing::None;
    read_trainer_fsdp(reading_, *fsdp_section_, argument_);
    reading_.strategy.fsdp.checkpoints_around_units = recomputes;
    check_checkpointing(recomputes);
  }

  /// Trainer.create_accelerator_and_postprocess refuses both; __post_init__ warns of the Trainer's.
  void check_checkpointing(bool gradient_checkpointing) {
    if (!gradient_checkpointing) return;
    for (const char* key : {"fsdp_activation_checkpointing", "activation_checkpointing"}) {
      if (!fsdp_section_->object().has(key)) continue;
      if (!fsdp_section_->boolean(key).value_or(false)) continue;
      fsdp_section_->fail(key,
                          "found true together with gradient_checkpointing, expected at most one "
                          "of them",
                          "fsdp_bad_combination");
    }
    const FsdpSharding sharding = reading_.strategy.fsdp.sharding;
    if (sharding == FsdpSharding::FullShard || sharding == FsdpSharding::HybridShard) {
      root_.warn("gradient_checkpointing", "fsdp_checkpointing_gathers_again",
                 "with full sharding it gathers each unit once more in backward; "
                 "activation_checkpointing in fsdp_config does not");
    }
  }

  void lint(ConfigSection& section) {
    const std::int64_t node = reading_.flags.gpus_per_node.value_or(0);
    const std::int64_t nodes = node > 0 ? (reading_.world_size + node - 1) / node : std::int64_t{0};
    lint_fsdp(reading_, section, nodes);
  }

  // ---- DeepSpeed ----

  /// The Trainer hands its values to DeepSpeed: "auto" becomes them, others must agree
  /// (transformers/integrations/deepspeed.py, trainer_config_process).
  Strategy read_deepspeed() {
    Strategy& own = reading_.strategy;
    TrainingFlags flags = reading_.flags;
    FlagNames names;
    const auto take = [&](auto& flag, auto value, const std::string& flag_name,
                          const std::string& key) {
      if (!flag) {
        names.push_back({"the flag " + flag_name, key});
        names.push_back({flag_name, key});
      }
      flag = value;
    };
    flags.config_as = ConfigMode::Auto;
    take(flags.micro_batch, own.micro_batch, "--micro-batch", "per_device_train_batch_size");
    take(flags.grad_accum, own.grad_accum, "--grad-accum", "gradient_accumulation_steps");
    take(flags.precision, own.precision, "--precision", precision_key_);
    take(flags.checkpointing, own.checkpointing, "--checkpointing", "gradient_checkpointing");
    if (is_adam()) take(flags.optimizer, own.optimizer, "--optimizer", "optim");
    return root_.object().raw("deepspeed").isString() ? read_named(flags, names)
                                                      : read_inline(flags, names);
  }

  [[nodiscard]] bool is_adam() const { return reading_.strategy.optimizer_name == "adamw"; }

  Strategy read_named(TrainingFlags flags, const FlagNames& names) {
    std::string path;
    const std::string text = read_named_file(root_, "deepspeed", path);
    root_.list("deepspeed", path, Origin::File);
    const JsonDocument document = JsonDocument::from_strict_json(text, path);
    if (!document.duplicates().empty()) flags.config_as = ConfigMode::HuggingFace;
    drop_optimizer_flag(document.root(), flags);
    Strategy deepspeed = read_with_names(names, [&] {
      return parse_deepspeed_config(text, path, flags, reading_.model, reading_.world_size);
    });
    return merged(std::move(deepspeed), document.root());
  }

  Strategy read_inline(TrainingFlags flags, const FlagNames& names) {
    const JsonValue& value = root_.object().raw("deepspeed");
    if (!value.isObject()) {
      root_.fail("deepspeed",
                 format("found {}, expected a path or a mapping", root_.shown("deepspeed")),
                 "wrong_type");
    }
    ImpliedDeepSpeed implied(root_.value_place("deepspeed"), "the Trainer");
    implied.copy(reading_.document, value);
    drop_optimizer_flag(value, flags);
    Strategy deepspeed = read_with_names(
        names, [&] { return implied.read(flags, reading_.model, reading_.world_size); });
    return merged(std::move(deepspeed), value);
  }

  /// An optimizer section overrides `optim`.
  static void drop_optimizer_flag(const JsonValue& deepspeed, TrainingFlags& flags) {
    if (deepspeed.isObject() && deepspeed.isMember("optimizer")) flags.optimizer.reset();
  }

  Strategy merged(Strategy deepspeed, const JsonValue& file) {
    fill_clipping(deepspeed, file);
    if (!file.isMember("optimizer") && !is_adam()) {
      deepspeed.optimizer_name = reading_.strategy.optimizer_name;
      deepspeed.optimizer_state_bytes = reading_.strategy.optimizer_state_bytes;
    }
    return finished_with(reading_, std::move(deepspeed));
  }

  /// "auto" is max_grad_norm (A6), which the DeepSpeed reader takes to be its default.
  void fill_clipping(Strategy& deepspeed, const JsonValue& file) {
    const JsonValue& value = file["gradient_clipping"];
    if (!value.isString() || value.asString() != "auto") return;
    deepspeed.gradient_clipping = reading_.strategy.gradient_clipping;
    for (Setting& setting : deepspeed.settings) {
      if (setting.key != "gradient_clipping") continue;
      setting.value = to_text(JsonValue(deepspeed.gradient_clipping), false);
      setting.reason = "max_grad_norm";
    }
    std::erase_if(deepspeed.assumptions,
                  [](const std::string& text) { return text.starts_with("gradient_clipping:"); });
    deepspeed.assumptions.push_back(format("gradient_clipping: \"auto\" becomes {}, max_grad_norm.",
                                           to_text(JsonValue(deepspeed.gradient_clipping), false)));
  }

  TrainingReading reading_;
  ConfigSection& root_;
  FsdpArgument argument_;
  std::optional<ConfigSection> fsdp_section_;
  std::string precision_key_;
};

}  // namespace
}  // namespace internal

const std::vector<std::string>& training_argument_keys() {
  static const std::vector<std::string> kKeys = {
      "output_dir",
      "per_device_train_batch_size",
      "per_device_eval_batch_size",
      "learning_rate",
      "num_train_epochs",
      "max_steps",
      "lr_scheduler_type",
      "warmup_ratio",
      "warmup_steps",
      "weight_decay",
      "logging_steps",
      "save_steps",
      "save_strategy",
      "eval_strategy",
      "gradient_accumulation_steps",
      "gradient_checkpointing",
      "gradient_checkpointing_kwargs",
      "max_grad_norm",
      "optim",
      "bf16",
      "fp16",
      "tf32",
      "seed",
      "report_to",
      "model_name_or_path",
      "dataset_name",
      "torch_dtype",
      "dtype",
      "torch_compile",
      "use_liger_kernel",
      "deepspeed",
      "fsdp",
      "ddp_bucket_cap_mb",
      "ddp_find_unused_parameters",
      "ddp_broadcast_buffers",
      "ddp_timeout",
      "stage",
      "finetuning_type",
      "cutoff_len",
  };
  return kKeys;
}

Strategy read_training_arguments(const JsonDocument& document, const TrainingFlags& flags,
                                 const Model& model, int world_size) {
  return internal::TrainerReader(document, flags, model, world_size).read();
}

Strategy read_fsdp_config(const JsonDocument& document, const TrainingFlags& flags,
                          const Model& model, int world_size) {
  return internal::TrainerReader(document, flags, model, world_size).read_fsdp_config_alone();
}

}  // namespace zerosim
