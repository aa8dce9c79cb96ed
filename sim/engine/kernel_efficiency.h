/// \file
/// What share of its datasheet a GPU reaches in each kind of kernel: one table row a kind, the only
/// home of such constants, each with its source or fit (spec/kernels.md sections 2 to 4 and 6).
///
/// **Matrix products.** An ideal shape runs at `gemm_e0` of peak,
///
///     e0 = 0.95 x MAMF / peak x clock,
///
/// MAMF being the fastest product that a search finds (ml-engineering). 0.95 is fitted to SimuMax's
/// A100-PCIe shapes: 0.774 / 0.811. MAMF is that of a GPU that is given one product; in training
/// the clock falls until the power drawn is what the board may draw:
///
///     clock = min(1, cbrt((W - W_idle) / W_full)),   W_full = w n_SM (p / p_0)^3
///
/// W: power limit of the board as it is sold, or what an operator has lowered it to (power_cap);
/// W_idle: 0.15 of the former; w: what an SM draws in products at the family's reference clock;
/// p = peak / n_SM, which is proportional to the clock that the datasheet's peak is stated for: of
/// two boards of one chip the one that is clocked higher needs more power. Dynamic power is taken
/// as f V^2 with V proportional to f. w is one number a chip, and another in fp8, whose MAMF is a
/// smaller share of its peak (`Chip` in the .cpp).
///
/// Products are the only kernels that are slowed so; what streams memory draws less.
///
/// Products on **vector units** (fp32 without TF32; bf16 before Ampere) run at `vector_e0` of the
/// fp32 peak, with a w of their own; no alignment slows them.
///
/// **Attention** and **memory**: see kernel_time.h.
///
/// Not modelled: differences between GPUs of one kind (up to 5 % in a node), temperature.
#pragma once

#include <span>
#include <string>

#include "sim/base/units.h"
#include "sim/model/operators.h"
#include "topology/calibration.h"
#include "topology/gpu.h"

namespace zerosim {

/// Rates of one direction of fused attention, of infinitely long sequences and many heads; real
/// FLOPs, a causal mask counted as half.
struct AttentionRates {
  FlopsPerSecond head64, head128;
  FlopsPerSecond head192;  ///< keys of 192 with values of 128, and wider ones
  double tail = 1;         ///< blocks of 128 queries that each SM waits for at the end
};

/// Of one form of it.
struct AttentionEfficiency {
  AttentionRates forward, backward;
  double causal_s0 = 500, full_s0 = 200;  ///< tokens at which half the rate is reached
};

/// Efficiencies of one GPU kind; overridable by EngineOptions::kernel_time and a Calibration.
struct KernelEfficiency {
  double gemm_e0 = 0;          ///< share of peak of an ideal tile shape
  double gemm_k0 = 128;        ///< K that the prologue costs
  double p64 = 0.85;           ///< efficiency of 64-wide tiles
  double fp32_accumulate = 1;  ///< of products that add to an fp32 matrix in memory
  double unaligned = 1;        ///< of products whose rows are not aligned to 16 bytes
  double fp8_e0 = 0;           ///< as gemm_e0, of fp8's peak
  double vector_e0 = 0;        ///< as gemm_e0, of fp32's peak on vector units
  std::span<const MeasuredProduct> measured;   ///< what corrects the formula; empty: nothing does
  double measured_e0 = 0;                      ///< gemm_e0 of the GPU that they were measured on
  AttentionEfficiency flash1, flash2, flash3;  ///< by FlashVersion
  double memory = 0.85;                        ///< of datasheet bandwidth, long streams
  const char* source = "";
};

/// What a rate is asked for.
enum class KernelRegime {
  Training,   ///< minutes of it: the clock is what the power limit leaves
  Benchmark,  ///< one kernel at a time
};

[[nodiscard]] KernelEfficiency kernel_efficiency(const GpuSpec& gpu,
                                                 KernelRegime regime = KernelRegime::Training);
/// The same with what `calibration` has fitted for this GPU, or another of its chip (A100-PCIe and
/// A100-SXM4), in place of the table's. e0 is scaled by the table's, for MAMF and clock differ:
/// e0 x table(this, regime) / table(measured, Benchmark). Attention of FlashAttention 1 and 3 keeps
/// its ratio to 2, which is what is fitted. `calibration` must outlive the answer.
[[nodiscard]] KernelEfficiency calibrated_efficiency(const GpuSpec& gpu,
                                                     const Calibration& calibration,
                                                     KernelRegime regime = KernelRegime::Training);

/// What kernels of this GPU reach and where that comes from, one sentence for assumptions:
/// "kernels of A100-SXM4-80: products at up to 257.6 TFLOP/s, ..."
[[nodiscard]] std::string efficiency_note(const GpuSpec& gpu, const Calibration& calibration);

/// Share of the datasheet's clock at which products run in training: the formula above.
[[nodiscard]] double sustained_clock(const GpuSpec& gpu);
/// The same of products in fp8, whose w is about half.
[[nodiscard]] double sustained_fp8_clock(const GpuSpec& gpu);

/// Peak of matrix products with fp32 accumulation, and what `kernel_efficiency` refers to: bf16's,
/// fp16's before Ampere. 0: not published.
[[nodiscard]] double matrix_peak(const GpuSpec& gpu, Dtype dtype);
[[nodiscard]] double reference_peak(const GpuSpec& gpu);
/// Whether matrix products of this type run on vector units, for the GPU's tensor cores do not take
/// it.
[[nodiscard]] bool on_vector_units(const GpuSpec& gpu, Dtype dtype);

}  // namespace zerosim
