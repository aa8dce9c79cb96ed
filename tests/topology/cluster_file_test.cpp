#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "topology/cluster.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// A file that lives as long as the object.
class ClusterFile {
 public:
  explicit ClusterFile(const std::string& text)
      : directory_(std::filesystem::temp_directory_path() /
                   ("zerosim_cluster_" +
                    std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::filesystem::create_directories(directory_);
    std::ofstream(path()) << text;
  }
  ~ClusterFile() { std::filesystem::remove_all(directory_); }
  ClusterFile(const ClusterFile&) = delete;
  ClusterFile& operator=(const ClusterFile&) = delete;
  [[nodiscard]] std::string path() const { return (directory_ / "c.json").string(); }

 private:
  std::filesystem::path directory_;
};

Cluster read(const std::string& text, int nodes = -1, int gpus_per_node = -1) {
  return load_cluster(ClusterFile(text).path(), nodes, gpus_per_node);
}

/// The message without the directory; "" if nothing is thrown.
std::string error_of(const std::string& text, int nodes = -1, int gpus_per_node = -1) {
  const ClusterFile file(text);
  try {
    static_cast<void>(load_cluster(file.path(), nodes, gpus_per_node));
  } catch (const ConfigError& error) {
    std::string message = error.what();
    const std::size_t directory = message.find(file.path());
    if (directory != std::string::npos) message.replace(directory, file.path().size(), "c.json");
    return message;
  }
  return "";
}

constexpr const char* kFull = R"({
  "version": 1,
  "name": "mine",
  "node": {
    "gpu": "A100-SXM4-80", "gpus": 8,
    "intra": {"kind": "nvswitch", "nvlink": "300GB/s", "pcie": "31.5GB/s"},
    "nics": {"count": 4, "bandwidth": "100Gb/s", "kind": "roce", "efficiency": 0.9},
    "host": {"memory": "512GiB", "memory_bandwidth": "300GB/s", "cores": 64, "cpu": "amd",
             "pcie": "24GB/s"}
  },
  "nodes": 3, "gpus_per_node": 4,
  "fabric": {"kind": "switch", "efficiency": 0.8, "hop_latency": "600ns"},
  "price_per_gpu_hour": 2.5
})";

TEST(ClusterFile, EveryFieldArrives) {
  const Cluster cluster = read(kFull);
  EXPECT_EQ(cluster.name, "mine");
  EXPECT_EQ(cluster.node.gpu, "A100-SXM4-80");
  EXPECT_EQ(cluster.node.gpus, 8);
  EXPECT_EQ(cluster.node.intra, IntraNode::NvSwitch);
  EXPECT_EQ(cluster.node.nics, 4);
  EXPECT_EQ(cluster.node.nic_bandwidth, 12.5_GBps);
  EXPECT_DOUBLE_EQ(cluster.node.nic_efficiency, 0.9);
  EXPECT_EQ(cluster.node.host_memory, 512_GiB);
  EXPECT_EQ(cluster.node.host_memory_bandwidth, 300_GBps);
  EXPECT_EQ(cluster.node.host_cores, 64);
  EXPECT_EQ(cluster.node.cpu, "amd");
  EXPECT_EQ(cluster.node.host_link, 24_GBps);
  EXPECT_EQ(cluster.nodes, 3);
  EXPECT_EQ(cluster.gpus_per_node, 4);
  EXPECT_EQ(cluster.world_size(), 12);
  EXPECT_DOUBLE_EQ(cluster.fabric.efficiency, 0.8);
  EXPECT_DOUBLE_EQ(cluster.fabric.hop_latency.count(), 600e-9);
  EXPECT_DOUBLE_EQ(cluster.price_per_gpu_hour, 2.5);
  EXPECT_EQ(nvlink_bandwidth(cluster.node.graph, 0), 300_GBps);
  EXPECT_EQ(cluster.node.nccl.ring_channels, 12);
}

TEST(ClusterFile, FlagsWin) {
  const Cluster cluster = read(kFull, 5, 2);
  EXPECT_EQ(cluster.nodes, 5);
  EXPECT_EQ(cluster.gpus_per_node, 2);
}

TEST(ClusterFile, TheExampleLoads) {
  const Cluster cluster = load_cluster(std::string(ZEROSIM_SOURCE_DIR) + "/examples/cluster.json");
  EXPECT_EQ(cluster.world_size(), 32);
  EXPECT_DOUBLE_EQ(cluster.price_per_gpu_hour, 1.89);
}

