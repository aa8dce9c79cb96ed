// Each part of spec A: what is typed, defaulted, checked and refused, with places.

#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/strategy/config_codes.h"
#include "tests/sim/strategy/config_testing.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kZero = "zero_optimization.";

// ---- offload (A3) ----

TEST(Offload, ToTheCpuHasTheDefaultsOfTheVersion) {
  const std::string text = zero(
      3, "\"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": {\"device\": \"cpu\"}");
  const Strategy current = parse(text);
  EXPECT_EQ(current.zero.offload_param.device, OffloadDevice::Cpu);
  EXPECT_EQ(current.zero.offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_TRUE(current.zero.offload_param.pin_memory);
  EXPECT_DOUBLE_EQ(current.zero.offload_optimizer.ratio, 1.0);
  EXPECT_EQ(current.zero.offload_param.buffer_count, 5);
  EXPECT_EQ(current.zero.offload_optimizer.buffer_count, 4);
  EXPECT_EQ(value_of(current, kZero + "offload_param.device"), "cpu");
  EXPECT_EQ(value_of(current, kZero + "offload_param.pin_memory"), "true (default)");
  EXPECT_EQ(value_of(current, kZero + "offload_param.buffer_size"), "-");  // NVMe only
  const Strategy old = parse(text, of_version("0.14"));
  EXPECT_FALSE(old.zero.offload_param.pin_memory);
  EXPECT_FALSE(old.zero.offload_optimizer.pin_memory);
  EXPECT_THAT(old.assumptions, Contains(kZero + "offload_optimizer.pin_memory: false, the default "
                                                "of DeepSpeed 0.14."));
}

TEST(Offload, ToNvmeHasBuffersAndAio) {
  const Strategy strategy = parse(
      zero(3,
           "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", \"buffer_size\": 1e9, "
           "\"max_in_cpu\": 0},\n\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
           "\"/y\", \"buffer_count\": 8, \"pipeline_read\": true}"));
  EXPECT_EQ(strategy.zero.offload_param.nvme_path, "/x");
  EXPECT_EQ(strategy.zero.offload_param.buffer_size, 1'000'000'000);
  EXPECT_EQ(strategy.zero.offload_param.max_in_cpu, 0);
  EXPECT_TRUE(strategy.zero.offload_optimizer.pipeline_read);
  EXPECT_FALSE(strategy.zero.offload_optimizer.pipeline_write);
  EXPECT_EQ(value_of(strategy, "aio.block_size"), "1048576 (default)");
  EXPECT_EQ(value_of(strategy, "aio.queue_depth"), "8 (default)");
  EXPECT_EQ(value_of(parse(zero(3, "\"overlap_comm\": true")), "aio.queue_depth"), "-");
  EXPECT_EQ(parse(with("\"aio\": {\"queue_depth\": 32}")).aio.queue_depth, 32);
}

TEST(Offload, BuffersHoldAllStatesOfASubGroup) {
  // Adam: master, two moments, gradient = 4; reading ahead doubles it, reading and writing trebles.
  const std::string begin =
      "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\", \"buffer_count\": ";
  EXPECT_EQ(error_of(zero(3, begin + "3}")),
            "[nvme_buffers_too_few] f.json:3:76: zero_optimization.offload_optimizer.buffer_count: "
            "3, expected at least 4: 4 for the states and the gradient of adamw");
  EXPECT_EQ(error_of(zero(3, begin + "4}")), "no error");
  EXPECT_THAT(
      error_of(zero(3, begin + "7, \"pipeline_write\": true}")),
      HasSubstr("expected at least 8: 4 for the states and the gradient of adamw, times 2"));
  EXPECT_THAT(error_of(zero(3, begin + "11, \"pipeline_write\": true, \"pipeline_read\": true}")),
              HasSubstr("expected at least 12"));
}

TEST(Offload, PartitionsOnNvmeFitABuffer) {
  Model model = model_with_hidden(64);
  model.parameters.emplace_back().elements = 81;  // 81 / 8 -> partitions of 11
  const auto read = [&model](const std::string& sizes) {
    static_cast<void>(parse_deepspeed_config(
        zero(3, "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"," + sizes + "}"),
        "f.json", {}, model, 8));
  };
  EXPECT_NO_THROW(read("\"buffer_size\": 11, \"max_in_cpu\": 0"));
  EXPECT_NO_THROW(read("\"buffer_size\": 10, \"max_in_cpu\": 11"));  // stays in CPU memory
  try {
    read("\"buffer_size\": 10, \"max_in_cpu\": 10");
    ADD_FAILURE() << "it was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), "nvme_buffer_too_small");
    EXPECT_STREQ(error.what(),
                 "f.json:3:70: zero_optimization.offload_param.buffer_size: 10 elements, but the "
                 "largest partition of a parameter has 11, expected at least so many");
  }
}

TEST(Offload, ActsAtSomeStagesOnly) {
  const std::string param = "\"offload_param\": {\"device\": \"cpu\"}";
  const Strategy second = parse(zero(2, param));
  EXPECT_EQ(second.zero.offload_param.device, OffloadDevice::None);
  EXPECT_THAT(codes(second), ElementsAre("offload_param_needs_stage_3"));
  EXPECT_EQ(value_of(second, kZero + "offload_param.device"), "none (derived)");
  EXPECT_FALSE(second.not_simulated.has_value());

  const std::string nvme = "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/x\"}";
  const Strategy cpu = parse(zero(1, nvme));
  EXPECT_EQ(cpu.zero.offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_THAT(codes(cpu), ElementsAre("nvme_is_cpu_below_stage_3"));
  EXPECT_EQ(parse(zero(3, nvme)).zero.offload_optimizer.device, OffloadDevice::Nvme);

  const Strategy none = parse(zero(0, nvme));
  EXPECT_EQ(none.zero.offload_optimizer.device, OffloadDevice::None);
  EXPECT_THAT(codes(none), ElementsAre("no_effect_at_stage"));
}

TEST(Offload, OldKeysMeanTheCpu) {
  const Strategy strategy = parse(zero(3,
                                       "\"cpu_offload\": true, \"cpu_offload_param\": true, "
                                       "\"cpu_offload_use_pin_memory\": true"));
  EXPECT_EQ(strategy.zero.offload_optimizer.device, OffloadDevice::Cpu);
  EXPECT_EQ(strategy.zero.offload_param.device, OffloadDevice::Cpu);
  EXPECT_THAT(codes(strategy), ElementsAre("deprecated_key", "deprecated_key", "deprecated_key"));
  EXPECT_EQ(value_of(strategy, kZero + "offload_optimizer.device"), "cpu");
  EXPECT_EQ(find_setting(strategy, kZero + "offload_optimizer.device")->where.column, 16);
  EXPECT_EQ(parse(zero(2, "\"cpu_offload\": false")).zero.offload_optimizer.device,
            OffloadDevice::None);
  // Given together they are refused whatever their values (A1.7).
  EXPECT_EQ(error_of(zero(2, "\"cpu_offload\": false, \"offload_optimizer\": {}")),
            "[deprecated_and_new_together] f.json:3:16: zero_optimization.cpu_offload: given "
            "together with offload_optimizer, expected only the latter");
  EXPECT_EQ(error_of(zero(3, "\"cpu_offload_params\": true")),
            "[unknown_key_zero] f.json:3:1: zero_optimization.cpu_offload_params: unknown key, "
            "which DeepSpeed refuses in this section; did you mean \"cpu_offload_param\"?");
}

TEST(Offload, ForcesContiguousGradientsBelowStage3) {
  const std::string text = "\"contiguous_gradients\": false, \"cpu_offload\": true";
  const Strategy second = parse(zero(2, text));
  EXPECT_TRUE(second.zero.contiguous_gradients);
  EXPECT_EQ(value_of(second, kZero + "contiguous_gradients"), "true (derived)");
  EXPECT_FALSE(parse(zero(3, text)).zero.contiguous_gradients);
}

TEST(Offload, SectionsAreTyped) {
  EXPECT_EQ(error_of(zero(3, "\"offload_param\": {\"device\": \"cpu\", \"ratio\": 0.5}")),
            "[unknown_key_zero] f.json:3:36: zero_optimization.offload_param.ratio: unknown key, "
            "which DeepSpeed refuses in this section");
  EXPECT_EQ(
      error_of(zero(3, "\"offload_optimizer\": {\"pinmemory\": true}")),
      "[unknown_key_zero] f.json:3:23: zero_optimization.offload_optimizer.pinmemory: unknown "
      "key, which DeepSpeed refuses in this section; did you mean \"pin_memory\"?");
  EXPECT_EQ(error_of(zero(3, "\"offload_optimizer\": {\"ratio\": 1.5}")),
            "[out_of_range] f.json:3:32: zero_optimization.offload_optimizer.ratio: found 1.5, "
            "expected a number of at most 1");
  const Strategy partial =
      parse(zero(3,
                 "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3, "
                 "\"super_offload\": true, \"cpuadam_cores_perc\": 0.5}"));
  EXPECT_DOUBLE_EQ(partial.zero.offload_optimizer.ratio, 0.3);
  EXPECT_TRUE(partial.zero.offload_optimizer.super_offload);
  EXPECT_DOUBLE_EQ(partial.zero.offload_optimizer.cpuadam_cores_perc, 0.5);
}

TEST(Offload, OfAClientsTorchOptimizerIsRefusedByDeepSpeedAlone) {
  TrainingFlags flags = as(ConfigMode::DeepSpeed);
  flags.optimizer = OptimizerKind::AdamTorchForeach;
  const std::string text = zero(2, "\"offload_optimizer\": {\"device\": \"cpu\"}");
  EXPECT_EQ(error_of(text, flags),
            "[offload_needs_cpu_adam] f.json:2:22: zero_optimization: offloads the optimizer, but "
            "the flag --optimizer says adamw_torch_foreach; expected DeepSpeed's CPU Adam or "
            "zero_force_ds_cpu_optimizer: false");
  flags.config_as = ConfigMode::Auto;
  EXPECT_THAT(parse(text, flags).assumptions,
              Contains(HasSubstr("DeepSpeed's CPU Adam is assumed")));
  flags.config_as = ConfigMode::DeepSpeed;
  EXPECT_EQ(error_of(with("\"zero_force_ds_cpu_optimizer\": false, \"zero_optimization\": "
                          "{\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}"),
                     flags),
            "no error");
}

// ---- ZeRO++, MiCS (A2) ----

TEST(ZeroPlusPlus, IsTyped) {
  const Strategy strategy = parse(
      zero(3,
           "\"zero_hpz_partition_size\": 4, \"zero_quantized_weights\": true, "
           "\"zero_quantized_gradients\": true, \"zero_quantized_nontrainable_weights\": true, "
           "\"zeropp_loco_param\": {\"err_beta\": 0.8, \"reset_T\": 1024}"));
  EXPECT_EQ(strategy.zero.hpz_partition_size, 4);
  EXPECT_TRUE(strategy.zero.quantized_weights);
  EXPECT_TRUE(strategy.zero.quantized_gradients);
  EXPECT_TRUE(strategy.zero.quantized_nontrainable_weights);
  EXPECT_EQ(value_of(strategy, kZero + "zeropp_loco_param"),
            "{\"err_beta\": 0.8, \"reset_T\": 1024}");
  EXPECT_THAT(codes(strategy), IsEmpty());
}

TEST(ZeroPlusPlus, SecondaryPartitionsStayInANode) {
  TrainingFlags flags;
  flags.gpus_per_node = 8;
  const auto codes_of = [&flags](int size, int world_size) {
    return codes(
        parse(zero(3, "\"zero_hpz_partition_size\": " + std::to_string(size)), flags, world_size));
  };
  EXPECT_THAT(codes_of(8, 16), IsEmpty());
  EXPECT_THAT(codes_of(16, 16), ElementsAre("hpz_useless_on_one_node"));
  EXPECT_THAT(codes_of(4, 8), ElementsAre("hpz_useless_on_one_node"));
  EXPECT_THAT(codes_of(16, 32), ElementsAre("hpz_spans_nodes"));
  EXPECT_THAT(codes_of(1, 8), IsEmpty());
}

TEST(Mics, NeedsItsInit) {
  const std::string text =
      zero(3, "\"mics_shard_size\": 4, \"mics_hierarchical_params_gather\": true");
  const Strategy plain = parse(text);
  EXPECT_EQ(plain.zero.mics_shard_size, 4);
  EXPECT_TRUE(plain.zero.mics_hierarchical_params_gather);
  EXPECT_THAT(codes(plain), ElementsAre("mics_needs_mics_init"));
  TrainingFlags flags;
  flags.zero_init = ZeroInit::Mics;
  EXPECT_THAT(codes(parse(text, flags)), ElementsAre("mics_may_deadlock"));
  EXPECT_THAT(codes(parse(text, flags, 4)), IsEmpty());
  flags.deepspeed_version = "0.14";
  EXPECT_THAT(codes(parse(text, flags)), IsEmpty());
  EXPECT_EQ(error_of(zero(3, "\"mics_shard_size\": 3")),
            "[out_of_range] f.json:3:20: zero_optimization.mics_shard_size: found 3, expected a "
            "divisor of the world size 8");
}

// ---- leaf modules, ZenFlow ----

TEST(LeafModules, AreHuggingFacesExpertsByDefault) {
  const Strategy strategy = parse(zero(3, "\"overlap_comm\": true"));
  EXPECT_THAT(
      strategy.zero.leaf_module_classes,
      ElementsAre("MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock"));
  EXPECT_THAT(parse(zero(3, "\"overlap_comm\": true"), of_version("0.14")).zero.leaf_module_classes,
              IsEmpty());
  const Strategy named =
      parse(zero(3,
                 "\"leaf_module\": {\"classes\": [\"a.b.MoE\"], \"names\": [\"x.y\"], "
                 "\"name_suffixes\": [\"moe\"]}, \"module_granularity_threshold\": 100"));
  EXPECT_THAT(named.zero.leaf_module_classes, ElementsAre("MoE"));
  EXPECT_THAT(named.zero.leaf_module_names, ElementsAre("x.y"));
  EXPECT_THAT(named.zero.leaf_module_name_suffixes, ElementsAre("moe"));
  EXPECT_EQ(named.zero.module_granularity_threshold, 100);
  EXPECT_EQ(value_of(named, kZero + "stage3_module_granularity_threshold"), "100");
  EXPECT_EQ(error_of(zero(3, "\"leaf_module\": {\"class\": []}")),
            "[unknown_key_zero] f.json:3:17: zero_optimization.leaf_module.class: unknown key, "
            "which DeepSpeed refuses in this section; did you mean \"classes\"?");
  EXPECT_EQ(error_of(zero(3, "\"leaf_module\": {\"classes\": [7]}")),
            "f.json:3:29: zero_optimization.leaf_module.classes[0]: found 7, expected a string");
}

TEST(LeafModules, AreFoundByClassNameSuffixAndGranularity) {
  const Model model = load_model("mixtral-8x7b");
  const auto leaves = [&model](int stage, const std::string& inside) {
    return leaf_modules(parse(zero(stage, inside)).zero, model).size();
  };
  const std::size_t layers = static_cast<std::size_t>(model.shape.layers);
  EXPECT_EQ(leaves(3, "\"overlap_comm\": true"), layers);  // its MoE block is a default class
  EXPECT_EQ(leaves(2, "\"overlap_comm\": true"), 0U);
  EXPECT_EQ(leaves(3, "\"leaf_module\": {\"classes\": []}"), 0U);
  EXPECT_EQ(leaves(3, "\"leaf_module\": {\"classes\": [], \"names\": [\"model.layers.3\"]}"), 1U);
  EXPECT_EQ(leaves(3, "\"leaf_module\": {\"classes\": [], \"name_suffixes\": [\".self_attn\"]}"),
            layers);
  EXPECT_GT(leaves(3,
                   "\"leaf_module\": {\"classes\": []}, "
                   "\"stage3_module_granularity_threshold\": 100000000"),
            0U);
}

TEST(ZenFlow, IsTyped) {
  const Strategy plain = parse(zero(2, "\"zenflow\": {}"));
  ASSERT_TRUE(plain.zero.zenflow.has_value());
  EXPECT_DOUBLE_EQ(plain.zero.zenflow->topk_ratio, 0.1);
  EXPECT_EQ(plain.zero.zenflow->select_strategy, "auto");
  EXPECT_EQ(plain.zero.zenflow->update_interval, 0);
  EXPECT_DOUBLE_EQ(plain.zero.zenflow->auto_ratio, 0.99);
  const Strategy given =
      parse(zero(2,
                 "\"zenflow\": {\"topk_ratio\": 0.05, \"select_strategy\": \"epoch\", "
                 "\"select_interval\": \"auto\", \"update_interval\": 4, \"overlap_step\": true}"));
  EXPECT_EQ(given.zero.zenflow->update_interval, 4);
  EXPECT_EQ(given.zero.zenflow->select_strategy, "epoch");
  EXPECT_TRUE(given.zero.zenflow->overlap_step);
  EXPECT_THAT(codes(given), IsEmpty());  // its "auto" is a value of its own
  EXPECT_EQ(error_of(zero(2, "\"zenflow\": {\"select_strategy\": \"steps\"}")),
            "[unknown_value] f.json:3:32: zero_optimization.zenflow.select_strategy: found "
            "\"steps\", expected one of auto, step, epoch; did you mean \"step\"?");
  EXPECT_EQ(error_of(zero(2, "\"zenflow\": {\"topk\": 1}")),
            "[unknown_key_zero] f.json:3:13: zero_optimization.zenflow.topk: unknown key, which "
            "DeepSpeed refuses in this section");
  EXPECT_EQ(error_of(zero(2, "\"zenflow\": {}}, \"gradient_allreduce_op\": \"sum\", \"amp\": {")),
            "[gradient_sum_unsupported] f.json:3:42: gradient_allreduce_op: found \"sum\", which "
            "ZenFlow refuses, expected \"mean\"");
}

// ---- precision (A4, A4.3) ----

TEST(Precision, OptionsOfFp16) {
  const std::string begin = "{\"train_batch_size\": 8,\n\"fp16\": {\"enabled\": true, ";
  const Strategy dynamic = parse(begin + "\"loss_scale_window\": 500}}");
  EXPECT_EQ(value_of(dynamic, "fp16.loss_scale"), "0.0 (default)");
  EXPECT_EQ(value_of(dynamic, "fp16.initial_scale_power"), "16 (default)");
  EXPECT_EQ(value_of(dynamic, "fp16.loss_scale_window"), "500");
  EXPECT_EQ(value_of(dynamic, "fp16.hysteresis"), "2 (default)");
  EXPECT_EQ(value_of(dynamic, "bf16.enabled"), "false (default)");
  const Strategy fixed = parse(begin + "\"loss_scale\": 128, \"loss_scale_window\": 0}}");
  EXPECT_EQ(value_of(fixed, "fp16.loss_scale"), "128.0");
  EXPECT_EQ(value_of(fixed, "fp16.initial_scale_power"), "-");
  EXPECT_EQ(parse(begin + "\"auto_cast\": true}}").not_simulated->location().line, 2);
  EXPECT_EQ(error_of(begin + "\"opt_level\": \"O2\"}}"),
            "[unknown_key_fp16] f.json:2:27: fp16.opt_level: unknown key, which DeepSpeed refuses "
            "in this section");
}

// Stage 3 on the device has weights and moments in bf16 together; elsewhere the first of the two
// keys is not simulated.
TEST(Precision, SixteenBitStatesAreSimulatedAtStage3) {
  const auto read = [](int stage, const std::string& offload, bool weights) {
    return parse(
        format("{{\"train_batch_size\": 8, \"bf16\": {{\"enabled\": true, "
               "\"bf16_master_weights_and_grads\": {}, \"bf16_optimizer_states\": true}}, "
               "\"zero_optimization\": {{\"stage\": {}{}}}}}",
               weights, stage, offload));
  };
  const std::string cpu = ", \"offload_optimizer\": {\"device\": \"cpu\"}";
  const Strategy strategy = read(3, "", true);
  EXPECT_TRUE(strategy.bf16_states);
  EXPECT_FALSE(strategy.not_simulated.has_value());
  const auto refused = [&](int stage, const std::string& offload, bool weights) {
    const Strategy other = read(stage, offload, weights);
    return other.not_simulated ? other.not_simulated->what() : std::string("simulated");
  };
  EXPECT_THAT(refused(2, "", true),
              HasSubstr("this version does not simulate bf16 master weights"));
  EXPECT_THAT(refused(3, cpu, true), HasSubstr("does not simulate bf16 master weights yet"));
  EXPECT_THAT(refused(3, "", false), HasSubstr("does not simulate bf16 optimizer states yet"));
}

TEST(Precision, SixteenBitMasterWeightsNeedOffload) {
  const std::string bf16 =
      "{\"train_batch_size\": 8,\n\"bf16\": {\"enabled\": true, "
      "\"bf16_master_weights_and_grads\": true";
  const std::string offload =
      "}, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}}";
  EXPECT_EQ(error_of(bf16 + "}}"),
            "[master_weights_need_offload] f.json:2:60: bf16.bf16_master_weights_and_grads: found "
            "true, which needs offload_optimizer on the CPU with any optimizer, or "
            "bf16_optimizer_states");
  EXPECT_EQ(parse(bf16 + offload).optimizer_state_bytes, 10);  // 2 + 4 + 4
  EXPECT_EQ(parse(bf16 + ", \"bf16_optimizer_states\": true}}").optimizer_state_bytes, 6);
  const std::string fp16 =
      "{\"train_batch_size\": 8,\n\"fp16\": {\"enabled\": true, "
      "\"fp16_master_weights_and_grads\": true";
  EXPECT_THAT(error_of(fp16 + "}}"), HasSubstr("[master_weights_need_offload] f.json:2:60: fp16."));
  EXPECT_EQ(error_of(fp16 + offload), "no error");
  EXPECT_THAT(error_of(fp16 + "}, \"optimizer\": {\"type\": \"Lion\"" + offload),
              HasSubstr("[master_weights_need_offload]"));
}

TEST(Precision, AmpAndAutocast) {
  EXPECT_EQ(error_of(with("\"amp\": {\"enabled\": true, \"opt_level\": \"O1\"}")),
            "[amp_with_half_precision] f.json:2:8: amp: enabled together with bf16, expected at "
            "most one of them");
  const Strategy amp = parse(
      "{\"train_batch_size\": 8, \"amp\": {\"enabled\": true, "
      "\"opt_level\": \"O1\"}}");
  EXPECT_THAT(amp.not_simulated->what(), HasSubstr("does not simulate Apex amp yet"));
  const Strategy cast =
      parse(with("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\", "
                 "\"lower_precision_safe_modules\": [\"torch.nn.Linear\"]}"));
  EXPECT_EQ(value_of(cast, "torch_autocast.dtype"), "bfloat16");
  EXPECT_EQ(error_of(with("\"torch_autocast\": {\"enabled\": true}, \"zero_optimization\": "
                          "{\"stage\": 3, \"zero_quantized_weights\": true}")),
            "[autocast_with_quantized_weights] f.json:2:31: torch_autocast.enabled: found true "
            "together with zero_quantized_weights, expected one of them");
}

// ---- optimizers (A4.4) ----

struct OptimizerCase {
  const char* json;
  const char* name;
  int state_bytes;  ///< 4 for the master weight and 4 a moment
};

TEST(Optimizer, StatesAreCounted) {
  const OptimizerCase cases[] = {
      {R"("type": "AdamW")", "adamw", 12},
      {R"("type": "ADAM")", "adam", 12},
      {R"("type": "Lamb")", "lamb", 12},
      {R"("type": "lion")", "lion", 8},
      {R"("type": "Adagrad")", "adagrad", 8},
      {R"("type": "Muon")", "muon", 8},
      {R"("type": "SGD")", "sgd", 4},
      {R"("type": "RAdam")", "radam", 12},
      {R"("type": "SGD", "params": {"lr": 0.1, "momentum": 0.9})", "sgd", 8},
      {R"("type": "OneBitAdam", "params": {"freeze_step": 400})", "onebitadam", 16},
      {R"("type": "ZeroOneAdam")", "zerooneadam", 20},
  };
  for (const OptimizerCase& c : cases) {
    const Strategy strategy = parse(with("\"optimizer\": {" + std::string(c.json) + "}"));
    EXPECT_EQ(strategy.optimizer_name, c.name);
    EXPECT_EQ(strategy.optimizer_state_bytes, c.state_bytes) << c.name;
    const bool adam = strategy.optimizer_name == "adam" || strategy.optimizer_name == "adamw";
    EXPECT_EQ(strategy.not_simulated.has_value(), !adam);
  }
  EXPECT_EQ(parse(with("\"optimizer\": {\"type\": \"Adam\", \"params\": {\"torch_adam\": true}}"))
                .optimizer,
            OptimizerKind::AdamTorchForeach);
}

TEST(Optimizer, ZeroTakesTheTestedOnes) {
  const auto at_stage_1 = [](const std::string& type, const std::string& more = "") {
    return error_of(with("\"optimizer\": {\"type\": \"" + type +
                         "\"}, \"zero_optimization\": {\"stage\": 1}" + more));
  };
  for (const char* tested : {"Adam", "AdamW", "Adagrad", "Lion", "Muon"}) {
    EXPECT_EQ(at_stage_1(tested), "no error");
  }
  for (const char* untested : {"Lamb", "SGD", "Adafactor"}) {
    EXPECT_THAT(at_stage_1(untested), HasSubstr("[untested_optimizer] f.json:2:23"));
    EXPECT_EQ(at_stage_1(untested, ", \"zero_allow_untested_optimizer\": true"), "no error");
  }
  for (const char* one_bit : {"OneBitAdam", "ZeroOneAdam", "OneBitLamb"}) {
    EXPECT_THAT(at_stage_1(one_bit, ", \"zero_allow_untested_optimizer\": true"),
                HasSubstr("[optimizer_incompatible_with_zero] f.json:2:23"));
  }
  // torch.optim's names have their case (A4.4).
  for (const char* unknown : {"sgd", "FusedAdam", "Adammm"}) {
    EXPECT_THAT(at_stage_1(unknown), HasSubstr("[unknown_optimizer] f.json:2:23: optimizer.type: "
                                               "found \"" +
                                               std::string(unknown) + "\""));
  }
  EXPECT_THAT(at_stage_1("Adammm"), HasSubstr("did you mean \"Adam\"?"));
}

TEST(Optimizer, ParametersAreFreeForm) {
  EXPECT_THAT(
      codes(parse(with("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", "
                       "\"whatever\": [1]}}, \"scheduler\": {\"type\": \"WarmupLR\", "
                       "\"params\": {\"warmup_num_steps\": \"auto\", \"x\": 1}}"))),
      IsEmpty());
  EXPECT_EQ(error_of(with("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\"}}"),
                     as(ConfigMode::DeepSpeed)),
            "[auto_unresolved] f.json:2:49: optimizer.params.lr: found \"auto\", which DeepSpeed "
            "alone does not fill in, expected a number");
}

// ---- the rest of A4 ----

TEST(Values, OfAnotherTypeAreRefused) {
  EXPECT_EQ(error_of(zero(2, "\"reduce_bucket_size\": true")),
            "[wrong_type] f.json:3:23: zero_optimization.reduce_bucket_size: found true, expected "
            "an integer");
  EXPECT_EQ(error_of(with("\"gradient_clipping\": \"1\"")),
            "[wrong_type] f.json:2:22: gradient_clipping: found \"1\", expected a number");
  EXPECT_EQ(
      error_of(zero(3, "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": 1}")),
      "[wrong_type] f.json:3:50: zero_optimization.offload_param.nvme_path: found 1, expected "
      "text");
  EXPECT_EQ(error_of(with("\"data_types\": [1]")),
            "[wrong_type] f.json:2:15: data_types: found an array, expected an object");
  // Typed sections take numbers in quotes.
  const Strategy quoted = parse(zero(3,
                                     "\"offload_optimizer\": {\"device\": \"cpu\", "
                                     "\"ratio\": \"0.5\"}"));
  EXPECT_DOUBLE_EQ(quoted.zero.offload_optimizer.ratio, 0.5);
  EXPECT_THAT(codes(quoted), ElementsAre("quoted_number"));
}

TEST(SequenceParallel, DividesTheDataParallelSize) {
  // 8 ranks, 2 a sequence: D = 4, T = 4 * 1 * 4
  const Strategy strategy = parse(with("\"sequence_parallel_size\": 2"));
  EXPECT_EQ(strategy.sequence_parallel_size, 2);
  EXPECT_EQ(strategy.train_batch, 16);
  EXPECT_EQ(strategy.communication_dtype, Dtype::F32);  // seq_parallel_communication_data_type
  EXPECT_EQ(value_of(strategy, "communication_data_type"), "fp32 (derived)");
  EXPECT_EQ(parse(with("\"sequence_parallel_size\": 2, \"seq_parallel_communication_data_type\": "
                       "\"bf16\""))
                .communication_dtype,
            Dtype::Bf16);
  EXPECT_EQ(error_of(with("\"sequence_parallel_size\": 3")),
            "[out_of_range] f.json:2:27: sequence_parallel_size: found 3, expected a divisor of "
            "the world size 8");
  Model model = model_with_hidden(64);
  model.shape.heads = 6;
  model.shape.kv_heads = 6;
  EXPECT_THAT(
      codes(parse_deepspeed_config(with("\"sequence_parallel_size\": 4"), "f.json", {}, model, 8)),
      ElementsAre("heads_not_divisible"));
  EXPECT_THAT(
      codes(parse_deepspeed_config(with("\"sequence_parallel_size\": 2"), "f.json", {}, model, 8)),
      IsEmpty());
}

TEST(OtherSections, AreRead) {
  const char* quiet[] = {
      R"("activation_checkpointing": {"partition_activations": true, "number_checkpoints": 4})",
      R"("flops_profiler": {"enabled": false, "profile_step": 1, "output_file": null})",
      R"("tensorboard": {"enabled": true, "output_path": "x", "job_name": "y"})",
      R"("wandb": {"enabled": true, "project": "p"})",
      R"("csv_monitor": {"enabled": false})",
      R"("comet": {"enabled": false})",
      R"("elasticity": {"enabled": false, "max_train_batch_size": 2000})",
      R"("autotuning": {"enabled": false, "arg_mappings": {}})",
      R"("data_types": {"grad_accum_dtype": "bf16", "param_dtype": null})",
      R"("compile": {"deepcompile": false})",
      R"("checkpoint": {"load_universal": true})",
      R"("steps_per_print": 10, "dump_state": true, "disable_allgather": false)",
      R"("curriculum_learning": {"enabled": false})",
      R"("timers": {"throughput": {"enabled": true, "synchronized": false}})",
      R"("tensor_parallel": {"autotp_size": 1})",
      R"("hybrid_engine": {"enabled": false})",
      R"("zero_force_ds_cpu_optimizer": false, "zero_allow_untested_optimizer": true)",
      R"("memory_breakdown": true, "dataloader_drop_last": true)",
  };
  for (const char* line : quiet) {
    const Strategy strategy = parse(with(line));
    EXPECT_THAT(codes(strategy), IsEmpty()) << line;
    EXPECT_FALSE(strategy.not_simulated.has_value()) << line;
  }
  const std::pair<const char*, const char*> others[] = {
      {R"("elasticity": {"enabled": true})", "elasticity"},
      {R"("autotuning": {"enabled": true})", "autotuning"},
      {R"("compile": {"deepcompile": true})", "DeepCompile"},
      {R"("pipeline": {"stages": "auto"})", "pipeline parallelism"},
      {R"("sparse_attention": {"mode": "fixed"})", "sparse attention"},
      {R"("compression_training": {})", "compression"},
      {R"("tensor_parallel": {"autotp_size": 2})", "tensor parallelism"},
      {R"("sparse_gradients": true)", "sparse gradients"},
      {R"("gradient_allreduce_op": "sum")", "sums of gradients"},
      {R"("managed_gradient_accumulation": false)", "a loop that marks its own boundaries"},
  };
  for (const auto& [line, feature] : others) {
    const Strategy strategy = parse(with(line));
    ASSERT_TRUE(strategy.not_simulated.has_value()) << line;
    EXPECT_THAT(strategy.not_simulated->what(),
                HasSubstr("does not simulate " + std::string(feature) + " yet"));
    EXPECT_EQ(strategy.not_simulated->location().line, 2);
  }
  // Ignored by DeepSpeed, which knows its monitors by their own names only.
  EXPECT_THAT(codes(parse(with("\"monitor_config\": {\"tag\": 1}"))),
              ElementsAre("unknown_key_top"));
  EXPECT_THAT(
      codes(parse(zero(2, "\"overlap_comm\": true}, \"sparse_gradients\": true, \"amp\": {"))),
      ElementsAre("no_effect_at_stage"));
}

TEST(Timers, TheFlopsProfilerTurnsOnTheOthers) {
  const Strategy strategy = parse(with("\"flops_profiler\": {\"enabled\": true}"));
  EXPECT_TRUE(strategy.wall_clock_breakdown);
  EXPECT_EQ(value_of(strategy, "wall_clock_breakdown"), "true (derived)");
  EXPECT_THAT(codes(strategy), ElementsAre("wall_clock_breakdown_synchronises"));
}

// ---- files as people bring them ----

const char* const kAccelerateZero3 = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
           "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
                "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true,
    "contiguous_gradients": true,
    "sub_group_size": 1e9,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true
  },
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "steps_per_print": 2000,
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "wall_clock_breakdown": false
})";

TEST(FilesOfOthers, TheTrainersZero3WithOffload) {
  TrainingFlags flags = as(ConfigMode::HuggingFace);
  flags.micro_batch = 2;
  flags.grad_accum = 3;
  flags.precision = Precision::Fp16;
  const Strategy strategy = parse(kAccelerateZero3, flags);
  EXPECT_EQ(strategy.precision, Precision::Fp16);
  EXPECT_EQ(strategy.train_batch, 48);  // 2 * 3 * 8
  EXPECT_EQ(strategy.zero.offload_param.device, OffloadDevice::Cpu);
  EXPECT_TRUE(strategy.zero.gather_16bit_weights_on_model_save);
  EXPECT_THAT(codes(strategy), IsEmpty());
}

TEST(FilesOfOthers, AStageZeroFileWithKeysOfStageTwo) {
  TrainingFlags flags;
  flags.micro_batch = 1;
  flags.precision = Precision::Bf16;
  const Strategy strategy = parse(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
          "gradient_accumulation_steps": "auto", "zero_allow_untested_optimizer": true,
          "bf16": {"enabled": "auto"},
          "zero_optimization": {"stage": 0, "allgather_partitions": true,
            "allgather_bucket_size": 5e8, "overlap_comm": false, "reduce_scatter": true,
            "round_robin_gradients": true}})",
      flags);
  EXPECT_THAT(codes(strategy), ElementsAre("no_effect_at_stage", "no_effect_at_stage",
                                           "no_effect_at_stage", "no_effect_at_stage"));
  EXPECT_EQ(strategy.warnings[1].message,
            "f.json:5:66: zero_optimization.reduce_scatter: has no effect at stage 0");
}

