// Variants of stage 3, in elements worked out beside the tests: MiCS (C11), offload (C3.5, C8.6,
// C8.8), ZeRO++ quantisation (C10), weights that autograd keeps (C2.7), fp16 overflows (C8.1).

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/zero3_gathers.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Nothing persistent, prefetched or kept: each module gathers its own in forward and in backward.
Strategy bare() {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.prefetch_bucket_size = 0;
  strategy.zero.max_reuse_distance = 0;
  return strategy;
}

/// "3 -> 12 on WORLD" of each collective of the phase; "#1 ..." in an NCCL group.
std::vector<std::string> calls(const Program& program, Phase phase) {
  std::vector<std::string> lines;
  for (const Collective& call : test::collectives(program, phase)) {
    const ProcessGroup& group = program.groups[call.group.index()];
    std::string line = format("{} -> {} {} on {}", call.input_elements, call.output_elements,
                              to_string(call.dtype), group.name);
    if (call.coalesced >= 0) line = format("#{} ", call.coalesced) + line;
    lines.push_back(line);
  }
  return lines;
}

std::string refusal(const Model& model, const Strategy& strategy, int world) {
  try {
    (void)test::build(model, strategy, world);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "built";
}

// ---- MiCS --------------------------------------------------------------------------------------

// 10 elements on shards of 2 ranks of 4: p = 5, and two copies of everything. Rule 56: gathers and
// reductions stay in the shard; at the boundary the pieces are summed over ranks 0 and 2.
TEST(Zero3Mics, ShardsAreReplicated) {
  Strategy strategy = bare();
  strategy.zero.mics_shard_size = 2;
  strategy.grad_accum = 2;
  const Program program = test::build(test::chain({10}), strategy, 4);
  EXPECT_THAT(calls(program, Phase::Forward),
              ElementsAre("#0 5 -> 10 bf16 on MiCS shard", "#2 5 -> 10 bf16 on MiCS shard"));
  EXPECT_THAT(calls(program, Phase::Backward),
              ElementsAre("#1 5 -> 10 bf16 on MiCS shard", "10 -> 5 bf16 on MiCS shard",
                          "#3 5 -> 10 bf16 on MiCS shard", "10 -> 5 bf16 on MiCS shard",
                          "5 -> 5 bf16 on MiCS replicas"));
  EXPECT_THAT(calls(program, Phase::Step), ElementsAre("1 -> 1 f64 on MiCS shard"));
  const ProcessGroup& replicas = program.groups.back();
  EXPECT_EQ(replicas.size, 2);
  EXPECT_EQ(replicas.stride, 2);
}

// fp16: the flag of infinities goes round the shard, as the norm does (rule 56).
TEST(Zero3Mics, TheOverflowFlagStaysInTheShard) {
  Strategy strategy = bare();
  strategy.zero.mics_shard_size = 2;
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = strategy.grad_accum_dtype = Dtype::F16;
  EXPECT_THAT(calls(test::build(test::chain({10}), strategy, 4), Phase::Step),
              ElementsAre("1 -> 1 u8 on MiCS shard", "1 -> 1 f64 on MiCS shard"));
}

// One group of all ranks: nothing to sum over replicas, and no group of its own.
TEST(Zero3Mics, OneShardIsTheWorld) {
  Strategy strategy = bare();
  strategy.zero.mics_shard_size = 4;
  const Program program = test::build(test::chain({10}), strategy, 4);
  EXPECT_THAT(calls(program, Phase::Backward),
              ElementsAre("#1 3 -> 12 bf16 on WORLD", "12 -> 3 bf16 on WORLD"));
}

// Rule 58: 10 elements on a shard of 4 ranks, 2 a node: p = 3. Across nodes 3 -> 6; then for each
// node 3 -> 6 within it. The gather that other hooks wait for is the second.
TEST(Zero3Mics, HierarchicalGathersCrossNodesFirst) {
  Strategy strategy = bare();
  strategy.zero.mics_shard_size = 4;
  strategy.zero.mics_hierarchical_params_gather = true;
  strategy.gpus_per_node = 2;
  const Program program = test::build(test::chain({10}), strategy, 4);
  EXPECT_THAT(calls(program, Phase::Forward), ElementsAre("#0 3 -> 6 bf16 on MiCS across nodes",
                                                          "#1 3 -> 6 bf16 on MiCS within a node",
                                                          "#1 3 -> 6 bf16 on MiCS within a node"));
  // Clone and copy of 6 elements of 2 bytes: read and written twice.
  EXPECT_THAT(test::events(program, "C11"), Contains("rearrange 48"));
}

TEST(Zero3Mics, RefusesWhatDeepSpeedRefuses) {
  Strategy strategy = bare();
  strategy.zero.mics_shard_size = 3;
  EXPECT_EQ(refusal(test::chain({10}), strategy, 4),
            "test: mics_shard_size 3 does not divide the 4 ranks");
  strategy.zero.mics_shard_size = 2;
  strategy.zero.mics_hierarchical_params_gather = true;
  for (const std::int64_t node : {0, 2}) {  // unknown; the shard is in one node
    strategy.gpus_per_node = node;
    EXPECT_THAT(refusal(test::chain({10}), strategy, 4),
                HasSubstr("expected shards of two whole nodes or more"));
  }
  strategy.zero.mics_hierarchical_params_gather = false;
  strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  EXPECT_THAT(refusal(test::chain({10}), strategy, 4),
              HasSubstr("MiCS does not reduce offloaded gradients"));
}

// ---- Offload -----------------------------------------------------------------------------------

Strategy offloaded() {
  Strategy strategy = bare();
  strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  return strategy;
}

// 10 and 7 elements on 4 ranks: pieces of 3 and 2, S = 5. On the host, page-locked: master and fp32
// gradient 4 S, gradients 2 S; moments 8 S, ordinary.
TEST(Zero3Offload, KeepsStatesAndGradientsOnTheHost) {
  const Program program = test::build(test::chain({7, 10}), offloaded(), 4);
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::PinnedHost),
              ElementsAre("master_weights 20", "fp32_gradients 20", "gradient_partitions 10"));
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::Host),
              ElementsAre("exp_avg 20", "exp_avg_sq 20", "cast_weights 10"));
}

