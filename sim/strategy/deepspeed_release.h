/// \file
/// What differs between the DeepSpeed releases that are simulated: one row each, no forks.
///
/// Seen in the recordings (`ds_` is v0.19.5, `ds014_` v0.14.5) and read in their sources; rules are
/// those of spec/deepspeed_recorded.md. Of 0.3 to 0.5, of 2021, nothing is recorded and their
/// sources were not at hand: they are 0.14 but for `moves_lists`, as partition_parameters.py and
/// stage3.py of that time are remembered.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zerosim {

struct DeepSpeedRelease {
  std::string_view name;  ///< "0.14"
  /// Stage 3 gathers and reduces each parameter by itself, in lists of one tensor a rank, and
  /// synchronises the device before each gather: until 0.5, `_all_gather_base` came with 0.6. See
  /// zero3_gathers.h and zero3_gradients.h.
  bool moves_lists = false;
  /// Default of `bf16.check_grad_overflow`: stages 1 and 2 then look for infinities under bf16 too
  /// (rule 16).
  bool bf16_checks_overflow = true;
  /// Default of `gradient_clipping`; not 0: stage 0 in fp32 has a norm to sum (rules of stage 0).
  double gradient_clipping = 1.0;
  bool pins_offloaded_memory = true;  ///< default of `pin_memory` (A3)
  /// Stages 1 and 2 flatten the model on the GPU if there is room (B2.5); else always through the
  /// host.
  bool flattens_on_device = true;
  /// Default classes of `leaf_module` (rule 89): blocks of Hugging Face whose experts differ from
  /// rank to rank. Empty: leaf modules are known only by a call.
  std::vector<std::string> leaf_module_classes;
  /// Stage 3's linear function gives the weight's gradient before the bias' (seen in the order of
  /// its buckets); else PyTorch's order, the bias first.
  bool linear_hands_weight_first = true;
  /// \name Stage 3's coordinator
  ///@{
  /// Its count and its queue begin anew at the start of each forward; else at the end of each
  /// backward, before what is left over is released: later steps count from below 0 (rules 22, 30).
  bool resets_before_forward = true;
  bool verifies_list_lengths = true;  ///< before the lists of a trace (rule 22)
  /// Modules without a post-backward hook are released at the end of the backward; else in the
  /// step (rule 31).
  bool releases_leftovers = true;
  /// What was fetched ahead for a trace that is not followed is released; else training stops when
  /// the coordinator begins anew: "still have inflight params" (rule 87).
  bool releases_unused_prefetches = true;
  /// Frozen parameters that a recomputation fetches stay until a module's backward ends (rule 80).
  bool holds_recomputed_frozen = true;
  ///@}
  /// MiCS with a shard below the world size hangs (rule 59).
  bool mics_deadlocks = false;
};

/// Patch releases are their minor's: "0.19.6".
/// \param flag  what gave the version, for the message
/// \throws ConfigError  naming the known releases.
[[nodiscard]] const DeepSpeedRelease& deepspeed_release(
    std::string_view version, std::string_view flag = "--deepspeed-version");

}  // namespace zerosim
