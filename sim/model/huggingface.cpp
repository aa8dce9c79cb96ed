// Reads a Hugging Face config.json and lays out the modules of transformers' modeling_llama.py,
// modeling_mistral.py, modeling_qwen2.py, modeling_qwen3.py and modeling_gpt2.py. Order of
// execution and of registration of the Llama layer: data/deepspeed_golden, llama_small.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/model/assembler.h"
#include "sim/model/readers.h"

namespace zerosim::internal {
namespace {

constexpr std::int64_t kLargestLayerCount = 10'000;

/// What a family's configuration class fills in for an absent key (transformers'
/// configuration_<family>.py), and what its modules look like.
struct LlamaFamily {
  const char* model_type;
  const char* prefix;  ///< of class names: "LlamaAttention"
  std::int64_t vocab_size;
  std::int64_t max_positions;
  std::int64_t kv_heads;      ///< 0: as many as heads
  std::int64_t head_dim;      ///< 0: hidden / heads
  bool reads_attention_bias;  ///< key attention_bias gives q, k, v and o a bias
  bool reads_mlp_bias;
  bool always_biased_qkv;  ///< Qwen2
  bool query_key_norms;    ///< Qwen3
};

constexpr std::array<LlamaFamily, 4> kLlamaFamilies = {{
    {"llama", "Llama", 32000, 2048, 0, 0, true, true, false, false},
    {"mistral", "Mistral", 32000, 131072, 8, 0, false, false, false, false},
    {"qwen2", "Qwen2", 151936, 32768, 32, 0, false, false, true, false},
    {"qwen3", "Qwen3", 151936, 32768, 32, 128, true, false, false, true},
}};

/// Keys of `hidden_act` and the class that transformers' ACT2FN makes of them.
const std::map<std::string, std::string>& activation_classes() {
  static const std::map<std::string, std::string> kClasses = {
      {"gelu", "GELUActivation"},
      {"gelu_fast", "FastGELUActivation"},
      {"gelu_new", "NewGELUActivation"},
      {"gelu_pytorch_tanh", "PytorchGELUTanh"},
      {"mish", "MishActivation"},
      {"quick_gelu", "QuickGELUActivation"},
      {"relu", "ReLU"},
      {"relu2", "ReLUSquaredActivation"},
      {"relu6", "ReLU6"},
      {"sigmoid", "Sigmoid"},
      {"silu", "SiLU"},
      {"swish", "SiLU"},
      {"tanh", "Tanh"},
  };
  return kClasses;
}

std::vector<std::string> supported_model_types() {
  std::vector<std::string> types = {"gpt2"};
  for (const LlamaFamily& family : kLlamaFamilies) types.emplace_back(family.model_type);
  std::sort(types.begin(), types.end());
  return types;
}

/// A config.json: sizes with errors that say what a key means, and a record of each default.
class Config {
 public:
  explicit Config(const JsonDocument& document) : object_(document, document.root(), "") {}

  /// Names of one key: gpt2 has its own (n_embd) and takes the common ones (hidden_size) too.
  using Names = std::vector<std::string>;

  /// A size without which no model can be known.
  std::int64_t required_size(const Names& names, const std::string& meaning,
                             std::int64_t largest = kLargestSize) {
    const std::string* name = stated(names);
    if (name != nullptr) return size(*name, meaning, largest);
    object_.fail(names.front(), format("missing, expected {}{}", meaning,
                                       did_you_mean(names.front(), unclaimed_keys())));
  }

  std::int64_t size_or(const Names& names, const std::string& meaning, std::int64_t fallback,
                       const std::string& reason) {
    const std::string* name = stated(names);
    if (name != nullptr) return size(*name, meaning, kLargestSize);
    assume(format("{} = {}: not in the config, {}", names.front(), fallback, reason));
    return fallback;
  }

  bool flag_or(const std::string& name, bool fallback) {
    if (const std::optional<bool> value = object_.optional_boolean(name)) return *value;
    assume(format("{} = {}: not in the config, Hugging Face's default", name, fallback));
    return fallback;
  }

