#include "sim/strategy/job_config.h"

#include <algorithm>
#include <optional>

#include "sim/base/text.h"
#include "sim/strategy/fsdp_config.h"
#include "sim/strategy/fsdp_options.h"
#include "sim/strategy/training_values.h"

namespace zerosim {
namespace internal {
namespace {

/// What both readers do.
class JobReader {
 public:
  JobReader(const JsonDocument& document, const TrainingFlags& flags, const Model& model,
            int world_size, const char* tool)
      : reading_(document, flags, model, world_size),
        default_reason_(format("{}'s default", tool)) {
    reading_.strategy.framework = Framework::Fsdp;
  }

 protected:
  [[nodiscard]] Listing listing() const { return {.reason = default_reason_}; }

  /// A count that a flag may give too.
  std::int64_t count(ConfigSection& section, const std::string& key,
                     std::optional<std::int64_t> flag, const std::string& flag_name,
                     std::int64_t fallback) {
    if (flag && section.is_set(key)) {
      check_flag(section, key, std::to_string(*section.integer(key, 1)), flag_name,
                 std::to_string(*flag));
    }
    Listing how = listing();
    if (flag) how.reason = format("the flag {}", flag_name);
    return section.integer_or(key, flag.value_or(fallback), 1, how);
  }

  /// Micro batches of a step: `total` over what all ranks take at once.
  std::int64_t accumulation(ConfigSection& section, const std::string& key, std::int64_t total,
                            std::int64_t micro_batch) {
    const std::int64_t once = micro_batch * reading_.data_parallel_size;
    if (total % once != 0) {
      section.fail(key,
                   format("found {}, expected a multiple of {}: micro batch {} x data-parallel "
                          "size {}",
                          total, once, micro_batch, reading_.data_parallel_size),
                   "batch_triple_mismatch");
    }
    const std::optional<std::int64_t> flag = reading_.flags.grad_accum;
    if (flag) {
      check_flag(section, key, std::to_string(total / once), "--grad-accum", std::to_string(*flag));
    }
    return total / once;
  }

  void ignore(ConfigSection& section, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) static_cast<void>(section.has(key));
  }

  /// Degrees of parallelism that are not data parallel.
  void refuse_degree(ConfigSection& section, const std::string& key, const std::string& what) {
    if (section.integer(key, -1).value_or(1) > 1) {
      set_not_simulated(reading_, section, key, what);
    }
  }

  /// \param shards  -1: what the replicas leave
  void set_mesh(ConfigSection& section, const std::string& replicas_key,
                const std::string& shards_key, std::int64_t replicas, std::int64_t shards) {
    const std::int64_t world = reading_.world_size;
    if (world % replicas != 0) {
      section.fail(replicas_key,
                   format("found {}, which does not divide the {} GPUs", replicas, world),
                   "world_size_mismatch");
    }
    const std::int64_t left = world / replicas;
    if (shards != -1 && shards != left) {
      section.fail(shards_key,
                   format("found {}, expected -1 or {}: {} GPUs over {} replica{}", shards, left,
                          world, replicas, replicas == 1 ? "" : "s"),
                   "world_size_mismatch");
    }
    FsdpOptions& fsdp = reading_.strategy.fsdp;
    if (replicas == 1) return;
    if (fsdp.version == 1 && fsdp.sharding == FsdpSharding::NoShard) {
      section.fail(replicas_key,
                   "found it with NO_SHARD, which shards nothing that could be replicated",
                   "fsdp_bad_combination");
    }
    const bool keeps_gathered = fsdp.version == 1
                                    ? fsdp.sharding == FsdpSharding::ShardGradOp ||
                                          fsdp.sharding == FsdpSharding::HybridShardZero2
                                    : !fsdp.reshard_after_forward;
    fsdp.shard_group = left;
    fsdp.sharding = keeps_gathered ? FsdpSharding::HybridShardZero2 : FsdpSharding::HybridShard;
  }

