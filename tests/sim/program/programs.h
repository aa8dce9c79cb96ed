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

inline const RankProgram& rank_of(const Program& program) {
  return program.ranks.front();
}

inline std::size_t payload(const Op& op) {
  return static_cast<std::size_t>(op.payload);
}

/// "master_weights 24" of each buffer at `place`, in order of allocation.
inline std::vector<std::string> buffers_at(const Program& program, MemoryPlace place) {
  std::vector<std::string> lines;
  for (const Buffer& buffer : rank_of(program).buffers) {
    if (buffer.place == place) {
      lines.push_back(std::string(buffer.owner) + " " + std::to_string(buffer.bytes.count()));
    }
  }
  return lines;
}

/// What happens under `rule` in one micro batch, in order: "up 20", "down 16", kernels, passes,
/// "wait" for a host wait.
inline std::vector<std::string> events(const Program& program, std::string_view rule,
                                       int micro_step = 0, StreamId* stream = nullptr) {
  const RankProgram& rank = rank_of(program);
  std::vector<std::string> lines;
  for (const Op& op : rank.ops) {
    if (op.rule != rule || op.micro_step != micro_step) {
      continue;
    }
    if (stream != nullptr && op.stream.valid()) {
      *stream = op.stream;
    }
    if (op.kind == OpKind::Copy) {
      const Copy& copy = rank.copies[payload(op)];
      const bool up = copy.direction == Copy::Direction::HostToDevice;
      lines.push_back((up ? "up " : "down ") + std::to_string(copy.bytes.count()));
    } else if (op.kind == OpKind::Kernel) {
      const Kernel& kernel = rank.kernels[payload(op)];
      lines.push_back(std::string(kernel.name) + " " + std::to_string(kernel.bytes.count()));
    } else if (op.kind == OpKind::Host && op.payload >= 0) {
      const HostPass& pass = rank.host_passes[payload(op)];
      lines.push_back(std::string(pass.name) + " " + std::to_string(pass.bytes.count()));
    } else if (op.kind == OpKind::HostWait) {
      lines.emplace_back("wait");
    }
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
