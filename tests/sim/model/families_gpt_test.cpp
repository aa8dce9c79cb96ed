// GPT-NeoX, GPT-J, OPT, BLOOM and Falcon: names, orders and calls of transformers' modeling_*.py,
// and what a layer costs. Parameter counts: parameter_counts_test.cpp.

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/operators.h"
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
using testing::Not;

/// A config.json of one line for each key; `changes` replace or, with "", remove keys.
std::string config(std::map<std::string, std::string> keys,
                   const std::map<std::string, std::string>& changes = {}) {
  for (const auto& [key, value] : changes) keys[key] = value;
  std::vector<std::string> members;
  for (const auto& [key, value] : keys) {
    if (!value.empty()) members.push_back(format("\"{}\": {}", key, value));
  }
  return "{\n" + join(members, ",\n") + "\n}";
}

using Changes = std::map<std::string, std::string>;

std::string neox(const Changes& changes = {}) {
  return config({{"model_type", "\"gpt_neox\""},
                 {"hidden_size", "64"},
                 {"intermediate_size", "256"},
                 {"num_hidden_layers", "2"},
                 {"num_attention_heads", "4"},
                 {"vocab_size", "100"}},
                changes);
}
std::string big_code(const Changes& changes = {}) {
  return config({{"model_type", "\"gpt_bigcode\""},
                 {"n_embd", "64"},
                 {"n_layer", "2"},
                 {"n_head", "4"},
                 {"n_positions", "32"},
                 {"vocab_size", "100"}},
                changes);
}
std::string gptj(const Changes& changes = {}) {
  return config({{"model_type", "\"gptj\""},
                 {"n_embd", "64"},
                 {"n_layer", "2"},
                 {"n_head", "4"},
                 {"rotary_dim", "8"},
                 {"vocab_size", "100"}},
                changes);
}
std::string opt(const Changes& changes = {}) {
  return config({{"model_type", "\"opt\""},
                 {"hidden_size", "64"},
                 {"ffn_dim", "256"},
                 {"num_hidden_layers", "2"},
                 {"num_attention_heads", "4"},
                 {"max_position_embeddings", "32"},
                 {"vocab_size", "100"}},
                changes);
}
std::string bloom(const Changes& changes = {}) {
  return config({{"model_type", "\"bloom\""},
                 {"hidden_size", "64"},
                 {"n_layer", "2"},
                 {"n_head", "4"},
                 {"vocab_size", "100"}},
                changes);
}
std::string falcon(const Changes& changes = {}) {
  return config({{"model_type", "\"falcon\""},
                 {"hidden_size", "64"},
                 {"num_hidden_layers", "2"},
                 {"num_attention_heads", "4"},
                 {"vocab_size", "100"}},
                changes);
}

Model model_of(const std::string& text) {
  return parse_model(text, "config.json");
}

/// Names and classes of the modules of no block.
std::vector<std::string> frame(const Model& model) {
  std::vector<std::string> result;
  for (const Module& module : model.modules) {
    if (module.block < 0) result.push_back(module.name + ":" + module.class_name);
  }
  return result;
}

std::vector<const Operator*> operators_of(const Model& model, OperatorKind kind, int block) {
  std::vector<const Operator*> result;
  for (const Operator& op : model.operators) {
    const bool here = model.modules[op.module.index()].block == block;
    if (here && op.kind == kind) result.push_back(&op);
  }
  return result;
}

const AttentionShape& attention_of(const Model& model) {
  const Operator& op = *operators_of(model, OperatorKind::Attention, 0).front();
  return model.attention_shapes[static_cast<std::size_t>(op.attention)];
}

/// The operator of a module that has one.
const Operator& operator_of(const Model& model, const std::string& module) {
  for (const Operator& op : model.operators) {
    if (model.modules[op.module.index()].name == module) return op;
  }
  throw ConfigError("no operator in " + module);
}

struct Hooks {
  bool backward_ends;    ///< Module::positional_gradient_input
  bool backward_begins;  ///< Module::gradient_output
  friend bool operator==(const Hooks&, const Hooks&) = default;
};

Hooks hooks(const Model& model, const std::string& name) {
  const Module& module = module_named(model, name);
  return {module.positional_gradient_input, module.gradient_output};
}

