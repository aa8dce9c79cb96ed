#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "sim/analysis/limits.h"
#include "sim/analysis/memory_report.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "sim/memory/memory_course.h"
#include "sim/memory/model_states.h"
#include "sim/report/memory_course_text.h"
#include "sim/report/memory_text.h"

namespace zerosim {

namespace {

constexpr int kPaperWorldSize = 64;  // of the ZeRO paper's Figure 1

class MemoryCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app_ = &app;
    app.add_option("--params", params_, "Parameters, e.g. 7e9; or give --model");
    add_model_flags(app, flags_);
    add_cluster_flags(app, flags_);
    add_world_flag(app, flags_);
    add_batch_flags(app, flags_);
    add_routing_flags(app, flags_);
    add_strategy_flags(app, flags_);
    add_environment_flag(app, flags_);
    app.add_flag("--no-limits", no_limits_,
                 "Do not search for the least number of GPUs and the largest micro batch");
    app.add_option("--timeline", timeline_,
                   "Write every change of one strategy's memory over the job to this CSV file");
    app.add_flag("--plot", plot_, "Plot one strategy's memory over the job");
    app.add_option("--accounting", accounting_, "paper: as the ZeRO paper counts and prints");
    app.add_flag("--like-deepspeed", like_deepspeed_, "The tables of DeepSpeed's own estimators");
    app.add_option("--largest-layer", largest_layer_,
                   "Parameters of the largest module (default: the model's)");
    app.add_option("--stage", stage_, "Which estimate `estimator` of the JSON is (default: 3)");
    app.add_option("--offload", offload_, "Of that estimate: none (default), optimizer or all");
    app.add_flag("--no-zero-init", no_zero_init_, "Of that estimate: not built inside zero.Init");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    if (!params_.empty() && !flags_.model.empty()) {
      throw ConfigError("--params and --model are both given; expected one of them");
    }
    if (!flags_.cluster.empty() && flags_.model.empty() && !like_deepspeed_) {
      throw ConfigError(
          "--cluster needs --model: a step is replayed for a model, not for --params");
    }
    if (params_.empty() && flags_.model.empty()) {
      throw ConfigError("--params or --model is missing; expected e.g. --params 7e9");
    }
    check_flags();
    if (like_deepspeed_) return estimators();
    if (!accounting_.empty()) return paper();
    return flags_.cluster.empty() ? by_formula() : replayed();
  }

 private:
  [[nodiscard]] std::int64_t parameters() const {
    if (!params_.empty()) return parse_integer(params_, "--params", kParameterRange);
    return parameter_count(required_model(flags_));
  }

  void show(const std::string& text, JsonValue json) const {
    if (!json_) {
      print(text);
      return;
    }
    add_inputs(json, flags_);
    print(json);
  }

  /// Of a replay, where there is none.
  void check_flags() const;
  [[nodiscard]] int by_formula() const;
  [[nodiscard]] int paper() const;
  [[nodiscard]] int estimators() const;
  [[nodiscard]] int replayed() const;
  [[nodiscard]] std::string course_of(const Experiment& experiment, const Strategy& strategy) const;
  [[nodiscard]] EstimatorInput estimator_input() const;
  [[nodiscard]] EstimatorRow chosen_estimate(const EstimatorInput& input) const;

  const CLI::App* app_ = nullptr;  ///< to see what was given
  ExperimentFlags flags_;
  std::string params_;
  std::string accounting_;
  bool like_deepspeed_ = false;
  std::string largest_layer_;
  std::string stage_ = "3";
  std::string offload_ = "none";
  bool no_zero_init_ = false;
  bool no_limits_ = false;
  std::string timeline_;
  bool plot_ = false;
  bool json_ = false;
};

/// Each way reads its own flags: one that would be ignored is refused.
void MemoryCommand::check_flags() const {
  static const std::set<std::string> kModel = {
      "model", "lora", "freeze", "train-only", "input-require-grads", "params", "json", "help"};
  const auto with = [](std::set<std::string> more) {
    more.insert(kModel.begin(), kModel.end());
    return more;
  };
  if (like_deepspeed_) {
    refuse_other_flags(*app_,
                       with({"like-deepspeed", "cluster", "nodes", "gpus-per-node", "largest-layer",
                             "stage", "offload", "no-zero-init"}),
                       "has no meaning with --like-deepspeed");
  } else if (!accounting_.empty()) {
    refuse_other_flags(*app_, with({"accounting", "world", "cluster", "nodes", "gpus-per-node"}),
                       "has no meaning with --accounting paper");
  } else if (!flags_.world.empty()) {
    throw ConfigError("--world needs --accounting paper; give --cluster to replay a step");
  } else if (flags_.cluster.empty()) {
    refuse_other_flags(*app_, with({"precision"}), "needs --model and --cluster");
  } else {
    for (const char* flag : {"largest-layer", "stage", "offload", "no-zero-init"}) {
      if (app_->count(std::string("--") + flag) > 0) {
        throw ConfigError(format("--{} needs --like-deepspeed", flag));
      }
    }
  }
  if (plot_ && json_) throw ConfigError("--plot draws text; expected it without --json");
}

int MemoryCommand::by_formula() const {
  const Precision precision =
      flags_.precision.empty() ? Precision::Bf16 : parse_precision(flags_.precision, "--precision");
  const std::int64_t count = parameters();
  show(model_states_text(count, precision), model_states_json(count, precision));
  return kYes;
}

int MemoryCommand::paper() const {
  if (accounting_ != "paper") {
    throw ConfigError(format("--accounting: found \"{}\", expected paper", accounting_));
  }
  const bool placed = !flags_.world.empty() || !flags_.cluster.empty();
  const int world_size =
      placed ? required_world_size(flags_, optional_cluster(flags_)) : kPaperWorldSize;
  const std::int64_t count = parameters();
  show(paper_text(count, world_size), paper_json(count, world_size));
  return kYes;
}

