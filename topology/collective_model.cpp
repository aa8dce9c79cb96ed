#include "topology/collective_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/base/error.h"
#include "topology/nccl_graph.h"

namespace zerosim {
namespace {

// NCCL 2.30's tables, as spec/nccl_cost.md section 2.2 restates src/graph/tuning.cc. Latencies are
// in microseconds, bandwidths in GB/s; columns of protocols are LL, LL128, Simple.

using PerProtocol = std::array<double, 3>;
using PerAlgorithm = std::array<PerProtocol, 4>;  // Ring, Tree, Nvls, NvlsTree

constexpr PerAlgorithm kBaseLatency = {{{6.6, 14, 8.4}, {6.8, 14, 8.4}, {0, 0, 0}, {0, 0, 0}}};
constexpr PerAlgorithm kNvLinkLatency = {
    {{0.6, 1.9, 3.4}, {0.6, 1.25, 4.0}, {0, 0, 25}, {0, 0, 25}}};
constexpr PerAlgorithm kPcieLatency = {{{1.0, 2.5, 5.7}, {1.0, 1.9, 4.0}, {0, 0, 0}, {0, 0, 0}}};
constexpr PerAlgorithm kNetworkLatency = {
    {{2.7, 4.0, 14}, {5.0, 8.5, 14}, {0, 0, 18}, {0, 0, 20.9}}};

/// One node, two nodes, more.
using PerScale = std::array<double, 3>;

/// Limits of one GPU generation.
struct Generation {
  int compute_capability;  ///< the least of the generation
  double ll_max;           ///< all channels of LL on one node
  double ring_ll128;       ///< a channel
  PerScale tree_ll128;     ///< a channel
  PerScale tree_simple;    ///< a channel
  PerScale nvls_tree;      ///< a channel; 0: none
  double nvls_efficiency;  ///< 0: no NVLS
  double ring_plateau;     ///< factor on the latency of long Ring/Simple all-reduces between nodes
};

constexpr auto kGenerations = std::to_array<Generation>({
    {0, 39, 20, {20, 20, 20}, {26.5, 18.5, 10}, {0, 0, 0}, 0, 1.9},                   // Volta
    {80, 87.7, 20, {20, 20, 20}, {24, 23.6, 17.8}, {0, 0, 0}, 0, 1.4},                // Ampere, Ada
    {90, 141, 36.7, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}, 0.85, 1.4},  // Hopper
    {100, 282, 40, {55.6, 31.67, 20}, {70, 42.8, 24}, {0, 96, 80}, 0.74, 1.4},        // Blackwell
});

/// All channels of LL between nodes, by the CPU's row: two nodes, more.
constexpr std::array<double, 2> kIntelLlMax = {39, 20.4};
constexpr std::array<double, 2> kAmdLlMax = {22.5, 19};

/// Factors on the bandwidth of tree all-reduces, index floor(log2(S / 64 B)).
constexpr std::array<std::array<double, 24>, 3> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

/// Bytes on the wire per byte of data: LL sends 4 flag bytes with 4, LL128 8 with 120.
constexpr PerProtocol kWireBytes = {2, 128.0 / 120, 1};

/// NCCL's limit (MAXCHANNELS).
constexpr int kMaxChannels = 64;

/// Between nodes, and for NVLS (nccl_cost.md section 7.1 (ii)).
constexpr double kKappa = 1.0;

/// Share of the datasheet's memory rate that long streams reach (spec/kernels.md section 2).
constexpr double kUsableMemory = 0.85;

constexpr std::array kAlgorithms = {Algorithm::Ring, Algorithm::Tree, Algorithm::Nvls,
                                    Algorithm::NvlsTree};
constexpr std::array kProtocols = {Protocol::LowLatency, Protocol::LowLatency128, Protocol::Simple};

std::size_t at(Algorithm algorithm) {
  return static_cast<std::size_t>(algorithm);
}
std::size_t at(Protocol protocol) {
  return static_cast<std::size_t>(protocol);
}

const Generation& generation_of(const GpuSpec& gpu) {
  const Generation* found = kGenerations.data();
  for (const Generation& generation : kGenerations) {
    if (gpu.compute_capability >= generation.compute_capability) found = &generation;
  }
  return *found;
}

/// Everything that NCCL's formulas ask about one collective.
struct Question {
  CollectiveOp op = CollectiveOp::AllReduce;
  double size = 0;  ///< bytes
  int ranks = 1;
  int nodes = 1;
  int nics = 1;         ///< that the group drives on a node
  int all_nics = 1;     ///< that all used GPUs of a node drive
  double nic_gbps = 0;  ///< what one of them really gives
  const Generation* generation = nullptr;
  bool pcie = false;
  bool amd = false;
  double extra_network_latency = 0;  ///< us; twice for Simple
  double switch_latency = 0;         ///< us, once
  NcclGraph graph;