  Strategy complete() {
    complete_torch_strategy(reading_);
    return finished(reading_);
  }

  TrainingReading reading_;
  std::string default_reason_;
};

class TorchtitanReader : public JobReader {
 public:
  TorchtitanReader(const JsonDocument& document, const TrainingFlags& flags, const Model& model,
                   int world_size)
      : JobReader(document, flags, model, world_size, "torchtitan") {
    reading_.strategy.fsdp.version = 2;
  }

  Strategy read() {
    ConfigSection parallelism = reading_.root.section_or_empty("parallelism");
    ConfigSection training = reading_.root.section_or_empty("training");
    ConfigSection checkpointing = reading_.root.section_or_empty("activation_checkpoint");
    ConfigSection optimizer = reading_.root.section_or_empty("optimizer");
    refuse_old_places(training);
    read_parallelism(parallelism);
    read_training(training);
    read_checkpointing(checkpointing);
    read_optimizer(optimizer);
    parallelism.reject_unknown("unknown_key_job");
    training.reject_unknown("unknown_key_job");
    checkpointing.reject_unknown("unknown_key_job");
    return complete();
  }

 private:
  /// Degrees were keys of `training` once; read there they would be lost.
  void refuse_old_places(ConfigSection& training) {
    for (const char* key :
         {"data_parallel_degree", "data_parallel_replicate_degree", "data_parallel_shard_degree",
          "tensor_parallel_degree", "fsdp_reshard_after_forward"}) {
      if (training.is_set(key)) {
        training.fail(key, "found a key of older releases, expected it in the section parallelism",
                      "unknown_key_job");
      }
    }
  }

  void read_parallelism(ConfigSection& section) {
    FsdpOptions& fsdp = reading_.strategy.fsdp;
    const std::string policy = section.word_or("fsdp_reshard_after_forward", "default",
                                               {"default", "always", "never"}, listing());
    fsdp.reshard_after_forward = policy != "never";
    fsdp.sharding = policy == "never" ? FsdpSharding::ShardGradOp : FsdpSharding::FullShard;
    fsdp.keeps_last_unit = policy == "default";
    reading_.notes.assumptions.emplace_back(
        "parallelism: units are the blocks and the root with the rest; torchtitan makes groups of "
        "their own of the embedding and of the last norm with the head.");
    const std::int64_t replicas =
        section.integer_or("data_parallel_replicate_degree", 1, 1, listing());
    const std::int64_t shards = section.integer_or("data_parallel_shard_degree", -1, -1, listing());
    for (const char* key :
         {"tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
          "expert_parallel_degree", "expert_tensor_parallel_degree"}) {
      refuse_degree(section, key, "tensor, pipeline, context or expert parallelism");
    }
    set_mesh(section, "data_parallel_replicate_degree", "data_parallel_shard_degree", replicas,
             shards);
    ignore(section,
           {"enable_compiled_autograd", "enable_async_tensor_parallel", "disable_loss_parallel",
            "pipeline_parallel_split_points", "module_fqns_per_model_part",
            "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers",
            "pipeline_parallel_layers_per_stage", "pipeline_parallel_schedule",
            "pipeline_parallel_schedule_csv", "pipeline_parallel_microbatch_size",
            "context_parallel_rotate_method", "context_parallel_load_balancer"});
  }

