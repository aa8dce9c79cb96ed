/// \file
/// Tables of measurements: CSV as RFC 4180 has it, read strictly, with the place of every cell.
///
/// The first record names the columns. Cells are separated by commas and records by LF or CRLF; a
/// cell in quotes may hold commas, line ends and doubled quotes. Refused: quotes inside a cell
/// without quotes, text after a closing quote, records with more or fewer cells than the header (an
/// empty line has one), columns without name or with the same name, a CR alone. A byte order mark
/// is skipped.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace zerosim {

struct CsvCell {
  std::string text;  ///< without its quotes
  int line = 0;      ///< where it begins, from 1
  int column = 0;    ///< in characters, from 1
};

struct CsvTable {
  std::string file;
  std::vector<CsvCell> header;
  std::vector<std::vector<CsvCell>> rows;  ///< each as long as the header

  [[nodiscard]] SourceLocation location(const CsvCell& cell) const {
    return {file, cell.line, cell.column};
  }
  /// Index of the column `name`.
  /// \throws TraceError  at the header, with the nearest column's name, if there is none.
  [[nodiscard]] std::size_t column(const std::string& name) const;
};

/// \param name  stands for the file in messages.
/// \throws TraceError  with line and column.
[[nodiscard]] CsvTable parse_csv(std::string_view text, const std::string& name);

/// \throws ConfigError  if the file cannot be read; TraceError as `parse_csv`.
[[nodiscard]] CsvTable read_csv(const std::string& path);

/// What a number may be.
struct CsvRange {
  double minimum = 0;
  double maximum = 0;
  bool whole = false;
};

/// The number in cell `index` of `row`, nothing if the cell is empty.
/// \throws TraceError  at the cell, naming its column, unless it is a number in `range`.
[[nodiscard]] std::optional<double> csv_number(const CsvTable& table,
                                               const std::vector<CsvCell>& row, std::size_t index,
                                               const CsvRange& range);

}  // namespace zerosim
