// Several strategies for one question, side by side.

#include <utility>
#include <vector>

#include "sim/analysis/advice.h"
#include "sim/analysis/prepare.h"
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
  EngineOptions room = engine_options(experiment);
  std::vector<PreparedStrategy> prepared;
  prepared.reserve(strategies.size());
  for (const Strategy& strategy : strategies) {
    prepared.push_back(prepare(experiment, strategy, options));
    make_room(prepared.back(), room);
  }
  Engine engine(experiment.cluster, room);
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    comparison.strategies.push_back(
        simulate_prepared(experiment, strategies[i], std::move(prepared[i]), engine, options));
  }
  comparison.sentences = choice(experiment, strategies, comparison.strategies);
  return comparison;
}

}  // namespace zerosim
