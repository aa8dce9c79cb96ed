#include "sim/strategy/trainer_config.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/strategy/config_testing.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::string kFiles = std::string(ZEROSIM_TEST_DATA) + "/accelerate/";

const Model& llama() {
  static const Model kModel = load_model("llama-2-7b");
  return kModel;
}

Strategy load(const std::string& file, int world_size = 8) {
  return load_training_config(kFiles + file, {}, llama(), world_size);
}

Strategy read(const std::string& yaml, const TrainingFlags& flags = {}, int world_size = 8) {
  return read_training_arguments(JsonDocument::from_yaml(yaml, "f.yaml"), flags, llama(),
                                 world_size);
}

/// "[code] message" of the error that `yaml` ends in.
std::string refusal(const std::string& yaml, const TrainingFlags& flags = {}, int world_size = 8) {
  try {
    static_cast<void>(read(yaml, flags, world_size));
  } catch (const ConfigError& error) {
    return (error.code().empty() ? "" : "[" + error.code() + "] ") + error.what();
  }
  return "no error";
}

// ---- whole files ----

TEST(TrainerFiles, LlamaFactoryWithDeepSpeed) {
  const Strategy strategy = load("llama3_full_sft.yaml");
  EXPECT_EQ(strategy.name, "llama3_full_sft");
  EXPECT_EQ(strategy.framework, Framework::DeepSpeed);
  EXPECT_EQ(strategy.zero.stage, 3);
  EXPECT_EQ(strategy.micro_batch, 1);
  EXPECT_EQ(strategy.grad_accum, 2);
  EXPECT_EQ(strategy.train_batch, 16);  // 1 x 2 x 8
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  EXPECT_EQ(find_setting(strategy, "train_micro_batch_size_per_gpu")->reason,
            "from per_device_train_batch_size");
  EXPECT_EQ(value_of(strategy, "bf16.enabled"), "true (auto)");
  EXPECT_EQ(value_of(strategy, "optim"), "adamw_torch_fused (default)");
}

TEST(TrainerFiles, TrlWithFsdp) {
  const Strategy strategy = load("llama3_lora_fsdp.yaml");
  EXPECT_EQ(strategy.framework, Framework::Fsdp);
  EXPECT_EQ(strategy.fsdp.sharding, FsdpSharding::FullShard);
  EXPECT_TRUE(strategy.fsdp.cpu_offload);
  EXPECT_EQ(strategy.fsdp.wrap, FsdpWrap::TransformerLayer);
  EXPECT_THAT(strategy.fsdp.transformer_layer_classes, ElementsAre("LlamaDecoderLayer"));
  EXPECT_EQ(strategy.fsdp.backward_prefetch, BackwardPrefetch::Pre);
  EXPECT_FALSE(strategy.fsdp.use_orig_params);
  EXPECT_FALSE(strategy.fsdp.cpu_ram_efficient_loading);
  EXPECT_EQ(strategy.gradient_clipping, 0.3);
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
  EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamTorchForeach);
  EXPECT_EQ(strategy.train_batch, 16);  // 1 x 2 x 8
  EXPECT_THAT(codes(strategy),
              ElementsAre("fsdp_checkpointing_gathers_again", "fsdp_keeps_full_gradients"));
  EXPECT_FALSE(strategy.not_simulated.has_value());
  EXPECT_TRUE(strategy.fsdp.checkpoints_around_units);  // gradient_checkpointing
}

TEST(TrainerFiles, DdpWithAnOptimizerOfEightBits) {
  const Strategy strategy = load("sft_ddp.yaml");
  EXPECT_EQ(strategy.framework, Framework::Ddp);
  EXPECT_EQ(strategy.precision, Precision::Fp16);  // fp16: yes
  EXPECT_EQ(strategy.train_batch, 128);            // 2 x 8 x 8
  EXPECT_EQ(strategy.ddp.bucket_cap_mib, 100);
  EXPECT_EQ(strategy.ddp.first_bucket_mib, 100);  // D1.3
  EXPECT_FALSE(strategy.ddp.find_unused_parameters);
  EXPECT_EQ(strategy.optimizer, OptimizerKind::Adam8bit);
  EXPECT_EQ(strategy.optimizer_state_bytes, 6);  // fp32 weight, two moments of a byte
  EXPECT_FALSE(strategy.not_simulated.has_value());
}

