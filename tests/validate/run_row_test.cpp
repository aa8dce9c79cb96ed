#include "validate/run_row.h"

#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

using Changes = std::map<std::string, std::string>;

/// A whole row with some cells changed; a column that is set to "-" is left out of the table.
RunReading read(const Changes& changes) {
  Changes cells = {{"pure_dp", "yes"},
                   {"model", "mistral-7b"},
                   {"params_b", "7.242"},
                   {"seq_len", "4096"},
                   {"gpu", "A100-SXM4-80GB"},
                   {"gpus_per_node", "4"},
                   {"nodes", "1"},
                   {"world_size", "4"},
                   {"framework", "HF Trainer + accelerate FSDP1"},
                   {"strategy", "fsdp_full"},
                   {"precision", "pure bf16"},
                   {"optimizer", "AdamW (torch)"},
                   {"micro_batch", "2"},
                   {"activation_checkpointing", "full"},
                   {"flash_attention", "FA2"},
                   {"compile", "no"},
                   {"offload", "none"},
                   {"notes", ""}};
  for (const auto& [column, text] : changes) cells[column] = text;
  std::string header;
  std::string row;
  for (const auto& [column, text] : cells) {
    if (text == "-") continue;
    header += (header.empty() ? "" : ",") + column;
    row += (row.empty() && header == column ? "" : ",") + ("\"" + text + "\"");
  }
  const CsvTable table = parse_csv(header + "\n" + row + "\n", "runs.csv");
  return read_run(table, table.rows.front());
}

TrainingRun run(const Changes& changes = {}) {
  RunReading reading = read(changes);
  EXPECT_TRUE(reading.run.has_value()) << reading.why;
  return reading.run.value_or(TrainingRun());
}

std::string why(const Changes& changes) {
  return read(changes).why;
}

TEST(RunRow, PureBf16OfAccelerate) {
  const TrainingRun given = run();
  EXPECT_EQ(given.experiment.model.name, "mistral-7b");
  EXPECT_EQ(given.experiment.cluster.gpu().name, "A100-SXM4-80");
  EXPECT_EQ(given.experiment.cluster.world_size(), 4);
  EXPECT_EQ(given.experiment.batch.sequence, 4096);
  EXPECT_EQ(given.experiment.batch.code, ModelCode::TransformersOld);
  const Strategy& strategy = given.strategy;
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.fsdp.version, 1);
  EXPECT_EQ(strategy.fsdp.parameter_dtype, Dtype::Bf16);
  EXPECT_TRUE(strategy.fsdp.use_orig_params);
  EXPECT_TRUE(strategy.fsdp.checkpoints_around_units);
  EXPECT_EQ(strategy.optimizer, OptimizerKind::AdamTorchForeach);
  EXPECT_EQ(strategy.checkpointing, ActivationCheckpointing::Full);
}

TEST(RunRow, TypesByTheirWords) {
  const Strategy mixed =
      run({{"precision", "fp32 params/grads/states, bf16 gather and compute"}}).strategy;
  EXPECT_EQ(mixed.precision, Precision::Bf16);
  EXPECT_EQ(mixed.fsdp.parameter_dtype, Dtype::F32);
  EXPECT_EQ(mixed.communication_dtype, Dtype::Bf16);
  const Strategy reduced =
      run({{"precision", "fp32 params, bf16 gather/compute, fp32 reduce"}}).strategy;
  EXPECT_EQ(reduced.communication_dtype, Dtype::F32);
  EXPECT_EQ(run({{"precision", "fp32 states, bf16 compute"}}).strategy.precision, Precision::Bf16);
  EXPECT_EQ(run({{"precision", "fp32"}}).strategy.precision, Precision::Fp32);
  EXPECT_EQ(run({{"precision", "fp16 AMP"}}).strategy.precision, Precision::Fp16);
  const TrainingRun single =
      run({{"strategy", "single"}, {"world_size", "1"}, {"gpus_per_node", "1"}});
  EXPECT_EQ(single.strategy.ddp.parameter_dtype, Dtype::Bf16);
}

