// The optimizer on the CPU at stages 1 and 2 (B6): buffers, copies and passes in elements worked
// out beside the tests; messages against the run without it.

#include "sim/program/optimizer_offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// B2's example: parameters of 10, 7 and 5 elements on 4 ranks: padded to 24, S = 6. Rank 1 stands
// for all: it has p0[6:10] and p1[0:2], so 4 elements of p0 and 2 of p1.
Model small() {
  return test::chain({10, 7, 5});
}
constexpr int kRanks = 4;

Strategy offloaded(int stage, std::int64_t grad_accum = 1) {
  Strategy strategy = test::deepspeed(stage);
  strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  strategy.grad_accum = grad_accum;
  return strategy;
}

Strategy without_offload(Strategy strategy) {
  strategy.zero.offload_optimizer.device = OffloadDevice::None;
  return strategy;
}

using test::buffers_at;
using test::payload;
using test::rank_of;

// B6.1 with S = 6, bf16, largest parameter 10: 4 S, 4 S, 2 S and 2 x 10 bytes page-locked, moments
// 8 S ordinary; on the device 2 x 10.
TEST(OptimizerOffload, KeepsStatesOnTheHost) {
  for (const int stage : {1, 2}) {
    const Program program = test::build(small(), offloaded(stage), kRanks);
    EXPECT_THAT(buffers_at(program, MemoryPlace::PinnedHost),
                ElementsAre("master_weights 24", "fp32_gradients 24", "weights_staging 12",
                            "gradient_staging 20"));
    EXPECT_THAT(buffers_at(program, MemoryPlace::Host), ElementsAre("exp_avg 24", "exp_avg_sq 24"));
    Bytes temporary;
    for (const Buffer& buffer : rank_of(program).buffers) {
      if (buffer.place != MemoryPlace::Device) continue;
      EXPECT_NE(buffer.memory_class, MemoryClass::OptimizerStates) << buffer.owner;
      EXPECT_NE(buffer.owner, "partition_gradients");
      if (buffer.owner == "offload_gradient") temporary += buffer.bytes;
    }
    EXPECT_EQ(temporary, Bytes(20));
  }
}

TEST(OptimizerOffload, WithoutPinMemoryEverythingIsPageableAndCopiesBlock) {  // B6.1
  Strategy strategy = offloaded(2);
  strategy.zero.offload_optimizer.pin_memory = false;
  const Program program = test::build(small(), strategy, kRanks);
  EXPECT_THAT(buffers_at(program, MemoryPlace::PinnedHost), IsEmpty());
  EXPECT_EQ(buffers_at(program, MemoryPlace::Host).size(), 6u);
  const RankProgram& rank = rank_of(program);
  int copies = 0;
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    if (rank.ops[i].kind != OpKind::Copy) continue;
    ++copies;
    EXPECT_FALSE(rank.copies[payload(rank.ops[i])].pinned);
    ASSERT_EQ(rank.ops[i + 1].kind, OpKind::HostWait);
    EXPECT_THAT(rank.dependencies_of(rank.ops[i + 1]), ElementsAre(OpId(i)));
  }
  EXPECT_GT(copies, 0);
}

// B6.2 at the boundary. Gradients arrive in reverse: p2 is not mine; of p1 (7 elements) 2 are, of
// p0 (10) 4. Norm: an fp64 copy of my slice, (2 + 8 + 8) bytes an element. Overflow: the whole
// parameter, (2 + 12 + 3) an element, and the host reads 4 bytes. Cast (2 + 4) and 4 bytes down of
// my slice.
TEST(OptimizerOffload, BoundaryMeasuresTestsAndCopiesMySlice) {
  for (const int stage : {1, 2}) {
    const Program program = test::build(small(), offloaded(stage), kRanks);
    const std::vector<std::string> p1 = {
        "gradient_norm 36", "overflow_check 119", "down 4", "wait", "cast 12", "down 8"};
    const std::vector<std::string> p0 = {
        "gradient_norm 72", "overflow_check 170", "down 4", "wait", "cast 24", "down 16"};
    std::vector<std::string> expected = stage == 2 ? p1 : p0;  // stage 1 walks in order (B3.2)
    const std::vector<std::string>& second = stage == 2 ? p0 : p1;
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_THAT(test::events(program, "B6.2"), ElementsAreArray(expected));
  }
}

