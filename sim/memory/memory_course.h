/// \file
/// The memory of one rank over a job, change by change: what timelines and plots show.
///
/// Time plays no part: events are in host order, and the device is always done. The figures are
/// those of the allocator without limit, as the peaks of a report are; what happens on the device
/// as it is stands beside them (`flushed`, `failed`).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/memory/allocator_observer.h"
#include "sim/memory/memory_timeline.h"
#include "sim/program/program.h"

namespace zerosim {

/// One allocation or free on the device, or torch.cuda.empty_cache, and what is held after it.
struct MemoryEvent {
  int step = 0;
  int micro_step = 0;
  Phase phase = Phase::Init;
  ModuleId module;
  std::string_view owner;  ///< string literal
  MemoryClass memory_class = MemoryClass::TemporaryBuffers;
  StreamId stream;
  Bytes bytes;  ///< as asked for; of a free negative
  Bytes allocated, active, reserved;
  MemoryByClass by_class{};  ///< of `allocated`, in whole blocks
  bool flushed = false;      ///< on the device as it is, the cache was flushed for it (E7.9)
  bool failed = false;       ///< it is the first request that fails there
  bool emptied = false;      ///< empty_cache (E7.14): of no buffer, no owner and no bytes
};

/// In host order. \param setup  `keep_samples` is of no account.
[[nodiscard]] std::vector<MemoryEvent> memory_course(const Program& program,
                                                     const AllocatorSetup& setup,
                                                     int rank_class = 0);

/// Where most is allocated, the first if there are several. \pre not empty
[[nodiscard]] std::size_t peak_of(const std::vector<MemoryEvent>& course);

}  // namespace zerosim
