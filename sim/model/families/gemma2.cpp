// Gemma and Gemma 2: modeling_gemma.py, modeling_gemma2.py of transformers.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"
#include "sim/model/families/llama.h"

namespace zerosim::internal {
namespace {

/// What differs between the two; defaults of configuration_gemma.py and configuration_gemma2.py.
struct GemmaFamily {
  const char* prefix;  ///< of class names: "Gemma2Attention"
  std::int64_t kv_heads;
  bool second_generation;  ///< norms around both parts of a layer, windows, capped logits
};

constexpr GemmaFamily kGemma = {"Gemma", 16, false};
constexpr GemmaFamily kGemma2 = {"Gemma2", 4, true};

struct GemmaConfig {
  const GemmaFamily* family = nullptr;
  ModelShape shape;
  std::string activation_class;
  bool attention_bias = false;
  bool capped_logits = false;
  bool tied = true;
  std::vector<std::int64_t> windows;  ///< per layer; 0: full attention
};

/// Whether a key that is absent (then the default holds), a number or null says that logits are
/// capped.
bool reads_cap(Config& config, const std::string& name, double fallback) {
  if (config.is_null(name)) return false;
  const std::optional<double> value = config.object().optional_number(name);
  if (!value) {
    config.assume(format("{} = {}: not in the config, {}", name, fallback, kHuggingFaceDefault));
    return true;
  }
  if (*value <= 0) {
    config.fail(name, format("found {}, expected a number above 0, or null for no cap", *value));
  }
  return true;
}

/// Even layers slide (`is_sliding = not bool(layer_idx % 2)`), unless `layer_types` (transformers
/// 4.53 and later) says otherwise.
std::vector<std::int64_t> read_gemma_windows(Config& config, std::int64_t layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  if (config.is_null("sliding_window")) return windows;
  const std::int64_t window = config.size_or({"sliding_window"}, "the attention window in tokens",
                                             4096, kHuggingFaceDefault);
  if (config.object().raw("layer_types").isNull()) {
    for (std::size_t layer = 0; layer < windows.size(); layer += 2) windows[layer] = window;
    return windows;
  }
  const std::vector<std::string> types = config.object().strings("layer_types");
  if (types.size() != windows.size()) {
    config.fail("layer_types",
                format("found {} entries, expected one for each of num_hidden_layers = {} layers",
                       types.size(), layers));
  }
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "sliding_attention") windows[layer] = window;
  }
  return windows;
}

/// Gemma's first configs say "gelu" in hidden_act and mean hidden_activation's default.
std::string read_gemma_activation(Config& config, const GemmaFamily& family) {
  if (!family.second_generation && !config.has("hidden_activation") && config.has("hidden_act")) {
    return config.activation_class("hidden_act", "gelu_pytorch_tanh");
  }
  return config.activation_class("hidden_activation", "gelu_pytorch_tanh");
}

GemmaConfig read_gemma_config(Config& config, const GemmaFamily& family) {
  GemmaConfig result;
  result.family = &family;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  shape.heads = config.heads();
  shape.kv_heads = config.kv_heads(shape.heads, family.kv_heads);
  shape.head_dim = config.head_dim(shape.hidden, shape.heads, 256);
  shape.vocab = config.vocab(256000);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, 8192);
  result.activation_class = read_gemma_activation(config, family);
  result.attention_bias = config.rare_flag("attention_bias");
  result.tied = config.flag_or("tie_word_embeddings", true);
  result.windows.assign(static_cast<std::size_t>(shape.layers), 0);
  if (family.second_generation) {
    result.windows = read_gemma_windows(config, shape.layers);
    result.capped_logits = reads_cap(config, "final_logit_softcapping", 30);
    if (reads_cap(config, "attn_logit_softcapping", 50)) {
      config.assume(
          "attn_logit_softcapping costs nothing: fused attention caps its scores in registers");
    }
  }
  shape.window = *std::max_element(result.windows.begin(), result.windows.end());
  config.assume(
      format("{}RMSNorm costs what LlamaRMSNorm does, though it multiplies by its "
             "weight in fp32",
             family.prefix));
  return result;
}

/// Lays out GemmaForCausalLM or Gemma2ForCausalLM.
class GemmaLayout : public Layout {
 public:
  explicit GemmaLayout(GemmaConfig config)
      : Layout(config.shape),
        config_(std::move(config)),
        query_width_(shape_.heads * shape_.head_dim),
        key_width_(shape_.kv_heads * shape_.head_dim) {}

 private:
  [[nodiscard]] std::string class_name(const std::string& suffix) const {
    return config_.family->prefix + suffix;
  }

