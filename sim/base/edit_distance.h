/// \file
/// How far two spellings are apart. For messages there are `nearest_name` and `did_you_mean`
/// (sim/base/text.h).
#pragma once

#include <cstddef>
#include <string_view>

namespace zerosim {

/// Damerau-Levenshtein distance in its "optimal string alignment" form: insertions, deletions,
/// substitutions and swaps of neighbours cost 1 each, and no part is edited twice.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace zerosim
