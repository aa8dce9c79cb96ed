#include "sim/report/topology_text.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

using Vertex = DeviceId;
using Edge = LinkId;

constexpr int kMatrixColumns = 80;  // of a terminal that nobody has widened
constexpr int kLabelColumns = 16;

std::string gb(BytesPerSecond rate) {
  const double value = rate.gb_per_second();
  return value < 1000 ? format("{:.4g}", value) : format("{:.0f}", value);
}
std::string gb_per_second(BytesPerSecond rate) {
  return gb(rate) + " GB/s";
}

/// What joins GPUs directly; AMD's are drawn in NVLink's place.
const char* gpu_link_word(const Cluster& cluster) {
  return is_simulated_gpu(cluster.node.gpu) ? "NVLink" : "xGMI";
}

const char* word(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::Gpu:
      return "GPU";
    case DeviceKind::NvSwitch:
      return "NVSwitch";
    case DeviceKind::PcieSwitch:
      return "PCIe switch";
    case DeviceKind::Cpu:
      return "CPU";
    case DeviceKind::Nic:
      return "NIC";
  }
  return "";
}

/// "GPU 3", "GPU 0-3".
std::string named(DeviceKind kind, int first, int last) {
  return first == last ? format("{} {}", word(kind), first)
                       : format("{} {}-{}", word(kind), first, last);
}

/// "0-3", "0, 2, 4-6".
std::string ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    const int last = numbers[end - 1];
    parts.push_back(numbers[i] == last ? format("{}", last) : format("{}-{}", numbers[i], last));
    i = end;
  }
  return join(parts, ", ");
}

// ---- the tree -------------------------------------------------------------------------------

/// A device, or devices in a row that read alike, and what hangs from them.
struct Branch {
  DeviceKind kind = DeviceKind::Cpu;
  int first = 0;
  int last = 0;
  std::string remark;  ///< on the link upwards
  std::vector<Branch> below;
  [[nodiscard]] int size() const { return last - first + 1; }
};

/// Whether `next` continues `branch`: the same parts, numbered on.
bool continues(const Branch& branch, const Branch& next) {
  const auto part_continues = [&](const Branch& part, const Branch& next_part) {
    return part.size() * next.size() == next_part.size() * branch.size() &&
           continues(part, next_part);
  };
  return branch.kind == next.kind && branch.last + 1 == next.first &&
         branch.remark == next.remark &&
         std::equal(branch.below.begin(), branch.below.end(), next.below.begin(), next.below.end(),
                    part_continues);
}

void extend(Branch& branch, const Branch& next) {
  branch.last = next.last;
  for (std::size_t i = 0; i < branch.below.size(); ++i) extend(branch.below[i], next.below[i]);
}

/// Leaves that read alike become one; so do larger branches, from four on.
std::vector<Branch> gathered(const std::vector<Branch>& branches) {
  constexpr std::size_t kMany = 4;
  std::vector<Branch> all;
  for (std::size_t begin = 0; begin < branches.size();) {
    Branch run = branches[begin];
    std::size_t end = begin + 1;
    for (; end < branches.size() && continues(run, branches[end]); ++end) {
      extend(run, branches[end]);
    }
    if (run.below.empty() || end - begin >= kMany) {
      all.push_back(std::move(run));
    } else {
      all.insert(all.end(), branches.begin() + static_cast<std::ptrdiff_t>(begin),
                 branches.begin() + static_cast<std::ptrdiff_t>(end));
    }
    begin = end;
  }
  return all;
}

/// Draws the host side, a tree below each CPU.
class Tree {
 public:
  explicit Tree(const Cluster& cluster) : cluster_(cluster), graph_(cluster.node.graph) {}

  std::string text() {
    for (const Vertex cpu : devices_of(graph_, DeviceKind::Cpu)) {
      table_.add_row({format("CPU {}", graph_[cpu].index), format("NUMA {}", graph_[cpu].numa)});
      draw(branches_below(cpu), 1, "");
    }
    return table_.text();
  }

 private:
  /// \param parents  devices that each of these branches is spread over
  void draw(const std::vector<Branch>& branches, int parents, const std::string& margin) {
    for (const Branch& branch : branches) {
      const bool is_last = &branch == &branches.back();
      std::string remark = branch.remark;
      if (parents > 1) remark += format(", {} each", branch.size() / parents);
      table_.add_row(
          {margin + (is_last ? "`-- " : "|-- ") + named(branch.kind, branch.first, branch.last),
           remark});
      draw(branch.below, branch.size(), margin + (is_last ? "    " : "|   "));
    }
  }

