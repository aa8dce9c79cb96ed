// GPT-J: modeling_gptj.py of transformers. One norm serves attention and MLP, which run beside each
// other.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct GptjConfig {
  ModelShape shape;
  std::int64_t rotary_dim = 0;  ///< part of a head that is rotated
  std::string activation_class;
  bool tied = false;
};

/// null: the whole head is rotated.
std::int64_t read_rotary_dim(Config& config, std::int64_t head_dim) {
  if (config.is_null("rotary_dim")) return head_dim;
  const std::int64_t dim = config.size_or({"rotary_dim"}, "the part of a head that is rotated", 64);
  if (dim > head_dim) {
    config.fail("rotary_dim", format("{} is wider than a head, expected 1 to {}", dim, head_dim));
  }
  return dim;
}

GptjConfig read_gptj_config(Config& config) {
  const Config::Names heads_names = {"n_head", "num_attention_heads"};
  GptjConfig result;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden({"n_embd", "hidden_size"});
  shape.layers = config.layers({"n_layer", "num_hidden_layers"});
  shape.heads = config.heads(heads_names);
  shape.kv_heads = shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads, heads_names);
  shape.ffn = config.size_or({"n_inner"}, "the width of the MLP", 4 * shape.hidden, "4 x n_embd");
  shape.vocab = config.vocab(50400);
  shape.max_positions = config.max_positions({"n_positions", "max_position_embeddings"}, 2048);
  result.rotary_dim = read_rotary_dim(config, shape.head_dim);
  result.activation_class = config.activation_class("activation_function", "gelu_new");
  result.tied = config.flag_or("tie_word_embeddings", false);
  config.assume("attn_dropout is called, as in eager attention; fused attention does not call it");
  config.assume(
      format("{} keeps its input alone, as one fused kernel would", result.activation_class));
  return result;
}

/// Lays out GPTJForCausalLM.
class GptjLayout : public Layout {
 public:
  explicit GptjLayout(GptjConfig config) : Layout(config.shape), config_(std::move(config)) {}

 private:
  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_embedding("transformer.wte", shape_.vocab, hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("transformer.h.{}", layer);
      layers_.register_layer_norm(path + ".ln_1", hidden);
      for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
        layers_.register_linear(path + ".attn." + name, hidden, hidden, false);
      }
      layers_.register_linear(path + ".mlp.fc_in", hidden, shape_.ffn, true);
      layers_.register_linear(path + ".mlp.fc_out", shape_.ffn, hidden, true);
    }
    layers_.register_layer_norm("transformer.ln_f", hidden);
    if (!config_.tied) layers_.register_parameter("lm_head.weight", {shape_.vocab, hidden});
    layers_.register_parameter("lm_head.bias", {shape_.vocab});
  }

  void run() override {
    assembler_.enter("", "GPTJForCausalLM");
    assembler_.enter("transformer", "GPTJModel");
    Value x = layers_.embedding("transformer.wte", shape_.vocab, shape_.hidden);
    x = layers_.dropout("transformer.drop", shape_.hidden, x);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = layers_.layer_norm("transformer.ln_f", shape_.hidden, x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "transformer.wte.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// attention(norm(x)) + mlp(norm(x)) + x
  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("transformer.h.{}", layer);
    assembler_.enter(path, "GPTJBlock", {x}, static_cast<int>(layer));
    const Value normed = layers_.layer_norm(path + ".ln_1", shape_.hidden, x);
    const Value attended = run_attention(path + ".attn", normed);
    const Value fed = run_mlp(path + ".mlp", normed);
    const Value y = layers_.add(shape_.hidden, attended, fed);
    return assembler_.exit(layers_.add(shape_.hidden, y, x));
  }

  /// The dropout of the attention scores is part of the Attention operator, wherever its module is.
  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, "GPTJAttention");  // called by keyword
    const Value q = layers_.linear(path + ".q_proj", shape_.hidden, shape_.hidden, x);
    const Value k = layers_.linear(path + ".k_proj", shape_.hidden, shape_.hidden, x);
    const Value v = layers_.linear(path + ".v_proj", shape_.hidden, shape_.hidden, x);
    const Value qk = layers_.rotary(2 * shape_.heads * config_.rotary_dim, q, k);
    Value y = assembler_.attend({.heads = shape_.heads,
                                 .kv_heads = shape_.heads,
                                 .head_dim = shape_.head_dim,
                                 .value_dim = shape_.head_dim,
                                 .mask = ScoreMask::Selected},
                                {qk, v});
    assembler_.enter(path + ".attn_dropout", "Dropout", {y});
    assembler_.exit(y);
    y = layers_.linear(path + ".out_proj", shape_.hidden, shape_.hidden, y);
    return assembler_.exit(layers_.dropout(path + ".resid_dropout", shape_.hidden, y));
  }

  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, "GPTJMLP", {x});
    Value y = layers_.linear(path + ".fc_in", shape_.hidden, shape_.ffn, x);
    y = layers_.activation(path + ".act", config_.activation_class, shape_.ffn, y);
    y = layers_.linear(path + ".fc_out", shape_.ffn, shape_.hidden, y);
    return assembler_.exit(layers_.dropout(path + ".dropout", shape_.hidden, y));
  }

  GptjConfig config_;
};

}  // namespace

Model build_gptj(Config& config, const std::string& /*model_type*/) {
  const GptjConfig gptj = read_gptj_config(config);
  config.note_architecture("GPTJForCausalLM");
  return GptjLayout(gptj).build();
}

}  // namespace zerosim::internal
