/// \file
/// Measured kernels against the kernel model: `zerosim validate kernels gemm.csv`.
///
/// A row of such a table (columns of data/measured/gemm.csv, whose README says what each holds) is
/// one kernel on one GPU and the rate that it reached:
///
/// - gpu: as drivers and people write it (gpu_words.h);
/// - kind: gemm; sdp_fwd, sdp_bwd (fused attention); attention_flash2, attention_standard;
/// - dtype: bf16, fp16, fp32, tf32, fp8 (or fp8_e4m3), "bf16/fp16";
/// - m, n, k of a gemm; layout: "b=1 TN accumulate=False out=bf16", or nothing (TN);
/// - layout of sdp: "batch=1; seq_len=4096; head_num=64; kv_head_num=8; qk_head_dim=128;
///   v_head_dim=128; ..."; its TFLOPS count the whole mask, 2 b h s^2 (qk + v) FLOPs forward and
///   2.5 times that backward, though it is causal;
/// - attention_*: m, n, k are "batch 2", "seq 8192", "head_dim 64": the benchmark of
/// FlashAttention,
///   of width 2048, forward, whole mask. The standard one is two products and a softmax.
///
/// Predicted is gap + max(arithmetic, bytes / usable bandwidth), as the engine has it for a kernel
/// alone, with KernelRegime::Benchmark. Compared are seconds.
///
/// Skipped with a reason: GPUs that are not NVIDIA's, rows without sizes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/model/operators.h"
#include "topology/calibration.h"
#include "topology/gpu.h"
#include "validate/csv.h"
#include "validate/validation.h"

namespace zerosim {

struct KernelEfficiency;

/// What a row measured.
struct MeasuredKernel {
  std::string id;     ///< "12": line of the table
  std::string what;   ///< "4096 x 1536 x 5120"
  std::string group;  ///< GPU, kind, layout and type: "A100-PCIe-80 gemm TN bf16"
  const GpuSpec* gpu = nullptr;
  std::vector<Kernel> kernels;  ///< one after the other
  Seconds time{0};              ///< of all
  double rate = 0;              ///< share of the peak that the table counts against
  bool is_search = false;       ///< the best of a search (MAMF): what e0 comes from, not a test
};

struct KernelTable {
  std::string file;
  std::vector<MeasuredKernel> rows;
  std::vector<ValidationRow> skipped;
};

/// \throws TraceError  at a missing column, an unknown kind or type, a bad number
[[nodiscard]] KernelTable read_kernel_table(const CsvTable& table);

/// Of the kernels of a row, one after the other.
[[nodiscard]] Seconds predicted_time(const MeasuredKernel& row, const KernelEfficiency& efficiency);

/// Every row of every table; a row's `source` is its group.
[[nodiscard]] Validation validate_kernels(std::span<const std::string> paths,
                                          const Calibration& calibration = {});

/// A line a group (n, mean, median, p90 and worst absolute error), the reasons for skipping.
/// \param rows  also every row
[[nodiscard]] std::string kernels_text(const Validation& validation, bool rows);

/// Mean of the absolute errors of rows that were compared; 0: none.
[[nodiscard]] double mean_error(std::span<const ValidationRow> rows);

}  // namespace zerosim
