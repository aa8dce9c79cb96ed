// DeepSpeed ZeRO stages 1 and 2: spec B2 (layout), B3 (buckets), B5 (step).
//
// All trainable parameters lie in one flat tensor in order of registration, cut into N equal
// partitions regardless of parameter borders. Gradients go through a bucket ("IPG") of
// `reduce_bucket_size` elements. With the defaults each full bucket is all-reduced, not
// reduce-scattered (B3.6).

#include <algorithm>

#include "sim/base/error.h"
#include "sim/program/frameworks.h"

namespace zerosim {

namespace {

// The flat tensor (B2.1 to B2.3) seen from one rank.
struct Layout {
  std::int64_t elements = 0;         ///< trainable, without padding
  std::int64_t padded = 0;           ///< multiple of 2 N
  std::int64_t partition = 0;        ///< S
  std::vector<std::int64_t> offset;  ///< by parameter; -1 if not trainable
  std::vector<ParameterId> order;    ///< in the flat tensor
};

Layout flat_layout(const Model& model, const ZeroOptions& options, int world_size) {
  Layout layout;
  layout.offset.assign(model.parameters.size(), -1);
  std::vector<ParameterId> trainable;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (model.parameters[i].trainable) {
      trainable.emplace_back(i);
    }
  }
  const auto ranks = static_cast<std::size_t>(world_size);
  if (options.round_robin_gradients) {  // B2.3
    for (std::size_t first = 0; first < ranks; ++first) {
      for (std::size_t i = first; i < trainable.size(); i += ranks) {
        layout.order.push_back(trainable[i]);
      }
    }
  } else {
    layout.order = trainable;
  }
  for (const ParameterId id : layout.order) {
    layout.offset[id.index()] = layout.elements;
    layout.elements += model.parameters[id.index()].elements;
  }
  const std::int64_t alignment = 2 * static_cast<std::int64_t>(world_size);
  layout.padded = (layout.elements + alignment - 1) / alignment * alignment;
  layout.partition = layout.padded / world_size;
  return layout;
}

struct BucketEntry {
  ParameterId parameter;
  BufferId gradient;  ///< valid: reduced from its own memory (extra-large, or not contiguous)
};

// A run of a bucket's elements that one rank owns.
struct Slice {
  std::int64_t owner = 0;
  std::int64_t elements = 0;
};

class Zero12 : public FrameworkHooks {
 public:
  Zero12(const FrameworkContext& context, Rank rank)
      : model_(context.model),
        strategy_(context.strategy),
        zero_(context.strategy.zero),
        builder_(context.builder),
        group_(context.data_parallel),
        world_size_(context.world_size),
        rank_(rank.value()),
        layout_(flat_layout(model_, zero_, world_size_)),
        bytes_(dtype_bytes(model_dtype(strategy_.precision))),
        local_gradients_(model_.parameters.size()),
        states_allocated_(context.first_step > 0) {
    reduction_stream_ = zero_.overlap_comm ? builder_.add_stream("reduce") : kComputeStream;
    for (const ParameterId id : layout_.order) {
      if (elements_in_my_partition(id) > 0) {
        my_parameters_.push_back(id);
        my_gradient_elements_ += elements(id);
      }
    }
  }

  void initialize() override {
    builder_.allocate(low(layout_.padded), MemoryClass::Parameters, "flat_parameters",
                      kComputeStream, "B2.1");
    // Frozen parameters are in no flat buffer (rule 77): each keeps its own tensor.
    const std::int64_t frozen = parameter_count(model_) - layout_.elements;
    if (frozen > 0) {
      builder_.allocate(low(frozen), MemoryClass::Parameters, "frozen_parameters", kComputeStream,
                        "B2.1");
    }
    builder_.allocate(Bytes(layout_.partition) * 4, MemoryClass::OptimizerStates, "master_weights",
                      kComputeStream, "B2.4");
    if (states_allocated_) {
      allocate_states();
    }
  }

  void begin_forward(const MicroBatch& micro) override { micro_ = micro; }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    builder_.host({HostWork::GradientHook}, "B3.2");
    if (zero_.stage == 1) {
      gradient = accumulate_locally(id, gradient);
    }
    if (reduces_in_hooks()) {
      local_gradients_[id.index()] = BufferId();
      add_to_bucket(id, gradient);
    }
  }

