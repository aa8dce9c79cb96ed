#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/model/routing.h"
#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

using test::error_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// A listing with these lines as its modules; line 2 of the text is the first module.
std::string listing(const std::string& modules, const std::string& head = "") {
  return R"({"format": "zerosim.module_listing", "version": 1, )" + head + "\"modules\": [\n" +
         modules + "\n]}";
}

const char* const kRoot = R"({"name": "", "class": "Net"},)";
const char* const kLinear =
    R"({"name": "fc", "class": "Linear", "parameters": [{"name": "fc.weight", "shape": [4, 8]}]})";

std::vector<std::string> kinds_and_modules(const Model& model) {
  std::vector<std::string> result;
  for (const Operator& op : model.operators) {
    result.push_back(format("{} {} {}>{}", model.modules[op.module.index()].name,
                            to_string(op.kind), op.inputs, op.outputs));
  }
  return result;
}

TEST(Listing, Example) {
  const Model model = load_model(std::string(ZEROSIM_SOURCE_DIR) + "/examples/module_listing.json");
  EXPECT_EQ(model.name, "two-blocks");
  EXPECT_EQ(model.family, "listing");
  EXPECT_EQ(model.shape.layers, 2);
  EXPECT_EQ(model.shape.heads, 4);
  EXPECT_TRUE(model.tied_embeddings);
  // 64,000 + 2 (128 + 64*192 + 192 + 64*64 + 64 + 2*64*256 + 256 + 64) + 128
  EXPECT_EQ(parameter_count(model), 64'000 + 2 * 49'856 + 128);
  EXPECT_THAT(model.assumptions,
              ElementsAre("2 blocks: modules with children whose name ends with an "
                          "integer"));
  std::vector<std::string> block;
  for (const std::string& op : kinds_and_modules(model)) {
    if (op.substr(0, 3) == "h.1") block.push_back(op);
  }
  EXPECT_THAT(block, ElementsAre("h.1.norm LayerNorm 0>64", "h.1.attn.qkv Linear 64>192",
                                 "h.1.attn Attention 0>64", "h.1.attn.proj Linear 64>64",
                                 "h.1.fc1 Linear 64>256", "h.1.act Activation 0>256",
                                 "h.1.fc2 Linear 256>64"));
  EXPECT_EQ(kinds_and_modules(model).back(), " CrossEntropy 0>1000");
}

TEST(Listing, SameActivationsAsTheGptItDescribes) {
  const Model model = load_model(std::string(ZEROSIM_SOURCE_DIR) + "/examples/module_listing.json");
  const BatchShape batch{.micro_batch = 1, .sequence = 16};
  // norm 2h, qkv 2h, q k v 6h, lse 4a, proj 2h, fc1 2h, act 8h, fc2 8h = 30 h + 4 a; h = 64, a = 4
  EXPECT_EQ(test::block_sum(model, 0, batch).saved, Bytes(16 * (30 * 64 + 4 * 4)));
}

TEST(Listing, TrainableAndRegistration) {
  const Model model =
      parse_model(listing(std::string(kRoot) +
                              R"({"name": "a", "class": "Linear", "parameters": [
          {"name": "a.weight", "shape": [2, 3], "dtype": "float16", "trainable": false},
          {"name": "a.bias", "shape": [2]}]},)" +
                              kLinear,
                          R"("registration": ["fc.weight", "a.weight", "a.bias"], )"),
                  "net.json");
  EXPECT_THAT(test::parameter_names(model), ElementsAre("fc.weight", "a.weight", "a.bias"));
  EXPECT_EQ(trainable_parameter_count(model), 32 + 2);
  EXPECT_EQ(model.operators[0].gradients, std::vector<ParameterId>{ParameterId(2)});
  EXPECT_EQ(model.modules[model.parameters[0].owner.index()].name, "fc");
}

TEST(Listing, UnknownClassesWithParameters) {
  const Model model =
      parse_model(listing(std::string(kRoot) + R"({"name": "x", "class": "Mixer", "parameters": [
          {"name": "x.in", "shape": [6, 2, 2]}, {"name": "x.scale", "shape": [6]}]})"),
                  "net.json");
  EXPECT_THAT(kinds_and_modules(model), ElementsAre("x Linear 4>6", "x Multiply 0>6"));
  EXPECT_THAT(model.assumptions,
              Contains(HasSubstr("\"x\" (Mixer): its matrices count as products")));
}

TEST(Listing, StatedBlocksAndHooks) {
  const Model model =
      parse_model(listing(std::string(kRoot) + R"({"name": "enc", "class": "Stage", "block": 3,
                "positional_gradient_input": false, "gradient_output": false},
          {"name": "enc.fc", "class": "Linear", "parameters": [{"name": "w", "shape": [4, 8]}]})"),
                  "net.json");
  EXPECT_EQ(test::module_named(model, "enc.fc").block, 3);
  EXPECT_EQ(model.shape.layers, 4);
  EXPECT_FALSE(test::module_named(model, "enc").positional_gradient_input);
  EXPECT_FALSE(test::module_named(model, "enc").gradient_output);
}

