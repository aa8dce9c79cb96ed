#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/topology/csv.h"
#include "topology/collective_model.h"

namespace zerosim {
namespace {

using test::CsvRow;

/// A published log and the preset that stands for its machine. The presets know nothing of the log.
struct Log {
  const char* dataset;
  const char* preset;
  int nodes;
  int gpus_per_node;
  LaunchMode launch;  ///< `-g 8`: one process for all GPUs; training has a process for each
  double tolerance;   ///< of the median
};

CollectiveOp op_of(const std::string& name) {
  if (name == "all_reduce") return CollectiveOp::AllReduce;
  if (name == "all_gather") return CollectiveOp::AllGather;
  if (name == "reduce_scatter") return CollectiveOp::ReduceScatter;
  return name == "broadcast" ? CollectiveOp::Broadcast : CollectiveOp::Reduce;
}

Cluster cluster_of(const Log& log) {
  return load_cluster(log.preset, log.nodes, log.gpus_per_node);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class PublishedCollectives : public testing::TestWithParam<Log> {};

TEST_P(PublishedCollectives, MedianErrorFrom1KiB) {
  const Log& log = GetParam();
  const Cluster cluster = cluster_of(log);
  std::map<std::string, std::map<std::int64_t, double>> errors;  // by size
  for (const CsvRow& row : test::read_csv("nccl_tests_published.csv")) {
    if (row.at("dataset") != log.dataset) continue;
    const CollectiveOp op = op_of(row.at("collective"));
    const Bytes size(std::stoll(row.at("size_bytes")));
    const CollectiveGroup group{cluster.world_size(), cluster.nodes, 0, Seconds(0), log.launch};
    const Seconds predicted = collective_cost(cluster, op, size, group).idle_time(cluster);
    const double ratio = predicted.count() * 1e6 / std::stod(row.at("time_us"));
    errors[row.at("collective")][size.count()] = std::abs(ratio - 1);
  }
  ASSERT_FALSE(errors.empty());
  for (const auto& [collective, by_size] : errors) {
    std::vector<double> values;
    for (const auto& [size, error] : by_size) values.push_back(error);
    const double of_largest = by_size.rbegin()->second;
    std::printf("%-16s %-15s %3zu points, median error %4.1f %%, largest size %4.1f %%\n",
                log.dataset, collective.c_str(), values.size(), 100 * median(values),
                100 * of_largest);
    EXPECT_LE(median(values), log.tolerance) << collective;
    // Bandwidths are NCCL's own: the largest size, where nothing else counts, within a quarter.
    EXPECT_LE(of_largest, 0.25) << collective;
  }
}

constexpr LaunchMode kProcessEach{1, false};
constexpr LaunchMode kOneProcess{8, false};
constexpr LaunchMode kGroup{8, true};  // nccl-tests of 2019 to 2021

INSTANTIATE_TEST_SUITE_P(
    Logs, PublishedCollectives,
    testing::Values(Log{"a100x8_mpi", "dgx-a100-40", 1, 8, kProcessEach, 0.10},
                    Log{"a100x8_ndv4", "dgx-a100-40", 1, 8, kGroup, 0.10},
                    Log{"a100x16_ib_ndv4", "dgx-a100-40", 2, 8, kProcessEach, 0.10},
                    Log{"h100x8", "dgx-h100", 1, 8, kOneProcess, 0.05},
                    Log{"h100x4", "dgx-h100", 1, 4, kProcessEach, 0.05},
                    Log{"v100x8_dgx1", "dgx1-v100-16", 1, 8, kGroup, 0.16},
                    Log{"rtx4090x8_shm", "rtx4090x8-pcie", 1, 8, kOneProcess, 0.10}),
    [](const auto& log) { return std::string(log.param.dataset); });

}  // namespace
}  // namespace zerosim
