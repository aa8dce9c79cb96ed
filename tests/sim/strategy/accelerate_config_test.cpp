#include "sim/strategy/accelerate_config.h"

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
using testing::Not;
using testing::StartsWith;

const std::string kFiles = std::string(ZEROSIM_TEST_DATA) + "/accelerate/";

const Model& llama() {
  static const Model kModel = load_model("llama-2-7b");  // hidden 4096, LlamaDecoderLayer
  return kModel;
}

TrainingFlags micro_batch(std::int64_t size) {
  TrainingFlags flags;
  flags.micro_batch = size;
  return flags;
}

Strategy read(const std::string& yaml, int world_size = 8,
              const TrainingFlags& flags = micro_batch(1)) {
  return read_accelerate_config(JsonDocument::from_yaml(yaml, "f.yaml"), flags, llama(),
                                world_size);
}

/// "[code] message" of the error that `yaml` ends in.
std::string refusal(const std::string& yaml, int world_size = 8,
                    const TrainingFlags& flags = micro_batch(1)) {
  try {
    static_cast<void>(read(yaml, world_size, flags));
  } catch (const ConfigError& error) {
    return (error.code().empty() ? "" : "[" + error.code() + "] ") + error.what();
  }
  return "no error";
}

/// A file of FSDP for 8 processes whose fourth line is the first of `inside`.
std::string fsdp(const std::string& inside) {
  return "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n" + inside;
}

/// The same of DeepSpeed.
std::string deepspeed(const std::string& inside) {
  return "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n" + inside;
}

// ---- whole files ----

struct Expected {
  std::string file;
  int world_size;
  Framework framework;
  Precision precision;
  std::int64_t grad_accum;
  std::int64_t train_batch;  ///< 1 x grad_accum x data-parallel size
  bool simulated;
  std::vector<std::string> codes;
};

const std::vector<Expected>& files() {
  static const std::vector<Expected> kExpected = {
      {"fsdp.yaml", 8, Framework::Fsdp, Precision::Bf16, 1, 8, true, {}},
      {"fsdp_old.yaml", 2, Framework::Fsdp, Precision::Fp16, 1, 2, true, {"old_name", "old_name"}},
      {"fsdp2.yaml", 8, Framework::Fsdp, Precision::Bf16, 1, 8, true, {}},
      {"fsdp_hybrid_two_nodes.yaml", 16, Framework::Fsdp, Precision::Bf16, 1, 16, true, {}},
      // Two ranks share each sequence: data-parallel size 1.
      {"fsdp_context_parallel.yaml", 2, Framework::Fsdp, Precision::Bf16, 1, 1, false, {}},
      {"deepspeed_zero1.yaml", 8, Framework::DeepSpeed, Precision::Bf16, 1, 8, true, {}},
      {"deepspeed_zero3.yaml", 8, Framework::DeepSpeed, Precision::Bf16, 1, 8, true, {}},
      {"multi_gpu.yaml", 8, Framework::Ddp, Precision::Bf16, 1, 8, true, {}},
      {"single_gpu.yaml", 1, Framework::Single, Precision::Fp32, 1, 1, true, {}},
      {"default_config.json", 4, Framework::Ddp, Precision::Fp16, 1, 4, true, {}},
  };
  return kExpected;
}

TEST(AccelerateFiles, AreReadAsTheyAre) {
  for (const Expected& expected : files()) {
    SCOPED_TRACE(expected.file);
    const Strategy strategy =
        load_training_config(kFiles + expected.file, micro_batch(1), llama(), expected.world_size);
    EXPECT_EQ(strategy.name, expected.file.substr(0, expected.file.find('.')));
    EXPECT_EQ(strategy.framework, expected.framework);
    EXPECT_EQ(strategy.precision, expected.precision);
    EXPECT_EQ(strategy.micro_batch, 1);
    EXPECT_EQ(strategy.grad_accum, expected.grad_accum);
    EXPECT_EQ(strategy.train_batch, expected.train_batch);
    EXPECT_EQ(!strategy.not_simulated, expected.simulated);
    EXPECT_EQ(codes(strategy), expected.codes);
  }
}

