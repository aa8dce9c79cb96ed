// DeepSpeed's BF16 optimizer: stage 1, bf16, fp32 gradient accumulation (spec B4, rule 19 of
// deepspeed_recorded.md). A full fp32 gradient buffer on each rank, one all-reduce of all of it.

#include "sim/program/adam.h"
#include "sim/program/frameworks.h"
#include "sim/program/model_loading.h"

namespace zerosim {

namespace {

class Bf16Optimizer : public FrameworkHooks {
 public:
  Bf16Optimizer(const FrameworkContext& context, FlatLayout layout)
      : model_(context.model),
        strategy_(context.strategy),
        builder_(context.builder),
        group_(context.data_parallel),
        world_size_(context.world_size),
        layout_(std::move(layout)),
        elements_(layout_.elements()),
        padded_(layout_.padded()),
        partition_(layout_.partitions()),
        gradients_(model_.parameters.size()),
        context_(context) {
    for (const FlatGroup& group : layout_.groups) {
      tensors_ += static_cast<int>(group.order.size());
      adams_.emplace_back(builder_, strategy_.optimizer, AdamTensors{{group.partition}}, "B4.4");
    }
  }

  void initialize() override {
    allocate_flat_parameters(context_, layout_);
    for (const FlatGroup& group : layout_.groups) {
      allocate_master_weights(context_, group.partition, "B4.1");
      builder_.allocate(Bytes(group.padded) * 4, MemoryClass::Gradients, "fp32_gradients",
                        kComputeStream, "B4.1");
    }
    for (Adam& adam : adams_) {
      if (context_.first_step > 0) adam.allocate_moments();
    }
  }

  void begin_forward(const MicroBatch& micro) override { micro_ = micro; }

  // Low-precision gradients stay allocated; they are zeroed in place before each backward (B4.2),
  // so only the very first backward keeps the block that autograd brings.
  void gradient_ready(ParameterId id, BufferId gradient) override {
    BufferId& kept = gradients_[id.index()];
    if (!kept.valid()) {
      kept = gradient;
    } else {
      builder_.kernel(
          kComputeStream,
          memory_kernel("accumulate", Bytes(model_.parameters[id.index()].elements) * 6),
          HostWork::BackwardLaunch, "B4.2");
      builder_.free(gradient);
    }
  }

  void end_backward() override {
    builder_.kernel(kComputeStream,
                    memory_kernel("add_to_fp32", Bytes(elements_) * (2 + 4 + 4 + 8), 2 * tensors_),
                    HostWork::KernelLaunch, "B4.2");
    builder_.kernel(kComputeStream, memory_kernel("zero_gradients", Bytes(elements_) * 2, tensors_),
                    HostWork::KernelLaunch, "B4.2");
    if (micro_.boundary && world_size_ > 1) {
      // Each group's buffer is one tensor of the reduction, whatever its size (B4.3).
      std::vector<std::int64_t> sizes;
      for (const FlatGroup& group : layout_.groups) {
        sizes.push_back(group.padded);
      }
      for (const FallbackBucket& bucket : fallback_buckets(sizes)) {
        reduce(bucket);
      }
    }
  }

  void optimizer_step() override {  // B4.4
    const OpId norm = builder_.kernel(
        kComputeStream, optimizer_kernel("gradient_norm", Bytes(elements_) * 4, tensors_),
        HostWork::KernelLaunch, "B4.4");
    builder_.host_wait(norm, "B4.4");
    builder_.kernel(kComputeStream, optimizer_kernel("clip", Bytes(elements_) * 8, tensors_),
                    HostWork::KernelLaunch, "B4.4");
    for (Adam& adam : adams_) {
      adam.step();
    }
    builder_.kernel(kComputeStream, optimizer_kernel("copy_to_weights", Bytes(partition_) * 6),
                    HostWork::KernelLaunch, "B4.4");
    if (world_size_ > 1) {
      for (const FlatGroup& group : layout_.groups) {
        builder_.all_gather(kComputeStream, group_, group.partition, group.padded, Dtype::Bf16,
                            "B5.2");
      }
    }
    builder_.kernel(kComputeStream, optimizer_kernel("zero_fp32_gradients", Bytes(padded_) * 4),
                    HostWork::KernelLaunch, "B4.4");
  }

 private:
  // B4.3: cast all, all-reduce, average, copy back, and one redundant copy. Several buffers in one
  // message are concatenated first.
  void reduce(const FallbackBucket& bucket) {
    const Bytes elements(bucket.elements);
    const int wire_bytes = dtype_bytes(strategy_.communication_dtype);
    BufferId flat;
    if (bucket.tensors > 1) {
      flat = builder_.allocate(elements * 4, MemoryClass::TemporaryBuffers, "flat_gradients",
                               kComputeStream, "B1.4");
      builder_.kernel(kComputeStream, memory_kernel("flatten", elements * 8),
                      HostWork::KernelLaunch, "B1.4");
    }
    BufferId wire;
    if (wire_bytes != 4) {
      wire = builder_.allocate(elements * wire_bytes, MemoryClass::TemporaryBuffers,
                               "cast_gradients", kComputeStream, "B4.3");
      builder_.kernel(kComputeStream, memory_kernel("cast", elements * (4 + wire_bytes)),
                      HostWork::KernelLaunch, "B4.3");
    }
    builder_.all_reduce(kComputeStream, group_, bucket.elements, strategy_.communication_dtype,
                        "B4.3");
    builder_.kernel(kComputeStream, memory_kernel("average", elements * wire_bytes * 2),
                    HostWork::KernelLaunch, "B4.3");
    builder_.kernel(kComputeStream,
                    memory_kernel("copy_back", elements * (wire_bytes + 4 + 8), 2 * bucket.tensors),
                    HostWork::KernelLaunch, "B4.3");
    builder_.free(wire);
    builder_.free(flat);
  }

  const Model& model_;
  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  GroupId group_;
  int world_size_;
  MicroBatch micro_;
  FlatLayout layout_;
  std::int64_t elements_;  ///< of all groups, as the next two
  std::int64_t padded_;
  std::int64_t partition_;
  int tensors_ = 0;
  std::vector<BufferId> gradients_;  ///< bf16, by parameter
  FrameworkContext context_;
  std::vector<Adam> adams_;  ///< by optimizer group
};

}  // namespace

bool uses_bf16_optimizer(const Strategy& strategy) {
  return strategy.zero.stage == 1 && strategy.precision == Precision::Bf16 &&
         strategy.grad_accum_dtype == Dtype::F32 &&
         strategy.zero.offload_optimizer.device != OffloadDevice::Cpu;
}

std::unique_ptr<FrameworkHooks> make_bf16_optimizer(const FrameworkContext& context,
                                                    const FlatLayout& layout) {
  return std::make_unique<Bf16Optimizer>(context, layout);
}

}  // namespace zerosim
