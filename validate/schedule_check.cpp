#include "validate/schedule_check.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "sim/base/text.h"
#include "validate/recorded_model.h"

namespace zerosim {

namespace {

constexpr int kJsonVersion = 1;
constexpr const char* kEnded = "none: the step ends before it";
constexpr std::size_t kNamesShown = 3;
constexpr std::size_t kMarkersShown = 4;

/// One collective of either side, in the words of the recordings.
struct Call {
  std::string op;
  std::string reduction;  ///< "SUM"; "" if none is named
  Phase phase = Phase::Forward;
  int micro_step = 0;
  std::int64_t input_elements = 0;
  std::int64_t output_elements = 0;
  Dtype dtype = Dtype::F32;
  std::vector<int> ranks;
  bool async = false;
  std::string module;  ///< "" if none is named
  std::optional<int> root;
  std::optional<std::int64_t> coalesced;
  std::size_t partner = 0;       ///< index in the step of the first call of its coalesced group
  std::string rule;              ///< simulated ones only
  std::size_t recorded_row = 0;  ///< recorded ones only: index into the rows of the step
};

/// Sets `partner`: its own index, or of a coalesced call that of the first of the group.
void find_partners(std::vector<Call>& calls) {
  std::map<std::int64_t, std::size_t> first;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].partner = calls[i].coalesced ? first.emplace(*calls[i].coalesced, i).first->second : i;
  }
}

std::vector<Call> recorded_calls(const Recording& recording, int step) {
  const std::vector<RecordedRow>& rows = recording.steps[static_cast<std::size_t>(step)];
  std::vector<Call> calls;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].collective) continue;
    const RecordedCollective& row = *rows[i].collective;
    Call call;
    call.op = row.op;
    call.reduction = row.reduction;
    call.phase = row.phase;
    call.micro_step = row.micro_step;
    call.input_elements = row.input_elements;
    call.output_elements = row.output_elements;
    call.dtype = row.dtype;
    call.ranks = recording.description.groups[row.group];
    call.async = row.async;
    call.module = row.module;
    call.root = row.root;
    call.coalesced = row.coalesced;
    call.recorded_row = i;
    calls.push_back(std::move(call));
  }
  find_partners(calls);
  return calls;
}

/// Ranks of the group that rank 0 is in.
std::vector<int> ranks_of(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i) * group.stride;
  return ranks;
}

std::string module_name(const Program& program, ModuleId id) {
  if (!id.valid()) return "";
  const std::string& name = program.module_names[id.index()];
  return name.empty() ? std::string(kRecordedRoot) : name;
}

bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter ||
         kind == CollectiveKind::Reduce;
}

std::vector<Call> simulated_calls(const Program& program, int step) {
  const RankProgram& rank = program.ranks.front();
  std::vector<Call> calls;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective || op.step != step) continue;
    const Collective& collective = rank.collectives[static_cast<std::size_t>(op.payload)];
    if (!collective.recorded) continue;
    Call call;
    call.op = to_string(collective.kind);
    if (is_reduction(collective.kind)) call.reduction = to_string(collective.reduction);
    call.phase = op.phase;
    call.micro_step = op.micro_step;
    call.input_elements = collective.input_elements;
    call.output_elements = collective.output_elements;
    call.dtype = collective.dtype;
    call.ranks = ranks_of(program.groups[collective.group.index()]);
    call.async = collective.async;
    call.module = module_name(program, op.module);
    if (collective.root >= 0) call.root = collective.root;
    if (collective.coalesced >= 0) call.coalesced = collective.coalesced;
    call.rule = op.rule;
    calls.push_back(std::move(call));
  }
  find_partners(calls);
  return calls;
}

/// Whether a field is the same, and what it is called.
struct FieldCheck {
  bool same;
  const char* name;
};

std::vector<std::string> names_of_false(std::initializer_list<FieldCheck> checks) {
  std::vector<std::string> names;
  for (const FieldCheck& check : checks) {
    if (!check.same) names.emplace_back(check.name);
  }
  return names;
}

