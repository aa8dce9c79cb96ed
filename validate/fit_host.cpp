#include "validate/fit_host.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/host_time.h"
#include "validate/published_runs.h"
#include "validate/run_split.h"

namespace zerosim {
namespace {

// The search that fit_host.h tells of.
constexpr double kRange = 4;          // times the table's, and through it
constexpr int kGrid = 7;              // values of the first search
constexpr double kNear = 1.2;         // of a further search
constexpr double kResolution = 5e-3;  // of the logarithm
constexpr double kLeastGain = 1e-4;   // of the mean log error
constexpr int kMostRounds = 4;
constexpr double kSameTime = 1e-4;  // relative
constexpr double kReaction = 1e-3;  // of the step's time, for
constexpr double kProbe = 1.1;      // so much more host work
constexpr const char* kOwnSplit = "groups of zerosim's split";

/// The constants.
struct HostPoint {
  double interpreter = 1;
  double hook = 0;  ///< seconds
};

HostPoint table_point() {
  return {1, default_host_times().deepspeed_hook.count()};
}

CalibratedHost host_of(const HostPoint& point) {
  CalibratedHost host;
  host.interpreter = point.interpreter;
  host.deepspeed_hook = Seconds(point.hook);
  return host;
}

bool is_below(const HostPoint& a, const HostPoint& b) {
  return a.interpreter <= b.interpreter && a.hook <= b.hook;
}

/// A run of the tables, and what is known of its step.
struct Run {
  std::size_t table = 0, row = 0;
  FittedRun figures;
  std::vector<std::pair<HostPoint, double>> known;

  /// The time at `point` if what is known leaves no room: time grows with both constants.
  [[nodiscard]] std::optional<double> time_at(const HostPoint& point) const {
    double least = 0, most = std::numeric_limits<double>::infinity();
    for (const auto& [other, time] : known) {
      if (is_below(other, point)) least = std::max(least, time);
      if (is_below(point, other)) most = std::min(most, time);
    }
    if (std::isfinite(most) && most - least <= kSameTime * most) return (least + most) / 2;
    return std::nullopt;
  }
};

using Runs = std::vector<Run*>;

/// Simulates runs at points.
class Simulator {
 public:
  Simulator(const std::vector<CsvTable>& tables, const HostFitOptions& options)
      : tables_(tables), options_(options) {}

  /// Afterwards `time_at(point)` of each knows.
  void simulate(const Runs& runs, const HostPoint& point) {
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      Runs open;
      std::copy_if(runs.begin(), runs.end(), std::back_inserter(open),
                   [&](const Run* run) { return run->table == table && !run->time_at(point); });
      if (!open.empty()) simulate_of(table, open, point);
    }
  }

 private:
  void simulate_of(std::size_t table, const Runs& runs, const HostPoint& point) {
    if (options_.progress) {
      options_.progress(format("factor {:.3f}, hook {:.0f} us: {} runs", point.interpreter,
                               point.hook * 1e6, runs.size()));
    }
    CsvTable asked{tables_[table].file, tables_[table].header, {}};
    asked.rows.reserve(runs.size());
    for (const Run* run : runs) asked.rows.push_back(tables_[table].rows[run->row]);
    RunsOptions with{{}, options_.calibration};
    with.calibration.host = host_of(point);
    const RunsValidation validation = validate_runs(asked, with);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const RunCheck& check = validation.runs[i];
      if (!check.has_step()) throw SimulationError(format("{}: {}", check.id, check.why));
      runs[i]->known.emplace_back(point, check.predicted->step.count());
    }
  }

  const std::vector<CsvTable>& tables_;
  const HostFitOptions& options_;
};

// ---- which runs ------------------------------------------------------------------------------

bool is_usable(const RunCheck& check) {
  return check.has_step() && check.trust != "C";
}

std::vector<std::string> groups_of(const std::vector<Run>& runs) {
  std::vector<std::string> groups;
  for (const Run& run : runs) {
    if (std::find(groups.begin(), groups.end(), run.figures.group) == groups.end()) {
      groups.push_back(run.figures.group);
    }
  }
  return groups;
}

/// Marks what is held out. \returns by what
std::string split(std::vector<Run>& runs, const std::optional<HoldOut>& hold_out) {
  const bool known = std::any_of(runs.begin(), runs.end(),
                                 [](const Run& run) { return is_for_fitting(run.figures.group); });
  const bool own = !hold_out && known;
  const std::vector<std::string> groups = groups_of(runs);
  for (Run& run : runs) {
    const auto group = std::find(groups.begin(), groups.end(), run.figures.group) - groups.begin();
    run.figures.held_out = own ? !is_for_fitting(run.figures.group)
                               : is_held_out(static_cast<std::size_t>(group), groups.size(),
                                             hold_out.value_or(HoldOut::None));
  }
  return own ? kOwnSplit : std::string(to_string(hold_out.value_or(HoldOut::None)));
}

