#include "topology/collective_model.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "topology/presets/machines.h"

namespace zerosim {
namespace {

using Kind = LinkClass::Kind;

constexpr CollectiveOp kOps[] = {CollectiveOp::AllReduce, CollectiveOp::AllGather,
                                 CollectiveOp::ReduceScatter, CollectiveOp::Broadcast,
                                 CollectiveOp::Reduce};

CollectiveGroup world(const Cluster& cluster) {
  return {cluster.world_size(), parts(cluster.nodes, cluster.fabric.nvlink_domain_nodes)};
}

CollectiveCost cost_of(const Cluster& cluster, CollectiveOp op, Bytes size) {
  return collective_cost(cluster, op, size, world(cluster));
}

double load_of(const CollectiveCost& cost, Kind kind) {
  double sum = 0;
  for (const LinkLoad& load : cost.loads) {
    if (load.kind == kind) sum += static_cast<double>(load.bytes.count());
  }
  return sum;
}

double microseconds(const CollectiveCost& cost, const Cluster& cluster) {
  return cost.idle_time(cluster).count() * 1e6;
}

std::vector<Cluster> sample_clusters() {
  std::vector<Cluster> clusters;
  for (const Machine& machine : machines()) {
    if (!is_simulated_gpu(machine.gpu)) continue;
    for (const int nodes : {1, 2, 5, 16, 40}) {
      const Cluster cluster = load_cluster(machine.name, nodes);
      if (cluster.world_size() > 1) clusters.push_back(cluster);
    }
  }
  return clusters;
}

TEST(RingBytesSent, CountsAsNcclTests) {
  // S = 1000, N = 8: shards of 125; all-gather (N-1)/N S = 875, all-reduce twice that.
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::AllGather, 1000_B, 8), 875_B);
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::ReduceScatter, 1000_B, 8), 875_B);
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::AllReduce, 1000_B, 8), 1750_B);
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::Broadcast, 1000_B, 8), 1000_B);
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::Reduce, 1000_B, 8), 1000_B);
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::AllReduce, 1000_B, 1), 0_B);
  // 7/8 of 3 bytes: three, as bytes are whole.
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::AllGather, 3_B, 8), 3_B);
  EXPECT_EQ(ring_bytes_sent(CollectiveOp::AllReduce, 0_B, 8), 0_B);
}

// A100, 8 GPUs, 12 x 20 = 240 GB/s, all-gather of 1 GiB (S):
//
//     Simple: A = 8.4 + 7 x 3.4 = 32.2 us
//     V = 7/8 S = 939,524,096 B; V/B = 939,524,096 / 240e9 = 3914.684 us
//     bend = 1.0 sqrt(32.2 x 3914.684) = 355.037 us, but at most 2.5 A = 80.5 us
//     t = 4027.384 us;  LL128 would need V / (0.92 x 240) = 4255 us and loses by NCCL's line
TEST(CollectiveCost, AllGatherByHand) {
  const Cluster cluster = load_cluster("dgx-a100-80");
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllGather, 1_GiB);
  EXPECT_EQ(cost.algorithm, Algorithm::Ring);
  EXPECT_EQ(cost.protocol, Protocol::Simple);
  const double transfer = 939'524'096 / 240e9;
  const double delay = (32.2 + 80.5) * 1e-6;
  EXPECT_NEAR(cost.delay.count(), delay, 1e-12);
  EXPECT_NEAR(cost.idle_time(cluster).count(), transfer + delay, 1e-11);
  EXPECT_EQ(load_of(cost, Kind::IntraNode), 939'524'096);
  EXPECT_EQ(load_of(cost, Kind::DeviceMemory), 2 * 939'524'096.0);
  EXPECT_EQ(load_of(cost, Kind::Network), 0);
  EXPECT_EQ(cost.sent_per_rank, Bytes(939'524'096));
  EXPECT_EQ(cost.inter_node, 0_B);
  EXPECT_EQ(cost.ctas, 24);
}

