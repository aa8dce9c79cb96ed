#include "sim/strategy/strategy.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::HasSubstr;

template <typename Function>
std::string error_of(Function function) {
  try {
    static_cast<void>(function());
  } catch (const ConfigError& error) {
    return (error.code().empty() ? "" : "[" + error.code() + "] ") + error.what();
  }
  return "no error";
}

using Given = std::optional<std::int64_t>;

struct BatchCase {
  Given train, micro, accum;
  std::int64_t d;
  std::int64_t t, m, g;
};

TEST(ResolveBatch, FollowsTheTableOfA41) {
  const Given none;
  const BatchCase cases[] = {
      {64, 2, 4, 8, 64, 2, 4},        // all three: checked only
      {256, 4, none, 16, 256, 4, 4},  // F6: G = 256 / 4 / 16
      {64, none, 4, 8, 64, 2, 4},     // M = 64 / 8 / 4
      {none, 2, 8, 8, 128, 2, 8},     // F6: T = 2 * 8 * 8
      {64, none, none, 8, 64, 8, 1},  // M = 64 / 8
      {none, 4, none, 8, 32, 4, 1},   // T = 4 * 8
      {8, 2, 1, 4, 8, 2, 1},
  };
  for (const BatchCase& c : cases) {
    const BatchTriple batch = resolve_batch(c.train, c.micro, c.accum, c.d, {});
    EXPECT_EQ(batch.train_batch, c.t);
    EXPECT_EQ(batch.micro_batch, c.m);
    EXPECT_EQ(batch.grad_accum, c.g);
    EXPECT_EQ(batch.train_batch, batch.micro_batch * batch.grad_accum * c.d);
  }
}

TEST(ResolveBatch, NamesWhatWouldFit) {
  const SourceLocation at{"f", 2, 3};
  const Given none;
  // F6: 100 / 8 / 8 = 1, and 8 * 1 * 8 = 64; multiples of 8 * 8 around 100: 64, 128
  EXPECT_EQ(error_of([&] { return resolve_batch(100, 8, none, 8, at); }),
            "[batch_triple_mismatch] f:2:3: batch sizes: train_batch_size 100 != "
            "train_micro_batch_size_per_gpu 8 x gradient_accumulation_steps 1 x data-parallel size "
            "8 = 64; train_batch_size 64 or 128 would fit");
  // 100 / 3 / 8 = 4, and 3 * 4 * 8 = 96
  EXPECT_THAT(error_of([&] { return resolve_batch(100, 3, none, 8, at); }),
              HasSubstr("= 96; train_batch_size 96 or 120 would fit"));
  // all given: 8 = 2 * 1 * 4
  EXPECT_THAT(error_of([&] { return resolve_batch(8, 2, 1, 1, at); }),
              HasSubstr("= 2; train_batch_size 2 would fit, or a data-parallel size of 4"));
  // fewer samples than ranks: M = 4 / 8 = 0
  EXPECT_THAT(error_of([&] { return resolve_batch(4, none, none, 8, at); }),
              HasSubstr("[batch_triple_mismatch]"));
  EXPECT_THAT(error_of([&] { return resolve_batch(none, none, 4, 8, at); }),
              HasSubstr("[batch_missing] f:2:3: batch sizes: found neither"));
  EXPECT_THAT(error_of([&] { return resolve_batch(none, none, none, 8, at); }),
              HasSubstr("[batch_missing]"));
}

TEST(ResolveBatch, RefusesWhatIsNotPositiveOrTooLarge) {
  const Given none;
  EXPECT_EQ(error_of([&] { return resolve_batch(none, 0, none, 8, {}); }),
            "[out_of_range] train_micro_batch_size_per_gpu: found 0, expected an integer of at "
            "least 1");
  EXPECT_EQ(error_of([&] { return resolve_batch(none, 1, none, 0, {}); }),
            "data-parallel size: found 0, expected at least 1 rank");
  EXPECT_EQ(error_of([&] { return resolve_batch(none, INT64_MAX, 2, 1, {}); }),
            "[out_of_range] batch sizes: 9223372036854775807 x 2 leaves 64 bits");
}

