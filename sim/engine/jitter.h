/// \file
/// Random variation of one rank's kernels and host work (perturbation.h, Jitter).
#pragma once

#include <cstdint>
#include <random>

#include "topology/perturbation.h"

namespace zerosim::internal {

/// A rank's own sequence of factors, a function of seed, repetition and rank.
///
/// Kernels and host work draw from two generators, so that jitter of the one does not change the
/// other's. A factor is exp(s z - s^2/2): its mean is 1. z is normal by Box and Muller: of two
/// uniform u, v with 53 bits,
///
///     z = sqrt(-2 ln(1 - u)) cos(2 pi v)
class RankJitter {
 public:
  RankJitter(const Jitter& jitter, int rank, int repetition);
  [[nodiscard]] double kernel() { return factor(kernels_, kernel_spread_); }
  [[nodiscard]] double host() { return factor(hosts_, host_spread_); }

 private:
  static double factor(std::mt19937_64& random, double spread);

  double kernel_spread_;
  double host_spread_;
  std::mt19937_64 kernels_;
  std::mt19937_64 hosts_;
};

}  // namespace zerosim::internal
