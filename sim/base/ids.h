/// \file
/// Strong integer identifiers: a rank does not index devices.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace zerosim {

/// An index of the kind that `Tag` names; -1 means "none".
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  explicit constexpr Id(std::int32_t value) : value_(value) {}
  explicit constexpr Id(std::size_t value) : value_(static_cast<std::int32_t>(value)) {}
  [[nodiscard]] constexpr std::int32_t value() const { return value_; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  [[nodiscard]] constexpr bool valid() const { return value_ >= 0; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t value_ = -1;
};

using Rank = Id<struct RankTag>;              ///< process index, one per GPU
using ModuleId = Id<struct ModuleTag>;        ///< index into Model::modules
using ParameterId = Id<struct ParameterTag>;  ///< index into Model::parameters
using OpId = Id<struct OpTag>;                ///< index into RankProgram::ops
using StreamId = Id<struct StreamTag>;        ///< index into RankProgram::streams
using GroupId = Id<struct GroupTag>;          ///< index into Program::groups
using BufferId = Id<struct BufferTag>;        ///< index into RankProgram::buffers

}  // namespace zerosim
