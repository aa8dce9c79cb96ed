// T5 (v1.1 and Flan too) and mT5: modeling_t5.py, modeling_mt5.py of transformers.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

/// Defaults of configuration_t5.py and configuration_mt5.py.
struct T5Family {
  const char* prefix;  ///< of class names: "T5Attention"
  std::int64_t vocab_size;
  const char* feed_forward;
  bool tied;
};

constexpr T5Family kT5 = {"T5", 32128, "relu", true};
constexpr T5Family kMt5 = {"MT5", 250112, "gated-gelu", false};

struct T5Config {
  const T5Family* family = nullptr;
  ModelShape shape;
  std::int64_t encoder_layers = 0;
  std::int64_t decoder_layers = 0;
  std::int64_t buckets = 0;  ///< of relative positions
  std::string activation_class;
  bool gated = false;
  bool tied = true;
};

/// "relu" or "gated-silu"; "gated-gelu" means gelu_new, for the sake of old checkpoints.
void read_feed_forward(Config& config, T5Config& result) {
  const std::string key = "feed_forward_proj";
  const std::string stated = config.word_or(key, result.family->feed_forward);
  const std::string prefix = "gated-";
  result.gated = stated.substr(0, prefix.size()) == prefix;
  std::string activation = result.gated ? stated.substr(prefix.size()) : stated;
  if (result.gated && activation == "gelu") activation = "gelu_new";
  result.activation_class = config.activation_class_of(key, activation);
  if (activation == "gelu_new")
    config.assume("gelu_new keeps its input alone, as one fused kernel would");
}

T5Config read_t5_config(Config& config, const T5Family& family) {
  T5Config result;
  result.family = &family;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden({"d_model", "hidden_size"});
  result.encoder_layers = config.layers({"num_layers", "num_hidden_layers"});
  result.decoder_layers =
      config.size_or({"num_decoder_layers"}, "the number of layers of the decoder",
                     result.encoder_layers, "as many as the encoder's");
  if (result.decoder_layers > kLargestLayerCount) {
    config.fail("num_decoder_layers", format("found {}, expected 1 to {}: the number of layers of "
                                             "the decoder",
                                             result.decoder_layers, kLargestLayerCount));
  }
  shape.layers = result.encoder_layers + result.decoder_layers;
  shape.heads = config.heads({"num_heads", "num_attention_heads"});
  shape.kv_heads = shape.heads;
  shape.head_dim = config.size_or({"d_kv"}, "the width of an attention head", 64);
  if (shape.head_dim > kLargestSize / shape.heads) {
    config.fail("d_kv", format("{} x {} heads is wider than {}", shape.head_dim, shape.heads,
                               kLargestSize));
  }
  shape.ffn = config.required_size({"d_ff"}, "the width of the feed-forward part");
  shape.vocab = config.vocab(family.vocab_size);
  result.buckets = config.size_or({"relative_attention_num_buckets"},
                                  "the number of buckets of relative positions", 32);
  read_feed_forward(config, result);
  result.tied = config.flag_or("tie_word_embeddings", family.tied);
  config.assume("the encoder sees as many tokens as the decoder: micro batch x sequence each");
  config.assume(std::string(family.prefix) +
                "Attention has no fused form: it stores its scores with flash attention too");
  config.assume("no apex: its fused norm would replace " + std::string(family.prefix) +
                "LayerNorm");
  return result;
}

/// Lays out T5ForConditionalGeneration.
class T5Layout : public Layout {
 public:
  explicit T5Layout(T5Config config)
      : Layout(config.shape), config_(std::move(config)), width_(shape_.heads * shape_.head_dim) {}

 private:
  [[nodiscard]] std::string class_name(const std::string& suffix) const {
    return config_.family->prefix + suffix;
  }

  // --- parameters

