#include "topology/gpu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

/// One row as datasheets print it. TFLOPS are dense; MiB of L2; GB/s are decimal; `nvlink` is the
/// sum of one direction. `memory_gib` is what the framework reports as total, which is less than
/// the product name says: part of it belongs to the driver and to error correction.
struct Row {
  const char* name;
  double fp32, tf32, fp16, bf16, fp8;
  double memory_gib;
  double memory_gbps;
  double l2_mib;
  int sm_count;  ///< 0: not published
  double power;  ///< limit of the board, W
  double nvlink_gbps;
  int nvlink_links;
  int pcie_generation;
  double best_matmul;  ///< highest bf16 GEMM rate found by search, TFLOPS
  int compute_capability;
  const char* source;
};

// clang-format off
constexpr auto kRows = std::to_array<Row>({
//   name, fp32, tf32, fp16, bf16, fp8 (TFLOPS), memory (GiB), GB/s, L2 (MiB), SMs, power (W),
//   NVLink (GB/s), links, PCIe, best GEMM (TFLOPS), compute capability, source
    {"V100-SXM2-16", 15.7, 0, 125, 0, 0, 14.90, 900, 6, 80, 300, 150, 6, 3, 0, 70,
     "NVIDIA V100 datasheet; memory: 16 GB of the product name taken as decimal, no reported total known"},
    {"V100-SXM2-32", 15.7, 0, 125, 0, 0, 31.75, 900, 6, 80, 300, 150, 6, 3, 0, 70,
     "NVIDIA V100 datasheet; memory: total in a public out-of-memory report"},
    {"V100-SXM3-32", 16.4, 0, 131, 0, 0, 31.75, 981, 6, 80, 350, 150, 6, 3, 0, 70,
     "NVIDIA DGX-2 user guide (450 W variant exists); memory: as V100-SXM2-32, same stacks"},
    {"V100-PCIe", 14, 0, 112, 0, 0, 31.75, 900, 6, 80, 250, 0, 0, 3, 0, 70,
     "NVIDIA V100 datasheet; memory: as V100-SXM2-32, same stacks"},
    {"A100-SXM4-40", 19.5, 156, 312, 312, 0, 39.4, 1555, 40, 108, 400, 300, 12, 4, 271.2, 80,
     "NVIDIA A100 datasheet; ml-engineering compute/accelerator (MAMF); memory: total in public out-of-memory reports"},
    {"A100-SXM4-80", 19.5, 156, 312, 312, 0, 79.3, 2039, 40, 108, 400, 300, 12, 4, 271.2, 80,
     "NVIDIA A100 datasheet; ml-engineering (MAMF); memory: total in public out-of-memory reports"},
    {"A100-PCIe-40", 19.5, 156, 312, 312, 0, 39.4, 1555, 40, 108, 250, 300, 12, 4, 252.9, 80,
     "NVIDIA A100 datasheet (NVLink only by bridge to one peer); MAMF measured on 80 GB PCIe; memory: total in a public report"},
    {"A100-PCIe-80", 19.5, 156, 312, 312, 0, 79.3, 1935, 40, 108, 300, 300, 12, 4, 252.9, 80,
     "NVIDIA A100 datasheet (bridge pairs); memory: as A100-SXM4-80, same stacks"},
    {"A800-SXM4-80", 19.5, 156, 312, 312, 0, 79.3, 2039, 40, 108, 400, 200, 8, 4, 0, 80,
     "NV8 in public topo outputs; memory: total in public out-of-memory reports (79.30 to 79.35)"},
    {"H100-SXM5-80", 67, 494.5, 989, 989, 1979, 79.1, 3350, 50, 132, 700, 450, 18, 5, 794.5, 90,
     "NVIDIA H100 datasheet; ml-engineering (MAMF bf16 794.5; fp8 1402.6); memory: total in a public out-of-memory report"},
    {"H100-SXM-96-HBM2e", 67, 494.5, 989, 989, 1979, 89.41, 2400, 50, 132, 500, 450, 18, 5, 0, 90,
     "torchtitan benchmark pages (96 GB HBM2e 2.4 TB/s); 500 W; peak rates are not published: those of H100-SXM5-80, the same chip, which the power limit lowers; memory: 96 GB of the product name taken as decimal, no reported total known"},
    {"H100-PCIe-80", 51, 378, 756, 756, 1513, 74.51, 2000, 50, 114, 350, 300, 12, 5, 0, 90,
     "NVIDIA H100 datasheet (bridge pairs 600 GB/s duplex); memory: 80 GB of the product name taken as decimal, no reported total known"},
    {"H100-NVL-94", 60, 417.5, 835, 835, 1670, 87.54, 3938, 50, 132, 400, 300, 12, 5, 0, 90,
     "NVIDIA H100 NVL datasheet per GPU (835 dense fp16); memory: 94 GB of the product name taken as decimal, no reported total known"},
    {"H200-SXM-141", 67, 494.5, 989, 989, 1979, 140.4, 4800, 50, 132, 700, 450, 18, 5, 794.5, 90,
     "NVIDIA H200 datasheet; ml-engineering ('H200 is the same'; fp8 1453.4); memory: total in a public report"},
    {"H20-SXM", 44, 74, 148, 148, 296, 89.41, 4000, 60, 78, 400, 450, 18, 5, 0, 90,
     "NVIDIA H20 published figures (secondary sources); memory: 96 GB of the product name taken as decimal, no reported total known"},
    {"GH200-96", 67, 494.5, 989, 989, 1979, 89.41, 4000, 50, 132, 900, 450, 18, 5, 828.6, 90,
     "NVIDIA GH200 datasheet; MAMF on 141 GB 900 W part; memory: 96 GB of the product name taken as decimal, no reported total known"},
    {"B200-SXM-180", 75, 1125, 2250, 2250, 4500, 179, 8000, 126, 148, 1000, 900, 18, 5, 1745, 100,
     "ml-engineering tables; NVIDIA DGX B200 datasheet; MAMF fp8 3432.5; memory: total in a public report"},
    {"GB200-186", 80, 1250, 2500, 2500, 5000, 173.23, 8000, 126, 152, 1200, 900, 18, 6, 1822, 100,
     "ml-engineering tables; NVIDIA GB200 NVL72; MAMF fp8 3615.6; memory: 186 GB of the product name taken as decimal, no reported total known"},
    {"B300-SXM-288", 75, 1125, 2250, 2250, 4500, 268.22, 8000, 126, 148, 1100, 900, 18, 6, 1769, 103,
     "ml-engineering tables (TDP approximate); memory: 288 GB of the product name taken as decimal, no reported total known"},
    {"GB300-288", 80, 1250, 2500, 2500, 5000, 268.22, 8000, 126, 0, 1400, 900, 18, 6, 0, 103,
     "NVIDIA GB300 NVL72 page per GPU (dense = half of sparse); memory: 288 GB of the product name taken as decimal, no reported total known"},
    {"A10-24", 31.2, 62.5, 125, 125, 0, 22.5, 600, 6, 72, 150, 0, 0, 4, 0, 86,
     "NVIDIA A10 datasheet; memory: total in a public report"},
    {"A10G-24", 35, 35, 70, 70, 0, 22.35, 600, 6, 80, 300, 0, 0, 4, 0, 86,
     "AWS g5 (A10G; tensor rate about half of A10 per published figures); memory: 24 GB of the product name taken as decimal, no reported total known"},
    {"A40-48", 37.4, 74.8, 149.7, 149.7, 0, 44.70, 696, 6, 84, 300, 56.2, 4, 4, 0, 86,
     "NVIDIA A40 datasheet (dense = half of sparse; NVLink by bridge); memory: 48 GB of the product name taken as decimal, no reported total known"},
    {"L4-24", 30.3, 60, 121, 121, 242, 22.35, 300, 48, 58, 72, 0, 0, 4, 0, 89,
     "NVIDIA L4 datasheet (sparse figures halved); memory: 24 GB of the product name taken as decimal, no reported total known"},
    {"L40S-48", 91.6, 183, 362, 362, 733, 44.70, 864, 96, 142, 350, 0, 0, 4, 0, 89,
     "NVIDIA L40S datasheet; memory: 48 GB of the product name taken as decimal, no reported total known"},
    {"RTX3090-24", 35.6, 35.6, 142, 71, 0, 23.7, 936, 6, 82, 350, 56.2, 4, 4, 0, 86,
     "NVIDIA GA102 whitepaper (fp16 142 with fp16 accumulate; 71 with fp32 accumulate = training rate); memory: total in a public report"},
    {"RTX4090-24", 82.6, 82.6, 330, 165, 330, 23.6, 1008, 72, 128, 450, 0, 0, 4, 0, 89,
     "NVIDIA Ada whitepaper (fp16 acc 330; fp32 acc 165 = training rate; fp8 330 fp32 acc); memory: total in a public report"},
    {"RTX5090-32", 104.8, 104.8, 419, 209.5, 419, 29.80, 1792, 96, 170, 575, 0, 0, 5, 0, 120,
     "NVIDIA RTX Blackwell whitepaper (fp32 accumulate 209.5); memory: 32 GB of the product name taken as decimal, no reported total known"},
    {"RTX-A6000-48", 38.7, 77.4, 154.8, 154.8, 0, 47.5, 768, 6, 84, 300, 56.2, 4, 4, 0, 86,
     "NVIDIA RTX A6000 datasheet (dense = half of 309.7 sparse); memory: total in a public report of a 48 GB card"},
    {"TITAN-RTX-24", 16.3, 0, 130.5, 0, 0, 23.6, 672, 6, 72, 280, 50, 2, 3, 0, 75,
     "NVIDIA Turing whitepaper (fp32 accumulate at full rate; NVLink by bridge); memory: total in a public report"},
    {"QUADRO-RTX-6000-24", 16.3, 0, 130.5, 0, 0, 23.6, 672, 6, 72, 295, 50, 2, 3, 0, 75,
     "NVIDIA Turing whitepaper (NVLink by bridge); memory: total in a public report"},
    {"RTX2080Ti-11", 14.2, 0, 53.8, 0, 0, 10.24, 616, 5.5, 68, 260, 50, 2, 3, 0, 75,
     "NVIDIA Turing whitepaper (Founders Edition fp32; tensor rate with fp32 accumulate at reference clock; 107.6 with fp16 accumulate); memory: 11 GB of the product name taken as decimal, no reported total known"},
    {"RTX-6000-Ada-48", 91.1, 182.1, 364.2, 364.2, 728.5, 44.70, 960, 96, 142, 300, 0, 0, 4, 0, 89,
     "NVIDIA RTX 6000 Ada datasheet (dense = half of sparse); memory: 48 GB of the product name taken as decimal, no reported total known"},
});
// clang-format on

