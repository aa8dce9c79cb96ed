#include "topology/fabric.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr BytesPerSecond kNic = 10_GBps;

std::vector<FabricShare> way(const FabricNetwork& network, int from, int nic, int to) {
  std::vector<FabricShare> links;
  network.route(from, nic, to, links);
  return links;
}

std::string level_of(const FabricNetwork& network, int link) {
  for (const FabricLevel& level : network.levels()) {
    if (link >= level.first && link < level.first + level.count) return level.name;
  }
  return "none";
}

/// "leaf0.up" with a whole share, "leaf0.up/2" with a half.
std::vector<std::string> named_way(const FabricNetwork& network, int from, int nic, int to) {
  std::vector<std::string> names;
  for (const FabricShare& share : way(network, from, nic, to)) {
    const int part = static_cast<int>(1 / share.share + 0.5);
    names.push_back(network.name(share.link) + (part == 1 ? "" : "/" + std::to_string(part)));
  }
  return names;
}

Fabric leaf_spine(int nodes_per_leaf, double oversubscription) {
  Fabric fabric;
  fabric.kind = FabricKind::LeafSpine;
  fabric.clos.nodes_per_leaf = nodes_per_leaf;
  fabric.clos.oversubscription = oversubscription;
  return fabric;
}

Fabric rails(int nodes_per_unit, int units_per_pod) {
  Fabric fabric = leaf_spine(nodes_per_unit, 1);
  fabric.kind = FabricKind::RailOptimised;
  fabric.clos.leaves_per_pod = units_per_pod;
  return fabric;
}

Fabric fat_tree(int ports, int nics) {
  Fabric fabric = leaf_spine(ports / 2 / nics, 1);
  fabric.kind = FabricKind::FatTree;
  fabric.clos.leaves_per_pod = ports / 2;
  fabric.clos.most_pods = ports;
  return fabric;
}

Fabric dragonfly(int nodes_per_switch, int switches, double taper, DragonflyRouting routing) {
  Fabric fabric;
  fabric.kind = FabricKind::Dragonfly;
  fabric.dragonfly.nodes_per_switch = nodes_per_switch;
  fabric.dragonfly.switches_per_group = switches;
  fabric.dragonfly.taper = taper;
  fabric.dragonfly.routing = routing;
  return fabric;
}

Fabric torus(std::vector<int> dimensions) {
  Fabric fabric;
  fabric.kind = FabricKind::Torus;
  fabric.torus = {std::move(dimensions), kNic};
  return fabric;
}

