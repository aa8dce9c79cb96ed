#include "validate/log_machine.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "sim/analysis/nccl_environment.h"
#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "topology/node_file.h"
#include "topology/presets/machines.h"
#include "validate/csv.h"
#include "validate/gpu_words.h"
#include "validate/link_words.h"

namespace zerosim {
namespace {

/// Thrown while a machine is looked for; its reason becomes LogMachine::why.
struct NoMachine {
  std::string why;
};

std::string cell(const CsvTable& table, const std::vector<CsvCell>& row, const char* name) {
  return row[table.column(name)].text;
}

/// An operation that is not known would be taken for none.
void check_operation(const CsvTable& table, const std::vector<CsvCell>& row) {
  const CsvCell& cell = row[table.column("op")];
  if (cell.text.empty() || nccl_test_in(cell.text)) return;
  const std::vector<std::string> known = nccl_test_names();
  throw TraceError(table.location(cell), format("op: found \"{}\", expected one of {}{}", cell.text,
                                                join(known, ", "), did_you_mean(cell.text, known)));
}

int count_cell(const CsvTable& table, const std::vector<CsvCell>& row, const char* name) {
  constexpr CsvRange kCounts{1, 131'072, true};
  return static_cast<int>(csv_number(table, row, table.column(name), kCounts).value_or(0));
}

/// Ranks and how they lie.
struct Spread {
  int nodes = 0;
  int gpus_per_node = 0;
  [[nodiscard]] int ranks() const { return nodes * gpus_per_node; }
};

/// Devices of each host, of the first communicator alone where several ran side by side.
std::map<std::string, int> devices_by_host(const NcclTestsLog& log) {
  std::map<std::string, int> counts;
  for (const NcclTestsDevice& device : log.devices) {
    if (device.group == log.devices.front().group) ++counts[device.host];
  }
  return counts;
}

/// "6 on a, 2 on b" where hosts have unequal numbers of GPUs; else "".
std::string unequal_hosts(const NcclTestsLog& log) {
  const std::map<std::string, int> counts = devices_by_host(log);
  const bool equal = std::all_of(counts.begin(), counts.end(), [&](const auto& host) {
    return host.second == counts.begin()->second;
  });
  if (equal) return "";
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [host, count] : counts) parts.push_back(format("{} on {}", count, host));
  return join(parts, ", ");
}

/// As the list of devices has it; 0 nodes if it is none of equal hosts. Where somebody pasted a
/// list of another run its hosts count, with the ranks that the rows have.
Spread listed_spread(const NcclTestsLog& log) {
  const auto nodes = static_cast<int>(devices_by_host(log).size());
  if (!log.ranks || nodes == 0 || *log.ranks % nodes != 0) return {};
  if (!unequal_hosts(log).empty()) return {};
  return {nodes, *log.ranks / nodes};
}

/// The machine that GPU and links speak of.
class MachineFinder {
 public:
  MachineFinder(const GpuSpec& gpu, LinkWords link, Spread spread, bool merges_ports)
      : gpu_(gpu), link_(std::move(link)), spread_(spread), merges_ports_(merges_ports) {
    if (!link_.intra) link_.intra = usual_intra();
    // What cards do below one switch, consumer cards may not.
    if (link_.intra == IntraNode::Pcie && is_consumer_card(gpu_)) {
      link_.intra = IntraNode::PcieHostStaged;
    }
    if (link_.network && link_.network->kind == NetworkKind::Efa) {
      link_.network->kind = usual_efa(link_.network->bandwidth);
    }
  }

  [[nodiscard]] JsonValue cluster_file() const {
    JsonValue json(Json::objectValue);
    json["version"] = 1;
    const Machine* preset = best_preset();
    if (preset == nullptr && link_.racks > 0) {
      throw NoMachine{format("no preset has racks of {}", gpu_.name)};
    }
    json["name"] = name(preset);
    json["node"] = preset == nullptr ? spelled_out() : JsonValue(Json::objectValue);
    if (preset != nullptr) json["node"]["preset"] = preset->name;
    if (spread_.nodes > 1) add_nics(json["node"], preset);
    json["nodes"] = spread_.nodes;
    json["gpus_per_node"] = spread_.gpus_per_node;
    if (reduces_in_network()) json["fabric"]["sharp"] = true;
    return json;
  }

