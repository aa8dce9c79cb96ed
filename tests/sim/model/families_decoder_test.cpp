// Phi-3, Gemma, Gemma 2 and Baichuan: names, orders and calls of their modeling_*.py, and what a
// layer costs. Parameter counts of presets: parameter_counts_test.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using test::block_sum;
using test::BlockSum;
using test::error_of;
using test::module_named;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Model model_of(const std::string& text) {
  return parse_model(text, "config.json");
}

/// A small config; `rest` has further keys.
std::string small(const std::string& model_type, const std::string& rest = "") {
  return "{\"model_type\": \"" + model_type +
         "\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 4,\n"
         " \"num_attention_heads\": 4, \"vocab_size\": 100" +
         rest + "}";
}

/// Windows of the layers' attention operators.
std::vector<std::int64_t> windows(const Model& model) {
  std::vector<std::int64_t> result;
  for (const Operator& op : model.operators) {
    if (op.kind != OperatorKind::Attention) continue;
    result.push_back(model.attention_shapes[static_cast<std::size_t>(op.attention)].window);
  }
  return result;
}

TEST(Phi3, LayerIsRegisteredAndRunAsInPython) {
  const Model model = load_model("phi-3-mini");
  EXPECT_THAT(test::registered(model, "model.layers.31."),
              ElementsAre("self_attn.o_proj.weight", "self_attn.qkv_proj.weight",
                          "mlp.gate_up_proj.weight", "mlp.down_proj.weight",
                          "input_layernorm.weight", "post_attention_layernorm.weight"));
  EXPECT_THAT(
      test::executed(model, "model.layers.31."),
      ElementsAre("input_layernorm", "self_attn", "self_attn.qkv_proj", "self_attn.o_proj",
                  "resid_attn_dropout", "post_attention_layernorm", "mlp", "mlp.gate_up_proj",
                  "mlp.activation_fn", "mlp.down_proj", "resid_mlp_dropout"));
  EXPECT_FALSE(module_named(model, "model.layers.31.self_attn").positional_gradient_input);
  EXPECT_TRUE(module_named(model, "model.layers.31.mlp").positional_gradient_input);
  EXPECT_FALSE(module_named(model, "model.rotary_emb").gradient_output);
  EXPECT_THAT(windows(model_of(small("phi3", R"(, "sliding_window": 16)"))),
              ElementsAre(16, 16, 16, 16));
}

TEST(Phi3, LayerCosts) {
  const Model model = load_model("phi-3-mini");  // h = 3072, f = 8192, a = 32
  const BatchShape batch{.micro_batch = 1, .sequence = 2048};
  const BlockSum sum = block_sum(model, 0, batch);
  // fused products do what q, k, v, o and gate, up, down do: 4 h^2 + 3 h f
  EXPECT_DOUBLE_EQ(sum.forward_gemm.count(), 2.0 * 2048 * (4.0 * 3072 * 3072 + 3.0 * 3072 * 8192));
  EXPECT_DOUBLE_EQ(sum.forward_attention.count(), 2.0 * 2048 * 2048 * 3072);
  // Kept a token as in Llama: norms 12 h, inputs of qkv, o and gate_up 2 h each, q, k, v 6 h;
  // gate 2 f, both factors 4 f, their product 2 f; log-sum-exp 4 a
  EXPECT_EQ(sum.saved, Bytes(std::int64_t{2048} * (24 * 3072 + 8 * 8192 + 4 * 32)));
}

TEST(Phi3, DropoutOfProbabilityZeroIsNone) {
  const BatchShape batch{.micro_batch = 1, .sequence = 8, .dropout = true};
  const Bytes without = block_sum(model_of(small("phi3")), 0, batch).saved;
  const Bytes with = block_sum(model_of(small("phi3", R"(, "resid_pdrop": 0.1)")), 0, batch).saved;
  // two masks of 64 bytes a token
  EXPECT_EQ(with - without, Bytes(8 * 2 * 64));
}

TEST(Phi3, BadInput) {
  EXPECT_EQ(error_of(small("phi3", ",\n \"partial_rotary_factor\": 1.5")),
            "config.json:3:27: partial_rotary_factor: found 1.5, expected the share of a head that "
            "is rotated, above 0, at most 1");
  EXPECT_THAT(error_of(small("phi3", ",\n \"num_key_value_heads\": 3")),
              HasSubstr("config.json:3:25: num_key_value_heads: 3 does not divide"));
}

