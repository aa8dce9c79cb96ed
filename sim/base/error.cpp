#include "sim/base/error.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace zerosim {
namespace {

std::string placed(const SourceLocation& location, const std::string& message) {
  const std::string place = to_string(location);
  return place.empty() ? message : place + ": " + message;
}

}  // namespace

std::string to_string(const SourceLocation& location) {
  if (location.file.empty() || location.line <= 0) return location.file;
  std::string text = location.file + ":" + std::to_string(location.line);
  if (location.column > 0) text += ":" + std::to_string(location.column);
  return text;
}

ConfigError::ConfigError(const std::string& message) : Error(message) {}

ConfigError::ConfigError(const SourceLocation& location, const std::string& message,
                         std::string code)
    : Error(placed(location, message)), location_(location), code_(std::move(code)) {}

TraceError::TraceError(const SourceLocation& location, const std::string& message)
    : Error(placed(location, message)) {}

namespace internal {

void check_failed(const char* file, int line, const char* expression, std::string_view message) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %.*s\n", file, line, expression,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace internal

}  // namespace zerosim