  void register_parameters() override {
    layers_.register_embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      register_layer(format("model.layers.{}", layer));
    }
    layers_.register_norm("model.norm", shape_.hidden);
    if (!config_.tied) layers_.register_linear("lm_head", shape_.hidden, shape_.vocab, false);
  }

  void register_layer(const std::string& layer) {
    const bool bias = config_.attention_bias;
    const std::string attention = layer + ".self_attn";
    layers_.register_linear(attention + ".q_proj", shape_.hidden, query_width_, bias);
    layers_.register_linear(attention + ".k_proj", shape_.hidden, key_width_, bias);
    layers_.register_linear(attention + ".v_proj", shape_.hidden, key_width_, bias);
    layers_.register_linear(attention + ".o_proj", query_width_, shape_.hidden, bias);
    register_gated_mlp(layers_, layer + ".mlp", mlp());
    layers_.register_norm(layer + ".input_layernorm", shape_.hidden);
    layers_.register_norm(layer + ".post_attention_layernorm", shape_.hidden);
    if (!config_.family->second_generation) return;
    layers_.register_norm(layer + ".pre_feedforward_layernorm", shape_.hidden);
    layers_.register_norm(layer + ".post_feedforward_layernorm", shape_.hidden);
  }

  /// Embeddings are multiplied by sqrt(hidden).
  void run() override {
    assembler_.enter("", class_name("ForCausalLM"));
    assembler_.enter("model", class_name("Model"));
    Value x = layers_.embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
    layers_.rotary_embedding("model.rotary_emb", class_name("RotaryEmbedding"), shape_.head_dim);
    x = layers_.scale(shape_.hidden, x);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = run_norm("model.norm", x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "model.embed_tokens.weight" : "");
    if (config_.capped_logits) x = cap_logits(x);
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// tanh(logits / cap) * cap
  Value cap_logits(Value logits) {
    logits = layers_.scale(shape_.vocab, logits);
    logits = assembler_.activate("Tanh", shape_.vocab, logits);
    return layers_.scale(shape_.vocab, logits);
  }

  Value run_norm(const std::string& path, Value x) {
    return layers_.rms_norm(path, class_name("RMSNorm"), shape_.hidden, x);
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("model.layers.{}", layer);
    const bool norms_after = config_.family->second_generation;
    assembler_.enter(path, class_name("DecoderLayer"), {x}, static_cast<int>(layer));
    Value y = run_norm(path + ".input_layernorm", x);
    y = run_attention(path + ".self_attn", config_.windows[static_cast<std::size_t>(layer)], y);
    if (norms_after) y = run_norm(path + ".post_attention_layernorm", y);
    x = layers_.add(shape_.hidden, x, y);
    y = run_norm(path + (norms_after ? ".pre_feedforward_layernorm" : ".post_attention_layernorm"),
                 x);
    y = run_mlp(path + ".mlp", y);
    if (norms_after) y = run_norm(path + ".post_feedforward_layernorm", y);
    return assembler_.exit(layers_.add(shape_.hidden, x, y));
  }

  Value run_attention(const std::string& path, std::int64_t window, Value x) {
    assembler_.enter(path, class_name("Attention"));  // called by keyword
    const Value q = layers_.linear(path + ".q_proj", shape_.hidden, query_width_, x);
    const Value k = layers_.linear(path + ".k_proj", shape_.hidden, key_width_, x);
    const Value v = layers_.linear(path + ".v_proj", shape_.hidden, key_width_, x);
    const Value qk = layers_.rotary(query_width_ + key_width_, q, k);
    const AttentionShape attention{.heads = shape_.heads,
                                   .kv_heads = shape_.kv_heads,
                                   .head_dim = shape_.head_dim,
                                   .value_dim = shape_.head_dim,
                                   .window = window};
    const Value y = assembler_.attend(attention, {qk, v});
    return assembler_.exit(layers_.linear(path + ".o_proj", query_width_, shape_.hidden, y));
  }

  [[nodiscard]] GatedMlp mlp() const {
    return {.class_name = class_name("MLP"),
            .activation_class = config_.activation_class,
            .hidden = shape_.hidden,
            .width = shape_.ffn};
  }

  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, mlp().class_name, {x});
    return assembler_.exit(run_gated_mlp(layers_, path, mlp(), x));
  }

  GemmaConfig config_;
  std::int64_t query_width_;
  std::int64_t key_width_;
};

}  // namespace

Model build_gemma2(Config& config, const std::string& model_type) {
  const GemmaFamily& family = model_type == "gemma" ? kGemma : kGemma2;
  const GemmaConfig gemma = read_gemma_config(config, family);
  config.note_architecture(std::string(family.prefix) + "ForCausalLM");
  return GemmaLayout(gemma).build();
}

}  // namespace zerosim::internal
