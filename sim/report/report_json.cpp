#include <string>
#include <vector>

#include "sim/analysis/memory_report.h"
#include "sim/report/memory_text.h"
#include "sim/report/report_text.h"

namespace zerosim {

namespace {

JsonValue integer(std::int64_t value) {
  return static_cast<Json::Int64>(value);
}
JsonValue bytes(Bytes value) {
  return integer(value.count());
}
JsonValue seconds(Seconds value) {
  return {value.count()};
}

JsonValue strings(const std::vector<std::string>& values) {
  JsonValue array(Json::arrayValue);
  for (const std::string& value : values) array.append(value);
  return array;
}

JsonValue failure_json(const std::optional<MemoryFailure>& failure) {
  if (!failure) return {};
  JsonValue json(Json::objectValue);
  json["request"] = bytes(failure->request);
  json["allocated"] = bytes(failure->allocated);
  json["reserved"] = bytes(failure->reserved);
  json["free"] = bytes(failure->free);
  json["part"] = failure->part;
  json["phase"] = failure->phase;
  json["op"] = failure->op;
  return json;
}

JsonValue memory_json(const MemoryReport& memory) {
  JsonValue json(Json::objectValue);
  json["model_states"] = bytes(memory.model_states);
  json["parameters"] = bytes(memory.parameters);
  json["gradients"] = bytes(memory.gradients);
  json["optimizer_states"] = bytes(memory.optimizer_states);
  json["activations"] = bytes(memory.activations);
  json["temporary_buffers"] = bytes(memory.temporary_buffers);
  json["live_parameters"] = bytes(memory.live_parameters);
  json["logits"] = bytes(memory.logits);
  json["steady_allocated"] = bytes(memory.steady_allocated);
  json["after_step"] = bytes(memory.after_step);
  json["fragmentation"] = bytes(memory.fragmentation);
  json["context"] = bytes(memory.context);
  json["peak_allocated"] = bytes(memory.peak_allocated);
  json["peak_active"] = bytes(memory.peak_active);
  json["peak_reserved"] = bytes(memory.peak_reserved);
  json["peak_part"] = memory.peak_part;
  json["peak_phase"] = memory.peak_phase;
  json["peak_op"] = memory.peak_op;
  json["flushes"] = memory.flushes;
  json["early_flushes"] = memory.early_flushes;
  json["flush_time"] = seconds(memory.flush_time);
  json["failure"] = failure_json(memory.failure);
  json["capacity"] = bytes(memory.capacity);
  json["headroom"] = bytes(headroom(memory));
  json["host"] = bytes(memory.host);
  json["rank"] = memory.rank;
  if (memory.least) {
    json["least"]["rank"] = memory.least->rank;
    json["least"]["peak_allocated"] = bytes(memory.least->peak_allocated);
  }
  return json;
}

JsonValue jitter_json(const JitterReport& jitter) {
  JsonValue json(Json::objectValue);
  json["repetitions"] = jitter.repetitions;
  json["mean"] = seconds(jitter.mean);
  json["deviation"] = seconds(jitter.deviation);
  json["minimum"] = seconds(jitter.minimum);
  json["maximum"] = seconds(jitter.maximum);
  return json;
}

JsonValue folding_json(const FoldingReport& folding) {
  JsonValue json(Json::objectValue);
  json["mode"] = std::string(to_string(folding.mode));
  json["ranks"] = folding.ranks;
  json["classes"] = folding.classes;
  json["programs"] = folding.programs;
  json["links"] = folding.links;
  return json;
}

JsonValue time_json(const TimeReport& time) {
  JsonValue json(Json::objectValue);
  json["step"] = seconds(time.step);
  json["compute"] = seconds(time.compute);
  json["exposed_communication"] = seconds(time.exposed_communication);
  json["host"] = seconds(time.host);
  json["optimizer"] = seconds(time.optimizer);
  json["forward"] = seconds(time.forward);
  json["backward"] = seconds(time.backward);
  json["communication"] = seconds(time.communication);
  json["rank"] = time.rank;
  if (time.jitter) json["jitter"] = jitter_json(*time.jitter);
  return json;
}

JsonValue communication_json(const CommunicationReport& communication) {
  JsonValue json(Json::objectValue);
  json["collectives"] = communication.collectives;
  json["bytes_sent_per_rank"] = bytes(communication.bytes_sent_per_rank);
  json["inter_node_bytes"] = bytes(communication.inter_node_bytes);
  json["psi"] = communication.psi;
  json["paper_psi"] = communication.paper_psi;
  JsonValue& by_operation = json["by_operation"] = JsonValue(Json::objectValue);
  for (const auto& [operation, totals] : communication.by_operation) {
    JsonValue& entry = by_operation[operation] = JsonValue(Json::objectValue);
    entry["calls"] = totals.calls;
    entry["bytes_sent"] = bytes(totals.bytes_sent);
  }
  return json;
}

JsonValue throughput_json(const ThroughputReport& throughput) {
  JsonValue json(Json::objectValue);
  json["tokens_per_s"] = throughput.tokens_per_s;
  json["tokens_per_s_per_gpu"] = throughput.tokens_per_s_per_gpu;
  json["samples_per_s"] = throughput.samples_per_s;
  json["tflops_per_gpu"] = throughput.tflops_per_gpu;
  json["mfu"] = throughput.mfu;
  json["hfu"] = throughput.hfu;
  return json;
}

JsonValue warnings_json(const std::vector<Warning>& warnings) {
  JsonValue array(Json::arrayValue);
  for (const Warning& warning : warnings) {
    JsonValue entry(Json::objectValue);
    entry["code"] = warning.code;
    entry["message"] = warning.message;
    array.append(entry);
  }
  return array;
}

JsonValue inputs_json(const Comparison& comparison) {
  JsonValue inputs(Json::objectValue);
  inputs["model"] = comparison.model;
  inputs["cluster"] = comparison.cluster;
  inputs["world_size"] = comparison.world_size;
  inputs["parameters"] = integer(comparison.parameters);
  inputs["sequence"] = integer(comparison.sequence);
  return inputs;
}

JsonValue tried_json(const Limit& limit) {
  JsonValue probes(Json::arrayValue);
  for (const LimitProbe& probe : limit.probes) {
    JsonValue entry(Json::objectValue);
    entry["size"] = integer(probe.size);
    entry["verdict"] =
        std::string(to_string(probe.memory ? verdict_of(*probe.memory) : Verdict::DoesNotFit));
    entry["needed"] = probe.memory ? bytes(needed(*probe.memory)) : JsonValue();
    if (!probe.memory) entry["refusal"] = probe.refusal;
    probes.append(entry);
  }
  return probes;
}

void add_limits(JsonValue& json, const MemoryLimits& limits) {
  const auto size = [](const Limit& limit) {
    return limit.size ? integer(*limit.size) : JsonValue();
  };
  json["minimum_gpus"] = size(limits.gpus);
  json["largest_micro_batch"] = size(limits.micro_batch);
  json["tried"]["gpus"] = tried_json(limits.gpus);
  json["tried"]["micro_batch"] = tried_json(limits.micro_batch);
}

}  // namespace

JsonValue strategy_json(const StrategyReport& report) {
  JsonValue json(Json::objectValue);
  json["name"] = report.name;
  json["stage"] = report.stage;
  json["verdict"] = std::string(to_string(report.verdict));
  json["memory"] = memory_json(report.memory);
  json["time"] = time_json(report.time);
  json["communication"] = communication_json(report.communication);
  json["throughput"] = throughput_json(report.throughput);
  if (report.folding.classes > 0) json["folding"] = folding_json(report.folding);
  json["assumptions"] = strings(report.assumptions);
  json["warnings"] = warnings_json(report.warnings);
  return json;
}

JsonValue comparison_json(const Comparison& comparison) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["inputs"] = inputs_json(comparison);
  JsonValue& strategies = json["strategies"] = JsonValue(Json::arrayValue);
  for (const StrategyReport& report : comparison.strategies) {
    strategies.append(strategy_json(report));
  }
  json["sentences"] = strings(comparison.sentences);
  return json;
}

JsonValue memory_comparison_json(const Comparison& comparison,
                                 const std::vector<MemoryLimits>& limits) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["inputs"] = inputs_json(comparison);
  JsonValue& strategies = json["strategies"] = JsonValue(Json::arrayValue);
  for (std::size_t i = 0; i < comparison.strategies.size(); ++i) {
    const StrategyReport& report = comparison.strategies[i];
    JsonValue entry(Json::objectValue);
    entry["name"] = report.name;
    entry["stage"] = report.stage;
    entry["verdict"] = std::string(to_string(report.verdict));
    entry["memory"] = memory_json(report.memory);
    if (i < limits.size()) add_limits(entry, limits[i]);
    entry["assumptions"] = strings(report.assumptions);
    entry["warnings"] = warnings_json(report.warnings);
    strategies.append(entry);
  }
  return json;
}

}  // namespace zerosim
