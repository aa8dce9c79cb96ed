/// \file
/// What the engine asks at each Allocate and Free of a host thread.
#pragma once

#include <cstdint>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/program/program.h"

namespace zerosim {

/// How far the device of one rank class is, for the host thread that asks.
class DeviceProgress {
 public:
  enum class State : std::uint8_t {
    Ended,    ///< at the host's present or before
    Running,  ///< it ends later
    Unknown,  ///< the host thread has been walked ahead of the device's clock
  };

  virtual ~DeviceProgress() = default;
  [[nodiscard]] virtual State state(OpId op) const = 0;
};

/// Sees every allocation and free in host order and answers what it costs the host. Implemented by
/// sim/memory. It may not call back into the engine.
///
/// The operations that a Free depends on are those whose end its memory waits for: the last ones on
/// the streams that used it (record_stream, E7.8). The host thread does not wait for them.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;

  /// A host thread asks for `buffer` at `now`. \returns the host time that it takes.
  virtual Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                              Seconds now) = 0;
  virtual Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                          Seconds now) = 0;

  /// torch.cuda.empty_cache(), a moment to see what has ended, too.
  virtual Seconds on_empty_cache(int /*rank_class*/, const Op& /*op*/, Seconds /*now*/) {
    return Seconds(0);
  }

  /// Before each `on_allocate`: the moment to see what has ended. `progress` is good for the call.
  /// \returns false if an answer was Unknown and matters: the engine then brings the device to the
  ///          host's present and calls again, with nothing Unknown.
  virtual bool poll_device(int /*rank_class*/, const DeviceProgress& /*progress*/) { return true; }

  /// After each `on_allocate` and `on_empty_cache`: whether it waited for an idle device (cudaFree,
  /// E7.9). Then all that the host thread has issued ends before it spends the time that was
  /// answered.
  [[nodiscard]] virtual bool synchronized(int /*rank_class*/) const { return false; }
};

}  // namespace zerosim
