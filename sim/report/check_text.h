/// \file
/// Renders what became of a configuration file: verdict, resolved values, warnings.
#pragma once

#include <optional>
#include <string>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/strategy/config_codes.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// A file that was read for some ranks and a model: a strategy, or the error that stopped it.
struct ConfigCheck {
  std::string file;
  std::string model;  ///< name; empty: none was given
  int world_size = 1;
  std::optional<Strategy> strategy;
  std::optional<ConfigError> error;

  [[nodiscard]] ConfigVerdict verdict() const {
    return strategy ? config_verdict(strategy->warnings) : ConfigVerdict::Error;
  }
};

[[nodiscard]] std::string check_text(const ConfigCheck& check);
/// `resolved` maps each key to its value, typed; `settings` has the same with origin and place.
[[nodiscard]] JsonValue check_json(const ConfigCheck& check);

/// Every code that a check may report, its kind and meaning.
[[nodiscard]] std::string config_codes_text();
[[nodiscard]] JsonValue config_codes_json();

}  // namespace zerosim
