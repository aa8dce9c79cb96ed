// The engine alone on a synthetic mix of one training step: per layer a gather on a communicator, a
// wait of the compute stream, twelve kernels, host work, a throttle; folded (one rank class) and
// with 8 and 64 classes. The counter activities/s is the engine's figure of merit (design.md
// section 3: 387,000 to 659,000 folded, 390,000 at 64 classes).

#include <cstdint>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "sim/engine/engine.h"

namespace {

using namespace zerosim;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr int kMostClasses = 64;
constexpr int kLayers = 460;  // x 13 device operations: a 7B stage-3 step has about 6,000
constexpr int kKernelsPerLayer = 12;
constexpr auto kNoPayload = static_cast<std::size_t>(-1);

class Writer {
 public:
  Writer() { rank_.streams = {{"compute", {}}, {"nccl:WORLD", GroupId(std::int32_t{0})}}; }

  OpId add(OpKind kind, HostWork work, StreamId stream, std::size_t payload,
           const std::vector<OpId>& after) {
    Op op;
    op.kind = kind;
    op.host_work = work;
    op.host_count = 1;
    op.stream = stream;
    op.payload = static_cast<std::int32_t>(payload);
    op.first_dependency = static_cast<std::uint32_t>(rank_.dependencies.size());
    op.dependency_count = static_cast<std::uint32_t>(after.size());
    rank_.dependencies.insert(rank_.dependencies.end(), after.begin(), after.end());
    rank_.ops.push_back(op);
    return OpId(rank_.ops.size() - 1);
  }

  OpId gather() {
    Collective call;
    call.kind = CollectiveKind::AllGather;
    call.output_elements = 200'000'000;
    call.input_elements = call.output_elements / 8;
    call.group = GroupId(std::int32_t{0});
    rank_.collectives.push_back(call);
    return add(OpKind::Collective, HostWork::CollectiveLaunch, StreamId(std::int32_t{1}),
               rank_.collectives.size() - 1, {});
  }

  /// Every second one is a GEMM; `skew` makes rank classes end at instants of their own.
  OpId kernel(int number, int skew) {
    Kernel kernel;
    kernel.name = "kernel";
    if (number % 2 == 0) {
      kernel.kernel_class = KernelClass::Gemm;
      kernel.m = 2048 + skew;
      kernel.n = 4096;
      kernel.k = 4096;
    }
    kernel.bytes = Bytes(60'000'000);
    rank_.kernels.push_back(kernel);
    return add(OpKind::Kernel, HostWork::KernelLaunch, kComputeStream, rank_.kernels.size() - 1,
               {});
  }

  [[nodiscard]] RankProgram finish() { return std::move(rank_); }

 private:
  RankProgram rank_;
};

RankProgram rank_of(int skew) {
  Writer writer;
  std::vector<OpId> ends;
  for (int layer = 0; layer < kLayers; ++layer) {
    const OpId gather = writer.gather();
    writer.add(OpKind::Host, HostWork::ModuleHook, {}, kNoPayload, {});
    writer.add(OpKind::StreamWait, HostWork::EventRecord, kComputeStream, 0, {gather});
    OpId last;
    for (int i = 0; i < kKernelsPerLayer; ++i) {
      last = writer.kernel(i, skew);
    }
    ends.push_back(last);
    if (layer >= 3) {
      writer.add(OpKind::HostWait, HostWork::None, {}, 0,
                 {ends[static_cast<std::size_t>(layer) - 3]});
    }
  }
  return writer.finish();
}

Program program_of(int classes) {
  Program program;
  program.strategy = "synthetic";
  program.world_size = kMostClasses;
  program.groups = {{"WORLD", kMostClasses}};
  for (int r = 0; r < classes; ++r) {
    program.ranks.push_back(rank_of(r));
    program.ranks.back().representative = Rank(r);
  }
  return program;
}

EngineOptions options() {
  EngineOptions result;
  result.rank_classes = kMostClasses;
  result.links = 8 * kMostClasses;
  return result;
}

Engine& engine() {
  static Engine shared(load_cluster("dgx-a100-80", kMostClasses / 8), options());
  return shared;
}

void mix(benchmark::State& state) {
  const Program program = program_of(static_cast<int>(state.range(0)));
  std::size_t spans = 0;
  for (auto _ : state) {
    const Timeline timeline = engine().run(program);
    spans = timeline.spans.size();
    benchmark::DoNotOptimize(timeline);
  }
  state.counters["activities/s"] =
      benchmark::Counter(static_cast<double>(spans), benchmark::Counter::kIsIterationInvariantRate);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(mix)->Arg(1)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond)->Complexity();

}  // namespace

BENCHMARK_MAIN();
