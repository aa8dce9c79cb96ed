#include "sim/program/build.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/model/leaf_modules.h"
#include "sim/program/frameworks.h"

namespace zerosim {

namespace {

// Each micro batch is simulated; Op::micro_step has 16 bits.
constexpr std::int64_t kLargestAccumulation = 4096;

std::unique_ptr<FrameworkHooks> make_hooks(const FrameworkContext& context,
                                           const FlatLayout& layout, Rank rank) {
  if (context.strategy.framework == Framework::Fsdp) {
    return context.strategy.fsdp.version == 2 ? make_fsdp2(context) : make_fsdp1(context);
  }
  if (context.strategy.framework != Framework::DeepSpeed) {
    return make_ddp(context);
  }
  const ZeroOptions& zero = context.strategy.zero;
  if (zero.stage == 0) {
    return make_zero0(context);
  }
  if (zero.stage == 3) {
    return make_zero3(context);
  }
  return uses_bf16_optimizer(context.strategy) ? make_bf16_optimizer(context, layout)
                                               : make_zero12(context, layout, rank);
}

/// The model as a micro batch runs it: experts have their tokens; at stage 3 leaf modules are one
/// unit each. Only `forward`, the experts' tokens and what leaves own differ, ids do not.
class RoutedModels {
 public:
  RoutedModels(const Model& given, const Strategy& strategy, const BatchShape& batch,
               const Routing& routing)
      : given_(given), routing_(routing), tokens_(batch.tokens()) {
    if (strategy.framework == Framework::DeepSpeed && strategy.zero.stage == 3) {
      leaves_ = leaf_modules(strategy.zero, given);
    }
  }

  /// Alike ones are one; the given one if nothing differs.
  const Model& of(const MicroBatch& micro) {
    if (given_.moe_blocks.empty() && leaves_.empty()) {
      return given_;
    }
    if (!models_.empty() && !varies(routing_)) {
      return models_.begin()->second;
    }
    Model routed = given_.moe_blocks.empty()
                       ? given_
                       : route_tokens(given_, routing_, tokens_, {micro.step, micro.index});
    std::vector<std::vector<std::int64_t>> key;
    for (const MoeBlock& block : routed.moe_blocks) {
      key.push_back(block.tokens);
    }
    const auto known = models_.find(key);
    if (known != models_.end()) {
      return known->second;
    }
    if (!leaves_.empty()) {
      routed = with_leaf_modules(std::move(routed), leaves_);
    }
    return models_.emplace(std::move(key), std::move(routed)).first->second;
  }

