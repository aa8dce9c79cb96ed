// Saved activations against zero_schedule.md E5.

#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using test::block_sum;

TEST(Activations, GptWithoutFlash) {
  const BatchShape batch{
      .micro_batch = 1, .sequence = 2048, .flash_attention = false, .dropout = true};
  const Bytes saved = block_sum(test::gpt_of_e5(), 0, batch).saved;
  // s b h (34 + 5 a s / h), s = 2048, h = 4096, a = 32: 34 + 80 = 114
  EXPECT_EQ(saved, Bytes(std::int64_t{2048} * 4096 * 114));
  EXPECT_NEAR(saved.gb(), 0.956, 0.0005);
}

TEST(Activations, GptWithFlash) {
  const BatchShape batch{.micro_batch = 1, .sequence = 2048, .dropout = true};
  const Bytes saved = block_sum(test::gpt_of_e5(), 1, batch).saved;
  // 34 s b h, and the log-sum-exp of each head and token: 4 a
  EXPECT_EQ(saved, Bytes(std::int64_t{2048} * (34 * 4096 + 4 * 32)));
  EXPECT_NEAR(saved.gb(), 0.285, 0.0005);
}

TEST(Activations, GptWithoutDropout) {
  const BatchShape batch{.micro_batch = 1, .sequence = 2048, .flash_attention = false};
  // two masks of 1 h less; the softmax alone: 2 a s
  EXPECT_EQ(block_sum(test::gpt_of_e5(), 0, batch).saved,
            Bytes(std::int64_t{2048} * (32 * 4096 + 2 * 32 * 2048)));
}

TEST(Activations, Checkpoint) {
  const BatchShape batch{.micro_batch = 1, .sequence = 2048};
  // 2 s b h = 2 * 2048 * 4096 = 16.8 MB
  EXPECT_EQ(checkpoint_bytes(test::gpt_of_e5(), batch), Bytes(16'777'216));
}

TEST(Activations, Llama2With7BParameters) {
  const BatchShape batch{.micro_batch = 2, .sequence = 4096};
  // a token: 12 h + 4 h_kv + 8 f + 4 a of E5, h = h_kv = 4096, f = 11008, a = 32; and 8 h of
  // RMSNorm
  const std::int64_t per_token = 12 * 4096 + 4 * 4096 + 8 * 11008 + 4 * 32 + 8 * 4096;
  EXPECT_EQ(block_sum(load_model("llama-2-7b"), 0, batch).saved, Bytes(8192 * per_token));
}

TEST(Activations, GroupedQueries) {
  const BatchShape batch{.micro_batch = 1, .sequence = 4096};
  // h_kv = 8 heads x 128 = 1024
  const std::int64_t per_token = 12 * 4096 + 4 * 1024 + 8 * 14336 + 4 * 32 + 8 * 4096;
  EXPECT_EQ(block_sum(load_model("llama-3-8b"), 0, batch).saved, Bytes(4096 * per_token));
}

TEST(Activations, LlamaWithoutFlashKeepsAnFp32Softmax) {
  const BatchShape batch{.micro_batch = 1, .sequence = 2048, .flash_attention = false};
  // fp32 softmax 4 a s and its bf16 cast 2 a s, no log-sum-exp
  const std::int64_t per_token = 20 * 4096 + 4 * 4096 + 8 * 11008 + 6 * 32 * 2048;
  EXPECT_EQ(block_sum(load_model("llama-2-7b"), 0, batch).saved, Bytes(2048 * per_token));
}

/// Bytes of one logit: while the loss computes, kept for backward, while backward computes with the
/// gradient that the head gets.
struct LogitBytes {
  std::int64_t forward = 0, saved = 0, backward = 0;
  friend bool operator==(const LogitBytes&, const LogitBytes&) = default;
};

std::ostream& operator<<(std::ostream& out, const LogitBytes& bytes) {
  return out << bytes.forward << ", " << bytes.saved << ", " << bytes.backward;
}

LogitBytes logit_bytes(const std::string& model_name, const BatchShape& batch) {
  const Model model = load_model(model_name);
  const OperatorCost cost = operator_cost(model, model.operators.back(), batch);
  const std::int64_t logits = batch.tokens() * model.shape.vocab;
  EXPECT_EQ(cost.logits, cost.saved);
  return {(cost.saved + cost.forward_workspace).count() / logits, cost.saved.count() / logits,
          (cost.saved + cost.backward_workspace + cost.input).count() / logits};
}

