// Nodes that a cluster file draws device by device, and the writer of such files.

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "tests/topology/questions.h"
#include "topology/cluster.h"
#include "topology/cluster_writer.h"
#include "topology/node_file.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;

std::string file_with(const std::string& graph, const std::string& rest = "",
                      const std::string& gpu = "A100-SXM4-80") {
  return R"({"version": 1, "node": {"gpu": ")" + gpu + R"(", "graph": {)" + graph + "}" + rest +
         "}}";
}

Cluster read(const std::string& graph, const std::string& rest = "",
             const std::string& gpu = "A100-SXM4-80") {
  return parse_cluster(file_with(graph, rest, gpu), "c.json");
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_cluster(text, "c.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Two CPUs; switch1 below switch0; three GPUs, of which 0 and 1 are bridged; two NICs.
const std::string kGraph = R"(
  "cpus": [{"numa": 3}, {}], "cpu_link": "10GB/s",
  "switches": [{"below": "cpu0", "link": "15.75GB/s"}, {"below": "switch0"}],
  "gpus": [{"below": "switch1"}, {"below": "switch0"}, {"below": "cpu1", "link": "63GB/s"}],
  "nics": [{"below": "switch1", "bandwidth": "100Gb/s"}, {"below": "switch0"}],
  "nvlinks": [{"between": [1, 0], "links": 4}])";

TEST(NodeGraphFile, EveryDeviceIsWhereItIsDrawn) {
  const Cluster cluster = read(kGraph, R"(, "nics": {"bandwidth": "200Gb/s"})");
  const NodeGraph& graph = cluster.node.graph;
  EXPECT_EQ(cluster.node.gpus, 3);
  EXPECT_EQ(cluster.node.nics, 2);
  EXPECT_EQ(gpu_numa(graph, 0), 3);
  EXPECT_EQ(gpu_numa(graph, 2), 1);  // its number
  EXPECT_EQ(gpu_path(graph, 0, 1), PathKind::NvLink);
  EXPECT_EQ(gpu_host_path(graph, 0, 1), PathKind::PcieSwitches);
  EXPECT_EQ(gpu_path(graph, 0, 2), PathKind::System);
  EXPECT_EQ(nic_path(graph, 0, 0), PathKind::PcieSwitch);
  EXPECT_EQ(host_path_bandwidth(graph, 0), 15.75_GBps);
  EXPECT_EQ(host_path_bandwidth(graph, 2), 63_GBps);
  EXPECT_EQ(host_link(graph, DeviceKind::Nic, 0).bandwidth, 31.5_GBps);  // PCIe 4 x16 by default
  // 4 of 12 links, 25 GB/s each.
  EXPECT_EQ(nvlink_pair_bandwidth(graph, 0, 1), 100_GBps);
}

// 100 and 200 Gb/s: two channels of 100 carry as much as one of 200; the first that is found stays,
// and all channels have one speed.
TEST(NodeGraphFile, NicsOfDifferentSpeeds) {
  const auto used = [](const std::string& speeds) {
    std::string nics;
    for (std::size_t begin = 0; begin < speeds.size();) {
      const std::size_t end = std::min(speeds.find(' ', begin), speeds.size());
      nics += (nics.empty() ? "" : ", ") + std::string(R"({"below": "switch0", "bandwidth": ")") +
              speeds.substr(begin, end - begin) + R"(Gb/s"})";
      begin = end + 1;
    }
    const Cluster cluster = read(
        R"("cpus": [{}], "switches": [{"below": "cpu0"}], "gpus": [{"below": "switch0"}], "nics": [)" +
        nics + "]");
    return std::make_tuple(cluster.used_nics,
                           std::lround(cluster.node.nic_bandwidth.per_second() * 8 / 1e9));
  };
  EXPECT_EQ(used("200 200"), std::make_tuple(2, 200L));
  EXPECT_EQ(used("25 200 200"), std::make_tuple(2, 200L));   // 400 against 75
  EXPECT_EQ(used("100 100 150"), std::make_tuple(3, 100L));  // 300 against 150
  EXPECT_EQ(used("400"), std::make_tuple(1, 252L));          // no faster than its slot, 31.5 GB/s
}

