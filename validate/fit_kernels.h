/// \file
/// Constants of kernels fitted to measured ones: `zerosim calibrate gemm.csv`.
///
/// Of each GPU kind of the tables (kernel_rows.h) that has enough rows:
///
/// - products, from 20 products of a 16-bit type up: e0, K0, p64 and fp32_accumulate minimise
///
///       mean(sqrt(e^2 + 0.01^2)),  e = ln(predicted / measured seconds),
///
///   by NLopt's Subplex from three starts: the mean |e|, rounded below 1 %, so that a product that
///   was disturbed counts as little as it may. p64 is 0.85 and fp32_accumulate 1 where no such row
///   is (nothing decides them). Where the worst tenth of what the formula was fitted to still errs
///   by more than 15 %, the products themselves go into the calibration and correct it
///   (measured_products.h).
/// - fused attention, each direction from 6 shapes up: rates of heads of 64, 128 and 192 that occur
///   (each head counts for the nearest of the three), and the tail, by the same objective. The ramp
///   s0 is the table's: few tables have short sequences.
///
/// Best products of a search (MAMF) are not fitted to, products of other types neither.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "topology/calibration.h"
#include "validate/fit_collectives.h"
#include "validate/kernel_rows.h"
#include "validate/validation.h"

namespace zerosim {

/// One kind of kernel of one GPU, that was fitted to.
struct FittedKernels {
  std::string what;  ///< "A100-PCIe-80 products", "B200-SXM-180 attention forward"
  std::vector<ValidationRow> fitted, held_out;
  std::vector<ValidationRow> held_out_before;   ///< by the table's constants
  bool corrected = false;                       ///< by measured products
  std::vector<ValidationRow> held_out_formula;  ///< if corrected: by the formula alone
};

struct KernelFit {
  std::string input;
  HoldOut hold_out = HoldOut::None;
  std::vector<CalibratedKernels> gpus;
  std::vector<FittedKernels> fits;
  int unused = 0;  ///< rows of GPUs or types with too few
};

/// Held out are rows of each kind of kernel of each GPU in the order of the table, by
/// `is_held_out`.
[[nodiscard]] KernelFit fit_kernels(std::span<const std::string> paths, HoldOut hold_out);

/// Constants of each GPU, errors of what was fitted to and of what was held out.
[[nodiscard]] std::string kernel_fit_text(const KernelFit& fit);
/// {version, input, hold_out, kernels: as in a calibration file, fits: [{what, corrected, fitted,
/// held_out, held_out_before: {count, mean, median, p90, worst}}], unused}
[[nodiscard]] JsonValue kernel_fit_json(const KernelFit& fit);

}  // namespace zerosim
