/// \file
/// YAML, parsed by yaml-cpp and rewritten as JSON with the values that PyYAML gives it.
///
/// PyYAML's safe loader, which accelerate and transformers use, resolves scalars as YAML 1.1 does
/// (https://yaml.org/type/): `yes` and `off` are booleans, `010` is 8, `1:30` is 90, and `5e8` is
/// text, since a float needs a dot and a signed exponent. Merge keys (`<<`) are merged, the last of
/// duplicate keys wins. Differences: `.inf`, `.nan` and timestamps stay text, which JSON has no
/// other form for; keys are text (`on:` is the key "on").
#pragma once

#include <string>
#include <string_view>

#include "sim/base/hjson.h"

namespace zerosim::internal {

/// `beyond_json` stays empty. \param text  UTF-8 without NUL
/// \throws ConfigError  with line and column: syntax, several documents, a tag beyond YAML's own, a
///                      key that is not a scalar, nesting deeper than kMaximumJsonDepth, an alias
///                      inside its own anchor, more than 1 MiB once aliases are written out.
void normalise_yaml(std::string_view text, const std::string& name, NormalisedText& result);

}  // namespace zerosim::internal