TEST(ClusterFile, EveryDefaultIsTold) {
  const Cluster cluster = read(R"({
    "version": 1,
    "node": {"gpu": "RTX3090-24", "gpus": 4, "intra": {"kind": "pcie-host-staged"},
             "nics": {"count": 1, "bandwidth": "100Gb/s"}}
  })");
  EXPECT_EQ(cluster.name, "c");
  EXPECT_EQ(cluster.gpus_per_node, 4);
  EXPECT_EQ(cluster.node.host_link, 25_GBps);
  for (const char* sentence :
       {"nodes: 1, as the cluster file does not say", "node.intra.pcie: 31.5 GB/s, PCIe 4 x16",
        "node: 1 CPU socket(s), every GPU on a root port",
        "node.intra: speed of rings by NCCL's own rules for links of this kind (RTX3090-24, "
        "pcie-host-staged)",
        "node.nics.kind: infiniband", "node.nics.efficiency: 0.96 of peak, usual for infiniband",
        "node.host.cpu: intel",
        "node.host.memory_bandwidth: 204.8 GB/s, 8 channels of DDR4-3200 on each of 1 sockets, "
        "usual for PCIe 4",
        "node.host.pcie: 25 GB/s between host and one GPU, usual for PCIe 4 x16"}) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

TEST(ClusterFile, PresetsTakeOtherFigures) {
  const Cluster cluster = read(R"({
    "version": 1,
    "node": {"preset": "dgx-h100", "gpu": "H200-SXM-141", "intra": {"ring_bandwidth": "350GB/s"},
             "nics": {"bandwidth": "200Gb/s"}, "host": {"memory": "1TiB"}},
    "nodes": 2
  })");
  EXPECT_EQ(cluster.node.gpu, "H200-SXM-141");
  EXPECT_EQ(cluster.node.nics, 8);
  EXPECT_EQ(cluster.node.nic_bandwidth, 25_GBps);
  EXPECT_DOUBLE_EQ(cluster.node.nic_efficiency, 0.96);
  EXPECT_EQ(cluster.node.host_memory, 1024_GiB);
  EXPECT_EQ(cluster.node.host_cores, 112);
  EXPECT_DOUBLE_EQ(cluster.node.nccl.inter_ring_channel_gbps, 24);
  EXPECT_DOUBLE_EQ(link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second(), 350);
}

// By generation of the slots: the servers that have them; 8 GPUs are two sockets.
TEST(ClusterFile, HostMemoryFollowsThePcieGeneration) {
  const auto bandwidth = [](const std::string& gpu) {
    return read(R"({"version": 1, "node": {"gpu": ")" + gpu +
                R"(", "gpus": 8, "intra": {"kind": "pcie"}}})")
        .node.host_memory_bandwidth.gb_per_second();
  };
  EXPECT_DOUBLE_EQ(bandwidth("V100-SXM2-32"), 2 * 6 * 8 * 2.6666666666666665);
  EXPECT_DOUBLE_EQ(bandwidth("A100-SXM4-80"), 2 * 8 * 8 * 3.2);
  EXPECT_DOUBLE_EQ(bandwidth("H100-SXM5-80"), 2 * 8 * 8 * 4.8);
}

TEST(ClusterFile, APresetTakesAnotherHostMemory) {
  const Cluster cluster = read(R"({"version": 1, "node": {"preset": "dgx-a100-80",
    "host": {"memory_bandwidth": "100GB/s"}}})");
  EXPECT_EQ(cluster.node.host_memory_bandwidth, 100_GBps);
  EXPECT_THAT(cluster.node.host_memory_source, HasSubstr("c.json"));
}

TEST(ClusterFile, MeshOfFourA100) {
  const Cluster cluster = read(R"({"version": 1, "nodes": 1,
    "node": {"gpu": "A100-SXM4-40", "gpus": 4, "intra": {"kind": "nvlink-mesh"}}})");
  // 12 links x NCCL's 20 GB/s; every pair 4 x 25 GB/s.
  EXPECT_DOUBLE_EQ(link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second(), 240);
  EXPECT_EQ(nvlink_pair_bandwidth(cluster.node.graph, 0, 3), 100_GBps);
}

struct BadFile {
  const char* text;
  const char* message;
};

