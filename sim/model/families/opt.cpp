// OPT: modeling_opt.py of transformers. Dropouts of the residual stream are functions, not modules.

#include <optional>
#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

/// Rows of the position table that no token of a text uses: OPTLearnedPositionalEmbedding.offset.
constexpr std::int64_t kPositionOffset = 2;

struct OptConfig {
  ModelShape shape;
  std::int64_t word_width = 0;  ///< of the token embedding and of the head's input
  std::string activation_class;
  bool norm_before = true;  ///< of attention and MLP; opt-350m: behind them
  bool final_norm = true;
  bool bias = true;
  bool norm_parameters = true;
  bool tied = true;
};

OptConfig read_opt_config(Config& config) {
  OptConfig result;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.heads = config.heads();
  shape.kv_heads = shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads);
  shape.ffn = config.required_size({"ffn_dim"}, "the width of the MLP");
  shape.vocab = config.vocab(50272);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, 2048);
  result.word_width = config.size_or({"word_embed_proj_dim"}, "the width of the token embedding",
                                     shape.hidden, "that of the residual stream");
  result.activation_class = config.activation_class("activation_function", "relu");
  result.norm_before = config.flag_or("do_layer_norm_before", true);
  result.final_norm = result.norm_before && !config.rare_flag("_remove_final_layer_norm");
  result.bias = config.flag_or("enable_bias", true);
  result.norm_parameters =
      config.object().optional_boolean("layer_norm_elementwise_affine").value_or(true);
  result.tied = config.flag_or("tie_word_embeddings", true);
  if (config.object().optional_number("layerdrop").value_or(0) != 0) {
    config.fail("layerdrop", format("found {}, expected 0: layers that are left out at random are "
                                    "not supported",
                                    config.object().number("layerdrop")));
  }
  return result;
}

/// Lays out OPTForCausalLM.
class OptLayout : public Layout {
 public:
  explicit OptLayout(OptConfig config)
      : Layout(config.shape),
        config_(std::move(config)),
        projected_(config_.word_width != shape_.hidden) {}

 private:
  [[nodiscard]] std::int64_t position_rows() const {
    return shape_.max_positions + kPositionOffset;
  }

  void register_norm(const std::string& path) {
    if (config_.norm_parameters) layers_.register_layer_norm(path, shape_.hidden);
  }

  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    const std::int64_t word = config_.word_width;
    layers_.register_embedding("model.decoder.embed_tokens", shape_.vocab, word);
    layers_.register_embedding("model.decoder.embed_positions", position_rows(), hidden);
    if (projected_) {
      layers_.register_linear("model.decoder.project_out", hidden, word, false);
      layers_.register_linear("model.decoder.project_in", word, hidden, false);
    }
    if (config_.final_norm) register_norm("model.decoder.final_layer_norm");
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      register_layer(format("model.decoder.layers.{}", layer));
    }
    if (!config_.tied) layers_.register_linear("lm_head", word, shape_.vocab, false);
  }

  void register_layer(const std::string& path) {
    const std::int64_t hidden = shape_.hidden;
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      layers_.register_linear(path + ".self_attn." + name, hidden, hidden, config_.bias);
    }
    register_norm(path + ".self_attn_layer_norm");
    layers_.register_linear(path + ".fc1", hidden, shape_.ffn, config_.bias);
    layers_.register_linear(path + ".fc2", shape_.ffn, hidden, config_.bias);
    register_norm(path + ".final_layer_norm");
  }

  /// The root calls `model.decoder` itself: OPTModel, its parent, runs no hooks.
  void run() override {
    const std::int64_t word = config_.word_width;
    assembler_.enter("", "OPTForCausalLM");
    assembler_.enter("model.decoder", "OPTDecoder");
    Value x = layers_.embedding("model.decoder.embed_tokens", shape_.vocab, word);
    const Value positions = layers_.embedding("model.decoder.embed_positions", position_rows(),
                                              shape_.hidden, "OPTLearnedPositionalEmbedding");
    if (projected_) x = layers_.linear("model.decoder.project_in", word, shape_.hidden, x);
    x = layers_.add(shape_.hidden, x, positions);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    if (config_.final_norm) x = run_norm("model.decoder.final_layer_norm", x);
    if (projected_) x = layers_.linear("model.decoder.project_out", shape_.hidden, word, x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", word, shape_.vocab, x, "Linear",
                       config_.tied ? "model.decoder.embed_tokens.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  Value run_norm(const std::string& path, Value x) {
    return layers_.layer_norm(path, shape_.hidden, x);
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("model.decoder.layers.{}", layer);
    assembler_.enter(path, "OPTDecoderLayer", {x}, static_cast<int>(layer));
    Value y = config_.norm_before ? run_norm(path + ".self_attn_layer_norm", x) : x;
    y = run_attention(path + ".self_attn", y);
    x = add_dropped(x, y);
    if (!config_.norm_before) x = run_norm(path + ".self_attn_layer_norm", x);
    y = config_.norm_before ? run_norm(path + ".final_layer_norm", x) : x;
    y = layers_.linear(path + ".fc1", shape_.hidden, shape_.ffn, y);
    y = layers_.activation(path + ".activation_fn", config_.activation_class, shape_.ffn, y);
    y = layers_.linear(path + ".fc2", shape_.ffn, shape_.hidden, y);
    x = add_dropped(x, y);
    if (!config_.norm_before) x = run_norm(path + ".final_layer_norm", x);
    return assembler_.exit(x);
  }

  /// residual + dropout(y)
  Value add_dropped(Value residual, Value y) {
    y = assembler_.compute(OperatorKind::Dropout, 0, shape_.hidden, {y});
    return layers_.add(shape_.hidden, residual, y);
  }

  /// q is scaled by 1 / sqrt(head_dim) before the scores.
  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, "OPTAttention");  // called by keyword
    Value q = layers_.linear(path + ".q_proj", shape_.hidden, shape_.hidden, x);
    q = layers_.scale(shape_.hidden, q);
    const Value k = layers_.linear(path + ".k_proj", shape_.hidden, shape_.hidden, x);
    const Value v = layers_.linear(path + ".v_proj", shape_.hidden, shape_.hidden, x);
    const Value y = assembler_.attend({.heads = shape_.heads,
                                       .kv_heads = shape_.heads,
                                       .head_dim = shape_.head_dim,
                                       .value_dim = shape_.head_dim},
                                      {q, k, v});
    return assembler_.exit(layers_.linear(path + ".out_proj", shape_.hidden, shape_.hidden, y));
  }

  OptConfig config_;
  bool projected_;  ///< tokens are embedded in another width than the residual stream's
};

}  // namespace

Model build_opt(Config& config, const std::string& /*model_type*/) {
  const OptConfig opt = read_opt_config(config);
  config.note_architecture("OPTForCausalLM");
  return OptLayout(opt).build();
}

}  // namespace zerosim::internal
