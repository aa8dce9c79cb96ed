// Stage 3 against the worked examples of the specification: C1, C3, C6.9, C6.10, C8.

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/frameworks.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

// Everything persistent: no gathers in forward and backward, so that only reductions are seen.
Strategy all_persistent(std::int64_t bucket) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.reduce_bucket_size = bucket;
  return strategy;
}

std::vector<std::string> backward_summary(const Model& model, const Strategy& strategy, int world) {
  return test::summary(test::collectives(test::build(model, strategy, world), Phase::Backward));
}

// C6.10: gradients 400, 500, 300, 1200, 100 in order of arrival, N = 4, bucket 1000.
TEST(Zero3, WorkedExampleOfTheGradientBucket) {
  const Model model = test::chain({100, 1200, 300, 500, 400});
  const Program program = test::build(model, all_persistent(1000), 4);
  const auto reductions = test::collectives(program, Phase::Backward);
  EXPECT_THAT(test::summary(reductions),
              ElementsAre("reduce_scatter_tensor 900", "reduce_scatter_tensor 300",
                          "reduce_scatter_tensor 1200", "reduce_scatter_tensor 100"));
  std::vector<std::int64_t> outputs;
  for (const Collective& reduction : reductions) {
    outputs.push_back(reduction.output_elements);
  }
  EXPECT_THAT(outputs, ElementsAre(225, 75, 300, 25));

  Strategy strategy = all_persistent(1000);
  strategy.zero.reduce_scatter = false;
  EXPECT_THAT(backward_summary(model, strategy, 4),
              ElementsAre("all_reduce 900", "all_reduce 300", "reduce_scatter_tensor 1200",
                          "all_reduce 100"));
}

// C6.4: tensors 10 and 7 at N = 4: chunks 3 and 2, buffer 4 (3 + 2) = 20 for 17 real elements.
TEST(Zero3, PadsEachTensorOfABucket) {
  const Program program = test::build(test::chain({7, 10}), all_persistent(1000), 4);
  const Collective reduction = test::collectives(program, Phase::Backward).at(0);
  EXPECT_EQ(reduction.input_elements, 20);
  EXPECT_EQ(reduction.output_elements, 5);
}

// C6.10 as it is issued, and C6.5: R is the reduction stream. A gradient in its bucket is copied on
// R after a wait for compute; one above the limit stays where it is.
TEST(Zero3, EventsOfTheWorkedExample) {
  const Program program =
      test::build(test::chain({100, 1200, 300, 500, 400}), all_persistent(1000), 4);
  const RankProgram& rank = program.ranks[0];
  std::vector<std::string> events;
  for (const Op& op : rank.ops) {
    const auto payload = static_cast<std::size_t>(op.payload);
    const bool on_reduce =
        runs_on_device(op.kind) && rank.streams[op.stream.index()].name == "reduce";
    if (op.phase != Phase::Backward) {
      continue;
    }
    if (op.kind == OpKind::HostWait && (op.rule == "C6.5" || op.rule == "C6.7")) {
      events.push_back(op.rule == "C6.5" ? "host waits" : "host waits for R");
    } else if (op.kind == OpKind::Collective) {
      events.push_back(format("reduce {}", rank.collectives[payload].input_elements));
    } else if (on_reduce && op.kind == OpKind::StreamWait && op.rule == "C6.3") {
      events.emplace_back("R waits D");
    } else if (on_reduce && op.kind == OpKind::Kernel) {
      events.emplace_back(rank.kernels[payload].name);
    }
  }
  EXPECT_THAT(events, ElementsAre("R waits D", "copy_to_bucket",             // 400
                                  "R waits D", "copy_to_bucket",             // 500
                                  "flatten", "divide", "reduce 900",         // of two
                                  "copy_partition", "copy_partition",        //
                                  "R waits D", "copy_to_bucket",             // 300
                                  "divide", "reduce 300", "copy_partition",  // of one: in place
                                  "R waits D",                               // 1200
                                  "divide", "reduce 1200", "copy_partition", "R waits D",
                                  "copy_to_bucket",                          // 100
                                  "host waits",                              // the fourth reduction
                                  "divide", "reduce 100", "copy_partition",  //
                                  "host waits for R"));
}

