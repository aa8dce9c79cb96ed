#include "validate/recorded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/validate/recordings.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RecordingDescription description_of(const std::string& name) {
  return parse_recording_description(test::recording_text(name), name + ".json");
}

/// `text` with one place changed, as a description.
std::string model_error(const std::string& name, const std::string& was, const std::string& is) {
  const std::string text = test::changed(test::recording_text(name), was, is);
  return test::config_error_of(
      [&] { static_cast<void>(recorded_model(parse_recording_description(text, "r.json"))); });
}

class RecordedModels : public testing::TestWithParam<std::string> {};

TEST_P(RecordedModels, AreThoseOfTheirParams) {
  const RecordingDescription description = description_of(GetParam());
  const Model model = recorded_model(description);
  std::int64_t trainable = 0;
  for (const Parameter& parameter : model.parameters) trainable += parameter.trainable ? 1 : 0;
  EXPECT_EQ(trainable + static_cast<std::int64_t>(description.frozen.size()),
            static_cast<std::int64_t>(description.parameters.size()));
}

INSTANTIATE_TEST_SUITE_P(Golden, RecordedModels, testing::ValuesIn(test::recording_names()),
                         [](const auto& run) { return run.param; });

TEST(RecordedModel, PresetWithoutModules) {
  const Model model = recorded_model(description_of("ds_s2_bf16_w2"));
  EXPECT_EQ(model.name, "gpt_small");
  EXPECT_EQ(parameter_count(model), 330'112);
  EXPECT_EQ(model.shape.layers, 4);
}

TEST(RecordedModel, LlamaLayoutIsThatFamily) {
  const Model model = recorded_model(description_of("ds_s2_bf16_llama_gas4_w4"));
  EXPECT_EQ(model.family, "llama");
  EXPECT_EQ(model.shape.layers, 6);
  EXPECT_EQ(model.shape.hidden, 128);
  EXPECT_EQ(model.shape.ffn, 352);
  // k and v are half as wide as q.
  EXPECT_EQ(model.shape.heads, 2 * model.shape.kv_heads);
  EXPECT_EQ(model.modules.front().class_name, "Llama");
}

TEST(RecordedModel, AdaptersWithoutPeftsWrappers) {
  const Model model = recorded_model(description_of("ds_s2_bf16_llama_lora_gas4_w2"));
  EXPECT_EQ(model.modules.front().name, "");
  EXPECT_EQ(model.modules[1].name, "model");
  EXPECT_EQ(model.modules[1].parent, ModuleId(0));
  // 6 layers x (q: 8 (128 + 128) + v: 8 (128 + 64))
  EXPECT_EQ(trainable_parameter_count(model), 6 * (8 * 256 + 8 * 192));
  for (const Module& module : model.modules) {
    EXPECT_EQ(module.name.find("base_model"), std::string::npos) << module.name;
  }
  for (const Parameter& parameter : model.parameters) {
    const Module& owner = model.modules[parameter.owner.index()];
    EXPECT_TRUE(parameter.name.starts_with(owner.name + ".")) << parameter.name;
  }
}

TEST(RecordedModel, TiedHeadListsTheEmbedding) {
  const Model model = recorded_model(description_of("ds_s1_bf16_tied_b20k_w2"));
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.modules.back().name, "head");
  EXPECT_EQ(model.modules.back().parameters, std::vector<ParameterId>{ParameterId(0)});
}

TEST(RecordedModel, HeadWithoutAModuleIsAProductOfTheRoot) {
  std::string text = test::recording_text("ds_s1_bf16_tied_b20k_w2");
  text = test::changed(text, ",\n[\"head\",\"Linear\",[\"wte.weight\"]]", "");
  const Model model = recorded_model(parse_recording_description(text, "r.json"));
  // The last product, before the loss; the embedding's gradient still arrives at its lookup.
  const Operator& product = model.operators[model.operators.size() - 2];
  EXPECT_EQ(product.kind, OperatorKind::Linear);
  EXPECT_EQ(product.module, ModuleId(0));
  EXPECT_EQ(product.outputs, 1000);
  EXPECT_EQ(product.parameters, std::vector<ParameterId>{ParameterId(0)});
  EXPECT_TRUE(product.gradients.empty());
}

TEST(RecordedModel, MixtureOfExperts) {
  const Model model = recorded_model(description_of("ds_s2_bf16_moe_some_b20k_w2"));
  ASSERT_EQ(model.moe_blocks.size(), 3U);
  EXPECT_EQ(model.moe_blocks[1].experts, 8);
  EXPECT_EQ(model.moe_blocks[1].experts_per_token, 2);  // 128 tokens of 2 x 32
  EXPECT_EQ(model.modules[model.moe_blocks[1].module.index()].name, "h.1.mlp");
}

