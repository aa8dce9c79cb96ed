#include "sim/analysis/memory_changes.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/volume.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

bool is_deepspeed(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed;
}
bool is_stage3(const Strategy& strategy) {
  return is_deepspeed(strategy) && strategy.zero.stage == 3;
}

Change change(std::string code, std::string words, std::string setting,
              std::function<void(Strategy&)> apply) {
  return {std::move(code), std::move(words), std::move(setting),
          [apply = std::move(apply)](PlacedStrategy& placed) { apply(placed.strategy); }};
}

// ---- switches ----------------------------------------------------------------------------------

void add_allocator(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  if (now.experiment.alloc_conf.expandable_segments) return;
  ladders.push_back(
      {{{"expandable_segments", "expandable segments",
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
         [](PlacedStrategy& placed) { placed.experiment.alloc_conf.expandable_segments = true; }}},
       Bytes(0)});
}

void add_fused_optimizer(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  const Strategy& strategy = now.strategy;
  const bool on_host = strategy.zero.offload_optimizer.device != OffloadDevice::None;
  if (strategy.optimizer == OptimizerKind::AdamFused || on_host) return;
  ladders.push_back(
      {{change("fused_optimizer", "a fused Adam",
               is_deepspeed(strategy)
                   ? "optimizer.type: \"AdamW\" (DeepSpeed's FusedAdam), or the Trainer's "
                     "optim: adamw_torch_fused"
                   : "torch.optim.AdamW(..., fused=True), or the Trainer's optim: "
                     "adamw_torch_fused",
               [](Strategy& changed) { changed.optimizer = OptimizerKind::AdamFused; })}});
}

void add_overlap(const PlacedStrategy& now, const MemoryReport& memory,
                 std::vector<Ladder>& ladders) {
  if (!is_deepspeed(now.strategy) || !now.strategy.zero.overlap_comm) return;
  ladders.push_back({{change("no_overlap_comm", "no overlap of communication",
                             "zero_optimization.overlap_comm: false",
                             [](Strategy& changed) { changed.zero.overlap_comm = false; })},
                     memory.temporary_buffers + memory.gradients + memory.live_parameters});
}

void add_contiguous_gradients(const PlacedStrategy& now, const MemoryReport& memory,
                              std::vector<Ladder>& ladders) {
  const ZeroOptions& zero = now.strategy.zero;
  if (!is_deepspeed(now.strategy) || zero.stage == 0 || !zero.contiguous_gradients) return;
  ladders.push_back({{change("contiguous_gradients_off", "gradients that are not copied together",
                             "zero_optimization.contiguous_gradients: false",
                             [](Strategy& changed) { changed.zero.contiguous_gradients = false; })},
                     memory.temporary_buffers + memory.gradients});
}

void add_zero_init(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  if (!is_stage3(now.strategy) || now.strategy.zero_init) return;
  ladders.push_back({{change("zero_init", "building the model inside of zero.Init",
                             "deepspeed.zero.Init() around the model, or HfDeepSpeedConfig before "
                             "from_pretrained",
                             [](Strategy& changed) { changed.zero_init = true; })}});
}

void add_checkpointing(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  if (recomputes_blocks(now.strategy.checkpointing)) return;
  ladders.push_back({{change(
      "activation_checkpointing", "full activation checkpointing",
      "model.gradient_checkpointing_enable(), or the Trainer's gradient_checkpointing: true",
      [](Strategy& changed) { changed.checkpointing = ActivationCheckpointing::Full; })}});
}

// ---- sizes -------------------------------------------------------------------------------------

/// A size of ZeroOptions that may be halved; down to `least` elements.
struct SizeKnob {
  const char* code;
  const char* key;
  std::int64_t ZeroOptions::*size;
  std::int64_t least;
};

constexpr int kHalvings = 6;

