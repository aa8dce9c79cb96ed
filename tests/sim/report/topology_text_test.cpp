#include "sim/report/topology_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::is_plain_ascii;
using ::testing::Not;
using ::testing::StartsWith;
using testing::widest_line;

std::string summary_of(const Cluster& cluster) {
  return topology_summary(cluster, summarize(cluster));
}

TEST(TopologyTree, HangsDevicesBelowTheirCpu) {
  EXPECT_EQ(topology_tree(load_topology("azure-nd40rs-v2")),
            R"(CPU 0        NUMA 0
|-- GPU 0-3  15.75 GB/s
`-- NIC 0    15.75 GB/s, port 12.5 GB/s
CPU 1        NUMA 1
`-- GPU 4-7  15.75 GB/s
Between CPUs: 10 GB/s
NVLink:
  GPU 0  150 GB/s (6 x 25): 25 to 1-2; 50 to 3-4
  GPU 1  150 GB/s (6 x 25): 25 to 0, 3; 50 to 2, 5
  GPU 2  150 GB/s (6 x 25): 25 to 0, 6; 50 to 1, 3
  GPU 3  150 GB/s (6 x 25): 50 to 0, 2; 25 to 1, 7
  GPU 4  150 GB/s (6 x 25): 50 to 0, 7; 25 to 5-6
  GPU 5  150 GB/s (6 x 25): 50 to 1, 6; 25 to 4, 7
  GPU 6  150 GB/s (6 x 25): 25 to 2, 4; 50 to 5, 7
  GPU 7  150 GB/s (6 x 25): 25 to 3, 5; 50 to 4, 6
)");
}

// Four and more branches alike share lines; two do not, nor do those on different NUMA nodes.
TEST(TopologyTree, GathersBranchesThatReadAlike) {
  EXPECT_THAT(topology_tree(load_topology("aws-p5")),
              StartsWith("CPU 0                NUMA 0\n"
                         "`-- PCIe switch 0-3  31.5 GB/s\n"
                         "    |-- GPU 0-3      63 GB/s, 1 each\n"
                         "    `-- NIC 0-15     15.75 GB/s, port 12.5 GB/s, 4 each\n"
                         "CPU 1                NUMA 1\n"));
  EXPECT_THAT(topology_tree(load_topology("dgx-a100")),
              HasSubstr("|   |-- GPU 0-1    31.5 GB/s\n"));
  EXPECT_THAT(topology_tree(load_topology("dgx-a100")),
              HasSubstr("|-- PCIe switch 0  31.5 GB/s, NUMA 3"));
}

TEST(TopologyTree, TellsUnusedGpusSwitchesAndSuperchips) {
  EXPECT_THAT(topology_tree(load_topology("rtx4090x8-pcie", 1, 5)),
              HasSubstr("|-- GPU 4    31.5 GB/s\n`-- GPU 5-7  31.5 GB/s, not used\n"));
  const std::string tray = topology_tree(load_topology("gb200-nvl72"));
  EXPECT_THAT(tray, HasSubstr("|-- GPU 0-1  450 GB/s C2C\n"));
  EXPECT_THAT(tray, HasSubstr("NVLink:\n  GPU 0-3  900 GB/s (18 x 50) into the switches\n"));
  EXPECT_THAT(topology_tree(load_topology("rtx4090x8-pcie")), Not(HasSubstr("NVLink")));
  // A NIC on a GCD; links without NVIDIA's word or count.
  const std::string amd = topology_tree(load_topology("mi250x-node"));
  EXPECT_THAT(amd, HasSubstr("|-- GPU 1      36 GB/s\n|   `-- NIC 0  36 GB/s, port 25 GB/s\n"));
  EXPECT_THAT(amd, HasSubstr("xGMI:\n  GPU 0  350 GB/s: 200 to 1; 50 to 2; 100 to 6\n"));
}

