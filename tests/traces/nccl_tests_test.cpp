#include "traces/nccl_tests.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kFolder = std::string(ZEROSIM_TEST_DATA) + "/nccl_tests/";

NcclTestsLog of_file(const std::string& name) {
  const std::vector<NcclTestsLog> logs = read_nccl_tests(kFolder + name);
  EXPECT_EQ(logs.size(), 1U);
  return logs.front();
}

NcclTestsLog of_text(const std::string& text, const std::string& file = "log.txt") {
  const std::vector<NcclTestsLog> logs = parse_nccl_tests(text, file);
  EXPECT_EQ(logs.size(), 1U);
  return logs.front();
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_nccl_tests(text, "log.txt"));
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no error";
}

const std::string kHeader =
    "#       size         count      type   redop    root     time   algbw\n";
/// 1 MiB in 20 us: 1048576 B / 20 us = 52.43 GB/s, of 8 ranks x 2 x 7/8 = 91.75 GB/s busbw.
const std::string kRow = " 1048576 262144 float sum -1 20.00 52.43 91.75 0 21.00 49.93 87.38 0\n";

// Whole logs as published.

TEST(NcclTestsLog, OneProcessWithEightGpusAndOlderColumns) {
  const NcclTestsLog log = of_file("a100_8gpu_nvswitch_allreduce.txt");
  EXPECT_EQ(log.operation, NcclTest::AllReduce);
  EXPECT_EQ(log.operation_from, "the rows");
  EXPECT_EQ(log.ranks, 8);
  EXPECT_EQ(log.ranks_from, "the list of devices");
  EXPECT_EQ(log.ranks_per_process, 8);  // nThread 1 nGpus 8
  ASSERT_EQ(log.devices.size(), 8U);
  EXPECT_EQ(log.devices[7].rank, 7);
  EXPECT_EQ(log.devices[7].host, "node0");
  EXPECT_EQ(log.devices[7].process, 1007);
  EXPECT_EQ(log.devices[7].name, "A100-SXM4-40GB");
  EXPECT_EQ(log.columns, NcclTestsColumns::Current);
  EXPECT_THAT(log.notes, IsEmpty());
  ASSERT_EQ(log.points.size(), 32U);
  const NcclTestsPoint& last = log.points.back();
  EXPECT_EQ(last.size, Bytes(8589934592));
  EXPECT_EQ(last.count, 2147483648);
  EXPECT_EQ(last.type, "float");
  EXPECT_DOUBLE_EQ(last.out_of_place.time.count(), 63896e-6);
  EXPECT_DOUBLE_EQ(last.out_of_place.algbw, 134.44);
  EXPECT_DOUBLE_EQ(last.out_of_place.busbw, 235.26);
  ASSERT_TRUE(last.in_place);
  EXPECT_DOUBLE_EQ(last.in_place->time.count(), 63959e-6);
}

TEST(NcclTestsLog, AlgbwOfOldReleasesIsBusbw) {
  const NcclTestsLog log = of_file("dgx2_v100_12gpu_allgather.txt");
  EXPECT_EQ(log.operation, NcclTest::AllGather);
  EXPECT_EQ(log.operation_from, "the rows");  // in place, too, something was checked
  EXPECT_EQ(log.ranks, 12);                   // 48 B / (1 x 4 B)
  EXPECT_EQ(log.ranks_from, "size / count");
  EXPECT_EQ(log.columns, NcclTestsColumns::BusbwTwice);
  EXPECT_THAT(log.notes, ElementsAre(HasSubstr("algbw column shows busbw")));
  // 8589934560 B / 106773 us = 80.45 GB/s; printed: 73.75 = 80.45 x 11/12.
  const NcclTestsPoint& last = log.points.back();
  EXPECT_EQ(last.size, Bytes(8589934560));
  EXPECT_NEAR(last.out_of_place.algbw, 80.45, 0.01);
  EXPECT_DOUBLE_EQ(last.out_of_place.busbw, 73.75);
}

TEST(NcclTestsLog, AnAllToAllIsNotCheckedInPlace) {
  const NcclTestsLog log = of_file("h100_8gpu_bf16_alltoall.txt");
  EXPECT_EQ(log.operation, NcclTest::AllToAll);
  EXPECT_EQ(log.operation_from, "the rows");
  EXPECT_EQ(log.ranks, 8);  // 1048576 / (65536 x 2)
  EXPECT_EQ(log.ranks_per_process, 0);
  EXPECT_EQ(log.points.front().type, "bfloat16");
}