TEST(NamedStrategy, ZeroIsWhatAMinimalFileGives) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Strategy strategy = named_strategy("zero" + std::to_string(stage), {}, 4);
    EXPECT_EQ(strategy.name, "zero" + std::to_string(stage));
    EXPECT_EQ(strategy.framework, Framework::DeepSpeed);
    EXPECT_EQ(strategy.zero.stage, stage);
    EXPECT_EQ(strategy.zero.overlap_comm, stage == 3);
    EXPECT_EQ(strategy.zero.reduce_bucket_size, 500'000'000);
    EXPECT_EQ(strategy.precision, Precision::Bf16);
    EXPECT_EQ(strategy.communication_dtype, Dtype::Bf16);
    EXPECT_EQ(strategy.grad_accum_dtype, Dtype::Bf16);
    EXPECT_DOUBLE_EQ(strategy.gradient_clipping, 1.0);
    EXPECT_TRUE(strategy.check_grad_overflow);
    EXPECT_TRUE(strategy.throughput_timer);
    EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamFused);
    EXPECT_EQ(strategy.micro_batch, 1);
    EXPECT_EQ(strategy.train_batch, 4);
    EXPECT_THAT(strategy.assumptions,
                Contains("Micro batch: 1 sequence per GPU, since no flag says otherwise."));
  }
}

TEST(NamedStrategy, TakesTheFlags) {
  TrainingFlags flags;
  flags.micro_batch = 2;
  flags.grad_accum = 3;
  flags.precision = Precision::Fp16;
  flags.optimizer = OptimizerKind::AdamTorchForeach;
  flags.checkpointing = ActivationCheckpointing::Full;
  for (const std::string& name : strategy_names()) {
    const Strategy strategy = named_strategy(name, flags, 4);
    EXPECT_EQ(strategy.micro_batch, 2);
    EXPECT_EQ(strategy.grad_accum, 3);
    EXPECT_EQ(strategy.train_batch, name == "single" ? 6 : 24);
    EXPECT_EQ(strategy.precision, Precision::Fp16);
    EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamTorchForeach);
    EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
    EXPECT_TRUE(strategy.check_grad_overflow);
  }
  flags.precision = Precision::Fp32;
  EXPECT_EQ(named_strategy("zero2", flags, 4).communication_dtype, Dtype::F32);
  EXPECT_FALSE(named_strategy("zero2", flags, 4).check_grad_overflow);
}

TEST(NamedStrategy, DdpTakesItsFlags) {
  TrainingFlags flags;
  flags.ddp = {.parameter_dtype = Dtype::Bf16,
               .bucket_cap_mib = 50,
               .find_unused_parameters = true,
               .static_graph = true,
               .gradient_as_bucket_view = true,
               .broadcast_buffers = false};
  flags.no_sync = false;
  const Strategy strategy = named_strategy("ddp", flags, 4);
  EXPECT_EQ(strategy.ddp.parameter_dtype, Dtype::Bf16);
  EXPECT_EQ(strategy.communication_dtype, Dtype::Bf16);  // D1.8
  EXPECT_TRUE(strategy.ddp.find_unused_parameters && strategy.ddp.static_graph &&
              strategy.ddp.gradient_as_bucket_view);
  EXPECT_FALSE(strategy.ddp.broadcast_buffers);
  EXPECT_FALSE(strategy.ddp.no_sync);
  EXPECT_TRUE(named_strategy("ddp", {}, 4).ddp.no_sync);
  // D1.3: in 2.x a size of one's own is that of the first bucket too.
  EXPECT_EQ(strategy.ddp.bucket_cap_mib, 50);
  EXPECT_EQ(strategy.ddp.first_bucket_mib, 50);
  flags.torch_version = "1.13.1";
  EXPECT_EQ(named_strategy("ddp", flags, 4).ddp.first_bucket_mib, 1);
  EXPECT_EQ(named_strategy("ddp", flags, 4).torch_version, "1.13");
  EXPECT_EQ(named_strategy("zero2", flags, 4).torch_version, "1.13");
}

