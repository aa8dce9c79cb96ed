#include "sim/engine/collective_call.h"

#include <algorithm>

namespace zerosim {

CollectiveOp collective_op(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return CollectiveOp::AllReduce;
    case CollectiveKind::AllGather:
      return CollectiveOp::AllGather;
    case CollectiveKind::ReduceScatter:
      return CollectiveOp::ReduceScatter;
    case CollectiveKind::Broadcast:
      return CollectiveOp::Broadcast;
    case CollectiveKind::Reduce:
      return CollectiveOp::Reduce;
    case CollectiveKind::AllToAll:
      return CollectiveOp::AllToAll;
  }
  return CollectiveOp::AllReduce;
}

CollectiveGroup placement(const Cluster& cluster, const ProcessGroup& group) {
  const int per_node = std::max(1, cluster.gpus_per_node);
  const int last = (group.size - 1) * group.stride;
  // Far apart, each rank has a node of its own.
  const int nodes = std::min(group.size, last / per_node + 1);
  return {group.size, nodes, nodes > 1 ? std::min(group.stride, per_node) : 1};
}

}  // namespace zerosim
