#include "sim/engine/kernel_time.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/engine/host_time.h"
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

// e0 = eta MAMF / peak: kernels.md section 6: 0.749 x 794.5 = 595 TFLOPS on H100, 0.83 x 271.2 =
// 225 on A100, and the fitted 0.534 of B200.
TEST(KernelEfficiency, TrainingRateIsAShareOfTheBestMatmul) {
  EXPECT_NEAR(kernel_efficiency(gpu_spec("H100-SXM5-80")).gemm_e0 * 989, 595, 0.2);
  EXPECT_NEAR(kernel_efficiency(gpu_spec("A100-SXM4-80")).gemm_e0 * 312, 225.1, 0.1);
  EXPECT_NEAR(kernel_efficiency(gpu_spec("B200-SXM-180")).gemm_e0, 0.534, 0.001);
}

TEST(KernelEfficiency, EveryGpuHasARowWithItsSource) {
  for (const GpuSpec& gpu : gpu_specs()) {
    const KernelEfficiency efficiency = kernel_efficiency(gpu);
    EXPECT_GT(efficiency.gemm_e0, 0.3) << gpu.name;
    EXPECT_LT(efficiency.gemm_e0, 0.9) << gpu.name;
    EXPECT_GT(std::string(efficiency.source).size(), 10U) << gpu.name;
    if (std::max(gpu.fp16, gpu.bf16).per_second() > 0) {
      EXPECT_GT(efficiency.attention_head64.per_second(), 0) << gpu.name;
      EXPECT_GE(efficiency.attention_head128, efficiency.attention_head64) << gpu.name;
      EXPECT_LT(efficiency.attention_head128, std::max(gpu.fp16, gpu.bf16)) << gpu.name;
    }
  }
}

// m = n = k = 4096 on 108 SMs, K0 = 128. Tile 128 x 256: 32 x 16 = 512 tiles, 512 / 108 = 4.7407
// waves:
//   w = 0.5 x 5 + 0.5 x 4.7407 = 4.87037;  cost = 4.87037 x 32768 x 4224 = 6.74117e8
// Tile 128 x 128 (0.95): 1024 tiles, 9.4815 waves: w = 9.74074, cost = 9.74074 x 16384 x 4224 /
// 0.95
//   = 7.096e8: worse; 64-wide tiles: worse yet.
//   efficiency = 4096^3 / 108 / 6.74117e8 = 0.943886
TEST(GemmShape, WholeMatrixByHand) {
  const KernelEfficiency efficiency = kernel_efficiency(gpu_spec("A100-SXM4-80"));
  const double w = 0.5 * 5 + 0.5 * 512.0 / 108;
  const double cost = w * 128 * 256 * (4096 + 128);
  const double expected = 4096.0 * 4096 * 4096 / 108 / cost;
  EXPECT_NEAR(expected, 0.943886, 1e-5);
  EXPECT_NEAR(gemm_shape_efficiency(4096, 4096, 4096, 1, 108, efficiency), expected, 1e-12);
}

// m = n = 256, k = 65536: 128 x 256 gives 2 tiles, at most 4 k-splits: 8 of 108 SMs. Tile 64 x 128
// (0.85): 8 tiles x 4 = 32 on 108: w = 1, cost = 8192 (16384 + 128) / 0.85 x 1.05.
TEST(GemmShape, SplitsLongProducts) {
  const KernelEfficiency efficiency = kernel_efficiency(gpu_spec("A100-SXM4-80"));
  const double cost = 64.0 * 128 * (65536.0 / 4 + 128) / 0.85 * 1.05;
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
  EXPECT_NEAR(time.sm_time.count(), 2.0 * 4096 * 4096 * 4096 / (225.096e12 * shape), 1e-9);
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

// V100 has no bf16: the fp32 rate. A 4090 in fp16 computes with fp32 accumulation: its bf16 rate.
TEST(KernelTime, TypesWithoutMatrixUnits) {
  Kernel kernel = gemm(4096, 4096, 4096);
  const double bf16 = time_on("V100-SXM2-32", kernel).sm_time.count();
  const double bf16_4090 = time_on("RTX4090-24", kernel).sm_time.count();
  kernel.dtype = Dtype::F16;
  EXPECT_NEAR(bf16 / time_on("V100-SXM2-32", kernel).sm_time.count(), 125 / 15.7, 1e-9);
  EXPECT_DOUBLE_EQ(bf16_4090, time_on("RTX4090-24", kernel).sm_time.count());
  kernel.dtype = Dtype::F32;
  EXPECT_DOUBLE_EQ(bf16, time_on("V100-SXM2-32", kernel).sm_time.count());
}

TEST(KernelTime, NoPublishedPeak) {
  try {
    (void)time_on("H100-SXM-96-HBM2e", gemm(16, 16, 16));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "GPU \"H100-SXM-96-HBM2e\" has no published peak rate in bf16, which gemm_forward "
                 "needs");
  }
}