  [[nodiscard]] std::string machine_class() const {
    const std::string family = gpu_family(gpu_);
    if (spread_.nodes == 1 || link_.racks == 1) return family + " " + intra_word();
    if (link_.network) return format("{} {}", family, to_string(*link_.network->kind));
    const Machine* preset = best_preset();
    return format("{} {}", family, preset == nullptr ? "network" : to_string(preset->network));
  }

  /// Sentences on what the words leave open.
  [[nodiscard]] std::vector<std::string> assumptions() const {
    std::vector<std::string> told;
    const Machine* preset = best_preset();
    if (preset == nullptr) {
      told.push_back(format("no preset has {} x {} on {}: the node is spelled out",
                            spread_.gpus_per_node, gpu_.name, intra_kind()));
    } else {
      told.push_back(format("machine: preset {}{}", preset->name,
                            spread_.nodes > 1 && !has_its_network(*preset)
                                ? ", with the adapters that are stated"
                                : ""));
    }
    if (spread_.nodes > 1 && !link_.network) {
      told.emplace_back("network: the preset's, as nothing says otherwise");
    }
    if (reduces_in_network()) {
      told.emplace_back("switches between the nodes reduce (SHARP), as is stated");
    }
    if (cards_share_slots()) {
      told.emplace_back("PCIe 3 CPUs: two cards below each switch, as lanes do not suffice");
    }
    return told;
  }

 private:
  /// SHARP is InfiniBand's; on one node the word means NVLS.
  [[nodiscard]] bool reduces_in_network() const {
    if (!link_.in_network_reduction || spread_.nodes == 1) return false;
    if (link_.network) return link_.network->kind == NetworkKind::InfiniBand;
    const Machine* preset = best_preset();
    return preset != nullptr && preset->network == NetworkKind::InfiniBand;
  }

  /// The version that instances with such GPUs have: p4d; p5; p5en, p6.
  [[nodiscard]] NetworkKind usual_efa(BytesPerSecond adapter) const {
    if (gpu_.compute_capability < 90) return NetworkKind::EfaV1;
    const bool fast = adapter >= 200_Gbps && link_.network->count > 0;
    return fast || gpu_.compute_capability >= 100 ? NetworkKind::EfaV3 : NetworkKind::Efa;
  }

  /// Peak of a slot of the generation that is stated; 0: none is.
  [[nodiscard]] BytesPerSecond stated_slot() const {
    switch (link_.pcie_generation) {
      case 3:
        return 15.75_GBps;
      case 4:
        return 31.5_GBps;
      case 5:
        return 63_GBps;
      default:
        return {};
    }
  }

  /// Where nothing is said: boards have NVLink, cards are on PCIe.
  [[nodiscard]] IntraNode usual_intra() const {
    const bool board = gpu_.name.find("SXM") != std::string::npos || gpu_.name.starts_with("G");
    if (!board) return IntraNode::PcieHostStaged;
    return gpu_.compute_capability < 80 && spread_.gpus_per_node <= 8 ? IntraNode::NvLinkMesh
                                                                      : IntraNode::NvSwitch;
  }

  /// As a cluster file has it.
  [[nodiscard]] std::string intra_kind() const {
    return std::string(intra_node_name(*link_.intra));
  }

  /// The same, short.
  [[nodiscard]] std::string intra_word() const {
    if (link_.racks > 0) return "nvl72";
    if (*link_.intra == IntraNode::NvLinkMesh) return "mesh";
    return *link_.intra == IntraNode::PcieHostStaged ? "staged" : intra_kind();
  }

  [[nodiscard]] bool fits(const Machine& machine) const {
    const bool other_slot = !has_nvlink(machine.intra) && stated_slot().per_second() > 0 &&
                            machine.shape.pcie != stated_slot();
    return machine.gpu == gpu_.name && machine.intra == *link_.intra && !other_slot &&
           machine.shape.gpus >= spread_.gpus_per_node;
  }

  /// Whether the adapters that are stated are the machine's own.
  [[nodiscard]] bool has_its_network(const Machine& machine) const {
    if (!link_.network) return true;
    const NetworkWords& stated = *link_.network;
    const bool both_efa = is_efa(*stated.kind) && is_efa(machine.network);
    if (stated.kind != machine.network && !both_efa) return false;
    if (stated.bandwidth.per_second() <= 0) return true;
    const double node = machine.shape.nics * machine.nic_bandwidth.per_second();
    if (stated.count == 0) return node == stated.bandwidth.per_second();
    return stated.count == machine.shape.nics && stated.bandwidth == machine.nic_bandwidth;
  }

