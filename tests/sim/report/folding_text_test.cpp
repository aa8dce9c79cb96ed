#include "sim/report/folding_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// 16 nodes of 8 H100 in two units of 8 nodes.
Cluster uneven(const std::string& perturbations) {
  return parse_cluster(
      R"({"version": 1, "node": {"preset": "dgx-h100"}, "nodes": 16,
          "fabric": {"kind": "rail-optimised", "nodes_per_unit": 8}, "perturbations": [)" +
          perturbations + "]}",
      "c.json");
}

/// With communicators of all ranks, of each node, and of the GPUs of one number.
Folding folded(const Cluster& cluster) {
  return fold(cluster, {{0, 128, 0}}, {{128, 1}, {8, 1}, {16, 8}}, FoldMode::Exact);
}

const FoldingNames kNames = {{"all", "node", "rail"}};

std::vector<std::string> differences(const Folding& folding) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < folding.ranks.size(); ++i) {
    all.push_back(difference(folding, kNames, static_cast<int>(i)));
  }
  return all;
}

TEST(FoldingText, AlikeRanksAreOneClass) {
  const Folding folding = folded(uneven(""));
  EXPECT_THAT(differences(folding), testing::ElementsAre(""));
  EXPECT_THAT(folding_text(folding, kNames),
              StartsWith("128 ranks in one class; communicators: all, node, rail\n"
                         "ranks  such as  GPU           differs by\n"
                         "  128        0  H100-SXM5-80\n"
                         "\n"
                         "links  classes  such as"));
}

// GPU 2 of node 3 is rank 26. It has 7 neighbours in its node, and 15 ranks on its rail.
TEST(FoldingText, SlowGpuSetsItsNodeAndItsRailApart) {
  const Folding folding = folded(uneven(R"({"nodes": [3], "gpus": [2], "speed": 0.9})"));
  EXPECT_THAT(differences(folding),
              testing::UnorderedElementsAre("", "with rank 26 in rail", "with rank 26 in node",
                                            "arithmetic speed 0.9"));
  const std::string text = folding_text(folding, kNames);
  EXPECT_THAT(text, HasSubstr("128 ranks in 4 classes"));
  EXPECT_THAT(text, HasSubstr("  105        0  H100-SXM5-80\n"));  // 128 - 1 - 7 - 15
  EXPECT_THAT(text, HasSubstr("    1       26  H100-SXM5-80  arithmetic speed 0.9\n"));
}

// Ranks 120 to 127 run the second of two programs, with a micro batch of their own, or else.
TEST(FoldingText, TellsMicroBatches) {
  const Folding folding =
      fold(uneven(""), {{0, 120, 0}, {120, 8, 1}}, {{128, 1}, {8, 1}, {16, 8}}, FoldMode::Exact);
  FoldingNames names = kNames;
  names.micro_batches = {0, 4};
  EXPECT_EQ(difference(folding, names, 1), "micro batch 4");
  names.micro_batches = {4, 0};
  EXPECT_EQ(difference(folding, names, 1), "micro batch of the strategy");
  names.micro_batches = {4, 4};
  EXPECT_EQ(difference(folding, names, 1), "program 1");
}

// NIC 1 of node 5 at half speed: 24 of 48 GB/s; the ranks of GPU 1 meet it in their rail.
TEST(FoldingText, SlowNicSetsItsRailApart) {
  const Folding folding =
      folded(uneven(R"({"link": "nic", "nodes": [5], "nics": [1], "bandwidth": 0.5})"));
  EXPECT_THAT(differences(folding),
              testing::Contains(HasSubstr("rail goes by node5.nic1, 24 GB/s")));
  const std::string text = folding_text(folding, kNames);
  EXPECT_THAT(text, HasSubstr("node5.nic1         NIC"));
  const JsonValue json = folding_json(folding, kNames);
  EXPECT_EQ(json["communicators"].size(), 3U);
  EXPECT_EQ(json["ranks"].size(), folding.ranks.size());
  EXPECT_EQ(json["links"].size(), folding.links.size());
  EXPECT_EQ(json["ranks"][0]["representative"].asInt(), 0);
  int ranks = 0;
  for (const JsonValue& entry : json["ranks"]) ranks += entry["multiplicity"].asInt();
  EXPECT_EQ(ranks, 128);
}

TEST(FoldingText, LongTablesEnd) {
  std::string slow;
  for (int node = 0; node < 16; ++node) {
    for (int gpu = 0; gpu < 2; ++gpu) {
      if (!slow.empty()) slow += ", ";
      slow += R"({"nodes": [)" + std::to_string(node) + R"(], "gpus": [)" + std::to_string(gpu) +
              R"(], "speed": 0.)" + std::to_string(500 + 10 * node + gpu) + "}";
    }
  }
  const Folding folding = folded(uneven(slow));
  EXPECT_GT(folding.ranks.size(), 32U);
  EXPECT_THAT(folding_text(folding, kNames), HasSubstr("more; --json lists them\n\nlinks"));
}

}  // namespace
}  // namespace zerosim