TEST(TrainerFiles, DeepSpeedInside) {
  const Strategy strategy = load("deepspeed_inline.yaml");
  EXPECT_EQ(strategy.zero.stage, 2);
  EXPECT_EQ(strategy.zero.reduce_bucket_size, 200'000'000);
  EXPECT_EQ(strategy.train_batch, 32);  // 4 x 1 x 8
  EXPECT_EQ(strategy.gradient_clipping, 0.5);
  EXPECT_EQ(value_of(strategy, "gradient_clipping"), "0.5 (auto)");
  EXPECT_THAT(strategy.assumptions, Contains("gradient_clipping: \"auto\" becomes 0.5, "
                                             "max_grad_norm."));
  EXPECT_EQ(to_string(find_setting(strategy, "zero_optimization.reduce_bucket_size")->where),
            kFiles + "deepspeed_inline.yaml:8:25");
}

TEST(TrainerFiles, FsdpConfigAlone) {
  const Strategy strategy = load("fsdp_config.json");
  EXPECT_EQ(strategy.framework, Framework::Fsdp);
  EXPECT_EQ(value_of(strategy, "fsdp"), "full_shard auto_wrap (default)");
  EXPECT_THAT(strategy.fsdp.transformer_layer_classes, ElementsAre("LlamaDecoderLayer"));
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
  EXPECT_TRUE(strategy.fsdp.cpu_ram_efficient_loading);
  EXPECT_FALSE(strategy.not_simulated.has_value());
  EXPECT_FALSE(strategy.fsdp.checkpoints_around_units);  // activation_checkpointing
}

// ---- values ----

TEST(TrainingArguments, DefaultsAreTheTrainers) {
  const Strategy strategy = read("output_dir: out\n");
  EXPECT_EQ(strategy.framework, Framework::Ddp);
  EXPECT_EQ(strategy.micro_batch, 8);
  EXPECT_EQ(strategy.train_batch, 64);  // 8 x 1 x 8
  EXPECT_EQ(strategy.precision, Precision::Fp32);
  EXPECT_EQ(strategy.gradient_clipping, 1.0);
  EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamFused);
  // Trainer._wrap_model: unless checkpointing is on.
  EXPECT_TRUE(strategy.ddp.find_unused_parameters);
  EXPECT_FALSE(read("gradient_checkpointing: true\n").ddp.find_unused_parameters);
  EXPECT_THAT(strategy.assumptions,
              Contains("per_device_train_batch_size: 8, the Trainer's default."));
  EXPECT_EQ(read("output_dir: out\n", {}, 1).framework, Framework::Single);
}

TEST(TrainingArguments, LigerKernelsChangeTheBatch) {
  const Strategy plain = read("per_device_train_batch_size: 2\nbf16: true\n");
  EXPECT_FALSE(plain.liger_kernel);
  const Strategy liger =
      read("per_device_train_batch_size: 2\nbf16: true\nuse_liger_kernel: true\n");
  const BatchShape batch = trained_batch({.sequence = 128}, liger);
  EXPECT_EQ(batch.micro_batch, 2);
  EXPECT_EQ(batch.sequence, 128);
  EXPECT_EQ(batch.compute, Dtype::Bf16);
  EXPECT_EQ(batch.loss, LossKind::Chunked);
  EXPECT_EQ(batch.kernels, ElementwiseKernels::Liger);
  EXPECT_EQ(trained_batch({.loss = LossKind::Fused}, plain).loss, LossKind::Fused);
}

