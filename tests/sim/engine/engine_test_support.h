/// \file
/// Hand-made clusters and programs whose times are worked out in the tests, one process a test.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/engine/engine.h"
#include "topology/node_graph.h"

namespace zerosim::testing {

/// Runs `body` in a child process, for SimGrid allows one engine a process. Its failures are this
/// test's.
inline void isolated(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "exception: " << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see the failures above";
}

inline constexpr GroupId kWorld{std::int32_t{0}};
inline constexpr GroupId kOther{std::int32_t{1}};

/// Figures of a machine on which everything has round times.
///
/// Host work: a ModuleCall takes 1 us, nothing else takes time. A kernel says its own times (see
/// `RankBuilder::kernel`). A collective of S bytes puts S on the intra-node link and
/// `memory_bytes_per_byte` x S on device memory, after `delay`, and holds `ctas` SMs.
struct Figures {
  BytesPerSecond link{100e9};
  BytesPerSecond memory{3e12};
  BytesPerSecond host_link{25e9};
  Seconds delay{50e-6};
  int ctas = 0;
  std::int64_t memory_bytes_per_byte = 0;
  int launch_queue_depth = 1024;
};

/// One node of 8 A100 (108 SMs), or more.
inline Cluster test_cluster(const Figures& figures = {}, int gpus = 8) {
  Cluster cluster;
  cluster.name = "test";
  cluster.node.gpu = "A100-SXM4-80";
  cluster.node.gpus = gpus;
  cluster.gpus_per_node = gpus;
  cluster.node.nccl.ring_channels = 1;
  cluster.node.nccl.ring_channel_gbps = figures.link.gb_per_second();
  cluster.node.host_link = figures.host_link;
  NodeShape shape;
  shape.gpus = gpus;
  shape.gpus_per_pcie_switch = 1;
  cluster.node.graph = build_node_graph(shape);
  return cluster;
}

inline EngineOptions options_of(const Figures& figures) {
  EngineOptions options;
  options.host = HostTimes{};
  options.host.module_call = Seconds(1e-6);
  options.host.launch_queue_depth = figures.launch_queue_depth;
  options.device_memory = figures.memory;
  options.kernel_time = [](const Kernel& kernel) {
    return KernelTime{Seconds(static_cast<double>(kernel.m) * 1e-9), Seconds(kernel.flops.count()),
                      kernel.bytes};
  };
  options.collective_cost = [figures](const Collective& call, const ProcessGroup&) {
    CollectiveCost cost;
    cost.delay = figures.delay;
    cost.ctas = figures.ctas;
    const Bytes size = collective_size(call);
    cost.loads = {{LinkClass::Kind::IntraNode, size},
                  {LinkClass::Kind::DeviceMemory, size * figures.memory_bytes_per_byte}};
    return cost;
  };
  return options;
}

/// One rank class, operation by operation. Host time of an operation in whole microseconds.
class RankBuilder {
 public:
  explicit RankBuilder(int representative = 0) {
    program_.representative = Rank(representative);
    compute = stream("compute");
    world = stream("nccl:WORLD", kWorld);
    other = stream("nccl:OTHER", kOther);
  }

  StreamId stream(const std::string& name, GroupId group = {}) {
    program_.streams.push_back({name, group});
    return StreamId(program_.streams.size() - 1);
  }

  OpId host(int microseconds) { return add(OpKind::Host, {}, -1, {}, microseconds); }

  /// Lasts gap + max(arithmetic, memory / bandwidth of device memory).
  OpId kernel(StreamId on, Seconds arithmetic, Bytes memory = {}, std::vector<OpId> after = {},
              int microseconds = 0, int gap_ns = 0) {
    Kernel kernel;
    kernel.name = "test_kernel";
    kernel.flops = Flops(arithmetic.count());
    kernel.bytes = memory;
    kernel.m = gap_ns;
    program_.kernels.push_back(kernel);
    return add(OpKind::Kernel, on, program_.kernels.size() - 1, std::move(after), microseconds);
  }

