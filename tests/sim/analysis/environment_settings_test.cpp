#include "sim/analysis/environment_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
EnvironmentSettings read(const std::string& text) {
  return environment_settings(parse_environment(text, "job.env"));
}

std::vector<std::string> warnings_of(const std::string& text) {
  std::vector<std::string> messages;
  for (const Warning& warning : read(text).warnings) messages.push_back(warning.message);
  return messages;
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(read(text));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(EnvironmentSettings, TheAllocatorsVariable) {
  const EnvironmentSettings settings =
      read("HOME=/root\nPYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True\n");
  EXPECT_EQ(settings.alloc_conf.max_split_size, 512_MiB);
  EXPECT_TRUE(settings.alloc_conf.expandable_segments);
  EXPECT_THAT(settings.assumptions,
              ElementsAre("allocator: PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,"
                          "expandable_segments:True, from job.env"));
  EXPECT_THAT(settings.warnings, IsEmpty());
}

TEST(EnvironmentSettings, ItsNewerNameIsReadWhereTheOtherIsNotSet) {
  EXPECT_TRUE(read("PYTORCH_ALLOC_CONF=expandable_segments:True").alloc_conf.expandable_segments);
  const std::string both =
      "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\n"
      "PYTORCH_ALLOC_CONF=expandable_segments:True\n";
  EXPECT_FALSE(read(both).alloc_conf.expandable_segments);
  EXPECT_EQ(read(both).alloc_conf.max_split_size, 64_MiB);
  EXPECT_THAT(warnings_of(both),
              ElementsAre("job.env:2:1: PYTORCH_ALLOC_CONF has no effect: PyTorch takes "
                          "PYTORCH_CUDA_ALLOC_CONF, which is set too"));
}

TEST(EnvironmentSettings, TheLastOneCounts) {
  EXPECT_EQ(read("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\n"
                 "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n")
                .alloc_conf.max_split_size,
            128_MiB);
}

TEST(EnvironmentSettings, ErrorsAreAtTheOption) {
  // export PYTORCH_CUDA_ALLOC_CONF=" is 32 characters, then max_split_size_mb:512, another 22.
  EXPECT_EQ(
      error_of(
          "A=1\nexport PYTORCH_CUDA_ALLOC_CONF=\"max_split_size_mb:512,expandable_segment:True\""),
      "job.env:2:55: unknown option \"expandable_segment\"; did you mean \"expandable_segments\"?");
  EXPECT_EQ(error_of("export PYTORCH_CUDA_ALLOC_CONF=$CONF"),
            "job.env:1:32: PYTORCH_CUDA_ALLOC_CONF: found \"$CONF\", expected a value that no "
            "shell has to expand");
}

TEST(EnvironmentSettings, ThreadsOfThisLevel) {
  EXPECT_EQ(read("OMP_NUM_THREADS=8\n").host_threads, 8);
  EXPECT_EQ(read("export OMP_NUM_THREADS=8,2\n").host_threads, 8);
  EXPECT_EQ(read("PATH=/bin\n").host_threads, 0);
  const EnvironmentSettings expanded = read("export OMP_NUM_THREADS=$(nproc)\n");
  EXPECT_EQ(expanded.host_threads, 0);
  EXPECT_THAT(expanded.assumptions,
              ElementsAre("environment: OMP_NUM_THREADS=\"$(nproc)\" is not used: only a shell can "
                          "expand it"));
}

TEST(EnvironmentSettings, ThreadsThatAreNone) {
  for (const char* value : {"0", "-1", "many", "2.5", "", "99999999999"}) {
    EXPECT_EQ(error_of(format("A=1\nOMP_NUM_THREADS={}\n", value)),
              format("job.env:2:17: OMP_NUM_THREADS: found \"{}\", expected a whole number of at "
                     "least 1",
                     value));
  }
}

TEST(EnvironmentSettings, WhatIsNotUsedIsSaid) {
  const EnvironmentSettings settings = read(
      "NCCL_DEBUG=INFO\nNCCL_SOMETHING_NEW=1\nNCCL_IB_GID_INDEX=3\n"
      "NCCL_DEBUG=WARN\nNCCL_ALGO=Ring\nPATH=/bin\n");
  EXPECT_THAT(settings.assumptions,
              ElementsAre("environment: without effect on time here: NCCL_DEBUG, NCCL_IB_GID_INDEX",
                          "environment: not known of NCCL, so not used: NCCL_SOMETHING_NEW"));
  EXPECT_THAT(settings.warnings, IsEmpty());
}

TEST(EnvironmentSettings, AMisspellingIsAWarning) {
  EXPECT_THAT(warnings_of("A=1\n  PYTORCH_CUDA_ALOC_CONF=x\nNCCL_P2P_DISABEL=1\n"
                          "omp_num_threads=1\n"),
              ElementsAre("job.env:2:3: PYTORCH_CUDA_ALOC_CONF is no known variable; did you mean "
                          "\"PYTORCH_CUDA_ALLOC_CONF\"?",
                          "job.env:3:1: NCCL_P2P_DISABEL is no known variable; did you mean "
                          "\"NCCL_P2P_DISABLE\"?",
                          "job.env:4:1: omp_num_threads is no known variable; did you mean "
                          "\"OMP_NUM_THREADS\"?"));
}

TEST(EnvironmentSettings, OtherVariablesAreNoneOfOurBusiness) {
  EXPECT_THAT(warnings_of("MKL_NUM_THREADS=1\nPYTORCH_VERSION=2.4\nNCCL_VERSION=2.20\nTERM=xterm\n"
                          "OMP_MAX_THREADS=1\nPYTORCH_KERNEL_CACHE_PATH=/tmp\n"),
              IsEmpty());
  EXPECT_THAT(read("MKL_NUM_THREADS=1\nPATH=/bin\n").assumptions, IsEmpty());
}

}  // namespace
}  // namespace zerosim
