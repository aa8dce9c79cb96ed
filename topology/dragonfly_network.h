/// \file
/// Dragonfly: groups of switches, all joined within a group, all groups joined with each other
/// (spec/topologies.md section 3: Slingshot; Kim, Dally, Scott, Abts, "Technology-driven,
/// highly-scalable dragonfly topology", 2008).
///
/// All NICs of a node hang from one switch. Each pair of a group's S switches is joined by
/// `local_links` cables, each pair of the G groups by
///
///     L = floor(nodes per switch x NICs x S / taper / (G - 1))
///
/// cables, dealt out over the S switches in turn: cable j of the i-th other group is at switch
/// (i L + j) mod S, its gateway. Links are local (switch s to switch t of a group) and global (all
/// L cables from group g to group h), each direction one of its own.
///
/// A *minimal* way takes one local link, or local - global - local, spread evenly over the L
/// cables. *Adaptive* routing is taken for an ideal spread over all ways with at most one detour:
/// within a group 1/(S - 1) of a message goes directly and as much by each other switch; between
/// groups 1/(G - 1) directly and as much by each other group. Real adaptive routing stays minimal
/// while the network is idle, so this is what it comes to under load; the latency is that of the
/// minimal way. A message between groups takes minimal ways to and from its gateways.
///
/// Not modelled: switches of one group that are joined in rows and columns (Aries).
#pragma once

#include <string>
#include <vector>

#include "topology/fabric_link.h"

namespace zerosim {

enum class DragonflyRouting { Minimal, Adaptive };

struct DragonflyShape {
  int nodes_per_switch = 4;
  int switches_per_group = 16;
  int local_links = 1;  ///< cables between two switches of a group
  double taper = 1;     ///< rate of a group's NICs over that of its global cables
  DragonflyRouting routing = DragonflyRouting::Adaptive;
  BytesPerSecond cable;  ///< rate of a cable; 0: as a NIC
};

class DragonflyNetwork {
 public:
  /// \throws ConfigError  if a group has fewer global cables than there are other groups
  DragonflyNetwork(const DragonflyShape& shape, int nodes, int nics, BytesPerSecond nic_bandwidth);

  [[nodiscard]] const std::vector<FabricLevel>& levels() const { return levels_; }
  [[nodiscard]] std::string name(int link) const;
  void route(int from, int to, std::vector<FabricShare>& links) const;
  /// Of the longest minimal way: 1 to 4.
  [[nodiscard]] int switches(int from, int to) const;
  [[nodiscard]] FabricCounts counts() const;

  // What a drawing of it needs (fabric_graph.h). Switches are numbered across groups.

  [[nodiscard]] int groups() const { return groups_; }
  [[nodiscard]] int switches_per_group() const { return shape_.switches_per_group; }
  [[nodiscard]] int global_links() const { return global_links_; }
  [[nodiscard]] int switch_of(int node) const { return node / shape_.nodes_per_switch; }
  [[nodiscard]] int group_of(int switch_number) const {
    return switch_number / shape_.switches_per_group;
  }
  /// The switch of `group` that holds cable `cable` to `other`.
  [[nodiscard]] int gateway(int group, int other, int cable) const;
  /// Cables 0 to gateways() - 1 of a pair of groups are at different switches; the others repeat
  /// them.
  [[nodiscard]] int gateways() const;
  /// What part of the cables between two groups is where cable `cable` of them is.
  [[nodiscard]] double gateway_share(int cable) const;
  /// Between two switches of one group.
  [[nodiscard]] int local_link(int from_switch, int to_switch) const;
  [[nodiscard]] int global_link(int from_group, int to_group) const;

 private:
  void add_levels(double cable_rate);
  void add_local(int from_switch, int to_switch, double share,
                 std::vector<FabricShare>& links) const;
  void route_adaptively(int from_switch, int to_switch, std::vector<FabricShare>& links) const;
  void route_in_group(int from_switch, int to_switch, std::vector<FabricShare>& links) const;
  void route_between(int from_switch, int to_switch, double share,
                     std::vector<FabricShare>& links) const;
  void route_by_group(int from_switch, int by_group, int to_switch, double share,
                      std::vector<FabricShare>& links) const;

  DragonflyShape shape_;
  int nodes_;
  int nics_;
  int groups_ = 1;
  int global_links_ = 0;
  std::vector<FabricLevel> levels_;
};

}  // namespace zerosim
