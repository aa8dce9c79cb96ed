// Files of torchtitan and LLM Foundry: sim/strategy/job_config.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/strategy/strategy.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

Strategy read(const std::string& text, int world_size = 16, const TrainingFlags& flags = {}) {
  return parse_training_config(text, "job.yaml", flags, Model(), world_size);
}

std::string refusal(const std::string& text, int world_size = 16, const TrainingFlags& flags = {}) {
  try {
    (void)read(text, world_size, flags);
  } catch (const ConfigError& error) {
    return "[" + error.code() + "] " + error.what();
  }
  return "no error";
}

constexpr const char* kTitan =
    "job:\n"
    "  dump_folder: ./outputs\n"
    "training:\n"
    "  local_batch_size: 2\n"
    "  global_batch_size: 64\n"
    "  seq_len: 8192\n"
    "  max_norm: 1.0\n"
    "parallelism:\n"
    "  data_parallel_replicate_degree: 2\n"
    "  data_parallel_shard_degree: -1\n"
    "activation_checkpoint:\n"
    "  mode: full\n";

TEST(Torchtitan, IsFullyShardOnAMesh) {
  const Strategy strategy = read(kTitan);
  EXPECT_EQ(strategy.framework, Framework::Fsdp);
  EXPECT_EQ(strategy.fsdp.version, 2);
  EXPECT_EQ(strategy.fsdp.sharding, FsdpSharding::HybridShard);
  EXPECT_EQ(strategy.fsdp.shard_group, 8);
  EXPECT_TRUE(strategy.fsdp.keeps_last_unit);
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.grad_accum, 2);  // 64 / (2 x 16)
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  EXPECT_EQ(strategy.communication_dtype, Dtype::F32);  // mixed_precision_reduce
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
  EXPECT_FALSE(strategy.fsdp.checkpoints_around_units);
  EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamFused);
  EXPECT_DOUBLE_EQ(strategy.gradient_clipping, 1.0);
  EXPECT_FALSE(strategy.not_simulated.has_value());
  EXPECT_THAT(strategy.assumptions,
              Contains("Mixed precision: bf16 in forward, backward and gathers, f32 in reductions; "
                       "shards and optimizer states are fp32."));
}

TEST(Torchtitan, SelectiveCheckpointingByOperatorOrByLayer) {
  const std::string head = "training:\n  local_batch_size: 1\nactivation_checkpoint:\n";
  const Strategy op = read(head + "  mode: selective\n  selective_ac_option: op\n");
  EXPECT_EQ(op.checkpointing, ActivationCheckpointing::PerOperator);
  const Strategy layers = read(head + "  mode: selective\n  selective_ac_option: '2'\n");
  EXPECT_EQ(layers.checkpointing, ActivationCheckpointing::Selective);
  EXPECT_THAT(layers.assumptions,
              Contains(HasSubstr("recomputes whole layers, as many as selective_ac_option says")));
}

TEST(Torchtitan, ReshardPolicies) {
  const std::string head = "training:\n  local_batch_size: 1\nparallelism:\n";
  const Strategy never = read(head + "  fsdp_reshard_after_forward: never\n");
  EXPECT_FALSE(never.fsdp.reshard_after_forward);
  EXPECT_EQ(never.fsdp.sharding, FsdpSharding::ShardGradOp);
  const Strategy always = read(head + "  fsdp_reshard_after_forward: always\n");
  EXPECT_FALSE(always.fsdp.keeps_last_unit);
  EXPECT_THAT(refusal(head + "  fsdp_reshard_after_forward: allways\n"),
              HasSubstr("did you mean \"always\"?"));
}

TEST(Torchtitan, Errors) {
  const std::string head = "training:\n  local_batch_size: 1\nparallelism:\n";
  EXPECT_THAT(refusal(head + "  data_parallel_shard_degre: 8\n"),
              testing::AllOf(StartsWith("[unknown_key_job] job.yaml:4:3: "),
                             HasSubstr("did you mean \"data_parallel_shard_degree\"?")));
  EXPECT_EQ(
      refusal(head + "  data_parallel_replicate_degree: 3\n"),
      "[world_size_mismatch] job.yaml:4:35: parallelism.data_parallel_replicate_degree: found "
      "3, which does not divide the 16 GPUs");
  EXPECT_EQ(refusal(head + "  data_parallel_shard_degree: 4\n"),
            "[world_size_mismatch] job.yaml:4:31: parallelism.data_parallel_shard_degree: found 4, "
            "expected -1 or 16: 16 GPUs over 1 replica");
  EXPECT_EQ(
      refusal("training:\n  local_batch_size: 1\n  tensor_parallel_degree: 2\n"
              "parallelism: {}\n"),
      "[unknown_key_job] job.yaml:3:27: training.tensor_parallel_degree: found a key of older "
      "releases, expected it in the section parallelism");
  EXPECT_THAT(
      read("training:\n  local_batch_size: 1\n  compile: true\nparallelism: {}\n").assumptions,
      testing::Contains(HasSubstr("element-wise kernels of blocks are fused")));
  EXPECT_THAT(read(head + "  tensor_parallel_degree: 2\n").not_simulated->what(),
              HasSubstr("tensor_parallel_degree: zerosim does not simulate tensor"));
  EXPECT_EQ(
      refusal("training:\n  local_batch_size: 3\n  global_batch_size: 64\nparallelism: {}\n"),
      "[batch_triple_mismatch] job.yaml:3:22: training.global_batch_size: found 64, expected a "
      "multiple of 48: micro batch 3 x data-parallel size 16");
}

