// From the matrix of `nvidia-smi topo -m` to a node. Where a cell says how two devices meet, the
// graph has them meet there:
//
//   PIX          below one PCIe switch
//   PXB          below switches of their own, which hang from a common one
//   PHB, NODE    below one CPU (NCCL does not tell them apart either)
//   SYS          below two CPUs
//   NV#          says nothing of the host side: the affinities do

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "sim/base/text.h"
#include "topology/import.h"
#include "topology/import_gpu.h"
#include "topology/pcie.h"
#include "topology/topo_matrix.h"

namespace zerosim {
namespace {

using Kind = TopoCell::Kind;

/// Sets of devices, numbered by their first member.
class Sets {
 public:
  explicit Sets(int count) : parent_(static_cast<std::size_t>(count)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  [[nodiscard]] int of(int i) const {
    while (at(i) != i) i = at(i);
    return i;
  }
  void join(int a, int b) {
    const auto [first, second] = std::minmax({of(a), of(b)});
    parent_[static_cast<std::size_t>(second)] = first;
  }
  /// Members of each set, sets by first member.
  [[nodiscard]] std::vector<std::vector<int>> all() const {
    std::vector<std::vector<int>> sets(parent_.size());
    for (int i = 0; i < static_cast<int>(parent_.size()); ++i) {
      sets[static_cast<std::size_t>(of(i))].push_back(i);
    }
    std::erase_if(sets, [](const std::vector<int>& set) { return set.empty(); });
    return sets;
  }

 private:
  [[nodiscard]] int at(int i) const { return parent_[static_cast<std::size_t>(i)]; }
  std::vector<int> parent_;
};

using Devices = std::vector<int>;

/// The first number of "0-1"; -1 if there is none.
int first_number(const std::string& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool sane = error == std::errc() && number >= 0 && number < 1024;
  return sane && end != text.data() ? number : -1;
}

class Import {
 public:
  Import(TopoMatrix matrix, const ImportOptions& options)
      : matrix_(std::move(matrix)), options_(options) {}

  ImportedNode run() {
    Machine& machine = node_.machine;
    shape().gpus = matrix_.gpus;
    shape().nics = matrix_.size() - matrix_.gpus;
    const GpuSpec& gpu = find_gpu();
    machine.gpu = gpu.name;
    machine.by_links = true;
    add_nvlinks(gpu);
    add_host_side(gpu);
    if (shape().nics > 0) add_network(gpu);
    for (int i = 0; i < matrix_.gpus; ++i) node_.gpu_devices.push_back(i);
    return std::move(node_);
  }

 private:
  NodeShape& shape() { return node_.machine.shape; }
  void assume(std::string sentence) { node_.assumptions.push_back(std::move(sentence)); }
  [[nodiscard]] const TopoDevice& device(int i) const {
    return matrix_.devices[static_cast<std::size_t>(i)];
  }

  // NVLink and the kind of GPU.

  /// NVLinks of a GPU towards all others; into NVSwitches where every pair shows the same number.
  [[nodiscard]] int nvlinks(int gpu) const {
    int sum = 0, most = 0;
    for (int other = 0; other < matrix_.gpus; ++other) {
      const int links = matrix_.at(gpu, other).nvlinks;
      sum += links;
      most = std::max(most, links);
    }
    return switched() ? most : sum;
  }

  /// Behind NVSwitches every peer shows all NVLinks of a GPU; in a mesh they are split among the
  /// peers. So GPUs are behind switches where even the fewest links of a pair, to every peer, would
  /// be more than a GPU has. Of two GPUs it makes no difference.
  [[nodiscard]] bool switched() const {
    if (matrix_.gpus < 3) return false;
    int fewest = matrix_.at(0, 1).nvlinks, most = 0;
    for (int a = 0; a < matrix_.gpus; ++a) {
      for (int b = 0; b < a; ++b) {
        fewest = std::min(fewest, matrix_.at(a, b).nvlinks);
        most = std::max(most, matrix_.at(a, b).nvlinks);
      }
    }
    return fewest * (matrix_.gpus - 1) > links_of_a_gpu(most);
  }

