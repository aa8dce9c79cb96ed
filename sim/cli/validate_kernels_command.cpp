#include <string>
#include <vector>

#include "sim/cli/command.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "validate/kernel_rows.h"

namespace zerosim {

namespace {

class ValidateKernelsCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("rows", paths_, "Tables with the columns of validate/kernel_rows.h")->required();
    app.add_option("--calibration", calibration_,
                   "Predict with the constants of this file (zerosim calibrate)");
    app.add_option("--tolerance", tolerance_,
                   "Largest median of the absolute errors (default: 0.10)");
    app.add_flag("-v,--verbose", verbose_, "Every row");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const double tolerance = parse_non_negative(tolerance_, "--tolerance");
    Calibration calibration;
    if (!calibration_.empty()) calibration = read_calibration(calibration_);
    const Validation validation = validate_kernels(paths_, calibration);
    if (json_) {
      print(validation_json(validation));
    } else {
      print(kernels_text(validation, verbose_));
    }
    const ValidationSummary summary = summary_of(validation.rows);
    return summary.median && *summary.median <= tolerance ? kYes : kNo;
  }

 private:
  std::vector<std::string> paths_;
  std::string calibration_;
  std::string tolerance_ = "0.10";
  bool verbose_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_kernels_command() {
  return std::make_unique<ValidateKernelsCommand>();
}

}  // namespace zerosim
