#include "sim/report/report_text.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/report/memory_text.h"
#include "sim/report/text_table.h"
#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using testing::collapsed;
using ::testing::HasSubstr;
using testing::is_plain_ascii;
using testing::lines_of;
using ::testing::Not;
using testing::sample_comparison;
using testing::sample_report;
using testing::widest_line;

/// Number of lines that contain `text`.
int lines_with(const std::string& report, const std::string& text) {
  int count = 0;
  for (const std::string& line : lines_of(report)) {
    if (line.find(text) != std::string::npos) ++count;
  }
  return count;
}

TEST(ComparisonText, ShowsEveryMetricOnce) {
  const std::string text = collapsed(comparison_text(sample_comparison({"ddp", "zero2"}), false));
  // 21 GiB of classes + 0.25 reserved beyond + 0.75 context = 22.00 GiB of 40.
  EXPECT_THAT(text, HasSubstr(" in all 22.00 22.00\n"));
  EXPECT_THAT(text, HasSubstr("verdict tight tight\n"));
  EXPECT_THAT(text, HasSubstr(" gathered parameters 6.00 6.00\n"));
  EXPECT_THAT(text, HasSubstr(" exposed communication 25.0 25.0\n"));
  EXPECT_THAT(text, HasSubstr("tokens/s per GPU 2000 2000\n"));
  EXPECT_THAT(text, HasSubstr("MFU (%) 39.6 39.6\n"));
  EXPECT_THAT(text, HasSubstr("sent per GPU and step (GB) 3.00 3.00\n"));
  EXPECT_THAT(text, HasSubstr(" in parameter sizes (psi) 2.50 2.50\n"));
  EXPECT_THAT(text, HasSubstr(" as the ZeRO paper counts 2.00 2.00\n"));
  EXPECT_THAT(text, HasSubstr("llama-2-7b (6,738,415,616 parameters), sequence 2048"));
  EXPECT_THAT(text, HasSubstr("Choose ddp: it is the fastest that fits.\n"));
}

TEST(ComparisonText, FiveLongNamesStayWithin100Columns) {
  const std::string text = comparison_text(
      sample_comparison({"ddp", "/home/someone/experiments/2024-05/ds_config.zero1.json",
                         "a_very_long_configuration_name_without_any_use.zero2.json",
                         "anotherVeryLongConfigurationNameWithoutSeparators",
                         "ds_zero3_offload_none_bucket_auto"}),
      true);
  EXPECT_LE(widest_line(text), 100U);
  EXPECT_TRUE(is_plain_ascii(text));
  EXPECT_EQ(lines_with(text, "verdict"), 1);  // one table
}

TEST(ComparisonText, ManyStrategiesStayWithin100Columns) {
  std::vector<std::string> names;
  for (int i = 0; i < 9; ++i) names.push_back("strategy_number_" + std::to_string(i));
  Comparison comparison = sample_comparison(names);
  comparison.strategies[2].verdict = Verdict::DoesNotFit;
  const std::string text = comparison_text(comparison, true);
  EXPECT_LE(widest_line(text), 100U);
  EXPECT_THAT(text, HasSubstr("no fit"));
  EXPECT_EQ(lines_with(text, "verdict"), 2);  // seven columns fit: 70 / (8 + 2)
}

TEST(ComparisonText, CountsAssumptionsThatItDoesNotList) {
  Comparison comparison = sample_comparison({"ddp", "zero1"});
  comparison.strategies[0].assumptions = {"a", "b"};
  comparison.strategies[1].assumptions = {"b", "c"};
  const std::string text = comparison_text(comparison, false);
  EXPECT_THAT(text, HasSubstr("\n3 assumptions (defaults, sources of constants): --assumptions "
                              "lists them\n"));
  EXPECT_THAT(text, Not(HasSubstr("  - a")));
}

TEST(ComparisonText, SaysCommonAssumptionsOnce) {
  Comparison comparison = sample_comparison({"ddp", "zero1", "zero2"});
  comparison.strategies[1].assumptions.push_back(
      "reduce_bucket_size 500000000: DeepSpeed's default");
  comparison.strategies[2].assumptions.push_back(
      "reduce_bucket_size 500000000: DeepSpeed's default");
  comparison.strategies[2].assumptions.push_back("overlap_comm false: DeepSpeed's default");
  comparison.strategies[0].warnings.push_back({"dp_degree_1_no_sharding", "nothing is sharded"});
  const std::string text = comparison_text(comparison, true);
  EXPECT_EQ(lines_with(text, "sequence 2048: --seq is not given"), 1);
  EXPECT_THAT(text, HasSubstr("  - sequence 2048: --seq is not given; our default\n"));
  EXPECT_THAT(text, HasSubstr("  - zero1, zero2: reduce_bucket_size 500000000"));
  EXPECT_THAT(text, HasSubstr("  - zero2: overlap_comm false"));
  EXPECT_THAT(text, HasSubstr("Warnings\n  - ddp: nothing is sharded [dp_degree_1_no_sharding]\n"));
}

