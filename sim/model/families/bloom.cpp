// BLOOM: modeling_bloom.py of transformers. Positions are biases of the scores (alibi), added
// within their matrix product, so there is no fused attention.

#include <string>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct BloomConfig {
  ModelShape shape;
  bool residual_after_norm = false;
  bool tied = true;
};

BloomConfig read_bloom_config(Config& config) {
  const Config::Names heads_names = {"n_head", "num_attention_heads"};
  BloomConfig result;
  ModelShape& shape = result.shape;
  shape.hidden = config.has("n_embed") ? config.hidden({"n_embed"}) : config.hidden();
  shape.layers = config.layers({"n_layer", "num_hidden_layers"});
  shape.heads = config.heads(heads_names);
  shape.kv_heads = shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads, heads_names);
  shape.ffn = 4 * shape.hidden;  // BloomMLP: no key says otherwise
  shape.vocab = config.vocab(250880);
  result.residual_after_norm = config.rare_flag("apply_residual_connection_post_layernorm");
  result.tied = config.flag_or("tie_word_embeddings", true);
  config.assume("BloomGelu keeps its input alone");
  return result;
}

/// Lays out BloomForCausalLM.
class BloomLayout : public Layout {
 public:
  explicit BloomLayout(const BloomConfig& config) : Layout(config.shape), config_(config) {}

 private:
  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_embedding("transformer.word_embeddings", shape_.vocab, hidden);
    layers_.register_layer_norm("transformer.word_embeddings_layernorm", hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("transformer.h.{}", layer);
      layers_.register_layer_norm(path + ".input_layernorm", hidden);
      layers_.register_linear(path + ".self_attention.query_key_value", hidden, 3 * hidden, true);
      layers_.register_linear(path + ".self_attention.dense", hidden, hidden, true);
      layers_.register_layer_norm(path + ".post_attention_layernorm", hidden);
      layers_.register_linear(path + ".mlp.dense_h_to_4h", hidden, shape_.ffn, true);
      layers_.register_linear(path + ".mlp.dense_4h_to_h", shape_.ffn, hidden, true);
    }
    layers_.register_layer_norm("transformer.ln_f", hidden);
    if (!config_.tied) layers_.register_linear("lm_head", hidden, shape_.vocab, false);
  }

  void run() override {
    assembler_.enter("", "BloomForCausalLM");
    assembler_.enter("transformer", "BloomModel");
    Value x = layers_.embedding("transformer.word_embeddings", shape_.vocab, shape_.hidden);
    x = layers_.layer_norm("transformer.word_embeddings_layernorm", shape_.hidden, x);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = layers_.layer_norm("transformer.ln_f", shape_.hidden, x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "transformer.word_embeddings.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// Attention and MLP are given the residual too, and add it themselves.
  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("transformer.h.{}", layer);
    const bool after = config_.residual_after_norm;
    assembler_.enter(path, "BloomBlock", {x}, static_cast<int>(layer));
    Value y = layers_.layer_norm(path + ".input_layernorm", shape_.hidden, x);
    x = run_attention(path + ".self_attention", y, after ? y : x);
    y = layers_.layer_norm(path + ".post_attention_layernorm", shape_.hidden, x);
    return assembler_.exit(run_mlp(path + ".mlp", y, after ? y : x));
  }

  /// The dropout of the attention scores is part of the Attention operator, wherever its module is.
  Value run_attention(const std::string& path, Value x, Value residual) {
    assembler_.enter(path, "BloomAttention", {x, residual});
    Value y = layers_.linear(path + ".query_key_value", shape_.hidden, 3 * shape_.hidden, x);
    y = assembler_.attend({.heads = shape_.heads,
                           .kv_heads = shape_.heads,
                           .head_dim = shape_.head_dim,
                           .value_dim = shape_.head_dim,
                           .fused = false,
                           .mask = ScoreMask::Filled,
                           .packing = QueryKeyValue::Interleaved},
                          {y});
    assembler_.enter(path + ".attention_dropout", "Dropout", {y});
    assembler_.exit(y);
    y = layers_.linear(path + ".dense", shape_.hidden, shape_.hidden, y);
    return assembler_.exit(add_dropped(residual, y));
  }

  Value run_mlp(const std::string& path, Value x, Value residual) {
    assembler_.enter(path, "BloomMLP", {x, residual});
    Value y = layers_.linear(path + ".dense_h_to_4h", shape_.hidden, shape_.ffn, x);
    y = layers_.activation(path + ".gelu_impl", "BloomGelu", shape_.ffn, y);
    y = layers_.linear(path + ".dense_4h_to_h", shape_.ffn, shape_.hidden, y);
    return assembler_.exit(add_dropped(residual, y));
  }

  /// dropout_add: a function of the open module, residual + dropout(y).
  Value add_dropped(Value residual, Value y) {
    y = assembler_.compute(OperatorKind::Dropout, 0, shape_.hidden, {y});
    return layers_.add(shape_.hidden, residual, y);
  }

  BloomConfig config_;
};

}  // namespace

Model build_bloom(Config& config, const std::string& /*model_type*/) {
  const BloomConfig bloom = read_bloom_config(config);
  config.note_architecture("BloomForCausalLM");
  return BloomLayout(bloom).build();
}

}  // namespace zerosim::internal
