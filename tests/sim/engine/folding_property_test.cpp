/// Folded and unfolded runs are the same: every span of every rank, every end of a step, to 1e-9.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/engine/collective_call.h"
#include "sim/program/build.h"
#include "sim/strategy/strategy.h"
#include "tests/sim/engine/engine_test_support.h"
#include "tests/sim/engine/random_cluster.h"
#include "tests/sim/program/models.h"

namespace zerosim::testing {
namespace {

/// |a - b| over the larger; instants below a picosecond are none.
double difference(Seconds a, Seconds b) {
  const double larger = std::max({std::abs(a.count()), std::abs(b.count()), 1e-3});
  return std::abs(a.count() - b.count()) / larger;
}

double difference(const Span& a, const Span& b) {
  return std::max({difference(a.issued, b.issued), difference(a.ready, b.ready),
                   difference(a.start, b.start), difference(a.end, b.end)});
}

using SpansByOp = std::map<std::pair<int, std::int32_t>, const Span*>;

SpansByOp by_operation(const Timeline& timeline) {
  SpansByOp spans;
  for (const Span& span : timeline.spans) spans[{span.rank_class, span.op.value()}] = &span;
  return spans;
}

/// The largest difference over all ranks.
void expect_equal(const Folding& folding, const Timeline& folded, const Timeline& unfolded) {
  ASSERT_EQ(folded.step_ends.size(), unfolded.step_ends.size());
  double largest = difference(folded.end, unfolded.end);
  for (std::size_t i = 0; i < folded.step_ends.size(); ++i) {
    largest = std::max(largest, difference(folded.step_ends[i], unfolded.step_ends[i]));
  }
  const SpansByOp spans = by_operation(folded);
  std::size_t expected = 0;
  for (const RankClass& rank : folding.ranks) {
    expected += static_cast<std::size_t>(rank.multiplicity) *
                static_cast<std::size_t>(
                    std::count_if(folded.spans.begin(), folded.spans.end(), [&](const Span& span) {
                      return &folding.ranks[static_cast<std::size_t>(span.rank_class)] == &rank;
                    }));
  }
  ASSERT_EQ(expected, unfolded.spans.size());
  for (const Span& span : unfolded.spans) {
    const auto found = spans.find({class_of(folding, span.rank_class), span.op.value()});
    ASSERT_NE(found, spans.end());
    largest = std::max(largest, difference(*found->second, span));
  }
  EXPECT_LE(largest, 1e-9);
}

void compare(const Cluster& cluster, const EngineOptions& options, const Program& program,
             const std::vector<RankRun>& runs) {
  const std::vector<GroupPattern> groups = group_patterns(program);
  const Folding all = fold(cluster, runs, groups, FoldMode::Off);
  const Folding exact = fold(cluster, runs, groups, FoldMode::Exact);
  EXPECT_EQ(all.ranks.size(), static_cast<std::size_t>(program.world_size));
  EXPECT_LE(exact.ranks.size(), all.ranks.size());
  Engine engine(cluster, options);
  const Timeline unfolded = engine.run(program, all);
  const Timeline folded = engine.run(program, exact);
  expect_equal(exact, folded, unfolded);
}

/// Kernels that say their own times; the cluster's own collectives.
EngineOptions random_options(Random& random) {
  Figures figures;
  figures.launch_queue_depth = random.chance(30) ? 3 : 1024;
  EngineOptions options = options_of(figures);
  options.collective_cost = nullptr;
  options.device_memory = {};
  return options;
}

void check_seed(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const std::string text = RandomCluster(random).text();
  SCOPED_TRACE(text);
  const Cluster cluster = parse_cluster(text, "random.json");
  const RandomProgram program(cluster, random);
  compare(cluster, random_options(random), program.program(), program.runs());
}

// Seeds that have failed: 3488, where the solver took equal GPUs for different ones (machine.cpp,
// maxmin/precision).
TEST(FoldingProperty, SeedsThatHaveFailed) {
  for (const std::uint64_t seed : {3488U}) {
    isolated([seed] { check_seed(seed); });
  }
}

// A failing seed is printed; FOLD_SEEDS=first,count looks at others.
TEST(FoldingProperty, RandomClustersAndPrograms) {
  std::uint64_t first = 1;
  std::uint64_t count = 60;
  if (const char* given = std::getenv("FOLD_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(given, &rest, 10);
    count = *rest == ',' ? std::strtoull(rest + 1, nullptr, 10) : 1;
  }
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    isolated([seed] { check_seed(seed); });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// ---- Programs of the frameworks ----------------------------------------------------------------

Strategy zero(int stage) {
  Strategy strategy = named_strategy("zero" + std::to_string(stage), {}, 16);
  strategy.zero.param_persistence_threshold = 0;
  return strategy;
}

Strategy fsdp(int version, FsdpSharding sharding, int shard_group) {
  Strategy strategy;
  strategy.name = "fsdp";
  strategy.framework = Framework::Fsdp;
  strategy.fsdp.version = version;
  strategy.fsdp.sharding = sharding;
  strategy.fsdp.shard_group = shard_group;
  return strategy;
}

std::vector<std::pair<std::string, Strategy>> strategies() {
  std::vector<std::pair<std::string, Strategy>> all;
  for (int stage = 0; stage <= 3; ++stage)
    all.emplace_back("zero" + std::to_string(stage), zero(stage));
  Strategy hpz = zero(3);
  hpz.zero.hpz_partition_size = 4;
  all.emplace_back("hpZ", hpz);
  Strategy mics = zero(3);
  mics.zero.mics_shard_size = 4;
  all.emplace_back("MiCS", mics);
  all.emplace_back("ddp", named_strategy("ddp", {}, 16));
  all.emplace_back("fsdp1", fsdp(1, FsdpSharding::FullShard, 0));
  all.emplace_back("fsdp2", fsdp(2, FsdpSharding::FullShard, 0));
  all.emplace_back("hybrid", fsdp(1, FsdpSharding::HybridShard, 8));
  return all;
}

/// Those that copy between host and device.
std::vector<std::pair<std::string, Strategy>> offloading() {
  std::vector<std::pair<std::string, Strategy>> all;
  Strategy optimizer = zero(2);
  optimizer.zero.offload_optimizer.device = OffloadDevice::Cpu;
  all.emplace_back("zero2, optimizer on the CPU", optimizer);
  Strategy parameters = zero(3);
  parameters.zero.offload_optimizer.device = OffloadDevice::Cpu;
  parameters.zero.offload_param.device = OffloadDevice::Cpu;
  all.emplace_back("zero3, all on the CPU", parameters);
  Strategy sharded = fsdp(1, FsdpSharding::FullShard, 0);
  sharded.fsdp.cpu_offload = true;
  all.emplace_back("fsdp1, on the CPU", sharded);
  return all;
}

// Four nodes of four GPUs, two NICs between them, as they come and with a straggler, a slow NIC
// and a busy leaf.
TEST(FoldingProperty, ProgramsOfTheFrameworks) {
  const std::string even = R"({"version": 1, "nodes": 4, "gpus_per_node": 4,
    "node": {"preset": "dgx1-v100-32"},
    "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2, "oversubscription": 2})";
  const std::string uneven = even + R"(, "perturbations": [
    {"nodes": 1, "gpus": 2, "speed": 0.9}, {"nodes": 3, "host_speed": 0.7},
    {"link": "nic", "nodes": 2, "nics": 0, "bandwidth": 0.5},
    {"link": "fabric", "name": "leaf0.up", "background": "1GB/s"}])";
  BatchShape batch;
  batch.sequence = 256;
  const Model model = test::llama({256, 512, 256, 1000, 2, 64});
  for (const auto& [name, strategy] : strategies()) {
    const Program program = build_program(model, strategy, batch, {16, 2, 1});
    for (const std::string& text : {even + "}", uneven + "}"}) {
      isolated([&, label = name] {
        SCOPED_TRACE(label + text);
        compare(parse_cluster(text, "small.json"), {}, program, rank_runs(program));
      });
    }
  }
}

// Two switches of four cards, the NIC below the first: copies, rings over PCIe and what goes to the
// NIC meet on slots and uplinks; also with a slow slot and a slow host.
TEST(FoldingProperty, OffloadOnPcieNodes) {
  const std::string even = R"({"version": 1, "nodes": 2, "gpus_per_node": 8,
    "node": {"preset": "a100x8-pcie-plx"})";
  const std::string uneven = even + R"(, "perturbations": [
    {"link": "pcie", "nodes": 1, "gpus": 5, "bandwidth": 0.5}, {"nodes": 0, "host_speed": 0.7}])";
  BatchShape batch;
  batch.sequence = 256;
  const Model model = test::llama({256, 512, 256, 1000, 2, 64});
  for (const auto& [name, strategy] : offloading()) {
    const Program program = build_program(model, strategy, batch, {16, 2, 1});
    ASSERT_FALSE(program.ranks[0].copies.empty()) << name;
    for (const std::string& text : {even + "}", uneven + "}"}) {
      isolated([&, label = name] {
        SCOPED_TRACE(label + text);
        compare(parse_cluster(text, "pcie.json"), {}, program, rank_runs(program));
      });
    }
  }
}

}  // namespace
}  // namespace zerosim::testing
