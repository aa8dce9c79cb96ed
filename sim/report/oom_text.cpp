#include "sim/report/oom_text.h"

#include <algorithm>

#include "sim/analysis/memory_report.h"
#include "sim/base/text.h"
#include "sim/memory/caching_allocator.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"

namespace zerosim {

namespace {

using Align = TextTable::Align;

std::string paragraph(const std::string& text) {
  return text.empty() ? "" : wrap(text, kReportColumns);
}

// ---- the message -------------------------------------------------------------------------------

std::string figure(const char* words, const std::optional<PrintedSize>& size) {
  return size ? format(", {} {}", torch_size_text(size->bytes), words) : "";
}

std::string message_text(const OomReport& report) {
  if (report.messages.empty()) return "";
  const OomMessage& message = report.messages.front();
  std::string text = to_string(message.where) + ": ";
  if (message.rank) text += format("rank {}, ", *message.rank);
  text += format("GPU {}: {} asked for", message.device, torch_size_text(message.request.bytes));
  text += figure("allocated", message.allocated) + figure("reserved", message.reserved) +
          figure("free", message.free) + figure("in all", message.total) + ".";
  if (!message.traceback.empty()) {
    const TracebackFrame& frame = message.traceback.back();
    text += format(" Raised in {} ({}:{}).", frame.function, frame.file, frame.line);
  }
  if (report.messages.size() > 1) {
    text += format(" The first of {} messages.", report.messages.size());
  }
  return paragraph(text);
}

// ---- ways out ----------------------------------------------------------------------------------

std::string codes_of(const WayOut& way) {
  return way.second_code.empty() ? way.code : way.code + ", " + way.second_code;
}

std::string milliseconds(const std::optional<Seconds>& time) {
  return time ? format("{:.1f}", time->count() * 1e3) : "";
}

std::string against_now(const std::optional<Seconds>& time, const std::optional<Seconds>& now) {
  return time && now ? format("{:+.1f} %", (*time / *now - 1) * 100) : "";
}

std::string shortened(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

/// At the peak, with what lies outside the allocator.
Bytes held(const MemoryReport& memory) {
  return memory.peak_allocated + memory.context;
}

std::string verdict_text(const WayOut& way) {
  if (!way.memory) return "not simulated";
  switch (verdict_of(*way.memory)) {
    case Verdict::Fits:
      return "fits";
    case Verdict::Tight:
      return "tight";
    case Verdict::DoesNotFit:
      break;
  }
  return "does not fit";
}

std::string ways_table(const OomExplanation& explanation) {
  constexpr std::size_t kChange = 46;
  TextTable table({Align::Left, Align::Right, Align::Right, Align::Right, Align::Left});
  const bool timed = explanation.step.has_value();
  table.add_row(
      {"change", timed ? "step (ms)" : "", timed ? "against now" : "", "peak (GiB)", "verdict"});
  table.add_rule();
  if (timed) {
    table.add_row({"as it is, were there memory", milliseconds(explanation.step)});
  }
  for (const WayOut& way : explanation.ways_out) {
    const std::string gib = way.memory ? format("{:.1f}", held(*way.memory).gib()) : "";
    table.add_row({shortened(way.change, kChange), milliseconds(way.step),
                   against_now(way.step, explanation.step), gib, verdict_text(way)});
  }
  return table.text();
}

bool is_tried(const std::vector<WayOut>& ways) {
  return std::any_of(ways.begin(), ways.end(),
                     [](const WayOut& way) { return way.memory.has_value(); });
}

std::string ways_heading(const std::vector<WayOut>& ways, bool timed) {
  if (!is_tried(ways)) return "What would help, without a simulation of it:";
  const auto fits = [](const WayOut& way) { return way.is_enough && way.memory.has_value(); };
  const bool any = std::any_of(ways.begin(), ways.end(), fits);
  if (!any) {
    return "None of the changes tried is enough, nor are two of those that free most together; the "
           "nearest, and what is not simulated:";
  }
  const bool single = std::any_of(ways.begin(), ways.end(),
                                  [&](const WayOut& way) { return fits(way) && !way.is_pair; });
  const char* order = timed ? "the cheapest in step time first" : "the simplest first";
  return format("{}, {}:",
                single ? "Ways out, each found by simulating it"
                       : "No change alone is enough; two together are",
                order);
}

std::string ways_text(const OomExplanation& explanation) {
  const std::vector<WayOut>& ways = explanation.ways_out;
  if (ways.empty()) return "";
  const bool timed = explanation.step.has_value();
  std::string text = "\n" + paragraph(ways_heading(ways, timed)) + "\n";
  if (is_tried(ways)) text += ways_table(explanation) + "\n";
  for (const WayOut& way : ways) {
    std::string how = way.setting;
    if (!way.memory) how += " (not simulated: " + way.note + ")";
    text += wrap(format("{} ({}): {}", way.change, codes_of(way), how), kReportColumns, "- ");
  }
  return text;
}

// ---- JSON --------------------------------------------------------------------------------------

JsonValue bytes(Bytes size) {
  return Json::Int64{size.count()};
}
JsonValue optional_bytes(const std::optional<PrintedSize>& size) {
  return size ? bytes(size->bytes) : JsonValue();
}
JsonValue optional_seconds(const std::optional<Seconds>& time) {
  return time ? JsonValue(time->count()) : JsonValue();
}

JsonValue message_json(const OomMessage& message) {
  JsonValue json(Json::objectValue);
  json["where"] = to_string(message.where);
  json["rank"] = message.rank ? JsonValue(*message.rank) : JsonValue();
  json["device"] = message.device;
  json["request"] = bytes(message.request.bytes);
  json["total"] = optional_bytes(message.total);
  json["allocated"] = optional_bytes(message.allocated);
  json["reserved"] = optional_bytes(message.reserved);
  json["free"] = optional_bytes(message.free);
  json["process"] = optional_bytes(message.process);
  json["other_processes"] = optional_bytes(message.others);
  json["phase"] = message.phase ? JsonValue(std::string(to_string(*message.phase))) : JsonValue();
  return json;
}

JsonValue found_json(const RequestMoment& moment) {
  JsonValue json(Json::objectValue);
  json["bytes"] = bytes(moment.bytes);
  json["owner"] = std::string(moment.owner);
  json["module"] = moment.module_name;
  json["class"] = std::string(to_string(moment.memory_class));
  json["cause"] = std::string(to_string(moment.cause));
  json["phase"] = std::string(to_string(moment.phase));
  json["step"] = moment.step;
  json["rule"] = std::string(moment.rule);
  json["allocated_before"] = bytes(moment.allocated);
  json["of_this_size_before"] = moment.same_size_live;
  JsonValue& causes = json["held_before"] = JsonValue(Json::objectValue);
  for (std::size_t i = 0; i < kMemoryCauses; ++i) {
    causes[std::string(to_string(static_cast<MemoryCause>(i)))] = bytes(moment.by_cause[i]);
  }
  return json;
}

JsonValue way_json(const WayOut& way) {
  JsonValue json(Json::objectValue);
  json["code"] = way.code;
  json["second_code"] = way.second_code.empty() ? JsonValue() : JsonValue(way.second_code);
  json["change"] = way.change;
  json["setting"] = way.setting;
  json["is_enough"] = way.is_enough;
  json["simulated"] = way.memory.has_value();
  json["verdict"] =
      way.memory ? JsonValue(std::string(to_string(verdict_of(*way.memory)))) : JsonValue();
  json["peak_allocated"] = way.memory ? bytes(way.memory->peak_allocated) : JsonValue();
  json["step"] = optional_seconds(way.step);
  json["note"] = way.note;
  return json;
}

JsonValue texts(const std::vector<std::string>& list) {
  JsonValue json(Json::arrayValue);
  for (const std::string& text : list) json.append(text);
  return json;
}

}  // namespace

std::string oom_text(const OomReport& report) {
  const OomExplanation& explanation = report.explanation;
  std::string text = message_text(report);
  if (!text.empty() && !explanation.request.empty()) text += "\n";
  text += paragraph(explanation.request);
  if (!explanation.causes.empty()) {
    text +=
        "\n" + wrap(join(explanation.causes, ", "), kReportColumns, "Causes, most likely first: ");
  }
  if (!explanation.evidence.empty()) text += "\n";
  for (const std::string& sentence : explanation.evidence) text += paragraph(sentence);
  text += ways_text(explanation);
  if (!report.hints.empty()) text += "\n";
  for (const std::string& hint : report.hints) text += paragraph(hint);
  return text;
}

JsonValue oom_json(const OomReport& report) {
  const OomExplanation& explanation = report.explanation;
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["strategy"] = report.strategy.empty() ? JsonValue() : JsonValue(report.strategy);
  JsonValue& messages = json["messages"] = JsonValue(Json::arrayValue);
  for (const OomMessage& message : report.messages) messages.append(message_json(message));
  json["match"] = std::string(to_string(explanation.match));
  JsonValue& request = json["request"] = JsonValue(Json::objectValue);
  request["text"] = explanation.request;
  request["formula"] = explanation.formula;
  request["found"] = explanation.found ? found_json(*explanation.found) : JsonValue();
  json["causes"] = texts(explanation.causes);
  json["evidence"] = texts(explanation.evidence);
  json["simulated_fits"] =
      report.strategy.empty() ? JsonValue() : JsonValue(explanation.simulated_fits);
  json["step"] = optional_seconds(explanation.step);
  JsonValue& ways = json["ways_out"] = JsonValue(Json::arrayValue);
  for (const WayOut& way : explanation.ways_out) ways.append(way_json(way));
  json["hints"] = texts(report.hints);
  return json;
}

}  // namespace zerosim
