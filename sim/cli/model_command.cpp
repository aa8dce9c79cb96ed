#include <algorithm>
#include <set>
#include <utility>

#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/model/leaf_modules.h"
#include "sim/model/routing.h"
#include "sim/report/report_text.h"

namespace zerosim {

namespace {

class ModelCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    add_model_flags(app, flags_);
    add_batch_flags(app, flags_);
    add_routing_flags(app, flags_);
    app.add_option("--leaf-modules", leaf_classes_,
                   "Show modules of these classes as ZeRO-3 leaf modules")
        ->delimiter(',');
    app.add_flag("--list", list_, "List the presets");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    if (list_) return list();
    Model model = required_model(flags_);
    const BatchShape batch = batch_shape(flags_, model, model.assumptions);
    const Routing routing = routing_of(flags_, model, model.assumptions);
    if (!model.moe_blocks.empty()) {
      model = route_tokens(std::move(model), routing, batch.tokens());
    }
    if (!leaf_classes_.empty()) model = with_leaves(std::move(model));
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

  [[nodiscard]] Model with_leaves(Model model) const {
    std::vector<ModuleId> leaves;
    std::set<std::string> known;
    for (std::size_t i = 0; i < model.modules.size(); ++i) {
      const std::string& name = model.modules[i].class_name;
      known.insert(name);
      const bool wanted =
          std::find(leaf_classes_.begin(), leaf_classes_.end(), name) != leaf_classes_.end();
      if (wanted) leaves.emplace_back(i);
    }
    const std::vector<std::string> names(known.begin(), known.end());
    for (const std::string& name : leaf_classes_) {
      if (known.contains(name)) continue;
      throw ConfigError(format("--leaf-modules: the model has no module of class \"{}\"{}", name,
                               did_you_mean(name, names)));
    }
    return with_leaf_modules(std::move(model), leaves);
  }

  ExperimentFlags flags_;
  std::vector<std::string> leaf_classes_;
  bool list_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_model_command() {
  return std::make_unique<ModelCommand>();
}

}  // namespace zerosim
