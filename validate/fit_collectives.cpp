#include "validate/fit_collectives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include <nlopt.hpp>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

// What fit_collectives.h tells.
constexpr double kRounding = 0.01;         // of |e|
constexpr double kBandwidthWeight = 0.03;  // of the prior
constexpr Bytes kAsymptote{std::int64_t{1} << 30};
constexpr std::size_t kSizesForExponent = 6;
constexpr std::size_t kSizesForBend = 4;
constexpr std::size_t kFewestSizes = 2;

constexpr double kUsualExponent = 0.5;

/// Of the residuals in the file.
constexpr double kErrorStep = 1e-6;

/// What the search varies. The bend by where it begins to matter: ln of the factor by which V / B
/// is to grow to be the floor when the bend is it. So exponent and bend hardly depend on each
/// other.
enum Constant : std::size_t { kFloor, kBandwidth, kOnset, kExponent, kConstants };
using Point = std::vector<double>;

/// What is known before the search.
struct Evidence {
  std::span<const CollectiveSample> samples;
  BytesPerSecond expected;  ///< 0: not known
  int constants = 4;
};

/// floor in us, bandwidth in GB/s, both as logarithms.
CollectiveLine line_of(const Point& x, int constants) {
  CollectiveLine line;
  const double floor = std::exp(x[kFloor]) * 1e-6;
  line.floor = Seconds(floor);
  line.bandwidth = BytesPerSecond(std::exp(x[kBandwidth]) * 1e9);
  line.exponent = constants > 3 ? x[kExponent] : kUsualExponent;
  if (constants > 2) {
    const double mebibyte = line.transfer(Bytes(1 << 20)).count();
    line.bend = Seconds(floor * std::pow(mebibyte / floor * std::exp(x[kOnset]), line.exponent));
  }
  return line;
}

double mean_error(const CollectiveLine& line, std::span<const CollectiveSample> samples) {
  double sum = 0;
  for (const CollectiveSample& sample : samples) {
    sum += std::hypot(std::log(line.time(sample.sent) / sample.time), kRounding);
  }
  return sum / static_cast<double>(samples.size());
}

double cost(const Point& x, const Evidence& evidence) {
  const CollectiveLine line = line_of(x, evidence.constants);
  const double error = mean_error(line, evidence.samples);
  const double expected = evidence.expected.per_second();
  if (expected <= 0) return error;
  return error + kBandwidthWeight * std::abs(std::log(line.bandwidth.per_second() / expected));
}

double objective(const Point& x, Point& /*gradient*/, void* data) {
  return cost(x, *static_cast<const Evidence*>(data));
}

/// What the samples say at first sight: logarithms of the least time in us and of the fastest
/// transfer in GB/s.
struct FirstSight {
  double floor = std::numeric_limits<double>::infinity();
  double rate = -std::numeric_limits<double>::infinity();
};

FirstSight first_sight(std::span<const CollectiveSample> samples) {
  FirstSight sight;
  for (const CollectiveSample& sample : samples) {
    const double time = sample.time.count();
    sight.floor = std::min(sight.floor, std::log(time * 1e6));
    sight.rate =
        std::max(sight.rate, std::log(static_cast<double>(sample.sent.count()) / time * 1e-9));
  }
  return sight;
}

Point searched(Evidence& evidence, const FirstSight& sight, Point x) {
  nlopt::opt search(nlopt::LN_SBPLX, static_cast<unsigned>(kConstants));
  search.set_min_objective(objective, &evidence);
  // The floor is at most about the least time, the asymptote within e^2 of the fastest or as
  // expected.
  const double expected = evidence.expected.gb_per_second();
  const double told = expected > 0 ? std::log(expected) : sight.rate;
  search.set_lower_bounds({sight.floor - 5, std::min(sight.rate - 2, told), -6, 0});
  search.set_upper_bounds({sight.floor + 0.2, std::max(sight.rate + 2, told), 8, kLargestExponent});
  search.set_initial_step(Point(kConstants, 0.2));
  search.set_xtol_rel(1e-7);
  search.set_maxeval(4000);
  double least = 0;
  search.optimize(x, least);
  return x;
}

struct Samples {
  std::vector<CollectiveSample> fitted, held_out;
};

