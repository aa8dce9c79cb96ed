#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/strategy/deepspeed_release.h"
#include "sim/strategy/strategy.h"
#include "tests/sim/strategy/config_testing.h"

namespace zerosim {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

TEST(UserFiles, AreReadAsTheyAre) {
  for (int stage = 1; stage <= 3; ++stage) {
    const std::string path =
        std::string(ZEROSIM_TEST_DATA) + "/ds_configs/ds_zero" + std::to_string(stage) + ".json";
    const Strategy strategy = load_deepspeed_config(path, {}, model_with_hidden(4096), 4);
    EXPECT_EQ(strategy.name, "ds_zero" + std::to_string(stage));
    EXPECT_EQ(strategy.framework, Framework::DeepSpeed);
    EXPECT_EQ(strategy.zero.stage, stage);
    EXPECT_EQ(strategy.zero.overlap_comm, stage != 1);  // the file of stage 1 does not say
    EXPECT_EQ(strategy.micro_batch, 4);
    EXPECT_EQ(strategy.grad_accum, 1);
    EXPECT_EQ(strategy.train_batch, 16);  // 4 * 1 * 4
    EXPECT_EQ(strategy.precision, Precision::Bf16);
    EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamFused);
    EXPECT_TRUE(strategy.warnings.empty());
    EXPECT_EQ(strategy.zero.reduce_bucket_size, 500'000'000);
    // stage 3: "auto", with hidden 4096 (A6)
    EXPECT_EQ(strategy.zero.prefetch_bucket_size, stage == 3 ? 15'099'494 : 50'000'000);
    EXPECT_EQ(strategy.zero.param_persistence_threshold, stage == 3 ? 40'960 : 100'000);
  }
}

TEST(Defaults, AreListed) {
  const Strategy strategy = parse(zero(2, "\"overlap_comm\": true"));
  EXPECT_THAT(strategy.assumptions,
              Contains("zero_optimization.reduce_bucket_size: 500000000 elements, DeepSpeed's "
                       "default."));
  EXPECT_THAT(strategy.assumptions, Contains("gradient_clipping: 1.0, the default of DeepSpeed "
                                             "0.19."));
  EXPECT_THAT(strategy.assumptions,
              Contains("train_batch_size: 32, from the other batch sizes (A4.1)."));
  EXPECT_THAT(strategy.assumptions, Contains(HasSubstr("torch AdamW (fused) is assumed")));
  EXPECT_THAT(strategy.assumptions, testing::Not(Contains(HasSubstr("overlap_comm"))));
  EXPECT_THAT(strategy.assumptions, testing::Not(Contains(HasSubstr("prefetch"))));  // stage 3 only
}

TEST(Defaults, OfOverlapCommDependOnTheStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(parse(zero(stage, "\"overlap_comm\": null")).zero.overlap_comm, stage == 3);
    EXPECT_FALSE(parse(zero(stage, "\"overlap_comm\": false")).zero.overlap_comm);
  }
}

TEST(Defaults, DifferBetweenVersions) {
  TrainingFlags flags;
  flags.deepspeed_version = "0.14.5";
  const Strategy old = parse(with("\"zero_optimization\": {\"stage\": 2}"), flags);
  EXPECT_EQ(old.version, "0.14");
  EXPECT_DOUBLE_EQ(old.gradient_clipping, 0);
  EXPECT_FALSE(old.check_grad_overflow);
  const Strategy current = parse(with("\"zero_optimization\": {\"stage\": 2}"));
  EXPECT_DOUBLE_EQ(current.gradient_clipping, 1);
  EXPECT_TRUE(current.check_grad_overflow);
  flags.deepspeed_version = "0.9";
  EXPECT_EQ(error_of(with("\"zero_optimization\": {}"), flags),
            "--deepspeed-version: found \"0.9\", expected 0.3, 0.4, 0.5, 0.14 or 0.19");
  EXPECT_EQ(deepspeed_release("0.19.5", "x").name, "0.19");
  try {
    static_cast<void>(deepspeed_release("0.15.1", "run.json:4:26: versions.deepspeed"));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "run.json:4:26: versions.deepspeed: found \"0.15.1\", expected 0.3, 0.4, 0.5, "
                 "0.14 or 0.19");
  }
}

// ---- "auto" ----

