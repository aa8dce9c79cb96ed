// The optimizer on the CPU at ZeRO stages 1 and 2: spec B6.

#include "sim/program/optimizer_offload.h"

#include <algorithm>

namespace zerosim {

namespace {

using Direction = Copy::Direction;

// The test for overflow: is nan, is inf, either: a byte an element each (B5 item 1).
constexpr int kMasks = 3;

}  // namespace

bool offloads_optimizer(const Strategy& strategy) {
  return strategy.framework == Framework::DeepSpeed &&
         strategy.zero.offload_optimizer.device != OffloadDevice::None;
}

void scale_on_host(RankProgramBuilder& builder, std::int64_t elements, std::string_view rule) {
  builder.host_pass({"scale", Bytes(elements) * (std::int64_t{2} * kFp32)}, rule);
}

void copy_number(RankProgramBuilder& builder, StreamId stream, Copy::Direction direction, int bytes,
                 std::string_view rule) {
  Copy copy;
  copy.direction = direction;
  copy.bytes = Bytes(bytes);
  copy.pinned = false;
  builder.copy(stream, copy, rule);
}

OptimizerOffload::OptimizerOffload(const FrameworkContext& context, const FlatLayout& layout,
                                   StreamId reduction_stream)
    : strategy_(context.strategy),
      builder_(context.builder),
      layout_(layout),
      rank_(context.rank),
      reduction_stream_(reduction_stream),
      bytes_(dtype_bytes(model_dtype(strategy_.precision))),
      pinned_(strategy_.zero.offload_optimizer.pin_memory),
      accumulates_(strategy_.zero.stage == 2 && strategy_.grad_accum > 1),
      accumulated_(layout.elements_of.size()),
      norms_(layout.elements_of.size()) {
  for (const FlatGroup& group : layout_.groups) {
    adams_.emplace_back(builder_, strategy_.optimizer,
                        AdamTensors{{group.partition}, Dtype::F32, /*on_host=*/true}, "B6.3");
    for (const ParameterId id : group.order) {
      largest_parameter_ = std::max(largest_parameter_, elements(id));
    }
  }
}

BufferId OptimizerOffload::on_host(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                                   bool pinned) {
  return builder_.allocate_on_host(bytes, memory_class, owner, pinned, "B6.1");
}

void OptimizerOffload::initialize(bool moments) {
  for (const FlatGroup& group : layout_.groups) {
    const std::int64_t s = group.partition;
    on_host(Bytes(s) * kFp32, MemoryClass::OptimizerStates, "master_weights", pinned_);
    on_host(Bytes(s) * kFp32, MemoryClass::Gradients, "fp32_gradients", pinned_);
    on_host(low(s), MemoryClass::TemporaryBuffers, "weights_staging", pinned_);
  }
  on_host(low(largest_parameter_), MemoryClass::TemporaryBuffers, "gradient_staging", pinned_);
  builder_.allocate(low(largest_parameter_), MemoryClass::TemporaryBuffers, "offload_gradient",
                    kComputeStream, "B6.1");
  for (Adam& adam : adams_) {
    if (moments) adam.allocate_moments();
  }
}

void OptimizerOffload::keep(ParameterId id, const MicroBatch& micro) {
  const KeptGradients sizes = with_others(id);
  if (accumulates_) {
    accumulate(id, sizes.whole, micro);
  }
  if (micro.boundary) {
    measure_norm(id, sizes.own);
    test_overflow(id, sizes.whole);
    copy_to_fp32_gradient(id, sizes.own);
  }
}

/// What kernels do of this tensor and, once in a flush, of others: but for tensors that are left to
/// `keep_for_others`, an element each.
KeptGradients OptimizerOffload::with_others(ParameterId id) {
  const KeptGradients sizes{elements(id) + others_.whole - others_.tensors,
                            layout_.elements_on(id, rank_.value()) + others_.own - others_.tensors,
                            1};
  others_.whole = others_.own = others_.tensors;
  return sizes;
}

// The whole parameter, although a part of it may be another rank's. At the boundary the sum goes
// straight into the fp32 gradient.
void OptimizerOffload::accumulate(ParameterId id, std::int64_t whole, const MicroBatch& micro) {
  BufferId& kept = accumulated_[id.index()];
  if (!kept.valid()) {
    kept = on_host(low(elements(id)), MemoryClass::Gradients, "accumulated_gradient", pinned_);
  }
  move_accumulated(whole, micro);
}

void OptimizerOffload::move_accumulated(std::int64_t whole, const MicroBatch& micro) {
  if (micro.index > 0) {
    copy(Direction::HostToDevice, low(whole), "B6.2");
    kernel("accumulate", low(whole) * 3);
  }
  if (!micro.boundary) {
    copy(Direction::DeviceToHost, low(whole), "B6.2");
  }
}

void OptimizerOffload::keep_for_others(std::span<const ParameterId> flushed,
                                       const MicroBatch& micro) {
  if (micro.boundary) {
    measured_.insert(measured_.end(), flushed.begin(), flushed.end());
  }
  // Tensor by tensor, as the host waits for each, and with it for the copy of the one before: all
  // but the first as small as can be.
  for (; others_.tensors > 0; --others_.tensors) {
    const std::int64_t small = others_.tensors - 1;
    keep_tensor(others_.whole - small, others_.own - small, micro);
    others_.whole = others_.own = small;
  }
  others_ = {};
}

void OptimizerOffload::keep_tensor(std::int64_t whole, std::int64_t own, const MicroBatch& micro) {
  if (accumulates_) {
    move_accumulated(whole, micro);
  }
  if (!micro.boundary) {
    return;
  }
  for (const std::string_view owner :
       {"fp64_norm", "gradient_norm", "overflow_check", "fp32_gradient"}) {
    builder_.visit_allocator(owner, reduction_stream_, "B6.2");
  }
  norm_kernel(own);
  overflow_kernel(whole);
  copy_number(builder_, reduction_stream_, Direction::DeviceToHost, kFp32, "B6.2");
  cast_kernel(own);
  copy(Direction::DeviceToHost, Bytes(own) * kFp32, "B6.2");
}

// An fp64 copy of my slice; the norm stays on the device until the step.
void OptimizerOffload::measure_norm(ParameterId id, std::int64_t own) {
  const std::int64_t mine = layout_.elements_on(id, rank_.value());
  BufferId fp64 = builder_.allocate(Bytes(mine) * kFp64, MemoryClass::TemporaryBuffers, "fp64_norm",
                                    reduction_stream_, "B6.2");
  norm_kernel(own);
  builder_.free(fp64, "B6.2");
  builder_.free(norms_[id.index()], "B6.2");
  norms_[id.index()] = builder_.allocate(Bytes(kFp64), MemoryClass::TemporaryBuffers,
                                         "gradient_norm", reduction_stream_, "B6.2");
}

void OptimizerOffload::norm_kernel(std::int64_t own) {
  kernel("gradient_norm", Bytes(own) * (bytes_ + 2 * kFp64), 2);
}

// As without offload (B5 item 1), of the whole parameter, and the host reads the answer.
void OptimizerOffload::test_overflow(ParameterId id, std::int64_t whole) {
  BufferId temporary =
      builder_.allocate(Bytes(elements(id)) * (kFp32 + kMasks), MemoryClass::TemporaryBuffers,
                        "overflow_check", reduction_stream_, "B6.2");
  overflow_kernel(whole);
  copy_number(builder_, reduction_stream_, Direction::DeviceToHost, kFp32, "B6.2");
  builder_.free(temporary, "B6.2");
}

void OptimizerOffload::overflow_kernel(std::int64_t whole) {
  kernel("overflow_check", Bytes(whole) * (bytes_ + 3 * kFp32 + kMasks), 6);
}

void OptimizerOffload::copy_to_fp32_gradient(ParameterId id, std::int64_t own) {
  const std::int64_t mine = layout_.elements_on(id, rank_.value());
  BufferId fp32;
  if (bytes_ != kFp32) {
    fp32 = builder_.allocate(Bytes(mine) * kFp32, MemoryClass::TemporaryBuffers, "fp32_gradient",
                             reduction_stream_, "B6.2");
  }
  cast_kernel(own);
  copy(Direction::DeviceToHost, Bytes(own) * kFp32, "B6.2");
  builder_.free(fp32, "B6.2");
}

void OptimizerOffload::cast_kernel(std::int64_t own) {
  if (bytes_ != kFp32) {
    kernel("cast", Bytes(own) * (bytes_ + kFp32));
  }
}

void OptimizerOffload::upload_overflow() {
  copy_number(builder_, kComputeStream, Direction::HostToDevice, 1, "B6.3");
}

void OptimizerOffload::upload_norm(std::size_t group) {
  for (int i = norms_to_read(group); i > 0; --i) {
    copy_number(builder_, kComputeStream, Direction::DeviceToHost, kFp64, "B6.3");
  }
  copy_number(builder_, kComputeStream, Direction::HostToDevice, kFp32, "B6.3");
}

int OptimizerOffload::norms_to_read(std::size_t group) const {
  int mine = 0;
  std::vector<ParameterId> of_others;
  for (const ParameterId id : layout_.groups[group].order) {
    if (norms_[id.index()].valid()) ++mine;
  }
  for (const ParameterId id : measured_) {
    if (layout_.group_of[id.index()] == static_cast<int>(group)) of_others.push_back(id);
  }
  return std::max(mine, most_kept_gradients(layout_, of_others).tensors);
}

void OptimizerOffload::read_norm() {
  copy_number(builder_, kComputeStream, Direction::DeviceToHost, kFp32, "B6.3");
}

void OptimizerOffload::update(std::size_t group) {
  const std::int64_t s = layout_.groups[group].partition;
  scale_on_host(builder_, s, "B6.3");
  adams_[group].step();
  pass("cast_weights", Bytes(s) * (kFp32 + bytes_));
  Copy weights;
  weights.bytes = low(s);
  weights.pinned = pinned_;
  builder_.copy(kComputeStream, weights, "B6.3");
}

void OptimizerOffload::finish() {
  for (BufferId& norm : norms_) {
    builder_.free(norm, "B6.3");
  }
  measured_.clear();
}

void OptimizerOffload::kernel(std::string_view name, Bytes bytes, int launches) {
  builder_.kernel(reduction_stream_, memory_kernel(name, bytes, launches), HostWork::BackwardLaunch,
                  "B6.2");
}

void OptimizerOffload::copy(Direction direction, Bytes bytes, std::string_view rule) {
  Copy copy;
  copy.direction = direction;
  copy.bytes = bytes;
  copy.pinned = pinned_;
  builder_.copy(reduction_stream_, copy, rule);
}

void OptimizerOffload::pass(std::string_view name, Bytes bytes) {
  builder_.host_pass({name, bytes}, "B6.3");
}

}  // namespace zerosim
