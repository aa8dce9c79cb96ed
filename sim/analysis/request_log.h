/// \file
/// Looks in a simulated job for the request that an out-of-memory message tells of.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/analysis/memory_cause.h"
#include "sim/analysis/oom_message.h"
#include "sim/analysis/report.h"
#include "sim/memory/memory_timeline.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// The figures of a message; whatever is not known is not set.
struct OomFigures {
  std::optional<PrintedSize> request;  ///< "Tried to allocate": the segment (E7.4)
  std::optional<PrintedSize> total, allocated, reserved, free, process, others;
  std::optional<Phase> phase;

  /// Whether anything that tells of memory is set.
  [[nodiscard]] bool any() const;
  /// Reserved by PyTorch and not allocated.
  [[nodiscard]] std::optional<Bytes> unallocated() const;
  /// What was allocated: the figure, else what the rest leaves for it at most.
  /// \param context  of the device outside of PyTorch's allocator.
  [[nodiscard]] std::optional<Bytes> allocated_at_most(Bytes context) const;
};
[[nodiscard]] OomFigures figures_of(const OomMessage& message);

/// One request of the simulated job, and what was held before it.
struct RequestMoment {
  Bytes bytes;  ///< as asked for
  std::string_view owner;
  std::string_view rule;
  ModuleId module;
  std::string module_name;
  MemoryClass memory_class = MemoryClass::TemporaryBuffers;
  MemoryCause cause = MemoryCause::ModelStates;
  Phase phase = Phase::Init;
  int step = 0;
  Bytes allocated;           ///< before it
  MemoryByClass by_class{};  ///< of that
  MemoryByCause by_cause{};  ///< of that
  int same_size_live = 0;    ///< requests of this size that were live already
};

struct RequestSearch {
  /// Printed as in the message; of several the one in the message's phase, then the one that finds
  /// as much allocated as `OomFigures::allocated_at_most`, if that is not known most, then the
  /// first.
  std::optional<RequestMoment> exact;
  std::optional<RequestMoment> near;     ///< the same for sizes within 2 %: a model nearly the same
  std::optional<RequestMoment> failure;  ///< the request that fails in the simulation
  std::optional<RequestMoment> largest;  ///< of all the first of the largest
  std::optional<RequestMoment> fullest;  ///< after which most is allocated
  std::optional<RequestMoment> as_full;  ///< before which as much is allocated as the message says
  Bytes context;                         ///< of the simulated job, outside of the allocator
};

/// Replays the job of `replayed_memory` with the capacity of the cluster's GPU.
[[nodiscard]] RequestSearch find_requests(const OomFigures& figures, const Experiment& experiment,
                                          const Strategy& strategy);

}  // namespace zerosim
