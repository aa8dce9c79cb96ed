#include "validate/collective_logs.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFolder = std::string(ZEROSIM_TEST_DATA) + "/nccl_tests/";

CollectiveValidation of_files(const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(kFolder + name + ".txt");
  return validate_collectives(paths, {});
}

CollectiveValidation of_text(const std::string& text, const LogMachineOptions& options) {
  return validate_collectives(parse_nccl_tests(text, "all_reduce.txt"), {}, options);
}

LogMachineOptions dgx_a100() {
  LogMachineOptions options;
  options.cluster = "dgx-a100-40";
  return options;
}

TEST(CollectiveLogs, EachSizeAgainstTheModel) {
  const CollectiveValidation validation = of_files({"a100_8gpu_nvswitch_allreduce"});
  ASSERT_EQ(validation.logs.size(), 1U);
  const CollectiveLogCheck& log = validation.logs.front();
  EXPECT_EQ(log.cluster, "1 x 8 dgx-a100-40");
  ASSERT_EQ(log.points.size(), 32U);
  const Cluster cluster = load_cluster("dgx-a100-40");
  // "nThread 1 nGpus 8", rows without a root: launched as a group.
  const CollectiveGroup group{8, 1, 0, Seconds(0), {8, true}};
  for (const CollectivePoint& point : log.points) {
    const Seconds expected =
        collective_cost(cluster, CollectiveOp::AllReduce, point.size, group).idle_time(cluster);
    ASSERT_TRUE(point.predicted);
    EXPECT_DOUBLE_EQ(point.predicted->count(), expected.count());
    EXPECT_DOUBLE_EQ(point.relative_error, expected.count() / point.measured.count() - 1);
  }
  // 4 B to 512 B do not count: 8 of 32.
  const ValidationSummary summary = summary_of(validation);
  EXPECT_EQ(summary.count, 32);
  EXPECT_EQ(summary.skipped, 8);
}

TEST(CollectiveLogs, ASummaryByHand) {
  // The largest size: 8 GiB of 8 ranks, 7/4 x 8589934592 B / 240 GB/s = 62.6 ms and some latency.
  const std::string row = " 8589934592 2147483648 float sum -1 ";
  const CollectiveValidation once = of_text(row + "62636 137.14 240.00 0\n", dgx_a100());
  const double time = once.logs.front().points.front().predicted->count();
  EXPECT_NEAR(time, 0.0626, 0.003);
  // Measured 0.8, 1.0 and 1.25 times as long: errors +25 %, 0, -20 %. |median| 20 %, worst 25 %.
  std::string rows;
  for (const double factor : {0.8, 1.0, 1.25}) {
    const double measured = factor * time;
    const double algbw = 8.589934592 / measured;  // GB/s
    rows += row + std::to_string(measured * 1e6) + " " + std::to_string(algbw) + " " +
            std::to_string(1.75 * algbw) + " 0\n";
  }
  const ValidationSummary summary = summary_of(of_text(rows, dgx_a100()));
  EXPECT_NEAR(*summary.median, 0.20, 1e-6);
  EXPECT_NEAR(*summary.p90, 0.25, 1e-6);
  EXPECT_NEAR(*summary.worst, 0.25, 1e-6);
  EXPECT_TRUE(is_within(summary, {0.21, 0.26}));
  EXPECT_FALSE(is_within(summary, {0.19, 0.26}));
  EXPECT_FALSE(is_within(summary, {0.21, 0.24}));
  EXPECT_FALSE(is_within({}, {1, 1}));  // nothing was compared
}

