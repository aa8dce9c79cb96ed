#include "validate/run_habits.h"

#include <algorithm>
#include <array>

namespace zerosim {

namespace {

using Library = TrainingLibrary;

constexpr std::string_view kHuggingFaceSource =
    "transformers Trainer; accelerate: use_orig_params, checkpoints around units";

/// {words, library, FSDP, fused Adam, dropout, flash, loss, kernels, source}
constexpr auto kHabits = std::to_array<FrameworkHabits>({
    {"torchtitan", Library::Torchtitan, 2, true, false, true, LossKind::Plain,
     ElementwiseKernels::Eager, "torchtitan train configs: fused AdamW, SDPA"},
    {"torchtune", Library::Other, 2, true, false, true, LossKind::Plain, ElementwiseKernels::Eager,
     "torchtune recipes: fully_shard, fused AdamW, SDPA"},
    {"FSDP2", Library::Other, 2, false, false, true, LossKind::Plain, ElementwiseKernels::Eager,
     "torch.distributed.fsdp.fully_shard"},
    {"Composer", Library::Composer, 1, false, false, true, LossKind::Plain,
     ElementwiseKernels::Eager, "llm-foundry MPT configs: no dropout, decoupled AdamW"},
    {"Megatron-Bridge", Library::MegatronBridge, 2, true, false, true, LossKind::Fused,
     ElementwiseKernels::Compiled,
     "Megatron-Core with TransformerEngine: fused norms, rotary, SwiGLU and cross entropy"},
    {"Megatron", Library::Megatron, 1, true, true, false, LossKind::Plain,
     ElementwiseKernels::FusedNorms,
     "Megatron-LM 2021-23: apex FusedAdam and fused layer norm, dropout 0.1, masked softmax"},
    {"llm.c", Library::LlmC, 1, true, false, true, LossKind::Fused, ElementwiseKernels::Compiled,
     "llm.c: hand-written kernels, cuDNN attention, fused classifier"},
    {"ColossalAI", Library::ColossalAi, 1, true, false, true, LossKind::Plain,
     ElementwiseKernels::Eager, "ColossalAI HybridAdam"},
    {"Lightning Fabric", Library::Other, 1, true, false, true, LossKind::Plain,
     ElementwiseKernels::Eager, "litgpt pretraining: fused AdamW"},
    {"DeepSpeed", Library::HuggingFace, 1, false, false, true, LossKind::Plain,
     ElementwiseKernels::Eager, "DeepSpeed with models of transformers"},
    {"HF ", Library::HuggingFace, 1, false, false, true, LossKind::Plain, ElementwiseKernels::Eager,
     kHuggingFaceSource},
    {"accelerate", Library::HuggingFace, 1, false, false, true, LossKind::Plain,
     ElementwiseKernels::Eager, kHuggingFaceSource},
});
constexpr FrameworkHabits kUnnamed = {"",
                                      Library::HuggingFace,
                                      1,
                                      false,
                                      false,
                                      true,
                                      LossKind::Plain,
                                      ElementwiseKernels::Eager,
                                      kHuggingFaceSource};
constexpr FrameworkHabits kOtherwise = {"",
                                        Library::Other,
                                        1,
                                        false,
                                        false,
                                        true,
                                        LossKind::Plain,
                                        ElementwiseKernels::Eager,
                                        "plain PyTorch"};

}  // namespace

const FrameworkHabits& habits_of(const std::string& framework) {
  if (framework.empty()) return kUnnamed;
  const auto* const found =
      std::find_if(kHabits.begin(), kHabits.end(), [&](const FrameworkHabits& habits) {
        return framework.find(habits.words) != std::string::npos;
      });
  return found == kHabits.end() ? kOtherwise : *found;
}

}  // namespace zerosim
