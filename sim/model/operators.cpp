#include "sim/model/operators.h"

#include <algorithm>
#include <stdexcept>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

/// Tokens of a micro batch beyond which no byte count could be right.
constexpr std::int64_t kLargestTokens = std::int64_t{1} << 40;

constexpr std::int64_t kFp32 = 4;       ///< bytes of an fp32 element
constexpr std::int64_t kStatistic = 4;  ///< an fp32 figure that a norm keeps for a token

/// Kernels of an element-wise function in a family's Python, and what they move, in values an
/// element. `backward` is autograd's, but BloomGelu's, which states its own.
struct ElementwiseCode {
  std::string_view class_name;
  int forward, forward_values;
  int backward, backward_values;
};

/// Classes of transformers' activations.py and modeling_bloom.py; all others are one kernel of
/// PyTorch each way (2 and 3 values). t = tanh(u).
/// - NewGELU: 0.5 x (2), x^3 (2), times 0.044715 (2), plus x (3), times sqrt(2/pi) (2), tanh (2),
///   1 + t (2), product (3). Backward: the product's two gradients (3 + 3), tanh's (3), times
///   sqrt(2/pi) (2), times 0.044715 (2), x^2 (2), times 3 (2), times the gradient (3), times 0.5
///   (2), two sums (6).
/// - FastGELU: 0.5 x, 0.7979 x, 0.0447 x, times x (3), 1 +, product (3), tanh, 1 +, product (3).
///   Backward: 6 for each of three products, tanh's 3, three numbers 6, three sums 9.
/// - BloomGelu: the same nine kernels; backward computes t anew in six (14) and 0.5 x (1 - t^2)
///   (0.798 + 0.107 x^2) + 0.5 (1 + t) times the gradient in twelve (29).
/// - QuickGELU: x sigmoid(1.702 x). ReLUSquared: relu, square.
constexpr ElementwiseCode kElementwiseCodes[] = {{"NewGELUActivation", 8, 18, 11, 28},
                                                 {"FastGELUActivation", 9, 21, 13, 36},
                                                 {"BloomGelu", 9, 21, 18, 43},
                                                 {"QuickGELUActivation", 3, 7, 5, 14},
                                                 {"ReLUSquaredActivation", 2, 4, 4, 10}};
constexpr ElementwiseCode kOneKernel = {"", 1, 2, 1, 3};

void check_batch(const BatchShape& batch) {
  if (batch.micro_batch < 1) {
    throw ConfigError(format("micro batch: found {}, expected 1 or more", batch.micro_batch));
  }
  if (batch.sequence < 1) {
    throw ConfigError(format("sequence length: found {}, expected 1 or more", batch.sequence));
  }
  if (batch.micro_batch > kLargestTokens / batch.sequence) {
    throw ConfigError(format("micro batch {} x sequence {}: expected at most {} tokens",
                             batch.micro_batch, batch.sequence, kLargestTokens));
  }
}

/// A product of FLOPs; double, as 10^20 does not fit an integer.
Flops flops(double factor, std::int64_t a, std::int64_t b, std::int64_t c) {
  return Flops(factor * static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c));
}

/// Computes the cost of one operator. T tokens, x bytes an element, `per_token` bytes a token.
class CostModel {
 public:
  CostModel(const Model& model, const Operator& op, const BatchShape& batch)
      : model_(model),
        op_(op),
        batch_(batch),
        tokens_(operator_tokens(model, op, batch.tokens())),
        element_(dtype_bytes(batch.compute)),
        cast_(element_ == kFp32 ? 0 : element_ + kFp32),
        autocast_(batch.autocast && element_ != kFp32 && !fuses_dropout()),
        stream_(autocast_ ? kFp32 : element_) {}

  OperatorCost cost() {
    set_sizes();
    switch (op_.kind) {
      case OperatorKind::Embedding:
        embedding();
        break;
      case OperatorKind::Linear:
        linear();
        break;
      case OperatorKind::RmsNorm:
        rms_norm();
        break;
      case OperatorKind::LayerNorm:
        layer_norm();
        break;
      case OperatorKind::Rotary:
        rotary();
        break;
      case OperatorKind::PositionBias:
        position_bias();
        break;
      case OperatorKind::Attention:
        attention();
        break;
      case OperatorKind::ResidualAdd:
        residual_add();
        break;
      case OperatorKind::Scale:
        scale();
        break;
      case OperatorKind::Activation:
        activation();
        break;
      case OperatorKind::Multiply:
        multiply();
        break;
      case OperatorKind::CrossEntropy:
        cross_entropy();
        break;
      case OperatorKind::Dropout:
        dropout();
        break;
      case OperatorKind::Router:
        router();
        break;
      case OperatorKind::ExpertGather:
        expert_gather();
        break;
      case OperatorKind::ExpertScatter:
        expert_scatter();
        break;
    }
    drop_unneeded_backward();
    return std::move(cost_);
  }

