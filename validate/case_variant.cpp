#include "validate/case_variant.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/analysis/isolate.h"
#include "sim/analysis/limits.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/ways_out.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"
#include "sim/memory/memory_timeline.h"
#include "sim/program/build.h"
#include "validate/case_words.h"

namespace zerosim {

namespace {

double count_of(Bytes bytes) {
  return static_cast<double>(bytes.count());
}

/// Metrics of a simulated step, as the child sends them.
JsonValue step_metrics(const StrategyReport& report) {
  JsonValue json(Json::objectValue);
  json["time.step"] = report.time.step.count();
  json["time.forward"] = report.time.forward.count();
  json["time.backward"] = report.time.backward.count();
  json["time.optimizer"] = report.time.optimizer.count();
  json["time.exposed_communication"] = report.time.exposed_communication.count();
  json["throughput.tokens_per_s"] = report.throughput.tokens_per_s;
  json["throughput.tokens_per_s_per_gpu"] = report.throughput.tokens_per_s_per_gpu;
  json["throughput.tflops_per_gpu"] = report.throughput.tflops_per_gpu * 1e12;
  json["throughput.mfu"] = report.throughput.mfu;
  return json;
}

/// The figures of the message, as far as somebody wrote them down.
OomFigures figures_of(const MeasuredInputs& measured) {
  const auto printed = [](const std::optional<double>& gib) {
    return gib ? std::optional<PrintedSize>(printed_gib(*gib)) : std::nullopt;
  };
  OomFigures figures;
  figures.request = printed(measured.oom_request_gib);
  figures.allocated = printed(measured.oom_allocated_gib);
  figures.reserved = printed(measured.oom_reserved_gib);
  figures.free = printed(measured.oom_free_gib);
  return figures;
}

/// Follows what is allocated, and notes the requests of one size.
class AllocationWalk {
 public:
  AllocationWalk(const RankProgram& rank, const ExpectedFigure& size)
      : rank_(rank), size_(size), factor_(find_unit(size.unit)->factor) {}

  [[nodiscard]] AllocationSearch search() {
    for (const Op& op : rank_.ops) {
      if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
      const Buffer& buffer = rank_.buffers[static_cast<std::size_t>(op.payload)];
      if (buffer.place != MemoryPlace::Device) continue;
      if (op.kind == OpKind::Allocate) {
        allocate(buffer);
      } else {
        allocated_ -= rounded_allocation(buffer.bytes);
        if (is_asked_for(buffer)) --live_;
      }
    }
    return std::move(search_);
  }

 private:
  [[nodiscard]] bool is_asked_for(const Buffer& buffer) const {
    return size_.holds(count_of(buffer.bytes) / factor_);
  }

  [[nodiscard]] double distance(Bytes bytes) const {
    const double wanted = size_.value.value_or(size_.at_least.value_or(size_.at_most.value_or(0)));
    return std::abs(count_of(bytes) / factor_ - wanted);
  }

  void allocate(const Buffer& buffer) {
    const CaseAllocation allocation{buffer.bytes, allocated_};
    if (!search_.nearest || distance(buffer.bytes) < distance(search_.nearest->bytes)) {
      search_.nearest = allocation;
    }
    if (is_asked_for(buffer)) {
      search_.found.push_back(allocation);
      search_.most_at_once = std::max(search_.most_at_once, ++live_);
    }
    allocated_ += rounded_allocation(buffer.bytes);
  }

  const RankProgram& rank_;
  const ExpectedFigure& size_;
  double factor_;
  Bytes allocated_;
  int live_ = 0;
  AllocationSearch search_;
};

/// The moment at which most is held in host memory of a node.
struct HostPeak {
  Bytes held;
  Bytes copies;  ///< of it checkpoints, one a rank
  Phase phase = Phase::Init;
};

HostPeak host_peak(const Program& job, int ranks_of_a_node) {
  const RankProgram& rank = job.ranks.front();
  MemoryLedger ledger(job, false, ranks_of_a_node);
  HostPeak peak;
  Bytes copies;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const BufferId id(op.payload);
    const Buffer& buffer = rank.buffers[id.index()];
    const bool of_each_rank = buffer.owner == "checkpoint" &&
                              buffer.place != MemoryPlace::NodeHost && ranks_of_a_node > 1;
    const Bytes of_copies = of_each_rank ? buffer.bytes * ranks_of_a_node : Bytes(0);
    if (op.kind == OpKind::Free) {
      ledger.on_free(0, id, buffer, op, Seconds(0));
      copies -= of_copies;
      continue;
    }
    ledger.on_allocate(0, id, buffer, op, Seconds(0));
    copies += of_copies;
    const Bytes held = ledger.current_host(0);
    if (held > peak.held) peak = {held, copies, op.phase};
  }
  return peak;
}

/// Whether host memory is short, or more than half full, because every rank of a node loads the
/// model.
bool has_host_copies(const HostPeak& peak, const Room& room) {
  if (!room.host_memory || peak.phase != Phase::Init) return false;
  const bool are_most = peak.copies + peak.copies > peak.held;
  return are_most && (room.exceeds_host() || peak.copies + peak.copies > *room.host_memory);
}

/// The same model, none of whose parameters train: its model states are its weights.
Model frozen(Model model) {
  for (Parameter& parameter : model.parameters) parameter.trainable = false;
  return model;
}

}  // namespace

