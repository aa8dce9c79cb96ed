/// \file
/// What a node's links could carry at best: max-flow questions on its graph.
///
/// Each link carries its rate in each direction at the same time; GPUs, switches and CPUs pass on
/// whatever comes in. The graph asked about holds the first `gpus` GPUs of the node: idle ones pass
/// nothing on. Where NVLinks alone join those GPUs, only NVLinks are asked, as NCCL uses nothing
/// else then; otherwise all links of the node.
///
/// **Bisection.** The least, over the ways to cut the GPUs in two halves (of an odd number the
/// smaller one rounded down), of the largest flow from one half to the other.
///
/// **All-gather.** Each of N GPUs sends its shard to all others, all at once, at x bytes/s each.
/// What a set S of devices, which some GPU is not in, must let out is the shards of its GPUs, so
///
///     x = min over S of B+(S) / |S ∩ GPUs|        B+(S): sum of the rates of links that leave S
///
/// and x is reached, too, even where switches cannot copy (Zhao et al., "ForestColl: Throughput-
/// Optimal Collective Communications on Heterogeneous Network Fabrics", 2024, theorem 1). A GPU
/// then receives (N-1) x: the bound of nccl-tests' busbw for an all-gather, and for a
/// reduce-scatter, which is the same backwards.
///
/// It is found by that paper's test: x is feasible if, with a source that feeds x to each GPU, the
/// largest flow from the source to every GPU is N x. Where one is less, its minimum cut is an S
/// that allows less, whose ratio is tried next; this ends at the exact ratio after a few rounds.
/// Rates count whole bytes per second.
///
/// Not modelled: protocol overhead, limits inside CPUs and of staging in host memory, multicast in
/// switches (NVLS: all-reduce may exceed the bound, a gather does not).
#pragma once

#include <vector>

#include "topology/cluster.h"

namespace zerosim {

/// Links that the questions are about.
enum class FlowLinks { NvLink, All };

/// NvLink where NVLinks join the first `gpus` GPUs, at least two.
[[nodiscard]] FlowLinks flow_links(const NodeGraph& graph, int gpus);

struct Bisection {
  BytesPerSecond bandwidth;  ///< from one half to the other, one direction
  std::vector<int> half;     ///< GPUs of the half that holds GPU 0
  bool every_half = true;    ///< false: only this half was asked, the first GPUs against the rest
};

/// All halves of up to 16 GPUs are tried; of more only the first half against the second.
/// \pre gpus >= 2
[[nodiscard]] Bisection bisection(const NodeGraph& graph, int gpus);

struct AllGatherBound {
  BytesPerSecond shard;      ///< x: what each GPU can send of its shard
  BytesPerSecond received;   ///< (N-1) x: per GPU
  std::vector<int> senders;  ///< GPUs in the set that limits it
  BytesPerSecond outflow;    ///< of that set
};

/// \pre gpus >= 2, and they reach each other
[[nodiscard]] AllGatherBound all_gather_bound(const NodeGraph& graph, int gpus);

}  // namespace zerosim
