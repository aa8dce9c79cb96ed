#include "topology/cluster_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "topology/gpu.h"
#include "topology/node_file.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

// Layout: people read and change these files, so what fits into a line is on one.

constexpr std::size_t kLineWidth = 100;

/// Keys in the order of the schema; others follow by name.
constexpr std::array kKeyOrder = {
    "version",  "name",           "node", "gpu",    "intra", "graph",     "cpus",       "cpu_link",
    "c2c",      "switches",       "gpus", "below",  "link",  "nvlinks",   "nics",       "between",
    "links",    "nvswitch_links", "kind", "nvlink", "pcie",  "bandwidth", "efficiency", "nccl",
    "channels", "speed",          "host", "nodes"};

std::size_t key_rank(std::string_view key) {
  const auto* found = std::find(kKeyOrder.begin(), kKeyOrder.end(), key);
  return static_cast<std::size_t>(found - kKeyOrder.begin());
}

std::vector<std::string> ordered_keys(const JsonValue& object) {
  std::vector<std::string> keys = object.getMemberNames();
  std::stable_sort(keys.begin(), keys.end(), [](const std::string& a, const std::string& b) {
    return key_rank(a) < key_rank(b);
  });
  return keys;
}

std::string quoted(const std::string& text) {
  return to_text(JsonValue(text), false);
}

std::string one_line(const JsonValue& value) {
  if (!value.isObject() && !value.isArray()) return to_text(value, false);
  std::vector<std::string> parts;
  if (value.isObject()) {
    for (const std::string& key : ordered_keys(value)) {
      parts.push_back(quoted(key) + ": " + one_line(value[key]));
    }
    return "{" + join(parts, ", ") + "}";
  }
  for (const JsonValue& item : value) parts.push_back(one_line(item));
  return "[" + join(parts, ", ") + "]";
}

std::string laid_out(const JsonValue& value, std::size_t indent, std::size_t used) {
  std::string line = one_line(value);
  const bool whole = indent > 0 && indent + used + line.size() <= kLineWidth;
  if (whole || (!value.isObject() && !value.isArray()) || value.empty()) return line;
  const std::string margin(indent + 2, ' ');
  std::vector<std::string> parts;
  if (value.isObject()) {
    for (const std::string& key : ordered_keys(value)) {
      const std::string head = quoted(key) + ": ";
      parts.push_back(margin + head + laid_out(value[key], indent + 2, head.size()));
    }
  } else {
    for (const JsonValue& item : value) parts.push_back(margin + laid_out(item, indent + 2, 0));
  }
  const bool object = value.isObject();
  return (object ? "{\n" : "[\n") + join(parts, ",\n") + "\n" + std::string(indent, ' ') +
         (object ? "}" : "]");
}

// Content.

std::string gigabytes(BytesPerSecond rate) {
  return format("{}GB/s", rate.gb_per_second());
}
std::string gigabits(BytesPerSecond rate) {
  return format("{}Gb/s", rate.per_second() * 8 / 1e9);
}

std::string device_name(const HostParent& parent) {
  return format("{}{}", parent.kind == DeviceKind::Cpu ? "cpu" : "switch", parent.index);
}

class NodeWriter {
 public:
  explicit NodeWriter(const Machine& machine)
      : machine_(machine), gpu_(gpu_spec(machine.gpu)), graph_(build_node_graph(machine.shape)) {
    per_link_ = nvlink_rate() / std::max(gpu_.nvlink_links, 1);
  }

  JsonValue node() {
    JsonValue node(Json::objectValue);
    node["gpu"] = machine_.gpu;
    node["intra"] = intra();
    node["graph"] = graph();
    if (shape().nics > 0) node["nics"] = nics();
    const JsonValue channels = nccl();
    if (!channels.empty()) node["nccl"] = channels;
    const JsonValue known_of_host = host();
    if (!known_of_host.empty()) node["host"] = known_of_host;
    return node;
  }

 private:
  [[nodiscard]] const NodeShape& shape() const { return machine_.shape; }

  /// Peak of all NVLinks of one GPU, such that every rate of the shape is a number of links.
  [[nodiscard]] double nvlink_rate() const {
    const double all = gpu_.nvlink.per_second();
    if (gpu_.nvlink_links == 0) return 0;
    if (!shape().mesh.empty()) return shape().nvlink.per_second() * gpu_.nvlink_links;
    const double links = shape().nvswitch.per_second() / all * gpu_.nvlink_links;
    const bool whole = std::abs(links - std::round(links)) < 1e-6 && links <= gpu_.nvlink_links;
    return whole ? all : shape().nvswitch.per_second();
  }

  /// A mesh without a ring over all GPUs (two bridged pairs) is none to NCCL.
  [[nodiscard]] bool has_its_kind() const {
    if (machine_.intra != IntraNode::NvLinkMesh) return true;
    return shape().gpus <= kMaxMeshGpus && mesh_rings(shape().mesh, shape().gpus) > 0;
  }

  [[nodiscard]] JsonValue intra() const {
    JsonValue intra(Json::objectValue);
    if (!machine_.by_links && has_its_kind())
      intra["kind"] = std::string(intra_node_name(machine_.intra));
    if (gpu_.nvlink_links > 0) intra["nvlink"] = gigabytes(BytesPerSecond(nvlink_rate()));
    intra["pcie"] = gigabytes(shape().pcie);
    return intra;
  }

