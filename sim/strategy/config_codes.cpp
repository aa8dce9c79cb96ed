#include "sim/strategy/config_codes.h"

#include <algorithm>

namespace zerosim {

ConfigVerdict config_verdict(std::span<const Warning> warnings) {
  const bool warns = std::any_of(warnings.begin(), warnings.end(), [](const Warning& warning) {
    const ConfigCode* row = find_config_code(warning.code);
    ZS_CHECK(row != nullptr, "a warning's code is in the table");
    return row->kind == CodeKind::Warning;
  });
  return warns ? ConfigVerdict::Warn : ConfigVerdict::Ok;
}

std::string_view to_string(CodeKind kind) {
  switch (kind) {
    case CodeKind::Error:
      return "error";
    case CodeKind::Warning:
      return "warning";
    case CodeKind::Lint:
      break;
  }
  return "lint";
}

std::string_view to_string(ConfigVerdict verdict) {
  switch (verdict) {
    case ConfigVerdict::Ok:
      return "ok";
    case ConfigVerdict::Warn:
      return "warn";
    case ConfigVerdict::Error:
      break;
  }
  return "error";
}

}  // namespace zerosim
