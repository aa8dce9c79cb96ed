/// \file
/// The optimizer on the CPU at ZeRO stages 1 and 2 (spec B6): what a rank does in place of keeping
/// reduced gradients and updating its partition on the device. Messages are those without it (rules
/// 15, 90 of deepspeed_recorded.md).
///
/// Of a group with partitions of S elements, b bytes each in the model's type, a rank keeps on the
/// host (B6.1)
///
///     master 4 S, fp32 gradient 4 S, staging b S, page-locked with `pin_memory`;
///     moments 8 S, ordinary memory;
///
/// and once a buffer of the largest parameter; on the device a buffer of that size. Stage 2 with
/// accumulation keeps each parameter that touches its partition once more on the host, whole, in
/// the model's type; stage 1 accumulates on the device (recorded: ds_s1_bf16_offload_gas4_w2).
///
/// The step: nothing overlaps it (B6.3). Each pass goes through host memory:
///
///     scale 8 S bytes -> Adam 28 S -> cast (4 + b) S -> copy of b S to the device
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/program/adam.h"
#include "sim/program/flat_layout.h"
#include "sim/program/frameworks.h"
#include "sim/program/local_pieces.h"

namespace zerosim {

/// Bytes of an element.
inline constexpr int kFp32 = 4;
inline constexpr int kFp64 = 8;

/// Whether the optimizer's states are on the host. Device "nvme" is read as "cpu" below stage 3
/// (A2).
[[nodiscard]] bool offloads_optimizer(const Strategy& strategy);

/// One pass over the fp32 gradients of `elements` elements in host memory (B6.3, C8.6).
void scale_on_host(RankProgramBuilder& builder, std::int64_t elements, std::string_view rule);

/// A number of the host on its way to the device, or back: pageable, so the host waits.
void copy_number(RankProgramBuilder& builder, StreamId stream, Copy::Direction direction, int bytes,
                 std::string_view rule);

class OptimizerOffload {
 public:
  /// \param layout  outlives the object
  /// \param reduction_stream  where gradients are reduced and copied (0.6)
  OptimizerOffload(const FrameworkContext& context, const FlatLayout& layout,
                   StreamId reduction_stream);

  /// Buffers that live between steps (B6.1); the moments come with the first update (B2.6), or
  /// here if one has gone before.
  void initialize(bool moments);

  /// A gradient that touches my partition has been reduced (B6.2): it is accumulated on the host,
  /// or at the boundary measured, tested and copied into the fp32 gradient.
  void keep(ParameterId id, const MicroBatch& micro);
  /// \name What other ranks keep of a flush beyond my part: the same kernels, copies and waits, but
  /// no memory
  ///@{
  /// Before `keep` of the flush: the first of my tensors takes its sizes on.
  void will_keep(const KeptGradients& others) { others_ = others; }
  /// After it: what is left. \param flushed  the parameters of the flush
  void keep_for_others(std::span<const ParameterId> flushed, const MicroBatch& micro);
  ///@}

  /// \name The step (B6.3), in this order; the caller sends the messages in between
  ///@{
  /// The flag that `keep` has found goes to the device, to be all-reduced.
  void upload_overflow();
  /// Norms of the group's parameters, each read by the host, summed there; the sum goes to the
  /// device.
  void upload_norm(std::size_t group);
  /// The host reads the all-reduced sum.
  void read_norm();
  /// Scales, updates, casts and copies the group's partition.
  void update(std::size_t group);
  /// What `keep` left for the step goes, also after an overflow.
  void finish();
  ///@}

 private:
  [[nodiscard]] Bytes low(std::int64_t elements) const { return Bytes(elements) * bytes_; }
  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return layout_.elements_of[id.index()];
  }
  BufferId on_host(Bytes bytes, MemoryClass memory_class, std::string_view owner, bool pinned);
  [[nodiscard]] KeptGradients with_others(ParameterId id);
  void accumulate(ParameterId id, std::int64_t whole, const MicroBatch& micro);
  void measure_norm(ParameterId id, std::int64_t own);
  void test_overflow(ParameterId id, std::int64_t whole);
  void copy_to_fp32_gradient(ParameterId id, std::int64_t own);
  void move_accumulated(std::int64_t whole, const MicroBatch& micro);
  void keep_tensor(std::int64_t whole, std::int64_t own, const MicroBatch& micro);
  void norm_kernel(std::int64_t own);
  void overflow_kernel(std::int64_t whole);
  void cast_kernel(std::int64_t own);
  [[nodiscard]] int norms_to_read(std::size_t group) const;
  void kernel(std::string_view name, Bytes bytes, int launches = 1);
  void copy(Copy::Direction direction, Bytes bytes, std::string_view rule);
  void pass(std::string_view name, Bytes bytes);

  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  const FlatLayout& layout_;
  Rank rank_;
  StreamId reduction_stream_;
  int bytes_;         ///< of an element in the model's type
  bool pinned_;       ///< `pin_memory`
  bool accumulates_;  ///< on the host
  std::int64_t largest_parameter_ = 0;
  std::vector<BufferId> accumulated_;  ///< on the host, by parameter
  std::vector<Adam> adams_;            ///< by optimizer group
  std::vector<BufferId> norms_;        ///< on the device, by parameter: one fp64 number each
  KeptGradients others_;               ///< that nothing has been done for yet
  std::vector<ParameterId> measured_;  ///< by any rank in this step; if one stands for all
};

}  // namespace zerosim
