#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// Hybrid cube mesh: four PCIe 3 switches of two GPUs and one NIC each, six NVLinks a GPU.
Machine dgx1_v100(const std::string& name, const std::string& gpu) {
  Machine machine;
  machine.name = name;
  machine.gpu = gpu;
  machine.intra = IntraNode::NvLinkMesh;
  machine.shape.gpus = 8;
  machine.shape.sockets = 2;
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {0, 0, 1, 1};
  machine.shape.pcie = 15.75_GBps;
  machine.shape.socket_link = 6_GBps;
  machine.shape.nvlink = 25_GBps;
  machine.shape.mesh = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
                        {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
                        {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  machine.shape.nics = 4;
  machine.nic_bandwidth = 100_Gbps;
  machine.network = NetworkKind::InfiniBand;
  machine.nic_efficiency = 0.96;
  machine.host_link = 12.5_GBps;
  machine.host_memory = 512_GiB;
  machine.host_memory_bandwidth = 136.5_GBps;
  machine.host_memory_source =
      "two Xeon E5-2698 v4 with 4 channels each, of DDR4-2133 (NVIDIA's DGX-1 user guide)";
  machine.host_cores = 40;
  machine.cpu = "intel";
  machine.source =
      "NVIDIA DGX-1 datasheet (GPUs, 6 NVLinks of 25 GB/s, 4 x 100 Gb/s EDR, 2 x 20 cores) and its "
      "`nvidia-smi topo -m` (cube mesh); NCCL 2.30 constants (QPI 6 GB/s); EDR 0.95 to 0.97 of "
      "peak and "
      "PCIe 3 copies 12 to 13 GB/s in public tests";
  return machine;
}

}  // namespace

Machine dgx1_v100_16() {
  Machine machine = dgx1_v100("dgx1-v100-16", "V100-SXM2-16");
  machine.description = "DGX-1: 8 x V100 16 GB, NVLink cube mesh, 4 x 100 Gb/s InfiniBand";
  return machine;
}

Machine dgx1_v100_32() {
  Machine machine = dgx1_v100("dgx1-v100-32", "V100-SXM2-32");
  machine.description = "DGX-1: 8 x V100 32 GB, NVLink cube mesh, 4 x 100 Gb/s InfiniBand";
  return machine;
}

}  // namespace zerosim
