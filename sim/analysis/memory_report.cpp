#include "sim/analysis/memory_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "sim/analysis/cluster_ranks.h"
#include "sim/analysis/rank_memory.h"
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

/// Weights and moments in 16 bits, without an fp32 copy: PyTorch's own wrappers leave a model in
/// the type that it has.
bool trains_in_low_precision(const Strategy& strategy) {
  switch (strategy.framework) {
    case Framework::Single:
    case Framework::Ddp:
      return strategy.ddp.parameter_dtype != Dtype::F32 && !is_megatron(strategy);
    case Framework::Fsdp:
      return strategy.fsdp.parameter_dtype != Dtype::F32;
    case Framework::DeepSpeed:
      break;
  }
  return false;
}

bool offloads_parameters(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed && strategy.zero.stage == 3 &&
         strategy.zero.offload_param.device != OffloadDevice::None;
}

/// Offload takes the optimizer's states, and the gradients as soon as they are reduced: at stage 1
/// they are first accumulated on the device (B6).
StateBytes states_on_device(const Strategy& strategy) {
  StateBytes states = state_bytes(strategy.precision);
  if (trains_in_low_precision(strategy)) states = {2, 2, 0, 4};
  if (is_megatron(strategy)) states.gradients = dtype_bytes(strategy.grad_accum_dtype);
  if (strategy.optimizer == OptimizerKind::Adam8bit) states.moments = 2;
  if (offloads_parameters(strategy)) states.parameters = 0;
  if (strategy.framework == Framework::Fsdp && strategy.fsdp.cpu_offload) {
    return {0, 0, 0, 0};
  }
  if (offloads_optimizer(strategy)) {
    states.master = states.moments = 0;
    if (strategy.zero.stage > 1) states.gradients = 0;
  }
  return states;
}

void add_steady_classes(const AllocatorObserver& observer, int rank_class, MemoryReport& report) {
  const AllocatorPart steady = observer.part(rank_class, observer.parts() - 1);
  const MemoryByClass& classes = steady.peak_allocated.by_class;
  report.parameters = of_class(classes, MemoryClass::Parameters);
  report.gradients = of_class(classes, MemoryClass::Gradients);
  report.optimizer_states = of_class(classes, MemoryClass::OptimizerStates);
  report.activations =
      of_class(classes, MemoryClass::Activations) + of_class(classes, MemoryClass::Logits);
  report.temporary_buffers = of_class(classes, MemoryClass::TemporaryBuffers);
  report.live_parameters = of_class(classes, MemoryClass::LiveParameters);
  report.logits = of_class(steady.class_peaks, MemoryClass::Logits);
  report.steady_allocated = steady.peak_allocated.allocated;
  for (const Bytes bytes : observer.current(rank_class)) report.after_step += bytes;
}

void add_peaks(const AllocatorObserver& observer, int rank_class, MemoryReport& report) {
  const AllocatorMoment allocated = observer.peak_allocated(rank_class);
  const AllocatorMoment reserved = observer.peak_reserved(rank_class);
  report.peak_allocated = allocated.allocated;
  report.peak_part = job_part(allocated.phase, allocated.step);
  report.peak_phase = std::string(to_string(allocated.phase));
  report.peak_op = allocated.op;
  report.peak_active = observer.peak_active(rank_class);
  report.peak_reserved = reserved.reserved;
  report.fragmentation = reserved.fragmentation();
}

void add_flushes(const AllocatorObserver& observer, int rank_class, MemoryReport& report) {
  const std::size_t steady = observer.parts() - 1;
  for (std::size_t i = 0; i < steady; ++i)
    report.early_flushes += observer.part(rank_class, i).flushes;
  const AllocatorPart last = observer.part(rank_class, steady);
  report.flushes = last.flushes;
  if (last.flushes > 0) report.flush_time = last.driver_time;
  if (const std::optional<AllocatorFailure>& failure = observer.out_of_memory(rank_class)) {
    const AllocatorMoment& moment = failure->moment;
    report.failure = {failure->error.request,
                      moment.allocated,
                      moment.reserved,
                      failure->error.free,
                      job_part(moment.phase, moment.step),
                      std::string(to_string(moment.phase)),
                      moment.op};
  }
}

}  // namespace

