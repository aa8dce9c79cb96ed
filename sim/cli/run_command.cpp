#include "sim/analysis/prepare.h"
#include "sim/analysis/report.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "sim/engine/engine.h"
#include "sim/report/report_text.h"
#include "sim/report/traffic_text.h"
#include "traces/perfetto.h"

namespace zerosim {

namespace {

class RunCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    add_model_flags(app, flags_);
    add_cluster_flags(app, flags_);
    add_batch_flags(app, flags_);
    add_routing_flags(app, flags_);
    add_strategy_flags(app, flags_);
    add_accounting_flag(app, flags_);
    add_environment_flag(app, flags_);
    add_calibration_flag(app, flags_);
    add_simulation_flags(app, flags_);
    app.add_option("--steps", steps_,
                   "Simulate so many steps from the first one on, and show the time of each");
    app.add_option("--perfetto", perfetto_, "Write a trace for ui.perfetto.dev to this file");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override;

 private:
  [[nodiscard]] JsonValue json_of(const StrategyReport& report, const Experiment& experiment,
                                  const Timeline& timeline) const;

  void write_trace(Engine& engine, const Experiment& experiment, const SimulatedRun& run) const {
    const std::vector<MemorySample> samples = memory_over_time(experiment, run, engine);
    write_perfetto(perfetto_, run.program, run.timeline, &samples);
  }

  ExperimentFlags flags_;
  std::string steps_;
  std::string perfetto_;
  bool json_ = false;
};

std::vector<Seconds> step_durations(const Timeline& timeline) {
  std::vector<Seconds> durations;
  Seconds begin{0};
  for (const Seconds end : timeline.step_ends) {
    durations.push_back(end - begin);
    begin = end;
  }
  return durations;
}

std::string steps_text(const Timeline& timeline) {
  std::string out = "\nsteps from the first one on (ms):";
  for (const Seconds duration : step_durations(timeline)) {
    out += format(" {:.1f}", duration.count() * 1e3);
  }
  return out + "\n";
}

JsonValue RunCommand::json_of(const StrategyReport& report, const Experiment& experiment,
                              const Timeline& timeline) const {
  Comparison comparison;
  comparison.model = experiment.model.name;
  comparison.cluster = experiment.cluster.name;
  comparison.world_size = experiment.cluster.world_size();
  comparison.parameters = parameter_count(experiment.model);
  comparison.sequence = experiment.batch.sequence;
  comparison.strategies = {report};
  JsonValue json = comparison_json(comparison);
  json.removeMember("sentences");
  json["links"] = traffic_json(timeline);
  if (!steps_.empty()) {
    JsonValue& steps = json["steps"] = JsonValue(Json::arrayValue);
    for (const Seconds duration : step_durations(timeline)) steps.append(duration.count());
  }
  add_inputs(json, flags_);
  return json;
}

int RunCommand::run() {
  const int first_steps =
      steps_.empty() ? 0 : static_cast<int>(parse_integer(steps_, "--steps", kStepRange));
  const GivenExperiment given = required_experiment(flags_);
  const Experiment& experiment = given.experiment;
  const std::vector<Strategy> strategies = load_strategies(flags_, given, {});
  if (strategies.size() != 1) {
    throw ConfigError(format("found {} strategies, expected one --ds-config or one of --strategies",
                             strategies.size()));
  }
  SimulationOptions options = simulation_options(flags_);
  options.first_steps = first_steps;
  Engine engine(experiment.cluster, engine_options(experiment));
  SimulatedRun run;
  const StrategyReport report =
      simulate_strategy(experiment, strategies.front(), engine, options, &run);
  const Timeline& timeline = run.timeline;
  if (!perfetto_.empty()) write_trace(engine, experiment, run);
  if (json_) {
    print(json_of(report, experiment, timeline));
  } else {
    print(strategy_text(report, experiment) + (steps_.empty() ? "" : steps_text(timeline)));
  }
  return report.verdict == Verdict::DoesNotFit ? kNo : kYes;
}

}  // namespace

std::unique_ptr<Command> make_run_command() {
  return std::make_unique<RunCommand>();
}

}  // namespace zerosim
