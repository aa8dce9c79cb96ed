#include "sim/analysis/advice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/volume.h"
#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr double kEqual = 0.01;  // rates this near are equal

bool fits(const StrategyReport& report) {
  return report.verdict != Verdict::DoesNotFit;
}
double rate(const StrategyReport& report) {
  return report.throughput.tokens_per_s_per_gpu;
}

// ---- order -----------------------------------------------------------------------------------

/// The one to choose of `candidates`, which is not empty.
const StrategyReport* best_of(const std::vector<const StrategyReport*>& candidates) {
  const StrategyReport* fastest = *std::max_element(
      candidates.begin(), candidates.end(),
      [](const StrategyReport* a, const StrategyReport* b) { return rate(*a) < rate(*b); });
  const StrategyReport* best = nullptr;
  for (const StrategyReport* candidate : candidates) {
    if (rate(*candidate) < (1 - kEqual) * rate(*fastest)) continue;
    const bool roomier = best != nullptr && candidate->verdict < best->verdict;
    const bool simpler =
        best != nullptr && candidate->verdict == best->verdict && candidate->stage < best->stage;
    if (best == nullptr || roomier || simpler) best = candidate;
  }
  return best;
}

// ---- sentences where something fits ----------------------------------------------------------

std::string milliseconds(Seconds time) {
  return format("{:.1f} ms", time.count() * 1e3);
}

std::string cost_of_tokens(const StrategyReport& report, const Cluster& cluster) {
  const double gpu_seconds = 1e6 / rate(report);
  std::string text = format("{:.1f} GPU-seconds per million tokens", gpu_seconds);
  if (cluster.price_per_gpu_hour > 0) {
    constexpr double kSecondsPerHour = 3600;
    text += format(", {:.4g} at {:.4g} per GPU-hour",
                   gpu_seconds / kSecondsPerHour * cluster.price_per_gpu_hour,
                   cluster.price_per_gpu_hour);
  }
  return text;
}

/// Share of the capacity below which a prediction of memory may be wrong about fitting: the median
/// error against published peaks that it is held to (design.md section 7).
constexpr double kUncertain = 0.05;

std::string room(const StrategyReport& report) {
  const MemoryReport& memory = report.memory;
  if (report.verdict == Verdict::Tight) {
    return memory.flushes > 0 ? format(
                                    "where the allocator flushes its cache {} times a step, "
                                    "which takes {} of it",
                                    memory.flushes, milliseconds(memory.flush_time))
                              : "where the allocator flushes its cache in the first steps";
  }
  const Bytes free = headroom(memory);
  const bool uncertain = free.gib() < kUncertain * memory.capacity.gib();
  return format("and {:.1f} of {:.1f} GiB stay free{}", free.gib(), memory.capacity.gib(),
                uncertain ? ", less than such a prediction may be off" : "");
}

/// \param fitting  all that fit, `best` included.
std::string recommendation(const StrategyReport& best, const Cluster& cluster,
                           const std::vector<const StrategyReport*>& fitting) {
  const bool fastest =
      std::all_of(fitting.begin(), fitting.end(), [&](const StrategyReport* other) {
        return other == &best || rate(*other) < (1 - kEqual) * rate(best);
      });
  const char* why = fitting.size() == 1 ? "it fits, with"
                    : fastest           ? "the fastest that fits, with"
                                        : "none that fits is faster than its";
  return format("Choose {}: {} {:.0f} tokens/s per GPU ({} a step, MFU {:.1f} %; {}), {}.",
                best.name, why, rate(best), milliseconds(best.time.step), best.throughput.mfu * 100,
                cost_of_tokens(best, cluster), room(best));
}

struct Part {
  const char* name;
  Seconds TimeReport::*time;
};
constexpr std::array<Part, 4> kParts = {
    {{"compute", &TimeReport::compute},
     {"exposed communication", &TimeReport::exposed_communication},
     {"host", &TimeReport::host},
     {"optimizer", &TimeReport::optimizer}}};

struct Loss {
  const char* name = "";
  Seconds time{0};
};

/// Tokens of a step.
double tokens(const StrategyReport& report) {
  return report.throughput.tokens_per_s * report.time.step.count();
}

/// By how much the parts of the step of `other` are longer than those of `best`, for as many
/// tokens, the largest first; without those below a tenth of the whole.
std::vector<Loss> losses(const StrategyReport& best, const StrategyReport& other) {
  constexpr double kWorthTelling = 0.1;
  const double scale = tokens(best) / tokens(other);
  const Seconds whole = other.time.step * scale - best.time.step;
  std::vector<Loss> result;
  for (const Part& part : kParts) {
    const Seconds loss = other.time.*part.time * scale - best.time.*part.time;
    if (loss > kWorthTelling * whole) result.push_back({part.name, loss});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Loss& a, const Loss& b) { return a.time > b.time; });
  return result;
}

