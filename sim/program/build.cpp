#include "sim/program/build.h"

#include <memory>
#include <optional>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/model/leaf_modules.h"
#include "sim/program/frameworks.h"

namespace zerosim {

namespace {

// Each micro batch is simulated; Op::micro_step has 16 bits.
constexpr std::int64_t kLargestAccumulation = 4096;

// What the options ask for and this version does not build: better an error than a wrong Program.
void reject_unsupported(const Strategy& strategy) {
  if (strategy.not_simulated) {
    throw ConfigError(*strategy.not_simulated);
  }
  if (strategy.framework != Framework::DeepSpeed) {
    return;
  }
  if (strategy.zero.stage == 3 && strategy.version != "0.19") {
    throw ConfigError(format("{}: stage 3 is simulated as DeepSpeed 0.19 runs it, not {}",
                             strategy.name, strategy.version));
  }
  if (strategy.zero.stage == 3 && !strategy.zero.memory_efficient_linear) {
    throw ConfigError(format(
        "{}: memory_efficient_linear false keeps gathered weights for backward (C2.7) and is not "
        "simulated yet",
        strategy.name));
  }
  if (strategy.zero.stage == 1 && strategy.grad_accum_dtype != model_dtype(strategy.precision) &&
      !(strategy.precision == Precision::Bf16 && strategy.grad_accum_dtype == Dtype::F32)) {
    throw ConfigError(
        format("{}: stage 1 with grad_accum_dtype {} and {} weights (B3.11) is not simulated yet",
               strategy.name, to_string(strategy.grad_accum_dtype), to_string(strategy.precision)));
  }
}

std::unique_ptr<FrameworkHooks> make_hooks(const FrameworkContext& context, Rank rank) {
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
  return uses_bf16_optimizer(context.strategy) ? make_bf16_optimizer(context)
                                               : make_zero12(context, rank);
}

/// The model as it runs, where that differs: experts have their tokens; at stage 3 leaf modules are
/// one unit each.
std::optional<Model> as_run(const Model& model, const Strategy& strategy, const BatchShape& batch,
                            const BuildOptions& options) {
  std::optional<Model> changed;
  if (!model.moe_blocks.empty()) {
    changed = route_tokens(model, options.routing, batch.tokens());
  }
  const bool stage3 = strategy.framework == Framework::DeepSpeed && strategy.zero.stage == 3;
  const std::vector<ModuleId> leaves =
      stage3 ? leaf_modules(strategy.zero, model) : std::vector<ModuleId>();
  if (!leaves.empty()) {
    changed = with_leaf_modules(changed ? *std::move(changed) : model, leaves);
  }
  return changed;
}

bool partitions_flat_tensor(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed &&
         (strategy.zero.stage == 1 || strategy.zero.stage == 2);
}

}  // namespace

Program build_program(const Model& given, const Strategy& strategy, const BatchShape& batch,
                      const BuildOptions& options) {
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
  reject_unsupported(strategy);
  const std::optional<Model> changed = as_run(given, strategy, batch, options);
  const Model& model = changed ? *changed : given;

  Program program;
  program.strategy = strategy.name;
  program.world_size = options.world_size;
  program.first_step = options.first_step;
  program.steps = options.steps;
  program.groups = {{"WORLD", options.world_size}, {"DP", options.world_size}};
  program.parameter_elements = parameter_count(model);
  const bool fp32_weights =
      strategy.framework != Framework::DeepSpeed || strategy.precision == Precision::Fp32;
  program.parameter_bytes = Bytes(program.parameter_elements) * (fp32_weights ? 4 : 2);
  for (const Module& module : model.modules) {
    program.module_names.push_back(module.name);
  }

  const Rank rank = partitions_flat_tensor(strategy)
                        ? largest_partition_rank(model, strategy.zero, options.world_size)
                        : Rank(0);
  RankProgramBuilder builder(rank, options.world_size);
  builder.synchronize_after_collectives(strategy.comms_logger);
  const GroupId world(0);
  const GroupId data_parallel(1);
  builder.add_communicator(world, "WORLD");
  builder.add_communicator(data_parallel, "DP");
  const FrameworkContext context{
      model, strategy, builder, options.world_size, options.first_step, world, data_parallel};
  const std::unique_ptr<FrameworkHooks> hooks = make_hooks(context, rank);
  TrainingWalk walk(model, strategy, batch, builder, *hooks);
  walk.run(options.first_step, options.steps);
  program.ranks.push_back(builder.finish());

  if (options.world_size > 1 && partitions_flat_tensor(strategy)) {
    program.assumptions.push_back(format(
        "ranks are merged into one class; rank {}, whose partition touches the most elements, "
        "stands for all",
        rank.value()));
  }
  if (strategy.checkpointing == ActivationCheckpointing::Full) {
    program.assumptions.emplace_back(
        "activation checkpointing recomputes whole blocks in the order of PyTorch's reentrant "
        "variant (C12.1)");
  }
  if (!model.moe_blocks.empty()) {
    program.assumptions.emplace_back(
        "experts see the same tokens in every micro batch and on every rank");
  }
  check_program(program);
  return program;
}

}  // namespace zerosim
