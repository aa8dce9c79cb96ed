/// \file
/// A network as a training framework sees it: modules, parameters, and what one forward pass does.
///
/// Two orders matter and differ. *Registration* (`named_parameters()`) fixes the layout of flat
/// buffers (spec B2.1, rule 72 of deepspeed_recorded.md) and parameter ids (C1.2). *Execution*
/// fixes when hooks fire (C2) and when gradients arrive (B3). A Model holds both; it knows neither
/// batch nor device.
///
/// Not modelled: control flow that depends on data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/ids.h"

namespace zerosim {

/// The result of an operator: its index in `Model::operators`.
using Value = std::int32_t;
inline constexpr Value kNoValue = -1;

/// One tensor of weights. Its id is its place in `Model::parameters`.
struct Parameter {
  std::string name;                 ///< "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  ///< as PyTorch stores it: a Linear is {out, in}
  std::int64_t elements = 0;        ///< product of `shape`
  ModuleId owner;                   ///< first module that registered it
  bool trainable = true;
};

/// A tensor of a module that is no parameter (`named_buffers()`, persistent or not).
struct ModuleBuffer {
  ModuleId module;
  std::string name;  ///< within the module: "inv_freq"
  std::int64_t elements = 0;
  Dtype dtype = Dtype::F32;
};

/// One nn.Module that takes part in a forward pass, containers that are called included.
struct Module {
  std::string name;                     ///< dotted path; "" is the root
  std::string class_name;               ///< "LlamaDecoderLayer"
  ModuleId parent;                      ///< not valid for the root
  std::vector<ParameterId> parameters;  ///< direct ones, by id; a tied one is listed by each owner
  int block = -1;      ///< index of the checkpointed unit (transformer block) it is in; -1: outside
  int moe_block = -1;  ///< index into Model::moe_blocks of the block it is in; -1: in none
  int expert = -1;     ///< of that block, which expert it is (a part of); -1: none

  bool leaf = false;  ///< of ZeRO-3: fetched with all below it (leaf_modules.h)

  /// Operators whose results it is given as *positional* arguments, and the one whose result it
  /// returns; kNoValue: nothing that could need a gradient (token ids, tables of positions).
  std::vector<Value> positional_inputs;
  Value output = kNoValue;
  // By trace_gradients:
  /// Whether some positional input requires a gradient: only then does a post-backward hook fire
  /// (C2.5). False for the root, the embedding, and modules called by keyword (HF attention).
  bool positional_gradient_input = true;
  /// Whether its output requires a gradient: only then does a pre-backward hook fire (C2.4). False
  /// for position tables such as rotary_emb, which backward never visits.
  bool gradient_output = true;
  /// A module listing states the two; they are then not derived.
  bool hooks_stated = false;
};

/// What an operator computes; its cost for a batch is `operator_cost` (operators.h).
enum class OperatorKind {
  Embedding,      ///< rows of a table: `outputs` = width, `inputs` = rows of the table
  Linear,         ///< `inputs` x `outputs`
  RmsNorm,        ///< elements of a token `outputs` (hidden; heads x head_dim for Qwen3's q_norm)
  LayerNorm,      ///< width `outputs`
  Rotary,         ///< position rotation of q and k, `outputs` = their widths together
  PositionBias,   ///< T5: a learned bias of each pair of positions, `outputs` = heads
  Attention,      ///< scores and values; `outputs` = width of the result, `attention` says the rest
  ResidualAdd,    ///< width `outputs`
  Scale,          ///< times a number, width `outputs`
  Activation,     ///< element-wise, width `outputs` (silu, gelu, tanh)
  Multiply,       ///< gate times up, width `outputs`
  CrossEntropy,   ///< loss over `outputs` = vocabulary
  Dropout,        ///< width `outputs`; nothing unless BatchShape::dropout
  Router,         ///< softmax and choice of experts from `outputs` = experts logits
  ExpertGather,   ///< copies the tokens of its expert, width `outputs`
  ExpertScatter,  ///< weighs the results of its expert and adds them in, width `outputs`
};

/// How a family's unfused attention masks its scores, and what its code calls for that.
enum class ScoreMask {
  Added,     ///< a mask is added: BERT, OPT, the Llama family
  Selected,  ///< torch.where of scores and a number: GPT-2, GPT-BigCode, GPT-NeoX, GPT-J
  Filled,    ///< added within the product (ALiBi), then masked_fill in fp32: BLOOM
};

/// How q, k and v come from what their products return; only gradients tell them apart.
enum class QueryKeyValue {
  Apart,        ///< a product each
  Split,        ///< tensor.split: the gradients are concatenated
  Interleaved,  ///< indexed: each gradient is copied into zeros of the whole, and these are added
};

/// How one Attention operator attends.
struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;   ///< of q and k
  std::int64_t value_dim = 0;  ///< of v; differs from `head_dim` in DeepSeek's MLA
  std::int64_t window = 0;     ///< sliding window in tokens; 0: none
  bool causal = true;
  /// Whether the family's code has a fused ("flash") form at all; T5 and BLOOM have none.
  bool fused = true;
  /// Whether it calls the fused form whatever is asked for: Falcon without ALiBi does.
  bool always_fused = false;
  bool fp32_softmax = true;           ///< of the unfused form: computed in fp32 and cast back
  ScoreMask mask = ScoreMask::Added;  ///< of the unfused form
  QueryKeyValue packing = QueryKeyValue::Apart;
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

inline constexpr int kEveryToken = -1;

struct Operator {
  OperatorKind kind = OperatorKind::Linear;
  ModuleId module;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int32_t attention = -1;  ///< index into Model::attention_shapes
  /// The expert of its module's MoE block whose tokens it sees; kEveryToken: all.
  int expert = kEveryToken;
  std::vector<Value> sources;  ///< operators whose results it reads, other than kNoValue
  bool keeps_result = false;   ///< an Activation that keeps its result, not its input (ReLU)
  /// Its result holds the keys and values that the model returns (`use_cache`), also while blocks
  /// are recomputed: they live until the loss is there. transformers before 4.46 only.
  bool caches_result = false;
  /// Parameters that it uses, in the order in which their gradients arrive (nn.Linear: bias before
  /// weight; LayerNorm: weight before bias; rule 5 of deepspeed_recorded.md).
  std::vector<ParameterId> parameters;

