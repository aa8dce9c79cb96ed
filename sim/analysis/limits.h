/// \file
/// How few GPUs are enough, and how large a micro batch fits: found by replaying memory, one replay
/// a size that is tried. A size is enough where the verdict is fits or tight.
///
/// What a GPU holds need not fall with the number of GPUs at every step (padding of shards, blocks
/// of the allocator), so nothing relies on that alone: see each search.
///
/// Of more than three micro steps in a step three are replayed, since the others repeat the second:
/// the reports of the probes are those of three.
///
/// Not asked: whether it is fast, whether nodes beyond the first have a network, host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// One size that was tried.
struct LimitProbe {
  std::int64_t size = 0;               ///< GPUs, or sequences of a micro batch
  std::optional<MemoryReport> memory;  ///< none: the strategy does not work with this size
  std::string refusal{};               ///< then why

  [[nodiscard]] bool is_enough() const;
};

/// The answer, and how it was found.
struct Limit {
  std::optional<std::int64_t> size;  ///< none: no size that was tried is enough
  std::vector<LimitProbe> probes;    ///< each once, in the order in which they were tried
  std::int64_t last = 0;             ///< the largest size that would be tried

  /// Of the answer; null if there is none.
  [[nodiscard]] const LimitProbe* found() const;
};

/// Most GPUs that are tried, or twice as many as the cluster has if that is more, but no more than
/// the largest clusters that anybody has.
inline constexpr int kMostGpusTried = 1024;
inline constexpr int kLargestClusterTried = 131'072;
inline constexpr std::int64_t kLargestMicroBatchTried = 1'000'000;

/// A strategy on a cluster.
struct PlacedStrategy {
  Experiment experiment;
  Strategy strategy;
};

/// The same training on another number of GPUs: micro batch and accumulation stay, so the train
/// batch follows; a group that was a node (hybrid sharding, qgZ, hierarchical MiCS) still is one;
/// of what makes the cluster uneven there is what lies on nodes that are there.
/// \pre both at least 1; `gpus_per_node` at most those of a node.
[[nodiscard]] PlacedStrategy resized(const Experiment& experiment, const Strategy& strategy,
                                     int nodes, int gpus_per_node);

/// Numbers of GPUs that can be had, ascending: each count of one node, then whole nodes. A node has
/// all its GPUs, or if the cluster has several nodes, those that it uses of each.
[[nodiscard]] std::vector<int> cluster_sizes(const Cluster& cluster);

/// What is asked of a number of GPUs.
struct GpuSearch {
  int from = 1;  ///< counts below are not tried
  /// Beside fitting; not set: no more than that.
  std::function<bool(const MemoryReport&)> reaches{};
};

/// The least number of GPUs that is enough, all else as given.
///
/// Within the first node every count is tried in ascending order, less those that cannot be enough:
/// no part of memory shrinks faster than 1/N, so if N GPUs hold A each, M GPUs hold at least A N/M
/// (with a margin of a tenth for what a builder does differently). Beyond it nodes are doubled
/// until they are enough, and the interval is halved; then the sizes just below are tried too. The
/// doubling ends without an answer where twice the nodes hold as much: more of them would not help.
[[nodiscard]] Limit least_gpus(const Experiment& experiment, const Strategy& strategy,
                               const GpuSearch& asked = {});

/// The largest micro batch that is enough, all else as given: accumulation stays.
///
/// Doubled from 1 until it is not enough, then the interval is halved, and the sizes just above are
/// tried too.
[[nodiscard]] Limit largest_micro_batch(const Experiment& experiment, const Strategy& strategy);

}  // namespace zerosim