// H100, 8 GPUs, all-reduce of 256 MiB by NVLS, 8 heads x 40 GB/s:
//
//     A = 25 us; bus = 8 x 40 x 0.85 x 7/8 x 2 = 476 GB/s, algorithm bandwidth 476 x 8/14 = 272
//     GB/s S/272e9 = 986.895 us; bend (NVLS) sqrt(25 x 986.895) = 157.074 us, but at most
//     2.5 x 25 = 62.5; bytes on NVLink: 986.895 us x 360 GB/s
TEST(CollectiveCost, NvlsAllReduceByHand) {
  const Cluster cluster = load_cluster("dgx-h100");
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllReduce, 256_MiB);
  EXPECT_EQ(cost.algorithm, Algorithm::Nvls);
  EXPECT_EQ(cost.ctas, 16);
  const double transfer = 268'435'456 / 272e9;
  EXPECT_NEAR(load_of(cost, Kind::IntraNode), transfer * 360e9, 1);
  EXPECT_NEAR(cost.delay.count(), 25e-6 + 62.5e-6, 1e-12);
  EXPECT_NEAR(load_of(cost, Kind::DeviceMemory), 2 * 268'435'456 * 9.0 / 8, 1);
  EXPECT_EQ(cost.sent_per_rank, Bytes(2 * 234'881'024));
}

// V100, 8 GPUs, reduce-scatter of 64 MiB: A = 8.4 + 7 x 3.4 = 32.2 us, V/B = 7/8 x 67,108,864 /
// 130e9 = 451.694 us (rings reach 130 of the 6 x 20 that NCCL counts), kappa 0.6.
TEST(CollectiveCost, ReduceScatterByHand) {
  const Cluster cluster = load_cluster("dgx1-v100");
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::ReduceScatter, 64_MiB);
  EXPECT_EQ(cost.protocol, Protocol::Simple);
  const double transfer = 0.875 * 67'108'864 / 130e9;
  EXPECT_NEAR(cost.idle_time(cluster).count(),
              32.2e-6 + transfer + 0.6 * std::sqrt(32.2e-6 * transfer), 1e-11);
}

// A100, broadcast of 64 MiB: through all 8 ranks, A = 8.4 + 7 x 3.4 = 32.2 (NCCL counts one step);
// B = 240 x 8/8, V/B = 279.6 us; bend sqrt(32.2 x 279.6) = 94.9, but at most 80.5.
TEST(CollectiveCost, BroadcastAndReduceByHand) {
  const Cluster cluster = load_cluster("dgx-a100-80");
  const double transfer = 67'108'864 / 240e9;
  for (const CollectiveOp op : {CollectiveOp::Broadcast, CollectiveOp::Reduce}) {
    const CollectiveCost cost = cost_of(cluster, op, 64_MiB);
    EXPECT_EQ(cost.protocol, Protocol::Simple);
    EXPECT_NEAR(cost.idle_time(cluster).count(), (32.2 + 80.5) * 1e-6 + transfer, 1e-11);
  }
}

// Two DGX A100, all-gather of 1 GiB over 16 ranks, 8 x 24 = 192 GB/s, AMD hosts:
//
//     Simple: A = 8.4 + 14 x max(3.4, 3 x 2) + 1 x 14 = 106.4 us
//     V = 15/16 S; V/B at 192 GB/s = the NICs' 8 x 25 x 0.96: 5242.9 us
//     bend: 0.8 sqrt(106.4 x 5242.9) = 597.5, but at most 266; launch 14
TEST(CollectiveCost, TwoNodesByHand) {
  const Cluster cluster = load_cluster("dgx-a100-80", 2);
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllGather, 1_GiB);
  EXPECT_EQ(cost.protocol, Protocol::Simple);
  const double sent = 1'073'741'824 * 15.0 / 16;
  const double transfer = sent / 192e9;
  EXPECT_NEAR(cost.idle_time(cluster).count() - cost.delay.count(), transfer, 1e-9);
  EXPECT_NEAR(cost.delay.count(), (14 + 106.4 + 266) * 1e-6, 1e-12);
  EXPECT_NEAR(load_of(cost, Kind::Network), sent, 1);
  EXPECT_NEAR(load_of(cost, Kind::IntraNode), sent, 1);
  EXPECT_EQ(cost.inter_node, cost.sent_per_rank);
  EXPECT_EQ(cost.ctas, 16);
}

