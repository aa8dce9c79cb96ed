#include "sim/model/families/layers.h"

namespace zerosim::internal {

void Layers::register_linear(const std::string& path, std::int64_t inputs, std::int64_t outputs,
                             bool bias) {
  assembler_.register_parameter(path + ".weight", {outputs, inputs});
  if (bias) assembler_.register_parameter(path + ".bias", {outputs});
}

void Layers::register_embedding(const std::string& path, std::int64_t rows, std::int64_t width) {
  assembler_.register_parameter(path + ".weight", {rows, width});
}

void Layers::register_norm(const std::string& path, std::int64_t width) {
  assembler_.register_parameter(path + ".weight", {width});
}

void Layers::register_layer_norm(const std::string& path, std::int64_t width) {
  assembler_.register_parameter(path + ".weight", {width});
  assembler_.register_parameter(path + ".bias", {width});
}

Value Layers::linear(const std::string& path, std::int64_t inputs, std::int64_t outputs, Value x,
                     const std::string& class_name, const std::string& weight) {
  assembler_.enter(path, class_name, {x});
  std::vector<std::string> parameters = {weight.empty() ? path + ".weight" : weight};
  assembler_.own(parameters.front());
  if (assembler_.is_registered(path + ".bias")) {
    assembler_.own(path + ".bias");
    parameters.insert(parameters.begin(), path + ".bias");  // its gradient arrives first (rule 5)
  }
  return assembler_.exit(
      assembler_.compute(OperatorKind::Linear, inputs, outputs, {x}, parameters));
}

Value Layers::embedding(const std::string& path, std::int64_t rows, std::int64_t width,
                        const std::string& class_name) {
  assembler_.enter(path, class_name);
  assembler_.own(path + ".weight");
  return assembler_.exit(
      assembler_.compute(OperatorKind::Embedding, rows, width, {}, {path + ".weight"}));
}

Value Layers::rms_norm(const std::string& path, const std::string& class_name, std::int64_t width,
                       Value x) {
  assembler_.enter(path, class_name, {x});
  assembler_.own(path + ".weight");
  return assembler_.exit(
      assembler_.compute(OperatorKind::RmsNorm, 0, width, {x}, {path + ".weight"}));
}

Value Layers::layer_norm(const std::string& path, std::int64_t width, Value x,
                         const std::string& class_name) {
  assembler_.enter(path, class_name, {x});
  std::vector<std::string> parameters;  // gradients arrive in this order (rule 5)
  for (const char* name : {".weight", ".bias"}) {
    if (assembler_.is_registered(path + name)) parameters.push_back(path + name);
  }
  for (const std::string& name : parameters) assembler_.own(name);
  return assembler_.exit(assembler_.compute(OperatorKind::LayerNorm, 0, width, {x}, parameters));
}

Value Layers::activation(const std::string& path, const std::string& class_name, std::int64_t width,
                         Value x) {
  assembler_.enter(path, class_name, {x});
  return assembler_.exit(assembler_.activate(class_name, width, x));
}

Value Layers::dropout(const std::string& path, std::int64_t width, Value x) {
  assembler_.enter(path, "Dropout", {x});
  return assembler_.exit(assembler_.compute(OperatorKind::Dropout, 0, width, {x}));
}

void Layers::call_without_result(const std::string& path, const std::string& class_name) {
  assembler_.enter(path, class_name);
  assembler_.exit();
}

void Layers::rotary_embedding(const std::string& path, const std::string& class_name,
                              std::int64_t rotated) {
  assembler_.enter(path, class_name);
  assembler_.register_buffer("inv_freq", (rotated + 1) / 2, Dtype::F32);
  assembler_.exit();
}

Model Layout::build() {
  register_parameters();
  run();
  Model model = assembler_.finish();
  model.shape = shape_;
  return model;
}

}  // namespace zerosim::internal