  [[nodiscard]] bool one_node() const { return nodes == 1; }
  [[nodiscard]] int gpus() const { return (ranks + nodes - 1) / nodes; }  ///< of one node
  [[nodiscard]] std::size_t scale() const { return nodes == 1 ? 0 : nodes == 2 ? 1 : 2; }
  [[nodiscard]] int channels() const {
    return one_node() ? graph.ring_channels : graph.inter_ring_channels;
  }
  [[nodiscard]] double bus() const {
    return one_node() ? graph.ring_channels * graph.ring_channel_gbps
                      : graph.inter_ring_channels * graph.inter_ring_channel_gbps;
  }
  [[nodiscard]] bool is_pipeline() const {
    return op == CollectiveOp::Broadcast || op == CollectiveOp::Reduce;
  }
  /// Steps of a ring as NCCL counts them.
  [[nodiscard]] int steps() const {
    if (is_pipeline()) return ranks;
    return op == CollectiveOp::AllReduce ? 2 * (ranks - 1) : ranks - 1;
  }
};

/// A of the model in microseconds and algorithm bandwidth in GB/s; not available: infinite latency.
struct Line {
  double latency = std::numeric_limits<double>::infinity();
  double bandwidth = 1;
  [[nodiscard]] double transfer(double size) const { return size / bandwidth * 1e-3; }  ///< us
  [[nodiscard]] double time(double size) const { return latency + transfer(size); }
};

bool is_available(const Question& q, Algorithm algorithm, Protocol protocol) {
  if (q.op == CollectiveOp::AllToAll) {
    return algorithm == Algorithm::Ring && protocol == Protocol::Simple;
  }
  const bool all_reduce = q.op == CollectiveOp::AllReduce;
  if (protocol == Protocol::LowLatency128) {
    const bool ordered = q.graph.ll128 && (q.one_node() || q.graph.inter_ll128);
    if (!ordered) return false;
  }
  switch (algorithm) {
    case Algorithm::Ring:
      return true;
    case Algorithm::Tree:
      return all_reduce;
    case Algorithm::Nvls:
    case Algorithm::NvlsTree: {
      const bool in_switch = q.graph.nvls_heads >= 2 && q.generation->nvls_efficiency > 0;
      const bool right_scale = q.one_node() == (algorithm == Algorithm::Nvls);
      return all_reduce && in_switch && right_scale && protocol == Protocol::Simple;
    }
  }
  return false;
}

double ll_max(const Question& q) {
  if (q.one_node()) return q.generation->ll_max;
  return (q.amd ? kAmdLlMax : kIntelLlMax)[q.scale() - 1];
}

double ring_bus(const Question& q, Protocol protocol) {
  switch (protocol) {
    case Protocol::LowLatency:
      return std::min(ll_max(q), 0.5 * q.bus());
    case Protocol::LowLatency128:
      return std::min(0.92 * q.bus(), q.channels() * q.generation->ring_ll128);
    case Protocol::Simple:
      return q.bus();
  }
  return 0;
}

double tree_correction(const Question& q, Protocol protocol) {
  const auto lines = static_cast<std::uint64_t>(q.size / 64);
  if (lines == 0) return 1;
  const auto index = static_cast<std::size_t>(std::bit_width(lines) - 1);
  const auto& row = kTreeCorrection[at(protocol)];
  return index < row.size() ? row[index] : 1;
}

double tree_bus(const Question& q, Protocol protocol) {
  const int channels = q.channels();
  double bus = std::min(0.92 * q.bus(), channels * q.generation->tree_simple[q.scale()]);
  if (protocol == Protocol::LowLatency) bus = std::min(bus / 3.8, ll_max(q));
  if (protocol == Protocol::LowLatency128) {
    const double share = q.one_node() ? 7.0 / 9 : 120.0 / 128;
    bus = std::min(bus * share, channels * q.generation->tree_ll128[q.scale()]);
  }
  if (!q.one_node() && q.graph.tree_on_one_gpu) bus *= 0.85;
  return bus * tree_correction(q, protocol);
}

double nvls_bus(const Question& q, Algorithm algorithm) {
  const int heads = q.graph.nvls_heads;
  const double in_node = 2 * q.graph.nvls_head_gbps * q.generation->nvls_efficiency * (heads - 1);
  if (algorithm == Algorithm::Nvls) return in_node;
  const double between = heads * q.graph.inter_nvls_head_gbps * (q.nodes <= 2 ? 2 : 1);
  return std::min({in_node, between, heads * q.generation->nvls_tree[q.scale()]});
}

/// Each rank sends 1/N of S to every other: in its node over NVLink or PCIe, what is for other
/// nodes through the NICs that the GPUs of its node share.
double all_to_all_bandwidth(const Question& q) {
  const double intra = q.graph.ring_channels * q.graph.ring_channel_gbps * q.ranks / (q.ranks - 1);
  if (q.one_node()) return intra;
  const double elsewhere = static_cast<double>(q.nodes - 1) / q.nodes;
  const double network =
      q.graph.inter_ring_channels * q.graph.inter_ring_channel_gbps / (q.gpus() * elsewhere);
  return q.gpus() == 1 ? network : std::min(intra, network);
}

/// Bytes of S a second, GB/s.
double algorithm_bandwidth(const Question& q, Algorithm algorithm, Protocol protocol) {
  if (q.op == CollectiveOp::AllToAll) return all_to_all_bandwidth(q);
  const double per_step = static_cast<double>(q.ranks) / q.steps();
  switch (algorithm) {
    case Algorithm::Ring:
      return ring_bus(q, protocol) * per_step;
    case Algorithm::Tree:
      return tree_bus(q, protocol) * 0.5;
    case Algorithm::Nvls:
    case Algorithm::NvlsTree:
      return nvls_bus(q, algorithm) * per_step;
  }
  return 0;
}

double network_latency(const Question& q, Algorithm algorithm, Protocol protocol) {
  // With one GPU a node NCCL uses the tree's row for all.
  const Algorithm row = q.gpus() == 1 ? Algorithm::Tree : algorithm;
  const double flushes = protocol == Protocol::Simple ? 2 : 1;
  return kNetworkLatency[at(row)][at(protocol)] + flushes * q.extra_network_latency +
         q.switch_latency;
}

double ring_latency(const Question& q, Protocol protocol, double intra, double network) {
  if (q.op == CollectiveOp::AllToAll) return intra + (q.one_node() ? 0 : network);
  if (q.is_pipeline()) return q.one_node() ? intra : network;  // all channels in the same GPU order
  const int inter_steps = (q.op == CollectiveOp::AllReduce ? 2 : 1) * (q.nodes - 1);
  double post = q.one_node() ? 0 : q.amd ? 2 : 1;
  if (protocol == Protocol::Simple) post *= 3;
  return (q.steps() - inter_steps) * std::max(intra, post) + inter_steps * network;
}

/// Long Ring/Simple all-reduces between nodes.
double plateau(const Question& q, Algorithm algorithm, Protocol protocol) {
  const bool concerned = algorithm == Algorithm::Ring && protocol == Protocol::Simple &&
                         q.op == CollectiveOp::AllReduce && !q.one_node();
  const bool is_long = q.size / (static_cast<double>(q.channels()) * q.ranks) >= 64;
  return concerned && is_long ? q.generation->ring_plateau : 1;
}

double latency(const Question& q, Algorithm algorithm, Protocol protocol) {
  const auto& hardware = q.pcie ? kPcieLatency : kNvLinkLatency;
  const double base = kBaseLatency[at(algorithm)][at(protocol)];
  const double intra = hardware[at(algorithm)][at(protocol)];
  const double network = network_latency(q, algorithm, protocol);
  // NCCL's log2 of an integer rounds down.
  const int hops = static_cast<int>(std::bit_width(static_cast<unsigned>(q.nodes))) - 1;
  switch (algorithm) {
    case Algorithm::Ring:
      return (base + ring_latency(q, protocol, intra, network)) * plateau(q, algorithm, protocol);
    case Algorithm::Tree:
      return base + 2 * ((q.gpus() - 1) * intra + hops * network);
    case Algorithm::Nvls:
      return intra;
    case Algorithm::NvlsTree:
      return base + intra + 2 * hops * network;
  }
  return 0;
}

Line line(const Question& q, Algorithm algorithm, Protocol protocol) {
  if (!is_available(q, algorithm, protocol)) return {};
  return {latency(q, algorithm, protocol), algorithm_bandwidth(q, algorithm, protocol)};
}

/// Nodes that NVLink joins reduce in the switch together: one head for each GPU of all of them,
/// which share a GPU's NVLinks. (Heads of one tray of four are held by the menu's fastest channel,
/// not by the links.) Where NVLinks are lost, heads keep the part of them that rings keep.
void join_heads(const Cluster& cluster, NcclGraph& graph) {
  const int joined = std::min(cluster.fabric.nvlink_domain_nodes, cluster.nodes);
  if (joined == 1 || graph.nvls_heads == 0) return;
  const double left =
      ring_capacity(cluster.nccl()).per_second() / ring_capacity(cluster.node.nccl).per_second();
  const double nvlink = nccl_nvlink_gbps(cluster.gpu(), nvlink_bandwidth(cluster.node.graph, 0));
  set_nvls(graph, cluster.gpu(), left * nvlink, joined * graph.nvls_heads);
}

/// NCCL gives a GPU the NICs next to it: a group has its part of the channels of all, and one on
/// several nodes that NVLink joins has those of each.
void set_network(const Cluster& cluster, const CollectiveGroup& group, Question& q) {
  const int of_node = std::max(1, nics_in_use(cluster));
  q.all_nics = of_node * cluster.fabric.nvlink_domain_nodes;
  q.nics = group.nics > 0 ? group.nics : q.all_nics;
  q.nic_gbps = usable_nic_bandwidth(cluster).gb_per_second();
  const auto part = [&](int of_all) { return (of_all * q.nics + of_node - 1) / of_node; };
  q.graph.inter_ring_channels = part(q.graph.inter_ring_channels);
  q.graph.inter_ctas = std::min(kMaxChannels, part(q.graph.inter_ctas));
  if (cluster.fabric.nvlink_domain_nodes > 1) {
    // The NICs of all its nodes may be more than what one GPU passes on.
    const double inside = q.graph.ring_channels * q.graph.ring_channel_gbps;
    q.graph.inter_ring_channel_gbps =
        std::min(q.graph.inter_ring_channel_gbps,
                 kInterOverIntra * inside / std::max(1, q.graph.inter_ring_channels));
  }
  if (q.nics < q.all_nics) q.graph.nvls_heads = 0;  // in-switch reduction is among all GPUs
}

/// As NCCL sees it: its own speeds of the network.
Question question(const Cluster& cluster, CollectiveOp op, Bytes size,
                  const CollectiveGroup& group) {
  ZS_CHECK(size >= Bytes(0), "a collective of negative size");
  ZS_CHECK(group.ranks >= group.nodes && group.nodes >= 1, "a group without a rank on each node");
  ZS_CHECK(group.nodes == 1 || cluster.nccl().inter_ring_channels > 0, "nodes without a network");
  const IntraNode intra = cluster.intra();
  Question q;
  q.op = op;
  q.size = static_cast<double>(size.count());
  q.ranks = group.ranks;
  q.nodes = group.nodes;
  q.generation = &generation_of(cluster.gpu());
  q.pcie = intra == IntraNode::Pcie || intra == IntraNode::PcieHostStaged;
  q.amd = cluster.node.cpu == "amd";
  q.graph = cluster.nccl();
  q.extra_network_latency = q.graph.extra_network_latency_us;
  join_heads(cluster, q.graph);
  if (!q.one_node()) set_network(cluster, group, q);
  return q;
}

/// The same question with what the links really give.
Question real(const CollectiveGroup& group, Question q) {
  q.graph.ring_channel_gbps *= q.graph.ring_efficiency;
  if (q.one_node()) return q;
  q.switch_latency = group.network_latency.count() * 1e6;
  const double network = q.nics * q.nic_gbps;
  NcclGraph& graph = q.graph;
  if (graph.inter_ring_channels > 0) {
    graph.inter_ring_channel_gbps =
        std::min(graph.inter_ring_channel_gbps, network / graph.inter_ring_channels);
  }
  if (graph.nvls_heads > 0) {
    graph.inter_nvls_head_gbps = std::min(graph.inter_nvls_head_gbps, network / graph.nvls_heads);
  }
  return q;
}

struct Choice {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
};

/// The least predicted time; the first of equals in the order Ring, Tree, NVLS; LL, LL128, Simple.
Choice choose(const Question& q) {
  Choice best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm : kAlgorithms) {
    for (const Protocol protocol : kProtocols) {
      const double time = line(q, algorithm, protocol).time(q.size);
      if (time >= best_time) continue;
      best_time = time;
      best = {algorithm, protocol};
    }
  }
  return best;
}

