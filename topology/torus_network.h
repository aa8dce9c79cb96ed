/// \file
/// Torus: each node is joined with its two neighbours in each dimension (BlueGene, TPU pods;
/// spec/topologies.md section 3).
///
/// Node (x0, x1, ...) has number x0 + d0 (x1 + d1 (x2 + ...)); all its NICs share its router.
/// Messages correct one dimension after the other, the shortest way round; of two ways that are as
/// short, the one upwards. Links are one direction each: "node5.dim0+" leads from node 5 to its
/// neighbour upwards in dimension 0. A dimension of 2 has one cable, not two.
///
/// Not modelled: twisted tori, meshes without wrap-around, adaptive routes.
#pragma once

#include <string>
#include <vector>

#include "topology/fabric_link.h"

namespace zerosim {

struct TorusShape {
  std::vector<int> dimensions;
  BytesPerSecond cable;  ///< one direction
};

class TorusNetwork {
 public:
  /// \throws ConfigError  if the dimensions have no place for so many nodes
  TorusNetwork(TorusShape shape, int nodes);

  [[nodiscard]] const std::vector<FabricLevel>& levels() const { return levels_; }
  [[nodiscard]] std::string name(int link) const;
  void route(int from, int to, std::vector<FabricShare>& links) const;
  /// Cables on the way: NCCL's figure holds the first.
  [[nodiscard]] int switches(int from, int to) const;
  [[nodiscard]] FabricCounts counts() const;

  // What a drawing of it needs (fabric_graph.h).

  /// Places of the torus, used or not.
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int dimensions() const { return static_cast<int>(shape_.dimensions.size()); }
  /// The next node in a dimension; -1 where there is no such cable (`up` false in a dimension of 2,
  /// or a dimension of 1).
  [[nodiscard]] int neighbour(int node, int dimension, bool up) const;
  [[nodiscard]] int link(int node, int dimension, bool up) const;

 private:
  [[nodiscard]] int extent(int dimension) const;
  [[nodiscard]] int stride(int dimension) const;
  [[nodiscard]] int coordinate(int node, int dimension) const;
  /// Steps upwards (positive) or downwards from one node's coordinate to another's.
  [[nodiscard]] int steps(int from, int to, int dimension) const;

  TorusShape shape_;
  std::vector<int> strides_;
  int size_ = 1;
  std::vector<FabricLevel> levels_;
};

}  // namespace zerosim
