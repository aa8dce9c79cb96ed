#include "sim/analysis/prepare.h"

#include <algorithm>
#include <string>
#include <unistd.h>

#include "sim/analysis/memory_report.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"

namespace zerosim {

namespace {

/// Whether the framework empties the device between two steps, so that a step does not depend on
/// the ones before it: DeepSpeed's throughput timer does (0.7).
bool steps_are_independent(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed && strategy.throughput_timer;
}

/// How many are timed.
int steps_to_steady(const Strategy& strategy) {
  // The host thread's lead over the device repeats from here on.
  constexpr int kUntilHostIsAhead = 3;
  // Blocks that other streams still use are missing in the cache that the warm-up leaves, so the
  // first timed step may call cudaMalloc (E7.8).
  constexpr int kUntilCacheIsFull = 2;
  if (!steps_are_independent(strategy)) return kUntilHostIsAhead;
  return strategy.zero.stage == 3 ? kUntilCacheIsFull : 1;
}

BuildOptions build_options(const Experiment& experiment, const Strategy& strategy,
                           int first_steps) {
  BuildOptions options;
  options.world_size = experiment.cluster.world_size();
  options.first_step = 0;
  options.routing = experiment.routing;
  set_machine(experiment, options);
  options.warm_up_steps = first_steps > 0 ? 0 : kFirstSteps;
  options.steps = first_steps > 0 ? first_steps : kFirstSteps + steps_to_steady(strategy);
  return options;
}

Program built(const Experiment& experiment, const Strategy& strategy,
              const SimulationOptions& options, const BuildOptions& build) {
  return build_program(experiment.model,
                       options.first_steps > 0 ? strategy : steady_strategy(strategy),
                       batch_of(experiment, strategy), build);
}

FoldMode mode_of(const Experiment& experiment, const SimulationOptions& options) {
  const bool stepped = options.collectives == CollectiveForm::Stepped;
  const bool must_not_fold = stepped || experiment.cluster.must_not_fold();
  if (!must_not_fold || options.fold == FoldMode::Off) return options.fold;
  if (options.fold == FoldMode::On) return FoldMode::Off;
  if (stepped) {
    throw ConfigError(
        "--fold exact: collectives go step by step, every rank by itself; expected off");
  }
  throw ConfigError(
      format("--fold exact: no two ranks of cluster \"{}\" behave alike ({}); expected off",
             experiment.cluster.name,
             experiment.cluster.fabric.hashed() ? "its flows are hashed" : "they jitter"));
}

/// Memory that an operation of each rank class takes while it is simulated. Measured with a 7B
/// model at stage 3, 51,000 operations in four steps: 92 MB with 16 rank classes, 230 MB with 64.
constexpr double kBytesOfAnOperation = 57;

double operations_of(const Program& program, int index) {
  return static_cast<double>(program.ranks[static_cast<std::size_t>(index)].ops.size());
}

/// \param simulated   ranks or classes
/// \param operations  of all of them
void check_room(const Strategy& strategy, const std::string& simulated, int count,
                double operations, const char* expected) {
  const double needed = operations * kBytesOfAnOperation;
  const double there =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const std::string asked =
      format("{}: {} with {:.0f} operations each", strategy.name, simulated, operations / count);
  if (count > kMostRankClasses) {
    throw ConfigError(
        format("{} are more than the {} that can be simulated one by one; expected {}, or fewer "
               "GPUs",
               asked, kMostRankClasses, expected));
  }
  if (needed > there) {
    throw ConfigError(
        format("{} need about {:.0f} GB where every one is simulated, this machine has {:.0f} GB; "
               "expected {}, fewer GPUs or a smaller model",
               asked, needed / 1e9, there / 1e9, expected));
  }
}

/// Before folding, as that takes memory, too.
void check_room_unfolded(const Strategy& strategy, const Program& program) {
  double operations = 0;
  for (const RankRun& run : rank_runs(program)) {
    operations += run.count * operations_of(program, run.program);
  }
  check_room(strategy, format("{} ranks (--fold off)", program.world_size), program.world_size,
             operations, "--fold on or exact");
}

void check_room_folded(const Strategy& strategy, const Program& program, const Folding& folding,
                       FoldMode mode) {
  double operations = 0;
  for (const RankClass& rank : folding.ranks) operations += operations_of(program, rank.program);
  const auto classes = static_cast<int>(folding.ranks.size());
  check_room(strategy, format("{} rank classes (--fold {})", classes, to_string(mode)), classes,
             operations, mode == FoldMode::Exact ? "--fold on" : "fewer perturbations");
}

}  // namespace

PreparedStrategy prepare(const Experiment& experiment, const Strategy& strategy,
                         const SimulationOptions& options) {
  PreparedStrategy prepared;
  prepared.mode = mode_of(experiment, options);
  BuildOptions build = build_options(experiment, strategy, options.first_steps);
  if (prepared.mode == FoldMode::On) {
    prepared.ranks = memory_ranks(experiment, strategy);
    if (prepared.ranks.differ) build.variant_ranks = prepared.ranks.most;
  } else {
    build.pieces = LocalPieces::Each;
  }
  prepared.program = built(experiment, strategy, options, build);
  if (prepared.mode == FoldMode::Off) check_room_unfolded(strategy, prepared.program);
  prepared.folding = fold(experiment.cluster, rank_runs(prepared.program),
                          group_patterns(prepared.program), prepared.mode);
  check_room_folded(strategy, prepared.program, prepared.folding, prepared.mode);
  return prepared;
}

EngineOptions engine_options(const Experiment& experiment) {
  EngineOptions options;
  options.calibration = experiment.calibration;
  options.host_threads = experiment.host_threads;
  return options;
}

void make_room(const PreparedStrategy& prepared, EngineOptions& room) {
  const auto classes = static_cast<int>(prepared.folding.ranks.size());
  room.rank_classes = std::max(room.rank_classes, classes);
  room.links = std::max(room.links, classes + static_cast<int>(prepared.folding.links.size()));
}

Program program_of_rank(const Experiment& experiment, const Strategy& strategy,
                        const SimulationOptions& options, Rank rank) {
  BuildOptions build = build_options(experiment, strategy, options.first_steps);
  build.pieces = LocalPieces::One;
  build.rank = rank;
  return built(experiment, strategy, options, build);
}

}  // namespace zerosim
