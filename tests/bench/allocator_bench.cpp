// The caching allocator: alone on the allocations of a synthetic 7B stage-3 step (100,000 of them,
// to take at most 8 ms: design.md section 7), on those of today's Program, and inside the engine,
// beside the plain ledger.

#include <cstdint>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "sim/engine/engine.h"
#include "sim/memory/allocator_observer.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/memory_timeline.h"
#include "sim/model/model.h"
#include "sim/program/build.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"

namespace {

using namespace zerosim;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr StreamId kGather{std::int32_t{1}};
constexpr int kLayers = 32;
constexpr int kParameters = 9;   // of a layer
constexpr int kOperators = 173;  // of a layer: three allocations each, twice a micro batch
constexpr int kMicroBatches = 3;

/// One event of the stream; a free of what event `target` allocated.
struct Event {
  Bytes bytes;
  StreamId stream;
  int target = -1;
  bool recorded = false;
};

class Stream {
 public:
  int allocate(Bytes bytes, StreamId stream = kComputeStream) {
    events_.push_back({bytes, stream});
    return static_cast<int>(events_.size()) - 1;
  }
  void free(int target, bool recorded = false) {
    events_.push_back({Bytes(), kComputeStream, target, recorded});
  }
  [[nodiscard]] std::vector<Event> take() { return std::move(events_); }

 private:
  std::vector<Event> events_;
};

Bytes parameter_bytes(int index) {
  return index < 2 ? Bytes(8192) : Bytes(8192) * (index < 6 ? 4096 : 11008);
}

/// From norms' statistics to the MLP's activations of 2048 tokens.
Bytes activation_bytes(int op) {
  constexpr Bytes kSizes[] = {8_KiB, 16_MiB, 43_MiB, 512_B, 16_MiB, 32_MiB, 2_MiB};
  return kSizes[op % 7];
}

/// Forward keeps one allocation of an operator and drops the others; backward takes them in the
/// reverse order. Parameters are gathered on their stream and recorded on the compute stream.
std::vector<Event> stage3_step() {
  Stream stream;
  for (int batch = 0; batch < kMicroBatches; ++batch) {
    std::vector<int> saved;
    for (int pass = 0; pass < 2 * kLayers; ++pass) {
      std::vector<int> gathered;
      gathered.reserve(kParameters);
      for (int p = 0; p < kParameters; ++p) {
        gathered.push_back(stream.allocate(parameter_bytes(p), kGather));
      }
      for (int op = 0; op < kOperators; ++op) {
        const int temporary = stream.allocate(activation_bytes(op));
        const int output = stream.allocate(activation_bytes(op + 1));
        stream.free(temporary);
        const int other = stream.allocate(activation_bytes(op + 3));
        stream.free(output);
        if (pass < kLayers && op % 10 == 0) {
          saved.push_back(other);
        } else {
          stream.free(other);
        }
        if (pass >= kLayers && op % 10 == 0 && !saved.empty()) {
          stream.free(saved.back());
          saved.pop_back();
        }
      }
      for (const int parameter : gathered) stream.free(parameter, true);
    }
  }
  return stream.take();
}

/// Events complete 40 frees after they were recorded: the device is behind the host.
void synthetic(benchmark::State& state, const char* conf) {
  const std::vector<Event> events = stage3_step();
  std::vector<BlockId> blocks(events.size());
  std::int64_t allocations = 0;
  for (auto _ : state) {
    CachingAllocator allocator({80_GiB, 1_GiB, parse_alloc_conf(conf)});
    std::int32_t recorded = 0;
    allocations = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
      const Event& event = events[i];
      if (event.target < 0) {
        allocator.poll_events([&](OpId op) {
          return op.value() + 40 < recorded ? EventState::Completed : EventState::Pending;
        });
        blocks[i] = allocator.allocate(event.bytes, event.stream).block;
        ++allocations;
      } else {
        const StreamEvent use{kComputeStream, OpId(recorded)};
        recorded += event.recorded ? 1 : 0;
        allocator.free(blocks[static_cast<std::size_t>(event.target)],
                       std::span(&use, event.recorded ? 1 : 0));
      }
    }
    benchmark::DoNotOptimize(allocator.stats());
  }
  state.counters["allocations"] = static_cast<double>(allocations);
}
BENCHMARK_CAPTURE(synthetic, native, "")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(synthetic, expandable, "expandable_segments:True")->Unit(benchmark::kMillisecond);

