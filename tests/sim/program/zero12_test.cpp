// Stages 1 and 2 against the worked examples of the specification: B2, B3.10, B5, B7.

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/frameworks.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;

// B3.10: gradients arrive with sizes 400, 500, 300, 1200, 100; definition order is the reverse. The
// flat group is 2500 -> 2504 (multiple of 2 x 4), S = 626: rank 0 owns [0, 626), ...
Model worked_example() {
  return test::chain({100, 1200, 300, 500, 400});
}

Strategy bucket_1000(bool overlap) {
  Strategy strategy = test::deepspeed(2);
  strategy.zero.reduce_bucket_size = 1000;
  strategy.zero.overlap_comm = overlap;
  return strategy;
}

TEST(Zero2, WorkedExampleOfBuckets) {
  for (const bool overlap : {true, false}) {
    const Program program = test::build(worked_example(), bucket_1000(overlap), 4);
    // 1200 lies at [100, 1300): 526 of rank 0, 626 of rank 1, 48 of rank 2; 526 + 626 > 1000
    // closes.
    EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
                ElementsAre("all_reduce 900", "all_reduce 300", "all_reduce 1152", "all_reduce 48",
                            "all_reduce 100"));
    // Step: overflow flag, norm, and one gather of the whole flat tensor (rule 16, B5.2).
    const auto step = test::collectives(program, Phase::Step);
    ASSERT_EQ(step.size(), 3u);
    EXPECT_EQ(step[0].dtype, Dtype::U8);
    EXPECT_EQ(step[1].dtype, Dtype::F32);
    EXPECT_EQ(step[2].input_elements, 626);
    EXPECT_EQ(step[2].output_elements, 2504);
  }
}

TEST(Zero2, OneReduceForEachOwner) {
  Strategy strategy = bucket_1000(false);
  strategy.zero.use_multi_rank_bucket_allreduce = false;
  const Program program = test::build(worked_example(), strategy, 4);
  // 400 at [2100, 2500): rank 3 has [1878, 2504). 500 at [1600, 2100): 278 of rank 2, 222 of
  // rank 3.
  EXPECT_THAT(
      test::summary(test::collectives(program, Phase::Backward)),
      ElementsAre("reduce 622 to 3", "reduce 278 to 2", "reduce 300 to 2", "reduce 526 to 0",
                  "reduce 626 to 1", "reduce 48 to 2", "reduce 100 to 0"));
}

TEST(Zero2, WithoutReduceScatterReducesBucketsInPlace) {
  Strategy strategy = bucket_1000(true);
  strategy.zero.reduce_scatter = false;
  const Program program = test::build(worked_example(), strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 900", "all_reduce 300", "all_reduce 1200", "all_reduce 100"));
}

TEST(Zero2, NonContiguousSynchronisesBeforeEachMessage) {
  Strategy strategy = bucket_1000(true);
  strategy.zero.contiguous_gradients = false;
  const Program program = test::build(worked_example(), strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 900", "all_reduce 300", "all_reduce 1200", "all_reduce 100"));
  int synchronisations = 0;
  for (const Op& op : program.ranks[0].ops) {
    synchronisations += op.kind == OpKind::HostWait && op.rule == "B3.6" ? 1 : 0;
  }
  EXPECT_EQ(synchronisations, 4);
}

// B3.3: strict >: an exact fit stays until the next gradient arrives.
TEST(Zero2, ExactFitStaysInTheBucket) {
  const Program program = test::build(test::chain({10, 1000}), bucket_1000(false), 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 1000", "all_reduce 10"));
}

// B3.5: at flush k compute waits for what the reduction stream held then: reduction k - 1.
TEST(Zero2, ComputeWaitsForThePreviousReductionOnly) {
  const Program program = test::build(worked_example(), bucket_1000(true), 4);
  const RankProgram& rank = program.ranks[0];
  std::vector<std::int64_t> waited_for;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::StreamWait || op.rule != "B3.5" || op.stream != kComputeStream) {
      continue;
    }
    // Latest collective issued before what compute waits for.
    const OpId target = rank.dependencies_of(op)[0];
    std::int64_t last = 0;
    for (std::size_t i = 0; i < target.index(); ++i) {
      if (rank.ops[i].kind == OpKind::Collective) {
        last = rank.collectives[static_cast<std::size_t>(rank.ops[i].payload)].input_elements;
      }
    }
    waited_for.push_back(last);
  }
  // Flush 1 has nothing before it; flushes 2, 3, 4 wait for 900, 300, and the 1200 in its two
  // messages.
  EXPECT_THAT(waited_for, ElementsAre(900, 300, 48));
}

// B3.2, rule 6: stage 1 without overlap walks parameters in order of definition after backward.
TEST(Zero1, ReducesAfterBackwardInDefinitionOrder) {
  Strategy strategy = bucket_1000(false);
  strategy.zero.stage = 1;
  const Program program = test::build(worked_example(), strategy, 4);
  // 100 | 1200 alone (1152 + 48) | 300 + 500 | 400.
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 100", "all_reduce 1152", "all_reduce 48", "all_reduce 800",
                          "all_reduce 400"));
}