  /// A flag whose absence is the rule and needs no mention.
  bool rare_flag(const std::string& name) { return object_.optional_boolean(name).value_or(false); }

  /// Class of the activation that the key names.
  std::string activation_class(const std::string& name, const std::string& fallback) {
    std::optional<std::string> value = object_.optional_string(name);
    if (!value) {
      assume(format("{} = {}: not in the config, Hugging Face's default", name, fallback));
      value = fallback;
    }
    const auto found = activation_classes().find(*value);
    if (found != activation_classes().end()) return found->second;
    std::vector<std::string> known;
    for (const auto& entry : activation_classes()) known.push_back(entry.first);
    object_.fail(name, format("found \"{}\", expected one of {}{}", *value, join(known, ", "),
                              did_you_mean(*value, known)));
  }

  bool is_null(const std::string& name) {
    return object_.value().isMember(name) && object_.raw(name).isNull();
  }
  void assume(std::string sentence) { assumptions_.push_back(std::move(sentence)); }
  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    object_.fail(key, message);
  }
  JsonObject& object() { return object_; }
  [[nodiscard]] const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  /// The first of the names that has a value other than null, or none.
  const std::string* stated(const Names& names) {
    const auto found = std::find_if(names.begin(), names.end(), [this](const std::string& name) {
      return !object_.raw(name).isNull();
    });
    return found == names.end() ? nullptr : &*found;
  }

  std::int64_t size(const std::string& name, const std::string& meaning, std::int64_t largest) {
    const std::int64_t value = object_.integer(name);
    if (value >= 1 && value <= largest) return value;
    object_.fail(name, format("found {}, expected 1 to {}: {}", value, largest, meaning));
  }

  [[nodiscard]] std::vector<std::string> unclaimed_keys() const { return object_.unknown_keys(); }