  [[nodiscard]] std::vector<Branch> branches_below(Vertex parent) const {
    std::vector<Branch> branches;
    for (const Edge& edge : links_of(graph_, parent)) {
      const Vertex child = boost::target(edge, graph_);
      const LinkKind kind = graph_[edge].kind;
      const bool hangs = child > parent && (kind == LinkKind::Pcie || kind == LinkKind::C2c);
      if (!hangs) continue;
      const Device& device = graph_[child];
      branches.push_back({device.kind, device.index, device.index,
                          remark(child, parent, graph_[edge]), branches_below(child)});
    }
    return gathered(branches);
  }

  [[nodiscard]] std::string remark(Vertex child, Vertex parent, const Link& up) const {
    const Device& device = graph_[child];
    std::string text = gb_per_second(up.bandwidth);
    if (up.kind == LinkKind::C2c) text += " C2C";
    if (device.numa != graph_[parent].numa) text += format(", NUMA {}", device.numa);
    if (device.kind == DeviceKind::Nic && device.port.per_second() > 0) {
      text += ", port " + gb_per_second(device.port);
    }
    if (device.kind == DeviceKind::Gpu && device.index >= cluster_.gpus_per_node) {
      text += ", not used";
    }
    return text;
  }

  const Cluster& cluster_;
  const NodeGraph& graph_;
  TextTable table_{{TextTable::Align::Left, TextTable::Align::Left}};
};

std::string cpu_links(const NodeGraph& graph) {
  std::set<std::string> rates;
  for (const Edge& edge : links_of(graph)) {
    if (graph[edge].kind == LinkKind::CpuInterconnect) rates.insert(gb(graph[edge].bandwidth));
  }
  if (rates.empty()) return "";
  return format("Between CPUs: {} GB/s\n",
                join(std::vector<std::string>(rates.begin(), rates.end()), ", "));
}

/// "12 x 25 GB/s" where the datasheet says how fast a link is.
std::string link_count(const Cluster& cluster, BytesPerSecond rate) {
  if (!is_simulated_gpu(cluster.node.gpu)) return gb_per_second(rate);
  const GpuSpec& gpu = cluster.gpu();
  if (gpu.nvlink_links == 0) return gb_per_second(rate);
  const double link = gpu.nvlink.per_second() / gpu.nvlink_links;
  return format("{} GB/s ({:.3g} x {:.4g})", gb(rate), rate.per_second() / link, link / 1e9);
}

/// Peers of one GPU with the rate to each: "150 GB/s: 25 to 1, 2; 50 to 3, 4".
std::string mesh_line(const Cluster& cluster, int gpu) {
  const NodeGraph& graph = cluster.node.graph;
  std::vector<std::pair<double, std::vector<int>>> peers;
  for (int peer = 0; peer < cluster.node.gpus; ++peer) {
    if (peer == gpu) continue;
    const double rate = nvlink_pair_bandwidth(graph, gpu, peer).gb_per_second();
    if (rate <= 0) continue;
    const auto same = std::find_if(peers.begin(), peers.end(),
                                   [&](const auto& entry) { return entry.first == rate; });
    if (same == peers.end()) {
      peers.push_back({rate, {peer}});
    } else {
      same->second.push_back(peer);
    }
  }
  std::vector<std::string> parts;
  parts.reserve(peers.size());
  for (const auto& [rate, numbers] : peers) {
    parts.push_back(format("{:.4g} to {}", rate, ranges(numbers)));
  }
  return format("{}: {}", link_count(cluster, nvlink_bandwidth(graph, gpu)), join(parts, "; "));
}

/// GPUs in a row that read alike share a line.
std::string gpu_links(const Cluster& cluster) {
  const NodeGraph& graph = cluster.node.graph;
  TextTable table({TextTable::Align::Left, TextTable::Align::Left});
  int first = 0;
  std::string text;
  const auto flush = [&](int end) {
    if (!text.empty()) table.add_row({named(DeviceKind::Gpu, first, end - 1), text});
  };
  for (int gpu = 0; gpu < cluster.node.gpus; ++gpu) {
    const BytesPerSecond rate = nvlink_bandwidth(graph, gpu);
    std::string line;
    if (is_on_nvswitch(graph, gpu)) {
      line = link_count(cluster, rate) + " into the switches";
    } else if (rate.per_second() > 0) {
      line = mesh_line(cluster, gpu);
    }
    if (gpu > 0 && line == text) continue;
    flush(gpu);
    first = gpu;
    text = std::move(line);
  }
  flush(cluster.node.gpus);
  const std::string lines = table.text(2);
  return lines.empty() ? lines : format("{}:\n{}", gpu_link_word(cluster), lines);
}

