// One strategy simulated and summarised.

#include "sim/analysis/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "sim/analysis/calibration_notes.h"
#include "sim/analysis/cluster_ranks.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/prepare.h"
#include "sim/analysis/volume.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/calibrated_host.h"
#include "sim/engine/engine.h"
#include "sim/engine/kernel_efficiency.h"
#include "topology/rank_figures.h"

namespace zerosim {

namespace {

constexpr Bytes kUnlimitedCapacity = Bytes(std::int64_t{1} << 60);

void append(std::vector<std::string>& sentences, const std::vector<std::string>& more) {
  sentences.insert(sentences.end(), more.begin(), more.end());
}

/// FLOPs that the hardware does for one token, over those that the model needs.
///
/// Full checkpointing repeats the forward pass, a third of forward and backward: 4/3 (F5).
/// Selective repeats the two matrix products of attention, 4 h s a layer, which flash attention
/// does in any case.
double recomputation(const Model& model, const Strategy& strategy, const BatchShape& batch) {
  if (recomputes_blocks(strategy.checkpointing)) return 1 + strategy.checkpointed_share / 3;
  if (strategy.checkpointing == ActivationCheckpointing::None || batch.flash_attention) return 1;
  const ModelShape& shape = model.shape;
  const double repeated = 4.0 * static_cast<double>(shape.layers) *
                          static_cast<double>(shape.hidden) * static_cast<double>(batch.sequence);
  return 1 + repeated / model_flops_per_token(model, batch.sequence).count();
}

/// "8 threads (OMP_NUM_THREADS)"
std::string host_threads_in_words(const Experiment& experiment) {
  if (experiment.host_threads > 0) return format("{} (OMP_NUM_THREADS)", experiment.host_threads);
  const bool known = experiment.cluster.node.host_cores > 0;
  return format("{}, since OMP_NUM_THREADS is not given (torchrun then sets 1)",
                known ? "its share of the cores" : "as many as it takes");
}

std::string host_memory_note(const Experiment& experiment) {
  const HostTimes times = default_host_times();
  const NodeTemplate& node = experiment.cluster.node;
  return format(
      "passes over host memory (CPU Adam): {:.1f} % of {:g} GB/s a node ({}), shared evenly by its "
      "ranks, and {:g} GB/s a thread; threads of a rank: {}; fresh pages come at {:g} GB/s; copies "
      "of pageable memory run at {:.0f} % of the rate of pinned ones",
      times.memory_efficiency * 100, node.host_memory_bandwidth.gb_per_second(),
      node.host_memory_source, times.thread_bandwidth.gb_per_second(),
      host_threads_in_words(experiment), times.first_touch.gb_per_second(),
      times.pageable_copy * 100);
}

/// "A100-SXM4-80", or "12 x A100-SXM4-80 and 4 x H100-SXM".
std::string gpus_in_words(const Cluster& cluster) {
  std::map<std::string, int> counts;
  for (const GpuRun& run : gpu_runs(cluster)) counts[run.kind] += run.count;
  if (counts.size() == 1) return counts.begin()->first;
  std::vector<std::string> words;
  words.reserve(counts.size());
  for (const auto& [kind, count] : counts) words.push_back(format("{} x {}", count, kind));
  return "the mean of " + join(words, " and ");
}

ThroughputReport throughput(const Experiment& experiment, const Strategy& strategy,
                            const BatchShape& batch, Seconds step,
                            std::vector<std::string>& assumptions) {
  const Cluster& cluster = experiment.cluster;
  ThroughputReport report;
  const auto samples = static_cast<double>(samples_of_step(cluster, strategy));
  const double gpus = cluster.world_size();
  report.samples_per_s = samples / step.count();
  report.tokens_per_s = report.samples_per_s * static_cast<double>(batch.sequence);
  report.tokens_per_s_per_gpu = report.tokens_per_s / gpus;
  const Flops per_token = model_flops_per_token(experiment.model, batch.sequence);
  const FlopsPerSecond rate(per_token.count() * report.tokens_per_s_per_gpu);
  report.tflops_per_gpu = rate.tflops();
  const FlopsPerSecond peak = mean_peak_rate(cluster, strategy.precision);
  if (peak.per_second() > 0) {
    report.mfu = rate.per_second() / peak.per_second();
    report.hfu = report.mfu * recomputation(experiment.model, strategy, batch);
    assumptions.push_back(format("MFU is counted against {:.1f} TFLOP/s of {} in {}, dense ({})",
                                 peak.tflops(), gpus_in_words(cluster),
                                 to_string(strategy.precision), cluster.gpu().source));
  } else {
    assumptions.push_back(format("{} has no published rate in {}: MFU and HFU are left at 0",
                                 gpus_in_words(cluster), to_string(strategy.precision)));
  }
  return report;
}

// ---- folding -----------------------------------------------------------------------------------

FoldingReport folding_report(const Experiment& experiment, const PreparedStrategy& prepared) {
  FoldingReport report;
  report.mode = prepared.mode;
  report.ranks = experiment.cluster.world_size();
  report.classes = static_cast<int>(prepared.folding.ranks.size());
  report.programs = static_cast<int>(prepared.program.ranks.size());
  report.links = static_cast<int>(prepared.folding.links.size());
  return report;
}

std::string unfolded_note(const Cluster& cluster, const SimulationOptions& options) {
  const char* why = options.collectives == CollectiveForm::Stepped ? "collectives go step by step"
                    : cluster.fabric.hashed()                      ? "flows are hashed"
                                                                   : "ranks jitter independently";
  return format("every rank is simulated (--fold off), as {}", why);
}

constexpr const char* kSteppedNote =
    "rings go step by step, each rank's sends by themselves (--collectives stepped); trees, NVLS "
    "and all-to-alls stay fluid";

void tell(const SimulationOptions& options, const Strategy& strategy,
          const PreparedStrategy& prepared, const std::string& more) {
  constexpr std::size_t kMoreThanAMoment = 16;
  if (options.progress && prepared.folding.ranks.size() > kMoreThanAMoment) {
    options.progress(
        format("{}: {} rank classes{}", strategy.name, prepared.folding.ranks.size(), more));
  }
}

// ---- memory ------------------------------------------------------------------------------------

std::vector<ObservedClass> observed_classes(const Experiment& experiment, const Folding& folding) {
  std::vector<ObservedClass> classes;
  for (const RankClass& rank : folding.ranks) {
    const std::string& kind = folding.gpus[static_cast<std::size_t>(rank.gpu)];
    classes.push_back({rank.program, gpu_memory_of(experiment.cluster, kind)});
  }
  return classes;
}

/// Whether the rank whose memory its program has is one of the class.
bool has_own_memory(const PreparedStrategy& prepared, std::size_t rank_class) {
  const RankClass& rank = prepared.folding.ranks[rank_class];
  const Rank own = prepared.program.ranks[static_cast<std::size_t>(rank.program)].representative;
  return class_of(prepared.folding, own.value()) == static_cast<int>(rank_class);
}

/// The rank that a class is reported as: that of its program where it is one of the class, as its
/// memory is; else the lowest.
Rank reported_rank(const PreparedStrategy& prepared, std::size_t rank_class) {
  const RankClass& rank = prepared.folding.ranks[rank_class];
  if (prepared.mode != FoldMode::On || !has_own_memory(prepared, rank_class)) {
    return Rank(rank.representative);
  }
  return prepared.program.ranks[static_cast<std::size_t>(rank.program)].representative;
}

/// Rank classes, those first that have their own memory and not that of a rank that runs the same
/// program at another speed.
std::vector<std::size_t> own_memory_first(const PreparedStrategy& prepared) {
  std::vector<std::size_t> classes(prepared.folding.ranks.size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  if (prepared.mode == FoldMode::On) {
    std::stable_partition(classes.begin(), classes.end(),
                          [&](std::size_t i) { return has_own_memory(prepared, i); });
  }
  return classes;
}

/// Of the worst rank class, the first of those that are as bad, and the least of all.
MemoryReport worst_memory(const Experiment& experiment, const Strategy& strategy,
                          const PreparedStrategy& prepared, const AllocatorObserver& observer) {
  std::optional<MemoryReport> worst;
  std::optional<LeastMemory> least;
  for (const std::size_t i : own_memory_first(prepared)) {
    const MemoryReport memory = memory_report(experiment, strategy, prepared.program, observer,
                                              {static_cast<int>(i), reported_rank(prepared, i)});
    if (!least || memory.peak_allocated < least->peak_allocated) {
      least = LeastMemory{memory.rank, memory.peak_allocated};
    }
    if (!worst || is_worse(memory, *worst)) worst = memory;
  }
  if (least->peak_allocated < worst->peak_allocated) worst->least = least;
  return *worst;
}

/// The rank that holds least, of those that were simulated as one.
LeastMemory replayed_least(const Experiment& experiment, const Strategy& strategy,
                           const SimulationOptions& options, const MemoryRanks& ranks) {
  const Program program = program_of_rank(experiment, strategy, options, ranks.least);
  AllocatorObserver observer(program, allocator_setup(experiment, program));
  replay(program, observer);
  return {ranks.least.value(), observer.peak_allocated(0).allocated};
}

void add_least(const Experiment& experiment, const Strategy& strategy,
               const SimulationOptions& options, const MemoryRanks& ranks, MemoryReport& memory) {
  if (!ranks.differ) return;
  const LeastMemory least = replayed_least(experiment, strategy, options, ranks);
  const Bytes known = memory.least ? memory.least->peak_allocated : memory.peak_allocated;
  if (least.peak_allocated < known) memory.least = least;
}

/// The last step on GPUs whose memory has no end.
Seconds step_without_flushes(const Experiment& experiment, const PreparedStrategy& prepared,
                             const SimulationOptions& options, Engine& engine) {
  std::vector<ObservedClass> classes = observed_classes(experiment, prepared.folding);
  for (ObservedClass& one : classes) one.capacity = kUnlimitedCapacity;
  AllocatorObserver observer(prepared.program, allocator_setup(experiment, prepared.program),
                             classes);
  return split_critical_step(prepared.program, engine.run(prepared.program, prepared.folding,
                                                          &observer, 0, options.collectives))
      .step;
}

// ---- jitter ------------------------------------------------------------------------------------

JitterReport spread_of(const std::vector<Seconds>& steps) {
  JitterReport report;
  report.repetitions = static_cast<int>(steps.size());
  const auto [minimum, maximum] = std::minmax_element(steps.begin(), steps.end());
  report.minimum = *minimum;
  report.maximum = *maximum;
  for (const Seconds step : steps) report.mean += step / report.repetitions;
  double squares = 0;
  for (const Seconds step : steps) squares += std::pow((step - report.mean).count(), 2);
  if (report.repetitions > 1) {
    report.deviation = Seconds(std::sqrt(squares / (report.repetitions - 1)));
  }
  return report;
}

/// \param first  the step of repetition 0
JitterReport repeated(const Experiment& experiment, const Strategy& strategy,
                      const PreparedStrategy& prepared, const SimulationOptions& options,
                      Engine& engine, Seconds first) {
  std::vector<Seconds> steps = {first};
  for (int i = 1; i < experiment.cluster.perturbations.jitter.repetitions; ++i) {
    tell(options, strategy, prepared,
         format(", repetition {} of {}", i + 1,
                experiment.cluster.perturbations.jitter.repetitions));
    AllocatorObserver observer(prepared.program, allocator_setup(experiment, prepared.program),
                               observed_classes(experiment, prepared.folding));
    steps.push_back(last_step(
        engine.run(prepared.program, prepared.folding, &observer, i, options.collectives)));
  }
  return spread_of(steps);
}

std::string jitter_note(const Jitter& jitter) {
  return format(
      "random variation with seed {}: device kernels by {:g}, host work by {:g} (standard "
      "deviation of the logarithm), every rank by itself; memory, time and throughput are those of "
      "the first of {} repetitions",
      jitter.seed, jitter.kernels, jitter.host, jitter.repetitions);
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

std::string_view to_string(FoldMode mode) {
  switch (mode) {
    case FoldMode::On:
      return "on";
    case FoldMode::Exact:
      return "exact";
    case FoldMode::Off:
      break;
  }
  return "off";
}

std::vector<MemorySample> memory_over_time(const Experiment& experiment, const SimulatedRun& run,
                                           Engine& engine) {
  AllocatorSetup setup = allocator_setup(experiment, run.program);
  setup.keep_samples = true;
  AllocatorObserver observer(run.program, setup, observed_classes(experiment, run.folding));
  static_cast<void>(engine.run(run.program, run.folding, &observer, 0, run.collectives));
  return observer.allocated_over_time(0);
}

StrategyReport simulate_strategy(const Experiment& experiment, const Strategy& strategy,
                                 Engine& engine, const SimulationOptions& options,
                                 SimulatedRun* run) {
  return simulate_prepared(experiment, strategy, prepare(experiment, strategy, options), engine,
                           options, run);
}

StrategyReport simulate_prepared(const Experiment& experiment, const Strategy& strategy,
                                 PreparedStrategy prepared, Engine& engine,
                                 const SimulationOptions& options, SimulatedRun* run) {
  const Cluster& cluster = experiment.cluster;
  tell(options, strategy, prepared, "");
  const Program& program = prepared.program;
  AllocatorObserver observer(program, allocator_setup(experiment, program),
                             observed_classes(experiment, prepared.folding));
  Timeline timeline = engine.run(program, prepared.folding, &observer, 0, options.collectives);

  StrategyReport report;
  report.name = strategy.name;
  report.stage = zero_stage_of(strategy);
  append(report.assumptions, experiment.model.assumptions);
  append(report.assumptions, cluster.assumptions);
  append(report.assumptions, strategy.assumptions);
  append(report.assumptions, program.assumptions);
  report.warnings = strategy.warnings;
  for (Warning& warning : calibration_warnings(experiment.calibration, cluster)) {
    report.warnings.push_back(std::move(warning));
  }
  report.folding = folding_report(experiment, prepared);
  if (prepared.mode != options.fold) report.assumptions.push_back(unfolded_note(cluster, options));
  if (options.collectives == CollectiveForm::Stepped) report.assumptions.emplace_back(kSteppedNote);
  report.memory = worst_memory(experiment, strategy, prepared, observer);
  add_least(experiment, strategy, options, prepared.ranks, report.memory);
  report.verdict = verdict_of(report.memory);
  append(report.assumptions, memory_assumptions(program));
  if (uses_host_memory(program)) report.assumptions.push_back(host_memory_note(experiment));
  for (const std::string& kind : gpu_kinds(cluster)) {
    report.assumptions.push_back(
        efficiency_note(gpu_in_use(cluster, kind), experiment.calibration));
  }
  append(report.assumptions, calibration_notes(experiment.calibration, cluster, program));
  if (auto note = host_note(experiment.calibration, default_host_times()); !note.empty()) {
    report.assumptions.push_back(std::move(note));
  }
  report.time = split_critical_step(program, timeline);
  if (report.memory.flushes > 0) {
    report.memory.flush_time =
        report.time.step - step_without_flushes(experiment, prepared, options, engine);
  }
  if (cluster.perturbations.jitter.any()) {
    report.time.jitter =
        repeated(experiment, strategy, prepared, options, engine, report.time.step);
    report.assumptions.push_back(jitter_note(cluster.perturbations.jitter));
  }
  report.communication = count_communication(program, cluster);
  report.communication.paper_psi = program.world_size > 1 ? paper_volume(strategy) : 0;
  report.throughput = throughput(experiment, strategy, batch_of(experiment, strategy),
                                 report.time.step, report.assumptions);
  if (auto note = volume_note(program, strategy)) report.assumptions.push_back(*std::move(note));

  if (run != nullptr) {
    *run = {std::move(prepared.program), std::move(prepared.folding), std::move(timeline),
            options.collectives};
  }
  return report;
}

}  // namespace zerosim
