/// \file
/// A Program's collective in the words of the collective model: operation, and nodes that it
/// covers.
#pragma once

#include "sim/program/program.h"
#include "topology/collective_model.h"

namespace zerosim {

[[nodiscard]] CollectiveOp collective_op(CollectiveKind kind);

/// Nodes that a group covers, as ranks fill nodes one after the other, and how many such groups
/// share them: with a stride of s ranks and g GPUs a node, a node has max(1, g / s) members of each
/// group, and so g / max(1, g / s) groups.
[[nodiscard]] CollectiveGroup placement(const Cluster& cluster, const ProcessGroup& group);

}  // namespace zerosim
