#include "sim/analysis/ways_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "sim/analysis/isolate.h"
#include "sim/analysis/limits.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/volume.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"

namespace zerosim {

namespace {

/// One change of a job. `apply` makes it, of any job that it applies to.
struct Change {
  std::string code;  ///< or two, with a space between
  std::string words;
  std::string setting;
  std::function<void(PlacedStrategy&)> apply;
};

/// The same change in several strengths, the mildest first.
struct Ladder {
  std::vector<Change> rungs;
  /// What it can free of what is allocated at the peak of a steady step, at most: what it acts on.
  Bytes most_freed = Bytes(std::numeric_limits<std::int64_t>::max());
};

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

/// Divisors of the micro batch, the largest first: the train batch stays.
void add_micro_batch(const PlacedStrategy& now, std::vector<Ladder>& ladders) {
  std::vector<Change> ladder;
  const std::int64_t batch = now.strategy.micro_batch;
  for (std::int64_t size = batch - 1; size >= 1; --size) {
    if (batch % size != 0) continue;
    const std::int64_t accumulation = now.strategy.grad_accum * (batch / size);
    ladder.push_back(
        change("more_grad_accum", format("micro batch {}", size),
               format("train_micro_batch_size_per_gpu: {}, gradient_accumulation_steps: {}", size,
                      accumulation),
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
  if (!is_deepspeed(strategy) || strategy.zero.stage == 0) return;
  if (strategy.zero.offload_optimizer.device == OffloadDevice::None) {
    ladders.push_back({{change(
        "offload_optimizer", "the optimizer on the CPU",
        "zero_optimization.offload_optimizer: {\"device\": \"cpu\"}",
        [](Strategy& changed) { changed.zero.offload_optimizer.device = OffloadDevice::Cpu; })}});
  }
  if (strategy.zero.stage == 3 && strategy.zero.offload_param.device == OffloadDevice::None) {
    ladders.push_back(
        {{change("offload_param", "parameters in host memory",
                 "zero_optimization.offload_param: {\"device\": \"cpu\"}", [](Strategy& changed) {
                   changed.zero.offload_param.device = OffloadDevice::Cpu;
                 })}});
  }
}

/// Simple ones first: a switch, a size, then what changes the course of a step.
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
  std::erase_if(ladders, [](const Ladder& ladder) { return ladder.rungs.empty(); });
  return ladders;
}

// ---- trying them -------------------------------------------------------------------------------

/// What a change has to reach.
struct Goal {
  Bytes most;  ///< it may allocate
  Bytes host;  ///< memory of a node; 0: not known

  [[nodiscard]] bool is_reached(const MemoryReport& memory) const {
    if (verdict_of(memory) == Verdict::DoesNotFit || memory.peak_allocated > most) return false;
    return host == Bytes(0) || memory.host <= host;
  }
};

/// A change that was tried.
struct Trial {
  WayOut way;
  PlacedStrategy changed;
};

/// Of a pair the first code of each.
void add_codes(WayOut& way, const std::string& codes) {
  const std::size_t space = std::min(codes.find(' '), codes.size());
  if (!way.code.empty()) {
    way.second_code = codes.substr(0, space);
    return;
  }
  way.code = codes.substr(0, space);
  if (space < codes.size()) way.second_code = codes.substr(space + 1);
}

/// Nothing for what cannot be simulated.
std::optional<Trial> try_changes(const PlacedStrategy& now,
                                 const std::vector<const Change*>& changes) {
  Trial trial{{}, now};
  for (const Change* change : changes) {
    change->apply(trial.changed);
    WayOut& way = trial.way;
    add_codes(way, change->code);
    way.is_pair = changes.size() > 1;
    way.change += (way.change.empty() ? "" : " and ") + change->words;
    way.setting += (way.setting.empty() ? "" : "; ") + change->setting;
  }
  try {
    trial.way.memory = replayed_memory(trial.changed.experiment, trial.changed.strategy);
  } catch (const ConfigError&) {
    return std::nullopt;  // a combination that the framework or the simulator refuses
  }
  return trial;
}

/// The mildest rung that reaches the goal; else the strongest, marked as not enough.
std::optional<Trial> try_ladder(const PlacedStrategy& now, const Ladder& ladder, const Goal& goal) {
  std::optional<Trial> best = try_changes(now, {&ladder.rungs.back()});
  if (!best) return std::nullopt;
  best->way.is_enough = goal.is_reached(*best->way.memory);
  if (!best->way.is_enough) return best;
  for (const Change& milder : ladder.rungs) {
    if (&milder == &ladder.rungs.back()) break;
    std::optional<Trial> trial = try_changes(now, {&milder});
    if (trial && goal.is_reached(*trial->way.memory)) return trial;
  }
  return best;
}

std::optional<Trial> try_more_gpus(const PlacedStrategy& now, const Goal& goal) {
  const Strategy& strategy = now.strategy;
  const bool hybrid = strategy.framework == Framework::Fsdp && is_hybrid(strategy.fsdp.sharding);
  // More GPUs leave each with as much.
  if (zero_stage_of(strategy) == 0 || hybrid || strategy.zero.mics_shard_size > 0) {
    return std::nullopt;
  }
  const Limit limit = least_gpus(now.experiment, strategy);
  const LimitProbe* found = limit.found();
  const Cluster& cluster = now.experiment.cluster;
  if (found == nullptr || found->size <= cluster.world_size()) return std::nullopt;
  const auto gpus = static_cast<int>(found->size);
  const int per_node = cluster.nodes > 1 ? cluster.gpus_per_node : cluster.node.gpus;
  const int nodes = std::max(gpus / per_node, 1);
  Trial trial{{}, resized(now.experiment, strategy, nodes, gpus / nodes)};
  trial.way.code = "more_gpus";
  trial.way.change = format("{} GPUs", gpus);
  trial.way.setting = nodes == 1 ? format("--num_gpus {}", gpus)
                                 : format("--num_nodes {} --num_gpus {}", nodes, gpus / nodes);
  trial.way.memory = *found->memory;
  if (!goal.is_reached(*trial.way.memory)) return std::nullopt;
  return trial;
}

// ---- two together ------------------------------------------------------------------------------

/// The strongest forms of the changes that free most, by code.
std::vector<const Change*> strongest(const std::vector<Ladder>& ladders,
                                     const std::vector<Trial>& failed) {
  constexpr std::size_t kMost = 5;
  std::vector<const Trial*> order;
  order.reserve(failed.size());
  for (const Trial& trial : failed) order.push_back(&trial);
  std::stable_sort(order.begin(), order.end(), [](const Trial* a, const Trial* b) {
    return a->way.memory->peak_allocated < b->way.memory->peak_allocated;
  });
  std::vector<const Change*> changes;
  for (const Trial* trial : order) {
    if (changes.size() == kMost) break;
    for (const Ladder& ladder : ladders) {
      if (ladder.rungs.back().words == trial->way.change) {
        changes.push_back(&ladder.rungs.back());
      }
    }
  }
  return changes;
}

/// Pairs that are enough; if there is none, the one that needs least.
std::vector<Trial> try_pairs(const PlacedStrategy& now, const std::vector<const Change*>& changes,
                             const Goal& goal) {
  std::vector<Trial> enough;
  std::optional<Trial> nearest;
  for (std::size_t a = 0; a < changes.size(); ++a) {
    for (std::size_t b = a + 1; b < changes.size(); ++b) {
      if (changes[a]->code == changes[b]->code) continue;  // two stages
      std::optional<Trial> trial = try_changes(now, {changes[a], changes[b]});
      if (!trial) continue;
      trial->way.is_enough = goal.is_reached(*trial->way.memory);
      if (trial->way.is_enough) {
        enough.push_back(std::move(*trial));
      } else if (!nearest ||
                 trial->way.memory->peak_allocated < nearest->way.memory->peak_allocated) {
        nearest = std::move(trial);
      }
    }
  }
  if (enough.empty() && nearest) enough.push_back(std::move(*nearest));
  return enough;
}

/// The single change that needs least, where there are no two to put together.
std::vector<Trial> nearest_of(std::vector<Trial> failed) {
  const auto least =
      std::min_element(failed.begin(), failed.end(), [](const Trial& a, const Trial& b) {
        return a.way.memory->peak_allocated < b.way.memory->peak_allocated;
      });
  std::vector<Trial> nearest;
  if (least != failed.end()) nearest.push_back(std::move(*least));
  return nearest;
}

// ---- what is not simulated ---------------------------------------------------------------------

void propose(std::vector<WayOut>& ways, const char* code, const char* change, const char* setting,
             const std::string& note) {
  WayOut way;
  way.code = code;
  way.change = change;
  way.setting = setting;
  way.is_enough = false;
  way.note = note;
  ways.push_back(std::move(way));
}

std::vector<WayOut> not_simulated(const PlacedStrategy& now, const MemoryReport& memory) {
  constexpr double kWorthwhile = 0.1;  // of the peak
  const auto large = [&](Bytes bytes) {
    return bytes.gib() > kWorthwhile * memory.peak_allocated.gib();
  };
  std::vector<WayOut> ways;
  if (large(memory.logits)) {
    propose(ways, "fused_cross_entropy", "a loss that never holds all logits",
            "a fused or chunked linear cross entropy (Liger, Cut Cross Entropy)",
            format("most of {} of logits", to_string(memory.logits)));
  }
  if (large(memory.activations)) {
    propose(
        ways, "sequence_parallel", "sequence parallelism",
        "DeepSpeed-Ulysses or context parallelism over the ranks of a sequence",
        format("of {} of activations what the other ranks take", to_string(memory.activations)));
    const Bytes checkpoints = std::max(memory.activations - memory.logits, Bytes(0));
    if (recomputes_blocks(now.strategy.checkpointing) && large(checkpoints)) {
      propose(ways, "offload_activations", "checkpoints in host memory",
              "activation_checkpointing.cpu_checkpointing: true, or torchtune's offloading",
              format("most of {} of activations", to_string(checkpoints)));
    }
  }
  const Model& model = now.experiment.model;
  const bool trains_all = trainable_parameter_count(model) == parameter_count(model);
  if (trains_all && large(memory.gradients + memory.optimizer_states)) {
    propose(ways, "lora", "training adapters only",
            "peft.LoraConfig; --lora rank=8,targets=q_proj,v_proj simulates it",
            format("most of {} of gradients and optimizer states",
                   to_string(memory.gradients + memory.optimizer_states)));
  }
  return ways;
}

// ---- time --------------------------------------------------------------------------------------

/// Seconds of one step each, of jobs on one cluster, in one child; NaN for what is refused.
std::vector<double> run_steps(const std::vector<const PlacedStrategy*>& jobs) {
  if (jobs.empty()) return {};
  const std::string printed = run_isolated([&] {
    Engine engine(jobs.front()->experiment.cluster);
    std::string text;
    for (const PlacedStrategy* job : jobs) {
      try {
        const Seconds step = simulate_strategy(job->experiment, job->strategy, engine).time.step;
        text += format("{} ", step.count());
      } catch (const ConfigError&) {
        text += "nan ";
      }
    }
    return text;
  });
  std::vector<double> seconds;
  for (std::size_t at = 0; at < printed.size(); at = printed.find(' ', at) + 1) {
    seconds.push_back(std::stod(printed.substr(at)));
  }
  ZS_CHECK(seconds.size() == jobs.size(), "one time a job");
  return seconds;
}

bool same_cluster(const PlacedStrategy& a, const PlacedStrategy& b) {
  return a.experiment.cluster.nodes == b.experiment.cluster.nodes &&
         a.experiment.cluster.gpus_per_node == b.experiment.cluster.gpus_per_node;
}

/// Changes of the strategy run on one engine, each other cluster on its own.
void time_steps(std::vector<Trial>& trials) {
  std::vector<bool> timed(trials.size(), false);
  for (std::size_t first = 0; first < trials.size(); ++first) {
    if (timed[first]) continue;
    std::vector<const PlacedStrategy*> jobs;
    std::vector<std::size_t> places;
    for (std::size_t i = first; i < trials.size(); ++i) {
      if (timed[i] || !same_cluster(trials[first].changed, trials[i].changed)) continue;
      timed[i] = true;
      jobs.push_back(&trials[i].changed);
      places.push_back(i);
    }
    const std::vector<double> seconds = run_steps(jobs);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!std::isnan(seconds[i])) trials[places[i]].way.step = Seconds(seconds[i]);
    }
  }
}

void order_by_time(std::vector<Trial>& trials) {
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
    const auto cost = [](const Trial& trial) {
      return trial.way.step.value_or(Seconds(std::numeric_limits<double>::infinity()));
    };
    return cost(a) < cost(b);
  });
}

