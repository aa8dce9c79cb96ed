#include "topology/node_graph.h"

#include <gtest/gtest.h>

#include "topology/presets/machines.h"

namespace zerosim {
namespace {

NodeGraph graph_of(const std::string& preset) {
  return build_node_graph(find_machine(preset)->shape);
}

TEST(NodeGraph, EveryPresetIsConnected) {
  for (const Machine& machine : machines()) {
    EXPECT_TRUE(is_connected(build_node_graph(machine.shape))) << machine.name;
  }
}

TEST(NodeGraph, GraphsInTwoPiecesAreNotConnected) {
  NodeGraph graph = graph_of("a10x4-pcie");
  boost::add_vertex(Device{DeviceKind::Gpu, 4, 0}, graph);
  EXPECT_FALSE(is_connected(graph));

  NodeGraph with_stray_nic;
  boost::add_vertex(Device{DeviceKind::Gpu, 0, 0}, with_stray_nic);
  EXPECT_TRUE(is_connected(with_stray_nic));
  boost::add_vertex(Device{DeviceKind::Nic, 0, 0}, with_stray_nic);
  EXPECT_FALSE(is_connected(with_stray_nic));
  EXPECT_FALSE(is_connected(NodeGraph()));
}

// Half of a cube mesh (p3.8xlarge) leaves NVLinks unused; bridges of PCIe cards are an option.
TEST(NodeGraph, NvLinkOfEveryGpuSumsToTheDatasheet) {
  for (const Machine& machine : machines()) {
    if (!is_simulated_gpu(machine.gpu) || machine.name == "aws-p3.8xl") continue;
    const NodeGraph graph = build_node_graph(machine.shape);
    const bool linked = nvlink_bandwidth(graph, 0).per_second() > 0;
    EXPECT_EQ(linked,
              machine.intra == IntraNode::NvSwitch || machine.intra == IntraNode::NvLinkMesh)
        << machine.name;
    for (int gpu = 0; gpu < machine.shape.gpus && linked; ++gpu) {
      EXPECT_NEAR(nvlink_bandwidth(graph, gpu).gb_per_second(),
                  gpu_spec(machine.gpu).nvlink.gb_per_second(), 1e-9)
          << machine.name << " GPU " << gpu;
    }
  }
}

// The hybrid cube mesh, links per pair, as `nvidia-smi topo -m` of a DGX-1 prints it.
TEST(NodeGraph, Dgx1IsTheHybridCubeMesh) {
  constexpr int kLinks[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                                {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                                {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
  const NodeGraph graph = graph_of("dgx1-v100");
  for (int a = 0; a < 8; ++a) {
    int sum = 0;
    for (int b = 0; b < 8; ++b) {
      if (a == b) continue;
      const double gbps = nvlink_pair_bandwidth(graph, a, b).gb_per_second();
      EXPECT_DOUBLE_EQ(gbps, 25 * kLinks[a][b]) << a << "-" << b;
      const PathKind path = kLinks[a][b] > 0 ? PathKind::NvLink : PathKind::NvLinkViaGpu;
      EXPECT_EQ(gpu_path(graph, a, b), path) << a << "-" << b;
      sum += static_cast<int>(gbps / 25);
    }
    EXPECT_EQ(sum, 6) << a;
  }
}

TEST(NodeGraph, BestPathClasses) {
  EXPECT_EQ(gpu_path(graph_of("dgx-a100-80"), 0, 7), PathKind::NvSwitch);
  EXPECT_EQ(gpu_path(graph_of("rtx4090x8-pcie"), 0, 3), PathKind::HostBridge);
  EXPECT_EQ(gpu_path(graph_of("rtx4090x8-pcie"), 0, 4), PathKind::System);
  EXPECT_EQ(gpu_path(graph_of("a10x4-pcie"), 0, 3), PathKind::HostBridge);

  NodeShape two_switches;
  two_switches.gpus = 4;
  two_switches.gpus_per_pcie_switch = 2;
  two_switches.pcie = 31.5_GBps;
  const NodeGraph graph = build_node_graph(two_switches);
  EXPECT_EQ(gpu_path(graph, 0, 1), PathKind::PcieSwitch);
  EXPECT_EQ(gpu_path(graph, 1, 2), PathKind::HostBridge);
}

// DGX A100: NICs 0 and 1 below the switch of GPUs 0 and 1, and so on; sockets of two switches each.
TEST(NodeGraph, NicsStandBesideTheirGpus) {
  const NodeGraph graph = graph_of("dgx-a100-80");
  EXPECT_EQ(nic_path(graph, 0, 0), PathKind::PcieSwitch);
  EXPECT_EQ(nic_path(graph, 1, 1), PathKind::PcieSwitch);
  EXPECT_EQ(nic_path(graph, 0, 2), PathKind::HostBridge);
  EXPECT_EQ(nic_path(graph, 0, 7), PathKind::System);
}

// The narrowest link on the way; on the DGX-1 a pair has 0, 25 or 50 GB/s.
TEST(NodeGraph, PathsHaveTheRateOfTheirNarrowestLink) {
  const auto gpus = [](const char* preset, int a, int b) {
    return gpu_path_bandwidth(graph_of(preset), a, b).gb_per_second();
  };
  EXPECT_DOUBLE_EQ(gpus("dgx-a100-80", 0, 7), 300);
  EXPECT_DOUBLE_EQ(gpus("dgx1-v100", 0, 1), 25);
  EXPECT_DOUBLE_EQ(gpus("dgx1-v100", 0, 3), 50);
  // 0 to 5: by GPU 1 (25, 50) or GPU 4 (50, 25). 0 to 7: by GPU 4 (50, 50).
  EXPECT_DOUBLE_EQ(gpus("dgx1-v100", 0, 5), 25);
  EXPECT_DOUBLE_EQ(gpus("dgx1-v100", 0, 7), 50);
  EXPECT_DOUBLE_EQ(gpus("rtx4090x8-pcie", 0, 3), 31.5);
  EXPECT_DOUBLE_EQ(gpus("rtx4090x8-pcie", 0, 4), 16);  // between the sockets
  EXPECT_DOUBLE_EQ(nic_path_bandwidth(graph_of("dgx-h100"), 0, 0).gb_per_second(), 63);
  EXPECT_DOUBLE_EQ(nic_path_bandwidth(graph_of("dgx-h100"), 0, 7).gb_per_second(), 22);
  NodeGraph apart = graph_of("a10x4-pcie");
  boost::add_vertex(Device{DeviceKind::Gpu, 4, 0}, apart);
  EXPECT_DOUBLE_EQ(gpu_path_bandwidth(apart, 0, 4).gb_per_second(), 0);
}

TEST(NodeGraph, UsedGpusReachTheNicsOfTheirSwitches) {
  EXPECT_EQ(reachable_nics(graph_of("dgx-a100-80"), 8), 8);
  EXPECT_EQ(reachable_nics(graph_of("dgx-a100-80"), 4), 4);
  EXPECT_EQ(reachable_nics(graph_of("dgx-a100-80"), 1), 2);
  EXPECT_EQ(reachable_nics(graph_of("dgx-h100"), 3), 3);
  EXPECT_EQ(reachable_nics(graph_of("dgx1-v100"), 8), 4);
  // Behind the CPU, but there is no nearer one.
  EXPECT_EQ(reachable_nics(graph_of("rtx4090x8-pcie"), 8), 1);
}

// A cycle takes two links of each GPU: at most 6 / 2 = 3 on the DGX-1, times two directions.
TEST(MeshRings, Dgx1HasThreeDoubleRings) {
  const std::vector<NvLinkPair>& mesh = find_machine("dgx1-v100")->shape.mesh;
  EXPECT_EQ(mesh_rings(mesh, 8), 6);
  // GPUs 0-3: 0-1 0-2 1-3 once, 0-3 1-2 2-3 twice. 0-1-2-3-0 and 0-2-1-3-0 use all but one link.
  EXPECT_EQ(mesh_rings(mesh, 4), 4);
  // GPUs 0-2: 0-1-2-0, then 0 has no link left.
  EXPECT_EQ(mesh_rings(mesh, 3), 2);
  // One link, both directions used.
  EXPECT_EQ(mesh_rings(mesh, 2), 1);
  // Among GPUs 0-4, GPU 4 is linked to GPU 0 only.
  EXPECT_EQ(mesh_rings(mesh, 5), 0);
}

TEST(MeshRings, FullMeshes) {
  // HGX A100 4-GPU: 4 links a pair, 12 a GPU: 4 x 3 / 2 = 6 cycles, 12 rings.
  EXPECT_EQ(mesh_rings(full_mesh(4, 12), 4), 12);
  // One link a pair among 4: 3 links a GPU, so one cycle.
  EXPECT_EQ(mesh_rings(full_mesh(4, 3), 4), 2);
  // A pair of GPUs with 4 bridged links.
  EXPECT_EQ(mesh_rings(full_mesh(2, 4), 2), 4);
  EXPECT_TRUE(full_mesh(8, 6).empty());
}

// The search, made to forget the closed form by one missing link, loses at most what that link
// carried.
TEST(MeshRings, SearchAgreesWithTheClosedFormNearby) {
  std::vector<NvLinkPair> mesh = full_mesh(5, 4);  // 1 link a pair: 1 x 4 / 2 = 2 cycles
  EXPECT_EQ(mesh_rings(mesh, 5), 4);
  mesh.front().links = 0;  // degree 3 at two GPUs: at most one cycle
  EXPECT_EQ(mesh_rings(mesh, 5), 2);
  mesh.front().links = 2;  // one more link than needed changes nothing
  EXPECT_EQ(mesh_rings(mesh, 5), 4);
}

}  // namespace
}  // namespace zerosim
