#include "topology/rank_figures.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

/// A rank's figures while perturbations are still being applied.
struct Draft {
  RankFigures figures;
  LinkPart nvlink;  ///< of all NVLinks of the GPU
  LinkPart pcie;
  std::map<int, LinkPart> pairs;  ///< of the NVLinks to other GPUs of a mesh, by their number
  int pair_of = -1;               ///< number of this GPU, if there are pairs
  double lost_share = 0;          ///< of the GPU's NVLinks
  double surplus = 1;             ///< NVLinks to the switch over those of the used GPU with fewest
  [[nodiscard]] auto key() const {
    return std::tuple(figures.gpu, figures.gpu_speed, figures.memory_speed, figures.host_speed,
                      nvlink, pcie, pairs, pair_of, lost_share, surplus);
  }
};

class Builder {
 public:
  Builder(const Cluster& cluster, int ranks) : cluster_(cluster) {
    result_.gpus = gpu_kinds(cluster);
    result_.of_rank.assign(static_cast<std::size_t>(ranks), 0);
    Draft nominal;
    nominal.figures.intra =
        ring_capacity(rings_moved() ? cluster.nccl() : cluster.node.nccl).per_second();
    number(nominal);
  }

  UnevenRanks build() {
    for (const GpuPerturbation& entry : cluster_.perturbations.gpus) apply(entry);
    for (const LinkPerturbation& entry : cluster_.perturbations.links) apply(entry);
    finish();
    return std::move(result_);
  }

 private:
  /// No ring of NVLinks is left anywhere.
  [[nodiscard]] bool rings_moved() const { return cluster_.intra() != cluster_.node.intra; }
  [[nodiscard]] bool rings_over_pcie() const { return !has_nvlink(cluster_.intra()); }

  int number(const Draft& draft) {
    const auto [entry, added] = numbers_.try_emplace(draft.key(), static_cast<int>(drafts_.size()));
    if (added) drafts_.push_back(draft);
    return entry->second;
  }

  /// Changes the ranks of the listed nodes and GPUs; `change` sees each distinct draft once.
  template <typename Change>
  void for_ranks(const std::vector<int>& nodes, const std::vector<int>& gpus, Change change) {
    check_selected("node", nodes, cluster_.nodes);
    check_selected("GPU", gpus, cluster_.node.gpus);
    std::map<int, int> changed;  // by the number before
    for_selected(nodes, cluster_.nodes, [&](int node) {
      for_selected(gpus, cluster_.gpus_per_node, [&](int gpu) {
        const auto rank =
            static_cast<std::size_t>(node) * static_cast<std::size_t>(cluster_.gpus_per_node) +
            static_cast<std::size_t>(gpu);
        if (gpu >= cluster_.gpus_per_node || rank >= result_.of_rank.size()) return;
        int& own = result_.of_rank[rank];
        const auto [entry, added] = changed.try_emplace(own, 0);
        if (added) {
          Draft draft = drafts_[static_cast<std::size_t>(own)];
          change(draft);
          entry->second = number(draft);
        }
        own = entry->second;
      });
    });
  }

  void apply(const GpuPerturbation& entry) {
    int kind = -1;
    if (entry.kind) {
      const auto found = std::find(result_.gpus.begin(), result_.gpus.end(), *entry.kind);
      kind = static_cast<int>(found - result_.gpus.begin());
    }
    for_ranks(entry.nodes, entry.gpus, [&](Draft& draft) {
      draft.figures.gpu_speed *= entry.speed;
      draft.figures.memory_speed *= entry.memory_speed;
      draft.figures.host_speed *= entry.host_speed;
      if (kind >= 0) draft.figures.gpu = kind;
    });
  }

  void apply(const LinkPerturbation& entry) {
    if (entry.where == LinkPerturbation::Where::Pcie) apply_pcie(entry);
    if (entry.where != LinkPerturbation::Where::NvLink) return;
    if (cluster_.node.intra == IntraNode::NvSwitch) {
      apply_switch(entry);
    } else if (cluster_.node.intra == IntraNode::NvLinkMesh) {
      apply_mesh(entry);
    } else {
      throw ConfigError(
          format("a perturbation names NVLinks, and nodes ({}) have none", cluster_.node.name));
    }
  }

  void apply_pcie(const LinkPerturbation& entry) {
    for_ranks(entry.nodes, entry.gpus, [&](Draft& draft) { draft.pcie.add(entry); });
  }

  void apply_switch(const LinkPerturbation& entry) {
    for_selected(entry.gpus, cluster_.gpus_per_node, [&](int gpu) {
      const int links = entry.lost_links > 0 ? links_to_switch(cluster_.node, gpu) : 0;
      for_ranks(entry.nodes, {gpu}, [&](Draft& draft) {
        draft.nvlink.add(entry);
        if (links == 0) return;
        draft.lost_share += static_cast<double>(entry.lost_links) / links;
        draft.surplus = static_cast<double>(links) / fewest_links();
      });
    });
  }

