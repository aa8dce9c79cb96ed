#include "sim/base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

#include <json/reader.h>

#include "sim/base/hjson.h"
#include "sim/base/text.h"
#include "sim/base/yaml.h"

namespace zerosim {
namespace {

using internal::check_characters;
using internal::kMaximumJsonDepth;
using internal::locate;

constexpr std::size_t kLongestQuote = 40;  ///< characters of a value that a message repeats

/// Length of the well-formed UTF-8 sequence (RFC 3629) at the front of `text`; 0: malformed.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0);
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) < 0xC2) return 0;
  if (byte(0) < 0xE0) return continues(1) ? 2 : 0;
  if (byte(0) < 0xF0) {
    const bool overlong = byte(0) == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  const bool out_of_range =
      (byte(0) == 0xF0 && byte(1) < 0x90) || (byte(0) == 0xF4 && byte(1) >= 0x90) || byte(0) > 0xF4;
  return continues(1) && continues(2) && continues(3) && !out_of_range ? 4 : 0;
}

void remove_byte_order_mark(std::string& text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
}

/// First offset after the string that begins at `i`.
std::size_t after_string(std::string_view text, std::size_t i) {
  for (++i; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] == '\\') ++i;
  }
  return std::min(i + 1, text.size());
}

/// First offset after the comment that begins at `i`; `i` itself if none does.
std::size_t after_comment(std::string_view text, std::size_t i) {
  const std::string_view opening = text.substr(i, 2);
  if (opening != "//" && opening != "/*") return i;
  const std::size_t end = opening == "//" ? text.find('\n', i) : text.find("*/", i + 2);
  if (end == std::string_view::npos) return text.size();
  return opening == "//" ? end : end + 2;
}

/// Calls `visit(offset, depth)` for each character outside strings and comments, and for the
/// opening quote of each string; until it returns false. Text before `start` is left out.
template <typename Visit>
void scan(std::string_view text, std::size_t start, Visit visit) {
  int depth = 0;
  for (std::size_t i = start; i < text.size();) {
    if (const std::size_t end = after_comment(text, i); end != i) {
      i = end;
      continue;
    }
    const char c = text[i];
    if (c == '{' || c == '[') ++depth;
    if (!visit(i, depth)) return;
    if (c == '}' || c == ']') --depth;
    i = c == '"' ? after_string(text, i) : i + 1;
  }
}

void check_depth(std::string_view text, const std::string& name) {
  scan(text, 0, [&](std::size_t offset, int depth) {
    if (depth <= kMaximumJsonDepth) return true;
    throw ConfigError(locate(text, offset, name),
                      format("found nesting deeper than {} levels", kMaximumJsonDepth));
  });
}

/// Offset of a line and column as JsonCpp counts them (bytes).
std::size_t offset_of(std::string_view text, int line, int column) {
  std::size_t i = 0;
  for (int at = 1; at < line && i < text.size(); ++i) {
    const bool lone_return = text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n');
    if (text[i] == '\n' || lone_return) ++at;
  }
  return std::min(i + static_cast<std::size_t>(std::max(column, 1) - 1), text.size());
}

struct ParseFailure {
  std::size_t offset = 0;
  std::string message;
};

/// JsonCpp reports "* Line 3, Column 5\n  What is wrong.\nSee Line 1 ...\n": its first error on one
/// line.
ParseFailure first_failure(std::string_view text, const std::string& report) {
  ParseFailure failure;
  int line = 1;
  int column = 1;
  if (std::sscanf(report.c_str(), "* Line %d, Column %d", &line, &column) == 2) {
    failure.offset = offset_of(text, line, column);
  }
  const std::size_t begin = report.find_first_not_of(' ', report.find('\n') + 1);
  if (begin != std::string::npos) {
    failure.message = report.substr(begin, report.find('\n', begin) - begin);
  }
  while (failure.message.ends_with('.')) failure.message.pop_back();
  return failure;
}

enum class Strictness { Json, JsonWithComments };