// B6.2, stage 2 over three micro batches: the first goes down whole, the second comes up (2 n),
// is added (3 x 2 n) and goes down again, the last is added and goes down as fp32 only.
TEST(OptimizerOffload, Stage2AccumulatesOnTheHost) {
  const Program program = test::build(small(), offloaded(2, 3), kRanks);
  EXPECT_THAT(test::events(program, "B6.2", 0), ElementsAre("down 14", "down 20"));
  EXPECT_THAT(test::events(program, "B6.2", 1), ElementsAre("up 14", "accumulate 42", "down 14",
                                                            "up 20", "accumulate 60", "down 20"));
  EXPECT_THAT(
      test::events(program, "B6.2", 2),
      ElementsAre("up 14", "accumulate 42", "gradient_norm 36", "overflow_check 119", "down 4",
                  "wait", "cast 12", "down 8", "up 20", "accumulate 60", "gradient_norm 72",
                  "overflow_check 170", "down 4", "wait", "cast 24", "down 16"));
  // One buffer for each parameter that touches my partition, whole, allocated once.
  EXPECT_THAT(
      buffers_at(program, MemoryPlace::PinnedHost),
      ElementsAre("master_weights 24", "fp32_gradients 24", "weights_staging 12",
                  "gradient_staging 20", "accumulated_gradient 14", "accumulated_gradient 20"));
}

// Stage 1 accumulates on the device: nothing moves before the boundary, and nothing comes up (the
// recorded run ds_s1_bf16_offload_gas4_w2 holds no accumulated gradient on the host).
TEST(OptimizerOffload, Stage1AccumulatesOnTheDevice) {
  const Program program = test::build(small(), offloaded(1, 3), kRanks);
  EXPECT_THAT(test::events(program, "B6.2", 0), IsEmpty());
  EXPECT_THAT(test::events(program, "B6.2", 1), IsEmpty());
  EXPECT_EQ(test::events(program, "B6.2", 2),
            test::events(test::build(small(), offloaded(1), kRanks), "B6.2"));
}

TEST(OptimizerOffload, CopiesRunOnTheReductionStream) {  // 0.6
  for (const bool overlap : {false, true}) {
    Strategy strategy = offloaded(2);
    strategy.zero.overlap_comm = overlap;
    const Program program = test::build(small(), strategy, kRanks);
    StreamId stream;
    (void)test::events(program, "B6.2", 0, &stream);
    EXPECT_EQ(rank_of(program).streams[stream.index()].name, overlap ? "reduce" : "compute");
  }
}

// B6.3 with S = 6: the flag goes up (1 byte); two norms of 8 bytes are read, their sum goes up and
// comes back all-reduced; scale 8 S, Adam 28 S, cast (4 + 2) S, 2 S up.
TEST(OptimizerOffload, TheStepGoesThroughHostMemory) {
  const Program program = test::build(small(), offloaded(2), kRanks);
  EXPECT_THAT(
      test::events(program, "B6.3"),
      ElementsAre("up 1", "wait", "down 8", "wait", "down 8", "wait", "up 4", "wait", "down 4",
                  "wait", "scale 48", "cpu_adam 168", "cast_weights 36", "up 12"));
  // In fp32 nothing is cast on the device, and the flag does not exist (rule 16).
  Strategy fp32 = offloaded(2);
  fp32.precision = Precision::Fp32;
  fp32.communication_dtype = fp32.grad_accum_dtype = Dtype::F32;
  EXPECT_THAT(test::events(test::build(small(), fp32, kRanks), "B6.3"),
              ElementsAre("down 8", "wait", "down 8", "wait", "up 4", "wait", "down 4", "wait",
                          "scale 48", "cpu_adam 168", "cast_weights 48", "up 24"));
}

