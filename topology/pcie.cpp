#include "topology/pcie.h"

#include "sim/base/error.h"

namespace zerosim {

PcieFigures pcie_figures(int generation) {
  switch (generation) {
    case 6:
      return {121_GBps, 105_GBps, 460.8_GBps, "12 channels of DDR5-4800"};
    case 5:
      return {63_GBps, 52_GBps, 307.2_GBps, "8 channels of DDR5-4800"};
    case 4:
      return {31.5_GBps, 25_GBps, 204.8_GBps, "8 channels of DDR4-3200"};
    case 3:
      return {15.75_GBps, 12.5_GBps, 128_GBps, "6 channels of DDR4-2666"};
    default:
      ZS_CHECK(false, "a generation of PCIe without figures");
  }
}

BytesPerSecond pcie_peak(int generation, int width) {
  constexpr int kLanes = 16;
  // Generations 1 and 2: 2.5 and 5 GT/s, of which 8 bits in 10 are data.
  const BytesPerSecond x16 = generation == 1   ? 4_GBps
                             : generation == 2 ? 8_GBps
                                               : pcie_figures(generation).peak;
  return BytesPerSecond(x16.per_second() * width / kLanes);
}

}  // namespace zerosim