TEST(AccelerateFiles, FsdpVersionOne) {
  const Strategy strategy = load_training_config(kFiles + "fsdp.yaml", micro_batch(2), llama(), 8);
  EXPECT_EQ(strategy.fsdp.version, 1);
  EXPECT_EQ(strategy.fsdp.sharding, FsdpSharding::FullShard);
  EXPECT_EQ(strategy.fsdp.wrap, FsdpWrap::TransformerLayer);
  EXPECT_THAT(strategy.fsdp.transformer_layer_classes, ElementsAre("LlamaDecoderLayer"));
  EXPECT_EQ(strategy.fsdp.backward_prefetch, BackwardPrefetch::Pre);
  EXPECT_FALSE(strategy.fsdp.forward_prefetch);
  EXPECT_FALSE(strategy.fsdp.cpu_offload);
  EXPECT_TRUE(strategy.fsdp.use_orig_params);
  EXPECT_EQ(strategy.communication_dtype, Dtype::Bf16);  // D2.13: reduce_dtype
  EXPECT_EQ(strategy.grad_accum_dtype, Dtype::F32);
  EXPECT_FALSE(strategy.not_simulated.has_value());
  EXPECT_FALSE(strategy.fsdp.checkpoints_around_units);
}

TEST(AccelerateFiles, OldNamesAndNumbers) {
  const Strategy strategy =
      load_training_config(kFiles + "fsdp_old.yaml", micro_batch(1), llama(), 2);
  EXPECT_EQ(strategy.fsdp.sharding, FsdpSharding::ShardGradOp);  // 2
  EXPECT_EQ(strategy.fsdp.wrap, FsdpWrap::Size);
  EXPECT_EQ(strategy.fsdp.min_num_params, 20'000'000);
  EXPECT_EQ(strategy.fsdp.backward_prefetch, BackwardPrefetch::Post);
  EXPECT_TRUE(strategy.fsdp.cpu_offload);
  EXPECT_THAT(strategy.warnings[1].message,
              StartsWith(kFiles + "fsdp_old.yaml:10:3: fsdp_config.fsdp_backward_prefetch_policy: "
                                  "an older name"));
}

TEST(AccelerateFiles, HybridOverTwoNodes) {
  const Strategy strategy =
      load_training_config(kFiles + "fsdp_hybrid_two_nodes.yaml", micro_batch(1), llama(), 16);
  EXPECT_EQ(strategy.fsdp.sharding, FsdpSharding::HybridShard);
  EXPECT_EQ(strategy.fsdp.shard_group, 8);  // 16 processes on num_machines 2
  EXPECT_TRUE(strategy.fsdp.forward_prefetch);
  EXPECT_THAT(strategy.fsdp.transformer_layer_classes,
              ElementsAre("LlamaDecoderLayer", "LlamaMLP"));
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
}

TEST(AccelerateFiles, DeepSpeedFileBesideTheYaml) {
  TrainingFlags flags = micro_batch(1);
  flags.precision = Precision::Bf16;
  const std::string path = kFiles + "deepspeed_with_config_support.yaml";
  const Strategy strategy = load_training_config(path, flags, llama(), 2);
  EXPECT_EQ(strategy.framework, Framework::DeepSpeed);
  EXPECT_EQ(strategy.zero.stage, 3);
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  EXPECT_EQ(strategy.zero.reduce_bucket_size, 4096 * 4096);
  EXPECT_EQ(value_of(strategy, "zero_optimization.reduce_bucket_size"), "16777216 (auto)");
  EXPECT_EQ(find_setting(strategy, "zero_optimization.stage")->where.file,
            kFiles + "deepspeed_configs/zero3_auto.json");
  EXPECT_EQ(find_setting(strategy, "num_processes")->where.file, path);
}

/// DeepSpeedPlugin.set_mixed_precision("no") turns "auto" into false.
TEST(AccelerateFiles, AutoPrecisionIsOffWithoutMixedPrecision) {
  const Strategy strategy = load_training_config(kFiles + "deepspeed_with_config_support.yaml",
                                                 micro_batch(1), llama(), 2);
  EXPECT_EQ(strategy.precision, Precision::Fp32);
  EXPECT_EQ(find_setting(strategy, "bf16.enabled")->reason,
            "from accelerate, which has no mixed_precision");
}

