/// \file
/// Which ranks of a strategy hold most and least, where ranks differ (program/local_pieces.h).
///
/// At stages 1 and 2 a rank's buffer of kept gradients is as large as the parameters that touch its
/// partition, and is there from the first of them that is reduced: what counts is how much it is
/// and how early it comes, while activations are still there. A rank that comes later and keeps
/// less than another one is neither the one with most, nor, the other way round, the one with
/// least; of those that are left the programs are built and their allocations added up, in units of
/// 512 bytes. (Where the optimizer is offloaded the largest parameter of a rank takes the place of
/// their sum, as buffers are as large as it, one at a time.)
///
/// With FSDP it is the elements to update that differ, as moments do.
///
/// On an uneven cluster (cluster_ranks.h) the search is made among the ranks of each kind of GPU
/// and micro batch by themselves, as each kind runs a program of its own.
///
/// Not looked at: fragments of the caching allocator. `--fold exact` follows every class through
/// it.
#pragma once

#include <vector>

#include "sim/analysis/report.h"
#include "sim/base/ids.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

struct MemoryRanks {
  bool differ = false;  ///< if not, the ranks below are 0
  /// Of each kind, by their lowest ranks: the lowest of those whose peak is the largest.
  std::vector<Rank> most = {Rank(0)};
  Rank least{0};  ///< of all kinds: the lowest of those whose peak is the smallest
};

/// \throws ConfigError  as build_program.
[[nodiscard]] MemoryRanks memory_ranks(const Experiment& experiment, const Strategy& strategy);

}  // namespace zerosim