// NCCL counts a network of 2.25 GB/s as 1.2, the nearest below it of its menu; transfers keep to
// the network. Two nodes of two GPUs, 18 Gb/s, all-gather of 1 GiB: V = 3/4 S = 805,306,368 B over
// 0.85 x 0.95 x 2.25 = 1.817 GB/s are 443.2 ms, and not the 671 ms of 1.2 GB/s.
TEST(CollectiveCost, NcclsMenuIsNoLimit) {
  const Cluster cluster = parse_cluster(R"({"version": 1, "nodes": 2, "node": {
    "gpu": "A10-24", "gpus": 2, "intra": {"kind": "pcie", "pcie": "31.5GB/s"},
    "nics": {"count": 1, "kind": "tcp", "bandwidth": "18Gb/s"}},
    "fabric": {"kind": "switch", "efficiency": 0.95}})",
                                        "a10.json");
  EXPECT_DOUBLE_EQ(cluster.nccl().inter_ring_channel_gbps, 1.2);
  const double transfer = 805'306'368 / (0.85 * 0.95 * 2.25e9);
  const double time = cost_of(cluster, CollectiveOp::AllGather, 1_GiB).idle_time(cluster).count();
  EXPECT_GT(time, transfer);
  EXPECT_LT(time, 1.01 * transfer);
}

// At 0.5 of the fabric the same transfer takes twice as long; NCCL chooses as before.
TEST(CollectiveCost, SlowFabricsStretchTheTransfer) {
  Cluster cluster = load_cluster("dgx-a100-80", 2);
  cluster.fabric.efficiency = 0.5;
  const double sent = 1'073'741'824 * 15.0 / 16;
  const double transfer = sent / 96e9;
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllGather, 1_GiB);
  EXPECT_NEAR(cost.idle_time(cluster).count(), (14 + 106.4 + 266) * 1e-6 + transfer, 1e-10);
}

// A fabric of 1 us adds 1 us to each of the steps between nodes: 1 for a gather over two nodes. The
// bend, at most 2.5 A, grows by 2.5 us.
TEST(CollectiveCost, HopsOfTheFabricCountPerInterNodeStep) {
  const Cluster cluster = load_cluster("dgx-a100-80", 2);
  const auto delay = [&](Seconds fabric) {
    const CollectiveGroup group{16, 2, 0, fabric};
    return collective_cost(cluster, CollectiveOp::AllGather, 1_GiB, group).delay.count();
  };
  const double before = delay(Seconds(0));
  const double after = delay(Seconds(1e-6));
  EXPECT_NEAR(after - before, 3.5e-6, 1e-12);
}

// One H100 node's rings (360) are narrower than eight NDR NICs (384): both are full, neither lasts
// longer.
TEST(CollectiveCost, TheNarrowestClassLastsExactlyTheTransfer) {
  for (const Cluster& cluster : sample_clusters()) {
    for (const CollectiveOp op : kOps) {
      for (const Bytes size : {4_KiB, 1_MiB, 1_GiB}) {
        const CollectiveCost cost = cost_of(cluster, op, size);
        const double intra =
            load_of(cost, Kind::IntraNode) / link_capacity(cluster, Kind::IntraNode).per_second();
        // Of all nodes that NVLink joins.
        const double network =
            load_of(cost, Kind::Network) / (cluster.fabric.nvlink_domain_nodes *
                                            link_capacity(cluster, Kind::Network).per_second());
        const double transfer = cost.idle_time(cluster).count() - cost.delay.count();
        EXPECT_NEAR(std::max(intra, network), transfer, 1e-9 * transfer)
            << cluster.name << " " << cluster.nodes << " " << to_string(op) << " " << size.count();
        EXPECT_GT(transfer, 0);
      }
    }
  }
}

// LL sends a flag with every 4 bytes: at half of the bus it loads twice the bytes.
TEST(CollectiveCost, LowLatencyLoadsTwiceTheBytes) {
  const Cluster cluster = load_cluster("rtx4090x8-pcie");
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllGather, 8_KiB);
  EXPECT_EQ(cost.protocol, Protocol::LowLatency);
  EXPECT_NEAR(load_of(cost, Kind::IntraNode), 2 * 7168, 1);
}

