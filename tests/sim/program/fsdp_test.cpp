// FSDP1 and FSDP2: D2, D3 and rules 63 to 71 of deepspeed_recorded.md.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/fsdp_shared.h"
#include "sim/program/fsdp_units.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// m0 and m4 belong to the root, m1, m2 and m3 are blocks: units of 5 + 3, 10, 7 and 11 elements.
Model three_blocks() {
  Model model = test::chain({5, 10, 7, 11, 3});
  for (int block = 0; block < 3; ++block)
    model.modules[static_cast<std::size_t>(block) + 2].block = block;
  return model;
}

Strategy fsdp(FsdpSharding sharding = FsdpSharding::FullShard) {
  Strategy strategy;
  strategy.name = "fsdp";
  strategy.framework = Framework::Fsdp;
  strategy.precision = Precision::Bf16;
  strategy.gradient_clipping = 0;
  strategy.throughput_timer = false;
  strategy.fsdp.sharding = sharding;
  strategy.fsdp.use_orig_params = false;
  strategy.fsdp.limit_all_gathers = false;
  return strategy;
}

Strategy fully_shard() {
  Strategy strategy = fsdp();
  strategy.fsdp.version = 2;
  return strategy;
}

std::string unit_of(const Program& program, const Op& op) {
  if (!op.module.valid()) return "-";
  const std::string& name = program.module_names[op.module.index()];
  return name.empty() ? "root" : name;
}

std::string word_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllGather:
      return "gather";
    case CollectiveKind::ReduceScatter:
      return "reduce";
    default:
      return "sum";
  }
}

/// Collectives, frees of gathered buffers and waits of the limiter, of one micro batch and phase:
/// "gather m1", "free m1", "reduce m1", "sum m1", "limit".
std::vector<std::string> course(const Program& program, Phase phase, int micro = 0) {
  const RankProgram& rank = program.ranks[0];
  std::vector<std::string> names;
  for (const Op& op : rank.ops) {
    if (op.phase != phase || op.micro_step != micro) continue;
    const auto payload = static_cast<std::size_t>(op.payload);
    if (op.kind == OpKind::Collective) {
      names.push_back(word_of(rank.collectives[payload].kind) + " " + unit_of(program, op));
    } else if (op.kind == OpKind::Free) {
      const std::string_view owner = rank.buffers[payload].owner;
      if (owner == "unsharded_flat" || owner == "unsharded_parameters") {
        names.push_back("free " + unit_of(program, op));
      }
    } else if (op.kind == OpKind::HostWait && op.rule == "D2.5") {
      names.emplace_back("limit");
    }
  }
  return names;
}

std::vector<std::string> sizes(const Program& program, Phase phase) {
  std::vector<std::string> lines;
  for (const Collective& c : test::collectives(program, phase)) {
    lines.push_back(format("{} {} -> {} {} {}", word_of(c.kind), c.input_elements,
                           c.output_elements, to_string(c.dtype),
                           program.groups[c.group.index()].name));
  }
  return lines;
}

Bytes allocated(const Program& program, std::string_view owner) {
  Bytes sum;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == owner) sum += buffer.bytes;
  }
  return sum;
}

/// What is live when the program ends, by owner.
Bytes left(const Program& program, MemoryClass memory_class) {
  const RankProgram& rank = program.ranks[0];
  Bytes sum;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
    if (buffer.memory_class != memory_class) continue;
    sum += op.kind == OpKind::Allocate ? buffer.bytes : Bytes(0) - buffer.bytes;
  }
  return sum;
}