  void read_training(ConfigSection& section) {
    Strategy& strategy = reading_.strategy;
    const char* micro = "local_batch_size";
    if (section.is_set("batch_size") && !section.is_set(micro)) {
      section.warn("batch_size", "old_name", "an older name; the name is local_batch_size");
      micro = "batch_size";
    }
    strategy.micro_batch = count(section, micro, reading_.flags.micro_batch, "--micro-batch", 8);
    const std::int64_t total = section.integer_or("global_batch_size", -1, -1, listing());
    strategy.grad_accum =
        total < 1 ? reading_.flags.grad_accum.value_or(1)
                  : accumulation(section, "global_batch_size", total, strategy.micro_batch);
    read_types(section);
    strategy.gradient_clipping = section.number_or("max_norm", 1.0, 0, 1e30, listing());
    strategy.fsdp.cpu_offload = section.boolean_or("enable_cpu_offload", false, listing());
    if (section.boolean("compile").value_or(false)) {
      strategy.compiled = true;
      reading_.notes.assumptions.emplace_back(
          "training.compile: true: the element-wise kernels of blocks are fused; the loss is not.");
    }
    ignore(section, {"dataset", "dataset_path", "seq_len", "steps", "dtype", "gc_freq", "gc_debug",
                     "seed", "deterministic", "warmup_steps", "debug_moe_force_load_balance"});
  }

  void read_types(ConfigSection& section) {
    Strategy& strategy = reading_.strategy;
    const std::vector<std::string> types = {"bfloat16", "float32"};
    const std::string given =
        section.word_or("mixed_precision_param", "bfloat16", types, listing());
    strategy.precision = given == "float32" ? Precision::Fp32 : Precision::Bf16;
    const std::optional<Precision> flag = reading_.flags.precision;
    if (flag && section.is_set("mixed_precision_param")) {
      check_flag(section, "mixed_precision_param", std::string(to_string(strategy.precision)),
                 "--precision", std::string(to_string(*flag)));
    }
    strategy.precision = flag.value_or(strategy.precision);
    const std::string reduced =
        section.word_or("mixed_precision_reduce", "float32", {"float32", "bfloat16"}, listing());
    strategy.fsdp.reduce_dtype = reduced == "float32" ? Dtype::F32 : Dtype::Bf16;
  }

  void read_checkpointing(ConfigSection& section) {
    const std::string mode = section.word_or(
        "mode", "selective", {"selective", "full", "none", "memory_budget"}, listing());
    Strategy& strategy = reading_.strategy;
    const std::string option = section.string("selective_ac_option").value_or("2");
    section.list_if_set("selective_ac_option");
    const bool per_operator = mode == "selective" && option == "op";
    strategy.checkpointing = mode == "full"   ? ActivationCheckpointing::Full
                             : mode == "none" ? ActivationCheckpointing::None
                             : per_operator   ? ActivationCheckpointing::PerOperator
                                              : ActivationCheckpointing::Selective;
    if (mode == "memory_budget") {
      set_not_simulated(reading_, section, "mode", "checkpointing by a memory budget");
    }
    if (mode == "selective" && !per_operator) {
      reading_.notes.assumptions.emplace_back(
          "activation_checkpoint.mode: selective: the attention core is recomputed; torchtitan "
          "recomputes whole layers, as many as selective_ac_option says.");
    }
    if (reading_.flags.checkpointing) {
      if (section.is_set("mode")) {
        check_flag(section, "mode", mode, "--checkpointing",
                   std::string(to_string(*reading_.flags.checkpointing)));
      }
      strategy.checkpointing = *reading_.flags.checkpointing;
    }
    ignore(section,
           {"per_op_sac_force_recompute_mm_shapes_by_fqns", "early_stop", "memory_budget",
            "visualize_memory_budget_pareto", "preserve_rng_state", "determinism_check", "debug"});
  }

  void read_optimizer(ConfigSection& section) {
    const std::string how =
        section.word_or("implementation", "fused", {"fused", "foreach", "for-loop"}, listing());
    reading_.strategy.optimizer = how == "fused"     ? OptimizerKind::AdamFused
                                  : how == "foreach" ? OptimizerKind::AdamTorchForeach
                                                     : OptimizerKind::AdamTorch;
    reading_.strategy.optimizer = reading_.flags.optimizer.value_or(reading_.strategy.optimizer);
  }
};

class LlmFoundryReader : public JobReader {
 public:
  LlmFoundryReader(const JsonDocument& document, const TrainingFlags& flags, const Model& model,
                   int world_size)
      : JobReader(document, flags, model, world_size, "LLM Foundry"), root_(reading_.root) {}

