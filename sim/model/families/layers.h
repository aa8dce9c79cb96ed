/// \file
/// The modules that families share: what each registers, and what it runs.
///
/// `register_` functions go in the order of a class's `__init__`, the others in that of its
/// `forward`; each of the latter enters a module, computes, leaves it and returns its result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/assembler.h"

namespace zerosim::internal {

class Layers {
 public:
  explicit Layers(ModelAssembler& assembler) : assembler_(assembler) {}

  void register_parameter(const std::string& name, std::vector<std::int64_t> shape) {
    assembler_.register_parameter(name, std::move(shape));
  }
  /// nn.Linear: weight {out, in} and, if `bias`, bias {out}.
  void register_linear(const std::string& path, std::int64_t inputs, std::int64_t outputs,
                       bool bias);
  void register_embedding(const std::string& path, std::int64_t rows, std::int64_t width);
  /// A norm with a weight only.
  void register_norm(const std::string& path, std::int64_t width);
  /// nn.LayerNorm: weight and bias.
  void register_layer_norm(const std::string& path, std::int64_t width);

  /// Owns what is registered under `path`, or `weight`, the name of a tied one.
  Value linear(const std::string& path, std::int64_t inputs, std::int64_t outputs, Value x,
               const std::string& class_name = "Linear", const std::string& weight = "");
  Value embedding(const std::string& path, std::int64_t rows, std::int64_t width,
                  const std::string& class_name = "Embedding");
  Value rms_norm(const std::string& path, const std::string& class_name, std::int64_t width,
                 Value x);
  Value layer_norm(const std::string& path, std::int64_t width, Value x,
                   const std::string& class_name = "LayerNorm");
  Value activation(const std::string& path, const std::string& class_name, std::int64_t width,
                   Value x);
  Value dropout(const std::string& path, std::int64_t width, Value x);
  /// Called, and without result that could need a gradient: tables of positions; dropouts that a
  /// fused kernel takes over.
  void call_without_result(const std::string& path, const std::string& class_name);
  /// A table of positions for rotations of `rotated` elements of a head: one inverse frequency for
  /// each pair of them (modeling_rope_utils.py, arange(0, rotated, 2)).
  void rotary_embedding(const std::string& path, const std::string& class_name,
                        std::int64_t rotated);

  // Operators of the module that is open.
  Value add(std::int64_t width, Value a, Value b) {
    return assembler_.compute(OperatorKind::ResidualAdd, 0, width, {a, b});
  }
  Value multiply(std::int64_t width, Value a, Value b) {
    return assembler_.compute(OperatorKind::Multiply, 0, width, {a, b});
  }
  /// Times a number.
  Value scale(std::int64_t width, Value x) {
    return assembler_.compute(OperatorKind::Scale, 0, width, {x});
  }
  /// Rotates q and k; v is handed on as it is.
  Value rotary(std::int64_t width, Value q, Value k) {
    return assembler_.compute(OperatorKind::Rotary, 0, width, {q, k});
  }
  Value loss(std::int64_t vocab, Value logits) {
    return assembler_.compute(OperatorKind::CrossEntropy, 0, vocab, {logits});
  }

  [[nodiscard]] ModelAssembler& assembler() { return assembler_; }

 private:
  ModelAssembler& assembler_;
};

/// How every family is laid out: its parameters in order of registration, then one forward pass.
class Layout {
 public:
  virtual ~Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  /// Parameters, modules, operators and shape; to be called once.
  [[nodiscard]] Model build();

 protected:
  explicit Layout(const ModelShape& shape) : shape_(shape), layers_(assembler_) {}

  virtual void register_parameters() = 0;
  virtual void run() = 0;

  ModelShape shape_;
  ModelAssembler assembler_;
  Layers layers_;
};

}  // namespace zerosim::internal
