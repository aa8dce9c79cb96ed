#include <string>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim::internal {
namespace {

enum class Switch { Absent, Auto, On, Off };

/// The `enabled` of fp16 or bf16.
struct HalfPrecision {
  std::string key;  ///< as the file has it: "bfloat16" is an older name of bf16
  std::string name;
  Precision precision = Precision::Fp16;
  ConfigSection section;
  Switch state = Switch::Absent;
  Origin origin = Origin::Default;
  std::string reason = "DeepSpeed's default";
};

void read_switch(const DeepSpeedReading& reading, HalfPrecision& half) {
  ConfigSection& section = half.section;
  half.state = Switch::Off;
  if (!section.is_set("enabled")) {
    section.warn("enabled", "fp16_section_not_enabled",
                 "missing, and false by default: the section has no effect");
  } else if (!section.is_auto("enabled")) {
    half.state = *section.boolean("enabled") ? Switch::On : Switch::Off;
    half.origin = Origin::File;
  } else if (reading.fills_auto()) {
    half.state = Switch::Auto;
  } else {
    static_cast<void>(section.boolean("enabled"));  // dropped, with its warning
    section.warn("enabled", "auto_precision_becomes_fp32",
                 "\"auto\" is dropped by DeepSpeed alone, which then trains in fp32");
    half.reason = "DeepSpeed's default, since it drops \"auto\"";
  }
}

HalfPrecision read_half(DeepSpeedReading& reading, const std::string& key, const std::string& name,
                        Precision precision) {
  HalfPrecision half{key, name, precision, reading.root.section_or_empty(key, name)};
  if (reading.root.is_set(key)) read_switch(reading, half);
  return half;
}

/// \param may_add  the section may be added if the file has none
void fill_switch(const DeepSpeedReading& reading, HalfPrecision& half, bool on, bool may_add,
                 const std::string& source) {
  if (half.state == Switch::Auto) {
    half.origin = Origin::Auto;
    half.reason = format("from {}", source);
  } else if (half.state == Switch::Absent && on && may_add && reading.fills_absent()) {
    half.origin = Origin::Flag;
    half.reason = format("enabled by {}, as accelerate does; the file has no such section", source);
  } else {
    return;
  }
  half.state = on ? Switch::On : Switch::Off;
}

/// "auto", and in mode auto an absent section, come from the flag (A6).
void fill_precision(const DeepSpeedReading& reading, HalfPrecision& fp16, HalfPrecision& bf16) {
  const bool any_auto = fp16.state == Switch::Auto || bf16.state == Switch::Auto;
  std::optional<Precision> wanted = reading.flags.precision;
  std::string source = format("the flag {}", kPrecisionFlag);
  if (!wanted && any_auto) {
    const bool bf16_likely =
        bf16.state == Switch::Auto ? fp16.state != Switch::On : bf16.state == Switch::On;
    wanted = bf16_likely ? Precision::Bf16 : Precision::Fp16;
    source = format("{}, assumed since no flag says otherwise", to_string(*wanted));
  }
  const bool fp16_given = fp16.state == Switch::On;
  fill_switch(reading, fp16, wanted == Precision::Fp16, bf16.state != Switch::On, source);
  fill_switch(reading, bf16, wanted == Precision::Bf16, !fp16_given, source);
}

void check_flag(const DeepSpeedReading& reading, const HalfPrecision& half) {
  if (half.origin != Origin::File) return;
  const Precision flag = *reading.flags.precision;
  const bool on = half.state == Switch::On;
  if (on == (flag == half.precision)) return;
  half.section.fail(
      "enabled", format("found {}, but the flag {} says {}", on, kPrecisionFlag, to_string(flag)),
      "flag_contradicts_file");
}

void check_precision(DeepSpeedReading& reading, const HalfPrecision& fp16,
                     const HalfPrecision& bf16) {
  const bool fp16_on = fp16.state == Switch::On;
  const bool bf16_on = bf16.state == Switch::On;
  if (fp16_on && bf16_on) {
    reading.root.fail(bf16.key, "enabled together with fp16, expected at most one of them",
                      "fp16_and_bf16");
  }
  if (!reading.flags.precision) return;
  check_flag(reading, fp16);
  check_flag(reading, bf16);
  if (!fp16_on && !bf16_on && *reading.flags.precision != Precision::Fp32) {
    reading.assume(format("Precision: {} {} is not seen by the file, which leaves it at fp32.",
                          kPrecisionFlag, to_string(*reading.flags.precision)));
  }
}

void list_switch(HalfPrecision& half) {
  half.section.list("enabled", truth(half.state == Switch::On), half.origin,
                    {.reason = half.reason});
}

/// A4.3.
void read_fp16_options(DeepSpeedReading& reading, HalfPrecision& half) {
  ConfigSection& section = half.section;
  const bool on = half.state == Switch::On;
  const double loss_scale =
      section.number_or("loss_scale", 0, 0, std::numeric_limits<double>::max(), {.matters = on});
  const bool dynamic = on && loss_scale == 0;
  const Listing listing{.matters = dynamic};
  section.integer_or("initial_scale_power", 16, 0, listing);
  section.integer_or("loss_scale_window", 1000, dynamic ? 1 : kNoIntegerMinimum, listing);
  section.integer_or("hysteresis", 2, 0, listing);
  section.boolean_or("consecutive_hysteresis", false, listing);
  const double least =
      section.number_or("min_loss_scale", 1, 0, std::numeric_limits<double>::max(), listing);
  if (dynamic && least == 0) {
    section.fail("min_loss_scale", "found 0, expected a number above 0", "out_of_range");
  }
  section.boolean_or("auto_cast", false, {.matters = on});
  section.boolean_or("fp16_master_weights_and_grads", false, {.matters = on});
  section.reject_unknown("unknown_key_fp16");
  if (on) {
    reading.assume(format("{} loss scale: no step overflows, so no step is skipped (A4.3).",
                          dynamic ? "Dynamic" : "Static"));
  }
}

void read_bf16_options(DeepSpeedReading& reading, HalfPrecision& half) {
  ConfigSection& section = half.section;
  Strategy& strategy = reading.strategy;
  const bool on = half.state == Switch::On;
  section.boolean_or("immediate_grad_update", false, {.matters = on});
  const Listing checked{.matters = on && reading.at_stage(kStages12),
                        .reason = format("the default of DeepSpeed {}", strategy.version)};
  const bool checks = section.boolean_or(
      "check_grad_overflow", deepspeed_release(strategy.version).bf16_checks_overflow, checked);
  strategy.check_grad_overflow =
      strategy.precision == Precision::Fp16 || (strategy.precision == Precision::Bf16 && checks);
  section.boolean_or("bf16_master_weights_and_grads", false, {.matters = on});
  section.boolean_or("bf16_optimizer_states", false, {.matters = on});
  section.reject_unknown("unknown_key_fp16");
}

void read_amp(DeepSpeedReading& reading) {
  std::optional<ConfigSection> amp = reading.root.section("amp");
  if (!amp || !amp->boolean_or("enabled", false)) return;
  if (reading.strategy.zero.stage > 0) {
    reading.root.fail("amp", "enabled together with ZeRO, expected fp16 or bf16", "amp_with_zero");
  }
  if (reading.strategy.precision != Precision::Fp32) {
    reading.root.fail("amp",
                      format("enabled together with {}, expected at most one of them",
                             to_string(reading.strategy.precision)),
                      "amp_with_half_precision");
  }
}

void read_torch_autocast(DeepSpeedReading& reading) {
  std::optional<ConfigSection> section = reading.root.section("torch_autocast");
  if (!section) return;
  const bool on = section->boolean_or("enabled", false);
  if (const auto dtype = section->word("dtype", dtype_words())) {
    section->list("dtype", *dtype, Origin::File);
  }
  if (const auto modules = section->strings("lower_precision_safe_modules")) {
    section->list("lower_precision_safe_modules", join(*modules, ", "), Origin::File);
  }
  section->warn_unknown("unknown_key_ignored", "which DeepSpeed ignores");
  if (on && reading.strategy.zero.quantized_weights) {
    section->fail("enabled",
                  "found true together with zero_quantized_weights, expected one of them",
                  "autocast_with_quantized_weights");
  }
}

}  // namespace

void read_precision(DeepSpeedReading& reading) {
  ConfigSection& root = reading.root;
  std::string bf16_key = "bf16";
  if (root.is_set("bfloat16")) {
    root.warn("bfloat16", "old_name", "an older name that is still read; the name is bf16");
    if (!root.is_set("bf16")) bf16_key = "bfloat16";
  }
  static_cast<void>(root.has("bf16"));
  HalfPrecision fp16 = read_half(reading, "fp16", "fp16", Precision::Fp16);
  HalfPrecision bf16 = read_half(reading, bf16_key, "bf16", Precision::Bf16);
  fill_precision(reading, fp16, bf16);
  check_precision(reading, fp16, bf16);
  reading.strategy.precision = fp16.state == Switch::On   ? Precision::Fp16
                               : bf16.state == Switch::On ? Precision::Bf16
                                                          : Precision::Fp32;
  if (reading.strategy.precision == Precision::Fp32) {
    reading.assume("Precision: fp32, since neither fp16 nor bf16 is enabled.");
  }
  list_switch(fp16);
  read_fp16_options(reading, fp16);
  list_switch(bf16);
  read_bf16_options(reading, bf16);
  read_amp(reading);
  read_torch_autocast(reading);
}

}  // namespace zerosim::internal
