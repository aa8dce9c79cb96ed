/// \file
/// What a cluster's links amount to, for people who choose between clusters: `zerosim topo show`.
#pragma once

#include <optional>
#include <vector>

#include "topology/cluster.h"
#include "topology/fabric.h"
#include "topology/flow.h"

namespace zerosim {

/// The network between nodes, where there are several.
struct FabricSummary {
  FabricKind kind = FabricKind::Switch;
  FabricCounts counts;              ///< none of a single switch
  std::vector<FabricLevel> levels;  ///< links that the fabric shares
  /// What the NICs of the first half of the nodes can send to the other half, one way: the largest
  /// flow through the fabric as drawn; none where it is too large to draw. Of an odd number the
  /// middle node takes no part.
  std::optional<BytesPerSecond> bisection;
  BytesPerSecond half_nics;  ///< what those NICs can send
};

struct TopologySummary {
  /// GPUs that the figures of GPUs are about: the used ones of a node, or of all nodes of an NVLink
  /// domain.
  int gpus = 0;
  FlowLinks links = FlowLinks::All;  ///< that these talk over
  BytesPerSecond narrowest_path;     ///< between two used GPUs, as `gpu_path_bandwidth`
  BytesPerSecond widest_path;
  std::optional<Bisection> bisection;  ///< none: one GPU, or GPUs out of reach
  std::optional<AllGatherBound> all_gather;
  std::optional<BytesPerSecond> rings;  ///< what NCCL's rings reach; none: not simulated, one GPU
  int used_nics = 0;                    ///< of a node
  BytesPerSecond network_per_gpu;       ///< usable share of the used NICs
  std::optional<FabricSummary> fabric;  ///< nodes > 1
};

[[nodiscard]] TopologySummary summarize(const Cluster& cluster);

}  // namespace zerosim
