// What a model consists of: parameters, FLOPs and bytes of its modules for a given batch.

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/text.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"

namespace zerosim {

namespace {

using Align = TextTable::Align;

/// One module's own operators and parameters, children not included.
struct ModuleCost {
  std::int64_t parameters = 0, trainable = 0;
  double forward_flops = 0, backward_flops = 0;
  std::int64_t forward_bytes = 0, backward_bytes = 0, saved = 0;

  void add(const ModuleCost& other) {
    parameters += other.parameters;
    trainable += other.trainable;
    forward_flops += other.forward_flops;
    backward_flops += other.backward_flops;
    forward_bytes += other.forward_bytes;
    backward_bytes += other.backward_bytes;
    saved += other.saved;
  }
  friend bool operator==(const ModuleCost&, const ModuleCost&) = default;
};

void add_kernels(const std::vector<Kernel>& kernels, double& flops, std::int64_t& bytes) {
  for (const Kernel& kernel : kernels) {
    flops += kernel.flops.count();
    bytes += kernel.bytes.count();
  }
}

/// Costs of each module, index = module. A parameter counts where it was registered first.
std::vector<ModuleCost> module_costs(const Model& model, const BatchShape& batch) {
  std::vector<ModuleCost> costs(model.modules.size());
  for (const Parameter& parameter : model.parameters) {
    ModuleCost& cost = costs[parameter.owner.index()];
    cost.parameters += parameter.elements;
    if (parameter.trainable) cost.trainable += parameter.elements;
  }
  for (const ExecutionStep& step : model.forward) {
    if (step.kind != ExecutionStep::Kind::Compute) continue;
    const Operator& op = model.operators[static_cast<std::size_t>(step.operation)];
    const OperatorCost operator_costs = operator_cost(model, op, batch);
    ModuleCost& cost = costs[op.module.index()];
    add_kernels(operator_costs.forward, cost.forward_flops, cost.forward_bytes);
    add_kernels(operator_costs.backward_input, cost.backward_flops, cost.backward_bytes);
    add_kernels(operator_costs.backward_weights, cost.backward_flops, cost.backward_bytes);
    cost.saved += operator_costs.saved.count();
  }
  return costs;
}

ModuleCost total_cost(const std::vector<ModuleCost>& costs) {
  ModuleCost total;
  for (const ModuleCost& cost : costs) total.add(cost);
  return total;
}

/// Modules of one block, in order of execution.
struct Block {
  int index = -1;
  std::vector<std::size_t> modules;
};

/// Consecutive modules of the same block together; a module outside blocks is alone.
std::vector<Block> blocks_of(const Model& model) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const int block = model.modules[i].block;
    if (block < 0 || blocks.empty() || blocks.back().index != block) blocks.push_back({block, {}});
    blocks.back().modules.push_back(i);
  }
  return blocks;
}

/// Name within the block, whose first module is its root.
std::string_view relative_name(const Model& model, const Block& block, std::size_t module) {
  const std::string& root = model.modules[block.modules.front()].name;
  std::string_view name = model.modules[module].name;
  if (block.index < 0 || module == block.modules.front()) return name;
  return name.starts_with(root + ".") ? name.substr(root.size() + 1) : name;
}

bool alike(const Model& model, const std::vector<ModuleCost>& costs, const Block& a,
           const Block& b) {
  if (a.index < 0 || b.index < 0 || a.modules.size() != b.modules.size()) return false;
  for (std::size_t i = 0; i < a.modules.size(); ++i) {
    const std::size_t x = a.modules[i];
    const std::size_t y = b.modules[i];
    const bool same_name = i == 0 || relative_name(model, a, x) == relative_name(model, b, y);
    // Experts differ by the tokens that they see, which the row of all experts shows.
    const bool same_cost = model.modules[x].expert >= 0 || costs[x] == costs[y];
    if (!same_name || model.modules[x].class_name != model.modules[y].class_name || !same_cost) {
      return false;
    }
  }
  return true;
}

class ModuleTable {
 public:
  ModuleTable(const Model& model, const BatchShape& batch)
      : model_(model), batch_(batch), costs_(module_costs(model, batch)) {}

  [[nodiscard]] std::string text() const;

 private:
  void add_cost(TextTable& table, const std::string& name, const ModuleCost& cost) const;
  /// \param alike  how many blocks this one stands for.
  void add_block(TextTable& table, const Block& block, std::size_t alike) const;
  std::size_t add_experts(TextTable& table, const Block& block, std::size_t first,
                          std::size_t alike) const;

  const Model& model_;
  const BatchShape& batch_;
  std::vector<ModuleCost> costs_;
};

