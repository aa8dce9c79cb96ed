#include "topology/calibration.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/calibrated_cost.h"
#include "topology/nccl_paths.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CollectiveLine some_line() {
  CollectiveLine line;
  line.floor = Seconds(30e-6);
  line.bend = Seconds(40e-6);
  line.exponent = 0.25;
  line.bandwidth = 200_GBps;
  return line;
}

/// An all-reduce of all GPUs of a node.
CalibratedCollective some_entry(const Cluster& cluster) {
  CalibratedCollective entry;
  entry.operation = CollectiveOp::AllReduce;
  entry.ranks = cluster.gpus_per_node * cluster.nodes;
  entry.nodes = cluster.nodes;
  entry.machine = measured_machine(cluster, cluster.nodes);
  entry.line = some_line();
  return entry;
}

Calibration of(const CalibratedCollective& entry) {
  Calibration calibration;
  calibration.file = "c.json";
  calibration.collectives = {entry};
  return calibration;
}

Seconds time_of(const Calibration& calibration, const Cluster& cluster, Bytes size,
                const CollectiveGroup& group) {
  return calibrated_cost(calibration, cluster, CollectiveOp::AllReduce, size, group)
      .idle_time(cluster);
}

// 1 MiB: 1048576 B / 200 GB/s = 5.24288 us; (30^4 + 40^4)^(1/4) = (810000 + 2560000)^(1/4) =
// 42.8457 us. 16 MiB: the bend is 40 x 16^(1/4) = 80 us; (30^4 + 80^4)^(1/4) = 80.3930 us.
TEST(CollectiveLine, ByHand) {
  const CollectiveLine line = some_line();
  EXPECT_NEAR(line.transfer(1_MiB).count(), 5.24288e-6, 1e-15);
  EXPECT_NEAR(line.delay(1_MiB).count(), std::pow(3370000.0, 0.25) * 1e-6, 1e-15);
  EXPECT_NEAR(line.delay(1_MiB).count(), 42.8457e-6, 1e-10);
  EXPECT_NEAR(line.delay(16_MiB).count(), std::pow(810000.0 + 40960000.0, 0.25) * 1e-6, 1e-15);
  EXPECT_DOUBLE_EQ(line.time(16_MiB).count(),
                   line.delay(16_MiB).count() + line.transfer(16_MiB).count());
  // Without a bend the floor is left, and the time of nothing is the floor.
  CollectiveLine straight = line;
  straight.bend = Seconds(0);
  EXPECT_DOUBLE_EQ(straight.delay(1_GiB).count(), 30e-6);
  EXPECT_DOUBLE_EQ(line.time(0_B).count(), 30e-6);
}

TEST(CollectiveLine, IsRoundedAsItsFileHoldsIt) {
  CollectiveLine line = some_line();
  line.floor = Seconds(30.00004e-6);  // 0.1 ns
  line.exponent = 0.25004;
  line.bandwidth = BytesPerSecond(200.00004e9);
  EXPECT_EQ(rounded(line), rounded(some_line()));
  EXPECT_EQ(rounded(rounded(line)), rounded(line));
}

// V = 7/4 S. The time is the line's whatever the model says, at sizes of every protocol.
TEST(CalibratedCost, AnExactEntryIsTheTime) {
  const Cluster cluster = load_cluster("dgx-a100-40");
  const Calibration calibration = of(some_entry(cluster));
  for (const Bytes size : {1_KiB, 64_KiB, 1_MiB, 32_MiB, 1_GiB, 16_GiB}) {
    const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, size, 8);
    EXPECT_NEAR(time_of(calibration, cluster, size, {8, 1}).count(), some_line().time(sent).count(),
                1e-12 * some_line().time(sent).count());
  }
  EXPECT_EQ(calibration_note(calibration, cluster, CollectiveOp::AllReduce, {8, 1}),
            "calibration c.json: all_reduce of 8 ranks on 1 node as measured (dgx-a100-40)");
}