TEST(NcclTestsLog, RanksByBandwidthsAlone) {
  // 2 (n - 1)/n = 487.09 / 259.78 = 1.8750: n = 16.
  EXPECT_EQ(of_file("p5_2n_efa_allreduce.txt").ranks, 16);
  // 386.56 / 195.31 = 1.97921, +-0.00008: n = 2/(2 - 1.97921) = 96.2, 95.9 to 96.6.
  const NcclTestsLog log = of_file("h100_12n_ib_sharp_allreduce.txt");
  EXPECT_EQ(log.ranks, 96);
  EXPECT_EQ(log.ranks_from, "busbw / algbw");
  EXPECT_TRUE(admits_ranks(log, 96));
  EXPECT_FALSE(admits_ranks(log, 64));
}

TEST(NcclTestsLog, TwoRanksOfWhichBusbwIsAlgbw) {
  const NcclTestsLog log = of_file("rtx4090_2gpu_host_allreduce.txt");
  EXPECT_EQ(log.operation, NcclTest::AllReduce);  // it reduces and has no root
  EXPECT_EQ(log.ranks, 2);
  EXPECT_EQ(log.columns, NcclTestsColumns::Current);
}

TEST(NcclTestsLog, VersionHostsAndGroups) {
  const NcclTestsLog log = of_file("oci_a100_2n_roce_large_allreduce.txt");
  EXPECT_EQ(log.nccl_version, "2.29.3+cuda13.1");
  EXPECT_EQ(log.devices.back().host, "node1");
  EXPECT_EQ(log.devices.back().name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(log.ranks_per_process, 1);  // each its own process
  EXPECT_FALSE(log.rccl);
}

// What launchers print around.

TEST(NcclTestsLog, LabelsAndNoise) {
  const std::string mpirun =
      "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.\n"
      "[1,0]<stdout>:# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576\n"
      "[1,0]<stdout>:#\n"
      "node0:71:71 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7\n"
      "[1,0]<stdout>:" +
      kHeader + "[1,0]<stderr>:node0:71:71 [0] NCCL INFO comm 0x1 rank 0 nranks 8\n" +
      "[1,0]<stdout>:" + kRow + "[1,0]<stdout>:# Avg bus bandwidth : 3\n";
  EXPECT_EQ(of_text(mpirun).points.size(), 1U);
  EXPECT_EQ(of_text("0: " + kHeader + "0: " + kRow).points.size(), 1U);
  EXPECT_EQ(of_text(kHeader + "launcher-x7 |" + kRow).points.size(), 1U);
  EXPECT_EQ(of_text("\r\n" + kHeader + kRow.substr(0, kRow.size() - 1) + "\r\n").points.size(), 1U);
  // A row behind a label that rows before had is held to be one.
  EXPECT_THAT(error_of(kHeader + "pod: " + kRow + "pod: 2 2 float sum -1 x\n" + kRow),
              HasSubstr("log.txt:3:23: found a row of 6 columns, expected 13"));
}

TEST(NcclTestsLog, ALastRowThatIsCutOffIsTold) {
  const NcclTestsLog log = of_text(kHeader + kRow + " 2097152 524288 float sum -1 31.");
  EXPECT_EQ(log.points.size(), 1U);
  EXPECT_THAT(log.notes, ElementsAre("line 3, the last, is cut off and left out"));
  EXPECT_EQ(of_text(kHeader + kRow + " 2097152 524").notes.size(), 1U);
  // Cut behind the first block, which would read as a row of one block.
  EXPECT_EQ(of_text(kHeader + kRow + "2 2 float sum -1 20.0 1.00 1.00 0").points.size(), 1U);
}

TEST(NcclTestsLog, OneBlockAndTimestamps) {
  const NcclTestsLog one =
      of_text(kHeader + " 1048576 262144 float sum -1 20.00 52.43 91.75 N/A\n");
  EXPECT_FALSE(one.points.front().in_place);
  const std::string dated = kRow.substr(0, kRow.size() - 1) + " 2025-06-01 12:00:01\n";
  EXPECT_EQ(of_text(kHeader + dated).points.size(), 1U);
  const NcclTestsLog blank =
      of_text(" 1048576 262144 float sum -1 20.00 52.43 91.75 0 N/A N/A N/A N/A\n");
  EXPECT_FALSE(blank.points.front().in_place);
}

TEST(NcclTestsLog, SeveralRunsInOneFile) {
  const std::string text = "$ ./build/all_reduce_perf -g 8\n# nThread 1 nGpus 8\n" + kHeader +
                           kRow + "# Avg bus bandwidth : 3\n$ ./build/reduce_scatter_perf -g 8\n" +
                           "# nThread 1 nGpus 4\n" + kHeader +
                           " 1048576 65536 float sum -1 10.00 104.86 78.64 0\n";
  const std::vector<NcclTestsLog> logs = parse_nccl_tests(text, "log.txt");
  ASSERT_EQ(logs.size(), 2U);
  EXPECT_EQ(logs[0].operation, NcclTest::AllReduce);
  EXPECT_EQ(logs[0].ranks_per_process, 8);
  EXPECT_EQ(logs[1].operation, NcclTest::ReduceScatter);
  EXPECT_EQ(logs[1].ranks, 4);  // 1048576 / (65536 x 4)
  EXPECT_EQ(logs[1].ranks_per_process, 4);
  EXPECT_THAT(logs[0].notes, IsEmpty());
  EXPECT_THAT(logs[1].notes, IsEmpty());
}

// What the figures mean.

// Comments stripped: all-reduces, then all-gathers of 8 ranks, whose counts are those of a rank.
TEST(NcclTestsLog, AnotherOperationIsAnotherRun) {
  const std::string gather =
      " 1048576 32768 float none -1 20.00 52.43 45.88 0 21.00 49.93 43.69 0\n";
  const std::vector<NcclTestsLog> logs = parse_nccl_tests(kRow + kRow + gather, "log.txt");
  ASSERT_EQ(logs.size(), 2U);
  EXPECT_EQ(logs[0].operation, NcclTest::AllReduce);
  EXPECT_EQ(logs[0].points.size(), 2U);
  EXPECT_EQ(logs[0].ranks, 8);
  EXPECT_EQ(logs[1].operation, NcclTest::AllGather);
  EXPECT_EQ(logs[1].ranks, 8);
  EXPECT_THAT(logs[1].notes,
              ElementsAre("line 3: rows of another operation without a header: a run "
                          "of its own"));
  // Reductions of both kinds differ in size / count alone; broadcasts have a root.
  const std::string scatter = " 1048576 32768 float sum -1 20.00 52.43 45.88 0\n";
  const std::string reduce = " 1048576 262144 float sum 0 20.00 52.43 52.43 0\n";
  const std::string all = " 1048576 262144 float sum -1 20.00 52.43 91.75 0\n";
  std::vector<NcclTest> found;
  for (const NcclTestsLog& log : parse_nccl_tests(all + scatter + reduce, "log.txt")) {
    ASSERT_TRUE(log.operation);
    found.push_back(*log.operation);
  }
  EXPECT_THAT(found, ElementsAre(NcclTest::AllReduce, NcclTest::ReduceScatter, NcclTest::Reduce));
  // Sums and products, as nccl-tests -o all prints them, are one table.
  const std::string product = " 1048576 262144 float prod -1 20.00 52.43 91.75 0\n";
  EXPECT_EQ(parse_nccl_tests(all + product, "log.txt").size(), 1U);
}

TEST(NcclTestsLog, OrderOfEvidenceForTheOperation) {
  // 4 ranks, nothing checked: an all-gather or an all-to-all.
  const std::string row = " 1048576 65536 float none -1 10.00 104.86 78.64 N/A\n";
  EXPECT_FALSE(of_text(row).operation);
  const NcclTestsLog by_program = of_text("srun ./alltoall_perf -b 8\n" + row);
  EXPECT_EQ(by_program.operation, NcclTest::AllToAll);
  EXPECT_EQ(by_program.operation_from, "line 1: alltoall_perf");
  const NcclTestsLog by_name = of_text(row, "runs/p5-all-gather.log");
  EXPECT_EQ(by_name.operation, NcclTest::AllGather);
  EXPECT_EQ(by_name.operation_from, "the file's name");
  // The rows win.
  const NcclTestsLog contradicted = of_text("./reduce_scatter_perf\n" + row, "all_gather.txt");
  EXPECT_EQ(contradicted.operation, NcclTest::AllGather);
  EXPECT_THAT(contradicted.notes,
              ElementsAre("line 1: reduce_scatter_perf says reduce_scatter, which the rows are "
                          "not"));
}

TEST(NcclTestsLog, OperationsByTheirRows) {
  const auto test = [](const std::string& row) { return of_text(row + "\n").operation; };
  // size / time = algbw = busbw, with a root.
  EXPECT_EQ(test("1048576 262144 float none 0 10.00 104.86 104.86 0"), NcclTest::Broadcast);
  EXPECT_EQ(test("1048576 262144 float sum 0 10.00 104.86 104.86 0"), NcclTest::Reduce);
  EXPECT_EQ(test("1048576 262144 float 0 10.00 104.86 104.86 0"), NcclTest::Broadcast);
  EXPECT_EQ(test("1048576 262144 float none -1 10.00 104.86 104.86 0"), std::nullopt);
  EXPECT_EQ(
      of_text("1048576 262144 float none -1 10.00 104.86 104.86 0\n", "sendrecv.txt").operation,
      NcclTest::SendReceive);
  EXPECT_EQ(test("1048576 65536 float 10.00 104.86 78.64 0e+00 10.00 104.86 78.64 0e+00"),
            NcclTest::AllGather);
  // Too small to tell by bandwidths: a reduction without root, size = count x 4.
  EXPECT_EQ(test("1024 256 float sum -1 10.00 0.10 0.18 0"), NcclTest::AllReduce);
  // One rank: busbw is 0.
  EXPECT_EQ(of_text("1048576 262144 float sum -1 10.00 104.86 0.00 0\n").ranks, 1);
}

TEST(NcclTestsLog, SizesOfOneRankAreMultiplied) {
  // 4 ranks with 1 MiB each in 40 us: 4 MiB / 40 us = 104.86 GB/s, x 3/4 = 78.64.
  const NcclTestsLog log = of_text(
      "1048576 262144 float none -1 40.00 104.86 78.64 0 40.00 104.86 78.64 0\n", "gather.txt");
  EXPECT_EQ(log.operation, NcclTest::AllGather);
  EXPECT_EQ(log.ranks, 4);  // 1/(1 - 0.74995)
  EXPECT_EQ(log.columns, NcclTestsColumns::SizeOfARank);
  EXPECT_EQ(log.points.front().size, Bytes(4194304));
  EXPECT_THAT(log.notes.back(), HasSubstr("one rank's share (algbw is 4 x size / time)"));
}

TEST(NcclTestsLog, TimesThatDoNotFitAreTold) {
  // 1048576 B / 40 us is 26.2 GB/s, half of what is printed.
  const NcclTestsLog log = of_text("1048576 262144 float sum -1 40.00 52.43 91.75 0\n");
  EXPECT_EQ(log.columns, NcclTestsColumns::Inconsistent);
  EXPECT_THAT(log.notes, ElementsAre(HasSubstr("algbw is 2 x size / time")));
}

TEST(NcclTestsLog, AListOfDevicesThatIsNotOfThisRun) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank) {
    text += "#  Rank " + std::to_string(rank) + " Group 0 Pid 7 on a device " +
            std::to_string(rank) + " [0x07] NVIDIA H100 80GB HBM3\n";
  }
  const NcclTestsLog log = of_text(text + kHeader + kRow);
  EXPECT_EQ(log.ranks, 8);  // 91.75 / 52.43 = 1.75
  EXPECT_EQ(log.ranks_from, "busbw / algbw");
  EXPECT_EQ(log.ranks_per_process, 4);
  EXPECT_THAT(log.notes, ElementsAre("the list of devices has 4 ranks, but busbw / algbw says 8"));
}

