/// \file
/// Files to write; those to read whole are in text.h (`read_file`).
#pragma once

#include <iosfwd>
#include <string>

namespace zerosim {

/// Makes or empties a file, for bytes as they are.
/// \throws ConfigError  that names the file and the system's reason
[[nodiscard]] std::ofstream open_for_writing(const std::string& path);

}  // namespace zerosim
