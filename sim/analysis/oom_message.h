/// \file
/// Reads PyTorch's out-of-memory messages out of a log: the figures that the allocator printed.
///
/// The wordings are those that sim/memory/caching_allocator.h writes (OutOfMemoryStyle), and what
/// surrounds them in practice: a traceback, prefixes of ranks ("[rank3]: "), messages of several
/// ranks, lines broken by a terminal, HIP for CUDA, the `cached` of releases before 1.4, other
/// processes and private pools of later ones.
///
/// Not read: cudaMallocAsync's wording, "CUDA error: out of memory", which has no figures, and
/// messages about host memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/program/program.h"

namespace zerosim {

/// A size as somebody printed it: "3.14 GiB" is 3.14 x 2^30 bytes, give or take half of the last
/// digit.
struct PrintedSize {
  Bytes bytes;
  Bytes tolerance;  ///< at least 1 byte where a unit is not "bytes"

  /// Whether `exact` bytes are printed so.
  [[nodiscard]] bool covers(Bytes exact) const;
};

/// Reads "3.14 GiB", "341.94 MiB", "512 bytes", "17.50 KiB".
/// \returns nothing if `text` does not begin with one, or if no device has so much (2^50 bytes).
[[nodiscard]] std::optional<PrintedSize> parse_printed_size(std::string_view text);

/// A figure in GiB of a table or JSON file; its last decimal digit is taken as rounded.
/// \throws ConfigError  if it is negative, not finite, or too large for a device.
[[nodiscard]] PrintedSize printed_gib(double gib);

/// One frame of a Python traceback, as far as it was printed.
struct TracebackFrame {
  std::string file;
  int line = 0;
  std::string function;
  std::string code;
};

/// One message. Figures that its wording lacks are not set.
struct OomMessage {
  SourceLocation where;     ///< of "Tried to allocate"
  std::optional<int> rank;  ///< of a prefix such as "[rank3]:"
  int device = 0;
  PrintedSize request;                    ///< "Tried to allocate": the segment (E7.4)
  std::optional<PrintedSize> total;       ///< capacity of the device
  std::optional<PrintedSize> allocated;   ///< by PyTorch
  std::optional<PrintedSize> reserved;    ///< by PyTorch; of 2.x what its two figures sum to
  std::optional<PrintedSize> free;        ///< of the device
  std::optional<PrintedSize> process;     ///< in use by this process, context included (2.1 on)
  std::optional<PrintedSize> others;      ///< "Process 123 has ..." together, less this one
  std::optional<PrintedSize> allowed;     ///< by the memory fraction
  std::vector<TracebackFrame> traceback;  ///< of this rank as far as one can tell, outermost first
  std::optional<Phase> phase;             ///< where the traceback shows it
};

/// Every message of `text`, in its order; at least one.
/// \param name  stands for the text in messages: a file's name, "stdin".
/// \throws TraceError  if there is none, saying what was found instead (messages without figures);
///                     at the place of a figure that cannot be read.
[[nodiscard]] std::vector<OomMessage> parse_oom_messages(std::string_view text,
                                                         const std::string& name);

/// The first of them.
[[nodiscard]] OomMessage parse_oom_message(std::string_view text, const std::string& name);

}  // namespace zerosim
