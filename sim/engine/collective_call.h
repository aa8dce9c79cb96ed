/// \file
/// A Program's collective in the words of the collective model: operation, and nodes that it
/// covers.
#pragma once

#include <vector>

#include "sim/program/program.h"
#include "topology/collective_model.h"
#include "topology/folding.h"

namespace zerosim {

[[nodiscard]] CollectiveOp collective_op(CollectiveKind kind);

/// Runs of ranks and their programs, for `fold`: each program's ranks begin at its representative.
[[nodiscard]] std::vector<RankRun> rank_runs(const Program& program);
/// Communicators of a program, for `fold`; and the pattern of its copies, if there are any.
[[nodiscard]] std::vector<GroupPattern> group_patterns(const Program& program);

/// Where the instance of a group lies that rank 0 is in.
[[nodiscard]] CollectiveGroup placement(const Cluster& cluster, const ProcessGroup& group);

}  // namespace zerosim