// C1.1, N = 4: 10 elements are 4 pieces of 3, 5 elements 4 of 2.
TEST(Zero3, PadsEachParameterToEqualPieces) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.prefetch_bucket_size = 0;
  std::vector<std::string> gathers;
  for (const Collective& call :
       test::collectives(test::build(test::chain({10, 5}), strategy, 4), Phase::Forward)) {
    gathers.push_back(format("{} -> {}", call.input_elements, call.output_elements));
  }
  EXPECT_THAT(gathers, ElementsAre("3 -> 12", "2 -> 8"));
}

/// Parameters of each reduce-scatter of the backward: each is copied from the result by itself.
std::vector<std::size_t> bucket_sizes(const Program& program) {
  std::vector<std::size_t> sizes;
  const RankProgram& rank = program.ranks[0];
  for (const Op& op : rank.ops) {
    const auto payload = static_cast<std::size_t>(op.payload);
    if (op.kind == OpKind::Collective &&
        rank.collectives[payload].kind == CollectiveKind::ReduceScatter) {
      sizes.push_back(0);
    } else if (op.kind == OpKind::Kernel && rank.kernels[payload].name == "copy_partition") {
      ++sizes.back();
    }
  }
  return sizes;
}

// The models of C5.7.
Model llama_1b() {
  return test::llama({2048, 5632, 256, 32000, 22, 64});
}
Model llama_7b() {
  return test::llama({4096, 11008, 4096, 32000, 32, 128});
}
Model llama_70b() {
  return test::llama({8192, 28672, 1024, 128256, 80, 128});
}

// C6.9: reduce-scatters of a micro batch, and those of two or more parameters.
TEST(Zero3, FlushesOfLlamas) {
  struct Row {
    Model model;
    std::int64_t bucket;
    std::size_t reductions;
    std::ptrdiff_t coalesced;
  };
  const Row rows[] = {{llama_7b(), 16'777'216, 291, 0},    {llama_7b(), 50'000'000, 162, 97},
                      {llama_7b(), 500'000'000, 14, 14},   {llama_1b(), 4'194'304, 179, 22},
                      {llama_1b(), 500'000'000, 3, 3},     {llama_70b(), 67'108'864, 643, 80},
                      {llama_70b(), 500'000'000, 162, 160}};
  for (const Row& row : rows) {
    SCOPED_TRACE(format("{} parameters, bucket {}", parameter_count(row.model), row.bucket));
    const std::vector<std::size_t> sizes =
        bucket_sizes(test::build(row.model, all_persistent(row.bucket), 8));
    EXPECT_EQ(sizes.size(), row.reductions);
    EXPECT_EQ(std::count_if(sizes.begin(), sizes.end(), [](std::size_t n) { return n > 1; }),
              row.coalesced);
    if (row.coalesced == 14) {
      EXPECT_THAT(std::vector<std::size_t>(sizes.begin(), sizes.begin() + 4),
                  ElementsAre(16, 22, 20, 22));
    }
  }
}

// C9.5: 2 Psi / H = 1.7 GB of secondary partitions for 7B in groups of 8, where all are released.
TEST(Zero3Hpz, SecondaryPartitionsOfA7BModel) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.hpz_partition_size = 8;
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.prefetch_bucket_size = 0;
  strategy.zero.max_reuse_distance = 0;
  const Model model = llama_7b();
  std::int64_t bytes = 0;
  const Program program = test::build(model, strategy, 16);
  for (const Buffer& buffer : program.ranks[0].buffers) {
    bytes += buffer.owner == "secondary_partition" ? buffer.bytes.count() : 0;
  }
  EXPECT_EQ(bytes, 2 * parameter_count(model) / 8);
  EXPECT_NEAR(static_cast<double>(bytes), 1.7e9, 0.05e9);
}

/// Most bytes that live at once of buffers of one owner.
std::int64_t peak_of(const Program& program, std::string_view owner) {
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Allocate || op.kind == OpKind::Free) {
      const Buffer& buffer = program.ranks[0].buffers[static_cast<std::size_t>(op.payload)];
      if (buffer.owner == owner) {
        live += buffer.bytes.count() * (op.kind == OpKind::Allocate ? 1 : -1);
        peak = std::max(peak, live);
      }
    }
  }
  return peak;
}

