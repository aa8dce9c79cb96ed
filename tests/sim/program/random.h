/// \file
/// Random numbers of property tests, the same with every library.
#pragma once

#include <cstdint>
#include <random>

namespace zerosim::test {

/// Our own mapping to a range: the standard's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// Of both ends included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace zerosim::test
