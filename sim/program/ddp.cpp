// PyTorch DistributedDataParallel, and training on one GPU: spec D1, rules 60 to 62 of
// deepspeed_recorded.md.
//
// Gradients are copied into buckets as they become ready; a bucket is all-reduced, asynchronously
// and in bucket order, as soon as it and all earlier ones are full. At first there is one bucket
// (D1.1); later they follow the order of arrival (D1.2). Under no_sync only the boundary micro
// batch does so (D1.7). What follows here in the names of its steps is PyTorch's reducer.cpp.
//
// Not modelled: the host's walk through the autograd graph that find_unused_parameters adds.

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/adam.h"
#include "sim/program/frameworks.h"
#include "sim/program/model_loading.h"

namespace zerosim {

namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr Bytes kNoLimit(INT64_MAX);
// DistributedDataParallel.broadcast_bucket_size, and max_in_flight of broadcast_coalesced (D1.7).
constexpr double kBufferBucketMib = 250;
constexpr std::size_t kBroadcastsInFlight = 2;

struct Bucket {
  std::vector<ParameterId> parameters;
  std::int64_t elements = 0;
  std::size_t ready = 0;
  OpId all_reduce;
  BufferId memory;
};

/// int(mib * 1024 * 1024), as DistributedDataParallel's constructor has it.
Bytes limit_of(double mib) {
  constexpr double kLargest = 0x1p62;
  return mib * kMiB < kLargest ? Bytes(static_cast<std::int64_t>(mib * kMiB)) : kNoLimit;
}

/// Which items share a bucket: in order, a bucket closes once its bytes REACH its limit (D1.3,
/// compute_bucket_assignment_by_size). The last of `limits` holds for all later buckets.
std::vector<std::vector<std::size_t>> buckets_by_size(std::span<const Bytes> sizes,
                                                      std::span<const Bytes> limits) {
  std::vector<std::vector<std::size_t>> buckets;
  Bytes filled;
  bool open = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!open) {
      buckets.emplace_back();
      filled = Bytes();
    }
    buckets.back().push_back(i);
    filled += sizes[i];
    open = filled < limits[std::min(buckets.size(), limits.size()) - 1];
  }
  return buckets;
}

/// Trainable parameters in the order in which their gradients arrive; those without are not listed.
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

/// Trainable parameters in order of registration.
std::vector<ParameterId> trainable_parameters(const Model& model) {
  std::vector<ParameterId> ids;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (model.parameters[i].trainable) {
      ids.emplace_back(i);
    }
  }
  return ids;
}

class Ddp : public FrameworkHooks {
 public:
  explicit Ddp(const FrameworkContext& context)
      : model_(context.model),
        strategy_(context.strategy),
        options_(context.strategy.ddp),
        builder_(context.builder),
        group_(context.world),
        distributed_(strategy_.framework == Framework::Ddp),
        static_graph_(distributed_ && options_.static_graph),
        find_unused_(distributed_ && options_.find_unused_parameters && !static_graph_),
        view_(distributed_ && options_.gradient_as_bucket_view),
        zeroes_gradients_(strategy_.torch_version == "1.13"),
        scales_loss_(strategy_.precision == Precision::Fp16 &&
                     options_.parameter_dtype == Dtype::F32),
        overflow_steps_(scales_loss_ ? strategy_.overflow_steps : 0),
        trainable_(trainable_parameters(model_)),
        elements_(trainable_parameter_count(model_)),
        bucket_of_(model_.parameters.size()),
        gradients_(model_.parameters.size()),
        in_bucket_(model_.parameters.size()),
        used_(model_.parameters.size()),
        synchronised_(context.first_step *
                      (options_.no_sync ? std::int64_t{1} : strategy_.grad_accum)),
        context_(context) {
    std::vector<std::int64_t> sizes;
    for (const ParameterId id : trainable_) {
      sizes.push_back(model_.parameters[id.index()].elements);
    }
    // torch.optim keeps moments in the parameters' type.
    adam_.emplace(builder_, strategy_.optimizer, AdamTensors{sizes, options_.parameter_dtype},
                  "E4");
    use_model(model_);
    ready_order_ = arrival_;
    if (distributed_) {
      check_parameters(context);
    }
    note_assumptions(context);
  }

