// zerosim check: verdict, resolved values with their origin, warnings; exit 0, 1, 2.

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;

std::string config(const std::string& name) {
  return std::string(ZEROSIM_TEST_DATA) + "/ds_configs/" + name;
}

TEST(CheckCommand, AFileThatDoesWhatItSays) {
  const Outcome outcome = run_zerosim({"check", config("01_minimal_z2.json"), "--gpus", "8"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("01_minimal_z2.json: ok, for 8 GPUs\n"));
}

TEST(CheckCommand, ValuesOriginsAndTypes) {
  const JsonDocument json =
      zerosim_json({"check", config("02_hf_auto_z3.json"), "--model", "llama-2-7b", "--gpus", "8",
                    "--micro-batch", "1", "--grad-accum", "1", "--precision", "bf16"});
  const JsonValue& root = json.root();
  EXPECT_EQ(root["verdict"], "ok");
  EXPECT_EQ(root["framework"], "deepspeed");
  // hidden 4096: hidden^2, int(0.9 hidden^2), 10 hidden (A6)
  const JsonValue& resolved = root["resolved"];
  EXPECT_EQ(resolved["zero_optimization.reduce_bucket_size"], 16'777'216);
  EXPECT_EQ(resolved["zero_optimization.stage3_prefetch_bucket_size"], 15'099'494);
  EXPECT_EQ(resolved["zero_optimization.stage3_param_persistence_threshold"], 40'960);
  EXPECT_EQ(resolved["bf16.enabled"], true);
  EXPECT_EQ(resolved["train_batch_size"], 8);
  std::map<std::string, std::string> origins;
  for (const JsonValue& setting : root["settings"]) {
    origins[setting["key"].asString()] = setting["origin"].asString();
  }
  EXPECT_EQ(origins["zero_optimization.stage"], "file");
  EXPECT_EQ(origins["zero_optimization.reduce_bucket_size"], "auto");
  EXPECT_EQ(origins["zero_optimization.sub_group_size"], "file");
  EXPECT_EQ(origins["zero_optimization.memory_efficient_linear"], "default");
}

TEST(CheckCommand, AWarningIsExitOne) {
  const JsonDocument json =
      zerosim_json({"check", config("38_fp16_without_enabled.json"), "--gpus", "8"}, 1);
  EXPECT_EQ(json.root()["verdict"], "warn");
  EXPECT_EQ(json.root()["warnings"][0]["code"], "fp16_section_not_enabled");
  EXPECT_EQ(json.root()["warnings"][0]["kind"], "warning");
}

TEST(CheckCommand, ALintChangesNoVerdict) {
  const JsonDocument json =
      zerosim_json({"check", config("10_numeric_string.json"), "--gpus", "8"});
  EXPECT_EQ(json.root()["verdict"], "ok");
  EXPECT_EQ(json.root()["warnings"][0]["code"], "quoted_number");
  EXPECT_EQ(json.root()["warnings"][0]["kind"], "lint");
}

TEST(CheckCommand, AnErrorIsExitTwoAndSaysWhere) {
  const std::vector<std::string> arguments = {"check", config("23_batch_not_divisible.json"),
                                              "--gpus", "8"};
  const Outcome outcome = run_zerosim(arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("error, for 8 GPUs"));
  EXPECT_THAT(outcome.out, HasSubstr("batch_triple_mismatch"));
  const JsonDocument json = zerosim_json(arguments, 2);
  EXPECT_EQ(json.root()["verdict"], "error");
  EXPECT_EQ(json.root()["error"]["code"], "batch_triple_mismatch");
  EXPECT_EQ(json.root()["error"]["where"]["line"], 2);
}

TEST(CheckCommand, NodesTimesGpus) {
  const JsonDocument json = zerosim_json(
      {"check", config("21_batch_only_total.json"), "--num_nodes", "2", "--num_gpus", "4"});
  EXPECT_EQ(json.root()["world_size"], 8);
}

TEST(CheckCommand, ModesDiffer) {
  const std::string file = config("04_comments.json");
  EXPECT_EQ(run_zerosim({"check", file, "--gpus", "8", "--config-as", "deepspeed"}).exit_code, 0);
  const JsonDocument json = zerosim_json({"check", file, "--gpus", "8", "--config-as", "hf"}, 2);
  EXPECT_EQ(json.root()["error"]["code"], "json_comments");
}

TEST(CheckCommand, WhatIsNotSimulatedIsChecked) {
  const JsonDocument json = zerosim_json({"check", config("28_nvme_infinity.json"), "--gpus", "8"});
  EXPECT_EQ(json.root()["resolved"]["zero_optimization.offload_param.device"], "nvme");
  EXPECT_THAT(json.root()["not_simulated"].asString(), HasSubstr("does not simulate"));
}

TEST(CheckCommand, ReadsAccelerateFiles) {
  const JsonDocument json =
      zerosim_json({"check", std::string(ZEROSIM_TEST_DATA) + "/accelerate/fsdp.yaml", "--model",
                    "llama-2-7b", "--gpus", "8", "--micro-batch", "2"});
  EXPECT_EQ(json.root()["framework"], "fsdp");
}

TEST(CheckCommand, ListsItsCodes) {
  const Outcome outcome = run_zerosim({"check", "--codes"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* code : {"bucket_larger_than_model", "hpz_useless_on_one_node", "bad_stage"}) {
    EXPECT_THAT(outcome.out, HasSubstr(code));
  }
}

TEST(CheckCommand, TheReadmeListsItsCodes) {
  const std::string readme = read_file(std::string(ZEROSIM_SOURCE_DIR) + "/README.md");
  const JsonDocument json = zerosim_json({"check", "--codes"});
  ASSERT_GT(json.root()["codes"].size(), 80U);
  for (const JsonValue& code : json.root()["codes"]) {
    const std::string row = "| `" + code["code"].asString() + "` | " + code["kind"].asString() +
                            " | " + code["meaning"].asString();
    EXPECT_NE(readme.find(row), std::string::npos) << row;
  }
}

TEST(CheckCommand, BadUsage) {
  EXPECT_THAT(run_zerosim({"check"}).error, HasSubstr("a file is missing"));
  EXPECT_THAT(run_zerosim({"check", config("01_minimal_z2.json")}).error,
              HasSubstr("--world is missing"));
  const Outcome missing = run_zerosim({"check", "no_such.json", "--gpus", "8"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.error, HasSubstr("no_such.json"));
}

TEST(ModelCommand, AdaptersAndExperts) {
  const JsonDocument lora =
      zerosim_json({"model", "--model", "llama-3-8b", "--lora", "rank=8,targets=q_proj,v_proj"});
  EXPECT_EQ(lora.root()["parameters"]["trainable"], 3'407'872);
  const JsonDocument experts =
      zerosim_json({"model", "--model", "qwen3-30b-a3b", "--routing", "zipf:1", "--seq", "512"});
  EXPECT_EQ(experts.root()["parameters"]["total"].asInt64(), 30'532'122'624);
  EXPECT_EQ(experts.root()["parameters"]["active_per_token"].asInt64(), 3'353'032'704);
  const Outcome text =
      run_zerosim({"model", "--model", "mixtral-8x7b", "--leaf-modules", "MixtralSparseMoeBlock"});
  EXPECT_THAT(text.out, HasSubstr("12,879,925,248 active per token"));
  EXPECT_THAT(text.out, HasSubstr("block_sparse_moe [leaf]"));
  EXPECT_THAT(text.out, HasSubstr("8 experts, "));
}

TEST(ModelCommand, BadInput) {
  EXPECT_THAT(run_zerosim({"model", "--model", "gpt2", "--routing", "uniform"}).error,
              HasSubstr("--routing: the model \"gpt2\" has no experts"));
  EXPECT_THAT(run_zerosim({"model", "--model", "gpt2", "--freeze", "wte"}).error,
              HasSubstr("--freeze: no parameter or module matches \"wte\""));
  EXPECT_THAT(run_zerosim({"model", "--model", "mixtral-8x7b", "--leaf-modules", "MoE"}).error,
              HasSubstr("--leaf-modules: the model has no module of class \"MoE\""));
}

}  // namespace
}  // namespace zerosim::testing
