#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// Four PCIe 4 switches of two GPUs and two NICs each; six NVSwitches, drawn as one.
Machine dgx_a100(const std::string& name, const std::string& gpu, Bytes host_memory) {
  Machine machine;
  machine.name = name;
  machine.gpu = gpu;
  machine.intra = IntraNode::NvSwitch;
  machine.shape.gpus = 8;
  machine.shape.sockets = 2;
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {3, 1, 7, 5};
  machine.shape.pcie = 31.5_GBps;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvswitch = 300_GBps;
  machine.shape.nics = 8;
  machine.nic_bandwidth = 200_Gbps;
  machine.network = NetworkKind::InfiniBand;
  machine.nic_efficiency = 0.96;
  machine.host_link = 25_GBps;
  machine.host_memory = host_memory;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC 7742 with 8 channels of DDR4-3200 each (NVIDIA's and AMD's datasheets)";
  machine.host_cores = 128;
  machine.cpu = "amd";
  machine.source =
      "NVIDIA DGX A100 datasheet (GPUs, 12 NVLinks of 25 GB/s, 8 x 200 Gb/s HDR, 2 x 64 cores); "
      "NCCL "
      "2.30 constants (xGMI 16 GB/s); HDR 24 of 25 GB/s a NIC in public nccl-tests; PCIe 4 copies "
      "24 "
      "to 26 GB/s in public tests";
  return machine;
}

}  // namespace

Machine dgx_a100_40() {
  Machine machine = dgx_a100("dgx-a100-40", "A100-SXM4-40", Bytes(std::int64_t{1} << 40));
  machine.description = "DGX A100: 8 x A100 40 GB, NVSwitch, 8 x 200 Gb/s InfiniBand";
  return machine;
}

Machine dgx_a100_80() {
  Machine machine = dgx_a100("dgx-a100-80", "A100-SXM4-80", Bytes(std::int64_t{2} << 40));
  machine.description = "DGX A100: 8 x A100 80 GB, NVSwitch, 8 x 200 Gb/s InfiniBand";
  return machine;
}

}  // namespace zerosim
