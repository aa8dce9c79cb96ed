#include <algorithm>
#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"

namespace zerosim::internal {
namespace {

/// A setting that the simulator follows only at some values.
struct Unsimulated {
  const char* key;
  /// The value that is, or several with | between; null: none, the key must not be there.
  const char* simulated;
  Stages stages;
  const char* feature;
};

/// To be shortened as the simulator grows.
constexpr Unsimulated kUnsimulated[] = {
    {"zero_optimization.offload_param.device", "none|cpu", kStage3, "offload to NVMe"},
    {"zero_optimization.offload_optimizer.device", "none|cpu", kStage3, "offload to NVMe"},
    {"zero_optimization.offload_optimizer.super_offload", "false", kStage3, "SuperOffload (C8.7)"},
    {"zero_optimization.enable_sanity_checks", "false", kStage3, "sanity checks"},
    {"zero_optimization.zenflow.topk_ratio", nullptr, kStages123, "ZenFlow"},
    {"sequence_parallel_size", "1", kEveryStage, "sequence parallelism"},
    {"managed_gradient_accumulation", "true", kEveryStage, "a loop that marks its own boundaries"},
    {"fp16.auto_cast", "false", kEveryStage, "fp16.auto_cast"},
    {"fp16.fp16_master_weights_and_grads", "false", kEveryStage, "fp16 master weights"},
    {"bf16.immediate_grad_update", "false", kEveryStage, "bf16.immediate_grad_update"},
    {"bf16.bf16_master_weights_and_grads", "false", kEveryStage, "bf16 master weights"},
    {"bf16.bf16_optimizer_states", "false", kEveryStage, "bf16 optimizer states"},
    {"amp.enabled", "false", kEveryStage, "Apex amp"},
    {"torch_autocast.enabled", "false", kEveryStage, "torch_autocast"},
    {"gradient_allreduce_op", "mean", kEveryStage, "sums of gradients"},
    {"sparse_gradients", "false", kStage0, "sparse gradients"},
    {"tensor_parallel.autotp_size", "1", kEveryStage, "tensor parallelism"},
    {"compile.deepcompile", "false", kEveryStage, "DeepCompile"},
    {"elasticity.enabled", "false", kEveryStage, "elasticity"},
    {"autotuning.enabled", "false", kEveryStage, "autotuning"},
    {"data_efficiency.enabled", "false", kEveryStage, "data efficiency"},
    {"curriculum_learning.enabled", "false", kEveryStage, "curriculum learning"},
    {"hybrid_engine.enabled", "false", kEveryStage, "the hybrid engine"},
    {"progressive_layer_drop.enabled", "false", kEveryStage, "progressive layer drop"},
    {"eigenvalue.enabled", "false", kEveryStage, "eigenvalues"},
    {"quantize_training.enabled", "false", kEveryStage, "quantised training"},
    {"sparse_attention", nullptr, kEveryStage, "sparse attention"},
    {"compression_training", nullptr, kEveryStage, "compression"},
    {"pipeline", nullptr, kEveryStage, "pipeline parallelism"},
};

/// Counts that are 0 or below are off, whatever the default.
bool is_off(const Setting& setting) {
  return setting.value == "0" || setting.value.starts_with('-');
}

/// \param values  with | between.
bool is_one_of(const std::string& value, std::string_view values) {
  return format("|{}|", values).find(format("|{}|", value)) != std::string::npos;
}

ConfigError unsimulated(const Setting& setting, const char* feature, const std::string& file) {
  const SourceLocation where = setting.where.file.empty() ? SourceLocation{file} : setting.where;
  return {where, format("{}: found {}: this version does not simulate {} yet", setting.key,
                        setting.value, feature)};
}

bool is_adam(const Strategy& strategy) {
  return strategy.optimizer_name == "adam" || strategy.optimizer_name == "adamw";
}

bool is_bf16_state(const Setting& setting) {
  return setting.key == "bf16.bf16_master_weights_and_grads" ||
         setting.key == "bf16.bf16_optimizer_states";
}

/// Both at once, at stage 3 on the device.
bool simulates_bf16_states(const Strategy& strategy) {
  return strategy.bf16_states && strategy.zero.stage == 3 &&
         strategy.zero.offload_optimizer.device == OffloadDevice::None;
}

}  // namespace

std::optional<ConfigError> first_not_simulated(const Strategy& strategy, const std::string& file) {
  for (const Setting& setting : strategy.settings) {
    for (const Unsimulated& row : kUnsimulated) {
      if (is_bf16_state(setting) && simulates_bf16_states(strategy)) continue;
      if (setting.key != row.key || (row.stages >> strategy.zero.stage & 1U) == 0) continue;
      const bool follows =
          row.simulated != nullptr && (is_one_of(setting.value, row.simulated) || is_off(setting));
      if (!follows) return unsimulated(setting, row.feature, file);
    }
    if (setting.key == "optimizer.type" && !is_adam(strategy)) {
      return unsimulated(setting, "optimizers other than Adam and AdamW", file);
    }
  }
  return std::nullopt;
}

}  // namespace zerosim::internal