TEST(Listing, ParentsByDottedName) {
  const Model model =
      parse_model(listing(std::string(kRoot) + R"({"name": "layers.0", "class": "Block"},
          {"name": "layers.0.a.b", "class": "Deep"}, {"name": "layers.01", "class": "Other"})"),
                  "net.json");
  EXPECT_EQ(test::module_named(model, "layers.0.a.b").parent, ModuleId(1));
  EXPECT_EQ(test::module_named(model, "layers.01").parent, ModuleId(0));
}

TEST(Listing, HeaderErrors) {
  EXPECT_EQ(
      error_of(R"({"format": "zerosim.listing", "version": 1, "modules": []})"),
      "config.json:1:12: format: found \"zerosim.listing\", expected \"zerosim.module_listing\"");
  EXPECT_THAT(error_of(R"({"format": "zerosim.module_listing", "version": 2, "modules": []})"),
              HasSubstr("config.json:1:49: version: found 2, expected 1"));
  EXPECT_THAT(error_of(R"({"format": "zerosim.module_listing", "version": 1})"),
              HasSubstr("modules: missing"));
  EXPECT_THAT(error_of(listing("")), HasSubstr("modules: found none, expected the root first"));
  EXPECT_THAT(error_of(listing(kRoot + std::string(kLinear), "\"vocabulary\": 7, ")),
              HasSubstr("vocabulary"));
}

