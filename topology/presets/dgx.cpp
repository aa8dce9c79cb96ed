#include "topology/pcie.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// Hybrid cube mesh: four PCIe 3 switches of two GPUs and one NIC each, six NVLinks a GPU.
Machine dgx1_v100(const std::string& name, const std::string& gpu) {
  Machine machine = machine_with(name, gpu, IntraNode::NvLinkMesh, 8, 2);
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {0, 0, 1, 1};
  machine.shape.pcie = pcie_figures(3).peak;
  machine.shape.socket_link = 6_GBps;
  machine.shape.nvlink = 25_GBps;
  machine.shape.mesh = hybrid_cube_mesh();
  set_nics(machine, 4, 100_Gbps, NetworkKind::InfiniBand);
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
      "peak and PCIe 3 copies 12 to 13 GB/s in public tests";
  return machine;
}

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

/// Four PCIe 3 trees of two switches; below each of those two GPUs and a NIC. Switches 0-3 are the
/// tops of the trees. Both boards' NVSwitches drawn as one.
Machine dgx2() {
  Machine machine = machine_with("dgx2", "V100-SXM3-32", IntraNode::NvSwitch, 16, 2);
  machine.description = "DGX-2: 16 x V100 32 GB, NVSwitch, 8 x 100 Gb/s InfiniBand";
  for (int top = 0; top < 4; ++top) {
    machine.shape.switch_parents.push_back({DeviceKind::Cpu, top / 2});
  }
  for (int below = 0; below < 8; ++below) {
    machine.shape.switch_parents.push_back({DeviceKind::PcieSwitch, below / 2});
    machine.shape.nic_parents.push_back({DeviceKind::PcieSwitch, 4 + below});
  }
  for (int gpu = 0; gpu < 16; ++gpu) {
    machine.shape.gpu_parents.push_back({DeviceKind::PcieSwitch, 4 + gpu / 2});
  }
  machine.shape.pcie = pcie_figures(3).peak;
  machine.shape.socket_link = 10_GBps;
  machine.shape.nvswitch = 150_GBps;
  set_nics(machine, 8, 100_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 12.5_GBps;
  machine.host_memory = 1536_GiB;
  machine.host_memory_bandwidth = 256_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8168 with 6 channels of DDR4-2666 each (NVIDIA's DGX-2 user guide, "
      "Intel's datasheet)";
  machine.host_cores = 48;
  machine.cpu = "intel";
  machine.source =
      "NVIDIA DGX-2 user guide (GPUs, 6 NVLinks of 25 GB/s, 8 x 100 Gb/s, 2 x 24 cores) and its "
      "`nvidia-smi topo -m` (PIX and PXB of GPUs and NICs; two storage NICs left out); NCCL 2.30 "
      "constants (Skylake UPI 10 GB/s); EDR 0.95 to 0.97 of peak and PCIe 3 copies 12 to 13 GB/s "
      "in public tests";
  return machine;
}

/// Four PCIe 4 switches of two GPUs and two NICs each; six NVSwitches, drawn as one.
Machine dgx_a100(const std::string& name, const std::string& gpu, Bytes host_memory) {
  Machine machine = machine_with(name, gpu, IntraNode::NvSwitch, 8, 2);
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {3, 1, 7, 5};
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvswitch = 300_GBps;
  set_nics(machine, 8, 200_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 25_GBps;
  machine.host_memory = host_memory;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC 7742 with 8 channels of DDR4-3200 each (NVIDIA's and AMD's datasheets)";
  machine.host_cores = 128;
  machine.cpu = "amd";
  machine.source =
      "NVIDIA DGX A100 datasheet (GPUs, 12 NVLinks of 25 GB/s, 8 x 200 Gb/s HDR, 2 x 64 cores); "
      "NCCL 2.30 constants (xGMI 16 GB/s); HDR 24 of 25 GB/s a NIC in public nccl-tests; PCIe 4 "
      "copies 24 to 26 GB/s in public tests";
  return machine;
}

Machine dgx_a100_40() {
  Machine machine = dgx_a100("dgx-a100-40", "A100-SXM4-40", 1024_GiB);
  machine.description = "DGX A100: 8 x A100 40 GB, NVSwitch, 8 x 200 Gb/s InfiniBand";
  return machine;
}

Machine dgx_a100_80() {
  Machine machine = dgx_a100("dgx-a100-80", "A100-SXM4-80", 2048_GiB);
  machine.description = "DGX A100: 8 x A100 80 GB, NVSwitch, 8 x 200 Gb/s InfiniBand";
  return machine;
}

/// As HGX A100, with 8 of the 12 NVLinks of a GPU.
Machine hgx_a800() {
  Machine machine = dgx_a100("hgx-a800", "A800-SXM4-80", Bytes());
  machine.description = "HGX A800: 8 x A800 80 GB, NVSwitch (8 NVLinks), 8 x 200 Gb/s InfiniBand";
  machine.shape.nvswitch = 200_GBps;
  machine.shape.numa_nodes = {0, 0, 1, 1};
  machine.host_memory_source =
      "two sockets with 8 channels of DDR4-3200 each, usual for PCIe 4 (estimate)";
  machine.host_cores = 0;
  machine.source =
      "public `nvidia-smi topo -m` of A800 servers (NV8: 8 NVLinks of 25 GB/s); board and network "
      "as DGX A100's, of which vendors' servers differ in CPUs, memory (not told here) and NUMA "
      "nodes; NCCL 2.30 constants (xGMI 16 GB/s)";
  return machine;
}

/// Four GPUs that are joined directly, four NVLinks a pair; each on a PCIe switch with its NIC.
Machine hgx_a100_4(const std::string& name, const std::string& gpu) {
  Machine machine = machine_with(name, gpu, IntraNode::NvLinkMesh, 4, 2);
  machine.shape.gpus_per_pcie_switch = 1;
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvlink = 25_GBps;
  machine.shape.mesh = full_mesh(4, 12);
  set_nics(machine, 4, 200_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 25_GBps;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC with 8 channels of DDR4-3200 each, as JUWELS Booster's (AMD's datasheet)";
  machine.cpu = "amd";
  machine.source =
      "NVIDIA A100 datasheet (12 NVLinks of 25 GB/s, 4 to each of 3 peers), JUWELS Booster's "
      "system page (2 x EPYC 7402, 4 x 200 Gb/s HDR, a NIC beside each GPU); other machines have 1 "
      "or 2 NICs (Polaris 2 x 200) or 100 Gb/s ports (Leonardo); NCCL 2.30 constants (xGMI 16 "
      "GB/s); PCIe 4 copies 24 to 26 GB/s in public tests";
  return machine;
}

Machine hgx_a100_4_40() {
  Machine machine = hgx_a100_4("hgx-a100-4-40", "A100-SXM4-40");
  machine.description = "HGX A100 4-GPU: 4 x A100 40 GB, all pairs linked, 4 x 200 Gb/s InfiniBand";
  machine.host_memory = 512_GiB;
  machine.host_cores = 48;
  return machine;
}

Machine hgx_a100_4_80() {
  Machine machine = hgx_a100_4("hgx-a100-4-80", "A100-SXM4-80");
  machine.description = "HGX A100 4-GPU: 4 x A100 80 GB, all pairs linked, 4 x 200 Gb/s InfiniBand";
  return machine;
}

}  // namespace

std::vector<NvLinkPair> hybrid_cube_mesh() {
  return {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
          {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
}

std::vector<Machine> dgx_machines() {
  return {dgx_a100_40(), dgx_a100_80(), dgx1_v100_16(),  dgx1_v100_32(),
          dgx2(),        hgx_a800(),    hgx_a100_4_40(), hgx_a100_4_80()};
}

}  // namespace zerosim
