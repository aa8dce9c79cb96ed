// GPT-NeoX and Pythia: modeling_gpt_neox.py of transformers (4.48 and later: the rotation of
// positions is computed once for all layers).

#include <optional>
#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct GptNeoxConfig {
  ModelShape shape;
  std::int64_t rotary_dim = 0;  ///< part of a head that is rotated
  std::string activation_class;
  bool attention_bias = true;
  bool parallel_residual = true;
  bool tied = false;
};

/// int(head_dim x rotary_pct)
std::int64_t read_rotary_dim(Config& config, std::int64_t head_dim) {
  double part = 0.25;
  if (const std::optional<double> stated = config.object().optional_number("rotary_pct")) {
    part = *stated;
  } else {
    config.assume(format("rotary_pct = {}: not in the config, {}", part, kHuggingFaceDefault));
  }
  if (!(part >= 0 && part <= 1)) {
    config.fail("rotary_pct",
                format("found {}, expected 0 to 1: the part of a head that is rotated", part));
  }
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
}

GptNeoxConfig read_gpt_neox_config(Config& config) {
  GptNeoxConfig result;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.heads = config.heads();
  shape.kv_heads = shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads);
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  shape.vocab = config.vocab(50432);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, 2048);
  result.rotary_dim = read_rotary_dim(config, shape.head_dim);
  result.activation_class = config.activation_class("hidden_act", "gelu");
  result.attention_bias = config.flag_or("attention_bias", true);
  result.parallel_residual = config.flag_or("use_parallel_residual", true);
  result.tied = config.flag_or("tie_word_embeddings", false);
  return result;
}

/// Lays out GPTNeoXForCausalLM.
class GptNeoxLayout : public Layout {
 public:
  explicit GptNeoxLayout(GptNeoxConfig config) : Layout(config.shape), config_(std::move(config)) {}

 private:
  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_embedding("gpt_neox.embed_in", shape_.vocab, hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("gpt_neox.layers.{}", layer);
      const bool bias = config_.attention_bias;
      layers_.register_layer_norm(path + ".input_layernorm", hidden);
      layers_.register_layer_norm(path + ".post_attention_layernorm", hidden);
      layers_.register_linear(path + ".attention.query_key_value", hidden, 3 * hidden, bias);
      layers_.register_linear(path + ".attention.dense", hidden, hidden, bias);
      layers_.register_linear(path + ".mlp.dense_h_to_4h", hidden, shape_.ffn, true);
      layers_.register_linear(path + ".mlp.dense_4h_to_h", shape_.ffn, hidden, true);
    }
    layers_.register_layer_norm("gpt_neox.final_layer_norm", hidden);
    if (!config_.tied) layers_.register_linear("embed_out", hidden, shape_.vocab, false);
  }

  void run() override {
    assembler_.enter("", "GPTNeoXForCausalLM");
    assembler_.enter("gpt_neox", "GPTNeoXModel");
    Value x = layers_.embedding("gpt_neox.embed_in", shape_.vocab, shape_.hidden);
    x = layers_.dropout("gpt_neox.emb_dropout", shape_.hidden, x);
    layers_.rotary_embedding("gpt_neox.rotary_emb", "GPTNeoXRotaryEmbedding", config_.rotary_dim);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = layers_.layer_norm("gpt_neox.final_layer_norm", shape_.hidden, x);
    assembler_.exit(x);
    x = layers_.linear("embed_out", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "gpt_neox.embed_in.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// Parallel: x + attention(norm(x)) + mlp(norm'(x)), else the MLP reads what attention gave.
  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("gpt_neox.layers.{}", layer);
    assembler_.enter(path, "GPTNeoXLayer", {x}, static_cast<int>(layer));
    Value y = layers_.layer_norm(path + ".input_layernorm", shape_.hidden, x);
    y = run_attention(path + ".attention", y);
    y = layers_.dropout(path + ".post_attention_dropout", shape_.hidden, y);
    if (!config_.parallel_residual) y = layers_.add(shape_.hidden, y, x);
    Value z = layers_.layer_norm(path + ".post_attention_layernorm", shape_.hidden,
                                 config_.parallel_residual ? x : y);
    z = run_mlp(path + ".mlp", z);
    z = layers_.dropout(path + ".post_mlp_dropout", shape_.hidden, z);
    z = layers_.add(shape_.hidden, z, y);
    if (config_.parallel_residual) z = layers_.add(shape_.hidden, z, x);
    return assembler_.exit(z);
  }

  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, "GPTNeoXAttention", {x});
    const Value qkv =
        layers_.linear(path + ".query_key_value", shape_.hidden, 3 * shape_.hidden, x);
    const Value qk = layers_.rotary(2 * shape_.heads * config_.rotary_dim, qkv, qkv);
    const Value y = assembler_.attend({.heads = shape_.heads,
                                       .kv_heads = shape_.heads,
                                       .head_dim = shape_.head_dim,
                                       .value_dim = shape_.head_dim,
                                       .mask = ScoreMask::Selected,
                                       .packing = QueryKeyValue::Interleaved},
                                      {qk, qkv});
    return assembler_.exit(layers_.linear(path + ".dense", shape_.hidden, shape_.hidden, y));
  }

  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, "GPTNeoXMLP", {x});
    Value y = layers_.linear(path + ".dense_h_to_4h", shape_.hidden, shape_.ffn, x);
    y = layers_.activation(path + ".act", config_.activation_class, shape_.ffn, y);
    return assembler_.exit(layers_.linear(path + ".dense_4h_to_h", shape_.ffn, shape_.hidden, y));
  }

  GptNeoxConfig config_;
};

}  // namespace

Model build_gpt_neox(Config& config, const std::string& /*model_type*/) {
  const GptNeoxConfig neox = read_gpt_neox_config(config);
  config.note_architecture("GPTNeoXForCausalLM");
  return GptNeoxLayout(neox).build();
}

}  // namespace zerosim::internal