// Contention stays on the links: they last V/B = 7/4 GiB / 200 GB/s together, the rest is delay.
TEST(CalibratedCost, TheTransferIsOnTheLinks) {
  const Cluster cluster = load_cluster("dgx-a100-40");
  const CollectiveCost cost =
      calibrated_cost(of(some_entry(cluster)), cluster, CollectiveOp::AllReduce, 1_GiB, {8, 1});
  const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, 1_GiB, 8);
  EXPECT_NEAR(cost.delay.count(), some_line().delay(sent).count(), 1e-11);
  ASSERT_EQ(cost.loads.front().kind, LinkClass::Kind::IntraNode);
  const Seconds loaded =
      cost.loads.front().bytes / link_capacity(cluster, LinkClass::Kind::IntraNode);
  EXPECT_NEAR(loaded.count(), some_line().transfer(sent).count(), 1e-11);
  const CollectiveCost model = collective_cost(cluster, CollectiveOp::AllReduce, 1_GiB, {8, 1});
  EXPECT_EQ(cost.ctas, model.ctas);
  EXPECT_EQ(cost.sent_per_rank, model.sent_per_rank);
}

// On two nodes the NICs are narrower than NVLink: they carry transfer x capacity, and what is on
// the others lasts no longer.
TEST(CalibratedCost, WiderLinksLastNoLonger) {
  const Cluster cluster = load_cluster("dgx-a100-40", 2);
  CalibratedCollective entry = some_entry(cluster);
  for (const double gbps : {50.0, 400.0}) {  // slower and faster than the model
    entry.line.bandwidth = BytesPerSecond(gbps * 1e9);
    const CollectiveCost cost =
        calibrated_cost(of(entry), cluster, CollectiveOp::AllReduce, 1_GiB, {16, 2});
    const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, 1_GiB, 16);
    EXPECT_NEAR(cost.idle_time(cluster).count(), entry.line.time(sent).count(), 1e-12);
    for (const LinkLoad& load : cost.loads) {
      CollectiveCost one;
      one.nics = cost.nics;
      one.loads = {load};
      EXPECT_LE(one.idle_time(cluster).count(), entry.line.transfer(sent).count() * (1 + 1e-9));
    }
  }
}

// A line that is twice the model's delay and three times its transfer at a size makes another
// group's twice and three times.
TEST(CalibratedCost, OtherGroupsAreScaled) {
  const Cluster cluster = load_cluster("dgx-a100-40");
  const CollectiveCost model = collective_cost(cluster, CollectiveOp::AllReduce, 1_GiB, {8, 1});
  const Seconds transfer = model.idle_time(cluster) - model.delay;
  CalibratedCollective entry = some_entry(cluster);
  entry.line.bend = Seconds(0);
  entry.line.floor = 2 * model.delay;
  const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, 1_GiB, 8);
  entry.line.bandwidth = BytesPerSecond(static_cast<double>(sent.count()) / (3 * transfer.count()));
  const CollectiveGroup four{4, 1};
  const CollectiveCost base = collective_cost(cluster, CollectiveOp::AllReduce, 1_GiB, four);
  const CollectiveCost cost =
      calibrated_cost(of(entry), cluster, CollectiveOp::AllReduce, 1_GiB, four);
  EXPECT_NEAR(cost.delay / base.delay, 2, 1e-6);
  EXPECT_NEAR((cost.idle_time(cluster) - cost.delay) / (base.idle_time(cluster) - base.delay), 3,
              1e-6);
  EXPECT_EQ(
      calibration_note(of(entry), cluster, CollectiveOp::AllReduce, four),
      "calibration c.json: all_reduce of 4 ranks on 1 node by the model, scaled as all_reduce "
      "of 8 ranks on 1 node were measured (dgx-a100-40)");
}

