#include "sim/base/dtype.h"

#include <type_traits>

#include <gtest/gtest.h>

#include "sim/base/ids.h"

namespace zerosim {
namespace {

TEST(Dtype, HasTheBytesAndTheNamesOfTheRecordings) {
  EXPECT_EQ(dtype_bytes(Dtype::Bf16), 2);
  EXPECT_EQ(dtype_bytes(Dtype::F16), 2);
  EXPECT_EQ(dtype_bytes(Dtype::F32), 4);
  EXPECT_EQ(dtype_bytes(Dtype::F64), 8);
  EXPECT_EQ(dtype_bytes(Dtype::U8), 1);
  EXPECT_EQ(dtype_bytes(Dtype::I32), 4);
  EXPECT_EQ(dtype_bytes(Dtype::I64), 8);
  EXPECT_EQ(to_string(Dtype::Bf16), "bf16");
  EXPECT_EQ(to_string(Dtype::F16), "f16");
  EXPECT_EQ(to_string(Dtype::F32), "f32");
  EXPECT_EQ(to_string(Dtype::F64), "f64");
  EXPECT_EQ(to_string(Dtype::U8), "u8");
  EXPECT_EQ(to_string(Dtype::I32), "i32");
  EXPECT_EQ(to_string(Dtype::I64), "i64");
}

// A rank is no stream and no plain number.
static_assert(!std::is_convertible_v<Rank, StreamId>);
static_assert(!std::is_convertible_v<int, Rank>);
static_assert(!std::is_convertible_v<Rank, int>);

TEST(Id, IsNotValidUntilSet) {
  EXPECT_FALSE(Rank().valid());
  EXPECT_TRUE(Rank(std::int32_t{0}).valid());
  EXPECT_EQ(Rank(std::size_t{3}).index(), 3U);
  EXPECT_LT(Rank(std::int32_t{2}), Rank(std::int32_t{3}));
}

}  // namespace
}  // namespace zerosim
