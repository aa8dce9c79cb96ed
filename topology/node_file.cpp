#include "topology/node_file.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/json_reading.h"
#include "topology/nccl_graph.h"
#include "topology/node_graph.h"
#include "topology/node_graph_file.h"
#include "topology/pcie.h"

namespace zerosim {
namespace {

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

class NodeReader {
 public:
  NodeReader(JsonObject node, std::string name) : node_(std::move(node)), name_(std::move(name)) {}

  NodeDescription read() {
    expect_keys(node_, {"preset", "gpu", "gpus", "gpu_memory", "gpu_power_limit", "intra", "graph",
                        "nccl", "nics", "host"});
    drawn_ = node_.has("graph");
    if (node_.has("preset")) {
      read_preset_node();
    } else {
      read_spelled_out_node();
    }
    if (node_.has("gpu_memory")) read_gpu_memory();
    if (node_.has("gpu_power_limit")) read_gpu_power_limit();
    if (node_.has("nccl")) read_channels(node_.object("nccl"));
    if (node_.has("nics")) read_nics(node_.object("nics"));
    check_nic_ports();
    if (node_.has("host")) read_host(node_.object("host"));
    tell_host_defaults();
    return std::move(description_);
  }

 private:
  void assume(std::string sentence) { description_.assumptions.push_back(std::move(sentence)); }

  void read_gpu_memory() {
    description_.gpu_memory = node_.bytes("gpu_memory");
    if (description_.gpu_memory <= Bytes()) {
      node_.fail("gpu_memory", "found no memory, expected more than 0 bytes");
    }
  }

  void read_gpu_power_limit() {
    const GpuSpec& gpu = gpu_spec(machine().gpu);
    const double limit = watts(node_, "gpu_power_limit");
    const double idle = kIdlePower * gpu.power_limit;
    const double most = 2 * gpu.power_limit;  // more is a slip
    if (limit <= idle || limit > most) {
      node_.fail("gpu_power_limit",
                 format("found {:g} W, expected more than {:g} W, which {} needs besides its SMs, "
                        "and at most {:g} W, twice the board's",
                        limit, idle, gpu.name, most),
                 "out_of_range");
    }
    description_.gpu_power_limit = limit;
  }

  // A preset with other figures.

  void read_preset_node() {
    const std::string name = one_of(node_, "preset", machine_names(), "preset");
    machine() = *find_machine(name);
    from_preset_ = true;
    if (drawn_) node_.fail("graph", format("preset {} has a graph of its own", name));
    if (node_.has("gpus")) {
      node_.fail("gpus",
                 format("preset {} has {} GPUs a node; to use fewer give gpus_per_node, for "
                        "another machine leave \"preset\" out and spell the node out",
                        name, machine().shape.gpus));
    }
    if (node_.has("gpu")) replace_gpu();
    if (node_.has("intra")) {
      JsonObject intra = node_.object("intra");
      expect_keys(intra, {"ring_bandwidth"});
      read_ring_bandwidth(intra);
    }
  }

  void replace_gpu() {
    const std::string name = one_of(node_, "gpu", gpu_names(), "GPU");
    if (!have_same_links(gpu_spec(machine().gpu), gpu_spec(name))) {
      node_.fail("gpu",
                 format("{} has other links or another architecture than the {} of preset {}: "
                        "leave \"preset\" out and spell the node out",
                        name, machine().gpu, machine().name));
    }
    machine().gpu = name;
  }

  // A node of its own.

  void read_spelled_out_node() {
    const std::string gpu = one_of(node_, "gpu", gpu_names(), "GPU");
    machine().gpu = gpu;
    machine().name = name_;
    machine().source = "cluster file " + node_.document().file();
    if (drawn_) {
      read_drawn_node(gpu_spec(gpu));
    } else {
      machine().shape.gpus = bounded_integer(node_, "gpus", 1, kMaxGpusPerNode);
      read_intra(node_.object("intra"), gpu_spec(gpu));
    }
    set_host_defaults(pcie_figures(gpu_spec(gpu).pcie_generation));
  }

  void set_host_defaults(const PcieFigures& pcie) {
    machine().host_link = pcie.copy;
    int sockets = machine().shape.sockets;
    std::string numa;
    if (drawn_) {
      machine().host_link = slowest_copy(pcie);
      if (sockets > 2) numa = format(" ({} NUMA nodes are taken for 2 sockets)", sockets);
      sockets = std::min(sockets, 2);
    }
    machine().host_memory_bandwidth = BytesPerSecond(pcie.socket_memory.per_second() * sockets);
    machine().host_memory_source =
        format("{} on each of {} sockets, usual for PCIe {}{}", pcie.memory_channels, sockets,
               gpu_spec(machine().gpu).pcie_generation, numa);
    machine().cpu = "intel";
  }

