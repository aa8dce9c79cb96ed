#include <utility>

#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "sim/report/check_text.h"

namespace zerosim {

namespace {

class CheckCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("file", file_,
                   "A DeepSpeed file, an `accelerate config` file, a Trainer's fsdp_config or file "
                   "of arguments");
    add_model_flags(app, flags_);
    app.add_option("--gpus,--world", flags_.world, "Ranks in all; or give --cluster");
    add_cluster_flags(app, flags_);
    add_training_flags(app, flags_);
    app.add_flag("--codes", codes_, "List every code that a check may report");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    if (codes_) return list_codes();
    if (file_.empty()) {
      throw ConfigError("a file is missing; expected e.g. `zerosim check ds_config.json --gpus 8`");
    }
    const ConfigCheck check = read();
    if (json_) {
      JsonValue json = check_json(check);
      ExperimentFlags inputs = flags_;
      inputs.ds_configs = {file_};
      add_inputs(json, inputs);
      print(json);
    } else {
      print(check_text(check));
    }
    switch (check.verdict()) {
      case ConfigVerdict::Ok:
        return kYes;
      case ConfigVerdict::Warn:
        return kNo;
      case ConfigVerdict::Error:
        break;
    }
    return kBadInput;
  }

 private:
  [[nodiscard]] int list_codes() const {
    if (json_) {
      print(config_codes_json());
    } else {
      print(config_codes_text());
    }
    return kYes;
  }

  /// Flags, model and cluster must be right; only what the file says becomes a verdict.
  [[nodiscard]] ConfigCheck read() const {
    TrainingFlags training = training_flags(flags_);
    const Model model = flags_.model.empty() ? Model() : required_model(flags_);
    ConfigCheck check;
    check.file = file_;
    check.model = model.name;
    check.world_size = world_size(training);
    static_cast<void>(read_file(file_));
    try {
      check.strategy = load_training_config(file_, training, model, check.world_size);
    } catch (const ConfigError& error) {
      check.error = error;
    }
    return check;
  }

  /// Of --cluster, --gpus, or --nodes x --gpus-per-node, which need no cluster here.
  [[nodiscard]] int world_size(TrainingFlags& training) const {
    const bool per_node = !flags_.gpus_per_node.empty() && flags_.cluster.empty();
    if (!per_node || !flags_.world.empty()) {
      return required_world_size(flags_, optional_cluster(flags_));
    }
    const std::int64_t gpus =
        parse_integer(flags_.gpus_per_node, "--gpus-per-node", kGpusPerNodeRange);
    const std::int64_t nodes =
        flags_.nodes.empty() ? 1 : parse_integer(flags_.nodes, "--nodes", kNodeRange);
    training.gpus_per_node = static_cast<int>(gpus);
    return static_cast<int>(nodes * gpus);
  }

  ExperimentFlags flags_;
  std::string file_;
  bool codes_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_check_command() {
  return std::make_unique<CheckCommand>();
}

}  // namespace zerosim