// The weights are gathered once they have come up: the gather waits for the copy.
TEST(OptimizerOffload, TheGatherFollowsTheCopy) {
  const Program program = test::build(small(), offloaded(2), kRanks);
  const RankProgram& rank = rank_of(program);
  OpId copy;
  int gathers = 0;
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    const Op& op = rank.ops[i];
    if (op.kind == OpKind::Copy) copy = OpId(i);
    if (op.rule == "B5.2" && op.kind == OpKind::Collective) {
      ++gathers;
      EXPECT_THAT(rank.dependencies_of(op), ElementsAre(copy));
    }
  }
  EXPECT_EQ(gathers, 1);
}

// torch's own AdamW on the CPU (zero_force_ds_cpu_optimizer false) makes more passes and a
// temporary, as on the device (kernels.md section 1).
TEST(OptimizerOffload, TorchAdamGoesThroughMoreMemory) {
  Strategy strategy = offloaded(2);
  strategy.optimizer = OptimizerKind::AdamTorchForeach;
  const Program program = test::build(small(), strategy, kRanks);
  EXPECT_THAT(test::events(program, "B6.3"), testing::Contains("cpu_adam 420"));  // 70 x 6
  EXPECT_THAT(buffers_at(program, MemoryPlace::Host),
              ElementsAre("exp_avg 24", "exp_avg_sq 24", "adam_root 24"));
}

// Several optimizer groups: buffers, norm and step of each. Matrix 10 -> 16, S = 4; vectors 7 + 5 =
// 12 -> 16, S = 4; one staging buffer for gradients.
TEST(OptimizerOffload, EachOptimizerGroupHasItsOwn) {
  Model model = small();
  model.parameters[0].shape = {10, 1};
  Strategy strategy = offloaded(2);
  strategy.optimizer_groups = OptimizerGroups::ByDimension;
  const Program program = test::build(model, strategy, kRanks);
  EXPECT_THAT(buffers_at(program, MemoryPlace::PinnedHost),
              ElementsAre("master_weights 16", "fp32_gradients 16", "weights_staging 8",
                          "master_weights 16", "fp32_gradients 16", "weights_staging 8",
                          "gradient_staging 20"));
  EXPECT_THAT(buffers_at(program, MemoryPlace::Host),
              ElementsAre("exp_avg 16", "exp_avg_sq 16", "exp_avg 16", "exp_avg_sq 16"));
  std::vector<std::string> passes;
  for (const HostPass& pass : rank_of(program).host_passes) {
    passes.push_back(std::string(pass.name) + " " + std::to_string(pass.bytes.count()));
  }
  EXPECT_THAT(passes, ElementsAre("scale 32", "cpu_adam 112", "cast_weights 24", "scale 32",
                                  "cpu_adam 112", "cast_weights 24"));
}

TEST(OptimizerOffload, FirstStepMakesMomentsInTheStep) {  // B2.6
  for (const int first_step : {0, 2}) {
    const Program program = test::build(small(), offloaded(2), kRanks, first_step);
    for (const Op& op : rank_of(program).ops) {
      if (op.kind == OpKind::Allocate && rank_of(program).buffers[payload(op)].owner == "exp_avg") {
        EXPECT_EQ(op.phase, first_step == 0 ? Phase::Step : Phase::Init);
      }
    }
  }
}

/// Operation, sizes, type, phase and micro step of every message.
std::vector<std::string> messages(const Program& program) {
  std::vector<std::string> lines;
  for (const Op& op : rank_of(program).ops) {
    if (op.kind != OpKind::Collective) continue;
    const Collective& c = rank_of(program).collectives[payload(op)];
    lines.push_back(std::string(to_string(c.kind)) + " " + std::to_string(c.input_elements) + " " +
                    std::to_string(c.output_elements) + " " + std::string(to_string(c.dtype)) +
                    " " + std::string(to_string(op.phase)) + " " + std::to_string(op.micro_step) +
                    " " + std::to_string(c.root));
  }
  return lines;
}