TEST(CollectiveLogs, WhatIsSkippedHasAReason) {
  const CollectiveValidation validation = of_text(
      "0 0 float sum -1 0.21 0.00 0.00 0\n"
      "1073741824 268435456 float sum -1 0 0.00 0.00 0\n"
      "1073741824 268435456 float sum -1 8053 133.33 233.33 0\n",
      dgx_a100());
  const std::vector<CollectivePoint>& points = validation.logs.front().points;
  EXPECT_EQ(points[0].why, "an empty vector");
  EXPECT_EQ(points[1].why, "a time of 0");
  EXPECT_TRUE(points[2].counts());
  EXPECT_EQ(summary_of(validation).skipped, 2);

  const CollectiveValidation rccl = of_files({"oci_mi300x_2n_roce_allreduce"});
  EXPECT_EQ(rccl.logs.front().why, "MI300X-192GB: RCCL is not modelled, only NCCL");
  EXPECT_EQ(summary_of(rccl).skipped, 5);
  EXPECT_FALSE(summary_of(rccl).median);

  const auto sendrecv = validate_collectives(
      parse_nccl_tests("1048576 262144 float none -1 10.00 104.86 104.86 0\n", "sendrecv.txt"), {},
      dgx_a100());
  EXPECT_EQ(sendrecv.logs.front().why, "sendrecv is not modelled");
}

TEST(CollectiveLogs, TheIndexTellsAnAllToAllFromAnAllGather) {
  const std::string text = "1048576 32768 float none -1 20.0 52.43 45.88 N/A\n";
  const std::vector<NcclTestsLog> logs = parse_nccl_tests(text, "runs/a.txt");
  const CollectiveValidation open = validate_collectives(logs, {}, dgx_a100());
  EXPECT_THAT(open.logs.front().why, HasSubstr("an all-gather or an all-to-all"));
  const LogIndex index = {{"a.txt", {"runs/INDEX.csv:2", "alltoall", "", "", 8, 1}}};
  const CollectiveValidation told = validate_collectives(logs, index, dgx_a100());
  EXPECT_EQ(told.logs.front().operation, NcclTest::AllToAll);
  EXPECT_EQ(told.logs.front().operation_from, "runs/INDEX.csv:2");
}

TEST(CollectiveLogs, GroupsAreWorstFirst) {
  const CollectiveValidation validation =
      of_files({"a100_8gpu_nvswitch_allreduce", "rtx4090_2gpu_host_allreduce",
                "h100_8gpu_bf16_alltoall", "oci_mi300x_2n_roce_allreduce"});
  const auto groups =
      summaries_by(validation, [](const CollectiveLogCheck& check) { return check.machine_class; });
  ASSERT_EQ(groups.size(), 3U);  // the one without a machine is in none
  for (std::size_t i = 1; i < groups.size(); ++i) {
    EXPECT_GE(*groups[i - 1].summary.median, *groups[i].summary.median);
  }
}

void expect_100_columns(const std::string& text) {
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with(kFolder)) continue;  // the name of a file is as long as it is
    EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST(CollectiveLogs, TextKeepsTo100Columns) {
  const CollectiveValidation validation = of_files(
      {"a100_8gpu_nvswitch_allreduce", "rtx4090_2gpu_host_allreduce", "dgx2_v100_12gpu_allgather",
       "oci_a100_2n_roce_large_allreduce", "oci_mi300x_2n_roce_allreduce"});
  const std::string text = collectives_text(validation, false);
  expect_100_columns(text);
  EXPECT_THAT(text, Not(HasSubstr("predicted us")));
  EXPECT_THAT(text, HasSubstr("note: "));
  const std::string sizes = collectives_text(validation, true);
  expect_100_columns(sizes);
  EXPECT_THAT(sizes, HasSubstr("predicted us"));
  EXPECT_THAT(sizes, HasSubstr("assumed: "));
}

TEST(CollectiveLogs, WhichToleranceIsExceeded) {
  ValidationSummary summary;
  summary.median = 0.12;
  summary.p90 = 0.4;
  EXPECT_THAT(exceeded(summary, {0.1, 0.5}), ElementsAre("median 12.00 % exceeds --tolerance 0.1"));
  EXPECT_THAT(exceeded(summary, {0.2, 0.35}),
              ElementsAre("p90 40.00 % exceeds --tolerance-p90 0.35"));
  EXPECT_THAT(exceeded({}, {1, 1}), ElementsAre("nothing was compared"));
}