// C8.6: the first micro batch copies the piece down and up again; the second up, adds, down; then
// at the boundary its norm, and 4 bytes an element into the fp32 gradient. p = 3: 6 bytes bf16.
TEST(Zero3Offload, PiecesOfGradientsGoByTheHost) {
  Strategy strategy = offloaded();
  strategy.grad_accum = 2;
  const Program program = test::build(test::chain({10}), strategy, 4);
  EXPECT_THAT(test::events(program, "C8.6", 0), ElementsAre("down 6", "up 6"));
  std::vector<std::string> boundary = test::events(program, "C8.6", 1);
  boundary.resize(6);
  // accumulate: read twice, written once; norm: 2 + 2 x 8 bytes an element; cast: 2 + 4.
  EXPECT_THAT(boundary, ElementsAre("up 6", "accumulate 18", "down 6", "gradient_norm 54",
                                    "cast 18", "down 12"));
}

// C8.6: norms read one by one, their sum reduced as fp32 (rule 47); S = 3: scale 8 S, Adam 28 S,
// cast (4 + 2) S into pageable memory, from which the copy takes 2 S.
TEST(Zero3Offload, TheStepIsTheHosts) {
  const Program program = test::build(test::chain({10}), offloaded(), 4);
  EXPECT_THAT(calls(program, Phase::Step), ElementsAre("1 -> 1 f32 on WORLD"));
  std::vector<std::string> step = test::events(program, "C8.6");
  step.erase(step.begin(), step.begin() + 5);  // of the backward
  EXPECT_THAT(step, ElementsAre("down 8", "wait", "up 4", "wait", "down 4", "wait", "scale 24",
                                "cpu_adam 84", "cast_weights 18", "up 6", "wait"));
}

