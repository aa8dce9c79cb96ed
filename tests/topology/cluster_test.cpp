#include "topology/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/presets/machines.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

const LinkClass& class_of(const std::vector<LinkClass>& classes, LinkClass::Kind kind) {
  for (const LinkClass& link : classes) {
    if (link.kind == kind) return link;
  }
  ADD_FAILURE() << "no such class";
  return classes.front();
}

TEST(LinkClasses, OneNodeHasNoNetwork) {
  const std::vector<LinkClass> classes = link_classes(load_cluster("dgx-a100-80"));
  ASSERT_EQ(classes.size(), 3U);
  EXPECT_EQ(classes[0].name, "nvlink");
  EXPECT_EQ(classes[0].capacity, 240_GBps);  // 12 channels x 20
  EXPECT_EQ(classes[1].name, "h2d");
  EXPECT_EQ(classes[1].capacity, 12.5_GBps);  // 25, two GPUs below one switch
  EXPECT_EQ(classes[2].name, "d2h");
  EXPECT_EQ(link_classes(load_cluster("rtx4090x8-pcie"))[0].name, "pcie");
}

TEST(LinkClasses, NetworkIsAllNicsOfANode) {
  const auto network = [](const Cluster& cluster) {
    return class_of(link_classes(cluster), LinkClass::Kind::Network).capacity.gb_per_second();
  };
  Cluster cluster = load_cluster("dgx-a100-80", 2);
  EXPECT_DOUBLE_EQ(network(cluster), 8 * 25 * 0.96);
  cluster.fabric.efficiency = 0.5;
  EXPECT_DOUBLE_EQ(network(cluster), 8 * 25 * 0.96 * 0.5);
  EXPECT_DOUBLE_EQ(network(load_cluster("dgx-h100", 4)), 8 * 50 * 0.96);
  EXPECT_DOUBLE_EQ(network(load_cluster("dgx1-v100", 4)), 4 * 12.5 * 0.96);
  // Four GPUs of a DGX A100 reach four NICs.
  EXPECT_DOUBLE_EQ(network(load_cluster("dgx-a100-80", 2, 4)), 4 * 25 * 0.96);
}

TEST(Presets, BoxesWithoutNetworkSayWhichOneIsTaken) {
  const auto mentions_ethernet = Contains(HasSubstr("25 Gb/s Ethernet adapter over TCP"));
  EXPECT_THAT(load_cluster("rtx4090x8-pcie", 2).assumptions, mentions_ethernet);
  EXPECT_THAT(load_cluster("a10x4-pcie", 2).assumptions, mentions_ethernet);
  EXPECT_THAT(load_cluster("rtx4090x8-pcie").assumptions, Each(Not(HasSubstr("Ethernet"))));
}

TEST(Presets, PartsOfANodeSayWhatHappensToRings) {
  const Cluster part = load_cluster("dgx-a100-80", -1, 4);
  EXPECT_EQ(part.world_size(), 4);
  EXPECT_THAT(
      part.assumptions,
      Contains("gpus_per_node: the first 4 of 8 GPUs; rings inside a node keep 240 GB/s a GPU"));
  // GPU 4 of a DGX-1 has no ring with GPUs 0 to 3.
  const Cluster odd = load_cluster("dgx1-v100", -1, 5);
  EXPECT_EQ(odd.node.intra, IntraNode::PcieHostStaged);
  EXPECT_THAT(
      odd.assumptions,
      Contains("gpus_per_node: the first 5 of 8 GPUs; rings inside a node have 7.5 GB/s a GPU"));
}

}  // namespace
}  // namespace zerosim
