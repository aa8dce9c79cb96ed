// What experiment files resolve to: models, clusters, strategies, DeepSpeed's estimate.

#include "validate/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "topology/nccl_graph.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kData = ZEROSIM_TEST_DATA;

/// An experiment on a model without layers; the parts are JSON.
struct Text {
  std::string model = R"({"n_params": 1000})";
  std::string cluster = R"({"gpu": "A100-SXM4-80", "gpus_per_node": 8, "nodes": 1})";
  std::string training = R"({"framework": "ddp", "micro_batch": 1, "grad_accum": 1,
                             "precision": "bf16", "seq": 64})";
  std::string more{};
};

ExperimentInputs read(const Text& text) {
  const JsonDocument document =
      JsonDocument::from_text("{\"model\": " + text.model + ", \"cluster\": " + text.cluster +
                                  ", \"training\": " + text.training + text.more + "}",
                              "e.json");
  const ExperimentFile file(document, document.root(), kData + "/ds_configs", kData);
  return file.variants().empty() ? file.inputs() : file.variants().front();
}

template <typename Act>
std::string error_of(Act act) {
  try {
    static_cast<void>(act());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// ---- models ----------------------------------------------------------------------------------

Model model(const std::string& text) {
  return model_of(read({.model = text}));
}

TEST(ExperimentModel, FromEachSource) {
  EXPECT_EQ(parameter_count(model(R"({"ref": "models/llama_small.json"})")), 1'363'584);
  EXPECT_EQ(model(R"({"config": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
                                 "vocab_size": 100, "n_positions": 32}})")
                .family,
            "gpt2");
  // 12 x 256^2 x 2 + 100 x 256 + 2 x 256 x 5.
  EXPECT_EQ(
      parameter_count(model(R"({"n_params": 1601024, "layers": 2, "hidden": 256, "vocab": 100})")),
      1'601'024);
  EXPECT_EQ(parameter_count(model(R"({"n_params": 1000})")), 1000);
  EXPECT_TRUE(model(R"({"n_params": null})").parameters.empty());
}

TEST(ExperimentModel, WhatTrains) {
  EXPECT_EQ(trainable_parameter_count(model(
                R"({"n_params": 1000, "trainable": {"kind": "frozen", "trainable_params": 10}})")),
            10);
  // Rank 2 on q_proj (128 -> 128) and v_proj (128 -> 64) of 6 layers: 2 (256 + 192) x 6.
  EXPECT_EQ(trainable_parameter_count(model(R"({"ref": "models/llama_small.json",
                          "trainable": {"kind": "lora", "rank": 2, "targets": ["q_proj", "v_proj"],
                                        "trainable_params": null}})")),
            5376);
  // The first in order of registration that fit: 12 norms of 128 are within 1,600, no matrix is.
  EXPECT_EQ(trainable_parameter_count(model(R"({"ref": "models/llama_small.json",
                          "trainable": {"kind": "frozen", "trainable_params": 1600}})")),
            1536);
}

TEST(ExperimentModel, AdaptersOfASizedDecoder) {
  const std::string sizes = R"({"n_params": 1601024, "layers": 2, "hidden": 256, "vocab": 100,
                                "trainable": {"kind": "lora", "rank": 2, "targets": ["q_proj"],
                                              "trainable_params": )";
  // Rank 2 on 256 -> 768 of 2 layers: 2 x 1024 x 2.
  EXPECT_EQ(trainable_parameter_count(model(sizes + "null}}")), 4096);
  EXPECT_EQ(trainable_parameter_count(model(sizes + "300}}")), 256);
  EXPECT_THAT(error_of([] {
                return model(R"({"n_params": 1000, "trainable": {"kind": "lora", "rank": 2}})");
              }),
              HasSubstr("model: trainable.trainable_params: missing"));
}

TEST(ExperimentModel, ErrorsPointToTheFile) {
  EXPECT_THAT(error_of([] { return model(R"({"ref": "models/no_such.json"})"); }),
              HasSubstr("no_such.json"));
  EXPECT_THAT(error_of([] { return model(R"({"config": {"model_type": "lama"}})"); }),
              HasSubstr(R"(e.json:1:11: model: )"));
  EXPECT_THAT(error_of([] { return model(R"({"config": {"model_type": "lama"}})"); }),
              HasSubstr(R"(did you mean "llama"?)"));
  EXPECT_EQ(error_of([] {
              return model(R"({"n_params": 9, "layers": 2, "hidden": 256, "vocab": 100})");
            }),
            "e.json:1:11: model: n_params 9: 2 layers of width 256 with a vocabulary of 100 need "
            "more");
}

