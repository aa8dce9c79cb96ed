#include "sim/program/fsdp_units.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/training_step.h"

namespace zerosim {

namespace {

constexpr std::size_t kRoot = 0;
/// FORCE_LEAF_MODULES and EXCLUDE_WRAP_MODULES of size_based_auto_wrap_policy.
constexpr std::string_view kForcedLeaf = "MultiheadAttention";
constexpr std::array<std::string_view, 2> kContainers = {"ModuleList", "ModuleDict"};

/// `_recursive_wrap` with size_based_auto_wrap_policy. A container that nobody calls is not among
/// the model's modules, and does not matter: it holds as much as its children and is not wrapped.
class SizePolicy {
 public:
  SizePolicy(const Model& model, std::int64_t least, std::vector<bool>& wrapped)
      : model_(model), least_(least), wrapped_(wrapped), children_(model.modules.size()) {
    for (std::size_t i = 1; i < model.modules.size(); ++i) {
      children_[model.modules[i].parent.index()].push_back(i);
    }
  }

  /// \returns elements that are wrapped in `module` and below it.
  std::int64_t wrap(std::size_t module) {
    std::set<ParameterId> all;
    collect(module, all);
    std::int64_t elements = 0;
    for (const ParameterId id : all) elements += model_.parameters[id.index()].elements;
    const std::string& name = model_.modules[module].class_name;
    if (elements < least_ || name == kForcedLeaf) return 0;
    std::int64_t inside = 0;
    for (const std::size_t child : children_[module]) inside += wrap(child);
    const bool container =
        std::find(kContainers.begin(), kContainers.end(), name) != kContainers.end();
    if (module == kRoot || container || elements - inside < least_) return inside;
    wrapped_[module] = true;
    return elements;
  }

 private:
  void collect(std::size_t module, std::set<ParameterId>& into) const {
    const std::vector<ParameterId>& own = model_.modules[module].parameters;
    into.insert(own.begin(), own.end());
    for (const std::size_t child : children_[module]) collect(child, into);
  }

  const Model& model_;
  std::int64_t least_;
  std::vector<bool>& wrapped_;
  std::vector<std::vector<std::size_t>> children_;
};

bool has_class(const Module& module, const std::vector<std::string>& classes) {
  return std::find(classes.begin(), classes.end(), module.class_name) != classes.end();
}

/// By module.
std::vector<bool> wrapped_modules(const Model& model, const FsdpOptions& options) {
  std::vector<bool> wrapped(model.modules.size());
  const std::vector<std::string>& classes = options.transformer_layer_classes;
  switch (options.wrap) {
    case FsdpWrap::None:
      break;
    case FsdpWrap::Size:
      SizePolicy(model, options.min_num_params, wrapped).wrap(kRoot);
      break;
    case FsdpWrap::TransformerLayer:
      for (std::size_t i = 0; i < wrapped.size(); ++i) {
        const Module& module = model.modules[i];
        wrapped[i] =
            classes.empty() ? is_block_root(model, ModuleId(i)) : has_class(module, classes);
      }
      break;
  }
  wrapped[kRoot] = true;
  return wrapped;
}

/// By module: the wrapped module that it is in.
std::vector<std::size_t> holders(const Model& model, const std::vector<bool>& wrapped) {
  std::vector<std::size_t> result(model.modules.size(), kRoot);
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::size_t module = i;
    while (!wrapped[module]) module = model.modules[module].parent.index();
    result[i] = module;
  }
  return result;
}

/// By parameter: the wrapped module that holds it.
std::vector<std::size_t> parameter_holders(const Model& model,
                                           const std::vector<std::size_t>& holder_of_module) {
  std::vector<std::size_t> result(model.parameters.size(), kRoot);
  std::vector<bool> held(model.parameters.size());
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    for (const ParameterId id : model.modules[i].parameters) {
      const std::size_t holder = holder_of_module[i];
      if (held[id.index()] && result[id.index()] != holder) {
        const auto name = [&](std::size_t module) {
          return model.modules[module].name.empty() ? std::string("the root")
                                                    : model.modules[module].name;
        };
        throw ConfigError(
            format("FSDP: parameter \"{}\" is shared by the units {} and {}, which FSDP does not "
                   "support; expected both uses in one unit",
                   model.parameters[id.index()].name, name(result[id.index()]), name(holder)));
      }
      held[id.index()] = true;
      result[id.index()] = holder;
    }
  }
  return result;
}

std::int64_t aligned(std::int64_t offset, std::int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

bool trains(const Model& model, const FsdpUnit& unit, bool expected) {
  return std::all_of(unit.parameters.begin(), unit.parameters.end(), [&](ParameterId id) {
    return model.parameters[id.index()].trainable == expected;
  });
}

std::int64_t rows_of(const Parameter& parameter) {
  return parameter.shape.empty() ? 1 : parameter.shape.front();
}

}  // namespace