  /// Of the kind that was given, where a pair shows them all; else the most that any kind has, so
  /// that links which do not fit the kind stand out.
  [[nodiscard]] int links_of_a_gpu(int shown) const {
    if (!options_.gpu.empty()) {
      const GpuSpec& gpu = gpu_spec(options_.gpu);
      if (is_board_gpu(gpu) && gpu.nvlink_links == shown) return shown;
    }
    int most = 0;
    for (const GpuSpec& spec : gpu_specs()) most = std::max(most, spec.nvlink_links);
    return most;
  }

  const GpuSpec& find_gpu() {
    GpuEvidence evidence;
    evidence.given = options_.gpu;
    evidence.gpus = matrix_.gpus;
    evidence.states_nvlinks = matrix_.gpus > 1;
    evidence.switched = switched();
    const TopoCell* telling = &matrix_.at(0, 0);
    for (int a = 0; a < matrix_.gpus; ++a) {
      evidence.nvlinks = std::max(evidence.nvlinks, nvlinks(a));
      for (int b = 0; b < matrix_.gpus; ++b) {
        const TopoCell& cell = matrix_.at(a, b);
        if (cell.nvlinks > telling->nvlinks) telling = &cell;
      }
    }
    evidence.pair_nvlinks = telling->nvlinks;
    evidence.where = {matrix_.file, telling->line, telling->column};
    return choose_gpu(evidence, node_.assumptions);
  }

  void add_nvlinks(const GpuSpec& gpu) {
    if (gpu.nvlink_links == 0) return;
    const BytesPerSecond per_link(gpu.nvlink.per_second() / gpu.nvlink_links);
    const auto rate = [&](int links) { return BytesPerSecond(links * per_link.per_second()); };
    shape().nvlink = per_link;
    for (int a = 0; a < matrix_.gpus; ++a) {
      if (switched()) {
        shape().nvswitch_links.push_back(rate(nvlinks(a)));
        shape().nvswitch = std::max(shape().nvswitch, rate(nvlinks(a)));
        continue;
      }
      for (int b = a + 1; b < matrix_.gpus; ++b) {
        const TopoCell& cell = matrix_.at(a, b);
        if (cell.kind == Kind::NvLink) shape().mesh.push_back({a, b, cell.nvlinks});
      }
    }
    check_mesh_size();
    tell_missing_links(gpu);
    if (switched() || !shape().mesh.empty()) {
      assume(format("NVLink: {:g} GB/s a link and direction, datasheet of {}",
                    per_link.gb_per_second(), gpu.name));
    }
  }

  void check_mesh_size() {
    if (shape().mesh.empty() || matrix_.gpus <= kMaxMeshGpus) return;
    const NvLinkPair& first = shape().mesh.front();
    const TopoCell& cell = matrix_.at(first.a, first.b);
    throw ConfigError(SourceLocation{matrix_.file, cell.line, cell.column},
                      format("found NVLinks between single pairs of {} GPUs; expected at most {} "
                             "GPUs, or NVSwitches: all NVLinks of a GPU for every pair",
                             matrix_.gpus, kMaxMeshGpus));
  }

  void tell_missing_links(const GpuSpec& gpu) {
    if (!switched()) return;
    for (int i = 0; i < matrix_.gpus; ++i) {
      if (nvlinks(i) == gpu.nvlink_links) continue;
      assume(format("{}: {} NVLinks as the matrix shows, where {} has {}", device(i).name,
                    nvlinks(i), gpu.name, gpu.nvlink_links));
    }
  }

  // CPUs and PCIe switches.