// ---- clusters --------------------------------------------------------------------------------

Cluster cluster(const std::string& text, const std::string& more = "") {
  return cluster_of(read({.cluster = text, .more = more}));
}

TEST(ExperimentCluster, APresetWhereThereIsOne) {
  const Cluster node = cluster(R"({"gpu": "A100-SXM4-80", "gpu_memory_gib": 79, "gpus_per_node": 4,
                                   "nodes": 1, "intra_node": {"kind": "nvlink", "gbps": null}})");
  EXPECT_EQ(node.node.name, "dgx-a100-80");
  EXPECT_EQ(node.world_size(), 4);
  EXPECT_EQ(node.gpu_memory(), 79_GiB);
}

TEST(ExperimentCluster, SpelledOutWhereThereIsNone) {
  const Cluster pcie = cluster(R"({"gpu": "V100-SXM2-32", "gpus_per_node": 8, "nodes": 1,
                                   "intra_node": {"kind": "pcie"}})");
  EXPECT_EQ(pcie.node.intra, IntraNode::Pcie);
  EXPECT_EQ(pcie.gpu_memory(), gpu_spec("V100-SXM2-32").memory);
  EXPECT_EQ(cluster(R"({"gpu": "H100-SXM-96-HBM2e", "gpus_per_node": 4, "nodes": 1,
                        "intra_node": {"kind": "nvlink"}})")
                .node.intra,
            IntraNode::NvLinkMesh);
  EXPECT_EQ(cluster(R"({"gpu": "H100-SXM-96-HBM2e", "gpus_per_node": 8, "nodes": 1})").node.intra,
            IntraNode::NvSwitch);
  EXPECT_EQ(cluster(R"({"gpu": "TITAN-RTX-24", "gpus_per_node": 2, "nodes": 1})").node.intra,
            IntraNode::Pcie);
}

TEST(ExperimentCluster, ARateInsideANodeIsPerGpu) {
  // 5.7 Gb/s are 0.7125 GB/s.
  const Cluster slow = cluster(R"({"gpu": "A100-SXM4-80", "gpus_per_node": 3, "nodes": 1,
                                   "intra_node": {"kind": "pcie_no_p2p", "gbps": 5.7}})");
  EXPECT_EQ(slow.node.intra, IntraNode::PcieHostStaged);
  EXPECT_NEAR(link_capacity(slow, LinkClass::Kind::IntraNode).gb_per_second(), 0.7125, 1e-9);
}

TEST(ExperimentCluster, ARateBetweenNodesIsOfAllAdaptersOfANode) {
  for (const int gpus : {1, 2, 3, 4, 8}) {
    for (const double gbps : {18.0, 100.0, 400.0, 800.0}) {
      const Cluster nodes = cluster(format(
          R"({{"gpu": "A100-SXM4-80", "gpus_per_node": {}, "nodes": 2, "inter_node":
              {{"kind": "efa", "gbps": {}}}}})",
          gpus, gbps));
      const double peak = nodes.node.nic_bandwidth.gb_per_second() * 8 * nodes.used_nics;
      EXPECT_NEAR(peak, gbps, 1e-6) << gpus << " GPUs";
    }
  }
}

TEST(ExperimentCluster, EnvironmentTurnsLinksOff) {
  const std::string text = R"({"gpu": "A100-SXM4-80", "gpus_per_node": 8, "nodes": 2})";
  EXPECT_EQ(cluster(text).node.intra, IntraNode::NvSwitch);
  EXPECT_EQ(cluster(text, R"(, "environment": {"NCCL_P2P_DISABLE": "0"})").node.intra,
            IntraNode::NvSwitch);
  EXPECT_EQ(cluster(text, R"(, "environment": {"NCCL_P2P_DISABLE": "1"})").node.intra,
            IntraNode::PcieHostStaged);
  const Cluster tcp = cluster(text, R"(, "environment": {"NCCL_IB_DISABLE": "1"})");
  EXPECT_LT(link_capacity(tcp, LinkClass::Kind::Network),
            link_capacity(cluster(text), LinkClass::Kind::Network));
}

