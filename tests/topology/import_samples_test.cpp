// Every sample of tests/data/topo, with what a reader finds in it by hand.

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "tests/topology/questions.h"
#include "topology/cluster.h"
#include "topology/cluster_writer.h"
#include "topology/import.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Kind = PathKind;
using Numbers = std::vector<int>;

struct Path {
  int from = 0, to = 0;
  PathKind kind = Kind::None;
};

struct Sample {
  std::string file{};
  std::string option{};  ///< --gpu; "": found out
  std::string gpu{};
  int gpus = 0;
  Numbers nvlinks{};               ///< of each GPU; one number: all alike
  Numbers numa{};                  ///< of each GPU
  std::vector<Numbers> nearest{};  ///< NICs of each GPU; empty: no NICs
  int nics = 0;
  int used_nics = 0;
  double nic_gigabits = 0;
  std::string network{};
  IntraNode intra = IntraNode::NvSwitch;
  std::vector<Path> gpu_paths{}, nic_paths{};
};

std::ostream& operator<<(std::ostream& out, const Sample& sample) {
  return out << sample.file;
}

/// One NIC a GPU, in order.
std::vector<Numbers> own_nics(int gpus) {
  std::vector<Numbers> nearest;
  for (int i = 0; i < gpus; ++i) nearest.push_back({i});
  return nearest;
}

