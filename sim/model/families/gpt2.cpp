// GPT-2 and GPT-BigCode: modeling_gpt2.py, modeling_gpt_bigcode.py of transformers. GPT-2's Conv1D
// holds a weight {in, out}; BigCode has nn.Linear, and by default one head of keys and values.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"

namespace zerosim::internal {
namespace {

struct Gpt2Config {
  ModelShape shape;
  bool big_code = false;
  std::string activation_class;
  bool tied = true;
};

Gpt2Config read_gpt2_config(Config& config, bool big_code) {
  const Config::Names heads_names = {"n_head", "num_attention_heads"};
  Gpt2Config result;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden({"n_embd", "hidden_size"});
  shape.layers = config.layers({"n_layer", "num_hidden_layers"});
  shape.heads = config.heads(heads_names);
  result.big_code = big_code;
  shape.kv_heads = big_code && config.flag_or("multi_query", true) ? 1 : shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads, heads_names);
  shape.ffn = config.size_or({"n_inner"}, "the width of the MLP", 4 * shape.hidden, "4 x n_embd");
  shape.vocab = config.vocab(50257);
  shape.max_positions = config.max_positions({"n_positions", "max_position_embeddings"}, 1024);
  result.activation_class =
      config.activation_class("activation_function", big_code ? "gelu_pytorch_tanh" : "gelu_new");
  result.tied = config.flag_or("tie_word_embeddings", true);
  if (config.rare_flag("add_cross_attention")) {
    config.fail("add_cross_attention",
                "found true, expected false: cross attention is not supported");
  }
  config.assume("attn_dropout is called, as in eager attention; fused attention does not call it");
  config.assume(
      format("{} keeps its input alone, as one fused kernel would", result.activation_class));
  return result;
}

/// Lays out GPT2LMHeadModel.
class Gpt2Layout : public Layout {
 public:
  explicit Gpt2Layout(Gpt2Config config) : Layout(config.shape), config_(std::move(config)) {}

 private:
  [[nodiscard]] std::string named(const std::string& part) const {
    return (config_.big_code ? "GPTBigCode" : "GPT2") + part;
  }
  /// Queries, and keys and values of each of their heads.
  [[nodiscard]] std::int64_t attention_width() const {
    return shape_.hidden + 2 * shape_.kv_heads * shape_.head_dim;
  }

  void register_conv1d(const std::string& path, std::int64_t inputs, std::int64_t outputs) {
    if (config_.big_code) return layers_.register_linear(path, inputs, outputs, true);
    layers_.register_parameter(path + ".weight", {inputs, outputs});
    layers_.register_parameter(path + ".bias", {outputs});
  }

  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_embedding("transformer.wte", shape_.vocab, hidden);
    layers_.register_embedding("transformer.wpe", shape_.max_positions, hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("transformer.h.{}", layer);
      layers_.register_layer_norm(path + ".ln_1", hidden);
      register_conv1d(path + ".attn.c_attn", hidden, attention_width());
      register_conv1d(path + ".attn.c_proj", hidden, hidden);
      layers_.register_layer_norm(path + ".ln_2", hidden);
      register_conv1d(path + ".mlp.c_fc", hidden, shape_.ffn);
      register_conv1d(path + ".mlp.c_proj", shape_.ffn, hidden);
    }
    layers_.register_layer_norm("transformer.ln_f", hidden);
    if (!config_.tied) layers_.register_linear("lm_head", hidden, shape_.vocab, false);
  }

  void run() override {
    assembler_.enter("", config_.big_code ? "GPTBigCodeForCausalLM" : "GPT2LMHeadModel");
    assembler_.enter("transformer", named("Model"));
    if (config_.big_code) register_causal_mask();
    const Value tokens = layers_.embedding("transformer.wte", shape_.vocab, shape_.hidden);
    const Value positions =
        layers_.embedding("transformer.wpe", shape_.max_positions, shape_.hidden);
    Value x = layers_.add(shape_.hidden, tokens, positions);
    x = layers_.dropout("transformer.drop", shape_.hidden, x);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = layers_.layer_norm("transformer.ln_f", shape_.hidden, x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x, "Linear",
                       config_.tied ? "transformer.wte.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  /// One byte an element.
  void register_causal_mask() {
    assembler_.register_buffer("bias", shape_.max_positions * shape_.max_positions, Dtype::U8);
  }

  Value run_conv1d(const std::string& path, std::int64_t inputs, std::int64_t outputs, Value x) {
    return layers_.linear(path, inputs, outputs, x, config_.big_code ? "Linear" : "Conv1D");
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("transformer.h.{}", layer);
    assembler_.enter(path, named("Block"), {x}, static_cast<int>(layer));
    Value y = layers_.layer_norm(path + ".ln_1", shape_.hidden, x);
    x = layers_.add(shape_.hidden, x, run_attention(path + ".attn", y));
    y = layers_.layer_norm(path + ".ln_2", shape_.hidden, x);
    return assembler_.exit(layers_.add(shape_.hidden, x, run_mlp(path + ".mlp", y)));
  }

  /// The dropout of the attention scores is part of the Attention operator, wherever its module is.
  Value run_attention(const std::string& path, Value x) {
    assembler_.enter(path, named("Attention"), {x});
    if (!config_.big_code) {
      register_causal_mask();
      assembler_.register_buffer("masked_bias", 1, Dtype::F32);
    }
    Value y = run_conv1d(path + ".c_attn", shape_.hidden, attention_width(), x);
    // Keys and values are views of it.
    if (config_.big_code) {
      assembler_.model().operators[static_cast<std::size_t>(y)].caches_result = true;
    }
    y = assembler_.attend({.heads = shape_.heads,
                           .kv_heads = shape_.kv_heads,
                           .head_dim = shape_.head_dim,
                           .value_dim = shape_.head_dim,
                           .fp32_softmax = config_.big_code,
                           .mask = ScoreMask::Selected,
                           .packing = QueryKeyValue::Split},
                          {y});
    assembler_.enter(path + ".attn_dropout", "Dropout", {y});
    assembler_.exit(y);
    y = run_conv1d(path + ".c_proj", shape_.hidden, shape_.hidden, y);
    return assembler_.exit(layers_.dropout(path + ".resid_dropout", shape_.hidden, y));
  }

  Value run_mlp(const std::string& path, Value x) {
    assembler_.enter(path, named("MLP"), {x});
    Value y = run_conv1d(path + ".c_fc", shape_.hidden, shape_.ffn, x);
    y = layers_.activation(path + ".act", config_.activation_class, shape_.ffn, y);
    y = run_conv1d(path + ".c_proj", shape_.ffn, shape_.hidden, y);
    return assembler_.exit(layers_.dropout(path + ".dropout", shape_.hidden, y));
  }

  Gpt2Config config_;
};

}  // namespace

Model build_gpt2(Config& config, const std::string& model_type) {
  const bool big_code = model_type == "gpt_bigcode";
  const Gpt2Config gpt2 = read_gpt2_config(config, big_code);
  config.note_architecture(big_code ? "GPTBigCodeForCausalLM" : "GPT2LMHeadModel");
  return Gpt2Layout(gpt2).build();
}

}  // namespace zerosim::internal
