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

/// Floating-point fields take numbers in quotes as well.
std::optional<double> quoted_number(const JsonValue& value) {
  if (!value.isString()) return std::nullopt;
  const std::string text = value.asString();
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last || !std::isfinite(number)) return std::nullopt;
  return number;
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

void ConfigNotes::list(Setting setting) {
  if (setting.origin != Origin::File) assumptions.push_back(sentence(setting));
  settings.push_back(std::move(setting));
}

bool ConfigNotes::lists(const std::string& key) const {
  return std::any_of(settings.begin(), settings.end(),
                     [&key](const Setting& setting) { return setting.key == key; });
}

void ConfigNotes::override_setting(const std::string& key, std::string value, std::string reason) {
  for (Setting& setting : settings) {
    if (setting.key != key) continue;
    setting.value = std::move(value);
    setting.reason = std::move(reason);
    setting.origin = Origin::Derived;
    assumptions.push_back(sentence(setting));
    return;
  }
  ZS_CHECK(false, "only a listed key gets another value");
}

ConfigSection::ConfigSection(JsonObject object, Kind kind, ConfigNotes& notes,
                             std::string listed_path)
    : object_(std::move(object)),
      kind_(kind),
      notes_(&notes),
      listed_path_(std::move(listed_path)) {}

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
    fail(key, "found \"auto\", which nothing fills in here, expected a value", "auto_unresolved");
  }
  warn(key, "auto_dropped", "\"auto\" is dropped, DeepSpeed's default applies");
  return true;
}

std::optional<bool> ConfigSection::boolean(const std::string& key) {
  if (nothing(key)) return std::nullopt;
  const JsonValue& raw = object_.raw(key);
  if (kind_ == Kind::TopLevel && raw.isString()) {  // DeepSpeed takes it as Python does
    const bool truthy = !raw.asString().empty();
    warn(key, "quoted_boolean", format("{} counts as {}", shown(key), truthy));
    return truthy;
  }
  const std::optional<bool> value = lax_boolean(raw);
  if (!value) fail(key, format("found {}, expected true or false", shown(key)), "wrong_type");
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
  } else if (raw.isNumeric()) {
    value = object_.integer(key);
  } else {
    fail(key, format("found {}, expected an integer", shown(key)), "wrong_type");
  }
  if (value < minimum) {
    fail(key, format("found {}, expected an integer of at least {}", value, minimum),
         "out_of_range");
  }
  return value;
}

std::optional<double> ConfigSection::number(const std::string& key, double minimum,
                                            double maximum) {
  if (nothing(key)) return std::nullopt;
  const JsonValue& raw = object_.raw(key);
  const std::optional<double> quoted = quoted_number(raw);
  if (!raw.isNumeric() && (!quoted || kind_ == Kind::TopLevel)) {
    fail(key, format("found {}, expected a number", shown(key)), "wrong_type");
  }
  if (quoted) warn(key, "quoted_number", format("{} is taken for a number", shown(key)));
  const double value = quoted ? *quoted : object_.number(key);
  if (value < minimum) {
    fail(key, format("found {}, expected a number of at least {}", value, minimum), "out_of_range");
  }
  if (value > maximum) {
    fail(key, format("found {}, expected a number of at most {}", value, maximum), "out_of_range");
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
    fail(key, format("found {}, expected one of {}{}", shown(key), join(allowed, ", "), hint),
         "unknown_value");
  }
  return raw.asString();
}

std::optional<std::string> ConfigSection::string(const std::string& key) {
  if (nothing(key)) return std::nullopt;
  if (!object_.raw(key).isString()) {
    fail(key, format("found {}, expected text", shown(key)), "wrong_type");
  }
  return object_.string(key);
}

std::optional<std::vector<std::string>> ConfigSection::strings(const std::string& key) {
  if (nothing(key)) return std::nullopt;
  return object_.strings(key);
}

bool ConfigSection::boolean_or(const std::string& key, bool fallback, const Listing& listing) {
  const std::optional<bool> given = boolean(key);
  const bool value = given.value_or(fallback);
  list_read(key, truth(value), given.has_value(), listing);
  return value;
}

std::int64_t ConfigSection::integer_or(const std::string& key, std::int64_t fallback,
                                       std::int64_t minimum, const Listing& listing) {
  const std::optional<std::int64_t> given = integer(key, minimum);
  const std::int64_t value = given.value_or(fallback);
  list_read(key, std::to_string(value), given.has_value(), listing);
  return value;
}

double ConfigSection::number_or(const std::string& key, double fallback, double minimum,
                                double maximum, const Listing& listing) {
  const std::optional<double> given = number(key, minimum, maximum);
  const double value = given.value_or(fallback);
  list_read(key, to_text(JsonValue(value), false), given.has_value(), listing);
  return value;
}

