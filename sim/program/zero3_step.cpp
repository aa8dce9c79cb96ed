#include "sim/program/zero3_step.h"

#include <algorithm>
#include <cmath>

#include "sim/program/model_loading.h"
#include "sim/program/optimizer_offload.h"

namespace zerosim {

namespace {

using Direction = Copy::Direction;

}  // namespace

Zero3Step::Zero3Step(const FrameworkContext& context, const Zero3Partition& partition)
    : context_(context),
      model_(context.model),
      strategy_(context.strategy),
      partition_(partition),
      builder_(context.builder),
      overflow_group_(partition.replicas() > 1 ? partition.group() : context.data_parallel),
      bytes_(dtype_bytes(model_dtype(strategy_.precision))),
      gradient_bytes_(dtype_bytes(strategy_.grad_accum_dtype)),
      state_bytes_(strategy_.bf16_states ? dtype_bytes(Dtype::Bf16) : kFp32),
      offloads_(offloads_optimizer(strategy_)),
      pinned_(strategy_.zero.offload_optimizer.pin_memory),
      weights_on_host_(strategy_.zero.offload_param.device != OffloadDevice::None),
      sub_group_of_(model_.parameters.size()) {
  cut_sub_groups();
  const double on_device = offloads_ ? 1 - strategy_.zero.offload_optimizer.ratio : 1;
  const auto first_on_host =
      static_cast<std::size_t>(std::floor(on_device * static_cast<double>(sub_groups_.size())));
  const Dtype states = strategy_.bf16_states ? Dtype::Bf16 : Dtype::F32;
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
    sub_groups_[i].on_host = i >= first_on_host;
    elements_ += sub_groups_[i].elements;
    adams_.emplace_back(builder_, strategy_.optimizer,
                        AdamTensors{{sub_groups_[i].elements}, states, sub_groups_[i].on_host},
                        sub_groups_[i].on_host ? "C8.6" : "C8.4");
  }
}

void Zero3Step::cut_sub_groups() {
  for (const std::vector<ParameterId>& members :
       optimizer_groups(model_, strategy_.optimizer_groups)) {
    bool open = false;
    for (const ParameterId id : members) {
      if (!open) {
        sub_groups_.emplace_back();
      }
      SubGroup& group = sub_groups_.back();
      const std::int64_t piece = partition_.piece(model_.parameters[id.index()].elements);
      group.elements += piece;
      group.largest = std::max(group.largest, piece);
      ++group.tensors;
      sub_group_of_[id.index()] = sub_groups_.size() - 1;
      open = group.elements < strategy_.zero.sub_group_size;
    }
  }
}

void Zero3Step::initialize(bool moments) {
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
    const SubGroup& group = sub_groups_[i];
    const Bytes fp32 = Bytes(group.elements) * kFp32;
    if (group.on_host) {
      builder_.allocate_on_host(fp32, MemoryClass::OptimizerStates, "master_weights", pinned_,
                                "C1.6");
      builder_.allocate_on_host(fp32, MemoryClass::Gradients, "fp32_gradients", pinned_, "C8.6");
    } else {
      allocate_master_weights(context_, group.elements, "C1.6");
      if (offloads_) {
        builder_.allocate(fp32, MemoryClass::Gradients, "fp32_gradients", kComputeStream, "C8.6");
      }
    }
    if (moments) adams_[i].allocate_moments();
  }
}

// Masks of all gradient pieces, one byte an element: is infinite (of an absolute copy), is no
// number.
void Zero3Step::check_overflow() {
  const Bytes bytes = Bytes(elements_) * (3 * gradient_bytes_ + 3);
  if (offloads_) {
    builder_.host_pass({"overflow_check", bytes}, "C8.1");
    copy_number(builder_, kComputeStream, Direction::HostToDevice, 1, "C8.1");
  } else {
    BufferId masks = temporary(Bytes(elements_) * (1 + gradient_bytes_), "overflow_masks", "C8.1");
    kernel("overflow_check", bytes, "C8.1", 4);
    builder_.free(masks, "C8.1");
  }
  if (!partition_.alone()) {
    builder_.all_reduce(kComputeStream, overflow_group_, 1, Dtype::U8, "C8.1", ReduceOp::Max);
  }
  builder_.host_wait_stream(kComputeStream, "0.7");
}

void Zero3Step::update() {
  for (const SubGroup& group : sub_groups_) {
    offloads_ ? host_gradient_norm(group) : gradient_norm(group);
  }
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
    const SubGroup& group = sub_groups_[i];
    group.on_host ? update_on_host(group, adams_[i]) : update_on_device(group, adams_[i]);
  }
}

