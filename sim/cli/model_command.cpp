#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/report/report_text.h"

namespace zerosim {

namespace {

class ModelCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    add_model_flag(app, flags_);
    add_batch_flags(app, flags_);
    app.add_flag("--list", list_, "List the presets");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    if (list_) return list();
    Model model = required_model(flags_);
    const BatchShape batch = batch_shape(flags_, model, model.assumptions);
    if (!json_) {
      print(model_text(model, batch));
      return kYes;
    }
    JsonValue json = model_json(model, batch);
    add_inputs(json, flags_);
    print(json);
    return kYes;
  }

 private:
  [[nodiscard]] int list() const {
    if (!json_) {
      print(join(model_presets(), "\n") + "\n");
      return kYes;
    }
    JsonValue json(Json::objectValue);
    json["version"] = kJsonVersion;
    for (const std::string& name : model_preset_names()) json["presets"].append(name);
    print(json);
    return kYes;
  }

  ExperimentFlags flags_;
  bool list_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_model_command() {
  return std::make_unique<ModelCommand>();
}

}  // namespace zerosim
