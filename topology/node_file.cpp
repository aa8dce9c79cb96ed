#include "topology/node_file.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/json_reading.h"
#include "topology/nccl_graph.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

/// The search for rings of a mesh takes no more (node_graph.h).
constexpr int kMaxMeshGpus = 8;

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const GpuSpec& spec : gpu_specs()) names.push_back(spec.name);
  return names;
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

class NodeReader {
 public:
  NodeReader(JsonObject node, std::string name) : node_(std::move(node)), name_(std::move(name)) {}

  NodeDescription read() {
    expect_keys(node_, {"preset", "gpu", "gpus", "gpu_memory", "intra", "nics", "host"});
    if (node_.has("preset")) {
      read_preset_node();
    } else {
      read_spelled_out_node();
    }
    if (node_.has("gpu_memory")) read_gpu_memory();
    if (node_.has("nics")) read_nics(node_.object("nics"));
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

  // A preset with other figures.

  void read_preset_node() {
    const std::string name = one_of(node_, "preset", machine_names(), "preset");
    machine() = *find_machine(name);
    from_preset_ = true;
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
    const GpuSpec& old_gpu = gpu_spec(machine().gpu);
    const GpuSpec& new_gpu = gpu_spec(name);
    const bool alike = old_gpu.nvlink == new_gpu.nvlink &&
                       old_gpu.nvlink_links == new_gpu.nvlink_links &&
                       old_gpu.compute_capability / 10 == new_gpu.compute_capability / 10;
    if (!alike) {
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
    machine().shape.gpus = bounded_integer(node_, "gpus", 1, kMaxGpusPerNode);
    read_intra(node_.object("intra"), gpu_spec(gpu));
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
    if (nics.has("count") || !from_preset_)
      node.shape.nics = bounded_integer(nics, "count", 0, kMaxGpusPerNode);
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
      node.nic_efficiency = share_of_one(nics, "efficiency");
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
      node.host_memory_source = "cluster file " + node_.document().file();
    }
    if (host.has("cores")) node.host_cores = bounded_integer(host, "cores", 1, kMaxNodes);
    if (host.has("cpu")) node.cpu = one_of(host, "cpu", {"intel", "amd"}, "CPU");
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
    assume(format("node.host.pcie: {} between host and one GPU, usual for PCIe {} x16",
                  in_gb(machine().host_link), gpu_spec(machine().gpu).pcie_generation));
  }

  Machine& machine() { return description_.machine; }

  JsonObject node_;
  std::string name_;
  NodeDescription description_;
  bool from_preset_ = false;
  bool has_cpu_ = false;
  bool has_memory_bandwidth_ = false;
  bool has_host_link_ = false;
};

}  // namespace

NodeDescription read_node(JsonObject node, const std::string& name) {
  return NodeReader(std::move(node), name).read();
}

}  // namespace zerosim
