/// Rings step by step against the fluid form: how far apart the two are, alone and in contention.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "sim/program/build.h"
#include "sim/strategy/strategy.h"
#include "tests/sim/engine/engine_test_support.h"
#include "tests/sim/engine/random_cluster.h"
#include "tests/sim/program/models.h"

namespace zerosim::testing {
namespace {

using namespace literals;

constexpr double ms = 1e-3;
constexpr double us = 1e-6;

struct Both {
  Timeline fluid, stepped;
};

/// Every rank by itself, in both forms.
Both run_both(const Cluster& cluster, const EngineOptions& options, const Program& program) {
  const Folding folding = fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Off);
  Engine engine(cluster, options);
  return {engine.run(program, folding),
          engine.run(program, folding, nullptr, 0, CollectiveForm::Stepped)};
}

double relative(Seconds found, Seconds expected) {
  return found / expected - 1;
}

/// The largest difference of a collective's end, over its time.
double difference_of_ends(const Both& both) {
  double largest = 0;
  EXPECT_EQ(both.fluid.spans.size(), both.stepped.spans.size());
  for (const Span& fluid : both.fluid.spans) {
    const Span& stepped = span_of(both.stepped, fluid.op, fluid.rank_class);
    largest = std::max(largest, std::abs(relative(stepped.end, fluid.end)));
  }
  return largest;
}

// ---- Alone -------------------------------------------------------------------------------------

/// One node of `ranks` GPUs on links of 100 GB/s, one collective of 1 GB, delay 700 us.
Timeline stepped_alone(CollectiveKind kind, int ranks, int root = -1) {
  Figures figures;
  figures.delay = Seconds(700 * us);
  const Cluster cluster = test_cluster(figures, ranks);
  RankBuilder rank;
  rank.collective(rank.world, 1_GB, {}, 0, kind);
  Program program = program_of({rank});
  program.world_size = ranks;
  program.groups[0].size = program.groups[1].size = ranks;
  program.ranks[0].collectives[0].root = root;
  return run_both(cluster, options_of(figures), program).stepped;
}

// 700 us, then 7 steps of 1 GB / 7 / 100 GB/s, or 14 of half of that: 0.7 + 10 ms. A chain: the
// fill of 6 of C pieces, 6 / C x 10 ms, is at most 350 us for C = 172; 700 us less that fill, then
// 178 sends one after the other of 10 ms / 172: 0.7 - 6 x 10 / 172 + 178 x 10 / 172 ms, the same.
TEST(SteppedRing, AloneIsDelayAndTransfer) {
  for (const CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce,
        CollectiveKind::Broadcast, CollectiveKind::Reduce}) {
    isolated([kind] { expect_exact(stepped_alone(kind, 8).end, 10.7 * ms, 1e-9); });
  }
}

TEST(SteppedRing, ChainsBeginAndEndAtTheirRoot) {
  for (const CollectiveKind kind : {CollectiveKind::Broadcast, CollectiveKind::Reduce}) {
    isolated([kind] {
      const Timeline timeline = stepped_alone(kind, 8, 3);
      expect_exact(timeline.end, 10.7 * ms, 1e-9);
      // All but the last of the chain send everything: behind the root, or before it.
      const std::size_t silent = kind == CollectiveKind::Broadcast ? 2 : 3;
      for (const LinkTraffic& link : timeline.links) {
        if (link.kind != LinkClass::Kind::IntraNode) continue;
        const bool is_silent = link.name == format("node0.gpu{}.nvlink", silent);
        EXPECT_NEAR(link.bytes, is_silent ? 0 : 1e9, 1) << link.name;
      }
    });
  }
}

/// What NCCL would do at this size, taken for a ring whatever it is.
/// \param delays  factor on the delays
EngineOptions all_rings(const Cluster& cluster, double delays = 1) {
  EngineOptions options = options_of({});
  options.device_memory = {};
  options.collective_cost = [&cluster, delays](const Collective& call, const ProcessGroup& group) {
    CollectiveCost cost = collective_cost(cluster, collective_op(call.kind), collective_size(call),
                                          placement(cluster, group));
    cost.algorithm = Algorithm::Ring;
    cost.delay = cost.delay * delays;
    return cost;
  };
  return options;
}

