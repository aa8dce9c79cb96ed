// What must hold of every schedule of FSDP: thousands of random configurations from a seed.
//
// With G micro batches of which R reduce, units u of P_u elements padded to P'_u, N ranks that
// shard (D2.6 to D2.12, D3.7, rule 68; every backward visits every unit here):
//
//     FULL_SHARD       gathers G (P'_root + 2 sum of blocks, 3 with checkpointing around them)
//     SHARD_GRAD_OP    gathers R sum P'_u (version 2: G), for units are freed where gradients are
//                      reduced
//     NO_SHARD         R sum P_u all-reduced
//     all sharded ones reduce-scatter R sum P'_u of trainable units, hybrid ones all-reduce 1/N of
//                      it
//
// Shards hold sum P'_u / N elements; what a step allocates and does not keep is freed in it.

#include <map>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/program/fsdp_units.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"
#include "tests/sim/program/random.h"

namespace zerosim {
namespace {

constexpr int kSeeds = 8;
constexpr int kCasesPerSeed = 250;

using test::Random;

struct Case {
  Model model;
  Strategy strategy;
  int replicas = 1;
  int shard_ranks = 1;
};

/// The first and last modules are the root's, those between are blocks.
Model random_model(Random& random) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = random.between(3, 9); i > 0; --i) sizes.push_back(random.between(1, 500));
  Model model = test::chain(sizes);
  for (std::size_t i = 2; i + 1 < model.modules.size(); ++i) {
    model.modules[i].block = static_cast<int>(i) - 2;
  }
  return model;
}

Case random_case(Random& random) {
  Case c;
  c.model = random_model(random);
  Strategy& strategy = c.strategy;
  FsdpOptions& fsdp = strategy.fsdp;
  strategy.name = "test";
  strategy.framework = Framework::Fsdp;
  strategy.throughput_timer = false;
  strategy.gradient_clipping = 0;
  strategy.precision = random.chance(50) ? Precision::Bf16 : Precision::Fp32;
  strategy.communication_dtype = random.chance(30) ? Dtype::F32 : model_dtype(strategy.precision);
  strategy.grad_accum = random.between(1, 3);
  fsdp.version = random.chance(40) ? 2 : 1;
  fsdp.sharding = static_cast<FsdpSharding>(random.between(0, 4));
  if (fsdp.version == 2 && fsdp.sharding == FsdpSharding::NoShard) fsdp.version = 1;
  fsdp.no_sync = random.chance(50);
  fsdp.backward_prefetch = static_cast<BackwardPrefetch>(random.between(0, 2));
  fsdp.forward_prefetch = random.chance(40);
  fsdp.limit_all_gathers = random.chance(50);
  fsdp.use_orig_params = random.chance(50);
  fsdp.cpu_offload = random.chance(20);
  fsdp.wrap = random.chance(80) ? FsdpWrap::TransformerLayer : FsdpWrap::None;
  if (random.chance(30)) {
    strategy.checkpointing = ActivationCheckpointing::Full;
    fsdp.checkpoints_around_units = fsdp.version == 1 && random.chance(50);
  }
  c.shard_ranks = static_cast<int>(random.between(2, 9));
  const bool hybrid =
      fsdp.sharding == FsdpSharding::HybridShard || fsdp.sharding == FsdpSharding::HybridShardZero2;
  if (hybrid) {
    c.replicas = static_cast<int>(random.between(1, 4));
    fsdp.shard_group = c.shard_ranks;
  }
  return c;
}

/// Elements by kind of collective; gathers and reduce-scatters whole, as nccl-tests counts them.
std::map<CollectiveKind, std::int64_t> volumes(const Program& program) {
  std::map<CollectiveKind, std::int64_t> sums;
  for (const Collective& c : program.ranks[0].collectives) {
    sums[c.kind] += c.kind == CollectiveKind::AllGather ? c.output_elements : c.input_elements;
  }
  return sums;
}

std::int64_t padded(const Case& c, const FsdpUnit& unit) {
  const int n = c.shard_ranks;
  std::int64_t elements = 0;
  if (c.strategy.fsdp.version == 2) {
    for (const ParameterId id : unit.parameters) {
      elements += dim0_shard_elements(c.model.parameters[id.index()], n);
    }
    return elements * n;
  }
  const std::int64_t alignment =
      c.strategy.fsdp.use_orig_params ? 16 / dtype_bytes(model_dtype(c.strategy.precision)) : 1;
  elements = flat_elements(c.model, unit, alignment);
  return (elements + n - 1) / n * n;
}

