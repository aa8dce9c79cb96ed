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

void append(std::vector<std::string>& sentences, const std::vector<std::string>& more) {
  sentences.insert(sentences.end(), more.begin(), more.end());
}

/// Whether the framework empties the device between two steps, so that a step does not depend on
/// the ones before it: DeepSpeed's throughput timer does (0.7).
bool steps_are_independent(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed && strategy.throughput_timer;
}

int steps_to_steady(const Strategy& strategy) {
  constexpr int kUntilHostIsAhead =
      3;  // the host thread's lead over the device repeats from here on
  return steps_are_independent(strategy) ? 1 : kUntilHostIsAhead;
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
                                 int first_step, int steps) {
  const BatchShape batch = batch_of(experiment, strategy);
  Program built =
      build_program(experiment.model, strategy, batch,
                    {experiment.cluster.world_size(), first_step,
                     steps > 0 ? steps : steps_to_steady(strategy), experiment.routing});
  MemoryLedger ledger(built);
  Timeline ran = engine.run(built, &ledger);

  StrategyReport report;
  report.name = strategy.name;
  report.stage = zero_stage_of(strategy);
  append(report.assumptions, experiment.model.assumptions);
  append(report.assumptions, experiment.cluster.assumptions);
  append(report.assumptions, strategy.assumptions);
  append(report.assumptions, built.assumptions);
  report.warnings = strategy.warnings;
  report.memory = memory_report(experiment, strategy, built, ledger.peak(0));
  report.verdict = verdict_of(report.memory);
  append(report.assumptions, memory_assumptions(built));
  if (uses_host_memory(built)) report.assumptions.push_back(host_memory_note(experiment.cluster));
  report.time = split_step(built, ran);
  report.communication = count_communication(built, experiment.cluster);
  report.communication.paper_psi = built.world_size > 1 ? paper_volume(strategy) : 0;
  report.throughput = throughput(experiment, strategy, batch, report.time.step, report.assumptions);
  if (auto note = volume_note(built, strategy)) report.assumptions.push_back(*std::move(note));

  if (program != nullptr) *program = std::move(built);
  if (timeline != nullptr) *timeline = std::move(ran);
  return report;
}

}  // namespace zerosim
