#include "validate/experiment_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr double kLargestQuantity = 1e9;  // GiB, Gb/s, seconds: more is a slip
constexpr std::int64_t kLargestCount = 1'000'000'000'000'000;
constexpr std::int64_t kLargestNodes = 1 << 20;
constexpr std::int64_t kLargestNode = 1024;

/// Keys that a variant may replace, whole or in part.
const std::vector<std::string>& replaceable_keys() {
  static const std::vector<std::string> kKeys = {"model",       "cluster",   "training",
                                                 "environment", "config_as", "deepspeed_version",
                                                 "ds_config",   "measured"};
  return kKeys;
}

// ---- values ----------------------------------------------------------------------------------

std::optional<std::int64_t> optional_count(JsonObject& object, const std::string& key,
                                           std::int64_t largest = kLargestCount) {
  const std::optional<std::int64_t> value = object.optional_integer(key);
  if (value && (*value < 1 || *value > largest)) {
    object.fail(key, format("found {}, expected 1 to {}", *value, largest));
  }
  return value;
}

int required_count(JsonObject& object, const std::string& key, std::int64_t largest) {
  const std::optional<std::int64_t> value = optional_count(object, key, largest);
  if (!value) object.fail(key, format("missing, expected 1 to {}", largest));
  return static_cast<int>(*value);
}

std::optional<double> optional_quantity(JsonObject& object, const std::string& key) {
  const std::optional<double> value = object.optional_number(key);
  if (value && !(*value > 0 && *value <= kLargestQuantity)) {
    object.fail(key, format("found {}, expected a number above 0 and at most {:g}", *value,
                            kLargestQuantity));
  }
  return value;
}

/// Empty for an absent or null member.
std::string optional_word(JsonObject& object, const std::string& key,
                          const std::vector<std::string>& known) {
  std::string word = object.optional_string(key).value_or("");
  if (word.empty() && object.raw(key).isNull()) return word;
  if (std::find(known.begin(), known.end(), word) != known.end()) return word;
  object.fail(key, format("found \"{}\", expected one of {}{}", word, join(known, ", "),
                          did_you_mean(word, known)));
}

std::optional<Dtype> optional_dtype(JsonObject& object, const std::string& key) {
  const std::string word = optional_word(object, key, {"fp32", "fp16", "bf16"});
  return word.empty() ? std::nullopt : std::optional<Dtype>(parse_weights(word, key));
}

// ---- sections --------------------------------------------------------------------------------

TrainableInputs read_trainable(JsonObject object) {
  TrainableInputs trainable;
  const std::string kind = optional_word(object, "kind", {"lora", "frozen"});
  if (kind.empty()) object.fail("kind", "missing, expected lora or frozen");
  trainable.lora = kind == "lora";
  trainable.parameters = optional_count(object, "trainable_params");
  if (trainable.lora) {
    const auto rank = optional_count(object, "rank", 1'000'000);
    if (!rank) object.fail("rank", "missing, expected the rank of the adapters");
    trainable.rank = *rank;
    if (object.has("targets")) trainable.targets = object.strings("targets");
  } else if (!trainable.parameters) {
    object.fail("trainable_params", "missing, expected the number of parameters that train");
  }
  object.reject_unknown_keys();
  return trainable;
}

void check_one_source(JsonObject& object, const ModelInputs& model) {
  const int sources = (model.ref.empty() ? 0 : 1) + (model.config.isNull() ? 0 : 1) +
                      (object.has("n_params") ? 1 : 0);
  if (sources == 1) return;
  throw ConfigError(model.where,
                    format("{}: found {} of ref, config and n_params, expected one of them",
                           object.path(), sources));
}

void check_sizes(JsonObject& object, const ModelInputs& model) {
  const int sizes = (model.layers ? 1 : 0) + (model.hidden ? 1 : 0) + (model.vocab ? 1 : 0);
  if (sizes == 0 || (sizes == 3 && model.parameters)) return;
  for (const char* key : {"n_params", "layers", "hidden", "vocab"}) {
    if (!object.raw(key).isNull()) continue;
    object.fail(key, "missing, expected n_params, layers, hidden and vocab, or n_params alone");
  }
}

ModelInputs read_model(JsonObject object) {
  ModelInputs model;
  model.where = object.document().location(object.value());
  model.key = to_text(object.value(), false);
  model.ref = object.optional_string("ref").value_or("");
  if (object.has("config")) model.config = object.object("config").value();
  model.parameters = optional_count(object, "n_params");
  model.layers = optional_count(object, "layers");
  model.hidden = optional_count(object, "hidden");
  model.vocab = optional_count(object, "vocab");
  if (const auto trainable = object.optional_object("trainable")) {
    model.trainable = read_trainable(*trainable);
  }
  model.largest_layer = optional_count(object, "largest_layer_params");
  model.load_dtype = optional_dtype(object, "load_dtype");
  model.fused_experts = object.optional_boolean("fused_experts").value_or(false);
  static_cast<void>(object.optional_string("note"));
  object.reject_unknown_keys();
  check_one_source(object, model);
  check_sizes(object, model);
  return model;
}

