#include "topology/pcie.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// Four PCIe 5 switches of two GPUs and their NICs.
Machine a3(const std::string& name, const std::string& gpu) {
  Machine machine = machine_with(name, gpu, IntraNode::NvSwitch, 8, 2);
  machine.shape.gpus_per_pcie_switch = 2;
  machine.shape.numa_nodes = {0, 0, 1, 1};
  machine.shape.pcie = pcie_figures(5).peak;
  machine.shape.socket_link = 22_GBps;
  machine.shape.nvswitch = 450_GBps;
  machine.host_link = 52_GBps;
  machine.host_memory = 1872_GiB;
  machine.host_memory_bandwidth = 614.4_GBps;
  machine.host_memory_source =
      "two Xeon Platinum 8481C with 8 channels of DDR5-4800 each (GCP A3 page, Intel's datasheet)";
  machine.host_cores = 104;
  machine.cpu = "intel";
  return machine;
}

Machine a3_high() {
  Machine machine = a3("gcp-a3-high", "H100-SXM5-80");
  machine.description = "GCP a3-highgpu-8g: 8 x H100 80 GB, NVSwitch with NVLS, 4 x 200 Gb/s TCPX";
  set_nics(machine, 4, 200_Gbps, NetworkKind::Tcpx);
  machine.source =
      "GCP A3 page (8 H100, 208 virtual CPUs, 1872 GB, 4 x 200 Gb/s); 4 switches of 2 GPUs; "
      "GPUDirect-TCPX 13.5 to 18 of 25 GB/s a NIC in two public logs of all-gathers, which start "
      "at "
      "700 us (nccl_cost.md 7.1); NCCL 2.30 constants (Sapphire Rapids 22 GB/s); PCIe 5 copies as "
      "of HGX H100";
  return machine;
}

Machine a3_mega() {
  Machine machine = a3("gcp-a3-mega", "H100-SXM5-80");
  machine.description = "GCP a3-megagpu-8g: 8 x H100 80 GB, NVSwitch with NVLS, 8 x 200 Gb/s TCPXO";
  set_nics(machine, 8, 200_Gbps, NetworkKind::Tcpxo);
  machine.source =
      "GCP A3 page (8 H100, 208 virtual CPUs, 1872 GB, 8 x 200 Gb/s); 4 switches of 2 GPUs; "
      "GPUDirect-TCPXO 0.9 of peak expected (topologies.md section 1), latency as of TCP; NCCL "
      "2.30 constants (Sapphire Rapids 22 GB/s); PCIe 5 copies as of HGX H100";
  return machine;
}

Machine a3_ultra() {
  Machine machine = a3("gcp-a3-ultra", "H200-SXM-141");
  machine.description =
      "GCP a3-ultragpu-8g: 8 x H200 141 GB, NVSwitch with NVLS, 8 x 400 Gb/s RoCE";
  set_nics(machine, 8, 400_Gbps, NetworkKind::Roce);
  machine.shape.socket_link = 40_GBps;
  machine.host_memory = 2952_GiB;
  machine.host_memory_bandwidth = 716.8_GBps;
  machine.host_memory_source =
      "two Emerald Rapids Xeons with 8 channels of DDR5-5600 each (GCP A3 page; channels as of "
      "that generation)";
  machine.host_cores = 112;
  machine.source =
      "GCP A3 page (8 H200, 224 virtual CPUs, 2952 GB, 8 x 400 Gb/s RoCE); 4 switches of 2 GPUs; "
      "NCCL 2.30 constants (Emerald Rapids 40 GB/s); RoCE 0.88 to 0.95 of peak; PCIe 5 copies as "
      "of HGX H100";
  return machine;
}

}  // namespace

std::vector<Machine> gcp_machines() {
  return {a3_high(), a3_mega(), a3_ultra()};
}

}  // namespace zerosim
