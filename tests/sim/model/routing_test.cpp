// Tokens of experts.

#include "sim/model/routing.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// Two layers of eight experts, two a token.
Model small_mixtral() {
  return parse_model(
      R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 100, "num_local_experts": 8, "num_experts_per_tok": 2})",
      "config.json");
}

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::string routing_error(const std::string& text) {
  try {
    static_cast<void>(parse_routing(text, "--routing"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string apply_error(const Routing& routing) {
  try {
    static_cast<void>(route_tokens(small_mixtral(), routing, 10));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

Routing measured(std::vector<MeasuredRouting> blocks) {
  Routing routing;
  routing.kind = Routing::Kind::Measured;
  routing.measured = std::move(blocks);
  return routing;
}

TEST(Uniform, EveryTokenGoesToTwoExperts) {
  const Model model = route_tokens(small_mixtral(), parse_routing("uniform", "--routing"), 80'000);
  for (const MoeBlock& block : model.moe_blocks) {
    EXPECT_EQ(sum(block.tokens), 2 * 80'000);
    // mean 80,000 x 2/8 = 20,000; standard deviation sqrt(80,000 x 1/4 x 3/4) = 122
    for (const std::int64_t count : block.tokens) {
      EXPECT_NEAR(static_cast<double>(count), 20'000, 6 * 122);
    }
  }
  EXPECT_NE(model.moe_blocks[0].tokens, model.moe_blocks[1].tokens);
}

TEST(Uniform, TheSeedDecides) {
  Routing routing;
  const auto tokens = [&] {
    return route_tokens(small_mixtral(), routing, 100).moe_blocks[0].tokens;
  };
  const std::vector<std::int64_t> first = tokens();
  EXPECT_EQ(tokens(), first);
  routing.seed = 1;
  EXPECT_NE(tokens(), first);
}

TEST(Zipf, SharesFollowTheRanks) {
  // One expert a token, so that nothing is drawn without putting back: weights 1, 1/2, ... 1/8,
  // their sum 761/280.
  Model model = small_mixtral();
  for (MoeBlock& block : model.moe_blocks) block.experts_per_token = 1;
  model = route_tokens(model, parse_routing("zipf:1", "--routing"), 100'000);
  std::vector<std::int64_t> counts = model.moe_blocks[0].tokens;
  std::sort(counts.rbegin(), counts.rend());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double share = 280.0 / 761 / static_cast<double>(i + 1);
    EXPECT_NEAR(static_cast<double>(counts[i]), 100'000 * share,
                6 * std::sqrt(100'000 * share * (1 - share)));
  }
}

TEST(Zipf, ASteepOneStillGivesEachTokenDifferentExperts) {
  const Model model = route_tokens(small_mixtral(), parse_routing("zipf:10", "--routing"), 1000);
  for (const MoeBlock& block : model.moe_blocks) {
    EXPECT_EQ(sum(block.tokens), 2000);
    EXPECT_THAT(block.tokens, Each(testing::Le(1000)));
    EXPECT_EQ(*std::max_element(block.tokens.begin(), block.tokens.end()), 1000);
  }
}

TEST(IdleExperts, AreNotCalled) {
  // One token goes to two of eight experts.
  const Model model = route_tokens(small_mixtral(), Routing{}, 1);
  for (const MoeBlock& block : model.moe_blocks) {
    EXPECT_EQ(std::count(block.tokens.begin(), block.tokens.end(), 1), 2);
  }
  int entered = 0;
  for (const ExecutionStep& step : model.forward) {
    const Module& module = model.modules[step.module.index()];
    if (step.kind != ExecutionStep::Kind::Enter) continue;
    if (module.class_name != "MixtralBlockSparseTop2MLP") continue;
    ++entered;
    const MoeBlock& block = model.moe_blocks[static_cast<std::size_t>(module.moe_block)];
    EXPECT_EQ(block.tokens[static_cast<std::size_t>(module.expert)], 1) << module.name;
  }
  EXPECT_EQ(entered, 4);
}

TEST(IdleExperts, DeepSeekCallsThemAllTheSame) {
  const Model plain = load_model("deepseek-v2-lite");
  EXPECT_EQ(route_tokens(plain, Routing{}, 1).forward.size(), plain.forward.size());
}

TEST(Measured, CountsAreScaled) {
  const Model model =
      route_tokens(small_mixtral(),
                   measured({{"model.layers.0.block_sparse_moe", {3, 1, 0, 0, 0, 0, 0, 4}},
                             {"model.layers.1.block_sparse_moe", {1, 1, 1, 1, 1, 1, 1, 1}}}),
                   10);
  // 20 assignments by 3 : 1 : 4 = 7.5, 2.5, 10: the remainders are equal, the first is rounded up
  EXPECT_THAT(model.moe_blocks[0].tokens, ElementsAre(8, 2, 0, 0, 0, 0, 0, 10));
  // 20 / 8 = 2.5 each: half of them get 3
  EXPECT_THAT(model.moe_blocks[1].tokens, ElementsAre(3, 3, 3, 3, 2, 2, 2, 2));
}

TEST(Measured, ATokenGoesToAnExpertOnce) {
  const Model model =
      route_tokens(small_mixtral(),
                   measured({{"model.layers.0.block_sparse_moe", {98, 1, 1, 0, 0, 0, 0, 0}},
                             {"model.layers.1.block_sparse_moe", {1, 1, 1, 1, 1, 1, 1, 1}}}),
                   10);
  EXPECT_THAT(model.moe_blocks[0].tokens, ElementsAre(10, 5, 5, 0, 0, 0, 0, 0));
}

TEST(Measured, OneExpertTakesAllThatItCan) {
  // Each of 10^12 tokens goes to two experts: the rest goes to the other one that was seen.
  const Model model =
      route_tokens(small_mixtral(),
                   measured({{"model.layers.0.block_sparse_moe", {1'000'000, 1, 0, 0, 0, 0, 0, 0}},
                             {"model.layers.1.block_sparse_moe", {1, 1, 1, 1, 1, 1, 1, 1}}}),
                   1'000'000'000'000);
  EXPECT_EQ(model.moe_blocks[0].tokens[0], 1'000'000'000'000);
  EXPECT_EQ(model.moe_blocks[0].tokens[1], 1'000'000'000'000);
}

TEST(Uniform, VeryManyTokensAreScaledFromASample) {
  const Model model = route_tokens(small_mixtral(), Routing{}, 1'000'000'000'000);
  EXPECT_EQ(sum(model.moe_blocks[0].tokens), 2'000'000'000'000);
}

TEST(Measured, ExampleFile) {
  const Routing routing =
      parse_routing(std::string(ZEROSIM_SOURCE_DIR) + "/examples/routing.json", "--routing");
  const Model model = route_tokens(small_mixtral(), routing, 1000);
  EXPECT_EQ(sum(model.moe_blocks[1].tokens), 2000);
}

TEST(Experts, WorkFollowsTheirTokens) {
  const Model model = small_mixtral();
  const Model routed =
      route_tokens(model,
                   measured({{"model.layers.0.block_sparse_moe", {1, 1, 0, 0, 0, 0, 0, 0}},
                             {"model.layers.1.block_sparse_moe", {1, 1, 1, 1, 1, 1, 1, 1}}}),
                   64);
  const BatchShape batch{.micro_batch = 1, .sequence = 64};
  // q 64 x 64, k and v 64 x 32 each, o 64 x 64; router 64 x 8; two experts of 3 x 64 x 128 a token
  const double weights = 2 * 64 * 64 + 2 * 64 * 32 + 64 * 8 + 2 * 3 * 64 * 128;
  EXPECT_DOUBLE_EQ(test::block_sum(routed, 0, batch).forward_gemm.count(), 2.0 * 64 * weights);
  EXPECT_DOUBLE_EQ(test::block_sum(routed, 1, batch).forward_gemm.count(), 2.0 * 64 * weights);
  // not routed yet: spread evenly, the same work
  EXPECT_DOUBLE_EQ(test::block_sum(model, 0, batch).forward_gemm.count(), 2.0 * 64 * weights);
}

TEST(BadInput, Words) {
  EXPECT_THAT(routing_error("unifrom"), HasSubstr("--routing: found \"unifrom\", expected uniform, "
                                                  "zipf:EXPONENT or a file; did you mean "
                                                  "\"uniform\"?"));
  EXPECT_THAT(routing_error("zipf"), HasSubstr("found \"zipf\", expected zipf: and an exponent"));
  EXPECT_THAT(routing_error("zipf:-1"), HasSubstr("an exponent of 0 to 10"));
  EXPECT_THAT(routing_error("zipf:1x"), HasSubstr("an exponent of 0 to 10"));
  EXPECT_THAT(routing_error("./no_such.json"), HasSubstr("no_such.json"));
}

TEST(BadInput, MeasuredBlocksHaveTheirPlace) {
  const std::string path = testing::TempDir() + "zerosim_routing.json";
  std::ofstream(path) << R"({"format": "zerosim.routing", "version": 1, "blocks": [
  {"module": "model.layers.0.block_sparse_moe", "tokens": [1, 2]}]})";
  EXPECT_THAT(apply_error(parse_routing(path, "--routing")),
              testing::StartsWith(path + ":2:3: routing of \"model.layers.0.block_sparse_moe\": "
                                         "found 2 experts, expected 8"));
}

TEST(BadInput, MeasuredBlocks) {
  EXPECT_THAT(apply_error(measured({})),
              HasSubstr("block \"model.layers.0.block_sparse_moe\" is missing"));
  const std::vector<std::int64_t> even(8, 1);
  EXPECT_THAT(apply_error(measured({{"model.layers.0.block_sparse_moe", {1, 1}}})),
              HasSubstr("found 2 experts, expected 8"));
  EXPECT_THAT(
      apply_error(measured({{"model.layers.0.block_sparse_moe", {1, 0, 0, 0, 0, 0, 0, 0}}})),
      HasSubstr("1 experts see tokens, expected at least the 2 that each token goes to"));
  EXPECT_THAT(apply_error(measured({{"model.layers.0.block_sparse_moe", even},
                                    {"model.layers.1.block_sparse_moe", even},
                                    {"model.layers.2.block_sparse_moe", even}})),
              HasSubstr("the model has no MoE block \"model.layers.2.block_sparse_moe\"; did you "
                        "mean"));
}

}  // namespace
}  // namespace zerosim
