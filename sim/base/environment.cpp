#include "sim/base/environment.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool continues_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

/// "BASH_FUNC_module%%=() {  eval ...", or "BASH_FUNC_module()=() {  eval ..." of some releases.
bool is_function(std::string_view line) {
  const std::string_view name = line.substr(0, line.find('='));
  return name.starts_with("BASH_FUNC_") && (name.ends_with("%%") || name.ends_with("()"));
}

/// A value and whether a shell would expand it.
struct Value {
  std::string text;
  bool needs_expansion = false;
};

class Reader {
 public:
  Reader(std::string_view text, std::string name) : text_(text), file_(std::move(name)) {
    if (text_.starts_with(kByteOrderMark)) next_ = line_begin_ = kByteOrderMark.size();
  }

  Environment read() {
    while (!at_end()) read_line();
    return std::move(environment_);
  }

 private:
  [[nodiscard]] bool at_end() const { return next_ >= text_.size(); }
  [[nodiscard]] bool at_line_end() const { return at_end() || text_[next_] == '\n'; }
  [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[next_]; }

  char take() {
    const char c = text_[next_++];
    if (c == '\n') {
      ++line_;
      line_begin_ = next_;
    }
    return c;
  }
  void skip_blanks() {
    while (!at_line_end() && is_blank(peek())) take();
  }
  void skip_line() {
    while (!at_end() && take() != '\n') {
    }
  }

  [[nodiscard]] SourceLocation here() const {
    return {file_, line_, static_cast<int>(next_ - line_begin_) + 1};
  }
  /// The rest of the line without blanks at its end.
  [[nodiscard]] std::string_view rest() const {
    std::string_view line = text_.substr(next_, text_.find('\n', next_) - next_);
    while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
    return line;
  }
  [[noreturn]] void fail(const SourceLocation& where, std::string_view found) const {
    constexpr std::size_t kShown = 40;
    const std::string shown(found.substr(0, kShown));
    throw ConfigError(where, format("found \"{}{}\", expected NAME=VALUE, export NAME=VALUE or a "
                                    "comment",
                                    shown, found.size() > kShown ? "..." : ""));
  }

  void read_line();
  bool take_shell_word();
  void read_plain();
  void read_shell_words();
  std::optional<std::string> read_name();
  void skip_function(const SourceLocation& begin);
  void add(std::string name, const SourceLocation& named, const SourceLocation& where, Value value);

  /// From an opening quote to behind the closing one.
  void read_quoted(Value& value);
  Value read_shell_value();
  bool only_comment_follows();

  std::string_view text_;
  std::string file_;
  std::size_t next_ = 0;
  int line_ = 1;
  std::size_t line_begin_ = 0;
  Environment environment_;
};

void Reader::read_line() {
  skip_blanks();
  if (at_line_end() || peek() == '#') {
    skip_line();
  } else if (take_shell_word()) {
    read_shell_words();
  } else {
    read_plain();
  }
}

/// Whether the line begins with one of these words; then behind it.
bool Reader::take_shell_word() {
  constexpr std::array<std::string_view, 3> kWords = {"export", "declare -x", "set"};
  for (const std::string_view word : kWords) {
    const std::string_view line = rest();
    if (line.starts_with(word) && line.size() > word.size() && is_blank(line[word.size()])) {
      next_ += word.size();
      skip_blanks();
      return true;
    }
  }
  return false;
}

/// Up to behind "=". \returns nothing for a name alone, which a shell would only mark.
std::optional<std::string> Reader::read_name() {
  const SourceLocation begin = here();
  const std::string_view line = rest();
  std::string name;
  if (begins_name(peek())) {
    while (!at_line_end() && continues_name(peek())) name += take();
  }
  const bool alone = at_line_end() || is_blank(peek()) || peek() == ';';
  if (name.empty() || (peek() != '=' && !alone)) fail(begin, line);
  if (alone) return std::nullopt;
  take();
  return name;
}

void Reader::add(std::string name, const SourceLocation& named, const SourceLocation& where,
                 Value value) {
  environment_.variables.push_back(
      {std::move(name), std::move(value.text), where, named, value.needs_expansion});
}

/// To behind the line that ends a function.
void Reader::skip_function(const SourceLocation& begin) {
  const std::string_view first = rest();
  skip_line();
  if (first.ends_with("}")) return;
  while (!at_end()) {
    const bool last = rest() == "}";
    skip_line();
    if (last) return;
  }
  throw ConfigError(begin, "found a function that does not end, expected a line \"}\"");
}

void Reader::read_plain() {
  const SourceLocation named = here();
  if (is_function(rest())) {
    skip_function(named);
    return;
  }
  const std::string_view line = rest();
  std::optional<std::string> name = read_name();
  if (!name) fail(named, line);
  const SourceLocation where = here();
  Value value;
  if (peek() == '"' || peek() == '\'') {
    const std::size_t begin = next_;
    const std::string_view raw = rest();
    SourceLocation inside = here();
    ++inside.column;
    read_quoted(value);
    if (only_comment_follows()) {
      add(std::move(*name), named, inside, std::move(value));
      skip_line();
      return;
    }
    if (here().line != where.line) fail(here(), rest());
    next_ = begin;
    value = {std::string(raw), false};  // quotes that do not hold all of it belong to it
  } else {
    value.text = rest();
  }
  add(std::move(*name), named, where, std::move(value));
  skip_line();
}

bool Reader::only_comment_follows() {
  const std::string_view behind = rest();
  const std::size_t first = behind.find_first_not_of(" \t");
  return first == std::string_view::npos || (first > 0 && behind[first] == '#');
}

void Reader::read_quoted(Value& value) {
  const SourceLocation begin = here();
  const char quote = take();
  while (!at_end() && peek() != quote) {
    char c = take();
    if (quote == '"' && (c == '$' || c == '`')) value.needs_expansion = true;
    const std::string_view escapes = "\"\\$`";
    if (quote == '"' && c == '\\' && escapes.find(peek()) != std::string_view::npos && !at_end()) {
      c = take();
    }
    value.text += c;
  }
  if (at_end()) {
    throw ConfigError(begin, format("found a value without its closing {}", quote));
  }
  take();
}

Value Reader::read_shell_value() {
  Value value;
  while (!at_line_end() && !is_blank(peek()) && peek() != ';') {
    if (peek() == '"' || peek() == '\'') {
      read_quoted(value);
      continue;
    }
    char c = take();
    if (c == '$' || c == '`') value.needs_expansion = true;
    if (c == '\\' && !at_line_end()) c = take();
    value.text += c;
  }
  return value;
}

void Reader::read_shell_words() {
  while (true) {
    skip_blanks();
    if (peek() == ';') {
      take();
      skip_blanks();
      static_cast<void>(take_shell_word());
    }
    if (at_line_end() || peek() == '#') break;
    const SourceLocation named = here();
    std::optional<std::string> name = read_name();
    if (!name) continue;
    SourceLocation where = here();
    if (peek() == '"' || peek() == '\'') ++where.column;
    add(std::move(*name), named, where, read_shell_value());
  }
  skip_line();
}

}  // namespace

const EnvironmentVariable* Environment::find(std::string_view name) const {
  const auto last =
      std::find_if(variables.rbegin(), variables.rend(),
                   [&](const EnvironmentVariable& variable) { return variable.name == name; });
  return last == variables.rend() ? nullptr : &*last;
}

Environment parse_environment(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

Environment read_environment(const std::string& path) {
  return parse_environment(read_file(path), path);
}

}  // namespace zerosim
