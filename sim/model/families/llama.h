/// \file
/// What the Llama family and the mixtures of experts built on it share: configuration, and a layout
/// whose feed-forward part can be another.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/model/families/config.h"
#include "sim/model/families/layers.h"
#include "sim/model/model.h"

namespace zerosim::internal {

/// What a family's configuration class fills in for an absent key (transformers'
/// configuration_<family>.py), and what its modules look like.
struct LlamaFamily {
  const char* model_type = "";
  const char* prefix = "";  ///< of class names: "LlamaAttention"
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  std::int64_t kv_heads = 0;          ///< 0: as many as heads
  std::int64_t head_dim = 0;          ///< 0: hidden / heads
  bool reads_attention_bias = false;  ///< key attention_bias gives q, k, v and o a bias
  bool reads_mlp_bias = false;
  bool always_biased_qkv = false;  ///< Qwen2
  bool query_key_norms = false;    ///< Qwen3
};

struct LlamaConfig {
  const LlamaFamily* family = nullptr;
  ModelShape shape;
  std::string activation_class;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool tied = false;
  std::string mlp_class;              ///< "LlamaMLP"
  std::vector<std::int64_t> windows;  ///< per layer; 0: full attention
};

[[nodiscard]] LlamaConfig read_llama_config(Config& config, const LlamaFamily& family);

/// A gated MLP: down(act_fn(gate(x)) * up(x)). Names of its products differ by family.
struct GatedMlp {
  std::string class_name;
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string activation_class;
  std::int64_t hidden = 0, width = 0;
  bool bias = false;
  bool down_before_up = false;  ///< order of registration; Mixtral's w1, w2, w3
};
void register_gated_mlp(Layers& layers, const std::string& path, const GatedMlp& mlp);
/// What the open module, which is the MLP, runs.
[[nodiscard]] Value run_gated_mlp(Layers& layers, const std::string& path, const GatedMlp& mlp,
                                  Value x);

/// Lays out a model of the Llama family.
class LlamaLayout : public Layout {
 public:
  explicit LlamaLayout(LlamaConfig config);

 protected:
  // The parts of a layer that a subclass may have otherwise.
  virtual void register_attention(const std::string& path);
  [[nodiscard]] virtual Value run_attention(const std::string& path, std::int64_t window, Value x);
  virtual void register_feed_forward(const std::string& layer_path, std::int64_t layer);
  [[nodiscard]] virtual Value run_feed_forward(const std::string& layer_path, std::int64_t layer,
                                               Value x);

  /// Elements of a head that are rotated.
  [[nodiscard]] virtual std::int64_t rotated_dim() const { return shape_.head_dim; }

  [[nodiscard]] std::string class_name(const std::string& suffix) const {
    return config_.family->prefix + suffix;
  }
  [[nodiscard]] Value run_norm(const std::string& path, std::int64_t width, Value x) {
    return layers_.rms_norm(path, class_name("RMSNorm"), width, x);
  }

  LlamaConfig config_;

 private:
  void register_parameters() override;
  void register_layer(std::int64_t layer);
  void run() override;
  [[nodiscard]] Value run_layer(std::int64_t layer, Value x);
  [[nodiscard]] std::int64_t query_width() const { return shape_.heads * shape_.head_dim; }
  [[nodiscard]] std::int64_t key_width() const { return shape_.kv_heads * shape_.head_dim; }
  [[nodiscard]] GatedMlp dense_mlp() const;
};

}  // namespace zerosim::internal
