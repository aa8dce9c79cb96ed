#include "validate/recorded_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/trainable.h"
#include "sim/program/build.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim {

namespace {

// What the recording scripts fed, where nothing in the file says it.
constexpr std::int64_t kMicroBatch = 2;
constexpr std::int64_t kSequence = 32;
constexpr std::int64_t kLongestSequence = 100'000'000;
constexpr std::string_view kPeftPrefix = "base_model.model.";

/// Modules that only hold others: nobody calls them, so no hook of theirs fires.
constexpr std::array<std::string_view, 4> kContainers = {"ModuleList", "ModuleDict",
                                                         "ParameterList", "ParameterDict"};

bool is_container(const RecordedModule& module) {
  return std::find(kContainers.begin(), kContainers.end(), module.class_name) != kContainers.end();
}

/// "3" of "model.layers.3".
std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 == 0
}

/// "model.layers" of "model.layers.3"; "" at the top.
std::string parent_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// Of few enough digits for an int.
bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

/// The micro batch, which `recorded_strategy` says too, but only once there is a model. Where
/// DeepSpeed's configuration gives no size, its reader refuses it.
std::int64_t micro_batch(const RecordingDescription& description) {
  if (description.micro_batch) return *description.micro_batch;
  if (!description.train_batch) return kMicroBatch;
  return resolve_batch(description.train_batch, std::nullopt, description.grad_accum,
                       description.spec.world, {description.file})
      .micro_batch;
}

/// Tables of learned positions with a row for each: names of their modules in GPT-2, BERT, GPT.
constexpr std::array<std::string_view, 3> kPositionTables = {"wpe", "position_embeddings",
                                                             "positions_embed"};

/// Null if there is none.
const RecordedParameter* position_table(const RecordingDescription& description) {
  const auto& parameters = description.parameters;
  const auto found =
      std::find_if(parameters.begin(), parameters.end(), [](const RecordedParameter& parameter) {
        const std::string module = last_part(parent_of(parameter.name));
        return parameter.shape.size() == 2 && parameter.shape[0] > 0 &&
               parameter.shape[0] <= kLongestSequence &&
               std::find(kPositionTables.begin(), kPositionTables.end(), module) !=
                   kPositionTables.end();
      });
  return found == parameters.end() ? nullptr : &*found;
}

std::int64_t sequence(const RecordingDescription& description) {
  const RecordedParameter* table = position_table(description);
  return table == nullptr ? kSequence : table->shape[0];
}

/// What a recording never says.
std::vector<std::string> batch_assumptions(const RecordingDescription& description,
                                           const BatchShape& batch) {
  std::vector<std::string> sentences;
  if (description.kind != RecordedKind::DeepSpeed) {
    sentences.push_back(format("micro batch {}: recordings of {} do not say it", kMicroBatch,
                               description.kind == RecordedKind::Ddp ? "DDP" : "FSDP"));
  }
  const RecordedParameter* table = position_table(description);
  sentences.push_back(format("sequence {}: {}", batch.sequence,
                             table == nullptr
                                 ? "recordings do not say it, and there is no table of positions"
                                 : format("the rows of \"{}\"", table->name)));
  return sentences;
}

/// Looks names up in a description.
class Names {
 public:
  explicit Names(const RecordingDescription& description) : description_(description) {
    for (const RecordedParameter& parameter : description.parameters) {
      parameters_[parameter.name] = &parameter;
    }
    for (const RecordedModule& module : description.modules) modules_[module.name] = &module;
  }

  [[nodiscard]] const RecordedParameter* parameter(const std::string& name) const {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? nullptr : found->second;
  }
  [[nodiscard]] const RecordedModule* module(const std::string& name) const {
    const auto found = modules_.find(name);
    return found == modules_.end() ? nullptr : found->second;
  }
  /// Of the module's weight, below an adapter or not.
  [[nodiscard]] std::array<std::int64_t, 2> matrix(const std::string& module) const {
    for (const char* end : {".weight", ".base_layer.weight"}) {
      const RecordedParameter* found = parameter(module + end);
      if (found != nullptr && found->shape.size() == 2) return {found->shape[0], found->shape[1]};
    }
    const RecordedModule* owner = this->module(module);
    throw ConfigError(owner == nullptr ? description_.parameters_where : owner->where,
                      format("params: module \"{}\" has no weight of two dimensions, expected one "
                             "as in Hugging Face's Llama",
                             module));
  }
  [[nodiscard]] bool has_bias(const std::string& module) const {
    return parameter(module + ".bias") != nullptr ||
           parameter(module + ".base_layer.bias") != nullptr;
  }

