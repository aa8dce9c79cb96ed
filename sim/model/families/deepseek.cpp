// DeepSeek-V2 and V3: modeling_deepseek_v2.py and modeling_deepseek_v3.py of transformers (and the
// models' own code on the hub). Multi-head latent attention (MLA): keys and values are expanded
// from one narrow vector a token; the first layers have a plain MLP, the others experts.
//
// Not modelled: the multi-token-prediction module; copies that put rotated and plain parts of q and
// k together.

#include <optional>
#include <string>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/moe.h"

namespace zerosim::internal {
namespace {

constexpr LlamaFamily kDeepSeekV2 = {.model_type = "deepseek_v2",
                                     .prefix = "DeepseekV2",
                                     .vocab_size = 32000,
                                     .max_positions = 2048,
                                     .reads_attention_bias = true};
constexpr LlamaFamily kDeepSeekV3 = {.model_type = "deepseek_v3",
                                     .prefix = "DeepseekV3",
                                     .vocab_size = 129280,
                                     .max_positions = 4096,
                                     .reads_attention_bias = true};

/// Widths of MLA.
struct LatentAttention {
  std::int64_t query_rank = 0;  ///< 0: q is one product
  std::int64_t key_value_rank = 0;
  std::int64_t plain_dim = 0;   ///< of a head of q and k, without position
  std::int64_t rotary_dim = 0;  ///< of a head of q, and of the one k that all heads share
  std::int64_t value_dim = 0;
};

LatentAttention read_latent_attention(Config& config) {
  LatentAttention latent;
  if (!config.is_null("q_lora_rank")) {
    latent.query_rank = config.size_or({"q_lora_rank"}, "the rank of the query's product", 1536);
  }
  latent.key_value_rank =
      config.size_or({"kv_lora_rank"}, "the width of the latent key and value", 512);
  latent.plain_dim =
      config.size_or({"qk_nope_head_dim"}, "the width of a head that has no position", 128);
  latent.rotary_dim =
      config.size_or({"qk_rope_head_dim"}, "the width of a head's rotated part", 64);
  latent.value_dim = config.size_or({"v_head_dim"}, "the width of a head's value", 128);
  return latent;
}

class DeepSeekLayout : public LlamaLayout {
 public:
  DeepSeekLayout(LlamaConfig config, MoeConfig moe, LatentAttention latent,
                 std::int64_t first_sparse, std::int64_t sparse_step)
      : LlamaLayout(std::move(config)),
        moe_(std::move(moe)),
        latent_(latent),
        first_sparse_(first_sparse),
        sparse_step_(sparse_step) {}

 private:
  [[nodiscard]] std::int64_t query_head() const { return latent_.plain_dim + latent_.rotary_dim; }
  [[nodiscard]] std::int64_t rotated_dim() const override { return latent_.rotary_dim; }
  [[nodiscard]] bool is_sparse(std::int64_t layer) const {
    return layer >= first_sparse_ && layer % sparse_step_ == 0;
  }

  void register_attention(const std::string& path) override {
    const bool bias = config_.qkv_bias;
    const std::int64_t queries = shape_.heads * query_head();
    if (latent_.query_rank == 0) {
      layers_.register_linear(path + ".q_proj", shape_.hidden, queries, false);
    } else {
      layers_.register_linear(path + ".q_a_proj", shape_.hidden, latent_.query_rank, bias);
      layers_.register_norm(path + ".q_a_layernorm", latent_.query_rank);
      layers_.register_linear(path + ".q_b_proj", latent_.query_rank, queries, false);
    }
    layers_.register_linear(path + ".kv_a_proj_with_mqa", shape_.hidden,
                            latent_.key_value_rank + latent_.rotary_dim, bias);
    layers_.register_norm(path + ".kv_a_layernorm", latent_.key_value_rank);
    layers_.register_linear(path + ".kv_b_proj", latent_.key_value_rank, key_value_width(), false);
    layers_.register_linear(path + ".o_proj", shape_.heads * latent_.value_dim, shape_.hidden,
                            bias);
  }

  [[nodiscard]] std::int64_t key_value_width() const {
    return shape_.heads * (latent_.plain_dim + latent_.value_dim);
  }