Goal goal_of(const PlacedStrategy& now, const MemoryReport& memory, Bytes at_least_freed) {
  const Bytes any(std::numeric_limits<std::int64_t>::max());  // whether it fits is the verdict's
  return {at_least_freed > Bytes(0) ? memory.peak_allocated - at_least_freed : any,
          now.experiment.cluster.node.host_memory};
}

/// What the peak of a steady step is beyond the GPU and the goal.
Bytes excess_of(const MemoryReport& memory, const Goal& goal) {
  const Bytes most = std::min(memory.capacity - memory.context, goal.most);
  return memory.steady_allocated - most;
}

std::vector<Trial> enough_of(const PlacedStrategy& now, const std::vector<Ladder>& ladders,
                             const Goal& goal, Bytes excess, std::vector<Trial>& failed) {
  std::vector<Trial> enough;
  for (const Ladder& ladder : ladders) {
    if (ladder.most_freed < excess) continue;  // it acts on too little
    std::optional<Trial> trial = try_ladder(now, ladder, goal);
    if (trial) (trial->way.is_enough ? enough : failed).push_back(std::move(*trial));
  }
  return enough;
}

}  // namespace

std::vector<WayOut> ways_out(const Experiment& experiment, const Strategy& strategy,
                             const WaysOutOptions& options) {
  const PlacedStrategy now{experiment, strategy};
  const MemoryReport memory = replayed_memory(experiment, strategy);
  const Goal goal = goal_of(now, memory, options.at_least_freed);
  const std::vector<Ladder> ladders = changes_of(now, memory);
  std::vector<Trial> failed;
  const Bytes excess = excess_of(memory, goal);
  std::vector<Trial> trials = enough_of(now, ladders, goal, excess, failed);
  // What activations take is the same on more GPUs.
  if (memory.steady_allocated - memory.activations >= excess) {
    if (auto more = try_more_gpus(now, goal)) trials.push_back(std::move(*more));
  }
  if (trials.empty()) trials = try_pairs(now, strongest(ladders, failed), goal);
  if (trials.empty()) trials = nearest_of(std::move(failed));
  if (options.timed) {
    time_steps(trials);
    order_by_time(trials);
  }
  std::vector<WayOut> ways;
  for (Trial& trial : trials) ways.push_back(std::move(trial.way));
  for (WayOut& way : not_simulated(now, memory)) ways.push_back(std::move(way));
  return ways;
}

