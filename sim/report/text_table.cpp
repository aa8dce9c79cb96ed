#include "sim/report/text_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sim/base/error.h"

namespace zerosim {

namespace {

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line;
  out += '\n';
}

/// Where to cut a name so that its first piece has at most `width` characters.
std::size_t cut_of(std::string_view name, std::size_t width) {
  const std::size_t separator = name.substr(0, width).find_last_of("_-./");
  const bool useful = separator != std::string_view::npos && separator + 1 >= width / 3;
  return useful ? separator + 1 : width;
}

}  // namespace

TextTable::TextTable(std::vector<Align> columns, int gap)
    : columns_(std::move(columns)), gap_(gap) {}

void TextTable::add_row(std::vector<std::string> cells) {
  ZS_CHECK(cells.size() <= columns_.size(), "a row has more cells than the table has columns");
  cells.resize(columns_.size());
  rows_.push_back({RowKind::Cells, std::move(cells)});
}

void TextTable::add_rule() {
  rows_.push_back({RowKind::Rule, {}});
}

void TextTable::add_heading(std::string text) {
  rows_.push_back({RowKind::Heading, {std::move(text)}});
}

std::string TextTable::text(int indent) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const Row& row : rows_) {
    if (row.kind != RowKind::Cells) continue;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      widths[i] = std::max(widths[i], row.cells[i].size());
    }
  }
  std::size_t total = columns_.empty() ? 0 : static_cast<std::size_t>(gap_) * (columns_.size() - 1);
  for (const std::size_t width : widths) total += width;

  std::string out;
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  for (const Row& row : rows_) {
    std::string line = margin;
    if (row.kind == RowKind::Rule) {
      line.append(total, '-');
    } else if (row.kind == RowKind::Heading) {
      line += row.cells[0];
    } else {
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        if (i > 0) line.append(static_cast<std::size_t>(gap_), ' ');
        const std::string padding(widths[i] - row.cells[i].size(), ' ');
        line += columns_[i] == Align::Left ? row.cells[i] + padding : padding + row.cells[i];
      }
    }
    append_line(out, std::move(line));
  }
  return out;
}

std::vector<std::string> wrap_name(std::string_view name, int width, int lines) {
  const auto limit = static_cast<std::size_t>(std::max(width, 3));
  std::vector<std::string> pieces;
  while (name.size() > limit && static_cast<int>(pieces.size()) + 1 < lines) {
    const std::size_t cut = cut_of(name, limit);
    pieces.emplace_back(name.substr(0, cut));
    name.remove_prefix(cut);
  }
  if (name.size() > limit) {
    pieces.push_back(std::string(name.substr(0, limit - 2)) + "..");
  } else {
    pieces.emplace_back(name);
  }
  return pieces;
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

}  // namespace zerosim
