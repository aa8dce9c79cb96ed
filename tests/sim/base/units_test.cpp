#include "sim/base/units.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

namespace zerosim {
namespace {

using namespace zerosim::literals;  // NOLINT(google-build-using-namespace): literals need it
using namespace std::chrono_literals;

template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Divisible = requires(A a, B b) {
  a / b;
};
template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a < b;
};

static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Seconds>);
static_assert(!Addable<Bytes, std::int64_t>);
static_assert(!Addable<Bytes, Flops>);
static_assert(!Addable<BytesPerSecond, FlopsPerSecond>);
static_assert(Divisible<Bytes, BytesPerSecond>);
static_assert(Divisible<Flops, FlopsPerSecond>);
static_assert(!Divisible<Bytes, FlopsPerSecond>);
static_assert(!Divisible<Flops, BytesPerSecond>);
static_assert(!Comparable<Bytes, Seconds>);
static_assert(!std::is_convertible_v<std::int64_t, Bytes>);
static_assert(!std::is_convertible_v<double, BytesPerSecond>);
static_assert(std::is_same_v<decltype(1_GB / 1_GBps), Seconds>);
static_assert(std::is_convertible_v<decltype(2us), Seconds>);

constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMinimum = std::numeric_limits<std::int64_t>::min();

template <typename Function>
std::string message_of(Function function) {
  try {
    static_cast<void>(function());
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(Bytes, CountsExactly) {
  EXPECT_EQ((40_GiB).count(), 40LL * 1024 * 1024 * 1024);
  EXPECT_EQ((2_GB).count(), 2'000'000'000);
  EXPECT_EQ((1_GiB + 1_B).count(), 1'073'741'825);
  EXPECT_EQ((1_KiB - 1_B).count(), 1023);
  EXPECT_EQ((3 * 5_MiB).count(), 15 * 1024 * 1024);
  EXPECT_DOUBLE_EQ((3_GiB).gib(), 3.0);
  EXPECT_DOUBLE_EQ((3_GB).gb(), 3.0);
}

TEST(Bytes, ThrowOnOverflow) {
  EXPECT_THROW(Bytes(kMaximum) + 1_B, std::overflow_error);
  EXPECT_THROW(Bytes(kMinimum) - 1_B, std::overflow_error);
  EXPECT_THROW(Bytes(kMaximum / 2 + 1) * 2, std::overflow_error);
  EXPECT_EQ(Bytes(kMaximum) + 0_B, Bytes(kMaximum));
  EXPECT_EQ(message_of([] { return Bytes(kMaximum) + 1_B; }),
            "bytes: 9223372036854775807 + 1 leaves 64 bits");
}

TEST(Rates, GiveTimes) {
  // 1 GB at 400 Gb/s: 8e9 bits / 4e11 bits/s = 20 ms
  EXPECT_DOUBLE_EQ((1_GB / 400_Gbps).count(), 0.02);
  EXPECT_DOUBLE_EQ((Flops(3e12) / FlopsPerSecond(1.5e12)).count(), 2.0);
}

TEST(ParseBytes, ReadsNumbersWithUnits) {
  EXPECT_EQ(parse_bytes("40GiB"), 40_GiB);
  EXPECT_EQ(parse_bytes("24 GB"), 24_GB);
  EXPECT_EQ(parse_bytes("512MiB"), 512_MiB);
  EXPECT_EQ(parse_bytes("80000000B"), Bytes(80'000'000));
  EXPECT_EQ(parse_bytes(" 1.5 GiB "), 1536_MiB);
  EXPECT_EQ(parse_bytes("1e3KB"), Bytes(1'000'000));
  EXPECT_EQ(parse_bytes("0B"), Bytes(0));
  // 2^53 + 1 has no double
  EXPECT_EQ(parse_bytes("9007199254740993B").count(), 9'007'199'254'740'993);
}

TEST(ParseBytes, SaysWhatIsWrong) {
  EXPECT_THROW(static_cast<void>(parse_bytes("40")), std::invalid_argument);
  EXPECT_EQ(message_of([] { return parse_bytes("40"); }),
            "\"40\": no unit, expected a number with a unit such as \"40GiB\"");
  EXPECT_EQ(message_of([] { return parse_bytes("GiB"); }),
            "\"GiB\": no number, expected a number with a unit such as \"40GiB\"");
  EXPECT_EQ(message_of([] { return parse_bytes("-1GiB"); }),
            "\"-1GiB\": negative, expected a number with a unit such as \"40GiB\"");
  EXPECT_EQ(message_of([] { return parse_bytes(""); }),
            "\"\": nothing there, expected a number with a unit such as \"40GiB\"");
  EXPECT_EQ(message_of([] { return parse_bytes("4Gb"); }),
            "\"4Gb\": unknown unit \"Gb\", expected one of B, kB, KB, MB, GB, TB, PB, KiB, MiB, "
            "GiB, TiB, PiB");
  EXPECT_EQ(message_of([] { return parse_bytes("9000PiB"); }),
            "\"9000PiB\": does not fit 64 bits of bytes");
  EXPECT_EQ(message_of([] { return parse_bytes("1e30B"); }),
            "\"1e30B\": does not fit 64 bits of bytes");
  EXPECT_EQ(message_of([] { return parse_bytes("1e999B"); }),
            "\"1e999B\": number out of range, expected a number with a unit such as \"40GiB\"");
  for (const char* text : {"nanGB", "infGB", "0x10GB", "1,5GB", "1 2GB", ".5GB", "+1GB"}) {
    EXPECT_THROW(static_cast<void>(parse_bytes(text)), std::invalid_argument) << text;
  }
}

TEST(ParseBytesPerSecond, TellsBitsFromBytes) {
  EXPECT_DOUBLE_EQ(parse_bytes_per_second("400Gb/s").per_second(), 50e9);
  EXPECT_DOUBLE_EQ(parse_bytes_per_second("450GB/s").per_second(), 450e9);
  EXPECT_DOUBLE_EQ(parse_bytes_per_second("24 GiB/s").per_second(), 24.0 * 1073741824.0);
  EXPECT_THROW(static_cast<void>(parse_bytes_per_second("400Gbps")), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(parse_bytes_per_second("400GB")), std::invalid_argument);
}

TEST(ParseSeconds, ReadsTimes) {
  EXPECT_DOUBLE_EQ(parse_seconds("5us").count(), 5e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("130ns").count(), 130e-9);
  EXPECT_DOUBLE_EQ(parse_seconds("1.5 ms").count(), 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_seconds("2s").count(), 2);
  EXPECT_EQ(message_of([] { return parse_seconds("5 sec"); }),
            "\"5 sec\": unknown unit \"sec\", expected one of ns, us, ms, s");
}

TEST(ToString, OfBytesTakesTheLargestFittingUnit) {
  // 7e9 parameters of 2 bytes: 14e9 / 2^30 = 13.0385
  EXPECT_EQ(to_string(Bytes(14'000'000'000)), "13.04 GiB");
  // 112e9 / 2^30 = 104.308
  EXPECT_EQ(to_string(Bytes(112'000'000'000)), "104.31 GiB");
  EXPECT_EQ(to_string(512_MiB), "512.0 MiB");
  EXPECT_EQ(to_string(96_B), "96 B");
  EXPECT_EQ(to_string(0_B), "0 B");
  EXPECT_EQ(to_string(1023_B), "1023 B");
  EXPECT_EQ(to_string(1_KiB), "1.0 KiB");
  EXPECT_EQ(to_string(Bytes((1LL << 30) - 1)), "1.00 GiB");  // not "1024.0 MiB"
  EXPECT_EQ(to_string(Bytes(-3 * (1LL << 30))), "-3.00 GiB");
  EXPECT_EQ(to_string(1536_GiB), "1.50 TiB");
}

TEST(ToString, OfSecondsTakesTheLargestFittingUnit) {
  EXPECT_EQ(to_string(Seconds(1.2341)), "1.234 s");
  EXPECT_EQ(to_string(Seconds(12.3e-3)), "12.3 ms");
  EXPECT_EQ(to_string(Seconds(4.5e-6)), "4.5 us");
  EXPECT_EQ(to_string(Seconds(130e-9)), "130.0 ns");
  EXPECT_EQ(to_string(Seconds(0.99999)), "1.000 s");  // not "1000.0 ms"
  EXPECT_EQ(to_string(Seconds(0)), "0 s");
  EXPECT_EQ(to_string(Seconds(-2)), "-2.000 s");
}

}  // namespace
}  // namespace zerosim
