#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "topology/cluster.h"
#include "topology/nccl_graph.h"
#include "topology/node_graph.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// The search for rings of a mesh takes no more (node_graph.h).
constexpr int kMaxMeshGpus = 8;
constexpr std::int64_t kMaxGpus = 1024;  // of one node: NVLink domains have at most 576
constexpr std::int64_t kMaxNodes = 1 << 20;

/// A cluster as a preset or a file states it, before the node is built.
struct Description {
  std::string name;
  Machine machine;
  std::optional<BytesPerSecond> ring_bandwidth;
  Bytes gpu_memory;  ///< 0: the GPU's
  int nodes = 1;
  int gpus_per_node = 0;  ///< 0: all
  Fabric fabric;
  double price_per_gpu_hour = 0;
  std::vector<std::string> assumptions;
  SourceLocation nodes_place;  ///< for messages: where `nodes` stands
  SourceLocation gpus_per_node_place;
  bool preset_network = true;  ///< the NICs are those of the machine's file
};

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const GpuSpec& spec : gpu_specs()) names.push_back(spec.name);
  return names;
}

/// Refuses keys that are not in the list, before a misspelt one shows up as a missing one.
void expect_keys(JsonObject& object, std::initializer_list<const char*> known) {
  for (const char* key : known) static_cast<void>(object.has(key));
  object.reject_unknown_keys();
}

/// The value of `key` among `known` names, or an error that names the nearest.
std::string one_of(JsonObject& object, const std::string& key,
                   const std::vector<std::string>& known, std::string_view what) {
  std::string name = object.string(key);
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  std::string hint = did_you_mean(name, known);
  if (hint.empty()) hint = format("; known: {}", join(known, ", "));
  object.fail(key, format("unknown {} \"{}\"{}", what, name, hint));
}

int bounded(JsonObject& object, const std::string& key, std::int64_t minimum,
            std::int64_t maximum) {
  const std::int64_t value = object.integer_at_least(key, minimum);
  if (value > maximum) {
    object.fail(key, format("found {}, expected at most {}", value, maximum), "out_of_range");
  }
  return static_cast<int>(value);
}

BytesPerSecond positive_rate(JsonObject& object, const std::string& key) {
  const BytesPerSecond rate = object.bytes_per_second(key);
  if (rate.per_second() <= 0) object.fail(key, "found a rate of 0, expected a positive one");
  return rate;
}

/// A share in (0, 1].
double share(JsonObject& object, const std::string& key) {
  const double value = object.number(key);
  if (!(value > 0 && value <= 1)) {
    object.fail(key, format("found {}, expected a number above 0 and at most 1", value),
                "out_of_range");
  }
  return value;
}

/// Peak of an x16 slot, and what a copy to or from the host achieves (spec/topologies.md section
/// 1); and the memory of one socket of the servers that have such slots.
struct PcieFigures {
  BytesPerSecond peak, copy, socket_memory;
  const char* memory_channels = "";
};
PcieFigures pcie_figures(int generation) {
  switch (generation) {
    case 6:
      return {121_GBps, 105_GBps, 460.8_GBps, "12 channels of DDR5-4800"};
    case 5:
      return {63_GBps, 52_GBps, 307.2_GBps, "8 channels of DDR5-4800"};
    case 4:
      return {31.5_GBps, 25_GBps, 204.8_GBps, "8 channels of DDR4-3200"};
    default:
      return {15.75_GBps, 12.5_GBps, 128_GBps, "6 channels of DDR4-2666"};
  }
}

const std::vector<std::string>& intra_kind_names() {
  static const std::vector<std::string> kNames = {"nvswitch", "nvlink-mesh", "pcie",
                                                  "pcie-host-staged"};
  return kNames;
}

IntraNode intra_kind(const std::string& name) {
  const auto& names = intra_kind_names();
  const auto found = std::find(names.begin(), names.end(), name);
  return static_cast<IntraNode>(found - names.begin());
}

std::string in_gb(BytesPerSecond rate) {
  return format("{:g} GB/s", rate.gb_per_second());
}

/// Reads one cluster file into a Description.
class FileReader {
 public:
  explicit FileReader(JsonDocument document)
      : document_(std::move(document)), root_(document_, document_.root(), "") {
    description_.name = std::filesystem::path(document_.file()).stem().string();
  }