TEST(AccelerateFiles, FieldsBesideADeepSpeedFileAreRefused) {
  const std::string path = kFiles + "deepspeed_file_and_fields.yaml";
  try {
    static_cast<void>(load_training_config(path, micro_batch(1), llama(), 2));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), path +
                                ":5:15: deepspeed_config.zero_stage: found together with "
                                "deepspeed_config_file, where accelerate refuses it; expected "
                                "it in that file");
    EXPECT_EQ(error.code(), "deepspeed_file_and_fields");
  }
}

// ---- top level ----

TEST(AccelerateTop, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_EQ(refusal("distributed_type: MULTI_GPU\nnum_process: 8\n"),
            "[unknown_key_accelerate] f.yaml:2:1: num_process: unknown key, which accelerate "
            "refuses at the top of its file; did you mean \"num_processes\"?");
}

TEST(AccelerateTop, DistributedTypes) {
  EXPECT_EQ(read("distributed_type: NO\n", 1).framework, Framework::Single);  // YAML: false
  EXPECT_EQ(read("distributed_type: 'NO'\n", 1).framework, Framework::Single);
  EXPECT_THAT(refusal("distributed_type: MULTI_GPUS\n"),
              HasSubstr("f.yaml:1:19: distributed_type: found \"MULTI_GPUS\", expected one of NO, "
                        "MULTI_GPU, DEEPSPEED, FSDP"));
  EXPECT_THAT(refusal("num_processes: 8\n"),
              HasSubstr("f.yaml:1:1: distributed_type: missing, expected one of NO, MULTI_GPU"));
  EXPECT_THAT(read("distributed_type: MEGATRON_LM\n").not_simulated->what(),
              StartsWith("f.yaml:1:19: distributed_type: zerosim does not simulate Megatron-LM"));
  EXPECT_THAT(refusal("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\n"),
              HasSubstr("f.yaml:1:22: compute_environment: found \"AMAZON_SAGEMAKER\""));
}

TEST(AccelerateTop, ProcessesAreTheGpus) {
  const Strategy fewer = read("distributed_type: MULTI_GPU\nnum_processes: 4\n");
  EXPECT_EQ(value_of(fewer, "num_processes"), "8 (flag)");
  ASSERT_EQ(fewer.warnings.size(), 1U);
  EXPECT_EQ(fewer.warnings[0].code, "num_processes_overridden");
  EXPECT_THAT(fewer.warnings[0].message,
              testing::HasSubstr("f.yaml:2:1: num_processes: found 4, read for 8 GPUs"));
  EXPECT_THAT(refusal("distributed_type: NO\n"),
              StartsWith("[world_size_mismatch] f.yaml:1:19: distributed_type: found NO, which "
                         "starts one process, but the simulated cluster has 8 GPUs"));
  EXPECT_THAT(refusal("distributed_type: MULTI_GPU\nnum_machines: 3\n"),
              StartsWith("[world_size_mismatch] f.yaml:2:15: num_machines: found 3"));
  EXPECT_EQ(value_of(read("distributed_type: MULTI_GPU\n"), "num_processes"), "8 (flag)");
  EXPECT_EQ(value_of(read("distributed_type: MULTI_GPU\nnum_processes: -1\n"), "num_processes"),
            "8 (flag)");
}

TEST(AccelerateTop, Precision) {
  const std::string head = "distributed_type: MULTI_GPU\n";
  EXPECT_EQ(read(head + "mixed_precision: no\n").precision, Precision::Fp32);  // YAML: false
  EXPECT_EQ(read(head + "mixed_precision: 'no'\n").precision, Precision::Fp32);
  EXPECT_EQ(read(head + "fp16: true\n").precision, Precision::Fp16);
  EXPECT_EQ(value_of(read(head), "mixed_precision"), "fp32 (default)");
  EXPECT_THAT(read(head).assumptions, Contains("mixed_precision: fp32, accelerate's default."));
  EXPECT_THAT(read(head + "mixed_precision: fp8\n").not_simulated->what(),
              StartsWith("f.yaml:2:18: mixed_precision: zerosim does not simulate fp8"));
  TrainingFlags flags;
  flags.precision = Precision::Fp16;
  EXPECT_EQ(value_of(read(head, 8, flags), "mixed_precision"), "fp16 (flag)");
  EXPECT_EQ(refusal(head + "mixed_precision: bf16\n", 8, flags),
            "[flag_contradicts_file] f.yaml:2:18: mixed_precision: found bf16, but the flag "
            "--precision says fp16");
}

