#include <algorithm>
#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim::internal {
namespace {

OffloadDevice device_of_word(const std::string& word) {
  if (word == "cpu") return OffloadDevice::Cpu;
  return word == "nvme" ? OffloadDevice::Nvme : OffloadDevice::None;
}

/// Where the file says that something is offloaded.
struct Offload {
  ConfigSection section;
  std::string key;        ///< "offload_param", or the old key that stands for it
  std::string device;     ///< as the file says it
  bool from_old = false;  ///< by an old key
};

/// `offload_param`, or `cpu_offload_param: true`, which means device "cpu" (A1.7).
Offload find_offload(ConfigSection& zero, const char* key, const char* old_key) {
  if (zero.is_set(old_key)) {
    zero.warn(old_key, "deprecated_key", format("an old key; write {}", key));
    if (zero.is_set(key)) {
      zero.fail(old_key, format("given together with {}, expected only the latter", key),
                "deprecated_and_new_together");
    }
    const bool on = zero.boolean(old_key).value_or(false);
    return {zero.empty_section(key), old_key, on ? "cpu" : "none", true};
  }
  Offload found{zero.section_or_empty(key), key, "none", false};
  found.device = found.section.word("device", {"none", "cpu", "nvme"}).value_or("none");
  return found;
}

/// Lists the device that takes effect; `reason`: why it is not the one of the file, or "".
void list_device(ConfigSection& zero, Offload& found, OffloadDevice device, bool matters,
                 const std::string& reason) {
  const std::string value(to_string(device));
  const bool stated = found.from_old || found.section.is_set("device");
  if (!stated && !matters) return;
  const Origin origin = !reason.empty() ? Origin::Derived : stated ? Origin::File : Origin::Default;
  const Listing listing{.reason = origin == Origin::Default ? "DeepSpeed's default" : reason};
  if (!found.from_old) {
    found.section.list("device", value, origin, listing);
    return;
  }
  Listing renamed = listing;
  renamed.name = found.key == "cpu_offload" ? "offload_optimizer.device" : "offload_param.device";
  zero.list(found.key, value, origin, renamed);
}

/// What both sections have.
void read_common(DeepSpeedReading& reading, ConfigSection& section, OffloadOptions& options,
                 std::int64_t buffers) {
  const bool moves = options.device != OffloadDevice::None;
  const bool nvme = options.device == OffloadDevice::Nvme;
  if (const std::optional<std::string> path = section.string("nvme_path")) {
    options.nvme_path = *path;
    section.list("nvme_path", *path, Origin::File);
  }
  options.buffer_count = section.integer_or("buffer_count", buffers, 0, {.matters = nvme});
  options.pin_memory = section.boolean_or(
      "pin_memory", deepspeed_release(reading.strategy.version).pins_offloaded_memory,
      {.matters = moves,
       .reason = format("the default of DeepSpeed {}", reading.strategy.version)});
}

void check_path(ConfigSection& section, const std::string& device) {
  if (device != "nvme" || section.is_set("nvme_path")) return;
  section.fail("nvme_path", R"(missing, expected a path, since device is "nvme")",
               "nvme_path_missing");
}

/// A partition that leaves the CPU passes through one buffer (A7).
void check_param_buffers(const DeepSpeedReading& reading, ConfigSection& section,
                         const OffloadOptions& options) {
  if (options.device != OffloadDevice::Nvme) return;
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (const Parameter& parameter : reading.model.parameters) {
    const std::int64_t world = reading.world_size;
    const std::int64_t partition = (parameter.elements + world - 1) / world;
    total += partition;
    largest = std::max(largest, partition);
  }
  if (total <= options.max_in_cpu || largest <= options.buffer_size) return;
  section.fail("buffer_size",
               format("{} elements, but the largest partition of a parameter has {}, expected at "
                      "least so many",
                      options.buffer_size, largest),
               "nvme_buffer_too_small");
}

void read_param(DeepSpeedReading& reading, ConfigSection& zero) {
  OffloadOptions& options = reading.strategy.zero.offload_param;
  Offload found = find_offload(zero, "offload_param", "cpu_offload_param");
  const bool stage3 = reading.at_stage(kStage3);
  const bool ignored = found.device != "none" && !stage3;
  options.device = stage3 ? device_of_word(found.device) : OffloadDevice::None;
  list_device(zero, found, options.device, stage3,
              ignored ? format("since \"{}\" has no effect at stage {}", found.device,
                               reading.strategy.zero.stage)
                      : "");
  if (ignored) {
    zero.warn(found.key, "offload_param_needs_stage_3",
              format("has no effect at stage {}, only at stage 3", reading.strategy.zero.stage));
  }
  constexpr std::int64_t kBuffers = 5;
  read_common(reading, found.section, options, kBuffers);
  const bool nvme = options.device == OffloadDevice::Nvme;
  const Listing listing{.matters = nvme, .unit = "elements"};
  options.buffer_size = found.section.integer_or("buffer_size", options.buffer_size, 0, listing);
  options.max_in_cpu = found.section.integer_or("max_in_cpu", options.max_in_cpu, 0, listing);
  check_path(found.section, found.device);
  found.section.reject_unknown("unknown_key_zero");
  check_param_buffers(reading, found.section, options);
}

/// Stages 1 and 2 keep in CPU memory what should go to NVMe (A2).
OffloadDevice optimizer_device(const DeepSpeedReading& reading, const std::string& word) {
  const OffloadDevice device = device_of_word(word);
  if (reading.at_stage(kStage0)) return OffloadDevice::None;
  const bool nvme = device == OffloadDevice::Nvme;
  return nvme && !reading.at_stage(kStage3) ? OffloadDevice::Cpu : device;
}

void read_optimizer_device(DeepSpeedReading& reading, ConfigSection& zero, Offload& found) {
  OffloadOptions& options = reading.strategy.zero.offload_optimizer;
  const int stage = reading.strategy.zero.stage;
  options.device = optimizer_device(reading, found.device);
  const bool differs = options.device != device_of_word(found.device);
  list_device(
      zero, found, options.device, reading.at_stage(kStages123),
      differs ? format("since \"{}\" is treated so at stage {} (A2)", found.device, stage) : "");
  if (differs && options.device == OffloadDevice::Cpu) {
    zero.warn(found.key, "nvme_is_cpu_below_stage_3",
              format(R"(device "nvme" is treated as "cpu" at stage {})", stage));
  } else if (differs) {
    note_no_effect(reading, zero, found.key, kStages123);
  }
}

void read_ratio(DeepSpeedReading& reading, ConfigSection& section, OffloadOptions& options) {
  const bool moves = options.device != OffloadDevice::None;
  const int stage = reading.strategy.zero.stage;
  options.ratio = section.number_or("ratio", 1.0, 0, 1, {.matters = moves && stage == 3});
  if (options.ratio < 1 && stage != 3) {
    section.fail("ratio",
                 format("found {}, which needs stage 3, but the stage is {}", options.ratio, stage),
                 "partial_offload_needs_stage_3");
  }
}

void read_optimizer_states(DeepSpeedReading& reading, ConfigSection& zero) {
  OffloadOptions& options = reading.strategy.zero.offload_optimizer;
  Offload found = find_offload(zero, "offload_optimizer", "cpu_offload");
  ConfigSection& section = found.section;
  read_optimizer_device(reading, zero, found);
  constexpr std::int64_t kBuffers = 4;
  read_common(reading, section, options, kBuffers);
  const bool moves = options.device != OffloadDevice::None;
  const bool nvme = options.device == OffloadDevice::Nvme;
  options.pipeline_read = section.boolean_or("pipeline_read", false, {.matters = nvme});
  options.pipeline_write = section.boolean_or("pipeline_write", false, {.matters = nvme});
  section.boolean_or("fast_init", false, {.matters = false});
  read_ratio(reading, section, options);
  const bool stage3 = reading.at_stage(kStage3);
  options.super_offload = section.boolean_or("super_offload", false, {.matters = moves && stage3});
  options.cpuadam_cores_perc = section.number_or("cpuadam_cores_perc", options.cpuadam_cores_perc,
                                                 0, 1, {.matters = options.super_offload});
  check_path(section, found.device);
  section.reject_unknown("unknown_key_zero");
}

/// Only ever said how offloaded memory is allocated; without effect today.
void read_old_pin_memory(ConfigSection& zero) {
  constexpr const char* kKey = "cpu_offload_use_pin_memory";
  if (!zero.is_set(kKey)) return;
  zero.warn(kKey, "deprecated_key", "an old key; write pin_memory in offload_optimizer");
  static_cast<void>(zero.boolean(kKey));
}

}  // namespace

void read_offload(DeepSpeedReading& reading, ConfigSection& zero) {
  read_param(reading, zero);
  read_optimizer_states(reading, zero);
  read_old_pin_memory(zero);
}

}  // namespace zerosim::internal