  Description read() {
    expect_keys(root_, {"version", "name", "node", "nodes", "gpus_per_node", "fabric",
                        "price_per_gpu_hour"});
    read_version();
    if (root_.has("name")) description_.name = root_.string("name");
    read_node(root_.object("node"));
    read_counts();
    if (root_.has("fabric")) read_fabric(root_.object("fabric"));
    if (root_.has("price_per_gpu_hour")) read_price();
    return std::move(description_);
  }

 private:
  void assume(std::string sentence) { description_.assumptions.push_back(std::move(sentence)); }

  void read_version() {
    const std::int64_t version = root_.integer("version");
    if (version != 1) root_.fail("version", format("found {}, expected 1", version));
  }

  void read_counts() {
    description_.nodes_place = place("nodes");
    description_.gpus_per_node_place = place("gpus_per_node");
    if (root_.has("nodes")) {
      description_.nodes = bounded(root_, "nodes", 1, kMaxNodes);
    } else {
      assume("nodes: 1, as the cluster file does not say");
    }
    if (root_.has("gpus_per_node")) {
      description_.gpus_per_node = bounded(root_, "gpus_per_node", 1, kMaxGpus);
    }
  }

  SourceLocation place(const std::string& key) {
    return root_.has(key) ? document_.location(root_.raw(key)) : document_.location(root_.value());
  }

  void read_price() {
    const double price = root_.number("price_per_gpu_hour");
    if (price < 0) root_.fail("price_per_gpu_hour", format("found {}, expected 0 or more", price));
    description_.price_per_gpu_hour = price;
  }

  void read_fabric(JsonObject fabric) {
    expect_keys(fabric, {"kind", "efficiency", "hop_latency"});
    if (fabric.has("kind")) {
      static_cast<void>(one_of(fabric, "kind", {"switch"}, "kind of fabric"));
    }
    if (fabric.has("efficiency")) description_.fabric.efficiency = share(fabric, "efficiency");
    if (fabric.has("hop_latency")) description_.fabric.hop_latency = fabric.seconds("hop_latency");
  }

  void read_node(JsonObject node) {
    expect_keys(node, {"preset", "gpu", "gpus", "gpu_memory", "intra", "nics", "host"});
    if (node.has("preset")) {
      read_preset_node(node);
    } else {
      read_spelled_out_node(node);
    }
    if (node.has("gpu_memory")) read_gpu_memory(node);
    if (node.has("nics")) read_nics(node.object("nics"));
    if (node.has("host")) read_host(node.object("host"));
  }

  void read_gpu_memory(JsonObject& node) {
    description_.gpu_memory = node.bytes("gpu_memory");
    if (description_.gpu_memory <= Bytes()) {
      node.fail("gpu_memory", "found no memory, expected more than 0 bytes");
    }
  }

  // A preset with other figures.

  void read_preset_node(JsonObject& node) {
    const std::string name = one_of(node, "preset", machine_names(), "preset");
    machine() = *find_machine(name);
    from_preset_ = true;
    if (node.has("gpus")) {
      node.fail("gpus", format("preset {} has {} GPUs a node; to use fewer give gpus_per_node, for "
                               "another machine leave \"preset\" out and spell the node out",
                               name, machine().shape.gpus));
    }
    if (node.has("gpu")) replace_gpu(node);
    if (node.has("intra")) {
      JsonObject intra = node.object("intra");
      expect_keys(intra, {"ring_bandwidth"});
      read_ring_bandwidth(intra);
    }
  }

  void replace_gpu(JsonObject& node) {
    const std::string name = one_of(node, "gpu", gpu_names(), "GPU");
    const GpuSpec& old_gpu = gpu_spec(machine().gpu);
    const GpuSpec& new_gpu = gpu_spec(name);
    const bool alike = old_gpu.nvlink == new_gpu.nvlink &&
                       old_gpu.nvlink_links == new_gpu.nvlink_links &&
                       old_gpu.compute_capability / 10 == new_gpu.compute_capability / 10;
    if (!alike) {
      node.fail("gpu",
                format("{} has other links or another architecture than the {} of preset {}: "
                       "leave \"preset\" out and spell the node out",
                       name, machine().gpu, machine().name));
    }
    machine().gpu = name;
  }

  // A node of its own.