const std::vector<Sample>& samples() {
  // Two sockets of four GPUs.
  static const Numbers kHalves = {0, 0, 0, 0, 1, 1, 1, 1};
  static const std::vector<Sample> kSamples = {
      // Row GPU0: NV1 NV1 NV2 NV2, sum 6. Columns are mlx5_0 mlx5_2 mlx5_1 mlx5_3; GPU2 has PIX at
      // mlx5_1, the third. No NUMA column: sockets in the order of their GPUs.
      {.file = "dgx1_v100.txt",
       .gpu = "V100-SXM2-32",
       .gpus = 8,
       .nvlinks = {6},
       .numa = kHalves,
       .nearest = {{0}, {0}, {2}, {2}, {1}, {1}, {3}, {3}},
       .nics = 4,
       .used_nics = 4,
       .nic_gigabits = 100,
       .network = "infiniband",
       .intra = IntraNode::NvLinkMesh,
       .gpu_paths = {{0, 3, Kind::NvLink}, {0, 5, Kind::NvLinkViaGpu}, {0, 7, Kind::NvLinkViaGpu}},
       .nic_paths = {{0, 0, Kind::PcieSwitch}, {0, 2, Kind::HostBridge}, {0, 1, Kind::System}}},
      // Rows sum to 1+1+2, 1+2+1, 1+2+2, 2+1+2.
      {.file = "p3_8xlarge_v100x4.txt",
       .gpu = "V100-SXM2-32",
       .gpus = 4,
       .nvlinks = {4, 4, 5, 5},
       .numa = {0, 0, 0, 0},
       .intra = IntraNode::NvLinkMesh,
       .gpu_paths = {{0, 1, Kind::NvLink}, {2, 3, Kind::NvLink}}},
      // CPU affinity is 0-95 for all, but SYS parts 0-3 from 4-7. GPU0: 1+1+2 and 2 to GPU6.
      {.file = "v100x8_cloud_relabelled.txt",
       .gpu = "V100-SXM2-32",
       .gpus = 8,
       .nvlinks = {6},
       .numa = kHalves,
       .intra = IntraNode::NvLinkMesh,
       .gpu_paths = {{0, 6, Kind::NvLink}, {0, 4, Kind::NvLinkViaGpu}}},
      // All NICs on socket 0; GPU4 to 7 have SYS to each.
      {.file = "hgx_a100_8_nics_one_socket.txt",
       .gpu = "A100-SXM4-80",
       .gpus = 8,
       .nvlinks = {12},
       .numa = kHalves,
       .nearest =
           {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}},
       .nics = 4,
       .used_nics = 4,
       .nic_gigabits = 200,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 7, Kind::NvSwitch}},
       .nic_paths = {{0, 0, Kind::PcieSwitches},
                     {0, 2, Kind::System},
                     {2, 2, Kind::PcieSwitches},
                     {4, 0, Kind::System}}},
      {.file = "hgx_h20_8nic.txt",
       .option = "H20-SXM",
       .gpu = "H20-SXM",
       .gpus = 8,
       .nvlinks = {18},
       .numa = kHalves,
       .nearest = own_nics(8),
       .nics = 8,
       .used_nics = 8,
       .nic_gigabits = 400,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 1, Kind::NvSwitch}},
       .nic_paths = {{3, 3, Kind::PcieSwitch}, {3, 2, Kind::HostBridge}, {3, 4, Kind::System}}},
      // NIC4, 5, 10, 11 are for storage: NODE at best.
      {.file = "hgx_h100_12nic.txt",
       .option = "H100-SXM5-80",
       .gpu = "H100-SXM5-80",
       .gpus = 8,
       .nvlinks = {18},
       .numa = kHalves,
       .nearest = {{0}, {1}, {2}, {3}, {6}, {7}, {8}, {9}},
       .nics = 12,
       .used_nics = 8,
       .nic_gigabits = 400,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 7, Kind::NvSwitch}},
       .nic_paths = {{0, 0, Kind::PcieSwitch},
                     {0, 1, Kind::PcieSwitches},
                     {0, 2, Kind::HostBridge},
                     {0, 4, Kind::HostBridge},
                     {0, 10, Kind::System},
                     {7, 9, Kind::PcieSwitch}}},
      {.file = "rtx3090x2_nvlink.txt",
       .option = "RTX3090-24",
       .gpu = "RTX3090-24",
       .gpus = 2,
       .nvlinks = {4},
       .numa = {0, 0},
       .intra = IntraNode::NvLinkMesh,
       .gpu_paths = {{0, 1, Kind::NvLink}}},
      // A bridged pair and one on PCIe: no ring of NVLinks over all three.
      {.file = "a6000x3_mixed.txt",
       .option = "RTX-A6000-48",
       .gpu = "RTX-A6000-48",
       .gpus = 3,
       .nvlinks = {4, 4, 0},
       .numa = {0, 0, 0},
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 1, Kind::NvLink}, {0, 2, Kind::HostBridge}}},
      {.file = "rtx4090x8_dual_socket.txt",
       .option = "RTX4090-24",
       .gpu = "RTX4090-24",
       .gpus = 8,
       .nvlinks = {0},
       .numa = kHalves,
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 3, Kind::HostBridge}, {0, 4, Kind::System}}},
      // Pairs below a switch, but a ring over all six passes CPUs.
      {.file = "pcie6_plx_pairs.txt",
       .option = "L40S-48",
       .gpu = "L40S-48",
       .gpus = 6,
       .nvlinks = {0},
       .numa = {0, 0, 0, 0, 1, 1},
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 1, Kind::PcieSwitch},
                     {0, 2, Kind::HostBridge},
                     {0, 4, Kind::System},
                     {4, 5, Kind::PcieSwitch}}},
      // NV4 to three peers: 12 links. NUMA affinity 0-1: the first of it. SYS to the others' NICs.
      {.file = "a100x4_nv4_4nic.txt",
       .gpu = "A100-SXM4-80",
       .gpus = 4,
       .nvlinks = {12},
       .numa = {0, 0, 0, 0},
       .nearest = own_nics(4),
       .nics = 4,
       .used_nics = 4,
       .nic_gigabits = 200,
       .network = "infiniband",
       .intra = IntraNode::NvLinkMesh,
       .gpu_paths = {{0, 3, Kind::NvLink}},
       .nic_paths = {{0, 0, Kind::PcieSwitches}, {0, 1, Kind::System}}},
      // NUMA of GPU0 is N/A, that of GPU1 is 1.
      {.file = "rtx3090x2_sys_threadripper.txt",
       .option = "RTX3090-24",
       .gpu = "RTX3090-24",
       .gpus = 2,
       .nvlinks = {0},
       .numa = {0, 1},
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 1, Kind::System}}},
      // mlx5_4 and mlx5_5 are PIX of each other and NODE of the GPUs of socket 1: storage.
      {.file = "dgx2_v100x16.txt",
       .gpu = "V100-SXM3-32",
       .gpus = 16,
       .nvlinks = {6},
       .numa = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
       .nearest = {{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}, {6}, {6}, {7}, {7}, {8}, {8}, {9}, {9}},
       .nics = 10,
       .used_nics = 8,
       .nic_gigabits = 100,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 15, Kind::NvSwitch}},
       .nic_paths = {{0, 0, Kind::PcieSwitch},
                     {0, 1, Kind::PcieSwitches},
                     {0, 2, Kind::HostBridge},
                     {8, 4, Kind::HostBridge},
                     {0, 4, Kind::System}}},

      // No NVLinks in the file: those of a DGX-1. One NIC, on socket 0.
      {.file = "azure_ndv2-topo.xml",
       .option = "V100-SXM2-32",
       .gpu = "V100-SXM2-32",
       .gpus = 8,
       .nvlinks = {6},
       .numa = kHalves,
       .nearest = std::vector<Numbers>(8, {0}),
       .nics = 1,
       .used_nics = 1,
       .nic_gigabits = 100,
       .network = "infiniband",
       .intra = IntraNode::NvLinkMesh,
       .gpu_paths = {{0, 3, Kind::NvLink}, {0, 5, Kind::NvLinkViaGpu}},
       .nic_paths = {{0, 0, Kind::HostBridge}, {4, 0, Kind::System}}},
      // By bus id: 0001, 0002 are on NUMA node 1, 0003, 0004 on 0, 000b, 000c on 3, 000d, 000e on
      // 2; NICs 0101 ... 0108 likewise, two beside two GPUs.
      {.file = "azure_ndv4-topo.xml",
       .option = "A100-SXM4-80",
       .gpu = "A100-SXM4-80",
       .gpus = 8,
       .nvlinks = {12},
       .numa = {1, 1, 0, 0, 3, 3, 2, 2},
       .nearest = {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}, {6, 7}, {6, 7}},
       .nics = 8,
       .used_nics = 8,
       .nic_gigabits = 200,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 2, Kind::NvSwitch}},
       .nic_paths = {{0, 0, Kind::PcieSwitch}, {0, 2, Kind::System}}},
      // By bus id: 0001 0002 0003 0008 | 0009 000a 000b 000c, NICs 0101 ... 0108 beside them.
      {.file = "azure_ndv5-topo.xml",
       .option = "H100-SXM5-80",
       .gpu = "H100-SXM5-80",
       .gpus = 8,
       .nvlinks = {18},
       .numa = kHalves,
       .nearest = own_nics(8),
       .nics = 8,
       .used_nics = 8,
       .nic_gigabits = 400,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 4, Kind::NvSwitch}},
       .nic_paths = {{0, 0, Kind::PcieSwitch}, {0, 1, Kind::HostBridge}, {0, 4, Kind::System}}},
      // Each GPU's NVLinks have the GPU itself for their target: none joins two. eth0 on NUMA 0.
      {.file = "azure_ncv4-topo.xml",
       .gpu = "A100-PCIe-80",
       .gpus = 4,
       .nvlinks = {0},
       .numa = {0, 1, 2, 3},
       .nearest = std::vector<Numbers>(4, {0}),
       .nics = 1,
       .used_nics = 1,
       .nic_gigabits = 100,
       .network = "tcp",
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 1, Kind::System}},
       .nic_paths = {{0, 0, Kind::HostBridge}, {1, 0, Kind::System}}},
      // Device 0x20b0; four switches of two GPUs and one EFA adapter each.
      {.file = "aws_p4d-24xl-topo.xml",
       .gpu = "A100-SXM4-40",
       .gpus = 8,
       .nvlinks = {12},
       .numa = kHalves,
       .nearest = {{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}},
       .nics = 4,
       .used_nics = 4,
       .nic_gigabits = 100,
       .network = "efa",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 7, Kind::NvSwitch}},
       .nic_paths = {{1, 0, Kind::PcieSwitch}, {0, 1, Kind::HostBridge}, {0, 3, Kind::System}}},
      // The same with device 0x20b2.
      {.file = "aws_p4de-24xl-topo.xml",
       .gpu = "A100-SXM4-80",
       .gpus = 8,
       .nvlinks = {12},
       .numa = kHalves,
       .nearest = {{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}},
       .nics = 4,
       .used_nics = 4,
       .nic_gigabits = 100,
       .network = "efa",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 7, Kind::NvSwitch}},
       .nic_paths = {{1, 0, Kind::PcieSwitch}, {0, 1, Kind::HostBridge}, {0, 3, Kind::System}}},
      // Only bus ids: 4 + 5 devices, so four GPUs on each CPU and 0000:00:15.0, the last, a NIC.
      {.file = "aws_g5.48xl-topo.xml",
       .option = "A10G-24",
       .gpu = "A10G-24",
       .gpus = 8,
       .nvlinks = {0},
       .numa = kHalves,
       .nearest = std::vector<Numbers>(8, {0}),
       .nics = 1,
       .used_nics = 1,
       .nic_gigabits = 100,
       .network = "infiniband",
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 1, Kind::HostBridge}, {0, 4, Kind::System}},
       .nic_paths = {{4, 0, Kind::HostBridge}, {0, 0, Kind::System}}},
      // One <cpu>; eight switches of one GPU and four adapters of 100 Gb/s each.
      {.file = "aws_p5.48xl-topo.xml",
       .option = "H100-SXM5-80",
       .gpu = "H100-SXM5-80",
       .gpus = 8,
       .nvlinks = {18},
       .numa = {0, 0, 0, 0, 0, 0, 0, 0},
       .nearest = {{0, 1, 2, 3},
                   {4, 5, 6, 7},
                   {8, 9, 10, 11},
                   {12, 13, 14, 15},
                   {16, 17, 18, 19},
                   {20, 21, 22, 23},
                   {24, 25, 26, 27},
                   {28, 29, 30, 31}},
       .nics = 32,
       .used_nics = 32,
       .nic_gigabits = 100,
       .network = "efa",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 7, Kind::NvSwitch}},
       .nic_paths = {{0, 3, Kind::PcieSwitch}, {0, 4, Kind::HostBridge}}},
      // Six NVSwitches, two links to each.
      {.file = "own_dgx_a100_dump.xml",
       .gpu = "A100-SXM4-40",
       .gpus = 8,
       .nvlinks = {12},
       .numa = {3, 3, 1, 1, 7, 7, 5, 5},
       .nearest = {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}, {6, 7}, {6, 7}},
       .nics = 8,
       .used_nics = 8,
       .nic_gigabits = 200,
       .network = "infiniband",
       .intra = IntraNode::NvSwitch,
       .gpu_paths = {{0, 7, Kind::NvSwitch}},
       .nic_paths = {{0, 1, Kind::PcieSwitch}, {0, 2, Kind::System}}},
      {.file = "own_rtx4090x8_dump.xml",
       .gpu = "RTX4090-24",
       .gpus = 8,
       .nvlinks = {0},
       .numa = kHalves,
       .nearest = std::vector<Numbers>(8, {0}),
       .nics = 1,
       .used_nics = 1,
       .nic_gigabits = 10,
       .network = "tcp",
       .intra = IntraNode::PcieHostStaged,
       .gpu_paths = {{0, 1, Kind::HostBridge}, {3, 4, Kind::System}},
       .nic_paths = {{0, 0, Kind::HostBridge}, {4, 0, Kind::System}}},
  };
  return kSamples;
}

