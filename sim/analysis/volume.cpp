#include "sim/analysis/volume.h"

#include <cmath>
#include <vector>

#include "sim/base/text.h"

namespace zerosim {

namespace {

/// Passes over all parameters of FSDP (D2.11, D2.12, D3.10).
double fsdp_passes(const Strategy& strategy) {
  const auto micro_batches = static_cast<double>(strategy.grad_accum);
  const FsdpOptions& fsdp = strategy.fsdp;
  const double reductions = fsdp.no_sync ? 1 : micro_batches;
  switch (zero_stage_of(strategy)) {
    case 0:
      return 2 * reductions;  // all-reduces
    case 2:                   // version 2 frees after every backward
      return (fsdp.version == 2 ? micro_batches : reductions) + reductions;
    default:
      return 2 * micro_batches + reductions;
  }
}

std::string fsdp_reason(const Volume& volume, const Strategy& strategy, Bytes parameter_bytes) {
  const FsdpOptions& fsdp = strategy.fsdp;
  std::vector<std::string> reasons;
  if (is_hybrid(fsdp.sharding)) {
    Volume replicas;
    replicas.all_reduced = volume.all_reduced;
    reasons.push_back(
        format("{:.2f} Psi are all-reduces of sharded gradients over the replicas "
               "(D2.10)",
               replicas.in_units_of(parameter_bytes)));
  }
  if (zero_stage_of(strategy) == 3) {
    reasons.emplace_back("the root is gathered once a micro batch (D2.6)");
    if (strategy.checkpointing == ActivationCheckpointing::Full && fsdp.checkpoints_around_units) {
      reasons.emplace_back("recomputation around the units gathers them again (rule 68)");
    }
  }
  return reasons.empty() ? "" : ": " + join(reasons, "; ");
}

std::string zero12_reason(const Volume& volume, Bytes parameter_bytes) {
  const bool control_only = 2 * volume.all_reduced < volume.gathered;  // overflow flag, norm
  if (control_only) return "";
  Volume scattered = volume;
  scattered.reduced_once += volume.all_reduced;
  scattered.all_reduced = Bytes();
  return format(
      ": DeepSpeed all-reduces each gradient bucket by default (B3.6) and gathers the parameters "
      "after "
      "the step; with a true reduce-scatter it would be {:.2f} Psi",
      scattered.in_units_of(parameter_bytes));
}

std::string zero3_reason(const Volume& volume, const Strategy& strategy, Bytes parameter_bytes) {
  const auto micro_batches = static_cast<double>(strategy.grad_accum);
  Volume gathers;
  gathers.gathered = volume.gathered;
  const double gathered = gathers.in_units_of(parameter_bytes);
  std::string reason =
      format(": parameters are gathered {:.2f} times a micro batch where the paper has 2",
             gathered / micro_batches);
  if (gathered < 2 * micro_batches) {
    return reason + ", since some stay gathered between forward and backward (C4.7)";
  }
  if (recomputes_blocks(strategy.checkpointing)) {
    return reason + ", since recomputation gathers again (C12.1)";
  }
  return reason + ", persistent ones once more after each step (C8.5)";
}

}  // namespace

int zero_stage_of(const Strategy& strategy) {
  if (strategy.framework == Framework::DeepSpeed) return strategy.zero.stage;
  if (strategy.framework != Framework::Fsdp) return 0;
  switch (strategy.fsdp.sharding) {
    case FsdpSharding::NoShard:
      return 0;
    case FsdpSharding::ShardGradOp:
    case FsdpSharding::HybridShardZero2:
      return 2;
    case FsdpSharding::FullShard:
    case FsdpSharding::HybridShard:
      break;
  }
  return 3;
}

double paper_volume(const Strategy& strategy) {
  if (strategy.framework == Framework::Fsdp) return fsdp_passes(strategy);
  const auto micro_batches = static_cast<double>(strategy.grad_accum);
  switch (zero_stage_of(strategy)) {
    case 2:
      return micro_batches + 1;
    case 3:
      return 3 * micro_batches;
    default:
      return 2;
  }
}

std::optional<std::string> volume_note(const Program& program, const Strategy& strategy) {
  constexpr double kWorthTelling = 0.01;
  if (program.world_size < 2) return std::nullopt;
  const Volume volume = count_volume(program);
  const double sent = volume.in_units_of(program.parameter_bytes);
  const double paper = paper_volume(strategy);
  if (std::abs(sent - paper) <= kWorthTelling * paper) return std::nullopt;
  std::string note = format(
      "communication: {:.2f} Psi a step where the ZeRO paper counts {:.0f} Psi", sent, paper);
  if (strategy.framework == Framework::Fsdp) {
    return note + fsdp_reason(volume, strategy, program.parameter_bytes);
  }
  const int stage = zero_stage_of(strategy);
  if (stage == 1 || stage == 2) note += zero12_reason(volume, program.parameter_bytes);
  if (stage == 3) note += zero3_reason(volume, strategy, program.parameter_bytes);
  return note;
}

}  // namespace zerosim
