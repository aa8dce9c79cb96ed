/// \file
/// A Program's collective in the words of the collective model: operation, and nodes that it
/// covers.
#pragma once

#include "sim/program/program.h"
#include "topology/collective_model.h"

namespace zerosim {

[[nodiscard]] CollectiveOp collective_op(CollectiveKind kind);

/// Nodes that a group covers: ranks fill nodes one after the other. Of groups whose ranks are not
/// neighbours, as many lie side by side on a node as ranks lie between two.
[[nodiscard]] CollectiveGroup placement(const Cluster& cluster, const ProcessGroup& group);

}  // namespace zerosim
