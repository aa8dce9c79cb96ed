// Slots and uplinks of machines, and what groups load of them, by hand.

#include "topology/host_links.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "topology/slot_loads.h"

namespace zerosim {
namespace {

HostLinks links_of(const char* preset, int gpus = -1) {
  return host_links(load_cluster(preset, 1, gpus));
}

// Two GPUs below each of four switches, all links x16 of generation 4.
TEST(HostLinks, UplinksThatSeveralUsedGpusShare) {
  const HostLinks all = links_of("dgx-a100-80");
  ASSERT_EQ(all.slots.size(), 8U);
  EXPECT_EQ(all.slots[7], 25_GBps);
  ASSERT_EQ(all.uplinks.size(), 4U);
  EXPECT_EQ(all.uplinks[3].pcie_switch, 3);
  EXPECT_EQ(all.uplinks[3].gpus, 2);
  EXPECT_EQ(all.uplinks[3].capacity, 25_GBps);
  EXPECT_EQ(all.above_gpu[6], (std::vector<int>{3}));
  EXPECT_EQ(all.above_nic[1], (std::vector<int>{0}));
  EXPECT_EQ(copy_rate_of_all(all), 12.5_GBps);
  // Of three GPUs two share one.
  const HostLinks three = links_of("dgx-a100-80", 3);
  ASSERT_EQ(three.uplinks.size(), 1U);
  EXPECT_TRUE(three.above_gpu[2].empty());
  EXPECT_TRUE(links_of("dgx-a100-80", 1).uplinks.empty());
  EXPECT_TRUE(links_of("rtx4090x8-pcie").uplinks.empty());
}

// Pairs below switches below switches: the pair shares its own uplink, four the next.
TEST(HostLinks, CascadedSwitches) {
  const HostLinks links = links_of("l40sx8-pcie-plx");
  ASSERT_EQ(links.uplinks.size(), 6U);
  const std::vector<int>& above = links.above_gpu[7];
  ASSERT_EQ(above.size(), 2U);
  EXPECT_EQ(links.uplinks[static_cast<std::size_t>(above[0])].gpus, 2);
  EXPECT_EQ(links.uplinks[static_cast<std::size_t>(above[1])].gpus, 4);
  EXPECT_EQ(copy_rate_of_all(links), 6.25_GBps);
}

// p5: slots of 63 GB/s below uplinks of 31.5, on which copies achieve 25. A GPU's slot then
// carries 50, for its NICs below the switch.
TEST(HostLinks, AnUplinkThatIsNarrowerThanASlot) {
  const HostLinks links = links_of("aws-p5");
  EXPECT_DOUBLE_EQ(links.slots[0].gb_per_second(), 50);
  ASSERT_EQ(links.uplinks.size(), 8U);
  EXPECT_EQ(links.uplinks[0].gpus, 1);
  EXPECT_EQ(links.uplinks[0].capacity, 25_GBps);
  EXPECT_EQ(copy_rate_of_all(links), 25_GBps);
}

// Two x8 slots (15.75) below an uplink of x16: each copies at 12.5, also together.
TEST(HostLinks, AnUplinkThatIsWideEnough) {
  const Cluster cluster = parse_cluster(R"({"version": 1, "node": {"gpu": "A100-PCIe-80",
    "host": {"pcie": "12.5GB/s"}, "graph": {"cpus": [{}], "switches": [{"below": "cpu0"}],
      "gpus": [{"below": "switch0", "link": "15.75GB/s"},
               {"below": "switch0", "link": "15.75GB/s"}]}}})",
                                        "x8.json");
  const HostLinks links = host_links(cluster);
  ASSERT_EQ(links.uplinks.size(), 1U);
  EXPECT_DOUBLE_EQ(links.uplinks[0].capacity.gb_per_second(), 25);
  EXPECT_EQ(copy_rate_of_all(links), 12.5_GBps);
}

using ShareByName = std::map<std::string, double>;

ShareByName by_name(const SlotLoads& loads, const std::vector<LinkShare>& links,
                    double LinkShare::*share) {
  ShareByName all;
  for (const LinkShare& link : links) {
    if (link.*share > 0) all[loads.name(link.link)] = link.*share;
  }
  return all;
}

// Below the first switch GPUs 0 to 3 and a NIC, below the second GPUs 4 to 7.
Cluster plx() {
  return load_cluster("a100x8-pcie-plx", 2);
}