const Sample& sample_named(const std::string& file) {
  const auto found = std::find_if(samples().begin(), samples().end(),
                                  [&](const Sample& sample) { return sample.file == file; });
  if (found == samples().end()) throw std::invalid_argument("no sample " + file);
  return *found;
}

std::string path_of(const std::string& file) {
  return std::string(ZEROSIM_TEST_DATA) + "/topo/" + file;
}

ImportedNode import(const Sample& sample) {
  ImportOptions options;
  options.gpu = sample.option;
  return import_topology(read_file(path_of(sample.file)), sample.file, options);
}

Cluster cluster_of(const ImportedNode& node) {
  return parse_cluster(cluster_file_text(node.machine, node.assumptions), "imported.json");
}

class Samples : public testing::TestWithParam<Sample> {};

TEST_P(Samples, ReadAsAPersonWould) {
  const Sample& sample = GetParam();
  const Cluster cluster = cluster_of(import(sample));
  const NodeGraph& graph = cluster.node.graph;
  EXPECT_EQ(cluster.node.gpu, sample.gpu);
  ASSERT_EQ(cluster.node.gpus, sample.gpus);
  EXPECT_EQ(cluster.node.nics, sample.nics);
  EXPECT_EQ(cluster.used_nics, sample.used_nics);
  EXPECT_EQ(cluster.node.intra, sample.intra);
  EXPECT_TRUE(is_connected(graph));
  const double per_link = cluster.gpu().nvlink_links == 0
                              ? 1
                              : cluster.gpu().nvlink.per_second() / cluster.gpu().nvlink_links;
  for (int gpu = 0; gpu < sample.gpus; ++gpu) {
    SCOPED_TRACE(gpu);
    const auto at = static_cast<std::size_t>(gpu);
    const int links = sample.nvlinks.size() == 1 ? sample.nvlinks[0] : sample.nvlinks[at];
    EXPECT_NEAR(nvlink_bandwidth(graph, gpu).per_second(), links * per_link, 1);
    EXPECT_EQ(gpu_numa(graph, gpu), sample.numa[at]);
    const Numbers nearest = sample.nearest.empty() ? Numbers() : sample.nearest[at];
    EXPECT_EQ(nearest_nics(graph, gpu), nearest);
  }
  for (const Path& path : sample.gpu_paths) {
    EXPECT_EQ(gpu_path(graph, path.from, path.to), path.kind) << path.from << " to " << path.to;
    EXPECT_EQ(gpu_path(graph, path.to, path.from), path.kind) << path.to << " to " << path.from;
  }
  for (const Path& path : sample.nic_paths) {
    EXPECT_EQ(nic_path(graph, path.from, path.to), path.kind)
        << "GPU " << path.from << ", NIC " << path.to;
  }
}