TEST(NodeGraphFile, DefaultsAreTold) {
  const Cluster cluster =
      read(R"("cpus": [{}, {}], "gpus": [{"below": "cpu0"}, {"below": "cpu1"}])");
  for (const char* sentence :
       {"node.intra.pcie: 31.5 GB/s where the graph gives no link, PCIe 4 x16",
        "node.intra.nvlink: 300 GB/s for 12 links, datasheet of A100-SXM4-80",
        "node.graph.cpu_link: 16 GB/s",
        "node.intra.kind: pcie-host-staged, by the links of the used GPUs",
        "node.host.pcie: 25 GB/s between host and one GPU, usual for the slowest such way of the "
        "graph"}) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

TEST(NodeGraphFile, TheKindFollowsFromTheLinks) {
  const auto kind = [](const std::string& gpus, const std::string& rest,
                       const std::string& gpu = "A100-SXM4-80", const std::string& cpu = "intel") {
    return read(R"("cpus": [{}, {}], "switches": [{"below": "cpu0"}], "gpus": )" + gpus + rest,
                R"(, "host": {"cpu": ")" + cpu + R"("})", gpu)
        .node.intra;
  };
  const std::string kOneSwitch = R"([{"below": "switch0"}, {"below": "switch0"}])";
  const std::string kTwoCpus = R"([{"below": "cpu0"}, {"below": "cpu1"}])";
  EXPECT_EQ(kind(kTwoCpus, R"(, "nvswitch_links": 12)"), IntraNode::NvSwitch);
  EXPECT_EQ(kind(kTwoCpus, R"(, "nvswitch_links": [12, 0])"), IntraNode::PcieHostStaged);
  EXPECT_EQ(kind(kTwoCpus, R"(, "nvlinks": [{"between": [0, 1], "links": 2}])"),
            IntraNode::NvLinkMesh);
  EXPECT_EQ(kind(kOneSwitch, ""), IntraNode::Pcie);
  EXPECT_EQ(kind(kOneSwitch, "", "RTX4090-24"), IntraNode::PcieHostStaged);
  // Two GPUs anywhere on AMD's CPUs use peer-to-peer copies, with Intel's they do not.
  EXPECT_EQ(kind(kTwoCpus, ""), IntraNode::PcieHostStaged);
  EXPECT_EQ(kind(kTwoCpus, "", "A100-SXM4-80", "amd"), IntraNode::Pcie);
}

TEST(NodeGraphFile, ChannelsOfASearchHoldForAllGpusOnly) {
  const std::string text = file_with(
      R"("cpus": [{}], "gpus": [{"below": "cpu0"}, {"below": "cpu0"}, {"below": "cpu0"}],
         "nics": [{"below": "cpu0", "bandwidth": "100Gb/s"}])",
      R"(, "nccl": {"rings": {"channels": 4, "speed": "5GB/s"},
                    "rings_between_nodes": {"channels": 3, "speed": "4GB/s"}})");
  const Cluster all = parse_cluster(text, "c.json");
  EXPECT_EQ(all.node.nccl.ring_channels, 4);
  EXPECT_DOUBLE_EQ(all.node.nccl.ring_channel_gbps, 5);
  EXPECT_EQ(all.node.nccl.inter_ring_channels, 3);
  std::string two = text;
  two.replace(two.find("\"version\": 1"), 12, R"("version": 1, "gpus_per_node": 2)");
  EXPECT_EQ(parse_cluster(two, "c.json").node.nccl.ring_channels, 2);  // the rule's
}

// 8 GPUs whose pairs have 1 to 3 links each: the search for rings ends.
TEST(NodeGraphFile, UnevenMeshesDoNotTakeForever) {
  std::string links;
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      links += format(R"({}{{"between": [{}, {}], "links": {}}})", links.empty() ? "" : ", ", a, b,
                      1 + (a * b + a) % 3);
    }
  }
  std::string gpus = R"({"below": "cpu0"})";
  for (int i = 1; i < 8; ++i) gpus += R"(, {"below": "cpu0"})";
  const Cluster cluster = read(
      R"("cpus": [{}], "gpus": [)" + gpus + R"(], "nvlinks": [)" + links + "]", "", "H100-SXM5-80");
  EXPECT_EQ(cluster.node.intra, IntraNode::NvLinkMesh);
  // A GPU has at least 7 links, so at most 7 / 2 = 3 cycles (6 rings) use it.
  EXPECT_GE(cluster.node.nccl.ring_channels, 2);
}

TEST(NodeGraphFile, TheExampleLoads) {
  const std::string file = ZEROSIM_SOURCE_DIR "/examples/clusters/drawn_a6000x3.json";
  const Cluster all = load_cluster(file);
  EXPECT_EQ(all.node.gpus, 3);
  EXPECT_EQ(all.node.intra, IntraNode::PcieHostStaged);
  EXPECT_EQ(load_cluster(file, -1, 2).node.intra, IntraNode::NvLinkMesh);  // the bridged pair
}

struct BadGraph {
  const char* graph;
  const char* rest;
  const char* message;  ///< behind "node.graph."
};

std::ostream& operator<<(std::ostream& out, const BadGraph& bad) {
  return out << bad.graph << bad.rest;
}

class BadGraphs : public testing::TestWithParam<BadGraph> {};