TEST(Gemma2, LayerIsRegisteredAndRunAsInPython) {
  const Model model = load_model("gemma-2-2b");
  EXPECT_THAT(test::registered(model, "model.layers.25."),
              ElementsAre("self_attn.q_proj.weight", "self_attn.k_proj.weight",
                          "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                          "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                          "input_layernorm.weight", "post_attention_layernorm.weight",
                          "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"));
  EXPECT_THAT(test::executed(model, "model.layers.25."),
              ElementsAre("input_layernorm", "self_attn", "self_attn.q_proj", "self_attn.k_proj",
                          "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                          "pre_feedforward_layernorm", "mlp", "mlp.gate_proj", "mlp.act_fn",
                          "mlp.up_proj", "mlp.down_proj", "post_feedforward_layernorm"));
  EXPECT_FALSE(module_named(model, "model.layers.0.self_attn").positional_gradient_input);
  EXPECT_TRUE(model.tied_embeddings);
}

TEST(Gemma2, EvenLayersSlide) {
  EXPECT_THAT(windows(model_of(small("gemma2", R"(, "sliding_window": 16)"))),
              ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(windows(model_of(small("gemma2", R"(, "sliding_window": null)"))),
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(windows(model_of(small("gemma2", R"(, "sliding_window": 16, "layer_types":
                  ["full_attention", "sliding_attention", "full_attention", "full_attention"])"))),
              ElementsAre(0, 16, 0, 0));
  EXPECT_THAT(error_of(small("gemma2", ",\n \"layer_types\": [\"full_attention\"]")),
              HasSubstr("config.json:3:17: layer_types: found 1 entries, expected one for each of "
                        "num_hidden_layers = 4 layers"));
}

TEST(Gemma2, LayerCosts) {
  // h = 2304, q 8 x 256 = 2048, k and v 4 x 256 = 1024, f = 9216, a = 8
  const Model model = load_model("gemma-2-2b");
  const BatchShape batch{.micro_batch = 1, .sequence = 2048};
  const BlockSum sum = block_sum(model, 0, batch);
  EXPECT_DOUBLE_EQ(sum.forward_gemm.count(),
                   2.0 * 2048 * (2304.0 * (2048 + 2 * 1024) + 2048.0 * 2304 + 3.0 * 2304 * 9216));
  EXPECT_DOUBLE_EQ(sum.forward_attention.count(), 2.0 * 2048 * 2048 * 2048);
  // Kept a token: four norms of 6 h; inputs of q and gate 2 h each; q, k, v 2 (2048 + 2 x 1024),
  // log-sum-exp 4 a, input of o 2 x 2048; gate 2 f, both factors 4 f, their product 2 f
  EXPECT_EQ(sum.saved, Bytes(std::int64_t{2048} *
                             (28 * 2304 + 2 * (2048 + 2 * 1024) + 4 * 8 + 2 * 2048 + 8 * 9216)));
}

/// Kinds of the operators of the root.
std::vector<OperatorKind> head_kinds(const Model& model) {
  std::vector<OperatorKind> kinds;
  for (const Operator& op : model.operators) {
    if (op.module.index() == 0) kinds.push_back(op.kind);
  }
  return kinds;
}

TEST(Gemma2, EmbeddingsAreScaledAndLogitsCapped) {
  const Model model = model_of(small("gemma2"));
  EXPECT_EQ(model.operators[1].kind, OperatorKind::Scale);
  EXPECT_EQ(model.operators[1].outputs, 64);
  EXPECT_THAT(head_kinds(model), ElementsAre(OperatorKind::Scale, OperatorKind::Activation,
                                             OperatorKind::Scale, OperatorKind::CrossEntropy));
  EXPECT_THAT(model.assumptions, Contains("final_logit_softcapping = 30: not in the config, "
                                          "Hugging Face's default"));
  EXPECT_THAT(head_kinds(model_of(small("gemma2", R"(, "final_logit_softcapping": null)"))),
              ElementsAre(OperatorKind::CrossEntropy));
  EXPECT_EQ(error_of(small("gemma2", ",\n \"final_logit_softcapping\": -1")),
            "config.json:3:29: final_logit_softcapping: found -1, expected a number above 0, or "
            "null for no cap");
}

TEST(Gemma, HasTheNormsOfLlama) {
  // google/gemma-2b: 2,506,172,416
  const Model model = model_of(R"({"model_type": "gemma", "hidden_size": 2048,
      "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
      "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000, "hidden_act": "gelu"})");
  EXPECT_EQ(parameter_count(model), 2'506'172'416);
  EXPECT_THAT(test::executed(model, "model.layers.0."),
              ElementsAre("input_layernorm", "self_attn", "self_attn.q_proj", "self_attn.k_proj",
                          "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm", "mlp",
                          "mlp.gate_proj", "mlp.act_fn", "mlp.up_proj", "mlp.down_proj"));
  EXPECT_EQ(module_named(model, "model.layers.0").class_name, "GemmaDecoderLayer");
  EXPECT_THAT(head_kinds(model), ElementsAre(OperatorKind::CrossEntropy));
  EXPECT_EQ(model.shape.window, 0);
}

TEST(Baichuan, Second13B) {
  const Model model = load_model("baichuan2-13b");
  EXPECT_THAT(test::registered(model, "model.layers.39."),
              ElementsAre("self_attn.W_pack.weight", "self_attn.o_proj.weight",
                          "mlp.gate_proj.weight", "mlp.down_proj.weight", "mlp.up_proj.weight",
                          "input_layernorm.weight", "post_attention_layernorm.weight"));
  EXPECT_THAT(test::executed(model, "model.layers.39."),
              ElementsAre("input_layernorm", "self_attn", "self_attn.W_pack", "self_attn.o_proj",
                          "post_attention_layernorm", "mlp", "mlp.gate_proj", "mlp.act_fn",
                          "mlp.up_proj", "mlp.down_proj"));
  EXPECT_EQ(module_named(model, "lm_head").class_name, "NormHead");
  EXPECT_EQ(module_named(model, "model.layers.0").class_name, "BaichuanLayer");
  EXPECT_EQ(model.shape.max_positions, 4096);
  for (const Operator& op : model.operators) ASSERT_NE(op.kind, OperatorKind::Rotary);
  // ALiBi's mask is added to all scores: no half is left out. 4 T s h
  const BatchShape batch{.micro_batch = 1, .sequence = 1024};
  EXPECT_DOUBLE_EQ(block_sum(model, 0, batch).forward_attention.count(), 4.0 * 1024 * 1024 * 5120);
  EXPECT_DOUBLE_EQ(block_sum(model, 0, batch).forward_gemm.count(),
                   2.0 * 1024 * (4.0 * 5120 * 5120 + 3.0 * 5120 * 13696));
}

TEST(Baichuan, VersionsAreToldApart) {
  // Baichuan-7B: 7,000,559,616 with the vocabulary of 64,000
  const Model first = model_of(R"({"model_type": "baichuan", "hidden_size": 4096,
      "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
      "vocab_size": 64000, "max_position_embeddings": 4096,
      "architectures": ["BaiChuanForCausalLM"]})");
  EXPECT_EQ(parameter_count(first), 7'000'559'616);
  EXPECT_EQ(first.modules[0].class_name, "BaiChuanForCausalLM");
  EXPECT_EQ(module_named(first, "lm_head").class_name, "Linear");
  EXPECT_THAT(test::executed(first, "model.layers.0.self_attn."),
              ElementsAre("W_pack", "rotary_emb", "o_proj"));
  EXPECT_THAT(first.assumptions, Contains(HasSubstr("rotary positions")));
  EXPECT_THAT(first.assumptions, Contains(HasSubstr("Baichuan 1 (Baichuan 2 if vocab_size")));
  // Baichuan 1 of 13B has no fused attention, and its softmax is not in fp32: 2 a s kept.
  const Model alibi = model_of(small("baichuan"));
  EXPECT_THAT(alibi.assumptions, Contains(HasSubstr("ALiBi: no key of 7B is there")));
  const BatchShape batch{.micro_batch = 1, .sequence = 128};
  EXPECT_EQ(block_sum(alibi, 0, batch).saved, Bytes(128 * (24 * 64 + 8 * 96 + 2 * 4 * 128)));
}

}  // namespace
}  // namespace zerosim
