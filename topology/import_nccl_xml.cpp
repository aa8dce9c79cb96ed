// From NCCL's topology XML to a node. Static files (NCCL_TOPO_FILE) hold only what NCCL cannot find
// out by itself: kinds of GPUs, NVLinks and rates of NICs may be missing, and are then taken from
// the kind of GPU.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "sim/base/text.h"
#include "topology/import.h"
#include "topology/import_gpu.h"
#include "topology/nccl_topology.h"

namespace zerosim {
namespace {

struct NicModel {
  const char* vendor;
  const char* device;
  double gigabits;
  const char* name;
};
// The PCI ID Repository; rates: what the makers print for the fastest port of each.
constexpr std::array kNicModels = std::to_array<NicModel>({
    {"0x15b3", "0x1013", 100, "ConnectX-4"},
    {"0x15b3", "0x1014", 100, "ConnectX-4 VF"},
    {"0x15b3", "0x1017", 100, "ConnectX-5"},
    {"0x15b3", "0x1018", 100, "ConnectX-5 VF"},
    {"0x15b3", "0x1019", 100, "ConnectX-5 Ex"},
    {"0x15b3", "0x101a", 100, "ConnectX-5 Ex VF"},
    {"0x15b3", "0x101b", 200, "ConnectX-6"},
    {"0x15b3", "0x101c", 200, "ConnectX-6 VF"},
    {"0x15b3", "0x101d", 200, "ConnectX-6 Dx"},
    {"0x15b3", "0x1021", 400, "ConnectX-7"},
    {"0x15b3", "0x1023", 800, "ConnectX-8"},
    {"0x1d0f", "0xefa0", 100, "EFA"},
    {"0x1d0f", "0xefa1", 100, "EFA v2"},
    {"0x1d0f", "0xefa2", 200, "EFA v3"},
});

/// NCCL's rates between CPUs, GB/s (spec/nccl_cost.md section 3; src/graph/topo.cc).
struct CpuLink {
  BytesPerSecond rate;
  const char* name = "";
};
CpuLink cpu_link(const NcclCpu& cpu) {
  constexpr int kIntelFamily = 6, kSkylake = 85, kSapphireRapids = 143, kEmeraldRapids = 207;
  if (cpu.arch == "ppc64") return {32_GBps, "Power9"};
  if (cpu.arch == "arm64") return {6_GBps, "ARM"};
  if (cpu.vendor == "AuthenticAMD") return {16_GBps, "AMD"};
  if (cpu.vendor != "GenuineIntel" || cpu.family != kIntelFamily) return {10_GBps, "unknown CPU"};
  if (cpu.model >= kEmeraldRapids) return {40_GBps, "Emerald Rapids"};
  if (cpu.model >= kSapphireRapids) return {22_GBps, "Sapphire Rapids"};
  if (cpu.model >= kSkylake) return {10_GBps, "Skylake and later Xeons"};
  return {6_GBps, "Broadwell and earlier Xeons"};
}

class Import {
 public:
  Import(NcclTopology topology, const ImportOptions& options)
      : topology_(std::move(topology)), options_(options) {}

  ImportedNode run() {
    node_.assumptions = std::move(topology_.told);
    classify_the_rest();
    if (topology_.gpus.empty()) {
      throw ConfigError(topology_.where,
                        "found no GPU (a <gpu>, or a class that begins with 0x03)");
    }
    sort_devices();
    Machine& machine = node_.machine;
    machine.by_links = true;
    count_nvlinks();
    const GpuSpec& gpu = find_gpu();
    machine.gpu = gpu.name;
    add_host_side();
    add_nvlinks(gpu);
    if (!topology_.nics.empty()) add_network(gpu);
    return std::move(node_);
  }

 private:
  NodeShape& shape() { return node_.machine.shape; }
  void assume(std::string sentence) { node_.assumptions.push_back(std::move(sentence)); }

