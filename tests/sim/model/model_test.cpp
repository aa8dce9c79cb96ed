#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/model/trainable.h"
#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using testing::HasSubstr;

std::string load_error(const std::string& name) {
  try {
    static_cast<void>(load_model(name));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LoadModel, UnknownNameGivesTheNearestPreset) {
  EXPECT_THAT(load_error("lama-2-7b"),
              testing::StartsWith("model \"lama-2-7b\" is no preset and no file; did you mean "
                                  "\"llama-2-7b\"?; presets: "));
  EXPECT_THAT(load_error("/no/such/config.json"), HasSubstr("is no preset and no file"));
}

TEST(LoadModel, ExampleConfigIsThePreset) {
  const Model model = load_model(std::string(ZEROSIM_SOURCE_DIR) + "/examples/llama-2-7b.json");
  EXPECT_EQ(model.name, "llama-2-7b");
  EXPECT_EQ(parameter_count(model), 6'738'415'616);
  EXPECT_TRUE(model.assumptions.empty());
}

TEST(LoadModel, AFolderStandsForItsConfig) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "zerosim_model_test" / "my-gpt";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json")
      << R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2})";
  EXPECT_EQ(load_model(folder.string()).name, "my-gpt");
  EXPECT_EQ(load_model((folder / "config.json").string()).name, "my-gpt");
  std::filesystem::remove_all(folder);
}

TEST(LoadModel, PresetLines) {
  const std::vector<std::string> lines = model_presets();
  EXPECT_THAT(lines, testing::Contains("gpt2                  124439808 parameters"));
  EXPECT_EQ(lines.size(), model_preset_names().size());
}

TEST(ParseModel, SaysWhatAFileMustBe) {
  EXPECT_EQ(test::error_of("{\"hidden_size\": 4}"),
            "config.json:1:1: model_type: missing, expected a Hugging Face config.json, whose "
            "model_type names the family (\"llama\"), or a module listing (\"format\": "
            "\"zerosim.module_listing\")");
  EXPECT_THAT(test::error_of("[1, 2]"), HasSubstr("config.json:1:1"));
  EXPECT_THAT(test::error_of("{\"model_type\": "), HasSubstr("config.json:1:"));
  EXPECT_THAT(test::error_of(""), HasSubstr("config.json"));
}

TEST(ParseModel, Blocks) {
  const Model model = load_model("llama-2-7b");
  EXPECT_EQ(model.shape.layers, 32);
  EXPECT_EQ(test::module_named(model, "model.embed_tokens").block, -1);
  EXPECT_EQ(test::module_named(model, "model.layers.7").block, 7);
  EXPECT_EQ(test::module_named(model, "model.layers.7.mlp.act_fn").block, 7);
  EXPECT_EQ(test::module_named(model, "model.norm").block, -1);
  EXPECT_EQ(test::module_named(model, "lm_head").block, -1);
}

TEST(ParseModel, OperationsBelongToTheModuleThatRunsThem) {
  const Model model = load_model("llama-2-7b");
  const auto module_of = [&](OperatorKind kind) {
    for (const Operator& op : model.operators) {
      if (op.kind == kind) return model.modules[op.module.index()].name;
    }
    return std::string("none");
  };
  EXPECT_EQ(module_of(OperatorKind::ResidualAdd), "model.layers.0");
  EXPECT_EQ(module_of(OperatorKind::Multiply), "model.layers.0.mlp");
  EXPECT_EQ(module_of(OperatorKind::Attention), "model.layers.0.self_attn");
  EXPECT_EQ(module_of(OperatorKind::Rotary), "model.layers.0.self_attn");
  EXPECT_EQ(module_of(OperatorKind::CrossEntropy), "");
  // The loss is the last thing before the root's exit.
  EXPECT_EQ(model.forward[model.forward.size() - 2].kind, ExecutionStep::Kind::Compute);
}

/// "module.name elements type" of each buffer.
std::vector<std::string> buffers_of(const Model& model) {
  std::vector<std::string> lines;
  for (const ModuleBuffer& buffer : model.buffers) {
    lines.push_back(format("{}.{} {} {}", model.modules[buffer.module.index()].name, buffer.name,
                           buffer.elements, to_string(buffer.dtype)));
  }
  return lines;
}

// transformers 4.57. Llama 2: one inverse frequency for each pair of the 128 elements of a head;
// GPT-NeoX 20B rotates 24 (a quarter of 96) of them, DeepSeek V2 64. PEFT keeps them.
TEST(Buffers, AreThoseThatTransformersRegisters) {
  EXPECT_THAT(buffers_of(load_model("llama-2-7b")),
              ::testing::ElementsAre("model.rotary_emb.inv_freq 64 f32"));
  EXPECT_THAT(buffers_of(load_model("gpt-neox-20b")),
              ::testing::ElementsAre("gpt_neox.rotary_emb.inv_freq 12 f32"));
  EXPECT_THAT(buffers_of(load_model("deepseek-v2-lite")),
              ::testing::ElementsAre("model.rotary_emb.inv_freq 32 f32"));
  TrainableOptions lora;
  lora.has_lora = true;
  lora.lora = {.rank = 8, .targets = {"q_proj"}, .dropout = false};
  EXPECT_THAT(buffers_of(with_trainable(load_model("llama-2-7b"), lora)),
              ::testing::ElementsAre("base_model.model.model.rotary_emb.inv_freq 64 f32"));
  const std::vector<std::string> gpt2 = buffers_of(load_model("gpt2"));
  ASSERT_EQ(gpt2.size(), 24U);  // a mask of 1024 x 1024 and a number in each of 12 layers
  EXPECT_EQ(gpt2[0], "transformer.h.0.attn.bias 1048576 u8");
  EXPECT_EQ(gpt2[1], "transformer.h.0.attn.masked_bias 1 f32");
  EXPECT_THAT(buffers_of(load_model("bert-large")),
              ::testing::ElementsAre("embeddings.position_ids 512 i64",
                                     "embeddings.token_type_ids 512 i64"));
}

}  // namespace
}  // namespace zerosim
