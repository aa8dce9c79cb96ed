// Adapters and frozen parameters.

#include "sim/model/trainable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TrainableOptions lora(const std::string& text) {
  TrainableOptions options;
  options.has_lora = true;
  options.lora = parse_lora(text, "--lora");
  return options;
}

std::string error_of(const Model& model, const TrainableOptions& options) {
  try {
    static_cast<void>(with_trainable(model, options));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text) {
  try {
    static_cast<void>(parse_lora(text, "--lora"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lora, AddsRankTimesInAndOut) {
  const Model model = load_model("llama-3-8b");
  const Model adapted = with_trainable(model, lora("rank=8,targets=q_proj,v_proj"));
  // 32 layers x 8 x (q: 4096 + 4096, v: 4096 + 1024) = 3,407,872: what PEFT prints for this model
  EXPECT_EQ(trainable_parameter_count(adapted), 32 * 8 * (4096 + 4096 + 4096 + 1024));
  EXPECT_EQ(trainable_parameter_count(adapted), 3'407'872);
  EXPECT_EQ(parameter_count(adapted), parameter_count(model) + 3'407'872);
}

TEST(Lora, NamesAndOrderAsPeft) {
  const Model adapted =
      with_trainable(load_model("llama-3.2-1b"), lora("r=4,target_modules=q_proj"));
  const std::vector<std::string> names = test::parameter_names(adapted);
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.begin() + 5),
              ElementsAre("base_model.model.model.embed_tokens.weight",
                          "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight",
                          "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight",
                          "base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight",
                          "base_model.model.model.layers.0.self_attn.k_proj.weight"));
  EXPECT_EQ(adapted.parameters[2].shape, (std::vector<std::int64_t>{4, 2048}));
  EXPECT_EQ(adapted.parameters[3].shape, (std::vector<std::int64_t>{2048, 4}));
  EXPECT_FALSE(adapted.parameters[1].trainable);
  EXPECT_TRUE(adapted.parameters[2].trainable);
  EXPECT_EQ(adapted.modules[0].class_name, "PeftModel");
  EXPECT_EQ(adapted.modules[1].name, "base_model");
  EXPECT_TRUE(adapted.tied_embeddings);
}

TEST(Lora, BiasesBelongToTheBaseLayer) {
  const Model adapted = with_trainable(load_model("gpt2"), lora("rank=8"));
  const std::vector<std::string> names = test::parameter_names(adapted);
  EXPECT_EQ(names[4], "base_model.model.transformer.h.0.attn.c_attn.base_layer.weight");
  EXPECT_EQ(names[5], "base_model.model.transformer.h.0.attn.c_attn.base_layer.bias");
  EXPECT_EQ(names[6], "base_model.model.transformer.h.0.attn.c_attn.lora_A.default.weight");
  EXPECT_THAT(adapted.assumptions,
              testing::Contains(HasSubstr("LoRA targets: c_attn, PEFT's default for gpt2")));
  // 12 layers x 8 x (768 + 2304)
  EXPECT_EQ(trainable_parameter_count(adapted), 12 * 8 * (768 + 2304));
}

TEST(Lora, AllLinearLeavesOutTheHead) {
  const Model adapted = with_trainable(load_model("llama-2-7b"), lora("rank=1,targets=all-linear"));
  // q, k, v, o: 2 x 4096 each; gate, up, down: 4096 + 11008 each
  EXPECT_EQ(trainable_parameter_count(adapted), 32 * (4 * 2 * 4096 + 3 * (4096 + 11008)));
}

TEST(Lora, ExpertsCanBeAdapted) {
  const Model adapted = with_trainable(load_model("mixtral-8x7b"), lora("rank=2,targets=w1"));
  EXPECT_EQ(trainable_parameter_count(adapted), 32 * 8 * 2 * (4096 + 14336));
  EXPECT_EQ(adapted.moe_blocks.size(), 32U);
  // all adapters of the two experts that a token goes to, and what else acts on it
  EXPECT_EQ(active_parameter_count(adapted), 12'879'925'248 + 32 * 2 * 2 * (4096 + 14336));
}

TEST(Lora, TheRouterOfDeepSeekIsNoLinear) {
  const Model adapted =
      with_trainable(load_model("deepseek-v2-lite"), lora("rank=1,targets=all-linear"));
  for (const Parameter& parameter : adapted.parameters) {
    EXPECT_EQ(parameter.name.find("mlp.gate.lora"), std::string::npos) << parameter.name;
  }
}

TEST(Lora, AProductOfTheBatchItself) {
  const Model listing = parse_model(
      R"({"format": "zerosim.module_listing", "version": 1, "modules": [
          {"name": "", "class": "Net"},
          {"name": "fc", "class": "Linear",
           "parameters": [{"name": "fc.weight", "shape": [4, 8]}]}]})",
      "net.json");
  const Model adapted = with_trainable(listing, lora("rank=2,targets=fc"));
  EXPECT_EQ(trainable_parameter_count(adapted), 2 * (8 + 4));
}

