#include "topology/nccl_graph.h"

#include <gtest/gtest.h>

#include "topology/cluster.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

struct TableRow {
  const char* preset;
  int gpus;
  int ring_channels;
  double ring_gbps;
  int ctas;
  int nvls_heads;
  double nvls_gbps;
  int inter_channels;
  double inter_gbps;
  int inter_ctas;
};

// nccl_cost.md section 3: "Defaults to use"; between nodes one channel a NIC at a speed of the
// menu.
constexpr TableRow kTable[] = {
    {"dgx1-v100", 8, 6, 20, 12, 0, 0, 4, 12, 8},
    {"dgx-a100-80", 8, 12, 20, 24, 0, 0, 8, 24, 16},
    {"dgx-h100", 8, 12, 30, 24, 8, 40, 8, 48, 16},
    {"rtx4090x8-pcie", 8, 2, 7.5, 4, 0, 0, 1, 3, 2},
    {"a10x4-pcie", 4, 2, 7.5, 4, 0, 0, 1, 3, 2},
    // Fewer GPUs: NVSwitch keeps its rings; one NVLS head a GPU, 0.9 x 371 / 4 GB/s allow the
    // menu's 60.
    {"dgx-a100-80", 4, 12, 20, 24, 0, 0, 4, 24, 8},
    {"dgx-h100", 4, 12, 30, 24, 4, 60, 4, 48, 8},
    // Half a DGX-1 has 4 rings of one link; 5 GPUs have none and go through the host: 15 x 12/24.
    {"dgx1-v100", 4, 4, 20, 8, 0, 0, 2, 12, 4},
    {"dgx1-v100", 5, 2, 3.75, 4, 0, 0, 3, 2.4, 6},
};

TEST(NcclGraph, PresetsHaveTheChannelsOfTheTable) {
  for (const TableRow& row : kTable) {
    const NcclGraph graph = load_cluster(row.preset, 2, row.gpus).node.nccl;
    SCOPED_TRACE(testing::Message() << row.preset << " with " << row.gpus);
    EXPECT_EQ(graph.ring_channels, row.ring_channels);
    EXPECT_NEAR(graph.ring_channel_gbps, row.ring_gbps, 1e-9);
    EXPECT_EQ(graph.ctas, row.ctas);
    EXPECT_EQ(graph.nvls_heads, row.nvls_heads);
    EXPECT_DOUBLE_EQ(graph.nvls_head_gbps, row.nvls_gbps);
    EXPECT_EQ(graph.inter_ring_channels, row.inter_channels);
    EXPECT_DOUBLE_EQ(graph.inter_ring_channel_gbps, row.inter_gbps);
    EXPECT_EQ(graph.inter_ctas, row.inter_ctas);
  }
}

// Machines without a preset: B200 16 x 45 (8 x 90 duplicated); A800 keeps 8 of 12 links: 160 GB/s.
TEST(NcclGraph, RulesGiveTheTableForOtherSwitches) {
  NodeShape shape;
  shape.gpus = 8;
  NcclGraph graph;
  shape.nvswitch = gpu_spec("B200-SXM-180").nvlink;
  set_intra_node(graph, IntraNode::NvSwitch, shape, gpu_spec("B200-SXM-180"), 8);
  EXPECT_EQ(graph.ring_channels, 16);
  EXPECT_DOUBLE_EQ(graph.ring_channel_gbps, 45);
  EXPECT_EQ(graph.nvls_heads, 8);
  EXPECT_DOUBLE_EQ(graph.nvls_head_gbps, 80);

  shape.nvswitch = gpu_spec("A800-SXM4-80").nvlink;
  set_intra_node(graph, IntraNode::NvSwitch, shape, gpu_spec("A800-SXM4-80"), 8);
  EXPECT_DOUBLE_EQ(graph.ring_channels * graph.ring_channel_gbps, 160);
  EXPECT_EQ(graph.nvls_heads, 0);
}

// Ring busbw of large messages, nccl_cost.md section 7.2.
TEST(NcclGraph, RingCapacitiesAreThosePublished) {
  const auto capacity = [](const char* preset) {
    return link_capacity(load_cluster(preset), LinkClass::Kind::IntraNode).gb_per_second();
  };
  EXPECT_NEAR(capacity("dgx1-v100"), 130, 1e-9);
  EXPECT_NEAR(capacity("dgx-a100-80"), 240, 1e-9);
  EXPECT_NEAR(capacity("dgx-h100"), 360, 1e-9);
  EXPECT_NEAR(capacity("rtx4090x8-pcie"), 15, 1e-9);
}

TEST(NcclGraph, ClassesOfLinksDecideKappaFloorsAndLl128) {
  const NcclGraph a100 = load_cluster("dgx-a100-80").node.nccl;
  EXPECT_DOUBLE_EQ(a100.kappa, 1.0);
  EXPECT_DOUBLE_EQ(a100.launch_floor_all_reduce_us, 25);
  EXPECT_DOUBLE_EQ(a100.launch_floor_other_us, 16);
  EXPECT_TRUE(a100.ll128);
  const NcclGraph h100 = load_cluster("dgx-h100").node.nccl;
  EXPECT_DOUBLE_EQ(h100.kappa, 0.1);
  const NcclGraph v100 = load_cluster("dgx1-v100").node.nccl;
  EXPECT_DOUBLE_EQ(v100.kappa, 0.6);
  const NcclGraph rtx = load_cluster("rtx4090x8-pcie").node.nccl;
  EXPECT_DOUBLE_EQ(rtx.kappa, 0);
  EXPECT_FALSE(rtx.ll128);
  EXPECT_DOUBLE_EQ(rtx.launch_floor_other_us, 16);
}

