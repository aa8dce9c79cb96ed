// FLOPs against the closed forms of kernels.md section 1.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

/// FLOPs of all kernels of a step, and the attention's closed form, for one token.
struct TokenFlops {
  double kernels = 0;
  double attention = 0;  ///< sum over layers of `factor` x s x heads x (mean width of a head)
};

/// `factor`: 6 for attention of which the causal mask leaves half, 12 for all pairs. The width is
/// the mean of those of q and v, which differ in DeepSeek's.
TokenFlops token_flops(const Model& model, const BatchShape& batch) {
  TokenFlops result;
  for (const Operator& op : model.operators) {
    const OperatorCost cost = operator_cost(model, op, batch);
    for (const auto* kernels : {&cost.forward, &cost.backward_input, &cost.backward_weights}) {
      for (const Kernel& kernel : *kernels) result.kernels += kernel.flops.count();
    }
    if (op.kind != OperatorKind::Attention) continue;
    const AttentionShape& shape = model.attention_shapes[static_cast<std::size_t>(op.attention)];
    const bool halved = shape.causal && shape.fused && batch.flash_attention;
    const auto width = static_cast<double>(shape.heads * (shape.head_dim + shape.value_dim)) / 2;
    result.attention += (halved ? 6.0 : 12.0) * static_cast<double>(batch.sequence) * width;
  }
  result.kernels /= static_cast<double>(batch.tokens());
  return result;
}

/// N of 6 N: all parameters but those that are only looked up, and of experts the share that acts
/// on a token. Tables of positions are left out as kernels.md section 1 says; so is an input
/// embedding that no head shares, which multiplies nothing; a tied one counts once, for the head.
double multiplied_parameters(const Model& model) {
  std::vector<double> share(model.parameters.size(), 0);  // of the tokens that it multiplies
  for (const Operator& op : model.operators) {
    if (op.kind == OperatorKind::Embedding || op.kind == OperatorKind::PositionBias) continue;
    double tokens = 1;
    if (op.expert != kEveryToken) {
      const int index = model.modules[op.module.index()].moe_block;
      const MoeBlock& block = model.moe_blocks[static_cast<std::size_t>(index)];
      tokens = static_cast<double>(block.experts_per_token) / static_cast<double>(block.experts);
    }
    for (const ParameterId id : op.parameters) share[id.index()] = tokens;
  }
  double count = 0;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    count += share[i] * static_cast<double>(model.parameters[i].elements);
  }
  return count;
}

class PresetFlops : public testing::TestWithParam<std::string> {};

/// Within 1 %, as norms and biases are in N and multiply nothing.
TEST_P(PresetFlops, Are6NAndAttention) {
  const Model model = load_model(GetParam());
  const BatchShape batch{.micro_batch = 2, .sequence = 512, .flash_attention = false};
  const TokenFlops flops = token_flops(model, batch);
  EXPECT_NEAR(flops.kernels / (6 * multiplied_parameters(model) + flops.attention), 1, 0.01);
}

/// Fused attention computes the scores again in backward, 7 L d s rather than 6 (14 rather than
/// 12): that is less than 1 % of all for a short sequence only.
TEST_P(PresetFlops, Are6NAndFusedAttention) {
  const Model model = load_model(GetParam());
  const BatchShape batch{.micro_batch = 4, .sequence = 256};
  const TokenFlops flops = token_flops(model, batch);
  EXPECT_NEAR(flops.kernels / (6 * multiplied_parameters(model) + flops.attention), 1, 0.01);
}