TEST(StrategyText, ShowsEachSection) {
  Experiment experiment;
  experiment.model.name = "llama-2-7b";
  experiment.cluster.name = "dgx-a100-40";
  experiment.cluster.nodes = 2;
  experiment.cluster.gpus_per_node = 8;
  experiment.cluster.node.gpu = "A100-SXM4-40";
  experiment.batch.sequence = 2048;
  const std::string text = strategy_text(sample_report("ds_zero3.json", 3), experiment);
  EXPECT_THAT(text, HasSubstr("2 nodes x 8\nA100-SXM4-40"));
  EXPECT_THAT(text, HasSubstr("verdict: tight\n"));
  EXPECT_THAT(text, HasSubstr("memory per GPU (rank 3)"));
  // 2 of 40 GiB are 5.0 %.
  EXPECT_THAT(text, HasSubstr("gradients                 2.00       5.0\n"));
  EXPECT_THAT(text, HasSubstr("peak in the steady step, phase \"bwd\", at ipg_bucket in "
                              "model.layers.1.mlp\n"));
  EXPECT_THAT(text, HasSubstr("when most is reserved, 0.25 GiB of it is not allocated; 7.00 GiB is "
                              "allocated between two steps\n"));
  EXPECT_THAT(text, HasSubstr("2 cache flushes a step, which take 12.3 ms of it\n"));
  // 45 ms of communication, 25 of them exposed.
  EXPECT_THAT(text, HasSubstr("running for 45.0 ms, of which 20.0 ms hidden\n"));
  EXPECT_THAT(text, HasSubstr("reduce_scatter_tensor     10             2.00\n"));
  EXPECT_THAT(text, HasSubstr("123.5 TFLOP/s per GPU, MFU 39.6 %, HFU 41.0 %\n"));
  EXPECT_LE(widest_line(text), 100U);
}

TEST(MemoryComparisonText, GoesFromASteadyStepToWhatAMonitorShows) {
  const std::string whole = memory_comparison_text(sample_comparison({"ddp", "zero2"}));
  const std::string text = collapsed(whole);
  EXPECT_THAT(text, HasSubstr(" a steady step, allocated 21.00 21.00\n"));
  EXPECT_THAT(text, HasSubstr(" reserved, without a limit 21.25 21.25\n"));
  // 21.25 + 0.75 of 40 GiB.
  EXPECT_THAT(text, HasSubstr(" nvidia-smi shows at most 22.00 22.00\n"));
  EXPECT_THAT(
      text,
      HasSubstr(" headroom, without a limit 18.00 18.00\n headroom (% of the GPU) 45.0 45.0\n"));
  EXPECT_THAT(text, HasSubstr("cache flushes, start + a step 0 + 2 0 + 2\n"));
  EXPECT_THAT(text, HasSubstr("part of the job at the peak steady step steady step\n"));
  EXPECT_THAT(text, HasSubstr("model states, ZeRO paper (GiB) 11.00 11.00\n"));
  EXPECT_THAT(text, HasSubstr("zero2: peak at ipg_bucket in model.layers.1.mlp; 2 cache flushes a "
                              "step, which take 12.3 ms of it\n"));
  EXPECT_THAT(text, Not(HasSubstr("tokens/s")));
  EXPECT_THAT(text, Not(HasSubstr("least GPUs")));
  EXPECT_LE(widest_line(whole), 100U);
}

TEST(MemoryComparisonText, AMonitorNeverShowsMoreThanTheGpuHas) {
  Comparison comparison = sample_comparison({"ddp"});
  comparison.strategies.front().memory.peak_reserved = 50_GiB;  // 50.75 of 40 GiB
  const std::string text = collapsed(memory_comparison_text(comparison));
  EXPECT_THAT(text,
              HasSubstr(" nvidia-smi shows at most 40.00\n headroom, without a limit -10.75"));
}

TEST(MemoryComparisonText, SaysWhereAJobEnds) {
  Comparison comparison = sample_comparison({"ddp"});
  MemoryReport& memory = comparison.strategies.front().memory;
  memory.failure = MemoryFailure{1_GiB, 20_GiB, 21_GiB, 512_MiB, "first step", "bwd", "gradient"};
  const std::string text = collapsed(memory_comparison_text(comparison));
  EXPECT_THAT(text, HasSubstr("cache flushes, start + a step -\n"));
  EXPECT_THAT(text, HasSubstr("out of memory in the first step, phase \"bwd\": 1.00\nGiB"));
}

TEST(MemoryComparisonText, LimitsSayWhatWasTried) {
  const auto limit = [](std::optional<std::int64_t> size, std::vector<std::int64_t> tried) {
    Limit made;
    made.size = size;
    for (const std::int64_t probe : tried) made.probes.push_back({probe, MemoryReport(), ""});
    return made;
  };
  MemoryLimits some{limit(3, {1, 2, 3}), limit(5, {1, 2, 4, 8, 6, 5, 7})};
  some.gpus.probes[0] = {1, std::nullopt, "too few"};
  const MemoryLimits none{limit(std::nullopt, {1, 16}), limit(std::nullopt, {1})};
  const std::string whole =
      memory_comparison_text(sample_comparison({"zero2", "ddp"}), {some, none});
  const std::string text = collapsed(whole);
  EXPECT_THAT(text, HasSubstr("least GPUs 3 none\nlargest micro batch 5 none\n"));
  EXPECT_LE(widest_line(whole), 100U);
  std::string one_line = text;
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  EXPECT_THAT(one_line, HasSubstr("of it; at least 3 GPUs (tried 1 (refused), 2, 3); micro batch "
                                  "at most 5 (tried 1, 2, 4, 8, 6, 5, 7) "));
  EXPECT_THAT(one_line, HasSubstr("no number of GPUs is enough (tried 1, 16); no micro batch fits "
                                  "(tried 1) "));
}

}  // namespace
}  // namespace zerosim
