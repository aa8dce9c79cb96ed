/// \file
/// `zerosim validate schedule`: the collectives of a recorded run against those of the Program that
/// is built from its description.
///
/// Compared step by step, in order: operation, phase, micro step, elements of input and output,
/// element type, ranks of the group, whether the caller waits later, and the root of a broadcast or
/// reduce where both name it; how a reduction combines (SUM, MAX, AVG) and the module where the
/// recording names one; and which calls form one coalesced group (its numbers mean nothing, and a
/// group of one is none). Of the Program, what recordings cannot see (`Collective::recorded` false)
/// is left out. Initialisation is not compared.
///
/// On request the markers of the recording too (fetch, gather, release, flush; not FSDP's) against
/// the Program's annotations: kind, place among the collectives, phase, micro step, elements,
/// parameters in any order, module.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/program/program.h"
#include "validate/recording.h"

namespace zerosim {

/// The first place where the two part.
struct ScheduleDifference {
  int step = 0;
  std::size_t index = 0;            ///< of the collective (or marker) within its step, from 0
  bool is_marker = false;           ///< the two sides are markers
  std::vector<std::string> fields;  ///< "input elements", ...; empty if one side has ended
  std::string recorded;             ///< in full words; "none, the step ends here"
  std::string simulated;
  std::string rule;                  ///< of the simulated one: "B3.5"; empty if it has ended
  SourceLocation where;              ///< of the recorded one, or of the last one before it
  std::vector<std::string> markers;  ///< why, as recorded
  bool markers_follow = false;       ///< they stand after the recorded one, none before it
  /// What to try: a recorded step that ends after the flag of infinities was reduced (one u8
  /// all-reduce, B5) may have overflowed. Empty: nothing.
  std::string hint;
};

enum class ScheduleResult {
  Identical,
  Differs,
  Failed,  ///< not read, or no Program: `reason` says why
};
/// "identical", "differs", "failed".
[[nodiscard]] std::string_view to_string(ScheduleResult result);

/// One file.
struct ScheduleRow {
  std::string id;  ///< the file's name without folder and extension
  std::string file;
  ScheduleResult result = ScheduleResult::Identical;
  std::array<int, kRecordedSteps> collectives{};  ///< recorded, by step
  std::optional<ScheduleDifference> difference;
  std::string reason;  ///< why it failed; or why markers that were asked for are not compared
};

struct ScheduleValidation {
  std::vector<ScheduleRow> rows;
  std::vector<std::string> assumptions;  ///< of all Programs, each once
};

/// None: identical. \pre the program holds steps 0 to 2
[[nodiscard]] std::optional<ScheduleDifference> schedule_difference(const Recording& recording,
                                                                    const Program& program);

/// The same of the markers. \pre the collectives are identical
[[nodiscard]] std::optional<ScheduleDifference> marker_difference(const Recording& recording,
                                                                  const Program& program);

struct ScheduleCheck {
  /// fp16: the first steps that overflow; unset: none. Runs in other types ignore it.
  std::optional<int> overflow_steps;
  bool markers = false;  ///< compares them too
};

/// Builds the Program and compares. What cannot be built fails with its reason.
[[nodiscard]] ScheduleRow check_schedule(const Recording& recording,
                                         std::vector<std::string>& assumptions,
                                         const ScheduleCheck& check = {});

/// A row for each file; one that cannot be read fails with its reason.
/// \throws ConfigError  with all reasons if none can be read.
[[nodiscard]] ScheduleValidation validate_schedules(const std::vector<std::string>& paths,
                                                    const ScheduleCheck& check = {});

/// Whether there are rows and all are identical.
[[nodiscard]] bool all_identical(const ScheduleValidation& validation);

/// A line a file, the first difference below it, a line of summary.
[[nodiscard]] std::string schedule_validation_text(const ScheduleValidation& validation);

/// {version, rows: [{id, file, result, reason, collectives: [per step], difference: {step, index,
/// is_marker, fields, recorded, simulated, rule, where, markers, markers_follow, hint} or null}],
/// summary: {count, passed, failed, skipped}, assumptions}.
[[nodiscard]] JsonValue schedule_validation_json(const ScheduleValidation& validation);

}  // namespace zerosim
