// PyTorch DistributedDataParallel, and training on one GPU: spec D1.
//
// Gradients are copied into buckets as they become ready; a bucket is all-reduced, asynchronously
// and in bucket order, as soon as it and all earlier ones are full. Step 0 has one bucket (D1.1);
// from step 1 on buckets follow the order of arrival (D1.2).

#include <algorithm>

#include "sim/base/error.h"
#include "sim/program/frameworks.h"

namespace zerosim {

namespace {

struct Bucket {
  std::vector<ParameterId> parameters;
  std::int64_t elements = 0;
  std::size_t ready = 0;
  OpId all_reduce;
};

std::vector<ParameterId> arrival_order(const Model& model) {
  std::vector<ParameterId> order;
  for (const TrainingEvent& event : training_events(model, ActivationCheckpointing::None)) {
    if (event.kind == TrainingEvent::Kind::Backward) {
      for (const ParameterId id :
           model.operators[static_cast<std::size_t>(event.operation)].gradients) {
        if (model.parameters[id.index()].trainable) {
          order.push_back(id);
        }
      }
    }
  }
  return order;
}

class Ddp : public FrameworkHooks {
 public:
  explicit Ddp(const FrameworkContext& context)
      : model_(context.model),
        strategy_(context.strategy),
        builder_(context.builder),
        group_(context.world),
        distributed_(strategy_.framework == Framework::Ddp),
        bucket_of_(model_.parameters.size()),
        gradients_(model_.parameters.size()),
        elements_(trainable_parameter_count(model_)),
        states_allocated_(context.first_step > 0) {}

  void initialize() override {
    builder_.allocate(fp32(parameter_count(model_)), MemoryClass::Parameters, "parameters",
                      kComputeStream, "E2");
    if (states_allocated_) {
      allocate_states();
    }
  }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    if (distributed_ && micro.index == 0 && (buckets_.empty() || micro.step == 1)) {
      rebuild_buckets();
    }
  }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    accumulate(id, gradient);
    if (!distributed_ || !micro_.boundary) {
      return;  // no_sync (D1.7)
    }
    builder_.host({HostWork::GradientHook}, "D1.4");
    const Bytes bytes = fp32(model_.parameters[id.index()].elements);
    builder_.kernel(
        kComputeStream,
        memory_kernel(strategy_.ddp.gradient_as_bucket_view ? "divide" : "copy_to_bucket",
                      bytes * 2),
        HostWork::BackwardLaunch, "D1.4");
    Bucket& bucket = buckets_[bucket_of_[id.index()]];
    ++bucket.ready;
    launch_full_buckets();
  }

  void end_backward() override {
    if (!distributed_ || !micro_.boundary) {
      return;
    }
    ZS_CHECK(next_launch_ == buckets_.size(), "every bucket is reduced");
    for (Bucket& bucket : buckets_) {
      builder_.stream_wait(kComputeStream, bucket.all_reduce, "D1.5");
      if (!strategy_.ddp.gradient_as_bucket_view) {
        builder_.kernel(kComputeStream,
                        memory_kernel("copy_from_bucket", fp32(bucket.elements) * 2,
                                      static_cast<int>(bucket.parameters.size())),
                        HostWork::BackwardLaunch, "D1.5");
      }
      bucket.ready = 0;
      bucket.all_reduce = OpId();
    }
    next_launch_ = 0;
  }

  void optimizer_step() override {
    const int tensors = static_cast<int>(model_.parameters.size());
    if (strategy_.precision == Precision::Fp16) {
      // GradScaler: unscale, look for infinities, and ask the device.
      const OpId check =
          builder_.kernel(kComputeStream, optimizer_kernel("unscale", fp32(elements_) * 2),
                          HostWork::OptimizerLaunch, "A4.3");
      builder_.host_wait(check, "A4.3");
    }
    if (strategy_.gradient_clipping > 0) {
      builder_.kernel(kComputeStream, optimizer_kernel("gradient_norm", fp32(elements_)),
                      HostWork::OptimizerLaunch, "E4");
      builder_.kernel(kComputeStream, optimizer_kernel("clip", fp32(elements_) * 2),
                      HostWork::OptimizerLaunch, "E4");
    }
    if (!states_allocated_) {
      allocate_states();
    }
    const AdamUpdate update = adam_update(strategy_.optimizer, elements_, tensors);
    BufferId temporary;
    if (update.temporary.count() > 0) {
      temporary = builder_.allocate(update.temporary, MemoryClass::TemporaryBuffers,
                                    "optimizer_temporary", kComputeStream, "E4");
    }
    builder_.kernel(kComputeStream, update.kernel, HostWork::OptimizerLaunch, "E4");
    builder_.free(temporary);
    if (!strategy_.ddp.gradient_as_bucket_view || !distributed_) {
      for (BufferId& gradient : gradients_) {
        builder_.free(gradient, "D1.6");
      }
    }
  }

