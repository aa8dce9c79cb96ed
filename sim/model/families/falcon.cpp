// Falcon: modeling_falcon.py of transformers (4.48 and later). Three layers under one name:
// falcon-rw (one after the other, alibi), falcon-7b (parallel, one norm, one key and value head)
// and falcon-40b ("new decoder architecture": parallel, groups of heads, a norm for each branch).

#include <optional>
#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct FalconConfig {
  ModelShape shape;
  std::string activation_class;
  bool grouped = false;    ///< new_decoder_architecture
  bool parallel = true;    ///< attention and MLP read the same stream
  bool two_norms = false;  ///< one for each of them
  bool bias = false;
  bool alibi = false;
  bool tied = true;
};

/// FalconAttention: the key num_kv_heads counts for groups only; multi_query has one.
std::int64_t read_kv_heads(Config& config, bool grouped, std::int64_t heads) {
  const bool multi_query = config.flag_or("multi_query", true);
  if (!grouped && multi_query) return 1;
  const std::int64_t kv_heads = config.size_or(
      {"num_kv_heads"}, "the number of key and value heads", heads, "as many as attention heads");
  if (heads % kv_heads != 0) {
    config.fail("num_kv_heads", format("{} does not divide num_attention_heads = {}, expected a "
                                       "divisor: each key and value head serves the same number of "
                                       "query heads",
                                       kv_heads, heads));
  }
  if (!grouped && kv_heads != heads) {
    config.fail("num_kv_heads",
                format("found {}, expected {}, as many as num_attention_heads: without "
                       "new_decoder_architecture and multi_query heads have no groups",
                       kv_heads, heads));
  }
  return kv_heads;
}

/// Which norms a layer has. \throws ConfigError  for those that FalconDecoderLayer cannot run.
void read_layer_form(Config& config, FalconConfig& result) {
  result.parallel = config.flag_or("parallel_attn", true);
  if (result.grouped && !result.parallel) {
    config.fail("parallel_attn",
                "found false, expected true: new_decoder_architecture has no other form");
  }
  const std::int64_t norms =
      config.optional_size("num_ln_in_parallel_attn", "the number of norms before a layer's parts")
          .value_or(result.grouped ? 2 : 1);
  if (norms > 2 || (norms == 2 && !result.grouped && result.parallel)) {
    config.fail("num_ln_in_parallel_attn",
                format("found {}, expected {}", norms,
                       result.grouped ? "1 or 2" : "1 without new_decoder_architecture"));
  }
  result.two_norms = result.grouped && norms == 2;
}

FalconConfig read_falcon_config(Config& config) {
  FalconConfig result;
  ModelShape& shape = result.shape;
  shape.hidden = config.has("n_embed") ? config.hidden({"n_embed"}) : config.hidden();
  shape.layers = config.layers();
  shape.heads = config.heads();
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads);
  result.grouped = config.flag_or("new_decoder_architecture", false);
  shape.kv_heads = read_kv_heads(config, result.grouped, shape.heads);
  read_layer_form(config, result);
  shape.ffn =
      config.size_or({"ffn_hidden_size"}, "the width of the MLP", 4 * shape.hidden, "4 x hidden");
  shape.vocab = config.vocab(65024);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, 2048);
  result.activation_class = config.activation_class("activation", "gelu");
  result.bias = config.flag_or("bias", false);
  result.alibi = config.flag_or("alibi", false);
  result.tied = config.flag_or("tie_word_embeddings", true);
  if (result.alibi) {
    config.assume(
        "attention_dropout is called, as in eager attention; fused attention does not call it");
  }
  return result;
}

