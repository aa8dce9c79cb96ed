#include "sim/engine/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/engine/host_time.h"
#include "sim/engine/measured_products.h"
#include "sim/engine/timeline.h"

namespace zerosim {
namespace {

using namespace literals;

Kernel gemm(std::int64_t m, std::int64_t n, std::int64_t k, double matrices = 1) {
  Kernel kernel;
  kernel.kernel_class = KernelClass::Gemm;
  kernel.name = "gemm_forward";
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.flops = Flops(matrices * 2.0 * static_cast<double>(m * n * k));
  return kernel;
}

KernelTime time_on(const std::string& gpu, const Kernel& kernel) {
  return kernel_time(kernel, gpu_spec(gpu), kernel_efficiency(gpu_spec(gpu)));
}

// e0 = 0.95 MAMF / peak x clock. H100, 700 W: W_full = 9.21 W x 132 = 1215.7 W, 595 W are left:
// clock = cbrt(595 / 1215.7) = 0.788, 0.95 x 794.5 x 0.788 = 594.8 TFLOPS: the 0.749 of MAMF that
// kernels.md section 6 fits to training. A100, 400 W: 2.36 W x 108 = 254.9 W, less than 340: not
// slowed, 0.95 x 271.2 = 257.6. B200: 17.1 x 148 = 2530.8, cbrt(850 / 2530.8) = 0.695; 0.95 x 1745
// x 0.695 = 1152.
TEST(KernelEfficiency, TrainingRateIsWhatThePowerLimitLeaves) {
  const auto tflops = [](const char* gpu) {
    return kernel_efficiency(gpu_spec(gpu)).gemm_e0 * gpu_spec(gpu).bf16.tflops();
  };
  EXPECT_NEAR(sustained_clock(gpu_spec("H100-SXM5-80")), 0.788, 0.0005);
  EXPECT_NEAR(tflops("H100-SXM5-80"), 594.8, 0.5);
  EXPECT_NEAR(tflops("A100-SXM4-80"), 257.6, 0.1);
  EXPECT_NEAR(tflops("B200-SXM-180"), 1152, 1);
}

// The same chip with 500 W: cbrt(425 / 1215.7) = 0.7044 of the clock. The PCIe board's peak is
// stated for a clock of (756 / 114) / (989 / 132) = 0.8851 of the SXM5 board's: W_full = 9.21 x 114
// x 0.8851^3 = 728.0, cbrt(297.5 / 728.0) = 0.7421. 900 W of GH200: cbrt(765 / 1215.7) = 0.8570. At
// 250 W an A100 has 212.5 for 254.9 W: cbrt = 0.9412.
TEST(KernelEfficiency, LessPowerIsALowerClock) {
  const auto clock = [](const char* gpu) { return sustained_clock(gpu_spec(gpu)); };
  EXPECT_NEAR(clock("H100-SXM-96-HBM2e"), 0.7044, 0.0005);
  EXPECT_NEAR(clock("H100-PCIe-80"), 0.7421, 0.0005);
  EXPECT_NEAR(clock("GH200-96"), 0.8570, 0.0005);
  EXPECT_NEAR(clock("A100-PCIe-40"), 0.9412, 0.0005);
  EXPECT_DOUBLE_EQ(clock("A100-PCIe-80"), 1);
}

// An operator's 500 W for an H100 whose board is sold with 700: 395 W are left beside the 105 that
// are not its SMs', cbrt(395 / 1215.7) = 0.6874. An RTX 4090, whose draw nobody has published, at
// 300 of 450 W: 0.89 x cbrt((300 - 67.5) / 382.5) = 0.7539.
TEST(KernelEfficiency, AnOperatorsPowerLimit) {
  GpuSpec gpu = gpu_spec("H100-SXM5-80");
  gpu.power_cap = 500;
  EXPECT_NEAR(sustained_clock(gpu), 0.6874, 0.0005);
  EXPECT_NE(efficiency_note(gpu, {}).find("500 W (gpu_power_limit) leaving 69 % of the clock"),
            std::string::npos);
  GpuSpec consumer = gpu_spec("RTX4090-24");
  consumer.power_cap = 300;
  EXPECT_NEAR(sustained_clock(consumer), 0.7539, 0.0005);
}

// 500 W: 425 of 595 are left, cbrt = 0.8939. GB200: as much less than in bf16 as on Hopper, 17.1 W
// x 4.508 / 9.21 = 8.369; its clock is (2500 / 152) / (2250 / 148) = 1.0819 of B200's: 8.369 x 152
// x 1.0819^3 = 1610.8 W for 1020: 0.8588.
TEST(KernelEfficiency, Fp8DrawsLess) {
  EXPECT_NEAR(sustained_fp8_clock(gpu_spec("H100-SXM5-80")), 1, 1e-9);
  EXPECT_NEAR(sustained_fp8_clock(gpu_spec("H100-SXM-96-HBM2e")), 0.8939, 0.0005);
  EXPECT_NEAR(sustained_fp8_clock(gpu_spec("GB200-186")), 0.8588, 0.0005);
}

// Azure, fp8, cuBLASLt after 10,000 warm-up runs of random data, TFLOPS.
TEST(KernelTime, Fp8RunsAsHotGpusDo) {
  struct Published {
    const char* gpu;
    std::int64_t m, n, k;
    double tflops;
  };
  for (const Published& row : {Published{"H100-SXM5-80", 8192, 8192, 8192, 1290.1},
                               {"H100-SXM5-80", 16384, 16384, 16384, 1377.3},
                               {"H100-SXM5-80", 6144, 12288, 12288, 1351.4},
                               {"H200-SXM-141", 8192, 8192, 8192, 1300.6},
                               {"H200-SXM-141", 16384, 16384, 16384, 1366.3}}) {
    Kernel kernel = gemm(row.m, row.n, row.k);
    kernel.units = MatrixUnits::Fp8;
    const double seconds = time_on(row.gpu, kernel).sm_time.count();
    EXPECT_NEAR(kernel.flops.count() / seconds * 1e-12 / row.tflops, 1, 0.06) << row.gpu << row.m;
  }
}

// One product alone is not slowed; SimuMax's of B200 are those of a GPU under load.
TEST(KernelEfficiency, ABenchmarkIsNotSlowed) {
  const auto e0 = [](const char* gpu, KernelRegime regime) {
    return kernel_efficiency(gpu_spec(gpu), regime).gemm_e0;
  };
  EXPECT_NEAR(e0("H100-SXM5-80", KernelRegime::Benchmark), 0.95 * 794.5 / 989, 1e-12);
  EXPECT_DOUBLE_EQ(e0("B200-SXM-180", KernelRegime::Benchmark),
                   e0("B200-SXM-180", KernelRegime::Training));
}

// 350 W for 16.4 TFLOPS of 80 SMs do not slow the V100 of DGX-2: 3.72 W x 80 = 297.6 W, 297.5 W are
// left. TITAN RTX: 16.3 TFLOPS of 72 SMs need (16.3 / 72) / (16.4 / 80) = 1.1043 times its clock:
// 3.72 x 72 x 1.1043^3 = 360.7 W, and 238 W are left: cbrt = 0.8706. Of 128 lanes an SM: RTX
// A6000's 0.6.
TEST(KernelEfficiency, VectorUnits) {
  const auto e0 = [](const char* gpu, KernelRegime regime = KernelRegime::Training) {
    return kernel_efficiency(gpu_spec(gpu), regime).vector_e0;
  };
  EXPECT_NEAR(e0("V100-SXM3-32"), 0.93, 0.001);
  EXPECT_NEAR(e0("TITAN-RTX-24"), 0.93 * 0.8706, 0.0005);
  EXPECT_DOUBLE_EQ(e0("TITAN-RTX-24", KernelRegime::Benchmark), 0.93);
  EXPECT_DOUBLE_EQ(e0("A100-SXM4-80"), 0.93);
  EXPECT_DOUBLE_EQ(e0("RTX-A6000-48"), 0.6);
}

// GPT-2's vocabulary of 50257: no whole 16 bytes a row. Tensor cores are slowed, vector units not.
TEST(KernelTime, VectorUnitsTakeAnyAlignment) {
  const auto slower = [](const char* gpu, Dtype dtype) {
    Kernel odd = gemm(4096, 50257, 768);
    Kernel even = gemm(4096, 50256, 768);
    odd.dtype = even.dtype = dtype;
    return time_on(gpu, odd).sm_time.count() / time_on(gpu, even).sm_time.count();
  };
  EXPECT_NEAR(slower("V100-SXM3-32", Dtype::F32), 50257.0 / 50256, 1e-4);
  EXPECT_NEAR(slower("V100-SXM3-32", Dtype::F16), 50257.0 / 50256 / 0.69, 1e-4);
}

// GB300's SMs are not published: those of GB200, of the same architecture and peak.
TEST(KernelEfficiency, TheNoteSaysWhoseSmsAreTaken) {
  EXPECT_NE(efficiency_note(gpu_spec("GB300-288"), {})
                .find("; 152 SMs as GB200-186 has, since its own number is not published"),
            std::string::npos);
  EXPECT_EQ(efficiency_note(gpu_spec("GB200-186"), {}).find("not published"), std::string::npos);
}

TEST(KernelEfficiency, EveryGpuHasARowWithItsSource) {
  for (const GpuSpec& gpu : gpu_specs()) {
    const KernelEfficiency efficiency = kernel_efficiency(gpu);
    EXPECT_GT(efficiency.gemm_e0, 0.3) << gpu.name;
    EXPECT_LT(efficiency.gemm_e0, 0.9) << gpu.name;
    EXPECT_GT(std::string(efficiency.source).size(), 10U) << gpu.name;
    if (std::max(gpu.fp16, gpu.bf16).per_second() > 0) {
      const AttentionRates& rates = efficiency.flash2.forward;
      EXPECT_GT(rates.head64.per_second(), 0) << gpu.name;
      EXPECT_GE(rates.head128, rates.head64) << gpu.name;
      EXPECT_LT(rates.head128, std::max(gpu.fp16, gpu.bf16)) << gpu.name;
      EXPECT_LT(efficiency.flash2.backward.head128, rates.head128) << gpu.name;
      EXPECT_LT(efficiency.flash1.forward.head128, rates.head128) << gpu.name;
      EXPECT_GE(efficiency.flash3.forward.head128, rates.head128) << gpu.name;
    }
  }
}

// m = n = k = 4096 on 108 SMs, K0 = 148. Tile 128 x 256: 32 x 16 = 512 tiles, 512 / 108 = 4.7407
// waves:
//   w = 0.5 x 5 + 0.5 x 4.7407 = 4.87037;  cost = 4.87037 x 32768 x 4244 = 6.77309e8
// Tile 128 x 128 (0.95): 1024 tiles, 9.4815 waves: w = 9.74074, cost = 9.74074 x 16384 x 4244 /
// 0.95
//   = 7.130e8: worse; 64-wide tiles: worse yet.
//   efficiency = 4096^3 / 108 / 6.77309e8 = 0.939438
TEST(GemmShape, WholeMatrixByHand) {
  const KernelEfficiency efficiency = kernel_efficiency(gpu_spec("A100-SXM4-80"));
  const double w = 0.5 * 5 + 0.5 * 512.0 / 108;
  const double cost = w * 128 * 256 * (4096 + 148);
  const double expected = 4096.0 * 4096 * 4096 / 108 / cost;
  EXPECT_NEAR(expected, 0.939438, 1e-5);
  EXPECT_NEAR(gemm_shape_efficiency(4096, 4096, 4096, 1, 108, efficiency), expected, 1e-12);
}

// m = n = 256, k = 65536: 128 x 256 gives 2 tiles, at most 4 k-splits: 8 of 108 SMs. Tile 64 x 128
// (0.85): 8 tiles x 4 = 32 on 108: w = 1, cost = 8192 (16384 + 148) / 0.85 x 1.05.
TEST(GemmShape, SplitsLongProducts) {
  const KernelEfficiency efficiency = kernel_efficiency(gpu_spec("A100-SXM4-80"));
  const double cost = 64.0 * 128 * (65536.0 / 4 + 148) / 0.85 * 1.05;
  const double expected = 256.0 * 256 * 65536 / 108 / cost;
  EXPECT_NEAR(gemm_shape_efficiency(256, 256, 65536, 1, 108, efficiency), expected, 1e-12);
}

// t = 2 m n k / (e0 shape peak), after the gap of 2 us a launch; bytes are carried as given.
TEST(KernelTime, Gemm) {
  const GpuSpec& gpu = gpu_spec("A100-SXM4-80");
  const KernelEfficiency efficiency = kernel_efficiency(gpu);
  Kernel kernel = gemm(4096, 4096, 4096);
  kernel.bytes = 100_MiB;
  const KernelTime time = time_on("A100-SXM4-80", kernel);
  const double shape = gemm_shape_efficiency(4096, 4096, 4096, 1, 108, efficiency);
  EXPECT_NEAR(time.sm_time.count(), 2.0 * 4096 * 4096 * 4096 / (257.64e12 * shape), 1e-9);
  EXPECT_DOUBLE_EQ(time.launch_gap.count(), 2e-6);
  EXPECT_EQ(time.memory_bytes, 100_MiB);
}

// 64 small products in one launch fill the GPU together: less than 64 times one.
TEST(KernelTime, BatchedGemmFillsTheGpu) {
  const double one = time_on("A100-SXM4-80", gemm(512, 512, 64)).sm_time.count();
  const double batch = time_on("A100-SXM4-80", gemm(512, 512, 64, 64)).sm_time.count();
  EXPECT_LT(batch, 20 * one);
  EXPECT_GT(batch, one);
}

// V100 has no bf16: vector units, at vector_e0 of the fp32 rate. A 4090 in fp16 computes with fp32
// accumulation: its bf16 rate.
TEST(KernelTime, TypesWithoutMatrixUnits) {
  const KernelEfficiency efficiency = kernel_efficiency(gpu_spec("V100-SXM2-32"));
  Kernel kernel = gemm(4096, 4096, 4096);
  const double bf16 = time_on("V100-SXM2-32", kernel).sm_time.count();
  const double bf16_4090 = time_on("RTX4090-24", kernel).sm_time.count();
  kernel.dtype = Dtype::F16;
  EXPECT_NEAR(bf16 / time_on("V100-SXM2-32", kernel).sm_time.count(),
              125 * efficiency.gemm_e0 / (15.7 * efficiency.vector_e0), 1e-9);
  EXPECT_DOUBLE_EQ(bf16_4090, time_on("RTX4090-24", kernel).sm_time.count());
  kernel.dtype = Dtype::F32;
  EXPECT_DOUBLE_EQ(bf16, time_on("V100-SXM2-32", kernel).sm_time.count());
}

TEST(KernelTime, NoPublishedPeak) {
  GpuSpec gpu = gpu_spec("H100-SXM5-80");
  gpu.name = "H101";
  gpu.bf16 = gpu.fp32 = FlopsPerSecond(0);
  try {
    (void)kernel_time(gemm(16, 16, 16), gpu, kernel_efficiency(gpu));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "GPU \"H101\" has no published peak rate in bf16, which gemm_forward needs");
  }
}

// TF32 on A100 is half of bf16, eight times fp32, with the tensor cores' share of it (0.95 x 271.2
// / 312) in place of the vector units' (0.93); bf16 products stay as they are.
TEST(KernelTime, Tf32) {
  Kernel kernel = gemm(4096, 4096, 4096);
  kernel.dtype = Dtype::F32;
  const double fp32 = time_on("A100-SXM4-80", kernel).sm_time.count();
  kernel.units = MatrixUnits::Tf32;
  EXPECT_NEAR(fp32 / time_on("A100-SXM4-80", kernel).sm_time.count(),
              156 * 0.95 * 271.2 / 312 / (19.5 * 0.93), 1e-9);
  kernel.dtype = Dtype::Bf16;
  EXPECT_DOUBLE_EQ(time_on("A100-SXM4-80", kernel).sm_time.count(),
                   time_on("A100-SXM4-80", gemm(4096, 4096, 4096)).sm_time.count());
}

// H100 in fp8: MAMF 0.709 of 1979, bf16 0.803 of 989 TFLOPS at 0.788 of the clock (above). In fp8
// 700 W leave the 595 for 132 SMs that Azure's hot GPUs take at most: the whole clock.
TEST(KernelTime, Fp8) {
  Kernel kernel = gemm(8192, 8192, 8192);
  const double bf16 = time_on("H100-SXM5-80", kernel).sm_time.count();
  kernel.units = MatrixUnits::Fp8;
  const double fp8 = time_on("H100-SXM5-80", kernel).sm_time.count();
  const double clock = std::cbrt(595 / (9.21 * 132));
  EXPECT_NEAR(bf16 / fp8, 0.709 * 1979 / (794.5 * clock), 1e-6);
  try {
    (void)time_on("A100-SXM4-80", kernel);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "GPU \"A100-SXM4-80\" has no fp8 products, which gemm_forward needs");
  }
}

