#include "sim/report/memory_text.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"

namespace zerosim {

namespace {

using Align = TextTable::Align;

constexpr double kGib = 1 << 30;
/// World sizes of Table 1 of the ZeRO paper.
constexpr std::array kPaperWorldSizes = {1, 4, 16, 64, 256, 1024};
/// Models of Table 1: 7.5B, 128B, 1T.
constexpr std::array<std::int64_t, 3> kPaperModels = {7'500'000'000, 128'000'000'000,
                                                      1'000'000'000'000};
constexpr int kLargestWorldSize = 1024;

JsonValue integer(std::int64_t value) {
  return static_cast<Json::Int64>(value);
}

double states(std::int64_t parameters, const Sharding& sharding, int world_size,
              Precision precision) {
  return paper_model_states(static_cast<double>(parameters), sharding, world_size,
                            state_bytes(precision));
}

std::string yes_or_no(bool value) {
  return value ? "sharded" : "on each";
}

// ---- states and stages -----------------------------------------------------------------------

struct State {
  const char* label;
  const char* key;
  int bytes;  ///< of one parameter
};

std::vector<State> states_of(Precision precision) {
  const StateBytes bytes = state_bytes(precision);
  return {{"parameters", "parameters", bytes.parameters},
          {"gradients", "gradients", bytes.gradients},
          {"fp32 master weights", "master_weights", bytes.master},
          {"Adam moments (m and v, fp32)", "moments", bytes.moments},
          {"total", "total", bytes.total()}};
}

std::string state_table(std::int64_t parameters, Precision precision) {
  TextTable table({Align::Left, Align::Right, Align::Right});
  table.add_row({"model states", "bytes/parameter", "GiB"});
  table.add_rule();
  for (const State& state : states_of(precision)) {
    table.add_row({state.label, std::to_string(state.bytes),
                   format("{:.2f}", static_cast<double>(parameters) * state.bytes / kGib)});
  }
  return table.text();
}

std::string sharding_table() {
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left});
  table.add_row({"what is sharded", "parameters", "gradients", "optimizer states"});
  table.add_rule();
  for (const Sharding& sharding : shardings()) {
    table.add_row({sharding.strategy, yes_or_no(sharding.parameters), yes_or_no(sharding.gradients),
                   yes_or_no(sharding.optimizer_states)});
  }
  return table.text();
}

