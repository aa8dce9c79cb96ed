#include "sim/program/adam.h"

#include <utility>

namespace zerosim {

namespace {

// Multi-tensor kernels take some 30 tensors a launch; for-each makes a dozen passes.
constexpr int kTensorsPerLaunch = 30;
constexpr int kPasses = 12;

/// Moved by an update, an element of fp32.
std::int64_t bytes_of_fp32(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::AdamFused:
      return 28;
    case OptimizerKind::AdamTorchForeach:
      return 70;
    case OptimizerKind::AdamTorch:
      return 90;
    case OptimizerKind::Adam8bit:
      break;
  }
  return 16;
}

Bytes update_bytes(OptimizerKind kind, std::int64_t elements, Dtype dtype) {
  return Bytes(elements) * (bytes_of_fp32(kind) * dtype_bytes(dtype) / dtype_bytes(Dtype::F32));
}

}  // namespace

Bytes adam_bytes(OptimizerKind kind, const AdamTensors& tensors) {
  Bytes sum;
  for (const std::int64_t elements : tensors.elements) {
    sum += update_bytes(kind, elements, tensors.dtype);
  }
  return sum;
}

Adam::Adam(RankProgramBuilder& builder, OptimizerKind kind, AdamTensors tensors,
           std::string_view rule)
    : builder_(&builder), kind_(kind), tensors_(std::move(tensors)), rule_(rule) {}

void Adam::allocate_moments() {
  if (has_moments_) {
    return;
  }
  has_moments_ = true;
  const int bytes = kind_ == OptimizerKind::Adam8bit ? 1 : dtype_bytes(tensors_.dtype);
  for (const std::int64_t elements : tensors_.elements) {
    allocate(Bytes(elements) * bytes, MemoryClass::OptimizerStates, "exp_avg");
    allocate(Bytes(elements) * bytes, MemoryClass::OptimizerStates, "exp_avg_sq");
  }
}

void Adam::step() {
  allocate_moments();
  if (tensors_.on_host) {
    step_on_host();
  } else if (kind_ == OptimizerKind::AdamTorch) {
    step_tensor_by_tensor();
  } else {
    step_on_device();
  }
}

BufferId Adam::allocate(Bytes bytes, MemoryClass memory_class, std::string_view owner) {
  return tensors_.on_host
             ? builder_->allocate_on_host(bytes, memory_class, owner, /*pinned=*/false, rule_)
             : builder_->allocate(bytes, memory_class, owner, kComputeStream, rule_);
}

std::vector<BufferId> Adam::allocate_roots() {
  std::vector<BufferId> roots;
  if (kind_ == OptimizerKind::AdamTorchForeach) {
    for (const std::int64_t elements : tensors_.elements) {
      roots.push_back(allocate(Bytes(elements) * dtype_bytes(tensors_.dtype),
                               MemoryClass::TemporaryBuffers, "adam_root"));
    }
  }
  return roots;
}

void Adam::step_on_device() {
  std::vector<BufferId> roots = allocate_roots();
  const auto tensors = static_cast<int>(tensors_.elements.size());
  const int launches = (tensors + kTensorsPerLaunch - 1) / kTensorsPerLaunch;
  const bool for_each = kind_ == OptimizerKind::AdamTorchForeach;
  launch(for_each ? "adam_foreach" : "adam_fused", adam_bytes(kind_, tensors_),
         for_each ? launches * kPasses : launches);
  for (BufferId& root : roots) {
    builder_->free(root, rule_);
  }
}

void Adam::step_tensor_by_tensor() {
  for (const std::int64_t elements : tensors_.elements) {
    const Bytes bytes = Bytes(elements) * dtype_bytes(tensors_.dtype);
    BufferId root = allocate(bytes, MemoryClass::TemporaryBuffers, "adam_root");
    BufferId quotient = allocate(bytes, MemoryClass::TemporaryBuffers, "adam_quotient");
    launch("adam", update_bytes(kind_, elements, tensors_.dtype), kPasses);
    builder_->free(root, rule_);
    builder_->free(quotient, rule_);
  }
}

/// One pass over everything; temporaries as on the device, the largest tensor's being the most.
void Adam::step_on_host() {
  std::vector<BufferId> temporaries = allocate_roots();
  if (kind_ == OptimizerKind::AdamTorch) {
    std::int64_t largest = 0;
    for (const std::int64_t elements : tensors_.elements) {
      largest = std::max(largest, elements);
    }
    const Bytes bytes = Bytes(largest) * dtype_bytes(tensors_.dtype);
    temporaries.push_back(allocate(bytes, MemoryClass::TemporaryBuffers, "adam_root"));
    temporaries.push_back(allocate(bytes, MemoryClass::TemporaryBuffers, "adam_quotient"));
  }
  builder_->host_pass({"cpu_adam", adam_bytes(kind_, tensors_)}, rule_);
  for (BufferId& temporary : temporaries) {
    builder_->free(temporary, rule_);
  }
}

void Adam::launch(std::string_view name, Bytes bytes, int launches) {
  builder_->kernel(kComputeStream, optimizer_kernel(name, bytes, launches),
                   HostWork::OptimizerLaunch, rule_);
}

}  // namespace zerosim