 private:
  [[nodiscard]] Bytes per_token(std::int64_t bytes) const { return Bytes(tokens_) * bytes; }
  /// `bytes` for each element of a tensor that is `outputs` wide.
  [[nodiscard]] Bytes per_element(std::int64_t bytes) const {
    return per_token(op_.outputs) * bytes;
  }

  void set_sizes() {
    cost_.output = per_element(element_);
    cost_.input = cost_.output;
    if (op_.kind == OperatorKind::Linear) cost_.input = per_token(op_.inputs) * element_;
    if (op_.kind == OperatorKind::Embedding) cost_.input = Bytes(0);  // ids have no gradient
    if (op_.kind == OperatorKind::CrossEntropy) cost_.output = Bytes(kFp32);
    if (op_.kind == OperatorKind::Multiply) cost_.input = cost_.output * 2;
    if (op_.kind == OperatorKind::Attention) {
      const AttentionShape& shape = attention_shape();
      cost_.input = per_token(shape.heads * shape.head_dim +
                              shape.kv_heads * (shape.head_dim + shape.value_dim)) *
                    element_;
    }
    if (op_.kind == OperatorKind::PositionBias) {
      cost_.output = score_elements(op_.outputs) * element_;
      cost_.input = Bytes(0);
    }
  }

  [[nodiscard]] const AttentionShape& attention_shape() const {
    return model_.attention_shapes[static_cast<std::size_t>(op_.attention)];
  }
  /// One number for each pair of positions of each head.
  [[nodiscard]] Bytes score_elements(std::int64_t heads) const {
    return per_token(heads) * batch_.sequence;
  }

  /// What no gradient flows through needs no backward, and autograd keeps nothing of it.
  void drop_unneeded_backward() {
    if (!op_.input_gradient) {
      cost_.backward_input.clear();
      cost_.input = Bytes(0);
    }
    if (op_.output_gradient) return;
    cost_.backward_weights.clear();
    cost_.saved = Bytes(0);
    cost_.logits = Bytes(0);
    cost_.backward_workspace = Bytes(0);
    cost_.saves_own_input = false;
    cost_.gradient_over_saved = false;
  }

  /// Whether the operator uses a trainable matrix, or one of fewer dimensions.
  [[nodiscard]] bool trains(bool matrix) const {
    return std::any_of(op_.parameters.begin(), op_.parameters.end(), [&](ParameterId id) {
      const Parameter& parameter = model_.parameters[id.index()];
      return parameter.trainable && (parameter.shape.size() >= 2) == matrix;
    });
  }

  [[nodiscard]] Kernel stream(std::string_view name, Bytes bytes, int launches,
                              bool backward) const {
    Kernel kernel;
    kernel.kernel_class = KernelClass::Memory;
    kernel.name = name;
    kernel.bytes = bytes;
    kernel.launches = launches;
    kernel.dtype = batch_.compute;
    kernel.backward = backward;
    return kernel;
  }

  /// `matrices` products as one kernel, whose m is that of all together; each has its own k x n.
  [[nodiscard]] Kernel gemm(std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
                            bool backward, std::int64_t matrices = 1) const {
    Kernel kernel = stream(name, Bytes(0), 1, backward);
    kernel.kernel_class = KernelClass::Gemm;
    kernel.flops = flops(2, m, n, k);
    kernel.bytes = (Bytes(m) * k + Bytes(matrices) * k * n + Bytes(m) * n) * element_;
    kernel.m = m;
    kernel.n = n;
    kernel.k = k;
    if (batch_.units == MatrixUnits::Tf32) kernel.units = MatrixUnits::Tf32;
    return kernel;
  }

  /// A product of a Linear that fp8 applies to reads a byte an element.
  [[nodiscard]] Kernel linear_gemm(std::string_view name, std::int64_t m, std::int64_t n,
                                   std::int64_t k, GemmLayout layout, bool backward) const {
    Kernel kernel = gemm(name, m, n, k, backward);
    kernel.layout = layout;
    if (multiplies_in_fp8()) {
      kernel.units = MatrixUnits::Fp8;
      kernel.bytes = Bytes(m) * k + Bytes(k) * n + Bytes(m) * n * element_;
    }
    return kernel;
  }

  /// Not the head, and only what fp8's tiles of 16 divide: torchao's and TE's rule.
  [[nodiscard]] bool multiplies_in_fp8() const {
    constexpr std::int64_t kTile = 16;
    return batch_.units == MatrixUnits::Fp8 && op_.outputs != model_.shape.vocab &&
           op_.inputs % kTile == 0 && op_.outputs % kTile == 0;
  }

  void forward(std::string_view name, Bytes bytes, int launches = 1) {
    cost_.forward.push_back(stream(name, bytes, launches, false));
  }
  void backward_input(std::string_view name, Bytes bytes, int launches = 1) {
    cost_.backward_input.push_back(stream(name, bytes, launches, true));
  }
  void backward_weights(std::string_view name, Bytes bytes, int launches = 1) {
    cost_.backward_weights.push_back(stream(name, bytes, launches, true));
  }