// ---- the matrix -----------------------------------------------------------------------------

/// A column of the matrix.
struct Column {
  DeviceKind kind = DeviceKind::Gpu;
  int index = 0;
  int last = 0;  ///< NICs up to this one read alike
  [[nodiscard]] std::string name() const {
    const std::string number = last > index ? format("{}-{}", index, last) : format("{}", index);
    return (kind == DeviceKind::Gpu ? "GPU" : "NIC") + number;
  }
};

/// nvidia-smi's words.
std::string path_word(const Cluster& cluster, int gpu, const Column& column) {
  const NodeGraph& graph = cluster.node.graph;
  const bool to_gpu = column.kind == DeviceKind::Gpu;
  const PathKind path =
      to_gpu ? gpu_path(graph, gpu, column.index) : nic_path(graph, gpu, column.index);
  const bool simulated = is_simulated_gpu(cluster.node.gpu);
  switch (path) {
    case PathKind::NvLink:
    case PathKind::NvSwitch: {
      if (!simulated) return "XGMI";
      const GpuSpec& spec = cluster.gpu();
      const double link = spec.nvlink.per_second() / spec.nvlink_links;
      return format("NV{:.0f}", gpu_path_bandwidth(graph, gpu, column.index).per_second() / link);
    }
    case PathKind::NvLinkViaGpu:
      return simulated ? "NVB" : "XGB";
    case PathKind::PcieSwitch:
      return "PIX";
    case PathKind::PcieSwitches:
      return "PXB";
    case PathKind::HostBridge:
      return "NODE";
    case PathKind::System:
      return "SYS";
    case PathKind::None:
      break;
  }
  return "-";
}

std::string path_rate(const Cluster& cluster, int gpu, const Column& column) {
  const NodeGraph& graph = cluster.node.graph;
  return gb(column.kind == DeviceKind::Gpu ? gpu_path_bandwidth(graph, gpu, column.index)
                                           : nic_path_bandwidth(graph, gpu, column.index));
}

/// Whether all used GPUs reach two NICs alike.
bool reads_alike(const Cluster& cluster, const Column& a, const Column& b) {
  for (int gpu = 0; gpu < cluster.gpus_per_node; ++gpu) {
    if (path_word(cluster, gpu, a) != path_word(cluster, gpu, b)) return false;
    if (path_rate(cluster, gpu, a) != path_rate(cluster, gpu, b)) return false;
  }
  return true;
}

std::vector<Column> matrix_columns(const Cluster& cluster) {
  std::vector<Column> columns;
  columns.reserve(static_cast<std::size_t>(cluster.gpus_per_node));
  for (int i = 0; i < cluster.gpus_per_node; ++i) columns.push_back({DeviceKind::Gpu, i, i});
  for (int i = 0; i < cluster.node.nics; ++i) {
    const Column nic{DeviceKind::Nic, i, i};
    if (i > 0 && reads_alike(cluster, columns.back(), nic)) {
      columns.back().last = i;
    } else {
      columns.push_back(nic);
    }
  }
  return columns;
}

/// \returns one past the last column that fits into kMatrixColumns characters.
std::size_t block_end(const std::vector<Column>& columns, std::size_t begin) {
  constexpr std::size_t kRowName = 5;     // "GPU12"
  constexpr std::size_t kWidestCell = 5;  // "15.75"
  std::size_t width = kRowName;
  std::size_t end = begin;
  while (end < columns.size()) {
    width += 1 + std::max(kWidestCell, columns[end].name().size());
    if (width > kMatrixColumns && end > begin) break;
    ++end;
  }
  return end;
}

