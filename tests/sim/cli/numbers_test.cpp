#include "sim/cli/numbers.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

constexpr IntegerRange kAny{INT64_MIN, INT64_MAX};

std::string message_of(std::string_view text, const IntegerRange& range) {
  try {
    const std::int64_t value = parse_integer(text, "--nodes", range);
    return "no error: " + std::to_string(value);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ParseInteger, ReadsWholeDecimalNumbersExactly) {
  EXPECT_EQ(parse_integer("4", "--x", kAny), 4);
  EXPECT_EQ(parse_integer("007", "--x", kAny), 7);
  EXPECT_EQ(parse_integer("7e9", "--x", kAny), 7'000'000'000);
  EXPECT_EQ(parse_integer("7.5e9", "--x", kAny), 7'500'000'000);
  EXPECT_EQ(parse_integer("2851E+6", "--x", kAny), 2'851'000'000);
  EXPECT_EQ(parse_integer("12.0", "--x", kAny), 12);
  EXPECT_EQ(parse_integer("1200e-2", "--x", kAny), 12);
  EXPECT_EQ(parse_integer("-3", "--x", kAny), -3);
  EXPECT_EQ(parse_integer("0e500", "--x", kAny), 0);
  // 2^63 - 1: no digit is lost on the way.
  EXPECT_EQ(parse_integer("9223372036854775807", "--x", kAny), INT64_MAX);
}

TEST(ParseInteger, NamesFlagTextAndRange) {
  EXPECT_EQ(message_of("0", kNodeRange),
            "--nodes: found \"0\", expected a whole number of at least 1 and at most 100000");
  EXPECT_EQ(message_of("-4", {1, INT64_MAX}),
            "--nodes: found \"-4\", expected a whole number of at least 1");
}

TEST(ParseInteger, RefusesEverythingElse) {
  for (const char* text : {"", "four", "1.5", "1e-1", "7B", "1e", "0x10", "1_000", "1,000", " 1",
                           "1 ", ".", "-", "e9", "nan", "inf", "1e99999999999", "1..2", "--1"}) {
    EXPECT_EQ(message_of(text, {1, 10}),
              "--nodes: found \"" + std::string(text) +
                  "\", expected a whole number of at least 1 and at most 10");
  }
}

TEST(ParseInteger, IsNotWrappedBy64Bits) {
  // 2^64 + 1, and numbers of many digits: all above the range, not 1.
  for (const char* text : {"18446744073709551617", "9223372036854775808", "1e400", "9e18999"}) {
    EXPECT_EQ(message_of(text, {1, 10}),
              "--nodes: found \"" + std::string(text) +
                  "\", expected a whole number of at least 1 and at most 10");
  }
}

TEST(ParseNonNegative, ReadsFractions) {
  EXPECT_DOUBLE_EQ(parse_non_negative("0.05", "--tolerance"), 0.05);
  EXPECT_DOUBLE_EQ(parse_non_negative("1e-3", "--tolerance"), 0.001);
  for (const char* text : {"", "-0.1", "nan", "inf", "5%", "1e999"}) {
    EXPECT_THROW(static_cast<void>(parse_non_negative(text, "--tolerance")), ConfigError) << text;
  }
}

}  // namespace
}  // namespace zerosim
