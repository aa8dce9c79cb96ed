#include "sim/memory/memory_course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/builder.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
/// Two steps: weights of 10 MiB at the start; in each step 6 MiB, and 4 MiB of host memory, which
/// are both given back.
Program two_steps() {
  RankProgramBuilder builder(Rank(0), 1);
  builder.set_phase(Phase::Init);
  static_cast<void>(builder.allocate(10_MiB, MemoryClass::Parameters, "weights"));
  for (int step = 0; step < 2; ++step) {
    builder.set_step(step, 0);
    builder.set_phase(Phase::Forward);
    builder.set_module(ModuleId(1));
    BufferId saved = builder.allocate(6_MiB, MemoryClass::Activations, "saved");
    BufferId host =
        builder.allocate_on_host(4_MiB, MemoryClass::Gradients, "host", /*pinned=*/true, "test");
    builder.set_phase(Phase::Backward);
    builder.free(saved);
    builder.free(host);
  }
  Program program;
  program.steps = 2;
  program.module_names = {"", "layer"};
  program.ranks.push_back(builder.finish());
  check_program(program);
  return program;
}

AllocatorSetup setup_of(Bytes capacity) {
  AllocatorSetup setup;
  setup.allocator.capacity = capacity;
  return setup;
}

TEST(MemoryCourse, IsEveryChangeOnTheDevice) {
  const Program program = two_steps();
  const std::vector<MemoryEvent> course = memory_course(program, setup_of(1_GiB));
  std::vector<std::string> owners;
  std::vector<std::int64_t> changes;
  std::vector<Bytes> allocated;
  std::vector<Bytes> reserved;
  for (const MemoryEvent& event : course) {
    owners.emplace_back(event.owner);
    changes.push_back(event.bytes.count() / (1 << 20));
    allocated.push_back(event.allocated);
    reserved.push_back(event.reserved);
    EXPECT_FALSE(event.flushed || event.failed);
  }
  EXPECT_THAT(owners, ElementsAre("weights", "saved", "saved", "saved", "saved"));
  EXPECT_THAT(changes, ElementsAre(10, 6, -6, 6, -6));
  EXPECT_THAT(allocated, ElementsAre(10_MiB, 16_MiB, 10_MiB, 16_MiB, 10_MiB));
  // 10 MiB is a segment of its own, 6 MiB is part of one of 20 MiB (E7.4).
  EXPECT_THAT(reserved, ElementsAre(10_MiB, 30_MiB, 30_MiB, 30_MiB, 30_MiB));
  EXPECT_EQ(peak_of(course), 1U);
}

TEST(MemoryCourse, SaysWhereInTheJob) {
  const Program program = two_steps();
  const std::vector<MemoryEvent> course = memory_course(program, setup_of(1_GiB));
  ASSERT_EQ(course.size(), 5U);
  EXPECT_EQ(course[0].phase, Phase::Init);
  EXPECT_EQ(course[3].phase, Phase::Forward);
  EXPECT_EQ(course[3].step, 1);
  EXPECT_EQ(course[3].module, ModuleId(1));
  EXPECT_EQ(course[4].phase, Phase::Backward);
  EXPECT_EQ(course[4].memory_class, MemoryClass::Activations);
}

TEST(MemoryCourse, ClassesSumToWhatIsAllocated) {
  const Program program = two_steps();
  for (const MemoryEvent& event : memory_course(program, setup_of(1_GiB))) {
    Bytes sum;
    for (const Bytes bytes : event.by_class) sum += bytes;
    EXPECT_EQ(sum, event.allocated);
  }
}

TEST(MemoryCourse, GoesOnBehindTheFirstFailure) {
  // 20 MiB hold the weights, but no segment for 6 MiB beside them: the flush finds nothing.
  const Program program = two_steps();
  const std::vector<MemoryEvent> course = memory_course(program, setup_of(20_MiB));
  std::vector<bool> failed;
  for (const MemoryEvent& event : course) failed.push_back(event.failed);
  EXPECT_THAT(failed, ElementsAre(false, true, false, false, false));
  EXPECT_TRUE(course[1].flushed);
  EXPECT_EQ(course[1].reserved, 30_MiB);  // without limit
}

TEST(MemoryCourse, ShowsAnEmptiedCache) {  // E7.14
  RankProgramBuilder builder(Rank(0), 1);
  BufferId buffer = builder.allocate(10_MiB, MemoryClass::Parameters, "weights");
  builder.free(buffer);
  builder.empty_cache("test");
  Program program;
  program.ranks.push_back(builder.finish());
  const std::vector<MemoryEvent> course = memory_course(program, setup_of(1_GiB));
  ASSERT_EQ(course.size(), 3U);
  EXPECT_EQ(course[1].reserved, 10_MiB);
  EXPECT_FALSE(course[1].emptied);
  EXPECT_TRUE(course[2].emptied);
  EXPECT_EQ(course[2].reserved, Bytes(0));
  EXPECT_EQ(course[2].owner, "");
}

}  // namespace
}  // namespace zerosim
