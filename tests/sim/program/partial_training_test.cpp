// Programs of models of which only a part trains or runs: adapters, frozen parameters, experts.

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/model/routing.h"
#include "sim/model/trainable.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

/// llama_small of the recordings: 1,363,584 parameters, with adapters of rank 8 on q and v
/// 1,385,088.
Model adapted_llama() {
  TrainableOptions options;
  options.has_lora = true;
  options.lora = {.rank = 8, .targets = {"q_proj", "v_proj"}, .dropout = false};
  return with_trainable(test::llama({128, 352, 64, 1000, 6, 32}), options);
}

/// One layer of four experts (3 x 64 x 128 elements each), one a token.
Model small_mixtral() {
  return parse_model(
      R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 1})",
      "config.json");
}
constexpr std::int64_t kExpert = std::int64_t{3} * 64 * 128;

/// All tokens to experts 0 and 2.
BuildOptions two_experts(int world_size) {
  BuildOptions options;
  options.world_size = world_size;
  options.routing.kind = Routing::Kind::Measured;
  options.routing.measured = {{"model.layers.0.block_sparse_moe", {1, 0, 1, 0}}};
  return options;
}

Program build(const Model& model, const Strategy& strategy, const BuildOptions& options) {
  BatchShape batch;
  batch.sequence = 16;
  return build_program(model, strategy, batch, options);
}

std::int64_t elements_sent(const std::vector<Collective>& collectives) {
  return std::accumulate(collectives.begin(), collectives.end(), std::int64_t{0},
                         [](std::int64_t sum, const Collective& collective) {
                           return sum + collective.input_elements;
                         });
}

Bytes allocated_parameters(const Program& program) {
  Bytes sum;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.memory_class == MemoryClass::Parameters) sum += buffer.bytes;
  }
  return sum;
}

