// Mixtral: modeling_mixtral.py of transformers. Llama's layer with experts in place of its MLP.

#include <string>
#include <utility>

#include "sim/model/families/families.h"
#include "sim/model/families/moe.h"

namespace zerosim::internal {
namespace {

constexpr LlamaFamily kMixtral = {.model_type = "mixtral",
                                  .prefix = "Mixtral",
                                  .vocab_size = 32000,
                                  .max_positions = 131072,
                                  .kv_heads = 8};

class MixtralLayout : public LlamaLayout {
 public:
  MixtralLayout(LlamaConfig config, MoeConfig moe)
      : LlamaLayout(std::move(config)), moe_(std::move(moe)) {}

 private:
  void register_feed_forward(const std::string& layer_path, std::int64_t /*layer*/) override {
    register_moe(layers_, layer_path + ".block_sparse_moe", moe_);
  }
  Value run_feed_forward(const std::string& layer_path, std::int64_t /*layer*/, Value x) override {
    return run_moe(layers_, layer_path + ".block_sparse_moe", moe_, x);
  }

  MoeConfig moe_;
};

}  // namespace

Model build_mixtral(Config& config, const std::string& /*model_type*/) {
  const LlamaConfig llama = read_llama_config(config, kMixtral);
  MoeConfig moe;
  moe.class_name = "MixtralSparseMoeBlock";
  read_expert_counts(config, llama.shape.layers, "num_local_experts", 8, 2, moe);
  moe.expert = {.class_name = "MixtralBlockSparseTop2MLP",
                .gate = "w1",
                .up = "w3",
                .down = "w2",
                .activation_class = llama.activation_class,
                .hidden = llama.shape.hidden,
                .width = llama.shape.ffn,
                .down_before_up = true};
  config.note_architecture("MixtralForCausalLM");
  return MixtralLayout(llama, moe).build();
}

}  // namespace zerosim::internal