/// Without the toys of the recorded runs (module listings): their biases and norms alone are more
/// than 1 %, and of `mlp`'s six products the first has no gradient of its input.
std::vector<std::string> published_models() {
  std::vector<std::string> names = model_preset_names();
  std::erase_if(names, [](const std::string& name) {
    return name == "gpt_small" || name == "gpt_large" || name == "mlp";
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Presets, PresetFlops, testing::ValuesIn(published_models()),
                         [](const testing::TestParamInfo<std::string>& preset) {
                           std::string name = preset.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(MultipliedParameters, CountTheHeadOnce) {
  // Llama 2: 6,738,415,616 less the input embedding 32,000 x 4,096, which has a head of its own.
  EXPECT_EQ(multiplied_parameters(load_model("llama-2-7b")), 6'738'415'616.0 - 32'000 * 4'096);
  // GPT-2: 124,439,808 less wpe 1,024 x 768; wte is the head too.
  EXPECT_EQ(multiplied_parameters(load_model("gpt2")), 124'439'808.0 - 1'024 * 768);
  // BertModel has no head: less (30,522 + 512 + 2) x 1,024.
  EXPECT_EQ(multiplied_parameters(load_model("bert-large")), 335'141'888.0 - 31'036 * 1'024);
}

TEST(ModelFlops, ConventionOfPalm) {
  // 6 N + 12 L h s = 40,430,493,696 + 6,442,450,944 a token
  const double expected = 6.0 * 6'738'415'616 + 12.0 * 32 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(model_flops_per_token(load_model("llama-2-7b"), 4096).count(), expected);
}

/// Kernels of the first block, forward and backward.
std::pair<int, int> launches(const std::string& model, const BatchShape& batch) {
  const BlockSum sum = block_sum(load_model(model), 0, batch);
  return {sum.forward_launches, sum.backward_launches};
}

// Calls that a TorchDispatchMode sees in PyTorch 1.13 in layers written as transformers has them,
// without views and allocations; a dropout is one kernel on a GPU, the gradients of LayerNorm and
// of a slice are two each, and fused attention's are three.
TEST(Launches, OfAnEagerLlamaLayer) {
  const BatchShape flash{.micro_batch = 2, .sequence = 2048};
  // 2 norms x 8, rotary 2 x 5, 7 products, attention 1, SwiGLU 2, 2 additions. Backward: norms
  // 2 x 16, rotary 2 x 9, 14 products, attention 3, SwiGLU 3, 2 + 3 gradients that meet.
  EXPECT_EQ(launches("llama-2-7b", flash), std::pair(38, 75));
  BatchShape fp32 = flash;
  fp32.compute = Dtype::F32;  // no casts: two less in each norm, each way
  EXPECT_EQ(launches("llama-2-7b", fp32), std::pair(34, 71));
}

TEST(Launches, OfEagerGptAndBertLayers) {
  const BatchShape eager{
      .micro_batch = 2, .sequence = 1024, .flash_attention = false, .dropout = true};
  // GPT-2: 2 norms, 4 products, q, k, v copied 3, scores 1, scaled and masked 4, softmax 1, dropout
  // 1, values 1, merged 1, gelu_new 8, 2 dropouts, 2 additions = 30. Backward: norms 4, products 8,
  // biases 4, attention 1 + 2 + 1 + 1 + 3 + 2 + 3 + 1 = 14, gelu_new 11, dropouts 2, sums 2 = 45.
  EXPECT_EQ(launches("gpt2", eager), std::pair(30, 45));
  BatchShape one = eager;
  one.micro_batch = 1;  // a head of one sequence is a matrix: nothing to copy
  EXPECT_EQ(launches("gpt2", one), std::pair(27, 42));
  // BERT: 2 norms, 6 products, attention 3 + 1 + 2 + 1 + 1 + 1 + 1 = 10, gelu 1, dropouts 2,
  // sums 2. Backward: norms 4, products 12, biases 6, attention 1 + 4 + 1 + 1 + 1 + 3 = 11, gelu 1,
  // dropouts 2, sums 2 + 2.
  EXPECT_EQ(launches("bert-large", eager), std::pair(23, 40));
}

TEST(Launches, OfABloomLayer) {
  const BatchShape eager{.micro_batch = 2, .sequence = 512};
  // 2 norms, 4 products, attention 3 + 1 + 3 (cast, copied, filled) + 2 + 1 + 1 = 11, BloomGelu 9,
  // sums 2. Backward: norms 4, products 8, biases 4, attention 1 + 2 + 2 + 3 + 2 + 3 + 8 = 21,
  // BloomGelu 18, sums 2.
  EXPECT_EQ(launches("bloom-560m", eager), std::pair(28, 57));
}

// Megatron-LM fuses bias + GELU, bias + dropout + addition, and scale + mask + softmax.
TEST(Launches, OfAMegatronLayer) {
  BatchShape batch{.micro_batch = 2, .sequence = 1024, .flash_attention = false, .dropout = true};
  batch.kernels = ElementwiseKernels::Megatron;
  // 2 norms, 4 products, bias of q, k and v 1, scores 1, softmax 1, dropout 1, values 1, merged 1,
  // GELU 1, 2 additions. Backward: norms 4, products 8, biases 4, attention 2 + 1 + 1 + 2 + 1 = 7,
  // GELU 1, sums 2.
  EXPECT_EQ(launches("gpt2", batch), std::pair(15, 26));
}

}  // namespace
}  // namespace zerosim
