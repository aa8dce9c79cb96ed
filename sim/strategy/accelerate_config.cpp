#include "sim/strategy/accelerate_config.h"

#include <algorithm>
#include <utility>

#include "sim/base/text.h"
#include "sim/strategy/fsdp_config.h"
#include "sim/strategy/fsdp_options.h"
#include "sim/strategy/implied_deepspeed.h"
#include "sim/strategy/training_values.h"

namespace zerosim {
namespace internal {
namespace {

/// What accelerate/utils/dataclasses.py calls DistributedType, and what becomes of it.
struct DistributedType {
  const char* name;
  Framework framework;
  const char* not_simulated;  ///< nullptr: it is
};

constexpr DistributedType kDistributedTypes[] = {
    {"NO", Framework::Single, nullptr},
    {"MULTI_GPU", Framework::Ddp, nullptr},
    {"DEEPSPEED", Framework::DeepSpeed, nullptr},
    {"FSDP", Framework::Fsdp, nullptr},
    {"MULTI_CPU", Framework::Ddp, "training on CPUs"},
    {"MULTI_NPU", Framework::Ddp, "accelerators other than GPUs"},
    {"MULTI_MLU", Framework::Ddp, "accelerators other than GPUs"},
    {"MULTI_SDAA", Framework::Ddp, "accelerators other than GPUs"},
    {"MULTI_MUSA", Framework::Ddp, "accelerators other than GPUs"},
    {"MULTI_XPU", Framework::Ddp, "accelerators other than GPUs"},
    {"MULTI_HPU", Framework::Ddp, "accelerators other than GPUs"},
    {"XLA", Framework::Ddp, "PyTorch/XLA"},
    {"TPU", Framework::Ddp, "PyTorch/XLA"},
    {"MEGATRON_LM", Framework::Ddp, "Megatron-LM"},
    {"TP", Framework::Ddp, "tensor parallelism"},
};

/// DeepSpeedPlugin refuses these beside deepspeed_config_file (_deepspeed_config_checks).
constexpr const char* kFieldsOfTheDeepSpeedFile[] = {
    "gradient_accumulation_steps", "gradient_clipping",      "zero_stage",
    "offload_optimizer_device",    "offload_param_device",   "offload_param_nvme_path",
    "offload_optimizer_nvme_path", "zero3_save_16bit_model",
};

/// Keys of deepspeed_config that say how to start processes.
constexpr const char* kDeepSpeedLaunchKeys[] = {
    "deepspeed_hostfile",           "deepspeed_exclusion_filter",    "deepspeed_inclusion_filter",
    "deepspeed_multinode_launcher", "deepspeed_multi_node_launcher",
};

/// What an "auto" gradient_clipping becomes (accelerator.py, _prepare_deepspeed) is no Trainer's.
const FlagName kClipping = {"the Trainer's default max_grad_norm", "accelerate's default"};

class AccelerateReader {
 public:
  AccelerateReader(const JsonDocument& document, const TrainingFlags& flags, const Model& model,
                   int world_size)
      : reading_(document, flags, model, world_size), root_(reading_.root) {}

  Strategy read() {
    reject_unknown_keys();
    read_environment();
    read_distributed_type();
    read_processes();
    read_precision();
    read_other_keys();
    if (type_->framework == Framework::DeepSpeed) return read_deepspeed();
    read_torch();
    return finished(reading_);
  }

 private:
  void reject_unknown_keys() {
    const std::vector<std::string>& known = accelerate_keys();
    for (const std::string& key : known) static_cast<void>(root_.has(key));
    const std::vector<std::string> unknown = root_.object().unknown_keys();
    if (unknown.empty()) return;
    const std::string& key = unknown.front();
    throw ConfigError(reading_.document.key_location(root_.object().value(), key),
                      format("{}: unknown key, which accelerate refuses at the top of its file{}",
                             key, did_you_mean(key, known)),
                      "unknown_key_accelerate");
  }

  void read_environment() {
    const std::string name =
        root_.word("compute_environment", {"LOCAL_MACHINE", "AMAZON_SAGEMAKER"})
            .value_or("LOCAL_MACHINE");
    if (name != "LOCAL_MACHINE") {
      root_.fail("compute_environment",
                 "found \"AMAZON_SAGEMAKER\", whose files hold other keys; expected LOCAL_MACHINE",
                 "unknown_value");
    }
    root_.list_if_set("compute_environment");
  }