Json::CharReaderBuilder reader_settings(Strictness strictness) {
  const bool strict = strictness == Strictness::Json;
  Json::CharReaderBuilder settings;
  settings["collectComments"] = false;
  settings["allowComments"] = !strict;
  settings["allowTrailingCommas"] = !strict;
  settings["strictRoot"] = false;
  settings["failIfExtra"] = true;
  settings["rejectDupKeys"] = !strict;
  settings["stackLimit"] = 2 * kMaximumJsonDepth;  // depth is checked before, with its place
  return settings;
}

std::optional<ParseFailure> parse_json(std::string_view text, Strictness strictness,
                                       JsonValue& root) {
  std::string report;
  try {
    const std::unique_ptr<Json::CharReader> reader(reader_settings(strictness).newCharReader());
    if (reader->parse(text.data(), text.data() + text.size(), &root, &report)) return std::nullopt;
  } catch (const std::exception& error) {
    return ParseFailure{0, error.what()};
  }
  return first_failure(text, report);
}

/// JsonCpp takes "-", "01" and "1." for numbers; JSON does not.
std::optional<ParseFailure> number_failure(std::string_view text, const JsonValue& value) {
  if (value.isObject() || value.isArray()) {
    for (const JsonValue& member : value) {
      if (auto failure = number_failure(text, member)) return failure;
    }
    return std::nullopt;
  }
  if (!value.isNumeric()) return std::nullopt;
  const auto start = static_cast<std::size_t>(value.getOffsetStart());
  const auto limit = static_cast<std::size_t>(value.getOffsetLimit());
  const std::string_view digits = text.substr(start, limit - start);
  if (!internal::is_json_number(digits)) {
    return ParseFailure{start, format("found {}, which is not a JSON number", digits)};
  }
  if (!std::isfinite(value.asDouble())) {
    return ParseFailure{start, format("found {}, which no double holds", digits)};
  }
  return std::nullopt;
}

/// Whether a JSON string literal, quotes included, means `value`.
bool is_string_of(std::string_view literal, const std::string& value) {
  if (literal.find('\\') == std::string_view::npos) {
    return literal.substr(1, literal.size() - 2) == value;
  }
  JsonValue parsed;
  return !parse_json(literal, Strictness::Json, parsed) && parsed.isString() &&
         parsed.asString() == value;
}

