#include "validate/log_machine.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "validate/gpu_words.h"
#include "validate/link_words.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Names of GPUs.

std::string kind(const std::string& words) {
  const NamedGpu named = gpu_by_words(words);
  return named.gpu == nullptr ? "none" : named.gpu->name;
}

TEST(GpuWords, AsDriversAndPeopleWriteThem) {
  EXPECT_EQ(kind("A100-SXM4-40GB"), "A100-SXM4-40");
  EXPECT_EQ(kind("NVIDIA A100 80GB PCIe"), "A100-PCIe-80");
  EXPECT_EQ(kind("NVIDIA H100 80GB HBM3"), "H100-SXM5-80");
  EXPECT_EQ(kind("NVIDIA H100 PCIe"), "H100-PCIe-80");
  EXPECT_EQ(kind("Tesla V100-SXM2-16GB"), "V100-SXM2-16");
  EXPECT_EQ(kind("V100-SXM3-32GB"), "V100-SXM3-32");
  EXPECT_EQ(kind("NVIDIA H200"), "H200-SXM-141");
  EXPECT_EQ(kind("B200-180GB"), "B200-SXM-180");
  EXPECT_EQ(kind("GB200-186GB"), "GB200-186");
  EXPECT_EQ(kind("GeForce RTX 2080 Ti"), "RTX2080Ti-11");
  EXPECT_EQ(kind("NVIDIA GeForce RTX 4090"), "RTX4090-24");
  EXPECT_EQ(kind("NVIDIA RTX A6000"), "RTX-A6000-48");
  EXPECT_EQ(kind("NVIDIA RTX 6000 Ada Generation"), "none");
  EXPECT_EQ(kind("NVIDIA Z9000"), "none");
  EXPECT_EQ(kind(""), "none");
}

TEST(GpuWords, WhatTheNameLeavesOpenIsTold) {
  EXPECT_EQ(gpu_by_words("A100-SXM4-80GB").assumption, "");
  EXPECT_EQ(gpu_by_words("A100").assumption, "GPU \"A100\": A100-SXM4-40");
  EXPECT_EQ(gpu_by_words("H100 79GB").assumption, "GPU \"H100 79GB\": H100-SXM5-80");
}

TEST(GpuWords, Amd) {
  EXPECT_TRUE(is_amd_gpu("MI300X-192GB"));
  EXPECT_TRUE(is_amd_gpu("AMD Instinct MI250X"));
  EXPECT_FALSE(is_amd_gpu("A100-SXM4-40GB"));
}

// Words for links.

TEST(LinkWords, OneNode) {
  EXPECT_EQ(read_link_words("NVSwitch (NVLink3)").intra, IntraNode::NvSwitch);
  EXPECT_FALSE(read_link_words("NVSwitch (NVLink3)").network);
  EXPECT_EQ(read_link_words("NVLink2 hybrid cube mesh").intra, IntraNode::NvLinkMesh);
  const LinkWords staged = read_link_words("PCIe5 through host memory");
  EXPECT_EQ(staged.intra, IntraNode::PcieHostStaged);
  EXPECT_EQ(staged.pcie_generation, 5);
  EXPECT_EQ(read_link_words("PCIe3 dual socket").intra, IntraNode::PcieHostStaged);
  EXPECT_EQ(read_link_words("PCIe gen4, one switch").intra, IntraNode::Pcie);
  EXPECT_EQ(read_link_words("PCIe gen4, one switch").pcie_generation, 4);
  EXPECT_FALSE(read_link_words("").intra);
}

struct NetworkCase {
  const char* text;
  NetworkKind kind;
  int count;
  double gbits;
};

