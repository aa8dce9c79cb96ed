#include "sim/engine/jitter.h"

#include <cmath>
#include <numbers>

#include "sim/base/random.h"

namespace zerosim::internal {

namespace {

std::uint64_t seed_of(const Jitter& jitter, int rank, int repetition, std::uint64_t what) {
  std::uint64_t state = mixed(jitter.seed, static_cast<std::uint64_t>(repetition));
  state = mixed(state, static_cast<std::uint64_t>(rank));
  return mixed(state, what);
}

}  // namespace

RankJitter::RankJitter(const Jitter& jitter, int rank, int repetition)
    : kernel_spread_(jitter.kernels),
      host_spread_(jitter.host),
      kernels_(seed_of(jitter, rank, repetition, 0)),
      hosts_(seed_of(jitter, rank, repetition, 1)) {}

double RankJitter::factor(std::mt19937_64& random, double spread) {
  if (spread <= 0) return 1;
  const double radius = std::sqrt(-2 * std::log1p(-draw_unit(random)));
  const double z = radius * std::cos(2 * std::numbers::pi * draw_unit(random));
  return std::exp(spread * z - spread * spread / 2);
}

}  // namespace zerosim::internal
