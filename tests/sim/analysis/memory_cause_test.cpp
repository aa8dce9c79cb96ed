#include "sim/analysis/memory_cause.h"

#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/memory_report.h"

namespace zerosim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

struct Options {
  const char* strategy = "";
  bool offload = false;
  bool quantized = false;
};

/// Causes of what is temporary on the device in the forward and the backward, by owner.
std::map<std::string, std::set<MemoryCause>> causes_of(const Options& options) {
  Experiment experiment;
  experiment.model = load_model("gpt2");
  experiment.cluster = load_cluster("dgx-a100-40", 2, 4);
  experiment.batch.sequence = 64;
  TrainingFlags flags;
  flags.gpus_per_node = 4;
  flags.grad_accum = 2;
  Strategy strategy = named_strategy(options.strategy, flags, 8);
  if (options.offload) strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
  strategy.zero.quantized_weights = strategy.zero.quantized_gradients = options.quantized;
  const Program program = memory_program(experiment, strategy);
  std::map<std::string, std::set<MemoryCause>> causes;
  const RankProgram& rank = program.ranks.front();
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate) continue;
    if (op.phase != Phase::Forward && op.phase != Phase::Backward) continue;
    const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
    if (buffer.place != MemoryPlace::Device) continue;
    if (buffer.memory_class != MemoryClass::TemporaryBuffers) continue;
    causes[std::string(buffer.owner)].insert(cause_of(buffer, op, strategy, experiment.model));
  }
  return causes;
}

TEST(MemoryCause, AutocastsCopiesAndWorkspacesAreActivations) {
  const auto causes = causes_of({"ddp"});
  const auto activations = ElementsAre(MemoryCause::Activations);
  EXPECT_THAT(causes.at("autocast_weight"), activations);
  EXPECT_THAT(causes.at("autocast_gradient"), activations);
  EXPECT_THAT(causes.at("backward_workspace"), activations);
  EXPECT_THAT(causes.at("ddp_bucket"), ElementsAre(MemoryCause::ReduceBucket));
  // Buffers of modules are joined for a broadcast: none of the mechanisms.
  EXPECT_THAT(causes.at("flat_buffers"), ElementsAre(MemoryCause::OtherTemporaries));
}

TEST(MemoryCause, GathersAndReductionsByTheirRules) {
  const auto gathered = ElementsAre(MemoryCause::LiveParameters);
  const auto reduced = ElementsAre(MemoryCause::ReduceBucket);
  const auto quantized = causes_of({"zero3", false, true});
  EXPECT_THAT(quantized.at("gather_int8_buffer"), gathered);  // C10.1
  EXPECT_THAT(quantized.at("dequantized_half"), gathered);
  EXPECT_THAT(quantized.at("quantized_gradient"), reduced);  // C10.2
  const auto fsdp2 = causes_of({"fsdp2"});
  EXPECT_THAT(fsdp2.at("all_gather_output"), gathered);    // D3.3
  EXPECT_THAT(fsdp2.at("reduce_scatter_input"), reduced);  // D3.8
}

/// Whatever a strategy takes in the forward and the backward has a mechanism, but for DDP's
/// broadcasts of buffers.
TEST(MemoryCause, AllElseHasAMechanism) {
  for (const char* strategy : {"zero0", "zero1", "zero2", "zero3", "fsdp_full", "fsdp_grad_op",
                               "fsdp_no_shard", "hsdp", "fsdp2", "fsdp2_hsdp"}) {
    for (const auto& [owner, causes] : causes_of({strategy})) {
      EXPECT_THAT(causes, Not(Contains(MemoryCause::OtherTemporaries))) << strategy << " " << owner;
    }
  }
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    for (const auto& [owner, causes] : causes_of({strategy, true})) {
      EXPECT_THAT(causes, Not(Contains(MemoryCause::OtherTemporaries))) << strategy << " " << owner;
    }
  }
}

}  // namespace
}  // namespace zerosim
