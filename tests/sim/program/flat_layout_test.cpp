// Flat tensors of stages 1 and 2: the worked example of B2, rules 14, 18 and 77 of
// deepspeed_recorded.md.

#include "sim/program/flat_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> owned(const FlatLayout& layout, ParameterId id, int ranks) {
  std::vector<std::int64_t> elements;
  for (int rank = 0; rank < ranks; ++rank) {
    elements.push_back(layout.elements_on(id, rank));
  }
  return elements;
}

// B2: 10 + 7 + 5 = 22, padded to 24 (multiple of 2 x 4), S = 6. Rank 0: p0[0:6]. Rank 1: p0[6:10],
// p1[0:2]. Rank 2: p1[2:7], p2[0:1]. Rank 3: p2[1:5] and 2 of padding.
TEST(FlatLayout, WorkedExample) {
  const FlatLayout layout = flat_layout(test::chain({10, 7, 5}), test::deepspeed(1), 4);
  ASSERT_EQ(layout.groups.size(), 1u);
  EXPECT_EQ(layout.groups[0].elements, 22);
  EXPECT_EQ(layout.groups[0].padded, 24);
  EXPECT_EQ(layout.groups[0].partition, 6);
  EXPECT_THAT(owned(layout, ParameterId(0), 4), ElementsAre(6, 4, 0, 0));
  EXPECT_THAT(owned(layout, ParameterId(1), 4), ElementsAre(0, 2, 5, 0));
  EXPECT_THAT(owned(layout, ParameterId(2), 4), ElementsAre(0, 0, 1, 4));
}

// The same 7 elements of p1 cut at the border 12: 2 of rank 1, then 5 of rank 2.
TEST(FlatLayout, SlicesOfAParameterAreInOrderOfOffset) {
  const FlatLayout layout = flat_layout(test::chain({10, 7, 5}), test::deepspeed(1), 4);
  const std::vector<PartitionSlice> slices = layout.slices(ParameterId(1));
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].owner, 1);
  EXPECT_EQ(slices[0].elements, 2);
  EXPECT_EQ(slices[1].owner, 2);
  EXPECT_EQ(slices[1].elements, 5);
}

// Rule 18: gpt_small's 330,112 elements on 3 ranks: 330,114, a partition of 110,038.
TEST(FlatLayout, PadsToTwiceAnOddWorld) {
  const FlatLayout layout = flat_layout(test::chain({330112}), test::deepspeed(1), 3);
  EXPECT_EQ(layout.groups[0].padded, 330114);
  EXPECT_EQ(layout.groups[0].partition, 110038);
}

// B2.3 with N = 2: parameters 0, 2, 4, then 1, 3.
TEST(FlatLayout, RoundRobinInterleaves) {
  Strategy strategy = test::deepspeed(2);
  strategy.zero.round_robin_gradients = true;
  const FlatLayout layout = flat_layout(test::chain({1, 2, 3, 4, 5}), strategy, 2);
  EXPECT_THAT(layout.groups[0].order, ElementsAre(ParameterId(0), ParameterId(2), ParameterId(4),
                                                  ParameterId(1), ParameterId(3)));
  // Offsets: 0 at 0, 2 at 1, 4 at 4, 1 at 9, 3 at 11.
  EXPECT_THAT(layout.offset_of, ElementsAre(0, 9, 1, 11, 4));
}

// Rule 14: each group its own tensor: 6 x 4 + 3 = 27 -> 28 of matrices, 5 -> 8 of vectors at N = 2.
TEST(FlatLayout, MatricesAndVectorsAreTwoTensors) {
  Model model = test::chain({24, 5, 3});
  model.parameters[0].shape = {6, 4};
  model.parameters[2].shape = {3, 1};
  Strategy strategy = test::deepspeed(1);
  strategy.optimizer_groups = OptimizerGroups::ByDimension;
  const FlatLayout layout = flat_layout(model, strategy, 2);
  ASSERT_EQ(layout.groups.size(), 2u);
  EXPECT_THAT(layout.groups[0].order, ElementsAre(ParameterId(0), ParameterId(2)));
  EXPECT_EQ(layout.groups[0].padded, 28);
  EXPECT_THAT(layout.groups[1].order, ElementsAre(ParameterId(1)));
  EXPECT_EQ(layout.groups[1].padded, 8);
  EXPECT_EQ(layout.padded(), 36);
  EXPECT_EQ(layout.partitions(), 18);
}

// A model of vectors alone has one group, not an empty one and another.
TEST(FlatLayout, NoGroupIsEmpty) {
  Strategy strategy = test::deepspeed(1);
  strategy.optimizer_groups = OptimizerGroups::ByDimension;
  EXPECT_EQ(flat_layout(test::chain({4, 4}), strategy, 2).groups.size(), 1u);
}

// Rule 77: frozen parameters are in no tensor.
TEST(FlatLayout, FrozenParametersAreLeftOut) {
  Model model = test::chain({10, 7, 5});
  model.parameters[1].trainable = false;
  const FlatLayout layout = flat_layout(model, test::deepspeed(2), 2);
  EXPECT_EQ(layout.groups[0].elements, 15);
  EXPECT_EQ(layout.group_of[1], -1);
  EXPECT_TRUE(layout.slices(ParameterId(1)).empty());
  EXPECT_EQ(layout.elements_on(ParameterId(1), 0), 0);
}

// More ranks than elements: 3 -> 16 at N = 8, S = 2: ranks 2 to 7 own padding only.
TEST(FlatLayout, PartitionsOfTinyGroupsMayHoldPaddingOnly) {
  const FlatLayout layout = flat_layout(test::chain({3}), test::deepspeed(1), 8);
  EXPECT_EQ(layout.groups[0].partition, 2);
  EXPECT_THAT(owned(layout, ParameterId(0), 8), ElementsAre(2, 1, 0, 0, 0, 0, 0, 0));
}

}  // namespace
}  // namespace zerosim
