#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim::internal {
namespace {

/// "MixtralSparseMoeBlock" of "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock".
std::string last_component(const std::string& dotted) {
  return dotted.substr(dotted.find_last_of('.') + 1);  // npos + 1 == 0
}

std::vector<std::string> read_leaf_list(ConfigSection& section, const char* key,
                                        const std::vector<std::string>& fallback, bool matters) {
  const std::optional<std::vector<std::string>> given = section.strings(key);
  std::vector<std::string> names = given.value_or(fallback);
  if (given || matters) {
    section.list(key, join(names, ", "), given ? Origin::File : Origin::Default);
  }
  return names;
}

/// Intervals whose default is the word "auto"; 0 stands for it.
std::int64_t read_interval(ConfigSection& section, const char* key) {
  if (section.is_auto(key) || !section.is_set(key)) {
    const bool stated = section.is_set(key);
    section.list(key, "auto", stated ? Origin::File : Origin::Default);
    return 0;
  }
  return section.integer_or(key, 0, 1);
}

std::string read_select_strategy(ConfigSection& section) {
  constexpr const char* kKey = "select_strategy";
  if (section.is_auto(kKey)) {
    section.list(kKey, "auto", Origin::File);
    return "auto";
  }
  return section.word_or(kKey, "auto", {"auto", "step", "epoch"});
}

}  // namespace

void read_leaf_modules(DeepSpeedReading& reading, ConfigSection& zero) {
  ZeroOptions& options = reading.strategy.zero;
  ConfigSection section = zero.section_or_empty("leaf_module");
  const bool stage3 = reading.at_stage(kStage3);
  const std::vector<std::string> classes = read_leaf_list(
      section, "classes", deepspeed_release(reading.strategy.version).leaf_module_classes, stage3);
  for (const std::string& name : classes) {
    options.leaf_module_classes.push_back(last_component(name));
  }
  options.leaf_module_names = read_leaf_list(section, "names", {}, false);
  options.leaf_module_name_suffixes = read_leaf_list(section, "name_suffixes", {}, false);
  section.reject_unknown("unknown_key_zero");
  note_no_effect(reading, zero, "leaf_module", kStage3);
}

void read_zenflow(DeepSpeedReading& reading, ConfigSection& zero) {
  std::optional<ConfigSection> section = zero.section("zenflow");
  if (!section) return;
  ZenFlowOptions options;
  options.topk_ratio = section->number_or("topk_ratio", options.topk_ratio, 0, 1);
  options.select_strategy = read_select_strategy(*section);
  options.select_interval = read_interval(*section, "select_interval");
  options.update_interval = read_interval(*section, "update_interval");
  options.overlap_step = section->boolean_or("overlap_step", false);
  options.offload = section->boolean_or("offload", false);
  options.auto_ratio = section->number_or("auto_ratio", options.auto_ratio, 0, 1);
  options.full_warm_up_rounds = section->integer_or("full_warm_up_rounds", 0, 0);
  options.pt_reserved_cores_perc =
      section->number_or("pt_reserved_cores_perc", options.pt_reserved_cores_perc, 0, 1);
  section->reject_unknown("unknown_key_zero");
  note_no_effect(reading, zero, "zenflow", kStages123);
  reading.strategy.zero.zenflow = options;
}

}  // namespace zerosim::internal
