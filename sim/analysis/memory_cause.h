/// \file
/// What fills memory, in the words of data/cases/README.md, "Causes": each live buffer has one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/base/units.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

enum class MemoryCause : std::uint8_t {
  ModelStates,             ///< parameters, kept gradients, optimizer states
  OptimizerStepTemporary,  ///< what the step needs beside them (E4)
  Activations,
  Logits,
  ReduceBucket,            ///< buckets, and what reductions copy to
  LiveParameters,          ///< gathered parameters
  LargestParameter,        ///< the model's largest tensor, gathered whole
  WholeModelMaterialised,  ///< each rank holds the model before it is cut (no zero.Init)
  OtherTemporaries,        ///< none of these: has a share, but is never told as a cause
};
inline constexpr std::size_t kMemoryCauses = 9;
/// "optimizer_step_temporary": the codes; "other_temporaries" is not among the README's.
[[nodiscard]] std::string_view to_string(MemoryCause cause);
/// "temporaries of the optimizer step".
[[nodiscard]] std::string_view in_words(MemoryCause cause);

/// Bytes by cause, index = static_cast<size_t>(cause).
using MemoryByCause = std::array<Bytes, kMemoryCauses>;

/// Of a buffer on the device that `op` allocates.
[[nodiscard]] MemoryCause cause_of(const Buffer& buffer, const Op& op, const Strategy& strategy,
                                   const Model& model);

}  // namespace zerosim