// busbw = S/t x (steps / N): the limit of large sizes is the capacity of the class.
TEST(CollectiveCost, LargeSizesReachTheCapacity) {
  for (const char* preset : {"dgx-a100-80", "dgx1-v100", "rtx4090x8-pcie", "a10x4-pcie"}) {
    const Cluster cluster = load_cluster(preset);
    const double capacity = link_capacity(cluster, Kind::IntraNode).per_second();
    for (const CollectiveOp op :
         {CollectiveOp::AllReduce, CollectiveOp::AllGather, CollectiveOp::ReduceScatter}) {
      const CollectiveCost cost = cost_of(cluster, op, Bytes(std::int64_t{1} << 42));
      const double busbw =
          static_cast<double>(cost.sent_per_rank.count()) / cost.idle_time(cluster).count();
      EXPECT_NEAR(busbw / capacity, 1, 0.01) << preset << " " << to_string(op);
    }
  }
  const Cluster pair = load_cluster("dgx-a100-80", 2);
  const CollectiveCost gather =
      cost_of(pair, CollectiveOp::AllGather, Bytes(std::int64_t{1} << 42));
  const double busbw =
      static_cast<double>(gather.sent_per_rank.count()) / gather.idle_time(pair).count();
  EXPECT_NEAR(busbw / link_capacity(pair, Kind::Network).per_second(), 1, 0.01);
}

TEST(CollectiveCost, AllReduceMovesTwiceTheVolume) {
  for (const Cluster& cluster : sample_clusters()) {
    const Bytes size = 96_MiB;
    const CollectiveCost reduce = cost_of(cluster, CollectiveOp::AllReduce, size);
    const CollectiveCost gather = cost_of(cluster, CollectiveOp::AllGather, size);
    const CollectiveCost scatter = cost_of(cluster, CollectiveOp::ReduceScatter, size);
    EXPECT_EQ(reduce.sent_per_rank, 2 * gather.sent_per_rank);
    EXPECT_EQ(scatter.sent_per_rank, gather.sent_per_rank);
  }
}

// Where algorithm and protocol stay the time grows; where they change it may fall, as NCCL compares
// lines without the bend: by up to 16.5 % (p5: Tree/LL to Tree/LL128), never by more than 18.
TEST(CollectiveCost, TimeGrowsWithSize) {
  for (const Cluster& cluster : sample_clusters()) {
    for (const CollectiveOp op : kOps) {
      CollectiveCost before = cost_of(cluster, op, 1_B);
      for (int shift = 1; shift <= 36; ++shift) {
        const CollectiveCost cost = cost_of(cluster, op, Bytes(std::int64_t{1} << shift));
        const bool same = cost.algorithm == before.algorithm && cost.protocol == before.protocol;
        EXPECT_GE(microseconds(cost, cluster),
                  microseconds(before, cluster) * (same ? 1 - 1e-12 : 0.82))
            << cluster.name << " x " << cluster.nodes << " " << to_string(op) << " 2^" << shift;
        EXPECT_TRUE(std::isfinite(microseconds(cost, cluster)));
        EXPECT_GE(cost.delay.count(), 0);
        EXPECT_GE(cost.ctas, 1);
        before = cost;
      }
    }
  }
}

TEST(CollectiveCost, SmallSizesPayTheFloor) {
  const Cluster a100 = load_cluster("dgx-a100-80");
  EXPECT_NEAR(microseconds(cost_of(a100, CollectiveOp::AllReduce, 1_B), a100), 25, 0.01);
  EXPECT_NEAR(microseconds(cost_of(a100, CollectiveOp::AllGather, 1_B), a100), 16, 0.01);
  // Tree, LL: 6.8 + 2 (7 x 0.6 + 5) = 25.2, after a launch of 14.
  const Cluster pair = load_cluster("dgx-a100-80", 2);
  EXPECT_NEAR(microseconds(cost_of(pair, CollectiveOp::AllReduce, 1_B), pair), 39.2, 0.05);
  EXPECT_EQ(cost_of(a100, CollectiveOp::AllReduce, 1_B).ctas, 1);
}

// Simple needs 512 threads x 64 B a channel: 24 channels from 786,432 B on.
TEST(CollectiveCost, ChannelsDropOutBelowTheirThreshold) {
  const Cluster cluster = load_cluster("dgx-a100-80");
  const CollectiveCost broadcast = cost_of(cluster, CollectiveOp::Broadcast, 1_MiB);
  EXPECT_EQ(broadcast.protocol, Protocol::Simple);
  EXPECT_EQ(broadcast.ctas, 24);
  // LL over a ring of 8: 512 threads x 64 B; 128 KiB keep 4 channels.
  const CollectiveCost gather = cost_of(cluster, CollectiveOp::AllGather, 128_KiB);
  EXPECT_EQ(gather.protocol, Protocol::LowLatency);
  EXPECT_EQ(gather.ctas, 4);
}

