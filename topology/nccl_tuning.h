/// \file
/// NCCL's own idea of a collective: which pairs of algorithm and protocol it has, and the line
/// latency + size / bandwidth that it expects of each (spec/nccl_cost.md section 2). For
/// collective_model.cpp; what links really give is not here.
#pragma once

#include <array>
#include <limits>

#include "topology/collective_model.h"

namespace zerosim::nccl {

/// One value a protocol: LL, LL128, Simple.
using PerProtocol = std::array<double, 3>;

/// One node, two nodes, more.
using PerScale = std::array<double, 3>;

/// Limits of one GPU generation, GB/s.
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
  bool nvswitch = false;
  bool sharp = false;  ///< switches between the nodes reduce
  bool amd = false;
  double extra_network_latency = 0;  ///< us; twice for Simple
  double switch_latency = 0;         ///< us, once
  NcclGraph graph;
  NcclAllowed allowed;  ///< of this operation
  int release = kModelledNcclRelease;
  int threads = 0;  ///< of a block, LL and Simple; 0: the usual ones

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
  /// The same of trees: on two nodes NCCL counts their speed inside the nodes.
  [[nodiscard]] double tree_bus() const;
  [[nodiscard]] bool is_pipeline() const {
    return op == CollectiveOp::Broadcast || op == CollectiveOp::Reduce;
  }
  [[nodiscard]] bool shares() const {
    return op == CollectiveOp::AllGather || op == CollectiveOp::ReduceScatter;
  }
  /// Steps of a ring as NCCL counts them.
  [[nodiscard]] int steps() const {
    if (is_pipeline()) return ranks;
    return op == CollectiveOp::AllReduce ? 2 * (ranks - 1) : ranks - 1;
  }
};

/// Latency in microseconds and algorithm bandwidth in GB/s; not available: infinite latency.
struct Line {
  double latency = std::numeric_limits<double>::infinity();
  double bandwidth = 1;
  [[nodiscard]] double transfer(double size) const { return size / bandwidth * 1e-3; }  ///< us
  [[nodiscard]] double time(double size) const { return latency + transfer(size); }
};

struct Choice {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
};

[[nodiscard]] std::size_t at(Algorithm algorithm);
[[nodiscard]] std::size_t at(Protocol protocol);

[[nodiscard]] const Generation& generation_of(const GpuSpec& gpu);

/// NCCL drops channels of a small collective until each has enough to do (nccl_cost.md section 4):
/// how many of `most` stay, as a fraction of threads' work; at least 1.
[[nodiscard]] double kept_channels(const Question& q, const Choice& choice, int most);

/// A broadcast or reduction as it is: through every rank, where NCCL's line counts one step.
[[nodiscard]] double pipeline_latency(const Question& q, const Choice& choice);

/// NCCL's expectation of one pair, without floor and bend.
[[nodiscard]] Line line(const Question& q, const Choice& choice);

/// Whether some allowed pair does the operation.
[[nodiscard]] bool has_choice(const Question& q);

/// The least predicted time; the first of equals in the order of the enumerations.
[[nodiscard]] Choice choose(const Question& q);

}  // namespace zerosim::nccl
