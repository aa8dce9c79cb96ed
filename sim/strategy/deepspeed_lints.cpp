#include <algorithm>
#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim::internal {
namespace {

struct ParameterSizes {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  /// Of those that each block repeats, where the model has blocks: embedding and head are one
  /// message each, however large.
  std::int64_t largest_of_blocks = 0;
};

/// \param trainable_only  only parameters that have a gradient.
ParameterSizes parameter_sizes(const Model& model, bool trainable_only) {
  ParameterSizes sizes;
  for (const Parameter& parameter : model.parameters) {
    if (trainable_only && !parameter.trainable) continue;
    sizes.total += parameter.elements;
    sizes.largest = std::max(sizes.largest, parameter.elements);
    const bool in_block =
        parameter.owner.valid() && model.modules[parameter.owner.index()].block >= 0;
    if (in_block) sizes.largest_of_blocks = std::max(sizes.largest_of_blocks, parameter.elements);
  }
  if (sizes.largest_of_blocks == 0) sizes.largest_of_blocks = sizes.largest;
  return sizes;
}

/// Where a model has only its hidden size: every block has a square matrix of it.
std::int64_t least_matrix(const Model& model) {
  constexpr std::int64_t kLargestHidden = 1'000'000'000;  // its square fits 64 bits
  const std::int64_t hidden = std::clamp<std::int64_t>(model.shape.hidden, 0, kLargestHidden);
  return hidden * hidden;
}

/// The key that the file uses for a field with two names.
std::string given_name(ConfigSection& zero, const std::string& plain) {
  return zero.has(plain) ? plain : "stage3_" + plain;
}

void lint_hpz(DeepSpeedReading& reading, ConfigSection& zero) {
  const ZeroOptions& options = reading.strategy.zero;
  const std::int64_t group = options.hpz_partition_size;
  if (group <= 1) return;
  const std::int64_t node = reading.flags.gpus_per_node.value_or(reading.world_size);
  const char* key = "zero_hpz_partition_size";
  if (group >= reading.world_size || (reading.flags.gpus_per_node && node >= reading.world_size)) {
    zero.warn(
        key, "hpz_useless_on_one_node",
        format("the {} ranks gather within {} anyhow: a second copy of 2/{} bytes a parameter "
               "for nothing",
               reading.world_size, group >= reading.world_size ? "the group" : "one node", group));
  } else if (reading.flags.gpus_per_node && group > node) {
    zero.warn(
        key, "hpz_spans_nodes",
        format("groups of {} ranks, but {} GPUs a node: gathers leave the node", group, node));
  }
  const bool offloads = options.offload_param.device != OffloadDevice::None ||
                        options.offload_optimizer.device != OffloadDevice::None;
  if (offloads) {
    zero.warn(key, "hpz_with_offload_untested",
              "together with offload: reported to break training");
  }
}

void lint_mics(DeepSpeedReading& reading, ConfigSection& zero) {
  const std::int64_t shard = reading.strategy.zero.mics_shard_size;
  if (shard <= 0) return;
  const char* key = "mics_shard_size";
  const bool splits = shard < reading.world_size;
  if (reading.flags.zero_init != ZeroInit::Mics) {
    zero.warn(key, "mics_needs_mics_init",
              format("DeepSpeed asserts unless the model is built inside MiCS_Init{}",
                     splits ? "; 0.19 then deadlocks, as the shard is below the world size" : ""));
  } else if (splits && deepspeed_release(reading.strategy.version).mics_deadlocks) {
    zero.warn(key, "mics_may_deadlock",
              format("{} ranks a shard of {}: DeepSpeed {} skips the reduction over replicas on "
                     "some ranks and hangs (rule 59)",
                     shard, reading.world_size, reading.strategy.version));
  }
}

void lint_persistence(DeepSpeedReading& reading, ConfigSection& zero) {
  const ZeroOptions& options = reading.strategy.zero;
  const std::int64_t threshold = options.param_persistence_threshold;
  const std::string key = given_name(zero, "param_persistence_threshold");
  if (threshold == 0) {
    zero.warn(key, "persistence_0_gathers_every_bias",
              "0 makes every bias and norm a gather of its own");
    return;
  }
  const ParameterSizes sizes = parameter_sizes(reading.model, false);
  const bool keeps_all = sizes.total > 0 && sizes.largest <= threshold &&
                         sizes.total <= options.model_persistence_threshold;
  if (!keeps_all) return;
  zero.warn(key, "persistence_keeps_every_parameter",
            format("{} elements, and no parameter has more than {}: all weights stay gathered",
                   threshold, sizes.largest));
}

/// Whether the module is one of `leaves`, or part of one.
bool is_in_leaf(const Model& model, ModuleId id, const std::vector<ModuleId>& leaves) {
  for (; id.valid(); id = model.modules[id.index()].parent) {
    if (std::binary_search(leaves.begin(), leaves.end(), id)) return true;
  }
  return false;
}

/// Experts that are modules of their own, each gathered when it is called; not fused in one tensor.
bool has_expert_modules(const Model& model, std::size_t block) {
  return std::any_of(model.modules.begin(), model.modules.end(), [block](const Module& module) {
    return module.moe_block == static_cast<int>(block) && module.expert >= 0;
  });
}

/// Rules 87 to 89.
void lint_experts(DeepSpeedReading& reading, ConfigSection& zero) {
  const Model& model = reading.model;
  if (model.moe_blocks.empty()) return;
  const std::vector<ModuleId> leaves = leaf_modules(reading.strategy.zero, model);
  for (std::size_t block = 0; block < model.moe_blocks.size(); ++block) {
    const ModuleId module = model.moe_blocks[block].module;
    if (!has_expert_modules(model, block) || is_in_leaf(model, module, leaves)) continue;
    const std::string& class_name = model.modules[module.index()].class_name;
    zero.warn(zero.is_set("leaf_module") ? "leaf_module" : "stage",
              "moe_without_leaf_module_may_hang",
              format("{} is no leaf module: ranks that route to different experts gather different "
                     "parameters; name it in leaf_module.classes",
                     class_name));
    return;
  }
}

}  // namespace

