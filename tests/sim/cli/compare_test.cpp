#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A small Llama, on four A100s, DDP beside the three files of a study note.
std::vector<std::string> note_comparison() {
  return {"compare",
          "--model",
          cli_data("tiny_llama.json"),
          "--cluster",
          "dgx-a100-80",
          "--num_gpus",
          "4",
          "--strategies",
          "ddp",
          "--deepspeed",
          cli_data("ds_zero1.json"),
          cli_data("ds_zero2.json"),
          cli_data("ds_zero3.json")};
}

TEST(CompareCommand, PrintsOneTableOf100Columns) {
  const Outcome outcome = run_zerosim(note_comparison());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  std::istringstream stream(outcome.out);
  int verdicts = 0;
  for (std::string line; std::getline(stream, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    if (line.starts_with("verdict")) ++verdicts;
  }
  EXPECT_EQ(verdicts, 1);
}

TEST(CompareCommand, TheEnvironmentKeepsNcclFromLinks) {
  const JsonDocument usual = zerosim_json(note_comparison());
  std::vector<std::string> staged = note_comparison();
  staged.insert(staged.end(), {"--env", cli_data("host_memory.env")});
  const JsonDocument json = zerosim_json(staged);
  const JsonValue& strategies = json.root()["strategies"];
  ASSERT_EQ(strategies.size(), 4U);
  for (Json::ArrayIndex i = 0; i < strategies.size(); ++i) {
    // Rings at 7.5 GB/s in place of 240: the least that one of them sends, 134 MB, takes 18 ms, of
    // which the host's 68 ms of stage 3 hide a part.
    EXPECT_GT(strategies[i]["time"]["step"].asDouble(),
              usual.root()["strategies"][i]["time"]["step"].asDouble() + 5e-3);
  }
  std::vector<std::string> told;
  for (const JsonValue& sentence : strategies[0]["assumptions"]) {
    if (sentence.asString().starts_with("environment: ")) told.push_back(sentence.asString());
  }
  EXPECT_THAT(told, ::testing::ElementsAre(
                        "environment: NCCL_P2P_DISABLE=1: GPUs of a node talk through host memory, "
                        "where rings reach 7.5 GB/s",
                        "environment: NCCL_PROTO=^LL128: NCCL chooses among these protocols",
                        "environment: without effect on time here: NCCL_DEBUG"));
}

TEST(CompareCommand, GivesDdpTheMicroBatchOfTheFiles) {
  const JsonDocument json = zerosim_json(note_comparison());
  const JsonValue& strategies = json.root()["strategies"];
  ASSERT_EQ(strategies.size(), 4U);
  EXPECT_EQ(strategies[0]["name"], "ddp");
  for (const JsonValue& strategy : strategies) {
    const JsonValue& throughput = strategy["throughput"];
    // Micro batch 4 on 4 GPUs: 16 sequences of 2048 tokens a step.
    EXPECT_NEAR(throughput["samples_per_s"].asDouble() * strategy["time"]["step"].asDouble(), 16,
                1e-9);
    EXPECT_NEAR(throughput["tokens_per_s"].asDouble() * strategy["time"]["step"].asDouble(),
                16.0 * 2048, 1e-6);
  }
}

TEST(CompareCommand, SplitsTheStepExactly) {
  const JsonDocument json = zerosim_json(note_comparison());
  for (const JsonValue& strategy : json.root()["strategies"]) {
    const JsonValue& time = strategy["time"];
    const double sum = time["compute"].asDouble() + time["exposed_communication"].asDouble() +
                       time["host"].asDouble() + time["optimizer"].asDouble();
    EXPECT_NEAR(sum, time["step"].asDouble(), 1e-12) << strategy["name"].asString();
    EXPECT_GT(time["step"].asDouble(), 0);
  }
}

TEST(CompareCommand, IsDeterministic) {
  EXPECT_EQ(run_zerosim(note_comparison()).out, run_zerosim(note_comparison()).out);
}

TEST(CompareCommand, ExitsWith1IfNothingFits) {
  // 13e9 parameters take 16 x 13e9 bytes = 194 GiB on each of two GPUs of 22 GiB under DDP.
  const Outcome outcome =
      run_zerosim({"compare", "--model", "llama-2-13b", "--cluster", "a10x4-pcie", "--num_gpus",
                   "2", "--strategies", "ddp,zero1"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("does not fit"));
}

TEST(RunCommand, ExplainsOneStrategy) {
  std::vector<std::string> arguments = {"run",       "--model",     cli_data("tiny_llama.json"),
                                        "--cluster", "dgx-a100-80", "--num_gpus",
                                        "4",         "--deepspeed", cli_data("ds_zero3.json")};
  const Outcome outcome = run_zerosim(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("all_gather_into_tensor"));
  const JsonDocument json = zerosim_json(arguments);
  EXPECT_EQ(json.root()["version"], 1);
  EXPECT_EQ(json.root()["strategies"][0]["stage"], 3);
}

TEST(RunCommand, ShowsTheFirstStepsIfAsked) {
  const JsonDocument json =
      zerosim_json({"run", "--model", cli_data("tiny_llama.json"), "--cluster", "dgx-a100-80",
                    "--strategies", "zero3", "--steps", "3"});
  ASSERT_EQ(json.root()["steps"].size(), 3U);
  for (const JsonValue& seconds : json.root()["steps"]) EXPECT_GT(seconds.asDouble(), 0);
}

TEST(RunCommand, WritesATraceForPerfetto) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("x.pftrace");
  std::vector<std::string> arguments = {"run",       "--model",     cli_data("tiny_llama.json"),
                                        "--cluster", "dgx-a100-80", "--strategies",
                                        "zero3",     "--perfetto",  trace};
  EXPECT_EQ(run_zerosim(arguments).exit_code, 0);
  EXPECT_GT(std::filesystem::file_size(trace), 10'000U);  // some hundred kernels and collectives

  arguments.back() = "/no/such/folder/x.pftrace";
  const Outcome outcome = run_zerosim(arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("/no/such/folder/x.pftrace"));
}

/// The report of zero2 on an uneven cluster of 2 x 2 GPUs.
JsonValue uneven_report(const std::string& cluster, const std::string& fold) {
  return zerosim_json({"compare", "--model", cli_data("tiny_llama.json"), "--cluster",
                       cli_data(cluster), "--strategies", "zero2", "--fold", fold})
      .root()["strategies"][0];
}

// Rank 2 is uneven, the others are alike but for what they hold.
TEST(CompareCommand, FoldsAsAsked) {
  const JsonValue on = uneven_report("cluster_with_slow_gpu.json", "on");
  const JsonValue exact = uneven_report("cluster_with_slow_gpu.json", "exact");
  const JsonValue off = uneven_report("cluster_with_slow_gpu.json", "off");
  EXPECT_EQ(on["folding"]["mode"], "on");
  EXPECT_EQ(on["folding"]["ranks"], 4);
  EXPECT_EQ(on["folding"]["classes"], 2);
  EXPECT_EQ(on["folding"]["programs"], 2);  // of micro batches of 1 and of 3
  EXPECT_EQ(exact["folding"]["programs"], 4);
  EXPECT_EQ(off["folding"]["classes"], 4);
  EXPECT_NEAR(exact["time"]["step"].asDouble() / off["time"]["step"].asDouble(), 1, 1e-9);
  EXPECT_GE(on["time"]["step"].asDouble(), exact["time"]["step"].asDouble());
  for (const JsonValue& report : {on, exact, off}) {
    EXPECT_EQ(report["time"]["rank"], 2);
    EXPECT_EQ(report["memory"]["rank"], 2);
    EXPECT_EQ(report["memory"]["peak_allocated"], off["memory"]["peak_allocated"]);
    // 3 x 1 + 3 samples a step.
    EXPECT_NEAR(
        report["throughput"]["samples_per_s"].asDouble() * report["time"]["step"].asDouble(), 6,
        1e-9);
  }
}

TEST(TopoShowCommand, TellsMicroBatches) {
  std::vector<std::string> arguments = {"topo", "show", "--classes", "--cluster",
                                        cli_data("cluster_with_slow_gpu.json")};
  EXPECT_THAT(run_zerosim(arguments).out, HasSubstr("micro batch 3"));
  arguments.insert(arguments.end(), {"--strategies", "zero3"});
  EXPECT_THAT(run_zerosim(arguments).out, HasSubstr("micro batch 3"));
}

// Parameters cut at partition borders make classes: they are a model's.
TEST(TopoShowCommand, SaysWhoseClassesTheyAre) {
  std::vector<std::string> arguments = {"topo",        "show",         "--classes", "--cluster",
                                        "dgx-a100-80", "--strategies", "zero2"};
  const auto text = [&] { return run_zerosim(arguments).out; };
  EXPECT_THAT(text(), HasSubstr("classes of gpt2, as --model is not given"));
  const JsonDocument json = zerosim_json(arguments);
  EXPECT_EQ(json.root()["classes"]["model"].asString(), "gpt2");
  EXPECT_THAT(to_text(json.root()["classes"]["assumptions"]), HasSubstr("--model is not given"));
  arguments.emplace_back("--assumptions");
  EXPECT_THAT(text(), HasSubstr("- model gpt2: --model is not given; another may have other"));
  arguments.insert(arguments.end(), {"--model", cli_data("tiny_llama.json")});
  EXPECT_THAT(text(), Not(HasSubstr("gpt2")));
}

TEST(CompareCommand, RepeatsWithJitter) {
  const JsonValue report = uneven_report("cluster_with_jitter.json", "on");
  const JsonValue& jitter = report["time"]["jitter"];
  EXPECT_EQ(jitter["repetitions"], 4);
  EXPECT_LT(jitter["minimum"].asDouble(), jitter["mean"].asDouble());
  EXPECT_LT(jitter["mean"].asDouble(), jitter["maximum"].asDouble());
  EXPECT_GT(jitter["deviation"].asDouble(), 0);
  EXPECT_EQ(report["folding"]["mode"], "off");
  const std::vector<std::string> arguments = {"run",
                                              "--model",
                                              cli_data("tiny_llama.json"),
                                              "--cluster",
                                              cli_data("cluster_with_jitter.json"),
                                              "--strategies",
                                              "zero2"};
  const Outcome text = run_zerosim(arguments);
  EXPECT_THAT(text.out, HasSubstr("the first of 4 repetitions"));
  EXPECT_EQ(text.out, run_zerosim(arguments).out);  // the same draws
  EXPECT_EQ(text.error, "");                        // no progress where no terminal is
}

TEST(CompareCommand, DoesNotFoldWhatJitters) {
  const Outcome outcome =
      run_zerosim({"compare", "--model", cli_data("tiny_llama.json"), "--cluster",
                   cli_data("cluster_with_jitter.json"), "--fold", "exact"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("expected off"));
}

TEST(ModelCommand, CountsParameters) {
  const JsonDocument json = zerosim_json({"model", "--model", "llama-2-7b"});
  // 2 x 32000 x 4096 + 32 x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 4096.
  EXPECT_EQ(json.root()["parameters"]["total"].asInt64(), 6'738'415'616);
  EXPECT_EQ(json.root()["parameters"]["trainable"].asInt64(), 6'738'415'616);
  EXPECT_EQ(json.root()["parameters"]["active_per_token"].asInt64(), 6'738'415'616);
  std::int64_t sum = 0;
  for (const JsonValue& module : json.root()["modules"]) sum += module["parameters"].asInt64();
  EXPECT_EQ(sum, 6'738'415'616);
}

}  // namespace
}  // namespace zerosim::testing
