#include "sim/engine/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

/// Gap between two dependent kernels of a stream, 1.5 to 2.5 us: kernels.md section 2.
constexpr Seconds kGap{2e-6};
/// A stream of b bytes runs at 0.85 b / (b + bandwidth x 3 us) of the datasheet: kernels.md
/// section 2.
constexpr Seconds kMemoryRamp{3e-6};

/// What GEMMs reach in training is below the best rate that a search finds (MAMF), for clocks fall
/// under sustained load and data are not zeros. Shares of MAMF, kernels.md section 6: H100 fitted
/// to public training runs; A100 the recommended default there. Parts without a fit take the one of
/// the nearest generation.
constexpr double kAmpereDerate = 0.83;
constexpr double kHopperDerate = 0.749;

/// Efficiencies of GPUs whose name begins with `name`, the first row that fits.
///
/// `matmul` stands for MAMF / peak where GpuSpec::best_matmul is not known. Attention in TFLOPS,
/// causal counted half: kernels.md section 4 gives ranges over sequence lengths; the upper end is
/// taken, for `attention_s0` takes the rest off. Rows marked "estimate" have no published
/// measurement.
struct Row {
  std::string_view name;
  double matmul;
  double derate;
  double k0;
  double p64;
  double attention64;
  double attention128;
  double attention_backward;
  double attention_s0;
  const char* source;
};

// clang-format off
constexpr Row kRows[] = {
    {"A100", 0.81, kAmpereDerate, 128, 0.85, 160, 185, 0.75, 500,
     "kernels.md: MAMF (ml-engineering) x 0.83 (section 6, llm-foundry runs); FlashAttention-2 (section 4)"},
    {"A800", 0.869, kAmpereDerate, 128, 0.85, 160, 185, 0.75, 500,
     "as A100-SXM4: the same chip with fewer NVLinks"},
    {"H100-SXM", 0.803, kHopperDerate, 128, 0.85, 280, 370, 0.725, 800,
     "kernels.md: MAMF (ml-engineering) x 0.749 (section 6, llm-foundry runs); FlashAttention-2 (section 4)"},
    {"H200", 0.803, kHopperDerate, 128, 0.85, 280, 370, 0.725, 800,
     "as H100-SXM5: the same chip with more memory"},
    {"GH200", 0.838, kHopperDerate, 128, 0.85, 280, 370, 0.725, 800,
     "kernels.md: MAMF (ml-engineering) x the H100's 0.749; attention as H100"},
    {"H100-PCIe", 0.67, kHopperDerate, 128, 0.85, 200, 265, 0.725, 800,
     "estimate: half the power of the SXM part (350 of 700 W) at 0.76 of its peak; attention scaled by matmul rate"},
    {"H100-NVL", 0.70, kHopperDerate, 128, 0.85, 230, 300, 0.725, 800,
     "estimate: 400 of 700 W at 0.84 of the SXM part's peak; attention scaled by matmul rate"},
    {"H20", 0.93, 0.9, 128, 0.85, 90, 110, 0.725, 800,
     "estimate: the arithmetic is cut to 0.15 of the H100's at the same memory and cooling, so power does not limit"},
    {"B200", 0.776, 0.6885, 210, 0.64, 900, 1500, 0.75, 1200,
     "kernels.md section 3: e0 = 0.534, K0 = 210, p64 = 0.64 fitted to SimuMax B200 (+- 25 %); cuDNN attention (section 4)"},
    {"GB200", 0.729, 0.6885, 210, 0.64, 900, 1500, 0.75, 1200,
     "kernels.md: MAMF x the B200's share; attention as B200"},
    {"B300", 0.786, 0.6885, 210, 0.64, 900, 1500, 0.75, 1200,
     "kernels.md: MAMF x the B200's share; attention as B200"},
    {"GB300", 0.729, 0.6885, 210, 0.64, 900, 1500, 0.75, 1200,
     "estimate: as GB200"},
    {"RTX4090", 0.90, kAmpereDerate, 128, 0.85, 140, 160, 0.75, 500,
     "estimate: rate with fp32 accumulate is halved by product policy, so power does not limit and clocks exceed the datasheet; FlashAttention-2 (kernels.md section 4)"},
    {"RTX3090", 0.90, kAmpereDerate, 128, 0.85, 52, 60, 0.75, 500,
     "estimate: as RTX4090; attention at the A100's share of matmul rate"},
    {"RTX5090", 0.90, kAmpereDerate, 128, 0.85, 165, 190, 0.75, 500,
     "estimate: as RTX4090, scaled by peak"},
    {"RTX-6000-Ada", 0.65, kAmpereDerate, 128, 0.85, 185, 215, 0.75, 500,
     "estimate: 300 W for twice the rate of a 450 W RTX4090; attention scaled from it by matmul rate"},
    {"L40S", 0.65, kAmpereDerate, 128, 0.85, 185, 215, 0.75, 500,
     "estimate: 350 W for twice the rate of a 450 W RTX4090; attention scaled from it by matmul rate"},
    {"L4", 0.50, kAmpereDerate, 128, 0.85, 48, 56, 0.75, 500,
     "estimate: 72 W for three quarters of the rate of a 450 W RTX4090"},
    {"RTX-A6000", 0.72, kAmpereDerate, 128, 0.85, 65, 76, 0.75, 500,
     "estimate: power limit of 300 W below the A100's share; attention at the A100's share of matmul rate"},
    {"A40", 0.70, kAmpereDerate, 128, 0.85, 62, 72, 0.75, 500,
     "estimate: as RTX-A6000, passively cooled"},
    {"A10G", 0.90, kAmpereDerate, 128, 0.85, 37, 43, 0.75, 500,
     "estimate: 300 W for half the rate of an A10, so power does not limit; attention at the A100's share of matmul rate"},
    {"A10", 0.56, kAmpereDerate, 128, 0.85, 41, 48, 0.75, 500,
     "estimate: 150 W for 0.8 of the rate of a 300 W RTX-A6000; attention at the A100's share of matmul rate"},
    {"V100", 0.81, kAmpereDerate, 128, 0.85, 35, 40, 0.75, 500,
     "estimate: share of the A100-PCIe; no FlashAttention-2 before compute capability 8.0: memory-efficient attention at half the A100's share of matmul rate"},
    {"", 0.75, kAmpereDerate, 128, 0.85, 0, 0, 0.75, 500,
     "estimate: 0.75 of peak, attention at half the A100's share of matmul rate"},
};
// clang-format on

