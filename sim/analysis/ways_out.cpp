#include "sim/analysis/ways_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "sim/analysis/isolate.h"
#include "sim/analysis/limits.h"
#include "sim/analysis/memory_changes.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/prepare.h"
#include "sim/analysis/volume.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"

namespace zerosim {

namespace {

// ---- trying them -------------------------------------------------------------------------------

/// What a change has to reach.
struct Goal {
  Bytes most;                      ///< the job may allocate
  Bytes host;                      ///< memory of a node; 0: not known
  std::optional<Bytes> steady{};   ///< or a steady step may
  std::optional<Bytes> host_or{};  ///< or the job may take of a node's memory

  [[nodiscard]] bool is_reached(const MemoryReport& memory) const {
    if (verdict_of(memory) == Verdict::DoesNotFit) return false;
    if (host > Bytes(0) && memory.host > host) return false;
    return memory.peak_allocated <= most || (steady && memory.steady_allocated <= *steady) ||
           (host_or && memory.host <= *host_or);
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

/// Of the framework's launcher.
std::string launch_setting(const Strategy& strategy, int nodes, int per_node) {
  if (strategy.framework != Framework::DeepSpeed) {
    return nodes == 1 ? format("torchrun --nproc-per-node {}", per_node)
                      : format("torchrun --nnodes {} --nproc-per-node {}", nodes, per_node);
  }
  return nodes == 1 ? format("--num_gpus {}", per_node)
                    : format("--num_nodes {} --num_gpus {}", nodes, per_node);
}

std::optional<Trial> try_more_gpus(const PlacedStrategy& now, const Goal& goal) {
  const Strategy& strategy = now.strategy;
  const bool hybrid = strategy.framework == Framework::Fsdp && is_hybrid(strategy.fsdp.sharding);
  // More GPUs leave each with as much.
  if (zero_stage_of(strategy) == 0 || hybrid || strategy.zero.mics_shard_size > 0) {
    return std::nullopt;
  }
  const Cluster& cluster = now.experiment.cluster;
  // Those that the job has may be enough in the simulation and too few for the goal.
  const auto reaches = [&](const MemoryReport& memory) { return goal.is_reached(memory); };
  const Limit limit = least_gpus(now.experiment, strategy, {cluster.world_size() + 1, reaches});
  const LimitProbe* found = limit.found();
  if (found == nullptr) return std::nullopt;
  const auto gpus = static_cast<int>(found->size);
  const int per_node = cluster.nodes > 1 ? cluster.gpus_per_node : cluster.node.gpus;
  const int nodes = std::max(gpus / per_node, 1);
  Trial trial{{}, resized(now.experiment, strategy, nodes, gpus / nodes)};
  trial.way.code = "more_gpus";
  trial.way.change = format("{} GPUs", gpus);
  trial.way.setting = launch_setting(strategy, nodes, gpus / nodes);
  trial.way.memory = *found->memory;
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

// ---- time --------------------------------------------------------------------------------------

/// Of a cluster with jitter the first repetition, whose step is the one that reports give.
Experiment once(Experiment experiment) {
  experiment.cluster.perturbations.jitter.repetitions = 1;
  return experiment;
}

std::optional<PreparedStrategy> prepared_unless_refused(const PlacedStrategy& job) {
  try {
    return prepare(job.experiment, job.strategy);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Seconds of one step each, of jobs on one cluster, in one child; NaN for what is refused.
std::vector<double> run_steps(const std::vector<const PlacedStrategy*>& jobs) {
  if (jobs.empty()) return {};
  const std::string printed = run_isolated([&] {
    EngineOptions room = engine_options(jobs.front()->experiment);
    std::vector<std::optional<PreparedStrategy>> prepared;
    for (const PlacedStrategy* job : jobs) {
      prepared.push_back(prepared_unless_refused(*job));
      if (prepared.back()) make_room(*prepared.back(), room);
    }
    Engine engine(jobs.front()->experiment.cluster, room);
    std::string text;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!prepared[i]) {
        text += "nan ";
        continue;
      }
      const StrategyReport report = simulate_prepared(once(jobs[i]->experiment), jobs[i]->strategy,
                                                      *std::move(prepared[i]), engine);
      text += format("{} ", report.time.step.count());
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

WayOut not_simulated(Proposal proposal) {
  WayOut way;
  way.code = std::move(proposal.code);
  way.change = std::move(proposal.words);
  way.setting = std::move(proposal.setting);
  way.note = std::move(proposal.note);
  way.is_enough = false;
  return way;
}

std::vector<WayOut> ways_of(std::vector<Trial> trials) {
  std::vector<WayOut> ways;
  ways.reserve(trials.size());
  for (Trial& trial : trials) ways.push_back(std::move(trial.way));
  return ways;
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
  std::vector<WayOut> ways = ways_of(std::move(trials));
  for (Proposal& proposal : proposals_of(now, memory)) {
    ways.push_back(not_simulated(std::move(proposal)));
  }
  return ways;
}

std::vector<WayOut> free_savings(const Experiment& experiment, const Strategy& strategy) {
  constexpr double kWorthwhile = 0.02;  // of the GPU's
  constexpr double kHostShare = 0.5;    // of the host's, which is seldom short
  constexpr double kFree = 1.01;
  const PlacedStrategy now{experiment, strategy};
  const MemoryReport memory = replayed_memory(experiment, strategy);
  const auto share = static_cast<double>(memory.peak_allocated.count()) * kWorthwhile;
  Goal goal = goal_of(now, memory, Bytes(std::llround(share)));
  goal.steady = memory.steady_allocated - Bytes(std::llround(share));
  goal.host_or = Bytes(std::llround(static_cast<double>(memory.host.count()) * (1 - kHostShare)));
  const std::vector<Ladder> ladders = savings_of(now, memory);
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
  return ways_of(std::move(trials));
}

std::optional<Seconds> step_time(const Experiment& experiment, const Strategy& strategy) {
  std::vector<Trial> trials = {{{}, {experiment, strategy}}};
  time_steps(trials);
  return trials.front().way.step;
}

}  // namespace zerosim
