#include "validate/collective_logs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "sim/analysis/calibration_notes.h"
#include "sim/analysis/environment_settings.h"
#include "sim/analysis/nccl_environment.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/calibrated_cost.h"

namespace zerosim {
namespace {

/// What the index says where the log says nothing.
void find_operation(const NcclTestsLog& log, const LogIndexRow* row, CollectiveLogCheck& check) {
  check.operation = log.operation;
  check.operation_from = log.operation_from;
  const std::optional<NcclTest> indexed =
      row == nullptr ? std::nullopt : nccl_test_in(row->operation);
  if (!indexed || check.operation == indexed) return;
  if (check.operation) {
    const std::string& from = check.operation_from;
    check.notes.push_back(format("{} says {}, {} {} {}", row->place, to_string(*indexed), from,
                                 from == "the rows" ? "say" : "says", to_string(*check.operation)));
    return;
  }
  check.operation = indexed;
  check.operation_from = row->place;
}

std::string why_no_operation(const CollectiveLogCheck& check) {
  if (!check.operation) {
    return "an all-gather or an all-to-all: neither rows, names nor INDEX.csv say which";
  }
  if (!collective_of(*check.operation)) {
    return format("{} is not modelled", to_string(*check.operation));
  }
  return "";
}

void predict(const Calibration& calibration, const Cluster& cluster, CollectiveOp op,
             const CollectiveGroup& group, CollectivePoint& point) {
  const CollectiveCost cost = calibrated_cost(calibration, cluster, op, point.size, group);
  point.predicted = cost.idle_time(cluster);
  point.algorithm = cost.algorithm;
  point.protocol = cost.protocol;
  point.relative_error = *point.predicted / point.measured - 1;
  if (point.size < kSmallestCounted) point.why = "below 1 KiB";
}

CollectivePoint unpredicted(const NcclTestsPoint& measured) {
  CollectivePoint point;
  point.line = measured.line;
  point.size = measured.size;
  point.measured = measured.out_of_place.time;
  if (measured.in_place) point.measured_in_place = measured.in_place->time;
  return point;
}

void add_points(const NcclTestsLog& log, const LogMachine& machine, const Calibration& calibration,
                CollectiveLogCheck& check) {
  for (const NcclTestsPoint& measured : log.points) {
    CollectivePoint point = unpredicted(measured);
    if (!check.why.empty()) {
      point.why = check.why;
    } else if (point.size == Bytes(0)) {
      point.why = "an empty vector";
    } else if (point.measured <= Seconds(0)) {
      point.why = "a time of 0";
    } else {
      predict(calibration, *machine.cluster, *collective_of(*check.operation), machine.group,
              point);
    }
    check.points.push_back(std::move(point));
  }
}

/// Which of its entries predict this log.
void tell_calibration(const Calibration& calibration, const LogMachine& machine,
                      CollectiveLogCheck& check) {
  if (calibration.empty()) return;
  check.assumptions.push_back(calibration_note(calibration, *machine.cluster,
                                               *collective_of(*check.operation), machine.group));
}

CollectiveLogCheck check_log(const NcclTestsLog& log, const LogIndexRow* row,
                             const LogMachineOptions& options) {
  CollectiveLogCheck check;
  check.file = log.file;
  check.nccl_version = log.nccl_version;
  check.notes = log.notes;
  check.ranks_from = log.ranks_from;
  find_operation(log, row, check);
  LogMachine machine = machine_of_log(log, row, options);
  check.why = machine.why.empty() ? why_no_operation(check) : machine.why;
  if (machine.cluster) check.cluster = machine.cluster->name;
  check.machine_class = machine.machine_class;
  check.group = machine.group;
  check.assumptions = machine.assumptions;
  check.notes.insert(check.notes.end(), machine.notes.begin(), machine.notes.end());
  check.environment = followed_settings(options.environment);
  if (row != nullptr) check.source = row->source;
  Calibration calibration = options.calibration;
  if (machine.found) {
    find_measured_clusters(calibration, *machine.found, !check.environment.empty());
  }
  if (check.why.empty()) tell_calibration(calibration, machine, check);
  add_points(log, machine, calibration, check);
  check.machine = std::move(machine.cluster);
  return check;
}

const LogIndexRow* row_of(const LogIndex& index, const std::string& file) {
  const auto row = index.find(std::filesystem::path(file).filename().string());
  return row == index.end() ? nullptr : &row->second;
}

void tell_environment(const Environment& environment, CollectiveValidation& validation) {
  EnvironmentSettings names = environment_names(environment);
  validation.warnings = std::move(names.warnings);
  validation.assumptions = std::move(names.assumptions);
}

/// The points as rows, for `summary_of`.
void add_rows(const CollectiveLogCheck& check, std::vector<ValidationRow>& rows) {
  for (const CollectivePoint& point : check.points) {
    ValidationRow row = skipped_row("", "", point.why);
    row.skipped = !point.counts();
    if (point.counts()) row.relative_error = point.relative_error;
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::optional<CollectiveOp> collective_of(NcclTest test) {
  switch (test) {
    case NcclTest::AllReduce:
      return CollectiveOp::AllReduce;
    case NcclTest::AllGather:
      return CollectiveOp::AllGather;
    case NcclTest::ReduceScatter:
      return CollectiveOp::ReduceScatter;
    case NcclTest::AllToAll:
      return CollectiveOp::AllToAll;
    case NcclTest::Broadcast:
      return CollectiveOp::Broadcast;
    case NcclTest::Reduce:
      return CollectiveOp::Reduce;
    default:
      return std::nullopt;
  }
}

CollectiveValidation validate_collectives(const std::vector<NcclTestsLog>& logs,
                                          const LogIndex& index, const LogMachineOptions& options) {
  CollectiveValidation validation;
  for (const NcclTestsLog& log : logs) {
    validation.logs.push_back(check_log(log, row_of(index, log.file), options));
  }
  tell_environment(options.environment, validation);
  return validation;
}

CollectiveValidation validate_collectives(std::span<const std::string> paths,
                                          const LogMachineOptions& options) {
  CollectiveValidation validation;
  std::map<std::string, LogIndex> indices;
  for (const std::string& path : paths) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const auto [index, is_new] = indices.try_emplace(folder);
    if (is_new) index->second = read_log_index(folder);
    CollectiveValidation one = validate_collectives(read_nccl_tests(path), index->second, options);
    std::move(one.logs.begin(), one.logs.end(), std::back_inserter(validation.logs));
  }
  tell_environment(options.environment, validation);
  return validation;
}

ValidationSummary summary_of(const CollectiveValidation& validation) {
  std::vector<ValidationRow> rows;
  for (const CollectiveLogCheck& check : validation.logs) add_rows(check, rows);
  return summary_of(rows);
}

std::vector<CollectiveGroupSummary> summaries_by(
    const CollectiveValidation& validation,
    const std::function<std::string(const CollectiveLogCheck&)>& key) {
  std::map<std::string, std::vector<ValidationRow>> rows;
  std::map<std::string, int> logs;
  for (const CollectiveLogCheck& check : validation.logs) {
    const std::string name = key(check);
    if (name.empty()) continue;
    add_rows(check, rows[name]);
    ++logs[name];
  }
  std::vector<CollectiveGroupSummary> groups;
  groups.reserve(rows.size());
  for (const auto& [name, own] : rows) groups.push_back({name, logs[name], summary_of(own)});
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.summary.median.value_or(-1) > b.summary.median.value_or(-1);
  });
  return groups;
}

std::vector<std::string> exceeded(const ValidationSummary& summary,
                                  const CollectiveTolerance& tolerance) {
  if (!summary.median) return {"nothing was compared"};
  std::vector<std::string> told;
  const auto compare = [&](const char* what, double error, double most, const char* flag) {
    if (error <= most) return;
    told.push_back(format("{} {:.2f} % exceeds {} {:g}", what, error * 100, flag, most));
  };
  compare("median", *summary.median, tolerance.median, "--tolerance");
  compare("p90", *summary.p90, tolerance.p90, "--tolerance-p90");
  return told;
}

bool is_within(const ValidationSummary& summary, const CollectiveTolerance& tolerance) {
  return exceeded(summary, tolerance).empty();
}

}  // namespace zerosim
