#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "sim/memory/model_states.h"

namespace zerosim {
namespace {

/// Random models and worlds, one a seed.
class ModelStatesProperty : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    std::mt19937_64 random(GetParam());
    parameters_ = static_cast<double>(1 + random() % 2'000'000'000'000);
    world_size_ = static_cast<int>(2 + random() % 16383);
    bytes_ = state_bytes(random() % 2 == 0 ? Precision::Bf16 : Precision::Fp32);
  }

  [[nodiscard]] double states(std::size_t stage, int world_size) const {
    return paper_model_states(parameters_, shardings()[stage], world_size, bytes_);
  }

  double parameters_ = 0;
  int world_size_ = 0;
  StateBytes bytes_;
};

TEST_P(ModelStatesProperty, NeverGrowWithTheStage) {
  for (std::size_t stage = 1; stage < shardings().size(); ++stage) {
    EXPECT_LT(states(stage, world_size_), states(stage - 1, world_size_)) << "stage " << stage;
  }
}

TEST_P(ModelStatesProperty, NeverGrowWithTheWorld) {
  for (std::size_t stage = 0; stage < shardings().size(); ++stage) {
    EXPECT_LE(states(stage, world_size_ + 1), states(stage, world_size_)) << "stage " << stage;
  }
}

TEST_P(ModelStatesProperty, StagesAreEqualOnOneRank) {
  for (std::size_t stage = 0; stage < shardings().size(); ++stage) {
    EXPECT_DOUBLE_EQ(states(stage, 1), 16 * parameters_);
  }
}

// N ranks together hold one whole of what is sharded and N copies of the rest.
TEST_P(ModelStatesProperty, ShardsSumToTheWhole) {
  for (const Sharding& sharding : shardings()) {
    const double copies = world_size_;
    const double held = (sharding.parameters ? 1 : copies) * bytes_.parameters +
                        (sharding.gradients ? 1 : copies) * bytes_.gradients +
                        (sharding.optimizer_states ? 1 : copies) * (bytes_.master + bytes_.moments);
    const double sum = copies * paper_model_states(parameters_, sharding, world_size_, bytes_);
    EXPECT_NEAR(sum / (held * parameters_), 1, 1e-14) << sharding.strategy;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelStatesProperty, ::testing::Range<std::uint64_t>(0, 32));

}  // namespace
}  // namespace zerosim
