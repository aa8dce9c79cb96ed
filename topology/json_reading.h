/// \file
/// What the readers of cluster files have in common: keys, names and ranges, refused with their
/// place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/units.h"

namespace zerosim {

/// Bounds of counts in a cluster file.
constexpr std::int64_t kMaxGpusPerNode = 1024;  // NVLink domains have at most 576
constexpr std::int64_t kMaxNodes = 1 << 20;

/// Refuses keys that are not in the list, before a misspelt one shows up as a missing one.
void expect_keys(JsonObject& object, std::initializer_list<const char*> known);

/// The value of `key` among `known` names. \throws ConfigError  that names the nearest.
[[nodiscard]] std::string one_of(JsonObject& object, const std::string& key,
                                 const std::vector<std::string>& known, std::string_view what);

/// An integer from `minimum` to `maximum`.
[[nodiscard]] int bounded_integer(JsonObject& object, const std::string& key, std::int64_t minimum,
                                  std::int64_t maximum);

/// A rate above 0.
[[nodiscard]] BytesPerSecond positive_rate(JsonObject& object, const std::string& key);

/// Watts: "500W", "500 W".
[[nodiscard]] double watts(JsonObject& object, const std::string& key);

/// A number above 0 and at most 1.
[[nodiscard]] double share_of_one(JsonObject& object, const std::string& key);

}  // namespace zerosim
