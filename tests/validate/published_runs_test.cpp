#include "validate/published_runs.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "validate/run_split.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::string kTable = std::string(ZEROSIM_TEST_DATA) + "/measured/published_runs.csv";

RunCheck check(const std::string& id) {
  RunsValidation validation = validate_runs(kTable, {{id}});
  EXPECT_EQ(validation.runs.size(), 1U);
  return validation.runs.at(0);
}

TEST(PublishedRuns, ARowIsSimulatedAndCompared) {
  const RunCheck run = check("fmsacc-santacoder-1.1b-w2-b2-base");
  EXPECT_EQ(run.why, "");
  EXPECT_EQ(run.source, "fms-acceleration reference benchmarks");
  EXPECT_TRUE(run.for_fitting);
  EXPECT_DOUBLE_EQ(run.measured.step->count(), 0.311888);
  ASSERT_TRUE(run.has_step());
  EXPECT_LT(std::abs(*run.step_error()), 0.5);
  // 2 sequences of 2048 tokens
  EXPECT_DOUBLE_EQ(run.predicted->tokens_per_s_per_gpu, 4096 / run.predicted->step.count());
  ASSERT_TRUE(run.has_peak());
  EXPECT_LT(std::abs(*run.peak_error()), 0.01);
}

TEST(PublishedRuns, MicroBatchTimersReadOneMicroBatch) {
  const RunCheck run = check("belle-bloom-560m-s512-z2");
  EXPECT_EQ(run.measured.timer, RunTimer::MicroBatch);
  EXPECT_NEAR(run.predicted->tokens_per_s_per_gpu * run.predicted->step.count(),
              run.measured_tokens_per_s_per_gpu * run.measured.step->count(), 1e-6);
}

/// A table of one job with several numbers of micro batches.
std::string accumulating(const std::vector<int>& micro_batches) {
  std::string text =
      "id,group,source,trust,model,params_b,layers,hidden,heads,ffn,vocab,mlp_type,seq_len,gpu,"
      "world_size,framework,strategy,precision,micro_batch,grad_accum,activation_checkpointing,"
      "step_time_s\n";
  for (const int count : micro_batches) {
    const std::string a = std::to_string(count);
    text += "a" + a +
            ",g,Paper | address,A,tiny,,2,256,4,1024,1000,gelu2,128,A100,2,PyTorch,ddp,"
            "bf16,1," +
            a + ",none,1\n";
  }
  return text;
}

TEST(PublishedRuns, FurtherMicroBatchesTakeWhatTheThirdAdds) {
  const RunsValidation validation = validate_runs(parse_csv(accumulating({2, 3, 11}), "runs.csv"));
  const auto step = [&](std::size_t i) { return validation.runs[i].predicted->step.count(); };
  EXPECT_NEAR(step(2), step(1) + 8 * (step(1) - step(0)), 1e-12);
  EXPECT_THAT(validation.runs[2].assumptions,
              Contains("of 11 micro batches 3 are simulated: each more takes what the last one "
                       "adds"));
}

TEST(PublishedRuns, NoRowIsDropped) {
  const RunsValidation validation = validate_runs(kTable);
  const auto why = [&](const std::string& id) {
    const auto found = std::find_if(validation.runs.begin(), validation.runs.end(),
                                    [&](const RunCheck& run) { return run.id == id; });
    return found == validation.runs.end() ? "not there" : found->why;
  };
  EXPECT_EQ(validation.runs.size(), 17U);
  EXPECT_EQ(why("ao-mi300x-bf16"), "GPU MI300X-192GB is not NVIDIA's");
  EXPECT_EQ(why("tt-8b-h100-64-tp8"), "tensor or pipeline parallelism is not simulated");
  EXPECT_EQ(why("falcon7b-a100x8-fsdp"), "micro_batch is empty");
  EXPECT_EQ(why("ds1302-z1"), "world_size is empty");
  EXPECT_EQ(why("hf-titan-gpt2l-ddp"), "no time or rate is published");
  const RunHeadline headline = headline_of(validation);
  EXPECT_EQ(headline.rows, 8);  // trust A
  EXPECT_EQ(headline.skipped, 1);
  EXPECT_FALSE(is_within(headline, 0, 0));
  EXPECT_TRUE(is_within(headline, 10, 10));
}

TEST(PublishedRuns, LosingNvlinkIsAPair) {
  const RunsValidation validation =
      validate_runs(kTable, {{"hf-titan-gpt2-ddp-nvlink", "hf-titan-gpt2-ddp-nonvlink"}});
  ASSERT_EQ(validation.orders.size(), 1U);
  EXPECT_EQ(validation.orders[0].knob, OrderKnob::Interconnect);
  EXPECT_EQ(validation.orders[0].slower, "hf-titan-gpt2-ddp-nonvlink");
  EXPECT_NEAR(validation.orders[0].measured, 0.657184 / 0.509502, 1e-9);
  EXPECT_TRUE(validation.orders[0].right());
}

TEST(PublishedRuns, JsonHasARowEach) {
  const JsonValue json =
      runs_json(validate_runs(kTable, {{"hf-titan-gpt2-ddp-nvlink", "ao-mi300x-bf16"}}));
  ASSERT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["summary"]["count"].asInt(), 2);
  EXPECT_EQ(json["summary"]["skipped"].asInt(), 1);
  for (const JsonValue& row : json["rows"]) {
    EXPECT_EQ(row["relative_error"].isNull(), row["skipped"].asBool());
    EXPECT_EQ(row["why"].isNull(), !row["skipped"].asBool());
  }
}

TEST(PublishedRuns, TheSplitIsByGroup) {
  EXPECT_TRUE(is_for_fitting("vtrain-h1024-l12"));
  EXPECT_FALSE(is_for_fitting("vtrain-h1024-l16"));
  EXPECT_FALSE(is_for_fitting("a group of tomorrow"));
  EXPECT_FALSE(groups_for_fitting().empty());
}

std::string message_of(const std::string& text, const RunsOptions& options = {}) {
  try {
    (void)validate_runs(parse_csv(text, "runs.csv"), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PublishedRuns, RefusesWhatIsNoSuchTable) {
  EXPECT_THAT(message_of("id,grup,source,trust,strategy,world_size,micro_batch\n"),
              HasSubstr("runs.csv:1:1: found no column \"group\""));
  std::string wrong = accumulating({1});
  wrong.replace(wrong.find(",none,1\n"), 8, ",none,fast\n");
  EXPECT_THAT(message_of(wrong), HasSubstr("step_time_s: found \"fast\", expected a number"));
  wrong = accumulating({1});
  wrong.replace(wrong.find(",A100,2,"), 8, ",A100,two,");
  EXPECT_THAT(message_of(wrong), HasSubstr("world_size: found \"two\""));
  EXPECT_EQ(message_of(accumulating({1, 2}), {{"a3"}}),
            "--rows: found \"a3\", expected the id of a row of runs.csv; did you mean \"a1\"?");
}

}  // namespace
}  // namespace zerosim