  JsonObject object_;
  std::vector<std::string> assumptions_;
};

/// The model is always built with its head and loss.
void note_architecture(Config& config, const std::string& built) {
  if (config.object().raw("architectures").isNull()) return;
  for (const std::string& architecture : config.object().strings("architectures")) {
    if (architecture == built) return;
  }
  config.assume(
      format("built as {}, head and loss included: \"architectures\" says otherwise", built));
}

// --------------------------------------------------------------------------------------------
// Llama, Mistral, Qwen2, Qwen3

struct LlamaConfig {
  const LlamaFamily* family = nullptr;
  ModelShape shape;
  std::string activation_class;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool tied = false;
  std::vector<std::int64_t> windows;  ///< per layer; 0: full attention
};

void read_heads(Config& config, const LlamaFamily& family, ModelShape& shape) {
  shape.heads = config.required_size({"num_attention_heads"}, "the number of attention heads");
  if (family.kv_heads == 0 || config.is_null("num_key_value_heads")) {
    shape.kv_heads = config.size_or({"num_key_value_heads"}, "the number of key and value heads",
                                    shape.heads, "as many as attention heads");
  } else {
    shape.kv_heads = config.size_or({"num_key_value_heads"}, "the number of key and value heads",
                                    family.kv_heads, "Hugging Face's default");
  }
  if (shape.heads % shape.kv_heads != 0) {
    config.fail(
        "num_key_value_heads",
        format("{} does not divide num_attention_heads = {}, expected a divisor: each key and "
               "value head serves the same number of query heads",
               shape.kv_heads, shape.heads));
  }
}

void read_head_dim(Config& config, const LlamaFamily& family, ModelShape& shape) {
  const bool stated = !config.object().raw("head_dim").isNull();
  const bool divided = !stated && (family.head_dim == 0 || config.is_null("head_dim"));
  if (divided && shape.hidden % shape.heads != 0) {
    config.fail("num_attention_heads",
                format("{} does not divide hidden_size = {}, expected a divisor or a key head_dim",
                       shape.heads, shape.hidden));
  }
  shape.head_dim = shape.hidden / shape.heads;  // the definition, not an assumption
  if (!divided) {
    shape.head_dim = config.size_or({"head_dim"}, "the width of an attention head", family.head_dim,
                                    "Hugging Face's default");
  }
  if (shape.head_dim > kLargestSize / shape.heads) {
    config.fail("head_dim", format("{} x {} heads is wider than {}", shape.head_dim, shape.heads,
                                   kLargestSize));
  }
}

/// Which layers attend to a window only. `layer_types` (transformers 4.53 and later) wins; before
/// it Mistral used the window in all layers and Qwen from layer max_window_layers on, if
/// use_sliding_window.
std::vector<std::int64_t> read_windows(Config& config, const LlamaFamily& family,
                                       std::int64_t layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const bool mistral = std::string_view(family.model_type) == "mistral";
  const bool qwen = std::string_view(family.model_type).substr(0, 4) == "qwen";
  if (!mistral && !qwen) return windows;
  if (qwen && !config.rare_flag("use_sliding_window")) return windows;
  if (config.is_null("sliding_window")) return windows;
  const std::int64_t window = config.size_or({"sliding_window"}, "the attention window in tokens",
                                             4096, "Hugging Face's default");
  if (qwen && !config.object().raw("layer_types").isNull()) {
    const std::vector<std::string> types = config.object().strings("layer_types");
    if (types.size() != windows.size()) {
      config.fail("layer_types", format("found {} entries, expected one for each of "
                                        "num_hidden_layers = {} layers",
                                        types.size(), layers));
    }
    for (std::size_t layer = 0; layer < types.size(); ++layer) {
      if (types[layer] == "sliding_attention") windows[layer] = window;
    }
    return windows;
  }
  std::size_t first = 0;
  if (qwen) {
    std::int64_t full_layers = 28;  // configuration_qwen2.py, configuration_qwen3.py
    if (const auto value = config.object().optional_integer("max_window_layers")) {
      full_layers = *value;
    } else {
      config.assume("max_window_layers = 28: not in the config, Hugging Face's default");
    }
    if (full_layers < 0) {
      config.fail("max_window_layers", format("found {}, expected 0 or more: the number of layers "
                                              "with full attention",
                                              full_layers));
    }
    first = static_cast<std::size_t>(std::min(full_layers, layers));
  }
  std::fill(windows.begin() + static_cast<std::ptrdiff_t>(first), windows.end(), window);
  return windows;
}

LlamaConfig read_llama_config(Config& config, const LlamaFamily& family) {
  const std::string default_of = "Hugging Face's default";
  LlamaConfig result;
  result.family = &family;
  ModelShape& shape = result.shape;
  shape.hidden = config.required_size({"hidden_size"}, "the width of the residual stream");
  shape.layers = config.required_size({"num_hidden_layers"}, "the number of transformer layers",
                                      kLargestLayerCount);
  shape.ffn = config.required_size({"intermediate_size"}, "the width of the MLP");
  read_heads(config, family, shape);
  read_head_dim(config, family, shape);
  shape.vocab = config.size_or({"vocab_size"}, "the number of tokens in the vocabulary",
                               family.vocab_size, default_of);
  shape.max_positions = config.size_or({"max_position_embeddings"}, "the longest sequence",
                                       family.max_positions, default_of);
  result.activation_class = config.activation_class("hidden_act", "silu");
  const bool attention_bias = family.reads_attention_bias && config.rare_flag("attention_bias");
  result.qkv_bias = attention_bias || family.always_biased_qkv;
  result.output_bias = attention_bias;
  result.mlp_bias = family.reads_mlp_bias && config.rare_flag("mlp_bias");
  result.tied = config.flag_or("tie_word_embeddings", false);
  result.windows = read_windows(config, family, shape.layers);
  shape.window = *std::max_element(result.windows.begin(), result.windows.end());
  return result;
}

/// Lays out a model of the Llama family.
class LlamaLayout {
 public:
  LlamaLayout(LlamaConfig config, ModelAssembler& assembler)
      : config_(std::move(config)),
        shape_(config_.shape),
        query_width_(shape_.heads * shape_.head_dim),
        key_width_(shape_.kv_heads * shape_.head_dim),
        assembler_(assembler) {}