std::string quoted_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (code < 0x20) {
      quoted += format("\\u{:04x}", static_cast<unsigned>(code));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string number_text(double number) {
  if (!std::isfinite(number)) return "null";
  std::string text = format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // stays a float for its reader
  return text;
}

void write(const JsonValue& value, bool indented, int depth, std::string& out);

/// With U+FFFD for each byte that is not UTF-8.
std::string as_utf8(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(std::string_view(text).substr(i));
    out += length == 0 ? "\xEF\xBF\xBD" : text.substr(i, length);
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

void write_line_start(bool indented, int depth, std::string& out) {
  if (!indented) return;
  out += '\n';
  out.append(2 * static_cast<std::size_t>(depth), ' ');
}

void write_container(const JsonValue& value, bool indented, int depth, std::string& out) {
  const bool object = value.isObject();
  out += object ? '{' : '[';
  for (auto member = value.begin(); member != value.end(); ++member) {
    if (member != value.begin()) out += indented ? "," : ", ";
    write_line_start(indented, depth + 1, out);
    if (object) out += quoted_text(as_utf8(member.name())) + ": ";
    write(*member, indented, depth + 1, out);
  }
  if (!value.empty()) write_line_start(indented, depth, out);
  out += object ? '}' : ']';
}

void write(const JsonValue& value, bool indented, int depth, std::string& out) {
  switch (value.type()) {
    case Json::nullValue:
      out += "null";
      return;
    case Json::intValue:
      out += std::to_string(value.asLargestInt());
      return;
    case Json::uintValue:
      out += std::to_string(value.asLargestUInt());
      return;
    case Json::realValue:
      out += number_text(value.asDouble());
      return;
    case Json::stringValue:
      out += quoted_text(as_utf8(value.asString()));
      return;
    case Json::booleanValue:
      out += value.asBool() ? "true" : "false";
      return;
    case Json::arrayValue:
    case Json::objectValue:
      write_container(value, indented, depth, out);
      return;
  }
}

/// A value as messages show it.
std::string describe(const JsonValue& value) {
  if (value.isObject()) return "an object";
  if (value.isArray()) return "an array";
  std::string text = to_text(value, false);
  if (text.size() <= kLongestQuote) return text;
  std::size_t end = kLongestQuote;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

namespace internal {

void check_characters(std::string_view text, const std::string& name) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (text[i] == '\0') {
      throw ConfigError(locate(text, i, name), "found a NUL byte, expected text");
    }
    if (length == 0) {
      throw ConfigError(locate(text, i, name),
                        format("found byte 0x{:02x} that is not UTF-8",
                               static_cast<unsigned>(static_cast<unsigned char>(text[i]))));
    }
    i += length;
  }
}

}  // namespace internal

struct JsonDocument::State {
  std::string name;
  std::string text;                 ///< as it was given
  std::string json;                 ///< what JsonCpp has read if that is another text
  std::vector<std::size_t> origin;  ///< of each character of `json`; empty: `text` was read
  std::vector<JsonFinding> duplicates;
  JsonValue root;

  [[nodiscard]] std::string_view parsed() const { return origin.empty() ? text : json; }
  [[nodiscard]] SourceLocation locate_parsed(std::size_t offset) const {
    if (!origin.empty()) offset = origin[std::min(offset, origin.size() - 1)];
    return locate(text, offset, name);
  }
  void parse(Strictness strictness) {
    std::optional<ParseFailure> failure = parse_json(parsed(), strictness, root);
    std::string code;
    if (failure && failure->message.starts_with("Duplicate key")) code = "duplicate_keys";
    if (!failure) failure = number_failure(parsed(), root);
    if (failure) throw ConfigError(locate_parsed(failure->offset), failure->message, code);
  }
};

JsonDocument JsonDocument::from_file(const std::string& path) {
  return from_text(read_file(path), path);
}

JsonDocument JsonDocument::from_text(std::string text, const std::string& name) {
  auto state = std::make_shared<State>();
  state->name = name;
  state->text = std::move(text);
  remove_byte_order_mark(state->text);
  check_characters(state->text, name);
  check_depth(state->text, name);
  state->parse(Strictness::JsonWithComments);
  JsonDocument document;
  document.state_ = std::move(state);
  return document;
}

JsonDocument JsonDocument::from_hjson(std::string text, const std::string& name) {
  auto state = std::make_shared<State>();
  state->name = name;
  state->text = std::move(text);
  remove_byte_order_mark(state->text);
  check_characters(state->text, name);
  internal::NormalisedText normalised;
  internal::normalise_hjson(state->text, name, normalised);
  state->json = std::move(normalised.json);
  state->origin = std::move(normalised.origin);
  state->parse(Strictness::JsonWithComments);
  JsonDocument document;
  document.state_ = std::move(state);
  return document;
}

JsonDocument JsonDocument::from_strict_json(std::string text, const std::string& name) {
  auto state = std::make_shared<State>();
  state->name = name;
  state->text = std::move(text);
  remove_byte_order_mark(state->text);
  check_characters(state->text, name);
  internal::NormalisedText normalised;
  std::exception_ptr failure;
  try {
    internal::normalise_hjson(state->text, name, normalised);
  } catch (const ConfigError&) {
    failure = std::current_exception();
  }
  if (normalised.beyond_json) {  // comes before the failure, and is likely its reason
    const JsonFinding& first = *normalised.beyond_json;
    throw ConfigError(first.where, format("found {}, expected strict JSON", first.what),
                      first.code);
  }
  if (failure) std::rethrow_exception(failure);
  state->duplicates = std::move(normalised.duplicates);
  state->parse(Strictness::Json);
  JsonDocument document;
  document.state_ = std::move(state);
  return document;
}

JsonDocument JsonDocument::from_yaml(std::string text, const std::string& name) {
  auto state = std::make_shared<State>();
  state->name = name;
  state->text = std::move(text);
  remove_byte_order_mark(state->text);
  check_characters(state->text, name);
  internal::NormalisedText normalised;
  internal::normalise_yaml(state->text, name, normalised);
  state->json = std::move(normalised.json);
  state->origin = std::move(normalised.origin);
  state->duplicates = std::move(normalised.duplicates);
  state->parse(Strictness::Json);
  JsonDocument document;
  document.state_ = std::move(state);
  return document;
}

const JsonValue& JsonDocument::root() const {
  return state_->root;
}
const std::string& JsonDocument::file() const {
  return state_->name;
}
const std::vector<JsonFinding>& JsonDocument::duplicates() const {
  return state_->duplicates;
}

SourceLocation JsonDocument::location(const JsonValue& value) const {
  return state_->locate_parsed(static_cast<std::size_t>(value.getOffsetStart()));
}

SourceLocation JsonDocument::key_location(const JsonValue& object, const std::string& key) const {
  if (!object.isObject() || !object.isMember(key)) return location(object);
  const std::string_view text = state_->parsed();
  std::size_t last_string = std::string_view::npos;
  auto found = static_cast<std::size_t>(object[key].getOffsetStart());
  scan(text, static_cast<std::size_t>(object.getOffsetStart()), [&](std::size_t offset, int depth) {
    if (depth == 1 && text[offset] == '"') last_string = offset;
    if (depth == 1 && text[offset] == ':' && last_string != std::string_view::npos) {
      const std::size_t length = after_string(text, last_string) - last_string;
      if (is_string_of(text.substr(last_string, length), key)) found = last_string;
    }
    return depth > 1 || text[offset] != '}';
  });
  return state_->locate_parsed(found);
}

JsonObject::JsonObject(JsonDocument document, const JsonValue& value, std::string path)
    : document_(std::move(document)), value_(&value), path_(std::move(path)) {
  if (value.isObject()) return;
  const std::string prefix = path_.empty() ? "" : path_ + ": ";
  throw ConfigError(document_.location(value),
                    format("{}found {}, expected an object", prefix, describe(value)));
}

bool JsonObject::has(const std::string& key) {
  asked_.insert(key);
  return value_->isMember(key);
}

const JsonValue& JsonObject::raw(const std::string& key) {
  asked_.insert(key);
  return (*value_)[key];
}

std::string JsonObject::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void JsonObject::fail(const std::string& key, const std::string& message,
                      const std::string& code) const {
  const SourceLocation where =
      value_->isMember(key) ? document_.location((*value_)[key]) : document_.location(*value_);
  throw ConfigError(where, format("{}: {}", path_of(key), message), code);
}

namespace {

/// "found X, expected Y" for a member, or "missing, expected Y".
std::string mismatch(const JsonObject& object, const std::string& key, std::string_view expected) {
  if (!object.value().isMember(key)) return format("missing, expected {}", expected);
  return format("found {}, expected {}", describe(object.value()[key]), expected);
}

/// Runs a parser of units over the text of a member.
template <typename Parse>
auto parsed_unit(const JsonObject& object, const std::string& key, const JsonValue& value,
                 std::string_view expected, Parse parse) {
  if (!value.isString()) object.fail(key, mismatch(object, key, expected));
  try {
    return parse(value.asString());
  } catch (const std::invalid_argument& error) {
    object.fail(key, error.what());
  }
}

}  // namespace

std::string JsonObject::string(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isString()) fail(key, mismatch(*this, key, "a string"));
  return value.asString();
}

