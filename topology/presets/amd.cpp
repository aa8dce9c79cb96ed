#include "topology/pcie.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// Frontier's node: eight GCDs (GPUs to the system) of four modules on one EPYC; the odd GCDs hold
/// the NICs, the even ones an xGMI link more.
Machine mi250x() {
  Machine machine = machine_with("mi250x-node", "MI250X-128", IntraNode::NvLinkMesh, 8, 1);
  machine.description = "4 x MI250X (8 GCDs), xGMI mesh, 4 x 200 Gb/s Slingshot (drawn only)";
  machine.shape.pcie = 36_GBps;
  machine.shape.nvlink = 50_GBps;
  machine.shape.mesh = {{0, 1, 4}, {2, 3, 4}, {4, 5, 4}, {6, 7, 4}, {0, 6, 2}, {2, 4, 2},
                        {0, 2, 1}, {1, 3, 1}, {1, 5, 1}, {3, 7, 1}, {4, 6, 1}, {5, 7, 1}};
  for (const int gcd : {1, 3, 5, 7}) machine.shape.nic_parents.push_back({DeviceKind::Gpu, gcd});
  set_nics(machine, 4, 200_Gbps, NetworkKind::Roce);
  machine.host_link = 25_GBps;
  machine.host_memory = 512_GiB;
  machine.host_memory_bandwidth = 204.8_GBps;
  machine.host_memory_source =
      "one EPYC 7A53 with 8 channels of DDR4-3200 (OLCF Frontier user guide)";
  machine.host_cores = 64;
  machine.cpu = "amd";
  machine.source =
      "OLCF Frontier user guide (xGMI 50 GB/s a link: 4 in a module, 1 or 2 between; 36 GB/s to "
      "the CPU; 4 x 200 Gb/s Slingshot on the GCDs); links per pair as C. Pearson, \"Interconnect "
      "Bandwidth Heterogeneity on AMD MI250x and Infinity Fabric\", 2023, draws them";
  return machine;
}

Machine mi300x() {
  Machine machine = machine_with("mi300x-node", "MI300X-192", IntraNode::NvLinkMesh, 8, 2);
  machine.description = "8 x MI300X 192 GB, xGMI full mesh, 8 x 400 Gb/s RoCE (drawn only)";
  machine.shape.gpus_per_pcie_switch = 1;
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvlink = 64_GBps;
  machine.shape.mesh = full_mesh(8, 7);
  set_nics(machine, 8, 400_Gbps, NetworkKind::Roce);
  machine.host_link = 52_GBps;
  machine.host_memory_source = "not told";
  machine.cpu = "amd";
  machine.source =
      "AMD MI300X platform datasheet (7 xGMI links of 64 GB/s a GPU, one to each peer; PCIe 5 "
      "x16); 8 x 400 Gb/s, a NIC beside each GPU, as public servers have; NCCL 2.30 constants "
      "(xGMI 16 GB/s between sockets); CPUs and memory differ by vendor and are not told";
  return machine;
}

}  // namespace

std::vector<Machine> amd_machines() {
  return {mi250x(), mi300x()};
}

}  // namespace zerosim
