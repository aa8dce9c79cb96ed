/// \file
/// Slots and uplinks: what host copies, rings over PCIe and traffic of NICs have in common.
///
///     slot    of a GPU: its own link towards its CPU (PCIe; C2C of Grace)
///     uplink  of a PCIe switch, where more than one used GPU is below it or a slot below it is
///             wider
///
/// Each has two directions of one capacity. On the narrowest way between a GPU of the node and its
/// CPU a copy achieves `NodeTemplate::host_link`; of every other link the same part of its peak is
/// achieved.
///
/// Not modelled: links between CPUs, slots of NICs (their rate is the NIC's), host memory.
#pragma once

#include <vector>

#include "topology/cluster.h"

namespace zerosim {

struct Uplink {
  int pcie_switch = 0;      ///< as the node numbers it
  BytesPerSecond capacity;  ///< each direction
  int gpus = 0;             ///< used ones below it
};

struct HostLinks {
  std::vector<BytesPerSecond> slots;  ///< by used GPU, each direction; empty: rate not known
  std::vector<Uplink> uplinks;
  /// Indices into `uplinks` on the way to the CPU, the nearest first, by used GPU and by NIC.
  std::vector<std::vector<int>> above_gpu, above_nic;
};

[[nodiscard]] HostLinks host_links(const Cluster& cluster);

/// What one used GPU gets while all copy one way, the one that gets least.
[[nodiscard]] BytesPerSecond copy_rate_of_all(const HostLinks& links);

}  // namespace zerosim