// Rule 7: stage 1 reduces at the boundary only, stage 2 in every micro step.
TEST(Zero12, AccumulationMultipliesTrafficAtStage2Only) {
  for (const int stage : {1, 2}) {
    Strategy strategy = test::deepspeed(stage);
    strategy.grad_accum = 4;
    const Program program = test::build(worked_example(), strategy, 4);
    EXPECT_EQ(test::collectives(program, Phase::Backward).size(), stage == 1 ? 1u : 4u);
  }
}

// F6: a group of 1 000 003 elements at N = 8 is padded to 1 000 016, S = 125 002.
TEST(Zero12, PadsToTwiceTheWorldSize) {
  const Program program = test::build(test::chain({1000003}), test::deepspeed(1), 8);
  const Collective gather = test::collectives(program, Phase::Step).back();
  EXPECT_EQ(gather.input_elements, 125002);
  EXPECT_EQ(gather.output_elements, 1000016);
}

// B7 with Psi = 2500 (2504 padded): 2 Psi of all-reduce + Psi of gather; the paper's 2 Psi with a
// reduce to each owner. Two control messages of one element each.
TEST(Zero12, VolumeIs3PsiByDefaultAnd2PsiWithReducesToOwners) {
  Strategy strategy = test::deepspeed(2);
  const std::int64_t control = 2 * 2;
  EXPECT_EQ(test::volume(test::build(worked_example(), strategy, 4)), 2 * 2500 + 2504 + control);
  strategy.zero.use_multi_rank_bucket_allreduce = false;
  EXPECT_EQ(test::volume(test::build(worked_example(), strategy, 4)), 2500 + 2504 + control);
}

// F2: the paper's schedule: a reduce-scatter of each bucket (padded to 4: 900, 300, 1200, 100) and
// the gather.
TEST(Zero12, VolumeIs2PsiWithTheScheduleOfThePaper) {
  const Program program = test::build(worked_example(), as_in_paper(bucket_1000(true)), 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("reduce_scatter_tensor 900", "reduce_scatter_tensor 300",
                          "reduce_scatter_tensor 1200", "reduce_scatter_tensor 100"));
  EXPECT_EQ(test::volume(program), 2500 + 2504 + 2 * 2);
}

// B2 example: parameters 10, 7, 5, N = 4: padded 24, S = 6. Rank 0 touches p0; rank 1 p0 and p1
// (17); rank 2 p1 and p2 (12); rank 3 p2.
TEST(Zero12, TheRankThatTouchesMostStandsForAll) {
  EXPECT_EQ(largest_partition_rank(flat_layout(test::chain({10, 7, 5}), Strategy{}, 4), 4),
            Rank(1));
  const Program program = test::build(test::chain({10, 7, 5}), test::deepspeed(2), 4);
  EXPECT_EQ(program.ranks[0].representative, Rank(1));
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == "partition_gradients") {
      EXPECT_EQ(buffer.bytes, Bytes(17 * 2));  // whole parameters, bf16 (B3.8)
    }
  }
}

// B3.1: one buffer of reduce_bucket_size elements of the model's type, two with overlap.
TEST(Zero2, BucketBuffersHaveFullSizeWhateverTheModel) {
  for (const bool overlap : {false, true}) {
    const Program program = test::build(worked_example(), bucket_1000(overlap), 4);
    int buffers = 0;
    for (const Buffer& buffer : program.ranks[0].buffers) {
      if (buffer.owner == "ipg_bucket") {
        ++buffers;
        EXPECT_EQ(buffer.bytes, Bytes(2000));
      }
    }
    EXPECT_EQ(buffers, overlap ? 2 : 1);
  }
}

