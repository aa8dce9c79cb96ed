#include "sim/report/memory_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::widest_line;

constexpr std::int64_t k7B = 7'000'000'000;

TEST(ModelStatesText, SevenBillionParametersInBf16) {
  const std::string text = model_states_text(k7B, Precision::Bf16);
  // 7e9 x 2, 2, 4, 8, 16 bytes / 2^30.
  EXPECT_THAT(text, HasSubstr("parameters                                  2   13.04\n"));
  EXPECT_THAT(text, HasSubstr("gradients                                   2   13.04\n"));
  EXPECT_THAT(text, HasSubstr("fp32 master weights                         4   26.08\n"));
  EXPECT_THAT(text, HasSubstr("Adam moments (m and v, fp32)                8   52.15\n"));
  EXPECT_THAT(text, HasSubstr("total                                      16  104.31\n"));
  EXPECT_LE(widest_line(text), 100U);
}

TEST(ModelStatesText, ShardsMoreWithEachStage) {
  const std::string text = model_states_text(k7B, Precision::Bf16);
  // At 8 GPUs, in units of P / 2^30 = 6.519: 16; 4 + 12/8; 2 + 14/8; 16/8 = 16, 5.5, 3.75, 2.
  EXPECT_THAT(text, HasSubstr("   8   104.31    35.86    24.45    13.04\n"));
  EXPECT_THAT(text, HasSubstr("1024   104.31    26.15"));
  EXPECT_THAT(text, HasSubstr("zero2            on each     sharded    sharded\n"));
}

TEST(ModelStatesJson, GivesIntegers) {
  const JsonValue json = model_states_json(k7B, Precision::Fp32);
  // fp32: 4 + 4 + 0 + 8 bytes.
  EXPECT_EQ(json["states"]["parameters"].asInt64(), 4 * k7B);
  EXPECT_EQ(json["states"]["master_weights"].asInt64(), 0);
  EXPECT_EQ(json["states"]["total"].asInt64(), 16 * k7B);
  ASSERT_EQ(json["per_gpu"].size(), 11U);  // 1, 2, 4, ..., 1024
  EXPECT_EQ(json["per_gpu"][10]["world_size"], 1024);
  EXPECT_EQ(json["per_gpu"][1]["zero3"].asInt64(), 8 * k7B);
}

TEST(PaperText, PrintsFigure1) {
  const std::string text = paper_text(7'500'000'000, 64);
  EXPECT_THAT(text, HasSubstr("(2 + 2 + K) Psi             120\n"));
  EXPECT_THAT(text, HasSubstr("2 Psi + 2 Psi + K Psi / N  31.4\n"));
  EXPECT_THAT(text, HasSubstr("2 Psi + (2 + K) Psi / N    16.6\n"));
  EXPECT_THAT(text, HasSubstr("(2 + 2 + K) Psi / N        1.88\n"));
}

TEST(PaperText, PrintsATableOfItsOwnForAnotherModel) {
  EXPECT_THAT(paper_text(7'500'000'000, 64), Not(HasSubstr("The same for this model")));
  EXPECT_THAT(paper_text(7'000'000'000, 64), HasSubstr("The same for this model (GB)\n"));
}

TEST(EstimatorText, PrintsWhatDeepSpeedPrints) {
  // Example of rule F4: P = 2.851e9, L = 32e6, one node of 8 GPUs.
  const std::string text = estimator_text({2'851'000'000, 32'000'000, 8, 1});
  EXPECT_THAT(text, HasSubstr("HW: Setup with 1 node, 8 GPUs per node.\n"
                              "SW: Model with 2851M total params, 32M largest layer params.\n"
                              "  per CPU  |  per GPU |   Options\n"
                              "   71.69GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , "
                              "zero_init=1\n"
                              "  127.45GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , "
                              "zero_init=0\n"
                              "   63.72GB |   0.78GB | offload_param=none, offload_optimizer=cpu , "
                              "zero_init=1\n"
                              "  127.45GB |   0.78GB | offload_param=none, offload_optimizer=cpu , "
                              "zero_init=0\n"
                              "    1.43GB |   6.09GB | offload_param=none, offload_optimizer=none, "
                              "zero_init=1\n"
                              "  127.45GB |   6.09GB | offload_param=none, offload_optimizer=none, "
                              "zero_init=0\n"));
  EXPECT_THAT(text, HasSubstr("SW: Model with 2851M total params.\n"
                              "  per CPU  |  per GPU |   Options\n"
                              "  127.45GB |   5.31GB | offload_optimizer=cpu \n"
                              "  127.45GB |  11.28GB | offload_optimizer=none\n"));
}

TEST(EstimatorJson, NamesTheChosenRow) {
  const EstimatorInput input{2'851'000'000, 32'000'000, 8, 1};
  const EstimatorRow row = deepspeed_estimates(2, input).back();
  const JsonValue json = estimator_json(input, row);
  EXPECT_EQ(json["estimator"]["gpu"].asInt64(), row.gpu.count());
  EXPECT_EQ(json["estimator"]["host"].asInt64(), row.cpu.count());
  EXPECT_EQ(json["rows"].size(), 8U);  // 2 of stage 2, 6 of stage 3
}

}  // namespace
}  // namespace zerosim
