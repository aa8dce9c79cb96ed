// Classes of ranks by what they hold, and the programs that follow: sizes worked out by hand, the
// class counts of Llama-7B, and that one program for all does at least what each does.

#include "sim/program/local_pieces.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::ElementsAre;

/// "0-2:1" of each run: ranks and class.
std::vector<std::string> in_words(const std::vector<ProgramRun>& runs) {
  std::vector<std::string> words;
  for (const ProgramRun& run : runs) {
    words.push_back(std::to_string(run.first) + "-" + std::to_string(run.first + run.count - 1) +
                    ":" + std::to_string(run.program));
  }
  return words;
}

PieceClasses classes(const Model& model, const Strategy& strategy, int ranks) {
  const bool flat = strategy.framework == Framework::DeepSpeed;
  return piece_classes(model, strategy, flat ? flat_layout(model, strategy, ranks) : FlatLayout(),
                       ranks);
}

Program build(const Model& model, const Strategy& strategy, int ranks, LocalPieces pieces,
              std::optional<Rank> rank = {}, std::vector<RankVariant> variants = {}) {
  BatchShape batch;
  batch.micro_batch = strategy.micro_batch;
  batch.sequence = 16;
  BuildOptions options{ranks, 2, 1};
  options.pieces = pieces;
  options.rank = rank;
  options.variants = std::move(variants);
  return build_program(model, strategy, batch, options);
}

// 15 elements on 3 ranks: padded to 18, S = 6. p0 of 10: 6 on rank 0, 4 on rank 1; p1 of 3: 2 and
// 1; p2 of 2: both on rank 2. No two alike.
TEST(PieceClasses, SmallPartitionsAllDiffer) {
  const PieceClasses found = classes(test::chain({10, 3, 2}), test::deepspeed(1), 3);
  EXPECT_THAT(in_words(found.runs), ElementsAre("0-0:0", "1-1:1", "2-2:2"));
  EXPECT_THAT(found.elements, ElementsAre(10, 10 + 3, 3 + 2));  // parameters count as a whole
}

// 23 elements on 6 ranks: padded to 24, S = 4. p0 of 18 fills ranks 0 to 3 and has 2 elements on
// rank 4; p1 of 5 has 2 there and 3 on rank 5.
TEST(PieceClasses, RanksInsideAParameterAreAlike) {
  const PieceClasses found = classes(test::chain({18, 5}), test::deepspeed(2), 6);
  EXPECT_THAT(in_words(found.runs), ElementsAre("0-3:0", "4-4:1", "5-5:2"));
  EXPECT_THAT(found.lowest, ElementsAre(Rank(0), Rank(4), Rank(5)));
}

TEST(PieceClasses, NothingDiffersElsewhere) {
  const Model model = test::chain({10, 3, 2});
  EXPECT_THAT(in_words(classes(model, test::deepspeed(0), 3).runs), ElementsAre("0-2:0"));
  EXPECT_THAT(in_words(classes(model, test::deepspeed(3), 3).runs), ElementsAre("0-2:0"));
  EXPECT_THAT(in_words(classes(model, test::deepspeed(2), 1).runs), ElementsAre("0-0:0"));
  Strategy ddp = test::deepspeed(0);
  ddp.framework = Framework::Ddp;
  EXPECT_THAT(in_words(piece_classes(model, ddp, {}, 3).runs), ElementsAre("0-2:0"));
}

Model llama_7b() {
  return test::llama({4096, 11008, 4096, 32000, 32, 128});
}

/// How many of the classes differ in the sizes of their pieces, whatever the parameters.
std::size_t sizes_of(const FlatLayout& layout, const PieceClasses& found) {
  std::set<std::vector<std::int64_t>> sizes;
  for (const Rank rank : found.lowest) {
    std::vector<std::int64_t> pieces;
    for (const ParameterId id : layout.groups[0].order) {
      const std::int64_t elements = layout.elements_on(id, rank.value());
      if (elements > 0) pieces.push_back(elements);
    }
    sizes.insert(pieces);
  }
  return sizes.size();
}

