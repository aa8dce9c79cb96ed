// Classes of ranks, links and communicator instances: small cases by hand.

#include "topology/folding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

using Kind = LinkClass::Kind;

Folding folded(const Cluster& cluster, const std::vector<GroupPattern>& groups,
               FoldMode mode = FoldMode::Exact) {
  return fold(cluster, {{0, cluster.world_size(), 0}}, groups, mode);
}

std::vector<FoldedLink> links_of(const Folding& folding, Kind kind) {
  std::vector<FoldedLink> result;
  for (const FoldedLink& link : folding.links) {
    if (link.kind == kind) result.push_back(link);
  }
  return result;
}

double share_of(const Folding& folding, const InstanceClass& instance, Kind kind) {
  double sum = 0;
  for (const LinkShare& link : instance.links) {
    if (folding.links[static_cast<std::size_t>(link.link)].kind == kind) sum += link.share;
  }
  return sum;
}

/// At nine tenths.
GpuPerturbation slow_gpu(std::vector<int> nodes, std::vector<int> gpus) {
  GpuPerturbation slow;
  slow.nodes = std::move(nodes);
  slow.gpus = std::move(gpus);
  slow.speed = 0.9;
  return slow;
}

int ranks_in(const Folding& folding) {
  return std::accumulate(folding.ranks.begin(), folding.ranks.end(), 0,
                         [](int sum, const RankClass& rank) { return sum + rank.multiplicity; });
}

// 64 ranks alike, 64 NICs alike, of which the world's ring loads each with an eighth.
TEST(Folding, AUniformClusterIsOneRank) {
  const Cluster cluster = load_cluster("dgx-h100", 8);
  const Folding folding = folded(cluster, {{64, 1}});
  ASSERT_EQ(folding.ranks.size(), 1U);
  EXPECT_EQ(folding.ranks[0].multiplicity, 64);
  EXPECT_TRUE(folding.class_of_rank.empty());
  EXPECT_EQ(class_of(folding, 63), 0);
  ASSERT_EQ(folding.groups[0].size(), 1U);
  const InstanceClass& world = folding.groups[0][0];
  EXPECT_EQ(world.shape, (CollectiveGroup{64, 8, 8, Seconds(0)}));
  EXPECT_EQ(world.ranks, (std::vector<int>{0}));
  const std::vector<FoldedLink> nics = links_of(folding, Kind::Network);
  ASSERT_EQ(nics.size(), 1U);
  EXPECT_EQ(nics[0].name, "node0.nic0");
  EXPECT_EQ(nics[0].multiplicity, 64);
  EXPECT_DOUBLE_EQ(nics[0].capacity.gb_per_second(), 48);
  EXPECT_DOUBLE_EQ(share_of(folding, world, Kind::Network), 1.0 / 8);
  const FoldedLink& intra = folding.links[static_cast<std::size_t>(folding.ranks[0].intra_link)];
  EXPECT_EQ(intra.name, "node0.gpu0.nvlink");
  EXPECT_EQ(intra.multiplicity, 64);
  EXPECT_EQ(intra.capacity, link_capacity(cluster, Kind::IntraNode));
}

TEST(Folding, OffKeepsEverything) {
  const Folding folding = folded(load_cluster("dgx-h100", 2), {{16, 1}, {8, 1}}, FoldMode::Off);
  EXPECT_EQ(folding.ranks.size(), 16U);
  EXPECT_EQ(links_of(folding, Kind::IntraNode).size(), 16U);
  EXPECT_EQ(links_of(folding, Kind::Network).size(), 16U);
  EXPECT_EQ(folding.groups[0].size(), 1U);
  EXPECT_EQ(folding.groups[1].size(), 2U);
  EXPECT_EQ(folding.groups[0][0].links.size(), 16U);
  EXPECT_EQ(folding.instance_of[1][9], 1);
  EXPECT_EQ(class_of(folding, 9), 9);
}

// Of 32 ranks one is slow. With the world alone every rank meets it alike: two classes. With groups
// of a node its neighbours differ from the others, too: three.
TEST(Folding, AStragglerSplitsWhatMeetsIt) {
  Cluster cluster = load_cluster("dgx-h100", 4);
  cluster.perturbations.gpus.push_back(slow_gpu({2}, {5}));
  const Folding world = folded(cluster, {{32, 1}});
  ASSERT_EQ(world.ranks.size(), 2U);
  EXPECT_EQ(world.ranks[1].representative, 2 * 8 + 5);
  EXPECT_EQ(world.ranks[1].multiplicity, 1);
  EXPECT_EQ(world.ranks[1].gpu_speed, 0.9);
  EXPECT_EQ(ranks_in(world), 32);
  EXPECT_EQ(world.groups[0][0].ranks, (std::vector<int>{0, 1}));

  const Folding nodes = folded(cluster, {{32, 1}, {8, 1}});
  ASSERT_EQ(nodes.ranks.size(), 3U);
  EXPECT_EQ(nodes.ranks[1].representative, 16);
  EXPECT_EQ(nodes.ranks[1].multiplicity, 7);
  ASSERT_EQ(nodes.groups[1].size(), 2U);
  EXPECT_EQ(nodes.groups[1][0].multiplicity, 3);
  EXPECT_EQ(nodes.groups[1][1].ranks, (std::vector<int>{1, 2}));
  EXPECT_EQ(nodes.instance_of[1], (std::vector<int>{0, 1, 1}));
}

