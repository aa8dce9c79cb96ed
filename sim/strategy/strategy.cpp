#include "sim/strategy/strategy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "sim/base/text.h"
#include "sim/strategy/config_codes.h"
#include "sim/strategy/ddp_options.h"
#include "sim/strategy/fsdp_options.h"
#include "sim/strategy/training_values.h"

namespace zerosim {
namespace {

template <typename Value>
struct Name {
  Value value;
  std::string_view name;
};

constexpr std::array<Name<Precision>, 3> kPrecisions = {{
    {Precision::Fp32, "fp32"},
    {Precision::Fp16, "fp16"},
    {Precision::Bf16, "bf16"},
}};
constexpr std::array<Name<ActivationCheckpointing>, 5> kCheckpointings = {{
    {ActivationCheckpointing::None, "none"},
    {ActivationCheckpointing::Full, "full"},
    {ActivationCheckpointing::Selective, "selective"},
    {ActivationCheckpointing::NonReentrant, "nonreentrant"},
    {ActivationCheckpointing::PerOperator, "per_operator"},
}};
constexpr std::array<Name<OptimizerKind>, 4> kOptimizers = {{
    {OptimizerKind::AdamFused, "adamw_fused"},
    {OptimizerKind::AdamTorchForeach, "adamw_torch_foreach"},
    {OptimizerKind::AdamTorch, "adamw_torch"},
    {OptimizerKind::Adam8bit, "adamw_8bit"},
}};
constexpr std::array<Name<Dtype>, 3> kWeights = {{
    {Dtype::F32, "fp32"},
    {Dtype::Bf16, "bf16"},
    {Dtype::F16, "fp16"},
}};
constexpr std::array<Name<OptimizerGroups>, 2> kOptimizerGroups = {{
    {OptimizerGroups::One, "one"},
    {OptimizerGroups::ByDimension, "by_dimension"},
}};
constexpr std::array<Name<LossKind>, 3> kLosses = {{
    {LossKind::Plain, "plain"},
    {LossKind::Fused, "fused"},
    {LossKind::Chunked, "chunked"},
}};
constexpr std::array<Name<ElementwiseKernels>, 5> kKernels = {{
    {ElementwiseKernels::Eager, "eager"},
    {ElementwiseKernels::FusedNorms, "fused_norms"},
    {ElementwiseKernels::Liger, "liger"},
    {ElementwiseKernels::Compiled, "compiled"},
    {ElementwiseKernels::Megatron, "megatron"},
}};
constexpr std::array<Name<FlashVersion>, 3> kFlashVersions = {{
    {FlashVersion::V1, "1"},
    {FlashVersion::V2, "2"},
    {FlashVersion::V3, "3"},
}};
constexpr std::array<Name<MatrixUnits>, 3> kMatrixUnits = {{
    {MatrixUnits::OfType, "default"},
    {MatrixUnits::Tf32, "tf32"},
    {MatrixUnits::Fp8, "fp8"},
}};
constexpr std::array<Name<ConfigMode>, 3> kConfigModes = {{
    {ConfigMode::Auto, "auto"},
    {ConfigMode::DeepSpeed, "deepspeed"},
    {ConfigMode::HuggingFace, "hf"},
}};

constexpr std::array<Name<OffloadDevice>, 3> kOffloadDevices = {{
    {OffloadDevice::None, "none"},
    {OffloadDevice::Cpu, "cpu"},
    {OffloadDevice::Nvme, "nvme"},
}};
constexpr std::array<Name<Origin>, 5> kOrigins = {{
    {Origin::File, "file"},
    {Origin::Flag, "flag"},
    {Origin::Auto, "auto"},
    {Origin::Derived, "derived"},
    {Origin::Default, "default"},
}};

template <typename Value, std::size_t N>
Value parse_name(const std::array<Name<Value>, N>& names, const std::string& text,
                 const std::string& flag) {
  std::vector<std::string> known;
  for (const Name<Value>& name : names) {
    if (name.name == text) return name.value;
    known.emplace_back(name.name);
  }
  throw ConfigError(format("{}: found \"{}\", expected one of {}{}", flag, text, join(known, ", "),
                           did_you_mean(text, known)));
}

template <typename Value, std::size_t N>
std::string_view name_of(const std::array<Name<Value>, N>& names, Value value) {
  for (const Name<Value>& name : names) {
    if (name.value == value) return name.name;
  }
  ZS_CHECK(false, "enumerator without a name");
}

std::int64_t checked_product(std::int64_t a, std::int64_t b, const SourceLocation& where) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw ConfigError(where, format("batch sizes: {} x {} leaves 64 bits", a, b),
                      KnownCode("out_of_range").text());
  }
  return product;
}

