// Llama, Mistral, Qwen2 and Qwen3: modeling_llama.py, modeling_mistral.py, modeling_qwen2.py,
// modeling_qwen3.py of transformers. Order of execution and of registration of the Llama layer:
// data/deepspeed_golden, llama_small.

#include "sim/model/families/llama.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "sim/model/families/families.h"

namespace zerosim::internal {
namespace {

constexpr std::array<LlamaFamily, 4> kLlamaFamilies = {{
    {"llama", "Llama", 32000, 2048, 0, 0, true, true, false, false},
    {"mistral", "Mistral", 32000, 131072, 8, 0, false, false, false, false},
    {"qwen2", "Qwen2", 151936, 32768, 32, 0, false, false, true, false},
    {"qwen3", "Qwen3", 151936, 32768, 32, 128, true, false, false, true},
}};

/// Which layers attend to a window only. `layer_types` (transformers 4.53 and later) wins; before
/// it Mistral used the window in all layers and Qwen from layer max_window_layers on, if
/// use_sliding_window.
std::vector<std::int64_t> read_windows(Config& config, const LlamaFamily& family,
                                       std::int64_t layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const std::string_view model_type = family.model_type;
  const bool mistral =
      model_type == "mistral" || (model_type == "mixtral" && config.has("sliding_window"));
  const bool qwen = model_type.substr(0, 4) == "qwen";
  if (!mistral && !qwen) return windows;
  if (qwen && !config.rare_flag("use_sliding_window")) return windows;
  if (config.is_null("sliding_window")) return windows;
  const std::int64_t window = config.size_or({"sliding_window"}, "the attention window in tokens",
                                             4096, kHuggingFaceDefault);
  if (qwen && !config.object().raw("layer_types").isNull()) {
    const std::vector<std::string> types = config.object().strings("layer_types");
    if (types.size() != windows.size()) {
      config.fail("layer_types", format("found {} entries, expected one for each of "
                                        "num_hidden_layers = {} layers",
                                        types.size(), layers));
    }
    for (std::size_t layer = 0; layer < types.size(); ++layer) {
      if (types[layer] == "sliding_attention") windows[layer] = window;
    }
    return windows;
  }
  std::size_t first = 0;
  if (qwen) {
    std::int64_t full_layers = 28;  // configuration_qwen2.py, configuration_qwen3.py
    if (const auto value = config.object().optional_integer("max_window_layers")) {
      full_layers = *value;
    } else {
      config.assume("max_window_layers = 28: not in the config, Hugging Face's default");
    }
    if (full_layers < 0) {
      config.fail("max_window_layers", format("found {}, expected 0 or more: the number of layers "
                                              "with full attention",
                                              full_layers));
    }
    first = static_cast<std::size_t>(std::min(full_layers, layers));
  }
  std::fill(windows.begin() + static_cast<std::ptrdiff_t>(first), windows.end(), window);
  return windows;
}

}  // namespace

LlamaConfig read_llama_config(Config& config, const LlamaFamily& family) {
  LlamaConfig result;
  result.family = &family;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  shape.heads = config.heads();
  shape.kv_heads = config.kv_heads(shape.heads, family.kv_heads);
  shape.head_dim = config.head_dim(shape.hidden, shape.heads, family.head_dim);
  shape.vocab = config.vocab(family.vocab_size);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, family.max_positions);
  result.mlp_class = std::string(family.prefix) + "MLP";
  result.activation_class = config.activation_class("hidden_act", "silu");
  const bool attention_bias = family.reads_attention_bias && config.rare_flag("attention_bias");
  result.qkv_bias = attention_bias || family.always_biased_qkv;
  result.output_bias = attention_bias;
  result.mlp_bias = family.reads_mlp_bias && config.rare_flag("mlp_bias");
  result.tied = config.flag_or("tie_word_embeddings", false);
  result.windows = read_windows(config, family, shape.layers);
  shape.window = *std::max_element(result.windows.begin(), result.windows.end());
  return result;
}

void register_gated_mlp(Layers& layers, const std::string& path, const GatedMlp& mlp) {
  layers.register_linear(path + "." + mlp.gate, mlp.hidden, mlp.width, mlp.bias);
  if (!mlp.down_before_up) {
    layers.register_linear(path + "." + mlp.up, mlp.hidden, mlp.width, mlp.bias);
  }
  layers.register_linear(path + "." + mlp.down, mlp.width, mlp.hidden, mlp.bias);
  if (mlp.down_before_up) {
    layers.register_linear(path + "." + mlp.up, mlp.hidden, mlp.width, mlp.bias);
  }
}

Value run_gated_mlp(Layers& layers, const std::string& path, const GatedMlp& mlp, Value x) {
  Value gate = layers.linear(path + "." + mlp.gate, mlp.hidden, mlp.width, x);
  gate = layers.activation(path + ".act_fn", mlp.activation_class, mlp.width, gate);
  const Value up = layers.linear(path + "." + mlp.up, mlp.hidden, mlp.width, x);
  const Value y = layers.multiply(mlp.width, gate, up);
  return layers.linear(path + "." + mlp.down, mlp.width, mlp.hidden, y);
}