/// What differs between a recorded and a simulated call.
std::vector<std::string> differing_fields(const Call& recorded, const Call& simulated) {
  return names_of_false({
      {recorded.op == simulated.op, "operation"},
      {recorded.reduction.empty() || simulated.reduction.empty() ||
           recorded.reduction == simulated.reduction,
       "reduction"},
      {recorded.phase == simulated.phase, "phase"},
      {recorded.micro_step == simulated.micro_step, "micro step"},
      {recorded.input_elements == simulated.input_elements, "input elements"},
      {recorded.output_elements == simulated.output_elements, "output elements"},
      {recorded.dtype == simulated.dtype, "type"},
      {recorded.ranks == simulated.ranks, "group"},
      {recorded.async == simulated.async, "async"},
      {recorded.module.empty() || recorded.module == simulated.module, "module"},
      {!recorded.root || !simulated.root || recorded.root == simulated.root, "root"},
      {recorded.partner == simulated.partner, "coalescing"},
  });
}

// --------------------------------------------------------------------------------------------
// Words

std::string ranks_text(const std::vector<int>& ranks) {
  const bool contiguous =
      ranks.size() > 2 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (contiguous) return format("{}-{}", ranks.front(), ranks.back());
  std::vector<std::string> numbers;
  numbers.reserve(ranks.size());
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return join(numbers, ",");
}

/// "all_reduce SUM 64000 -> 64000 bf16 on ranks 0-3, blocking, bwd of micro step 0".
std::string call_text(const Call& call, std::size_t index) {
  std::string text = call.op;
  if (!call.reduction.empty()) text += " " + call.reduction;
  text += format(" {} -> {} {} on ranks {}, {}, {} of micro step {}", call.input_elements,
                 call.output_elements, to_string(call.dtype), ranks_text(call.ranks),
                 call.async ? "async" : "blocking", to_string(call.phase), call.micro_step);
  if (call.root) text += format(", root {}", *call.root);
  if (call.partner != index) text += format(", coalesced with collective {}", call.partner);
  if (!call.module.empty()) text += format(", module {}", call.module);
  return text;
}

/// "flush_bucket of 16512 elements: a, b, c and 4 more".
std::string marker_text(const RecordedMarker& marker) {
  std::string text = format("{} of {} elements", marker.what, marker.elements);
  if (!marker.module.empty()) text += format(", module {}", marker.module);
  if (marker.names.empty()) return text;
  const std::size_t shown = std::min(kNamesShown, marker.names.size());
  const std::vector<std::string> names(marker.names.begin(),
                                       marker.names.begin() + static_cast<std::ptrdiff_t>(shown));
  text += ": " + join(names, ", ");
  if (shown < marker.names.size()) text += format(" and {} more", marker.names.size() - shown);
  return text;
}

// --------------------------------------------------------------------------------------------
// Markers

/// One marker of either side.
struct Mark {
  RecordedMarker marker;         ///< names sorted
  std::size_t collectives = 0;   ///< that come before it in the step
  std::size_t recorded_row = 0;  ///< recorded ones only
};

/// Kinds that a Program has as annotations.
bool has_annotation(std::string_view what) {
  constexpr std::array kKinds = {AnnotationKind::FlushBucket, AnnotationKind::Bucket,
                                 AnnotationKind::FetchSubModule, AnnotationKind::GatherParams,
                                 AnnotationKind::Release};
  return std::any_of(kKinds.begin(), kKinds.end(),
                     [&](AnnotationKind kind) { return to_string(kind) == what; });
}

std::vector<Mark> recorded_marks(const Recording& recording, int step) {
  const std::vector<RecordedRow>& rows = recording.steps[static_cast<std::size_t>(step)];
  std::vector<Mark> marks;
  std::size_t collectives = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].collective) ++collectives;
    if (!rows[i].marker || !has_annotation(rows[i].marker->what)) continue;
    Mark& mark = marks.emplace_back(Mark{*rows[i].marker, collectives, i});
    std::sort(mark.marker.names.begin(), mark.marker.names.end());
  }
  return marks;
}

std::vector<Mark> simulated_marks(const Program& program, int step) {
  const RankProgram& rank = program.ranks.front();
  std::vector<Mark> marks;
  std::size_t collectives = 0;
  std::size_t op = 0;
  for (const Annotation& annotation : rank.annotations) {
    if (annotation.step != step) continue;
    for (; op < annotation.before.index(); ++op) {
      const Op& passed = rank.ops[op];
      if (passed.kind != OpKind::Collective || passed.step != step) continue;
      if (rank.collectives[static_cast<std::size_t>(passed.payload)].recorded) ++collectives;
    }
    Mark& mark = marks.emplace_back();
    mark.collectives = collectives;
    mark.marker.what = to_string(annotation.kind);
    mark.marker.micro_step = annotation.micro_step;
    mark.marker.phase = annotation.phase;
    if (annotation.kind != AnnotationKind::FetchSubModule) {
      mark.marker.elements = annotation.elements;
    }
    mark.marker.module = module_name(program, annotation.module);
    for (const ParameterId id : rank.parameters_of(annotation)) {
      mark.marker.names.push_back(program.parameter_names[id.index()]);
    }
    std::sort(mark.marker.names.begin(), mark.marker.names.end());
  }
  return marks;
}

