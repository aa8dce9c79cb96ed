#include "sim/analysis/volume.h"

#include <cmath>

#include "sim/base/text.h"

namespace zerosim {

namespace {

int stage_of(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed ? strategy.zero.stage : 0;
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

double paper_volume(const Strategy& strategy) {
  const auto micro_batches = static_cast<double>(strategy.grad_accum);
  switch (stage_of(strategy)) {
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
  const int stage = stage_of(strategy);
  if (stage == 1 || stage == 2) note += zero12_reason(volume, program.parameter_bytes);
  if (stage == 3) note += zero3_reason(volume, strategy, program.parameter_bytes);
  return note;
}

}  // namespace zerosim
