#include "topology/node_graph.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/connected_components.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/range/iterator_range.hpp>

#include "sim/base/error.h"

namespace zerosim {
namespace {

using Vertex = DeviceId;
using Edge = LinkId;

// Latencies of one hop, typical microbenchmark values (spec/topologies.md section 1).
constexpr Seconds kNvLinkLatency{1.0e-6};
constexpr Seconds kPcieLatency{0.5e-6};
constexpr Seconds kC2cLatency{0.5e-6};
constexpr Seconds kSocketLatency{0.2e-6};

/// Which of `parts` equal parts, dealt out in order, item `i` of `count` belongs to.
int part_of(int i, int count, int parts) {
  ZS_CHECK(count > 0, "a part of nothing");
  return static_cast<int>(static_cast<std::int64_t>(i) * parts / count);
}

class Builder {
 public:
  explicit Builder(const NodeShape& shape) : shape_(shape) {}

  NodeGraph build() {
    add_cpus();
    add_pcie_switches();
    add_gpus();
    add_nics();
    add_nvlinks();
    return graph_;
  }

 private:
  Vertex add(DeviceKind kind, int index, int numa) {
    return boost::add_vertex(Device{kind, index, numa}, graph_);
  }
  void link(Vertex a, Vertex b, LinkKind kind, BytesPerSecond bandwidth, Seconds latency) {
    boost::add_edge(a, b, Link{kind, bandwidth, latency}, graph_);
  }
  void link_pcie(Vertex a, Vertex b, BytesPerSecond rate) {
    link(a, b, LinkKind::Pcie, rate, kPcieLatency);
  }
  /// Of item `i`: what `rates` says, if it says anything.
  static BytesPerSecond rate(const std::vector<BytesPerSecond>& rates, int i,
                             BytesPerSecond alike) {
    if (rates.empty()) return alike;
    const auto at = static_cast<std::size_t>(i);
    ZS_CHECK(at < rates.size(), "a rate for every link");
    return rates[at];
  }

  [[nodiscard]] int numa_node(int host_part, int cpu) const {
    const auto index = static_cast<std::size_t>(host_part);
    return index < shape_.numa_nodes.size() ? shape_.numa_nodes[index] : cpu;
  }

  [[nodiscard]] int cpu_numa(int cpu) const {
    const auto at = static_cast<std::size_t>(cpu);
    if (at < shape_.cpu_numa.size()) return shape_.cpu_numa[at];
    return switches() > 0 ? cpu : numa_node(cpu, cpu);
  }

  void add_cpus() {
    for (int i = 0; i < shape_.sockets; ++i) {
      cpus_.push_back(add(DeviceKind::Cpu, i, cpu_numa(i)));
      for (int j = 0; j < i; ++j) {
        link(cpus_[static_cast<std::size_t>(j)], cpus_.back(), LinkKind::CpuInterconnect,
             shape_.socket_link, kSocketLatency);
      }
    }
  }

  [[nodiscard]] int switches() const {
    if (!shape_.switch_parents.empty()) return static_cast<int>(shape_.switch_parents.size());
    const int per = shape_.gpus_per_pcie_switch;
    return per == 0 ? 0 : (shape_.gpus + per - 1) / per;
  }

  void add_pcie_switches() {
    for (int i = 0; i < switches(); ++i) {
      const HostParent evenly{DeviceKind::Cpu, part_of(i, switches(), shape_.sockets)};
      const Vertex above = parent(shape_.switch_parents, i, evenly);
      switches_.push_back(add(DeviceKind::PcieSwitch, i, numa_node(i, graph_[above].numa)));
      link_pcie(switches_.back(), above, rate(shape_.switch_links, i, shape_.pcie));
    }
  }

