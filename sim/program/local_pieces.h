/// \file
/// What ranks hold that is not alike: the pieces by which the programs of one strategy differ.
///
///     stages 1 and 2   elements of each parameter in the rank's partition (B2.2): which gradients
///                      it keeps and when, how many tensors it updates
///     FSDP             with use_orig_params: the parameters' parts of its shards (D2.1)
///     FSDP2            rows of each parameter (D3.1): the last ranks have fewer, or none
///     all others       nothing: pieces are padded to one size
///
/// Ranks with the same pieces are one class. Classes are found without looking at each rank: where
/// a parameter is cut, something changes from one rank to the next, and nowhere else; so the work
/// grows with the parameters and not with the ranks.
///
/// Ranks that hold as much of other parameters are told apart at stages 1 and 2, as their gradients
/// come at other times: Llama-7B has 8, 64 and 359 classes on 8, 64 and 512 ranks (8, 63 and 226
/// if only sizes counted).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/model/model.h"
#include "sim/program/flat_layout.h"
#include "sim/program/fsdp_units.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Classes of ranks with the same pieces, numbered by their lowest ranks.
struct PieceClasses {
  std::vector<ProgramRun> runs;  ///< all ranks in order; `program` is the class
  std::vector<Rank> lowest;      ///< rank of each class
  /// What each holds in all: of parameters that touch its partition, whole; of what it updates.
  std::vector<std::int64_t> elements;
  std::vector<std::vector<ParameterId>> parameters;  ///< stages 1 and 2: which those are
};

/// \param layout  of the strategy's flat tensors; not read where it has none.
[[nodiscard]] PieceClasses piece_classes(const Model& model, const Strategy& strategy,
                                         const FlatLayout& layout, int world_size);

/// Whether the strategy cuts parameters at partition borders: stages 1 and 2, but for the BF16
/// optimizer, which treats each tensor alike on all ranks.
[[nodiscard]] bool cuts_flat_tensors(const Strategy& strategy);

/// Where a framework's rank is among them.
struct FrameworkContext;
[[nodiscard]] ShardPlace shard_place(const FrameworkContext& context);

/// Elements of each tensor that the FSDP optimizer of a rank updates.
[[nodiscard]] std::vector<std::int64_t> fsdp_optimizer_tensors(const Model& model,
                                                               const Strategy& strategy,
                                                               const FsdpUnits& units,
                                                               const ShardPlace& place);

/// The rank that stands for all where one program is to do: at stages 1 and 2 the one of the
/// largest partition gradient buffer, of FSDP the one that updates most elements; the lowest among
/// equals.
[[nodiscard]] Rank largest_rank(const Model& model, const Strategy& strategy,
                                const FlatLayout& layout, int world_size);

/// What a rank of stage 1 or 2 has of some parameters: their gradients are kept as a whole (B3.8).
struct KeptGradients {
  std::int64_t whole = 0;  ///< elements of the parameters that touch its partition
  std::int64_t own = 0;    ///< those of them in its partition
  int tensors = 0;         ///< such parameters
};
[[nodiscard]] KeptGradients kept_gradients(const FlatLayout& layout,
                                           std::span<const ParameterId> parameters, Rank rank);
/// Each figure of the rank that has most of it: no rank has more of anything.
///
///     sizes 10, 7, 5 on 4 ranks (B2): {10 + 7 of rank 1, own 6 of rank 0, 2 tensors}
[[nodiscard]] KeptGradients most_kept_gradients(const FlatLayout& layout,
                                                std::span<const ParameterId> parameters);
/// What `most` has beyond `own`. A tensor has an element at least.
[[nodiscard]] KeptGradients beyond(const KeptGradients& most, const KeptGradients& own);

}  // namespace zerosim