TEST(FilesOfOthers, AnOldFileWithStaticScaleAndOldNames) {
  const Strategy strategy = parse(
      R"({"train_micro_batch_size_per_gpu": 1, "bfloat16": {"enabled": true},
          "fp16": {"enabled": false, "loss_scale_window": 1000},
          "zero_optimization": {"stage": 3, "stage3_gather_fp16_weights_on_model_save": true,
            "max_live_parameters": 100, "stage3_prefetch_bucket_size": 5e7}})");
  EXPECT_EQ(strategy.precision, Precision::Bf16);
  EXPECT_EQ(value_of(strategy, "bf16.enabled"), "true");
  EXPECT_EQ(value_of(strategy, kZero + "stage3_max_live_parameters"), "100");
  EXPECT_EQ(value_of(strategy, kZero + "stage3_gather_16bit_weights_on_model_save"), "true");
  EXPECT_THAT(codes(strategy), ElementsAre("deprecated_key", "old_name"));
}

// ---- settings ----

TEST(Settings, HaveOriginReasonAndPlace) {
  TrainingFlags flags;
  flags.grad_accum = 2;
  const Strategy strategy =
      parse(zero(3, "\"prefetch_bucket_size\": 7, \"reduce_bucket_size\": \"auto\""), flags);
  const Setting* prefetch = find_setting(strategy, kZero + "stage3_prefetch_bucket_size");
  ASSERT_NE(prefetch, nullptr);
  EXPECT_EQ(prefetch->value, "7");
  EXPECT_EQ(prefetch->origin, Origin::File);
  EXPECT_EQ(prefetch->reason, "");
  EXPECT_EQ(to_string(prefetch->where), "f.json:3:25");
  const Setting* bucket = find_setting(strategy, kZero + "reduce_bucket_size");
  EXPECT_EQ(bucket->origin, Origin::Auto);
  EXPECT_EQ(bucket->reason, "hidden^2 with hidden 4096");
  EXPECT_EQ(to_string(bucket->where), "f.json:3:50");
  EXPECT_EQ(value_of(strategy, "gradient_accumulation_steps"), "2 (flag)");
  EXPECT_EQ(value_of(strategy, "train_batch_size"), "64 (derived)");
  EXPECT_EQ(value_of(strategy, kZero + "sub_group_size"), "1000000000 (default)");
  EXPECT_EQ(value_of(strategy, "gradient_clipping"), "1.0 (default)");
  EXPECT_EQ(find_setting(strategy, kZero + "prefetch_bucket_size"), nullptr);
}

