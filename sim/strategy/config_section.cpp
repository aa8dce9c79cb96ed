#include "sim/strategy/config_section.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

/// pydantic's lax mode takes digits in quotes for an integer, but no exponent or fraction.
std::optional<std::int64_t> quoted_integer(const std::string& text) {
  std::int64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

/// What "5e8" in quotes should have been.
std::string suggested_integer(const std::string& text) {
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const bool usable =
      error == std::errc() && end == last && value == std::trunc(value) && std::abs(value) < 0x1p53;
  return usable ? format("; write {} without quotes", static_cast<std::int64_t>(value)) : "";
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// https://docs.pydantic.dev/latest/concepts/conversion_table/ (lax mode).
std::optional<bool> lax_boolean(const JsonValue& value) {
  if (value.isBool()) return value.asBool();
  if (value.isInt64() && (value.asInt64() == 0 || value.asInt64() == 1)) {
    return value.asInt64() == 1;
  }
  if (!value.isString()) return std::nullopt;
  const std::string word = lower_case(value.asString());
  for (const char* yes : {"true", "t", "yes", "y", "on", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "f", "no", "n", "off", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

}  // namespace

ConfigSection::ConfigSection(JsonObject object, Kind kind, ConfigNotes& notes)
    : object_(std::move(object)), kind_(kind), notes_(&notes) {}

bool ConfigSection::is_auto(const std::string& key) {
  const JsonValue& value = object_.raw(key);
  return value.isString() && value.asString() == "auto";
}

bool ConfigSection::is_set(const std::string& key) {
  return !object_.raw(key).isNull();
}

bool ConfigSection::nothing(const std::string& key) {
  if (!is_set(key)) return true;
  if (!is_auto(key)) return false;
  if (kind_ == Kind::TopLevel) {
    fail(key, "found \"auto\", which nothing fills in here, expected a value");
  }
  warn(key, "auto_dropped", "\"auto\" is dropped, DeepSpeed's default applies");
  return true;
}

std::optional<bool> ConfigSection::boolean(const std::string& key) {
  if (nothing(key)) return std::nullopt;
  const std::optional<bool> value = lax_boolean(object_.raw(key));
  if (!value) fail(key, format("found {}, expected true or false", shown(key)));
  return value;
}

std::optional<std::int64_t> ConfigSection::integer(const std::string& key, std::int64_t minimum) {
  if (nothing(key)) return std::nullopt;
  const JsonValue& raw = object_.raw(key);
  std::int64_t value = 0;
  if (raw.isString()) {
    const std::optional<std::int64_t> quoted = quoted_integer(raw.asString());
    if (!quoted || kind_ == Kind::TopLevel) {
      fail(key,
           format("found {}, expected an integer{}", shown(key), suggested_integer(raw.asString())),
           "string_not_int");
    }
    warn(key, "quoted_number", format("{} is taken for a number", shown(key)));
    value = *quoted;
  } else {
    value = object_.integer(key);
  }
  if (value < minimum) {
    fail(key, format("found {}, expected an integer of at least {}", value, minimum),
         "out_of_range");
  }
  return value;
}

std::optional<double> ConfigSection::number(const std::string& key, double minimum) {
  if (nothing(key)) return std::nullopt;
  const double value = object_.number(key);
  if (value < minimum) {
    fail(key, format("found {}, expected a number of at least {}", value, minimum), "out_of_range");
  }
  return value;
}

std::optional<std::string> ConfigSection::word(const std::string& key,
                                               const std::vector<std::string>& allowed) {
  if (nothing(key)) return std::nullopt;
  const JsonValue& raw = object_.raw(key);
  const bool known =
      raw.isString() && std::find(allowed.begin(), allowed.end(), raw.asString()) != allowed.end();
  if (!known) {
    const std::string hint = raw.isString() ? did_you_mean(raw.asString(), allowed) : "";
    fail(key, format("found {}, expected one of {}{}", shown(key), join(allowed, ", "), hint));
  }
  return raw.asString();
}

std::optional<ConfigSection> ConfigSection::section(const std::string& key) {
  if (!is_set(key)) return std::nullopt;
  return ConfigSection(object_.object(key), Kind::Typed, *notes_);
}

void ConfigSection::reject_unknown(const std::string& code) const {
  const std::vector<std::string> unknown = object_.unknown_keys();
  if (unknown.empty()) return;
  const std::string hint = did_you_mean(unknown.front(), object_.known_keys());
  throw ConfigError(object_.document().key_location(object_.value(), unknown.front()),
                    format("{}: unknown key, which DeepSpeed refuses in this section{}",
                           object_.path_of(unknown.front()), hint),
                    code);
}

SourceLocation ConfigSection::place(const std::string& key) const {
  return object_.document().key_location(object_.value(), key);
}

void ConfigSection::warn(const std::string& key, const std::string& code,
                         const std::string& message) {
  notes_->warnings.push_back(
      {code, format("{}: {}: {}", to_string(place(key)), object_.path_of(key), message)});
}

void ConfigSection::assume(const std::string& key, const std::string& message) {
  notes_->assumptions.push_back(format("{}: {}.", object_.path_of(key), message));
}

void ConfigSection::not_simulated(const std::string& key, const std::string& feature) {
  if (notes_->not_simulated) return;
  notes_->not_simulated =
      ConfigError(place(key), format("{}: found {}: this version does not simulate {} yet",
                                     object_.path_of(key), shown(key), feature));
}

std::string ConfigSection::shown(const std::string& key) const {
  const JsonValue& value = object_.value()[key];
  if (value.isObject()) return "an object";
  if (value.isArray()) return "an array";
  return to_text(value, false);
}

}  // namespace zerosim::internal
