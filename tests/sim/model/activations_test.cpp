// Saved activations against zero_schedule.md E5.

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

TEST(Activations, Logits) {
  const Model model = load_model("llama-3-8b");
  const BatchShape batch{.micro_batch = 1, .sequence = 4096};
  const OperatorCost cost = operator_cost(model, model.operators.back(), batch);
  // 10 B x 4096 x 128,256 = 5.25 GB, and 4 B more in backward
  EXPECT_EQ(cost.logits, Bytes(std::int64_t{10} * 4096 * 128'256));
  EXPECT_EQ(cost.saved, cost.logits);
  EXPECT_NEAR(cost.logits.gb(), 5.25, 0.005);
  EXPECT_EQ(cost.backward_workspace, Bytes(std::int64_t{4} * 4096 * 128'256));
}

TEST(Activations, LogitsOfFp32TrainingNeedNoCopy) {
  const Model model = load_model("gpt2");
  const BatchShape batch{.micro_batch = 1, .sequence = 1024, .compute = Dtype::F32};
  // logits 4, log-softmax 4
  EXPECT_EQ(operator_cost(model, model.operators.back(), batch).logits,
            Bytes(std::int64_t{8} * 1024 * 50'257));
}

}  // namespace
}  // namespace zerosim