TEST(Settings, AreUniqueAndEachThatIsNoFilesIsAnAssumption) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::string& text :
         {zero(stage, "\"overlap_comm\": true"), std::string("{\"train_batch_size\": 8}"),
          std::string(kAccelerateZero3)}) {
      TrainingFlags flags;
      if (text == kAccelerateZero3) flags.micro_batch = 1;
      const Strategy strategy = parse(text, flags);
      std::set<std::string> keys;
      for (const Setting& setting : strategy.settings) {
        EXPECT_TRUE(keys.insert(setting.key).second) << setting.key;
        if (setting.origin == Origin::File) {
          EXPECT_GE(setting.where.line, 1) << setting.key;
        } else {
          EXPECT_THAT(strategy.assumptions, Contains(sentence(setting)));
        }
      }
      EXPECT_GT(keys.size(), 15U);
    }
  }
}

TEST(Settings, OfOtherStagesAreListedOnlyIfStated) {
  const Strategy second = parse(zero(2, "\"sub_group_size\": 5"));
  EXPECT_EQ(value_of(second, kZero + "sub_group_size"), "5");
  EXPECT_EQ(value_of(second, kZero + "stage3_max_live_parameters"), "-");
  EXPECT_EQ(value_of(second, kZero + "round_robin_gradients"), "false (default)");
  EXPECT_THAT(codes(second), ElementsAre("no_effect_at_stage"));
}

