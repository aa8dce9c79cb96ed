#include "sim/model/sized_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/model/families/layers.h"

namespace zerosim {

namespace {

constexpr std::int64_t kUsualHeadSize = 128;  // of GPT-3's and Llama's larger models
constexpr std::int64_t kMostParameters = 1'000'000'000'000'000;
constexpr std::int64_t kLargestDimension = 10'000'000;
constexpr std::int64_t kMostLayers = 100'000;

void check_size(const char* name, std::int64_t size, std::int64_t largest) {
  if (size >= 1 && size <= largest) return;
  throw ConfigError(format("{}: found {}, expected 1 to {}", name, size, largest));
}

/// Widths of the blocks of a decoder.
struct Widths {
  std::int64_t heads = 1;
  std::int64_t head_size = 1;
  std::int64_t mlp = 0;         ///< of each block
  std::int64_t wider_mlps = 0;  ///< the first so many blocks have one more
};

/// LayerNorms have a weight and a bias: two in each block and the last one.
std::int64_t norm_elements(const DecoderSizes& sizes) {
  return 2 * sizes.hidden * (2 * sizes.layers + 1);
}

Widths widths_of(const DecoderSizes& sizes) {
  const std::int64_t hidden = sizes.hidden;
  const std::int64_t blocks = sizes.parameters - sizes.vocab * hidden - norm_elements(sizes);
  const double scale =
      static_cast<double>(blocks) / (12.0 * static_cast<double>(sizes.layers) *
                                     static_cast<double>(hidden) * static_cast<double>(hidden));
  Widths widths;
  widths.head_size = std::min(kUsualHeadSize, hidden);
  const double heads = scale * static_cast<double>(hidden) / static_cast<double>(widths.head_size);
  widths.heads = std::max<std::int64_t>(1, std::llround(heads));
  const std::int64_t attention = 4 * hidden * widths.heads * widths.head_size * sizes.layers;
  const std::int64_t rows = (blocks - attention) / (2 * hidden);  // of all MLPs together
  if (rows < sizes.layers) {
    throw ConfigError(format("n_params {}: {} layers of width {} with a vocabulary of {} need more",
                             sizes.parameters, sizes.layers, hidden, sizes.vocab));
  }
  widths.mlp = rows / sizes.layers;
  widths.wider_mlps = rows % sizes.layers;
  return widths;
}

class DecoderLayout : public internal::Layout {
 public:
  DecoderLayout(const ModelShape& shape, const Widths& widths) : Layout(shape), widths_(widths) {}

 private:
  [[nodiscard]] std::int64_t attention_width() const { return widths_.heads * widths_.head_size; }
  [[nodiscard]] std::int64_t mlp_width(std::int64_t layer) const {
    return widths_.mlp + (layer < widths_.wider_mlps ? 1 : 0);
  }

  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_embedding("embedding", shape_.vocab, hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("layers.{}", layer);
      layers_.register_layer_norm(path + ".attention_norm", hidden);
      layers_.register_linear(path + ".attention.qkv", hidden, 3 * attention_width(), false);
      layers_.register_linear(path + ".attention.out", attention_width(), hidden, false);
      layers_.register_layer_norm(path + ".mlp_norm", hidden);
      layers_.register_linear(path + ".mlp.up", hidden, mlp_width(layer), false);
      layers_.register_linear(path + ".mlp.down", mlp_width(layer), hidden, false);
    }
    layers_.register_layer_norm("norm", hidden);
  }

  void run() override {
    assembler_.enter("", "Decoder");
    Value x = layers_.embedding("embedding", shape_.vocab, shape_.hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = layers_.layer_norm("norm", shape_.hidden, x);
    x = layers_.linear("head", shape_.hidden, shape_.vocab, x, "Linear", "embedding.weight");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("layers.{}", layer);
    assembler_.enter(path, "DecoderLayer", {x}, static_cast<int>(layer));
    Value y = layers_.layer_norm(path + ".attention_norm", shape_.hidden, x);
    x = layers_.add(shape_.hidden, x, run_attention(path + ".attention", y));
    y = layers_.layer_norm(path + ".mlp_norm", shape_.hidden, x);
    return assembler_.exit(
        layers_.add(shape_.hidden, x, run_mlp(path + ".mlp", mlp_width(layer), y)));
  }

  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, "Attention", {x});
    Value y = layers_.linear(path + ".qkv", shape_.hidden, 3 * attention_width(), x);
    y = assembler_.attend({.heads = widths_.heads,
                           .kv_heads = widths_.heads,
                           .head_dim = widths_.head_size,
                           .value_dim = widths_.head_size},
                          {y});
    return assembler_.exit(layers_.linear(path + ".out", attention_width(), shape_.hidden, y));
  }

  Value run_mlp(const std::string& path, std::int64_t width, Value x) {
    assembler_.enter(path, "MLP", {x});
    Value y = layers_.linear(path + ".up", shape_.hidden, width, x);
    y = layers_.activation(path + ".act", "GELU", width, y);
    return assembler_.exit(layers_.linear(path + ".down", width, shape_.hidden, y));
  }

  Widths widths_;
};

/// The name of a module's path without the first `prefix` and its dot.
std::string below(const std::string& name, const std::string& prefix) {
  return prefix.empty() ? name : name.substr(std::min(prefix.size() + 1, name.size()));
}

/// The outermost module of the expert that `id` is a part of.
const Module& expert_root(const Model& model, ModuleId id) {
  const Module* module = &model.modules[id.index()];
  while (module->parent.valid() && model.modules[module->parent.index()].expert == module->expert) {
    module = &model.modules[module->parent.index()];
  }
  return *module;
}

