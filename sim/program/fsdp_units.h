/// \file
/// Which modules FSDP wraps and what each unit shards: spec D2.1, D3.1.
///
/// A unit is the root, or a module that the wrapping policy picks; it holds the parameters below
/// it that no unit inside it holds.
#pragma once

#include <cstdint>
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

/// What the optimizer of the rank whose shards hold most trainable elements is given, of flat
/// parameters cut into `ranks` equal shards: elements of each tensor.
/// \param originals  the parameters' parts of the shard (use_orig_params); else the shards, with
/// their padding.
[[nodiscard]] std::vector<std::int64_t> trainable_shards(const Model& model, const FsdpUnits& units,
                                                         std::int64_t alignment, int ranks,
                                                         bool originals);

/// By unit: gradients of its parameters that arrive in one backward of `model`.
[[nodiscard]] std::vector<int> arriving_gradients(const Model& model, const FsdpUnits& units);

/// Elements of one rank's piece, padded: ceil(rows / ranks) rows of dimension 0 (D3.1). A scalar is
/// one row.
[[nodiscard]] std::int64_t dim0_shard_elements(const Parameter& parameter, int ranks);
/// The same without padding, of rank 0, which has the largest.
[[nodiscard]] std::int64_t dim0_own_elements(const Parameter& parameter, int ranks);

}  // namespace zerosim