  void register_parameters() override {
    layers_.register_embedding("shared", shape_.vocab, shape_.hidden);
    register_stack("encoder", config_.encoder_layers, false);
    register_stack("decoder", config_.decoder_layers, true);
    if (!config_.tied) layers_.register_linear("lm_head", shape_.hidden, shape_.vocab, false);
  }

  void register_stack(const std::string& stack, std::int64_t blocks, bool decoder) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::string layer = format("{}.block.{}.layer.", stack, block);
      register_attention(layer + "0", "SelfAttention", block == 0);
      if (decoder) register_attention(layer + "1", "EncDecAttention", false);
      register_feed_forward(layer + (decoder ? "2" : "1"));
    }
    layers_.register_norm(stack + ".final_layer_norm", shape_.hidden);
  }

  void register_attention(const std::string& layer, const std::string& name, bool position_bias) {
    const std::string path = layer + "." + name;
    layers_.register_linear(path + ".q", shape_.hidden, width_, false);
    layers_.register_linear(path + ".k", shape_.hidden, width_, false);
    layers_.register_linear(path + ".v", shape_.hidden, width_, false);
    layers_.register_linear(path + ".o", width_, shape_.hidden, false);
    if (position_bias) {
      layers_.register_embedding(path + ".relative_attention_bias", config_.buckets, shape_.heads);
    }
    layers_.register_norm(layer + ".layer_norm", shape_.hidden);
  }

  void register_feed_forward(const std::string& layer) {
    const std::string path = layer + ".DenseReluDense";
    if (config_.gated) {
      layers_.register_linear(path + ".wi_0", shape_.hidden, shape_.ffn, false);
      layers_.register_linear(path + ".wi_1", shape_.hidden, shape_.ffn, false);
    } else {
      layers_.register_linear(path + ".wi", shape_.hidden, shape_.ffn, false);
    }
    layers_.register_linear(path + ".wo", shape_.ffn, shape_.hidden, false);
    layers_.register_norm(layer + ".layer_norm", shape_.hidden);
  }

  // --- execution

  /// Both stacks are called by keyword. A tied head has its input divided by sqrt(d_model).
  void run() override {
    assembler_.enter("", class_name("ForConditionalGeneration"));
    const Value encoded = run_stack("encoder", kNoValue, config_.encoder_layers, 0);
    Value x = run_stack("decoder", encoded, config_.decoder_layers, config_.encoder_layers);
    if (config_.tied) x = layers_.scale(shape_.hidden, x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "shared.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// The embedding is one module, which both stacks call. `encoded`: what a decoder looks at.
  Value run_stack(const std::string& stack, Value encoded, std::int64_t blocks,
                  std::int64_t first_block) {
    assembler_.enter(stack, class_name("Stack"));
    Value x = layers_.embedding("shared", shape_.vocab, shape_.hidden);
    x = layers_.dropout(stack + ".dropout", shape_.hidden, x);
    position_bias_ = kNoValue;
    for (std::int64_t block = 0; block < blocks; ++block) {
      x = run_block(format("{}.block.{}", stack, block), first_block + block, x, encoded);
    }
    x = run_norm(stack + ".final_layer_norm", x);
    return assembler_.exit(layers_.dropout(stack + ".dropout", shape_.hidden, x));
  }

  /// What the encoder returned and the position bias are given by keyword.
  Value run_block(const std::string& path, std::int64_t number, Value x, Value encoded) {
    const bool decoder = encoded != kNoValue;
    assembler_.enter(path, class_name("Block"), {x}, static_cast<int>(number));
    x = run_attention_layer(path + ".layer.0", x, kNoValue, decoder);
    if (decoder) x = run_attention_layer(path + ".layer.1", x, encoded, false);
    return assembler_.exit(run_feed_forward_layer(path + (decoder ? ".layer.2" : ".layer.1"), x));
  }

  /// `encoded`: where keys and values come from, if not from x.
  Value run_attention_layer(const std::string& path, Value x, Value encoded, bool causal) {
    const bool cross = encoded != kNoValue;
    assembler_.enter(path, class_name(cross ? "LayerCrossAttention" : "LayerSelfAttention"), {x});
    Value y = run_norm(path + ".layer_norm", x);
    y = run_attention(path + (cross ? ".EncDecAttention" : ".SelfAttention"), y, encoded, causal);
    y = layers_.dropout(path + ".dropout", shape_.hidden, y);
    return assembler_.exit(layers_.add(shape_.hidden, x, y));
  }

  Value run_attention(const std::string& path, Value x, Value encoded, bool causal) {
    const bool cross = encoded != kNoValue;
    const Value memory = cross ? encoded : x;
    assembler_.enter(path, class_name("Attention"), {x});
    const Value q = layers_.linear(path + ".q", shape_.hidden, width_, x);
    const Value k = layers_.linear(path + ".k", shape_.hidden, width_, memory);
    const Value v = layers_.linear(path + ".v", shape_.hidden, width_, memory);
    if (assembler_.is_registered(path + ".relative_attention_bias.weight")) {
      position_bias_ = run_position_bias(path + ".relative_attention_bias");
    }
    const AttentionShape attention{.heads = shape_.heads,
                                   .kv_heads = shape_.heads,
                                   .head_dim = shape_.head_dim,
                                   .value_dim = shape_.head_dim,
                                   .causal = causal,
                                   .fused = false};
    const Value y = assembler_.attend(attention, {q, k, v, cross ? kNoValue : position_bias_});
    return assembler_.exit(layers_.linear(path + ".o", width_, shape_.hidden, y));
  }

  Value run_position_bias(const std::string& path) {
    assembler_.enter(path, "Embedding");
    assembler_.own(path + ".weight");
    return assembler_.exit(assembler_.compute(OperatorKind::PositionBias, config_.buckets,
                                              shape_.heads, {}, {path + ".weight"}));
  }

  Value run_feed_forward_layer(const std::string& path, Value x) {
    assembler_.enter(path, class_name("LayerFF"), {x});
    Value y = run_norm(path + ".layer_norm", x);
    y = run_feed_forward(path + ".DenseReluDense", y);
    y = layers_.dropout(path + ".dropout", shape_.hidden, y);
    return assembler_.exit(layers_.add(shape_.hidden, x, y));
  }

  /// wo(act(wi(x))), or wo(act(wi_0(x)) * wi_1(x))
  Value run_feed_forward(const std::string& path, Value x) {
    assembler_.enter(path, class_name(config_.gated ? "DenseGatedActDense" : "DenseActDense"), {x});
    Value y =
        layers_.linear(path + (config_.gated ? ".wi_0" : ".wi"), shape_.hidden, shape_.ffn, x);
    y = layers_.activation(path + ".act", config_.activation_class, shape_.ffn, y);
    if (config_.gated) {
      const Value linear = layers_.linear(path + ".wi_1", shape_.hidden, shape_.ffn, x);
      y = layers_.multiply(shape_.ffn, y, linear);
    }
    y = layers_.dropout(path + ".dropout", shape_.ffn, y);
    return assembler_.exit(layers_.linear(path + ".wo", shape_.ffn, shape_.hidden, y));
  }

  Value run_norm(const std::string& path, Value x) {
    return layers_.rms_norm(path, class_name("LayerNorm"), shape_.hidden, x);
  }

  T5Config config_;
  std::int64_t width_;              ///< of q, k and v
  Value position_bias_ = kNoValue;  ///< of the stack that is being run
};

}  // namespace

Model build_t5(Config& config, const std::string& model_type) {
  const T5Family& family = model_type == "mt5" ? kMt5 : kT5;
  const T5Config t5 = read_t5_config(config, family);
  config.note_architecture(std::string(family.prefix) + "ForConditionalGeneration");
  return T5Layout(t5).build();
}

}  // namespace zerosim::internal
