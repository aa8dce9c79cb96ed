#include "sim/base/edit_distance.h"

#include <gtest/gtest.h>

namespace zerosim {
namespace {

TEST(EditDistance, InsertionDeletionSubstitutionAndSwapCostOne) {
  EXPECT_EQ(edit_distance("stage", "stage"), 0U);
  EXPECT_EQ(edit_distance("stage", "stages"), 1U);
  EXPECT_EQ(edit_distance("stage", "stge"), 1U);
  EXPECT_EQ(edit_distance("stage", "stake"), 1U);
  EXPECT_EQ(edit_distance("stage", "satge"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
}

TEST(EditDistance, NoPartIsEditedTwice) {
  // "ca" -> "ac" -> "abc" would be 2 if what was swapped could be edited again.
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);
}

}  // namespace
}  // namespace zerosim