void ModuleTable::add_cost(TextTable& table, const std::string& name,
                           const ModuleCost& cost) const {
  const auto tokens = static_cast<double>(batch_.tokens());
  const auto per_token = [&](std::int64_t bytes) {
    return format("{:.2f}", static_cast<double>(bytes) / tokens / 1024);
  };
  table.add_row(
      {name, grouped(cost.parameters), format("{:.2f}", cost.forward_flops / tokens / 1e6),
       format("{:.2f}", cost.backward_flops / tokens / 1e6), per_token(cost.forward_bytes),
       per_token(cost.backward_bytes), per_token(cost.saved)});
}

void ModuleTable::add_block(TextTable& table, const Block& block, std::size_t alike) const {
  const std::size_t root = block.modules.front();
  ModuleCost sum;
  for (const std::size_t module : block.modules) sum.add(costs_[module]);
  std::string name = model_.modules[root].name.empty() ? "(root)" : model_.modules[root].name;
  if (alike > 1) name += format(" (x {})", alike);
  const bool single = block.modules.size() == 1;
  if (single && sum == ModuleCost{}) return;
  add_cost(table, name, sum);
  if (single) return;
  for (std::size_t i = 0; i < block.modules.size(); ++i) {
    const std::size_t module = block.modules[i];
    if (model_.modules[module].expert >= 0) {
      i += add_experts(table, block, i, alike) - 1;
    } else if (costs_[module] != ModuleCost{}) {
      const std::string own =
          module == root ? "(own)" : std::string(relative_name(model_, block, module));
      add_cost(table, "  " + own + (model_.modules[module].leaf ? " [leaf]" : ""), costs_[module]);
    }
  }
}

/// One row for the experts of a MoE block, the first module of which is the `first` of the block.
/// \returns how many modules they are.
std::size_t ModuleTable::add_experts(TextTable& table, const Block& block, std::size_t first,
                                     std::size_t alike) const {
  ModuleCost sum;
  std::set<int> experts;
  std::size_t count = 0;
  const auto moe_block = static_cast<std::size_t>(model_.modules[block.modules[first]].moe_block);
  while (first + count < block.modules.size()) {
    const Module& module = model_.modules[block.modules[first + count]];
    if (module.expert < 0 || static_cast<std::size_t>(module.moe_block) != moe_block) break;
    sum.add(costs_[block.modules[first + count]]);
    experts.insert(module.expert);
    ++count;
  }
  std::vector<std::int64_t> tokens;
  for (std::size_t i = moe_block; i < std::min(moe_block + alike, model_.moe_blocks.size()); ++i) {
    const std::vector<std::int64_t>& more = model_.moe_blocks[i].tokens;
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  std::string name = format("  {} experts", experts.size());
  if (!tokens.empty()) {
    const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
    name += format(", {} to {} tokens each", *least, *most);
  }
  add_cost(table, name, sum);
  return count;
}

std::string ModuleTable::text() const {
  TextTable table({Align::Left, Align::Right, Align::Right, Align::Right, Align::Right,
                   Align::Right, Align::Right});
  table.add_row({"per token", "", "MFLOP", "MFLOP", "KiB", "KiB", "KiB"});
  table.add_row({"module", "parameters", "forward", "backward", "forward", "backward", "saved"});
  table.add_rule();
  const std::vector<Block> blocks = blocks_of(model_);
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t next = first + 1;
    while (next < blocks.size() && alike(model_, costs_, blocks[first], blocks[next])) ++next;
    add_block(table, blocks[first], next - first);
    first = next;
  }
  table.add_rule();
  add_cost(table, "in all", total_cost(costs_));
  return table.text();
}

std::string shape_text(const ModelShape& shape) {
  std::vector<std::string> parts;
  const auto part = [&](const char* name, std::int64_t value) {
    if (value > 0) parts.push_back(format("{} {}", name, value));
  };
  part("layers", shape.layers);
  part("hidden", shape.hidden);
  part("heads", shape.heads);
  part("key-value heads", shape.kv_heads);
  part("head size", shape.head_dim);
  part("ffn", shape.ffn);
  part("vocabulary", shape.vocab);
  part("positions", shape.max_positions);
  part("window", shape.window);
  return join(parts, ", ");
}

std::string batch_text(const BatchShape& batch) {
  return format("micro batch {} x {} tokens in {}, {} attention", batch.micro_batch, batch.sequence,
                to_string(batch.compute), batch.flash_attention ? "flash" : "unfused");
}

JsonValue integer(std::int64_t value) {
  return static_cast<Json::Int64>(value);
}

