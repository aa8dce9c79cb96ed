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
        tokens_(batch.tokens()),
        element_(dtype_bytes(batch.compute)),
        cast_(element_ == kFp32 ? 0 : element_ + kFp32) {}

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
      case OperatorKind::Attention:
        attention();
        break;
      case OperatorKind::ResidualAdd:
        residual_add();
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
    }
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
      cost_.input = per_token(op_.outputs + 2 * key_width()) * element_;
    }
  }

  /// Whether the module of the operator owns a trainable matrix, or one of fewer dimensions.
  [[nodiscard]] bool trains(bool matrix) const {
    const Module& module = model_.modules[op_.module.index()];
    return std::any_of(module.parameters.begin(), module.parameters.end(), [&](ParameterId id) {
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
    return kernel;
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
    cost_.forward.push_back(gemm("gemm_forward", tokens_, out, in, false));
    cost_.backward_input.push_back(gemm("gemm_input_gradient", tokens_, in, out, true));
    if (op_.saves_input) {
      cost_.saved = cost_.input;
    } else {  // two gradients of one tensor meet
      backward_input("accumulate_gradient", cost_.input * 3);
    }
    if (trains(false)) backward_weights("bias_gradient", per_element(element_));
    if (trains(true)) {
      cost_.backward_weights.push_back(gemm("gemm_weight_gradient", out, in, tokens_, true));
    }
  }

  /// transformers' RMSNorm: cast to fp32, square, mean, scale by its root, cast back, times weight.
  /// Backward undoes them: weight, cast, two products and their sum for the scale, square (three
  /// passes), sum of both paths, cast; the weight's gradient is a product and a reduction over
  /// tokens.
  void rms_norm() {
    const std::int64_t square = 2 * kFp32;
    const std::int64_t mean = kFp32;
    const std::int64_t scale = 2 * kFp32;
    const std::int64_t weight = 2 * element_;
    forward("rms_norm", per_element(cast_ + square + mean + scale + cast_ + weight), 4);
    const std::int64_t scale_gradients = 2 * kFp32 + 3 * kFp32 + kFp32;
    const std::int64_t square_gradient = std::int64_t{3} * 2 * kFp32;
    const std::int64_t sum = 3 * kFp32;
    backward_input("rms_norm_gradient",
                   per_element(weight + cast_ + scale_gradients + square_gradient + sum + cast_),
                   7);
    if (trains(false)) backward_weights("rms_norm_weight_gradient", per_element(4 * element_), 2);
    cost_.saved = per_element(kFp32 + element_);
  }

  /// One fused kernel of PyTorch each way; the weight's gradient reads input and gradient again.
  void layer_norm() {
    const Bytes statistics = per_token(2 * kStatistic);
    forward("layer_norm", per_element(2 * element_) + statistics);
    backward_input("layer_norm_gradient", per_element(3 * element_) + statistics);
    if (trains(false)) {
      backward_weights("layer_norm_weight_gradient", per_element(2 * element_) + statistics);
    }
    cost_.saved = cost_.input;
  }

  /// x cos + rotate_half(x) sin: two products (2x each), negation of one half (x), concatenation
  /// (2x), sum (3x). Backward: the products (4x), negation (x), the halves written into zeros (4x),
  /// two sums (6x). The tables of cosines are small and nothing else is kept.
  void rotary() {
    forward("rotary", per_element(10 * element_), 5);
    backward_input("rotary_gradient", per_element(15 * element_), 7);
  }

  void residual_add() {
    forward("residual_add", per_element(3 * element_));
    backward_input("accumulate_gradient", per_element(3 * element_));
  }

  void activation() {
    forward("activation", per_element(2 * element_));
    backward_input("activation_gradient", per_element(3 * element_));
    cost_.saved = cost_.input;
    scale_gradient();
  }

  void multiply() {
    forward("multiply", per_element(3 * element_));
    backward_input("multiply_gradient", per_element(std::int64_t{2} * 3 * element_), 2);
    cost_.saved = cost_.input;
    scale_gradient();
  }

  /// A vector that a module listing gives to an element-wise module.
  void scale_gradient() {
    if (trains(false)) backward_weights("scale_gradient", per_element(4 * element_), 2);
  }

  /// Reads and writes the tensor and one byte of mask an element.
  void dropout() {
    if (!batch_.dropout) return;
    forward("dropout", per_element(2 * element_ + 1));
    backward_input("dropout_gradient", per_element(2 * element_ + 1));
    cost_.saved = per_element(1);
  }

  /// Logits as computed, cast to fp32, their log-softmax; backward: zeros with one entry a token,
  /// the gradient of log-softmax, cast back.
  void cross_entropy() {
    forward("cross_entropy", per_element(cast_ + 2 * kFp32), 3);
    backward_input("cross_entropy_gradient", per_element(kFp32 + 3 * kFp32 + cast_), 3);
    const std::int64_t fp32_copy = element_ == kFp32 ? 0 : kFp32;
    cost_.logits = per_element(element_ + fp32_copy + kFp32);
    cost_.saved = cost_.logits;
    cost_.backward_workspace = per_element(kFp32);
  }

  // --- attention

  [[nodiscard]] std::int64_t key_width() const {
    return model_.shape.kv_heads * model_.shape.head_dim;
  }

  void attention() {
    // q (2h) and k, v (4 h_kv) stay; the output is the next Linear's input.
    cost_.saved = cost_.input;
    if (batch_.flash_attention) {
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
    kernel.n = model_.shape.head_dim;
    kernel.k = batch_.micro_batch * model_.shape.heads;
    return kernel;
  }

  /// Two products of each pair of query and key that the mask leaves: 4 FLOPs a pair and head
  /// element.
  void flash_attention() {
    const auto sequence = static_cast<double>(batch_.sequence);
    const auto limit = static_cast<double>(op_.inputs);
    const double window = op_.inputs > 0 ? std::min(limit, sequence) : sequence;
    const double keys = window - window * window / (2 * sequence);  // of a query, on average
    const Flops work = keys * flops(4, tokens_, op_.outputs, 1);
    const Bytes statistics = per_token(kStatistic) * model_.shape.heads;  // log-sum-exp
    const Bytes tensors = cost_.input + cost_.output;                     // q, k, v, o
    cost_.forward.push_back(
        attention_kernel("attention_forward", work, tensors + statistics, 1, false));
    // Also the row sums of o x do before it and the cast of q's fp32 gradient after it.
    cost_.backward_input.push_back(
        attention_kernel("attention_backward", 2.5 * work, tensors * 2, 3, true));
    cost_.saved += statistics;
    cost_.backward_workspace = per_element(kFp32) + statistics;
  }

  /// bmm, scale, mask, softmax, [dropout,] bmm on a matrix of scores; one number of scores a token
  /// is heads x sequence. The Llama family computes the softmax in fp32 and casts it back.
  void unfused_attention() {
    const std::int64_t heads = model_.shape.heads;
    const std::int64_t width = model_.shape.head_dim;
    const Bytes scores = per_token(heads) * batch_.sequence;  // elements
    const std::int64_t rows = tokens_ * heads;
    const std::int64_t matrices = batch_.micro_batch * heads;
    const bool fp32_softmax = model_.family != "gpt2" && element_ != kFp32;
    const std::int64_t softmax = fp32_softmax ? kFp32 : element_;
    const std::int64_t cast = fp32_softmax ? cast_ : 0;
    const std::int64_t drop = batch_.dropout ? 2 * element_ + 1 : 0;

    cost_.forward.push_back(
        gemm("attention_scores", rows, batch_.sequence, width, false, matrices));
    forward("scale_and_mask", scores * (4 * element_), 2);
    forward("softmax", scores * (element_ + softmax + cast), fp32_softmax ? 2 : 1);
    if (batch_.dropout) forward("attention_dropout", scores * drop);
    cost_.forward.push_back(
        gemm("attention_values", rows, width, batch_.sequence, false, matrices));

    cost_.backward_input.push_back(
        gemm("attention_values", rows, batch_.sequence, width, true, matrices));
    cost_.backward_input.push_back(
        gemm("attention_values", rows, width, batch_.sequence, true, matrices));
    if (batch_.dropout) backward_input("attention_dropout", scores * drop);
    backward_input("softmax", scores * (cast + 2 * softmax + element_), fp32_softmax ? 2 : 1);
    backward_input("scale_and_mask", scores * (4 * element_), 2);
    cost_.backward_input.push_back(
        gemm("attention_scores", rows, width, batch_.sequence, true, matrices));
    cost_.backward_input.push_back(
        gemm("attention_scores", rows, width, batch_.sequence, true, matrices));

    // Softmax; with dropout its mask and output, else the cast (if any): E5's 2 + 1 + 2 for GPT.
    std::int64_t kept = softmax;
    if (batch_.dropout) kept += 1 + element_;
    if (!batch_.dropout && fp32_softmax) kept += element_;
    cost_.saved += scores * kept;
    cost_.backward_workspace = scores * (softmax + element_);
  }

  const Model& model_;
  const Operator& op_;
  const BatchShape& batch_;
  std::int64_t tokens_;
  std::int64_t element_;
  std::int64_t cast_;  ///< bytes an element that a cast to or from fp32 moves; 0 if there is none
  OperatorCost cost_;
};

}  // namespace

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
  return Flops(6 * static_cast<double>(parameter_count(model))) +
         flops(12, model.shape.layers, model.shape.hidden, sequence);
}

}  // namespace zerosim
