/// \file
/// Results go to stdout, everything else to stderr.
#pragma once

#include <string>

#include "sim/base/json.h"

namespace zerosim {

/// \throws BackendError  if stdout cannot take it (a full disk).
void print(const std::string& text);
/// \throws ConfigError  if the file cannot be opened, BackendError if it cannot take the text.
void write_file(const std::string& path, const std::string& text);
/// Indented, with a newline at the end.
void print(const JsonValue& json);

}  // namespace zerosim
