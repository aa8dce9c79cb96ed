/// \file
/// A Program's collective in the words of the collective model: operation, and nodes that it
/// covers.
#pragma once

#include "sim/program/program.h"
#include "topology/collective_model.h"

namespace zerosim {

[[nodiscard]] CollectiveOp collective_op(CollectiveKind kind);

/// Nodes that a group of `ranks` ranks covers: ranks fill nodes one after the other.
[[nodiscard]] CollectiveGroup placement(const Cluster& cluster, int ranks);

}  // namespace zerosim
