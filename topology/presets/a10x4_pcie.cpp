#include "topology/presets/machines.h"

namespace zerosim {

/// Each card on a root port of one CPU. NCCL uses peer-to-peer copies only below a common switch
/// (PXB), so rings go through host memory although the driver would allow peer access.
Machine a10x4_pcie() {
  Machine machine;
  machine.name = "a10x4-pcie";
  machine.description = "4 x A10 24 GB on PCIe 4, one socket, rings through host memory";
  machine.gpu = "A10-24";
  machine.intra = IntraNode::PcieHostStaged;
  machine.shape.gpus = 4;
  machine.shape.sockets = 1;
  machine.shape.numa_nodes = {0};
  machine.shape.pcie = 31.5_GBps;
  machine.shape.nics = 1;
  machine.nic_bandwidth = 25_Gbps;
  machine.network = NetworkKind::Tcp;
  machine.nic_efficiency = 0.95;
  machine.host_link = 25_GBps;
  machine.host_memory_bandwidth = 204.8_GBps;
  machine.host_memory_source = "one Xeon with 8 channels of DDR4-3200, usual for PCIe 4 (estimate)";
  machine.cpu = "intel";
  machine.source =
      "NVIDIA A10 datasheet (PCIe 4 x16, no NVLink); NCCL 2.30 (peer-to-peer up to PXB only); "
      "busbw "
      "through host memory 14.5 to 16 GB/s as on public PCIe 4 boxes; PCIe 4 copies 24 to 26 GB/s";
  machine.network_assumption =
      "a10x4-pcie has no network of its own: one 25 Gb/s Ethernet adapter over TCP is taken (0.95 "
      "of "
      "peak, 75 us a step); replace it with node.nics of a cluster file";
  return machine;
}

}  // namespace zerosim