  /// YAML reads an unquoted NO as false.
  void read_distributed_type() {
    const char* key = "distributed_type";
    std::vector<std::string> names;
    for (const DistributedType& type : kDistributedTypes) names.emplace_back(type.name);
    const JsonValue& value = root_.object().raw(key);
    const bool is_no = value.isBool() && !value.asBool();
    if (!is_no && !root_.is_set(key)) {
      root_.fail(key, format("missing, expected one of {}", join(names, ", ")), "unknown_value");
    }
    const std::string name = is_no ? "NO" : *root_.word(key, names);
    type_ = std::find_if(std::begin(kDistributedTypes), std::end(kDistributedTypes),
                         [&](const DistributedType& type) { return name == type.name; });
    root_.list(key, name, Origin::File);
    reading_.strategy.framework = type_->framework;
    if (type_->not_simulated != nullptr) {
      set_not_simulated(reading_, root_, key, type_->not_simulated);
    }
  }

  void read_processes() {
    nodes_ = root_.integer_or("num_machines", 1, 1, {.reason = "accelerate's default"});
    if (const auto rank = root_.integer("machine_rank", 0)) root_.list_if_set("machine_rank");
    const std::optional<std::int64_t> processes = root_.integer("num_processes", -1);
    if (processes && *processes == 0) {
      root_.fail("num_processes", "found 0, expected an integer of at least 1", "out_of_range");
    }
    if (!processes || *processes == -1) {  // given to `accelerate launch` instead
      root_.list("num_processes", std::to_string(reading_.world_size), Origin::Flag,
                 {.reason = "the number of GPUs"});
    } else {
      list_processes(*processes);
    }
    check_single();
    if (reading_.world_size % nodes_ != 0) {
      root_.fail(
          "num_machines",
          format("found {}, which does not divide the {} processes", nodes_, reading_.world_size),
          "world_size_mismatch");
    }
  }

  /// The number of GPUs asked for wins, as `accelerate launch --num_processes` does.
  void list_processes(std::int64_t processes) {
    if (processes == reading_.world_size) {
      root_.list("num_processes", std::to_string(processes), Origin::File);
      return;
    }
    root_.list("num_processes", std::to_string(reading_.world_size), Origin::Flag,
               {.reason = format("the number of GPUs; the file says {}", processes)});
    root_.warn("num_processes", "num_processes_overridden",
               format("found {}, read for {} GPUs, as with `accelerate launch --num_processes {}`",
                      processes, reading_.world_size, reading_.world_size));
  }

  void check_single() {
    if (type_->framework != Framework::Single || reading_.world_size == 1) return;
    root_.fail("distributed_type",
               format("found NO, which starts one process, but the simulated cluster has {} GPUs; "
                      "expected MULTI_GPU, FSDP or DEEPSPEED",
                      reading_.world_size),
               "world_size_mismatch");
  }

  /// "no", fp16, bf16 or fp8; YAML reads an unquoted no as false. Old files have `fp16: true`.
  void read_precision() {
    const char* key = "mixed_precision";
    const JsonValue& value = root_.object().raw(key);
    std::optional<Precision> precision;
    if (value.isBool() && !value.asBool()) {
      precision = Precision::Fp32;
    } else if (const auto word = root_.word(key, {"no", "fp16", "bf16", "fp8"})) {
      precision = *word == "no"     ? Precision::Fp32
                  : *word == "fp16" ? Precision::Fp16
                                    : Precision::Bf16;
      if (*word == "fp8") set_not_simulated(reading_, root_, key, "fp8 training");
    } else if (root_.boolean("fp16").value_or(false)) {
      root_.warn("fp16", "old_name",
                 "an older name that is still read; the name is mixed_precision");
      key = "fp16";
      precision = Precision::Fp16;
    }
    states_precision_ = precision.has_value();
    precision_key_ = key;
    set_precision(reading_, key, "mixed_precision", precision, "accelerate's default");
  }

  void read_other_keys() {
    if (root_.boolean("use_cpu").value_or(false)) {
      set_not_simulated(reading_, root_, "use_cpu", "training on CPUs");
    }
    read_dynamo();
    read_parallelism();
    if (root_.is_set("megatron_lm_config") && type_->name == std::string("MEGATRON_LM")) {
      root_.list_if_set("megatron_lm_config");
    }
    for (const char* key : {"gpu_ids", "rdzv_backend", "same_network", "main_training_function",
                            "enable_cpu_affinity", "downcast_bf16", "debug"}) {
      root_.list_if_set(key);
    }
  }