  /// Backward writes zeros into a gradient of the whole table and adds rows to it with fp32 atomics
  /// (read and write, 2 x 4 B).
  void embedding() {
    forward("embedding", per_element(2 * element_));
    if (!trains(true)) return;
    const Bytes table = Bytes(op_.inputs) * op_.outputs * element_;
    backward_weights("embedding_gradient", table + per_element(element_ + 2 * kFp32), 2);
  }

  void linear() {
    const std::int64_t in = op_.inputs;
    const std::int64_t out = op_.outputs;
    cast_to_fp8();
    cast_input();
    cost_.forward.push_back(linear_gemm("gemm_forward", tokens_, out, in, GemmLayout::TN, false));
    cost_.backward_input.push_back(
        linear_gemm("gemm_input_gradient", tokens_, in, out, GemmLayout::NN, true));
    if (op_.saves_input) cost_.saved = cost_.input;
    if (reads_fp32()) backward_input("autocast_input", per_token(op_.inputs) * cast_);
    // Two gradients of one tensor meet.
    if (op_.shares_input) {
      backward_input("accumulate_gradient",
                     per_token(op_.inputs) * (3 * (reads_fp32() ? kFp32 : element_)));
    }
    if (trains(false)) backward_weights("bias_gradient", per_element(element_));
    if (trains(true)) {
      cost_.backward_weights.push_back(
          linear_gemm("gemm_weight_gradient", out, in, tokens_, GemmLayout::NT, true));
    }
  }

  /// Whether autocast gives this Linear an fp32 tensor: norms, sums and powers compute in fp32, and
  /// what is not a weight is cast anew for each that reads it.
  [[nodiscard]] bool reads_fp32() const {
    if (!autocast_ || op_.sources.empty()) return false;
    const Operator& source = model_.operators[static_cast<std::size_t>(op_.sources.front())];
    return source.kind == OperatorKind::LayerNorm || source.kind == OperatorKind::RmsNorm ||
           (source.kind == OperatorKind::Activation &&
            model_.modules[source.module.index()].class_name == "NewGELUActivation");
  }
  /// The input, and the bias, which is small. The weight's is TrainingWalk's, which keeps its copy.
  void cast_input() {
    if (reads_fp32()) forward("autocast_input", per_token(op_.inputs) * cast_);
    if (autocast_ && op_.parameters.size() > 1)
      forward("autocast_bias", Bytes(op_.outputs) * cast_);
  }

  /// Input and weight before the forward product, the gradient of the output before the others:
  /// the largest value, the scale, the cast.
  void cast_to_fp8() {
    if (!multiplies_in_fp8()) return;
    const std::int64_t whole = 2 * element_ + 1;
    const bool fused = batch_.kernels == ElementwiseKernels::Compiled;
    const std::int64_t made = fused ? element_ + 1 : whole;  // what a kernel has just made
    const int launches = fused ? 2 : 3;
    forward("fp8_cast", per_token(op_.inputs) * made, launches);
    forward("fp8_cast", Bytes(op_.inputs) * op_.outputs * whole, launches);
    backward_input("fp8_cast", per_element(made), launches);
  }

  /// transformers' RMSNorm: cast to fp32, square, mean, scale by its root, cast back, times weight.
  /// Backward undoes them: weight, cast, two products and their sum for the scale, square (three
  /// passes), sum of both paths, cast; the weight's gradient is a product and a reduction over
  /// tokens.
  void rms_norm() {
    if (fuses_norms()) {
      fused_rms_norm();
      return;
    }
    const std::int64_t square = 2 * kFp32;
    const std::int64_t mean = kFp32;
    const std::int64_t scale = 2 * kFp32;
    const std::int64_t weight = 2 * stream_;
    const std::int64_t cast = autocast_ ? 0 : cast_;
    const int casts = cast > 0 ? 2 : 0;
    forward("rms_norm", per_element(cast + square + mean + scale + cast + weight), 6 + casts);
    const std::int64_t scale_gradients = 2 * kFp32 + 3 * kFp32 + kFp32;
    const std::int64_t square_gradient = std::int64_t{3} * 2 * kFp32;
    const std::int64_t sum = 3 * kFp32;
    backward_input("rms_norm_gradient",
                   per_element(weight + cast + scale_gradients + square_gradient + sum + cast),
                   12 + casts);
    if (trains(false)) backward_weights("rms_norm_weight_gradient", per_element(4 * stream_), 2);
    cost_.saved = per_element(kFp32 + (trains(false) ? element_ : 0));
  }

