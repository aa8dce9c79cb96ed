#include "topology/presets/machines.h"

namespace zerosim {

/// Each card on a root port of its own, four to a socket; the driver refuses peer access.
Machine rtx4090x8_pcie() {
  Machine machine;
  machine.name = "rtx4090x8-pcie";
  machine.description = "8 x RTX 4090 24 GB on PCIe 4, two sockets, no peer-to-peer copies";
  machine.gpu = "RTX4090-24";
  machine.intra = IntraNode::PcieHostStaged;
  machine.shape.gpus = 8;
  machine.shape.sockets = 2;
  machine.shape.numa_nodes = {0, 1};
  machine.shape.pcie = 31.5_GBps;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nics = 1;
  machine.nic_bandwidth = 25_Gbps;
  machine.network = NetworkKind::Tcp;
  machine.nic_efficiency = 0.95;
  machine.host_link = 25_GBps;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC with 8 channels of DDR4-3200 each, usual for PCIe 4 (estimate)";
  machine.cpu = "amd";
  machine.source =
      "public 8 x RTX 4090 boxes (`nvidia-smi topo -m`: NODE and SYS only; all-reduce busbw 14.5 "
      "to 16 "
      "GB/s through host memory); PCIe 4 copies 24 to 26 GB/s; NCCL 2.30 constants (AMD 16 GB/s "
      "between "
      "sockets)";
  machine.network_assumption =
      "rtx4090x8-pcie has no network of its own: one 25 Gb/s Ethernet adapter over TCP is taken "
      "(0.95 of peak, 75 us a step); replace it with node.nics of a cluster file";
  return machine;
}

}  // namespace zerosim
