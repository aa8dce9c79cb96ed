/// \file
/// Plain ASCII tables of a given width; paragraphs: `wrap` (sim/base/text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/text.h"

namespace zerosim {

/// Cells in columns that are as wide as their widest cell.
class TextTable {
 public:
  enum class Align { Left, Right };

  /// \param gap  spaces between columns.
  explicit TextTable(std::vector<Align> columns, int gap = 2);

  /// Adds a row; missing cells are empty. \pre at most as many cells as columns.
  void add_row(std::vector<std::string> cells);
  /// Adds a line of dashes as wide as the table.
  void add_rule();
  /// Adds a row of one text that takes part in no column's width.
  void add_heading(std::string text);

  /// Lines that end in "\n", without trailing spaces, each indented by `indent` spaces.
  [[nodiscard]] std::string text(int indent = 0) const;

 private:
  enum class RowKind { Cells, Rule, Heading };
  struct Row {
    RowKind kind = RowKind::Cells;
    std::vector<std::string> cells;
  };

  std::vector<Align> columns_;
  int gap_;
  std::vector<Row> rows_;
};

/// Breaks a name into at most `lines` pieces of at most `width` characters, after one of "_-./"
/// where possible; what does not fit ends in "..".
[[nodiscard]] std::vector<std::string> wrap_name(std::string_view name, int width, int lines);

/// "6,738,415,616".
[[nodiscard]] std::string grouped(std::int64_t number);

}  // namespace zerosim