  /// torch.compile changes kernels, not communication.
  void read_dynamo() {
    std::string backend;
    if (root_.is_set("dynamo_backend")) backend = root_.string("dynamo_backend").value_or("NO");
    if (std::optional<ConfigSection> dynamo = root_.section("dynamo_config")) {
      for (const std::string& key : dynamo->object().keys()) {
        if (key.ends_with("backend")) backend = dynamo->string(key).value_or("NO");
      }
    }
    if (backend.empty() || lower_case(backend) == "no") return;
    reading_.notes.assumptions.push_back(
        format("dynamo_backend: {}: compiled kernels are not simulated, eager ones are.", backend));
  }

  /// Sizes of the device mesh (accelerate/parallelism_config.py): their product is the world.
  void read_parallelism() {
    std::optional<ConfigSection> section = root_.section("parallelism_config");
    if (!section || section->object().keys().empty()) return;
    const auto size = [&](const std::string& name) {
      const std::string prefixed = "parallelism_config_" + name;
      return section->integer_or(section->has(prefixed) ? prefixed : name, 1, 1,
                                 {.matters = false});
    };
    replicas_ = size("dp_replicate_size");
    const std::int64_t shards = size("dp_shard_size");
    std::int64_t product = 0;
    bool overflow = __builtin_mul_overflow(replicas_, shards, &product);
    for (const char* name : {"tp_size", "cp_size", "sp_size"}) {
      const std::int64_t other = size(name);
      overflow = __builtin_mul_overflow(product, other, &product) || overflow;
      const std::string key = std::string("parallelism_config_") + name;
      if (other > 1) {
        set_not_simulated(reading_, *section, section->has(key) ? key : name,
                          "tensor, context or sequence parallelism");
      }
    }
    if (overflow || product != reading_.world_size) {
      throw ConfigError(root_.value_place("parallelism_config"),
                        format("parallelism_config: the product of its sizes is {}, but the "
                               "simulated cluster has {} GPUs",
                               overflow ? std::string("beyond 64 bits") : std::to_string(product),
                               reading_.world_size),
                        "world_size_mismatch");
    }
    reading_.data_parallel_size = replicas_ * shards;
    for (const char* key : {"cp_comm_strategy", "cp_backend", "sp_backend", "sp_seq_length",
                            "sp_seq_length_is_variable", "sp_attn_implementation"}) {
      static_cast<void>(section->has(key));
      static_cast<void>(section->has(std::string("parallelism_config_") + key));
    }
    section->warn_unknown("unknown_key_plugin", "which accelerate ignores");
  }

  // ---- DDP, FSDP, one GPU ----

  void read_torch() {
    Strategy& strategy = reading_.strategy;
    const TrainingFlags& flags = reading_.flags;
    const char* script = "the training script's; assumed, since no flag says otherwise";
    strategy.micro_batch = flag_or(flags.micro_batch, "micro_batch", "--micro-batch", script);
    strategy.grad_accum =
        flag_or(flags.grad_accum, "gradient_accumulation_steps", "--grad-accum", script);
    ConfigSection fsdp = root_.section_or_empty("fsdp_config");
    if (type_->framework == Framework::Fsdp) {
      read_accelerate_fsdp(reading_, fsdp);
      apply_replicas();
    } else {
      set_checkpointing(reading_, root_, "activation_checkpointing", std::nullopt, script);
    }
    strategy.optimizer = flags.optimizer.value_or(OptimizerKind::AdamTorchForeach);
    list_absent(reading_, "optimizer", std::string(to_string(strategy.optimizer)),
                flags.optimizer ? Origin::Flag : Origin::Default,
                flags.optimizer ? "the flag --optimizer" : script);
    strategy.gradient_clipping = 0;
    list_absent(reading_, "gradient_clipping", "0.0", Origin::Default, script);
    complete_torch_strategy(reading_);
    if (type_->framework == Framework::Fsdp) lint_fsdp(reading_, fsdp, nodes_);
  }

  [[nodiscard]] std::int64_t flag_or(std::optional<std::int64_t> flag, const std::string& key,
                                     const std::string& flag_name, const std::string& reason) {
    if (flag && *flag < 1) {
      throw ConfigError(format("{}: found {}, expected at least 1", flag_name, *flag));
    }
    list_absent(reading_, key, std::to_string(flag.value_or(1)),
                flag ? Origin::Flag : Origin::Default,
                flag ? format("the flag {}", flag_name) : reason);
    return flag.value_or(1);
  }

