/// \file
/// What each operator costs for a given batch: kernels with FLOPs and bytes, and tensors kept for
/// backward.
///
/// Source: spec/kernels.md section 1 (FLOPs and bytes), zero_schedule.md E5 (activations).
/// Device-free: seconds are the engine's business (sim/engine/kernel_time.h).
///
/// **FLOPs**, T tokens, x bytes an element. A Linear is one GEMM: forward m = T, n = out, k = in;
/// gradient of the input m = T, n = in, k = out; of the weight m = out, n = in, k = T; each moves
/// x(mk + kn + mn) bytes. A bias is added in the forward GEMM and its gradient is one reduction.
/// Attention that is fused
/// ("flash") computes only what the causal mask and the window w leave, T(w - w^2/2s) pairs of
/// query and key with w <= s: 2 T s (heads x head_dim) without window; backward 2.5 times that.
/// Unfused attention computes all T s pairs, as bmm does; backward twice. Element-wise arithmetic
/// is not counted.
///
/// **Bytes** of the memory-bound operators are those of the kernels that Hugging Face's eager code
/// runs, each reading and writing device memory in full. The table of kernels.md section 1 gives
/// less where it assumes fusion: RMSNorm is computed in fp32 by 8 kernels (cast, square, mean,
/// scale, cast, weight: 36 B an element in bf16, not 4), rotary takes 10 x an element (not 2 x),
/// SwiGLU 5 x forward and 9 x backward (not 3 and 5).
///
/// **Launches** are the kernels that the code launches. They were counted with a TorchDispatchMode
/// in PyTorch 1.13 (each call but views and allocations; what differs on a GPU, dropout in one
/// kernel and a slice's gradient in two, by hand) for layers written as transformers has them;
/// between them go 1 to 2 calls that launch nothing (views), whose host time is part of a launch's:
///
/// | a layer, micro batch 2 (and 1) | forward | backward |
/// |---|---|---|
/// | Llama, flash, 16-bit | 38 | 75 |
/// | GPT-2, dropout | 30 (27) | 45 (42) |
/// | BERT, dropout | 23 (20) | 40 (37) |
/// | BLOOM, 16-bit | 28 (25) | 57 (54) |
/// | Megatron-LM's GPT, dropout | 15 | 26 |
///
/// | part of it | forward | backward |
/// |---|---|---|
/// | a Linear with bias, without | 1 | 3, 2 |
/// | RMSNorm in 16-bit, in fp32; LayerNorm | 8, 6; 1 | 16, 14; 2 |
/// | rotary of q and k | 10 | 18 |
/// | fused attention | 1 | 3 |
/// | attention of GPT-2, BERT, BLOOM | 12 (9), 10 (7), 11 (8) | 14 (11), 11 (8), 21 (18) |
/// | attention of Megatron-LM, with the bias of q, k and v | 6 | 7 |
/// | gelu_new, BloomGelu, others; SwiGLU | 8, 9, 1; 2 | 11, 18, 1; 3 |
/// | dropout, addition | 1 | 1 |
///
/// Unfused attention of more than one sequence copies q, k and v (a head's rows are not next to
/// each other), of any number its result; Megatron-LM's order of dimensions, sequence first, needs
/// only the latter. How scores are masked (`ScoreMask`) and how q, k and v come out of one product
/// (`QueryKeyValue`) is the family's; element-wise functions that are several kernels (gelu_new,
/// BloomGelu, ...) are a table in the .cpp. What they keep for backward is not counted: `saved`
/// holds their input alone, as E5 has it.
///
/// **Saved** bytes follow what autograd keeps. A Llama layer with flash attention: E5's
/// 12 h + 4 h_kv + 8 f + 4 a a token, and the 8 h that E5 adds for Hugging Face's RMSNorm, as that
/// is what such models run: each of the two norms keeps its fp32 input (4 h) and its normalised
/// output (2 h) where E5's main line has 2 h. (h_kv = kv_heads x head_dim, f = ffn, a = heads.)
/// GPT-2: 34 h and 5 a s without flash, 34 h + 4 a with it; without dropout 32 h, and 2 a s.
/// Unfused attention of the Llama family keeps an fp32 softmax and its cast: 6 a s. Statistics of
/// norms (4 or 8 B a token) are left out, as in E5.
///
/// **Logits** (E5), bytes each, in 16-bit training; `saved` is what autograd keeps, the rest lives
/// while the loss computes. x = 2 as computed, 4 in fp32:
///
/// | loss | code | forward: as computed, fp32, shifted copy, log-softmax | saved | backward |
/// |---|---|---|---|---|
/// | plain | present | 2 + 4 + 0 + 4 = 10 | 4 | log-softmax, two gradients: 4 + 4 + 4 = 12 |
/// | plain | before 4.46 | 0 + 4 + 4 + 4 = 12, or 2 + 0 + 2 + 2 = 6 | 4 or 2 | 12 or 6 |
/// | fused | present | 2 + 4 = 6 | 4 | gradient over the logits, its cast: 4 + 2 = 6 |
/// | fused | before 4.46 | 0 + 4 + 4 = 8, or 2 + 0 + 2 = 4 | 4 or 2 | gradient, unshifted: 8 or 4 |
/// | chunked | any | one chunk | gradients of the head's input and weight | - |
///
/// A loop that holds the model's output while backward runs adds the logits as computed: the 14
/// that E5 names.
///
/// What several products or norms read is kept once. A product keeps its input only for the
/// gradient of a weight that trains, and what no gradient comes to keeps nothing (trace_gradients
/// of model.h): so adapters and frozen parameters need no formula of their own.
///
/// **Experts** see the tokens that the router gives them (MoeBlock::tokens): a gather of their
/// rows, the MLP's products on that many rows, a weighted scatter-add. DeepSeek's MLA is an
/// attention whose values are narrower than its keys.
///
/// **Fused kernels** (`BatchShape::kernels`) change what is kept, as their autograd functions save
/// it: RMSNorm its input alone (2 h); SwiGLU gate and up, not silu's result (4 f for 6 f).
/// Inductor's partitioner, which recomputes element-wise operators, comes to the same. They also
/// change what is moved, bytes an element forward / backward, each one launch, x bytes a value:
///
/// | operator | eager | fused | by |
/// |---|---|---|---|
/// | RMSNorm, bf16 | 36 / 80 | 2 x / 3 x | FusedNorms, Liger, Compiled |
/// | rotary | 10 x / 15 x | 2 x / 2 x | FusedNorms, Liger, Compiled |
/// | silu, times up | 2 x + 3 x / 3 x + 6 x | 3 x / 5 x | Liger, Compiled |
/// | addition before a norm | 3 x / 3 x | 2 x / x | Compiled, Megatron |
/// | dropout before it | 2 x + 1 / 2 x + 1 | 1 / 1 | Compiled, Megatron |
/// | scale, mask, softmax of scores | 4 x + softmax | 2 x / 3 x | Compiled, Megatron |
///
/// An addition that is fused with the norm after it saves that one's read. The loss's kernels are
/// `BatchShape::loss`'s: a compiled block does not contain it.
///
/// **fp8** (`BatchShape::units`): products of Linears outside of the head read fp8. Each operand is
/// read once for its largest value and once more to be cast: 2 x + 1 B an element of input, weight
/// and gradient of the output, in three launches; compiled, the two passes are those of the kernels
/// that make it: x + 1. What backward needs again is cast once. Kept tensors are counted as if they
/// were not cast. TE's and torchao's delayed scaling saves the first pass (not modelled).
///
/// **Grouped queries**: unfused attention, and fused if `BatchShape::repeats_keys`, gets copies
/// with a head of keys and values for each of queries. They are moved and launched; memory counts
/// the narrow ones.
///
/// **Autocast** (`BatchShape::autocast`: fp32 weights): norms, softmax and powers are computed in
/// fp32, and so is the sum of fp32 and 16-bit that the residual stream is. Bytes follow, and a cast
/// precedes each Linear whose input comes from one of them; `saved` does not follow (E5). Not for
/// Compiled and Megatron, whose kernels cast as they read. Casts of weights and of their gradients
/// are TrainingWalk's.
///
/// Not modelled: tables of positions and causal masks, made once a pass (some 20 small kernels).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/model/model.h"