  [[nodiscard]] bool fuses_norms() const { return batch_.kernels != ElementwiseKernels::Eager; }
  /// Whole blocks are compiled: Inductor fuses across modules.
  [[nodiscard]] bool is_compiled() const { return batch_.kernels == ElementwiseKernels::Compiled; }
  [[nodiscard]] bool fuses_dropout() const {
    return is_compiled() || batch_.kernels == ElementwiseKernels::Megatron;
  }

  /// Reads and writes; backward also sums the weight's gradient in the same kernel, over blocks of
  /// tokens whose sums a second one adds up.
  void fused_rms_norm() {
    const Bytes statistics = per_token(kStatistic);
    forward("rms_norm", per_element(2 * element_) + statistics);
    backward_input("rms_norm_gradient", per_element(3 * element_) + statistics,
                   trains(false) ? 2 : 1);
    cost_.saved = cost_.input;
    cost_.saves_own_input = true;
  }

  /// One fused kernel of PyTorch each way; the weight's gradient reads input and gradient again.
  void layer_norm() {
    const Bytes statistics = per_token(2 * kStatistic);
    forward("layer_norm", per_element(2 * stream_) + statistics);
    backward_input("layer_norm_gradient", per_element(3 * stream_) + statistics);
    if (trains(false)) {
      backward_weights("layer_norm_weight_gradient", per_element(2 * stream_) + statistics);
    }
    if (!op_.saves_input) return;
    cost_.saved = cost_.input;
    cost_.saves_own_input = true;
  }

  /// x cos + rotate_half(x) sin: two products (2x each), negation of one half (x), concatenation
  /// (2x), sum (3x). Backward: the products (4x), negation (x), the halves written into zeros (4x),
  /// two sums (6x). The tables of cosines are small and nothing else is kept.
  void rotary() {
    if (fuses_norms() && batch_.kernels != ElementwiseKernels::Megatron) {
      forward("rotary", per_element(2 * element_));
      backward_input("rotary_gradient", per_element(2 * element_));
      return;
    }
    forward("rotary", per_element(10 * element_), 2 * 5);
    backward_input("rotary_gradient", per_element(15 * element_), 2 * 9);
  }

  void residual_add() {
    if (is_compiled()) {  // part of the norm's kernels, which read the sum once
      forward("residual_add", per_element(2 * element_), 0);
      backward_input("accumulate_gradient", per_element(element_), 0);
      return;
    }
    forward("residual_add", per_element(2 * stream_ + element_));
    backward_input("accumulate_gradient", per_element(3 * stream_));
    if (autocast_) backward_input("autocast_gradient", per_element(cast_));  // the branch's
  }

  void scale() {
    forward("scale", per_element(2 * element_));
    backward_input("scale_gradient", per_element(2 * element_));
  }

  /// T5Attention.compute_bias of transformers, once a stack: 18 kernels in int64 and fp32 find the
  /// bucket of each pair of positions (236 B a pair: difference 8; sign: compare 9, cast 9, times
  /// 16, add 16; absolute 16, compare 9; cast 12, divide, log, divide, times 8 each, cast 12, add
  /// 16; bound 8, minimum 24, where 25, add 24), a lookup reads a row of heads for it, and the mask
  /// is added for each sequence. Backward: the sum over sequences, then as `embedding`, whose table
  /// is small. Kept are the buckets, in int64.
  void position_bias() {
    const Bytes pairs = Bytes(batch_.sequence) * batch_.sequence;
    const Bytes bias = pairs * op_.outputs * element_;  // of one sequence
    forward("position_buckets", pairs * 236, 18);
    forward("position_bias", pairs * 8 + bias * 2);
    forward("position_mask", bias + cost_.output);
    cost_.saved = pairs * 8;
    if (!trains(true)) return;
    if (batch_.micro_batch > 1) backward_weights("position_bias_sum", cost_.output + bias);
    backward_weights("position_bias_gradient", pairs * 8 + bias + pairs * op_.outputs * (2 * kFp32),
                     2);
  }

  // --- mixture of experts (transformers' modeling_mixtral.py: MixtralSparseMoeBlock.forward)

  /// fp32 softmax over the experts, topk, their renormalised weights, one-hot mask of the choice.
  void router() {
    forward("router", per_element(cast_ + 2 * kFp32 + 8), 6);
    backward_input("router_gradient", per_element(3 * kFp32 + cast_), 4);
    cost_.saved = per_element(kFp32);
  }

  /// where() finds the tokens of an expert, index_select copies them; backward adds them back.
  void expert_gather() {
    forward("expert_gather", per_element(2 * element_), 2);
    backward_input("expert_gather_gradient", per_element(3 * element_));
  }

  /// Results times their routing weight, added to the block's output.
  void expert_scatter() {
    forward("expert_scatter", per_element(5 * element_), 2);
    backward_input("expert_scatter_gradient", per_element(5 * element_), 3);
    cost_.saved = cost_.input;
  }