std::string ConfigSection::word_or(const std::string& key, const std::string& fallback,
                                   const std::vector<std::string>& allowed,
                                   const Listing& listing) {
  const std::optional<std::string> given = word(key, allowed);
  std::string value = given.value_or(fallback);
  list_read(key, value, given.has_value(), listing);
  return value;
}

void ConfigSection::list(const std::string& key, std::string value, Origin origin,
                         const Listing& listing) {
  const std::string& name = listing.name.empty() ? key : listing.name;
  notes_->list({.key = listed_name(name),
                .value = std::move(value),
                .origin = origin,
                .reason = origin == Origin::File ? "" : listing.reason,
                .unit = listing.unit,
                .where = value_place(key)});
}

void ConfigSection::list_read(const std::string& key, std::string value, bool given,
                              const Listing& listing) {
  if (given) {
    list(key, std::move(value), Origin::File, listing);
  } else if (is_auto(key)) {
    Listing dropped = listing;
    dropped.reason = "DeepSpeed's default, since it drops \"auto\"";
    list(key, std::move(value), Origin::Default, dropped);
  } else if (listing.matters) {
    list(key, std::move(value), Origin::Default, listing);
  }
}

void ConfigSection::list_if_set(const std::string& key) {
  if (!is_set(key)) return;
  const JsonValue& value = object_.raw(key);
  list(key, value.isString() ? value.asString() : to_text(value, false), Origin::File);
}

std::optional<ConfigSection> ConfigSection::section(const std::string& key,
                                                    const std::string& listed_as) {
  if (!is_set(key)) return std::nullopt;
  if (!object_.raw(key).isObject()) {
    fail(key, format("found {}, expected an object", shown(key)), "wrong_type");
  }
  return ConfigSection(object_.object(key), Kind::Typed, *notes_,
                       listed_name(listed_as.empty() ? key : listed_as));
}

ConfigSection ConfigSection::section_or_empty(const std::string& key,
                                              const std::string& listed_as) {
  if (std::optional<ConfigSection> found = section(key, listed_as)) return *std::move(found);
  return empty_section(key, listed_as);
}

ConfigSection ConfigSection::empty_section(const std::string& key, const std::string& listed_as) {
  static const JsonValue kEmpty(Json::objectValue);
  return {JsonObject(object_.document(), kEmpty, object_.path_of(key)), Kind::Typed, *notes_,
          listed_name(listed_as.empty() ? key : listed_as)};
}

void ConfigSection::reject_unknown(KnownCode code) const {
  const std::vector<std::string> unknown = object_.unknown_keys();
  if (unknown.empty()) return;
  const std::string hint = did_you_mean(unknown.front(), object_.known_keys());
  throw ConfigError(key_place(unknown.front()),
                    format("{}: unknown key, which DeepSpeed refuses in this section{}",
                           object_.path_of(unknown.front()), hint),
                    code.text());
}

SourceLocation ConfigSection::key_place(const std::string& key) const {
  return object_.document().key_location(object_.value(), key);
}

SourceLocation ConfigSection::value_place(const std::string& key) const {
  if (!object_.value().isMember(key)) return {};
  return object_.document().location(object_.value()[key]);
}

void ConfigSection::warn(const std::string& key, KnownCode code, const std::string& message) {
  const SourceLocation where = key_place(key);
  notes_->warnings.push_back(
      {code.text(), format("{}: {}: {}", to_string(where), object_.path_of(key), message), where});
}

std::vector<std::string> ConfigSection::warn_unknown(KnownCode code,
                                                     const std::string& what_happens) {
  constexpr std::size_t kMost = 20;  // finding the place of a key walks through the file
  const std::vector<std::string> known = object_.known_keys();
  std::vector<std::string> unknown = object_.unknown_keys();
  const std::size_t more = unknown.size() - std::min(unknown.size(), kMost);
  unknown.resize(unknown.size() - more);
  for (const std::string& key : unknown) {
    const bool last = &key == &unknown.back();
    warn(key, code,
         format("unknown key, {}{}{}", what_happens, did_you_mean(key, known),
                last && more > 0 ? format("; and {} more", more) : ""));
  }
  return unknown;
}

std::string ConfigSection::listed_name(const std::string& key) const {
  return listed_path_.empty() ? key : listed_path_ + "." + key;
}

std::string ConfigSection::shown(const std::string& key) const {
  const JsonValue& value = object_.value()[key];
  if (value.isObject()) return "an object";
  if (value.isArray()) return "an array";
  return to_text(value, false);
}

std::string truth(bool value) {
  return value ? "true" : "false";
}

}  // namespace zerosim::internal
