// DeepSpeed ZeRO stages 1 and 2: spec B2 (layout), B3 (gradients), B5 (step).
//
// Gradients go through a bucket (gradient_bucket.h): as they arrive, or at stage 1 without
// `overlap_comm` in a walk after the backward (B3.2). What touches my partition is kept, the rest
// dropped; the step updates my partition of each optimizer group and gathers the weights. With the
// optimizer on the CPU, keeping and updating are those of optimizer_offload.h (B6).
//
// Where the program stands for all ranks, memory is that of its own rank, and kernels do what the
// rank with most to do does: what others keep of a flush beyond my part is one more kernel after it
// (local_pieces.h). Between two collectives no rank then takes longer.

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/base/error.h"
#include "sim/program/adam.h"
#include "sim/program/flat_layout.h"
#include "sim/program/frameworks.h"
#include "sim/program/gradient_bucket.h"
#include "sim/program/local_pieces.h"
#include "sim/program/model_loading.h"
#include "sim/program/optimizer_offload.h"

namespace zerosim {

namespace {

class Zero12 : public FrameworkHooks {
 public:
  Zero12(const FrameworkContext& context, FlatLayout layout)
      : model_(context.model),
        strategy_(context.strategy),
        zero_(context.strategy.zero),
        builder_(context.builder),
        group_(context.data_parallel),
        world_size_(context.world_size),
        rank_(context.rank),
        layout_(std::move(layout)),
        bucket_(context, layout_,
                [this](std::span<BucketEntry> entries) { keep_my_part(entries); }),
        bytes_(dtype_bytes(model_dtype(strategy_.precision))),
        local_bytes_(dtype_bytes(local_dtype())),
        local_gradients_(model_.parameters.size()),
        arrived_(model_.parameters.size()),
        overflow_steps_(strategy_.precision == Precision::Fp16 ? strategy_.overflow_steps : 0),
        context_(context) {
    if (offloads_optimizer(strategy_)) {
      offload_.emplace(context, layout_, bucket_.reduction_stream());
    }
    for (const FlatGroup& group : layout_.groups) {
      adams_.emplace_back(builder_, strategy_.optimizer, AdamTensors{{group.partition}}, "B2.4");
      MyPart& part = my_parts_.emplace_back();
      for (const ParameterId id : group.order) {
        part.largest_slice = std::max(part.largest_slice, layout_.elements_on(id, rank_.value()));
        trainable_.push_back(id);
      }
      part.tensors = busiest(group.order).tensors;
    }
    my_gradients_ = kept_gradients(layout_, trainable_, rank_);
    kernel_gradients_ = busiest(trainable_);
  }

  void initialize() override {
    allocate_flat_parameters(context_, layout_);
    const bool stepped = context_.first_step > overflow_steps_;
    if (offload_) {
      offload_->initialize(/*moments=*/stepped);
      return;
    }
    for (std::size_t i = 0; i < adams_.size(); ++i) {
      allocate_master_weights(context_, layout_.groups[i].partition, "B2.4");
      if (stepped) adams_[i].allocate_moments();
    }
  }

  void begin_forward(const MicroBatch& micro) override { micro_ = micro; }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    builder_.host({HostWork::GradientHook}, "B3.2");
    bucket_.set_up();  // stage 1 keeps the buffers from here to the boundary (B3.1)
    if (zero_.stage == 1) {
      gradient = accumulate_locally(id, gradient);
    }
    if (reduces_in_hooks()) {
      local_gradients_[id.index()] = BufferId();
      bucket_.add(id, gradient, local_dtype());
    }
  }

  void end_backward() override {
    if (zero_.stage == 1 && !micro_.boundary) {
      return;
    }
    if (!reduces_in_hooks()) {
      walk_local_gradients();
    }
    epilogue();
  }

