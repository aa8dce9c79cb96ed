/// \file
/// Which modules FSDP wraps and what each unit shards: spec D2.1, D3.1.
///
/// A unit is the root, or a module that the wrapping policy picks; it holds the parameters below
/// it that no unit inside it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/base/ids.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

struct FsdpUnit {
  ModuleId module;
  std::vector<ParameterId> parameters;  ///< in order of registration
};

struct FsdpUnits {
  /// The root first, then in order of execution. Only the root may be without parameters.
  std::vector<FsdpUnit> units;
  std::vector<int> of_module;     ///< by module: the unit that it is; -1: none
  std::vector<int> of_parameter;  ///< by parameter
};

/// Policies as in torch/distributed/fsdp/wrap.py: modules of named classes (by default the model's
/// blocks); by size: a module whose parameters, less those of wrapped modules inside it, are at
/// least `min_num_params` elements, but neither containers nor what is in an nn.MultiheadAttention;
/// none: the root alone.
/// \throws ConfigError  if two units share a parameter, which FSDP does not support.
[[nodiscard]] FsdpUnits fsdp_units(const Model& model, const FsdpOptions& options);

/// Elements of the flat parameter without the padding to a multiple of the ranks. Each parameter
/// begins at a multiple of `alignment` elements:
///
///     alignment 4: 3 + (1) + 5 = 9
[[nodiscard]] std::int64_t flat_elements(const Model& model, const FsdpUnit& unit,
                                         std::int64_t alignment);

/// One of `ranks` ranks that share parameters.
struct ShardPlace {
  std::int64_t place = 0;
  int ranks = 1;
};

/// FSDP1's: with use_orig_params views begin at multiples of 16 bytes (flat_param.py:
/// _get_aligned_numel); else parameters follow each other.
[[nodiscard]] std::int64_t fsdp1_alignment(const Strategy& strategy);

/// What the optimizer of a rank is given, of flat parameters cut into equal shards: elements of
/// each tensor.
/// \param originals  the parameters' parts of the shard (use_orig_params); else the shards, with
/// their padding.
[[nodiscard]] std::vector<std::int64_t> trainable_shards(const Model& model, const FsdpUnits& units,
                                                         std::int64_t alignment,
                                                         const ShardPlace& place, bool originals);

/// The rank whose shards hold most trainable elements, the lowest among equals.
[[nodiscard]] Rank busiest_shard_rank(const Model& model, const FsdpUnits& units,
                                      std::int64_t alignment, int ranks);

/// Calls `visit(begin, end, shard)` for each trainable parameter: its elements in its unit's flat
/// parameter, which is cut into shards of `shard` elements.
void for_each_shard_cut(const Model& model, const FsdpUnits& units, std::int64_t alignment,
                        int ranks,
                        const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit);

/// By unit: gradients of its parameters that arrive in one backward of `model`.
[[nodiscard]] std::vector<int> arriving_gradients(const Model& model, const FsdpUnits& units);

/// Elements of one rank's piece, padded: ceil(rows / ranks) rows of dimension 0 (D3.1). A scalar is
/// one row.
[[nodiscard]] std::int64_t dim0_shard_elements(const Parameter& parameter, int ranks);
/// The same without padding: rank 0 has the largest, the last ones may have none.
[[nodiscard]] std::int64_t dim0_own_elements(const Parameter& parameter, const ShardPlace& place);
/// Ranks, from 0 on, whose pieces need no padding.
[[nodiscard]] std::int64_t dim0_full_ranks(const Parameter& parameter, int ranks);

}  // namespace zerosim
