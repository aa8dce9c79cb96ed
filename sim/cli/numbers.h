/// \file
/// Whole numbers on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zerosim {

struct IntegerRange {
  std::int64_t minimum = 1;
  std::int64_t maximum = INT64_MAX;
};

// Far above anything that exists, and small enough that no product of them leaves 64 bits.
inline constexpr IntegerRange kParameterRange{1, 1'000'000'000'000'000};  // 10^15
inline constexpr IntegerRange kNodeRange{1, 100'000};
inline constexpr IntegerRange kGpusPerNodeRange{1, 1024};
inline constexpr IntegerRange kWorldRange{1, 10'000'000};
inline constexpr IntegerRange kMicroBatchRange{1, 1'000'000};
inline constexpr IntegerRange kSequenceRange{1, 100'000'000};
/// A program holds each micro step: 1024 of a 7B model are some millions of operations.
inline constexpr IntegerRange kGradAccumRange{1, 4096};
inline constexpr IntegerRange kStepRange{1, 100};

/// Reads "4", "7e9", "7.5e9", "2851e6": decimal, exact, and whole.
/// \param flag  for messages: "--nodes".
/// \throws ConfigError  naming the flag, what was found, and the range.
[[nodiscard]] std::int64_t parse_integer(std::string_view text, std::string_view flag,
                                         const IntegerRange& range);

/// Reads "0.05", "1e-3".
/// \throws ConfigError  if it is not a finite number of at least 0.
[[nodiscard]] double parse_non_negative(std::string_view text, std::string_view flag);

}  // namespace zerosim
