#include <algorithm>
#include <string>
#include <vector>

#include "sim/analysis/cluster_ranks.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "sim/program/build.h"
#include "sim/report/report_text.h"

namespace zerosim {

namespace {

class ScheduleCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    add_model_flags(app, flags_);
    add_cluster_flags(app, flags_);
    add_world_flag(app, flags_);
    add_batch_flags(app, flags_);
    add_routing_flags(app, flags_);
    add_strategy_flags(app, flags_);
    add_accounting_flag(app, flags_);
    app.add_option("--steps", steps_, "Steps from the first one on (default: one steady step)");
    app.add_option("--rank", rank_, "Whose operations (default: 0)");
    app.add_option("--ops", ops_, "collectives (default), or all for every operation");
    app.add_option("--module", module_, "With --ops all: only this module and those below it");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    if (ops_ != "collectives" && ops_ != "all") {
      throw ConfigError(format("--ops: found \"{}\", expected collectives or all", ops_));
    }
    const Program program = build();
    check_module(program);
    if (!json_) {
      print(schedule_text(program, ops_ == "all", module_));
      return kYes;
    }
    JsonValue json = schedule_json(program);
    add_inputs(json, flags_);
    print(json);
    return kYes;
  }

 private:
  void check_module(const Program& program) const {
    if (module_.empty()) return;
    if (ops_ != "all" || json_) throw ConfigError("--module: expected --ops all, without --json");
    const std::vector<std::string>& names = program.module_names;
    if (std::find(names.begin(), names.end(), module_) == names.end()) {
      throw ConfigError(format("--module: the model has no module \"{}\"{}", module_,
                               did_you_mean(module_, names)));
    }
  }

  [[nodiscard]] Program build() const {
    std::vector<std::string> assumptions;
    BuildOptions options;
    if (!steps_.empty()) {
      options.first_step = 0;
      options.steps = static_cast<int>(parse_integer(steps_, "--steps", kStepRange));
    }
    const Model model = required_model(flags_);
    const std::optional<Cluster> cluster = optional_cluster(flags_);
    options.world_size = required_world_size(flags_, cluster);
    const BatchShape batch = batch_shape(flags_, model, assumptions);
    options.routing = routing_of(flags_, model, assumptions);
    const std::vector<Strategy> strategies =
        load_strategies(flags_, model, options.world_size, {}, assumptions);
    if (strategies.size() != 1) {
      throw ConfigError(
          format("found {} strategies, expected one --ds-config or one of --strategies",
                 strategies.size()));
    }
    const Strategy& strategy = strategies.front();
    options.pieces = LocalPieces::One;
    options.rank = Rank(
        static_cast<int>(parse_integer(rank_, "--rank", IntegerRange{0, options.world_size - 1})));
    if (cluster) options.variants = rank_variants(*cluster, Bytes());
    for (RankVariant& variant : options.variants) variant.device_memory.reset();
    Program program = build_program(model, strategy, batch_of(batch, strategy), options);
    program.assumptions = merged({model.assumptions, strategy.assumptions, program.assumptions});
    return program;
  }

  ExperimentFlags flags_;
  std::string steps_;
  std::string rank_ = "0";
  std::string ops_ = "collectives";
  std::string module_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_schedule_command() {
  return std::make_unique<ScheduleCommand>();
}

}  // namespace zerosim
