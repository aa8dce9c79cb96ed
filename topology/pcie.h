/// \file
/// Figures of PCI Express by generation, and of the hosts that have such slots
/// (spec/topologies.md section 1).
#pragma once

#include "sim/base/units.h"

namespace zerosim {

struct PcieFigures {
  BytesPerSecond peak;           ///< x16, one direction
  BytesPerSecond copy;           ///< what a copy to or from the host achieves on x16
  BytesPerSecond socket_memory;  ///< peak of one socket of the servers that have such slots
  const char* memory_channels = "";
};

/// \pre generation 3 to 6
[[nodiscard]] PcieFigures pcie_figures(int generation);

/// Peak of `width` lanes of generation 1 to 6, one direction.
[[nodiscard]] BytesPerSecond pcie_peak(int generation, int width);

}  // namespace zerosim
