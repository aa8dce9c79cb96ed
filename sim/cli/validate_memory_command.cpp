#include <string>
#include <vector>

#include "sim/cli/command.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "validate/memory_rows.h"

namespace zerosim {

namespace {

class ValidateMemoryCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("rows", paths_,
                   "Tables with the columns of validate/memory_rows.h, or of training runs")
        ->required();
    app.add_option("--tolerance", tolerance_, "Largest relative error (default: 0.01)");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const double tolerance = parse_non_negative(tolerance_, "--tolerance");
    const Validation validation = validate_memory_rows(paths_);
    if (json_) {
      print(validation_json(validation));
    } else {
      print(validation_text(validation));
    }
    return is_within(summary_of(validation.rows), tolerance) ? kYes : kNo;
  }

 private:
  std::vector<std::string> paths_;
  std::string tolerance_ = "0.01";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_memory_command() {
  return std::make_unique<ValidateMemoryCommand>();
}

}  // namespace zerosim
