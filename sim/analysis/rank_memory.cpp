#include "sim/analysis/rank_memory.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/analysis/memory_report.h"
#include "sim/memory/memory_timeline.h"
#include "sim/program/build.h"
#include "sim/program/local_pieces.h"
#include "sim/program/optimizer_offload.h"

namespace zerosim {

namespace {

/// What counts of a class.
struct Holding {
  Rank rank{0};
  int flush = 0;  ///< the first after which it keeps something; large: never
  std::int64_t elements = 0;
};

/// One rank of the job in two steps, of which the second has all that a steady one has.
BuildOptions two_steps(const Experiment& experiment) {
  BuildOptions options;
  options.world_size = experiment.cluster.world_size();
  options.first_step = 0;
  options.steps = 2;
  options.routing = experiment.routing;
  set_machine(experiment, options);
  options.pieces = LocalPieces::One;
  return options;
}

Program program_of(const Experiment& experiment, const Strategy& strategy,
                   std::optional<Rank> rank) {
  BuildOptions options = two_steps(experiment);
  options.rank = rank;
  return build_program(experiment.model, steady_strategy(strategy), batch_of(experiment, strategy),
                       options);
}

/// Peaks of ranks by replay, of the device, then of the host; each once.
class Peaks {
 public:
  Peaks(const Experiment& experiment, const Strategy& strategy)
      : experiment_(experiment), strategy_(strategy) {}

  /// The first of the largest.
  [[nodiscard]] Rank most(const std::set<Rank>& ranks) {
    return *std::max_element(ranks.begin(), ranks.end(), lower());
  }
  /// The first of the smallest.
  [[nodiscard]] Rank least(const std::set<Rank>& ranks) {
    return *std::min_element(ranks.begin(), ranks.end(), lower());
  }

 private:
  [[nodiscard]] std::pair<Bytes, Bytes> of(Rank rank) {
    const auto known = peaks_.find(rank);
    if (known != peaks_.end()) return known->second;
    const MemoryPeak found = replay_memory(program_of(experiment_, strategy_, rank));
    return peaks_[rank] = {found.allocated, found.host};
  }
  [[nodiscard]] std::function<bool(Rank, Rank)> lower() {
    return [this](Rank a, Rank b) { return of(a) < of(b); };
  }

  const Experiment& experiment_;
  const Strategy& strategy_;
  std::map<Rank, std::pair<Bytes, Bytes>> peaks_;
};

/// Piece classes of one kind of variant, with the lowest rank of each that is of the kind.
using KindRanks = std::vector<RankKind>;

std::vector<KindRanks> by_variant(const Experiment& experiment, const PieceClasses& classes) {
  std::vector<KindRanks> kinds;
  for (const RankKind& kind : rank_kinds(classes, two_steps(experiment))) {
    const auto variant = static_cast<std::size_t>(kind.variant);
    if (variant >= kinds.size()) kinds.resize(variant + 1);
    kinds[variant].push_back(kind);
  }
  return kinds;
}

class PartitionMemory {
 public:
  PartitionMemory(const Experiment& experiment, const Strategy& strategy, const FlatLayout& layout,
                  const PieceClasses& classes)
      : experiment_(experiment), strategy_(strategy), layout_(layout), classes_(classes) {}

  MemoryRanks ranks(const std::vector<KindRanks>& kinds) {
    const std::map<ParameterId, int> flush_of = flushes();
    Peaks peaks(experiment_, strategy_);
    MemoryRanks ranks{true, {}, Rank(0)};
    std::set<Rank> least;
    for (const KindRanks& kind : kinds) {
      const std::vector<Holding> holdings = all_holdings(kind, flush_of);
      std::set<Rank> most = {kind.front().rank, largest_slice(kind)};
      for (const Rank rank : front(holdings, 1)) most.insert(rank);
      for (const Rank rank : front(holdings, -1)) least.insert(rank);
      ranks.most.push_back(peaks.most(most));
    }
    ranks.least = peaks.least(least);
    return ranks;
  }

 private:
  /// By parameter: the flush of the first micro batch that reduces it.
  [[nodiscard]] std::map<ParameterId, int> flushes() const {
    const Program program = program_of(experiment_, strategy_, std::nullopt);
    const RankProgram& rank = program.ranks.front();
    std::map<ParameterId, int> found;
    int flush = 0;
    for (const Annotation& annotation : rank.annotations) {
      if (annotation.kind != AnnotationKind::FlushBucket) continue;
      for (const ParameterId id : rank.parameters_of(annotation)) found.try_emplace(id, flush);
      ++flush;
    }
    return found;
  }