// B3.1: stage 1 has its buffers from the first micro batch to the boundary
// (ds_s1_bf16_offload_gas4: 200,000 bytes, ds_s1_bf16_llama_auto_gas4: 32,768 after micro batch 0),
// stage 2 anew in each.
TEST(Zero12, BucketBuffersLiveFromTheFirstHookToTheEpilogue) {
  const auto allocations = [](int stage, bool overlap) {
    Strategy strategy = bucket_1000(overlap);
    strategy.zero.stage = stage;
    strategy.grad_accum = 3;
    const Program program = test::build(worked_example(), strategy, 4);
    std::vector<int> micro_steps;
    for (const Op& op : program.ranks[0].ops) {
      if (op.kind == OpKind::Allocate &&
          program.ranks[0].buffers[static_cast<std::size_t>(op.payload)].owner == "ipg_bucket") {
        micro_steps.push_back(op.micro_step);
      }
    }
    return micro_steps;
  };
  EXPECT_THAT(allocations(1, true), ElementsAre(0, 0));
  EXPECT_THAT(allocations(1, false), ElementsAre(0));
  EXPECT_THAT(allocations(2, false), ElementsAre(0, 1, 2));
}

// B4, rule 19: one all-reduce of everything, then one gather; no norm or overflow message.
TEST(Zero1, Bf16OptimizerSendsEverythingOnce) {
  Strategy strategy = test::deepspeed(1);
  strategy.grad_accum_dtype = Dtype::F32;
  strategy.grad_accum = 4;
  const Program program = test::build(worked_example(), strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 2504"));
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Step)),
              ElementsAre("all_gather_into_tensor 626"));
}

TEST(Zero12, RefusesMoreMicroBatchesThanItCanSimulate) {
  Strategy strategy = test::deepspeed(2);
  strategy.grad_accum = 5000;
  try {
    (void)test::build(worked_example(), strategy, 4);
    FAIL() << "expected an error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "test: gradient accumulation over 5000 micro batches: expected at most 4096, as "
                 "each is simulated");
  }
}

TEST(Zero12, FirstStepAllocatesMomentsInTheStep) {  // B2.6
  for (const int first_step : {0, 2}) {
    const Program program = test::build(worked_example(), test::deepspeed(2), 4, first_step);
    for (const Op& op : program.ranks[0].ops) {
      if (op.kind == OpKind::Allocate &&
          program.ranks[0].buffers[static_cast<std::size_t>(op.payload)].owner == "exp_avg") {
        EXPECT_EQ(op.phase, first_step == 0 ? Phase::Step : Phase::Init);
      }
    }
  }
}

std::vector<std::string> flushes(const Program& program) {
  std::vector<std::string> lines;
  for (const Annotation& annotation : program.ranks[0].annotations) {
    std::string line = std::to_string(annotation.elements) + ":";
    for (const ParameterId id : program.ranks[0].parameters_of(annotation)) {
      line += " " + program.parameter_names[id.index()];
    }
    lines.push_back(line);
  }
  return lines;
}

// B3.10 without overlap: everything is on the compute stream, so nothing waits for another.
TEST(Zero2, WithoutOverlapNothingWaits) {
  const Program program = test::build(worked_example(), bucket_1000(false), 4);
  for (const Op& op : program.ranks[0].ops) {
    EXPECT_NE(op.rule, "B3.5");
    if (op.kind == OpKind::HostWait) {
      EXPECT_EQ(op.rule, "0.7") << "the throughput timer and the overflow flag only";
    }
  }
}

// A bucket says which gradients it holds, as the recordings' markers do.
TEST(Zero2, BucketsNameTheirGradients) {
  EXPECT_THAT(flushes(test::build(worked_example(), bucket_1000(false), 4)),
              ElementsAre("900: m4.weight m3.weight", "300: m2.weight", "1200: m1.weight",
                          "100: m0.weight"));
}

// An oversized parameter that one rank owns whole goes in one message (rule 4): on one of two ranks
// 100 + 1200 + 300 + 500 + 400 + 5000 = 7500, S = 3750; the 1200 at [100, 1300) is rank 0's.
TEST(Zero2, AnOversizedParameterOfOneOwnerIsOneMessage) {
  const Model model = test::chain({100, 1200, 300, 500, 400, 5000});
  const Program program = test::build(model, bucket_1000(false), 2);
  // 5000 at [2500, 7500): 1250 of rank 0, 3750 of rank 1; 1250 > 1000 closes, then 3750 > 1000.
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 1250", "all_reduce 3750", "all_reduce 900", "all_reduce 300",
                          "all_reduce 1200", "all_reduce 100"));
}

