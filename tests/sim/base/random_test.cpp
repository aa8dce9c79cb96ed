#include "sim/base/random.h"

#include <gtest/gtest.h>

namespace zerosim {
namespace {

// The first two of SplitMix64 from 0 (https://prng.di.unimi.it/splitmix64.c): its state is 0, then
// its increment.
static_assert(mixed(0) == 0xE220A8397B1DCDAF);
static_assert(mixed(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4);
static_assert(mixed(0, 1) == mixed(0x9E3779B97F4A7C15));

// The 10,000th of mt19937_64 is 9981545732273789042 (C++ standard, [rand.predef]); its upper 53
// bits are 4873801627086811, of 2^53.
TEST(Random, UnitIsTheUpperBits) {
  std::mt19937_64 generator;
  generator.discard(9999);
  EXPECT_EQ(draw_unit(generator),
            static_cast<double>(9981545732273789042U / 2048U) / 9007199254740992.0);
}

}  // namespace
}  // namespace zerosim