TEST(ExperimentCluster, AGpuThatIsNotKnown) {
  const ExperimentInputs inputs =
      read({.cluster = R"({"gpu": null, "gpu_memory_gib": 47.5, "gpus_per_node": 8, "nodes": 1})"});
  EXPECT_FALSE(knows_gpu(inputs));
  EXPECT_TRUE(knows_gpu_memory(inputs));
  const Cluster stand_in = cluster_of(inputs);
  EXPECT_NEAR(stand_in.gpu_memory().gib(), 47.5, 1e-6);
  EXPECT_THAT(stand_in.assumptions, Contains(HasSubstr("cluster.gpu is not known")));
  EXPECT_FALSE(knows_gpu_memory(read({.cluster = R"({"gpus_per_node": 8, "nodes": 1})"})));
}

TEST(ExperimentCluster, ErrorsPointToTheCluster) {
  const std::string message =
      error_of([] { return cluster(R"({"gpu": "A100-SXM4-8", "gpus_per_node": 8, "nodes": 1})"); });
  EXPECT_THAT(message, HasSubstr("e.json:1:42: "));
  EXPECT_THAT(message, HasSubstr(R"(did you mean "A100-SXM4-80"?)"));
}

/// A cluster with links of these kinds; empty: null.
ExperimentInputs linked(const std::string& intra, const std::string& inter, int nodes = 2,
                        const std::string& more = "") {
  const auto kind = [](const std::string& word) {
    return word.empty() ? std::string("null") : "\"" + word + "\"";
  };
  return read({.cluster = format(R"({{"gpu": "A100-SXM4-80", "gpus_per_node": 4, "nodes": {},
                  "intra_node": {{"kind": {}}}, "inter_node": {{"kind": {}}}}})",
                                 nodes, kind(intra), kind(inter)),
               .more = more});
}

TEST(ExperimentCluster, WordsOfClusterFilesAndOtherWordsForTheSame) {
  const auto network = [](const std::string& word) {
    const ExperimentInputs inputs = linked("", word);
    EXPECT_EQ(what_time_lacks(inputs), "") << word;
    return cluster_of(inputs).node.network;
  };
  for (const char* word : {"infiniband", "ib", "InfiniBand", "IB"}) {
    EXPECT_EQ(network(word), NetworkKind::InfiniBand) << word;
  }
  for (const char* word : {"roce", "RoCEv2", "roce_v2"}) {
    EXPECT_EQ(network(word), NetworkKind::Roce) << word;
  }
  for (const char* word : {"tcp", "ethernet"}) {
    EXPECT_EQ(network(word), NetworkKind::Tcp) << word;
  }
  const auto inside = [](const std::string& word) {
    const ExperimentInputs inputs = linked(word, "");
    EXPECT_EQ(what_time_lacks(inputs), "") << word;
    return cluster_of(inputs).node.intra;
  };
  for (const char* word : {"nvlink-mesh", "nvlink_mesh"}) {
    EXPECT_EQ(inside(word), IntraNode::NvLinkMesh) << word;
  }
  for (const char* word : {"pcie_no_p2p", "pcie-host-staged"}) {
    EXPECT_EQ(inside(word), IntraNode::PcieHostStaged) << word;
  }
}

TEST(ExperimentCluster, KindsThatAreNotKnownLeaveTheTimeOpen) {
  const ExperimentInputs inputs = linked("nvlnk", "infinband");
  const std::string intra =
      R"(cluster.intra_node.kind: found "nvlnk", expected one of nvlink, nvswitch, pcie, )"
      R"(pcie-no-p2p, nvlink-mesh, pcie-host-staged; did you mean "nvlink"?)";
  EXPECT_THAT(what_time_lacks(inputs), StartsWith(intra));
  EXPECT_THAT(what_time_lacks(inputs), HasSubstr(R"(did you mean "infiniband"?)"));
  EXPECT_THAT(cluster_of(inputs).assumptions, Contains(intra + ": taken as not known"));
  // As where nothing is said.
  EXPECT_EQ(cluster_of(inputs).node.intra, cluster_of(linked("", "")).node.intra);
  // Nobody asks for links that are not in use.
  EXPECT_EQ(what_time_lacks(linked("nvlink", "infinband", 1)), "");
  EXPECT_EQ(what_time_lacks(linked("nvlnk", "", 1, R"(, "environment": {"NCCL_P2P_DISABLE": 1})")),
            "");
}

