// DeepSpeed without ZeRO, stage 0: spec B1. No communication until the boundary micro batch's
// backward has ended; then all gradients in order of registration, in buckets of a fixed size,
// blocking.

#include <optional>

#include "sim/program/adam.h"
#include "sim/program/frameworks.h"
#include "sim/program/model_loading.h"

namespace zerosim {

namespace {

class Zero0 : public FrameworkHooks {
 public:
  explicit Zero0(const FrameworkContext& context)
      : context_(context),
        model_(context.model),
        strategy_(context.strategy),
        builder_(context.builder),
        group_(context.data_parallel),
        world_size_(context.world_size),
        gradients_(model_.parameters.size()),
        elements_(trainable_parameter_count(model_)),
        bytes_(dtype_bytes(model_dtype(strategy_.precision))),
        wrapped_(strategy_.precision != Precision::Fp32),
        overflow_steps_(strategy_.precision == Precision::Fp16 ? strategy_.overflow_steps : 0) {
    std::vector<std::int64_t> sizes;
    for (const Parameter& parameter : model_.parameters) {
      if (parameter.trainable) sizes.push_back(parameter.elements);
    }
    tensors_ = static_cast<int>(sizes.size());
    flat_ = wrapped_ && strategy_.optimizer == OptimizerKind::AdamFused;
    if (flat_) sizes = {elements_};
    adam_.emplace(builder_, strategy_.optimizer, AdamTensors{sizes}, wrapped_ ? "B1.5" : "A4.4");
  }

  void initialize() override {
    allocate_parameters(context_, Bytes(parameter_count(model_)) * bytes_, "parameters", "B1.1");
    if (wrapped_) {
      allocate_master_weights(context_, elements_, "B1.5");
    }
    // Materialised at init by a dummy step (B1.6); a bare fp32 optimizer makes them in its first
    // step.
    if (wrapped_ || context_.first_step > 0) {
      adam_->allocate_moments();
    }
  }

  void begin_forward(const MicroBatch& micro) override { micro_ = micro; }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    BufferId& kept = gradients_[id.index()];
    if (!kept.valid()) {
      kept = gradient;
      return;
    }
    builder_.kernel(kComputeStream, memory_kernel("accumulate", of(id) * 3),
                    HostWork::BackwardLaunch, "B1.2");
    builder_.free(gradient);
  }

  void end_backward() override {
    if (!micro_.boundary || world_size_ == 1) {
      return;
    }
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
      if (model_.parameters[i].trainable) {
        sizes.push_back(model_.parameters[i].elements);
        make_up_missing(ParameterId(i));
      }
    }
    for (const FallbackBucket& bucket : fallback_buckets(sizes)) {
      reduce(bucket.elements, bucket.tensors);
    }
  }

  void optimizer_step() override {
    if (wrapped_) {
      step_with_master_weights();
    } else {
      step_bare();
    }
    for (BufferId& gradient : gradients_) {
      builder_.free(gradient);
    }
  }

 private:
  [[nodiscard]] Bytes of(ParameterId id) const {
    return Bytes(model_.parameters[id.index()].elements) * bytes_;
  }

  // B1.3: a missing gradient becomes zeros.
  void make_up_missing(ParameterId id) {
    BufferId& gradient = gradients_[id.index()];
    if (!gradient.valid()) {
      gradient =
          builder_.allocate(of(id), MemoryClass::Gradients, "gradient", kComputeStream, "B1.3");
      builder_.kernel(kComputeStream, memory_kernel("zero_gradient", of(id)),
                      HostWork::KernelLaunch, "B1.3");
    }
  }

  // B1.4: concatenate, cast, all-reduce, multiply, cast back, copy each slice back.
  void reduce(std::int64_t elements, int tensors) {
    const Bytes flat_bytes = Bytes(elements) * bytes_;
    const Bytes wire_bytes = Bytes(elements) * dtype_bytes(strategy_.communication_dtype);
    const bool cast = strategy_.communication_dtype != model_dtype(strategy_.precision);
    BufferId flat = builder_.allocate(flat_bytes, MemoryClass::TemporaryBuffers, "flat_gradients",
                                      kComputeStream, "B1.4");
    builder_.kernel(kComputeStream, memory_kernel("flatten", flat_bytes * 2),
                    HostWork::BackwardLaunch, "B1.4");
    BufferId wire;
    if (cast) {
      wire = builder_.allocate(wire_bytes, MemoryClass::TemporaryBuffers, "cast_gradients",
                               kComputeStream, "B1.4");
      builder_.kernel(kComputeStream, memory_kernel("cast", flat_bytes + wire_bytes),
                      HostWork::BackwardLaunch, "B1.4");
    }
    builder_.all_reduce(kComputeStream, group_, elements, strategy_.communication_dtype, "B1.4");
    builder_.kernel(kComputeStream, memory_kernel("average", wire_bytes * 2),
                    HostWork::BackwardLaunch, "B1.4");
    if (cast) {
      builder_.kernel(kComputeStream, memory_kernel("cast", flat_bytes + wire_bytes),
                      HostWork::BackwardLaunch, "B1.4");
      builder_.free(wire);
    }
    builder_.kernel(kComputeStream, memory_kernel("copy_back", flat_bytes * 2, tensors),
                    HostWork::BackwardLaunch, "B1.4");
    builder_.free(flat);
  }