LlamaLayout::LlamaLayout(LlamaConfig config) : Layout(config.shape), config_(std::move(config)) {}

void LlamaLayout::register_parameters() {
  layers_.register_embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) register_layer(layer);
  layers_.register_norm("model.norm", shape_.hidden);
  if (!config_.tied) layers_.register_linear("lm_head", shape_.hidden, shape_.vocab, false);
}

void LlamaLayout::register_layer(std::int64_t layer) {
  const std::string path = format("model.layers.{}", layer);
  register_attention(path + ".self_attn");
  register_feed_forward(path, layer);
  layers_.register_norm(path + ".input_layernorm", shape_.hidden);
  layers_.register_norm(path + ".post_attention_layernorm", shape_.hidden);
}

void LlamaLayout::register_attention(const std::string& path) {
  layers_.register_linear(path + ".q_proj", shape_.hidden, query_width(), config_.qkv_bias);
  layers_.register_linear(path + ".k_proj", shape_.hidden, key_width(), config_.qkv_bias);
  layers_.register_linear(path + ".v_proj", shape_.hidden, key_width(), config_.qkv_bias);
  layers_.register_linear(path + ".o_proj", query_width(), shape_.hidden, config_.output_bias);
  if (!config_.family->query_key_norms) return;
  layers_.register_norm(path + ".q_norm", shape_.head_dim);
  layers_.register_norm(path + ".k_norm", shape_.head_dim);
}

GatedMlp LlamaLayout::dense_mlp() const {
  return {.class_name = config_.mlp_class,
          .activation_class = config_.activation_class,
          .hidden = shape_.hidden,
          .width = shape_.ffn,
          .bias = config_.mlp_bias};
}

void LlamaLayout::register_feed_forward(const std::string& layer_path, std::int64_t /*layer*/) {
  register_gated_mlp(layers_, layer_path + ".mlp", dense_mlp());
}

/// The root and the model take token ids; what they call by keyword has no positional gradient.
void LlamaLayout::run() {
  assembler_.enter("", class_name("ForCausalLM"));
  assembler_.enter("model", class_name("Model"));
  Value x = layers_.embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
  layers_.rotary_embedding("model.rotary_emb", class_name("RotaryEmbedding"), rotated_dim());
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
  x = run_norm("model.norm", shape_.hidden, x);
  assembler_.exit(x);
  x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                     config_.tied ? "model.embed_tokens.weight" : "");
  assembler_.exit(layers_.loss(shape_.vocab, x));
}

Value LlamaLayout::run_layer(std::int64_t layer, Value x) {
  const std::string path = format("model.layers.{}", layer);
  assembler_.enter(path, class_name("DecoderLayer"), {x}, static_cast<int>(layer));
  Value y = run_norm(path + ".input_layernorm", shape_.hidden, x);
  y = run_attention(path + ".self_attn", config_.windows[static_cast<std::size_t>(layer)], y);
  x = layers_.add(shape_.hidden, x, y);
  y = run_norm(path + ".post_attention_layernorm", shape_.hidden, x);
  y = run_feed_forward(path, layer, y);
  return assembler_.exit(layers_.add(shape_.hidden, x, y));
}

Value LlamaLayout::run_attention(const std::string& path, std::int64_t window, Value x) {
  assembler_.enter(path, class_name("Attention"));  // called by keyword
  Value q = layers_.linear(path + ".q_proj", shape_.hidden, query_width(), x);
  if (config_.family->query_key_norms) q = run_norm(path + ".q_norm", query_width(), q);
  Value k = layers_.linear(path + ".k_proj", shape_.hidden, key_width(), x);
  if (config_.family->query_key_norms) k = run_norm(path + ".k_norm", key_width(), k);
  const Value v = layers_.linear(path + ".v_proj", shape_.hidden, key_width(), x);
  const Value qk = layers_.rotary(query_width() + key_width(), q, k);
  const AttentionShape attention{.heads = shape_.heads,
                                 .kv_heads = shape_.kv_heads,
                                 .head_dim = shape_.head_dim,
                                 .value_dim = shape_.head_dim,
                                 .window = window};
  const Value y = assembler_.attend(attention, {qk, v});
  return assembler_.exit(layers_.linear(path + ".o_proj", query_width(), shape_.hidden, y));
}

Value LlamaLayout::run_feed_forward(const std::string& layer_path, std::int64_t /*layer*/,
                                    Value x) {
  const GatedMlp mlp = dense_mlp();
  assembler_.enter(layer_path + ".mlp", mlp.class_name, {x});
  return assembler_.exit(run_gated_mlp(layers_, layer_path + ".mlp", mlp, x));
}

Model build_llama(Config& config, const std::string& model_type) {
  const auto* family =
      std::find_if(kLlamaFamilies.begin(), kLlamaFamilies.end(),
                   [&](const LlamaFamily& member) { return model_type == member.model_type; });
  const LlamaConfig llama = read_llama_config(config, *family);
  config.note_architecture(std::string(family->prefix) + "ForCausalLM");
  return LlamaLayout(llama).build();
}

}  // namespace zerosim::internal