TEST(NcclGraph, NetworksDifferInLatencyAndOrdering) {
  const GpuSpec& gpu = gpu_spec("A100-SXM4-80");
  NcclGraph graph;
  graph.ring_channels = 12;
  graph.ring_channel_gbps = 20;
  set_inter_node(graph, gpu, 4, 100_Gbps, NetworkKind::Efa);
  EXPECT_DOUBLE_EQ(graph.inter_ring_channel_gbps, 12);  // 12.5 allows the menu's 12
  EXPECT_DOUBLE_EQ(graph.extra_network_latency_us, 20);
  EXPECT_TRUE(graph.inter_ll128);
  EXPECT_FALSE(graph.tree_on_one_gpu);
  EXPECT_DOUBLE_EQ(graph.inter_floor_us, 0);
  set_inter_node(graph, gpu, 4, 100_Gbps, NetworkKind::EfaV1);
  EXPECT_DOUBLE_EQ(graph.extra_network_latency_us, 65);
  set_inter_node(graph, gpu, 4, 200_Gbps, NetworkKind::EfaV3);
  EXPECT_DOUBLE_EQ(graph.extra_network_latency_us, 40);
  set_inter_node(graph, gpu, 4, 200_Gbps, NetworkKind::Tcpx);
  EXPECT_DOUBLE_EQ(graph.inter_floor_us, 700);
  EXPECT_FALSE(graph.inter_ll128);
  set_inter_node(graph, gpu, 1, 100_Gbps, NetworkKind::Tcp);
  EXPECT_DOUBLE_EQ(graph.extra_network_latency_us, 75);
  EXPECT_FALSE(graph.inter_ll128);
  EXPECT_TRUE(graph.tree_on_one_gpu);
}

// Processors' work: 9 of 12.5 GB/s, and no more of faster adapters. Other kinds grow with the peak.
TEST(NcclGraph, SocketsDoNotGrowWithTheAdapter) {
  EXPECT_DOUBLE_EQ(network_efficiency(NetworkKind::Tcp, 10_Gbps), 0.85);
  EXPECT_DOUBLE_EQ(network_efficiency(NetworkKind::Tcp, 100_Gbps), 0.72);
  EXPECT_DOUBLE_EQ(network_efficiency(NetworkKind::Tcp, 400_Gbps) * 50, 9);
  EXPECT_DOUBLE_EQ(network_efficiency(NetworkKind::Tcp, 400_Gbps, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(network_efficiency(NetworkKind::Tcpx, 200_Gbps), 0.66);
  EXPECT_DOUBLE_EQ(network_efficiency(NetworkKind::InfiniBand, 400_Gbps), 0.96);
}

// NCCL raises trees inside two nodes along the menu while they are below twice the rings' speed and
// the links allow it: 12, 15, 18, 20, 24 of 240/4; 24, 28, 30 of 240/8; 12, 15 of 240/16; H100's 48
// of 360/8 = 45 is above already.
TEST(NcclGraph, TreesOfTwoNodesAreFasterInside) {
  const auto tree = [](const char* gpu, double ring, int nics, BytesPerSecond nic) {
    NcclGraph graph;
    graph.ring_channels = 12;
    graph.ring_channel_gbps = ring;
    set_inter_node(graph, gpu_spec(gpu), nics, nic, NetworkKind::InfiniBand);
    return graph.inter_tree_channel_gbps;
  };
  EXPECT_DOUBLE_EQ(tree("A100-SXM4-80", 20, 4, 100_Gbps), 24);
  EXPECT_DOUBLE_EQ(tree("A100-SXM4-80", 20, 8, 200_Gbps), 30);
  EXPECT_DOUBLE_EQ(tree("A100-SXM4-80", 20, 16, 100_Gbps), 15);
  EXPECT_DOUBLE_EQ(tree("H100-SXM5-80", 30, 8, 400_Gbps), 48);
}

// Eight cards through host memory, two below each switch: a slot's 4.9 GB/s (PCIe 3) are shared.
TEST(NcclGraph, CardsThroughHostMemoryShareUplinks) {
  const auto capacity = [](const std::string& gpu, const std::string& graph) {
    const std::string node = R"({"gpu": ")" + gpu + R"(", "gpus": 4, "intra": )" +
                             R"({"kind": "pcie-host-staged"})" + graph + "}";
    const Cluster cluster = parse_cluster(R"({"version": 1, "node": )" + node + "}", "c.json");
    return link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second();
  };
  EXPECT_NEAR(capacity("RTX2080Ti-11", ""), 4.9, 1e-9);
  EXPECT_NEAR(capacity("RTX4090-24", ""), 15, 1e-9);
  EXPECT_NEAR(capacity("RTX5090-32", ""), 27.3, 1e-9);
  EXPECT_NEAR(capacity("RTX2080Ti-11", R"(, "graph": {"cpus": [{}], "switches": [{"below": "cpu0"},
      {"below": "cpu0"}], "gpus": [{"below": "switch0"}, {"below": "switch0"},
      {"below": "switch1"}, {"below": "switch1"}]})"),
              2.45, 1e-9);
}

// 8 x 400 Gb/s on PCIe cards: rings inside the node (15 GB/s) are the limit, 15 x 384/360 / 8 = 2
// GB/s.
TEST(NcclGraph, RingsBetweenNodesDoNotOutrunTheNode) {
  NcclGraph graph;
  graph.ring_channels = 2;
  graph.ring_channel_gbps = 7.5;
  set_inter_node(graph, gpu_spec("RTX4090-24"), 8, 400_Gbps, NetworkKind::Roce);
  EXPECT_LE(graph.inter_ring_channels * graph.inter_ring_channel_gbps, 16);
}

}  // namespace
}  // namespace zerosim
