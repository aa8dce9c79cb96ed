/// \file
/// Reads `node` of a cluster file (schema in cluster.h): a preset with some figures replaced, or a
/// node that is spelled out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/json.h"
#include "topology/presets/machines.h"

namespace zerosim {

/// A node as a preset or a file states it, before its graph is built.
struct NodeDescription {
  Machine machine;
  std::optional<BytesPerSecond> ring_bandwidth;
  Bytes gpu_memory;            ///< 0: the GPU's
  double gpu_power_limit = 0;  ///< W; 0: the board's
  bool preset_network = true;  ///< the NICs are those of the machine's preset
  std::vector<std::string> assumptions;
};

/// "nvswitch", "nvlink-mesh", "pcie", "pcie-host-staged".
[[nodiscard]] std::string_view intra_node_name(IntraNode intra);

/// \param name  what a spelled-out node is called
/// \throws ConfigError  with file, line, column; unknown GPU or preset with the nearest name.
[[nodiscard]] NodeDescription read_node(JsonObject node, const std::string& name);

}  // namespace zerosim
