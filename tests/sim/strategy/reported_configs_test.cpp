// Files of public reports (tests/data/ds_configs/reported), and what the reports turned on.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/strategy/config_codes.h"
#include "tests/sim/strategy/config_testing.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string path_of(const std::string& file) {
  return std::string(ZEROSIM_TEST_DATA) + "/ds_configs/reported/" + file;
}

Strategy load(const std::string& file, const TrainingFlags& flags, const Model& model,
              int world_size) {
  return load_deepspeed_config(path_of(file), flags, model, world_size);
}

ConfigError error_in(const std::string& file, const TrainingFlags& flags, const Model& model,
                     int world_size) {
  try {
    static_cast<void>(load(file, flags, model, world_size));
  } catch (const ConfigError& error) {
    return error;
  }
  return ConfigError("no error");
}

TrainingFlags given(std::int64_t micro_batch, std::int64_t grad_accum, Precision precision) {
  TrainingFlags flags;
  flags.micro_batch = micro_batch;
  flags.grad_accum = grad_accum;
  flags.precision = precision;
  return flags;
}

TEST(Reported, AnUnknownKeyIsRefusedAndABucketExceedsTheModel) {
  const TrainingFlags flags = given(32, 32, Precision::Fp16);
  const ConfigError error = error_in("z1_grad_hooks.json", flags, model_with_hidden(1024), 4);
  EXPECT_EQ(error.code(), "unknown_key_zero");
  EXPECT_THAT(error.what(), HasSubstr("z1_grad_hooks.json:26:5: zero_optimization.grad_hooks: "));
  Model model = model_with_hidden(1024);  // as large as BERT-large
  model.parameters.emplace_back().elements = 340'000'000;
  const Strategy strategy = load("z2_large_bucket.json", flags, model, 4);
  EXPECT_THAT(codes(strategy), Contains("bucket_larger_than_model"));  // 5e8 > 3.4e8
  EXPECT_EQ(strategy.train_batch, 4096);                               // 32 * 32 * 4
  EXPECT_EQ(strategy.optimizer_name, "adam");
}