 private:
  const RecordingDescription& description_;
  std::map<std::string, const RecordedParameter*> parameters_;
  std::map<std::string, const RecordedModule*> modules_;
};

// --------------------------------------------------------------------------------------------
// Hugging Face's Llama

constexpr const char* kFirstQuery = "model.layers.0.self_attn.q_proj";

bool has_llama_layout(const Names& names) {
  return names.module("model.embed_tokens") != nullptr && names.module(kFirstQuery) != nullptr;
}

/// Width of a head. Shapes only say that it divides the widths of q and k; the largest such number
/// keeps their ratio. No collective depends on it.
std::int64_t head_width(std::int64_t query, std::int64_t key) {
  return std::max<std::int64_t>(1, std::gcd(query, key));
}

std::string llama_config(const RecordingDescription& description, const Names& names) {
  const auto [vocab, hidden] = names.matrix("model.embed_tokens");
  const std::int64_t query = names.matrix(kFirstQuery)[0];
  const std::int64_t key = names.matrix("model.layers.0.self_attn.k_proj")[0];
  const auto layers = std::count_if(
      description.modules.begin(), description.modules.end(),
      [](const RecordedModule& module) { return parent_of(module.name) == "model.layers"; });
  JsonValue config(Json::objectValue);
  config["model_type"] = "llama";
  config["hidden_size"] = static_cast<Json::Int64>(hidden);
  config["vocab_size"] = static_cast<Json::Int64>(vocab);
  config["num_hidden_layers"] = static_cast<Json::Int64>(layers);
  config["intermediate_size"] =
      static_cast<Json::Int64>(names.matrix("model.layers.0.mlp.gate_proj")[0]);
  config["head_dim"] = static_cast<Json::Int64>(head_width(query, key));
  config["num_attention_heads"] = static_cast<Json::Int64>(query / head_width(query, key));
  config["num_key_value_heads"] = static_cast<Json::Int64>(key / head_width(query, key));
  config["attention_bias"] = names.has_bias(kFirstQuery);
  config["mlp_bias"] = names.has_bias("model.layers.0.mlp.gate_proj");
  config["tie_word_embeddings"] = names.parameter("lm_head.weight") == nullptr;
  return to_text(config);
}

/// The adapters that the module names show, if any.
std::optional<LoraOptions> recorded_lora(const RecordingDescription& description,
                                         const Names& names) {
  LoraOptions lora;
  for (const RecordedModule& module : description.modules) {
    if (last_part(module.name) != "lora_A") continue;
    const std::string target = parent_of(module.name);
    lora.targets.push_back(target);
    lora.rank = names.matrix(module.name + ".default")[0];
    const RecordedModule* dropout = names.module(target + ".lora_dropout.default");
    lora.dropout = lora.dropout || (dropout != nullptr && dropout->class_name == "Dropout");
  }
  if (lora.targets.empty()) return std::nullopt;
  return lora;
}

/// Takes the module out of the model; its parent gets its children and parameters.
void dissolve(Model& model, ModuleId gone) {
  const ModuleId parent = model.modules[gone.index()].parent;
  const auto moved = [&](ModuleId id) {
    if (id == gone) return parent;
    return id.valid() && id > gone ? ModuleId(id.value() - 1) : id;
  };
  std::vector<ParameterId>& of_parent = model.modules[parent.index()].parameters;
  const std::vector<ParameterId>& own = model.modules[gone.index()].parameters;
  of_parent.insert(of_parent.end(), own.begin(), own.end());
  std::erase_if(model.forward, [&](const ExecutionStep& step) {
    return step.module == gone && step.kind != ExecutionStep::Kind::Compute;
  });
  for (ExecutionStep& step : model.forward) step.module = moved(step.module);
  for (Parameter& parameter : model.parameters) parameter.owner = moved(parameter.owner);
  for (Operator& op : model.operators) op.module = moved(op.module);
  for (MoeBlock& block : model.moe_blocks) block.module = moved(block.module);
  model.modules.erase(model.modules.begin() + gone.value());
  for (Module& module : model.modules) module.parent = moved(module.parent);
}

