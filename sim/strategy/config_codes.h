/// \file
/// Every code that reading a configuration may report: errors, warnings and lints.
///
/// This table is the one home of the codes and of what they mean; a code that is not in it does not
/// compile (`KnownCode`).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace zerosim {

enum class CodeKind {
  Error,    ///< DeepSpeed, or who loads the file, stops
  Warning,  ///< it runs, often without a word, but not as the file says
  Lint,     ///< it runs as the file says, which is likely not what is wanted
};

struct ConfigCode {
  std::string_view code;
  CodeKind kind = CodeKind::Error;
  std::string_view meaning;  ///< one sentence without a full stop
};

inline constexpr ConfigCode kConfigCodes[] = {
    // Syntax.
    {"json_comments", CodeKind::Error, "a comment where strict JSON is read"},
    {"json_trailing_comma", CodeKind::Error, "a trailing comma where strict JSON is read"},
    {"json_unquoted_keys", CodeKind::Error, "keys without quotes where strict JSON is read"},
    {"duplicate_keys", CodeKind::Warning,
     "a key twice in one object: DeepSpeed refuses the file, strict JSON keeps the last value"},
    // Keys.
    {"unknown_key_top", CodeKind::Warning, "an unknown key at top level, which DeepSpeed ignores"},
    {"unknown_key_ignored", CodeKind::Warning,
     "an unknown key inside a section where DeepSpeed ignores it (data_types, aio, timers, ...)"},
    {"unknown_key_zero", CodeKind::Error, "an unknown key inside zero_optimization"},
    {"unknown_key_fp16", CodeKind::Error, "an unknown key inside fp16 or bf16"},
    {"unknown_key_job", CodeKind::Error,
     "an unknown key in a section of torchtitan's or LLM Foundry's that says how to shard"},
    {"unknown_key_section", CodeKind::Error,
     "an unknown key inside comms_logger or timers.throughput"},
    {"did_you_mean", CodeKind::Lint, "the known key that is nearest to an unknown one"},
    {"deprecated_key", CodeKind::Warning, "an old key that is still read"},
    {"deprecated_and_new_together", CodeKind::Error, "an old key and the key that replaces it"},
    {"deprecated_zero_bool", CodeKind::Warning,
     "zero_optimization: true, which means stage 1; Hugging Face refuses it"},
    {"removed_key", CodeKind::Error, "a switch that DeepSpeed no longer supports"},
    {"old_name", CodeKind::Lint, "an accepted older name"},
    // Values.
    {"wrong_type", CodeKind::Error, "a value of another type than the key takes"},
    {"unknown_value", CodeKind::Error, "a word that is not among those that the key takes"},
    {"string_not_int", CodeKind::Error, "text such as \"5e8\" where an integer is due"},
    {"quoted_number", CodeKind::Lint, "digits in quotes, which are taken for a number"},
    {"quoted_boolean", CodeKind::Warning,
     "text at top level where true or false is due: any text but \"\" counts as true"},
    {"fractional_int", CodeKind::Error, "a fraction where an integer is due"},
    {"out_of_range", CodeKind::Error, "a number outside the bounds of its key"},
    {"bad_stage", CodeKind::Error, "a stage outside 0 to 3"},
    {"bucket_zero", CodeKind::Error, "reduce_bucket_size 0, by which DeepSpeed divides"},
    // "auto" and precision.
    {"auto_batch_unresolved", CodeKind::Error, "\"auto\" in a batch field that nobody fills in"},
    {"auto_unresolved", CodeKind::Error, "\"auto\" elsewhere that nobody fills in"},
    {"auto_dropped", CodeKind::Warning,
     "\"auto\" inside a section: DeepSpeed alone takes its default"},
    {"auto_precision_becomes_fp32", CodeKind::Warning,
     "fp16 or bf16 enabled \"auto\": DeepSpeed alone trains in fp32"},
    {"fp16_section_not_enabled", CodeKind::Warning,
     "an fp16 or bf16 section without enabled, which is false by default"},
    {"fp16_and_bf16", CodeKind::Error, "fp16 and bf16 both enabled"},
    {"amp_with_zero", CodeKind::Error, "Apex amp with ZeRO"},
    {"amp_with_half_precision", CodeKind::Error, "Apex amp with fp16 or bf16"},
    {"autocast_with_quantized_weights", CodeKind::Error,
     "torch_autocast with zero_quantized_weights"},
    {"master_weights_need_offload", CodeKind::Error,
     "16-bit master weights without the offload to the CPU that they need"},
    {"param_dtype_mismatch", CodeKind::Error,
     "data_types.param_dtype differs from the enabled precision"},
    {"grad_accum_dtype_unsupported", CodeKind::Error,
     "stage 0 accumulates gradients in the model's type only"},
    {"flag_contradicts_file", CodeKind::Error, "a flag and the file say different things"},
    // Batch.
    {"batch_missing", CodeKind::Error, "neither the total nor the micro batch is given"},
    {"batch_triple_mismatch", CodeKind::Error,
     "total batch != micro batch x accumulation x data-parallel size"},
    {"no_sync_with_gradient_partitioning", CodeKind::Error, "no_sync() at stage 2 or 3"},
    {"managed_accumulation_off_with_overlap", CodeKind::Error,
     "overlap_comm below stage 2 with managed_gradient_accumulation off"},
    // Gradients and optimizer.
    {"scaling_with_reduce_scatter", CodeKind::Error,
     "prescaled or predivided gradients with reduce_scatter at stage 2 or 3"},
    {"gradient_sum_unsupported", CodeKind::Error,
     "sums of gradients at stage 3, with ZenFlow or with DeepCompile"},
    {"unknown_optimizer", CodeKind::Error,
     "an optimizer that neither DeepSpeed nor torch.optim has"},
    {"optimizer_incompatible_with_zero", CodeKind::Error, "a 1-bit optimizer with ZeRO"},
    {"untested_optimizer", CodeKind::Error,
     "an optimizer that needs zero_allow_untested_optimizer"},
    {"max_grad_norm_in_optimizer", CodeKind::Error,
     "max_grad_norm among the optimizer's parameters, expected gradient_clipping"},
    // Offload, ZeRO++, MiCS.
    {"offload_param_needs_stage_3", CodeKind::Warning,
     "offload of parameters below stage 3, where it is ignored"},
    {"partial_offload_needs_stage_3", CodeKind::Error, "an offload ratio below 1 below stage 3"},
    {"offload_needs_cpu_adam", CodeKind::Error,
     "an offloaded optimizer that is not DeepSpeed's own for the CPU"},
    {"nvme_path_missing", CodeKind::Error, "device nvme without nvme_path"},
    {"nvme_is_cpu_below_stage_3", CodeKind::Warning,
     "the optimizer on NVMe below stage 3, where it stays in CPU memory"},
    {"nvme_buffers_too_few", CodeKind::Error, "fewer NVMe buffers than an optimizer step holds"},
    {"nvme_buffer_too_small", CodeKind::Error,
     "a parameter's partition exceeds the NVMe buffer that has to hold it"},
    {"hpz_useless_on_one_node", CodeKind::Lint,
     "a secondary partition where the first one leaves no node: memory for nothing"},
    {"hpz_spans_nodes", CodeKind::Lint,
     "a secondary partition over several nodes: its gathers leave the node"},
    {"hpz_with_offload_untested", CodeKind::Lint,
     "a secondary partition with offload, reported to break training"},
    {"mics_needs_mics_init", CodeKind::Warning,
     "MiCS, which asserts unless the model is built inside MiCS_Init"},
    {"mics_may_deadlock", CodeKind::Warning,
     "MiCS with a shard below the world size, which deadlocks in DeepSpeed 0.19"},
    // What is slow, has no effect, or may hang.
    {"heads_not_divisible", CodeKind::Lint, "sequence parallelism does not divide the heads"},
    {"dp_degree_1_no_sharding", CodeKind::Lint, "one data-parallel rank: nothing is sharded"},
    {"bucket_larger_than_model", CodeKind::Lint,
     "reduce_bucket_size exceeds the number of parameters"},
    {"bucket_smaller_than_largest_param", CodeKind::Lint,
     "reduce_bucket_size is below the largest parameter of a block: reductions are bound by "
     "latency"},
    {"allgather_bucket_size_ignored_at_stage_3", CodeKind::Lint,
     "allgather_bucket_size at stage 3, where it has no effect"},
    {"grad_accum_dtype_ignored_at_stage_2", CodeKind::Lint,
     "grad_accum_dtype at stage 2, where it has no effect"},
    {"no_effect_at_stage", CodeKind::Lint, "a key that has no effect at the stage of the file"},
    {"communication_data_type_doubles_traffic", CodeKind::Lint,
     "16-bit gradients that travel in fp32"},
    {"comms_logger_synchronises", CodeKind::Warning,
     "comms_logger, even if not enabled: a device synchronise after each collective"},
    {"wall_clock_breakdown_synchronises", CodeKind::Lint,
     "wall_clock_breakdown: timers synchronise each micro batch"},
    {"persistence_0_gathers_every_bias", CodeKind::Lint,
     "persistence threshold 0: a gather for every bias and norm"},
    {"persistence_keeps_every_parameter", CodeKind::Lint,
     "a persistence threshold above every parameter: stage 3 keeps all weights gathered"},
    {"prefetch_disabled", CodeKind::Lint, "prefetch bucket 0: modules are gathered when needed"},
    {"max_live_0_serialises_gathers", CodeKind::Lint, "max_live_parameters 0: no look-ahead"},
    {"moe_without_leaf_module_may_hang", CodeKind::Lint,
     "a mixture of experts at stage 3 that is no leaf module: ranks route to different experts"},
    {"consolidated_save_needs_full_model", CodeKind::Lint,
     "saving gathers the 16-bit weights, 2 bytes a parameter, in one place"},
    // accelerate and the Trainer.
    {"unknown_key_accelerate", CodeKind::Error,
     "an unknown key at the top of an accelerate file, which accelerate refuses"},
    {"unknown_key_plugin", CodeKind::Warning,
     "an unknown key inside deepspeed_config, fsdp_config or parallelism_config, which is ignored"},
    {"num_processes_overridden", CodeKind::Lint,
     "another number of GPUs is asked for than the processes of the file"},
    {"world_size_mismatch", CodeKind::Error,
     "the machines or parallel sizes of a file do not make the number of GPUs"},
    {"deepspeed_file_and_fields", CodeKind::Error,
     "deepspeed_config_file together with settings that belong in it, which accelerate refuses"},
    {"zero3_init_needs_stage_3", CodeKind::Lint,
     "zero3_init_flag below stage 3, where accelerate turns it off"},
    {"fsdp_and_deepspeed", CodeKind::Error, "FSDP and DeepSpeed together"},
    {"fsdp_bad_combination", CodeKind::Error, "FSDP settings that exclude each other"},
    {"fsdp_layer_class_not_found", CodeKind::Error,
     "a transformer layer class to wrap that the model does not have"},
    {"fsdp_config_without_fsdp", CodeKind::Warning,
     "fsdp_config without the fsdp argument: it has no effect"},
    {"fsdp_no_effect", CodeKind::Lint,
     "an FSDP key that has no effect in the version or with the wrapping policy of the file"},
    {"fsdp_no_shard_deprecated", CodeKind::Lint,
     "NO_SHARD, which PyTorch deprecates in favour of DistributedDataParallel"},
    {"fsdp_hybrid_on_one_node", CodeKind::Lint,
     "a hybrid strategy on one node, where it shards as the full one does"},
    {"fsdp_wraps_nothing", CodeKind::Lint,
     "FSDP without a wrapping policy: the whole model is one unit, gathered at once"},
    {"fsdp_no_backward_prefetch", CodeKind::Lint,
     "no backward_prefetch: gathers in backward wait behind reductions"},
    {"fsdp_checkpointing_gathers_again", CodeKind::Lint,
     "gradient_checkpointing with full sharding gathers once more than FSDP's own checkpointing"},
    {"fsdp_keeps_full_gradients", CodeKind::Lint,
     "accumulation without reduction: whole gradients stay between the micro batches"},
};

/// The row of a code; null if there is none.
[[nodiscard]] constexpr const ConfigCode* find_config_code(std::string_view code) {
  for (const ConfigCode& row : kConfigCodes) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

[[nodiscard]] constexpr bool is_config_code(std::string_view code) {
  for (const ConfigCode& row : kConfigCodes) {
    if (row.code == code) return true;
  }
  return false;
}

/// A code of the table, checked when the program is compiled.
class KnownCode {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): literals are written where a code is due.
  consteval KnownCode(const char* code) : code_(code) {
    if (!is_config_code(code)) throw "this code is not in kConfigCodes";
  }
  [[nodiscard]] std::string text() const { return std::string(code_); }

 private:
  std::string_view code_;
};

/// What becomes of a file.
enum class ConfigVerdict { Ok, Warn, Error };

/// Of a file that was read: Warn if a code of kind Warning is among them, else Ok. One that throws
/// has the verdict Error.
[[nodiscard]] ConfigVerdict config_verdict(std::span<const Warning> warnings);

[[nodiscard]] std::string_view to_string(CodeKind kind);          ///< "error", "warning", "lint"
[[nodiscard]] std::string_view to_string(ConfigVerdict verdict);  ///< "ok", "warn", "error"

}  // namespace zerosim
