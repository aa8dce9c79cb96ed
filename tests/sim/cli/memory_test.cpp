#include <algorithm>
#include <cstdint>
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;

TEST(MemoryCommand, PrintsModelStatesOfSevenBillionParameters) {
  const Outcome outcome = run_zerosim({"memory", "--params", "7e9", "--precision", "bf16"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  for (const char* figure : {"13.04\n", "26.08\n", "52.15\n", "104.31\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(figure));
  }
}

TEST(MemoryCommand, PrintsAllWorldSizes) {
  const JsonDocument json = zerosim_json({"memory", "--params", "7e9"});
  const JsonValue& rows = json.root()["per_gpu"];
  ASSERT_EQ(rows.size(), 11U);
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(rows[i]["world_size"], 1 << i);
  // 2 + 14/4 bytes of 7e9 parameters.
  EXPECT_EQ(rows[2]["zero2"].asInt64(), 38'500'000'000);
}

/// Table 1 of the ZeRO paper (arXiv 1910.02054) as printed: GPUs, then P_os, P_os+g, P_os+g+p of
/// the 7.5B, the 128B and the 1T model.
TEST(MemoryCommand, PrintsTable1OfTheZeroPaper) {
  const Outcome outcome = run_zerosim({"memory", "--accounting", "paper", "--params", "7.5e9"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  std::vector<std::vector<std::string>> rows;
  std::istringstream stream(outcome.out.substr(outcome.out.find("Table 1")));
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words),
                      std::istream_iterator<std::string>());
  }
  const std::vector<std::vector<std::string>> expected = {
      {"1", "120", "120", "120", "2048", "2048", "2048", "16000", "16000", "16000"},
      {"4", "52.5", "41.3", "30", "896", "704", "512", "7000", "5500", "4000"},
      {"16", "35.6", "21.6", "7.5", "608", "368", "128", "4750", "2875", "1000"},
      {"64", "31.4", "16.6", "1.88", "536", "284", "32", "4187", "2218", "250"},
      {"256", "30.4", "15.4", "0.47", "518", "263", "8", "4046", "2054", "62.5"},
      {"1024", "30.1", "15.1", "0.12", "513", "257", "2", "4011", "2013", "15.6"}};
  for (const std::vector<std::string>& row : expected) EXPECT_THAT(rows, ::testing::Contains(row));
}

TEST(MemoryCommand, PrintsFigure1OfTheZeroPaper) {
  const JsonDocument json =
      zerosim_json({"memory", "--accounting", "paper", "--params", "7.5e9", "--world", "64"});
  std::vector<std::string> printed;
  for (const JsonValue& entry : json.root()["figure_1"]) {
    printed.push_back(entry["printed_gb"].asString());
  }
  EXPECT_THAT(printed, ::testing::ElementsAre("120", "31.4", "16.6", "1.88"));
}

TEST(MemoryCommand, PrintsDeepSpeedsEstimates) {
  // Rule F4, P = 7.5e9, L = 131,072,000, 8 nodes of 8 GPUs.
  const Outcome outcome =
      run_zerosim({"memory", "--like-deepspeed", "--params", "7.5e9", "--largest-layer",
                   "131072000", "--nodes", "8", "--gpus-per-node", "8"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  for (const char* row :
       {" 2682.21GB |  13.97GB | offload_optimizer=cpu \n",
        "  335.28GB |  15.93GB | offload_optimizer=none\n",
        "   23.57GB |   0.49GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n",
        "   20.95GB |   0.71GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n",
        "    5.86GB |   2.45GB | offload_param=none, offload_optimizer=none, zero_init=1\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(row));
  }
}

TEST(MemoryCommand, GivesTheChosenEstimateAsJson) {
  // The same: stage 3, nothing offloaded: 4 L + floor(18 P / N), N = 64; 4 L x 8 x 1.5 on the host.
  const std::vector<std::string> arguments = {
      "memory",    "--like-deepspeed", "--params", "7.5e9",           "--largest-layer",
      "131072000", "--nodes",          "8",        "--gpus-per-node", "8"};
  const JsonDocument json = zerosim_json(arguments);
  EXPECT_EQ(json.root()["estimator"]["gpu"].asInt64(), 4 * 131'072'000LL + 2'109'375'000LL);
  EXPECT_EQ(json.root()["estimator"]["host"].asInt64(), 4 * 131'072'000LL * 12);
}

TEST(MemoryCommand, ReplaysAStepWithoutTime) {
  const JsonDocument json =
      zerosim_json({"memory", "--model", cli_data("tiny_llama.json"), "--cluster", "dgx-a100-80"});
  const JsonValue& strategies = json.root()["strategies"];
  ASSERT_EQ(strategies.size(), 4U);  // ddp, zero1, zero2, zero3
  std::int64_t before = INT64_MAX;
  for (const JsonValue& strategy : strategies) {
    const JsonValue& memory = strategy["memory"];
    // The classes sum to the peak; model states shrink from stage to stage.
    std::int64_t sum = 0;
    for (const char* key : {"parameters", "gradients", "optimizer_states", "activations",
                            "temporary_buffers", "live_parameters"}) {
      sum += memory[key].asInt64();
    }
    EXPECT_EQ(sum, memory["peak_allocated"].asInt64()) << strategy["name"].asString();
    EXPECT_LT(memory["model_states"].asInt64(), before) << strategy["name"].asString();
    before = memory["model_states"].asInt64();
    EXPECT_NE(memory["peak_op"], "") << strategy["name"].asString();
  }
}

/// `zerosim memory` for one strategy of a small model, and more.
std::vector<std::string> one_strategy(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"memory",    "--model",     cli_data("tiny_llama.json"),
                                    "--cluster", "dgx-a100-80", "--strategies",
                                    "zero3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(MemoryCommand, TellsLeastGpusAndLargestMicroBatch) {
  const JsonDocument json = zerosim_json(one_strategy({"--seq", "128"}));
  const JsonValue& strategy = json.root()["strategies"][0];
  EXPECT_EQ(strategy["minimum_gpus"], 1);
  EXPECT_GE(strategy["largest_micro_batch"].asInt64(), 2);
  EXPECT_EQ(strategy["tried"]["gpus"].size(), 1U);
  const JsonDocument without = zerosim_json(one_strategy({"--no-limits"}));
  EXPECT_FALSE(without.root()["strategies"][0].isMember("minimum_gpus"));
}

TEST(MemoryCommand, WritesATimelineAndPlotsIt) {
  const TemporaryFolder folder;
  const std::string path = folder.file("timeline.csv");
  const Outcome outcome = run_zerosim(one_strategy({"--no-limits", "--timeline", path, "--plot"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, ::testing::StartsWith("zero3: memory of the job, GiB; about "));
  EXPECT_THAT(outcome.out, HasSubstr("\n* peak: "));
  std::istringstream rows(read_file(path));
  std::string header;
  std::getline(rows, header);
  EXPECT_THAT(header, ::testing::StartsWith("event,step,micro_step,phase,module,owner,class,"));
  // The largest value of "allocated", the tenth column, is the report's peak.
  std::int64_t peak = 0;
  for (std::string row; std::getline(rows, row);) {
    std::istringstream cells(row);
    std::string cell;
    for (int column = 0; column < 10; ++column) std::getline(cells, cell, ',');
    peak = std::max(peak, static_cast<std::int64_t>(std::stoll(cell)));
  }
  const JsonDocument json = zerosim_json(one_strategy({"--no-limits"}));
  EXPECT_EQ(peak, json.root()["strategies"][0]["memory"]["peak_allocated"].asInt64());
}

TEST(MemoryCommand, TheEnvironmentTunesTheAllocator) {
  const auto memory_with = [](const std::string& file) {
    return zerosim_json(one_strategy({"--no-limits", "--env", cli_data(file)}));
  };
  const JsonDocument given = zerosim_json(one_strategy({"--no-limits"}));
  const JsonDocument expandable = memory_with("expandable_segments.env");
  const JsonValue& strategy = expandable.root()["strategies"][0];
  // Pages of 20 MiB in place of whole segments, and blocks that are split to the last 512 bytes
  // (E7.13): less is reserved and, in whole blocks, allocated.
  for (const char* peak : {"peak_allocated", "peak_reserved"}) {
    EXPECT_LT(strategy["memory"][peak].asInt64(),
              given.root()["strategies"][0]["memory"][peak].asInt64());
  }
  std::vector<std::string> assumptions;
  for (const JsonValue& sentence : strategy["assumptions"]) {
    assumptions.push_back(sentence.asString());
  }
  EXPECT_THAT(assumptions,
              ::testing::Contains("environment: without effect on time here: NCCL_DEBUG"));
  ASSERT_EQ(strategy["warnings"].size(), 1U);
  EXPECT_THAT(strategy["warnings"][0]["message"].asString(),
              HasSubstr("expandable_segments.env:6:1: NCCL_P2P_DISABEL is no known variable; did "
                        "you mean \"NCCL_P2P_DISABLE\"?"));
  EXPECT_EQ(expandable.root()["inputs"]["files"].size(), 2U);
}

}  // namespace
}  // namespace zerosim::testing