  void build() {
    register_parameters();
    run();
  }

 private:
  [[nodiscard]] std::string class_name(const std::string& suffix) const {
    return config_.family->prefix + suffix;
  }

  void register_linear(const std::string& path, std::int64_t inputs, std::int64_t outputs,
                       bool bias) {
    assembler_.register_parameter(path + ".weight", {outputs, inputs});
    if (bias) assembler_.register_parameter(path + ".bias", {outputs});
  }

  void register_parameters() {
    assembler_.register_parameter("model.embed_tokens.weight", {shape_.vocab, shape_.hidden});
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      register_layer(format("model.layers.{}", layer));
    }
    assembler_.register_parameter("model.norm.weight", {shape_.hidden});
    if (!config_.tied) register_linear("lm_head", shape_.hidden, shape_.vocab, false);
  }

  void register_layer(const std::string& layer) {
    const std::string attention = layer + ".self_attn";
    register_linear(attention + ".q_proj", shape_.hidden, query_width_, config_.qkv_bias);
    register_linear(attention + ".k_proj", shape_.hidden, key_width_, config_.qkv_bias);
    register_linear(attention + ".v_proj", shape_.hidden, key_width_, config_.qkv_bias);
    register_linear(attention + ".o_proj", query_width_, shape_.hidden, config_.output_bias);
    if (config_.family->query_key_norms) {
      assembler_.register_parameter(attention + ".q_norm.weight", {shape_.head_dim});
      assembler_.register_parameter(attention + ".k_norm.weight", {shape_.head_dim});
    }
    const std::string mlp = layer + ".mlp";
    register_linear(mlp + ".gate_proj", shape_.hidden, shape_.ffn, config_.mlp_bias);
    register_linear(mlp + ".up_proj", shape_.hidden, shape_.ffn, config_.mlp_bias);
    register_linear(mlp + ".down_proj", shape_.ffn, shape_.hidden, config_.mlp_bias);
    assembler_.register_parameter(layer + ".input_layernorm.weight", {shape_.hidden});
    assembler_.register_parameter(layer + ".post_attention_layernorm.weight", {shape_.hidden});
  }

  void run_linear(const std::string& path, std::int64_t inputs, std::int64_t outputs,
                  bool saves_input = true) {
    assembler_.enter(path, "Linear");
    std::vector<std::string> gradients = {path + ".weight"};
    assembler_.own(path + ".weight");
    if (assembler_.is_registered(path + ".bias")) {
      assembler_.own(path + ".bias");
      gradients.insert(gradients.begin(), path + ".bias");  // arrives first (rule 5)
    }
    assembler_.compute(OperatorKind::Linear, inputs, outputs, gradients, saves_input);
    assembler_.exit();
  }

  void run_norm(const std::string& path, std::int64_t width) {
    assembler_.enter(path, class_name("RMSNorm"));
    assembler_.own(path + ".weight");
    assembler_.compute(OperatorKind::RmsNorm, 0, width, {path + ".weight"});
    assembler_.exit();
  }

