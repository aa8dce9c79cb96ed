/// \file
/// Text: formatting, and the nearest known name for a misspelt one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace zerosim {

using fmt::format;

/// The candidate of least Damerau-Levenshtein distance to `name`, of equals the one that begins so
/// for longest, then the first; "" if none is within a third of its length (at least 2).
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       std::span<const std::string> candidates);

/// `; did you mean "x"?`, or "" if nothing is near.
[[nodiscard]] std::string did_you_mean(std::string_view name,
                                       std::span<const std::string> candidates);

/// "a, b, c".
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);

/// ASCII letters; others stay as they are.
[[nodiscard]] std::string lower_case(std::string_view text);
[[nodiscard]] std::string upper_case(std::string_view text);

/// Columns that every report for people stays within.
inline constexpr int kReportColumns = 100;

/// Breaks `text` at spaces into lines of at most `width` columns; a word that is longer is cut. The
/// first line begins with `first`, the others with as many spaces.
[[nodiscard]] std::string wrap(std::string_view text, int width, std::string_view first = "");

/// "1 log", "2 logs".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view what);

/// Reads a whole file. \throws ConfigError if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);

}  // namespace zerosim