  /// What copies achieve of the slowest way between a GPU and its CPU.
  BytesPerSecond slowest_copy(const PcieFigures& pcie) {
    const NodeGraph graph = build_node_graph(machine().shape);
    const BytesPerSecond slowest = slowest_host_path(graph, machine().shape.gpus);
    return BytesPerSecond(slowest.per_second() * pcie.copy.per_second() / pcie.peak.per_second());
  }

  // A node whose devices are listed.

  void read_drawn_node(const GpuSpec& gpu) {
    NodeShape& shape = machine().shape;
    std::optional<JsonObject> intra = node_.optional_object("intra");
    if (intra) expect_keys(*intra, {"kind", "nvlink", "pcie", "ring_bandwidth"});
    shape.pcie = pcie_figures(gpu.pcie_generation).peak;
    if (intra && intra->has("pcie")) {
      shape.pcie = positive_rate(*intra, "pcie");
    } else {
      assume(format("node.intra.pcie: {} where the graph gives no link, PCIe {} x16",
                    in_gb(shape.pcie), gpu.pcie_generation));
    }
    read_node_graph(node_.object("graph"), gpu, drawn_nvlink(intra, gpu), shape);
    if (!node_.object("graph").has("cpu_link") && shape.sockets > 1) {
      assume(format("node.graph.cpu_link: {}", in_gb(shape.socket_link)));
    }
    if (node_.has("gpus") && node_.integer("gpus") != shape.gpus) {
      node_.fail("gpus",
                 format("found {}, but the graph lists {}", node_.integer("gpus"), shape.gpus));
    }
    machine().by_links = !(intra && intra->has("kind"));
    if (!machine().by_links) read_drawn_kind(*intra);
    if (intra) read_ring_bandwidth(*intra);
  }

  BytesPerSecond drawn_nvlink(std::optional<JsonObject>& intra, const GpuSpec& gpu) {
    if (intra && intra->has("nvlink")) {
      if (gpu.nvlink_links == 0) intra->fail("nvlink", format("{} has no NVLink", gpu.name));
      return positive_rate(*intra, "nvlink");
    }
    if (gpu.nvlink_links > 0) {
      assume(format("node.intra.nvlink: {} for {} links, datasheet of {}", in_gb(gpu.nvlink),
                    gpu.nvlink_links, gpu.name));
    }
    return gpu.nvlink;
  }

  /// A kind that the file insists on must have its links.
  void read_drawn_kind(JsonObject& intra) {
    machine().intra = intra_kind(one_of(intra, "kind", intra_kind_names(), "kind of node"));
    const NodeShape& shape = machine().shape;
    const auto& switched = shape.nvswitch_links;
    const bool all_switched =
        !switched.empty() && std::all_of(switched.begin(), switched.end(),
                                         [](BytesPerSecond rate) { return rate.per_second() > 0; });
    if (machine().intra == IntraNode::NvSwitch && !all_switched) {
      intra.fail("kind", "found \"nvswitch\", but not every GPU has nvswitch_links in the graph");
    }
    if (machine().intra == IntraNode::NvLinkMesh &&
        (shape.mesh.empty() || mesh_rings(shape.mesh, shape.gpus) == 0)) {
      intra.fail("kind",
                 "found \"nvlink-mesh\", but the graph's nvlinks form no ring over all GPUs");
    }
  }

  void read_channels(JsonObject nccl) {
    expect_keys(nccl, {"rings", "rings_between_nodes", "nvls"});
    if (nccl.has("rings")) machine().rings = channels(nccl.object("rings"));
    if (nccl.has("rings_between_nodes")) {
      machine().rings_between_nodes = channels(nccl.object("rings_between_nodes"));
    }
    if (nccl.has("nvls")) machine().nvls = channels(nccl.object("nvls"));
  }

  static GivenChannels channels(JsonObject object) {
    expect_keys(object, {"channels", "speed"});
    const int count = bounded_integer(object, "channels", 1, kMaxNcclChannels);
    return {count, positive_rate(object, "speed").gb_per_second()};
  }