double launch_floor(const Question& q) {
  if (!q.one_node()) return q.graph.inter_launch_floor_us;
  return q.op == CollectiveOp::AllReduce ? q.graph.launch_floor_all_reduce_us
                                         : q.graph.launch_floor_other_us;
}

double kappa(const Question& q, Algorithm algorithm) {
  return q.one_node() && algorithm != Algorithm::Nvls ? q.graph.kappa : kKappa;
}

/// max(floor, A + V/B + kappa sqrt(A V/B)), in microseconds.
double time(const Question& q, const Choice& choice, const Line& line) {
  const double transfer = line.transfer(q.size);
  const double bend = kappa(q, choice.algorithm) * std::sqrt(line.latency * transfer);
  return std::max(launch_floor(q), line.latency + transfer + bend);
}

/// Channels that a collective of this size keeps: small ones drop some (nccl_cost.md section 4).
int channel_blocks(const Question& q, const Choice& choice) {
  const int most = q.one_node() ? q.graph.ctas : q.graph.inter_ctas;
  const bool in_switch =
      choice.algorithm == Algorithm::Nvls || choice.algorithm == Algorithm::NvlsTree;
  if (in_switch) return std::min(most, 2 * q.graph.nvls_heads);
  constexpr PerProtocol kThreads = {512, 640, 512};
  PerProtocol bytes_a_thread = {8, 8, 64};
  if (choice.algorithm == Algorithm::Ring) bytes_a_thread[0] *= q.ranks;
  const std::size_t p = at(choice.protocol);
  const double wanted = q.size / (kThreads[p] * bytes_a_thread[p]);
  return wanted >= most ? most : std::max(1, static_cast<int>(wanted));
}

