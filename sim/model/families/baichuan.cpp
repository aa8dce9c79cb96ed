// Baichuan 1 and 2 of 7B and 13B: modeling_baichuan.py of each repository on the hub, which differ.

#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/layers.h"
#include "sim/model/families/llama.h"

namespace zerosim::internal {
namespace {

constexpr std::int64_t kVocabulary1 = 64000;   ///< of Baichuan 1
constexpr std::int64_t kVocabulary2 = 125696;  ///< of Baichuan 2
constexpr std::int64_t kHidden7B = 4096;

struct BaichuanConfig {
  ModelShape shape;
  std::string activation_class;
  bool rotary = false;      ///< the code of 7B; that of 13B has ALiBi
  bool second = false;      ///< Baichuan 2, whose head normalises its weight
  bool first_name = false;  ///< Baichuan-7B called its classes BaiChuanForCausalLM and Model
  bool tied = false;
};

bool states_architecture(Config& config, const std::string& name) {
  if (!config.has("architectures")) return false;
  for (const std::string& architecture : config.object().strings("architectures")) {
    if (architecture == name) return true;
  }
  return false;
}

/// Which of the four codes a config belongs to: no key says so.
void read_version(Config& config, BaichuanConfig& result) {
  result.first_name = states_architecture(config, "BaiChuanForCausalLM");
  result.rotary = result.first_name || config.has("max_position_embeddings") ||
                  result.shape.hidden == kHidden7B;
  result.second = result.shape.vocab == kVocabulary2 || config.has("z_loss_weight");
  config.assume(
      format("{}: {} (rotary if max_position_embeddings is stated, hidden_size is {} or "
             "the architecture is BaiChuanForCausalLM)",
             result.rotary ? "the code of Baichuan 7B, rotary positions"
                           : "the code of Baichuan 13B, ALiBi",
             result.rotary ? "a key of it is there" : "no key of 7B is there", kHidden7B));
  config.assume(format("{} (Baichuan 2 if vocab_size is {} or z_loss_weight is stated)",
                       result.second ? "Baichuan 2, whose head is a NormHead" : "Baichuan 1",
                       kVocabulary2));
}

BaichuanConfig read_baichuan_config(Config& config) {
  BaichuanConfig result;
  ModelShape& shape = result.shape;
  shape.hidden = config.hidden();
  shape.layers = config.layers();
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  shape.heads = config.heads();
  shape.kv_heads = shape.heads;
  shape.head_dim = config.divided_head_dim(shape.hidden, shape.heads);
  shape.vocab = config.vocab(config.has("z_loss_weight") ? kVocabulary2 : kVocabulary1);
  read_version(config, result);
  shape.max_positions = config.max_positions({"max_position_embeddings", "model_max_length"}, 4096);
  result.activation_class = config.activation_class("hidden_act", "silu");
  result.tied = config.flag_or("tie_word_embeddings", false);
  if (result.second) {
    config.assume(
        "NormHead costs what a Linear does: the copy of its weight that it normalises in each "
        "forward pass (vocab_size x hidden_size) is not counted");
  }
  if (!result.rotary) {
    config.assume("the mask of ALiBi (heads x sequence x sequence) is not counted");
    if (!result.second) {
      config.assume(
          "Baichuan 1 of 13B has no fused attention: it stores its scores with flash attention "
          "too");
    }
  }
  return result;
}

/// Lays out BaichuanForCausalLM.
class BaichuanLayout : public Layout {
 public:
  explicit BaichuanLayout(BaichuanConfig config)
      : Layout(config.shape), config_(std::move(config)) {}