TEST(Lora, FrozenProductsKeepNoInput) {
  const BatchShape batch{.micro_batch = 1, .sequence = 128};
  const Model model = load_model("llama-2-7b");
  const Model adapted = with_trainable(model, lora("rank=8,targets=q_proj,v_proj"));
  // Of E5's 12 h + 4 h_kv + 8 f + 4 a + 8 h a token of HF's Llama remain: norms keep their fp32
  // input, 4 h each (no weight's gradient needs the normalised output); q, k, v 2 h each;
  // the log-sum-exp 4 a; silu's input and the two factors of its product 6 f. The norm's output
  // (2 h, for lora_A), and lora_B's input of each adapter, 2 x 8.
  const std::int64_t h = 4096;
  const std::int64_t per_token = 8 * h + 6 * h + 4 * 32 + 6 * 11008 + 2 * h + 2 * 2 * 8;
  EXPECT_EQ(test::block_sum(adapted, 1, batch).saved, Bytes(128 * per_token));
}

TEST(Patterns, FreezeAndTrainOnly) {
  const Model model = load_model("gpt2");
  TrainableOptions options;
  options.freeze = {"transformer.wte", "*.bias"};
  const Model frozen = with_trainable(model, options);
  for (const Parameter& parameter : frozen.parameters) {
    const bool bias = parameter.name.ends_with(".bias");
    EXPECT_EQ(parameter.trainable, !bias && parameter.name != "transformer.wte.weight")
        << parameter.name;
  }
  options.freeze = {};
  options.train_only = {"transformer.h.1?"};
  // layers 10 and 11 of 7,087,872 parameters each
  EXPECT_EQ(trainable_parameter_count(with_trainable(model, options)), 2 * 7'087'872);
  options.freeze = {"*.mlp"};
  EXPECT_EQ(trainable_parameter_count(with_trainable(model, options)), 2 * 2'365'440);
}

TEST(Patterns, BackwardStopsBelowTheLastThatTrains) {
  TrainableOptions options;
  options.train_only = {"lm_head"};
  const Model model = with_trainable(load_model("llama-2-7b"), options);
  const BatchShape batch{.micro_batch = 1, .sequence = 128};
  const test::BlockSum block = test::block_sum(model, 31, batch);
  EXPECT_EQ(block.backward_gemm.count(), 0);
  EXPECT_EQ(block.saved, Bytes(0));
  // rule 79: only the root and the head have hooks in the backward
  std::vector<std::string> hooked;
  for (const Module& module : model.modules) {
    if (module.gradient_output) hooked.push_back(module.name);
  }
  EXPECT_THAT(hooked, ElementsAre("", "lm_head"));
  EXPECT_FALSE(test::module_named(model, "lm_head").positional_gradient_input);
}

TEST(BadInput, NamesThatMatchNothing) {
  const Model model = load_model("llama-2-7b");
  EXPECT_THAT(error_of(model, lora("targets=q_prj")),
              HasSubstr("--lora: no product is called \"q_prj\", expected all-linear or some of "
                        "down_proj, gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj; "
                        "did you mean \"q_proj\"?"));
  TrainableOptions options;
  options.freeze = {"model.embed_token.weight"};
  EXPECT_THAT(
      error_of(model, options),
      HasSubstr("--freeze: no parameter or module matches \"model.embed_token.weight\"; did "
                "you mean \"model.embed_tokens.weight\"?"));
  options.freeze = {"*"};
  EXPECT_THAT(error_of(model, options), HasSubstr("no parameter is left to train"));
  EXPECT_THAT(error_of(load_model("deepseek-v2-lite"), lora("rank=8")),
              HasSubstr("PEFT has no default targets for \"deepseek_v2\""));
}

TEST(BadInput, LoraText) {
  EXPECT_THAT(parse_error("rank=0"), HasSubstr("--lora: found rank=0, expected 1 to 1048576"));
  EXPECT_THAT(parse_error("rank=x"), HasSubstr("found rank=x, expected 1 to"));
  EXPECT_THAT(parse_error("rnk=8"), HasSubstr("found \"rnk\", expected rank=N,targets=NAME,NAME; "
                                              "did you mean \"rank\"?"));
  EXPECT_THAT(parse_error("8"), HasSubstr("found \"8\", expected rank=N"));
  const LoraOptions options =
      parse_lora("r=16,targets=q_proj;v_proj,o_proj,lora_dropout=0.1", "--lora");
  EXPECT_EQ(options.rank, 16);
  EXPECT_THAT(options.targets, ElementsAre("q_proj", "v_proj", "o_proj"));
  EXPECT_TRUE(options.dropout);
}

}  // namespace
}  // namespace zerosim
