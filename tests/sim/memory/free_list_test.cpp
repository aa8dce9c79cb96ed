/// The list against std::set over random insertions and erasures.
#include "sim/memory/free_list.h"

#include <iterator>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace zerosim::internal {
namespace {

FreeEntry entry(std::mt19937_64& random) {
  const auto size = static_cast<std::int64_t>(random() % 50);
  const auto address = static_cast<std::int64_t>(random() % 100);
  return {size, address, static_cast<std::int32_t>(size * 100 + address)};
}

TEST(FreeList, IsASet) {
  std::mt19937_64 random(7);
  FreeList list;
  std::set<FreeEntry> expected;
  for (int i = 0; i < 20'000; ++i) {
    const FreeEntry next = entry(random);
    // Grows to some thousand entries, then shrinks to none.
    if (expected.count(next) > 0) {
      list.erase(next);
      expected.erase(next);
    } else if (i < 10'000) {
      list.insert(next);
      expected.insert(next);
    } else if (!expected.empty()) {
      const FreeEntry first = *expected.begin();
      list.erase(list.begin());
      expected.erase(first);
    }
    const auto size = static_cast<std::int64_t>(random() % 51);
    const auto found = expected.lower_bound({size, 0, -1});
    const FreeList::Position position = list.best_fit(size);
    ASSERT_EQ(position == list.end(), found == expected.end());
    if (found != expected.end()) {
      ASSERT_EQ(list[position], *found);
      const FreeList::Position next_position = list.next(position);
      ASSERT_EQ(next_position == list.end(), std::next(found) == expected.end());
      ASSERT_EQ(list.previous(next_position), position);
    }
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_TRUE(list.empty());
}

// Whether the new entry is near the old one or not, smaller or larger, in the same chunk or not.
TEST(FreeList, ReplacingIsErasingAndInserting) {
  std::mt19937_64 random(11);
  FreeList list;
  std::set<FreeEntry> expected;
  for (int i = 0; i < 20'000; ++i) {
    const FreeEntry next = entry(random);
    if (expected.count(next) > 0) continue;
    if (expected.size() < 500) {
      list.insert(next);
    } else {
      const auto near =
          expected.lower_bound({next.size + 1 - static_cast<std::int64_t>(random() % 3), 0, -1});
      if (near == expected.end()) continue;
      list.replace(*near, next);
      expected.erase(near);
    }
    expected.insert(next);
    if (i % 50 == 0) {
      ASSERT_EQ(list.entries(), std::vector<FreeEntry>(expected.begin(), expected.end()));
    }
  }
}

TEST(FreeList, EntriesComeInOrder) {
  FreeList list;
  for (std::int64_t i = 0; i < 200; ++i) {
    list.insert({i * 7 % 200, i, static_cast<std::int32_t>(i)});
  }
  const std::vector<FreeEntry> entries = list.entries();
  ASSERT_EQ(entries.size(), 200U);
  for (std::size_t i = 1; i < entries.size(); ++i) EXPECT_LT(entries[i - 1], entries[i]);
}

TEST(FreeListDeathTest, ErasesOnlyWhatIsThere) {
  FreeList list;
  list.insert({512, 0, 1});
  EXPECT_DEATH(list.erase({512, 1024, 2}), "a free block is in the list of its pool");
}

}  // namespace
}  // namespace zerosim::internal
