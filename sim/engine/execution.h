/// \file
/// One run of one program (engine.h, Rules of execution).
#pragma once

#include <vector>

#include "sim/engine/costs.h"
#include "sim/engine/engine.h"
#include "sim/engine/machine.h"

namespace zerosim::internal {

struct RunSetup {
  const Program* program = nullptr;
  const Folding* folding = nullptr;
  const std::vector<CompetingJob>* jobs = nullptr;
  Jitter jitter;
  int repetition = 0;
  int launch_queue_depth = 1;
  int ranks_of_a_node = 1;  ///< that share its host memory
  AllocationObserver* observer = nullptr;
  CollectiveForm form = CollectiveForm::Fluid;
};

/// The machine has room for the folding's rank classes and links.
[[nodiscard]] Timeline execute(const RunSetup& setup, Machine& machine, Costs& costs);

}  // namespace zerosim::internal