  [[nodiscard]] const Machine* best_preset() const {
    const Machine* best = nullptr;
    for (const Machine& machine : machines()) {
      if (!fits(machine)) continue;
      if (best == nullptr || is_better(machine, *best)) best = &machine;
    }
    return best;
  }

  [[nodiscard]] bool is_better(const Machine& a, const Machine& b) const {
    if (spread_.nodes > 1) return has_its_network(a) && !has_its_network(b);
    return a.shape.gpus == spread_.gpus_per_node && b.shape.gpus != spread_.gpus_per_node;
  }

  [[nodiscard]] std::string name(const Machine* preset) const {
    std::string kind = preset == nullptr ? gpu_.name : preset->name;
    if (spread_.nodes > 1 && link_.network && (preset == nullptr || !has_its_network(*preset))) {
      kind += format("+{}", to_string(*link_.network->kind));
    }
    return format("{} x {} {}", spread_.nodes, spread_.gpus_per_node, kind);
  }

  [[nodiscard]] JsonValue spelled_out() const {
    JsonValue node(Json::objectValue);
    node["gpu"] = gpu_.name;
    node["gpus"] = spread_.gpus_per_node;
    JsonValue& intra = node["intra"];
    intra["kind"] = intra_kind();
    if (stated_slot().per_second() > 0) {
      intra["pcie"] = format("{}GB/s", stated_slot().gb_per_second());
    }
    if (cards_share_slots()) node["graph"] = pairs_below_switches();
    return node;
  }

  /// CPUs of PCIe 3 have lanes for two cards and an adapter (40 to 48 of Intel's); more cards hang
  /// below switches.
  [[nodiscard]] bool cards_share_slots() const {
    return link_.pcie_generation == 3 && link_.sockets > 0 &&
           spread_.gpus_per_node > 2 * link_.sockets &&
           spread_.gpus_per_node % (2 * link_.sockets) == 0;
  }

  /// A switch for each two cards, evenly below the CPUs.
  [[nodiscard]] JsonValue pairs_below_switches() const {
    JsonValue graph(Json::objectValue);
    const int switches = spread_.gpus_per_node / 2;
    for (int i = 0; i < link_.sockets; ++i) graph["cpus"].append(JsonValue(Json::objectValue));
    for (int i = 0; i < switches; ++i) {
      JsonValue below(Json::objectValue);
      below["below"] = format("cpu{}", i * link_.sockets / switches);
      graph["switches"].append(below);
      below["below"] = format("switch{}", i);
      graph["gpus"].append(below);
      graph["gpus"].append(below);
    }
    return graph;
  }

  void add_nics(JsonValue& node, const Machine* preset) const {
    if (preset != nullptr && has_its_network(*preset)) return;
    if (!link_.network) throw NoMachine{"nothing says which network joins the nodes"};
    const NetworkWords& stated = *link_.network;
    JsonValue& nics = node["nics"];
    nics["kind"] = std::string(to_string(*stated.kind));
    if (stated.bandwidth.per_second() <= 0) {
      if (preset == nullptr) throw NoMachine{"nothing says how fast the network is"};
      return;
    }
    const int ports = merges_ports_ ? stated.ports : 1;
    const int count = stated.count > 0 ? stated.count : 1;
    nics["count"] = count / ports;
    nics["bandwidth"] = format("{}GB/s", stated.bandwidth.gb_per_second() * ports);
  }

