#include "topology/presets/machines.h"

#include <algorithm>
#include <map>
#include <utility>

namespace zerosim {
namespace {

const std::map<std::string, std::string>& aliases() {
  static const std::map<std::string, std::string> kNames = {
      {"dgx1-v100", "dgx1-v100-32"},  {"dgx-a100", "dgx-a100-80"}, {"hgx-h100", "dgx-h100"},
      {"hgx-h200", "dgx-h200"},       {"hgx-b200", "dgx-b200"},    {"hgx-b300", "dgx-b300"},
      {"hgx-a100-4", "hgx-a100-4-80"}};
  return kNames;
}

/// Every NIC's port is that of the machine, where the shape does not list them.
NodeShape with_ports(const Machine& machine) {
  NodeShape shape = machine.shape;
  if (shape.nic_ports.empty()) {
    shape.nic_ports.assign(static_cast<std::size_t>(shape.nics), machine.nic_bandwidth);
  }
  return shape;
}

/// GPUs in a ring: a lone one has no rings inside the node; its way out is that of a pair.
int ring_gpus(int gpus) {
  return std::max(gpus, 2);
}

IntraNode intra_of(const Machine& machine, const NodeGraph& graph, int gpus) {
  // Where NVLinks form no ring over these GPUs, NCCL goes over PCIe or through the host.
  const bool without_ring = machine.intra == IntraNode::NvLinkMesh &&
                            mesh_rings(machine.shape.mesh, ring_gpus(gpus)) == 0;
  if (!machine.by_links && !without_ring) return machine.intra;
  return intra_by_links(graph, machine.shape.mesh, gpu_spec(machine.gpu), machine.cpu, gpus);
}

/// The shape whose links are the slowest that the first `gpus` GPUs have.
NodeShape slowest_links(const Machine& machine, const NodeTemplate& node, int gpus) {
  NodeShape shape = machine.shape;
  const bool by_pcie = shape.c2c.per_second() <= 0;
  if (by_pcie && (!shape.gpu_links.empty() || !shape.switch_links.empty())) {
    shape.pcie = slowest_host_path(node.graph, gpus);
  }
  for (int i = 0; i < gpus && !shape.nvswitch_links.empty(); ++i) {
    shape.nvswitch = std::min(shape.nvswitch, shape.nvswitch_links[static_cast<std::size_t>(i)]);
  }
  return shape;
}

void set_channels(NodeTemplate& node, const Machine& machine, int gpus) {
  const GpuSpec& gpu = gpu_spec(machine.gpu);
  NcclGraph& nccl = node.nccl;
  set_intra_node(nccl, node.intra, slowest_links(machine, node, gpus), gpu, ring_gpus(gpus),
                 gpus_per_host_link(node.graph, gpus));
  // Another search's result holds for the GPUs that it was made for.
  const bool all_gpus = gpus == machine.shape.gpus;
  if (all_gpus && machine.rings.count > 0)
    give_rings(nccl, machine.rings.count, machine.rings.gbps);
  if (all_gpus && machine.nvls.count > 0) {
    nccl.nvls_heads = machine.nvls.count;
    nccl.nvls_head_gbps = machine.nvls.gbps;
  }
  if (node.nics == 0) return;
  const UsedNics used = used_nics(node.graph, gpus);
  node.nic_bandwidth = used.bandwidth;
  set_inter_node(nccl, gpu, static_cast<int>(used.nics.size()), used.bandwidth, machine.network);
  if (all_gpus && machine.rings_between_nodes.count > 0) {
    give_inter_rings(nccl, machine.rings_between_nodes.count, machine.rings_between_nodes.gbps);
  }
}

}  // namespace

Machine machine_with(std::string name, std::string gpu, IntraNode intra, int gpus, int sockets) {
  Machine machine;
  machine.name = std::move(name);
  machine.gpu = std::move(gpu);
  machine.intra = intra;
  machine.shape.gpus = gpus;
  machine.shape.sockets = sockets;
  return machine;
}

void set_nics(Machine& machine, int count, BytesPerSecond each, NetworkKind kind) {
  machine.shape.nics = count;
  machine.nic_bandwidth = each;
  machine.network = kind;
  machine.nic_efficiency = network_efficiency(kind, each);
}

const std::vector<Machine>& machines() {
  static const std::vector<Machine> kAll = [] {
    std::vector<Machine> all;
    for (auto* family : {dgx_machines, hopper_and_blackwell_machines, aws_machines, azure_machines,
                         gcp_machines, pcie_machines, amd_machines}) {
      for (Machine& machine : family()) all.push_back(std::move(machine));
    }
    return all;
  }();
  return kAll;
}

const Machine* find_machine(const std::string& name) {
  const auto alias = aliases().find(name);
  const std::string& known = alias == aliases().end() ? name : alias->second;
  for (const Machine& machine : machines()) {
    if (machine.name == known) return &machine;
  }
  return nullptr;
}

const std::vector<std::string>& machine_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> all;
    for (const Machine& machine : machines()) all.push_back(machine.name);
    for (const auto& [alias, name] : aliases()) all.push_back(alias);
    return all;
  }();
  return kNames;
}

NodeTemplate make_node(const Machine& machine, int gpus) {
  NodeTemplate node;
  node.name = machine.name;
  node.gpu = machine.gpu;
  node.gpus = machine.shape.gpus;
  node.graph = build_node_graph(with_ports(machine));
  node.nics = machine.shape.nics;
  node.nic_bandwidth = machine.nic_bandwidth;
  node.nic_efficiency = machine.nic_efficiency;
  node.network = machine.network;
  node.host_link = machine.host_link;
  node.host_memory = machine.host_memory;
  node.host_memory_bandwidth = machine.host_memory_bandwidth;
  node.host_memory_source = machine.host_memory_source;
  node.host_cores = machine.host_cores;
  node.cpu = machine.cpu;
  node.source = machine.source;
  node.intra = machine.intra;
  if (!is_simulated_gpu(machine.gpu)) return node;
  node.nvlink = machine.shape.nvlink;
  const bool link_is_known = node.nvlink.per_second() > 0;
  if (!link_is_known && machine.shape.nvswitch.per_second() > 0) {
    node.nvlink =
        BytesPerSecond(machine.shape.nvswitch.per_second() / gpu_spec(machine.gpu).nvlink_links);
  }
  node.intra = intra_of(machine, node.graph, gpus);
  set_channels(node, machine, gpus);
  return node;
}

std::vector<ClusterPreset> cluster_presets() {
  std::vector<ClusterPreset> presets;
  for (const Machine& machine : machines()) {
    presets.push_back({machine.name, machine.description, is_simulated_gpu(machine.gpu)});
  }
  return presets;
}

}  // namespace zerosim
