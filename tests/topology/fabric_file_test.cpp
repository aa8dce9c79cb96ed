#include "topology/fabric_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "topology/cluster.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A cluster file with this fabric; nodes of 8 NICs of 400 Gb/s.
std::string file_with(const std::string& fabric, int nodes = 64,
                      const std::string& preset = "dgx-h100", const std::string& nics = "") {
  return "{\"version\": 1, \"node\": {\"preset\": \"" + preset + "\"" + nics +
         "}, \"nodes\": " + std::to_string(nodes) + ",\n\"fabric\": " + fabric + "}";
}

Cluster read(const std::string& fabric, int nodes = 64, const std::string& preset = "dgx-h100",
             const std::string& nics = "") {
  return parse_cluster(file_with(fabric, nodes, preset, nics), "c.json");
}

std::string error_of(const std::string& fabric, int nodes = 64) {
  try {
    static_cast<void>(read(fabric, nodes));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(FabricFile, WithoutOneASwitchIsAssumed) {
  const Cluster cluster =
      parse_cluster(R"({"version": 1, "node": {"preset": "dgx-h100"}, "nodes": 4})", "c.json");
  EXPECT_EQ(cluster.fabric.kind, FabricKind::Switch);
  EXPECT_EQ(fabric_network(cluster).link_count(), 0);
  EXPECT_FALSE(cluster.must_not_fold());
  EXPECT_THAT(
      cluster.assumptions,
      Contains(
          "fabric: one switch that is no bottleneck between the nodes, as nothing says otherwise"));
}

// All given: nothing to assume.
TEST(FabricFile, LeafSpineAsGiven) {
  const Cluster cluster = read(
      R"({"kind": "leaf-spine", "nodes_per_leaf": 4, "oversubscription": 2, "efficiency": 0.9,
          "hop_latency": "300ns", "ecmp": "ideal", "ecmp_efficiency": 0.75})");
  EXPECT_EQ(cluster.fabric.kind, FabricKind::LeafSpine);
  EXPECT_DOUBLE_EQ(cluster.fabric.hop_latency.count(), 300e-9);
  EXPECT_THAT(cluster.assumptions, Not(Contains(testing::StartsWith("fabric."))));
  const FabricNetwork network = fabric_network(cluster);
  EXPECT_EQ(network.link_count(), 16);
  // 4 nodes x 8 NICs x 50 GB/s x 0.96 of InfiniBand x 0.9, half of it up, 0.75 of that.
  EXPECT_DOUBLE_EQ(network.capacity(0).gb_per_second(), 32 * 50 * 0.96 * 0.9 / 2 * 0.75);
}

// 64 ports at 3:1: 48 down, 6 nodes of 8 NICs. RoCE hashes; its switches take 0.6 us, and 20 m of
// cable 0.1 us.
TEST(FabricFile, LeafSpineDefaultsAreTold) {
  const Cluster cluster = read(R"({"kind": "leaf-spine", "oversubscription": 3})", 64, "dgx-h100",
                               R"(, "nics": {"kind": "roce"})");
  EXPECT_EQ(cluster.fabric.clos.nodes_per_leaf, 6);
  EXPECT_DOUBLE_EQ(cluster.fabric.clos.ecmp_efficiency, 0.8);
  EXPECT_DOUBLE_EQ(cluster.fabric.hop_latency.count(), 0.7e-6);
  for (const char* sentence :
       {"fabric.nodes_per_leaf: 6, a leaf of 64 ports, all 8 NICs of a node on one leaf",
        "fabric.ecmp: ideal, flows spread evenly over equal ways",
        "fabric.ecmp_efficiency: 0.8 of each bundle, usual for roce (a few big flows, hashed)",
        "fabric.hop_latency: 0.7 us for each switch but the first, which NCCL's own figure holds "
        "(0.6 us of an Ethernet switch, 20 m of cable at 5 ns)"}) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

TEST(FabricFile, RailsOfHopperAndAmpere) {
  const Cluster hopper = read(R"({"kind": "rail-optimised"})", 128);
  EXPECT_EQ(hopper.fabric.clos.nodes_per_leaf, 32);
  EXPECT_EQ(hopper.fabric.clos.leaves_per_pod, 4);
  EXPECT_DOUBLE_EQ(hopper.fabric.clos.ecmp_efficiency, 0.95);
  // 0.13 us and 20 m.
  EXPECT_NEAR(hopper.fabric.hop_latency.count(), 0.23e-6, 1e-15);
  EXPECT_THAT(hopper.assumptions,
              Contains("fabric.nodes_per_unit: 32, the scalable unit of a DGX H100 or B200 "
                       "SuperPOD"));
  EXPECT_EQ(fabric_network(hopper).link_count(), 4 * 8);
  EXPECT_EQ(fabric_network(hopper).name(9), "unit1.rail1.up");
  const Cluster ampere = read(R"({"kind": "rail-optimised"})", 40, "dgx-a100-80");
  EXPECT_EQ(ampere.fabric.clos.nodes_per_leaf, 20);
}

// k = 64, 8 NICs a node: 4 nodes a leaf, 32 leaves a pod.
TEST(FabricFile, FatTreeByPortsAndByTiers) {
  const Cluster k_ary = read(R"({"kind": "fat-tree"})", 256);
  EXPECT_EQ(k_ary.fabric.clos.nodes_per_leaf, 4);
  EXPECT_EQ(k_ary.fabric.clos.leaves_per_pod, 32);
  EXPECT_EQ(fabric_network(k_ary).link_count(), 64 + 2);
  const Cluster tiers = read(
      R"({"kind": "fat-tree", "nodes_per_leaf": 2, "leaves_per_pod": 4, "oversubscription": 2,
          "core_oversubscription": 4, "ecmp_efficiency": 1})");
  const FabricNetwork network = fabric_network(tiers);
  EXPECT_EQ(network.link_count(), 32 + 8);
  // A leaf: 16 NICs of 48 GB/s at 2:1; a pod: four of these at 4:1, as much as one.
  EXPECT_DOUBLE_EQ(network.capacity(0).gb_per_second(), 16 * 48 / 2.0);
  EXPECT_DOUBLE_EQ(network.capacity(32).gb_per_second(), 16 * 48 / 2.0);
}

TEST(FabricFile, HashedFlowsMustNotBeFolded) {
  const Cluster cluster = read(R"({"kind": "leaf-spine", "ecmp": "hashed", "ecmp_seed": 5})");
  EXPECT_TRUE(cluster.must_not_fold());
  EXPECT_EQ(cluster.fabric.clos.hash_seed, 5U);
  EXPECT_EQ(cluster.fabric.clos.ecmp_efficiency, 1);
}

// 64 nodes of 8 NICs: 2 a switch, 32 a group.
TEST(FabricFile, Dragonfly) {
  const Cluster cluster = read(
      R"({"kind": "dragonfly", "taper": 2, "routing": "minimal", "link_bandwidth": "200Gb/s"})");
  EXPECT_EQ(cluster.fabric.dragonfly.nodes_per_switch, 2);
  EXPECT_EQ(cluster.fabric.dragonfly.switches_per_group, 16);
  EXPECT_EQ(cluster.fabric.dragonfly.routing, DragonflyRouting::Minimal);
  const FabricNetwork network = fabric_network(cluster);
  // 2 groups of 256 NICs: 128 cables of 25 GB/s between them.
  EXPECT_DOUBLE_EQ(network.capacity(network.links_named("group0.to1").front()).gb_per_second(),
                   128 * 25.0);
  EXPECT_THAT(cluster.assumptions, Contains("fabric.nodes_per_switch: 2, 16 NICs a switch "
                                            "(Slingshot)"));
}

TEST(FabricFile, Torus) {
  const Cluster cluster = read(R"({"kind": "torus", "dimensions": [4, 4, 4]})");
  EXPECT_THAT(cluster.fabric.torus.dimensions, ElementsAre(4, 4, 4));
  EXPECT_EQ(fabric_network(cluster).capacity(0), 50_GBps);
  EXPECT_THAT(cluster.assumptions, Contains(HasSubstr("fabric.link_bandwidth: 50 GB/s")));
}

TEST(FabricFile, DomainsAndPlacement) {
  const Cluster cluster = read(
      R"({"kind": "rail-optimised", "nvlink_domain_nodes": 16,
          "placement": {"kind": "scattered", "seed": 3, "among": 512}})");
  EXPECT_EQ(cluster.fabric.nvlink_domain_nodes, 16);
  EXPECT_EQ(fabric_network(cluster).places(), 512);
  EXPECT_EQ(fabric_network(cluster).link_count(), 16 * 8 + 4);
}