/// Share of its matmul rate (MAMF) that the A100 reaches in attention: 160 / 271.2 and 185 / 271.2.
constexpr double kAttentionShare64 = 0.59;
constexpr double kAttentionShare128 = 0.68;

FlopsPerSecond tera(double tflops) {
  return FlopsPerSecond(tflops * 1e12);
}

/// Peak of matrix products with fp32 accumulation. Consumer GPUs' fp16 column is the rate with fp16
/// accumulation, which training does not use: bf16 has the other one.
double matrix_peak(const GpuSpec& gpu, Dtype dtype) {
  const double bf16 = gpu.bf16.per_second();
  const double fp16 = gpu.fp16.per_second();
  if (dtype == Dtype::Bf16 && bf16 > 0) {
    return bf16;
  }
  if (dtype == Dtype::F16 && fp16 > 0) {
    return bf16 > 0 ? std::min(fp16, bf16) : fp16;
  }
  return gpu.fp32.per_second();  // bf16 before Ampere too
}

/// What `Row` rates refer to.
double reference_peak(const GpuSpec& gpu) {
  return matrix_peak(gpu, gpu.bf16.per_second() > 0 ? Dtype::Bf16 : Dtype::F16);
}

double peak_or_fail(const GpuSpec& gpu, const Kernel& kernel, double peak) {
  if (peak <= 0) {
    throw ConfigError(format("GPU \"{}\" has no published peak rate in {}, which {} needs",
                             gpu.name, to_string(kernel.dtype), kernel.name));
  }
  return peak;
}

const Row& row_of(const GpuSpec& gpu) {
  return *std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) {
    return std::string_view(gpu.name).substr(0, row.name.size()) == row.name;
  });
}

std::int64_t tiles(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}

Seconds gemm_time(const Kernel& kernel, const GpuSpec& gpu, const KernelEfficiency& efficiency) {
  const double product = 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) *
                         static_cast<double>(kernel.k);
  const double flops = kernel.flops.count() > 0 ? kernel.flops.count() : product;
  if (flops <= 0) {
    return Seconds(0);
  }
  const double peak = peak_or_fail(gpu, kernel, matrix_peak(gpu, kernel.dtype));
  double shape = 1;
  if (product > 0) {
    const double matrices = flops / (product * std::max(1, kernel.launches));
    shape = gemm_shape_efficiency(kernel.m, kernel.n, kernel.k,
                                  std::max<std::int64_t>(1, std::llround(matrices)), gpu.sm_count,
                                  efficiency);
  }
  return Seconds(flops / (efficiency.gemm_e0 * shape * peak));
}

/// rate(e, s) = rate(e) s / (s + s0), less if b h ceil(s / 128) blocks do not fill the SMs.
Seconds attention_time(const Kernel& kernel, const GpuSpec& gpu,
                       const KernelEfficiency& efficiency) {
  if (kernel.flops.count() <= 0) {
    return Seconds(0);
  }
  const double head = std::clamp((static_cast<double>(kernel.n) - 64) / 64, 0.0, 1.0);
  double rate = std::lerp(efficiency.attention_head64.per_second(),
                          efficiency.attention_head128.per_second(), head);
  const auto sequence = static_cast<double>(kernel.m);
  if (sequence > 0) {
    rate *= sequence / (sequence + efficiency.attention_s0);
    const auto blocks = static_cast<double>(kernel.k * tiles(kernel.m, 128));
    rate *= std::clamp(blocks / gpu.sm_count, 1.0 / gpu.sm_count, 1.0);
  }
  if (kernel.backward) {
    rate *= efficiency.attention_backward;
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

KernelEfficiency kernel_efficiency(const GpuSpec& gpu) {
  const Row& row = row_of(gpu);
  const double peak = reference_peak(gpu);
  const double best =
      gpu.best_matmul.per_second() > 0 ? gpu.best_matmul.per_second() : row.matmul * peak;
  KernelEfficiency result;
  result.gemm_e0 = peak > 0 ? row.derate * best / peak : row.derate * row.matmul;
  result.gemm_k0 = row.k0;
  result.p64 = row.p64;
  result.attention_head64 =
      row.attention64 > 0 ? tera(row.attention64) : FlopsPerSecond(best * kAttentionShare64 / 2);
  result.attention_head128 =
      row.attention128 > 0 ? tera(row.attention128) : FlopsPerSecond(best * kAttentionShare128 / 2);
  result.attention_backward = row.attention_backward;
  result.attention_s0 = row.attention_s0;
  result.source = row.source;
  return result;
}

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