TEST(RunRow, FrameworksHaveTheirHabits) {
  const Strategy titan = run({{"framework", "torchtitan FSDP2"},
                              {"activation_checkpointing", "selective (per-op, default)"}})
                             .strategy;
  EXPECT_EQ(titan.fsdp.version, 2);
  EXPECT_TRUE(titan.fsdp.keeps_last_unit);
  EXPECT_EQ(titan.optimizer, OptimizerKind::AdamFused);
  EXPECT_EQ(titan.checkpointing, ActivationCheckpointing::PerOperator);
  const Strategy composer = run({{"framework", "Composer/PyTorch FSDP1"}}).strategy;
  EXPECT_EQ(composer.fsdp.version, 1);
  EXPECT_FALSE(composer.fsdp.checkpoints_around_units);
  // A table without the column is taken as Hugging Face's.
  EXPECT_TRUE(run({{"framework", "-"}}).strategy.fsdp.use_orig_params);
}

TEST(RunRow, FlashAttentionByItsWordsElseByFramework) {
  const auto flash = [](const std::string& words, const std::string& framework = "PyTorch FSDP1") {
    return run({{"flash_attention", words}, {"framework", framework}}).experiment.batch.flash;
  };
  EXPECT_EQ(flash("FA1"), FlashVersion::V1);
  EXPECT_EQ(flash("FA2"), FlashVersion::V2);
  for (const char* words : {"FA3", "FA4", "cuDNN"}) EXPECT_EQ(flash(words), FlashVersion::V3);
  EXPECT_EQ(flash("yes (SDPA)"), FlashVersion::V2);
  EXPECT_EQ(flash("yes", "Composer/PyTorch FSDP1"), FlashVersion::V1);
  EXPECT_EQ(flash("FA2", "Composer/PyTorch FSDP1"), FlashVersion::V2);
  EXPECT_EQ(flash("yes (TE)", "Megatron-Bridge 25.11"), FlashVersion::V3);
}

TEST(RunRow, Fp8IsWhatMultipliesLinears) {
  const auto units = [](const std::string& precision) {
    return run({{"precision", precision}, {"gpu", "H100-80GB"}}).experiment.batch.units;
  };
  for (const char* words : {"FP8-CS matmuls, bf16 rest", "amp_fp8 (TransformerEngine)",
                            "fp32 params, bf16 gather/compute; float8 rowwise", "bf16; mxfp8"}) {
    EXPECT_EQ(units(words), MatrixUnits::Fp8) << words;
  }
  EXPECT_EQ(units("bf16"), MatrixUnits::OfType);
}

TEST(RunRow, MegatronHasFusedKernelsAndAPaddedVocabulary) {
  const TrainingRun given = run({{"framework", "Megatron-DeepSpeed"},
                                 {"strategy", "ddp"},
                                 {"precision", "fp16"},
                                 {"model", "mine"},
                                 {"model_json", ""},
                                 {"layers", "2"},
                                 {"hidden", "64"},
                                 {"heads", "4"},
                                 {"kv_heads", "4"},
                                 {"ffn", "256"},
                                 {"seq_len", "32"},
                                 {"mlp_type", "gelu2"},
                                 {"vocab", "50257"}});
  EXPECT_EQ(given.experiment.batch.kernels, ElementwiseKernels::Megatron);
  EXPECT_EQ(given.experiment.model.shape.vocab, 50304);  // 393 x 128; 392 x 128 = 50176
  EXPECT_THAT(
      given.assumptions,
      Contains("the vocabulary is padded to 50304, a multiple of 128, as by default there"));
}

TEST(RunRow, PrecisionThatIsNotSaid) {
  const auto precision = [](const Changes& more) {
    Changes changes = {{"precision", ""}};
    changes.insert(more.begin(), more.end());
    return run(changes).strategy.precision;
  };
  EXPECT_EQ(precision({}), Precision::Bf16);
  EXPECT_EQ(precision({{"gpu", "V100-32GB"}}), Precision::Fp16);
  // A DeepSpeed file that enables neither type.
  EXPECT_EQ(precision({{"framework", "DeepSpeed"}, {"strategy", "zero3"}}), Precision::Fp32);
  EXPECT_EQ(precision({{"framework", "DeepSpeed ZeRO-3"}, {"strategy", "zero3"}}), Precision::Fp16);
}