// Ratios hold where the log has sizes: at 1 GiB that of its largest, 1 MiB, is taken.
TEST(CalibratedCost, RatiosAreThoseOfSizesThatWereFitted) {
  const Cluster cluster = load_cluster("dgx-a100-40");
  CalibratedCollective entry = some_entry(cluster);
  entry.fitted_residuals.sizes = {1_KiB, 1_MiB};
  entry.fitted_residuals.errors = {0, 0};
  const CollectiveCost model = collective_cost(cluster, CollectiveOp::AllReduce, 1_MiB, {8, 1});
  const Bytes sent = ring_bytes_sent(CollectiveOp::AllReduce, 1_MiB, 8);
  const double ratio = entry.line.delay(sent) / model.delay;
  const CollectiveGroup four{4, 1};
  const CollectiveCost base = collective_cost(cluster, CollectiveOp::AllReduce, 1_GiB, four);
  const CollectiveCost cost =
      calibrated_cost(of(entry), cluster, CollectiveOp::AllReduce, 1_GiB, four);
  EXPECT_NEAR(cost.delay / base.delay, ratio, 1e-6);
}

TEST(CalibratedCost, OtherOperationsReachesAndMachinesAreTheModels) {
  const Cluster one = load_cluster("dgx-a100-40");
  const Cluster two = load_cluster("dgx-a100-40", 2);
  const Calibration calibration = of(some_entry(one));
  const auto kind = [&](const Cluster& cluster, CollectiveOp op, const CollectiveGroup& group) {
    return calibration_match(calibration, cluster, op, group).kind;
  };
  using Kind = CalibrationMatch::Kind;
  EXPECT_EQ(kind(one, CollectiveOp::AllReduce, {8, 1}), Kind::Exact);
  EXPECT_EQ(kind(two, CollectiveOp::AllReduce, {8, 1}), Kind::Exact);  // a node of the same kind
  EXPECT_EQ(kind(two, CollectiveOp::AllReduce, {4, 1}), Kind::Scaled);
  EXPECT_EQ(kind(two, CollectiveOp::AllReduce, {16, 2}), Kind::None);
  EXPECT_EQ(kind(one, CollectiveOp::AllGather, {8, 1}), Kind::None);
  EXPECT_EQ(kind(load_cluster("dgx-h100"), CollectiveOp::AllReduce, {8, 1}), Kind::None);
  EXPECT_EQ(
      calibration_note(calibration, one, CollectiveOp::AllGather, {8, 1}),
      "calibration c.json: nothing for all_gather_into_tensor of 8 ranks on 1 node, the model "
      "alone");
  EXPECT_EQ(time_of(calibration, two, 1_GiB, {16, 2}),
            collective_cost(two, CollectiveOp::AllReduce, 1_GiB, {16, 2}).idle_time(two));
}

// The same links with more memory: used, and told.
TEST(CalibratedCost, AnotherGpuIsTold) {
  const Calibration calibration = of(some_entry(load_cluster("dgx-a100-40")));
  const Cluster larger = load_cluster("dgx-a100-80");
  EXPECT_THAT(calibration_note(calibration, larger, CollectiveOp::AllReduce, {8, 1}),
              HasSubstr("; A100-SXM4-40 there, A100-SXM4-80 here"));
  EXPECT_THAT(foreign_machines(calibration, larger), ElementsAre());
  EXPECT_THAT(foreign_machines(calibration, load_cluster("dgx-h100")),
              ElementsAre("calibration c.json: measurements of dgx-a100-40 are not used: "
                          "A100-SXM4-40, not H100-SXM5-80"));
}

TEST(CalibratedCost, AdaptersTellMachinesApart) {
  const Cluster measured = load_cluster("dgx-a100-40", 2);
  const Calibration calibration = of(some_entry(measured));
  EXPECT_THAT(foreign_machines(calibration, load_cluster("aws-p4d", 2)),
              ElementsAre(HasSubstr("8 x 25 GB/s of network a node, not 4 x 12.5")));
  // A group that drives one adapter is not what was measured.
  const auto kind = [&](const CollectiveGroup& group) {
    return calibration_match(calibration, measured, CollectiveOp::AllReduce, group).kind;
  };
  EXPECT_EQ(kind({16, 2}), CalibrationMatch::Kind::Exact);
  EXPECT_EQ(kind({16, 2, 8}), CalibrationMatch::Kind::Exact);
  EXPECT_EQ(kind({16, 2, 1}), CalibrationMatch::Kind::Scaled);
}