  /// Of item `i`: what `parents` says, if it says anything.
  [[nodiscard]] Vertex parent(const std::vector<HostParent>& parents, int i,
                              const HostParent& evenly) const {
    const auto at = static_cast<std::size_t>(i);
    ZS_CHECK(parents.empty() || at < parents.size(), "a parent for every device");
    const HostParent& place = parents.empty() ? evenly : parents[at];
    const std::vector<Vertex>& kind = place.kind == DeviceKind::Cpu   ? cpus_
                                      : place.kind == DeviceKind::Gpu ? gpus_
                                                                      : switches_;
    ZS_CHECK(static_cast<std::size_t>(place.index) < kind.size(), "a parent that is there");
    return kind[static_cast<std::size_t>(place.index)];
  }

  void add_gpus() {
    for (int i = 0; i < shape_.gpus; ++i) {
      gpus_.push_back(add_below_host(DeviceKind::Gpu, i, shape_.gpus, shape_.gpu_parents,
                                     rate(shape_.gpu_links, i, shape_.pcie)));
    }
  }
  void add_nics() {
    for (int i = 0; i < shape_.nics; ++i) {
      // A slot that nobody describes is as fast as what is in it.
      const BytesPerSecond port = rate(shape_.nic_ports, i, {});
      const BytesPerSecond slot = rate(shape_.nic_links, i, std::max(shape_.pcie, port));
      const Vertex nic = add_below_host(DeviceKind::Nic, i, shape_.nics, shape_.nic_parents, slot);
      graph_[nic].port = port;
    }
  }
  Vertex add_below_host(DeviceKind kind, int index, int count,
                        const std::vector<HostParent>& parents, BytesPerSecond upward) {
    const bool on_switches = !switches_.empty();
    const int parts = static_cast<int>(on_switches ? switches_.size() : cpus_.size());
    const HostParent evenly{on_switches ? DeviceKind::PcieSwitch : DeviceKind::Cpu,
                            part_of(index, count, parts)};
    const Vertex above = parent(parents, index, evenly);
    const Vertex device = add(kind, index, graph_[above].numa);
    if (kind == DeviceKind::Gpu && shape_.c2c.per_second() > 0) {
      link(device, above, LinkKind::C2c, shape_.c2c, kC2cLatency);
    } else {
      link_pcie(device, above, upward);
    }
    return device;
  }

  void add_nvswitch() {
    if (shape_.nvswitch.per_second() <= 0) return;
    const Vertex nvswitch = add(DeviceKind::NvSwitch, 0, 0);
    for (int i = 0; i < shape_.gpus; ++i) {
      const BytesPerSecond into = rate(shape_.nvswitch_links, i, shape_.nvswitch);
      if (into.per_second() <= 0) continue;
      link(gpus_[static_cast<std::size_t>(i)], nvswitch, LinkKind::NvLink, into, kNvLinkLatency);
    }
  }

  void add_nvlinks() {
    add_nvswitch();
    for (const NvLinkPair& pair : shape_.mesh) {
      link(gpus_[static_cast<std::size_t>(pair.a)], gpus_[static_cast<std::size_t>(pair.b)],
           LinkKind::NvLink, BytesPerSecond(pair.links * shape_.nvlink.per_second()),
           kNvLinkLatency);
    }
  }

