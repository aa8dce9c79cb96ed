#include "validate/run_habits.h"

#include <algorithm>
#include <array>

namespace zerosim {

namespace {

using Library = TrainingLibrary;

constexpr std::string_view kHuggingFaceSource =
    "transformers Trainer: repeat_kv before SDPA; accelerate: use_orig_params, checkpoints around "
    "units";

constexpr auto kHabits = std::to_array<FrameworkHabits>({
    {.words = "torchtitan",
     .library = Library::Torchtitan,
     .fsdp_version = 2,
     .fused_optimizer = true,
     .repeats_keys = true,
     .source = "torchtitan train configs: fused AdamW, SDPA after repeat_kv"},
    {.words = "torchtune",
     .fsdp_version = 2,
     .fused_optimizer = true,
     .repeats_keys = true,
     .source = "torchtune recipes: fully_shard, fused AdamW, SDPA on expanded keys"},
    {.words = "fms-fsdp",
     .repeats_keys = true,
     .source = "foundation-model-stack's MultiHeadAttention expands keys before SDPA"},
    {.words = "FSDP2", .fsdp_version = 2, .source = "torch.distributed.fsdp.fully_shard"},
    {.words = "Composer",
     .library = Library::Composer,
     .flash = FlashVersion::V1,
     .source =
         "llm-foundry: MPT configs (no dropout, decoupled AdamW); submit_benchmarks.py of 2023 "
         "runs attn_impl triton, which is FlashAttention 1"},
    {.words = "Megatron-Bridge",
     .library = Library::MegatronBridge,
     .fsdp_version = 2,
     .fused_optimizer = true,
     .flash = FlashVersion::V3,
     .loss = LossKind::Fused,
     .kernels = ElementwiseKernels::Compiled,
     .vocabulary_multiple = 128,
     .source = "Megatron-Core with TransformerEngine: fused norms, rotary, SwiGLU and cross "
               "entropy, attention of cuDNN"},
    {.words = "Megatron",
     .library = Library::Megatron,
     .fused_optimizer = true,
     .dropout = true,
     .flash_attention = false,
     .kernels = ElementwiseKernels::Megatron,
     .vocabulary_multiple = 128,
     .unsaid = Precision::Fp16,
     .source = "Megatron-LM 2021-23: apex FusedAdam, fused layer norm, bias + GELU, bias + dropout "
               "+ addition, masked softmax; make_vocab_size_divisible_by 128"},
    {.words = "llm.c",
     .library = Library::LlmC,
     .fused_optimizer = true,
     .flash = FlashVersion::V3,
     .loss = LossKind::Fused,
     .kernels = ElementwiseKernels::Compiled,
     .source = "llm.c: hand-written kernels, cuDNN attention, fused classifier"},
    {.words = "ColossalAI",
     .library = Library::ColossalAi,
     .fused_optimizer = true,
     .source = "ColossalAI HybridAdam"},
    {.words = "Lightning Fabric",
     .fused_optimizer = true,
     .source = "litgpt pretraining: fused AdamW"},
    {.words = "DeepSpeed ZeRO-3",
     .library = Library::Megatron,
     .fused_optimizer = true,
     .dropout = true,
     .flash_attention = false,
     .kernels = ElementwiseKernels::Megatron,
     .vocabulary_multiple = 128,
     .unsaid = Precision::Fp16,
     .deepspeed = "0.3",
     .source =
         "DeepSpeedExamples/Megatron-LM-v1.1.5-ZeRO3, what DeepSpeed gave for stage 3 in 2021"},
    {.words = "DeepSpeed",
     .library = Library::HuggingFace,
     .repeats_keys = true,
     .unsaid = Precision::Fp32,
     .source = "DeepSpeed with models of transformers; fp32 unless its file enables fp16 or bf16"},
    {.words = "HF ",
     .library = Library::HuggingFace,
     .repeats_keys = true,
     .source = kHuggingFaceSource},
    {.words = "accelerate",
     .library = Library::HuggingFace,
     .repeats_keys = true,
     .source = kHuggingFaceSource},
});
constexpr FrameworkHabits kUnnamed = {
    .library = Library::HuggingFace, .repeats_keys = true, .source = kHuggingFaceSource};
constexpr FrameworkHabits kOtherwise = {.source = "plain PyTorch"};

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