FlopsPerSecond tera(double tflops) {
  return FlopsPerSecond(tflops * 1e12);
}
Bytes scaled(double count, double unit) {
  return Bytes(static_cast<std::int64_t>(std::llround(count * unit)));
}

GpuSpec spec_of(const Row& row) {
  GpuSpec spec;
  spec.name = row.name;
  spec.fp32 = tera(row.fp32);
  spec.tf32 = tera(row.tf32);
  spec.fp16 = tera(row.fp16);
  spec.bf16 = tera(row.bf16);
  spec.fp8 = tera(row.fp8);
  spec.memory = scaled(row.memory_gib, 0x1p30);
  spec.memory_bandwidth = BytesPerSecond(row.memory_gbps * 1e9);
  spec.l2 = scaled(row.l2_mib, 0x1p20);
  spec.sm_count = row.sm_count;
  spec.power_limit = row.power;
  spec.nvlink = BytesPerSecond(row.nvlink_gbps * 1e9);
  spec.nvlink_links = row.nvlink_links;
  spec.pcie_generation = row.pcie_generation;
  spec.best_matmul = tera(row.best_matmul);
  spec.compute_capability = row.compute_capability;
  spec.source = row.source;
  return spec;
}

/// Of those of its architecture whose SMs are published the one with the nearest peak.
const Row& nearest_with_sms(const Row& row) {
  const Row* nearest = nullptr;
  for (const Row& other : kRows) {
    if (other.sm_count == 0 || other.compute_capability / 10 != row.compute_capability / 10) {
      continue;
    }
    const auto distance = [&](const Row& of) { return std::abs(of.bf16 - row.bf16); };
    if (nearest == nullptr || distance(other) < distance(*nearest)) nearest = &other;
  }
  ZS_CHECK(nearest != nullptr, "a GPU of an architecture whose SMs nobody has published");
  return *nearest;
}

