#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "tests/topology/csv.h"
#include "topology/collective_model.h"

namespace zerosim {
namespace {

using test::CsvRow;

int number(const CsvRow& row, const char* column) {
  return std::stoi(row.at(column));
}
double real(const CsvRow& row, const char* column) {
  return std::stod(row.at(column));
}

/// A cluster with the channels and speeds of the row, whatever real machine it is.
Cluster cluster_of(const CsvRow& row) {
  static const std::map<int, std::string> gpus = {
      {70, "V100-SXM2-32"}, {80, "A100-SXM4-80"}, {90, "H100-SXM5-80"}, {100, "B200-SXM-180"}};
  const bool pcie = row.at("machine").starts_with("pcie");
  Cluster cluster;
  cluster.node.gpu = gpus.at(number(row, "compcap"));
  cluster.node.intra = pcie ? IntraNode::Pcie : IntraNode::NvSwitch;
  cluster.node.cpu = row.at("cpu");
  cluster.nodes = number(row, "nodes");
  cluster.gpus_per_node = number(row, "ranks") / cluster.nodes;
  NcclGraph& nccl = cluster.node.nccl;
  nccl.ring_channels = nccl.inter_ring_channels = number(row, "nch");
  nccl.ring_channel_gbps = real(row, "bw_intra");
  nccl.inter_ring_channel_gbps = real(row, "bw_inter");
  nccl.nvls_heads = number(row, "nvls_heads");
  nccl.nvls_head_gbps = nccl.inter_nvls_head_gbps = real(row, "nvls_bw");
  nccl.ll128 = !pcie;
  return cluster;
}

CollectiveOp op_of(const std::string& name) {
  if (name == "all_reduce") return CollectiveOp::AllReduce;
  if (name == "all_gather") return CollectiveOp::AllGather;
  return name == "reduce_scatter" ? CollectiveOp::ReduceScatter : CollectiveOp::Broadcast;
}

struct Prediction {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  Seconds time{INFINITY};
};

Prediction best_prediction(const Cluster& cluster, CollectiveOp op, Bytes size,
                           const CollectiveGroup& group) {
  Prediction best;
  for (const Algorithm a :
       {Algorithm::Ring, Algorithm::Tree, Algorithm::Nvls, Algorithm::NvlsTree}) {
    for (const Protocol p : {Protocol::LowLatency, Protocol::LowLatency128, Protocol::Simple}) {
      const Seconds time = nccl_predicted_time(cluster, op, size, group, a, p);
      if (time < best.time) best = {a, p, time};
    }
  }
  return best;
}

TEST(NcclVectors, EveryRowHasItsAlgorithmProtocolAndTime) {
  const std::vector<CsvRow> rows = test::read_csv("nccl_tuning_vectors.csv");
  ASSERT_EQ(rows.size(), 324U);
  for (const CsvRow& row : rows) {
    const CollectiveGroup group{number(row, "ranks"), number(row, "nodes")};
    const Bytes size(std::stoll(row.at("size_bytes")));
    const Prediction best =
        best_prediction(cluster_of(row), op_of(row.at("collective")), size, group);
    SCOPED_TRACE(row.at("machine") + " " + row.at("collective") + " " + row.at("size_bytes"));
    EXPECT_EQ(to_string(best.algorithm), row.at("algo"));
    EXPECT_EQ(to_string(best.protocol), row.at("proto"));
    EXPECT_NEAR(best.time.count() * 1e6 / real(row, "time_us"), 1, 1e-3);
  }
}

// NVIDIA/nccl issue 1453: 24 H100 on 3 nodes, 8 x 24 GB/s between them, Intel, all NIC traffic on
// one GPU. (Its Ring/Simple lines come from an older version with 2 k steps between nodes.)
TEST(NcclVectors, APrintedTableOfARealRun) {
  Cluster cluster;
  cluster.node.gpu = "H100-SXM5-80";
  cluster.node.cpu = "intel";
  cluster.nodes = 3;
  cluster.gpus_per_node = 8;
  cluster.node.nccl.inter_ring_channels = 8;
  cluster.node.nccl.inter_ring_channel_gbps = 24;
  cluster.node.nccl.tree_on_one_gpu = true;
  const auto microseconds = [&](Bytes size) {
    return 1e6 * nccl_predicted_time(cluster, CollectiveOp::AllReduce, size, {24, 3},
                                     Algorithm::Tree, Protocol::LowLatency)
                     .count();
  };
  EXPECT_NEAR(microseconds(4_KiB), 25.874907, 1e-4 * 25.874907);
  EXPECT_NEAR(microseconds(8_KiB), 26.549810, 1e-4 * 26.549810);
}

}  // namespace
}  // namespace zerosim