  void activation() {
    if (!(op_.feeds_product && fuses_swiglu())) {  // else the product's kernel does it
      const ElementwiseCode& code = elementwise_code();
      // A power, and what is computed from it, is fp32 under autocast.
      const std::int64_t value = code.class_name == "NewGELUActivation" ? stream_ : element_;
      forward("activation", per_element(code.forward_values * value), code.forward);
      backward_input("activation_gradient", per_element(code.backward_values * value),
                     code.backward);
    }
    cost_.saved = cost_.input;
    write_over_saved();
    scale_gradient();
  }

  [[nodiscard]] const ElementwiseCode& elementwise_code() const {
    if (fuses_dropout()) return kOneKernel;  // Megatron-LM's bias + GELU, Inductor's
    const std::string& name = model_.modules[op_.module.index()].class_name;
    const auto* const found =
        std::find_if(std::begin(kElementwiseCodes), std::end(kElementwiseCodes),
                     [&](const ElementwiseCode& code) { return code.class_name == name; });
    return found == std::end(kElementwiseCodes) ? kOneKernel : *found;
  }

  [[nodiscard]] bool fuses_swiglu() const {
    return batch_.kernels == ElementwiseKernels::Liger ||
           batch_.kernels == ElementwiseKernels::Compiled;
  }
  /// LigerSiLUMulFunction.backward puts the gradients of gate and up in their places.
  void write_over_saved() {
    cost_.gradient_over_saved = batch_.kernels == ElementwiseKernels::Liger;
  }

  void multiply() {
    forward("multiply", per_element(3 * element_));
    if (fuses_swiglu()) {  // gate, up and the gradient in, two gradients out
      backward_input("multiply_gradient", per_element(5 * element_));
    } else {
      backward_input("multiply_gradient", per_element(std::int64_t{2} * 3 * element_), 2);
    }
    cost_.saved = cost_.input;
    // One of the factors is silu's result, which backward computes again from the gate.
    if (fuses_swiglu()) cost_.saved = cost_.output;
    write_over_saved();
    scale_gradient();
  }

  /// A vector that a module listing gives to an element-wise module.
  void scale_gradient() {
    if (trains(false)) backward_weights("scale_gradient", per_element(4 * element_), 2);
  }

  /// Reads and writes the tensor and one byte of mask an element.
  void dropout() {
    if (!batch_.dropout) return;
    // Fused with the addition after it only its mask is moved.
    const std::int64_t moved = fuses_dropout() ? 1 : 2 * element_ + 1;
    const int launches = fuses_dropout() ? 0 : 1;
    forward("dropout", per_element(moved), launches);
    backward_input("dropout_gradient", per_element(moved), launches);
    cost_.saved = per_element(1);
  }

  void cross_entropy() {
    switch (batch_.loss) {
      case LossKind::Plain:
        plain_loss_kernels();
        break;
      case LossKind::Fused:
        fused_loss_kernels();
        break;
      case LossKind::Chunked:
        chunked_loss();
        return;
    }
    whole_loss();
  }

  /// Bytes that a cast of the logits to the loss's type moves, and that the shift's copy does.
  [[nodiscard]] std::int64_t upcast_bytes() const {
    return loss_element() == element_ ? 0 : element_ + kFp32;
  }
  [[nodiscard]] std::int64_t shift_bytes() const {
    return batch_.code == ModelCode::TransformersOld ? 2 * loss_element() : 0;
  }

  /// Logits as computed, cast to fp32, [shifted,] their log-softmax; backward: zeros with one entry
  /// a token, the gradient of log-softmax, [shifted back,] cast back.
  void plain_loss_kernels() {
    const std::int64_t computed = loss_element();
    const int casts = upcast_bytes() > 0 ? 1 : 0;
    const int shifts = shift_bytes() > 0 ? 1 : 0;
    forward("cross_entropy", per_element(upcast_bytes() + shift_bytes() + 2 * computed),
            2 + casts + shifts);
    backward_input("cross_entropy_gradient",
                   per_element(4 * computed + shift_bytes() + upcast_bytes()), 2 + casts + shifts);
  }

  /// One kernel reads the logits, another writes their gradient in their place.
  void fused_loss_kernels() {
    const std::int64_t computed = loss_element();
    const int others = (upcast_bytes() > 0 ? 1 : 0) + (shift_bytes() > 0 ? 1 : 0);
    forward("cross_entropy", per_element(upcast_bytes() + shift_bytes() + computed), 1 + others);
    backward_input("cross_entropy_gradient",
                   per_element(2 * computed + shift_bytes() + upcast_bytes()), 1 + others);
  }

  /// Bytes of an element in the type that the loss computes in.
  [[nodiscard]] std::int64_t loss_element() const {
    const bool upcasts = batch_.code == ModelCode::Present || model_.fp32_logits;
    return upcasts ? kFp32 : element_;
  }