std::int64_t JsonObject::integer(const std::string& key) {
  const JsonValue& value = raw(key);
  if (value.isInt64()) return value.asInt64();
  std::string code;
  if (value.isString()) code = "string_not_int";
  if (value.isDouble()) {
    const double number = value.asDouble();
    code = number == std::trunc(number) ? "out_of_range" : "fractional_int";
  }
  if (code == "out_of_range") fail(key, mismatch(*this, key, "an integer of 64 bits"), code);
  fail(key, mismatch(*this, key, "an integer"), code);
}

double JsonObject::number(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isNumeric()) fail(key, mismatch(*this, key, "a number"));
  return value.asDouble();
}

bool JsonObject::boolean(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isBool()) fail(key, mismatch(*this, key, "true or false"));
  return value.asBool();
}

Bytes JsonObject::bytes(const std::string& key) {
  return parsed_unit(*this, key, raw(key), "text with a unit such as \"40GiB\"", parse_bytes);
}

BytesPerSecond JsonObject::bytes_per_second(const std::string& key) {
  return parsed_unit(*this, key, raw(key), "text with a unit such as \"400Gb/s\"",
                     parse_bytes_per_second);
}

Seconds JsonObject::seconds(const std::string& key) {
  return parsed_unit(*this, key, raw(key), "text with a unit such as \"5us\"", parse_seconds);
}

