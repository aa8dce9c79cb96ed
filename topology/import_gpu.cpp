#include "topology/import_gpu.h"

#include <algorithm>
#include <array>

#include "sim/base/text.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

struct PciId {
  const char* device;
  const char* gpu;
};

// The PCI ID Repository (pci-ids.ucw.cz), vendor 10de; those after 2023-04 from its current list.
constexpr std::array kDeviceIds = std::to_array<PciId>({
    {"1db1", "V100-SXM2-16"},    {"1db5", "V100-SXM2-32"},
    {"1db8", "V100-SXM3-32"},    {"1db6", "V100-PCIe"},
    {"1e02", "TITAN-RTX-24"},    {"1e04", "RTX2080Ti-11"},
    {"1e07", "RTX2080Ti-11"},    {"1e30", "QUADRO-RTX-6000-24"},
    {"20b0", "A100-SXM4-40"},    {"20b1", "A100-PCIe-40"},
    {"20b2", "A100-SXM4-80"},    {"20b5", "A100-PCIe-80"},
    {"20f1", "A100-PCIe-40"},    {"20f3", "A800-SXM4-80"},
    {"2204", "RTX3090-24"},      {"2230", "RTX-A6000-48"},
    {"2235", "A40-48"},          {"2236", "A10-24"},
    {"2237", "A10G-24"},         {"2321", "H100-NVL-94"},
    {"2329", "H20-SXM"},         {"2330", "H100-SXM5-80"},
    {"2331", "H100-PCIe-80"},    {"2335", "H200-SXM-141"},
    {"2342", "GH200-96"},        {"2684", "RTX4090-24"},
    {"26b1", "RTX-6000-Ada-48"}, {"26b9", "L40S-48"},
    {"27b8", "L4-24"},           {"2901", "B200-SXM-180"},
    {"2941", "GB200-186"},       {"2b85", "RTX5090-32"},
    {"3182", "B300-SXM-288"},    {"31c2", "GB300-288"},
});

/// Kinds whose pairs show so many NVLinks in public `nvidia-smi topo -m` outputs
/// (data/topo/README.md), the usual one first; a whole board unless `pair` (two bridged cards). A
/// GPU behind NVSwitches shows all its links, one of a mesh those to one peer: GH200 18 and 6.
struct NvCount {
  int links;
  bool pair;
  std::vector<std::string> kinds;
};

const std::vector<NvCount>& nv_counts() {
  static const std::vector<std::string> kV100 = {"V100-SXM2-32", "V100-SXM2-16"};
  static const std::vector<std::string> kTuring = {"TITAN-RTX-24", "QUADRO-RTX-6000-24",
                                                   "RTX2080Ti-11"};
  static const std::vector<std::string> kA100 = {"A100-SXM4-80", "A100-SXM4-40"};
  static const std::vector<NvCount> kCounts = {
      {1, false, kV100},
      {2, false, kV100},
      {2, true, kTuring},
      {4, false, kA100},
      {4, true, {"RTX3090-24", "RTX-A6000-48", "A40-48"}},
      {6, false, {"V100-SXM3-32", "H100-SXM5-80", "H200-SXM-141", "GH200-96"}},
      {8, false, {"A800-SXM4-80"}},
      {12, false, kA100},
      {12, true, {"A100-PCIe-80", "A100-PCIe-40", "H100-PCIe-80", "H100-NVL-94"}},
      {18,
       false,
       {"H100-SXM5-80", "H200-SXM-141", "H20-SXM", "GH200-96", "B200-SXM-180", "GB200-186",
        "B300-SXM-288", "GB300-288"}}};
  return kCounts;
}

/// Apart from memory, one stands for the other.
bool are_alike(const GpuSpec& a, const GpuSpec& b) {
  return a.nvlink == b.nvlink && a.nvlink_links == b.nvlink_links &&
         a.compute_capability == b.compute_capability && a.bf16 == b.bf16 && a.fp16 == b.fp16;
}

std::vector<std::string> candidates_by_nvlinks(const GpuEvidence& evidence) {
  std::vector<std::string> kinds;
  for (const NvCount& count : nv_counts()) {
    const bool one_peer = evidence.nvlinks == evidence.pair_nvlinks;
    const bool bridge = one_peer && (!evidence.switched || evidence.gpus == 2);
    if (count.links != evidence.pair_nvlinks || (count.pair && !bridge)) continue;
    for (const std::string& kind : count.kinds) {
      const int all = gpu_spec(kind).nvlink_links;
      const bool whole = !evidence.switched || count.pair || count.links == all;
      if (whole && evidence.nvlinks <= all) kinds.push_back(kind);
    }
  }
  return kinds;
}

std::vector<std::string> candidates(const GpuEvidence& evidence) {
  std::vector<std::string> kinds;
  if (evidence.nvlinks > 0) {
    kinds = candidates_by_nvlinks(evidence);
  } else {
    for (const GpuSpec& spec : gpu_specs()) {
      if (!(evidence.states_nvlinks && is_board_gpu(spec))) kinds.push_back(spec.name);
    }
  }
  const int capability = evidence.compute_capability;
  std::erase_if(kinds, [&](const std::string& kind) {
    return capability > 0 && gpu_spec(kind).compute_capability != capability;
  });
  return kinds;
}