TEST_P(Samples, NetworkIsAsFastAsItSays) {
  const Sample& sample = GetParam();
  if (sample.nics == 0) GTEST_SKIP() << "no NICs";
  const ImportedNode node = import(sample);
  EXPECT_EQ(to_string(node.machine.network), sample.network);
  const Cluster cluster = cluster_of(node);
  EXPECT_DOUBLE_EQ(cluster.node.nic_bandwidth.per_second() * 8 / 1e9, sample.nic_gigabits);
}

TEST_P(Samples, WrittenAndReadBackTheGraphIsTheSame) {
  const ImportedNode node = import(GetParam());
  const NodeGraph drawn = build_node_graph(node.machine.shape);
  const NodeGraph read = cluster_of(node).node.graph;
  ASSERT_EQ(boost::num_vertices(read), boost::num_vertices(drawn));
  for (std::size_t v = 0; v < boost::num_vertices(drawn); ++v) {
    EXPECT_EQ(read[v].kind, drawn[v].kind);
    EXPECT_EQ(read[v].index, drawn[v].index);
    EXPECT_EQ(read[v].numa, drawn[v].numa);
    // A port of which the shape says nothing is as fast as all.
    const bool all = drawn[v].kind == DeviceKind::Nic && drawn[v].port.per_second() <= 0;
    const BytesPerSecond port = all ? node.machine.nic_bandwidth : drawn[v].port;
    EXPECT_DOUBLE_EQ(read[v].port.per_second(), port.per_second());
  }
  EXPECT_EQ(edges_of(read), edges_of(drawn));
}

