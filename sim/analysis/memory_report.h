/// \file
/// From what a rank allocates to whether it fits on its GPU.
///
/// A job is followed from its initialisation through its first steps to a steady one, through
/// PyTorch's caching allocator (sim/memory/allocator_observer.h) with what the CUDA context and
/// NCCL leave of the GPU:
///
///     does not fit   a request fails, even after a flush of the cache
///     tight          none fails, but the cache is flushed (E7.9, G6)
///     fits           neither
///
/// Not modelled: host memory of data and of the process itself; other processes on the GPU.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/units.h"
#include "sim/memory/allocator_observer.h"
#include "sim/model/operators.h"
#include "sim/program/build.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Device memory that no allocator of the framework sees: the middles of the ranges of E1, which
/// are typical values (tag K), to be calibrated.
struct ContextMemory {
  Bytes cuda = Bytes(450'000'000);               ///< context and loaded kernels: 0.3 to 0.6 GB
  Bytes nccl_communicator = Bytes(300'000'000);  ///< buffers of each communicator: 0.1 to 0.5 GB
};
inline constexpr ContextMemory kContextMemory;

/// The experiment's batch as `strategy` trains with it.
[[nodiscard]] BatchShape batch_of(const Experiment& experiment, const Strategy& strategy);

/// Communicators of more than one rank that `program` uses: NCCL makes one when first used.
[[nodiscard]] int communicators_in_use(const Program& program);

/// As the ZeRO paper counts (data/cases/README.md, `memory.model_states`), rounded to whole bytes:
/// on the device, so without what offload moves off it.
[[nodiscard]] Bytes paper_model_states_of(const Model& model, const Strategy& strategy,
                                          int world_size);

/// Steps of a job before a steady one (rules 0.7, C4.1, B2.6, D1.1): the first creates what is
/// created lazily, the second is the last whose schedule differs.
inline constexpr int kFirstSteps = 2;

/// The part of the job that an operation of this phase and step lies in: "initialisation", "first
/// step", "second step", "steady step".
[[nodiscard]] std::string job_part(Phase phase, int step);

/// The allocator of each rank of `program`; its capacity is that of the first one's GPU.
[[nodiscard]] AllocatorSetup allocator_setup(const Experiment& experiment, const Program& program);

/// A rank class as its memory is reported.
struct ReportedClass {
  int rank_class = 0;  ///< of the observer
  Rank rank{0};        ///< that stands for it
};

/// \param observer  has seen the whole of `program`, whose last step is a steady one.
[[nodiscard]] MemoryReport memory_report(const Experiment& experiment, const Strategy& strategy,
                                         const Program& program, const AllocatorObserver& observer,
                                         const ReportedClass& reported);
/// Of the first rank class.
[[nodiscard]] MemoryReport memory_report(const Experiment& experiment, const Strategy& strategy,
                                         const Program& program, const AllocatorObserver& observer);

/// Whether `a` is the worse of two ranks of one job: the one that does not fit, then the one that
/// is tight, then the one whose peak leaves less of its GPU, then the one with more host memory.
[[nodiscard]] bool is_worse(const MemoryReport& a, const MemoryReport& b);

/// The strategy of a program whose steps from kFirstSteps on are steady: at most its first step
/// overflows (A4.3), as an overflow changes no step but its own and the moments come with the first
/// update.
[[nodiscard]] Strategy steady_strategy(Strategy strategy);

/// What a build must know of the machine and of the checkpoint that is loaded.
void set_machine(const Experiment& experiment, BuildOptions& options);

/// The job whose memory `replayed_memory` tells: kFirstSteps and a steady step. One program, of the
/// worst rank.
[[nodiscard]] Program memory_program(const Experiment& experiment, const Strategy& strategy);

/// The memory of a job without time: the device is done with what it has been given before the
/// next request comes (E3 without the host's lead).
[[nodiscard]] MemoryReport replayed_memory(const Experiment& experiment, const Strategy& strategy);

/// What is held at the peak, in and outside the allocator.
[[nodiscard]] Bytes needed(const MemoryReport& memory);
/// What the GPU has beyond that; negative if it has less.
[[nodiscard]] Bytes headroom(const MemoryReport& memory);

[[nodiscard]] Verdict verdict_of(const MemoryReport& memory);

/// Sentences on the constants and simplifications above.
[[nodiscard]] std::vector<std::string> memory_assumptions(const Program& program);

}  // namespace zerosim