TEST(TrainingArguments, DdpFlagsFillInOrContradict) {
  TrainingFlags flags;
  flags.ddp.bucket_cap_mib = 40;
  flags.ddp.find_unused_parameters = true;
  const Strategy strategy = read("gradient_checkpointing: true\n", flags);
  EXPECT_EQ(strategy.ddp.bucket_cap_mib, 40);
  EXPECT_TRUE(strategy.ddp.find_unused_parameters);
  EXPECT_EQ(value_of(strategy, "ddp_find_unused_parameters"), "true (flag)");
  EXPECT_EQ(refusal("ddp_bucket_cap_mb: 50\n", flags),
            "[flag_contradicts_file] f.yaml:1:20: ddp_bucket_cap_mb: found 50.0, but the flag "
            "--ddp-bucket-cap-mb says 40.0");
  EXPECT_EQ(refusal("ddp_find_unused_parameters: false\n", flags),
            "[flag_contradicts_file] f.yaml:1:29: ddp_find_unused_parameters: found false, but "
            "the flag --ddp-find-unused-parameters says true");
  flags = {};
  EXPECT_TRUE(read("output_dir: out\n").ddp.broadcast_buffers);
  EXPECT_FALSE(read("ddp_broadcast_buffers: false\n").ddp.broadcast_buffers);
  flags.ddp.broadcast_buffers = false;
  const Strategy without = read("output_dir: out\n", flags);
  EXPECT_FALSE(without.ddp.broadcast_buffers);
  EXPECT_EQ(value_of(without, "ddp_broadcast_buffers"), "false (flag)");
  EXPECT_EQ(refusal("ddp_broadcast_buffers: true\n", flags),
            "[flag_contradicts_file] f.yaml:1:24: ddp_broadcast_buffers: found true, but the flag "
            "--ddp-no-broadcast-buffers says false");
  flags = {};
  flags.torch_version = "1.13";  // the first bucket keeps its limit (D1.3)
  EXPECT_EQ(read("ddp_bucket_cap_mb: 50\n", flags).ddp.first_bucket_mib, 1);
}

TEST(TrainingArguments, FlagsFillInOrContradict) {
  TrainingFlags flags;
  flags.micro_batch = 2;
  EXPECT_EQ(value_of(read("output_dir: out\n", flags), "per_device_train_batch_size"), "2 (flag)");
  EXPECT_EQ(refusal("per_device_train_batch_size: 4\n", flags),
            "[flag_contradicts_file] f.yaml:1:30: per_device_train_batch_size: found 4, but the "
            "flag --micro-batch says 2");
  flags = {};
  flags.precision = Precision::Fp32;
  EXPECT_THAT(refusal("bf16: true\n", flags),
              StartsWith("[flag_contradicts_file] f.yaml:1:7: bf16: found bf16, but the flag "
                         "--precision says fp32"));
  flags = {};
  flags.checkpointing = ActivationCheckpointing::None;
  EXPECT_THAT(
      refusal("gradient_checkpointing: true\n", flags),
      StartsWith("[flag_contradicts_file] f.yaml:1:25: gradient_checkpointing: found true"));
  flags.checkpointing = ActivationCheckpointing::Selective;
  EXPECT_EQ(read("gradient_checkpointing: true\n", flags).checkpointing,
            ActivationCheckpointing::Selective);
  flags = {};
  flags.optimizer = OptimizerKind::AdamTorch;
  EXPECT_THAT(refusal("optim: adamw_torch\n", flags),
              StartsWith("[flag_contradicts_file] f.yaml:1:8: optim: found adamw_torch_foreach"));
}

TEST(TrainingArguments, Contradictions) {
  EXPECT_EQ(refusal("bf16: true\nfp16: true\n"),
            "[fp16_and_bf16] f.yaml:2:7: fp16: found true together with bf16, expected at most one "
            "of them");
  EXPECT_EQ(refusal("fsdp: full_shard\ndeepspeed: ds.json\n"),
            "[fsdp_and_deepspeed] f.yaml:1:7: fsdp: found together with deepspeed, expected at "
            "most one of them");
  EXPECT_THAT(refusal("per_device_train_batch_size: 0\n"),
              StartsWith("[out_of_range] f.yaml:1:30: per_device_train_batch_size: found 0"));
  EXPECT_THAT(refusal("optim: adamw_trch\n"),
              StartsWith("[unknown_optimizer] f.yaml:1:8: optim: found \"adamw_trch\", which "
                         "transformers does not know; did you mean \"adamw_torch\"?"));
  EXPECT_THAT(
      refusal("max_grad_norm: 1e0\n"),
      StartsWith("[wrong_type] f.yaml:1:16: max_grad_norm: found \"1e0\", expected a number"));
}

