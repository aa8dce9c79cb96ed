/// \file
/// Which parameters train: all, those that patterns name, or adapters that are added (LoRA).
///
/// What follows from it (which operators have a backward, what they keep, which hooks fire) is
/// traced anew: `trace_gradients` of model.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/model.h"

namespace zerosim {

/// Low-rank adapters as PEFT's `get_peft_model` adds them (peft/tuners/lora/layer.py).
struct LoraOptions {
  std::int64_t rank = 8;
  /// Names of modules, or the ends of their dotted paths: "q_proj" is every "...q_proj".
  /// "all-linear": every nn.Linear and Conv1D but the output head. Empty: what PEFT takes for the
  /// family.
  std::vector<std::string> targets;
  bool dropout = false;  ///< lora_dropout above 0: a Dropout is called, not an Identity
};

struct TrainableOptions {
  bool has_lora = false;
  LoraOptions lora;
  /// Patterns with `*` and `?` for parameters ("*.bias") or modules with all below them
  /// ("model.embed_tokens", "*.mlp"); names as they are without PEFT's prefix. What `freeze` names
  /// does not train; with `train_only` nothing else does.
  std::vector<std::string> freeze;
  std::vector<std::string> train_only;
  /// PEFT's `enable_input_require_grads`, which the HF Trainer calls under activation
  /// checkpointing: the embedding's output requires a gradient.
  bool input_requires_gradient = false;
};

/// "rank=8,targets=q_proj;v_proj" (also `targets=q_proj,v_proj`: words without "=" go on the list
/// before them; "r" and "target_modules" are PEFT's names, "dropout=0.05" is accepted).
/// \throws ConfigError  naming `flag`, the word and the known keys.
[[nodiscard]] LoraOptions parse_lora(const std::string& text, const std::string& flag);

/// The model with these parameters trained.
///
/// LoRA wraps it as PEFT does: parameters and modules are called "base_model.model....", a target
/// "x" becomes lora.Linear with x.base_layer, x.lora_dropout.default, x.lora_A.default {rank, in},
/// x.lora_B.default {out, rank}, registered and executed in this order; all else is frozen. The
/// model under the wrappers is called by `.forward`, so its root has no hooks.
/// \throws ConfigError  if a target or pattern matches nothing (with the nearest name), a target is
///                      no product or has a tied weight, or nothing is left to train.
[[nodiscard]] Model with_trainable(const Model& model, const TrainableOptions& options);

}  // namespace zerosim