/// Device memory traffic of one GPU (nccl_cost.md section 5): a ring all-reduce reads its own data
/// and the received, and writes: 3 V. Gathers and scatters 2 V. NVLS reads and writes what section
/// 6 says each GPU sends and receives, S (1 + 1/g).
double memory_traffic(const Question& q, Algorithm algorithm, double sent) {
  if (algorithm == Algorithm::Nvls || algorithm == Algorithm::NvlsTree) {
    return 2 * q.size * (1 + 1.0 / q.gpus());
  }
  const bool reduces = q.op == CollectiveOp::AllReduce || q.op == CollectiveOp::Reduce;
  return (reduces ? 3 : 2) * sent;
}

Bytes whole(double bytes) {
  return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
}

/// Bytes that leave each node: of a ring what a rank sends; in an all-to-all each GPU has its own
/// for the other nodes.
double leaves_node(const Question& q, const CollectiveCost& cost) {
  if (q.one_node()) return 0;
  if (q.op == CollectiveOp::AllToAll) return q.gpus() * q.size * (q.nodes - 1) / q.nodes;
  return static_cast<double>(cost.sent_per_rank.count());
}

/// Bytes on the links: (transfer x capacity) on the narrowest class, the wire's bytes on a wider
/// one.
void add_link_loads(const Cluster& cluster, const Question& q, Protocol protocol,
                    double transfer_us, CollectiveCost& cost) {
  using Kind = LinkClass::Kind;
  const double intra = link_capacity(cluster, Kind::IntraNode).per_second();
  const double network = q.nics * q.nic_gbps * 1e9;
  const auto whole_share = [&](Kind kind) {
    return transfer_us * 1e-6 * (kind == Kind::IntraNode ? intra : network);
  };
  if (q.one_node()) {
    cost.loads.push_back({Kind::IntraNode, whole(whole_share(Kind::IntraNode))});
    return;
  }
  const double wire = static_cast<double>(cost.sent_per_rank.count()) * kWireBytes[at(protocol)];
  const bool uses_intra = q.gpus() > 1;
  const bool network_is_narrow = !uses_intra || network <= intra;
  const auto load = [&](Kind kind, bool is_narrow, double bytes) {
    const double share = whole_share(kind);
    cost.loads.push_back({kind, whole(is_narrow ? share : std::min(bytes, share))});
  };
  if (uses_intra) load(Kind::IntraNode, !network_is_narrow, wire);
  const double leaves = leaves_node(q, cost) * kWireBytes[at(protocol)];
  load(Kind::Network, network_is_narrow, leaves);
  load(Kind::Fabric, false, leaves);
}