  Strategy read() {
    ConfigSection fsdp = root_.section_or_empty("fsdp_config");
    read_batch();
    read_precision();
    read_sharding(fsdp);
    read_types(fsdp);
    read_checkpointing(fsdp);
    read_clipping();
    reading_.strategy.optimizer = reading_.flags.optimizer.value_or(OptimizerKind::AdamTorch);
    fsdp.reject_unknown("unknown_key_job");
    return complete();
  }

 private:
  void read_batch() {
    Strategy& strategy = reading_.strategy;
    const char* micro = "device_train_microbatch_size";
    const JsonValue& given = root_.object().raw(micro);
    const bool automatic = given.isString() && given.asString() == "auto";
    if (automatic && !reading_.flags.micro_batch) {
      root_.fail(micro,
                 "found \"auto\", which Composer fills in at run time, expected a number or "
                 "the flag --micro-batch",
                 "auto_batch_unresolved");
    }
    strategy.micro_batch =
        automatic ? *reading_.flags.micro_batch
                  : count(root_, micro, reading_.flags.micro_batch, "--micro-batch", 1);
    const std::optional<std::int64_t> total = root_.integer("global_train_batch_size", 1);
    root_.list_if_set("global_train_batch_size");
    strategy.grad_accum =
        total ? accumulation(root_, "global_train_batch_size", *total, strategy.micro_batch)
              : reading_.flags.grad_accum.value_or(1);
  }

  void read_precision() {
    const auto word = root_.word("precision", {"amp_bf16", "amp_fp16", "amp_fp8", "fp32", "bf16"});
    std::optional<Precision> precision;
    if (word) {
      precision = *word == "fp32"       ? Precision::Fp32
                  : *word == "amp_fp16" ? Precision::Fp16
                                        : Precision::Bf16;
      if (*word == "amp_fp8") set_not_simulated(reading_, root_, "precision", "fp8 training");
    }
    set_precision(reading_, "precision", "precision",
                  precision.value_or(reading_.flags.precision.value_or(Precision::Bf16)),
                  default_reason_);
  }

  void read_sharding(ConfigSection& section) {
    FsdpOptions& fsdp = reading_.strategy.fsdp;
    const std::vector<std::string> names = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                            "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
    const std::string name = section.word_or("sharding_strategy", names.front(), names, listing());
    fsdp.sharding =
        static_cast<FsdpSharding>(std::find(names.begin(), names.end(), name) - names.begin());
    const std::vector<std::string> prefetches = {"BACKWARD_PRE", "BACKWARD_POST", "NONE"};
    const std::string prefetch =
        section.word_or("backward_prefetch", "BACKWARD_POST", prefetches, listing());
    fsdp.backward_prefetch = static_cast<BackwardPrefetch>(
        std::find(prefetches.begin(), prefetches.end(), prefetch) - prefetches.begin());
    fsdp.forward_prefetch = section.boolean_or("forward_prefetch", false, listing());
    fsdp.limit_all_gathers = section.boolean_or("limit_all_gathers", true, listing());
    fsdp.use_orig_params = section.boolean_or("use_orig_params", true, listing());
    fsdp.cpu_offload = section.boolean_or("cpu_offload", false, listing());
    read_reshard(section);
    const std::int64_t replicas =
        section.integer_or("data_parallel_replicate_degree", 1, 1, listing());
    const std::int64_t shards = section.integer_or("data_parallel_shard_degree", -1, -1, listing());
    set_mesh(section, "data_parallel_replicate_degree", "data_parallel_shard_degree", replicas,
             shards);
    ignore(section, {"activation_checkpointing",
                     "activation_checkpointing_reentrant",
                     "activation_cpu_offload",
                     "auto_wrap",
                     "flatten_parameters",
                     "keep_low_precision_grads",
                     "load_fsdp_monolith_rank0_only",
                     "load_monolith_rank0_only",
                     "load_planner",
                     "mixed_precision",
                     "process_group",
                     "save_planner",
                     "sharded_ckpt_prefix_dir",
                     "state_dict_type",
                     "sync_module_states",
                     "te_checkpoint_wrapper",
                     "te_shard_fp8_weight",
                     "verbose",
                     "device_mesh",
                     "mesh"});
  }