// 50257 bf16 elements are not a multiple of 16 bytes: 0.69 of the rate. In NT rows are m and n
// long.
TEST(KernelTime, RowsThatAreNotAligned) {
  const GpuSpec& gpu = gpu_spec("A100-SXM4-80");
  const KernelEfficiency efficiency = kernel_efficiency(gpu);
  const auto rate = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    Kernel kernel = gemm(m, n, k);
    kernel.layout = layout;
    return kernel.flops.count() / kernel_time(kernel, gpu, efficiency).sm_time.count() /
           gemm_shape_efficiency(m, n, k, 1, gpu.sm_count, efficiency) / 257.64e12;
  };
  EXPECT_NEAR(rate(4096, 50257, 768, GemmLayout::TN), 0.69, 1e-6);
  EXPECT_NEAR(rate(4096, 768, 50257, GemmLayout::NN), 0.69, 1e-6);
  EXPECT_NEAR(rate(50257, 768, 4096, GemmLayout::NT), 0.69, 1e-6);
  EXPECT_NEAR(rate(50257, 768, 4096, GemmLayout::TN), 1, 1e-6);  // m is no row's length there
  EXPECT_NEAR(rate(4096, 50304, 768, GemmLayout::TN), 1, 1e-6);
}

// A100, heads of 128, s = 2048, 32 of them: 229 TFLOPS x 2048 / 2548 x 512 / (512 + 1.59 x 108)
// blocks forward; 180 and 0.71 backward. Heads of 64: 185; 160: half way to 204.
TEST(KernelTime, Attention) {
  Kernel kernel;
  kernel.kernel_class = KernelClass::Attention;
  kernel.name = "attention_forward";
  kernel.m = 2048;
  kernel.n = 128;
  kernel.k = 32;
  kernel.flops = Flops(1e12);
  const auto time = [&] { return time_on("A100-SXM4-80", kernel).sm_time.count(); };
  const double ramp = 2048.0 / 2548;
  const double filled = 512 / (512 + 1.59 * 108);
  EXPECT_NEAR(time(), 1 / (229 * ramp * filled), 1e-12);
  kernel.n = 64;
  EXPECT_NEAR(time(), 1 / (185 * ramp * filled), 1e-12);
  kernel.n = 160;
  EXPECT_NEAR(time(), 1 / (216.5 * ramp * filled), 1e-12);
  kernel.n = 256;
  EXPECT_NEAR(time(), 1 / (204 * ramp * filled), 1e-12);
  kernel.n = 128;
  kernel.backward = true;
  EXPECT_NEAR(time(), 1 / (180 * ramp * 512 / (512 + 0.71 * 108)), 1e-12);
  kernel.backward = false;
  kernel.causal = false;  // no diagonal: s0 = 0.4 x 500
  EXPECT_NEAR(time(), 1 / (229 * 2048.0 / 2248 * filled), 1e-12);
  kernel.causal = true;
  kernel.flash = FlashVersion::V1;
  EXPECT_NEAR(time(), 2 / (229 * ramp * filled), 1e-12);
  kernel.flash = FlashVersion::V3;  // of Hopper; A100 has no other than 2
  EXPECT_NEAR(time(), 1 / (229 * ramp * filled), 1e-12);
  kernel.flash = FlashVersion::V2;
  kernel.k = 1;  // 16 blocks for 108 SMs
  EXPECT_NEAR(time(), 1 / (229 * ramp * 16 / (16 + 1.59 * 108)), 1e-12);
}

