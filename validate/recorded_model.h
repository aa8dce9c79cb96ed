/// \file
/// The Program of a recorded run, from its description alone (recording.h): network, strategy,
/// routing. No event is looked at.
///
/// Not simulated: FSDP.
#pragma once

#include <optional>

#include "sim/model/model.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"
#include "validate/recording.h"

namespace zerosim {

/// The network that was trained, frozen parameters as recorded.
///
/// Without a key `modules` it is the preset of the name `spec.model`. With it, Hugging Face's Llama
/// layout (`model.embed_tokens`, `model.layers.N.self_attn.q_proj`, ...) is built as that family
/// with the recorded sizes and adapters; any other network is taken as a module listing in order of
/// `named_modules()`, without the containers that nobody calls (ModuleList, ModuleDict). There a
/// module with children `gate` and `experts.N` is a mixture of experts, and a language model
/// without an output head multiplies with its embedding. The experts of a token are the tokens of
/// the routing over those of a micro batch (below).
/// \throws ConfigError  naming the first parameter or module in which the model and the recording
///                      differ.
[[nodiscard]] Model recorded_model(const RecordingDescription& description);

/// How it was trained. Class names of leaf modules are those of the recording.
/// \param overflow_steps  `Strategy::overflow_steps` of fp16; runs in other types have none.
/// \throws ConfigError  for another release than the simulated ones, if `spec.gas` is not
///                      what the configuration accumulates, and as `parse_deepspeed_config` does.
[[nodiscard]] Strategy recorded_strategy(const RecordingDescription& description,
                                         const Model& model,
                                         std::optional<int> overflow_steps = std::nullopt);

/// Steps 0 to 2 of the run.
///
/// A micro batch is that of DeepSpeed's configuration, else 2; its sequences are as long as a table
/// of positions (`wpe`), else 32. The Program's assumptions say what was assumed.
/// \throws ConfigError  as the two above and `build_program` do.
[[nodiscard]] Program recorded_program(const RecordingDescription& description,
                                       std::optional<int> overflow_steps = std::nullopt);

}  // namespace zerosim
