#include "sim/engine/kernel_efficiency.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "sim/base/text.h"
#include "sim/engine/measured_products.h"

namespace zerosim {

namespace {

/// Share of MAMF that an ideal shape reaches: 0.774 / 0.811, fitted to 92 of SimuMax's 183 shapes
/// on A100-PCIe, tried on the other 91 (`zerosim calibrate gemm.csv --hold-out every-second`).
constexpr double kShareOfBest = 0.95;
/// Of a product that adds to an fp32 matrix in memory: the same fit.
constexpr double kFp32Accumulate = 0.95;
/// A feed-forward width of 10922 against those next to it that 16 divides, 272.7 of 395 TFLOPS on
/// H100 (ml-engineering, sweep of d_ff).
constexpr double kUnaligned = 0.69;
/// Of a full mask at which half the rate is reached, over that of a causal one, whose diagonal
/// blocks are half wasted: FlashAttention-2's figures of 512 tokens.
constexpr double kFullMaskS0 = 0.4;

/// One form of fused attention: TFLOPS forward and backward by head size, and tails.
struct Attention {
  double head64, head128, head192, tail;
  double backward64, backward128, backward192, backward_tail;
  double s0;  ///< causal
};

/// Fitted to SimuMax's 12 shapes each way (`zerosim calibrate`); heads of 64: Azure's 179.5 TFLOPS
/// at 8192 tokens, backward at the same share; s0: spec/kernels.md section 4.
constexpr Attention kA100{185, 229, 204, 1.59, 144, 180, 146, 0.71, 500};
/// The same of SimuMax's 32 shapes each way; heads of 64: kernels.md section 4. s0 as A100: no
/// shape is shorter than 4096 tokens.
constexpr Attention kB200{900, 1358, 1392, 3.39, 700, 1061, 824, 0.52, 500};

/// From rates of long sequences, causal. They are published for 2048 blocks (16,384 tokens of width
/// 2048) on some 120 SMs, so they include the wait for the last blocks: 1 + 1.59 x 120 / 2048.
/// What is not published has the A100's ratios.
constexpr Attention published(double head64, double head128, double backward, double s0) {
  const double wait = 1 + kA100.tail * 120 / 2048;
  const double wide = kA100.head192 / kA100.head128;
  const double wide_backward = kA100.backward192 / kA100.backward128;
  return {head64 * wait,
          head128 * wait,
          head128 * wait * wide,
          kA100.tail,
          head64 * wait * backward,
          head128 * wait * backward,
          head128 * wait * backward * wide_backward,
          kA100.backward_tail,
          s0};
}

/// FlashAttention-2 is "around twice" as fast as what was before it (its abstract).
constexpr double kFlash1 = 0.5;
/// FlashAttention-3 and cuDNN 9 on Hopper: the upper ends of kernels.md section 4.
constexpr Attention kHopperFlash3 = published(420, 640, 0.775, 1200);
constexpr int kHopper = 90;          // compute capability
constexpr double kHopperPeak = 989;  // TFLOPS that kHopperFlash3 is of

/// One chip: what its SMs draw.
struct Chip {
  double sm_watts;       ///< of an SM in products, at the clock of `reference_peak`; 0: not known
  double fp8_watts;      ///< the same in fp8
  double tflops_per_sm;  ///< at the reference clock
  double clock;          ///< where sm_watts is not known: taken as this
  const char* source;
};

// A100: SimuMax's A100-PCIe products, at 300 W, are not slowed against MAMF and neither are
// Azure's of 10,000 warm-up runs on A100-SXM4 (0.94 of MAMF): at most (300 - 45) W for 108 SMs.
constexpr Chip kGa100{2.36, 2.36, 312.0 / 108, 1, "not limited by 300 W (SimuMax A100-PCIe)"};
// H100: llm-foundry's runs of one node with s <= 4096 need 0.749 of MAMF (spec/kernels.md section
// 6), which is 0.788 of 0.95 MAMF, at 700 W: 595 W / (132 x 0.788^3).
// In fp8 cuBLASLt reaches 1377 TFLOPS of random data in 10,000 warm-up runs on H100 and 1366 on
// H200 (Azure), more than 0.95 of MAMF: not slowed, so at most 595 W for 132 SMs.
constexpr double kHopperFp8Watts = 595.0 / 132;
constexpr Chip kGh100{9.21, kHopperFp8Watts, 989.0 / 132, 1,
                      "595 W for 132 SMs at 0.788 of the clock (llm-foundry)"};
// B200: the fit to SimuMax's products gives 0.512 of peak, 0.695 of 0.95 MAMF, at 1000 W: 850 W /
// (148 x 0.695^3).
constexpr double kMeasuredE0 = 0.512;
// In fp8 as Hopper's share of that in bf16 (estimate).
constexpr Chip kGb100{17.1, 17.1 * kHopperFp8Watts / 9.21, 2250.0 / 148, 1,
                      "850 W for 148 SMs at 0.695 of the clock (SimuMax B200)"};
// No product under load is published: the mean of A100 and H100.
constexpr Chip kOther{0, 0, 0, 0.89, "clock under load: estimate"};

/// Efficiencies of GPUs whose name begins with `name`, the first row that fits.
///
/// `matmul` stands for MAMF / peak where GpuSpec::best_matmul is not known. Rows marked "estimate"
/// have no published measurement.
struct Row {
  std::string_view name;
  Chip chip;
  double matmul;
  double fp8;  ///< MAMF of fp8 / its peak; 0: as bf16's
  double k0;
  double p64;
  Attention attention;  ///< FlashAttention-2; heads of 0: kAttentionShare64 and kAttentionShare128
  double memory;
  const char* source;
};

// clang-format off
constexpr Row kRows[] = {
    {"A100", kGa100, 0.81, 0, 148, 0.85, kA100, 0.82,
     "MAMF (ml-engineering) x 0.95; tiles, attention fitted to SimuMax A100-PCIe; memory: BabelStream (Azure) 1.61-1.75 of 2.04 TB/s"},
    {"A800", kGa100, 0.869, 0, 148, 0.85, kA100, 0.82,
     "as A100-SXM4: the same chip with fewer NVLinks"},
    {"H100-SXM", kGh100, 0.803, 0.709, 148, 0.85, published(280, 370, 0.725, 800), 0.88,
     "MAMF (ml-engineering) x 0.95; FlashAttention-2 (kernels.md section 4); memory: BabelStream (Azure) 2.90-3.18 of 3.35 TB/s"},
    {"H200", kGh100, 0.803, 0.734, 148, 0.85, published(280, 370, 0.725, 800), 0.85,
     "as H100-SXM5: the same chip with more memory; memory: BabelStream (Azure) 4.01-4.48 of 4.8 TB/s"},
    {"GH200", kGh100, 0.838, 0.776, 148, 0.85, published(280, 370, 0.725, 800), 0.85,
     "MAMF (ml-engineering) x 0.95; attention, memory as H100, H200"},
    {"H100-PCIe", kGh100, 0.803, 0.709, 148, 0.85, published(214, 283, 0.725, 800), 0.88,
     "MAMF, memory as H100-SXM5; attention scaled by peak"},
    {"H100-NVL", kGh100, 0.803, 0.709, 148, 0.85, published(236, 312, 0.725, 800), 0.85,
     "MAMF as H100-SXM5; attention scaled by peak; memory as H200"},
    {"H20", kGh100, 0.93, 0, 148, 0.85, published(90, 110, 0.725, 800), 0.85,
     "estimate: the arithmetic is cut to 0.15 of the H100's at the same memory; memory as H200"},
    {"B200", kGb100, 0.776, 0.763, 128, 0.65, kB200, 0.67,
     "MAMF (ml-engineering) x 0.95; tiles, attention fitted to SimuMax B200, products corrected by its 514 shapes; memory: SimuMax 0.67 of 8 TB/s through PyTorch"},
    {"GB200", kGb100, 0.729, 0.723, 128, 0.65, kB200, 0.67,
     "MAMF (ml-engineering) x 0.95; the rest as B200"},
    {"B300", kGb100, 0.786, 0.745, 128, 0.65, kB200, 0.67,
     "MAMF (ml-engineering) x 0.95; the rest as B200"},
    {"GB300", kGb100, 0.729, 0.723, 128, 0.65, kB200, 0.67,
     "estimate: as GB200"},
    {"RTX4090", kOther, 0.90, 0, 148, 0.85, published(140, 160, 0.75, 500), 0.91,
     "estimate: rate with fp32 accumulate is halved by product policy, so clocks exceed the datasheet; FlashAttention-2 (kernels.md section 4); memory: public p2p test 0.92 of 1.008 TB/s"},
    {"RTX3090", kOther, 0.90, 0, 148, 0.85, published(52, 60, 0.75, 500), 0.85,
     "estimate: as RTX4090; attention at the A100's share of matmul rate"},
    {"RTX5090", kOther, 0.90, 0, 148, 0.85, published(165, 190, 0.75, 500), 0.84,
     "estimate: as RTX4090, scaled by peak; memory: device copy 1.51 of 1.79 TB/s"},
    {"RTX-6000-Ada", kOther, 0.65, 0, 148, 0.85, published(185, 215, 0.75, 500), 0.85,
     "estimate: 300 W for twice the rate of a 450 W RTX4090; attention scaled from it by matmul rate"},
    {"L40S", kOther, 0.65, 0, 148, 0.85, published(185, 215, 0.75, 500), 0.85,
     "estimate: 350 W for twice the rate of a 450 W RTX4090; attention scaled from it by matmul rate"},
    {"L4", kOther, 0.50, 0, 148, 0.85, published(48, 56, 0.75, 500), 0.85,
     "estimate: 72 W for three quarters of the rate of a 450 W RTX4090"},
    {"RTX-A6000", kOther, 0.72, 0, 148, 0.85, published(65, 76, 0.75, 500), 0.85,
     "estimate: power limit of 300 W below the A100's share; attention at the A100's share of matmul rate"},
    {"A40", kOther, 0.70, 0, 148, 0.85, published(62, 72, 0.75, 500), 0.85,
     "estimate: as RTX-A6000, passively cooled"},
    {"A10G", kOther, 0.90, 0, 148, 0.85, published(37, 43, 0.75, 500), 0.85,
     "estimate: 300 W for half the rate of an A10, so power does not limit; attention at the A100's share of matmul rate"},
    {"A10", kOther, 0.56, 0, 148, 0.85, published(41, 48, 0.75, 500), 0.85,
     "estimate: 150 W for 0.8 of the rate of a 300 W RTX-A6000; attention at the A100's share of matmul rate"},
    {"V100", kOther, 0.81, 0, 148, 0.85, published(35, 40, 0.75, 500), 0.85,
     "estimate: share of the A100-PCIe; no FlashAttention-2 before compute capability 8.0: memory-efficient attention at half the A100's share of matmul rate"},
    {"", kOther, 0.75, 0, 148, 0.85, Attention{}, 0.85,
     "estimate: 0.75 of peak, attention at half the A100's share of matmul rate"},
};
// clang-format on

/// cuBLAS sgemm, by compute capability up to which it holds.
struct VectorUnits {
  int last_capability;
  double e0;             ///< at the clock of the datasheet's peak
  double sm_watts;       ///< of an SM in them, at the reference clock; 0: not slowed
  double tflops_per_sm;  ///< at the reference clock
};
// Volta, Turing (64 lanes an SM, one process): fitted to BERT-large in fp32 on 16 V100
// (dsat-bert-large of validate/run_split.h), which 350 W do not slow: at most (350 - 52) W for 80
// SMs. A100: as many lanes on a newer process; nothing says that its 400 W slow them.
// From GA10x on (128 lanes, which the registers do not feed as well): 23.25 of 38.7 TFLOPS for
// 4096 x 4096 x 4096 on RTX A6000, as sustained (siboehm.com, "How to optimize a CUDA matmul
// kernel").
constexpr VectorUnits kVectorUnits[] = {
    {75, 0.93, 3.72, 16.4 / 80}, {80, 0.93, 0, 0}, {std::numeric_limits<int>::max(), 0.6, 0, 0}};

const VectorUnits& vector_units(const GpuSpec& gpu) {
  return *std::find_if(
      std::begin(kVectorUnits), std::end(kVectorUnits),
      [&](const VectorUnits& units) { return gpu.compute_capability <= units.last_capability; });
}

/// W that are left to the SMs.
double sm_power(const GpuSpec& gpu) {
  const double limit = gpu.power_cap > 0 ? gpu.power_cap : gpu.power_limit;
  return limit - kIdlePower * gpu.power_limit;
}

/// What the board's power leaves of a clock at which `gpu` computes `tflops`: the header's formula.
double clock_left(const GpuSpec& gpu, double tflops, double sm_watts, double tflops_per_sm) {
  const double clock = tflops / gpu.sm_count / tflops_per_sm;
  const double full = sm_watts * gpu.sm_count * clock * clock * clock;
  return std::min(1.0, std::cbrt(sm_power(gpu) / full));
}

double vector_efficiency(const GpuSpec& gpu, bool loaded) {
  const VectorUnits& units = vector_units(gpu);
  if (!loaded || units.sm_watts <= 0) return units.e0;
  return units.e0 * clock_left(gpu, gpu.fp32.tflops(), units.sm_watts, units.tflops_per_sm);
}

/// Share of its matmul rate (MAMF) that the A100 reaches in attention: 160 / 271.2 and 185 / 271.2.
constexpr double kAttentionShare64 = 0.59;
constexpr double kAttentionShare128 = 0.68;

FlopsPerSecond tera(double tflops) {
  return FlopsPerSecond(tflops * 1e12);
}

const Row& row_of(const GpuSpec& gpu) {
  return *std::find_if(std::begin(kRows), std::end(kRows),
                       [&](const Row& row) { return gpu.name.starts_with(row.name); });
}

bool has_measured_products(const Row& row) {
  return row.chip.sm_watts == kGb100.sm_watts;
}

AttentionEfficiency attention_efficiency(const Attention& rates, double scale) {
  const auto rate = [&](double tflops) { return tera(tflops * scale); };
  AttentionEfficiency result;
  result.forward = {rate(rates.head64), rate(rates.head128), rate(rates.head192), rates.tail};
  result.backward = {rate(rates.backward64), rate(rates.backward128), rate(rates.backward192),
                     rates.backward_tail};
  result.causal_s0 = rates.s0;
  result.full_s0 = rates.s0 * kFullMaskS0;
  return result;
}

/// Of a GPU whose attention nobody has published: half the A100's share of the matmul rate.
Attention unpublished(double best_tflops) {
  return published(best_tflops * kAttentionShare64 / 2, best_tflops * kAttentionShare128 / 2, 0.75,
                   kA100.s0);
}

void apply(const CalibratedProducts& products, const GpuSpec& measured, KernelEfficiency& result) {
  const double scale = products.e0 / kernel_efficiency(measured, KernelRegime::Benchmark).gemm_e0;
  result.gemm_e0 *= scale;
  result.fp8_e0 *= scale;
  result.gemm_k0 = products.k0;
  result.p64 = products.p64;
  result.fp32_accumulate = products.fp32_accumulate;
  result.measured = products.measured;
  result.measured_e0 = products.e0;
}

/// \param direction  of flash2; those of the other forms are scaled as it is
void apply(const CalibratedAttention& fitted, AttentionRates AttentionEfficiency::*direction,
           KernelEfficiency& result) {
  const AttentionRates before = result.flash2.*direction;
  for (AttentionEfficiency* form : {&result.flash1, &result.flash2, &result.flash3}) {
    AttentionRates& rates = form->*direction;
    const auto scale = [&](FlopsPerSecond AttentionRates::*head, FlopsPerSecond rate) {
      if (rate.per_second() <= 0) return;
      const double factor = rate.per_second() / (before.*head).per_second();
      rates.*head = FlopsPerSecond((rates.*head).per_second() * factor);
    };
    scale(&AttentionRates::head64, fitted.head64);
    scale(&AttentionRates::head128, fitted.head128);
    scale(&AttentionRates::head192, fitted.head192);
    rates.tail = fitted.tail;
  }
}

/// The last entry of this GPU or of another of its chip; null: none.
const CalibratedKernels* measured_for(const GpuSpec& gpu, const Calibration& calibration) {
  const CalibratedKernels* found = nullptr;
  for (const CalibratedKernels& entry : calibration.kernels) {
    const bool same = entry.gpu == gpu.name;
    const bool own = found != nullptr && found->gpu == gpu.name;
    if (same || (!own && &row_of(gpu_spec(entry.gpu)) == &row_of(gpu))) found = &entry;
  }
  return found;
}

}  // namespace

double matrix_peak(const GpuSpec& gpu, Dtype dtype) {
  const double bf16 = gpu.bf16.per_second();
  const double fp16 = gpu.fp16.per_second();
  if (dtype == Dtype::Bf16 && bf16 > 0) return bf16;
  // Consumer GPUs' fp16 column is the rate with fp16 accumulation, which training does not use:
  // bf16 has the other one.
  if (dtype == Dtype::F16 && fp16 > 0) return bf16 > 0 ? std::min(fp16, bf16) : fp16;
  return gpu.fp32.per_second();  // bf16 before Ampere too
}

bool on_vector_units(const GpuSpec& gpu, Dtype dtype) {
  const FlopsPerSecond tensor = dtype == Dtype::Bf16  ? gpu.bf16
                                : dtype == Dtype::F16 ? gpu.fp16
                                                      : FlopsPerSecond(0);
  return tensor.per_second() <= 0;
}

double reference_peak(const GpuSpec& gpu) {
  return matrix_peak(gpu, gpu.bf16.per_second() > 0 ? Dtype::Bf16 : Dtype::F16);
}

namespace {

/// \param sm_watts  of an SM in such products
double sustained_clock_at(const GpuSpec& gpu, double sm_watts) {
  const Chip& chip = row_of(gpu).chip;
  if (gpu.power_limit <= 0) return chip.clock;
  if (sm_watts <= 0) {  // of an estimate it takes the cube root of what an operator takes away
    const double left = sm_power(gpu) / ((1 - kIdlePower) * gpu.power_limit);
    return std::min(1.0, chip.clock * std::cbrt(left));
  }
  return clock_left(gpu, reference_peak(gpu) * 1e-12, sm_watts, chip.tflops_per_sm);
}

}  // namespace

double sustained_clock(const GpuSpec& gpu) {
  return sustained_clock_at(gpu, row_of(gpu).chip.sm_watts);
}

double sustained_fp8_clock(const GpuSpec& gpu) {
  return sustained_clock_at(gpu, row_of(gpu).chip.fp8_watts);
}

KernelEfficiency kernel_efficiency(const GpuSpec& gpu, KernelRegime regime) {
  const Row& row = row_of(gpu);
  const double peak = reference_peak(gpu);
  const double best = gpu.best_matmul.per_second() > 0 && peak > 0
                          ? gpu.best_matmul.per_second() / peak
                          : row.matmul;
  // SimuMax's products on B200 are those of a GPU under load already.
  const bool loaded = regime == KernelRegime::Training || has_measured_products(row);
  const auto share = [&](double clock) { return kShareOfBest * (loaded ? clock : 1); };
  KernelEfficiency result;
  result.gemm_e0 = share(sustained_clock(gpu)) * best;
  result.gemm_k0 = row.k0;
  result.p64 = row.p64;
  result.fp32_accumulate = kFp32Accumulate;
  result.unaligned = kUnaligned;
  result.fp8_e0 = share(sustained_fp8_clock(gpu)) * (row.fp8 > 0 ? row.fp8 : best);
  result.vector_e0 = vector_efficiency(gpu, regime == KernelRegime::Training);
  if (has_measured_products(row)) {
    result.measured = measured_products_b200();
    result.measured_e0 = kMeasuredE0;
  }
  const Attention attention =
      row.attention.head128 > 0 ? row.attention : unpublished(best * peak * 1e-12);
  result.flash1 = attention_efficiency(attention, kFlash1);
  result.flash2 = attention_efficiency(attention, 1);
  result.flash3 = result.flash2;
  if (gpu.compute_capability == kHopper) {
    const auto newer = attention_efficiency(kHopperFlash3, peak * 1e-12 / kHopperPeak);
    if (newer.forward.head128 > result.flash2.forward.head128) result.flash3 = newer;
  }
  result.memory = row.memory;
  result.source = row.source;
  return result;
}

KernelEfficiency calibrated_efficiency(const GpuSpec& gpu, const Calibration& calibration,
                                       KernelRegime regime) {
  KernelEfficiency result = kernel_efficiency(gpu, regime);
  const CalibratedKernels* measured = measured_for(gpu, calibration);
  if (measured == nullptr) return result;
  if (measured->products) apply(*measured->products, gpu_spec(measured->gpu), result);
  if (measured->forward) apply(*measured->forward, &AttentionEfficiency::forward, result);
  if (measured->backward) apply(*measured->backward, &AttentionEfficiency::backward, result);
  return result;
}

std::string efficiency_note(const GpuSpec& gpu, const Calibration& calibration) {
  const KernelEfficiency efficiency = calibrated_efficiency(gpu, calibration);
  const double clock = sustained_clock(gpu);
  std::string note = format("kernels of {}: products at up to {:.1f} TFLOP/s", gpu.name,
                            efficiency.gemm_e0 * reference_peak(gpu) * 1e-12);
  if (clock < 1 && gpu.power_limit > 0) {
    const bool capped = gpu.power_cap > 0;
    note +=
        format(", {:g} W{} leaving {:.0f} % of the clock", capped ? gpu.power_cap : gpu.power_limit,
               capped ? " (gpu_power_limit)" : "", clock * 100);
  }
  note += format("; memory at {:.0f} % of {:g} GB/s ({})", efficiency.memory * 100,
                 gpu.memory_bandwidth.gb_per_second(), efficiency.source);
  if (!gpu.sm_count_assumed.empty()) {
    note += format("; {} SMs as {} has, since its own number is not published", gpu.sm_count,
                   gpu.sm_count_assumed);
  }
  if (const CalibratedKernels* measured = measured_for(gpu, calibration)) {
    note +=
        format("; products and attention as measured on {} ({})", measured->gpu, calibration.file);
  }
  return note;
}

}  // namespace zerosim
