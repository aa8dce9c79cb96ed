// Stage 3 against the figures that deepspeed_recorded.md prints with its rules: gpt_small of the
// recordings (330,112 parameters) and their adapted Llama. A figure is of a steady step.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/model/trainable.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::Each;
using testing::ElementsAre;

std::string listed(const std::string& name, const char* class_name, const char* weight,
                   std::int64_t bias) {
  std::string parameters = format(R"({{"name": "{}.weight", "shape": [{}]}})", name, weight);
  if (bias > 0) {
    parameters += format(R"(, {{"name": "{}.bias", "shape": [{}]}})", name, bias);
  }
  return format(R"(, {{"name": "{}", "class": "{}", "parameters": [{}]}})", name, class_name,
                parameters);
}

/// Four blocks of 49,984 elements, embeddings of 64,000 and 2,048, a head of 64,000; 41 modules.
Model gpt_small() {
  std::string modules = R"({"name": "", "class": "GPT"})";
  modules += listed("wte", "Embedding", "1000, 64", 0) + listed("wpe", "Embedding", "32, 64", 0);
  for (int i = 0; i < 4; ++i) {
    const std::string block = format("h.{}", i);
    modules += format(R"(, {{"name": "{}", "class": "Block"}})", block);
    modules += listed(block + ".ln1", "LayerNorm", "64", 64);
    modules += format(R"(, {{"name": "{}.attn", "class": "Attention"}})", block);
    modules += listed(block + ".attn.qkv", "Linear", "192, 64", 192);
    modules += listed(block + ".attn.proj", "Linear", "64, 64", 64);
    modules += listed(block + ".ln2", "LayerNorm", "64", 64);
    modules += format(R"(, {{"name": "{}.mlp", "class": "Mlp"}})", block);
    modules += listed(block + ".mlp.fc1", "Linear", "256, 64", 256);
    modules += listed(block + ".mlp.fc2", "Linear", "64, 256", 64);
  }
  modules += listed("ln_f", "LayerNorm", "64", 64) + listed("head", "Linear", "1000, 64", 0);
  return parse_model(
      R"({"format": "zerosim.module_listing", "version": 1, "name": "gpt_small", "modules": [)" +
          modules + "]}",
      "gpt_small.json");
}

constexpr std::int64_t kWide = 1'000'000'000;

struct Limits {
  std::int64_t prefetch = 50'000'000;
  std::int64_t live = kWide;
  std::int64_t reuse = kWide;
  std::int64_t persist = 100;
};

Strategy limited(const Limits& limits, const char* version = "0.19") {
  Strategy strategy = test::deepspeed(3);
  strategy.version = version;
  strategy.zero.prefetch_bucket_size = limits.prefetch;
  strategy.zero.max_live_parameters = limits.live;
  strategy.zero.max_reuse_distance = limits.reuse;
  strategy.zero.param_persistence_threshold = limits.persist;
  return strategy;
}

std::vector<std::int64_t> gathers(const Program& program, Phase phase) {
  std::vector<std::int64_t> sizes;
  for (const Collective& call : test::collectives(program, phase)) {
    if (call.kind == CollectiveKind::AllGather) {
      sizes.push_back(call.output_elements);
    }
  }
  return sizes;
}

/// All-gathers of the forward and of the backward.
std::pair<std::size_t, std::size_t> counts(const Program& program) {
  return {gathers(program, Phase::Forward).size(), gathers(program, Phase::Backward).size()};
}
using Counts = std::pair<std::size_t, std::size_t>;

Program small(const Limits& limits, const char* version = "0.19") {
  return test::build(gpt_small(), limited(limits, version), 2);
}

/// Most elements that are whole or on their way at once, in host order. At W = 2 no parameter here
/// is padded.
std::int64_t most_live(const Program& program) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  const RankProgram& rank = program.ranks[0];
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::Collective) {
      const Collective& call = rank.collectives[static_cast<std::size_t>(op.payload)];
      live += call.kind == CollectiveKind::AllGather ? call.output_elements : 0;
    } else if (op.kind == OpKind::Free ||
               (op.kind == OpKind::Allocate && op.phase == Phase::Init)) {
      const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
      const std::int64_t elements =
          buffer.owner == "gathered_parameter" ? buffer.bytes.count() / 2 : 0;
      live += op.kind == OpKind::Free ? -elements : elements;
    }
    most = std::max(most, live);
  }
  return most;
}

