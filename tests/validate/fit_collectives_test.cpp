#include "validate/fit_collectives.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFolder = std::string(ZEROSIM_TEST_DATA) + "/nccl_tests/";

CollectiveFit of_files(const std::vector<std::string>& names, HoldOut hold_out = HoldOut::None) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(kFolder + name + ".txt");
  return fit_collectives(paths, hold_out, {});
}

/// What a line says of sizes by powers of two.
std::vector<CollectiveSample> samples_on(const CollectiveLine& line, Bytes first, int count) {
  std::vector<CollectiveSample> samples;
  Bytes size = first;
  for (int i = 0; i < count; ++i, size = size * 2) {
    const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, size, 8);
    samples.push_back({size, sent, line.time(sent)});
  }
  return samples;
}

CollectiveLine line_with(double bend_us, double exponent) {
  CollectiveLine line;
  line.floor = Seconds(30e-6);
  line.bend = Seconds(bend_us * 1e-6);
  line.exponent = exponent;
  line.bandwidth = 200_GBps;
  return line;
}

void expect_line(const CollectiveLine& found, const CollectiveLine& expected, double tolerance) {
  EXPECT_NEAR(found.floor / expected.floor, 1, tolerance);
  EXPECT_NEAR(found.bandwidth.per_second() / expected.bandwidth.per_second(), 1, tolerance);
  EXPECT_NEAR(found.exponent, expected.exponent, tolerance);
  EXPECT_NEAR(found.bend / expected.bend, 1, tolerance);
}

TEST(FitLine, RecoversItsOwnLine) {
  for (const double exponent : {0.15, 0.3, 0.5}) {
    const CollectiveLine line = line_with(40, exponent);
    expect_line(fit_line(samples_on(line, 1_KiB, 24), {}), line, 1e-3);
    expect_line(fit_line(samples_on(line, 1_KiB, 24), line.bandwidth), line, 1e-3);
  }
}

TEST(FitLine, AnOutlierHardlyMovesIt) {
  const CollectiveLine line = line_with(40, 0.3);
  std::vector<CollectiveSample> samples = samples_on(line, 1_KiB, 24);
  samples[12].time *= 4;
  expect_line(fit_line(samples, {}), line, 0.02);
}

// Nothing from 1 to 32 KiB tells the bandwidth: at 200 GB/s 56 KiB last 0.3 us of 31.
TEST(FitLine, WhereTheLogDoesNotDecideTheModelDoes) {
  const std::vector<CollectiveSample> samples = samples_on(line_with(0, 0.5), 1_KiB, 6);
  EXPECT_NEAR(fit_line(samples, 50_GBps).bandwidth.gb_per_second(), 50, 1);
  EXPECT_NEAR(fit_line(samples, 150_GBps).bandwidth.gb_per_second(), 150, 2);
}

// From 1 MiB to 8 GiB the log decides: each point would err by the full ratio.
TEST(FitLine, WhereTheLogDecidesItOutweighsTheModel) {
  const CollectiveLine line = line_with(40, 0.3);
  const CollectiveLine found = fit_line(samples_on(line, 1_MiB, 14), 400_GBps);
  EXPECT_NEAR(found.bandwidth.gb_per_second(), 200, 4);
}

TEST(FitLine, FewSizesDecideFewConstants) {
  EXPECT_EQ(fitted_constants(1), 0);
  EXPECT_EQ(fitted_constants(2), 2);
  EXPECT_EQ(fitted_constants(3), 2);
  EXPECT_EQ(fitted_constants(4), 3);
  EXPECT_EQ(fitted_constants(5), 3);
  EXPECT_EQ(fitted_constants(6), 4);
  const CollectiveLine straight = line_with(0, 0.5);
  const CollectiveLine two = fit_line(samples_on(straight, 512_MiB, 2), {});
  EXPECT_EQ(two.bend, Seconds(0));
  EXPECT_NEAR(two.bandwidth.gb_per_second(), 200, 1);
  EXPECT_EQ(fit_line(samples_on(line_with(40, 0.5), 1_MiB, 4), {}).exponent, 0.5);
}

/// A log of `rows` rows, each of a size of `sizes` powers of two from 1 MiB on. Tests run side by
/// side: each has a folder of its own.
CollectiveFit of_rows(int rows, int sizes, double scale, const std::string& name = "all_reduce") {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("zerosim_fit_rows_" + test);
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / (name + "_fit_rows.txt");
  std::ofstream file(path);
  for (int i = 0; i < rows; ++i) {
    const std::int64_t size = std::int64_t{1} << (20 + i % sizes);
    const double us = scale * (30 + static_cast<double>(size) * 1.75 / 200e3);
    const double algbw = static_cast<double>(size) / us * 1e-3;
    file << size << " " << size / 4 << " float sum -1 " << us << " " << algbw << " " << 1.75 * algbw
         << " 0\n";
  }
  file.close();
  LogMachineOptions options;
  options.cluster = "dgx-a100-40";
  options.environment = parse_environment("NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n", "job.env");
  const std::vector<std::string> paths = {path.string()};
  CollectiveFit fit = fit_collectives(paths, HoldOut::None, options);
  std::filesystem::remove_all(folder);
  return fit;
}

