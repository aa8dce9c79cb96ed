/// \file
/// Models of which little more than the number of parameters is known, as reports tell it.
///
/// Not modelled: biases, position tables, gated MLPs, grouped queries: what a report that gives
/// sizes alone does not tell.
#pragma once

#include <cstdint>

#include "sim/model/model.h"

namespace zerosim {

/// A decoder as reports describe it; all at least 1.
struct DecoderSizes {
  std::int64_t parameters = 0;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
};

/// A decoder of GPT's form: an embedding that is the output head too, `layers` blocks of attention
/// and an MLP with GELU, LayerNorm before each.
///
/// Such a block has 12 h^2 elements: 4 h a in attention of width a = h, 2 h f in an MLP of width
/// f = 4 h. Widths are scaled to make the stated number of parameters, attention to whole heads of
/// 128 (h if that is less), the MLP of each block by what is left: one of eight tensor-parallel
/// parts has an eighth of both. The result has at most 2 h parameters less than stated.
/// \throws ConfigError  if a size is below 1 or beyond reason, or if embedding and norms leave
///                      nothing for the blocks.
[[nodiscard]] Model decoder_of_sizes(const DecoderSizes& sizes);

/// A model without layers, of which only model states can be told: `trainable` parameters that
/// train and the rest, which do not.
/// \throws ConfigError  if there are more trainable parameters than parameters, or none.
[[nodiscard]] Model model_of_counts(std::int64_t parameters, std::int64_t trainable);

/// The model with about `trainable` of its parameters trained, where it is not known which: the
/// first ones in order of registration that still fit into that number; at least one.
/// \throws ConfigError  if `trainable` is below 1 or above the number of parameters.
[[nodiscard]] Model with_trained_count(Model model, std::int64_t trainable);

/// The model with the experts of each mixture in one tensor for each of their matrices, which the
/// mixture's module owns: {experts, out, in}. Without experts: the same model.
[[nodiscard]] Model with_fused_experts(Model model);

}  // namespace zerosim
