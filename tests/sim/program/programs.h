/// \file
/// Builds Programs for tests and reads their collectives back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/build.h"

namespace zerosim::test {

inline Strategy deepspeed(int stage) {
  Strategy strategy;
  strategy.name = "test";
  strategy.framework = Framework::DeepSpeed;
  strategy.zero.stage = stage;
  strategy.zero.overlap_comm = stage == 3;
  return strategy;
}

inline Program build(const Model& model, const Strategy& strategy, int world_size,
                     int first_step = 2, int steps = 1) {
  BatchShape batch;
  batch.micro_batch = strategy.micro_batch;
  batch.sequence = 16;
  return build_program(model, strategy, batch, {world_size, first_step, steps});
}

/// Collective operations of one phase, in order.
inline std::vector<Collective> collectives(const Program& program, Phase phase) {
  std::vector<Collective> found;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind == OpKind::Collective && op.phase == phase) {
      found.push_back(program.ranks[0].collectives[static_cast<std::size_t>(op.payload)]);
    }
  }
  return found;
}

/// "all_reduce 900" of each.
inline std::vector<std::string> summary(const std::vector<Collective>& collectives) {
  std::vector<std::string> lines;
  for (const Collective& collective : collectives) {
    std::string line(to_string(collective.kind));
    line += " " + std::to_string(collective.input_elements);
    if (collective.root >= 0) {
      line += " to " + std::to_string(collective.root);
    }
    lines.push_back(line);
  }
  return lines;
}

/// Volume in elements, ring factor left out: an all-reduce counts twice (B7).
inline std::int64_t volume(const Program& program) {
  std::int64_t total = 0;
  for (const Op& op : program.ranks[0].ops) {
    if (op.kind != OpKind::Collective) {
      continue;
    }
    const Collective& c = program.ranks[0].collectives[static_cast<std::size_t>(op.payload)];
    const std::int64_t size =
        c.kind == CollectiveKind::AllGather ? c.output_elements : c.input_elements;
    total += c.kind == CollectiveKind::AllReduce ? 2 * size : size;
  }
  return total;
}

}  // namespace zerosim::test