const Model& ModelCache::model(const ExperimentInputs& inputs) {
  const std::string key = inputs.data_folder + "\n" + inputs.model.key;
  const auto found = models_.find(key);
  if (found != models_.end()) return found->second;
  return models_.emplace(key, model_of(inputs)).first->second;
}

const ConfigOutcome& CaseVariant::config() {
  if (config_) return *config_;
  ConfigOutcome outcome;
  const Model& read_for = model();  // its errors are not those of the configuration
  try {
    outcome.strategy = strategy_of(*inputs_, read_for, UnknownBatch::Refuse);
  } catch (const ConfigError& error) {
    outcome.error = error;
  }
  config_ = std::move(outcome);
  return *config_;
}

const Strategy& CaseVariant::strategy() {
  if (!strategy_) strategy_ = strategy_of(*inputs_, model(), UnknownBatch::One);
  return *strategy_;
}

const Strategy& CaseVariant::simulated_strategy() {
  if (!knows_layers(*inputs_)) throw CaseSkip{"the layers of the model are not known"};
  const Strategy& simulated = strategy();
  if (simulated.not_simulated) {
    throw CaseSkip{format("not simulated: {}", simulated.not_simulated->what())};
  }
  return simulated;
}

const Experiment& CaseVariant::experiment() {
  if (!experiment_) experiment_ = experiment_of(*inputs_, model());
  return *experiment_;
}

const MemoryReport& CaseVariant::memory() {
  if (!memory_) memory_ = replayed_memory(experiment(), simulated_strategy());
  return *memory_;
}

void CaseVariant::check_gpu_memory() const {
  if (!knows_gpu_memory(*inputs_)) throw CaseSkip{"the memory of the GPU is not known"};
}

Verdict CaseVariant::verdict() {
  check_gpu_memory();
  return verdict_of(memory());
}

Room CaseVariant::room() {
  Room room;
  if (knows_gpu_memory(*inputs_)) room.gpu = verdict_of(memory());
  room.host = memory().host;
  const std::optional<double>& host = inputs_->cluster.host_memory_gib;
  if (host) room.host_memory = Bytes(std::llround(*host * 0x1p30));
  return room;
}

std::optional<std::int64_t> CaseVariant::min_gpus() {
  check_gpu_memory();
  return least_gpus(experiment(), simulated_strategy()).size;
}

std::optional<std::int64_t> CaseVariant::max_micro_batch() {
  check_gpu_memory();
  return largest_micro_batch(experiment(), simulated_strategy()).size;
}

const OomExplanation& CaseVariant::explanation() {
  if (!explanation_) {
    explanation_ = explain_oom(figures_of(inputs_->measured), experiment(), simulated_strategy());
  }
  return *explanation_;
}

const std::vector<std::string>& CaseVariant::memory_causes() {
  if (inputs_->measured.has_out_of_memory()) return explanation().causes;
  if (causes_) return *causes_;
  const Room room = this->room();
  if (!room.exceeds_host()) check_gpu_memory();
  std::vector<std::string> causes = explanation().causes;
  const Program job = memory_program(experiment(), simulated_strategy());
  if (has_host_copies(host_peak(job, experiment().cluster.gpus_per_node), room)) {
    // What is fuller is told first.
    const double host = count_of(room.host) / count_of(*room.host_memory);
    const double gpu = count_of(needed(memory())) / count_of(memory().capacity);
    const bool first = !room.gpu || host > gpu;
    causes.insert(first ? causes.begin() : causes.end(), "host_copies_per_rank");
  }
  causes_ = std::move(causes);
  return *causes_;
}

const std::vector<std::string>& CaseVariant::memory_advice() {
  if (advice_) return *advice_;
  std::vector<WayOut> ways;
  // What is saved is worth telling wherever it is not known that something fails.
  if (inputs_->measured.has_out_of_memory()) {
    ways = explanation().ways_out;
  } else if (room().lacks()) {
    ways = ways_out(experiment(), simulated_strategy());
  } else {
    ways = free_savings(experiment(), simulated_strategy());
  }
  advice_.emplace();
  for (const WayOut& way : ways) {
    advice_->push_back(way.code);
    if (!way.second_code.empty()) advice_->push_back(way.second_code);
  }
  return *advice_;
}

