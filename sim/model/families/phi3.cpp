// Phi-3: modeling_phi3.py of transformers.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct Phi3Config {
  ModelShape shape;
  std::string activation_class;
  std::int64_t rotary_dim = 0;    ///< of a head; less than head_dim in Phi-4-mini
  bool residual_dropout = false;  ///< resid_pdrop > 0
  bool tied = false;
};

std::int64_t read_rotary_dim(Config& config, std::int64_t head_dim) {
  const double factor = config.object().optional_number("partial_rotary_factor").value_or(1);
  const auto dim = static_cast<std::int64_t>(static_cast<double>(head_dim) * factor);
  if (factor > 1 || dim < 1) {
    config.fail("partial_rotary_factor",
                format("found {}, expected the share of a head that is rotated, above 0, at most 1",
                       factor));
  }
  return dim;
}

/// Defaults: configuration_phi3.py.
Phi3Config read_phi3_config(Config& config) {
  Phi3Config result;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  shape.heads = config.heads();
  shape.kv_heads = config.kv_heads(shape.heads, 0);
  shape.head_dim = config.head_dim(shape.hidden, shape.heads, 0);
  shape.vocab = config.vocab(32064);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, 4096);
  shape.window =
      config.optional_size("sliding_window", "the attention window in tokens").value_or(0);
  result.activation_class = config.activation_class("hidden_act", "silu");
  result.rotary_dim = read_rotary_dim(config, shape.head_dim);
  result.residual_dropout = config.object().optional_number("resid_pdrop").value_or(0) > 0;
  result.tied = config.flag_or("tie_word_embeddings", false);
  return result;
}

/// Lays out Phi3ForCausalLM.
class Phi3Layout : public Layout {
 public:
  explicit Phi3Layout(Phi3Config config)
      : Layout(config.shape),
        config_(std::move(config)),
        query_width_(shape_.heads * shape_.head_dim),
        key_width_(shape_.kv_heads * shape_.head_dim) {}

 private:
  void register_parameters() override {
    layers_.register_embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("model.layers.{}", layer);
      layers_.register_linear(path + ".self_attn.o_proj", query_width_, shape_.hidden, false);
      layers_.register_linear(path + ".self_attn.qkv_proj", shape_.hidden,
                              query_width_ + 2 * key_width_, false);
      layers_.register_linear(path + ".mlp.gate_up_proj", shape_.hidden, 2 * shape_.ffn, false);
      layers_.register_linear(path + ".mlp.down_proj", shape_.ffn, shape_.hidden, false);
      layers_.register_norm(path + ".input_layernorm", shape_.hidden);
      layers_.register_norm(path + ".post_attention_layernorm", shape_.hidden);
    }
    layers_.register_norm("model.norm", shape_.hidden);
    if (!config_.tied) layers_.register_linear("lm_head", shape_.hidden, shape_.vocab, false);
  }

  void run() override {
    assembler_.enter("", "Phi3ForCausalLM");
    assembler_.enter("model", "Phi3Model");
    Value x = layers_.embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
    layers_.rotary_embedding("model.rotary_emb", "Phi3RotaryEmbedding", config_.rotary_dim);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = run_norm("model.norm", x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "model.embed_tokens.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  Value run_norm(const std::string& path, Value x) {
    return layers_.rms_norm(path, "Phi3RMSNorm", shape_.hidden, x);
  }

  /// PyTorch's dropout returns its input if the probability is 0.
  Value run_residual_dropout(const std::string& path, Value x) {
    if (config_.residual_dropout) return layers_.dropout(path, shape_.hidden, x);
    assembler_.enter(path, "Dropout", {x});
    return assembler_.exit(x);
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("model.layers.{}", layer);
    assembler_.enter(path, "Phi3DecoderLayer", {x}, static_cast<int>(layer));
    Value y = run_norm(path + ".input_layernorm", x);
    y = run_attention(path + ".self_attn", y);
    y = run_residual_dropout(path + ".resid_attn_dropout", y);
    x = layers_.add(shape_.hidden, x, y);
    y = run_norm(path + ".post_attention_layernorm", x);
    y = run_mlp(path + ".mlp", y);
    y = run_residual_dropout(path + ".resid_mlp_dropout", y);
    return assembler_.exit(layers_.add(shape_.hidden, x, y));
  }

  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, "Phi3Attention");  // called by keyword
    const Value qkv =
        layers_.linear(path + ".qkv_proj", shape_.hidden, query_width_ + 2 * key_width_, x);
    const std::int64_t rotated = (shape_.heads + shape_.kv_heads) * config_.rotary_dim;
    const Value qk = layers_.rotary(rotated, qkv, qkv);
    const AttentionShape attention{.heads = shape_.heads,
                                   .kv_heads = shape_.kv_heads,
                                   .head_dim = shape_.head_dim,
                                   .value_dim = shape_.head_dim,
                                   .window = shape_.window};
    const Value y = assembler_.attend(attention, {qk, qkv});
    return assembler_.exit(layers_.linear(path + ".o_proj", query_width_, shape_.hidden, y));
  }

  /// gate and up are the halves of one product; down_proj(up * activation_fn(gate))
  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, "Phi3MLP", {x});
    const Value up = layers_.linear(path + ".gate_up_proj", shape_.hidden, 2 * shape_.ffn, x);
    const Value gate =
        layers_.activation(path + ".activation_fn", config_.activation_class, shape_.ffn, up);
    const Value y = layers_.multiply(shape_.ffn, up, gate);
    return assembler_.exit(layers_.linear(path + ".down_proj", shape_.ffn, shape_.hidden, y));
  }

  Phi3Config config_;
  std::int64_t query_width_;
  std::int64_t key_width_;
};

}  // namespace

Model build_phi3(Config& config, const std::string& /*model_type*/) {
  const Phi3Config phi3 = read_phi3_config(config);
  config.note_architecture("Phi3ForCausalLM");
  return Phi3Layout(phi3).build();
}

}  // namespace zerosim::internal
