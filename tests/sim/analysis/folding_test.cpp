// Strategies on a folding: `exact` is `off`, `on` is never faster and knows the worst rank; uneven
// micro batches, mixed GPUs, jitter. Each test runs in a child: one process has one engine.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/cluster_ranks.h"
#include "sim/analysis/isolate.h"
#include "sim/analysis/limits.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/rank_memory.h"
#include "sim/analysis/report.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"
#include "sim/program/optimizer_offload.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/random.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Experiment experiment_of(Model model, int nodes, int gpus) {
  Experiment experiment{std::move(model), load_cluster("dgx-a100-80", nodes, gpus), {}};
  experiment.batch.sequence = 64;
  return experiment;
}

Model small_llama() {
  return test::llama({256, 688, 128, 2000, 3, 64});
}

void isolated(const std::function<std::string()>& checks) {
  EXPECT_EQ(run_isolated(checks), "");
}

std::string unless(bool condition, const std::string& complaint) {
  return condition ? "" : complaint + "\n";
}

StrategyReport simulated(const Experiment& experiment, const Strategy& strategy, Engine& engine,
                         FoldMode mode) {
  return simulate_strategy(experiment, strategy, engine, {mode, 0, {}});
}

EngineOptions room_for_all(const Experiment& experiment) {
  EngineOptions room;
  room.rank_classes = experiment.cluster.world_size();
  room.links = 64 * experiment.cluster.world_size() + 64;
  return room;
}

// ---- clusters and strategies by chance ---------------------------------------------------------

/// Slow, mixed and unevenly fed GPUs, and slow links; none at all in half of the cases.
Perturbations random_perturbations(test::Random& random, const Cluster& cluster) {
  Perturbations found;
  if (random.chance(50)) return found;
  const auto place = [&] {
    GpuPerturbation entry;
    entry.nodes = {static_cast<int>(random.between(0, cluster.nodes - 1))};
    entry.gpus = {static_cast<int>(random.between(0, cluster.gpus_per_node - 1))};
    return entry;
  };
  if (random.chance(50)) {
    found.gpus.push_back(place());
    found.gpus.back().speed = 0.9;
  }
  if (random.chance(40)) {
    found.gpus.push_back(place());
    found.gpus.back().micro_batch = random.between(1, 3);
  }
  if (random.chance(30)) {
    found.gpus.push_back(place());
    found.gpus.back().kind = "A100-SXM4-40";
  }
  if (random.chance(40)) {
    LinkPerturbation nic;
    nic.nodes = {static_cast<int>(random.between(0, cluster.nodes - 1))};
    nic.bandwidth = 0.5;
    if (cluster.nodes > 1) found.links.push_back(nic);
  }
  return found;
}

