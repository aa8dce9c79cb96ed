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
#include "sim/program/local_pieces.h"

namespace zerosim {

namespace {

// Each micro batch is simulated; Op::micro_step has 16 bits.
constexpr std::int64_t kLargestAccumulation = 4096;

std::unique_ptr<FrameworkHooks> make_hooks(const FrameworkContext& context,
                                           const FlatLayout& layout) {
  if (context.strategy.framework == Framework::Fsdp) {
    return context.strategy.fsdp.version == 2 ? make_fsdp2(context) : make_fsdp1(context);
  }
  if (context.strategy.framework != Framework::DeepSpeed) {
    return is_megatron(context.strategy) ? make_megatron_ddp(context) : make_ddp(context);
  }
  const ZeroOptions& zero = context.strategy.zero;
  if (zero.stage == 0) {
    return make_zero0(context);
  }
  if (zero.stage == 3) {
    return make_zero3(context);
  }
  return uses_bf16_optimizer(context.strategy) ? make_bf16_optimizer(context, layout)
                                               : make_zero12(context, layout);
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
std::string way_of_checkpointing(const Strategy& strategy) {
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

std::string checkpointing_assumption(const Strategy& strategy) {
  std::string way = way_of_checkpointing(strategy);
  if (strategy.checkpointed_share == 1) return way;
  return way +
         format("; of {:.0f} % of the blocks, evenly spread", strategy.checkpointed_share * 100);
}

}  // namespace

GroupId add_group(const FrameworkContext& context, const ProcessGroup& group) {
  const GroupId id(context.program.groups.size());
  context.program.groups.push_back(group);
  context.builder.add_communicator(id, group.name);
  return id;
}

namespace {

void check_options(const Strategy& strategy, const BuildOptions& options) {
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
}

/// Kinds of ranks as the cluster makes them; the first is the usual one.
struct Variants {
  std::vector<RankVariant> kinds;
  std::vector<ProgramRun> runs;  ///< all ranks in order; `program` is the kind
};

Variants variants_of(const BuildOptions& options) {
  Variants variants;
  const auto kind_of = [&](const RankVariant& variant) {
    const auto known =
        std::find_if(variants.kinds.begin(), variants.kinds.end(), [&](const RankVariant& other) {
          return other.micro_batch == variant.micro_batch &&
                 other.device_memory == variant.device_memory;
        });
    const auto kind = static_cast<int>(known - variants.kinds.begin());
    if (known == variants.kinds.end()) variants.kinds.push_back(variant);
    return kind;
  };
  int next = 0;
  const auto add = [&](int count, const RankVariant& variant) {
    if (count > 0) variants.runs.push_back({next, count, kind_of(variant)});
    next += count;
  };
  const RankVariant usual{0, 0, 0, options.device_memory};
  for (const RankVariant& variant : options.variants) {
    ZS_CHECK(variant.first >= next && variant.count > 0 &&
                 variant.first + variant.count <= options.world_size,
             "variants are in order, without overlap");
    add(variant.first - next, usual);
    add(variant.count, variant);
  }
  add(options.world_size - next, usual);
  return variants;
}

/// The programs that are to be built; `rank` is whose pieces each has.
struct Plan {
  std::vector<RankKind> programs;
  std::vector<ProgramRun> runs;
};

/// Every pair of a piece class and a variant that some rank has, by lowest rank.
Plan plan_of(const PieceClasses& pieces, const Variants& variants) {
  Plan plan;
  std::map<std::pair<int, int>, int> known;
  auto piece = pieces.runs.begin();
  auto variant = variants.runs.begin();
  for (int rank = 0; piece != pieces.runs.end() && variant != variants.runs.end();) {
    const int piece_end = piece->first + piece->count;
    const int variant_end = variant->first + variant->count;
    const int end = std::min(piece_end, variant_end);
    const auto [entry, added] = known.try_emplace({piece->program, variant->program},
                                                  static_cast<int>(plan.programs.size()));
    if (added) plan.programs.push_back({piece->program, variant->program, Rank(rank), 0});
    plan.programs[static_cast<std::size_t>(entry->second)].ranks += end - rank;
    if (!plan.runs.empty() && plan.runs.back().program == entry->second) {
      plan.runs.back().count += end - rank;
    } else {
      plan.runs.push_back({rank, end - rank, entry->second});
    }
    rank = end;
    if (piece_end == end) ++piece;
    if (variant_end == end) ++variant;
  }
  return plan;
}

/// The program of the ranks among which `rank` is becomes its own.
RankKind& follow(Plan& plan, Rank rank) {
  for (const ProgramRun& run : plan.runs) {
    if (rank.value() >= run.first && rank.value() < run.first + run.count) {
      RankKind& own = plan.programs[static_cast<std::size_t>(run.program)];
      own.rank = rank;
      return own;
    }
  }
  throw ConfigError(format("rank {}: there is none; expected 0 to {}", rank.value(),
                           plan.runs.back().first + plan.runs.back().count - 1));
}

void keep_only(Plan& plan, const RankKind& planned) {
  plan.programs = {RankKind(planned)};
  plan.runs.clear();
}

void add_once(std::vector<std::string>& sentences, std::string sentence) {
  if (std::find(sentences.begin(), sentences.end(), sentence) == sentences.end()) {
    sentences.push_back(std::move(sentence));
  }
}

void name_parts(const Model& model, Program& program) {
  for (const Module& module : model.modules) {
    program.module_names.push_back(module.name);
  }
  for (const Parameter& parameter : model.parameters) {
    program.parameter_names.push_back(parameter.name);
  }
}

/// Builds the programs of one Program, one after the other.
class ProgramAssembler {
 public:
  ProgramAssembler(const Model& model, const Strategy& strategy, const BatchShape& batch,
                   const BuildOptions& options)
      : given_(model), strategy_(strategy), batch_(batch), options_(options) {}

  [[nodiscard]] Program assemble() {
    if (partitions_flat_tensor(strategy_)) {
      layout_ = flat_layout(given_, strategy_, options_.world_size);
    }
    const Variants variants = variants_of(options_);
    const bool each = options_.pieces == LocalPieces::Each;
    PieceClasses pieces;
    if (each) {
      pieces = piece_classes(given_, strategy_, layout_, options_.world_size);
    } else {
      pieces.runs = {{0, options_.world_size, 0}};
    }
    Plan plan = plan_of(pieces, variants);
    if (!each) {
      RankKind& followed = follow(plan, standing_rank());
      if (options_.pieces == LocalPieces::One) keep_only(plan, followed);
    }
    if (options_.pieces == LocalPieces::Largest) {
      for (const Rank rank : options_.variant_ranks) follow(plan, rank);
    }
    begin();
    for (const RankKind& planned : plan.programs) {
      build(planned, variants.kinds[static_cast<std::size_t>(planned.variant)]);
    }
    program_.runs = std::move(plan.runs);
    finish();
    return std::move(program_);
  }

 private:
  [[nodiscard]] Rank standing_rank() const {
    return options_.rank.value_or(largest_rank(given_, strategy_, layout_, options_.world_size));
  }

  void begin() {
    program_.strategy = strategy_.name;
    program_.world_size = options_.world_size;
    program_.first_step = options_.first_step;
    program_.steps = options_.steps;
    program_.warm_up_steps = options_.warm_up_steps;
    program_.parameter_elements = parameter_count(given_);
    program_.parameter_bytes =
        Bytes(program_.parameter_elements) * dtype_bytes(communicated_weights(strategy_));
  }

  void build(const RankKind& planned, const RankVariant& variant) {
    Strategy strategy = strategy_;
    BatchShape batch = batch_;
    if (variant.micro_batch > 0) strategy.micro_batch = batch.micro_batch = variant.micro_batch;
    RoutedModels routed(given_, strategy, batch, options_.routing);
    const Model& model = routed.of({options_.first_step, 0, false});
    if (program_.ranks.empty()) name_parts(model, program_);

    std::vector<ProcessGroup> groups = std::exchange(
        program_.groups, {{"WORLD", options_.world_size}, {"DP", options_.world_size}});
    std::vector<std::string> assumptions = std::exchange(program_.assumptions, {});
    RankProgramBuilder builder(planned.rank, planned.ranks);
    builder.synchronize_after_collectives(strategy.comms_logger);
    const FrameworkContext context = context_of(planned, variant, model, strategy, builder, routed);
    const std::unique_ptr<FrameworkHooks> hooks = make_hooks(context, layout_);
    TrainingWalk walk(model, strategy, batch, builder, *hooks);
    if (varies(options_.routing)) {
      walk.vary([&](const MicroBatch& micro) -> const Model& { return routed.of(micro); });
    }
    walk.run(options_.first_step, options_.steps);
    ZS_CHECK(program_.ranks.empty() || groups.size() == program_.groups.size(),
             "all ranks have the same groups");
    for (std::string& sentence : program_.assumptions) add_once(assumptions, std::move(sentence));
    program_.assumptions = std::move(assumptions);
    program_.ranks.push_back(builder.finish());
  }

  [[nodiscard]] FrameworkContext context_of(const RankKind& planned, const RankVariant& variant,
                                            const Model& model, const Strategy& strategy,
                                            RankProgramBuilder& builder, RoutedModels& routed) {
    const GroupId world(0);
    const GroupId data_parallel(1);
    builder.add_communicator(world, "WORLD");
    builder.add_communicator(data_parallel, "DP");
    return {model,
            strategy,
            builder,
            program_,
            options_.world_size,
            options_.first_step,
            world,
            data_parallel,
            any_idle_expert(model, routed, strategy, options_),
            variant.device_memory,
            options_.load_dtype.value_or(own_weights(strategy)),
            planned.rank,
            options_.pieces == LocalPieces::Largest && options_.world_size > 1};
  }

  /// "3", or of several kinds of variants "3 or 8".
  [[nodiscard]] std::string representatives() const {
    std::vector<std::string> ranks;
    for (const RankProgram& rank : program_.ranks) {
      ranks.push_back(std::to_string(rank.representative.value()));
    }
    return join(ranks, " or ");
  }

  /// Where ranks with other pieces have no programs of their own (design.md section 3).
  void note_merged_ranks() {
    if (options_.pieces != LocalPieces::Largest ||
        piece_classes(given_, strategy_, layout_, options_.world_size).lowest.size() == 1) {
      return;
    }
    program_.assumptions.push_back(
        cuts_flat_tensors(strategy_)
            ? format("ranks, which hold pieces of other parameters, are simulated as one: between "
                     "any two collectives its kernels are those of the rank that has most to do, "
                     "its memory is that of rank {} (--fold exact tells them apart)",
                     representatives())
            : format("ranks, which update pieces of other sizes, are simulated as one: rank {}, "
                     "which updates the most elements (--fold exact tells them apart)",
                     representatives()));
  }

  void finish() {
    note_merged_ranks();
    if (recomputes_blocks(strategy_.checkpointing)) {
      program_.assumptions.push_back(checkpointing_assumption(strategy_));
    }
    if (!given_.moe_blocks.empty()) {
      program_.assumptions.emplace_back(
          varies(options_.routing)
              ? "experts see the same tokens on every rank"
              : "experts see the same tokens in every micro batch and on every rank");
    }
    check_program(program_);
    if (program_.ranks.size() > 1) {
      if (const auto difference = disagreement(program_)) {
        throw ConfigError(
            format("{}: ranks that differ do not issue the same collectives, so the "
                   "job would hang: {}",
                   strategy_.name, *difference));
      }
    }
  }

  const Model& given_;
  const Strategy& strategy_;
  const BatchShape& batch_;
  const BuildOptions& options_;
  FlatLayout layout_;
  Program program_;
};

}  // namespace

std::vector<RankKind> rank_kinds(const PieceClasses& pieces, const BuildOptions& options) {
  return plan_of(pieces, variants_of(options)).programs;
}

Program build_program(const Model& model, const Strategy& strategy, const BatchShape& batch,
                      const BuildOptions& options) {
  check_options(strategy, options);
  return ProgramAssembler(model, strategy, batch, options).assemble();
}

}  // namespace zerosim