// ---- fsdp ----

TEST(TrainerFsdp, TheArgumentIsWordsOrAList) {
  EXPECT_EQ(read("fsdp: shard_grad_op auto_wrap\n").fsdp.sharding, FsdpSharding::ShardGradOp);
  EXPECT_EQ(read("fsdp: [hybrid_shard, auto_wrap]\n").fsdp.sharding, FsdpSharding::HybridShard);
  EXPECT_EQ(read("fsdp: hybrid_shard_zero2\n").fsdp.sharding, FsdpSharding::HybridShardZero2);
  EXPECT_EQ(read("fsdp: true\n").fsdp.sharding, FsdpSharding::FullShard);
  EXPECT_EQ(read("fsdp: ''\n").framework, Framework::Ddp);
  EXPECT_EQ(read("fsdp: []\n").framework, Framework::Ddp);
  EXPECT_EQ(refusal("fsdp: full_shard auto_warp\n"),
            "[unknown_value] f.yaml:1:7: fsdp: found \"auto_warp\", expected words of full_shard, "
            "shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, auto_wrap, offload; did "
            "you mean \"auto_wrap\"?");
  EXPECT_THAT(refusal("fsdp: offload\n"), StartsWith("[fsdp_bad_combination] f.yaml:1:7: "));
  EXPECT_THAT(refusal("fsdp: full_shard shard_grad_op\n"),
              HasSubstr("found full_shard and shard_grad_op together, expected one"));
}

TEST(TrainerFsdp, Wrapping) {
  EXPECT_EQ(read("fsdp: full_shard\n").fsdp.wrap, FsdpWrap::None);
  EXPECT_EQ(read("fsdp: full_shard auto_wrap\n").fsdp.wrap, FsdpWrap::TransformerLayer);
  const Strategy by_size =
      read("fsdp: full_shard auto_wrap\nfsdp_config: {fsdp_min_num_params: 1000}\n");
  EXPECT_EQ(by_size.fsdp.wrap, FsdpWrap::Size);
  EXPECT_EQ(by_size.fsdp.min_num_params, 1000);
  EXPECT_EQ(refusal("fsdp: full_shard auto_wrap\nfsdp_config:\n  min_num_params: 1000\n"
                    "  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"),
            "[fsdp_bad_combination] f.yaml:3:19: fsdp_config.min_num_params: found together with "
            "transformer_layer_cls_to_wrap, expected at most one of them");
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap\n"
                      "fsdp_config: {transformer_layer_cls_to_wrap: [Block]}\n"),
              StartsWith("[fsdp_layer_class_not_found] f.yaml:2:46: "));
}

TEST(TrainerFsdp, VersionTwoKeepsParametersUnlessToldOtherwise) {
  const Strategy kept = read("fsdp: full_shard auto_wrap\nfsdp_config: {version: 2}\n");
  EXPECT_EQ(kept.fsdp.version, 2);
  EXPECT_FALSE(kept.fsdp.reshard_after_forward);
  const Strategy freed =
      read("fsdp: full_shard auto_wrap\nfsdp_config: {version: 2, reshard_after_forward: true}\n");
  EXPECT_EQ(freed.fsdp.sharding, FsdpSharding::FullShard);
}

TEST(TrainerFsdp, TwoKindsOfCheckpointing) {
  const std::string head = "fsdp: full_shard auto_wrap\ngradient_checkpointing: true\n";
  EXPECT_EQ(refusal(head + "fsdp_config: {activation_checkpointing: true}\n"),
            "[fsdp_bad_combination] f.yaml:3:41: fsdp_config.activation_checkpointing: found true "
            "together with gradient_checkpointing, expected at most one of them");
  const Strategy off = read(head + "fsdp_config: {activation_checkpointing: false}\n");
  EXPECT_EQ(off.checkpointing, ActivationCheckpointing::Full);
}

TEST(TrainerFsdp, ConfigWithoutTheArgument) {
  const Strategy strategy = read("bf16: true\nfsdp_config: {min_num_params: 5}\n");
  EXPECT_EQ(strategy.framework, Framework::Ddp);
  EXPECT_THAT(codes(strategy), ElementsAre("fsdp_config_without_fsdp"));
}

