#include "sim/engine/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/measured_products.h"

namespace zerosim {

namespace {

/// Gap between two dependent kernels of a stream, 1.5 to 2.5 us: kernels.md section 2.
constexpr Seconds kGap{2e-6};
/// A stream of b bytes runs at 0.85 b / (b + bandwidth x 3 us) of the datasheet: kernels.md
/// section 2.
constexpr Seconds kMemoryRamp{3e-6};

/// Queries of a block of fused attention.
constexpr std::int64_t kAttentionBlock = 128;

double peak_or_fail(const GpuSpec& gpu, const Kernel& kernel, double peak) {
  if (peak <= 0) {
    throw ConfigError(format("GPU \"{}\" has no published peak rate in {}, which {} needs",
                             gpu.name, to_string(kernel.dtype), kernel.name));
  }
  return peak;
}

std::int64_t tiles(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}

/// Whether each row of A, B and C begins at a multiple of 16 bytes, as the fast kernels load them.
bool is_aligned(const Kernel& kernel) {
  const std::int64_t bytes = kernel.units == MatrixUnits::Fp8 ? 1 : dtype_bytes(kernel.dtype);
  const auto fits = [&](std::int64_t elements) { return elements * bytes % 16 == 0; };
  const std::int64_t inner = kernel.layout == GemmLayout::NT ? kernel.m : kernel.k;
  return fits(inner) && fits(kernel.n);
}

/// Whether it runs on vector units, for lack of tensor cores that take its type.
bool is_vector_product(const Kernel& kernel, const GpuSpec& gpu) {
  switch (kernel.units) {
    case MatrixUnits::Fp8:
      return false;
    case MatrixUnits::Tf32:
      return on_vector_units(gpu, kernel.dtype) && gpu.tf32.per_second() <= 0;
    case MatrixUnits::OfType:
      break;
  }
  return on_vector_units(gpu, kernel.dtype);
}

/// What an ideal shape runs at on tensor cores.
double tensor_rate(const Kernel& kernel, const GpuSpec& gpu, const KernelEfficiency& efficiency) {
  const double accumulate = kernel.fp32_accumulate ? efficiency.fp32_accumulate : 1;
  switch (kernel.units) {
    case MatrixUnits::Fp8:
      if (gpu.fp8.per_second() > 0) return efficiency.fp8_e0 * gpu.fp8.per_second() * accumulate;
      throw ConfigError(
          format("GPU \"{}\" has no fp8 products, which {} needs", gpu.name, kernel.name));
    case MatrixUnits::Tf32:
      if (kernel.dtype != Dtype::F32) break;
      return efficiency.gemm_e0 * gpu.tf32.per_second();
    case MatrixUnits::OfType:
      break;
  }
  const double peak = peak_or_fail(gpu, kernel, matrix_peak(gpu, kernel.dtype));
  return efficiency.gemm_e0 * peak * accumulate;
}

/// What slows products of some shapes on tensor cores alone.
double tensor_factors(const Kernel& kernel, const GpuSpec& gpu,
                      const KernelEfficiency& efficiency) {
  return (is_aligned(kernel) ? 1 : efficiency.unaligned) *
         measured_factor(kernel.m, kernel.n, kernel.k, kernel.layout, gpu.sm_count, efficiency);
}

Seconds gemm_time(const Kernel& kernel, const GpuSpec& gpu, const KernelEfficiency& efficiency) {
  const double product = 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) *
                         static_cast<double>(kernel.k);
  const double flops = kernel.flops.count() > 0 ? kernel.flops.count() : product;
  if (flops <= 0) {
    return Seconds(0);
  }
  const bool vector = is_vector_product(kernel, gpu);
  double rate = vector ? efficiency.vector_e0 * peak_or_fail(gpu, kernel, gpu.fp32.per_second())
                       : tensor_rate(kernel, gpu, efficiency);
  if (product > 0) {
    const double matrices = flops / (product * std::max(1, kernel.launches));
    rate *= gemm_shape_efficiency(kernel.m, kernel.n, kernel.k,
                                  std::max<std::int64_t>(1, std::llround(matrices)), gpu.sm_count,
                                  efficiency);
    if (!vector) rate *= tensor_factors(kernel, gpu, efficiency);
  }
  return Seconds(flops / rate);
}

const AttentionEfficiency& attention_of(FlashVersion version, const KernelEfficiency& efficiency) {
  switch (version) {
    case FlashVersion::V1:
      return efficiency.flash1;
    case FlashVersion::V2:
      return efficiency.flash2;
    case FlashVersion::V3:
      return efficiency.flash3;
  }
  ZS_CHECK(false, "a version of flash attention without efficiency");
}

/// Linear between heads of 64, 128 and 192, and as their ends beyond.
double head_rate(const AttentionRates& rates, std::int64_t head) {
  const double over = (static_cast<double>(head) - 64) / 64;
  const double middle = rates.head128.per_second();
  if (over <= 1) return std::lerp(rates.head64.per_second(), middle, std::max(over, 0.0));
  return std::lerp(middle, rates.head192.per_second(), std::min(over - 1, 1.0));
}

Seconds attention_time(const Kernel& kernel, const GpuSpec& gpu,
                       const KernelEfficiency& efficiency) {
  if (kernel.flops.count() <= 0) {
    return Seconds(0);
  }
  const AttentionEfficiency& form = attention_of(kernel.flash, efficiency);
  const AttentionRates& rates = kernel.backward ? form.backward : form.forward;
  double rate = head_rate(rates, kernel.n);
  const auto sequence = static_cast<double>(kernel.m);
  if (sequence > 0) {
    rate *= sequence / (sequence + (kernel.causal ? form.causal_s0 : form.full_s0));
    const auto blocks = static_cast<double>(kernel.k * tiles(kernel.m, kAttentionBlock));
    rate *= blocks / (blocks + rates.tail * gpu.sm_count);
  }
  const double peak = peak_or_fail(gpu, kernel, matrix_peak(gpu, kernel.dtype));
  return Seconds(kernel.flops.count() / (rate * peak / reference_peak(gpu)));
}

Seconds vector_time(const Kernel& kernel, const GpuSpec& gpu) {
  if (kernel.flops.count() <= 0) {
    return Seconds(0);
  }
  return Seconds(kernel.flops.count() / peak_or_fail(gpu, kernel, gpu.fp32.per_second()));
}

}  // namespace

