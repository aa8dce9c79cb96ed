#include "sim/analysis/calibration_notes.h"

#include <algorithm>

#include "sim/engine/collective_call.h"
#include "topology/calibrated_cost.h"

namespace zerosim {

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