std::string refusal(const Model& model, const Strategy& strategy, int world_size) {
  try {
    (void)test::build(model, strategy, world_size);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// ---- FSDP1: what is sent (D2.1, D2.4 to D2.8) ----

// N = 2: root 8 -> 4 a rank; m1 10 -> 5; m2 7, padded 8 -> 4; m3 11, padded 12 -> 6.
TEST(Fsdp1, UnitsArePaddedToTheRanks) {
  const Program program = test::build(three_blocks(), fsdp(), 2);
  EXPECT_THAT(sizes(program, Phase::Forward),
              ElementsAre("gather 4 -> 8 bf16 WORLD", "gather 5 -> 10 bf16 WORLD",
                          "gather 4 -> 8 bf16 WORLD", "gather 6 -> 12 bf16 WORLD"));
  // fp32 shards: 4 (4 + 5 + 4 + 6); each moment as much.
  EXPECT_EQ(allocated(program, "parameter_shards"), Bytes(76));
  EXPECT_EQ(allocated(program, "exp_avg"), Bytes(76));
  EXPECT_EQ(allocated(program, "exp_avg_sq"), Bytes(76));
}

// Rules 63 to 65. The root is not freed after its forward; the gather of i - 1 goes before the
// reduction of i.
TEST(Fsdp1, FullShardPrefetchesBeforeTheBackwardOfAUnit) {
  const Program program = test::build(three_blocks(), fsdp(), 2);
  EXPECT_THAT(course(program, Phase::Forward),
              ElementsAre("gather root", "gather m1", "free m1", "gather m2", "free m2",
                          "gather m3", "free m3"));
  EXPECT_THAT(course(program, Phase::Backward),
              ElementsAre("gather m3", "gather m2", "free m3", "reduce m3", "gather m1", "free m2",
                          "reduce m2", "free m1", "reduce m1", "free root", "reduce root"));
}

// Rule 65: the root comes last, also where its own gradients arrive first: its views were made
// before all else. m0 of 100 elements is a unit by size, m1 of 3 the root's.
TEST(Fsdp1, TheRootIsReducedLastWhateverItHolds) {
  Strategy strategy = fsdp();
  strategy.fsdp.wrap = FsdpWrap::Size;
  strategy.fsdp.min_num_params = 50;
  EXPECT_THAT(course(test::build(test::chain({100, 3}), strategy, 2), Phase::Backward),
              ElementsAre("gather m0", "free m0", "reduce m0", "free root", "reduce root"));
}

// A unit that runs forward but not backward (m0 is frozen, nothing before it trains) stays gathered
// under SHARD_GRAD_OP: its reshard after the forward has left it the shard in name only.
TEST(Fsdp1, FrozenUnitsStayGatheredUnderShardGradOp) {
  Model model = test::chain({10, 10});
  model.modules[1].block = 0;
  model.parameters[0].trainable = false;
  model.modules[1].gradient_output = false;
  model.modules[2].positional_gradient_input = false;
  model.operators[0].output_gradient = false;
  model.operators[0].gradients.clear();
  model.operators[1].input_gradient = false;
  Strategy strategy = fsdp(FsdpSharding::ShardGradOp);
  strategy.fsdp.no_sync = false;
  strategy.grad_accum = 2;
  const Program program = test::build(model, strategy, 2);
  EXPECT_THAT(course(program, Phase::Forward, 0), ElementsAre("gather root", "gather m0"));
  EXPECT_THAT(course(program, Phase::Forward, 1), ElementsAre("gather root"));
}

TEST(Fsdp1, PostPrefetchesAfterTheBackwardOfAUnit) {
  Strategy strategy = fsdp();
  strategy.fsdp.backward_prefetch = BackwardPrefetch::Post;
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Backward),
              ElementsAre("gather m3", "free m3", "gather m2", "reduce m3", "free m2", "gather m1",
                          "reduce m2", "free m1", "reduce m1", "free root", "reduce root"));
}

TEST(Fsdp1, WithoutPrefetchReductionsGoFirst) {
  Strategy strategy = fsdp();
  strategy.fsdp.backward_prefetch = BackwardPrefetch::None;
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Backward),
              ElementsAre("gather m3", "free m3", "reduce m3", "gather m2", "free m2", "reduce m2",
                          "gather m1", "free m1", "reduce m1", "free root", "reduce root"));
}

// Rule 66, D2.11.
TEST(Fsdp1, ShardGradOpKeepsUnitsForTheBackward) {
  const Program program = test::build(three_blocks(), fsdp(FsdpSharding::ShardGradOp), 2);
  EXPECT_THAT(course(program, Phase::Forward),
              ElementsAre("gather root", "gather m1", "gather m2", "gather m3"));
  EXPECT_THAT(course(program, Phase::Backward),
              ElementsAre("free m3", "reduce m3", "free m2", "reduce m2", "free m1", "reduce m1",
                          "free root", "reduce root"));
}

TEST(Fsdp1, NoShardAllReducesEachUnit) {
  const Program program = test::build(three_blocks(), fsdp(FsdpSharding::NoShard), 2);
  EXPECT_THAT(course(program, Phase::Forward), IsEmpty());
  EXPECT_THAT(sizes(program, Phase::Backward),
              ElementsAre("sum 11 -> 11 bf16 WORLD", "sum 7 -> 7 bf16 WORLD",
                          "sum 10 -> 10 bf16 WORLD", "sum 8 -> 8 bf16 WORLD"));
}

// D2.2
TEST(Fsdp1, OneRankAloneShardsNothing) {
  const Program program = test::build(three_blocks(), fsdp(), 1);
  EXPECT_THAT(course(program, Phase::Forward), IsEmpty());
  EXPECT_THAT(course(program, Phase::Backward),
              ElementsAre("sum m3", "sum m2", "sum m1", "sum root"));
}

// D2.12: whole gradients of 8 + 10 + 7 + 11 elements of bf16 are joined in each micro batch, and
// kept.
TEST(Fsdp1, NoSyncGathersInEveryMicroBatchAndReducesOnce) {
  Strategy strategy = fsdp();
  strategy.grad_accum = 2;
  const Program program = test::build(three_blocks(), strategy, 2);
  EXPECT_THAT(course(program, Phase::Backward, 0),
              ElementsAre("gather m3", "gather m2", "free m3", "gather m1", "free m2", "free m1",
                          "free root"));
  EXPECT_THAT(course(program, Phase::Backward, 1),
              ElementsAre("gather m3", "gather m2", "free m3", "reduce m3", "gather m1", "free m2",
                          "reduce m2", "free m1", "reduce m1", "free root", "reduce root"));
  EXPECT_EQ(allocated(program, "unsharded_gradient"), Bytes(2 * 2 * 36));
}

