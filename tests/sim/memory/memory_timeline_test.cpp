#include "sim/memory/memory_timeline.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace zerosim {
namespace {

constexpr int kFirst = 0;

Bytes of(const MemoryByClass& memory, MemoryClass memory_class) {
  return memory[static_cast<std::size_t>(memory_class)];
}

/// A program of one rank class that allocates and frees in the order of the calls.
class Script {
 public:
  Script() {
    program_.module_names = {"", "model.layers.0.mlp"};
    program_.ranks.emplace_back();
    program_.ranks.front().streams.push_back({"compute", GroupId()});
  }

  BufferId allocate(std::int64_t bytes, MemoryClass memory_class, Phase phase = Phase::Forward,
                    ModuleId module = ModuleId(), MemoryPlace place = MemoryPlace::Device) {
    RankProgram& rank = program_.ranks.front();
    rank.buffers.push_back({Bytes(bytes), memory_class, kComputeStream, "saved_activation", place});
    const BufferId id(rank.buffers.size() - 1);
    append(OpKind::Allocate, id, phase, module);
    return id;
  }

  void free(BufferId id) { append(OpKind::Free, id, Phase::Backward, ModuleId()); }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const RankProgram& rank() const { return program_.ranks.front(); }

 private:
  void append(OpKind kind, BufferId id, Phase phase, ModuleId module) {
    Op op;
    op.kind = kind;
    op.payload = id.value();
    op.phase = phase;
    op.module = module;
    program_.ranks.front().ops.push_back(op);
  }