  /// The root and the model take token ids; what they call by keyword has no positional gradient.
  void run() {
    assembler_.enter("", class_name("ForCausalLM"), {.positional_gradient_input = false});
    assembler_.enter("model", class_name("Model"), {.positional_gradient_input = false});
    assembler_.enter("model.embed_tokens", "Embedding", {.positional_gradient_input = false});
    assembler_.own("model.embed_tokens.weight");
    assembler_.compute(OperatorKind::Embedding, shape_.vocab, shape_.hidden,
                       {"model.embed_tokens.weight"});
    assembler_.exit();
    // Tables of cosines and sines, computed without gradient.
    assembler_.enter("model.rotary_emb", class_name("RotaryEmbedding"),
                     {.positional_gradient_input = false, .gradient_output = false});
    assembler_.exit();
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) run_layer(layer);
    run_norm("model.norm", shape_.hidden);
    assembler_.exit();
    run_head();
    assembler_.compute(OperatorKind::CrossEntropy, 0, shape_.vocab);
    assembler_.exit();
  }

  void run_head() {
    if (!config_.tied) {
      run_linear("lm_head", shape_.hidden, shape_.vocab);
      return;
    }
    assembler_.enter("lm_head", "Linear");
    assembler_.own("model.embed_tokens.weight");
    assembler_.compute(OperatorKind::Linear, shape_.hidden, shape_.vocab);
    assembler_.exit();
  }

  void run_layer(std::int64_t layer) {
    const std::string path = format("model.layers.{}", layer);
    assembler_.enter(path, class_name("DecoderLayer"), {.block = static_cast<int>(layer)});
    run_norm(path + ".input_layernorm", shape_.hidden);
    run_attention(path + ".self_attn", config_.windows[static_cast<std::size_t>(layer)]);
    assembler_.compute(OperatorKind::ResidualAdd, 0, shape_.hidden);
    run_norm(path + ".post_attention_layernorm", shape_.hidden);
    run_mlp(path + ".mlp");
    assembler_.compute(OperatorKind::ResidualAdd, 0, shape_.hidden);
    assembler_.exit();
  }

  void run_attention(const std::string& path, std::int64_t window) {
    assembler_.enter(path, class_name("Attention"), {.positional_gradient_input = false});
    run_linear(path + ".q_proj", shape_.hidden, query_width_);
    if (config_.family->query_key_norms) run_norm(path + ".q_norm", query_width_);
    run_linear(path + ".k_proj", shape_.hidden, key_width_, false);
    if (config_.family->query_key_norms) run_norm(path + ".k_norm", key_width_);
    run_linear(path + ".v_proj", shape_.hidden, key_width_, false);
    assembler_.compute(OperatorKind::Rotary, 0, query_width_ + key_width_);
    assembler_.compute(OperatorKind::Attention, window, query_width_);
    run_linear(path + ".o_proj", query_width_, shape_.hidden);
    assembler_.exit();
  }

  /// down_proj(act_fn(gate_proj(x)) * up_proj(x))
  void run_mlp(const std::string& path) {
    assembler_.enter(path, class_name("MLP"));
    run_linear(path + ".gate_proj", shape_.hidden, shape_.ffn);
    assembler_.enter(path + ".act_fn", config_.activation_class);
    assembler_.compute(OperatorKind::Activation, 0, shape_.ffn);
    assembler_.exit();
    run_linear(path + ".up_proj", shape_.hidden, shape_.ffn, false);
    assembler_.compute(OperatorKind::Multiply, 0, shape_.ffn);
    run_linear(path + ".down_proj", shape_.ffn, shape_.hidden);
    assembler_.exit();
  }

  LlamaConfig config_;
  ModelShape shape_;
  std::int64_t query_width_;
  std::int64_t key_width_;
  ModelAssembler& assembler_;
};

// --------------------------------------------------------------------------------------------
// GPT-2

struct Gpt2Config {
  ModelShape shape;
  std::string activation_class;
  bool tied = true;
};

Gpt2Config read_gpt2_config(Config& config) {
  const std::string default_of = "Hugging Face's default";
  Gpt2Config result;
  ModelShape& shape = result.shape;
  shape.hidden =
      config.required_size({"n_embd", "hidden_size"}, "the width of the residual stream");
  shape.layers = config.required_size({"n_layer", "num_hidden_layers"},
                                      "the number of transformer layers", kLargestLayerCount);
  shape.heads =
      config.required_size({"n_head", "num_attention_heads"}, "the number of attention heads");
  if (shape.hidden % shape.heads != 0) {
    const bool own_key = config.object().has("n_head");
    config.fail(
        own_key ? "n_head" : "num_attention_heads",
        format("{} does not divide the width {}, expected a divisor", shape.heads, shape.hidden));
  }
  shape.kv_heads = shape.heads;
  shape.head_dim = shape.hidden / shape.heads;
  shape.ffn = config.size_or({"n_inner"}, "the width of the MLP", 4 * shape.hidden, "4 x n_embd");
  shape.vocab =
      config.size_or({"vocab_size"}, "the number of tokens in the vocabulary", 50257, default_of);
  shape.max_positions = config.size_or({"n_positions", "max_position_embeddings"},
                                       "the longest sequence", 1024, default_of);
  result.activation_class = config.activation_class("activation_function", "gelu_new");
  result.tied = config.flag_or("tie_word_embeddings", true);
  if (config.rare_flag("add_cross_attention")) {
    config.fail("add_cross_attention",
                "found true, expected false: cross attention is not supported");
  }
  config.assume("attn_dropout is called, as in eager attention; fused attention does not call it");
  config.assume(format("{} is one fused kernel", result.activation_class));
  return result;
}