std::vector<Change> halvings(const SizeKnob& knob, std::int64_t now) {
  std::vector<Change> ladder;
  std::int64_t size = now / 2;
  for (int i = 0; i < kHalvings && size >= knob.least; ++i, size /= 2) {
    ladder.push_back(change(knob.code, format("{} {}", knob.key, size),
                            format("zero_optimization.{}: {}", knob.key, size),
                            [knob, size](Strategy& changed) { changed.zero.*knob.size = size; }));
  }
  return ladder;
}

/// Both bound what stays gathered (C4.6), so they change together.
std::vector<Change> halved_live_parameters(const ZeroOptions& zero) {
  std::vector<Change> ladder;
  constexpr std::int64_t kLeast = 1'000'000;
  std::int64_t size = std::max(zero.max_live_parameters, zero.max_reuse_distance) / 2;
  for (; size >= kLeast && ladder.size() < kHalvings; size /= 2) {
    ladder.push_back(change(
        "smaller_max_live_parameters", format("stage3_max_live_parameters {}", size),
        format("zero_optimization.stage3_max_live_parameters: {}, stage3_max_reuse_distance: {}",
               size, size),
        [size](Strategy& changed) {
          ZeroOptions& own = changed.zero;
          own.max_live_parameters = std::min(own.max_live_parameters, size);
          own.max_reuse_distance = std::min(own.max_reuse_distance, size);
        }));
  }
  return ladder;
}

void add_sizes(const PlacedStrategy& now, const MemoryReport& memory,
               std::vector<Ladder>& ladders) {
  const ZeroOptions& zero = now.strategy.zero;
  if (!is_deepspeed(now.strategy) || zero.stage == 0) return;
  constexpr SizeKnob kBucket{"smaller_reduce_bucket", "reduce_bucket_size",
                             &ZeroOptions::reduce_bucket_size, 1'000'000};
  const Bytes temporary = memory.temporary_buffers;
  ladders.push_back({halvings(kBucket, zero.reduce_bucket_size), temporary + memory.gradients});
  if (zero.stage < 3) return;
  constexpr SizeKnob kSubGroup{"smaller_sub_group", "sub_group_size", &ZeroOptions::sub_group_size,
                               1'000'000};
  constexpr SizeKnob kPrefetch{"smaller_prefetch_bucket", "stage3_prefetch_bucket_size",
                               &ZeroOptions::prefetch_bucket_size, 1'000'000};
  // A sub-group is no larger than what the rank has.
  const std::int64_t own = trainable_parameter_count(now.experiment.model) /
                           std::max(now.experiment.cluster.world_size(), 1);
  ladders.push_back({halvings(kSubGroup, std::min(zero.sub_group_size, own)), temporary});
  const Bytes gathered = temporary + memory.live_parameters;
  ladders.push_back({halved_live_parameters(zero), gathered});
  ladders.push_back({halvings(kPrefetch, zero.prefetch_bucket_size), gathered});
}

/// Where a job of this framework sets it.
std::string micro_batch_setting(const Strategy& strategy, std::int64_t size,
                                std::int64_t accumulation) {
  if (is_deepspeed(strategy)) {
    return format("train_micro_batch_size_per_gpu: {}, gradient_accumulation_steps: {}", size,
                  accumulation);
  }
  return format(
      "batch_size={} of the DataLoader and {} micro batches a step, or the Trainer's "
      "per_device_train_batch_size: {}, gradient_accumulation_steps: {}",
      size, accumulation, size, accumulation);
}

/// Divisors of the micro batch, the largest first: the train batch stays.
void add_micro_batch(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  std::vector<Change> ladder;
  const std::int64_t batch = now.strategy.micro_batch;
  for (std::int64_t size = batch - 1; size >= 1; --size) {
    if (batch % size != 0) continue;
    const std::int64_t accumulation = now.strategy.grad_accum * (batch / size);
    ladder.push_back(change("more_grad_accum", format("micro batch {}", size),
                            micro_batch_setting(now.strategy, size, accumulation),
                            [size, accumulation](Strategy& changed) {
                              changed.micro_batch = size;
                              changed.grad_accum = accumulation;
                            }));
  }
  ladders.push_back({std::move(ladder)});
}

