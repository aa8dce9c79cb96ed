#include "topology/gpu.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

TEST(GpuSpecs, NamesAreUniqueAndEveryRowSaysWhereItComesFrom) {
  std::set<std::string> names;
  for (const GpuSpec& spec : gpu_specs()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_FALSE(spec.source.empty()) << spec.name;
    EXPECT_GT(spec.memory.count(), 0) << spec.name;
    EXPECT_GT(spec.memory_bandwidth.per_second(), 0) << spec.name;
    EXPECT_GE(spec.compute_capability, 70) << spec.name;
    EXPECT_GE(spec.sm_count, 1) << spec.name;
    EXPECT_EQ(spec.nvlink.per_second() > 0, spec.nvlink_links > 0) << spec.name;
  }
  EXPECT_EQ(names.size(), 33U);
}

TEST(GpuSpecs, A100HasItsDatasheetFigures) {
  const GpuSpec& gpu = gpu_spec("A100-SXM4-80");
  EXPECT_DOUBLE_EQ(gpu.bf16.tflops(), 312);
  EXPECT_DOUBLE_EQ(gpu.memory_bandwidth.gb_per_second(), 2039);
  EXPECT_EQ(gpu.l2, 40_MiB);
  EXPECT_EQ(gpu.sm_count, 108);
  EXPECT_EQ(gpu.nvlink, 300_GBps);
  EXPECT_EQ(gpu.nvlink_links, 12);
  EXPECT_DOUBLE_EQ(gpu.best_matmul.tflops(), 271.2);
  EXPECT_EQ(gpu.compute_capability, 80);
}

// Of capability 10.x B200 (2250 TFLOPS), GB200 (2500) and B300 (2250) are published.
TEST(GpuSpecs, SmsThatAreNotPublishedAreThoseOfTheNearestRelative) {
  EXPECT_EQ(gpu_spec("GB300-288").sm_count, gpu_spec("GB200-186").sm_count);
  EXPECT_EQ(gpu_spec("GB300-288").sm_count_assumed, "GB200-186");
  EXPECT_EQ(gpu_spec("GB200-186").sm_count_assumed, "");
}

TEST(GpuSpecs, MemoryIsWhatTheFrameworkReports) {
  // Reported totals stay within 7 % of the product's decimal size and below its binary size.
  EXPECT_NEAR(gpu_spec("A100-SXM4-80").memory.gib(), 79.3, 1e-6);
  EXPECT_NEAR(gpu_spec("H100-SXM5-80").memory.gib(), 79.1, 1e-6);
  EXPECT_NEAR(gpu_spec("RTX4090-24").memory.gib(), 23.6, 1e-6);
  EXPECT_NEAR(gpu_spec("A10-24").memory.gib(), 22.5, 1e-6);
}

TEST(GpuSpecs, UnknownNameNamesTheNearest) {
  try {
    static_cast<void>(gpu_spec("A100-SXM4-8O"));
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("unknown GPU \"A100-SXM4-8O\"; did you mean "
                                                  "\"A100-SXM4-80\"? (known: V100-SXM2-16, "));
  }
}

TEST(GpuSpecs, GpusOfOthersAreNotSimulated) {
  for (const std::string& name : unsupported_gpus()) {
    try {
      static_cast<void>(gpu_spec(name));
      FAIL() << "expected ConfigError";
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()), "GPU " + name + " is not simulated: it is not NVIDIA's");
    }
  }
  EXPECT_THAT(unsupported_gpus(), testing::Contains("MI300X-192"));
}

}  // namespace
}  // namespace zerosim
