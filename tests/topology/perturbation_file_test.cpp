#include "topology/perturbation_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Where = LinkPerturbation::Where;

/// 32 nodes of 8 H100 and 8 NICs of 50 x 0.96 GB/s, 4 nodes a leaf with 2:1: uplinks of
/// 32 x 48 / 2 = 768 GB/s.
std::string file_with(const std::string& keys) {
  return R"({"version": 1, "node": {"preset": "dgx-h100"}, "nodes": 32,
"fabric": {"kind": "leaf-spine", "nodes_per_leaf": 4, "oversubscription": 2, "ecmp_efficiency": 1},
)" + keys +
         "}";
}

Cluster read(const std::string& perturbations) {
  return parse_cluster(file_with("\"perturbations\": [" + perturbations + "]"), "c.json");
}

std::string error_of_text(const std::string& text) {
  try {
    static_cast<void>(parse_cluster(text, "c.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string error_of(const std::string& perturbations) {
  return error_of_text(file_with("\"perturbations\": [" + perturbations + "]"));
}

TEST(PerturbationFile, NoneByDefault) {
  EXPECT_TRUE(read("").perturbations.empty());
}

TEST(PerturbationFile, Gpus) {
  const Cluster cluster = read(
      R"({"nodes": [3], "gpus": [2], "speed": 0.9}, {"nodes": "0-3,8", "host_speed": 0.5},
         {"gpus": [0, "6-7"], "memory_speed": 0.95}, {"nodes": 5, "gpu": "H200-SXM-141"},
         {"nodes": [31, 30, 31], "micro_batch": 2})");
  const std::vector<GpuPerturbation>& gpus = cluster.perturbations.gpus;
  ASSERT_THAT(gpus, SizeIs(5));
  EXPECT_THAT(gpus[0].nodes, ElementsAre(3));
  EXPECT_THAT(gpus[0].gpus, ElementsAre(2));
  EXPECT_DOUBLE_EQ(gpus[0].speed, 0.9);
  EXPECT_DOUBLE_EQ(gpus[0].memory_speed, 1);
  EXPECT_THAT(gpus[1].nodes, ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(gpus[1].gpus, IsEmpty());
  EXPECT_DOUBLE_EQ(gpus[1].host_speed, 0.5);
  EXPECT_THAT(gpus[2].nodes, IsEmpty());
  EXPECT_THAT(gpus[2].gpus, ElementsAre(0, 6, 7));
  EXPECT_DOUBLE_EQ(gpus[2].memory_speed, 0.95);
  EXPECT_EQ(gpus[3].kind, "H200-SXM-141");
  EXPECT_THAT(gpus[4].nodes, ElementsAre(30, 31));
  EXPECT_EQ(gpus[4].micro_batch, 2);
  for (const char* sentence : {"perturbed: node 3, GPU 2: arithmetic at 0.9 of nominal",
                               "perturbed: node 0-3,8, every GPU: host thread at 0.5 of nominal",
                               "perturbed: every node, GPU 0,6-7: device memory at 0.95 of nominal",
                               "perturbed: node 5, every GPU: a H200-SXM-141",
                               "perturbed: node 30-31, every GPU: micro batch 2"}) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

TEST(PerturbationFile, Links) {
  const Cluster cluster = read(
      R"({"link": "nic", "nodes": [0], "nics": [1], "bandwidth": 0.5},
         {"link": "nvlink", "nodes": [0], "gpus": [2], "lost_links": 1},
         {"link": "pcie", "gpus": "0-3", "bandwidth": 0.25},
         {"link": "fabric", "name": "leaf uplink", "background": "100 GB/s"},
         {"link": "fabric", "name": "leaf7.up", "bandwidth": 0.5})");
  const std::vector<LinkPerturbation>& links = cluster.perturbations.links;
  ASSERT_THAT(links, SizeIs(5));
  EXPECT_EQ(links[0].where, Where::Nic);
  EXPECT_THAT(links[0].nics, ElementsAre(1));
  EXPECT_DOUBLE_EQ(links[0].bandwidth, 0.5);
  EXPECT_EQ(links[1].where, Where::NvLink);
  EXPECT_EQ(links[1].lost_links, 1);
  EXPECT_EQ(links[1].peer, -1);
  EXPECT_EQ(links[2].where, Where::Pcie);
  EXPECT_THAT(links[2].nodes, IsEmpty());
  EXPECT_EQ(links[3].where, Where::Fabric);
  EXPECT_EQ(links[3].fabric, "leaf uplink");
  EXPECT_EQ(links[3].background, 100_GBps);
  EXPECT_EQ(links[4].fabric, "leaf7.up");
  for (const char* sentence : {"perturbed: node 0, NIC 1: 0.5 of the rate",
                               "perturbed: node 0, NVLinks of GPU 2: 1 NVLink(s) lost",
                               "perturbed: every node, PCIe of GPU 0-3: 0.25 of the rate",
                               "perturbed: fabric, leaf uplink: 100 GB/s of others' traffic",
                               "perturbed: fabric, leaf7.up: 0.5 of the rate"}) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

// Four A100 joined by 12 NVLinks each: 4 to each of the others.
TEST(PerturbationFile, AMeshNamesThePair) {
  const std::string mesh = R"({"version": 1, "node": {"gpu": "A100-SXM4-40", "gpus": 4,
    "intra": {"kind": "nvlink-mesh"}}, "nodes": 1, "perturbations": [)";
  const Cluster cluster = parse_cluster(
      mesh + R"({"link": "nvlink", "gpus": 1, "peer": 3, "lost_links": 4}]})", "c.json");
  EXPECT_EQ(cluster.perturbations.links[0].peer, 3);
  EXPECT_EQ(
      error_of_text(mesh + R"({"link": "nvlink", "gpus": 1, "peer": 3, "lost_links": 5}]})"),
      "c.json:2:125: perturbations[0].lost_links: found 5, expected at most 4 of the 4 NVLinks "
      "between the two");
  EXPECT_EQ(error_of_text(mesh + R"({"link": "nvlink", "gpus": 1, "lost_links": 1}]})"),
            "c.json:2:79: perturbations[0].link: NVLinks of a mesh are between two GPUs, expected "
            "one in \"gpus\" and the other as \"peer\"");
  EXPECT_EQ(error_of_text(mesh + R"({"link": "nvlink", "gpus": 1, "peer": 1, "bandwidth": 0.5}]})"),
            "c.json:2:108: perturbations[0].peer: no NVLink joins GPU 1 and GPU 1");
}

// Slower links are as many: 150 GB/s over 12 links, 4 of them to each of the others.
TEST(PerturbationFile, LinksOfAMeshAreCountedNotTheirRate) {
  EXPECT_EQ(
      error_of_text(R"({"version": 1, "node": {"gpu": "A100-SXM4-40", "gpus": 4,
    "intra": {"kind": "nvlink-mesh", "nvlink": "150GB/s"}}, "nodes": 1, "perturbations": [
    {"link": "nvlink", "gpus": 1, "peer": 3, "lost_links": 5}]})"),
      "c.json:3:60: perturbations[0].lost_links: found 5, expected at most 4 of the 4 NVLinks "
      "between the two");
}

TEST(PerturbationFile, JobsAndJitter) {
  const Cluster cluster = parse_cluster(file_with(R"("perturbations": [
        {"job": "other", "link": "fabric", "name": "leaf uplink", "bytes": "10 GB",
         "period": "100 ms", "offset": "5 ms"},
        {"job": "backup", "link": "nic", "nodes": "0-1", "bytes": "1 GB", "period": "1 s"}],
        "jitter": {"kernels": 0.02, "host": 0.1})"),
                                        "c.json");
  const std::vector<CompetingJob>& jobs = cluster.perturbations.jobs;
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].name, "other");
  EXPECT_EQ(jobs[0].links.where, Where::Fabric);
  EXPECT_EQ(jobs[0].bytes, 10_GB);
  EXPECT_DOUBLE_EQ(jobs[0].period.count(), 0.1);
  EXPECT_DOUBLE_EQ(jobs[0].offset.count(), 0.005);
  EXPECT_THAT(jobs[1].links.nodes, ElementsAre(0, 1));
  EXPECT_DOUBLE_EQ(jobs[1].offset.count(), 0);
  EXPECT_DOUBLE_EQ(cluster.perturbations.jitter.kernels, 0.02);
  EXPECT_DOUBLE_EQ(cluster.perturbations.jitter.host, 0.1);
  EXPECT_EQ(cluster.perturbations.jitter.seed, 1U);
  EXPECT_EQ(cluster.perturbations.jitter.repetitions, 10);
  EXPECT_TRUE(cluster.must_not_fold());
  for (const char* sentence :
       {"perturbations[1].offset: 0 s", "jitter.seed: 1", "jitter.repetitions: 10"}) {
    EXPECT_THAT(cluster.assumptions, Contains(sentence));
  }
}

