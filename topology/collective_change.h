/// \file
/// Whether a change of a cluster changes its collectives: what a job's environment does is told by
/// what comes of it, not by what it asks for.
///
/// Two clusters are compared by the costs of `collective_cost`: algorithm, protocol, delay,
/// transfer alone and SMs, of every operation, at sizes from 256 B to 16 GiB (steps of 4), among
///
/// - GPUs that NVLink or a node joins: 2 to 8 of them, further powers of two, all;
/// - one or all GPUs of each of 2 nodes, of all nodes (as NCCL counts nodes), by one adapter or
/// all.
///
/// Not compared: other sizes and groups; how collectives contend with other traffic.
#pragma once

#include <vector>

#include "topology/cluster.h"
#include "topology/collective_model.h"

namespace zerosim {

/// The groups above, of more than one rank.
[[nodiscard]] std::vector<CollectiveGroup> usual_groups(const Cluster& cluster);

/// Whether the operation costs the same at every size.
[[nodiscard]] bool costs_alike(const Cluster& a, const Cluster& b, CollectiveOp op,
                               const CollectiveGroup& group);

/// Of all operations and groups; both must have as many ranks on as many nodes as NCCL counts them.
[[nodiscard]] bool collectives_alike(const Cluster& a, const Cluster& b);

}  // namespace zerosim