// A ring of GPUs 2, 3, 4 and 5 of one node alone: V through each slot both ways, and once through
// each uplink both ways.
TEST(SlotLoads, ARingInsideANode) {
  const SlotLoads loads(plx());
  const std::vector<int> gpus = {2, 3, 4, 5};
  const std::vector<LinkShare> links = loads.of_group({gpus, {}, 1, 4});
  ShareByName expected;
  for (const char* device : {"gpu2", "gpu3", "gpu4", "gpu5"}) {
    for (const char* way : {".h2d", ".d2h"}) expected[std::string(device) + way] = 1;
  }
  for (const char* uplink : {"switch0.up", "switch0.down", "switch1.up", "switch1.down"}) {
    expected[uplink] = 1;
  }
  EXPECT_EQ(by_name(loads, links, &LinkShare::intra_share), expected);
  EXPECT_TRUE(by_name(loads, links, &LinkShare::share).empty());
  // All-to-all: each sends a third of V to each other one; of 4 x V, 2 x 2/3 V cross either way.
  const ShareByName exchange = by_name(loads, links, &LinkShare::intra_exchange_share);
  EXPECT_NEAR(exchange.at("gpu2.d2h"), 1, 1e-12);
  EXPECT_NEAR(exchange.at("gpu5.h2d"), 1, 1e-12);
  EXPECT_NEAR(exchange.at("switch0.up"), 4.0 / 3, 1e-12);
  EXPECT_NEAR(exchange.at("switch1.down"), 4.0 / 3, 1e-12);
}

// The same GPUs between nodes: two are equally near to the NIC, half of V goes by a ring NIC 2 3 4
// 5 NIC and half by NIC 3 4 5 2 NIC. What comes from 5 to the NIC or to 2 crosses both uplinks
// either way; what goes from 2 to the NIC or to 3 crosses none.
TEST(SlotLoads, ARingThroughANic) {
  const SlotLoads loads(plx());
  const std::vector<int> gpus = {2, 3, 4, 5};
  const std::vector<int> nics = {0};
  const std::vector<LinkShare> links = loads.of_group({gpus, nics, 1, 8});
  EXPECT_EQ(by_name(loads, links, &LinkShare::share), (ShareByName{{"gpu2.h2d", 0.5},
                                                                   {"gpu2.d2h", 0.5},
                                                                   {"gpu3.h2d", 0.5},
                                                                   {"gpu5.d2h", 0.5},
                                                                   {"switch0.down", 0.5},
                                                                   {"switch1.up", 0.5}}));
  EXPECT_EQ(by_name(loads, links, &LinkShare::intra_share), (ShareByName{{"gpu2.h2d", 0.5},
                                                                         {"gpu2.d2h", 0.5},
                                                                         {"gpu3.h2d", 0.5},
                                                                         {"gpu3.d2h", 1},
                                                                         {"gpu4.h2d", 1},
                                                                         {"gpu4.d2h", 1},
                                                                         {"gpu5.h2d", 1},
                                                                         {"gpu5.d2h", 0.5},
                                                                         {"switch0.up", 1},
                                                                         {"switch0.down", 0.5},
                                                                         {"switch1.up", 0.5},
                                                                         {"switch1.down", 1}}));
}

// GPU 6 alone on its node: V goes up from its switch and down to that of the NIC.
TEST(SlotLoads, AGpuFarFromItsNic) {
  const SlotLoads loads(plx());
  const std::vector<int> gpus = {6};
  const std::vector<int> nics = {0};
  const std::vector<LinkShare> links = loads.of_group({gpus, nics, 1, 2});
  const ShareByName expected = {{"gpu6.h2d", 1},     {"gpu6.d2h", 1},   {"switch0.up", 1},
                                {"switch0.down", 1}, {"switch1.up", 1}, {"switch1.down", 1}};
  EXPECT_EQ(by_name(loads, links, &LinkShare::share), expected);
  EXPECT_EQ(by_name(loads, links, &LinkShare::exchange_share), expected);
  EXPECT_TRUE(by_name(loads, links, &LinkShare::intra_share).empty());
}

// NVLink: NIC i stands beside GPUs 2 (i / 2) and the next; each takes half of what its two NICs
// have, an eighth of V each. Rings inside the node load no slot.
TEST(SlotLoads, NicsTakeTheirPartFromTheNearestGpus) {
  const SlotLoads loads(load_cluster("dgx-a100-80", 2));
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<LinkShare> links = loads.of_group({all, all, 1.0 / 8, 16});
  EXPECT_EQ(links.size(), 16U);
  for (const LinkShare& link : links) {
    EXPECT_NEAR(link.share, 1.0 / 8, 1e-12);
    EXPECT_EQ(link.share, link.exchange_share);
    EXPECT_EQ(link.intra_share, 0);
  }
  EXPECT_EQ(loads.name(links[1].link), "gpu0.d2h");
}

}  // namespace
}  // namespace zerosim