TEST(LinkWords, Networks) {
  const NetworkCase cases[] = {
      {"NVSwitch (NVLink4) + 32x100Gb EFA", NetworkKind::Efa, 32, 100},
      {"NVSwitch (NVLink4) + 8x400Gb NDR IB with SHARP", NetworkKind::InfiniBand, 8, 400},
      {"NVSwitch (NVLink3) + 8x200Gb HDR IB", NetworkKind::InfiniBand, 8, 200},
      {"NVSwitch (NVLink3) + 8x2x100Gb RoCE", NetworkKind::Roce, 16, 100},
      {"NVSwitch (NVLink5) + 8x400Gb RoCE (CX-7)", NetworkKind::Roce, 8, 400},
      {"NVSwitch (NVLink4) + 4x200Gb GPUDirect-TCPX", NetworkKind::Tcpx, 4, 200},
      {"NVSwitch (NVLink4) + 8x200Gb FasTrak (TCPXO)", NetworkKind::Tcpxo, 8, 200},
      {"NVSwitch (NVLink4) + 16x200Gb EFA v3", NetworkKind::EfaV3, 16, 200},
      {"NVLink2 hybrid mesh + 2x100Gb RoCE", NetworkKind::Roce, 2, 100},
      {"20x NVL72 (NVLink5) + 4x400Gb IB per node", NetworkKind::InfiniBand, 4, 400},
      {"NVSwitch + 8 x 400 Gb/s InfiniBand", NetworkKind::InfiniBand, 8, 400},
      {"NVSwitch (NVLink4) + 3.2 Tb/s EFA (p5en)", NetworkKind::Efa, 0, 3200},
      {"PCIe + 25GbE", NetworkKind::Tcp, 0, 25},
      {"8x200Gb RoCE (1600 Gb/s per node)", NetworkKind::Roce, 8, 200},
      {"3.2 Tb/s per node (8x400Gb NDR)", NetworkKind::InfiniBand, 8, 400},
      {"4x100Gb TCP (EFA off)", NetworkKind::Tcp, 4, 100},
  };
  for (const NetworkCase& c : cases) {
    const LinkWords link = read_link_words(c.text);
    ASSERT_TRUE(link.network) << c.text;
    EXPECT_EQ(link.network->kind, c.kind) << c.text;
    EXPECT_EQ(link.network->count, c.count) << c.text;
    EXPECT_DOUBLE_EQ(link.network->bandwidth.per_second(), c.gbits * 1e9 / 8) << c.text;
  }
  EXPECT_TRUE(read_link_words(cases[1].text).in_network_reduction);
  EXPECT_EQ(read_link_words(cases[2].text).network->ports, 1);
  EXPECT_EQ(read_link_words(cases[3].text).network->ports, 2);
  EXPECT_EQ(read_link_words("PCIe3 dual socket").sockets, 2);
}

TEST(LinkWords, RacksAndWhatIsNotKnown) {
  EXPECT_EQ(read_link_words("20x NVL72 (NVLink5) + 4x400Gb IB per node").racks, 20);
  EXPECT_EQ(read_link_words("NVL72 (NVLink5), one rack").racks, 1);
  EXPECT_EQ(read_link_words("NVSwitch").racks, 0);
  EXPECT_EQ(read_link_words("NVSwitch + 4x200Gb Slingshot").unknown, "4x200Gb Slingshot");
}

// Machines.

/// 1 GiB, busbw / algbw of `ranks` ranks.
NcclTestsLog log_of(int ranks) {
  NcclTestsLog log;
  log.file = "all_reduce.txt";
  log.operation = NcclTest::AllReduce;
  NcclTestsPoint point;
  point.size = 1_GiB;
  point.count = 268435456;
  point.type = "float";
  point.out_of_place = {Seconds(0.01), 107.37, 107.37 * bus_factor(NcclTest::AllReduce, ranks)};
  log.points.push_back(point);
  log.ranks = ranks;
  log.ranks_from = "busbw / algbw";
  return log;
}

LogIndexRow row(const std::string& gpu, int gpus_per_node, int nodes, const std::string& link) {
  return {"INDEX.csv:2", "all_reduce", gpu, link, gpus_per_node, nodes};
}

LogMachine machine(const LogIndexRow& row) {
  return machine_of_log(log_of(row.gpus_per_node * row.nodes), &row, {});
}

TEST(LogMachine, APresetByGpuAndLinks) {
  const LogMachine found = machine(row("A100-SXM4-40GB", 8, 1, "NVSwitch (NVLink3)"));
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->node.name, "dgx-a100-40");
  EXPECT_EQ(found.cluster->world_size(), 8);
  EXPECT_EQ(found.group.ranks, 8);
  EXPECT_EQ(found.group.nodes, 1);
  EXPECT_EQ(found.machine_class, "A100 nvswitch");
  EXPECT_THAT(found.assumptions, Contains("machine: preset dgx-a100-40"));
}