// Rules 15, 90: the messages, their order and sizes are those without offload.
TEST(OptimizerOffload, MessagesAreThoseWithoutIt) {
  const Model model = test::chain({100, 1200, 300, 500, 400});
  for (const int stage : {1, 2}) {
    for (const bool overlap : {false, true}) {
      for (const bool owners : {false, true}) {
        Strategy strategy = offloaded(stage, 4);
        strategy.zero.reduce_bucket_size = 1000;
        strategy.zero.overlap_comm = overlap;
        strategy.zero.use_multi_rank_bucket_allreduce = !owners;
        EXPECT_EQ(messages(test::build(model, strategy, kRanks)),
                  messages(test::build(model, without_offload(strategy), kRanks)));
      }
    }
  }
}

// B5: an overflow ends the step after the flag; what the host has measured goes all the same.
TEST(OptimizerOffload, AnOverflowUpdatesNothing) {
  Strategy strategy = offloaded(2);
  strategy.precision = Precision::Fp16;
  strategy.communication_dtype = strategy.grad_accum_dtype = Dtype::F16;
  BatchShape batch;
  batch.sequence = 16;
  BuildOptions options{.world_size = kRanks, .first_step = 0, .steps = 2};
  strategy.overflow_steps = 1;
  const Program program = build_program(small(), strategy, batch, options);
  int live = 0;
  for (const Op& op : rank_of(program).ops) {
    if (op.kind == OpKind::Host && op.payload >= 0) {
      EXPECT_EQ(op.step, 1);
    }
    if (op.kind == OpKind::Allocate || op.kind == OpKind::Free) {
      const Buffer& buffer = rank_of(program).buffers[payload(op)];
      if (buffer.bytes != Bytes(8) || buffer.owner != "gradient_norm") continue;
      live += op.kind == OpKind::Allocate ? 1 : -1;
      EXPECT_LE(live, 2) << "the norms of two parameters, of one step";
    }
  }
  EXPECT_EQ(live, 0);
}

// A2: NVMe is read as CPU below stage 3, so it is the same run.
TEST(OptimizerOffload, NvmeIsCpuBelowStage3) {
  const Model model = small();
  const auto parse = [&](const std::string& device) {
    return parse_deepspeed_config(R"({"train_batch_size": 4, "bf16": {"enabled": true},
        "optimizer": {"type": "AdamW", "params": {}},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": ")" +
                                      device + R"(", "nvme_path": "/x"}}})",
                                  "f.json", {}, model, kRanks);
  };
  const Program cpu = test::build(model, parse("cpu"), kRanks);
  const Program nvme = test::build(model, parse("nvme"), kRanks);
  EXPECT_EQ(messages(cpu), messages(nvme));
  EXPECT_EQ(test::events(cpu, "B6.2"), test::events(nvme, "B6.2"));
  EXPECT_EQ(test::events(cpu, "B6.3"), test::events(nvme, "B6.3"));
  EXPECT_EQ(buffers_at(cpu, MemoryPlace::PinnedHost), buffers_at(nvme, MemoryPlace::PinnedHost));
  EXPECT_FALSE(test::events(nvme, "B6.3").empty());
}

// B5 reaches the device without offload only.
TEST(OptimizerOffload, WithoutItNothingTouchesTheHost) {
  const Program program = test::build(small(), without_offload(offloaded(2)), kRanks);
  EXPECT_FALSE(uses_host_memory(program));
  EXPECT_TRUE(uses_host_memory(test::build(small(), offloaded(2), kRanks)));
  EXPECT_TRUE(rank_of(program).copies.empty());
  std::vector<bool> on_device;
  for (const Buffer& buffer : rank_of(program).buffers) {
    on_device.push_back(buffer.place == MemoryPlace::Device);
  }
  EXPECT_THAT(on_device, Each(true));
}

}  // namespace
}  // namespace zerosim