/// autocast: weights, gradients and what travels are fp32 (D1.8).
TEST(AccelerateTop, DdpUnderAutocast) {
  const Strategy strategy = read("distributed_type: MULTI_GPU\nmixed_precision: bf16\n");
  EXPECT_EQ(strategy.communication_dtype, Dtype::F32);
  EXPECT_EQ(strategy.gradient_clipping, 0);
  EXPECT_FALSE(strategy.throughput_timer);
  EXPECT_FALSE(strategy.ddp.find_unused_parameters);
}

TEST(AccelerateTop, TheLastOfDuplicateKeysCounts) {
  const Strategy strategy =
      read("distributed_type: MULTI_GPU\nmixed_precision: fp16\nmixed_precision: bf16\n");
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  EXPECT_THAT(codes(strategy), ElementsAre("duplicate_keys"));
  EXPECT_THAT(strategy.warnings[0].message,
              StartsWith("f.yaml:3:1: mixed_precision: given before"));
}

TEST(AccelerateTop, MeshSizesMultiplyToTheWorld) {
  const std::string head = fsdp("  fsdp_version: 2\n") + "parallelism_config:\n";
  const Strategy hybrid = read(head +
                               "  parallelism_config_dp_replicate_size: 2\n"
                               "  parallelism_config_dp_shard_size: 4\n");
  EXPECT_EQ(hybrid.fsdp.sharding, FsdpSharding::HybridShard);
  EXPECT_EQ(hybrid.fsdp.shard_group, hybrid.train_batch / 2);
  EXPECT_EQ(hybrid.train_batch, 8);
  EXPECT_THAT(refusal(head + "  parallelism_config_dp_shard_size: 4\n"),
              StartsWith("[world_size_mismatch] f.yaml:6:3: parallelism_config: the product of its "
                         "sizes is 4, but the simulated cluster has 8 GPUs"));
}

// ---- fsdp_config ----

TEST(AccelerateFsdp, DefaultsAreThoseOfTheLauncher) {
  const Strategy strategy = read(fsdp("  {}\n"));
  EXPECT_EQ(value_of(strategy, "fsdp_config.fsdp_version"), "1 (default)");
  EXPECT_EQ(value_of(strategy, "fsdp_config.fsdp_sharding_strategy"), "FULL_SHARD (default)");
  EXPECT_EQ(value_of(strategy, "fsdp_config.fsdp_auto_wrap_policy"), "NO_WRAP (default)");
  EXPECT_EQ(value_of(strategy, "fsdp_config.fsdp_backward_prefetch"), "NO_PREFETCH (default)");
  EXPECT_EQ(value_of(strategy, "fsdp_config.fsdp_use_orig_params"), "true (default)");
  EXPECT_EQ(value_of(strategy, "fsdp_config.fsdp_cpu_ram_efficient_loading"), "true (default)");
  EXPECT_THAT(codes(strategy), ElementsAre("fsdp_wraps_nothing"));
}

