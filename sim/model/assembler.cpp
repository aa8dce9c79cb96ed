#include "sim/model/assembler.h"

#include <stdexcept>
#include <utility>

#include "sim/base/error.h"

namespace zerosim::internal {

ParameterId ModelAssembler::register_parameter(const std::string& name,
                                               std::vector<std::int64_t> shape, bool trainable) {
  Parameter parameter;
  parameter.name = name;
  parameter.elements = 1;
  parameter.trainable = trainable;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(parameter.elements, size, &parameter.elements)) {
      throw std::overflow_error(name + " has more elements than 64 bits can count");
    }
  }
  if (__builtin_add_overflow(elements_, parameter.elements, &elements_)) {
    throw std::overflow_error("the model has more parameters than 64 bits can count");
  }
  parameter.shape = std::move(shape);
  const ParameterId id(model_.parameters.size());
  const bool is_new = by_name_.emplace(name, id).second;
  ZS_CHECK(is_new, "a parameter is registered once");
  model_.parameters.push_back(std::move(parameter));
  return id;
}

bool ModelAssembler::is_registered(const std::string& name) const {
  return by_name_.find(name) != by_name_.end();
}

ParameterId ModelAssembler::parameter(const std::string& name) const {
  const auto found = by_name_.find(name);
  ZS_CHECK(found != by_name_.end(), "a parameter is registered before it is used");
  return found->second;
}

ModuleId ModelAssembler::enter(const std::string& name, const std::string& class_name,
                               ModuleTraits traits) {
  Module module;
  module.name = name;
  module.class_name = class_name;
  module.positional_gradient_input = traits.positional_gradient_input;
  module.gradient_output = traits.gradient_output;
  module.block = traits.block;
  if (!open_.empty()) {
    module.parent = open_.back();
    if (module.block < 0) module.block = model_.modules[module.parent.index()].block;
  }
  const ModuleId id(model_.modules.size());
  model_.modules.push_back(std::move(module));
  model_.forward.push_back({ExecutionStep::Kind::Enter, id, -1});
  open_.push_back(id);
  return id;
}

void ModelAssembler::own(const std::string& parameter_name) {
  const ParameterId id = parameter(parameter_name);
  model_.modules[open_.back().index()].parameters.push_back(id);
  ModuleId& owner = model_.parameters[id.index()].owner;
  if (owner.valid()) {
    model_.tied_embeddings = true;
  } else {
    owner = open_.back();
  }
}

void ModelAssembler::compute(OperatorKind kind, std::int64_t inputs, std::int64_t outputs,
                             const std::vector<std::string>& gradient_names, bool saves_input) {
  Operator operation;
  operation.kind = kind;
  operation.module = open_.back();
  operation.inputs = inputs;
  operation.outputs = outputs;
  operation.saves_input = saves_input;
  for (const std::string& name : gradient_names) {
    const Parameter& candidate = model_.parameters[parameter(name).index()];
    if (candidate.trainable && candidate.owner == open_.back()) {
      operation.gradients.push_back(parameter(name));
    }
  }
  model_.forward.push_back({ExecutionStep::Kind::Compute, open_.back(),
                            static_cast<std::int32_t>(model_.operators.size())});
  model_.operators.push_back(std::move(operation));
}

void ModelAssembler::exit() {
  ZS_CHECK(!open_.empty(), "no module is open");
  model_.forward.push_back({ExecutionStep::Kind::Exit, open_.back(), -1});
  open_.pop_back();
}

Model ModelAssembler::finish() {
  ZS_CHECK(open_.empty(), "a module was entered and not left");
  return std::move(model_);
}

}  // namespace zerosim::internal