// DGX-1: NIC 0 is nearest to GPUs 0 and 1. Replicas of both load it with all of their V each: two
// transfers, which must stay two.
TEST(Folding, InstancesThatMeetOnALinkAreToldApart) {
  const Cluster cluster = load_cluster("dgx1-v100-32", 4);
  const Folding folding = folded(cluster, {{4, 8}});
  ASSERT_EQ(folding.ranks.size(), 2U);
  EXPECT_EQ(folding.ranks[0].multiplicity, 16);
  ASSERT_EQ(folding.groups[0].size(), 2U);
  EXPECT_EQ(folding.groups[0][0].multiplicity, 4);
  EXPECT_EQ(folding.groups[0][0].shape, (CollectiveGroup{4, 4, 1, Seconds(0)}));
  ASSERT_EQ(links_of(folding, Kind::Network).size(), 1U);
  EXPECT_EQ(folding.groups[0][0].links.size(), 1U);
  EXPECT_EQ(folding.groups[0][0].links[0].link, folding.groups[0][1].links[0].link);
  EXPECT_EQ(folding.groups[0][0].links[0].share, 1);
}

// Groups of 6 on nodes of 8: ranks 0-5 on one node, 6-11 on two (NICs 6 and 7, then 0 to 3), 12-17
// on two (4 to 7, then 0 and 1), 18-23 on one.
TEST(Folding, GroupsThatDoNotMatchNodes) {
  const Folding folding = folded(load_cluster("dgx-h100", 3), {{6, 1}});
  const auto shape = [&](int rank) {
    const int instance = folding.instance_of[0][static_cast<std::size_t>(class_of(folding, rank))];
    return folding.groups[0][static_cast<std::size_t>(instance)].shape;
  };
  EXPECT_EQ(shape(0), (CollectiveGroup{6, 1, 0, Seconds(0)}));
  EXPECT_EQ(shape(6), (CollectiveGroup{6, 2, 2, Seconds(0)}));
  EXPECT_EQ(shape(12), (CollectiveGroup{6, 2, 2, Seconds(0)}));
  EXPECT_EQ(shape(18), (CollectiveGroup{6, 1, 0, Seconds(0)}));
  EXPECT_EQ(class_of(folding, 0), class_of(folding, 23));  // on one node
  // Two senders of a half and four of a quarter of V; nobody else loads these NICs.
  EXPECT_EQ(class_of(folding, 6), class_of(folding, 11));
}

TEST(Folding, ASlowNicSplitsItsLinkOnly) {
  Cluster cluster = load_cluster("dgx-h100", 4);
  LinkPerturbation slow;
  slow.where = LinkPerturbation::Where::Nic;
  slow.nodes = {1};
  slow.nics = {3};
  slow.bandwidth = 0.5;
  cluster.perturbations.links = {slow};
  const Folding folding = folded(cluster, {{32, 1}});
  EXPECT_EQ(folding.ranks.size(), 1U);
  const std::vector<FoldedLink> nics = links_of(folding, Kind::Network);
  ASSERT_EQ(nics.size(), 2U);
  EXPECT_EQ(nics[0].multiplicity, 31);
  EXPECT_EQ(nics[1].name, "node1.nic3");
  EXPECT_DOUBLE_EQ(nics[1].capacity.gb_per_second(), 24);
  EXPECT_EQ(folding.groups[0][0].links.size(), 2U);
}

TEST(Folding, BackgroundTrafficAndJobsAreOnTheirLinks) {
  Cluster cluster = load_cluster("dgx-h100", 2);
  LinkPerturbation busy;
  busy.where = LinkPerturbation::Where::Nic;
  busy.nodes = {0};
  busy.background = 8_GBps;
  cluster.perturbations.links = {busy};
  CompetingJob job;
  job.links.where = LinkPerturbation::Where::Nic;
  job.links.nics = {7};
  job.bytes = 1_GB;
  job.period = Seconds(1);
  cluster.perturbations.jobs = {job};
  const Folding folding = folded(cluster, {{16, 1}});
  const std::vector<FoldedLink> nics = links_of(folding, Kind::Network);
  ASSERT_EQ(nics.size(), 4U);  // busy or not, with the job or without
  EXPECT_DOUBLE_EQ(nics[0].capacity.gb_per_second(), 40);
  EXPECT_EQ(nics[1].name, "node0.nic7");
  EXPECT_EQ(nics[3].name, "node1.nic7");
  ASSERT_EQ(folding.bursts.size(), 2U);
  EXPECT_EQ(folding.bursts[1].job, 0);
  EXPECT_EQ(folding.links[static_cast<std::size_t>(folding.bursts[1].link)].name, "node1.nic7");
}

