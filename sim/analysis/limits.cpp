#include "sim/analysis/limits.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "sim/analysis/memory_report.h"
#include "sim/base/error.h"

namespace zerosim {

namespace {

/// Sizes next to a border found by halving that are tried as well: where memory is not monotone, it
/// is by a block or a shard's padding, so near the border.
constexpr std::int64_t kNeighbours = 2;

/// Share of the 1/N bound that is relied on.
constexpr double kBoundMargin = 0.9;

/// Tries each size once and remembers it.
class Search {
 public:
  using Replay = std::function<MemoryReport(std::int64_t size)>;
  using Reaches = std::function<bool(const MemoryReport&)>;

  Search(Replay replay, std::int64_t last, Reaches reaches = {})
      : replay_(std::move(replay)), reaches_(std::move(reaches)) {
    limit_.last = last;
  }

  bool is_enough(std::int64_t size) {
    const LimitProbe& probe = this->probe(size);
    return probe.is_enough() && (!reaches_ || reaches_(*probe.memory));
  }

  /// \returns a reference that the next call may move.
  const LimitProbe& probe(std::int64_t size) {
    const auto known =
        std::find_if(limit_.probes.begin(), limit_.probes.end(),
                     [&](const LimitProbe& earlier) { return earlier.size == size; });
    if (known != limit_.probes.end()) return *known;
    LimitProbe probe;
    probe.size = size;
    try {
      probe.memory = replay_(size);
    } catch (const ConfigError& error) {
      probe.refusal = error.what();
    }
    limit_.probes.push_back(std::move(probe));
    return limit_.probes.back();
  }

  Limit answer(std::optional<std::int64_t> size) {
    limit_.size = size;
    return std::move(limit_);
  }

