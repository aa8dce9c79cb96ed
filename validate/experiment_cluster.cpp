// The cluster of an experiment file, as a cluster file would state it.

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "validate/experiment.h"

namespace zerosim {

namespace {

/// Stands for a GPU that is not known: figures that depend on it are not told.
constexpr const char* kStandIn = "A100-SXM4-80";
/// Adapters of a node that a cluster file spells out: HDR InfiniBand, or what TCP usually has.
constexpr double kAdapterGbps = 200;
constexpr double kTcpGbps = 25;
constexpr const char* kP2pDisable = "NCCL_P2P_DISABLE";
constexpr const char* kIbDisable = "NCCL_IB_DISABLE";

std::string gbps_text(double gbps) {
  return format("{:g}Gb/s", gbps);
}

bool is_set(const ExperimentInputs& inputs, const char* variable) {
  const EnvironmentVariable* found = inputs.environment.find(variable);
  return found != nullptr && !found->value.empty() && found->value != "0";
}

/// A word for links, in small letters and with hyphens, and the word of a cluster file for it.
struct KindWord {
  std::string_view word;
  std::string_view kind;
};

/// "nvlink": a mesh or a switch, whichever joins so many GPUs.
constexpr auto kIntraWords = std::to_array<KindWord>({
    {"nvlink", "nvlink"},
    {"nvswitch", "nvswitch"},
    {"pcie", "pcie"},
    {"pcie-no-p2p", "pcie-host-staged"},
    {"nvlink-mesh", "nvlink-mesh"},
    {"pcie-host-staged", "pcie-host-staged"},
});
constexpr auto kInterWords = std::to_array<KindWord>({
    {"infiniband", "infiniband"},
    {"roce", "roce"},
    {"efa", "efa"},
    {"ethernet", "tcp"},
    {"ib", "infiniband"},
    {"rocev2", "roce"},
    {"roce-v2", "roce"},
    {"tcp", "tcp"},
});

/// \returns empty if the word is not known, or if none is given.
std::string kind_of(const LinkInputs& link, std::span<const KindWord> words) {
  std::string word = link.kind;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) {
    return c == '_' ? '-' : static_cast<char>(std::tolower(c));
  });
  for (const KindWord& known : words) {
    if (known.word == word) return std::string(known.kind);
  }
  return "";
}

/// What to say about a word that is not known; empty: it is, or there is none.
std::string unknown_kind(const LinkInputs& link, const char* key, std::span<const KindWord> words) {
  if (link.kind.empty() || !kind_of(link, words).empty()) return "";
  std::vector<std::string> known;
  for (const KindWord& word : words) known.emplace_back(word.word);
  return format("cluster.{}.kind: found \"{}\", expected one of {}{}", key, link.kind,
                join(known, ", "), did_you_mean(link.kind, known));
}

/// Of the links that are in use: see `unknown_kind`.
std::vector<std::string> unknown_kinds(const ExperimentInputs& inputs) {
  const ClusterInputs& cluster = inputs.cluster;
  std::vector<std::string> unknown;
  if (cluster.gpus_per_node > 1 && !is_set(inputs, kP2pDisable)) {
    unknown.push_back(unknown_kind(cluster.intra_node, "intra_node", kIntraWords));
  }
  if (cluster.nodes > 1 && !is_set(inputs, kIbDisable)) {
    unknown.push_back(unknown_kind(cluster.inter_node, "inter_node", kInterWords));
  }
  std::erase(unknown, "");
  return unknown;
}

/// Kind of the links inside a node; empty: not known.
std::string intra_kind(const ExperimentInputs& inputs) {
  return is_set(inputs, kP2pDisable) ? "pcie-host-staged"
                                     : kind_of(inputs.cluster.intra_node, kIntraWords);
}

/// \param kind  empty: any
bool is_of_kind(IntraNode intra, const std::string& kind) {
  switch (intra) {
    case IntraNode::NvSwitch:
      return kind.empty() || kind == "nvswitch" || kind == "nvlink";
    case IntraNode::NvLinkMesh:
      return kind.empty() || kind == "nvlink-mesh" || kind == "nvlink";
    case IntraNode::Pcie:
      return kind.empty() || kind == "pcie";
    case IntraNode::PcieHostStaged:
      return kind.empty() || kind == "pcie-host-staged";
  }
  return false;
}

/// What is taken for what is not known, and what the environment turns off.
std::vector<std::string> assumptions_of(const ExperimentInputs& inputs) {
  std::vector<std::string> assumptions;
  if (!knows_gpu(inputs)) {
    const std::string& gpu = inputs.cluster.gpu;
    assumptions.push_back(format("cluster.gpu is not {}: {} stands in",
                                 gpu.empty() ? "known" : "simulated, " + gpu, kStandIn));
  }
  if (is_set(inputs, kP2pDisable)) {
    assumptions.push_back(
        format("environment: {}: GPUs of a node talk through host memory", kP2pDisable));
  }
  if (is_set(inputs, kIbDisable)) {
    assumptions.push_back(format("environment: {}: nodes talk by TCP", kIbDisable));
  }
  for (const std::string& unknown : unknown_kinds(inputs)) {
    assumptions.push_back(unknown + ": taken as not known");
  }
  return assumptions;
}

/// A preset that is such a node; empty: none.
std::string preset_of(const ExperimentInputs& inputs, const std::string& gpu) {
  for (const ClusterPreset& preset : cluster_presets()) {
    if (!preset.simulated) continue;
    const Cluster cluster = load_cluster(preset.name);
    if (cluster.node.gpu == gpu && cluster.node.gpus >= inputs.cluster.gpus_per_node &&
        is_of_kind(cluster.node.intra, intra_kind(inputs))) {
      return preset.name;
    }
  }
  return "";
}