  void optimizer_step() override {
    if (strategy_.precision == Precision::Fp16 ||
        (strategy_.precision == Precision::Bf16 && strategy_.check_grad_overflow)) {
      check_overflow();
    }
    if (micro_.step >= overflow_steps_) {  // B5: otherwise nothing but the gradients goes
      update_weights();
    }
    free_gradients();
    if (offload_) {
      offload_->finish();
    }
  }

 private:
  /// What one optimizer group has in my partition.
  struct MyPart {
    int tensors = 0;  ///< as kernels see them
    std::int64_t largest_slice = 0;
  };

  /// What kernels are to do of these parameters.
  [[nodiscard]] KeptGradients busiest(std::span<const ParameterId> parameters) const {
    return context_.stands_for_all ? most_kept_gradients(layout_, parameters)
                                   : kept_gradients(layout_, parameters, rank_);
  }

  void update_weights() {
    for (std::size_t i = 0; i < my_parts_.size(); ++i) {
      gradient_norm(i);
    }
    for (std::size_t i = 0; i < my_parts_.size(); ++i) {
      if (offload_) {
        offload_->update(i);
      } else {
        update(i);
      }
    }
    if (world_size_ > 1) {
      for (const FlatGroup& group : layout_.groups) {  // B5.2: blocking, one for each group
        builder_.all_gather(kComputeStream, group_, group.partition, group.padded,
                            model_dtype(strategy_.precision), "B5.2");
      }
    }
  }

  [[nodiscard]] Bytes low(std::int64_t n) const { return Bytes(n) * bytes_; }
  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return layout_.elements_of[id.index()];
  }
  [[nodiscard]] Dtype local_dtype() const {
    return zero_.stage == 1 ? strategy_.grad_accum_dtype : model_dtype(strategy_.precision);
  }
  [[nodiscard]] bool reduces_in_hooks() const {
    return zero_.stage == 2 || (zero_.overlap_comm && micro_.boundary);
  }
  [[nodiscard]] int my_tensors() const { return std::max(1, kernel_gradients_.tensors); }

  // Stage 1 keeps full gradients over the window (B3.2): where autograd put them, or in tensors of
  // `grad_accum_dtype` (B3.11).
  BufferId accumulate_locally(ParameterId id, BufferId gradient) {
    BufferId& kept = local_gradients_[id.index()];
    const bool moves = local_bytes_ != bytes_;
    if (!kept.valid() && !moves) {
      kept = gradient;
      return kept;
    }
    const Bytes accumulator = Bytes(elements(id)) * local_bytes_;
    const bool first = !kept.valid();
    if (first) {
      kept = builder_.allocate(accumulator, MemoryClass::Gradients, "accumulated_gradient",
                               kComputeStream, "B3.11");
    }
    builder_.kernel(kComputeStream,
                    memory_kernel("accumulate", low(elements(id)) + accumulator * (first ? 1 : 2)),
                    HostWork::BackwardLaunch, moves ? "B3.11" : "B3.2");
    builder_.free(gradient);
    return kept;
  }

  // B3.2: in order of definition, optimizer group by group (rules 6, 14). What was not used has no
  // gradient, and nothing is sent for it (rule 85).
  void walk_local_gradients() {
    for (const FlatGroup& group : layout_.groups) {
      std::vector<ParameterId> order = group.order;
      std::sort(order.begin(), order.end());
      for (const ParameterId id : order) {
        const BufferId gradient = local_gradients_[id.index()];
        local_gradients_[id.index()] = BufferId();
        if (gradient.valid()) {
          bucket_.add(id, gradient, local_dtype());
        }
      }
    }
  }

  // B3.7, B3.8: what touches my partition moves to the partition gradient buffer, whole; the rest
  // goes.
  void keep_my_part(std::span<BucketEntry> entries) {
    std::vector<ParameterId> flushed;
    for (const BucketEntry& entry : entries) {
      flushed.push_back(entry.parameter);
    }
    if (offload_) {
      offload_->will_keep(beyond(busiest(flushed), kept_gradients(layout_, flushed, rank_)));
    }
    for (BucketEntry& entry : entries) {
      if (layout_.elements_on(entry.parameter, rank_.value()) > 0) keep(entry.parameter);
      builder_.free(entry.gradient, "B3.7");
      arrived_[entry.parameter.index()] = true;
    }
    if (context_.stands_for_all) keep_for_others(flushed);
  }