 private:
  Replay replay_;
  Reaches reaches_;
  Limit limit_;
};

// ---- the least number of GPUs ----------------------------------------------------------------

int gpus_of_a_node(const Cluster& cluster) {
  return cluster.nodes == 1 ? cluster.node.gpus : cluster.gpus_per_node;
}

/// The first count that may be enough, given what `probe` holds; above its own.
int next_count(const LimitProbe& probe) {
  const int next = static_cast<int>(probe.size) + 1;
  if (!probe.memory || probe.memory->peak_allocated <= probe.memory->capacity) return next;
  const double excess = static_cast<double>(probe.memory->peak_allocated.count()) /
                        static_cast<double>(probe.memory->capacity.count());
  const double bound = kBoundMargin * excess * static_cast<double>(probe.size);
  return static_cast<int>(std::max<double>(next, std::min<double>(bound, kMostGpusTried)));
}

/// Counts of one node, ascending. \param next  the first to try; becomes the least count beyond
/// that may be enough.
std::optional<int> least_of_a_node(Search& search, int node_gpus, int& next) {
  for (; next <= node_gpus; next = next_count(search.probe(next))) {
    if (search.is_enough(next)) return next;
  }
  return std::nullopt;
}

bool holds_less(const LimitProbe& larger, const LimitProbe& smaller) {
  if (!larger.memory || !smaller.memory) return true;  // cannot tell
  return larger.memory->peak_allocated < smaller.memory->peak_allocated;
}

/// The least number of nodes of `node_gpus` GPUs, from `first` to `last` of them.
std::optional<int> least_nodes(Search& search, int node_gpus, int first, int last) {
  const auto enough = [&](int nodes) {
    return search.is_enough(static_cast<std::int64_t>(nodes) * node_gpus);
  };
  int below = first - 1;  // not enough
  int upper = first;
  while (!enough(upper)) {
    if (upper == last) return std::nullopt;
    const int twice = std::min(2 * upper, last);
    const LimitProbe smaller = search.probe(static_cast<std::int64_t>(upper) * node_gpus);
    if (!holds_less(search.probe(static_cast<std::int64_t>(twice) * node_gpus), smaller)) {
      return std::nullopt;
    }
    below = std::exchange(upper, twice);
  }
  while (upper - below > 1) {
    const int middle = below + (upper - below) / 2;
    (enough(middle) ? upper : below) = middle;
  }
  int least = upper;
  for (int nodes = upper - 2; nodes >= first && nodes >= upper - 1 - kNeighbours; --nodes) {
    if (enough(nodes)) least = nodes;
  }
  return least;
}

// ---- the largest micro batch -----------------------------------------------------------------

std::optional<std::int64_t> largest_size(Search& search, std::int64_t last) {
  if (!search.is_enough(1)) return std::nullopt;
  std::int64_t lower = 1;         // enough
  std::int64_t above = last + 1;  // not enough
  while (lower < last) {
    const std::int64_t twice = std::min(2 * lower, last);
    if (!search.is_enough(twice)) {
      above = twice;
      break;
    }
    lower = twice;
  }
  while (above - lower > 1) {
    const std::int64_t middle = lower + (above - lower) / 2;
    (search.is_enough(middle) ? lower : above) = middle;
  }
  std::int64_t largest = lower;
  for (std::int64_t size = lower + 2; size <= lower + 1 + kNeighbours && size <= last; ++size) {
    if (search.is_enough(size)) largest = size;
  }
  return largest;
}

/// Micro steps of a step that differ in memory: the first, one that accumulates, the last. Those in
/// between repeat the second, unless they route their tokens each in their own way.
constexpr std::int64_t kMicroStepsThatDiffer = 3;

Strategy without_repetition(const Experiment& experiment, Strategy strategy) {
  if (varies(experiment.routing)) return strategy;
  strategy.grad_accum = std::min(strategy.grad_accum, kMicroStepsThatDiffer);
  return strategy;
}

std::int64_t data_parallel_size(const Strategy& strategy, int world_size) {
  return std::max<std::int64_t>(1, world_size / strategy.sequence_parallel_size);
}

/// Drops the perturbations of nodes from `nodes` on.
template <typename Perturbation>
void keep_nodes(std::vector<Perturbation>& perturbations, int nodes) {
  std::erase_if(perturbations, [nodes](Perturbation& entry) {
    const bool everywhere = entry.nodes.empty();
    std::erase_if(entry.nodes, [nodes](int node) { return node >= nodes; });
    return !everywhere && entry.nodes.empty();
  });
}

}  // namespace

bool LimitProbe::is_enough() const {
  return memory && verdict_of(*memory) != Verdict::DoesNotFit;
}

const LimitProbe* Limit::found() const {
  const auto probe = std::find_if(probes.begin(), probes.end(), [&](const LimitProbe& candidate) {
    return size && candidate.size == *size;
  });
  return probe == probes.end() ? nullptr : &*probe;
}

PlacedStrategy resized(const Experiment& experiment, const Strategy& strategy, int nodes,
                       int gpus_per_node) {
  PlacedStrategy changed{experiment, strategy};
  Cluster& cluster = changed.experiment.cluster;
  const int before = std::exchange(cluster.gpus_per_node, gpus_per_node);
  cluster.nodes = nodes;
  keep_nodes(cluster.perturbations.gpus, nodes);
  keep_nodes(cluster.perturbations.links, nodes);
  const auto follow = [&](std::int64_t& node_sized) {
    if (node_sized == before) node_sized = gpus_per_node;
  };
  follow(changed.strategy.gpus_per_node);
  follow(changed.strategy.fsdp.shard_group);
  changed.strategy.train_batch = strategy.micro_batch * strategy.grad_accum *
                                 data_parallel_size(strategy, cluster.world_size());
  return changed;
}

std::vector<int> cluster_sizes(const Cluster& cluster) {
  const int of_a_node = gpus_of_a_node(cluster);
  const std::int64_t world = std::int64_t{cluster.nodes} * cluster.gpus_per_node;
  const auto most =
      static_cast<int>(std::clamp<std::int64_t>(2 * world, kMostGpusTried, kLargestClusterTried));
  std::vector<int> sizes;
  for (int gpus = 1; gpus < of_a_node; ++gpus) sizes.push_back(gpus);
  for (int gpus = of_a_node; gpus <= most; gpus += of_a_node) sizes.push_back(gpus);
  return sizes;
}

Limit least_gpus(const Experiment& experiment, const Strategy& given, const GpuSearch& asked) {
  const Strategy strategy = without_repetition(experiment, given);
  const int of_a_node = gpus_of_a_node(experiment.cluster);
  const int last = cluster_sizes(experiment.cluster).back();
  Search search(
      [&](std::int64_t size) {
        const int gpus = static_cast<int>(size);
        const bool one_node = gpus <= of_a_node;
        const PlacedStrategy placed = resized(experiment, strategy, one_node ? 1 : gpus / of_a_node,
                                              one_node ? gpus : of_a_node);
        return replayed_memory(placed.experiment, placed.strategy);
      },
      last, asked.reaches);
  int next = asked.from;
  if (const std::optional<int> count = least_of_a_node(search, of_a_node, next)) {
    return search.answer(*count);
  }
  const int first = std::max({2, next / of_a_node, (asked.from + of_a_node - 1) / of_a_node});
  if (first > last / of_a_node) return search.answer(std::nullopt);
  const std::optional<int> nodes = least_nodes(search, of_a_node, first, last / of_a_node);
  return search.answer(nodes ? std::optional<std::int64_t>(std::int64_t{*nodes} * of_a_node)
                             : std::nullopt);
}

Limit largest_micro_batch(const Experiment& experiment, const Strategy& given) {
  const Strategy strategy = without_repetition(experiment, given);
  Search search(
      [&](std::int64_t size) {
        Strategy changed = strategy;
        changed.micro_batch = size;
        changed.train_batch = size * strategy.grad_accum *
                              data_parallel_size(strategy, experiment.cluster.world_size());
        return replayed_memory(experiment, changed);
      },
      kLargestMicroBatchTried);
  return search.answer(largest_size(search, kLargestMicroBatchTried));
}

}  // namespace zerosim