TEST(ExperimentCluster, AGpuThatIsNotSimulated) {
  const std::string text = R"({"gpu": "MI300X-192", "gpu_memory_gib": 191, "gpus_per_node": 8,
                               "nodes": 1, "intra_node": {"kind": "infinity_fabric"}})";
  const ExperimentInputs inputs = read({.cluster = text});
  EXPECT_FALSE(knows_gpu(inputs));
  EXPECT_TRUE(knows_gpu_memory(inputs));
  EXPECT_EQ(what_time_lacks(inputs), "cluster.gpu: MI300X-192 is not simulated");
  EXPECT_EQ(cluster_of(inputs).gpu_memory(), 191_GiB);
  EXPECT_THAT(cluster_of(inputs).assumptions,
              Contains("cluster.gpu is not simulated, MI300X-192: A100-SXM4-80 stands in"));
  EXPECT_FALSE(knows_gpu_memory(
      read({.cluster = R"({"gpu": "MI300X-192", "gpus_per_node": 8, "nodes": 1})"})));
}

// ---- strategies ------------------------------------------------------------------------------

ExperimentInputs deepspeed(const std::string& training, const std::string& file,
                           const std::string& patches = "", const std::string& more = "") {
  return read({.training = R"({"framework": "deepspeed", )" + training + "}",
               .more = R"(, "ds_config": ")" + file + "\"" + more + R"(, "variants": {"v": {)" +
                       patches + "}}"});
}

Strategy strategy(const ExperimentInputs& inputs, UnknownBatch unknown = UnknownBatch::Refuse) {
  return strategy_of(inputs, model_of(inputs), unknown);
}

const std::string kTraining = R"("micro_batch": 2, "grad_accum": 3, "precision": "bf16")";

TEST(ExperimentStrategy, TrainingFillsWhatTheFileLeavesOut) {
  // reported/z3_auto_batch.json has "auto" in its batch fields.
  const Strategy read = strategy(deepspeed(kTraining, "reported/z3_auto_batch.json"));
  EXPECT_EQ(read.zero.stage, 3);
  EXPECT_EQ(read.micro_batch, 2);
  EXPECT_EQ(read.grad_accum, 3);
  EXPECT_EQ(read.train_batch, 2 * 3 * 8);
  EXPECT_EQ(read.gpus_per_node, 8);
}

TEST(ExperimentStrategy, TheFileWins) {
  const Strategy read =
      strategy(deepspeed(kTraining, "reported/z3_auto_batch.json",
                         R"("ds.train_micro_batch_size_per_gpu": 4, "ds.fp16": {"enabled": true},
                   "ds.bf16": {"enabled": false})"));
  EXPECT_EQ(read.micro_batch, 4);
  EXPECT_EQ(read.precision, Precision::Fp16);
}

TEST(ExperimentStrategy, PatchesReplaceAndRemove) {
  const Strategy read = strategy(deepspeed(kTraining, "reported/z3_auto_batch.json",
                                           R"("ds.zero_optimization.stage": 1,
                                              "ds.gradient_clipping": 0.5,
                                              "ds.zero_optimization.offload_optimizer": null)"));
  EXPECT_EQ(read.zero.stage, 1);
  EXPECT_EQ(read.gradient_clipping, 0.5);
  EXPECT_EQ(read.zero.offload_optimizer.device, OffloadDevice::None);
}

TEST(ExperimentStrategy, ErrorsOfAPatchedFileHaveNoLine) {
  const std::string message = error_of([] {
    return strategy(
        deepspeed(kTraining, "reported/z3_auto_batch.json", R"("ds.zero_optimization.stage": 7)"));
  });
  EXPECT_THAT(message, HasSubstr("z3_auto_batch.json: as patched: zero_optimization.stage: "));
  EXPECT_THAT(error_of([] {
                return strategy(deepspeed(kTraining, "reported/z3_auto_batch.json",
                                          R"("ds.zero_optimization.stage.x": 7)"));
              }),
              HasSubstr("ds.zero_optimization.stage.x: found 3, expected an object to change"));
}

TEST(ExperimentStrategy, UnknownBatchesAreRefusedOrOne) {
  const ExperimentInputs inputs =
      deepspeed(R"("micro_batch": null, "precision": "bf16")", "reported/z3_auto_batch.json");
  EXPECT_THAT(error_of([&] { return strategy(inputs); }), HasSubstr("auto"));
  EXPECT_EQ(strategy(inputs, UnknownBatch::One).train_batch, 8);
}

TEST(ExperimentStrategy, ABatchThatTheFileLeavesOut) {
  for (const char* mode : {"auto", "deepspeed", "hf"}) {
    const Strategy read = strategy(
        deepspeed(kTraining, "reported/z3_auto_batch.json",
                  R"("ds.train_batch_size": null, "ds.train_micro_batch_size_per_gpu": null,
           "ds.gradient_accumulation_steps": null, "ds.gradient_clipping": 1)",
                  format(R"(, "config_as": "{}")", mode)));
    EXPECT_EQ(read.train_batch, 2 * 3 * 8) << mode;
  }
}

TEST(ExperimentStrategy, NoSyncIsRefusedFromStage2On) {
  try {
    static_cast<void>(
        strategy(deepspeed(kTraining + R"(, "no_sync": true)", "reported/z3_auto_batch.json")));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), "no_sync_with_gradient_partitioning");
  }
}