  void keep(ParameterId id) {
    if (offload_) {
      offload_->keep(id, micro_);
      return;
    }
    if (!new_partition_gradients_.valid()) {
      new_partition_gradients_ =
          builder_.allocate(low(my_gradients_.whole), MemoryClass::Gradients, "partition_gradients",
                            bucket_.reduction_stream(), "B3.8");
    }
    copy_to_partition(elements(id), 1);
  }

  void keep_for_others(std::span<const ParameterId> flushed) {
    if (offload_) {
      offload_->keep_for_others(flushed, micro_);
      return;
    }
    const KeptGradients others = beyond(busiest(flushed), kept_gradients(layout_, flushed, rank_));
    if (others.whole > 0) {
      builder_.visit_allocator("partition_gradients", bucket_.reduction_stream(), "B3.8");
      copy_to_partition(others.whole, std::max(1, others.tensors));
    }
  }

  void copy_to_partition(std::int64_t whole, int tensors) {
    builder_.kernel(bucket_.reduction_stream(),
                    memory_kernel("copy_to_partition", low(whole) * 2, tensors),
                    HostWork::BackwardLaunch, "B3.7");
  }

  // B3.9: parameters of my partition that got no gradient have zeros in the first micro batch of a
  // window, in the accumulation type.
  void make_up_missing() {
    std::vector<ParameterId> missing;
    for (const ParameterId id : trainable_) {
      if (!arrived_[id.index()]) missing.push_back(id);
    }
    const auto zeros = [&](const KeptGradients& kept) {
      return Bytes(kept.whole) * dtype_bytes(strategy_.grad_accum_dtype);
    };
    const KeptGradients mine = kept_gradients(layout_, missing, rank_);
    const KeptGradients most = busiest(missing);
    if (mine.whole > 0) {
      missing_gradients_ = builder_.allocate(zeros(mine), MemoryClass::Gradients,
                                             "missing_gradients", kComputeStream, "B3.9");
    }
    if (most.whole > 0) {
      builder_.kernel(kComputeStream, memory_kernel("zero_gradients", zeros(most), most.tensors),
                      HostWork::KernelLaunch, "B3.9");
    }
  }

  void epilogue() {  // B3.9
    bucket_.flush();
    if (zero_.overlap_comm) {
      builder_.device_synchronize("B3.9");
    }
    if (offload_) {
      // Its gradients are on the host.
    } else if (!partition_gradients_.valid()) {
      partition_gradients_ = new_partition_gradients_;
      new_partition_gradients_ = BufferId();
      make_up_missing();
    } else {
      builder_.kernel(kComputeStream,
                      memory_kernel("accumulate", low(kernel_gradients_.whole) * 3, my_tensors()),
                      HostWork::KernelLaunch, "B3.9");
      builder_.free(new_partition_gradients_, "B3.9");
    }
    arrived_.assign(arrived_.size(), false);
    bucket_.release();
  }

  void step_kernel(std::string_view name, Bytes bytes, int launches = 1) {
    builder_.kernel(kComputeStream, optimizer_kernel(name, bytes, launches), HostWork::KernelLaunch,
                    "B5");
  }

  void free_gradients() {
    builder_.free(partition_gradients_, "B5");
    builder_.free(missing_gradients_, "B5");
    // Of an expert that the boundary's micro batch did not use no hook fired; zero_grad drops it.
    for (BufferId& gradient : local_gradients_) {
      builder_.free(gradient, "B5");
    }
  }