  void read_intra(JsonObject intra, const GpuSpec& gpu) {
    expect_keys(intra, {"kind", "nvlink", "pcie", "ring_bandwidth"});
    machine().intra = intra_kind(one_of(intra, "kind", intra_kind_names(), "kind of node"));
    read_pcie(intra, gpu);
    if (has_nvlink(machine().intra)) {
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
    read_nic_count(nics);
    const bool elsewhere = from_preset_ || drawn_ || node.shape.nics == 0;
    if (nics.has("bandwidth") || !elsewhere) {
      node.nic_bandwidth = positive_rate(nics, "bandwidth");
      if (from_preset_) node.shape.nic_ports.clear();
    }
    if (nics.has("kind")) {
      node.network = *network_kind(one_of(nics, "kind", network_kind_names(), "kind of network"));
    } else if (!from_preset_) {
      assume("node.nics.kind: infiniband");
    }
    const bool new_kind = nics.has("kind") || !from_preset_;
    const BytesPerSecond fastest = fastest_nic();
    if (nics.has("efficiency")) {
      node.nic_efficiency = share_of_one(nics, "efficiency");
    } else if (new_kind) {
      node.nic_efficiency = network_efficiency(node.network, fastest);
      assume(format("node.nics.efficiency: {:g} of peak, usual for {}", node.nic_efficiency,
                    to_string(node.network)));
    } else {
      node.nic_efficiency = network_efficiency(node.network, fastest, node.nic_efficiency);
    }
    description_.preset_network = false;
  }

  /// Of a graph, NICs may state their own rates.
  BytesPerSecond fastest_nic() {
    BytesPerSecond fastest = machine().nic_bandwidth;
    for (const BytesPerSecond port : machine().shape.nic_ports) fastest = std::max(fastest, port);
    return fastest;
  }

  void read_nic_count(JsonObject& nics) {
    if (!nics.has("count") && (from_preset_ || drawn_)) return;
    const int count = bounded_integer(nics, "count", 0, kMaxGpusPerNode);
    int& nodes_nics = machine().shape.nics;
    if (drawn_ && count != nodes_nics) {
      nics.fail("count", format("found {}, but the graph lists {}", count, nodes_nics));
    }
    if (count == nodes_nics) return;
    NodeShape& shape = machine().shape;
    if (!shape.nic_parents.empty()) {
      assume(
          "node.nics: another number than the preset's, dealt out evenly over the PCIe switches");
    }
    shape.nic_parents.clear();
    shape.nic_links.clear();
    shape.nic_ports.clear();
    nodes_nics = count;
  }

  /// Of a graph, each NIC has a rate: its own, or that of all.
  void check_nic_ports() {
    std::vector<BytesPerSecond>& ports = machine().shape.nic_ports;
    if (!drawn_ || ports.empty()) return;
    if (!node_.has("nics")) read_no_nics();
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].per_second() > 0) continue;
      ports[i] = machine().nic_bandwidth;
      if (ports[i].per_second() > 0) continue;
      node_.fail("graph", format("NIC {} has no bandwidth, and node.nics.bandwidth is missing", i));
    }
    machine().nic_bandwidth = *std::max_element(ports.begin(), ports.end());
  }

  /// NICs of a graph about which `nics` says nothing.
  void read_no_nics() {
    assume("node.nics.kind: infiniband");
    machine().nic_efficiency = network_efficiency(machine().network, machine().nic_bandwidth);
    assume(format("node.nics.efficiency: {:g} of peak, usual for {}", machine().nic_efficiency,
                  to_string(machine().network)));
    description_.preset_network = false;
  }

  void read_host(JsonObject host) {
    expect_keys(host, {"memory", "memory_bandwidth", "cores", "cpu", "pcie"});
    Machine& node = machine();
    if (host.has("memory")) node.host_memory = host.bytes("memory");
    if (host.has("memory_bandwidth")) {
      node.host_memory_bandwidth = positive_rate(host, "memory_bandwidth");
      node.host_memory_source = "cluster file " + node_.document().file();
    }
    if (host.has("cores")) node.host_cores = bounded_integer(host, "cores", 1, kMaxNodes);
    if (host.has("cpu")) node.cpu = one_of(host, "cpu", {"intel", "amd", "arm"}, "CPU");
    if (host.has("pcie")) node.host_link = positive_rate(host, "pcie");
    has_cpu_ = host.has("cpu");
    has_memory_bandwidth_ = host.has("memory_bandwidth");
    has_host_link_ = host.has("pcie");
  }

  /// Defaults that `host` may have made needless.
  void tell_host_defaults() {
    if (from_preset_) return;
    if (!has_cpu_) assume("node.host.cpu: intel");
    if (!has_memory_bandwidth_) {
      assume(format("node.host.memory_bandwidth: {}, {}", in_gb(machine().host_memory_bandwidth),
                    machine().host_memory_source));
    }
    if (has_host_link_) return;
    assume(format("node.host.pcie: {} between host and one GPU, usual for {}",
                  in_gb(machine().host_link),
                  drawn_ ? "the slowest such way of the graph"
                         : format("PCIe {} x16", gpu_spec(machine().gpu).pcie_generation)));
  }

  Machine& machine() { return description_.machine; }

  JsonObject node_;
  std::string name_;
  NodeDescription description_;
  bool from_preset_ = false;
  bool drawn_ = false;  ///< there is a `graph`
  bool has_cpu_ = false;
  bool has_memory_bandwidth_ = false;
  bool has_host_link_ = false;
};

}  // namespace

std::string_view intra_node_name(IntraNode intra) {
  return intra_kind_names()[static_cast<std::size_t>(intra)];
}

NodeDescription read_node(JsonObject node, const std::string& name) {
  return NodeReader(std::move(node), name).read();
}

}  // namespace zerosim
