/// \file
/// Which groups of published runs constants are fitted on, and which judge them.
///
/// Rows of one group differ in one knob and are not independent, so groups are split, by hand, so
/// that each kind of GPU and each family of frameworks lies on both sides where there are two
/// groups of it. A group that the table does not name is for judging: so is every new one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zerosim {

/// Groups whose rows constants may be fitted to.
[[nodiscard]] std::span<const std::string_view> groups_for_fitting();
[[nodiscard]] bool is_for_fitting(const std::string& group);

}  // namespace zerosim
