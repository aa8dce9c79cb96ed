/// \file
/// What a calibration had to say about a program's collectives, in sentences.
#pragma once

#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/program/program.h"
#include "topology/calibration.h"
#include "topology/cluster.h"

namespace zerosim {

/// One sentence for each operation and group of the program, in the order of their first call, as
/// `calibration_note`. None without a calibration.
[[nodiscard]] std::vector<std::string> calibration_notes(const Calibration& calibration,
                                                         const Cluster& cluster,
                                                         const Program& program);

/// Code calibration_machine: entries of other machines, which are not used.
[[nodiscard]] std::vector<Warning> calibration_warnings(const Calibration& calibration,
                                                        const Cluster& cluster);

}  // namespace zerosim