TEST(NamedStrategy, WeightsHaveTheTypeThatIsComputedIn) {
  TrainingFlags flags;
  flags.ddp.parameter_dtype = Dtype::F16;
  EXPECT_EQ(error_of([&] { return named_strategy("ddp", flags, 4); }),
            "--ddp-weights: found fp16, but training computes in bf16; expected fp32 or bf16");
  flags.precision = Precision::Fp32;
  EXPECT_EQ(error_of([&] { return named_strategy("single", flags, 1); }),
            "--ddp-weights: found fp16, but training computes in fp32; expected fp32, or "
            "--precision to agree");
}

TEST(TorchVersion, IsOneOfTwo) {
  for (const char* text : {"2", "2.4", "2.4.1"}) EXPECT_EQ(parse_torch_version(text, "f"), "2");
  for (const char* text : {"1.13", "1.13.1"}) EXPECT_EQ(parse_torch_version(text, "f"), "1.13");
  for (const char* text : {"1.12", "1.131", "20", "2.", "2..1", "2.x", "3", ""}) {
    EXPECT_EQ(error_of([&] { return parse_torch_version(text, "--torch-version"); }),
              format("--torch-version: found \"{}\", expected 1.13 or 2 (or a release of it, as "
                     "2.4)",
                     text));
  }
}

TEST(NamedStrategy, DdpKeepsFp32WeightsAndGradients) {
  const Strategy strategy = named_strategy("ddp", {}, 4);
  EXPECT_EQ(strategy.framework, Framework::Ddp);
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  EXPECT_EQ(strategy.communication_dtype, Dtype::F32);  // D1.8
  EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamTorchForeach);
  EXPECT_FALSE(strategy.throughput_timer);
  EXPECT_DOUBLE_EQ(strategy.gradient_clipping, 0);
  EXPECT_DOUBLE_EQ(strategy.ddp.bucket_cap_mib, 25);
}

TEST(NamedStrategy, MegatronReducesInFp32WithBf16) {
  TrainingFlags flags;
  const Strategy bf16 = named_strategy("megatron_ddp", flags, 4);
  EXPECT_TRUE(is_megatron(bf16));
  EXPECT_EQ(bf16.ddp.parameter_dtype, Dtype::Bf16);
  EXPECT_EQ(bf16.communication_dtype, Dtype::F32);
  EXPECT_EQ(bf16.optimizer, OptimizerKind::AdamFused);
  EXPECT_DOUBLE_EQ(bf16.gradient_clipping, 1);
  flags.precision = Precision::Fp16;
  EXPECT_EQ(named_strategy("megatron_ddp", flags, 4).communication_dtype, Dtype::F16);
}

TEST(NamedStrategy, FsdpHasPyTorchsDefaults) {
  TrainingFlags flags;
  flags.gpus_per_node = 8;
  const Strategy full = named_strategy("fsdp", flags, 16);
  EXPECT_EQ(full.name, "fsdp");
  EXPECT_EQ(full.framework, Framework::Fsdp);
  EXPECT_EQ(full.fsdp.sharding, FsdpSharding::FullShard);
  EXPECT_EQ(full.fsdp.backward_prefetch, BackwardPrefetch::Pre);
  EXPECT_TRUE(full.fsdp.limit_all_gathers);
  EXPECT_FALSE(full.fsdp.use_orig_params);
  EXPECT_EQ(full.fsdp.shard_group, 0);
  EXPECT_EQ(full.communication_dtype, Dtype::Bf16);  // D2.13
  EXPECT_EQ(named_strategy("hsdp", flags, 16).fsdp.shard_group, 8);
  EXPECT_EQ(named_strategy("fsdp2_hsdp", flags, 16).fsdp.version, 2);
  EXPECT_FALSE(named_strategy("fsdp2_grad_op", flags, 16).fsdp.reshard_after_forward);
  flags.torch_version = "1.13";
  EXPECT_FALSE(named_strategy("fsdp_grad_op", flags, 16).fsdp.limit_all_gathers);
  flags.no_sync = false;
  EXPECT_FALSE(named_strategy("fsdp_full", flags, 16).fsdp.no_sync);
}