FsdpUnits fsdp_units(const Model& model, const FsdpOptions& options) {
  const std::vector<bool> wrapped = wrapped_modules(model, options);
  const std::vector<std::size_t> holder = parameter_holders(model, holders(model, wrapped));
  FsdpUnits result;
  result.of_module.assign(model.modules.size(), -1);
  std::vector<std::vector<ParameterId>> held(model.modules.size());
  for (std::size_t i = 0; i < holder.size(); ++i) held[holder[i]].emplace_back(i);
  for (std::size_t i = 0; i < wrapped.size(); ++i) {
    if (!wrapped[i] || (held[i].empty() && i != kRoot)) continue;
    result.of_module[i] = static_cast<int>(result.units.size());
    result.units.push_back({ModuleId(i), held[i]});
  }
  for (const std::size_t module : holder) {
    result.of_parameter.push_back(result.of_module[module]);
  }
  return result;
}

std::int64_t flat_elements(const Model& model, const FsdpUnit& unit, std::int64_t alignment) {
  std::int64_t elements = 0;
  for (const ParameterId id : unit.parameters) {
    elements = aligned(elements, alignment) + model.parameters[id.index()].elements;
  }
  return elements;
}

namespace {

/// A trainable parameter's part of a shard.
struct ShardPart {
  std::int64_t rank = 0;
  std::int64_t elements = 0;
};

std::vector<ShardPart> trainable_parts(const Model& model, const FsdpUnit& unit,
                                       std::int64_t alignment, std::int64_t shard) {
  std::vector<ShardPart> parts;
  std::int64_t begin = 0;
  for (const ParameterId id : unit.parameters) {
    const Parameter& parameter = model.parameters[id.index()];
    begin = aligned(begin, alignment);
    const std::int64_t end = begin + parameter.elements;
    for (std::int64_t r = begin / shard; parameter.trainable && r * shard < end; ++r) {
      parts.push_back({r, std::min(end, (r + 1) * shard) - std::max(begin, r * shard)});
    }
    begin = end;
  }
  return parts;
}

std::int64_t shard_elements(const Model& model, const FsdpUnit& unit, std::int64_t alignment,
                            int ranks) {
  return (flat_elements(model, unit, alignment) + ranks - 1) / ranks;
}

/// The rank whose shards hold most trainable elements, the lowest among equals.
std::int64_t busiest_rank(const Model& model, const FsdpUnits& units, std::int64_t alignment,
                          int ranks) {
  std::vector<std::int64_t> by_rank(static_cast<std::size_t>(ranks));
  for (const FsdpUnit& unit : units.units) {
    const std::int64_t shard = shard_elements(model, unit, alignment, ranks);
    if (shard == 0 || trains(model, unit, true)) continue;  // alike on all ranks
    for (const ShardPart& part : trainable_parts(model, unit, alignment, shard)) {
      by_rank[static_cast<std::size_t>(part.rank)] += part.elements;
    }
  }
  return std::max_element(by_rank.begin(), by_rank.end()) - by_rank.begin();
}

}  // namespace

std::vector<std::int64_t> trainable_shards(const Model& model, const FsdpUnits& units,
                                           std::int64_t alignment, int ranks, bool originals) {
  const std::int64_t rank = busiest_rank(model, units, alignment, ranks);
  std::vector<std::int64_t> tensors;
  for (const FsdpUnit& unit : units.units) {
    const std::int64_t shard = shard_elements(model, unit, alignment, ranks);
    if (shard == 0 || trains(model, unit, false)) continue;
    if (!originals) {
      tensors.push_back(shard);
      continue;
    }
    for (const ShardPart& part : trainable_parts(model, unit, alignment, shard)) {
      if (part.rank == rank) tensors.push_back(part.elements);
    }
  }
  return tensors;
}

std::vector<int> arriving_gradients(const Model& model, const FsdpUnits& units) {
  std::vector<int> counts(units.units.size());
  for (const TrainingEvent& event : training_events(model, ActivationCheckpointing::None)) {
    if (event.kind != TrainingEvent::Kind::Backward) continue;
    for (const ParameterId id :
         model.operators[static_cast<std::size_t>(event.operation)].gradients) {
      if (model.parameters[id.index()].trainable) {
        ++counts[static_cast<std::size_t>(units.of_parameter[id.index()])];
      }
    }
  }
  return counts;
}

std::int64_t dim0_shard_elements(const Parameter& parameter, int ranks) {
  const std::int64_t rows = rows_of(parameter);
  if (rows == 0) return 0;
  return (rows + ranks - 1) / ranks * (parameter.elements / rows);
}

std::int64_t dim0_own_elements(const Parameter& parameter, int ranks) {
  return std::min(dim0_shard_elements(parameter, ranks), parameter.elements);
}

}  // namespace zerosim
