// Qwen2-MoE and Qwen3-MoE: modeling_qwen2_moe.py and modeling_qwen3_moe.py of transformers. Qwen's
// layer; which layers have experts in place of the MLP, decoder_sparse_step and mlp_only_layers
// say.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "sim/model/families/families.h"
#include "sim/model/families/moe.h"

namespace zerosim::internal {
namespace {

constexpr LlamaFamily kQwen2Moe = {.model_type = "qwen2_moe",
                                   .prefix = "Qwen2Moe",
                                   .vocab_size = 151936,
                                   .max_positions = 32768,
                                   .kv_heads = 16,
                                   .always_biased_qkv = true};
constexpr LlamaFamily kQwen3Moe = {.model_type = "qwen3_moe",
                                   .prefix = "Qwen3Moe",
                                   .vocab_size = 151936,
                                   .max_positions = 32768,
                                   .kv_heads = 4,
                                   .reads_attention_bias = true,
                                   .query_key_norms = true};

/// By layer: whether it has experts.
std::vector<bool> sparse_layers(Config& config, std::int64_t layers) {
  const std::int64_t step =
      config.size_or({"decoder_sparse_step"}, "the distance between layers with experts", 1);
  std::vector<bool> sparse;
  for (std::int64_t layer = 0; layer < layers; ++layer) sparse.push_back((layer + 1) % step == 0);
  if (!config.has("mlp_only_layers")) return sparse;
  for (const std::int64_t layer : config.object().integers("mlp_only_layers")) {
    if (layer < 0 || layer >= layers) {
      config.fail("mlp_only_layers",
                  format("found {}, expected indices of {} layers", layer, layers));
    }
    sparse[static_cast<std::size_t>(layer)] = false;
  }
  return sparse;
}

class QwenMoeLayout : public LlamaLayout {
 public:
  QwenMoeLayout(LlamaConfig config, MoeConfig moe, std::vector<bool> sparse)
      : LlamaLayout(std::move(config)), moe_(std::move(moe)), sparse_(std::move(sparse)) {}

 private:
  [[nodiscard]] bool is_sparse(std::int64_t layer) const {
    return sparse_[static_cast<std::size_t>(layer)];
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
  std::vector<bool> sparse_;
};

}  // namespace

Model build_qwen_moe(Config& config, const std::string& model_type) {
  const bool second = model_type == kQwen2Moe.model_type;
  const LlamaFamily& family = second ? kQwen2Moe : kQwen3Moe;
  const LlamaConfig llama = read_llama_config(config, family);
  MoeConfig moe;
  moe.class_name = std::string(family.prefix) + "SparseMoeBlock";
  read_expert_counts(config, llama.shape.layers, "num_experts", second ? 60 : 128, second ? 4 : 8,
                     moe);
  moe.expert = {.class_name = llama.mlp_class,
                .activation_class = llama.activation_class,
                .hidden = llama.shape.hidden,
                .width = config.size_or({"moe_intermediate_size"}, "the width of an expert",
                                        second ? 1408 : 768)};
  if (second) {
    moe.shared_width =
        config.size_or({"shared_expert_intermediate_size"}, "the width of the shared expert", 5632);
    moe.shared_name = "shared_expert";
    moe.shared_gate = true;
  }
  config.note_architecture(std::string(family.prefix) + "ForCausalLM");
  std::vector<bool> sparse = sparse_layers(config, llama.shape.layers);
  return QwenMoeLayout(llama, moe, std::move(sparse)).build();
}

}  // namespace zerosim::internal