// A measured product of the same shape and layout, at r of what the formula says: ln factor = ln r
// / (1 + 0.1). One of another layout counts exp(-0.25 / 0.32) = 0.4578: 0.4578 ln r / 0.5578. One
// ten times as deep is 2.3 away, exp(-5.3 / 0.32) = 6e-8: nothing.
TEST(MeasuredProducts, CorrectWhatIsNear) {
  KernelEfficiency efficiency = kernel_efficiency(gpu_spec("A100-SXM4-80"));
  const double formula =
      efficiency.gemm_e0 * gemm_shape_efficiency(4096, 4096, 1024, 1, 108, efficiency);
  const MeasuredProduct measured[] = {{4096, 4096, 1024, GemmLayout::TN, 400}};
  efficiency.measured = measured;
  efficiency.measured_e0 = efficiency.gemm_e0;
  const double log = std::log(0.4 / formula);
  const auto factor = [&](std::int64_t k, GemmLayout layout) {
    return measured_factor(4096, 4096, k, layout, 108, efficiency);
  };
  EXPECT_NEAR(factor(1024, GemmLayout::TN), std::exp(log / 1.1), 1e-9);
  const double other = std::exp(-0.25 / 0.32);
  EXPECT_NEAR(factor(1024, GemmLayout::NT), std::exp(other * log / (other + 0.1)), 1e-9);
  EXPECT_NEAR(factor(10240, GemmLayout::TN), 1, 1e-6);
  efficiency.measured = {};
  EXPECT_DOUBLE_EQ(factor(1024, GemmLayout::TN), 1);
}