TEST(Activations, LogitsOfPlainLoss) {
  BatchShape batch{.micro_batch = 1, .sequence = 4096};
  // E5: bf16 2, fp32 4, log-softmax 4; backward: log-softmax and two gradients, 4 each (and the 2
  // of the logits as computed, if the loop holds them: E5's 14).
  EXPECT_EQ(logit_bytes("llama-3-8b", batch), (LogitBytes{10, 4, 12}));
  const Model model = load_model("llama-3-8b");
  const OperatorCost cost = operator_cost(model, model.operators.back(), batch);
  // 10 B x 4096 x 128,256 = 5.25 GB
  EXPECT_NEAR((cost.saved + cost.forward_workspace).gb(), 5.25, 0.005);
  // fp32: logits 4, log-softmax 4
  batch.compute = Dtype::F32;
  EXPECT_EQ(logit_bytes("gpt2", batch), (LogitBytes{8, 4, 12}));
}

TEST(Activations, LogitsBeforeTransformers446) {
  const BatchShape batch{.micro_batch = 1, .sequence = 1024, .code = ModelCode::TransformersOld};
  // Llama: fp32 4, shifted copy 4, log-softmax 4.
  EXPECT_EQ(logit_bytes("llama-3-8b", batch), (LogitBytes{12, 4, 12}));
  // GPT-2 stays in bf16: 2 + 2 + 2.
  EXPECT_EQ(logit_bytes("gpt2", batch), (LogitBytes{6, 2, 6}));
}

TEST(Activations, FusedLossWritesOverTheLogits) {
  BatchShape batch{.micro_batch = 1, .sequence = 1024, .loss = LossKind::Fused};
  // bf16 2, fp32 4; backward in place, cast to 2.
  EXPECT_EQ(logit_bytes("llama-3-8b", batch), (LogitBytes{6, 4, 6}));
  batch.code = ModelCode::TransformersOld;
  // fp32 4, shifted copy 4; backward in place 4, written into a tensor of the whole 4.
  EXPECT_EQ(logit_bytes("llama-3-8b", batch), (LogitBytes{8, 4, 8}));
  EXPECT_EQ(logit_bytes("gpt2", batch), (LogitBytes{4, 2, 4}));
}

TEST(Activations, ChunkedLossHasNoLogits) {
  const Model model = load_model("mistral-7b");
  const BatchShape batch{.micro_batch = 16, .sequence = 4096, .loss = LossKind::Chunked};
  const OperatorCost cost = operator_cost(model, model.operators.back(), batch);
  EXPECT_EQ(cost.logits, Bytes(0));
  EXPECT_EQ(cost.input, Bytes(0));
  // The head's gradient, V h; 65,536 tokens in ceil(32,000 / 4,096) = 8 parts of 8,192.
  EXPECT_EQ(cost.saved, Bytes(std::int64_t{2} * 32'000 * 4'096));
  EXPECT_EQ(cost.forward_workspace, Bytes(std::int64_t{2} * 8'192 * 32'000));
}

// Liger makes the gradient of a frozen head's weight neither: only that of its input, T h.
TEST(Activations, ChunkedLossOfAFrozenHeadKeepsItsInputsGradient) {
  Model model = load_model("mistral-7b");
  const Operator& head =
      model.operators[static_cast<std::size_t>(model.operators.back().sources.front())];
  model.parameters[head.parameters.front().index()].trainable = false;
  const BatchShape batch{.micro_batch = 1, .sequence = 64, .loss = LossKind::Chunked};
  EXPECT_EQ(operator_cost(model, model.operators.back(), batch).saved,
            Bytes(std::int64_t{2} * 64 * 4'096));
}

TEST(Activations, FusedKernelsKeepLess) {
  const Model model = load_model("mistral-7b");
  BatchShape batch{.micro_batch = 1, .sequence = 4096};
  const std::int64_t attention = 4 * 1024 + 4 * 32;  // k and v, log-sum-exp
  batch.kernels = ElementwiseKernels::FusedNorms;    // E5's 12 h without the 8 h of eager RMSNorm
  EXPECT_EQ(block_sum(model, 0, batch).saved,
            Bytes(std::int64_t{4096} * (12 * 4096 + attention + 8 * 14336)));
  for (const auto kernels : {ElementwiseKernels::Liger, ElementwiseKernels::Compiled}) {
    batch.kernels = kernels;  // gate, up and their product: 6 f
    EXPECT_EQ(block_sum(model, 0, batch).saved,
              Bytes(std::int64_t{4096} * (12 * 4096 + attention + 6 * 14336)));
  }
}

}  // namespace
}  // namespace zerosim