TEST(Folding, MistakesAreNamed) {
  const auto error = [](const Cluster& cluster, GroupPattern group) -> std::string {
    try {
      static_cast<void>(folded(cluster, {group}));
    } catch (const Error& found) {
      return found.what();
    }
    return "no error";
  };
  Cluster cluster = load_cluster("dgx-h100", 2);
  EXPECT_EQ(error(cluster, {5, 1}), "groups of 5 ranks, 1 apart, do not tile 16 ranks");
  EXPECT_EQ(error(cluster, {8, 4}), "groups of 8 ranks, 4 apart, do not tile 16 ranks");
  cluster.perturbations.gpus.push_back(slow_gpu({2}, {}));
  EXPECT_EQ(error(cluster, {16, 1}), "a perturbation names node 2, expected 0 to 1");
  cluster.perturbations.gpus.clear();
  LinkPerturbation busy;
  busy.where = LinkPerturbation::Where::Nic;
  busy.background = 50_GBps;
  cluster.perturbations.links = {busy};
  EXPECT_EQ(error(cluster, {16, 1}),
            "a perturbation leaves nothing of a link of the network: 1 of 48 GB/s less 50 GB/s of "
            "background traffic");
  busy.where = LinkPerturbation::Where::Fabric;
  busy.fabric = "leaf uplink";
  cluster.perturbations.links = {busy};
  EXPECT_EQ(error(cluster, {16, 1}),
            "a perturbation names the fabric's links \"leaf uplink\": there are none");
}

// All NVLinks but one of a GPU: NCCL takes no more of any GPU than the worst has, and its own link
// carries 17 of 18 parts.
TEST(Folding, ALostNvLink) {
  Cluster cluster = load_cluster("dgx-h100", 2);
  LinkPerturbation lost;
  lost.where = LinkPerturbation::Where::NvLink;
  lost.nodes = {1};
  lost.gpus = {4};
  lost.lost_links = 1;
  cluster.perturbations.links = {lost};
  const double whole = ring_capacity(cluster.node.nccl).gb_per_second();
  const Folding folding = folded(cluster, {{16, 1}});
  ASSERT_EQ(folding.ranks.size(), 2U);
  const auto intra = [&](int rank) {
    const RankClass& own = folding.ranks[static_cast<std::size_t>(class_of(folding, rank))];
    return folding.links[static_cast<std::size_t>(own.intra_link)].capacity.gb_per_second();
  };
  EXPECT_DOUBLE_EQ(intra(0), whole);
  EXPECT_DOUBLE_EQ(intra(12), whole * 17 / 18);
}

// Half of 48 GB/s, less 20 of others: 4 GB/s, whichever comes first.
TEST(Folding, TheOrderOfEntriesIsOfNoAccount) {
  LinkPerturbation slow;
  slow.where = LinkPerturbation::Where::Nic;
  slow.bandwidth = 0.5;
  LinkPerturbation busy;
  busy.where = LinkPerturbation::Where::Nic;
  busy.background = 20_GBps;
  for (const std::vector<LinkPerturbation>& entries :
       {std::vector{slow, busy}, std::vector{busy, slow}}) {
    Cluster cluster = load_cluster("dgx-h100", 2);
    cluster.perturbations.links = entries;
    const std::vector<FoldedLink> nics = links_of(folded(cluster, {{16, 1}}), Kind::Network);
    ASSERT_EQ(nics.size(), 1U);
    EXPECT_DOUBLE_EQ(nics[0].capacity.gb_per_second(), 4);
  }
}

// The only NVLink between two V100 is lost: NCCL copies over PCIe, at some rate, and slow PCIe is
// slow for its rings, too.
TEST(Folding, AMeshWithoutARingGoesOverPcie) {
  Cluster cluster = load_cluster("dgx1-v100-32", 1, 2);
  LinkPerturbation lost;
  lost.where = LinkPerturbation::Where::NvLink;
  lost.gpus = {0};
  lost.peer = 1;
  lost.lost_links = 1;
  LinkPerturbation slow;
  slow.where = LinkPerturbation::Where::Pcie;
  slow.bandwidth = 0.5;
  const auto rings = [&](const std::vector<LinkPerturbation>& entries) {
    cluster.perturbations.links = entries;
    const std::vector<FoldedLink> links = links_of(folded(cluster, {{2, 1}}), Kind::IntraNode);
    EXPECT_EQ(links.front().name, "node0.gpu0.pcie");
    return links.front().capacity.gb_per_second();
  };
  const double whole = rings({lost});
  EXPECT_GT(whole, 1);
  EXPECT_LT(whole, 16);  // PCIe 3 x16
  EXPECT_DOUBLE_EQ(rings({lost, slow}), whole / 2);
}

