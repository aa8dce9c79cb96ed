/// \file
/// What was measured of a published training run, in the terms of the simulator.
///
/// Step time, the first of these that the row has:
///
/// - step_time_s, of one optimizer step;
/// - global_batch_tokens / (tokens_per_s_per_gpu x world_size);
/// - sequences of a step / samples_per_s;
/// - FLOPs of a step by the row's own flop_convention / (tflops_per_gpu, or mfu x the peak rate
///   that the convention names, else the GPU's).
///
/// FLOPs of a token, with N parameters, E of them in the table of tokens, L layers of width d,
/// sequences of s tokens, V words (data/measured/README.md, "FLOP counting differs by source"):
///
///     6*N.. + 12*L*d*s             6 N + 12 L d s
///     6*(N - embedding) + 12*L*d*s 6 (N - E) + 12 L d s
///     .. causal .. 6*L*d*s         6 (N - E) + 6 L d s
///     96*B*s*L*h^2*(..), Megatron  96 L d^2 (1 + s / 6d + V / 16 L d): with a second forward
///     hardware FLOPs               as Megatron's
///     8*N*T                        8 N
///
/// Timers: most sources time whole steps. Rows `dsat-..-ds` have DeepSpeed's own timers around
/// forward, backward and step, which leave out what lies between (they read fast); `belle-..` and
/// `lf3499..` one micro batch or printed iteration.
///
/// Memory: peak_memory_gb, and by the words of peak_memory_kind which figure it is: of tensors
/// ("allocated"), of blocks in use ("active"), of the allocator ("reserved"), of the process
/// ("process", "nvidia-smi").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/units.h"
#include "validate/csv.h"
#include "validate/run_row.h"

namespace zerosim {

enum class RunTimer { WholeStep, InsideEngine, MicroBatch };
[[nodiscard]] std::string_view to_string(RunTimer timer);

enum class PeakKind { Allocated, Active, Reserved, Process };
[[nodiscard]] std::string_view to_string(PeakKind kind);

struct MeasuredPeak {
  PeakKind kind = PeakKind::Allocated;
  Bytes bytes;
};

struct RunFigures {
  std::optional<Seconds> step;
  std::string step_from;  ///< "step_time_s", "tokens_per_s_per_gpu", ...; empty: no step time
  std::string no_step;    ///< why there is none
  RunTimer timer = RunTimer::WholeStep;
  std::optional<MeasuredPeak> peak;
  std::string no_peak;  ///< why there is none
};

/// \param run  what the row describes
/// \throws TraceError  at a cell that should hold a number and does not.
[[nodiscard]] RunFigures figures_of(const CsvTable& table, const std::vector<CsvCell>& row,
                                    const TrainingRun& run);

/// FLOPs of one token as `convention` counts them; nothing if its words are not known.
[[nodiscard]] std::optional<Flops> flops_by_convention(const std::string& convention,
                                                       const Model& model, std::int64_t sequence);

/// Which figure the words of peak_memory_kind name; nothing if they do not.
[[nodiscard]] std::optional<PeakKind> peak_kind_of(const std::string& words);
/// The printed figure, 1e9 bytes, or 2^30 where the words say "probably GiB".
[[nodiscard]] Bytes printed_peak(double printed, const std::string& words);
/// The simulator's figure of that kind.
[[nodiscard]] Bytes peak_of_kind(const MemoryReport& memory, PeakKind kind);

}  // namespace zerosim
