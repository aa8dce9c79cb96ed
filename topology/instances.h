/// \file
/// Where the instances of communicators lie, and which shared links they load.
///
/// Ranks fill nodes one after the other. NCCL's node is what NVLink joins: one node, or
/// `Fabric::nvlink_domain_nodes` of them. On each a group drives the NICs that are nearest to its
/// GPUs, and V bytes that cross the border of a node are spread evenly over them. A ring goes from
/// one of its nodes to the next and from the last to the first.
///
/// Shared links have numbers: NIC i of the used ones on node n is n x nics + i; the fabric's
/// follow; then, where they matter, slots and uplinks, node by node (slot_loads.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/collective_model.h"
#include "topology/folding.h"

namespace zerosim {

class InstanceMap {
 public:
  /// \param ranks  those that take part, the first of the cluster
  /// \param slots  whether slots and uplinks matter
  /// \throws ConfigError  if the fabric has no room for the cluster's nodes
  InstanceMap(const Cluster& cluster, int ranks, bool slots = false);
  ~InstanceMap();
  InstanceMap(const InstanceMap&) = delete;
  InstanceMap& operator=(const InstanceMap&) = delete;

  /// NICs of a node that its used GPUs drive, as the node numbers them.
  [[nodiscard]] const std::vector<int>& nics() const;
  [[nodiscard]] int nic_links() const;  ///< of all nodes that take part
  [[nodiscard]] int link_count() const;
  [[nodiscard]] const FabricNetwork& fabric() const;
  [[nodiscard]] LinkClass::Kind kind(int link) const;
  [[nodiscard]] BytesPerSecond capacity(int link) const;
  [[nodiscard]] std::string name(int link) const;  ///< "node3.nic0", "leaf1.up", "node3.gpu0.h2d"
  [[nodiscard]] bool is_uplink(int link) const;
  /// Both directions of a GPU's slot; none where slots do not matter or the node takes no part.
  [[nodiscard]] std::vector<int> slots(int node, int gpu) const;

  /// Where an instance lies; what it loads is appended to `uses`, each link once, in their order.
  CollectiveGroup place(const GroupPattern& group, int instance, std::vector<LinkShare>& uses);

  /// The shared links that the sends of each rank of a ring load, in the order of ranks: together
  /// what `place` says. Links are numbered as here.
  [[nodiscard]] std::vector<RingSend> ring_sends(const GroupPattern& group, int instance);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Instances of a group among `ranks` ranks.
/// \throws SimulationError  if they do not tile the ranks
[[nodiscard]] int instance_count(const GroupPattern& group, int ranks);
/// The k-th rank of an instance.
[[nodiscard]] constexpr int rank_of(const GroupPattern& group, int instance, int k) {
  return instance / group.stride * group.size * group.stride + instance % group.stride +
         k * group.stride;
}
[[nodiscard]] constexpr int instance_of(const GroupPattern& group, int rank) {
  return rank / (group.size * group.stride) * group.stride + rank % group.stride;
}

/// Of the instance that rank 0 is in.
[[nodiscard]] CollectiveGroup group_shape(const Cluster& cluster, const GroupPattern& group);

}  // namespace zerosim