  const NodeShape& shape_;
  NodeGraph graph_;
  std::vector<Vertex> cpus_, switches_, gpus_;
};

std::optional<Vertex> find_device(const NodeGraph& graph, DeviceKind kind, int index) {
  for (const Vertex v : boost::make_iterator_range(boost::vertices(graph))) {
    if (graph[v].kind == kind && graph[v].index == index) return v;
  }
  return std::nullopt;
}

Vertex device(const NodeGraph& graph, DeviceKind kind, int index) {
  const std::optional<Vertex> found = find_device(graph, kind, index);
  ZS_CHECK(found.has_value(), "no such device in the node");
  return *found;
}

/// The host side of the node: all links but NVLink.
struct IsHostLink {
  const NodeGraph* graph = nullptr;
  bool operator()(const Edge& edge) const { return (*graph)[edge].kind != LinkKind::NvLink; }
};

/// Devices from `from` to `to` over PCIe and CPUs, both ends included; the shortest such path.
std::vector<Vertex> host_path(const NodeGraph& graph, Vertex from, Vertex to) {
  const boost::filtered_graph<NodeGraph, IsHostLink> host(graph, IsHostLink{&graph});
  std::vector<Vertex> before(boost::num_vertices(graph));
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = i;
  boost::breadth_first_search(host, from,
                              boost::visitor(boost::make_bfs_visitor(boost::record_predecessors(
                                  before.data(), boost::on_tree_edge()))));
  if (from != to && before[to] == to) return {};
  std::vector<Vertex> path{to};
  while (path.back() != from) path.push_back(before[path.back()]);
  std::reverse(path.begin(), path.end());
  return path;
}

PathKind host_path_kind(const NodeGraph& graph, Vertex from, Vertex to) {
  const std::vector<Vertex> path = host_path(graph, from, to);
  if (path.empty()) return PathKind::None;
  const auto count = [&](DeviceKind kind) {
    return std::count_if(path.begin(), path.end(), [&](Vertex v) { return graph[v].kind == kind; });
  };
  if (count(DeviceKind::Cpu) > 1) return PathKind::System;
  if (count(DeviceKind::Cpu) == 1) return PathKind::HostBridge;
  return count(DeviceKind::PcieSwitch) > 1 ? PathKind::PcieSwitches : PathKind::PcieSwitch;
}

/// The link of a device towards its CPU. The host side is a tree below each CPU whose parents were
/// added before their children.
std::optional<Edge> link_up(const NodeGraph& graph, Vertex v) {
  std::optional<Edge> up;
  for (const Edge& edge : links_of(graph, v)) {
    const bool to_host = graph[edge].kind == LinkKind::Pcie || graph[edge].kind == LinkKind::C2c;
    if (to_host && boost::target(edge, graph) < v) up = edge;
  }
  return up;
}

/// The links from a device to its CPU, its own first.
std::vector<Edge> links_up(const NodeGraph& graph, Vertex v) {
  std::vector<Edge> way;
  while (graph[v].kind != DeviceKind::Cpu) {
    const std::optional<Edge> up = link_up(graph, v);
    ZS_CHECK(up.has_value(), "a device without a way to a CPU");
    way.push_back(*up);
    v = boost::target(*up, graph);
  }
  return way;
}

std::set<Vertex> nvlink_neighbours(const NodeGraph& graph, Vertex v) {
  std::set<Vertex> neighbours;
  for (const Edge& edge : links_of(graph, v)) {
    if (graph[edge].kind == LinkKind::NvLink) neighbours.insert(boost::target(edge, graph));
  }
  return neighbours;
}

/// Sum of the NVLinks that join two devices, one direction.
BytesPerSecond nvlink_between(const NodeGraph& graph, Vertex a, Vertex b) {
  double sum = 0;
  for (const Edge& edge : links_of(graph, a)) {
    const bool joins = boost::target(edge, graph) == b && graph[edge].kind == LinkKind::NvLink;
    if (joins) sum += graph[edge].bandwidth.per_second();
  }
  return BytesPerSecond(sum);
}

/// The narrowest link of `host_path`; 0 where there is no such path.
BytesPerSecond narrowest_host_link(const NodeGraph& graph, Vertex from, Vertex to) {
  const std::vector<Vertex> path = host_path(graph, from, to);
  if (path.size() < 2) return {};
  BytesPerSecond narrowest(std::numeric_limits<double>::infinity());
  for (std::size_t i = 1; i < path.size(); ++i) {
    for (const Edge& edge : links_of(graph, path[i])) {
      const bool on_path = boost::target(edge, graph) == path[i - 1] && IsHostLink{&graph}(edge);
      if (on_path) narrowest = std::min(narrowest, graph[edge].bandwidth);
    }
  }
  return narrowest;
}

/// Whether a GPU drives a NIC as if they stood side by side: below one PCIe switch or several; or,
/// with C2C, behind the same CPU (NCCL's P2C path).
bool is_near(const NodeGraph& graph, int gpu, int nic) {
  const PathKind path = nic_path(graph, gpu, nic);
  if (path < PathKind::HostBridge) return true;
  const auto links = links_of(graph, device(graph, DeviceKind::Gpu, gpu));
  const bool c2c = std::any_of(links.begin(), links.end(),
                               [&](const Edge& edge) { return graph[edge].kind == LinkKind::C2c; });
  return c2c && path == PathKind::HostBridge;
}

std::vector<int> near_nics(const NodeGraph& graph, int gpus) {
  std::vector<int> all, near;
  for (int nic = 0; find_device(graph, DeviceKind::Nic, nic); ++nic) {
    if (graph[device(graph, DeviceKind::Nic, nic)].off) continue;
    all.push_back(nic);
    bool found = false;
    for (int gpu = 0; gpu < gpus && !found; ++gpu) found = is_near(graph, gpu, nic);
    if (found) near.push_back(nic);
  }
  return near.empty() ? all : near;
}

BytesPerSecond nic_speed(const NodeGraph& graph, int nic) {
  const Vertex v = device(graph, DeviceKind::Nic, nic);
  const BytesPerSecond port = graph[v].port;
  const BytesPerSecond slot = graph[links_up(graph, v).front()].bandwidth;
  return port.per_second() > 0 ? std::min(port, slot) : slot;
}

double total(const UsedNics& used) {
  return static_cast<double>(used.nics.size()) * used.bandwidth.per_second();
}

using LinkCounts = std::array<std::array<int, kMaxMeshGpus>, kMaxMeshGpus>;

/// Exhaustive search for edge-disjoint Hamiltonian cycles; each begins at GPU 0.
class CycleSearch {
 public:
  CycleSearch(const LinkCounts& links, int gpus) : links_(links), gpus_(gpus) {}