AllocationSearch CaseVariant::allocations(const ExpectedFigure& size) {
  const Program job = memory_program(experiment(), simulated_strategy());
  return AllocationWalk(job.ranks.front(), size).search();
}

void CaseVariant::count_collectives() {
  if (communication_) return;
  const Experiment& given = experiment();
  const Strategy& simulated = simulated_strategy();
  BuildOptions options;
  options.world_size = given.cluster.world_size();
  options.first_step = kFirstSteps;
  options.routing = given.routing;
  set_machine(given, options);
  const Program program =
      build_program(given.model, simulated, batch_of(given, simulated), options);
  const RankProgram& rank = program.ranks.front();
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective || op.step != kFirstSteps) continue;
    const Collective& collective = rank.collectives[static_cast<std::size_t>(op.payload)];
    ++calls_[{std::string(to_string(collective.kind)), op.phase}];
  }
  communication_ = count_communication(program, given.cluster);
}

int CaseVariant::collectives(const std::string& op, std::optional<Phase> phase) {
  count_collectives();
  int count = 0;
  for (const auto& [call, times] : calls_) {
    const bool asked_for = (op.empty() || call.first == op) && (!phase || call.second == *phase);
    if (asked_for) count += times;
  }
  return count;
}

double CaseVariant::metric(const std::string& name) {
  switch (find_metric(name)->source) {
    case MetricSource::ModelStates:
      return count_of(model_states());
    case MetricSource::Memory:
      return memory_metric(name);
    case MetricSource::Estimator:
      return estimator_metric(name);
    case MetricSource::Communication:
      return communication_metric(name);
    case MetricSource::Time:
      return time_metric(name);
    case MetricSource::Implied:
      break;
  }
  throw CaseSkip{format("{} is not computed yet", name)};
}

Bytes CaseVariant::model_states() {
  if (model().parameters.empty()) throw CaseSkip{"the model is not known"};
  return paper_model_states_of(model(), strategy(), inputs_->cluster.world_size());
}

double CaseVariant::memory_metric(const std::string& name) {
  // Weights alone are model states, which need no layers.
  if (name == "memory.parameters" && !knows_layers(*inputs_) && !model().parameters.empty()) {
    return count_of(
        paper_model_states_of(frozen(model()), strategy(), inputs_->cluster.world_size()));
  }
  const MemoryReport& report = memory();
  if (name == "memory.parameters") return count_of(report.parameters);
  if (name == "memory.gradients") return count_of(report.gradients);
  if (name == "memory.optimizer_states") return count_of(report.optimizer_states);
  if (name == "memory.activations") return count_of(report.activations);
  if (name == "memory.temporary_buffers") return count_of(report.temporary_buffers);
  if (name == "memory.logits") return count_of(report.logits);
  if (name == "memory.peak_allocated") return count_of(report.peak_allocated);
  if (name == "memory.peak_reserved") return count_of(report.peak_reserved);
  ZS_CHECK(name == "memory.host", "every metric of memory has its figure");
  return count_of(report.host);
}

double CaseVariant::estimator_metric(const std::string& name) {
  if (model().parameters.empty()) throw CaseSkip{"the model is not known"};
  const EstimatorRow row = estimate_of(*inputs_, model(), strategy());
  return count_of(name == "estimator.gpu" ? row.gpu : row.cpu);
}

double CaseVariant::communication_metric(const std::string& name) {
  count_collectives();
  if (name == "communication.collectives") return communication_->collectives;
  if (name == "communication.inter_node_bytes") return count_of(communication_->inter_node_bytes);
  return count_of(communication_->bytes_sent_per_rank);
}

double CaseVariant::time_metric(const std::string& name) {
  const std::string lacks = what_time_lacks(*inputs_);
  if (!lacks.empty()) throw CaseSkip{lacks + ": no time can be told"};
  if (times_.empty()) {
    const Experiment& given = experiment();
    const Strategy& simulated = simulated_strategy();
    const std::string sent = run_isolated([&] {
      Engine engine(given.cluster);
      return to_text(step_metrics(simulate_strategy(given, simulated, engine)), false);
    });
    const JsonDocument document = JsonDocument::from_text(sent, "simulated step");
    for (auto member = document.root().begin(); member != document.root().end(); ++member) {
      times_[member.name()] = member->asDouble();
    }
  }
  return times_.at(name);
}

}  // namespace zerosim
