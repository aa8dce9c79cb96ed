// Calibrated collectives in the engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/calibrated_host.h"
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

// 2.5 x 8 us = 20 us of a launch. A hook has its own time, or else 2.5 x 200 us.
TEST(CalibratedHostTimes, AFactorAndAHook) {
  HostTimes table{};
  table.kernel_launch = Seconds(8e-6);
  table.deepspeed_hook = Seconds(200e-6);
  CalibratedHost host;
  host.interpreter = 2.5;
  const auto time = [&](HostWork work) { return calibrated_host_time(table, work, host).count(); };
  EXPECT_DOUBLE_EQ(time(HostWork::KernelLaunch), 20e-6);
  EXPECT_DOUBLE_EQ(time(HostWork::DeepSpeedHook), 500e-6);
  EXPECT_DOUBLE_EQ(time(HostWork::None), 0);
  host.deepspeed_hook = Seconds(90e-6);
  EXPECT_DOUBLE_EQ(time(HostWork::DeepSpeedHook), 90e-6);
  EXPECT_DOUBLE_EQ(time(HostWork::KernelLaunch), 20e-6);
  EXPECT_DOUBLE_EQ(calibrated_host_time(table, HostWork::KernelLaunch, std::nullopt).count(), 8e-6);
}

TEST(CalibratedHostTimes, AreTold) {
  HostTimes table{};
  table.deepspeed_hook = Seconds(200e-6);
  Calibration calibration;
  calibration.file = "c.json";
  EXPECT_EQ(host_note(calibration, table), "");
  calibration.host = CalibratedHost{};
  calibration.host->interpreter = 1.25;
  EXPECT_EQ(host_note(calibration, table),
            "calibration c.json: host work takes 1.25 times the table's time, a hook of DeepSpeed "
            "250 us");
  calibration.host->table = "runs.csv";
  calibration.host->fitted = {12, 0.034, 0.1, 0.2};
  EXPECT_THAT(host_note(calibration, table),
              ::testing::EndsWith(", fitted to 12 training runs of runs.csv (median error 3.4 %)"));
}

// Host operations of 3 + 4 = 7 us (test support: 1 us is a module call) before a kernel of 1 ms:
// with the factor 2.5 it starts after 17.5 us.
TEST(CalibratedEngine, HostWorkTakesTheFactor) {
  testing::isolated([] {
    testing::RankBuilder rank;
    rank.host(3);
    rank.host(4);
    const OpId kernel = rank.kernel(rank.compute, Seconds(1e-3));
    EngineOptions options = testing::options_of({});
    options.calibration.host = CalibratedHost{};
    options.calibration.host->interpreter = 2.5;
    Engine engine(testing::test_cluster(), options);
    const Timeline timeline = engine.run(testing::program_of({rank}));
    testing::expect_exact(testing::span_of(timeline, kernel).start, 17.5e-6);
  });
}

}  // namespace
}  // namespace zerosim