std::vector<std::string> differing_fields(const Mark& recorded, const Mark& simulated) {
  const RecordedMarker& a = recorded.marker;
  const RecordedMarker& b = simulated.marker;
  return names_of_false({
      {a.what == b.what, "kind of marker"},
      {recorded.collectives == simulated.collectives, "collectives before it"},
      {a.phase == b.phase, "phase"},
      {a.micro_step == b.micro_step, "micro step"},
      {a.elements == b.elements, "elements"},
      {a.names == b.names, "parameters"},
      {a.module.empty() || a.module == b.module, "module"},
  });
}

/// Empty: markers can be compared.
std::string why_not_compared(const Recording& recording, const Program& program) {
  if (recording.description.kind == RecordedKind::Fsdp) {
    return "markers not compared: a Program has none of FSDP's";
  }
  for (int step = 0; step < kRecordedSteps; ++step) {
    if (!recorded_marks(recording, step).empty()) return "";
  }
  return program.ranks.front().annotations.empty() ? "" : "markers not compared: it has none";
}

std::string mark_text(const Mark& mark) {
  return format("{}, {} of micro step {}, after {} collectives", marker_text(mark.marker),
                to_string(mark.marker.phase), mark.marker.micro_step, mark.collectives);
}

/// The markers next to the place where a collective stands: those after the collective before it,
/// or else those up to the next one.
void add_markers(const std::vector<RecordedRow>& rows, std::size_t place,
                 ScheduleDifference& difference) {
  std::size_t first = place;
  while (first > 0 && rows[first - 1].marker) --first;
  std::size_t last = place;
  if (first == place) {
    difference.markers_follow = true;
    if (last < rows.size() && rows[last].collective) first = ++last;
    while (last < rows.size() && rows[last].marker) ++last;
  }
  const std::size_t nearest = difference.markers_follow ? first : last;
  if (last - first > kMarkersShown) {  // keep those that are nearest
    if (nearest == first) {
      last = first + kMarkersShown;
    } else {
      first = last - kMarkersShown;
    }
  }
  for (std::size_t i = first; i < last; ++i) {
    difference.markers.push_back(marker_text(*rows[i].marker));
  }
}

/// Whether the call tells all ranks whether any gradient was infinite.
bool reduces_overflow_flag(const Call& call) {
  return call.op == to_string(CollectiveKind::AllReduce) && call.dtype == Dtype::U8;
}

/// \param last  of a recorded step that ends before the simulated one
std::string hint_after(const Call& last, int step) {
  if (!reduces_overflow_flag(last)) return "";
  return format(
      "the recorded step may have overflowed; of fp16, --overflow-steps {} says that it did",
      step + 1);
}

ScheduleDifference difference_at(const Recording& recording, int step, std::size_t index,
                                 const std::vector<Call>& recorded,
                                 const std::vector<Call>& simulated) {
  const std::vector<RecordedRow>& rows = recording.steps[static_cast<std::size_t>(step)];
  ScheduleDifference difference;
  difference.step = step;
  difference.index = index;
  difference.recorded = difference.simulated = kEnded;
  if (index < simulated.size()) {
    difference.simulated = call_text(simulated[index], index);
    difference.rule = simulated[index].rule;
  }
  const bool ended = index >= recorded.size();
  if (!ended) difference.recorded = call_text(recorded[index], index);
  const std::size_t place = ended ? rows.size() : recorded[index].recorded_row;
  if (!rows.empty()) difference.where = recording.location(rows[ended ? place - 1 : place]);
  add_markers(rows, place, difference);
  if (ended && !recorded.empty()) difference.hint = hint_after(recorded.back(), step);
  return difference;
}