Seconds longest_load(const CollectiveCost& cost, const Cluster& cluster) {
  Seconds longest{0};
  for (const LinkLoad& load : cost.loads) {
    if (load.kind == LinkClass::Kind::Fabric) continue;
    BytesPerSecond capacity = link_capacity(cluster, load.kind);
    if (load.kind == LinkClass::Kind::Network && cost.nics > 0) {
      capacity = BytesPerSecond(cost.nics * usable_nic_bandwidth(cluster).per_second());
    }
    if (load.kind == LinkClass::Kind::DeviceMemory) {
      capacity = BytesPerSecond(capacity.per_second() * kUsableMemory);
    }
    longest = std::max(longest, load.bytes / capacity);
  }
  return longest;
}

}  // namespace

std::string_view to_string(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::AllReduce:
      return "all_reduce";
    case CollectiveOp::AllGather:
      return "all_gather_into_tensor";
    case CollectiveOp::ReduceScatter:
      return "reduce_scatter_tensor";
    case CollectiveOp::Broadcast:
      return "broadcast";
    case CollectiveOp::Reduce:
      return "reduce";
    case CollectiveOp::AllToAll:
      return "all_to_all_single";
  }
  return "";
}

std::string_view to_string(Algorithm algorithm) {
  constexpr std::array<std::string_view, 4> kNames = {"Ring", "Tree", "NVLS", "NVLSTree"};
  return kNames[at(algorithm)];
}

