/// \file
/// What a cluster's links amount to, for people who choose between clusters: `zerosim topo show`.
#pragma once

#include <optional>

#include "topology/cluster.h"
#include "topology/flow.h"

namespace zerosim {

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
};

[[nodiscard]] TopologySummary summarize(const Cluster& cluster);

}  // namespace zerosim