std::vector<GpuSpec> all_specs() {
  std::vector<GpuSpec> specs;
  specs.reserve(kRows.size());
  for (const Row& row : kRows) {
    GpuSpec& spec = specs.emplace_back(spec_of(row));
    if (row.sm_count > 0) continue;
    const Row& relative = nearest_with_sms(row);
    spec.sm_count = relative.sm_count;
    spec.sm_count_assumed = relative.name;
  }
  return specs;
}

}  // namespace

const std::vector<GpuSpec>& gpu_specs() {
  static const std::vector<GpuSpec> kSpecs = all_specs();
  return kSpecs;
}

const std::vector<std::string>& gpu_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    names.reserve(gpu_specs().size());
    for (const GpuSpec& spec : gpu_specs()) names.push_back(spec.name);
    return names;
  }();
  return kNames;
}

const std::vector<std::string>& unsupported_gpus() {
  static const std::vector<std::string> kNames = {"MI250X-128", "MI300X-192", "MI325X-256"};
  return kNames;
}

bool is_simulated_gpu(const std::string& name) {
  return std::any_of(gpu_specs().begin(), gpu_specs().end(),
                     [&](const GpuSpec& spec) { return spec.name == name; });
}

const GpuSpec& gpu_spec(const std::string& name) {
  for (const GpuSpec& spec : gpu_specs()) {
    if (spec.name == name) return spec;
  }
  const std::vector<std::string>& unsupported = unsupported_gpus();
  if (std::find(unsupported.begin(), unsupported.end(), name) != unsupported.end()) {
    throw ConfigError(format("GPU {} is not simulated: it is not NVIDIA's", name));
  }
  throw ConfigError(format("unknown GPU \"{}\"{} (known: {})", name,
                           did_you_mean(name, gpu_names()), join(gpu_names(), ", ")));
}

bool have_same_links(const GpuSpec& a, const GpuSpec& b) {
  return a.nvlink == b.nvlink && a.nvlink_links == b.nvlink_links &&
         a.pcie_generation == b.pcie_generation &&
         a.compute_capability / 10 == b.compute_capability / 10;
}

}  // namespace zerosim
