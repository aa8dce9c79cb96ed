// DistilBERT: modeling_distilbert.py of transformers.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct DistilBertConfig {
  ModelShape shape;
  std::string activation_class;
  bool has_head = true;  ///< DistilBertForMaskedLM, not DistilBertModel
  bool tied = true;
};

/// Which model is built: the first of `architectures` that is known.
bool reads_head(Config& config) {
  const std::string masked = "DistilBertForMaskedLM";
  if (!config.has("architectures")) {
    config.assume(format(R"(architectures = ["{}"]: not in the config; DistilBertModel would )"
                         "have no loss",
                         masked));
    return true;
  }
  for (const std::string& architecture : config.object().strings("architectures")) {
    if (architecture == masked) return true;
    if (architecture == "DistilBertModel") return false;
  }
  config.note_architecture(masked);
  return true;
}

/// Keys and defaults of configuration_distilbert.py; it takes the common names as well.
DistilBertConfig read_distilbert_config(Config& config) {
  DistilBertConfig result;
  result.has_head = reads_head(config);
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden({"dim", "hidden_size"});
  shape.layers = config.layers({"n_layers", "num_hidden_layers"});
  shape.ffn = config.required_size({"hidden_dim"}, "the width of the MLP");
  shape.heads = config.heads({"n_heads", "num_attention_heads"});
  shape.kv_heads = shape.heads;
  shape.head_dim =
      config.divided_head_dim(shape.hidden, shape.heads, {"n_heads", "num_attention_heads"});
  shape.vocab = config.vocab(30522);
  shape.max_positions = config.max_positions({"max_position_embeddings"}, 512);
  result.activation_class = config.activation_class("activation", "gelu");
  if (result.has_head) result.tied = config.flag_or("tie_word_embeddings", true);
  if (config.rare_flag("sinusoidal_pos_embds")) {
    config.fail("sinusoidal_pos_embds",
                "found true, expected false: fixed tables of positions are not supported");
  }
  config.assume(
      "attention.dropout is called, as in eager attention; fused attention does not call it");
  if (!result.has_head) {
    config.assume(
        "DistilBertModel has no head: the loss is not part of the model, and backward starts at "
        "its outputs");
  }
  return result;
}

class DistilBertLayout : public Layout {
 public:
  explicit DistilBertLayout(DistilBertConfig config)
      : Layout(config.shape),
        config_(std::move(config)),
        encoder_(config_.has_head ? "distilbert" : "") {}

