#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"

namespace zerosim::internal {
namespace {

void read_comms_logger(DeepSpeedReading& reading) {
  constexpr const char* kKey = "comms_logger";
  std::optional<ConfigSection> section = reading.root.section(kKey);
  reading.strategy.comms_logger = section.has_value();
  if (!section) {
    reading.root.list(kKey, "false", Origin::Default, {.reason = "the file has no such section"});
    return;
  }
  reading.root.list(kKey, "true", Origin::File);
  section->boolean_or("enabled", false, {.matters = false});
  section->boolean_or("prof_all", true, {.matters = false});
  section->boolean_or("verbose", false, {.matters = false});
  section->boolean_or("debug", false, {.matters = false});
  section->list_if_set("prof_ops");
  section->reject_unknown("unknown_key_section");
  reading.root.warn(kKey, "comms_logger_synchronises",
                    "the section alone, whatever its enabled says, makes the host wait for the "
                    "device after every collective");
}

/// Acts in one step only, but turns on wall_clock_breakdown (A4).
bool read_flops_profiler(DeepSpeedReading& reading) {
  std::optional<ConfigSection> section = reading.root.section("flops_profiler");
  if (!section) return false;
  const bool on = section->boolean_or("enabled", false, {.matters = false});
  section->integer_or("profile_step", 1, kNoIntegerMinimum, {.matters = on});
  section->integer_or("module_depth", -1, kNoIntegerMinimum, {.matters = false});
  section->integer_or("top_modules", 1, kNoIntegerMinimum, {.matters = false});
  section->boolean_or("detailed", true, {.matters = false});
  section->number_or("recompute_fwd_factor", 0, 0, std::numeric_limits<double>::max(),
                     {.matters = false});
  static_cast<void>(section->has("output_file"));
  section->warn_unknown("unknown_key_ignored", "which DeepSpeed ignores");
  if (on) {
    reading.assume(
        "flops_profiler: its hooks act in one step only; steady steps are simulated, with "
        "wall_clock_breakdown, which it turns on.");
  }
  return on;
}

void read_wall_clock(DeepSpeedReading& reading, bool forced) {
  constexpr const char* kKey = "wall_clock_breakdown";
  const bool stated = reading.root.boolean_or(kKey, false);
  reading.strategy.wall_clock_breakdown = stated || forced;
  if (forced && !stated) {
    reading.notes.override_setting(kKey, "true", "since flops_profiler turns it on");
  }
  if (!reading.strategy.wall_clock_breakdown) return;
  reading.root.warn(stated ? kKey : "flops_profiler", "wall_clock_breakdown_synchronises",
                    "timers wait for the device in every micro batch");
}

void read_throughput_timer(DeepSpeedReading& reading) {
  ConfigSection timers = reading.root.section_or_empty("timers");
  ConfigSection throughput = timers.section_or_empty("throughput");
  const bool enabled = throughput.boolean_or(
      "enabled", true,
      {.reason = "DeepSpeed's default: the host waits for the device around every micro batch "
                 "(0.7)"});
  const bool synchronized = throughput.boolean_or("synchronized", true, {.matters = enabled});
  throughput.reject_unknown("unknown_key_section");
  timers.warn_unknown("unknown_key_ignored", "which DeepSpeed ignores");
  reading.strategy.throughput_timer = enabled && synchronized;
}

}  // namespace

void read_timers(DeepSpeedReading& reading) {
  read_comms_logger(reading);
  const bool profiles = read_flops_profiler(reading);
  read_wall_clock(reading, profiles);
  read_throughput_timer(reading);
}

}  // namespace zerosim::internal
