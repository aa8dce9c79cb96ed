/// \file
/// What users of a framework do not state, as its own code has it: one table, for all rows of
/// published training runs that name it.
///
/// `source` says where an entry comes from. The sources themselves were not at hand: entries are
/// from knowledge of them. Results chose none but the release 0.3 of "DeepSpeed ZeRO-3", to which
/// the 175B runs of 2021 (ptdp) led.
///
/// Not in the table: host costs (sim/engine/host_time.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/model/operators.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Whose training loop it is, where programs differ.
enum class TrainingLibrary {
  HuggingFace,
  Torchtitan,
  Composer,
  Megatron,        ///< Megatron-LM and Megatron-DeepSpeed
  MegatronBridge,  ///< Megatron-Core with TransformerEngine
  LlmC,
  ColossalAi,
  Other,
};

struct FrameworkHabits {
  std::string_view words{};  ///< of the column `framework`; "": any
  TrainingLibrary library = TrainingLibrary::Other;
  int fsdp_version = 1;
  bool fused_optimizer = false;  ///< one kernel for Adam, unless the row says otherwise
  bool dropout = false;          ///< in blocks and attention
  bool flash_attention = true;   ///< where a row says nothing, on GPUs that have it (sm_80 on)
  FlashVersion flash = FlashVersion::V2;  ///< unless the row names another
  LossKind loss = LossKind::Plain;
  bool repeats_keys = false;  ///< where a row names no release of FlashAttention
  ElementwiseKernels kernels = ElementwiseKernels::Eager;
  std::int64_t vocabulary_multiple = 1;  ///< what the vocabulary is padded to
  Precision unsaid = Precision::Bf16;    ///< precision where a row says nothing
  std::string_view deepspeed{};          ///< release, where its name does not tell
  std::string_view source{};
};

/// Of the first entry whose words are in `framework`; Hugging Face's where none is named.
[[nodiscard]] const FrameworkHabits& habits_of(const std::string& framework);

}  // namespace zerosim
