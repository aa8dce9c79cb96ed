/// \file
/// One object of a ds_config.json, read as leniently as DeepSpeed's typed sections are (spec A1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json.h"

namespace zerosim::internal {

/// What reading a file gathers besides values.
struct ConfigNotes {
  std::vector<std::string> assumptions;
  std::vector<Warning> warnings;
  /// The first setting that this version does not simulate; thrown when all else has been checked.
  std::optional<ConfigError> not_simulated;
};

class ConfigSection {
 public:
  /// Typed sections drop "auto" with a warning (A1.3); at top level it is an error.
  enum class Kind { Typed, TopLevel };

  ConfigSection(JsonObject object, Kind kind, ConfigNotes& notes);

  [[nodiscard]] bool has(const std::string& key) { return object_.has(key); }
  [[nodiscard]] bool is_auto(const std::string& key);
  /// Neither absent nor null.
  [[nodiscard]] bool is_set(const std::string& key);

  // Nothing is returned for a member that is absent, null or a dropped "auto".
  /// true, false, 0, 1 and the words that pydantic takes for them.
  [[nodiscard]] std::optional<bool> boolean(const std::string& key);
  /// Integral floats (A1.4) and digits in quotes count.
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, std::int64_t minimum);
  [[nodiscard]] std::optional<double> number(const std::string& key, double minimum);
  /// One of `allowed`.
  [[nodiscard]] std::optional<std::string> word(const std::string& key,
                                                const std::vector<std::string>& allowed);
  /// A typed section inside this one.
  [[nodiscard]] std::optional<ConfigSection> section(const std::string& key);

  /// \throws ConfigError  with `code` at the first key that was not asked for.
  void reject_unknown(const std::string& code) const;
  [[noreturn]] void fail(const std::string& key, const std::string& message,
                         const std::string& code = "") const {
    object_.fail(key, message, code);
  }
  void warn(const std::string& key, const std::string& code, const std::string& message);
  void assume(const std::string& key, const std::string& message);
  /// Remembers that the setting of `key` asks for `feature`, which this version cannot simulate.
  void not_simulated(const std::string& key, const std::string& feature);

  [[nodiscard]] JsonObject& object() { return object_; }
  /// The text of a member as messages show it.
  [[nodiscard]] std::string shown(const std::string& key) const;

 private:
  [[nodiscard]] SourceLocation place(const std::string& key) const;
  /// True if there is nothing to read; an "auto" is dropped on the way.
  [[nodiscard]] bool nothing(const std::string& key);

  JsonObject object_;
  Kind kind_;
  ConfigNotes* notes_;
};

}  // namespace zerosim::internal
