#include "sim/model/trainable.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fnmatch.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/model/assembler.h"

namespace zerosim {
namespace {

using internal::ModelAssembler;

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kLoraFlag = "--lora";
constexpr std::int64_t kLargestRank = 1 << 20;

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 == 0
}

/// Whether the module of the operator is one that PEFT adapts, an nn.Linear (FalconLinear is one,
/// DeepSeek's router is none) or a Conv1D, and alone owns its matrix.
bool is_product(const Model& model, const Operator& op) {
  const Module& module = model.modules[op.module.index()];
  const bool adapted = module.class_name.ends_with("Linear") || module.class_name == "Conv1D";
  if (op.kind != OperatorKind::Linear || !adapted) return false;
  return std::any_of(op.parameters.begin(), op.parameters.end(), [&](ParameterId id) {
    const Parameter& parameter = model.parameters[id.index()];
    return parameter.shape.size() == 2 && parameter.owner == op.module &&
           parameter.name == module.name + ".weight";
  });
}

/// PEFT's TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING (peft/utils/constants.py).
std::vector<std::string> default_targets(const std::string& family) {
  static const std::map<std::string, std::vector<std::string>> kTargets = {
      {"baichuan", {"W_pack"}},
      {"bert", {"query", "value"}},
      {"bloom", {"query_key_value"}},
      {"falcon", {"query_key_value"}},
      {"gemma", {"q_proj", "v_proj"}},
      {"gemma2", {"q_proj", "v_proj"}},
      {"gpt2", {"c_attn"}},
      {"gpt_neox", {"query_key_value"}},
      {"gptj", {"q_proj", "v_proj"}},
      {"llama", {"q_proj", "v_proj"}},
      {"mistral", {"q_proj", "v_proj"}},
      {"mixtral", {"q_proj", "v_proj"}},
      {"mt5", {"q", "v"}},
      {"opt", {"q_proj", "v_proj"}},
      {"phi3", {"qkv_proj"}},
      {"qwen2", {"q_proj", "v_proj"}},
      {"qwen3", {"q_proj", "v_proj"}},
      {"roberta", {"query", "value"}},
      {"t5", {"q", "v"}},
  };
  const auto found = kTargets.find(family);
  return found == kTargets.end() ? std::vector<std::string>{} : found->second;
}

// --------------------------------------------------------------------------------------------
// LoRA

/// Builds the wrapped model from the steps of the plain one.
class LoraWrapper {
 public:
  LoraWrapper(const Model& model, const LoraOptions& options) : model_(model), options_(options) {}

  Model wrap() {
    find_targets();
    register_parameters();
    run();
    Model result = assembler_.finish();
    result.name = model_.name;
    result.family = model_.family;
    result.shape = model_.shape;
    result.assumptions = model_.assumptions;
    result.assumptions.insert(result.assumptions.end(), assumptions_.begin(), assumptions_.end());
    return result;
  }

 private:
  [[nodiscard]] bool is_target(ModuleId id) const { return targets_.contains(id); }

  /// The output head, which "all-linear" leaves out: the last product of the model.
  [[nodiscard]] ModuleId output_head() const {
    ModuleId head;
    for (const Operator& op : model_.operators) {
      if (op.kind == OperatorKind::Linear) head = op.module;
    }
    return head;
  }

  void find_targets() {
    std::vector<std::string> wanted = options_.targets;
    if (wanted.empty()) {
      wanted = default_targets(model_.family);
      if (wanted.empty()) {
        throw ConfigError(format("{}: PEFT has no default targets for \"{}\", expected targets=...",
                                 kLoraFlag, model_.family));
      }
      assumptions_.push_back(
          format("LoRA targets: {}, PEFT's default for {}", join(wanted, ", "), model_.family));
    }
    for (const std::string& target : wanted) add_target(target);
  }

