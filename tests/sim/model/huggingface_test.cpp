#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using test::error_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// A small Llama config; `changes` replace or, with "", remove keys.
std::string config(const std::map<std::string, std::string>& changes = {}) {
  std::map<std::string, std::string> keys = {
      {"model_type", "\"llama\""},  {"hidden_size", "64"},
      {"intermediate_size", "160"}, {"num_hidden_layers", "2"},
      {"num_attention_heads", "4"}, {"num_key_value_heads", "2"},
      {"vocab_size", "100"},        {"max_position_embeddings", "32"},
      {"hidden_act", "\"silu\""},   {"tie_word_embeddings", "false"}};
  for (const auto& [key, value] : changes) keys[key] = value;
  std::vector<std::string> members;
  for (const auto& [key, value] : keys) {
    if (!value.empty()) members.push_back(format("\"{}\": {}", key, value));
  }
  return "{\n" + join(members, ",\n") + "\n}";
}

Model model_of(const std::map<std::string, std::string>& changes) {
  return parse_model(config(changes), "config.json");
}

bool has_parameter(const Model& model, const std::string& name) {
  const std::vector<std::string> names = test::parameter_names(model);
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(HuggingFace, RealKeysThatChangeNothingAreIgnored) {
  const Model plain = model_of({});
  const Model full = model_of({{"rope_theta", "500000.0"},
                               {"rope_scaling", R"({"factor": 8.0, "rope_type": "llama3"})"},
                               {"bos_token_id", "128000"},
                               {"eos_token_id", "[128001, 128008]"},
                               {"initializer_range", "0.02"},
                               {"pretraining_tp", "1"},
                               {"rms_norm_eps", "1e-05"},
                               {"torch_dtype", "\"bfloat16\""},
                               {"transformers_version", "\"4.40.0\""},
                               {"use_cache", "true"},
                               {"_name_or_path", "\"x\""},
                               {"architectures", "[\"LlamaForCausalLM\"]"},
                               {"quantization_config", "null"},
                               {"head_dim", "null"}});
  EXPECT_EQ(parameter_count(full), parameter_count(plain));
  EXPECT_EQ(full.modules.size(), plain.modules.size());
}

TEST(HuggingFace, MissingSizes) {
  EXPECT_EQ(error_of(config({{"hidden_size", ""}})),
            "config.json:1:1: hidden_size: missing, expected the width of the residual stream");
  EXPECT_EQ(
      error_of(config({{"num_hidden_layers", ""}})),
      "config.json:1:1: num_hidden_layers: missing, expected the number of transformer layers");
  EXPECT_EQ(
      error_of(config({{"num_attention_heads", "null"}})),
      "config.json:7:24: num_attention_heads: missing, expected the number of attention heads");
  // a misspelt key is named
  EXPECT_EQ(
      error_of(config({{"intermediate_size", ""}, {"intermediat_size", "160"}})),
      "config.json:1:1: intermediate_size: missing, expected the width of the MLP; did you mean "
      "\"intermediat_size\"?");
  EXPECT_EQ(error_of(R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2})"),
            "config.json:1:1: n_layer: missing, expected the number of transformer layers");
}

TEST(HuggingFace, WrongTypesAndSizes) {
  EXPECT_THAT(error_of(config({{"hidden_size", "\"64\""}})),
              HasSubstr("config.json:3:16: hidden_size: found"));
  EXPECT_THAT(error_of(config({{"hidden_size", "64.5"}})), HasSubstr("expected an integer"));
  EXPECT_EQ(error_of(config({{"hidden_size", "0"}})),
            "config.json:3:16: hidden_size: found 0, expected 1 to 2147483648: the width of the "
            "residual stream");
  EXPECT_THAT(error_of(config({{"num_hidden_layers", "-2"}})),
              HasSubstr("num_hidden_layers: found -2, expected 1 to 10000"));
  EXPECT_THAT(error_of(config({{"num_hidden_layers", "1000000000"}})),
              HasSubstr("num_hidden_layers: found 1000000000, expected 1 to 10000"));
  EXPECT_THAT(error_of(config({{"tie_word_embeddings", "1"}})),
              HasSubstr("tie_word_embeddings: found 1, expected true or false"));
  EXPECT_THAT(error_of(config({{"model_type", "7"}})), HasSubstr("model_type: found 7"));
  EXPECT_THAT(error_of(config({{"hidden_size", "2147483648"},
                               {"intermediate_size", "2147483648"},
                               {"num_hidden_layers", "10000"}})),
              HasSubstr("more"));
}

