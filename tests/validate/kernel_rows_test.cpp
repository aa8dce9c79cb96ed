#include "validate/kernel_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/engine/kernel_time.h"
#include "validate/fit_kernels.h"

namespace zerosim {
namespace {

using testing::HasSubstr;

const std::string kExtract = std::string(ZEROSIM_TEST_DATA) + "/measured/gemm_extract.csv";
const std::string kHeader =
    "source,gpu,kind,dtype,m,n,k,layout,tflops,peak_tflops,efficiency,software,trust,derived,"
    "notes\n";

KernelTable table_of(const std::string& rows) {
  return read_kernel_table(parse_csv(kHeader + rows, "rows.csv"));
}

/// What refuses the row.
std::string refusal(const std::string& row) {
  try {
    static_cast<void>(table_of(row));
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

// 2 x 4096 x 1536 x 5120 FLOPs at 245.75 TFLOPS: 262.2 us.
TEST(KernelRows, AProduct) {
  const KernelTable table = table_of(
      "s,A100-PCIe-80GB,gemm,bf16,4096,1536,5120,b=1 NT accumulate=True "
      "out=fp32,245.75,312,,,,,\n");
  ASSERT_EQ(table.rows.size(), 1U);
  const MeasuredKernel& row = table.rows.front();
  EXPECT_EQ(row.group, "A100-PCIe-80 gemm NT accumulate bf16");
  EXPECT_NEAR(row.time.count(), 2.0 * 4096 * 1536 * 5120 / 245.75e12, 1e-12);
  ASSERT_EQ(row.kernels.size(), 1U);
  EXPECT_EQ(row.kernels[0].layout, GemmLayout::NT);
  EXPECT_TRUE(row.kernels[0].fp32_accumulate);
  // bf16 operands; an fp32 result that is read and written.
  EXPECT_EQ(row.kernels[0].bytes,
            Bytes((4096L * 5120 + 5120L * 1536) * 2 + 4096L * 1536 * (2 + 8 - 2)));
  EXPECT_DOUBLE_EQ(row.rate, 245.75 / 312);
}

// s = 4096, 64 heads, keys of 128 and values of 128. The table counts 2 x 64 x 4096^2 x 256 FLOPs,
// the causal kernel computes half of them; backward 2.5 times as many.
TEST(KernelRows, AnAttention) {
  const std::string sizes =
      "batch=1; seq_len=4096; head_num=64; kv_head_num=8; qk_head_dim=128; v_head_dim=128; "
      "qkv_contiguous=True";
  const KernelTable table = table_of("s,B200-SXM,sdp_fwd,bf16,,,," + sizes + ",1960,2250,,,,,\n" +
                                     "s,B200-SXM,sdp_bwd,bf16,,,," + sizes + ",1642,2250,,,,,\n");
  ASSERT_EQ(table.rows.size(), 2U);
  const double counted = 2.0 * 64 * 4096 * 4096 * 256;
  EXPECT_NEAR(table.rows[0].time.count(), counted / 1960e12, 1e-12);
  EXPECT_NEAR(table.rows[1].time.count(), 2.5 * counted / 1642e12, 1e-12);
  EXPECT_DOUBLE_EQ(table.rows[0].kernels[0].flops.count(), counted / 2);
  EXPECT_DOUBLE_EQ(table.rows[1].kernels[0].flops.count(), counted / 2 * 2.5);
  EXPECT_EQ(table.rows[0].kernels[0].k, 64);
  EXPECT_TRUE(table.rows[1].kernels[0].backward);
  // q and o of 64 heads, k and v of 8, a 4 B statistic of each head and token.
  EXPECT_EQ(table.rows[0].kernels[0].bytes, Bytes(4096L * ((64 + 8) * 256 * 2 + 64 * 4)));
}

// Of width 2048: 16 heads of 128. Scores and values are two products, between them a softmax reads
// and writes 16 x 8192^2 scores of each sequence.
TEST(KernelRows, AttentionOfTheFlashBenchmark) {
  const KernelTable table = table_of(
      "s,H100-SXM5-80GB,attention_standard,fp16/bf16,batch 2,seq 8192,head_dim 128,,145,989,,,,,\n"
      "s,H100-SXM5-80GB,attention_flash2,fp16/bf16,batch 2,seq 8192,head_dim 128,,328,989,,,,,\n");
  ASSERT_EQ(table.rows.size(), 2U);
  ASSERT_EQ(table.rows[0].kernels.size(), 3U);
  EXPECT_EQ(table.rows[0].kernels[1].bytes, Bytes(2L * 16 * 8192 * 8192 * 4));
  EXPECT_FALSE(table.rows[1].kernels[0].causal);
  EXPECT_NEAR(table.rows[0].time.count(), 4.0 * 2 * 16 * 8192 * 8192 * 128 / 145e12, 1e-12);
}

TEST(KernelRows, SkipsWithAReason) {
  const KernelTable table = table_of(
      "s,AMD MI300X,gemm,bf16,16,16,16,,600,1300,,,,,\n"
      "s,H100-SXM5,gemm,bf16,,10922,4096,,272,989,,,,,\n");
  EXPECT_TRUE(table.rows.empty());
  ASSERT_EQ(table.skipped.size(), 2U);
  EXPECT_EQ(table.skipped[0].why, "GPU \"AMD MI300X\" is not simulated");
  EXPECT_EQ(table.skipped[1].why, "m is empty");
}

TEST(KernelRows, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal("s,A100-PCIe-80GB,gem,bf16,16,16,16,,600,1300,,,,,\n"),
            "rows.csv:2:18: kind: found \"gem\", expected one of gemm, sdp_fwd, sdp_bwd, "
            "attention_flash2, attention_standard; did you mean \"gemm\"?");
  EXPECT_EQ(refusal("s,A100-PCIe-80GB,gemm,bf61,16,16,16,,600,1300,,,,,\n"),
            "rows.csv:2:23: dtype: found \"bf61\", expected one of bf16, fp16, bf16/fp16, "
            "fp16/bf16, fp32, tf32, fp8, fp8_e4m3; did you mean \"bf16\"?");
  EXPECT_EQ(
      refusal("s,A100-PCIe-80GB,gemm,bf16,16,16,16,b=1 TT,600,1300,,,,,\n"),
      "rows.csv:2:37: layout: found \"b=1 TT\", expected \"b=1 TN accumulate=False out=bf16\" "
      "or NN, NT");
  EXPECT_EQ(refusal("s,A100-PCIe-80GB,sdp_fwd,bf16,,,,batch=1; seq_len=-4,600,1300,,,,,\n"),
            "rows.csv:2:34: layout: found \"batch=1; seq_len=-4\", expected \"seq_len=\" and a "
            "positive number");
  EXPECT_THAT(refusal("s,A100-PCIe-80GB,gemm,bf16,16,16,16,,-3,1300,,,,,\n"), HasSubstr("tflops"));
  EXPECT_THAT(refusal("s,A100-PCIe-80GB,gemm,bf16,1.5,16,16,,3,1300,,,,,\n"), HasSubstr("2:28"));
}

/// Rows of a group, or of all that begin so.
std::vector<ValidationRow> rows_of(const Validation& validation, const std::string& group) {
  std::vector<ValidationRow> rows;
  std::copy_if(validation.rows.begin(), validation.rows.end(), std::back_inserter(rows),
               [&](const ValidationRow& row) { return row.source.starts_with(group); });
  return rows;
}

// Bounds: what was reached when the constants were fitted, and a little.
TEST(KernelRows, TheModelAgainstMeasurements) {
  const Validation validation = validate_kernels(std::vector{kExtract});
  struct Bound {
    const char* group;
    std::size_t rows;
    double mean, median;
  };
  for (const Bound& bound :
       {Bound{"A100-PCIe-80 gemm", 90, 0.05, 0.03}, Bound{"A100-PCIe-80 sdp_fwd", 12, 0.04, 0.03},
        Bound{"A100-PCIe-80 sdp_bwd", 12, 0.04, 0.03},
        Bound{"A100-SXM4-80 gemm fp16", 8, 0.15, 0.08},
        Bound{"H100-SXM5-80 gemm fp8", 9, 0.20, 0.08}, Bound{"B200-SXM-180 gemm", 64, 0.11, 0.06},
        Bound{"B200-SXM-180 sdp_fwd", 16, 0.15, 0.13},
        Bound{"B200-SXM-180 sdp_bwd", 16, 0.10, 0.05}}) {
    const std::vector<ValidationRow> rows = rows_of(validation, bound.group);
    EXPECT_GE(rows.size(), bound.rows) << bound.group;
    EXPECT_LT(mean_error(rows), bound.mean) << bound.group;
    EXPECT_LT(*summary_of(rows).median, bound.median) << bound.group;
  }
}

// Half of A100's products give the constants of the table, within what they decide, and predict the
// other half; files hold them to their last digit.
TEST(FitKernels, RefitsTheA100) {
  const KernelFit fit = fit_kernels(std::vector{kExtract}, HoldOut::EverySecond);
  const auto a100 = std::find_if(fit.gpus.begin(), fit.gpus.end(),
                                 [](const auto& entry) { return entry.gpu == "A100-PCIe-80"; });
  ASSERT_NE(a100, fit.gpus.end());
  ASSERT_TRUE(a100->products);
  EXPECT_NEAR(a100->products->e0, 0.774, 0.01);
  EXPECT_NEAR(a100->products->k0, 148, 40);
  EXPECT_NEAR(a100->products->fp32_accumulate, 0.95, 0.02);
  EXPECT_TRUE(a100->products->measured.empty());
  EXPECT_LT(mean_error(fit.fits.front().held_out), 0.05);
  const Calibration calibration{"", {}, fit.gpus};
  EXPECT_EQ(parse_calibration(calibration_text(calibration), "c.json").kernels, fit.gpus);
}

// The formula fails on B200: the fit says so and corrects it, and what it has not seen is nearer.
TEST(FitKernels, CorrectsTheB200ByMeasuredProducts) {
  const KernelFit fit = fit_kernels(std::vector{kExtract}, HoldOut::EverySecond);
  const auto b200 = std::find_if(fit.fits.begin(), fit.fits.end(), [](const auto& entry) {
    return entry.what == "B200-SXM-180 products";
  });
  ASSERT_NE(b200, fit.fits.end());
  EXPECT_TRUE(b200->corrected);
  EXPECT_LT(mean_error(b200->held_out), mean_error(b200->held_out_formula));
}

// What is calibrated on a PCIe board holds for the same chip on SXM4, scaled by MAMF: 271.2 /
// 252.9.
TEST(FitKernels, AnotherBoardOfTheChipIsScaled) {
  CalibratedKernels entry;
  entry.gpu = "A100-PCIe-80";
  entry.products = CalibratedProducts{0.6, 100, 0.7, 0.9, {}};
  const Calibration calibration{"", {}, {entry}};
  const auto e0 = [&](const char* gpu) {
    return calibrated_efficiency(gpu_spec(gpu), calibration, KernelRegime::Benchmark).gemm_e0;
  };
  EXPECT_NEAR(e0("A100-PCIe-80"), 0.6, 1e-12);
  EXPECT_NEAR(e0("A100-SXM4-40"), 0.6 * 271.2 / 252.9, 1e-12);
  EXPECT_NEAR(e0("H100-SXM5-80"),
              kernel_efficiency(gpu_spec("H100-SXM5-80"), KernelRegime::Benchmark).gemm_e0, 1e-12);
}

}  // namespace
}  // namespace zerosim
