/// \file
/// JSON that people write, read by JsonCpp, with the place of every value for messages.
///
/// `//` and `/* */` comments and trailing commas are accepted, duplicate keys are refused. Hjson,
/// which DeepSpeed accepts, and YAML, which accelerate accepts, are first turned into JSON; places
/// in messages are always those of the text that was given. Refused everywhere: bytes that are not
/// UTF-8, NUL, numbers beyond double, nesting deeper than 200. Columns count characters, from 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <json/value.h>

#include "sim/base/error.h"
#include "sim/base/units.h"

namespace zerosim {

using JsonValue = Json::Value;

/// Something that a text has beyond strict JSON. `code` is one of data/ds_configs/README.md.
struct JsonFinding {
  std::string code;  ///< json_comments, json_trailing_comma, json_unquoted_keys, duplicate_keys
  std::string what;  ///< "a trailing comma"; of a duplicate: the key
  SourceLocation where;
};

/// A parsed file. Copies share the text.
class JsonDocument {
 public:
  /// \throws ConfigError  with line and column if the file is missing or is not JSON of this form.
  [[nodiscard]] static JsonDocument from_file(const std::string& path);
  /// `name` stands for the file in messages.
  [[nodiscard]] static JsonDocument from_text(std::string text, const std::string& name);
  /// Hjson syntax, as DeepSpeed reads its configuration.
  [[nodiscard]] static JsonDocument from_hjson(std::string text, const std::string& name);
  /// As Python's `json` reads it: nothing beyond JSON (code json_comments, json_trailing_comma or
  /// json_unquoted_keys otherwise), but the last of duplicate keys wins: see `duplicates`.
  [[nodiscard]] static JsonDocument from_strict_json(std::string text, const std::string& name);
  /// YAML as PyYAML reads it (sim/base/yaml.h); the last of duplicate keys wins: see `duplicates`.
  [[nodiscard]] static JsonDocument from_yaml(std::string text, const std::string& name);

  [[nodiscard]] const JsonValue& root() const;
  [[nodiscard]] const std::string& file() const;
  /// Keys that `from_strict_json` or `from_yaml` met again in the same object; empty for the
  /// others, which refuse.
  [[nodiscard]] const std::vector<JsonFinding>& duplicates() const;
  /// Where `value`, which must be part of this document, begins.
  [[nodiscard]] SourceLocation location(const JsonValue& value) const;
  /// Where the key `key` of `object` stands.
  [[nodiscard]] SourceLocation key_location(const JsonValue& object, const std::string& key) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Reads the members of one object, each once, with typed errors; remembers which keys were asked
/// for, so that `reject_unknown_keys` can name a misspelt one and the nearest known key.
///
///     JsonObject node(document, document.root(), "cluster");
///     node.string("gpu") ... node.reject_unknown_keys();
///
/// Every accessor throws ConfigError with file, line, column, the dotted path of the key, what was
/// found and what was expected. The `optional_` forms return nothing for an absent or null member.
class JsonObject {
 public:
  /// \param path  dotted name of the object for messages, e.g. "zero_optimization"; "" for the
  /// root.
  JsonObject(JsonDocument document, const JsonValue& value, std::string path);

  [[nodiscard]] bool has(const std::string& key);
  /// The raw member; null if absent.
  [[nodiscard]] const JsonValue& raw(const std::string& key);

  [[nodiscard]] std::string string(const std::string& key);
  [[nodiscard]] std::int64_t integer(const std::string& key);  ///< integral floats (5e8) count
  [[nodiscard]] double number(const std::string& key);
  [[nodiscard]] bool boolean(const std::string& key);
  [[nodiscard]] Bytes bytes(const std::string& key);                      ///< "40GiB"
  [[nodiscard]] BytesPerSecond bytes_per_second(const std::string& key);  ///< "400Gb/s"
  [[nodiscard]] Seconds seconds(const std::string& key);                  ///< "5us"
  [[nodiscard]] JsonObject object(const std::string& key);
  [[nodiscard]] std::vector<JsonObject> objects(const std::string& key);  ///< an array of objects
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& key);
  [[nodiscard]] std::vector<std::string> strings(const std::string& key);
  [[nodiscard]] std::vector<double> numbers(const std::string& key);

  [[nodiscard]] std::optional<std::string> optional_string(const std::string& key);
  [[nodiscard]] std::optional<std::int64_t> optional_integer(const std::string& key);
  [[nodiscard]] std::optional<double> optional_number(const std::string& key);
  [[nodiscard]] std::optional<bool> optional_boolean(const std::string& key);
  [[nodiscard]] std::optional<BytesPerSecond> optional_bytes_per_second(const std::string& key);
  [[nodiscard]] std::optional<Seconds> optional_seconds(const std::string& key);
  [[nodiscard]] std::optional<JsonObject> optional_object(const std::string& key);

  /// As `integer`, and at least `minimum`.
  [[nodiscard]] std::int64_t integer_at_least(const std::string& key, std::int64_t minimum);

  /// Keys of the object that no accessor has asked for, in file order.
  [[nodiscard]] std::vector<std::string> unknown_keys() const;
  /// \throws ConfigError  at the first such key, naming the nearest key that was asked for.
  void reject_unknown_keys() const;

  [[nodiscard]] const JsonDocument& document() const { return document_; }
  [[nodiscard]] const JsonValue& value() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::vector<std::string> known_keys() const;
  /// "zero_optimization.stage"
  [[nodiscard]] std::string path_of(const std::string& key) const;
  /// Throws ConfigError at the value of `key` (at the object if absent).
  [[noreturn]] void fail(const std::string& key, const std::string& message,
                         const std::string& code = "") const;

 private:
  JsonDocument document_;
  const JsonValue* value_;
  std::string path_;
  std::set<std::string> asked_;
};

/// Turns the Hjson that DeepSpeed accepts (`#` comments, unquoted keys, newline separators) into
/// the same JSON on one line. Quotes and commas are added and comments dropped, so characters move:
/// for truthful places read with `JsonDocument::from_hjson`.
[[nodiscard]] std::string hjson_to_json(std::string_view text);

/// Compact or indented text; numbers print shortest, non-finite numbers print null. Bytes that are
/// not UTF-8 (in names of files) become U+FFFD.
[[nodiscard]] std::string to_text(const JsonValue& value, bool indented = true);

}  // namespace zerosim
