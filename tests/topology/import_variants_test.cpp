// What terminals, drivers and people do to the two formats, and what is refused, with its place.

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
#include "topology/topo_matrix.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

ImportedNode import(const std::string& text, const std::string& gpu = "") {
  ImportOptions options;
  options.gpu = gpu;
  return import_topology(text, "topo", options);
}

Cluster cluster_of(const ImportedNode& node) {
  return parse_cluster(cluster_file_text(node.machine, node.assumptions), "imported.json");
}

/// `gpu` "?": find out.
std::string error_of(const std::string& text, const std::string& gpu = "?") {
  try {
    static_cast<void>(import(text, gpu == "?" ? "" : gpu));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

// Two GPUs on a switch each with a NIC, NV12 between them.
const std::string kMatrix =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tPIX\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tPIX\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \t\t\t\n"
    "\n"
    "Legend:\n"
    "\n"
    "  X    = Self\n"
    "\n"
    "NIC Legend:\n"
    "\n"
    "  NIC0: mlx5_0\n"
    "  NIC1: mlx5_bond_0\n";

void expect_the_matrix(const std::string& text) {
  const TopoMatrix matrix = parse_topo_matrix(text, "topo");
  ASSERT_EQ(matrix.size(), 4);
  EXPECT_EQ(matrix.gpus, 2);
  EXPECT_EQ(matrix.at(0, 1).nvlinks, 12);
  EXPECT_EQ(matrix.at(0, 2).kind, TopoCell::Kind::Pix);
  EXPECT_EQ(matrix.at(3, 0).kind, TopoCell::Kind::Sys);
  EXPECT_EQ(matrix.at(3, 3).kind, TopoCell::Kind::Self);
  EXPECT_EQ(matrix.devices[0].cpu_affinity, "0-31");
  EXPECT_EQ(matrix.devices[1].numa_affinity, "1");
}

TEST(TopoMatrix, Reads) {
  expect_the_matrix(kMatrix);
  const TopoMatrix matrix = parse_topo_matrix(kMatrix, "topo");
  EXPECT_EQ(matrix.devices[2].name, "NIC0");
  EXPECT_EQ(matrix.devices[3].legend, "mlx5_bond_0");
  EXPECT_EQ(matrix.devices[2].cpu_affinity, "");
}

TEST(TopoMatrix, ReadsWhatTerminalsMakeOfIt) {
  expect_the_matrix(replaced(kMatrix, "\n", "\r\n"));
  expect_the_matrix("\x1b[4m" + replaced(kMatrix, "\tGPU NUMA ID\n", "\tGPU NUMA ID\x1b[0m\n"));
  expect_the_matrix("$ nvidia-smi topo -m\n" + kMatrix + "$ \n");
  expect_the_matrix(replaced(kMatrix, "\t", "      "));
  // Without a last newline, without legends.
  const std::string bare = kMatrix.substr(0, kMatrix.find("\n\nLegend"));
  expect_the_matrix(bare);
  // NIC rows may be missing: the cells of the GPU rows say the same.
  expect_the_matrix(bare.substr(0, bare.find("NIC0\tPIX")));
}

TEST(TopoMatrix, ReadsOldAndShortColumns) {
  expect_the_matrix(replaced(kMatrix, "SYS", "SOC"));
  expect_the_matrix(replaced(replaced(kMatrix, "NIC0", "mlx5_2"), "NIC1", "mlx5_0"));
  expect_the_matrix(replaced(kMatrix, "NUMA Affinity", "NUMA ID"));
  expect_the_matrix(replaced(replaced(kMatrix, "\tGPU NUMA ID", ""), "\t\tN/A", ""));
}

TEST(TopoMatrix, AffinitiesMayBeMissing) {
  const auto affinities = [](const std::string& header, const std::string& cells) {
    const TopoMatrix matrix = parse_topo_matrix("\tGPU0" + header + "\nGPU0\t X " + cells, "topo");
    return std::vector<std::string>{matrix.devices[0].cpu_affinity,
                                    matrix.devices[0].numa_affinity};
  };
  const std::string kAll = "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID";
  EXPECT_THAT(affinities(kAll, "\t0-7,16-23\t\tN/A\t\tN/A"), ElementsAre("0-7,16-23", ""));
  EXPECT_THAT(affinities(kAll, "\t8-15\t1\t\tN/A"), ElementsAre("8-15", "1"));
  EXPECT_THAT(affinities(kAll, "\t\t1\t\tN/A"), ElementsAre("", "1"));
  EXPECT_THAT(affinities(kAll, "\tN/A\t\tN/A\t\tN/A"), ElementsAre("", ""));
  EXPECT_THAT(affinities(kAll, ""), ElementsAre("", ""));
  EXPECT_THAT(affinities("\tCPU Affinity", "\t0-95"), ElementsAre("0-95", ""));
  EXPECT_THAT(affinities("\tCPU Affinity\tNUMA Affinity", "\t0-31\t\tN/A"),
              ElementsAre("0-31", ""));
  EXPECT_THAT(affinities("", ""), ElementsAre("", ""));
}

struct Broken {
  std::string what;
  std::string from, to;  ///< replaced in the good text
  std::string gpu;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const Broken& broken) {
  return out << broken.what;
}

void expect_refused(const std::string& good, const Broken& broken) {
  const std::string text = replaced(good, broken.from, broken.to);
  ASSERT_TRUE(text != good || !broken.gpu.empty());
  EXPECT_EQ(error_of(text, broken.gpu.empty() ? "A100-SXM4-80" : broken.gpu), broken.message);
}

class BrokenMatrix : public testing::TestWithParam<Broken> {};

TEST_P(BrokenMatrix, IsRefusedWithItsPlace) {
  expect_refused(kMatrix, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    TopoMatrix, BrokenMatrix,
    testing::Values(
        Broken{"asymmetric", "GPU1\tNV12", "GPU1\tNV8", "",
               "topo:3:6: GPU1 to GPU0: found NV8, but line 2 has NV12 for the same pair"},
        Broken{"asymmetric NIC row", "NIC1\tSYS\tPIX", "NIC1\tNODE\tPIX", "",
               "topo:5:6: NIC1 to GPU0: found NODE, but line 2 has SYS for the same pair"},
        Broken{
            "unknown cell", "NIC0\tPIX", "NIC0\tPIB", "",
            "topo:4:6: NIC0 to GPU0: found \"PIB\", expected one of X, PIX, PXB, PHB, NODE, SYS, "
            "NV#; did you mean \"PIX\"?"},
        Broken{"no links", "NV12", "NV0", "",
               "topo:2:10: GPU0 to GPU1: found \"NV0\", expected one of X, PIX, PXB, PHB, NODE, "
               "SYS, NV#; did you mean \"NV#\"?"},
        Broken{"missing row", "GPU1\tNV12\t X \tSYS\tPIX\t32-63\t1\t\tN/A\n", "", "",
               "topo:5: row GPU1 is missing"},
        Broken{"truncated",
               "GPU1\tNV12\t X \tSYS\tPIX\t32-63\t1\t\tN/A\nNIC0\tPIX\tSYS\t X \tSYS"
               "\t\t\t\nNIC1\tSYS\tPIX\tSYS\t X \t\t\t\n",
               "GPU1\tNV12\t X ", "", "topo:3:12: row GPU1 has 2 cells, expected 4"},
        Broken{"row twice", "GPU1\tNV12", "GPU0\tNV12", "", "topo:3:1: row GPU0 is there twice"},
        Broken{"row without column", "NIC1\tSYS\tPIX", "NIC7\tSYS\tPIX", "",
               "topo:5:1: row NIC7 has no column; did you mean \"NIC0\"?"},
        Broken{"column twice", "\tGPU0\tGPU1\tNIC0", "\tGPU0\tGPU0\tNIC0", "",
               "topo:1:7: column GPU0 is there twice"},
        Broken{"no GPUs", "GPU", "TPU", "",
               "topo:1: found no header with GPU0, expected the output of `nvidia-smi topo -m`"},
        Broken{"no X on the diagonal", "NIC0\tPIX\tSYS\t X ", "NIC0\tPIX\tSYS\tPIX", "",
               "topo:4:14: NIC0 to NIC0: found PIX, expected X"},
        Broken{"X off the diagonal", "NIC0\tPIX", "NIC0\tX", "",
               "topo:4:6: NIC0 to GPU0: found X, expected a connection"},
        Broken{"NVLink of a NIC", "NIC0\tPIX", "NIC0\tNV4", "",
               "topo:4:6: NIC0 to GPU0: found NV4, but NICs have no NVLink"},
        Broken{"more links than the GPU has", "NV12", "NV18", "",
               "topo:2:10: found 18 NVLinks at one GPU, but A100-SXM4-80 has 12"},
        Broken{"links of a GPU without", "", "", "L40S-48",
               "topo:2:10: found 12 NVLinks at one GPU, but L40S-48 has 0"},
        Broken{"a count of no GPU", "NV12", "NV7", "?",
               "topo:2:10: found NV7, which no GPU that zerosim knows shows by itself; if it is "
               "right, give --gpu"},
        Broken{
            "another column behind", "GPU NUMA ID", "Temperature", "",
            "topo:1:49: found \"Temperature\", expected the columns CPU Affinity, NUMA Affinity, "
            "GPU NUMA ID"}),
    [](const auto& broken) { return test_name(broken.param.what); });

TEST(TopoMatrix, EmptyTextIsRefused) {
  EXPECT_THAT(error_of(""), HasSubstr("topo:1: found no header with GPU0"));
  EXPECT_THAT(error_of("\n\n"), HasSubstr("found no header with GPU0"));
  EXPECT_EQ(error_of(replaced(kMatrix, "NIC1", "NIC\xff")),
            "topo:1:20: found byte 0xff that is not UTF-8");
  EXPECT_EQ(error_of(replaced(kMatrix, "Legend", std::string("Leg\0end", 7))),
            "topo:7:4: found a NUL byte, expected text");
}

// 3 x NV12 where one GPU has lost two of its links: 12, 12, 10.
TEST(ImportMatrix, AGpuMayHaveFewerLinksIntoTheSwitches) {
  const ImportedNode node = import(
      "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n"
      "GPU0\tX\tNV12\tNV10\t0\nGPU1\tNV12\tX\tNV10\t0\nGPU2\tNV10\tNV10\tX\t0\n",
      "A100-SXM4-80");
  const Cluster cluster = cluster_of(node);
  EXPECT_EQ(nvlink_bandwidth(cluster.node.graph, 0), 300_GBps);
  EXPECT_EQ(nvlink_bandwidth(cluster.node.graph, 2), 250_GBps);
  EXPECT_EQ(cluster.node.intra, IntraNode::NvSwitch);
  // NCCL's 20 GB/s a link: 10 links carry 200 GB/s, 240 if all had 12.
  const NcclGraph& nccl = cluster.node.nccl;
  EXPECT_DOUBLE_EQ(nccl.ring_channels * nccl.ring_channel_gbps, 200);
  EXPECT_THAT(node.assumptions,
              Contains("GPU2: 10 NVLinks as the matrix shows, where A100-SXM4-80 has 12"));
}

std::string mesh_of(int gpus, int links) {
  std::string text;
  for (int column = 0; column < gpus; ++column) text += format("\tGPU{}", column);
  text += "\tCPU Affinity";
  for (int row = 0; row < gpus; ++row) {
    text += format("\nGPU{}", row);
    for (int column = 0; column < gpus; ++column) {
      text += column == row ? "\tX" : format("\tNV{}", links);
    }
    text += "\t0";
  }
  return text + "\n";
}

// Four GH200, 18 links each: 6 to each of 3 peers use all of them, so the pairs are joined
// directly.
TEST(ImportMatrix, SixLinksToEachOfThreePeersAreAMesh) {
  const ImportedNode imported = import(mesh_of(4, 6), "GH200-96");
  const Cluster cluster = cluster_of(imported);
  const Cluster preset = load_cluster("gh200x4", 1);
  EXPECT_EQ(cluster.node.intra, IntraNode::NvLinkMesh);
  EXPECT_EQ(nvlink_bandwidth(cluster.node.graph, 0), 450_GBps);
  EXPECT_EQ(nvlink_pair_bandwidth(cluster.node.graph, 0, 3), 150_GBps);
  EXPECT_EQ(gpu_path(cluster.node.graph, 0, 3), PathKind::NvLink);
  EXPECT_DOUBLE_EQ(ring_capacity(cluster.nccl()).per_second(),
                   ring_capacity(preset.nccl()).per_second());
  EXPECT_THAT(import(mesh_of(4, 6)).assumptions,
              Contains("gpu: H100-SXM5-80, by NV6; H200-SXM-141, GH200-96 would look the same: "
                       "--gpu says which"));
}

// A pair shows all links of a GPU where they lead into switches: 6 x 15 peers are more than any GPU
// has, 6 x 3 more than a V100 has.
TEST(ImportMatrix, MoreLinksThanAGpuHasAreThoseIntoSwitches) {
  EXPECT_EQ(cluster_of(import(mesh_of(16, 6))).node.gpu, "V100-SXM3-32");
  const Cluster four = cluster_of(import(mesh_of(4, 6), "V100-SXM3-32"));
  EXPECT_EQ(four.node.intra, IntraNode::NvSwitch);
  EXPECT_EQ(nvlink_bandwidth(four.node.graph, 0), 150_GBps);
  // A mesh that is more than the GPU asked for can have.
  EXPECT_EQ(error_of(mesh_of(4, 4), "RTX3090-24"),
            "topo:2:8: found 12 NVLinks at one GPU, but RTX3090-24 has 4");
}

// Two of three below one switch: these copy peer-to-peer, all three do not.
TEST(ImportMatrix, TheKindOfNodeIsThatOfTheUsedGpus) {
  const std::string pairs =
      "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n"
      "GPU0\tX\tPIX\tNODE\t0\nGPU1\tPIX\tX\tNODE\t0\nGPU2\tNODE\tNODE\tX\t0\n";
  const auto kind = [&](const std::string& gpu, int gpus) {
    const ImportedNode node = import(pairs, gpu);
    return make_node(node.machine, gpus).intra;
  };
  EXPECT_EQ(kind("L40S-48", 3), IntraNode::PcieHostStaged);
  EXPECT_EQ(kind("L40S-48", 2), IntraNode::Pcie);
  EXPECT_EQ(kind("RTX4090-24", 2), IntraNode::PcieHostStaged);  // no peer access
}

TEST(ImportMatrix, RatesOfNicsMayBeGiven) {
  ImportOptions options;
  options.gpu = "A100-SXM4-80";
  options.nic_bandwidth = 100_Gbps;
  EXPECT_EQ(cluster_of(import_topology(kMatrix, "topo", options)).node.nic_bandwidth, 12.5_GBps);
}

// NCCL's XML.

// Two A100 with 4 NVLinks between them, and a NIC of two ports, below one switch.
const std::string kXml =
    "<system version=\"1\">\n"
    "  <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"25\" modelid=\"1\">\n"
    "    <pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "      <pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "        <gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\">\n"
    "          <nvlink target=\"0000:03:00.0\" count=\"4\" tclass=\"0x030200\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "      <pci busid=\"0000:03:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "        <gpu dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\">\n"
    "          <nvlink target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "      <pci busid=\"0000:04:00.0\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" "
    "link_width=\"16\">\n"
    "        <nic>\n"
    "          <net name=\"mlx5_0\" dev=\"0\" speed=\"100000\" port=\"1\"/>\n"
    "          <net name=\"mlx5_1\" dev=\"1\" speed=\"100000\" port=\"2\"/>\n"
    "        </nic>\n"
    "      </pci>\n"
    "    </pci>\n"
    "  </cpu>\n"
    "</system>\n";

TEST(ImportXml, Reads) {
  const Cluster cluster = cluster_of(import(kXml, "A100-SXM4-80"));
  const NodeGraph& graph = cluster.node.graph;
  EXPECT_EQ(nvlink_pair_bandwidth(graph, 0, 1), 100_GBps);
  EXPECT_EQ(cluster.node.intra, IntraNode::NvLinkMesh);
  EXPECT_EQ(cluster.node.cpu, "amd");
  // Two ports share the adapter's 31.5 GB/s, each 12.5 of them.
  EXPECT_EQ(cluster.node.nics, 2);
  EXPECT_EQ(host_link(graph, DeviceKind::Nic, 1).bandwidth, 15.75_GBps);
  EXPECT_EQ(cluster.node.nic_bandwidth, 12.5_GBps);
}

TEST(ImportXml, CommentsMarksAndMissingAttributesAreNoMatter) {
  const auto pair = [](const std::string& text) {
    return nvlink_pair_bandwidth(cluster_of(import(text, "A100-SXM4-80")).node.graph, 0, 1);
  };
  EXPECT_EQ(pair("\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- <system> -->\n" + kXml), 100_GBps);
  EXPECT_EQ(pair(replaced(kXml, " tclass=\"0x030200\"", "")), 100_GBps);
  EXPECT_EQ(pair(replaced(kXml, " class=\"0x030200\"", "")), 100_GBps);
  EXPECT_EQ(pair(replaced(kXml, " class=\"0x060400\"", "")), 100_GBps);
  EXPECT_EQ(pair(replaced(kXml, "0000:02:00.0", "0000:0A:00.0")), 100_GBps);
  EXPECT_EQ(pair(replaced(kXml, "\n", "\r\n")), 100_GBps);
}

TEST(ImportXml, UnknownLinksAreWhatNcclTakesThemFor) {
  for (const char* unknown : {"", "Unknown", "Unknown speed"}) {
    const ImportedNode node = import(replaced(kXml, "16.0 GT/s PCIe\" link_width=\"16",
                                              std::string(unknown) + "\" link_width=\"0"),
                                     "A100-SXM4-80");
    EXPECT_EQ(host_path_bandwidth(cluster_of(node).node.graph, 0), 15.75_GBps);
    EXPECT_THAT(node.assumptions,
                Contains("PCIe: 5 links without speed or width (the first of 0000:01:00.0) are "
                         "generation 3, x16, as NCCL takes them"));
  }
}

TEST(ImportXml, NvLinksIntoSwitchesOfUnknownBusIds) {
  const std::string text =
      replaced(replaced(kXml, "target=\"0000:03:00.0\" count=\"4\" tclass=\"0x030200\"",
                        "target=\"fffffff:ffff:ff\" count=\"12\" tclass=\"0x068000\""),
               "target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"",
               "target=\"fffffff:ffff:ff\" count=\"12\"");
  const Cluster cluster = cluster_of(import(text, "A100-SXM4-80"));
  EXPECT_EQ(cluster.node.intra, IntraNode::NvSwitch);
  EXPECT_EQ(nvlink_bandwidth(cluster.node.graph, 1), 300_GBps);
}

// A bridge with the ids of the one above is part of the same switch; with other ids it is not.
TEST(ImportXml, BridgesOfOneChipAreOneSwitch) {
  const std::string open = "<pci busid=\"0000:01:00.0\" class=\"0x060400\"";
  const auto path = [&](const std::string& upper, const std::string& lower) {
    std::string text =
        replaced(kXml, open + " link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">",
                 open + upper + ">\n<pci busid=\"0000:08:00.0\" class=\"0x060400\"" + lower + ">");
    text = replaced(text, "      </pci>\n      <pci busid=\"0000:03:00.0\"",
                    "      </pci></pci>\n      <pci busid=\"0000:03:00.0\"");
    return gpu_host_path(cluster_of(import(text, "A100-SXM4-80")).node.graph, 0, 1);
  };
  const std::string chip = R"( vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" )"
                           R"(subsystem_device="0xa096")";
  const std::string other = replaced(chip, "0xc010", "0xc011");
  EXPECT_EQ(path(chip, chip), PathKind::PcieSwitch);
  EXPECT_EQ(path(chip, other), PathKind::PcieSwitches);
  EXPECT_EQ(path("", ""), PathKind::PcieSwitches);
}

// Grace: NCCL writes bw in MB/s of each of `count` lanes, 10 x 44712 MB/s = 447.12 GB/s.
TEST(ImportXml, C2cJoinsGpuAndCpu) {
  const std::string text =
      replaced(replaced(replaced(kXml, "sm=\"80\"", "sm=\"90\""), "        </gpu>",
                        "<c2c bw=\"44712\" count=\"10\"/></gpu>"),
               "x86_64\" vendor=\"AuthenticAMD", "arm64\" vendor=\"ARM");
  const Cluster cluster = cluster_of(import(text, "GH200-96"));
  EXPECT_NEAR(host_link(cluster.node.graph, DeviceKind::Gpu, 0).bandwidth.gb_per_second(), 447.12,
              1e-9);
  EXPECT_EQ(host_link(cluster.node.graph, DeviceKind::Gpu, 0).parent.kind, DeviceKind::Cpu);
  // The adapter below a switch of the same CPU is still near.
  EXPECT_EQ(cluster.used_nics, 2);
}

class BrokenXml : public testing::TestWithParam<Broken> {};

TEST_P(BrokenXml, IsRefusedWithItsPlace) {
  expect_refused(kXml, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    ImportXml, BrokenXml,
    testing::Values(
        Broken{"malformed", "dev=\"0\" sm", "dev=0 sm", "",
               "topo:5:18: not XML: Error parsing element attribute"},
        Broken{"tags do not match", "</system>", "</sytem>", "",
               "topo:22:3: not XML: Start-end tags mismatch"},
        Broken{"truncated", "    </pci>\n  </cpu>\n</system>\n", "", "",
               "topo:19:13: not XML: Start-end tags mismatch"},
        Broken{"two roots", "</system>\n", "</system>\n<system/>\n", "",
               "topo:23:1: found a second root element <system>, expected one"},
        Broken{"wrong root", "system", "sistem", "",
               "topo:1:1: found <sistem>, expected <system>, NCCL's topology"},
        Broken{"graph file", "system", "graphs", "",
               "topo:1:1: found <graphs>, a graph file: give it with --graph beside a topology"},
        Broken{"version", "version=\"1\"", "version=\"2\"", "",
               "topo:1:1: version: found \"2\", expected an integer from 1 to 1"},
        Broken{"gpu outside its device", "  </cpu>\n", "    <gpu dev=\"2\"/>\n  </cpu>\n", "",
               "topo:21:5: found <gpu> in <cpu>, expected pci or nic"},
        Broken{"a device in a GPU", "        <gpu dev=\"1\"",
               "<pci busid=\"9\"/>\n        <gpu dev=\"1\"", "",
               "topo:10:1: found <pci> in the GPU 0000:03:00.0, expected gpu"},
        Broken{"a misspelt element", "<nvlink target=\"0000:03:00.0\"",
               "<nvlnk target=\"0000:03:00.0\"", "",
               "topo:6:11: found <nvlnk> in <gpu>, expected nvlink or c2c; did you mean "
               "\"nvlink\"?"},
        Broken{"no such target", "target=\"0000:03:00.0\"", "target=\"0000:05:00.0\"", "",
               "topo:6:11: target: found \"0000:05:00.0\", which is no GPU of this file; did you "
               "mean \"0000:02:00.0\"?"},
        Broken{"one-sided", "target=\"0000:03:00.0\" count=\"4\"",
               "target=\"0000:03:00.0\" count=\"2\"", "",
               "topo:11:11: GPU 1 has 4 NVLinks to GPU 0, which has 2 back"},
        Broken{"unknown target class", "tclass=\"0x030200\"", "tclass=\"0x010802\"", "",
               "topo:6:11: tclass: found \"0x010802\", expected 0x068000 (NVSwitch), 0x03.. (GPU) "
               "or 0x068001 (CPU)"},
        Broken{"negative width",
               "0000:04:00.0\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" "
               "link_width=\"16\"",
               "0000:04:00.0\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" "
               "link_width=\"-16\"",
               "", "topo:14:7: link_width: found \"-16\", expected an integer from 0 to 32"},
        Broken{"odd width", "link_width=\"16\"", "link_width=\"17\"", "",
               "topo:3:5: link_width: found 17, expected 1, 2, 4, 8, 12, 16 or 32 (0: not known)"},
        Broken{"absurd speed", "16.0 GT/s PCIe", "17 GT/s", "",
               "topo:3:5: link_speed: found \"17 GT/s\", expected 2.5, 5, 8, 16, 32 or 64 GT/s"},
        Broken{"negative rate", "dev=\"1\" speed=\"100000\"", "dev=\"1\" speed=\"-1\"", "",
               "topo:17:11: speed: found \"-1\", expected an integer from 0 to 10000000"},
        Broken{"bus id twice", "busid=\"0000:03:00.0\"", "busid=\"0000:02:00.0\"", "",
               "topo:9:7: busid 0000:02:00.0 is there twice, first in line 4"},
        Broken{"no bus id", "busid=\"0000:04:00.0\"", "", "", "topo:14:7: found no busid"},
        Broken{"NUMA node twice", "  </cpu>\n", "  </cpu>\n  <cpu numaid=\"0\"/>\n", "",
               "topo:22:3: numaid 0 is there twice"},
        Broken{"two hosts", "  </cpu>\n", "  </cpu>\n  <cpu numaid=\"1\" host_hash=\"0x7\"/>\n", "",
               "topo:22:3: found host_hash \"0x7\" after \"\": several hosts in one file; expected "
               "one node"},
        Broken{"kinds are mixed", "dev=\"1\" sm=\"80\"", "dev=\"1\" sm=\"90\"", "",
               "topo:9:7: found sm 90 after sm 80: a node has one kind of GPU; import one kind and "
               "say the other under `perturbations` of the cluster file"},
        Broken{"another architecture", "", "", "H100-SXM5-80",
               "topo:4:7: found sm 80, but H100-SXM5-80 is sm 90"},
        Broken{"more links than the GPU has", "count=\"4\"", "count=\"13\"", "",
               "topo:4:7: found 13 NVLinks at one GPU, but A100-SXM4-80 has 12"}),
    [](const auto& broken) { return test_name(broken.param.what); });

TEST(ImportXml, WithoutGpusIsRefused) {
  EXPECT_EQ(error_of(replaced(kXml, "mlx5_1", "mlx5\xc3")),
            "topo:17:26: found byte 0xc3 that is not UTF-8");
  EXPECT_EQ(error_of("<system version=\"1\"><cpu numaid=\"0\">\n"
                     "<pci busid=\"1\" class=\"0x020000\"/></cpu></system>"),
            "topo:1:1: found no GPU (a <gpu>, or a class that begins with 0x03)");
  EXPECT_EQ(error_of("<system version=\"1\"/>"),
            "topo:1:1: found no <cpu>, expected one a NUMA node");
}

// Graph files.

const std::string kGraph =
    "<graphs version=\"1\">\n"
    "  <graph id=\"0\" pattern=\"4\" nchannels=\"2\" speedintra=\"20\" speedinter=\"10\">\n"
    "    <channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>\n"
    "    <channel><gpu dev=\"1\"/><gpu dev=\"0\"/></channel>\n"
    "  </graph>\n"
    "</graphs>\n";

std::string graph_error(const std::string& text) {
  ImportedNode node = import(kXml, "A100-SXM4-80");
  try {
    apply_nccl_graph(node, text, "graph");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ImportGraph, GivesRingsOfOneNode) {
  ImportedNode node = import(kXml, "A100-SXM4-80");
  apply_nccl_graph(node, kGraph, "graph");
  const NcclGraph nccl = cluster_of(node).node.nccl;
  EXPECT_EQ(nccl.ring_channels, 2);
  EXPECT_DOUBLE_EQ(nccl.ring_channel_gbps, 20);
  EXPECT_EQ(nccl.ctas, 4);  // each channel twice
}

// Channels that leave by a NIC are those between nodes, at `speedinter`.
TEST(ImportGraph, GivesRingsBetweenNodes) {
  ImportedNode node = import(kXml, "A100-SXM4-80");
  apply_nccl_graph(node, replaced(kGraph, "<channel>", "<channel><net dev=\"0\"/>"), "graph");
  const NcclGraph nccl = cluster_of(node).node.nccl;
  EXPECT_EQ(nccl.inter_ring_channels, 2);
  EXPECT_DOUBLE_EQ(nccl.inter_ring_channel_gbps, 10);
}

TEST(ImportGraph, RefusesWhatDoesNotFit) {
  EXPECT_EQ(graph_error(kXml), "graph:1:1: found <system>, expected <graphs>, NCCL's graph file");
  EXPECT_EQ(graph_error(replaced(kGraph, "<gpu dev=\"1\"/></channel>", "</channel>")),
            "graph:3:5: a ring with GPU 1 0 times, expected once");
  EXPECT_EQ(graph_error(replaced(kGraph, "dev=\"1\"", "dev=\"7\"")),
            "graph:3:28: dev: found 7, which is no GPU of the topology");
  EXPECT_EQ(graph_error(replaced(kGraph, "nchannels=\"2\"", "nchannels=\"3\"")),
            "graph:2:3: nchannels: found 3, but 2 channels are listed");
  EXPECT_EQ(graph_error(replaced(kGraph, "speedintra=\"20\"", "speedintra=\"-20\"")),
            "graph:2:3: speedintra: found \"-20\", expected a number from 0.001 to 1000");
  EXPECT_EQ(graph_error(replaced(kGraph, "pattern=\"4\"", "pattern=\"1\"")),
            "graph:1:1: found no graph with channels of pattern 4 (ring)");
}

}  // namespace
}  // namespace zerosim
