#include "sim/memory/model_states.h"

#include <array>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

TEST(StateBytes, SixteenBytesAParameterInEveryPrecision) {
  for (const Precision precision : {Precision::Bf16, Precision::Fp16}) {
    const StateBytes bytes = state_bytes(precision);
    EXPECT_EQ(bytes.parameters, 2);
    EXPECT_EQ(bytes.gradients, 2);
    EXPECT_EQ(bytes.master, 4);
    EXPECT_EQ(bytes.moments, 8);
  }
  const StateBytes fp32 = state_bytes(Precision::Fp32);
  EXPECT_EQ(fp32.parameters, 4);
  EXPECT_EQ(fp32.gradients, 4);
  EXPECT_EQ(fp32.master, 0);
  EXPECT_EQ(fp32.moments, 8);
  EXPECT_EQ(fp32.total(), 16);
}

TEST(PaperModelStates, FollowTheFormulas) {
  constexpr double kP = 7e9;
  constexpr int kRanks = 8;
  const StateBytes mixed = state_bytes(Precision::Bf16);
  const std::array<double, 4> kExpected = {16 * kP, 4 * kP + 12 * kP / kRanks,
                                           2 * kP + 14 * kP / kRanks, 16 * kP / kRanks};
  // fp32: 4 + 4 + 0 + 8.
  const std::array<double, 4> kExpectedFp32 = {16 * kP, 8 * kP + 8 * kP / kRanks,
                                               4 * kP + 12 * kP / kRanks, 16 * kP / kRanks};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const Sharding& sharding = shardings()[stage];
    EXPECT_DOUBLE_EQ(paper_model_states(kP, sharding, kRanks, mixed), kExpected[stage]);
    EXPECT_DOUBLE_EQ(paper_model_states(kP, sharding, kRanks, state_bytes(Precision::Fp32)),
                     kExpectedFp32[stage]);
  }
}

TEST(ShardingTable, HasARowAWorldSizeAndAColumnAStage) {
  const std::vector<ShardingRow> rows =
      sharding_table(7e9, usual_world_sizes(), state_bytes(Precision::Bf16));
  ASSERT_EQ(rows.size(), 11U);
  EXPECT_EQ(rows.front().world_size, 1);
  EXPECT_EQ(rows.back().world_size, 1024);
  for (const Bytes bytes : rows.front().per_gpu) EXPECT_EQ(bytes, Bytes(112'000'000'000));
  // 8 ranks: 16, 4 + 12/8, 2 + 14/8, 16/8 = 16, 5.5, 3.75, 2 bytes a parameter.
  EXPECT_EQ(rows[3].per_gpu, (std::vector<Bytes>{Bytes(112'000'000'000), Bytes(38'500'000'000),
                                                 Bytes(26'250'000'000), Bytes(14'000'000'000)}));
}

template <typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PaperModelStates, RefuseImpossibleInput) {
  const auto states = [](double parameters, int world_size) {
    return message_of(
        [=] { (void)paper_model_states(parameters, shardings()[0], world_size, StateBytes{}); });
  };
  EXPECT_EQ(states(-1, 1), "found -1 parameters, expected 0 or more");
  EXPECT_EQ(states(std::nan(""), 1), "found nan parameters, expected 0 or more");
  EXPECT_EQ(states(1, 0), "found a world of 0 ranks, expected at least 1");
  EXPECT_EQ(message_of([] { (void)sharding_table(1e18, usual_world_sizes(), StateBytes{}); }),
            "the states of 1e+18 parameters are more bytes than 64 bits hold, expected a smaller "
            "model");
}

}  // namespace
}  // namespace zerosim