TEST(MeasuredProducts, OfB200AreShapesAndShares) {
  EXPECT_EQ(measured_products_b200().size(), 514U);
  for (const MeasuredProduct& product : measured_products_b200()) {
    EXPECT_GT(std::min({product.m, product.n, product.k}), 0);
    EXPECT_GT(product.permille, 100);
    EXPECT_LT(product.permille, 700);
  }
}

// A100: b / (0.82 b / (b + W 3 us) W) = b / (0.82 W) + 3 us / 0.82, and the gap of 2 us, a launch.
TEST(KernelTime, MemoryBound) {
  Kernel kernel;
  kernel.name = "rms_norm";
  kernel.bytes = 2_GB;
  kernel.launches = 3;
  const GpuSpec& gpu = gpu_spec("A100-SXM4-80");
  const KernelEfficiency efficiency = kernel_efficiency(gpu);
  const KernelTime time = kernel_time(kernel, gpu, efficiency);
  EXPECT_DOUBLE_EQ(time.launch_gap.count(), 3 * (2e-6 + 3e-6 / 0.82));
  EXPECT_DOUBLE_EQ(time.sm_time.count(), 0);
  EXPECT_DOUBLE_EQ((time.memory_bytes / usable_memory_bandwidth(gpu, efficiency)).count(),
                   2e9 / (0.82 * 2039e9));
}