std::string world_size_table(std::int64_t parameters, Precision precision) {
  TextTable table(std::vector<Align>(shardings().size() + 1, Align::Right), 3);
  std::vector<std::string> header = {"GPUs"};
  for (const Sharding& sharding : shardings()) header.push_back(sharding.strategy);
  table.add_row(std::move(header));
  table.add_rule();
  for (int world_size = 1; world_size <= kLargestWorldSize; world_size *= 2) {
    std::vector<std::string> cells = {std::to_string(world_size)};
    for (const Sharding& sharding : shardings()) {
      cells.push_back(format("{:.2f}", states(parameters, sharding, world_size, precision) / kGib));
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

// ---- the ZeRO paper --------------------------------------------------------------------------

std::string in_paper(std::int64_t parameters, const Sharding& sharding, int world_size) {
  return paper_figure(states(parameters, sharding, world_size, Precision::Fp16) / 1e9);
}

/// The paper's names: P_os, P_os+g, P_os+g+p; "baseline" shards nothing.
std::string paper_name(const Sharding& sharding) {
  if (sharding.parameters) return "P_os+g+p";
  if (sharding.gradients) return "P_os+g";
  return sharding.optimizer_states ? "P_os" : "baseline";
}

std::string paper_formula(const Sharding& sharding) {
  if (sharding.parameters) return "(2 + 2 + K) Psi / N";
  if (sharding.gradients) return "2 Psi + (2 + K) Psi / N";
  return sharding.optimizer_states ? "2 Psi + 2 Psi + K Psi / N" : "(2 + 2 + K) Psi";
}

/// "7.5B", "1T": as the heads of Table 1.
std::string billions(std::int64_t parameters) {
  const double value = static_cast<double>(parameters) / 1e9;
  return value >= 1000 ? format("{:g}T", value / 1000) : format("{:g}B", value);
}

std::string figure_1(std::int64_t parameters, int world_size) {
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Right});
  table.add_row({"partitioned", "strategy", "bytes per GPU", "GB"});
  table.add_rule();
  for (const Sharding& sharding : shardings()) {
    table.add_row({paper_name(sharding), sharding.strategy, paper_formula(sharding),
                   in_paper(parameters, sharding, world_size)});
  }
  return format("Figure 1: model states per GPU, Psi = {} parameters, N = {} GPUs, K = 12\n\n",
                billions(parameters), world_size) +
         table.text();
}

std::string table_1(std::span<const std::int64_t> models) {
  std::vector<Align> columns = {Align::Right};
  std::vector<std::string> heads = {""};
  std::vector<std::string> names = {"GPUs"};
  for (const std::int64_t parameters : models) {
    for (const Sharding& sharding : shardings()) {
      if (!sharding.optimizer_states) continue;  // Table 1 has no baseline
      columns.push_back(Align::Right);
      heads.push_back(sharding.gradients ? "" : billions(parameters));
      names.push_back(paper_name(sharding));
    }
  }
  TextTable table(columns);
  table.add_row(std::move(heads));
  table.add_row(std::move(names));
  table.add_rule();
  for (const int world_size : kPaperWorldSizes) {
    std::vector<std::string> cells = {std::to_string(world_size)};
    for (const std::int64_t parameters : models) {
      for (const Sharding& sharding : shardings()) {
        if (!sharding.optimizer_states) continue;
        cells.push_back(in_paper(parameters, sharding, world_size));
      }
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

bool is_paper_model(std::int64_t parameters) {
  for (const std::int64_t model : kPaperModels) {
    if (model == parameters) return true;
  }
  return false;
}

JsonValue paper_entry(std::int64_t parameters, const Sharding& sharding, int world_size) {
  JsonValue entry(Json::objectValue);
  entry["parameters"] = integer(parameters);
  entry["world_size"] = world_size;
  entry["strategy"] = sharding.strategy;
  entry["printed_gb"] = in_paper(parameters, sharding, world_size);
  entry["bytes"] = integer(std::llround(states(parameters, sharding, world_size, Precision::Fp16)));
  return entry;
}

// ---- DeepSpeed's estimators ------------------------------------------------------------------

/// Millions, cut as Python's int() does.
std::int64_t millions(std::int64_t count) {
  return count / 1'000'000;
}

/// DeepSpeed pads "cpu" to four characters and prints "none" (runtime/zero/stage3.py,
/// format_options).
std::string device(bool offloaded) {
  return offloaded ? "cpu " : "none";
}

std::string options_text(const EstimatorRow& row) {
  std::string optimizer = "offload_optimizer=" + device(row.offload_optimizer);
  if (row.stage < 3) return optimizer;
  return format("offload_param={}, {}, zero_init={}", device(row.offload_param), optimizer,
                row.zero_init ? 1 : 0);
}

std::string estimator_table(int stage, const EstimatorInput& input) {
  std::string out = format(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with {} {}, {} {} per node.\n"
      "SW: Model with {}M total params",
      input.nodes, input.nodes > 1 ? "nodes" : "node", input.gpus_per_node,
      input.gpus_per_node > 1 ? "GPUs" : "GPU", millions(input.parameters));
  out += stage < 3 ? std::string(".\n")
                   : format(", {}M largest layer params.\n", millions(input.largest_layer));
  out += "  per CPU  |  per GPU |   Options\n";
  for (const EstimatorRow& row : deepspeed_estimates(stage, input)) {
    out += format(" {:7.2f}GB | {:6.2f}GB | {}\n", row.cpu.gib(), row.gpu.gib(), options_text(row));
  }
  return out;
}

JsonValue estimator_row_json(const EstimatorRow& row) {
  JsonValue json(Json::objectValue);
  json["stage"] = row.stage;
  json["offload_optimizer"] = row.offload_optimizer;
  json["offload_param"] = row.offload_param;
  json["zero_init"] = row.zero_init;
  json["gpu"] = integer(row.gpu.count());
  json["host"] = integer(row.cpu.count());
  return json;
}

}  // namespace

std::string model_states_text(std::int64_t parameters, Precision precision) {
  return format("{} parameters, {} training with AdamW\n\n", grouped(parameters),
                to_string(precision)) +
         state_table(parameters, precision) + "\n" + sharding_table() +
         "\nmodel states per GPU (GiB)\n" + world_size_table(parameters, precision) +
         "\nWithout activations, buffers and padding; `--model` with `--cluster` replays a step.\n";
}

JsonValue model_states_json(std::int64_t parameters, Precision precision) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["inputs"]["parameters"] = integer(parameters);
  json["inputs"]["precision"] = std::string(to_string(precision));
  for (const State& state : states_of(precision)) {
    json["states"][state.key] = integer((Bytes(parameters) * state.bytes).count());
  }
  JsonValue& rows = json["per_gpu"] = JsonValue(Json::arrayValue);
  for (int world_size = 1; world_size <= kLargestWorldSize; world_size *= 2) {
    JsonValue row(Json::objectValue);
    row["world_size"] = world_size;
    for (const Sharding& sharding : shardings()) {
      row[sharding.strategy] =
          integer(std::llround(states(parameters, sharding, world_size, precision)));
    }
    rows.append(row);
  }
  return json;
}

std::string paper_text(std::int64_t parameters, int world_size) {
  std::string out =
      "As the ZeRO paper (arXiv 1910.02054) counts: GB = 10^9 bytes, fp16 with fp32 Adam\n\n";
  out += figure_1(parameters, world_size);
  out += "\nTable 1: model states per GPU (GB)\n\n" + table_1(kPaperModels);
  if (!is_paper_model(parameters)) {
    const std::array<std::int64_t, 1> own = {parameters};
    out += "\nThe same for this model (GB)\n\n" + table_1(own);
  }
  return out;
}

JsonValue paper_json(std::int64_t parameters, int world_size) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["inputs"]["parameters"] = integer(parameters);
  json["inputs"]["world_size"] = world_size;
  json["inputs"]["accounting"] = "paper";
  JsonValue& figure = json["figure_1"] = JsonValue(Json::arrayValue);
  for (const Sharding& sharding : shardings()) {
    figure.append(paper_entry(parameters, sharding, world_size));
  }
  std::vector<std::int64_t> models(kPaperModels.begin(), kPaperModels.end());
  if (!is_paper_model(parameters)) models.push_back(parameters);
  JsonValue& table = json["table_1"] = JsonValue(Json::arrayValue);
  for (const std::int64_t model : models) {
    for (const int ranks : kPaperWorldSizes) {
      for (const Sharding& sharding : shardings()) {
        if (sharding.optimizer_states) table.append(paper_entry(model, sharding, ranks));
      }
    }
  }
  return json;
}

std::string estimator_text(const EstimatorInput& input) {
  std::vector<std::string> ours;
  for (const Sharding& sharding : shardings()) {
    const double bytes =
        states(input.parameters, sharding, input.gpus_per_node * input.nodes, Precision::Bf16);
    ours.push_back(format("{} {:.2f} GiB", sharding.strategy, bytes / kGib));
  }
  return "DeepSpeed's estimate for stage 2 (GB stands for GiB)\n" + estimator_table(2, input) +
         "\nDeepSpeed's estimate for stage 3\n" + estimator_table(3, input) + "\n" +
         wrap("Model states per GPU as the ZeRO paper counts them, without offload: " +
                  join(ours, ", ") +
                  ". Neither counts activations, buckets, or temporaries of the step.",
              kReportColumns);
}

JsonValue estimator_json(const EstimatorInput& input, const EstimatorRow& chosen) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  JsonValue& inputs = json["inputs"] = JsonValue(Json::objectValue);
  inputs["parameters"] = integer(input.parameters);
  inputs["largest_layer"] = integer(input.largest_layer);
  inputs["gpus_per_node"] = input.gpus_per_node;
  inputs["nodes"] = input.nodes;
  json["estimator"] = estimator_row_json(chosen);
  JsonValue& rows = json["rows"] = JsonValue(Json::arrayValue);
  for (const int stage : {2, 3}) {
    for (const EstimatorRow& row : deepspeed_estimates(stage, input)) {
      rows.append(estimator_row_json(row));
    }
  }
  return json;
}

}  // namespace zerosim