TEST(NcclTestsLog, ManyRanksAreARange) {
  // 405.74 / 203.01 = 1.99862 +- 0.00008: n = 1374 to 1541, 1440 among them.
  const NcclTestsLog log =
      of_text("17179869184 4294967296 float sum -1 84625 203.01 405.74 0 84828 202.53 404.77 0\n");
  EXPECT_FALSE(log.ranks);
  EXPECT_TRUE(admits_ranks(log, 1440));
  EXPECT_FALSE(admits_ranks(log, 1152));
}

TEST(NcclTestsLog, BandwidthsOfFewerDigitsTellLess) {
  // 91.7 / 52.4 = 1.750 +- 0.003, n = 7.9 to 8.1; 92 / 52 = 1.77 +- 0.03: n = 7.9 to 9.8.
  EXPECT_EQ(of_text("1048576 262144 float sum -1 20.0 52.4 91.7 0\n").ranks, 8);
  const NcclTestsLog log = of_text("1048576 262144 float sum -1 20 52 92 0\n");
  EXPECT_FALSE(log.ranks);
  EXPECT_TRUE(admits_ranks(log, 8));
  EXPECT_TRUE(admits_ranks(log, 9));
  EXPECT_FALSE(admits_ranks(log, 16));
}

TEST(NcclTestsLog, SizesOfZeroAreRows) {
  const NcclTestsLog log = of_text("0 0 float sum -1 0.21 0.00 0.00 0 0.20 0.00 0.00 0\n" + kRow);
  EXPECT_EQ(log.points.front().size, Bytes(0));
  EXPECT_EQ(log.ranks, 8);
}

