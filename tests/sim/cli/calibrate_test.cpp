#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;

const std::string kLog =
    std::string(ZEROSIM_TEST_DATA) + "/nccl_tests/a100_8gpu_nvswitch_allreduce.txt";
const std::string kExample = std::string(ZEROSIM_SOURCE_DIR) + "/examples/calibration.json";

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("zerosim_calibrate_" + name)).string();
}

TEST(Calibrate, WritesWhatValidateTakes) {
  const std::string file = temporary("writes.json");
  const Outcome fitted = run_zerosim({"calibrate", kLog, "-o", file});
  EXPECT_EQ(fitted.exit_code, 0) << fitted.error;
  EXPECT_THAT(fitted.out, HasSubstr("wrote " + file + ": 1 collective"));
  EXPECT_EQ(read_file(file), read_file(kExample));
  const JsonDocument report =
      zerosim_json({"validate", "collectives", kLog, "--calibration", file});
  const JsonDocument read = JsonDocument::from_file(file);
  const JsonValue& residuals = read.root()["collectives"][0]["residuals"]["fitted"];
  const JsonValue& summary = report.root()["summary"];
  for (const char* figure : {"median", "p90", "worst"}) {
    EXPECT_NEAR(summary[figure].asDouble(), residuals[figure].asDouble(), 1e-6) << figure;
  }
  std::filesystem::remove(file);
}

TEST(Calibrate, NothingToFitIsNo) {
  const std::string rccl =
      std::string(ZEROSIM_TEST_DATA) + "/nccl_tests/oci_mi300x_2n_roce_allreduce.txt";
  const std::string file = temporary("nothing.json");
  const Outcome outcome = run_zerosim({"calibrate", rccl, "-o", file});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("RCCL is not modelled"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Calibrate, ChangesTheTimeOfARunAndSaysSo) {
  std::vector<std::string> arguments = {
      "run",          "--model", "gpt2",          "--cluster", "dgx-a100-40",
      "--strategies", "ddp",     "--micro-batch", "8"};  // kernels outlast launches
  const JsonDocument plain = zerosim_json(arguments);
  arguments.insert(arguments.end(), {"--calibration", kExample});
  const JsonDocument calibrated = zerosim_json(arguments);
  const auto step = [](const JsonDocument& document) {
    return document.root()["strategies"][0]["time"]["step"].asDouble();
  };
  EXPECT_NE(step(plain), step(calibrated));
  const std::string text = to_text(calibrated.root());
  EXPECT_THAT(text,
              HasSubstr("all_reduce of 8 ranks on 1 node by the model, scaled as all_reduce of 8 "
                        "ranks on 1 node, 8 a process, were measured"));
  EXPECT_THAT(text, HasSubstr("\"calibration\""));
}

TEST(Calibrate, AnotherMachineIsAWarning) {
  const JsonDocument report = zerosim_json({"run", "--model", "gpt2", "--cluster", "dgx-h100",
                                            "--strategies", "ddp", "--calibration", kExample});
  const JsonValue& warnings = report.root()["strategies"][0]["warnings"];
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0]["code"].asString(), "calibration_machine");
  EXPECT_THAT(warnings[0]["message"].asString(), HasSubstr("A100-SXM4-40, not H100-SXM5-80"));
}

const std::string kTable = std::string(ZEROSIM_TEST_DATA) + "/measured/gemm_extract.csv";

// Kernels of the A100-PCIe board, fitted anew, hold for a node of A100-SXM4 and are told.
TEST(Calibrate, KernelsToo) {
  const std::string file = temporary("kernels.json");
  const Outcome fitted = run_zerosim({"calibrate", kTable, "-o", file});
  EXPECT_EQ(fitted.exit_code, 0) << fitted.error;
  EXPECT_THAT(fitted.out, HasSubstr("wrote " + file + ": kernels of 2 GPUs"));
  std::vector<std::string> arguments = {
      "run",          "--model", "gpt2",          "--cluster", "dgx-a100-40",
      "--strategies", "ddp",     "--micro-batch", "8"};  // kernels outlast launches
  const double plain = zerosim_json(arguments).root()["strategies"][0]["time"]["step"].asDouble();
  arguments.insert(arguments.end(), {"--calibration", file});
  const JsonDocument calibrated = zerosim_json(arguments);
  const double step = calibrated.root()["strategies"][0]["time"]["step"].asDouble();
  EXPECT_NE(step, plain);
  EXPECT_NEAR(step, plain, 0.05 * plain);
  EXPECT_THAT(to_text(calibrated.root()),
              HasSubstr("products and attention as measured on A100-PCIe-80 (" + file + ")"));
  const Outcome validated = run_zerosim({"validate", "kernels", kTable, "--calibration", file});
  EXPECT_EQ(validated.exit_code, 0) << validated.error;
  std::filesystem::remove(file);
}

const std::string kRuns = std::string(ZEROSIM_TEST_DATA) + "/measured/host_runs.csv";

