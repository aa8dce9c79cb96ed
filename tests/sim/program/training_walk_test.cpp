// What the walk allocates: gradients between operators, what checkpointing keeps, caches.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/model/trainable.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kTokens = 16;  // of test::build
const Bytes kStream = Bytes(kTokens) * kHidden * 2;

Model two_layers() {
  return test::llama(
      {.hidden = kHidden, .ffn = 128, .kv_width = 32, .vocab = 96, .layers = 2, .head_dim = 16});
}

Strategy single(ActivationCheckpointing checkpointing = ActivationCheckpointing::None) {
  Strategy strategy;
  strategy.name = "single";
  strategy.framework = Framework::Single;
  strategy.ddp.parameter_dtype = Dtype::Bf16;
  strategy.checkpointing = checkpointing;
  return strategy;
}

std::vector<Bytes> buffers_of(const Program& program, std::string_view owner) {
  std::vector<Bytes> bytes;
  for (const Buffer& buffer : test::rank_of(program).buffers) {
    if (buffer.owner == owner) bytes.push_back(buffer.bytes);
  }
  return bytes;
}

/// Most bytes of `owner` that live at once.
Bytes most_alive(const Program& program, std::string_view owner) {
  const RankProgram& rank = test::rank_of(program);
  Bytes alive;
  Bytes most;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[test::payload(op)];
    if (buffer.owner != owner) continue;
    if (op.kind == OpKind::Allocate) {
      alive += buffer.bytes;
    } else {
      alive -= buffer.bytes;
    }
    most = std::max(most, alive);
  }
  return most;
}

TEST(TrainingWalk, SumsHandTheirGradientOn) {
  const Program program = test::build(two_layers(), single(), 1);
  // A layer makes gradients of: 2 norms, q, k, v (one input each), o, the core's q, k and v
  // together, rotary, gate, up, down, silu, and two of the product's factors: 14 buffers; its two
  // sums make none. Besides: the logits', the head's input's and the last norm's.
  EXPECT_EQ(buffers_of(program, "activation_gradient").size(), 2U * 14 + 3);
}

TEST(TrainingWalk, TheResidualGradientLivesBesideThatOfTheBranch) {
  const Program program = test::build(two_layers(), single(), 1);
  // At the product of gate and up: the stream's gradient (64 wide), the product's (128) and those
  // of its factors (2 x 128), 2 B each.
  EXPECT_EQ(most_alive(program, "activation_gradient"),
            Bytes(kTokens * 2 * (kHidden + 128 + 2 * 128)));
}

TEST(TrainingWalk, EveryGradientIsFreed) {
  for (const auto checkpointing :
       {ActivationCheckpointing::None, ActivationCheckpointing::Full,
        ActivationCheckpointing::NonReentrant, ActivationCheckpointing::PerOperator}) {
    const Program program = test::build(two_layers(), single(checkpointing), 1);
    std::map<MemoryClass, Bytes> alive;
    const RankProgram& rank = test::rank_of(program);
    for (const Op& op : rank.ops) {
      if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
      const Buffer& buffer = rank.buffers[test::payload(op)];
      Bytes& sum = alive[buffer.memory_class];
      sum = op.kind == OpKind::Allocate ? sum + buffer.bytes : sum - buffer.bytes;
    }
    for (const auto& [memory_class, bytes] : alive) {
      const bool stays =
          memory_class == MemoryClass::Parameters || memory_class == MemoryClass::OptimizerStates;
      EXPECT_EQ(bytes > Bytes(0), stays) << to_string(memory_class);
    }
  }
}

// Rule 79: a block that no gradient comes to is not computed again, so nothing is kept of it.
TEST(TrainingWalk, PerOperatorKeepsNothingOfFrozenBlocks) {
  TrainableOptions only_head;
  only_head.train_only = {"lm_head*"};
  const Model model = with_trainable(two_layers(), only_head);
  Strategy strategy = single(ActivationCheckpointing::PerOperator);
  strategy.grad_accum = 2;
  EXPECT_TRUE(buffers_of(test::build(model, strategy, 1), "kept_result").empty());
}

// PyTorch holds what an operator's backward has computed until all of it is done: the input's
// gradient of q, k or v, although it is added to another's, beside that of the weight.
TEST(TrainingWalk, AGradientLivesAsLongAsItsKernel) {
  const Program program = test::build(two_layers(), single(), 1);
  const RankProgram& rank = test::rank_of(program);
  for (std::size_t i = 0; i + 1 < rank.ops.size(); ++i) {
    if (rank.ops[i].kind != OpKind::Allocate || rank.ops[i + 1].kind != OpKind::Free) continue;
    EXPECT_NE(rank.ops[i].payload, rank.ops[i + 1].payload)
        << rank.buffers[test::payload(rank.ops[i])].owner;
  }
}