TEST(TopologyMatrix, ReadsLikeNvidiaSmi) {
  EXPECT_EQ(topology_matrix(load_topology("azure-nc-a100-v4")),
            R"(     GPU0 GPU1 GPU2 GPU3 NIC0
GPU0 X    NV12 SYS  SYS  NODE
GPU1 NV12 X    SYS  SYS  SYS
GPU2 SYS  SYS  X    NV12 SYS
GPU3 SYS  SYS  NV12 X    SYS
NV#: so many NVLinks, NVB: NVLinks by way of a GPU, PIX: one PCIe switch, PXB:
several, NODE: through a CPU (nvidia-smi: NODE or PHB), SYS: from CPU to CPU

GB/s of these paths, narrowest link, one way
     GPU0 GPU1 GPU2 GPU3 NIC0
GPU0 X    300  16   16   31.5
GPU1 300  X    16   16   16
GPU2 16   16   X    300  16
GPU3 16   16   300  X    16
)");
}

// The matrix of tests/data's DGX-1 has NV1, NV2 and, in nvidia-smi's words, SYS where a neighbour
// could pass on.
TEST(TopologyMatrix, NamesPathsByWayOfAGpu) {
  const std::string text = topology_matrix(load_topology("dgx1-v100"));
  EXPECT_THAT(text, HasSubstr("GPU0 X    NV1  NV1  NV2  NV2  NVB  NVB  NVB  PIX  NODE SYS"));
}

TEST(TopologyMatrix, NicsThatAllGpusReachAlikeShareAColumn) {
  const std::string text = topology_matrix(load_topology("aws-p5"));
  EXPECT_THAT(text, HasSubstr("NIC0-3 NIC4-7 NIC8-11\n"));
  EXPECT_THAT(text, HasSubstr("     NIC12-15 NIC16-19 NIC20-23 NIC24-27 NIC28-31\n"));
}

TEST(TopologySummary, GivesBoundsAndWhatLimitsThem) {
  EXPECT_EQ(summary_of(load_topology("rtx4090x8-pcie")),
            R"(GPU to GPU      16 to 31.5 GB/s one way, 8 GPUs, over PCIe and CPUs
bisection       16 GB/s one way between GPUs 0-3 and the others, the narrowest of all halves
all-gather      at most 28 GB/s of busbw: GPUs 4-7 together let out 16 GB/s
NCCL's rings    15 GB/s, 54 % of that bound
network         1 of 1 NICs used, 3.125 GB/s each, 0.95 usable: 0.3711 GB/s per GPU
host            25 GB/s to one GPU; memory 409.6 GB/s
)");
  EXPECT_THAT(summary_of(load_topology("gh200")),
              StartsWith("GPU to GPU      one GPU: nothing to reach\n"));
}

// 18 trays of 4 on one NVLink: 72 GPUs, of which 36 face 36 at 900 GB/s.
TEST(TopologySummary, IsOfTheNvLinkDomain) {
  const std::string rack = summary_of(load_topology("gb200-nvl72"));
  EXPECT_THAT(rack, HasSubstr("900 GB/s one way, 72 GPUs of one NVLink domain, over NVLink\n"));
  EXPECT_THAT(
      rack,
      HasSubstr(
          "32400 GB/s one way between GPUs 0-35 and the others; no other halves were tried\n"));
  const std::string two = summary_of(load_topology("gb200-nvl72", 2));
  EXPECT_THAT(two, HasSubstr("900 GB/s one way, 8 GPUs of one NVLink domain"));
  EXPECT_THAT(summary_of(load_topology("gb200-nvl72", 1)),
              HasSubstr("900 GB/s one way, 4 GPUs, over"));
}

Cluster rails(const std::string& fabric, int nodes) {
  return parse_cluster("{\"version\": 1, \"node\": {\"preset\": \"dgx-h100\"}, \"nodes\": " +
                           std::to_string(nodes) + ", \"fabric\": " + fabric + "}",
                       "c.json");
}