// The copy of the weights in pageable memory is got from the system anew in each step: 2 S bytes.
TEST(Zero3Offload, TheCastGoesIntoFreshMemory) {
  const Program program = test::build(test::chain({10}), offloaded(), 4);
  const std::vector<HostPass>& passes = program.ranks.front().host_passes;
  ASSERT_EQ(passes.size(), 3U);
  EXPECT_EQ(passes[1].fresh, Bytes(0));
  EXPECT_EQ(passes[2].name, "cast_weights");
  EXPECT_EQ(passes[2].fresh, Bytes(6));
}

// bf16_master_weights_and_grads and bf16_optimizer_states: 2 bytes each of master, moments and the
// flat gradient, S = 10; Adam moves 14 S; nothing is cast.
TEST(Zero3, Bf16States) {
  Strategy strategy = bare();
  strategy.bf16_states = true;
  const Program program = test::build(test::chain({40}), strategy, 4);
  const std::vector<std::string> buffers = test::buffers_at(program, MemoryPlace::Device);
  for (const char* buffer :
       {"master_weights 20", "exp_avg 20", "exp_avg_sq 20", "flat_gradients 20"}) {
    EXPECT_THAT(buffers, Contains(buffer));
  }
  EXPECT_THAT(buffers, Not(Contains(HasSubstr("fp32_gradients"))));
  EXPECT_THAT(buffers, Not(Contains(HasSubstr("partition_clone"))));
  EXPECT_THAT(test::events(program, "C8.4"),
              ElementsAre("flatten 40", "scale 40", "adam_fused 140", "copy_to_weights 40"));
}

// Twin-Flow: two sub-groups, ratio 0.5: the first stays on the GPU, with its fp32 gradient.
TEST(Zero3Offload, ARatioLeavesSubGroupsOnTheGpu) {
  Strategy strategy = offloaded();
  strategy.zero.offload_optimizer.ratio = 0.5;
  strategy.zero.sub_group_size = 1;
  const Program program = test::build(test::chain({40, 8}), strategy, 4);  // pieces of 10 and 2
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::PinnedHost),
              ElementsAre("master_weights 8", "fp32_gradients 8", "gradient_partitions 24"));
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::Device), Contains("fp32_gradients 40"));
  EXPECT_THAT(test::events(program, "C8.4"), Contains("scale 80"));
  EXPECT_THAT(test::events(program, "C8.6"), Contains("scale 16"));
}

// C3.5, C8.8: pieces on the host; each gather copies them up first and the host waits; the step's
// cast stays there.
TEST(Zero3Offload, ParametersAreCopiedUpBeforeEachGather) {
  Strategy strategy = offloaded();
  strategy.zero.offload_param.device = OffloadDevice::Cpu;
  const Program program = test::build(test::chain({7, 10}), strategy, 4);
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::PinnedHost),
              Contains("parameter_partitions 10"));
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::Host), Not(Contains("cast_weights 10")));
  EXPECT_THAT(test::events(program, "C3.5"),
              ElementsAre("up 4", "wait", "up 6", "wait", "up 6", "wait", "up 4", "wait"));
  EXPECT_THAT(test::events(program, "C8.8"), ElementsAre("cast_weights 30"));
}

// Rules 90, 91: the messages are those without, but for the norm's type.
TEST(Zero3Offload, MessagesAreThoseWithoutIt) {
  const Model model = test::llama({64, 160, 64, 256, 2, 16});
  Strategy strategy = test::deepspeed(3);
  strategy.grad_accum = 2;
  const Program plain = test::build(model, strategy, 4, 0, 3);
  strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  strategy.zero.offload_param.device = OffloadDevice::Cpu;
  const Program offload = test::build(model, strategy, 4, 0, 3);
  for (const Phase phase : {Phase::Forward, Phase::Backward}) {
    EXPECT_EQ(calls(plain, phase), calls(offload, phase));
  }
  EXPECT_EQ(calls(plain, Phase::Step).front(), "1 -> 1 f64 on WORLD");
  EXPECT_EQ(calls(offload, Phase::Step).front(), "1 -> 1 f32 on WORLD");
}

// ---- Quantisation ------------------------------------------------------------------------------

