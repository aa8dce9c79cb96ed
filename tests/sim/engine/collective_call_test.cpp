// Where the ranks of a process group lie.

#include "sim/engine/collective_call.h"

#include <gtest/gtest.h>

namespace zerosim {
namespace {

constexpr int kNodes = 4;
constexpr int kGpusPerNode = 8;

CollectiveGroup placed(int size, int stride) {
  Cluster cluster;
  cluster.nodes = kNodes;
  cluster.gpus_per_node = kGpusPerNode;
  return placement(cluster, {"group", size, stride});
}

void expect_placement(const CollectiveGroup& group, int nodes, int side_by_side) {
  EXPECT_EQ(group.nodes, nodes);
  EXPECT_EQ(group.side_by_side, side_by_side);
}

TEST(Placement, NeighboursFillNodes) {
  expect_placement(placed(1, 1), 1, 1);
  expect_placement(placed(4, 1), 1, 1);
  expect_placement(placed(8, 1), 1, 1);
  expect_placement(placed(9, 1), 2, 1);
  expect_placement(placed(32, 1), 4, 1);
}

// Replicas of shards of 8 ranks: 0, 8, 16, 24. The other seven ranks of a node are in groups alike.
TEST(Placement, OneRankANode) {
  expect_placement(placed(4, 8), 4, 8);
  expect_placement(placed(2, 16), 2, 8);  // 0, 16: shards of two nodes
}

// Shards of two ranks: 0, 2, 4, ..., 30: four ranks on each of four nodes, two groups a node.
TEST(Placement, SeveralRanksANode) {
  const CollectiveGroup group = placed(16, 2);
  EXPECT_EQ(group.ranks, 16);
  expect_placement(group, 4, 2);
  expect_placement(placed(4, 2), 1, 1);  // 0, 2, 4, 6
}

}  // namespace
}  // namespace zerosim
