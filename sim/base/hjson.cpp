#include "sim/base/hjson.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

constexpr std::size_t kMostDuplicates = 100;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
bool is_line_end(char c) {
  return c == '\n' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_punctuator(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':';
}

std::string_view trimmed_right(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

class HjsonReader {
 public:
  HjsonReader(std::string_view text, const std::string& name, NormalisedText& result)
      : text_(text), name_(name), result_(result) {}

  void read() {
    skip_space();
    if (at_end()) fail(0, "found nothing, expected an object");
    if (peek() == '{' || peek() == '[') {
      read_value();
    } else {
      note(position_, "json_unquoted_keys", "a root object without braces");
      emit('{');
      read_members(position_, /*braces=*/false);
      emit('}');
    }
    skip_space();
    if (!at_end()) fail(position_, "found text after the end of the JSON value");
    result_.origin.push_back(text_.size());
  }

 private:
  [[nodiscard]] bool at_end() const { return position_ >= text_.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
  }

  [[noreturn]] void fail(std::size_t offset, const std::string& message) const {
    throw ConfigError(locate(text_, offset, name_), message);
  }
  void note(std::size_t offset, const char* code, const char* what) {
    if (result_.beyond_json) return;
    result_.beyond_json = JsonFinding{code, what, locate(text_, offset, name_)};
  }

  void emit(char c, std::size_t origin) {
    result_.json.push_back(c);
    result_.origin.push_back(origin);
  }
  void emit(char c) { emit(c, position_); }
  /// One character of a string, escaped where JSON asks for it.
  void emit_in_string(char c, std::size_t origin) {
    static constexpr char kHex[] = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      emit('\\', origin);
      emit(c, origin);
    } else if (code < 0x20) {
      for (const char part : {'\\', 'u', '0', '0', kHex[code >> 4], kHex[code & 15]}) {
        emit(part, origin);
      }
    } else {
      emit(c, origin);
    }
  }

  /// Skips white space and comments.
  void skip_space() {
    while (!at_end()) {
      if (is_space(peek())) {
        ++position_;
      } else if (peek() == '#' || (peek() == '/' && peek(1) == '/')) {
        note(position_, "json_comments", "a comment");
        while (!at_end() && !is_line_end(peek())) ++position_;
      } else if (peek() == '/' && peek(1) == '*') {
        note(position_, "json_comments", "a comment");
        const std::size_t end = text_.find("*/", position_ + 2);
        if (end == std::string_view::npos) fail(position_, "found a comment that is never closed");
        position_ = end + 2;
      } else {
        return;
      }
    }
  }

  void read_value() {
    switch (peek()) {
      case '{':
        return read_nested('}');
      case '[':
        return read_nested(']');
      case '"':
        return read_double_quoted();
      case '\'':
        note(position_, "json_unquoted_keys", "a string without double quotes");
        return text_.substr(position_, 3) == "'''" ? read_multi_line() : read_single_quoted();
      default:
        return read_without_quotes();
    }
  }

  void read_nested(char close) {
    const std::size_t open = position_;
    if (++depth_ > kMaximumJsonDepth) {
      fail(open, format("found nesting deeper than {} levels", kMaximumJsonDepth));
    }
    emit(peek());
    ++position_;
    if (close == '}') {
      read_members(open, /*braces=*/true);
    } else {
      read_elements(open);
    }
    emit(close);
    ++position_;
    --depth_;
  }

  /// A comma, or what Hjson takes for one. True if the closing bracket or the end follows.
  bool read_separator(char close) {
    skip_space();
    const std::size_t comma = position_;
    const bool has_comma = !at_end() && peek() == ',';
    if (has_comma) {
      ++position_;
      skip_space();
    }
    const bool last = at_end() || peek() == close;
    if (has_comma && last) note(comma, "json_trailing_comma", "a trailing comma");
    if (!has_comma && !last) {
      note(position_, "json_unquoted_keys", "a line end in place of a comma");
    }
    if (!last) emit(',', comma);
    return last;
  }

  void read_members(std::size_t open, bool braces) {
    std::set<std::string, std::less<>> keys;
    skip_space();
    bool last = at_end() || peek() == '}';
    while (!last) {
      read_key(keys);
      skip_space();
      if (at_end() || peek() != ':') {
        fail(position_, format("found {}, expected ':' after the key", found()));
      }
      emit(':');
      ++position_;
      skip_space();
      read_value();
      last = read_separator('}');
    }
    if (braces && at_end()) fail(open, "found '{' that is never closed");
    if (!braces && !at_end()) fail(position_, "found '}' without '{'");
  }

  void read_elements(std::size_t open) {
    skip_space();
    bool last = at_end() || peek() == ']';
    while (!last) {
      read_value();
      last = read_separator(']');
    }
    if (at_end()) fail(open, "found '[' that is never closed");
  }

  void read_key(std::set<std::string, std::less<>>& keys) {
    const std::size_t start = position_;
    const std::size_t json_start = result_.json.size();
    if (peek() == '"') {
      read_double_quoted();
    } else if (peek() == '\'') {
      note(position_, "json_unquoted_keys", "a key without double quotes");
      read_single_quoted();
    } else {
      read_key_without_quotes();
    }
    std::string key = result_.json.substr(json_start + 1, result_.json.size() - json_start - 2);
    if (!keys.insert(key).second && result_.duplicates.size() < kMostDuplicates) {
      result_.duplicates.push_back({"duplicate_keys", std::move(key), locate(text_, start, name_)});
    }
  }

  void read_key_without_quotes() {
    const std::size_t start = position_;
    while (!at_end() && !is_space(peek()) && !is_punctuator(peek())) ++position_;
    if (position_ == start) fail(start, format("found {}, expected a key", found()));
    note(start, "json_unquoted_keys", "a key without quotes");
    emit_string(text_.substr(start, position_ - start), start);
  }

  void emit_string(std::string_view body, std::size_t start) {
    emit('"', start);
    for (std::size_t i = 0; i < body.size(); ++i) emit_in_string(body[i], start + i);
    emit('"', start);
  }

  /// Copied as it stands: JsonCpp checks the escapes.
  void read_double_quoted() {
    const std::size_t start = position_;
    emit('"');
    for (++position_; peek() != '"'; ++position_) {
      if (at_end() || static_cast<unsigned char>(peek()) < 0x20) {
        fail(start, "found a string that is not closed on its line");
      }
      emit(peek());
      if (peek() == '\\' && position_ + 1 < text_.size()) {
        ++position_;
        emit(peek());
      }
    }
    emit('"');
    ++position_;
  }

  void read_single_quoted() {
    const std::size_t start = position_;
    emit('"');
    for (++position_; peek() != '\''; ++position_) {
      if (at_end() || static_cast<unsigned char>(peek()) < 0x20) {
        fail(start, "found a string that is not closed on its line");
      }
      if (peek() != '\\') {
        emit_in_string(peek(), position_);
      } else if (peek(1) == '\'') {  // needs no escape between double quotes
        ++position_;
        emit('\'');
      } else {
        emit('\\');
        ++position_;
        if (!at_end()) emit(peek());
      }
    }
    emit('"', start);
    ++position_;
  }

  /// Lines between ''' and ''', less the indentation of the first and the last line end.
  void read_multi_line() {
    const std::size_t start = position_;
    const std::size_t line = text_.find_last_of("\r\n", start) + 1;  // npos + 1 == 0
    const std::size_t indentation = start - line;
    const std::size_t end = text_.find("'''", start + 3);
    if (end == std::string_view::npos) fail(start, "found ''' that is never closed");
    position_ = start + 3;
    while (peek() == ' ' || peek() == '\t') ++position_;
    if (peek() == '\r') ++position_;
    bool begins_line = peek() == '\n';
    if (begins_line) ++position_;
    std::size_t body_end = end;
    const std::size_t last_line = text_.find_last_of('\n', end);
    const bool closes_alone = last_line != std::string_view::npos && last_line >= position_ &&
                              trimmed_right(text_.substr(last_line, end - last_line)).empty();
    if (closes_alone) body_end = last_line;
    emit('"', start);
    while (position_ < body_end) {
      if (begins_line) skip_indentation(indentation, body_end);
      if (position_ >= body_end) break;
      begins_line = peek() == '\n';
      if (peek() != '\r') emit_in_string(peek(), position_);
      ++position_;
    }
    emit('"', end);
    position_ = end + 3;
  }

  void skip_indentation(std::size_t width, std::size_t limit) {
    for (std::size_t i = 0; i < width && position_ < limit; ++i) {
      if (peek() != ' ' && peek() != '\t') return;
      ++position_;
    }
  }

  [[nodiscard]] bool ends_literal() const {
    return at_end() || is_line_end(peek()) || peek() == ',' || peek() == '}' || peek() == ']' ||
           peek() == '#' || (peek() == '/' && (peek(1) == '/' || peek(1) == '*'));
  }

  void read_without_quotes() {
    const std::size_t start = position_;
    if (at_end() || is_punctuator(peek())) {
      fail(start, format("found {}, expected a value", found()));
    }
    while (!at_end() && !is_line_end(peek())) {
      ++position_;
      if (!ends_literal()) continue;
      const std::string_view literal = trimmed_right(text_.substr(start, position_ - start));
      if (literal == "true" || literal == "false" || literal == "null" || is_json_number(literal)) {
        for (std::size_t i = 0; i < literal.size(); ++i) emit(literal[i], start + i);
        return;
      }
    }
    note(start, "json_unquoted_keys", "a value without quotes");
    emit_string(trimmed_right(text_.substr(start, position_ - start)), start);
  }

  [[nodiscard]] std::string found() const {
    if (at_end()) return "the end of the text";
    return is_line_end(peek()) ? std::string("the end of the line") : format("'{}'", character());
  }
  /// The character at the position, all bytes of it.
  [[nodiscard]] std::string_view character() const {
    std::size_t length = 1;
    while ((static_cast<unsigned char>(peek(length)) & 0xC0) == 0x80) ++length;
    return text_.substr(position_, length);
  }

  std::string_view text_;
  const std::string& name_;
  NormalisedText& result_;
  std::size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

void normalise_hjson(std::string_view text, const std::string& name, NormalisedText& result) {
  HjsonReader(text, name, result).read();
}

SourceLocation locate(std::string_view text, std::size_t offset, const std::string& name) {
  offset = std::min(offset, text.size());
  int line = 1;
  std::size_t start = 0;
  for (std::size_t i = 0; i < offset; ++i) {
    const bool lone_return = text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n');
    if (text[i] == '\n' || lone_return) {
      ++line;
      start = i + 1;
    }
  }
  int column = 1;
  for (std::size_t i = start; i < offset; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++column;  // UTF-8 continuation
  }
  return {name, line, column};
}

bool is_json_number(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t start = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - start;
  };
  if (i < text.size() && text[i] == '-') ++i;
  const std::size_t whole = i;
  if (digits() == 0) return false;
  if (text[whole] == '0' && i - whole > 1) return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

}  // namespace zerosim::internal
