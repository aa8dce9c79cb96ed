/// \file
/// Reads what nccl-tests (and rccl-tests) print, as people keep it.
///
///     #                                                out-of-place                 in-place
///     #       size    count    type  redop  root   time  algbw  busbw #wrong   time  algbw ...
///             1024      256   float    sum    -1  18.20   0.06   0.10      0  18.05   0.06 ...
///
/// Columns that occur: `redop` and `root` (either may be absent), then one or two blocks of `time`
/// (microseconds), `algbw`, `busbw` (GB/s) and `#wrong` (older: `error`; "N/A" where nothing was
/// checked), then in newest releases a timestamp. What they are follows from a row itself, so the
/// lines of comments may be missing. Labels that launchers put before lines ("[1,0]<stdout>:",
/// "0: ") and whatever else a launcher or NCCL prints between are skipped. A last row that is cut
/// off is told and left out. Several runs in one file are several logs: a header, a list of devices
/// or a first line begins the next one; and where those are missing a row of another kind of
/// operation (a reduction or none, with a root or none, another size / count), which is told.
///
/// What the columns mean has changed, and is told from the figures themselves:
///
/// - `size` is the whole vector: the gathered one of an all-gather, the input of a reduce-scatter.
///   Where size / time is 1/n of the printed algbw, it was one rank's share, and is multiplied.
/// - `algbw` is size / time. Releases of 2019 and before print busbw in both columns for
///   all-gather and reduce-scatter: then algbw is busbw / factor.
///
/// The operation, if more than one fits, by this order of evidence: the rows (a reduction has a
/// `redop`, a broadcast a `root`; size / count is n only where each rank holds a share; busbw /
/// algbw; nccl-tests checks no in-place all-to-all), the program's name in a line before the table
/// ("all_reduce_perf"), the file's name. The first wins where they disagree, which is told.
///
/// The number of ranks: size / count where that is n, else the list of devices if busbw / algbw
/// admits it (the two disagree where somebody pasted a list), else what busbw / algbw says if that
/// is one number: 2(n - 1)/n of a large n is not told apart from that of n + 1.
///
/// Not read: JSON output of newest releases, the average bus bandwidth.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace zerosim {

enum class NcclTest {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  SendReceive,
  Gather,
  Scatter,
  HyperCube,
};

/// "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv",
/// "gather", "scatter", "hypercube": nccl-tests' programs without "_perf".
[[nodiscard]] std::string_view to_string(NcclTest test);
[[nodiscard]] std::vector<std::string> nccl_test_names();
/// The test that a file's or program's name speaks of: "p5_allgather.txt", "all-reduce", "bcast".
[[nodiscard]] std::optional<NcclTest> nccl_test_in(std::string_view name);

/// busbw / algbw as nccl-tests defines them (doc/PERFORMANCE.md).
[[nodiscard]] double bus_factor(NcclTest test, int ranks);

/// A line of the list of devices.
struct NcclTestsDevice {
  int rank = 0;
  int group = 0;  ///< with NCCL_TESTS_SPLIT several communicators run side by side
  std::int64_t process = 0;
  std::string host;
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
};

/// One block of a row.
struct NcclTestsTiming {
  Seconds time{0};
  double algbw = 0;  ///< GB/s, size / time as the size column counts now
  double busbw = 0;  ///< GB/s
};

struct NcclTestsPoint {
  Bytes size;  ///< of the whole vector
  std::int64_t count = 0;
  std::string type;
  NcclTestsTiming out_of_place;
  std::optional<NcclTestsTiming> in_place;
  int line = 0;
};

/// What the figures of a log were found to mean.
enum class NcclTestsColumns {
  Current,       ///< size is the whole vector, algbw = size / time
  BusbwTwice,    ///< the algbw column shows busbw
  SizeOfARank,   ///< the size column shows one rank's share
  Inconsistent,  ///< algbw fits size / time in none of these ways
};

struct NcclTestsLog {
  std::string file;
  std::optional<NcclTest> operation;
  std::string operation_from;  ///< "the rows", "line 1: all_reduce_perf", "the file's name", ""
  std::optional<int> ranks;    ///< of one communicator
  std::string ranks_from;      ///< "size / count", "the list of devices", "busbw / algbw", ""
  std::vector<NcclTestsDevice> devices;
  int ranks_per_process = 0;  ///< 0: not known
  /// Rows without the columns redop and root: nccl-tests before 2.13 (2022).
  bool before_root = false;
  std::string nccl_version;      ///< "2.26.2+cuda12.8"; "": not stated
  bool rccl = false;             ///< AMD's
  double bandwidth_step = 0.01;  ///< GB/s, of the last digit that algbw and busbw are printed with
  NcclTestsColumns columns = NcclTestsColumns::Current;
  std::vector<std::string> notes;  ///< what was repaired, left out or contradictory
  std::vector<NcclTestsPoint> points;
};

/// Whether `ranks` is what busbw / algbw of the rows says, as far as their digits go.
[[nodiscard]] bool admits_ranks(const NcclTestsLog& log, int ranks);

/// \param file  stands for the text in messages, and may name the operation
/// \throws TraceError  with line and column: a row with too few or too many columns, an unknown
///                     type, what is no number; without line: no row at all.
[[nodiscard]] std::vector<NcclTestsLog> parse_nccl_tests(std::string_view text,
                                                         const std::string& file);

/// \throws ConfigError  if the file cannot be read; TraceError as above.
[[nodiscard]] std::vector<NcclTestsLog> read_nccl_tests(const std::string& path);

}  // namespace zerosim
