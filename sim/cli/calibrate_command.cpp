#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/log_machine_flags.h"
#include "sim/cli/output.h"
#include "validate/fit_collectives.h"
#include "validate/fit_kernels.h"

namespace zerosim {

namespace {

class CalibrateCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("logs", paths_,
                   "What nccl-tests printed, a file a run; or tables (.csv) of measured kernels")
        ->required();
    app.add_option("-o,--output", output_, "Calibration file to write (default: none)");
    add_log_machine_flags(app, machine_);
    app.add_option("--hold-out", hold_out_,
                   "Sizes, or kernels, that the fit does not see and is then tried on: none "
                   "(default), every-second or largest-third");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const HoldOut hold_out = parse_hold_out(hold_out_, "--hold-out");
    const auto is_table = [](const std::string& path) { return path.ends_with(".csv"); };
    if (std::all_of(paths_.begin(), paths_.end(), is_table)) return run_kernels(hold_out);
    if (std::any_of(paths_.begin(), paths_.end(), is_table)) {
      throw ConfigError(
          "logs: found tables of kernels (.csv) among logs of nccl-tests, expected one kind a run");
    }
    const CollectiveFit fit = fit_collectives(paths_, hold_out, log_machine_options(machine_));
    const bool any = !fit.logs.empty();
    if (any && !output_.empty()) write_file(output_, calibration_text(calibration_of(fit)));
    if (json_) {
      print(fit_json(fit));
    } else {
      print(fit_text(fit) + written(fit));
    }
    return any ? kYes : kNo;
  }

 private:
  int run_kernels(HoldOut hold_out) {
    const KernelFit fit = fit_kernels(paths_, hold_out);
    const bool any = !fit.gpus.empty();
    const Calibration calibration{output_, {}, fit.gpus};
    if (any && !output_.empty()) write_file(output_, calibration_text(calibration));
    std::string text = kernel_fit_text(fit);
    if (!output_.empty()) {
      text += any ? format("\nwrote {}: kernels of {} GPUs\n", output_, fit.gpus.size())
                  : format("\n{} is not written: nothing was fitted\n", output_);
    }
    if (json_) {
      print(kernel_fit_json(fit));
    } else {
      print(text);
    }
    return any ? kYes : kNo;
  }

  [[nodiscard]] std::string written(const CollectiveFit& fit) const {
    if (output_.empty()) return "";
    if (fit.logs.empty()) return format("\n{} is not written: nothing was fitted\n", output_);
    const std::size_t n = fit.logs.size();
    return format("\nwrote {}: {} collective{}\n", output_, n, n == 1 ? "" : "s");
  }

  std::vector<std::string> paths_;
  LogMachineFlags machine_;
  std::string output_;
  std::string hold_out_ = "none";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_calibrate_command() {
  return std::make_unique<CalibrateCommand>();
}

}  // namespace zerosim
