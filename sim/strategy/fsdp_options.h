/// \file
/// PyTorch FSDP by name, and what its options have in common wherever they come from.
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/strategy.h"

namespace zerosim::internal {

/// Names of strategies: "fsdp_full", "fsdp_grad_op", "fsdp_no_shard", "hsdp", "hsdp_grad_op",
/// "fsdp2", "fsdp2_grad_op", "fsdp2_hsdp".
[[nodiscard]] std::vector<std::string> fsdp_strategy_names();
/// Whether it is one of those, or "fsdp", which is "fsdp_full".
[[nodiscard]] bool is_fsdp_strategy(const std::string& name);

/// Options of a named strategy: PyTorch's defaults (D2.2), a unit for each block.
/// Precision, accumulation and the number of GPUs are set already.
void apply_fsdp_name(Strategy& strategy, const std::string& name, const TrainingFlags& flags,
                     std::vector<std::string>& assumptions);

/// Types (D2.13), no_sync and the shard group; precision and accumulation are set already.
void complete_fsdp(Strategy& strategy, const TrainingFlags& flags,
                   std::vector<std::string>& assumptions);

}  // namespace zerosim::internal