std::string error_of(const Fabric& fabric, int nodes, int nics) {
  try {
    static_cast<void>(FabricNetwork(fabric, nodes, nics, kNic));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Fabric, ASingleSwitchHasNoLinks) {
  Fabric fabric;
  fabric.hop_latency = Seconds(1e-6);
  const FabricNetwork network(fabric, 4, 2, kNic);
  EXPECT_EQ(network.link_count(), 0);
  EXPECT_THAT(way(network, 0, 1, 3), IsEmpty());
  EXPECT_EQ(network.switches(0, 1, 3), 1);
  EXPECT_DOUBLE_EQ(network.latency(0, 1, 3).count(), 1e-6);
  EXPECT_EQ(network.counts().switches(), 1);
  EXPECT_EQ(network.counts().node_cables, 8);
}

// 8 nodes x 2 NICs, 2 nodes a leaf: 4 leaves of 4 NICs and, at 2:1, 2 cables up: 20 GB/s. A leaf
// has 6 ports; 8 cables need 2 spines of 6 ports, one cable of each leaf to each.
TEST(LeafSpine, ByHand) {
  Fabric fabric = leaf_spine(2, 2);
  fabric.hop_latency = Seconds(0.25e-6);
  const FabricNetwork network(fabric, 8, 2, kNic);
  EXPECT_EQ(network.link_count(), 4);
  EXPECT_EQ(network.capacity(3), 20_GBps);
  EXPECT_EQ(network.name(3), "leaf3.up");
  EXPECT_EQ(level_of(network, 3), "leaf uplink");
  EXPECT_THAT(named_way(network, 0, 0, 1), IsEmpty());
  EXPECT_EQ(network.switches(0, 0, 1), 1);
  EXPECT_DOUBLE_EQ(network.latency(0, 0, 1).count(), 0);
  EXPECT_THAT(named_way(network, 1, 1, 6), ElementsAre("leaf0.up"));
  EXPECT_THAT(named_way(network, 6, 1, 1), ElementsAre("leaf3.up"));
  EXPECT_EQ(network.switches(1, 1, 6), 3);
  EXPECT_DOUBLE_EQ(network.latency(1, 1, 6).count(), 2 * 0.25e-6);
  const FabricCounts counts = network.counts();
  EXPECT_EQ(counts.leaves, 4);
  EXPECT_EQ(counts.spines, 2);
  EXPECT_EQ(counts.cores, 0);
  EXPECT_EQ(counts.node_cables, 16);
  EXPECT_EQ(counts.leaf_cables, 8);
}

// The fabric has ports for all NICs of a node, used or not: as above with one of two used.
TEST(LeafSpine, UnusedNicsHavePortsToo) {
  Fabric fabric = leaf_spine(2, 2);
  fabric.node_nics = 2;
  EXPECT_EQ(FabricNetwork(fabric, 8, 1, kNic).capacity(0), 20_GBps);
}

// A spread that leaves 0.8 of each bundle; 3:1 of 4 NICs is 13.33 GB/s of uplinks.
TEST(LeafSpine, EfficiencyAndFractionsOfCables) {
  Fabric fabric = leaf_spine(2, 3);
  fabric.clos.ecmp_efficiency = 0.8;
  const FabricNetwork network(fabric, 4, 2, kNic);
  EXPECT_DOUBLE_EQ(network.capacity(0).gb_per_second(), 4 * 10.0 / 3 * 0.8);
  EXPECT_EQ(network.counts().leaf_cables, 2 * 2);
}

TEST(LeafSpine, LinksAreFoundByNameAndByLevel) {
  const FabricNetwork network(leaf_spine(2, 2), 8, 2, kNic);
  EXPECT_THAT(network.links_named("leaf uplink"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(network.links_named("leaf2.up"), ElementsAre(2));
  EXPECT_THAT(network.links_named("leaf4.up"), IsEmpty());
}

// Every name of every kind leads back to its link.
TEST(Fabric, NamesAreUnique) {
  Fabric hashed = fat_tree(4, 1);
  hashed.clos.hashed = true;
  const std::vector<FabricNetwork> networks = {
      {leaf_spine(2, 2), 24, 2, kNic},
      {rails(2, 2), 12, 8, kNic},
      {hashed, 16, 1, kNic},
      {dragonfly(1, 11, 1, DragonflyRouting::Minimal), 33, 1, kNic},
      {torus({11, 2, 1}), 22, 1, kNic},
  };
  for (const FabricNetwork& network : networks) {
    for (int link = 0; link < network.link_count(); ++link) {
      EXPECT_THAT(network.links_named(network.name(link)), ElementsAre(link)) << network.name(link);
    }
    for (const char* name : {"", "leaf1", "leaf1.up ", "99999999999999999999", "node1.dim0"}) {
      EXPECT_THAT(network.links_named(name), IsEmpty()) << name;
    }
  }
}

// 2^20 nodes of 16 NICs on cables of their own: too many to be a mistake worth simulating.
TEST(Fabric, TooManyLinksAreRefused) {
  Fabric fabric = leaf_spine(4, 1);
  fabric.clos.hashed = true;
  EXPECT_EQ(error_of(fabric, 1 << 20, 16), "fabric: 33554432 links, expected at most 16777216");
  EXPECT_EQ(error_of(leaf_spine(1 << 20, 1), 8, 1024),
            "fabric: a leaf of 1073741824 NICs, expected at most 1048576");
}

// 8 nodes x 2 NICs in units of 4: leaf r of a unit has its 4 NICs r, so 40 GB/s up at 1:1.
TEST(RailOptimised, ByHand) {
  const FabricNetwork network(rails(4, 4), 8, 2, kNic);
  EXPECT_EQ(network.link_count(), 4);
  EXPECT_EQ(network.capacity(0), 40_GBps);
  EXPECT_THAT(named_way(network, 0, 1, 3), IsEmpty());
  EXPECT_EQ(network.switches(0, 1, 3), 1);
  EXPECT_THAT(named_way(network, 0, 1, 5), ElementsAre("unit0.rail1.up"));
  EXPECT_THAT(named_way(network, 5, 0, 0), ElementsAre("unit1.rail0.up"));
  EXPECT_EQ(network.switches(0, 1, 5), 3);
}

// The same with one unit a pod: the two leaves of a pod send 80 GB/s up, at 2:1 of the spines 40.
TEST(RailOptimised, ManyUnitsHaveACore) {
  Fabric fabric = rails(4, 1);
  fabric.clos.core_oversubscription = 2;
  const FabricNetwork network(fabric, 8, 2, kNic);
  EXPECT_EQ(network.link_count(), 6);
  EXPECT_EQ(network.capacity(4), 40_GBps);
  EXPECT_EQ(level_of(network, 4), "spine uplink");
  EXPECT_THAT(named_way(network, 5, 1, 0), ElementsAre("unit1.rail1.up", "pod1.up"));
  EXPECT_EQ(network.switches(5, 1, 0), 5);
}

// NVIDIA DGX SuperPOD reference architecture (DGX H100), compute fabric by number of scalable
// units: leaves 8, 16, 24, 32; spines 4, 8, 16, 16; leaf to spine cables 256, 512, 768, 1024. The
// last unit has one node less there, for UFM: 127 nodes in all have 1016 cables.
TEST(RailOptimised, SwitchesAreThoseOfTheSuperPodGuide) {
  const std::vector<int> spines = {4, 8, 16, 16};
  for (int units = 1; units <= 4; ++units) {
    const FabricCounts counts = FabricNetwork(rails(32, 4), 32 * units - 1, 8, kNic).counts();
    EXPECT_EQ(counts.leaves, 8 * units);
    EXPECT_EQ(counts.spines, spines[static_cast<std::size_t>(units - 1)]);
    EXPECT_EQ(counts.cores, 0);
    EXPECT_EQ(counts.leaf_cables, 256 * units);
    EXPECT_EQ(counts.node_cables, 256 * units - 8);
  }
}

// 16 units, 4 pods: a pod's 32 leaves send 1024 cables up; spines have 32 ports down: 32 a pod,
// 128 in all, with 32 cables up each: 4096 cables to 4096 / 64 = 64 cores.
TEST(RailOptimised, CoresOfSixteenUnits) {
  const FabricCounts counts = FabricNetwork(rails(32, 4), 512, 8, kNic).counts();
  EXPECT_EQ(counts.leaves, 128);
  EXPECT_EQ(counts.spines, 128);
  EXPECT_EQ(counts.cores, 64);
  EXPECT_EQ(counts.spine_cables, 4096);
}

// k-ary (Al-Fares et al. 2008): k^3/4 hosts, k^2/2 leaves, k^2/2 spines, k^2/4 cores, k^3/4 cables
// in each tier.
TEST(FatTree, CountsOfTheKAryTree) {
  for (const int k : {4, 8, 16, 64}) {
    const FabricCounts counts = FabricNetwork(fat_tree(k, 1), k * k * k / 4, 1, kNic).counts();
    EXPECT_EQ(counts.leaves, k * k / 2) << k;
    EXPECT_EQ(counts.spines, k * k / 2) << k;
    EXPECT_EQ(counts.cores, k * k / 4) << k;
    EXPECT_EQ(counts.leaf_cables, k * k * k / 4) << k;
    EXPECT_EQ(counts.spine_cables, k * k * k / 4) << k;
  }
}

// k = 4, 16 nodes of one NIC: 2 a leaf, 4 a pod. A leaf's 2 cables up carry 20 GB/s, a pod's 40.
TEST(FatTree, ByHand) {
  const FabricNetwork network(fat_tree(4, 1), 16, 1, kNic);
  EXPECT_EQ(network.link_count(), 8 + 4);
  EXPECT_EQ(network.capacity(0), 20_GBps);
  EXPECT_EQ(network.capacity(8), 40_GBps);
  EXPECT_THAT(named_way(network, 4, 0, 5), IsEmpty());
  EXPECT_THAT(named_way(network, 4, 0, 6), ElementsAre("leaf2.up"));
  EXPECT_EQ(network.switches(4, 0, 6), 3);
  EXPECT_THAT(named_way(network, 4, 0, 8), ElementsAre("leaf2.up", "pod1.up"));
  EXPECT_EQ(network.switches(4, 0, 8), 5);
  EXPECT_THAT(error_of(fat_tree(4, 1), 17, 1),
              HasSubstr("17 nodes need 5 pods of 2 leaves with 2 nodes each, but there are ports "
                        "for 4"));
}

// 2 leaves of 4 NICs with 4 cables each: links 0 to 7 up, 8 to 15 down, 10 GB/s each.
TEST(HashedEcmp, EachFlowTakesOneCable) {
  Fabric fabric = leaf_spine(4, 1);
  fabric.clos.hashed = true;
  EXPECT_TRUE(fabric.hashed());
  const FabricNetwork network(fabric, 8, 1, kNic);
  EXPECT_EQ(network.link_count(), 16);
  EXPECT_EQ(network.capacity(5), kNic);
  EXPECT_EQ(network.name(6), "leaf1.up2");
  EXPECT_EQ(network.name(14), "leaf1.down2");
  EXPECT_EQ(level_of(network, 14), "leaf downlink");
  std::set<int> used;
  for (int from = 0; from < 4; ++from) {
    for (int to = 4; to < 8; ++to) {
      const std::vector<FabricShare> links = way(network, from, 0, to);
      ASSERT_THAT(links, SizeIs(2));
      const int cable = links[0].link;
      EXPECT_LT(cable, 4);
      EXPECT_EQ(links[1].link, 8 + 4 + cable) << "cable i of each leaf leads to the same spine";
      EXPECT_EQ(way(network, from, 0, to)[0].link, cable) << "a flow stays where it is";
      used.insert(cable);
    }
  }
  EXPECT_EQ(used.size(), 4U) << "16 flows, drawn with this seed, use all cables";
}

TEST(HashedEcmp, TheSeedDecides) {
  Fabric fabric = leaf_spine(16, 1);
  fabric.clos.hashed = true;
  const FabricNetwork one(fabric, 32, 1, kNic);
  fabric.clos.hash_seed = 2;
  const FabricNetwork two(fabric, 32, 1, kNic);
  int moved = 0;
  for (int from = 0; from < 16; ++from) {
    moved += way(one, from, 0, from + 16)[0].link != way(two, from, 0, from + 16)[0].link ? 1 : 0;
  }
  EXPECT_GT(moved, 8) << "of 16 flows over 16 cables about 15 move";
}

// Pods of 2 leaves: up a cable to the spine, up to the core, down the same cables elsewhere.
TEST(HashedEcmp, ThreeTiersKeepTheirPlane) {
  Fabric fabric = fat_tree(8, 1);
  fabric.clos.hashed = true;
  const FabricNetwork network(fabric, 128, 1, kNic);
  for (int to = 16; to < 128; to += 7) {
    const std::vector<std::string> names = named_way(network, 0, 0, to);
    ASSERT_THAT(names, SizeIs(4));
    const std::string leaf_cable = names[0].substr(names[0].find(".up") + 3);
    const std::string pod_cable = names[1].substr(names[1].find(".up") + 3);
    EXPECT_EQ(names[0], "leaf0.up" + leaf_cable);
    EXPECT_EQ(names[1], "pod0.up" + pod_cable);
    EXPECT_EQ(names[2], "pod" + std::to_string(to / 16) + ".down" + pod_cable);
    EXPECT_EQ(names[3], "leaf" + std::to_string(to / 4) + ".down" + leaf_cable);
    // 4 spines with 4 cables up each: cable i of a leaf leads to spine i, whose are 4 i to 4 i + 3.
    EXPECT_EQ(std::stoi(pod_cable) / 4, std::stoi(leaf_cable));
  }
}

// One node a switch, 2 switches a group, 3 groups; 2 NICs a group over 2 other groups: 1 cable a
// pair. The gateways: to the first other group switch 0, to the second switch 1. Node i hangs from
// switch i mod 2 of group i / 2.
TEST(Dragonfly, MinimalWaysByHand) {
  const FabricNetwork network(dragonfly(1, 2, 1, DragonflyRouting::Minimal), 6, 1, kNic);
  EXPECT_EQ(network.link_count(), 3 * 4 + 9);
  EXPECT_EQ(level_of(network, 11), "local link");
  EXPECT_EQ(level_of(network, 12), "global link");
  EXPECT_EQ(network.capacity(0), kNic);
  EXPECT_EQ(network.capacity(13), kNic);
  EXPECT_THAT(named_way(network, 0, 0, 1), ElementsAre("group0.switch0.to1"));
  EXPECT_EQ(network.switches(0, 0, 1), 2);
  // Both gateways of 0-1 are switches 0.
  EXPECT_THAT(named_way(network, 0, 0, 2), ElementsAre("group0.to1"));
  EXPECT_EQ(network.switches(0, 0, 2), 2);
  EXPECT_THAT(named_way(network, 1, 0, 3),
              ElementsAre("group0.switch1.to0", "group1.switch0.to1", "group0.to1"));
  EXPECT_EQ(network.switches(1, 0, 3), 4);
  // 1-2: switch 1 of group 1, the second other, and switch 1 of group 2.
  EXPECT_THAT(named_way(network, 2, 0, 5), ElementsAre("group1.switch0.to1", "group1.to2"));
  EXPECT_EQ(network.switches(2, 0, 5), 3);
}

// As above: half of what goes from node 1 to node 2 goes by group 2, in by its gateway to group 0
// (switch 0), out by that to group 1 (switch 1), into group 1 by its gateway to group 2 (switch 1).
TEST(Dragonfly, AdaptiveWaysByHand) {
  const FabricNetwork network(dragonfly(1, 2, 1, DragonflyRouting::Adaptive), 6, 1, kNic);
  EXPECT_THAT(named_way(network, 1, 0, 2),
              ElementsAre("group0.switch1.to0/2", "group1.switch1.to0/2", "group2.switch0.to1/2",
                          "group0.to1/2", "group0.to2/2", "group2.to1/2"));
  EXPECT_EQ(network.switches(1, 0, 2), 3) << "as the minimal way";
}

// 3 switches a group: directly and by the third, half each.
TEST(Dragonfly, DetoursWithinAGroup) {
  const FabricNetwork network(dragonfly(1, 3, 1, DragonflyRouting::Adaptive), 3, 1, kNic);
  EXPECT_THAT(named_way(network, 0, 0, 1),
              ElementsAre("group0.switch0.to1/2", "group0.switch0.to2/2", "group0.switch2.to1/2"));
}

// 2 groups of 2 x 4 NICs: 8 cables at 1:1, 4 at 2:1, half of them at each switch.
TEST(Dragonfly, TaperAndGateways) {
  const FabricNetwork network(dragonfly(2, 2, 2, DragonflyRouting::Minimal), 8, 2, kNic);
  EXPECT_EQ(network.capacity(network.links_named("global link").front()), 40_GBps);
  EXPECT_THAT(named_way(network, 0, 0, 4),
              ElementsAre("group0.switch0.to1/2", "group1.switch1.to0/2", "group0.to1"));
  const FabricCounts counts = network.counts();
  EXPECT_EQ(counts.switches(), 4);
  EXPECT_EQ(counts.leaf_cables, 2);
  EXPECT_EQ(counts.spine_cables, 4);
}

TEST(Dragonfly, HasRoomForAsManyGroupsAsCables) {
  EXPECT_EQ(error_of(dragonfly(1, 2, 1, DragonflyRouting::Minimal), 6, 1), "");
  EXPECT_EQ(error_of(dragonfly(1, 2, 1, DragonflyRouting::Minimal), 8, 1),
            "fabric: 8 nodes are 4 groups of a dragonfly, but a group has 2 global cables and so "
            "joins at most 3 groups");
}

// 4 x 4: node 4 y + x.
TEST(Torus, ByHand) {
  const FabricNetwork network(torus({4, 4}), 16, 2, kNic);
  EXPECT_EQ(network.link_count(), 2 * 2 * 16);
  EXPECT_EQ(network.capacity(0), kNic);
  EXPECT_EQ(level_of(network, 0), "dimension 0");
  EXPECT_EQ(level_of(network, 32), "dimension 1");
  EXPECT_THAT(named_way(network, 0, 0, 5), ElementsAre("node0.dim0+", "node1.dim1+"));
  EXPECT_EQ(network.switches(0, 0, 5), 2);
  EXPECT_THAT(named_way(network, 0, 1, 3), ElementsAre("node0.dim0-"));
  EXPECT_EQ(network.switches(0, 1, 3), 1);
  EXPECT_THAT(named_way(network, 0, 0, 12), ElementsAre("node0.dim1-"));
  EXPECT_THAT(named_way(network, 0, 0, 2), ElementsAre("node0.dim0+", "node1.dim0+"))
      << "of two ways as short the one upwards";
}

// 2 x 3: one cable in the dimension of 2, so 3 cables there and 6 in the other.
TEST(Torus, ADimensionOfTwoHasOneCable) {
  const FabricNetwork network(torus({2, 3}), 6, 1, kNic);
  EXPECT_THAT(named_way(network, 1, 0, 0), ElementsAre("node1.dim0+"));
  EXPECT_EQ(network.counts().leaf_cables, 3 + 6);
  EXPECT_THAT(error_of(torus({2, 3}), 7, 1), HasSubstr("6 places has no room for 7 nodes"));
}

TEST(Placement, ScatteredNodesHaveDifferentPlacesOfTheSeed) {
  Fabric fabric = leaf_spine(4, 1);
  fabric.placement = {true, 7, 64};
  const FabricNetwork network(fabric, 16, 1, kNic);
  EXPECT_EQ(network.places(), 64);
  EXPECT_EQ(network.link_count(), 16) << "leaves of all 64 places";
  std::set<int> places;
  for (int node = 0; node < 16; ++node) places.insert(network.place(node));
  EXPECT_EQ(places.size(), 16U);
  EXPECT_LT(*places.rbegin(), 64);
  EXPECT_GT(*places.rbegin(), 15);
  // A route is that between the places.
  const std::string leaf = "leaf" + std::to_string(network.place(0) / 4) + ".up";
  int other = 1;
  while (network.place(other) / 4 == network.place(0) / 4) ++other;
  EXPECT_THAT(named_way(network, 0, 0, other), ElementsAre(leaf));
  const FabricNetwork again(fabric, 16, 1, kNic);
  fabric.placement.seed = 8;
  const FabricNetwork different(fabric, 16, 1, kNic);
  int moved = 0;
  for (int node = 0; node < 16; ++node) {
    EXPECT_EQ(network.place(node), again.place(node));
    moved += network.place(node) != different.place(node) ? 1 : 0;
  }
  EXPECT_GT(moved, 8);
  EXPECT_THAT(error_of(fabric, 65, 1), HasSubstr("64 places are not enough for 65 nodes"));
}

// 16,384 nodes of 8 NICs: every ring edge of every NIC, in a vector that never grows.
TEST(Fabric, RoutesOfManyNicsNeedNoMemory) {
  const FabricNetwork network(rails(32, 4), 16384, 8, kNic);
  std::vector<FabricShare> links;
  links.reserve(4);
  const FabricShare* const place = links.data();
  std::int64_t switches = 0;
  for (int node = 0; node < 16384; ++node) {
    for (int nic = 0; nic < 8; ++nic) {
      links.clear();
      const int next = (node + 1) % 16384;
      network.route(node, nic, next, links);
      switches += network.switches(node, nic, next);
    }
  }
  EXPECT_EQ(links.data(), place);
  // 512 units: 31 of 32 edges stay inside (1 switch); of the 512 others 3 of 4 stay in the pod (3).
  EXPECT_EQ(switches, 8 * (16384 - 512 + 384 * 3 + 128 * 5));
}

}  // namespace
}  // namespace zerosim
