/// \file
/// Results go to stdout, everything else to stderr.
#pragma once

#include <string>

#include "sim/base/json.h"

namespace zerosim {

/// \throws BackendError  if stdout cannot take it (a full disk).
void print(const std::string& text);
/// Indented, with a newline at the end.
void print(const JsonValue& json);

}  // namespace zerosim