  void apply_mesh(const LinkPerturbation& entry) {
    if (entry.peer < 0) {  // settle_nccl has refused lost links
      for_ranks(entry.nodes, entry.gpus, [&](Draft& draft) { draft.nvlink.add(entry); });
      return;
    }
    check_selected("GPU", {entry.peer}, cluster_.node.gpus);
    check_selected("GPU", entry.gpus, cluster_.node.gpus);
    std::vector<int> gpus;
    for_selected(entry.gpus, cluster_.gpus_per_node, [&](int gpu) {
      if (gpu != entry.peer) gpus.push_back(gpu);
    });
    for (const int gpu : gpus) {
      if (nvlink_pair_bandwidth(cluster_.node.graph, gpu, entry.peer).per_second() <= 0) {
        throw ConfigError(
            format("a perturbation names NVLinks between GPUs {} and {}, and there "
                   "are none",
                   gpu, entry.peer));
      }
      apply_pair(entry, gpu, entry.peer);
      apply_pair(entry, entry.peer, gpu);
    }
  }

  void apply_pair(const LinkPerturbation& entry, int gpu, int other) {
    const double lost = static_cast<double>(entry.lost_links) / links_in_mesh(gpu);
    for_ranks(entry.nodes, {gpu}, [&](Draft& draft) {
      draft.lost_share += lost;
      draft.pairs[other].add(entry);
      draft.pair_of = gpu;
    });
  }

  /// Of the used GPUs.
  [[nodiscard]] int fewest_links() const {
    int fewest = links_to_switch(cluster_.node, 0);
    for (int gpu = 1; gpu < cluster_.gpus_per_node; ++gpu) {
      fewest = std::min(fewest, links_to_switch(cluster_.node, gpu));
    }
    return fewest;
  }
  /// NVLinks between a GPU and the other used ones; at least 1.
  [[nodiscard]] int links_in_mesh(int gpu) const {
    int sum = 0;
    for (int other = 0; other < cluster_.gpus_per_node; ++other) {
      if (other != gpu) sum += links_between(cluster_.node, gpu, other);
    }
    return std::max(1, sum);
  }

  /// Drafts that no rank has any more do not count; different ones may end alike.
  void finish() {
    std::vector<int> numbers(drafts_.size(), -1);
    for (int& own : result_.of_rank) {
      int& number = numbers[static_cast<std::size_t>(own)];
      if (number < 0) {
        const RankFigures figures = finished(drafts_[static_cast<std::size_t>(own)]);
        std::vector<RankFigures>& known = result_.figures;
        const auto found = std::find(known.begin(), known.end(), figures);
        number = static_cast<int>(found - known.begin());
        if (found == known.end()) known.push_back(figures);
      }
      own = number;
    }
  }

  [[nodiscard]] RankFigures finished(const Draft& draft) const {
    RankFigures figures = draft.figures;
    if (rings_over_pcie()) {
      figures.intra = left_of(draft.pcie, figures.intra, "a PCIe link");
    } else {
      figures.intra = left_of(draft.nvlink, rings_left(draft), "a GPU's NVLinks");
    }
    return figures;
  }

  /// Of NVLinks, before what slows all of the GPU's.
  [[nodiscard]] double rings_left(const Draft& draft) const {
    double left = draft.figures.intra;
    if (draft.lost_share > 0) {
      const double of_links = left * std::min(1.0, draft.surplus * (1 - draft.lost_share));
      left = std::min(of_links, ring_capacity(cluster_.nccl()).per_second());
    }
    return left * slowest_pair(draft);
  }

  [[nodiscard]] double slowest_pair(const Draft& draft) const {
    double slowest = 1;
    for (const auto& [other, part] : draft.pairs) {
      const double pair =
          nvlink_pair_bandwidth(cluster_.node.graph, draft.pair_of, other).per_second();
      slowest = std::min(slowest, left_of(part, pair, "a pair's NVLinks") / pair);
    }
    return slowest;
  }

  const Cluster& cluster_;
  UnevenRanks result_;
  std::vector<Draft> drafts_;
  std::map<decltype(std::declval<Draft>().key()), int> numbers_;
};

}  // namespace

void check_selected(const char* what, const std::vector<int>& listed, int count) {
  for (const int index : listed) {
    if (index >= 0 && index < count) continue;
    throw ConfigError(
        format("a perturbation names {} {}, expected 0 to {}", what, index, count - 1));
  }
}

GpuSpec gpu_in_use(const Cluster& cluster, const std::string& kind) {
  GpuSpec gpu = gpu_spec(kind);
  if (kind == cluster.node.gpu) gpu.power_cap = cluster.node.gpu_power_limit;
  return gpu;
}

std::vector<std::string> gpu_kinds(const Cluster& cluster) {
  std::vector<std::string> kinds{cluster.node.gpu};
  for (const GpuPerturbation& entry : cluster.perturbations.gpus) {
    if (entry.kind && std::find(kinds.begin(), kinds.end(), *entry.kind) == kinds.end()) {
      kinds.push_back(*entry.kind);
    }
  }
  return kinds;
}

double left_of(const LinkPart& part, double nominal, const char* what) {
  if (part.bandwidth == 1 && part.background == 0) return nominal;
  const double left = nominal * part.bandwidth - part.background;
  if (!(left > 0)) {
    throw ConfigError(
        format("a perturbation leaves nothing of {}: {:g} of {:g} GB/s less {:g} GB/s "
               "of background traffic",
               what, part.bandwidth, nominal * 1e-9, part.background * 1e-9));
  }
  return left;
}

UnevenRanks uneven_ranks(const Cluster& cluster, int ranks) {
  return Builder(cluster, ranks).build();
}

}  // namespace zerosim