TEST(Settings, FollowWhatForcesThem) {
  const Strategy strategy = parse(zero(3, "\"stage3_allgather_sequential\": true"));
  EXPECT_EQ(strategy.zero.prefetch_bucket_size, 1);
  EXPECT_EQ(value_of(strategy, kZero + "stage3_prefetch_bucket_size"), "1 (derived)");
}

// ---- lints that need a model ----

TEST(Lints, CompareThresholdsWithTheModel) {
  Model model = model_with_hidden(8);
  for (const std::int64_t elements : {64, 8}) model.parameters.emplace_back().elements = elements;
  const auto codes_of = [&model](const std::string& inside) {
    return codes(parse_deepspeed_config(zero(3, inside + ", \"reduce_bucket_size\": 64"), "f.json",
                                        {}, model, 8));
  };
  EXPECT_THAT(codes_of("\"stage3_param_persistence_threshold\": 64"),
              ElementsAre("persistence_keeps_every_parameter"));
  EXPECT_THAT(codes_of("\"param_persistence_threshold\": 63"), IsEmpty());
  EXPECT_THAT(codes_of("\"stage3_param_persistence_threshold\": 64, "
                       "\"stage3_model_persistence_threshold\": 71"),
              IsEmpty());
}

TEST(Lints, ABucketIsComparedWithTheMatricesOfABlock) {
  const Model model = load_model("llama-2-7b");  // largest: 4096 x 11008 = 45088768
  const auto codes_of = [&model](const std::string& bucket) {
    return codes(parse_deepspeed_config(zero(2, "\"reduce_bucket_size\": " + bucket), "f.json", {},
                                        model, 8));
  };
  EXPECT_THAT(codes_of("45088768"), IsEmpty());
  EXPECT_THAT(codes_of("45088767"), ElementsAre("bucket_smaller_than_largest_param"));
  EXPECT_THAT(codes_of("\"auto\""), IsEmpty());  // 4096^2 by rule
}

