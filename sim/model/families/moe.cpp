#include "sim/model/families/moe.h"

#include <utility>

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

constexpr std::int64_t kLargestExpertCount = 200'000;  ///< of all layers; each is laid out

std::string expert_path(const std::string& path, std::int64_t expert) {
  return format("{}.experts.{}", path, expert);
}

GatedMlp shared_expert(const MoeConfig& moe) {
  GatedMlp shared = moe.expert;
  shared.width = moe.shared_width;
  return shared;
}

void register_router(Layers& layers, const std::string& path, const MoeConfig& moe) {
  layers.register_linear(path + ".gate", moe.expert.hidden, moe.experts, false);
  if (moe.router_bias) {
    layers.register_parameter(path + ".gate.e_score_correction_bias", {moe.experts});
  }
}

/// The module `gate`, and where it is more than a Linear the choice in it. Returns the weights.
Value run_router(Layers& layers, const std::string& path, const MoeConfig& moe, Value x) {
  ModelAssembler& assembler = layers.assembler();
  const auto choose = [&](Value logits) {
    return assembler.compute(OperatorKind::Router, 0, moe.experts, {logits});
  };
  const std::string gate = path + ".gate";
  if (moe.router_class == "Linear") {
    return choose(layers.linear(gate, moe.expert.hidden, moe.experts, x));
  }
  assembler.enter(gate, moe.router_class, {x});
  assembler.own(gate + ".weight");
  if (moe.router_bias) assembler.own(gate + ".e_score_correction_bias");
  const Value logits = assembler.compute(OperatorKind::Linear, moe.expert.hidden, moe.experts, {x},
                                         {gate + ".weight"});
  return assembler.exit(choose(logits));
}

/// Experts one after another; each adds its weighted results to those of the ones before.
Value run_experts(Layers& layers, const std::string& path, const MoeConfig& moe, Value x,
                  Value weights) {
  ModelAssembler& assembler = layers.assembler();
  Value sum = kNoValue;
  for (std::int64_t i = 0; i < moe.experts; ++i) {
    const int expert = static_cast<int>(i);
    const std::string name = expert_path(path, i);
    const Value tokens = assembler.compute_routed(expert, OperatorKind::ExpertGather, 0,
                                                  moe.expert.hidden, {x, weights});
    assembler.enter_expert(expert, name, moe.expert.class_name, {tokens});
    const Value result = assembler.exit(run_gated_mlp(layers, name, moe.expert, tokens));
    sum = assembler.compute_routed(expert, OperatorKind::ExpertScatter, 0, moe.expert.hidden,
                                   {sum, result, weights});
  }
  return sum;
}

Value run_shared_expert(Layers& layers, const std::string& path, const MoeConfig& moe, Value x) {
  ModelAssembler& assembler = layers.assembler();
  const GatedMlp mlp = shared_expert(moe);
  const std::string name = path + "." + moe.shared_name;
  assembler.enter(name, mlp.class_name, {x});
  const Value y = assembler.exit(run_gated_mlp(layers, name, mlp, x));
  if (!moe.shared_gate) return y;
  Value gate = layers.linear(path + ".shared_expert_gate", mlp.hidden, 1, x);
  gate = assembler.activate("Sigmoid", 1, gate);
  return layers.multiply(mlp.hidden, gate, y);
}

}  // namespace

void read_expert_counts(Config& config, std::int64_t layers, const std::string& experts_name,
                        std::int64_t default_experts, std::int64_t default_per_token,
                        MoeConfig& moe) {
  moe.experts = config.size_or({experts_name}, "the number of experts of a layer", default_experts);
  moe.experts_per_token = config.size_or(
      {"num_experts_per_tok"}, "the number of experts that a token goes to", default_per_token);
  if (moe.experts > kLargestExpertCount / layers) {
    config.fail(experts_name, format("found {} in each of {} layers, expected at most {} in all",
                                     moe.experts, layers, kLargestExpertCount));
  }
  if (moe.experts_per_token > moe.experts) {
    config.fail("num_experts_per_tok", format("found {}, expected at most {} = {}",
                                              moe.experts_per_token, experts_name, moe.experts));
  }
}

void register_moe(Layers& layers, const std::string& path, const MoeConfig& moe) {
  if (!moe.router_after_experts) register_router(layers, path, moe);
  for (std::int64_t i = 0; i < moe.experts; ++i) {
    register_gated_mlp(layers, expert_path(path, i), moe.expert);
  }
  if (moe.router_after_experts) register_router(layers, path, moe);
  if (moe.shared_width == 0) return;
  register_gated_mlp(layers, path + "." + moe.shared_name, shared_expert(moe));
  if (moe.shared_gate) {
    layers.register_linear(path + ".shared_expert_gate", moe.expert.hidden, 1, false);
  }
}

Value run_moe(Layers& layers, const std::string& path, const MoeConfig& moe, Value x) {
  ModelAssembler& assembler = layers.assembler();
  assembler.enter(path, moe.class_name, {x});
  MoeBlock block;
  block.experts = moe.experts;
  block.experts_per_token = moe.experts_per_token;
  block.calls_idle_experts = moe.calls_idle_experts;
  assembler.open_moe_block(std::move(block));
  const Value weights = run_router(layers, path, moe, x);
  Value y = run_experts(layers, path, moe, x, weights);
  if (moe.shared_width > 0) {
    y = layers.add(moe.expert.hidden, y, run_shared_expert(layers, path, moe, x));
  }
  return assembler.exit(y);
}

}  // namespace zerosim::internal