  /// Replicas of the mesh make version 2 a hybrid strategy.
  void apply_replicas() {
    FsdpOptions& fsdp = reading_.strategy.fsdp;
    if (fsdp.version == 1 && is_hybrid(fsdp.sharding) && !reading_.flags.gpus_per_node) {
      fsdp.shard_group = reading_.world_size / nodes_;
    }
    if (replicas_ == 1 || fsdp.version != 2) return;
    fsdp.shard_group = reading_.data_parallel_size / replicas_;
    fsdp.sharding =
        fsdp.reshard_after_forward ? FsdpSharding::HybridShard : FsdpSharding::HybridShardZero2;
    list_absent(reading_, "fsdp_config.fsdp_sharding_strategy",
                fsdp_sharding_names()[static_cast<std::size_t>(fsdp.sharding)], Origin::Derived,
                "dp_replicate_size above 1");
  }

  // ---- DeepSpeed ----

  Strategy read_deepspeed() {
    ConfigSection section = root_.section_or_empty("deepspeed_config");
    for (const char* key : kDeepSpeedLaunchKeys) section.list_if_set(key);
    TrainingFlags flags = reading_.flags;
    flags.config_as = ConfigMode::Auto;  // "auto" and absent sections are filled in by accelerate
    if (states_precision_ || flags.precision) flags.precision = reading_.strategy.precision;
    const std::optional<bool> init = section.boolean("zero3_init_flag");
    if (init && !flags.zero_init) flags.zero_init = *init ? ZeroInit::Zero : ZeroInit::None;
    Strategy strategy = section.is_set("deepspeed_config_file") ? read_named(section, flags)
                                                                : read_implied(section, flags);
    read_leaf_classes(section, strategy);
    if (init.value_or(false) && strategy.zero.stage != 3) {
      section.warn("zero3_init_flag", "zero3_init_needs_stage_3",
                   format("accelerate turns it off at stage {}", strategy.zero.stage));
    }
    section.list_if_set("zero3_init_flag");
    section.warn_unknown("unknown_key_plugin", "which accelerate ignores");
    return finished_with(reading_, std::move(strategy));
  }

  Strategy read_named(ConfigSection& section, const TrainingFlags& flags) {
    for (const char* key : kFieldsOfTheDeepSpeedFile) {
      if (section.object().has(key)) refuse_beside_file(section, key);
    }
    if (states_precision_) refuse_beside_file(root_, precision_key_);
    std::string path;
    const std::string text = read_named_file(section, "deepspeed_config_file", path);
    section.list("deepspeed_config_file", path, Origin::File);
    const JsonDocument document = JsonDocument::from_strict_json(text, path);
    if (!document.root().isObject() || !document.root().isMember("zero_optimization")) {
      throw ConfigError(document.location(document.root()),
                        "zero_optimization: missing, expected the section: accelerate refuses a "
                        "DeepSpeed file without it");
    }
    FlagNames names = {kClipping};
    TrainingFlags file_flags = flags;
    if (!document.duplicates().empty()) file_flags.config_as = ConfigMode::HuggingFace;
    if (!flags.precision && leaves_precision(document.root())) {
      // DeepSpeedPlugin.set_mixed_precision("no"), the default.
      file_flags.precision = Precision::Fp32;
      names.push_back({"the flag --precision", "accelerate, which has no mixed_precision"});
    }
    return read_with_names(names, [&] {
      return parse_deepspeed_config(text, path, file_flags, reading_.model, reading_.world_size);
    });
  }

  [[noreturn]] static void refuse_beside_file(ConfigSection& section, const std::string& key) {
    section.fail(key,
                 "found together with deepspeed_config_file, where accelerate refuses it; expected "
                 "it in that file",
                 "deepspeed_file_and_fields");
  }