TEST(CollectiveCost, OneRankAndNoBytesCostNothing) {
  const Cluster cluster = load_cluster("dgx-a100-80");
  for (const CollectiveOp op : kOps) {
    for (const CollectiveCost& cost :
         {collective_cost(cluster, op, 1_GiB, {1, 1}), collective_cost(cluster, op, 0_B, {8, 1})}) {
      EXPECT_TRUE(cost.loads.empty());
      EXPECT_EQ(cost.delay.count(), 0);
      EXPECT_EQ(cost.ctas, 0);
      EXPECT_EQ(cost.sent_per_rank, 0_B);
      EXPECT_EQ(cost.idle_time(cluster).count(), 0);
    }
  }
}

// One GPU in each of two nodes: nothing moves inside a node.
TEST(CollectiveCost, OneRankANodeUsesOnlyTheNetwork) {
  const Cluster cluster = load_cluster("dgx-a100-80", 2, 1);
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllGather, 1_GiB);
  EXPECT_EQ(load_of(cost, Kind::IntraNode), 0);
  EXPECT_GT(load_of(cost, Kind::Network), 0);
  // Its two NICs: 2 x 24 GB/s.
  const double transfer = cost.idle_time(cluster).count() - cost.delay.count();
  EXPECT_NEAR(transfer, 0.5 * 1'073'741'824 / 48e9, 1e-9);
}

// All-to-all of 1 GiB over 8 GPUs: each keeps an eighth and sends V = 7/8 S at 0.9 of the links'
// speed; one step of latency: 8.4 + 3.4 = 11.8 us, NVLink, Simple; bend at most 29.5.
TEST(CollectiveCost, AllToAllByHand) {
  const Cluster cluster = load_cluster("dgx-a100-80");
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllToAll, 1_GiB);
  const double sent = 7.0 / 8 * 1'073'741'824;
  EXPECT_EQ(static_cast<double>(cost.sent_per_rank.count()), sent);
  const double transfer = sent / 0.9 / link_capacity(cluster, Kind::IntraNode).per_second();
  EXPECT_NEAR(load_of(cost, Kind::IntraNode), sent / 0.9, 1);
  EXPECT_NEAR(cost.idle_time(cluster).count(), (11.8 + 29.5) * 1e-6 + transfer, 1e-9);
  EXPECT_EQ(cost.inter_node, Bytes(0));
}

// Two nodes: half of what each of the 8 GPUs of a node has is for the other: 8 S / 2 through its
// NICs, 0.9 of 8 x 24 GB/s.
TEST(CollectiveCost, AllToAllBetweenNodesSharesTheNics) {
  const Cluster cluster = load_cluster("dgx-a100-80", 2);
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllToAll, 1_GiB);
  const double leaves = 8 * 1'073'741'824.0 / 2;
  EXPECT_NEAR(static_cast<double>(cost.inter_node.count()), leaves, 1);
  EXPECT_NEAR(load_of(cost, Kind::Network), leaves / 0.9, 1);
  EXPECT_NEAR(load_of(cost, Kind::Fabric), leaves, 1);
  EXPECT_NEAR(cost.idle_time(cluster).count() - cost.delay.count(), leaves / 0.9 / 192e9, 1e-9);
}

// Rank i of each of two nodes drives one of eight NICs: 24 of 192 GB/s.
TEST(CollectiveCost, AGroupHasTheNicsOfItsGpus) {
  const Cluster cluster = load_cluster("dgx-a100-80", 2);
  const CollectiveCost cost = collective_cost(cluster, CollectiveOp::AllGather, 1_GiB, {2, 2, 1});
  const double sent = 0.5 * 1'073'741'824;
  EXPECT_NEAR(cost.idle_time(cluster).count() - cost.delay.count(), sent / 24e9, 1e-9);
  EXPECT_NEAR(load_of(cost, Kind::Network), sent, 1);
  EXPECT_NEAR(load_of(cost, Kind::Fabric), sent, 1);
  EXPECT_EQ(load_of(cost, Kind::IntraNode), 0);
  EXPECT_EQ(cost.inter_node, cost.sent_per_rank);
  EXPECT_EQ(cost.nics, 1);
}