/// Lays out GPT2LMHeadModel. Its Conv1D holds a weight {in, out}.
class Gpt2Layout {
 public:
  Gpt2Layout(Gpt2Config config, ModelAssembler& assembler)
      : config_(std::move(config)), shape_(config_.shape), assembler_(assembler) {}

  void build() {
    register_parameters();
    run();
  }

 private:
  void register_with_bias(const std::string& path, std::vector<std::int64_t> weight,
                          std::int64_t bias) {
    assembler_.register_parameter(path + ".weight", std::move(weight));
    assembler_.register_parameter(path + ".bias", {bias});
  }

  void register_parameters() {
    const std::int64_t hidden = shape_.hidden;
    assembler_.register_parameter("transformer.wte.weight", {shape_.vocab, hidden});
    assembler_.register_parameter("transformer.wpe.weight", {shape_.max_positions, hidden});
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string path = format("transformer.h.{}", layer);
      register_with_bias(path + ".ln_1", {hidden}, hidden);
      register_with_bias(path + ".attn.c_attn", {hidden, 3 * hidden}, 3 * hidden);
      register_with_bias(path + ".attn.c_proj", {hidden, hidden}, hidden);
      register_with_bias(path + ".ln_2", {hidden}, hidden);
      register_with_bias(path + ".mlp.c_fc", {hidden, shape_.ffn}, shape_.ffn);
      register_with_bias(path + ".mlp.c_proj", {shape_.ffn, hidden}, hidden);
    }
    register_with_bias("transformer.ln_f", {hidden}, hidden);
    if (!config_.tied) assembler_.register_parameter("lm_head.weight", {shape_.vocab, hidden});
  }

  void run_embedding(const std::string& path, std::int64_t rows) {
    assembler_.enter(path, "Embedding", {.positional_gradient_input = false});
    assembler_.own(path + ".weight");
    assembler_.compute(OperatorKind::Embedding, rows, shape_.hidden, {path + ".weight"});
    assembler_.exit();
  }

  void run_norm(const std::string& path) {
    assembler_.enter(path, "LayerNorm");
    assembler_.own(path + ".weight");
    assembler_.own(path + ".bias");
    assembler_.compute(OperatorKind::LayerNorm, 0, shape_.hidden,
                       {path + ".weight", path + ".bias"});  // in this order (rule 5)
    assembler_.exit();
  }

  void run_conv1d(const std::string& path, std::int64_t inputs, std::int64_t outputs) {
    assembler_.enter(path, "Conv1D");
    assembler_.own(path + ".weight");
    assembler_.own(path + ".bias");
    assembler_.compute(OperatorKind::Linear, inputs, outputs, {path + ".bias", path + ".weight"});
    assembler_.exit();
  }

  void run_elementwise(const std::string& path, const std::string& class_name, OperatorKind kind,
                       std::int64_t width) {
    assembler_.enter(path, class_name);
    assembler_.compute(kind, 0, width);
    assembler_.exit();
  }

  void run() {
    assembler_.enter("", "GPT2LMHeadModel", {.positional_gradient_input = false});
    assembler_.enter("transformer", "GPT2Model", {.positional_gradient_input = false});
    run_embedding("transformer.wte", shape_.vocab);
    run_embedding("transformer.wpe", shape_.max_positions);
    assembler_.compute(OperatorKind::ResidualAdd, 0, shape_.hidden);
    run_elementwise("transformer.drop", "Dropout", OperatorKind::Dropout, shape_.hidden);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) run_layer(layer);
    run_norm("transformer.ln_f");
    assembler_.exit();
    const std::string head = config_.tied ? "transformer.wte.weight" : "lm_head.weight";
    assembler_.enter("lm_head", "Linear");
    assembler_.own(head);
    assembler_.compute(OperatorKind::Linear, shape_.hidden, shape_.vocab, {head});
    assembler_.exit();
    assembler_.compute(OperatorKind::CrossEntropy, 0, shape_.vocab);
    assembler_.exit();
  }

  void run_layer(std::int64_t layer) {
    const std::string path = format("transformer.h.{}", layer);
    assembler_.enter(path, "GPT2Block", {.block = static_cast<int>(layer)});
    run_norm(path + ".ln_1");
    run_attention(path + ".attn");
    assembler_.compute(OperatorKind::ResidualAdd, 0, shape_.hidden);
    run_norm(path + ".ln_2");
    run_mlp(path + ".mlp");
    assembler_.compute(OperatorKind::ResidualAdd, 0, shape_.hidden);
    assembler_.exit();
  }

  /// The dropout of the attention scores is part of the Attention operator, wherever its module is.
  void run_attention(const std::string& path) {
    assembler_.enter(path, "GPT2Attention");
    run_conv1d(path + ".c_attn", shape_.hidden, 3 * shape_.hidden);
    assembler_.compute(OperatorKind::Attention, 0, shape_.hidden);
    assembler_.enter(path + ".attn_dropout", "Dropout");
    assembler_.exit();
    run_conv1d(path + ".c_proj", shape_.hidden, shape_.hidden);
    run_elementwise(path + ".resid_dropout", "Dropout", OperatorKind::Dropout, shape_.hidden);
    assembler_.exit();
  }

  void run_mlp(const std::string& path) {
    assembler_.enter(path, "GPT2MLP");
    run_conv1d(path + ".c_fc", shape_.hidden, shape_.ffn);
    run_elementwise(path + ".act", config_.activation_class, OperatorKind::Activation, shape_.ffn);
    run_conv1d(path + ".c_proj", shape_.ffn, shape_.hidden);
    run_elementwise(path + ".dropout", "Dropout", OperatorKind::Dropout, shape_.hidden);
    assembler_.exit();
  }

  Gpt2Config config_;
  ModelShape shape_;
  ModelAssembler& assembler_;
};

