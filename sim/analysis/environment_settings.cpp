#include "sim/analysis/environment_settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "sim/base/edit_distance.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr std::string_view kAllocConf = "PYTORCH_CUDA_ALLOC_CONF";
constexpr std::string_view kNewerAllocConf = "PYTORCH_ALLOC_CONF";
constexpr std::string_view kNccl = "NCCL_";
constexpr std::string_view kThreads = "OMP_NUM_THREADS";

/// Misspelt by at most so many edits. More would take MKL_NUM_THREADS for OMP_NUM_THREADS.
constexpr std::size_t kMostEdits = 2;

/// NCCL's documented variables that people set (docs.nvidia.com, NCCL user guide, "Environment
/// Variables"), so that a misspelling is found. NCCL_VERSION is what NVIDIA's images set.
constexpr std::array<std::string_view, 46> kNcclVariables = {
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_CHECKS_DISABLE",
    "NCCL_CHECK_POINTERS",
    "NCCL_COMM_BLOCKING",
    "NCCL_CONF_FILE",
    "NCCL_CROSS_NIC",
    "NCCL_CTA_POLICY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_GRAPH_FILE",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_CUDA_SUPPORT",
    "NCCL_IB_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_RETRY_CNT",
    "NCCL_IB_SL",
    "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_TOPO_FILE",
    "NCCL_VERSION",
};

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names(kNcclVariables.begin(), kNcclVariables.end());
  names.insert(names.end(), {kAllocConf, kNewerAllocConf, kThreads});
  return names;
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

/// The known name that `name` is a misspelling of; "" if it is one itself, or like none.
std::string_view meant(const std::string& name) {
  const std::vector<std::string_view> names = known_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return "";
  std::string_view nearest;
  std::size_t least = kMostEdits + 1;
  const std::string upper = upper_case(name);
  for (const std::string_view candidate : names) {
    const std::size_t distance = edit_distance(upper, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

void warn_of_misspellings(const Environment& environment, std::vector<Warning>& warnings) {
  for (const EnvironmentVariable& variable : environment.variables) {
    const std::string_view nearest = meant(variable.name);
    if (nearest.empty()) continue;
    warnings.push_back({"",
                        format("{}: {} is no known variable; did you mean \"{}\"?",
                               to_string(variable.named), variable.name, nearest),
                        variable.named});
  }
}

/// Names that NCCL or later parts read, each once, in the order of the file.
std::vector<std::string> unused_names(const Environment& environment,
                                      const std::vector<std::string>& followed) {
  const auto holds = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<std::string> names;
  for (const EnvironmentVariable& variable : environment.variables) {
    const std::string& name = variable.name;
    const bool later = name == kThreads || (name.starts_with(kNccl) && meant(name).empty());
    if (later && !holds(followed, name) && !holds(names, name)) names.push_back(name);
  }
  return names;
}

void read_alloc_conf(const EnvironmentVariable& variable, EnvironmentSettings& settings) {
  if (variable.needs_expansion) {
    throw ConfigError(variable.where, format("{}: found \"{}\", expected a value that no shell has "
                                             "to expand",
                                             variable.name, variable.value));
  }
  settings.alloc_conf = parse_alloc_conf(variable.value, variable.where);
  settings.warnings = settings.alloc_conf.warnings;
  settings.assumptions.push_back(
      format("allocator: {}={}, from {}", variable.name, variable.value, variable.where.file));
}

}  // namespace

EnvironmentSettings environment_settings(const Environment& environment,
                                         const std::vector<std::string>& followed) {
  EnvironmentSettings settings;
  const EnvironmentVariable* first = environment.find(kAllocConf);
  const EnvironmentVariable* newer = environment.find(kNewerAllocConf);
  if (first != nullptr || newer != nullptr) {
    read_alloc_conf(first != nullptr ? *first : *newer, settings);
  }
  if (first != nullptr && newer != nullptr) {
    settings.warnings.push_back({"",
                                 format("{}: {} has no effect: PyTorch takes {}, which is set too",
                                        to_string(newer->named), kNewerAllocConf, kAllocConf),
                                 newer->named});
  }
  warn_of_misspellings(environment, settings.warnings);
  const std::vector<std::string> unused = unused_names(environment, followed);
  if (!unused.empty()) {
    settings.assumptions.push_back(format("environment: not used yet: {}", join(unused, ", ")));
  }
  return settings;
}

}  // namespace zerosim
