#include "validate/run_split.h"

#include <algorithm>
#include <array>

namespace zerosim {

namespace {

constexpr auto kGroupsForFitting = std::to_array<std::string_view>({
    // A100, Megatron's loop: three of five shapes on one node; the rest and 64 GPUs judge.
    "vtrain-h1024-l12",
    "vtrain-h1024-l24",
    "vtrain-h2048-l12",
    // A100 and H100, Composer: of six sizes the second, fourth and fifth largest.
    "llmf-30b",
    "llmf-3b",
    "llmf-760m",
    // H100, torchtitan; A100, fms-fsdp: the smaller of two or three models.
    "tt-8b-8gpu",
    "tt-a100-13b",
    "ao-b200",
    "ibm-13b",
    // A100, Hugging Face: pure bf16 of both models; mixed precision judges.
    "fmsacc-santacoder-1.1b",
    "fmsacc-mistral-7b",
    // Blackwell, Megatron-Bridge.
    "mbr-llama3-8b-gb200",
    "mbr-llama3-8b-h100",
    // V100, DeepSpeed.
    "dsat-gpt2-medium",
    "dsat-bert-large",
    // H200 with offload; the versions of software judge.
    "mle-h200-z3off",
    // Single GPUs and consumer cards.
    "qwen1.8b",
    "hf-titan-gpt2",
    "belle-bloom-560m",
});

}  // namespace

std::span<const std::string_view> groups_for_fitting() {
  return kGroupsForFitting;
}

bool is_for_fitting(const std::string& group) {
  return std::find(kGroupsForFitting.begin(), kGroupsForFitting.end(), group) !=
         kGroupsForFitting.end();
}

}  // namespace zerosim