// ---- the fit -----------------------------------------------------------------------------------

class Fit {
 public:
  Fit(std::vector<Run>& runs, Simulator& simulator) : simulator_(simulator) {
    for (Run& run : runs) {
      if (!run.figures.held_out) runs_.push_back(&run);
    }
    for (const Run* run : runs_) ++group_sizes_[run->figures.group];
  }

  [[nodiscard]] bool empty() const { return runs_.empty(); }

  /// Whether a run's step changes with `constant` over what is searched.
  bool reacts_to(double HostPoint::*constant) {
    HostPoint least = table_point(), most = table_point();
    least.*constant /= kRange;
    most.*constant *= kRange;
    const std::vector<double> shortest = times_at(least), longest = times_at(most);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (longest[i] > shortest[i] * (1 + kReaction)) return true;
    }
    return false;
  }

  /// Mean log error, each group alike.
  double cost(const HostPoint& point) { return cost_of(times_at(point)); }

  std::vector<double> times_at(const HostPoint& point) {
    simulator_.simulate(runs_, point);
    std::vector<double> times;
    times.reserve(runs_.size());
    for (const Run* run : runs_) times.push_back(run->time_at(point).value());
    return times;
  }

  /// The best along one constant between the least and the largest of `values`, which are simulated
  /// first: the best by linear interpolation is simulated, too, until it is where one was.
  HostPoint best_along(const HostPoint& point, double HostPoint::*constant,
                       const std::vector<double>& values) {
    Line line;
    const auto add = [&](double value) { line[value] = times_at(with(point, constant, value)); };
    add(values.front());  // what the ends tell need not be simulated between them
    add(values.back());
    for (const double value : values) add(value);
    while (true) {
      const double best = best_of(line);
      const auto near = std::find_if(line.begin(), line.end(), [&](const auto& entry) {
        return std::abs(std::log(entry.first / best)) < kResolution;
      });
      if (near != line.end()) return with(point, constant, near->first);
      add(best);
    }
  }

 private:
  /// Times of the runs by the value of a constant.
  using Line = std::map<double, std::vector<double>>;

  static HostPoint with(HostPoint point, double HostPoint::*constant, double value) {
    point.*constant = value;
    return point;
  }

  [[nodiscard]] double cost_of(const std::vector<double>& times) const {
    double sum = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      sum += std::abs(std::log(times[i] / runs_[i]->figures.measured)) /
             group_sizes_.at(runs_[i]->figures.group);
    }
    return sum / static_cast<double>(group_sizes_.size());
  }

  /// Linear between those that are known: what a step waits for is a sum of host works.
  static std::vector<double> interpolated(const Line& line, double value) {
    const auto above = line.lower_bound(value);
    if (above == line.end()) return line.rbegin()->second;
    if (above == line.begin() || above->first == value) return above->second;
    const auto below = std::prev(above);
    const double share = (value - below->first) / (above->first - below->first);
    std::vector<double> times = below->second;
    for (std::size_t i = 0; i < times.size(); ++i) {
      times[i] += share * (above->second[i] - times[i]);
    }
    return times;
  }

  [[nodiscard]] double best_of(const Line& line) const {
    const double first = std::log(line.begin()->first), last = std::log(line.rbegin()->first);
    const int steps = static_cast<int>(std::ceil((last - first) / (kResolution / 2)));
    double best = 0, least = std::numeric_limits<double>::infinity();
    for (int i = 0; i <= steps; ++i) {
      const double value = std::exp(first + (last - first) * i / steps);
      const double found = cost_of(interpolated(line, value));
      if (found >= least) continue;
      least = found;
      best = value;
    }
    return best;
  }

  Simulator& simulator_;
  Runs runs_;
  std::map<std::string, int> group_sizes_;
};

struct Fitted {
  HostPoint point = table_point();
  bool interpreter = false, hook = false;  ///< were fitted
};

/// From a quarter to four times the table's.
std::vector<double> grid_of(double table) {
  std::vector<double> values;
  values.reserve(kGrid);
  for (int i = 0; i < kGrid; ++i) {
    values.push_back(table * std::pow(kRange, 2.0 * i / (kGrid - 1) - 1));
  }
  return values;
}