TEST(Auto, SizesFollowTheHiddenSize) {
  const std::string text = zero(3,
                                "\"reduce_bucket_size\": \"auto\", "
                                "\"stage3_prefetch_bucket_size\": \"auto\", "
                                "\"stage3_param_persistence_threshold\": \"auto\"");
  const Strategy strategy = parse(text);
  EXPECT_EQ(strategy.zero.reduce_bucket_size, 16'777'216);       // 4096^2
  EXPECT_EQ(strategy.zero.prefetch_bucket_size, 15'099'494);     // 0.9 * 4096^2 = 15099494.4
  EXPECT_EQ(strategy.zero.param_persistence_threshold, 40'960);  // 10 * 4096
  EXPECT_THAT(strategy.assumptions,
              Contains("zero_optimization.stage3_prefetch_bucket_size: \"auto\" becomes 15099494 "
                       "elements, 0.9 hidden^2 with hidden 4096."));
  EXPECT_EQ(error_of(text, {}, 8, 0),
            "[auto_unresolved] f.json:3:23: zero_optimization.reduce_bucket_size: found \"auto\", "
            "which is hidden^2, "
            "but the model has no hidden size; expected a number or a model that says it");
}

TEST(Auto, BatchComesFromTheFlags) {
  const std::string text =
      "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
      "\"gradient_accumulation_steps\": \"auto\"}";
  TrainingFlags flags;
  flags.micro_batch = 2;
  flags.grad_accum = 4;
  const Strategy strategy = parse(text, flags);
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.grad_accum, 4);
  EXPECT_EQ(strategy.train_batch, 64);
  EXPECT_THAT(strategy.assumptions, Contains("train_micro_batch_size_per_gpu: \"auto\" becomes 2, "
                                             "from the flag --micro-batch."));
  EXPECT_EQ(error_of(text),
            "[auto_batch_unresolved] f.json:1:64: train_micro_batch_size_per_gpu: found \"auto\", "
            "but no flag gives the micro batch; expected a number or --micro-batch");
  flags.config_as = ConfigMode::DeepSpeed;
  EXPECT_EQ(
      error_of(text, flags),
      "[auto_batch_unresolved] f.json:1:22: train_batch_size: found \"auto\", which DeepSpeed "
      "alone does not fill in, expected an integer");
}

TEST(Auto, AbsentBatchFieldsComeFromTheFlagsInModeAutoOnly) {
  TrainingFlags flags;
  flags.micro_batch = 2;
  EXPECT_EQ(parse("{\"train_batch_size\": 64}", flags).grad_accum, 4);  // 64 / 2 / 8
  EXPECT_EQ(parse("{}", flags).train_batch, 16);
  flags.config_as = ConfigMode::HuggingFace;
  EXPECT_THAT(error_of("{}", flags), StartsWith("[batch_missing] f.json:1:1: batch sizes: "));
  EXPECT_THAT(error_of("{\n\"gradient_accumulation_steps\": 4}"),
              StartsWith("[batch_missing] f.json:2:32: batch sizes: "));
}

TEST(Auto, FlagsThatContradictTheFileAreErrors) {
  TrainingFlags flags;
  flags.micro_batch = 2;
  EXPECT_EQ(error_of(with("\"steps_per_print\": 1"), flags),
            "[flag_contradicts_file] f.json:1:36: train_micro_batch_size_per_gpu: found 4, but the "
            "flag --micro-batch says "
            "2");
  TrainingFlags accum;
  accum.grad_accum = 2;
  EXPECT_EQ(error_of("{\"gradient_accumulation_steps\": 3,\n\"train_batch_size\": 24}", accum),
            "[flag_contradicts_file] f.json:1:33: gradient_accumulation_steps: found 3, but the "
            "flag --grad-accum says 2");
  TrainingFlags precision;
  precision.precision = Precision::Fp16;
  EXPECT_EQ(error_of(with("\"steps_per_print\": 1"), precision),
            "[flag_contradicts_file] f.json:1:59: bf16.enabled: found true, but the flag "
            "--precision says fp16");
  TrainingFlags optimizer;
  optimizer.optimizer = OptimizerKind::AdamTorchForeach;
  EXPECT_EQ(error_of(with("\"optimizer\": {\"type\": \"AdamW\"}"), optimizer),
            "[flag_contradicts_file] f.json:2:23: optimizer.type: found \"AdamW\", which is "
            "adamw_fused in DeepSpeed, but the "
            "flag --optimizer says adamw_torch_foreach");
  EXPECT_NO_THROW(static_cast<void>(
      parse(with("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}"),
            optimizer)));
}