TEST(AccelerateFsdp, ShardingByNameAndNumber) {
  const std::vector<std::pair<std::string, FsdpSharding>> kSharding = {
      {"FULL_SHARD", FsdpSharding::FullShard},
      {"1", FsdpSharding::FullShard},
      {"shard_grad_op", FsdpSharding::ShardGradOp},
      {"'2'", FsdpSharding::ShardGradOp},
      {"NO_SHARD", FsdpSharding::NoShard},
      {"3", FsdpSharding::NoShard},
      {"HYBRID_SHARD", FsdpSharding::HybridShard},
      {"4", FsdpSharding::HybridShard},
      {"HYBRID_SHARD_ZERO2", FsdpSharding::HybridShardZero2},
      {"5", FsdpSharding::HybridShardZero2},
  };
  for (const auto& [text, sharding] : kSharding) {
    EXPECT_EQ(read(fsdp("  fsdp_sharding_strategy: " + text + "\n")).fsdp.sharding, sharding)
        << text;
  }
  EXPECT_EQ(refusal(fsdp("  fsdp_sharding_strategy: 6\n")),
            "[unknown_value] f.yaml:4:27: fsdp_config.fsdp_sharding_strategy: found 6, expected "
            "one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2, or its "
            "number from 1");
  EXPECT_THAT(refusal(fsdp("  fsdp_sharding_strategy: FULL_SHRAD\n")),
              HasSubstr("did you mean \"FULL_SHARD\"?"));
}