  void read_spelled_out_node(JsonObject& node) {
    const std::string gpu = one_of(node, "gpu", gpu_names(), "GPU");
    machine().gpu = gpu;
    machine().name = description_.name;
    machine().source = "cluster file " + document_.file();
    machine().shape.gpus = bounded(node, "gpus", 1, kMaxGpus);
    read_intra(node.object("intra"), gpu_spec(gpu));
    const PcieFigures pcie = pcie_figures(gpu_spec(gpu).pcie_generation);
    machine().host_link = pcie.copy;
    const int sockets = machine().shape.sockets;
    machine().host_memory_bandwidth = BytesPerSecond(pcie.socket_memory.per_second() * sockets);
    machine().host_memory_source =
        format("{} on each of {} sockets, usual for PCIe {}", pcie.memory_channels, sockets,
               gpu_spec(gpu).pcie_generation);
    machine().cpu = "intel";
  }

  void read_intra(JsonObject intra, const GpuSpec& gpu) {
    expect_keys(intra, {"kind", "nvlink", "pcie", "ring_bandwidth"});
    machine().intra = intra_kind(one_of(intra, "kind", intra_kind_names(), "kind of node"));
    read_pcie(intra, gpu);
    const bool has_nvlink =
        machine().intra == IntraNode::NvSwitch || machine().intra == IntraNode::NvLinkMesh;
    if (has_nvlink) {
      read_nvlink(intra, gpu);
    } else if (intra.has("nvlink")) {
      intra.fail("nvlink", "a node of this kind has no NVLink");
    }
    if (!read_ring_bandwidth(intra)) {
      assume(
          format("node.intra: speed of rings by NCCL's own rules for links of this kind ({}, {})",
                 gpu.name, intra.string("kind")));
    }
  }

  void read_pcie(JsonObject& intra, const GpuSpec& gpu) {
    NodeShape& shape = machine().shape;
    shape.pcie = pcie_figures(gpu.pcie_generation).peak;
    if (intra.has("pcie")) {
      shape.pcie = positive_rate(intra, "pcie");
    } else {
      assume(format("node.intra.pcie: {}, PCIe {} x16", in_gb(shape.pcie), gpu.pcie_generation));
    }
    shape.sockets = shape.gpus > 4 ? 2 : 1;
    shape.socket_link = 16_GBps;
    switch (machine().intra) {
      case IntraNode::NvSwitch:
      case IntraNode::NvLinkMesh:
        shape.gpus_per_pcie_switch = 1;
        break;
      case IntraNode::Pcie:
        shape.gpus_per_pcie_switch = std::min(shape.gpus, 4);
        break;
      case IntraNode::PcieHostStaged:
        shape.gpus_per_pcie_switch = 0;
        break;
    }
    const std::string below =
        shape.gpus_per_pcie_switch == 0
            ? "every GPU on a root port"
            : format("{} GPU(s) below each PCIe switch", shape.gpus_per_pcie_switch);
    assume(format("node: {} CPU socket(s), {}", shape.sockets, below));
  }

  void read_nvlink(JsonObject& intra, const GpuSpec& gpu) {
    if (gpu.nvlink_links == 0) {
      intra.fail("kind",
                 format(R"({} has no NVLink, expected "pcie" or "pcie-host-staged")", gpu.name));
    }
    BytesPerSecond nvlink = gpu.nvlink;
    if (intra.has("nvlink")) {
      nvlink = positive_rate(intra, "nvlink");
    } else {
      assume(format("node.intra.nvlink: {}, datasheet of {}", in_gb(nvlink), gpu.name));
    }
    NodeShape& shape = machine().shape;
    if (machine().intra == IntraNode::NvSwitch) {
      shape.nvswitch = nvlink;
      return;
    }
    if (shape.gpus < 2 || shape.gpus > kMaxMeshGpus || gpu.nvlink_links < shape.gpus - 1) {
      intra.fail("kind",
                 format("a mesh of {} x {} with {} NVLinks each, expected 2 to {} GPUs and a "
                        "link for every pair",
                        shape.gpus, gpu.name, gpu.nvlink_links, kMaxMeshGpus));
    }
    shape.nvlink = BytesPerSecond(nvlink.per_second() / gpu.nvlink_links);
    shape.mesh = full_mesh(shape.gpus, gpu.nvlink_links);
  }

