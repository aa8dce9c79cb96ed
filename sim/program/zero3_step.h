/// \file
/// ZeRO-3's optimizer step over this rank's pieces (spec C8; rules 47 to 50 of
/// deepspeed_recorded.md), one sub-group after the other.
///
///     on the GPU            flatten, cast to fp32, scale, update, cast into the weights; no casts
///                           where the states are bf16, as gradients and weights are
///     offloaded (C8.6 cpu)  scale and update in host memory, cast there, copy to the device;
///                           nothing overlaps
///     weights on the host (C8.8)  cast there
///
/// With `offload_optimizer.ratio` r below 1, the first floor((1 - r) sub-groups) stay on the GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/adam.h"
#include "sim/program/frameworks.h"
#include "sim/program/zero3_partition.h"

namespace zerosim {

/// Part of the pieces for the optimizer step (C8.2).
struct SubGroup {
  std::int64_t elements = 0;  ///< of this rank's pieces
  int tensors = 0;
  std::int64_t largest = 0;  ///< largest piece of one parameter
  bool on_host = false;      ///< master weights, moments, fp32 gradient
};

class Zero3Step {
 public:
  /// \param partition  outlives the object
  Zero3Step(const FrameworkContext& context, const Zero3Partition& partition);

  /// Master weights (C1.6); moments too if a step has gone before that did not overflow.
  void initialize(bool moments);

  /// fp16: looks for infinities, and the ranks tell each other (C8.1), of MiCS those of a shard, as
  /// with its norm (rule 56).
  void check_overflow();
  /// Norms, then update of each sub-group (C8.3, C8.4).
  void update();

  /// Whether the step of this parameter is done on the host.
  [[nodiscard]] bool on_host(ParameterId id) const {
    return sub_groups_[sub_group_of_[id.index()]].on_host;
  }
  /// Elements of the pieces of all trainable parameters.
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  /// Whether gradients are kept on the host.
  [[nodiscard]] bool offloads() const { return offloads_; }

 private:
  void cut_sub_groups();
  void gradient_norm(const SubGroup& group);
  void host_gradient_norm(const SubGroup& group);
  void update_on_device(const SubGroup& group, Adam& adam);
  void update_on_host(const SubGroup& group, Adam& adam);
  void write_weights(const SubGroup& group);
  BufferId temporary(Bytes bytes, std::string_view owner, std::string_view rule);
  void kernel(std::string_view name, Bytes bytes, std::string_view rule, int launches = 1);

  FrameworkContext context_;
  const Model& model_;
  const Strategy& strategy_;
  const Zero3Partition& partition_;
  RankProgramBuilder& builder_;
  GroupId overflow_group_;
  int bytes_;           ///< of an element in the model's type
  int gradient_bytes_;  ///< in the accumulation type
  int state_bytes_;     ///< of master weights, their gradients and moments on the device
  bool offloads_;
  bool pinned_;           ///< `pin_memory`
  bool weights_on_host_;  ///< `offload_param`
  std::vector<SubGroup> sub_groups_;
  std::vector<std::size_t> sub_group_of_;  ///< by parameter; frozen ones are in none
  std::int64_t elements_ = 0;
  std::vector<Adam> adams_;  ///< by sub-group
};

}  // namespace zerosim
