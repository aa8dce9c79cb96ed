/// \file
/// Mixtures of experts as transformers writes them: a router, and experts as plain modules that are
/// called one after another (or, fused, as one tensor for each matrix of a layer).
///
/// Not modelled: the auxiliary load-balancing loss; DeepSpeed's own MoE layer (expert parallelism).
#pragma once

#include <cstdint>
#include <string>

#include "sim/model/families/llama.h"

namespace zerosim::internal {

struct MoeConfig {
  std::string class_name;  ///< "MixtralSparseMoeBlock"
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  GatedMlp expert;
  /// Class of the router module `gate`; "Linear": its softmax and choice run in the block itself.
  std::string router_class = "Linear";
  bool router_bias = false;           ///< DeepSeek-V3: e_score_correction_bias, without gradient
  bool router_after_experts = false;  ///< order of registration
  /// Width of the shared expert; 0: none.
  std::int64_t shared_width = 0;
  std::string shared_name;          ///< "shared_expert", "shared_experts"
  bool shared_gate = false;         ///< Qwen2-MoE: its result times sigmoid(shared_expert_gate(x))
  bool calls_idle_experts = false;  ///< DeepSeek calls experts without tokens as well
};

/// Reads num_experts and the like of a model of `layers` layers.
/// \throws ConfigError  if more are chosen than there are, or there are too many to lay out.
void read_expert_counts(Config& config, std::int64_t layers, const std::string& experts_name,
                        std::int64_t default_experts, std::int64_t default_per_token,
                        MoeConfig& moe);

void register_moe(Layers& layers, const std::string& path, const MoeConfig& moe);
/// Enters the block, runs and leaves it.
[[nodiscard]] Value run_moe(Layers& layers, const std::string& path, const MoeConfig& moe, Value x);

}  // namespace zerosim::internal