TEST(NamedStrategy, RefusesOtherNamesAndNoRanks) {
  EXPECT_EQ(error_of([] { return named_strategy("zero4", {}, 4); }),
            "strategy: found \"zero4\", expected one of single, ddp, megatron_ddp, zero0, zero1, "
            "zero2, zero3, "
            "fsdp_full, fsdp_grad_op, fsdp_no_shard, hsdp, hsdp_grad_op, fsdp2, fsdp2_grad_op, "
            "fsdp2_hsdp; did you mean \"zero0\"?");
  EXPECT_EQ(error_of([] { return named_strategy("zero1", {}, 0); }),
            "world size: found 0, expected at least 1 rank");
}

TEST(Names, AreReadAndPrinted) {
  EXPECT_EQ(parse_precision("fp16", "--precision"), Precision::Fp16);
  EXPECT_EQ(parse_checkpointing("selective", "--x"), ActivationCheckpointing::Selective);
  EXPECT_EQ(parse_checkpointing("per_operator", "--x"), ActivationCheckpointing::PerOperator);
  EXPECT_EQ(parse_loss("chunked", "--x"), LossKind::Chunked);
  EXPECT_EQ(parse_kernels("fused_norms", "--x"), ElementwiseKernels::FusedNorms);
  EXPECT_EQ(parse_transformers_version("4.45.2", "--x"), ModelCode::TransformersOld);
  EXPECT_EQ(parse_transformers_version("4.46", "--x"), ModelCode::Present);
  EXPECT_EQ(parse_optimizer("adamw_torch", "--x"), OptimizerKind::AdamTorch);
  EXPECT_EQ(parse_config_mode("hf", "--x"), ConfigMode::HuggingFace);
  EXPECT_EQ(to_string(Precision::Bf16), "bf16");
  EXPECT_EQ(to_string(ActivationCheckpointing::None), "none");
  EXPECT_EQ(to_string(OptimizerKind::AdamFused), "adamw_fused");
  EXPECT_EQ(model_dtype(Precision::Fp32), Dtype::F32);
  EXPECT_EQ(model_dtype(Precision::Fp16), Dtype::F16);
  EXPECT_EQ(
      error_of([] { return parse_precision("bf61", "--precision"); }),
      "--precision: found \"bf61\", expected one of fp32, fp16, bf16; did you mean \"bf16\"?");
  EXPECT_EQ(error_of([] { return parse_transformers_version("5", "--transformers-version"); }),
            "--transformers-version: found \"5\", expected a release such as 4.57");
}

TEST(RecomputesBlock, AShareIsSpreadEvenly) {
  const auto blocks = [](double share, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += recomputes_block(share, i) ? '1' : '0';
    return out;
  };
  EXPECT_EQ(blocks(1, 4), "1111");
  EXPECT_EQ(blocks(0, 4), "0000");
  // floor(i/2 + 1/2) for i = 0..6: 0 1 1 2 2 3 3
  EXPECT_EQ(blocks(0.5, 6), "101010");
  // floor(i/3 + 1/2) for i = 0..6: 0 0 1 1 1 2 2
  EXPECT_EQ(blocks(1.0 / 3, 6), "010010");
  EXPECT_FALSE(recomputes_block(1, -1));
  Strategy strategy;
  EXPECT_FALSE(recomputes_block(strategy, 0));
  strategy.checkpointing = ActivationCheckpointing::Full;
  EXPECT_TRUE(recomputes_block(strategy, 0));
}

}  // namespace
}  // namespace zerosim