/// Transfer of 12 of a DGX-2's GPUs, seconds.
double old_transfer(int release, CollectiveOp op, Bytes size) {
  Cluster cluster = load_cluster("dgx2", 1, 12);
  cluster.nccl_settings.release = release;
  const CollectiveCost cost = cost_of(cluster, op, size);
  EXPECT_EQ(cost.protocol, Protocol::Simple);
  return cost.transfer_time(cluster).count();
}

// Twelve V100, rings of 130 GB/s, 12 channels. Before NCCL 2.8 what is not aligned to 16 bytes goes
// at 12 x 3.4 = 40.8 GB/s: 130 / 40.8 = 3.1863 times as long. V = 11/12 S.
//
//     S = 3 GiB             shares of 268,435,456, 16 x 16,777,216: all aligned
//     S = 3 GiB + 12 x 8 B  shares begin on 8: half are aligned     1/2 + 1/2 x 3.1863 = 2.0931
//     S = 3 GiB + 12 x 4 B  on 4: every fourth                      1/4 + 3/4 x 3.1863 = 2.6397
//     S = 3 GiB + 12 x 2 B  on 2: two of twelve (0 and 8)           1/6 + 5/6 x 3.1863 = 2.8219
//     all-gather            one step of eleven                    (3.1863 + 10) / 11 = 1.1988
TEST(CollectiveCost, UnalignedSharesBefore28) {
  const double slow = 130 / 40.8;
  const auto aligned = [](std::int64_t size) {
    return static_cast<double>(size) * 11 / 12 / 130e9;
  };
  const std::int64_t even = 3LL << 30;
  const struct {
    std::int64_t more;
    double scatter, gather;
  } kCases[] = {{0, 1, 1},
                {16, 1, 1},
                {8, 0.5 + 0.5 * slow, (slow + 10) / 11},
                {4, 0.25 + 0.75 * slow, (slow + 10) / 11},
                {2, 1.0 / 6 + 5.0 / 6 * slow, (slow + 10) / 11}};
  for (const auto& c : kCases) {
    const std::int64_t size = even + 12 * c.more;
    const auto stretch = [&](int release, CollectiveOp op) {
      return old_transfer(release, op, Bytes(size)) / aligned(size);
    };
    EXPECT_NEAR(stretch(7, CollectiveOp::ReduceScatter), c.scatter, 1e-6) << c.more;
    EXPECT_NEAR(stretch(7, CollectiveOp::AllGather), c.gather, 1e-6) << c.more;
    EXPECT_NEAR(stretch(8, CollectiveOp::ReduceScatter), 1, 1e-6) << c.more;
    EXPECT_NEAR(stretch(8, CollectiveOp::AllGather), 1, 1e-6) << c.more;
    // All-reduces cut their shares at 16 bytes.
    EXPECT_NEAR(stretch(7, CollectiveOp::AllReduce), 2, 1e-6) << c.more;
  }
}

// The release in which each came, and the one before.
TEST(CollectiveCost, ReleasesLackWhatCameLater) {
  const auto chosen = [](int release, const char* machine, int nodes, CollectiveOp op, Bytes size) {
    Cluster cluster = load_cluster(machine, nodes);
    cluster.nccl_settings.release = release;
    const CollectiveCost cost = cost_of(cluster, op, size);
    return std::pair(cost.algorithm, cost.protocol);
  };
  using Pair = std::pair<Algorithm, Protocol>;
  constexpr auto kReduce = CollectiveOp::AllReduce;
  EXPECT_EQ(chosen(17, "dgx-h100", 1, kReduce, 1_GiB), Pair(Algorithm::Nvls, Protocol::Simple));
  EXPECT_EQ(chosen(16, "dgx-h100", 1, kReduce, 1_GiB), Pair(Algorithm::Ring, Protocol::Simple));
  EXPECT_EQ(chosen(18, "dgx-h100", 2, kReduce, 1_GiB).first, Algorithm::NvlsTree);
  EXPECT_NE(chosen(17, "dgx-h100", 2, kReduce, 1_GiB).first, Algorithm::NvlsTree);
  EXPECT_EQ(chosen(4, "dgx-a100-80", 2, kReduce, 1_KiB).first, Algorithm::Tree);
  EXPECT_EQ(chosen(3, "dgx-a100-80", 2, kReduce, 1_KiB).first, Algorithm::Ring);
  EXPECT_EQ(chosen(5, "dgx-a100-80", 1, kReduce, 16_MiB).second, Protocol::LowLatency128);
  EXPECT_EQ(chosen(4, "dgx-a100-80", 1, kReduce, 16_MiB).second, Protocol::Simple);
  const auto one_gpu = [](int release) {
    Cluster cluster = load_cluster("dgx-a100-80", 16, 1);
    cluster.nccl_settings.release = release;
    return cost_of(cluster, CollectiveOp::AllGather, 1_MiB).algorithm;
  };
  EXPECT_EQ(one_gpu(23), Algorithm::Pat);
  EXPECT_EQ(one_gpu(22), Algorithm::Ring);
}