/// Many small free blocks that no neighbour joins: the cost of searching a long list.
void fragmented(benchmark::State& state) {
  const auto blocks = static_cast<std::size_t>(state.range(0));
  CachingAllocator allocator({80_GiB, Bytes(), {}});
  std::vector<BlockId> live;
  for (std::size_t i = 0; i < 2 * blocks; ++i) {
    live.push_back(
        allocator.allocate(Bytes(static_cast<std::int64_t>(512 * (1 + i % 300))), kComputeStream)
            .block);
  }
  for (std::size_t i = 0; i < live.size(); i += 2) allocator.free(live[i]);
  std::int64_t size = 0;
  for (auto _ : state) {
    size = (size + 12'345) % 150'000;
    allocator.free(allocator.allocate(Bytes(size + 1), kComputeStream).block);
  }
  state.SetComplexityN(state.range(0));
}
BENCHMARK(fragmented)->RangeMultiplier(8)->Range(64, 32'768)->Complexity();

// ---- Today's Program ---------------------------------------------------------------------------

struct Question {
  Model model = load_model("llama-2-7b");
  Cluster cluster = load_cluster("dgx-a100-80");
  Program program;
  AllocatorSetup setup;

  Question() {
    BatchShape batch;
    batch.micro_batch = 1;
    batch.sequence = 2048;
    program = build_program(model, named_strategy("zero3", {}, 8), batch, BuildOptions{8, 2, 1});
    setup.allocator.capacity = 80_GiB;
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

void replayed(benchmark::State& state) {
  const Question& q = question();
  for (auto _ : state) {
    AllocatorObserver observer(q.program, q.setup);
    replay(q.program, observer);
    benchmark::DoNotOptimize(observer.allocator(0).stats());
  }
  std::int64_t allocations = 0;
  for (const Op& op : q.program.ranks[0].ops) allocations += op.kind == OpKind::Allocate ? 1 : 0;
  state.counters["allocations"] = static_cast<double>(allocations);
}
BENCHMARK(replayed)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/allocator");

/// The program with each gathered parameter recorded on the compute stream when it is freed, at its
/// last operation there, as C4.7 has it.
Program recorded(const Program& original) {
  Program program = original;
  RankProgram& rank = program.ranks[0];
  std::int32_t last = -1;
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    Op& op = rank.ops[i];
    if (op.stream == kComputeStream) last = static_cast<std::int32_t>(i);
    if (op.kind != OpKind::Free || last < 0) continue;
    Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
    if (buffer.memory_class != MemoryClass::LiveParameters) continue;
    buffer.stream = kGather;
    op.first_dependency = static_cast<std::uint32_t>(rank.dependencies.size());
    op.dependency_count = 1;
    rank.dependencies.emplace_back(last);
  }
  return program;
}

template <typename Observer, typename... Setup>
void in_engine(benchmark::State& state, const Program& program, const Setup&... setup) {
  for (auto _ : state) {
    Observer observer(program, setup...);
    const Timeline timeline = engine().run(program, &observer);
    benchmark::DoNotOptimize(timeline);
  }
}

void engine_with_ledger(benchmark::State& state) {
  in_engine<MemoryLedger>(state, question().program);
}
BENCHMARK(engine_with_ledger)->Unit(benchmark::kMillisecond)->Name("zero3_7b_8gpus/engine_ledger");

void engine_with_allocator(benchmark::State& state) {
  const Program program = recorded(question().program);
  in_engine<AllocatorObserver>(state, program, question().setup);
}
BENCHMARK(engine_with_allocator)
    ->Unit(benchmark::kMillisecond)
    ->Name("zero3_7b_8gpus/engine_allocator_recorded");

}  // namespace

BENCHMARK_MAIN();
