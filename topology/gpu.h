/// \file
/// Devices: the columns of data/gpus.csv, one row a kind.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"

namespace zerosim {

/// Datasheet figures of one GPU, dense rates. Zero where none is published.
struct GpuSpec {
  std::string name;  ///< "A100-SXM4-80"
  FlopsPerSecond fp32, tf32, fp16, bf16, fp8;
  Bytes memory;  ///< decimal GB of the product name as the framework reports them in GiB
  BytesPerSecond memory_bandwidth;
  Bytes l2;
  int sm_count = 0;  ///< at least 1
  /// Whose `sm_count` that is where this GPU's is not published: of those of its architecture the
  /// one with the nearest peak in bf16. It enters how products and attention fill the SMs, and what
  /// a collective's channels take of them. Empty: it is this GPU's own.
  std::string sm_count_assumed;
  double power_limit = 0;  ///< W, of the whole board as it is sold
  double power_cap = 0;    ///< W that an operator allows it; 0: power_limit
  BytesPerSecond nvlink;   ///< one direction, all links
  int nvlink_links = 0;
  int pcie_generation = 0;
  FlopsPerSecond best_matmul;  ///< highest bf16 GEMM rate found by search (MAMF); 0: not published
  int compute_capability = 0;  ///< 70, 80, 86, 89, 90, 100
  std::string source;
};

/// Share of `power_limit` that does not depend on the SMs' clock: memory, links, leakage.
inline constexpr double kIdlePower = 0.15;

/// Rows of data/gpus.csv that are not simulated: GPUs that are not NVIDIA's.
[[nodiscard]] const std::vector<std::string>& unsupported_gpus();

/// Whether `gpu_spec` knows it.
[[nodiscard]] bool is_simulated_gpu(const std::string& name);

/// \throws ConfigError  for an unknown name, with the nearest known one; for an unsupported one.
[[nodiscard]] const GpuSpec& gpu_spec(const std::string& name);
[[nodiscard]] const std::vector<GpuSpec>& gpu_specs();
/// Names of `gpu_specs`, in its order.
[[nodiscard]] const std::vector<std::string>& gpu_names();

/// Whether one may stand in the other's place in a node: the same NVLinks, generation of PCIe and
/// architecture (the major compute capability), on which NCCL's rules depend.
[[nodiscard]] bool have_same_links(const GpuSpec& a, const GpuSpec& b);

}  // namespace zerosim
