#include "sim/analysis/cluster_ranks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/gpu.h"

namespace zerosim {

namespace {

/// What perturbations change of a rank; the later of two wins.
struct Change {
  std::optional<std::string> kind;
  std::optional<std::int64_t> micro_batch;
};

void check_indices(const char* what, const std::vector<int>& indices, int count) {
  for (const int index : indices) {
    if (index < 0 || index >= count) {
      throw ConfigError(
          format("a perturbation names {} {}, expected 0 to {}", what, index, count - 1));
    }
  }
}

/// The listed ones, or all of `count`.
std::vector<int> listed_or_all(const std::vector<int>& listed, int count) {
  if (!listed.empty()) return listed;
  std::vector<int> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = i;
  return all;
}

std::map<int, Change> changes_of(const Cluster& cluster) {
  std::map<int, Change> changes;
  for (const GpuPerturbation& entry : cluster.perturbations.gpus) {
    if (!entry.kind && !entry.micro_batch) continue;
    check_indices("node", entry.nodes, cluster.nodes);
    check_indices("GPU", entry.gpus, cluster.node.gpus);
    for (const int node : listed_or_all(entry.nodes, cluster.nodes)) {
      for (const int gpu : listed_or_all(entry.gpus, cluster.gpus_per_node)) {
        if (gpu >= cluster.gpus_per_node) continue;  // not used
        Change& change = changes[node * cluster.gpus_per_node + gpu];
        if (entry.kind) change.kind = entry.kind;
        if (entry.micro_batch) change.micro_batch = entry.micro_batch;
      }
    }
  }
  return changes;
}

void append(std::vector<GpuRun>& runs, const GpuRun& run) {
  if (run.count <= 0) return;
  if (!runs.empty() && runs.back().kind == run.kind && runs.back().micro_batch == run.micro_batch) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

FlopsPerSecond peak_rate(const GpuSpec& gpu, Precision precision) {
  switch (precision) {
    case Precision::Fp16:
      return gpu.fp16;
    case Precision::Bf16:
      return gpu.bf16;
    case Precision::Fp32:
      break;
  }
  return gpu.fp32;  // PyTorch multiplies fp32 matrices without TF32 unless told to
}

}  // namespace

std::vector<GpuRun> gpu_runs(const Cluster& cluster) {
  std::vector<GpuRun> runs;
  int next = 0;
  for (const auto& [rank, change] : changes_of(cluster)) {
    append(runs, {next, rank - next, cluster.node.gpu, 0});
    append(runs, {rank, 1, change.kind.value_or(cluster.node.gpu), change.micro_batch.value_or(0)});
    next = rank + 1;
  }
  append(runs, {next, cluster.world_size() - next, cluster.node.gpu, 0});
  return runs;
}

std::optional<GpuRun> gpu_run_of(const Cluster& cluster, Rank rank) {
  for (const GpuRun& run : gpu_runs(cluster)) {
    if (rank.value() >= run.first && rank.value() < run.first + run.count) return run;
  }
  return std::nullopt;
}

Bytes gpu_memory_of(const Cluster& cluster, const std::string& kind) {
  return kind == cluster.node.gpu ? cluster.gpu_memory() : gpu_spec(kind).memory;
}

Bytes gpu_memory_of(const Cluster& cluster, Rank rank) {
  const std::optional<GpuRun> run = gpu_run_of(cluster, rank);
  return run ? gpu_memory_of(cluster, run->kind) : cluster.gpu_memory();
}

std::vector<RankVariant> rank_variants(const Cluster& cluster, Bytes taken) {
  std::vector<RankVariant> variants;
  for (const GpuRun& run : gpu_runs(cluster)) {
    if (run.kind == cluster.node.gpu && run.micro_batch == 0) continue;
    variants.push_back(
        {run.first, run.count, run.micro_batch, gpu_memory_of(cluster, run.kind) - taken});
  }
  return variants;
}

std::int64_t samples_of_step(const Cluster& cluster, const Strategy& strategy) {
  std::int64_t samples = strategy.train_batch;
  for (const GpuRun& run : gpu_runs(cluster)) {
    if (run.micro_batch > 0) {
      samples += run.count * (run.micro_batch - strategy.micro_batch) * strategy.grad_accum;
    }
  }
  return samples;
}

FlopsPerSecond mean_peak_rate(const Cluster& cluster, Precision precision) {
  double sum = 0;
  for (const GpuRun& run : gpu_runs(cluster)) {
    const double peak = peak_rate(gpu_spec(run.kind), precision).per_second();
    if (peak <= 0) return FlopsPerSecond(0);
    sum += run.count * peak;
  }
  return FlopsPerSecond(sum / cluster.world_size());
}

}  // namespace zerosim
