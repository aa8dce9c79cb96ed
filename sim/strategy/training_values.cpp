#include "sim/strategy/training_values.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "sim/base/text.h"
#include "sim/strategy/ddp_options.h"
#include "sim/strategy/fsdp_options.h"

namespace zerosim::internal {
namespace {

/// A configuration has a few KiB; what is larger is another file, or none (/proc/kcore).
constexpr std::uintmax_t kLargestFile = std::uintmax_t{16} << 20;

/// "fsdp" of "configs/fsdp.yaml".
std::string strategy_name(const std::string& file) {
  return std::filesystem::path(file).stem().string();
}

std::string flag_reason(const std::string& flag_name) {
  return format("the flag {}", flag_name);
}

std::string renamed(std::string text, const FlagNames& names) {
  for (const FlagName& name : names) {
    for (std::size_t at = text.find(name.flag); at != std::string::npos;
         at = text.find(name.flag, at + name.name.size())) {
      text.replace(at, name.flag.size(), name.name);
    }
  }
  return text;
}

}  // namespace

TrainingReading::TrainingReading(const JsonDocument& read, const TrainingFlags& given,
                                 const Model& trained, int ranks)
    : document(read),
      flags(given),
      model(trained),
      world_size(ranks),
      data_parallel_size(ranks),
      root(JsonObject(read, read.root(), ""), ConfigSection::Kind::TopLevel, notes, "") {
  if (world_size < 1) {
    throw ConfigError(format("world size: found {}, expected at least 1 rank", world_size));
  }
  strategy.name = strategy_name(document.file());
  for (const JsonFinding& finding : document.duplicates()) {
    notes.warnings.push_back(
        {finding.code,
         format("{}: {}: given before in the same mapping; Python keeps this one",
                to_string(finding.where), finding.what),
         finding.where});
  }
}

void check_flag(ConfigSection& section, const std::string& key, const std::string& in_file,
                const std::string& flag, const std::string& flag_says) {
  if (in_file == flag_says) return;
  section.fail(key, format("found {}, but the flag {} says {}", in_file, flag, flag_says),
               "flag_contradicts_file");
}

std::int64_t count_or_flag(TrainingReading& reading, const std::string& key,
                           std::optional<std::int64_t> flag, const std::string& flag_name,
                           std::int64_t fallback, const std::string& reason) {
  if (flag && *flag < 1) {
    throw ConfigError(format("{}: found {}, expected at least 1", flag_name, *flag));
  }
  const std::optional<std::int64_t> in_file = reading.root.integer(key, 1);
  if (in_file && flag) {
    check_flag(reading.root, key, std::to_string(*in_file), flag_name, std::to_string(*flag));
  }
  const std::int64_t value = in_file.value_or(flag.value_or(fallback));
  const Origin origin = in_file ? Origin::File : flag ? Origin::Flag : Origin::Default;
  reading.root.list(key, std::to_string(value), origin,
                    {.reason = flag ? flag_reason(flag_name) : reason});
  return value;
}

void set_precision(TrainingReading& reading, const std::string& key, const std::string& name,
                   std::optional<Precision> in_file, const std::string& reason) {
  const std::optional<Precision> flag = reading.flags.precision;
  if (in_file && flag) {
    check_flag(reading.root, key, std::string(to_string(*in_file)), "--precision",
               std::string(to_string(*flag)));
  }
  const Precision value = in_file.value_or(flag.value_or(Precision::Fp32));
  const Origin origin = in_file ? Origin::File : flag ? Origin::Flag : Origin::Default;
  reading.strategy.precision = value;
  reading.root.list(key, std::string(to_string(value)), origin,
                    {.reason = flag ? flag_reason("--precision") : reason, .name = name});
}

void set_checkpointing(TrainingReading& reading, ConfigSection& section, const std::string& key,
                       std::optional<bool> in_file, const std::string& reason) {
  const std::optional<ActivationCheckpointing> flag = reading.flags.checkpointing;
  if (in_file && flag && *in_file != (*flag != ActivationCheckpointing::None)) {
    check_flag(section, key, truth(*in_file), "--checkpointing", std::string(to_string(*flag)));
  }
  const ActivationCheckpointing stated =
      in_file.value_or(false) ? ActivationCheckpointing::Full : ActivationCheckpointing::None;
  reading.strategy.checkpointing = flag.value_or(stated);
  const Origin origin = in_file ? Origin::File : flag ? Origin::Flag : Origin::Default;
  section.list(key, truth(reading.strategy.checkpointing != ActivationCheckpointing::None), origin,
               {.reason = flag ? flag_reason("--checkpointing") : reason});
}

void list_absent(TrainingReading& reading, const std::string& key, const std::string& value,
                 Origin origin, const std::string& reason) {
  reading.notes.list({.key = key, .value = value, .origin = origin, .reason = reason});
}

void set_not_simulated(TrainingReading& reading, ConfigSection& section, const std::string& key,
                       const std::string& what) {
  if (reading.strategy.not_simulated) return;
  const SourceLocation where = section.object().has(key)
                                   ? section.value_place(key)
                                   : reading.document.location(section.object().value());
  reading.strategy.not_simulated = ConfigError(
      where, format("{}: zerosim does not simulate {} yet", section.object().path_of(key), what));
}

void complete_torch_strategy(TrainingReading& reading) {
  Strategy& strategy = reading.strategy;
  const BatchTriple batch = resolve_batch(std::nullopt, strategy.micro_batch, strategy.grad_accum,
                                          reading.data_parallel_size, {reading.document.file()});
  strategy.train_batch = batch.train_batch;
  list_absent(reading, "train_batch_size", std::to_string(batch.train_batch), Origin::Derived,
              format("micro batch {} x accumulation {} x data-parallel size {}", batch.micro_batch,
                     batch.grad_accum, reading.data_parallel_size));
  if (strategy.framework == Framework::Fsdp) {
    complete_fsdp(strategy, reading.flags, reading.notes.assumptions);
  } else {
    apply_ddp_flags(strategy, reading.flags, reading.notes.assumptions);
  }
  apply_overflow_steps(reading.strategy, reading.flags, reading.notes.assumptions);
  strategy.check_grad_overflow = strategy.precision == Precision::Fp16;
  strategy.throughput_timer = false;
  strategy.zero_init = false;
  strategy.version = "";
}

void apply_overflow_steps(Strategy& strategy, const TrainingFlags& flags,
                          std::vector<std::string>& assumptions) {
  if (strategy.precision != Precision::Fp16) {
    if (flags.overflow_steps) {
      throw ConfigError(
          format("--overflow-steps: {} trains in {}, expected fp16, whose scaled "
                 "gradients overflow",
                 strategy.name, to_string(strategy.precision)));
    }
    return;
  }
  strategy.overflow_steps = flags.overflow_steps.value_or(0);
  if (!flags.overflow_steps) {
    assumptions.emplace_back("No step overflows, since no flag says otherwise.");
  }
}

Strategy finished(TrainingReading& reading) {
  reading.strategy.settings = std::move(reading.notes.settings);
  reading.strategy.assumptions = std::move(reading.notes.assumptions);
  reading.strategy.warnings = std::move(reading.notes.warnings);
  return std::move(reading.strategy);
}

Strategy finished_with(TrainingReading& reading, Strategy deepspeed) {
  Strategy own = finished(reading);
  deepspeed.name = own.name;
  // A key that both list is what DeepSpeed's file states, or else what this one does.
  const auto is_listed = [](const std::vector<Setting>& settings, const Setting& setting) {
    return std::any_of(settings.begin(), settings.end(),
                       [&](const Setting& other) { return other.key == setting.key; });
  };
  std::erase_if(deepspeed.settings, [&](const Setting& setting) {
    return setting.origin == Origin::Derived && is_listed(own.settings, setting);
  });
  std::erase_if(own.settings,
                [&](const Setting& setting) { return is_listed(deepspeed.settings, setting); });
  const auto prepend = [](auto& to, const auto& from) {
    to.insert(to.begin(), from.begin(), from.end());
  };
  prepend(deepspeed.settings, own.settings);
  prepend(deepspeed.assumptions, own.assumptions);
  prepend(deepspeed.warnings, own.warnings);
  deepspeed.liger_kernel = own.liger_kernel;
  deepspeed.compiled = own.compiled;
  deepspeed.tf32 = own.tf32;
  if (own.not_simulated) deepspeed.not_simulated = own.not_simulated;
  return deepspeed;
}

std::string message_of(const ConfigError& error) {
  const std::string place = to_string(error.location());
  std::string message = error.what();
  if (!place.empty() && message.starts_with(place + ": ")) message.erase(0, place.size() + 2);
  return message;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string::npos) return parts;
    start = end + 1;
  }
}