/// Merges the parameters of experts; ids are rewritten everywhere.
class ExpertFusion {
 public:
  explicit ExpertFusion(Model model) : model_(std::move(model)) {}

  [[nodiscard]] Model fused() {
    std::vector<Parameter> parameters = std::exchange(model_.parameters, {});
    for (Parameter& parameter : parameters) {
      const Module& owner = model_.modules[parameter.owner.index()];
      ids_.push_back(owner.expert >= 0 && owner.moe_block >= 0 ? merge(std::move(parameter))
                                                               : keep(std::move(parameter)));
    }
    for (Module& module : model_.modules) rename(module);
    for (const auto& [block, ids] : merged_) {
      Module& module = model_.modules[model_.moe_blocks[block].module.index()];
      module.parameters.insert(module.parameters.end(), ids.begin(), ids.end());
    }
    for (Operator& op : model_.operators) {
      for (ParameterId& id : op.parameters) id = ids_[id.index()];
    }
    trace_gradients(model_);
    return std::move(model_);
  }

 private:
  ParameterId keep(Parameter parameter) {
    const ParameterId id(static_cast<std::int32_t>(model_.parameters.size()));
    model_.parameters.push_back(std::move(parameter));
    return id;
  }

  ParameterId merge(Parameter parameter) {
    const Module& owner = model_.modules[parameter.owner.index()];
    const auto block = static_cast<std::size_t>(owner.moe_block);
    const MoeBlock& moe = model_.moe_blocks[block];
    const std::string matrix = below(parameter.name, expert_root(model_, parameter.owner).name);
    const auto found = fused_.find({block, matrix});
    if (found != fused_.end()) {
      Parameter& whole = model_.parameters[found->second.index()];
      ++whole.shape.front();
      whole.elements += parameter.elements;
      return found->second;
    }
    parameter.shape.insert(parameter.shape.begin(), 1);
    parameter.name = model_.modules[moe.module.index()].name + ".experts." + matrix;
    parameter.owner = moe.module;
    const ParameterId id = keep(std::move(parameter));
    fused_[{block, matrix}] = id;
    merged_[block].push_back(id);
    return id;
  }

  /// Modules of experts own nothing more.
  void rename(Module& module) {
    if (module.expert >= 0 && module.moe_block >= 0) module.parameters.clear();
    for (ParameterId& id : module.parameters) id = ids_[id.index()];
  }

  Model model_;
  std::vector<ParameterId> ids_;  ///< new id of each old one
  std::map<std::pair<std::size_t, std::string>, ParameterId> fused_;
  std::map<std::size_t, std::vector<ParameterId>> merged_;  ///< of each MoE block
};

}  // namespace

Model decoder_of_sizes(const DecoderSizes& sizes) {
  check_size("n_params", sizes.parameters, kMostParameters);
  check_size("layers", sizes.layers, kMostLayers);
  check_size("hidden", sizes.hidden, kLargestDimension);
  check_size("vocab", sizes.vocab, kLargestDimension);
  const Widths widths = widths_of(sizes);
  ModelShape shape;
  shape.hidden = sizes.hidden;
  shape.layers = sizes.layers;
  shape.heads = shape.kv_heads = widths.heads;
  shape.head_dim = widths.head_size;
  shape.ffn = widths.mlp;
  shape.vocab = sizes.vocab;
  Model model = DecoderLayout(shape, widths).build();
  model.name =
      format("decoder of {:.4g}e9 parameters", static_cast<double>(sizes.parameters) / 1e9);
  model.family = "sizes";
  model.assumptions.push_back(format(
      "model: only sizes are known; a decoder with {} heads of {}, MLPs of width {} and tied "
      "embeddings has {} of the {} parameters",
      widths.heads, widths.head_size, widths.mlp, parameter_count(model), sizes.parameters));
  return model;
}

Model model_of_counts(std::int64_t parameters, std::int64_t trainable) {
  check_size("n_params", parameters, kMostParameters);
  check_size("trainable_params", trainable, parameters);
  Model model;
  model.name = format("{:.4g}e9 parameters", static_cast<double>(parameters) / 1e9);
  model.family = "counts";
  Module root;
  root.class_name = "Model";
  for (const bool trains : {false, true}) {
    const std::int64_t elements = trains ? trainable : parameters - trainable;
    if (elements == 0) continue;
    root.parameters.emplace_back(static_cast<std::int32_t>(model.parameters.size()));
    model.parameters.push_back(
        {trains ? "trained" : "frozen", {elements}, elements, ModuleId(0), trains});
  }
  model.modules.push_back(std::move(root));
  model.assumptions.emplace_back("model: layers are not known; only model states can be told");
  return model;
}

Model with_trained_count(Model model, std::int64_t trainable) {
  check_size("trainable_params", trainable, parameter_count(model));
  std::int64_t open = trainable;
  for (Parameter& parameter : model.parameters) {
    parameter.trainable = parameter.elements <= open;
    if (parameter.trainable) open -= parameter.elements;
  }
  if (open == trainable) {
    const auto smaller = [](const Parameter& a, const Parameter& b) {
      return a.elements < b.elements;
    };
    std::min_element(model.parameters.begin(), model.parameters.end(), smaller)->trainable = true;
  }
  trace_gradients(model);
  model.assumptions.push_back(
      format("trainable: which parameters is not known; the first ones that fit make {} of {}",
             trainable_parameter_count(model), trainable));
  return model;
}

Model with_fused_experts(Model model) {
  if (model.moe_blocks.empty()) return model;
  return ExpertFusion(std::move(model)).fused();
}

}  // namespace zerosim
