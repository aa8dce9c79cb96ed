#include "sim/strategy/implied_deepspeed.h"

#include <algorithm>
#include <utility>

#include "sim/base/text.h"
#include "sim/strategy/training_values.h"

namespace zerosim::internal {
namespace {

constexpr std::size_t kMostValues = 1000;  ///< far above all keys that DeepSpeed has

std::size_t value_count(const JsonValue& value) {
  std::size_t count = 1;
  for (const JsonValue& member : value) count += value_count(member);
  return count;
}

std::string quoted(const std::string& text) {
  return to_text(JsonValue(text), false);
}

bool opens(const std::string& text) {
  return text.ends_with('{') || text.ends_with('[');
}

bool closes(const std::string& text) {
  return text == "}" || text == "]";
}

}  // namespace

ImpliedDeepSpeed::ImpliedDeepSpeed(SourceLocation whole, std::string filler)
    : whole_(std::move(whole)), filler_(std::move(filler)) {
  lines_.push_back({"{", whole_, whole_});
}

void ImpliedDeepSpeed::add(const std::string& key, const std::string& value,
                           const SourceLocation& key_place, const SourceLocation& value_place,
                           bool stated) {
  const std::string text = key.empty() ? value : quoted(key) + ": " + value;
  lines_.push_back({text, key_place, value_place, stated});
}

void ImpliedDeepSpeed::open(const std::string& key, const SourceLocation& place) {
  add(key, "{", place, place, true);
}

void ImpliedDeepSpeed::close() {
  lines_.push_back({"}", whole_, whole_});
}

void ImpliedDeepSpeed::state(const std::string& key, const JsonValue& value,
                             const SourceLocation& place) {
  add(key, to_text(value, false), place, place, true);
}

void ImpliedDeepSpeed::fill(const std::string& key, const JsonValue& value) {
  add(key, to_text(value, false), whole_, whole_, false);
}

void ImpliedDeepSpeed::copy(const JsonDocument& document, const JsonValue& object) {
  if (value_count(object) > kMostValues) {
    throw ConfigError(whole_, format("found more than {} values, expected those of a DeepSpeed "
                                     "configuration",
                                     kMostValues));
  }
  copy_members(document, object);
}

void ImpliedDeepSpeed::copy_members(const JsonDocument& document, const JsonValue& object) {
  for (const std::string& key : JsonObject(document, object, "").keys()) {
    copy_value(key, document, object[key], document.key_location(object, key));
  }
}

void ImpliedDeepSpeed::copy_value(const std::string& key, const JsonDocument& document,
                                  const JsonValue& value, const SourceLocation& key_place) {
  const SourceLocation place = document.location(value);
  if (value.isObject()) {
    add(key, "{", key_place, place, true);
    copy_members(document, value);
    lines_.push_back({"}", place, place});
  } else if (value.isArray()) {
    add(key, "[", key_place, place, true);
    for (const JsonValue& element : value) {
      copy_value("", document, element, document.location(element));
    }
    lines_.push_back({"]", place, place});
  } else {
    add(key, to_text(value, false), key_place, place, true);
  }
}

const ImpliedDeepSpeed::Line* ImpliedDeepSpeed::line_of(const SourceLocation& where) const {
  if (where.file != whole_.file || where.line < 1) return nullptr;
  const auto line = static_cast<std::size_t>(where.line) - 1;
  return line < lines_.size() ? &lines_[line] : nullptr;
}

SourceLocation ImpliedDeepSpeed::place_in_file(const SourceLocation& where) const {
  const Line* line = line_of(where);
  if (line == nullptr) return where.file == whole_.file ? whole_ : where;
  return where.column <= 1 ? line->key : line->value;
}

std::string ImpliedDeepSpeed::moved(const std::string& message, const SourceLocation& where) const {
  const std::string place = to_string(where);
  if (place.empty() || !message.starts_with(place)) return message;
  return to_string(place_in_file(where)) + message.substr(place.size());
}

ConfigError ImpliedDeepSpeed::moved(const ConfigError& error) const {
  const bool placed = !error.location().file.empty();
  return {placed ? place_in_file(error.location()) : whole_, message_of(error), error.code()};
}

void ImpliedDeepSpeed::move_places(Strategy& strategy) const {
  for (Setting& setting : strategy.settings) {
    const Line* line = line_of(setting.where);
    if (line != nullptr && !line->stated) {
      setting.where = {};
      if (setting.origin == Origin::Auto) continue;
      setting.origin = Origin::Default;
      setting.reason = format("filled in by {}", filler_);
      strategy.assumptions.push_back(
          format("{}: {}, {}.", setting.key, setting.value, setting.reason));
    } else if (setting.where.line > 0) {
      setting.where = place_in_file(setting.where);
    }
  }
  for (Warning& warning : strategy.warnings) {
    warning.message = moved(warning.message, warning.where);
    if (warning.where.line > 0) warning.where = place_in_file(warning.where);
  }
  if (strategy.not_simulated) strategy.not_simulated = moved(*strategy.not_simulated);
}

Strategy ImpliedDeepSpeed::read(const TrainingFlags& flags, const Model& model,
                                int world_size) const {
  std::string text;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    text += lines_[i].text;
    const bool last = i + 1 == lines_.size() || closes(lines_[i + 1].text);
    if (!last && !opens(lines_[i].text)) text += ',';
    text += '\n';
  }
  text += "}\n";
  try {
    Strategy strategy = parse_deepspeed_config(text, whole_.file, flags, model, world_size);
    move_places(strategy);
    return strategy;
  } catch (const ConfigError& error) {
    throw moved(error);
  }
}

}  // namespace zerosim::internal
