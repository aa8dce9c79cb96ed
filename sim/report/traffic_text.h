/// \file
/// Renders what the links carried in a step (Timeline::links): a row for each class of links, those
/// of a kind that carry alike in one.
#pragma once

#include <string>

#include "sim/base/json.h"
#include "sim/engine/timeline.h"

namespace zerosim {

/// The busiest of each kind first.
[[nodiscard]] std::string traffic_text(const Timeline& timeline);

/// A list of all classes: {name, kind, multiplicity, bandwidth, bytes, utilisation, busy,
/// most_at_once}; bytes and the rest of one link, busy in seconds.
[[nodiscard]] JsonValue traffic_json(const Timeline& timeline);

}  // namespace zerosim
