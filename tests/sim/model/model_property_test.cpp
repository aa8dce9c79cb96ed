// Holds for every model: presets, the example listing and random configs.

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

void expect_consistent(const Model& model) {
  SCOPED_TRACE(model.name);
  // Each trainable parameter's gradient arrives exactly once, in an operator of a module that owns
  // it.
  std::vector<int> arrivals(model.parameters.size(), 0);
  std::vector<int> uses(model.parameters.size(), 0);
  for (const Operator& op : model.operators) {
    for (const ParameterId id : op.parameters) uses[id.index()] = 1;
    for (const ParameterId id : op.gradients) {
      ++arrivals[id.index()];
      EXPECT_THAT(model.modules[op.module.index()].parameters, testing::Contains(id));
    }
  }
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    // What no operator uses has none: DeepSeek-V3's correction bias only decides the choice.
    const int expected = model.parameters[i].trainable ? uses[i] : 0;
    EXPECT_EQ(arrivals[i], expected) << model.parameters[i].name;
    if (uses[i] == 0) {
      EXPECT_THAT(model.parameters[i].name, testing::EndsWith("e_score_correction_bias"));
    }
    ASSERT_TRUE(model.parameters[i].owner.valid()) << model.parameters[i].name;
  }
  // Each module is entered first inside its parent, and may be called again (T5's shared
  // embedding); each operator runs once in its module.
  std::vector<ModuleId> open;
  std::size_t modules = 0;
  std::size_t operations = 0;
  for (const ExecutionStep& step : model.forward) {
    switch (step.kind) {
      case ExecutionStep::Kind::Enter:
        ASSERT_LE(step.module.index(), modules);
        if (step.module.index() == modules) {
          ++modules;
          EXPECT_EQ(model.modules[step.module.index()].parent,
                    open.empty() ? ModuleId() : open.back());
        }
        open.push_back(step.module);
        break;
      case ExecutionStep::Kind::Compute:
        EXPECT_EQ(static_cast<std::size_t>(step.operation), operations++);
        ASSERT_EQ(open.back(), step.module);
        break;
      case ExecutionStep::Kind::Exit:
        ASSERT_EQ(open.back(), step.module);
        open.pop_back();
        break;
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(modules, model.modules.size());
  EXPECT_EQ(operations, model.operators.size());
}

TEST(ModelProperty, Presets) {
  for (const std::string& name : model_preset_names()) expect_consistent(load_model(name));
}

TEST(ModelProperty, Listings) {
  expect_consistent(load_model(test::data_path("gpt_tied_listing.json")));
  expect_consistent(load_model(std::string(ZEROSIM_SOURCE_DIR) + "/examples/module_listing.json"));
}

/// A number in [0, below) in the same way on every platform.
std::int64_t pick(std::mt19937_64& random, std::int64_t below) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
}

std::string random_config(std::mt19937_64& random) {
  const char* const types[] = {"llama", "mistral", "qwen2", "qwen3", "gpt2"};
  const std::string type = types[pick(random, 5)];
  const std::int64_t kv_heads = 1 + pick(random, 4);
  const std::int64_t heads = kv_heads * (1 + pick(random, 4));
  const std::int64_t hidden = heads * 2 * (1 + pick(random, 32));
  const char* const flag[] = {"false", "true"};
  if (type == "gpt2") {
    return format(R"({{"model_type": "gpt2", "n_embd": {}, "n_head": {}, "n_layer": {},
                      "vocab_size": {}, "tie_word_embeddings": {}}})",
                  hidden, heads, 1 + pick(random, 5), 10 + pick(random, 1000),
                  flag[pick(random, 2)]);
  }
  return format(R"({{"model_type": "{}", "hidden_size": {}, "num_attention_heads": {},
                    "num_key_value_heads": {}, "num_hidden_layers": {}, "intermediate_size": {},
                    "vocab_size": {}, "tie_word_embeddings": {}, "attention_bias": {},
                    "mlp_bias": {}}})",
                type, hidden, heads, kv_heads, 1 + pick(random, 5), 1 + pick(random, 500),
                10 + pick(random, 1000), flag[pick(random, 2)], flag[pick(random, 2)],
                flag[pick(random, 2)]);
}

class RandomConfigs : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomConfigs, AreConsistent) {
  std::mt19937_64 random(GetParam());
  const std::string text = random_config(random);
  SCOPED_TRACE(text);
  const Model model = parse_model(text, "random.json");
  expect_consistent(model);
  // GEMM FLOPs forward are 2 T for each element of a matrix that a product uses: all but the
  // embeddings, and a tied table once, in the head.
  const BatchShape batch{.micro_batch = 1 + pick(random, 4), .sequence = 1 + pick(random, 64)};
  double gemm = 0;
  Bytes saved;
  for (const Operator& op : model.operators) {
    const OperatorCost cost = operator_cost(model, op, batch);
    for (const Kernel& kernel : cost.forward) {
      if (kernel.kernel_class == KernelClass::Gemm) gemm += kernel.flops.count();
      EXPECT_GE(kernel.launches, 1);
      EXPECT_GT(kernel.bytes, Bytes(0));
    }
    saved += cost.saved;
  }
  double matrices = 0;
  for (const Module& module : model.modules) {
    if (module.class_name == "Embedding") continue;
    for (const ParameterId id : module.parameters) {
      const Parameter& parameter = model.parameters[id.index()];
      if (parameter.shape.size() == 2) matrices += static_cast<double>(parameter.elements);
    }
  }
  EXPECT_DOUBLE_EQ(gemm, 2 * static_cast<double>(batch.tokens()) * matrices);
  // Twice the sequences keep twice the bytes.
  BatchShape twice = batch;
  twice.micro_batch *= 2;
  Bytes saved_twice;
  for (const Operator& op : model.operators) saved_twice += operator_cost(model, op, twice).saved;
  EXPECT_EQ(saved_twice, saved * 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomConfigs, testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace zerosim
