// Experiment files: what is read, what is refused, and what variants override.

#include "validate/experiment_file.h"

#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Three lines; `more` follows them.
std::string inputs(const std::string& more, const std::string& model = R"({"n_params": 7})") {
  return "{\"model\": " + model + ",\n" +
         R"("cluster": {"gpu": null, "gpus_per_node": 4, "nodes": 2},)" + "\n" +
         R"("training": {"framework": "deepspeed", "seq": 128, "micro_batch": null},)" + "\n" +
         R"("ds_config": "ds.json")" + more + "}";
}

ExperimentFile read(const std::string& text) {
  const JsonDocument document = JsonDocument::from_text(text, "e.json");
  return {document, document.root(), "folder", "data"};
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(read(text));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ExperimentFile, WhatIsKnownAndWhatIsNot) {
  const ExperimentInputs given = read(inputs("")).inputs();
  EXPECT_EQ(given.model.parameters, 7);
  EXPECT_FALSE(given.model.layers);
  EXPECT_EQ(given.cluster.gpu, "");
  EXPECT_EQ(given.cluster.world_size(), 8);
  EXPECT_EQ(given.training.sequence, 128);
  EXPECT_FALSE(given.training.micro_batch);
  EXPECT_TRUE(given.training.zero_init);
  EXPECT_FALSE(given.training.no_sync);
  EXPECT_EQ(given.ds_config, "folder/ds.json");
  EXPECT_EQ(given.config_as, ConfigMode::Auto);
  EXPECT_EQ(given.deepspeed_version, "0.19");
  EXPECT_EQ(given.data_folder, "data");
  EXPECT_FALSE(given.measured.has_out_of_memory());
}

TEST(ExperimentFile, EveryKeyOfTheModel) {
  const ModelInputs model =
      read(inputs("", R"({"n_params": 1000, "layers": 2, "hidden": 8, "vocab": 50,
                          "trainable": {"kind": "lora", "rank": 4, "targets": ["q", "v"]},
                          "largest_layer_params": 400, "load_dtype": "bf16",
                          "fused_experts": true, "note": "n"})"))
          .inputs()
          .model;
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.hidden, 8);
  EXPECT_EQ(model.vocab, 50);
  EXPECT_TRUE(model.trainable->lora);
  EXPECT_THAT(model.trainable->targets, ElementsAre("q", "v"));
  EXPECT_FALSE(model.trainable->parameters);
  EXPECT_EQ(model.largest_layer, 400);
  EXPECT_EQ(model.load_dtype, Dtype::Bf16);
  EXPECT_TRUE(model.fused_experts);
}

TEST(ExperimentFile, NullUnsetsAVariable) {
  const ExperimentFile file =
      read(inputs(R"(, "environment": {"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": null},
           "variants": {"a": {"environment.NCCL_IB_DISABLE": null}})"));
  ASSERT_EQ(file.inputs().environment.variables.size(), 1U);
  EXPECT_EQ(file.inputs().environment.variables[0].name, "NCCL_IB_DISABLE");
  EXPECT_TRUE(file.find("a")->environment.variables.empty());
}

TEST(ExperimentFile, VariantsOverrideValuesSectionsAndTheDeepSpeedFile) {
  const ExperimentFile file = read(inputs(
      R"(, "variants": {"b": {"training.seq": 64, "cluster.intra_node.gbps": 5.7,
           "environment": {"NCCL_IB_DISABLE": 1}, "measured.oom_free_gib": 1.5,
           "config_as": "hf", "ds_config": "other.json",
           "ds.zero_optimization.stage": 1, "ds.bf16": null}, "a": {"model": {"n_params": null}}})"));
  EXPECT_THAT(file.variant_names(), ElementsAre("a", "b"));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_FALSE(file.find("a")->model.parameters);
  const ExperimentInputs& b = *file.find("b");
  EXPECT_EQ(b.training.sequence, 64);
  EXPECT_EQ(b.training.framework, "deepspeed");
  EXPECT_EQ(b.cluster.intra_node.gbps, 5.7);
  EXPECT_EQ(b.environment.find("NCCL_IB_DISABLE")->value, "1");
  EXPECT_TRUE(b.measured.has_out_of_memory());
  EXPECT_EQ(b.config_as, ConfigMode::HuggingFace);
  EXPECT_EQ(b.ds_config, "folder/other.json");
  ASSERT_EQ(b.ds_patches.size(), 2U);
  EXPECT_EQ(b.ds_patches[0].key, "zero_optimization.stage");
  EXPECT_EQ(b.ds_patches[0].value.asInt(), 1);
  EXPECT_TRUE(b.ds_patches[1].value.isNull());
  // The inputs themselves stay.
  EXPECT_EQ(file.inputs().training.sequence, 128);
  EXPECT_TRUE(file.inputs().ds_patches.empty());
}

