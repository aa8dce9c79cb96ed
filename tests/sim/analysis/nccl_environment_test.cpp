#include "sim/analysis/nccl_environment.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/collective_model.h"
#include "topology/nccl_graph.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kind = LinkClass::Kind;

/// A cluster and what the variables did to it.
struct Told {
  Cluster cluster;
  std::vector<std::string> sentences;
};

Told with(const std::string& text, const std::string& machine = "dgx-a100-80", int nodes = 1) {
  Told told{load_cluster(machine, nodes), {}};
  told.sentences = follow_nccl_variables(parse_environment(text, "job.env"), told.cluster);
  return told;
}

std::string error_of(const std::string& text, const std::string& machine = "dgx-a100-80",
                     int nodes = 1) {
  try {
    static_cast<void>(with(text, machine, nodes));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

CollectiveCost cost_of(const Cluster& cluster, CollectiveOp op, Bytes size) {
  return collective_cost(cluster, op, size, world_group(cluster));
}

constexpr CollectiveOp kReduce = CollectiveOp::AllReduce;
constexpr CollectiveOp kGather = CollectiveOp::AllGather;
constexpr Bytes kLarge{1'073'741'824};
constexpr Bytes kSmall{1024};

/// V over the time on the links inside a node, GB/s: what nccl-tests shows of large sizes.
double busbw(const Cluster& cluster, CollectiveOp op, Kind kind = Kind::IntraNode) {
  const CollectiveCost cost = cost_of(cluster, op, kLarge);
  for (const LinkLoad& load : cost.loads) {
    if (load.kind != kind) continue;
    const Seconds transfer = load.bytes / link_capacity(cluster, kind);
    return static_cast<double>(cost.sent_per_rank.count()) / transfer.count() * 1e-9;
  }
  return 0;
}

bool is_available(const Cluster& cluster, CollectiveOp op, Algorithm algorithm, Protocol protocol) {
  const Seconds time =
      nccl_predicted_time(cluster, op, kSmall, world_group(cluster), algorithm, protocol);
  return std::isfinite(time.count());
}

TEST(NcclAlgo, RingsInPlaceOfReductionInTheSwitch) {
  // NVLS: 8 heads of 40 GB/s, twice for an all-reduce, 0.85 of it, 7/8: 476. Rings: 12 x 30.
  EXPECT_NEAR(busbw(with("", "dgx-h100").cluster, kReduce), 2 * 40 * 0.85 * 7, 0.01);
  const Told told = with("NCCL_ALGO=Ring", "dgx-h100");
  EXPECT_NEAR(busbw(told.cluster, kReduce), 12 * 30, 0.01);
  EXPECT_EQ(cost_of(told.cluster, kReduce, kLarge).algorithm, Algorithm::Ring);
  EXPECT_THAT(told.sentences,
              ElementsAre("environment: NCCL_ALGO=Ring: NCCL chooses among these algorithms"));
}

TEST(NcclAlgo, WhatIsNotListedHasNoTime) {
  const Cluster cluster = with("NCCL_ALGO=tree,NVLS", "dgx-h100").cluster;
  EXPECT_TRUE(is_available(cluster, kReduce, Algorithm::Tree, Protocol::Simple));
  EXPECT_TRUE(is_available(cluster, kReduce, Algorithm::Nvls, Protocol::Simple));
  EXPECT_FALSE(is_available(cluster, kReduce, Algorithm::Ring, Protocol::Simple));
  EXPECT_FALSE(is_available(cluster, kReduce, Algorithm::Ring, Protocol::LowLatency));
}

TEST(NcclAlgo, Exclusions) {
  const Cluster cluster = with("NCCL_ALGO=^NVLS,ring", "dgx-h100").cluster;
  EXPECT_EQ(cost_of(cluster, kReduce, kLarge).algorithm, Algorithm::Tree);
  EXPECT_FALSE(is_available(cluster, kReduce, Algorithm::Nvls, Protocol::Simple));
}

TEST(NcclAlgo, ListsOfOneOperation) {
  const Cluster cluster = with("NCCL_ALGO=ring;allreduce:^ring,nvls;Broadcast:ring").cluster;
  EXPECT_EQ(cost_of(cluster, kReduce, kLarge).algorithm, Algorithm::Tree);
  EXPECT_EQ(cost_of(cluster, kGather, kLarge).algorithm, Algorithm::Ring);
  EXPECT_FALSE(is_available(cluster, kReduce, Algorithm::Ring, Protocol::Simple));
  EXPECT_TRUE(is_available(cluster, kGather, Algorithm::Ring, Protocol::Simple));
}

TEST(NcclAlgo, WhereNothingIsLeftRingsDoIt) {
  const Told told = with("NCCL_ALGO=Tree\nNCCL_PROTO=LL");
  EXPECT_THAT(told.sentences.back(),
              HasSubstr("; none is left for allgather, reducescatter, broadcast, reduce: rings, as "
                        "before NCCL 2.24, while later ones fail"));
  EXPECT_FALSE(is_available(told.cluster, kGather, Algorithm::Ring, Protocol::LowLatency));
  const CollectiveCost gather = cost_of(told.cluster, kGather, kLarge);
  EXPECT_EQ(gather.algorithm, Algorithm::Ring);
  EXPECT_EQ(gather.protocol, Protocol::LowLatency);
  EXPECT_EQ(cost_of(told.cluster, kReduce, kLarge).algorithm, Algorithm::Tree);
  // A100 reduces in no switch.
  EXPECT_THAT(with("NCCL_ALGO=NVLS").sentences.back(),
              HasSubstr("none is left for allreduce, all"));
}

TEST(NcclProto, OnlyWhatIsListed) {
  EXPECT_EQ(cost_of(with("").cluster, kReduce, kSmall).protocol, Protocol::LowLatency);
  EXPECT_EQ(cost_of(with("NCCL_PROTO=Simple").cluster, kReduce, kSmall).protocol, Protocol::Simple);
  const Cluster lines = with("NCCL_PROTO=^Simple").cluster;
  EXPECT_EQ(cost_of(lines, kGather, kLarge).protocol, Protocol::LowLatency128);
  // 0.92 of 12 x 20 is more than 12 channels of at most 20: 220.8.
  EXPECT_NEAR(busbw(lines, kGather), 0.92 * 240, 0.01);
}

TEST(NcclProto, NamingLl128TurnsItOn) {
  constexpr const char* kStaged = "rtx4090x8-pcie";
  EXPECT_FALSE(
      is_available(with("", kStaged).cluster, kReduce, Algorithm::Ring, Protocol::LowLatency128));
  const Told told = with("NCCL_PROTO=LL128", kStaged);
  EXPECT_TRUE(is_available(told.cluster, kReduce, Algorithm::Ring, Protocol::LowLatency128));
  EXPECT_THAT(told.sentences.back(), HasSubstr("; LL128 among them, which it would not take here"));
}

TEST(NcclChannels, FewerLeaveNvLinksIdle) {
  const Cluster usual = with("").cluster;
  EXPECT_EQ(cost_of(usual, kGather, kLarge).ctas, 24);
  EXPECT_NEAR(busbw(usual, kGather), 12 * 20, 0.01);
  const Told four = with("NCCL_MAX_NCHANNELS=4");
  EXPECT_EQ(cost_of(four.cluster, kGather, kLarge).ctas, 4);
  EXPECT_NEAR(busbw(four.cluster, kGather), 4 * 20, 0.01);
  EXPECT_THAT(four.sentences,
              ElementsAre("environment: NCCL_MAX_NCHANNELS=4: of large all-gathers: inside a node "
                          "they hold 4 SMs where 24 are usual and reach 80 of 240 GB/s"));
  // The links are as wide as before: others may use them.
  EXPECT_EQ(link_capacity(four.cluster, Kind::IntraNode), link_capacity(usual, Kind::IntraNode));
  // The lower of both; 16 of 24 still fill all 12 rings.
  EXPECT_EQ(cost_of(with("NCCL_MAX_CTAS=2\nNCCL_MAX_NRINGS=4").cluster, kGather, kLarge).ctas, 2);
  EXPECT_NEAR(busbw(with("NCCL_MAX_CTAS=16").cluster, kGather), 12 * 20, 0.01);
}

TEST(NcclChannels, OfHeadsOfAdaptersAndOfPcie) {
  // 4 of 8 heads: half of 476. Rings of 4 x 30 = 120 are no match.
  EXPECT_NEAR(busbw(with("NCCL_MAX_CTAS=4", "dgx-h100").cluster, kReduce), 238, 0.01);
  // Two nodes, 8 x 24 GB/s: a channel an adapter.
  EXPECT_NEAR(busbw(with("", "dgx-a100-80", 2).cluster, kGather, Kind::Network), 192, 0.01);
  EXPECT_NEAR(busbw(with("NCCL_MAX_NCHANNELS=2", "dgx-a100-80", 2).cluster, kGather, Kind::Network),
              48, 0.01);
  // Two rings through host memory share its links.
  EXPECT_EQ(busbw(with("NCCL_MAX_NCHANNELS=1", "rtx4090x8-pcie").cluster, kGather),
            busbw(with("", "rtx4090x8-pcie").cluster, kGather));
}

TEST(NcclChannels, MoreHoldSmsAlone) {
  const Told told = with("NCCL_MIN_NCHANNELS=32\nNCCL_MIN_CTAS=8");
  EXPECT_EQ(cost_of(told.cluster, kGather, kLarge).ctas, 32);
  EXPECT_NEAR(busbw(told.cluster, kGather), 240, 0.01);
  EXPECT_THAT(told.sentences.front(),
              HasSubstr("of large all-gathers: inside a node they hold 32 SMs where 24 are usual "
                        "and are no faster"));
  EXPECT_THAT(told.sentences.back(), HasSubstr("NCCL_MIN_CTAS=8: changes nothing here"));
}

TEST(NcclThreads, OfSmallCollectives) {
  // 512 KiB over 512 threads of 64 B: 16 channels; over 256: 32, of which there are 24.
  const std::string simple = "NCCL_PROTO=Simple\n";
  EXPECT_EQ(cost_of(with(simple).cluster, kGather, Bytes(524'288)).ctas, 16);
  EXPECT_EQ(cost_of(with(simple + "NCCL_NTHREADS=256").cluster, kGather, Bytes(524'288)).ctas, 24);
  EXPECT_THAT(with("NCCL_NTHREADS=1024").sentences,
              ElementsAre("environment: NCCL_NTHREADS=1024: changes nothing here"));
}

TEST(NcclNvls, Off) {
  EXPECT_NEAR(busbw(with("NCCL_NVLS_ENABLE=0", "dgx-h100").cluster, kReduce), 360, 0.01);
  EXPECT_NEAR(busbw(with("NCCL_NVLS_ENABLE=2", "dgx-h100").cluster, kReduce), 476, 0.01);
  EXPECT_THAT(with("NCCL_NVLS_ENABLE=0").sentences.front(), HasSubstr("changes nothing here"));
}

TEST(NcclP2p, OffMeansHostMemory) {
  // PCIe 4: 15 GB/s, and two GPUs share each way to a CPU. No LL128 without NVLink.
  const Told told = with("NCCL_P2P_DISABLE=1");
  EXPECT_EQ(told.cluster.intra(), IntraNode::PcieHostStaged);
  EXPECT_NEAR(busbw(told.cluster, kGather), 7.5, 0.001);
  EXPECT_FALSE(is_available(told.cluster, kReduce, Algorithm::Ring, Protocol::LowLatency128));
  EXPECT_THAT(told.sentences,
              ElementsAre("environment: NCCL_P2P_DISABLE=1: GPUs of a node talk through host "
                          "memory, where rings reach 7.5 GB/s"));
  EXPECT_EQ(with("NCCL_P2P_LEVEL=LOC").cluster.intra(), IntraNode::PcieHostStaged);
  EXPECT_EQ(with("NCCL_P2P_LEVEL=0").cluster.intra(), IntraNode::PcieHostStaged);
  EXPECT_EQ(with("NCCL_P2P_DISABLE=0\nNCCL_P2P_LEVEL=NVL").cluster.intra(), IntraNode::NvSwitch);
}

TEST(NcclP2p, LevelsOfCards) {
  const auto intra = [](const char* text, const char* machine) {
    return with(text, machine).cluster.intra();
  };
  // Below one switch for each CPU; the cluster says that GPUs copy directly.
  EXPECT_EQ(intra("", "a100x8-pcie-plx"), IntraNode::Pcie);
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=NVL", "a100x8-pcie-plx"), IntraNode::PcieHostStaged);
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=PIX", "a100x8-pcie-plx"), IntraNode::PcieHostStaged);
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=PXB", "a100x8-pcie-plx"), IntraNode::Pcie);
  // Four on the ports of one CPU: PHB.
  EXPECT_EQ(intra("", "a10x4-pcie"), IntraNode::PcieHostStaged);
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=PXB", "a10x4-pcie"), IntraNode::PcieHostStaged);
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=PHB", "a10x4-pcie"), IntraNode::Pcie);
  // Eight on those of two: SYS.
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=PHB", "l40sx8-pcie"), IntraNode::PcieHostStaged);
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=7", "l40sx8-pcie"), IntraNode::Pcie);
  // The driver of consumer cards refuses whatever NCCL asks for.
  EXPECT_EQ(intra("NCCL_P2P_LEVEL=SYS", "rtx4090x8-pcie"), IntraNode::PcieHostStaged);
}

TEST(NcclP2p, NodesThatNvLinkJoinedPart) {
  const Told told = with("NCCL_P2P_DISABLE=1", "gb200-nvl72", 2);
  EXPECT_EQ(told.cluster.fabric.nvlink_domain_nodes, 1);
  EXPECT_THAT(told.sentences.front(), HasSubstr("NVLink joins no nodes"));
  EXPECT_EQ(with("NCCL_MNNVL_ENABLE=0", "gb200-nvl72", 2).cluster.fabric.nvlink_domain_nodes, 1);
}

TEST(NcclP2p, LostNvLinksDoNotMatterThen) {
  Cluster cluster = load_cluster("dgx-a100-80");
  LinkPerturbation lost;
  lost.where = LinkPerturbation::Where::NvLink;
  lost.gpus = {0};
  lost.lost_links = 2;
  cluster.perturbations.links = {lost};
  settle_nccl(cluster);
  ASSERT_TRUE(cluster.settled);
  static_cast<void>(
      follow_nccl_variables(parse_environment("NCCL_P2P_DISABLE=1", "job.env"), cluster));
  EXPECT_FALSE(cluster.settled);
  EXPECT_NEAR(busbw(cluster, kGather), 7.5, 0.001);
}

TEST(NcclShm, OffMeansAdapters) {
  // Eight adapters of 0.96 x 25 GB/s, eight GPUs: 24 GB/s each; a step is one between nodes:
  // 14 us of Simple where one over PCIe has 5.7.
  const Told told = with("NCCL_P2P_DISABLE=1\nNCCL_SHM_DISABLE=1");
  EXPECT_NEAR(busbw(told.cluster, kGather), 24, 0.001);
  const Seconds time =
      nccl_predicted_time(told.cluster, kGather, Bytes(0), world_group(told.cluster),
                          Algorithm::Ring, Protocol::Simple);
  EXPECT_NEAR(time.count() * 1e6, 8.4 + 7 * 14, 1e-9);
  EXPECT_THAT(with("NCCL_SHM_DISABLE=1").sentences.front(), HasSubstr("changes nothing here"));
}

TEST(NcclShm, NothingLeft) {
  Cluster cluster = parse_cluster(
      R"({"version": 1, "name": "box", "node": {"gpu": "A10-24", "gpus": 4,
          "intra": {"kind": "pcie-host-staged"}}})",
      "box.json");
  try {
    static_cast<void>(
        follow_nccl_variables(parse_environment("A=1\nNCCL_SHM_DISABLE=1", "job.env"), cluster));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "job.env:2:18: NCCL_SHM_DISABLE: GPUs of a node then reach each other through "
                 "adapters only, and nodes (box) have none");
  }
}

TEST(NcclChannels, BothPartsOfEachKindOfGroup) {
  // 18 trays of 4 GPUs that NVLink joins are one node for NCCL: 16 rings of 40.1 GB/s hold 32 SMs.
  const Told rack = with("NCCL_MAX_NCHANNELS=8", "gb200-nvl72", 18);
  const LinkClass::Kind kind = Kind::IntraNode;
  const double usual = busbw(with("", "gb200-nvl72", 18).cluster, kGather, kind);
  EXPECT_NEAR(busbw(rack.cluster, kGather, kind), usual / 2, 0.01 * usual);
  EXPECT_THAT(rack.sentences.front(), HasSubstr("inside an NVLink domain they hold 8 SMs where 32 "
                                                "are usual and reach "));
  // Groups of one node, as HSDP has them, hold 24 SMs where those between nodes hold 16.
  const Told two = with("NCCL_MAX_NCHANNELS=16", "dgx-h100", 2);
  EXPECT_THAT(two.sentences,
              ElementsAre("environment: NCCL_MAX_NCHANNELS=16: of large all-gathers: inside a node "
                          "they hold 16 SMs where 24 are usual"));
  // 2 of 12 rings of 30 GB/s inside, 2 of 8 of 45 between.
  const Told few = with("NCCL_MAX_NCHANNELS=2", "dgx-h100", 2);
  EXPECT_THAT(few.sentences.front(),
              HasSubstr("inside a node they hold 2 SMs where 24 are usual and "
                        "reach 60 of 360 GB/s; between nodes they hold 2 SMs "
                        "where 16 are usual and reach "));
}

TEST(NcclNet, Sockets) {
  // TCP: no adapter gets more than 9 GB/s; through host memory, 25 GB/s that two GPUs share and the
  // way up carries twice, it is 6.25. 75 us a step more, no LL128.
  for (const char* text : {"NCCL_IB_DISABLE=1", "NCCL_NET=Socket", "NCCL_NET=socket"}) {
    const Told told = with(text, "dgx-a100-80", 2);
    const double host = link_capacity(told.cluster, Kind::HostToDevice).gb_per_second();
    EXPECT_NEAR(usable_nic_bandwidth(told.cluster).gb_per_second(), host / 2, 1e-9);
    EXPECT_NEAR(busbw(told.cluster, kGather, Kind::Network), 8 * host / 2, 0.01);
    EXPECT_FALSE(is_available(told.cluster, kReduce, Algorithm::Ring, Protocol::LowLatency128));
    EXPECT_THAT(told.sentences.front(),
                HasSubstr("adapters talk by TCP through host memory, 6.25 GB/s each, 75 us more"));
  }
  EXPECT_THAT(with("NCCL_NET=IB", "dgx-a100-80", 2).sentences.front(),
              HasSubstr("changes nothing here"));
}

/// Alone, of the whole cluster, by rings.
Seconds time_with(const std::string& text, const char* machine, CollectiveOp op, Bytes size) {
  const Cluster cluster = with(text + "\nNCCL_ALGO=Ring\nNCCL_PROTO=Simple", machine, 2).cluster;
  return cost_of(cluster, op, size).idle_time(cluster);
}

// GPUDirect, then host memory with the adapters' own transport, then sockets; TCPX is sockets that
// leave payloads on the GPU. (Of one algorithm: NCCL chooses by peaks and latencies, and may choose
// better by chance where it believes a network to be slow.)
TEST(NcclNet, SocketsAreNeverTheFasterWay) {
  for (const char* machine :
       {"dgx-a100-80", "dgx-h100", "aws-p5", "aws-p4d", "gcp-a3-high", "gcp-a3-mega"}) {
    for (const CollectiveOp op : {kReduce, kGather}) {
      for (std::int64_t size = 1024; size <= kLarge.count(); size *= 16) {
        const Seconds own = time_with("", machine, op, Bytes(size));
        const Seconds staged = time_with("NCCL_NET_GDR_LEVEL=LOC", machine, op, Bytes(size));
        const Seconds sockets = time_with("NCCL_NET=Socket", machine, op, Bytes(size));
        EXPECT_LE(own, staged * (1 + 1e-9)) << machine << " " << size;
        EXPECT_LE(staged, sockets * (1 + 1e-9)) << machine << " " << size;
      }
    }
  }
}

// A cluster file's own sockets go through host memory, too, where nobody states what they reach.
TEST(NcclNet, SocketsOfAFile) {
  const auto usable = [](const std::string& more) {
    const Cluster cluster = parse_cluster(
        R"({"version": 1, "name": "t", "node": {"preset": "dgx-a100-80", "nics": {"kind": "tcp")" +
            more + R"(}}, "nodes": 2})",
        "t.json");
    return usable_nic_bandwidth(cluster).gb_per_second();
  };
  EXPECT_NEAR(usable(""), 6.25, 1e-9);
  EXPECT_NEAR(usable(R"(, "efficiency": 0.5)"), 12.5, 1e-9);  // measured, as somebody says
  EXPECT_NEAR(usable(R"(, "bandwidth": "25Gb/s")"), 0.85 * 3.125, 1e-9);
}

TEST(NcclNet, AdaptersWithAPlugin) {
  const auto kind = [](const char* text) { return with(text, "aws-p4d", 2).cluster.node.network; };
  EXPECT_EQ(kind("NCCL_IB_DISABLE=1"), NetworkKind::EfaV1);
  EXPECT_EQ(kind("NCCL_NET=Socket"), NetworkKind::Tcp);
  EXPECT_EQ(kind("NCCL_NET_PLUGIN=none"), NetworkKind::Tcp);
  EXPECT_EQ(kind("NCCL_IB_HCA=mlx5_0"), NetworkKind::EfaV1);
}

TEST(NcclHca, AdaptersThatAreUsed) {
  const auto used = [](const char* text) {
    const Cluster cluster = with(text, "dgx-a100-80", 2).cluster;
    // Every used adapter is one channel.
    EXPECT_EQ(cluster.nccl().inter_ring_channels, nics_in_use(cluster)) << text;
    return nics_in_use(cluster);
  };
  EXPECT_EQ(used(""), 8);
  EXPECT_EQ(used("NCCL_IB_HCA=mlx5"), 8);
  EXPECT_EQ(used("NCCL_IB_HCA=mlx5_0:1,mlx5_1:1,mlx5_0:2"), 2);
  EXPECT_EQ(used("NCCL_IB_HCA==mlx5_3"), 1);
  EXPECT_EQ(used("NCCL_IB_HCA=^mlx5_3,mlx5_4"), 6);
  EXPECT_EQ(used("NCCL_IB_HCA=^=mlx5"), 8);
  // Numbers of a machine with storage adapters among them: as many as there are names.
  EXPECT_EQ(used("NCCL_IB_HCA=mlx5_0,mlx5_3,mlx5_9,mlx5_12"), 4);
  EXPECT_EQ(used("NCCL_IB_HCA=mlx5_ib0,mlx5_ib1"), 2);
  EXPECT_EQ(used("NCCL_IB_HCA=roceo"), 8);
  // An exclusion of others takes none of these.
  EXPECT_EQ(used("NCCL_IB_HCA=^mlx5_bond_0"), 8);
}

TEST(NcclHca, FewerAdaptersAreSlower) {
  const Told told = with("NCCL_IB_HCA=mlx5_0,mlx5_1", "dgx-a100-80", 2);
  EXPECT_NEAR(link_capacity(told.cluster, Kind::Network).gb_per_second(), 2 * 24, 1e-9);
  EXPECT_NEAR(busbw(told.cluster, kGather, Kind::Network), 48, 0.01);
  EXPECT_THAT(told.sentences,
              ElementsAre("environment: NCCL_IB_HCA=mlx5_0,mlx5_1: a node uses 2 of 8 adapters "
                          "(adapter i is taken for mlx5_i)"));
  const Told none = with("NCCL_IB_HCA=^mlx5", "dgx-a100-80", 2);
  EXPECT_EQ(none.cluster.node.network, NetworkKind::Tcp);
  EXPECT_THAT(none.sentences.front(), HasSubstr("no adapter is left, so adapters talk by TCP"));
}

TEST(NcclGdr, OffMeansHostMemory) {
  // Two GPUs and two adapters below each switch. Copies between host and GPU reach 25 GB/s, which
  // two GPUs share; the way up carries what adapters write, too: 6.25 of 24 GB/s an adapter.
  const Cluster usual = with("", "dgx-a100-80", 2).cluster;
  const double host = link_capacity(usual, Kind::HostToDevice).gb_per_second();
  const Told told = with("NCCL_NET_GDR_LEVEL=LOC", "dgx-a100-80", 2);
  EXPECT_NEAR(usable_nic_bandwidth(told.cluster).gb_per_second(), host / 2, 1e-9);
  EXPECT_NEAR(busbw(told.cluster, kGather, Kind::Network), 8 * host / 2, 0.01);
  EXPECT_FALSE(is_available(told.cluster, kReduce, Algorithm::Ring, Protocol::LowLatency128));
  EXPECT_THAT(told.sentences.front(), HasSubstr("adapters reach GPUs through host memory"));
  // Adapters are within PXB, and one node has none to talk to.
  for (const char* text : {"NCCL_NET_GDR_LEVEL=PXB", "NCCL_NET_GDR_LEVEL=SYS"}) {
    EXPECT_THAT(with(text, "dgx-a100-80", 2).sentences.front(), HasSubstr("changes nothing here"));
  }
  EXPECT_THAT(with("NCCL_NET_GDR_LEVEL=LOC").sentences.front(), HasSubstr("changes nothing here"));
  // Sends alone: the way is not shared with receives.
  const Told sends = with("NCCL_NET_GDR_READ=0", "dgx-a100-80", 2);
  EXPECT_NEAR(usable_nic_bandwidth(sends.cluster).gb_per_second(), host, 1e-9);
}

// What a variable does is told by what comes of all of them.
TEST(NcclVariables, MatterByWhatComesOfAll) {
  // One node whose GPUs are left with the adapters: 1 of 8, or sockets.
  const std::string adapters = "NCCL_P2P_DISABLE=1\nNCCL_SHM_DISABLE=1\n";
  const Told one = with(adapters + "NCCL_IB_HCA=mlx5_0");
  EXPECT_NEAR(busbw(one.cluster, kGather), 3, 0.001);  // 24 GB/s among 8 GPUs
  EXPECT_THAT(one.sentences,
              Contains(HasSubstr("NCCL_IB_HCA=mlx5_0: a node uses 1 of 8 adapters")));
  const Told sockets = with(adapters + "NCCL_NET=Socket");
  EXPECT_THAT(sockets.sentences, Contains(HasSubstr("NCCL_NET=Socket: adapters talk by TCP")));
  EXPECT_LT(busbw(sockets.cluster, kGather), 24);
  // Without these two they stay idle.
  EXPECT_THAT(with("NCCL_IB_HCA=mlx5_0\nNCCL_NET_GDR_LEVEL=LOC").sentences,
              Each(HasSubstr("changes nothing here")));
  // NVLink joins two trays, one GPU has no other: whatever the links.
  EXPECT_THAT(with("NCCL_NET=Socket", "gb200-nvl72", 2).sentences,
              Each(HasSubstr("changes nothing here")));
  EXPECT_THAT(with("NCCL_IB_HCA=mlx5_0", "gb200-nvl72", 2).sentences,
              Each(HasSubstr("changes nothing here")));
  EXPECT_THAT(with("NCCL_P2P_DISABLE=1", "gh200").sentences,
              Each(HasSubstr("changes nothing here")));
  // Of two that do the same the first counts.
  const Told twice = with("NCCL_NET=Socket\nNCCL_IB_DISABLE=1", "dgx-a100-80", 2);
  EXPECT_THAT(twice.sentences, ElementsAre(HasSubstr("NCCL_IB_DISABLE=1: adapters talk by TCP"),
                                           HasSubstr("NCCL_NET=Socket: changes nothing here")));
}

TEST(NcclVariables, SettingsThatAreFollowed) {
  EXPECT_THAT(followed_settings(parse_environment(
                  "NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\nNCCL_IB_HCA=\nNCCL_NET=Socket\n", "job.env")),
              ElementsAre("NCCL_NET=Socket", "NCCL_ALGO=Ring"));
}

TEST(NcclCollNet, Off) {
  Cluster cluster = load_cluster("dgx-h100", 4);
  cluster.fabric.sharp = true;
  EXPECT_TRUE(is_available(cluster, kReduce, Algorithm::CollNetChain, Protocol::Simple));
  static_cast<void>(
      follow_nccl_variables(parse_environment("NCCL_COLLNET_ENABLE=0", "job.env"), cluster));
  EXPECT_FALSE(is_available(cluster, kReduce, Algorithm::CollNetChain, Protocol::Simple));
  EXPECT_THAT(with("NCCL_COLLNET_ENABLE=1", "dgx-h100", 4).sentences.front(),
              HasSubstr("does nothing, as the cluster's switches do not reduce (fabric.sharp)"));
}

TEST(NcclVariables, NothingFromNothing) {
  EXPECT_THAT(with("").sentences, IsEmpty());
  EXPECT_THAT(with("NCCL_ALGO=\nNCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=eth0\n").sentences, IsEmpty());
  const Cluster usual = load_cluster("dgx-a100-80");
  const Cluster same = with("NCCL_P2P_DISABLE=0\nNCCL_IB_DISABLE=0\nNCCL_P2P_LEVEL=SYS").cluster;
  EXPECT_EQ(same.nccl_settings, usual.nccl_settings);
  EXPECT_EQ(cost_of(same, kReduce, kLarge).idle_time(same),
            cost_of(usual, kReduce, kLarge).idle_time(usual));
}

TEST(NcclVariables, BadValuesHaveAPlace) {
  EXPECT_EQ(error_of("export NCCL_ALGO=\"ring,tre\""),
            "job.env:1:24: NCCL_ALGO: found \"tre\", expected one of ring, tree, nvls, nvlstree, "
            "collnetdirect, collnetchain, pat, collnet; did you mean \"tree\"?");
  EXPECT_EQ(error_of("NCCL_ALGO=ring;allredce:tree"),
            "job.env:1:16: NCCL_ALGO: found \"allredce\", expected one of allreduce, allgather, "
            "reducescatter, broadcast, reduce; did you mean \"allreduce\"?");
  EXPECT_EQ(error_of("NCCL_ALGO=ring;tree"),
            "job.env:1:16: NCCL_ALGO: found \"tree\", expected \"operation:list\" behind the first "
            "\";\"");
  EXPECT_EQ(error_of("NCCL_PROTO=LL,"),
            "job.env:1:15: NCCL_PROTO: found \"\", expected one of ll, ll128, simple");
  EXPECT_EQ(error_of("A=1\nNCCL_P2P_DISABLE=yes"),
            "job.env:2:18: NCCL_P2P_DISABLE: found \"yes\", expected 0 or 1");
  EXPECT_EQ(error_of("NCCL_P2P_LEVEL=pix"),
            "job.env:1:16: NCCL_P2P_LEVEL: found \"pix\", expected one of LOC, NVL, NVB, C2C, PIX, "
            "PXB, PXN, P2C, PHB, SYS, or 0 to 4; did you mean \"PIX\"?");
  EXPECT_EQ(
      error_of("NCCL_MAX_NCHANNELS=0"),
      "job.env:1:20: NCCL_MAX_NCHANNELS: found \"0\", expected a number of channels, at least "
      "1");
  EXPECT_EQ(error_of("NCCL_MIN_CTAS=8\nNCCL_MAX_CTAS=4"),
            "job.env:1:15: NCCL_MIN_CTAS: found \"8\", expected at most 4, the most channels that "
            "the environment allows");
  EXPECT_EQ(error_of("NCCL_NTHREADS=100"),
            "job.env:1:15: NCCL_NTHREADS: found \"100\", expected a multiple of 32 from 64 on");
  EXPECT_EQ(error_of("NCCL_IB_HCA=^mlx5_0,", "dgx-a100-80", 2),
            "job.env:1:21: NCCL_IB_HCA: found \"\", expected the name of an adapter, \"mlx5_0\" or "
            "\"mlx5_0:1\"");
  EXPECT_EQ(
      error_of("export NCCL_NVLS_ENABLE=$NVLS"),
      "job.env:1:25: NCCL_NVLS_ENABLE: found \"$NVLS\", expected a value that no shell has to "
      "expand");
}

TEST(NcclVariables, EachNameOnce) {
  std::vector<std::string_view> names = nccl_variables();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace zerosim