TEST(Auto, PrecisionComesFromTheFlag) {
  const std::string text =
      "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": "
      "\"auto\"}}";
  TrainingFlags flags;
  for (const Precision precision : {Precision::Fp32, Precision::Fp16, Precision::Bf16}) {
    flags.precision = precision;
    EXPECT_EQ(parse(text, flags).precision, precision);
  }
  const Strategy assumed = parse(text);
  EXPECT_EQ(assumed.precision, Precision::Bf16);
  EXPECT_THAT(assumed.assumptions,
              Contains("bf16.enabled: \"auto\" becomes true, from bf16, assumed "
                       "since no flag says otherwise."));
  flags.precision = Precision::Bf16;
  EXPECT_EQ(parse("{\"train_batch_size\": 8}", flags).precision, Precision::Bf16);
  const Strategy alone = parse(text, as(ConfigMode::DeepSpeed));
  EXPECT_EQ(alone.precision, Precision::Fp32);
  EXPECT_THAT(codes(alone),
              AllOf(Contains("auto_dropped"), Contains("auto_precision_becomes_fp32")));
}

TEST(Auto, IsDroppedByDeepSpeedAloneWithAWarning) {
  const Strategy strategy =
      parse(zero(3, "\"reduce_bucket_size\": \"auto\""), as(ConfigMode::DeepSpeed));
  EXPECT_EQ(strategy.zero.reduce_bucket_size, 500'000'000);
  ASSERT_EQ(codes(strategy), std::vector<std::string>{"auto_dropped"});
  EXPECT_EQ(strategy.warnings[0].message,
            "f.json:3:1: zero_optimization.reduce_bucket_size: \"auto\" is dropped, DeepSpeed's "
            "default applies");
}

TEST(Auto, OfClippingAndOptimizerParametersIsTheTrainers) {
  const Strategy strategy = parse(
      with("\"gradient_clipping\": \"auto\", \"optimizer\": {\"type\": \"AdamW\", \"params\": "
           "{\"lr\": \"auto\", \"betas\": \"auto\"}}"));
  EXPECT_DOUBLE_EQ(strategy.gradient_clipping, 1);
  EXPECT_EQ(error_of(with("\"gradient_clipping\": \"auto\""), as(ConfigMode::DeepSpeed)),
            "[auto_unresolved] f.json:2:22: gradient_clipping: found \"auto\", which nothing fills "
            "in here, expected a "
            "value");
}

// ---- the three syntaxes ----

TEST(Syntax, StrictJsonRefusesWhatHjsonTakes) {
  const TrainingFlags hf = as(ConfigMode::HuggingFace);
  const std::string comment = "# c\n{\"train_batch_size\": 8}";
  EXPECT_EQ(parse(comment).train_batch, 8);
  EXPECT_EQ(parse(comment, as(ConfigMode::DeepSpeed)).train_batch, 8);
  EXPECT_EQ(error_of(comment, hf),
            "[json_comments] f.json:1:1: found a comment, expected strict JSON");
  EXPECT_EQ(error_of("{\"train_batch_size\": 8,}", hf),
            "[json_trailing_comma] f.json:1:23: found a trailing comma, expected strict JSON");
  EXPECT_EQ(error_of("{\n  train_batch_size: 8\n}", hf),
            "[json_unquoted_keys] f.json:2:3: found a key without quotes, expected strict JSON");
  EXPECT_EQ(error_of("{\n  train_batch_size: 12\n}"),
            "[batch_triple_mismatch] f.json:2:21: batch sizes: train_batch_size 12 != "
            "train_micro_batch_size_per_gpu 1 x gradient_accumulation_steps 1 x data-parallel size "
            "8 = 8; train_batch_size 8 or 16 would fit");
}

TEST(Syntax, DuplicateKeysAreRefusedOrTheLastWins) {
  const std::string text = "{\"train_batch_size\": 8,\n \"train_batch_size\": 16}";
  EXPECT_EQ(error_of(text), "[duplicate_keys] f.json:2:2: Duplicate key: 'train_batch_size'");
  const Strategy strategy = parse(text, as(ConfigMode::HuggingFace));
  EXPECT_EQ(strategy.train_batch, 16);
  EXPECT_EQ(codes(strategy), std::vector<std::string>{"duplicate_keys"});
  EXPECT_THAT(strategy.warnings[0].message, StartsWith("f.json:2:2: train_batch_size: "));
}

// ---- errors, each with its place ----

