/// \file
/// What differs between the FSDP of PyTorch's releases: one row each, no forks.
///
/// 1.13 was recorded (rules 63 to 71 of spec/deepspeed_recorded.md); 2.x is read in
/// torch/distributed/fsdp/_runtime_utils.py and _flat_param.py (spec D2).
#pragma once

#include <string>
#include <string_view>

#include "sim/strategy/strategy.h"

namespace zerosim {

struct FsdpRelease {
  std::string_view name;  ///< as `Strategy::torch_version`
  /// Each forward of the first iteration compares the order of units over the ranks (rule 71).
  bool checks_order = false;
  /// Forward prefetch reaches every unit; else only the first one after the root (rule 70).
  bool prefetches_every_forward = true;
  /// A unit that was prefetched goes through `_unshard` again, and with it through the limiter of
  /// `limit_all_gathers` (rule 69).
  bool unshards_prefetched_again = false;
  /// A unit counts as prefetched until it is freed; else until its next reshard.
  bool stays_prefetched_until_freed = false;
  /// Gradients go through F.pad even if nothing is to be padded: a copy.
  bool always_pads = false;
  /// A unit of frozen parameters is resharded when its backward ends; else when all ends.
  bool reshards_frozen_units = true;
  bool zeroes_gradients = false;   ///< zero_grad() fills with zeros; else it forgets
  bool limits_all_gathers = true;  ///< default of `limit_all_gathers`
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;  ///< default
  bool has_hybrid = true;               ///< HYBRID_SHARD and its ZeRO-2 variant
  bool has_original_parameters = true;  ///< `use_orig_params`
  bool has_fully_shard = true;
};

/// \param torch_version  as `parse_torch_version` returns it.
[[nodiscard]] const FsdpRelease& fsdp_release(std::string_view torch_version);

}  // namespace zerosim