  // By trace_gradients:
  /// Those whose gradient arrives here: trainable, and used by no earlier operator, whose backward
  /// would come later (rule 82).
  std::vector<ParameterId> gradients;
  bool input_gradient = true;   ///< some source requires a gradient
  bool output_gradient = true;  ///< so does the result: without it there is no backward
  bool saves_input = true;  ///< keeps its input for backward; false: not needed, or kept already
  /// An earlier Linear reads the same tensor (k and v that of q), or an earlier Attention the same
  /// position bias: two gradients of it meet.
  bool shares_input = false;
  /// An Activation whose result a Multiply reads (SwiGLU): one kernel does both where it is fused.
  bool feeds_product = false;
};

/// One thing that happens in a forward pass, in order. Backward is the reverse: Exit becomes the
/// pre-backward hook, Enter the post-backward hook (C2.4, C2.5).
struct ExecutionStep {
  enum class Kind { Enter, Compute, Exit };
  Kind kind = Kind::Enter;
  ModuleId module;
  std::int32_t operation = -1;  ///< index into Model::operators if Compute
};

/// Widths of a decoder; zero where a module listing does not say. Of an encoder and decoder
/// (T5) `layers` counts both.
struct ModelShape {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;
  std::int64_t window = 0;  ///< sliding attention window in tokens; 0: none
};

/// A mixture of experts: a router sends each token to some of the experts.
struct MoeBlock {
  ModuleId module;  ///< "model.layers.0.block_sparse_moe"
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  bool calls_idle_experts = false;  ///< also experts that no token goes to (DeepSeek's code)
  /// Tokens of a micro batch that each expert sees, by `route_tokens` (routing.h); empty: not
  /// routed yet, and counted as spread evenly.
  std::vector<std::int64_t> tokens;
};

struct Model {
  std::string name;
  std::string family;  ///< HF model_type, or "listing"
  ModelShape shape;
  std::vector<Parameter> parameters;  ///< in order of registration
  std::vector<Module> modules;        ///< in order of first execution; [0] is the root
  /// Those that transformers 4.57 registers, in order of first execution; none of a module listing.
  std::vector<ModuleBuffer> buffers;
  std::vector<Operator> operators;
  std::vector<ExecutionStep> forward;  ///< one forward pass, loss included
  std::vector<AttentionShape> attention_shapes;
  std::vector<MoeBlock> moe_blocks;
  bool tied_embeddings = false;
  /// transformers before 4.46 casts this model's logits to fp32 (those since then cast all).
  bool fp32_logits = true;
  /// The embedding's output is made to require a gradient though the embedding is frozen
  /// (`enable_input_require_grads`, rule 79).
  bool input_requires_gradient = false;
  std::vector<std::string> assumptions;  ///< defaults that were filled in
};

[[nodiscard]] std::int64_t parameter_count(const Model& model);
[[nodiscard]] std::int64_t trainable_parameter_count(const Model& model);
/// Parameters that act on one token: of the experts, `experts_per_token` of each block.
[[nodiscard]] std::int64_t active_parameter_count(const Model& model);
/// Follows the gradient from the trainable parameters to the loss and fills in what depends on it:
/// which operators have a backward and keep what, where each gradient arrives, which hooks of a
/// module fire (C2.4, C2.5, rule 79). To be called after `trainable` of a parameter has changed.
void trace_gradients(Model& model);
/// Parameters without position tables, as FLOP formulas count them (spec/kernels.md section 1):
/// tables are those of embedding modules called wpe, embed_positions, position_embeddings or
/// pos_embed.
[[nodiscard]] std::int64_t parameter_count_without_positions(const Model& model);
/// Largest sum of one module's own parameters: what DeepSpeed's estimators call the largest layer
/// (F4).
[[nodiscard]] std::int64_t largest_module_parameters(const Model& model);

// clang-format off
/// Reads a preset's name ("llama-2-7b"), a Hugging Face config.json (or the folder that holds one),
/// or a module listing; which of the two files it is is seen from the text.
///
/// Hugging Face `model_type`: baichuan, bert, bloom, deepseek_v2, deepseek_v3, falcon, gemma, gemma2, gpt_bigcode,
/// gpt2, gpt_neox, gptj, llama, mistral, mixtral, mt5, opt, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe,
/// roberta, t5. Decoders are built as the model for causal language modelling, loss included,
/// whatever `architectures` says; BERT and RoBERTa as `architectures` says; T5 with the same number
/// of tokens on both sides. Keys that change no shape or cost are ignored, as Hugging Face ignores
/// unknown ones; an absent key gets Hugging Face's own default, listed in `assumptions`, except the
/// sizes without which no model can be known.
///
/// A module listing describes a network that no config does (examples/write_module_listing.py
/// writes one with PyTorch's hooks; examples/module_listing.json is one):
///
///     "format"        "zerosim.module_listing"
///     "version"       1
///     "name"          optional text
///     "hidden"        optional: width of the stream between blocks (default: width of the first
///                     embedding)
///     "vocab"         optional: width of the logits; with it the root ends with a cross entropy
///     "max_positions" optional: longest sequence
///     "registration"  optional: all parameter names in the order of named_parameters()
///                     (default: the order of "modules")
///     "modules"       called modules in order of first execution; a parent before its children,
///                     the root, named "", first. Each:
///         "name"          dotted path; the parent is the nearest listed prefix
///         "class"         class name, which selects the cost: Linear, Conv1D, Embedding,
///                         ...LayerNorm, ...RMSNorm, Dropout, and activations (SiLU, GELU, ReLU,
///                         ...); others cost nothing, except that own matrices count as matrix
///                         multiplications
///         "parameters"    optional: [{"name": full dotted name, "shape": as PyTorch stores it,
///                         "trainable": default true, "dtype": ignored}]; a tied parameter is
///                         listed by each owner under its one name
///         "attention"     optional {"heads", "kv_heads": default heads, "head_dim"}: scores and
///                         values are computed before the last Linear below it
///         "experts_per_token"   optional: the module is a mixture of experts, each token goes to
///                         this many of them. The choice is made before the first expert, from what
///                         the module before it (the router's Linear) returned; all experts read
///                         what the block was given
///         "expert"        optional, on each expert of such a block (its children are part of it):
///                         its number, from 0 in the order of the list. Also experts that no token
///                         went to are listed: `--routing` decides anew
///         "uses"          optional: matrices of other modules that it multiplies with at its end,
///                         {outputs, inputs} (the root with a tied head that is no module)
///         "block"         optional: index of the checkpointed unit (default: a module with
///                         children whose name ends with an integer, outside of others, is a block)
///         "positional_gradient_input", "gradient_output"   optional, see Module; else as if each
///                         module were given the result of the one before
///
/// Not seen by a listing, so without cost: additions, products and rotations between modules, and
/// that siblings share an input (each Linear is taken to keep its own).
/// \throws ConfigError  naming the file, the missing or unsupported key, and for an unknown name
///                      the nearest preset.
// clang-format on
[[nodiscard]] Model load_model(const std::string& name_or_path);

/// As `load_model` of a file; `file` stands for it in messages.
[[nodiscard]] Model parse_model(std::string text, const std::string& file);

/// Names that `load_model` knows, in alphabetical order.
[[nodiscard]] std::vector<std::string> model_preset_names();

/// One line a preset, name and parameter count: printed by `zerosim model --list`.
[[nodiscard]] std::vector<std::string> model_presets();

}  // namespace zerosim
