#include "validate/fit_host.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/host_time.h"
#include "validate/published_runs.h"

namespace zerosim {
namespace {

using ::testing::HasSubstr;

/// A run of a little GPT that launches decide, whatever its kernels.
struct Job {
  std::string id, group, trust, strategy;
  int layers = 2;
  double step = 1;  ///< seconds
};

std::string table_of(const std::vector<Job>& jobs) {
  std::string text =
      "id,group,source,trust,model,params_b,layers,hidden,heads,ffn,vocab,mlp_type,seq_len,gpu,"
      "world_size,framework,strategy,precision,micro_batch,grad_accum,activation_checkpointing,"
      "step_time_s\n";
  for (const Job& job : jobs) {
    text += format(
        "{},{},Paper of {} | address,{},tiny,,{},256,4,1024,1000,gelu2,128,A100,2,{},{},"
        "bf16,1,1,none,{:.17g}\n",
        job.id, job.group, job.group, job.trust, job.layers,
        job.strategy == "zero3" ? "DeepSpeed" : "PyTorch", job.strategy, job.step);
  }
  return text;
}

/// The jobs with the steps that they would take on such a host.
std::vector<Job> measured_with(const CalibratedHost& host, std::vector<Job> jobs) {
  RunsOptions options;
  options.calibration.host = host;
  const RunsValidation validation = validate_runs(parse_csv(table_of(jobs), "jobs.csv"), options);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].step = validation.runs[i].predicted->step.count();
  }
  return jobs;
}

/// Tests run side by side: each has a file of its own.
HostFit fit_of(const std::vector<Job>& jobs, const HostFitOptions& options = {}) {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path =
      (std::filesystem::temp_directory_path() / format("zerosim_fit_host_{}.csv", test)).string();
  std::ofstream(path) << table_of(jobs);
  const HostFit fit = fit_host(std::vector<std::string>{path}, options);
  std::filesystem::remove(path);
  return fit;
}

const std::vector<Job> kJobs = {{"ddp2", "a", "A", "ddp", 2},
                                {"ddp4", "b", "A", "ddp", 4},
                                {"z3-2", "c", "B", "zero3", 2},
                                {"z3-4", "d", "A", "zero3", 4}};

CalibratedHost some_host() {
  CalibratedHost host;
  host.interpreter = 1.7;
  host.deepspeed_hook = Seconds(320e-6);
  return host;
}

// Steps that were computed with 1.7 and 320 us ask for 1.7 and 320 us.
TEST(FitHost, FindsTheHostThatTimesWereMadeWith) {
  const HostFit fit = fit_of(measured_with(some_host(), kJobs));
  ASSERT_TRUE(fit.host);
  EXPECT_NEAR(fit.host->interpreter, 1.7, 0.01 * 1.7);
  ASSERT_TRUE(fit.host->deepspeed_hook);
  EXPECT_NEAR(fit.host->deepspeed_hook->count(), 320e-6, 0.02 * 320e-6);
  EXPECT_FALSE(fit.at_end);
  EXPECT_EQ(fit.hold_out, "none");
  EXPECT_EQ(fit.host->fitted.rows, 4);
  EXPECT_EQ(fit.host->held_out.rows, 0);
  EXPECT_LT(fit.host->fitted.worst, 0.01);
  ASSERT_EQ(fit.runs.size(), 4U);
  for (const FittedRun& run : fit.runs) {
    EXPECT_TRUE(run.reacts) << run.id;
    EXPECT_LT(run.before, 0.9 * run.measured) << run.id;
    EXPECT_NEAR(run.after, run.measured, 0.01 * run.measured) << run.id;
  }
}

// Of groups a, b, c and d the second and fourth judge. In c the hook, in a the factor.
TEST(FitHost, HeldOutGroupsAreNotFittedTo) {
  std::vector<Job> jobs = measured_with(some_host(), kJobs);
  for (const std::size_t held_out : {1U, 3U}) jobs[held_out].step *= 3;
  const HostFit fit = fit_of(jobs, {HoldOut::EverySecond});
  ASSERT_TRUE(fit.host);
  EXPECT_NEAR(fit.host->interpreter, 1.7, 0.01 * 1.7);
  EXPECT_EQ(fit.hold_out, "every-second");
  EXPECT_EQ(fit.host->fitted.rows, 2);
  EXPECT_EQ(fit.host->held_out.rows, 2);
  EXPECT_NEAR(fit.host->held_out.worst, 2.0 / 3, 0.01);  // a third of what was measured
}

// The split names vtrain-h1024-l12, not a.
TEST(FitHost, TheOwnSplitIsTakenWhereATableHasItsGroups) {
  std::vector<Job> jobs = measured_with(some_host(), {kJobs[0], kJobs[1]});
  jobs[1].group = "vtrain-h1024-l12";
  const HostFit fit = fit_of(jobs);
  EXPECT_EQ(fit.hold_out, "groups of zerosim's split");
  ASSERT_EQ(fit.runs.size(), 2U);
  EXPECT_TRUE(fit.runs[0].held_out);
  EXPECT_FALSE(fit.runs[1].held_out);
  EXPECT_FALSE(fit_of(jobs, {HoldOut::None}).runs[0].held_out);
}

// Without DeepSpeed nothing tells the hook: 1.7 times the table's, as it will apply.
TEST(FitHost, WhatNoRunTellsIsNotFitted) {
  CalibratedHost host;
  host.interpreter = 1.7;
  const HostFit fit = fit_of(measured_with(host, {kJobs[0], kJobs[1]}));
  ASSERT_TRUE(fit.host);
  EXPECT_FALSE(fit.host->deepspeed_hook);
  EXPECT_NEAR(fit.host->interpreter, 1.7, 0.01 * 1.7);
  EXPECT_THAT(host_fit_text(fit), HasSubstr("no run reacts to the hook"));
  EXPECT_TRUE(host_fit_json(fit)["host"]["deepspeed_hook"].isNull());
}

// Ten times the table's host times, where four are searched.
TEST(FitHost, TheEndOfTheSearchIsTold) {
  CalibratedHost host;
  host.interpreter = 10;
  const HostFit fit = fit_of(measured_with(host, {kJobs[0]}));
  ASSERT_TRUE(fit.host);
  EXPECT_NEAR(fit.host->interpreter, 4, 0.04);
  EXPECT_TRUE(fit.at_end);
  EXPECT_THAT(host_fit_text(fit), HasSubstr("the runs ask for more"));
}

TEST(FitHost, NothingToFitTo) {
  std::vector<Job> jobs = {kJobs[0]};
  jobs[0].trust = "C";
  const HostFit fit = fit_of(jobs);
  EXPECT_FALSE(fit.host);
  EXPECT_TRUE(fit.runs.empty());
  EXPECT_EQ(fit.unused, 1);
  EXPECT_THAT(host_fit_text(fit), HasSubstr("nothing is fitted: of 0 runs with a step time"));
  EXPECT_TRUE(host_fit_json(fit)["host"].isNull());
  EXPECT_FALSE(fit_of({}).host);
}

TEST(FitHost, NoTableIsAnError) {
  const auto message = [](const std::string& path) -> std::string {
    try {
      (void)fit_host(std::vector<std::string>{path});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("/nowhere/runs.csv"), HasSubstr("/nowhere/runs.csv"));
}

}  // namespace
}  // namespace zerosim
