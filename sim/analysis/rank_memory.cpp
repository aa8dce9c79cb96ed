#include "sim/analysis/rank_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
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

class PartitionMemory {
 public:
  PartitionMemory(const Experiment& experiment, const Strategy& strategy, const FlatLayout& layout,
                  const PieceClasses& classes)
      : experiment_(experiment), strategy_(strategy), layout_(layout), classes_(classes) {}

  MemoryRanks ranks() {
    const std::vector<Holding> holdings = all_holdings();
    std::set<Rank> most = {Rank(0), largest_slice()};
    std::set<Rank> least;
    for (const Rank rank : front(holdings, 1)) most.insert(rank);
    for (const Rank rank : front(holdings, -1)) least.insert(rank);
    const auto lower = [&](Rank a, Rank b) { return peak(a) < peak(b); };
    MemoryRanks ranks;
    ranks.differ = true;
    ranks.most = *std::max_element(most.begin(), most.end(), lower);  // the first of the largest
    ranks.least = *std::min_element(least.begin(), least.end(), lower);
    return ranks;
  }

 private:
  [[nodiscard]] Program build(std::optional<Rank> rank) const {
    BuildOptions options;
    options.world_size = experiment_.cluster.world_size();
    options.first_step = 0;
    options.steps = 2;  // the second has all that a steady one has
    options.routing = experiment_.routing;
    set_machine(experiment_, options);
    options.pieces = LocalPieces::One;
    options.rank = rank;
    return build_program(experiment_.model, steady_strategy(strategy_),
                         batch_of(experiment_, strategy_), options);
  }

  /// By parameter: the flush of the first micro batch that reduces it.
  [[nodiscard]] std::map<ParameterId, int> flushes() const {
    const Program program = build(std::nullopt);
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

  [[nodiscard]] std::vector<Holding> all_holdings() const {
    const std::map<ParameterId, int> flush_of = flushes();
    std::vector<Holding> holdings;
    for (std::size_t i = 0; i < classes_.lowest.size(); ++i) {
      Holding& holding = holdings.emplace_back();
      holding.rank = classes_.lowest[i];
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
  [[nodiscard]] Rank largest_slice() const {
    std::pair<std::int64_t, std::int64_t> largest{-1, -1};
    Rank rank(0);
    for (std::size_t i = 0; i < classes_.lowest.size(); ++i) {
      std::int64_t slice = 0;
      for (const ParameterId id : classes_.parameters[i]) {
        slice = std::max(slice, layout_.elements_on(id, classes_.lowest[i].value()));
      }
      if (std::pair(slice, classes_.elements[i]) > largest) {
        largest = {slice, classes_.elements[i]};
        rank = classes_.lowest[i];
      }
    }
    return rank;
  }

  /// Of the device, then of the host.
  std::pair<Bytes, Bytes> peak(Rank rank) {
    const auto known = peaks_.find(rank);
    if (known != peaks_.end()) return known->second;
    const MemoryPeak found = replay_memory(build(rank));
    return peaks_[rank] = {found.allocated, found.host};
  }

  const Experiment& experiment_;
  const Strategy& strategy_;
  const FlatLayout& layout_;
  const PieceClasses& classes_;
  std::map<Rank, std::pair<Bytes, Bytes>> peaks_;
};

}  // namespace

MemoryRanks memory_ranks(const Experiment& experiment, const Strategy& strategy) {
  const int world_size = experiment.cluster.world_size();
  const bool partitions = cuts_flat_tensors(strategy);
  if (world_size == 1 || (!partitions && strategy.framework != Framework::Fsdp)) return {};
  const FlatLayout layout =
      partitions ? flat_layout(experiment.model, strategy, world_size) : FlatLayout();
  const PieceClasses classes = piece_classes(experiment.model, strategy, layout, world_size);
  if (classes.lowest.size() == 1) return {};
  if (partitions) return PartitionMemory(experiment, strategy, layout, classes).ranks();
  const std::vector<std::int64_t>& elements = classes.elements;
  const auto rank_at = [&](auto found) {
    return classes.lowest[static_cast<std::size_t>(found - elements.begin())];
  };
  return {true, rank_at(std::max_element(elements.begin(), elements.end())),
          rank_at(std::min_element(elements.begin(), elements.end()))};
}

}  // namespace zerosim