  Program program_;
};

/// Gives every operation of the script to the ledger, one a second.
void play(const Script& script, MemoryLedger& ledger) {
  Seconds now{0};
  for (const Op& op : script.rank().ops) {
    const BufferId id(op.payload);
    const Buffer& buffer = script.rank().buffers[id.index()];
    const Seconds cost = op.kind == OpKind::Allocate
                             ? ledger.on_allocate(kFirst, id, buffer, op, now)
                             : ledger.on_free(kFirst, id, buffer, op, now);
    EXPECT_EQ(cost, Seconds(0));
    now += Seconds(1);
  }
}

TEST(RoundedAllocation, IsTheNextMultipleOf512) {  // E7.1
  EXPECT_EQ(rounded_allocation(Bytes(0)), Bytes(0));
  EXPECT_EQ(rounded_allocation(Bytes(1)), Bytes(512));
  EXPECT_EQ(rounded_allocation(Bytes(512)), Bytes(512));
  EXPECT_EQ(rounded_allocation(Bytes(513)), Bytes(1024));
  EXPECT_EQ(rounded_allocation(Bytes(1'000'000)), Bytes(1'000'448));  // worked example of E7
}

TEST(MemoryLedger, FindsPeakClassesPhaseAndOperation) {
  Script script;
  script.allocate(4096, MemoryClass::Parameters, Phase::Init);            // t = 0, 4096
  const BufferId bucket = script.allocate(8192, MemoryClass::Gradients);  // t = 1, 12288
  script.free(bucket);                                                    // t = 2,  4096
  script.allocate(1024, MemoryClass::Activations);                        // t = 3,  5120
  script.allocate(10'000, MemoryClass::Activations, Phase::Backward, ModuleId(std::int32_t{1}));
  // t = 4: 10,000 takes 20 x 512 = 10,240: 15,360
  const BufferId last = script.allocate(512, MemoryClass::Logits);   // t = 5, 15872
  script.free(last);                                                 // t = 6
  script.allocate(512, MemoryClass::TemporaryBuffers, Phase::Step);  // t = 7, 15872 again

  MemoryLedger ledger(script.program());
  play(script, ledger);
  const MemoryPeak peak = ledger.peak(kFirst);
  EXPECT_EQ(peak.allocated, Bytes(15'872));
  EXPECT_EQ(peak.at, Seconds(5));  // the first of two equal moments
  EXPECT_EQ(peak.phase, Phase::Forward);
  EXPECT_EQ(of(peak.by_class, MemoryClass::Parameters), Bytes(4096));
  EXPECT_EQ(of(peak.by_class, MemoryClass::Gradients), Bytes(0));
  EXPECT_EQ(of(peak.by_class, MemoryClass::Activations), Bytes(1024 + 10'240));
  EXPECT_EQ(of(peak.by_class, MemoryClass::Logits), Bytes(512));
  EXPECT_EQ(of(peak.class_peaks, MemoryClass::Gradients), Bytes(8192));
  EXPECT_EQ(of(peak.class_peaks, MemoryClass::TemporaryBuffers), Bytes(512));
  EXPECT_EQ(of(ledger.current(kFirst), MemoryClass::Logits), Bytes(0));
}

TEST(RoundedPinnedAllocation, IsTheNextPowerOfTwo) {  // E6: 9 GB take 16 GiB
  EXPECT_EQ(rounded_pinned_allocation(Bytes(0)), Bytes(0));
  EXPECT_EQ(rounded_pinned_allocation(Bytes(1)), Bytes(1));
  EXPECT_EQ(rounded_pinned_allocation(Bytes(4096)), Bytes(4096));
  EXPECT_EQ(rounded_pinned_allocation(Bytes(4097)), Bytes(8192));
  EXPECT_EQ(rounded_pinned_allocation(9_GB), 16_GiB);
  EXPECT_THROW(static_cast<void>(rounded_pinned_allocation(Bytes(INT64_MAX))), std::overflow_error);
}

// Host memory is a sum of its own: it is in no class and no peak of the device.
TEST(MemoryLedger, CountsHostMemoryApart) {
  Script script;
  const auto host = [&](std::int64_t bytes, MemoryPlace place) {
    return script.allocate(bytes, MemoryClass::OptimizerStates, Phase::Init, ModuleId(), place);
  };
  script.allocate(512, MemoryClass::Parameters, Phase::Init);
  host(5000, MemoryPlace::PinnedHost);                          // 8192
  const BufferId moments = host(700, MemoryPlace::Host);        // 8892
  script.free(moments);                                         // 8192
  const BufferId staging = host(130, MemoryPlace::PinnedHost);  // 8192 + 256 = 8448 < 8892

  MemoryLedger ledger(script.program(), true);
  play(script, ledger);
  EXPECT_EQ(ledger.current_host(kFirst), Bytes(8448));
  EXPECT_EQ(ledger.peak(kFirst).host, Bytes(8892));
  EXPECT_EQ(ledger.peak(kFirst).allocated, Bytes(512));
  EXPECT_EQ(of(ledger.peak(kFirst).class_peaks, MemoryClass::OptimizerStates), Bytes(0));
  EXPECT_EQ(ledger.samples(kFirst).size(), 1U);
  EXPECT_EQ(replay_memory(script.program()).host, Bytes(8892));
  EXPECT_TRUE(staging.valid());
}

TEST(MemoryLedger, NamesTheModuleOfTheRequest) {
  Script script;
  script.allocate(512, MemoryClass::Activations, Phase::Forward, ModuleId(std::int32_t{1}));
  EXPECT_EQ(replay_memory(script.program()).op, "saved_activation in model.layers.0.mlp");
  Script outside;
  outside.allocate(512, MemoryClass::Activations);
  EXPECT_EQ(replay_memory(outside.program()).op, "saved_activation");
}

TEST(MemoryLedger, SamplesEveryChangeWhenAsked) {
  Script script;
  const BufferId buffer = script.allocate(100, MemoryClass::Activations);
  script.free(buffer);
  MemoryLedger silent(script.program());
  play(script, silent);
  EXPECT_TRUE(silent.samples(kFirst).empty());

  MemoryLedger ledger(script.program(), true);
  play(script, ledger);
  ASSERT_EQ(ledger.samples(kFirst).size(), 2U);
  EXPECT_EQ(ledger.samples(kFirst)[0].allocated, Bytes(512));
  EXPECT_EQ(ledger.samples(kFirst)[1].allocated, Bytes(0));
  EXPECT_EQ(ledger.samples(kFirst)[1].at, Seconds(1));
}

TEST(MemoryLedger, KeepsRankClassesApart) {
  Program program;
  program.ranks.resize(2);
  for (RankProgram& rank : program.ranks) {
    rank.buffers.push_back({Bytes(512), MemoryClass::Parameters, kComputeStream, "parameters"});
  }
  MemoryLedger ledger(program);
  ledger.on_allocate(1, BufferId(std::int32_t{0}), program.ranks[1].buffers[0], Op{}, Seconds(0));
  EXPECT_EQ(ledger.peak(0).allocated, Bytes(0));
  EXPECT_EQ(ledger.peak(1).allocated, Bytes(512));
}

TEST(ReplayMemory, EqualsALedgerThatTheEngineDrives) {
  Script script;
  const BufferId first = script.allocate(5000, MemoryClass::Activations);
  script.allocate(700, MemoryClass::LiveParameters);
  script.free(first);
  MemoryLedger ledger(script.program());
  play(script, ledger);
  const MemoryPeak replayed = replay_memory(script.program());
  EXPECT_EQ(replayed.allocated, ledger.peak(kFirst).allocated);
  EXPECT_EQ(replayed.by_class, ledger.peak(kFirst).by_class);
  EXPECT_EQ(replayed.at, Seconds(0));  // without time
}

TEST(ReplayMemory, OfAProgramThatAllocatesNothing) {
  const Script script;
  const MemoryPeak peak = replay_memory(script.program());
  EXPECT_EQ(peak.allocated, Bytes(0));
  EXPECT_EQ(peak.op, "");
}

TEST(MemoryLedgerDeathTest, RefusesADoubleFree) {
  Script script;
  const BufferId buffer = script.allocate(512, MemoryClass::Activations);
  script.free(buffer);
  script.free(buffer);
  EXPECT_DEATH((void)replay_memory(script.program()),
               "a buffer is freed once, after its allocation");
}

TEST(MemoryLedgerDeathTest, RefusesASecondAllocation) {
  Script script;
  script.allocate(512, MemoryClass::Activations);
  MemoryLedger ledger(script.program());
  play(script, ledger);
  EXPECT_DEATH(play(script, ledger), "a buffer is allocated once");
}

}  // namespace
}  // namespace zerosim
