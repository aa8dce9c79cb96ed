#include "validate/experiment.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "sim/analysis/environment_settings.h"
#include "sim/analysis/nccl_environment.h"
#include "sim/base/text.h"
#include "sim/model/sized_model.h"
#include "sim/model/trainable.h"
#include "sim/strategy/deepspeed_release.h"
#include "sim/strategy/training_values.h"

namespace zerosim {

namespace {

constexpr std::int64_t kUsualSequence = 2048;  // tokens, or the model's positions if fewer

// ---- the model -------------------------------------------------------------------------------

/// All its parameters train.
Model base_model(const ExperimentInputs& inputs) {
  const ModelInputs& model = inputs.model;
  if (!model.ref.empty()) {
    return load_model((std::filesystem::path(inputs.data_folder) / model.ref).string());
  }
  if (!model.config.isNull()) return parse_model(to_text(model.config), "model.config");
  if (model.layers) {
    return decoder_of_sizes({*model.parameters, *model.layers, *model.hidden, *model.vocab});
  }
  return {};
}

/// \param targets  names of modules; empty: those that PEFT takes for the family
Model with_adapters(const Model& model, const TrainableInputs& trainable,
                    std::vector<std::string> targets) {
  TrainableOptions options;
  options.has_lora = true;
  options.lora.rank = trainable.rank;
  options.lora.targets = std::move(targets);
  options.input_requires_gradient = true;  // as the Trainer has it, under checkpointing
  return with_trainable(model, options);
}

Model with_trained(Model model, const ModelInputs& given) {
  if (!given.trainable) return model;
  const TrainableInputs& trainable = *given.trainable;
  if (!trainable.lora) return with_trained_count(std::move(model), *trainable.parameters);
  if (!given.layers) return with_adapters(model, trainable, trainable.targets);
  // Of sizes alone it is not known which modules there are.
  return trainable.parameters ? with_trained_count(std::move(model), *trainable.parameters)
                              : with_adapters(model, trainable, {"attention.qkv"});
}

/// Without layers.
Model counted_model(const ModelInputs& given) {
  if (!given.parameters) return {};
  if (given.trainable && !given.trainable->parameters) {
    throw ConfigError("trainable.trainable_params: missing, since the layers are not known");
  }
  return model_of_counts(*given.parameters,
                         given.trainable ? *given.trainable->parameters : *given.parameters);
}

// ---- the strategy ----------------------------------------------------------------------------

/// The DeepSpeed file as text, patched; and what it says, for what `training` has to add.
struct DeepSpeedText {
  std::string text;
  JsonValue root;
  bool patched = false;

