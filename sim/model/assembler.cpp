#include "sim/model/assembler.h"

#include <algorithm>
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
  const bool is_new = parameters_.emplace(name, id).second;
  ZS_CHECK(is_new, "a parameter is registered once");
  model_.parameters.push_back(std::move(parameter));
  return id;
}

bool ModelAssembler::is_registered(const std::string& name) const {
  return parameters_.find(name) != parameters_.end();
}

ParameterId ModelAssembler::parameter(const std::string& name) const {
  const auto found = parameters_.find(name);
  ZS_CHECK(found != parameters_.end(), "a parameter is registered before it is used");
  return found->second;
}

ModuleId ModelAssembler::enter(const std::string& name, const std::string& class_name,
                               const std::vector<Value>& positional_inputs, int block) {
  const auto [known, is_new] = modules_.emplace(name, ModuleId(model_.modules.size()));
  const ModuleId id = known->second;
  if (is_new) {
    Module module;
    module.name = name;
    module.class_name = class_name;
    module.block = block;
    if (!open_.empty()) {
      const Module& parent = model_.modules[open_.back().index()];
      module.parent = open_.back();
      if (block < 0) module.block = parent.block;
      module.moe_block = parent.moe_block;
      module.expert = parent.expert;
    }
    model_.modules.push_back(std::move(module));
  }
  for (const Value value : positional_inputs) {
    if (value != kNoValue) model_.modules[id.index()].positional_inputs.push_back(value);
  }
  model_.forward.push_back({ExecutionStep::Kind::Enter, id, -1});
  open_.push_back(id);
  return id;
}

Value ModelAssembler::exit(Value output) {
  ZS_CHECK(!open_.empty(), "no module is open");
  model_.modules[open_.back().index()].output = output;
  model_.forward.push_back({ExecutionStep::Kind::Exit, open_.back(), -1});
  open_.pop_back();
  return output;
}

void ModelAssembler::register_buffer(const std::string& name, std::int64_t elements, Dtype dtype) {
  const ModuleId module = open_.back();
  for (const ModuleBuffer& buffer : model_.buffers) {
    if (buffer.module == module && buffer.name == name) return;  // called a second time
  }
  model_.buffers.push_back({module, name, elements, dtype});
}

void ModelAssembler::own(const std::string& parameter_name) {
  const ParameterId id = parameter(parameter_name);
  std::vector<ParameterId>& owned = model_.modules[open_.back().index()].parameters;
  if (std::find(owned.begin(), owned.end(), id) != owned.end()) return;  // called a second time
  owned.push_back(id);
  ModuleId& owner = model_.parameters[id.index()].owner;
  if (owner.valid()) {
    model_.tied_embeddings = true;
  } else {
    owner = open_.back();
  }
}

void ModelAssembler::open_moe_block(MoeBlock block) {
  block.module = open_.back();
  model_.modules[open_.back().index()].moe_block = static_cast<int>(model_.moe_blocks.size());
  model_.moe_blocks.push_back(std::move(block));
}

ModuleId ModelAssembler::enter_expert(int expert, const std::string& name,
                                      const std::string& class_name,
                                      const std::vector<Value>& positional_inputs) {
  const ModuleId id = enter(name, class_name, positional_inputs);
  model_.modules[id.index()].expert = expert;
  return id;
}

Value ModelAssembler::compute(OperatorKind kind, std::int64_t inputs, std::int64_t outputs,
                              const std::vector<Value>& sources,
                              const std::vector<std::string>& parameters) {
  const int expert = model_.modules[open_.back().index()].expert;
  return compute_routed(expert >= 0 ? expert : kEveryToken, kind, inputs, outputs, sources,
                        parameters);
}

Value ModelAssembler::compute_routed(int expert, OperatorKind kind, std::int64_t inputs,
                                     std::int64_t outputs, const std::vector<Value>& sources,
                                     const std::vector<std::string>& parameters) {
  Operator operation;
  operation.kind = kind;
  operation.module = open_.back();
  operation.inputs = inputs;
  operation.outputs = outputs;
  operation.expert = expert;
  for (const Value source : sources) {
    if (source != kNoValue) operation.sources.push_back(source);
  }
  for (const std::string& name : parameters) operation.parameters.push_back(parameter(name));
  const auto index = static_cast<Value>(model_.operators.size());
  model_.forward.push_back({ExecutionStep::Kind::Compute, open_.back(), index});
  model_.operators.push_back(std::move(operation));
  return index;
}

Value ModelAssembler::activate(const std::string& class_name, std::int64_t width, Value x) {
  const Value result = compute(OperatorKind::Activation, 0, width, {x});
  // derivatives.yaml of PyTorch: relu, sigmoid and tanh need `result`, the others `self`.
  for (const char* name : {"ReLU", "Sigmoid", "Tanh"}) {
    model_.operators.back().keeps_result |= class_name == name;
  }
  return result;
}

Value ModelAssembler::attend(const AttentionShape& shape, const std::vector<Value>& sources) {
  std::vector<AttentionShape>& shapes = model_.attention_shapes;
  const auto known = std::find(shapes.begin(), shapes.end(), shape);
  const auto index = static_cast<std::int32_t>(known - shapes.begin());
  if (known == shapes.end()) shapes.push_back(shape);
  const Value result = compute(OperatorKind::Attention, 0, shape.heads * shape.value_dim, sources);
  model_.operators.back().attention = index;
  return result;
}

Model ModelAssembler::finish() {
  ZS_CHECK(open_.empty(), "a module was entered and not left");
  trace_gradients(model_);
  return std::move(model_);
}

}  // namespace zerosim::internal