TEST_P(BadGraphs, AreRefused) {
  EXPECT_THAT(error_of(file_with(GetParam().graph, GetParam().rest)),
              testing::EndsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    NodeGraphFile, BadGraphs,
    testing::Values(
        BadGraph{R"("gpus": [{"below": "cpu0"}])", "",
                 "cpus: missing, expected an array of objects"},
        BadGraph{R"("cpus": [{}])", "", "gpus: missing, expected an array of objects"},
        BadGraph{R"("cpus": [], "gpus": [])", "", "cpus: found 0 of them, expected 1 to 64"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu1"}])", "",
                 "below: found \"cpu1\", expected \"cpu0\" to \"cpu0\""},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "switch0"}])", "",
                 "below: found \"switch0\", expected \"cpu0\" to \"cpu0\""},
        BadGraph{R"("cpus": [{}], "switches": [{"below": "switch0"}], "gpus": [{"below": "cpu0"}])",
                 "", "below: found \"switch0\", expected \"cpu0\" to \"cpu0\""},
        BadGraph{R"("cpus": [{}, {}], "gpus": [{"below": "cpu0"}], "nics": [{"below": "gpu0"}])",
                 "", "below: found \"gpu0\", expected \"cpu0\" to \"cpu1\""},
        BadGraph{R"("cpus": [{}], "gpu": [{"below": "cpu0"}])", "",
                 "graph.gpu: unknown key; did you mean \"gpus\"?"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0", "link": "0GB/s"}])", "",
                 "link: found a rate of 0, expected a positive one"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}], "nics": [{"below": "cpu0"}])", "",
                 "node.graph: NIC 0 has no bandwidth, and node.nics.bandwidth is missing"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}],
                    "nvlinks": [{"between": [0, 1], "links": 1}])",
                 "", "between: expected the numbers of two GPUs, 0 to 0"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}, {"below": "cpu0"}],
                    "nvlinks": [{"between": [0, 1], "links": 13}])",
                 "", "links: found 13, expected at most 12"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}, {"below": "cpu0"}],
                    "nvlinks": [{"between": [0, 1], "links": 1}, {"between": [1, 0], "links": 1}])",
                 "", "between: GPUs 0 and 1 are joined twice; expected one entry"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}], "nvswitch_links": [12, 12])", "",
                 "nvswitch_links: expected 1 numbers, 0 to 12, the NVLinks of each GPU"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}])", R"(, "gpus": 2)",
                 "node.gpus: found 2, but the graph lists 1"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}])",
                 R"(, "intra": {"kind": "nvswitch"})",
                 "kind: found \"nvswitch\", but not every GPU has nvswitch_links in the graph"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}])",
                 R"(, "intra": {"kind": "nvlink-mesh"})",
                 "kind: found \"nvlink-mesh\", but the graph's nvlinks form no ring over all GPUs"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}], "nics": [])",
                 R"(, "nics": {"count": 2, "bandwidth": "1Gb/s"})",
                 "nics.count: found 2, but the graph lists 0"},
        BadGraph{R"("cpus": [{}], "gpus": [{"below": "cpu0"}])",
                 R"(, "nccl": {"rings": {"channels": 65, "speed": "1GB/s"}})",
                 "nccl.rings.channels: found 65, expected at most 64"}));

// Machines of the presets, drawn and read back.

class Written : public testing::TestWithParam<std::string> {};

TEST_P(Written, AMachineReadsBackAsItWas) {
  const Machine& machine = *find_machine(GetParam());
  const Cluster preset = load_cluster(machine.name);
  const Cluster read = parse_cluster(cluster_file_text(machine, {}), "written.json");
  EXPECT_EQ(edges_of(read.node.graph), edges_of(preset.node.graph));
  EXPECT_EQ(read.node.intra, preset.node.intra);
  EXPECT_EQ(read.nodes, preset.nodes);
  EXPECT_EQ(read.used_nics, preset.used_nics);
  EXPECT_EQ(read.fabric.nvlink_domain_nodes, preset.fabric.nvlink_domain_nodes);
  for (const auto kind : {LinkClass::Kind::IntraNode, LinkClass::Kind::HostToDevice}) {
    EXPECT_NEAR(link_capacity(read, kind).per_second(), link_capacity(preset, kind).per_second(),
                1);
  }
  EXPECT_EQ(read.node.nccl.inter_ring_channels, preset.node.nccl.inter_ring_channels);
  EXPECT_EQ(read.node.host_memory, preset.node.host_memory);
}

std::vector<std::string> simulated_machines() {
  std::vector<std::string> simulated;
  for (const Machine& machine : machines()) {
    if (is_simulated_gpu(machine.gpu)) simulated.push_back(machine.name);
  }
  return simulated;
}

INSTANTIATE_TEST_SUITE_P(Presets, Written, testing::ValuesIn(simulated_machines()),
                         [](const auto& machine) { return test_name(machine.param); });

}  // namespace
}  // namespace zerosim