  [[nodiscard]] std::vector<Holding> all_holdings(
      const KindRanks& kind, const std::map<ParameterId, int>& flush_of) const {
    std::vector<Holding> holdings;
    for (const RankKind& one : kind) {
      const auto i = static_cast<std::size_t>(one.piece_class);
      Holding& holding = holdings.emplace_back();
      holding.rank = one.rank;
      holding.flush = std::numeric_limits<int>::max();
      for (const ParameterId id : classes_.parameters[i]) {
        const auto flush = flush_of.find(id);
        if (flush != flush_of.end()) holding.flush = std::min(holding.flush, flush->second);
        holding.elements = std::max(holding.elements, layout_.elements_of[id.index()]);
      }
      if (!offloads_optimizer(strategy_)) holding.elements = classes_.elements[i];
    }
    return holdings;
  }

  /// Ranks that no other one surpasses: of two flushes the earlier and of two sizes the larger
  /// (`sign` 1), or the other way round (-1). The lowest of those that are alike.
  static std::vector<Rank> front(std::vector<Holding> holdings, int sign) {
    const auto better = [sign](const Holding& a, const Holding& b) {
      if (a.flush != b.flush) return sign > 0 ? a.flush < b.flush : a.flush > b.flush;
      return sign > 0 ? a.elements > b.elements : a.elements < b.elements;
    };
    std::stable_sort(holdings.begin(), holdings.end(), better);
    std::vector<Rank> ranks;
    std::int64_t best = 0;
    for (const Holding& holding : holdings) {
      if (ranks.empty() || sign * holding.elements > sign * best) {
        ranks.push_back(holding.rank);
        best = holding.elements;
      }
    }
    return ranks;
  }

  /// The rank with the largest piece of one parameter, of which the step makes copies (B5).
  [[nodiscard]] Rank largest_slice(const KindRanks& kind) const {
    std::pair<std::int64_t, std::int64_t> largest{-1, -1};
    Rank rank(0);
    for (const RankKind& one : kind) {
      const auto i = static_cast<std::size_t>(one.piece_class);
      std::int64_t slice = 0;
      for (const ParameterId id : classes_.parameters[i]) {
        slice = std::max(slice, layout_.elements_on(id, one.rank.value()));
      }
      if (std::pair(slice, classes_.elements[i]) > largest) {
        largest = {slice, classes_.elements[i]};
        rank = one.rank;
      }
    }
    return rank;
  }

  const Experiment& experiment_;
  const Strategy& strategy_;
  const FlatLayout& layout_;
  const PieceClasses& classes_;
};

/// Of FSDP, where what counts is how many elements a rank updates.
MemoryRanks ranks_by_elements(const Experiment& experiment, const Strategy& strategy,
                              const PieceClasses& classes, const std::vector<KindRanks>& kinds) {
  const auto fewer = [&](const RankKind& a, const RankKind& b) {
    return classes.elements[static_cast<std::size_t>(a.piece_class)] <
           classes.elements[static_cast<std::size_t>(b.piece_class)];
  };
  MemoryRanks ranks{true, {}, Rank(0)};
  std::set<Rank> least;
  for (const KindRanks& kind : kinds) {
    ranks.most.push_back(std::max_element(kind.begin(), kind.end(), fewer)->rank);
    least.insert(std::min_element(kind.begin(), kind.end(), fewer)->rank);
  }
  ranks.least = least.size() == 1 ? *least.begin() : Peaks(experiment, strategy).least(least);
  return ranks;
}

}  // namespace

MemoryRanks memory_ranks(const Experiment& experiment, const Strategy& strategy) {
  const int world_size = experiment.cluster.world_size();
  const bool partitions = cuts_flat_tensors(strategy);
  if (world_size == 1 || (!partitions && strategy.framework != Framework::Fsdp)) return {};
  const FlatLayout layout =
      partitions ? flat_layout(experiment.model, strategy, world_size) : FlatLayout();
  const PieceClasses classes = piece_classes(experiment.model, strategy, layout, world_size);
  if (classes.lowest.size() == 1) return {};
  const std::vector<KindRanks> kinds = by_variant(experiment, classes);
  return partitions ? PartitionMemory(experiment, strategy, layout, classes).ranks(kinds)
                    : ranks_by_elements(experiment, strategy, classes, kinds);
}

}  // namespace zerosim
