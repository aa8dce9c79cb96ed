// Models of which little more than the number of parameters is known.

#include "sim/model/sized_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/routing.h"
#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Build>
std::string error_of(Build build) {
  try {
    static_cast<void>(build());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

const Parameter& parameter_named(const Model& model, const std::string& name) {
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name == name) return parameter;
  }
  ADD_FAILURE() << "no parameter " << name;
  return model.parameters.front();
}

TEST(SizedModel, TwelveSquaresALayer) {
  // 2 x 12 x 256^2 = 1,572,864 in blocks, 100 x 256 embedding, 2 x 256 x 5 norms.
  const Model model = decoder_of_sizes({1'572'864 + 25'600 + 2'560, 2, 256, 100});
  EXPECT_EQ(parameter_count(model), 1'601'024);
  EXPECT_EQ(parameter_named(model, "layers.1.attention.qkv.weight").shape,
            (std::vector<std::int64_t>{768, 256}));
  EXPECT_EQ(parameter_named(model, "layers.1.mlp.up.weight").shape,
            (std::vector<std::int64_t>{1024, 256}));
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.shape.heads, 2);  // of 128
}

/// One of eight tensor-parallel parts: an eighth of the heads and of the MLPs.
TEST(SizedModel, APartOfALayer) {
  // 12 x 1024^2 / 8 = 1,572,864 a block: 4 x 1024 x 128 + 2 x 1024 x 512.
  const Model model = decoder_of_sizes({3 * 1'572'864 + 1024 * 50 + 2 * 1024 * 7, 3, 1024, 50});
  EXPECT_EQ(model.shape.heads, 1);
  EXPECT_EQ(model.shape.ffn, 512);
  EXPECT_EQ(parameter_count(model), 3 * 1'572'864 + 1024 * 50 + 2 * 1024 * 7);
}

TEST(SizedModel, MissesTheStatedNumberByLessThanOneRowAndColumn) {
  for (const std::int64_t parameters : {6'805'000'000, 10'000'000'001, 9'999'999'999}) {
    const std::int64_t count = parameter_count(decoder_of_sizes({parameters, 32, 4096, 32000}));
    EXPECT_LE(count, parameters);
    EXPECT_GT(count, parameters - 2 * 4096);
  }
}

TEST(SizedModel, SizesThatNoModelHas) {
  EXPECT_EQ(error_of([] {
              return decoder_of_sizes({1000, 2, 256, 100});
            }),
            "n_params 1000: 2 layers of width 256 with a vocabulary of 100 need more");
  EXPECT_EQ(error_of([] {
              return decoder_of_sizes({1'000'000, 0, 256, 100});
            }),
            "layers: found 0, expected 1 to 100000");
  EXPECT_THAT(error_of([] {
                return decoder_of_sizes({1'000'000, 2, 256, 20'000'000});
              }),
              HasSubstr("vocab: found 20000000"));
}

TEST(SizedModel, CountsAlone) {
  const Model model = model_of_counts(34, 9);
  EXPECT_EQ(parameter_count(model), 34);
  EXPECT_EQ(trainable_parameter_count(model), 9);
  EXPECT_EQ(trainable_parameter_count(model_of_counts(34, 34)), 34);
  EXPECT_EQ(error_of([] { return model_of_counts(34, 35); }),
            "trainable_params: found 35, expected 1 to 34");
}

TEST(SizedModel, TrainsTheFirstThatFit) {
  // In order of registration: embedding 25,600 (too large), then norms of 256 + 256 and the
  // matrices of 196,608, 65,536, ...: the first norm and no matrix fit into 2,000.
  const Model whole = decoder_of_sizes({1'601'024, 2, 256, 100});
  const Model model = with_trained_count(whole, 2'000);
  EXPECT_FALSE(parameter_named(model, "embedding.weight").trainable);
  EXPECT_TRUE(parameter_named(model, "layers.0.attention_norm.weight").trainable);
  EXPECT_FALSE(parameter_named(model, "layers.0.attention.out.weight").trainable);
  EXPECT_EQ(trainable_parameter_count(model), 7 * 256);  // 2,000 = 7 x 256 + 208
  EXPECT_EQ(trainable_parameter_count(with_trained_count(whole, 1)), 256);
  EXPECT_EQ(trainable_parameter_count(with_trained_count(whole, 1'601'024)), 1'601'024);
  EXPECT_THAT(error_of([&] { return with_trained_count(whole, 0); }), HasSubstr("found 0"));
}

TEST(SizedModel, FusedExperts) {
  const Model model = parse_model(
      R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 100, "num_local_experts": 8, "num_experts_per_tok": 2})",
      "config.json");
  const Model fused = with_fused_experts(model);
  EXPECT_EQ(parameter_count(fused), parameter_count(model));
  // 2 layers x 8 experts x 3 matrices become 2 x 3.
  EXPECT_EQ(fused.parameters.size(), model.parameters.size() - 48 + 6);
  const Parameter& down =
      parameter_named(fused, "model.layers.1.block_sparse_moe.experts.w2.weight");
  EXPECT_THAT(down.shape, ElementsAre(8, 64, 128));
  EXPECT_EQ(down.owner, fused.moe_blocks[1].module);
  EXPECT_EQ(trainable_parameter_count(fused), trainable_parameter_count(model));
  // Each gradient still arrives once.
  std::size_t gradients = 0;
  for (const Operator& op : fused.operators) gradients += op.gradients.size();
  EXPECT_EQ(gradients, fused.parameters.size());
  EXPECT_EQ(parameter_count(route_tokens(fused, {}, 64)), parameter_count(model));
}

TEST(SizedModel, ModelsWithoutExpertsStay) {
  const Model model = decoder_of_sizes({1'601'024, 2, 256, 100});
  EXPECT_EQ(with_fused_experts(model).parameters.size(), model.parameters.size());
}

}  // namespace
}  // namespace zerosim
