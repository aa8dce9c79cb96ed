/// \file
/// Small helpers of the model tests.
#pragma once

#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/model/model.h"
#include "sim/model/operators.h"

namespace zerosim::test {

inline std::string data_path(const std::string& name) {
  return std::string(ZEROSIM_TEST_DATA) + "/models/" + name;
}

inline std::vector<std::string> lines_of(const std::string& name) {
  std::vector<std::string> lines;
  std::string line;
  for (const char c : read_file(data_path(name))) {
    if (c == '\n') {
      lines.push_back(line);
      line.clear();
    } else {
      line += c;
    }
  }
  return lines;
}

/// The message of the ConfigError that reading `text` as config.json must throw.
inline std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_model(text, "config.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

inline const Module& module_named(const Model& model, const std::string& name) {
  for (const Module& module : model.modules) {
    if (module.name == name) return module;
  }
  throw ConfigError("no module " + name);
}

inline std::vector<std::string> parameter_names(const Model& model) {
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  return names;
}

/// Names that begin with `prefix`, without it.
inline std::vector<std::string> below(const std::vector<std::string>& names,
                                      const std::string& prefix) {
  std::vector<std::string> result;
  for (const std::string& name : names) {
    if (name.starts_with(prefix)) result.push_back(name.substr(prefix.size()));
  }
  return result;
}

/// Parameters below `prefix`, in order of registration.
inline std::vector<std::string> registered(const Model& model, const std::string& prefix) {
  return below(parameter_names(model), prefix);
}

/// Modules below `prefix`, in order of first execution.
inline std::vector<std::string> executed(const Model& model, const std::string& prefix) {
  std::vector<std::string> names;
  for (const Module& module : model.modules) names.push_back(module.name);
  return below(names, prefix);
}

/// What one block adds up to.
struct BlockSum {
  Flops forward_gemm, backward_gemm, forward_attention, backward_attention;
  Bytes saved;
  int forward_launches = 0;
  int backward_launches = 0;
};

inline void add_kernels(const std::vector<Kernel>& kernels, Flops& gemm, Flops& attention,
                        int& launches) {
  for (const Kernel& kernel : kernels) {
    const bool scores = kernel.name.substr(0, 9) == "attention";
    (scores ? attention : gemm) += kernel.flops;
    launches += kernel.launches;
  }
}

inline BlockSum block_sum(const Model& model, int block, const BatchShape& batch) {
  BlockSum sum;
  for (const Operator& op : model.operators) {
    if (model.modules[op.module.index()].block != block) continue;
    const OperatorCost cost = operator_cost(model, op, batch);
    add_kernels(cost.forward, sum.forward_gemm, sum.forward_attention, sum.forward_launches);
    add_kernels(cost.backward_input, sum.backward_gemm, sum.backward_attention,
                sum.backward_launches);
    add_kernels(cost.backward_weights, sum.backward_gemm, sum.backward_attention,
                sum.backward_launches);
    sum.saved += cost.saved;
  }
  return sum;
}

/// A GPT-2 of two layers with the hidden width and heads of E5's example.
inline Model gpt_of_e5() {
  return parse_model(
      R"({"model_type": "gpt2", "n_embd": 4096, "n_layer": 2, "n_head": 32, "n_positions": 2048,
          "vocab_size": 50257})",
      "gpt.json");
}

}  // namespace zerosim::test