// The GPU's near NIC is the node's second one: it is on rail 1, although it is the only one used.
TEST(Folding, RailsAreNumberedByTheNode) {
  const Cluster cluster = parse_cluster(R"({"version": 1, "nodes": 2,
    "node": {"gpu": "A100-PCIe-80", "gpus": 1, "host": {},
      "graph": {"cpus": [{}], "switches": [{"below": "cpu0"}], "gpus": [{"below": "switch0"}],
                "nics": [{"below": "cpu0"}, {"below": "switch0"}]},
      "nics": {"bandwidth": "25GB/s"}},
    "fabric": {"kind": "rail-optimised", "nodes_per_unit": 1}})",
                                        "rails.json");
  const Folding folding = folded(cluster, {{2, 1}}, FoldMode::Off);
  EXPECT_EQ(links_of(folding, Kind::Network).front().name, "node0.nic1");
  EXPECT_EQ(links_of(folding, Kind::Fabric).front().name, "unit0.rail1.up");
}

// Slots are told where they matter: not on NVSwitch without copies.
TEST(Folding, SlotsWhereTheyMatter) {
  Cluster cluster = load_cluster("dgx-a100-80", 2);
  const GroupPattern host{1, 1, false, true};
  EXPECT_TRUE(links_of(folded(cluster, {{16, 1}}), Kind::HostToDevice).empty());
  // Copies: 16 slots and 8 uplinks of two GPUs each way, which carry nothing else. All of V
  // passes the slots of each node's 8 GPUs, to and from its 8 NICs.
  const Folding copies = folded(cluster, {{16, 1}, host});
  ASSERT_EQ(copies.ranks.size(), 1U);
  EXPECT_EQ(copies.groups.size(), 1U);
  ASSERT_EQ(copies.copies.size(), 1U);
  EXPECT_EQ(copies.copies_of, (std::vector<int>{0}));
  const std::vector<FoldedLink> down = links_of(copies, Kind::HostToDevice);
  ASSERT_EQ(down.size(), 2U);
  EXPECT_EQ(down[0].name, "node0.gpu0.h2d");
  EXPECT_EQ(down[0].multiplicity, 16);
  EXPECT_EQ(down[1].name, "node0.switch0.down");
  EXPECT_EQ(down[1].multiplicity, 8);
  EXPECT_EQ(links_of(copies, Kind::DeviceToHost)[1].name, "node0.switch0.up");
  EXPECT_DOUBLE_EQ(share_of(copies, copies.groups[0][0], Kind::HostToDevice), 1.0 / 8);
  EXPECT_DOUBLE_EQ(share_of(copies, copies.copies[0], Kind::HostToDevice), 1 + 2);
  // A slow slot: it is one of 16, beside which nothing else differs.
  LinkPerturbation slow;
  slow.where = LinkPerturbation::Where::Pcie;
  slow.nodes = {1};
  slow.gpus = {3};
  slow.bandwidth = 0.5;
  cluster.perturbations.links = {slow};
  const Folding uneven = folded(cluster, {{16, 1}});
  EXPECT_EQ(uneven.ranks.size(), 1U);
  const std::vector<FoldedLink> slots = links_of(uneven, Kind::DeviceToHost);
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_EQ(slots[1].name, "node1.gpu3.d2h");
  EXPECT_EQ(slots[1].multiplicity, 1);
  EXPECT_EQ(slots[1].capacity, 12.5_GBps);
  EXPECT_EQ(slots[1].nominal, 25_GBps);
  // With copies its rank is one of its own, and so is the one that shares the uplink with it.
  EXPECT_EQ(folded(cluster, {{16, 1}, host}).ranks.size(), 4U);
}

// More background traffic than a slot has.
TEST(Folding, NothingIsLeftOfASlot) {
  Cluster cluster = load_cluster("dgx-a100-80", 2);
  LinkPerturbation busy;
  busy.where = LinkPerturbation::Where::Pcie;
  busy.background = 25_GBps;
  cluster.perturbations.links = {busy};
  try {
    (void)folded(cluster, {{16, 1}});
    ADD_FAILURE() << "nothing is left";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "a perturbation leaves nothing of a PCIe link: 1 of 25 GB/s less 25 GB/s of "
                 "background traffic");
  }
}

}  // namespace
}  // namespace zerosim