// design.md section 3 counts 8, 63 and 226 classes by sizes alone. Programs differ more: the first
// and the last of 64 ranks each hold nothing but a piece of 105,287,744 elements, of the embedding
// and of the head, whose gradients are at the two ends of the backward.
TEST(PieceClasses, OfLlama7b) {
  const Model model = llama_7b();
  ASSERT_EQ(parameter_count(model), 6'738'415'616);
  struct Expected {
    int ranks;
    std::size_t by_size, programs;
  };
  for (const Expected& expected : {Expected{8, 8, 8}, {64, 63, 64}, {512, 226, 359}}) {
    const FlatLayout layout = flat_layout(model, test::deepspeed(2), expected.ranks);
    const PieceClasses found = piece_classes(model, test::deepspeed(2), layout, expected.ranks);
    EXPECT_EQ(found.lowest.size(), expected.programs) << expected.ranks;
    EXPECT_EQ(sizes_of(layout, found), expected.by_size) << expected.ranks;
    EXPECT_EQ(found.runs.size(), expected.programs) << expected.ranks;
  }
}

/// The classes again, by looking at every rank.
std::vector<int> classes_by_rank(const Model& model, const Strategy& strategy, int ranks) {
  const FlatLayout layout = flat_layout(model, strategy, ranks);
  std::map<std::vector<std::int64_t>, int> known;
  std::vector<int> found;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::int64_t> pieces;
    for (std::size_t p = 0; p < model.parameters.size(); ++p) {
      pieces.push_back(layout.elements_on(ParameterId(p), rank));
    }
    found.push_back(known.try_emplace(pieces, static_cast<int>(known.size())).first->second);
  }
  return found;
}

TEST(PieceClasses, AreThoseOfARankByRankSearch) {
  const Model model = test::llama({64, 160, 32, 500, 3, 16});
  for (const bool round_robin : {false, true}) {
    for (const OptimizerGroups groups : {OptimizerGroups::One, OptimizerGroups::ByDimension}) {
      for (const int ranks : {1, 2, 3, 5, 7, 8, 16, 29, 100, 1000, 200'000}) {
        Strategy strategy = test::deepspeed(2);
        strategy.zero.round_robin_gradients = round_robin;
        strategy.optimizer_groups = groups;
        std::vector<int> found;
        for (const ProgramRun& run : classes(model, strategy, ranks).runs) {
          found.insert(found.end(), static_cast<std::size_t>(run.count), run.program);
        }
        if (ranks > 1000) {
          EXPECT_EQ(found.size(), static_cast<std::size_t>(ranks));  // more ranks than elements
          continue;
        }
        EXPECT_EQ(found, classes_by_rank(model, strategy, ranks)) << ranks;
      }
    }
  }
}

// D3.1: 10 rows on 4 ranks: 3, 3, 3 and 1; 5 rows: 2, 2, 1 and none.
TEST(PieceClasses, OfFsdp2AreRows) {
  Strategy strategy;
  strategy.framework = Framework::Fsdp;
  strategy.fsdp.version = 2;
  EXPECT_THAT(in_words(classes(test::chain({10}), strategy, 4).runs),
              ElementsAre("0-2:0", "3-3:1"));
  const PieceClasses two = classes(test::chain({10, 5}), strategy, 4);
  EXPECT_THAT(in_words(two.runs), ElementsAre("0-1:0", "2-2:1", "3-3:2"));
  EXPECT_THAT(two.elements, ElementsAre(3 + 2, 3 + 1, 1));
}

// Hybrid: shards over 2 consecutive ranks, in each of 3 groups: 5 rows are 3 and 2.
TEST(PieceClasses, RepeatInEveryShardGroup) {
  Strategy strategy;
  strategy.framework = Framework::Fsdp;
  strategy.fsdp.version = 2;
  strategy.fsdp.sharding = FsdpSharding::HybridShard;
  strategy.fsdp.shard_group = 2;
  EXPECT_THAT(in_words(classes(test::chain({5}), strategy, 6).runs),
              ElementsAre("0-0:0", "1-1:1", "2-2:0", "3-3:1", "4-4:0", "5-5:1"));
  EXPECT_THAT(in_words(classes(test::chain({4}), strategy, 6).runs), ElementsAre("0-5:0"));
}

// 10 elements in shards of 4 on 3 ranks, alignment 4 elements (bf16): p0 of 6 at [0, 6), p1 of 3 at
// [8, 11): 11 elements, shards of 4: 4; 2; 3.
TEST(PieceClasses, OfFsdpWithOriginalParameters) {
  Strategy strategy;
  strategy.framework = Framework::Fsdp;
  strategy.precision = Precision::Fp32;  // 16 bytes: 4 elements
  strategy.fsdp.wrap = FsdpWrap::None;
  strategy.fsdp.use_orig_params = false;
  const Model model = test::chain({6, 3});
  EXPECT_EQ(classes(model, strategy, 3).lowest.size(), 1u);
  strategy.fsdp.use_orig_params = true;
  EXPECT_THAT(classes(model, strategy, 3).elements, ElementsAre(4, 2, 3));
}

// B2: 10, 7 and 5 elements on 4 ranks, S = 6: 6 | 4 + 2 | 5 + 1 | 4.
TEST(KeptGradients, OfTheWorkedExample) {
  const Model model = test::chain({10, 7, 5});
  const FlatLayout layout = flat_layout(model, test::deepspeed(2), 4);
  const std::vector<ParameterId> all = {ParameterId(0), ParameterId(1), ParameterId(2)};
  const KeptGradients second = kept_gradients(layout, all, Rank(1));
  EXPECT_EQ(second.whole, 10 + 7);
  EXPECT_EQ(second.own, 4 + 2);
  EXPECT_EQ(second.tensors, 2);
  const KeptGradients most = most_kept_gradients(layout, all);
  EXPECT_EQ(most.whole, 17);
  EXPECT_EQ(most.own, 6);
  EXPECT_EQ(most.tensors, 2);
  // Of the first and the last alone: rank 0 keeps 10 (6 its own), rank 3 keeps 5 (4).
  const KeptGradients some = most_kept_gradients(layout, std::vector{all[0], all[2]});
  EXPECT_EQ(some.whole, 10);
  EXPECT_EQ(some.own, 6);
  EXPECT_EQ(some.tensors, 1);
  EXPECT_EQ(most_kept_gradients(layout, {}).tensors, 0);
}

TEST(KeptGradients, MostIsTheMaximumOverRanks) {
  const Model model = test::llama({64, 160, 32, 500, 3, 16});
  for (const int ranks : {2, 3, 8, 31, 200}) {
    const FlatLayout layout = flat_layout(model, test::deepspeed(2), ranks);
    for (std::size_t step = 1; step < 5; ++step) {
      std::vector<ParameterId> some;
      for (std::size_t p = 0; p < model.parameters.size(); p += step) some.emplace_back(p);
      KeptGradients most;
      for (int rank = 0; rank < ranks; ++rank) {
        const KeptGradients kept = kept_gradients(layout, some, Rank(rank));
        most = {std::max(most.whole, kept.whole), std::max(most.own, kept.own),
                std::max(most.tensors, kept.tensors)};
      }
      const KeptGradients found = most_kept_gradients(layout, some);
      EXPECT_EQ(found.whole, most.whole);
      EXPECT_EQ(found.own, most.own);
      EXPECT_EQ(found.tensors, most.tensors);
    }
  }
}

/// Bytes and launches of a program's kernels of this name, between collectives: "34/2".
std::vector<std::string> kernels(const RankProgram& rank, std::string_view name) {
  std::vector<std::string> found;
  Bytes bytes;
  int launches = 0;
  const auto close = [&] {
    if (launches > 0) {
      found.push_back(std::to_string(bytes.count()) + "/" + std::to_string(launches));
    }
    bytes = Bytes();
    launches = 0;
  };
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::Collective) close();
    if (op.kind != OpKind::Kernel) continue;
    const Kernel& kernel = rank.kernels[test::payload(op)];
    if (kernel.name != name) continue;
    bytes += kernel.bytes;
    launches += kernel.launches;
  }
  close();
  return found;
}