 private:
  const Model& given_;
  const Routing& routing_;
  std::int64_t tokens_;
  std::vector<ModuleId> leaves_;
  std::map<std::vector<std::vector<std::int64_t>>, Model> models_;
};

bool has_idle_expert(const Model& model) {
  return std::any_of(model.moe_blocks.begin(), model.moe_blocks.end(), [](const MoeBlock& block) {
    return !block.calls_idle_experts &&
           std::find(block.tokens.begin(), block.tokens.end(), 0) != block.tokens.end();
  });
}

/// Whether any micro batch of the steps to build leaves an expert out.
bool any_idle_expert(const Model& model, RoutedModels& routed, const Strategy& strategy,
                     const BuildOptions& options) {
  if (!varies(options.routing)) {
    return has_idle_expert(model);
  }
  for (int step = options.first_step; step < options.first_step + options.steps; ++step) {
    for (int micro = 0; micro < static_cast<int>(strategy.grad_accum); ++micro) {
      if (has_idle_expert(routed.of({step, micro, false}))) {
        return true;
      }
    }
  }
  return false;
}

bool partitions_flat_tensor(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed &&
         (strategy.zero.stage == 1 || strategy.zero.stage == 2);
}

/// Type of the messages that carry parameters.
Dtype communicated_weights(const Strategy& strategy) {
  const bool in_own_type =
      strategy.framework == Framework::Single || strategy.framework == Framework::Ddp;
  return in_own_type ? strategy.ddp.parameter_dtype : model_dtype(strategy.precision);
}

/// Type of the model as it is built and loaded.
Dtype own_weights(const Strategy& strategy) {
  return strategy.framework == Framework::Fsdp ? strategy.fsdp.parameter_dtype
                                               : communicated_weights(strategy);
}

/// How blocks are recomputed.
std::string checkpointing_assumption(const Strategy& strategy) {
  if (strategy.checkpointing == ActivationCheckpointing::PerOperator) {
    return "activation checkpointing keeps the results of attention and of every second product of "
           "a block, as torchtitan's option \"op\", and recomputes the rest in the order of C12.3";
  }
  const bool inside =
      strategy.framework == Framework::Fsdp && !strategy.fsdp.checkpoints_around_units;
  if (inside) {
    return "activation checkpointing is inside the units, which are gathered when it recomputes "
           "(D3.11)";
  }
  return format("activation checkpointing recomputes whole blocks in the order of PyTorch's {}",
                strategy.checkpointing == ActivationCheckpointing::Full
                    ? "reentrant variant (C12.1)"
                    : "other variant, use_reentrant=False (C12.3)");
}

}  // namespace

GroupId add_group(const FrameworkContext& context, const ProcessGroup& group) {
  const GroupId id(context.program.groups.size());
  context.program.groups.push_back(group);
  context.builder.add_communicator(id, group.name);
  return id;
}

Program build_program(const Model& given, const Strategy& strategy, const BatchShape& batch,
                      const BuildOptions& options) {
  ZS_CHECK(options.warm_up_steps >= 0 && options.warm_up_steps < options.steps,
           "a step is left to be timed");
  if (options.world_size < 1 || options.steps < 1 || options.first_step < 0) {
    throw ConfigError(
        format("world size {}, {} steps from step {}: expected at least one rank and "
               "one step",
               options.world_size, options.steps, options.first_step));
  }
  if (strategy.grad_accum > kLargestAccumulation) {
    throw ConfigError(
        format("{}: gradient accumulation over {} micro batches: expected at most {}, as each is "
               "simulated",
               strategy.name, strategy.grad_accum, kLargestAccumulation));
  }
  if (strategy.framework == Framework::Single && options.world_size != 1) {
    throw ConfigError(
        format("strategy \"{}\" runs on one GPU, not on {}", strategy.name, options.world_size));
  }
  if (strategy.not_simulated) {
    throw ConfigError(*strategy.not_simulated);
  }
  RoutedModels routed(given, strategy, batch, options.routing);
  const Model& model = routed.of({options.first_step, 0, false});

  Program program;
  program.strategy = strategy.name;
  program.world_size = options.world_size;
  program.first_step = options.first_step;
  program.steps = options.steps;
  program.warm_up_steps = options.warm_up_steps;
  program.groups = {{"WORLD", options.world_size}, {"DP", options.world_size}};
  program.parameter_elements = parameter_count(model);
  program.parameter_bytes =
      Bytes(program.parameter_elements) * dtype_bytes(communicated_weights(strategy));
  for (const Module& module : model.modules) {
    program.module_names.push_back(module.name);
  }
  for (const Parameter& parameter : model.parameters) {
    program.parameter_names.push_back(parameter.name);
  }

  const FlatLayout layout = partitions_flat_tensor(strategy)
                                ? flat_layout(model, strategy, options.world_size)
                                : FlatLayout();
  const Rank rank = largest_partition_rank(layout, options.world_size);
  RankProgramBuilder builder(rank, options.world_size);
  builder.synchronize_after_collectives(strategy.comms_logger);
  const GroupId world(0);
  const GroupId data_parallel(1);
  builder.add_communicator(world, "WORLD");
  builder.add_communicator(data_parallel, "DP");
  const FrameworkContext context{model,
                                 strategy,
                                 builder,
                                 program,
                                 options.world_size,
                                 options.first_step,
                                 world,
                                 data_parallel,
                                 any_idle_expert(model, routed, strategy, options),
                                 options.device_memory,
                                 options.load_dtype.value_or(own_weights(strategy))};
  const std::unique_ptr<FrameworkHooks> hooks = make_hooks(context, layout, rank);
  TrainingWalk walk(model, strategy, batch, builder, *hooks);
  if (varies(options.routing)) {
    walk.vary([&](const MicroBatch& micro) -> const Model& { return routed.of(micro); });
  }
  walk.run(options.first_step, options.steps);
  program.ranks.push_back(builder.finish());

  if (options.world_size > 1 && partitions_flat_tensor(strategy)) {
    program.assumptions.push_back(format(
        "ranks are merged into one class; rank {}, whose partition touches the most elements, "
        "stands for all",
        rank.value()));
  }
  if (recomputes_blocks(strategy.checkpointing)) {
    program.assumptions.push_back(checkpointing_assumption(strategy));
  }
  if (!model.moe_blocks.empty()) {
    program.assumptions.emplace_back(
        varies(options.routing)
            ? "experts see the same tokens on every rank"
            : "experts see the same tokens in every micro batch and on every rank");
  }
  check_program(program);
  return program;
}

}  // namespace zerosim
