#include "topology/presets/machines.h"

#include <algorithm>
#include <map>

namespace zerosim {
namespace {

const std::map<std::string, std::string>& aliases() {
  static const std::map<std::string, std::string> kNames = {{"dgx1-v100", "dgx1-v100-32"},
                                                            {"dgx-a100", "dgx-a100-80"}};
  return kNames;
}

}  // namespace

const std::vector<Machine>& machines() {
  static const std::vector<Machine> kAll = {dgx_a100_40(),  dgx_a100_80(),  dgx_h100(),
                                            dgx1_v100_16(), dgx1_v100_32(), rtx4090x8_pcie(),
                                            a10x4_pcie()};
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
  node.intra = machine.intra;
  node.graph = build_node_graph(machine.shape);
  node.nics = machine.shape.nics;
  node.nic_bandwidth = machine.nic_bandwidth;
  node.nic_efficiency = machine.nic_efficiency;
  node.host_link = machine.host_link;
  node.host_memory = machine.host_memory;
  node.host_memory_bandwidth = machine.host_memory_bandwidth;
  node.host_memory_source = machine.host_memory_source;
  node.host_cores = machine.host_cores;
  node.cpu = machine.cpu;
  node.source = machine.source;
  const GpuSpec& gpu = gpu_spec(machine.gpu);
  // A lone GPU has no rings inside the node; its way out is that of a pair.
  const int ring_gpus = std::max(gpus, 2);
  node.nvlink = machine.shape.nvlink;
  if (machine.intra == IntraNode::NvSwitch) {
    node.nvlink = BytesPerSecond(machine.shape.nvswitch.per_second() / gpu.nvlink_links);
  }
  const bool meshed = machine.intra == IntraNode::NvLinkMesh;
  // Where NVLinks form no ring over these GPUs, NCCL goes through the host.
  if (meshed && mesh_rings(machine.shape.mesh, ring_gpus) == 0) {
    node.intra = IntraNode::PcieHostStaged;
  }
  set_intra_node(node.nccl, node.intra, machine.shape, gpu, ring_gpus);
  if (node.nics > 0) {
    set_inter_node(node.nccl, gpu, reachable_nics(node.graph, gpus), machine.nic_bandwidth,
                   machine.network);
  }
  return node;
}

std::vector<ClusterPreset> cluster_presets() {
  std::vector<ClusterPreset> presets;
  for (const Machine& machine : machines()) presets.push_back({machine.name, machine.description});
  return presets;
}

}  // namespace zerosim
