#include "sim/cli/command.h"
#include "sim/cli/output.h"
#include "validate/schedule_check.h"

namespace zerosim {

namespace {

class ValidateScheduleCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("recordings", paths_, "Recorded runs (format of validate/recording.h)")
        ->required();
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const ScheduleValidation validation = validate_schedules(paths_);
    if (json_) {
      print(schedule_validation_json(validation));
    } else {
      print(schedule_validation_text(validation));
    }
    return all_identical(validation) ? kYes : kNo;
  }

 private:
  std::vector<std::string> paths_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_schedule_command() {
  return std::make_unique<ValidateScheduleCommand>();
}

}  // namespace zerosim