JsonObject JsonObject::object(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isObject()) fail(key, mismatch(*this, key, "an object"));
  return {document_, value, path_of(key)};
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isArray()) fail(key, mismatch(*this, key, "an array of objects"));
  std::vector<JsonObject> result;
  for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
    result.emplace_back(document_, value[i], format("{}[{}]", path_of(key), i));
  }
  return result;
}

std::vector<std::int64_t> JsonObject::integers(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isArray()) fail(key, mismatch(*this, key, "an array of integers"));
  std::vector<std::int64_t> result;
  for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
    if (!value[i].isInt64()) {
      throw ConfigError(
          document_.location(value[i]),
          format("{}[{}]: found {}, expected an integer", path_of(key), i, describe(value[i])));
    }
    result.push_back(value[i].asInt64());
  }
  return result;
}

std::vector<std::string> JsonObject::strings(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isArray()) fail(key, mismatch(*this, key, "an array of strings"));
  std::vector<std::string> result;
  for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
    if (!value[i].isString()) {
      throw ConfigError(document_.location(value[i]), format("{}[{}]: found {}, expected a string",
                                                             path_of(key), i, describe(value[i])));
    }
    result.push_back(value[i].asString());
  }
  return result;
}

std::vector<double> JsonObject::numbers(const std::string& key) {
  const JsonValue& value = raw(key);
  if (!value.isArray()) fail(key, mismatch(*this, key, "an array of numbers"));
  std::vector<double> result;
  for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
    if (!value[i].isNumeric()) {
      throw ConfigError(document_.location(value[i]), format("{}[{}]: found {}, expected a number",
                                                             path_of(key), i, describe(value[i])));
    }
    result.push_back(value[i].asDouble());
  }
  return result;
}

std::optional<std::string> JsonObject::optional_string(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return string(key);
}
std::optional<std::int64_t> JsonObject::optional_integer(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return integer(key);
}
std::optional<double> JsonObject::optional_number(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return number(key);
}
std::optional<bool> JsonObject::optional_boolean(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return boolean(key);
}
std::optional<BytesPerSecond> JsonObject::optional_bytes_per_second(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return bytes_per_second(key);
}
std::optional<Seconds> JsonObject::optional_seconds(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return seconds(key);
}
std::optional<JsonObject> JsonObject::optional_object(const std::string& key) {
  if (raw(key).isNull()) return std::nullopt;
  return object(key);
}

std::int64_t JsonObject::integer_at_least(const std::string& key, std::int64_t minimum) {
  const std::int64_t value = integer(key);
  if (value >= minimum) return value;
  fail(key, mismatch(*this, key, format("an integer of at least {}", minimum)), "out_of_range");
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> names = value_->getMemberNames();
  std::sort(names.begin(), names.end(), [this](const std::string& a, const std::string& b) {
    return (*value_)[a].getOffsetStart() < (*value_)[b].getOffsetStart();
  });
  return names;
}

std::vector<std::string> JsonObject::known_keys() const {
  return {asked_.begin(), asked_.end()};
}

std::vector<std::string> JsonObject::unknown_keys() const {
  std::vector<std::string> names = keys();
  std::erase_if(names, [this](const std::string& key) { return asked_.contains(key); });
  return names;
}

void JsonObject::reject_unknown_keys() const {
  const std::vector<std::string> unknown = unknown_keys();
  if (unknown.empty()) return;
  const std::vector<std::string> known = known_keys();
  std::string hint = did_you_mean(unknown.front(), known);
  if (hint.empty()) hint = format("; expected one of: {}", join(known, ", "));
  throw ConfigError(document_.key_location(*value_, unknown.front()),
                    format("{}: unknown key{}", path_of(unknown.front()), hint));
}

std::string hjson_to_json(std::string_view text) {
  std::string given(text);
  remove_byte_order_mark(given);
  check_characters(given, "hjson");
  internal::NormalisedText normalised;
  internal::normalise_hjson(given, "hjson", normalised);
  return std::move(normalised.json);
}

std::string to_text(const JsonValue& value, bool indented) {
  std::string text;
  write(value, indented, 0, text);
  return text;
}

}  // namespace zerosim
