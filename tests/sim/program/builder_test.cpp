// The vocabulary of the builders, and the promises that check_program holds them to.

#include "sim/program/builder.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace zerosim {
namespace {

const GroupId kWorld(0);

Collective all_reduce(bool async) {
  Collective collective;
  collective.input_elements = collective.output_elements = 100;
  collective.group = kWorld;
  collective.async = async;
  return collective;
}

Program program_of(RankProgramBuilder& builder) {
  Program program;
  program.world_size = 2;
  program.groups = {{"WORLD", 2}};
  program.ranks.push_back(builder.finish());
  return program;
}

// Rule 0.4: the communicator waits for the caller's stream; a blocking call makes the caller wait
// back.
TEST(RankProgramBuilder, ACollectiveRunsOnItsCommunicatorsStream) {
  for (const bool async : {true, false}) {
    RankProgramBuilder builder(Rank(0), 2);
    builder.add_communicator(kWorld, "WORLD");
    const OpId kernel = builder.kernel(kComputeStream, memory_kernel("k", Bytes(8)),
                                       HostWork::KernelLaunch, "test");
    const OpId collective = builder.collective(kComputeStream, all_reduce(async), "test");
    const OpId last = builder.last(kComputeStream);
    const Program program = program_of(builder);
    check_program(program);
    const RankProgram& rank = program.ranks[0];
    const Op& op = rank.ops[collective.index()];
    EXPECT_EQ(rank.streams[op.stream.index()].name, "nccl:WORLD");
    ASSERT_EQ(rank.dependencies_of(op).size(), 1u);
    EXPECT_EQ(rank.dependencies_of(op)[0], kernel);
    EXPECT_EQ(last == kernel, async);
    if (!async) {
      EXPECT_EQ(rank.ops[last.index()].kind, OpKind::StreamWait);
      EXPECT_EQ(rank.dependencies_of(rank.ops[last.index()])[0], collective);
    }
  }
}

// Rule 0.7: with comms_logger the host waits for every stream after each collective.
TEST(RankProgramBuilder, CommsLoggerSynchronisesAfterEachCollective) {
  RankProgramBuilder builder(Rank(0), 2);
  builder.add_communicator(kWorld, "WORLD");
  builder.synchronize_after_collectives(true);
  builder.collective(kComputeStream, all_reduce(true), "test");
  const Program program = program_of(builder);
  EXPECT_EQ(program.ranks[0].ops.back().kind, OpKind::HostWait);
}

TEST(RankProgramBuilder, AStreamDoesNotWaitForItself) {
  RankProgramBuilder builder(Rank(0), 1);
  const OpId kernel =
      builder.kernel(kComputeStream, memory_kernel("k", Bytes(8)), HostWork::KernelLaunch, "test");
  builder.stream_wait(kComputeStream, kernel, "test");
  builder.stream_wait(kComputeStream, OpId(), "test");
  EXPECT_EQ(builder.finish().ops.size(), 1u);
}

// Pageable memory is copied piece by piece: the host waits for the end (B6.1).
TEST(RankProgramBuilder, OnlyCopiesOfPageableMemoryBlockTheHost) {
  for (const bool pinned : {true, false}) {
    RankProgramBuilder builder(Rank(0), 1);
    const OpId copy =
        builder.copy(kComputeStream, {Copy::Direction::DeviceToHost, Bytes(8), pinned}, "test");
    const RankProgram rank = builder.finish();
    ASSERT_EQ(rank.ops.size(), pinned ? 1u : 2u);
    if (!pinned) {
      EXPECT_EQ(rank.ops[1].kind, OpKind::HostWait);
      EXPECT_EQ(rank.dependencies_of(rank.ops[1])[0], copy);
    }
  }
}

TEST(RankProgramBuilder, BuffersOnTheHostSayWhere) {
  RankProgramBuilder builder(Rank(0), 1);
  const auto on_host = [&](bool pinned) {
    (void)builder.allocate_on_host(Bytes(8), MemoryClass::Gradients, "b", pinned, "test");
  };
  on_host(true);
  on_host(false);
  (void)builder.allocate(Bytes(8), MemoryClass::Gradients, "b");
  const RankProgram rank = builder.finish();
  EXPECT_EQ(rank.buffers[0].place, MemoryPlace::PinnedHost);
  EXPECT_EQ(rank.buffers[1].place, MemoryPlace::Host);
  EXPECT_EQ(rank.buffers[2].place, MemoryPlace::Device);
}

// E7.8: an event on each stream that used the buffer, behind what that holds; none on its own
// stream, none on a stream that holds nothing.
TEST(RankProgramBuilder, ARecordedFreeDependsOnWhatTheOtherStreamsHold) {
  RankProgramBuilder builder(Rank(0), 1);
  const StreamId gather = builder.add_stream("all_gather");
  const StreamId idle = builder.add_stream("reduce");
  BufferId buffer = builder.allocate(Bytes(8), MemoryClass::LiveParameters, "b", gather);
  builder.kernel(gather, memory_kernel("k", Bytes(8)), HostWork::KernelLaunch, "test");
  const OpId last =
      builder.kernel(kComputeStream, memory_kernel("k", Bytes(8)), HostWork::KernelLaunch, "test");
  const std::vector<StreamId> used = {gather, kComputeStream, idle};
  builder.free_recorded(buffer, used, "C4.7");
  EXPECT_FALSE(buffer.valid());
  builder.free_recorded(buffer, used, "C4.7");  // nothing
  const RankProgram rank = builder.finish();
  ASSERT_EQ(rank.ops.size(), 4u);
  EXPECT_EQ(rank.ops.back().kind, OpKind::Free);
  ASSERT_EQ(rank.ops.back().dependency_count, 1u);
  EXPECT_EQ(rank.dependencies_of(rank.ops.back())[0], last);
}

TEST(CheckProgramDeathTest, NamesTheBrokenPromise) {
  {
    RankProgramBuilder builder(Rank(0), 1);
    builder.host_pass({"pass", Bytes(8)}, "test");
    builder.host({HostWork::ModuleCall}, "test");  // goes through no memory
    check_program(program_of(builder));
  }
  {
    RankProgramBuilder builder(Rank(0), 1);
    builder.host_pass({"pass", Bytes(8)}, "test");
    Program program = program_of(builder);
    program.ranks[0].ops[0].payload = 1;
    EXPECT_DEATH(check_program(program), "payload exists");
  }
  {
    RankProgramBuilder builder(Rank(0), 1);
    BufferId buffer = builder.allocate(Bytes(8), MemoryClass::Activations, "b");
    BufferId again = buffer;
    builder.free(buffer);
    builder.free(again);
    EXPECT_DEATH(check_program(program_of(builder)), "a buffer is freed once");
  }
  {
    RankProgramBuilder builder(Rank(0), 1);
    builder.kernel(kComputeStream, memory_kernel("k", Bytes(8)), HostWork::KernelLaunch, "test");
    Program program = program_of(builder);
    program.ranks[0].ops[0].payload = 7;
    EXPECT_DEATH(check_program(program), "payload exists");
  }
  {
    RankProgramBuilder builder(Rank(0), 2);
    builder.add_communicator(kWorld, "WORLD");
    builder.collective(kComputeStream, all_reduce(true), "test");
    Program program = program_of(builder);
    program.groups.clear();
    EXPECT_DEATH(check_program(program), "group exists");
  }
}

}  // namespace
}  // namespace zerosim
