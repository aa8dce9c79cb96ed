/// \file
/// What holds of a RankProgram whatever rank runs it: 512 ranks share one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/costs.h"
#include "sim/program/program.h"

namespace zerosim::internal {

inline constexpr std::int32_t kNone = -1;

/// An operation before anything has happened.
struct PreparedOp {
  std::int32_t pending = 0;          ///< its issue, dependencies and predecessor
  std::int32_t successor = kNone;    ///< next on the stream
  std::int32_t leader = kNone;       ///< first of its coalesced calls; else itself
  std::int32_t next_member = kNone;  ///< next of the coalesced calls
  std::int32_t call = kNone;         ///< of a collective: which of its communicator's
  std::uint32_t first_dependent = 0;
};

/// The n-th collective on a communicator.
struct PreparedCall {
  std::int32_t first = kNone;  ///< the (first) operation
  Collective call;             ///< sizes summed over coalesced calls
};

struct PreparedProgram {
  const RankProgram* program = nullptr;
  std::size_t first_timed = 0;  ///< operations before it are of warm-up steps
  std::vector<PreparedOp> ops;
  std::vector<std::int32_t> dependents;  ///< pool: those of op i begin at ops[i].first_dependent
  std::vector<std::vector<PreparedCall>> calls;  ///< by communicator
  std::vector<bool> timed_kernels;               ///< by payload: not of warm-up steps

  /// Times of its kernels on one kind of GPU, by payload; null of warm-up steps.
  [[nodiscard]] std::vector<const KernelTime*> kernel_times(Costs& costs,
                                                            const std::string& gpu) const;
};

/// \throws SimulationError  for an operation of a step that the program does not have, and for a
///                          collective on another stream than its communicator's.
[[nodiscard]] PreparedProgram prepare(const Program& program, std::size_t index);

/// "operation 7 (kernel gemm, stream "compute", rule C4.3)".
[[nodiscard]] std::string describe(const RankProgram& program, std::int32_t op);

}  // namespace zerosim::internal