 private:
  static Bytes fp32(std::int64_t elements) { return Bytes(elements) * 4; }

  void allocate_states() {
    builder_.allocate(fp32(elements_) * 2, MemoryClass::OptimizerStates, "adam_moments",
                      kComputeStream, "E2");
    states_allocated_ = true;
  }

  // A second gradient of a window is added to the first; with bucket views gradients are the
  // buckets.
  void accumulate(ParameterId id, BufferId gradient) {
    BufferId& kept = gradients_[id.index()];
    const bool view = distributed_ && strategy_.ddp.gradient_as_bucket_view;
    if (!kept.valid() && !view) {
      kept = gradient;
      return;
    }
    if (micro_.index > 0) {
      builder_.kernel(kComputeStream,
                      memory_kernel("accumulate", fp32(model_.parameters[id.index()].elements) * 3),
                      HostWork::BackwardLaunch, "D1.7");
    }
    builder_.free(gradient);
  }

  void launch_full_buckets() {
    while (next_launch_ < buckets_.size() &&
           buckets_[next_launch_].ready == buckets_[next_launch_].parameters.size()) {
      Bucket& bucket = buckets_[next_launch_++];
      Collective all_reduce;
      all_reduce.kind = CollectiveKind::AllReduce;
      all_reduce.input_elements = all_reduce.output_elements = bucket.elements;
      all_reduce.dtype = Dtype::F32;  // D1.8
      all_reduce.group = group_;
      all_reduce.async = true;
      bucket.all_reduce = builder_.collective(kComputeStream, all_reduce, "D1.4");
    }
  }

  void rebuild_buckets() {
    const bool first = micro_.step == 0;
    std::vector<ParameterId> order;
    if (first) {
      for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
        if (model_.parameters[i].trainable) {
          order.emplace_back(i);
        }
      }
    } else {
      order = arrival_order(model_);
    }
    fill_buckets(order, first);
    if (micro_.step == 1) {
      broadcast_layout();
    }
    // Old and new buckets live together for a moment (D1.6).
    const BufferId fresh = builder_.allocate(fp32(elements_), MemoryClass::TemporaryBuffers,
                                             "ddp_buckets", kComputeStream, "D1.6");
    builder_.free(bucket_memory_, "D1.6");
    bucket_memory_ = fresh;
  }

  // D1.3: a bucket closes once its bytes reach the limit; the first limit is smaller.
  void fill_buckets(const std::vector<ParameterId>& order, bool unlimited) {
    constexpr double kMiB = 1024.0 * 1024.0;
    buckets_.clear();
    bool open = false;
    for (const ParameterId id : order) {
      if (!open) {
        buckets_.emplace_back();
      }
      Bucket& bucket = buckets_.back();
      bucket.parameters.push_back(id);
      bucket.elements += model_.parameters[id.index()].elements;
      bucket_of_[id.index()] = buckets_.size() - 1;
      const double limit = kMiB * (buckets_.size() == 1 ? strategy_.ddp.first_bucket_mib
                                                        : strategy_.ddp.bucket_cap_mib);
      open = unlimited || static_cast<double>(fp32(bucket.elements).count()) < limit;
    }
  }

  // D1.2: parameter indices, then bucket sizes, from rank 0; issued in C++, read by the host.
  void broadcast_layout() {
    const auto parameters = static_cast<std::int64_t>(model_.parameters.size());
    const auto bucket_count = static_cast<std::int64_t>(buckets_.size());
    for (const std::int64_t elements : {parameters + 1, bucket_count}) {
      Collective broadcast;
      broadcast.kind = CollectiveKind::Broadcast;
      broadcast.input_elements = broadcast.output_elements = elements;
      broadcast.dtype = Dtype::I32;
      broadcast.group = group_;
      broadcast.recorded = false;
      broadcast.root = 0;
      builder_.host_wait(builder_.collective(kComputeStream, broadcast, "D1.2"), "D1.2");
    }
  }

  const Model& model_;
  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  GroupId group_;
  bool distributed_;
  MicroBatch micro_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<BufferId> gradients_;     ///< by parameter
  std::size_t next_launch_ = 0;
  BufferId bucket_memory_;
  std::int64_t elements_;  ///< trainable
  bool states_allocated_;
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_ddp(const FrameworkContext& context) {
  return std::make_unique<Ddp>(context);
}

}  // namespace zerosim