  /// Null if absent.
  [[nodiscard]] const JsonValue& at(const char* section, const char* key) const {
    const JsonValue& object = root[section];
    return object.isObject() ? object[key] : JsonValue::nullSingleton();
  }
};

void patch(JsonValue& root, const ConfigPatch& change) {
  JsonValue* target = &root;
  std::size_t begin = 0;
  for (std::size_t dot = change.key.find('.'); dot != std::string::npos;
       dot = change.key.find('.', begin)) {
    target = &(*target)[change.key.substr(begin, dot - begin)];
    if (target->isNull()) *target = JsonValue(Json::objectValue);
    if (!target->isObject()) {
      throw ConfigError(change.where, format("ds.{}: found {}, expected an object to change",
                                             change.key, to_text(*target, false)));
    }
    begin = dot + 1;
  }
  const std::string last = change.key.substr(begin);
  if (change.value.isNull()) {
    target->removeMember(last);
  } else {
    (*target)[last] = change.value;
  }
}

/// Modes that take nothing from flags but for "auto" get the batch of `training` too, where the
/// file has none. \returns whether it was missing.
bool fill_batch(const ExperimentInputs& inputs, JsonValue& root) {
  constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
  constexpr const char* kGradAccum = "gradient_accumulation_steps";
  const bool states_batch = root.isMember("train_batch_size") || root.isMember(kMicroBatch);
  if (states_batch || inputs.config_as == ConfigMode::Auto || !inputs.training.micro_batch) {
    return false;
  }
  root[kMicroBatch] = static_cast<Json::Int64>(*inputs.training.micro_batch);
  if (inputs.training.grad_accum && !root.isMember(kGradAccum)) {
    root[kGradAccum] = static_cast<Json::Int64>(*inputs.training.grad_accum);
  }
  return true;
}

DeepSpeedText read_deepspeed(const ExperimentInputs& inputs) {
  if (inputs.ds_config.empty()) {
    throw ConfigError(inputs.training.where,
                      "ds_config: missing, expected the DeepSpeed file of framework deepspeed");
  }
  DeepSpeedText result;
  try {
    result.text = read_file(inputs.ds_config);
  } catch (const ConfigError& error) {
    throw ConfigError(inputs.ds_config_where, format("ds_config: {}", error.what()));
  }
  const JsonDocument document = inputs.config_as == ConfigMode::HuggingFace
                                    ? JsonDocument::from_strict_json(result.text, inputs.ds_config)
                                    : JsonDocument::from_hjson(result.text, inputs.ds_config);
  result.root = document.root();
  if (!result.root.isObject()) return result;
  for (const ConfigPatch& change : inputs.ds_patches) patch(result.root, change);
  const bool filled = fill_batch(inputs, result.root);
  result.patched = filled || !inputs.ds_patches.empty();
  if (result.patched) result.text = to_text(result.root);
  return result;
}

/// Whether fp16 or bf16 is switched by the file to something else than `precision`.
bool contradicts(const DeepSpeedText& file, Precision precision) {
  struct Section {
    const char* name;
    Precision precision;
  };
  for (const Section& section : {Section{"fp16", Precision::Fp16}, Section{"bf16", Precision::Bf16},
                                 Section{"bfloat16", Precision::Bf16}}) {
    const JsonValue& enabled = file.at(section.name, "enabled");
    if (enabled.isBool() && enabled.asBool() != (precision == section.precision)) return true;
  }
  return false;
}

/// Whether DeepSpeed makes the optimizer itself.
bool brings_optimizer(const DeepSpeedText& file) {
  if (file.root.isMember("optimizer")) return true;
  const JsonValue& offload = file.at("zero_optimization", "offload_optimizer");
  const bool offloads =
      offload.isObject() && offload["device"].isString() && offload["device"].asString() != "none";
  const JsonValue& forced = file.root["zero_force_ds_cpu_optimizer"];
  const bool old_switch = file.at("zero_optimization", "cpu_offload") == JsonValue(true);
  return (offloads || old_switch) && !(forced.isBool() && !forced.asBool());
}

/// \throws ConfigError  at the version, naming the known releases.
std::string deepspeed_version(const ExperimentInputs& inputs) {
  try {
    return std::string(deepspeed_release(inputs.deepspeed_version, "deepspeed_version").name);
  } catch (const ConfigError& error) {
    throw ConfigError(inputs.deepspeed_version_where, internal::message_of(error), error.code());
  }
}

/// What holds for every framework.
TrainingFlags common_flags(const ExperimentInputs& inputs, UnknownBatch unknown) {
  const TrainingInputs& training = inputs.training;
  TrainingFlags flags;
  flags.micro_batch = training.micro_batch;
  flags.grad_accum = training.grad_accum;
  if (unknown == UnknownBatch::One) {
    flags.micro_batch = training.micro_batch.value_or(1);
    flags.grad_accum = training.grad_accum.value_or(1);
  }
  flags.precision = training.precision;
  flags.checkpointing = training.checkpointing;
  if (!training.optimizer.empty()) {
    flags.optimizer = parse_optimizer(training.optimizer, "training.optimizer");
  }
  flags.gpus_per_node = inputs.cluster.gpus_per_node;
  flags.config_as = inputs.config_as;
  flags.deepspeed_version = deepspeed_version(inputs);
  return flags;
}

/// What the file states is not asked for again.
TrainingFlags deepspeed_flags(const ExperimentInputs& inputs, UnknownBatch unknown,
                              const DeepSpeedText& file) {
  TrainingFlags flags = common_flags(inputs, unknown);
  const auto states = [&](const char* key) { return file.root[key].isNumeric(); };
  if (states("train_batch_size")) {  // what is not known follows from it
    flags.micro_batch = inputs.training.micro_batch;
    flags.grad_accum = inputs.training.grad_accum;
  }
  if (states("train_micro_batch_size_per_gpu")) flags.micro_batch.reset();
  if (states("gradient_accumulation_steps")) flags.grad_accum.reset();
  if (flags.precision && contradicts(file, *flags.precision)) flags.precision.reset();
  if (brings_optimizer(file)) flags.optimizer.reset();
  flags.zero_init = inputs.training.zero_init ? ZeroInit::Zero : ZeroInit::None;
  if (inputs.training.no_sync) flags.no_sync = true;
  return flags;
}

Strategy deepspeed_strategy(const ExperimentInputs& inputs, const Model& model,
                            UnknownBatch unknown) {
  const DeepSpeedText file = read_deepspeed(inputs);
  const TrainingFlags flags =
      file.root.isObject() ? deepspeed_flags(inputs, unknown, file) : TrainingFlags();
  try {
    return parse_deepspeed_config(file.text, inputs.ds_config, flags, model,
                                  inputs.cluster.world_size());
  } catch (const ConfigError& error) {
    if (!file.patched) throw;
    // Lines and columns are those of the patched text.
    throw ConfigError({inputs.ds_config, 0, 0},
                      format("as patched: {}", internal::message_of(error)), error.code());
  }
}

bool is_fsdp(const ExperimentInputs& inputs) {
  const std::string& name = inputs.training.framework;
  return name.starts_with("fsdp") || name == "hsdp";
}

/// Whether of the model no more is known than its sizes.
bool is_sized(const ExperimentInputs& inputs) {
  return inputs.model.ref.empty() && inputs.model.config.isNull();
}

/// Whether `fsdp_wrap` names a class.
bool wraps_class(const ExperimentInputs& inputs) {
  const std::string& wrap = inputs.training.fsdp_wrap;
  return !wrap.empty() && wrap != "decoder_layer" && wrap != "none";
}

void set_wrap(Strategy& strategy, const ExperimentInputs& inputs, const Model& model) {
  const std::string& wrap = inputs.training.fsdp_wrap;
  if (wrap == "none") strategy.fsdp.wrap = FsdpWrap::None;
  if (!wraps_class(inputs)) return;
  // Of sizes alone the classes are not known: what is named is the layer of a decoder.
  if (is_sized(inputs)) return;
  std::vector<std::string> classes;
  for (const Module& module : model.modules) classes.push_back(module.class_name);
  if (std::find(classes.begin(), classes.end(), wrap) == classes.end()) {
    throw ConfigError(inputs.training.where,
                      format("fsdp_wrap: found \"{}\", expected decoder_layer, none or a class of "
                             "the model{}",
                             wrap, did_you_mean(wrap, classes)));
  }
  strategy.fsdp.transformer_layer_classes = {wrap};
}

Strategy framework_strategy(const ExperimentInputs& inputs, const Model& model,
                            UnknownBatch unknown) {
  TrainingFlags flags = common_flags(inputs, unknown);
  const std::string& name = inputs.training.framework;
  const bool fsdp = is_fsdp(inputs);
  if (fsdp) flags.no_sync = inputs.training.no_sync;
  Strategy strategy = named_strategy(name, flags, inputs.cluster.world_size());
  if (fsdp) {
    strategy.fsdp.cpu_ram_efficient_loading = inputs.training.zero_init;
    set_wrap(strategy, inputs, model);
  }
  return strategy;
}

// ---- the batch -------------------------------------------------------------------------------

/// \param assumptions  get a sentence for each default
BatchShape batch_shape(const ExperimentInputs& inputs, const Model& model,
                       std::vector<std::string>& assumptions) {
  const TrainingInputs& training = inputs.training;
  const std::int64_t positions = model.shape.max_positions;
  BatchShape batch;
  batch.micro_batch = training.micro_batch.value_or(1);
  batch.sequence = training.sequence.value_or(positions > 0 ? std::min(positions, kUsualSequence)
                                                            : kUsualSequence);
  batch.flash_attention = training.flash_attention.value_or(true);
  if (training.precision) batch.compute = model_dtype(*training.precision);
  if (!training.micro_batch) assumptions.emplace_back("training.micro_batch is not known: 1");
  if (!training.sequence) {
    assumptions.push_back(format("training.seq is not known: {}", batch.sequence));
  }
  if (!training.flash_attention) {
    assumptions.emplace_back("training.flash_attention is not known: true");
  }
  return batch;
}

}  // namespace

bool knows_layers(const ExperimentInputs& inputs) {
  const ModelInputs& model = inputs.model;
  return !model.ref.empty() || !model.config.isNull() || model.layers.has_value();
}

Model model_of(const ExperimentInputs& inputs) {
  const ModelInputs& given = inputs.model;
  try {
    if (!knows_layers(inputs)) return counted_model(given);
    Model model = base_model(inputs);
    if (given.fused_experts) model = with_fused_experts(std::move(model));
    return with_trained(std::move(model), given);
  } catch (const ConfigError& error) {
    if (!given.ref.empty() && !error.location().file.empty()) throw;  // in the file of `ref`
    throw ConfigError(given.where, format("model: {}", error.what()), error.code());
  }
}

Strategy strategy_of(const ExperimentInputs& inputs, const Model& model, UnknownBatch unknown) {
  return inputs.training.framework == "deepspeed" ? deepspeed_strategy(inputs, model, unknown)
                                                  : framework_strategy(inputs, model, unknown);
}

Experiment experiment_of(const ExperimentInputs& inputs, Model model) {
  Experiment experiment;
  experiment.cluster = cluster_of(inputs);
  std::vector<std::string>& assumptions = experiment.cluster.assumptions;
  experiment.batch = batch_shape(inputs, model, assumptions);
  experiment.model = std::move(model);
  if (is_fsdp(inputs) && is_sized(inputs) && wraps_class(inputs)) {
    assumptions.push_back(format("training.fsdp_wrap: {} is taken as the blocks of the model",
                                 inputs.training.fsdp_wrap));
  }
  const EnvironmentSettings settings = environment_settings(inputs.environment);
  for (std::string& told :
       follow_nccl_variables(inputs.environment, experiment.cluster, cluster_variables())) {
    assumptions.push_back(std::move(told));
  }
  experiment.alloc_conf = settings.alloc_conf;
  experiment.host_threads = settings.host_threads;
  experiment.load_dtype = inputs.model.load_dtype;
  assumptions.insert(assumptions.end(), settings.assumptions.begin(), settings.assumptions.end());
  return experiment;
}

EstimatorRow estimate_of(const ExperimentInputs& inputs, const Model& model,
                         const Strategy& strategy) {
  const int stage = strategy.zero.stage;
  if (strategy.framework != Framework::DeepSpeed || stage < 2) {
    throw ConfigError(inputs.training.where,
                      "DeepSpeed has estimators for its stages 2 and 3 alone");
  }
  EstimatorInput input;
  input.parameters = inputs.model.parameters.value_or(parameter_count(model));
  input.largest_layer = inputs.model.largest_layer.value_or(largest_module_parameters(model));
  input.gpus_per_node = inputs.cluster.gpus_per_node;
  input.nodes = inputs.cluster.nodes;
  const bool optimizer = strategy.zero.offload_optimizer.device != OffloadDevice::None;
  const bool parameters = strategy.zero.offload_param.device != OffloadDevice::None;
  for (const EstimatorRow& row : deepspeed_estimates(stage, input)) {
    const bool same_parameters = stage == 2 || row.offload_param == parameters;
    const bool same_init = stage == 2 || row.zero_init == inputs.training.zero_init;
    if (row.offload_optimizer == optimizer && same_parameters && same_init) return row;
  }
  throw ConfigError(inputs.training.where,
                    "DeepSpeed has no estimate for parameters on the CPU and the optimizer on the "
                    "GPU");
}

}  // namespace zerosim