constexpr const char* kFoundry =
    "max_seq_len: 2048\n"
    "precision: amp_bf16\n"
    "global_train_batch_size: 128\n"
    "device_train_microbatch_size: 4\n"
    "algorithms:\n"
    "  gradient_clipping:\n"
    "    clipping_type: norm\n"
    "    clipping_threshold: 0.5\n"
    "fsdp_config:\n"
    "  sharding_strategy: SHARD_GRAD_OP\n"
    "  mixed_precision: PURE\n"
    "  activation_checkpointing: true\n"
    "  limit_all_gathers: true\n";

TEST(LlmFoundry, IsComposersFsdp) {
  const Strategy strategy = read(kFoundry);
  EXPECT_EQ(strategy.fsdp.version, 1);
  EXPECT_EQ(strategy.fsdp.sharding, FsdpSharding::ShardGradOp);
  EXPECT_EQ(strategy.fsdp.backward_prefetch, BackwardPrefetch::Post);
  EXPECT_EQ(strategy.micro_batch, 4);
  EXPECT_EQ(strategy.grad_accum, 2);  // 128 / (4 x 16)
  EXPECT_EQ(strategy.communication_dtype, Dtype::Bf16);
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
  EXPECT_DOUBLE_EQ(strategy.gradient_clipping, 0.5);
}

TEST(LlmFoundry, TypesAndReshard) {
  const std::string head =
      "max_seq_len: 64\nprecision: amp_bf16\ndevice_train_microbatch_size: 1\nfsdp_config:\n";
  EXPECT_EQ(read(head + "  mixed_precision: DEFAULT\n").communication_dtype, Dtype::F32);
  EXPECT_THAT(read(head + "  mixed_precision: FULL\n").not_simulated->what(),
              HasSubstr("fp32 parameters under autocast"));
  const Strategy two = read(head + "  reshard_after_forward: 8\n");
  EXPECT_EQ(two.fsdp.version, 2);
  EXPECT_EQ(two.fsdp.reshard_ranks, 8);
}

TEST(LlmFoundry, Errors) {
  const std::string head = "max_seq_len: 64\nmax_duration: 1ba\nfsdp_config:\n";
  EXPECT_THAT(refusal(head + "  sharding_stategy: FULL_SHARD\n"),
              testing::AllOf(StartsWith("[unknown_key_job] job.yaml:4:3: "),
                             HasSubstr("did you mean \"sharding_strategy\"?")));
  EXPECT_THAT(refusal(head + "  sharding_strategy: FULL_SHRAD\n"),
              HasSubstr("did you mean \"FULL_SHARD\"?"));
  EXPECT_THAT(refusal("max_seq_len: 64\ndevice_train_microbatch_size: auto\nfsdp_config: {}\n"),
              StartsWith("[auto_batch_unresolved] job.yaml:2:31: device_train_microbatch_size: "));
  EXPECT_THAT(
      refusal("max_seq_len: 64\ndevice_train_microbatch_size: \"eight\"\nfsdp_config: {}\n"),
      HasSubstr("job.yaml:2:31: device_train_microbatch_size: "));
  EXPECT_THAT(refusal("max_seq_len: 64\nfsdp_config:\n  sharding_strategy: NO_SHARD\n"
                      "  data_parallel_replicate_degree: 2\n"),
              HasSubstr("found it with NO_SHARD"));
}

// Replicas of what keeps its parameters gathered, or not.
TEST(LlmFoundry, ReplicasAreHybrid) {
  const auto sharding = [](const std::string& name) {
    return read(
               "max_seq_len: 64\ndevice_train_microbatch_size: 1\nfsdp_config:\n"
               "  sharding_strategy: " +
               name + "\n  data_parallel_replicate_degree: 2\n")
        .fsdp.sharding;
  };
  EXPECT_EQ(sharding("FULL_SHARD"), FsdpSharding::HybridShard);
  EXPECT_EQ(sharding("SHARD_GRAD_OP"), FsdpSharding::HybridShardZero2);
}

}  // namespace
}  // namespace zerosim