std::vector<WayOut> free_savings(const Experiment& experiment, const Strategy& strategy) {
  constexpr double kWorthwhile = 0.02;
  constexpr double kFree = 1.01;
  const PlacedStrategy now{experiment, strategy};
  const MemoryReport memory = replayed_memory(experiment, strategy);
  const auto share = static_cast<double>(memory.peak_allocated.count()) * kWorthwhile;
  const Goal goal = goal_of(now, memory, Bytes(std::llround(share)));
  std::vector<Ladder> ladders;
  add_allocator(now, ladders);
  add_fused_optimizer(now, ladders);
  add_sizes(now, memory, ladders);
  add_lower_stages(now, ladders);
  std::erase_if(ladders, [](const Ladder& ladder) { return ladder.rungs.empty(); });
  std::vector<Trial> failed;
  std::vector<Trial> trials = enough_of(now, ladders, goal, excess_of(memory, goal), failed);
  trials.push_back({{}, now});
  time_steps(trials);
  const std::optional<Seconds> step = trials.back().way.step;
  trials.pop_back();
  std::erase_if(trials, [&](const Trial& trial) {
    return !step || !trial.way.step || *trial.way.step > *step * kFree;
  });
  order_by_time(trials);
  std::vector<WayOut> ways;
  for (Trial& trial : trials) ways.push_back(std::move(trial.way));
  return ways;
}

std::optional<Seconds> step_time(const Experiment& experiment, const Strategy& strategy) {
  std::vector<Trial> trials = {{{}, {experiment, strategy}}};
  time_steps(trials);
  return trials.front().way.step;
}

}  // namespace zerosim
