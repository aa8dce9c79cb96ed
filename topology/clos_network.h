/// \file
/// Trees of switches in which everything goes up as far as it must and then down: leaf-spine, fat
/// tree, rail-optimised (spec/topologies.md section 3).
///
///     nodes -- leaves -- spines [-- cores]        a pod: leaves below one set of spines
///
/// Where leaves are *rails*, leaf r of a unit of nodes serves NIC r of each of them; else a leaf
/// serves all NICs of its nodes. NCCL leaves a node and enters the next by the same NIC, so traffic
/// keeps its rail. One leaf: 1 switch on the way; one pod: 3; else 5.
///
/// With an ideal spread (ECMP over equal ways, packet spraying) the uplinks of a leaf are one
/// bundle, and so are those of a pod's spines. Of d NICs below a leaf with oversubscription o:
///
///     leaf uplink   d x NIC / o x ECMP efficiency
///     spine uplink  (leaves of a pod) x d x NIC / (o x core oversubscription) x ECMP efficiency
///
/// Only the way up is listed: what NCCL's rings, trees and exchanges put on the way up of a leaf
/// they put on its way down, too. With `hashed` each flow (NIC, node, other node) takes one cable
/// at each level, chosen by its hash; cables then are links one by one, full speed each, and the
/// ways down are links of their own, as collisions there are others than on the way up.
///
/// Switches of a level all have the ports of a leaf (d + d/o). Spines are the fewest over which
/// each leaf's uplinks spread evenly, cores likewise: 1 to 4 units of a DGX H100 SuperPOD then have
/// the 4, 8, 16, 16 spines of its guide.
///
/// Not modelled: flow control and queues, and what collides on the way down of an ideal spread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fabric_link.h"

namespace zerosim {

struct ClosShape {
  bool rails = false;
  int nodes_per_leaf = 4;  ///< where leaves are rails: nodes of a unit
  int leaves_per_pod = 0;  ///< where leaves are rails: units of a pod; 0: all, so there is no core
  int most_pods = 0;       ///< that the cores have ports for; 0: any number
  double oversubscription = 1;
  double core_oversubscription = 1;
  double ecmp_efficiency = 1;  ///< what an imperfect spread leaves of each bundle
  bool hashed = false;
  std::uint64_t hash_seed = 1;
};

class ClosNetwork {
 public:
  /// \param nics  of one node, used or not
  /// \throws ConfigError  if there is no room for so many nodes
  ClosNetwork(const ClosShape& shape, int nodes, int nics, BytesPerSecond nic_bandwidth);

  [[nodiscard]] const std::vector<FabricLevel>& levels() const { return levels_; }
  [[nodiscard]] std::string name(int link) const;
  void route(int from, int nic, int to, std::vector<FabricShare>& links) const;
  [[nodiscard]] int switches(int from, int nic, int to) const;
  [[nodiscard]] FabricCounts counts() const;

  // What a drawing of it needs (fabric_graph.h).

  [[nodiscard]] const ClosShape& shape() const { return shape_; }
  [[nodiscard]] int leaves() const { return leaves_; }
  [[nodiscard]] int pods() const { return pods_; }
  [[nodiscard]] int leaf_of(int node, int nic) const;
  [[nodiscard]] int pod_of_leaf(int leaf) const;
  /// Cables of each leaf that go up.
  [[nodiscard]] int leaf_uplinks() const { return leaf_uplinks_; }
  [[nodiscard]] int spines_per_pod() const { return spines_per_pod_; }
  /// Cables of each spine that go up, 0 without cores; cable i of spine s goes to a core of plane
  /// s.
  [[nodiscard]] int spine_uplinks() const { return spine_uplinks_; }
  [[nodiscard]] int cores_per_plane() const { return cores_per_plane_; }
  /// Links of the way up and, where hashed, down; `cable` is 0 for a bundle.
  [[nodiscard]] int leaf_link(int leaf, int cable, bool down) const;
  [[nodiscard]] int spine_link(int pod, int cable, bool down) const;

 private:
  void count_switches();
  void add_levels(double nic_rate);
  void hashed_route(int from, int nic, int to, std::vector<FabricShare>& links) const;
  /// NICs below one leaf.
  [[nodiscard]] int leaf_nics() const;
  /// Leaves of a full pod.
  [[nodiscard]] int pod_leaves() const;
  [[nodiscard]] std::string leaf_name(int leaf) const;

  ClosShape shape_;
  int nodes_;
  int nics_;
  int leaves_ = 1;
  int pods_ = 1;
  int leaf_uplinks_ = 1;
  int spines_per_pod_ = 1;
  int spine_uplinks_ = 0;
  int cores_per_plane_ = 0;
  std::vector<FabricLevel> levels_;
};

}  // namespace zerosim
