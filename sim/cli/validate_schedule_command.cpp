#include <optional>

#include "sim/cli/command.h"
#include "sim/cli/numbers.h"
#include "sim/cli/output.h"
#include "validate/schedule_check.h"

namespace zerosim {

namespace {

class ValidateScheduleCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("recordings", paths_, "Recorded runs (format of validate/recording.h)")
        ->required();
    app.add_option("--overflow-steps", overflow_steps_,
                   "fp16 recordings: the first K steps overflow and update nothing (default: 0)");
    app.add_flag("--markers", markers_,
                 "Compare the markers too: fetch, gather, release, flush (not FSDP's)");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    ScheduleCheck check;
    check.markers = markers_;
    if (!overflow_steps_.empty()) {
      check.overflow_steps =
          static_cast<int>(parse_integer(overflow_steps_, "--overflow-steps", {0, 1'000'000}));
    }
    const ScheduleValidation validation = validate_schedules(paths_, check);
    if (json_) {
      print(schedule_validation_json(validation));
    } else {
      print(schedule_validation_text(validation));
    }
    return all_identical(validation) ? kYes : kNo;
  }

 private:
  std::vector<std::string> paths_;
  std::string overflow_steps_;
  bool markers_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_schedule_command() {
  return std::make_unique<ValidateScheduleCommand>();
}

}  // namespace zerosim