/// The recorded models have PEFT's modules, but not its two wrappers and their prefix.
void remove_wrappers(Model& model) {
  for (Parameter& parameter : model.parameters) parameter.name.erase(0, kPeftPrefix.size());
  for (Module& module : model.modules) {
    if (module.name.starts_with(kPeftPrefix)) module.name.erase(0, kPeftPrefix.size());
  }
  const auto wrapper =
      std::find_if(model.modules.begin(), model.modules.end(),
                   [](const Module& module) { return module.name == "base_model"; });
  ZS_CHECK(wrapper != model.modules.end(), "an adapted model has PEFT's wrappers");
  dissolve(model, ModuleId(static_cast<std::size_t>(wrapper - model.modules.begin())));
}

Model llama_model(const RecordingDescription& description, const Names& names) {
  Model model = parse_model(llama_config(description, names), description.file);
  const std::optional<LoraOptions> lora = recorded_lora(description, names);
  if (!lora) return model;
  TrainableOptions options;
  options.has_lora = true;
  options.lora = *lora;
  model = with_trainable(model, options);
  remove_wrappers(model);
  return model;
}

// --------------------------------------------------------------------------------------------
// Any other network

/// Writes a module listing (sim/model/model.h).
class ListingWriter {
 public:
  ListingWriter(const RecordingDescription& description, const Names& names)
      : description_(description), names_(names) {}

  std::string write() {
    JsonValue listing(Json::objectValue);
    listing["format"] = "zerosim.module_listing";
    listing["version"] = 1;
    listing["name"] = description_.spec.model.text;
    if (embedding() != nullptr) listing["vocab"] = extent(*embedding(), 0);
    for (const RecordedParameter& parameter : description_.parameters) {
      listing["registration"].append(parameter.name);
    }
    for (const RecordedModule& module : description_.modules) {
      if (!is_container(module)) listing["modules"].append(entry(module));
    }
    return to_text(listing);
  }

 private:
  static JsonValue extent(const RecordedParameter& parameter, std::size_t dimension) {
    return static_cast<Json::Int64>(parameter.shape[dimension]);
  }

  /// The table of tokens: the first embedding.
  [[nodiscard]] const RecordedParameter* embedding() const {
    for (const RecordedModule& module : description_.modules) {
      if (module.class_name != "Embedding" || module.parameters.size() != 1) continue;
      const RecordedParameter* table = names_.parameter(module.parameters.front());
      return table->shape.size() == 2 ? table : nullptr;
    }
    return nullptr;
  }

  /// Whether some module computes the logits.
  [[nodiscard]] bool has_head() const {
    return std::any_of(description_.modules.begin(), description_.modules.end(),
                       [&](const RecordedModule& module) {
                         if (module.class_name != "Linear" || module.parameters.empty()) {
                           return false;
                         }
                         const RecordedParameter* weight =
                             names_.parameter(module.parameters.front());
                         return weight->shape == embedding()->shape;
                       });
  }

  [[nodiscard]] JsonValue entry(const RecordedModule& module) const {
    JsonValue result(Json::objectValue);
    result["name"] = module.name;
    result["class"] = module.class_name;
    for (const std::string& name : module.parameters) {
      JsonValue parameter(Json::objectValue);
      parameter["name"] = name;
      for (const std::int64_t size : names_.parameter(name)->shape) {
        parameter["shape"].append(static_cast<Json::Int64>(size));
      }
      result["parameters"].append(parameter);
    }
    if (module.name.empty() && embedding() != nullptr && !has_head()) {
      result["uses"].append(embedding()->name);
    }
    if (is_moe_block(module.name)) {
      result["experts_per_token"] = static_cast<Json::Int64>(experts_per_token(module));
    }
    const std::string experts = parent_of(module.name);
    if (last_part(experts) == "experts" && is_moe_block(parent_of(experts)) &&
        is_number(last_part(module.name))) {
      result["expert"] = std::stoi(last_part(module.name));
    }
    return result;
  }