TEST(Zero3Rules, TheModelIsTheRecordings) {
  const Model model = gpt_small();
  EXPECT_EQ(parameter_count(model), 330'112);
  EXPECT_EQ(model.parameters.size(), 53U);
  EXPECT_EQ(model.modules.size(), 41U);
}

// Rule 22: without a trace every module gathers in forward and again in backward; then lists of 82
// modules and 106 parameter uses are compared.
TEST(Zero3Rules, TheRecordingGathersModuleByModule) {
  const Strategy strategy = limited({.persist = 0});
  EXPECT_EQ(counts(test::build(gpt_small(), strategy, 2, 0)), Counts(28, 28));
  std::vector<std::int64_t> compared;
  for (const Collective& call :
       test::collectives(test::build(gpt_small(), strategy, 2, 0, 2), Phase::Forward)) {
    if (call.kind == CollectiveKind::Broadcast) {
      compared.push_back(call.input_elements);
    }
  }
  EXPECT_THAT(compared, ElementsAre(1, 0, 1, 82, 1, 106, 1, 106));
}

// Rule 24: each hook may prefetch a bucket: all is gathered in 8 messages of 33,000 (rounded) to
// 64,000; with the default bucket in one of the whole model at the root's hook.
TEST(Zero3Rules, PrefetchRunsAtEveryHook) {
  const std::vector<std::int64_t> sizes = gathers(small({.prefetch = 30'000}), Phase::Forward);
  EXPECT_EQ(sizes.size(), 8U);
  EXPECT_THAT(sizes, Each(testing::AllOf(testing::Ge(32'960), testing::Le(64'000))));
  EXPECT_THAT(gathers(small({.persist = 0}), Phase::Forward), ElementsAre(330'112));
}

// Rule 26: 8 messages in forward as before and one of 82,624: what was released in forward before
// the look-ahead had got to its backward use, five parameters.
TEST(Zero3Rules, WhatIsPromisedToTheBackwardStays) {
  const Program program = small({.prefetch = 30'000, .reuse = 0});
  const std::vector<std::int64_t> sizes = gathers(program, Phase::Forward);
  EXPECT_EQ(sizes.size(), 9U);
  EXPECT_EQ(sizes.back(), 82'624);
  EXPECT_TRUE(gathers(program, Phase::Backward).empty());
}

// Rules 27, 28: with the default reuse distance nothing is gathered again; with none everything is.
TEST(Zero3Rules, ReuseDistanceDecidesWhetherTheBackwardGathers) {
  EXPECT_EQ(counts(small({.prefetch = 0, .persist = 0})), Counts(28, 0));
  EXPECT_EQ(counts(small({.prefetch = 0, .reuse = 0, .persist = 0})), Counts(28, 28));
}

// Rule 29: max_live never delays a fetch: one prefetch at the root (wte, 64,000, exceeds 50,000),
// then 27 fetches and no prefetch.
TEST(Zero3Rules, MaxLiveOnlyGatesThePrefetch) {
  const Program program = small({.live = 50'000, .persist = 0});
  EXPECT_EQ(counts(program), Counts(28, 0));
  EXPECT_EQ(gathers(program, Phase::Forward).front(), 64'000);
  EXPECT_EQ(most_live(program), 330'112);
}

// Rules 23, 30: 51 messages, 26 of them after the step; 40 in 0.14, whose later steps count from
// -67,712 = wte + wpe + 26 x 64. Live: the head, 64,000, is added when 800 of 100,000 are left:
// 163,200, and the persistent 1,664.
TEST(Zero3Rules, TheCountOfLiveElements) {
  const Limits limits{.prefetch = 30'000, .live = 100'000, .reuse = 0};
  const auto total = [](const Counts& c) { return c.first + c.second; };
  const Program program = small(limits);
  EXPECT_EQ(total(counts(program)) + gathers(program, Phase::Step).size(), 51U);
  EXPECT_EQ(most_live(program), 163'200 + 26 * 64);
  const Program before = small(limits, "0.14");
  EXPECT_EQ(total(counts(before)) + gathers(before, Phase::Step).size(), 40U);
}

// Rule 31: the last two gathers of the backward are the embeddings. With accumulation 62 messages
// (4 x 9 and 26 after the step), in 0.14 59: it keeps the embeddings to the step.
TEST(Zero3Rules, EmbeddingsAreGatheredForTheBackward) {
  const std::vector<std::int64_t> sizes =
      gathers(small({.prefetch = 0, .reuse = 0, .persist = 0}), Phase::Backward);
  EXPECT_THAT(std::vector<std::int64_t>(sizes.end() - 2, sizes.end()), ElementsAre(2'048, 64'000));
  for (const char* version : {"0.19", "0.14"}) {
    Strategy strategy = limited({.prefetch = 30'000, .reuse = 0}, version);
    strategy.grad_accum = 4;
    const Program program = test::build(gpt_small(), strategy, 2);
    const auto [forward, backward] = counts(program);
    EXPECT_EQ(forward + backward + gathers(program, Phase::Step).size(),
              std::string_view(version) == "0.19" ? 62U : 59U);
  }
}

// Rule 33, persistence 100: nothing more with wide limits; 16 + 9 against 14 + 11 where they bind;
// without prefetch and reuse 35 in the backward: head, four blocks of 4 + 4, both embeddings.
TEST(Zero3Rules, ReentrantCheckpointing) {
  const auto checkpointed = [](const Limits& limits) {
    Strategy strategy = limited(limits);
    strategy.checkpointing = ActivationCheckpointing::Full;
    return counts(test::build(gpt_small(), strategy, 2));
  };
  const Limits wide{.prefetch = 30'000, .reuse = 0};
  EXPECT_EQ(checkpointed(wide).first + checkpointed(wide).second, 9U);
  const Limits tight{.prefetch = 30'000, .live = 100'000, .reuse = 0};
  EXPECT_EQ(checkpointed(tight), Counts(16, 9));
  EXPECT_EQ(counts(small(tight)), Counts(14, 11));
  EXPECT_EQ(checkpointed({.prefetch = 0, .reuse = 0}), Counts(19, 35));
}

// Rule 35: one parameter a message, one prefetched at each hook.
TEST(Zero3Rules, SequentialGathersPrefetchOneParameterAHook) {
  Strategy strategy = limited({.persist = 0});
  strategy.zero.allgather_sequential = true;
  const Program program = test::build(gpt_small(), strategy, 2);
  EXPECT_EQ(counts(program), Counts(53, 0));
  int in_hook = 0;
  int most = 0;
  for (const Op& op : program.ranks[0].ops) {
    if (op.host_work == HostWork::DeepSpeedHook) {
      in_hook = 0;
    } else if (op.kind == OpKind::Collective && op.rule == "C5.4") {
      most = std::max(most, ++in_hook);
    }
  }
  EXPECT_EQ(most, 1);
}

// Rules 38, 39: the default threshold takes all 53 parameters, the largest having 64,000 elements;
// one of 100 takes 26 of 64.
TEST(Zero3Rules, PersistentParametersAreGatheredAfterTheStepOnly) {
  const Program all = small({.persist = 100'000});
  EXPECT_EQ(counts(all), Counts(0, 0));
  EXPECT_EQ(gathers(all, Phase::Step).size(), 53U);
  EXPECT_THAT(gathers(small({}), Phase::Step),
              ElementsAre(64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
                          64, 64, 64, 64, 64, 64, 64, 64));
}

// Rules 41, 49: three ranks cut each parameter in three: buckets of 330,201 elements for 330,112,
// 110,067 a rank.
TEST(Zero3Rules, ThreeRanksPad) {
  const Program program = test::build(gpt_small(), limited({}), 3);
  std::int64_t sent = 0;
  std::int64_t kept = 0;
  for (const Collective& call : test::collectives(program, Phase::Backward)) {
    if (call.kind == CollectiveKind::ReduceScatter) {
      sent += call.input_elements;
      kept += call.output_elements;
    }
  }
  EXPECT_EQ(sent, 330'201);
  EXPECT_EQ(kept, 110'067);
}

// Rule 44: 12 all-reduces, and wte and the head, above the limit of 20,000, still scattered.
TEST(Zero3Rules, OversizedGradientsAreAlwaysScattered) {
  Strategy strategy = limited({.persist = 100'000});
  strategy.zero.reduce_bucket_size = 20'000;
  strategy.zero.reduce_scatter = false;
  int reduced = 0;
  std::vector<std::int64_t> scattered;
  for (const Collective& call :
       test::collectives(test::build(gpt_small(), strategy, 2), Phase::Backward)) {
    if (call.kind == CollectiveKind::ReduceScatter) {
      scattered.push_back(call.input_elements);
    } else {
      ++reduced;
    }
  }
  EXPECT_EQ(reduced, 12);
  EXPECT_THAT(scattered, ElementsAre(64'000, 64'000));
}

// Rule 45: after a backward 40,000 B of bucket, twice 330,112 B of partitions (165,056 elements),
// 3,328 B of persistent parameters; master and moments aside.
TEST(Zero3Rules, MemoryAfterABackward) {
  Strategy strategy = limited({.prefetch = 30'000, .reuse = 0});
  strategy.zero.reduce_bucket_size = 20'000;
  const Program program = test::build(gpt_small(), strategy, 2);
  const RankProgram& rank = program.ranks[0];
  std::int64_t live = 0;
  for (const Op& op : rank.ops) {
    if (op.phase == Phase::Step) {
      break;
    }
    if (op.kind == OpKind::Allocate || op.kind == OpKind::Free) {
      const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
      const bool states = buffer.memory_class == MemoryClass::OptimizerStates;
      live += states ? 0 : buffer.bytes.count() * (op.kind == OpKind::Allocate ? 1 : -1);
    }
  }
  EXPECT_EQ(live, 40'000 + 2 * 330'112 + 3'328);
}

// Rule 48: partitions at W = 2 until their sum reaches 50,000.
TEST(Zero3Rules, SubGroupsOvershootByOneParameter) {
  Strategy strategy = limited({});
  strategy.zero.sub_group_size = 50'000;
  std::vector<std::int64_t> sizes;
  const Program program = test::build(gpt_small(), strategy, 2);
  for (const Buffer& buffer : program.ranks[0].buffers) {
    if (buffer.owner == "fp32_gradients") {
      sizes.push_back(buffer.bytes.count() / 4);
    }
  }
  EXPECT_THAT(sizes, ElementsAre(57'984, 50'016, 57'056));
}

// Rule 53 to 55, W = 4 in groups of 2: the re-gather of rule 26 alone is within the group; it takes
// half of each parameter from each of two ranks.
TEST(Zero3Rules, HpzGathersAgainWithinTheGroup) {
  Strategy strategy = limited({.prefetch = 30'000, .reuse = 0});
  strategy.zero.hpz_partition_size = 2;
  const Program program = test::build(gpt_small(), strategy, 4);
  std::vector<std::string> local;
  int global = 0;
  for (const Collective& call : test::collectives(program, Phase::Forward)) {
    if (program.groups[call.group.index()].name == "hpZ") {
      local.push_back(format("{} -> {}", call.input_elements, call.output_elements));
    } else {
      ++global;
    }
  }
  EXPECT_EQ(global, 8);
  EXPECT_THAT(local, ElementsAre("41312 -> 82624"));
}

// Rule 80: prefetch 0, reuse 0: frozen weights of a recomputed layer stay: 92 messages; 0.14
// releases them and gathers again: 134. With max_live 400,000: 61 in the backward, 1,235,584 of
// 1,385,088 elements live; without checkpointing 29 and 523,904.
TEST(Zero3Rules, RecomputedFrozenWeightsPileUp) {
  TrainableOptions options;
  options.has_lora = true;
  options.lora = {.rank = 8, .targets = {"q_proj", "v_proj"}, .dropout = false};
  options.input_requires_gradient = true;
  const Model model = with_trainable(test::llama({128, 352, 64, 1000, 6, 32}), options);
  Limits limits{.prefetch = 0, .reuse = 0, .persist = 200};
  const auto backward = [&](const char* version, ActivationCheckpointing checkpointing) {
    Strategy strategy = limited(limits, version);
    strategy.checkpointing = checkpointing;
    const Program program = test::build(model, strategy, 2);
    return std::make_pair(gathers(program, Phase::Backward).size(), most_live(program));
  };
  using enum ActivationCheckpointing;
  EXPECT_EQ(backward("0.19", Full).first, 92U);
  EXPECT_EQ(backward("0.14", Full).first, 134U);
  limits.prefetch = 14'745;
  limits.live = 400'000;
  EXPECT_EQ(backward("0.19", Full), std::make_pair(std::size_t{61}, std::int64_t{1'235'584}));
  EXPECT_EQ(backward("0.19", None), std::make_pair(std::size_t{29}, std::int64_t{523'904}));
}

}  // namespace
}  // namespace zerosim