/// The word of a cluster file for the links of `gpus` GPUs.
std::string spelled_out_kind(const std::string& kind, const GpuSpec& gpu, int gpus) {
  constexpr int kLargestBoard = 4;  // more NVLink GPUs in a node meet in switches
  const bool meshes = gpus > 1 && gpus <= kLargestBoard && gpu.nvlink_links >= gpus - 1;
  constexpr int kLinksOfAModule = 6;  // fewer are a bridge between two cards
  if (!kind.empty() && kind != "nvlink") return kind;
  if (kind.empty() && gpu.nvlink_links < kLinksOfAModule) return "pcie";
  return meshes ? "nvlink-mesh" : "nvswitch";
}

class ClusterText {
 public:
  explicit ClusterText(const ExperimentInputs& inputs) : inputs_(inputs) {}

  /// \param used_nics  that a rate of the whole node is shared by; 0: by all of the node
  [[nodiscard]] JsonValue cluster(int used_nics) const {
    JsonValue json(Json::objectValue);
    json["version"] = 1;
    json["name"] =
        format("{} x {} {}", inputs_.cluster.nodes, inputs_.cluster.gpus_per_node, gpu());
    json["nodes"] = inputs_.cluster.nodes;
    json["gpus_per_node"] = inputs_.cluster.gpus_per_node;
    json["node"] = node(used_nics);
    return json;
  }

 private:
  [[nodiscard]] std::string gpu() const {
    return knows_gpu(inputs_) ? inputs_.cluster.gpu : kStandIn;
  }

  [[nodiscard]] JsonValue node(int used_nics) const {
    const ClusterInputs& cluster = inputs_.cluster;
    JsonValue node(Json::objectValue);
    const std::string preset = preset_of(inputs_, gpu());
    if (preset.empty()) {
      node["gpu"] = gpu();
      node["gpus"] = cluster.gpus_per_node;
      node["intra"]["kind"] =
          spelled_out_kind(intra_kind(inputs_), gpu_spec(gpu()), cluster.gpus_per_node);
    } else {
      node["preset"] = preset;
    }
    if (cluster.intra_node.gbps) {
      node["intra"]["ring_bandwidth"] = gbps_text(*cluster.intra_node.gbps);
    }
    if (cluster.gpu_memory_gib) {
      node["gpu_memory"] = format("{}B", std::llround(*cluster.gpu_memory_gib * 0x1p30));
    }
    add_nics(node, used_nics);
    if (cluster.host_memory_gib) {
      node["host"]["memory"] = format("{}B", std::llround(*cluster.host_memory_gib * 0x1p30));
    }
    if (cluster.host_cpu_cores) node["host"]["cores"] = *cluster.host_cpu_cores;
    return node;
  }

  [[nodiscard]] std::string network_kind() const {
    return is_set(inputs_, kIbDisable) ? "tcp" : kind_of(inputs_.cluster.inter_node, kInterWords);
  }

  /// What the preset has, where nothing is said.
  void add_nics(JsonValue& node, int used_nics) const {
    if (inputs_.cluster.nodes == 1) return;
    const std::string kind = network_kind();
    const std::optional<double>& stated = inputs_.cluster.inter_node.gbps;
    const bool preset = node.isMember("preset");
    if (preset && !stated && kind != "tcp") {
      if (!kind.empty()) node["nics"]["kind"] = kind;
      return;
    }
    const double usual =
        kind == "tcp" ? kTcpGbps : kAdapterGbps * std::max(1, inputs_.cluster.gpus_per_node / 2);
    const double gbps = stated.value_or(usual);
    const auto wanted = static_cast<int>(std::ceil(gbps / kAdapterGbps));
    const int count = std::clamp(wanted, 1, inputs_.cluster.gpus_per_node);
    node["nics"]["count"] = count;
    node["nics"]["bandwidth"] = gbps_text(gbps / (used_nics > 0 ? used_nics : count));
    if (!kind.empty()) node["nics"]["kind"] = kind;
  }

  const ExperimentInputs& inputs_;
};

}  // namespace

bool knows_gpu(const ExperimentInputs& inputs) {
  const std::vector<std::string>& unsupported = unsupported_gpus();
  const std::string& gpu = inputs.cluster.gpu;
  return !gpu.empty() &&
         std::find(unsupported.begin(), unsupported.end(), gpu) == unsupported.end();
}

bool knows_gpu_memory(const ExperimentInputs& inputs) {
  return knows_gpu(inputs) || inputs.cluster.gpu_memory_gib;
}

std::string what_time_lacks(const ExperimentInputs& inputs) {
  if (inputs.cluster.gpu.empty()) return "the GPU is not known";
  if (!knows_gpu(inputs)) return format("cluster.gpu: {} is not simulated", inputs.cluster.gpu);
  return join(unknown_kinds(inputs), "; ");
}

const std::vector<std::string>& cluster_variables() {
  static const std::vector<std::string> kNames = {kP2pDisable, kIbDisable};
  return kNames;
}

Cluster cluster_of(const ExperimentInputs& inputs) {
  try {
    const ClusterText text(inputs);
    const auto parsed = [&](int used_nics) {
      return parse_cluster(to_text(text.cluster(used_nics)), "cluster");
    };
    Cluster cluster = parsed(0);
    const bool shares_more = cluster.nodes > 1 && cluster.used_nics < cluster.node.nics;
    if (shares_more && inputs.cluster.inter_node.gbps) cluster = parsed(cluster.used_nics);
    for (std::string& assumption : assumptions_of(inputs)) {
      cluster.assumptions.push_back(std::move(assumption));
    }
    return cluster;
  } catch (const ConfigError& error) {
    throw ConfigError(inputs.cluster.where, error.what(), error.code());
  }
}

}  // namespace zerosim