// Eight GPUs of one process wait for eight launches; a job with a process for each does not. The
// entry's ratio to the model of its own launch is what carries over.
TEST(CalibratedCost, AnotherLaunchIsScaled) {
  const Cluster cluster = load_cluster("dgx-a100-40");
  CalibratedCollective entry = some_entry(cluster);
  entry.launch.ranks_per_process = 8;
  CollectiveGroup together{8, 1};
  together.launch = entry.launch;
  const CollectiveCost model = collective_cost(cluster, CollectiveOp::AllReduce, 1_KiB, together);
  const CollectiveCost apart = collective_cost(cluster, CollectiveOp::AllReduce, 1_KiB, {8, 1});
  ASSERT_GT(model.delay, apart.delay);
  entry.line.floor = 2 * model.delay;
  entry.line.bend = Seconds(0);
  const CollectiveCost cost =
      calibrated_cost(of(entry), cluster, CollectiveOp::AllReduce, 1_KiB, {8, 1});
  EXPECT_NEAR(cost.delay / apart.delay, 2, 1e-3);
  EXPECT_EQ(calibration_match(of(entry), cluster, CollectiveOp::AllReduce, together).kind,
            CalibrationMatch::Kind::Exact);
  EXPECT_THAT(calibration_note(of(entry), cluster, CollectiveOp::AllReduce, {8, 1}),
              HasSubstr("scaled as all_reduce of 8 ranks on 1 node, 8 a process, were measured"));
  // One that was launched alike is nearer.
  Calibration both = of(entry);
  both.collectives.push_back(some_entry(cluster));
  EXPECT_EQ(calibration_match(both, cluster, CollectiveOp::AllReduce, {8, 1}).entry,
            &both.collectives[1]);
}

TEST(CalibratedCost, KindsOfNetworkTellMachinesApart) {
  const Cluster measured = load_cluster("dgx-a100-40", 2);
  Calibration calibration = of(some_entry(measured));
  Cluster sockets = measured;
  EXPECT_EQ(use_sockets(sockets).substr(0, 20), "adapters talk by TCP");
  EXPECT_THAT(foreign_machines(calibration, sockets),
              ElementsAre(HasSubstr("infiniband between nodes, not tcp")));
  const auto kind = [&] {
    return calibration_match(calibration, sockets, CollectiveOp::AllReduce, {16, 2}).kind;
  };
  EXPECT_EQ(kind(), CalibrationMatch::Kind::None);
  calibration.collectives[0].machine.network.reset();  // a file that does not tell
  EXPECT_EQ(kind(), CalibrationMatch::Kind::Exact);
}

/// `cluster` with the job's settings, and the calibration as it was measured without them.
struct Job {
  Cluster cluster;
  Calibration calibration;
};

Job with_channels(const CalibratedCollective& entry, const Cluster& found, int channels) {
  Job job{found, of(entry)};
  job.cluster.nccl_settings.max_channels = channels;
  job.calibration.measured_on = {found};
  return job;
}

// What the settings make of the model they make of the measurement, of the very group and of
// others.
TEST(CalibratedCost, SettingsOfTheJobAreTheModels) {
  const Cluster found = load_cluster("dgx-a100-40");
  const CalibratedCollective entry = some_entry(found);
  const Job job = with_channels(entry, found, 2);
  for (const int ranks : {8, 4}) {
    const CollectiveGroup group{ranks, 1};
    const Seconds usual = time_of(of(entry), found, 1_GiB, group);
    const Seconds here = time_of(job.calibration, job.cluster, 1_GiB, group);
    // 2 of 12 channels: the transfer, nearly all of 1 GiB, takes six times as long.
    EXPECT_NEAR(here / usual, 6, 0.2) << ranks;
    EXPECT_EQ(calibration_match(job.calibration, job.cluster, CollectiveOp::AllReduce, group).kind,
              CalibrationMatch::Kind::Scaled);
  }
  EXPECT_THAT(calibration_note(job.calibration, job.cluster, CollectiveOp::AllReduce, {8, 1}),
              HasSubstr("as measured (dgx-a100-40), changed as the model is by the job's "
                        "environment"));
}