  const GpuSpec& gpu_;
  LinkWords link_;
  Spread spread_;
  bool merges_ports_;
};

/// NCCL 2.20 takes the ports of one card for one adapter (NCCL_IB_MERGE_NICS), as far as is known.
constexpr int kFirstMergingPorts = 20;
/// NCCL 2.9 launches the kernels of a process one by one (LaunchMode::as_group).
constexpr int kFirstLaunchingAlone = 9;
/// The last of 2019, when nccl-tests printed busbw twice.
constexpr int kReleaseOfBusbwTwice = 5;

/// 26 of "2.26.2+cuda12.8"; nullopt: not stated.
std::optional<int> stated_release(const NcclTestsLog& log) {
  constexpr std::string_view kMajor = "2.";
  if (!log.nccl_version.starts_with(kMajor)) return std::nullopt;
  int minor = 0;
  const char* end = log.nccl_version.data() + log.nccl_version.size();
  const auto read = std::from_chars(log.nccl_version.data() + kMajor.size(), end, minor);
  if (read.ec != std::errc() || minor < 0) return std::nullopt;
  return std::min(minor, kModelledNcclRelease);
}

void set_release(const NcclTestsLog& log, LogMachine& machine) {
  int& release = machine.cluster->nccl_settings.release;
  if (const std::optional<int> stated = stated_release(log)) {
    release = *stated;
    if (release < kCompleteNcclRelease) {
      machine.assumptions.push_back(
          format("NCCL: without what came after 2.{}, which the log states", release));
    }
  } else if (log.columns == NcclTestsColumns::BusbwTwice) {
    release = kReleaseOfBusbwTwice;
    machine.assumptions.push_back(
        format("NCCL: without what came after 2.{}, as nccl-tests printed busbw twice in 2019 and "
               "before",
               release));
  }
}

const GpuSpec& gpu_of(const std::string& words, std::vector<std::string>& assumptions) {
  if (is_amd_gpu(words)) {
    throw NoMachine{format("{}: RCCL is not modelled, only NCCL", words)};
  }
  const NamedGpu named = gpu_by_words(words);
  if (named.gpu == nullptr) throw NoMachine{format("GPU \"{}\" is not known", words)};
  if (!named.assumption.empty()) assumptions.push_back(named.assumption);
  return *named.gpu;
}

LogMachine built(const GpuSpec& gpu, const LinkWords& link, Spread spread, const NcclTestsLog& log,
                 const std::string& place, std::vector<std::string> assumptions) {
  if (!link.unknown.empty()) {
    throw NoMachine{format("network \"{}\" is not known", link.unknown)};
  }
  const MachineFinder finder(
      gpu, link, spread, stated_release(log).value_or(kFirstMergingPorts) >= kFirstMergingPorts);
  LogMachine machine;
  machine.cluster = parse_cluster(to_text(finder.cluster_file(), true), place);
  machine.machine_class = finder.machine_class();
  machine.assumptions = std::move(assumptions);
  for (const std::string& told : finder.assumptions()) machine.assumptions.push_back(told);
  for (const std::string& told : machine.cluster->assumptions) machine.assumptions.push_back(told);
  return machine;
}

/// Nodes and GPUs of the row, which the log must admit.
Spread indexed_spread(const NcclTestsLog& log, const LogIndexRow& row,
                      std::vector<std::string>& assumptions) {
  const Spread listed = listed_spread(log);
  Spread spread{row.nodes > 0 ? row.nodes : listed.nodes,
                row.gpus_per_node > 0 ? row.gpus_per_node : listed.gpus_per_node};
  if (spread.ranks() > 0 && admits_ranks(log, spread.ranks())) return spread;
  const std::string said = format("{} says {} of {}", row.place, counted(row.nodes, "node"),
                                  counted(row.gpus_per_node, "GPU"));
  if (!log.ranks) throw NoMachine{said + ", which busbw / algbw does not admit"};
  if (spread.nodes == 0 || *log.ranks % spread.nodes != 0) {
    throw NoMachine{format("{}, but {} says {} ranks", said, log.ranks_from, *log.ranks)};
  }
  spread.gpus_per_node = *log.ranks / spread.nodes;
  assumptions.push_back(format("{}; {} says {} ranks: {} of each node", said, log.ranks_from,
                               *log.ranks, spread.gpus_per_node));
  return spread;
}

LogMachine by_index(const NcclTestsLog& log, const LogIndexRow& row) {
  std::vector<std::string> assumptions;
  const GpuSpec& gpu = gpu_of(row.gpu, assumptions);
  const Spread spread = indexed_spread(log, row, assumptions);
  return built(gpu, read_link_words(row.link), spread, log, row.place, std::move(assumptions));
}

/// The name that all devices have.
std::string listed_name(const NcclTestsLog& log) {
  const std::string& first = log.devices.front().name;
  for (const NcclTestsDevice& device : log.devices) {
    if (device.name == first) continue;
    throw NoMachine{format("the list of devices has {} and {}: nodes of several kinds of GPUs",
                           first, device.name)};
  }
  return first;
}

LogMachine by_devices(const NcclTestsLog& log) {
  if (log.devices.empty()) {
    throw NoMachine{
        "nothing says which machine it was: no --cluster, no INDEX.csv beside it, no list of "
        "devices"};
  }
  std::vector<std::string> assumptions;
  const GpuSpec& gpu = gpu_of(listed_name(log), assumptions);
  const Spread spread = listed_spread(log);
  if (const std::string hosts = unequal_hosts(log); !hosts.empty()) {
    throw NoMachine{format("the list of devices has {}: hosts of unequal numbers of GPUs", hosts)};
  }
  if (spread.nodes == 0) {
    throw NoMachine{format("the list of devices has {}, among which {} do not spread evenly",
                           counted(static_cast<int>(devices_by_host(log).size()), "host"),
                           log.ranks ? counted(*log.ranks, "rank") : "ranks")};
  }
  return built(gpu, {}, spread, log, log.file, std::move(assumptions));
}

/// Nodes and GPUs of each by flag, else by the log, else all of the cluster.
Spread given_spread(const NcclTestsLog& log, const LogIndexRow* row, const Cluster& cluster,
                    const LogMachineOptions& options) {
  Spread spread{options.nodes, options.gpus_per_node};
  const Spread listed = listed_spread(log);
  const bool indexed = row != nullptr && row->nodes > 0 && row->gpus_per_node > 0;
  const Spread told = indexed ? Spread{row->nodes, row->gpus_per_node} : listed;
  if (spread.nodes < 1 && spread.gpus_per_node < 1 && told.nodes > 0) return told;
  if (!log.ranks) {
    return {spread.nodes < 1 ? cluster.nodes : spread.nodes,
            spread.gpus_per_node < 1 ? cluster.gpus_per_node : spread.gpus_per_node};
  }
  const int ranks = *log.ranks;
  if (spread.nodes < 1 && spread.gpus_per_node < 1) {
    spread.gpus_per_node = std::min(ranks, cluster.gpus_per_node);
  }
  if (spread.nodes < 1) spread.nodes = ranks / spread.gpus_per_node;
  if (spread.gpus_per_node < 1) spread.gpus_per_node = ranks / spread.nodes;
  return spread;
}

/// Whether the user's cluster can be as large as the log.
void check_room(const Cluster& cluster, const Spread& spread) {
  if (spread.gpus_per_node > cluster.node.gpus) {
    throw NoMachine{format("the log has {} on each node, {} has {}",
                           counted(spread.gpus_per_node, "GPU"), cluster.name, cluster.node.gpus)};
  }
  const bool joined = spread.nodes <= std::max(1, cluster.fabric.nvlink_domain_nodes);
  if (spread.nodes > 1 && cluster.node.nics == 0 && !joined) {
    throw NoMachine{format("the log has {}, {} no adapters to join them",
                           counted(spread.nodes, "node"), cluster.name)};
  }
}

LogMachine by_user(const NcclTestsLog& log, const LogIndexRow* row,
                   const LogMachineOptions& options) {
  const Cluster cluster = load_cluster(options.cluster);
  const Spread spread = given_spread(log, row, cluster, options);
  if (!admits_ranks(log, spread.ranks())) {
    throw NoMachine{format("{} of {} are not the {}", counted(spread.nodes, "node"),
                           counted(spread.gpus_per_node, "GPU"),
                           log.ranks ? counted(*log.ranks, "rank") + " of the log"
                                     : "ranks that busbw / algbw of the log says")};
  }
  const bool by_flag = options.nodes > 0 || options.gpus_per_node > 0;
  if (!by_flag) check_room(cluster, spread);
  LogMachine machine;
  machine.cluster = load_cluster(options.cluster, spread.nodes, spread.gpus_per_node);
  machine.machine_class = machine.cluster->name;
  machine.assumptions = machine.cluster->assumptions;
  return machine;
}

/// Tables without their first lines, of one node, are taken for `-g` all GPUs, as most such logs
/// are; between nodes a launcher starts a process for each GPU.
void set_launch(const NcclTestsLog& log, LogMachine& machine) {
  LaunchMode& launch = machine.group.launch;
  launch.ranks_per_process = log.ranks_per_process;
  if (launch.ranks_per_process == 0) {
    const bool one_node = machine.cluster->nodes == 1;
    launch.ranks_per_process = one_node ? machine.group.ranks : 1;
    machine.assumptions.emplace_back(
        one_node ? "launch: one process for all GPUs (-g), as usual on one node"
                 : "launch: a process for each GPU, as usual between nodes");
  }
  const std::optional<int> release = stated_release(log);
  const bool is_old = release ? *release < kFirstLaunchingAlone : log.before_root;
  launch.as_group = is_old && launch.ranks_per_process > 1;
}

/// What the list of devices says otherwise. \throws NoMachine  if it has another architecture
void compare_with_list(const NcclTestsLog& log, LogMachine& machine) {
  std::set<std::string> names;
  for (const NcclTestsDevice& device : log.devices) names.insert(device.name);
  const Cluster& cluster = *machine.cluster;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    const GpuSpec* listed = gpu_by_words(name).gpu;
    const std::string differs =
        format("the list of devices has {}, the machine that is taken {}", name, cluster.node.gpu);
    if (listed != nullptr && listed->compute_capability != cluster.gpu().compute_capability) {
      throw NoMachine{differs};
    }
    if (listed == nullptr || listed->name != cluster.node.gpu) machine.notes.push_back(differs);
  }
  const std::string hosts = unequal_hosts(log);
  const Spread spread = listed_spread(log);
  const bool as_listed = spread.nodes == 0 || spread.nodes == cluster.nodes;
  if (!hosts.empty() || !as_listed) {
    machine.notes.push_back(format("the list of devices has {}, the machine that is taken {} of {}",
                                   hosts.empty() ? counted(spread.nodes, "host") : hosts,
                                   counted(cluster.nodes, "node"),
                                   counted(cluster.gpus_per_node, "GPU")));
  }
}

LogMachine found(const NcclTestsLog& log, const LogIndexRow* row,
                 const LogMachineOptions& options) {
  if (log.rccl) throw NoMachine{"RCCL is not modelled, only NCCL"};
  if (!options.cluster.empty()) return by_user(log, row, options);
  return row == nullptr ? by_devices(log) : by_index(log, *row);
}

}  // namespace

