#include "topology/nccl_topology.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "sim/base/text.h"
#include "topology/pcie.h"
#include "topology/xml_document.h"

namespace zerosim {
namespace {

constexpr int kDeepest = 32;        // bridges in bridges
constexpr int kMostDevices = 1024;  // of one kind

enum class PciKind { Bridge, Gpu, Nic, NvSwitch, Other, Unclassified };

struct ClassPrefix {
  const char* prefix;
  PciKind kind;
};
// Longest first.
constexpr std::array<ClassPrefix, 4> kClasses = {{{"0x068000", PciKind::NvSwitch},
                                                  {"0x0604", PciKind::Bridge},
                                                  {"0x03", PciKind::Gpu},
                                                  {"0x02", PciKind::Nic}}};

struct LinkSpeed {
  const char* text;
  int generation;
};
constexpr std::array<LinkSpeed, 6> kLinkSpeeds = {
    {{"2.5", 1}, {"5", 2}, {"8", 3}, {"16", 4}, {"32", 5}, {"64", 6}}};
constexpr int kUnknownGeneration = 3;

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : xml_(text, file) {}

  NcclTopology read() {
    const pugi::xml_node system = xml_.root();
    topology_.where = xml_.location(system);
    check_root(system);
    xml_.expect_children(system, {"cpu"}, "<system>");
    for (const pugi::xml_node cpu : system.children("cpu")) read_cpu(cpu);
    if (topology_.cpus.empty()) xml_.fail(system, "found no <cpu>, expected one a NUMA node");
    drop_empty_switches();
    return std::move(topology_);
  }

 private:
  void check_root(pugi::xml_node system) const {
    const std::string name = system.name();
    if (name == "graphs") {
      xml_.fail(system, "found <graphs>, a graph file: give it with --graph beside a topology");
    }
    if (name != "system") {
      xml_.fail(system, format("found <{}>, expected <system>, NCCL's topology", name));
    }
    static_cast<void>(xml_.integer(system, "version", 1, 1));
  }

  void read_cpu(pugi::xml_node element) {
    xml_.expect_children(element, {"pci", "nic"}, "<cpu>");
    NcclCpu cpu;
    const int index = static_cast<int>(topology_.cpus.size());
    cpu.numa = xml_.integer(element, "numaid", -1, 1023).value_or(-1);
    if (cpu.numa < 0) cpu.numa = index;  // NUMA is off: one node
    cpu.arch = xml_.text(element, "arch");
    cpu.vendor = xml_.text(element, "vendor");
    cpu.family = xml_.integer(element, "familyid", 0, 1 << 20).value_or(0);
    cpu.model = xml_.integer(element, "modelid", 0, 1 << 20).value_or(0);
    check_one_host(element);
    check_numa(element, cpu.numa);
    if (index >= kMostCpus) xml_.fail(element, format("expected at most {} CPUs", kMostCpus));
    topology_.cpus.push_back(cpu);
    const HostParent parent{DeviceKind::Cpu, index};
    for (const pugi::xml_node child : element.children()) {
      if (std::string_view(child.name()) == "pci") read_pci(child, {parent, index, {}, 0});
      if (std::string_view(child.name()) == "nic") read_virtual_nic(child, parent);
    }
  }

  void check_one_host(pugi::xml_node element) {
    const std::string host = xml_.text(element, "host_hash");
    if (host_ && *host_ != host) {
      xml_.fail(element, format("found host_hash \"{}\" after \"{}\": several hosts in one file; "
                                "expected one node",
                                host, *host_));
    }
    host_ = host;
  }

  void check_numa(pugi::xml_node element, int numa) const {
    for (const NcclCpu& cpu : topology_.cpus) {
      if (cpu.numa == numa) xml_.fail(element, format("numaid {} is there twice", numa));
    }
  }

  /// Where a PCI device is met.
  struct Place {
    HostParent parent;
    int cpu = 0;
    std::string bridge_ids;  ///< of the bridge above
    int depth = 0;
  };

  void read_pci(pugi::xml_node element, const Place& place) {
    if (place.depth > kDeepest) {
      xml_.fail(element, format("bridges nest deeper than {}", kDeepest));
    }
    NcclPci pci = read_identity(element, place.parent);
    switch (kind_of(element, pci)) {
      case PciKind::Bridge:
        read_bridge(element, std::move(pci), place);
        break;
      case PciKind::Gpu:
        read_gpu(element, std::move(pci), place.cpu);
        break;
      case PciKind::Nic:
        read_nic(element, std::move(pci));
        break;
      case PciKind::NvSwitch:  // stands among the targets of nvlink
        break;
      case PciKind::Other:
        ++topology_.ignored;
        break;
      case PciKind::Unclassified:
        topology_.unclassified.push_back(std::move(pci));
        break;
    }
  }

