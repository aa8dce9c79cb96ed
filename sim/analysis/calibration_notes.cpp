#include "sim/analysis/calibration_notes.h"

#include <algorithm>

#include "sim/analysis/nccl_environment.h"
#include "sim/base/environment.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "topology/calibrated_cost.h"
#include "topology/nccl_paths.h"

namespace zerosim {
namespace {

/// A line for each variable, as `env` prints them.
Environment environment_of(const CalibratedCollective& entry, const std::string& place) {
  Environment environment = parse_environment(join(entry.environment, "\n"), place);
  for (const EnvironmentVariable& variable : environment.variables) {
    if (is_followed_nccl_variable(variable.name)) continue;
    throw ConfigError(
        variable.named,
        format("found {}, expected a variable of NCCL that collectives follow", variable.name));
  }
  return environment;
}

/// nullopt: this cluster has not the links.
std::optional<Cluster> measured_cluster(const Environment& environment, Cluster found) {
  try {
    static_cast<void>(follow_nccl_variables(environment, found));
  } catch (const ConfigError& error) {
    if (error.code() != kNoWayLeft) throw;
    return std::nullopt;
  }
  return found;
}

}  // namespace

void find_measured_clusters(Calibration& calibration, const Cluster& found, bool changes) {
  const std::vector<CalibratedCollective>& entries = calibration.collectives;
  calibration.measured_on.clear();
  const bool any = std::any_of(entries.begin(), entries.end(),
                               [](const auto& entry) { return !entry.environment.empty(); });
  if (!changes && !any) return;
  calibration.measured_on.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string place = format("{}: collectives[{}].environment", calibration.file, i);
    calibration.measured_on.push_back(measured_cluster(environment_of(entries[i], place), found));
  }
}

std::vector<std::string> calibration_notes(const Calibration& calibration, const Cluster& cluster,
                                           const Program& program) {
  std::vector<std::string> notes;
  if (calibration.collectives.empty()) return notes;
  for (const Collective& call : program.ranks.front().collectives) {
    const ProcessGroup& group = program.groups[call.group.index()];
    if (group.size < 2) continue;
    std::string note =
        calibration_note(calibration, cluster, collective_op(call.kind), placement(cluster, group));
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
      notes.push_back(std::move(note));
    }
  }
  return notes;
}

std::vector<Warning> calibration_warnings(const Calibration& calibration, const Cluster& cluster) {
  std::vector<Warning> warnings;
  for (std::string& sentence : foreign_machines(calibration, cluster)) {
    warnings.push_back({"calibration_machine", std::move(sentence)});
  }
  return warnings;
}

}  // namespace zerosim
