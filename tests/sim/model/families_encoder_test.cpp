// BERT, RoBERTa, DistilBERT, T5 and mT5: names, orders and calls of transformers' modeling_*.py,
// and what a layer costs. Parameter counts of presets: parameter_counts_test.cpp.

#include <algorithm>

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

/// bert-base-uncased, or what `rest` makes of it.
std::string bert(const std::string& rest) {
  return R"({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
 "num_attention_heads": 12, "intermediate_size": 3072)" +
         rest + "}";
}

/// T5 of two layers on each side whose heads are wider together (3 x 4) than the stream (8).
std::string t5(const std::string& rest) {
  return R"({"model_type": "t5", "d_model": 8, "num_layers": 2, "num_heads": 3, "d_kv": 4,
 "d_ff": 16, "vocab_size": 100)" +
         rest + "}";
}

/// Modules in the order in which they are called, repeated calls included.
std::vector<std::string> called(const Model& model, const std::string& prefix) {
  std::vector<std::string> names;
  for (const ExecutionStep& step : model.forward) {
    if (step.kind == ExecutionStep::Kind::Enter) {
      names.push_back(model.modules[step.module.index()].name);
    }
  }
  return test::below(names, prefix);
}

TEST(Bert, CountsOfEachArchitecture) {
  // Known totals of bert-base-uncased: 109,482,240 with pooler and no head; 109,514,298 with
  // language-modelling head and no pooler; 110,106,428 with pooler and both heads.
  EXPECT_EQ(parameter_count(model_of(bert(R"(, "architectures": ["BertModel"])"))), 109'482'240);
  EXPECT_EQ(parameter_count(model_of(bert(R"(, "architectures": ["BertForMaskedLM"])"))),
            109'514'298);
  EXPECT_EQ(parameter_count(model_of(bert(R"(, "architectures": ["BertForPreTraining"])"))),
            110'106'428);
  // bert-large: the heads add 1,084,220
  EXPECT_EQ(parameter_count(model_of(
                R"({"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24,
                    "num_attention_heads": 16, "intermediate_size": 4096,
                    "architectures": ["BertForPreTraining"]})")),
            336'226'108);
}

TEST(Bert, HasAHeadUnlessTheConfigSaysOtherwise) {
  const Model model = model_of(bert(""));
  EXPECT_EQ(model.modules[0].class_name, "BertForMaskedLM");
  EXPECT_THAT(model.assumptions, Contains("architectures = [\"BertForMaskedLM\"]: not in the "
                                          "config; BertModel would have no loss"));
  const Model other = model_of(bert(R"(, "architectures": ["BertForTokenClassification"])"));
  EXPECT_EQ(other.modules[0].class_name, "BertForMaskedLM");
  EXPECT_THAT(other.assumptions, Contains("built as BertForMaskedLM, head and loss included: "
                                          "\"architectures\" says otherwise"));
}

TEST(Bert, LayerIsRegisteredAndRunAsInPython) {
  const Model model = model_of(bert(""));
  EXPECT_THAT(
      test::registered(model, "bert.encoder.layer.11."),
      ElementsAre("attention.self.query.weight", "attention.self.query.bias",
                  "attention.self.key.weight", "attention.self.key.bias",
                  "attention.self.value.weight", "attention.self.value.bias",
                  "attention.output.dense.weight", "attention.output.dense.bias",
                  "attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias",
                  "intermediate.dense.weight", "intermediate.dense.bias", "output.dense.weight",
                  "output.dense.bias", "output.LayerNorm.weight", "output.LayerNorm.bias"));
  EXPECT_THAT(called(model, "bert.encoder.layer.11."),
              ElementsAre("attention", "attention.self", "attention.self.query",
                          "attention.self.key", "attention.self.value", "attention.self.dropout",
                          "attention.output", "attention.output.dense", "attention.output.dropout",
                          "attention.output.LayerNorm", "intermediate", "intermediate.dense",
                          "intermediate.intermediate_act_fn", "output", "output.dense",
                          "output.dropout", "output.LayerNorm"));
  // token types are looked up before positions, which are registered before them
  EXPECT_THAT(called(model, "bert.embeddings."),
              ElementsAre("word_embeddings", "token_type_embeddings", "position_embeddings",
                          "LayerNorm", "dropout"));
  EXPECT_EQ(test::registered(model, "bert.embeddings.")[1], "position_embeddings.weight");
  EXPECT_EQ(module_named(model, "bert.encoder.layer.11.output").class_name, "BertOutput");
  EXPECT_EQ(module_named(model, "bert.encoder.layer.11.output").positional_inputs.size(), 2U);
}