TEST(AccelerateFsdp, LayerClassesMustBeInTheModel) {
  const std::string head = "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
  const std::string key = "  fsdp_transformer_layer_cls_to_wrap: ";
  EXPECT_EQ(refusal(fsdp(head + key + "LlamaDecoderLayr\n")),
            "[fsdp_layer_class_not_found] f.yaml:5:39: "
            "fsdp_config.fsdp_transformer_layer_cls_to_wrap: found \"LlamaDecoderLayr\", but no "
            "module of llama-2-7b has this class; did you mean \"LlamaDecoderLayer\"?");
  EXPECT_THAT(refusal(fsdp(head + key + "GPT2Block\n")),
              HasSubstr("found \"GPT2Block\", but no module of llama-2-7b has this class; its "
                        "blocks are LlamaDecoderLayer"));
  // Python's split keeps the blank.
  EXPECT_THAT(refusal(fsdp(head + key + "LlamaDecoderLayer, LlamaMLP\n")),
              HasSubstr("found \" LlamaMLP\""));
  EXPECT_THAT(
      read(fsdp(head + key + "[LlamaDecoderLayer, LlamaMLP]\n")).fsdp.transformer_layer_classes,
      ElementsAre("LlamaDecoderLayer", "LlamaMLP"));
  const Strategy own = read(fsdp(head));
  EXPECT_EQ(value_of(own, "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
            "LlamaDecoderLayer (derived)");
}

TEST(AccelerateFsdp, SizesAreIntegersWithoutExponent) {
  const std::string head = "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: ";
  EXPECT_EQ(read(fsdp(head + "2_000\n")).fsdp.min_num_params, 2000);
  EXPECT_EQ(
      refusal(fsdp(head + "5e8\n")),
      "[string_not_int] f.yaml:5:24: fsdp_config.fsdp_min_num_params: found \"5e8\", expected "
      "an integer; write 500000000 without quotes");
  const Strategy by_default = read(fsdp("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"));
  EXPECT_EQ(by_default.fsdp.min_num_params, 100'000'000);
  EXPECT_EQ(read(fsdp(head + "0\n")).fsdp.wrap, FsdpWrap::None);
}

TEST(AccelerateFsdp, EachVersionHasItsKeys) {
  const Strategy two = read(fsdp(
      "  fsdp_version: 2\n  fsdp_sharding_strategy: NO_SHARD\n  fsdp_use_orig_params: true\n"
      "  fsdp_reshard_after_forward: false\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"));
  EXPECT_EQ(two.fsdp.version, 2);
  EXPECT_FALSE(two.fsdp.reshard_after_forward);
  EXPECT_EQ(two.fsdp.sharding, FsdpSharding::ShardGradOp);
  EXPECT_THAT(codes(two), ElementsAre("fsdp_no_effect", "fsdp_no_effect"));
  EXPECT_EQ(two.warnings[0].message,
            "f.yaml:5:3: fsdp_config.fsdp_sharding_strategy: no effect in version 2, which "
            "fsdp_reshard_after_forward governs");
  const Strategy one = read(fsdp("  fsdp_reshard_after_forward: false\n"));
  EXPECT_EQ(one.fsdp.sharding, FsdpSharding::FullShard);
  EXPECT_THAT(codes(one), Contains("fsdp_no_effect"));
  EXPECT_EQ(refusal(fsdp("  fsdp_version: 3\n")),
            "[out_of_range] f.yaml:4:17: fsdp_config.fsdp_version: found 3, expected 1 or 2");
}

TEST(AccelerateFsdp, WrongWordsAndCombinations) {
  EXPECT_THAT(refusal(fsdp("  fsdp_auto_wrap_policy: TRANSFORMER_WRAP\n")),
              HasSubstr("expected one of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP"));
  EXPECT_THAT(refusal(fsdp("  fsdp_offload_params: cpu\n")),
              StartsWith("[wrong_type] f.yaml:4:24: fsdp_config.fsdp_offload_params: found "
                         "\"cpu\", expected true or false"));
  EXPECT_THAT(refusal(fsdp("  fsdp_offload_params: auto\n")), StartsWith("[auto_unresolved]"));
  EXPECT_THAT(refusal(fsdp("  fsdp_sync_module_states: false\n")),
              StartsWith("[fsdp_bad_combination] f.yaml:4:28: fsdp_config.fsdp_sync_module_states: "
                         "found false, but cpu_ram_efficient_loading is true"));
}

TEST(AccelerateFsdp, UnknownKeysAreIgnoredWithAWarning) {
  const Strategy strategy = read(fsdp("  fsdp_use_orig_param: true\n"));
  EXPECT_THAT(codes(strategy), Contains("unknown_key_plugin"));
  EXPECT_EQ(strategy.warnings[0].message,
            "f.yaml:4:3: fsdp_config.fsdp_use_orig_param: unknown key, which accelerate ignores; "
            "did you mean \"fsdp_use_orig_params\"?");
}

TEST(AccelerateFsdp, Lints) {
  const std::string wrapped = "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
  EXPECT_THAT(codes(read(fsdp(wrapped))), ElementsAre("fsdp_no_backward_prefetch"));
  const std::string good = wrapped + "  fsdp_backward_prefetch: BACKWARD_PRE\n";
  EXPECT_THAT(codes(read(fsdp(good))), IsEmpty());
  EXPECT_THAT(codes(read(fsdp(good + "  fsdp_sharding_strategy: NO_SHARD\n"))),
              ElementsAre("fsdp_no_shard_deprecated"));
  EXPECT_THAT(codes(read(fsdp(good + "  fsdp_sharding_strategy: HYBRID_SHARD\n"))),
              ElementsAre("fsdp_hybrid_on_one_node"));
  EXPECT_THAT(
      codes(read("num_machines: 2\n" + fsdp(good + "  fsdp_sharding_strategy: HYBRID_SHARD\n"))),
      IsEmpty());
  TrainingFlags accumulating = micro_batch(1);
  accumulating.grad_accum = 4;
  EXPECT_THAT(codes(read(fsdp(good), 8, accumulating)), ElementsAre("fsdp_keeps_full_gradients"));
  EXPECT_THAT(codes(read("distributed_type: FSDP\nfsdp_config:\n" + good, 1)),
              ElementsAre("dp_degree_1_no_sharding"));
}

// ---- deepspeed_config ----

TEST(AccelerateDeepSpeed, KeysBecomeADeepSpeedFile) {
  const Strategy strategy =
      read(deepspeed("  gradient_accumulation_steps: 4\n"
                     "  gradient_clipping: 0.5\n"
                     "  offload_optimizer_device: nvme\n"
                     "  offload_optimizer_nvme_path: /nvme\n"
                     "  zero3_save_16bit_model: true\n"
                     "  zero_stage: 3\n"
                     "mixed_precision: bf16\n"));
  EXPECT_EQ(strategy.zero.stage, 3);
  EXPECT_EQ(strategy.grad_accum, 4);
  EXPECT_EQ(strategy.train_batch, 32);  // 1 x 4 x 8
  EXPECT_EQ(strategy.gradient_clipping, 0.5);
  EXPECT_EQ(strategy.zero.offload_optimizer.device, OffloadDevice::Nvme);
  EXPECT_EQ(strategy.zero.offload_optimizer.nvme_path, "/nvme");
  EXPECT_EQ(strategy.zero.offload_param.device, OffloadDevice::None);
  EXPECT_TRUE(strategy.zero.gather_16bit_weights_on_model_save);
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  // Places are those of the YAML file.
  EXPECT_EQ(to_string(find_setting(strategy, "zero_optimization.stage")->where), "f.yaml:9:15");
  EXPECT_EQ(to_string(find_setting(strategy, "bf16.enabled")->where), "f.yaml:10:18");
  EXPECT_THAT(strategy.not_simulated->what(), StartsWith("f.yaml:6:29: "));
}

TEST(AccelerateDeepSpeed, DefaultsAreThePlugins) {
  const Strategy strategy = read("distributed_type: DEEPSPEED\n");
  EXPECT_EQ(strategy.zero.stage, 2);
  EXPECT_EQ(value_of(strategy, "zero_optimization.stage"), "2 (default)");
  EXPECT_EQ(find_setting(strategy, "zero_optimization.stage")->reason, "filled in by accelerate");
  EXPECT_EQ(find_setting(strategy, "gradient_clipping")->reason, "accelerate's default");
  EXPECT_EQ(strategy.gradient_clipping, 1.0);
  EXPECT_EQ(strategy.precision, Precision::Fp32);
}

TEST(AccelerateDeepSpeed, ErrorsPointIntoTheYaml) {
  EXPECT_THAT(refusal(deepspeed("  zero_stage: 4\n")), StartsWith("[bad_stage] f.yaml:4:15: "));
  EXPECT_THAT(
      refusal(deepspeed("  offload_param_device: disk\n  zero_stage: 3\n")),
      StartsWith("[unknown_value] f.yaml:4:25: deepspeed_config.offload_param_device: found "
                 "\"disk\", expected one of none, cpu, nvme"));
  EXPECT_THAT(refusal(deepspeed("  offload_param_device: nvme\n  zero_stage: 3\n")),
              StartsWith("[nvme_path_missing] f.yaml:4:"));
  EXPECT_THAT(refusal(deepspeed("  zero_stage: 2\n"), 8, {}),
              StartsWith("[auto_batch_unresolved] f.yaml:4:3: "));
}

TEST(AccelerateDeepSpeed, FileThatIsMissing) {
  EXPECT_EQ(
      refusal(deepspeed("  deepspeed_config_file: nowhere.json\n")),
      "f.yaml:4:26: deepspeed_config.deepspeed_config_file: found \"nowhere.json\", but there "
      "is no such file, neither beside this one nor in the working directory");
  EXPECT_THAT(refusal(deepspeed("  deepspeed_config_file: /dev/zero\n")),
              HasSubstr("there is no such file"));
}

TEST(AccelerateDeepSpeed, InitFlagLeafClassesAndUnknownKeys) {
  const Strategy stage3 =
      read(deepspeed("  zero_stage: 3\n  zero3_init_flag: false\n"
                     "  deepspeed_moe_layer_cls_names: A,B\n"));
  EXPECT_FALSE(stage3.zero_init);
  EXPECT_THAT(stage3.zero.leaf_module_classes, ElementsAre("A", "B"));
  const Strategy stage2 =
      read(deepspeed("  zero_stage: 2\n  zero3_init_flag: true\n  zerostage: 1\n"));
  EXPECT_THAT(codes(stage2),
              testing::IsSupersetOf({"zero3_init_needs_stage_3", "unknown_key_plugin"}));
}

TEST(AccelerateDeepSpeed, PrecisionGoesToTheSection) {
  EXPECT_EQ(read(deepspeed("  zero_stage: 1\nmixed_precision: fp16\n")).precision, Precision::Fp16);
  TrainingFlags flags = micro_batch(1);
  flags.precision = Precision::Bf16;
  EXPECT_THAT(refusal(deepspeed("  zero_stage: 1\nmixed_precision: fp16\n"), 8, flags),
              StartsWith("[flag_contradicts_file] f.yaml:5:18: "));
}

}  // namespace
}  // namespace zerosim
