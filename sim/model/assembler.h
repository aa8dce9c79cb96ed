/// \file
/// Puts a Model together: first its parameters in order of registration, then one forward pass,
/// written as the Python code of a model is: what an operator returns is given to the next.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/model/model.h"

namespace zerosim::internal {

/// Largest size of a dimension, a head count or a width that a file may state. Products of two stay
/// within 64 bits.
inline constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;

/// Every `enter` has its `exit`; parameters are registered before a module lists them.
class ModelAssembler {
 public:
  /// \throws std::overflow_error  if the model's elements leave 64 bits.
  ParameterId register_parameter(const std::string& name, std::vector<std::int64_t> shape,
                                 bool trainable = true);
  [[nodiscard]] bool is_registered(const std::string& name) const;
  [[nodiscard]] ParameterId parameter(const std::string& name) const;

  /// Calls a module inside the one that is open. `name` is its full path; a name that has been
  /// called before is the same module again (T5's shared embedding).
  /// \param positional_inputs  results that it is given, by keyword not counted
  /// \param block  of checkpointing; -1: that of the parent
  ModuleId enter(const std::string& name, const std::string& class_name,
                 const std::vector<Value>& positional_inputs = {}, int block = -1);
  /// Leaves it; it returns `output`, which is handed on.
  Value exit(Value output = kNoValue);

  /// The open module owns the parameter. A second owner makes the model one with tied embeddings.
  void own(const std::string& parameter_name);
  /// The open module has a buffer of this name; nothing if it was said before.
  void register_buffer(const std::string& name, std::int64_t elements, Dtype dtype);
  /// The open module is a mixture of experts; modules entered with `enter_expert` are its experts.
  void open_moe_block(MoeBlock block);
  ModuleId enter_expert(int expert, const std::string& name, const std::string& class_name,
                        const std::vector<Value>& positional_inputs);

  /// The open module computes. `parameters`: those that the operator uses, in the order in which
  /// their gradients arrive. Returns its result.
  Value compute(OperatorKind kind, std::int64_t inputs, std::int64_t outputs,
                const std::vector<Value>& sources, const std::vector<std::string>& parameters = {});
  /// As `compute`, for the tokens of one expert of the open MoE block.
  Value compute_routed(int expert, OperatorKind kind, std::int64_t inputs, std::int64_t outputs,
                       const std::vector<Value>& sources,
                       const std::vector<std::string>& parameters = {});
  /// The activation of class `class_name`, element by element.
  Value activate(const std::string& class_name, std::int64_t width, Value x);
  Value attend(const AttentionShape& shape, const std::vector<Value>& sources);

  /// Name, family, shape and assumptions are the caller's to fill.
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] const Model& model() const { return model_; }

  /// The model, its gradients traced; all modules must have been left.
  [[nodiscard]] Model finish();

 private:
  Model model_;
  std::map<std::string, ParameterId> parameters_;
  std::map<std::string, ModuleId> modules_;
  std::vector<ModuleId> open_;
  std::int64_t elements_ = 0;
};

}  // namespace zerosim::internal
