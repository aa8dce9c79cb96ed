/// \file
/// Why a job ran out of memory: which buffer, what filled the rest, and what would help.
///
/// The request of the message is looked for in the simulated job (request_log.h). If it is there,
/// its buffer is named with its formula (size_formula.h), phase and operation, and what was held
/// before it is told by cause. If it is not there, what the size could be is said, and nothing
/// more. Causes, most likely first:
///
///     fragmentation      PyTorch held at least as much unused as it asked for
///     no_sharding        ZeRO on one rank
///     model_states       parameters, gradients and optimizer states alone do not fit
///     the others         by what they held at that moment, the request included; those below a
///                        twentieth of the GPU are left out, but for the request's own
///     model_states       last, where they take a third of the GPU
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/oom_message.h"
#include "sim/analysis/report.h"
#include "sim/analysis/request_log.h"
#include "sim/analysis/ways_out.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// How the request was found.
enum class OomMatch {
  NotLookedFor,  ///< no model was given, or the message tells no request
  Exact,         ///< a request of the simulated job is printed as the message prints it
  Near,          ///< one is within 2 %
  Simulated,     ///< there is no message: the request that fails in the simulation
  TooEarly,      ///< one has the size, but finds so little allocated that it cannot have failed
  NotFound,
};
[[nodiscard]] std::string_view to_string(OomMatch match);  ///< "exact", "not_found"

struct OomExplanation {
  OomMatch match = OomMatch::NotLookedFor;
  std::string request;                 ///< one or two sentences on what was asked for
  std::optional<RequestMoment> found;  ///< in the simulated job
  std::string formula;                 ///< of its size, or of the message's; or empty
  std::vector<std::string> causes;     ///< codes, most likely first
  std::vector<std::string> evidence;   ///< sentences: what filled the GPU, fragmentation, others
  std::vector<WayOut> ways_out;
  std::optional<Seconds> step;  ///< as the job is, were there memory; set if ways are timed
  bool simulated_fits = false;  ///< the simulated job does not fail
};

/// What a message alone tells.
[[nodiscard]] OomExplanation explain_oom(const OomFigures& figures);

/// \param figures  none set: explains the failure of the simulated job.
/// \param timed    as WaysOutOptions::timed.
/// \throws ConfigError  if the strategy cannot be simulated.
[[nodiscard]] OomExplanation explain_oom(const OomFigures& figures, const Experiment& experiment,
                                         const Strategy& strategy, bool timed = false);

}  // namespace zerosim