/// Lays out FalconForCausalLM.
class FalconLayout : public Layout {
 public:
  explicit FalconLayout(FalconConfig config)
      : Layout(config.shape),
        config_(std::move(config)),
        qkv_width_((shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim) {}

 private:
  void register_parameters() override {
    layers_.register_embedding("transformer.word_embeddings", shape_.vocab, shape_.hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      register_layer(format("transformer.h.{}", layer));
    }
    layers_.register_layer_norm("transformer.ln_f", shape_.hidden);
    if (!config_.tied) layers_.register_linear("lm_head", shape_.hidden, shape_.vocab, false);
  }

  void register_layer(const std::string& path) {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_linear(path + ".self_attention.query_key_value", hidden, qkv_width_,
                            config_.bias);
    layers_.register_linear(path + ".self_attention.dense", hidden, hidden, config_.bias);
    layers_.register_linear(path + ".mlp.dense_h_to_4h", hidden, shape_.ffn, config_.bias);
    layers_.register_linear(path + ".mlp.dense_4h_to_h", shape_.ffn, hidden, config_.bias);
    if (config_.two_norms) {
      layers_.register_layer_norm(path + ".ln_attn", hidden);
      layers_.register_layer_norm(path + ".ln_mlp", hidden);
      return;
    }
    if (!config_.parallel) layers_.register_layer_norm(path + ".post_attention_layernorm", hidden);
    layers_.register_layer_norm(path + ".input_layernorm", hidden);
  }

  void run() override {
    assembler_.enter("", "FalconForCausalLM");
    assembler_.enter("transformer", "FalconModel");
    Value x = layers_.embedding("transformer.word_embeddings", shape_.vocab, shape_.hidden);
    layers_.rotary_embedding("transformer.rotary_emb", "FalconRotaryEmbedding", shape_.head_dim);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = run_norm("transformer.ln_f", x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "transformer.word_embeddings.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  Value run_norm(const std::string& path, Value x) {
    return layers_.layer_norm(path, shape_.hidden, x);
  }
  Value run_linear(const std::string& path, std::int64_t inputs, std::int64_t outputs, Value x) {
    return layers_.linear(path, inputs, outputs, x, "FalconLinear");
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("transformer.h.{}", layer);
    assembler_.enter(path, "FalconDecoderLayer", {x}, static_cast<int>(layer));
    return assembler_.exit(config_.parallel ? run_branches(path, x) : run_in_turn(path, x));
  }

  /// dropout(mlp + attention) + x
  Value run_branches(const std::string& path, Value x) {
    const Value normed = run_norm(path + (config_.two_norms ? ".ln_attn" : ".input_layernorm"), x);
    const Value mlp_input = config_.two_norms ? run_norm(path + ".ln_mlp", x) : normed;
    const Value attended = run_attention(path + ".self_attention", normed);
    const Value fed = run_mlp(path + ".mlp", mlp_input);
    return add_dropped(x, layers_.add(shape_.hidden, fed, attended));
  }

  Value run_in_turn(const std::string& path, Value x) {
    Value y = run_norm(path + ".input_layernorm", x);
    x = add_dropped(x, run_attention(path + ".self_attention", y));
    y = run_norm(path + ".post_attention_layernorm", x);
    return add_dropped(x, run_mlp(path + ".mlp", y));
  }

  /// dropout_add: a function of the open module, residual + dropout(y).
  Value add_dropped(Value residual, Value y) {
    y = assembler_.compute(OperatorKind::Dropout, 0, shape_.hidden, {y});
    return layers_.add(shape_.hidden, residual, y);
  }

  /// Groups are spread out first: each query head gets a copy of its key and value head, so
  /// rotation and attention see as many of them as query heads. With alibi the mask is a tensor, of
  /// which no part is skipped; the softmax is computed in the type of the stream.
  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, "FalconAttention", {x});
    const std::int64_t kv_heads = config_.grouped ? shape_.heads : shape_.kv_heads;
    const Value qkv = run_linear(path + ".query_key_value", shape_.hidden, qkv_width_, x);
    Value qk = qkv;
    if (!config_.alibi) qk = layers_.rotary((shape_.heads + kv_heads) * shape_.head_dim, qkv, qkv);
    Value y = assembler_.attend({.heads = shape_.heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = shape_.head_dim,
                                 .value_dim = shape_.head_dim,
                                 .causal = !config_.alibi,
                                 .always_fused = !config_.alibi,
                                 .fp32_softmax = false},
                                {qk, qkv});
    if (config_.alibi) {
      assembler_.enter(path + ".attention_dropout", "Dropout", {y});
      assembler_.exit(y);
    }
    return assembler_.exit(run_linear(path + ".dense", shape_.hidden, shape_.hidden, y));
  }

  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, "FalconMLP", {x});
    Value y = run_linear(path + ".dense_h_to_4h", shape_.hidden, shape_.ffn, x);
    y = layers_.activation(path + ".act", config_.activation_class, shape_.ffn, y);
    return assembler_.exit(run_linear(path + ".dense_4h_to_h", shape_.ffn, shape_.hidden, y));
  }

  FalconConfig config_;
  std::int64_t qkv_width_;
};

}  // namespace

Model build_falcon(Config& config, const std::string& /*model_type*/) {
  const FalconConfig falcon = read_falcon_config(config);
  config.note_architecture("FalconForCausalLM");
  return FalconLayout(falcon).build();
}

}  // namespace zerosim::internal