  NcclPci read_identity(pugi::xml_node element, const HostParent& parent) {
    NcclPci pci;
    pci.where = xml_.location(element);
    pci.busid = lower_case(xml_.text(element, "busid"));
    if (pci.busid.empty()) xml_.fail(element, "found no busid");
    const auto [seen, added] = busids_.try_emplace(pci.busid, pci.where.line);
    if (!added) {
      xml_.fail(element,
                format("busid {} is there twice, first in line {}", pci.busid, seen->second));
    }
    pci.pci_class = lower_case(xml_.text(element, "class"));
    pci.vendor = lower_case(xml_.text(element, "vendor"));
    pci.device = lower_case(xml_.text(element, "device"));
    pci.parent = parent;
    read_link(element, pci);
    return pci;
  }

  void read_link(pugi::xml_node element, NcclPci& pci) const {
    const int generation = link_generation(element);
    const int width = xml_.integer(element, "link_width", 0, 32).value_or(0);
    const bool usual = width == 0 || width == 1 || width == 2 || width == 4 || width == 8 ||
                       width == 12 || width == 16 || width == 32;
    if (!usual) {
      xml_.fail(element, format("link_width: found {}, expected 1, 2, 4, 8, 12, 16 or 32 (0: not "
                                "known)",
                                width));
    }
    pci.link_stated = generation > 0 && width > 0;
    pci.link = pcie_peak(generation > 0 ? generation : kUnknownGeneration, width > 0 ? width : 16);
  }

  /// "16 GT/s", "16.0 GT/s PCIe"; 0 for "", "Unknown" and "Unknown speed".
  [[nodiscard]] int link_generation(pugi::xml_node element) const {
    const std::string text = xml_.text(element, "link_speed");
    if (text.empty() || text.starts_with("Unknown")) return 0;
    std::string number = text.substr(0, text.find(" GT/s"));
    if (number.ends_with(".0")) number.resize(number.size() - 2);
    const bool has_unit = text.find(" GT/s") != std::string::npos;
    for (const LinkSpeed& speed : kLinkSpeeds) {
      if (has_unit && number == speed.text) return speed.generation;
    }
    xml_.fail(element,
              format("link_speed: found \"{}\", expected 2.5, 5, 8, 16, 32 or 64 GT/s", text));
  }

  [[nodiscard]] PciKind kind_of(pugi::xml_node element, const NcclPci& pci) const {
    for (const ClassPrefix& known : kClasses) {
      if (pci.pci_class.starts_with(known.prefix)) return known.kind;
    }
    if (element.child("gpu")) return PciKind::Gpu;
    if (element.child("nic")) return PciKind::Nic;
    if (element.child("pci")) return PciKind::Bridge;
    return pci.pci_class.empty() ? PciKind::Unclassified : PciKind::Other;
  }

  void read_bridge(pugi::xml_node element, NcclPci pci, const Place& place) {
    xml_.expect_children(element, {"pci"}, format("the bridge {}", pci.busid));
    const std::string ids = chip_ids(element);
    HostParent here = place.parent;
    if (ids.empty() || ids != place.bridge_ids) {
      if (static_cast<int>(topology_.switches.size()) >= kMostDevices) fail_too_many(element);
      here = {DeviceKind::PcieSwitch, static_cast<int>(topology_.switches.size())};
      topology_.switches.push_back(std::move(pci));
    } else {
      topology_.told.push_back(
          format("PCI bridge {}: part of the one above it, which has the same "
                 "ids",
                 pci.busid));
    }
    for (const pugi::xml_node child : element.children("pci")) {
      read_pci(child, {here, place.cpu, ids, place.depth + 1});
    }
  }

  /// The four ids of a chip; "" if they are missing or made up by a hypervisor.
  [[nodiscard]] std::string chip_ids(pugi::xml_node element) const {
    std::string ids;
    for (const char* name : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) {
      const std::string id = lower_case(xml_.text(element, name));
      if (id.empty()) return "";
      ids += id + " ";
    }
    const bool made_up = ids.starts_with("0xffff") || ids.starts_with("0x0000");
    return made_up ? "" : ids;
  }

  [[noreturn]] void fail_too_many(pugi::xml_node element) const {
    xml_.fail(element, format("expected at most {} devices of a kind", kMostDevices));
  }

  void read_gpu(pugi::xml_node element, NcclPci pci, int cpu) {
    xml_.expect_children(element, {"gpu"}, format("the GPU {}", pci.busid));
    if (static_cast<int>(topology_.gpus.size()) >= kMostDevices) fail_too_many(element);
    NcclGpu gpu;
    gpu.cpu = cpu;
    if (const pugi::xml_node child = only_child(element, "gpu")) {
      xml_.expect_children(child, {"nvlink", "c2c"}, "<gpu>");
      gpu.dev = xml_.integer(child, "dev", 0, 1 << 20).value_or(-1);
      gpu.sm = xml_.integer(child, "sm", 10, 999).value_or(0);
      for (const pugi::xml_node nvlink : child.children("nvlink")) {
        gpu.nvlinks.push_back(read_nvlink(nvlink));
      }
      if (const pugi::xml_node c2c = only_child(child, "c2c")) gpu.c2c = c2c_rate(c2c);
    }
    gpu.pci = std::move(pci);
    topology_.gpus.push_back(std::move(gpu));
  }

