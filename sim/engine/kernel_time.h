/// \file
/// How long a kernel takes on an idle GPU (spec/kernels.md sections 2 to 4), from what it computes
/// and the efficiencies of kernel_efficiency.h:
///
///     t = launches x gap + max(arithmetic, bytes / (memory x datasheet bandwidth)),  gap = 2 us
///
/// Memory traffic is put on the HBM link, where it meets that of others (engine.h); a memory-bound
/// kernel also pays 3 us / memory for its ramp: rate(b) = memory W b / (b + W 3 us).
///
/// **Products** C[m,n] = A[m,k] B[k,n], `matrices` of them in one launch, on n_SM SMs:
///
///     t = 2 m n k matrices / (e0 x shape x peak(type) x factors)
///     shape = (matrices m n k / n_SM) / min over tiles and k-splits of cost
///     cost = w tm tn (k/split + K0) / tile efficiency x (1.05 if split)
///     w = ceil(c)/2 + max(1, c)/2,  c = tiles x split / n_SM     (half of the tail wave is hidden)
///
/// tiles (128, 256), (256, 128), (128, 128) at 0.95, (64, 128) and (128, 64) at p64; splits 1, 2, 4
/// where k/split >= 1024 and tiles x split <= 2 n_SM. peak is that of the kernel's type: bf16 and
/// fp16 with fp32 accumulation; fp32 on the vector units with their own e0, or of TF32 (half of
/// bf16) if the kernel says so; fp8 with its own e0. Types without tensor cores (bf16 before
/// Ampere) take fp32's.
///
/// **Attention** that is fused, s queries of each of b h heads of size e:
///
///     rate = rate(e) x s / (s + s0) x blocks / (blocks + tail x n_SM),  blocks = b h ceil(s / 128)
///
/// of real FLOPs. rate(e) is linear between heads of 64, 128 and 192. s0: what a block of queries
/// costs beyond its keys, and for a causal mask the half of the diagonal that is wasted. tail:
/// blocks that an SM waits for at the end, when others have none. Of grouped queries (GQA) only the
/// bytes differ. Unfused attention is two products and memory passes (operators.h).
///
/// Not modelled: repeated data in L2, clocks under load other than in products, long attentions
/// (32,768 tokens and more) that are slowed by heat: B200 loses 15 % at 131,072.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/engine/kernel_efficiency.h"
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

/// \throws ConfigError  if the GPU has no published peak rate for what the kernel computes.
[[nodiscard]] KernelTime kernel_time(const Kernel& kernel, const GpuSpec& gpu,
                                     const KernelEfficiency& efficiency);

/// `shape` of the above.
[[nodiscard]] double gemm_shape_efficiency(std::int64_t m, std::int64_t n, std::int64_t k,
                                           std::int64_t matrices, int sm_count,
                                           const KernelEfficiency& efficiency);

/// What kernels can draw from device memory: datasheet x `memory` efficiency.
[[nodiscard]] BytesPerSecond usable_memory_bandwidth(const GpuSpec& gpu,
                                                     const KernelEfficiency& efficiency);

}  // namespace zerosim
