/// \file
/// The only parser that we write: Hjson, as DeepSpeed's loader reads it, rewritten as JSON.
///
/// Accepted beyond JSON: `#`, `//` and `/* */` comments; keys without quotes; line ends in place of
/// commas; trailing commas; strings in single quotes, in `'''` over several lines, or without
/// quotes to the end of the line; a root object without braces. Number, true, false and null end at
/// a comma, a closing bracket, a comment or the end of the line; anything else without quotes is a
/// string that includes what looks like a comment (https://hjson.github.io/syntax.html).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/json.h"

namespace zerosim::internal {

/// Deepest nesting of objects and arrays that any of our readers accepts.
inline constexpr int kMaximumJsonDepth = 200;

/// JSON on one line, and where each of its characters comes from.
struct NormalisedText {
  std::string json;
  std::vector<std::size_t> origin;  ///< json[i] stands at text[origin[i]]; one more for the end
  std::optional<JsonFinding> beyond_json;  ///< the first thing that strict JSON lacks
  std::vector<JsonFinding> duplicates;     ///< keys that their object already has, the first 100
};

/// \throws ConfigError  with line and column. Findings made before it are kept in `result`.
void normalise_hjson(std::string_view text, const std::string& name, NormalisedText& result);

/// \throws ConfigError  at the first NUL, or byte that is not UTF-8.
void check_characters(std::string_view text, const std::string& name);

/// Line and column (in characters, not bytes) of a byte of `text`.
[[nodiscard]] SourceLocation locate(std::string_view text, std::size_t offset,
                                    const std::string& name);

/// Whether `text` is a number by the grammar of JSON (RFC 8259 section 6).
[[nodiscard]] bool is_json_number(std::string_view text);

}  // namespace zerosim::internal