/// A4.1: what follows from the fields that are given; integer divisions, not yet checked.
BatchTriple derived_batch(std::optional<std::int64_t> train, std::optional<std::int64_t> micro,
                          std::optional<std::int64_t> accum, std::int64_t d,
                          const SourceLocation& where) {
  if (train && micro && accum) return {*train, *micro, *accum};
  if (train && micro) return {*train, *micro, *train / *micro / d};
  if (train && accum) return {*train, *train / d / *accum, *accum};
  if (train) return {*train, *train / d, 1};
  if (micro) {
    const std::int64_t g = accum.value_or(1);
    return {checked_product(checked_product(*micro, g, where), d, where), *micro, g};
  }
  throw ConfigError(where,
                    "batch sizes: found neither train_batch_size nor "
                    "train_micro_batch_size_per_gpu, expected at least one of them (or the micro "
                    "batch as a flag)",
                    KnownCode("batch_missing").text());
}

/// What would suit the fields that were given: totals next to the given one, or another world.
std::string fitting_batch(const BatchTriple& batch, bool all_given, std::int64_t unit,
                          std::int64_t d) {
  if (all_given) {
    std::string text = format("; train_batch_size {} would fit", unit);
    const std::int64_t per_rank = unit / d;
    if (batch.train_batch % per_rank == 0) {
      text += format(", or a data-parallel size of {}", batch.train_batch / per_rank);
    }
    return text;
  }
  std::vector<std::string> totals;
  const std::int64_t below = batch.train_batch / unit * unit;
  if (below > 0) totals.push_back(std::to_string(below));
  std::int64_t above = 0;
  if (!__builtin_add_overflow(below, unit, &above)) totals.push_back(std::to_string(above));
  return format("; train_batch_size {} would fit", join(totals, " or "));
}

void check_positive(const char* name, std::optional<std::int64_t> value,
                    const SourceLocation& where) {
  if (!value || *value > 0) return;
  throw ConfigError(where, format("{}: found {}, expected an integer of at least 1", name, *value),
                    KnownCode("out_of_range").text());
}

void check_world_size(int world_size) {
  if (world_size >= 1) return;
  throw ConfigError(format("world size: found {}, expected at least 1 rank", world_size));
}

/// The file that says no more than the stage, the batch and the precision.
std::string minimal_config(int stage, const TrainingFlags& flags) {
  std::string text =
      format(R"({{"zero_optimization": {{"stage": {}}}, "train_micro_batch_size_per_gpu": {}, )"
             R"("gradient_accumulation_steps": {})",
             stage, *flags.micro_batch, *flags.grad_accum);
  if (*flags.precision != Precision::Fp32) {
    text += format(R"(, "{}": {{"enabled": true}})", to_string(*flags.precision));
  }
  // Without the section the optimizer of the flags is the one that the script hands over.
  if (!flags.optimizer) text += R"(, "optimizer": {"type": "AdamW"})";
  return text + "}";
}

/// Flags completed by the defaults of a named strategy, each listed.
TrainingFlags completed(TrainingFlags flags, std::vector<std::string>& assumptions) {
  if (!flags.precision) {
    flags.precision = Precision::Bf16;
    assumptions.emplace_back("Precision: bf16, since no flag says otherwise.");
  }
  if (!flags.micro_batch) {
    flags.micro_batch = 1;
    assumptions.emplace_back("Micro batch: 1 sequence per GPU, since no flag says otherwise.");
  }
  if (!flags.grad_accum) {
    flags.grad_accum = 1;
    assumptions.emplace_back(
        "Gradient accumulation: 1 micro batch per step, since no flag says otherwise.");
  }
  return flags;
}

