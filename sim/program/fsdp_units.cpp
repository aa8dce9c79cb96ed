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

// flat_param.py: _get_aligned_numel.
constexpr std::int64_t kAlignmentBytes = 16;

std::int64_t shard_elements(const Model& model, const FsdpUnit& unit, std::int64_t alignment,
                            int ranks) {
  return (flat_elements(model, unit, alignment) + ranks - 1) / ranks;
}

}  // namespace

std::int64_t fsdp1_alignment(const Strategy& strategy) {
  return strategy.fsdp.use_orig_params
             ? kAlignmentBytes / dtype_bytes(model_dtype(strategy.precision))
             : 1;
}

void for_each_shard_cut(
    const Model& model, const FsdpUnits& units, std::int64_t alignment, int ranks,
    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
  for (const FsdpUnit& unit : units.units) {
    const std::int64_t shard = shard_elements(model, unit, alignment, ranks);
    std::int64_t begin = 0;
    for (const ParameterId id : unit.parameters) {
      const Parameter& parameter = model.parameters[id.index()];
      begin = aligned(begin, alignment);
      const std::int64_t end = begin + parameter.elements;
      if (parameter.trainable && shard > 0) visit(begin, end, shard);
      begin = end;
    }
  }
}

Rank busiest_shard_rank(const Model& model, const FsdpUnits& units, std::int64_t alignment,
                        int ranks) {
  std::vector<std::int64_t> by_rank(static_cast<std::size_t>(ranks));
  FsdpUnits uneven;  // shards of the others are alike on all ranks, but for padding
  for (const FsdpUnit& unit : units.units) {
    if (!trains(model, unit, true)) uneven.units.push_back(unit);
  }
  for_each_shard_cut(model, uneven, alignment, ranks,
                     [&](std::int64_t begin, std::int64_t end, std::int64_t shard) {
                       for (std::int64_t r = begin / shard; r * shard < end; ++r) {
                         by_rank[static_cast<std::size_t>(r)] +=
                             std::min(end, (r + 1) * shard) - std::max(begin, r * shard);
                       }
                     });
  return Rank(
      static_cast<std::size_t>(std::max_element(by_rank.begin(), by_rank.end()) - by_rank.begin()));
}

std::vector<std::int64_t> trainable_shards(const Model& model, const FsdpUnits& units,
                                           std::int64_t alignment, const ShardPlace& place,
                                           bool originals) {
  std::vector<std::int64_t> tensors;
  if (!originals) {
    for (const FsdpUnit& unit : units.units) {
      const std::int64_t shard = shard_elements(model, unit, alignment, place.ranks);
      if (shard > 0 && !trains(model, unit, false)) tensors.push_back(shard);
    }
    return tensors;
  }
  for_each_shard_cut(model, units, alignment, place.ranks,
                     [&](std::int64_t begin, std::int64_t end, std::int64_t shard) {
                       const std::int64_t own = std::min(end, (place.place + 1) * shard) -
                                                std::max(begin, place.place * shard);
                       if (own > 0) tensors.push_back(own);
                     });
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

std::int64_t dim0_own_elements(const Parameter& parameter, const ShardPlace& place) {
  const std::int64_t piece = dim0_shard_elements(parameter, place.ranks);
  return std::clamp<std::int64_t>(parameter.elements - place.place * piece, 0, piece);
}

std::int64_t dim0_full_ranks(const Parameter& parameter, int ranks) {
  const std::int64_t piece = dim0_shard_elements(parameter, ranks);
  return piece > 0 ? parameter.elements / piece : 0;
}

}  // namespace zerosim
