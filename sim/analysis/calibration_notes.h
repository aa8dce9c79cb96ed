/// \file
/// A calibration in a job: what its environment makes of the entries, and what they had to say
/// about a program's collectives, in sentences.
#pragma once

#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/program/program.h"
#include "topology/calibration.h"
#include "topology/cluster.h"

namespace zerosim {

/// Fills Calibration::measured_on; leaves it empty if neither the job nor an entry has an
/// environment.
/// \param found    the cluster as the job's environment has not changed it
/// \param changes  whether the job has one
/// \throws ConfigError  naming file, entry and column, where an entry's environment is none
void find_measured_clusters(Calibration& calibration, const Cluster& found, bool changes);

/// One sentence for each operation and group of the program, in the order of their first call, as
/// `calibration_note`. None without a calibration.
[[nodiscard]] std::vector<std::string> calibration_notes(const Calibration& calibration,
                                                         const Cluster& cluster,
                                                         const Program& program);

/// Code calibration_machine: entries of other machines, which are not used.
[[nodiscard]] std::vector<Warning> calibration_warnings(const Calibration& calibration,
                                                        const Cluster& cluster);

}  // namespace zerosim
