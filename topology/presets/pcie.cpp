#include "topology/pcie.h"

#include "topology/presets/machines.h"

namespace zerosim {
namespace {

std::string ethernet_assumption(const std::string& name) {
  return name +
         " has no network of its own: one 25 Gb/s Ethernet adapter over TCP is taken (0.95 of "
         "peak, 75 us a step); replace it with node.nics of a cluster file";
}

/// Cards on PCIe 4 root ports, evenly on the sockets, and one Ethernet adapter.
Machine box(const std::string& name, const std::string& gpu, int gpus, int sockets) {
  Machine machine = machine_with(name, gpu, IntraNode::PcieHostStaged, gpus, sockets);
  machine.shape.pcie = pcie_figures(4).peak;
  machine.shape.socket_link = sockets > 1 ? 16_GBps : BytesPerSecond();
  set_nics(machine, 1, 25_Gbps, NetworkKind::Tcp);
  machine.nic_efficiency = 0.95;
  machine.host_link = 25_GBps;
  machine.host_memory_bandwidth = BytesPerSecond(204.8e9 * sockets);
  machine.cpu = "amd";
  machine.network_assumption = ethernet_assumption(name);
  return machine;
}

/// Each card on a root port of its own, four to a socket.
Machine dual_root(const std::string& name, const std::string& gpu) {
  Machine machine = box(name, gpu, 8, 2);
  machine.host_memory_source =
      "two EPYC with 8 channels of DDR4-3200 each, usual for PCIe 4 (estimate)";
  return machine;
}

/// The driver refuses peer access.
Machine rtx4090x8() {
  Machine machine = dual_root("rtx4090x8-pcie", "RTX4090-24");
  machine.description = "8 x RTX 4090 24 GB on PCIe 4, two sockets, no peer-to-peer copies";
  machine.source =
      "public 8 x RTX 4090 boxes (`nvidia-smi topo -m`: NODE and SYS only; all-reduce busbw 14.5 "
      "to 16 GB/s through host memory); PCIe 4 copies 24 to 26 GB/s; NCCL 2.30 constants (AMD 16 "
      "GB/s between sockets)";
  return machine;
}

/// Peer access is possible here, but NCCL uses it only up to PXB.
Machine dual_root_of(const std::string& name, const std::string& gpu, const std::string& words) {
  Machine machine = dual_root(name, gpu);
  machine.description = "8 x " + words + " on PCIe 4, two sockets, a root port each, no switches";
  machine.source =
      "dual-socket servers of this kind as public 8 x RTX 4090 boxes (`nvidia-smi topo -m`: NODE "
      "and SYS only; busbw 14.5 to 16 GB/s through host memory); NCCL 2.30 (peer-to-peer up to PXB "
      "only; AMD 16 GB/s between sockets); PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

/// Each card on a root port of one CPU. NCCL uses peer-to-peer copies only below a common switch
/// (PXB), so rings go through host memory although the driver would allow peer access.
Machine a10x4() {
  Machine machine = box("a10x4-pcie", "A10-24", 4, 1);
  machine.description = "4 x A10 24 GB on PCIe 4, one socket, rings through host memory";
  machine.host_memory_source = "one Xeon with 8 channels of DDR4-3200, usual for PCIe 4 (estimate)";
  machine.cpu = "intel";
  machine.source =
      "NVIDIA A10 datasheet (PCIe 4 x16, no NVLink); NCCL 2.30 (peer-to-peer up to PXB only); "
      "busbw "
      "through host memory 14.5 to 16 GB/s as on public PCIe 4 boxes; PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

/// Two switches of four cards; a NIC below the first. Cards of one switch copy directly.
Machine two_switches(const std::string& name, int sockets) {
  Machine machine = box(name, "A100-PCIe-80", 8, sockets);
  machine.intra = IntraNode::Pcie;
  machine.shape.gpus_per_pcie_switch = 4;
  machine.host_memory_source =
      "EPYC with 8 channels of DDR4-3200 a socket, usual for PCIe 4 (estimate)";
  machine.source =
      "PCIe servers with PLX or Broadcom switches (spec/topologies.md section 2: uplink shared by "
      "the cards of a switch; busbw 24 to 26 GB/s within a switch, about 20 across); cards not "
      "bridged; NCCL 2.30 constants (AMD 16 GB/s between sockets); PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

Machine a100x8_plx() {
  Machine machine = two_switches("a100x8-pcie-plx", 2);
  machine.description = "8 x A100 80 GB PCIe below two PCIe switches of four, one on each socket";
  return machine;
}

Machine a100x8_single_root() {
  Machine machine = two_switches("a100x8-pcie-single-root", 1);
  machine.description = "8 x A100 80 GB PCIe below two PCIe switches of four, both on one CPU";
  return machine;
}

/// On each socket a switch with two below it that hold two cards: PIX in a pair, PXB in a tree.
Machine l40sx8_plx() {
  Machine machine = box("l40sx8-pcie-plx", "L40S-48", 8, 2);
  machine.description = "8 x L40S 48 GB below cascaded PCIe switches: pairs PIX, four PXB";
  machine.intra = IntraNode::Pcie;
  machine.shape.switch_parents = {{DeviceKind::Cpu, 0},        {DeviceKind::Cpu, 1},
                                  {DeviceKind::PcieSwitch, 0}, {DeviceKind::PcieSwitch, 0},
                                  {DeviceKind::PcieSwitch, 1}, {DeviceKind::PcieSwitch, 1}};
  for (int gpu = 0; gpu < 8; ++gpu) {
    machine.shape.gpu_parents.push_back({DeviceKind::PcieSwitch, 2 + gpu / 2});
  }
  machine.shape.nic_parents = {{DeviceKind::PcieSwitch, 0}};
  machine.host_memory_source =
      "two EPYC with 8 channels of DDR4-3200 each, usual for PCIe 4 (estimate)";
  machine.source = two_switches("", 2).source;
  return machine;
}

/// Workstations: both cards on one CPU.
Machine desktop(const std::string& name, const std::string& gpu) {
  Machine machine = box(name, gpu, 2, 1);
  machine.nic_bandwidth = 10_Gbps;
  machine.nic_efficiency = 0.9;
  machine.network_assumption =
      name +
      " has 1 to 10 Gb/s Ethernet: 10 Gb/s over TCP is taken (0.9 of peak, 75 us a step); replace "
      "it with node.nics of a cluster file";
  machine.host_memory_bandwidth = 51.2_GBps;
  machine.host_memory_source =
      "two channels of DDR4-3200, usual for desktops with PCIe 4 (estimate)";
  return machine;
}

/// Four NVLinks of 14.05 GB/s: a quarter of gpus.csv's 56.2 GB/s of one direction (the datasheets'
/// 112.5 GB/s both ways, 14.06 a link).
Machine bridged(const std::string& name, const std::string& gpu, const std::string& words) {
  Machine machine = desktop(name, gpu);
  machine.description = "2 x " + words + " with an NVLink bridge, desktop, 10 Gb/s Ethernet";
  machine.intra = IntraNode::NvLinkMesh;
  machine.shape.nvlink = 14.05_GBps;
  machine.shape.mesh = full_mesh(2, 4);
  machine.source =
      "NVIDIA's datasheets (bridge of 4 NVLinks, 112 GB/s both ways); `nvidia-smi nvlink -s`: "
      "14.06 GB/s a link; NCCL 2.30 constants (12 GB/s a link); PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

Machine on_pcie(const std::string& name, const std::string& gpu, const std::string& words) {
  Machine machine = desktop(name, gpu);
  machine.description = "2 x " + words + ", workstation, rings by host memory";
  machine.source =
      "workstations with two x16 slots of one CPU; the driver refuses peer access between cards; "
      "busbw through host memory as on public PCIe 4 boxes; PCIe 4 copies 24 to 26 GB/s";
  return machine;
}

/// Boards that split the CPU's 16 lanes.
Machine rtx4090x2_x8() {
  Machine machine = on_pcie("rtx4090x2-pcie-x8", "RTX4090-24", "RTX 4090 24 GB in PCIe 4 x8 slots");
  machine.shape.pcie = pcie_peak(4, 8);
  machine.host_link = 12.5_GBps;
  machine.source =
      "desktop boards that split the CPU's PCIe 4 x16 into two x8; the driver refuses peer access "
      "between cards; x8 copies half of an x16 slot's 24 to 26 GB/s";
  return machine;
}

}  // namespace

std::vector<Machine> pcie_machines() {
  return {rtx4090x8(),
          a10x4(),
          dual_root_of("rtx3090x8-pcie", "RTX3090-24", "RTX 3090 24 GB"),
          dual_root_of("a6000x8-pcie", "RTX-A6000-48", "RTX A6000 48 GB"),
          dual_root_of("l40sx8-pcie", "L40S-48", "L40S 48 GB"),
          a100x8_plx(),
          a100x8_single_root(),
          l40sx8_plx(),
          bridged("rtx3090x2-nvlink", "RTX3090-24", "RTX 3090 24 GB"),
          bridged("a6000x2-nvlink", "RTX-A6000-48", "RTX A6000 48 GB"),
          on_pcie("rtx3090x2-pcie", "RTX3090-24", "RTX 3090 24 GB in PCIe 4 x16 slots"),
          on_pcie("rtx4090x2-pcie", "RTX4090-24", "RTX 4090 24 GB in PCIe 4 x16 slots"),
          rtx4090x2_x8()};
}

}  // namespace zerosim