TEST(LogMachine, AdaptersThatAreStatedReplaceThePresets) {
  const LogMachine found = machine(row("H100-SXM5-80GB", 8, 2, "NVSwitch + 16x200Gb RoCE"));
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->node.gpu, "H100-SXM5-80");
  EXPECT_EQ(found.cluster->node.nics, 16);
  EXPECT_DOUBLE_EQ(found.cluster->node.nic_bandwidth.gb_per_second(), 25);
  EXPECT_EQ(found.cluster->nodes, 2);
  EXPECT_EQ(found.group.nodes, 2);
  EXPECT_EQ(found.machine_class, "H100 roce");
  EXPECT_THAT(found.assumptions, Contains(HasSubstr("with the adapters that are stated")));
}

TEST(LogMachine, ANodeWithoutPresetIsSpelledOut) {
  const LogMachine found = machine(row("RTX5090-32GB", 4, 1, "PCIe5 through host memory"));
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->node.gpu, "RTX5090-32");
  EXPECT_EQ(found.cluster->node.intra, IntraNode::PcieHostStaged);
  EXPECT_EQ(found.machine_class, "RTX5090 staged");
  EXPECT_THAT(found.assumptions, Contains(HasSubstr("the node is spelled out")));
}

TEST(LogMachine, ConsumerCardsBelowASwitchStillGoThroughTheHost) {
  const LogMachine found = machine(row("RTX4090-24GB", 8, 1, "PCIe4"));
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->node.intra, IntraNode::PcieHostStaged);
}

// Ports of a card are one adapter for NCCL 2.20 and later.
TEST(LogMachine, PortsOfACardAreMerged) {
  const LogIndexRow ports = row("A100-SXM4-40GB", 8, 2, "NVSwitch + 8x2x100Gb RoCE");
  NcclTestsLog log = log_of(16);
  log.nccl_version = "2.29.3+cuda13.1";
  const LogMachine merged = machine_of_log(log, &ports, {});
  ASSERT_TRUE(merged.cluster) << merged.why;
  EXPECT_EQ(merged.cluster->node.nics, 8);
  EXPECT_DOUBLE_EQ(merged.cluster->node.nic_bandwidth.gb_per_second(), 25);
  log.nccl_version = "2.18.5";
  EXPECT_EQ(machine_of_log(log, &ports, {}).cluster->node.nics, 16);
}

// What a release lacks is told: that of the log, or 2.5 where nccl-tests printed busbw twice.
TEST(LogMachine, ReleaseOfNccl) {
  const LogIndexRow node = row("V100-SXM3-32GB", 12, 1, "NVSwitch (NVLink2)");
  const auto release = [&](const NcclTestsLog& log) {
    return machine_of_log(log, &node, {}).cluster->nccl_settings.release;
  };
  NcclTestsLog log = log_of(12);
  EXPECT_EQ(release(log), kModelledNcclRelease);
  EXPECT_THAT(machine_of_log(log, &node, {}).assumptions, Not(Contains(HasSubstr("NCCL: "))));
  log.columns = NcclTestsColumns::BusbwTwice;
  EXPECT_EQ(release(log), 5);
  EXPECT_THAT(machine_of_log(log, &node, {}).assumptions,
              Contains("NCCL: without what came after 2.5, as nccl-tests printed busbw twice in "
                       "2019 and before"));
  log.nccl_version = "2.7.8+cuda11.0";
  EXPECT_EQ(release(log), 7);
  EXPECT_THAT(machine_of_log(log, &node, {}).assumptions,
              Contains("NCCL: without what came after 2.7, which the log states"));
  log.nccl_version = "2.99.1";  // newer than the model
  EXPECT_EQ(release(log), kModelledNcclRelease);
  log.nccl_version = "2.x";  // no release: the columns say it
  EXPECT_EQ(release(log), 5);
}

// "EFA" is the version that instances with such GPUs have.
TEST(LogMachine, VersionsOfEfa) {
  const auto extra = [](const char* gpu, const char* link) {
    return machine(row(gpu, 8, 2, link)).cluster->node.nccl.extra_network_latency_us;
  };
  EXPECT_DOUBLE_EQ(extra("A100-SXM4-80GB", "NVSwitch + 4x100Gb EFA"), 65);
  EXPECT_DOUBLE_EQ(extra("H100-SXM5-80GB", "NVSwitch + 32x100Gb EFA"), 20);
  EXPECT_DOUBLE_EQ(extra("H100-SXM5-80GB", "NVSwitch + 16x200Gb EFA"), 40);
  EXPECT_DOUBLE_EQ(extra("B200-180GB", "NVSwitch + 8x400Gb EFA"), 40);
}