TEST(GptFamilies, PositionTables) {
  // opt-125m: 2,050 x 768; rotary and alibi have none.
  EXPECT_EQ(parameter_count_without_positions(load_model("opt-125m")), 125'239'296 - 2'050 * 768);
  EXPECT_EQ(parameter_count_without_positions(load_model("bloom-560m")), 559'214'592);
}

// --- GPT-NeoX

TEST(GptNeox, Registration) {
  const Model model = load_model("pythia-1b");
  EXPECT_THAT(
      test::registered(model, "gpt_neox.layers.0."),
      ElementsAre("input_layernorm.weight", "input_layernorm.bias",
                  "post_attention_layernorm.weight", "post_attention_layernorm.bias",
                  "attention.query_key_value.weight", "attention.query_key_value.bias",
                  "attention.dense.weight", "attention.dense.bias", "mlp.dense_h_to_4h.weight",
                  "mlp.dense_h_to_4h.bias", "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias"));
  EXPECT_EQ(model.parameters.front().name, "gpt_neox.embed_in.weight");
  EXPECT_EQ(model.parameters.back().name, "embed_out.weight");
  EXPECT_THAT(model.parameters[5].shape, ElementsAre(3 * 2048, 2048));
}

TEST(GptNeox, Execution) {
  const Model model = model_of(neox());
  EXPECT_THAT(
      frame(model),
      ElementsAre(":GPTNeoXForCausalLM", "gpt_neox:GPTNeoXModel", "gpt_neox.embed_in:Embedding",
                  "gpt_neox.emb_dropout:Dropout", "gpt_neox.rotary_emb:GPTNeoXRotaryEmbedding",
                  "gpt_neox.final_layer_norm:LayerNorm", "embed_out:Linear"));
  EXPECT_THAT(
      test::executed(model, "gpt_neox.layers.0."),
      ElementsAre("input_layernorm", "attention", "attention.query_key_value", "attention.dense",
                  "post_attention_dropout", "post_attention_layernorm", "mlp", "mlp.dense_h_to_4h",
                  "mlp.act", "mlp.dense_4h_to_h", "post_mlp_dropout"));
  EXPECT_EQ(module_named(model, "gpt_neox.layers.0.mlp.act").class_name, "GELUActivation");
}

TEST(GptNeox, Hooks) {
  const Model model = model_of(neox());
  EXPECT_EQ(hooks(model, "gpt_neox"), (Hooks{false, true}));
  EXPECT_EQ(hooks(model, "gpt_neox.rotary_emb"), (Hooks{false, false}));
  EXPECT_EQ(hooks(model, "gpt_neox.layers.0"), (Hooks{true, true}));
  EXPECT_EQ(hooks(model, "gpt_neox.layers.0.attention"), (Hooks{true, true}));
  EXPECT_EQ(hooks(model, "gpt_neox.layers.0.mlp"), (Hooks{true, true}));
}

TEST(GptNeox, ParallelBranchesReadTheStreamAndAreAddedTwice) {
  const Model parallel = model_of(neox());
  const std::string layer = "gpt_neox.layers.1";
  const Value stream = module_named(parallel, "gpt_neox.layers.0").output;
  EXPECT_THAT(operator_of(parallel, layer + ".input_layernorm").sources, ElementsAre(stream));
  EXPECT_THAT(operator_of(parallel, layer + ".post_attention_layernorm").sources,
              ElementsAre(stream));
  const auto sums = operators_of(parallel, OperatorKind::ResidualAdd, 1);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_THAT(sums[0]->sources,
              ElementsAre(module_named(parallel, layer + ".post_mlp_dropout").output,
                          module_named(parallel, layer + ".post_attention_dropout").output));
  EXPECT_THAT(sums[1]->sources, Contains(stream));
}

TEST(GptNeox, OneBranchAfterTheOther) {
  const Model model = model_of(neox({{"use_parallel_residual", "false"}}));
  const auto sums = operators_of(model, OperatorKind::ResidualAdd, 1);
  ASSERT_EQ(sums.size(), 2U);
  const Value sum = operator_of(model, "gpt_neox.layers.1.post_attention_layernorm").sources[0];
  EXPECT_EQ(&model.operators[static_cast<std::size_t>(sum)], sums[0]);
  EXPECT_THAT(sums[1]->sources, Contains(sum));
}

TEST(GptNeox, BiasesAndTies) {
  const Model plain = model_of(neox());
  // without attention_bias: 3 x 64 + 64 in each of two layers
  EXPECT_EQ(parameter_count(plain) - parameter_count(model_of(neox({{"attention_bias", "false"}}))),
            2 * 256);
  const Model tied = model_of(neox({{"tie_word_embeddings", "true"}}));
  EXPECT_EQ(parameter_count(plain) - parameter_count(tied), 100 * 64);
  EXPECT_TRUE(tied.tied_embeddings);
}

TEST(GptNeox, RotatesAQuarterOfAHead) {
  // pythia-1b: heads of 2,048 / 8 = 256, a quarter is 64; q and k of 8 heads
  EXPECT_EQ(operators_of(load_model("pythia-1b"), OperatorKind::Rotary, 0)[0]->outputs, 2 * 8 * 64);
  // pythia-2.8b: int(80 x 0.25) = 20
  EXPECT_EQ(operators_of(load_model("pythia-2.8b"), OperatorKind::Rotary, 0)[0]->outputs,
            2 * 32 * 20);
  EXPECT_EQ(
      operators_of(model_of(neox({{"rotary_pct", "1.0"}})), OperatorKind::Rotary, 0)[0]->outputs,
      2 * 64);
}

TEST(GptNeox, Assumptions) {
  EXPECT_THAT(
      model_of(neox({{"vocab_size", ""}})).assumptions,
      ElementsAre("vocab_size = 50432: not in the config, Hugging Face's default",
                  "max_position_embeddings = 2048: not in the config, Hugging Face's default",
                  "rotary_pct = 0.25: not in the config, Hugging Face's default",
                  "hidden_act = gelu: not in the config, Hugging Face's default",
                  "attention_bias = true: not in the config, Hugging Face's default",
                  "use_parallel_residual = true: not in the config, Hugging Face's default",
                  "tie_word_embeddings = false: not in the config, Hugging Face's default"));
}

TEST(GptNeox, BadInput) {
  EXPECT_EQ(error_of(neox({{"intermediate_size", ""}})),
            "config.json:1:1: intermediate_size: missing, expected the width of the MLP");
  EXPECT_EQ(error_of(neox({{"num_attention_heads", "5"}})),
            "config.json:5:24: num_attention_heads: 5 does not divide the width 64, expected a "
            "divisor");
  EXPECT_EQ(error_of(neox({{"rotary_pct", "1.5"}})),
            "config.json:7:15: rotary_pct: found 1.5, expected 0 to 1: the part of a head that is "
            "rotated");
  EXPECT_THAT(error_of(neox({{"hidden_act", "\"geluu\""}})), HasSubstr("did you mean \"gelu\"?"));
}

// --- GPT-J

TEST(Gptj, Registration) {
  const Model model = load_model("gpt-j-6b");
  EXPECT_THAT(test::registered(model, "transformer.h.27."),
              ElementsAre("ln_1.weight", "ln_1.bias", "attn.k_proj.weight", "attn.v_proj.weight",
                          "attn.q_proj.weight", "attn.out_proj.weight", "mlp.fc_in.weight",
                          "mlp.fc_in.bias", "mlp.fc_out.weight", "mlp.fc_out.bias"));
  EXPECT_THAT(test::registered(model, "lm_head."), ElementsAre("weight", "bias"));
  EXPECT_EQ(model.parameters.front().name, "transformer.wte.weight");
}

TEST(Gptj, Execution) {
  const Model model = model_of(gptj());
  EXPECT_THAT(frame(model), ElementsAre(":GPTJForCausalLM", "transformer:GPTJModel",
                                        "transformer.wte:Embedding", "transformer.drop:Dropout",
                                        "transformer.ln_f:LayerNorm", "lm_head:Linear"));
  EXPECT_THAT(test::executed(model, "transformer.h.0."),
              ElementsAre("ln_1", "attn", "attn.q_proj", "attn.k_proj", "attn.v_proj",
                          "attn.attn_dropout", "attn.out_proj", "attn.resid_dropout", "mlp",
                          "mlp.fc_in", "mlp.act", "mlp.fc_out", "mlp.dropout"));
  EXPECT_EQ(module_named(model, "transformer.h.0.mlp.act").class_name, "NewGELUActivation");
}

TEST(Gptj, AttentionIsCalledByKeyword) {
  const Model model = model_of(gptj());
  EXPECT_EQ(hooks(model, "transformer.h.0"), (Hooks{true, true}));
  EXPECT_EQ(hooks(model, "transformer.h.0.attn"), (Hooks{false, true}));
  EXPECT_EQ(hooks(model, "transformer.h.0.mlp"), (Hooks{true, true}));
}

TEST(Gptj, OneNormServesBothBranches) {
  const Model model = model_of(gptj());
  const Value normed = module_named(model, "transformer.h.0.ln_1").output;
  for (const char* name : {"attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.fc_in"}) {
    const Operator& op = operator_of(model, std::string("transformer.h.0.") + name);
    EXPECT_THAT(op.sources, ElementsAre(normed)) << name;
    EXPECT_EQ(op.saves_input, std::string(name) == "attn.q_proj") << name;  // one copy for all
  }
  EXPECT_EQ(operators_of(model, OperatorKind::ResidualAdd, 0).size(), 2U);
}

TEST(Gptj, TheHeadKeepsItsBiasWhenTied) {
  const Model model = model_of(gptj({{"tie_word_embeddings", "true"}}));
  EXPECT_THAT(test::registered(model, "lm_head."), ElementsAre("bias"));
  EXPECT_EQ(module_named(model, "lm_head").parameters.size(), 2U);
  // its bias first (rule 5), then the tied weight, whose gradient comes with the embedding's
  const Operator& head = operator_of(model, "lm_head");
  EXPECT_EQ(head.parameters.size(), 2U);
  ASSERT_EQ(head.gradients.size(), 1U);
  EXPECT_EQ(model.parameters[head.gradients[0].index()].name, "lm_head.bias");
}

TEST(Gptj, RotatesTheFirstDimensions) {
  EXPECT_EQ(operators_of(load_model("gpt-j-6b"), OperatorKind::Rotary, 0)[0]->outputs, 2 * 16 * 64);
  // null: the whole of 4 heads
  EXPECT_EQ(
      operators_of(model_of(gptj({{"rotary_dim", "null"}})), OperatorKind::Rotary, 0)[0]->outputs,
      2 * 64);
}

TEST(Gptj, TakesBothNamesOfItsKeys) {
  const Model model = model_of(gptj({{"n_embd", ""},
                                     {"hidden_size", "64"},
                                     {"n_layer", ""},
                                     {"num_hidden_layers", "2"},
                                     {"n_head", ""},
                                     {"num_attention_heads", "4"}}));
  EXPECT_EQ(parameter_count(model), parameter_count(model_of(gptj())));
  EXPECT_THAT(
      model.assumptions,
      ElementsAre("n_inner = 256: not in the config, 4 x n_embd",
                  "n_positions = 2048: not in the config, Hugging Face's default",
                  "activation_function = gelu_new: not in the config, Hugging Face's default",
                  "tie_word_embeddings = false: not in the config, Hugging Face's default",
                  "attn_dropout is called, as in eager attention; fused attention does not "
                  "call it",
                  "NewGELUActivation keeps its input alone, as one fused kernel would"));
}

TEST(Gptj, BadInput) {
  EXPECT_EQ(error_of(gptj({{"n_embd", ""}})),
            "config.json:1:1: n_embd: missing, expected the width of the residual stream");
  EXPECT_EQ(error_of(gptj({{"n_head", "3"}})),
            "config.json:4:11: n_head: 3 does not divide the width 64, expected a divisor");
  EXPECT_EQ(error_of(gptj({{"rotary_dim", "17"}})),
            "config.json:6:15: rotary_dim: 17 is wider than a head, expected 1 to 16");
}

// --- OPT

TEST(Opt, Registration) {
  const Model model = load_model("opt-125m");
  EXPECT_THAT(
      test::registered(model, "model.decoder.layers.0."),
      ElementsAre("self_attn.k_proj.weight", "self_attn.k_proj.bias", "self_attn.v_proj.weight",
                  "self_attn.v_proj.bias", "self_attn.q_proj.weight", "self_attn.q_proj.bias",
                  "self_attn.out_proj.weight", "self_attn.out_proj.bias",
                  "self_attn_layer_norm.weight", "self_attn_layer_norm.bias", "fc1.weight",
                  "fc1.bias", "fc2.weight", "fc2.bias", "final_layer_norm.weight",
                  "final_layer_norm.bias"));
  // the last norm is registered before the layers
  EXPECT_EQ(test::parameter_names(model)[2], "model.decoder.final_layer_norm.weight");
  EXPECT_EQ(model.parameters.back().name, "model.decoder.layers.11.final_layer_norm.bias");
  EXPECT_THAT(model.parameters[1].shape, ElementsAre(2048 + 2, 768));
}

TEST(Opt, Execution) {
  const Model model = model_of(opt());
  // OPTModel is not called: the root calls its decoder.
  EXPECT_THAT(frame(model),
              ElementsAre(":OPTForCausalLM", "model.decoder:OPTDecoder",
                          "model.decoder.embed_tokens:Embedding",
                          "model.decoder.embed_positions:OPTLearnedPositionalEmbedding",
                          "model.decoder.final_layer_norm:LayerNorm", "lm_head:Linear"));
  EXPECT_THAT(test::executed(model, "model.decoder.layers.0."),
              ElementsAre("self_attn_layer_norm", "self_attn", "self_attn.q_proj",
                          "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
                          "final_layer_norm", "fc1", "activation_fn", "fc2"));
  EXPECT_EQ(module_named(model, "model.decoder.layers.0.activation_fn").class_name, "ReLU");
  EXPECT_EQ(operators_of(model, OperatorKind::ResidualAdd, 0).size(), 2U);
  EXPECT_EQ(operators_of(model, OperatorKind::Dropout, 0).size(), 2U);
}

TEST(Opt, AttentionIsCalledByKeyword) {
  const Model model = model_of(opt());
  EXPECT_EQ(hooks(model, "model.decoder"), (Hooks{false, true}));
  EXPECT_EQ(hooks(model, "model.decoder.layers.1"), (Hooks{true, true}));
  EXPECT_EQ(hooks(model, "model.decoder.layers.1.self_attn"), (Hooks{false, true}));
}

TEST(Opt, With350MParametersProjectsAndNormsBehind) {
  const Model model = load_model("opt-350m");
  std::vector<std::string> names = test::parameter_names(model);
  names.resize(5);
  EXPECT_THAT(
      names,
      ElementsAre("model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight",
                  "model.decoder.project_out.weight", "model.decoder.project_in.weight",
                  "model.decoder.layers.0.self_attn.k_proj.weight"));
  EXPECT_THAT(model.parameters[2].shape, ElementsAre(512, 1024));
  EXPECT_THAT(frame(model),
              ElementsAre(":OPTForCausalLM", "model.decoder:OPTDecoder",
                          "model.decoder.embed_tokens:Embedding",
                          "model.decoder.embed_positions:OPTLearnedPositionalEmbedding",
                          "model.decoder.project_in:Linear", "model.decoder.project_out:Linear",
                          "lm_head:Linear"));
  EXPECT_THAT(test::executed(model, "model.decoder.layers.0."),
              ElementsAre("self_attn", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                          "self_attn.out_proj", "self_attn_layer_norm", "fc1", "activation_fn",
                          "fc2", "final_layer_norm"));
  // the layer returns its last norm, and the MLP's residual is the first norm's result
  EXPECT_EQ(module_named(model, "model.decoder.layers.0").output,
            module_named(model, "model.decoder.layers.0.final_layer_norm").output);
  EXPECT_THAT(operators_of(model, OperatorKind::ResidualAdd, 0)[1]->sources,
              Contains(module_named(model, "model.decoder.layers.0.self_attn_layer_norm").output));
}

TEST(Opt, Variants) {
  const Model plain = model_of(opt());
  // biases of a layer: q, k, v, out 4 x 64, fc1 256, fc2 64
  EXPECT_EQ(parameter_count(plain) - parameter_count(model_of(opt({{"enable_bias", "false"}}))),
            2 * 576);
  // two norms a layer and the last one, 2 x 64 each
  const Model bare = model_of(opt({{"layer_norm_elementwise_affine", "false"}}));
  EXPECT_EQ(parameter_count(plain) - parameter_count(bare), 5 * 128);
  EXPECT_EQ(test::executed(bare, ""), test::executed(plain, ""));
  const Model cut = model_of(opt({{"_remove_final_layer_norm", "true"}}));
  EXPECT_EQ(parameter_count(plain) - parameter_count(cut), 128);
  EXPECT_THAT(test::executed(cut, "model.decoder."), Not(Contains("final_layer_norm")));
  EXPECT_THAT(test::registered(model_of(opt({{"tie_word_embeddings", "false"}})), "lm_head."),
              ElementsAre("weight"));
}

TEST(Opt, Assumptions) {
  EXPECT_THAT(
      model_of(opt()).assumptions,
      ElementsAre("word_embed_proj_dim = 64: not in the config, that of the residual stream",
                  "activation_function = relu: not in the config, Hugging Face's default",
                  "do_layer_norm_before = true: not in the config, Hugging Face's default",
                  "enable_bias = true: not in the config, Hugging Face's default",
                  "tie_word_embeddings = true: not in the config, Hugging Face's default"));
}

TEST(Opt, BadInput) {
  EXPECT_EQ(error_of(opt({{"ffn_dim", ""}})),
            "config.json:1:1: ffn_dim: missing, expected the width of the MLP");
  EXPECT_EQ(error_of(opt({{"num_attention_heads", "7"}})),
            "config.json:6:24: num_attention_heads: 7 does not divide the width 64, expected a "
            "divisor");
  EXPECT_EQ(
      error_of(opt({{"layerdrop", "0.1"}})),
      "config.json:4:14: layerdrop: found 0.1, expected 0: layers that are left out at random "
      "are not supported");
}

// --- BLOOM

TEST(Bloom, Registration) {
  const Model model = load_model("bloom-560m");
  EXPECT_THAT(
      test::registered(model, "transformer.h.0."),
      ElementsAre("input_layernorm.weight", "input_layernorm.bias",
                  "self_attention.query_key_value.weight", "self_attention.query_key_value.bias",
                  "self_attention.dense.weight", "self_attention.dense.bias",
                  "post_attention_layernorm.weight", "post_attention_layernorm.bias",
                  "mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias", "mlp.dense_4h_to_h.weight",
                  "mlp.dense_4h_to_h.bias"));
  EXPECT_EQ(test::parameter_names(model)[1], "transformer.word_embeddings_layernorm.weight");
  EXPECT_EQ(model.parameters.back().name, "transformer.ln_f.bias");
}

TEST(Bloom, Execution) {
  const Model model = model_of(bloom());
  EXPECT_THAT(frame(model), ElementsAre(":BloomForCausalLM", "transformer:BloomModel",
                                        "transformer.word_embeddings:Embedding",
                                        "transformer.word_embeddings_layernorm:LayerNorm",
                                        "transformer.ln_f:LayerNorm", "lm_head:Linear"));
  EXPECT_THAT(test::executed(model, "transformer.h.0."),
              ElementsAre("input_layernorm", "self_attention", "self_attention.query_key_value",
                          "self_attention.attention_dropout", "self_attention.dense",
                          "post_attention_layernorm", "mlp", "mlp.dense_h_to_4h", "mlp.gelu_impl",
                          "mlp.dense_4h_to_h"));
  EXPECT_EQ(module_named(model, "transformer.h.0.mlp.gelu_impl").class_name, "BloomGelu");
}

TEST(Bloom, BranchesAreGivenTheResidualAndAddIt) {
  const Model model = model_of(bloom());
  const std::string layer = "transformer.h.1";
  const Value stream = module_named(model, "transformer.h.0").output;
  const Module& attention = module_named(model, layer + ".self_attention");
  const Module& mlp = module_named(model, layer + ".mlp");
  EXPECT_THAT(attention.positional_inputs,
              ElementsAre(module_named(model, layer + ".input_layernorm").output, stream));
  EXPECT_THAT(mlp.positional_inputs,
              ElementsAre(module_named(model, layer + ".post_attention_layernorm").output,
                          attention.output));
  EXPECT_EQ(hooks(model, layer + ".self_attention"), (Hooks{true, true}));
  EXPECT_EQ(module_named(model, layer).output, mlp.output);
  const auto sums = operators_of(model, OperatorKind::ResidualAdd, 1);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(model.modules[sums[0]->module.index()].name, attention.name);
  EXPECT_EQ(model.modules[sums[1]->module.index()].name, mlp.name);
}

TEST(Bloom, ResidualAfterTheNorm) {
  const Model model = model_of(bloom({{"apply_residual_connection_post_layernorm", "true"}}));
  const Value normed = module_named(model, "transformer.h.0.input_layernorm").output;
  EXPECT_THAT(module_named(model, "transformer.h.0.self_attention").positional_inputs,
              ElementsAre(normed, normed));
  EXPECT_EQ(parameter_count(model), parameter_count(model_of(bloom())));
}

TEST(Bloom, NamesOfTheWidth) {
  // BloomConfig: n_embed wins.
  EXPECT_EQ(model_of(bloom({{"n_embed", "128"}})).shape.hidden, 128);
  EXPECT_EQ(model_of(bloom({{"n_embed", "128"}, {"hidden_size", ""}})).shape.ffn, 512);
  EXPECT_EQ(error_of(bloom({{"hidden_size", ""}})),
            "config.json:1:1: hidden_size: missing, expected the width of the residual stream");
}

TEST(Bloom, BadInput) {
  EXPECT_EQ(error_of(bloom({{"n_layer", ""}})),
            "config.json:1:1: n_layer: missing, expected the number of transformer layers");
  EXPECT_EQ(error_of(bloom({{"n_head", "6"}})),
            "config.json:4:11: n_head: 6 does not divide the width 64, expected a divisor");
}

// --- Falcon

TEST(Falcon, With7BParametersHasOneNormAndOneKeyHead) {
  const Model model = load_model("falcon-7b");
  EXPECT_THAT(test::registered(model, "transformer.h.0."),
              ElementsAre("self_attention.query_key_value.weight", "self_attention.dense.weight",
                          "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight",
                          "input_layernorm.weight", "input_layernorm.bias"));
  // 71 query heads, a key and a value head of 64
  EXPECT_THAT(model.parameters[1].shape, ElementsAre((71 + 2) * 64, 4544));
  EXPECT_THAT(test::executed(model, "transformer.h.0."),
              ElementsAre("input_layernorm", "self_attention", "self_attention.query_key_value",
                          "self_attention.dense", "mlp", "mlp.dense_h_to_4h", "mlp.act",
                          "mlp.dense_4h_to_h"));
  EXPECT_THAT(frame(model), ElementsAre(":FalconForCausalLM", "transformer:FalconModel",
                                        "transformer.word_embeddings:Embedding",
                                        "transformer.rotary_emb:FalconRotaryEmbedding",
                                        "transformer.ln_f:LayerNorm", "lm_head:Linear"));
  EXPECT_EQ(module_named(model, "transformer.h.0.mlp.dense_4h_to_h").class_name, "FalconLinear");
  EXPECT_EQ(model.shape.kv_heads, 1);
  EXPECT_EQ(operators_of(model, OperatorKind::Rotary, 0)[0]->outputs, (71 + 1) * 64);
  EXPECT_EQ(hooks(model, "transformer.h.0.self_attention"), (Hooks{true, true}));
  EXPECT_EQ(hooks(model, "transformer.rotary_emb"), (Hooks{false, false}));
}

// FalconAttention calls scaled_dot_product_attention unless it has ALiBi: the scores are not
// stored, flash attention or not.
TEST(Falcon, AttendsFusedWithoutAlibi) {
  BatchShape batch;
  batch.sequence = 128;
  batch.flash_attention = false;
  const Model model = load_model("falcon-7b");
  EXPECT_TRUE(attention_of(model).always_fused);
  BatchShape flash = batch;
  flash.flash_attention = true;
  for (const Operator* op : operators_of(model, OperatorKind::Attention, 0)) {
    EXPECT_EQ(operator_cost(model, *op, batch).saved, operator_cost(model, *op, flash).saved);
  }
  EXPECT_FALSE(attention_of(model_of(falcon({{"alibi", "true"}}))).always_fused);
}

TEST(Falcon, With7BParametersAddsTwice) {
  const Model model = load_model("falcon-7b");
  const auto sums = operators_of(model, OperatorKind::ResidualAdd, 1);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_THAT(sums[0]->sources,
              ElementsAre(module_named(model, "transformer.h.1.mlp").output,
                          module_named(model, "transformer.h.1.self_attention").output));
  EXPECT_THAT(sums[1]->sources, Contains(module_named(model, "transformer.h.0").output));
}

TEST(Falcon, With40BParametersHasTwoNormsAndGroups) {
  const Model model = load_model("falcon-40b");
  EXPECT_THAT(test::registered(model, "transformer.h.0."),
              ElementsAre("self_attention.query_key_value.weight", "self_attention.dense.weight",
                          "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight", "ln_attn.weight",
                          "ln_attn.bias", "ln_mlp.weight", "ln_mlp.bias"));
  EXPECT_THAT(test::executed(model, "transformer.h.0."),
              ElementsAre("ln_attn", "ln_mlp", "self_attention", "self_attention.query_key_value",
                          "self_attention.dense", "mlp", "mlp.dense_h_to_4h", "mlp.act",
                          "mlp.dense_4h_to_h"));
  // 128 query heads, 8 key and 8 value heads of 64
  EXPECT_THAT(model.parameters[1].shape, ElementsAre((128 + 16) * 64, 8192));
  EXPECT_EQ(model.shape.kv_heads, 8);
  // keys are copied for each query head before they are rotated
  EXPECT_EQ(operators_of(model, OperatorKind::Rotary, 0)[0]->outputs, 2 * 128 * 64);
  EXPECT_EQ(attention_of(model).kv_heads, 128);
}

TEST(Falcon, With11BParametersHasGroupsAndOneNorm) {
  const Model model = model_of(falcon({{"new_decoder_architecture", "true"},
                                       {"num_kv_heads", "2"},
                                       {"num_ln_in_parallel_attn", "1"}}));
  EXPECT_THAT(test::registered(model, "transformer.h.0."),
              ElementsAre("self_attention.query_key_value.weight", "self_attention.dense.weight",
                          "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight",
                          "input_layernorm.weight", "input_layernorm.bias"));
  const Value normed = module_named(model, "transformer.h.0.input_layernorm").output;
  EXPECT_THAT(operator_of(model, "transformer.h.0.mlp.dense_h_to_4h").sources, ElementsAre(normed));
}

/// falcon-rw-1b, whose published checkpoint has 1,311,625,216 parameters:
/// 50,304 x 2,048 + 24 x (12 x 2,048^2 + 3 x 2,048 + 2,048 + 5 x 2,048 + 4 x 2,048) + 2 x 2,048.
TEST(Falcon, RwRunsOneBranchAfterTheOther) {
  const Model model = model_of(falcon({{"hidden_size", "2048"},
                                       {"num_hidden_layers", "24"},
                                       {"num_attention_heads", "32"},
                                       {"vocab_size", "50304"},
                                       {"alibi", "true"},
                                       {"bias", "true"},
                                       {"multi_query", "false"},
                                       {"parallel_attn", "false"}}));
  EXPECT_EQ(parameter_count(model), 1'311'625'216);
  EXPECT_THAT(
      test::registered(model, "transformer.h.0."),
      ElementsAre("self_attention.query_key_value.weight", "self_attention.query_key_value.bias",
                  "self_attention.dense.weight", "self_attention.dense.bias",
                  "mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias", "mlp.dense_4h_to_h.weight",
                  "mlp.dense_4h_to_h.bias", "post_attention_layernorm.weight",
                  "post_attention_layernorm.bias", "input_layernorm.weight",
                  "input_layernorm.bias"));
  EXPECT_THAT(test::executed(model, "transformer.h.0."),
              ElementsAre("input_layernorm", "self_attention", "self_attention.query_key_value",
                          "self_attention.attention_dropout", "self_attention.dense",
                          "post_attention_layernorm", "mlp", "mlp.dense_h_to_4h", "mlp.act",
                          "mlp.dense_4h_to_h"));
  EXPECT_EQ(model.shape.kv_heads, 32);
  EXPECT_TRUE(operators_of(model, OperatorKind::Rotary, 0).empty());  // alibi
  EXPECT_FALSE(attention_of(model).causal);
}

TEST(Falcon, Assumptions) {
  EXPECT_THAT(
      model_of(falcon()).assumptions,
      ElementsAre("new_decoder_architecture = false: not in the config, Hugging Face's default",
                  "multi_query = true: not in the config, Hugging Face's default",
                  "parallel_attn = true: not in the config, Hugging Face's default",
                  "ffn_hidden_size = 256: not in the config, 4 x hidden",
                  "max_position_embeddings = 2048: not in the config, Hugging Face's default",
                  "activation = gelu: not in the config, Hugging Face's default",
                  "bias = false: not in the config, Hugging Face's default",
                  "alibi = false: not in the config, Hugging Face's default",
                  "tie_word_embeddings = true: not in the config, Hugging Face's default"));
}

TEST(Falcon, BadInput) {
  const Changes grouped = {{"new_decoder_architecture", "true"}};
  const auto with = [&](const Changes& more) {
    Changes changes = grouped;
    changes.insert(more.begin(), more.end());
    return falcon(changes);
  };
  EXPECT_EQ(error_of(falcon({{"num_hidden_layers", ""}})),
            "config.json:1:1: num_hidden_layers: missing, expected the number of transformer "
            "layers");
  EXPECT_EQ(error_of(falcon({{"num_attention_heads", "6"}})),
            "config.json:4:24: num_attention_heads: 6 does not divide the width 64, expected a "
            "divisor");
  EXPECT_EQ(error_of(with({{"num_kv_heads", "3"}})),
            "config.json:7:17: num_kv_heads: 3 does not divide num_attention_heads = 4, expected a "
            "divisor: each key and value head serves the same number of query heads");
  EXPECT_EQ(error_of(falcon({{"multi_query", "false"}, {"num_kv_heads", "2"}})),
            "config.json:7:17: num_kv_heads: found 2, expected 4, as many as num_attention_heads: "
            "without new_decoder_architecture and multi_query heads have no groups");
  EXPECT_EQ(error_of(with({{"parallel_attn", "false"}})),
            "config.json:7:18: parallel_attn: found false, expected true: new_decoder_architecture "
            "has no other form");
  EXPECT_EQ(error_of(falcon({{"num_ln_in_parallel_attn", "2"}})),
            "config.json:6:28: num_ln_in_parallel_attn: found 2, expected 1 without "
            "new_decoder_architecture");
  EXPECT_EQ(error_of(with({{"num_ln_in_parallel_attn", "3"}})),
            "config.json:7:28: num_ln_in_parallel_attn: found 3, expected 1 or 2");
  // multi_query's one head is not what groups have: num_kv_heads counts
  EXPECT_EQ(model_of(with({{"multi_query", "true"}, {"num_kv_heads", "2"}})).shape.kv_heads, 2);
}

// --- costs of a layer

/// FLOPs of a layer whose matrices have `matrices` elements and whose scores are `width` wide: 2 T
/// a matrix element forward, twice that backward; attention as kernels.md section 1.
void expect_layer_flops(const std::string& preset, double matrices, double width, bool fused) {
  const Model model = load_model(preset);
  const BatchShape batch{.micro_batch = 2, .sequence = 1024};
  const double tokens = 2 * 1024;
  const BlockSum sum = block_sum(model, 1, batch);
  EXPECT_DOUBLE_EQ(sum.forward_gemm.count(), 2 * tokens * matrices) << preset;
  EXPECT_DOUBLE_EQ(sum.backward_gemm.count(), 4 * tokens * matrices) << preset;
  // fused and causal: 2 T s w, backward 2.5 times; unfused: 4 T s w, backward twice
  const double attention = (fused ? 2.0 : 4.0) * tokens * 1024 * width;
  EXPECT_DOUBLE_EQ(sum.forward_attention.count(), attention) << preset;
  EXPECT_DOUBLE_EQ(sum.backward_attention.count(), (fused ? 2.5 : 2.0) * attention) << preset;
}

TEST(GptLayerFlops, AreTwiceTokensTimesMatrices) {
  // qkv 3 h^2, output h^2, MLP 2 x 4 h^2
  expect_layer_flops("pythia-1b", 12.0 * 2048 * 2048, 2048, true);
  expect_layer_flops("gpt-j-6b", 12.0 * 4096 * 4096, 4096, true);
  expect_layer_flops("opt-1.3b", 12.0 * 2048 * 2048, 2048, true);
  expect_layer_flops("opt-350m", 12.0 * 1024 * 1024, 1024, true);
  expect_layer_flops("bloom-560m", 12.0 * 1024 * 1024, 1024, false);
  // qkv h (h + 2 kv_heads x 64), output h^2, MLP 8 h^2
  expect_layer_flops("falcon-7b", 4544.0 * (4544 + 128) + 9 * 4544.0 * 4544, 4544, true);
  expect_layer_flops("falcon-40b", 8192.0 * (8192 + 1024) + 9 * 8192.0 * 8192, 8192, true);
}

TEST(GptLayerFlops, AlibiOfFalconComputesAllPairs) {
  const Model model = model_of(falcon({{"alibi", "true"}}));
  const BatchShape batch{.micro_batch = 1, .sequence = 32};
  // fused, without skipped tiles: 4 T s h
  EXPECT_DOUBLE_EQ(block_sum(model, 0, batch).forward_attention.count(), 4.0 * 32 * 32 * 64);
}

TEST(GptLayerActivations, BloomHasNoFusedAttention) {
  const Model model = load_model("bloom-560m");  // h = 1,024, a = 16
  // two norms and the inputs of qkv, dense and h_to_4h: 5 x 2 h; q, k, v: 6 h; input and result of
  // the activation: 8 h each; fp32 softmax and its cast: 6 a s
  const std::int64_t per_token = 10 * 1024 + 6 * 1024 + 16 * 1024 + 6 * 16 * 512;
  const BatchShape flash{.micro_batch = 2, .sequence = 512};
  EXPECT_EQ(block_sum(model, 0, flash).saved, Bytes(1024 * per_token));
  const BatchShape eager{.micro_batch = 2, .sequence = 512, .flash_attention = false};
  EXPECT_EQ(block_sum(model, 0, eager).saved, Bytes(1024 * per_token));
  // dropout: two masks of h; of the scores fp32 softmax, mask and result: 7 a s
  const BatchShape dropout{.micro_batch = 2, .sequence = 512, .dropout = true};
  EXPECT_EQ(block_sum(model, 0, dropout).saved,
            Bytes(1024 * (per_token + 2 * 1024 + 1 * 16 * 512)));
}

TEST(GptLayerActivations, GptjKeepsOneNormForFourProducts) {
  const Model model = load_model("gpt-j-6b");  // h = 4,096, a = 16
  // the norm's input and its result, once: 4 h; q, k, v: 6 h; output of attention: 2 h; input and
  // result of the activation: 16 h; log-sum-exp: 4 a
  const std::int64_t per_token = 28 * 4096 + 4 * 16;
  const BatchShape batch{.micro_batch = 1, .sequence = 2048};
  EXPECT_EQ(block_sum(model, 0, batch).saved, Bytes(2048 * per_token));
}

TEST(GptLayerActivations, FalconKeepsOneKeyHeadOrCopiesForAll) {
  const BatchShape batch{.micro_batch = 1, .sequence = 2048};
  // 7b: q of 71 heads, k and v of one, 2 B x 64; log-sum-exp 4 B x 71
  const Model small = load_model("falcon-7b");
  EXPECT_EQ(operator_cost(small, *operators_of(small, OperatorKind::Attention, 0)[0], batch).saved,
            Bytes(2048 * (2 * (71 + 2) * 64 + 4 * 71)));
  // 40b: three times 128 heads
  const Model large = load_model("falcon-40b");
  EXPECT_EQ(operator_cost(large, *operators_of(large, OperatorKind::Attention, 0)[0], batch).saved,
            Bytes(2048 * (2 * 3 * 128 * 64 + 4 * 128)));
}

TEST(GptBigCode, HasOneHeadOfKeysAndValuesInLinearLayers) {
  const Model model = parse_model(big_code(), "config.json");
  EXPECT_EQ(module_named(model, "").class_name, "GPTBigCodeForCausalLM");
  EXPECT_EQ(module_named(model, "transformer.h.0.attn.c_attn").class_name, "Linear");
  EXPECT_EQ(model.shape.kv_heads, 1);
  EXPECT_FALSE(model.fp32_logits);
  const auto c_attn = std::find_if(
      model.parameters.begin(), model.parameters.end(),
      [](const Parameter& p) { return p.name == "transformer.h.0.attn.c_attn.weight"; });
  // Queries 64, and a key and a value of 16.
  EXPECT_THAT(c_attn->shape, ElementsAre(96, 64));
  // One causal mask for all layers.
  ASSERT_EQ(model.buffers.size(), 1U);
  EXPECT_EQ(model.buffers[0].elements, 32 * 32);
  const auto caching = [&](const Model& m) {
    return std::count_if(m.operators.begin(), m.operators.end(),
                         [](const Operator& op) { return op.caches_result; });
  };
  EXPECT_EQ(caching(model), 2);
  const Model heads = parse_model(big_code({{"multi_query", "false"}}), "config.json");
  EXPECT_EQ(heads.shape.kv_heads, 4);
}

}  // namespace
}  // namespace zerosim