  /// The table of operators.h. The gradient that goes to the head is the walk's, not counted here.
  void whole_loss() {
    const std::int64_t computed = loss_element();
    const bool old = batch_.code == ModelCode::TransformersOld;
    const bool plain = batch_.loss == LossKind::Plain;
    // The name of the logits is bound to their fp32 copy in the old code, which frees the others.
    const std::int64_t raw = computed != element_ && old ? 0 : element_;
    const std::int64_t upcast = computed != element_ ? computed : 0;
    const std::int64_t shifted = old ? computed : 0;
    cost_.logits = cost_.saved = per_element(computed);
    cost_.forward_workspace = per_element(raw + upcast + shifted + (plain ? 0 : -computed));
    // Two gradients, or one and its unshifted copy; the last of what is made is the input's.
    const std::int64_t gradients = plain ? 2 * computed : (old ? computed : 0);
    cost_.backward_workspace = per_element(std::max<std::int64_t>(gradients - element_, 0));
  }

  /// Whether the product that made the logits trains.
  [[nodiscard]] bool head_trains() const {
    if (op_.sources.empty()) return true;
    const Operator& head = model_.operators[static_cast<std::size_t>(op_.sources.front())];
    return std::any_of(head.parameters.begin(), head.parameters.end(),
                       [&](ParameterId id) { return model_.parameters[id.index()].trainable; });
  }

  /// Liger's ops/fused_linear_cross_entropy.py: forward computes the gradients of the head's input
  /// (which stands for the input that a head that trains would keep) and of its weight, if it
  /// trains, over chunks of
  /// next_power_of_2(T / ceil(V / h)) tokens whose logits' gradients replace them.
  void chunked_loss() {
    const std::int64_t hidden = std::max<std::int64_t>(model_.shape.hidden, 1);
    const std::int64_t parts = (op_.outputs + hidden - 1) / hidden;
    std::int64_t chunk = 1;
    while (chunk < (tokens_ + parts - 1) / parts) chunk *= 2;
    // The kernel reads the logits twice, for their sum and for the gradient, which it writes over
    // them. Gradients of chunks are added up in the head's; backward only scales (nothing, by 1).
    const auto chunks = static_cast<int>((tokens_ + chunk - 1) / chunk);
    forward("chunked_cross_entropy", per_element(3 * element_), chunks);
    cost_.saved = (head_trains() ? Bytes(op_.outputs) : Bytes(tokens_)) * hidden * element_;
    cost_.forward_workspace = Bytes(std::min(chunk, tokens_)) * op_.outputs * element_;
    cost_.input = Bytes(0);
  }

  // --- attention

  void attention() {
    // q (2h) and k, v (4 h_kv) stay; the output is the next Linear's input.
    cost_.saved = cost_.input;
    if (batch_.kernels == ElementwiseKernels::Megatron) add_query_key_value_bias();
    repeat_keys();
    if (attends_fused(attention_shape(), batch_)) {
      flash_attention();
    } else {
      unfused_attention();
    }
  }

  [[nodiscard]] Kernel attention_kernel(std::string_view name, Flops work, Bytes bytes,
                                        int launches, bool backward) const {
    Kernel kernel = stream(name, bytes, launches, backward);
    kernel.kernel_class = KernelClass::Attention;
    kernel.flops = work;
    kernel.m = batch_.sequence;
    kernel.n = attention_shape().head_dim;
    kernel.k = batch_.micro_batch * attention_shape().heads;
    kernel.flash = batch_.flash;
    kernel.causal = attention_shape().causal;
    return kernel;
  }

  /// Two products of each pair of query and key that the mask leaves, q k and p v: 2 FLOPs a pair
  /// and element of a head each.
  void flash_attention() {
    const AttentionShape& shape = attention_shape();
    const auto sequence = static_cast<double>(batch_.sequence);
    const auto limit = static_cast<double>(shape.window);
    const double window = shape.window > 0 ? std::min(limit, sequence) : sequence;
    // Keys of a query, on average; a window without a mask reaches to both sides.
    const double keys = shape.causal ? window - window * window / (2 * sequence) : window;
    const Flops work = keys * flops(2, tokens_, shape.heads, shape.head_dim + shape.value_dim);
    const Bytes statistics = per_token(kStatistic) * shape.heads;  // log-sum-exp
    const Bytes tensors = cost_.input + cost_.output;              // q, k, v, o
    cost_.forward.push_back(
        attention_kernel("attention_forward", work, tensors + statistics, 1, false));
    // Also the row sums of o x do before it and the cast of q's fp32 gradient after it.
    cost_.backward_input.push_back(
        attention_kernel("attention_backward", 2.5 * work, tensors * 2, 3, true));
    cost_.saved += statistics;
    cost_.backward_workspace = per_token(shape.heads * shape.head_dim) * kFp32 + statistics;
  }

  /// Megatron-LM's ColumnParallelLinear adds its bias in a kernel of its own: read, written.
  void add_query_key_value_bias() { forward("query_key_value_bias", cost_.input * 2); }