Strategy random_strategy(test::Random& random, int world_size) {
  const std::vector<std::string> names = {"ddp",   "zero0", "zero1",     "zero2",
                                          "zero3", "zero2", "fsdp_full", "fsdp_grad_op"};
  TrainingFlags flags;
  flags.micro_batch = random.between(1, 2);
  flags.grad_accum = random.between(1, 2);
  const std::size_t name = static_cast<std::size_t>(random.between(0, 7));
  Strategy strategy = named_strategy(names[name], flags, world_size);
  strategy.zero.overlap_comm = random.chance(50);
  strategy.zero.reduce_bucket_size = random.between(50'000, 2'000'000);
  if (strategy.framework == Framework::DeepSpeed && random.chance(30)) {
    strategy.zero.round_robin_gradients = strategy.zero.stage == 2;
  }
  if (strategy.zero.stage == 2 && random.chance(30)) {
    strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
    strategy.zero.offload_optimizer.pin_memory = true;
  }
  if (strategy.framework == Framework::Fsdp && random.chance(50)) {
    strategy.fsdp.version = 2;
  }
  return strategy;
}

std::string near(const char* what, double a, double b, double step) {
  return unless(std::abs(a - b) <= 1e-9 * step, format("{}: {:.17g} and {:.17g}", what, a, b));
}

std::string same(const StrategyReport& exact, const StrategyReport& off) {
  const TimeReport& a = exact.time;
  const TimeReport& b = off.time;
  const double step = b.step.count();
  return near("step", a.step.count(), b.step.count(), step) +
         near("compute", a.compute.count(), b.compute.count(), step) +
         near("exposed", a.exposed_communication.count(), b.exposed_communication.count(), step) +
         near("host", a.host.count(), b.host.count(), step) +
         near("optimizer", a.optimizer.count(), b.optimizer.count(), step) +
         near("communication", a.communication.count(), b.communication.count(), step) +
         near("tokens/s", exact.throughput.tokens_per_s / off.throughput.tokens_per_s, 1, 1) +
         unless(exact.memory.peak_allocated == off.memory.peak_allocated, "peak allocated") +
         unless(exact.memory.peak_reserved == off.memory.peak_reserved, "peak reserved") +
         unless(exact.memory.capacity == off.memory.capacity, "capacity") +
         unless(exact.memory.host == off.memory.host, "host memory") +
         unless(exact.memory.rank == off.memory.rank,
                format("worst rank {} and {}", exact.memory.rank, off.memory.rank)) +
         unless(exact.folding.classes <= off.folding.classes, "more classes than ranks") +
         unless(off.folding.classes == off.folding.ranks, "off simulates every rank");
}

/// What a rank has asked for at its peak, without the blocks that an allocator gives it.
Bytes requested(const Experiment& experiment, const Strategy& strategy, int rank) {
  BuildOptions options{experiment.cluster.world_size(), 0, kFirstSteps + 1};
  set_machine(experiment, options);
  options.pieces = LocalPieces::One;
  options.rank = Rank(rank);
  return replay_memory(build_program(experiment.model, steady_strategy(strategy),
                                     batch_of(experiment, strategy), options))
      .allocated;
}

/// Whether `on` names another worst rank only because of blocks that the allocator does not split
/// (E7.3: each less than 1 MiB larger than what was asked for), which it does not follow for every
/// rank (rank_memory.h): its rank asks for as much, or more.
bool differs_by_blocks(const Experiment& experiment, const Strategy& strategy,
                       const MemoryReport& on, const MemoryReport& exact) {
  const std::int64_t slack = std::abs(on.peak_allocated.count() - exact.peak_allocated.count());
  return on.rank != exact.rank && slack < (1 << 20) &&
         requested(experiment, strategy, on.rank) >= requested(experiment, strategy, exact.rank);
}

/// `on` stands for the largest of each, and knows the worst rank and its peak.
std::string covers(const Experiment& experiment, const Strategy& strategy, const StrategyReport& on,
                   const StrategyReport& exact) {
  const bool same_memory = on.memory.peak_allocated == exact.memory.peak_allocated &&
                           on.memory.rank == exact.memory.rank;
  return unless(on.time.step.count() >= exact.time.step.count() * (1 - 1e-9),
                format("on takes {:.9g}, exact {:.9g}", on.time.step.count(),
                       exact.time.step.count())) +
         unless(same_memory || differs_by_blocks(experiment, strategy, on.memory, exact.memory),
                format("peaks of ranks {} and {}: {} and {}", on.memory.rank, exact.memory.rank,
                       on.memory.peak_allocated.count(), exact.memory.peak_allocated.count())) +
         unless(on.folding.classes <= exact.folding.classes, "on has more classes");
}

class AnyCluster : public ::testing::TestWithParam<int> {};

TEST_P(AnyCluster, ExactIsOffAndOnCoversIt) {
  isolated([] {
    test::Random random(static_cast<std::uint64_t>(GetParam()));
    const int nodes = static_cast<int>(random.between(1, 3));
    const int gpus = static_cast<int>(nodes > 1 ? 1 << random.between(0, 3) : random.between(2, 8));
    Experiment experiment = experiment_of(small_llama(), nodes, gpus);
    experiment.cluster.perturbations = random_perturbations(random, experiment.cluster);
    Engine engine(experiment.cluster, room_for_all(experiment));
    std::string complaints;
    for (int i = 0; i < 3; ++i) {
      const Strategy strategy = random_strategy(random, nodes * gpus);
      const StrategyReport exact = simulated(experiment, strategy, engine, FoldMode::Exact);
      const StrategyReport off = simulated(experiment, strategy, engine, FoldMode::Off);
      const StrategyReport on = simulated(experiment, strategy, engine, FoldMode::On);
      const std::string found = same(exact, off) + covers(experiment, strategy, on, exact);
      if (!found.empty()) {
        complaints += format("{}{}{}, FSDP {}, accumulation {}, on {} x {}:\n{}", strategy.name,
                             strategy.zero.overlap_comm ? ", overlap" : "",
                             offloads_optimizer(strategy) ? ", offload" : "", strategy.fsdp.version,
                             strategy.grad_accum, nodes, gpus, found);
      }
    }
    return complaints;
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyCluster, ::testing::Range(0, 24));

/// Without any slack.
std::string on_knows_the_worst(const Experiment& experiment, const Strategy& strategy) {
  Engine engine(experiment.cluster, room_for_all(experiment));
  const MemoryReport exact = simulated(experiment, strategy, engine, FoldMode::Exact).memory;
  const MemoryReport on = simulated(experiment, strategy, engine, FoldMode::On).memory;
  const MemoryReport replayed = replayed_memory(experiment, strategy);
  return unless(on.rank == exact.rank && on.peak_allocated == exact.peak_allocated,
                format("peaks of ranks {} and {}: {} and {}", on.rank, exact.rank,
                       on.peak_allocated.count(), exact.peak_allocated.count())) +
         unless(replayed.rank == exact.rank, format("replayed: rank {}", replayed.rank));
}

// ---- one by one --------------------------------------------------------------------------------

Strategy kept_gradients_of_two(int world_size) {
  TrainingFlags flags;
  flags.micro_batch = 1;
  flags.grad_accum = 2;
  flags.checkpointing = ActivationCheckpointing::Full;
  return named_strategy("zero2", flags, world_size);
}

// Ranks 0 to 7 have micro batches of 3 and ranks 8 to 15 of 1, or the other way round: the rank
// with most is that of most kept gradients among the larger ones, which is not the lowest of them.
TEST(UnevenMicroBatches, OfEachSizeTheRankWithMostIsFollowed) {
  for (const int node : {0, 1}) {
    Experiment experiment = experiment_of(load_model("gpt2"), 2, 8);
    experiment.batch.sequence = 1024;
    GpuPerturbation larger;
    larger.nodes = {node};
    larger.micro_batch = 3;
    experiment.cluster.perturbations.gpus = {larger};
    isolated([&] { return on_knows_the_worst(experiment, kept_gradients_of_two(16)); });
  }
}

// Speeds split the ranks of one program; its memory is that of one rank, in one of the classes.
TEST(SlowHosts, TheWorstRankIsTheOneFollowed) {
  isolated([] {
    Experiment experiment = experiment_of(load_model("gpt2"), 3, 8);
    GpuPerturbation slow;
    slow.nodes = {0};
    slow.gpus = {4, 5, 6, 7};
    slow.host_speed = 0.6;
    experiment.cluster.perturbations.gpus = {slow};
    return on_knows_the_worst(experiment, kept_gradients_of_two(24));
  });
}

// Ranks of 2 nodes x 2 GPUs; the later of two values wins; a GPU that is not used does not count.
TEST(GpuRuns, FollowPerturbations) {
  Cluster cluster = load_cluster("dgx-a100-80", 2, 2);
  GpuPerturbation first_of_each;
  first_of_each.gpus = {0};
  first_of_each.micro_batch = 3;
  GpuPerturbation second_node;
  second_node.nodes = {1};
  second_node.gpus = {0, 7};
  second_node.micro_batch = 5;
  second_node.kind = "A100-SXM4-40";
  cluster.perturbations.gpus = {first_of_each, second_node};
  std::vector<std::string> words;
  for (const GpuRun& run : gpu_runs(cluster)) {
    words.push_back(format("{}+{} {} {}", run.first, run.count, run.kind, run.micro_batch));
  }
  EXPECT_THAT(words, ElementsAre("0+1 A100-SXM4-80 3", "1+1 A100-SXM4-80 0", "2+1 A100-SXM4-40 5",
                                 "3+1 A100-SXM4-80 0"));
  TrainingFlags flags;
  flags.micro_batch = 2;
  flags.grad_accum = 4;
  // 3 + 2 + 5 + 2 samples, four times.
  EXPECT_EQ(samples_of_step(cluster, named_strategy("zero2", flags, 4)), 12 * 4);
  EXPECT_EQ(gpu_memory_of(cluster, Rank(1)), cluster.gpu_memory());
  EXPECT_EQ(gpu_memory_of(cluster, Rank(2)), gpu_spec("A100-SXM4-40").memory);
}

TEST(GpuRuns, AreOneOfACluster) {
  const Cluster cluster = load_cluster("dgx-a100-80", 16, 8);
  ASSERT_EQ(gpu_runs(cluster).size(), 1u);
  EXPECT_TRUE(rank_variants(cluster, Bytes()).empty());
}

TEST(GpuRuns, NameWhatIsNotThere) {
  Cluster cluster = load_cluster("dgx-a100-80", 2, 8);
  GpuPerturbation entry;
  entry.nodes = {2};
  entry.micro_batch = 1;
  cluster.perturbations.gpus = {entry};
  try {
    static_cast<void>(gpu_runs(cluster));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("node 2, expected 0 to 1"));
  }
}

// Micro batches of 1, 1, 4 and 1: rank 2 has most to do and to hold, and all wait for it: the step
// is that of four micro batches of 4, but 7 samples are trained, not 16.
TEST(UnevenMicroBatches, TheLargestSetsThePace) {
  isolated([] {
    Experiment experiment = experiment_of(test::llama({1024, 2816, 1024, 2000, 3, 64}), 1, 4);
    experiment.batch.sequence = 16384;  // kernels outlast launches
    TrainingFlags flags;
    flags.micro_batch = 4;
    const Strategy four = named_strategy("zero3", flags, 4);
    flags.micro_batch = 1;
    const Strategy one = named_strategy("zero3", flags, 4);
    GpuPerturbation large;
    large.gpus = {2};
    large.micro_batch = 4;
    experiment.cluster.perturbations.gpus = {large};
    Engine engine(experiment.cluster, room_for_all(experiment));
    const StrategyReport uneven = simulated(experiment, one, engine, FoldMode::On);
    Experiment even = experiment;
    even.cluster.perturbations = {};
    const StrategyReport all = simulated(even, four, engine, FoldMode::On);
    const double samples = uneven.throughput.samples_per_s * uneven.time.step.count();
    return unless(uneven.folding.classes == 2 && uneven.folding.programs == 2,
                  format("{} classes", uneven.folding.classes)) +
           unless(uneven.time.rank == 2, format("critical: rank {}", uneven.time.rank)) +
           unless(uneven.memory.rank == 2, format("worst: rank {}", uneven.memory.rank)) +
           unless(uneven.memory.peak_allocated == all.memory.peak_allocated, "peak") +
           unless(uneven.memory.least && uneven.memory.least->rank == 0, "the least") +
           unless(std::abs(samples - 7) < 1e-9, format("{} samples", samples)) +
           near("step", uneven.time.step.count(), all.time.step.count(), 1e7 * 1e-9);
  });
}

// An A100 of 40 GB among those of 80: a job of some 50 GB fits on the others alone.
TEST(MixedGpus, TheSmallestDecides) {
  isolated([] {
    Experiment experiment = experiment_of(load_model("gpt2-xl"), 1, 4);
    experiment.batch.sequence = 1024;
    TrainingFlags flags;
    flags.micro_batch = 6;
    const Strategy strategy = named_strategy("ddp", flags, 4);
    Engine engine(experiment.cluster, room_for_all(experiment));
    const StrategyReport alike = simulated(experiment, strategy, engine, FoldMode::On);
    GpuPerturbation small;
    small.gpus = {3};
    small.kind = "A100-SXM4-40";
    Experiment mixed = experiment;
    mixed.cluster.perturbations.gpus = {small};
    const MemoryReport replayed = replayed_memory(mixed, strategy);
    return unless(alike.memory.peak_allocated > 42_GB && alike.memory.peak_allocated < 75_GB,
                  format("{} GB", alike.memory.peak_allocated.gb())) +
           unless(alike.verdict == Verdict::Fits, "fits on 80 GB") +
           unless(replayed.rank == 3, format("rank {}", replayed.rank)) +
           unless(verdict_of(replayed) == Verdict::DoesNotFit, "does not fit on 40 GB") +
           unless(replayed.capacity == gpu_spec("A100-SXM4-40").memory, "capacity");
  });
}

// Of four nodes with perturbations on nodes 1 and 3, and on every first GPU, one and two nodes.
TEST(MixedGpus, FollowTheClusterToAnotherSize) {
  Experiment experiment = experiment_of(small_llama(), 4, 8);
  GpuPerturbation some;
  some.nodes = {1, 3};
  some.kind = "A100-SXM4-40";
  GpuPerturbation first_gpu;
  first_gpu.gpus = {0};
  first_gpu.micro_batch = 2;
  experiment.cluster.perturbations.gpus = {some, first_gpu};
  const Strategy strategy = named_strategy("zero3", {}, 32);
  const Perturbations one = resized(experiment, strategy, 1, 8).experiment.cluster.perturbations;
  ASSERT_EQ(one.gpus.size(), 1u);
  EXPECT_EQ(one.gpus[0].micro_batch, 2);
  const Perturbations two = resized(experiment, strategy, 2, 8).experiment.cluster.perturbations;
  ASSERT_EQ(two.gpus.size(), 2u);
  EXPECT_THAT(two.gpus[0].nodes, ElementsAre(1));
}

TEST(MixedGpus, MfuIsCountedAgainstTheMean) {
  Cluster cluster = load_cluster("dgx-a100-80", 1, 4);
  GpuPerturbation other;
  other.gpus = {3};
  other.kind = "H100-SXM5-80";
  cluster.perturbations.gpus = {other};
  const double mean = (3 * gpu_spec("A100-SXM4-80").bf16.per_second() +
                       gpu_spec("H100-SXM5-80").bf16.per_second()) /
                      4;
  EXPECT_DOUBLE_EQ(mean_peak_rate(cluster, Precision::Bf16).per_second(), mean);
}

TEST(JitterOfAStrategy, HasAMeanAndASpread) {
  isolated([] {
    Experiment experiment = experiment_of(small_llama(), 1, 4);
    experiment.cluster.perturbations.jitter = {0.05, 0.02, 7, 5};
    Engine engine(experiment.cluster, room_for_all(experiment));
    const Strategy strategy = named_strategy("zero2", {}, 4);
    const StrategyReport first = simulated(experiment, strategy, engine, FoldMode::On);
    const StrategyReport again = simulated(experiment, strategy, engine, FoldMode::Off);
    if (!first.time.jitter || !again.time.jitter) return std::string("no jitter");
    const JitterReport& spread = *first.time.jitter;
    const auto told = [&](const char* part) {
      for (const std::string& sentence : first.assumptions) {
        if (sentence.find(part) != std::string::npos) return true;
      }
      return false;
    };
    return unless(spread.repetitions == 5, "five repetitions") +
           unless(spread.minimum < spread.mean && spread.mean < spread.maximum, "the mean") +
           unless(
               spread.deviation > Seconds(0) && spread.deviation < spread.maximum - spread.minimum,
               "the deviation") +
           unless(spread.minimum <= first.time.step && first.time.step <= spread.maximum,
                  "the first is one of them") +
           unless(first.folding.mode == FoldMode::Off && first.folding.classes == 4, "unfolded") +
           unless(told("--fold off") && told("seed 7"), "the assumptions") +
           near("mean", spread.mean.count(), again.time.jitter->mean.count(), 1);
  });
}

// DDP's 18 ranks are one class. At stage 2 each has its own pieces: 18 classes, more than the
// engine has room for unless it is asked to.
TEST(CompareOfStrategies, TheEngineHasRoomForTheLater) {
  isolated([] {
    const Experiment experiment = experiment_of(small_llama(), 3, 6);
    const std::vector<Strategy> strategies = {named_strategy("ddp", {}, 18),
                                              named_strategy("zero2", {}, 18)};
    const Comparison both = compare(experiment, strategies, {FoldMode::Exact, 0, {}});
    return unless(both.strategies[0].folding.classes == 1, "ddp is one class") +
           unless(both.strategies[1].folding.classes > EngineOptions().rank_classes,
                  format("{} classes", both.strategies[1].folding.classes));
  });
}

TEST(JitterOfAStrategy, CannotBeFolded) {
  isolated([] {
    Experiment experiment = experiment_of(small_llama(), 1, 4);
    experiment.cluster.perturbations.jitter = {0.05, 0, 1, 2};
    Engine engine(experiment.cluster);
    try {
      static_cast<void>(
          simulated(experiment, named_strategy("zero2", {}, 4), engine, FoldMode::Exact));
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      return unless(message.find("--fold exact") != std::string::npos &&
                        message.find("expected off") != std::string::npos,
                    message);
    }
    return std::string("it is not refused");
  });
}

TEST(FoldOff, RefusesWhatNoMachineHolds) {
  isolated([] {
    const Experiment experiment = experiment_of(load_model("llama-2-7b"), 16384, 8);
    Engine engine(experiment.cluster);
    try {
      static_cast<void>(
          simulated(experiment, named_strategy("zero3", {}, 131072), engine, FoldMode::Off));
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      return unless(message.find("zero3: 131072 ranks") != std::string::npos &&
                        message.find("expected --fold on") != std::string::npos,
                    message);
    }
    return std::string("it is not refused");
  });
}

// No two of 2048 GPUs are as fast, so `exact` has 2048 classes. 64 micro batches of 32 layers are
// some 700 000 operations each.
TEST(FoldExact, RefusesWhatNoMachineHolds) {
  isolated([] {
    Experiment experiment = experiment_of(load_model("llama-2-7b"), 256, 8);
    for (int rank = 0; rank < 2048; ++rank) {
      GpuPerturbation slow;
      slow.nodes = {rank / 8};
      slow.gpus = {rank % 8};
      slow.speed = 1 - rank * 1e-4;
      experiment.cluster.perturbations.gpus.push_back(slow);
    }
    TrainingFlags flags;
    flags.grad_accum = 64;
    Engine engine(experiment.cluster);
    try {
      static_cast<void>(
          simulated(experiment, named_strategy("zero3", flags, 2048), engine, FoldMode::Exact));
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      return unless(message.find("zero3: 2048 rank classes (--fold exact)") != std::string::npos &&
                        message.find("expected --fold on") != std::string::npos,
                    message);
    }
    return std::string("it is not refused");
  });
}

// 10, 3 and 2 elements on 3 ranks (bf16): partition gradients of 20, 26 and 10 bytes are all one
// block of 512 bytes: the lowest rank stands for the equals.
TEST(MemoryRanks, OfEqualsTheLowest) {
  const MemoryRanks ranks =
      memory_ranks(experiment_of(test::chain({10, 3, 2}), 1, 3), named_strategy("zero2", {}, 3));
  EXPECT_TRUE(ranks.differ);
  EXPECT_EQ(ranks.most.front(), Rank(0));
}

TEST(MemoryRanks, DoNotDifferElsewhere) {
  const Experiment experiment = experiment_of(small_llama(), 1, 4);
  for (const char* name : {"ddp", "zero0", "zero3"}) {
    EXPECT_FALSE(memory_ranks(experiment, named_strategy(name, {}, 4)).differ) << name;
  }
}

// Of every rank of stages 1 and 2 the program is built and its allocations added up: most and least
// are among what the search finds.
TEST(MemoryRanks, AreThoseOfALookAtEveryRank) {
  const Experiment experiment = experiment_of(small_llama(), 2, 6);
  for (const char* name : {"zero1", "zero2"}) {
    for (const bool overlap : {false, true}) {
      for (const bool offload : {false, true}) {
        Strategy strategy = named_strategy(name, {}, 12);
        strategy.zero.overlap_comm = overlap;
        strategy.zero.reduce_bucket_size = 300'000;
        if (offload) strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
        std::vector<Bytes> peaks;
        for (int rank = 0; rank < 12; ++rank) {
          BuildOptions options{12, 0, 2};
          options.pieces = LocalPieces::One;
          options.rank = Rank(rank);
          peaks.push_back(replay_memory(build_program(experiment.model, strategy,
                                                      batch_of(experiment, strategy), options))
                              .allocated);
        }
        const MemoryRanks ranks = memory_ranks(experiment, strategy);
        EXPECT_EQ(peaks[ranks.most.front().index()], *std::max_element(peaks.begin(), peaks.end()));
        EXPECT_EQ(peaks[ranks.least.index()], *std::min_element(peaks.begin(), peaks.end()));
      }
    }
  }
}

}  // namespace
}  // namespace zerosim
