/// \file
/// What copies, rings over PCIe and traffic of NICs load of one node's slots and uplinks
/// (host_links.h).
///
/// Each is a sum of *hops*, from a device to the next. A hop leaves by the slot of its GPU and the
/// uplinks above it that are not above the other end, too, and arrives likewise; where GPUs cannot
/// copy directly (IntraNode::PcieHostStaged) it goes by the CPU, that is by all uplinks of both. A
/// NIC that hangs from the GPU itself is reached without its slot.
///
/// Of a group with V bytes, s = 1 / (NICs that it drives):
///
///     NVLink   each NIC takes s V from the GPU of the group that is nearest to it and gives it as
///              much (equal parts, where several are)
///     PCIe     one ring by each NIC, with s V: in the order of ranks from the nearest GPU around
///              to the one before it. Without NICs one ring, with V. In an all-to-all each GPU
///              sends V / (ranks - 1) to every other one of the node; what is for other nodes goes
///              to all NICs.
///
/// Links of a node: slot of GPU i, from the host 2 i, to the host 2 i + 1; uplinks follow alike.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/folding.h"
#include "topology/host_links.h"
#include "topology/node_graph.h"

namespace zerosim {

/// Sums of the same terms in another order differ in their last bits: shares keep 40 of them, so
/// that links that are loaded alike are found to be.
[[nodiscard]] double rounded_share(double share);

/// A group's part on one node.
struct NodePart {
  std::span<const int> gpus;  ///< in the order of ranks
  std::span<const int> nics;  ///< that it drives, as the node numbers them; none on one node
  double nic_share = 1;       ///< of V, on each of them
  int ranks = 1;              ///< of the whole group
};

class SlotLoads {
 public:
  /// \param cluster  whose `NodeTemplate::host_link` is known
  explicit SlotLoads(const Cluster& cluster);

  [[nodiscard]] int links_of_node() const;
  /// "gpu3.h2d", "switch1.up"
  [[nodiscard]] std::string name(int link) const;
  [[nodiscard]] BytesPerSecond capacity(int link) const;
  [[nodiscard]] static LinkClass::Kind kind(int link);
  /// Whether a GPU hangs below a slot or uplink.
  [[nodiscard]] bool is_below(int gpu, int link) const;
  /// A GPU's slot, towards the host or from it.
  [[nodiscard]] static int slot(int gpu, bool to_host) { return 2 * gpu + (to_host ? 1 : 0); }

  /// What a collective loads, each link once, in order.
  [[nodiscard]] std::vector<LinkShare> of_group(const NodePart& part) const;
  /// What copies of a GPU load, both directions.
  [[nodiscard]] std::vector<LinkShare> of_copies(int gpu) const;

 private:
  class Sum;
  void add_rings(const NodePart& part, Sum& sum) const;
  void add_exchange(const NodePart& part, Sum& sum) const;
  [[nodiscard]] std::vector<std::size_t> nearest(const NodePart& part, int nic) const;

  HostLinks links_;
  bool rings_over_pcie_ = false;
  bool direct_ = false;                       ///< GPUs copy to each other
  std::vector<std::vector<PathKind>> paths_;  ///< by GPU and NIC
  std::vector<int> gpu_above_;                ///< by NIC: the GPU that it hangs from; -1: none
};

}  // namespace zerosim