struct BadZero {
  int stage;
  const char* inside;
  const char* error;
};

TEST(ZeroSection, ErrorsHaveCodeAndPlace) {
  const BadZero cases[] = {
      {2, "\"reduce_bucket_size\": -1",
       "[out_of_range] f.json:3:23: zero_optimization.reduce_bucket_size: found -1, expected an "
       "integer of at least 0"},
      {3, "\"stage3_prefetch_bucket_size\": 15099494.4",
       "[fractional_int] f.json:3:32: zero_optimization.stage3_prefetch_bucket_size: found "
       "15099494.4, expected an integer"},
      {3, "\"reduce_bucket_size\": \"5e8\"",
       "[string_not_int] f.json:3:23: zero_optimization.reduce_bucket_size: found \"5e8\", "
       "expected "
       "an integer; write 500000000 without quotes"},
      {2, "\"grad_hooks\": true",
       "[unknown_key_zero] f.json:3:1: zero_optimization.grad_hooks: unknown key, which DeepSpeed "
       "refuses in this section"},
      {2, "\"reduce_bucketsize\": 5",
       "[unknown_key_zero] f.json:3:1: zero_optimization.reduce_bucketsize: unknown key, which "
       "DeepSpeed refuses in this section; did you mean \"reduce_bucket_size\"?"},
      {2, "\"reduce_bucket_size\": 0",
       "[bucket_zero] f.json:3:23: zero_optimization.reduce_bucket_size: found 0, expected at "
       "least "
       "1: DeepSpeed divides by it in the first backward"},
      {1, "\"allgather_bucket_size\": 5",
       "[out_of_range] f.json:3:26: zero_optimization.allgather_bucket_size: found 5, expected an "
       "even number"},
      {2, "\"cpu_offload\": true, \"offload_optimizer\": {\"device\": \"cpu\"}",
       "[deprecated_and_new_together] f.json:3:16: zero_optimization.cpu_offload: given together "
       "with offload_optimizer, expected only the latter"},
      {2, "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5}",
       "[partial_offload_needs_stage_3] f.json:3:49: zero_optimization.offload_optimizer.ratio: "
       "found 0.5, which needs stage 3, but the stage is 2"},
      {3, "\"zero_hpz_partition_size\": 3",
       "[out_of_range] f.json:3:28: zero_optimization.zero_hpz_partition_size: found 3, expected a "
       "divisor of the world size 8"},
      {3, "\"overlap_comm\": \"maybe\"",
       "[wrong_type] f.json:3:17: zero_optimization.overlap_comm: found \"maybe\", expected true "
       "or false"},
      {3, "\"max_live_parameters\": 1, \"stage3_max_live_parameters\": 2",
       "[duplicate_keys] f.json:3:24: zero_optimization.max_live_parameters: given together with "
       "stage3_max_live_parameters, expected one of the two names"},
      {3, "\"offload_param\": {\"device\": \"nvme\"}",
       "[nvme_path_missing] f.json:3:18: zero_optimization.offload_param.nvme_path: missing, "
       "expected a path, since "
       "device is \"nvme\""},
      {3, "\"offload_param\": {\"device\": \"gpu\"}",
       "[unknown_value] f.json:3:29: zero_optimization.offload_param.device: found \"gpu\", "
       "expected one of none, "
       "cpu, nvme; did you mean \"cpu\"?"},
      {1, "\"legacy_stage1\": true",
       "[removed_key] f.json:3:18: zero_optimization.legacy_stage1: found true, which DeepSpeed no "
       "longer "
       "supports, expected false"},
  };
  for (const BadZero& bad : cases) EXPECT_EQ(error_of(zero(bad.stage, bad.inside)), bad.error);
}

TEST(ZeroSection, StageIsZeroToThree) {
  for (const int stage : {-1, 4}) {
    EXPECT_EQ(error_of(with("\"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}")),
              "[bad_stage] f.json:2:32: zero_optimization.stage: found " + std::to_string(stage) +
                  ", expected 0, 1, 2 or 3");
  }
  EXPECT_EQ(error_of(with("\"zero_optimization\": 3")),
            "[wrong_type] f.json:2:22: zero_optimization: found 3, expected an object");
}