  bool read_ring_bandwidth(JsonObject& intra) {
    if (!intra.has("ring_bandwidth")) return false;
    description_.ring_bandwidth = positive_rate(intra, "ring_bandwidth");
    return true;
  }

  // Network and host, for both.

  void read_nics(JsonObject nics) {
    expect_keys(nics, {"count", "bandwidth", "kind", "efficiency"});
    Machine& node = machine();
    if (nics.has("count") || !from_preset_) node.shape.nics = bounded(nics, "count", 0, kMaxGpus);
    if (nics.has("bandwidth") || (!from_preset_ && node.shape.nics > 0)) {
      node.nic_bandwidth = positive_rate(nics, "bandwidth");
    }
    if (nics.has("kind")) {
      node.network = *network_kind(one_of(nics, "kind", network_kind_names(), "kind of network"));
    } else if (!from_preset_) {
      assume("node.nics.kind: infiniband");
    }
    const bool new_kind = nics.has("kind") || !from_preset_;
    if (nics.has("efficiency")) {
      node.nic_efficiency = share(nics, "efficiency");
    } else if (new_kind) {
      node.nic_efficiency = network_efficiency(node.network);
      assume(format("node.nics.efficiency: {:g} of peak, usual for {}", node.nic_efficiency,
                    to_string(node.network)));
    }
    description_.preset_network = false;
  }

  void read_host(JsonObject host) {
    expect_keys(host, {"memory", "memory_bandwidth", "cores", "cpu", "pcie"});
    Machine& node = machine();
    if (host.has("memory")) node.host_memory = host.bytes("memory");
    if (host.has("memory_bandwidth")) {
      node.host_memory_bandwidth = positive_rate(host, "memory_bandwidth");
      node.host_memory_source = "cluster file " + document_.file();
    }
    if (host.has("cores")) node.host_cores = bounded(host, "cores", 1, kMaxNodes);
    if (host.has("cpu")) node.cpu = one_of(host, "cpu", {"intel", "amd"}, "CPU");
    if (host.has("pcie")) node.host_link = positive_rate(host, "pcie");
    has_cpu_ = host.has("cpu");
    has_memory_bandwidth_ = host.has("memory_bandwidth");
    has_host_link_ = host.has("pcie");
  }

 public:
  /// Defaults that `host` may have made needless.
  void tell_host_defaults(Description& description) const {
    if (from_preset_) return;
    if (!has_cpu_) description.assumptions.emplace_back("node.host.cpu: intel");
    if (!has_memory_bandwidth_) {
      description.assumptions.push_back(format("node.host.memory_bandwidth: {}, {}",
                                               in_gb(description.machine.host_memory_bandwidth),
                                               description.machine.host_memory_source));
    }
    if (has_host_link_) return;
    description.assumptions.push_back(format(
        "node.host.pcie: {} between host and one GPU, usual for PCIe {} x16",
        in_gb(description.machine.host_link), gpu_spec(description.machine.gpu).pcie_generation));
  }

 private:
  Machine& machine() { return description_.machine; }

  JsonDocument document_;
  JsonObject root_;
  Description description_;
  bool from_preset_ = false;
  bool has_cpu_ = false;
  bool has_memory_bandwidth_ = false;
  bool has_host_link_ = false;
};

Description read_description(JsonDocument document) {
  FileReader reader(std::move(document));
  Description description = reader.read();
  reader.tell_host_defaults(description);
  return description;
}

Description preset_description(const Machine& machine) {
  Description description;
  description.name = machine.name;
  description.machine = machine;
  return description;
}

[[noreturn]] void fail_unknown_cluster(const std::string& name) {
  const std::vector<std::string>& names = machine_names();
  throw ConfigError(format("cluster \"{}\" is neither a preset nor a file{} (presets: {})", name,
                           did_you_mean(name, names), join(names, ", ")));
}

Description describe(const std::string& name_or_path) {
  if (const Machine* machine = find_machine(name_or_path)) return preset_description(*machine);
  const std::filesystem::path path(name_or_path);
  std::error_code ignored;
  const bool looks_like_file = path.has_parent_path() || path.extension() == ".json";
  if (!looks_like_file && !std::filesystem::exists(path, ignored)) {
    fail_unknown_cluster(name_or_path);
  }
  return read_description(JsonDocument::from_file(name_or_path));
}

