/// \file
/// What an uneven cluster (topology/perturbation.h) means for programs and memory: GPUs of other
/// kinds, and ranks with another micro batch. Speeds and links are the engine's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/build.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"

namespace zerosim {

/// Consecutive ranks with the same GPU and micro batch.
struct GpuRun {
  int first = 0;
  int count = 1;
  std::string kind;              ///< a GpuSpec's name
  std::int64_t micro_batch = 0;  ///< samples; 0: the strategy's
};

/// All ranks in order. Of a cluster without perturbations one run.
/// \throws ConfigError  if a perturbation names a node or a GPU that is not there.
[[nodiscard]] std::vector<GpuRun> gpu_runs(const Cluster& cluster);

/// The run that a rank is in; none of a rank that is not there.
[[nodiscard]] std::optional<GpuRun> gpu_run_of(const Cluster& cluster, Rank rank);

/// Total memory of such a GPU of the cluster, as the framework reports it.
[[nodiscard]] Bytes gpu_memory_of(const Cluster& cluster, const std::string& kind);
[[nodiscard]] Bytes gpu_memory_of(const Cluster& cluster, Rank rank);

/// The ranks that are not as the template says, for a build.
/// \param taken  of each GPU, before the framework's allocator
[[nodiscard]] std::vector<RankVariant> rank_variants(const Cluster& cluster, Bytes taken);

/// Samples of one optimizer step, of all ranks: the sum of their micro batches x accumulation.
[[nodiscard]] std::int64_t samples_of_step(const Cluster& cluster, const Strategy& strategy);

/// The mean of the GPUs' dense peaks in this precision; 0 if one of them has none.
[[nodiscard]] FlopsPerSecond mean_peak_rate(const Cluster& cluster, Precision precision);

}  // namespace zerosim