Strategy named_zero(int stage, const TrainingFlags& given, int world_size) {
  std::vector<std::string> assumptions;
  TrainingFlags flags = completed(given, assumptions);
  flags.config_as = ConfigMode::Auto;
  const std::string name = format("zero{}", stage);
  Strategy strategy =
      parse_deepspeed_config(minimal_config(stage, flags), name, flags, Model(), world_size);
  strategy.assumptions.insert(strategy.assumptions.begin(), assumptions.begin(), assumptions.end());
  return strategy;
}

/// What strategies without a file have in common.
Strategy named_without_file(const std::string& name, Framework framework,
                            const TrainingFlags& flags, int world_size) {
  Strategy strategy;
  strategy.name = name;
  strategy.framework = framework;
  const BatchTriple batch =
      resolve_batch(std::nullopt, flags.micro_batch, flags.grad_accum, world_size, {});
  strategy.train_batch = batch.train_batch;
  strategy.micro_batch = batch.micro_batch;
  strategy.grad_accum = batch.grad_accum;
  strategy.precision = *flags.precision;
  strategy.check_grad_overflow = *flags.precision == Precision::Fp16;
  strategy.checkpointing = flags.checkpointing.value_or(ActivationCheckpointing::None);
  strategy.throughput_timer = false;
  strategy.zero_init = false;
  strategy.version = "";
  return strategy;
}

void note_checkpointing(Strategy& strategy, const TrainingFlags& flags) {
  if (flags.checkpointing) return;
  strategy.assumptions.emplace_back("Activation checkpointing: none, since no flag asks for it.");
}

/// PyTorch alone: under DDP and on one GPU fp32 weights and gradients, 16-bit computation by
/// autocast (spec D1.8).
Strategy named_torch(const std::string& name, Framework framework, const TrainingFlags& given,
                     int world_size) {
  std::vector<std::string> assumptions;
  const TrainingFlags flags = completed(given, assumptions);
  Strategy strategy = named_without_file(name, framework, flags, world_size);
  strategy.assumptions = std::move(assumptions);
  strategy.gradient_clipping = 0;
  strategy.optimizer = flags.optimizer.value_or(OptimizerKind::AdamTorchForeach);
  if (framework == Framework::Fsdp) {
    internal::apply_fsdp_name(strategy, name, flags, strategy.assumptions);
  } else {
    internal::apply_ddp_flags(strategy, flags, strategy.assumptions);
  }
  internal::apply_overflow_steps(strategy, flags, strategy.assumptions);
  strategy.assumptions.emplace_back("Gradient clipping: off, PyTorch clips only when asked to.");
  if (!flags.optimizer) {
    strategy.assumptions.emplace_back(
        "Optimizer: torch AdamW for-each, PyTorch's default, since no flag says otherwise.");
  }
  note_checkpointing(strategy, flags);
  return strategy;
}

/// Megatron-LM's defaults (megatron/arguments.py): clip_grad 1.0, apex' FusedAdam, and gradients
/// that are accumulated and reduced in fp32 with bf16, else in the weights' type.
Strategy named_megatron(const std::string& name, const TrainingFlags& given, int world_size) {
  std::vector<std::string> assumptions;
  const TrainingFlags flags = completed(given, assumptions);
  Strategy strategy = named_without_file(name, Framework::Ddp, flags, world_size);
  strategy.assumptions = std::move(assumptions);
  strategy.ddp.kind = DdpKind::Megatron;
  strategy.ddp.parameter_dtype = model_dtype(strategy.precision);
  strategy.grad_accum_dtype = strategy.precision == Precision::Fp16 ? Dtype::F16 : Dtype::F32;
  strategy.communication_dtype = strategy.grad_accum_dtype;
  strategy.optimizer = flags.optimizer.value_or(OptimizerKind::AdamFused);
  internal::apply_overflow_steps(strategy, flags, strategy.assumptions);
  strategy.assumptions.push_back(format(
      "Gradients are accumulated and reduced in {}, as Megatron-LM does with {}.",
      strategy.precision == Precision::Fp16 ? "fp16" : "fp32", to_string(strategy.precision)));
  strategy.assumptions.emplace_back("Gradient clipping: norm 1.0, Megatron-LM's default.");
  if (!flags.optimizer) {
    strategy.assumptions.emplace_back(
        "Optimizer: apex FusedAdam, Megatron-LM's default, since no flag says otherwise.");
  }
  note_checkpointing(strategy, flags);
  return strategy;
}

}  // namespace