TEST(HuggingFace, HeadsMustDivide) {
  EXPECT_EQ(error_of(config({{"num_attention_heads", "5"}, {"num_key_value_heads", "5"}})),
            "config.json:7:24: num_attention_heads: 5 does not divide hidden_size = 64, expected a "
            "divisor or a key head_dim");
  EXPECT_EQ(
      model_of({{"num_attention_heads", "5"}, {"num_key_value_heads", "5"}, {"head_dim", "16"}})
          .shape.head_dim,
      16);
  EXPECT_THAT(error_of(config({{"num_key_value_heads", "3"}})),
              HasSubstr("num_key_value_heads: 3 does not divide num_attention_heads = 4"));
  EXPECT_THAT(error_of(R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 3})"),
              HasSubstr("config.json:1:61: n_head: 3 does not divide the width 8"));
}

TEST(HuggingFace, UnsupportedFamilies) {
  const std::string error = error_of(config({{"model_type", "\"lama\""}}));
  EXPECT_THAT(error,
              testing::StartsWith(
                  "config.json:6:15: model_type: found \"lama\", expected one of baichuan, "));
  EXPECT_THAT(error, HasSubstr(", llama, mistral, mixtral, "));
  EXPECT_THAT(error, testing::EndsWith("; did you mean \"llama\"?; a module listing describes any "
                                       "other model"));
  EXPECT_THAT(error_of(config({{"hidden_act", "\"sillu\""}})), HasSubstr("did you mean \"silu\"?"));
}

TEST(HuggingFace, DefaultsAreListed) {
  const Model model = parse_model(R"({"model_type": "llama", "hidden_size": 64,
      "intermediate_size": 160, "num_hidden_layers": 1, "num_attention_heads": 4})",
                                  "config.json");
  EXPECT_EQ(model.shape.kv_heads, 4);
  EXPECT_EQ(model.shape.vocab, 32000);
  EXPECT_THAT(
      model.assumptions,
      ElementsAre("num_key_value_heads = 4: not in the config, as many as attention heads",
                  "vocab_size = 32000: not in the config, Hugging Face's default",
                  "max_position_embeddings = 2048: not in the config, Hugging Face's default",
                  "hidden_act = silu: not in the config, Hugging Face's default",
                  "tie_word_embeddings = false: not in the config, Hugging Face's default"));
}

TEST(HuggingFace, DefaultsDifferByFamily) {
  // MistralConfig: 8 key and value heads, window 4096. Qwen3Config: head_dim 128.
  const Model mistral = model_of(
      {{"model_type", "\"mistral\""}, {"num_attention_heads", "16"}, {"num_key_value_heads", ""}});
  EXPECT_EQ(mistral.shape.kv_heads, 8);
  EXPECT_EQ(mistral.shape.window, 4096);
  const Model qwen3 = model_of({{"model_type", "\"qwen3\""}});
  EXPECT_EQ(qwen3.shape.head_dim, 128);
  // null means as many as heads
  EXPECT_EQ(
      model_of({{"model_type", "\"mistral\""}, {"num_key_value_heads", "null"}}).shape.kv_heads, 4);
  EXPECT_EQ(model_of({{"model_type", "\"mistral\""}, {"sliding_window", "null"}}).shape.window, 0);
}

