/// \file
/// Drawing that gives the same on every platform: the standard's distributions differ between
/// libraries, its generators do not.
#pragma once

#include <cstdint>
#include <random>

namespace zerosim {

/// A number in [0, 1): the upper 53 bits of the next one of the generator.
[[nodiscard]] inline double draw_unit(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11U) * 0x1.0p-53;
}

/// An integer below `limit`; the same on every platform, unlike the standard's distributions.
[[nodiscard]] inline std::uint64_t draw_below(std::mt19937_64& generator, std::uint64_t limit) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{generator()} * limit) >> 64U);
}

/// `state` with `word` mixed in: every bit of the result depends on every bit of both. Steele, Lea,
/// Flood: "Fast splittable pseudorandom number generators" (2014), SplitMix64 and its finaliser.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t state, std::uint64_t word = 0) {
  std::uint64_t x = state + 0x9E3779B97F4A7C15U * (word + 1);
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace zerosim
