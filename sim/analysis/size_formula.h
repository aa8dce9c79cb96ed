/// \file
/// A number of bytes as a product of the job's own numbers: "4 bytes x 6.738e9 parameters / 8
/// ranks".
///
/// Nothing is taken on trust: a formula is told only if its product is the size, as near as the
/// size is known. Where several are, the nearest is; among equals the first of
///
///     parameters, trainable ones, each over the ranks that share them; reduce_bucket_size,
///     sub_group_size; a module and all below it; one tensor of it; one tensor of the model;
///     tokens x vocabulary, hidden, width of the MLP; scores of attention
///
/// times 4, 2, 8, 1 bytes (of weights, gradients and activations 2 first; 1 of a known buffer, or
/// where the job has an 8-bit optimizer or quantized weights) or what several such parts take
/// together; then a sub-group of stage 3, which takes more than its size.
#pragma once

#include <optional>
#include <string>

#include "sim/analysis/report.h"
#include "sim/base/units.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// What is known of a size.
struct SizeQuestion {
  Bytes bytes;
  Bytes tolerance;    ///< it may be off by so much; a part in 10^4 is always granted, for padding
  ModuleId module{};  ///< during whose work it was asked for; may be invalid
  std::optional<MemoryClass> memory_class{};  ///< unknown: parameters are tried before activations
};

struct SizeFormula {
  std::string text;
  Bytes bytes;  ///< its product
};

/// Ranks that share the model states: those of a shard group of hybrid sharding and MiCS, else all.
[[nodiscard]] int sharing_ranks(const Experiment& experiment, const Strategy& strategy);

[[nodiscard]] std::optional<SizeFormula> size_formula(const SizeQuestion& question,
                                                      const Experiment& experiment,
                                                      const Strategy& strategy);

/// "6.738e9", "500e6", "32768".
[[nodiscard]] std::string count_text(double count);

/// Where no job is known: "843e6 elements of 4 bytes, or 1.686e9 of 2".
[[nodiscard]] std::string size_in_elements(Bytes bytes);

}  // namespace zerosim
