#include "sim/engine/collective_call.h"

#include <algorithm>

#include "sim/base/error.h"
#include "topology/instances.h"

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

std::vector<RankRun> rank_runs(const Program& program) {
  std::vector<RankRun> runs;
  for (const ProgramRun& run : program.runs) runs.push_back({run.first, run.count, run.program});
  if (!runs.empty()) return runs;
  for (std::size_t i = 0; i < program.ranks.size(); ++i) {
    const int first = i == 0 ? 0 : program.ranks[i].representative.value();
    if (i > 0) {
      ZS_CHECK(first > runs.back().first, "rank programs in the order of their representatives");
      runs.back().count = first - runs.back().first;
    }
    runs.push_back({first, program.world_size - first, static_cast<int>(i)});
  }
  return runs;
}

std::vector<GroupPattern> group_patterns(const Program& program) {
  std::vector<GroupPattern> patterns;
  patterns.reserve(program.groups.size() + 1);
  for (const ProcessGroup& group : program.groups) patterns.push_back({group.size, group.stride});
  for (const RankProgram& rank : program.ranks) {
    for (const Collective& call : rank.collectives) {
      if (call.kind == CollectiveKind::AllToAll) patterns[call.group.index()].all_to_all = true;
    }
  }
  const auto copies = [](const RankProgram& rank) { return !rank.copies.empty(); };
  if (std::any_of(program.ranks.begin(), program.ranks.end(), copies)) {
    patterns.push_back({1, 1, /*all_to_all=*/false, /*host=*/true});
  }
  return patterns;
}

CollectiveGroup placement(const Cluster& cluster, const ProcessGroup& group) {
  return group_shape(cluster, {group.size, group.stride});
}

}  // namespace zerosim
