#include "topology/nccl_graph.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "sim/base/error.h"

namespace zerosim {
namespace {

/// A number of channels of one speed.
struct Channels {
  int count = 0;
  double gbps = 0;
  [[nodiscard]] double bus() const { return count * gbps; }
};

bool is_hopper_or_newer(const GpuSpec& gpu) {
  return gpu.compute_capability >= 90;
}
bool is_blackwell_or_newer(const GpuSpec& gpu) {
  return gpu.compute_capability >= 100;
}

// Menus of per-channel speeds, GB/s: NCCL's src/graph/search.cc, as spec/nccl_cost.md section 3 has
// them.
constexpr std::array kIntraMenu = {40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0,
                                   9.0,  7.0,  6.0,  5.0,  4.0,  3.0};
constexpr std::array kIntraMenuHopper = {60.0, 50.0, 40.0, 30.0, 24.0, 20.0,
                                         15.0, 12.0, 11.0, 6.0,  3.0};
constexpr std::array kIntraMenuBlackwell = {90.0, 80.0, 70.0, 60.0, 50.0, 45.0,
                                            40.0, 30.0, 24.0, 20.0, 19.0, 18.0};
constexpr std::array kInterMenu = {48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0,
                                   7.0,  6.0,  5.0,  4.0,  3.0,  2.4,  1.2,  .24,  .12};
constexpr std::array kInterMenuHopper = {48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5,
                                         15.0, 12.0, 6.0,  3.0,  2.4,  1.2,  .24,  .12};
constexpr std::array kInterMenuBlackwell = {96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0,
                                            30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0,
                                            6.0,  3.0,  2.4,  1.2,  .24,  .12};

std::span<const double> intra_menu(const GpuSpec& gpu) {
  if (is_blackwell_or_newer(gpu)) return kIntraMenuBlackwell;
  if (is_hopper_or_newer(gpu)) return kIntraMenuHopper;
  return kIntraMenu;
}

std::span<const double> inter_menu(const GpuSpec& gpu) {
  if (is_blackwell_or_newer(gpu)) return kInterMenuBlackwell;
  if (is_hopper_or_newer(gpu)) return kInterMenuHopper;
  return kInterMenu;
}

/// The fastest entry of `menu` that `limit` carries; `limit` itself below the slowest.
double menu_speed(std::span<const double> menu, double limit) {
  const double tolerance = 1e-9 * limit;
  for (const double speed : menu) {
    if (speed <= limit + tolerance) return speed;
  }
  return limit;
}

/// The largest channels x speed within `total`; the faster channel where two are equal. The search
/// gives up at speeds below half of the fastest that fits (0.49 in NCCL's search.cc).
Channels best_channels(std::span<const double> menu, double total) {
  const double fastest = menu_speed(menu, total);
  Channels best{1, fastest};
  for (const double speed : menu) {
    if (speed > fastest || speed < 0.49 * fastest) continue;
    const Channels candidate{static_cast<int>(total / speed + 1e-9), speed};
    if (candidate.bus() > best.bus() + 1e-9) best = candidate;
  }
  return best;
}

/// Fast channels become two of half the speed (nccl_cost.md section 3).
Channels duplicated(Channels channels, const GpuSpec& gpu) {
  const bool kept = is_hopper_or_newer(gpu) && channels.gbps < 50 && channels.count > 4;
  if (channels.gbps < 25 || kept) return channels;
  return {2 * channels.count, channels.gbps / 2};
}

/// NCCL's GB/s of one NVLink (nccl_cost.md section 3).
double nccl_link_gbps(const GpuSpec& gpu) {
  if (is_blackwell_or_newer(gpu)) return 40.1;
  if (is_hopper_or_newer(gpu)) return 20.6;
  return gpu.compute_capability == 86 ? 12 : 20;
}

/// NCCL's GB/s of the PCIe x16 slot that peaks at `peak`: 12 of 15.75, 24 of 31.5, 48 of 63, 96 of
/// 121.
double nccl_pcie_gbps(BytesPerSecond peak) {
  constexpr double kGen4 = 31.5;
  return 24 * peak.gb_per_second() / kGen4;
}

/// NCCL's idea of rings through host memory as a share of its PCIe figure: 14.5 to 16 GB/s on PCIe
/// 4 (nccl_cost.md 7.2).
constexpr double kHostStagedShare = 15.0 / 24;

/// What large rings through host memory reach of that, by the card's generation: 4.9 GB/s on PCIe 3
/// and 15 on PCIe 4 (nccl_cost.md 7.1, 7.2), 27.3 on PCIe 5 (rtx5090_4gpu_pcie5_allreduce). A newer
/// card in an old slot counts as newer: 15.75 GB/s are also half of a slot of PCIe 4.
double host_staged_efficiency(const GpuSpec& gpu) {
  if (gpu.pcie_generation <= 3) return 4.9 / 7.5;
  return gpu.pcie_generation == 4 ? 1 : 27.3 / 30;
}

/// What NVLS heads may take of a GPU's NVLinks: 8 x 40 of 371 GB/s on H100, 8 x 80 of 722 on B200
/// (nccl_cost.md section 3).
constexpr double kNvlsShare = 0.9;

/// GB/s of one NVLS head between nodes (8 x 48 in the same table), where the NICs allow it.
constexpr double kMaxInterHead = 48;

Channels intra_channels(IntraNode intra, const NodeShape& shape, const GpuSpec& gpu, int gpus) {
  switch (intra) {
    case IntraNode::NvSwitch:
      return duplicated(best_channels(intra_menu(gpu), nccl_nvlink_gbps(gpu, shape.nvswitch)), gpu);
    case IntraNode::NvLinkMesh: {
      const int rings = mesh_rings(shape.mesh, gpus);
      const double share =
          shape.nvlink.gb_per_second() * gpu.nvlink_links / gpu.nvlink.gb_per_second();
      return {rings, nccl_link_gbps(gpu) * share};
    }
    case IntraNode::Pcie:
      return {2, nccl_pcie_gbps(shape.pcie) / 2};
    case IntraNode::PcieHostStaged:
      return {2, kHostStagedShare * nccl_pcie_gbps(shape.pcie) / 2};
  }
  return {};
}

/// nccl_cost.md section 7.1 (ii), one node, by generation of the links. PCIe has 0.3 there, and 0
/// in the logs of RTX 2080 Ti, 3090, 4090 and 5090: large sizes are on a plain line.
double class_kappa(IntraNode intra, const GpuSpec& gpu) {
  if (!has_nvlink(intra)) return 0;
  if (is_blackwell_or_newer(gpu)) return 0.5;
  if (is_hopper_or_newer(gpu)) return 0.1;
  return gpu.compute_capability >= 80 ? 1.0 : 0.6;
}

/// busbw of large rings over channels x speed (nccl_cost.md sections 3 and 7.2): V100 reaches 130
/// where NCCL counts 6 x 20; A100 (230 to 235 of 240) and newer reach about what NCCL counts.
double nvlink_ring_efficiency(const GpuSpec& gpu) {
  return gpu.compute_capability < 80 ? 130.0 / 120 : 1;
}

/// Where rings are found NCCL raises the speed of trees inside the nodes along the menu, until it
/// is twice that between them (src/graph/search.cc; it matters on two nodes).
double tree_speed(std::span<const double> menu, double between, double inside) {
  double speed = between;
  const std::vector<double> rising(menu.rbegin(), menu.rend());
  for (const double entry : rising) {
    if (entry <= speed) continue;
    if (entry > inside || speed >= 2 * between) break;
    speed = entry;
  }
  return speed;
}

int channel_ctas(int graph_channels) {
  return std::min(kMaxNcclChannels, 2 * graph_channels);
}

bool all_on_nvswitch(const NodeGraph& graph, int gpus) {
  for (int i = 0; i < gpus; ++i) {
    if (!is_on_nvswitch(graph, i)) return false;
  }
  return true;
}

struct NetworkFigures {
  const char* name;
  double efficiency;
  double extra_latency_us;
  double floor_us;
};

// In the order of NetworkKind. Efficiencies: topologies.md section 1 (InfiniBand 0.95-0.97, RoCE
// 0.88-0.95, EFA 0.9-0.97, TCP 0.7-0.95). Latencies: nccl_cost.md 7.1 (EFA SRD of H100 and B200
// 12-30, of p4d 60, TCP 50-100), of which logs say: 20 (p5_2n_efa), 65 (p4de_2n_efa), 40
// (b200x32_p6_efa, not among the logs of the fit). TCPX: its two logs of all-gathers level off at
// 54 and 73 GB/s of 100, and start at 700 us (a3high_h100_2n, h100x16_a3high_tcpx). TCPXO: 0.9
// expected (topologies.md section 1), latency as of TCP, no log.
constexpr std::array<NetworkFigures, 8> kNetworks = {{{"infiniband", 0.96, 0, 0},
                                                      {"roce", 0.92, 0, 0},
                                                      {"efa", 0.95, 20, 0},
                                                      {"efa-v1", 0.95, 65, 0},
                                                      {"efa-v3", 0.95, 40, 0},
                                                      {"tcp", 0.85, 75, 0},
                                                      {"tcpx", 0.66, 150, 700},
                                                      {"tcpxo", 0.9, 75, 0}}};
/// What network_efficiency tells of sockets.
constexpr BytesPerSecond kMostOfSockets = 9_GBps;

const NetworkFigures& figures(NetworkKind kind) {
  return kNetworks[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string_view to_string(NetworkKind kind) {
  return figures(kind).name;
}
bool is_efa(NetworkKind kind) {
  return kind == NetworkKind::Efa || kind == NetworkKind::EfaV1 || kind == NetworkKind::EfaV3;
}
double network_efficiency(NetworkKind kind, BytesPerSecond peak) {
  return network_efficiency(kind, peak, figures(kind).efficiency);
}
double network_efficiency(NetworkKind kind, BytesPerSecond peak, double usual) {
  if (kind != NetworkKind::Tcp || peak.per_second() <= 0) return usual;
  return std::min(usual, kMostOfSockets.per_second() / peak.per_second());
}
double extra_network_latency_us(NetworkKind kind) {
  return figures(kind).extra_latency_us;
}

const std::vector<std::string>& network_kind_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> all;
    all.reserve(kNetworks.size());
    for (const NetworkFigures& network : kNetworks) all.emplace_back(network.name);
    return all;
  }();
  return kNames;
}

std::optional<NetworkKind> network_kind(std::string_view name) {
  for (std::size_t i = 0; i < kNetworks.size(); ++i) {
    if (kNetworks[i].name == name) return static_cast<NetworkKind>(i);
  }
  return std::nullopt;
}

double nccl_nvlink_gbps(const GpuSpec& gpu, BytesPerSecond nvlink) {
  if (gpu.nvlink.per_second() <= 0) return 0;
  const double share = nvlink.per_second() / gpu.nvlink.per_second();
  return share * nccl_link_gbps(gpu) * gpu.nvlink_links;
}

void set_nvls(NcclGraph& graph, const GpuSpec& gpu, double nvlink_gbps, int gpus) {
  const bool possible = is_hopper_or_newer(gpu) && gpus >= 2;
  graph.nvls_heads = possible ? gpus : 0;
  const double head = kNvlsShare * nvlink_gbps / std::max(gpus, 1);
  graph.nvls_head_gbps = possible ? menu_speed(intra_menu(gpu), head) : 0;
}

void set_intra_node(NcclGraph& graph, IntraNode intra, const NodeShape& shape, const GpuSpec& gpu,
                    int gpus, int gpus_per_host_link) {
  Channels channels = intra_channels(intra, shape, gpu, gpus);
  // A mesh without rings over its GPUs really goes through further GPUs (five of eight V100 reach
  // 37 GB/s, vTrain's tables), which is not modelled: host memory at its best stands for it.
  const bool staged_by_design = intra == IntraNode::PcieHostStaged && shape.mesh.empty();
  if (staged_by_design) channels.gbps /= gpus_per_host_link;
  graph.ring_channels = channels.count;
  graph.ring_channel_gbps = channels.gbps;
  graph.ring_efficiency = has_nvlink(intra) ? nvlink_ring_efficiency(gpu) : 1;
  graph.ctas = channel_ctas(channels.count);
  graph.staged = intra == IntraNode::PcieHostStaged;
  if (staged_by_design) graph.ring_efficiency = host_staged_efficiency(gpu);
  graph.ll128 = has_nvlink(intra) && gpu.compute_capability >= 70;
  graph.kappa = class_kappa(intra, gpu);
  const bool in_switch = intra == IntraNode::NvSwitch;
  set_nvls(graph, gpu, in_switch ? nccl_nvlink_gbps(gpu, shape.nvswitch) : 0, in_switch ? gpus : 0);
}

void set_inter_node(NcclGraph& graph, const GpuSpec& gpu, int nics, BytesPerSecond nic_bandwidth,
                    NetworkKind kind) {
  ZS_CHECK(nics >= 1, "a network without NICs");
  const double intra_bus = graph.ring_channels * graph.ring_channel_gbps;
  // One channel a NIC, as long as the node's own links keep up.
  const double limit = std::min(nic_bandwidth.gb_per_second(), kInterOverIntra * intra_bus / nics);
  graph.inter_ring_channels = nics;
  graph.inter_ring_channel_gbps = menu_speed(inter_menu(gpu), limit);
  graph.inter_tree_channel_gbps =
      tree_speed(inter_menu(gpu), graph.inter_ring_channel_gbps, intra_bus / nics);
  graph.inter_nvls_head_gbps = 0;
  if (graph.nvls_heads > 0) {
    const double inter_bus = nics * graph.inter_ring_channel_gbps;
    graph.inter_nvls_head_gbps = std::min(kMaxInterHead, inter_bus / graph.nvls_heads);
  }
  graph.inter_ctas = channel_ctas(nics);
  const bool sockets =
      kind == NetworkKind::Tcp || kind == NetworkKind::Tcpx || kind == NetworkKind::Tcpxo;
  graph.inter_ll128 = graph.ll128 && !sockets;
  graph.tree_on_one_gpu = nics == 1;
  graph.inter_floor_us = figures(kind).floor_us;
  graph.extra_network_latency_us = extra_network_latency_us(kind);
}

void give_rings(NcclGraph& graph, int channels, double gbps) {
  graph.ring_channels = channels;
  graph.ring_channel_gbps = gbps;
  graph.ctas = channel_ctas(channels);
}

void give_inter_rings(NcclGraph& graph, int channels, double gbps) {
  graph.inter_ring_channels = channels;
  graph.inter_ring_channel_gbps = gbps;
  graph.inter_tree_channel_gbps = 0;
  graph.inter_ctas = channel_ctas(channels);
}

bool is_consumer_card(const GpuSpec& gpu) {
  const std::string& name = gpu.name;
  return name.starts_with("RTX20") || name.starts_with("RTX30") || name.starts_with("RTX40") ||
         name.starts_with("RTX50");
}

IntraNode intra_by_links(const NodeGraph& graph, std::span<const NvLinkPair> mesh,
                         const GpuSpec& gpu, std::string_view cpu, int gpus) {
  if (all_on_nvswitch(graph, gpus)) return IntraNode::NvSwitch;
  if (!mesh.empty() && mesh_rings(mesh, std::max(gpus, 2)) > 0) return IntraNode::NvLinkMesh;
  if (is_consumer_card(gpu)) return IntraNode::PcieHostStaged;
  // Being below one tree of switches is transitive.
  PathKind farthest = PathKind::PcieSwitch;
  for (int i = 1; i < gpus; ++i) farthest = std::max(farthest, gpu_host_path(graph, 0, i));
  const bool anywhere = cpu == "amd" && gpus <= 2;
  return anywhere || farthest < PathKind::HostBridge ? IntraNode::Pcie : IntraNode::PcieHostStaged;
}

}  // namespace zerosim
