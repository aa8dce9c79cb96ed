#include "sim/strategy/fsdp_options.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "sim/base/text.h"
#include "sim/strategy/fsdp_release.h"
#include "sim/strategy/training_values.h"

namespace zerosim::internal {
namespace {

struct NamedFsdp {
  std::string_view name;
  int version = 1;
  FsdpSharding sharding = FsdpSharding::FullShard;
};
constexpr std::array<NamedFsdp, 8> kNamed = {{
    {"fsdp_full", 1, FsdpSharding::FullShard},
    {"fsdp_grad_op", 1, FsdpSharding::ShardGradOp},
    {"fsdp_no_shard", 1, FsdpSharding::NoShard},
    {"hsdp", 1, FsdpSharding::HybridShard},
    {"hsdp_grad_op", 1, FsdpSharding::HybridShardZero2},
    {"fsdp2", 2, FsdpSharding::FullShard},
    {"fsdp2_grad_op", 2, FsdpSharding::ShardGradOp},
    {"fsdp2_hsdp", 2, FsdpSharding::HybridShard},
}};

const NamedFsdp* find_named(const std::string& name) {
  const std::string_view wanted = name == "fsdp" ? kNamed.front().name : name;
  const auto* const found = std::find_if(kNamed.begin(), kNamed.end(),
                                         [&](const NamedFsdp& n) { return n.name == wanted; });
  return found == kNamed.end() ? nullptr : found;
}

}  // namespace

std::vector<std::string> fsdp_strategy_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kNamed));
  for (const NamedFsdp& named : kNamed) names.emplace_back(named.name);
  return names;
}

bool is_fsdp_strategy(const std::string& name) {
  return find_named(name) != nullptr;
}

void apply_fsdp_name(Strategy& strategy, const std::string& name, const TrainingFlags& flags,
                     std::vector<std::string>& assumptions) {
  const NamedFsdp* named = find_named(name);
  ZS_CHECK(named != nullptr, "a strategy of FSDP");
  FsdpOptions& options = strategy.fsdp;
  options.version = named->version;
  options.sharding = named->sharding;
  options.reshard_after_forward = options.sharding != FsdpSharding::ShardGradOp &&
                                  options.sharding != FsdpSharding::HybridShardZero2;
  options.use_orig_params = false;
  complete_fsdp(strategy, flags, assumptions);
  const FsdpRelease& release = fsdp_release(strategy.torch_version);
  options.limit_all_gathers = release.limits_all_gathers;
  options.backward_prefetch = release.backward_prefetch;
  assumptions.emplace_back("FSDP units: each block of the model, and the root with the rest.");
  assumptions.push_back(options.version == 2
                            ? "fully_shard: PyTorch's defaults, one group ahead in backward (D3.6)."
                            : format("FSDP: PyTorch's defaults: {}, no forward prefetch, "
                                     "limit_all_gathers {}, use_orig_params false (D2.2).",
                                     options.backward_prefetch == BackwardPrefetch::Pre
                                         ? "BACKWARD_PRE"
                                         : "no backward prefetch",
                                     options.limit_all_gathers));
}

void complete_fsdp(Strategy& strategy, const TrainingFlags& flags,
                   std::vector<std::string>& assumptions) {
  FsdpOptions& options = strategy.fsdp;
  strategy.torch_version = parse_torch_version(flags.torch_version, "--torch-version");
  strategy.grad_accum_dtype = options.parameter_dtype;
  strategy.communication_dtype = options.reduce_dtype.value_or(model_dtype(strategy.precision));
  options.buffer_dtype = model_dtype(strategy.precision);
  if (strategy.precision != Precision::Fp32) {
    assumptions.push_back(
        options.reduce_dtype
            ? format("Mixed precision: {} in forward, backward and gathers, {} in reductions; "
                     "shards and optimizer states are fp32.",
                     to_string(strategy.precision), to_string(*options.reduce_dtype))
            : format("Mixed precision: {} in forward and backward; gathers and reductions too, "
                     "shards and optimizer states are fp32.",
                     to_string(strategy.precision)));
  }
  if (flags.no_sync) options.no_sync = *flags.no_sync;
  if (strategy.grad_accum > 1 && !flags.no_sync && options.no_sync) {
    assumptions.emplace_back(
        "Gradient accumulation under no_sync(): one reduction a step, since no flag says "
        "otherwise.");
  }
  if (is_hybrid(options.sharding) && options.shard_group == 0) {
    options.shard_group = flags.gpus_per_node.value_or(0);
  }
}

}  // namespace zerosim::internal