void check_volumes(const Case& c, const Program& program) {
  const FsdpOptions& fsdp = c.strategy.fsdp;
  const FsdpUnits units = fsdp_units(c.model, fsdp);
  const std::int64_t micros = c.strategy.grad_accum;
  const std::int64_t reductions = fsdp.no_sync ? 1 : micros;
  const bool full =
      fsdp.sharding == FsdpSharding::FullShard || fsdp.sharding == FsdpSharding::HybridShard;
  std::int64_t root = 0;
  std::int64_t blocks = 0;
  std::int64_t unpadded = 0;
  for (std::size_t i = 0; i < units.units.size(); ++i) {
    (i == 0 ? root : blocks) += padded(c, units.units[i]);
    const std::int64_t alignment =
        fsdp.use_orig_params ? 16 / dtype_bytes(model_dtype(c.strategy.precision)) : 1;
    unpadded += flat_elements(c.model, units.units[i], alignment);
  }
  auto sums = volumes(program);
  if (fsdp.sharding == FsdpSharding::NoShard) {
    EXPECT_EQ(sums[CollectiveKind::AllReduce], reductions * unpadded);
    EXPECT_EQ(sums[CollectiveKind::AllGather], 0);
    return;
  }
  const std::int64_t passes = 2 + (fsdp.checkpoints_around_units ? 1 : 0);
  const std::int64_t kept = fsdp.version == 2 ? micros : reductions;
  EXPECT_EQ(sums[CollectiveKind::AllGather],
            full ? micros * (root + passes * blocks) : kept * (root + blocks));
  EXPECT_EQ(sums[CollectiveKind::ReduceScatter], reductions * (root + blocks));
  const bool hybrid = fsdp.shard_group > 0;
  EXPECT_EQ(sums[CollectiveKind::AllReduce],
            hybrid ? reductions * (root + blocks) / c.shard_ranks : 0);
}

void check_memory(const Case& c, const Program& program) {
  const FsdpUnits units = fsdp_units(c.model, c.strategy.fsdp);
  const bool sharded = c.strategy.fsdp.sharding != FsdpSharding::NoShard;
  std::int64_t elements = 0;
  for (const FsdpUnit& unit : units.units) elements += padded(c, unit) / c.shard_ranks;
  std::map<std::string_view, Bytes> live;
  std::map<MemoryClass, Bytes> by_class;
  const RankProgram& rank = program.ranks[0];
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const Buffer& buffer = rank.buffers[static_cast<std::size_t>(op.payload)];
    const Bytes change = op.kind == OpKind::Allocate ? buffer.bytes : Bytes(0) - buffer.bytes;
    live[buffer.owner] += change;
    by_class[buffer.memory_class] += change;
  }
  if (sharded) {
    EXPECT_EQ(live["parameter_shards"], Bytes(4 * elements));
  }
  EXPECT_EQ(by_class[MemoryClass::LiveParameters], Bytes(0));
  EXPECT_EQ(by_class[MemoryClass::TemporaryBuffers], Bytes(0));
  EXPECT_EQ(by_class[MemoryClass::Activations], Bytes(0));
  // zero_grad() does not reach the flat gradients behind original parameters.
  const bool outlives = sharded && c.strategy.fsdp.version == 1 &&
                        c.strategy.fsdp.use_orig_params && !c.strategy.fsdp.cpu_offload;
  EXPECT_EQ(by_class[MemoryClass::Gradients],
            outlives ? live["parameter_shards"] : live["cpu_gradients"]);
}

class FsdpSchedules : public testing::TestWithParam<int> {};

TEST_P(FsdpSchedules, HaveTheVolumesAndMemoryOfTheClosedForm) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  for (int i = 0; i < kCasesPerSeed; ++i) {
    const Case c = random_case(random);
    const FsdpOptions& fsdp = c.strategy.fsdp;
    SCOPED_TRACE(format("case {}: version {} sharding {} ranks {} x {} accumulation {} no_sync {}",
                        i, fsdp.version, static_cast<int>(fsdp.sharding), c.shard_ranks, c.replicas,
                        c.strategy.grad_accum, fsdp.no_sync));
    const Program program = test::build(c.model, c.strategy, c.shard_ranks * c.replicas);
    check_volumes(c, program);
    check_memory(c, program);
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FsdpSchedules, testing::Range(0, kSeeds));

}  // namespace
}  // namespace zerosim