std::string_view to_string(Protocol protocol) {
  constexpr std::array<std::string_view, 3> kNames = {"LL", "LL128", "Simple"};
  return kNames[at(protocol)];
}

Bytes ring_bytes_sent(CollectiveOp op, Bytes size, int ranks) {
  ZS_CHECK(ranks >= 1, "a group without ranks");
  if (ranks == 1) return Bytes(0);
  // (N - 1)/N of S, rounded up: all but the smallest share.
  const Bytes once = size - Bytes(size.count() / ranks);
  switch (op) {
    case CollectiveOp::AllReduce:
      return 2 * once;
    case CollectiveOp::AllGather:
    case CollectiveOp::ReduceScatter:
    case CollectiveOp::AllToAll:
      return once;
    case CollectiveOp::Broadcast:
    case CollectiveOp::Reduce:
      return size;
  }
  return Bytes(0);
}

Seconds nccl_predicted_time(const Cluster& cluster, CollectiveOp op, Bytes size,
                            const CollectiveGroup& group, Algorithm algorithm, Protocol protocol) {
  const Question q = question(cluster, op, size, group);
  return Seconds(line(q, algorithm, protocol).time(q.size) * 1e-6);
}

CollectiveCost collective_cost(const Cluster& cluster, CollectiveOp op, Bytes size,
                               const CollectiveGroup& group) {
  CollectiveCost cost;
  const Question nominal = question(cluster, op, size, group);
  if (group.ranks == 1 || size == Bytes(0)) return cost;
  const Choice choice = choose(nominal);
  const Question q = real(group, nominal);
  const Line chosen = line(q, choice.algorithm, choice.protocol);
  const double transfer = chosen.transfer(q.size);
  cost.algorithm = choice.algorithm;
  cost.protocol = choice.protocol;
  cost.ctas = channel_blocks(q, choice);
  cost.sent_per_rank = ring_bytes_sent(op, size, group.ranks);
  cost.inter_node = Bytes(std::llround(leaves_node(q, cost)));
  if (!q.one_node()) cost.nics = q.nics;
  add_link_loads(cluster, q, choice.protocol, transfer, cost);
  // Loads are whole bytes: the delay makes up for what rounding took.
  const Seconds transfer_time = longest_load(cost, cluster);
  cost.delay = Seconds(time(q, choice, chosen) * 1e-6) - transfer_time;
  const auto sent = static_cast<double>(cost.sent_per_rank.count());
  cost.loads.push_back(
      {LinkClass::Kind::DeviceMemory, whole(memory_traffic(q, choice.algorithm, sent))});
  return cost;
}

Seconds CollectiveCost::idle_time(const Cluster& cluster) const {
  return delay + transfer_time(cluster);
}

Seconds CollectiveCost::transfer_time(const Cluster& cluster) const {
  return longest_load(*this, cluster);
}

}  // namespace zerosim