  void initialize() override {
    allocate_parameters(context_, of(parameter_count(model_)), "parameters", "E2");
    if (context_.first_step > overflow_steps_) {
      adam_->allocate_moments();
    }
    if (distributed_) {
      // The rebuild comes before the forward that follows the last backward it needs.
      rebuilt_ = rebuilds() && synchronised_ > backwards_before_rebuild();
      fill_buckets();
      allocate_buckets();
    }
    if (zeroes_gradients_ && synchronised_ > 0) {
      restore_gradients();
    }
  }

  void select_model(const Model& model) override { use_model(model); }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    synchronises_ = !options_.no_sync || micro.boundary;
    if (!distributed_) {
      return;
    }
    if (rebuilds() && !rebuilt_ && synchronised_ >= backwards_before_rebuild()) {
      rebuild_buckets();
    }
    if (options_.broadcast_buffers && follows_synchronising_forward_) {
      broadcast_buffers();
    }
    follows_synchronising_forward_ = synchronises_;
    unused_marked_ = false;
  }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    accumulate(id, gradient);
    if (!distributed_) {
      return;
    }
    if (find_unused_ || first_static_iteration()) {
      used_[id.index()] = true;
    }
    if (!synchronises_) {
      return;  // D1.7
    }
    builder_.host({HostWork::GradientHook}, "D1.4");
    if (first_static_iteration()) {
      return;
    }
    mark_unused_ready();
    mark_ready(id);
  }

  void end_backward() override {
    if (!distributed_ || !synchronises_ || arrival_.empty()) {
      return;
    }
    if (first_static_iteration()) {
      reduce_late();
    }
    ZS_CHECK(next_launch_ == buckets_.size(), "every bucket is reduced");
    for (Bucket& bucket : buckets_) {
      finish(bucket);
    }
    if (used_map_.valid() && !used_map_read_) {
      builder_.stream_wait(kComputeStream, used_map_, "D1.5");
    }
    if (find_unused_) {
      used_.assign(used_.size(), false);
      used_map_read_ = false;
    }
    used_map_ = OpId();
    next_launch_ = 0;
    ready_order_ = arrival_;
    ++synchronised_;
  }

  void optimizer_step() override {
    if (scales_loss_) {
      // GradScaler: unscale, look for infinities, and ask the device.
      const OpId check =
          builder_.kernel(kComputeStream, optimizer_kernel("unscale", of(elements_) * 2),
                          HostWork::OptimizerLaunch, "A4.3");
      builder_.host_wait(check, "A4.3");
    }
    if (strategy_.gradient_clipping > 0) {
      builder_.kernel(kComputeStream, optimizer_kernel("gradient_norm", of(elements_)),
                      HostWork::OptimizerLaunch, "E4");
      builder_.kernel(kComputeStream, optimizer_kernel("clip", of(elements_) * 2),
                      HostWork::OptimizerLaunch, "E4");
    }
    if (micro_.step >= overflow_steps_) {
      adam_->step();
    }
    drop_gradients();
  }

 private:
  void use_model(const Model& model) {
    if (selected_ == &model) {
      return;
    }
    selected_ = &model;
    arrival_ = arrival_order(model);
    std::vector<bool> arrives(model.parameters.size());
    for (const ParameterId id : arrival_) {
      arrives[id.index()] = true;
    }
    unused_.clear();
    for (const ParameterId id : trainable_) {
      if (!arrives[id.index()]) {
        unused_.push_back(id);
      }
    }
  }

  [[nodiscard]] Bytes of(std::int64_t elements) const {
    return Bytes(elements) * dtype_bytes(options_.parameter_dtype);
  }
  [[nodiscard]] Bytes of(ParameterId id) const {
    return of(model_.parameters[id.index()].elements);
  }

  // ---- what the constructor finds ----

  /// Without find_unused_parameters a parameter that gets no gradient is an error of the iteration
  /// after the first (ensure_prior_reduction_finished).
  void check_parameters(const FrameworkContext& context) {
    if (trainable_.empty()) {
      throw ConfigError(
          format("{}: no parameter trains, which DistributedDataParallel refuses; expected at "
                 "least one that requires a gradient",
                 strategy_.name));
    }
    if (find_unused_ || static_graph_ || (unused_.empty() && !context.idle_experts)) {
      return;
    }
    find_unused_ = true;
    if (unused_.empty()) {
      context.program.assumptions.emplace_back(
          "find_unused_parameters taken as true: some micro batch leaves experts without tokens, "
          "with which DistributedDataParallel stops in the next iteration (D1.1)");
      return;
    }
    context.program.assumptions.push_back(
        format("find_unused_parameters taken as true: {} trainable parameters get no gradient ({} "
               "is the first), with which DistributedDataParallel stops in its second iteration "
               "(D1.1)",
               unused_.size(), model_.parameters[unused_.front().index()].name));
  }

  void note_assumptions(const FrameworkContext& context) const {
    if (zeroes_gradients_) {
      context.program.assumptions.emplace_back(
          "gradients are zeroed after a step, not freed: zero_grad's default in PyTorch 1.13");
    }
    if (distributed_ && options_.broadcast_buffers && !model_.buffers.empty()) {
      context.program.assumptions.emplace_back(
          "the module buffers that rank 0 broadcasts (D1.7) are those that transformers 4.57 "
          "registers");
    }
    if (static_graph_ && options_.find_unused_parameters) {
      context.program.assumptions.emplace_back(
          "find_unused_parameters has no effect with static_graph, which finds unused parameters "
          "itself; PyTorch warns");
    }
  }

  // ---- buckets (D1.1 to D1.3) ----

  /// Reducer::should_rebuild_buckets.
  [[nodiscard]] bool rebuilds() const { return !find_unused_; }
  /// The first records the order; a static graph only counts hooks in its first iteration (rule
  /// 60).
  [[nodiscard]] std::int64_t backwards_before_rebuild() const { return static_graph_ ? 2 : 1; }
  [[nodiscard]] bool first_static_iteration() const { return static_graph_ && synchronised_ == 0; }

  void fill_buckets() {
    const Bytes first = limit_of(options_.first_bucket_mib);
    const Bytes other = limit_of(options_.bucket_cap_mib);
    if (rebuilt_) {
      set_buckets(rebuild_order(), {first, other});
      return;
    }
    // Filled in order of registration; the reducer gets the list of buckets reversed.
    set_buckets(trainable_,
                find_unused_ ? std::vector<Bytes>{first, other} : std::vector<Bytes>{kNoLimit});
    std::reverse(buckets_.begin(), buckets_.end());
    index_buckets();
  }

  /// Unused parameters are ready first, then each as its gradient arrived.
  [[nodiscard]] std::vector<ParameterId> rebuild_order() const {
    std::vector<bool> arrived(model_.parameters.size());
    for (const ParameterId id : ready_order_) {
      arrived[id.index()] = true;
    }
    std::vector<ParameterId> order;
    for (const ParameterId id : trainable_) {
      if (!arrived[id.index()]) {
        order.push_back(id);
      }
    }
    order.insert(order.end(), ready_order_.begin(), ready_order_.end());
    return order;
  }

  void set_buckets(const std::vector<ParameterId>& order, const std::vector<Bytes>& limits) {
    std::vector<Bytes> sizes;
    sizes.reserve(order.size());
    for (const ParameterId id : order) {
      sizes.push_back(of(id));
    }
    buckets_.clear();
    for (const std::vector<std::size_t>& places : buckets_by_size(sizes, limits)) {
      Bucket& bucket = buckets_.emplace_back();
      for (const std::size_t place : places) {
        bucket.parameters.push_back(order[place]);
        bucket.elements += model_.parameters[order[place].index()].elements;
      }
    }
    index_buckets();
  }

  void index_buckets() {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      for (const ParameterId id : buckets_[i].parameters) {
        bucket_of_[id.index()] = i;
      }
    }
  }

  void allocate_buckets() {
    for (Bucket& bucket : buckets_) {
      bucket.memory = builder_.allocate(
          of(bucket.elements), view_ ? MemoryClass::Gradients : MemoryClass::TemporaryBuffers,
          "ddp_bucket", kComputeStream, "D1.6");
    }
  }

  void rebuild_buckets() {
    std::vector<Bucket> old = std::move(buckets_);
    rebuilt_ = true;
    fill_buckets();
    broadcast_layout();
    // Old and new buckets live together for a moment (D1.6).
    allocate_buckets();
    for (const ParameterId id : trainable_) {
      if (in_bucket_[id.index()]) {
        builder_.kernel(kComputeStream, memory_kernel("move_view", of(id) * 2),
                        HostWork::KernelLaunch, "D1.6");
      }
    }
    for (Bucket& bucket : old) {
      builder_.free(bucket.memory, "D1.6");
    }
  }

  // D1.2: parameter indices and the number of buckets, then bucket sizes, from rank 0; issued in
  // C++, read by the host.
  void broadcast_layout() {
    const auto parameters = static_cast<std::int64_t>(trainable_.size());
    const auto bucket_count = static_cast<std::int64_t>(buckets_.size());
    for (const std::int64_t elements : {parameters + 1, bucket_count}) {
      builder_.host_wait(
          builder_.collective(kComputeStream, broadcast(elements, Dtype::I32), "D1.2"), "D1.2");
    }
  }

  [[nodiscard]] Collective broadcast(std::int64_t elements, Dtype dtype) const {
    Collective broadcast;
    broadcast.kind = CollectiveKind::Broadcast;
    broadcast.input_elements = broadcast.output_elements = elements;
    broadcast.dtype = dtype;
    broadcast.group = group_;
    broadcast.recorded = false;
    broadcast.root = 0;
    return broadcast;
  }

  // ---- module buffers (D1.7) ----

  struct BufferBroadcast {
    OpId collective;
    BufferId flat;
    Bytes bytes;
    int tensors = 0;
  };

  // `broadcast_coalesced`: by type, in buckets, at most two in flight.
  void broadcast_buffers() {
    std::map<Dtype, std::vector<std::int64_t>> by_type;
    for (const ModuleBuffer& buffer : model_.buffers) {
      by_type[cast_type(buffer.dtype)].push_back(buffer.elements);
    }
    std::deque<BufferBroadcast> in_flight;
    for (const auto& [dtype, elements] : by_type) {
      std::vector<Bytes> sizes;
      sizes.reserve(elements.size());
      for (const std::int64_t count : elements) {
        sizes.push_back(Bytes(count) * dtype_bytes(dtype));
      }
      const std::vector<Bytes> limits = {limit_of(kBufferBucketMib)};
      for (const std::vector<std::size_t>& places : buckets_by_size(sizes, limits)) {
        if (in_flight.size() == kBroadcastsInFlight) {
          finish(in_flight.front());
          in_flight.pop_front();
        }
        std::int64_t sum = 0;
        for (const std::size_t place : places) {
          sum += elements[place];
        }
        in_flight.push_back(start_broadcast(sum, dtype, static_cast<int>(places.size())));
      }
    }
    for (BufferBroadcast& broadcast : in_flight) {
      finish(broadcast);
    }
  }

  /// `model.bfloat16()` casts buffers of floating point too.
  [[nodiscard]] Dtype cast_type(Dtype dtype) const {
    return dtype == Dtype::F32 ? options_.parameter_dtype : dtype;
  }

  BufferBroadcast start_broadcast(std::int64_t elements, Dtype dtype, int tensors) {
    BufferBroadcast started;
    started.bytes = Bytes(elements) * dtype_bytes(dtype);
    started.tensors = tensors;
    if (tensors > 1) {  // one alone is sent as it is
      started.flat = builder_.allocate(started.bytes, MemoryClass::TemporaryBuffers, "flat_buffers",
                                       kComputeStream, "D1.7");
      builder_.kernel(kComputeStream, memory_kernel("flatten_buffers", started.bytes * 2),
                      HostWork::KernelLaunch, "D1.7");
    }
    Collective collective = broadcast(elements, dtype);
    collective.async = true;
    started.collective = builder_.collective(kComputeStream, collective, "D1.7");
    return started;
  }

  void finish(BufferBroadcast& broadcast) {
    builder_.stream_wait(kComputeStream, broadcast.collective, "D1.7");
    builder_.kernel(kComputeStream,
                    memory_kernel("copy_to_buffers", broadcast.bytes * 2, broadcast.tensors),
                    HostWork::KernelLaunch, "D1.7");
    builder_.free(broadcast.flat, "D1.7");
  }

  // ---- gradients (D1.4 to D1.7) ----

  /// AccumulateGrad: the first gradient is kept as it is, later ones are added.
  void accumulate(ParameterId id, BufferId gradient) {
    BufferId& kept = gradients_[id.index()];
    if (!kept.valid() && !in_bucket_[id.index()]) {
      kept = gradient;
      return;
    }
    builder_.kernel(kComputeStream, memory_kernel("accumulate", of(id) * 3),
                    HostWork::BackwardLaunch, "D1.7");
    builder_.free(gradient);
  }

  /// At the first hook of a backward.
  void mark_unused_ready() {
    if (unused_marked_) {
      return;
    }
    unused_marked_ = true;
    for (const ParameterId id : unused_) {
      mark_ready(id);
    }
  }

  void mark_ready(ParameterId id) {
    put_into_bucket(id);
    launch_full_buckets();
    if (find_unused_ && next_launch_ == buckets_.size()) {
      reduce_used_map();
    }
  }

  // mark_variable_ready_dense: divides while copying, or in place if the gradient is the view.
  void put_into_bucket(ParameterId id) {
    BufferId& kept = gradients_[id.index()];
    Kernel kernel = memory_kernel("zero_bucket", of(id));
    if (in_bucket_[id.index()]) {
      kernel = memory_kernel("divide", of(id) * 2);
    } else if (kept.valid()) {
      kernel = memory_kernel("copy_to_bucket", of(id) * 2);
    }
    builder_.kernel(kComputeStream, kernel, HostWork::BackwardLaunch, "D1.4");
    if (view_ && kept.valid()) {
      builder_.free(kept, "D1.6");
      in_bucket_[id.index()] = true;
    }
    ++buckets_[bucket_of_[id.index()]].ready;
  }

  void launch_full_buckets() {
    while (next_launch_ < buckets_.size() &&
           buckets_[next_launch_].ready == buckets_[next_launch_].parameters.size()) {
      Bucket& bucket = buckets_[next_launch_++];
      builder_.annotate(AnnotationKind::Bucket, bucket.elements, bucket.parameters);
      bucket.all_reduce =
          all_reduce(bucket.elements, options_.parameter_dtype, true, "D1.4");  // D1.8
    }
  }

  OpId all_reduce(std::int64_t elements, Dtype dtype, bool recorded, std::string_view rule) {
    Collective all_reduce;
    all_reduce.kind = CollectiveKind::AllReduce;
    all_reduce.input_elements = all_reduce.output_elements = elements;
    all_reduce.dtype = dtype;
    all_reduce.group = group_;
    all_reduce.async = true;
    all_reduce.recorded = recorded;
    return builder_.collective(kComputeStream, all_reduce, rule);
  }

  // Reducer::delay_all_reduce: the first iteration of a static graph reduces after its backward.
  void reduce_late() {
    reduce_used_map();
    for (const ParameterId id : trainable_) {
      put_into_bucket(id);
    }
    launch_full_buckets();
  }

  // Which parameters got a gradient on any rank: one i32 each; issued in C++.
  void reduce_used_map() {
    builder_.copy(kComputeStream, used_map_copy(Copy::Direction::HostToDevice), "D1.1");
    used_map_ = all_reduce(static_cast<std::int64_t>(trainable_.size()), Dtype::I32, false, "D1.1");
  }

  [[nodiscard]] Copy used_map_copy(Copy::Direction direction) const {
    Copy copy;
    copy.direction = direction;
    copy.bytes = Bytes(static_cast<std::int64_t>(trainable_.size())) * dtype_bytes(Dtype::I32);
    return copy;
  }

  // finalize_bucket_dense; the host reads the map only if it must know of a parameter.
  void finish(Bucket& bucket) {
    builder_.stream_wait(kComputeStream, bucket.all_reduce, "D1.5");
    Bytes copied;
    int tensors = 0;
    for (const ParameterId id : bucket.parameters) {
      const bool unused = (find_unused_ || static_graph_) && !used_[id.index()];
      if (unused && !used_map_read_) {
        read_used_map();
      }
      if (!unused && !view_) {
        copied += of(id);
        ++tensors;
      }
    }
    if (tensors > 0) {
      builder_.kernel(kComputeStream, memory_kernel("copy_from_bucket", copied * 2, tensors),
                      HostWork::BackwardLaunch, "D1.5");
    }
    bucket.ready = 0;
    bucket.all_reduce = OpId();
  }

  void read_used_map() {
    builder_.stream_wait(kComputeStream, used_map_, "D1.5");
    builder_.host_wait(
        builder_.copy(kComputeStream, used_map_copy(Copy::Direction::DeviceToHost), "D1.5"),
        "D1.5");
    used_map_read_ = true;
  }

  // ---- optimizer and zero_grad ----

  // zero_grad(): by default PyTorch 2 forgets gradients, 1.13 fills them with zeros.
  void drop_gradients() {
    if (!zeroes_gradients_) {
      for (BufferId& gradient : gradients_) {
        builder_.free(gradient, "D1.6");
      }
      in_bucket_.assign(in_bucket_.size(), false);
      return;
    }
    Bytes bytes;
    int tensors = 0;
    for (const ParameterId id : trainable_) {
      if (gradients_[id.index()].valid() || in_bucket_[id.index()]) {
        bytes += of(id);
        ++tensors;
      }
    }
    builder_.kernel(kComputeStream, memory_kernel("zero_gradients", bytes, tensors),
                    HostWork::KernelLaunch, "D1.6");
  }

  /// Those that an earlier step has left.
  void restore_gradients() {
    for (const ParameterId id : arrival_) {
      if (view_) {
        in_bucket_[id.index()] = true;
      } else {
        gradients_[id.index()] =
            builder_.allocate(of(id), MemoryClass::Gradients, "gradient", kComputeStream, "D1.6");
      }
    }
  }

  const Model& model_;
  const Strategy& strategy_;
  const DdpOptions& options_;
  RankProgramBuilder& builder_;
  GroupId group_;
  bool distributed_;
  bool static_graph_;
  bool find_unused_;  ///< without a static graph: unused parameters are looked for each time
  bool view_;         ///< gradients become views of their buckets
  bool zeroes_gradients_;
  bool scales_loss_;
  int overflow_steps_;
  std::vector<ParameterId> trainable_;  ///< in order of registration
  std::int64_t elements_;               ///< of those
  const Model* selected_ = nullptr;
  std::vector<ParameterId> arrival_;      ///< in this micro batch
  std::vector<ParameterId> unused_;       ///< get no gradient in this micro batch
  std::vector<ParameterId> ready_order_;  ///< `arrival_` of the last backward that synchronised
  MicroBatch micro_;
  bool synchronises_ = true;                   ///< this micro batch is not under no_sync
  bool follows_synchronising_forward_ = true;  ///< `require_forward_param_sync`
  std::vector<Bucket> buckets_;                ///< in order of launch
  std::vector<std::size_t> bucket_of_;         ///< by parameter
  std::vector<BufferId> gradients_;            ///< by parameter: tensors of their own
  std::vector<bool> in_bucket_;                ///< by parameter: the gradient is a view
  std::vector<bool> used_;  ///< by parameter: on this rank, since the map was last read or reset
  OpId used_map_;           ///< its all-reduce
  bool used_map_read_ = false;
  bool unused_marked_ = false;
  std::size_t next_launch_ = 0;
  bool rebuilt_ = false;
  std::int64_t synchronised_;  ///< backwards that reduced, since training began
  FrameworkContext context_;
  std::optional<Adam> adam_;
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_ddp(const FrameworkContext& context) {
  return std::make_unique<Ddp>(context);
}

}  // namespace zerosim