TEST_P(Samples, WhatWasAssumedIsToldWhereTheFileIsUsed) {
  const ImportedNode node = import(GetParam());
  const Cluster cluster = cluster_of(node);
  for (const std::string& sentence : node.assumptions) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

TEST_P(Samples, ARingOverAllGpusHasASpeed) {
  const Cluster cluster = cluster_of(import(GetParam()));
  const double bus = link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second();
  EXPECT_GT(bus, 1);
  EXPECT_LT(bus, 1000);
}

INSTANTIATE_TEST_SUITE_P(All, Samples, testing::ValuesIn(samples()),
                         [](const auto& sample) { return test_name(sample.param.file); });

// 23 files: none is left out.
TEST(Samples, AreAllInTheTable) {
  std::set<std::string> listed;
  for (const Sample& sample : samples()) listed.insert(sample.file);
  for (const auto& entry : std::filesystem::directory_iterator(path_of(""))) {
    const std::string name = entry.path().filename().string();
    if (name == "README.md" || name == "azure_ncv4-graph.xml") continue;
    EXPECT_EQ(listed.count(name), 1U) << name;
  }
  EXPECT_EQ(listed.size(), 23U);
}

// Kinds of GPUs whose files do not tell: the error lists them and says what to do.
TEST(Samples, AskForTheGpuWhereTheyCannotTell) {
  const auto error_of = [](const std::string& file) {
    try {
      static_cast<void>(import_topology(read_file(path_of(file)), file, {}));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(
      error_of("hgx_h100_12nic.txt"),
      HasSubstr("hgx_h100_12nic.txt:2:10: NV18 does not tell which GPU this is; give --gpu, "
                "one of H100-SXM5-80, H200-SXM-141, H20-SXM"));
  EXPECT_THAT(error_of("rtx3090x2_nvlink.txt"), HasSubstr("RTX3090-24, RTX-A6000-48, A40-48"));
  EXPECT_THAT(error_of("rtx4090x8_dual_socket.txt"),
              HasSubstr("nothing here tells which GPU this is; give --gpu"));
  EXPECT_THAT(error_of("aws_p5.48xl-topo.xml"),
              HasSubstr("sm 90 does not tell which GPU this is; give --gpu, one of H100-SXM5-80"));
}

// PCIe of the p5: the GPU's slot is generation 5 (63 GB/s), its switch and CPU generation 4 (31.5),
// adapters have 8 lanes of generation 4 (15.75).
TEST(Samples, LinksMayDiffer) {
  const Cluster cluster = cluster_of(import(sample_named("aws_p5.48xl-topo.xml")));
  const NodeGraph& graph = cluster.node.graph;
  EXPECT_EQ(host_link(graph, DeviceKind::Gpu, 0).bandwidth, 63_GBps);
  EXPECT_EQ(host_link(graph, DeviceKind::PcieSwitch, 0).bandwidth, 31.5_GBps);
  EXPECT_EQ(host_link(graph, DeviceKind::Nic, 0).bandwidth, 15.75_GBps);
  EXPECT_EQ(host_path_bandwidth(graph, 0), 31.5_GBps);
  // Copies achieve 52 of 63 GB/s on PCIe 5: here 31.5 x 52 / 63 = 26.
  EXPECT_NEAR(cluster.node.host_link.gb_per_second(), 26, 1e-9);
}

// The graph file has 2 ring channels of 12 GB/s; by rule it would be 2 x 3.75 GB/s (PCIe 3 through
// host memory: 0.625 x 12 / 2).
TEST(Samples, AGraphFileGivesTheChannels) {
  ImportedNode node = import(sample_named("azure_ncv4-topo.xml"));
  EXPECT_DOUBLE_EQ(cluster_of(node).node.nccl.ring_channel_gbps, 3.75);
  apply_nccl_graph(node, read_file(path_of("azure_ncv4-graph.xml")), "azure_ncv4-graph.xml");
  const Cluster cluster = cluster_of(node);
  EXPECT_EQ(cluster.node.nccl.ring_channels, 2);
  EXPECT_DOUBLE_EQ(cluster.node.nccl.ring_channel_gbps, 12);
  EXPECT_THAT(cluster.assumptions, Contains("NCCL: 2 ring channels on one node of 12 GB/s each, as "
                                            "azure_ncv4-graph.xml says"));
}

}  // namespace
}  // namespace zerosim