double gemm_shape_efficiency(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t matrices,
                             int sm_count, const KernelEfficiency& efficiency) {
  struct Tile {
    std::int64_t m, n;
    double efficiency;
  };
  const Tile candidates[] = {{128, 256, 1},
                             {256, 128, 1},
                             {128, 128, 0.95},
                             {64, 128, efficiency.p64},
                             {128, 64, efficiency.p64}};
  const double sms = sm_count;
  const auto depth = static_cast<double>(k);
  double least = 0;
  for (const Tile& tile : candidates) {
    const auto count = static_cast<double>(matrices * tiles(m, tile.m) * tiles(n, tile.n));
    for (const int split : {1, 2, 4}) {
      if (split > 1 && (depth / split < 1024 || count * split > 2 * sms)) {
        continue;
      }
      const double waves = count * split / sms;
      const double occupied = 0.5 * std::ceil(waves) + 0.5 * std::max(1.0, waves);
      const double cost = occupied * static_cast<double>(tile.m * tile.n) *
                          (depth / split + efficiency.gemm_k0) / tile.efficiency *
                          (split > 1 ? 1.05 : 1.0);
      least = least > 0 ? std::min(least, cost) : cost;
    }
  }
  const double ideal =
      static_cast<double>(matrices) * static_cast<double>(m) * static_cast<double>(n) * depth / sms;
  return ideal / least;
}

KernelTime kernel_time(const Kernel& kernel, const GpuSpec& gpu,
                       const KernelEfficiency& efficiency) {
  KernelTime time;
  time.launch_gap = kernel.launches * kGap;
  time.memory_bytes = kernel.bytes;
  switch (kernel.kernel_class) {
    case KernelClass::Gemm:
      time.sm_time = gemm_time(kernel, gpu, efficiency);
      break;
    case KernelClass::Attention:
      time.sm_time = attention_time(kernel, gpu, efficiency);
      break;
    case KernelClass::Memory:
    case KernelClass::Optimizer:
      time.sm_time = vector_time(kernel, gpu);
      // b / (0.85 W b / (b + W 3 us)) = b / (0.85 W) + 3 us / 0.85
      if (kernel.bytes > Bytes(0)) {
        time.launch_gap += kernel.launches * (kMemoryRamp / efficiency.memory);
      }
      break;
  }
  return time;
}

BytesPerSecond usable_memory_bandwidth(const GpuSpec& gpu, const KernelEfficiency& efficiency) {
  return BytesPerSecond(gpu.memory_bandwidth.per_second() * efficiency.memory);
}

}  // namespace zerosim
