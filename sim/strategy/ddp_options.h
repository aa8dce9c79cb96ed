/// \file
/// DistributedDataParallel's arguments as flags and files give them, and what follows (spec D1).
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/strategy.h"

namespace zerosim::internal {

/// A size that the user has set holds for all buckets in PyTorch 2; in 1.13 the first one's limit
/// stays 1 MiB (D1.3).
/// \param torch_version  "1.13" or "2"
void set_bucket_cap(DdpOptions& options, double mib, const std::string& torch_version);

/// What the flags say of PyTorch's version, of DDP and of the type of weights, into a strategy of
/// PyTorch alone whose framework, precision and accumulation have been set. Each default is a
/// sentence in `assumptions`.
/// \throws ConfigError  if the weights have a 16-bit type other than the one computed in.
void apply_ddp_flags(Strategy& strategy, const TrainingFlags& flags,
                     std::vector<std::string>& assumptions);

}  // namespace zerosim::internal