// Rule 14: groups share the buckets, but have a norm, an update and a gather each.
// Matrices 400 + 500 + 100 = 1000 -> 1000 at N = 4; vectors 300 + 1200 = 1500 -> 1504.
TEST(Zero12, OptimizerGroupsShareBucketsAndHaveTheirOwnNormAndGather) {
  Model model = worked_example();
  for (const std::size_t matrix : {0u, 3u, 4u}) {
    model.parameters[matrix].shape = {model.parameters[matrix].elements, 1};
  }
  Strategy strategy = bucket_1000(false);
  strategy.optimizer_groups = OptimizerGroups::ByDimension;
  const Program arrival = test::build(model, strategy, 4);
  EXPECT_THAT(flushes(arrival), ElementsAre("900: m4.weight m3.weight", "300: m2.weight",
                                            "1200: m1.weight", "100: m0.weight"));
  EXPECT_THAT(test::summary(test::collectives(arrival, Phase::Step)),
              ElementsAre("all_reduce 1", "all_reduce 1", "all_reduce 1",
                          "all_gather_into_tensor 250", "all_gather_into_tensor 376"));
  // Stage 1's walk goes group by group: 100 + 500 + 400 fill one bucket exactly.
  strategy.zero.stage = 1;
  EXPECT_THAT(
      flushes(test::build(model, strategy, 4)),
      ElementsAre("1000: m0.weight m3.weight m4.weight", "1200: m1.weight", "300: m2.weight"));
}

// B5: a step that overflows ends after the flag: no norm, no update, no gather.
TEST(Zero12, AnOverflowSkipsTheUpdate) {
  Strategy strategy = bucket_1000(false);
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = strategy.grad_accum_dtype = Dtype::F16;
  BatchShape batch;
  batch.sequence = 16;
  strategy.overflow_steps = 1;
  const Program program = build_program(worked_example(), strategy, batch, {4, 0, 2});
  std::vector<std::string> words;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Collective && op.phase == Phase::Step) {
      const Collective& c = program.ranks[0].collectives[static_cast<std::size_t>(op.payload)];
      words.push_back(std::to_string(op.step) + " " + std::string(to_string(c.kind)));
    }
  }
  EXPECT_THAT(words, ElementsAre("0 all_reduce", "1 all_reduce", "1 all_reduce",
                                 "1 all_gather_into_tensor"));
  // Moments are made by the first update (B2.6): in step 1.
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Allocate &&
        program.ranks[0].buffers[static_cast<std::size_t>(op.payload)].owner == "exp_avg") {
      EXPECT_EQ(op.step, 1);
    }
  }
}

// B3.11: fp16 with fp32 accumulation at stage 1 keeps 4 bytes for each element over the window and
// frees the fp16 gradient; messages stay fp16.
TEST(Zero1, AccumulatesInAnotherTypeInTensorsOfItsOwn) {
  Strategy strategy = bucket_1000(false);
  strategy.zero.stage = 1;
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = Dtype::F16;
  strategy.grad_accum_dtype = Dtype::F32;
  strategy.grad_accum = 2;
  const Program program = test::build(worked_example(), strategy, 4);
  Bytes accumulators;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == "accumulated_gradient") {
      accumulators += buffer.bytes;
    }
  }
  EXPECT_EQ(accumulators, Bytes(2500 * 4));
  for (const Collective& collective : test::collectives(program, Phase::Backward)) {
    EXPECT_EQ(collective.dtype, Dtype::F16);
  }
}

// B3.11 and B3.4: an extra-large gradient is reduced in its own memory, here fp32: it is cast to
// fp16, 2 bytes an element, beside 4; what fits was cast when it was copied into the bucket.
TEST(Zero1, AnExtraLargeGradientOfAnotherTypeIsCast) {
  Strategy strategy = bucket_1000(false);
  strategy.zero.stage = 1;
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = Dtype::F16;
  strategy.grad_accum_dtype = Dtype::F32;
  const Program program = test::build(test::chain({1200, 300}), strategy, 1);
  EXPECT_TRUE(test::collectives(program, Phase::Backward).empty());
  const Program two = test::build(test::chain({1200, 300}), strategy, 2);
  std::vector<std::int64_t> casts;
  for (const Buffer& buffer : two.ranks[0].buffers) {
    if (buffer.owner == "cast_bucket") {
      casts.push_back(buffer.bytes.count());
    }
  }
  // 1500 elements, S = 752 of padded 1504: the 1200 is 752 of rank 0 and 448 of rank 1.
  EXPECT_THAT(casts, ElementsAre(1200 * 2));
}

