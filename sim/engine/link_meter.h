/// \file
/// Counts what is on each link of the machine while a run goes on (link_traffic.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/link_traffic.h"
#include "sim/engine/machine.h"
#include "topology/folding.h"

namespace zerosim::internal {

class LinkMeter {
 public:
  explicit LinkMeter(std::size_t machine_links) : counters_(machine_links) {}

  void begin(std::span<const LinkBytes> loads, Seconds now);
  /// Of what has begun with the same loads.
  void end(std::span<const LinkBytes> loads, Seconds now);

  /// The folding's links in their order, then the device memories of its rank classes.
  /// \param machine_links  by link of the folding; a rank class's memory has its own number
  /// \param capacities     of the machine's links
  [[nodiscard]] std::vector<LinkTraffic> traffic(const Folding& folding,
                                                 const std::vector<int>& machine_links,
                                                 const std::vector<double>& capacities,
                                                 int ranks_of_a_node) const;

 private:
  struct Counter {
    double bytes = 0;
    Seconds busy{0};
    Seconds since{0};  ///< where something is on it
    int now = 0;
    int most = 0;
  };

  std::vector<Counter> counters_;
};

}  // namespace zerosim::internal