std::string difference_text(const ScheduleDifference& difference) {
  std::string out = format("    step {}, {} {}", difference.step,
                           difference.is_marker ? "marker" : "collective", difference.index);
  if (!difference.fields.empty()) out += ": " + join(difference.fields, ", ");
  out += format("\n    recorded   {}\n", difference.recorded);
  if (!difference.where.file.empty())
    out += format("               at {}\n", to_string(difference.where));
  out += format("    simulated  {}\n", difference.simulated);
  if (!difference.rule.empty()) out += format("               by rule {}\n", difference.rule);
  const char* title = difference.markers_follow ? "after it" : "before it";
  for (const std::string& marker : difference.markers) {
    out += format("    {:<9}  {}\n", title, marker);
    title = "";
  }
  if (!difference.hint.empty()) out += format("    hint       {}\n", difference.hint);
  return out;
}

std::string counts_text(const ScheduleRow& row) {
  const auto& counts = row.collectives;
  const bool same =
      std::all_of(counts.begin(), counts.end(), [&](int count) { return count == counts.front(); });
  if (same) return format("({} collectives a step)", counts.front());
  std::vector<std::string> numbers;
  numbers.reserve(counts.size());
  for (const int count : counts) numbers.push_back(std::to_string(count));
  return format("({} collectives)", join(numbers, ", "));
}

JsonValue texts_json(const std::vector<std::string>& texts) {
  JsonValue json(Json::arrayValue);
  for (const std::string& text : texts) json.append(text);
  return json;
}

JsonValue difference_json(const ScheduleDifference& difference) {
  JsonValue json(Json::objectValue);
  json["step"] = difference.step;
  json["index"] = static_cast<Json::UInt64>(difference.index);
  json["is_marker"] = difference.is_marker;
  json["fields"] = texts_json(difference.fields);
  json["recorded"] = difference.recorded;
  json["simulated"] = difference.simulated;
  json["rule"] = difference.rule;
  json["where"] = to_string(difference.where);
  json["markers"] = texts_json(difference.markers);
  json["markers_follow"] = difference.markers_follow;
  json["hint"] = difference.hint;
  return json;
}

JsonValue row_json(const ScheduleRow& row) {
  JsonValue json(Json::objectValue);
  json["id"] = row.id;
  json["file"] = row.file;
  json["result"] = std::string(to_string(row.result));
  json["reason"] = row.reason;
  JsonValue& collectives = json["collectives"] = JsonValue(Json::arrayValue);
  for (const int count : row.collectives) collectives.append(count);
  json["difference"] = row.difference ? difference_json(*row.difference) : JsonValue();
  return json;
}

ScheduleRow row_of(const std::string& file) {
  ScheduleRow row;
  row.file = file;
  row.id = std::filesystem::path(file).stem().string();
  return row;
}

int passed_rows(const ScheduleValidation& validation) {
  return static_cast<int>(std::count_if(
      validation.rows.begin(), validation.rows.end(),
      [](const ScheduleRow& row) { return row.result == ScheduleResult::Identical; }));
}

}  // namespace

std::string_view to_string(ScheduleResult result) {
  constexpr std::array<std::string_view, 3> kNames = {"identical", "differs", "failed"};
  return kNames[static_cast<std::size_t>(result)];
}

std::optional<ScheduleDifference> schedule_difference(const Recording& recording,
                                                      const Program& program) {
  ZS_CHECK(program.first_step == 0 && program.steps == kRecordedSteps,
           "the program holds the recorded steps");
  for (int step = 0; step < kRecordedSteps; ++step) {
    const std::vector<Call> recorded = recorded_calls(recording, step);
    const std::vector<Call> simulated = simulated_calls(program, step);
    const std::size_t both = std::min(recorded.size(), simulated.size());
    for (std::size_t i = 0; i < both; ++i) {
      std::vector<std::string> fields = differing_fields(recorded[i], simulated[i]);
      if (fields.empty()) continue;
      ScheduleDifference difference = difference_at(recording, step, i, recorded, simulated);
      difference.fields = std::move(fields);
      return difference;
    }
    if (recorded.size() != simulated.size()) {
      return difference_at(recording, step, both, recorded, simulated);
    }
  }
  return std::nullopt;
}