// C10.1: from ceil(x / 8000) groups up until 8 groups divide x, doubled while a group is above
// 8000.
TEST(Zero3Quantized, NumberOfGroups) {
  EXPECT_EQ(quantization_groups(8, "x"), 1);
  EXPECT_EQ(quantization_groups(8000, "x"), 1);
  EXPECT_EQ(quantization_groups(16'000, "x"), 2);
  // 4096 x 4096 / 8 = 2,097,152 = 2^21: ceil is 263; the next that divides 2^18 is 512.
  EXPECT_EQ(quantization_groups(2'097'152, "x"), 512);
  // 24,008 = 8 x 3001, a prime: 4, ... up to 3001 groups of 8.
  EXPECT_EQ(quantization_groups(24'008, "x"), 3001);
}

// 64 elements on 4 ranks: 16 int8 and one scale from each; both ways.
TEST(Zero3Quantized, GathersSendInt8AndScales) {
  Strategy strategy = bare();
  strategy.zero.quantized_weights = true;
  const Program program = test::build(test::chain({64}), strategy, 4);
  EXPECT_THAT(calls(program, Phase::Forward),
              ElementsAre("16 -> 64 u8 on WORLD", "1 -> 4 f32 on WORLD"));
  // bf16 -> fp16 2 + 2, quantize 2 + 1; dequantize 1 + 2, cast out 2 + 2 bytes an element.
  std::vector<std::string> forward = test::events(program, "C10.1");
  forward.resize(4);
  EXPECT_THAT(forward,
              ElementsAre("cast_to_half 64", "quantize 48", "dequantize 192", "copy_out 256"));
  EXPECT_EQ(refusal(test::chain({36}), strategy, 4),
            "a quantised gather of m0.weight: found 9 elements on a rank, expected a multiple of "
            "8: DeepSpeed's quantizer asserts");
}

// C10.3: a frozen piece above 2,048 elements of a parameter above 500,000 is stored in int8 and
// gathered by itself.
TEST(Zero3Quantized, FrozenWeightsAreStoredInInt8) {
  Model model = test::chain({640'000, 64});
  model.parameters[0].trainable = false;
  Strategy strategy = bare();
  strategy.zero.quantized_nontrainable_weights = true;
  strategy.zero.prefetch_bucket_size = 1'000'000;
  const Program program = test::build(model, strategy, 4);
  // 160,000 elements a rank: 20 groups of 8,000; 16 of the other parameter in bf16.
  EXPECT_THAT(test::buffers_at(program, MemoryPlace::Device),
              Contains("parameter_partitions 160112"));
  EXPECT_THAT(calls(program, Phase::Forward),
              ElementsAre("160000 -> 640000 u8 on WORLD", "20 -> 80 f32 on WORLD",
                          "16 -> 64 bf16 on WORLD"));
}

// The scales of what is stored are there, one set a parameter: 70,000 x 4 and 80,000 x 4 elements
// make pieces of 70,000 (10 groups of 7,000) and 80,000 (10 of 8,000).
TEST(Zero3Quantized, ScalesOfStoredWeightsAreThoseOfEach) {
  Model model = test::chain({560'000, 640'000});
  for (Parameter& parameter : model.parameters) parameter.trainable = false;
  Strategy strategy = bare();
  strategy.zero.quantized_nontrainable_weights = true;
  strategy.zero.prefetch_bucket_size = 2'000'000;
  strategy.zero.max_live_parameters = 2'000'000;
  EXPECT_THAT(calls(test::build(model, strategy, 8), Phase::Forward),
              ElementsAre("150000 -> 1200000 u8 on WORLD", "20 -> 160 f32 on WORLD"));
}

// C10.2 on 2 nodes of 2: a matrix of 16 x 32 = 512 elements by itself. int4: 256 bytes and 32
// scales (the larger side) within the node; a half of that, 128 bytes and 16 scales, across.
TEST(Zero3Quantized, GradientsAreReducedByAllToAll) {
  Model model = test::chain({512, 24});
  model.parameters[0].shape = {16, 32};
  Strategy strategy = bare();
  strategy.zero.quantized_gradients = true;
  strategy.gpus_per_node = 2;
  const Program program = test::build(model, strategy, 4);
  std::vector<std::string> reductions;
  for (const std::string& line : calls(program, Phase::Backward)) {
    if (line.find("-> 512") == std::string::npos && line.find("6 -> 24") == std::string::npos) {
      reductions.push_back(line);
    }
  }
  EXPECT_THAT(reductions, ElementsAre("256 -> 256 u8 on a2a local", "32 -> 32 f32 on a2a local",
                                      "128 -> 128 u8 on a2a global", "16 -> 16 f32 on a2a global",
                                      "24 -> 6 bf16 on WORLD"));
  // On one node it falls back to the plain reduction of the bucket.
  strategy.gpus_per_node = 4;
  EXPECT_THAT(calls(test::build(model, strategy, 4), Phase::Backward),
              Contains("536 -> 134 bf16 on WORLD"));
}

// C3.6, rule 54: the first gathers of a step, of several parameters, are all-reduced over the
// world; in the second micro batch what has a secondary partition is gathered within its group.
TEST(Zero3Hpz, LocalGathersAreNotAllReduced) {
  Strategy strategy = bare();
  strategy.zero.hpz_partition_size = 2;
  strategy.zero.use_all_reduce_for_fetch_params = true;
  strategy.zero.prefetch_bucket_size = 1'000'000;
  strategy.grad_accum = 2;
  const Program program = test::build(test::chain({10, 20, 30}), strategy, 4);
  std::vector<std::string> by_micro_batch[2];
  for (const Op& op : test::rank_of(program).ops) {
    if (op.kind != OpKind::Collective || op.phase != Phase::Forward) continue;
    const Collective& call = test::rank_of(program).collectives[test::payload(op)];
    by_micro_batch[op.micro_step].push_back(
        format("{} on {}", to_string(call.kind), program.groups[call.group.index()].name));
  }
  EXPECT_THAT(by_micro_batch[0], ElementsAre("all_reduce on WORLD"));
  EXPECT_THAT(by_micro_batch[1], ElementsAre("all_gather_into_tensor on hpZ"));
}

// C8.5: a list of one persistent parameter takes a path that blocks.
TEST(Zero3, OnePersistentParameterIsGatheredBlocking) {
  Strategy strategy = test::deepspeed(3);
  const auto async = [&](const std::vector<std::int64_t>& elements) {
    const Program program = test::build(test::chain(elements), strategy, 2);
    return test::collectives(program, Phase::Step).back().async;
  };
  EXPECT_FALSE(async({10}));
  EXPECT_TRUE(async({10, 20}));
}

// ---- What autograd keeps (C2.7) ----------------------------------------------------------------

std::int64_t most_gathered(const Program& program) {
  const RankProgram& rank = test::rank_of(program);
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[test::payload(op)];
    if (buffer.memory_class != MemoryClass::LiveParameters) continue;
    live += (op.kind == OpKind::Allocate ? 1 : -1) * buffer.bytes.count();
    most = std::max(most, live);
  }
  EXPECT_EQ(live, 0);
  return most;
}

// Without the memory efficient linear, all matrices of the layers and the head are held to their
// backward, where each is gathered a second time. In a checkpointed forward there is no graph:
// only what is recomputed is held.
TEST(Zero3, PlainLinearKeepsTheWeights) {
  const Model model = test::llama({64, 160, 64, 256, 4, 16});
  Strategy strategy = bare();
  const std::int64_t layer = 4 * 64 * 64 + 3 * 64 * 160;
  const std::int64_t head = 64 * 256;
  EXPECT_LT(most_gathered(test::build(model, strategy, 4)), 2 * (layer + head));
  strategy.zero.memory_efficient_linear = false;
  EXPECT_EQ(most_gathered(test::build(model, strategy, 4)), 2 * (4 * layer + head + head));
  strategy.checkpointing = ActivationCheckpointing::Full;
  EXPECT_LT(most_gathered(test::build(model, strategy, 4)), 2 * (2 * layer + 2 * head));
}

// ---- Non-reentrant checkpointing (C12.3) -------------------------------------------------------

std::string word(const Model& model, const TrainingEvent& event) {
  using Kind = TrainingEvent::Kind;
  const char* kind = event.kind == Kind::PreForward    ? "f+"
                     : event.kind == Kind::Forward     ? "f "
                     : event.kind == Kind::PostForward ? "f-"
                     : event.kind == Kind::PreBackward ? "b+"
                     : event.kind == Kind::Backward    ? "b "
                                                       : "b-";
  const std::string& name = model.modules[event.module.index()].name;
  return kind + name.substr(name.find_last_of('.') + 1) + (event.recompute ? " again" : "");
}

// The hooks of layer, mlp and its last linear come first; that linear unpacks its input: the layer
// is computed again up to it, and neither it nor what is around it has a post-forward.
TEST(Checkpointing, NonReentrantRecomputesWhenTheLastLinearUnpacks) {
  const Model model = test::llama({64, 160, 64, 256, 1, 16});
  std::vector<std::string> words;
  for (const TrainingEvent& event : training_events(model, ActivationCheckpointing::NonReentrant)) {
    if (event.kind != TrainingEvent::Kind::LeaveBackward) words.push_back(word(model, event));
  }
  const auto at = [&](const std::string& sought) {
    return std::find(words.begin(), words.end(), sought) - words.begin();
  };
  const auto layer = at("b+0");
  EXPECT_THAT(
      std::vector<std::string>(words.begin() + layer, words.begin() + layer + 6),
      ElementsAre("b+0", "b 0", "b+mlp", "b+down_proj", "f+0 again", "f+input_layernorm again"));
  const auto last = at("f down_proj again");
  EXPECT_THAT(std::vector<std::string>(words.begin() + last - 1, words.begin() + last + 3),
              ElementsAre("f+down_proj again", "f down_proj again", "b down_proj", "b-down_proj"));
  EXPECT_THAT(words, Not(Contains("f-mlp again")));
  EXPECT_THAT(words, Contains("f-q_proj again"));
}

// "The set of gathers is nearly the same" (C12.3): with prefetch and reuse 0 the reentrant variant
// gathers the last linear of a layer for the recomputation, releases it and gathers it again; this
// one gathers it once for both.
TEST(Checkpointing, NonReentrantGathersTheLastLinearOnceLess) {
  const Model model = test::llama({64, 160, 64, 256, 2, 16});
  Strategy strategy = bare();
  const auto gathers = [&](ActivationCheckpointing checkpointing) {
    strategy.checkpointing = checkpointing;
    std::size_t count = 0;
    for (const Phase phase : {Phase::Forward, Phase::Backward}) {
      for (const Collective& call : test::collectives(test::build(model, strategy, 4), phase)) {
        count += call.kind == CollectiveKind::AllGather ? 1 : 0;
      }
    }
    return count;
  };
  const std::size_t layers = 2;
  EXPECT_EQ(gathers(ActivationCheckpointing::Full),
            gathers(ActivationCheckpointing::NonReentrant) + layers);
}

// ---- fp16 (C8.1) -------------------------------------------------------------------------------

// Steps 0 and 1 of three overflow: they end after the flag. What is persistent is then gathered
// when it is used, in the forward of the next step.
TEST(Zero3, AnOverflowUpdatesNothing) {
  Strategy strategy = test::deepspeed(3);
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = strategy.grad_accum_dtype = Dtype::F16;
  strategy.overflow_steps = 2;
  const Model model = test::chain({10});
  const Program program = test::build(model, strategy, 4, 0, 3);
  EXPECT_THAT(calls(program, Phase::Step),
              ElementsAre("1 -> 1 u8 on DP", "1 -> 1 u8 on DP", "1 -> 1 u8 on DP",
                          "1 -> 1 f64 on WORLD", "3 -> 12 f16 on WORLD"));
  const auto gathers = [](const Program& built) {
    int count = 0;
    for (const Collective& call : test::collectives(built, Phase::Forward)) {
      count += call.kind == CollectiveKind::AllGather ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(gathers(test::build(model, strategy, 4, 2, 1)), 1);  // after an overflow
  EXPECT_EQ(gathers(test::build(model, strategy, 4, 3, 1)), 0);
  EXPECT_THAT(test::buffers_at(test::build(model, strategy, 4, 2, 1), MemoryPlace::Device),
              Contains("exp_avg_sq 12"));
}

}  // namespace
}  // namespace zerosim