  void add_target(const std::string& target) {
    const bool all = target == "all-linear";
    const ModuleId head = output_head();
    bool found = false;
    std::set<std::string> known;
    for (std::size_t i = 0; i < model_.operators.size(); ++i) {
      const Operator& op = model_.operators[i];
      if (!is_product(model_, op)) continue;
      const std::string& name = model_.modules[op.module.index()].name;
      known.insert(last_part(name));
      const bool named = name == target || name.ends_with("." + target);
      if (!named && !(all && op.module != head)) continue;
      targets_[op.module] = static_cast<Value>(i);
      found = true;
    }
    if (found) return;
    const std::vector<std::string> names(known.begin(), known.end());
    throw ConfigError(format("{}: no product is called \"{}\", expected all-linear or some of {}{}",
                             kLoraFlag, target, join(names, ", "), did_you_mean(target, names)));
  }

  // --- parameters

  [[nodiscard]] static std::string adapter(const std::string& path, const char* which) {
    return path + "." + which + ".default";
  }

  [[nodiscard]] std::string renamed(const Parameter& parameter) const {
    const std::string& owner = model_.modules[parameter.owner.index()].name;
    if (!is_target(parameter.owner)) return kPrefix + parameter.name;
    return kPrefix + owner + ".base_layer" + parameter.name.substr(owner.size());
  }

  void register_parameters() {
    for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
      const Parameter& parameter = model_.parameters[i];
      names_.push_back(renamed(parameter));
      assembler_.register_parameter(names_.back(), parameter.shape, /*trainable=*/false);
      const bool last =
          i + 1 == model_.parameters.size() || model_.parameters[i + 1].owner != parameter.owner;
      if (last && is_target(parameter.owner)) register_adapters(parameter.owner);
    }
  }

  void register_adapters(ModuleId target) {
    const Operator& op = model_.operators[static_cast<std::size_t>(targets_.at(target))];
    const std::string path = kPrefix + model_.modules[target.index()].name;
    if (options_.rank > std::min(op.inputs, op.outputs)) {
      assumptions_.push_back(
          format("LoRA: rank {} is above a side of \"{}\"", options_.rank, path));
    }
    assembler_.register_parameter(adapter(path, "lora_A") + ".weight", {options_.rank, op.inputs});
    assembler_.register_parameter(adapter(path, "lora_B") + ".weight", {op.outputs, options_.rank});
  }

  // --- execution

  [[nodiscard]] std::vector<Value> mapped(const std::vector<Value>& values) const {
    std::vector<Value> result;
    result.reserve(values.size());
    for (const Value value : values) result.push_back(values_.at(value));
    return result;
  }

  [[nodiscard]] Value mapped(Value value) const {
    return value == kNoValue ? kNoValue : values_.at(value);
  }

  void run() {
    for (const ExecutionStep& step : model_.forward) {
      if (step.kind == ExecutionStep::Kind::Enter) {
        enter(step.module);
      } else if (step.kind == ExecutionStep::Kind::Compute) {
        compute(step.operation);
      } else {
        exit(step.module);
      }
    }
  }

  void enter(ModuleId id) {
    const Module& module = model_.modules[id.index()];
    if (!module.parent.valid()) {
      assembler_.enter("", "PeftModel");
      assembler_.enter("base_model", "LoraModel");
      own(module);
      return;
    }
    const std::string path = kPrefix + module.name;
    const std::vector<Value> inputs =
        entered_.insert(id).second ? mapped(inputs_so_far(module)) : std::vector<Value>{};
    const Module& parent = model_.modules[module.parent.index()];
    const int block = module.block == parent.block ? -1 : module.block;
    if (is_target(id)) {
      assembler_.enter(path, "lora.Linear", inputs, block);
      assembler_.enter(path + ".base_layer", module.class_name, inputs);
    } else if (module.expert != parent.expert) {
      assembler_.enter_expert(module.expert, path, module.class_name, inputs);
    } else {
      open(module, path, inputs, block);
    }
    own(module);
    for (const ModuleBuffer& buffer : model_.buffers) {
      if (buffer.module == id)
        assembler_.register_buffer(buffer.name, buffer.elements, buffer.dtype);
    }
  }

