#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

TEST(ScheduleCommand, ListsTheCollectivesOfStage3) {
  const JsonDocument json =
      zerosim_json({"schedule", "--model", cli_data("toy_listing.json"), "--world", "2",
                    "--ds-config", cli_data("ds_toy_zero3.json")});
  const JsonValue& collectives = json.root()["collectives"];
  ASSERT_GT(collectives.size(), 0U);
  int gathers = 0;
  for (const JsonValue& collective : collectives) {
    EXPECT_EQ(collective["step"], 2);
    if (collective["op"] != "all_gather_into_tensor") continue;
    ++gathers;
    // A gather of a group of two: every rank gives half.
    EXPECT_EQ(collective["output_elements"].asInt64(), 2 * collective["input_elements"].asInt64());
  }
  EXPECT_GT(gathers, 0);
  EXPECT_EQ(json.root()["inputs"]["files"].size(), 2U);
}

TEST(ScheduleCommand, InputsHoldTheFlagsOfDdp) {
  const JsonDocument json =
      zerosim_json({"schedule", "--model", cli_data("tiny_llama.json"), "--world", "2",
                    "--strategies", "ddp", "--ddp-no-broadcast-buffers"});
  const JsonValue& given = json.root()["inputs"]["flags"];
  EXPECT_TRUE(given["ddp_no_broadcast_buffers"].asBool());
  EXPECT_FALSE(given.isMember("ddp_static_graph"));
}

TEST(ScheduleCommand, ShowsTheFirstStepsIfAsked) {
  const JsonDocument json = zerosim_json({"schedule", "--model", cli_data("tiny_llama.json"),
                                          "--world", "4", "--strategies", "zero2", "--steps", "2"});
  const JsonValue& collectives = json.root()["collectives"];
  ASSERT_GT(collectives.size(), 0U);
  EXPECT_EQ(collectives[0]["step"], 0);
  EXPECT_EQ(collectives[collectives.size() - 1]["step"], 1);
}

TEST(ScheduleCommand, AllReducesEveryGradientOnceUnderDdp) {
  const JsonDocument json = zerosim_json(
      {"schedule", "--model", cli_data("tiny_llama.json"), "--world", "4", "--strategies", "ddp"});
  const JsonDocument model = zerosim_json({"model", "--model", cli_data("tiny_llama.json")});
  std::int64_t elements = 0;
  for (const JsonValue& collective : json.root()["collectives"]) {
    EXPECT_EQ(collective["op"], "all_reduce");
    elements += collective["input_elements"].asInt64();
  }
  EXPECT_EQ(elements, model.root()["parameters"]["trainable"].asInt64());
}

}  // namespace
}  // namespace zerosim::testing
