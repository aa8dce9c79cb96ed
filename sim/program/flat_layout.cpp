#include "sim/program/flat_layout.h"

#include <algorithm>

namespace zerosim {

namespace {

// B2.3: parameters i, i + N, i + 2 N, ... for i = 0, 1, ...
std::vector<ParameterId> round_robin(const std::vector<ParameterId>& members, int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  std::vector<ParameterId> order;
  order.reserve(members.size());
  for (std::size_t first = 0; first < std::min(ranks, members.size()); ++first) {
    for (std::size_t i = first; i < members.size(); i += ranks) {
      order.push_back(members[i]);
    }
  }
  return order;
}

template <class Field>
std::int64_t sum_over_groups(const std::vector<FlatGroup>& groups, Field field) {
  std::int64_t sum = 0;
  for (const FlatGroup& group : groups) {
    sum += group.*field;
  }
  return sum;
}

}  // namespace

std::int64_t FlatLayout::elements() const {
  return sum_over_groups(groups, &FlatGroup::elements);
}

std::int64_t FlatLayout::padded() const {
  return sum_over_groups(groups, &FlatGroup::padded);
}

std::int64_t FlatLayout::partitions() const {
  return sum_over_groups(groups, &FlatGroup::partition);
}

std::int64_t FlatLayout::elements_on(ParameterId id, std::int64_t rank) const {
  const int group = group_of[id.index()];
  if (group < 0) {
    return 0;
  }
  const std::int64_t partition = groups[static_cast<std::size_t>(group)].partition;
  const std::int64_t offset = offset_of[id.index()];
  const std::int64_t begin = std::max(offset, rank * partition);
  const std::int64_t end = std::min(offset + elements_of[id.index()], (rank + 1) * partition);
  return std::max<std::int64_t>(0, end - begin);
}

std::vector<PartitionSlice> FlatLayout::slices(ParameterId id) const {
  std::vector<PartitionSlice> slices;
  const int group = group_of[id.index()];
  if (group < 0) {
    return slices;
  }
  const std::int64_t partition = groups[static_cast<std::size_t>(group)].partition;
  std::int64_t begin = offset_of[id.index()];
  const std::int64_t end = begin + elements_of[id.index()];
  while (begin < end) {
    const std::int64_t owner = begin / partition;
    const std::int64_t border = std::min(end, (owner + 1) * partition);
    slices.push_back({group, owner, border - begin});
    begin = border;
  }
  return slices;
}

std::vector<std::vector<ParameterId>> optimizer_groups(const Model& model, OptimizerGroups groups) {
  std::vector<std::vector<ParameterId>> result(2);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    if (parameter.trainable) {
      const bool vector = groups == OptimizerGroups::ByDimension && parameter.shape.size() < 2;
      result[vector ? 1 : 0].emplace_back(i);
    }
  }
  std::erase_if(result, [](const std::vector<ParameterId>& group) { return group.empty(); });
  return result;
}

FlatLayout flat_layout(const Model& model, const Strategy& strategy, int world_size) {
  FlatLayout layout;
  layout.group_of.assign(model.parameters.size(), -1);
  layout.offset_of.assign(model.parameters.size(), 0);
  for (const Parameter& parameter : model.parameters) {
    layout.elements_of.push_back(parameter.elements);
  }
  for (std::vector<ParameterId>& members : optimizer_groups(model, strategy.optimizer_groups)) {
    FlatGroup group;
    group.order =
        strategy.zero.round_robin_gradients ? round_robin(members, world_size) : std::move(members);
    for (const ParameterId id : group.order) {
      layout.group_of[id.index()] = static_cast<int>(layout.groups.size());
      layout.offset_of[id.index()] = group.elements;
      group.elements += layout.elements_of[id.index()];
    }
    const std::int64_t alignment = 2 * static_cast<std::int64_t>(world_size);
    group.padded = (group.elements + alignment - 1) / alignment * alignment;
    group.partition = group.padded / world_size;
    layout.groups.push_back(std::move(group));
  }
  return layout;
}

Rank largest_partition_rank(const FlatLayout& layout, int world_size) {
  // Elements of parameters that begin or end on a rank, as differences along the ranks.
  std::vector<std::int64_t> change(static_cast<std::size_t>(world_size) + 1, 0);
  for (const FlatGroup& group : layout.groups) {
    for (const ParameterId id : group.order) {
      const std::int64_t n = layout.elements_of[id.index()];
      if (n > 0) {
        const std::int64_t begin = layout.offset_of[id.index()];
        change[static_cast<std::size_t>(begin / group.partition)] += n;
        change[static_cast<std::size_t>((begin + n - 1) / group.partition) + 1] -= n;
      }
    }
  }
  std::int64_t sum = 0;
  std::int64_t largest = -1;
  Rank rank(0);
  for (int r = 0; r < world_size; ++r) {
    sum += change[static_cast<std::size_t>(r)];
    if (sum > largest) {
      largest = sum;
      rank = Rank(r);
    }
  }
  return rank;
}

}  // namespace zerosim
