/// \file
/// The memory of one rank over a job: as a table of every change, and as a plot for the terminal.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/memory/memory_course.h"
#include "sim/program/program.h"
#include "sim/report/text_table.h"

namespace zerosim {

/// CSV (RFC 4180), one row a change, bytes:
///
///     event         from 0, in host order
///     step          from 0; of the initialisation 0 too, see `phase`
///     micro_step
///     phase         init, fwd, bwd, step
///     module        "" is the root or none
///     owner         what it is: ipg_bucket, saved_activation, ...
///     class         one of the seven below
///     stream        whose pool it is from (E8)
///     bytes         as asked for; a free is negative
///     allocated, active, reserved    after it, on a GPU without limit (E7.7)
///     parameters .. live_parameters  of `allocated`
///     on_gpu        "flush", "out_of_memory" or "": what happens on the GPU as it is;
///                   "empty_cache": no change but that call, and no owner, class or stream
///
/// \throws BackendError  if `out` takes no more.
void write_memory_csv(const Program& program, const std::vector<MemoryEvent>& course,
                      std::ostream& out);
/// \throws ConfigError  if the file cannot be opened; BackendError with its name.
void write_memory_csv(const std::string& path, const Program& program,
                      const std::vector<MemoryEvent>& course);

struct MemoryPlotOptions {
  int columns = kReportColumns;  ///< of the whole plot; at least 40
  int rows = 20;                 ///< of the plot's area; at least 4
};

/// Allocated memory as an area of letters, one a class, and reserved memory above it, over the
/// events of the job; plain ASCII.
///
/// A column stands for as many events as the others, and shows the one at which most is allocated.
/// The initialisation, which has few events, has some columns at least. A row stands for a part of
/// the GPU's memory and shows what is at its middle. If little of the GPU is used, the plot ends
/// above what is.
/// \param limit  what the allocator may take: the GPU's memory less the context.
[[nodiscard]] std::string memory_plot(const Program& program,
                                      const std::vector<MemoryEvent>& course, Bytes limit,
                                      const MemoryPlotOptions& options = {});

}  // namespace zerosim