 private:
  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    const std::string embeddings = in_encoder("embeddings");
    layers_.register_embedding(embeddings + ".word_embeddings", shape_.vocab, hidden);
    layers_.register_embedding(embeddings + ".position_embeddings", shape_.max_positions, hidden);
    layers_.register_layer_norm(embeddings + ".LayerNorm", hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      register_layer(in_encoder(format("transformer.layer.{}", layer)));
    }
    if (config_.has_head) register_head();
  }

  /// Path of a part of the encoder, which may itself be the root.
  [[nodiscard]] std::string in_encoder(const std::string& name) const {
    return encoder_.empty() ? name : encoder_ + "." + name;
  }

  void register_layer(const std::string& layer) {
    const std::int64_t hidden = shape_.hidden;
    for (const char* name : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
      layers_.register_linear(format("{}.attention.{}", layer, name), hidden, hidden, true);
    }
    layers_.register_layer_norm(layer + ".sa_layer_norm", hidden);
    layers_.register_linear(layer + ".ffn.lin1", hidden, shape_.ffn, true);
    layers_.register_linear(layer + ".ffn.lin2", shape_.ffn, hidden, true);
    layers_.register_layer_norm(layer + ".output_layer_norm", hidden);
  }

  void register_head() {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_linear("vocab_transform", hidden, hidden, true);
    layers_.register_layer_norm("vocab_layer_norm", hidden);
    if (!config_.tied) layers_.register_parameter("vocab_projector.weight", {shape_.vocab, hidden});
    layers_.register_parameter("vocab_projector.bias", {shape_.vocab});
  }

  // --- execution

  void run() override {
    if (!config_.has_head) {
      assembler_.enter("", "DistilBertModel");
      assembler_.exit(run_encoder());
      return;
    }
    assembler_.enter("", "DistilBertForMaskedLM");
    assembler_.enter(encoder_, "DistilBertModel");
    const Value x = assembler_.exit(run_encoder());
    assembler_.exit(layers_.loss(shape_.vocab, run_head(x)));
  }

  /// The transformer is called by keyword, its layers with the stream first.
  Value run_encoder() {
    Value x = run_embeddings(in_encoder("embeddings"));
    assembler_.enter(in_encoder("transformer"), "Transformer");
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    return assembler_.exit(x);
  }

  Value run_embeddings(const std::string& path) {
    const std::int64_t hidden = shape_.hidden;
    assembler_.enter(path, "Embeddings");
    assembler_.register_buffer("position_ids", shape_.max_positions, Dtype::I64);
    const Value words = layers_.embedding(path + ".word_embeddings", shape_.vocab, hidden);
    const Value positions =
        layers_.embedding(path + ".position_embeddings", shape_.max_positions, hidden);
    Value x = layers_.add(hidden, words, positions);
    x = layers_.layer_norm(path + ".LayerNorm", hidden, x);
    return assembler_.exit(layers_.dropout(path + ".dropout", hidden, x));
  }

  /// norm(attention(x) + x), then norm(ffn(x) + x).
  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = in_encoder(format("transformer.layer.{}", layer));
    const std::int64_t hidden = shape_.hidden;
    assembler_.enter(path, "TransformerBlock", {x}, static_cast<int>(layer));
    Value y = run_attention(path + ".attention", x);
    x = layers_.layer_norm(path + ".sa_layer_norm", hidden, layers_.add(hidden, y, x));
    y = run_mlp(path + ".ffn", x);
    x = layers_.layer_norm(path + ".output_layer_norm", hidden, layers_.add(hidden, y, x));
    return assembler_.exit(x);
  }

  /// Called by keyword. The dropout of the scores is part of the Attention operator.
  Value run_attention(const std::string& path, Value x) {
    const std::int64_t hidden = shape_.hidden;
    assembler_.enter(path, "MultiHeadSelfAttention");
    const Value q = layers_.linear(path + ".q_lin", hidden, hidden, x);
    const Value k = layers_.linear(path + ".k_lin", hidden, hidden, x);
    const Value v = layers_.linear(path + ".v_lin", hidden, hidden, x);
    const Value y = assembler_.attend({.heads = shape_.heads,
                                       .kv_heads = shape_.heads,
                                       .head_dim = shape_.head_dim,
                                       .value_dim = shape_.head_dim,
                                       .causal = false,
                                       .fp32_softmax = false},
                                      {q, k, v});
    assembler_.enter(path + ".dropout", "Dropout", {y});
    assembler_.exit(y);
    return assembler_.exit(layers_.linear(path + ".out_lin", hidden, hidden, y));
  }

  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, "FFN", {x});
    x = layers_.linear(path + ".lin1", shape_.hidden, shape_.ffn, x);
    x = layers_.activation(path + ".activation", config_.activation_class, shape_.ffn, x);
    x = layers_.linear(path + ".lin2", shape_.ffn, shape_.hidden, x);
    return assembler_.exit(layers_.dropout(path + ".dropout", shape_.hidden, x));
  }

  Value run_head(Value x) {
    const std::int64_t hidden = shape_.hidden;
    x = layers_.linear("vocab_transform", hidden, hidden, x);
    x = layers_.activation("activation", config_.activation_class, hidden, x);
    x = layers_.layer_norm("vocab_layer_norm", hidden, x);
    const std::string path = "vocab_projector";
    const std::string weight =
        config_.tied ? in_encoder("embeddings.word_embeddings.weight") : path + ".weight";
    return layers_.linear(path, hidden, shape_.vocab, x, "Linear", weight);
  }

  DistilBertConfig config_;
  std::string encoder_;  ///< path of the encoder; "" if it is the root
};

}  // namespace

Model build_distilbert(Config& config, const std::string& /*model_type*/) {
  const DistilBertConfig distilbert = read_distilbert_config(config);
  Model model = DistilBertLayout(distilbert).build();
  model.tied_embeddings = distilbert.has_head && distilbert.tied;
  return model;
}

}  // namespace zerosim::internal
