#include "sim/engine/jitter.h"

#include <cmath>
#include <numbers>

namespace zerosim::internal {

namespace {

/// Mixes a word in (the finalizer of SplitMix64: https://prng.di.unimi.it/splitmix64.c).
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  std::uint64_t z = state + 0x9e3779b97f4a7c15 * (word + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t seed_of(const Jitter& jitter, int rank, int repetition, std::uint64_t what) {
  std::uint64_t state = mixed(jitter.seed, static_cast<std::uint64_t>(repetition));
  state = mixed(state, static_cast<std::uint64_t>(rank));
  return mixed(state, what);
}

/// In [0, 1), 53 bits.
double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

}  // namespace

RankJitter::RankJitter(const Jitter& jitter, int rank, int repetition)
    : kernel_spread_(jitter.kernels),
      host_spread_(jitter.host),
      kernels_(seed_of(jitter, rank, repetition, 0)),
      hosts_(seed_of(jitter, rank, repetition, 1)) {}

double RankJitter::factor(std::mt19937_64& random, double spread) {
  if (spread <= 0) return 1;
  const double radius = std::sqrt(-2 * std::log1p(-uniform(random)));
  const double z = radius * std::cos(2 * std::numbers::pi * uniform(random));
  return std::exp(spread * z - spread * spread / 2);
}

}  // namespace zerosim::internal
