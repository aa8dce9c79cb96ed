// One ZeRO-3 step of Llama-2-7B on 8 GPUs: build, engine with memory, and both (design.md section
// 7: 8 ms, 14 + 8 ms, 30 ms); building one of Llama-3.1-405B (80 ms).

#include <string>

#include <benchmark/benchmark.h>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/report.h"
#include "sim/engine/engine.h"
#include "sim/memory/memory_timeline.h"
#include "sim/model/model.h"
#include "sim/program/build.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"

namespace {

using namespace zerosim;  // NOLINT(google-build-using-namespace): a program, not a header

struct Question {
  Model model = load_model("llama-2-7b");
  Cluster cluster = load_cluster("dgx-a100-80");
  Strategy strategy = named_strategy("zero3", {}, 8);
  BatchShape batch;
  BuildOptions options{8, 2, 1};

  Question() {
    batch.micro_batch = 1;
    batch.sequence = 2048;
  }
};

const Question& question() {
  static const Question kQuestion;
  return kQuestion;
}

Engine& engine() {
  static Engine shared(question().cluster);
  return shared;
}

void build(benchmark::State& state) {
  const Question& q = question();
  std::size_t ops = 0;
  for (auto _ : state) {
    const Program program = build_program(q.model, q.strategy, q.batch, q.options);
    ops = program.ranks[0].ops.size();
    benchmark::DoNotOptimize(program);
  }
  state.counters["ops"] = static_cast<double>(ops);
}
BENCHMARK(build)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/build");

/// The largest preset: 126 layers.
void build_405b(benchmark::State& state) {
  const Model model = load_model("llama-3.1-405b");
  const BuildOptions options{512, 2, 1};
  const Strategy strategy = named_strategy("zero3", {}, options.world_size);
  std::size_t ops = 0;
  for (auto _ : state) {
    const Program program = build_program(model, strategy, question().batch, options);
    ops = program.ranks[0].ops.size();
    benchmark::DoNotOptimize(program);
  }
  state.counters["ops"] = static_cast<double>(ops);
}
BENCHMARK(build_405b)->Unit(benchmark::kMillisecond)->Name("zero3_405b_512gpus/build");

/// Programs of the stages that build no trace, which have fewer operations.
void build_stage(benchmark::State& state) {
  const Question& q = question();
  const Strategy strategy =
      named_strategy("zero" + std::to_string(state.range(0)), TrainingFlags{}, 8);
  std::size_t ops = 0;
  for (auto _ : state) {
    const Program program = build_program(q.model, strategy, q.batch, q.options);
    ops = program.ranks[0].ops.size();
    benchmark::DoNotOptimize(program);
  }
  state.counters["ops"] = static_cast<double>(ops);
}
BENCHMARK(build_stage)
    ->DenseRange(0, 2)
    ->Unit(benchmark::kMillisecond)
    ->Name("7b_8gpus/build_stage");

void run(benchmark::State& state) {
  const Question& q = question();
  const Program program = build_program(q.model, q.strategy, q.batch, q.options);
  std::size_t spans = 0;
  for (auto _ : state) {
    MemoryLedger ledger(program);
    const Timeline timeline = engine().run(program, &ledger);
    spans = timeline.spans.size();
    benchmark::DoNotOptimize(timeline);
  }
  state.counters["spans"] = static_cast<double>(spans);
  state.counters["spans/s"] =
      benchmark::Counter(static_cast<double>(spans), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(run)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/engine_and_memory");

void whole_step(benchmark::State& state) {
  const Question& q = question();
  for (auto _ : state) {
    const Program program = build_program(q.model, q.strategy, q.batch, q.options);
    MemoryLedger ledger(program);
    const Timeline timeline = engine().run(program, &ledger);
    benchmark::DoNotOptimize(timeline);
  }
}
BENCHMARK(whole_step)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/build_engine_memory");

/// What `compare` does for a strategy: four steps built, two of them timed, both allocators,
/// report.
void whole_job(benchmark::State& state) {
  const Question& q = question();
  const Experiment experiment{q.model, load_cluster("dgx-a100-80", 1, 8), q.batch};
  for (auto _ : state) {
    const StrategyReport report = simulate_strategy(experiment, q.strategy, engine());
    benchmark::DoNotOptimize(report.time.step);
  }
}
BENCHMARK(whole_job)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/whole_job");

/// What `memory` does: three steps built and replayed.
void replayed_job(benchmark::State& state) {
  const Question& q = question();
  const Experiment experiment{q.model, load_cluster("dgx-a100-80", 1, 8), q.batch};
  for (auto _ : state) {
    const MemoryReport report = replayed_memory(experiment, q.strategy);
    benchmark::DoNotOptimize(report.peak_reserved);
  }
}
BENCHMARK(replayed_job)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/memory");

}  // namespace

BENCHMARK_MAIN();
