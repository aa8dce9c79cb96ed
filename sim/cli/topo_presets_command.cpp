#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/output.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"
#include "topology/cluster.h"

namespace zerosim {

namespace {

class TopoPresetsCommand : public Command {
 public:
  void add_flags(CLI::App& app) override { app.add_flag("--json", json_, "JSON"); }

  int run() override {
    if (json_) {
      print(json());
    } else {
      print(text());
    }
    return kYes;
  }

 private:
  [[nodiscard]] static std::string text() {
    TextTable table({TextTable::Align::Left, TextTable::Align::Left});
    for (const ClusterPreset& preset : cluster_presets()) {
      table.add_row({preset.name, preset.description});
    }
    return table.text();
  }

  [[nodiscard]] static JsonValue json() {
    JsonValue json(Json::objectValue);
    json["version"] = kJsonVersion;
    JsonValue& presets = json["presets"] = JsonValue(Json::arrayValue);
    for (const ClusterPreset& preset : cluster_presets()) {
      JsonValue entry(Json::objectValue);
      entry["name"] = preset.name;
      entry["description"] = preset.description;
      entry["simulated"] = preset.simulated;
      presets.append(entry);
    }
    return json;
  }

  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topo_presets_command() {
  return std::make_unique<TopoPresetsCommand>();
}

}  // namespace zerosim