  [[nodiscard]] bool is_moe_block(const std::string& name) const {
    return !name.empty() && names_.module(name + ".gate") != nullptr &&
           names_.module(name + ".experts.0") != nullptr;
  }

  /// Every token is counted once for each of its experts.
  [[nodiscard]] std::int64_t experts_per_token(const RecordedModule& block) const {
    const std::int64_t rows = micro_batch(description_);
    const std::int64_t tokens = sequence(description_);
    for (const MeasuredRouting& routing : description_.routing) {
      if (routing.module != block.name) continue;
      const std::int64_t sum =
          std::accumulate(routing.tokens.begin(), routing.tokens.end(), std::int64_t{0});
      if (sum > 0 && sum % rows == 0 && sum / rows % tokens == 0) return sum / rows / tokens;
      throw ConfigError(routing.where,
                        format("routing of \"{}\": found {} tokens, expected a multiple of the "
                               "{} x {} of a micro batch",
                               block.name, sum, rows, tokens));
    }
    throw ConfigError(block.where,
                      format("routing: missing for \"{}\", expected the tokens of each "
                             "of its experts",
                             block.name));
  }

  const RecordingDescription& description_;
  const Names& names_;
};

// --------------------------------------------------------------------------------------------
// Checks

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> extents;
  extents.reserve(shape.size());
  for (const std::int64_t extent : shape) extents.push_back(std::to_string(extent));
  return join(extents, " x ");
}

void check_parameters(const RecordingDescription& description, const Model& model) {
  const std::size_t count = std::max(description.parameters.size(), model.parameters.size());
  for (std::size_t i = 0; i < count; ++i) {
    const RecordedParameter* recorded =
        i < description.parameters.size() ? &description.parameters[i] : nullptr;
    const Parameter* built = i < model.parameters.size() ? &model.parameters[i] : nullptr;
    if (recorded != nullptr && built != nullptr && recorded->name == built->name &&
        recorded->shape == built->shape) {
      continue;
    }
    const std::string was =
        recorded == nullptr ? "none"
                            : format("\"{}\" ({})", recorded->name, shape_text(recorded->shape));
    const std::string is =
        built == nullptr ? "none" : format("\"{}\" ({})", built->name, shape_text(built->shape));
    throw ConfigError(
        recorded == nullptr ? description.parameters_where : recorded->where,
        format("params: parameter {} is {}, but {} in the model built for it", i, was, is));
  }
}

/// Modules may come in another order: recordings list them as registered, models as executed.
void check_modules(const RecordingDescription& description, Model& model) {
  if (description.modules.empty()) return;
  std::map<std::string, Module*> built;
  for (Module& module : model.modules) built[module.name] = &module;
  for (const RecordedModule& module : description.modules) {
    if (is_container(module)) continue;
    const auto found = built.find(module.name);
    if (found == built.end()) {
      throw ConfigError(module.where,
                        format("modules: \"{}\" ({}) is not in the model built for it", module.name,
                               module.class_name));
    }
    found->second->class_name = module.class_name;
    built.erase(found);
  }
  if (built.empty()) return;
  throw ConfigError(
      description.modules_where,
      format("modules: lacks \"{}\" of the model built for it", built.begin()->first));
}

void freeze(const RecordingDescription& description, Model& model) {
  std::map<std::string, Parameter*> by_name;
  for (Parameter& parameter : model.parameters) {
    parameter.trainable = true;
    by_name[parameter.name] = &parameter;
  }
  for (const auto& [name, where] : description.frozen) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      throw ConfigError(where, format("frozen: \"{}\" is none of params", name));
    }
    found->second->trainable = false;
  }
  if (trainable_parameter_count(model) == 0) {
    throw ConfigError(description.frozen.empty() ? description.parameters_where
                                                 : description.frozen.front().where,
                      "frozen: names every parameter, expected something to train");
  }
  model.input_requires_gradient = description.spec.input_gradients;
  trace_gradients(model);
}