TEST(LogMachine, HowItWasLaunched) {
  const LogIndexRow one = row("A100-SXM4-40GB", 8, 1, "NVSwitch");
  const LogIndexRow two = row("A100-SXM4-40GB", 8, 2, "NVSwitch + 8x200Gb HDR IB");
  NcclTestsLog log = log_of(8);
  LogMachine found = machine_of_log(log, &one, {});
  EXPECT_EQ(found.group.launch, (LaunchMode{8, false}));
  EXPECT_THAT(found.assumptions, Contains(HasSubstr("one process for all GPUs")));
  EXPECT_EQ(machine_of_log(log_of(16), &two, {}).group.launch, (LaunchMode{1, false}));
  log.before_root = true;
  EXPECT_EQ(machine_of_log(log, &one, {}).group.launch, (LaunchMode{8, true}));
  // A release that is stated counts for more than the columns: 2.9 launches one by one.
  log.nccl_version = "2.8.4";
  EXPECT_EQ(machine_of_log(log, &one, {}).group.launch, (LaunchMode{8, true}));
  log.nccl_version = "2.9.9";
  EXPECT_EQ(machine_of_log(log, &one, {}).group.launch, (LaunchMode{8, false}));
  log.nccl_version = "";
  log.ranks_per_process = 1;
  found = machine_of_log(log, &one, {});
  EXPECT_EQ(found.group.launch, (LaunchMode{1, false}));
  EXPECT_THAT(found.assumptions, Not(Contains(HasSubstr("launch:"))));
}

// Two of eight cards below each switch: 4.9 / 2 GB/s. A preset has slots of PCIe 4.
TEST(LogMachine, CardsOnPcie3ShareSlots) {
  const LogMachine found = machine(row("RTX2080Ti-11GB", 8, 1, "PCIe3 dual socket"));
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_DOUBLE_EQ(ring_capacity(found.cluster->nccl()).gb_per_second(), 2.45);
  EXPECT_THAT(found.assumptions, Contains(HasSubstr("two cards below each switch")));
  const LogMachine slow = machine(row("RTX4090-24GB", 2, 1, "PCIe3 through host memory"));
  EXPECT_DOUBLE_EQ(ring_capacity(slow.cluster->nccl()).gb_per_second(), 7.5);
}

TEST(LogMachine, ReductionInTheNetworkIsTold) {
  const LogMachine found =
      machine(row("H100-SXM5-80GB", 8, 12, "NVSwitch (NVLink4) + 8x400Gb NDR IB with SHARP"));
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->world_size(), 96);
  EXPECT_THAT(found.assumptions, Contains(HasSubstr("SHARP")));
  EXPECT_TRUE(found.cluster->fabric.sharp);
  // Switches of Ethernet have none; "NVLink SHARP" on one node is NVLS.
  EXPECT_FALSE(
      machine(row("H100-SXM5-80GB", 8, 2, "NVSwitch, SHARP + 8x400Gb RoCE")).cluster->fabric.sharp);
  EXPECT_FALSE(
      machine(row("H100-SXM5-80GB", 8, 1, "NVSwitch (NVLink SHARP)")).cluster->fabric.sharp);
}

TEST(LogMachine, SkippedWithAReason) {
  EXPECT_EQ(machine(row("MI300X-192GB", 8, 2, "Infinity Fabric + 8x400Gb RoCE")).why,
            "MI300X-192GB: RCCL is not modelled, only NCCL");
  EXPECT_EQ(machine(row("Z1", 8, 2, "NVSwitch")).why, "GPU \"Z1\" is not known");
  EXPECT_EQ(machine(row("H100-SXM5-80GB", 8, 2, "NVSwitch + 4x200Gb Slingshot")).why,
            "network \"4x200Gb Slingshot\" is not known");
  EXPECT_EQ(machine(row("RTX5090-32GB", 4, 2, "PCIe5 through host memory")).why,
            "nothing says which network joins the nodes");
  EXPECT_EQ(machine(row("RTX5090-32GB", 4, 2, "PCIe5 through host memory + RoCE")).why,
            "nothing says how fast the network is");
  EXPECT_EQ(machine_of_log(log_of(8), nullptr, {}).why,
            "nothing says which machine it was: no --cluster, no INDEX.csv beside it, no list of "
            "devices");
  NcclTestsLog rccl = log_of(8);
  rccl.rccl = true;
  EXPECT_EQ(machine_of_log(rccl, nullptr, {}).why, "RCCL is not modelled, only NCCL");
}