// Rule 66: the parameters of SHARD_GRAD_OP stay until a micro batch synchronises.
TEST(Fsdp1, ShardGradOpUnderNoSyncGathersOnceAStep) {
  Strategy strategy = fsdp(FsdpSharding::ShardGradOp);
  strategy.grad_accum = 3;
  const Program program = test::build(three_blocks(), strategy, 2);
  for (const int micro : {1, 2}) {
    EXPECT_THAT(course(program, Phase::Forward, micro), IsEmpty());
  }
  EXPECT_THAT(course(program, Phase::Backward, 0), IsEmpty());
  strategy.fsdp.no_sync = false;
  const Program each = test::build(three_blocks(), strategy, 2);
  EXPECT_THAT(course(each, Phase::Forward, 2),
              ElementsAre("gather root", "gather m1", "gather m2", "gather m3"));
}

// Rule 68: forward under checkpointing leaves no hook, so nothing is prefetched; the recomputation
// gathers and frees once more.
TEST(Fsdp1, ReentrantCheckpointingAroundUnitsGathersAgain) {
  Strategy strategy = fsdp();
  strategy.checkpointing = ActivationCheckpointing::Full;
  strategy.fsdp.checkpoints_around_units = true;
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Backward),
              ElementsAre("gather m3", "free m3", "gather m3", "free m3", "reduce m3",  //
                          "gather m2", "free m2", "gather m2", "free m2", "reduce m2",  //
                          "gather m1", "free m1", "gather m1", "free m1", "reduce m1",  //
                          "free root", "reduce root"));
  strategy.fsdp.sharding = FsdpSharding::ShardGradOp;  // nothing was freed
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Backward),
              ElementsAre("free m3", "reduce m3", "free m2", "reduce m2", "free m1", "reduce m1",
                          "free root", "reduce root"));
}

// Inside the units it finds them gathered: as without.
TEST(Fsdp1, CheckpointingInsideUnitsGathersNothingMore) {
  Strategy strategy = fsdp();
  const auto plain = course(test::build(three_blocks(), strategy, 2), Phase::Backward);
  strategy.checkpointing = ActivationCheckpointing::Full;
  EXPECT_EQ(course(test::build(three_blocks(), strategy, 2), Phase::Backward), plain);
}

// D2.4, rule 70.
TEST(Fsdp1, ForwardPrefetchReachesAllUnitsButIn1_13OnlyTheFirst) {
  Strategy strategy = fsdp();
  strategy.fsdp.forward_prefetch = true;
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Forward),
              ElementsAre("gather root", "gather m1", "gather m2", "free m1", "gather m3",
                          "free m2", "free m3"));
  strategy.torch_version = "1.13";
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Forward),
              ElementsAre("gather root", "gather m1", "free m1", "gather m2", "free m2",
                          "gather m3", "free m3"));
}

// The order is known after the first iteration only.
TEST(Fsdp1, ForwardPrefetchNeedsAnIteration) {
  Strategy strategy = fsdp();
  strategy.fsdp.forward_prefetch = true;
  strategy.grad_accum = 2;
  const Program program = test::build(three_blocks(), strategy, 2, 0);
  EXPECT_EQ(course(program, Phase::Forward, 0)[2], "free m1");
  EXPECT_EQ(course(program, Phase::Forward, 1)[2], "gather m2");
}

// Rule 71: two gathers of one i32 a unit, in 1.13's first iteration; by the unit around it.
TEST(Fsdp1, OrderIsCheckedInTheFirstIterationOf1_13) {
  Strategy strategy = fsdp();
  strategy.torch_version = "1.13";
  strategy.grad_accum = 2;
  const Program program = test::build(three_blocks(), strategy, 2, 0);
  const auto first = course(program, Phase::Forward, 0);
  EXPECT_EQ(std::count(first.begin(), first.end(), "gather -"), 2);
  EXPECT_EQ(std::count(first.begin(), first.end(), "gather root"), 6 + 1);
  EXPECT_EQ(course(program, Phase::Forward, 1).size(), 4U + 3U);
}

// D2.5. Frees queue up: before a gather, with two or more, the host waits for the oldest.
//   forward: m3 finds free m1, free m2: waits for m1's
//   backward: the root, though gathered, finds m2, m3: waits for m2's; m3 and m2 find one; then
//   m3's is added: m1 finds m3, m3: waits
// The checks of units under a root without parameters are within the root.
TEST(Fsdp1, OrderIsCheckedWithinARootWithoutParameters) {
  Strategy strategy = fsdp();
  strategy.torch_version = "1.13";
  strategy.fsdp.wrap = FsdpWrap::Size;
  strategy.fsdp.min_num_params = 50;
  const Program program = test::build(test::chain({100, 100}), strategy, 2, 0, 1);
  EXPECT_THAT(course(program, Phase::Forward),
              ElementsAre("gather root", "gather root", "gather m0", "free m0", "gather root",
                          "gather root", "gather m1", "free m1"));
}