  void add_host_side(const GpuSpec& gpu) {
    shape().gpus_per_pcie_switch = 0;
    shape().pcie = pcie_figures(gpu.pcie_generation).peak;
    shape().socket_link = 16_GBps;
    shape().gpu_parents.resize(static_cast<std::size_t>(matrix_.gpus));
    shape().nic_parents.resize(static_cast<std::size_t>(shape().nics));
    const std::vector<Devices> cpus = devices_by_cpu();
    shape().sockets = static_cast<int>(cpus.size());
    for (std::size_t i = 0; i < cpus.size(); ++i) add_below_cpu(static_cast<int>(i), cpus[i]);
    set_numa(cpus);
    assume(
        format("PCIe: {:g} GB/s a direction everywhere, generation {} x16 as {} has; "
               "nvidia-smi gives no speeds",
               shape().pcie.gb_per_second(), gpu.pcie_generation, gpu.name));
    if (cpus.size() > 1) {
      assume(format("CPU to CPU: {:g} GB/s a direction; nvidia-smi does not name the CPUs",
                    shape().socket_link.gb_per_second()));
    }
  }

  /// Devices of each NUMA node, by first device: what meets closer than SYS is on one; GPUs of
  /// which only NVLinks are known are where their affinity says, unless a SYS contradicts.
  std::vector<Devices> devices_by_cpu() {
    Sets sets(matrix_.size());
    for (int a = 0; a < matrix_.size(); ++a) {
      for (int b = 0; b < a; ++b) {
        if (matrix_.at(a, b).same_numa()) sets.join(a, b);
      }
    }
    for (const Devices& set : sets.all()) tell_contradiction(set);
    std::vector<Devices> cpus;
    for (Devices& set : sets.all()) {
      const auto same = std::find_if(cpus.begin(), cpus.end(), [&](const Devices& cpu) {
        return !has_sys_between(cpu, set) && may_be_one(cpu, set);
      });
      if (same == cpus.end()) {
        cpus.push_back(std::move(set));
      } else {
        same->insert(same->end(), set.begin(), set.end());
        std::sort(same->begin(), same->end());
      }
    }
    return cpus;
  }

  void tell_contradiction(const Devices& set) {
    for (const int a : set) {
      for (const int b : set) {
        if (a >= b || matrix_.at(a, b).kind != Kind::Sys) continue;
        assume(
            format("{} and {}: on one NUMA node, as both are near a third device, although the "
                   "matrix has SYS between them",
                   device(a).name, device(b).name));
        return;
      }
    }
  }

  [[nodiscard]] bool has_sys_between(const Devices& some, const Devices& others) const {
    return std::any_of(some.begin(), some.end(), [&](int a) {
      return std::any_of(others.begin(), others.end(),
                         [&](int b) { return matrix_.at(a, b).kind == Kind::Sys; });
    });
  }

  /// Affinities that are known must agree.
  [[nodiscard]] bool may_be_one(const Devices& some, const Devices& others) const {
    const int numa = numa_of(some), other_numa = numa_of(others);
    if (numa >= 0 && other_numa >= 0) return numa == other_numa;
    const std::string cpus = cpus_of(some), other_cpus = cpus_of(others);
    return cpus.empty() || other_cpus.empty() || cpus == other_cpus;
  }
  [[nodiscard]] int numa_of(const Devices& set) const {
    for (const int i : set) {
      const int numa = first_number(device(i).numa_affinity);
      if (numa >= 0) return numa;
    }
    return -1;
  }
  [[nodiscard]] std::string cpus_of(const Devices& set) const {
    for (const int i : set) {
      if (!device(i).cpu_affinity.empty()) return device(i).cpu_affinity;
    }
    return "";
  }

  void add_below_cpu(int cpu, const Devices& devices) {
    for (const Devices& tree : sets_within(devices, &TopoCell::same_tree)) {
      const std::vector<Devices> leaves =
          sets_within(tree, [](const TopoCell& cell) { return cell.kind == Kind::Pix; });
      HostParent above{DeviceKind::Cpu, cpu};
      if (leaves.size() > 1) above = add_switch(above);
      for (const Devices& leaf : leaves) {
        const bool alone = leaf.size() == 1 && leaves.size() == 1;
        const HostParent parent = alone ? above : add_switch(above);
        for (const int i : leaf) place(i, parent);
      }
    }
  }

