#include "topology/collective_change.h"

#include <algorithm>
#include <array>

namespace zerosim {
namespace {

constexpr std::array kAll = {CollectiveOp::AllReduce,     CollectiveOp::AllGather,
                             CollectiveOp::ReduceScatter, CollectiveOp::Broadcast,
                             CollectiveOp::Reduce,        CollectiveOp::AllToAll};
constexpr std::int64_t kSmallest = 256;
constexpr std::int64_t kLargest = std::int64_t{1} << 34;

bool alike(const CollectiveCost& a, const Cluster& of_a, const CollectiveCost& b,
           const Cluster& of_b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol && a.delay == b.delay &&
         a.ctas == b.ctas && a.transfer_time(of_a) == b.transfer_time(of_b);
}

CollectiveGroup group_of(int ranks, int nodes, int nics = 0) {
  CollectiveGroup group;
  group.ranks = ranks;
  group.nodes = nodes;
  group.nics = nics;
  return group;
}

}  // namespace

std::vector<CollectiveGroup> usual_groups(const Cluster& cluster) {
  constexpr int kEach = 8;  // that are tried one by one
  const CollectiveGroup world = world_group(cluster);
  const int joined = world.nodes == 1 ? world.ranks : world.ranks / world.nodes;
  std::vector<CollectiveGroup> groups;
  for (int ranks = 2; ranks < joined; ranks += ranks < kEach ? 1 : ranks) {
    groups.push_back(group_of(ranks, 1));
  }
  if (joined > 1) groups.push_back(group_of(joined, 1));
  if (world.nodes == 1) return groups;
  for (const int nodes : {2, world.nodes}) {
    groups.push_back(group_of(nodes, nodes, 1));
    groups.push_back(group_of(nodes * joined, nodes));
  }
  return groups;
}

bool costs_alike(const Cluster& a, const Cluster& b, CollectiveOp op,
                 const CollectiveGroup& group) {
  for (std::int64_t size = kSmallest; size <= kLargest; size *= 4) {
    if (!alike(collective_cost(a, op, Bytes(size), group), a,
               collective_cost(b, op, Bytes(size), group), b)) {
      return false;
    }
  }
  return true;
}

bool collectives_alike(const Cluster& a, const Cluster& b) {
  if (world_group(a) != world_group(b)) return false;
  const std::vector<CollectiveGroup> groups = usual_groups(a);
  return std::all_of(kAll.begin(), kAll.end(), [&](CollectiveOp op) {
    return std::all_of(groups.begin(), groups.end(),
                       [&](const CollectiveGroup& group) { return costs_alike(a, b, op, group); });
  });
}

}  // namespace zerosim
