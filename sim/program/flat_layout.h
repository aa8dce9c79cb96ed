/// \file
/// Where a parameter lies in the flat tensors of ZeRO stages 1 and 2: spec B2.1 to B2.3.
///
/// The trainable parameters of each optimizer group are concatenated, padded to a multiple of 2 N
/// elements and cut into N equal partitions, whatever the parameters' borders:
///
///     padded = ceil(elements / 2N) * 2N,   S = padded / N,   rank r owns [r S, (r + 1) S)
///
/// Example (B2): 10 + 7 + 5 elements, N = 4: 22 -> 24, S = 6; rank 1 owns p0[6:10] and p1[0:2].
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/ids.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// The flat tensor of one optimizer group; all counts in elements.
struct FlatGroup {
  std::vector<ParameterId> order;  ///< in the tensor
  std::int64_t elements = 0;       ///< without padding
  std::int64_t padded = 0;
  std::int64_t partition = 0;  ///< S
};

/// A run of elements within one partition.
struct PartitionSlice {
  int group = 0;
  std::int64_t owner = 0;  ///< rank
  std::int64_t elements = 0;
};

struct FlatLayout {
  std::vector<FlatGroup> groups;
  std::vector<int> group_of;              ///< by parameter; -1: frozen, in no tensor (rule 77)
  std::vector<std::int64_t> offset_of;    ///< by parameter, in its group's tensor
  std::vector<std::int64_t> elements_of;  ///< by parameter

  [[nodiscard]] std::int64_t elements() const;    ///< of all groups, without padding
  [[nodiscard]] std::int64_t padded() const;      ///< of all groups
  [[nodiscard]] std::int64_t partitions() const;  ///< sum of S
  [[nodiscard]] std::int64_t elements_on(ParameterId id, std::int64_t rank) const;
  /// The parameter cut at partition borders, lower owner first.
  [[nodiscard]] std::vector<PartitionSlice> slices(ParameterId id) const;
};

/// Trainable parameters by optimizer group, in order of registration; none is empty.
[[nodiscard]] std::vector<std::vector<ParameterId>> optimizer_groups(const Model& model,
                                                                     OptimizerGroups groups);

/// With `round_robin_gradients` the order in a tensor is parameters i with i mod N == 0, then 1,
/// ... (B2.3); else that of registration.
[[nodiscard]] FlatLayout flat_layout(const Model& model, const Strategy& strategy, int world_size);

/// Rank whose partitions touch parameters with the most elements: the largest partition gradient
/// buffer (B3.8). The lowest such rank.
[[nodiscard]] Rank largest_partition_rank(const FlatLayout& layout, int world_size);

}  // namespace zerosim