struct BadEntry {
  const char* entry;
  const char* message;  ///< begins with the column
};

class BadEntries : public testing::TestWithParam<BadEntry> {};

TEST_P(BadEntries, AreRefusedWithPlaceAndNearestName) {
  EXPECT_EQ(error_of(GetParam().entry), std::string("c.json:3:") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    PerturbationFile, BadEntries,
    testing::Values(
        BadEntry{R"({"nodes": [40], "speed": 0.9})",
                 "30: perturbations[0].nodes: found node 40, expected 0 to 31"},
        BadEntry{R"({"nodes": "30-32", "speed": 0.9})",
                 "29: perturbations[0].nodes: found node 32, expected 0 to 31"},
        BadEntry{R"({"gpus": 8, "speed": 0.9})",
                 "28: perturbations[0].gpus: found GPU 8, expected 0 to 7"},
        BadEntry{R"({"nodes": -1, "speed": 0.9})",
                 "29: perturbations[0].nodes: found node -1, expected 0 to 31"},
        BadEntry{R"({"nodes": [], "speed": 0.9})",
                 "29: perturbations[0].nodes: an empty list selects nothing"},
        BadEntry{R"({"nodes": "7-3", "speed": 0.9})",
                 "29: perturbations[0].nodes: found 7-3, a range that runs backwards"},
        BadEntry{R"({"nodes": "all", "speed": 0.9})",
                 "29: perturbations[0].nodes: found \"all\", expected the number of a node, a "
                 "range such as \"0-3\", or a list of them"},
        BadEntry{R"({"nodes": [1.5], "speed": 0.9})",
                 "30: perturbations[0].nodes: found 1.5, expected the number of a node, a range "
                 "such as \"0-3\", or a list of them"},
        BadEntry{R"({"nodes": "1,,2", "speed": 0.9})",
                 "29: perturbations[0].nodes: found \"1,,2\", expected the number of a node, a "
                 "range such as \"0-3\", or a list of them"},
        BadEntry{R"({"nodes": "99999999999999999999", "speed": 0.9})",
                 "29: perturbations[0].nodes: found \"99999999999999999999\", expected the number "
                 "of a node, a range such as \"0-3\", or a list of them"},
        BadEntry{R"({"nodes": 1, "sped": 0.9})",
                 "32: perturbations[0].sped: unknown key; did you mean \"speed\"?"},
        BadEntry{R"({"nodes": 1})",
                 "19: perturbations[0]: changes nothing, expected at least one of: speed, "
                 "memory_speed, host_speed, gpu, micro_batch"},
        BadEntry{R"({"speed": 0})",
                 "29: perturbations[0].speed: found 0, expected a factor from 0.001 to 10"},
        BadEntry{R"({"speed": -0.5})",
                 "29: perturbations[0].speed: found -0.5, expected a factor from 0.001 to "
                 "10"},
        BadEntry{R"({"micro_batch": 0})",
                 "35: perturbations[0].micro_batch: found 0, expected an integer of at least 1"},
        BadEntry{R"({"gpu": "H100-SXM-80"})",
                 "27: perturbations[0].gpu: unknown GPU \"H100-SXM-80\"; did you mean "
                 "\"H100-SXM5-80\"?"},
        BadEntry{R"({"gpu": "A100-SXM4-80"})",
                 "27: perturbations[0].gpu: A100-SXM4-80 has other links or another architecture "
                 "than H100-SXM5-80, expected a GPU with the same"},
        BadEntry{R"({"link": "nvlnk", "bandwidth": 0.5})",
                 "28: perturbations[0].link: unknown kind of link \"nvlnk\"; did you mean "
                 "\"nvlink\"?"},
        BadEntry{R"({"link": "nic", "gpus": 1, "bandwidth": 0.5})",
                 "35: perturbations[0].gpus: unknown key; expected one of: background, bandwidth, "
                 "job, link, nics, nodes"},
        BadEntry{R"({"link": "nic", "nics": 8, "bandwidth": 0.5})",
                 "43: perturbations[0].nics: found NIC 8, expected 0 to 7"},
        BadEntry{R"({"link": "nic", "bandwidth": 0})",
                 "48: perturbations[0].bandwidth: found 0, expected a number above 0 and at most "
                 "1"},
        BadEntry{R"({"link": "nic", "nodes": 1})",
                 "19: perturbations[0]: changes nothing, expected at least one of: bandwidth, "
                 "background"},
        BadEntry{R"({"link": "nic", "background": "48GB/s"})",
                 "49: perturbations[0].background: found 48 GB/s, expected less than 48 GB/s, "
                 "which is all that the link can carry"},
        // Half of the rate and 25 GB/s of others: each alone would be fine.
        BadEntry{
            R"({"link": "nic", "background": "25GB/s"}, {"link": "nic", "nodes": 3, "bandwidth": 0.5})",
            "49: perturbations[0].background: found 25 GB/s, expected less than 24 GB/s, "
            "which is all that the link can carry"},
        BadEntry{R"({"link": "fabric", "name": "leaf3.up", "background": "768GB/s"})",
                 "72: perturbations[0].background: found 768 GB/s, expected less than 768 GB/s, "
                 "which is all that the link can carry"},
        BadEntry{R"({"link": "fabric", "background": "1GB/s"})",
                 "19: perturbations[0].name: missing, expected a string"},
        BadEntry{
            R"({"link": "fabric", "name": "leaf uplnk", "bandwidth": 0.5})",
            "46: perturbations[0].name: no link of the fabric, and no level of them, is called "
            "\"leaf uplnk\"; did you mean \"leaf uplink\"?"},
        BadEntry{
            R"({"link": "fabric", "name": "leaf8.up", "bandwidth": 0.5})",
            "46: perturbations[0].name: no link of the fabric, and no level of them, is called "
            "\"leaf8.up\"; levels are: leaf uplink; a link is called, for example, leaf0.up"},
        BadEntry{R"({"link": "nvlink", "peer": 2, "gpus": 1, "bandwidth": 0.5})",
                 "46: perturbations[0].peer: NVLinks to a switch lead to no GPU in particular, "
                 "expected no peer"},
        BadEntry{R"({"link": "nvlink", "gpus": 1, "lost_links": 18})",
                 "63: perturbations[0].lost_links: found 18, expected at most 17 of the 18 NVLinks "
                 "of a GPU"},
        BadEntry{R"({"job": "x", "link": "pcie", "bytes": "1GB", "period": "1s"})",
                 "40: perturbations[0].link: a node belongs to one job, expected \"nic\" or "
                 "\"fabric\""},
        BadEntry{R"({"job": "x", "link": "nic", "bytes": "0GB", "period": "1s"})",
                 "56: perturbations[0].bytes: found no bytes, expected more than 0"},
        BadEntry{R"({"job": "x", "link": "nic", "bytes": "1GB", "period": "0s"})",
                 "73: perturbations[0].period: found 0 s, expected at least 10.0 us"},
        BadEntry{R"({"job": "x", "link": "nic", "bytes": "1GB"})",
                 "19: perturbations[0].period: missing, expected text with a unit such as \"5us\""},
        BadEntry{R"({"job": 5, "link": "nic", "bytes": "1GB", "period": "1s"})",
                 "27: perturbations[0].job: found 5, expected a string"},
        BadEntry{"3", "19: perturbations[0]: found 3, expected an object"}));

TEST(PerturbationFile, OtherMistakes) {
  EXPECT_EQ(error_of_text(file_with(R"("perturbations": {"speed": 1})")),
            "c.json:3:18: perturbations: found an object, expected an array of objects");
  EXPECT_EQ(error_of_text(file_with(R"("jitter": {"kernel": 0.1})")),
            "c.json:3:12: jitter.kernel: unknown key; did you mean \"kernels\"?");
  EXPECT_EQ(error_of_text(file_with(R"("jitter": {"kernels": -0.1})")),
            "c.json:3:23: jitter.kernels: found -0.1, expected a relative spread from 0 to 1");
  EXPECT_EQ(error_of_text(file_with(R"("jitter": {"seed": 3})")),
            "c.json:3:11: jitter: changes nothing, expected at least one of: kernels, host");
  EXPECT_EQ(error_of_text(file_with(R"("jitter": {"host": 0.1, "repetitions": 0})")),
            "c.json:3:40: jitter.repetitions: found 0, expected an integer of at least 1");
}

// What the fabric or the node does not have.
TEST(PerturbationFile, LinksThatAreNotThere) {
  const std::string one = R"({"version": 1, "node": {"preset": "rtx4090x8-pcie"}, "nodes": 1,
"perturbations": [{"link": )";
  EXPECT_EQ(
      error_of_text(one + R"("nic", "bandwidth": 0.5}]})"),
      "c.json:2:28: perturbations[0].link: one node sends nothing over its NICs, so this would "
      "change nothing");
  EXPECT_EQ(error_of_text(one + R"("nvlink", "bandwidth": 0.5}]})"),
            "c.json:2:28: perturbations[0].link: the GPUs of this cluster do not use NVLinks");
  EXPECT_EQ(error_of_text(one + R"("fabric", "name": "leaf0.up", "bandwidth": 0.5}]})"),
            "c.json:2:46: perturbations[0].name: a fabric of one switch has no links but the NICs' "
            "(\"link\": \"nic\")");
}

/// A whole file on one line of one preset.
std::string error_on(const std::string& preset, const std::string& more) {
  return error_of_text(R"({"version": 1, "node": {"preset": ")" + preset + R"("}, )" + more + "}");
}

constexpr const char* kNothingLeft = "perturbations: a perturbation leaves nothing of ";

// Each entry would be fine alone.
TEST(PerturbationFile, EntriesThatTogetherLeaveNothing) {
  EXPECT_THAT(error_of(R"({"link": "nic", "background": "30GB/s"},
                          {"link": "nic", "background": "30GB/s"})"),
              testing::HasSubstr("c.json:3:49: perturbations[0].background: found 30 GB/s, "
                                 "expected less than 18 GB/s"));
  // 3 x 17 of 48 GB/s: only all three are too much.
  EXPECT_THAT(error_of(R"({"link": "nic", "background": "17GB/s"},
                          {"link": "nic", "background": "17GB/s"},
                          {"link": "nic", "background": "17GB/s"})"),
              testing::HasSubstr(std::string("c.json:3:18: ") + kNothingLeft));
  EXPECT_THAT(error_of(R"({"link": "nvlink", "gpus": 0, "lost_links": 10},
                          {"link": "nvlink", "gpus": 0, "lost_links": 10})"),
              testing::HasSubstr("c.json:3:18: perturbations: 20 NVLinks are lost on one GPU, "
                                 "where there are 18"));
}

// All nodes at 20 of 48 GB/s, and two of them at 20 more: no link has all three.
TEST(PerturbationFile, EntriesOnDifferentNodesDoNotMeet) {
  EXPECT_EQ(error_of(R"({"link": "nic", "background": "20GB/s"},
                        {"link": "nic", "nodes": 1, "background": "20GB/s"},
                        {"link": "nic", "nodes": 2, "background": "20GB/s"})"),
            "");
}

// GPUs 0 and 1 of a DGX-1 are joined by one NVLink of 25 GB/s; the ring has 130.
TEST(PerturbationFile, BackgroundOfAPairIsHeldAgainstThePair) {
  EXPECT_THAT(error_on("dgx1-v100-32", R"("nodes": 1, "perturbations": [{"link": "nvlink",
                       "gpus": 0, "peer": 1, "background": "30GB/s"}])"),
              testing::HasSubstr("background: found 30 GB/s, expected less than 25 GB/s"));
}

