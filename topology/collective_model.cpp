#include "topology/collective_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "sim/base/error.h"
#include "topology/nccl_graph.h"
#include "topology/nccl_tuning.h"

namespace zerosim {
namespace {

using nccl::at;
using nccl::Choice;
using nccl::Line;
using nccl::PerProtocol;
using nccl::Question;

/// Bytes on the wire per byte of data: LL sends 4 flag bytes with 4, LL128 8 with 120.
constexpr PerProtocol kWireBytes = {2, 128.0 / 120, 1};

/// Of the 72 GPUs of a rack nine: twenty racks move 433 GB/s between each other
/// (gb200_1440gpu_20rack_allreduce), which eight adapters of 50 cannot.
constexpr int kMostHeads = 9;

// What NCCL's own model leaves out. Fitted together on logs of nccl-tests by mean and 90th
// percentile of the error of these machines: A100, V100 and RTX 2080 Ti nodes; pairs of A100
// (InfiniBand, EFA), H100 (EFA, TCPX) and B200 (InfiniBand, RoCE); one GB200 rack. Held for
// validation: nodes of H100, H200, H20, B200, RTX 3090, 4090 and 5090; pairs of A100, H100 and
// H200 on RoCE; 4 x B200 on EFA; 12 x H100 with SHARP; 2 and 20 GB200 racks (but kMostHeads). What
// a constant of a link (nccl_graph.cpp) or a line below names as its source is read off that. Left
// out of both, as their notes say that something else ran or failed: dgx2_v100_12gpu_*,
// rtx4090_2gpu_host_*, p5_2n_efa_eks_*. README.md has the errors.

/// us: 4.4 (A100), 4.7 (RTX 2080 Ti), 4.8 (V100); of those held 3.9 to 5.7.
constexpr double kLaunchOfAGpu = 4.7;
/// us for each peer of an all-to-all: groups of sends and receives. a100x8_ndv4: 10.9 us a GPU for
/// 8 ranks, against 4.7; the H100 log, held, has 9.5.
constexpr double kLaunchOfAPeer = 0.65;
/// us: what a GPU adds where NCCL launches as a group and nothing hides (LaunchMode::as_group).
constexpr double kGroupLaunchOfAGpu = 3.0;
/// us, between nodes: network threads wake for each collective.
constexpr double kLaunchBetweenNodes = 14;
/// us a step, through host memory: the receiver finds out by polling it. nccl_cost.md 7.2: 11 to 16
/// us for a copy, 1.2 to 2 peer to peer.
constexpr double kStagedStep = 1.0;
/// Between nodes, rings and trees.
constexpr double kKappaBetweenNodes = 0.8;
/// In the switch (nccl_cost.md section 7.1 (ii)).
constexpr double kNvlsKappa = 1.0;
/// LL and LL128 send lines as they come, not chunks: their part of the bend.
constexpr double kBendOfLines = 0.75;
/// The bend grows no more once the pipeline is full; in units of A.
constexpr double kMostBend = 2.5;
/// NCCL's 25 us of NVLS are those of eight GPUs: each GPU more is one more to collect from. Of the
/// form, not fitted: it gives the 72 GPUs of a rack nine times that.
constexpr double kNvlsGpus = 8;
/// All-to-all: what sends and receives reach of what rings do. A100 0.93; held: H100 0.9, B200 0.8.
constexpr double kAllToAllRate = 0.9;

// NCCL copies and reduces 16 bytes at a time where all addresses of a step are aligned alike. Where
// a rank's share begins between them, releases before 2.8 go element by element, one a thread, and
// wait for memory each time (ReduceOrCopyMulti in src/collectives/device/common_kernel.h).

/// The first that does so in unrolled loops, which keep up.
constexpr int kFirstUnrolled = 8;
constexpr std::int64_t kAligned = 16;
/// GB/s of a channel: 256 threads, elements of 4 bytes, 0.30 us each time; V100's memory answers in
/// 375 cycles, 0.25 us (Jia et al., Dissecting the NVIDIA Volta GPU Architecture via
/// Microbenchmarking, 2018). Fitted on sizes from 128 MiB of dgx2_v100_12gpu_reducescatter whose
/// shares begin on 8 bytes; those that begin on 4, and the all-gather, are held.
constexpr double kElementwise = 3.4;

/// How much longer shares that begin anywhere make the transfer.
///
/// Of N shares of s bytes every 16 / gcd(16, s)-th begins on 16. Rings of a reduce-scatter read
/// each share at each rank: in the mean of all. Those of an all-gather copy their own share to its
/// place among the others in the first of N - 1 steps, each rank at once: the slowest counts. (In
/// place there is nothing to copy: nccl-tests' second columns and what ZeRO does.)
double unaligned_stretch(const Question& q, const Choice& choice) {
  const bool concerned =
      q.release < kFirstUnrolled && q.shares() && choice.protocol == Protocol::Simple;
  const auto share = static_cast<std::int64_t>(q.size) / q.ranks;
  const auto period = static_cast<int>(kAligned / std::gcd(kAligned, share));
  if (!concerned || period == 1) return 1;
  const int blocks = q.one_node() ? q.graph.ctas : q.graph.inter_ctas;
  const double slowed = std::max(1.0, q.bus() / (blocks * kElementwise));
  if (q.op == CollectiveOp::AllGather) return (slowed + q.ranks - 2) / (q.ranks - 1);
  const int aligned_shares = (q.ranks + period - 1) / period;
  const double aligned = static_cast<double>(aligned_shares) / q.ranks;
  return aligned + (1 - aligned) * slowed;
}

double staging(const Question& q) {
  const bool concerned = q.graph.staged && q.one_node() && q.op != CollectiveOp::AllToAll;
  return concerned ? kStagedStep * q.steps() : 0;
}

/// Share of the datasheet's memory rate that long streams reach (spec/kernels.md section 2).
constexpr double kUsableMemory = 0.85;

/// Nodes that NVLink joins reduce in the switch together: one head for each GPU of all of them,
/// which share a GPU's NVLinks, up to kMostHeads. (Heads of one tray of four are held by the menu's
/// fastest channel, not by the links.) Where NVLinks are lost, heads keep the part of them that
/// rings keep.
void join_heads(const Cluster& cluster, NcclGraph& graph) {
  const int joined = std::min(cluster.fabric.nvlink_domain_nodes, cluster.nodes);
  if (joined == 1 || graph.nvls_heads == 0) return;
  const double left =
      ring_capacity(cluster.nccl()).per_second() / ring_capacity(cluster.node.nccl).per_second();
  const double nvlink = nccl_nvlink_gbps(cluster.gpu(), nvlink_bandwidth(cluster.node.graph, 0));
  set_nvls(graph, cluster.gpu(), left * nvlink, std::min(kMostHeads, joined * graph.nvls_heads));
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
  q.graph.inter_ctas = std::min(kMaxNcclChannels, part(q.graph.inter_ctas));
  if (cluster.fabric.nvlink_domain_nodes > 1) {
    q.graph.inter_ring_channels = std::min(q.graph.inter_ring_channels, q.graph.ring_channels);
    q.graph.inter_ctas = std::min(q.graph.inter_ctas, q.graph.ctas);
    // The NICs of all its nodes may be more than what one GPU passes on.
    const double inside = q.graph.ring_channels * q.graph.ring_channel_gbps;
    q.graph.inter_ring_channel_gbps =
        std::min(q.graph.inter_ring_channel_gbps,
                 kInterOverIntra * inside / std::max(1, q.graph.inter_ring_channels));
    q.graph.inter_tree_channel_gbps =
        std::min(q.graph.inter_tree_channel_gbps, q.graph.inter_ring_channel_gbps);
  }
  if (q.nics < q.all_nics) q.graph.nvls_heads = 0;  // in-switch reduction is among all GPUs
}

/// As NCCL sees it: its own speeds of the network.
Question question(const Cluster& cluster, CollectiveOp op, Bytes size,
                  const CollectiveGroup& group) {
  ZS_CHECK(size >= Bytes(0), "a collective of negative size");
  ZS_CHECK(group.ranks >= group.nodes && group.nodes >= 1, "a group without a rank on each node");
  ZS_CHECK(group.nodes == 1 || cluster.nccl().inter_ring_channels > 0, "nodes without a network");
  Question q;
  q.op = op;
  q.size = static_cast<double>(size.count());
  q.ranks = group.ranks;
  q.nodes = group.nodes;
  q.generation = &nccl::generation_of(cluster.gpu());
  q.pcie = !has_nvlink(cluster.intra());
  q.nvswitch = cluster.intra() == IntraNode::NvSwitch;
  q.sharp = cluster.fabric.sharp && cluster.nccl_settings.collnet;
  q.allowed = cluster.nccl_settings.of(op);
  q.threads = cluster.nccl_settings.threads;
  q.release = cluster.nccl_settings.release;
  q.amd = cluster.node.cpu == "amd";
  q.graph = cluster.nccl();
  q.extra_network_latency = q.graph.extra_network_latency_us;
  join_heads(cluster, q.graph);
  if (!q.one_node()) set_network(cluster, group, q);
  if (!cluster.nccl_settings.nvls) q.graph.nvls_heads = 0;
  return q;
}

/// With the channels that the environment leaves (nccl_settings.h).
Question with_channels(const NcclSettings& settings, Question q) {
  NcclGraph& graph = q.graph;
  const int most = settings.max_channels;
  if (most > 0) {
    if (!q.pcie || graph.over_nics) graph.ring_channels = std::min(graph.ring_channels, most);
    graph.inter_ring_channels = std::min(graph.inter_ring_channels, most);
    const double heads = std::min(1.0, static_cast<double>(most) / std::max(1, graph.nvls_heads));
    graph.nvls_head_gbps *= heads;
    graph.inter_nvls_head_gbps *= heads;
    graph.ctas = std::min(graph.ctas, most);
    graph.inter_ctas = std::min(graph.inter_ctas, most);
  }
  graph.ctas = std::max(graph.ctas, settings.min_channels);
  graph.inter_ctas = std::max(graph.inter_ctas, settings.min_channels);
  return q;
}

/// What NCCL chooses from. Where nothing that is allowed does the operation, rings do, with the
/// protocols that are allowed for them, as before NCCL 2.24; later ones fail.
Question with_fallback(Question q) {
  if (nccl::has_choice(q)) return q;
  q.allowed.algorithms[at(Algorithm::Ring)] = true;
  if (!nccl::has_choice(q)) q.allowed.protocols[at(Protocol::Simple)] = true;
  return q;
}

/// The same question with what the links really give.
Question real(const CollectiveGroup& group, Question q) {
  const double inside = q.graph.ring_channels * q.graph.ring_channel_gbps;
  q.graph.ring_channel_gbps *= q.graph.ring_efficiency;
  if (q.one_node()) return q;
  q.switch_latency = group.network_latency.count() * 1e6;
  const double network = q.nics * q.nic_gbps;
  NcclGraph& graph = q.graph;
  if (graph.inter_ring_channels > 0) {
    const double channel = network / graph.inter_ring_channels;
    // NCCL's speeds are a menu to choose from, which no transfer keeps to: 1.2 GB/s of 2.25.
    const double kept_up = kInterOverIntra * inside / graph.inter_ring_channels;
    graph.inter_ring_channel_gbps =
        std::min(std::max(graph.inter_ring_channel_gbps, kept_up), channel);
    // Each of two nodes sends S to the other, which trees count twice.
    graph.inter_tree_channel_gbps = std::min(graph.inter_tree_channel_gbps, 2 * channel);
  }
  if (graph.nvls_heads > 0) {
    graph.inter_nvls_head_gbps = std::min(graph.inter_nvls_head_gbps, network / graph.nvls_heads);
  }
  return q;
}

bool is_nvls(Algorithm algorithm) {
  return algorithm == Algorithm::Nvls || algorithm == Algorithm::NvlsTree;
}

/// What an all-to-all adds to the launch of each GPU, us.
double launch_of_peers(const Question& q) {
  return q.op == CollectiveOp::AllToAll ? kLaunchOfAPeer * q.ranks : 0;
}

/// One thread that launches on several GPUs does so one after the other; with a process for each
/// GPU the floor is that of the class of machine. Microseconds.
double launch_floor(const Question& q, const LaunchMode& launch) {
  double floor = 0;
  if (launch.ranks_per_process > 1) {
    floor = launch.ranks_per_process * (kLaunchOfAGpu + launch_of_peers(q));
  } else if (q.one_node()) {
    floor = q.op == CollectiveOp::AllReduce ? q.graph.launch_floor_all_reduce_us
                                            : q.graph.launch_floor_other_us;
  }
  return q.one_node() ? floor : std::max(floor, q.graph.inter_floor_us);
}

/// What comes before the kernels begin and does not hide behind the collective before, us.
double launch_time(const Question& q, const LaunchMode& launch) {
  const double between = q.one_node() ? 0 : kLaunchBetweenNodes;
  if (!launch.as_group || launch.ranks_per_process == 1 || q.graph.staged) return between;
  return between + launch.ranks_per_process * (kGroupLaunchOfAGpu + launch_of_peers(q));
}

/// A: NCCL's latency, and what it leaves out.
double fill(const Question& q, const Choice& choice) {
  if (q.is_pipeline()) return nccl::pipeline_latency(q, choice) + staging(q);
  const double expected = nccl::line(q, choice).latency;
  if (is_nvls(choice.algorithm)) return expected * std::max(1.0, q.gpus() / kNvlsGpus);
  return expected + staging(q);
}

double kappa(const Question& q, const Choice& choice) {
  if (is_nvls(choice.algorithm)) return kNvlsKappa;
  const double of_simple = q.one_node() ? q.graph.kappa : kKappaBetweenNodes;
  return of_simple * (choice.protocol == Protocol::Simple ? 1 : kBendOfLines);
}

/// Parts of the time alone, microseconds.
struct Parts {
  double transfer = 0;
  double total = 0;
};

/// max(floor, launch + A + V/B + bend).
Parts time_parts(const Question& q, const Choice& choice, const LaunchMode& launch) {
  const double rate = q.op == CollectiveOp::AllToAll ? kAllToAllRate : 1;
  const double latency = fill(q, choice);
  Parts parts;
  parts.transfer = nccl::line(q, choice).transfer(q.size) * unaligned_stretch(q, choice) / rate;
  const double bend =
      std::min(kappa(q, choice) * std::sqrt(latency * parts.transfer), kMostBend * latency);
  parts.total =
      std::max(launch_floor(q, launch), launch_time(q, launch) + latency + parts.transfer + bend);
  return parts;
}

/// Channels that a collective of this size keeps.
int channel_blocks(const Question& q, const Choice& choice) {
  const int most = q.one_node() ? q.graph.ctas : q.graph.inter_ctas;
  if (is_nvls(choice.algorithm)) return std::min(most, 2 * q.graph.nvls_heads);
  return static_cast<int>(nccl::kept_channels(q, choice, most));
}

/// Device memory traffic of one GPU (nccl_cost.md section 5): a ring all-reduce reads its own data
/// and the received, and writes: 3 V. Gathers and scatters 2 V. NVLS reads and writes what section
/// 6 says each GPU sends and receives, S (1 + 1/g).
double memory_traffic(const Question& q, Algorithm algorithm, double sent) {
  if (is_nvls(algorithm)) {
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

CollectiveGroup world_group(const Cluster& cluster) {
  const int joined = std::max(1, cluster.fabric.nvlink_domain_nodes);
  CollectiveGroup group;
  group.ranks = cluster.world_size();
  group.nodes = (cluster.nodes + joined - 1) / joined;
  return group;
}

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
  constexpr std::array<std::string_view, 7> kNames = {
      "Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain", "PAT"};
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
  const Question q = with_channels(cluster.nccl_settings, question(cluster, op, size, group));
  return Seconds(nccl::line(q, {algorithm, protocol}).time(q.size) * 1e-6);
}

bool has_nccl_choice(const Cluster& cluster, CollectiveOp op, const CollectiveGroup& group) {
  return nccl::has_choice(question(cluster, op, Bytes(1), group));
}

CollectiveCost collective_cost(const Cluster& cluster, CollectiveOp op, Bytes size,
                               const CollectiveGroup& group) {
  CollectiveCost cost;
  const Question nominal = with_fallback(question(cluster, op, size, group));
  if (group.ranks == 1 || size == Bytes(0)) return cost;
  const NcclSettings& settings = cluster.nccl_settings;
  const Choice choice = nccl::choose(with_channels(settings, nominal));
  const Question q = with_channels(settings, real(group, nominal));
  const Parts time = time_parts(q, choice, group.launch);
  cost.algorithm = choice.algorithm;
  cost.protocol = choice.protocol;
  cost.ctas = channel_blocks(q, choice);
  cost.sent_per_rank = ring_bytes_sent(op, size, group.ranks);
  cost.inter_node = Bytes(std::llround(leaves_node(q, cost)));
  if (!q.one_node()) cost.nics = q.nics;
  add_link_loads(cluster, q, choice.protocol, time.transfer, cost);
  // Loads are whole bytes: the delay makes up for what rounding took.
  const Seconds transfer_time = longest_load(cost, cluster);
  cost.delay = Seconds(time.total * 1e-6) - transfer_time;
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
