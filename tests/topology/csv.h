/// \file
/// The plain comma-separated tables of tests/data/topology: no quoting, `#` lines are comments.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace zerosim::test {

using CsvRow = std::map<std::string, std::string>;

inline std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

/// Rows of tests/data/topology/NAME by the names of its header line; empty if there is no such
/// file.
inline std::vector<CsvRow> read_csv(const std::string& name) {
  std::ifstream file(std::string(ZEROSIM_TEST_DATA) + "/topology/" + name);
  std::vector<std::string> header;
  std::vector<CsvRow> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> cells = split(line);
    if (header.empty()) {
      header = cells;
      continue;
    }
    CsvRow row;
    for (std::size_t i = 0; i < cells.size() && i < header.size(); ++i) row[header[i]] = cells[i];
    rows.push_back(row);
  }
  return rows;
}

}  // namespace zerosim::test
