#include "sim/analysis/memory_report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/analysis/volume.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/memory/model_states.h"
#include "sim/program/build.h"
#include "sim/program/optimizer_offload.h"

namespace zerosim {

namespace {

Bytes of_class(const MemoryByClass& memory, MemoryClass memory_class) {
  return memory[static_cast<std::size_t>(memory_class)];
}

const Sharding& sharding_of(const Strategy& strategy) {
  const int stage = zero_stage_of(strategy);
  const std::string name = stage == 0 ? "ddp" : "zero" + std::to_string(stage);
  const std::vector<Sharding>& all = shardings();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Sharding& s) { return s.strategy == name; });
  ZS_CHECK(found != all.end(), "every stage has its row");
  return *found;
}

Bytes context_of(const Program& program) {
  return kContextMemory.cuda + kContextMemory.nccl_communicator * communicators_in_use(program);
}

/// Offload takes the optimizer's states, and the gradients as soon as they are reduced: at stage 1
/// they are first accumulated on the device (B6).
StateBytes states_on_device(const Strategy& strategy) {
  StateBytes states = state_bytes(strategy.precision);
  if (strategy.framework == Framework::Fsdp && strategy.fsdp.cpu_offload) {
    return {0, 0, 0, 0};
  }
  if (offloads_optimizer(strategy)) {
    states.master = states.moments = 0;
    if (strategy.zero.stage > 1) states.gradients = 0;
  }
  return states;
}

bool keeps_host_buffers(const Program& program) {
  const std::vector<Buffer>& buffers = program.ranks.front().buffers;
  return std::any_of(buffers.begin(), buffers.end(),
                     [](const Buffer& buffer) { return buffer.place != MemoryPlace::Device; });
}

}  // namespace

BatchShape batch_of(const Experiment& experiment, const Strategy& strategy) {
  BatchShape batch = experiment.batch;
  batch.micro_batch = strategy.micro_batch;
  batch.compute = model_dtype(strategy.precision);
  return batch;
}

int communicators_in_use(const Program& program) {
  std::set<GroupId> used;
  for (const RankProgram& rank : program.ranks) {
    for (const Collective& collective : rank.collectives) {
      if (program.groups[collective.group.index()].size > 1) used.insert(collective.group);
    }
  }
  return static_cast<int>(used.size());
}

Bytes paper_model_states_of(const Model& model, const Strategy& strategy, int world_size) {
  if (strategy.framework == Framework::Fsdp && is_hybrid(strategy.fsdp.sharding)) {
    world_size = static_cast<int>(strategy.fsdp.shard_group);  // hybrid: D2.10
  }
  // Frozen parameters have weights, but neither gradients nor optimizer states.
  const StateBytes states = states_on_device(strategy);
  const StateBytes weights{states.parameters, 0, 0, 0};
  const StateBytes trained{0, states.gradients, states.master, states.moments};
  const Sharding& sharding = sharding_of(strategy);
  const double bytes = paper_model_states(static_cast<double>(parameter_count(model)), sharding,
                                          world_size, weights) +
                       paper_model_states(static_cast<double>(trainable_parameter_count(model)),
                                          sharding, world_size, trained);
  return Bytes(std::llround(bytes));
}

MemoryReport memory_report(const Experiment& experiment, const Strategy& strategy,
                           const Program& program, const MemoryPeak& peak) {
  const MemoryByClass& classes = peak.by_class;
  MemoryReport report;
  report.model_states =
      paper_model_states_of(experiment.model, strategy, experiment.cluster.world_size());
  report.parameters = of_class(classes, MemoryClass::Parameters);
  report.gradients = of_class(classes, MemoryClass::Gradients);
  report.optimizer_states = of_class(classes, MemoryClass::OptimizerStates);
  report.activations =
      of_class(classes, MemoryClass::Activations) + of_class(classes, MemoryClass::Logits);
  report.temporary_buffers = of_class(classes, MemoryClass::TemporaryBuffers);
  report.live_parameters = of_class(classes, MemoryClass::LiveParameters);
  report.logits = of_class(peak.class_peaks, MemoryClass::Logits);
  report.context = context_of(program);
  report.peak_allocated = peak.allocated;
  report.peak_reserved = peak.allocated + report.fragmentation;
  report.peak_phase = std::string(to_string(peak.phase));
  report.peak_op = peak.op;
  report.capacity = experiment.cluster.gpu_memory();
  report.host = peak.host * std::min(experiment.cluster.gpus_per_node, program.world_size);
  report.rank = program.ranks.front().representative.value();
  return report;
}

MemoryReport replayed_memory(const Experiment& experiment, const Strategy& strategy) {
  BuildOptions options;
  options.world_size = experiment.cluster.world_size();
  options.routing = experiment.routing;
  const Program program =
      build_program(experiment.model, strategy, batch_of(experiment, strategy), options);
  return memory_report(experiment, strategy, program, replay_memory(program));
}

Bytes needed(const MemoryReport& memory) {
  return memory.peak_reserved + memory.context;
}

Verdict verdict_of(const MemoryReport& memory) {
  const auto used = static_cast<double>(needed(memory).count());
  const auto capacity = static_cast<double>(memory.capacity.count());
  if (used > capacity) return Verdict::DoesNotFit;
  return used > (1 - kTightHeadroom) * capacity ? Verdict::Tight : Verdict::Fits;
}

std::vector<std::string> memory_assumptions(const Program& program) {
  const int communicators = communicators_in_use(program);
  std::vector<std::string> sentences = {
      format("outside the allocator: {:.2f} GB of CUDA context and {} x {:.2f} GB of NCCL buffers, "
             "typical values (E1)",
             kContextMemory.cuda.gb(), communicators, kContextMemory.nccl_communicator.gb()),
      "the caching allocator is not simulated: reserved memory is taken as what is allocated",
      format("a strategy is called tight if less than {:.0f} % of the GPU's memory stays free, as "
             "fragmentation may take that",
             kTightHeadroom * 100),
  };
  if (keeps_host_buffers(program)) {
    sentences.emplace_back(
        "host memory counts what offload keeps there; page-locked buffers take the next power of "
        "two bytes, as PyTorch's host allocator rounds (E6)");
  }
  return sentences;
}

}  // namespace zerosim
