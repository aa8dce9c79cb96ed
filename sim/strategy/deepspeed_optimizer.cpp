#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"

namespace zerosim::internal {
namespace {

enum class Family {
  Adam,    ///< DeepSpeed's FusedAdam or CPU Adam, or torch's
  Tested,  ///< works with ZeRO (A4, zero_allow_untested_optimizer)
  OneBit,  ///< refuses ZeRO
  Other,   ///< DeepSpeed's own or torch.optim's: needs zero_allow_untested_optimizer
};

struct OptimizerRow {
  const char* name;
  bool any_case;  ///< DeepSpeed's own names are matched in any case, torch.optim's are not (A4.4)
  Family family;
  int moments;  ///< fp32 tensors of the size of the parameter, beside the master weight
};

/// Moments: DeepSpeed ops/ and runtime/fp16/onebit/, torch.optim's `state` of each optimizer.
constexpr OptimizerRow kOptimizers[] = {
    {"adam", true, Family::Adam, 2},
    {"adamw", true, Family::Adam, 2},
    {"adagrad", true, Family::Tested, 1},
    {"lion", true, Family::Tested, 1},
    {"muon", true, Family::Tested, 1},         // of hidden matrices; the rest is Adam's
    {"onebitadam", true, Family::OneBit, 3},   // two moments, error of the worker
    {"zerooneadam", true, Family::OneBit, 4},  // two moments, local momentum, error of the worker
    {"onebitlamb", true, Family::OneBit, 4},   // as Lamb, fresh variance, error of the worker
    {"lamb", true, Family::Other, 2},
    {"muadam", true, Family::Other, 2},
    {"muadamw", true, Family::Other, 2},
    {"musgd", true, Family::Other, 0},  // with momentum: 1
    {"SGD", false, Family::Other, 0},   // with momentum: 1
    {"ASGD", false, Family::Other, 1},
    {"Adadelta", false, Family::Other, 2},
    {"Adamax", false, Family::Other, 2},
    {"NAdam", false, Family::Other, 2},
    {"RAdam", false, Family::Other, 2},
    {"RMSprop", false, Family::Other, 1},  // with momentum: 2
    {"Rprop", false, Family::Other, 2},
    {"SparseAdam", false, Family::Other, 2},
    {"Adafactor", false, Family::Other, 0},  // a row and a column
    {"LBFGS", false, Family::Other, 202},    // 100 directions, 100 steps, direction, old gradient
};

const OptimizerRow* find_row(const std::string& type) {
  for (const OptimizerRow& row : kOptimizers) {
    if (row.any_case ? lower_case(type) == row.name : type == row.name) return &row;
  }
  return nullptr;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names = {"Adam", "AdamW"};  // as people write them
  for (const OptimizerRow& row : kOptimizers) {
    if (row.family != Family::Adam) names.emplace_back(row.name);
  }
  return names;
}

const OptimizerRow& known_row(ConfigSection& section, const std::string& type) {
  if (const OptimizerRow* row = find_row(type)) return *row;
  // Names are near whatever their case.
  const std::vector<std::string> names = optimizer_names();
  std::string hint = did_you_mean(type, names);
  if (hint.empty()) hint = did_you_mean(lower_case(type), names);
  section.fail("type",
               format("found {}, which neither DeepSpeed nor torch.optim has, expected Adam, AdamW "
                      "or another name of theirs{}",
                      section.shown("type"), hint),
               "unknown_optimizer");
}

void check_zero_support(const DeepSpeedReading& reading, ConfigSection& section,
                        const OptimizerRow& row, bool untested_allowed) {
  if (reading.at_stage(kStage0)) return;
  if (row.family == Family::OneBit) {
    section.fail("type",
                 format("found {}, which cannot be combined with ZeRO, expected Adam or AdamW",
                        section.shown("type")),
                 "optimizer_incompatible_with_zero");
  }
  if (row.family == Family::Other && !untested_allowed) {
    section.fail("type",
                 format("found {}, which ZeRO has not been tested with; expected Adam or AdamW, or "
                        "zero_allow_untested_optimizer: true",
                        section.shown("type")),
                 "untested_optimizer");
  }
}

/// What matters among the free-form parameters: lr, betas and the like have no effect on time.
struct OptimizerParams {
  bool torch_adam = false;
  bool momentum = false;
};

void check_auto_params(const DeepSpeedReading& reading, JsonObject& params) {
  if (reading.fills_auto()) return;
  for (const char* key : {"lr", "betas", "eps", "weight_decay"}) {
    const JsonValue& value = params.raw(key);
    if (!value.isString() || value.asString() != "auto") continue;
    params.fail(key, "found \"auto\", which DeepSpeed alone does not fill in, expected a number",
                KnownCode("auto_unresolved").text());
  }
}

OptimizerParams read_params(const DeepSpeedReading& reading, ConfigSection& section) {
  OptimizerParams result;
  std::optional<ConfigSection> params = section.section("params");
  if (!params) return result;
  if (params->has("max_grad_norm")) {
    params->fail("max_grad_norm", "not accepted here, expected gradient_clipping at top level",
                 "max_grad_norm_in_optimizer");
  }
  result.torch_adam = params->boolean_or("torch_adam", false, {.matters = false});
  params->boolean_or("adam_w_mode", true, {.matters = false});
  const JsonValue& momentum = params->object().raw("momentum");
  result.momentum = momentum.isNumeric() && momentum.asDouble() != 0;
  check_auto_params(reading, params->object());
  return result;
}

bool momentum_adds(const std::string& name) {
  return name == "sgd" || name == "musgd" || name == "rmsprop";
}

void check_flag(const DeepSpeedReading& reading, ConfigSection& section, bool is_adam) {
  const std::optional<OptimizerKind> flag = reading.flags.optimizer;
  const OptimizerKind kind = reading.strategy.optimizer;
  if (!flag || (is_adam && *flag == kind)) return;
  const std::string means = is_adam ? format(", which is {} in DeepSpeed", to_string(kind)) : "";
  section.fail("type",
               format("found {}{}, but the flag {} says {}", section.shown("type"), means,
                      kOptimizerFlag, to_string(*flag)),
               "flag_contradicts_file");
}

void read_own_optimizer(DeepSpeedReading& reading, ConfigSection& section, bool untested_allowed) {
  Strategy& strategy = reading.strategy;
  const std::string type = section.object().string("type");
  const OptimizerRow& row = known_row(section, type);
  check_zero_support(reading, section, row, untested_allowed);
  section.list("type", type, Origin::File);
  const OptimizerParams params = read_params(reading, section);
  strategy.optimizer_name = lower_case(type);
  const bool more = params.momentum && momentum_adds(strategy.optimizer_name);
  strategy.optimizer_state_bytes = 4 + 4 * (row.moments + (more ? 1 : 0));
  strategy.optimizer =
      params.torch_adam ? OptimizerKind::AdamTorchForeach : OptimizerKind::AdamFused;
  check_flag(reading, section, row.family == Family::Adam);
}

/// The script hands the optimizer over.
void read_client_optimizer(DeepSpeedReading& reading, bool cpu_adam_forced) {
  Strategy& strategy = reading.strategy;
  const std::optional<OptimizerKind> flag = reading.flags.optimizer;
  strategy.optimizer = flag.value_or(OptimizerKind::AdamFused);
  const bool offloads = strategy.zero.offload_optimizer.device != OffloadDevice::None;
  if (offloads && cpu_adam_forced && flag && !reading.fills_auto()) {
    reading.root.fail(
        "zero_optimization",
        format("offloads the optimizer, but the flag {} says {}; expected DeepSpeed's "
               "CPU Adam or zero_force_ds_cpu_optimizer: false",
               kOptimizerFlag, to_string(*flag)),
        "offload_needs_cpu_adam");
  }
  std::string reason =
      "the file has none; torch AdamW (fused) is assumed, as the HF Trainer builds it";
  if (flag)
    reason = format("the file has none; {}, from the flag {}", to_string(*flag), kOptimizerFlag);
  if (offloads && cpu_adam_forced) {
    strategy.optimizer = OptimizerKind::AdamFused;
    reason =
        "the file has none; DeepSpeed's CPU Adam is assumed, which accelerate puts in its place";
  }
  reading.root.list("optimizer", "AdamW", flag ? Origin::Flag : Origin::Default,
                    {.reason = reason, .name = "optimizer.type"});
}

/// 16-bit master weights and states (A7), which only an optimizer on the CPU takes.
void check_master_weights(DeepSpeedReading& reading) {
  Strategy& strategy = reading.strategy;
  const auto is_on = [&](const char* key) {
    return std::any_of(reading.notes.settings.begin(), reading.notes.settings.end(),
                       [key](const Setting& s) { return s.key == key && s.value == "true"; });
  };
  const bool fp16 =
      strategy.precision == Precision::Fp16 && is_on("fp16.fp16_master_weights_and_grads");
  const bool bf16 =
      strategy.precision == Precision::Bf16 && is_on("bf16.bf16_master_weights_and_grads");
  const bool states = strategy.precision == Precision::Bf16 && is_on("bf16.bf16_optimizer_states");
  const bool offloads = strategy.zero.offload_optimizer.device != OffloadDevice::None;
  const bool adam = strategy.optimizer_name.starts_with("adam");
  if ((fp16 && !(offloads && adam)) || (bf16 && !offloads && !states)) {
    const std::string key =
        fp16 ? "fp16_master_weights_and_grads" : "bf16_master_weights_and_grads";
    const std::string section = fp16 ? "fp16" : reading.root.is_set("bf16") ? "bf16" : "bfloat16";
    reading.root.section(section)->fail(
        key,
        format("found true, which needs offload_optimizer on the CPU with {}",
               fp16 ? "Adam" : "any optimizer, or bf16_optimizer_states"),
        "master_weights_need_offload");
  }
  const int moments = strategy.optimizer_state_bytes / 4 - 1;
  strategy.bf16_states = bf16 && states;
  strategy.optimizer_state_bytes = (fp16 || bf16 ? 2 : 4) + moments * (states ? 2 : 4);
}

/// Each step holds all states of a sub-group and its gradient in buffers (A3).
void check_nvme_buffers(DeepSpeedReading& reading) {
  const OffloadOptions& options = reading.strategy.zero.offload_optimizer;
  if (options.device != OffloadDevice::Nvme) return;
  const std::int64_t held = reading.strategy.optimizer_state_bytes / 4 + 1;
  const std::int64_t sets = 1 + (options.pipeline_read ? 1 : 0) + (options.pipeline_write ? 1 : 0);
  if (options.buffer_count >= held * sets) return;
  std::optional<ConfigSection> zero = reading.root.section("zero_optimization");
  zero->section_or_empty("offload_optimizer")
      .fail("buffer_count",
            format("{}, expected at least {}: {} for the states and the gradient of {}{}",
                   options.buffer_count, held * sets, held, reading.strategy.optimizer_name,
                   sets == 1 ? "" : format(", times {} for pipelining", sets)),
            "nvme_buffers_too_few");
}

}  // namespace

void read_optimizer(DeepSpeedReading& reading) {
  ConfigSection& root = reading.root;
  const bool untested_allowed =
      root.boolean_or("zero_allow_untested_optimizer", false, {.matters = false});
  const bool offloads = reading.strategy.zero.offload_optimizer.device != OffloadDevice::None;
  const bool forced = root.boolean_or("zero_force_ds_cpu_optimizer", true, {.matters = offloads});
  std::optional<ConfigSection> section = root.section("optimizer");
  if (section && section->is_set("type")) {
    read_own_optimizer(reading, *section, untested_allowed);
  } else {
    read_client_optimizer(reading, forced);
  }
  check_master_weights(reading);
  check_nvme_buffers(reading);
}

}  // namespace zerosim::internal