  /// Devices that say nothing about themselves: where no GPU is known otherwise, as many on every
  /// CPU are taken for GPUs.
  void classify_the_rest() {
    std::vector<NcclPci>& rest = topology_.unclassified;
    if (rest.empty()) return;
    if (!topology_.gpus.empty()) {
      assume(format("left out: {} devices without class, the first {}", rest.size(),
                    rest.front().busid));
      return;
    }
    std::map<int, int> count, given;
    for (const NcclPci& pci : rest) ++count[cpu_of(pci.parent)];
    int each = count.begin()->second;
    for (const auto& [cpu, devices] : count) each = std::min(each, devices);
    std::vector<std::string> nics;
    for (NcclPci& pci : rest) {
      const int cpu = cpu_of(pci.parent);
      if (given[cpu]++ < each) {
        NcclGpu gpu;
        gpu.pci = std::move(pci);
        gpu.cpu = cpu;
        topology_.gpus.push_back(std::move(gpu));
      } else {
        NcclNic nic;
        nics.push_back(pci.busid);
        nic.pci = std::move(pci);
        topology_.nics.push_back(std::move(nic));
      }
    }
    assume(format("devices: no class says which are GPUs: the first {} of every CPU are taken{}",
                  each, nics.empty() ? "" : format(", {} for NICs", join(nics, ", "))));
  }

  [[nodiscard]] int cpu_of(HostParent parent) const {
    while (parent.kind != DeviceKind::Cpu) {
      parent = topology_.switches[static_cast<std::size_t>(parent.index)].parent;
    }
    return parent.index;
  }

  /// By CUDA device where all say theirs, else by bus id, as nvidia-smi does.
  void sort_devices() {
    sort_by_number(topology_.gpus, "GPUs");
    sort_by_number(topology_.nics, "NICs");
    int position = 0;
    for (const NcclGpu& gpu : topology_.gpus) {
      node_.gpu_devices.push_back(gpu.dev >= 0 ? gpu.dev : position);
      ++position;
    }
  }
  template <typename Device>
  void sort_by_number(std::vector<Device>& devices, const char* what) {
    std::set<int> numbers;
    for (const Device& device : devices) numbers.insert(device.dev);
    const bool numbered = numbers.size() == devices.size() && numbers.count(-1) == 0;
    if (numbered) {
      std::stable_sort(devices.begin(), devices.end(),
                       [](const Device& a, const Device& b) { return a.dev < b.dev; });
      return;
    }
    std::stable_sort(devices.begin(), devices.end(),
                     [](const Device& a, const Device& b) { return a.pci.busid < b.pci.busid; });
    for (Device& device : devices) device.dev = -1;
    if (devices.size() > 1) assume(format("{}: numbered by bus id", what));
  }

  // NVLink and the kind of GPU.

  void count_nvlinks() {
    const std::size_t count = topology_.gpus.size();
    pairs_.assign(count, std::vector<int>(count));
    switch_links_.assign(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      for (const NcclNvLink& nvlink : topology_.gpus[i].nvlinks) count_nvlink(i, nvlink);
    }
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < a; ++b) check_both_ways(a, b);
    }
  }

  void count_nvlink(std::size_t gpu, const NcclNvLink& nvlink) {
    nvlinks_stated_ = true;
    const std::string& target_class = nvlink.target_class;
    const bool to_cpu = target_class.starts_with("0x068001");
    const bool unnamed = target_class.empty() && nvlink.target.starts_with("fffffff");
    if (to_cpu) {
      cpu_links_[gpu] += nvlink.count;
    } else if (target_class.starts_with("0x068000") || unnamed) {
      switch_links_[gpu] += nvlink.count;
    } else if (target_class.empty() || target_class.starts_with("0x03")) {
      const std::size_t target = gpu_at(nvlink);
      if (target == gpu) {
        assume(
            format("GPU {}: its {} NVLinks lead to itself in the file; as in NCCL they join "
                   "nothing",
                   gpu, nvlink.count));
      } else {
        pairs_[gpu][target] += nvlink.count;
      }
    } else {
      throw ConfigError(
          nvlink.where,
          format("tclass: found \"{}\", expected 0x068000 (NVSwitch), 0x03.. (GPU) or "
                 "0x068001 (CPU)",
                 target_class));
    }
  }