// One process launches on 8 GPUs, one after the other: 8 x 4.7 = 37.6 us, behind which kernels of
// 25.2 (LL, 1 B) hide. As a group nothing hides: 8 x 3 + 6.6 + 14 x 0.6 = 39 us.
TEST(CollectiveCost, OneProcessForSeveralGpus) {
  const Cluster cluster = load_cluster("dgx-a100-80");
  const auto time = [&](CollectiveOp op, LaunchMode launch) {
    const CollectiveGroup group{8, 1, 0, Seconds(0), launch};
    return microseconds(collective_cost(cluster, op, 1_B, group), cluster);
  };
  EXPECT_NEAR(time(CollectiveOp::AllReduce, {8, false}), 37.6, 0.01);
  EXPECT_NEAR(time(CollectiveOp::AllGather, {8, false}), 37.6, 0.01);
  EXPECT_NEAR(time(CollectiveOp::AllReduce, {8, true}), 39, 0.05);
  EXPECT_NEAR(time(CollectiveOp::AllReduce, {1, true}), 25, 0.01);
  // Sends and receives to 8 peers: 8 x (4.7 + 8 x 0.65) = 79.2.
  EXPECT_NEAR(time(CollectiveOp::AllToAll, {8, false}), 79.2, 0.01);
}

// Two p4d: 4 NICs of 12.5 GB/s at 0.95. NCCL's rings have 4 channels of 12 between the nodes, its
// trees 24 inside: min(0.92 x 96, 4 x 23.6) x 0.5 = 44.2 GB/s of S, against 48 x 16/30 = 25.6.
// Each node sends S: B = 0.5 x 0.92 x 2 x 47.5 = 43.7.
TEST(CollectiveCost, TreesOfTwoNodesSendTheVectorOnce) {
  const Cluster cluster = load_cluster("aws-p4de", 2);
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllReduce, 1_GiB);
  EXPECT_EQ(cost.algorithm, Algorithm::Tree);
  EXPECT_EQ(cost.protocol, Protocol::Simple);
  const double transfer = cost.idle_time(cluster).count() - cost.delay.count();
  EXPECT_NEAR(transfer, 1'073'741'824 / 43.7e9, 1e-6);
}

// 12 DGX H100 whose switches reduce: NVLS over nodes, A = 25 + 18 us (and the bend, at most 2.5 A),
// 8 heads x 48 = 384 GB/s, but 0.96 x 50 = 48 of each NIC: S x 2 x 95/96 / 384.
TEST(CollectiveCost, SharpReducesInTheNetwork) {
  Cluster cluster = load_cluster("dgx-h100", 12);
  EXPECT_EQ(cost_of(cluster, CollectiveOp::AllReduce, 8_GiB).algorithm, Algorithm::Ring);
  cluster.fabric.sharp = true;
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllReduce, 8_GiB);
  EXPECT_EQ(cost.algorithm, Algorithm::Nvls);
  const double transfer = 8'589'934'592 * 2 * 95.0 / 96 / 384e9;
  EXPECT_NEAR(cost.idle_time(cluster).count(), transfer + (14 + 43 + 107.5) * 1e-6, 1e-9);
  // Gathers have no part in it.
  EXPECT_EQ(cost_of(cluster, CollectiveOp::AllGather, 8_GiB).algorithm, Algorithm::Ring);
}