TEST(Fsdp1, LimiterWaitsForTheFreeTwoPlacesBack) {
  Strategy strategy = fsdp();
  strategy.fsdp.limit_all_gathers = true;
  const Program program = test::build(three_blocks(), strategy, 2);
  EXPECT_THAT(course(program, Phase::Forward),
              ElementsAre("gather root", "gather m1", "free m1", "gather m2", "free m2", "limit",
                          "gather m3", "free m3"));
  EXPECT_THAT(
      course(program, Phase::Backward),
      ElementsAre("limit", "gather m3", "gather m2", "free m3", "reduce m3", "limit", "gather m1",
                  "free m2", "reduce m2", "free m1", "reduce m1", "free root", "reduce root"));
}

// 1.13 passes the limiter again for a unit that was prefetched. Backward: the root takes m2's free,
// m3 is left; m3's free is added; m2, prefetched, takes m3's; m2's is added; m1 takes the next.
TEST(Fsdp1, In1_13PrefetchedUnitsPassTheLimiterAgain) {
  Strategy strategy = fsdp();
  strategy.fsdp.limit_all_gathers = true;
  strategy.torch_version = "1.13";
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 2), Phase::Backward),
              ElementsAre("limit", "gather m3", "gather m2", "free m3", "reduce m3", "limit",
                          "gather m1", "free m2", "reduce m2", "limit", "free m1", "reduce m1",
                          "free root", "reduce root"));
}

// ---- types, hybrid, offload ----

// D2.13: gathers in bf16, reductions in fp32 of the padded 12 elements.
TEST(Fsdp1, ReducesInAnotherType) {
  Strategy strategy = fsdp();
  strategy.communication_dtype = Dtype::F32;
  const Program program = test::build(three_blocks(), strategy, 2);
  EXPECT_THAT(sizes(program, Phase::Backward),
              testing::IsSupersetOf({"gather 6 -> 12 bf16 WORLD", "reduce 12 -> 6 f32 WORLD"}));
  // fp32 copies of the unsharded gradients: 4 (8 + 10 + 7 + 11); those of m2 and m3 padded.
  EXPECT_EQ(allocated(program, "cast_gradient"), Bytes(144));
  EXPECT_EQ(allocated(program, "padded_gradient"), Bytes(4 * (8 + 12)));
}

// 16 bytes are 8 elements of bf16: the root's second parameter begins at 8: 8 + 3 = 11, padded 12.
TEST(Fsdp1, OriginalParametersAreAligned) {
  Strategy strategy = fsdp();
  strategy.fsdp.use_orig_params = true;
  EXPECT_EQ(sizes(test::build(three_blocks(), strategy, 2), Phase::Forward)[0],
            "gather 6 -> 12 bf16 WORLD");
}

// D2.10: 4 ranks, 2 a node: within the node as with 2 ranks, then the shard over the nodes.
TEST(Fsdp1, HybridSumsShardsOverReplicas) {
  Strategy strategy = fsdp(FsdpSharding::HybridShard);
  strategy.fsdp.shard_group = 2;
  const Program program = test::build(three_blocks(), strategy, 4);
  ASSERT_EQ(program.groups.size(), 4U);
  EXPECT_EQ(program.groups[2].size, 2);
  EXPECT_EQ(program.groups[2].stride, 1);
  EXPECT_EQ(program.groups[3].size, 2);
  EXPECT_EQ(program.groups[3].stride, 2);
  EXPECT_THAT(sizes(program, Phase::Backward),
              ElementsAre("gather 6 -> 12 bf16 shard", "gather 4 -> 8 bf16 shard",
                          "reduce 12 -> 6 bf16 shard", "sum 6 -> 6 bf16 replicate",
                          "gather 5 -> 10 bf16 shard", "reduce 8 -> 4 bf16 shard",
                          "sum 4 -> 4 bf16 replicate", "reduce 10 -> 5 bf16 shard",
                          "sum 5 -> 5 bf16 replicate", "reduce 8 -> 4 bf16 shard",
                          "sum 4 -> 4 bf16 replicate"));
}

// D2.9: shards, gradients and Adam on the host; each gather is preceded by a copy of the shard.
TEST(Fsdp1, OffloadedShardsAreCopiedBeforeEachGather) {
  Strategy strategy = fsdp();
  strategy.fsdp.cpu_offload = true;
  const Program program = test::build(three_blocks(), strategy, 2);
  const RankProgram& rank = program.ranks[0];
  Bytes up;
  Bytes down;
  for (const Copy& copy : rank.copies) {
    (copy.direction == Copy::Direction::HostToDevice ? up : down) += copy.bytes;
  }
  EXPECT_EQ(up, Bytes(4 * (4 + 2 * (5 + 4 + 6))));  // root once, blocks twice, fp32
  EXPECT_EQ(down, Bytes(4 * (4 + 5 + 4 + 6)));
  EXPECT_EQ(left(program, MemoryClass::Gradients), Bytes(4 * 19));  // on the host
  ASSERT_EQ(rank.host_passes.size(), 1U);
  EXPECT_EQ(rank.host_passes[0].name, "cpu_adam");
}