EstimatorInput MemoryCommand::estimator_input() const {
  EstimatorInput input;
  const auto number = [](const std::string& text, const char* flag, const IntegerRange& range) {
    return static_cast<int>(text.empty() ? 1 : parse_integer(text, flag, range));
  };
  if (flags_.cluster.empty()) {
    input.nodes = number(flags_.nodes, "--nodes", kNodeRange);
    input.gpus_per_node = number(flags_.gpus_per_node, "--gpus-per-node", kGpusPerNodeRange);
  } else {
    const Cluster cluster = required_cluster(flags_);
    input.nodes = cluster.nodes;
    input.gpus_per_node = cluster.gpus_per_node;
  }
  input.parameters = parameters();
  if (!largest_layer_.empty()) {
    input.largest_layer = parse_integer(largest_layer_, "--largest-layer", kParameterRange);
  } else if (!flags_.model.empty()) {
    input.largest_layer = largest_module_parameters(required_model(flags_));
  } else {
    throw ConfigError("--largest-layer is missing; expected the parameters of the largest module");
  }
  return input;
}

EstimatorRow MemoryCommand::chosen_estimate(const EstimatorInput& input) const {
  if (offload_ != "none" && offload_ != "optimizer" && offload_ != "all") {
    throw ConfigError(format("--offload: found \"{}\", expected none, optimizer or all", offload_));
  }
  const auto stage = static_cast<int>(parse_integer(stage_, "--stage", {2, 3}));
  if (stage == 2 && offload_ == "all") {
    throw ConfigError("--offload all needs --stage 3: stage 2 does not offload parameters");
  }
  for (const EstimatorRow& row : deepspeed_estimates(stage, input)) {
    const bool same_init = stage < 3 || row.zero_init != no_zero_init_;
    if (row.offload_optimizer == (offload_ != "none") && row.offload_param == (offload_ == "all") &&
        same_init) {
      return row;
    }
  }
  ZS_CHECK(false, "the estimators have a row for each combination");
}

int MemoryCommand::estimators() const {
  const EstimatorInput input = estimator_input();
  const EstimatorRow chosen = chosen_estimate(input);
  show(estimator_text(input), estimator_json(input, chosen));
  return kYes;
}

StrategyReport report_of(const Experiment& experiment, const Strategy& strategy) {
  StrategyReport report;
  report.name = strategy.name;
  report.stage = strategy.framework == Framework::DeepSpeed ? strategy.zero.stage : 0;
  const Program program = memory_program(experiment, strategy);
  AllocatorObserver observer(program, allocator_setup(experiment, program));
  replay(program, observer);
  report.memory = memory_report(experiment, strategy, program, observer);
  report.verdict = verdict_of(report.memory);
  report.assumptions =
      merged({experiment.model.assumptions, experiment.cluster.assumptions, strategy.assumptions,
              program.assumptions, memory_assumptions(program)});
  report.warnings = strategy.warnings;
  return report;
}

Comparison comparison_of(const Experiment& experiment, const std::vector<Strategy>& strategies) {
  Comparison comparison;
  comparison.model = experiment.model.name;
  comparison.cluster = experiment.cluster.name;
  comparison.world_size = experiment.cluster.world_size();
  comparison.parameters = parameter_count(experiment.model);
  comparison.sequence = experiment.batch.sequence;
  for (const Strategy& strategy : strategies) {
    comparison.strategies.push_back(report_of(experiment, strategy));
  }
  return comparison;
}

/// Writes the timeline that `--timeline` names. \returns the plot, or "" without `--plot`.
std::string MemoryCommand::course_of(const Experiment& experiment, const Strategy& strategy) const {
  const Program program = memory_program(experiment, strategy);
  const AllocatorSetup setup = allocator_setup(experiment, program);
  const std::vector<MemoryEvent> course = memory_course(program, setup);
  if (!timeline_.empty()) write_memory_csv(timeline_, program, course);
  const Bytes limit = setup.allocator.capacity - setup.allocator.other;
  return plot_ ? memory_plot(program, course, limit) + "\n" : "";
}

int MemoryCommand::replayed() const {
  const GivenExperiment given = required_experiment(flags_);
  const Experiment& experiment = given.experiment;
  const std::vector<Strategy> strategies =
      load_strategies(flags_, given, {"ddp", "zero1", "zero2", "zero3"});
  const bool one_course = plot_ || !timeline_.empty();
  if (one_course && strategies.size() != 1) {
    throw ConfigError(
        format("{}: found {} strategies, expected one --ds-config or one of --strategies",
               plot_ ? "--plot" : "--timeline", strategies.size()));
  }
  const Comparison comparison = comparison_of(experiment, strategies);
  std::vector<MemoryLimits> limits;
  for (const Strategy& strategy : strategies) {
    if (no_limits_) break;
    limits.push_back({least_gpus(experiment, strategy), largest_micro_batch(experiment, strategy)});
  }
  const std::string plot = one_course ? course_of(experiment, strategies.front()) : "";
  show(plot + memory_comparison_text(comparison, limits),
       memory_comparison_json(comparison, limits));
  const bool any_fits = std::any_of(
      comparison.strategies.begin(), comparison.strategies.end(),
      [](const StrategyReport& report) { return report.verdict != Verdict::DoesNotFit; });
  return any_fits ? kYes : kNo;
}

}  // namespace

std::unique_ptr<Command> make_memory_command() {
  return std::make_unique<MemoryCommand>();
}

}  // namespace zerosim
