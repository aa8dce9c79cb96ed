/// \file
/// Links of a fabric, as its networks (clos_network.h, dragonfly_network.h, torus_network.h)
/// number them.
#pragma once

#include <cstdint>
#include <string>

#include "sim/base/units.h"

namespace zerosim {

/// What part of a message is on one link: 1 for a bundle that all of it takes, 1/8 for each of
/// eight links that share it evenly.
struct FabricShare {
  int link = 0;  ///< index into the network's links
  double share = 1;
};

/// Links that are alike and have consecutive numbers.
struct FabricLevel {
  std::string name;  ///< "leaf uplink"
  int first = 0;
  int count = 0;
  BytesPerSecond capacity;  ///< of each
};

/// Switches and cables, as the vendors' guides count them. Cables of a node are those of its NICs.
struct FabricCounts {
  std::int64_t leaves = 0;  ///< switches that nodes hang from; a dragonfly's are all of its
  std::int64_t spines = 0;
  std::int64_t cores = 0;
  std::int64_t node_cables = 0;
  std::int64_t leaf_cables = 0;   ///< leaf to spine; within the groups of a dragonfly; of a torus
  std::int64_t spine_cables = 0;  ///< spine to core; between the groups of a dragonfly
  [[nodiscard]] std::int64_t switches() const { return leaves + spines + cores; }
};

/// `count` in parts of `size`, the last one perhaps not full.
[[nodiscard]] constexpr int parts(int count, int size) {
  return count / size + (count % size == 0 ? 0 : 1);
}

/// Links that a fabric may have: those of a million nodes with 8 rails, twice.
constexpr std::int64_t kMostFabricLinks = 1 << 24;

/// \throws ConfigError  if there are more than `kMostFabricLinks`
[[nodiscard]] int checked_link_count(std::int64_t links);

}  // namespace zerosim
