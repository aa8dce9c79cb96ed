/// \file
/// From what a rank allocates to whether it fits on its GPU.
///
/// Not modelled: the caching allocator's fragmentation, host memory beyond what offload keeps there
/// (checkpoints while loading, data, the process itself).
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/units.h"
#include "sim/memory/memory_timeline.h"
#include "sim/model/operators.h"
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

/// Share of the capacity that must stay free for "fits". The caching allocator is not simulated,
/// and what it holds beyond what is allocated decides between fitting and not: PyTorch's own
/// figures in published reports of full GPUs lie some percent apart (E7.7).
inline constexpr double kTightHeadroom = 0.05;

/// The experiment's batch as `strategy` trains with it.
[[nodiscard]] BatchShape batch_of(const Experiment& experiment, const Strategy& strategy);

/// Communicators of more than one rank that `program` uses: NCCL makes one when first used.
[[nodiscard]] int communicators_in_use(const Program& program);

/// As the ZeRO paper counts (data/cases/README.md, `memory.model_states`), rounded to whole bytes:
/// on the device, so without what offload moves off it.
[[nodiscard]] Bytes paper_model_states_of(const Model& model, const Strategy& strategy,
                                          int world_size);

/// \param peak  of the program's first rank class.
[[nodiscard]] MemoryReport memory_report(const Experiment& experiment, const Strategy& strategy,
                                         const Program& program, const MemoryPeak& peak);

/// The same by replaying allocations in host order, without time.
[[nodiscard]] MemoryReport replayed_memory(const Experiment& experiment, const Strategy& strategy);

/// What is held at the peak, in and outside the allocator.
[[nodiscard]] Bytes needed(const MemoryReport& memory);

[[nodiscard]] Verdict verdict_of(const MemoryReport& memory);

/// Sentences on the constants and simplifications above.
[[nodiscard]] std::vector<std::string> memory_assumptions(const Program& program);

}  // namespace zerosim
