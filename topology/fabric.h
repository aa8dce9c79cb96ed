/// \file
/// The network between nodes: which links a message loads on its way from one node's NIC to
/// another node's.
///
/// A fabric is described by a handful of parameters, whatever its size; `FabricNetwork` answers
/// questions about it without ever building a graph, so that 16,384 nodes cost no more than the
/// links that are asked for. NICs are not among its links: they belong to the nodes.
///
/// Only one direction of each link is counted where both carry the same: what NCCL's rings, trees
/// and exchanges put on the way up of a leaf, they put on its way down, too. Where that does not
/// hold (hashed flows, dragonfly, torus) each direction is a link.
///
/// Latency. NCCL's own network figures hold the NICs, one switch and its cables, whatever their
/// kind: with them, published curves of InfiniBand and RoCE clusters alike need nothing beyond
/// (spec/nccl_cost.md section 7.1). So each *further* switch adds `hop_latency`: the switch (0.13
/// us InfiniBand, 0.6 us Ethernet) and the cable to it (5 ns a metre; spec/topologies.md section
/// 3). A single switch adds nothing, unless its `hop_latency` is given: then that, once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/units.h"
#include "topology/clos_network.h"
#include "topology/dragonfly_network.h"
#include "topology/fabric_link.h"
#include "topology/torus_network.h"

namespace zerosim {

enum class FabricKind {
  Switch,         ///< one switch that never is the bottleneck
  LeafSpine,      ///< two tiers, a leaf serves all NICs of its nodes
  RailOptimised,  ///< leaf r of a unit of nodes serves their NICs r
  FatTree,        ///< three tiers, a leaf serves all NICs of its nodes
  Dragonfly,
  Torus,
};

[[nodiscard]] std::string_view to_string(FabricKind kind);
/// "switch", "leaf-spine", "rail-optimised", "fat-tree", "dragonfly", "torus": in order of the
/// enum.
[[nodiscard]] const std::vector<std::string>& fabric_kind_names();

/// Where the nodes of a job are: node i at place i of the fabric, or at places drawn from `among`
/// (as a cloud's scheduler gives them), in random order.
struct Placement {
  bool scattered = false;
  std::uint64_t seed = 1;
  int among = 0;  ///< places; 0: as many as nodes
};

struct Fabric {
  FabricKind kind = FabricKind::Switch;
  double efficiency = 1.0;  ///< what is left of every NIC's and cable's rate (congestion)
  Seconds hop_latency{0};   ///< of each switch but the first; of a single switch: see above
  bool sharp = false;       ///< InfiniBand's switches reduce (SHARP; CollNet in NCCL)
  /// Nodes that NVLink joins (NVL72: 18 trays of 4 GPUs); NCCL takes them for one.
  int nvlink_domain_nodes = 1;
  /// NICs of a node, used or not: the fabric has ports for all; 0: the used ones.
  int node_nics = 0;
  Placement placement;
  ClosShape clos;            ///< LeafSpine, RailOptimised, FatTree
  DragonflyShape dragonfly;  ///< Dragonfly
  TorusShape torus;          ///< Torus

  /// Whether flows are hashed: nothing is alike then, and nothing can be folded.
  [[nodiscard]] bool hashed() const;
};

/// The links of a fabric with `nodes` nodes, and the way between any two.
class FabricNetwork {
 public:
  /// One switch has no links of its own.
  struct SingleSwitch {};
  using Network = std::variant<SingleSwitch, ClosNetwork, DragonflyNetwork, TorusNetwork>;

  /// \param nics           of one node that are used
  /// \param nic_bandwidth  what one NIC can use, one direction
  /// \throws ConfigError   if the fabric has no room for so many nodes
  FabricNetwork(const Fabric& fabric, int nodes, int nics, BytesPerSecond nic_bandwidth);

  [[nodiscard]] int link_count() const;
  [[nodiscard]] BytesPerSecond capacity(int link) const;
  [[nodiscard]] std::string name(int link) const;  ///< "leaf3.up", "unit3.rail0.up"
  [[nodiscard]] std::vector<FabricLevel> levels() const;
  /// Links with this name, or all of this level; none if it is neither.
  [[nodiscard]] std::vector<int> links_named(std::string_view name_or_level) const;

  /// Appends the links on the way from NIC `from_nic` of node `from` to node `to`, another one:
  /// each link once. `from_nic` is the node's own number, below all_nics(): it is on that rail,
  /// whatever other NICs are used.
  void route(int from, int from_nic, int to, std::vector<FabricShare>& links) const;
  /// Switches on that way.
  [[nodiscard]] int switches(int from, int from_nic, int to) const;
  /// What that way costs beyond NCCL's own figure: see the file comment.
  [[nodiscard]] Seconds latency(int from, int from_nic, int to) const;

  [[nodiscard]] int nodes() const { return nodes_; }
  [[nodiscard]] int nics() const { return nics_; }
  /// Of a node, used or not.
  [[nodiscard]] int all_nics() const { return all_nics_; }
  [[nodiscard]] BytesPerSecond nic_bandwidth() const { return nic_bandwidth_; }
  /// Places of nodes, used or not.
  [[nodiscard]] int places() const;
  /// Where node `node` is.
  [[nodiscard]] int place(int node) const {
    return places_.empty() ? node : places_[static_cast<std::size_t>(node)];
  }
  /// Of the whole fabric, unused places included.
  [[nodiscard]] FabricCounts counts() const;
  [[nodiscard]] const Network& network() const { return network_; }

 private:
  int nodes_;
  int nics_;
  int all_nics_;
  BytesPerSecond nic_bandwidth_;
  Seconds hop_latency_;
  int all_places_;
  std::vector<int> places_;  ///< of each node; empty: its own number
  Network network_;
};

}  // namespace zerosim
