// Orders against recordings of DeepSpeed (tests/data/models/README.md).

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/trainable.h"
#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

/// Hooks of a forward and a backward, as recorded: a backward walks the forward in reverse; the
/// pre-backward hook (b+, C2.4) fires where an output requires a gradient, the post-backward hook
/// (b-, C2.5) where a positional input does.
std::vector<std::string> module_calls(const Model& model) {
  std::vector<std::string> calls;
  for (const ExecutionStep& step : model.forward) {
    if (step.kind == ExecutionStep::Kind::Compute) continue;
    const bool enters = step.kind == ExecutionStep::Kind::Enter;
    calls.push_back((enters ? "f+" : "f-") + model.modules[step.module.index()].name);
  }
  for (auto step = model.forward.rbegin(); step != model.forward.rend(); ++step) {
    const Module& module = model.modules[step->module.index()];
    if (step->kind == ExecutionStep::Kind::Exit && module.gradient_output) {
      calls.push_back("b+" + module.name);
    }
    if (step->kind == ExecutionStep::Kind::Enter && module.gradient_output &&
        module.positional_gradient_input) {
      calls.push_back("b-" + module.name);
    }
  }
  return calls;
}

std::vector<std::string> gradient_arrival(const Model& model) {
  std::vector<std::string> names;
  for (auto step = model.forward.rbegin(); step != model.forward.rend(); ++step) {
    if (step->kind != ExecutionStep::Kind::Compute) continue;
    const Operator& op = model.operators[static_cast<std::size_t>(step->operation)];
    for (const ParameterId id : op.gradients) names.push_back(model.parameters[id.index()].name);
  }
  return names;
}

TEST(RecordedLlama, ModuleCalls) {
  const Model model = load_model(test::data_path("llama_small.json"));
  EXPECT_EQ(module_calls(model), test::lines_of("llama_small_module_calls.txt"));
}

TEST(RecordedLlama, Registration) {
  const Model model = load_model(test::data_path("llama_small.json"));
  std::vector<std::string> rows = {"name,shape,elements,module"};
  for (const Parameter& parameter : model.parameters) {
    std::vector<std::string> shape;
    for (const std::int64_t extent : parameter.shape) shape.push_back(std::to_string(extent));
    rows.push_back(format("{},{},{},{}", parameter.name, join(shape, "x"), parameter.elements,
                          model.modules[parameter.owner.index()].name));
  }
  EXPECT_EQ(rows, test::lines_of("llama_small_parameters.csv"));
}

TEST(RecordedLlama, GradientArrival) {
  const Model model = load_model(test::data_path("llama_small.json"));
  EXPECT_EQ(gradient_arrival(model), test::lines_of("llama_small_gradient_arrival.txt"));
}

/// llama_small with adapters of rank 8 on q and v, as the recording names it: without PEFT's two
/// wrappers.
Model adapted_llama(bool input_requires_gradient) {
  TrainableOptions options;
  options.has_lora = true;
  options.lora = {.rank = 8, .targets = {"q_proj", "v_proj"}, .dropout = false};
  options.input_requires_gradient = input_requires_gradient;
  Model model = with_trainable(load_model(test::data_path("llama_small.json")), options);
  const std::string prefix = "base_model.model.";
  for (Parameter& parameter : model.parameters) parameter.name.erase(0, prefix.size());
  for (Module& module : model.modules) {
    if (module.name.starts_with(prefix)) module.name.erase(0, prefix.size());
  }
  std::erase_if(model.forward, [&](const ExecutionStep& step) {
    return model.modules[step.module.index()].name == "base_model";
  });
  return model;
}

// Rule 79: the backward visits only what autograd visits.
TEST(RecordedLora, ModuleCalls) {
  EXPECT_EQ(module_calls(adapted_llama(false)),
            test::lines_of("llama_small_lora_module_calls.txt"));
}

TEST(RecordedLora, ModuleCallsWithInputGradients) {
  EXPECT_EQ(module_calls(adapted_llama(true)),
            test::lines_of("llama_small_lora_inputgrads_module_calls.txt"));
}

