/// \file
/// Runs work in a forked child. SimGrid allows one engine a process (design.md section 3): whoever
/// simulates on several clusters, or in parallel, does it in children.
#pragma once

#include <functional>
#include <string>

#include "sim/base/error.h"

namespace zerosim {

/// Forks a child that calls `work`, and returns the bytes that it returned.
///
/// The child shares nothing with this process but what it had at the fork; it writes nothing to
/// this process's open streams at its end. Call it while no other thread of this process holds a
/// lock that `work` needs. \throws ConfigError, TraceError, SimulationError, BackendError, Error,
/// std::runtime_error
///         as `work` threw it in the child, with its message; ConfigError with its place and code.
/// \throws SimulationError  if the child died, with the signal; BackendError if there can be no
/// child.
[[nodiscard]] std::string run_isolated(const std::function<std::string()>& work);

}  // namespace zerosim