BatchShape batch_of(const Experiment& experiment, const Strategy& strategy) {
  return trained_batch(experiment.batch, strategy);
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

AllocatorSetup allocator_setup(const Experiment& experiment, const Program& program) {
  AllocatorSetup setup;
  setup.allocator.capacity =
      gpu_memory_of(experiment.cluster, program.ranks.front().representative);
  setup.allocator.other = context_of(program);
  setup.allocator.conf = experiment.alloc_conf;
  setup.ranks_of_a_node = std::min(experiment.cluster.gpus_per_node, program.world_size);
  return setup;
}

MemoryReport memory_report(const Experiment& experiment, const Strategy& strategy,
                           const Program& program, const AllocatorObserver& observer,
                           const ReportedClass& reported) {
  MemoryReport report;
  report.model_states =
      paper_model_states_of(experiment.model, strategy, experiment.cluster.world_size());
  add_steady_classes(observer, reported.rank_class, report);
  add_peaks(observer, reported.rank_class, report);
  add_flushes(observer, reported.rank_class, report);
  report.context = context_of(program);
  report.capacity = gpu_memory_of(experiment.cluster, reported.rank);
  report.host = observer.ledger().peak(reported.rank_class).host;
  report.rank = reported.rank.value();
  return report;
}

MemoryReport memory_report(const Experiment& experiment, const Strategy& strategy,
                           const Program& program, const AllocatorObserver& observer) {
  return memory_report(experiment, strategy, program, observer,
                       {0, program.ranks.front().representative});
}

bool is_worse(const MemoryReport& a, const MemoryReport& b) {
  const auto badness = [](const MemoryReport& memory) {
    return std::tuple(static_cast<int>(verdict_of(memory)),
                      memory.peak_allocated + memory.context - memory.capacity, memory.host);
  };
  return badness(a) > badness(b);
}

std::string job_part(Phase phase, int step) {
  if (phase == Phase::Init) return "initialisation";
  if (step == 0) return "first step";
  return step < kFirstSteps ? "second step" : "steady step";
}

void set_machine(const Experiment& experiment, BuildOptions& options) {
  // Of NCCL nothing is there while a model is loaded.
  options.device_memory = experiment.cluster.gpu_memory() - kContextMemory.cuda;
  options.load_dtype = experiment.load_dtype;
  options.variants = rank_variants(experiment.cluster, kContextMemory.cuda);
}

Strategy steady_strategy(Strategy strategy) {
  strategy.overflow_steps = std::min(strategy.overflow_steps, kFirstSteps - 1);
  return strategy;
}

namespace {

/// Leaves the program whose rank is the worst.
void keep_worst(const Experiment& experiment, const Strategy& strategy, Program& program) {
  if (program.ranks.size() == 1) return;
  std::vector<RankProgram> ranks = std::exchange(program.ranks, {});
  program.runs.clear();
  Program worst;
  std::optional<MemoryReport> most;
  for (RankProgram& rank : ranks) {
    Program one = program;
    one.ranks.push_back(std::move(rank));
    AllocatorObserver observer(one, allocator_setup(experiment, one));
    replay(one, observer);
    const MemoryReport memory = memory_report(experiment, strategy, one, observer);
    if (!most || is_worse(memory, *most)) {
      most = memory;
      worst = std::move(one);
    }
  }
  program = std::move(worst);
}

}  // namespace

Program memory_program(const Experiment& experiment, const Strategy& strategy) {
  BuildOptions options;
  options.world_size = experiment.cluster.world_size();
  options.first_step = 0;
  options.steps = kFirstSteps + 1;
  options.routing = experiment.routing;
  set_machine(experiment, options);
  const MemoryRanks ranks = memory_ranks(experiment, strategy);
  if (ranks.differ) {
    options.rank = ranks.most.front();
    options.variant_ranks = ranks.most;
  }
  if (options.variants.empty()) options.pieces = LocalPieces::One;
  Program program = build_program(experiment.model, steady_strategy(strategy),
                                  batch_of(experiment, strategy), options);
  keep_worst(experiment, strategy, program);
  if (ranks.differ) {
    program.assumptions.push_back(
        format("memory is that of rank {}: of ranks that hold pieces of other parameters the one "
               "with most",
               program.ranks.front().representative.value()));
  }
  return program;
}

MemoryReport replayed_memory(const Experiment& experiment, const Strategy& strategy) {
  const Program program = memory_program(experiment, strategy);
  AllocatorObserver observer(program, allocator_setup(experiment, program));
  replay(program, observer);
  return memory_report(experiment, strategy, program, observer);
}

Bytes needed(const MemoryReport& memory) {
  return memory.peak_reserved + memory.context;
}

Bytes headroom(const MemoryReport& memory) {
  return memory.capacity - needed(memory);
}

Verdict verdict_of(const MemoryReport& memory) {
  if (memory.failure) return Verdict::DoesNotFit;
  return memory.flushes + memory.early_flushes > 0 ? Verdict::Tight : Verdict::Fits;
}

std::vector<std::string> memory_assumptions(const Program& program) {
  const int communicators = communicators_in_use(program);
  std::vector<std::string> sentences = {
      format("outside the allocator: {:.2f} GB of CUDA context and {} x {:.2f} GB of NCCL buffers, "
             "typical values (E1)",
             kContextMemory.cuda.gb(), communicators, kContextMemory.nccl_communicator.gb()),
      "a strategy is called tight if PyTorch's allocator has to flush its cache to go on (E7.9)",
  };
  sentences.emplace_back(
      "host memory counts the checkpoint as it is loaded, a copy for each rank (one a node inside "
      "zero.Init), and what offload keeps; page-locked buffers take the next power of two bytes, "
      "as PyTorch's host allocator rounds (E6)");
  return sentences;
}

}  // namespace zerosim