// Anchor of kernels.md section 6: a forward of Llama-7B's GEMMs (6.6e9 parameters in blocks and
// head) on 2048 tokens runs at 200-245 TFLOPS on A100 of 257 for an ideal shape.
TEST(KernelTime, LlamaLayerOnA100RunsAtTrainingRates) {
  double flops = 0;
  double seconds = 0;
  for (const auto& [n, k] : {std::pair(12288, 4096), std::pair(4096, 4096), std::pair(22016, 4096),
                             std::pair(4096, 11008)}) {
    const Kernel kernel = gemm(2048, n, k);
    flops += kernel.flops.count();
    seconds += time_on("A100-SXM4-80", kernel).sm_time.count();
  }
  EXPECT_GT(flops / seconds, 190e12);
  EXPECT_LT(flops / seconds, 245e12);
}

// vTrain's GPT of Megatron-DeepSpeed with full checkpointing is 3.0 ms a layer longer for each
// layer more, of micro batches of 1,024 tokens as of 2,048 (78.8 - 42.8 ms for 12 layers): the
// host's. Forward twice, 15 launches and 9 modules; backward 26 launches, for each of 12 parameters
// a hook and an addition; a checkpoint.
TEST(HostTime, ACheckpointedMegatronLayerTakesThreeMilliseconds) {
  const HostTimes times = default_host_times();
  const auto of = [&](int count, HostWork work) { return count * host_time(times, work).count(); };
  const double forward = of(15, HostWork::KernelLaunch) + of(9, HostWork::ModuleCall);
  const double backward = of(26 + 12, HostWork::BackwardLaunch) + of(12, HostWork::GradientHook);
  EXPECT_NEAR(2 * forward + backward + of(2, HostWork::Checkpoint), 3.0e-3, 0.3e-3);
}