TEST(RecordedModel, Frozen) {
  const Model model = recorded_model(description_of("ds_s2_bf16_headonly_gas4_w4"));
  EXPECT_EQ(trainable_parameter_count(model), 64'000);
}

TEST(RecordedModel, NamesTheFirstDifference) {
  EXPECT_EQ(
      model_error("ds_s2_bf16_w2", R"(["wpe.weight",[32,64],2048)",
                  R"(["wpe.weight",[16,64],1024)"),
      "r.json:9:1: params: parameter 1 is \"wpe.weight\" (16 x 64), but \"wpe.weight\" (32 x 64) "
      "in the model built for it");
  EXPECT_EQ(
      model_error("ds_s2_bf16_w2", ",\n[\"head.weight\",[1000,64],64000,\"head\"]", ""),
      "r.json:7:10: params: parameter 52 is none, but \"head.weight\" (1000 x 64) in the model "
      "built for it");
  const std::string norm = R"(["model.norm","RMSNorm",["model.norm.weight"]])";
  EXPECT_EQ(model_error("ds_s2_bf16_llama_gas4_w4", norm,
                        R"(["model.nrm","RMSNorm",["model.norm.weight"]])"),
            "r.json:150:1: modules: \"model.nrm\" (RMSNorm) is not in the model built for it");
  EXPECT_EQ(model_error("ds_s2_bf16_llama_gas4_w4", norm + ",\n", ""),
            "r.json:67:11: modules: lacks \"model.norm\" of the model built for it");
}

TEST(RecordedModel, RefusesWhatItCannotKnow) {
  EXPECT_EQ(model_error("ds_s2_bf16_w2", R"("model":"gpt_small")", R"("model":"gpt_smal")"),
            "r.json:5:46: spec.model: found \"gpt_smal\", expected a preset, as there is no key "
            "\"modules\"; did you mean \"gpt_small\"?");
  EXPECT_THAT(model_error("ds_s2_bf16_headonly_gas4_w4", "\"frozen\":[", "\"frozen\":[\n\"x\","),
              HasSubstr(":1: frozen: \"x\" is none of params"));
  EXPECT_THAT(model_error("ds_s2_bf16_moe_some_b20k_w2", "[25,24,0,29,27,0,23,0]",
                          "[25,24,0,29,27,0,23,1]"),
              HasSubstr("routing of \"h.0.mlp\": found 129 tokens, expected a multiple of the 2 x "
                        "32 of a micro batch"));
}

TEST(RecordedModel, NamesThePlaceOfWhatAWholeListLacks) {
  const std::string moe = "ds_s2_bf16_moe_some_b20k_w2";
  const std::string text = test::recording_text(moe);
  const std::size_t row = text.find("[\"h.0.mlp\",");
  ASSERT_NE(row, std::string::npos);
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(row), '\n');
  EXPECT_EQ(
      model_error(moe, "\"routing\":[", "\"routing\":[],\"other\":["),
      format("r.json:{}:1: routing: missing for \"h.0.mlp\", expected the tokens of each of its "
             "experts",
             line));
}

// 128 tokens of h.0.mlp: 2 x 32 x top 2; rows of wpe and the configuration may say otherwise.
TEST(RecordedModel, ExpertsOfATokenFollowTheMicroBatch) {
  const auto experts = [](const std::string& was, const std::string& is) {
    const std::string text =
        test::changed(test::recording_text("ds_s2_bf16_moe_some_b20k_w2"), was, is);
    return recorded_model(parse_recording_description(text, "r.json"))
        .moe_blocks.front()
        .experts_per_token;
  };
  const std::string micro = "\"train_micro_batch_size_per_gpu\":2";
  EXPECT_EQ(experts(micro, "\"train_micro_batch_size_per_gpu\":1"), 4);  // 128 / (1 x 32)
  EXPECT_EQ(experts(micro, "\"train_batch_size\":8"), 1);  // 8 / (2 ranks x 1) = 4 rows
  EXPECT_EQ(experts(micro + ",\"gradient_accumulation_steps\":1",
                    "\"train_batch_size\":16,\"gradient_accumulation_steps\":4"),
            2);  // 16 / (2 ranks x 4) = 2 rows
  EXPECT_EQ(experts(R"(["wpe.weight",[32,64],2048,)", R"(["wpe.weight",[16,64],1024,)"), 4);
  EXPECT_THAT(
      model_error("ds_s2_bf16_moe_some_b20k_w2", micro, "\"train_micro_batch_size_per_gpu\":3"),
      HasSubstr("found 128 tokens, expected a multiple of the 3 x 32 of a micro batch"));
}

