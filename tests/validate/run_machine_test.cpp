#include "validate/run_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/nccl_graph.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

RunPlace place(const std::string& gpu, int nodes, int gpus_per_node) {
  RunPlace place;
  place.gpu = gpu;
  place.nodes = nodes;
  place.gpus_per_node = gpus_per_node;
  place.location = "runs.csv:2";
  return place;
}

Cluster cluster(const RunPlace& place) {
  const RunMachine machine = machine_of_run(place);
  EXPECT_TRUE(machine.cluster.has_value()) << machine.why;
  return machine.cluster.value_or(Cluster());
}

TEST(RunMachine, BoardsHaveSwitchesUnlessSaidOtherwise) {
  EXPECT_EQ(cluster(place("A100-SXM4", 1, 8)).node.intra, IntraNode::NvSwitch);
  RunPlace four = place("A100-SXM4-40GB", 1, 4);
  four.intra_node = "NVLink3";
  EXPECT_EQ(cluster(four).node.intra, IntraNode::NvLinkMesh);
  RunPlace two = place("H100-80GB", 1, 2);
  two.intra_node = "NVLink4";  // no preset joins two H100 directly
  EXPECT_EQ(cluster(two).node.intra, IntraNode::NvSwitch);
}

TEST(RunMachine, CardsMeetInHostMemoryUnlessBridged) {
  RunPlace titan = place("TITAN-RTX-24GB", 1, 2);
  EXPECT_EQ(cluster(titan).node.intra, IntraNode::PcieHostStaged);
  titan.intra_node = "NVLink (NV2)";
  EXPECT_EQ(cluster(titan).node.intra, IntraNode::NvLinkMesh);
  titan.intra_node = "PCIe3 x16 (NCCL_P2P_DISABLE=1)";
  EXPECT_EQ(cluster(titan).node.intra, IntraNode::PcieHostStaged);
  titan.intra_node = "PCIe3 or NVLink bridge (not stated)";
  EXPECT_EQ(cluster(titan).node.intra, IntraNode::NvLinkMesh);
  EXPECT_THAT(machine_of_run(titan).assumptions, Contains(HasSubstr("taken as a bridge")));
  titan.intra_node = "";
  EXPECT_EQ(cluster(titan).node.intra, IntraNode::PcieHostStaged);
  EXPECT_THAT(machine_of_run(titan).assumptions,
              Contains("links in a node are not said: TITAN-RTX-24 usually have no NVLink, and "
                       "meet in host memory"));
}

TEST(RunMachine, ABlankNetworkComesFromTheTable) {
  const RunMachine machine = machine_of_run(place("H100-80GB", 4, 8));
  EXPECT_EQ(machine.cluster->node.nics, 8);
  EXPECT_EQ(machine.cluster->node.nic_bandwidth, 400_Gbps);
  EXPECT_EQ(machine.cluster->node.network, NetworkKind::InfiniBand);
  EXPECT_THAT(machine.assumptions, Contains("network is not said: 8x400Gb NDR IB (DGX H100)"));
  RunPlace aws = place("A100-SXM4-40GB", 16, 8);
  aws.cloud = "PyTorch/AWS, training a 1T model | address";
  EXPECT_EQ(cluster(aws).node.network, NetworkKind::EfaV1);
  EXPECT_EQ(cluster(aws).node.nics, 4);
  EXPECT_THAT(machine_of_run(place("A100", 1, 8)).assumptions,
              Not(Contains(HasSubstr("network is not said"))));
}

TEST(RunMachine, ARateOfTheNodeIsThatOfUsualAdapters) {
  RunPlace vela = place("A100-SXM4-80GB", 16, 8);
  vela.inter_node = "400 Gb/s per node (RoCE/TCP-class, IBM Vela)";  // 400 / 200 = 2 adapters
  EXPECT_EQ(cluster(vela).node.network, NetworkKind::Roce);
  EXPECT_EQ(cluster(vela).node.nics, 2);
  EXPECT_EQ(cluster(vela).node.nic_bandwidth, 200_Gbps);
  RunPlace slow = place("A100-SXM4-40GB", 4, 4);
  slow.inter_node = "GCP (100 Gb/s class)";
  EXPECT_EQ(cluster(slow).node.network, NetworkKind::Tcp);
  EXPECT_EQ(cluster(slow).node.nics, 1);
  RunPlace silent = place("A10-24GB", 2, 2);
  silent.inter_node = "Ethernet (speed not stated)";
  EXPECT_EQ(cluster(silent).node.nic_bandwidth, 25_Gbps);
}

TEST(RunMachine, AKindWithoutPresetSitsWhereLinksAreTheSame) {
  RunPlace rack = place("GB300-288GB", 16, 4);
  rack.intra_node = "NVL72 (NVLink5)";
  const Cluster found = cluster(rack);
  EXPECT_EQ(found.node.gpu, "GB300-288");
  EXPECT_GT(found.fabric.nvlink_domain_nodes, 1);
  EXPECT_THAT(machine_of_run(rack).assumptions,
              Contains("no preset has GB300-288: it is put in the node of GB200-186"));
  const Cluster variant = cluster(place("H100-SXM-96GB (HBM2e, 500 W variant)", 1, 8));
  EXPECT_EQ(variant.node.gpu, "H100-SXM-96-HBM2e");
  EXPECT_GT(variant.node.nccl.nvls_heads, 0);
}

TEST(RunMachine, SaysWhyThereIsNone) {
  EXPECT_EQ(machine_of_run(place("", 1, 8)).why, "gpu is empty");
  EXPECT_EQ(machine_of_run(place("MI300X-192GB", 1, 8)).why, "GPU MI300X-192GB is not NVIDIA's");
  EXPECT_THAT(machine_of_run(place("H1000", 1, 8)).why, HasSubstr("GPU \"H1000\" is not known"));
}

TEST(RunMachine, TheTableEndsWithWhatFitsAll) {
  ASSERT_FALSE(usual_networks().empty());
  EXPECT_EQ(usual_networks().back().cloud, "");
  EXPECT_EQ(usual_networks().back().gpu, "");
  for (const UsualNetwork& network : usual_networks()) EXPECT_NE(network.source, "");
}

}  // namespace
}  // namespace zerosim