TEST(RecordedLora, RegistrationAndTrainable) {
  std::vector<std::string> rows = {"name,shape,elements,trainable"};
  for (const Parameter& parameter : adapted_llama(false).parameters) {
    rows.push_back(format("{},{}x{},{},{}", parameter.name, parameter.shape[0],
                          parameter.shape.size() > 1 ? std::to_string(parameter.shape[1]) : "",
                          parameter.elements, parameter.trainable));
    const std::size_t dangling = rows.back().find("x,");
    if (dangling != std::string::npos) rows.back().erase(dangling, 1);  // vectors have one extent
  }
  EXPECT_EQ(rows, test::lines_of("llama_small_lora_parameters.csv"));
}

TEST(RecordedGpt, ModuleCallsOfAListing) {
  const Model model = load_model(test::data_path("gpt_tied_listing.json"));
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(parameter_count(model), 266'112);  // rule 82 of the recorded rules
  EXPECT_EQ(model.shape.layers, 4);
  EXPECT_EQ(module_calls(model), test::lines_of("gpt_tied_module_calls.txt"));
}

TEST(RecordedGpt, ArrivalOfATiedEmbeddingIsLast) {
  const Model model = load_model(test::data_path("gpt_tied_listing.json"));
  const std::vector<std::string> arrival = gradient_arrival(model);
  // LayerNorm: weight before bias; Linear: bias before weight; the head has no gradient of its own.
  const std::vector<std::string> first(arrival.begin(), arrival.begin() + 5);
  EXPECT_EQ(first, (std::vector<std::string>{"ln_f.weight", "ln_f.bias", "h.3.mlp.fc2.bias",
                                             "h.3.mlp.fc2.weight", "h.3.mlp.fc1.bias"}));
  EXPECT_EQ(arrival.back(), "wte.weight");
}

TEST(HuggingFaceGpt2, Orders) {
  const Model model = load_model("gpt2");
  std::vector<std::string> first_block;
  for (const Module& module : model.modules) {
    if (module.block == 0)
      first_block.push_back(module.name.substr(std::string("transformer.h.").size()));
  }
  EXPECT_THAT(first_block,
              testing::ElementsAre("0", "0.ln_1", "0.attn", "0.attn.c_attn", "0.attn.attn_dropout",
                                   "0.attn.c_proj", "0.attn.resid_dropout", "0.ln_2", "0.mlp",
                                   "0.mlp.c_fc", "0.mlp.act", "0.mlp.c_proj", "0.mlp.dropout"));
  const std::vector<std::string> names = test::parameter_names(model);
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.begin() + 8),
              testing::ElementsAre(
                  "transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                  "transformer.h.0.ln_1.bias", "transformer.h.0.attn.c_attn.weight",
                  "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_proj.weight",
                  "transformer.h.0.attn.c_proj.bias"));
  // A Conv1D holds {in, out}.
  EXPECT_EQ(model.parameters[4].shape, (std::vector<std::int64_t>{768, 2304}));
  EXPECT_EQ(gradient_arrival(model).back(), "transformer.wte.weight");
}

TEST(HuggingFaceQwen3, NormsOfQueryAndKey) {
  const Model model = load_model("qwen3-0.6b");
  std::vector<std::string> attention;
  for (const Module& module : model.modules) {
    if (module.block == 0 && module.name.find("self_attn.") != std::string::npos) {
      attention.push_back(module.name.substr(std::string("model.layers.0.self_attn.").size()));
    }
  }
  // Executed as q_norm(q_proj(x)), k_norm(k_proj(x)), v_proj(x); registered after o_proj.
  EXPECT_THAT(attention,
              testing::ElementsAre("q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj"));
  const std::vector<std::string> names = test::parameter_names(model);
  EXPECT_EQ(names[4], "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(names[5], "model.layers.0.self_attn.q_norm.weight");
  EXPECT_EQ(names[6], "model.layers.0.self_attn.k_norm.weight");
}

}  // namespace
}  // namespace zerosim