Bytes buffer_of(const RankProgram& rank, std::string_view owner) {
  for (const Buffer& buffer : rank.buffers) {
    if (buffer.owner == owner && buffer.bytes > Bytes()) return buffer.bytes;
  }
  return Bytes(-1);
}

/// Stage 2 where each gradient of 10, 3 or 2 elements is a bucket of its own.
Strategy bucket_by_bucket() {
  Strategy strategy = test::deepspeed(2);
  strategy.zero.reduce_bucket_size = 10;
  strategy.zero.allgather_bucket_size = 10;
  return strategy;
}

// 10, 3 and 2 elements on 3 ranks, S = 6: rank 0 has 6 of p0; rank 1 has 4 of p0 and 2 of p1; rank
// 2 has 1 of p1 and all of p2. Backward comes to p2 and p1 first: 5 elements, one flush; then p0.
// Kept gradients are copied whole, read and written in bf16: 4 bytes an element.
TEST(RanksOfStage2, EachKeepsWhatTouchesItsPartition) {
  const Program each = build(test::chain({10, 3, 2}), bucket_by_bucket(), 3, LocalPieces::Each);
  ASSERT_EQ(each.ranks.size(), 3u);
  EXPECT_THAT(in_words(each.runs), ElementsAre("0-0:0", "1-1:1", "2-2:2"));
  EXPECT_THAT(kernels(each.ranks[0], "copy_to_partition"), ElementsAre("40/1"));
  EXPECT_THAT(kernels(each.ranks[1], "copy_to_partition"), ElementsAre("12/1", "40/1"));
  EXPECT_THAT(kernels(each.ranks[2], "copy_to_partition"), ElementsAre("20/2"));
  EXPECT_EQ(buffer_of(each.ranks[0], "partition_gradients"), Bytes(10 * 2));
  EXPECT_EQ(buffer_of(each.ranks[1], "partition_gradients"), Bytes(13 * 2));
  EXPECT_EQ(buffer_of(each.ranks[2], "partition_gradients"), Bytes(5 * 2));
  for (const RankProgram& rank : each.ranks) EXPECT_EQ(rank.multiplicity, 1);
}

