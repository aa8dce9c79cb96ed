/// \file
/// "At most k outstanding" as DeepSpeed has it for gathers and reductions (C4.4, C6.5).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/program/builder.h"

namespace zerosim {

/// The host waits for the third event back, if it is not past.
class Throttle {
 public:
  void wait(RankProgramBuilder& builder, std::string_view rule) const {
    if (events_.size() >= kOutstanding) {
      builder.host_wait(events_[events_.size() - kOutstanding], rule);
    }
  }
  void record(OpId event) { events_.push_back(event); }

 private:
  static constexpr std::size_t kOutstanding = 3;

  std::vector<OpId> events_;
};

}  // namespace zerosim
