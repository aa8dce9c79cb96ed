#include "sim/model/model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/model/presets.h"
#include "sim/model/readers.h"

namespace zerosim {
namespace {

/// Names of modules that hold one row a position.
constexpr std::array<std::string_view, 4> kPositionTables = {"wpe", "embed_positions",
                                                             "position_embeddings", "pos_embed"};

bool is_position_table(const Module& module) {
  const std::string_view last = std::string_view(module.name).substr(module.name.rfind('.') + 1);
  return std::find(kPositionTables.begin(), kPositionTables.end(), last) != kPositionTables.end();
}

Model read_document(const JsonDocument& document) {
  JsonObject root(document, document.root(), "");
  if (root.has("format")) return internal::read_listing(document);
  if (root.has("model_type")) return internal::read_hugging_face(document);
  root.fail("model_type",
            "missing, expected a Hugging Face config.json, whose model_type names the family "
            "(\"llama\"), "
            "or a module listing (\"format\": \"zerosim.module_listing\")");
}

[[noreturn]] void unknown_model(const std::string& name) {
  const std::vector<std::string> presets = model_preset_names();
  throw ConfigError(format("model \"{}\" is no preset and no file{}; presets: {}", name,
                           did_you_mean(name, presets), join(presets, ", ")));
}

}  // namespace

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const Parameter& parameter : model.parameters) count += parameter.elements;
  return count;
}

std::int64_t trainable_parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.trainable) count += parameter.elements;
  }
  return count;
}

std::int64_t active_parameter_count(const Model& model) {
  std::vector<std::int64_t> of_experts(model.moe_blocks.size(), 0);
  for (const Parameter& parameter : model.parameters) {
    const Module& owner = model.modules[parameter.owner.index()];
    if (owner.expert != kEveryToken) {
      of_experts[static_cast<std::size_t>(owner.moe_block)] += parameter.elements;
    }
  }
  std::int64_t count = parameter_count(model);
  for (std::size_t i = 0; i < of_experts.size(); ++i) {
    const MoeBlock& block = model.moe_blocks[i];
    count -= of_experts[i] / block.experts * (block.experts - block.experts_per_token);
  }
  return count;
}

std::int64_t parameter_count_without_positions(const Model& model) {
  std::int64_t count = 0;
  for (const Parameter& parameter : model.parameters) {
    const bool positions = is_position_table(model.modules[parameter.owner.index()]);
    if (!positions) count += parameter.elements;
  }
  return count;
}

std::int64_t largest_module_parameters(const Model& model) {
  std::int64_t largest = 0;
  for (const Module& module : model.modules) {
    std::int64_t own = 0;
    for (const ParameterId id : module.parameters) own += model.parameters[id.index()].elements;
    largest = std::max(largest, own);
  }
  return largest;
}

Model parse_model(std::string text, const std::string& file) {
  const JsonDocument document = JsonDocument::from_text(std::move(text), file);
  try {
    return read_document(document);
  } catch (const std::overflow_error& error) {
    throw ConfigError({file, 0, 0}, error.what());
  }
}

Model load_model(const std::string& name_or_path) {
  for (const internal::PresetText& preset : internal::preset_texts()) {
    if (preset.name != name_or_path) continue;
    Model model = parse_model(std::string(preset.text), std::string(preset.name) + ".json");
    model.name = preset.name;
    return model;
  }
  std::filesystem::path path(name_or_path);
  std::error_code ignored;  // what cannot be looked at is no file
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  if (!std::filesystem::exists(path, ignored)) unknown_model(name_or_path);
  Model model = parse_model(read_file(path.string()), path.string());
  if (model.name.empty()) {
    const bool generic = path.filename() == "config.json" && path.has_parent_path();
    model.name = generic ? path.parent_path().filename().string() : path.stem().string();
  }
  return model;
}

}  // namespace zerosim
