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

CollectiveGroup placement(const Cluster& cluster, int ranks) {
  const int per_node = std::max(1, cluster.gpus_per_node);
  return {ranks, std::max(1, (ranks + per_node - 1) / per_node)};
}

}  // namespace zerosim