// ---- stages and offload ------------------------------------------------------------------------

/// What training is like whatever shards it.
TrainingFlags training_of(const Strategy& strategy) {
  TrainingFlags flags;
  flags.micro_batch = strategy.micro_batch;
  flags.grad_accum = strategy.grad_accum;
  flags.precision = strategy.precision;
  flags.optimizer = strategy.optimizer;
  flags.checkpointing = strategy.checkpointing;
  flags.optimizer_groups = strategy.optimizer_groups;
  if (is_deepspeed(strategy)) flags.deepspeed_version = strategy.version;
  flags.torch_version = strategy.torch_version;
  return flags;
}

bool is_default(const Strategy& strategy, std::string_view key) {
  const Setting* setting = find_setting(strategy, key);
  return setting == nullptr || setting->origin == Origin::Default;
}

/// DeepSpeed's settings stay; another framework's job gets its defaults.
void set_stage(PlacedStrategy& placed, int stage) {
  Strategy& changed = placed.strategy;
  if (!is_deepspeed(changed)) {
    changed = named_strategy(format("zero{}", stage), training_of(changed),
                             placed.experiment.cluster.world_size());
    return;
  }
  changed.zero.stage = stage;
  if (is_default(changed, "zero_optimization.overlap_comm")) {
    changed.zero.overlap_comm = stage == 3;  // A2
  }
}

Ladder stage_change(const char* code, int stage) {
  return {{{code, format("ZeRO stage {}", stage), format("zero_optimization.stage: {}", stage),
            [stage](PlacedStrategy& placed) { set_stage(placed, stage); }}}};
}

void add_full_sharding(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  if (zero_stage_of(now.strategy) == 3 && !is_hybrid(now.strategy.fsdp.sharding)) return;
  ladders.push_back(
      {{change("higher_stage", "full sharding", "fsdp: full_shard", [](Strategy& changed) {
        changed.fsdp.sharding = FsdpSharding::FullShard;
        changed.fsdp.reshard_after_forward = true;
      })}});
}

void add_stages(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  if (now.experiment.cluster.world_size() < 2) return;
  if (now.strategy.framework == Framework::Fsdp) {
    add_full_sharding(now, ladders);
    return;
  }
  for (int stage = zero_stage_of(now.strategy) + 1; stage <= 3; ++stage) {
    ladders.push_back(stage_change("higher_stage", stage));
  }
}

void add_lower_stages(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  if (!is_deepspeed(now.strategy)) return;
  for (int stage = now.strategy.zero.stage - 1; stage >= 0; --stage) {
    ladders.push_back(stage_change("lower_stage", stage));
  }
}

/// A rank without shards, a single one too, gets the optimizer out of the GPU by stage 2 only.
Ladder offload_from_stage0() {
  return {{{"offload_optimizer higher_stage", "ZeRO-2 with the optimizer on the CPU",
            R"(zero_optimization: {"stage": 2, "offload_optimizer": {"device": "cpu"}})",
            [](PlacedStrategy& placed) {
              set_stage(placed, 2);
              placed.strategy.zero.offload_optimizer.device = OffloadDevice::Cpu;
            }}}};
}