TEST(Fsdp1, StepLeavesOnlyStates) {
  for (const FsdpSharding sharding :
       {FsdpSharding::FullShard, FsdpSharding::ShardGradOp, FsdpSharding::NoShard}) {
    const Program program = test::build(three_blocks(), fsdp(sharding), 2);
    EXPECT_EQ(left(program, MemoryClass::LiveParameters), Bytes(0));
    EXPECT_EQ(left(program, MemoryClass::TemporaryBuffers), Bytes(0));
    EXPECT_EQ(left(program, MemoryClass::Gradients), Bytes(0));
  }
  Strategy older = fsdp();
  older.torch_version = "1.13";  // zero_grad() keeps the shards
  EXPECT_EQ(left(test::build(three_blocks(), older, 2), MemoryClass::Gradients), Bytes(4 * 19));
}

// Gradients are divided by 4 before and by 2 after a reduction of 8 ranks.
/// Bytes of shards' gradients that live when the program ends.
Bytes gradients_left(const Program& program) {
  const RankProgram& rank = test::rank_of(program);
  Bytes left;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[test::payload(op)];
    if (buffer.memory_class != MemoryClass::Gradients) continue;
    left = op.kind == OpKind::Allocate ? left + buffer.bytes : left - buffer.bytes;
  }
  return left;
}

TEST(Fsdp1, WithOriginalParametersTheFlatGradientOutlivesZeroGrad) {
  Strategy strategy = fsdp();
  EXPECT_EQ(gradients_left(test::build(three_blocks(), strategy, 2)), Bytes(0));
  strategy.fsdp.use_orig_params = true;
  const Program one = test::build(three_blocks(), strategy, 2, 2, 1);
  EXPECT_GT(gradients_left(one), Bytes(0));
  // The next forward lets go of it: two steps leave as much as one.
  EXPECT_EQ(gradients_left(test::build(three_blocks(), strategy, 2, 2, 2)), gradients_left(one));
}

TEST(FsdpDivision, IsBalanced) {
  EXPECT_EQ(gradient_division(8).before, 4);
  EXPECT_EQ(gradient_division(8).after, 2);
  EXPECT_EQ(gradient_division(16).before, 4);
  EXPECT_EQ(gradient_division(6).before, 4);  // 6 % 2 == 0 and 3 > 2: 4, which divides no more
  EXPECT_EQ(gradient_division(7).before, 2);
  EXPECT_EQ(gradient_division(1).before, 1);
}

// ---- units ----

/// root -> a (60 own in a1, 30 in a2), b (50).
Model nested() {
  Model model = test::chain({60, 30, 50});
  Module a;
  a.name = "a";
  a.class_name = "Sequential";
  a.parent = ModuleId(std::int32_t{0});
  model.modules.push_back(a);  // after its children here; only parents matter
  model.modules[1].parent = model.modules[2].parent = ModuleId(std::int32_t{4});
  return model;
}

std::vector<std::string> names(const Model& model, const FsdpUnits& units) {
  std::vector<std::string> result;
  for (const FsdpUnit& unit : units.units) {
    std::int64_t elements = 0;
    for (const ParameterId id : unit.parameters) elements += model.parameters[id.index()].elements;
    result.push_back(format("{}:{}", model.modules[unit.module.index()].name, elements));
  }
  return result;
}

// At 50: m0 (60) and m2 (50) are wrapped; a keeps 30 < 50 and is not; the root gets those. At 30:
// m1 too, nothing is left for a. At 70: a as a whole (90), b is too small.
TEST(FsdpUnits, SizePolicyCountsWhatIsNotWrappedYet) {
  const Model model = nested();
  FsdpOptions options;
  options.wrap = FsdpWrap::Size;
  options.min_num_params = 50;
  EXPECT_THAT(names(model, fsdp_units(model, options)), ElementsAre(":30", "m0:60", "m2:50"));
  options.min_num_params = 30;
  EXPECT_THAT(names(model, fsdp_units(model, options)),
              ElementsAre(":0", "m0:60", "m1:30", "m2:50"));
  options.min_num_params = 70;
  EXPECT_THAT(names(model, fsdp_units(model, options)), ElementsAre(":50", "a:90"));
}

TEST(FsdpUnits, PoliciesByClassAndNone) {
  Model model = nested();
  FsdpOptions options;
  options.transformer_layer_classes = {"Sequential"};
  EXPECT_THAT(names(model, fsdp_units(model, options)), ElementsAre(":50", "a:90"));
  options.wrap = FsdpWrap::None;
  EXPECT_THAT(names(model, fsdp_units(model, options)), ElementsAre(":140"));
}

