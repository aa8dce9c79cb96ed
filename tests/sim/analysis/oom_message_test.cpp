#include "sim/analysis/oom_message.h"

#include <cstdint>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/memory/caching_allocator.h"

namespace zerosim {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace literals;

constexpr const char* kOld =
    "CUDA out of memory. Tried to allocate 3.14 GiB (GPU 2; 31.75 GiB total capacity; 28.28 GiB "
    "already allocated; 1.95 GiB free; 28.30 GiB reserved in total by PyTorch)";
constexpr const char* kNew =
    "CUDA out of memory. Tried to allocate 3.74 GiB. GPU 3 has a total capacity of 79.15 GiB of "
    "which 1.33 GiB is free. Including non-PyTorch memory, this process has 77.80 GiB memory in "
    "use. Of the allocated memory 57.88 GiB is allocated by PyTorch, and 17.62 GiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

double gib(const std::optional<PrintedSize>& size) {
  return size ? size->bytes.gib() : -1;
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_oom_messages(text, "log.txt");
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

TEST(PrintedSizes, HalfOfTheLastDigit) {
  // 3.14 GiB: 3.14 x 1073741824 = 3371549327.4, give or take 0.005 x 1073741824 = 5368709.12.
  const auto size = parse_printed_size("3.14 GiB");
  ASSERT_TRUE(size);
  EXPECT_EQ(size->bytes, Bytes(3'371'549'327));
  EXPECT_EQ(size->tolerance, Bytes(5'368'710));
  EXPECT_TRUE(size->covers(Bytes(3'376'918'037)));
  EXPECT_FALSE(size->covers(Bytes(3'376'918'038)));
  EXPECT_EQ(parse_printed_size("512 bytes")->tolerance, Bytes(0));
  EXPECT_EQ(parse_printed_size("388.00 MiB free")->bytes, 388_MiB);
}

TEST(PrintedSizes, WhatIsNone) {
  for (const char* text : {"", "GiB", "3.14", "3.14 GB", "-3.14 GiB", "1048576 GiB", "nan GiB"}) {
    EXPECT_FALSE(parse_printed_size(text)) << text;
  }
}

TEST(PrintedSizes, GibOfATable) {
  // 0.379 GiB: 388.1 MiB +- 0.0005 GiB = 0.512 MiB: covers 388 MiB.
  EXPECT_TRUE(printed_gib(0.379).covers(388_MiB));
  EXPECT_EQ(printed_gib(49).tolerance, 512_MiB);
  EXPECT_THROW((void)printed_gib(-1), ConfigError);
}

TEST(OomMessages, OldWording) {
  const OomMessage message = parse_oom_message(kOld, "stdin");
  EXPECT_EQ(message.device, 2);
  EXPECT_NEAR(message.request.bytes.gib(), 3.14, 1e-9);
  EXPECT_NEAR(gib(message.total), 31.75, 1e-9);
  EXPECT_NEAR(gib(message.allocated), 28.28, 1e-9);
  EXPECT_NEAR(gib(message.free), 1.95, 1e-9);
  EXPECT_NEAR(gib(message.reserved), 28.30, 1e-9);
  EXPECT_FALSE(message.process);
  EXPECT_FALSE(message.rank);
  EXPECT_FALSE(message.phase);
}

TEST(OomMessages, NewWording) {
  const OomMessage message = parse_oom_message(kNew, "stdin");
  EXPECT_EQ(message.device, 3);
  EXPECT_NEAR(gib(message.total), 79.15, 1e-9);
  EXPECT_NEAR(gib(message.free), 1.33, 1e-9);
  EXPECT_NEAR(gib(message.process), 77.80, 1e-9);
  EXPECT_NEAR(gib(message.allocated), 57.88, 1e-9);
  // 57.88 + 17.62 = 75.50, each give or take 0.005.
  EXPECT_NEAR(gib(message.reserved), 75.50, 1e-8);
  EXPECT_NEAR(message.reserved->tolerance.gib(), 0.01, 1e-8);
}

TEST(OomMessages, CachedBefore14IsWhatIsNotAllocated) {
  const OomMessage message = parse_oom_message(
      "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total "
      "capacity; 10.62 GiB already allocated; 13.88 MiB free; 76.50 MiB cached)",
      "stdin");
  EXPECT_NEAR(gib(message.reserved), 10.62 + 76.5 / 1024, 1e-8);
}

TEST(OomMessages, OtherProcessesPrivatePoolsAndWhatTheDriverDoesNotTell) {
  const OomMessage message = parse_oom_message(
      "HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 23.68 GiB of "
      "which 7.00 MiB is free. Process 11 has 4.00 GiB memory in use. Process 12 has 1.50 GiB "
      "memory in use. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in "
      "use. 20.00 GiB allowed; Of the allocated memory 17.00 GiB is allocated by PyTorch, with "
      "1.00 GiB allocated in private pools (e.g., CUDA Graphs), and 300.00 MiB is reserved by "
      "PyTorch but unallocated.",
      "stdin");
  EXPECT_NEAR(gib(message.others), 5.5, 1e-9);
  EXPECT_FALSE(message.process);
  EXPECT_NEAR(gib(message.allowed), 20, 1e-9);
  EXPECT_NEAR(gib(message.allocated), 17, 1e-9);
  EXPECT_NEAR(gib(message.reserved), 17 + 300.0 / 1024, 1e-8);
}

/// A message whose processes are only listed; 70 + 7 GiB are PyTorch's.
OomMessage of_container(const std::string& processes) {
  return parse_oom_message(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
      "which 1.00 GiB is free. " +
          processes +
          " Of the allocated memory 70.00 GiB is allocated by PyTorch, and 7.00 GiB is reserved by "
          "PyTorch but unallocated.",
      "stdin");
}

TEST(OomMessages, AContainerListsItsOwnProcessAmongTheOthers) {
  // 78.1 + 77 + 1 GiB are more than 79.15: process 12 is the one that has the 77.
  const OomMessage alone = of_container("Process 12 has 78.1 GiB memory in use.");
  EXPECT_NEAR(gib(alone.process), 78.1, 1e-9);
  EXPECT_FALSE(alone.others);
  const OomMessage two = of_container(
      "Process 11 has 512.00 MiB memory in use. Process 12 has 77.60 GiB memory in use.");
  EXPECT_NEAR(gib(two.process), 77.6, 1e-9);
  EXPECT_NEAR(gib(two.others), 0.5, 1e-9);
  // 1 + 77 + 1 GiB are no more than 79.15: another process, and this one is not listed.
  const OomMessage other = of_container("Process 11 has 1.00 GiB memory in use.");
  EXPECT_FALSE(other.process);
  EXPECT_NEAR(gib(other.others), 1, 1e-9);
}

TEST(OomMessages, OfTwoProcessesThatMayBeTheOwnNeitherIsTold) {
  const OomMessage message = parse_oom_message(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
      "which 1.00 GiB is free. Process 11 has 38.00 GiB memory in use. Process 12 has 40.00 GiB "
      "memory in use. Of the allocated memory 30.00 GiB is allocated by PyTorch, and 2.00 GiB is "
      "reserved by PyTorch but unallocated.",
      "stdin");
  EXPECT_FALSE(message.process);
  EXPECT_FALSE(message.others);
}

TEST(OomMessages, SeveralRanksWithTracebacksInNoise) {
  const std::string log = std::string("step 1 loss 2.3\n") +
                          "[rank1]: Traceback (most recent call last):\n"
                          "[rank0]: Traceback (most recent call last):\n"
                          "[rank1]:   File \"train.py\", line 10, in <module>\n"
                          "[rank1]:     trainer.train()\n"
                          "[rank0]:   File \"train.py\", line 10, in <module>\n"
                          "[rank1]:   File \"/x/accelerate/accelerator.py\", line 7, in backward\n"
                          "[rank1]:     self.engine.backward(loss)\n"
                          "[rank1]:   File \"/x/torch/optim/adam.py\", line 419, in step\n"
                          "[rank1]:     denom = (exp_avg_sq.sqrt() / bias).add_(eps)\n"
                          "[rank1]: torch.OutOfMemoryError: " +
                          kNew + "\n[rank0]: torch.OutOfMemoryError: " + kNew + "\n";
  const std::vector<OomMessage> messages = parse_oom_messages(log, "log.txt");
  ASSERT_THAT(messages, SizeIs(2));
  EXPECT_EQ(messages[0].rank, 1);
  EXPECT_EQ(messages[1].rank, 0);
  ASSERT_THAT(messages[0].traceback, SizeIs(3));
  EXPECT_EQ(messages[0].traceback[2].function, "step");
  EXPECT_EQ(messages[0].traceback[2].line, 419);
  EXPECT_THAT(messages[0].traceback[2].code, HasSubstr("exp_avg_sq.sqrt()"));
  // The step is called inside of accelerate's backward.
  EXPECT_EQ(messages[0].phase, Phase::Step);
  EXPECT_FALSE(messages[1].phase);
  EXPECT_EQ(messages[0].where.line, 11);
  EXPECT_EQ(messages[0].where.column, 54);
}

TEST(OomMessages, BrokenLines) {
  const OomMessage message = parse_oom_message(
      "[rank7]: RuntimeError: CUDA out of memory. Tried to allocate 3.14\n[rank7]: GiB (GPU 0; "
      "31.75 GiB total\n[rank7]:   capacity; 28.28 GiB already\nallocated; 1.95 GiB free; 28.30 "
      "GiB reserved in total by PyTorch)",
      "stdin");
  EXPECT_EQ(message.rank, 7);
  EXPECT_NEAR(gib(message.total), 31.75, 1e-9);
  EXPECT_NEAR(gib(message.allocated), 28.28, 1e-9);
}

TEST(OomMessages, PhaseByTraceback) {
  const auto phase = [](const std::string& frames) {
    return parse_oom_message("Traceback (most recent call last):\n" + frames + kOld, "x").phase;
  };
  EXPECT_EQ(phase("  File \"m.py\", line 1, in forward\n    return x\n"), Phase::Forward);
  EXPECT_EQ(phase("  File \"t.py\", line 1, in f\n    loss.backward()\n"
                  "  File \"m.py\", line 1, in forward\n    return x\n"),
            Phase::Backward);
  EXPECT_EQ(phase("  File \"t.py\", line 1, in f\n    optimizer.step()\n"), Phase::Step);
  EXPECT_EQ(phase("  File \"/d/deepspeed/stage3.py\", line 1, in initialize_optimizer_states\n"
                  "    self.optimizer.step()\n"),
            Phase::Init);
  EXPECT_EQ(phase("  File \"m.py\", line 1, in f\n    return x\n"), std::nullopt);
}

TEST(OomMessages, BadInput) {
  EXPECT_EQ(error_of(" \n"),
            "log.txt: found nothing, expected PyTorch's \"CUDA out of memory. Tried to allocate "
            "...\"");
  EXPECT_EQ(error_of("all is well"),
            "log.txt: found no out-of-memory message, expected PyTorch's \"CUDA out of memory. "
            "Tried to allocate ...\"");
  EXPECT_EQ(error_of("a\n RuntimeError: CUDA error: out of memory"),
            "log.txt:2:16: found a driver's error without figures, expected PyTorch's \"CUDA out "
            "of memory. Tried to allocate ...\"");
  EXPECT_THAT(error_of("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"),
              HasSubstr("log.txt:1:30: found a message about host memory"));
  EXPECT_EQ(error_of("x\nTried to allocate twelve apples (GPU 0"),
            "log.txt:2:1: found \"twelve apples (GPU 0\" as what was tried to allocate, expected a "
            "size such as \"3.14 GiB\"");
  EXPECT_EQ(error_of("Tried to allocate 3.14 GiB (GPU 0; 31.75 TiB total capacity)"),
            "log.txt:1:1: found \"31.75 TiB\" as the total capacity, expected a size such as "
            "\"3.14 GiB\"");
}

/// What the allocator writes is read back, each figure as it was printed.
TEST(OomMessages, RoundTripWithTheAllocatorsTexts) {
  std::mt19937_64 random(1);
  const auto any = [&] {
    return Bytes(static_cast<std::int64_t>(random() >> (24 + random() % 30)));
  };
  for (int i = 0; i < 2000; ++i) {
    OutOfMemory error;
    error.segment = any();
    error.total = any();
    error.free = any();
    error.other = any();
    if (i % 3 == 0) error.allowed = any();
    error.stats.allocated.current = any();
    error.stats.reserved.current = error.stats.allocated.current + any();
    const auto style = static_cast<OutOfMemoryStyle>(i % 4);
    const std::string text = out_of_memory_text(error, style, i % 8);
    SCOPED_TRACE(text);
    const OomMessage read = parse_oom_message("noise\n" + text + "\nnoise 1.00 GiB free", "x");
    EXPECT_EQ(read.device, i % 8);
    EXPECT_TRUE(read.request.covers(error.segment));
    ASSERT_TRUE(read.total && read.allocated && read.reserved && read.free);
    EXPECT_TRUE(read.total->covers(error.total));
    EXPECT_TRUE(read.allocated->covers(error.stats.allocated.current));
    EXPECT_TRUE(read.reserved->covers(error.stats.reserved.current));
    EXPECT_TRUE(read.free->covers(error.free));
    EXPECT_EQ(read.allowed.has_value(), error.allowed.has_value());
    EXPECT_TRUE(!read.allowed || read.allowed->covers(*error.allowed));
    EXPECT_EQ(read.process.has_value(), style >= OutOfMemoryStyle::Torch21);
    EXPECT_TRUE(!read.process || read.process->covers(error.other + error.stats.reserved.current));
  }
}

}  // namespace
}  // namespace zerosim
