/// \file
/// What each operator costs for a given batch: kernels with FLOPs and bytes, and tensors kept for backward.
///
/// Source: spec/kernels.md section 1 (FLOPs and bytes), zero_schedule.md E5 (activations). Device-free:
/// seconds are the engine's business (sim/engine/kernel_time.h).
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

/// One device kernel, or several of one class that run back to back.
struct Kernel {
  KernelClass kernel_class = KernelClass::Memory;
  std::string_view name;  ///< string literal, e.g. "gemm_forward"
  Flops flops;
  Bytes bytes;  ///< read + written in device memory
  std::int64_t m = 0, n = 0, k = 0;
  int launches = 1;  ///< kernels that eager PyTorch launches for it: host time
  Dtype dtype = Dtype::Bf16;
  bool backward = false;  ///< fused attention runs slower backward
};

/// What is trained with: a micro batch as one GPU sees it.
struct BatchShape {
  std::int64_t micro_batch = 1;  ///< sequences
  std::int64_t sequence = 0;     ///< tokens each
  Dtype compute = Dtype::Bf16;
  bool flash_attention = true;
  bool dropout = false;
  [[nodiscard]] std::int64_t tokens() const { return micro_batch * sequence; }
};

struct OperatorCost {
  std::vector<Kernel> forward;
  std::vector<Kernel> backward_input;    ///< gradient of the operator's input
  std::vector<Kernel> backward_weights;  ///< gradients of its parameters
  Bytes saved;     ///< newly kept from this operator's forward to its backward
  Bytes input;     ///< size of its input (= of that gradient)
  Bytes output;    ///< size of its output (= of that gradient)
  Bytes logits;    ///< part of `saved` that is logits and their fp32 copies (E5)
  Bytes backward_workspace;  ///< extra while its backward runs (fp32 gradient of the logits)
};

/// \throws ConfigError  if the batch is not positive.
[[nodiscard]] OperatorCost operator_cost(const Model& model, const Operator& op,
                                         const BatchShape& batch);

/// Bytes that a checkpointed block keeps: its input, tokens x hidden.
[[nodiscard]] Bytes checkpoint_bytes(const Model& model, const BatchShape& batch);

/// FLOPs of one token, forward and backward, recomputation not counted:
/// 6 N + 12 L h s, the convention of PaLM and of data/cases/README.md (`throughput.tflops_per_gpu`).
[[nodiscard]] Flops model_flops_per_token(const Model& model, std::int64_t sequence);

}  // namespace zerosim
