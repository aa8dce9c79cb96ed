/// \file
/// The words by which people say how the GPUs of a job are joined: the column `link` of
/// data/nccl_tests/INDEX.csv, the columns `intra_node` and `inter_node` of
/// data/measured/training_runs.csv.
///
///     NVSwitch (NVLink4) + 8x400Gb NDR IB with SHARP
///     PCIe5 through host memory
///     20x NVL72 (NVLink5) + 4x400Gb IB per node
///     NVSwitch (NVLink3) + 8x2x100Gb RoCE          eight adapters of two ports: 16 of 100 Gb/s
///     NVSwitch (NVLink4) + 3.2 Tb/s EFA            of the node together
///     3.2 Tb/s per node (8x400Gb)                  the adapters where both are said
///     4x100Gb TCP (EFA off)
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/base/units.h"
#include "topology/cluster.h"
#include "topology/nccl_graph.h"

namespace zerosim {

/// Adapters of one node.
struct NetworkWords {
  std::optional<NetworkKind> kind;  ///< none: not said
  int count = 0;                    ///< 0: not said; `bandwidth` is then the node's
  int ports = 1;                    ///< of one card, each of which is counted
  BytesPerSecond bandwidth{};       ///< of each, one direction; 0: not said
};

struct LinkWords {
  std::optional<IntraNode> intra;
  int pcie_generation = 0;            ///< "PCIe3"; 0: not said
  int sockets = 0;                    ///< "dual socket": 2; 0: not said
  int racks = 0;                      ///< "2x NVL72": domains of NVLink; 0: not said
  bool in_network_reduction = false;  ///< SHARP
  std::optional<NetworkWords> network;
  std::string unknown;  ///< what is said of the network and not known; empty: nothing
};

[[nodiscard]] LinkWords read_link_words(std::string_view text);

}  // namespace zerosim