  void open(const Module& module, const std::string& path, const std::vector<Value>& inputs,
            int block) {
    const ModuleId id = assembler_.enter(path, module.class_name, inputs, block);
    Module& copy = assembler_.model().modules[id.index()];
    copy.hooks_stated = module.hooks_stated;
    copy.positional_gradient_input = module.positional_gradient_input;
    copy.gradient_output = module.gradient_output;
    const Module& parent = model_.modules[module.parent.index()];
    if (module.moe_block != parent.moe_block) {
      assembler_.open_moe_block(model_.moe_blocks[static_cast<std::size_t>(module.moe_block)]);
    }
  }

  /// Those that exist when the module is first called; a second call may add others.
  [[nodiscard]] std::vector<Value> inputs_so_far(const Module& module) const {
    std::vector<Value> inputs;
    for (const Value value : module.positional_inputs) {
      if (values_.contains(value)) inputs.push_back(value);
    }
    return inputs;
  }

  void own(const Module& module) {
    for (const ParameterId id : module.parameters) assembler_.own(names_[id.index()]);
  }

  void compute(std::int32_t operation) {
    const Operator& op = model_.operators[static_cast<std::size_t>(operation)];
    std::vector<std::string> parameters;
    for (const ParameterId id : op.parameters) parameters.push_back(names_[id.index()]);
    const std::vector<Value> sources = mapped(op.sources);
    values_[operation] =
        op.kind == OperatorKind::Attention
            ? assembler_.attend(model_.attention_shapes[static_cast<std::size_t>(op.attention)],
                                sources)
            : assembler_.compute_routed(op.expert, op.kind, op.inputs, op.outputs, sources,
                                        parameters);
  }

  void exit(ModuleId id) {
    const Module& module = model_.modules[id.index()];
    if (is_target(id)) {
      exit_target(id);
      return;
    }
    assembler_.exit(mapped(module.output));
    if (!module.parent.valid()) assembler_.exit(mapped(module.output));
  }

  /// base_layer(x) + scaling * lora_B(lora_A(lora_dropout(x)))
  void exit_target(ModuleId id) {
    const Value operation = targets_.at(id);
    const Operator& op = model_.operators[static_cast<std::size_t>(operation)];
    const std::string path = kPrefix + model_.modules[id.index()].name;
    const Value base = assembler_.exit(values_.at(operation));
    const Value x = op.sources.empty() ? kNoValue : mapped(op.sources.front());
    assembler_.enter(adapter(path, "lora_dropout"), options_.dropout ? "Dropout" : "Identity", {x});
    const Value dropped = assembler_.exit(
        options_.dropout ? assembler_.compute(OperatorKind::Dropout, 0, op.inputs, {x}) : x);
    const Value down = linear(adapter(path, "lora_A"), op.inputs, options_.rank, dropped);
    const Value up = linear(adapter(path, "lora_B"), options_.rank, op.outputs, down);
    const Value scaled = assembler_.compute(OperatorKind::Scale, 0, op.outputs, {up});
    values_[operation] = assembler_.exit(
        assembler_.compute(OperatorKind::ResidualAdd, 0, op.outputs, {base, scaled}));
  }

  Value linear(const std::string& path, std::int64_t inputs, std::int64_t outputs, Value x) {
    assembler_.enter(path, "Linear", {x});
    assembler_.own(path + ".weight");
    return assembler_.exit(
        assembler_.compute(OperatorKind::Linear, inputs, outputs, {x}, {path + ".weight"}));
  }

  const Model& model_;
  const LoraOptions& options_;
  ModelAssembler assembler_;
  std::map<ModuleId, Value> targets_;  ///< and the operator of each
  std::vector<std::string> names_;     ///< new names, by parameter
  std::map<Value, Value> values_;      ///< results of the plain model here
  std::set<ModuleId> entered_;
  std::vector<std::string> assumptions_;
};

