/// \file
/// What NCCL does with one collective and what it costs (spec/nccl_cost.md sections 1 to 7).
///
///     t(S) = max(floor, launch + A + V/B + min(kappa sqrt(A V/B), 2.5 A))
///
/// A: latency of the chosen algorithm and protocol; B: its bus bandwidth; V: bytes that each rank
/// sends. The engine charges the V/B part as bytes on link classes, where it contends, and the rest
/// as a delay.
///
/// The choice of algorithm and protocol is NCCL's, made with its own idea of the links
/// (nccl_tuning.h); B then is what the links really give: rings, NICs and fabric at their
/// efficiency. Alone, the loads last V/B: the narrowest link class carries (V/B) x its capacity,
/// which for LL (half of the bytes are flags) is more than V; wider classes carry the bytes on the
/// wire.
///
/// To NCCL's own latency come: the launch (LaunchMode, network threads between nodes), every step
/// of a broadcast's or reduction's pipeline, the staging of steps through host memory, and for
/// reduction in a switch with more than eight GPUs, each GPU more. The square root is the pipeline
/// that fills; it ends at 2.5 A, when it is full. kappa is the node's on one node, 0.8 between
/// nodes, 1 for NVLS; LL and LL128 have 0.75 of it. Constants and what they were fitted on:
/// collective_model.cpp.
///
/// NCCL chooses without the bend, so that where it changes protocol the time may step down, by up
/// to 13 % (8 nodes of H100: all-gathers at 1.8 MB, all-reduces at 220 kB). And it chooses for a
/// broadcast or a reduction by one step, where the pipeline pays one at every rank: over many ranks
/// the time jumps up where it leaves LL (8 trays of GB200, broadcasts: 36 to 127 us between 1.7 and
/// 2.4 MiB). No log at hand shows or refutes that jump.
///
/// All-to-all is grouped sends and receives: all peers at once, so one step of latency in a node
/// and one between nodes; what leaves a node goes through its NICs for each of its GPUs.
///
/// Where InfiniBand's switches reduce (Fabric::sharp), all-reduces have NVLS over nodes and
/// CollNet; with one GPU a node gathers and scatters have PAT.
///
/// NCCL_* variables of the job (Cluster::nccl_settings, nccl_settings.h) take pairs and channels
/// away. A collective that few channels make slow still counts as one that fills the links: two at
/// once share what one could have had.
///
/// Of an older release (NcclSettings::release) what came later is missing, and before 2.8
/// reduce-scatters and all-gathers take longer whose shares do not begin on 16 bytes.
///
/// Not modelled: tuner plugins, SHARP's all-gather and reduce-scatter, user-registered buffers.
#pragma once

#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "topology/cluster.h"

namespace zerosim {

enum class CollectiveOp { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll };
enum class Algorithm { Ring, Tree, Nvls, NvlsTree, CollNetDirect, CollNetChain, Pat };
enum class Protocol { LowLatency, LowLatency128, Simple };

/// Words of the recordings: "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", ...
[[nodiscard]] std::string_view to_string(CollectiveOp op);
[[nodiscard]] std::string_view to_string(Algorithm algorithm);
[[nodiscard]] std::string_view to_string(Protocol protocol);

/// How programs launch. Training has a process for each GPU.
struct LaunchMode {
  int ranks_per_process = 1;  ///< one thread launches on so many GPUs, one after the other
  /// NCCL before 2.9, several GPUs a process: kernels begin when all of them are launched.
  bool as_group = false;
  bool operator==(const LaunchMode&) const = default;
};

/// Ranks that take part: `ranks` in all, spread evenly over `nodes`.
struct CollectiveGroup {
  int ranks = 1;
  int nodes = 1;  ///< as NCCL counts them: GPUs that NVLink joins are on one
  int nics = 0;   ///< that the group drives on each of them; 0: all that the used GPUs drive
  /// Of the fabric's switches, mean over the steps of the ring from node to node.
  Seconds network_latency{0};
  LaunchMode launch{};
  bool operator==(const CollectiveGroup&) const = default;
};

/// All ranks of the cluster.
[[nodiscard]] CollectiveGroup world_group(const Cluster& cluster);

/// Bytes on one link of a class. Of Network what all NICs of the group on one node move together;
/// of Fabric the same without what a protocol's limits take of a NIC (bytes on the wire): what a
/// ring sends from one node to the next.
struct LinkLoad {
  LinkClass::Kind kind = LinkClass::Kind::IntraNode;
  Bytes bytes;
};

struct CollectiveCost {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  Seconds delay{0};             ///< latency part, before the transfer; loads no link
  std::vector<LinkLoad> loads;  ///< transfer part, device memory traffic included
  int ctas = 0;                 ///< SMs held from launch to end
  Bytes sent_per_rank;          ///< ring counting, section 1: for reports
  /// What this group sends out of each node: V of section 1, as a ring does; 0 on one node.
  Bytes inter_node;
  int nics = 0;  ///< of each node, among which the load of the network spreads; 0: all used ones
  /// Without contention: delay + the longest of the loads, device memory at 0.85 of its datasheet
  /// rate. A fabric narrower than the NICs is for the engine to find out.
  [[nodiscard]] Seconds idle_time(const Cluster& cluster) const;
  /// The same without the delay.
  [[nodiscard]] Seconds transfer_time(const Cluster& cluster) const;
};

/// \param size  the full vector as nccl-tests counts it: the gathered output of an all-gather, the
///              whole input of a reduce-scatter or all-to-all.
/// A group of one rank costs nothing but a launch: no loads, delay 0. So does an empty collective,
/// which NCCL drops.
[[nodiscard]] CollectiveCost collective_cost(const Cluster& cluster, CollectiveOp op, Bytes size,
                                             const CollectiveGroup& group);

/// NCCL's own prediction for one algorithm and protocol (section 2.1), without floor and kappa;
/// not finite where the pair is not available. Checked against data/nccl/tuning_vectors.csv.
[[nodiscard]] Seconds nccl_predicted_time(const Cluster& cluster, CollectiveOp op, Bytes size,
                                          const CollectiveGroup& group, Algorithm algorithm,
                                          Protocol protocol);

/// Whether NCCL has a pair for the operation that the environment allows (Cluster::nccl_settings).
/// If not, `collective_cost` takes rings, as NCCL did before 2.24; later ones fail.
[[nodiscard]] bool has_nccl_choice(const Cluster& cluster, CollectiveOp op,
                                   const CollectiveGroup& group);

/// Bytes that each rank sends, ring counting (section 1): of a size that the ranks do not divide,
/// the rank with most, whole bytes.
[[nodiscard]] Bytes ring_bytes_sent(CollectiveOp op, Bytes size, int ranks);

}  // namespace zerosim