void lint_buckets(DeepSpeedReading& reading, ConfigSection& zero) {
  constexpr const char* kKey = "reduce_bucket_size";
  if (reading.at_stage(kStage0)) return;
  const ParameterSizes sizes = parameter_sizes(reading.model, true);
  const std::int64_t bucket = reading.strategy.zero.reduce_bucket_size;
  if (sizes.total > 0 && bucket > sizes.total) {
    zero.warn(kKey, "bucket_larger_than_model",
              format("{} elements, above the {} parameters of the model", bucket, sizes.total));
  }
  const bool stated = zero.is_set(kKey) && !zero.is_auto(kKey);
  const bool known = sizes.total > 0;
  const std::int64_t largest = known ? sizes.largest_of_blocks : least_matrix(reading.model);
  if (stated && bucket < largest) {
    zero.warn(kKey, "bucket_smaller_than_largest_param",
              format("{} elements, below the largest parameter of a block with {}{}", bucket,
                     known ? "" : "at least ", largest));
  }
}

void lint_stage3(DeepSpeedReading& reading, ConfigSection& zero) {
  const ZeroOptions& options = reading.strategy.zero;
  if (options.stage != 3) return;
  if (zero.is_set("allgather_bucket_size")) {
    zero.warn("allgather_bucket_size", "allgather_bucket_size_ignored_at_stage_3",
              "has no effect at stage 3");
  }
  lint_persistence(reading, zero);
  if (options.prefetch_bucket_size == 0) {
    zero.warn(given_name(zero, "prefetch_bucket_size"), "prefetch_disabled",
              "0 gathers each module only when it is needed");
  }
  if (options.max_live_parameters == 0) {
    zero.warn(given_name(zero, "max_live_parameters"), "max_live_0_serialises_gathers",
              "0 leaves no room to look ahead");
  }
  lint_hpz(reading, zero);
  lint_mics(reading, zero);
  lint_experts(reading, zero);
}

void lint_parallelism(DeepSpeedReading& reading, ConfigSection& zero) {
  const int stage = reading.strategy.zero.stage;
  if (reading.world_size > 1 || stage == 0) return;
  zero.warn("stage", "dp_degree_1_no_sharding",
            format("stage {} with one data-parallel rank shards nothing", stage));
}

}  // namespace zerosim::internal