// Settings that leave the group's collectives as they are leave the measurement, at any size.
TEST(CalibratedCost, SettingsWithoutEffectLeaveItAsMeasured) {
  const Cluster found = load_cluster("dgx-a100-40");
  CalibratedCollective entry = some_entry(found);
  entry.fitted_residuals.sizes = {1_MiB, 2_MiB};
  const Job job = with_channels(entry, found, 64);
  for (const Bytes size : {1_KiB, 1_MiB, 1_GiB}) {
    const Seconds as_measured = time_of(of(entry), found, size, {8, 1});
    EXPECT_NEAR(time_of(job.calibration, job.cluster, size, {8, 1}) / as_measured, 1, 1e-9);
  }
  EXPECT_EQ(calibration_match(job.calibration, job.cluster, CollectiveOp::AllReduce, {8, 1}).kind,
            CalibrationMatch::Kind::Exact);
}

// A run that was measured with the settings of the job is as measured; without them it was other.
TEST(CalibratedCost, AnEntryHasItsOwnSettings) {
  const Cluster found = load_cluster("dgx-a100-40");
  CalibratedCollective entry = some_entry(found);
  entry.environment = {"NCCL_MAX_NCHANNELS=2"};
  Job job = with_channels(entry, found, 2);
  job.calibration.measured_on = {job.cluster};
  EXPECT_EQ(calibration_match(job.calibration, job.cluster, CollectiveOp::AllReduce, {8, 1}).kind,
            CalibrationMatch::Kind::Exact);
  const auto transfer = [&](const Cluster& cluster) {
    return calibrated_cost(job.calibration, cluster, CollectiveOp::AllReduce, 1_GiB, {8, 1})
        .transfer_time(cluster);
  };
  EXPECT_NEAR(transfer(job.cluster) / transfer(found), 6, 1e-6);  // the delay hardly changes
  EXPECT_THAT(calibration_note(job.calibration, job.cluster, CollectiveOp::AllReduce, {8, 1}),
              HasSubstr("as measured (dgx-a100-40, with NCCL_MAX_NCHANNELS=2)"));
  job.calibration.measured_on = {std::nullopt};
  EXPECT_THAT(foreign_machines(job.calibration, job.cluster),
              ElementsAre(HasSubstr("NCCL_MAX_NCHANNELS=2 leaves GPUs no way here")));
}

TEST(CalibratedCost, TheNearestGroupAndMostSizesWin) {
  const Cluster cluster = load_cluster("dgx-a100-40");
  CalibratedCollective two = some_entry(cluster);
  two.ranks = 2;
  CalibratedCollective few = some_entry(cluster);
  few.fitted_residuals.sizes = {1_MiB};
  CalibratedCollective many = some_entry(cluster);
  many.fitted_residuals.sizes = {1_MiB, 2_MiB};
  Calibration calibration;
  calibration.collectives = {two, few, many};
  const auto chosen = [&](int ranks) {
    return calibration_match(calibration, cluster, CollectiveOp::AllReduce, {ranks, 1}).entry -
           calibration.collectives.data();
  };
  EXPECT_EQ(chosen(2), 0);
  EXPECT_EQ(chosen(3), 0);  // 3/2 is less than 8/3
  EXPECT_EQ(chosen(8), 2);
}

// The file.