  /// A switch or a number of ranks: Composer's FSDP2.
  void read_reshard(ConfigSection& section) {
    const char* key = "reshard_after_forward";
    if (!section.is_set(key)) return;
    FsdpOptions& fsdp = reading_.strategy.fsdp;
    fsdp.version = 2;
    if (section.object().raw(key).isBool()) {
      fsdp.reshard_after_forward = section.boolean_or(key, true, listing());
      fsdp.sharding =
          fsdp.reshard_after_forward ? FsdpSharding::FullShard : FsdpSharding::ShardGradOp;
    } else {
      fsdp.reshard_ranks = section.integer_or(key, 1, 1, listing());
      fsdp.sharding = FsdpSharding::FullShard;
    }
  }

  /// Composer's get_mixed_precision: PURE: all in the low type; DEFAULT: gradients are reduced in
  /// fp32; FULL: nothing is cast.
  void read_types(ConfigSection& section) {
    Strategy& strategy = reading_.strategy;
    const std::string word =
        section.word_or("mixed_precision", "DEFAULT", {"DEFAULT", "PURE", "FULL"}, listing());
    if (word == "DEFAULT") strategy.fsdp.reduce_dtype = Dtype::F32;
    if (word == "FULL" && strategy.precision != Precision::Fp32) {
      set_not_simulated(reading_, section, "mixed_precision", "fp32 parameters under autocast");
    }
  }

  void read_checkpointing(ConfigSection& section) {
    set_checkpointing(reading_, section, "activation_checkpointing",
                      section.boolean("activation_checkpointing"), default_reason_);
    if (section.boolean("activation_cpu_offload").value_or(false)) {
      set_not_simulated(reading_, section, "activation_cpu_offload", "offload of activations");
    }
  }

  void read_clipping() {
    reading_.strategy.gradient_clipping = 0;
    std::optional<ConfigSection> algorithms = root_.section("algorithms");
    if (!algorithms) return;
    std::optional<ConfigSection> clipping = algorithms->section("gradient_clipping");
    if (!clipping) return;
    reading_.strategy.gradient_clipping =
        clipping->number_or("clipping_threshold", 1.0, 0, 1e30, listing());
  }

  ConfigSection& root_;
};

}  // namespace
}  // namespace internal

const std::vector<std::string>& torchtitan_sections() {
  static const std::vector<std::string> kSections = {
      "parallelism", "training", "activation_checkpoint", "lr_scheduler", "job", "float8"};
  return kSections;
}

const std::vector<std::string>& llm_foundry_keys() {
  static const std::vector<std::string> kKeys = {
      "fsdp_config",  "max_seq_len",  "global_train_batch_size", "device_train_microbatch_size",
      "max_duration", "train_loader", "device_eval_batch_size",  "eval_interval",
      "algorithms"};
  return kKeys;
}

Strategy read_torchtitan_config(const JsonDocument& document, const TrainingFlags& flags,
                                const Model& model, int world_size) {
  return internal::TorchtitanReader(document, flags, model, world_size).read();
}

Strategy read_llm_foundry_config(const JsonDocument& document, const TrainingFlags& flags,
                                 const Model& model, int world_size) {
  return internal::LlmFoundryReader(document, flags, model, world_size).read();
}

}  // namespace zerosim
