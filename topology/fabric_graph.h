/// \file
/// The graph of a fabric, drawn in full: what `zerosim topo show` and tests ask about. Simulations
/// ask FabricNetwork instead, which needs none.
///
/// Vertices are places of nodes with their NICs, and switches; every cable, or the bundle of all
/// cables between two switches, is two edges, one in each direction. So maximum flows, cuts and
/// paths are Boost.Graph's.
#pragma once

#include <string>
#include <vector>

#include <boost/graph/adjacency_list.hpp>

#include "topology/fabric.h"

namespace zerosim {

enum class FabricVertexKind { Nic, Leaf, Spine, Core, Router };

struct FabricVertex {
  FabricVertexKind kind = FabricVertexKind::Nic;
  int index = 0;   ///< among its kind; a NIC: place x NICs + number
  int place = -1;  ///< NIC: of its node
};

struct FabricEdge {
  BytesPerSecond bandwidth;  ///< one direction, as FabricNetwork counts it
  /// The link of the FabricNetwork that this edge is part of; -1: a NIC's own.
  int link = -1;
  double part = 1;    ///< of that link
  bool down = false;  ///< the direction that is not counted, of the link of the way up
};

using FabricGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, FabricVertex, FabricEdge>;

/// All places, used or not; their NICs come first, in order. Switches above a leaf are drawn as if
/// each leaf reached every spine of its pod and each spine every core of its plane alike. NICs of a
/// torus hang from its routers; a single switch is one leaf.
[[nodiscard]] FabricGraph expand(const FabricNetwork& network);

/// From NICs of `from` to NICs of `to` (places), one direction: the maximum flow.
[[nodiscard]] BytesPerSecond flow_between(const FabricGraph& graph, const std::vector<int>& from,
                                          const std::vector<int>& to);

/// What the NICs of the first half of the nodes can send to those of the second half together, one
/// direction. Of an odd number of nodes the middle one takes no part. Not the least over all ways
/// to halve them, which nobody can compute for large graphs; with nodes in order it is in a tree
/// and in a torus with its longest dimension last, and in a dragonfly it is the natural one.
[[nodiscard]] BytesPerSecond bisection_bandwidth(const FabricNetwork& network);

}  // namespace zerosim