  template <typename Together>
  [[nodiscard]] std::vector<Devices> sets_within(const Devices& devices, Together together) const {
    Sets sets(static_cast<int>(devices.size()));
    for (std::size_t a = 0; a < devices.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (std::invoke(together, matrix_.at(devices[a], devices[b]))) {
          sets.join(static_cast<int>(a), static_cast<int>(b));
        }
      }
    }
    std::vector<Devices> found = sets.all();
    for (Devices& set : found) {
      for (int& i : set) i = devices[static_cast<std::size_t>(i)];
    }
    return found;
  }

  HostParent add_switch(const HostParent& above) {
    shape().switch_parents.push_back(above);
    return {DeviceKind::PcieSwitch, static_cast<int>(shape().switch_parents.size()) - 1};
  }

  void place(int i, const HostParent& parent) {
    if (i < matrix_.gpus) {
      shape().gpu_parents[static_cast<std::size_t>(i)] = parent;
    } else {
      shape().nic_parents[static_cast<std::size_t>(i - matrix_.gpus)] = parent;
    }
  }

  void set_numa(const std::vector<Devices>& cpus) {
    std::set<int> taken;
    for (const Devices& cpu : cpus) taken.insert(numa_of(cpu));
    for (const Devices& cpu : cpus) {
      int numa = numa_of(cpu);
      const std::string& first = device(cpu.front()).name;
      if (numa < 0) {
        for (numa = 0; taken.count(numa) > 0; ++numa) continue;
        assume(format("{}: on NUMA node {}; the matrix does not say", first, numa));
      } else if (repeated(numa)) {
        assume(
            format("{}: below a CPU of its own on NUMA node {}, as the matrix has SYS to the "
                   "others there",
                   first, numa));
      }
      taken.insert(numa);
      shape().cpu_numa.push_back(numa);
    }
    tell_numa_lists();
  }
  [[nodiscard]] bool repeated(int numa) {
    const std::vector<int>& before = shape().cpu_numa;
    return std::find(before.begin(), before.end(), numa) != before.end();
  }
  void tell_numa_lists() {
    for (int i = 0; i < matrix_.gpus; ++i) {
      const std::string& text = device(i).numa_affinity;
      if (text.find_first_of("-,") == std::string::npos) continue;
      assume(format("{}: NUMA affinity {} is taken as its first", device(i).name, text));
      return;
    }
  }

  // NICs.

  void add_network(const GpuSpec& gpu) {
    Machine& machine = node_.machine;
    machine.nic_bandwidth = options_.nic_bandwidth.value_or(usual_nic_bandwidth(gpu));
    const TopoDevice& nic = device(matrix_.gpus);
    const std::string& name = nic.legend.empty() ? nic.name : nic.legend;
    machine.network = network_by_name(name);
    machine.nic_efficiency = network_efficiency(machine.network, machine.nic_bandwidth);
    const std::string rate = format("{:g} Gb/s", machine.nic_bandwidth.per_second() * 8 / 1e9);
    if (!options_.nic_bandwidth) {
      assume(format("NICs: {} each, usual beside {}; nvidia-smi does not say (--nic-bandwidth)",
                    rate, gpu.name));
    }
    assume(format("network: {}, by the name {}", to_string(machine.network), name));
  }

  TopoMatrix matrix_;
  const ImportOptions& options_;
  ImportedNode node_;
};

}  // namespace

ImportedNode import_nvidia_smi(const std::string& text, const std::string& file,
                               const ImportOptions& options) {
  return Import(parse_topo_matrix(text, file), options).run();
}

}  // namespace zerosim