TEST(ZeroSection, TakesBothNamesAndLenientValues) {
  const Strategy strategy =
      parse(zero(3,
                 "\"prefetch_bucket_size\": 1e7, \"sub_group_size\": 1e12, "
                 "\"reduce_bucket_size\": \"500\", \"overlap_comm\": \"off\""));
  EXPECT_EQ(strategy.zero.prefetch_bucket_size, 10'000'000);
  EXPECT_EQ(strategy.zero.sub_group_size, 1'000'000'000'000);
  EXPECT_EQ(strategy.zero.reduce_bucket_size, 500);
  EXPECT_FALSE(strategy.zero.overlap_comm);
  EXPECT_THAT(codes(strategy), Contains("quoted_number"));
}

struct BadLine {
  const char* line;
  const char* error;
};

TEST(TopLevel, ErrorsHaveCodeAndPlace) {
  const BadLine cases[] = {
      {"\"fp16\": {\"enabled\": true}",
       "[fp16_and_bf16] f.json:1:47: bf16: enabled together with fp16, expected at most one of "
       "them"},
      {"\"fp16\": {\"enabled\": false, \"fp16_opt_level\": \"O2\"}",
       "[unknown_key_fp16] f.json:2:28: fp16.fp16_opt_level: unknown key, which DeepSpeed refuses "
       "in "
       "this section"},
      {"\"communication_data_type\": \"int8\"",
       "[unknown_value] f.json:2:28: communication_data_type: found \"int8\", expected one of "
       "fp32, fp16, bf16"},
      {"\"gradient_clipping\": -1",
       "[out_of_range] f.json:2:22: gradient_clipping: found -1, expected a number of at least 0"},
      {"\"gradient_accumulation_steps\": 0",
       "[out_of_range] f.json:2:32: gradient_accumulation_steps: found 0, expected an integer of "
       "at "
       "least 1"},
      {"\"gradient_accumulation_steps\": \"2\"",
       "[string_not_int] f.json:2:32: gradient_accumulation_steps: found \"2\", expected an "
       "integer; "
       "write 2 without quotes"},
      {"\"prescale_gradients\": true, \"zero_optimization\": {\"stage\": 2}",
       "[scaling_with_reduce_scatter] f.json:2:23: prescale_gradients: found true, which stage 2 "
       "refuses while reduce_scatter is "
       "true"},
      {"\"gradient_predivide_factor\": 2, \"zero_optimization\": {\"stage\": 3}",
       "[scaling_with_reduce_scatter] f.json:2:30: gradient_predivide_factor: found 2, which stage "
       "3 refuses while "
       "reduce_scatter "
       "is true"},
      {"\"gradient_allreduce_op\": \"max\"",
       "[unknown_value] f.json:2:26: gradient_allreduce_op: found \"max\", expected one of mean, "
       "sum; did "
       "you mean \"mean\"?"},
      {"\"gradient_allreduce_op\": \"sum\", \"zero_optimization\": {\"stage\": 3}",
       "[gradient_sum_unsupported] f.json:2:26: gradient_allreduce_op: found \"sum\", which stage "
       "3 refuses, expected "
       "\"mean\""},
      {"\"managed_gradient_accumulation\": false, \"zero_optimization\": {\"overlap_comm\": true}",
       "[managed_accumulation_off_with_overlap] f.json:2:34: managed_gradient_accumulation: found "
       "false, which stage 0 refuses while "
       "overlap_comm is true"},
      {"\"amp\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 1}",
       "[amp_with_zero] f.json:2:8: amp: enabled together with ZeRO, expected fp16 or bf16"},
      {"\"optimizer\": {\"type\": \"OneBitAdam\"}, \"zero_optimization\": {\"stage\": 1}",
       "[optimizer_incompatible_with_zero] f.json:2:23: optimizer.type: found \"OneBitAdam\", "
       "which "
       "cannot be combined with ZeRO, expected Adam or AdamW"},
      {"\"optimizer\": {\"type\": \"Lamb\"}, \"zero_optimization\": {\"stage\": 1}",
       "[untested_optimizer] f.json:2:23: optimizer.type: found \"Lamb\", which ZeRO has not been "
       "tested with; expected Adam or AdamW, or zero_allow_untested_optimizer: true"},
      {"\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"max_grad_norm\": 1}}",
       "[max_grad_norm_in_optimizer] f.json:2:60: optimizer.params.max_grad_norm: not accepted "
       "here, expected gradient_clipping "
       "at "
       "top level"},
      {"\"data_types\": {\"grad_accum_dtype\": \"fp32\"}",
       "[grad_accum_dtype_unsupported] f.json:2:36: data_types.grad_accum_dtype: found \"fp32\", "
       "but stage 0 accumulates in the "
       "model's bf16 only"},
      {"\"data_types\": {\"param_dtype\": \"fp32\"}",
       "[param_dtype_mismatch] f.json:2:31: data_types.param_dtype: found \"fp32\", expected bf16, "
       "the enabled precision"},
      {"\"comms_logger\": {\"on\": true}",
       "[unknown_key_section] f.json:2:18: comms_logger.on: unknown key, which DeepSpeed refuses "
       "in "
       "this "
       "section"},
      {"\"timers\": {\"throughput\": {\"synchronised\": true}}",
       "[unknown_key_section] f.json:2:27: timers.throughput.synchronised: unknown key, which "
       "DeepSpeed refuses in this section; did you mean \"synchronized\"?"},
  };
  for (const BadLine& bad : cases) EXPECT_EQ(error_of(with(bad.line)), bad.error);
}