TEST(FsdpUnits, SharedAcrossUnitsIsRefused) {
  Model model = three_blocks();
  model.modules[3].parameters.emplace_back(std::size_t{1});  // m2 uses m1's
  EXPECT_EQ(refusal(model, fsdp(), 2),
            "FSDP: parameter \"m1.weight\" is shared by the units m1 and m2, which FSDP does not "
            "support; expected both uses in one unit");
}

// 10 elements on 4 ranks, shards of 3: [0, 4) trains: 3 and 1; [8, 10): 1 and 1. Rank 0 has most,
// and every rank some.
TEST(FsdpUnits, TheRankWithMostThatTrains) {
  Model model = test::chain({4, 4, 2});
  model.parameters[1].trainable = false;
  FsdpOptions options;
  options.wrap = FsdpWrap::None;
  const FsdpUnits units = fsdp_units(model, options);
  EXPECT_EQ(busiest_shard_rank(model, units, 1, 4), Rank(0));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(trainable_shards(model, units, 1, {rank, 4}, true), ElementsAre(rank == 0 ? 3 : 1));
    EXPECT_THAT(trainable_shards(model, units, 1, {rank, 4}, false), ElementsAre(3));
  }
}

// The same, all of it training. On 2 ranks, shards of 5: rank 0 has 4 elements of the first
// parameter and one of the second, rank 1 the other three and the third; without the originals the
// shard is one tensor.
TEST(FsdpUnits, OriginalParametersAreTensorsOfTheirOwn) {
  const Model model = test::chain({4, 4, 2});
  FsdpOptions options;
  options.wrap = FsdpWrap::None;
  const FsdpUnits units = fsdp_units(model, options);
  EXPECT_THAT(trainable_shards(model, units, 1, {0, 2}, true), ElementsAre(4, 1));
  EXPECT_THAT(trainable_shards(model, units, 1, {1, 2}, true), ElementsAre(3, 2));
  EXPECT_THAT(trainable_shards(model, units, 1, {0, 2}, false), ElementsAre(5));
}

// D3.1: 10 rows of 3 on 4 ranks: 3 rows each, 9 elements, but the last has one row; one row on 4:
// the first has all of it.
TEST(FsdpUnits, RowsAreSharded) {
  Parameter parameter;
  parameter.shape = {10, 3};
  parameter.elements = 30;
  EXPECT_EQ(dim0_shard_elements(parameter, 4), 9);
  EXPECT_EQ(dim0_own_elements(parameter, {0, 4}), 9);
  EXPECT_EQ(dim0_own_elements(parameter, {3, 4}), 3);
  EXPECT_EQ(dim0_full_ranks(parameter, 4), 3);
  parameter.shape = {1, 30};
  EXPECT_EQ(dim0_shard_elements(parameter, 4), 30);
  EXPECT_EQ(dim0_own_elements(parameter, {0, 4}), 30);
  EXPECT_EQ(dim0_own_elements(parameter, {1, 4}), 0);
  EXPECT_EQ(dim0_full_ranks(parameter, 4), 1);
  parameter.shape = {};
  parameter.elements = 1;
  EXPECT_EQ(dim0_shard_elements(parameter, 4), 1);
}

// ---- FSDP2 (D3) ----

// N = 2, each parameter for itself: root ceil(5/2) + ceil(3/2) = 3 + 2 -> 5, 10; m1 5, 10; m2 4, 8;
// m3 6, 12.
TEST(Fsdp2, ParametersAreShardedOneByOne) {
  const Program program = test::build(three_blocks(), fully_shard(), 2);
  EXPECT_THAT(sizes(program, Phase::Forward),
              ElementsAre("gather 5 -> 10 bf16 WORLD", "gather 5 -> 10 bf16 WORLD",
                          "gather 4 -> 8 bf16 WORLD", "gather 6 -> 12 bf16 WORLD"));
  EXPECT_EQ(allocated(program, "parameter_shards"), Bytes(4 * (5 + 5 + 4 + 6)));
}

// D3.5 to D3.8.
TEST(Fsdp2, PrefetchesOneGroupAheadInBackward) {
  const Program program = test::build(three_blocks(), fully_shard(), 2);
  EXPECT_THAT(course(program, Phase::Forward),
              ElementsAre("gather root", "gather m1", "free m1", "gather m2", "free m2",
                          "gather m3", "free m3"));
  EXPECT_THAT(course(program, Phase::Backward),
              ElementsAre("gather m3", "gather m2", "free m3", "reduce m3", "gather m1", "free m2",
                          "reduce m2", "free m1", "reduce m1", "free root", "reduce root"));
}