Precision parse_precision(const std::string& text, const std::string& flag) {
  return parse_name(kPrecisions, text, flag);
}
ActivationCheckpointing parse_checkpointing(const std::string& text, const std::string& flag) {
  return parse_name(kCheckpointings, text, flag);
}
OptimizerKind parse_optimizer(const std::string& text, const std::string& flag) {
  return parse_name(kOptimizers, text, flag);
}
OptimizerGroups parse_optimizer_groups(const std::string& text, const std::string& flag) {
  return parse_name(kOptimizerGroups, text, flag);
}
LossKind parse_loss(const std::string& text, const std::string& flag) {
  return parse_name(kLosses, text, flag);
}
ElementwiseKernels parse_kernels(const std::string& text, const std::string& flag) {
  return parse_name(kKernels, text, flag);
}
FlashVersion parse_flash_version(const std::string& text, const std::string& flag) {
  return parse_name(kFlashVersions, text, flag);
}
MatrixUnits parse_matrix_units(const std::string& text, const std::string& flag) {
  return parse_name(kMatrixUnits, text, flag);
}
ModelCode parse_transformers_version(const std::string& text, const std::string& flag) {
  constexpr int kFirstPresent = 46;  // 4.46: every model's loss is ForCausalLMLoss or its like
  int minor = -1;
  const char* end = text.data() + text.size();
  if (text.starts_with("4.")) {
    const auto [rest, error] = std::from_chars(text.data() + 2, end, minor);
    if (error != std::errc() || (rest != end && *rest != '.')) minor = -1;
  }
  if (minor < 0) {
    throw ConfigError(format("{}: found \"{}\", expected a release such as 4.57", flag, text));
  }
  return minor < kFirstPresent ? ModelCode::TransformersOld : ModelCode::Present;
}
ConfigMode parse_config_mode(const std::string& text, const std::string& flag) {
  return parse_name(kConfigModes, text, flag);
}
Dtype parse_weights(const std::string& text, const std::string& flag) {
  return parse_name(kWeights, text, flag);
}

std::string parse_torch_version(const std::string& text, const std::string& flag) {
  const bool numeric = text.find_first_not_of("0123456789.") == std::string::npos &&
                       text.find("..") == std::string::npos && !text.ends_with('.');
  for (const char* known : {"1.13", "2"}) {
    if (text == known || (numeric && text.starts_with(std::string(known) + "."))) return known;
  }
  throw ConfigError(
      format("{}: found \"{}\", expected 1.13 or 2 (or a release of it, as 2.4)", flag, text));
}

std::string_view to_string(Precision precision) {
  return name_of(kPrecisions, precision);
}
std::string_view to_string(ActivationCheckpointing checkpointing) {
  return name_of(kCheckpointings, checkpointing);
}
bool recomputes_block(double share, int block) {
  return block >= 0 && std::floor((block + 1) * share + 0.5) > std::floor(block * share + 0.5);
}

bool recomputes_block(const Strategy& strategy, int block) {
  return recomputes_blocks(strategy.checkpointing) &&
         recomputes_block(strategy.checkpointed_share, block);
}

std::string_view to_string(OptimizerKind optimizer) {
  return name_of(kOptimizers, optimizer);
}

std::string_view to_string(OffloadDevice device) {
  return name_of(kOffloadDevices, device);
}
std::string_view to_string(Origin origin) {
  return name_of(kOrigins, origin);
}