// Autocast (fp32 weights): a block's input is fp32, and copies of weights stay until the forward
// ends, checkpointed or not.
TEST(TrainingWalk, AutocastKeepsFp32StreamsAndItsCache) {
  Strategy strategy = single(ActivationCheckpointing::Full);
  strategy.ddp.parameter_dtype = Dtype::F32;
  const Program program = test::build(two_layers(), strategy, 1);
  EXPECT_EQ(buffers_of(program, "checkpoint").front(), kStream * 2);
  Bytes blocks;  // 7 matrices a layer: q, o 64 x 64; k, v 64 x 32; gate, up, down 64 x 128
  blocks += Bytes(std::int64_t{2} * 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128));
  EXPECT_GE(most_alive(program, "autocast_weight"), blocks);
}

TEST(TrainingWalk, PerOperatorKeepsAttentionAndEverySecondProduct) {
  const Program program =
      test::build(two_layers(), single(ActivationCheckpointing::PerOperator), 1);
  // In order of execution q (64) yes, k no, v (32) yes, attention (64) yes, o no, gate (128) yes,
  // up no, down (64) yes.
  const std::vector<Bytes> kept = buffers_of(program, "kept_result");
  const std::vector<std::int64_t> widths = {64, 32, 64, 128, 64};
  ASSERT_EQ(kept.size(), 2 * widths.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i], Bytes(kTokens * 2 * widths[i % widths.size()]));
  }
  // They are not computed again: of 7 products a layer k, o and up run twice forward.
  const auto forwards = [](const Program& p) {
    const std::vector<Kernel>& kernels = test::rank_of(p).kernels;
    return std::count_if(kernels.begin(), kernels.end(),
                         [](const Kernel& k) { return k.name == "gemm_forward"; });
  };
  EXPECT_EQ(forwards(program), 2 * (7 + 3) + 1);
  EXPECT_EQ(forwards(test::build(two_layers(), single(ActivationCheckpointing::Full), 1)),
            2 * (7 + 7) + 1);
}

TEST(TrainingWalk, ReentrantRecomputationHoldsItsOutput) {
  const Program full = test::build(two_layers(), single(ActivationCheckpointing::Full), 1);
  EXPECT_EQ(buffers_of(full, "recomputed_output").size(), 2U);
  EXPECT_EQ(most_alive(full, "recomputed_output"), kStream);
  const Program other = test::build(two_layers(), single(ActivationCheckpointing::NonReentrant), 1);
  EXPECT_TRUE(buffers_of(other, "recomputed_output").empty());
}

/// Bytes kept of recomputed blocks with these kernels.
Bytes saved_of_blocks(ElementwiseKernels kernels) {
  BatchShape batch;
  batch.sequence = kTokens;
  batch.kernels = kernels;
  const Program program =
      build_program(two_layers(), single(ActivationCheckpointing::Full), batch, {.world_size = 1});
  Bytes sum;
  for (const Bytes bytes : buffers_of(program, "saved_activation")) sum += bytes;
  return sum;
}

TEST(TrainingWalk, ANormThatKeepsItsInputKeepsTheCheckpointItself) {
  // Eager norms keep 6 B an element, fused ones 2, and the first of a block what is kept already:
  // 2 x (6 + 6 - 2) in the blocks, and 6 - 2 in the last norm.
  EXPECT_EQ(
      saved_of_blocks(ElementwiseKernels::Eager) - saved_of_blocks(ElementwiseKernels::FusedNorms),
      Bytes(kTokens * kHidden * (2 * 10 + 4)));
}

TEST(TrainingWalk, KeysAndValuesLiveUntilTheLossIsThere) {
  const Model model = parse_model(
      R"({"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 4,
          "n_positions": 32, "vocab_size": 96})",
      "config.json");
  BatchShape batch;
  batch.sequence = kTokens;
  const Strategy strategy = single(ActivationCheckpointing::Full);
  EXPECT_TRUE(
      buffers_of(build_program(model, strategy, batch, {.world_size = 1}), "key_value_cache")
          .empty());
  batch.code = ModelCode::TransformersOld;
  const Program old = build_program(model, strategy, batch, {.world_size = 1});
  // The whole projection, of which keys and values are views: 64 + 2 x 16, 2 B each; once a layer.
  EXPECT_EQ(most_alive(old, "key_value_cache"), Bytes(2 * kTokens * 96 * 2));
}

/// Of two blocks the first is recomputed: one checkpoint, and recomputed kernels of one block.
TEST(TrainingWalk, AShareOfTheBlocksIsRecomputed) {
  for (const ActivationCheckpointing kind :
       {ActivationCheckpointing::Full, ActivationCheckpointing::NonReentrant}) {
    Strategy all = single(kind);
    Strategy half = all;
    half.checkpointed_share = 0.5;
    const auto kernels = [](const Strategy& strategy) {
      const Program program = test::build(two_layers(), strategy, 1);
      return std::count_if(test::rank_of(program).ops.begin(), test::rank_of(program).ops.end(),
                           [](const Op& op) { return op.kind == OpKind::Kernel; });
    };
    const auto none = kernels(single());
    EXPECT_EQ(2 * (kernels(half) - none), kernels(all) - none);
    EXPECT_EQ(2 * buffers_of(test::build(two_layers(), half, 1), "checkpoint").size(),
              buffers_of(test::build(two_layers(), all, 1), "checkpoint").size());
  }
}

}  // namespace
}  // namespace zerosim