TEST(TrainerFsdp, ConfigInAFile) {
  const std::string text =
      "fsdp: full_shard auto_wrap\nfsdp_config: " + kFiles + "fsdp_config.json\n";
  const Strategy strategy = read(text);
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
  EXPECT_EQ(find_setting(strategy, "fsdp_config.use_orig_params")->where.file,
            kFiles + "fsdp_config.json");
  EXPECT_THAT(refusal("fsdp: full_shard\nfsdp_config: nowhere.json\n"),
              StartsWith("f.yaml:2:14: fsdp_config: found \"nowhere.json\", but there is no such "
                         "file"));
}

// ---- deepspeed ----

TEST(TrainerDeepSpeed, MismatchesNameTheArgument) {
  EXPECT_EQ(refusal("per_device_train_batch_size: 2\ndeepspeed:\n  zero_optimization: {stage: 1}\n"
                    "  train_micro_batch_size_per_gpu: 4\n"),
            "[flag_contradicts_file] f.yaml:4:35: train_micro_batch_size_per_gpu: found 4, but "
            "per_device_train_batch_size says 2");
}

TEST(TrainerDeepSpeed, ErrorsPointIntoTheYaml) {
  EXPECT_THAT(refusal("deepspeed:\n  zero_optimization:\n    stage: 1\n    redcue_scatter: true\n"
                      "  train_micro_batch_size_per_gpu: 8\n"),
              StartsWith("[unknown_key_zero] f.yaml:4:5: zero_optimization.redcue_scatter"));
  EXPECT_THAT(refusal("deepspeed: 5\n"),
              StartsWith("[wrong_type] f.yaml:1:12: deepspeed: found 5, expected a path or a "
                         "mapping"));
}

TEST(TrainerDeepSpeed, MoreValuesThanDeepSpeedHasAreRefused) {
  std::string text = "deepspeed:\n";
  for (int i = 0; i < 2000; ++i) text += "  k" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(refusal(text), HasSubstr("found more than 1000 values"));
}

TEST(TrainerDeepSpeed, AnOptimizerOutsideAdam) {
  const Strategy strategy = read(
      "optim: adafactor\ndeepspeed: {zero_optimization: {stage: 2}, "
      "train_micro_batch_size_per_gpu: auto}\n");
  EXPECT_EQ(strategy.optimizer_name, "adafactor");
  EXPECT_THAT(strategy.not_simulated->what(), StartsWith("f.yaml:1:8: optim: "));
}

// ---- kinds of files ----

Strategy parse_as(const std::string& text, const std::string& name) {
  TrainingFlags flags;
  flags.micro_batch = 1;
  return parse_training_config(text, name, flags, llama(), 8);
}

TEST(TrainingConfig, KindsAreToldApartByContent) {
  const std::string zero = R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}})";
  EXPECT_EQ(parse_as(zero, "f.json").framework, Framework::DeepSpeed);
  EXPECT_EQ(parse_as("# c\nzero_optimization: {stage: 1}\n", "f.hjson").zero.stage, 1);
  EXPECT_EQ(parse_as("distributed_type: FSDP\n", "f").framework, Framework::Fsdp);
  EXPECT_EQ(parse_as(R"({"distributed_type": "MULTI_GPU"})", "f.json").framework, Framework::Ddp);
  EXPECT_EQ(parse_as(R"({"bf16": true, "fsdp": "full_shard"})", "f.json").framework,
            Framework::Fsdp);
  EXPECT_EQ(parse_as(R"({"fsdp_version": 2})", "f.json").fsdp.version, 2);
}

TEST(TrainingConfig, SyntaxIsThatOfTheReader) {
  try {  // json.load takes no comments
    static_cast<void>(parse_as("{\n// c\n\"distributed_type\": \"FSDP\"}", "f.json"));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), "json_comments");
    EXPECT_THAT(error.what(), StartsWith("f.json:2:1: "));
  }
  try {
    static_cast<void>(parse_as("a: [1\n", "f.yaml"));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "f.yaml:2:1: not YAML: end of sequence flow not found");
  }
}

}  // namespace
}  // namespace zerosim
