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
  }
  return CollectiveOp::AllReduce;
}

CollectiveGroup placement(const Cluster& cluster, const ProcessGroup& group) {
  const int gpus = std::max(1, cluster.gpus_per_node);
  const int members = std::max(1, gpus / group.stride);  // of a node
  const int nodes = std::max(1, (group.size + members - 1) / members);
  return {group.size, nodes, gpus / members};
}

}  // namespace zerosim
