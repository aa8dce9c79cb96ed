// What must hold of every schedule of stages 0 to 2 and DDP: thousands of random configurations
// from a seed.
//
// - Every gradient is reduced exactly once in each window (rules 6, 7, 62, D1.7).
// - Volumes are the closed form, whatever buckets, owners and groups there are (B7).
// - Nothing waits for what is issued later: the host order is acyclic (`build_program` ends in
//   `check_program`, which aborts otherwise).
// - What is allocated in a step and not kept is freed in it.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/program/models.h"
#include "tests/sim/program/programs.h"
#include "tests/sim/program/random.h"

namespace zerosim {
namespace {

constexpr int kSeeds = 8;
constexpr int kCasesPerSeed = 500;

using test::Random;

struct Case {
  Model model;
  Strategy strategy;
  BuildOptions options;
  std::string description;
};

Model random_model(Random& random) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = random.between(1, 14); i > 0; --i) {
    sizes.push_back(random.chance(20) ? random.between(1000, 9000) : random.between(1, 400));
  }
  Model model = test::chain(sizes);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    Parameter& parameter = model.parameters[i];
    if (random.chance(50)) {
      parameter.shape = {parameter.elements, 1};
    }
    parameter.trainable = i == 0 || !random.chance(15);
  }
  return model;
}

Strategy random_deepspeed(Random& random, int stage) {
  Strategy strategy = test::deepspeed(stage);
  ZeroOptions& zero = strategy.zero;
  zero.overlap_comm = random.chance(50);
  zero.contiguous_gradients = random.chance(80);
  zero.reduce_scatter = random.chance(70);
  zero.use_multi_rank_bucket_allreduce = random.chance(60);
  zero.round_robin_gradients = random.chance(30);
  zero.reduce_bucket_size = random.chance(10) ? 500'000'000 : random.between(0, 3000);
  const Precision precisions[] = {Precision::Bf16, Precision::Fp16, Precision::Fp32};
  strategy.precision = precisions[random.between(0, 2)];
  strategy.communication_dtype = random.chance(30) ? Dtype::F32 : model_dtype(strategy.precision);
  strategy.grad_accum_dtype = random.chance(30) ? Dtype::F32 : model_dtype(strategy.precision);
  strategy.optimizer_groups =
      random.chance(50) ? OptimizerGroups::ByDimension : OptimizerGroups::One;
  if (stage > 0 && random.chance(20)) {
    zero.offload_optimizer.device = random.chance(50) ? OffloadDevice::Cpu : OffloadDevice::Nvme;
    zero.contiguous_gradients = true;  // forced (A2)
  }
  return strategy;
}

Strategy random_ddp(Random& random) {
  Strategy strategy;
  strategy.name = "ddp";
  strategy.framework = Framework::Ddp;
  strategy.ddp.bucket_cap_mib = static_cast<double>(random.between(1, 20)) / 1024;
  strategy.ddp.first_bucket_mib = static_cast<double>(random.between(1, 8)) / 1024;
  strategy.ddp.gradient_as_bucket_view = random.chance(50);
  strategy.ddp.find_unused_parameters = random.chance(30);
  strategy.ddp.static_graph = random.chance(30);
  strategy.ddp.no_sync = random.chance(60);
  return strategy;
}

Case random_case(Random& random) {
  Case result;
  result.model = random_model(random);
  const int stage = static_cast<int>(random.between(0, 3));
  result.strategy = stage == 3 ? random_ddp(random) : random_deepspeed(random, stage);
  result.strategy.grad_accum = random.between(1, 3);
  result.options.world_size = static_cast<int>(random.between(1, 9));
  result.options.first_step = random.chance(50) ? 0 : 2;
  // DDP's buckets are rebuilt before step 1, or 2 if the graph is static (rule 60).
  result.options.steps = static_cast<int>(random.between(2, 3)) + (stage == 3 ? 1 : 0);
  const ZeroOptions& zero = result.strategy.zero;
  result.description = format(
      "{} stage {}, {} ranks, {} micro batches, bucket {}, overlap {}, contiguous {}, "
      "reduce_scatter {}, multi rank {}, round robin {}, {} parameters",
      result.strategy.name, stage, result.options.world_size, result.strategy.grad_accum,
      zero.reduce_bucket_size, zero.overlap_comm, zero.contiguous_gradients, zero.reduce_scatter,
      zero.use_multi_rank_bucket_allreduce, zero.round_robin_gradients,
      result.model.parameters.size());
  return result;
}

/// "step.micro" of an operation.
using Place = std::tuple<int, int>;

bool is_ddp(const Case& c) {
  return c.strategy.framework == Framework::Ddp;
}

bool uses_bf16_optimizer_of(const Case& c) {
  return c.strategy.zero.stage == 1 && c.strategy.precision == Precision::Bf16 &&
         c.strategy.grad_accum_dtype == Dtype::F32 &&
         c.strategy.zero.offload_optimizer.device != OffloadDevice::Cpu;  // A4.2
}

/// Places at which all gradients are reduced: each micro batch at stage 2 (rule 7) and without
/// no_sync, else the last of each step.
std::set<Place> reducing_places(const Case& c) {
  const bool every = is_ddp(c) ? !c.strategy.ddp.no_sync : c.strategy.zero.stage == 2;
  std::set<Place> places;
  for (int step = 0; step < c.options.steps; ++step) {
    for (int micro = 0; micro < c.strategy.grad_accum; ++micro) {
      if (every || micro + 1 == c.strategy.grad_accum) {
        places.insert({c.options.first_step + step, micro});
      }
    }
  }
  return places;
}

