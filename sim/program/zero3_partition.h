/// \file
/// Over which ranks ZeRO-3 partitions parameters: all of them (C1.1), or with MiCS over shards of
/// some ranks that are replicated (C11).
#pragma once

#include <cstdint>

#include "sim/program/frameworks.h"

namespace zerosim {

class Zero3Partition {
 public:
  /// Adds the groups that MiCS needs to the Program (0.5).
  /// \throws ConfigError  if the shards do not divide the ranks.
  explicit Zero3Partition(const FrameworkContext& context);

  /// Ranks that together hold one copy of the parameters, and this rank's group of them.
  [[nodiscard]] std::int64_t ranks() const { return ranks_; }
  [[nodiscard]] GroupId group() const { return group_; }
  [[nodiscard]] bool alone() const { return ranks_ == 1; }

  /// Copies of the parameters, and the group of the ranks that hold the same piece; MiCS only.
  [[nodiscard]] std::int64_t replicas() const { return replicas_; }
  [[nodiscard]] GroupId replica_group() const { return replica_group_; }

  /// Elements of one rank's piece of a parameter: ceil(n / ranks).
  [[nodiscard]] std::int64_t piece(std::int64_t elements) const {
    return (elements + ranks_ - 1) / ranks_;
  }
  /// All pieces together.
  [[nodiscard]] std::int64_t padded(std::int64_t elements) const {
    return piece(elements) * ranks_;
  }

 private:
  std::int64_t ranks_;
  std::int64_t replicas_ = 1;
  GroupId group_, replica_group_;
};

}  // namespace zerosim
