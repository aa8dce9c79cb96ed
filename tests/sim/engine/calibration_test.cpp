// Calibrated collectives in the engine.

#include <gtest/gtest.h>

#include "tests/sim/engine/engine_test_support.h"
#include "topology/calibrated_cost.h"

namespace zerosim {
namespace {

/// All-reduces of all ranks of the cluster.
Calibration calibration_of(const Cluster& cluster) {
  CalibratedCollective entry;
  entry.ranks = cluster.world_size();
  entry.nodes = cluster.nodes;
  entry.machine = measured_machine(cluster, cluster.nodes);
  entry.line.floor = Seconds(30e-6);
  entry.line.bend = Seconds(40e-6);
  entry.line.exponent = 0.25;
  entry.line.bandwidth = 150_GBps;
  Calibration calibration;
  calibration.collectives = {entry};
  return calibration;
}

/// Two communicators of all ranks; a collective of this size on one, or on both at once.
std::pair<Seconds, Seconds> times_of(const Cluster& cluster, Bytes size, bool both) {
  testing::RankBuilder rank;
  const OpId first = rank.collective(rank.world, size);
  const OpId second = both ? rank.collective(rank.other, size) : first;
  Program program = testing::program_of({rank});
  program.world_size = cluster.world_size();
  for (ProcessGroup& group : program.groups) group.size = cluster.world_size();
  EngineOptions options;
  options.host = HostTimes{};
  options.calibration = calibration_of(cluster);
  Engine engine(cluster, options);
  const Timeline timeline = engine.run(program);
  const Span& one = testing::span_of(timeline, first);
  const Span& two = testing::span_of(timeline, second);
  return {one.end - one.start, two.end - two.start};
}

TEST(CalibratedEngine, ACollectiveAloneTakesTheCalibratedTime) {
  for (const int nodes : {1, 2}) {
    testing::isolated([&] {
      const Cluster cluster = load_cluster("dgx-a100-40", nodes);
      const CollectiveLine line = calibration_of(cluster).collectives.front().line;
      const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, 1_GiB, 8 * nodes);
      testing::expect_exact(times_of(cluster, 1_GiB, false).first, line.time(sent).count());
    });
  }
}

// The transfers share the links, the delays do not: delay + 2 V/B each.
TEST(CalibratedEngine, TransfersContend) {
  testing::isolated([] {
    const Cluster cluster = load_cluster("dgx-a100-40", 1);
    const CollectiveLine line = calibration_of(cluster).collectives.front().line;
    const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, 1_GiB, 8);
    const Seconds expected = line.delay(sent) + 2 * line.transfer(sent);
    const auto [one, two] = times_of(cluster, 1_GiB, true);
    testing::expect_shared(one, expected.count());
    testing::expect_shared(two, expected.count());
  });
}

}  // namespace
}  // namespace zerosim