struct BadInputs {
  std::string text;
  std::string message;
};

void PrintTo(const BadInputs& bad, std::ostream* out) {
  *out << bad.message;
}

class BadExperiment : public ::testing::TestWithParam<BadInputs> {};

TEST_P(BadExperiment, IsRefusedWithItsPlace) {
  EXPECT_THAT(error_of(GetParam().text), HasSubstr(GetParam().message));
}

const std::string kVariant = R"(, "variants": {"v": )";

INSTANTIATE_TEST_SUITE_P(
    Errors, BadExperiment,
    ::testing::Values(
        BadInputs{inputs(R"(, "modell": 1)"), "e.json:4:25: modell: unknown key"},
        BadInputs{inputs(R"(, "modell": 1)"), R"(did you mean "model"?)"},
        BadInputs{inputs("", "{}"), "e.json:1:11: model: found 0 of ref, config and n_params"},
        BadInputs{inputs("", R"({"ref": "a", "n_params": 1})"), "found 2 of ref, config"},
        BadInputs{inputs("", R"({"n_params": 0})"), "e.json:1:24: model.n_params: found 0"},
        BadInputs{inputs("", R"({"n_params": 9, "layers": 2})"),
                  "model.hidden: missing, expected n_params, layers, hidden and vocab, or n_params "
                  "alone"},
        BadInputs{inputs("", R"({"n_params": 9, "layer": 2})"), R"(did you mean "layers"?)"},
        BadInputs{inputs("", R"({"n_params": 9, "load_dtype": "int8"})"),
                  R"(model.load_dtype: found "int8", expected one of fp32, fp16, bf16)"},
        BadInputs{
            inputs("", R"({"n_params": 9, "trainable": {"kind": "lor"}})"),
            R"(e.json:1:49: model.trainable.kind: found "lor", expected one of lora, frozen; did you mean "lora"?)"},
        BadInputs{inputs("", R"({"n_params": 9, "trainable": {"kind": "frozen"}})"),
                  "model.trainable.trainable_params: missing"},
        BadInputs{inputs("", R"({"n_params": 9, "trainable": {"kind": "lora"}})"),
                  "model.trainable.rank: missing"},
        BadInputs{inputs(kVariant + R"({"cluster.nodes": 0}})"),
                  "e.json:4:61: cluster.nodes: found 0, expected 1 to 1048576"},
        BadInputs{inputs(kVariant + R"({"cluster.intra_node": {"kin": "nvlink"}}})"),
                  R"(cluster.intra_node.kin: unknown key; did you mean "kind"?)"},
        BadInputs{inputs(kVariant + R"({"cluster.inter_node": {"gbps": -1}}})"),
                  "cluster.inter_node.gbps: found -1, expected a number above 0"},
        BadInputs{inputs(kVariant + R"({"training.framework": "fsdp"}})"),
                  R"(training.framework: found "fsdp", expected one of deepspeed, single, ddp)"},
        BadInputs{inputs(kVariant + R"({"training.framework": null}})"),
                  "training.framework: missing, expected one of"},
        BadInputs{inputs(kVariant + R"({"training.optimizer": "adam"}})"),
                  R"(training.optimizer: found "adam")"},
        BadInputs{inputs(kVariant + R"({"training.precision": "fp8"}})"),
                  R"(training.precision: found "fp8", expected one of fp32, fp16, bf16)"},
        BadInputs{inputs(kVariant + R"({"measured.step": 1}})"),
                  R"(measured.step: unknown key; did you mean "step_s"?)"},
        BadInputs{inputs(kVariant + R"({"measured.step_s": -1}})"),
                  "measured.step_s: found -1, expected a number above 0"},
        BadInputs{inputs(kVariant + R"({"environment.OMP_NUM_THREADS": []}})"),
                  "environment.OMP_NUM_THREADS: found an array, expected a string"},
        BadInputs{
            inputs(kVariant + R"({"trainin.seq": 1}})"),
            R"(e.json:4:44: variants.v: unknown key "trainin.seq", expected "ds." or one of)"},
        BadInputs{inputs(kVariant + R"({"trainin.seq": 1}})"), R"(did you mean "training"?)"},
        BadInputs{inputs(kVariant + R"({"ds_config.x": 1}})"),
                  R"(variants.v: "ds_config" is no object)"},
        BadInputs{inputs(kVariant + "1}"), "found 1, expected an object"}));

TEST(ExperimentFile, AFileOfItsOwn) {
  EXPECT_THROW(static_cast<void>(ExperimentFile::load("no_such_file.json")), ConfigError);
}

}  // namespace
}  // namespace zerosim