  /// The dict that DeepSpeedPlugin.__post_init__ builds without a file.
  Strategy read_implied(ConfigSection& section, const TrainingFlags& flags) {
    const SourceLocation whole = root_.is_set("deepspeed_config")
                                     ? root_.value_place("deepspeed_config")
                                     : root_.value_place("distributed_type");
    ImpliedDeepSpeed implied(whole, "accelerate");
    implied.fill("train_batch_size", "auto");
    implied.fill("train_micro_batch_size_per_gpu", "auto");
    add(implied, section, "gradient_accumulation_steps", "gradient_accumulation_steps", "auto");
    implied.open("zero_optimization", whole);
    add(implied, section, "zero_stage", "stage", 2);
    add_offload(implied, section, "offload_optimizer");
    add_offload(implied, section, "offload_param");
    if (section.is_set("zero3_save_16bit_model")) {  // else false, DeepSpeed's default too
      add(implied, section, "zero3_save_16bit_model", "stage3_gather_16bit_weights_on_model_save",
          false);
    }
    implied.close();
    add(implied, section, "gradient_clipping", "gradient_clipping", "auto");
    add_precision(implied);
    return read_with_names(
        {kClipping}, [&] { return implied.read(flags, reading_.model, reading_.world_size); });
  }

  static void add(ImpliedDeepSpeed& implied, ConfigSection& section, const std::string& key,
                  const std::string& deepspeed_key, const JsonValue& fallback) {
    if (section.is_set(key)) {
      implied.state(deepspeed_key, section.object().raw(key), section.value_place(key));
    } else {
      implied.fill(deepspeed_key, fallback);
    }
  }

  static void add_offload(ImpliedDeepSpeed& implied, ConfigSection& section,
                          const std::string& what) {
    const std::string device = what + "_device";
    const std::string path = what + "_nvme_path";
    const std::string word = section.word(device, {"none", "cpu", "nvme"}).value_or("none");
    const bool named = section.has(path) && section.is_set(path);
    if (word == "none") return;  // {"device": "none"}, which DeepSpeed takes for no section
    implied.open(what, section.value_place(device));
    implied.state("device", word, section.value_place(device));
    if (word == "nvme" && named) {
      implied.state("nvme_path", section.object().raw(path), section.value_place(path));
    }
    implied.close();
  }

  /// set_mixed_precision. Its fp16.auto_cast casts floating-point inputs; token ids are none.
  void add_precision(ImpliedDeepSpeed& implied) {
    const Precision precision = reading_.strategy.precision;
    if (precision == Precision::Fp32) return;
    const SourceLocation place = states_precision_ ? root_.value_place(precision_key_)
                                                   : root_.value_place("distributed_type");
    implied.open(std::string(to_string(precision)), place);
    implied.state("enabled", true, place);
    implied.close();
  }

  void read_leaf_classes(ConfigSection& section, Strategy& strategy) {
    const char* key = "deepspeed_moe_layer_cls_names";
    if (!section.is_set(key)) return;
    strategy.zero.leaf_module_classes = section.object().raw(key).isArray()
                                            ? *section.strings(key)
                                            : split(*section.string(key), ',');
    section.list(key, join(strategy.zero.leaf_module_classes, ","), Origin::File);
  }

  TrainingReading reading_;
  ConfigSection& root_;
  const DistributedType* type_ = nullptr;
  std::int64_t nodes_ = 1;
  std::int64_t replicas_ = 1;
  std::string precision_key_ = "mixed_precision";
  bool states_precision_ = false;
};

}  // namespace
}  // namespace internal

/// Fields of ClusterConfig and its base (commands/config/config_args.py), with those of older
/// versions that from_yaml_file converts (fp16, dynamo_backend) or once had.
const std::vector<std::string>& accelerate_keys() {
  static const std::vector<std::string> kKeys = {
      "compute_environment",
      "distributed_type",
      "mixed_precision",
      "use_cpu",
      "debug",
      "num_processes",
      "machine_rank",
      "num_machines",
      "gpu_ids",
      "main_process_ip",
      "main_process_port",
      "rdzv_backend",
      "same_network",
      "main_training_function",
      "enable_cpu_affinity",
      "fp8_config",
      "deepspeed_config",
      "fsdp_config",
      "tp_config",
      "parallelism_config",
      "megatron_lm_config",
      "ipex_config",
      "mpirun_config",
      "downcast_bf16",
      "tpu_name",
      "tpu_zone",
      "tpu_use_cluster",
      "tpu_use_sudo",
      "command_file",
      "commands",
      "tpu_vm",
      "tpu_env",
      "dynamo_config",
      "dynamo_backend",
      "fp16",
  };
  return kKeys;
}

Strategy read_accelerate_config(const JsonDocument& document, const TrainingFlags& flags,
                                const Model& model, int world_size) {
  return internal::AccelerateReader(document, flags, model, world_size).read();
}

}  // namespace zerosim