  int most_cycles() {
    bound_ = degree_bound();
    extend(0, 1U, 1);
    return best_;
  }

 private:
  /// A cycle takes two links of every GPU.
  [[nodiscard]] int degree_bound() const {
    int bound = 1 << 20;
    for (int a = 0; a < gpus_; ++a) {
      int degree = 0;
      for (int b = 0; b < gpus_; ++b) degree += at(a, b);
      bound = std::min(bound, degree / 2);
    }
    return bound;
  }

  [[nodiscard]] int at(int a, int b) const {
    return links_[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
  }
  void change(int a, int b, int by) {
    links_[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] += by;
    links_[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] += by;
  }

  /// Continues the open path that ends at `last` and has visited `visited`.
  void extend(int last, unsigned visited, int length) {
    if (best_ == bound_ || ++steps_ > kMostSteps) return;
    if (length == gpus_) {
      if (at(last, 0) > 0) close(last);
      return;
    }
    for (int next = 1; next < gpus_; ++next) {
      if ((visited >> next & 1U) != 0 || at(last, next) == 0) continue;
      change(last, next, -1);
      extend(next, visited | 1U << next, length + 1);
      change(last, next, +1);
    }
  }

  void close(int last) {
    change(last, 0, -1);
    best_ = std::max(best_, ++cycles_);
    // Only worth going on while every GPU keeps links for more cycles than the best known.
    if (cycles_ + degree_bound() > best_) extend(0, 1U, 1);
    --cycles_;
    change(last, 0, +1);
  }

  static constexpr int kMostSteps = 1'000'000;
  LinkCounts links_;
  int gpus_;
  int steps_ = 0;
  int bound_ = 0;
  int cycles_ = 0;
  int best_ = 0;
};

/// Links of a pair where all pairs have as many.
std::optional<int> equal_links(const LinkCounts& links, int gpus) {
  for (int a = 0; a < gpus; ++a) {
    for (int b = 0; b < gpus; ++b) {
      const int count = links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
      if (a != b && count != links[0][1]) return std::nullopt;
    }
  }
  return links[0][1];
}

}  // namespace

NodeGraph build_node_graph(const NodeShape& shape) {
  return Builder(shape).build();
}

std::vector<DeviceId> devices_of(const NodeGraph& graph, DeviceKind kind) {
  std::vector<DeviceId> found;
  for (const DeviceId device : boost::make_iterator_range(boost::vertices(graph))) {
    if (graph[device].kind == kind) found.push_back(device);
  }
  return found;
}

std::vector<NvLinkPair> full_mesh(int gpus, int links_per_gpu) {
  std::vector<NvLinkPair> mesh;
  const int links = gpus > 1 ? links_per_gpu / (gpus - 1) : 0;
  if (links == 0) return mesh;
  for (int a = 0; a < gpus; ++a) {
    for (int b = a + 1; b < gpus; ++b) mesh.push_back({a, b, links});
  }
  return mesh;
}

bool is_connected(const NodeGraph& graph) {
  std::vector<int> component(boost::num_vertices(graph));
  boost::connected_components(graph, component.data());
  std::set<int> with_gpu, with_nic;
  for (const Vertex v : boost::make_iterator_range(boost::vertices(graph))) {
    if (graph[v].kind == DeviceKind::Gpu) with_gpu.insert(component[v]);
    if (graph[v].kind == DeviceKind::Nic) with_nic.insert(component[v]);
  }
  if (with_gpu.size() != 1) return false;
  return with_nic.empty() || with_nic.count(*with_gpu.begin()) == 1;
}

PathKind gpu_path(const NodeGraph& graph, int gpu_a, int gpu_b) {
  const Vertex a = device(graph, DeviceKind::Gpu, gpu_a);
  const Vertex b = device(graph, DeviceKind::Gpu, gpu_b);
  const std::set<Vertex> near_a = nvlink_neighbours(graph, a);
  if (near_a.count(b) > 0) return PathKind::NvLink;
  bool by_gpu = false;
  for (const Vertex v : nvlink_neighbours(graph, b)) {
    if (near_a.count(v) == 0) continue;
    if (graph[v].kind == DeviceKind::NvSwitch) return PathKind::NvSwitch;
    by_gpu = true;
  }
  return by_gpu ? PathKind::NvLinkViaGpu : host_path_kind(graph, a, b);
}

PathKind nic_path(const NodeGraph& graph, int gpu, int nic) {
  return host_path_kind(graph, device(graph, DeviceKind::Gpu, gpu),
                        device(graph, DeviceKind::Nic, nic));
}

PathKind gpu_host_path(const NodeGraph& graph, int gpu_a, int gpu_b) {
  return host_path_kind(graph, device(graph, DeviceKind::Gpu, gpu_a),
                        device(graph, DeviceKind::Gpu, gpu_b));
}

bool is_on_nvswitch(const NodeGraph& graph, int gpu) {
  const std::set<Vertex> neighbours = nvlink_neighbours(graph, device(graph, DeviceKind::Gpu, gpu));
  return std::any_of(neighbours.begin(), neighbours.end(),
                     [&](Vertex v) { return graph[v].kind == DeviceKind::NvSwitch; });
}

BytesPerSecond nvlink_bandwidth(const NodeGraph& graph, int gpu) {
  double sum = 0;
  for (const Edge& edge : links_of(graph, device(graph, DeviceKind::Gpu, gpu))) {
    if (graph[edge].kind == LinkKind::NvLink) sum += graph[edge].bandwidth.per_second();
  }
  return BytesPerSecond(sum);
}

BytesPerSecond nvlink_pair_bandwidth(const NodeGraph& graph, int gpu_a, int gpu_b) {
  return nvlink_between(graph, device(graph, DeviceKind::Gpu, gpu_a),
                        device(graph, DeviceKind::Gpu, gpu_b));
}

BytesPerSecond gpu_path_bandwidth(const NodeGraph& graph, int gpu_a, int gpu_b) {
  const Vertex a = device(graph, DeviceKind::Gpu, gpu_a);
  const Vertex b = device(graph, DeviceKind::Gpu, gpu_b);
  const PathKind kind = gpu_path(graph, gpu_a, gpu_b);
  if (kind == PathKind::NvLink) return nvlink_between(graph, a, b);
  if (kind == PathKind::NvSwitch || kind == PathKind::NvLinkViaGpu) {
    BytesPerSecond widest;
    for (const Vertex middle : nvlink_neighbours(graph, a)) {
      widest = std::max(
          widest, std::min(nvlink_between(graph, a, middle), nvlink_between(graph, middle, b)));
    }
    return widest;
  }
  return narrowest_host_link(graph, a, b);
}

BytesPerSecond nic_path_bandwidth(const NodeGraph& graph, int gpu, int nic) {
  return narrowest_host_link(graph, device(graph, DeviceKind::Gpu, gpu),
                             device(graph, DeviceKind::Nic, nic));
}

UsedNics used_nics(const NodeGraph& graph, int gpus) {
  const std::vector<int> near = near_nics(graph, gpus);
  std::vector<BytesPerSecond> speeds;
  speeds.reserve(near.size());
  for (const int nic : near) speeds.push_back(nic_speed(graph, nic));
  UsedNics best;
  for (const BytesPerSecond speed : speeds) {
    UsedNics candidate{{}, speed};
    for (std::size_t i = 0; i < near.size(); ++i) {
      if (speeds[i] >= speed) candidate.nics.push_back(near[i]);
    }
    if (total(candidate) > total(best)) best = candidate;
  }
  return best;
}

int reachable_nics(const NodeGraph& graph, int gpus) {
  return static_cast<int>(used_nics(graph, gpus).nics.size());
}

HostLink host_link(const NodeGraph& graph, DeviceKind kind, int index) {
  const Edge up = links_up(graph, device(graph, kind, index)).front();
  const Device& above = graph[boost::target(up, graph)];
  return {{above.kind, above.index}, graph[up].bandwidth};
}

BytesPerSecond host_path_bandwidth(const NodeGraph& graph, int gpu) {
  BytesPerSecond narrowest(std::numeric_limits<double>::infinity());
  for (const Edge& edge : links_up(graph, device(graph, DeviceKind::Gpu, gpu))) {
    narrowest = std::min(narrowest, graph[edge].bandwidth);
  }
  return narrowest;
}

BytesPerSecond slowest_host_path(const NodeGraph& graph, int gpus) {
  BytesPerSecond slowest = host_path_bandwidth(graph, 0);
  for (int gpu = 1; gpu < gpus; ++gpu) {
    slowest = std::min(slowest, host_path_bandwidth(graph, gpu));
  }
  return slowest;
}

std::vector<int> switches_above(const NodeGraph& graph, DeviceKind kind, int index) {
  std::vector<int> switches;
  for (const Edge& edge : links_up(graph, device(graph, kind, index))) {
    // Parents were added before their children.
    const Device& above = graph[std::min(boost::source(edge, graph), boost::target(edge, graph))];
    if (above.kind == DeviceKind::PcieSwitch) switches.push_back(above.index);
  }
  return switches;
}

int gpus_per_host_link(const NodeGraph& graph, int gpus) {
  std::map<int, int> users;  // of a switch's uplink
  int most = 1;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    for (const int above : switches_above(graph, DeviceKind::Gpu, gpu)) {
      most = std::max(most, ++users[above]);
    }
  }
  return most;
}

int mesh_rings(std::span<const NvLinkPair> mesh, int gpus) {
  ZS_CHECK(gpus <= kMaxMeshGpus, "a mesh of more GPUs than the ring search takes");
  LinkCounts links{};
  for (const NvLinkPair& pair : mesh) {
    if (pair.a >= gpus || pair.b >= gpus) continue;
    links[static_cast<std::size_t>(pair.a)][static_cast<std::size_t>(pair.b)] += pair.links;
    links[static_cast<std::size_t>(pair.b)][static_cast<std::size_t>(pair.a)] += pair.links;
  }
  if (gpus < 2) return 0;
  if (gpus == 2) return links[0][1];
  if (const std::optional<int> each = equal_links(links, gpus)) return 2 * (*each * (gpus - 1) / 2);
  return 2 * CycleSearch(links, gpus).most_cycles();
}

}  // namespace zerosim