TEST(CalibrationFile, ReadsBackAsTheSame) {
  CalibratedCollective one = some_entry(load_cluster("dgx-a100-40"));
  one.line = rounded(one.line);
  one.log = "all_reduce.txt";
  one.source = "measured here";
  one.nccl_version = "2.26.2";
  one.fitted = {"floor", "bandwidth", "bend", "exponent"};
  one.hold_out = "every-second";
  one.fitted_residuals = {{1_KiB, 1_MiB}, {0.01, -0.02}, 0.015, 0.02, 0.02};
  one.held_out_residuals = {{2_KiB}, {0.03}, 0.03, 0.03, 0.03};
  one.launch = {8, true};
  one.environment = {"NCCL_ALGO=Ring", "NCCL_IB_HCA=mlx5_0,mlx5_1"};
  CalibratedCollective two = some_entry(load_cluster("dgx-a100-40", 2));
  two.line = rounded(two.line);
  Calibration calibration;
  calibration.collectives = {one, two};
  const std::string text = calibration_text(calibration);
  const Calibration read = parse_calibration(text, "c.json");
  EXPECT_EQ(read.collectives, calibration.collectives);
  EXPECT_EQ(read.file, "c.json");
  EXPECT_EQ(calibration_text(read), text);
}

std::string example() {
  return read_file(std::string(ZEROSIM_SOURCE_DIR) + "/examples/calibration.json");
}

TEST(CalibrationFile, TheExampleReadsBack) {
  const Calibration calibration = parse_calibration(example(), "calibration.json");
  ASSERT_EQ(calibration.collectives.size(), 1U);
  EXPECT_EQ(calibration_text(calibration), example());
}

std::string entry_text(const std::string& operation, const std::string& constants,
                       const std::string& rest = "") {
  return R"({"version": 1, "collectives": [
  {"operation": ")" +
         operation + R"(", "ranks": 8, "nodes": 1,
   "machine": {"name": "box", "gpu": "A100-SXM4-40", "intra": "nvswitch"},
   "constants": )" +
         constants + rest + "}]}";
}

const char* const kConstants =
    R"({"floor": "30us", "bend": "40us", "exponent": 0.25, "bandwidth": "200GB/s"})";

TEST(CalibrationFile, WhatItCannotHold) {
  CalibratedCollective entry = some_entry(load_cluster("dgx-a100-40"));
  EXPECT_EQ(out_of_bounds(entry), "");
  entry.line.floor = Seconds(6107.01);
  EXPECT_EQ(out_of_bounds(entry), "floor: found 6107.01 s, expected 1e-10 s to 3600 s");
}

TEST(CalibrationFile, ByHand) {
  const Calibration calibration = parse_calibration(entry_text("all_reduce", kConstants), "c.json");
  ASSERT_EQ(calibration.collectives.size(), 1U);
  EXPECT_EQ(calibration.collectives[0].line, rounded(some_line()));
  EXPECT_EQ(calibration.collectives[0].machine.gpu, "A100-SXM4-40");
}

std::string kernels_text(const std::string& gpu, const std::string& products) {
  return R"({"version": 1, "kernels": [{"gpu": ")" + gpu + R"(", "products": )" + products + "}]}";
}

const char* const kProducts = R"({"e0": 0.7, "k0": 150, "p64": 0.8, "fp32_accumulate": 0.95)";

TEST(CalibrationFile, KernelsByHand) {
  const Calibration calibration = parse_calibration(
      kernels_text("A100-PCIe-80",
                   std::string(kProducts) + R"(, "measured": [[4096, 1536, 5120, "NT", 787]]})"),
      "c.json");
  EXPECT_TRUE(calibration.collectives.empty());
  ASSERT_EQ(calibration.kernels.size(), 1U);
  const CalibratedKernels& kernels = calibration.kernels.front();
  EXPECT_EQ(kernels.gpu, "A100-PCIe-80");
  ASSERT_TRUE(kernels.products);
  EXPECT_EQ(*kernels.products,
            (CalibratedProducts{0.7, 150, 0.8, 0.95, {{4096, 1536, 5120, GemmLayout::NT, 787}}}));
  EXPECT_FALSE(kernels.forward);
  const Calibration again = parse_calibration(calibration_text(calibration), "c.json");
  EXPECT_EQ(again.kernels, calibration.kernels);
}

