#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/log_machine_flags.h"
#include "sim/cli/output.h"
#include "validate/csv.h"
#include "validate/fit_collectives.h"
#include "validate/fit_host.h"
#include "validate/fit_kernels.h"
#include "validate/published_runs.h"

namespace zerosim {

namespace {

constexpr int kJsonVersion = 1;

/// Files by what they hold.
struct Inputs {
  std::vector<std::string> logs, kernels, runs;
};

Inputs inputs_of(const std::vector<std::string>& paths) {
  Inputs inputs;
  for (const std::string& path : paths) {
    if (!path.ends_with(".csv")) {
      inputs.logs.push_back(path);
    } else if (is_runs_table(read_csv(path))) {
      inputs.runs.push_back(path);
    } else {
      inputs.kernels.push_back(path);
    }
  }
  return inputs;
}

/// What was fitted of one kind of input.
struct Part {
  const char* kind;  ///< key in JSON
  std::string text;
  JsonValue json;
  std::string written;  ///< "2 collectives"; empty: nothing was fitted
};

class CalibrateCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("inputs", paths_,
                   "What nccl-tests printed, a file a run; tables (.csv) of measured kernels, or "
                   "of training runs, told by their columns")
        ->required();
    app.add_option("-o,--output", output_, "Calibration file to write (default: none)");
    add_log_machine_flags(app, machine_);
    app.add_option("--hold-out", hold_out_,
                   "Sizes, kernels, or groups of runs, that the fit does not see and is then tried "
                   "on: none (default; of runs, the groups for judging of zerosim's split), "
                   "every-second or largest-third");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    std::optional<HoldOut> hold_out;
    if (!hold_out_.empty()) hold_out = parse_hold_out(hold_out_, "--hold-out");
    const Inputs inputs = inputs_of(paths_);
    const LogMachineOptions machine = log_machine_options(machine_);
    Calibration calibration;
    calibration.file = output_;
    std::vector<Part> parts;
    if (!inputs.logs.empty()) {
      parts.push_back(
          fit_logs(inputs.logs, hold_out.value_or(HoldOut::None), machine, calibration));
    }
    if (!inputs.kernels.empty()) {
      parts.push_back(fit_tables(inputs.kernels, hold_out.value_or(HoldOut::None), calibration));
    }
    if (!inputs.runs.empty()) parts.push_back(fit_runs(inputs.runs, hold_out, calibration));
    const bool any = !calibration.empty();
    if (any && !output_.empty()) write_file(output_, calibration_text(calibration));
    print_parts(parts);
    return any ? kYes : kNo;
  }

 private:
  static Part fit_logs(const std::vector<std::string>& paths, HoldOut hold_out,
                       const LogMachineOptions& machine, Calibration& calibration) {
    const CollectiveFit fit = fit_collectives(paths, hold_out, machine);
    calibration.collectives = calibration_of(fit).collectives;
    const std::size_t n = fit.logs.size();
    return {"collectives", fit_text(fit), fit_json(fit),
            n > 0 ? counted(static_cast<int>(n), "collective") : ""};
  }

  static Part fit_tables(const std::vector<std::string>& paths, HoldOut hold_out,
                         Calibration& calibration) {
    const KernelFit fit = fit_kernels(paths, hold_out);
    calibration.kernels = fit.gpus;
    return {"kernels", kernel_fit_text(fit), kernel_fit_json(fit),
            fit.gpus.empty() ? "" : format("kernels of {} GPUs", fit.gpus.size())};
  }

  /// With what was fitted before.
  static Part fit_runs(const std::vector<std::string>& paths,
                       const std::optional<HoldOut>& hold_out, Calibration& calibration) {
    HostFitOptions options{hold_out, calibration};
    if (isatty(STDERR_FILENO) == 1) {
      options.progress = [](const std::string& what) { std::cerr << what << " ...\n"; };
    }
    const HostFit fit = fit_host(paths, options);
    calibration.host = fit.host;
    return {"host", host_fit_text(fit), host_fit_json(fit), fit.host ? "host times" : ""};
  }

  void print_parts(const std::vector<Part>& parts) const {
    if (!json_) {
      std::vector<std::string> texts;
      texts.reserve(parts.size());
      for (const Part& part : parts) texts.push_back(part.text);
      print(join(texts, "\n") + written(parts));
      return;
    }
    if (parts.size() == 1) {
      print(parts.front().json);
      return;
    }
    JsonValue json(Json::objectValue);
    json["version"] = kJsonVersion;
    for (const Part& part : parts) json[part.kind] = part.json;
    print(json);
  }

  [[nodiscard]] std::string written(const std::vector<Part>& parts) const {
    if (output_.empty()) return "";
    std::vector<std::string> fitted;
    for (const Part& part : parts) {
      if (!part.written.empty()) fitted.push_back(part.written);
    }
    if (fitted.empty()) return format("\n{} is not written: nothing was fitted\n", output_);
    return format("\nwrote {}: {}\n", output_, join(fitted, ", "));
  }

  std::vector<std::string> paths_;
  LogMachineFlags machine_;
  std::string output_;
  std::string hold_out_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_calibrate_command() {
  return std::make_unique<CalibrateCommand>();
}

}  // namespace zerosim