/// "sm 90 and NV18"; "" if it is nothing.
std::string what_is_told(const GpuEvidence& evidence) {
  std::vector<std::string> parts;
  if (evidence.compute_capability > 0) {
    parts.push_back(format("sm {}", evidence.compute_capability));
  }
  if (evidence.nvlinks > 0) parts.push_back(format("NV{}", evidence.pair_nvlinks));
  return join(parts, " and ");
}

[[noreturn]] void fail_unknown(const GpuEvidence& evidence, const std::vector<std::string>& kinds) {
  const std::string told = what_is_told(evidence);
  if (told.empty()) {
    throw ConfigError(evidence.where, format("nothing here tells which GPU this is; give --gpu, "
                                             "one of {}",
                                             join(kinds, ", ")));
  }
  if (kinds.empty()) {
    throw ConfigError(evidence.where,
                      format("found {}, which no GPU that zerosim knows shows by itself; if it is "
                             "right, give --gpu",
                             told));
  }
  throw ConfigError(evidence.where, format("{} does not tell which GPU this is; give --gpu, one of "
                                           "{}",
                                           told, join(kinds, ", ")));
}

void check_given(const GpuEvidence& evidence, const GpuSpec& gpu) {
  const int stated = evidence.compute_capability;
  if (stated > 0 && gpu.compute_capability != stated) {
    throw ConfigError(evidence.where, format("found sm {}, but {} is sm {}", stated, gpu.name,
                                             gpu.compute_capability));
  }
  if (evidence.nvlinks > gpu.nvlink_links) {
    throw ConfigError(evidence.where, format("found {} NVLinks at one GPU, but {} has {}",
                                             evidence.nvlinks, gpu.name, gpu.nvlink_links));
  }
}

const GpuSpec& by_elimination(const GpuEvidence& evidence, std::vector<std::string>& told) {
  const std::vector<std::string> kinds = candidates(evidence);
  if (kinds.empty()) fail_unknown(evidence, kinds);
  const GpuSpec& first = gpu_spec(kinds.front());
  const bool alike = std::all_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    return are_alike(gpu_spec(kind), first);
  });
  if (!alike) fail_unknown(evidence, kinds);
  const std::vector<std::string> others(kinds.begin() + 1, kinds.end());
  told.push_back(format(
      "gpu: {}, by {}{}", first.name, what_is_told(evidence),
      others.empty() ? ""
                     : format("; {} would look the same: --gpu says which", join(others, ", "))));
  return first;
}

}  // namespace

const GpuSpec& choose_gpu(const GpuEvidence& evidence, std::vector<std::string>& told) {
  if (evidence.given.empty() && evidence.device_kind.empty()) {
    return by_elimination(evidence, told);
  }
  const bool given = !evidence.given.empty();
  const GpuSpec& gpu = gpu_spec(given ? evidence.given : evidence.device_kind);
  check_given(evidence, gpu);
  if (given && !evidence.device_kind.empty() && evidence.device_kind != gpu.name) {
    told.push_back(format("gpu: {}, as asked for, although the PCI device id is that of {}",
                          gpu.name, evidence.device_kind));
  }
  return gpu;
}

std::string gpu_of_device_id(std::string_view vendor, std::string_view device) {
  if (vendor != "0x10de" || !device.starts_with("0x")) return "";
  for (const PciId& id : kDeviceIds) {
    if (device.substr(2) == id.device) return id.gpu;
  }
  return "";
}

bool is_board_gpu(const GpuSpec& gpu) {
  return gpu.name.find("SXM") != std::string::npos || gpu.name.starts_with("GH") ||
         gpu.name.starts_with("GB");
}

UsualLinks usual_links(const GpuSpec& gpu, int gpus) {
  UsualLinks usual;
  if (!is_board_gpu(gpu) || gpus < 2) return usual;
  if (gpu.name.starts_with("V100-SXM2")) {
    if (gpus > kMaxMeshGpus) return usual;
    for (const NvLinkPair& pair : hybrid_cube_mesh()) {
      if (pair.a < gpus && pair.b < gpus) usual.mesh.push_back(pair);
    }
    usual.sentence = "those of a DGX-1 V100 (hybrid cube mesh)";
  } else if (gpu.name.starts_with("A100") && gpus == 4) {
    usual.mesh = full_mesh(gpus, gpu.nvlink_links);
    usual.sentence = "those of an HGX A100 with 4 GPUs (NV4 between every two)";
  } else {
    usual.switch_links = gpu.nvlink_links;
    usual.sentence = format("{} into NVSwitches at every GPU", gpu.nvlink_links);
  }
  return usual;
}

BytesPerSecond usual_nic_bandwidth(const GpuSpec& gpu) {
  if (!is_board_gpu(gpu)) return 100_Gbps;
  if (gpu.pcie_generation >= 5) return 400_Gbps;
  return gpu.pcie_generation == 4 ? 200_Gbps : 100_Gbps;
}

NetworkKind network_by_name(std::string_view name) {
  if (name.starts_with("rdmap") || name.starts_with("efa")) return NetworkKind::Efa;
  for (const char* prefix : {"eth", "en", "ib", "bond", "lo"}) {
    // "ib0" is IP over InfiniBand: sockets, too.
    if (name.starts_with(prefix)) return NetworkKind::Tcp;
  }
  const bool ethernet = name.starts_with("bnxt") || name.starts_with("irdma");
  return ethernet ? NetworkKind::Roce : NetworkKind::InfiniBand;
}

}  // namespace zerosim