Model finished(ModelAssembler& assembler, const Config& config, const std::string& family,
               const ModelShape& shape) {
  Model model = assembler.finish();
  model.family = family;
  model.shape = shape;
  model.assumptions = config.assumptions();
  return model;
}

}  // namespace

Model read_hugging_face(const JsonDocument& document) {
  Config config(document);
  const std::string model_type = config.object().string("model_type");
  ModelAssembler assembler;
  if (model_type == "gpt2") {
    const Gpt2Config gpt2 = read_gpt2_config(config);
    note_architecture(config, "GPT2LMHeadModel");
    Gpt2Layout(gpt2, assembler).build();
    return finished(assembler, config, model_type, gpt2.shape);
  }
  for (const LlamaFamily& family : kLlamaFamilies) {
    if (model_type != family.model_type) continue;
    const LlamaConfig llama = read_llama_config(config, family);
    note_architecture(config, std::string(family.prefix) + "ForCausalLM");
    LlamaLayout(llama, assembler).build();
    return finished(assembler, config, model_type, llama.shape);
  }
  const std::vector<std::string> supported = supported_model_types();
  config.fail(
      "model_type",
      format("found \"{}\", expected one of {}{}; a module listing describes any other model",
             model_type, join(supported, ", "), did_you_mean(model_type, supported)));
}

}  // namespace zerosim::internal