TEST(RunRow, DeepSpeedWithOffload) {
  const TrainingRun given = run({{"framework", "DeepSpeed 0.19.2"},
                                 {"strategy", "zero3"},
                                 {"precision", "bf16"},
                                 {"optimizer", "CPU Adam (offloaded)"},
                                 {"offload", "optimizer_cpu"},
                                 {"notes", "Liger kernels; single sequence"}});
  EXPECT_EQ(given.strategy.zero.stage, 3);
  EXPECT_EQ(given.strategy.zero.offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_EQ(given.strategy.zero.offload_param.device, OffloadDevice::None);
  EXPECT_EQ(given.experiment.batch.loss, LossKind::Chunked);
  EXPECT_EQ(given.experiment.batch.kernels, ElementwiseKernels::Liger);
  EXPECT_EQ(given.experiment.batch.code, ModelCode::Present);
}

TEST(RunRow, KernelsOfTheNotes) {
  const auto batch = [](const std::string& notes, const std::string& compile = "no") {
    return run({{"notes", notes}, {"compile", compile}}).experiment.batch;
  };
  EXPECT_EQ(batch("stock HF kernels").loss, LossKind::Plain);
  EXPECT_EQ(batch("kernels: none").kernels, ElementwiseKernels::Eager);
  for (const char* notes : {"fused Triton cross-entropy/RoPE/RMSNorm kernels",
                            "10.0 B/param x ranks; kernels: foak-fast-kernels"}) {
    EXPECT_EQ(batch(notes).loss, LossKind::Fused);
    EXPECT_EQ(batch(notes).kernels, ElementwiseKernels::FusedNorms);
  }
  for (const char* notes : {"fused kernels plus Liger fused linear cross-entropy",
                            "kernels: foak-fast-kernels-liger"}) {
    EXPECT_EQ(batch(notes).loss, LossKind::Chunked);
    EXPECT_EQ(batch(notes).kernels, ElementwiseKernels::FusedNorms);
  }
  const Changes kind = {{"peak_memory_kind", "reserved (80 GiB with Liger kernels; 99 without)"}};
  EXPECT_EQ(run(kind).experiment.batch.kernels, ElementwiseKernels::Liger);
  EXPECT_EQ(batch("", "yes").kernels, ElementwiseKernels::Compiled);
}

TEST(RunRow, ModelsByFilePresetOrWidths) {
  EXPECT_EQ(run({{"model", "Llama 3"}, {"model_json", "shared/data/models/llama-3-8b.json"}})
                .experiment.model.name,
            "llama-3-8b");
  EXPECT_EQ(run({{"model", "Mistral-7B"}}).experiment.model.name, "mistral-7b");
  const Changes widths = {{"model", "mine"}, {"layers", "2"}, {"hidden", "64"}, {"heads", "4"},
                          {"kv_heads", "4"}, {"ffn", "256"},  {"seq_len", "32"}};
  const auto with = [&](Changes more) {
    more.insert(widths.begin(), widths.end());
    return more;
  };
  // GPT-2 of 2 x (12 x 64^2 + 13 x 64) + 32 x 64 + 2 x 64 = 102,144 besides its table; tied with
  // 1000 rows of 64: 166,144.
  const Model gpt = run(with({{"mlp_type", "gelu2"}, {"vocab", "1000"}, {"params_b", "0.000166"}}))
                        .experiment.model;
  EXPECT_EQ(gpt.family, "gpt2");
  EXPECT_EQ(parameter_count(gpt), 166'144);
  EXPECT_TRUE(gpt.tied_embeddings);
  const Model untied =
      run(with({{"mlp_type", "gelu2"}, {"vocab", "1000"}, {"params_b", "0.00023"}}))
          .experiment.model;
  EXPECT_EQ(parameter_count(untied), 166'144 + 64'000);
  Changes one_head = with({{"mlp_type", "gelu2"}, {"vocab", "1000"}});
  one_head["kv_heads"] = "1";
  EXPECT_EQ(run(one_head).experiment.model.family, "gpt_bigcode");
  EXPECT_EQ(run(with({{"mlp_type", "swiglu3"}, {"vocab", "1000"}})).experiment.model.family,
            "llama");
  // (166,144 - 102,144) / 64 = 1000 rows
  const TrainingRun derived =
      run(with({{"mlp_type", "gelu2"}, {"vocab", ""}, {"params_b", "0.000166144"}}));
  EXPECT_EQ(derived.experiment.model.shape.vocab, 1000);
  EXPECT_THAT(derived.assumptions,
              Contains("vocabulary 1000: what params_b leaves for a tied table"));
}

TEST(RunRow, GpusAsTheReadmeNamesThem) {
  const auto gpu = [](const std::string& name) {
    return run({{"gpu", name}}).experiment.cluster.gpu().name;
  };
  EXPECT_EQ(gpu("A100-40GB"), "A100-SXM4-40");
  EXPECT_EQ(gpu("A100"), "A100-SXM4-80");
  EXPECT_EQ(gpu("H100-80GB"), "H100-SXM5-80");
  EXPECT_EQ(gpu("H100-SXM-96GB (HBM2e, 500 W variant)"), "H100-SXM-96-HBM2e");
  EXPECT_EQ(gpu("H200-SXM"), "H200-SXM-141");
  EXPECT_EQ(gpu("RTX4090-24GB"), "RTX4090-24");
  EXPECT_EQ(gpu("RTXA6000-48GB"), "RTX-A6000-48");
}

TEST(RunRow, WhatIsOpenIsSaid) {
  EXPECT_THAT(run().assumptions,
              Contains("the release of transformers is not said: taken as one before 4.46"));
  EXPECT_THAT(run({{"flash_attention", ""}}).assumptions,
              Contains("attention is not said: taken as flash attention"));
  EXPECT_THAT(run({{"activation_checkpointing", ""}}).assumptions,
              Contains("activation checkpointing is not said: taken as none"));
  EXPECT_THAT(run({{"precision", "fp32 params, bf16 gather/compute; fp8 all-gather"}}).assumptions,
              Contains("all-gathers in fp8 are simulated as bf16's"));
  EXPECT_THAT(run({{"precision", ""}}).assumptions,
              Contains("precision is not said: taken as bf16 with fp32 master weights"));
  EXPECT_THAT(run({{"optimizer", "SGD"}}).assumptions, Contains("SGD is simulated as Adam"));
  EXPECT_THAT(run().assumptions, Contains("accumulation is not said: one micro batch a step"));
  EXPECT_THAT(run({{"framework", "PyTorch FSDP1"},
                   {"grad_accum", "2"},
                   {"intra_node", "NVSwitch (NVLink3)"}})
                  .assumptions,
              Each(AnyOf(HasSubstr("machine: preset"), HasSubstr("cluster 1 x 4"),
                         HasSubstr("NCCL 2.30's choice"), HasSubstr("the first 4 of 8 GPUs"))));
}

TEST(RunRow, SkipsWithAReason) {
  EXPECT_EQ(why({{"pure_dp", "no"}}), "tensor or pipeline parallelism is not simulated");
  EXPECT_EQ(why({{"gpu", "MI300X-192GB"}}), "GPU MI300X-192GB is not NVIDIA's");
  EXPECT_EQ(why({{"gpu", ""}}), "gpu is empty");
  EXPECT_THAT(why({{"gpu", "H100-SXM4"}}), HasSubstr("GPU \"H100-SXM4\" is not known"));
  EXPECT_EQ(why({{"model", "Robot 5B"}}),
            "model \"Robot 5B\" is no preset, and the row does not give its shape");
  EXPECT_EQ(why({{"micro_batch", ""}}), "micro_batch is empty");
  EXPECT_EQ(why({{"seq_len", "-"}}), "seq_len is empty");
  EXPECT_EQ(why({{"precision", "int8"}}), "precision \"int8\" is not known");
  EXPECT_EQ(why({{"strategy", "ddp"}, {"precision", "bf16 master weights, optimizer states"}}),
            "bf16 states are not simulated with ddp");
  EXPECT_EQ(why({{"optimizer", "Muon"}}), "optimizer \"Muon\" is not simulated");
  EXPECT_EQ(why({{"optimizer", "AdamW on LoRA weights"}}),
            "adapters: their rank and places are not given");
  EXPECT_EQ(why({{"offload", "activation_cpu"}}), "offload of activations is not simulated");
  EXPECT_EQ(why({{"activation_checkpointing", "selective (some)"}}),
            "activation checkpointing \"selective (some)\" is not simulated");
  EXPECT_EQ(why({{"activation_checkpointing", "selective"}}),
            "activation checkpointing is selective, and mfu and hfu do not tell how much");
  EXPECT_EQ(why({{"nodes", "3"}}), "3 nodes of 4 GPUs are not 4 ranks");
  EXPECT_THAT(why({{"strategy", "zero9"}}), HasSubstr("stage"));
}

TEST(RunRow, DeepSpeedsBf16States) {
  const Strategy strategy = run({{"framework", "DeepSpeed"},
                                 {"strategy", "zero3"},
                                 {"precision", "bf16 master weights, grads, optimizer states"}})
                                .strategy;
  EXPECT_TRUE(strategy.bf16_states);
  EXPECT_EQ(strategy.optimizer_state_bytes, 6);
}

TEST(RunRow, APowerLimitWithoutAFigureIsSaid) {
  EXPECT_THAT(
      run({{"notes", "source says the GPUs were power limited"}}).assumptions,
      Contains("the source says that power was limited, not to what: the limit of the board "
               "as sold"));
  EXPECT_THAT(run().assumptions, ::testing::Not(Contains(HasSubstr("power was limited"))));
}

TEST(RunRow, SelectiveCheckpointingIsOfAShareOfTheBlocks) {
  const Strategy half = run({{"activation_checkpointing", "selective (every 2nd layer)"}}).strategy;
  EXPECT_EQ(half.checkpointing, ActivationCheckpointing::Full);
  EXPECT_EQ(half.checkpointed_share, 0.5);
  // A second forward of all blocks is a third more: 0.55 x 4/3 = 0.7333; 0.6875 is 3/4 of that.
  const Changes by_flops = {
      {"activation_checkpointing", "selective"}, {"mfu", "0.55"}, {"hfu", "0.6875"}};
  EXPECT_NEAR(run(by_flops).strategy.checkpointed_share, 0.75, 1e-9);
  EXPECT_EQ(run({{"activation_checkpointing", "selective"}, {"mfu", "0.3"}, {"hfu", "0.5"}})
                .strategy.checkpointed_share,
            1);
  EXPECT_EQ(run().strategy.checkpointed_share, 1);
}

TEST(RunRow, DeepSpeedStageZeroReducesInItsOwnWay) {
  const auto strategy = [](const Changes& more) {
    Changes changes = {{"strategy", "ddp"}, {"precision", "fp16 (not stated)"}};
    changes.insert(more.begin(), more.end());
    return run(changes).strategy;
  };
  EXPECT_EQ(strategy({{"framework", "Megatron-DeepSpeed"}}).framework, Framework::DeepSpeed);
  EXPECT_EQ(strategy({{"framework", "HF Trainer 4.12 + DeepSpeed"},
                      {"strategy_detail", "DeepSpeed stage 0"}})
                .framework,
            Framework::DeepSpeed);
  EXPECT_EQ(strategy({{"framework", "HF Trainer, no DeepSpeed"}}).framework, Framework::Ddp);
}

TEST(RunRow, ReleasesOfDeepSpeed) {
  const auto version = [](const std::string& framework) {
    return run({{"framework", framework}, {"strategy", "zero2"}, {"precision", "bf16"}})
        .strategy.version;
  };
  EXPECT_EQ(version("DeepSpeed"), "0.19");
  EXPECT_EQ(version("DeepSpeed 0.19.2, torch 2.13/cu130"), "0.19");
  EXPECT_EQ(version("HF Trainer + DeepSpeed 0.9.5"), "0.14");
  EXPECT_EQ(version("DeepSpeed 0.4.3"), "0.5");               // nothing is known to differ
  EXPECT_EQ(version("HF Trainer 4.12 + DeepSpeed"), "0.5");   // of October 2021
  EXPECT_EQ(version("HF Trainer 4.30 + DeepSpeed"), "0.14");  // of June 2023
  EXPECT_EQ(version("DeepSpeed ZeRO-3"), "0.3");              // of 2021
}

TEST(RunRow, OthersOptimizersAreDeepSpeedsWithReduceScatter) {
  const TrainingRun bridge = run({{"framework", "Megatron-Bridge 25.11"},
                                  {"strategy", "zero1"},
                                  {"precision", "FP8-CS matmuls, bf16 rest"},
                                  {"compile", "CUDA graphs possible"}});
  EXPECT_TRUE(bridge.strategy.zero.true_reduce_scatter);
  EXPECT_TRUE(bridge.strategy.zero.overlap_comm);
  EXPECT_FALSE(bridge.strategy.throughput_timer);
  EXPECT_EQ(bridge.experiment.batch.kernels, ElementwiseKernels::Compiled);
  EXPECT_EQ(bridge.experiment.batch.loss, LossKind::Fused);
}

TEST(RunRow, DropoutByFrameworkOrConfiguration) {
  const auto dropout = [](const Changes& changes) { return run(changes).experiment.batch.dropout; };
  EXPECT_FALSE(dropout({}));
  EXPECT_TRUE(dropout({{"model", "gpt2"}}));
  EXPECT_FALSE(dropout({{"model", "gpt2"}, {"framework", "PyTorch FSDP1"}}));
  EXPECT_TRUE(dropout({{"framework", "Megatron"}, {"strategy", "ddp"}, {"precision", "bf16"}}));
}

TEST(RunRow, OlderGpusHaveNoFlashAttention) {
  const Changes titan = {{"gpu", "TITAN-RTX-24GB"}, {"precision", "fp16"}, {"flash_attention", ""}};
  EXPECT_FALSE(run(titan).experiment.batch.flash_attention);
  EXPECT_THAT(run(titan).assumptions,
              Contains("attention is not said: taken as that of matrix products"));
}

TEST(RunRow, OffloadIsReadWordByWord) {
  const auto offload = [](const std::string& words, const std::string& strategy = "zero3") {
    return why({{"framework", "DeepSpeed 0.19.2"},
                {"strategy", strategy},
                {"precision", "bf16"},
                {"offload", words}});
  };
  for (const char* words : {"", "none (not shown)", "optimizer+params_cpu", "Optimizer_CPU"}) {
    EXPECT_EQ(offload(words), "") << words;
  }
  EXPECT_EQ(offload("param_cpu"), "offload \"param_cpu\" is not known or not simulated");
  EXPECT_EQ(offload("optimizer_nvme"), "offload \"optimizer_nvme\" is not known or not simulated");
  EXPECT_EQ(offload("optimizer_cpu+gibberish"),
            "offload \"gibberish\" is not known or not simulated");
  EXPECT_EQ(offload("params_cpu+activation_cpu"), "offload of activations is not simulated");
  EXPECT_EQ(why({{"offload", "optimizer_cpu"}}), "FSDP does not offload the optimizer alone");
  EXPECT_EQ(offload("params_cpu", "ddp"), "offload is not simulated with ddp");
}

TEST(RunRow, YesAndNoInAnyLetters) {
  EXPECT_EQ(why({{"pure_dp", "No"}}), "tensor or pipeline parallelism is not simulated");
  EXPECT_EQ(why({{"pure_dp", "maybe"}}), "pure_dp \"maybe\" is not known");
  EXPECT_EQ(run({{"compile", "Yes"}}).experiment.batch.kernels, ElementwiseKernels::Compiled);
  EXPECT_EQ(why({{"compile", "max-autotune"}}), "compile \"max-autotune\" is not known");
  EXPECT_FALSE(run({{"flash_attention", "No"}}).experiment.batch.flash_attention);
  for (const char* words : {"yes (SDPA)", "FA2", "FA3", "cuDNN", "yes (TE)"}) {
    EXPECT_TRUE(run({{"flash_attention", words}}).experiment.batch.flash_attention) << words;
  }
  EXPECT_EQ(why({{"flash_attention", "xformers"}}), "flash_attention \"xformers\" is not known");
}

TEST(RunRow, AWorldHasItsLimit) {
  EXPECT_EQ(why({{"gpus_per_node", "1e9"}, {"world_size", "1e9"}}),
            "1000000000 ranks are more than 131072");
}

TEST(RunRow, NumbersAreCheckedAtTheirCell) {
  try {
    (void)read({{"micro_batch", "1.5"}});
    FAIL() << "no error";
  } catch (const TraceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("runs.csv:2:"));
    EXPECT_THAT(error.what(),
                HasSubstr("micro_batch: found \"1.5\", expected a whole number from 1 to 1e+09"));
  }
}

}  // namespace
}  // namespace zerosim
