#include "topology/nccl_tuning.h"

#include <algorithm>
#include <bit>

namespace zerosim::nccl {
namespace {

// NCCL 2.30's tables, as spec/nccl_cost.md section 2.2 restates src/graph/tuning.cc. Latencies are
// in microseconds, bandwidths in GB/s; columns of protocols are LL, LL128, Simple.

/// In the order of the enumeration: Ring, Tree, Nvls, NvlsTree, CollNetDirect, CollNetChain, Pat.
using PerAlgorithm = std::array<PerProtocol, 7>;

constexpr PerAlgorithm kBaseLatency = {
    {{6.6, 14, 8.4}, {6.8, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}};
constexpr PerAlgorithm kNvLinkLatency = {{{0.6, 1.9, 3.4},
                                          {0.6, 1.25, 4.0},
                                          {0, 0, 25},
                                          {0, 0, 25},
                                          {0, 0, 3.7},
                                          {0, 0, 2.8},
                                          {0, 0, 4.0}}};
constexpr PerAlgorithm kPcieLatency = {{{1.0, 2.5, 5.7},
                                        {1.0, 1.9, 4.0},
                                        {0, 0, 0},
                                        {0, 0, 0},
                                        {0, 0, 3.7},
                                        {0, 0, 2.8},
                                        {0, 0, 4.0}}};
constexpr PerAlgorithm kNetworkLatency = {
    {{2.7, 4.0, 14}, {5.0, 8.5, 14}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 31}, {0, 0, 30}, {0, 0, 14}}};

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

/// Threads of a block, and bytes for each of them below which NCCL takes a channel away
/// (nccl_cost.md section 4); of LL in a ring they count once for each rank.
constexpr PerProtocol kThreads = {512, 640, 512};
constexpr PerProtocol kBytesAThread = {8, 8, 64};

/// First releases with each of them, 2.x (nccl_settings.h); in the order of the enumerations.
constexpr std::array<int, 7> kFirstOfAlgorithm = {0, 4, 17, 18, 6, 6, 23};
constexpr std::array<int, 3> kFirstOfProtocol = {0, 5, 0};

constexpr std::array kAlgorithms = {
    Algorithm::Ring,          Algorithm::Tree,         Algorithm::Nvls, Algorithm::NvlsTree,
    Algorithm::CollNetDirect, Algorithm::CollNetChain, Algorithm::Pat};
constexpr std::array kProtocols = {Protocol::LowLatency, Protocol::LowLatency128, Protocol::Simple};

/// Reduction in NVSwitches.
bool has_nvls(const Question& q) {
  return q.graph.nvls_heads >= 2 && q.generation->nvls_efficiency > 0;
}

bool has_algorithm(const Question& q, Algorithm algorithm) {
  const bool all_reduce = q.op == CollectiveOp::AllReduce;
  const bool in_network = q.sharp && !q.one_node() && all_reduce;
  switch (algorithm) {
    case Algorithm::Ring:
      return true;
    case Algorithm::Tree:
      return all_reduce;
    case Algorithm::Nvls:
      return has_nvls(q) && all_reduce && (q.one_node() || in_network);
    case Algorithm::NvlsTree:
      return has_nvls(q) && all_reduce && !q.one_node();
    case Algorithm::CollNetDirect:
      return in_network && q.nvswitch;
    case Algorithm::CollNetChain:
      return in_network;
    case Algorithm::Pat:
      return q.shares() && !q.one_node() && q.gpus() == 1;
  }
  return false;
}

bool is_available(const Question& q, Algorithm algorithm, Protocol protocol) {
  if (q.op == CollectiveOp::AllToAll) {
    return algorithm == Algorithm::Ring && protocol == Protocol::Simple;
  }
  if (!q.allowed.algorithms[at(algorithm)] || !q.allowed.protocols[at(protocol)]) return false;
  if (q.release < kFirstOfAlgorithm[at(algorithm)] || q.release < kFirstOfProtocol[at(protocol)]) {
    return false;
  }
  if (!has_algorithm(q, algorithm)) return false;
  if (protocol == Protocol::Simple) return true;
  if (algorithm != Algorithm::Ring && algorithm != Algorithm::Tree) return false;
  const bool ordered =
      q.allowed.ll128_forced || (q.graph.ll128 && (q.one_node() || q.graph.inter_ll128));
  return protocol == Protocol::LowLatency || ordered;
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
  double bus = std::min(0.92 * q.tree_bus(), channels * q.generation->tree_simple[q.scale()]);
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
  if (q.one_node()) return in_node;
  if (algorithm == Algorithm::Nvls) {
    return std::min(in_node, heads * q.graph.inter_nvls_head_gbps);  // the network reduces
  }
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
    case Algorithm::CollNetDirect:
    case Algorithm::CollNetChain:
      return q.bus() * 0.5;
    case Algorithm::Pat:
      return q.bus() * 0.75;
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

/// One step inside a node.
double intra_latency(const Question& q, Algorithm algorithm, Protocol protocol) {
  if (q.graph.over_nics) return network_latency(q, algorithm, protocol);
  return (q.pcie ? kPcieLatency : kNvLinkLatency)[at(algorithm)][at(protocol)];
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
  const double base = kBaseLatency[at(algorithm)][at(protocol)];
  const double intra = intra_latency(q, algorithm, protocol);
  const double network = network_latency(q, algorithm, protocol);
  // NCCL's log2 of an integer rounds down.
  const int hops = static_cast<int>(std::bit_width(static_cast<unsigned>(q.nodes))) - 1;
  switch (algorithm) {
    case Algorithm::Ring:
      return (base + ring_latency(q, protocol, intra, network)) * plateau(q, algorithm, protocol);
    case Algorithm::Tree:
      return base + 2 * ((q.gpus() - 1) * intra + hops * network);
    case Algorithm::Nvls:
      return intra + (q.one_node() ? 0 : network);
    case Algorithm::NvlsTree:
      return base + intra + 2 * hops * network;
    case Algorithm::CollNetDirect:
      return base + 2 * (std::min(1, q.gpus() - 1) * intra + 0.4 * (q.gpus() - 1)) + network;
    case Algorithm::CollNetChain:
      return base + 2 * (q.gpus() - 1) * intra + network;
    case Algorithm::Pat:
      return base + hops * network / 3.5 + 2.8 * q.ranks;
  }
  return 0;
}

}  // namespace

double Question::tree_bus() const {
  const double channel =
      nodes == 2 ? std::max(graph.inter_tree_channel_gbps, graph.inter_ring_channel_gbps) : 0;
  return channel > 0 ? graph.inter_ring_channels * channel : bus();
}

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

double kept_channels(const Question& q, const Choice& choice, int most) {
  double bytes_a_thread = kBytesAThread[at(choice.protocol)];
  const bool counts_ranks =
      choice.algorithm == Algorithm::Ring && choice.protocol == Protocol::LowLatency;
  if (counts_ranks) bytes_a_thread *= q.ranks;
  const bool given = q.threads > 0 && choice.protocol != Protocol::LowLatency128;
  const double threads = given ? q.threads : kThreads[at(choice.protocol)];
  const double wanted = q.size / (threads * bytes_a_thread);
  return std::clamp<double>(wanted, 1, std::max(1, most));
}

double pipeline_latency(const Question& q, const Choice& choice) {
  const double intra = intra_latency(q, Algorithm::Ring, choice.protocol);
  const double network = q.one_node() ? 0 : network_latency(q, Algorithm::Ring, choice.protocol);
  return kBaseLatency[at(Algorithm::Ring)][at(choice.protocol)] + (q.ranks - q.nodes) * intra +
         (q.nodes - 1) * network;
}

Line line(const Question& q, const Choice& choice) {
  const auto [algorithm, protocol] = choice;
  if (!is_available(q, algorithm, protocol)) return {};
  return {latency(q, algorithm, protocol), algorithm_bandwidth(q, algorithm, protocol)};
}

bool has_choice(const Question& q) {
  return std::any_of(kAlgorithms.begin(), kAlgorithms.end(), [&](Algorithm algorithm) {
    return std::any_of(kProtocols.begin(), kProtocols.end(),
                       [&](Protocol protocol) { return is_available(q, algorithm, protocol); });
  });
}

Choice choose(const Question& q) {
  Choice best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm : kAlgorithms) {
    for (const Protocol protocol : kProtocols) {
      const double time = line(q, {algorithm, protocol}).time(q.size);
      if (time >= best_time) continue;
      best_time = time;
      best = {algorithm, protocol};
    }
  }
  return best;
}

}  // namespace zerosim::nccl