TEST(CalibrationFile, HostByHand) {
  const Calibration calibration = parse_calibration(
      R"({"version": 1, "host": {"interpreter": 1.25, "deepspeed_hook": "180us",
  "provenance": {"table": "runs.csv", "hold_out": "none"},
  "residuals": {"fitted": {"rows": 3, "median": 0.01, "p90": 0.02, "worst": 0.03}}}})",
      "c.json");
  CalibratedHost expected;
  expected.interpreter = 1.25;
  expected.deepspeed_hook = Seconds(180e-6);
  expected.table = "runs.csv";
  expected.hold_out = "none";
  expected.fitted = {3, 0.01, 0.02, 0.03};
  ASSERT_TRUE(calibration.host);
  EXPECT_EQ(*calibration.host, rounded(expected));
  EXPECT_FALSE(calibration.empty());
  const Calibration again = parse_calibration(calibration_text(calibration), "c.json");
  EXPECT_EQ(again.host, calibration.host);
  // The hook may be left out; a factor is held to 0.0001.
  EXPECT_FALSE(parse_calibration(R"({"version": 1, "host": {"interpreter": 2}})", "c.json")
                   .host->deepspeed_hook);
  expected.interpreter = 1.25004;
  EXPECT_EQ(rounded(expected).interpreter, 1.25);
}

std::string host_text(const std::string& members) {
  return R"({"version": 1, "host": {)" + members + "}}";
}

struct BadFile {
  const char* name;
  std::string text;
  std::string message;
};

std::string with_constant(const std::string& key, const std::string& value) {
  std::string text = entry_text("all_reduce", kConstants);
  const std::size_t begin = text.find("\"" + key + "\": ") + key.size() + 4;
  return text.replace(begin, text.find_first_of(",}", begin) - begin, value);
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = entry_text("all_reduce", kConstants);
  return text.replace(text.find(from), from.size(), to);
}

