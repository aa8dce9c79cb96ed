#include "sim/model/presets.h"

#include "sim/base/text.h"
#include "sim/model/model.h"

namespace zerosim {

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const internal::PresetText& preset : internal::preset_texts()) {
    names.emplace_back(preset.name);
  }
  return names;
}

std::vector<std::string> model_presets() {
  std::vector<std::string> lines;
  for (const std::string& name : model_preset_names()) {
    lines.push_back(format("{:<16}{:>15} parameters", name, parameter_count(load_model(name))));
  }
  return lines;
}

}  // namespace zerosim