  Value run_attention(const std::string& path, std::int64_t window, Value x) override {
    assembler_.enter(path, class_name("Attention"));  // called by keyword
    const Value q = run_queries(path, x);
    const Value latent = layers_.linear(path + ".kv_a_proj_with_mqa", shape_.hidden,
                                        latent_.key_value_rank + latent_.rotary_dim, x);
    Value kv = run_norm(path + ".kv_a_layernorm", latent_.key_value_rank, latent);
    kv = layers_.linear(path + ".kv_b_proj", latent_.key_value_rank, key_value_width(), kv);
    const Value rotated = layers_.rotary((shape_.heads + 1) * latent_.rotary_dim, q, latent);
    const AttentionShape attention{.heads = shape_.heads,
                                   .kv_heads = shape_.heads,
                                   .head_dim = query_head(),
                                   .value_dim = latent_.value_dim,
                                   .window = window};
    const Value y = assembler_.attend(attention, {rotated, q, kv});
    return assembler_.exit(
        layers_.linear(path + ".o_proj", shape_.heads * latent_.value_dim, shape_.hidden, y));
  }

  Value run_queries(const std::string& path, Value x) {
    const std::int64_t queries = shape_.heads * query_head();
    if (latent_.query_rank == 0) {
      return layers_.linear(path + ".q_proj", shape_.hidden, queries, x);
    }
    Value q = layers_.linear(path + ".q_a_proj", shape_.hidden, latent_.query_rank, x);
    q = run_norm(path + ".q_a_layernorm", latent_.query_rank, q);
    return layers_.linear(path + ".q_b_proj", latent_.query_rank, queries, q);
  }

  void register_feed_forward(const std::string& layer_path, std::int64_t layer) override {
    if (!is_sparse(layer)) return LlamaLayout::register_feed_forward(layer_path, layer);
    register_moe(layers_, layer_path + ".mlp", moe_);
  }
  Value run_feed_forward(const std::string& layer_path, std::int64_t layer, Value x) override {
    if (!is_sparse(layer)) return LlamaLayout::run_feed_forward(layer_path, layer, x);
    return run_moe(layers_, layer_path + ".mlp", moe_, x);
  }

  MoeConfig moe_;
  LatentAttention latent_;
  std::int64_t first_sparse_;
  std::int64_t sparse_step_;
};

MoeConfig read_moe(Config& config, const LlamaConfig& llama, bool third) {
  MoeConfig moe;
  moe.class_name = std::string(llama.family->prefix) + "MoE";
  read_expert_counts(config, llama.shape.layers, "n_routed_experts", third ? 256 : 64,
                     third ? 8 : 6, moe);
  moe.expert = {.class_name = llama.mlp_class,
                .activation_class = llama.activation_class,
                .hidden = llama.shape.hidden,
                .width = config.size_or({"moe_intermediate_size"}, "the width of an expert",
                                        third ? 2048 : 1407)};
  moe.router_class = third ? "DeepseekV3TopkRouter" : "MoEGate";
  moe.router_bias = third;
  moe.router_after_experts = true;
  moe.calls_idle_experts = true;
  if (!config.is_null("n_shared_experts")) {
    const std::int64_t shared = config.size_or(
        {"n_shared_experts"}, "the number of experts that see every token", third ? 1 : 2);
    moe.shared_width = shared * moe.expert.width;
    moe.shared_name = "shared_experts";
  }
  return moe;
}

}  // namespace

Model build_deepseek(Config& config, const std::string& model_type) {
  const bool third = model_type == kDeepSeekV3.model_type;
  LlamaConfig llama = read_llama_config(config, third ? kDeepSeekV3 : kDeepSeekV2);
  const LatentAttention latent = read_latent_attention(config);
  llama.shape.head_dim = latent.plain_dim + latent.rotary_dim;
  const MoeConfig moe = read_moe(config, llama, third);
  std::int64_t first_sparse = config.count_or(
      "first_k_dense_replace", "the number of layers with a plain MLP before those with experts",
      third ? 3 : 0);
  // Without routed experts every layer has a plain MLP.
  if (config.is_null("n_routed_experts")) first_sparse = llama.shape.layers;
  const std::int64_t step =
      config.size_or({"moe_layer_freq"}, "the distance between layers with experts", 1);
  if (moe.router_bias) {
    config.assume(
        "e_score_correction_bias is a parameter, as in the model's own code, and gets no gradient; "
        "transformers registers a buffer");
  }
  config.note_architecture(std::string(llama.family->prefix) + "ForCausalLM");
  return DeepSeekLayout(llama, moe, latent, first_sparse, step).build();
}

}  // namespace zerosim::internal
