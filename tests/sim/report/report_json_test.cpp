#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/report/memory_text.h"
#include "sim/report/report_text.h"
#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using testing::sample_comparison;
using testing::sample_report;
using ::testing::UnorderedElementsAre;

TEST(StrategyJson, HasTheDocumentedKeys) {
  const JsonValue json = strategy_json(sample_report("zero2", 2));
  EXPECT_THAT(json.getMemberNames(),
              UnorderedElementsAre("name", "stage", "verdict", "memory", "time", "communication",
                                   "throughput", "assumptions", "warnings"));
  EXPECT_THAT(json["memory"].getMemberNames(),
              UnorderedElementsAre(
                  "model_states", "parameters", "gradients", "optimizer_states", "activations",
                  "temporary_buffers", "live_parameters", "logits", "steady_allocated",
                  "after_step", "fragmentation", "context", "peak_allocated", "peak_active",
                  "peak_reserved", "peak_part", "peak_phase", "peak_op", "flushes", "early_flushes",
                  "flush_time", "failure", "capacity", "headroom", "host", "rank"));
  EXPECT_THAT(json["time"].getMemberNames(),
              UnorderedElementsAre("step", "compute", "exposed_communication", "host", "optimizer",
                                   "forward", "backward", "communication", "rank"));
  EXPECT_THAT(json["communication"].getMemberNames(),
              UnorderedElementsAre("collectives", "bytes_sent_per_rank", "inter_node_bytes", "psi",
                                   "paper_psi", "by_operation"));
  EXPECT_THAT(json["throughput"].getMemberNames(),
              UnorderedElementsAre("tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s",
                                   "tflops_per_gpu", "mfu", "hfu"));
}

TEST(StrategyJson, GivesBytesAsIntegersAndTimesInSeconds) {
  const JsonValue json = strategy_json(sample_report("zero2", 2));
  EXPECT_EQ(json["verdict"], "tight");
  EXPECT_TRUE(json["memory"]["gradients"].isInt64());
  EXPECT_EQ(json["memory"]["gradients"].asInt64(), std::int64_t{2} << 30);
  EXPECT_EQ(json["memory"]["live_parameters"].asInt64(), std::int64_t{6} << 30);
  EXPECT_EQ(json["memory"]["logits"].asInt64(), std::int64_t{512} << 20);
  EXPECT_DOUBLE_EQ(json["time"]["exposed_communication"].asDouble(), 0.025);
  EXPECT_EQ(json["communication"]["by_operation"]["reduce_scatter_tensor"]["calls"], 10);
  EXPECT_EQ(json["communication"]["by_operation"]["all_reduce"]["bytes_sent"].asInt64(),
            1'000'000'000);
  EXPECT_DOUBLE_EQ(json["throughput"]["samples_per_s"].asDouble(), 4);
}

TEST(ComparisonJson, IsVersionedAndSaysItsInputs) {
  const JsonValue json = comparison_json(sample_comparison({"ddp", "zero3"}));
  EXPECT_EQ(json["version"], kJsonVersion);
  EXPECT_EQ(json["inputs"]["world_size"], 4);
  EXPECT_EQ(json["inputs"]["parameters"].asInt64(), 6'738'415'616);
  ASSERT_EQ(json["strategies"].size(), 2U);
  EXPECT_EQ(json["strategies"][1]["name"], "zero3");
  EXPECT_EQ(json["sentences"].size(), 1U);
}

TEST(MemoryComparisonJson, HasMemoryAndVerdictButNoTimes) {
  const JsonValue json = memory_comparison_json(sample_comparison({"ddp"}));
  EXPECT_THAT(
      json["strategies"][0].getMemberNames(),
      UnorderedElementsAre("name", "stage", "verdict", "memory", "assumptions", "warnings"));
  EXPECT_EQ(json["strategies"][0]["memory"]["peak_allocated"].asInt64(), std::int64_t{21} << 30);
}

TEST(MemoryComparisonJson, LimitsHaveTheirKeys) {
  MemoryLimits limits;
  limits.gpus.size = 4;
  MemoryReport memory;
  memory.peak_reserved = Bytes(5);
  memory.context = Bytes(2);
  limits.gpus.probes = {{1, std::nullopt, "groups of 4"}, {4, memory, ""}};
  const JsonValue json = memory_comparison_json(sample_comparison({"ddp"}), {limits});
  const JsonValue& strategy = json["strategies"][0];
  EXPECT_EQ(strategy["minimum_gpus"], 4);
  EXPECT_TRUE(strategy["largest_micro_batch"].isNull());
  EXPECT_TRUE(strategy.isMember("largest_micro_batch"));
  const JsonValue& tried = strategy["tried"]["gpus"];
  ASSERT_EQ(tried.size(), 2U);
  EXPECT_EQ(tried[0]["refusal"], "groups of 4");
  EXPECT_TRUE(tried[0]["needed"].isNull());
  EXPECT_EQ(tried[0]["verdict"], "does_not_fit");
  EXPECT_EQ(tried[1]["size"], 4);
  EXPECT_EQ(tried[1]["needed"].asInt64(), 7);
  EXPECT_EQ(tried[1]["verdict"], "fits");
  EXPECT_EQ(strategy["tried"]["micro_batch"].size(), 0U);
}

}  // namespace
}  // namespace zerosim
