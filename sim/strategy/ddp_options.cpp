#include "sim/strategy/ddp_options.h"

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

std::string_view name_of_weights(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return "bf16";
    case Dtype::F16:
      return "fp16";
    default:
      return "fp32";
  }
}

/// A cast model computes in its own type.
void set_weights(Strategy& strategy, Dtype dtype) {
  if (dtype != Dtype::F32 && dtype != model_dtype(strategy.precision)) {
    throw ConfigError(format("--ddp-weights: found {}, but training computes in {}; expected {}",
                             name_of_weights(dtype), to_string(strategy.precision),
                             strategy.precision == Precision::Fp32
                                 ? std::string("fp32, or --precision to agree")
                                 : format("fp32 or {}", to_string(strategy.precision))));
  }
  strategy.ddp.parameter_dtype = dtype;
  // D1.8
  strategy.communication_dtype = dtype;
  strategy.grad_accum_dtype = dtype;
}

void note_weights(const Strategy& strategy, std::vector<std::string>& assumptions) {
  if (strategy.precision == Precision::Fp32) return;
  if (strategy.ddp.parameter_dtype == Dtype::F32) {
    assumptions.push_back(
        format("Mixed precision: autocast to {}; weights, gradients and their reduction are fp32.",
               to_string(strategy.precision)));
    return;
  }
  assumptions.push_back(
      format("Weights: cast to {}; gradients, their reduction and the optimizer's states are {} "
             "too, without fp32 copies.",
             to_string(strategy.precision), to_string(strategy.precision)));
}

}  // namespace

void set_bucket_cap(DdpOptions& options, double mib, const std::string& torch_version) {
  options.bucket_cap_mib = mib;
  if (torch_version != "1.13") options.first_bucket_mib = mib;
}

void apply_ddp_flags(Strategy& strategy, const TrainingFlags& flags,
                     std::vector<std::string>& assumptions) {
  strategy.torch_version = parse_torch_version(flags.torch_version, "--torch-version");
  set_weights(strategy, flags.ddp.parameter_dtype.value_or(Dtype::F32));
  note_weights(strategy, assumptions);
  DdpOptions& options = strategy.ddp;
  if (flags.ddp.bucket_cap_mib) {
    set_bucket_cap(options, *flags.ddp.bucket_cap_mib, strategy.torch_version);
  }
  const auto set = [](bool& option, std::optional<bool> flag) { option = flag.value_or(option); };
  set(options.find_unused_parameters, flags.ddp.find_unused_parameters);
  set(options.static_graph, flags.ddp.static_graph);
  set(options.gradient_as_bucket_view, flags.ddp.gradient_as_bucket_view);
  set(options.broadcast_buffers, flags.ddp.broadcast_buffers);
  options.no_sync = flags.no_sync.value_or(true);
  if (strategy.framework == Framework::Ddp && strategy.grad_accum > 1 && !flags.no_sync) {
    assumptions.emplace_back(
        "Gradient accumulation under no_sync(): one reduction a step, since no flag says "
        "otherwise.");
  }
}

}  // namespace zerosim::internal