TEST(Lints, ExpertsShouldBeLeafModules) {
  const Model model = load_model("mixtral-8x7b");
  const auto read = [&model](const std::string& inside, const std::string& version = "0.19") {
    return parse_deepspeed_config(zero(3, inside), "f.json", of_version(version), model, 8);
  };
  const Strategy current = read("\"overlap_comm\": true");
  EXPECT_THAT(codes(current), Not(Contains("moe_without_leaf_module_may_hang")));
  const Strategy old = read("\"overlap_comm\": true", "0.14");
  EXPECT_THAT(codes(old), Contains("moe_without_leaf_module_may_hang"));
  EXPECT_THAT(codes(read("\"leaf_module\": {\"classes\": [\"Other\"]}")),
              Contains("moe_without_leaf_module_may_hang"));
  // A leaf takes in all that is below it.
  EXPECT_THAT(codes(read("\"leaf_module\": {\"classes\": [\"MixtralDecoderLayer\"]}")),
              Not(Contains("moe_without_leaf_module_may_hang")));
  EXPECT_THAT(codes(parse_deepspeed_config(zero(2, "\"overlap_comm\": true"), "f.json",
                                           of_version("0.14"), model, 8)),
              Not(Contains("moe_without_leaf_module_may_hang")));
}

// ---- what DeepSpeed ignores, or takes otherwise than it looks ----