// 64 nodes are two units of 32: 16 leaves, each with 32 x 48 GB/s of NICs below; 2:1 leaves 768
// upwards, of which packet spraying uses 0.95: 729.6. All eight rails of a unit together send 8 x
// 729.6 = 5837 of the 12288 GB/s of their 256 NICs.
TEST(TopologySummary, TellsTheFabricAndItsBisection) {
  const Cluster cluster = rails(R"({"kind": "rail-optimised", "oversubscription": 2})", 64);
  EXPECT_THAT(summary_of(cluster), HasSubstr(R"(
fabric          64 nodes on a rail-optimised network: 16 leaves, 8 spines
                leaf uplink: 16 x 729.6 GB/s
                bisection: 5837 GB/s one way between the first 32 nodes and the last, 48 % of what
                their NICs send
)"));
  const TopologySummary summary = summarize(cluster);
  ASSERT_TRUE(summary.fabric && summary.fabric->bisection);
  EXPECT_NEAR(summary.fabric->bisection->gb_per_second(), 8 * 729.6, 1e-6);
  EXPECT_NEAR(summary.fabric->half_nics.gb_per_second(), 32 * 8 * 48, 1e-6);
  const JsonValue json = topology_json(cluster, summary)["summary"]["fabric"];
  EXPECT_EQ(json["leaves"].asInt(), 16);
  EXPECT_DOUBLE_EQ(json["levels"][0]["bandwidth"].asDouble(), 729.6e9);
}

TEST(TopologySummary, OneSwitchIsNoBottleneckAndLargeFabricsAreNotDrawn) {
  EXPECT_THAT(summary_of(load_topology("dgx-h100", 4)),
              HasSubstr("fabric          4 nodes on one switch that is no bottleneck\n"));
  EXPECT_THAT(summary_of(rails(R"({"kind": "rail-optimised"})", 2048)),
              HasSubstr("bisection: not asked, the fabric is too large to draw\n"));
  EXPECT_THAT(summary_of(load_topology("dgx-h100")), Not(HasSubstr("fabric")));
}

TEST(TopologyText, StaysWithin100Columns) {
  for (const ClusterPreset& preset : cluster_presets()) {
    const Cluster cluster = load_topology(preset.name);
    const std::string matrix = topology_matrix(cluster);
    const std::string tree = topology_tree(cluster);
    EXPECT_LE(widest_line(matrix), 80U) << preset.name;
    EXPECT_LE(widest_line(tree), 80U) << preset.name;
    EXPECT_LE(widest_line(summary_of(cluster)), 100U) << preset.name;
    EXPECT_TRUE(is_plain_ascii(matrix + tree)) << preset.name;
  }
}

TEST(TopologyJson, HoldsDevicesLinksAndSummary) {
  const Cluster cluster = load_topology("rtx4090x8-pcie", 2, 5);
  const JsonValue json = topology_json(cluster, summarize(cluster));
  EXPECT_EQ(json["version"].asInt(), 1);
  EXPECT_EQ(json["name"].asString(), "rtx4090x8-pcie");
  EXPECT_EQ(json["nodes"].asInt(), 2);
  EXPECT_EQ(json["gpus_per_node"].asInt(), 5);
  // 2 CPUs, 8 GPUs, a NIC; a tree below each CPU and the link between them.
  EXPECT_EQ(json["node"]["devices"].size(), 11U);
  EXPECT_EQ(json["node"]["links"].size(), 10U);
  EXPECT_EQ(json["node"]["devices"][2]["name"].asString(), "gpu0");
  EXPECT_TRUE(json["node"]["devices"][2]["used"].asBool());
  EXPECT_FALSE(json["node"]["devices"][9]["used"].asBool());
  EXPECT_EQ(json["node"]["links"][0]["kind"].asString(), "cpu_interconnect");
  EXPECT_DOUBLE_EQ(json["node"]["links"][0]["bandwidth"].asDouble(), 16e9);
  // GPU 4 alone on the second socket: four shards come in over 16 GB/s.
  const JsonValue& bound = json["summary"]["all_gather_bound"];
  EXPECT_DOUBLE_EQ(bound["received_per_gpu"].asDouble(), 16e9);
  EXPECT_EQ(bound["senders"].size(), 4U);
  EXPECT_FALSE(json["assumptions"].empty());
}

}  // namespace
}  // namespace zerosim
