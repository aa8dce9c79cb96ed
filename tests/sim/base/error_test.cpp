#include "sim/base/error.h"

#include <string>

#include <gtest/gtest.h>

namespace zerosim {
namespace {

TEST(SourceLocation, PrintsWhatIsKnown) {
  EXPECT_EQ(to_string(SourceLocation{"ds_config.json", 4, 12}), "ds_config.json:4:12");
  EXPECT_EQ(to_string(SourceLocation{"ds_config.json", 4, 0}), "ds_config.json:4");
  EXPECT_EQ(to_string(SourceLocation{"ds_config.json", 0, 0}), "ds_config.json");
  EXPECT_EQ(to_string(SourceLocation{}), "");
}

TEST(ConfigError, BeginsWithThePlaceAndKeepsTheCode) {
  const ConfigError error({"a.json", 2, 3}, "stage: found 4, expected 0 to 3", "bad_stage");
  EXPECT_STREQ(error.what(), "a.json:2:3: stage: found 4, expected 0 to 3");
  EXPECT_EQ(error.code(), "bad_stage");
  EXPECT_EQ(error.location().line, 2);
}

TEST(ConfigError, OfAFlagHasNoPlace) {
  const ConfigError error("--nodes: found 0, expected at least 1");
  EXPECT_STREQ(error.what(), "--nodes: found 0, expected at least 1");
  EXPECT_EQ(error.location().file, "");
  EXPECT_EQ(error.code(), "");
}

TEST(TraceError, BeginsWithThePlace) {
  EXPECT_STREQ(TraceError({"t.csv", 7, 1}, "no column \"gpu\"").what(),
               "t.csv:7:1: no column \"gpu\"");
}

TEST(Error, IsTheBaseOfAll) {
  EXPECT_THROW(throw ConfigError("x"), Error);
  EXPECT_THROW(throw TraceError({}, "x"), Error);
  EXPECT_THROW(throw SimulationError("x"), Error);
  EXPECT_THROW(throw BackendError("x"), Error);
}

TEST(CheckDeathTest, PrintsFileLineExpressionAndMessage) {
  const int two = 2;
  EXPECT_DEATH(ZS_CHECK(two == 3, std::string("arithmetic")),
               "error_test.cpp:[0-9]+: check failed: two == 3: arithmetic");
  ZS_CHECK(two == 2, "holds");
}

}  // namespace
}  // namespace zerosim
