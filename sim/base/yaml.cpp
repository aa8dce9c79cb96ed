#include "sim/base/yaml.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

// A configuration is a few KiB; aliases, which repeat what they name, are held by both limits.
constexpr std::size_t kMostCharacters = std::size_t{1} << 20;
constexpr int kMostNodes = 100'000;
constexpr std::size_t kMostDuplicates = 100;

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

/// PyYAML's Reader refuses the other control characters; yaml-cpp takes one for the end.
void check_printable(std::string_view text, const std::string& name) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    const bool control = (code < 0x20 && text[i] != '\t' && text[i] != '\n' && text[i] != '\r');
    if (!control && code != 0x7F) continue;
    throw ConfigError(locate(text, i, name),
                      format("found control character 0x{:02x}, which YAML does not allow",
                             static_cast<unsigned>(code)));
  }
}

std::string without_underscores(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  return digits;
}

/// Sign and rest: "-" and "5" of "-5", "" and "5" of "+5".
std::pair<std::string, std::string_view> split_sign(std::string_view text) {
  if (text.starts_with('-')) return {"-", text.substr(1)};
  if (text.starts_with('+')) text.remove_prefix(1);
  return {"", text};
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

/// Digits of `base` with underscores, as a decimal number; nothing if it is none or leaves 64 bits.
std::optional<std::string> in_decimal(std::string_view digits, int base) {
  std::uint64_t value = 0;
  if (digits.empty()) return std::nullopt;
  for (const char c : digits) {
    if (c == '_') continue;
    const int digit = digit_value(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<std::uint64_t>(base), &value)) return {};
    if (__builtin_add_overflow(value, static_cast<std::uint64_t>(digit), &value)) return {};
  }
  return std::to_string(value);
}

/// Of [1-9][0-9_]*(:[0-5]?[0-9])+: to the base of 60.
std::optional<std::string> sexagesimal(std::string_view text) {
  std::uint64_t value = 0;
  bool first = true;
  while (true) {
    const std::size_t colon = text.find(':');
    const std::string_view part = text.substr(0, colon);
    if (part.empty() || (!first && (part.size() > 2 || (part.size() == 2 && part[0] > '5')))) {
      return std::nullopt;
    }
    if (part.front() == '_' || (!first && part.find('_') != std::string_view::npos)) return {};
    const std::optional<std::string> number = in_decimal(part, 10);
    if (!number || __builtin_mul_overflow(value, std::uint64_t{60}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, std::uint64_t{std::stoull(*number)}, &value)) return {};
    if (colon == std::string_view::npos)
      return first ? std::nullopt : std::optional(std::to_string(value));
    text.remove_prefix(colon + 1);
    first = false;
  }
}

/// The JSON number that PyYAML's implicit resolver makes an int of `text`
/// (yaml/resolver.py, tag:yaml.org,2002:int).
std::optional<std::string> integer_number(std::string_view text) {
  const auto [sign, digits] = split_sign(text);
  if (digits.empty() || !is_digit(digits.front())) return std::nullopt;
  std::optional<std::string> number;
  if (digits == "0") {
    number = "0";
  } else if (digits.starts_with("0b")) {
    number = in_decimal(digits.substr(2), 2);
  } else if (digits.starts_with("0x")) {
    number = in_decimal(digits.substr(2), 16);
  } else if (digits.starts_with('0')) {
    number = in_decimal(digits.substr(1), 8);
  } else if (digits.find_first_not_of("0123456789_") == std::string_view::npos) {
    number = without_underscores(digits);
  } else {
    number = sexagesimal(digits);
  }
  if (!number) return std::nullopt;
  return sign + *number;
}

/// The JSON number that PyYAML's implicit resolver makes a float of `text`
/// (yaml/resolver.py, tag:yaml.org,2002:float; base 60 and infinities left out).
std::optional<std::string> float_number(std::string_view text) {
  const auto [sign, digits] = split_sign(text);
  const std::size_t dot = digits.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  if (dot == 0 && text.front() != '.') return std::nullopt;  // a sign needs a digit before the dot
  const std::string_view whole = digits.substr(0, dot);
  std::string_view fraction = digits.substr(dot + 1);
  std::string exponent;
  if (const std::size_t e = fraction.find_first_of("eE"); e != std::string_view::npos) {
    const std::string_view power = fraction.substr(e + 1);
    const bool is_signed = power.size() > 1 && (power.front() == '+' || power.front() == '-');
    if (!is_signed || power.find_first_not_of("0123456789", 1) != std::string_view::npos) return {};
    exponent = format("e{}", power);
    fraction = fraction.substr(0, e);
  }
  for (const std::string_view part : {whole, fraction}) {
    if (part.find_first_not_of("0123456789_") != std::string_view::npos) return std::nullopt;
  }
  if (!whole.empty() && !is_digit(whole.front())) return std::nullopt;
  if (whole.empty() && (fraction.empty() || !is_digit(fraction.front()))) return std::nullopt;
  std::string before = without_underscores(whole);
  before.erase(0, before.find_first_not_of('0'));
  const std::string after = without_underscores(fraction);
  return format("{}{}.{}{}", sign, before.empty() ? "0" : before, after.empty() ? "0" : after,
                exponent);
}