// The first flush: 20 bytes in two kernels, of rank 2; the second 40 in one, of ranks 0 and 1.
// Memory is that of one rank.
TEST(RanksOfStage2, OneForAllDoesAsMuchAsAny) {
  for (int rank = 0; rank < 3; ++rank) {
    const Program one =
        build(test::chain({10, 3, 2}), bucket_by_bucket(), 3, LocalPieces::Largest, Rank(rank));
    ASSERT_EQ(one.ranks.size(), 1u);
    EXPECT_EQ(one.ranks[0].representative, Rank(rank));
    EXPECT_EQ(one.ranks[0].multiplicity, 3);
    EXPECT_THAT(kernels(one.ranks[0], "copy_to_partition"), ElementsAre("20/2", "40/1"));
    const std::vector<std::int64_t> kept = {10, 13, 5};
    EXPECT_EQ(buffer_of(one.ranks[0], "partition_gradients"),
              Bytes(kept[static_cast<std::size_t>(rank)] * 2));
  }
}

/// What a stretch between two collectives does that ranks may do differently.
struct Stretch {
  std::map<std::string, Bytes> bytes;  ///< by kernel, copy or pass
  std::map<std::string, int> launches;
};

std::vector<Stretch> stretches(const RankProgram& rank) {
  std::vector<Stretch> found(1);
  const auto add = [&](const std::string& name, Bytes bytes, int launches) {
    found.back().bytes[name] += bytes;
    found.back().launches[name] += launches;
  };
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::Collective) {
      found.emplace_back();
    } else if (op.kind == OpKind::Kernel) {
      const Kernel& kernel = rank.kernels[test::payload(op)];
      add(std::string(kernel.name), kernel.bytes, kernel.launches);
    } else if (op.kind == OpKind::Copy) {
      const Copy& copy = rank.copies[test::payload(op)];
      add(copy.direction == Copy::Direction::HostToDevice ? "up" : "down", copy.bytes, 1);
    } else if (op.kind == OpKind::Host && op.payload >= 0) {
      const HostPass& pass = rank.host_passes[test::payload(op)];
      add(std::string(pass.name), pass.bytes, 1);
    }
  }
  return found;
}

std::vector<std::string> buffers(const RankProgram& rank) {
  std::vector<std::string> found;
  for (const Buffer& buffer : rank.buffers) {
    if (buffer.bytes == Bytes()) continue;  // stands for the host's time
    found.push_back(std::string(buffer.owner) + " " + std::to_string(buffer.bytes.count()));
  }
  return found;
}

void expect_covers(const RankProgram& all, const RankProgram& rank) {
  const std::vector<Stretch> most = stretches(all);
  const std::vector<Stretch> own = stretches(rank);
  ASSERT_EQ(most.size(), own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (const auto& [name, bytes] : own[i].bytes) {
      EXPECT_GE(most[i].bytes.at(name), bytes) << name << " in stretch " << i;
      EXPECT_GE(most[i].launches.at(name), own[i].launches.at(name)) << name;
    }
  }
}

struct Offloaded {
  bool optimizer = false;
  std::int64_t grad_accum = 1;
  bool overlap = false;
  int stage = 2;
};

class RanksOfOneStrategy : public testing::TestWithParam<Offloaded> {};