// Four of an H100's 18 NVLinks are cabled; a list counts each GPU's own.
TEST(PerturbationFile, LostLinksOfADrawnNodeAreThoseThatAreThere) {
  const auto drawn = [](const std::string& links, int gpu, int lost) {
    return error_of_text(
        R"({"version": 1, "node": {"gpu": "H100-SXM5-80", "gpus": 2, "host": {},
      "graph": {"cpus": [{}], "gpus": [{"below": "cpu0"}, {"below": "cpu0"}], "nvswitch_links": )" +
        links + R"(}}, "nodes": 1, "perturbations": [{"link": "nvlink", "gpus": )" +
        std::to_string(gpu) + R"(, "lost_links": )" + std::to_string(lost) + "}]}");
  };
  EXPECT_THAT(drawn("4", 0, 4), testing::HasSubstr("found 4, expected at most 3 of the 4 NVLinks"));
  EXPECT_EQ(drawn("4", 0, 3), "");
  EXPECT_EQ(drawn("[18, 4]", 0, 4), "");
  EXPECT_THAT(drawn("[18, 4]", 1, 4),
              testing::HasSubstr("found 4, expected at most 3 of the 4 NVLinks"));
}

// Half of 18 NVLinks: the rule's rings fall from 12 x 30 (of 370.8 GB/s) to 6 x 30 (of 185.4), so
// that those which NCCL's own search found, 8 x 20, fall to 8 x 10. Heads: 8 x 40 by the rule (0.9
// x 370.8 / 8 = 41.7) and 8 x 20 (20.9) then; given ones, 4 x 30, fall to 4 x 15. Between nodes 4 x
// 12 stay, for the links inside keep up with 384 / 360 x 80 GB/s; of 4 x 24 they leave 4 x 21.33.
TEST(PerturbationFile, LostLinksTakeTheirPartOfGivenChannels) {
  std::string gpus;
  for (int gpu = 0; gpu < 8; ++gpu) gpus += R"({"below": "cpu0"},)";
  gpus.pop_back();
  const auto settled = [&](const std::string& given) {
    const Cluster cluster = parse_cluster(
        R"({"version": 1, "nodes": 2, "node": {"gpu": "H100-SXM5-80", "host": {}, "graph": {
        "cpus": [{}], "nvswitch_links": 18, "gpus": [)" +
            gpus + R"(], "nics": [{"below": "cpu0", "bandwidth": "400Gb/s"}]}, "nccl": {)" + given +
            R"(}}, "perturbations": [{"link": "nvlink", "nodes": 1, "gpus": 0, "lost_links": 9}]})",
        "c.json");
    return cluster.nccl();
  };
  const NcclGraph rule = settled("");
  EXPECT_EQ(rule.ring_channels, 6);
  EXPECT_DOUBLE_EQ(rule.ring_channel_gbps, 30);
  const std::string rings = R"("rings": {"channels": 8, "speed": "20GB/s"},
                               "nvls": {"channels": 4, "speed": "30GB/s"},
                               "rings_between_nodes": {"channels": 4, "speed": )";
  const NcclGraph given = settled(rings + R"("12GB/s"})");
  EXPECT_EQ(given.ring_channels, 8);
  EXPECT_DOUBLE_EQ(given.ring_channel_gbps, 10);
  EXPECT_EQ(given.nvls_heads, 4);
  EXPECT_DOUBLE_EQ(given.nvls_head_gbps, 15);
  EXPECT_EQ(given.inter_ring_channels, 4);
  EXPECT_DOUBLE_EQ(given.inter_ring_channel_gbps, 12);
  EXPECT_NEAR(settled(rings + R"("24GB/s"})").inter_ring_channel_gbps, 64.0 / 3, 1e-9);
}