TEST(ExperimentStrategy, FrameworksByName) {
  const auto named = [](const std::string& name, const std::string& more = "") {
    return strategy(read({.training = R"({"micro_batch": 1, "grad_accum": 2, "precision": "bf16",
                                          "framework": ")" +
                                      name + "\"" + more + "}"}));
  };
  EXPECT_EQ(named("ddp").framework, Framework::Ddp);
  EXPECT_TRUE(named("ddp").ddp.no_sync);
  EXPECT_EQ(named("hsdp").fsdp.sharding, FsdpSharding::HybridShard);
  EXPECT_FALSE(named("fsdp_full").fsdp.no_sync);
  EXPECT_TRUE(named("fsdp_full", R"(, "no_sync": true)").fsdp.no_sync);
  EXPECT_EQ(named("fsdp_full", R"(, "fsdp_wrap": "none")").fsdp.wrap, FsdpWrap::None);
  const ExperimentInputs misspelt =
      read({.model = R"({"ref": "models/llama_small.json"})",
            .training = R"({"framework": "fsdp_full", "fsdp_wrap": "Modell"})"});
  EXPECT_THAT(error_of([&] { return strategy(misspelt); }),
              HasSubstr(R"(fsdp_wrap: found "Modell", expected decoder_layer, none or a class)"));
}

TEST(ExperimentStrategy, ZeroInitOfFsdpIsItsLoading) {
  const auto efficient = [](const char* more) {
    return strategy(read({.training = format(R"({{"framework": "fsdp_full"{}}})", more)}))
        .fsdp.cpu_ram_efficient_loading;
  };
  EXPECT_TRUE(efficient(""));
  EXPECT_TRUE(efficient(R"(, "zero_init": true)"));
  EXPECT_FALSE(efficient(R"(, "zero_init": false)"));
}

TEST(ExperimentStrategy, AWrapClassOfAModelOfSizes) {
  const ExperimentInputs inputs =
      read({.model = R"({"n_params": 1601024, "layers": 2, "hidden": 256, "vocab": 100})",
            .training = R"({"framework": "fsdp_full", "fsdp_wrap": "LlamaDecoderLayer"})"});
  const Strategy sized = strategy(inputs);
  EXPECT_EQ(sized.fsdp.wrap, FsdpOptions().wrap);
  EXPECT_TRUE(sized.fsdp.transformer_layer_classes.empty());
  const Experiment experiment = experiment_of(inputs, model_of(inputs));
  EXPECT_THAT(
      experiment.cluster.assumptions,
      Contains("training.fsdp_wrap: LlamaDecoderLayer is taken as the blocks of the model"));
}

