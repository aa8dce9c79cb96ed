/// \file
/// What the links carried in a step.
#pragma once

#include <cstdint>
#include <string>

#include "sim/base/units.h"
#include "topology/cluster.h"

namespace zerosim {

/// One link of a class of Folding::links, or the device memory of a rank class; the others of the
/// class carry the same. Of the operations of the last step of a run.
///
/// `bytes` are what loads the link: with the flags of NCCL's low-latency protocols, and of copies
/// of pageable memory what stands for their slowness (`HostTimes::pageable_copy`). Bursts of other
/// jobs are not counted, nor what a background takes: that is out of the capacity.
struct LinkTraffic {
  LinkClass::Kind kind = LinkClass::Kind::IntraNode;
  std::string name;  ///< of the first of its class: "node0.gpu0.nvlink"
  std::int64_t multiplicity = 1;
  BytesPerSecond capacity;  ///< one direction; of device memory what kernels can draw from it
  double bytes = 0;
  Seconds busy{0};       ///< while at least one transfer or kernel loaded it
  int most_at_once = 0;  ///< transfers and kernels; copies in step (folding.h) are one
  bool uplink = false;   ///< of a PCIe switch
};

/// Share of what it could carry in `step`.
[[nodiscard]] double utilisation(const LinkTraffic& link, Seconds step);

}  // namespace zerosim