// Section 5: a GPT layer takes 120-200 us of host forward (17 kernels, 10 module calls) and 250-400
// us backward (30-40 kernels) on a fast processor: published runs take 4.4 times that.
TEST(HostTime, OfModelCodeIsAMultipleOfTheReference) {
  constexpr double kModelCode = 4.4;
  const HostTimes times = default_host_times();
  const double forward =
      (17 * host_time(times, HostWork::KernelLaunch) + 10 * host_time(times, HostWork::ModuleCall))
          .count();
  EXPECT_GE(forward, kModelCode * 120e-6);
  EXPECT_LE(forward, kModelCode * 200e-6);
  const double backward = (35 * host_time(times, HostWork::BackwardLaunch)).count();
  EXPECT_GE(backward, kModelCode * 250e-6);
  EXPECT_LE(backward, kModelCode * 400e-6);
  // Optimizers' loops run at the reference's speed.
  EXPECT_LT(host_time(times, HostWork::OptimizerLaunch), host_time(times, HostWork::KernelLaunch));
  EXPECT_EQ(host_time(times, HostWork::None), Seconds(0));
  EXPECT_EQ(times.launch_queue_depth, 1024);
}

Span span(int rank_class, int stream, int op, double start, double end) {
  Span result;
  result.rank_class = rank_class;
  result.stream = StreamId(stream);
  result.op = OpId(op);
  result.start = Seconds(start);
  result.end = Seconds(end);
  return result;
}