std::optional<ScheduleDifference> marker_difference(const Recording& recording,
                                                    const Program& program) {
  for (int step = 0; step < kRecordedSteps; ++step) {
    const std::vector<Mark> recorded = recorded_marks(recording, step);
    const std::vector<Mark> simulated = simulated_marks(program, step);
    for (std::size_t i = 0; i < std::max(recorded.size(), simulated.size()); ++i) {
      const bool both = i < recorded.size() && i < simulated.size();
      std::vector<std::string> fields;
      if (both) fields = differing_fields(recorded[i], simulated[i]);
      if (both && fields.empty()) continue;
      ScheduleDifference difference;
      difference.step = step;
      difference.index = i;
      difference.is_marker = true;
      difference.fields = std::move(fields);
      difference.recorded = i < recorded.size() ? mark_text(recorded[i]) : kEnded;
      difference.simulated = i < simulated.size() ? mark_text(simulated[i]) : kEnded;
      if (i < recorded.size()) {
        difference.where = recording.location(
            recording.steps[static_cast<std::size_t>(step)][recorded[i].recorded_row]);
      }
      return difference;
    }
  }
  return std::nullopt;
}

ScheduleRow check_schedule(const Recording& recording, std::vector<std::string>& assumptions,
                           const ScheduleCheck& check) {
  ScheduleRow row = row_of(recording.description.file);
  for (std::size_t step = 0; step < row.collectives.size(); ++step) {
    const std::vector<RecordedRow>& rows = recording.steps[step];
    row.collectives[step] = static_cast<int>(std::count_if(
        rows.begin(), rows.end(), [](const RecordedRow& r) { return r.collective.has_value(); }));
  }
  try {
    const Program program = recorded_program(recording.description, check.overflow_steps);
    assumptions.insert(assumptions.end(), recording.description.notes.begin(),
                       recording.description.notes.end());
    assumptions.insert(assumptions.end(), program.assumptions.begin(), program.assumptions.end());
    row.difference = schedule_difference(recording, program);
    if (!row.difference && check.markers) {
      row.reason = why_not_compared(recording, program);
      if (row.reason.empty()) row.difference = marker_difference(recording, program);
    }
    row.result = row.difference ? ScheduleResult::Differs : ScheduleResult::Identical;
  } catch (const ConfigError& error) {
    row.result = ScheduleResult::Failed;
    row.reason = error.what();
  }
  return row;
}

ScheduleValidation validate_schedules(const std::vector<std::string>& paths,
                                      const ScheduleCheck& check) {
  ScheduleValidation validation;
  std::vector<std::string> assumptions;
  std::vector<std::string> unread;
  for (const std::string& path : paths) {
    try {
      const Recording recording = load_recording(path);
      validation.rows.push_back(check_schedule(recording, assumptions, check));
    } catch (const ConfigError& error) {
      ScheduleRow& row = validation.rows.emplace_back(row_of(path));
      row.result = ScheduleResult::Failed;
      row.reason = error.what();
      unread.push_back(row.reason);
    }
  }
  if (!unread.empty() && unread.size() == paths.size()) throw ConfigError(join(unread, "; "));
  std::set<std::string> seen;
  for (std::string& sentence : assumptions) {
    if (seen.insert(sentence).second) validation.assumptions.push_back(std::move(sentence));
  }
  return validation;
}

bool all_identical(const ScheduleValidation& validation) {
  return !validation.rows.empty() &&
         passed_rows(validation) == static_cast<int>(validation.rows.size());
}

std::string schedule_validation_text(const ScheduleValidation& validation) {
  std::string out;
  for (const ScheduleRow& row : validation.rows) {
    out += format("{:<9}  {}", to_string(row.result), row.id);
    if (row.result == ScheduleResult::Identical) out += "  " + counts_text(row);
    out += "\n";
    if (row.difference) out += difference_text(*row.difference);
    if (!row.reason.empty()) out += format("    {}\n", row.reason);
  }
  const int passed = passed_rows(validation);
  const int count = static_cast<int>(validation.rows.size());
  return out + format("{} of {} recordings identical\n", passed, count);
}

JsonValue schedule_validation_json(const ScheduleValidation& validation) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  JsonValue& rows = json["rows"] = JsonValue(Json::arrayValue);
  for (const ScheduleRow& row : validation.rows) rows.append(row_json(row));
  const int passed = passed_rows(validation);
  const int count = static_cast<int>(validation.rows.size());
  json["summary"]["count"] = count;
  json["summary"]["passed"] = passed;
  json["summary"]["failed"] = count - passed;
  json["summary"]["skipped"] = 0;
  json["assumptions"] = texts_json(validation.assumptions);
  return json;
}

}  // namespace zerosim