// nccl-tests -N prints its table again: eight rows of two sizes decide two constants.
TEST(FitCollectives, SizesCountOnce) {
  const CollectiveFit fit = of_rows(8, 2, 1);
  ASSERT_EQ(fit.logs.size(), 1U);
  EXPECT_THAT(fit.logs[0].entry.fitted, ElementsAre("floor", "bandwidth"));
  EXPECT_EQ(fit.logs[0].fitted.count, 8);
  const CollectiveFit one = of_rows(8, 1, 1);
  EXPECT_TRUE(one.logs.empty());
  ASSERT_EQ(one.skipped.size(), 1U);
  EXPECT_EQ(one.skipped[0].why, "1 size from 1 KiB up to fit to, at least 2 are needed");
}

// An hour for 1 MiB: no file would be read back.
TEST(FitCollectives, WhatAFileCannotHoldIsSkipped) {
  const CollectiveFit fit = of_rows(8, 8, 2e8);
  EXPECT_TRUE(fit.logs.empty());
  ASSERT_EQ(fit.skipped.size(), 1U);
  EXPECT_THAT(fit.skipped[0].why, HasSubstr("what is fitted is not for a file: floor: found "));
  EXPECT_FALSE(fit.fitted.median);
}

// Bytes of a name that are not UTF-8 become U+FFFD; the file is read back.
TEST(FitCollectives, NamesOfLogsAreAnyBytes) {
  const CollectiveFit fit = of_rows(8, 8, 1, "all_reduce\xff");
  ASSERT_EQ(fit.logs.size(), 1U);
  const Calibration read = parse_calibration(calibration_text(calibration_of(fit)), "c.json");
  EXPECT_EQ(read.collectives[0].log, "all_reduce\xEF\xBF\xBD_fit_rows.txt");
}

// What was taken for granted is told, and what the runs' environment had goes into the file.
TEST(FitCollectives, AssumptionsAndEnvironment) {
  const CollectiveFit fit = of_rows(8, 8, 1);
  EXPECT_THAT(fit.logs.at(0).entry.environment, ElementsAre("NCCL_ALGO=Ring"));
  const Calibration read = parse_calibration(calibration_text(calibration_of(fit)), "c.json");
  EXPECT_THAT(read.collectives[0].environment, ElementsAre("NCCL_ALGO=Ring"));
  const std::string text = fit_text(fit);
  EXPECT_THAT(text, HasSubstr("assumed: all_reduce_fit_rows: launch: one process for all GPUs"));
  EXPECT_THAT(text, HasSubstr("environment: NCCL_ALGO=Ring"));
  EXPECT_THAT(text, HasSubstr("assumed: environment: without effect on time here: NCCL_DEBUG"));
  const JsonValue json = fit_json(fit);
  EXPECT_EQ(json["logs"][0]["environment"][0].asString(), "NCCL_ALGO=Ring");
  EXPECT_THAT(to_text(json["assumptions"]), HasSubstr("launch: one process"));
}

// "The algbw column shows busbw": in the text, too.
TEST(FitCollectives, NotesAreInTheText) {
  EXPECT_THAT(fit_text(of_files({"dgx2_v100_12gpu_allgather"})), HasSubstr("note: "));
}

TEST(HoldOut, ByIndex) {
  const auto held_out = [](HoldOut hold_out, std::size_t n) {
    std::string pattern;
    for (std::size_t i = 0; i < n; ++i) pattern += is_held_out(i, n, hold_out) ? 'x' : '.';
    return pattern;
  };
  EXPECT_EQ(held_out(HoldOut::None, 3), "...");
  EXPECT_EQ(held_out(HoldOut::EverySecond, 5), ".x.x.");
  EXPECT_EQ(held_out(HoldOut::LargestThird, 7), ".....xx");  // floor(7 / 3) = 2
  EXPECT_EQ(held_out(HoldOut::LargestThird, 2), "..");
}

TEST(HoldOut, Words) {
  EXPECT_EQ(parse_hold_out("every-second", "--hold-out"), HoldOut::EverySecond);
  try {
    (void)parse_hold_out("largest_third", "--hold-out");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--hold-out: found \"largest_third\", expected none, every-second or "
                 "largest-third; did you mean \"largest-third\"?");
  }
}

