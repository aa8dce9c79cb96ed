#include "topology/pcie.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

// A virtual CPU of the pages is a hardware thread: cores are half of the virtual CPUs.

/// GPUs on PCIe 3 switches of pairs, as DGX-1's.
Machine aws_p3(const std::string& name, int gpus, BytesPerSecond nic_bandwidth) {
  Machine machine = machine_with(name, "V100-SXM2-16", IntraNode::NvLinkMesh, gpus, gpus / 4);
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.pcie = pcie_figures(3).peak;
  machine.shape.socket_link = 6_GBps;
  machine.shape.nvlink = 25_GBps;
  for (const NvLinkPair& pair : hybrid_cube_mesh()) {
    if (pair.a < gpus && pair.b < gpus) machine.shape.mesh.push_back(pair);
  }
  machine.shape.nic_parents = {{DeviceKind::Cpu, 0}};
  set_nics(machine, 1, nic_bandwidth, NetworkKind::Tcp);
  machine.nic_efficiency = 0.95;
  machine.cpu = "intel";
  machine.host_link = 12.5_GBps;
  machine.host_memory_bandwidth = BytesPerSecond(76.8e9 * machine.shape.sockets);
  machine.host_memory_source =
      "Xeon E5-2686 v4: 4 channels of DDR4-2400 a socket (AWS P3 page; channels as of "
      "Broadwell-EP)";
  return machine;
}

Machine aws_p3_8xl() {
  Machine machine = aws_p3("aws-p3.8xl", 4, 10_Gbps);
  machine.description = "AWS p3.8xlarge: 4 x V100 16 GB, half a cube mesh, 10 Gb/s Ethernet";
  machine.nic_efficiency = 0.9;
  machine.host_memory = 244_GiB;
  machine.host_cores = 16;
  machine.source =
      "AWS P3 page (4 V100, 32 virtual CPUs, 244 GiB, 10 Gb/s); `nvidia-smi topo -m` of a "
      "p3.8xlarge (4 to 5 NVLinks of 25 GB/s a GPU); 10 GbE by TCP 0.9 of peak; PCIe 3 copies 12 "
      "to 13 GB/s in public tests";
  return machine;
}

Machine aws_p3_16xl() {
  Machine machine = aws_p3("aws-p3.16xl", 8, 25_Gbps);
  machine.description = "AWS p3.16xlarge: 8 x V100 16 GB, NVLink cube mesh, 25 Gb/s Ethernet";
  machine.host_memory = 488_GiB;
  machine.host_cores = 32;
  machine.source =
      "AWS P3 page (8 V100, 64 virtual CPUs, 488 GiB, 25 Gb/s); cube mesh as DGX-1's (NVIDIA's "
      "numbering; clouds may relabel); NCCL 2.30 constants (QPI 6 GB/s); 25 GbE by TCP 0.95 of "
      "peak; PCIe 3 copies 12 to 13 GB/s in public tests";
  return machine;
}