LogIndex read_log_index(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "INDEX.csv";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const CsvTable table = read_csv(path.string());
  LogIndex index;
  for (const std::vector<CsvCell>& row : table.rows) {
    LogIndexRow entry;
    entry.place = format("{}:{}", table.file, row.front().line);
    entry.operation = cell(table, row, "op");
    entry.gpu = cell(table, row, "gpu");
    entry.link = cell(table, row, "link");
    entry.source = cell(table, row, "source");
    entry.gpus_per_node = count_cell(table, row, "gpus_per_node");
    entry.nodes = count_cell(table, row, "nodes");
    check_operation(table, row);
    const CsvCell& file = row[table.column("file")];
    const auto [known, is_new] = index.emplace(file.text, entry);
    if (!is_new) {
      throw TraceError(table.location(file), format("found {} again, which {} has already",
                                                    file.text, known->second.place));
    }
  }
  return index;
}

LogMachine machine_of_log(const NcclTestsLog& log, const LogIndexRow* row,
                          const LogMachineOptions& options) {
  try {
    LogMachine machine = found(log, row, options);
    set_release(log, machine);
    compare_with_list(log, machine);
    machine.found = machine.cluster;
    for (std::string& told : follow_nccl_variables(options.environment, *machine.cluster)) {
      machine.assumptions.push_back(std::move(told));
    }
    machine.group = world_group(*machine.cluster);
    set_launch(log, machine);
    return machine;
  } catch (const NoMachine& none) {
    LogMachine machine;
    machine.why = none.why;
    return machine;
  }
}

LogMachine machine_of_words(const GpuSpec& gpu, const LinkWords& link, int nodes, int gpus_per_node,
                            const std::string& place) {
  LogMachine machine;
  try {
    machine = built(gpu, link, {nodes, gpus_per_node}, {}, place, {});
    machine.group = world_group(*machine.cluster);
  } catch (const NoMachine& none) {
    machine.why = none.why;
  }
  return machine;
}

}  // namespace zerosim
