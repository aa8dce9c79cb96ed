/// \file
/// Communication volume as the ZeRO paper counts it: B7 and F2 of spec/zero_schedule.md.
#pragma once

#include <optional>
#include <string>

#include "sim/base/units.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// The ZeRO stage that shards as much: 3 if parameters are sharded throughout, 2 if they stay
/// gathered until backward ends, 0 if nothing is.
[[nodiscard]] int zero_stage_of(const Strategy& strategy);

/// Sizes of a step's collectives by what they do, ring factors (n-1)/n left out. Groups of one rank
/// move nothing.
struct Volume {
  Bytes all_reduced;  ///< counts twice
  Bytes gathered;
  Bytes reduced_once;  ///< reduce-scatters, reductions to one rank, broadcasts
  /// Psi: the volume over the bytes of all parameters.
  [[nodiscard]] double in_units_of(Bytes parameter_bytes) const;
};

/// Of the last step of `program`.
[[nodiscard]] Volume count_volume(const Program& program);

/// What the ZeRO paper counts for a step with `grad_accum` micro batches, in Psi: 2 for
/// data-parallel training and stage 1; gradients reduced every micro batch at stage 2: G + 1; three
/// passes at stage 3: 3 G (F2). Recomputation gathers nothing there. Of FSDP, which may reduce once
/// a step, the same passes: two gathers a micro batch, of SHARD_GRAD_OP one (under no_sync one a
/// step), and one reduction each time it reduces.
[[nodiscard]] double paper_volume(const Strategy& strategy);

/// One sentence where what is issued differs from the paper's count by more than a percent: both
/// figures, and what makes the difference.
[[nodiscard]] std::optional<std::string> volume_note(const Program& program,
                                                     const Strategy& strategy);

}  // namespace zerosim