// One node sends nothing through it.
TEST(FabricFile, NothingIsAssumedOfAFabricThatOneNodeDoesNotUse) {
  EXPECT_THAT(read(R"({"kind": "leaf-spine"})", 1).assumptions,
              Not(Contains(testing::StartsWith("fabric"))));
}

TEST(FabricFile, NvLinkJoinsNodesBySwitches) {
  const char* const text = R"({"version": 1, "node": {"preset": "rtx4090x8-pcie"}, "nodes": 2,
"fabric": {"nvlink_domain_nodes": 2}})";
  try {
    static_cast<void>(parse_cluster(text, "c.json"));
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "c.json:2:35: fabric.nvlink_domain_nodes: NVLink joins nodes by switches only, and "
        "this node has none");
  }
}

/// examples/clusters: what each is for, checked on its network.
struct Example {
  std::string file;
  int gpus;
  FabricKind kind;
  std::int64_t leaves, spines, cores;
  int links;  ///< of the fabric, as routes use them
};

class ClusterExamples : public testing::TestWithParam<Example> {};

TEST_P(ClusterExamples, Load) {
  const Cluster cluster =
      load_cluster(std::string(ZEROSIM_SOURCE_DIR) + "/examples/clusters/" + GetParam().file);
  EXPECT_EQ(cluster.world_size(), GetParam().gpus);
  EXPECT_EQ(cluster.fabric.kind, GetParam().kind);
  const FabricNetwork network = fabric_network(cluster);
  EXPECT_EQ(network.counts().leaves, GetParam().leaves);
  EXPECT_EQ(network.counts().spines, GetParam().spines);
  EXPECT_EQ(network.counts().cores, GetParam().cores);
  EXPECT_EQ(network.link_count(), GetParam().links);
}