Model unchecked_model(const RecordingDescription& description) {
  if (description.modules.empty()) {
    const std::vector<std::string> presets = model_preset_names();
    const auto& [name, where] = description.spec.model;
    if (std::find(presets.begin(), presets.end(), name) == presets.end()) {
      throw ConfigError(where,
                        format("spec.model: found \"{}\", expected a preset, as there is no key "
                               "\"modules\"{}",
                               name, did_you_mean(name, presets)));
    }
    return load_model(name);
  }
  const Names names(description);
  if (has_llama_layout(names)) return llama_model(description, names);
  return parse_model(ListingWriter(description, names).write(), description.file);
}

// --------------------------------------------------------------------------------------------
// Strategy

/// "run.json:4:30: versions.torch", for messages of readers of flags.
std::string place_of(const RecordedText& version, const char* key) {
  return format("{}: versions.{}", to_string(version.where), key);
}

/// "1.13.0" of "1.13.0a0".
std::string torch_release(const RecordingDescription& description) {
  const std::string& version = description.torch_version.text;
  std::string release = version.substr(0, version.find_first_not_of("0123456789."));
  while (release.ends_with('.')) release.pop_back();
  return parse_torch_version(release, place_of(description.torch_version, "torch"));
}

/// A model of weights that were cast computes in their type.
Precision precision_of(Dtype weights) {
  if (weights == Dtype::Bf16) return Precision::Bf16;
  return weights == Dtype::F16 ? Precision::Fp16 : Precision::Fp32;
}

TrainingFlags training_flags(const RecordingDescription& description) {
  const RecordedSpec& spec = description.spec;
  TrainingFlags flags;
  flags.config_as = ConfigMode::DeepSpeed;
  flags.checkpointing = spec.checkpointing;
  flags.zero_init = spec.zero_init;
  // Recorded on one machine unless the run says otherwise.
  flags.gpus_per_node = spec.gpus_per_node.value_or(spec.world);
  flags.torch_version = torch_release(description);
  return flags;
}

/// \throws ConfigError  if the engine accumulates another number of micro steps than were run.
void check_accumulation(const RecordingDescription& description, const Strategy& strategy) {
  const std::optional<RecordedNumber>& given = description.spec.grad_accum;
  if (!given || given->value == strategy.grad_accum) return;
  throw ConfigError(given->where,
                    format("spec.gas: found {}, but by ds_config gradient_accumulation_steps is {}",
                           given->value, strategy.grad_accum));
}

Strategy deepspeed_strategy(const RecordingDescription& description, const Model& model,
                            std::optional<int> overflow_steps) {
  TrainingFlags flags = training_flags(description);
  const RecordedText& version = description.deepspeed_version;
  flags.deepspeed_version = deepspeed_release(version.text, place_of(version, "deepspeed")).name;
  const auto read = [&] {
    return parse_deepspeed_config(description.ds_config, description.file, flags, model,
                                  description.spec.world);
  };
  Strategy strategy = read();
  if (overflow_steps && strategy.precision == Precision::Fp16) {  // others refuse the flag
    flags.overflow_steps = overflow_steps;
    strategy = read();
  }
  check_accumulation(description, strategy);
  if (description.spec.two_groups) strategy.optimizer_groups = OptimizerGroups::ByDimension;
  std::vector<std::string>& leaves = strategy.zero.leaf_module_classes;
  leaves.insert(leaves.end(), description.spec.leaf_classes.begin(),
                description.spec.leaf_classes.end());
  return strategy;
}

Strategy ddp_strategy(const RecordingDescription& description, std::optional<int> overflow_steps) {
  TrainingFlags flags = training_flags(description);
  const RecordedSpec& spec = description.spec;
  flags.precision = precision_of(spec.ddp.parameter_dtype.value_or(Dtype::F32));
  flags.micro_batch = kMicroBatch;
  flags.grad_accum = spec.grad_accum ? spec.grad_accum->value : 1;
  flags.ddp = spec.ddp;
  flags.no_sync = spec.no_sync;
  if (flags.precision == Precision::Fp16) flags.overflow_steps = overflow_steps;
  return named_strategy("ddp", flags, spec.world);
}

