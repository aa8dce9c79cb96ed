/// \file
/// Matrix products that were measured, where the tile model alone does not tell: Blackwell.
///
/// The tile model errs by 11 % on B200's products (spec/kernels.md section 3), for reasons that
/// their shapes do not tell: neighbours in size differ by a third, as between a cool GPU and one
/// under load. So what it says is multiplied by what was measured over what it says of the products
/// nearest in shape:
///
///     ln factor = sum_i w_i ln(measured_i / formula_i) / (sum_i w_i + 0.1),
///     w_i = exp(-d_i^2 / (2 x 0.4^2)),   d_i^2 = ln^2(m/m_i) + ln^2(n/n_i) + ln^2(k/k_i) + l_i^2
///
/// with l_i = 0.5 where the layouts differ, else 0: e-fold distances in m, n and k. Far from
/// everything measured the factor is 1. Bandwidth 0.4 and l were chosen on random halves of the
/// same table, so what is held out is not quite unseen. With every second shape held out and the
/// formula fitted anew (`zerosim calibrate gemm.csv --hold-out every-second`) the mean error falls
/// from 10.0 to 9.1 % and the worst tenth from 32 to 24 %; the median does not (4.8 to 5.1 %), and
/// the worst shape is worse (47 to 77 %).
///
/// Not modelled: what makes a product of 0.64 and a near one of 0.46 of peak.
#pragma once

#include <cstdint>
#include <span>

#include "sim/model/operators.h"
#include "topology/calibration.h"

namespace zerosim {

struct KernelEfficiency;

/// SimuMax's of B200 (configs/system/b200_bf16_ceperm.json at 4dcaae513b), 514 shapes.
[[nodiscard]] std::span<const MeasuredProduct> measured_products_b200();

/// What the formula's efficiency of such a product is to be multiplied with, in a GPU of `sm_count`
/// SMs; 1 without `efficiency.measured`.
[[nodiscard]] double measured_factor(std::int64_t m, std::int64_t n, std::int64_t k,
                                     GemmLayout layout, int sm_count,
                                     const KernelEfficiency& efficiency);

}  // namespace zerosim
