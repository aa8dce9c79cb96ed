// FLOPs against the closed forms of kernels.md section 1.

#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using test::block_sum;
using test::BlockSum;

TEST(LayerFlops, GptIs24TimesTokensTimesWidthSquared) {
  const Model model = load_model("gpt2");
  const BatchShape batch{.micro_batch = 4, .sequence = 1024};
  const BlockSum sum = block_sum(model, 5, batch);
  // 24 T d^2 = 24 * 4096 * 768^2
  EXPECT_DOUBLE_EQ(sum.forward_gemm.count(), 24.0 * 4096 * 768 * 768);
  EXPECT_DOUBLE_EQ(sum.backward_gemm.count(), 2 * sum.forward_gemm.count());
  // fused, causal: 2 T s d; backward 2.5 times
  EXPECT_DOUBLE_EQ(sum.forward_attention.count(), 2.0 * 4096 * 1024 * 768);
  EXPECT_DOUBLE_EQ(sum.backward_attention.count(), 2.5 * sum.forward_attention.count());
}

TEST(LayerFlops, UnfusedAttentionComputesAllPairs) {
  const Model model = load_model("gpt2");
  const BatchShape batch{.micro_batch = 4, .sequence = 1024, .flash_attention = false};
  const BlockSum sum = block_sum(model, 0, batch);
  // 4 T s d; backward twice (F5: 4 b s^2 h forward)
  EXPECT_DOUBLE_EQ(sum.forward_attention.count(), 4.0 * 4096 * 1024 * 768);
  EXPECT_DOUBLE_EQ(sum.backward_attention.count(), 2 * sum.forward_attention.count());
}

TEST(LayerFlops, LlamaIsTwiceTokensTimesMatrices) {
  const Model model = load_model("llama-3-8b");
  const BatchShape batch{.micro_batch = 2, .sequence = 4096};
  const BlockSum sum = block_sum(model, 31, batch);
  // P_layer = d (d + 2 h_kv e) + d^2 + 3 d f, d = 4096, h_kv e = 1024, f = 14336
  const double matrices = 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 3 * 4096.0 * 14336;
  EXPECT_DOUBLE_EQ(sum.forward_gemm.count(), 2 * 8192 * matrices);
  EXPECT_DOUBLE_EQ(sum.backward_gemm.count(), 4 * 8192 * matrices);
  EXPECT_DOUBLE_EQ(sum.forward_attention.count(), 2.0 * 8192 * 4096 * 4096);
}

TEST(LayerFlops, SlidingWindow) {
  const Model model = load_model("mistral-7b");  // window 4096, d = 4096
  EXPECT_EQ(model.shape.window, 4096);
  // Within the window nothing is saved: 2 T s d.
  const BatchShape within{.micro_batch = 1, .sequence = 2048};
  EXPECT_DOUBLE_EQ(block_sum(model, 0, within).forward_attention.count(), 2.0 * 2048 * 2048 * 4096);
  // s = 4 w: pairs T (w - w^2 / 2s) = T w 7/8, 4 FLOPs each and head element
  const BatchShape beyond{.micro_batch = 1, .sequence = 16384};
  EXPECT_DOUBLE_EQ(block_sum(model, 0, beyond).forward_attention.count(),
                   4.0 * 16384 * 4096 * 7 / 8 * 4096);
}

TEST(ModelFlops, ConventionOfPalm) {
  // 6 N + 12 L h s = 40,430,493,696 + 6,442,450,944 a token
  const double expected = 6.0 * 6'738'415'616 + 12.0 * 32 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(model_flops_per_token(load_model("llama-2-7b"), 4096).count(), expected);
}

TEST(Launches, AsKernelsMdCounts) {
  // Section 5: "Llama: 25/50" with flash; GPT "~14-20 kernels fwd, ~30-40 bwd" with unfused
  // attention.
  const BatchShape flash{.micro_batch = 1, .sequence = 2048};
  const BlockSum llama = block_sum(load_model("llama-2-7b"), 0, flash);
  EXPECT_EQ(llama.forward_launches, 25);
  EXPECT_EQ(llama.backward_launches, 50);
  const BatchShape eager{
      .micro_batch = 1, .sequence = 1024, .flash_attention = false, .dropout = true};
  const BlockSum gpt = block_sum(load_model("gpt2"), 0, eager);
  EXPECT_GE(gpt.forward_launches, 14);
  EXPECT_LE(gpt.forward_launches, 20);
  EXPECT_GE(gpt.backward_launches, 28);
  EXPECT_LE(gpt.backward_launches, 40);
}

}  // namespace
}  // namespace zerosim