TEST(LogMachine, RanksThatTheIndexDoesNotHave) {
  const LogIndexRow sixteen = row("A100-SXM4-40GB", 8, 2, "NVSwitch + 8x200Gb HDR IB");
  const LogMachine fewer = machine_of_log(log_of(8), &sixteen, {});
  ASSERT_TRUE(fewer.cluster) << fewer.why;
  EXPECT_EQ(fewer.cluster->gpus_per_node, 4);
  EXPECT_THAT(fewer.assumptions,
              Contains("INDEX.csv:2 says 2 nodes of 8 GPUs; busbw / algbw says 8 ranks: 4 of each "
                       "node"));
  EXPECT_EQ(machine_of_log(log_of(7), &sixteen, {}).why,
            "INDEX.csv:2 says 2 nodes of 8 GPUs, but busbw / algbw says 7 ranks");
}

TEST(LogMachine, ByItsListOfDevices) {
  NcclTestsLog log = log_of(16);
  for (int rank = 0; rank < 16; ++rank) {
    log.devices.push_back({rank, 0, rank, rank < 8 ? "a" : "b", "NVIDIA A100-SXM4-80GB"});
  }
  const LogMachine found = machine_of_log(log, nullptr, {});
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->node.name, "dgx-a100-80");
  EXPECT_EQ(found.cluster->nodes, 2);
  EXPECT_EQ(found.cluster->gpus_per_node, 8);
  EXPECT_THAT(found.assumptions, Contains(HasSubstr("network: the preset's")));
}

/// As `counts` on hosts a, b, ...
NcclTestsLog listed(const std::vector<int>& counts, const std::string& gpu) {
  int ranks = 0;
  for (const int count : counts) ranks += count;
  NcclTestsLog log = log_of(ranks);
  int rank = 0;
  for (std::size_t host = 0; host < counts.size(); ++host) {
    for (int i = 0; i < counts[host]; ++i, ++rank) {
      log.devices.push_back({rank, 0, rank, std::string(1, static_cast<char>('a' + host)), gpu});
    }
  }
  return log;
}

constexpr const char* kA100 = "NVIDIA A100-SXM4-40GB";

// Six GPUs and two: neither 2 x 4 nor anything else that is modelled.
TEST(LogMachine, HostsAreCounted) {
  EXPECT_EQ(machine_of_log(listed({6, 2}, kA100), nullptr, {}).why,
            "the list of devices has 6 on a, 2 on b: hosts of unequal numbers of GPUs");
  // A person who says so is believed, and told.
  LogMachineOptions options;
  options.cluster = "dgx-a100-40";
  const LogMachine given = machine_of_log(listed({6, 2}, kA100), nullptr, options);
  ASSERT_TRUE(given.cluster) << given.why;
  EXPECT_THAT(given.notes,
              ElementsAre("the list of devices has 6 on a, 2 on b, the machine that is "
                          "taken 1 node of 8 GPUs"));
  const LogIndexRow two = row("A100-SXM4-40GB", 4, 2, "NVSwitch + 8x200Gb HDR IB");
  EXPECT_THAT(machine_of_log(listed({8}, kA100), &two, {}).notes,
              ElementsAre("the list of devices has 1 host, the machine that is taken 2 nodes of 4 "
                          "GPUs"));
  EXPECT_THAT(machine_of_log(listed({4, 4}, kA100), &two, {}).notes, IsEmpty());
}

