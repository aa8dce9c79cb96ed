#include "sim/program/local_pieces.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/program/frameworks.h"

namespace zerosim {

namespace {

/// A number that differs where pieces differ.
using Key = std::vector<std::int64_t>;

/// First ranks of runs of alike ranks.
using Borders = std::set<int>;

/// [begin, end) cut into pieces of `piece`: the ranks of the first and the last piece, and those
/// after them, begin something else.
void add_borders(std::int64_t begin, std::int64_t end, std::int64_t piece, Borders& borders) {
  if (begin >= end) return;
  for (const std::int64_t place : {begin / piece, (end - 1) / piece}) {
    const auto rank = static_cast<int>(place);
    borders.insert({rank, rank + 1});
  }
}

/// Ranks [0, ranks) between `borders`, put together where `key_of` their first rank is the same.
template <typename KeyOf>
PieceClasses classes_between(const Borders& borders, int ranks, KeyOf key_of) {
  PieceClasses classes;
  std::map<Key, int> known;
  for (auto border = borders.begin(); border != borders.end() && *border < ranks; ++border) {
    const auto next = std::next(border);
    const int end = next == borders.end() ? ranks : std::min(ranks, *next);
    const auto [key, elements] = key_of(Rank(*border));
    const auto [entry, added] = known.try_emplace(key, static_cast<int>(known.size()));
    if (added) {
      classes.lowest.emplace_back(*border);
      classes.elements.push_back(elements);
    }
    if (!classes.runs.empty() && classes.runs.back().program == entry->second) {
      classes.runs.back().count += end - *border;
    } else {
      classes.runs.push_back({*border, end - *border, entry->second});
    }
  }
  return classes;
}

PieceClasses one_class(int ranks) {
  return {{{0, ranks, 0}}, {Rank(0)}, {0}, {}};
}

/// The same classes in each of the groups of `period` consecutive ranks.
PieceClasses repeated(PieceClasses classes, int period, int ranks) {
  if (classes.lowest.size() == 1) {
    classes.runs = {{0, ranks, 0}};
    return classes;
  }
  const std::size_t runs = classes.runs.size();
  for (int begin = period; begin < ranks; begin += period) {
    for (std::size_t i = 0; i < runs; ++i) {
      ProgramRun run = classes.runs[i];
      run.first += begin;
      classes.runs.push_back(run);
    }
  }
  return classes;
}

/// Calls `visit(parameter, elements)` for what a rank has of a group's tensor, in its order.
template <typename Visit>
void for_each_piece(const FlatLayout& layout, const FlatGroup& group, Rank rank, Visit visit) {
  const std::int64_t begin = rank.value() * group.partition;
  const auto ends_after = [&](std::int64_t offset, ParameterId id) {
    return offset < layout.offset_of[id.index()] + layout.elements_of[id.index()];
  };
  auto piece = std::upper_bound(group.order.begin(), group.order.end(), begin, ends_after);
  for (; piece != group.order.end(); ++piece) {
    if (layout.offset_of[piece->index()] >= begin + group.partition) return;
    const std::int64_t elements = layout.elements_on(*piece, rank.value());
    if (elements > 0) visit(*piece, elements);
  }
}

PieceClasses partition_classes(const FlatLayout& layout, int ranks) {
  Borders borders = {0};
  for (const FlatGroup& group : layout.groups) {
    for (const ParameterId id : group.order) {
      const std::int64_t begin = layout.offset_of[id.index()];
      add_borders(begin, begin + layout.elements_of[id.index()], group.partition, borders);
    }
  }
  PieceClasses classes = classes_between(borders, ranks, [&](Rank rank) {
    Key key;
    std::int64_t whole = 0;
    for (const FlatGroup& group : layout.groups) {
      for_each_piece(layout, group, rank, [&](ParameterId id, std::int64_t elements) {
        key.push_back(static_cast<std::int64_t>(id.index()));
        key.push_back(elements);
        whole += layout.elements_of[id.index()];
      });
    }
    return std::pair(std::move(key), whole);
  });
  for (const Rank rank : classes.lowest) {
    std::vector<ParameterId>& parameters = classes.parameters.emplace_back();
    for (const FlatGroup& group : layout.groups) {
      for_each_piece(layout, group, rank,
                     [&](ParameterId id, std::int64_t) { parameters.push_back(id); });
    }
  }
  return classes;
}

std::int64_t sum(const std::vector<std::int64_t>& elements) {
  std::int64_t total = 0;
  for (const std::int64_t n : elements) total += n;
  return total;
}

Borders fsdp_borders(const Model& model, const Strategy& strategy, const FsdpUnits& units,
                     int ranks) {
  Borders borders = {0};
  if (strategy.fsdp.version == 2) {
    for (const Parameter& parameter : model.parameters) {
      if (parameter.trainable) {
        const auto full = static_cast<int>(dim0_full_ranks(parameter, ranks));
        borders.insert({full, full + 1});
      }
    }
    return borders;
  }
  for_each_shard_cut(model, units, fsdp1_alignment(strategy), ranks,
                     [&](std::int64_t begin, std::int64_t end, std::int64_t shard) {
                       add_borders(begin, end, shard, borders);
                     });
  return borders;
}

/// The ranks that hold one copy of the parameters.
int fsdp_shard_ranks(const Strategy& strategy, int world_size) {
  if (is_hybrid(strategy.fsdp.sharding)) {
    return std::max(1, static_cast<int>(strategy.fsdp.shard_group));
  }
  return strategy.fsdp.sharding == FsdpSharding::NoShard ? 1 : world_size;
}

PieceClasses fsdp_classes(const Model& model, const Strategy& strategy, int world_size) {
  const int ranks = fsdp_shard_ranks(strategy, world_size);
  const bool alike = strategy.fsdp.version == 1 && (!strategy.fsdp.use_orig_params || ranks == 1);
  if (alike || world_size % ranks != 0) return one_class(world_size);
  const FsdpUnits units = fsdp_units(model, strategy.fsdp);
  const Borders borders = fsdp_borders(model, strategy, units, ranks);
  const auto key_of = [&](Rank rank) {
    Key key = fsdp_optimizer_tensors(model, strategy, units, {rank.value(), ranks});
    const std::int64_t elements = sum(key);
    return std::pair(std::move(key), elements);
  };
  return repeated(classes_between(borders, ranks, key_of), ranks, world_size);
}

/// One figure of a row of ranks: `amount` more on [first, last].
struct RankSpan {
  std::int64_t first = 0, last = 0;
  KeptGradients amount;
};

void add_spans(const FlatLayout& layout, ParameterId id, std::vector<RankSpan>& spans) {
  const int group = layout.group_of[id.index()];
  const std::int64_t n = layout.elements_of[id.index()];
  if (group < 0 || n == 0) return;
  const std::int64_t partition = layout.groups[static_cast<std::size_t>(group)].partition;
  const std::int64_t first = layout.offset_of[id.index()] / partition;
  const std::int64_t last = (layout.offset_of[id.index()] + n - 1) / partition;
  spans.push_back({first, first, {n, layout.elements_on(id, first), 1}});
  if (last > first + 1) spans.push_back({first + 1, last - 1, {n, partition, 1}});
  if (last > first) spans.push_back({last, last, {n, layout.elements_on(id, last), 1}});
}

void add(KeptGradients& sum, const KeptGradients& more, int sign) {
  sum.whole += sign * more.whole;
  sum.own += sign * more.own;
  sum.tensors += sign * more.tensors;
}

}  // namespace

bool cuts_flat_tensors(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed &&
         (strategy.zero.stage == 1 || strategy.zero.stage == 2) && !uses_bf16_optimizer(strategy);
}

ShardPlace shard_place(const FrameworkContext& context) {
  const int ranks = fsdp_shard_ranks(context.strategy, context.world_size);
  return {context.rank.value() % ranks, ranks};
}

std::vector<std::int64_t> fsdp_optimizer_tensors(const Model& model, const Strategy& strategy,
                                                 const FsdpUnits& units, const ShardPlace& place) {
  if (strategy.fsdp.version == 1) {
    return trainable_shards(model, units, fsdp1_alignment(strategy), place,
                            strategy.fsdp.use_orig_params);
  }
  std::vector<std::int64_t> tensors;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.trainable) tensors.push_back(dim0_own_elements(parameter, place));
  }
  return tensors;
}