TEST(Timeline, SortsByStartRankStreamOp) {
  Timeline timeline;
  timeline.spans = {span(1, 0, 0, 1, 2), span(0, 1, 1, 1, 2), span(0, 0, 7, 1, 1),
                    span(0, 0, 3, 1, 1), span(2, 0, 0, 0, 1)};
  timeline.host_spans = {{1, OpId(0), Seconds(0), Seconds(1), false},
                         {0, OpId(2), Seconds(0), Seconds(1), true},
                         {0, OpId(1), Seconds(0), Seconds(1), false}};
  sort(timeline);
  std::vector<int> ops;
  for (const Span& each : timeline.spans) {
    ops.push_back(each.op.value());
  }
  EXPECT_EQ(ops, (std::vector<int>{0, 3, 7, 1, 0}));
  EXPECT_EQ(timeline.host_spans[0].op, OpId(1));
  EXPECT_EQ(timeline.host_spans[2].rank_class, 1);
}

// FNV-1a of no bytes is its offset basis. Below a nanosecond nothing changes; rank class, stream,
// start and end count, the number of the operation does not.
TEST(Timeline, FingerprintSeesNanoseconds) {
  EXPECT_EQ(fingerprint({}), 0xcbf29ce484222325U);
  Timeline timeline;
  timeline.spans = {span(0, 1, 5, 1e-3, 2e-3)};
  const std::uint64_t reference = fingerprint(timeline);
  const auto changed = [&](const Span& other) {
    Timeline copy;
    copy.spans = {other};
    return fingerprint(copy) != reference;
  };
  EXPECT_FALSE(changed(span(0, 1, 9, 1e-3, 2e-3)));
  EXPECT_FALSE(changed(span(0, 1, 5, 1e-3 + 1e-13, 2e-3)));
  EXPECT_TRUE(changed(span(0, 1, 5, 1e-3 + 1e-9, 2e-3)));
  EXPECT_TRUE(changed(span(0, 1, 5, 1e-3, 2e-3 - 1e-9)));
  EXPECT_TRUE(changed(span(1, 1, 5, 1e-3, 2e-3)));
  EXPECT_TRUE(changed(span(0, 0, 5, 1e-3, 2e-3)));
}

}  // namespace
}  // namespace zerosim