/// -1 stands for a flag that was not given.
void apply_flag(int value, const char* flag, int& target, SourceLocation& place) {
  if (value == -1) return;
  if (value < 1) {
    throw ConfigError(format("{}: found {}, expected an integer of at least 1", flag, value));
  }
  target = value;
  place = {flag, 0, 0};
}

/// An error at a key of the file, or at the flag that replaced it.
[[noreturn]] void fail_at(const SourceLocation& place, const char* key,
                          const std::string& message) {
  const bool is_flag = place.file.starts_with("--");
  throw ConfigError(place, is_flag ? message : format("{}: {}", key, message));
}

void check_counts(const Description& description) {
  const int gpus = description.machine.shape.gpus;
  if (description.gpus_per_node > gpus) {
    fail_at(description.gpus_per_node_place, "gpus_per_node",
            format("found {}, expected at most {}, the GPUs of one node ({})",
                   description.gpus_per_node, gpus, description.machine.name));
  }
  const std::int64_t world = std::int64_t{description.nodes} * description.gpus_per_node;
  if (world > std::numeric_limits<int>::max()) {
    fail_at(description.nodes_place, "nodes",
            format("found {}, a cluster of {} GPUs is too large", description.nodes, world));
  }
  if (description.nodes > 1 && description.machine.shape.nics == 0) {
    fail_at(description.nodes_place, "nodes",
            format("found {}, but the node has no NICs; give node.nics {{count, bandwidth}}",
                   description.nodes));
  }
}

std::string used_gpus_sentence(const Cluster& cluster) {
  const bool kept = cluster.node.intra == IntraNode::NvSwitch;
  const double bus = link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second();
  return format("gpus_per_node: the first {} of {} GPUs; rings inside a node {} {:g} GB/s a GPU",
                cluster.gpus_per_node, cluster.node.gpus, kept ? "keep" : "have", bus);
}

Cluster build(Description description) {
  if (description.gpus_per_node == 0) description.gpus_per_node = description.machine.shape.gpus;
  check_counts(description);
  Cluster cluster;
  cluster.name = description.name;
  cluster.node = make_node(description.machine, description.gpus_per_node);
  cluster.node.gpu_memory = description.gpu_memory;
  cluster.nodes = description.nodes;
  cluster.gpus_per_node = description.gpus_per_node;
  cluster.fabric = description.fabric;
  cluster.price_per_gpu_hour = description.price_per_gpu_hour;
  cluster.assumptions = std::move(description.assumptions);
  if (cluster.node.nics > 0) {
    cluster.used_nics = reachable_nics(cluster.node.graph, cluster.gpus_per_node);
  }
  if (description.ring_bandwidth) {
    NcclGraph& nccl = cluster.node.nccl;
    const double nominal = nccl.ring_channels * nccl.ring_channel_gbps;
    nccl.ring_efficiency = description.ring_bandwidth->gb_per_second() / nominal;
  }
  cluster.assumptions.push_back(format("cluster {}: {}", cluster.name, cluster.node.source));
  cluster.assumptions.emplace_back(
      "collectives: NCCL 2.30's choice of algorithm and protocol and its latencies, without a log "
      "of "
      "this machine");
  if (cluster.gpus_per_node < cluster.node.gpus) {
    cluster.assumptions.push_back(used_gpus_sentence(cluster));
  }
  const bool by_default = description.preset_network && cluster.nodes > 1;
  if (by_default && !description.machine.network_assumption.empty()) {
    cluster.assumptions.push_back(description.machine.network_assumption);
  }
  if (cluster.nodes > 1 && cluster.used_nics < cluster.node.nics) {
    cluster.assumptions.push_back(
        format("network: the used GPUs reach {} of {} NICs without passing a CPU; only these count",
               cluster.used_nics, cluster.node.nics));
  }
  return cluster;
}

}  // namespace

Cluster load_cluster(const std::string& name_or_path, int nodes, int gpus_per_node) {
  Description description = describe(name_or_path);
  apply_flag(nodes, "--nodes", description.nodes, description.nodes_place);
  apply_flag(gpus_per_node, "--gpus-per-node", description.gpus_per_node,
             description.gpus_per_node_place);
  return build(std::move(description));
}

Cluster parse_cluster(std::string text, const std::string& file) {
  return build(read_description(JsonDocument::from_text(std::move(text), file)));
}

}  // namespace zerosim