LinkInputs read_link(JsonObject& cluster, const std::string& key) {
  LinkInputs link;
  std::optional<JsonObject> object = cluster.optional_object(key);
  if (!object) return link;
  link.kind = object->optional_string("kind").value_or("");
  link.where =
      object->document().location(object->has("kind") ? object->raw("kind") : object->value());
  link.gbps = optional_quantity(*object, "gbps");
  object->reject_unknown_keys();
  return link;
}

ClusterInputs read_cluster(JsonObject object) {
  ClusterInputs cluster;
  cluster.where = object.document().location(object.value());
  cluster.gpu = object.optional_string("gpu").value_or("");
  cluster.gpu_memory_gib = optional_quantity(object, "gpu_memory_gib");
  cluster.gpus_per_node = required_count(object, "gpus_per_node", kLargestNode);
  cluster.nodes = required_count(object, "nodes", kLargestNodes);
  cluster.intra_node = read_link(object, "intra_node");
  cluster.inter_node = read_link(object, "inter_node");
  cluster.host_memory_gib = optional_quantity(object, "host_memory_gib");
  if (const auto cores = optional_count(object, "host_cpu_cores", kLargestNodes)) {
    cluster.host_cpu_cores = static_cast<int>(*cores);
  }
  cluster.nvme_gbps = optional_quantity(object, "nvme_gbps");
  static_cast<void>(object.optional_string("note"));
  object.reject_unknown_keys();
  return cluster;
}

TrainingInputs read_training(JsonObject object) {
  TrainingInputs training;
  training.where = object.document().location(object.value());
  training.micro_batch = optional_count(object, "micro_batch", 1'000'000);
  training.grad_accum = optional_count(object, "grad_accum", 1'000'000);
  training.sequence = optional_count(object, "seq", 1'000'000'000);
  const std::string precision = optional_word(object, "precision", {"fp32", "fp16", "bf16"});
  if (!precision.empty()) training.precision = parse_precision(precision, "precision");
  const std::string checkpointing =
      optional_word(object, "activation_checkpointing", {"none", "full", "selective"});
  if (!checkpointing.empty()) {
    training.checkpointing = parse_checkpointing(checkpointing, "activation_checkpointing");
  }
  training.flash_attention = object.optional_boolean("flash_attention");
  training.optimizer = optional_word(object, "optimizer", experiment_optimizers());
  training.framework = optional_word(object, "framework", experiment_frameworks());
  if (training.framework.empty()) {
    object.fail("framework",
                format("missing, expected one of {}", join(experiment_frameworks(), ", ")));
  }
  training.fsdp_wrap = object.optional_string("fsdp_wrap").value_or("");
  training.zero_init = object.optional_boolean("zero_init").value_or(true);
  training.no_sync = object.optional_boolean("no_sync").value_or(false);
  training.bind_cores = object.optional_boolean("bind_cores").value_or(false);
  static_cast<void>(object.optional_string("note"));
  object.reject_unknown_keys();
  return training;
}

MeasuredInputs read_measured(JsonObject object) {
  MeasuredInputs measured;
  measured.step_s = optional_quantity(object, "step_s");
  measured.forward_s = optional_quantity(object, "forward_s");
  measured.oom_request_gib = optional_quantity(object, "oom_request_gib");
  measured.oom_allocated_gib = optional_quantity(object, "oom_allocated_gib");
  measured.oom_reserved_gib = optional_quantity(object, "oom_reserved_gib");
  measured.oom_free_gib = optional_quantity(object, "oom_free_gib");
  object.reject_unknown_keys();
  return measured;
}

Environment read_variables(JsonObject object) {
  Environment environment;
  for (const std::string& name : object.keys()) {
    const JsonValue& value = object.raw(name);
    if (value.isNull()) continue;  // unset
    const std::string text = value.isNumeric() ? to_text(value, false) : object.string(name);
    environment.variables.push_back({name, text, object.document().location(object.raw(name)),
                                     object.document().key_location(object.value(), name)});
  }
  return environment;
}

/// \param values  the inputs with overrides; members come from `document`
ExperimentInputs read_inputs(const JsonDocument& document, const JsonValue& values,
                             const std::string& folder) {
  JsonObject object(document, values, "");
  ExperimentInputs inputs;
  for (const char* key : {"variants", "assumed", "unknown", "ds_config_origin"}) {
    static_cast<void>(object.has(key));
  }
  inputs.model = read_model(object.object("model"));
  inputs.cluster = read_cluster(object.object("cluster"));
  inputs.training = read_training(object.object("training"));
  if (const auto environment = object.optional_object("environment")) {
    inputs.environment = read_variables(*environment);
  }
  const std::string mode = optional_word(object, "config_as", {"auto", "deepspeed", "hf"});
  if (!mode.empty()) inputs.config_as = parse_config_mode(mode, "config_as");
  inputs.deepspeed_version = object.optional_string("deepspeed_version").value_or("0.19");
  inputs.deepspeed_version_where = document.location(object.raw("deepspeed_version"));
  if (const auto file = object.optional_string("ds_config")) {
    inputs.ds_config = (std::filesystem::path(folder) / *file).string();
    inputs.ds_config_where = document.location(object.raw("ds_config"));
  }
  if (const auto measured = object.optional_object("measured")) {
    inputs.measured = read_measured(*measured);
  }
  object.reject_unknown_keys();
  return inputs;
}

// ---- variants --------------------------------------------------------------------------------

std::vector<std::string> split_at_dots(const std::string& key) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = key.find('.', begin);
    parts.push_back(key.substr(begin, dot - begin));
    if (dot == std::string::npos) return parts;
    begin = dot + 1;
  }
}