std::string sentence(const Setting& setting) {
  const std::string unit = setting.unit.empty() ? "" : " " + setting.unit;
  const std::string reason = setting.reason.empty() ? "" : ", " + setting.reason;
  const char* becomes = setting.origin == Origin::Auto ? "\"auto\" becomes " : "";
  return format("{}: {}{}{}{}.", setting.key, becomes, setting.value, unit, reason);
}

const Setting* find_setting(const Strategy& strategy, std::string_view key) {
  for (const Setting& setting : strategy.settings) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

Dtype model_dtype(Precision precision) {
  switch (precision) {
    case Precision::Fp32:
      return Dtype::F32;
    case Precision::Fp16:
      return Dtype::F16;
    case Precision::Bf16:
      return Dtype::Bf16;
  }
  ZS_CHECK(false, "precision without an element type");
}

BatchShape trained_batch(BatchShape batch, const Strategy& strategy) {
  batch.micro_batch = strategy.micro_batch;
  batch.compute = model_dtype(strategy.precision);
  if (strategy.tf32) batch.units = MatrixUnits::Tf32;
  if (strategy.compiled) batch.kernels = ElementwiseKernels::Compiled;
  if (strategy.liger_kernel) {
    batch.loss = LossKind::Chunked;
    batch.kernels = ElementwiseKernels::Liger;
  }
  return batch;
}

BatchTriple resolve_batch(std::optional<std::int64_t> train_batch,
                          std::optional<std::int64_t> micro_batch,
                          std::optional<std::int64_t> grad_accum, std::int64_t data_parallel_size,
                          const SourceLocation& where) {
  if (data_parallel_size < 1) {
    throw ConfigError(where, format("data-parallel size: found {}, expected at least 1 rank",
                                    data_parallel_size));
  }
  check_positive("train_batch_size", train_batch, where);
  check_positive("train_micro_batch_size_per_gpu", micro_batch, where);
  check_positive("gradient_accumulation_steps", grad_accum, where);
  BatchTriple batch =
      derived_batch(train_batch, micro_batch, grad_accum, data_parallel_size, where);
  const std::int64_t product = checked_product(
      checked_product(batch.micro_batch, batch.grad_accum, where), data_parallel_size, where);
  if (product == batch.train_batch && product > 0) return batch;
  // Totals that suit the other given fields are multiples of their product.
  const std::int64_t unit =
      checked_product(checked_product(micro_batch.value_or(1), grad_accum.value_or(1), where),
                      data_parallel_size, where);
  throw ConfigError(
      where,
      format("batch sizes: train_batch_size {} != train_micro_batch_size_per_gpu {} x "
             "gradient_accumulation_steps {} x data-parallel size {} = {}{}",
             batch.train_batch, batch.micro_batch, batch.grad_accum, data_parallel_size, product,
             fitting_batch(batch, micro_batch && grad_accum, unit, data_parallel_size)),
      KnownCode("batch_triple_mismatch").text());
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names = {"single", "ddp",   "megatron_ddp", "zero0",
                                    "zero1",  "zero2", "zero3"};
  const std::vector<std::string> fsdp = internal::fsdp_strategy_names();
  names.insert(names.end(), fsdp.begin(), fsdp.end());
  return names;
}

Strategy named_strategy(const std::string& name, const TrainingFlags& flags, int world_size) {
  check_world_size(world_size);
  if (name == "single") return named_torch(name, Framework::Single, flags, 1);
  if (name == "ddp") return named_torch(name, Framework::Ddp, flags, world_size);
  if (name == "megatron_ddp") return named_megatron(name, flags, world_size);
  if (internal::is_fsdp_strategy(name)) {
    return named_torch(name, Framework::Fsdp, flags, world_size);
  }
  for (int stage = 0; stage <= 3; ++stage) {
    if (name == format("zero{}", stage)) return named_zero(stage, flags, world_size);
  }
  const std::vector<std::string> known = strategy_names();
  throw ConfigError(format("strategy: found \"{}\", expected one of {}{}", name, join(known, ", "),
                           did_you_mean(name, known)));
}

}  // namespace zerosim