// --------------------------------------------------------------------------------------------
// Patterns

/// "model.layers.0.mlp.up_proj.weight" of PEFT's name for it.
std::string plain_name(const std::string& name) {
  return name.starts_with(kPrefix) ? name.substr(std::string(kPrefix).size()) : name;
}

/// Whether the pattern matches the parameter or a module that it is below.
bool matches(const std::string& pattern, const std::string& name) {
  for (std::size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.rfind('.', end - 1)) {
    if (fnmatch(pattern.c_str(), name.substr(0, end).c_str(), 0) == 0) return true;
  }
  return false;
}

/// By parameter: whether some pattern matches it.
std::vector<bool> matched(const Model& model, const std::vector<std::string>& patterns,
                          const char* flag) {
  std::vector<bool> result(model.parameters.size(), false);
  for (const std::string& pattern : patterns) {
    bool any = false;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      names.push_back(plain_name(model.parameters[i].name));
      if (!matches(pattern, names.back()) && !matches(pattern, model.parameters[i].name)) continue;
      result[i] = any = true;
    }
    if (any) continue;
    throw ConfigError(
        format("{}: no parameter or module matches \"{}\"{}; patterns may hold * and ?", flag,
               pattern, did_you_mean(pattern, names)));
  }
  return result;
}

void apply_patterns(Model& model, const TrainableOptions& options) {
  if (!options.train_only.empty()) {
    const std::vector<bool> trains = matched(model, options.train_only, "--train-only");
    for (std::size_t i = 0; i < trains.size(); ++i) model.parameters[i].trainable = trains[i];
  }
  const std::vector<bool> frozen = matched(model, options.freeze, "--freeze");
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    if (frozen[i]) model.parameters[i].trainable = false;
  }
}

// --------------------------------------------------------------------------------------------
// --lora

std::vector<std::string> split(const std::string& text, const std::string& separators) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (separators.find(c) == std::string::npos) {
      parts.back() += c;
    } else {
      parts.emplace_back();
    }
  }
  std::erase(parts, "");
  return parts;
}

template <typename Number>
Number parse_value(const std::string& text, const std::string& flag, const std::string& key,
                   Number least, Number most) {
  Number value{};
  const char* end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc() && read.ptr == end && value >= least && value <= most) return value;
  throw ConfigError(format("{}: found {}={}, expected {} to {}", flag, key, text, least, most));
}

}  // namespace

LoraOptions parse_lora(const std::string& text, const std::string& flag) {
  LoraOptions options;
  std::string key;
  for (const std::string& word : split(text, ",;")) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
    if (key == "rank" || key == "r") {
      options.rank = parse_value<std::int64_t>(value, flag, key, 1, kLargestRank);
      key.clear();
    } else if (key == "targets" || key == "target_modules") {
      options.targets.push_back(value);
    } else if (key == "dropout" || key == "lora_dropout") {
      options.dropout = parse_value<double>(value, flag, key, 0, 1) > 0;
      key.clear();
    } else {
      const std::string found = key.empty() ? value : key;
      throw ConfigError(
          format("{}: found \"{}\", expected rank=N,targets=NAME,NAME{}", flag, found,
                 did_you_mean(found, std::vector<std::string>{"rank", "targets", "dropout"})));
    }
  }
  return options;
}

Model with_trainable(const Model& model, const TrainableOptions& options) {
  Model result = options.has_lora ? LoraWrapper(model, options.lora).wrap() : model;
  result.input_requires_gradient = options.input_requires_gradient;
  apply_patterns(result, options);
  if (trainable_parameter_count(result) == 0) {
    throw ConfigError(format("model \"{}\": no parameter is left to train", model.name));
  }
  trace_gradients(result);
  return result;
}

}  // namespace zerosim