// E3, 7B on 8 GPUs with default options: 2 Psi / N of weights, as much of gradients, 12 Psi / N of
// states, a bucket of 2 x 5e8 B, 65 persistent norms of 4096 elements of 2 B beside them.
TEST(Zero3Memory, PermanentBuffersOfA7BModel) {
  const Model model = llama_7b();
  const std::int64_t piece = parameter_count(model) / 8;
  const Program program = test::build(model, test::deepspeed(3), 8);
  EXPECT_EQ(peak_of(program, "parameter_partitions"), 2 * piece);
  EXPECT_EQ(peak_of(program, "gradient_partitions"), 2 * piece);
  EXPECT_EQ(peak_of(program, "master_weights") + peak_of(program, "exp_avg") +
                peak_of(program, "exp_avg_sq"),
            12 * piece);
  EXPECT_EQ(peak_of(program, "ipg_bucket"), 1'000'000'000);
  std::int64_t persistent = 0;
  for (const Op& op : program.ranks[0].ops) {
    if (op.phase == Phase::Init && op.kind == OpKind::Allocate) {
      const Buffer& buffer = program.ranks[0].buffers[static_cast<std::size_t>(op.payload)];
      persistent += buffer.owner == "gathered_parameter" ? buffer.bytes.count() : 0;
    }
  }
  EXPECT_EQ(persistent, 65 * 4096 * 2);
}

// E3: fp64 norm of the largest partition: an embedding of 525e6 elements on 8 GPUs, 0.53 GB.
TEST(Zero3Memory, NormOfTheLargestPartition) {
  const Program program = test::build(llama_70b(), test::deepspeed(3), 16);
  EXPECT_EQ(peak_of(program, "fp64_norm"), std::int64_t{8} * 128'256 * 8'192 / 16);
  // The same elements a rank as 128,256 x 4,096 on 8.
  EXPECT_NEAR(static_cast<double>(peak_of(program, "fp64_norm")), 0.53e9, 0.005e9);
}

// C8.5: 65 norms of Llama-2-7B are gathered one by one after the step; C8.3: one norm message.
TEST(Zero3, GathersPersistentParametersOneByOneAfterTheStep) {
  const Program program = test::build(llama_7b(), all_persistent(500000000), 8);
  const auto step = test::collectives(program, Phase::Step);
  ASSERT_EQ(step.size(), 1u + 65u);
  EXPECT_EQ(step[0].dtype, Dtype::F64);
  EXPECT_EQ(step[1].input_elements, 512);
  EXPECT_EQ(step[1].output_elements, 4096);
}

// C8.5: a GPT of 24 layers has 194: in each layer two norms of two and four biases, two at the end.
TEST(Zero3, PersistentParametersOfAGpt) {
  const Model model = load_model("gpt2-medium");
  const auto step =
      test::collectives(test::build(model, all_persistent(500000000), 8), Phase::Step);
  EXPECT_EQ(step.size(), 1U + 24 * 8 + 2);
}

// C6.8: every micro batch gathers and reduces everything again.
TEST(Zero3, AccumulationMultipliesAllTraffic) {
  const Model model = test::chain({100, 1200, 300, 500, 400});
  Strategy strategy = all_persistent(1000);
  strategy.grad_accum = 3;
  EXPECT_EQ(backward_summary(model, strategy, 4).size(), 3u * 4u);
}

// Item 4 of the ZeRO paper's section 7: 3 Psi. Without persistence, prefetch and reuse each
// parameter is gathered in forward and in backward, and reduce-scattered once. The one exception is
// an embedding-like first module, which is gathered in backward too (rule 31), so nothing is saved.
TEST(Zero3, VolumeIs3PsiWithoutPersistencePrefetchAndReuse) {
  const Model model = test::llama({1024, 2816, 1024, 32000, 2, 128});
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.prefetch_bucket_size = 0;
  strategy.zero.max_reuse_distance = 0;
  const Program program = test::build(model, strategy, 8);
  const std::int64_t norm_message = 2;
  EXPECT_EQ(test::volume(program), 3 * parameter_count(model) + norm_message);
}

// C8.2, rule 48: parameters are added until the sum of *partitions* reaches sub_group_size.
TEST(Zero3, SubGroupsCountThePartition) {
  Strategy strategy = all_persistent(1000);
  strategy.zero.sub_group_size = 100;
  // Partitions at N = 4: 25, 300, 75, 125, 100: {25, 300}, {75, 125}, {100}.
  const Program program = test::build(test::chain({100, 1200, 300, 500, 400}), strategy, 4);
  std::vector<std::int64_t> tiles;
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == "fp32_gradients") {
      tiles.push_back(buffer.bytes.count() / 4);
    }
  }
  EXPECT_THAT(tiles, ElementsAre(325, 200, 100));
}

