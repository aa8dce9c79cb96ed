/// \file
/// Constants of collectives fitted to logs of nccl-tests: `zerosim calibrate LOG.txt...`.
///
/// Each log is one operation of one group on one machine (log_machine.h) and gives one
/// CollectiveLine (topology/calibration.h). Fitted to are out-of-place times of sizes from 1 KiB
/// up.
///
/// The fit: floor, bend, exponent and bandwidth minimise
///
///     mean(sqrt(e^2 + 0.01^2)) + 0.03 |ln(bandwidth / expected)|,  e = ln(t(V) / measured)
///
/// by NLopt's Subplex from nine starts. The first term is the mean |e|, rounded below 1 %, so that
/// a point that another job disturbed counts as little as it may. The second is the only prior: the
/// bandwidth that the model of the machine gives at 1 GiB, the size of the largest buckets that
/// training sends (far above it NCCL may choose another algorithm). It decides where the log does
/// not, as with small sizes alone; ten points that would rather have another bandwidth outweigh it.
///
/// Of few sizes fewer constants are fitted: all four from 6 sizes on; from 4 the exponent is 1/2;
/// from 2 the bend is 0. Logs of fewer are skipped. Sizes are counted once, however often a log has
/// them (nccl-tests -N); all of their times count in the fit. Skipped, too, is what a calibration
/// file cannot hold (times beyond an hour).
///
/// Why these constants: on the 31 logs of data/nccl_tests and 27 further curves of data/nccl, half
/// of the sizes held out, this form errs less than A + V/B + kappa sqrt(A V/B) above a floor, with
/// as many constants (README, Calibrate, has the figures). Fitting scales of the model's own terms,
/// with its choice of protocol for each size, is worse: where the model changes protocol at another
/// size than NCCL did, no scale helps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "topology/calibration.h"
#include "validate/collective_logs.h"
#include "validate/validation.h"

namespace zerosim {

/// Sizes that the fit does not see, by their index i from 0 among n different, ascending ones that
/// count.
enum class HoldOut {
  None,
  EverySecond,   ///< odd i
  LargestThird,  ///< i >= n - floor(n / 3)
};
/// "none", "every-second", "largest-third".
[[nodiscard]] std::string_view to_string(HoldOut hold_out);
/// \throws ConfigError  naming the flag, for another word
[[nodiscard]] HoldOut parse_hold_out(const std::string& text, const std::string& flag);
[[nodiscard]] bool is_held_out(std::size_t i, std::size_t n, HoldOut hold_out);

struct CollectiveSample {
  Bytes size;  ///< as nccl-tests counts it
  Bytes sent;  ///< by each rank
  Seconds time{0};
};

/// Different sizes among samples in ascending order.
[[nodiscard]] std::size_t count_sizes(std::span<const CollectiveSample> samples);

/// How many constants so many sizes decide: 4, 3 or 2; 0: too few.
[[nodiscard]] int fitted_constants(std::size_t sizes);

/// \param expected  bandwidth; 0: not known
/// \pre ascending samples of at least two sizes, with positive sizes and times
[[nodiscard]] CollectiveLine fit_line(std::span<const CollectiveSample> samples,
                                      BytesPerSecond expected);

/// A log that was fitted to.
struct FittedLog {
  NcclTest operation = NcclTest::AllReduce;
  CalibratedCollective entry;
  ValidationSummary fitted, held_out;  ///< of the entry's residuals
};

struct SkippedLog {
  std::string log;
  std::string why;
};

/// What was taken for granted of a log.
struct LogAssumption {
  std::string log;  ///< "": of all
  std::string sentence;
};

struct CollectiveFit {
  HoldOut hold_out = HoldOut::None;
  std::vector<FittedLog> logs;  ///< in the order that was asked for
  std::vector<SkippedLog> skipped;
  std::vector<std::string> notes;  ///< about logs
  std::vector<LogAssumption> assumptions;
  std::vector<Warning> warnings;       ///< names of the environment that are misspelt
  ValidationSummary fitted, held_out;  ///< over all points
};

/// \throws ConfigError, TraceError  as validate_collectives
[[nodiscard]] CollectiveFit fit_collectives(std::span<const std::string> paths, HoldOut hold_out,
                                            const LogMachineOptions& options);

[[nodiscard]] Calibration calibration_of(const CollectiveFit& fit);

/// At most 100 columns: constants, a line a log; errors, a line a log; all; what was skipped;
/// notes, assumptions, warnings.
[[nodiscard]] std::string fit_text(const CollectiveFit& fit);

/// {version, hold_out, logs: [{log, operation, ranks, nodes, machine, environment, constants,
/// fitted, held_out}], summary: {fitted, held_out}, skipped: [{log, why}], notes, assumptions:
/// [{log, sentence}], warnings: [{code, message}]}. Summaries are {count, skipped, median, p90,
/// worst}; times are seconds, bandwidth bytes per second; an assumption of all logs has no log.
[[nodiscard]] JsonValue fit_json(const CollectiveFit& fit);

}  // namespace zerosim
