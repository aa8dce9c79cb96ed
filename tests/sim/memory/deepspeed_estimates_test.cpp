// Worked values of F4, as DeepSpeed prints them: GiB with two decimals.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/memory/model_states.h"

namespace zerosim {
namespace {

/// "CPU / GPU" of stage 2 (offload, none), then stage 3 (cpu,cpu; cpu,none; none,none, each with
/// and without zero.Init).
std::vector<std::string> printed(const EstimatorInput& input) {
  std::vector<std::string> out;
  for (const int stage : {2, 3}) {
    for (const EstimatorRow& row : deepspeed_estimates(stage, input)) {
      out.push_back(format("{:.2f} / {:.2f}", row.cpu.gib(), row.gpu.gib()));
    }
  }
  return out;
}

TEST(DeepSpeedEstimates, T5With3BillionOnOneNode) {
  EXPECT_EQ(
      printed({2'851'000'000, 32'000'000, 8, 1}),
      (std::vector<std::string>{"127.45 / 5.31", "127.45 / 11.28", "71.69 / 0.12", "127.45 / 0.12",
                                "63.72 / 0.78", "127.45 / 0.78", "1.43 / 6.09", "127.45 / 6.09"}));
}

TEST(DeepSpeedEstimates, SevenAndAHalfBillionOnEightNodes) {
  EXPECT_EQ(printed({7'500'000'000, 131'072'000, 8, 8}),
            (std::vector<std::string>{"2682.21 / 13.97", "335.28 / 15.93", "23.57 / 0.49",
                                      "335.28 / 0.49", "20.95 / 0.71", "335.28 / 0.71",
                                      "5.86 / 2.45", "335.28 / 2.45"}));
}

TEST(DeepSpeedEstimates, SeventyBillionOnSixteenNodes) {
  EXPECT_EQ(printed({70'000'000'000, 1'050'673'152, 8, 16}),
            (std::vector<std::string>{"50067.90 / 130.39", "3129.24 / 139.55", "110.01 / 3.91",
                                      "3129.24 / 3.91", "97.79 / 4.93", "3129.24 / 4.93",
                                      "46.97 / 13.08", "3129.24 / 13.08"}));
}

TEST(DeepSpeedEstimates, RowsSayWhatTheyAre) {
  const std::vector<EstimatorRow> rows = deepspeed_estimates(3, {1000, 100, 1, 1});
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_TRUE(rows[0].offload_param && rows[0].offload_optimizer && rows[0].zero_init);
  EXPECT_TRUE(!rows[3].offload_param && rows[3].offload_optimizer && !rows[3].zero_init);
  EXPECT_TRUE(!rows[4].offload_param && !rows[4].offload_optimizer && rows[4].zero_init);
  EXPECT_EQ(rows[4].stage, 3);
}

TEST(DeepSpeedEstimates, MaximaChangeSidesWhereF4HasThem) {
  // Stage 2, N = 1, offload: P max(4 x 1, 16) x 1.5 = 24 P.
  EXPECT_EQ(deepspeed_estimates(2, {1000, 0, 1, 1})[0].cpu, Bytes(24'000));
  // N = 5: P max(20, 16) x 1.5 = 30 P.
  EXPECT_EQ(deepspeed_estimates(2, {1000, 0, 5, 1})[0].cpu, Bytes(30'000));
  // Stage 3, both offloaded, no zero.Init, g = 4, n = 1: P max(16, 18) x 1.5 = 27 P; n = 2: 24 P.
  EXPECT_EQ(deepspeed_estimates(3, {1000, 0, 4, 1})[1].cpu, Bytes(27'000));
  EXPECT_EQ(deepspeed_estimates(3, {1000, 0, 4, 2})[1].cpu, Bytes(24'000));
}

TEST(DeepSpeedEstimates, SharesAreCutToWholeBytes) {
  // 2 x 10 + floor(18 x 10 / 7) = 20 + 25 (25.71 cut).
  EXPECT_EQ(deepspeed_estimates(2, {10, 0, 7, 1})[1].gpu, Bytes(45));
  // 18 x 10 / 7 x 1.5 = 38.57, cut once at the end.
  EXPECT_EQ(deepspeed_estimates(3, {10, 0, 1, 7})[0].cpu, Bytes(38));
}

std::string message_of(int stage, const EstimatorInput& input) {
  try {
    (void)deepspeed_estimates(stage, input);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeepSpeedEstimates, RefuseWhatTheyCannotEstimate) {
  EXPECT_EQ(message_of(1, {10, 0, 1, 1}),
            "found stage 1, expected 2 or 3: DeepSpeed estimates these");
  EXPECT_EQ(message_of(2, {-1, 0, 1, 1}),
            "found -1 parameters and 0 in the largest layer, expected 0 or more");
  EXPECT_EQ(message_of(2, {10, 0, 8, 0}),
            "found 0 nodes of 8 GPUs, expected at least 1 node of 1 GPU");
  EXPECT_EQ(
      message_of(2, {1'000'000'000'000'000'000, 0, 8, 1}),
      "1000000000000000000 parameters on 1 nodes of 8 GPUs need more bytes than 64 bits hold, "
      "expected a smaller model or world");
  // Each product fits (18 P = 9e18), their sum (20 P) does not.
  EXPECT_NE(message_of(2, {500'000'000'000'000'000, 0, 1, 1}), "no error");
}

}  // namespace
}  // namespace zerosim
