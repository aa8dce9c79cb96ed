#include "sim/base/text.h"

#include <cstdio>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kKeys = {"reduce_bucket_size", "reduce_scatter", "stage",
                                        "gradient_clipping"};

TEST(NearestName, CountsSubstitutionInsertionDeletionAndSwapAsOne) {
  const std::vector<std::string> one = {"abcdef"};
  EXPECT_EQ(nearest_name("abXdef", one), "abcdef");
  EXPECT_EQ(nearest_name("abcdefX", one), "abcdef");
  EXPECT_EQ(nearest_name("abdef", one), "abcdef");
  // limit max(2, 6 / 3) = 2: two swaps of neighbours are 2 edits, but 4 substitutions
  EXPECT_EQ(nearest_name("bacdfe", one), "abcdef");
  // 3 substitutions are beyond the limit
  EXPECT_EQ(nearest_name("XbXdXf", one), "");
}

TEST(NearestName, TakesTheNearestAndTheFirstOfEquals) {
  EXPECT_EQ(nearest_name("gradient_clipp1ng", kKeys), "gradient_clipping");
  EXPECT_EQ(nearest_name("reduce_bucketsize", kKeys), "reduce_bucket_size");
  EXPECT_EQ(nearest_name("stgae", kKeys), "stage");
  const std::vector<std::string> equals = {"zero1", "zero2", "zero3"};
  EXPECT_EQ(nearest_name("zero4", equals), "zero1");
  const std::vector<std::string> modes = {"on", "exact", "off"};
  EXPECT_EQ(nearest_name("of", modes), "off");  // it begins so
  EXPECT_EQ(nearest_name("zero3", equals), "zero3");
}

TEST(NearestName, FindsNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest_name("offload", kKeys), "");
  EXPECT_EQ(nearest_name("", kKeys), "");
  EXPECT_EQ(nearest_name("xy", std::vector<std::string>{"ab"}), "");  // all of it replaced
  EXPECT_EQ(nearest_name("x", std::vector<std::string>{}), "");
}

TEST(DidYouMean, IsAClauseOrNothing) {
  EXPECT_EQ(did_you_mean("stag", kKeys), "; did you mean \"stage\"?");
  EXPECT_EQ(did_you_mean("offload", kKeys), "");
}

TEST(Join, PutsSeparatorsBetween) {
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
}

TEST(ReadFile, KeepsEveryByte) {
  const std::string path = testing::TempDir() + "read_file_test.txt";
  const std::string content("a\r\n\0b", 5);
  std::ofstream(path, std::ios::binary) << content;
  EXPECT_EQ(read_file(path), content);
  std::remove(path.c_str());
}

TEST(ReadFile, NamesTheFileThatIsMissingOrADirectory) {
  try {
    static_cast<void>(read_file("/nonexistent/x.json"));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/nonexistent/x.json: cannot read: No such file or directory");
  }
  try {
    static_cast<void>(read_file(testing::TempDir()));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot read: it is a directory, expected a file"));
  }
}

}  // namespace
}  // namespace zerosim
