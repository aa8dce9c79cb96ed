/// \file
/// The network between nodes: which links a message loads on its way from one node's NIC to
/// another node's.
///
/// A fabric is described by a handful of parameters, whatever its size; `FabricNetwork` answers
/// questions about it without ever building a graph, so that 16,384 nodes cost no more than the
/// links that are asked for. NICs are not among its links: they belong to the nodes.
///
/// Only one direction of each link is counted: what NCCL's rings, trees and exchanges put on the
/// way up of a leaf, they put on its way down, too.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"

namespace zerosim {

enum class FabricKind {
  Switch,  ///< one switch that never is the bottleneck
};

struct Fabric {
  FabricKind kind = FabricKind::Switch;
  double efficiency = 1.0;  ///< what is left of every NIC's rate (ECMP collisions, congestion)
  Seconds hop_latency{0};   ///< of each switch on the way, beyond NCCL's own network latency
  /// Nodes that NVLink joins (NVL72: 18 trays of 4 GPUs); NCCL takes them for one.
  int nvlink_domain_nodes = 1;
};

/// What part of a message is on one link: 1 for a bundle that all of it takes, 1/8 for each of
/// eight links that share it evenly.
struct FabricShare {
  int link = 0;  ///< index into the network's links
  double share = 1;
};

/// The links of a fabric with `nodes` nodes, and the way between any two.
class FabricNetwork {
 public:
  /// \param nics           of one node that are used; NIC i is on rail i
  /// \param nic_bandwidth  what one NIC can use, one direction
  /// \throws ConfigError   if the fabric has no room for so many nodes
  FabricNetwork(const Fabric& fabric, int nodes, int nics, BytesPerSecond nic_bandwidth);

  [[nodiscard]] int link_count() const;
  [[nodiscard]] BytesPerSecond capacity(int link) const;
  [[nodiscard]] std::string name(int link) const;   ///< "leaf3.rail0.up"
  [[nodiscard]] std::string level(int link) const;  ///< links of one level are alike: "leaf uplink"

  /// Appends the links on the way from NIC `from_nic` of node `from` to node `to`, another one.
  void route(int from, int from_nic, int to, std::vector<FabricShare>& links) const;
  /// Switches on that way.
  [[nodiscard]] int switches(int from, int from_nic, int to) const;
};

}  // namespace zerosim