TEST(NcclTestsLog, RcclIsRecognised) {
  EXPECT_TRUE(of_text("# rccl-tests: Version develop\n" + kRow).rccl);
  EXPECT_TRUE(
      of_text("# Rank 0 Group 0 Pid 1 on a device 0 [0000:0c:00] AMD Instinct MI300X\n" + kRow)
          .rccl);
}

// Bad input.

TEST(NcclTestsLog, NoRowsAtAll) {
  EXPECT_THAT(error_of(""), HasSubstr("log.txt: found no row of nccl-tests' results"));
  EXPECT_THAT(error_of("# Avg bus bandwidth : 12\nhello\n"), HasSubstr("found no row"));
}

TEST(NcclTestsLog, RowsThatAreNone) {
  const auto error = [](const std::string& row) { return error_of(kHeader + row + "\n" + kRow); };
  EXPECT_THAT(error("1024 256 float sum -1 20.0 0.1 0.1 0 21.0"),
              HasSubstr("log.txt:2:38: found a row of 10 columns, expected 7 to 13"));
  EXPECT_THAT(error_of(kRow + "1024 256 float 20.0 0.1 0.1 0\n" + kRow),
              HasSubstr("log.txt:2:29: found a row of 7 columns, expected 13 as in the rows"));
  EXPECT_THAT(error("1024 256 flaot sum -1 20.0 0.1 0.1 0"),
              HasSubstr("log.txt:2:10: found \"flaot\" under type, expected one of"));
  EXPECT_THAT(error("1024 256 flaot sum -1 20.0 0.1 0.1 0"), HasSubstr("did you mean \"float\"?"));
  EXPECT_THAT(error("1o24 256 float sum -1 20.0 0.1 0.1 0"),
              HasSubstr("log.txt:2:1: found \"1o24\" under size, expected a whole number"));
  EXPECT_THAT(error("1024 -256 float sum -1 20.0 0.1 0.1 0"),
              HasSubstr("log.txt:2:6: found \"-256\" under count"));
  EXPECT_THAT(error("99999999999999999 1 float sum -1 20.0 0.1 0.1 0"),
              HasSubstr("found \"99999999999999999\" under size"));
  EXPECT_THAT(
      error("1024 256 float sum -1 20,0 0.1 0.1 0"),
      HasSubstr("log.txt:2:23: found \"20,0\" under time, expected a number of at least 0"));
  EXPECT_THAT(error("1024 256 float sum -1 -1 0.1 0.1 0"), HasSubstr("found \"-1\" under time"));
  EXPECT_THAT(error("1024 256 float sum -1 nan 0.1 0.1 0"), HasSubstr("found \"nan\" under time"));
  EXPECT_THAT(error("1024 256 float sum all 20.0 0.1 0.1 0"),
              HasSubstr("log.txt:2:20: found \"all\" under root, expected a rank or -1"));
  EXPECT_THAT(error("1024 256 float sum -1 20.0 0.1 0.1 ok"),
              HasSubstr("found \"ok\" under #wrong or error"));
  EXPECT_THAT(error("1024 256 float sum -1 N/A N/A N/A N/A"),
              HasSubstr("found no out-of-place time"));
}

TEST(NcclTestsLog, NamesAndFactors) {
  EXPECT_EQ(nccl_test_in("p4d-AllReduce-v2"), NcclTest::AllReduce);
  EXPECT_EQ(nccl_test_in("bcast"), NcclTest::Broadcast);
  EXPECT_EQ(nccl_test_in("h100_8gpu"), std::nullopt);
  EXPECT_DOUBLE_EQ(bus_factor(NcclTest::AllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(NcclTest::AllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(NcclTest::Broadcast, 4), 1);
}

}  // namespace
}  // namespace zerosim
