#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;

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

// The life of a module: what it fetches, computes, releases, and nothing of others.
TEST(ScheduleCommand, ShowsOneModule) {
  const std::vector<std::string> words = {"schedule",
                                          "--model",
                                          cli_data("tiny_llama.json"),
                                          "--world",
                                          "4",
                                          "--strategies",
                                          "zero3",
                                          "--ops",
                                          "all",
                                          "--module",
                                          "model.layers.1.mlp.up_proj"};
  const Outcome result = run_zerosim(words);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, ::testing::HasSubstr("[fetch_sub_module]"));
  EXPECT_THAT(result.out, ::testing::HasSubstr("gemm_forward"));
  EXPECT_THAT(result.out, ::testing::Not(::testing::HasSubstr("model.layers.0")));
}

TEST(ScheduleCommand, ModulesAreChecked) {
  const auto error = [](const std::vector<std::string>& extra) {
    std::vector<std::string> words = {"schedule", "--model", cli_data("tiny_llama.json"),
                                      "--world",  "4",       "--strategies",
                                      "zero3"};
    words.insert(words.end(), extra.begin(), extra.end());
    return run_zerosim(words).error;
  };
  EXPECT_THAT(
      error({"--ops", "all", "--module", "model.layers.1.mlp.upproj"}),
      ::testing::HasSubstr("--module: the model has no module \"model.layers.1.mlp.upproj\"; "
                           "did you mean \"model.layers.1.mlp.up_proj\"?"));
  EXPECT_THAT(error({"--module", "model"}), ::testing::HasSubstr("expected --ops all"));
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

// 10 parameters of a small Llama lie differently in the partitions of two ranks; messages are the
// same.
TEST(ScheduleCommand, ShowsTheRankThatIsAskedFor) {
  std::vector<std::string> words = {"schedule", "--model", cli_data("tiny_llama.json"),
                                    "--world",  "2",       "--strategies",
                                    "zero2",    "--ops",   "all",
                                    "--rank",   "0"};
  const Outcome first = run_zerosim(words);
  words.back() = "1";
  const Outcome second = run_zerosim(words);
  EXPECT_THAT(first.out, HasSubstr("rank 0"));
  EXPECT_THAT(second.out, HasSubstr("rank 1"));
  EXPECT_NE(first.out, second.out);
  words[8] = "collectives";
  words.back() = "0";
  const JsonValue messages = zerosim_json(words).root()["collectives"];
  words.back() = "1";
  EXPECT_EQ(zerosim_json(words).root()["collectives"], messages);
}

}  // namespace
}  // namespace zerosim::testing
