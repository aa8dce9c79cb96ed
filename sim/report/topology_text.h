/// \file
/// Renders a cluster: the node as a tree or as a matrix like `nvidia-smi topo -m`, what its links
/// amount to, and its fabric.
///
/// NUMA nodes, PCIe switches and rates are those of the node's graph. Where the matrix names a path
/// through a CPU, NODE stands for both of nvidia-smi's NODE and PHB (the graph has no host
/// bridges).
#pragma once

#include <string>

#include "sim/base/json.h"
#include "topology/cluster.h"
#include "topology/summary.h"

namespace zerosim {

/// Devices from the CPUs down, equal neighbours on one line, then the NVLinks.
[[nodiscard]] std::string topology_tree(const Cluster& cluster);

/// Kinds of paths, then their rates (GB/s, narrowest link, one direction), from each GPU to all
/// GPUs and NICs; in blocks of columns where they are many.
[[nodiscard]] std::string topology_matrix(const Cluster& cluster);

[[nodiscard]] std::string topology_summary(const Cluster& cluster, const TopologySummary& summary);

/// Rates in bytes per second, one direction. Devices are named "gpu0", "nvswitch0",
/// "pcie_switch0", "cpu0", "nic0".
[[nodiscard]] JsonValue topology_json(const Cluster& cluster, const TopologySummary& summary);

}  // namespace zerosim
