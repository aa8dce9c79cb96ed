#include "validate/csv.h"

#include <charconv>
#include <cmath>
#include <set>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& name) : text_(text), name_(name) {
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  [[nodiscard]] bool at_end() const { return position_ == text_.size(); }

  std::vector<CsvCell> record() {
    std::vector<CsvCell> cells = {cell()};
    while (!at_end() && peek() == ',') {
      advance();
      cells.push_back(cell());
    }
    end_of_line();
    return cells;
  }

 private:
  [[nodiscard]] char peek() const { return text_[position_]; }
  [[nodiscard]] SourceLocation here() const { return {name_, line_, column_}; }

  char advance() {
    const char c = text_[position_++];
    const bool continues = (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;  // inside UTF-8
    if (c == '\n') {
      ++line_;
      column_ = 1;
    } else if (!continues) {
      ++column_;
    }
    return c;
  }

  CsvCell cell() {
    CsvCell cell{"", line_, column_};
    if (!at_end() && peek() == '"') {
      cell.text = quoted();
      return cell;
    }
    while (!at_end() && peek() != ',' && peek() != '\n' && peek() != '\r') {
      if (peek() == '"') {
        throw TraceError(here(),
                         "found a quote inside a cell without quotes, expected the whole "
                         "cell in quotes and this one doubled");
      }
      cell.text += advance();
    }
    return cell;
  }

  std::string quoted() {
    const SourceLocation opening = here();
    advance();
    std::string text;
    for (;;) {
      if (at_end()) {
        throw TraceError(opening, "found a quote that is never closed, expected a second one");
      }
      const char c = advance();
      if (c != '"') {
        text += c;
      } else if (!at_end() && peek() == '"') {
        text += advance();
      } else {
        break;
      }
    }
    if (!at_end() && peek() != ',' && peek() != '\n' && peek() != '\r') {
      throw TraceError(here(),
                       "found text after a closing quote, expected a comma or the line's "
                       "end");
    }
    return text;
  }

  void end_of_line() {
    if (at_end()) return;
    const SourceLocation place = here();
    if (advance() == '\n') return;
    if (at_end() || advance() != '\n') {
      throw TraceError(place, "found a carriage return alone, expected CRLF or LF");
    }
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t position_ = 0;
  int line_ = 1;
  int column_ = 1;
};

void check_header(const CsvTable& table) {
  std::set<std::string> names;
  for (const CsvCell& cell : table.header) {
    if (cell.text.empty()) {
      throw TraceError(table.location(cell), "found a column without name, expected one");
    }
    if (!names.insert(cell.text).second) {
      throw TraceError(table.location(cell),
                       format("found a second column \"{}\", expected one", cell.text));
    }
  }
}

}  // namespace

std::size_t CsvTable::column(const std::string& name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (header[i].text == name) return i;
    names.push_back(header[i].text);
  }
  throw TraceError({file, 1, 1},
                   format("found no column \"{}\", expected it among the {} columns{}", name,
                          header.size(), did_you_mean(name, names)));
}

CsvTable parse_csv(std::string_view text, const std::string& name) {
  CsvParser parser(text, name);
  if (parser.at_end()) throw TraceError({name, 1, 1}, "found nothing, expected names of columns");
  CsvTable table{name, parser.record(), {}};
  check_header(table);
  while (!parser.at_end()) {
    std::vector<CsvCell> row = parser.record();
    if (row.size() != table.header.size()) {
      throw TraceError(
          table.location(row.front()),
          format("found {} cells, expected {} as in line 1", row.size(), table.header.size()));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

CsvTable read_csv(const std::string& path) {
  return parse_csv(read_file(path), path);
}

std::optional<double> csv_number(const CsvTable& table, const std::vector<CsvCell>& row,
                                 std::size_t index, const CsvRange& range) {
  const CsvCell& cell = row[index];
  if (cell.text.empty()) return std::nullopt;
  double value = 0;
  const char* end = cell.text.data() + cell.text.size();
  const auto [rest, error] = std::from_chars(cell.text.data(), end, value);
  const bool is_number = error == std::errc() && rest == end && std::isfinite(value);
  if (!is_number || value < range.minimum || value > range.maximum ||
      (range.whole && value != std::floor(value))) {
    throw TraceError(
        table.location(cell),
        format("{}: found \"{}\", expected a {} from {:g} to {:g}", table.header[index].text,
               cell.text, range.whole ? "whole number" : "number", range.minimum, range.maximum));
  }
  return value;
}

}  // namespace zerosim