TEST(TopLevel, TheFileIsAnObject) {
  EXPECT_EQ(error_of("[1]"), "f.json:1:1: found an array, expected an object");
  EXPECT_EQ(error_of(""), "f.json:1:1: found nothing, expected an object");
  EXPECT_EQ(error_of("{}", {}, 0), "world size: found 0, expected at least 1 rank");
}

TEST(TopLevel, FpSixteenScalesArePositive) {
  const std::string begin = "{\"train_batch_size\": 8,\n\"fp16\": {\"enabled\": true, ";
  EXPECT_EQ(
      error_of(begin + "\"loss_scale_window\": 0}}"),
      "[out_of_range] f.json:2:48: fp16.loss_scale_window: found 0, expected an integer of at "
      "least 1");
  EXPECT_THAT(
      error_of(begin + "\"min_loss_scale\": 0}}"),
      StartsWith(
          "[out_of_range] f.json:2:45: fp16.min_loss_scale: found 0, expected a number above 0"));
}

// ---- what is not simulated is said, never ignored ----

TEST(NotSimulated, IsReadAndRememberedAtTheSetting) {
  const BadZero cases[] = {
      {3, "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}",
       "f.json:3:33: zero_optimization.offload_optimizer.device: found nvme: this version does not "
       "simulate offload to NVMe yet"},
      {3, "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}",
       "f.json:3:29: zero_optimization.offload_param.device: found nvme: this version does not "
       "simulate offload to NVMe yet"},
      {3, "\"offload_optimizer\": {\"device\": \"cpu\", \"super_offload\": true}",
       "f.json:3:57: zero_optimization.offload_optimizer.super_offload: found true: this version "
       "does not simulate SuperOffload (C8.7) yet"},
      {2, "\"zenflow\": {\"topk_ratio\": 0.2}",
       "f.json:3:27: zero_optimization.zenflow.topk_ratio: found 0.2: this version does not "
       "simulate ZenFlow yet"},
  };
  for (const BadZero& bad : cases) {
    const Strategy strategy = parse(zero(bad.stage, bad.inside));
    ASSERT_TRUE(strategy.not_simulated.has_value()) << bad.inside;
    EXPECT_STREQ(strategy.not_simulated->what(), bad.error);
  }
  const Strategy cast = parse(with("\"torch_autocast\": {\"enabled\": true}"));
  ASSERT_TRUE(cast.not_simulated.has_value());
  EXPECT_STREQ(cast.not_simulated->what(),
               "f.json:2:31: torch_autocast.enabled: found true: this version does not simulate "
               "torch_autocast yet");
}

// Values with several that are simulated, and what is off.
TEST(NotSimulated, VariantsOfStage3AreSimulated) {
  for (const char* inside :
       {"\"offload_optimizer\": {\"device\": \"cpu\"}", "\"cpu_offload\": true",
        "\"offload_param\": {\"device\": \"cpu\"}", "\"offload_optimizer\": {\"device\": \"none\"}",
        "\"zero_quantized_weights\": true", "\"zero_quantized_gradients\": true",
        "\"mics_shard_size\": 4"}) {
    EXPECT_FALSE(parse(zero(3, inside)).not_simulated.has_value()) << inside;
  }
}

TEST(NotSimulated, OffloadOfTheOptimizerIsSimulatedBelowStage3) {
  for (const int stage : {1, 2}) {
    for (const char* inside :
         {"\"offload_optimizer\": {\"device\": \"cpu\"}", "\"cpu_offload\": true",
          "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}"}) {
      const Strategy strategy = parse(zero(stage, inside));
      EXPECT_FALSE(strategy.not_simulated.has_value()) << inside;
      EXPECT_EQ(strategy.zero.offload_optimizer.device, OffloadDevice::Cpu);  // A2: nvme too
    }
  }
}

