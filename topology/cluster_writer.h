/// \file
/// Writes a machine as a cluster file (schema in cluster.h) with its graph drawn.
///
/// What is written reads back as the same graph, kind of node, network and host. A machine's own
/// kind of node (`Machine::intra`) is written unless it follows from the links. Only machines whose
/// GPUs are NVIDIA's.
#pragma once

#include <string>
#include <vector>

#include "topology/presets/machines.h"

namespace zerosim {

/// \param assumptions  sentences for the file's own list
[[nodiscard]] std::string cluster_file_text(const Machine& machine,
                                            const std::vector<std::string>& assumptions);

}  // namespace zerosim