void Zero3Step::gradient_norm(const SubGroup& group) {  // C8.3
  BufferId fp64 = temporary(Bytes(group.largest) * kFp64, "fp64_norm", "C8.3");
  kernel("gradient_norm", Bytes(group.elements) * (gradient_bytes_ + 2 * kFp64), "C8.3",
         3 * group.tensors);
  builder_.free(fp64, "C8.3");
  if (!partition_.alone()) {
    builder_.all_reduce(kComputeStream, partition_.group(), 1, Dtype::F64, "C8.3");
  }
}

// The norms that the backward has left on the device (C8.6), read one by one and summed.
void Zero3Step::host_gradient_norm(const SubGroup& group) {
  for (int i = 0; i < group.tensors; ++i) {
    copy_number(builder_, kComputeStream, Direction::DeviceToHost, kFp64, "C8.6");
  }
  copy_number(builder_, kComputeStream, Direction::HostToDevice, kFp32, "C8.6");
  if (!partition_.alone()) {
    builder_.all_reduce(kComputeStream, partition_.group(), 1, Dtype::F32, "C8.6");
  }
  copy_number(builder_, kComputeStream, Direction::DeviceToHost, kFp32, "C8.6");
}

void Zero3Step::update_on_device(const SubGroup& group, Adam& adam) {  // C8.4
  const Bytes state = Bytes(group.elements) * state_bytes_;
  BufferId gradient;
  if (!offloads_) {  // else it is there
    const Bytes accumulated = Bytes(group.elements) * gradient_bytes_;
    gradient = temporary(accumulated, "flat_gradients", "C8.4");
    kernel("flatten", accumulated * 2, "C8.4");
    if (gradient_bytes_ != state_bytes_) {
      BufferId flat = gradient;
      gradient = temporary(state, "fp32_gradients", "C8.4");
      kernel("cast", accumulated + state, "C8.4");
      builder_.free(flat, "C8.4");
    }
  }
  kernel("scale", state * 2, "C8.4");
  adam.step();
  write_weights(group);
  builder_.free(gradient, "C8.4");
}

// From the master weights on the device.
void Zero3Step::write_weights(const SubGroup& group) {
  const Bytes low = Bytes(group.elements) * bytes_;
  if (!weights_on_host_) {
    kernel("copy_to_weights", Bytes(group.elements) * state_bytes_ + low, "C8.4");
    return;
  }
  BufferId cast = temporary(low, "cast_weights", "C8.8");
  kernel("cast_weights", Bytes(group.elements) * state_bytes_ + low, "C8.8");
  Copy copy;
  copy.direction = Direction::DeviceToHost;
  copy.bytes = low;
  copy.pinned = strategy_.zero.offload_param.pin_memory;
  // Of page-locked memory too the host waits: the copy is not asked for as non-blocking.
  builder_.host_wait(builder_.copy(kComputeStream, copy, "C8.8"), "C8.8");
  builder_.free(cast, "C8.8");
}

// The cast goes into pageable memory, from which a blocking copy takes it.
void Zero3Step::update_on_host(const SubGroup& group, Adam& adam) {
  scale_on_host(builder_, group.elements, "C8.6");
  adam.step();
  const Bytes low = Bytes(group.elements) * bytes_;
  const HostPass cast{"cast_weights", Bytes(group.elements) * kFp32 + low, low};
  if (weights_on_host_) {  // into memory that is there
    builder_.host_pass({cast.name, cast.bytes, Bytes(0)}, "C8.8");
    return;
  }
  BufferId pageable = builder_.allocate_on_host(low, MemoryClass::TemporaryBuffers, "cast_weights",
                                                /*pinned=*/false, "C8.6");
  builder_.host_pass(cast, "C8.6");
  Copy copy;
  copy.bytes = low;
  copy.pinned = false;
  builder_.copy(kComputeStream, copy, "C8.6");
  builder_.free(pageable, "C8.6");
}

BufferId Zero3Step::temporary(Bytes bytes, std::string_view owner, std::string_view rule) {
  return builder_.allocate(bytes, MemoryClass::TemporaryBuffers, owner, kComputeStream, rule);
}

void Zero3Step::kernel(std::string_view name, Bytes bytes, std::string_view rule, int launches) {
  builder_.kernel(kComputeStream, optimizer_kernel(name, bytes, launches), HostWork::KernelLaunch,
                  rule);
}

}  // namespace zerosim