// The client's optimizer gives way to CPU Adam unless the file says otherwise.
TEST(NotSimulated, OffloadPutsCpuAdamInPlaceOfTheClientsOptimizer) {
  TrainingFlags torch_adam;
  torch_adam.optimizer = OptimizerKind::AdamTorchForeach;
  const std::string offload = "\"offload_optimizer\": {\"device\": \"cpu\"}";
  EXPECT_EQ(parse(zero(2, offload), torch_adam).optimizer, OptimizerKind::AdamFused);
  EXPECT_EQ(parse(zero(2, "\"overlap_comm\": false"), torch_adam).optimizer,
            OptimizerKind::AdamTorchForeach);
}

TEST(NotSimulated, IsAcceptedWhenSwitchedOff) {
  for (const int size : {0, 1}) {
    const std::string hpz = "\"zero_hpz_partition_size\": " + std::to_string(size);
    EXPECT_FALSE(
        parse(zero(3,
                   "\"offload_optimizer\": {\"device\": \"none\"}, \"offload_param\": null, "
                   "\"zero_quantized_weights\": false, \"mics_shard_size\": -1, " +
                       hpz))
            .not_simulated.has_value());
  }
  EXPECT_FALSE(parse(with("\"torch_autocast\": {\"enabled\": false}")).not_simulated.has_value());
}

// ---- nasty values ----

TEST(NastyValues, EndInAStrategyOrAConfigErrorAtThePlace) {
  const char* values[] = {"null",
                          "true",
                          "false",
                          "0",
                          "-1",
                          "1",
                          "2.5",
                          "1e30",
                          "-1e30",
                          "1e308",
                          "9223372036854775807",
                          "18446744073709551615",
                          "\"\"",
                          "\"auto\"",
                          "\"x\"",
                          "\"1e9\"",
                          "[]",
                          "{}",
                          "[[1]]",
                          "{\"enabled\": true}",
                          "{\"enabled\": \"auto\"}",
                          "{\"device\": 1}",
                          "{\"stage\": {}}"};
  const char* top[] = {"train_batch_size",
                       "train_micro_batch_size_per_gpu",
                       "gradient_accumulation_steps",
                       "fp16",
                       "bf16",
                       "bfloat16",
                       "amp",
                       "zero_optimization",
                       "optimizer",
                       "scheduler",
                       "gradient_clipping",
                       "communication_data_type",
                       "data_types",
                       "prescale_gradients",
                       "gradient_predivide_factor",
                       "gradient_allreduce_op",
                       "sparse_gradients",
                       "comms_logger",
                       "flops_profiler",
                       "timers",
                       "wall_clock_breakdown",
                       "activation_checkpointing",
                       "elasticity",
                       "sequence_parallel_size",
                       "tensor_parallel",
                       "compile",
                       "zero_allow_untested_optimizer",
                       "zero_force_ds_cpu_optimizer",
                       "torch_autocast",
                       "aio",
                       "pipeline",
                       "checkpoint",
                       "seq_parallel_communication_data_type",
                       "managed_gradient_accumulation",
                       "allgather_size",
                       "compression_training"};
  const char* inside[] = {"reduce_bucket_size",
                          "stage3_prefetch_bucket_size",
                          "overlap_comm",
                          "offload_param",
                          "offload_optimizer",
                          "zero_hpz_partition_size",
                          "mics_shard_size",
                          "stage3_module_granularity_threshold",
                          "cpu_offload",
                          "cpu_offload_param",
                          "legacy_stage1",
                          "zenflow",
                          "leaf_module",
                          "stage3_gather_fp16_weights_on_model_save",
                          "zeropp_loco_param",
                          "zero_quantized_weights",
                          "cpu_offload_use_pin_memory",
                          "stage3_allgather_sequential"};
  int errors = 0;
  const auto read = [&](const std::string& text, ConfigMode mode) {
    try {
      static_cast<void>(parse(text, as(mode)));
    } catch (const ConfigError& error) {
      ++errors;
      EXPECT_THAT(error.what(), StartsWith("f.json:")) << text;
      EXPECT_GE(error.location().column, 1) << text;
    }
  };
  for (const ConfigMode mode : {ConfigMode::Auto, ConfigMode::DeepSpeed, ConfigMode::HuggingFace}) {
    for (const std::string value : values) {
      for (const std::string key : top) read("{\"" + key + "\": " + value + "}", mode);
      for (const std::string key : inside) {
        read(zero(3, "\"" + key + "\": " + value), mode);
        read(zero(1, "\"" + key + "\": " + value), mode);
      }
    }
  }
  EXPECT_GT(errors, 1000);
}