Program one_collective(int world, CollectiveKind kind, Bytes size, int root) {
  RankBuilder rank;
  rank.collective(rank.world, size, {}, 0, kind);
  Program program = program_of({rank});
  program.world_size = world;
  program.groups[0].size = program.groups[1].size = world;
  program.ranks[0].collectives[0].root = root;
  return program;
}

TEST(SteppedRing, AloneOnPresetsItIsTheFluidForm) {
  Random random(7);
  for (const char* preset :
       {"dgx-a100-80", "dgx-h100", "dgx1-v100-32", "a100x8-pcie-plx", "rtx4090x8-pcie"}) {
    for (const auto& [nodes, gpus] : std::vector<std::pair<int, int>>{
             {1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 8}, {3, 4}, {4, 2}, {4, 8}}) {
      for (const CollectiveKind kind :
           {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce,
            CollectiveKind::Broadcast, CollectiveKind::Reduce}) {
        const Bytes size(random.chance(30) ? 1 + random.below(100'000)
                                           : 1 + random.below(1'000'000'000));
        const int root = random.below(nodes * gpus);
        SCOPED_TRACE(format("{} {} x {}, kind {}, {} bytes", preset, nodes, gpus,
                            static_cast<int>(kind), size.count()));
        isolated([&, nodes = nodes, gpus = gpus] {
          const Cluster cluster = load_cluster(preset, nodes, gpus);
          const Both both = run_both(cluster, all_rings(cluster),
                                     one_collective(cluster.world_size(), kind, size, root));
          EXPECT_LE(difference_of_ends(both), 1e-9);
        });
      }
    }
  }
}

// ---- In contention -----------------------------------------------------------------------------

struct Call {
  bool node = false;  ///< of each node's ranks, else of all
  CollectiveKind kind = CollectiveKind::AllGather;
  Bytes size;
  int start = 0;  ///< us of host before it
};

/// Calls at once, each on its own communicator: the first of WORLD, the second of OTHER.
Program two_calls(const Cluster& cluster, const Call& first, const Call& second) {
  RankBuilder rank;
  rank.collective(rank.world, first.size, {}, first.start, first.kind);
  rank.collective(rank.other, second.size, {}, second.start, second.kind);
  Program program = program_of({rank});
  program.world_size = cluster.world_size();
  program.groups[0].size = first.node ? cluster.gpus_per_node : cluster.world_size();
  program.groups[1].size = second.node ? cluster.gpus_per_node : cluster.world_size();
  return program;
}

const char* const kOversubscribed =
    R"({"version": 1, "node": {"preset": "dgx-a100-80"}, "nodes": 4, "gpus_per_node": 8,
        "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2, "oversubscription": 4}})";
const char* const kSlowNic =
    R"({"version": 1, "node": {"preset": "dgx-a100-80"}, "nodes": 4, "gpus_per_node": 8,
        "perturbations": [{"link": "nic", "nodes": 1, "nics": 3, "bandwidth": 0.5}]})";

Cluster one_node() {
  return load_cluster("dgx-a100-80", 1, 8);
}

/// Both calls of a pair, stepped beside fluid: of their durations.
std::vector<double> differences(const Cluster& cluster, double delays, const Call& first,
                                const Call& second) {
  const Both both =
      run_both(cluster, all_rings(cluster, delays), two_calls(cluster, first, second));
  std::vector<double> result;
  for (const int op : {0, 1}) {
    const Span& fluid = span_of(both.fluid, OpId(op));
    const Span& stepped = span_of(both.stepped, OpId(op));
    result.push_back(relative(stepped.end - stepped.start, fluid.end - fluid.start));
  }
  return result;
}

void expect_near(const std::vector<double>& found, double tolerance) {
  for (const double one : found) EXPECT_NEAR(one, 0, tolerance);
}

Bytes megabytes(double count) {
  return Bytes(static_cast<std::int64_t>(count * 1e6));
}

// Two communicators on one link, two on an oversubscribed spine, two on a slow NIC: sizes 0.3 : 1,
// 1 : 1 and 2 : 1, at once and 150 us later, without and with NCCL's delays. What is shared is
// shared alike, whatever the steps.
TEST(SteppedRing, TwoCommunicatorsShareAlike) {
  for (const std::function<Cluster()>& cluster : std::vector<std::function<Cluster()>>{
           one_node, [] { return parse_cluster(kOversubscribed, "o"); },
           [] { return parse_cluster(kSlowNic, "s"); }}) {
    for (const double size : {50, 1000}) {
      for (const double ratio : {0.3, 1.0, 2.0}) {
        for (const int start : {0, 150}) {
          for (const int delays : {0, 1}) {
            SCOPED_TRACE(
                format("{} MB x {}, {} us later, delays x {}", size, ratio, start, delays));
            isolated([&] {
              expect_near(
                  differences(
                      cluster(), delays, {false, CollectiveKind::AllGather, megabytes(size)},
                      {false, CollectiveKind::ReduceScatter, megabytes(size * ratio), start}),
                  1e-6);
            });
          }
        }
      }
    }
  }
}

// hpZ's gathers within each node beside one of the world: 8 NICs of 24 GB/s a node, NVLink 240;
// with NCCL's delays.
TEST(SteppedRing, NodesGatherBesideTheWorld) {
  for (const int nodes : {2, 4}) {
    for (const double size : {50, 400, 1600}) {
      for (const double ratio : {0.1, 0.3, 1.0, 2.0}) {
        for (const int start : {0, 500}) {
          SCOPED_TRACE(format("{} nodes, {} MB x {}, {} us later", nodes, size, ratio, start));
          isolated([&] {
            expect_near(
                differences(load_cluster("dgx-a100-80", nodes, 8), 1,
                            {false, CollectiveKind::AllGather, megabytes(size)},
                            {true, CollectiveKind::AllGather, megabytes(size * ratio), start}),
                0.02);
          });
        }
      }
    }
  }
}

// ---- Where the two differ ----------------------------------------------------------------------

// NVLink waits for a slow border, in bursts: of a ring of 4 x 4 ranks on NICs of 96 GB/s a node and
// NVLink of 240, a link inside a node is busy for 0.4 of each step, or 0.8 where another call
// shares it. The fluid form sees 96 GB/s all the time. A short gather of each node beside it gets
// what the bursts leave, and so differs by at most what passes in one of the world's steps:
//
//     50 MB    15 steps of 3.1 MB: one loop of parts below a chunk of 2 MiB x 8 channels
//     1600 MB  6 loops of 16.7 MB a part
//
// each over the border at 96 GB/s. The world's call does not notice.
TEST(SteppedRing, FastLinksWaitForASlowBorderInBursts) {
  for (const auto& [size, part] :
       std::vector<std::pair<double, double>>{{50, 3.125}, {1600, 16.7}}) {
    for (const double ratio : {0.1, 0.3, 1.0}) {
      for (const int start : {0, 150, 500}) {
        SCOPED_TRACE(format("{} MB x {}, {} us later", size, ratio, start));
        isolated([&, size = size, part = part] {
          const Cluster cluster = load_cluster("dgx-a100-80", 4, 4);
          const Both both = run_both(
              cluster, all_rings(cluster),
              two_calls(cluster, {false, CollectiveKind::AllGather, megabytes(size)},
                        {true, CollectiveKind::AllGather, megabytes(size * ratio), start}));
          expect_shared(span_of(both.stepped, OpId(0)).end,
                        span_of(both.fluid, OpId(0)).end.count());
          const Seconds later =
              span_of(both.stepped, OpId(1)).end - span_of(both.fluid, OpId(1)).end;
          EXPECT_LT(std::abs(later.count()), part * 1e6 / 96e9);
        });
      }
    }
  }
}

// ---- Device memory -----------------------------------------------------------------------------

/// Kernels of 5 ms of SMs and `memory` on the first `ranks` of 8 ranks beside a gather of 1 GB.
std::vector<double> beside_kernels(int ranks, Bytes memory, std::int64_t memory_bytes_per_byte) {
  Figures figures;
  figures.memory_bytes_per_byte = memory_bytes_per_byte;
  RankBuilder with;
  RankBuilder without;
  const OpId call = with.collective(with.world, 1_GB, {}, 0, CollectiveKind::AllGather);
  without.collective(without.world, 1_GB, {}, 0, CollectiveKind::AllGather);
  const OpId kernel = with.kernel(with.compute, Seconds(5 * ms), memory);
  std::vector<RankBuilder> builders(static_cast<std::size_t>(ranks), with);
  if (ranks < 8) builders.push_back(without);
  const Both both = run_both(test_cluster(figures), options_of(figures), program_of(builders));
  return {relative(span_of(both.stepped, call).end, span_of(both.fluid, call).end),
          relative(span_of(both.stepped, kernel).end, span_of(both.fluid, kernel).end)};
}

// The link sets the gather's rate (6 GB of memory for 1 GB: the probe of engine_oracle_test), or
// device memory does, which it shares with kernels (40 GB); of all ranks, or of one, which all wait
// for.
TEST(SteppedRing, KernelsBesideAGatherShareDeviceMemory) {
  for (const int ranks : {1, 3, 8}) {
    for (const std::int64_t bytes : {6, 40}) {
      for (const Bytes memory : {5_GB, 30_GB, 90_GB}) {
        SCOPED_TRACE(format("{} ranks, {} of {}", ranks, bytes, memory.count()));
        isolated([&] { expect_near(beside_kernels(ranks, memory, bytes), 0.02); });
      }
    }
  }
}

// ---- Slots and uplinks -------------------------------------------------------------------------

/// A copy of 1 GB of the first `ranks` of 8 ranks beside a gather over PCIe.
std::vector<double> beside_copies(const char* preset, int ranks, Copy::Direction direction) {
  const Cluster cluster = load_cluster(preset, 1, 8);
  RankBuilder without;
  const OpId call =
      without.collective(without.world, megabytes(600), {}, 0, CollectiveKind::AllGather);
  RankBuilder with;
  with.collective(with.world, megabytes(600), {}, 0, CollectiveKind::AllGather);
  const OpId copy = with.copy(with.compute, direction, megabytes(1000));
  std::vector<RankBuilder> builders(static_cast<std::size_t>(ranks), with);
  if (ranks < 8) builders.push_back(without);
  const Both both = run_both(cluster, all_rings(cluster, 0), program_of(builders));
  return {relative(span_of(both.stepped, call).end, span_of(both.fluid, call).end),
          relative(span_of(both.stepped, copy).end, span_of(both.fluid, copy).end)};
}

TEST(SteppedRing, CopiesBesideAGatherOverPcie) {
  for (const char* preset : {"a100x8-pcie-plx", "rtx4090x8-pcie"}) {
    for (const int ranks : {1, 2, 8}) {
      for (const auto direction : {Copy::Direction::HostToDevice, Copy::Direction::DeviceToHost}) {
        SCOPED_TRACE(format("{}, {} copy", preset, ranks));
        isolated([&] { expect_near(beside_copies(preset, ranks, direction), 0.02); });
      }
    }
  }
}

// ---- A step of ZeRO-3 --------------------------------------------------------------------------

double step_difference(const char* preset, int partition) {
  const Cluster cluster = load_cluster(preset, 2, 4);
  Strategy strategy = named_strategy("zero3", {}, cluster.world_size());
  strategy.zero.param_persistence_threshold = 0;
  strategy.zero.hpz_partition_size = partition;
  BatchShape batch;
  batch.sequence = 512;
  const Program program = build_program(test::llama({4096, 11008, 4096, 32000, 4, 128}), strategy,
                                        batch, {cluster.world_size(), 2, 1});
  const Both both = run_both(cluster, EngineOptions{}, program);
  const double difference = relative(last_step(both.stepped), last_step(both.fluid));
  std::printf("ZeRO-3 on 2 x 4 of %s%s: fluid %.4f ms, stepped %.4f ms, %+.3f %%\n", preset,
              partition > 1 ? ", hpZ" : "", last_step(both.fluid).count() * 1e3,
              last_step(both.stepped).count() * 1e3, difference * 100);
  return difference;
}

TEST(SteppedRing, AStepOfZero3) {
  for (const char* preset : {"dgx-a100-80", "dgx-h100"}) {
    for (const int partition : {1, 4}) {
      isolated([&] { EXPECT_NEAR(step_difference(preset, partition), 0, 0.02); });
    }
  }
}

}  // namespace
}  // namespace zerosim::testing
