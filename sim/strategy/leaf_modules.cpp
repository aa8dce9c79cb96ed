#include "sim/model/leaf_modules.h"

#include <algorithm>

#include "sim/strategy/strategy.h"

namespace zerosim {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_named(const Module& module, const ZeroOptions& options) {
  const std::vector<std::string>& suffixes = options.leaf_module_name_suffixes;
  return contains(options.leaf_module_classes, module.class_name) ||
         contains(options.leaf_module_names, module.name) ||
         std::any_of(suffixes.begin(), suffixes.end(), [&module](const std::string& suffix) {
           return module.name.ends_with(suffix);
         });
}

}  // namespace

std::vector<ModuleId> leaf_modules(const ZeroOptions& options, const Model& model) {
  if (options.stage != 3) return {};
  std::vector<ModuleId> leaves;
  if (options.module_granularity_threshold > 0) {
    leaves = leaf_modules_by_granularity(model, options.module_granularity_threshold);
  }
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const ModuleId id(i);
    const bool listed = std::find(leaves.begin(), leaves.end(), id) != leaves.end();
    if (!listed && is_named(model.modules[i], options)) leaves.push_back(id);
  }
  std::sort(leaves.begin(), leaves.end());
  return leaves;
}

}  // namespace zerosim
