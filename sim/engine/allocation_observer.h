/// \file
/// What the engine asks at each Allocate and Free of a host thread.
#pragma once

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/program/program.h"

namespace zerosim {

/// Sees every allocation and free in host order and answers what it costs the host. Implemented by
/// sim/memory. It may not call back into the engine.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;

  /// A host thread asks for `buffer` at `now`. \returns the host time that it takes.
  virtual Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                              Seconds now) = 0;
  virtual Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                          Seconds now) = 0;
};

}  // namespace zerosim
