#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string sample(const std::string& name) {
  return std::string(ZEROSIM_TEST_DATA) + "/topo/" + name;
}

TEST(TopoImport, TheClusterGoesToStdoutAndNotesToStderr) {
  const Outcome outcome = run_zerosim({"topo", "import", sample("dgx1_v100.txt")});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, StartsWith("note: imported from dgx1_v100.txt, `nvidia-smi topo -m`"));
  const JsonDocument cluster = JsonDocument::from_text(outcome.out, "stdout");
  EXPECT_EQ(cluster.root()["name"].asString(), "dgx1_v100");
  EXPECT_EQ(cluster.root()["node"]["graph"]["nvlinks"].size(), 16U);  // pairs of the cube mesh
  // Same input, same bytes.
  EXPECT_EQ(run_zerosim({"topo", "import", sample("dgx1_v100.txt")}).out, outcome.out);
}

TEST(TopoImport, TheFileIsACluster) {
  const TemporaryFolder folder;
  const std::string file = folder.file("plx.json");
  const Outcome outcome = run_zerosim({"topo", "import", sample("pcie6_plx_pairs.txt"), "--gpu",
                                       "L40S-48", "--name", "box", "-o", file});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, file + ": 6 x L40S-48, pcie-host-staged, no NICs\n");
  const JsonDocument compared =
      zerosim_json({"compare", "--model", "gpt2", "--cluster", file, "--strategies", "ddp"});
  const std::string text = to_text(compared.root());
  EXPECT_THAT(text, HasSubstr("imported from pcie6_plx_pairs.txt, `nvidia-smi topo -m`"));
  EXPECT_THAT(text, HasSubstr("node.intra.kind: pcie-host-staged, by the links of the used GPUs"));
  // The first two are below one switch.
  const JsonDocument two = zerosim_json({"compare", "--model", "gpt2", "--cluster", file,
                                         "--gpus-per-node", "2", "--strategies", "ddp"});
  EXPECT_THAT(to_text(two.root()), HasSubstr("node.intra.kind: pcie, by the links of the used"));
}

TEST(TopoImport, TheReportHoldsTheCluster) {
  const JsonDocument report = zerosim_json(
      {"topo", "import", sample("azure_ncv4-topo.xml"), "--graph", sample("azure_ncv4-graph.xml")});
  EXPECT_EQ(report.root()["version"].asInt(), 1);
  EXPECT_EQ(report.root()["gpu"].asString(), "A100-PCIe-80");
  EXPECT_EQ(report.root()["intra"].asString(), "pcie-host-staged");
  EXPECT_EQ(report.root()["cluster"]["node"]["nccl"]["rings"]["speed"].asString(), "12GB/s");
  EXPECT_THAT(to_text(report.root()["assumptions"]),
              HasSubstr("NCCL: 2 ring channels on one node of 12 GB/s each"));
}

}  // namespace
}  // namespace zerosim::testing