TEST(RecordedProgram, ListsWhatRecordingsDoNotSay) {
  const auto assumptions = [](const std::string& name) {
    return recorded_program(description_of(name)).assumptions;
  };
  EXPECT_THAT(assumptions("ds_s2_bf16_w2"), Contains("sequence 32: the rows of \"wpe.weight\""));
  EXPECT_THAT(assumptions("ds_s2_bf16_w2"), Not(Contains(StartsWith("micro batch"))));
  EXPECT_THAT(
      assumptions("ds_s2_bf16_llama_gas4_w4"),
      Contains("sequence 32: recordings do not say it, and there is no table of positions"));
  EXPECT_THAT(assumptions("ddp_fp32_w2"),
              Contains("micro batch 2: recordings of DDP do not say it"));
}

TEST(RecordedStrategy, DeepSpeed) {
  RecordingDescription description = description_of("ds_s1_bf16_twogroups_w4");
  description.spec.checkpointing = ActivationCheckpointing::Full;
  description.spec.zero_init = ZeroInit::Zero;
  description.spec.leaf_classes = {"Block"};
  const Strategy strategy = recorded_strategy(description, recorded_model(description));
  EXPECT_EQ(strategy.framework, Framework::DeepSpeed);
  EXPECT_EQ(strategy.zero.stage, 1);
  EXPECT_EQ(strategy.version, "0.19");
  EXPECT_EQ(strategy.torch_version, "1.13");
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.optimizer_groups, OptimizerGroups::ByDimension);
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
  EXPECT_TRUE(strategy.zero_init);
  EXPECT_THAT(strategy.zero.leaf_module_classes, Contains("Block"));
  description = description_of("ds014_s1_bf16_b20k_w2");
  const Strategy earlier = recorded_strategy(description, recorded_model(description));
  EXPECT_EQ(earlier.version, "0.14");
  EXPECT_FALSE(earlier.zero_init);
}

TEST(RecordedStrategy, Ddp) {
  RecordingDescription description = description_of("ddp_fp32_large_cap5_gas4_w2");
  const Strategy strategy = recorded_strategy(description, recorded_model(description));
  EXPECT_EQ(strategy.framework, Framework::Ddp);
  EXPECT_EQ(strategy.precision, Precision::Fp32);
  EXPECT_EQ(strategy.grad_accum, 4);
  EXPECT_EQ(strategy.ddp.bucket_cap_mib, 5);
  EXPECT_TRUE(strategy.ddp.no_sync);
  EXPECT_EQ(strategy.ddp.parameter_dtype, Dtype::F32);
  description.spec.ddp.parameter_dtype = Dtype::Bf16;
  description.spec.no_sync = false;
  description.spec.ddp.broadcast_buffers = false;
  description.spec.grad_accum.reset();
  const Strategy cast = recorded_strategy(description, Model());
  EXPECT_EQ(cast.ddp.parameter_dtype, Dtype::Bf16);
  EXPECT_FALSE(cast.ddp.no_sync);
  EXPECT_EQ(cast.grad_accum, 1);
  EXPECT_TRUE(strategy.ddp.broadcast_buffers);
  EXPECT_FALSE(cast.ddp.broadcast_buffers);
}

TEST(RecordedStrategy, OverflowStepsAreOfFp16) {
  const auto steps = [](const std::string& name) {
    const RecordingDescription description = description_of(name);
    return recorded_strategy(description, recorded_model(description), 3).overflow_steps;
  };
  EXPECT_EQ(steps("ds_s1_fp16_clip_w2"), 3);
  EXPECT_EQ(steps("ds_s1_bf16_w2"), 0);
  EXPECT_EQ(steps("ddp_fp32_w2"), 0);
  RecordingDescription description = description_of("ddp_fp32_w2");
  description.spec.ddp.parameter_dtype = Dtype::F16;
  EXPECT_EQ(recorded_strategy(description, recorded_model(description), 3).overflow_steps, 3);
}

TEST(RecordedStrategy, BadInput) {
  const auto message = [](const std::string& was, const std::string& is) {
    const std::string text = test::changed(test::recording_text("ds_s2_bf16_w2"), was, is);
    return test::config_error_of([&] {
      static_cast<void>(
          recorded_strategy(parse_recording_description(text, "r.json"), load_model("gpt_small")));
    });
  };
  // The place is that in the recording: "ds_config": takes 12 columns.
  EXPECT_THAT(message(R"("stage":2)", R"("stage":7)"), HasSubstr("r.json:6:"));
  EXPECT_THAT(message("1.13.0a0", "1.12.0"),
              HasSubstr("versions.torch: found \"1.12.0\", expected 1.13 or 2"));
  EXPECT_THAT(message("1.13.0a0", "1.12.0"), StartsWith("r.json:4:"));
  EXPECT_EQ(
      message("v0.19.5", "v0.18.5"),
      "r.json:4:25: versions.deepspeed: found \"0.18.5\", expected 0.3, 0.4, 0.5, 0.14 or 0.19");
  EXPECT_EQ(message("\"gas\":1", "\"gas\":4"),
            "r.json:5:64: spec.gas: found 4, but by ds_config gradient_accumulation_steps is 1");
}

}  // namespace
}  // namespace zerosim
