/// \file
/// Reads `perturbations` and `jitter` of a cluster file (schema in cluster.h).
///
/// Everything is checked against the cluster that it is about: a selector that selects nothing, a
/// link that is not there or traffic that leaves nothing of one is an error, as it would silently
/// change nothing, or never end.
#pragma once

#include "sim/base/json.h"
#include "topology/cluster.h"

namespace zerosim {

/// Reads the keys `perturbations` and `jitter` of `root`, where they are there, into
/// `cluster.perturbations`, and tells each entry and default in `cluster.assumptions`. The rest of
/// the cluster must be complete.
/// \throws ConfigError  with file, line, column
void read_perturbations(JsonObject& root, Cluster& cluster);

}  // namespace zerosim