// The file's residuals are those of its constants, and validate finds the same.
TEST(FitCollectives, ResidualsAreReproduced) {
  const std::vector<std::string> paths = {kFolder + "a100_8gpu_nvswitch_allreduce.txt"};
  const CollectiveFit fit = fit_collectives(paths, HoldOut::None, {});
  LogMachineOptions options;
  options.calibration = parse_calibration(calibration_text(calibration_of(fit)), "c.json");
  const LineResiduals& told = options.calibration.collectives.front().fitted_residuals;
  const CollectiveValidation validation = validate_collectives(paths, options);
  std::size_t i = 0;
  for (const CollectivePoint& point : validation.logs.front().points) {
    if (!point.counts()) continue;
    ASSERT_LT(i, told.sizes.size());
    EXPECT_EQ(point.size, told.sizes[i]);
    EXPECT_NEAR(point.relative_error, told.errors[i], 1e-6);
    ++i;
  }
  EXPECT_EQ(i, told.sizes.size());
  const ValidationSummary summary = summary_of(validation);
  EXPECT_NEAR(*summary.median, told.median, 1e-6);
  EXPECT_NEAR(*summary.p90, told.p90, 1e-6);
  EXPECT_NEAR(*summary.worst, told.worst, 1e-6);
  EXPECT_THAT(validation.logs.front().assumptions.back(),
              HasSubstr("all_reduce of 8 ranks on 1 node, 8 a process, as measured"));
}

// 24 sizes from 1 KiB up: 12 are fitted to, 12 are not.
TEST(FitCollectives, HeldOutSizesAreNotFittedTo) {
  const CollectiveFit fit = of_files({"a100_8gpu_nvswitch_allreduce"}, HoldOut::EverySecond);
  const CalibratedCollective& entry = fit.logs.front().entry;
  ASSERT_EQ(entry.fitted_residuals.sizes.size(), 12U);
  ASSERT_EQ(entry.held_out_residuals.sizes.size(), 12U);
  EXPECT_EQ(entry.fitted_residuals.sizes[1], 4_KiB);
  EXPECT_EQ(entry.held_out_residuals.sizes[1], 8_KiB);
  EXPECT_EQ(entry.hold_out, "every-second");
  EXPECT_EQ(fit.fitted.count, 12);
  EXPECT_EQ(fit.held_out.count, 12);
}

const std::vector<std::string> kLogs = {
    "a100_8gpu_nvswitch_allreduce", "dgx2_v100_12gpu_allgather", "h100_12n_ib_sharp_allreduce",
    "h100_8gpu_bf16_alltoall",      "p5_2n_efa_allreduce",       "rtx4090_2gpu_host_allreduce"};

// What calibration is for: half of the sizes predict the others.
TEST(FitCollectives, EverySecondSizePredictsTheOthers) {
  const CollectiveFit fit = of_files(kLogs, HoldOut::EverySecond);
  EXPECT_EQ(fit.logs.size(), kLogs.size());
  EXPECT_LE(*fit.held_out.median, 0.05);
  EXPECT_LE(*fit.held_out.p90, 0.20);
}

TEST(FitCollectives, WhatIsSkippedHasAReason) {
  const CollectiveFit fit = of_files({"oci_mi300x_2n_roce_allreduce"});
  EXPECT_TRUE(fit.logs.empty());
  ASSERT_EQ(fit.skipped.size(), 1U);
  EXPECT_EQ(fit.skipped.front().why, "MI300X-192GB: RCCL is not modelled, only NCCL");
  EXPECT_FALSE(fit.fitted.median);
}

TEST(FitCollectives, TheExampleIsWhatTheCommandWrites) {
  const CollectiveFit fit = of_files({"a100_8gpu_nvswitch_allreduce"});
  EXPECT_EQ(calibration_text(calibration_of(fit)),
            read_file(std::string(ZEROSIM_SOURCE_DIR) + "/examples/calibration.json"));
  EXPECT_EQ(fit.logs.front().entry.source,
            "microsoft/superbenchmark:tests/data/nccl_allreduce.log@700d6501f1");
  EXPECT_THAT(fit.logs.front().entry.fitted, ElementsAre("floor", "bandwidth", "bend", "exponent"));
}

TEST(FitCollectives, TextKeepsTo100Columns) {
  const std::string text = fit_text(of_files(kLogs, HoldOut::LargestThird));
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 100U) << text.substr(begin, end - begin);
  }
}

TEST(FitCollectives, Json) {
  const JsonValue json = fit_json(of_files({"h100_12n_ib_sharp_allreduce"}, HoldOut::LargestThird));
  EXPECT_EQ(json["hold_out"].asString(), "largest-third");
  const JsonValue& log = json["logs"][0];
  EXPECT_EQ(log["ranks"].asInt(), 96);
  EXPECT_EQ(log["nodes"].asInt(), 12);
  EXPECT_EQ(log["fitted"]["count"].asInt() + log["held_out"]["count"].asInt(), 5);
  EXPECT_GT(log["constants"]["bandwidth"].asDouble(), 1e11);
}

}  // namespace
}  // namespace zerosim
