/// \file
/// Builds the Program of a strategy: the one entry to the builders (ddp, zero0, zero12, zero3,
/// fsdp1, fsdp2).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/model/model.h"
#include "sim/model/operators.h"
#include "sim/model/routing.h"
#include "sim/program/local_pieces.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// How ranks whose local pieces differ (local_pieces.h) are built.
enum class LocalPieces {
  /// One program for all, or for each kind of variant. It has the memory of one of them,
  /// BuildOptions::rank or one of variant_ranks, and kernels, copies and launches of the rank that
  /// has most to do, between any two collectives: no rank takes longer (of FSDP with
  /// use_orig_params: but for launches of more, smaller tensors).
  Largest,
  /// One program for each class of ranks with the same pieces.
  Each,
  /// The program of BuildOptions::rank alone, as it is.
  One,
};

/// Consecutive ranks that are not as the others from outside: of an uneven cluster.
struct RankVariant {
  int first = 0;
  int count = 1;
  std::int64_t micro_batch = 0;          ///< samples; 0: the strategy's
  std::optional<Bytes> device_memory{};  ///< as BuildOptions::device_memory, which this replaces
};

struct BuildOptions {
  int world_size = 1;
  int first_step =
      2;  ///< 0: the recording step of stage 3, unallocated Adam states, DDP's one bucket
  int steps = 1;
  int warm_up_steps = 0;  ///< of them, not timed: Program::warm_up_steps
  Routing routing{};      ///< of models with experts
  /// Of the GPU, for the framework's allocator; unset: no limit. DeepSpeed flattens on the GPU if
  /// there is room (B2.5).
  std::optional<Bytes> device_memory{};
  /// Type in which a checkpoint is loaded; unset: that of the model in training.
  std::optional<Dtype> load_dtype{};
  LocalPieces pieces = LocalPieces::Largest;
  /// With LocalPieces::Largest: whose memory it is; with One: which. Unset: the rank of the largest
  /// partition gradient buffer (B3.8), with FSDP that of the most elements to update.
  std::optional<Rank> rank{};
  /// With LocalPieces::Largest: whose memory the programs have whose ranks they are among; the
  /// later of two counts. A program with none has that of `rank` or, where that is not its own
  /// either, of its lowest.
  std::vector<Rank> variant_ranks{};
  /// In order, without overlap; ranks in none are as the strategy and these options say.
  std::vector<RankVariant> variants{};
};

/// Ranks of one piece class and one kind of variant: what a program depends on.
struct RankKind {
  int piece_class = 0;
  int variant = 0;  ///< kind of variant, numbered by first rank
  Rank rank{0};     ///< the lowest
  int ranks = 0;
};

/// Every pair that some rank has, by lowest rank.
[[nodiscard]] std::vector<RankKind> rank_kinds(const PieceClasses& pieces,
                                               const BuildOptions& options);

/// \param batch  as one rank sees it; `batch.micro_batch` and `strategy.micro_batch` agree.
/// Experts get their tokens here: the same on every rank, and in every micro batch unless the
/// routing names micro steps; at stage 3 leaf modules are folded.
///
/// Ranks that differ, by their pieces or as variants, run programs of their own, listed by their
/// lowest ranks (with LocalPieces::Largest each stands for the rank whose memory it has). Those
/// agree on all collectives.
/// \throws ConfigError  if variants issue different collectives, as experts that only some ranks
///                      use may make them;
///                      for a strategy that is not simulated yet, or that its framework refuses:
///                      DDP with nothing to train; groups of hpZ, MiCS, qgZ or hybrid sharding that
///                      do not divide the ranks; MiCS' replicas with an offloaded optimizer; what
///                      cannot be quantised; changing experts where DeepSpeed 0.14 stops.
[[nodiscard]] Program build_program(const Model& model, const Strategy& strategy,
                                    const BatchShape& batch, const BuildOptions& options);

}  // namespace zerosim
