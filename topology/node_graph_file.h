/// \file
/// Reads `node.graph` of a cluster file (schema in cluster.h): the node's devices one by one, and
/// what hangs from what.
#pragma once

#include "sim/base/json.h"
#include "topology/gpu.h"
#include "topology/node_graph.h"

namespace zerosim {

/// Fills the devices and links of `shape`; `shape.pcie` must be there.
/// \param nvlink  peak of all NVLinks of one GPU, one direction; 0: the GPU has none
/// \throws ConfigError  with file, line, column.
void read_node_graph(JsonObject graph, const GpuSpec& gpu, BytesPerSecond nvlink, NodeShape& shape);

}  // namespace zerosim