TEST(Reported, TheOldKeyOfOffloadIsStillRead) {
  const Strategy strategy =
      load("z2_cpu_offload.json", given(1, 1, Precision::Fp16), model_with_hidden(4096), 128);
  EXPECT_THAT(codes(strategy), Contains("deprecated_key"));
  EXPECT_EQ(strategy.zero.offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_FALSE(strategy.not_simulated.has_value());
}

TEST(Reported, OneRankShardsNothing) {
  const Strategy strategy =
      load("z2_one_rank.json", given(1, 1, Precision::Fp16), model_with_hidden(8192), 1);
  EXPECT_THAT(codes(strategy), Contains("dp_degree_1_no_sharding"));
}

TEST(Reported, NoSyncAssertsWherePartitionedGradientsAreReduced) {
  TrainingFlags flags = given(1, 8, Precision::Bf16);
  for (const char* file : {"z2_accumulation.json", "z3_accumulation.json"}) {
    EXPECT_EQ(load(file, flags, model_with_hidden(768), 8).grad_accum, 8);
    flags.no_sync = true;
    const ConfigError error = error_in(file, flags, model_with_hidden(768), 8);
    EXPECT_EQ(error.code(), "no_sync_with_gradient_partitioning");
    EXPECT_THAT(error.what(), HasSubstr(std::string(file) + ":8:14: zero_optimization.stage: "));
    flags.no_sync = std::nullopt;
  }
  TrainingFlags no_sync;
  no_sync.no_sync = true;
  EXPECT_NO_THROW(static_cast<void>(parse(zero(1, "\"overlap_comm\": true"), no_sync)));
}

TEST(Reported, SecondaryPartitionsWantSeveralNodesAndNoOffload) {
  const TrainingFlags flags = given(1, 1, Precision::Bf16);
  const Model model = model_with_hidden(8192);
  EXPECT_THAT(codes(load("z3_hpz_auto.json", flags, model, 16)),
              Not(Contains("hpz_with_offload_untested")));
  EXPECT_THAT(codes(load("z3_hpz.json", flags, model, 32)),
              Not(Contains("hpz_useless_on_one_node")));
  EXPECT_THAT(codes(load("z3_hpz.json", flags, model, 8)), Contains("hpz_useless_on_one_node"));
  const std::string offloaded =
      zero(3, "\"zero_hpz_partition_size\": 8, \"offload_optimizer\": {\"device\": \"cpu\"}");
  EXPECT_THAT(codes(parse(offloaded, {}, 16)), Contains("hpz_with_offload_untested"));
}

TEST(Reported, ABatchForFourRanksFitsNoOtherWorld) {
  const TrainingFlags flags = given(2, 1, Precision::Fp32);
  const ConfigError error = error_in("z2_batch_of_four_ranks.json", flags, {}, 1);
  EXPECT_EQ(error.code(), "batch_triple_mismatch");
  EXPECT_THAT(error.what(), HasSubstr("or a data-parallel size of 4"));
  const Strategy strategy = load("z2_batch_of_four_ranks.json", flags, {}, 4);
  EXPECT_EQ(value_of(strategy, "train_batch_size"), "8");
  EXPECT_EQ(value_of(strategy, "train_micro_batch_size_per_gpu"), "2");
  EXPECT_EQ(value_of(strategy, "gradient_accumulation_steps"), "1");
}

TEST(Reported, AutoNeedsSomebodyWhoFillsItIn) {
  TrainingFlags flags = given(1, 1, Precision::Bf16);
  const Model model = model_with_hidden(4096);
  flags.config_as = ConfigMode::DeepSpeed;
  EXPECT_EQ(error_in("z3_auto_batch.json", flags, model, 8).code(), "auto_batch_unresolved");
  for (const ConfigMode mode : {ConfigMode::HuggingFace, ConfigMode::Auto}) {
    flags.config_as = mode;
    const Strategy strategy = load("z3_trainer.json", flags, model, 8);
    const auto zero_value = [&](const std::string& key) {
      return value_of(strategy, "zero_optimization." + key);
    };
    EXPECT_EQ(zero_value("reduce_bucket_size"), "16777216 (auto)");           // 4096^2
    EXPECT_EQ(zero_value("stage3_prefetch_bucket_size"), "15099494 (auto)");  // 0.9 * 4096^2
    EXPECT_EQ(zero_value("stage3_param_persistence_threshold"), "40960 (auto)");
    EXPECT_EQ(value_of(strategy, "bf16.enabled"), "true (auto)");
    EXPECT_EQ(value_of(strategy, "train_batch_size"), "8 (auto)");
    EXPECT_EQ(config_verdict(strategy.warnings), ConfigVerdict::Ok);
  }
}

/// The same file with its top level filled in, read by DeepSpeed alone.
TEST(Reported, DeepSpeedAloneDropsAutoInItsSections) {
  TrainingFlags flags = given(1, 1, Precision::Bf16);
  flags.config_as = ConfigMode::DeepSpeed;
  const Strategy strategy = parse(
      R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
          "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
          "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "loss_scale": 0},
          "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})",
      flags);
  EXPECT_EQ(value_of(strategy, "zero_optimization.reduce_bucket_size"), "500000000 (default)");
  EXPECT_EQ(value_of(strategy, "zero_optimization.stage3_prefetch_bucket_size"),
            "50000000 (default)");
  EXPECT_EQ(value_of(strategy, "zero_optimization.stage3_param_persistence_threshold"),
            "100000 (default)");
  EXPECT_EQ(value_of(strategy, "bf16.enabled"), "false (default)");
  EXPECT_THAT(codes(strategy), Contains("auto_dropped"));
  EXPECT_THAT(codes(strategy), Contains("auto_precision_becomes_fp32"));
  EXPECT_EQ(config_verdict(strategy.warnings), ConfigVerdict::Warn);
}

}  // namespace
}  // namespace zerosim
