// One strategy simulated and summarised.

#include "sim/analysis/report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/volume.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"
#include "sim/program/build.h"

namespace zerosim {

namespace {

constexpr Bytes kUnlimitedCapacity = Bytes(std::int64_t{1} << 60);

void append(std::vector<std::string>& sentences, const std::vector<std::string>& more) {
  sentences.insert(sentences.end(), more.begin(), more.end());
}

/// Whether the framework empties the device between two steps, so that a step does not depend on
/// the ones before it: DeepSpeed's throughput timer does (0.7).
bool steps_are_independent(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed && strategy.throughput_timer;
}

/// How many are timed.
int steps_to_steady(const Strategy& strategy) {
  // The host thread's lead over the device repeats from here on.
  constexpr int kUntilHostIsAhead = 3;
  // Blocks that other streams still use are missing in the cache that the warm-up leaves, so the
  // first timed step may call cudaMalloc (E7.8).
  constexpr int kUntilCacheIsFull = 2;
  if (!steps_are_independent(strategy)) return kUntilHostIsAhead;
  return strategy.zero.stage == 3 ? kUntilCacheIsFull : 1;
}

BuildOptions build_options(const Experiment& experiment, const Strategy& strategy,
                           int first_steps) {
  BuildOptions options;
  options.world_size = experiment.cluster.world_size();
  options.first_step = 0;
  options.routing = experiment.routing;
  set_machine(experiment, options);
  options.warm_up_steps = first_steps > 0 ? 0 : kFirstSteps;
  options.steps = first_steps > 0 ? first_steps : kFirstSteps + steps_to_steady(strategy);
  return options;
}

FlopsPerSecond peak_rate(const GpuSpec& gpu, Precision precision) {
  switch (precision) {
    case Precision::Fp16:
      return gpu.fp16;
    case Precision::Bf16:
      return gpu.bf16;
    case Precision::Fp32:
      break;
  }
  return gpu.fp32;  // PyTorch multiplies fp32 matrices without TF32 unless told to
}

/// FLOPs that the hardware does for one token, over those that the model needs.
///
/// Full checkpointing repeats the forward pass, a third of forward and backward: 4/3 (F5).
/// Selective repeats the two matrix products of attention, 4 h s a layer, which flash attention
/// does in any case.
double recomputation(const Model& model, const Strategy& strategy, const BatchShape& batch) {
  if (recomputes_blocks(strategy.checkpointing)) return 4.0 / 3.0;
  if (strategy.checkpointing == ActivationCheckpointing::None || batch.flash_attention) return 1;
  const ModelShape& shape = model.shape;
  const double repeated = 4.0 * static_cast<double>(shape.layers) *
                          static_cast<double>(shape.hidden) * static_cast<double>(batch.sequence);
  return 1 + repeated / model_flops_per_token(model, batch.sequence).count();
}

std::string host_memory_note(const Cluster& cluster) {
  const HostTimes times = default_host_times();
  return format(
      "passes over host memory (CPU Adam): {:.1f} % of {:g} GB/s a node ({}), shared evenly by its "
      "ranks; copies of pageable memory run at {:.0f} % of the rate of pinned ones",
      times.memory_efficiency * 100, cluster.node.host_memory_bandwidth.gb_per_second(),
      cluster.node.host_memory_source, times.pageable_copy * 100);
}

ThroughputReport throughput(const Experiment& experiment, const Strategy& strategy,
                            const BatchShape& batch, Seconds step,
                            std::vector<std::string>& assumptions) {
  ThroughputReport report;
  const auto samples = static_cast<double>(strategy.train_batch);
  const double gpus = experiment.cluster.world_size();
  report.samples_per_s = samples / step.count();
  report.tokens_per_s = report.samples_per_s * static_cast<double>(batch.sequence);
  report.tokens_per_s_per_gpu = report.tokens_per_s / gpus;
  const Flops per_token = model_flops_per_token(experiment.model, batch.sequence);
  const FlopsPerSecond rate(per_token.count() * report.tokens_per_s_per_gpu);
  report.tflops_per_gpu = rate.tflops();
  const GpuSpec& gpu = experiment.cluster.gpu();
  const FlopsPerSecond peak = peak_rate(gpu, strategy.precision);
  if (peak.per_second() > 0) {
    report.mfu = rate.per_second() / peak.per_second();
    report.hfu = report.mfu * recomputation(experiment.model, strategy, batch);
    assumptions.push_back(format("MFU is counted against {:.1f} TFLOP/s of {} in {}, dense ({})",
                                 peak.tflops(), gpu.name, to_string(strategy.precision),
                                 gpu.source));
  } else {
    assumptions.push_back(format("{} has no published rate in {}: MFU and HFU are left at 0",
                                 gpu.name, to_string(strategy.precision)));
  }
  return report;
}

/// The last step on a GPU whose memory has no end.
Seconds step_without_flushes(const Experiment& experiment, const Program& program, Engine& engine) {
  AllocatorSetup setup = allocator_setup(experiment, program);
  setup.allocator.capacity = kUnlimitedCapacity;
  AllocatorObserver observer(program, setup);
  return split_step(program, engine.run(program, &observer)).step;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Fits:
      return "fits";
    case Verdict::Tight:
      return "tight";
    case Verdict::DoesNotFit:
      break;
  }
  return "does_not_fit";
}

StrategyReport simulate_strategy(const Experiment& experiment, const Strategy& strategy,
                                 Engine& engine, Program* program, Timeline* timeline,
                                 int first_steps) {
  const BatchShape batch = batch_of(experiment, strategy);
  Program built =
      build_program(experiment.model, first_steps > 0 ? strategy : steady_strategy(strategy), batch,
                    build_options(experiment, strategy, first_steps));
  AllocatorObserver observer(built, allocator_setup(experiment, built));
  Timeline ran = engine.run(built, &observer);

  StrategyReport report;
  report.name = strategy.name;
  report.stage = zero_stage_of(strategy);
  append(report.assumptions, experiment.model.assumptions);
  append(report.assumptions, experiment.cluster.assumptions);
  append(report.assumptions, strategy.assumptions);
  append(report.assumptions, built.assumptions);
  report.warnings = strategy.warnings;
  report.memory = memory_report(experiment, strategy, built, observer);
  report.verdict = verdict_of(report.memory);
  append(report.assumptions, memory_assumptions(built));
  if (uses_host_memory(built)) report.assumptions.push_back(host_memory_note(experiment.cluster));
  report.time = split_step(built, ran);
  if (report.memory.flushes > 0) {
    report.memory.flush_time = report.time.step - step_without_flushes(experiment, built, engine);
  }
  report.communication = count_communication(built, experiment.cluster);
  report.communication.paper_psi = built.world_size > 1 ? paper_volume(strategy) : 0;
  report.throughput = throughput(experiment, strategy, batch, report.time.step, report.assumptions);
  if (auto note = volume_note(built, strategy)) report.assumptions.push_back(*std::move(note));

  if (program != nullptr) *program = std::move(built);
  if (timeline != nullptr) *timeline = std::move(ran);
  return report;
}

}  // namespace zerosim