  // B1.5
  void step_with_master_weights() {
    for (const Parameter& parameter : model_.parameters) {
      if (parameter.trainable) {
        const Bytes read = Bytes(parameter.elements) * (bytes_ + 4 + 4);
        builder_.host_wait(
            builder_.kernel(kComputeStream, optimizer_kernel("overflow_check", read, 3),
                            HostWork::KernelLaunch, "B1.5"),
            "B1.5");
      }
    }
    if (micro_.step < overflow_steps_) {
      return;  // the update is skipped
    }
    const Bytes fp32 = Bytes(elements_) * 4;
    BufferId cast = builder_.allocate(fp32, MemoryClass::TemporaryBuffers, "fp32_gradients",
                                      kComputeStream, "B1.5");
    builder_.kernel(kComputeStream,
                    optimizer_kernel("cast", Bytes(elements_) * (bytes_ + 4), tensors_),
                    HostWork::KernelLaunch, "B1.5");
    BufferId flat = flat_ ? flatten(cast) : cast;
    builder_.host_wait(builder_.kernel(kComputeStream, optimizer_kernel("gradient_norm", fp32),
                                       HostWork::KernelLaunch, "B1.5"),
                       "B1.5");
    builder_.kernel(kComputeStream, optimizer_kernel("scale", fp32 * 2), HostWork::KernelLaunch,
                    "B1.5");
    adam_->step();
    builder_.kernel(kComputeStream,
                    optimizer_kernel("copy_to_weights", Bytes(elements_) * (4 + bytes_), tensors_),
                    HostWork::KernelLaunch, "B1.5");
    builder_.free(flat);
  }

  // FP16_Optimizer; the 16-bit gradients go. With another optimizer than DeepSpeed's own
  // FP16_UnfusedOptimizer keeps tensor by tensor, and they stay (rules of stage 0 in
  // deepspeed_recorded.md).
  BufferId flatten(BufferId& cast) {
    const Bytes fp32 = Bytes(elements_) * 4;
    BufferId flat = builder_.allocate(fp32, MemoryClass::TemporaryBuffers, "flat_fp32_gradients",
                                      kComputeStream, "B1.5");
    builder_.kernel(kComputeStream, optimizer_kernel("flatten", fp32 * 2), HostWork::KernelLaunch,
                    "B1.5");
    builder_.free(cast);
    for (BufferId& gradient : gradients_) {
      builder_.free(gradient);
    }
    return flat;
  }

  // fp32: the client's optimizer; its clipping sums the norm over ranks (deepspeed_recorded.md,
  // stage 0).
  void step_bare() {
    const Bytes fp32 = Bytes(elements_) * 4;
    if (strategy_.gradient_clipping > 0) {
      builder_.kernel(kComputeStream, optimizer_kernel("gradient_norm", fp32, tensors_),
                      HostWork::KernelLaunch, "B1.5");
      if (world_size_ > 1) {
        builder_.all_reduce(kComputeStream, group_, 1, Dtype::F32, "B1.5");
      }
      builder_.kernel(kComputeStream, optimizer_kernel("clip", fp32 * 2, tensors_),
                      HostWork::KernelLaunch, "B1.5");
    }
    adam_->step();
  }

  FrameworkContext context_;
  const Model& model_;
  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  GroupId group_;
  int world_size_;
  MicroBatch micro_;
  std::vector<BufferId> gradients_;  ///< by parameter
  std::int64_t elements_;            ///< trainable
  int tensors_ = 0;                  ///< trainable parameters
  int bytes_;
  bool wrapped_;       ///< by the FP16 optimizer (A4.2)
  bool flat_ = false;  ///< by the one that makes one tensor of all
  int overflow_steps_;
  std::optional<Adam> adam_;
};

}  // namespace

std::vector<FallbackBucket> fallback_buckets(std::span<const std::int64_t> elements) {
  // Hard-coded in DeepSpeed: `reduce_bucket_size` does not reach it (B1.3).
  constexpr std::int64_t kBucketElements = 500'000'000;
  std::vector<FallbackBucket> buckets;
  bool open = false;
  for (const std::int64_t n : elements) {
    if (!open) {
      buckets.emplace_back();
    }
    buckets.back().elements += n;
    ++buckets.back().tensors;
    open = buckets.back().elements <= kBucketElements;
  }
  return buckets;
}

std::unique_ptr<FrameworkHooks> make_zero0(const FrameworkContext& context) {
  return std::make_unique<Zero0>(context);
}

}  // namespace zerosim