namespace zerosim {

/// What bounds a kernel and which efficiency applies (spec/kernels.md sections 2 to 4).
enum class KernelClass {
  Gemm,       ///< tile model over m, n, k
  Attention,  ///< fused attention: m = sequence, n = head size, k = micro batch x heads
  Memory,     ///< streams `bytes` through HBM
  Optimizer,  ///< Memory, but counted as optimizer time
};

/// How the operands of a product lie in memory, in BLAS' words for column-major matrices.
enum class GemmLayout {
  TN,  ///< forward: rows of A and of B are k long
  NN,  ///< gradient of the input: rows of A are k long, of B n
  NT,  ///< gradient of the weight: rows of A are m long, of B n
};

/// What multiplies.
enum class MatrixUnits {
  OfType,  ///< tensor cores for 16-bit types, vector units for fp32, as PyTorch does unasked
  Tf32,    ///< fp32 products on tensor cores (torch.backends.cuda.matmul.allow_tf32)
  Fp8,     ///< products of Linears in fp8 with a scale a tensor
};

/// Which code attends fused.
enum class FlashVersion {
  V1,  ///< FlashAttention 1 and Triton's of 2022 and 2023
  V2,  ///< FlashAttention-2, also PyTorch's scaled_dot_product_attention
  V3,  ///< FlashAttention-3 and 4, cuDNN 9: faster on Hopper; elsewhere as V2
};

/// One device kernel, or several of one class that run back to back.
struct Kernel {
  KernelClass kernel_class = KernelClass::Memory;
  /// String literal: "gemm_forward", "gemm_input_gradient", "gemm_weight_gradient",
  /// "attention_forward", "attention_backward", "attention_scores", "softmax", "rms_norm", ...
  std::string_view name;
  Flops flops;
  Bytes bytes;  ///< read + written in device memory
  std::int64_t m = 0, n = 0, k = 0;
  int launches = 1;  ///< kernels that eager PyTorch launches for it: host time
  Dtype dtype = Dtype::Bf16;
  bool backward = false;  ///< fused attention runs slower backward
  // Of products:
  GemmLayout layout = GemmLayout::TN;
  MatrixUnits units = MatrixUnits::OfType;
  bool fp32_accumulate = false;  ///< C is fp32 and added to: Megatron-LM's gradients of weights
  // Of attention:
  FlashVersion flash = FlashVersion::V2;
  bool causal = true;
};

/// How the loss comes from the logits.
enum class LossKind {
  Plain,    ///< F.cross_entropy
  Fused,    ///< one kernel, whose backward writes the gradient over the logits
  Chunked,  ///< Liger's fused linear cross-entropy: the head's product and the loss, some tokens at
            ///< a time; logits never exist as a whole
};

/// Kernels of norms, rotary and SwiGLU.
enum class ElementwiseKernels {
  Eager,       ///< the model code's own, operator by operator
  FusedNorms,  ///< Triton kernels for norms and rotary
  Liger,       ///< those and one for SwiGLU (LigerSiLUMulFunction), gradients over gate and up
  Compiled,    ///< torch.compile: element-wise operators are fused, and computed again, not kept
  Megatron,    ///< Megatron-LM's: bias + GELU, bias + dropout + addition, scale + mask + softmax
};

/// Whose code runs the model, where tensors differ.
enum class ModelCode {
  Present,          ///< transformers 4.57, torchtitan: every model's logits are cast to fp32
  TransformersOld,  ///< transformers before 4.46: some models' logits are (`Model::fp32_logits`),
                    ///< and the labels' shift copies them
};

/// What is trained with: a micro batch as one GPU sees it.
struct BatchShape {
  std::int64_t micro_batch = 1;  ///< sequences
  std::int64_t sequence = 0;     ///< tokens each
  Dtype compute = Dtype::Bf16;
  bool flash_attention = true;
  bool dropout = false;
  LossKind loss = LossKind::Plain;
  ElementwiseKernels kernels = ElementwiseKernels::Eager;
  FlashVersion flash = FlashVersion::V2;  ///< if flash_attention
  MatrixUnits units = MatrixUnits::OfType;
  ModelCode code = ModelCode::Present;
  bool autocast = false;      ///< fp32 weights under torch.autocast: see "Autocast" above
  bool repeats_keys = false;  ///< fused attention is given a head of keys for each of queries
  [[nodiscard]] std::int64_t tokens() const { return micro_batch * sequence; }
};

struct OperatorCost {
  std::vector<Kernel> forward;
  std::vector<Kernel> backward_input;    ///< gradient of the operator's input
  std::vector<Kernel> backward_weights;  ///< gradients of its parameters
  Bytes saved;               ///< newly kept from this operator's forward to its backward
  Bytes input;               ///< size of its input (= of that gradient)
  Bytes output;              ///< size of its output (= of that gradient)
  Bytes logits;              ///< part of `saved` that is logits and what comes of them (E5)
  Bytes forward_workspace;   ///< extra while its forward runs: logits and their copies
  Bytes backward_workspace;  ///< extra while its backward runs (fp32 gradients of the logits)
  /// `saved` is the operator's input as it is, so that a block whose input that is keeps it once.
  bool saves_own_input = false;
  /// The gradient of its input is written over `saved`.
  bool gradient_over_saved = false;
};

/// "Linear"
[[nodiscard]] std::string_view to_string(OperatorKind kind);

/// Whether the scores of all pairs are never stored ("flash").
[[nodiscard]] bool attends_fused(const AttentionShape& shape, const BatchShape& batch);

/// Tokens that an operator sees of a micro batch of `tokens`: all, or those of its expert.
[[nodiscard]] std::int64_t operator_tokens(const Model& model, const Operator& op,
                                           std::int64_t tokens);

/// Parameters that are not trainable get no `backward_weights`; an operator that no gradient comes
/// to has no backward and keeps nothing.
/// \throws ConfigError  if the batch is not positive, or so large that bytes leave 64 bits.
[[nodiscard]] OperatorCost operator_cost(const Model& model, const Operator& op,
                                         const BatchShape& batch);

/// Bytes that a checkpointed block keeps: its input, tokens x hidden.
/// \throws ConfigError  as `operator_cost`, and if a module listing does not say `hidden`.
[[nodiscard]] Bytes checkpoint_bytes(const Model& model, const BatchShape& batch);

/// FLOPs of one token, forward and backward, recomputation not counted:
/// 6 N + 12 L h s with N = parameters that act on a token (all, but for experts) and h = hidden, no
/// discount for the causal mask: the convention of PaLM and of data/cases/README.md
/// (`throughput.tflops_per_gpu`).
[[nodiscard]] Flops model_flops_per_token(const Model& model, std::int64_t sequence);

}  // namespace zerosim