// C3.2: a request of several parameters holds its flat buffer beside the copies until the last is
// used.
TEST(Zero3, CoalescedGatherNeedsAFlatBuffer) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  const Program program = test::build(test::chain({10, 7}), strategy, 4);
  const auto forward = test::collectives(program, Phase::Forward);
  ASSERT_EQ(forward.size(), 1u);  // both prefetched at the root's hook
  EXPECT_EQ(forward[0].input_elements, 3 + 2);
  EXPECT_EQ(forward[0].output_elements, 20);
  std::vector<std::string> owners;
  for (const Op& op : program.ranks[0].ops) {
    if (op.phase == Phase::Forward && op.kind == OpKind::Allocate) {
      const Buffer& buffer = program.ranks[0].buffers[static_cast<std::size_t>(op.payload)];
      if (buffer.owner.find("gather") == 0) {
        owners.emplace_back(buffer.owner);
      }
    }
  }
  EXPECT_THAT(owners,
              ElementsAre("gather_flat_buffer", "gathered_parameter", "gathered_parameter"));
}

// C3.6: fetched by an all-reduce of a zero-filled buffer, of which the parameters are views: the 20
// elements (40 B) are held once.
TEST(Zero3, ParametersAreViewsOfAnAllReducedBuffer) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.use_all_reduce_for_fetch_params = true;
  const Program program = test::build(test::chain({10, 7}), strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Forward)),
              ElementsAre("all_reduce 20"));
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const Op& op : program.ranks[0].ops) {
    if (op.phase != Phase::Forward || (op.kind != OpKind::Allocate && op.kind != OpKind::Free)) {
      continue;
    }
    const Buffer& buffer = program.ranks[0].buffers[static_cast<std::size_t>(op.payload)];
    if (buffer.owner.find("gather") == 0) {
      held += (op.kind == OpKind::Allocate ? 1 : -1) * buffer.bytes.count();
      most = std::max(most, held);
    }
  }
  EXPECT_EQ(most, 40);
}

TEST(Zero3, OneRankCommunicatesNothing) {  // C3.3
  const Model model = test::chain({100, 1200, 300});
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = 0;
  EXPECT_EQ(test::volume(test::build(model, strategy, 1)), 0);
}

// Property: random sizes, knobs and world sizes give Programs that pass check_program (buffers live
// from allocation to one free) and gather each parameter before its module computes.
class Zero3Random : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Zero3Random, ProgramsKeepTheirPromises) {
  std::mt19937_64 random(GetParam());
  const auto up_to = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)) + 1;
  };
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(up_to(12)));
  for (std::int64_t& size : sizes) {
    size = up_to(3000);
  }
  Strategy strategy = test::deepspeed(3);
  strategy.zero.param_persistence_threshold = up_to(500) - 1;
  strategy.zero.prefetch_bucket_size = up_to(3000) - 1;
  strategy.zero.max_live_parameters = up_to(6000);
  strategy.zero.max_reuse_distance = up_to(4000) - 1;
  strategy.zero.reduce_bucket_size = up_to(4000);
  strategy.zero.overlap_comm = up_to(2) == 1;
  strategy.grad_accum = up_to(3);
  const int world = static_cast<int>(up_to(9));
  const Program program = test::build(test::chain(sizes), strategy, world, 0, 2);
  std::int64_t reduced = 0;
  for (const Collective& collective : test::collectives(program, Phase::Backward)) {
    reduced += collective.kind == CollectiveKind::ReduceScatter ? collective.output_elements : 0;
  }
  std::int64_t pieces = 0;
  for (const std::int64_t size : sizes) {
    pieces += (size + world - 1) / world;
  }
  EXPECT_EQ(reduced, world == 1 ? 0 : pieces * strategy.grad_accum * 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Zero3Random, testing::Range<std::uint64_t>(0, 40));

std::vector<std::string> broadcasts(const Program& program) {
  std::vector<std::string> lines;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Collective) {
      const Collective& c = program.ranks[0].collectives[static_cast<std::size_t>(op.payload)];
      if (c.kind == CollectiveKind::Broadcast) {
        lines.push_back(std::to_string(op.step) + " " + std::string(to_string(op.phase)) + " " +
                        std::to_string(c.input_elements));
      }
    }
  }
  return lines;
}

