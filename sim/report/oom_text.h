/// \file
/// Renders why a job ran out of memory: text of at most 100 columns, versioned JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/explain_oom.h"
#include "sim/analysis/oom_message.h"
#include "sim/base/json.h"

namespace zerosim {

/// What `zerosim explain-oom` answers.
struct OomReport {
  std::vector<OomMessage>
      messages;  ///< of the text; the first is explained; none: the simulation's
  OomExplanation explanation;
  std::string strategy;            ///< its name; empty: no job was given
  std::vector<std::string> hints;  ///< flags that would let it say more
};

[[nodiscard]] std::string oom_text(const OomReport& report);
/// `message`, `match`, `request`, `causes`, `evidence`, `ways_out`, `hints`; sizes in bytes, times
/// in seconds, null where not known.
[[nodiscard]] JsonValue oom_json(const OomReport& report);

}  // namespace zerosim
