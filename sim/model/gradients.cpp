// Where gradients flow: what autograd decides while the forward pass runs.

#include <algorithm>
#include <vector>

#include "sim/model/model.h"

namespace zerosim {
namespace {

class GradientTrace {
 public:
  explicit GradientTrace(Model& model)
      : model_(model),
        requires_(model.operators.size(), false),
        used_(model.parameters.size(), false),
        kept_(model.operators.size(), false),
        read_(model.operators.size(), false) {}

  void run() {
    for (std::size_t i = 0; i < model_.operators.size(); ++i) {
      Operator& op = model_.operators[i];
      op.input_gradient = any_requires(op.sources);
      op.output_gradient = op.input_gradient || trains(op) || is_input_embedding(op);
      requires_[i] = op.output_gradient;
      place_gradients(op);
      if (op.kind == OperatorKind::Linear && !op.sources.empty()) share_input(op);
      if (op.kind == OperatorKind::LayerNorm && !op.sources.empty()) share_norm_input(op);
      if (op.kind == OperatorKind::Attention) share_position_bias(op);
      if (op.kind == OperatorKind::Multiply) mark_gate(op);
      // What keeps its result keeps the next product's input with it.
      if (op.keeps_result && op.output_gradient) kept_[i] = true;
    }
    for (Module& module : model_.modules) {
      if (module.hooks_stated) continue;
      module.positional_gradient_input = any_requires(module.positional_inputs);
      module.gradient_output = module.output != kNoValue && requires_[index(module.output)];
    }
  }

 private:
  static std::size_t index(Value value) { return static_cast<std::size_t>(value); }

  [[nodiscard]] bool any_requires(const std::vector<Value>& values) const {
    return std::any_of(values.begin(), values.end(),
                       [this](Value value) { return requires_[index(value)]; });
  }

  [[nodiscard]] bool trains(const Operator& op) const {
    return std::any_of(op.parameters.begin(), op.parameters.end(),
                       [this](ParameterId id) { return model_.parameters[id.index()].trainable; });
  }

  /// The first embedding of the model, if its output is made to require a gradient.
  [[nodiscard]] bool is_input_embedding(const Operator& op) const {
    return model_.input_requires_gradient && op.kind == OperatorKind::Embedding &&
           &op ==
               &*std::find_if(model_.operators.begin(), model_.operators.end(),
                              [](const Operator& o) { return o.kind == OperatorKind::Embedding; });
  }

  void place_gradients(Operator& op) {
    op.gradients.clear();
    for (const ParameterId id : op.parameters) {
      if (model_.parameters[id.index()].trainable && !used_[id.index()]) op.gradients.push_back(id);
      used_[id.index()] = true;
    }
  }

  /// A product keeps its input only for the gradient of its weight, and one copy serves all.
  void share_input(Operator& op) {
    const std::size_t source = index(op.sources.front());
    op.shares_input = read_[source];
    read_[source] = true;
    const bool needed =
        std::any_of(op.parameters.begin(), op.parameters.end(), [&](ParameterId id) {
          const Parameter& parameter = model_.parameters[id.index()];
          return parameter.trainable && parameter.shape.size() >= 2;
        });
    op.saves_input = needed && !kept_[source];
    if (needed) kept_[source] = true;
  }

  /// Two norms of one tensor (GPT-NeoX's parallel layer) keep one copy.
  void share_norm_input(Operator& op) {
    const std::size_t source = index(op.sources.front());
    op.saves_input = !kept_[source];
    if (op.output_gradient) kept_[source] = true;
  }

  /// The one activation that a product of the same width reads.
  void mark_gate(const Operator& op) {
    for (const Value source : op.sources) {
      Operator& gate = model_.operators[index(source)];
      if (gate.kind != OperatorKind::Activation || gate.outputs != op.outputs) continue;
      gate.feeds_product = true;
      return;
    }
  }

  void share_position_bias(Operator& op) {
    for (const Value source : op.sources) {
      if (model_.operators[index(source)].kind != OperatorKind::PositionBias) continue;
      op.shares_input = read_[index(source)];
      read_[index(source)] = true;
    }
  }

  Model& model_;
  std::vector<bool> requires_;  ///< by operator: its result requires a gradient
  std::vector<bool> used_;      ///< by parameter: an earlier operator uses it
  std::vector<bool> kept_;  ///< by operator: its result is kept, by itself or by one that reads it
  std::vector<bool> read_;  ///< by operator: a product or an attention reads its result
};

}  // namespace

void trace_gradients(Model& model) {
  GradientTrace(model).run();
}

}  // namespace zerosim