  /// Keys and values of grouped queries as one head for each query's, where the code does that
  /// (repeat_kv of transformers and torchtitan, fms' expand and flatten): read and written;
  /// backward sums each group.
  void repeat_keys() {
    const AttentionShape& shape = attention_shape();
    const bool repeats = !attends_fused(shape, batch_) || batch_.repeats_keys;
    if (!repeats || shape.kv_heads == 1 || shape.kv_heads == shape.heads) return;
    const std::int64_t width = (shape.heads + shape.kv_heads) * (shape.head_dim + shape.value_dim);
    forward("repeat_keys", per_token(width * element_), 2);
    backward_input("repeat_keys_gradient", per_token(width * element_), 2);
  }

  /// bmm, scale, mask, softmax, [dropout,] bmm on a matrix of scores; one number of scores a token
  /// is heads x sequence. The Llama family computes the softmax in fp32 and casts it back.
  void unfused_attention() {
    const AttentionShape& shape = attention_shape();
    const std::int64_t width = shape.head_dim;
    const std::int64_t values = shape.value_dim;
    const Bytes scores = score_elements(shape.heads);
    const std::int64_t rows = tokens_ * shape.heads;
    const std::int64_t matrices = batch_.micro_batch * shape.heads;
    const std::int64_t drop = batch_.dropout ? 2 * element_ + 1 : 0;

    copy_operands();
    cost_.forward.push_back(
        gemm("attention_scores", rows, batch_.sequence, width, false, matrices));
    mask_scores(scores);
    if (batch_.dropout) forward("attention_dropout", scores * drop);
    cost_.forward.push_back(
        gemm("attention_values", rows, values, batch_.sequence, false, matrices));
    forward("merge_heads", cost_.output * 2);

    if (!fuses_dropout()) backward_input("merge_heads", cost_.output * 2);
    cost_.backward_input.push_back(
        gemm("attention_values", rows, batch_.sequence, values, true, matrices));
    cost_.backward_input.push_back(
        gemm("attention_values", rows, values, batch_.sequence, true, matrices));
    if (batch_.dropout) backward_input("attention_dropout", scores * drop);
    mask_gradient(scores);
    cost_.backward_input.push_back(
        gemm("attention_scores", rows, width, batch_.sequence, true, matrices));
    cost_.backward_input.push_back(
        gemm("attention_scores", rows, width, batch_.sequence, true, matrices));
    join_gradients();
    // That of a position bias which all attentions of a stack read.
    if (op_.shares_input) backward_input("accumulate_gradient", scores * (3 * element_));
    keep_scores(scores);
  }

  [[nodiscard]] bool casts_softmax() const {
    return (attention_shape().fp32_softmax || autocast_) && element_ != kFp32;
  }

  /// Heads of q, k and v are not next to each other in memory: matmul copies each operand that is
  /// no matrix with a constant stride between its heads, that is, of more than one sequence.
  void copy_operands() {
    if (fuses_dropout()) return;
    if (batch_.micro_batch > 1) forward("head_copies", cost_.input * 2, 3);
  }

  /// Gradients of q, k and v into one of what they are parts of. Interleaved: three times zeros of
  /// the whole, three copies of a third (of it read and written), two sums: (3 + 2 + 6) of the
  /// whole.
  void join_gradients() {
    const bool split = attention_shape().packing == QueryKeyValue::Split ||
                       batch_.kernels == ElementwiseKernels::Megatron;
    if (is_compiled()) return;
    if (batch_.micro_batch > 1 && !fuses_dropout()) {
      backward_input("head_copies", cost_.input * 2, 3);
    }
    if (split) {
      backward_input("join_gradients", cost_.input * 2);
    } else if (attention_shape().packing == QueryKeyValue::Interleaved) {
      backward_input("join_gradients", cost_.input * 11, 8);
    }
  }

  /// Of the scores, bytes each: scaled (2 x), masked by `ScoreMask`, softmax.
  void mask_scores(Bytes scores) {
    if (fuses_dropout()) {  // in registers
      forward("softmax", scores * (2 * element_));
      return;
    }
    const std::int64_t scale = 2 * element_;
    const std::int64_t softmax = casts_softmax() ? kFp32 : element_;
    const std::int64_t cast = casts_softmax() ? cast_ : 0;
    const int casts = casts_softmax() ? 1 : 0;
    switch (attention_shape().mask) {
      case ScoreMask::Added:
        forward("scale_and_mask", scores * (scale + 2 * element_), 2);
        forward("softmax", scores * (element_ + softmax + cast), 1 + casts);
        return;
      case ScoreMask::Selected:  // the mask's cast to bool and the number are kernels, but small
        forward("scale_and_mask", scores * (scale + 2 * element_ + 1), 4);
        forward("softmax", scores * (element_ + softmax + cast), 1 + casts);
        return;
      case ScoreMask::Filled:  // a cast, a copy of it, the fill; the softmax reads fp32
        forward("scale_and_mask", scores * (cast + 2 * kFp32 + kFp32 + 1), 2 + casts);
        forward("softmax", scores * (2 * kFp32 + cast), 1 + casts);
        return;
    }
  }

