#include <cstdio>
#include <unistd.h>

#include "sim/cli/command.h"
#include "sim/cli/output.h"
#include "validate/case_check.h"

namespace zerosim {

namespace {

class ValidateCasesCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("cases", folders_, "Folders of user cases, or folders of such folders")
        ->required();
    app.add_option("--data", data_folder_,
                   "Folder that `ref` of models is below (default: two above each case)");
    app.add_flag("-v,--verbose", all_, "The checks that pass, too");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    CasesOptions options{data_folder_, {}};
    if (isatty(STDERR_FILENO) != 0) {
      options.progress = [](const std::string& folder) {
        std::fprintf(stderr, "%s\n", folder.c_str());
      };
    }
    const CasesValidation validation = validate_cases(folders_, options);
    if (json_) {
      print(cases_json(validation));
    } else {
      print(cases_text(validation, all_));
    }
    return musts_hold(validation) ? kYes : kNo;
  }

 private:
  std::vector<std::string> folders_;
  std::string data_folder_;
  bool all_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_validate_cases_command() {
  return std::make_unique<ValidateCasesCommand>();
}

}  // namespace zerosim