TEST(Bert, HeadOwnsItsBiasBeforeItsModules) {
  const Model model = model_of(bert(R"(, "architectures": ["BertForPreTraining"])"));
  EXPECT_THAT(
      test::registered(model, "cls."),
      ElementsAre("predictions.bias", "predictions.transform.dense.weight",
                  "predictions.transform.dense.bias", "predictions.transform.LayerNorm.weight",
                  "predictions.transform.LayerNorm.bias", "seq_relationship.weight",
                  "seq_relationship.bias"));
  const Module& decoder = module_named(model, "cls.predictions.decoder");
  ASSERT_EQ(decoder.parameters.size(), 2U);
  EXPECT_EQ(model.parameters[decoder.parameters[0].index()].name,
            "bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(model.parameters[decoder.parameters[1].index()].name, "cls.predictions.bias");
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_FALSE(model_of(bert(R"(, "tie_word_embeddings": false)")).tied_embeddings);
}

TEST(Bert, Hooks) {
  const Model model = model_of(bert(""));
  // called by keyword, and with token ids
  EXPECT_FALSE(module_named(model, "bert").positional_gradient_input);
  EXPECT_FALSE(module_named(model, "bert.embeddings").positional_gradient_input);
  EXPECT_TRUE(module_named(model, "bert.encoder").positional_gradient_input);
  EXPECT_TRUE(module_named(model, "bert.encoder.layer.0.attention.self").positional_gradient_input);
  EXPECT_TRUE(module_named(model, "cls").positional_gradient_input);
  EXPECT_TRUE(module_named(model, "bert.embeddings").gradient_output);
}

TEST(Bert, WithoutHeadBackwardStartsAtItsOutputs) {
  const Model model = load_model("bert-large");
  EXPECT_EQ(model.modules[0].class_name, "BertModel");
  EXPECT_EQ(test::parameter_names(model).front(), "embeddings.word_embeddings.weight");
  EXPECT_EQ(test::parameter_names(model).back(), "pooler.dense.bias");
  EXPECT_TRUE(model.modules[0].gradient_output);
  EXPECT_EQ(model.operators.back().kind, OperatorKind::Activation);
  EXPECT_THAT(model.assumptions,
              Contains("BertModel has no head: the loss is not part of the model, and backward "
                       "starts at its outputs"));
}

TEST(Bert, LayerCosts) {
  const Model model = load_model("bert-large");  // h = 1024, f = 4 h, a = 16
  const BatchShape batch{.micro_batch = 2, .sequence = 512};
  const BlockSum fused = block_sum(model, 3, batch);
  // 24 T h^2; all pairs, as nothing is masked: 4 T s h, backward 2.5 times
  EXPECT_DOUBLE_EQ(fused.forward_gemm.count(), 24.0 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(fused.forward_attention.count(), 4.0 * 1024 * 512 * 1024);
  EXPECT_DOUBLE_EQ(fused.backward_attention.count(), 2.5 * 4.0 * 1024 * 512 * 1024);
  // Kept a token without dropout: input of q, k, v 2h; q, k, v 6h; softmax 2 a s (not in fp32);
  // inputs of dense 2h, LayerNorm 2h, intermediate 2h, gelu 8h, dense 8h, LayerNorm 2h: 32 h.
  const BatchShape eager{.micro_batch = 2, .sequence = 512, .flash_attention = false};
  EXPECT_EQ(block_sum(model, 3, eager).saved,
            Bytes(std::int64_t{1024} * (32 * 1024 + 2 * 16 * 512)));
  // With dropout E5's 34 h + 5 a s: two masks of h, and mask and output of the scores' dropout.
  const BatchShape dropout{
      .micro_batch = 2, .sequence = 512, .flash_attention = false, .dropout = true};
  EXPECT_EQ(block_sum(model, 3, dropout).saved,
            Bytes(std::int64_t{1024} * (34 * 1024 + 5 * 16 * 512)));
}

TEST(Bert, BadInput) {
  EXPECT_EQ(error_of(bert(", \"is_decoder\":\n true")),
            "config.json:3:2: is_decoder: found true, expected false: decoders are not supported");
  EXPECT_EQ(error_of(bert(", \"position_embedding_type\":\n \"relative_key\"")),
            "config.json:3:2: position_embedding_type: found \"relative_key\", expected "
            "\"absolute\": others are not supported");
  EXPECT_EQ(error_of("{\"model_type\": \"bert\",\n \"hidden_size\": 10, \"num_hidden_layers\": 1,"
                     "\n \"num_attention_heads\": 3, \"intermediate_size\": 4}"),
            "config.json:3:25: num_attention_heads: 3 does not divide the width 10, expected a "
            "divisor");
  EXPECT_THAT(error_of(R"({"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1})"),
              HasSubstr("config.json:1:1: intermediate_size: missing, expected the width of the "
                        "MLP"));
}

TEST(Roberta, Base) {
  const Model model = model_of(
      R"({"model_type": "roberta", "hidden_size": 768, "num_hidden_layers": 12,
          "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50265,
          "max_position_embeddings": 514, "type_vocab_size": 1,
          "architectures": ["RobertaForMaskedLM"]})");
  // embeddings (50,265 + 514 + 1 + 2) x 768, 12 layers of 7,087,872, head 50,265 + 768 x 771
  EXPECT_EQ(parameter_count(model), 50782 * 768 + 12 * 7'087'872 + 50265 + 768 * 771);
  EXPECT_EQ(parameter_count(model), 124'697'433);
  EXPECT_THAT(
      test::registered(model, "lm_head."),
      ElementsAre("bias", "dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias"));
  EXPECT_THAT(called(model, "lm_head"), ElementsAre("", ".dense", ".layer_norm", ".decoder"));
  EXPECT_EQ(module_named(model, "roberta.encoder.layer.0").class_name, "RobertaLayer");
  EXPECT_EQ(parameter_count(model) - parameter_count_without_positions(model), 514 * 768);
  // the first two rows are no positions
  EXPECT_EQ(model.shape.max_positions, 512);
  EXPECT_EQ(error_of("{\"model_type\": \"roberta\", \"hidden_size\": 8, \"num_hidden_layers\": 1,\n"
                     " \"num_attention_heads\": 1, \"intermediate_size\": 4,\n"
                     " \"max_position_embeddings\": 2}"),
            "config.json:3:29: max_position_embeddings: found 2, expected more than 2: RoBERTa's "
            "first rows are no positions");
}

