// The cluster of an experiment file, as a cluster file would state it.

#include <algorithm>
#include <cmath>
#include <string>
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

std::string gbps_text(double gbps) {
  return format("{:g}Gb/s", gbps);
}

bool is_set(const ExperimentInputs& inputs, const char* variable) {
  const EnvironmentVariable* found = inputs.environment.find(variable);
  return found != nullptr && !found->value.empty() && found->value != "0";
}

/// Kind of the links inside a node; empty: not known.
std::string intra_kind(const ExperimentInputs& inputs) {
  return is_set(inputs, "NCCL_P2P_DISABLE") ? "pcie_no_p2p" : inputs.cluster.intra_node.kind;
}

bool is_of_kind(IntraNode intra, const std::string& kind) {
  switch (intra) {
    case IntraNode::NvSwitch:
      return kind.empty() || kind == "nvswitch" || kind == "nvlink";
    case IntraNode::NvLinkMesh:
      return kind.empty() || kind == "nvlink";
    case IntraNode::Pcie:
      return kind.empty() || kind == "pcie";
    case IntraNode::PcieHostStaged:
      return kind.empty() || kind == "pcie_no_p2p";
  }
  return false;
}

const std::vector<std::string>& intra_kinds() {
  static const std::vector<std::string> kKinds = {"nvlink", "nvswitch", "pcie", "pcie_no_p2p"};
  return kKinds;
}

const std::vector<std::string>& inter_kinds() {
  static const std::vector<std::string> kKinds = {"infiniband", "roce", "efa", "ethernet"};
  return kKinds;
}

void check_kind(const LinkInputs& link, const char* key, const std::vector<std::string>& known) {
  if (link.kind.empty() || std::find(known.begin(), known.end(), link.kind) != known.end()) return;
  throw ConfigError(link.where,
                    format("cluster.{}.kind: found \"{}\", expected one of {}{}", key, link.kind,
                           join(known, ", "), did_you_mean(link.kind, known)));
}

/// A preset that is such a node; empty: none.
std::string preset_of(const ExperimentInputs& inputs, const std::string& gpu) {
  for (const ClusterPreset& preset : cluster_presets()) {
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
  if (kind == "nvswitch") return kind;
  if (kind == "nvlink") return meshes ? "nvlink-mesh" : "nvswitch";
  if (kind == "pcie") return kind;
  if (kind == "pcie_no_p2p") return "pcie-host-staged";
  if (gpu.nvlink_links < kLinksOfAModule) return "pcie";
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
    if (is_set(inputs_, "NCCL_IB_DISABLE")) return "tcp";
    const std::string& kind = inputs_.cluster.inter_node.kind;
    return kind == "ethernet" ? "tcp" : kind;
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
  return !inputs.cluster.gpu.empty();
}

bool knows_gpu_memory(const ExperimentInputs& inputs) {
  return knows_gpu(inputs) || inputs.cluster.gpu_memory_gib;
}

Cluster cluster_of(const ExperimentInputs& inputs) {
  check_kind(inputs.cluster.intra_node, "intra_node", intra_kinds());
  check_kind(inputs.cluster.inter_node, "inter_node", inter_kinds());
  try {
    const ClusterText text(inputs);
    const auto parsed = [&](int used_nics) {
      return parse_cluster(to_text(text.cluster(used_nics)), "cluster");
    };
    Cluster cluster = parsed(0);
    const bool shares_more = cluster.nodes > 1 && cluster.used_nics < cluster.node.nics;
    if (shares_more && inputs.cluster.inter_node.gbps) cluster = parsed(cluster.used_nics);
    if (!knows_gpu(inputs)) {
      cluster.assumptions.push_back(format("cluster.gpu is not known: {} stands in", kStandIn));
    }
    return cluster;
  } catch (const ConfigError& error) {
    throw ConfigError(inputs.cluster.where, error.what(), error.code());
  }
}

}  // namespace zerosim
