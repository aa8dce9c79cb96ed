/// \file
/// Writes what ran as a Perfetto trace, to look at in ui.perfetto.dev (spec/trace_formats.md
/// section 1).
///
/// One process a rank class; under it the host thread, one track a stream (communicators included)
/// and, where samples are given, a counter of allocated memory. Each span is one slice, named by
/// its kernel or collective; a collective that is one of several coalesced calls has its own slice.
/// Debug annotations tell elements, type, group, FLOPs and bytes, module, phase, step, micro step
/// and rule. Begins and ends are rounded to whole nanoseconds once, each by itself, so that slices
/// that touch still touch. Same input, same bytes.
///
/// Not written: flows between host and device, launch gaps, the time between issue and start.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "sim/engine/timeline.h"
#include "sim/memory/memory_timeline.h"
#include "sim/program/program.h"

namespace zerosim {

/// \param timeline  of `program`: its spans name operations of it.
/// \param samples   memory of the first rank class over time; may be null.
/// \param out       opened in binary mode.
/// \throws BackendError  if `out` cannot take all of it.
void write_perfetto(const Program& program, const Timeline& timeline,
                    const std::vector<MemorySample>* samples, std::ostream& out);

/// The same to a file.
/// \throws ConfigError   if the file cannot be opened for writing; BackendError as above.
void write_perfetto(const std::string& path, const Program& program, const Timeline& timeline,
                    const std::vector<MemorySample>* samples = nullptr);

}  // namespace zerosim
