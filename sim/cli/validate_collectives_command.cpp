#include <string>
#include <vector>

#include "sim/cli/command.h"
#include "sim/cli/log_machine_flags.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "validate/collective_logs.h"

namespace zerosim {

namespace {

class ValidateCollectivesCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("logs", paths_, "What nccl-tests printed, a file a run")->required();
    add_log_machine_flags(app, machine_);
    app.add_option("--calibration", calibration_,
                   "Predict with the constants of this file (zerosim calibrate)");
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
    LogMachineOptions options = log_machine_options(machine_);
    if (!calibration_.empty()) options.calibration = read_calibration(calibration_);
    const CollectiveValidation validation = validate_collectives(paths_, options);
    const std::vector<std::string> over = exceeded(summary_of(validation), tolerance);
    if (json_) {
      JsonValue json = collectives_json(validation);
      JsonValue& exceeded = json["exceeded"] = JsonValue(Json::arrayValue);
      for (const std::string& told : over) exceeded.append(told);
      print(json);
    } else {
      std::string text = collectives_text(validation, sizes_);
      for (const std::string& told : over) text += "no: " + told + "\n";
      print(text);
    }
    return over.empty() ? kYes : kNo;
  }

 private:
  std::vector<std::string> paths_;
  LogMachineFlags machine_;
  std::string calibration_;
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