// One call fits all three and writes one file; host times last, with the others applied.
TEST(Calibrate, LogsKernelsAndRunsTogether) {
  const std::string file = temporary("all.json");
  const Outcome fitted = run_zerosim({"calibrate", kRuns, kLog, kTable, "-o", file});
  EXPECT_EQ(fitted.exit_code, 0) << fitted.error;
  EXPECT_THAT(fitted.out,
              HasSubstr("wrote " + file + ": 1 collective, kernels of 2 GPUs, host times"));
  const JsonDocument document = JsonDocument::from_file(file);
  for (const char* section : {"collectives", "kernels", "host"}) {
    EXPECT_TRUE(document.root().isMember(section)) << section;
  }
  const JsonDocument report = zerosim_json({"validate", "runs", kRuns, "--calibration", file});
  for (const JsonValue& row : report.root()["rows"]) {
    if (row["id"].asString() != "vtrain-h1024-l12-w2-g8-m1") continue;
    EXPECT_LT(std::abs(row["relative_error"].asDouble()), 0.01);  // fitted to
    EXPECT_THAT(to_text(row), HasSubstr("calibration " + file + ": host work takes"));
  }
  std::filesystem::remove(file);
}

// A step of little kernels is its launches: twice the host time is all but twice the step. A file
// with a host alone is enough.
TEST(Calibrate, HostTimesApplyAndAreTold) {
  const std::string file = temporary("host.json");
  std::ofstream(file) << R"({"version": 1, "host": {"interpreter": 2}})";
  std::vector<std::string> arguments = {"run",      "--model",         "gpt2", "--cluster",
                                        "dgx-h100", "--gpus-per-node", "1",    "--strategies",
                                        "single",   "--seq",           "128",  "--micro-batch",
                                        "1"};
  const auto report = [&] { return zerosim_json(arguments); };
  const auto step = [](const JsonDocument& document) {
    return document.root()["strategies"][0]["time"]["step"].asDouble();
  };
  const double plain = step(report());
  arguments.insert(arguments.end(), {"--calibration", file});
  const JsonDocument calibrated = report();
  EXPECT_LT(step(calibrated), 2 * plain);
  EXPECT_GT(step(calibrated), 1.8 * plain);
  EXPECT_THAT(
      to_text(calibrated.root()),
      HasSubstr("host.json: host work takes 2 times the table's time, a hook of DeepSpeed"));
  std::filesystem::remove(file);
}

TEST(Calibrate, TablesOfRunsWithoutUsableRows) {
  const std::string table = temporary("none.csv");
  std::ofstream(table) << "id,group,source,trust,strategy,world_size,micro_batch\n";
  const std::string file = temporary("none.json");
  const Outcome none = run_zerosim({"calibrate", table, "-o", file});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("nothing is fitted: of 0 runs"));
  EXPECT_THAT(none.out, HasSubstr("none.json is not written: nothing was fitted"));
  EXPECT_FALSE(std::filesystem::exists(file));
  std::ofstream(table) << "id,grup,source,trust,strategy,world_size,micro_batch\n";
  const Outcome misspelt = run_zerosim({"calibrate", table});
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.error, HasSubstr("none.csv:1:1: found no column \"group\""));
  std::ofstream(table) << "tokens,seconds\n";
  const Outcome other = run_zerosim({"calibrate", table});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.error, HasSubstr("none.csv:1:1: found no column \"gpu\""));
  std::filesystem::remove(table);
}

// The example is of a node without settings: with them it is changed as the model is.
TEST(Calibrate, TheEnvironmentOfAJobIsNotDividedOut) {
  const std::string environment = temporary("job.env");
  std::ofstream(environment) << "NCCL_MAX_NCHANNELS=2\n";
  std::vector<std::string> arguments = {"run",       "--model",       "gpt2-xl",
                                        "--cluster", "dgx-a100-40",   "--strategies",
                                        "ddp",       "--calibration", kExample};
  const auto step = [&] {
    return zerosim_json(arguments).root()["strategies"][0]["time"]["step"].asDouble();
  };
  const double usual = step();
  arguments.insert(arguments.end(), {"--env", environment});
  EXPECT_GT(step(), 1.5 * usual);
  std::filesystem::remove(environment);
}

TEST(Calibrate, SaysWhichToleranceFailed) {
  const Outcome outcome = run_zerosim({"validate", "collectives", kLog, "--tolerance", "0.001"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("exceeds --tolerance 0.001"));
}

TEST(Calibrate, BadInputIsOneError) {
  const Outcome units = run_zerosim({"run", "--model", "gpt2", "--cluster", "dgx-a100-40",
                                     "--strategies", "ddp", "--matmul", "fp9"});
  EXPECT_EQ(units.exit_code, 2);
  EXPECT_THAT(units.error, HasSubstr("did you mean \"fp8\"?"));
  const Outcome no_fp8 = run_zerosim({"run", "--model", "gpt2", "--cluster", "dgx-a100-40",
                                      "--strategies", "ddp", "--matmul", "fp8"});
  EXPECT_EQ(no_fp8.exit_code, 2);
  EXPECT_THAT(no_fp8.error, HasSubstr("GPU \"A100-SXM4-40\" has no fp8 products"));
  const Outcome word = run_zerosim({"calibrate", kLog, "--hold-out", "half"});
  EXPECT_EQ(word.exit_code, 2);
  const Outcome missing = run_zerosim({"run", "--model", "gpt2", "--cluster", "dgx-a100-40",
                                       "--strategies", "ddp", "--calibration", "no_such.json"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.error, HasSubstr("no_such.json"));
  const Outcome other = run_zerosim({"validate", "collectives", kLog, "--calibration", kLog});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.error, HasSubstr("a100_8gpu_nvswitch_allreduce.txt:1:1"));
}

}  // namespace
}  // namespace zerosim::testing
