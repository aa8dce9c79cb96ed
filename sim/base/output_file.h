/// \file
/// Files that are written where the user says.
#pragma once

#include <fstream>
#include <string>

namespace zerosim {

/// Empties or creates the file; bytes go into it as they are.
/// \throws ConfigError  if it cannot be opened, with the reason.
[[nodiscard]] std::ofstream open_output(const std::string& path);

}  // namespace zerosim
