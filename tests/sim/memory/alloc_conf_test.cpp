#include "sim/memory/alloc_conf.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string error_of(const std::string& text) {
  try {
    (void)parse_alloc_conf(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(AllocConf, DefaultsAreListed) {
  EXPECT_THAT(describe(parse_alloc_conf("")),
              ElementsAre("backend:native", "max_split_size_mb:unlimited",
                          "max_non_split_rounding_mb:20", "garbage_collection_threshold:0",
                          "roundup_power2_divisions:[1:0,2:0,4:0,8:0,16:0,32:0,64:0,128:0,256:0,"
                          "512:0,1024:0,2048:0,4096:0,8192:0,16384:0,32768:0]",
                          "expandable_segments:False", "per_process_memory_fraction:unlimited"));
}

TEST(AllocConf, ReadsEveryOption) {
  const AllocConf conf = parse_alloc_conf(
      "backend:native, max_split_size_mb:512,max_non_split_rounding_mb:40,"
      "garbage_collection_threshold:0.8,roundup_power2_divisions:8,expandable_segments:True,"
      "per_process_memory_fraction:1.0,pinned_num_register_threads:8,");
  EXPECT_EQ(conf.max_split_size, 512_MiB);
  EXPECT_EQ(conf.max_non_split_rounding, 40_MiB);
  EXPECT_EQ(conf.garbage_collection_threshold, 0.8);
  EXPECT_EQ(conf.roundup_divisions(1_MiB), 8);
  EXPECT_TRUE(conf.expandable_segments);
  EXPECT_EQ(conf.memory_fraction, 1.0);
  EXPECT_THAT(conf.without_effect, ElementsAre("pinned_num_register_threads"));
  EXPECT_THAT(conf.warnings, IsEmpty());
  EXPECT_EQ(parse_alloc_conf("backend:cudaMallocAsync").backend,
            AllocConf::Backend::CudaMallocAsync);
}

TEST(AllocConf, TheLastOfEqualOptionsWins) {
  EXPECT_EQ(parse_alloc_conf("max_split_size_mb:64,max_split_size_mb:128").max_split_size, 128_MiB);
}

// The example of PyTorch's documentation. The first interval stands for all smaller sizes, those
// that are not named keep 0.
TEST(AllocConf, DivisionsBySize) {
  const AllocConf conf = parse_alloc_conf("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  EXPECT_EQ(conf.roundup_divisions(512_B), 1);
  EXPECT_EQ(conf.roundup_divisions(511_MiB), 1);
  EXPECT_EQ(conf.roundup_divisions(512_MiB), 2);
  EXPECT_EQ(conf.roundup_divisions(2047_MiB), 4);
  EXPECT_EQ(conf.roundup_divisions(2_GiB), 8);
  EXPECT_EQ(conf.roundup_divisions(200_GiB), 8);
  const AllocConf gaps = parse_alloc_conf("roundup_power2_divisions:[64:8,256:4]");
  EXPECT_EQ(gaps.roundup_divisions(1_MiB), 8);
  EXPECT_EQ(gaps.roundup_divisions(128_MiB), 0);
  EXPECT_EQ(gaps.roundup_divisions(300_MiB), 4);
  EXPECT_EQ(gaps.roundup_divisions(600_MiB), 0);
}

TEST(AllocConf, NumbersEndWhereStoiStops) {
  const AllocConf conf = parse_alloc_conf("max_split_size_mb:512MB");
  EXPECT_EQ(conf.max_split_size, 512_MiB);
  ASSERT_EQ(conf.warnings.size(), 1U);
  EXPECT_EQ(conf.warnings[0].message,
            "PYTORCH_CUDA_ALLOC_CONF:1:19: \"512MB\" is read as 512; expected a whole number of "
            "MiB above 20 for max_split_size_mb");
}

TEST(AllocConf, NamesTheNearestOption) {
  EXPECT_EQ(error_of("max_split_size:512"),
            "PYTORCH_CUDA_ALLOC_CONF:1:1: unknown option \"max_split_size\"; did you mean "
            "\"max_split_size_mb\"?");
  EXPECT_EQ(error_of("expandable_segments:True,,"),
            "PYTORCH_CUDA_ALLOC_CONF:1:26: unknown option \",\"; expected one of backend, "
            "expandable_segments, garbage_collection_threshold, graph_capture_record_stream_reuse, "
            "max_non_split_rounding_mb, max_split_size_mb, per_process_memory_fraction, "
            "pinned_num_register_threads, pinned_reserve_segment_size_mb, "
            "pinned_use_background_threads, pinned_use_cuda_host_register, "
            "release_lock_on_cudamalloc, roundup_power2_divisions");
}

TEST(AllocConf, SaysWhatItExpected) {
  const std::string at = "PYTORCH_CUDA_ALLOC_CONF:1:";
  EXPECT_EQ(error_of("expandable_segments"),
            at + "20: found the end, expected \":\" after expandable_segments");
  EXPECT_EQ(error_of("expandable_segments=True"),
            at + "1: unknown option \"expandable_segments=True\"; did you mean "
                 "\"expandable_segments\"?");
  EXPECT_EQ(error_of("expandable_segments:true"),
            at + "21: found \"true\", expected True or False for expandable_segments");
  EXPECT_EQ(error_of("max_split_size_mb:20"),
            at + "19: found \"20\", expected a whole number of MiB above 20 for max_split_size_mb");
  EXPECT_EQ(error_of("max_split_size_mb:"),
            at + "19: found the end, expected a whole number of MiB above 20 for "
                 "max_split_size_mb");
  EXPECT_EQ(error_of("max_non_split_rounding_mb:-1"),
            at + "27: found \"-1\", expected a whole number of MiB above 20 for "
                 "max_non_split_rounding_mb");
  EXPECT_EQ(error_of("garbage_collection_threshold:1.0"),
            at + "30: found \"1.0\", expected a number above 0 and below 1 for "
                 "garbage_collection_threshold");
  EXPECT_EQ(error_of("per_process_memory_fraction:1.5"),
            at + "29: found \"1.5\", expected a number above 0 and at most 1 for "
                 "per_process_memory_fraction");
  EXPECT_EQ(error_of("per_process_memory_fraction:"),
            at + "29: found the end, expected a number above 0 and at most 1 for "
                 "per_process_memory_fraction");
  EXPECT_EQ(error_of("backend:cuda"),
            at + "9: found \"cuda\", expected native or cudaMallocAsync for backend");
  EXPECT_EQ(error_of("max_split_size_mb:64 ; expandable_segments:True"),
            at + "43: found \":\", expected \",\" before the next option");
  EXPECT_EQ(error_of("pinned_num_register_threads:x"),
            at + "29: found \"x\", expected a whole number for pinned_num_register_threads");
}

TEST(AllocConf, SaysWhatIsWrongWithDivisions) {
  const std::string at = "PYTORCH_CUDA_ALLOC_CONF:1:";
  EXPECT_EQ(error_of("roundup_power2_divisions:3"),
            at + "26: found \"3\", expected 0 or a power of two as divisions");
  EXPECT_EQ(error_of("roundup_power2_divisions:0"),
            at + "26: found \"0\", expected a power of two for roundup_power2_divisions");
  EXPECT_EQ(error_of("roundup_power2_divisions:[100:2]"),
            at + "27: found \"100\", expected a power of two as size in MiB");
  EXPECT_EQ(error_of("roundup_power2_divisions:[128:2"),
            at + "32: found the end, expected \",\" or \"]\"");
  EXPECT_EQ(error_of("roundup_power2_divisions:[128=2]"),
            at + "32: found \"]\", expected \":\" after a size");
  EXPECT_EQ(error_of("roundup_power2_divisions:[:2]"),
            at + "27: found \":\", expected a size in MiB, \">\" or \"]\"");
}

TEST(AllocConf, ErrorsNameTheFileThatTheTextIsFrom) {
  try {
    (void)parse_alloc_conf("backend:x", {"job.env", 7, 25});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.location().line, 7);
    EXPECT_EQ(error.location().column, 33);  // 25 + 8
  }
}

}  // namespace
}  // namespace zerosim
