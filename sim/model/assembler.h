/// \file
/// Puts a Model together: first its parameters in order of registration, then one forward pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/model/model.h"

namespace zerosim::internal {

/// Largest size of a dimension, a head count or a width that a file may state. Products of two stay
/// within 64 bits.
inline constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;

/// What hooks of a module see (C2.4, C2.5), and the block that it is in.
struct ModuleTraits {
  bool positional_gradient_input = true;
  bool gradient_output = true;
  int block = -1;  ///< -1: that of the parent
};

/// Every `enter` has its `exit`; parameters are registered before a module lists them.
class ModelAssembler {
 public:
  /// \throws std::overflow_error  if the model's elements leave 64 bits.
  ParameterId register_parameter(const std::string& name, std::vector<std::int64_t> shape,
                                 bool trainable = true);
  [[nodiscard]] bool is_registered(const std::string& name) const;
  [[nodiscard]] ParameterId parameter(const std::string& name) const;

  /// Calls a module inside the one that is open. `name` is its full path.
  ModuleId enter(const std::string& name, const std::string& class_name, ModuleTraits traits = {});
  /// The open module owns the parameter. A second owner makes the model one with tied embeddings.
  void own(const std::string& parameter_name);
  /// The open module computes. `gradient_names`: parameters whose gradient may arrive here; of
  /// those frozen, and of those owned by an earlier module (whose backward comes later, rule 82 of
  /// deepspeed_recorded.md), none does.
  void compute(OperatorKind kind, std::int64_t inputs, std::int64_t outputs,
               const std::vector<std::string>& gradient_names = {}, bool saves_input = true);
  void exit();

  [[nodiscard]] ModuleId open_module() const { return open_.back(); }
  [[nodiscard]] bool has_open_module() const { return !open_.empty(); }

  /// Name, family, shape and assumptions are the caller's to fill.
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] const Model& model() const { return model_; }

  /// The model; all modules must have been left.
  [[nodiscard]] Model finish();

 private:
  Model model_;
  std::map<std::string, ParameterId> by_name_;
  std::vector<ModuleId> open_;
  std::int64_t elements_ = 0;
};

}  // namespace zerosim::internal