  void check_overflow() {  // B5 item 1: about six kernels a slice, then the host asks
    if (offload_) {
      offload_->upload_overflow();
    } else {
      std::int64_t largest = 0;
      for (const MyPart& part : my_parts_) largest = std::max(largest, part.largest_slice);
      // An fp32 copy and three masks of a byte an element, slice by slice.
      BufferId temporary =
          builder_.allocate(Bytes(largest) * (4 + 3), MemoryClass::TemporaryBuffers,
                            "overflow_check", kComputeStream, "B5");
      step_kernel("overflow_check", Bytes(layout_.partitions()) * (bytes_ + 4 + 4 + 4 + 3),
                  6 * my_tensors());
      builder_.free(temporary, "B5");
    }
    if (world_size_ > 1) {
      builder_.all_reduce(kComputeStream, group_, 1, Dtype::U8, "B5", ReduceOp::Max);
    }
    builder_.host_wait_stream(kComputeStream, "0.7");
  }

  void gradient_norm(std::size_t i) {
    if (offload_) {
      offload_->upload_norm(i);
    } else {
      measure_norm(i);
    }
    if (world_size_ > 1) {
      builder_.all_reduce(kComputeStream, group_, 1, Dtype::F32, "B5");
    }
    if (offload_) {
      offload_->read_norm();
    }
  }

  void measure_norm(std::size_t i) {  // B5 item 2: an fp64 copy of one slice at a time
    const MyPart& part = my_parts_[i];
    BufferId fp64 = builder_.allocate(Bytes(part.largest_slice) * 8, MemoryClass::TemporaryBuffers,
                                      "fp64_norm", kComputeStream, "B5");
    step_kernel("gradient_norm", Bytes(layout_.groups[i].partition) * (bytes_ + 8 + 8),
                2 * std::max(1, part.tensors));
    builder_.free(fp64);
  }

  void update(std::size_t i) {  // B5 item 3
    const std::int64_t s = layout_.groups[i].partition;
    BufferId flat = builder_.allocate(low(s), MemoryClass::TemporaryBuffers, "flat_gradients",
                                      kComputeStream, "B5");
    step_kernel("flatten", low(s) * 2);
    BufferId fp32 = flat;
    if (bytes_ != 4) {
      fp32 = builder_.allocate(Bytes(s) * 4, MemoryClass::TemporaryBuffers, "fp32_gradients",
                               kComputeStream, "B5");
      step_kernel("cast", Bytes(s) * (bytes_ + 4));
      builder_.free(flat);
    }
    if (i + 1 == my_parts_.size()) {  // one buffer for all groups: gone with the last list (B3.8)
      free_gradients();
    }
    step_kernel("scale", Bytes(s) * 8);
    adams_[i].step();
    builder_.free(fp32);
    step_kernel("copy_to_weights", Bytes(s) * (4 + bytes_));
  }

  const Model& model_;
  const Strategy& strategy_;
  const ZeroOptions& zero_;
  RankProgramBuilder& builder_;
  GroupId group_;
  int world_size_;
  Rank rank_;
  FlatLayout layout_;
  GradientBucket bucket_;
  std::optional<OptimizerOffload> offload_;
  int bytes_;        ///< of an element in the model's type
  int local_bytes_;  ///< of an element of `local_gradients_`
  MicroBatch micro_;
  std::vector<MyPart> my_parts_;           ///< by optimizer group
  std::vector<BufferId> local_gradients_;  ///< stage 1, by parameter
  std::vector<ParameterId> trainable_;     ///< in all flat tensors
  KeptGradients my_gradients_;             ///< all of them, as memory sees them
  KeptGradients kernel_gradients_;         ///< as kernels see them
  std::vector<bool> arrived_;              ///< by parameter: reduced in this micro batch
  BufferId missing_gradients_;
  BufferId partition_gradients_;
  BufferId new_partition_gradients_;
  int overflow_steps_;
  FrameworkContext context_;
  std::vector<Adam> adams_;  ///< by optimizer group
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_zero12(const FrameworkContext& context,
                                            const FlatLayout& layout) {
  return std::make_unique<Zero12>(context, layout);
}

}  // namespace zerosim