std::string memory_difference(const StrategyReport& best, const StrategyReport& other) {
  const Bytes more = needed(other.memory) - needed(best.memory);
  constexpr double kWorthTelling = 0.05;  // GiB
  if (std::abs(more.gib()) < kWorthTelling) return "as much memory";
  return format("{:.1f} GiB {} memory", std::abs(more.gib()), more > Bytes() ? "more" : "less");
}

std::string why_slower(const StrategyReport& best, const StrategyReport& other) {
  std::vector<std::string> parts;
  for (const Loss& loss : losses(best, other)) {
    parts.push_back(format("{} more of {}", milliseconds(loss.time), loss.name));
  }
  std::string text = join(parts, ", ");
  const double sent = other.communication.psi - best.communication.psi;
  constexpr double kWorthTelling = 0.05;
  if (sent > kWorthTelling) {
    text += format(" (it sends {:.2f} Psi a step, not {:.2f})", other.communication.psi,
                   best.communication.psi);
  }
  return text;
}

std::string runner_up(const StrategyReport& best, const StrategyReport& other) {
  const std::string memory = memory_difference(best, other);
  const double ratio = rate(other) / rate(best);
  if (std::abs(ratio - 1) <= kEqual) {
    const char* reason = other.verdict > best.verdict ? "leaves less room"
                         : other.stage > best.stage   ? "is the higher stage"
                                                      : "gains nothing";
    return format("{} is as fast within {:.0f} %, with {}, but {}.", other.name, kEqual * 100,
                  memory, reason);
  }
  if (ratio > 1) {  // faster than a choice among equals of the fastest
    return format("{} is {:.1f} % faster, with {}.", other.name, (ratio - 1) * 100, memory);
  }
  return format("{} comes next, {:.1f} % slower with {}: for the same tokens {}.", other.name,
                (1 - ratio) * 100, memory, why_slower(best, other));
}

/// The largest class at the peak, for saying what fills the GPU.
std::string largest_class(const MemoryReport& memory) {
  const std::array<std::pair<const char*, Bytes>, 6> classes = {
      {{"parameters", memory.parameters},
       {"gradients", memory.gradients},
       {"optimizer states", memory.optimizer_states},
       {"activations", memory.activations},
       {"temporary buffers", memory.temporary_buffers},
       {"gathered parameters", memory.live_parameters}}};
  const auto largest =
      std::max_element(classes.begin(), classes.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return format("{} {:.1f}", largest->first, largest->second.gib());
}

std::string excess(const MemoryReport& memory) {
  return format("{:.1f} GiB more than the {:.1f} GiB of the GPU ({} GiB)", -headroom(memory).gib(),
                memory.capacity.gib(), largest_class(memory));
}

std::string do_not_fit(const std::vector<const StrategyReport*>& reports) {
  std::vector<std::string> parts;
  parts.reserve(reports.size());
  for (const StrategyReport* report : reports) {
    parts.push_back(format("{} needs {}", report->name, excess(report->memory)));
  }
  return format("{} {}.", reports.size() == 1 ? "Does not fit:" : "Do not fit:", join(parts, "; "));
}

// ---- where strategies differ ------------------------------------------------------------------

std::string fsdp_course(const FsdpOptions& fsdp) {
  switch (fsdp.sharding) {
    case FsdpSharding::NoShard:
      return "all-reduces the gradient of each unit";
    case FsdpSharding::ShardGradOp:
    case FsdpSharding::HybridShardZero2:
      return "gathers each unit once, keeps it until its backward ends and reduce-scatters its "
             "gradient";
    case FsdpSharding::FullShard:
    case FsdpSharding::HybridShard:
      break;
  }
  return "gathers each unit in forward, all but the root again in backward, and reduce-scatters "
         "its "
         "gradient";
}

/// What is sent, in words.
std::string course_of(const Strategy& strategy, int world_size) {
  if (strategy.framework == Framework::Fsdp) {
    std::string course = fsdp_course(strategy.fsdp);
    const auto group = static_cast<int>(strategy.fsdp.shard_group);
    if (!is_hybrid(strategy.fsdp.sharding) || group >= world_size) return course;
    return format("{} among {} GPUs, then all-reduces the shard over {} replicas", course, group,
                  world_size / group);
  }
  if (strategy.framework == Framework::Single) return "sends nothing";
  if (is_megatron(strategy)) return "all-reduces all gradients at once after the backward";
  if (strategy.framework == Framework::Ddp) return "all-reduces buckets of gradients";
  switch (strategy.zero.stage) {
    case 0:
      return "all-reduces gradients after the backward";
    case 3:
      return "gathers parameters ahead of their use and reduce-scatters buckets of gradients";
    default:
      return strategy.zero.true_reduce_scatter
                 ? "reduce-scatters buckets of gradients and gathers all parameters after the step"
                 : "all-reduces buckets of gradients (B3.6) and gathers all parameters after the "
                   "step";
  }
}

/// One sentence: what is sent, where it travels, what of it is exposed, what memory it takes.
std::string anatomy(const Strategy& strategy, const StrategyReport& report,
                    const Cluster& cluster) {
  const CommunicationReport& sent = report.communication;
  std::string text =
      format("{} {}: {:.2f} Psi", report.name, course_of(strategy, cluster.world_size()), sent.psi);
  if (cluster.nodes > 1) {
    const Bytes of_node = sent.bytes_sent_per_rank * cluster.gpus_per_node;
    text += format(", {:.1f} GB sent by the GPUs of a node, {:.1f} GB of it over its NICs",
                   of_node.gb(), sent.inter_node_bytes.gb());
  }
  return text + format("; communication runs {} and exposes {}; {:.1f} GiB ({} GiB).",
                       milliseconds(report.time.communication),
                       milliseconds(report.time.exposed_communication), needed(report.memory).gib(),
                       largest_class(report.memory));
}

/// Told where frameworks of different kinds are compared: one of them is FSDP.
std::vector<std::string> differences(const Experiment& experiment,
                                     const std::vector<Strategy>& strategies,
                                     const std::vector<StrategyReport>& reports) {
  const bool any = std::any_of(strategies.begin(), strategies.end(), [](const Strategy& strategy) {
    return strategy.framework == Framework::Fsdp;
  });
  std::vector<std::string> sentences;
  if (!any || strategies.size() < 2) return sentences;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    sentences.push_back(anatomy(strategies[i], reports[i], experiment.cluster));
  }
  return sentences;
}