TEST(LogMachine, GpusOfTheListAreThoseOfTheMachine) {
  NcclTestsLog mixed = listed({8}, kA100);
  mixed.devices[5].name = "Tesla V100-SXM2-16GB";
  EXPECT_EQ(machine_of_log(mixed, nullptr, {}).why,
            "the list of devices has NVIDIA A100-SXM4-40GB and Tesla V100-SXM2-16GB: nodes of "
            "several kinds of GPUs");
  LogMachineOptions options;
  options.cluster = "dgx-h100";
  EXPECT_EQ(
      machine_of_log(listed({8}, kA100), nullptr, options).why,
      "the list of devices has NVIDIA A100-SXM4-40GB, the machine that is taken H100-SXM5-80");
  options.cluster = "dgx-a100-80";  // the same but for memory
  EXPECT_THAT(
      machine_of_log(listed({8}, kA100), nullptr, options).notes,
      ElementsAre("the list of devices has NVIDIA A100-SXM4-40GB, the machine that is taken "
                  "A100-SXM4-80"));
  options.cluster = "dgx-a100-40";
  EXPECT_THAT(machine_of_log(listed({8}, kA100), nullptr, options).notes, IsEmpty());
}

TEST(LogMachine, ALogThatTheUsersClusterCannotHold) {
  LogMachineOptions options;
  options.cluster = "rtx4090x2-pcie";
  NcclTestsLog log = listed({8}, "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(machine_of_log(log, nullptr, options).why,
            "the log has 8 GPUs on each node, rtx4090x2-pcie has 2");
  options.gpus_per_node = 8;  // what the user gives is an error of the flag
  EXPECT_THROW(static_cast<void>(machine_of_log(log, nullptr, options)), ConfigError);
}

TEST(LogMachine, TheUsersCluster) {
  LogMachineOptions options;
  options.cluster = "dgx-h100";
  const LogMachine found = machine_of_log(log_of(32), nullptr, options);
  ASSERT_TRUE(found.cluster) << found.why;
  EXPECT_EQ(found.cluster->nodes, 4);
  EXPECT_EQ(found.cluster->gpus_per_node, 8);
  options.nodes = 8;
  EXPECT_EQ(machine_of_log(log_of(32), nullptr, options).cluster->gpus_per_node, 4);
  options.gpus_per_node = 8;
  EXPECT_EQ(machine_of_log(log_of(32), nullptr, options).why,
            "8 nodes of 8 GPUs are not the 32 ranks of the log");
  options.cluster = "dgx-h1000";
  EXPECT_THROW(static_cast<void>(machine_of_log(log_of(32), nullptr, options)), ConfigError);
}

std::string index_error(const std::string& rows) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "zerosim_log_index_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "INDEX.csv") << "file,op,gpu,gpus_per_node,nodes,link,source\n" << rows;
  try {
    static_cast<void>(read_log_index(folder.string()));
  } catch (const TraceError& error) {
    return std::string(error.what()).substr(folder.string().size() + 1);
  }
  return "none";
}

TEST(LogIndex, WhatItDoesNotTake) {
  EXPECT_EQ(
      index_error("a.txt,all_reduse,A100,8,1,NVSwitch,\n"),
      "INDEX.csv:2:7: op: found \"all_reduse\", expected one of all_reduce, all_gather, "
      "reduce_scatter, alltoall, broadcast, reduce, sendrecv, gather, scatter, hypercube; did "
      "you mean \"all_reduce\"?");
  EXPECT_THAT(index_error("a.txt,,A100,8,1,NVSwitch,\na.txt,,A100,8,2,NVSwitch,\n"),
              HasSubstr("found a.txt again, which "));
  EXPECT_EQ(index_error("a.txt,,A100,8,1,NVSwitch,\nb.txt,all_gather,A100,8,1,NVSwitch,\n"),
            "none");
}

TEST(LogIndex, ReadsTheRowsOfAFolder) {
  const LogIndex index = read_log_index(std::string(ZEROSIM_TEST_DATA) + "/nccl_tests");
  ASSERT_EQ(index.size(), 8U);
  const LogIndexRow& row = index.at("p5_2n_efa_allreduce.txt");
  EXPECT_EQ(row.operation, "all_reduce");
  EXPECT_EQ(row.gpu, "H100-SXM5-80GB");
  EXPECT_EQ(row.gpus_per_node, 8);
  EXPECT_EQ(row.nodes, 2);
  EXPECT_EQ(row.link, "NVSwitch (NVLink4) + 32x100Gb EFA");
  EXPECT_TRUE(read_log_index("/nowhere").empty());
}

}  // namespace
}  // namespace zerosim