// C4.1, rule 22: an empty list when the recording begins, three lists when it is complete: 3
// modules x 2 passes, 2 parameters x 2 (the root's pre-backward hook fires too). 0.14 compares the
// lists alone, at the end of the first backward.
TEST(Zero3Trace, RanksCompareItOnce) {
  const Model model = test::chain({10, 20});
  Strategy strategy = test::deepspeed(3);
  EXPECT_THAT(broadcasts(test::build(model, strategy, 2, 0, 3)),
              testing::ElementsAre("0 fwd 1", "0 fwd 0", "1 fwd 1", "1 fwd 6", "1 fwd 1", "1 fwd 4",
                                   "1 fwd 1", "1 fwd 4"));
  strategy.version = "0.14";
  EXPECT_THAT(broadcasts(test::build(model, strategy, 2, 0, 3)),
              testing::ElementsAre("0 bwd 6", "0 bwd 4", "0 bwd 4"));
  EXPECT_THAT(broadcasts(test::build(model, strategy, 2, 2, 1)), testing::ElementsAre());
}

// C9, rules 53 to 55: N = 4, groups of 2. 10 elements: p = 3, padded 12. The first gather of a step
// takes 3 from each of 4 ranks, the backward's, after the forward's release, 6 from each of 2.
TEST(Zero3Hpz, OnlyTheFirstGatherOfAStepIsGlobal) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero.hpz_partition_size = 2;
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.prefetch_bucket_size = 0;
  strategy.zero.max_reuse_distance = 0;
  const Program program = test::build(test::chain({10}), strategy, 4);
  const auto gather = [&](Phase phase) {
    const Collective call = test::collectives(program, phase).front();
    const ProcessGroup& group = program.groups[call.group.index()];
    return format("{} -> {} on {}", call.input_elements, call.output_elements, group.name);
  };
  EXPECT_EQ(gather(Phase::Forward), "3 -> 12 on WORLD");
  EXPECT_EQ(gather(Phase::Backward), "6 -> 12 on hpZ");
  strategy.zero.hpz_partition_size = 3;
  try {
    (void)test::build(test::chain({10}), strategy, 4);
    ADD_FAILURE() << "built";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "test: zero_hpz_partition_size 3 does not divide the 4 ranks");
  }
}

// DeepSpeed 0.3 on 4 ranks: 10 elements, pieces of 3, as a list of 4 tensors of 3; each parameter
// by itself, whatever fits a bucket. Copies: 2 B x 12 read and written, 4 launches.
TEST(Zero3, EarlyReleasesMoveListsOfTensors) {
  Strategy strategy = test::deepspeed(3);
  strategy.version = "0.3";
  strategy.zero.param_persistence_threshold = 0;
  const Program program = test::build(test::chain({10, 7}), strategy, 4);
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Forward)),
              ElementsAre("all_gather_into_tensor 3", "all_gather_into_tensor 2"));
  std::vector<std::string> copies;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind != OpKind::Kernel) continue;
    const Kernel& kernel = program.ranks[0].kernels[static_cast<std::size_t>(op.payload)];
    if (kernel.name == "copy_list" || kernel.name == "flatten") {
      copies.push_back(format("{} {} {} B, {} launches", to_string(op.phase), kernel.name,
                              kernel.bytes.count(), kernel.launches));
    }
  }
  EXPECT_THAT(copies,
              IsSupersetOf({"fwd copy_list 48 B, 4 launches", "fwd copy_list 32 B, 4 launches",
                            "bwd flatten 48 B, 4 launches", "bwd flatten 32 B, 4 launches"}));
  EXPECT_THAT(test::summary(test::collectives(program, Phase::Backward)),
              IsSupersetOf({"reduce_scatter_tensor 12", "reduce_scatter_tensor 8"}));
}

// C8.2: sub-groups are cut within each optimizer group: a norm for each.
TEST(Zero3, EachOptimizerGroupHasItsSubGroups) {
  Model model = test::chain({10, 20, 30});
  model.parameters[1].shape = {20, 1};
  Strategy strategy = test::deepspeed(3);
  const auto norms = [&] {
    int count = 0;
    for (const Collective& call : test::collectives(test::build(model, strategy, 2), Phase::Step)) {
      count += call.dtype == Dtype::F64 ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(norms(), 1);
  strategy.optimizer_groups = OptimizerGroups::ByDimension;
  EXPECT_EQ(norms(), 2);
}

}  // namespace
}  // namespace zerosim