// Rule 77: in no bucket, flat buffer or gather; but each keeps its weight.
TEST(Frozen, Stage1And2LeaveThemOut) {
  const Model model = adapted_llama();
  EXPECT_EQ(parameter_count(model), 1'385'088);
  for (const int stage : {1, 2}) {
    const Program program = test::build(model, test::deepspeed(stage), 4);
    // 6 layers x 8 x (128 + 128 + 128 + 64) = 21,504 of 1,385,088 elements
    EXPECT_EQ(elements_sent(test::collectives(program, Phase::Backward)), 21'504) << stage;
    const std::vector<Collective> step = test::collectives(program, Phase::Step);
    EXPECT_EQ(step.back().output_elements, 21'504) << stage;
    EXPECT_EQ(allocated_parameters(program), Bytes(2 * 1'385'088)) << stage;
  }
}

// Rule 78: partitioned and gathered by the same rules; only the adapters are reduced.
TEST(Frozen, Stage3GathersThem) {
  const Program program = test::build(adapted_llama(), test::deepspeed(3), 4);
  const std::vector<Collective> backward = test::collectives(program, Phase::Backward);
  std::int64_t reduced = 0;
  for (const Collective& collective : backward) {
    if (collective.kind == CollectiveKind::ReduceScatter) reduced += collective.input_elements;
  }
  EXPECT_EQ(reduced, 21'504);
  // embedding and head are above the persistence threshold of 100,000
  EXPECT_EQ(test::collectives(program, Phase::Forward).at(0).output_elements, 2 * 128'000);
}

// Rule 85: what is not called has no gradient, and nothing is sent for it.
TEST(Experts, IdleOnesAreNotReduced) {
  const Model model = small_mixtral();
  const std::int64_t all = parameter_count(model);
  const Program even = build(model, test::deepspeed(2), {.world_size = 2, .routing = {}});
  EXPECT_EQ(elements_sent(test::collectives(even, Phase::Backward)), all);
  const Program two = build(model, test::deepspeed(2), two_experts(2));
  EXPECT_EQ(elements_sent(test::collectives(two, Phase::Backward)), all - 2 * kExpert);
  EXPECT_THAT(two.assumptions,
              testing::Contains("experts see the same tokens in every micro batch and on every "
                                "rank"));
}

Bytes allocated(const Program& program, std::string_view owner) {
  Bytes sum;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == owner) {
      sum += buffer.bytes;
    }
  }
  return sum;
}

// B3.9: their place in my partition holds zeros. On one rank all of both idle experts, bf16.
TEST(Experts, IdleOnesHaveZerosForGradients) {
  const Program two = build(small_mixtral(), test::deepspeed(2), two_experts(1));
  EXPECT_EQ(allocated(two, "missing_gradients"), Bytes(2 * kExpert * 2));
  // B1.3: stage 0 makes zeros for them at the boundary, and all of the model is sent.
  const Model model = small_mixtral();
  const Program zero0 = build(model, test::deepspeed(0), two_experts(2));
  EXPECT_EQ(elements_sent(test::collectives(zero0, Phase::Backward)), parameter_count(model));
  EXPECT_EQ(allocated(zero0, "gradient"), Bytes(parameter_count(model) * 2));
}

/// Experts 0 and 2 in the first micro batch of a step, 1 and 3 in the second, in steps 2 and 3.
BuildOptions changing_experts(int world_size) {
  BuildOptions options;
  options.world_size = world_size;
  options.steps = 2;
  options.routing.kind = Routing::Kind::Measured;
  for (const int step : {2, 3}) {
    options.routing.measured.push_back(
        {"model.layers.0.block_sparse_moe", {1, 0, 1, 0}, {}, MicroStep{step, 0}});
    options.routing.measured.push_back(
        {"model.layers.0.block_sparse_moe", {0, 1, 0, 1}, {}, MicroStep{step, 1}});
  }
  return options;
}

/// Experts whose first matrix is in a bucket of this micro batch of step 2.
std::vector<int> reduced_experts(const Program& program, int micro_step) {
  std::vector<int> experts;
  const RankProgram& rank = program.ranks[0];
  for (const Annotation& annotation : rank.annotations) {
    const Op& op = rank.ops[annotation.before.index()];
    for (const ParameterId id : rank.parameters_of(annotation)) {
      for (int expert = 0; expert < 4; ++expert) {
        const std::string name = format("experts.{}.w1.weight", expert);
        if (op.step == 2 && op.micro_step == micro_step &&
            program.parameter_names[id.index()].ends_with(name)) {
          experts.push_back(expert);
        }
      }
    }
  }
  std::sort(experts.begin(), experts.end());
  return experts;
}

// Rule 85 with routing that changes. Stage 2 reduces what each micro batch used. Stage 1 walks all
// that the window used; its hooks (overlap) fire for the boundary's experts only, and what the
// others have gathered goes with the step.
TEST(Experts, MicroBatchesAreRoutedOnTheirOwn) {
  Strategy strategy = test::deepspeed(2);
  strategy.grad_accum = 2;
  const Program stage2 = build(small_mixtral(), strategy, changing_experts(2));
  EXPECT_THAT(reduced_experts(stage2, 0), testing::ElementsAre(0, 2));
  EXPECT_THAT(reduced_experts(stage2, 1), testing::ElementsAre(1, 3));
  strategy.zero.stage = 1;
  EXPECT_THAT(reduced_experts(build(small_mixtral(), strategy, changing_experts(2)), 1),
              testing::ElementsAre(0, 1, 2, 3));
  strategy.zero.overlap_comm = true;
  const Program hooks = build(small_mixtral(), strategy, changing_experts(2));
  EXPECT_THAT(reduced_experts(hooks, 1), testing::ElementsAre(1, 3));
  int gradients = 0;
  for (const Op& op : hooks.ranks[0].ops) {
    if (op.kind == OpKind::Allocate || op.kind == OpKind::Free) {
      const Buffer& buffer = hooks.ranks[0].buffers[static_cast<std::size_t>(op.payload)];
      gradients += buffer.owner != "gradient" ? 0 : op.kind == OpKind::Allocate ? 1 : -1;
    }
  }
  EXPECT_EQ(gradients, 0);
}

// D1.1: DDP stops when an expert stays without gradient in any micro batch; told, not hidden.
TEST(Experts, ChangingOnesNeedFindUnusedParameters) {
  Strategy strategy;
  strategy.framework = Framework::Ddp;
  strategy.precision = Precision::Fp32;
  strategy.grad_accum = 2;
  const Program program = build(small_mixtral(), strategy, changing_experts(2));
  EXPECT_THAT(program.assumptions,
              testing::Contains(testing::HasSubstr("find_unused_parameters taken as true")));
}

// Rule 89: a leaf is fetched as a whole and its gradients are always all reduced.
TEST(Experts, ALeafDoesNotDependOnRouting) {
  const Model model = small_mixtral();
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.prefetch_bucket_size = 0;
  const std::string as_modules = testing::PrintToString(
      test::summary(test::collectives(build(model, strategy, two_experts(2)), Phase::Forward)));
  strategy.zero.leaf_module_classes = {"MixtralSparseMoeBlock"};
  const Program leaf = build(model, strategy, two_experts(2));
  const Program even = build(model, strategy, {.world_size = 2, .routing = {}});
  const std::vector<std::string> forward = test::summary(test::collectives(leaf, Phase::Forward));
  EXPECT_EQ(forward, test::summary(test::collectives(even, Phase::Forward)));
  EXPECT_EQ(test::summary(test::collectives(leaf, Phase::Backward)),
            test::summary(test::collectives(even, Phase::Backward)));
  // router 4 x 64 and four experts in one gather; half of it is each rank's input
  const std::string block = "all_gather_into_tensor " + std::to_string((256 + 4 * kExpert) / 2);
  EXPECT_THAT(forward, testing::Contains(block));
  EXPECT_THAT(as_modules, testing::Not(testing::HasSubstr(block)));
  std::int64_t reduced = 0;
  for (const Collective& collective : test::collectives(leaf, Phase::Backward)) {
    if (collective.kind == CollectiveKind::ReduceScatter) reduced += collective.input_elements;
  }
  EXPECT_EQ(reduced, parameter_count(model));
}

}  // namespace
}  // namespace zerosim