// A100, 2 nodes, SHARP: CollNetDirect 2 (3.7 + 0.4 x 7) + 31 = 44 us; CollNetChain 2 x 7 x 2.8 + 30
// = 69.2; both 192 x 0.5 GB/s: 1 GiB in 11184.8 us.
TEST(CollectiveCost, CollNetByHand) {
  Cluster cluster = load_cluster("dgx-a100-80", 2);
  const auto predicted = [&](Algorithm algorithm) {
    return 1e6 * nccl_predicted_time(cluster, CollectiveOp::AllReduce, 1_GiB, world(cluster),
                                     algorithm, Protocol::Simple)
                     .count();
  };
  EXPECT_FALSE(std::isfinite(predicted(Algorithm::CollNetDirect)));
  cluster.fabric.sharp = true;
  EXPECT_NEAR(predicted(Algorithm::CollNetDirect), 44 + 11184.81, 0.01);
  EXPECT_NEAR(predicted(Algorithm::CollNetChain), 69.2 + 11184.81, 0.01);
  EXPECT_FALSE(std::isfinite(predicted(Algorithm::Nvls)));  // no such switches
}

// One GPU on each of 16 nodes, all-gather: PAT 8 + 4 x 14 / 3.5 + 2.8 x 16 = 68.8 us; ring, Simple:
// 8.4 + 15 x 14 = 218.4, LL 6.6 + 15 x 5 = 81.6.
TEST(CollectiveCost, PatWithOneGpuANode) {
  const Cluster cluster = load_cluster("dgx-a100-80", 16, 1);
  const CollectiveCost cost = cost_of(cluster, CollectiveOp::AllGather, 1_MiB);
  EXPECT_EQ(cost.algorithm, Algorithm::Pat);
  EXPECT_EQ(cost.protocol, Protocol::Simple);
  const double predicted = nccl_predicted_time(cluster, CollectiveOp::AllGather, 1_B,
                                               world(cluster), Algorithm::Pat, Protocol::Simple)
                               .count();
  EXPECT_NEAR(predicted * 1e6, 68.8, 1e-3);
  EXPECT_NE(cost_of(load_cluster("dgx-a100-80", 16, 2), CollectiveOp::AllGather, 1_MiB).algorithm,
            Algorithm::Pat);
}

// A rack of 72: 9 heads of 70 GB/s: B = 2 x 70 x 0.74 x 8 = 828.8; A = 25 x 72/8 = 225 us and a
// bend of at most 562.5.
TEST(CollectiveCost, ARackReducesInItsSwitches) {
  const Cluster rack = load_cluster("gb200-nvl72");
  const CollectiveCost cost = cost_of(rack, CollectiveOp::AllReduce, 8_GiB);
  EXPECT_EQ(cost.algorithm, Algorithm::Nvls);
  const double transfer = 8'589'934'592 * 2 * 71.0 / 72 / 828.8e9;
  EXPECT_NEAR(cost.idle_time(rack).count(), transfer + (225 + 562.5) * 1e-6, 1e-9);
}

// 20 of them: heads of 48 GB/s between racks, 9 x 48 = 432; A = (25 + 2 x 4 x 20.9) x 9 = 1729.8
// us.
TEST(CollectiveCost, RacksReduceInTheirSwitches) {
  const Cluster racks = load_cluster("gb200-nvl72", 360);
  const CollectiveCost cost = cost_of(racks, CollectiveOp::AllReduce, 512_MiB);
  EXPECT_EQ(cost.algorithm, Algorithm::NvlsTree);
  const double transfer = 536'870'912 * 2 * 1439.0 / 1440 / 432e9;
  EXPECT_NEAR(cost.idle_time(racks).count() - cost.delay.count(), transfer, 1e-8);
  EXPECT_NEAR(cost.delay.count(), (14 + 1729.8 + std::sqrt(1729.8 * transfer * 1e6)) * 1e-6, 1e-8);
}

// Through host memory every step waits 1 us for its poll: 8 cards, 1 B: 14 x (1 + 1) + 6.6.
TEST(CollectiveCost, StagedStepsTakeLonger) {
  const Cluster cluster = load_cluster("rtx4090x8-pcie");
  EXPECT_NEAR(microseconds(cost_of(cluster, CollectiveOp::AllReduce, 1_B), cluster), 34.6, 0.01);
}

TEST(CollectiveNames, AreThoseOfTheRecordings) {
  EXPECT_EQ(to_string(CollectiveOp::AllReduce), "all_reduce");
  EXPECT_EQ(to_string(CollectiveOp::AllGather), "all_gather_into_tensor");
  EXPECT_EQ(to_string(CollectiveOp::ReduceScatter), "reduce_scatter_tensor");
  EXPECT_EQ(to_string(CollectiveOp::Broadcast), "broadcast");
  EXPECT_EQ(to_string(CollectiveOp::Reduce), "reduce");
}

}  // namespace
}  // namespace zerosim