TEST(ExperimentStrategy, AnUnknownReleaseIsShownInItsPlace) {
  const std::string message = error_of([] {
    return strategy(deepspeed(kTraining, "reported/z3_auto_batch.json", "",
                              R"(, "deepspeed_version": "0.16.4")"));
  });
  EXPECT_THAT(message, StartsWith("e.json:1:"));
  EXPECT_THAT(message, HasSubstr(R"(deepspeed_version: found "0.16.4", expected )"));
  EXPECT_THAT(message, Not(HasSubstr("--")));
}

TEST(ExperimentStrategy, TheOptimizerIsHandedOver) {
  EXPECT_EQ(strategy(deepspeed(kTraining + R"(, "optimizer": "adamw_8bit")",
                               "reported/z3_auto_batch.json"))
                .optimizer,
            OptimizerKind::Adam8bit);
  // The file's own optimizer and DeepSpeed's for the CPU win.
  for (const char* patch : {R"("ds.optimizer": {"type": "AdamW"})",
                            R"("ds.zero_optimization.offload_optimizer": {"device": "cpu"})"}) {
    EXPECT_EQ(strategy(deepspeed(kTraining + R"(, "optimizer": "adamw_torch")",
                                 "reported/z3_auto_batch.json", patch))
                  .optimizer,
              OptimizerKind::AdamFused);
  }
}

TEST(ExperimentStrategy, DeepSpeedNeedsItsFile) {
  EXPECT_THAT(
      error_of([] { return strategy(read({.training = R"({"framework": "deepspeed"})"})); }),
      HasSubstr("ds_config: missing, expected the DeepSpeed file"));
  EXPECT_THAT(error_of([] { return strategy(deepspeed(kTraining, "none.json")); }),
              HasSubstr("ds_config: "));
}

// ---- the rest --------------------------------------------------------------------------------

TEST(ExperimentBatch, DefaultsAreListed) {
  const ExperimentInputs inputs = read({.training = R"({"framework": "ddp"})"});
  const Experiment experiment = experiment_of(inputs, model_of(inputs));
  EXPECT_EQ(experiment.batch.sequence, 2048);
  EXPECT_THAT(experiment.cluster.assumptions, Contains("training.seq is not known: 2048"));
}

TEST(ExperimentBatch, TheAllocatorFollowsTheEnvironment) {
  const ExperimentInputs inputs =
      read({.more = R"(, "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})"});
  EXPECT_TRUE(experiment_of(inputs, model_of(inputs)).alloc_conf.expandable_segments);
}

TEST(ExperimentBatch, VariablesOfTheClusterAreFollowed) {
  const ExperimentInputs inputs = read(
      {.cluster = R"({"gpu": "A100-SXM4-80", "gpus_per_node": 8, "nodes": 2})",
       .more =
           R"(, "environment": {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": 1, "NCCL_ALGO": "Ring"})"});
  const std::vector<std::string> assumptions =
      experiment_of(inputs, model_of(inputs)).cluster.assumptions;
  EXPECT_THAT(assumptions,
              Contains("environment: NCCL_P2P_DISABLE: GPUs of a node talk through host memory"));
  EXPECT_THAT(assumptions, Contains("environment: NCCL_IB_DISABLE: nodes talk by TCP"));
  EXPECT_THAT(assumptions,
              Contains("environment: NCCL_ALGO=Ring: NCCL chooses among these algorithms"));
}

TEST(ExperimentEstimate, OfTheStageTheOffloadAndTheInit) {
  // Stage 3 without offload (F4): 4 L + 18 P / N.
  const ExperimentInputs inputs =
      read({.model = R"({"n_params": 8000000, "largest_layer_params": 1000})",
            .training = R"({"framework": "deepspeed", "micro_batch": 1, "precision": "bf16"})",
            .more = R"(, "ds_config": "reported/z3_auto_batch.json", "variants":
                  {"v": {"ds.zero_optimization": {"stage": 3}}})"});
  const EstimatorRow row = estimate_of(inputs, model_of(inputs), strategy(inputs));
  EXPECT_EQ(row.gpu, Bytes(4 * 1000 + 18 * 8'000'000 / 8));
  const ExperimentInputs ddp = read({});
  EXPECT_THAT(error_of([&] { return estimate_of(ddp, model_of(ddp), strategy(ddp)); }),
              HasSubstr("stages 2 and 3 alone"));
}

}  // namespace
}  // namespace zerosim