// What no simulation would ever load, or never end with.
TEST(PerturbationFile, EntriesWithoutEffectOrEnd) {
  const auto says = [](const std::string& error, const std::string& part) {
    EXPECT_THAT(error, testing::HasSubstr(part));
    EXPECT_THAT(error, testing::StartsWith("c.json:1:"));
  };
  const std::string nic = R"("perturbations": [{"link": "nic", "bandwidth": 0.01}])";
  says(error_on("gb200-nvl72", R"("nodes": 18, )" + nic), "NVLink joins all 18 nodes");
  says(error_on("gb200-nvl72", R"("nodes": 2, "perturbations": [{"job": "x", "link": "nic", )"
                               R"("bytes": "1GB", "period": "1ms"}])"),
       "NVLink joins all 2 nodes");
  says(error_on("dgx-h100", R"("nodes": 1, "fabric": {"kind": "leaf-spine"}, "perturbations": )"
                            R"([{"link": "fabric", "name": "leaf uplink", "bandwidth": 0.1}])"),
       "one node sends nothing over a fabric");
  says(error_on("dgx-h100", R"("nodes": 2, "gpus_per_node": 4, "perturbations": )"
                            R"([{"link": "nic", "nics": 7, "bandwidth": 0.1}])"),
       "found NIC 7, which none of the used GPUs drives, expected NICs among 0-3");
  says(error_on("dgx-h100", R"("nodes": 2, "gpus_per_node": 1, "perturbations": )"
                            R"([{"link": "nvlink", "bandwidth": 0.1}])"),
       "one GPU a node sends nothing over its NVLinks");
  says(error_on("dgx-h100", R"("nodes": 2, "perturbations": [{"job": "x", "link": "nic", )"
                            R"("bytes": "1B", "period": "1ns"}])"),
       "found 1.0 ns, expected at least 10.0 us");
  says(error_on("dgx-h100",
                R"("nodes": 2, "perturbations": [{"link": "nic", "bandwidth": 1e-300}])"),
       "expected a factor from 0.001 to 1");
}

}  // namespace
}  // namespace zerosim