INSTANTIATE_TEST_SUITE_P(
    FabricFile, ClusterExamples,
    testing::Values(
        // 4 units x 8 rails; the guide's 16 spines.
        Example{"superpod_h100.json", 1024, FabricKind::RailOptimised, 32, 16, 0, 32},
        // 64 places, 4 a leaf of 32 NICs and 16 cables up (48 ports): 16 x 16 / 48 = 5.3, and the
        // next number that divides 16 is 8.
        Example{"cloud_leaf_spine.json", 128, FabricKind::LeafSpine, 16, 8, 0, 16},
        // 4 racks x 4 rails, 18 up and 18 down each: 16 x 18 / 36 = 8, and 9 divides 18.
        Example{"nvl72.json", 288, FabricKind::RailOptimised, 16, 9, 0, 16},
        // 512 / 4 / 16 = 8 groups; links: 8 x 16^2 local, 8^2 global.
        Example{"dragonfly_slingshot.json", 2048, FabricKind::Dragonfly, 128, 0, 0, 2048 + 64},
        // 2 leaves of 32 NICs and 16 cables up: 2 x 16 / 48, one spine.
        Example{"uneven.json", 64, FabricKind::LeafSpine, 2, 1, 0, 2}),
    [](const auto& example) { return example.param.file.substr(0, example.param.file.find('.')); });

struct BadFabric {
  const char* fabric;
  const char* message;
};

class BadFabrics : public testing::TestWithParam<BadFabric> {};