Samples samples_of(const CollectiveLogCheck& log, HoldOut hold_out) {
  std::vector<CollectiveSample> all;
  for (const CollectivePoint& point : log.points) {
    if (!point.counts()) continue;
    const CollectiveOp op = *collective_of(*log.operation);
    all.push_back({point.size, ring_bytes_sent(op, point.size, log.group.ranks), point.measured});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.size < b.size; });
  Samples samples;
  const std::size_t sizes = count_sizes(all);
  std::size_t index = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].size != all[i - 1].size) ++index;
    (is_held_out(index, sizes, hold_out) ? samples.held_out : samples.fitted).push_back(all[i]);
  }
  return samples;
}

std::vector<ValidationRow> rows_of(const CollectiveLine& line,
                                   std::span<const CollectiveSample> samples) {
  std::vector<ValidationRow> rows;
  rows.reserve(samples.size());
  for (const CollectiveSample& sample : samples) {
    rows.push_back(compared_row("", "", "s", line.time(sample.sent).count(), sample.time.count()));
  }
  return rows;
}

double in_steps(double error) {
  return std::round(error / kErrorStep) / std::round(1 / kErrorStep);
}

LineResiduals residuals_of(std::span<const CollectiveSample> samples,
                           const std::vector<ValidationRow>& rows) {
  LineResiduals residuals;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    residuals.sizes.push_back(samples[i].size);
    residuals.errors.push_back(in_steps(*rows[i].relative_error));
  }
  const ValidationSummary summary = summary_of(rows);
  residuals.median = in_steps(summary.median.value_or(0));
  residuals.p90 = in_steps(summary.p90.value_or(0));
  residuals.worst = in_steps(summary.worst.value_or(0));
  return residuals;
}

BytesPerSecond asymptote(const CollectiveLogCheck& log) {
  const CollectiveOp op = *collective_of(*log.operation);
  const Seconds transfer =
      collective_cost(*log.machine, op, kAsymptote, log.group).transfer_time(*log.machine);
  const Bytes sent = ring_bytes_sent(op, kAsymptote, log.group.ranks);
  return BytesPerSecond(static_cast<double>(sent.count()) / transfer.count());
}

std::vector<std::string> names_of_fitted(int constants) {
  std::vector<std::string> names = {"floor", "bandwidth", "bend", "exponent"};
  names.resize(static_cast<std::size_t>(constants));
  return names;
}

/// Rows of all logs.
struct AllRows {
  std::vector<ValidationRow> fitted, held_out;
};

AllRows all_rows(const CollectiveLine& line, const Samples& samples) {
  return {rows_of(line, samples.fitted), rows_of(line, samples.held_out)};
}

void append(std::vector<ValidationRow>& all, const std::vector<ValidationRow>& rows) {
  all.insert(all.end(), rows.begin(), rows.end());
}

/// Why nothing can be fitted; "": something can.
std::string why_skipped(const CollectiveLogCheck& log) {
  if (!log.why.empty()) return log.why;
  return log.group.ranks < 2 ? "one rank sends nothing" : "";
}

FittedLog fitted_log(const CollectiveLogCheck& log, const Samples& samples, HoldOut hold_out) {
  FittedLog fitted;
  fitted.operation = *log.operation;
  CalibratedCollective& entry = fitted.entry;
  entry.operation = *collective_of(*log.operation);
  entry.ranks = log.group.ranks;
  entry.nodes = log.group.nodes;
  entry.launch = log.group.launch;
  entry.environment = log.environment;
  entry.machine = measured_machine(*log.machine, entry.nodes);
  // As the file holds it, so that the file's residuals are those of its constants.
  entry.line = rounded(fit_line(samples.fitted, asymptote(log)));
  entry.log = std::filesystem::path(log.file).filename().string();
  entry.source = log.source;
  entry.nccl_version = log.nccl_version;
  entry.fitted = names_of_fitted(fitted_constants(count_sizes(samples.fitted)));
  entry.hold_out = to_string(hold_out);
  const AllRows own = all_rows(entry.line, samples);
  entry.fitted_residuals = residuals_of(samples.fitted, own.fitted);
  entry.held_out_residuals = residuals_of(samples.held_out, own.held_out);
  fitted.fitted = summary_of(own.fitted);
  fitted.held_out = summary_of(own.held_out);
  return fitted;
}