  [[nodiscard]] JsonValue below(DeviceKind kind, int index) const {
    JsonValue device(Json::objectValue);
    const HostLink up = host_link(graph_, kind, index);
    device["below"] = device_name(up.parent);
    const bool by_c2c = kind == DeviceKind::Gpu && shape().c2c.per_second() > 0;
    if (!by_c2c && up.bandwidth != shape().pcie) device["link"] = gigabytes(up.bandwidth);
    return device;
  }

  [[nodiscard]] JsonValue graph() const {
    JsonValue graph(Json::objectValue);
    JsonValue& cpus = graph["cpus"] = JsonValue(Json::arrayValue);
    for (const DeviceId id : devices_of(graph_, DeviceKind::Cpu)) {
      JsonValue cpu(Json::objectValue);
      cpu["numa"] = graph_[id].numa;
      cpus.append(cpu);
    }
    if (shape().sockets > 1) graph["cpu_link"] = gigabytes(shape().socket_link);
    if (shape().c2c.per_second() > 0) graph["c2c"] = gigabytes(shape().c2c);
    add_devices(graph, "switches", DeviceKind::PcieSwitch);
    add_devices(graph, "gpus", DeviceKind::Gpu);
    add_devices(graph, "nics", DeviceKind::Nic);
    add_nvlinks(graph);
    return graph;
  }

  void add_devices(JsonValue& graph, const char* key, DeviceKind kind) const {
    for (const DeviceId id : devices_of(graph_, kind)) {
      const Device& device = graph_[id];
      JsonValue entry = below(kind, device.index);
      const bool own_port = device.port.per_second() > 0 && device.port != machine_.nic_bandwidth;
      if (own_port) entry["bandwidth"] = gigabits(device.port);
      graph[key].append(entry);
    }
  }

  void add_nvlinks(JsonValue& graph) const {
    for (const NvLinkPair& pair : shape().mesh) {
      JsonValue entry(Json::objectValue);
      entry["between"].append(pair.a);
      entry["between"].append(pair.b);
      entry["links"] = pair.links;
      graph["nvlinks"].append(entry);
    }
    if (shape().nvswitch.per_second() <= 0) return;
    const std::vector<BytesPerSecond>& each = shape().nvswitch_links;
    const auto links = [&](BytesPerSecond rate) {
      return static_cast<int>(std::lround(rate.per_second() / per_link_));
    };
    if (each.empty() ||
        std::adjacent_find(each.begin(), each.end(), std::not_equal_to<>()) == each.end()) {
      graph["nvswitch_links"] = links(each.empty() ? shape().nvswitch : each.front());
      return;
    }
    for (const BytesPerSecond rate : each) graph["nvswitch_links"].append(links(rate));
  }

  [[nodiscard]] JsonValue nics() const {
    JsonValue nics(Json::objectValue);
    nics["bandwidth"] = gigabits(machine_.nic_bandwidth);
    nics["kind"] = std::string(to_string(machine_.network));
    nics["efficiency"] = machine_.nic_efficiency;
    return nics;
  }

  [[nodiscard]] JsonValue nccl() const {
    JsonValue nccl(Json::objectValue);
    const auto add = [&](const char* key, const GivenChannels& channels) {
      if (channels.count == 0) return;
      nccl[key]["channels"] = channels.count;
      nccl[key]["speed"] = format("{}GB/s", channels.gbps);
    };
    add("rings", machine_.rings);
    add("rings_between_nodes", machine_.rings_between_nodes);
    add("nvls", machine_.nvls);
    return nccl;
  }

  /// What is not known is left out, and its default told where the file is read.
  [[nodiscard]] JsonValue host() const {
    JsonValue host(Json::objectValue);
    if (!machine_.cpu.empty()) host["cpu"] = machine_.cpu;
    if (machine_.host_memory > Bytes())
      host["memory"] = format("{}B", machine_.host_memory.count());
    if (machine_.host_memory_bandwidth.per_second() > 0) {
      host["memory_bandwidth"] = gigabytes(machine_.host_memory_bandwidth);
    }
    if (machine_.host_cores > 0) host["cores"] = machine_.host_cores;
    if (machine_.host_link.per_second() > 0) host["pcie"] = gigabytes(machine_.host_link);
    return host;
  }

  const Machine& machine_;
  const GpuSpec& gpu_;
  NodeGraph graph_;
  double per_link_ = 0;
};

}  // namespace

std::string cluster_file_text(const Machine& machine, const std::vector<std::string>& assumptions) {
  JsonValue file(Json::objectValue);
  file["version"] = 1;
  file["name"] = machine.name;
  file["node"] = NodeWriter(machine).node();
  file["nodes"] = machine.nodes;
  if (machine.nvlink_domain_nodes > 1) {
    file["fabric"]["nvlink_domain_nodes"] = machine.nvlink_domain_nodes;
  }
  for (const std::string& sentence : assumptions) file["assumptions"].append(sentence);
  return laid_out(file, 0, 0) + "\n";
}

}  // namespace zerosim
