/// \file
/// What ranks and NICs are like where perturbations make them uneven (perturbation.h).
///
/// Capacities: what is left of a link is `bandwidth` x nominal - `background`, the product and the
/// sum of all entries about it, in whatever order they come. Of the GPU's NVLinks, n - `lost_links`
/// of n are left of the ring capacity, and no more than NCCL's rings use then (`settle_nccl`); a
/// mesh's pair that is slow slows every ring through its two GPUs (NCCL deals data out evenly to
/// channels), so that both keep the part of their slowest pair. Where NCCL's rings have moved to
/// PCIe, rings lose what PCIe links lose. (Slots lose it as shared links: folding.h.)
#pragma once

#include <compare>
#include <vector>

#include "topology/cluster.h"

namespace zerosim {

/// What all entries together leave of one link.
struct LinkPart {
  double bandwidth = 1;   ///< a factor
  double background = 0;  ///< bytes per second
  void add(const LinkPerturbation& entry) {
    bandwidth *= entry.bandwidth;
    background += entry.background.per_second();
  }
  auto operator<=>(const LinkPart&) const = default;
};

/// One rank's GPU, host thread and ring link.
struct RankFigures {
  int gpu = 0;  ///< index into UnevenRanks::gpus
  double gpu_speed = 1;
  double memory_speed = 1;
  double host_speed = 1;
  double intra = 0;  ///< bytes per second; 0: there is no such link
  bool operator==(const RankFigures&) const = default;
};

struct UnevenRanks {
  std::vector<std::string> gpus;     ///< kinds; the template's first
  std::vector<RankFigures> figures;  ///< distinct ones
  std::vector<int> of_rank;          ///< index into `figures`
};

/// Of the first `ranks` ranks. `cluster` is settled (`settle_nccl`).
/// \throws ConfigError  if a perturbation names what is not there or leaves nothing of a link
[[nodiscard]] UnevenRanks uneven_ranks(const Cluster& cluster, int ranks);

/// Kinds of GPUs in the cluster, the template's first, each once.
[[nodiscard]] std::vector<std::string> gpu_kinds(const Cluster& cluster);

/// The datasheet of one of them, with what an operator allows it: the template's kind alone.
[[nodiscard]] GpuSpec gpu_in_use(const Cluster& cluster, const std::string& kind);

/// `part` of a link of capacity `nominal` (bytes per second).
/// \throws ConfigError  if that is nothing; `what` names the link.
[[nodiscard]] double left_of(const LinkPart& part, double nominal, const char* what);

}  // namespace zerosim