TEST(Listing, ModuleErrors) {
  EXPECT_EQ(error_of(listing(kLinear)),
            "config.json:2:1: the first module is \"fc\", expected the root, named \"\"");
  EXPECT_THAT(error_of(listing(std::string(kRoot) + "\n" + kLinear + ",\n" + kLinear)),
              HasSubstr("config.json:4:1: module \"fc\" is listed twice"));
  EXPECT_THAT(error_of(listing(std::string(kRoot) + "\n" + R"({"name": "a.b", "class": "X"},
{"name": "a", "class": "X"})")),
              HasSubstr("config.json:3:1: module \"a.b\" stands before its parent \"a\""));
  EXPECT_THAT(
      error_of(listing(std::string(kRoot) + R"({"name": "a", "class": "X"},
{"name": "c", "class": "X"},
{"name": "a.b", "class": "X"})")),
      HasSubstr("config.json:4:1: module \"a.b\" stands after the end of its parent \"a\""));
  EXPECT_THAT(error_of(listing(std::string(kRoot) + "\n" + R"({"name": "a", "class": "Linear"})")),
              HasSubstr("config.json:3:1: Linear \"a\" has no parameter of two dimensions"));
  EXPECT_THAT(error_of(listing(R"({"name": "", "clas": "Net"})")), HasSubstr("class: missing"));
  EXPECT_THAT(error_of(listing(R"({"name": "", "class": "Net", "blocks": 1})")),
              HasSubstr("did you mean \"block\"?"));
}

TEST(Listing, ParameterErrors) {
  const auto with_shape = [](const std::string& shape) {
    return error_of(listing(std::string(kRoot) + "\n" +
                            R"({"name": "a", "class": "Linear", "parameters": [
{"name": "a.w", "shape": )" +
                            shape + "}]}"));
  };
  EXPECT_THAT(with_shape("[4, 0]"),
              HasSubstr("config.json:4:26: modules[1].parameters[0].shape: found 0"));
  EXPECT_THAT(with_shape("[4, -1]"), HasSubstr("found -1, expected sizes of 1 to 2147483648"));
  EXPECT_THAT(with_shape("\"4x4\""), HasSubstr("expected an array of integers"));
  EXPECT_THAT(with_shape("[2000000000, 2000000000, 2000000000]"), HasSubstr("64 bits"));
  EXPECT_THAT(
      error_of(listing(
          std::string(kRoot) + kLinear + ",\n" +
          R"({"name": "b", "class": "Linear", "parameters": [{"name": "fc.weight", "shape": [4, 9]}]})")),
      HasSubstr("config.json:3:49: parameter \"fc.weight\" differs from its first mention at "
                "config.json:2:"));
}

TEST(Listing, RegistrationErrors) {
  const auto with = [](const std::string& names) {
    return error_of(listing(kRoot + std::string(kLinear), "\"registration\": " + names + ", "));
  };
  EXPECT_THAT(
      with(R"(["fc.weigth"])"),
      HasSubstr("config.json:1:69: registration: \"fc.weigth\" is a parameter of no module; did "
                "you mean \"fc.weight\"?"));
  EXPECT_THAT(with(R"(["fc.weight", "fc.weight"])"), HasSubstr("\"fc.weight\" is listed twice"));
  EXPECT_THAT(with("[]"), HasSubstr("registration: parameter \"fc.weight\" is missing"));
}

TEST(Listing, AttentionErrors) {
  const auto with = [](const std::string& attention) {
    return error_of(listing(std::string(kRoot) + "\n" +
                            R"({"name": "a", "class": "A", "attention": )" + attention + "}"));
  };
  EXPECT_THAT(with(R"({"heads": 4, "kv_heads": 3, "head_dim": 8})"),
              HasSubstr("modules[1].attention.kv_heads: 3 does not divide heads = 4"));
  EXPECT_THAT(with(R"({"heads": 0, "head_dim": 8})"), HasSubstr("heads: found 0"));
  EXPECT_THAT(with(R"({"heads": 4})"), HasSubstr("head_dim: missing"));
}

// --- mixtures of experts

/// An embedding, and a block of two experts of one product each; a token goes to one of them.
std::string moe_listing(const std::string& experts, const std::string& block_keys = "") {
  return listing(R"({"name": "", "class": "Net"},
{"name": "wte", "class": "Embedding", "parameters": [{"name": "wte.weight", "shape": [10, 4]}]},
{"name": "moe", "class": "MoE", "experts_per_token": 1)" +
                 block_keys + R"(},
{"name": "moe.gate", "class": "Linear", "parameters": [{"name": "g", "shape": [2, 4]}]},
)" + experts + R"(
{"name": "head", "class": "Linear", "parameters": [{"name": "head.weight", "shape": [10, 4]}]})");
}

std::string expert(int number, const std::string& name) {
  return format(R"({{"name": "moe.experts.{}", "class": "Expert", "expert": {}}},
{{"name": "moe.experts.{}.fc", "class": "Linear", "parameters": [
  {{"name": "fc{}", "shape": [4, 4]}}]}},
)",
                name, number, name, name);
}

const std::string kTwoExperts = expert(0, "0") + expert(1, "1");

TEST(Listing, MixtureOfExperts) {
  const Model model = parse_model(moe_listing(kTwoExperts), "net.json");
  EXPECT_THAT(
      kinds_and_modules(model),
      ElementsAre("wte Embedding 10>4", "moe.gate Linear 4>2", "moe Router 0>2",
                  "moe ExpertGather 0>4", "moe.experts.0.fc Linear 4>4", "moe ExpertScatter 0>4",
                  "moe ExpertGather 0>4", "moe.experts.1.fc Linear 4>4", "moe ExpertScatter 0>4",
                  "head Linear 4>10"));
  ASSERT_EQ(model.moe_blocks.size(), 1U);
  EXPECT_EQ(model.moe_blocks[0].experts, 2);
  EXPECT_EQ(model.moe_blocks[0].experts_per_token, 1);
  EXPECT_EQ(model.modules[model.moe_blocks[0].module.index()].name, "moe");
  // Children are part of their expert.
  EXPECT_EQ(model.modules.back().expert, -1);
  EXPECT_EQ(model.modules[model.modules.size() - 2].name, "moe.experts.1.fc");
  EXPECT_EQ(model.modules[model.modules.size() - 2].expert, 1);
  EXPECT_EQ(model.modules[model.modules.size() - 2].moe_block, 0);
  // Both experts read what the block was given and the router's choice; the second adds to the
  // first; the head reads the sum.
  EXPECT_THAT(model.operators[3].sources, ElementsAre(0, 2));
  EXPECT_THAT(model.operators[6].sources, ElementsAre(0, 2));
  EXPECT_THAT(model.operators[5].sources, ElementsAre(4, 2));
  EXPECT_THAT(model.operators[8].sources, ElementsAre(5, 7, 2));
  EXPECT_THAT(model.operators[9].sources, ElementsAre(8));
  EXPECT_EQ(model.operators[7].expert, 1);
  // 40 + 8 + 2 x 16 + 40, of which one expert of two acts on a token.
  EXPECT_EQ(parameter_count(model), 120);
  EXPECT_EQ(active_parameter_count(model), 104);
}

TEST(Listing, ExpertsSeeTheTokensThatAreRoutedToThem) {
  const Model model = parse_model(moe_listing(kTwoExperts), "net.json");
  Routing routing;
  routing.kind = Routing::Kind::Measured;
  routing.measured = {{.module = "moe", .tokens = {0, 6}}};
  const Model routed = route_tokens(model, routing, 6);
  EXPECT_THAT(routed.moe_blocks[0].tokens, ElementsAre(0, 6));
  for (const ExecutionStep& step : routed.forward) {
    EXPECT_NE(routed.modules[step.module.index()].expert, 0);  // no token: not called
  }
}

TEST(Listing, RefusesExpertsThatCannotBe) {
  const auto message = [](const std::string& experts, const std::string& block_keys = "") {
    return error_of(moe_listing(experts, block_keys));
  };
  EXPECT_EQ(
      message(expert(0, "0") + expert(2, "2")),
      "config.json:9:1: \"moe.experts.2\" is expert 2 of \"moe\", expected 1: they are numbered "
      "from 0 in the order of the list, without gaps");
  EXPECT_THAT(message(expert(1, "1") + expert(0, "0")),
              HasSubstr("config.json:6:1: \"moe.experts.1\" is expert 1 of \"moe\", expected 0"));
  EXPECT_EQ(message(""),
            "config.json:4:1: \"moe\" has 0 experts, expected at least experts_per_token = 1");
  EXPECT_EQ(message(kTwoExperts + R"({"name": "other", "class": "Expert", "expert": 0},)"),
            "config.json:12:1: expert \"other\" is outside of every module with "
            "\"experts_per_token\", expected it below one");
  EXPECT_EQ(message(R"({"name": "moe.e", "class": "Expert", "expert": 0},
{"name": "moe.e.f", "class": "Expert", "expert": 1},)"),
            "config.json:7:1: \"moe.e.f\" is inside the expert \"moe.e\", expected it outside of "
            "experts");
  EXPECT_THAT(message(R"({"name": "moe.e", "class": "Expert", "expert": 0},
{"name": "moe.e.f", "class": "MoE", "experts_per_token": 1},)"),
              HasSubstr("config.json:7:1: \"moe.e.f\" is inside the expert \"moe.e\""));
  EXPECT_THAT(message(R"({"name": "moe.e", "class": "Expert", "expert": -1},)"),
              HasSubstr("expert: found -1, expected 0 to 199999"));
  EXPECT_THAT(message(R"({"name": "moe.e", "class": "Expert", "expert": 0, "block": 0},)"),
              HasSubstr("block: an expert is no checkpointed unit of its own"));
  EXPECT_THAT(message(kTwoExperts, R"(, "expert": 0)"),
              HasSubstr("expert: found on a mixture of experts, expected one of the two"));
  EXPECT_THAT(error_of(listing(R"({"name": "", "class": "Net"},
{"name": "moe", "class": "MoE", "experts_per_token": 1},
{"name": "moe.e", "class": "E", "expert": 0})")),
              HasSubstr(":3:1: \"moe\": no width is known before it, expected \"hidden\" or an "
                        "embedding"));
}

TEST(Listing, UsesAMatrixOfAnotherModule) {
  const std::string modules = R"({"name": "", "class": "Net", "uses": ["wte.weight"]},
{"name": "wte", "class": "Embedding", "parameters": [{"name": "wte.weight", "shape": [10, 4]}]})";
  const Model model = parse_model(listing(modules, R"("vocab": 10, )"), "net.json");
  EXPECT_THAT(kinds_and_modules(model),
              ElementsAre("wte Embedding 10>4", " Linear 4>10", " CrossEntropy 0>10"));
  // The gradient arrives once, at the earlier of the two uses.
  EXPECT_THAT(model.operators[0].gradients, ElementsAre(ParameterId(0)));
  EXPECT_TRUE(model.operators[1].gradients.empty());
  EXPECT_FALSE(model.tied_embeddings);
}

TEST(Listing, RefusesUsesOfNoMatrix) {
  const auto message = [](const std::string& name) {
    return error_of(listing(R"({"name": "", "class": "Net", "uses": [")" + name + R"("]},
{"name": "a", "class": "LayerNorm", "parameters": [{"name": "a.weight", "shape": [4]}]})"));
  };
  EXPECT_EQ(message("a.weigh"),
            "config.json:2:1: uses: \"a.weigh\" is a parameter of no module; did you mean "
            "\"a.weight\"?");
  EXPECT_EQ(message("a.weight"),
            "config.json:2:1: uses: \"a.weight\" has 1 dimensions, expected the 2 of a matrix");
}

TEST(Listing, Presets) {
  // Vocabulary 1000, 32 positions; a block 12 h^2 + 13 h; head not tied.
  const auto gpt = [](std::int64_t h, std::int64_t layers) {
    return 1000 * h + 32 * h + layers * (12 * h * h + 13 * h) + 2 * h + 1000 * h;
  };
  EXPECT_EQ(parameter_count(load_model("gpt_small")), gpt(64, 4));
  EXPECT_EQ(parameter_count(load_model("gpt_large")), gpt(256, 8));
  EXPECT_EQ(parameter_count(load_model("mlp")), 6 * (512 * 512 + 512));
  EXPECT_EQ(load_model("gpt_large").shape.layers, 8);
}

}  // namespace
}  // namespace zerosim
