/// \file
/// Which experts see how many tokens: decided before a Program is built, as a Program is static.
///
/// Each token of a micro batch goes to `experts_per_token` different experts of every MoE block,
/// drawn by their weights (beyond 131,072 tokens for that many, and scaled). One draw stands for
/// every micro batch and every rank; a measured routing may differ from micro batch to micro batch.
///
/// Not modelled: routing in groups (DeepSeek-V3's topk_group), which changes which experts share a
/// token but not how many tokens each sees; dropped tokens and capacity factors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/model/model.h"

namespace zerosim {

/// Where in training a micro batch stands.
struct MicroStep {
  int step = 0;
  int micro_step = 0;
};

/// Weights of the experts of one block as somebody measured them.
struct MeasuredRouting {
  std::string module;                ///< name of the MoE block
  std::vector<std::int64_t> tokens;  ///< that each expert saw; only their shares matter
  SourceLocation where{};            ///< of the entry in its file
  std::optional<MicroStep> when{};   ///< of this micro batch only; none: of every one
};

struct Routing {
  enum class Kind { Uniform, Zipf, Measured };
  Kind kind = Kind::Uniform;
  /// Zipf: the expert of rank r (from 1, in a random order in each block) has weight r^-exponent.
  double exponent = 0;
  std::vector<MeasuredRouting> measured;
  std::string file;  ///< of `measured`, for messages
  std::uint64_t seed = 0;
};

/// "uniform", "zipf:S" with an exponent S of 0 to 10, or the name of a file:
///
///     "format"   "zerosim.routing"
///     "version"  1
///     "blocks"   [{"module": name of the MoE block, "tokens": [tokens of expert 0, 1, ...]}, ...];
///                every MoE block of the model once. The counts are scaled to the micro batch, and
///                not drawn: the largest remainders are rounded up. An entry with "step" and
///                "micro_step" (both from 0) holds for that micro batch alone, and goes before one
///                without.
///
/// (examples/routing.json is one, for a Mixtral of two layers.)
/// \throws ConfigError  with place, naming the known words.
[[nodiscard]] Routing parse_routing(const std::string& text, const std::string& flag);

/// Sets `MoeBlock::tokens` for a micro batch of `tokens` tokens, and leaves out of `Model::forward`
/// the experts that see none, unless the family calls them all the same (rule 85: what is not
/// called has no gradient).
/// \param when  the micro batch; matters only if `varies(routing)`
/// \throws ConfigError  if a measured block is not in the model, is missing for this micro batch or
///                      has another number of experts.
[[nodiscard]] Model route_tokens(Model model, const Routing& routing, std::int64_t tokens,
                                 MicroStep when = {});

/// Whether micro batches may differ.
[[nodiscard]] bool varies(const Routing& routing);

}  // namespace zerosim