  [[nodiscard]] std::size_t gpu_at(const NcclNvLink& nvlink) const {
    std::vector<std::string> known;
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) {
      if (topology_.gpus[i].pci.busid == nvlink.target) return i;
      known.push_back(topology_.gpus[i].pci.busid);
    }
    throw ConfigError(nvlink.where, format("target: found \"{}\", which is no GPU of this file{}",
                                           nvlink.target, did_you_mean(nvlink.target, known)));
  }

  void check_both_ways(std::size_t a, std::size_t b) const {
    if (pairs_[a][b] == pairs_[b][a]) return;
    const std::size_t from = pairs_[a][b] > pairs_[b][a] ? a : b;
    const std::size_t to = from == a ? b : a;
    throw ConfigError(first_nvlink(from, to),
                      format("GPU {} has {} NVLinks to GPU {}, which has {} back", from,
                             pairs_[from][to], to, pairs_[to][from]));
  }
  [[nodiscard]] SourceLocation first_nvlink(std::size_t from, std::size_t to) const {
    for (const NcclNvLink& nvlink : topology_.gpus[from].nvlinks) {
      if (nvlink.target == topology_.gpus[to].pci.busid) return nvlink.where;
    }
    return topology_.gpus[from].pci.where;
  }

  const GpuSpec& find_gpu() {
    GpuEvidence evidence;
    evidence.given = options_.gpu;
    evidence.gpus = static_cast<int>(topology_.gpus.size());
    evidence.where = topology_.gpus.front().pci.where;
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) add_evidence(i, evidence);
    return choose_gpu(evidence, node_.assumptions);
  }

  void add_evidence(std::size_t i, GpuEvidence& evidence) {
    const NcclGpu& gpu = topology_.gpus[i];
    if (gpu.sm > 0) {
      if (evidence.compute_capability > 0 && evidence.compute_capability != gpu.sm) {
        fail_mixed(gpu, format("sm {}", gpu.sm), format("sm {}", evidence.compute_capability));
      }
      evidence.compute_capability = gpu.sm;
    }
    const std::string kind = gpu_of_device_id(gpu.pci.vendor, gpu.pci.device);
    if (!kind.empty()) {
      if (!evidence.device_kind.empty() && evidence.device_kind != kind) {
        fail_mixed(gpu, kind, evidence.device_kind);
      }
      evidence.device_kind = kind;
    }
    const int direct = std::accumulate(pairs_[i].begin(), pairs_[i].end(), 0);
    const int most = *std::max_element(pairs_[i].begin(), pairs_[i].end());
    evidence.nvlinks = std::max(evidence.nvlinks, direct + switch_links_[i]);
    evidence.pair_nvlinks = std::max({evidence.pair_nvlinks, most, switch_links_[i]});
    evidence.switched = evidence.switched || switch_links_[i] > 0;
  }

  [[noreturn]] static void fail_mixed(const NcclGpu& gpu, const std::string& found,
                                      const std::string& before) {
    throw ConfigError(gpu.pci.where,
                      format("found {} after {}: a node has one kind of GPU; import one kind and "
                             "say the other under `perturbations` of the cluster file",
                             found, before));
  }

  void add_nvlinks(const GpuSpec& gpu) {
    if (!nvlinks_stated_) take_usual_links(gpu);
    if (gpu.nvlink_links == 0) return;
    const double per_link = gpu.nvlink.per_second() / gpu.nvlink_links;
    shape().nvlink = BytesPerSecond(per_link);
    for (std::size_t a = 0; a < pairs_.size(); ++a) {
      for (std::size_t b = a + 1; b < pairs_.size(); ++b) {
        if (pairs_[a][b] == 0) continue;
        shape().mesh.push_back({static_cast<int>(a), static_cast<int>(b), pairs_[a][b]});
      }
      const BytesPerSecond rate(switch_links_[a] * per_link);
      shape().nvswitch_links.push_back(rate);
      shape().nvswitch = std::max(shape().nvswitch, rate);
    }
    if (shape().nvswitch.per_second() <= 0) shape().nvswitch_links.clear();
    for (const auto& [index, count] : cpu_links_) {
      shape().gpu_links[index] = BytesPerSecond(count * per_link);
      assume(format("GPU {}: {} NVLinks to its CPU in place of PCIe", index, count));
    }
    if (!shape().mesh.empty() && shape().gpus > kMaxMeshGpus) {
      const NvLinkPair& first = shape().mesh.front();
      throw ConfigError(
          first_nvlink(static_cast<std::size_t>(first.a), static_cast<std::size_t>(first.b)),
          format("found NVLinks between single pairs of {} GPUs; expected at most {} GPUs",
                 shape().gpus, kMaxMeshGpus));
    }
  }

  void take_usual_links(const GpuSpec& gpu) {
    const UsualLinks usual = usual_links(gpu, static_cast<int>(topology_.gpus.size()));
    if (usual.sentence.empty()) return;
    for (const NvLinkPair& pair : usual.mesh) {
      pairs_[static_cast<std::size_t>(pair.a)][static_cast<std::size_t>(pair.b)] = pair.links;
    }
    std::fill(switch_links_.begin(), switch_links_.end(), usual.switch_links);
    assume(format("NVLinks: the file has none, as NCCL finds them at run time; taken are {}",
                  usual.sentence));
  }

  // CPUs and PCIe.

  void add_host_side() {
    shape().gpus = static_cast<int>(topology_.gpus.size());
    shape().nics = static_cast<int>(topology_.nics.size());
    shape().gpus_per_pcie_switch = 0;
    add_cpus();
    for (const NcclPci& pci : topology_.switches) {
      shape().switch_parents.push_back(pci.parent);
      shape().switch_links.push_back(pci.link);
    }
    set_c2c();
    for (const NcclGpu& gpu : topology_.gpus) add_gpu(gpu);
    shape().pcie = most_common(shape().gpu_links);
    for (const NcclNic& nic : topology_.nics) {
      const bool on_bus = nic.pci.link.per_second() > 0;
      shape().nic_parents.push_back(nic.pci.parent);
      shape().nic_links.push_back(on_bus ? BytesPerSecond(nic.pci.link.per_second() / nic.ports)
                                         : shape().pcie);
    }
    tell_unknown_links();
    if (topology_.ignored > 0) {
      assume(format("left out: {} PCI devices that are neither bridge, GPU nor NIC",
                    topology_.ignored));
    }
  }

  void add_cpus() {
    shape().sockets = static_cast<int>(topology_.cpus.size());
    for (const NcclCpu& cpu : topology_.cpus) shape().cpu_numa.push_back(cpu.numa);
    const NcclCpu& first = topology_.cpus.front();
    if (first.vendor == "AuthenticAMD") node_.machine.cpu = "amd";
    if (first.arch == "arm64") node_.machine.cpu = "arm";
    if (first.vendor == "GenuineIntel") node_.machine.cpu = "intel";
    const CpuLink between = cpu_link(first);
    shape().socket_link = between.rate;
    if (topology_.cpus.size() < 2) return;
    assume(format("CPU to CPU: {:g} GB/s a direction, NCCL's figure for {}",
                  between.rate.gb_per_second(), between.name));
  }

  void add_gpu(const NcclGpu& gpu) {
    const bool by_c2c = gpu.c2c.per_second() > 0;
    shape().gpu_parents.push_back(by_c2c ? HostParent{DeviceKind::Cpu, gpu.cpu} : gpu.pci.parent);
    shape().gpu_links.push_back(by_c2c ? gpu.c2c : gpu.pci.link);
  }

  void set_c2c() {
    const NcclGpu& first = topology_.gpus.front();
    for (const NcclGpu& gpu : topology_.gpus) {
      if (gpu.c2c == first.c2c) continue;
      throw ConfigError(gpu.pci.where, format("c2c: found {:g} GB/s after {:g}, expected all GPUs "
                                              "alike",
                                              gpu.c2c.gb_per_second(), first.c2c.gb_per_second()));
    }
    shape().c2c = first.c2c;
    if (first.c2c.per_second() <= 0) return;
    assume(format("GPUs: joined to their CPU by C2C, {:g} GB/s a direction, in place of PCIe",
                  first.c2c.gb_per_second()));
  }

  static BytesPerSecond most_common(const std::vector<BytesPerSecond>& rates) {
    std::map<BytesPerSecond, int> count;
    for (const BytesPerSecond rate : rates) ++count[rate];
    return std::max_element(count.begin(), count.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  void tell_unknown_links() {
    std::vector<std::string> unknown;
    const auto look = [&](const NcclPci& pci) {
      if (!pci.link_stated) unknown.push_back(pci.busid);
    };
    for (const NcclPci& pci : topology_.switches) look(pci);
    for (const NcclGpu& gpu : topology_.gpus) look(gpu.pci);
    for (const NcclNic& nic : topology_.nics) look(nic.pci);
    if (unknown.empty()) return;
    assume(
        format("PCIe: {} links without speed or width (the first of {}) are generation 3, x16, "
               "as NCCL takes them",
               unknown.size(), unknown.front()));
  }

  // NICs.

  void add_network(const GpuSpec& gpu) {
    Machine& machine = node_.machine;
    const NcclNic* fastest = &topology_.nics.front();
    for (const NcclNic& nic : topology_.nics) {
      const BytesPerSecond port = port_rate(nic, gpu);
      shape().nic_ports.push_back(port);
      if (port <= machine.nic_bandwidth) continue;
      fastest = &nic;
      machine.nic_bandwidth = port;
    }
    machine.network = network_of(*fastest);
    machine.nic_efficiency = network_efficiency(machine.network, machine.nic_bandwidth);
    assume(format("network: {}, by {}", to_string(machine.network), evidence_of(*fastest)));
    for (const std::string& sentence : rate_sentences_) assume(sentence);
  }

  BytesPerSecond port_rate(const NcclNic& nic, const GpuSpec& gpu) {
    constexpr double kNcclDefaultMegabits = 10'000;
    if (nic.megabits > 0) return BytesPerSecond(nic.megabits * 1e6 / 8);
    if (options_.nic_bandwidth) return *options_.nic_bandwidth;
    if (nic.has_net) {
      rate_sentences_.insert(
          format("{}: 10 Gb/s, as NCCL takes it where no speed is stated "
                 "(--nic-bandwidth)",
                 nic.name));
      return BytesPerSecond(kNcclDefaultMegabits * 1e6 / 8);
    }
    for (const NicModel& model : kNicModels) {
      if (nic.pci.vendor != model.vendor || nic.pci.device != model.device) continue;
      rate_sentences_.insert(
          format("NICs: {:g} Gb/s, the most of {} adapters; the file does not say "
                 "(--nic-bandwidth)",
                 model.gigabits, model.name));
      return BytesPerSecond(model.gigabits * 1e9 / 8);
    }
    const BytesPerSecond usual = usual_nic_bandwidth(gpu);
    rate_sentences_.insert(
        format("NICs: {:g} Gb/s, usual beside {}; the file does not say "
               "(--nic-bandwidth)",
               usual.per_second() * 8 / 1e9, gpu.name));
    return usual;
  }

  static NetworkKind network_of(const NcclNic& nic) {
    const bool ethernet = nic.pci.pci_class.starts_with("0x0200");
    if (nic.pci.vendor == "0x1d0f") return NetworkKind::Efa;
    if (nic.pci.pci_class.starts_with("0x0207")) return NetworkKind::InfiniBand;
    if (!nic.name.empty()) {
      const NetworkKind kind = network_by_name(nic.name);
      return kind == NetworkKind::InfiniBand && ethernet ? NetworkKind::Roce : kind;
    }
    if (nic.pci.vendor == "0x15b3" && ethernet) return NetworkKind::Roce;
    return ethernet ? NetworkKind::Tcp : NetworkKind::InfiniBand;
  }

  static std::string evidence_of(const NcclNic& nic) {
    std::vector<std::string> parts;
    if (!nic.name.empty()) parts.push_back("the name " + nic.name);
    if (!nic.pci.pci_class.empty()) parts.push_back("class " + nic.pci.pci_class);
    if (!nic.pci.vendor.empty()) parts.push_back("vendor " + nic.pci.vendor);
    return parts.empty() ? "default, as nothing tells" : join(parts, ", ");
  }

  NcclTopology topology_;
  const ImportOptions& options_;
  ImportedNode node_;
  bool nvlinks_stated_ = false;
  std::vector<std::vector<int>> pairs_;   ///< direct NVLinks between GPUs
  std::vector<int> switch_links_;         ///< NVLinks into NVSwitches of each GPU
  std::map<std::size_t, int> cpu_links_;  ///< NVLinks to the CPU
  std::set<std::string> rate_sentences_;
};

}  // namespace

ImportedNode import_nccl_xml(const std::string& text, const std::string& file,
                             const ImportOptions& options) {
  return Import(parse_nccl_topology(text, file), options).run();
}

}  // namespace zerosim
