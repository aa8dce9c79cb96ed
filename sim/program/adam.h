/// \file
/// Adam on one rank: what its step allocates, launches and frees (spec E4, spec/kernels.md section
/// 1, data/cases/README.md "optimizer").
///
///     kind           moved per fp32 element                  temporaries
///     fused          28 B: weight, moments read and          none
///                    written, gradient read
///     for-each       70 B: a dozen passes over lists         roots of all second moments at once
///     single tensor  90 B                                    tensor by tensor, root and quotient
///     8-bit          16 B: moments of one byte               none
///
/// Moments come with the first step, tensor by tensor, before the update (B2.6, C1.6): exp_avg,
/// then exp_avg_sq, of the tensor's type (8-bit: one byte).
///
/// Not modelled: the copy that Adam with L2 decay (not AdamW) makes of gradients; 8-bit Adam's
/// scales (4 bytes a block of 256 elements).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/program/builder.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// What one call of the optimizer updates.
struct AdamTensors {
  std::vector<std::int64_t> elements;  ///< of each tensor
  Dtype dtype = Dtype::F32;            ///< of weights, gradients and moments
  bool on_host = false;                ///< in ordinary host memory: a pass of the host thread
};

/// Read and written by one update of all tensors.
[[nodiscard]] Bytes adam_bytes(OptimizerKind kind, const AdamTensors& tensors);

class Adam {
 public:
  /// \param rule     of its operations.
  Adam(RankProgramBuilder& builder, OptimizerKind kind, AdamTensors tensors, std::string_view rule);

  /// Nothing if they are there.
  void allocate_moments();
  /// With the moments, if they are not there yet.
  void step();

 private:
  BufferId allocate(Bytes bytes, MemoryClass memory_class, std::string_view owner);
  void step_on_device();
  void step_on_host();
  void step_tensor_by_tensor();
  [[nodiscard]] std::vector<BufferId> allocate_roots();
  void launch(std::string_view name, Bytes bytes, int launches);

  RankProgramBuilder* builder_;
  OptimizerKind kind_;
  AdamTensors tensors_;
  std::string_view rule_;
  bool has_moments_ = false;
};

}  // namespace zerosim
