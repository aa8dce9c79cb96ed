/// \file
/// Reads `fabric` of a cluster file (schema in cluster.h).
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "topology/fabric.h"
#include "topology/nccl_graph.h"

namespace zerosim {

/// What defaults of a fabric depend on.
struct FabricContext {
  NetworkKind network = NetworkKind::InfiniBand;
  int nics = 1;  ///< of a node
  int compute_capability = 90;
  int nvlink_domain_nodes = 1;  ///< of the machine
};

/// \param assumptions  where each default that is filled in is told
/// \throws ConfigError  with file, line, column; unknown kinds and keys with the nearest name
[[nodiscard]] Fabric read_fabric(JsonObject object, const FabricContext& context,
                                 std::vector<std::string>& assumptions);

}  // namespace zerosim
