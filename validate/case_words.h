/// \file
/// The closed lists of data/cases/README.md: needs, metrics and their units, causes, advice.
///
/// The one home of these words; which needs are met is said here too.
#pragma once

#include <span>
#include <string_view>

namespace zerosim {

/// What must be implemented for a check.
struct Need {
  std::string_view name;
  bool implemented = false;
};
[[nodiscard]] std::span<const Need> case_needs();

/// What a metric is computed from: what has to be simulated for it.
enum class MetricSource {
  ModelStates,    ///< formulas
  Memory,         ///< a replay of the whole job's memory
  Estimator,      ///< DeepSpeed's formulas
  Communication,  ///< the Program of a steady step
  Time,           ///< a simulated step
  Implied,        ///< a measured step against a simulated one
};

struct Metric {
  std::string_view name;  ///< "memory.peak_allocated"
  MetricSource source = MetricSource::Memory;
  std::string_view kinds;  ///< of the checks that take it alone: "bytes", "time", "rate", "count"
  std::string_view unit;   ///< the only one of a rate: "TFLOP/s"; empty: any of the kind
};
[[nodiscard]] std::span<const Metric> case_metrics();
/// Null if unknown.
[[nodiscard]] const Metric* find_metric(std::string_view name);

/// A unit in bytes, seconds or 1/s; words of data/cases/README.md.
struct CaseUnit {
  std::string_view name;
  std::string_view kind;  ///< "bytes", "time", "rate"
  double factor = 1;
};
[[nodiscard]] std::span<const CaseUnit> case_units();
/// Null if unknown.
[[nodiscard]] const CaseUnit* find_unit(std::string_view name);

/// Mechanisms, as codes.
[[nodiscard]] std::span<const std::string_view> cause_codes();
/// Changes, as codes.
[[nodiscard]] std::span<const std::string_view> advice_codes();
/// Metrics of `observed`.
[[nodiscard]] std::span<const std::string_view> observed_metrics();

}  // namespace zerosim
