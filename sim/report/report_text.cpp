#include "sim/report/report_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sim/analysis/memory_report.h"
#include "sim/base/text.h"
#include "sim/report/memory_text.h"
#include "sim/report/strategy_table.h"
#include "sim/report/text_table.h"

namespace zerosim {

namespace {

using Align = TextTable::Align;

std::string gib(Bytes bytes) {
  return format("{:.2f}", bytes.gib());
}
std::string gb(Bytes bytes) {
  return format("{:.2f}", bytes.gb());
}
std::string milliseconds(Seconds time) {
  return format("{:.1f}", time.count() * 1e3);
}
std::string percent(double share) {
  return format("{:.1f}", share * 100);
}
double share_of(Seconds part, Seconds whole) {
  return whole.count() > 0 ? part / whole : 0.0;
}
double share_of(Bytes part, Bytes whole) {
  return whole.count() > 0 ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
                           : 0.0;
}

/// What the job has allocated at its peak beyond that of a steady step.
Bytes more_at_start(const MemoryReport& memory) {
  return memory.peak_allocated - memory.steady_allocated;
}
/// What is reserved beyond what has ever been allocated.
Bytes cached(const MemoryReport& memory) {
  return memory.peak_reserved - memory.peak_allocated;
}

/// Words of the verdict that fit into `width`.
std::string verdict_text(Verdict verdict, int width) {
  switch (verdict) {
    case Verdict::Fits:
      return "fits";
    case Verdict::Tight:
      return "tight";
    case Verdict::DoesNotFit:
      break;
  }
  return width >= 12 ? "does not fit" : "no fit";
}

// ---- rows of the tables ----------------------------------------------------------------------

using Report = StrategyReport;

Metrics class_metrics() {
  return {
      {"  parameters", [](const Report& r, int) { return gib(r.memory.parameters); }},
      {"  gradients", [](const Report& r, int) { return gib(r.memory.gradients); }},
      {"  optimizer states", [](const Report& r, int) { return gib(r.memory.optimizer_states); }},
      {"  activations", [](const Report& r, int) { return gib(r.memory.activations); }},
      {"  temporary buffers", [](const Report& r, int) { return gib(r.memory.temporary_buffers); }},
      {"  gathered parameters", [](const Report& r, int) { return gib(r.memory.live_parameters); }},
  };
}

Metrics verdict_metrics() {
  return {
      {"verdict", [](const Report& r, int width) { return verdict_text(r.verdict, width); }},
      {"memory per GPU at peak (GiB)", {}},
  };
}

Metrics total_metrics() {
  return {
      {"  more at the start", [](const Report& r, int) { return gib(more_at_start(r.memory)); }},
      {"  reserved beyond", [](const Report& r, int) { return gib(cached(r.memory)); }},
      {"  CUDA context and NCCL", [](const Report& r, int) { return gib(r.memory.context); }},
      {"  in all", [](const Report& r, int) { return gib(needed(r.memory)); }},
      {"  capacity", [](const Report& r, int) { return gib(r.memory.capacity); }},
  };
}

Metrics time_metrics() {
  return {
      {"time of a step (ms)", {}},
      {"  compute", [](const Report& r, int) { return milliseconds(r.time.compute); }},
      {"  exposed communication",
       [](const Report& r, int) { return milliseconds(r.time.exposed_communication); }},
      {"  host", [](const Report& r, int) { return milliseconds(r.time.host); }},
      {"  optimizer", [](const Report& r, int) { return milliseconds(r.time.optimizer); }},
      {"  in all", [](const Report& r, int) { return milliseconds(r.time.step); }},
  };
}

Metrics jitter_metrics(const std::vector<Report>& strategies) {
  const bool any = std::any_of(strategies.begin(), strategies.end(),
                               [](const Report& r) { return r.time.jitter.has_value(); });
  if (!any) return {};
  const auto figure = [](Seconds JitterReport::*field) {
    return [field](const Report& r, int) {
      return r.time.jitter ? milliseconds((*r.time.jitter).*field) : std::string("-");
    };
  };
  return {
      {"step of all repetitions (ms)", {}},
      {"  mean", figure(&JitterReport::mean)},
      {"  standard deviation", figure(&JitterReport::deviation)},
      {"  shortest", figure(&JitterReport::minimum)},
      {"  longest", figure(&JitterReport::maximum)},
  };
}

Metrics rate_metrics() {
  return {
      {"tokens/s per GPU",
       [](const Report& r, int) { return format("{:.0f}", r.throughput.tokens_per_s_per_gpu); }},
      {"MFU (%)", [](const Report& r, int) { return percent(r.throughput.mfu); }},
      {"sent per GPU and step (GB)",
       [](const Report& r, int) { return gb(r.communication.bytes_sent_per_rank); }},
      {"  in parameter sizes (psi)",
       [](const Report& r, int) { return format("{:.2f}", r.communication.psi); }},
      {"  as the ZeRO paper counts",
       [](const Report& r, int) { return format("{:.2f}", r.communication.paper_psi); }},
  };
}

Metrics joined(const std::vector<Metrics>& parts) {
  Metrics all;
  for (const Metrics& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string comparison_title(const Comparison& comparison) {
  return wrap(format("{} ({} parameters), sequence {}, on {}: {} GPU{}", comparison.model,
                     grouped(comparison.parameters), comparison.sequence, comparison.cluster,
                     comparison.world_size, comparison.world_size == 1 ? "" : "s"),
              kReportColumns);
}

// ---- memory of several strategies ------------------------------------------------------------

std::string cache_flushes(int count) {
  return format("{} cache flush{}", count, count == 1 ? "" : "es");
}

std::string allocator_sentence(const MemoryReport& memory) {
  if (memory.failure) {
    return format(
        "out of memory in the {}, phase \"{}\": {} GiB for {} with {} GiB allocated, {} GiB "
        "reserved and {} GiB free",
        memory.failure->part, memory.failure->phase, gib(memory.failure->request),
        memory.failure->op, gib(memory.failure->allocated), gib(memory.failure->reserved),
        gib(memory.failure->free));
  }
  if (memory.flushes > 0) {
    return format("{} a step, which {} {} ms of it", cache_flushes(memory.flushes),
                  memory.flushes == 1 ? "takes" : "take", milliseconds(memory.flush_time));
  }
  return memory.early_flushes > 0
             ? format("{} before a steady step, none in it", cache_flushes(memory.early_flushes))
             : format("{} GiB ({} %) stay free", gib(headroom(memory)),
                      percent(share_of(headroom(memory), memory.capacity)));
}

/// The part of the job in which most is allocated, in words that fit into `width`.
std::string part_text(const std::string& part, int width) {
  if (static_cast<int>(part.size()) <= width) return part;
  const std::size_t first_word = part.find(' ');
  return first_word == std::string::npos ? "init" : part.substr(0, first_word);
}

/// From the peak of a steady step to what a monitor shows over the whole job.
Metrics job_metrics() {
  return {
      {"  a steady step, allocated",
       [](const Report& r, int) { return gib(r.memory.steady_allocated); }},
      {"  the whole job, allocated",
       [](const Report& r, int) { return gib(r.memory.peak_allocated); }},
      {"  reserved, without a limit",
       [](const Report& r, int) { return gib(r.memory.peak_reserved); }},
      {"  CUDA context and NCCL", [](const Report& r, int) { return gib(r.memory.context); }},
      {"  nvidia-smi shows at most",
       [](const Report& r, int) { return gib(std::min(needed(r.memory), r.memory.capacity)); }},
      {"  headroom, without a limit", [](const Report& r, int) { return gib(headroom(r.memory)); }},
      {"  headroom (% of the GPU)",
       [](const Report& r, int) {
         return percent(share_of(headroom(r.memory), r.memory.capacity));
       }},
      {"cache flushes, start + a step",
       [](const Report& r, int) {
         return r.memory.failure ? std::string("-")
                                 : format("{} + {}", r.memory.early_flushes, r.memory.flushes);
       }},
      {"part of the job at the peak",
       [](const Report& r, int width) { return part_text(r.memory.peak_part, width); }},
      {"phase of the peak", [](const Report& r, int) { return r.memory.peak_phase; }},
      {"host memory of a node (GiB)", [](const Report& r, int) { return gib(r.memory.host); }},
      {"model states, ZeRO paper (GiB)",
       [](const Report& r, int) { return gib(r.memory.model_states); }},
  };
}

std::string size_text(const Limit& limit) {
  return limit.size ? std::to_string(*limit.size) : "none";
}

/// \param limits  of each of `strategies`, or empty.
Metrics limit_metrics(const std::vector<Report>& strategies,
                      const std::vector<MemoryLimits>& limits) {
  if (limits.empty()) return {};
  const auto limits_of = [&](const Report& report) -> const MemoryLimits& {
    return limits[static_cast<std::size_t>(&report - strategies.data())];
  };
  return {
      {"least GPUs", [limits_of](const Report& r, int) { return size_text(limits_of(r).gpus); }},
      {"largest micro batch",
       [limits_of](const Report& r, int) { return size_text(limits_of(r).micro_batch); }},
  };
}

/// "3 GPUs are the least (tried: 1, 2, 3)".
std::string tried_text(const Limit& limit) {
  std::vector<std::string> sizes;
  for (const LimitProbe& probe : limit.probes) {
    sizes.push_back(std::to_string(probe.size) + (probe.memory ? "" : " (refused)"));
  }
  return "tried " + join(sizes, ", ");
}

std::string limits_text(const MemoryLimits& limits) {
  const std::string gpus = limits.gpus.size ? format("at least {} GPU{}", *limits.gpus.size,
                                                     *limits.gpus.size == 1 ? "" : "s")
                                            : std::string("no number of GPUs is enough");
  const std::string micro_batch = limits.micro_batch.size
                                      ? format("micro batch at most {}", *limits.micro_batch.size)
                                      : std::string("no micro batch fits");
  return format("{} ({}); {} ({})", gpus, tried_text(limits.gpus), micro_batch,
                tried_text(limits.micro_batch));
}

/// \param limits  null: not asked.
std::string memory_paragraph(const Report& report, const MemoryLimits* limits) {
  const MemoryReport& memory = report.memory;
  std::string text =
      format("{}: peak at {}; {}", report.name, memory.peak_op, allocator_sentence(memory));
  if (limits != nullptr) text += "; " + limits_text(*limits);
  return wrap(text, kReportColumns);
}

// ---- one strategy in depth -------------------------------------------------------------------

std::string memory_section(const MemoryReport& memory) {
  TextTable table({Align::Left, Align::Right, Align::Right});
  table.add_row({"memory per GPU (rank " + std::to_string(memory.rank) + ")", "GiB", "% of GPU"});
  table.add_rule();
  const auto row = [&](const char* label, Bytes bytes) {
    table.add_row({label, gib(bytes), percent(share_of(bytes, memory.capacity))});
  };
  row("parameters", memory.parameters);
  row("gradients", memory.gradients);
  row("optimizer states", memory.optimizer_states);
  row("activations", memory.activations);
  row("temporary buffers", memory.temporary_buffers);
  row("gathered parameters", memory.live_parameters);
  row("peak of a steady step", memory.steady_allocated);
  row("peak allocated", memory.peak_allocated);
  row("peak reserved", memory.peak_reserved);
  row("CUDA context and NCCL", memory.context);
  row("in all", needed(memory));
  row("capacity", memory.capacity);
  std::string out = table.text();
  out += wrap(format("peak in the {}, phase \"{}\", at {}", memory.peak_part, memory.peak_phase,
                     memory.peak_op),
              kReportColumns);
  out += wrap(format("when most is reserved, {} GiB of it is not allocated; {} GiB is allocated "
                     "between two steps",
                     gib(memory.fragmentation), gib(memory.after_step)),
              kReportColumns);
  out += wrap(allocator_sentence(memory), kReportColumns);
  out +=
      format("model states as the ZeRO paper counts them: {} GiB; logits at their largest: {} GiB",
             gib(memory.model_states), gib(memory.logits)) +
      "\n";
  if (memory.least) {
    out += format("rank {} holds least: {} GiB at its peak\n", memory.least->rank,
                  gib(memory.least->peak_allocated));
  }
  if (memory.host.count() > 0) {
    out += format("host memory: {} GiB of a node\n", gib(memory.host));
  }
  return out;
}

std::string jitter_sentence(const JitterReport& jitter) {
  return format(
      "the first of {} repetitions; over all of them {} ms on average, standard deviation "
      "{} ms, from {} to {} ms\n",
      jitter.repetitions, milliseconds(jitter.mean), milliseconds(jitter.deviation),
      milliseconds(jitter.minimum), milliseconds(jitter.maximum));
}

std::string folding_sentence(const StrategyReport& report) {
  const FoldingReport& folding = report.folding;
  std::string text = format("{} rank class{} of {} rank{} and {} links simulated (--fold {})",
                            folding.classes, folding.classes == 1 ? "" : "es", folding.ranks,
                            folding.ranks == 1 ? "" : "s", folding.links, to_string(folding.mode));
  if (folding.classes > 1) {
    text += format("; times are those of rank {}, which waits least for communication",
                   report.time.rank);
  }
  return wrap(text, kReportColumns);
}

std::string time_section(const TimeReport& time) {
  TextTable table({Align::Left, Align::Right, Align::Right});
  table.add_row({"time of a steady step", "ms", "% of step"});
  table.add_rule();
  const auto row = [&](const char* label, Seconds seconds) {
    table.add_row({label, milliseconds(seconds), percent(share_of(seconds, time.step))});
  };
  row("compute", time.compute);
  row("exposed communication", time.exposed_communication);
  row("host", time.host);
  row("optimizer", time.optimizer);
  row("step", time.step);
  return table.text() +
         format("of one micro batch: forward {} ms, backward {} ms\n", milliseconds(time.forward),
                milliseconds(time.backward)) +
         format(
             "at least one collective running for {} ms, of which {} ms hidden\n",
             milliseconds(time.communication),
             milliseconds(std::max(Seconds(0), time.communication - time.exposed_communication)));
}

std::string communication_section(const CommunicationReport& communication) {
  TextTable table({Align::Left, Align::Right, Align::Right});
  table.add_row({"collectives of a step", "calls", "GB sent per GPU"});
  table.add_rule();
  for (const auto& [operation, totals] : communication.by_operation) {
    table.add_row({operation, std::to_string(totals.calls), gb(totals.bytes_sent)});
  }
  table.add_row(
      {"in all", std::to_string(communication.collectives), gb(communication.bytes_sent_per_rank)});
  return table.text() +
         format(
             "volume {:.2f} x parameter bytes (psi), {:.2f} as the ZeRO paper counts; {} "
             "GB leave each node\n",
             communication.psi, communication.paper_psi, gb(communication.inter_node_bytes));
}

std::string throughput_section(const ThroughputReport& throughput) {
  return format("{:.0f} tokens/s per GPU, {:.0f} tokens/s, {:.2f} samples/s\n",
                throughput.tokens_per_s_per_gpu, throughput.tokens_per_s,
                throughput.samples_per_s) +
         format("{:.1f} TFLOP/s per GPU, MFU {} %, HFU {} %\n", throughput.tflops_per_gpu,
                percent(throughput.mfu), percent(throughput.hfu));
}

}  // namespace

std::string comparison_text(const Comparison& comparison, bool list_assumptions) {
  std::string out = comparison_title(comparison) + "\n";
  out += strategy_table(comparison.strategies,
                        joined({verdict_metrics(), class_metrics(), total_metrics(), time_metrics(),
                                jitter_metrics(comparison.strategies), rate_metrics()}));
  if (!comparison.sentences.empty()) out += "\n";
  for (const std::string& sentence : comparison.sentences) out += wrap(sentence, kReportColumns);
  return out + warnings_text(comparison.strategies) +
         (list_assumptions ? assumptions_text(comparison.strategies)
                           : assumptions_count(comparison.strategies));
}

std::string memory_comparison_text(const Comparison& comparison,
                                   const std::vector<MemoryLimits>& limits) {
  std::string out = comparison_title(comparison) + "\n";
  out += strategy_table(comparison.strategies,
                        joined({verdict_metrics(), class_metrics(), job_metrics(),
                                limit_metrics(comparison.strategies, limits)})) +
         "\n";
  for (std::size_t i = 0; i < comparison.strategies.size(); ++i) {
    out += memory_paragraph(comparison.strategies[i], i < limits.size() ? &limits[i] : nullptr);
  }
  return out + warnings_text(comparison.strategies) + assumptions_text(comparison.strategies);
}

std::string strategy_text(const StrategyReport& report, const Experiment& experiment) {
  const Cluster& cluster = experiment.cluster;
  std::string out = wrap(
      format("{} (stage {}): {} ({} parameters), sequence {}, on {}: {} node{} x {} {}",
             report.name, report.stage, experiment.model.name,
             grouped(parameter_count(experiment.model)), experiment.batch.sequence, cluster.name,
             cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.gpus_per_node, cluster.node.gpu),
      kReportColumns);
  out += "verdict: " + verdict_text(report.verdict, kReportColumns) + "\n\n";
  out += memory_section(report.memory) + "\n";
  out += time_section(report.time);
  if (report.time.jitter) out += wrap(jitter_sentence(*report.time.jitter), kReportColumns);
  out += folding_sentence(report) + "\n";
  out += communication_section(report.communication) + "\n";
  out += throughput_section(report.throughput);
  return out + warnings_text({&report, 1}) + assumptions_text({&report, 1});
}

}  // namespace zerosim
