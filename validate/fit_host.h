/// \file
/// Host times fitted to measured training runs: `zerosim calibrate training_runs.csv`.
///
/// A processor is one factor on all host work of the interpreter, and one time for a hook of
/// DeepSpeed's ZeRO-3 (sim/engine/calibrated_host.h). They minimise, over the runs of the tables
/// (columns of published_runs.h) that are for fitting, have a measured step time and trust A or B,
///
///     mean over groups (mean over the runs of a group |ln(predicted / measured)|),
///
/// so that a group of thirty runs, which differ in one knob and are not independent, counts as one
/// of two does. The search goes along one constant after the other: seven values from a quarter to
/// four times the table's are simulated, then the best by linear interpolation of each run's time
/// between them, until that is where one has been simulated; again near it, until that gains
/// nothing. A step is a sum of host works where the host decides it, and no sum of anything where
/// it does not, so few are needed.
///
/// A step does not become shorter when host work becomes longer, so a run is simulated only where
/// what is known of it leaves its time open: what the host does not decide costs two simulations.
///
/// Which groups: those of zerosim's own split (run_split.h) if a table has one of them, and the
/// others judge; else all, or by HoldOut groups in the order in which they first occur.
///
/// Not fitted: one processor a machine, as tables do not tell which it was; passes over host
/// memory, copies and calls of the allocator; efficiencies of kernels, which runs cannot tell from
/// the rest of a step: they have tables of their own (fit_kernels.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "topology/calibration.h"
#include "validate/fit_collectives.h"

namespace zerosim {

/// A run with both times.
struct FittedRun {
  std::string id, group, source, trust;
  bool held_out = false;
  bool reacts = false;  ///< its step changes as the constants that were fitted do
  double measured = 0;  ///< seconds
  double before = 0;    ///< predicted by the table
  double after = 0;     ///< predicted by the fitted constants
};

struct HostFit {
  std::string input;
  std::string hold_out;                ///< "none", "every-second", "largest-third", or the split
  std::optional<CalibratedHost> host;  ///< none: no run reacts
  bool at_end = false;                 ///< of what was searched: the runs ask for more
  std::vector<FittedRun> runs;         ///< in the order of the tables
  int unused = 0;                      ///< rows with trust C, without step time, or not simulated
};

struct HostFitOptions {
  std::optional<HoldOut> hold_out;  ///< nullopt: by run_split.h, if a table has its groups
  Calibration calibration{};        ///< what else applies; its host is not read
  std::function<void(const std::string&)> progress{};  ///< told what is about to be simulated
};

/// \throws ConfigError, TraceError  as validate_runs
[[nodiscard]] HostFit fit_host(std::span<const std::string> paths,
                               const HostFitOptions& options = {});

/// Constants; errors before and after by source, of what was fitted to and of what judges; the
/// worst runs.
[[nodiscard]] std::string host_fit_text(const HostFit& fit);
/// {version, input, hold_out, host: as in a calibration file, or null; at_end, errors: {fitted:
/// {before, after: {count, mean, median, p90, worst, bias}}, held_out}, runs: [{id, group, source,
/// trust, held_out, reacts, measured, before, after}], unused}; times in seconds
[[nodiscard]] JsonValue host_fit_json(const HostFit& fit);

}  // namespace zerosim
