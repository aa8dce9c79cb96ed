// ZeRO-3 leaf modules.

#include "sim/model/leaf_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/routing.h"
#include "sim/model/trainable.h"
#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using testing::ElementsAre;

/// One layer of four experts, one a token.
Model small_mixtral() {
  return parse_model(
      R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 1})",
      "config.json");
}

std::vector<ModuleId> modules_of_class(const Model& model, const std::string& class_name) {
  std::vector<ModuleId> result;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    if (model.modules[i].class_name == class_name) result.emplace_back(i);
  }
  return result;
}

std::vector<std::string> entered(const Model& model) {
  std::vector<std::string> names;
  for (const ExecutionStep& step : model.forward) {
    const std::string& name = model.modules[step.module.index()].name;
    const bool layer = name.starts_with("model.layers.0.block_sparse_moe");
    if (step.kind == ExecutionStep::Kind::Enter && layer) names.push_back(name);
  }
  return names;
}

TEST(Leaf, OwnsWhatIsBelowItAndHasTheOnlyHooks) {
  const Model plain = small_mixtral();
  const Model model = with_leaf_modules(plain, modules_of_class(plain, "MixtralSparseMoeBlock"));
  const Module& block = test::module_named(model, "model.layers.0.block_sparse_moe");
  EXPECT_TRUE(block.leaf);
  EXPECT_EQ(block.parameters.size(), 1U + 4 * 3);  // router; w1, w2, w3 of each expert
  EXPECT_TRUE(std::is_sorted(block.parameters.begin(), block.parameters.end()));
  EXPECT_THAT(entered(model), ElementsAre("model.layers.0.block_sparse_moe"));
  EXPECT_EQ(entered(plain).size(), 2U + 4 * 5);  // block, router; expert, w1, act_fn, w3, w2
  EXPECT_EQ(parameter_count(model), parameter_count(plain));
  EXPECT_EQ(active_parameter_count(model), active_parameter_count(plain));
}

// Rule 89: reduced when the block's backward is done, in order of registration, unused ones too.
TEST(Leaf, GradientsArriveTogether) {
  const Model plain = route_tokens(small_mixtral(), Routing{}, 1);  // one expert is called
  const Model model = with_leaf_modules(plain, modules_of_class(plain, "MixtralSparseMoeBlock"));
  const Module& block = test::module_named(model, "model.layers.0.block_sparse_moe");
  std::vector<std::vector<ParameterId>> arrivals;
  for (const ExecutionStep& step : model.forward) {
    if (step.kind != ExecutionStep::Kind::Compute) continue;
    const Operator& op = model.operators[static_cast<std::size_t>(step.operation)];
    const bool inside = model.modules[op.module.index()].name.starts_with(block.name);
    if (inside && !op.gradients.empty()) arrivals.push_back(op.gradients);
  }
  EXPECT_THAT(arrivals, ElementsAre(block.parameters));
}

TEST(Leaf, FrozenExpertsHaveNoGradient) {
  TrainableOptions options;
  options.freeze = {"*.experts"};
  const Model plain = with_trainable(small_mixtral(), options);
  const Model model = with_leaf_modules(plain, modules_of_class(plain, "MixtralSparseMoeBlock"));
  std::vector<std::string> arrivals;
  for (const Operator& op : model.operators) {
    if (!model.modules[op.module.index()].name.starts_with("model.layers.0.block")) continue;
    for (const ParameterId id : op.gradients) arrivals.push_back(model.parameters[id.index()].name);
  }
  EXPECT_THAT(arrivals, ElementsAre("model.layers.0.block_sparse_moe.gate.weight"));
}

TEST(Leaf, ALeafInsideAnotherIsLeftOut) {
  const Model plain = small_mixtral();
  std::vector<ModuleId> leaves = modules_of_class(plain, "MixtralSparseMoeBlock");
  for (const ModuleId id : modules_of_class(plain, "MixtralBlockSparseTop2MLP")) {
    leaves.push_back(id);
  }
  const Model model = with_leaf_modules(plain, leaves);
  EXPECT_FALSE(test::module_named(model, "model.layers.0.block_sparse_moe.experts.0").leaf);
}

// C2.5b: floor(parameters of the subtree / modules of the subtree below which there are some).
TEST(Granularity, ComparesParametersAModule) {
  const Model model = small_mixtral();
  const auto names = [&](std::int64_t threshold) {
    std::vector<std::string> result;
    for (const ModuleId id : leaf_modules_by_granularity(model, threshold)) {
      result.push_back(model.modules[id.index()].name);
    }
    return result;
  };
  // attention: q 4,096, k 2,048, v 2,048, o 4,096, and itself: 12,288 / 5 = 2,457
  EXPECT_THAT(names(2456), ElementsAre());
  EXPECT_THAT(names(2457), ElementsAre("model.layers.0.self_attn"));
  // an expert: 3 x 8,192 / 4; the block: (256 + 4 x 24,576) / (1 + 4 x 4 + 1) = 5,475
  EXPECT_THAT(names(5475), testing::Contains("model.layers.0.block_sparse_moe"));
  EXPECT_THAT(names(5474), testing::Not(testing::Contains("model.layers.0.block_sparse_moe")));
}

}  // namespace
}  // namespace zerosim
