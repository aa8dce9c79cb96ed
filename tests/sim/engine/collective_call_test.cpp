// Where the ranks of a process group lie: on DGX H100, a NIC for each GPU.

#include "sim/engine/collective_call.h"

#include <gtest/gtest.h>

namespace zerosim {
namespace {

constexpr int kNodes = 4;
constexpr int kGpusPerNode = 8;

CollectiveGroup placed(int size, int stride) {
  const Cluster cluster = load_cluster("dgx-h100", kNodes, kGpusPerNode);
  return placement(cluster, {"group", size, stride});
}

/// \param nics  that the group drives on the node with fewest; 0: it stays on one node
void expect_placement(const CollectiveGroup& group, int nodes, int nics) {
  EXPECT_EQ(group.nodes, nodes);
  EXPECT_EQ(group.nics, nics);
}

TEST(Placement, NeighboursFillNodes) {
  expect_placement(placed(1, 1), 1, 0);
  expect_placement(placed(4, 1), 1, 0);
  expect_placement(placed(8, 1), 1, 0);
  expect_placement(placed(9, 1), 2, 1);  // eight on the first node, one on the second
  expect_placement(placed(32, 1), 4, 8);
}

// Replicas of shards of 8 ranks: 0, 8, 16, 24. The other seven ranks of a node are in groups alike.
TEST(Placement, OneRankANode) {
  expect_placement(placed(4, 8), 4, 1);
  expect_placement(placed(2, 16), 2, 1);  // 0, 16: shards of two nodes
}

// Shards of two ranks: 0, 2, 4, ..., 30: four ranks on each of four nodes, two groups a node.
TEST(Placement, SeveralRanksANode) {
  const CollectiveGroup group = placed(16, 2);
  EXPECT_EQ(group.ranks, 16);
  expect_placement(group, 4, 4);
  expect_placement(placed(4, 2), 1, 0);  // 0, 2, 4, 6
}

}  // namespace
}  // namespace zerosim