/// \returns why it is skipped; "": it is fitted.
std::string fit_log(const CollectiveLogCheck& log, CollectiveFit& fit, AllRows& all) {
  if (std::string why = why_skipped(log); !why.empty()) return why;
  const Samples samples = samples_of(log, fit.hold_out);
  const std::size_t sizes = count_sizes(samples.fitted);
  if (sizes < kFewestSizes) {
    return format("{} from 1 KiB up to fit to, at least {} are needed",
                  counted(static_cast<std::int64_t>(sizes), "size"), kFewestSizes);
  }
  FittedLog fitted = fitted_log(log, samples, fit.hold_out);
  if (const std::string wrong = out_of_bounds(fitted.entry); !wrong.empty()) {
    return "what is fitted is not for a file: " + wrong;
  }
  const AllRows own = all_rows(fitted.entry.line, samples);
  append(all.fitted, own.fitted);
  append(all.held_out, own.held_out);
  for (const std::string& sentence : log.assumptions) {
    fit.assumptions.push_back({log.file, sentence});
  }
  fit.logs.push_back(std::move(fitted));
  return "";
}

}  // namespace

std::string_view to_string(HoldOut hold_out) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "every-second", "largest-third"};
  return kNames[static_cast<std::size_t>(hold_out)];
}

HoldOut parse_hold_out(const std::string& text, const std::string& flag) {
  std::vector<std::string> known;
  for (const HoldOut hold_out : {HoldOut::None, HoldOut::EverySecond, HoldOut::LargestThird}) {
    if (text == to_string(hold_out)) return hold_out;
    known.emplace_back(to_string(hold_out));
  }
  throw ConfigError(format("{}: found \"{}\", expected none, every-second or largest-third{}", flag,
                           text, did_you_mean(text, known)));
}

bool is_held_out(std::size_t i, std::size_t n, HoldOut hold_out) {
  switch (hold_out) {
    case HoldOut::None:
      return false;
    case HoldOut::EverySecond:
      return i % 2 == 1;
    case HoldOut::LargestThird:
      return i >= n - n / 3;
  }
  return false;
}

int fitted_constants(std::size_t sizes) {
  if (sizes >= kSizesForExponent) return 4;
  if (sizes >= kSizesForBend) return 3;
  return sizes >= kFewestSizes ? 2 : 0;
}

std::size_t count_sizes(std::span<const CollectiveSample> samples) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i == 0 || samples[i].size != samples[i - 1].size) ++count;
  }
  return count;
}

CollectiveLine fit_line(std::span<const CollectiveSample> samples, BytesPerSecond expected) {
  const std::size_t sizes = count_sizes(samples);
  ZS_CHECK(sizes >= kFewestSizes, "a fit to nothing");
  Evidence evidence{samples, expected, fitted_constants(sizes)};
  const FirstSight sight = first_sight(samples);
  Point best;
  double least = std::numeric_limits<double>::infinity();
  for (const double onset : {0.0, 1.5, 3.0}) {
    for (const double exponent : {0.2, 0.4, 0.6}) {
      const Point x = searched(evidence, sight, {sight.floor, sight.rate + 0.05, onset, exponent});
      const double found = cost(x, evidence);
      if (found >= least) continue;
      least = found;
      best = x;
    }
  }
  return line_of(best, evidence.constants);
}

CollectiveFit fit_collectives(std::span<const std::string> paths, HoldOut hold_out,
                              const LogMachineOptions& options) {
  CollectiveFit fit;
  fit.hold_out = hold_out;
  AllRows all;
  CollectiveValidation validation = validate_collectives(paths, options);
  for (const CollectiveLogCheck& log : validation.logs) {
    for (const std::string& note : log.notes) fit.notes.push_back(log.file + ": " + note);
    std::string why = fit_log(log, fit, all);
    if (!why.empty()) fit.skipped.push_back({log.file, std::move(why)});
  }
  fit.warnings = std::move(validation.warnings);
  for (std::string& sentence : validation.assumptions) {
    fit.assumptions.push_back({"", std::move(sentence)});
  }
  fit.fitted = summary_of(all.fitted);
  fit.held_out = summary_of(all.held_out);
  return fit;
}

Calibration calibration_of(const CollectiveFit& fit) {
  Calibration calibration;
  calibration.collectives.reserve(fit.logs.size());
  for (const FittedLog& log : fit.logs) calibration.collectives.push_back(log.entry);
  return calibration;
}

}  // namespace zerosim
