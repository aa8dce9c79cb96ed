/// \file
/// How long a kernel takes on an idle GPU (spec/kernels.md sections 2 to 4): the only home of
/// constants of kernel efficiency, each with its source.
///
/// Not modelled: repeated data in L2, clocks under load beyond the derate, TF32 (off by default in
/// PyTorch), the loss of GEMMs that accumulate into fp32 (Megatron-LM does; DeepSpeed does not).
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/model/operators.h"
#include "topology/gpu.h"

namespace zerosim {

/// A kernel as the engine runs it: `launch_gap` first, then arithmetic and memory traffic side by
/// side, each at its own rate: alone it lasts launch_gap + max(sm_time, bytes / memory rate).
struct KernelTime {
  Seconds launch_gap{0};  ///< gap between dependent kernels, and the ramp of memory-bound ones
  Seconds sm_time{0};     ///< time of the arithmetic with all SMs
  Bytes memory_bytes;     ///< traffic on the HBM link class
};

/// Efficiencies of one GPU kind; a table row, overridable by EngineOptions::kernel_time.
struct KernelEfficiency {
  double gemm_e0 = 0;    ///< share of peak of an ideal tile shape (kernels.md sections 3, 6)
  double gemm_k0 = 128;  ///< K that the prologue costs
  double p64 = 0.85;     ///< efficiency of 64-wide tiles
  FlopsPerSecond attention_head64;  ///< forward, causal FLOPs counted half, long sequences
  FlopsPerSecond attention_head128;
  double attention_backward = 0.75;  ///< of the forward rate
  double attention_s0 = 500;         ///< tokens at which half the rate is reached
  double memory = 0.85;              ///< of datasheet bandwidth
  const char* source = "";
};

[[nodiscard]] KernelEfficiency kernel_efficiency(const GpuSpec& gpu);

/// \throws ConfigError  if the GPU has no published peak rate for what the kernel computes.
[[nodiscard]] KernelTime kernel_time(const Kernel& kernel, const GpuSpec& gpu,
                                     const KernelEfficiency& efficiency);

/// Share of the ideal rate that the tiles of a GEMM of `matrices` products C[m,n] = A[m,k] B[k,n]
/// keep busy on `sm_count` SMs (kernels.md section 3); e0 is left out.
[[nodiscard]] double gemm_shape_efficiency(std::int64_t m, std::int64_t n, std::int64_t k,
                                           std::int64_t matrices, int sm_count,
                                           const KernelEfficiency& efficiency);

/// What kernels can draw from device memory: datasheet x `memory` efficiency.
[[nodiscard]] BytesPerSecond usable_memory_bandwidth(const GpuSpec& gpu,
                                                     const KernelEfficiency& efficiency);

}  // namespace zerosim