TEST(HuggingFace, Biases) {
  const Model plain = model_of({});
  EXPECT_FALSE(has_parameter(plain, "model.layers.0.self_attn.q_proj.bias"));
  const Model attention = model_of({{"attention_bias", "true"}});
  EXPECT_TRUE(has_parameter(attention, "model.layers.0.self_attn.o_proj.bias"));
  EXPECT_FALSE(has_parameter(attention, "model.layers.0.mlp.up_proj.bias"));
  // q 64 + k 32 + v 32 + o 64 in each of two layers
  EXPECT_EQ(parameter_count(attention) - parameter_count(plain), 2 * 192);
  const Model mlp = model_of({{"mlp_bias", "true"}});
  EXPECT_EQ(parameter_count(mlp) - parameter_count(plain), 2 * (160 + 160 + 64));
  // Qwen2: q, k and v always, o never
  const Model qwen2 = model_of({{"model_type", "\"qwen2\""}});
  EXPECT_EQ(parameter_count(qwen2) - parameter_count(plain), 2 * 128);
  EXPECT_EQ(test::parameter_names(qwen2)[2], "model.layers.0.self_attn.q_proj.bias");
}

TEST(HuggingFace, TiedEmbeddings) {
  const Model model = model_of({{"tie_word_embeddings", "true"}});
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(parameter_count(model_of({})) - parameter_count(model), 100 * 64);
  const Module& head = test::module_named(model, "lm_head");
  ASSERT_EQ(head.parameters.size(), 1U);
  const Parameter& shared = model.parameters[head.parameters[0].index()];
  EXPECT_EQ(shared.name, "model.embed_tokens.weight");
  EXPECT_EQ(model.modules[shared.owner.index()].name, "model.embed_tokens");
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

TEST(HuggingFace, WindowsOfQwen) {
  // off unless use_sliding_window
  EXPECT_THAT(windows(model_of({{"model_type", "\"qwen2\""}, {"sliding_window", "16"}})),
              ElementsAre(0, 0));
  EXPECT_THAT(windows(model_of({{"model_type", "\"qwen2\""},
                                {"use_sliding_window", "true"},
                                {"sliding_window", "16"},
                                {"max_window_layers", "1"}})),
              ElementsAre(0, 16));
  EXPECT_THAT(windows(model_of({{"model_type", "\"qwen3\""},
                                {"use_sliding_window", "true"},
                                {"sliding_window", "16"},
                                {"layer_types", R"(["sliding_attention", "full_attention"])"}})),
              ElementsAre(16, 0));
  EXPECT_THAT(
      error_of(config({{"model_type", "\"qwen3\""},
                       {"use_sliding_window", "true"},
                       {"sliding_window", "16"},
                       {"layer_types", R"(["full_attention"])"}})),
      HasSubstr("layer_types: found 1 entries, expected one for each of num_hidden_layers = 2"));
}

TEST(HuggingFace, ClassNames) {
  const Model model = model_of({{"model_type", "\"qwen2\""}});
  EXPECT_EQ(model.modules[0].class_name, "Qwen2ForCausalLM");
  EXPECT_EQ(test::module_named(model, "model.layers.0").class_name, "Qwen2DecoderLayer");
  EXPECT_EQ(test::module_named(model, "model.layers.0.mlp.act_fn").class_name, "SiLU");
}

TEST(HuggingFace, OtherHeadsAreNoted) {
  const Model model = model_of({{"architectures", "[\"LlamaForSequenceClassification\"]"}});
  EXPECT_THAT(model.assumptions, Contains(HasSubstr("built as LlamaForCausalLM")));
}

TEST(HuggingFace, Gpt2TakesBothNamesOfItsKeys) {
  const Model model = parse_model(R"({"model_type": "gpt2", "hidden_size": 768,
      "num_hidden_layers": 12, "num_attention_heads": 12, "n_ctx": 1024, "n_inner": null})",
                                  "config.json");
  EXPECT_EQ(parameter_count(model), 124'439'808);
  EXPECT_THAT(model.assumptions, Contains("n_inner = 3072: not in the config, 4 x n_embd"));
  EXPECT_THAT(error_of(R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2,
                           "add_cross_attention": true})"),
              HasSubstr("config.json:2:51: add_cross_attention: found true"));
}

}  // namespace
}  // namespace zerosim