TEST(Ignored, KeysOfSectionsThatAreNotStrict) {
  const Strategy strategy =
      parse(with("\"data_types\": {\"grad_accum_dtyp\": \"fp32\"}, \"aio\": {\"blok_size\": 1}"));
  std::vector<std::string> messages;
  for (const Warning& warning : strategy.warnings) {
    EXPECT_EQ(warning.code, "unknown_key_ignored");
    messages.push_back(warning.message);
  }
  EXPECT_THAT(messages,
              testing::UnorderedElementsAre(
                  HasSubstr("data_types.grad_accum_dtyp: unknown key, which DeepSpeed ignores; did "
                            "you mean \"grad_accum_dtype\"?"),
                  HasSubstr("aio.blok_size: unknown key, which DeepSpeed ignores; did you mean "
                            "\"block_size\"?")));
  EXPECT_EQ(config_verdict(strategy.warnings), ConfigVerdict::Warn);
}

TEST(Ignored, TextIsTrueAtTopLevel) {
  const Strategy strategy = parse(with("\"wall_clock_breakdown\": \"false\""));
  EXPECT_TRUE(strategy.wall_clock_breakdown);
  EXPECT_EQ(strategy.warnings.at(0).code, "quoted_boolean");
}

TEST(TorchAutocast, AutoIsDropped) {
  const Strategy strategy =
      parse(with("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"auto\"}"));
  EXPECT_EQ(value_of(strategy, "torch_autocast.dtype"), "-");
}

}  // namespace
}  // namespace zerosim