class BadFiles : public testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreRefusedWithPlaceAndNearestName) {
  EXPECT_EQ(error_of(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    ClusterFile, BadFiles,
    testing::Values(
        BadFile{R"({"node": {"preset": "dgx-h100"}})",
                "c.json:1:1: version: missing, expected an integer"},
        BadFile{R"({"version": 2, "node": {"preset": "dgx-h100"}})",
                "c.json:1:13: version: found 2, expected 1"},
        BadFile{R"({"version": 1})", "c.json:1:1: node: missing, expected an object"},
        BadFile{"{\"version\": 1,\n \"nodess\": 2, \"node\": {\"preset\": \"dgx-h100\"}}",
                "c.json:2:2: nodess: unknown key; did you mean \"nodes\"?"},
        BadFile{"{\"version\": 1,\n \"node\": {\"preset\": \"dgx-h10\"}}",
                "c.json:2:21: node.preset: unknown preset \"dgx-h10\"; did you mean \"dgx-h100\"?"},
        BadFile{"{\"version\": 1,\n \"node\": {\"gpuu\": \"A10-24\"}}",
                "c.json:2:11: node.gpuu: unknown key; did you mean \"gpu\"?"},
        BadFile{
            "{\"version\": 1, \"node\": {\n \"gpu\": \"A100-SXM-80\"}}",
            "c.json:2:9: node.gpu: unknown GPU \"A100-SXM-80\"; did you mean \"A100-SXM4-80\"?"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100"}, "nodes": 0})",
                "c.json:1:57: nodes: found 0, expected an integer of at least 1"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100"}, "nodes": -4})",
                "c.json:1:57: nodes: found -4, expected an integer of at least 1"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100"}, "gpus_per_node": 9})",
                "c.json:1:65: gpus_per_node: found 9, expected at most 8, the GPUs of one node "
                "(dgx-h100)"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100", "gpus": 4}})",
                "c.json:1:55: node.gpus: preset dgx-h100 has 8 GPUs a node; to use fewer give "
                "gpus_per_node, for another machine leave \"preset\" out and spell the node out"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100", "gpu": "A10-24"}})",
                "c.json:1:54: node.gpu: A10-24 has other links or another architecture than the "
                "H100-SXM5-80 of preset dgx-h100: leave \"preset\" out and spell the node out"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100", "nics": {"bandwidth": 400}}})",
                "c.json:1:69: node.nics.bandwidth: found 400, expected text with a unit such as "
                "\"400Gb/s\""},
        BadFile{
            R"({"version": 1, "node": {"preset": "dgx-h100", "nics": {"efficiency": 1.5}}})",
            "c.json:1:70: node.nics.efficiency: found 1.5, expected a number above 0 and at most "
            "1"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100", "nics": {"kind": "rocee"}}})",
                "c.json:1:64: node.nics.kind: unknown kind of network \"rocee\"; did you mean "
                "\"roce\"?"},
        BadFile{
            R"({"version": 1, "node": {"gpu": "A10-24", "gpus": 4, "intra": {"kind": "nvswitch"}}})",
            "c.json:1:71: node.intra.kind: A10-24 has no NVLink, expected \"pcie\" or "
            "\"pcie-host-staged\""},
        BadFile{
            R"({"version": 1, "node": {"gpu": "A10-24", "gpus": 4, "intra": {"kind": "nvlnk"}}})",
            "c.json:1:71: node.intra.kind: unknown kind of node \"nvlnk\"; known: nvswitch, "
            "nvlink-mesh, pcie, pcie-host-staged"},
        BadFile{
            R"({"version": 1, "node": {"gpu": "A10-24", "gpus": 2000, "intra": {"kind": "pcie"}}})",
            "c.json:1:50: node.gpus: found 2000, expected at most 1024"},
        BadFile{
            R"({"version": 1, "nodes": 2, "node": {"gpu": "A10-24", "gpus": 4, "intra": {"kind": "pcie"}}})",
            "c.json:1:25: nodes: found 2, but the node has no NICs; give node.nics {count, "
            "bandwidth}"},
        BadFile{
            R"({"version": 1, "node": {"gpu": "V100-SXM2-32", "gpus": 8, "intra": {"kind": "nvlink-mesh"}}})",
            "c.json:1:77: node.intra.kind: a mesh of 8 x V100-SXM2-32 with 6 NVLinks each, "
            "expected 2 to 8 GPUs and a link for every pair"},
        BadFile{
            R"({"version": 1, "node": {"preset": "dgx-h100", "host": {"memory_bandwidth": 400}}})",
            "c.json:1:76: node.host.memory_bandwidth: found 400, expected text with a unit such as "
            "\"400Gb/s\""},
        BadFile{
            R"({"version": 1, "node": {"preset": "dgx-h100", "host": {"memory_bandwidth": "0GB/s"}}})",
            "c.json:1:76: node.host.memory_bandwidth: found a rate of 0, expected a positive one"},
        BadFile{
            R"({"version": 1, "node": {"preset": "dgx-h100", "host": {"memory_bandwith": "1GB/s"}}})",
            "c.json:1:56: node.host.memory_bandwith: unknown key; did you mean "
            "\"memory_bandwidth\"?"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100"}, "fabric": {"kind": "swich"}})",
                "c.json:1:67: fabric.kind: unknown kind of fabric \"swich\"; did you mean "
                "\"switch\"?"},
        BadFile{R"({"version": 1, "node": {"preset": "dgx-h100"}, "price_per_gpu_hour": -1})",
                "c.json:1:70: price_per_gpu_hour: found -1, expected 0 or more"}));

TEST(LoadCluster, UnknownNamesNameTheNearestPreset) {
  try {
    static_cast<void>(load_cluster("dgx-a100-8"));
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "cluster \"dgx-a100-8\" is neither a preset nor a file; did you mean "
                 "\"dgx-a100-80\"? (`zerosim topo presets` lists the presets)");
  }
}

TEST(LoadCluster, AMissingFileIsNamed) {
  try {
    static_cast<void>(load_cluster("no/such/cluster.json"));
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no/such/cluster.json"));
  }
}

std::string flag_error(int nodes, int gpus_per_node) {
  try {
    static_cast<void>(load_cluster("dgx-a100-80", nodes, gpus_per_node));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LoadCluster, FlagsOutOfRangeAreNamed) {
  EXPECT_EQ(flag_error(0, -1), "--nodes: found 0, expected an integer of at least 1");
  EXPECT_EQ(flag_error(-2, -1), "--nodes: found -2, expected an integer of at least 1");
  EXPECT_EQ(flag_error(-1, 0), "--gpus-per-node: found 0, expected an integer of at least 1");
  EXPECT_EQ(flag_error(-1, 9),
            "--gpus-per-node: found 9, expected at most 8, the GPUs of one node "
            "(dgx-a100-80)");
  EXPECT_EQ(flag_error(2'000'000'000, 8),
            "--nodes: found 2000000000, a cluster of 16000000000 GPUs is too large");
}

/// A text in memory is read as a file is; a GPU may have less than its kind: what a report says.
TEST(ClusterFile, MemoryOfAGpu) {
  const std::string preset = R"("node": {"preset": "dgx-a100-80")";
  EXPECT_EQ(parse_cluster("{\"version\": 1, " + preset + "}}", "c.json").gpu_memory(),
            gpu_spec("A100-SXM4-80").memory);
  const Cluster less =
      parse_cluster("{\"version\": 1, " + preset + R"(, "gpu_memory": "79GiB"}})", "c.json");
  EXPECT_EQ(less.gpu_memory(), 79_GiB);
  EXPECT_EQ(less.name, "c");
  EXPECT_THAT(error_of("{\"version\": 1, " + preset + R"(, "gpu_memory": "0GiB"}})"),
              HasSubstr("c.json:1:64: node.gpu_memory: found no memory, expected more than 0"));
  EXPECT_THAT(error_of("{\"version\": 1, " + preset + R"(, "gpu_memory": 79}})"),
              HasSubstr("node.gpu_memory: found 79"));
}

/// A100: 400 W as sold, 60 of them are not the SMs'.
TEST(ClusterFile, PowerLimitOfAGpu) {
  const auto text = [](const std::string& limit) {
    return R"({"version": 1, "node": {"preset": "dgx-a100-80")" + limit + "}}";
  };
  EXPECT_EQ(parse_cluster(text(""), "c.json").node.gpu_power_limit, 0);
  EXPECT_EQ(parse_cluster(text(R"(, "gpu_power_limit": "250W")"), "c.json").node.gpu_power_limit,
            250);
  EXPECT_EQ(parse_cluster(text(R"(, "gpu_power_limit": "400 W")"), "c.json").node.gpu_power_limit,
            400);
  const auto refused = [&](const std::string& value) {
    return error_of(text(R"(, "gpu_power_limit": )" + value));
  };
  EXPECT_THAT(refused(R"("250")"), HasSubstr("c.json:1:69: node.gpu_power_limit: found \"250\", "
                                             "expected watts, for example \"500W\""));
  EXPECT_THAT(refused(R"("a lot")"), HasSubstr("expected watts"));
  EXPECT_THAT(refused(R"("nanW")"), HasSubstr("expected watts"));
  EXPECT_THAT(refused("250"), HasSubstr("node.gpu_power_limit: found 250, expected a string"));
  for (const char* value : {R"("60W")", R"("801W")", R"("-1W")"}) {
    EXPECT_THAT(
        refused(value),
        HasSubstr("expected more than 60 W, which A100-SXM4-80 needs besides its SMs, and at "
                  "most 800 W, twice the board's"));
  }
}

}  // namespace
}  // namespace zerosim