PieceClasses piece_classes(const Model& model, const Strategy& strategy, const FlatLayout& layout,
                           int world_size) {
  if (world_size > 1 && cuts_flat_tensors(strategy)) return partition_classes(layout, world_size);
  if (world_size > 1 && strategy.framework == Framework::Fsdp) {
    return fsdp_classes(model, strategy, world_size);
  }
  return one_class(world_size);
}

Rank largest_rank(const Model& model, const Strategy& strategy, const FlatLayout& layout,
                  int world_size) {
  if (cuts_flat_tensors(strategy)) return largest_partition_rank(layout, world_size);
  if (strategy.framework != Framework::Fsdp || strategy.fsdp.version == 2) return Rank(0);
  return busiest_shard_rank(model, fsdp_units(model, strategy.fsdp), fsdp1_alignment(strategy),
                            fsdp_shard_ranks(strategy, world_size));
}

KeptGradients kept_gradients(const FlatLayout& layout, std::span<const ParameterId> parameters,
                             Rank rank) {
  KeptGradients kept;
  for (const ParameterId id : parameters) {
    const std::int64_t own = layout.elements_on(id, rank.value());
    if (own > 0) add(kept, {layout.elements_of[id.index()], own, 1}, 1);
  }
  return kept;
}

KeptGradients most_kept_gradients(const FlatLayout& layout,
                                  std::span<const ParameterId> parameters) {
  std::vector<RankSpan> spans;
  for (const ParameterId id : parameters) add_spans(layout, id, spans);
  std::vector<std::pair<std::int64_t, std::pair<int, std::size_t>>> changes;  // rank, sign, span
  for (std::size_t i = 0; i < spans.size(); ++i) {
    changes.push_back({spans[i].first, {1, i}});
    changes.push_back({spans[i].last + 1, {-1, i}});
  }
  std::sort(changes.begin(), changes.end());
  KeptGradients now;
  KeptGradients most;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    add(now, spans[changes[i].second.second].amount, changes[i].second.first);
    if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first) continue;
    most.whole = std::max(most.whole, now.whole);
    most.own = std::max(most.own, now.own);
    most.tensors = std::max(most.tensors, now.tensors);
  }
  return most;
}

KeptGradients beyond(const KeptGradients& most, const KeptGradients& own) {
  const int tensors = most.tensors - own.tensors;
  return {std::max<std::int64_t>(most.whole - own.whole, tensors),
          std::max<std::int64_t>(most.own - own.own, tensors), tensors};
}

}  // namespace zerosim