Fitted fitted_point(Fit& fit) {
  constexpr auto kConstants = std::to_array({&HostPoint::interpreter, &HostPoint::hook});
  const HostPoint table = table_point();
  Fitted fitted;
  // Both at once: a run that does not react is known everywhere.
  static_cast<void>(fit.times_at({table.interpreter / kRange, table.hook / kRange}));
  static_cast<void>(fit.times_at({table.interpreter * kRange, table.hook * kRange}));
  fitted.interpreter = fit.reacts_to(&HostPoint::interpreter);
  fitted.hook = fit.reacts_to(&HostPoint::hook);
  HostPoint& point = fitted.point;
  for (const auto constant : kConstants) {
    const bool reacts = constant == &HostPoint::hook ? fitted.hook : fitted.interpreter;
    if (reacts) point = fit.best_along(point, constant, grid_of(table.*constant));
  }
  for (int round = 0; round < kMostRounds && fitted.interpreter && fitted.hook; ++round) {
    const double before = fit.cost(point);
    for (const auto constant : kConstants) {
      const double value = point.*constant;
      point = fit.best_along(point, constant, {value / kNear, value, value * kNear});
    }
    if (before - fit.cost(point) < kLeastGain) break;
  }
  return fitted;
}

bool is_at_end(const Fitted& fitted) {
  constexpr double kClose = 1.02;
  const auto is_end = [](double factor) { return std::max(factor, 1 / factor) > kRange / kClose; };
  return is_end(fitted.point.interpreter) || is_end(fitted.point.hook / table_point().hook);
}

RunResiduals residuals(const std::vector<Run>& runs, bool held_out) {
  constexpr double kStep = 1e-6;
  std::vector<ValidationRow> rows;
  for (const Run& run : runs) {
    if (run.figures.held_out != held_out) continue;
    rows.push_back(compared_row("", "", "s", run.figures.after, run.figures.measured));
  }
  const ValidationSummary summary = summary_of(rows);
  const auto rounded_figure = [](const std::optional<double>& figure) {
    return std::round(figure.value_or(0) / kStep) * kStep;
  };
  return {summary.count, rounded_figure(summary.median), rounded_figure(summary.p90),
          rounded_figure(summary.worst)};
}

/// The constants in their file's precision, and what they predict.
void finish(HostFit& fit, std::vector<Run>& runs, const Fitted& fitted, Simulator& simulator) {
  Runs all;
  all.reserve(runs.size());
  for (Run& run : runs) all.push_back(&run);
  CalibratedHost host = rounded(host_of(fitted.point));
  if (!fitted.hook) {  // as it applies without one
    host.deepspeed_hook = host.interpreter * default_host_times().deepspeed_hook;
  }
  const HostPoint point{host.interpreter, host.deepspeed_hook->count()};
  const HostPoint more{point.interpreter * kProbe, point.hook * kProbe};
  simulator.simulate(all, point);
  simulator.simulate(all, more);
  for (Run& run : runs) {
    run.figures.after = run.time_at(point).value();
    run.figures.reacts = run.time_at(more).value() > run.figures.after * (1 + kReaction);
  }
  if (!fitted.hook) host.deepspeed_hook.reset();
  host.table = fit.input;
  host.hold_out = fit.hold_out;
  host.fitted = residuals(runs, false);
  host.held_out = residuals(runs, true);
  fit.at_end = is_at_end(fitted);
  fit.host = host;
}

}  // namespace

HostFit fit_host(std::span<const std::string> paths, const HostFitOptions& options) {
  HostFit fit;
  std::vector<CsvTable> tables;
  tables.reserve(paths.size());
  for (const std::string& path : paths) {
    tables.push_back(read_csv(path));
    fit.input += (fit.input.empty() ? "" : ", ") + path;
  }
  std::vector<Run> runs;
  RunsOptions with{{}, options.calibration};
  with.calibration.host.reset();
  for (std::size_t table = 0; table < tables.size(); ++table) {
    const RunsValidation validation = validate_runs(tables[table], with);
    for (std::size_t row = 0; row < validation.runs.size(); ++row) {
      const RunCheck& check = validation.runs[row];
      if (!is_usable(check)) {
        ++fit.unused;
        continue;
      }
      const double time = check.predicted->step.count();
      runs.push_back({table,
                      row,
                      {check.id, check.group, check.source, check.trust, false, false,
                       check.measured.step->count(), time, time},
                      {{table_point(), time}}});
    }
  }
  fit.hold_out = split(runs, options.hold_out);
  Simulator simulator(tables, options);
  Fit search(runs, simulator);
  const Fitted fitted = search.empty() ? Fitted{} : fitted_point(search);
  if (fitted.interpreter || fitted.hook) finish(fit, runs, fitted, simulator);
  fit.runs.reserve(runs.size());
  for (Run& run : runs) fit.runs.push_back(std::move(run.figures));
  return fit;
}

}  // namespace zerosim