/// "true" or "false"; nothing for other text.
std::optional<std::string> boolean_word(std::string_view text) {
  if (is_one_of(text, {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) {
    return "true";
  }
  if (is_one_of(text, {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) {
    return "false";
  }
  return std::nullopt;
}

std::optional<std::string> null_word(std::string_view text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return "null";
  return std::nullopt;
}

/// A resolver by the tag it gives.
struct Resolver {
  std::string_view tag;
  std::string_view expected;
  std::optional<std::string> (*resolve)(std::string_view text);
};

constexpr std::array<Resolver, 4> kResolvers = {{
    {"null", "null", null_word},
    {"bool", "true or false", boolean_word},
    {"int", "an integer", integer_number},
    {"float", "a number with a dot", float_number},
}};

class YamlWriter {
 public:
  YamlWriter(std::string_view text, const std::string& name, NormalisedText& result)
      : text_(text), name_(name), result_(result) {}

  void write_document(const YAML::Node& root) {
    write(root, 0);
    result_.origin.push_back(text_.size());
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& message) const {
    throw ConfigError(locate(text_, offset, name_), message);
  }

  [[nodiscard]] static std::size_t offset_of(const YAML::Node& node) {
    return static_cast<std::size_t>(std::max(node.Mark().pos, 0));
  }

  void emit(std::string_view part, std::size_t origin) {
    if (result_.json.size() + part.size() > kMostCharacters) {
      fail(origin, "found more than 1 MiB once all aliases are written out");
    }
    result_.json += part;
    result_.origin.insert(result_.origin.end(), part.size(), origin);
  }

  void write(const YAML::Node& node, int depth) {
    const std::size_t offset = offset_of(node);
    if (depth > kMaximumJsonDepth) {
      fail(offset, format("found nesting deeper than {} levels", kMaximumJsonDepth));
    }
    count_node(offset);
    switch (node.Type()) {
      case YAML::NodeType::Map:
        check_tag(node, "map");
        return write_map(node, depth);
      case YAML::NodeType::Sequence:
        check_tag(node, "seq");
        return write_sequence(node, depth);
      case YAML::NodeType::Scalar:
        return write_scalar(node);
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        return emit("null", offset);
    }
  }

  void count_node(std::size_t offset) {
    if (++nodes_ > kMostNodes) {
      fail(offset,
           format("found more than {} values once all aliases are written out", kMostNodes));
    }
  }

  void check_tag(const YAML::Node& node, std::string_view own) const {
    const std::string& tag = node.Tag();
    if (is_one_of(tag, {"", "?", "!"}) || tag == format("{}{}", kTagPrefix, own)) return;
    fail_at_tag(node);
  }
  [[noreturn]] void fail_at_tag(const YAML::Node& node) const {
    fail(offset_of(node), format("found the tag {}, expected a plain value", node.Tag()));
  }

  void write_sequence(const YAML::Node& node, int depth) {
    emit("[", offset_of(node));
    bool first = true;
    for (const YAML::Node& element : node) {
      if (!first) emit(",", offset_of(element));
      first = false;
      write(element, depth + 1);
    }
    emit("]", offset_of(node));
  }

  void write_map(const YAML::Node& node, int depth) {
    emit("{", offset_of(node));
    bool first = true;
    write_members(node, depth, first);
    emit("}", offset_of(node));
  }

  /// Merged members come first, so that the map's own ones, the last, win
  /// (yaml/constructor.py: flatten_mapping).
  void write_members(const YAML::Node& map, int depth, bool& first) {
    for (const auto& member : map) {
      if (is_merge_key(member.first)) merge(member.second, depth + 1, first);
    }
    std::set<std::string, std::less<>> keys;
    for (const auto& member : map) {
      if (is_merge_key(member.first)) continue;
      const std::size_t offset = offset_of(member.first);
      if (!first) emit(",", offset);
      first = false;
      write_key(member.first, keys);
      emit(":", offset);
      write(member.second, depth + 1);
    }
  }

  [[nodiscard]] static bool is_merge_key(const YAML::Node& key) {
    return key.IsScalar() && key.Tag() == "?" && key.Scalar() == "<<";
  }

  void merge(const YAML::Node& value, int depth, bool& first) {
    const std::size_t offset = offset_of(value);
    if (depth > kMaximumJsonDepth) {
      fail(offset, format("found nesting deeper than {} levels", kMaximumJsonDepth));
    }
    count_node(offset);
    if (value.IsMap()) return write_members(value, depth, first);
    if (!value.IsSequence()) fail(offset, "<<: expected a mapping or a list of mappings to merge");
    for (std::size_t i = value.size(); i-- > 0;) {  // the first of the list wins
      const YAML::Node part = value[i];
      if (!part.IsMap()) fail(offset_of(part), "<<: expected a mapping in the list");
      count_node(offset);
      write_members(part, depth, first);
    }
  }

  void write_key(const YAML::Node& key, std::set<std::string, std::less<>>& keys) {
    const std::size_t offset = offset_of(key);
    if (!key.IsScalar()) {
      fail(offset, format("found {} as a key, expected text", key.IsMap()        ? "a mapping"
                                                              : key.IsSequence() ? "a list"
                                                                                 : "nothing"));
    }
    check_tag(key, "str");
    count_node(offset);
    emit_string(key.Scalar(), offset);
    if (!keys.insert(key.Scalar()).second && result_.duplicates.size() < kMostDuplicates) {
      result_.duplicates.push_back({"duplicate_keys", key.Scalar(), locate(text_, offset, name_)});
    }
  }

  /// yaml-cpp tags plain scalars "?" and quoted ones "!".
  void write_scalar(const YAML::Node& node) {
    const std::size_t offset = offset_of(node);
    const std::string& text = node.Scalar();
    std::string_view tag = node.Tag();
    if (tag == "?") {
      for (const Resolver& resolver : kResolvers) {
        if (const auto json = resolver.resolve(text)) return emit(*json, offset);
      }
    }
    if (is_one_of(tag, {"", "?", "!"})) return emit_string(text, offset);
    if (!tag.starts_with(kTagPrefix)) fail_at_tag(node);
    tag.remove_prefix(kTagPrefix.size());
    if (tag == "str") return emit_string(text, offset);
    for (const Resolver& resolver : kResolvers) {
      if (resolver.tag == tag) return emit(tagged(resolver, text, offset), offset);
    }
    fail_at_tag(node);
  }

  /// `!!float 5e8` is a number although a plain 5e8 is none.
  [[nodiscard]] std::string tagged(const Resolver& resolver, const std::string& text,
                                   std::size_t offset) const {
    if (const auto json = resolver.resolve(text)) return *json;
    if (resolver.tag == "float" && is_json_number(text)) return text;
    fail(offset,
         format("found \"{}\", expected {} after !!{}", text, resolver.expected, resolver.tag));
  }

  void emit_string(std::string_view text, std::size_t offset) {
    if (text.find('\0') != std::string_view::npos) {
      fail(offset, "found a NUL character, expected text");
    }
    emit(to_text(JsonValue(std::string(text)), false), offset);
  }

  std::string_view text_;
  const std::string& name_;
  NormalisedText& result_;
  int nodes_ = 0;
};

/// Where the document that was parsed last begins.
class DocumentPlaces : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { start_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

  [[nodiscard]] std::size_t start() const {
    return static_cast<std::size_t>(std::max(start_.pos, 0));
  }

 private:
  YAML::Mark start_;
};

/// YAML::LoadAll would do, but does not end on text that no document takes, "," for example.
void check_single_document(std::string_view text, const std::string& name) {
  std::istringstream stream{std::string(text)};
  YAML::Parser parser(stream);
  DocumentPlaces places;
  if (!parser.HandleNextDocument(places)) {
    throw ConfigError(locate(text, 0, name), "found nothing, expected a mapping");
  }
  if (!parser.HandleNextDocument(places)) return;
  const bool marked = text.substr(std::min(places.start(), text.size())).starts_with("---");
  throw ConfigError(
      locate(text, places.start(), name),
      marked ? "found a second document, expected one" : "found text that belongs to no value");
}

YAML::Node parse(std::string_view text, const std::string& name) {
  try {
    check_single_document(text, name);
    return YAML::Load(std::string(text));
  } catch (const YAML::DeepRecursion& error) {
    throw ConfigError(locate(text, static_cast<std::size_t>(error.mark.pos), name),
                      format("found nesting deeper than {} levels", kMaximumJsonDepth));
  } catch (const YAML::Exception& error) {
    const auto offset = static_cast<std::size_t>(std::max(error.mark.pos, 0));
    throw ConfigError(locate(text, offset, name), format("not YAML: {}", error.msg));
  }
}

}  // namespace

void normalise_yaml(std::string_view text, const std::string& name, NormalisedText& result) {
  if (text.size() > kMostCharacters) {
    throw ConfigError(locate(text, kMostCharacters, name), "found more than 1 MiB of YAML");
  }
  check_printable(text, name);
  YamlWriter(text, name, result).write_document(parse(text, name));
}

}  // namespace zerosim::internal