template <typename Cell>
std::string matrix_block(const Cluster& cluster, const std::vector<Column>& columns,
                         const Cell& cell) {
  TextTable table(std::vector<TextTable::Align>(columns.size() + 1, TextTable::Align::Left), 1);
  std::vector<std::string> header{""};
  for (const Column& column : columns) header.push_back(column.name());
  table.add_row(std::move(header));
  for (int gpu = 0; gpu < cluster.gpus_per_node; ++gpu) {
    std::vector<std::string> row{format("GPU{}", gpu)};
    for (const Column& column : columns) {
      const bool self = column.kind == DeviceKind::Gpu && column.index == gpu;
      row.push_back(self ? "X" : cell(gpu, column));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

/// In blocks of columns that fit.
template <typename Cell>
std::string matrix(const Cluster& cluster, const std::vector<Column>& columns, const Cell& cell) {
  std::string out;
  for (std::size_t begin = 0; begin < columns.size();) {
    const std::size_t end = block_end(columns, begin);
    if (begin > 0) out += "\n";
    out += matrix_block(cluster,
                        {columns.begin() + static_cast<std::ptrdiff_t>(begin),
                         columns.begin() + static_cast<std::ptrdiff_t>(end)},
                        cell);
    begin = end;
  }
  return out;
}

std::string legend(const Cluster& cluster) {
  const bool simulated = is_simulated_gpu(cluster.node.gpu);
  const std::string links = simulated ? "NV#: so many NVLinks, NVB: NVLinks by way of a GPU"
                                      : "XGMI: direct links, XGB: by way of a GPU";
  return wrap(links +
                  ", PIX: one PCIe switch, PXB: several, NODE: through a CPU (nvidia-smi: NODE or "
                  "PHB), SYS: from CPU to CPU",
              kMatrixColumns);
}

// ---- the summary ----------------------------------------------------------------------------

class Summary {
 public:
  Summary(const Cluster& cluster, const TopologySummary& summary)
      : cluster_(cluster), summary_(summary) {}

  std::string text() {
    if (summary_.gpus > 1) {
      add_paths();
      add_bisection();
      add_all_gather();
    } else {
      line("GPU to GPU", "one GPU: nothing to reach");
    }
    add_network();
    if (summary_.fabric) add_fabric(*summary_.fabric);
    add_unevenness();
    add_host();
    return out_;
  }

 private:
  void line(const std::string& label, const std::string& text) {
    out_ += wrap(text, kReportColumns, format("{:<{}}", label, kLabelColumns));
  }

  void add_paths() {
    std::string rate = gb(summary_.narrowest_path);
    if (summary_.widest_path > summary_.narrowest_path) rate += " to " + gb(summary_.widest_path);
    const bool linked = summary_.links == FlowLinks::NvLink;
    line("GPU to GPU", format("{} GB/s one way, {} GPUs{}, over {}", rate, summary_.gpus,
                              summary_.gpus > cluster_.gpus_per_node ? " of one NVLink domain" : "",
                              linked ? gpu_link_word(cluster_) : "PCIe and CPUs"));
  }

  void add_bisection() {
    if (!summary_.bisection) {
      line("bisection", "some GPUs do not reach each other");
      return;
    }
    const Bisection& cut = *summary_.bisection;
    line("bisection",
         format("{} GB/s one way between GPUs {} and the others{}", gb(cut.bandwidth),
                ranges(cut.half),
                cut.every_half ? ", the narrowest of all halves" : "; no other halves were tried"));
  }

  void add_all_gather() {
    if (!summary_.all_gather) return;
    const AllGatherBound& bound = *summary_.all_gather;
    line("all-gather", format("at most {} GB/s of busbw: {} {} GB/s", gb(bound.received),
                              narrow_place(bound), gb(bound.outflow)));
    if (!summary_.rings) return;
    line("NCCL's rings", format("{} GB/s, {:.0f} % of that bound", gb(*summary_.rings),
                                100 * summary_.rings->per_second() / bound.received.per_second()));
  }

  /// Named by the side with fewer GPUs.
  [[nodiscard]] std::string narrow_place(const AllGatherBound& bound) const {
    std::vector<int> receivers;
    for (int gpu = 0; gpu < summary_.gpus; ++gpu) {
      if (!std::binary_search(bound.senders.begin(), bound.senders.end(), gpu)) {
        receivers.push_back(gpu);
      }
    }
    if (receivers.size() == 1) return format("GPU {} takes in", receivers.front());
    if (bound.senders.size() == 1) return format("GPU {} lets out", bound.senders.front());
    return receivers.size() < bound.senders.size()
               ? format("GPUs {} together take in", ranges(receivers))
               : format("GPUs {} together let out", ranges(bound.senders));
  }

  void add_network() {
    const NodeTemplate& node = cluster_.node;
    if (node.nics == 0) {
      line("network", "no NICs");
      return;
    }
    line("network", format("{} of {} NICs used, {} GB/s each, {:.3g} usable: {} GB/s per GPU",
                           summary_.used_nics, node.nics, gb(node.nic_bandwidth),
                           node.nic_efficiency, gb(summary_.network_per_gpu)));
  }

  void add_fabric(const FabricSummary& fabric) {
    if (fabric.kind == FabricKind::Switch) {
      line("fabric", format("{} nodes on one switch that is no bottleneck", cluster_.nodes));
      return;
    }
    line("fabric", format("{} nodes on a {} network: {}", cluster_.nodes, to_string(fabric.kind),
                          switches(fabric)));
    for (const FabricLevel& level : fabric.levels) {
      line("", format("{}: {} x {} GB/s", level.name, level.count, gb(level.capacity)));
    }
    line("", fabric_bisection(fabric));
  }

  [[nodiscard]] static std::string switches(const FabricSummary& fabric) {
    const FabricCounts& counts = fabric.counts;
    std::vector<std::string> parts;
    const auto add = [&](std::int64_t number, const char* what) {
      if (number > 0) parts.push_back(format("{} {}", grouped(number), what));
    };
    const bool tree = fabric.kind != FabricKind::Dragonfly && fabric.kind != FabricKind::Torus;
    add(counts.leaves, tree ? "leaves" : "switches");
    add(counts.spines, "spines");
    add(counts.cores, "cores");
    return parts.empty() ? "no switches" : join(parts, ", ");
  }

  [[nodiscard]] std::string fabric_bisection(const FabricSummary& fabric) const {
    if (!fabric.bisection) return "bisection: not asked, the fabric is too large to draw";
    const int half = cluster_.nodes / 2;
    return format(
        "bisection: {} GB/s one way between the first {} nodes and the last, {:.0f} % of what "
        "their NICs send",
        gb(*fabric.bisection), half,
        100 * fabric.bisection->per_second() / fabric.half_nics.per_second());
  }

  void add_unevenness() {
    const Perturbations& uneven = cluster_.perturbations;
    const std::size_t entries = uneven.gpus.size() + uneven.links.size() + uneven.jobs.size();
    if (entries == 0) return;
    line("uneven", format("{} perturbation(s), not in these figures; --classes shows what they set "
                          "apart",
                          entries));
  }

  void add_host() {
    const NodeTemplate& node = cluster_.node;
    const BytesPerSecond all = link_capacity(cluster_, LinkClass::Kind::HostToDevice);
    std::string text = format("{} GB/s to one GPU", gb(node.host_link));
    if (all < node.host_link) text += format(", {} each when all copy", gb(all));
    if (node.host_cores > 0) text += format("; {} cores", node.host_cores);
    if (node.host_memory > Bytes()) {
      text += format("; {:.0f} GiB", node.host_memory.gib());
    }
    if (node.host_memory_bandwidth.per_second() > 0) {
      text += format("; memory {} GB/s", gb(node.host_memory_bandwidth));
    }
    line("host", text);
  }

  const Cluster& cluster_;
  const TopologySummary& summary_;
  std::string out_;
};

// ---- JSON -----------------------------------------------------------------------------------

const char* json_word(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::Gpu:
      return "gpu";
    case DeviceKind::NvSwitch:
      return "nvswitch";
    case DeviceKind::PcieSwitch:
      return "pcie_switch";
    case DeviceKind::Cpu:
      return "cpu";
    case DeviceKind::Nic:
      return "nic";
  }
  return "";
}

const char* json_word(LinkKind kind) {
  switch (kind) {
    case LinkKind::NvLink:
      return "nvlink";
    case LinkKind::Pcie:
      return "pcie";
    case LinkKind::CpuInterconnect:
      return "cpu_interconnect";
    case LinkKind::Network:
      return "network";
    case LinkKind::C2c:
      return "c2c";
  }
  return "";
}

std::string device_name(const Device& device) {
  return format("{}{}", json_word(device.kind), device.index);
}

JsonValue devices_json(const Cluster& cluster) {
  const NodeGraph& graph = cluster.node.graph;
  JsonValue list(Json::arrayValue);
  for (const Vertex v : boost::make_iterator_range(boost::vertices(graph))) {
    const Device& device = graph[v];
    JsonValue entry(Json::objectValue);
    entry["name"] = device_name(device);
    entry["kind"] = json_word(device.kind);
    entry["numa"] = device.numa;
    if (device.kind == DeviceKind::Gpu) entry["used"] = device.index < cluster.gpus_per_node;
    if (device.kind == DeviceKind::Nic) entry["port"] = device.port.per_second();
    list.append(std::move(entry));
  }
  return list;
}

JsonValue links_json(const NodeGraph& graph) {
  JsonValue list(Json::arrayValue);
  for (const Edge& edge : links_of(graph)) {
    JsonValue entry(Json::objectValue);
    entry["from"] = device_name(graph[boost::source(edge, graph)]);
    entry["to"] = device_name(graph[boost::target(edge, graph)]);
    entry["kind"] = json_word(graph[edge].kind);
    entry["bandwidth"] = graph[edge].bandwidth.per_second();
    list.append(std::move(entry));
  }
  return list;
}

JsonValue numbers(const std::vector<int>& values) {
  JsonValue list(Json::arrayValue);
  for (const int value : values) list.append(value);
  return list;
}

JsonValue fabric_json(const FabricSummary& fabric) {
  JsonValue json(Json::objectValue);
  json["kind"] = std::string(to_string(fabric.kind));
  json["leaves"] = Json::Int64{fabric.counts.leaves};
  json["spines"] = Json::Int64{fabric.counts.spines};
  json["cores"] = Json::Int64{fabric.counts.cores};
  JsonValue& levels = json["levels"] = JsonValue(Json::arrayValue);
  for (const FabricLevel& level : fabric.levels) {
    JsonValue entry(Json::objectValue);
    entry["name"] = level.name;
    entry["links"] = level.count;
    entry["bandwidth"] = level.capacity.per_second();
    levels.append(std::move(entry));
  }
  if (fabric.bisection) json["bisection"] = fabric.bisection->per_second();
  json["half_nics"] = fabric.half_nics.per_second();
  return json;
}

JsonValue summary_json(const TopologySummary& summary) {
  JsonValue json(Json::objectValue);
  json["gpus"] = summary.gpus;
  json["used_nics"] = summary.used_nics;
  json["network_per_gpu"] = summary.network_per_gpu.per_second();
  if (summary.fabric) json["fabric"] = fabric_json(*summary.fabric);
  if (summary.gpus < 2) return json;
  json["links"] = summary.links == FlowLinks::NvLink ? "nvlink" : "all";
  json["narrowest_path"] = summary.narrowest_path.per_second();
  json["widest_path"] = summary.widest_path.per_second();
  if (summary.bisection) {
    json["bisection"]["bandwidth"] = summary.bisection->bandwidth.per_second();
    json["bisection"]["half"] = numbers(summary.bisection->half);
    json["bisection"]["every_half_tried"] = summary.bisection->every_half;
  }
  if (summary.all_gather) {
    json["all_gather_bound"]["received_per_gpu"] = summary.all_gather->received.per_second();
    json["all_gather_bound"]["senders"] = numbers(summary.all_gather->senders);
    json["all_gather_bound"]["outflow"] = summary.all_gather->outflow.per_second();
  }
  if (summary.rings) json["nccl_rings"] = summary.rings->per_second();
  return json;
}

}  // namespace

std::string topology_tree(const Cluster& cluster) {
  return Tree(cluster).text() + cpu_links(cluster.node.graph) + gpu_links(cluster);
}

std::string topology_matrix(const Cluster& cluster) {
  const std::vector<Column> columns = matrix_columns(cluster);
  const auto kind = [&](int gpu, const Column& to) { return path_word(cluster, gpu, to); };
  const auto rate = [&](int gpu, const Column& to) { return path_rate(cluster, gpu, to); };
  return matrix(cluster, columns, kind) + legend(cluster) +
         "\nGB/s of these paths, narrowest link, one way\n" + matrix(cluster, columns, rate);
}

std::string topology_summary(const Cluster& cluster, const TopologySummary& summary) {
  return Summary(cluster, summary).text();
}

JsonValue topology_json(const Cluster& cluster, const TopologySummary& summary) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["name"] = cluster.name;
  json["gpu"] = cluster.node.gpu;
  json["nodes"] = cluster.nodes;
  json["gpus_per_node"] = cluster.gpus_per_node;
  json["nvlink_domain_nodes"] = cluster.fabric.nvlink_domain_nodes;
  json["node"]["devices"] = devices_json(cluster);
  json["node"]["links"] = links_json(cluster.node.graph);
  json["summary"] = summary_json(summary);
  JsonValue& assumptions = json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& sentence : cluster.assumptions) assumptions.append(sentence);
  return json;
}

}  // namespace zerosim