JsonValue cost_json(const ModuleCost& cost) {
  JsonValue json(Json::objectValue);
  json["parameters"] = integer(cost.parameters);
  json["forward_flops"] = cost.forward_flops;
  json["backward_flops"] = cost.backward_flops;
  json["forward_bytes"] = integer(cost.forward_bytes);
  json["backward_bytes"] = integer(cost.backward_bytes);
  json["saved_bytes"] = integer(cost.saved);
  return json;
}

/// Tokens of the micro batch that an expert sees; nothing if it is none, or not routed.
std::optional<std::int64_t> tokens_of(const Model& model, const Module& module) {
  if (module.expert < 0) return std::nullopt;
  const MoeBlock& block = model.moe_blocks[static_cast<std::size_t>(module.moe_block)];
  if (block.tokens.empty()) return std::nullopt;
  return block.tokens[static_cast<std::size_t>(module.expert)];
}

JsonValue module_json(const Model& model, const Module& module, const ModuleCost& cost) {
  JsonValue json = cost_json(cost);
  json["name"] = module.name;
  json["class"] = module.class_name;
  json["block"] = module.block < 0 ? JsonValue() : JsonValue(module.block);
  json["expert"] = module.expert < 0 ? JsonValue() : JsonValue(module.expert);
  const std::optional<std::int64_t> tokens = tokens_of(model, module);
  json["tokens"] = tokens ? integer(*tokens) : JsonValue();
  json["leaf"] = module.leaf;
  json["trainable"] = integer(cost.trainable);
  return json;
}

}  // namespace

std::string model_text(const Model& model, const BatchShape& batch) {
  const std::int64_t total = parameter_count(model);
  TextTable facts({Align::Left, Align::Left});
  facts.add_row({"parameters", format("{} total, {} trainable, {} active per token", grouped(total),
                                      grouped(trainable_parameter_count(model)),
                                      grouped(active_parameter_count(model)))});
  facts.add_row({"weights", to_string(Bytes(total) * dtype_bytes(batch.compute)) + " in " +
                                std::string(to_string(batch.compute))});
  facts.add_row({"largest module", grouped(largest_module_parameters(model)) + " parameters"});
  facts.add_row({"training", format("{:.4g} GFLOP per token (6 N + 12 L h s)",
                                    model_flops_per_token(model, batch.sequence).count() / 1e9)});
  std::string out = wrap(format("{} ({})", model.name, model.family), kReportColumns);
  out += facts.text();
  std::string shape = shape_text(model.shape);
  if (!model.moe_blocks.empty()) {
    const MoeBlock& moe = model.moe_blocks.front();
    shape += format(", {} of {} experts a token in {} layers", moe.experts_per_token, moe.experts,
                    model.moe_blocks.size());
  }
  if (!shape.empty()) out += wrap(shape, kReportColumns, "shape           ");
  out += "\n" + wrap(batch_text(batch), kReportColumns) + "\n";
  out += ModuleTable(model, batch).text();
  if (!model.assumptions.empty()) out += "\nAssumptions\n";
  for (const std::string& sentence : model.assumptions) {
    out += wrap(sentence, kReportColumns, "  - ");
  }
  return out;
}

JsonValue model_json(const Model& model, const BatchShape& batch) {
  const std::vector<ModuleCost> costs = module_costs(model, batch);
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  JsonValue& inputs = json["inputs"] = JsonValue(Json::objectValue);
  inputs["model"] = model.name;
  inputs["micro_batch"] = integer(batch.micro_batch);
  inputs["sequence"] = integer(batch.sequence);
  inputs["dtype"] = std::string(to_string(batch.compute));
  inputs["flash_attention"] = batch.flash_attention;
  JsonValue& parameters = json["parameters"] = JsonValue(Json::objectValue);
  parameters["total"] = integer(parameter_count(model));
  parameters["trainable"] = integer(trainable_parameter_count(model));
  parameters["active_per_token"] = integer(active_parameter_count(model));
  json["largest_module_parameters"] = integer(largest_module_parameters(model));
  json["flops_per_token"] = model_flops_per_token(model, batch.sequence).count();
  json["micro_batch"] = cost_json(total_cost(costs));
  JsonValue& modules = json["modules"] = JsonValue(Json::arrayValue);
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    modules.append(module_json(model, model.modules[i], costs[i]));
  }
  JsonValue& assumptions = json["assumptions"] = JsonValue(Json::arrayValue);
  for (const std::string& sentence : model.assumptions) assumptions.append(sentence);
  return json;
}

}  // namespace zerosim