// A100, head 128, s = 2048, 32 heads: 185 TFLOPS x 2048 / 2548 forward, 0.75 of that backward; head
// 64: 160.
TEST(KernelTime, Attention) {
  Kernel kernel;
  kernel.kernel_class = KernelClass::Attention;
  kernel.name = "attention_forward";
  kernel.m = 2048;
  kernel.n = 128;
  kernel.k = 32;
  kernel.flops = Flops(1e12);
  const double forward = 1 / (185 * 2048.0 / 2548);
  EXPECT_NEAR(time_on("A100-SXM4-80", kernel).sm_time.count(), forward, 1e-12);
  kernel.backward = true;
  EXPECT_NEAR(time_on("A100-SXM4-80", kernel).sm_time.count(), forward / 0.75, 1e-12);
  kernel.backward = false;
  kernel.n = 64;
  EXPECT_NEAR(time_on("A100-SXM4-80", kernel).sm_time.count(), forward * 185 / 160, 1e-12);
  // One head of 2048 tokens is 16 blocks for 108 SMs.
  kernel.k = 1;
  EXPECT_NEAR(time_on("A100-SXM4-80", kernel).sm_time.count(), forward * 185 / 160 * 108 / 16,
              1e-12);
}

// b / (0.85 b / (b + W 3 us) W) = b / (0.85 W) + 3 us / 0.85, and the gap of 2 us, a launch.
TEST(KernelTime, MemoryBound) {
  Kernel kernel;
  kernel.name = "rms_norm";
  kernel.bytes = 2_GB;
  kernel.launches = 3;
  const GpuSpec& gpu = gpu_spec("A100-SXM4-80");
  const KernelEfficiency efficiency = kernel_efficiency(gpu);
  const KernelTime time = kernel_time(kernel, gpu, efficiency);
  EXPECT_DOUBLE_EQ(time.launch_gap.count(), 3 * (2e-6 + 3e-6 / 0.85));
  EXPECT_DOUBLE_EQ(time.sm_time.count(), 0);
  EXPECT_DOUBLE_EQ((time.memory_bytes / usable_memory_bandwidth(gpu, efficiency)).count(),
                   2e9 / (0.85 * 2039e9));
}

// Anchor of kernels.md section 6: a forward of Llama-7B's GEMMs (6.6e9 parameters in blocks and
// head) on 2048 tokens runs at 200-245 TFLOPS on A100.
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

// Section 5: a GPT layer takes 120-200 us of host forward (17 kernels, 10 module calls) and 250-400
// us backward (30-40 kernels).
TEST(HostTime, LayersTakeWhatEagerPytorchTakes) {
  const HostTimes times = default_host_times();
  const double forward =
      (17 * host_time(times, HostWork::KernelLaunch) + 10 * host_time(times, HostWork::ModuleCall))
          .count();
  EXPECT_GE(forward, 120e-6);
  EXPECT_LE(forward, 200e-6);
  const double backward = (35 * host_time(times, HostWork::BackwardLaunch)).count();
  EXPECT_GE(backward, 250e-6);
  EXPECT_LE(backward, 400e-6);
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