  OpId copy(StreamId on, Copy::Direction direction, Bytes bytes, std::vector<OpId> after = {}) {
    program_.copies.push_back({direction, bytes});
    return add(OpKind::Copy, on, program_.copies.size() - 1, std::move(after), 0);
  }

  OpId collective(StreamId on, Bytes size, std::vector<OpId> after = {}, int microseconds = 0,
                  CollectiveKind kind = CollectiveKind::AllReduce, int coalesced = -1) {
    Collective call;
    call.kind = kind;
    call.dtype = Dtype::U8;
    call.input_elements = size.count();
    call.output_elements = size.count();
    call.group = program_.streams[on.index()].communicator;
    call.coalesced = coalesced;
    program_.collectives.push_back(call);
    return add(OpKind::Collective, on, program_.collectives.size() - 1, std::move(after),
               microseconds);
  }

  OpId stream_wait(StreamId on, std::vector<OpId> after) {
    return add(OpKind::StreamWait, on, -1, std::move(after), 0);
  }
  OpId host_wait(std::vector<OpId> after) {
    return add(OpKind::HostWait, {}, -1, std::move(after), 0);
  }

  BufferId allocate(Bytes bytes) {
    program_.buffers.push_back({bytes, MemoryClass::TemporaryBuffers, compute, "test"});
    add(OpKind::Allocate, {}, program_.buffers.size() - 1, {}, 0);
    return BufferId(program_.buffers.size() - 1);
  }
  /// `recorded`: what must have ended before the memory is used again (E7.8).
  void free(BufferId buffer, std::vector<OpId> recorded = {}) {
    add(OpKind::Free, {}, buffer.index(), std::move(recorded), 0);
  }

  [[nodiscard]] const RankProgram& program() const { return program_; }

  StreamId compute, world, other;

 private:
  OpId add(OpKind kind, StreamId on, std::size_t payload, std::vector<OpId> after,
           int microseconds) {
    Op op;
    op.kind = kind;
    op.stream = on;
    op.payload = static_cast<std::int32_t>(payload);
    op.host_work = microseconds > 0 ? HostWork::ModuleCall : HostWork::None;
    op.host_count = static_cast<std::uint16_t>(microseconds);
    op.first_dependency = static_cast<std::uint32_t>(program_.dependencies.size());
    op.dependency_count = static_cast<std::uint32_t>(after.size());
    program_.dependencies.insert(program_.dependencies.end(), after.begin(), after.end());
    program_.ops.push_back(op);
    return OpId(program_.ops.size() - 1);
  }

  RankProgram program_;
};

/// Two communicators over all 8 ranks, or as many as there are programs. Where programs say nothing
/// of their ranks, each of the first ranks runs one and the others the last.
inline Program program_of(const std::vector<RankBuilder>& ranks) {
  Program program;
  program.strategy = "test";
  program.world_size = std::max(8, static_cast<int>(ranks.size()));
  program.groups = {{"WORLD", program.world_size}, {"OTHER", program.world_size}};
  for (const RankBuilder& rank : ranks) {
    program.ranks.push_back(rank.program());
    Rank& representative = program.ranks.back().representative;
    if (representative == Rank(0)) representative = Rank(program.ranks.size() - 1);
  }
  check_program(program);
  return program;
}

inline const Span& span_of(const Timeline& timeline, OpId op, int rank_class = 0) {
  for (const Span& span : timeline.spans) {
    if (span.op == op && span.rank_class == rank_class) {
      return span;
    }
  }
  ADD_FAILURE() << "no span of operation " << op.value();
  static const Span kNothing;
  return kNothing;
}

/// Equal to 1e-12 of the value: what the engine promises without contention.
inline void expect_exact(Seconds found, double expected, double tolerance = 1e-12) {
  EXPECT_NEAR(found.count(), expected, tolerance * expected);
}
/// Equal to 1e-9: with contention.
inline void expect_shared(Seconds found, double expected) {
  expect_exact(found, expected, 1e-9);
}

}  // namespace zerosim::testing