TEST_P(BadFabrics, AreRefusedWithPlaceAndNearestName) {
  EXPECT_EQ(error_of(GetParam().fabric), std::string("c.json:") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    FabricFile, BadFabrics,
    testing::Values(
        BadFabric{R"({"kind": "leafspine"})",
                  "2:20: fabric.kind: unknown kind of fabric \"leafspine\"; did you mean "
                  "\"leaf-spine\"?"},
        BadFabric{R"({"kind": "hypercube"})",
                  "2:20: fabric.kind: unknown kind of fabric \"hypercube\"; known: switch, "
                  "leaf-spine, rail-optimised, fat-tree, dragonfly, torus"},
        BadFabric{R"({"kind": "leaf-spine", "oversubscripton": 2})",
                  "2:34: fabric.oversubscripton: unknown key; did you mean \"oversubscription\"?"},
        BadFabric{R"({"kind": "switch", "taper": 2})",
                  "2:30: fabric.taper: unknown key; expected one of: efficiency, hop_latency, "
                  "kind, nvlink_domain_nodes, placement, sharp"},
        BadFabric{R"({"sharp": 1})", "2:20: fabric.sharp: found 1, expected true or false"},
        BadFabric{R"({"kind": "leaf-spine", "oversubscription": 0.5})",
                  "2:54: fabric.oversubscription: found 0.5, expected a number from 1 to 1000, "
                  "such as 2 for 2:1"},
        BadFabric{R"({"kind": "leaf-spine", "nodes_per_leaf": 0})",
                  "2:52: fabric.nodes_per_leaf: found 0, expected an integer of at least 1"},
        BadFabric{R"({"kind": "leaf-spine", "efficiency": 0})",
                  "2:48: fabric.efficiency: found 0, expected a number above 0 and at most 1"},
        BadFabric{R"({"kind": "leaf-spine", "hop_latency": 5})",
                  "2:49: fabric.hop_latency: found 5, expected text with a unit such as \"5us\""},
        BadFabric{R"({"kind": "leaf-spine", "hop_latency": "1us", "cable_metres": 3})",
                  "2:72: fabric.cable_metres: hop_latency holds the cable, expected either"},
        BadFabric{R"({"kind": "leaf-spine", "ecmp": "hash"})",
                  "2:42: fabric.ecmp: unknown way to spread \"hash\"; did you mean \"hashed\"?"},
        BadFabric{R"({"kind": "leaf-spine", "ecmp": "hashed", "ecmp_efficiency": 0.8})",
                  "2:71: fabric.ecmp_efficiency: with \"ecmp\": \"hashed\" the collisions are "
                  "simulated, expected no factor"},
        BadFabric{R"({"kind": "leaf-spine", "ecmp_seed": 4})",
                  "2:47: fabric.ecmp_seed: only \"ecmp\": \"hashed\" draws"},
        BadFabric{R"({"kind": "fat-tree", "ports": 20})",
                  "2:41: fabric.ports: found 20, expected an even number whose half is so many "
                  "nodes of 8 NICs; or give nodes_per_leaf and leaves_per_pod"},
        BadFabric{R"({"kind": "fat-tree", "ports": 64, "nodes_per_leaf": 2, "leaves_per_pod": 2})",
                  "2:41: fabric.ports: gives nodes_per_leaf and leaves_per_pod; expected either "
                  "the one or the others"},
        BadFabric{R"({"kind": "fat-tree", "nodes_per_leaf": 2})",
                  "2:11: fabric.leaves_per_pod: missing, expected an integer"},
        BadFabric{
            R"({"kind": "dragonfly", "nodes_per_switch": 1, "switches_per_group": 1, "taper": 4})",
            "2:11: fabric: 64 nodes are 64 groups of a dragonfly, but a group has 2 global "
            "cables and so joins at most 3 groups"},
        BadFabric{R"({"kind": "dragonfly", "routing": "minimum"})",
                  "2:44: fabric.routing: unknown routing \"minimum\"; did you mean \"minimal\"?"},
        BadFabric{R"({"kind": "torus"})",
                  "2:11: fabric.dimensions: missing, expected an array of integers"},
        BadFabric{R"({"kind": "torus", "dimensions": [4, 0]})",
                  "2:43: fabric.dimensions: found 0, expected numbers from 1 to 1048576"},
        BadFabric{R"({"kind": "torus", "dimensions": []})",
                  "2:43: fabric.dimensions: expected 1 to 6 numbers whose product is at most "
                  "1048576"},
        BadFabric{R"({"kind": "torus", "dimensions": [4, 4]})",
                  "2:11: fabric: a torus of 16 places has no room for 64 nodes"},
        BadFabric{R"({"kind": "torus", "dimensions": [8, 8], "link_bandwidth": "0GB/s"})",
                  "2:69: fabric.link_bandwidth: found a rate of 0, expected a positive one"},
        BadFabric{R"({"nvlink_domain_nodes": 0})",
                  "2:35: fabric.nvlink_domain_nodes: found 0, expected an integer of at least 1"},
        BadFabric{
            R"({"placement": {"kind": "scatter"}})",
            "2:34: fabric.placement.kind: unknown kind of placement \"scatter\"; did you mean "
            "\"scattered\"?"},
        BadFabric{R"({"placement": {"kind": "contiguous", "seed": 2}})",
                  "2:56: fabric.placement.seed: only a scattered placement draws places"},
        BadFabric{R"({"kind": "leaf-spine", "placement": {"kind": "scattered", "among": 63}})",
                  "2:11: fabric: 63 places are not enough for 64 nodes"}));

// 8 NICs of a node a leaf, 8 leaves a pod, 16 pods: 128 nodes.
TEST(FabricFile, APortOfEachPodIsNeeded) {
  EXPECT_EQ(error_of(R"({"kind": "fat-tree", "ports": 16})", 128), "");
  EXPECT_EQ(error_of(R"({"kind": "fat-tree", "ports": 16})", 129),
            "c.json:2:11: fabric: 129 nodes need 17 pods of 8 leaves with 1 nodes each, but there "
            "are ports for 16");
}

// Where the flag asks for too many nodes, the flag is at fault.
TEST(FabricFile, TooManyNodesByFlag) {
  const std::string path = testing::TempDir() + "torus_cluster.json";
  FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(file_with(R"({"kind": "torus", "dimensions": [8, 8]})").c_str(), file);
  std::fclose(file);
  EXPECT_EQ(load_cluster(path).nodes, 64);
  try {
    static_cast<void>(load_cluster(path, 65));
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "--nodes: fabric: a torus of 64 places has no room for 65 nodes");
  }
}

}  // namespace
}  // namespace zerosim