/// Four PCIe switches of two GPUs and one EFA adapter.
Machine aws_p4(const std::string& name, const std::string& gpu) {
  Machine machine = machine_with(name, gpu, IntraNode::NvSwitch, 8, 2);
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {0, 0, 1, 1};
  machine.shape.pcie = pcie_figures(3).peak;
  machine.shape.socket_link = 10_GBps;
  machine.shape.nvswitch = 300_GBps;
  set_nics(machine, 4, 100_Gbps, NetworkKind::EfaV1);
  machine.cpu = "intel";
  machine.host_link = 12.5_GBps;
  machine.host_memory = 1152_GiB;
  machine.host_memory_bandwidth = 281.6_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8275CL with 6 channels of DDR4-2933 each (AWS P4 page; channels as of "
      "Cascade Lake)";
  machine.host_cores = 48;
  machine.source =
      "AWS P4 page (8 A100, 96 virtual CPUs, 1152 GiB, 4 x 100 Gb/s EFA); aws-ofi-nccl's topology "
      "file (4 switches of 2 GPUs and a NIC, links of 8 GT/s: the CPUs' PCIe 3); NCCL 2.30 "
      "constants "
      "(Skylake UPI 10 GB/s); EFA 0.9 to 0.97 of peak; PCIe 3 copies 12 to 13 GB/s in public tests";
  return machine;
}

Machine aws_p4d() {
  Machine machine = aws_p4("aws-p4d", "A100-SXM4-40");
  machine.description = "AWS p4d.24xlarge: 8 x A100 40 GB, NVSwitch, 4 x 100 Gb/s EFA";
  return machine;
}

Machine aws_p4de() {
  Machine machine = aws_p4("aws-p4de", "A100-SXM4-80");
  machine.description = "AWS p4de.24xlarge: 8 x A100 80 GB, NVSwitch, 4 x 100 Gb/s EFA";
  return machine;
}

/// Eight PCIe switches of one GPU and its share of the EFA adapters.
Machine one_switch_a_gpu(const std::string& name, const std::string& gpu, int nics,
                         BytesPerSecond nic_bandwidth) {
  Machine machine = machine_with(name, gpu, IntraNode::NvSwitch, 8, 2);
  machine.shape.gpus_per_pcie_switch = 1;
  set_nics(machine, nics, nic_bandwidth, NetworkKind::Efa);
  machine.cpu = "intel";
  machine.host_memory = 2048_GiB;
  machine.host_cores = 96;
  return machine;
}

Machine aws_p5() {
  Machine machine = one_switch_a_gpu("aws-p5", "H100-SXM5-80", 32, 100_Gbps);
  machine.description = "AWS p5.48xlarge: 8 x H100 80 GB, NVSwitch with NVLS, 32 x 100 Gb/s EFA";
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.gpu_links.assign(8, pcie_figures(5).peak);
  machine.shape.nic_links.assign(32, pcie_peak(4, 8));
  machine.shape.socket_link = 16_GBps;
  machine.shape.nvswitch = 450_GBps;
  machine.host_link = 25_GBps;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC 7R13 with 8 channels of DDR4-3200 each (AWS P5 page; channels as of Milan)";
  machine.cpu = "amd";
  machine.source =
      "AWS P5 page (8 H100, 192 virtual CPUs, 2 TiB, 3200 Gb/s EFA); aws-ofi-nccl's topology file "
      "(8 switches of a GPU and 4 NICs on PCIe 4 x8, uplinks of 16 GT/s: the CPUs' PCIe 4); NCCL "
      "2.30 constants (xGMI 16 GB/s); EFA 0.9 to 0.97 of peak; PCIe 4 copies 24 to 26 GB/s in "
      "public tests";
  return machine;
}

/// Machines on PCIe 5.
Machine pcie5_instance(const std::string& name, const std::string& gpu, int nics,
                       BytesPerSecond nic_bandwidth, BytesPerSecond nvlink) {
  Machine machine = one_switch_a_gpu(name, gpu, nics, nic_bandwidth);
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.nvswitch = nvlink;
  machine.host_link = 52_GBps;
  return machine;
}

Machine aws_p5en() {
  Machine machine = pcie5_instance("aws-p5en", "H200-SXM-141", 16, 200_Gbps, 450_GBps);
  machine.network = NetworkKind::EfaV3;
  machine.description = "AWS p5en.48xlarge: 8 x H200 141 GB, NVSwitch with NVLS, 16 x 200 Gb/s EFA";
  machine.shape.socket_link = 22_GBps;
  machine.host_memory_bandwidth = 614.4_GBps;
  machine.host_memory_source =
      "two Sapphire Rapids Xeons with 8 channels of DDR5-4800 each (AWS P5en page; channels as of "
      "that generation)";
  machine.source =
      "AWS P5en page (8 H200, 192 virtual CPUs of Sapphire Rapids, 2 TiB, 3200 Gb/s EFA v3, PCIe 5 "
      "between CPU and GPU); NCCL 2.30 constants (Sapphire Rapids 22 GB/s); EFA v3 0.9 to 0.97 of "
      "peak; PCIe 5 copies as of HGX H100";
  return machine;
}

Machine aws_p6(const std::string& name, const std::string& gpu, int nics) {
  Machine machine = pcie5_instance(name, gpu, nics, 400_Gbps, 900_GBps);
  machine.network = NetworkKind::EfaV3;
  machine.shape.socket_link = 40_GBps;
  machine.host_memory_bandwidth = 716.8_GBps;
  machine.host_memory_source =
      "two Emerald Rapids Xeons with 8 channels of DDR5-5600 each (AWS P6 page; channels as of "
      "that generation)";
  return machine;
}

Machine aws_p6_b200() {
  Machine machine = aws_p6("aws-p6-b200", "B200-SXM-180", 8);
  machine.description =
      "AWS p6-b200.48xlarge: 8 x B200 180 GB, NVSwitch with NVLS, 8 x 400 Gb/s EFA";
  machine.source =
      "AWS P6 page (8 B200, 192 virtual CPUs of Emerald Rapids, 2 TiB, 3200 Gb/s EFA v4); NCCL "
      "2.30 "
      "constants (Emerald Rapids 40 GB/s); EFA 0.9 to 0.97 of peak; PCIe 5 copies as of HGX H100";
  return machine;
}

Machine aws_p6_b300() {
  Machine machine = aws_p6("aws-p6-b300", "B300-SXM-288", 16);
  machine.description = "AWS p6-b300.48xlarge: 8 x B300 288 GB, NVSwitch, 16 x 400 Gb/s EFA";
  machine.host_memory = 4096_GiB;
  machine.source =
      "AWS P6 page (8 B300, 192 virtual CPUs, 4 TiB, 6400 Gb/s EFA v4; the CPUs taken as "
      "p6-b200's); NCCL 2.30 constants (Emerald Rapids 40 GB/s); EFA 0.9 to 0.97 of peak; PCIe 5 "
      "copies as of HGX H100";
  return machine;
}

Machine aws_g5() {
  Machine machine = machine_with("aws-g5.48xl", "A10G-24", IntraNode::PcieHostStaged, 8, 2);
  machine.description = "AWS g5.48xlarge: 8 x A10G 24 GB on PCIe 4, two sockets, 100 Gb/s EFA";
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.socket_link = 16_GBps;
  machine.shape.nic_parents = {{DeviceKind::Cpu, 1}};
  set_nics(machine, 1, 100_Gbps, NetworkKind::EfaV1);
  machine.host_link = 25_GBps;
  machine.host_memory = 768_GiB;
  machine.host_memory_bandwidth = 409.6_GBps;
  machine.host_memory_source =
      "two EPYC 7R32 with 8 channels of DDR4-3200 each (AWS G5 page; channels as of Rome)";
  machine.host_cores = 96;
  machine.cpu = "amd";
  machine.source =
      "AWS G5 page (8 A10G, 192 virtual CPUs, 768 GiB, 100 Gb/s); aws-ofi-nccl's topology file (4 "
      "GPUs on each of two NUMA nodes, the NIC on the second); NCCL 2.30 constants (xGMI 16 GB/s); "
      "EFA 0.9 to 0.97 of peak; PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

}  // namespace

std::vector<Machine> aws_machines() {
  return {aws_p3_8xl(), aws_p3_16xl(), aws_p4d(),     aws_p4de(), aws_p5(),
          aws_p5en(),   aws_p6_b200(), aws_p6_b300(), aws_g5()};
}

}  // namespace zerosim
