// Uses the installed headers and libraries: one answer of each stage of the pipeline.

#include <cstdio>

#include "sim/analysis/report.h"
#include "sim/base/error.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"

int main() {
  try {
    zerosim::Experiment experiment{
        zerosim::load_model("gpt2"), zerosim::load_cluster("dgx-a100-80", 1, 2), {}, {}};
    experiment.batch.sequence = 512;
    zerosim::TrainingFlags flags;
    flags.micro_batch = 1;
    const zerosim::Comparison comparison = zerosim::compare(
        experiment,
        {zerosim::named_strategy("ddp", flags, 2), zerosim::named_strategy("zero3", flags, 2)});
    for (const zerosim::StrategyReport& report : comparison.strategies) {
      std::printf("%s: %lld bytes, %.6f s\n", report.name.c_str(),
                  static_cast<long long>(report.memory.peak_allocated.count()),
                  report.time.step.count());
    }
    // GPT-2 as published has 124,439,808 parameters; stage 3 holds less than DDP.
    const bool expected = zerosim::parameter_count(experiment.model) == 124439808 &&
                          comparison.strategies.at(1).memory.model_states <
                              comparison.strategies.at(0).memory.model_states;
    return expected ? 0 : 1;
  } catch (const zerosim::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