/// The type of parameters decides what is gathered, and, unless told otherwise, reduced (D2.13).
void set_fsdp_types(const RecordedSpec& spec, Strategy& strategy) {
  FsdpOptions& fsdp = strategy.fsdp;
  const RecordedFsdp& recorded = spec.fsdp;
  fsdp.parameter_dtype = spec.ddp.parameter_dtype.value_or(Dtype::F32);
  const Dtype gathered = recorded.param_dtype.value_or(fsdp.parameter_dtype);
  strategy.precision = precision_of(gathered);
  strategy.communication_dtype = recorded.reduce_dtype.value_or(gathered);
  strategy.grad_accum_dtype = fsdp.parameter_dtype;
  fsdp.buffer_dtype = recorded.buffer_dtype.value_or(fsdp.parameter_dtype);
  strategy.check_grad_overflow = false;  // the loop has no scaler
}

Strategy fsdp_strategy(const RecordingDescription& description) {
  const RecordedSpec& spec = description.spec;
  const RecordedFsdp& recorded = spec.fsdp;
  TrainingFlags flags = training_flags(description);
  flags.precision = Precision::Fp32;
  flags.micro_batch = kMicroBatch;
  flags.grad_accum = spec.grad_accum ? spec.grad_accum->value : 1;
  flags.no_sync = spec.no_sync;
  Strategy strategy = named_strategy("fsdp_full", flags, spec.world);
  FsdpOptions& fsdp = strategy.fsdp;
  fsdp.sharding = recorded.sharding;
  fsdp.backward_prefetch = recorded.backward_prefetch.value_or(fsdp.backward_prefetch);
  fsdp.wrap = recorded.wrap;
  fsdp.transformer_layer_classes = recorded.classes;
  fsdp.min_num_params = recorded.min_num_params;
  fsdp.forward_prefetch = recorded.forward_prefetch.value_or(fsdp.forward_prefetch);
  fsdp.limit_all_gathers = recorded.limit_all_gathers.value_or(fsdp.limit_all_gathers);
  fsdp.use_orig_params = recorded.use_orig_params.value_or(fsdp.use_orig_params);
  fsdp.cpu_offload = recorded.cpu_offload.value_or(fsdp.cpu_offload);
  fsdp.checkpoints_around_units = true;  // rule 68
  fsdp.shard_group = *flags.gpus_per_node;
  set_fsdp_types(spec, strategy);
  return strategy;
}

/// What a micro batch is. Assumed sequences are no longer than a preset's model can read.
BatchShape batch_shape(const RecordingDescription& description, const Model& model,
                       const Strategy& strategy) {
  BatchShape batch;
  batch.micro_batch = strategy.micro_batch;
  batch.sequence = sequence(description);
  if (model.shape.max_positions > 0) {
    batch.sequence = std::min(batch.sequence, model.shape.max_positions);
  }
  batch.compute = model_dtype(strategy.precision);
  return batch;
}

}  // namespace

Model recorded_model(const RecordingDescription& description) {
  Model model = unchecked_model(description);
  model.name = description.spec.model.text;
  check_parameters(description, model);
  check_modules(description, model);
  freeze(description, model);
  return model;
}

Strategy recorded_strategy(const RecordingDescription& description, const Model& model,
                           std::optional<int> overflow_steps) {
  switch (description.kind) {
    case RecordedKind::DeepSpeed:
      return deepspeed_strategy(description, model, overflow_steps);
    case RecordedKind::Ddp:
      return ddp_strategy(description, overflow_steps);
    case RecordedKind::Fsdp:
      break;
  }
  return fsdp_strategy(description);
}

Program recorded_program(const RecordingDescription& description,
                         std::optional<int> overflow_steps) {
  const Model model = recorded_model(description);
  const Strategy strategy = recorded_strategy(description, model, overflow_steps);
  const BatchShape batch = batch_shape(description, model, strategy);
  BuildOptions options;
  options.world_size = description.spec.world;
  options.first_step = 0;
  options.steps = kRecordedSteps;
  if (!description.routing.empty()) {
    options.routing.kind = Routing::Kind::Measured;
    options.routing.measured = description.routing;
    options.routing.file = description.file;
  }
  Program program = build_program(model, strategy, batch, options);
  const std::vector<std::string> assumed = batch_assumptions(description, batch);
  for (const auto* sentences : {&assumed, &model.assumptions, &strategy.assumptions}) {
    program.assumptions.insert(program.assumptions.end(), sentences->begin(), sentences->end());
  }
  return program;
}

}  // namespace zerosim