/// One override: of the DeepSpeed file, or of a value here.
class Overrides {
 public:
  Overrides(const JsonDocument& document, const JsonValue& variant, std::string path)
      : document_(&document), variant_(&variant), path_(std::move(path)) {}

  void apply(JsonValue& inputs, std::vector<ConfigPatch>& patches) const {
    JsonObject object(*document_, *variant_, path_);
    for (const std::string& key : object.keys()) {
      if (key.starts_with("ds.")) {
        patches.push_back({key.substr(3), object.raw(key), document_->location(object.raw(key))});
      } else {
        replace(inputs, key, object.raw(key));
      }
    }
  }

 private:
  void replace(JsonValue& inputs, const std::string& key, const JsonValue& value) const {
    const std::vector<std::string> parts = split_at_dots(key);
    const std::vector<std::string>& known = replaceable_keys();
    if (std::find(known.begin(), known.end(), parts.front()) == known.end()) {
      throw ConfigError(document_->key_location(*variant_, key),
                        format(R"({}: unknown key "{}", expected "ds." or one of {}{})", path_, key,
                               join(known, ", "), did_you_mean(parts.front(), known)));
    }
    JsonValue* target = &inputs;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      target = &(*target)[parts[i]];
      if (target->isNull()) *target = JsonValue(Json::objectValue);
      if (!target->isObject()) {
        throw ConfigError(document_->key_location(*variant_, key),
                          format(R"({}: "{}" is no object, so "{}" cannot be replaced in it)",
                                 path_, parts[i], key));
      }
    }
    (*target)[parts.back()] = value;
  }

  const JsonDocument* document_;
  const JsonValue* variant_;
  std::string path_;
};

}  // namespace

const std::vector<std::string>& experiment_frameworks() {
  static const std::vector<std::string> kNames = {"deepspeed", "single",       "ddp",
                                                  "fsdp_full", "fsdp_grad_op", "hsdp"};
  return kNames;
}

const std::vector<std::string>& experiment_optimizers() {
  static const std::vector<std::string> kNames = {"adamw_fused", "adamw_torch_foreach",
                                                  "adamw_torch", "adamw_8bit"};
  return kNames;
}

ExperimentFile::ExperimentFile(const JsonDocument& document, const JsonValue& inputs,
                               const std::string& folder, const std::string& data_folder) {
  inputs_ = read_inputs(document, inputs, folder);
  inputs_.data_folder = data_folder;
  JsonObject object(document, inputs, "");
  std::optional<JsonObject> variants = object.optional_object("variants");
  if (!variants) return;
  for (const std::string& name : variants->keys()) {
    JsonValue values = inputs;
    std::vector<ConfigPatch> patches;
    Overrides(document, variants->raw(name), "variants." + name).apply(values, patches);
    ExperimentInputs variant = read_inputs(document, values, folder);
    variant.variant = name;
    variant.ds_patches = std::move(patches);
    variant.data_folder = data_folder;
    variants_.push_back(std::move(variant));
  }
  std::sort(variants_.begin(), variants_.end(),
            [](const auto& a, const auto& b) { return a.variant < b.variant; });
}

ExperimentFile ExperimentFile::load(const std::string& path) {
  const JsonDocument document = JsonDocument::from_file(path);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return {document, document.root(), folder, folder};
}

const ExperimentInputs* ExperimentFile::find(const std::string& variant) const {
  const auto found = std::find_if(variants_.begin(), variants_.end(), [&](const auto& candidate) {
    return candidate.variant == variant;
  });
  return found == variants_.end() ? nullptr : &*found;
}

std::vector<std::string> ExperimentFile::variant_names() const {
  std::vector<std::string> names;
  for (const ExperimentInputs& variant : variants_) names.push_back(variant.variant);
  return names;
}

}  // namespace zerosim