class BadCalibration : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadCalibration, IsOneErrorWithItsPlace) {
  try {
    (void)parse_calibration(GetParam().text, "c.json");
    FAIL() << "was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadCalibration,
    ::testing::Values(
        BadFile{"version", R"({"version": 2, "collectives": [], "kernels": []})",
                "c.json:1:13: version: found version 2, expected 1, which is all that this zerosim "
                "reads"},
        BadFile{"no_version", R"({"collectives": []})",
                "c.json:1:1: version: missing, expected an integer"},
        BadFile{"operation", entry_text("all_gather_into_tensr", kConstants),
                "c.json:2:17: collectives[0].operation: unknown operation "
                "\"all_gather_into_tensr\"; did you mean \"all_gather_into_tensor\"?"},
        BadFile{"negative", with_constant("floor", "\"-30us\""),
                "c.json:4:27: collectives[0].constants.floor: \"-30us\": negative, expected a "
                "number with a unit such as \"5us\""},
        BadFile{"zero", with_constant("floor", "\"0us\""),
                "c.json:4:27: collectives[0].constants.floor: found 0 s, expected 1e-10 s to 3600 "
                "s"},
        BadFile{"no_rate", with_constant("bandwidth", "\"0GB/s\""),
                "c.json:4:82: collectives[0].constants.bandwidth: found 0 GB/s, expected 0.0001 to "
                "1e+06"},
        BadFile{"unit", with_constant("bend", "40"),
                "c.json:4:43: collectives[0].constants.bend: found 40, expected text with a unit "
                "such as \"5us\""},
        BadFile{"exponent", with_constant("exponent", "1.5"),
                "c.json:4:63: collectives[0].constants.exponent: found 1.5, expected a number from "
                "0 to 0.9"},
        BadFile{"missing", entry_text("all_reduce", R"({"floor": "30us", "bend": "40us"})"),
                "c.json:4:17: collectives[0].constants.exponent: missing, expected a number"},
        BadFile{"misspelt", entry_text("all_reduce", kConstants, R"(, "residual": {})"),
                "c.json:4:94: collectives[0].residual: unknown key; did you mean \"residuals\"?"},
        BadFile{"residuals",
                entry_text("all_reduce", kConstants,
                           R"(, "residuals": {"fitted": {"sizes": [1024, 2048], "errors": [0],
   "median": 0, "p90": 0, "worst": 0}})"),
                "c.json:4:152: collectives[0].residuals.fitted.errors: found 1 errors of 2 sizes"},
        BadFile{"gpu", kernels_text("A100-PCI-80", std::string(kProducts) + "}"),
                "c.json:1:36: kernels[0].gpu: unknown GPU \"A100-PCI-80\"; did you mean "
                "\"A100-PCIe-80\"?"},
        BadFile{"share", kernels_text("A100-PCIe-80", R"({"e0": 1.7})"),
                "c.json:1:71: kernels[0].products.e0: found 1.7, expected a number from 0.01 to 1"},
        BadFile{
            "layout",
            kernels_text("A100-PCIe-80",
                         std::string(kProducts) + R"(, "measured": [[16, 16, 16, "TT", 500]]})"),
            "c.json:1:137: kernels[0].products.measured: expected [m, n, k, \"TN\" or \"NN\" or "
            "\"NT\", permille of peak], whole numbers from 1"},
        BadFile{"host_key", host_text(R"("interpretor": 1)"),
                "c.json:1:25: host.interpretor: unknown key; did you mean \"interpreter\"?"},
        BadFile{"host_negative", host_text(R"("interpreter": -1)"),
                "c.json:1:40: host.interpreter: found -1, expected a number from 0.01 to 100"},
        BadFile{"host_nan", host_text(R"("interpreter": NaN)"),
                "c.json:1:40: Syntax error: value, object or array expected"},
        BadFile{"host_text", host_text(R"("interpreter": "fast")"),
                "c.json:1:40: host.interpreter: found \"fast\", expected a number"},
        BadFile{"host_hook", host_text(R"("interpreter": 1, "deepspeed_hook": "-5us")"),
                "c.json:1:61: host.deepspeed_hook: \"-5us\": negative, expected a number with a "
                "unit such as \"5us\""},
        BadFile{"host_slow", host_text(R"("interpreter": 1, "deepspeed_hook": "2s")"),
                "c.json:1:61: host.deepspeed_hook: found 2 s, expected 0 s to 1 s"},
        BadFile{"host_number", host_text(R"("interpreter": 1, "deepspeed_hook": 5)"),
                "c.json:1:61: host.deepspeed_hook: found 5, expected text with a unit such as "
                "\"5us\""},
        BadFile{"host_rows", host_text(R"("interpreter": 1, "residuals": {"fitted": {"rows": 0}})"),
                "c.json:1:76: host.residuals.fitted.rows: found 0, expected an integer of at least "
                "1"},
        BadFile{"host_list", R"({"version": 1, "host": []})",
                "c.json:1:24: host: found an array, expected an object"},
        BadFile{"host_version", R"({"version": 3, "host": {"interpreter": 1}})",
                "c.json:1:13: version: found version 3, expected 1, which is all that this zerosim "
                "reads"},
        BadFile{"empty", R"({"version": 1, "collectives": []})",
                "c.json:1:31: collectives: found none, expected one at least"},
        BadFile{"nics_of_one_node", replaced("\"nvswitch\"", "\"nvswitch\", \"nics\": 8"),
                "c.json:3:83: collectives[0].machine.nics: expected none, as the group is on one "
                "node"},
        BadFile{"too_many_ranks", replaced("\"ranks\": 8", "\"ranks\": 1000000"),
                "c.json:2:40: collectives[0].ranks: found 1000000 on 1 node, expected at most 1024 "
                "on each"},
        BadFile{
            "errors",
            entry_text("all_reduce", kConstants,
                       R"(, "residuals": {"fitted": {"sizes": [1024], "errors": ["1 %"],
   "median": 0, "p90": 0, "worst": 0}})"),
            "c.json:4:147: collectives[0].residuals.fitted.errors[0]: found \"1 %\", expected a "
            "number"},
        BadFile{"json", "version: 1", "c.json:1:1: Syntax error: value, object or array expected"}),
    [](const auto& file) { return std::string(file.param.name); });

}  // namespace
}  // namespace zerosim
