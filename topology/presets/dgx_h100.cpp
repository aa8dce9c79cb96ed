#include "topology/presets/machines.h"

namespace zerosim {

/// A PCIe 5 switch for each GPU and its NIC; four NVSwitches, drawn as one.
Machine dgx_h100() {
  Machine machine;
  machine.name = "dgx-h100";
  machine.description = "DGX H100: 8 x H100 80 GB, NVSwitch with NVLS, 8 x 400 Gb/s InfiniBand";
  machine.gpu = "H100-SXM5-80";
  machine.intra = IntraNode::NvSwitch;
  machine.shape.gpus = 8;
  machine.shape.sockets = 2;
  machine.shape.gpus_per_pcie_switch = 1;
  machine.shape.numa_nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  machine.shape.pcie = 63_GBps;
  machine.shape.socket_link = 22_GBps;
  machine.shape.nvswitch = 450_GBps;
  machine.shape.nics = 8;
  machine.nic_bandwidth = 400_Gbps;
  machine.network = NetworkKind::InfiniBand;
  machine.nic_efficiency = 0.96;
  machine.host_link = 52_GBps;
  machine.host_memory = Bytes(std::int64_t{2} << 40);
  machine.host_memory_bandwidth = 614.4_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8480C with 8 channels of DDR5-4800 each (NVIDIA's and Intel's datasheets)";
  machine.host_cores = 112;
  machine.cpu = "intel";
  machine.source =
      "NVIDIA DGX H100 datasheet (GPUs, 18 NVLinks of 25 GB/s, 8 x 400 Gb/s NDR, 2 x 56 cores); "
      "NCCL "
      "2.30 constants (Sapphire Rapids 22 GB/s); NDR 46 to 48 of 50 GB/s a NIC in public "
      "nccl-tests; "
      "host copies 51 to 52 GB/s by nvbandwidth (Azure ND H100 v5)";
  return machine;
}

}  // namespace zerosim
