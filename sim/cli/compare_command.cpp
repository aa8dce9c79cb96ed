#include <algorithm>

#include "sim/analysis/report.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/report/report_text.h"

namespace zerosim {

namespace {

class CompareCommand : public Command {
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
    app.add_flag("--assumptions", list_assumptions_,
                 "List every default that was filled in and where constants come from");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const GivenExperiment given = required_experiment(flags_);
    const std::vector<Strategy> strategies =
        load_strategies(flags_, given, {"ddp", "zero1", "zero2", "zero3"});
    const Comparison comparison = compare(given.experiment, strategies, simulation_options(flags_));
    if (json_) {
      JsonValue json = comparison_json(comparison);
      add_inputs(json, flags_);
      print(json);
    } else {
      print(comparison_text(comparison, list_assumptions_));
    }
    const bool any_fits = std::any_of(
        comparison.strategies.begin(), comparison.strategies.end(),
        [](const StrategyReport& report) { return report.verdict != Verdict::DoesNotFit; });
    return any_fits ? kYes : kNo;
  }

 private:
  ExperimentFlags flags_;
  bool list_assumptions_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compare_command() {
  return std::make_unique<CompareCommand>();
}

}  // namespace zerosim
