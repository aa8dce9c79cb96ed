/// \file
/// Text: formatting, and the nearest known name for a misspelt one.
#pragma once

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

/// Reads a whole file. \throws ConfigError if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);

}  // namespace zerosim