  void end_backward() override {
    if (zero_.stage == 1 && !micro_.boundary) {
      return;
    }
    if (!reduces_in_hooks()) {  // B3.2: walk after backward, in order of definition
      for (const ParameterId id : trainable_in_registration_order()) {
        BufferId gradient = local_gradients_[id.index()];
        local_gradients_[id.index()] = BufferId();
        // What was not used has no gradient, and nothing is sent for it (rule 85).
        if (gradient.valid()) add_to_bucket(id, gradient);
      }
    }
    epilogue();
  }

  void optimizer_step() override {
    if (strategy_.precision == Precision::Fp16 ||
        (strategy_.precision == Precision::Bf16 && strategy_.check_grad_overflow)) {
      check_overflow();
    }
    gradient_norm();
    update();
    gather_parameters();
  }

 private:
  [[nodiscard]] Bytes low(std::int64_t n) const { return Bytes(n) * bytes_; }
  [[nodiscard]] Bytes wire(std::int64_t n) const {
    return Bytes(n) * dtype_bytes(strategy_.communication_dtype);
  }
  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return model_.parameters[id.index()].elements;
  }
  [[nodiscard]] bool reduces_in_hooks() const {
    return zero_.stage == 2 || (zero_.overlap_comm && micro_.boundary);
  }
  [[nodiscard]] int my_tensors() const {
    return std::max<int>(1, static_cast<int>(my_parameters_.size()));
  }

  [[nodiscard]] std::vector<ParameterId> trainable_in_registration_order() const {
    std::vector<ParameterId> ids = layout_.order;
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  [[nodiscard]] std::int64_t elements_in_my_partition(ParameterId id) const {
    const std::int64_t begin = std::max(layout_.offset[id.index()], rank_ * layout_.partition);
    const std::int64_t end =
        std::min(layout_.offset[id.index()] + elements(id), (rank_ + 1) * layout_.partition);
    return std::max<std::int64_t>(0, end - begin);
  }

  void allocate_states() {
    builder_.allocate(Bytes(layout_.partition) * 8, MemoryClass::OptimizerStates, "adam_moments",
                      kComputeStream, "B2.6");
    states_allocated_ = true;
  }

  // Stage 1 keeps full gradients over the window in the model's type (B3.2, B3.11).
  BufferId accumulate_locally(ParameterId id, BufferId gradient) {
    BufferId& kept = local_gradients_[id.index()];
    if (!kept.valid()) {
      kept = gradient;
    } else {
      builder_.kernel(kComputeStream, memory_kernel("accumulate", low(elements(id)) * 3),
                      HostWork::BackwardLaunch, "B3.2");
      builder_.free(gradient);
    }
    return kept;
  }

  /// \name Buckets
  ///@{
  void set_up_buckets() {  // B3.1
    if (!buckets_.empty() || !zero_.contiguous_gradients) {
      return;
    }
    for (int i = 0; i < (zero_.overlap_comm ? 2 : 1); ++i) {
      buckets_.push_back(builder_.allocate(low(zero_.reduce_bucket_size),
                                           MemoryClass::TemporaryBuffers, "ipg_bucket",
                                           kComputeStream, "B3.1"));
    }
  }

  void add_to_bucket(ParameterId id, BufferId gradient) {
    set_up_buckets();
    const std::int64_t n = elements(id);
    if (n == 0) {
      builder_.free(gradient);
      return;
    }
    if (bucket_elements_ + n > zero_.reduce_bucket_size) {  // B3.3
      flush();
    }
    if (zero_.contiguous_gradients && n <= zero_.reduce_bucket_size) {  // B3.4
      builder_.kernel(kComputeStream, memory_kernel("copy_to_bucket", low(n) * 2),
                      HostWork::BackwardLaunch, "B3.4");
      builder_.free(gradient, "B3.4");
    }
    bucket_.push_back({id, gradient});
    bucket_elements_ += n;
  }

  void flush() {
    if (zero_.overlap_comm && zero_.contiguous_gradients) {  // B3.5
      const OpId previous = builder_.last(reduction_stream_);
      builder_.stream_wait_stream(reduction_stream_, kComputeStream, "B3.5");
      builder_.stream_wait(kComputeStream, previous, "B3.5");
    }
    if (!bucket_.empty()) {
      reduce();
      for (BucketEntry& entry : bucket_) {
        keep_my_part(entry);
      }
    }
    bucket_.clear();
    bucket_elements_ = 0;
  }

  // B3.6: which collectives a flush issues.
  void reduce() {
    if (world_size_ == 1) {
      return;
    }
    if (zero_.true_reduce_scatter) {
      reduce_scatter();
    } else if (!zero_.contiguous_gradients) {
      synchronize_before_message();
      all_reduce(bucket_elements_, static_cast<int>(bucket_.size()), /*divide_first=*/true);
    } else if (!zero_.reduce_scatter) {
      all_reduce(bucket_elements_, 1, /*divide_first=*/false);
    } else if (zero_.use_multi_rank_bucket_allreduce) {
      all_reduce_slices();
    } else {
      reduce_to_owners();
    }
  }

  void synchronize_before_message() {
    if (zero_.overlap_comm) {
      builder_.device_synchronize("B3.6");
    }
  }

  void collective(CollectiveKind kind, std::int64_t input, std::int64_t output, Dtype dtype,
                  StreamId stream, int root, std::string_view rule) {
    Collective collective;
    collective.kind = kind;
    collective.input_elements = input;
    collective.output_elements = output;
    collective.dtype = dtype;
    collective.group = group_;
    collective.root = root;
    builder_.collective(stream, collective, rule);
  }

  void side_kernel(std::string_view name, Bytes bytes, std::string_view rule, int launches = 1) {
    builder_.kernel(reduction_stream_, memory_kernel(name, bytes, launches),
                    HostWork::BackwardLaunch, rule);
  }

  // The paper's: each rank receives its piece of the bucket and nothing else (B7, not DeepSpeed's
  // default).
  void reduce_scatter() {
    const std::int64_t piece = (bucket_elements_ + world_size_ - 1) / world_size_;
    const std::int64_t padded = piece * world_size_;
    BufferId flat = builder_.allocate(wire(padded), MemoryClass::TemporaryBuffers, "flat_bucket",
                                      reduction_stream_, "B7");
    side_kernel("flatten", low(bucket_elements_) + wire(padded), "B7");
    side_kernel("divide", wire(padded) * 2, "B7");
    collective(CollectiveKind::ReduceScatter, padded, piece, strategy_.communication_dtype,
               reduction_stream_, -1, "B7");
    builder_.free(flat);
  }

  // One message of `n` elements out of `pieces` tensors: flatten unless it is one, cast, average.
  void message(CollectiveKind kind, std::int64_t n, int pieces, bool divide_first, int root) {
    const bool cast = strategy_.communication_dtype != model_dtype(strategy_.precision);
    BufferId flat;
    BufferId wire_copy;
    if (pieces > 1) {
      flat = builder_.allocate(low(n), MemoryClass::TemporaryBuffers, "flat_bucket",
                               reduction_stream_, "B3.6");
      side_kernel("flatten", low(n) * 2, "B3.6");
    }
    if (cast) {
      wire_copy = builder_.allocate(wire(n), MemoryClass::TemporaryBuffers, "cast_bucket",
                                    reduction_stream_, "B3.6");
      side_kernel("cast", low(n) + wire(n), "B3.6");
    }
    if (divide_first) {
      side_kernel("divide", wire(n) * 2, "B3.6");
    }
    collective(kind, n, n, strategy_.communication_dtype, reduction_stream_, root, "B3.6");
    if (!divide_first) {
      side_kernel("average", wire(n) * 2, "B3.6");
    }
    if (cast) {
      side_kernel("cast", low(n) + wire(n), "B3.6");
      builder_.free(wire_copy);
    }
    builder_.free(flat);
  }

  void all_reduce(std::int64_t n, int pieces, bool divide_first) {
    message(CollectiveKind::AllReduce, n, pieces, divide_first, -1);
  }

  [[nodiscard]] std::vector<Slice> slices() const {
    std::vector<Slice> slices;
    for (const BucketEntry& entry : bucket_) {
      std::int64_t begin = layout_.offset[entry.parameter.index()];
      const std::int64_t end = begin + elements(entry.parameter);
      while (begin < end) {
        const std::int64_t owner = begin / layout_.partition;
        const std::int64_t next = std::min(end, (owner + 1) * layout_.partition);
        slices.push_back({owner, next - begin});
        begin = next;
      }
    }
    return slices;
  }

  // One all-reduce of all slices; regrouped greedily, so that an extra-large parameter that spans
  // ranks may be split (B3.6, B3.10: 1200 = 526 + 626 + 48 with bucket 1000 gives 1152 and 48).
  void all_reduce_slices() {
    std::int64_t sum = 0;
    int pieces = 0;
    for (const Slice& slice : slices()) {
      sum += slice.elements;
      ++pieces;
      if (sum > zero_.reduce_bucket_size) {
        all_reduce(sum, pieces, /*divide_first=*/true);
        sum = 0;
        pieces = 0;
      }
    }
    if (sum > 0) {
      all_reduce(sum, pieces, /*divide_first=*/true);
    }
  }

  // One reduce to each owner, in order of first appearance (rule 2 of deepspeed_recorded.md).
  void reduce_to_owners() {
    std::vector<Slice> owners;
    std::vector<int> pieces;
    for (const Slice& slice : slices()) {
      const auto found = std::find_if(owners.begin(), owners.end(), [&](const Slice& other) {
        return other.owner == slice.owner;
      });
      if (found == owners.end()) {
        owners.push_back(slice);
        pieces.push_back(1);
      } else {
        found->elements += slice.elements;
        ++pieces[static_cast<std::size_t>(found - owners.begin())];
      }
    }
    for (std::size_t i = 0; i < owners.size(); ++i) {
      synchronize_before_message();
      message(CollectiveKind::Reduce, owners[i].elements, pieces[i], /*divide_first=*/true,
              static_cast<int>(owners[i].owner));
    }
  }

  // B3.7, B3.8: what touches my partition moves to the partition gradient buffer, whole; the rest
  // goes.
  void keep_my_part(BucketEntry& entry) {
    if (elements_in_my_partition(entry.parameter) > 0) {
      if (!new_partition_gradients_.valid()) {
        new_partition_gradients_ =
            builder_.allocate(low(my_gradient_elements_), MemoryClass::Gradients,
                              "partition_gradients", reduction_stream_, "B3.8");
      }
      side_kernel("copy_to_partition", low(elements(entry.parameter)) * 2, "B3.7");
    }
    const bool own_memory =
        !zero_.contiguous_gradients || elements(entry.parameter) > zero_.reduce_bucket_size;
    if (own_memory) {
      builder_.free(entry.gradient, "B3.7");
    }
  }

  void epilogue() {  // B3.9
    flush();
    if (zero_.overlap_comm) {
      builder_.device_synchronize("B3.9");
    }
    if (!partition_gradients_.valid()) {
      partition_gradients_ = new_partition_gradients_;
      new_partition_gradients_ = BufferId();
    } else {
      builder_.kernel(kComputeStream,
                      memory_kernel("accumulate", low(my_gradient_elements_) * 3, my_tensors()),
                      HostWork::KernelLaunch, "B3.9");
      builder_.free(new_partition_gradients_, "B3.9");
    }
    for (BufferId& bucket : buckets_) {
      builder_.free(bucket, "B3.1");
    }
    buckets_.clear();
  }
  ///@}

  /// \name Step (B5)
  ///@{
  void check_overflow() {  // B5 item 1: about six kernels a slice
    builder_.kernel(
        kComputeStream,
        optimizer_kernel("overflow_check", Bytes(layout_.partition) * (bytes_ + 4 + 4 + 4 + 3),
                         6 * my_tensors()),
        HostWork::KernelLaunch, "B5");
    if (world_size_ > 1) {
      collective(CollectiveKind::AllReduce, 1, 1, Dtype::U8, kComputeStream, -1, "B5");
    }
    builder_.host_wait_stream(kComputeStream, "0.7");
  }

  void gradient_norm() {  // B5 item 2: an fp64 copy of one slice at a time
    std::int64_t largest = 0;
    for (const ParameterId id : my_parameters_) {
      largest = std::max(largest, elements_in_my_partition(id));
    }
    BufferId fp64 = builder_.allocate(Bytes(largest) * 8, MemoryClass::TemporaryBuffers,
                                      "fp64_norm", kComputeStream, "B5");
    builder_.kernel(kComputeStream,
                    optimizer_kernel("gradient_norm", Bytes(layout_.partition) * (bytes_ + 8 + 8),
                                     2 * my_tensors()),
                    HostWork::KernelLaunch, "B5");
    builder_.free(fp64);
    if (world_size_ > 1) {
      collective(CollectiveKind::AllReduce, 1, 1, Dtype::F32, kComputeStream, -1, "B5");
    }
  }

  void update() {  // B5 item 3
    const std::int64_t s = layout_.partition;
    BufferId flat = builder_.allocate(low(s), MemoryClass::TemporaryBuffers, "flat_gradients",
                                      kComputeStream, "B5");
    builder_.kernel(kComputeStream, optimizer_kernel("flatten", low(s) * 2), HostWork::KernelLaunch,
                    "B5");
    BufferId fp32 = flat;
    if (bytes_ != 4) {
      fp32 = builder_.allocate(Bytes(s) * 4, MemoryClass::TemporaryBuffers, "fp32_gradients",
                               kComputeStream, "B5");
      builder_.kernel(kComputeStream, optimizer_kernel("cast", Bytes(s) * (bytes_ + 4)),
                      HostWork::KernelLaunch, "B5");
      builder_.free(flat);
    }
    builder_.free(partition_gradients_, "B5");
    builder_.kernel(kComputeStream, optimizer_kernel("scale", Bytes(s) * 8), HostWork::KernelLaunch,
                    "B5");
    if (!states_allocated_) {
      allocate_states();
    }
    const AdamUpdate adam = adam_update(strategy_.optimizer, s, 1);
    BufferId temporary;
    if (adam.temporary.count() > 0) {
      temporary = builder_.allocate(adam.temporary, MemoryClass::TemporaryBuffers,
                                    "optimizer_temporary", kComputeStream, "E4");
    }
    builder_.kernel(kComputeStream, adam.kernel, HostWork::OptimizerLaunch, "B2.4");
    builder_.free(temporary);
    builder_.free(fp32);
    builder_.kernel(kComputeStream, optimizer_kernel("copy_to_weights", Bytes(s) * (4 + bytes_)),
                    HostWork::KernelLaunch, "B5");
  }

  void gather_parameters() {  // B5.2: one blocking all-gather of everything
    if (world_size_ > 1) {
      collective(CollectiveKind::AllGather, layout_.partition, layout_.padded,
                 model_dtype(strategy_.precision), kComputeStream, -1, "B5.2");
    }
  }
  ///@}

  const Model& model_;
  const Strategy& strategy_;
  const ZeroOptions& zero_;
  RankProgramBuilder& builder_;
  GroupId group_;
  int world_size_;
  std::int64_t rank_;
  Layout layout_;
  int bytes_;  ///< of an element in the model's type
  StreamId reduction_stream_;
  MicroBatch micro_;
  std::vector<ParameterId> my_parameters_;  ///< with any element in my partition
  std::int64_t my_gradient_elements_ = 0;   ///< their full sizes (B3.8)
  std::vector<BufferId> local_gradients_;   ///< stage 1, by parameter
  std::vector<BufferId> buckets_;           ///< IPG buffers
  std::vector<BucketEntry> bucket_;         ///< what the current one holds
  std::int64_t bucket_elements_ = 0;
  BufferId partition_gradients_;
  BufferId new_partition_gradients_;
  bool states_allocated_;
};

}  // namespace

Rank largest_partition_rank(const Model& model, const ZeroOptions& options, int world_size) {
  const Layout layout = flat_layout(model, options, world_size);
  // Elements of parameters that begin or end on a rank, as differences along the ranks.
  std::vector<std::int64_t> change(static_cast<std::size_t>(world_size) + 1, 0);
  for (const ParameterId id : layout.order) {
    const std::int64_t n = model.parameters[id.index()].elements;
    if (n > 0) {
      const std::int64_t begin = layout.offset[id.index()];
      change[static_cast<std::size_t>(begin / layout.partition)] += n;
      change[static_cast<std::size_t>((begin + n - 1) / layout.partition) + 1] -= n;
    }
  }
  std::int64_t sum = 0;
  std::int64_t largest = -1;
  Rank rank(0);
  for (int r = 0; r < world_size; ++r) {
    sum += change[static_cast<std::size_t>(r)];
    if (sum > largest) {
      largest = sum;
      rank = Rank(r);
    }
  }
  return rank;
}

std::unique_ptr<FrameworkHooks> make_zero12(const FrameworkContext& context, Rank rank) {
  return std::make_unique<Zero12>(context, rank);
}

}  // namespace zerosim
