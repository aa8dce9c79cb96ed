/// \file
/// One object of a ds_config.json, read as leniently as DeepSpeed's typed sections are (spec A1).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/strategy/config_codes.h"
#include "sim/strategy/strategy.h"

namespace zerosim::internal {

inline constexpr double kNoMinimum = std::numeric_limits<double>::lowest();
inline constexpr std::int64_t kNoIntegerMinimum = std::numeric_limits<std::int64_t>::min();

/// What reading a file gathers besides values.
struct ConfigNotes {
  std::vector<Setting> settings;
  std::vector<std::string> assumptions;
  std::vector<Warning> warnings;

  /// Lists a resolved key; it is an assumption too, unless the file states it.
  void list(Setting setting);
  [[nodiscard]] bool lists(const std::string& key) const;
  /// Another value for a listed key, which follows from something else.
  void override_setting(const std::string& key, std::string value, std::string reason);
};

/// How a key is listed among the settings.
struct Listing {
  bool matters = true;  ///< false: listed only if the file states the key
  std::string unit{};
  std::string reason = "DeepSpeed's default";  ///< of the fallback
  std::string name{};                          ///< the current name, if the file uses another one
};

class ConfigSection {
 public:
  /// Typed sections drop "auto" with a warning (A1.3); at top level it is an error.
  enum class Kind { Typed, TopLevel };

  ConfigSection(JsonObject object, Kind kind, ConfigNotes& notes, std::string listed_path);

  [[nodiscard]] bool has(const std::string& key) { return object_.has(key); }
  [[nodiscard]] bool is_auto(const std::string& key);
  /// Neither absent nor null.
  [[nodiscard]] bool is_set(const std::string& key);

  // Nothing is returned for a member that is absent, null or a dropped "auto".
  /// true, false, 0, 1 and the words that pydantic takes for them.
  [[nodiscard]] std::optional<bool> boolean(const std::string& key);
  /// Integral floats (A1.4) and digits in quotes count.
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, std::int64_t minimum);
  [[nodiscard]] std::optional<double> number(const std::string& key, double minimum,
                                             double maximum = std::numeric_limits<double>::max());
  /// One of `allowed`.
  [[nodiscard]] std::optional<std::string> word(const std::string& key,
                                                const std::vector<std::string>& allowed);
  [[nodiscard]] std::optional<std::string> string(const std::string& key);
  [[nodiscard]] std::optional<std::vector<std::string>> strings(const std::string& key);

  // The same with a default, and listed among the settings.
  bool boolean_or(const std::string& key, bool fallback, const Listing& listing = {});
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t minimum,
                          const Listing& listing = {});
  double number_or(const std::string& key, double fallback, double minimum, double maximum,
                   const Listing& listing = {});
  std::string word_or(const std::string& key, const std::string& fallback,
                      const std::vector<std::string>& allowed, const Listing& listing = {});
  /// Lists a value that was found in another way; the place is that of `key` in the file.
  void list(const std::string& key, std::string value, Origin origin, const Listing& listing = {});
  /// Lists `key` as it stands, if the file states it: it has no effect on a steady step.
  void list_if_set(const std::string& key);

  /// A typed section inside this one; its settings are listed under `listed_as` (default: `key`).
  [[nodiscard]] std::optional<ConfigSection> section(const std::string& key,
                                                     const std::string& listed_as = "");
  /// The same; one without members if the file has none.
  [[nodiscard]] ConfigSection section_or_empty(const std::string& key,
                                               const std::string& listed_as = "");
  /// A section without members.
  [[nodiscard]] ConfigSection empty_section(const std::string& key,
                                            const std::string& listed_as = "");

  /// \throws ConfigError  with `code` at the first key that was not asked for.
  void reject_unknown(KnownCode code) const;
  [[noreturn]] void fail(const std::string& key, const std::string& message, KnownCode code) const {
    object_.fail(key, message, code.text());
  }
  void warn(const std::string& key, KnownCode code, const std::string& message);
  /// A warning for each of the first 20 keys that nobody asked for, with the nearest known one; the
  /// last says how many more there are. \returns those keys.
  std::vector<std::string> warn_unknown(KnownCode code, const std::string& what_happens);

  [[nodiscard]] JsonObject& object() { return object_; }
  /// "zero_optimization.stage", under the name of the settings.
  [[nodiscard]] std::string listed_name(const std::string& key) const;
  /// The text of a member as messages show it.
  [[nodiscard]] std::string shown(const std::string& key) const;
  /// Of the value of `key`; unknown if the file has none.
  [[nodiscard]] SourceLocation value_place(const std::string& key) const;

 private:
  [[nodiscard]] SourceLocation key_place(const std::string& key) const;
  /// True if there is nothing to read; an "auto" is dropped on the way.
  [[nodiscard]] bool nothing(const std::string& key);
  void list_read(const std::string& key, std::string value, bool given, const Listing& listing);

  JsonObject object_;
  Kind kind_;
  ConfigNotes* notes_;
  std::string listed_path_;
};

[[nodiscard]] std::string truth(bool value);  ///< "true" or "false"

}  // namespace zerosim::internal
