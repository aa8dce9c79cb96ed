/// \file
/// Logs of nccl-tests against the collective model: `zerosim validate collectives LOG.txt...`.
///
/// Each row of a log is compared: the out-of-place time with what `collective_cost` says that the
/// operation takes alone on the machine (log_machine.h), for the vector's whole size; or with what
/// a calibration says (topology/calibrated_cost.h). The summary counts sizes from 1 KiB up; smaller
/// ones measure the launch alone, as 1 KiB does, and would only weigh it more. They are shown.
///
/// Skipped with a reason: operations that training does not issue (sendrecv, gather, scatter,
/// hypercube), empty vectors, times of 0, logs without a machine.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "topology/collective_model.h"
#include "traces/nccl_tests.h"
#include "validate/log_machine.h"
#include "validate/validation.h"

namespace zerosim {

/// Smaller sizes do not count.
inline constexpr Bytes kSmallestCounted{1024};

/// One size of a log.
struct CollectivePoint {
  int line = 0;
  Bytes size;
  Seconds measured{0};  ///< out of place
  std::optional<Seconds> measured_in_place;
  std::optional<Seconds> predicted;  ///< none: skipped
  double relative_error = 0;         ///< (predicted - measured) / measured
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  std::string why;  ///< skipped or not counted; empty: it counts

  [[nodiscard]] bool counts() const { return why.empty(); }
};

/// None: no collective that training issues.
[[nodiscard]] std::optional<CollectiveOp> collective_of(NcclTest test);

/// One log, or one of the runs that a file holds.
struct CollectiveLogCheck {
  std::string file;
  std::optional<NcclTest> operation;
  std::string operation_from;
  CollectiveGroup group;
  std::string ranks_from;
  std::string nccl_version;
  std::string source;                    ///< by the index; "": not told
  std::optional<Cluster> machine;        ///< none: `why` says so
  std::string cluster;                   ///< its name
  std::string machine_class;             ///< "" if there is no machine
  std::string why;                       ///< all of it is skipped; empty: it is not
  std::vector<std::string> environment;  ///< of the run, as CalibratedCollective has it
  std::vector<std::string> notes, assumptions;
  std::vector<CollectivePoint> points;
};

struct CollectiveValidation {
  std::vector<CollectiveLogCheck> logs;  ///< in the order that was asked for
  /// On the environment of all runs: names that are misspelt; what is set and not followed.
  std::vector<Warning> warnings;
  std::vector<std::string> assumptions;
};

/// \throws ConfigError  if a file or the user's cluster cannot be read; TraceError if it is no log.
[[nodiscard]] CollectiveValidation validate_collectives(std::span<const std::string> paths,
                                                        const LogMachineOptions& options);

/// The same for logs that are already read; `index` has the rows of their folder.
[[nodiscard]] CollectiveValidation validate_collectives(const std::vector<NcclTestsLog>& logs,
                                                        const LogIndex& index,
                                                        const LogMachineOptions& options);

/// Of the points that count. `skipped`: those that do not.
[[nodiscard]] ValidationSummary summary_of(const CollectiveValidation& validation);

/// Points of the logs that `key` puts together.
struct CollectiveGroupSummary {
  std::string name;
  int logs = 0;
  ValidationSummary summary;
};
/// Largest median first; groups of which nothing counts are last.
[[nodiscard]] std::vector<CollectiveGroupSummary> summaries_by(
    const CollectiveValidation& validation,
    const std::function<std::string(const CollectiveLogCheck&)>& key);

/// Whether something was compared, and median and p90 of the errors are at most these.
struct CollectiveTolerance {
  double median = 0.10;
  double p90 = 0.35;
};
[[nodiscard]] bool is_within(const ValidationSummary& summary,
                             const CollectiveTolerance& tolerance);
/// Which of them the summary exceeds, a sentence each; none if it is within.
[[nodiscard]] std::vector<std::string> exceeded(const ValidationSummary& summary,
                                                const CollectiveTolerance& tolerance);

/// At most 100 columns, but for a file's name that is longer: a line a log, a line an operation, a
/// line a kind of machine, worst median first; what was skipped; the summary. Every size of a log,
/// if there is one log or `sizes`.
[[nodiscard]] std::string collectives_text(const CollectiveValidation& validation, bool sizes);

/// {version, rows: [{id (file:line), log, operation, size, predicted, measured, measured_in_place
/// (seconds), relative_error, algorithm, protocol, skipped, why}], summary: {count, skipped,
/// median, p90, worst}, logs: [{name, operation, operation_from, ranks, ranks_from, nodes,
/// nccl_version, cluster, machine_class, why, notes, assumptions, summary}], operations: [...],
/// machines: [{name, logs, count, skipped, median, p90, worst}], warnings: [{code, message}],
/// assumptions}; the command adds `exceeded`. Rows below 1 KiB are `skipped`,
/// with their figures.
[[nodiscard]] JsonValue collectives_json(const CollectiveValidation& validation);

}  // namespace zerosim