/// distilbert-base-uncased, or what `rest` makes of it.
std::string distilbert(const std::string& rest) {
  return R"({"model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12,
 "hidden_dim": 3072)" +
         rest + "}";
}

TEST(DistilBert, CountsOfEachArchitecture) {
  // Known totals of distilbert-base-uncased: 66,362,880 without head; with it 66,985,530:
  // a linear of 768 x 769, a norm of 2 x 768, a bias of 30,522 and the tied table.
  EXPECT_EQ(parameter_count(load_model("distilbert")), 66'362'880);
  EXPECT_EQ(parameter_count(model_of(distilbert(""))), 66'985'530);
  EXPECT_EQ(66'362'880 + 768 * 769 + 2 * 768 + 30'522, 66'985'530);
  EXPECT_EQ(parameter_count(model_of(distilbert(R"(, "tie_word_embeddings": false)"))),
            66'985'530 + 30'522 * 768);
}

TEST(DistilBert, LayerIsRegisteredAndRunAsInPython) {
  const Model model = model_of(distilbert(""));
  EXPECT_THAT(
      test::registered(model, "distilbert.transformer.layer.5."),
      ElementsAre("attention.q_lin.weight", "attention.q_lin.bias", "attention.k_lin.weight",
                  "attention.k_lin.bias", "attention.v_lin.weight", "attention.v_lin.bias",
                  "attention.out_lin.weight", "attention.out_lin.bias", "sa_layer_norm.weight",
                  "sa_layer_norm.bias", "ffn.lin1.weight", "ffn.lin1.bias", "ffn.lin2.weight",
                  "ffn.lin2.bias", "output_layer_norm.weight", "output_layer_norm.bias"));
  EXPECT_THAT(
      called(model, "distilbert.transformer.layer.5."),
      ElementsAre("attention", "attention.q_lin", "attention.k_lin", "attention.v_lin",
                  "attention.dropout", "attention.out_lin", "sa_layer_norm", "ffn", "ffn.lin1",
                  "ffn.activation", "ffn.lin2", "ffn.dropout", "output_layer_norm"));
  EXPECT_FALSE(module_named(model, "distilbert.transformer.layer.5.attention")
                   .positional_gradient_input);  // by keyword
  EXPECT_EQ(test::parameter_names(model).back(), "vocab_projector.bias");
  const Module& projector = module_named(model, "vocab_projector");
  ASSERT_EQ(projector.parameters.size(), 2U);
  EXPECT_EQ(model.parameters[projector.parameters[0].index()].name,
            "distilbert.embeddings.word_embeddings.weight");
  EXPECT_TRUE(model.tied_embeddings);
}

TEST(DistilBert, WithoutHeadBackwardStartsAtItsOutputs) {
  const Model model = load_model("distilbert");
  EXPECT_EQ(model.modules[0].class_name, "DistilBertModel");
  EXPECT_TRUE(model.modules[0].gradient_output);
  // As a layer of BERT: 24 T h^2 and 4 T s h, T = 2 x 128.
  const BlockSum layer = block_sum(model, 2, {.micro_batch = 2, .sequence = 128});
  EXPECT_DOUBLE_EQ(layer.forward_gemm.count(), 24.0 * 256 * 768 * 768);
  EXPECT_DOUBLE_EQ(layer.forward_attention.count(), 4.0 * 256 * 128 * 768);
}

TEST(DistilBert, BadInput) {
  EXPECT_EQ(error_of(distilbert(", \"sinusoidal_pos_embds\":\n true")),
            "config.json:3:2: sinusoidal_pos_embds: found true, expected false: fixed tables of "
            "positions are not supported");
  EXPECT_THAT(error_of(R"({"model_type": "distilbert", "n_layers": 6, "n_heads": 12})"),
              HasSubstr("dim: missing, expected"));
  EXPECT_THAT(error_of(R"({"model_type": "distilbrt", "n_layers": 6})"),
              HasSubstr("found \"distilbrt\", expected one of"));
}

TEST(T5, StacksAreRegisteredAndRunAsInPython) {
  const Model model = model_of(t5(""));
  EXPECT_EQ(test::parameter_names(model).front(), "shared.weight");
  EXPECT_EQ(test::parameter_names(model).back(), "decoder.final_layer_norm.weight");
  EXPECT_THAT(test::registered(model, "decoder.block.0."),
              ElementsAre("layer.0.SelfAttention.q.weight", "layer.0.SelfAttention.k.weight",
                          "layer.0.SelfAttention.v.weight", "layer.0.SelfAttention.o.weight",
                          "layer.0.SelfAttention.relative_attention_bias.weight",
                          "layer.0.layer_norm.weight", "layer.1.EncDecAttention.q.weight",
                          "layer.1.EncDecAttention.k.weight", "layer.1.EncDecAttention.v.weight",
                          "layer.1.EncDecAttention.o.weight", "layer.1.layer_norm.weight",
                          "layer.2.DenseReluDense.wi.weight", "layer.2.DenseReluDense.wo.weight",
                          "layer.2.layer_norm.weight"));
  EXPECT_THAT(
      test::registered(model, "encoder.block.1.layer.0"),
      ElementsAre(".SelfAttention.q.weight", ".SelfAttention.k.weight", ".SelfAttention.v.weight",
                  ".SelfAttention.o.weight", ".layer_norm.weight"));
  EXPECT_THAT(
      called(model, "encoder.block.0."),
      ElementsAre("layer.0", "layer.0.layer_norm", "layer.0.SelfAttention",
                  "layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v",
                  "layer.0.SelfAttention.relative_attention_bias", "layer.0.SelfAttention.o",
                  "layer.0.dropout", "layer.1", "layer.1.layer_norm", "layer.1.DenseReluDense",
                  "layer.1.DenseReluDense.wi", "layer.1.DenseReluDense.act",
                  "layer.1.DenseReluDense.dropout", "layer.1.DenseReluDense.wo",
                  "layer.1.dropout"));
  EXPECT_EQ(module_named(model, "decoder.block.1.layer.1").class_name, "T5LayerCrossAttention");
  EXPECT_EQ(module_named(model, "encoder.block.1").block, 1);
  EXPECT_EQ(module_named(model, "decoder.block.0").block, 2);
  EXPECT_EQ(model.shape.layers, 4);
}

TEST(T5, OneEmbeddingForBothStacksAndTheHead) {
  const Model model = model_of(t5(""));
  EXPECT_THAT(called(model, "shared"), ElementsAre("", ""));
  EXPECT_TRUE(model.tied_embeddings);
  // Its gradient arrives once: in the encoder's lookup, the first to use it and last in backward.
  std::vector<std::size_t> uses;
  std::vector<std::size_t> arrivals;
  for (std::size_t i = 0; i < model.operators.size(); ++i) {
    const Operator& op = model.operators[i];
    const auto is_shared = [&](ParameterId id) { return id.index() == 0; };
    if (std::any_of(op.parameters.begin(), op.parameters.end(), is_shared)) uses.push_back(i);
    if (std::any_of(op.gradients.begin(), op.gradients.end(), is_shared)) arrivals.push_back(i);
  }
  EXPECT_EQ(uses.size(), 3U);
  EXPECT_THAT(arrivals, ElementsAre(uses.front()));
  // A tied head has a scaled input.
  EXPECT_EQ(model.operators[model.operators.size() - 3].kind, OperatorKind::Scale);
}

TEST(T5, Hooks) {
  const Model model = model_of(t5(""));
  EXPECT_FALSE(module_named(model, "encoder").positional_gradient_input);  // by keyword
  EXPECT_FALSE(module_named(model, "decoder").positional_gradient_input);
  EXPECT_FALSE(module_named(model, "shared").positional_gradient_input);
  EXPECT_TRUE(module_named(model, "decoder.block.0.layer.1").positional_gradient_input);
  EXPECT_TRUE(
      module_named(model, "decoder.block.0.layer.1.EncDecAttention").positional_gradient_input);
  const Module& bias =
      module_named(model, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias");
  EXPECT_FALSE(bias.positional_gradient_input);
  EXPECT_TRUE(bias.gradient_output);
}

TEST(T5, LayerCosts) {
  const Model model = model_of(t5(""));  // d = 8, w = 3 x 4 = 12, f = 16, a = 3
  const BatchShape batch{.micro_batch = 2, .sequence = 10};
  const BlockSum encoder = block_sum(model, 1, batch);
  // q, k, v, o: 4 d w; wi, wo: 2 d f. T = 20.
  EXPECT_DOUBLE_EQ(encoder.forward_gemm.count(), 2 * 20 * (4 * 8 * 12 + 2 * 8 * 16));
  // Never fused: 4 T s w, backward twice
  EXPECT_DOUBLE_EQ(encoder.forward_attention.count(), 4 * 20 * 10 * 12);
  EXPECT_DOUBLE_EQ(encoder.backward_attention.count(), 2 * 4 * 20 * 10 * 12);
  const BlockSum decoder = block_sum(model, 3, batch);
  EXPECT_DOUBLE_EQ(decoder.forward_gemm.count(), 2 * 20 * (8 * 8 * 12 + 2 * 8 * 16));
  EXPECT_DOUBLE_EQ(decoder.forward_attention.count(), 2 * 4 * 20 * 10 * 12);
  // Kept a token by the encoder's: two norms of fp32 input 4d and output 2d; inputs of q, k, v 2d,
  // of wi 2d; q, k, v 6w; fp32 softmax 4 a s and its cast 2 a s; inputs of o 2w, relu 2f, wo 2f.
  const std::int64_t per_token = 16 * 8 + 8 * 12 + 4 * 16 + 6 * 3 * 10;
  EXPECT_EQ(encoder.saved, Bytes(20 * per_token));
  // The decoder's has one norm, q, k, v, softmax and o more; the encoder's output, which k and v of
  // all its blocks read, is kept by the first of them, block 2.
  EXPECT_EQ(decoder.saved, Bytes(20 * (per_token + 8 * 8 + 8 * 12 + 6 * 3 * 10)));
  // Block 2 also keeps the buckets of s x s pairs, in int64.
  EXPECT_EQ(block_sum(model, 2, batch).saved - decoder.saved, Bytes(20 * 2 * 8 + 10 * 10 * 8));
}

TEST(T5, PositionBias) {
  const Model model = model_of(t5(""));
  std::vector<const Operator*> biases;
  std::vector<const Operator*> attentions;
  for (const Operator& op : model.operators) {
    if (op.kind == OperatorKind::PositionBias) biases.push_back(&op);
    if (op.kind == OperatorKind::Attention) attentions.push_back(&op);
  }
  ASSERT_EQ(biases.size(), 2U);
  ASSERT_EQ(attentions.size(), 6U);  // encoder 0, 1; decoder 0 self, cross, 1 self, cross
  // All self-attentions of a stack read its bias: two gradients meet in all but the first.
  std::vector<bool> shares;
  for (const Operator* attention : attentions) shares.push_back(attention->shares_input);
  EXPECT_THAT(shares, ElementsAre(false, true, false, false, true, false));
  EXPECT_EQ(attentions[1]->sources.back(), attentions[0]->sources.back());
  EXPECT_EQ(attentions[3]->sources.size(), 3U);

  const BatchShape batch{.micro_batch = 2, .sequence = 10};
  const OperatorCost cost = operator_cost(model, *biases[0], batch);
  // s^2 = 100 pairs, a = 3 heads, x = 2: bias of a sequence 600 B, of both 1,200 B
  EXPECT_EQ(cost.output, Bytes(1200));
  EXPECT_EQ(cost.saved, Bytes(800));
  ASSERT_EQ(cost.forward.size(), 3U);
  EXPECT_EQ(cost.forward[0].bytes, Bytes(23'600));
  EXPECT_EQ(cost.forward[1].bytes, Bytes(800 + 2 * 600));
  EXPECT_EQ(cost.forward[2].bytes, Bytes(600 + 1200));
  EXPECT_TRUE(cost.backward_input.empty());
  ASSERT_EQ(cost.backward_weights.size(), 2U);
  EXPECT_EQ(cost.backward_weights[0].bytes, Bytes(1200 + 600));
  // buckets 800, gradient 600, fp32 sums 100 x 3 x 8
  EXPECT_EQ(cost.backward_weights[1].bytes, Bytes(800 + 600 + 2400));
  // One sequence needs no sum over sequences.
  const BatchShape one{.micro_batch = 1, .sequence = 10};
  EXPECT_EQ(operator_cost(model, *biases[0], one).backward_weights.size(), 1U);
  // The gradients meet in a tensor of T a s = 600 elements: 3 x 2 B each.
  EXPECT_EQ(operator_cost(model, *attentions[1], batch).backward_input.back().name,
            "accumulate_gradient");
  EXPECT_EQ(operator_cost(model, *attentions[1], batch).backward_input.back().bytes, Bytes(3600));
}

TEST(T5, VersionOnePointOneAndMt5) {
  const Model gated =
      model_of(t5(R"(, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false)"));
  EXPECT_THAT(called(gated, "encoder.block.1.layer.1.DenseReluDense"),
              ElementsAre("", ".wi_0", ".act", ".wi_1", ".dropout", ".wo"));
  EXPECT_EQ(module_named(gated, "encoder.block.1.layer.1.DenseReluDense.act").class_name,
            "NewGELUActivation");
  EXPECT_FALSE(gated.tied_embeddings);
  EXPECT_EQ(test::parameter_names(gated).back(), "lm_head.weight");

  // google/mt5-small: 300,176,768
  const Model mt5 = model_of(R"({"model_type": "mt5", "d_model": 512, "d_ff": 1024, "d_kv": 64,
      "num_heads": 6, "num_layers": 8, "num_decoder_layers": 8, "vocab_size": 250112})");
  EXPECT_EQ(parameter_count(mt5), 300'176'768);
  EXPECT_EQ(mt5.modules[0].class_name, "MT5ForConditionalGeneration");
  EXPECT_EQ(module_named(mt5, "encoder.block.0.layer.1.DenseReluDense").class_name,
            "MT5DenseGatedActDense");
  EXPECT_THAT(mt5.assumptions,
              Contains("tie_word_embeddings = false: not in the config, Hugging Face's default"));
  EXPECT_THAT(mt5.assumptions, Contains("the encoder sees as many tokens as the decoder: micro "
                                        "batch x sequence each"));
}

TEST(T5, BadInput) {
  EXPECT_THAT(error_of(t5(", \"feed_forward_proj\":\n \"gated-sillu\"")),
              HasSubstr("config.json:3:2: feed_forward_proj: found \"sillu\", expected one of"));
  EXPECT_EQ(error_of(t5(", \"num_decoder_layers\":\n 0")),
            "config.json:3:2: num_decoder_layers: found 0, expected 1 to 2147483648: the number of "
            "layers of the decoder");
  EXPECT_EQ(error_of(t5(", \"num_decoder_layers\":\n 20000")),
            "config.json:3:2: num_decoder_layers: found 20000, expected 1 to 10000: the number of "
            "layers of the decoder");
  EXPECT_THAT(error_of(R"({"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 1})"),
              HasSubstr("config.json:1:1: d_ff: missing, expected the width"));
}

}  // namespace
}  // namespace zerosim
