#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/cluster.h"

namespace zerosim {
namespace {

/// What a value of a cluster file may be replaced by: other types, and numbers at and beyond every
/// border.
const std::vector<std::string>& replacements() {
  static const std::vector<std::string> kAll = {
      "null",    "true",      "[]",     "{}",         "\"\"",          "\"x\"",  "[0]", "-1",
      "0",       "1",         "1.5",    "4096",       "1048576",       "1e300",  "1e9", "\"0-3\"",
      "\"1GB\"", "\"1GB/s\"", "\"1s\"", "\"switch\"", "\"dragonfly\"", "\"nic\""};
  return kAll;
}

/// Places of values: numbers and strings that follow a colon, a bracket or a comma.
std::vector<std::pair<std::size_t, std::size_t>> values_of(const std::string& text) {
  static const std::regex kValue(R"([:\[,]\s*("[^"\n]*"|[-0-9.][-+.0-9eE]*)(?=\s*[,}\]]))");
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::sregex_iterator match(text.begin(), text.end(), kValue), end; match != end; ++match) {
    places.emplace_back(match->position(1), match->length(1));
  }
  return places;
}

class ClusterVariants : public testing::TestWithParam<const char*> {};

/// Every value of an example replaced by anything: the file is read, or refused with an error; and
/// what is read can be asked about.
TEST_P(ClusterVariants, AreReadOrRefused) {
  const std::string text =
      read_file(std::string(ZEROSIM_SOURCE_DIR) + "/examples/clusters/" + GetParam());
  int read = 0;
  int refused = 0;
  for (const auto& [position, length] : values_of(text)) {
    for (const std::string& replacement : replacements()) {
      std::string variant = text;
      variant.replace(position, length, replacement);
      try {
        const Cluster cluster = parse_cluster(variant, "c.json");
        std::vector<FabricShare> links;
        const FabricNetwork network = fabric_network(cluster);
        if (cluster.nodes > 1) network.route(0, 0, cluster.nodes - 1, links);
        for (const FabricShare& link : links) {
          EXPECT_GT(network.capacity(link.link).per_second(), 0) << variant;
        }
        ++read;
      } catch (const ConfigError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("c.json:")) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(Examples, ClusterVariants,
                         testing::Values("drawn_a6000x3.json", "superpod_h100.json",
                                         "cloud_leaf_spine.json", "nvl72.json",
                                         "dragonfly_slingshot.json", "uneven.json"));

}  // namespace
}  // namespace zerosim