TEST_P(RanksOfOneStrategy, AgreeAndAreCoveredByOne) {
  const Model model = test::llama({64, 160, 32, 500, 3, 16});
  Strategy strategy = test::deepspeed(GetParam().stage);
  strategy.grad_accum = GetParam().grad_accum;
  strategy.zero.overlap_comm = GetParam().overlap;
  strategy.zero.reduce_bucket_size = 20'000;
  strategy.check_grad_overflow = true;
  if (GetParam().optimizer) strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  for (const int ranks : {2, 3, 8, 13}) {
    const Program each = build(model, strategy, ranks, LocalPieces::Each);
    EXPECT_EQ(disagreement(each), std::nullopt);
    const Program all = build(model, strategy, ranks, LocalPieces::Largest);
    for (const RankProgram& rank : each.ranks) {
      expect_covers(all.ranks[0], rank);
      const Program same = build(model, strategy, ranks, LocalPieces::Largest, rank.representative);
      EXPECT_EQ(buffers(same.ranks[0]), buffers(rank)) << rank.representative.value();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, RanksOfOneStrategy,
                         testing::Values(Offloaded{}, Offloaded{false, 3, true},
                                         Offloaded{false, 2, true, 1}, Offloaded{true, 1},
                                         Offloaded{true, 3, true}, Offloaded{true, 2, false, 1}));

// Rank 2 of 4 has micro batches of 3: its kernels are larger, its messages are not.
TEST(Variants, RunProgramsOfTheirOwn) {
  const Model model = test::llama({64, 160, 32, 500, 2, 16});
  const Program program =
      build(model, test::deepspeed(3), 4, LocalPieces::Largest, {}, {{2, 1, 3, std::nullopt}});
  ASSERT_EQ(program.ranks.size(), 2u);
  EXPECT_THAT(in_words(program.runs), ElementsAre("0-1:0", "2-2:1", "3-3:0"));
  EXPECT_EQ(program.ranks[0].multiplicity, 3);
  EXPECT_EQ(program.ranks[1].representative, Rank(2));
  const auto activations = [&](std::size_t rank) {
    Bytes sum;
    for (const Buffer& buffer : program.ranks[rank].buffers) {
      if (buffer.memory_class == MemoryClass::Logits) sum += buffer.bytes;
    }
    return sum;
  };
  EXPECT_EQ(activations(1), activations(0) * 3);
  EXPECT_EQ(disagreement(program), std::nullopt);
}

// Variants and pieces together: 10, 3 and 2 elements on 3 ranks are three classes; that rank 1 is a
// variant adds none. As one: the variant's program has its own rank, the other the given one.
TEST(Variants, MeetPieces) {
  const Model model = test::chain({10, 3, 2});
  const std::vector<RankVariant> variants = {{1, 1, 2, std::nullopt}};
  const Program each = build(model, bucket_by_bucket(), 3, LocalPieces::Each, {}, variants);
  EXPECT_EQ(each.ranks.size(), 3u);
  const Program one = build(model, bucket_by_bucket(), 3, LocalPieces::Largest, Rank(2), variants);
  ASSERT_EQ(one.ranks.size(), 2u);
  EXPECT_EQ(one.ranks[0].representative, Rank(2));
  EXPECT_EQ(one.ranks[1].representative, Rank(1));
  EXPECT_THAT(in_words(one.runs), ElementsAre("0-0:0", "1-1:1", "2-2:0"));
}

/// The assumptions of a job of 4 ranks, in one.
std::string told(const Model& model, const Strategy& strategy, LocalPieces pieces) {
  std::string all;
  for (const std::string& sentence : build(model, strategy, 4, pieces).assumptions) {
    all += sentence + "\n";
  }
  return all;
}

// Rows of 10 and 5 on 4 ranks differ, those of 8 do not; 10, 3 and 2 elements lie differently in 4
// partitions; stage 3 pads all of them.
TEST(MergedRanks, AreTold) {
  using testing::HasSubstr;
  using testing::Not;
  Strategy fsdp;
  fsdp.framework = Framework::Fsdp;
  fsdp.fsdp.version = 2;
  const char* const merged = "--fold exact tells them apart";
  EXPECT_THAT(told(test::chain({10, 5}), fsdp, LocalPieces::Largest),
              HasSubstr("simulated as one: rank 0, which updates the most elements"));
  EXPECT_THAT(told(test::chain({10, 5}), fsdp, LocalPieces::Each), Not(HasSubstr(merged)));
  EXPECT_THAT(told(test::chain({8}), fsdp, LocalPieces::Largest), Not(HasSubstr(merged)));
  EXPECT_THAT(told(test::chain({10, 3, 2}), test::deepspeed(2), LocalPieces::Largest),
              HasSubstr("kernels are those of the rank that has most to do"));
  EXPECT_THAT(told(test::chain({10, 3, 2}), test::deepspeed(3), LocalPieces::Largest),
              Not(HasSubstr(merged)));
}

TEST(Disagreement, NamesTheFirstCollective) {
  const Model model = test::chain({10, 3, 2});
  Program program = build(model, bucket_by_bucket(), 3, LocalPieces::Each);
  program.ranks[2].collectives[1].input_elements += 1;
  const std::string found = disagreement(program).value_or("none");
  EXPECT_THAT(found, testing::HasSubstr("collective 1 of DP: rank 0 issues"));
  EXPECT_THAT(found, testing::HasSubstr("rank 2"));
}

}  // namespace
}  // namespace zerosim