std::string beside(const std::string& file, const std::string& path) {
  return (std::filesystem::path(file).parent_path() / path).string();
}

std::string read_named_file(ConfigSection& section, const std::string& key, std::string& path) {
  const std::string named = section.object().string(key);
  for (const std::string& candidate : {beside(section.object().document().file(), named), named}) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(candidate, error)) continue;
    if (std::filesystem::file_size(candidate, error) > kLargestFile) continue;
    path = candidate;
    return read_file(candidate);
  }
  throw ConfigError(section.value_place(key),
                    format("{}: found {}, but there is no such file, neither beside this one nor "
                           "in the working directory",
                           section.object().path_of(key), section.shown(key)));
}

Strategy read_with_names(const FlagNames& names, const std::function<Strategy()>& read) {
  try {
    Strategy strategy = read();
    for (std::string& text : strategy.assumptions) text = renamed(text, names);
    for (Setting& setting : strategy.settings) {
      const std::string reason = renamed(setting.reason, names);
      if (reason != setting.reason && setting.origin == Origin::Flag) {
        setting.origin = Origin::Derived;
      }
      setting.reason = reason;
    }
    for (Warning& warning : strategy.warnings) warning.message = renamed(warning.message, names);
    return strategy;
  } catch (const ConfigError& error) {
    throw ConfigError(error.location(), renamed(message_of(error), names), error.code());
  }
}

bool leaves_precision(const JsonValue& deepspeed) {
  bool any_auto = false;
  for (const char* key : {"fp16", "bf16"}) {
    const JsonValue& section = deepspeed[key];
    if (!section.isObject()) continue;
    const JsonValue& enabled = section["enabled"];
    if (enabled.isBool() && enabled.asBool()) return false;
    any_auto = any_auto || (enabled.isString() && enabled.asString() == "auto");
  }
  return any_auto;
}

}  // namespace zerosim::internal