void add_offload(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  const Strategy& strategy = now.strategy;
  if (strategy.framework == Framework::Fsdp) {
    if (strategy.fsdp.cpu_offload) return;
    ladders.push_back({{change("offload_optimizer offload_param", "shards and update on the CPU",
                               "CPUOffload(offload_params=True), or accelerate's "
                               "fsdp_offload_params: true",
                               [](Strategy& changed) { changed.fsdp.cpu_offload = true; })}});
    return;
  }
  if (zero_stage_of(strategy) == 0) {
    ladders.push_back(offload_from_stage0());
    return;
  }
  if (strategy.zero.offload_optimizer.device == OffloadDevice::None) {
    ladders.push_back({{change(
        "offload_optimizer", "the optimizer on the CPU",
        R"(zero_optimization.offload_optimizer: {"device": "cpu"})",
        [](Strategy& changed) { changed.zero.offload_optimizer.device = OffloadDevice::Cpu; })}});
  }
  if (strategy.zero.stage == 3 && strategy.zero.offload_param.device == OffloadDevice::None) {
    ladders.push_back(
        {{change("offload_param", "parameters in host memory",
                 R"(zero_optimization.offload_param: {"device": "cpu"})", [](Strategy& changed) {
                   changed.zero.offload_param.device = OffloadDevice::Cpu;
                 })}});
  }
}

void drop_empty(std::vector<Ladder>& ladders) {
  std::erase_if(ladders, [](const Ladder& ladder) { return ladder.rungs.empty(); });
}

}  // namespace

std::vector<Ladder> changes_of(const PlacedStrategy& now, const MemoryReport& memory) {
  std::vector<Ladder> ladders;
  add_allocator(now, ladders);
  add_fused_optimizer(now, ladders);
  add_zero_init(now, ladders);
  add_sizes(now, memory, ladders);
  add_overlap(now, memory, ladders);
  add_contiguous_gradients(now, memory, ladders);
  add_checkpointing(now, ladders);
  add_micro_batch(now, ladders);
  add_stages(now, ladders);
  add_offload(now, ladders);
  drop_empty(ladders);
  return ladders;
}

std::vector<Ladder> savings_of(const PlacedStrategy& now, const MemoryReport& memory) {
  std::vector<Ladder> ladders;
  add_allocator(now, ladders);
  add_fused_optimizer(now, ladders);
  add_zero_init(now, ladders);
  add_sizes(now, memory, ladders);
  add_lower_stages(now, ladders);
  drop_empty(ladders);
  return ladders;
}

std::vector<Proposal> proposals_of(const PlacedStrategy& now, const MemoryReport& memory) {
  constexpr double kWorthwhile = 0.1;  // of the peak
  const auto large = [&](Bytes bytes) {
    return bytes.gib() > kWorthwhile * memory.peak_allocated.gib();
  };
  std::vector<Proposal> all;
  if (large(memory.logits)) {
    all.push_back({"fused_cross_entropy", "a loss that never holds all logits",
                   "a fused or chunked linear cross entropy (Liger, Cut Cross Entropy)",
                   format("most of {} of logits", to_string(memory.logits))});
  }
  if (large(memory.activations)) {
    if (now.experiment.cluster.world_size() > 1) {
      all.push_back({"sequence_parallel", "sequence parallelism",
                     "DeepSpeed-Ulysses or context parallelism over the ranks of a sequence",
                     format("of {} of activations what the other ranks take",
                            to_string(memory.activations))});
    }
    const Bytes checkpoints = std::max(memory.activations - memory.logits, Bytes(0));
    if (recomputes_blocks(now.strategy.checkpointing) && large(checkpoints)) {
      all.push_back({"offload_activations", "checkpoints in host memory",
                     is_deepspeed(now.strategy)
                         ? "activation_checkpointing.cpu_checkpointing: true, or torchtune's "
                           "offloading"
                         : "torch.autograd.graph.save_on_cpu around the model, or torchtune's "
                           "offloading",
                     format("most of {} of activations", to_string(checkpoints))});
    }
  }
  const Model& model = now.experiment.model;
  const bool trains_all = trainable_parameter_count(model) == parameter_count(model);
  if (trains_all && large(memory.gradients + memory.optimizer_states)) {
    all.push_back({"lora", "training adapters only",
                   "peft.LoraConfig; --lora rank=8,targets=q_proj,v_proj simulates it",
                   format("most of {} of gradients and optimizer states",
                          to_string(memory.gradients + memory.optimizer_states))});
  }
  return all;
}

}  // namespace zerosim
