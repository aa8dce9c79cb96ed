#include <fstream>
#include <string>
#include <vector>

#include "sim/base/output_file.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "validate/published_runs.h"
#include "validate/scatter_plot.h"

namespace zerosim {

namespace {

ScatterPlot plot_of(const RunsValidation& validation) {
  ScatterPlot plot;
  plot.title = "Step time of published training runs (trust A and B)";
  plot.x_label = "measured, s";
  plot.y_label = "predicted, s";
  for (const RunCheck& run : validation.runs) {
    if (!run.has_step() || run.trust == "C") continue;
    plot.points.push_back({run.measured.step->count(), run.predicted->step.count(), run.strategy,
                           format("{}: {:+.1f} %", run.id, *run.step_error() * 100)});
  }
  return plot;
}

class ValidateRunsCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("table", path_, "A table with the columns of validate/published_runs.h")
        ->required();
    app.add_option("--rows", ids_, "These rows alone, by id, each with what was assumed");
    app.add_option("--calibration", calibration_,
                   "Predict with the constants of this file (zerosim calibrate)");
    app.add_option("--plot", plot_, "Write a scatter of predicted against measured to this SVG");
    app.add_option("--tolerance", tolerance_,
                   "Largest median over sources of their medians (default: 0.10)");
    app.add_option("--tolerance-p90", tolerance_p90_,
                   "Largest error of the best nine tenths (default: 0.25)");
    app.add_flag("-v,--verbose", verbose_, "Every row, and what was assumed");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const double median = parse_non_negative(tolerance_, "--tolerance");
    const double p90 = parse_non_negative(tolerance_p90_, "--tolerance-p90");
    RunsOptions options{ids_};
    if (!calibration_.empty()) options.calibration = read_calibration(calibration_);
    const RunsValidation validation = validate_runs(path_, options);
    if (!plot_.empty()) {
      std::ofstream file = open_for_writing(plot_);
      file << scatter_svg(plot_of(validation));
    }
    if (json_) {
      print(runs_json(validation));
    } else {
      print(runs_text(validation, verbose_ || !ids_.empty()));
    }
    return is_within(headline_of(validation), median, p90) ? kYes : kNo;
  }

 private:
  std::string path_, plot_, calibration_;
  std::vector<std::string> ids_;
  std::string tolerance_ = "0.10";
  std::string tolerance_p90_ = "0.25";
  bool verbose_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_runs_command() {
  return std::make_unique<ValidateRunsCommand>();
}

}  // namespace zerosim
