#include "sim/report/traffic_text.h"

#include <gtest/gtest.h>

namespace zerosim {
namespace {

using Kind = LinkClass::Kind;

/// Two steps, the last of 100 ms.
Timeline with_links() {
  Timeline timeline;
  timeline.step_ends = {Seconds(0.05), Seconds(0.15)};
  const BytesPerSecond nic(24e9);
  timeline.links = {
      {Kind::IntraNode, "node0.gpu0.nvlink", 16, BytesPerSecond(240e9), 12e9, Seconds(0.06), 2},
      {Kind::Network, "node0.nic0", 14, nic, 1.2e9, Seconds(0.05), 1},
      {Kind::Network, "node0.nic1", 1, BytesPerSecond(12e9), 1.2e9, Seconds(0.1), 1},
      {Kind::Network, "node1.nic1", 1, nic, 1.2e9, Seconds(0.05), 1}};
  return timeline;
}

// 12 GB of 240 GB/s x 100 ms = 24 GB: 50 %. NICs: 1.2 of 2.4 GB, and of 1.2 GB. Those that carry
// alike share a row.
TEST(TrafficText, OneRowForThoseThatCarryAlike) {
  EXPECT_EQ(
      traffic_text(with_links()),
      "links in a step of 100 ms; of each: GB that it carries one way, how much that is of what "
      "it could,\nand for how much of the step there is anything on it\n"
      "links  such as            kind             GB/s   GB  % used  % busy  at once\n"
      "-----------------------------------------------------------------------------\n"
      "   16  node0.gpu0.nvlink  rings in a node   240   12    50.0    60.0        2\n"
      "    1  node0.nic1         NIC                12  1.2   100.0   100.0        1\n"
      "   15  node0.nic0         NIC                24  1.2    50.0    50.0        1\n");
}

TEST(TrafficText, JsonHasEveryClass) {
  const JsonValue json = traffic_json(with_links());
  ASSERT_EQ(json.size(), 4U);
  EXPECT_EQ(json[2]["name"].asString(), "node0.nic1");
  EXPECT_EQ(json[2]["kind"].asString(), "NIC");
  EXPECT_EQ(json[2]["multiplicity"].asInt64(), 1);
  EXPECT_EQ(json[2]["bytes"].asInt64(), 1'200'000'000);
  EXPECT_DOUBLE_EQ(json[2]["bandwidth"].asDouble(), 12e9);
  EXPECT_NEAR(json[2]["utilisation"].asDouble(), 1, 1e-12);
  EXPECT_DOUBLE_EQ(json[2]["busy"].asDouble(), 0.1);
  EXPECT_EQ(json[0]["most_at_once"].asInt(), 2);
}

}  // namespace
}  // namespace zerosim