// E4: torch's AdamW needs 4 (for-each) or 8 bytes an element beside its states, at every stage.
TEST(Zero0, TheOptimizerHasItsTemporaries) {
  for (const auto& [stage, elements] : {std::pair{0, 2500}, {1, 626}, {2, 626}}) {
    for (const auto& [kind, bytes] : {std::pair{OptimizerKind::AdamTorchForeach, 4},
                                      {OptimizerKind::AdamTorch, 8},
                                      {OptimizerKind::AdamFused, 0},
                                      {OptimizerKind::Adam8bit, 0}}) {
      Strategy strategy = test::deepspeed(stage);
      strategy.optimizer = kind;
      const Program program = test::build(worked_example(), strategy, 4);
      Bytes temporary;
      for (const Buffer& buffer : program.ranks[0].buffers) {
        if (buffer.owner == "adam_root" || buffer.owner == "adam_quotient") {
          temporary += buffer.bytes;
        }
      }
      EXPECT_EQ(temporary, Bytes(elements) * bytes) << stage;
    }
  }
}

// Stage 0: DeepSpeed's own Adam gets one flat tensor, another one (FP16_UnfusedOptimizer) keeps its
// tensors, one fp32 gradient each, and the 16-bit gradients stay until the end.
TEST(Zero0, AnotherOptimizerIsNotFlattened) {
  for (const OptimizerKind kind : {OptimizerKind::AdamFused, OptimizerKind::AdamTorch}) {
    Strategy strategy = test::deepspeed(0);
    strategy.optimizer = kind;
    const Program program = test::build(worked_example(), strategy, 4);
    int flat = 0;
    int moments = 0;
    for (const Buffer& buffer : program.ranks[0].buffers) {
      flat += buffer.owner == "flat_fp32_gradients" ? 1 : 0;
      moments += buffer.owner == "exp_avg" ? 1 : 0;
    }
    EXPECT_EQ(flat, kind == OptimizerKind::AdamFused ? 1 : 0);
    EXPECT_EQ(moments, kind == OptimizerKind::AdamFused ? 1 : 5);  // of five parameters
  }
}

// A4.2: stage 1 with fp32 accumulation is the BF16 optimizer's unless it is offloaded to the CPU.
TEST(Zero1, OffloadToNvmeKeepsTheBf16Optimizer) {
  Strategy strategy = test::deepspeed(1);
  strategy.grad_accum_dtype = Dtype::F32;
  strategy.zero.offload_optimizer.device = OffloadDevice::Nvme;
  EXPECT_EQ(test::collectives(test::build(worked_example(), strategy, 4), Phase::Step).size(), 1u);
  strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  EXPECT_EQ(test::collectives(test::build(worked_example(), strategy, 4), Phase::Step).size(), 3u);
}

// B1.3: closes once the sum EXCEEDS 5e8: 3e8 + 2e8 is not above, + 1 is.
TEST(Zero0, BucketsCloseAboveFiveHundredMillion) {
  const std::vector<std::int64_t> sizes = {300'000'000, 200'000'000, 1, 7};
  const std::vector<FallbackBucket> buckets = fallback_buckets(sizes);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].elements, 500'000'001);
  EXPECT_EQ(buckets[0].tensors, 3);
  EXPECT_EQ(buckets[1].elements, 7);
}

// B4.3: the groups' buffers are two tensors of one reduction: 1000 + 1504 in one message.
TEST(Zero1, Bf16OptimizerReducesItsGroupsTogether) {
  Model model = worked_example();
  for (const std::size_t matrix : {0u, 3u, 4u}) {
    model.parameters[matrix].shape = {model.parameters[matrix].elements, 1};
  }
  Strategy strategy = test::deepspeed(1);
  strategy.grad_accum_dtype = Dtype::F32;
  strategy.optimizer_groups = OptimizerGroups::ByDimension;
  const Program program = test::build(model, strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              ElementsAre("all_reduce 2504"));
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Step)),
              ElementsAre("all_gather_into_tensor 250", "all_gather_into_tensor 376"));
}

}  // namespace
}  // namespace zerosim
