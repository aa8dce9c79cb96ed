/// What must hold of every program: random ones, from a seed.
#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {
namespace {

/// Our own mapping to a range: the standard's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

/// Up to `limit` of the device operations of `earlier`.
std::vector<OpId> some_of(const std::vector<OpId>& earlier, int limit, Random& random) {
  std::vector<OpId> result;
  for (int i = random.below(limit + 1); i > 0 && !earlier.empty(); --i) {
    const int back = random.below(std::min(8, static_cast<int>(earlier.size())));
    result.push_back(earlier[earlier.size() - 1 - static_cast<std::size_t>(back)]);
  }
  return result;
}

/// Rank classes of one shape (so that nothing deadlocks) with kernels and host work of their own.
std::vector<RankBuilder> random_ranks(int classes, Random& random) {
  std::vector<RankBuilder> ranks;
  std::vector<StreamId> second;
  for (int r = 0; r < classes; ++r) {
    ranks.emplace_back(r);
    second.push_back(ranks.back().stream("second"));
  }
  std::vector<OpId> device;
  for (int i = 20 + random.below(60); i > 0; --i) {
    const std::vector<OpId> after = some_of(device, 2, random);
    const int what = random.below(100);
    const int where = random.below(2);
    const Bytes size(1 + random.below(400'000'000));
    const bool zero = random.chance(10);
    OpId op;
    for (int r = 0; r < classes; ++r) {
      RankBuilder& rank = ranks[static_cast<std::size_t>(r)];
      const StreamId on = where == 0 ? rank.compute : second[static_cast<std::size_t>(r)];
      const int host = random.below(30);
      const Seconds arithmetic(zero ? 0 : random.below(2000) * 1e-6);
      if (what < 45) {
        const Bytes memory(zero ? 0 : random.below(2'000'000'000));
        op = rank.kernel(on, arithmetic, memory, after, host, random.below(2) * 2000);
      } else if (what < 70) {
        op = rank.collective(where == 0 ? rank.world : rank.other, size, after, host);
      } else if (what < 78) {
        op = rank.copy(on,
                       where == 0 ? Copy::Direction::HostToDevice : Copy::Direction::DeviceToHost,
                       size, after);
      } else if (what < 90) {
        op = rank.stream_wait(on, after);
      } else if (what < 95) {
        rank.host_wait(after);
        op = OpId();
      } else {
        rank.host(host);
        op = OpId();
      }
    }
    if (op.valid()) {
      device.push_back(op);
    }
  }
  return ranks;
}

/// How long an operation takes alone, launch gap or delay included; 0 for those that only wait.
double idle_time(const RankProgram& rank, const Op& op, const Figures& figures) {
  const auto payload = static_cast<std::size_t>(op.payload);
  switch (op.kind) {
    case OpKind::Kernel: {
      const Kernel& kernel = rank.kernels[payload];
      return static_cast<double>(kernel.m) * 1e-9 +
             std::max(kernel.flops.count(), (kernel.bytes / figures.memory).count());
    }
    case OpKind::Copy:
      return (rank.copies[payload].bytes / figures.host_link).count();
    case OpKind::Collective: {
      const Bytes size = collective_size(rank.collectives[payload]);
      return figures.delay.count() +
             std::max((size / figures.link).count(),
                      (size * figures.memory_bytes_per_byte / figures.memory).count());
    }
    default:
      return 0;
  }
}

/// Everything one after the other; a collective counts once.
double serial_sum(const Program& program, const Figures& figures) {
  double sum = 0;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (const Op& op : program.ranks[r].ops) {
      sum += op.host_count * 1e-6;
      if (op.kind != OpKind::Collective || r == 0) {
        sum += idle_time(program.ranks[r], op, figures);
      }
    }
  }
  return sum;
}

/// End if nothing shared anything: ends of operations relaxed until they do not grow any more.
double critical_path(const Program& program, const Figures& figures) {
  std::vector<std::vector<double>> ends;
  for (const RankProgram& rank : program.ranks) {
    ends.emplace_back(rank.ops.size(), 0.0);
  }
  double latest = -1;
  double last = -2;
  double total = 0;
  while (latest != last) {
    last = latest;
    total = 0;
    latest = 0;
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const RankProgram& rank = program.ranks[r];
      double host = 0;
      std::vector<double> streams(rank.streams.size(), 0.0);
      for (std::size_t i = 0; i < rank.ops.size(); ++i) {
        const Op& op = rank.ops[i];
        host += op.host_count * 1e-6;
        double start = host;
        for (const OpId dependency : rank.dependencies_of(op)) {
          start = std::max(start, ends[r][dependency.index()]);
        }
        if (op.kind == OpKind::HostWait) {
          host = start;
        }
        double end = start;
        if (op.stream.valid()) {
          double& stream = streams[op.stream.index()];
          end = std::max(start, stream) + idle_time(rank, op, figures);
          if (op.kind == OpKind::Collective) {  // same operation number in every class
            for (const auto& other : ends) {
              end = std::max(end, other[i]);
            }
          }
          stream = end;
        }
        ends[r][i] = end;
        total = std::max(total, end);
        latest += end;
      }
    }
  }
  return total;
}

void expect_streams_in_order(const Program& program, const Timeline& timeline) {
  std::map<std::pair<int, StreamId>, const Span*> previous;
  std::map<std::pair<int, OpId>, double> ends;
  for (const Span& span : timeline.spans) {
    ends[{span.rank_class, span.op}] = span.end.count();
    EXPECT_LE(span.issued.count(), span.ready.count());
    EXPECT_LE(span.ready.count(), span.start.count());
    EXPECT_LE(span.start.count(), span.end.count());
    const Span*& before = previous[{span.rank_class, span.stream}];
    if (before != nullptr) {
      EXPECT_LE(before->end.count(), span.start.count());
      EXPECT_LT(before->op, span.op);
    }
    before = &span;
  }
  for (const Span& span : timeline.spans) {
    const RankProgram& rank = program.ranks[static_cast<std::size_t>(span.rank_class)];
    for (const OpId dependency : rank.dependencies_of(rank.ops[span.op.index()])) {
      const auto end = ends.find({span.rank_class, dependency});
      if (end != ends.end()) {
        EXPECT_LE(end->second, span.ready.count());
      }
    }
  }
}

void expect_sorted(const Timeline& timeline) {
  const auto key = [](const Span& s) { return std::tuple(s.start, s.rank_class, s.stream, s.op); };
  EXPECT_TRUE(std::is_sorted(timeline.spans.begin(), timeline.spans.end(),
                             [&](const Span& a, const Span& b) { return key(a) < key(b); }));
}

std::size_t activities(const Program& program) {
  std::size_t count = 0;
  for (const RankProgram& rank : program.ranks) {
    count += rank.kernels.size() + rank.copies.size() + rank.collectives.size();
  }
  return count;
}

/// `classes` rank classes; with one, collectives hold SMs too. (With several, a class may slow its
/// own kernels while it waits for another class that does the same: no serial sum bounds that.)
void check_random_programs(int classes, int launch_queue_depth, std::uint64_t first_seed) {
  isolated([&] {
    Figures figures;
    figures.memory_bytes_per_byte = 4;
    figures.ctas = classes == 1 ? 27 : 0;
    figures.launch_queue_depth = launch_queue_depth;
    Engine engine(test_cluster(figures), options_of(figures));
    for (std::uint64_t seed = first_seed; seed < first_seed + 60; ++seed) {
      SCOPED_TRACE(seed);
      Random random(seed);
      const Program program = program_of(random_ranks(classes, random));
      const Timeline timeline = engine.run(program);
      EXPECT_EQ(timeline.spans.size(), activities(program));
      EXPECT_GE(timeline.end.count(), critical_path(program, figures) * (1 - 1e-9));
      EXPECT_LE(timeline.end.count(), serial_sum(program, figures) * (1 + 1e-9));
      EXPECT_EQ(timeline.end, timeline.step_ends[0]);
      expect_sorted(timeline);
      expect_streams_in_order(program, timeline);
      const Timeline again = engine.run(program);
      EXPECT_NEAR(again.end.count(), timeline.end.count(), 1e-12 * timeline.end.count());
      EXPECT_EQ(fingerprint(again), fingerprint(timeline));
    }
  });
}

class EngineProperty : public ::testing::TestWithParam<int> {};

TEST_P(EngineProperty, EndLiesBetweenCriticalPathAndSerialSum) {
  check_random_programs(GetParam(), 1'000'000, 1000U * static_cast<std::uint64_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(RankClasses, EngineProperty, ::testing::Values(1, 2, 3, 7));

// The same with a launch queue that is often full. (It may even end earlier than an endless queue:
// what is launched later leaves links and SMs to others.)
class EngineQueueProperty : public ::testing::TestWithParam<int> {};

TEST_P(EngineQueueProperty, EndLiesBetweenCriticalPathAndSerialSum) {
  check_random_programs(1, GetParam(), 42);
}

INSTANTIATE_TEST_SUITE_P(LaunchQueue, EngineQueueProperty, ::testing::Values(1, 2, 8));

// 64 classes of which one is slow: everyone waits for it. The grid of hosts is 8 x 8.
TEST(EngineClasses, AllWaitForTheSlowOne) {
  isolated([] {
    const Figures figures;
    Engine engine(test_cluster(figures, 64), options_of(figures));
    std::vector<RankBuilder> ranks;
    for (int r = 0; r < 64; ++r) {
      RankBuilder& rank = ranks.emplace_back(r);
      const OpId kernel = rank.kernel(rank.compute, Seconds(r == 37 ? 3e-3 : 1e-3));
      rank.collective(rank.world, Bytes(1'000'000'000), {kernel});
    }
    // 3 ms + 50 us + 1 GB / 100 GB/s
    const Timeline timeline = engine.run(program_of(ranks));
    for (const Span& span : timeline.spans) {
      if (span.stream == ranks[0].world) {
        expect_exact(span.start, 3e-3);
        expect_exact(span.end, 13.05e-3);
      }
    }
    EXPECT_EQ(timeline.spans.size(), 128U);
  });
}

}  // namespace
}  // namespace zerosim::testing
