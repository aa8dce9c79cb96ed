#include "topology/summary.h"

#include <gtest/gtest.h>

namespace zerosim {
namespace {

// Two trays of two H100 on one set of NVSwitches, GPU 0 of each with 18 NVLinks (450 GB/s), GPU 1
// with 9 (225 GB/s). The least bisection is that of the two slow ones: 2 x 225 GB/s. Into a slow
// one go the shards of three others: 75 GB/s each.
TEST(Summary, GpusOfAnNvLinkDomainKeepTheirOwnRates) {
  const TopologySummary summary = summarize(parse_cluster(R"({"version": 1, "nodes": 2,
      "node": {"gpu": "H100-SXM5-80", "host": {}, "graph": {
        "cpus": [{}], "gpus": [{"below": "cpu0"}, {"below": "cpu0"}], "nvswitch_links": [18, 9],
        "nics": [{"below": "cpu0", "bandwidth": "400Gb/s"}]}},
      "fabric": {"nvlink_domain_nodes": 2}})",
                                                          "c.json"));
  EXPECT_EQ(summary.gpus, 4);
  EXPECT_EQ(summary.links, FlowLinks::NvLink);
  EXPECT_EQ(summary.widest_path, 450_GBps);
  EXPECT_EQ(summary.narrowest_path, 225_GBps);
  ASSERT_TRUE(summary.bisection && summary.all_gather);
  EXPECT_EQ(summary.bisection->bandwidth, 450_GBps);
  EXPECT_EQ(summary.all_gather->shard, 75_GBps);
}

}  // namespace
}  // namespace zerosim