// ---- sentences where nothing fits ------------------------------------------------------------

/// "zero2 would fit with a fused Adam (25.6 GiB), or ZeRO stage 3 (14.2 GiB)."
std::string ways_sentence(const std::string& name, const std::vector<WayOut>& ways) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> changes;
  const WayOut* nearest = nullptr;
  for (const WayOut& way : ways) {
    if (!way.memory) continue;  // not simulated
    if (!way.is_enough) {
      nearest = &way;
    } else if (changes.size() < kMost) {
      changes.push_back(format("{} ({:.1f} GiB)", way.change, needed(*way.memory).gib()));
    }
  }
  if (!changes.empty()) return format("{} would fit with {}.", name, join(changes, ", or "));
  if (nearest == nullptr) return format("No change that can be simulated makes {} fit.", name);
  return format("No change, and no two of them, make {} fit: with {} it still needs {:.1f} GiB.",
                name, nearest->change, needed(*nearest->memory).gib());
}

std::vector<std::string> nothing_fits(const Experiment& experiment,
                                      const std::vector<Strategy>& strategies,
                                      const std::vector<StrategyReport>& reports) {
  const auto smallest = std::min_element(reports.begin(), reports.end(),
                                         [](const StrategyReport& a, const StrategyReport& b) {
                                           return needed(a.memory) < needed(b.memory);
                                         });
  const Cluster& cluster = experiment.cluster;
  std::vector<std::string> sentences = {
      format("Nothing fits on {} x {}: the smallest, {}, needs {}.", cluster.world_size(),
             cluster.node.gpu, smallest->name, excess(smallest->memory))};
  const Strategy& strategy = strategies[static_cast<std::size_t>(smallest - reports.begin())];
  sentences.push_back(ways_sentence(smallest->name, ways_out(experiment, strategy)));
  return sentences;
}

}  // namespace

std::vector<std::string> choice(const Experiment& experiment,
                                const std::vector<Strategy>& strategies,
                                const std::vector<StrategyReport>& reports) {
  ZS_CHECK(strategies.size() == reports.size(), "one report a strategy");
  if (reports.empty()) return {};
  std::vector<const StrategyReport*> fitting;
  std::vector<const StrategyReport*> others;
  for (const StrategyReport& report : reports) {
    (fits(report) ? fitting : others).push_back(&report);
  }
  if (fitting.empty()) return nothing_fits(experiment, strategies, reports);

  const StrategyReport* best = best_of(fitting);
  std::vector<std::string> sentences = {recommendation(*best, experiment.cluster, fitting)};
  std::erase(fitting, best);
  if (!fitting.empty()) sentences.push_back(runner_up(*best, *best_of(fitting)));
  if (!others.empty()) sentences.push_back(do_not_fit(others));
  const std::vector<std::string> told = differences(experiment, strategies, reports);
  sentences.insert(sentences.end(), told.begin(), told.end());
  return sentences;
}

}  // namespace zerosim