 private:
  void register_parameters() override {
    const std::int64_t hidden = shape_.hidden;
    layers_.register_embedding("model.embed_tokens", shape_.vocab, hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("model.layers.{}", layer);
      layers_.register_linear(path + ".self_attn.W_pack", hidden, 3 * hidden, false);
      layers_.register_linear(path + ".self_attn.o_proj", hidden, hidden, false);
      register_gated_mlp(layers_, path + ".mlp", mlp());
      layers_.register_norm(path + ".input_layernorm", hidden);
      layers_.register_norm(path + ".post_attention_layernorm", hidden);
    }
    layers_.register_norm("model.norm", hidden);
    if (!config_.tied) layers_.register_linear("lm_head", hidden, shape_.vocab, false);
  }

  void run() override {
    const bool first = config_.first_name;
    assembler_.enter("", first ? "BaiChuanForCausalLM" : "BaichuanForCausalLM");
    assembler_.enter("model", first ? "Model" : "BaichuanModel");
    Value x = layers_.embedding("model.embed_tokens", shape_.vocab, shape_.hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) x = run_layer(layer, x);
    x = run_norm("model.norm", x);
    assembler_.exit(x);
    x = layers_.linear("lm_head", shape_.hidden, shape_.vocab, x,
                       config_.second ? "NormHead" : "Linear",
                       config_.tied ? "model.embed_tokens.weight" : "");
    assembler_.exit(layers_.loss(shape_.vocab, x));
  }

  Value run_norm(const std::string& path, Value x) {
    return layers_.rms_norm(path, "RMSNorm", shape_.hidden, x);
  }

  Value run_layer(std::int64_t layer, Value x) {
    const std::string path = format("model.layers.{}", layer);
    assembler_.enter(path, config_.rotary ? "DecoderLayer" : "BaichuanLayer", {x},
                     static_cast<int>(layer));
    Value y = run_norm(path + ".input_layernorm", x);
    y = run_attention(path + ".self_attn", y);
    x = layers_.add(shape_.hidden, x, y);
    y = run_norm(path + ".post_attention_layernorm", x);
    assembler_.enter(path + ".mlp", mlp().class_name, {y});
    y = assembler_.exit(run_gated_mlp(layers_, path + ".mlp", mlp(), y));
    return assembler_.exit(layers_.add(shape_.hidden, x, y));
  }

  Value run_attention(const std::string& path, Value x) {
    const std::int64_t hidden = shape_.hidden;
    // called by keyword
    assembler_.enter(path, config_.rotary ? "Attention" : "BaichuanAttention");
    const Value qkv = layers_.linear(path + ".W_pack", hidden, 3 * hidden, x);
    Value qk = qkv;
    if (config_.rotary) {
      layers_.call_without_result(path + ".rotary_emb", "RotaryEmbedding");
      qk = layers_.rotary(2 * hidden, qkv, qkv);
    }
    const Value y = assembler_.attend(attention_shape(), {qk, qkv});
    return assembler_.exit(layers_.linear(path + ".o_proj", hidden, hidden, y));
  }

  /// 13B adds its mask of ALiBi to the scores, so a fused kernel computes those above the diagonal
  /// too; Baichuan 1 of 13B has no fused form, and no softmax in fp32.
  [[nodiscard]] AttentionShape attention_shape() const {
    return {.heads = shape_.heads,
            .kv_heads = shape_.heads,
            .head_dim = shape_.head_dim,
            .value_dim = shape_.head_dim,
            .causal = config_.rotary,
            .fused = config_.rotary || config_.second,
            .fp32_softmax = config_.rotary};
  }

  [[nodiscard]] GatedMlp mlp() const {
    return {.class_name = "MLP",
            .activation_class = config_.activation_class,
            .hidden = shape_.hidden,
            .width = shape_.ffn,
            .down_before_up = true};
  }

  BaichuanConfig config_;
};

}  // namespace

Model build_baichuan(Config& config, const std::string& /*model_type*/) {
  const BaichuanConfig baichuan = read_baichuan_config(config);
  config.note_architecture(baichuan.first_name ? "BaiChuanForCausalLM" : "BaichuanForCausalLM");
  return BaichuanLayout(baichuan).build();
}

}  // namespace zerosim::internal