  void mask_gradient(Bytes scores) {
    if (fuses_dropout()) {
      backward_input("softmax", scores * (3 * element_));
      return;
    }
    const std::int64_t scale = 2 * element_;
    const std::int64_t softmax = casts_softmax() ? kFp32 : element_;
    const std::int64_t cast = casts_softmax() ? cast_ : 0;
    const int casts = casts_softmax() ? 1 : 0;
    switch (attention_shape().mask) {
      case ScoreMask::Added:  // the sum hands its gradient on
        backward_input("softmax", scores * (cast + 2 * softmax + element_), 1 + casts);
        backward_input("scale_and_mask", scores * scale);
        return;
      case ScoreMask::Selected:  // where() of the gradient and zero
        backward_input("softmax", scores * (cast + 2 * softmax + element_), 1 + casts);
        backward_input("scale_and_mask", scores * (scale + 2 * element_ + 1), 3);
        return;
      case ScoreMask::Filled:
        backward_input("softmax", scores * (cast + 3 * kFp32), 1 + casts);
        backward_input("scale_and_mask", scores * (2 * kFp32 + kFp32 + 1 + cast), 2 + casts);
        return;
    }
  }

  /// Softmax; with dropout its mask and output, else the cast (if any): E5's 2 + 1 + 2 for GPT.
  void keep_scores(Bytes scores) {
    const bool casts = attention_shape().fp32_softmax && element_ != kFp32;
    const std::int64_t softmax = casts ? kFp32 : element_;
    std::int64_t kept = softmax;
    if (batch_.dropout) kept += 1 + element_;
    if (!batch_.dropout && casts) kept += element_;
    cost_.saved += scores * kept;
    cost_.backward_workspace = scores * (softmax + element_);
  }

  const Model& model_;
  const Operator& op_;
  const BatchShape& batch_;
  std::int64_t tokens_;
  std::int64_t element_;
  std::int64_t cast_;  ///< bytes an element that a cast to or from fp32 moves; 0 if there is none
  bool autocast_;
  std::int64_t stream_;  ///< bytes an element of what norms read and give, and of the sums
  OperatorCost cost_;
};

}  // namespace

std::string_view to_string(OperatorKind kind) {
  constexpr std::string_view kNames[] = {
      "Embedding", "Linear",      "RmsNorm",      "LayerNorm",    "Rotary",   "PositionBias",
      "Attention", "ResidualAdd", "Scale",        "Activation",   "Multiply", "CrossEntropy",
      "Dropout",   "Router",      "ExpertGather", "ExpertScatter"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool attends_fused(const AttentionShape& shape, const BatchShape& batch) {
  return shape.always_fused || (shape.fused && batch.flash_attention);
}

std::int64_t operator_tokens(const Model& model, const Operator& op, std::int64_t tokens) {
  if (op.expert == kEveryToken) return tokens;
  const int index = model.modules[op.module.index()].moe_block;
  const MoeBlock& block = model.moe_blocks[static_cast<std::size_t>(index)];
  const std::int64_t routed = tokens * block.experts_per_token;
  if (block.tokens.empty()) {
    return routed / block.experts + (op.expert < routed % block.experts ? 1 : 0);
  }
  return block.tokens[static_cast<std::size_t>(op.expert)];
}

OperatorCost operator_cost(const Model& model, const Operator& op, const BatchShape& batch) {
  check_batch(batch);
  try {
    return CostModel(model, op, batch).cost();
  } catch (const std::overflow_error&) {
    throw ConfigError(format("micro batch {} x sequence {}: the bytes of \"{}\" leave 64 bits",
                             batch.micro_batch, batch.sequence,
                             model.modules[op.module.index()].name));
  }
}

Bytes checkpoint_bytes(const Model& model, const BatchShape& batch) {
  check_batch(batch);
  if (model.shape.hidden < 1) {
    throw ConfigError(
        format("model \"{}\": hidden is not known, expected \"hidden\" in the module "
               "listing: checkpointing keeps that width",
               model.name));
  }
  try {
    return Bytes(batch.tokens()) * model.shape.hidden * dtype_bytes(batch.compute);
  } catch (const std::overflow_error&) {
    throw ConfigError(
        format("micro batch {} x sequence {}: the bytes of a checkpoint leave 64 bits",
               batch.micro_batch, batch.sequence));
  }
}

Flops model_flops_per_token(const Model& model, std::int64_t sequence) {
  return Flops(6 * static_cast<double>(active_parameter_count(model))) +
         flops(12, model.shape.layers, model.shape.hidden, sequence);
}

}  // namespace zerosim
