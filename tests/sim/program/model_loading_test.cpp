// The initialisation of a job: checkpoint, whole model, flattening, partitioning (B2.5, C1.3, E3).

#include "sim/program/model_loading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;

/// "+ flat_parameters 48", "- whole_model 20", "empty" of the initialisation, device and host.
std::vector<std::string> initialisation(const Program& program) {
  std::vector<std::string> words;
  const RankProgram& rank = program.ranks[0];
  for (const Op& op : rank.ops) {
    if (op.phase != Phase::Init) break;
    if (op.kind == OpKind::EmptyCache) words.emplace_back("empty");
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
    words.push_back(format("{} {}{}", op.kind == OpKind::Allocate ? "+" : "-", buffer.owner,
                           op.kind == OpKind::Allocate ? format(" {}", buffer.bytes.count()) : ""));
  }
  return words;
}

Program first_steps(const Model& model, const Strategy& strategy,
                    std::optional<Bytes> device_memory = {}, std::optional<Dtype> load_dtype = {}) {
  BuildOptions options;
  options.world_size = 2;
  options.first_step = 0;
  options.device_memory = device_memory;
  options.load_dtype = load_dtype;
  BatchShape batch;
  batch.sequence = 1;
  batch.compute = model_dtype(strategy.precision);
  return build_program(model, strategy, batch, options);
}

// 10 + 4 elements in bf16 on 2 ranks: 14 -> padded 16, S = 8. Both are there before they are
// flattened; the master weights of 8 x 4 bytes come from a clone of 8 x 2.
TEST(ModelLoading, FlattensBesideTheModel) {
  const Strategy strategy = test::deepspeed(2);
  EXPECT_THAT(initialisation(first_steps(test::chain({10, 4}), strategy)),
              ElementsAre("+ checkpoint 28", "+ whole_model 20", "+ whole_model 8", "- checkpoint",
                          "+ flat_parameters 32", "- whole_model", "- whole_model",
                          "+ partition_clone 16", "+ master_weights 32", "- partition_clone"));
}

// 28 bytes of model and 32 flat ones are 60: with 59 the model goes through the host first.
TEST(ModelLoading, FlattensThroughTheHostWhereTheGpuIsFull) {
  const Strategy strategy = test::deepspeed(2);
  const Model model = test::chain({10, 4});
  EXPECT_EQ(initialisation(first_steps(model, strategy, Bytes(60))),
            initialisation(first_steps(model, strategy)));
  EXPECT_THAT(
      initialisation(first_steps(model, strategy, Bytes(59))),
      ElementsAre("+ checkpoint 28", "+ whole_model 20", "+ whole_model 8", "- checkpoint",
                  "+ parameter_copies 32", "- whole_model", "- whole_model", "empty",
                  "+ flat_copy 32", "- parameter_copies", "+ flat_parameters 32", "- flat_copy",
                  "+ partition_clone 16", "+ master_weights 32", "- partition_clone"));
}

// Pieces of 5 and 2 elements; inside zero.Init one parameter at a time is whole, and a node has one
// checkpoint with data. The pieces go through the host into one tensor of 14 bytes.
TEST(ModelLoading, ZeroInitCutsParameterByParameter) {
  Strategy strategy = test::deepspeed(3);
  const Program program = first_steps(test::chain({10, 4}), strategy);
  std::vector<std::string> words = initialisation(program);
  words.resize(13);
  EXPECT_THAT(words,
              ElementsAre("+ checkpoint 28", "+ whole_parameter 20", "+ parameter_partition 10",
                          "- whole_parameter", "+ whole_parameter 8", "+ parameter_partition 4",
                          "- whole_parameter", "- checkpoint", "+ defragmented_partitions 14",
                          "- parameter_partition", "- parameter_partition", "empty",
                          "+ parameter_partitions 14"));
  EXPECT_EQ(program.ranks[0].buffers.front().place, MemoryPlace::NodeHost);
}

TEST(ModelLoading, WithoutZeroInitTheModelIsThereWhole) {
  Strategy strategy = test::deepspeed(3);
  strategy.zero_init = false;
  const Program program = first_steps(test::chain({10, 4}), strategy);
  std::vector<std::string> words = initialisation(program);
  words.resize(8);
  EXPECT_THAT(words, ElementsAre("+ checkpoint 28", "+ whole_model 20", "+ whole_model 8",
                                 "- checkpoint", "+ parameter_partition 10", "- whole_model",
                                 "+ parameter_partition 4", "- whole_model"));
  EXPECT_EQ(program.ranks[0].buffers.front().place, MemoryPlace::Host);
}

TEST(ModelLoading, ACheckpointHasATypeOfItsOwn) {
  const Program program = first_steps(test::chain({10, 4}), test::deepspeed(0), {}, Dtype::F32);
  EXPECT_EQ(program.ranks[0].buffers.front().bytes, Bytes(56));  // 14 x 4
}

// 0.14 knows no other way than through the host; the BF16 optimizer none but the GPU.
TEST(ModelLoading, WhereItFlattensDependsOnReleaseAndOptimizer) {
  const Model model = test::chain({10, 4});
  Strategy old = test::deepspeed(2);
  old.version = "0.14";
  EXPECT_EQ(initialisation(first_steps(model, old)),
            initialisation(first_steps(model, test::deepspeed(2), Bytes(59))));
  Strategy bf16 = test::deepspeed(1);
  bf16.grad_accum_dtype = Dtype::F32;
  for (const std::string& word : initialisation(first_steps(model, bf16, Bytes(59)))) {
    EXPECT_NE(word, "empty");
  }
}

// One rank of a node reads it with cpu_ram_efficient_loading, else each; in fp32, as the shards.
TEST(ModelLoading, FsdpLoadsACheckpoint) {
  for (const int version : {1, 2}) {
    for (const bool efficient : {true, false}) {
      Strategy strategy;
      strategy.name = "fsdp";
      strategy.framework = Framework::Fsdp;
      strategy.fsdp.version = version;
      strategy.fsdp.wrap = FsdpWrap::None;
      strategy.fsdp.cpu_ram_efficient_loading = efficient;
      const Buffer first = first_steps(test::chain({10, 4}), strategy).ranks[0].buffers.front();
      EXPECT_EQ(first.owner, "checkpoint");
      EXPECT_EQ(first.bytes, Bytes(56));
      EXPECT_EQ(first.place, efficient ? MemoryPlace::NodeHost : MemoryPlace::Host);
    }
  }
}

// Under autocast the model itself is fp32.
TEST(ModelLoading, ACheckpointHasTheTypeOfTheModel) {
  Strategy strategy;
  strategy.name = "ddp";
  strategy.framework = Framework::Ddp;
  EXPECT_EQ(first_steps(test::chain({10, 4}), strategy).ranks[0].buffers.front().bytes, Bytes(56));
  strategy.ddp.parameter_dtype = Dtype::Bf16;
  EXPECT_EQ(first_steps(test::chain({10, 4}), strategy).ranks[0].buffers.front().bytes, Bytes(28));
}

// A steady program begins after all that.
TEST(ModelLoading, IsPartOfAFirstStepOnly) {
  const Program program = test::build(test::chain({10, 4}), test::deepspeed(2), 2);
  EXPECT_THAT(initialisation(program), ElementsAre("+ flat_parameters 32", "+ master_weights 32",
                                                   "+ exp_avg 32", "+ exp_avg_sq 32"));
}

}  // namespace
}  // namespace zerosim
