#include "topology/pcie.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// A PCIe 5 switch for each GPU and its NIC; the NVSwitches drawn as one.
Machine eight_gpus(const std::string& name, const std::string& gpu, BytesPerSecond nvlink) {
  Machine machine = machine_with(name, gpu, IntraNode::NvSwitch, 8, 2);
  machine.shape.gpus_per_pcie_switch = 1;
  machine.shape.numa_nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.socket_link = 22_GBps;
  machine.shape.nvswitch = nvlink;
  set_nics(machine, 8, 400_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 52_GBps;
  machine.host_memory = 2048_GiB;
  machine.host_memory_bandwidth = 614.4_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8480C with 8 channels of DDR5-4800 each (NVIDIA's and Intel's datasheets)";
  machine.host_cores = 112;
  machine.cpu = "intel";
  return machine;
}

Machine dgx_h100() {
  Machine machine = eight_gpus("dgx-h100", "H100-SXM5-80", 450_GBps);
  machine.description = "DGX H100: 8 x H100 80 GB, NVSwitch with NVLS, 8 x 400 Gb/s InfiniBand";
  machine.source =
      "NVIDIA DGX H100 datasheet (GPUs, 18 NVLinks of 25 GB/s, 8 x 400 Gb/s NDR, 2 x 56 cores); "
      "NCCL 2.30 constants (Sapphire Rapids 22 GB/s); NDR 46 to 48 of 50 GB/s a NIC in public "
      "nccl-tests; host copies 51 to 52 GB/s by nvbandwidth (Azure ND H100 v5)";
  return machine;
}

Machine dgx_h200() {
  Machine machine = eight_gpus("dgx-h200", "H200-SXM-141", 450_GBps);
  machine.description = "DGX H200: 8 x H200 141 GB, NVSwitch with NVLS, 8 x 400 Gb/s InfiniBand";
  machine.host_link = 55_GBps;
  machine.source =
      "NVIDIA DGX H200 datasheet (GPUs, 18 NVLinks of 25 GB/s, 8 x 400 Gb/s NDR, 2 x 56 cores); "
      "NCCL 2.30 constants (Sapphire Rapids 22 GB/s); NDR 46 to 48 of 50 GB/s a NIC in public "
      "nccl-tests; host copies 55 GB/s (ml-engineering)";
  return machine;
}

Machine hgx_h20() {
  Machine machine = eight_gpus("hgx-h20", "H20-SXM", 450_GBps);
  machine.description = "HGX H20: 8 x H20 96 GB, NVSwitch with NVLS, 8 x 400 Gb/s InfiniBand";
  machine.host_memory = Bytes();
  machine.host_memory_source =
      "two sockets with 8 channels of DDR5-4800 each, usual for PCIe 5 (estimate)";
  machine.host_cores = 0;
  machine.source =
      "published H20 figures and `nvidia-smi topo -m` of such servers (18 NVLinks of 25 GB/s, a "
      "NIC beside each GPU); CPUs and memory differ by vendor and are not told; NCCL 2.30 "
      "constants (Sapphire Rapids 22 GB/s); PCIe 5 copies as of HGX H100";
  machine.network_assumption =
      "hgx-h20: servers have 8 x 200 or 400 Gb/s; 400 Gb/s InfiniBand is taken; replace it with "
      "node.nics of a cluster file";
  return machine;
}

Machine dgx_b200() {
  Machine machine = eight_gpus("dgx-b200", "B200-SXM-180", 900_GBps);
  machine.description = "DGX B200: 8 x B200 180 GB, NVSwitch with NVLS, 8 x 400 Gb/s InfiniBand";
  machine.shape.socket_link = 40_GBps;
  machine.host_memory_bandwidth = 716.8_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8570 with 8 channels of DDR5-5600 each (NVIDIA's and Intel's datasheets)";
  machine.source =
      "NVIDIA DGX B200 datasheet (GPUs, 18 NVLinks of 50 GB/s, 8 x 400 Gb/s, 2 x 56 cores, 2 TB, "
      "more as an option); NCCL 2.30 constants (Emerald Rapids 40 GB/s); NDR 46 to 48 of 50 GB/s a "
      "NIC in public nccl-tests; PCIe 5 copies as of HGX H100";
  return machine;
}

Machine dgx_b300() {
  Machine machine = eight_gpus("dgx-b300", "B300-SXM-288", 900_GBps);
  machine.description = "DGX B300: 8 x B300 288 GB, NVSwitch with NVLS, 8 x 800 Gb/s InfiniBand";
  machine.shape.pcie = pcie_figures(6).peak;
  machine.shape.socket_link = 40_GBps;
  machine.nic_bandwidth = 800_Gbps;
  machine.host_memory_bandwidth = 819.2_GBps;
  machine.host_memory_source =
      "two Xeon 6776P with 8 channels of DDR5-6400 each (NVIDIA's and Intel's datasheets)";
  machine.host_cores = 128;
  machine.source =
      "NVIDIA DGX B300 datasheet (GPUs, 18 NVLinks of 50 GB/s, 8 x 800 Gb/s on ConnectX-8 with its "
      "PCIe 6 switch, 2 x 64 cores, 2 TB); the CPUs' PCIe 5 limits host copies (as of HGX H100); "
      "NCCL 2.30 constants (Emerald Rapids 40 GB/s, the newest Intel row); 0.96 of peak as NDR";
  return machine;
}

/// A compute tray: two Grace CPUs, each with two GPUs on C2C and two NICs; the rack's NVLink
/// switches, drawn as one, join the GPUs of 18 trays.
Machine gb200_nvl72() {
  Machine machine = machine_with("gb200-nvl72", "GB200-186", IntraNode::NvSwitch, 4, 2);
  machine.description =
      "GB200 NVL72: 18 trays of 4 x GB200 186 GB on one NVLink, 4 x 400 Gb/s each";
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.c2c = 450_GBps;
  machine.shape.socket_link = 6_GBps;
  machine.shape.nvswitch = 900_GBps;
  set_nics(machine, 4, 400_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 360_GBps;
  machine.host_memory = 960_GiB;
  machine.host_memory_bandwidth = 1024_GBps;
  machine.host_memory_source =
      "two Grace with 512 GB/s of LPDDR5X each (NVIDIA GB200 NVL72 page: 17 TB in the rack, 18 "
      "TB/s)";
  machine.host_cores = 144;
  machine.cpu = "arm";
  machine.source =
      "NVIDIA GB200 NVL72 page (18 trays of 4 GPUs and 2 Grace of 72 cores, 18 NVLinks of 50 GB/s "
      "a GPU through 9 switch trays, C2C 450 GB/s, 4 x 400 Gb/s a tray on the Graces' PCIe 5); C2C "
      "copies 0.8 of peak (ml-engineering); NCCL 2.30 constants (ARM 6 GB/s between CPUs)";
  machine.nvlink_domain_nodes = 18;
  machine.nodes = 18;
  return machine;
}

/// One Grace, one Hopper, one NIC: nothing to share NVLink with.
Machine gh200() {
  Machine machine = machine_with("gh200", "GH200-96", IntraNode::Pcie, 1, 1);
  machine.description = "GH200: one superchip (Grace and H100 96 GB on C2C), 400 Gb/s InfiniBand";
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.c2c = 450_GBps;
  set_nics(machine, 1, 400_Gbps, NetworkKind::InfiniBand);
  machine.host_link = 360_GBps;
  machine.host_memory = 480_GiB;
  machine.host_memory_bandwidth = 512_GBps;
  machine.host_memory_source = "one Grace with LPDDR5X (NVIDIA GH200 datasheet)";
  machine.host_cores = 72;
  machine.cpu = "arm";
  machine.source =
      "NVIDIA GH200 datasheet (C2C 450 GB/s, 72 cores, 480 GB); C2C copies 0.8 of peak "
      "(ml-engineering)";
  machine.network_assumption =
      "gh200: one 400 Gb/s InfiniBand adapter a superchip is taken; replace it with node.nics of a "
      "cluster file";
  return machine;
}

/// Four superchips whose GPUs are joined directly, six NVLinks a pair.
Machine gh200x4() {
  Machine machine = gh200();
  machine.name = "gh200x4";
  machine.description = "4 x GH200: four superchips, all pairs linked, 4 x 400 Gb/s InfiniBand";
  machine.intra = IntraNode::NvLinkMesh;
  machine.shape.gpus = 4;
  machine.shape.sockets = 4;
  machine.shape.socket_link = 6_GBps;
  machine.shape.nvlink = 25_GBps;
  machine.shape.mesh = full_mesh(4, 18);
  machine.shape.nics = 4;
  machine.host_memory = 1920_GiB;
  machine.host_memory_bandwidth = 2048_GBps;
  machine.host_memory_source = "four Grace with LPDDR5X (NVIDIA GH200 datasheet)";
  machine.host_cores = 288;
  machine.source =
      "NVIDIA GH200 datasheet (18 NVLinks of 25 GB/s, C2C 450 GB/s, 72 cores, 480 GB each), quad "
      "boards as of Alps and JUPITER (6 NVLinks to each of 3 peers, a NIC a superchip); C2C copies "
      "0.8 of peak (ml-engineering); NCCL 2.30 constants (ARM 6 GB/s between CPUs)";
  machine.network_assumption =
      "gh200x4: one 400 Gb/s InfiniBand adapter a superchip is taken (Alps has 200 Gb/s); replace "
      "it with node.nics of a cluster file";
  return machine;
}

}  // namespace

std::vector<Machine> hopper_and_blackwell_machines() {
  return {dgx_h100(), dgx_h200(),    hgx_h20(), dgx_b200(),
          dgx_b300(), gb200_nvl72(), gh200(),   gh200x4()};
}

}  // namespace zerosim
