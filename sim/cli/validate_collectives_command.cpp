#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "validate/collective_logs.h"

namespace zerosim {

namespace {

class ValidateCollectivesCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("logs", paths_, "What nccl-tests printed, a file a run")->required();
    app.add_option("--cluster", options_.cluster,
                   "A preset or a cluster file, of all logs (default: by the INDEX.csv beside each "
                   "log, or its list of devices)");
    app.add_option("--nodes", nodes_, "Nodes of it (default: as the log says)");
    app.add_option("--gpus-per-node", gpus_per_node_, "GPUs of each (default: as the log says)");
    app.add_option("--env", environment_, "Environment of the runs, of all logs: NCCL_* variables");
    app.add_option("--tolerance", tolerance_,
                   "Largest median of the absolute errors (default: 0.10)");
    app.add_option("--tolerance-p90", tolerance_p90_,
                   "Largest error of the best nine tenths (default: 0.35)");
    app.add_flag("-v,--verbose", sizes_, "Every size of every log, and what was assumed");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const CollectiveTolerance tolerance{parse_non_negative(tolerance_, "--tolerance"),
                                        parse_non_negative(tolerance_p90_, "--tolerance-p90")};
    read_counts();
    if (!environment_.empty()) options_.environment = read_environment(environment_);
    const CollectiveValidation validation = validate_collectives(paths_, options_);
    if (json_) {
      print(collectives_json(validation));
    } else {
      print(collectives_text(validation, sizes_));
    }
    return is_within(summary_of(validation), tolerance) ? kYes : kNo;
  }

 private:
  void read_counts() {
    if (options_.cluster.empty() && !(nodes_.empty() && gpus_per_node_.empty())) {
      throw ConfigError("--nodes and --gpus-per-node say how --cluster is used: give it, too");
    }
    if (!nodes_.empty()) {
      options_.nodes = static_cast<int>(parse_integer(nodes_, "--nodes", kNodeRange));
    }
    if (!gpus_per_node_.empty()) {
      options_.gpus_per_node =
          static_cast<int>(parse_integer(gpus_per_node_, "--gpus-per-node", kGpusPerNodeRange));
    }
  }

  std::vector<std::string> paths_;
  LogMachineOptions options_;
  std::string environment_;
  std::string nodes_;
  std::string gpus_per_node_;
  std::string tolerance_ = "0.10";
  std::string tolerance_p90_ = "0.35";
  bool sizes_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_collectives_command() {
  return std::make_unique<ValidateCollectivesCommand>();
}

}  // namespace zerosim