void check_once_each(const Case& c, const Program& program) {
  // Stage 0 and the BF16 optimizer have no buckets of gradients; volumes tell.
  if ((!is_ddp(c) && c.strategy.zero.stage == 0) || uses_bf16_optimizer_of(c)) {
    return;
  }
  const RankProgram& rank = program.ranks[0];
  std::map<Place, std::vector<ParameterId>> reduced;
  for (const Annotation& annotation : rank.annotations) {
    const auto parameters = rank.parameters_of(annotation);
    const Op& op = rank.ops[annotation.before.index()];
    std::vector<ParameterId>& place = reduced[{op.step, op.micro_step}];
    place.insert(place.end(), parameters.begin(), parameters.end());
    if (!is_ddp(c)) {  // B3.3: within the limit, or alone
      EXPECT_TRUE(annotation.elements <= c.strategy.zero.reduce_bucket_size ||
                  parameters.size() == 1);
    }
  }
  std::vector<ParameterId> trainable;
  for (std::size_t i = 0; i < c.model.parameters.size(); ++i) {
    if (c.model.parameters[i].trainable) {
      trainable.emplace_back(i);
    }
  }
  std::set<Place> places;
  for (auto& [place, parameters] : reduced) {
    places.insert(place);
    std::sort(parameters.begin(), parameters.end());
    EXPECT_EQ(parameters, trainable);
  }
  if (c.options.world_size > 1 || !is_ddp(c)) {
    EXPECT_EQ(places, reducing_places(c));
  }
}

std::int64_t closed_form_padding(const Case& c) {
  std::map<bool, std::int64_t> groups;
  for (const Parameter& parameter : c.model.parameters) {
    if (parameter.trainable) {
      const bool vector =
          c.strategy.optimizer_groups == OptimizerGroups::ByDimension && parameter.shape.size() < 2;
      groups[vector] += parameter.elements;
    }
  }
  const std::int64_t alignment = 2 * c.options.world_size;
  std::int64_t padded = 0;
  for (const auto& [vector, elements] : groups) {
    padded += (elements + alignment - 1) / alignment * alignment;
  }
  return padded;
}

/// B7: gradients Psi at each reducing place (the BF16 optimizer's whole padded buffers), weights
/// the padded Psi in each step of stages 1 and 2.
void check_volumes(const Case& c, const Program& program) {
  if (c.options.world_size == 1) {
    return;
  }
  std::map<Place, std::int64_t> gradients;
  std::map<int, std::int64_t> weights;
  const RankProgram& rank = program.ranks[0];
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective) {
      continue;
    }
    const Collective& call = rank.collectives[static_cast<std::size_t>(op.payload)];
    if (op.phase == Phase::Backward && call.recorded) {
      gradients[{op.step, op.micro_step}] += call.input_elements;
      EXPECT_EQ(call.input_elements, call.output_elements);
    } else if (call.kind == CollectiveKind::AllGather) {
      weights[op.step] += call.output_elements;
      EXPECT_EQ(call.input_elements * c.options.world_size, call.output_elements);
    }
  }
  const std::int64_t psi = trainable_parameter_count(c.model);
  const std::int64_t padded = closed_form_padding(c);
  std::map<Place, std::int64_t> expected_gradients;
  for (const Place& place : reducing_places(c)) {
    expected_gradients[place] = uses_bf16_optimizer_of(c) ? padded : psi;
  }
  EXPECT_EQ(gradients, expected_gradients);
  std::map<int, std::int64_t> expected_weights;
  for (int step = 0; step < c.options.steps && !is_ddp(c) && c.strategy.zero.stage > 0; ++step) {
    expected_weights[c.options.first_step + step] = padded;
  }
  EXPECT_EQ(weights, expected_weights);
}

/// Owners of what lives at the end of each step: from the second one on they do not change, and
/// nothing is among them that belongs to one backward or one update.
void check_memory(const Case& c, const Program& program) {
  const RankProgram& rank = program.ranks[0];
  std::multiset<std::string_view> live;
  std::map<int, std::multiset<std::string_view>> at_end;
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::Allocate) {
      live.insert(rank.buffers[static_cast<std::size_t>(op.payload)].owner);
    } else if (op.kind == OpKind::Free) {
      const auto found = live.find(rank.buffers[static_cast<std::size_t>(op.payload)].owner);
      ASSERT_NE(found, live.end());
      live.erase(found);
    }
    at_end[op.step] = live;
  }
  const auto& last = at_end.rbegin()->second;
  const auto& before = std::next(at_end.rbegin())->second;
  const bool ddp = is_ddp(c);
  if (program.first_step > 0 || program.steps > (ddp ? 3 : 2)) {
    EXPECT_EQ(last, before);
  }
  std::set<std::string_view> passing = {"ipg_bucket", "flat_bucket", "cast_bucket",
                                        "saved_activation"};
  // The BF16 optimizer and offload keep fp32 gradients for good (B4.1, B6.1).
  if (!uses_bf16_optimizer_of(c) &&
      c.strategy.zero.offload_optimizer.device == OffloadDevice::None) {
    passing.merge(std::set<std::string_view>{"partition_gradients", "accumulated_gradient",
                                             "fp32_gradients", "flat_gradients"});
  }
  for (const std::string_view owner : last) {
    EXPECT_FALSE(passing.contains(owner)) << owner;
  }
}

class RandomSchedules : public testing::TestWithParam<int> {};

TEST_P(RandomSchedules, KeepTheirPromises) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  for (int i = 0; i < kCasesPerSeed && !HasFailure(); ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(format("seed {}, case {}: {}", GetParam(), i, c.description));
    BatchShape batch;
    batch.sequence = 16;
    const Program program = build_program(c.model, c.strategy, batch, c.options);
    check_once_each(c, program);
    check_volumes(c, program);
    check_memory(c, program);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedules, testing::Range(0, kSeeds));

}  // namespace
}  // namespace zerosim