  [[nodiscard]] pugi::xml_node only_child(pugi::xml_node element, const char* name) const {
    const pugi::xml_node first = element.child(name);
    if (const pugi::xml_node second = first.next_sibling(name)) {
      xml_.fail(second, format("found a second <{}>, expected one", name));
    }
    return first;
  }

  [[nodiscard]] NcclNvLink read_nvlink(pugi::xml_node element) const {
    xml_.expect_children(element, {}, "<nvlink>");
    NcclNvLink nvlink;
    nvlink.where = xml_.location(element);
    nvlink.target = lower_case(xml_.text(element, "target"));
    if (nvlink.target.empty()) xml_.fail(element, "found no target, expected a bus id");
    nvlink.target_class = lower_case(xml_.text(element, "tclass"));
    nvlink.count = xml_.integer(element, "count", 1, 64).value_or(1);
    return nvlink;
  }

  /// `bw` in MB/s, of each of `count`.
  [[nodiscard]] BytesPerSecond c2c_rate(pugi::xml_node element) const {
    const double megabytes = xml_.number(element, "bw", 1, 1e7);
    return BytesPerSecond(megabytes * 1e6 * xml_.integer(element, "count", 1, 1024).value_or(1));
  }

  void read_nic(pugi::xml_node element, NcclPci pci) {
    xml_.expect_children(element, {"nic"}, format("the NIC {}", pci.busid));
    const pugi::xml_node nic = only_child(element, "nic");
    if (!nic) {
      NcclNic unnamed;
      unnamed.pci = std::move(pci);
      add_nic(element, std::move(unnamed));
      return;
    }
    read_nets(nic, pci);
  }

  void read_virtual_nic(pugi::xml_node element, const HostParent& parent) {
    NcclPci pci;
    pci.where = xml_.location(element);
    pci.parent = parent;
    read_nets(element, pci);
  }

  void read_nets(pugi::xml_node nic, const NcclPci& pci) {
    xml_.expect_children(nic, {"net"}, "<nic>");
    int ports = 0;
    for ([[maybe_unused]] const pugi::xml_node net : nic.children("net")) ++ports;
    for (const pugi::xml_node net : nic.children("net")) {
      NcclNic port;
      port.pci = pci;
      port.has_net = true;
      port.name = xml_.text(net, "name");
      port.dev = xml_.integer(net, "dev", 0, 1 << 20).value_or(-1);
      port.megabits = xml_.integer(net, "speed", 0, 10'000'000).value_or(0);
      port.ports = ports;
      add_nic(net, std::move(port));
    }
  }

  void add_nic(pugi::xml_node element, NcclNic nic) {
    if (static_cast<int>(topology_.nics.size()) >= kMostDevices) fail_too_many(element);
    topology_.nics.push_back(std::move(nic));
  }

  /// Leaves out switches that nothing hangs from.
  void drop_empty_switches() {
    std::vector<NcclPci>& switches = topology_.switches;
    std::vector<bool> used(switches.size());
    const auto use = [&](const HostParent& parent) {
      if (parent.kind == DeviceKind::PcieSwitch)
        used[static_cast<std::size_t>(parent.index)] = true;
    };
    for (const NcclGpu& gpu : topology_.gpus) use(gpu.pci.parent);
    for (const NcclNic& nic : topology_.nics) use(nic.pci.parent);
    for (const NcclPci& pci : topology_.unclassified) use(pci.parent);
    for (std::size_t i = switches.size(); i-- > 0;) {
      if (used[i]) use(switches[i].parent);
    }
    std::vector<int> number(switches.size());
    std::vector<NcclPci> kept;
    for (std::size_t i = 0; i < switches.size(); ++i) {
      number[i] = static_cast<int>(kept.size());
      if (used[i]) kept.push_back(switches[i]);
    }
    const auto renumber = [&](HostParent& parent) {
      if (parent.kind == DeviceKind::PcieSwitch) {
        parent.index = number[static_cast<std::size_t>(parent.index)];
      }
    };
    for (NcclPci& pci : kept) renumber(pci.parent);
    for (NcclGpu& gpu : topology_.gpus) renumber(gpu.pci.parent);
    for (NcclNic& nic : topology_.nics) renumber(nic.pci.parent);
    for (NcclPci& pci : topology_.unclassified) renumber(pci.parent);
    switches = std::move(kept);
  }

  static constexpr int kMostCpus = 64;

  XmlDocument xml_;
  NcclTopology topology_;
  std::map<std::string, int> busids_;  ///< and their lines
  std::optional<std::string> host_;
};

}  // namespace

NcclTopology parse_nccl_topology(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace zerosim