// ---- other sections and warnings ----

TEST(Timers, AreRead) {
  EXPECT_TRUE(parse(with("\"steps_per_print\": 1")).throughput_timer);
  EXPECT_FALSE(parse(with("\"timers\": {\"throughput\": {\"enabled\": false}}")).throughput_timer);
  EXPECT_FALSE(
      parse(with("\"timers\": {\"throughput\": {\"synchronized\": false}}")).throughput_timer);
  const Strategy logged = parse(with("\"comms_logger\": {\"enabled\": false}"));
  EXPECT_TRUE(logged.comms_logger);
  EXPECT_EQ(codes(logged), std::vector<std::string>{"comms_logger_synchronises"});
  EXPECT_TRUE(parse(with("\"wall_clock_breakdown\": true")).wall_clock_breakdown);
  EXPECT_TRUE(parse(with("\"flops_profiler\": {\"enabled\": true}")).wall_clock_breakdown);
}

TEST(Types, AreRead) {
  const Strategy strategy =
      parse(zero(1,
                 "\"overlap_comm\": true}, \"communication_data_type\": \"fp32\",\n"
                 "\"data_types\": {\"grad_accum_dtype\": \"fp32\""));
  EXPECT_EQ(strategy.communication_dtype, Dtype::F32);
  EXPECT_EQ(strategy.grad_accum_dtype, Dtype::F32);
  EXPECT_EQ(codes(strategy), std::vector<std::string>{"communication_data_type_doubles_traffic"});
  // B3.11: stage 2 accumulates in the model dtype
  const Strategy second =
      parse(zero(2, "\"overlap_comm\": true}, \"data_types\": {\"grad_accum_dtype\": \"fp32\""));
  EXPECT_EQ(second.grad_accum_dtype, Dtype::Bf16);
  EXPECT_EQ(codes(second), std::vector<std::string>{"grad_accum_dtype_ignored_at_stage_2"});
  EXPECT_FALSE(parse("{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true, "
                     "\"check_grad_overflow\": false}}")
                   .check_grad_overflow);
}

TEST(Warnings, NameThePlace) {
  const Strategy typo = parse(with("\"gradient_clipp1ng\": 1.0"));
  ASSERT_EQ(codes(typo), (std::vector<std::string>{"unknown_key_top", "did_you_mean"}));
  EXPECT_EQ(typo.warnings[0].message,
            "f.json:2:1: gradient_clipp1ng: unknown key, which DeepSpeed ignores; did you mean "
            "\"gradient_clipping\"?");
  EXPECT_EQ(codes(parse(zero(3, "\"stage3_prefetch_bucket_size\": 0"))),
            std::vector<std::string>{"prefetch_disabled"});
  EXPECT_EQ(codes(parse(zero(3, "\"stage3_max_live_parameters\": 0"))),
            std::vector<std::string>{"max_live_0_serialises_gathers"});
  EXPECT_EQ(codes(parse(zero(2, "\"overlap_comm\": true"), {}, 1)),
            std::vector<std::string>{"dp_degree_1_no_sharding"});
}

TEST(Warnings, CompareBucketsWithTheModel) {
  Model model;
  for (const std::int64_t elements : {600, 400}) {
    Parameter parameter;
    parameter.elements = elements;
    model.parameters.push_back(parameter);
  }
  const auto codes_with = [&](int bucket) {
    const std::string text = zero(2, "\"reduce_bucket_size\": " + std::to_string(bucket));
    return codes(parse_deepspeed_config(text, "f.json", {}, model, 8));
  };
  EXPECT_EQ(codes_with(1001), std::vector<std::string>{"bucket_larger_than_model"});
  EXPECT_EQ(codes_with(1000), std::vector<std::string>{});
  EXPECT_EQ(codes_with(600), std::vector<std::string>{});
  EXPECT_EQ(codes_with(599), std::vector<std::string>{"bucket_smaller_than_largest_param"});
}

}  // namespace
}  // namespace zerosim
