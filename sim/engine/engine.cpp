#include "sim/engine/engine.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "sim/engine/costs.h"
#include "sim/engine/execution.h"
#include "sim/engine/machine.h"
#include "topology/nccl_graph.h"
#include "topology/rank_figures.h"

namespace zerosim {

namespace {

std::vector<int> sm_counts(const Cluster& cluster) {
  const auto kinds = gpu_kinds(cluster);
  std::vector<int> counts(kinds.size());
  std::transform(kinds.begin(), kinds.end(), counts.begin(),
                 [](const std::string& kind) { return gpu_spec(kind).sm_count; });
  return counts;
}

Cluster with_settled_nccl(Cluster cluster) {
  settle_nccl(cluster);
  return cluster;
}

bool folds(const Folding& folding) {
  return std::any_of(folding.ranks.begin(), folding.ranks.end(),
                     [](const RankClass& rank) { return rank.multiplicity > 1; });
}

}  // namespace

struct Engine::Impl {
  Impl(const Cluster& simulated, EngineOptions given)
      : cluster(with_settled_nccl(simulated)),
        options(std::move(given)),
        sms(sm_counts(cluster)),
        costs(cluster, options) {}

  void make_room(const Folding& folding);
  void check(const Program& program, const Folding& folding, CollectiveForm form) const;

  Cluster cluster;
  EngineOptions options;
  std::vector<int> sms;  ///< by GPU kind
  internal::Costs costs;
  internal::Machine machine;
};

void Engine::Impl::make_room(const Folding& folding) {
  const auto classes = static_cast<int>(folding.ranks.size());
  const auto links = static_cast<int>(folding.links.size()) + classes;  // and device memories
  if (!machine.is_built()) {
    machine.build(std::max(classes, options.rank_classes), std::max(links, options.links), sms);
  }
  if (classes > machine.gpus() || links > machine.links()) {
    throw SimulationError(
        format("the program has {} rank classes and {} links, the engine has room for {} and {} "
               "since its first run",
               classes, links, machine.gpus(), machine.links()));
  }
}

void Engine::Impl::check(const Program& program, const Folding& folding,
                         CollectiveForm form) const {
  if (folding.ranks.size() > kMostRankClasses) {
    throw SimulationError(format("{} rank classes are simulated at most, not {}", kMostRankClasses,
                                 folding.ranks.size()));
  }
  ZS_CHECK(folding.groups.size() == program.groups.size(), "a folding of the program's groups");
  if (uses_host_memory(program) && cluster.node.host_memory_bandwidth.per_second() <= 0) {
    throw SimulationError(
        format("the bandwidth of the host memory of cluster \"{}\" is not known, and the program "
               "works there",
               cluster.name));
  }
  if (cluster.perturbations.jitter.any() && folds(folding)) {
    throw SimulationError("ranks that jitter are not alike: fold with FoldMode::Off");
  }
  if (form == CollectiveForm::Stepped && folds(folding)) {
    throw SimulationError("ranks that send step by step are not folded: fold with FoldMode::Off");
  }
}

Engine::Engine(const Cluster& cluster, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(cluster, options)) {}

Engine::~Engine() = default;

Timeline Engine::run(const Program& program, const Folding& folding, AllocationObserver* observer,
                     int repetition, CollectiveForm form) {
  impl_->check(program, folding, form);
  impl_->make_room(folding);
  internal::RunSetup setup;
  setup.program = &program;
  setup.folding = &folding;
  setup.jobs = &impl_->cluster.perturbations.jobs;
  setup.jitter = impl_->cluster.perturbations.jitter;
  setup.repetition = repetition;
  setup.launch_queue_depth = std::max(1, impl_->options.host.launch_queue_depth);
  setup.ranks_of_a_node = std::min(impl_->cluster.gpus_per_node, program.world_size);
  setup.observer = observer;
  setup.form = form;
  return internal::execute(setup, impl_->machine, impl_->costs);
}

Timeline Engine::run(const Program& program, AllocationObserver* observer) {
  if (program.world_size > impl_->cluster.world_size()) {
    throw SimulationError(format("the program is for {} ranks, the cluster \"{}\" has {}",
                                 program.world_size, impl_->cluster.name,
                                 impl_->cluster.world_size()));
  }
  const Folding folding = fold(impl_->cluster, rank_runs(program), group_patterns(program),
                               impl_->cluster.must_not_fold() ? FoldMode::Off : FoldMode::On);
  return run(program, folding, observer);
}

}  // namespace zerosim