// D3.7
TEST(Fsdp2, ReshardAfterForward) {
  Strategy strategy = fully_shard();
  strategy.fsdp.reshard_after_forward = false;
  EXPECT_THAT(course(test::build(three_blocks(), strategy, 4), Phase::Backward),
              ElementsAre("free m3", "reduce m3", "free m2", "reduce m2", "free m1", "reduce m1",
                          "free root", "reduce root"));
  strategy = fully_shard();
  strategy.fsdp.keeps_last_unit = true;
  EXPECT_THAT(
      course(test::build(three_blocks(), strategy, 4), Phase::Forward),
      ElementsAre("gather root", "gather m1", "free m1", "gather m2", "free m2", "gather m3"));
  // 2 of 4 ranks: m3 has 11 rows: 3 each, 12; a half of 6 is kept, and gathered over 2.
  strategy = fully_shard();
  strategy.fsdp.reshard_ranks = 2;
  const Program program = test::build(three_blocks(), strategy, 4);
  EXPECT_EQ(sizes(program, Phase::Forward)[3], "gather 3 -> 12 bf16 WORLD");
  EXPECT_EQ(sizes(program, Phase::Backward)[0], "gather 6 -> 12 bf16 reshard");
  EXPECT_EQ(allocated(program, "kept_shard"), Bytes(2 * (12 + 8 + 12) / 2));
  // All ranks is true, one is false.
  strategy.fsdp.reshard_ranks = 4;
  EXPECT_EQ(sizes(test::build(three_blocks(), strategy, 4), Phase::Backward)[0],
            "gather 3 -> 12 bf16 WORLD");
  strategy.fsdp.reshard_ranks = 1;
  EXPECT_EQ(course(test::build(three_blocks(), strategy, 4), Phase::Backward)[0], "free m3");
}

/// Copies and frees of gather outputs of one phase: "copy_in m1", "copy_out m1", "drop m1".
std::vector<std::string> copies(const Program& program, Phase phase) {
  const RankProgram& rank = program.ranks[0];
  std::vector<std::string> found;
  for (const Op& op : rank.ops) {
    if (op.phase != phase) continue;
    const auto payload = static_cast<std::size_t>(op.payload);
    if (op.kind == OpKind::Kernel && std::string(rank.kernels[payload].name).starts_with("copy_")) {
      found.push_back(std::string(rank.kernels[payload].name) + " " + unit_of(program, op));
    } else if (op.kind == OpKind::Free && rank.buffers[payload].owner == "all_gather_output") {
      found.push_back("drop");
    }
  }
  return found;
}

// D3.4: in forward an output stays until the next group's copy-out, in backward it is dropped at
// once.
TEST(Fsdp2, OutputsOfGathersAreDroppedLateInForward) {
  const Program program = test::build(three_blocks(), fully_shard(), 2);
  EXPECT_THAT(copies(program, Phase::Forward),
              ElementsAre("copy_in root", "copy_out root", "copy_in m1", "drop", "copy_out m1",
                          "copy_in m2", "drop", "copy_out m2", "copy_in m3", "drop", "copy_out m3",
                          "drop"));
  EXPECT_THAT(copies(program, Phase::Backward),
              ElementsAre("copy_in m3", "copy_out m3", "drop", "copy_in m2", "copy_out m2", "drop",
                          "copy_in m1", "copy_out m1", "drop"));
}

// D3.8: compute waits for the reduction before, and drops its input, before the next one is filled.
TEST(Fsdp2, ComputeWaitsForTheReductionBefore) {
  const Program program = test::build(three_blocks(), fully_shard(), 2);
  const RankProgram& rank = program.ranks[0];
  std::vector<OpId> reductions;
  std::vector<OpId> waited;
  int live = 0;
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    const Op& op = rank.ops[i];
    const auto payload = static_cast<std::size_t>(op.payload);
    if (op.kind == OpKind::Collective &&
        rank.collectives[payload].kind == CollectiveKind::ReduceScatter) {
      reductions.emplace_back(i);
    } else if (op.kind == OpKind::StreamWait && op.stream == kComputeStream && op.rule == "D3.8") {
      waited.push_back(rank.dependencies_of(op).front());
    } else if (op.kind == OpKind::Allocate &&
               rank.buffers[payload].owner == "reduce_scatter_input") {
      EXPECT_LE(++live, 2);
    } else if (op.kind == OpKind::Free && rank.buffers[payload].owner == "reduce_scatter_input") {
      --live;
    }
  }
  ASSERT_EQ(reductions.size(), 4U);
  EXPECT_EQ(waited.size(), 4U);  // three groups for the one before, and the end of backward
  EXPECT_EQ(live, 0);
  for (std::size_t i = 0; i < waited.size(); ++i) {
    // The reduction stream's wait for the collective comes right after it (0.4).
    EXPECT_EQ(waited[i].value(), reductions[i].value() + 1);
  }
}

// D3.10: reductions in fp32 keep fp32 sums: 36 elements of 4 bytes.
TEST(Fsdp2, WithoutSyncKeepsWholeGradientsInTheReductionType) {
  Strategy strategy = fully_shard();
  strategy.communication_dtype = Dtype::F32;
  strategy.grad_accum = 2;
  const Program program = test::build(three_blocks(), strategy, 2);
  EXPECT_EQ(allocated(program, "accumulated_gradient"), Bytes(144));
  EXPECT_THAT(course(program, Phase::Backward, 0),
              ElementsAre("gather m3", "gather m2", "free m3", "gather m1", "free m2", "free m1",
                          "free root"));
  EXPECT_EQ(left(program, MemoryClass::Gradients), Bytes(0));
}

