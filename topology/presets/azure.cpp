#include "topology/pcie.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// As Azure's topology file has it: four GPUs on each CPU, the only NIC on the first.
Machine nd40rs_v2() {
  Machine machine = machine_with("azure-nd40rs-v2", "V100-SXM2-32", IntraNode::NvLinkMesh, 8, 2);
  machine.description = "Azure ND40rs v2: 8 x V100 32 GB, NVLink cube mesh, 100 Gb/s InfiniBand";
  machine.shape.pcie = pcie_figures(3).peak;
  machine.shape.socket_link = 10_GBps;
  machine.shape.nvlink = 25_GBps;
  machine.shape.mesh = hybrid_cube_mesh();
  machine.shape.nic_parents = {{DeviceKind::Cpu, 0}};
  set_nics(machine, 1, 100_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 12.5_GBps;
  machine.host_memory = 672_GiB;
  machine.host_memory_bandwidth = 256_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8168 with 6 channels of DDR4-2666 each (Azure NDv2 page, Intel's "
      "datasheet)";
  machine.host_cores = 40;
  machine.cpu = "intel";
  machine.source =
      "Azure NDv2 page (8 V100 on NVLink, 40 cores, 672 GiB, 100 Gb/s EDR); azhpc-images' topology "
      "file (4 GPUs on each socket, the NIC on the first); cube mesh as DGX-1's; NCCL 2.30 "
      "constants (Skylake UPI 10 GB/s); EDR 0.95 to 0.97 of peak; PCIe 3 copies 12 to 13 GB/s in "
      "public tests";
  return machine;
}

/// Four virtual switches of two GPUs and two NICs, each on a NUMA node of its own.
Machine nd_a100_v4(const std::string& name, const std::string& gpu) {
  Machine machine = machine_with(name, gpu, IntraNode::NvSwitch, 8, 2);
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {1, 0, 3, 2};
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvswitch = 300_GBps;
  set_nics(machine, 8, 200_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 25_GBps;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC 7V12 with 8 channels of DDR4-3200 each (Azure NDA100v4 page; channels as of Rome)";
  machine.host_cores = 96;
  machine.cpu = "amd";
  machine.source =
      "Azure NDA100v4 pages (8 A100, 96 cores, 900 or 1900 GiB, 8 x 200 Gb/s HDR); azhpc-images' "
      "topology file (4 switches of 2 GPUs and 2 NICs on NUMA nodes 1, 0, 3, 2); NCCL 2.30 "
      "constants "
      "(xGMI 16 GB/s); HDR 24 of 25 GB/s a NIC in public nccl-tests; PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

Machine nd_a100_v4_40() {
  Machine machine = nd_a100_v4("azure-nd-a100-v4", "A100-SXM4-40");
  machine.description = "Azure ND96asr A100 v4: 8 x A100 40 GB, NVSwitch, 8 x 200 Gb/s InfiniBand";
  machine.host_memory = 900_GiB;
  return machine;
}

Machine ndm_a100_v4() {
  Machine machine = nd_a100_v4("azure-ndm-a100-v4", "A100-SXM4-80");
  machine.description = "Azure ND96amsr A100 v4: 8 x A100 80 GB, NVSwitch, 8 x 200 Gb/s InfiniBand";
  machine.host_memory = 1900_GiB;
  return machine;
}

Machine nd_h100_v5() {
  Machine machine = machine_with("azure-nd-h100-v5", "H100-SXM5-80", IntraNode::NvSwitch, 8, 2);
  machine.description = "Azure ND96isr H100 v5: 8 x H100 80 GB, NVSwitch, 8 x 400 Gb/s InfiniBand";
  machine.shape.gpus_per_pcie_switch = 1;
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.socket_link = 22_GBps;
  machine.shape.nvswitch = 450_GBps;
  set_nics(machine, 8, 400_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 52_GBps;
  machine.host_memory = 1900_GiB;
  machine.host_memory_bandwidth = 614.4_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8480C with 8 channels of DDR5-4800 each (Azure ND-H100-v5 page, Intel's "
      "datasheet)";
  machine.host_cores = 96;
  machine.cpu = "intel";
  machine.source =
      "Azure ND-H100-v5 page (8 H100, 96 cores, 1900 GiB, 8 x 400 Gb/s NDR); azhpc-images' "
      "topology "
      "file (8 switches of a GPU and a NIC); NCCL 2.30 constants (Sapphire Rapids 22 GB/s); NDR 46 "
      "to 48 of 50 GB/s a NIC in public nccl-tests; host copies 51 to 52 GB/s by nvbandwidth";
  return machine;
}

/// Four NUMA nodes of one EPYC, drawn as CPUs, with a GPU each; two bridged pairs.
Machine nc_a100_v4() {
  Machine machine = machine_with("azure-nc-a100-v4", "A100-PCIe-80", IntraNode::NvLinkMesh, 4, 4);
  machine.description = "Azure NC96ads A100 v4: 4 x A100 80 GB PCIe, NVLink in pairs, 80 Gb/s";
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvlink = 25_GBps;
  machine.shape.mesh = {{0, 1, 12}, {2, 3, 12}};
  machine.shape.nic_parents = {{DeviceKind::Cpu, 0}};
  set_nics(machine, 1, 80_Gbps, NetworkKind::Tcp);
  machine.host_link = 25_GBps;
  machine.host_memory = 880_GiB;
  machine.host_memory_bandwidth = 204.8_GBps;
  machine.host_memory_source =
      "8 channels of DDR4-3200 of one EPYC 7V13 (Azure NCA100v4 page: Milan; channels as of that "
      "generation)";
  machine.host_cores = 96;
  machine.cpu = "amd";
  machine.source =
      "Azure NCA100v4 page (4 A100 PCIe, 96 cores, 880 GiB, 80 Gb/s); azhpc-images' topology file "
      "(a GPU on each of four NUMA nodes, 12 NVLinks in pairs, the NIC on the first); NCCL 2.30 "
      "constants (xGMI 16 GB/s); 100 GbE by TCP 0.7 to 0.85 of peak; PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

}  // namespace

std::vector<Machine> azure_machines() {
  return {nd40rs_v2(), nd_a100_v4_40(), ndm_a100_v4(), nd_h100_v5(), nc_a100_v4()};
}

}  // namespace zerosim