// What the runs' environment has that changes nothing, or is misspelt, is told of all logs.
TEST(CollectiveLogs, TheEnvironmentIsTold) {
  LogMachineOptions options = dgx_a100();
  options.environment =
      parse_environment("NCCL_ALGOO=Ring\nNCCL_DEBUG=INFO\nNCCL_PROTO=Simple\n", "job.env");
  const CollectiveValidation validation =
      of_text(" 1048576 262144 float sum -1 20.00 52.43 91.75 0\n", options);
  ASSERT_EQ(validation.warnings.size(), 1U);
  EXPECT_THAT(validation.warnings[0].message,
              HasSubstr("NCCL_ALGOO is no known variable; did you mean \"NCCL_ALGO\"?"));
  EXPECT_THAT(validation.assumptions,
              ElementsAre("environment: without effect on time here: NCCL_DEBUG"));
  EXPECT_THAT(validation.logs[0].environment, ElementsAre("NCCL_PROTO=Simple"));
  EXPECT_THAT(validation.logs[0].assumptions, Contains(HasSubstr("NCCL_PROTO=Simple")));
  const std::string text = collectives_text(validation, false);
  EXPECT_THAT(text, HasSubstr("warning: job.env:1:1: NCCL_ALGOO"));
  EXPECT_THAT(text, HasSubstr("assumed: environment: without effect on time here: NCCL_DEBUG"));
}

// A calibration is the runs' without the settings: what they change is the model's.
TEST(CollectiveLogs, SettingsChangeWhatACalibrationSays) {
  const std::string row = " 1073741824 268435456 float sum -1 8053 133.33 233.33 0\n";
  LogMachineOptions options = dgx_a100();
  options.calibration =
      parse_calibration(read_file(std::string(ZEROSIM_SOURCE_DIR) + "/examples/calibration.json"),
                        "calibration.json");
  const auto predicted = [&] {
    return of_text(row, options).logs.front().points.front().predicted->count();
  };
  const double usual = predicted();
  options.environment = parse_environment("NCCL_MAX_NCHANNELS=2", "job.env");
  EXPECT_NEAR(predicted() / usual, 6, 0.3);  // 2 of 12 rings
  // Of an entry that was measured so it is the measurement.
  options.calibration.collectives.front().environment = {"NCCL_MAX_NCHANNELS=2"};
  EXPECT_NEAR(predicted(), usual, 1e-9 * usual);
  options.environment = {};
  EXPECT_GT(usual / predicted(), 5);  // the transfer is a sixth; the delay, 3 %, stays
  options.calibration.collectives.front().environment = {"NCCL_MAX_NCHANELS=2"};
  EXPECT_THROW(static_cast<void>(predicted()), ConfigError);
}

TEST(CollectiveLogs, Json) {
  const JsonValue json = collectives_json(of_files({"a100_8gpu_nvswitch_allreduce"}));
  ASSERT_EQ(json["rows"].size(), 32U);
  const JsonValue& small = json["rows"][0];
  EXPECT_TRUE(small["skipped"].asBool());
  EXPECT_EQ(small["why"].asString(), "below 1 KiB");
  EXPECT_GT(small["predicted"].asDouble(), 0);
  const JsonValue& large = json["rows"][31];
  EXPECT_FALSE(large["skipped"].asBool());
  EXPECT_TRUE(large["why"].isNull());
  EXPECT_THAT(large["id"].asString(), HasSubstr("a100_8gpu_nvswitch_allreduce.txt:47"));
  EXPECT_DOUBLE_EQ(large["measured"].asDouble(), 63896e-6);
  EXPECT_DOUBLE_EQ(large["measured_in_place"].asDouble(), 63959e-6);
  EXPECT_NEAR(large["relative_error"].asDouble(), large["predicted"].asDouble() / 63896e-6 - 1,
              1e-12);
  EXPECT_EQ(json["summary"]["count"].asInt(), 32);
  EXPECT_EQ(json["logs"][0]["ranks"].asInt(), 8);
  EXPECT_EQ(json["operations"][0]["name"].asString(), "all_reduce");
}

}  // namespace
}  // namespace zerosim
