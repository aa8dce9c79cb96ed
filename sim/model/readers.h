/// \file
/// The readers behind `load_model`, one for each kind of file.
#pragma once

#include "sim/base/json.h"
#include "sim/model/model.h"

namespace zerosim::internal {

/// `"model_type"` of the root says which family.
[[nodiscard]] Model read_hugging_face(const JsonDocument& document);

/// `"format"` of the root is "zerosim.module_listing".
[[nodiscard]] Model read_listing(const JsonDocument& document);

}  // namespace zerosim::internal
