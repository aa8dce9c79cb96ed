// Several strategies for one question, side by side.

#include "sim/analysis/advice.h"
#include "sim/analysis/report.h"
#include "sim/engine/engine.h"

namespace zerosim {

Comparison compare(const Experiment& experiment, const std::vector<Strategy>& strategies,
                   const SimulationOptions& options) {
  Comparison comparison;
  comparison.model = experiment.model.name;
  comparison.cluster = experiment.cluster.name;
  comparison.world_size = experiment.cluster.world_size();
  comparison.parameters = parameter_count(experiment.model);
  comparison.sequence = experiment.batch.sequence;
  Engine engine(experiment.cluster, engine_room(experiment, strategies, options));
  for (const Strategy& strategy : strategies) {
    comparison.strategies.push_back(simulate_strategy(experiment, strategy, engine, options));
  }
  comparison.sentences = choice(experiment, strategies, comparison.strategies);
  return comparison;
}

}  // namespace zerosim
