/// \file
/// Models for tests of the program builders: a Llama of given widths, and a chain of given sizes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "sim/base/text.h"
#include "sim/model/model.h"

namespace zerosim::test {

struct LlamaWidths {
  std::int64_t hidden, ffn, kv_width, vocab, layers, head_dim;
};

/// Through the same reader as a user's config.json.
inline Model llama(const LlamaWidths& widths) {
  const std::string path = format("/tmp/zerosim_llama_{}_{}.json", widths.hidden, getpid());
  std::ofstream(path) << format(
      R"({{"model_type": "llama", "hidden_size": {}, "intermediate_size": {}, "vocab_size": {},
          "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {},
          "max_position_embeddings": 4096, "tie_word_embeddings": false}})",
      widths.hidden, widths.ffn, widths.vocab, widths.layers, widths.hidden / widths.head_dim,
      widths.kv_width / widths.head_dim);
  Model model = load_model(path);
  std::remove(path.c_str());
  return model;
}

/// Modules called one after another under a root, one vector parameter each, registered in call
/// order. Gradients arrive in reverse.
inline Model chain(const std::vector<std::int64_t>& elements) {
  Model model;
  model.name = "chain";
  model.family = "listing";
  model.shape.hidden = 8;
  Module root;
  root.class_name = "Chain";
  root.positional_gradient_input = false;
  model.modules.push_back(root);
  model.forward.push_back({ExecutionStep::Kind::Enter, ModuleId(0), -1});
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const ModuleId module(i + 1);
    const ParameterId parameter(i);
    model.parameters.push_back({format("m{}.weight", i), {elements[i]}, elements[i], module, true});
    Module child;
    child.name = format("m{}", i);
    child.class_name = "RMSNorm";
    child.parent = ModuleId(0);
    child.parameters = {parameter};
    model.modules.push_back(child);
    Operator op;
    op.kind = OperatorKind::RmsNorm;
    op.module = module;
    op.outputs = op.inputs = 8;
    op.gradients = {parameter};
    model.operators.push_back(op);
    model.forward.push_back({ExecutionStep::Kind::Enter, module, -1});
    model.forward.push_back({ExecutionStep::Kind::Compute, module, static_cast<std::int32_t>(i)});
    model.forward.push_back({ExecutionStep::Kind::Exit, module, -1});
  }
  model.forward.push_back({ExecutionStep::Kind::Exit, ModuleId(0), -1});
  return model;
}

}  // namespace zerosim::test
