#include "topology/torus_network.h"

#include <cstdlib>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

TorusNetwork::TorusNetwork(TorusShape shape, int nodes) : shape_(std::move(shape)) {
  for (const int extent : shape_.dimensions) {
    strides_.push_back(size_);
    size_ = checked_link_count(std::int64_t{size_} * extent);
  }
  if (nodes > size_) {
    throw ConfigError(
        format("fabric: a torus of {} places has no room for {} nodes", size_, nodes));
  }
  static_cast<void>(checked_link_count(std::int64_t{2} * dimensions() * size_));
  for (int dimension = 0; dimension < dimensions(); ++dimension) {
    levels_.push_back(
        {format("dimension {}", dimension), 2 * dimension * size_, 2 * size_, shape_.cable});
  }
}

int TorusNetwork::extent(int dimension) const {
  return shape_.dimensions[static_cast<std::size_t>(dimension)];
}
int TorusNetwork::stride(int dimension) const {
  return strides_[static_cast<std::size_t>(dimension)];
}
int TorusNetwork::coordinate(int node, int dimension) const {
  return node / stride(dimension) % extent(dimension);
}

int TorusNetwork::neighbour(int node, int dimension, bool up) const {
  const int size = extent(dimension);
  if (size == 1 || (size == 2 && !up)) return -1;
  const int here = coordinate(node, dimension);
  const int there = (here + (up ? 1 : size - 1)) % size;
  return node + (there - here) * stride(dimension);
}

int TorusNetwork::link(int node, int dimension, bool up) const {
  return 2 * (dimension * size_ + node) + (up ? 0 : 1);
}

std::string TorusNetwork::name(int link) const {
  const int place = link / 2;
  return format("node{}.dim{}{}", place % size_, place / size_, link % 2 == 0 ? "+" : "-");
}

int TorusNetwork::steps(int from, int to, int dimension) const {
  const int size = extent(dimension);
  const int up = (coordinate(to, dimension) - coordinate(from, dimension) + size) % size;
  return 2 * up <= size ? up : up - size;
}

void TorusNetwork::route(int from, int to, std::vector<FabricShare>& links) const {
  for (int dimension = 0; dimension < dimensions(); ++dimension) {
    const int way = steps(from, to, dimension);
    for (int step = 0; step < std::abs(way); ++step) {
      links.push_back({link(from, dimension, way > 0), 1});
      from = neighbour(from, dimension, way > 0);
    }
  }
}

int TorusNetwork::switches(int from, int to) const {
  int sum = 0;
  for (int dimension = 0; dimension < dimensions(); ++dimension) {
    sum += std::abs(steps(from, to, dimension));
  }
  return sum;
}

FabricCounts TorusNetwork::counts() const {
  FabricCounts counts;
  for (const int extent : shape_.dimensions) {
    if (extent > 1) counts.leaf_cables += extent == 2 ? size_ / 2 : size_;
  }
  return counts;
}

}  // namespace zerosim