// D3.12, set_requires_all_reduce(False): the sums over replicas come with the last micro batch.
TEST(Fsdp2, HybridMayDelayTheSumOverReplicas) {
  Strategy strategy = fully_shard();
  strategy.fsdp.sharding = FsdpSharding::HybridShard;
  strategy.fsdp.shard_group = 2;
  strategy.fsdp.no_sync = false;
  strategy.fsdp.delays_all_reduce = true;
  strategy.grad_accum = 2;
  const Program program = test::build(three_blocks(), strategy, 4);
  const auto count = [&](int micro, const std::string& word) {
    const auto names = course(program, Phase::Backward, micro);
    return std::count_if(names.begin(), names.end(),
                         [&](const std::string& name) { return name.starts_with(word); });
  };
  EXPECT_EQ(count(0, "reduce"), 4);
  EXPECT_EQ(count(0, "sum"), 0);
  EXPECT_EQ(count(1, "reduce"), 4);
  EXPECT_EQ(count(1, "sum"), 4);
  EXPECT_EQ(left(program, MemoryClass::Gradients), Bytes(0));
}

TEST(Fsdp2, ReductionsAverageAndFp16Divides) {
  Strategy strategy = fully_shard();
  for (const Collective& c :
       test::collectives(test::build(three_blocks(), strategy, 2), Phase::Backward)) {
    if (c.kind == CollectiveKind::ReduceScatter) {
      EXPECT_EQ(c.reduction, ReduceOp::Average);
    }
  }
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = Dtype::F16;
  for (const Collective& c :
       test::collectives(test::build(three_blocks(), strategy, 2), Phase::Backward)) {
    if (c.kind == CollectiveKind::ReduceScatter) {
      EXPECT_EQ(c.reduction, ReduceOp::Sum);
    }
  }
}

// D3.11
TEST(Fsdp2, RecomputationFindsTheGroupGathered) {
  Strategy strategy = fully_shard();
  const auto plain = course(test::build(three_blocks(), strategy, 2), Phase::Backward);
  strategy.checkpointing = ActivationCheckpointing::Full;
  EXPECT_EQ(course(test::build(three_blocks(), strategy, 2), Phase::Backward), plain);
}

// ---- what is refused ----

TEST(FsdpErrors, NameWhatIsWrong) {
  Strategy hybrid = fsdp(FsdpSharding::HybridShard);
  EXPECT_EQ(
      refusal(three_blocks(), hybrid, 6),
      "fsdp: a hybrid strategy shards over the GPUs of a node, but their number is not given; "
      "expected a cluster");
  hybrid.fsdp.shard_group = 4;
  EXPECT_EQ(refusal(three_blocks(), hybrid, 6),
            "fsdp: the 4 ranks of a shard group do not divide the 6 ranks");
  hybrid.fsdp.shard_group = 2;
  hybrid.torch_version = "1.13";
  EXPECT_EQ(refusal(three_blocks(), hybrid, 6),
            "fsdp: PyTorch 1.13 has no hybrid sharding, expected 2");

  Strategy original = fsdp();
  original.fsdp.use_orig_params = true;
  original.torch_version = "1.13";
  EXPECT_EQ(refusal(three_blocks(), original, 2),
            "fsdp: PyTorch 1.13 has no use_orig_params, expected 2");

  Model partly = three_blocks();
  partly.parameters[0].trainable = false;
  EXPECT_EQ(refusal(partly, fsdp(), 2),
            "fsdp: some parameters of unit (root) train and some do not, which FSDP allows only "
            "with use_orig_params");

  Strategy two = fully_shard();
  two.fsdp.reshard_ranks = 3;
  EXPECT_EQ(refusal(three_blocks(), two, 4),
            "fsdp: reshard_after_forward 3 does not divide the 4 ranks that shard");
  two.fsdp.reshard_ranks = 8;
  EXPECT_THAT(refusal(three_blocks(), two, 4), HasSubstr("reshard_after_forward 8 does not"));
  two = fully_shard();
  two.torch_version = "1.13";
  EXPECT_EQ(refusal(three_blocks(), two, 2), "fsdp: PyTorch 1.13 has no fully_shard, expected 2");
  two = fully_shard();
  two.fsdp.sharding = FsdpSharding::NoShard;
  EXPECT_EQ(refusal(three_blocks(), two, 2),
            "fsdp: fully_shard has no NO_SHARD; DistributedDataParallel does it");
  two = fully_shard();
  two.checkpointing = ActivationCheckpointing::Full;
  two.fsdp.checkpoints_around_units = true;
  EXPECT_EQ(refusal(three_blocks(), two, 2),
            "fsdp: checkpointing around the units of fully_shard is not simulated yet");
}

}  // namespace
}  // namespace zerosim
