// DeepSpeed ZeRO stage 3: spec C. What to gather and release is the coordinator's decision
// (zero3_coordinator.h); here are the streams, buffers and collectives that carry it out (C3,
// C4.4), the gradient bucket (C6) and the step (C8).

#include <algorithm>
#include <optional>

#include "sim/base/error.h"
#include "sim/program/frameworks.h"
#include "sim/program/zero3_coordinator.h"

namespace zerosim {

namespace {

// Gathers or reductions that may be outstanding before the host waits for the oldest (C4.4, C6.5).
constexpr std::size_t kOutstanding = 3;

// "At most k outstanding" is an unconditional wait on event i - k (design.md section 2).
class Throttle {
 public:
  void wait(RankProgramBuilder& builder, std::string_view rule) const {
    if (events_.size() >= kOutstanding) {
      builder.host_wait(events_[events_.size() - kOutstanding], rule);
    }
  }
  void record(OpId event) { events_.push_back(event); }

 private:
  std::vector<OpId> events_;
};

// One request of the coordinator on its way (C3): a gather and what is waiting for it.
struct Gather {
  std::vector<ParameterId> parameters;
  OpId collective;  ///< not valid with one rank
  BufferId flat;    ///< of a request of two or more parameters
  bool copied_out = false;
  std::size_t pending = 0;  ///< parameters not yet popped by their own module's fetch
};

struct BucketEntry {
  ParameterId parameter;
  BufferId gradient;  ///< valid: kept in its own memory, larger than the bucket (C6.3)
};

// A tile of the partition for the optimizer step (C8.2).
struct SubGroup {
  std::int64_t elements = 0;  ///< of the partition
  int tensors = 0;
  std::int64_t largest = 0;  ///< largest partition of one parameter
};

class Zero3 : public FrameworkHooks {
 public:
  explicit Zero3(const FrameworkContext& context)
      : model_(context.model),
        strategy_(context.strategy),
        zero_(context.strategy.zero),
        builder_(context.builder),
        world_(context.world),
        data_parallel_(context.data_parallel),
        world_size_(context.world_size),
        bytes_(dtype_bytes(model_dtype(strategy_.precision))),
        gradient_bytes_(dtype_bytes(strategy_.grad_accum_dtype)),
        release_(deepspeed_release(strategy_.version)),
        coordinator_(model_, zero_, release_),
        full_(model_.parameters.size()),
        in_flight_(model_.parameters.size()),
        hpz_(context.hpz),
        hpz_size_(zero_.hpz_partition_size),
        secondary_(model_.parameters.size()),
        steady_(context.first_step > 0) {
    gather_stream_ = zero_.overlap_comm ? builder_.add_stream("all_gather") : kComputeStream;
    reduce_stream_ = zero_.overlap_comm ? builder_.add_stream("reduce") : kComputeStream;
    for (const Parameter& parameter : model_.parameters) {
      partition_elements_ += partition(parameter.elements);
      if (parameter.trainable) {
        trainable_partition_elements_ += partition(parameter.elements);
      }
    }
    sub_groups_ = cut_sub_groups();
    if (steady_) {
      const std::vector<TrainingEvent> events = training_events(model_, strategy_.checkpointing);
      if (release_.resets_before_forward && !any_uses_others()) {
        coordinator_.skip_recording(fetch_order(events));
      } else {
        warm_up(events);
      }
    }
  }

  void initialize() override {
    allocate(Bytes(partition_elements_) * bytes_, MemoryClass::Parameters, "parameter_partitions",
             "C1.3");
    allocate(Bytes(trainable_partition_elements_) * gradient_bytes_, MemoryClass::Gradients,
             "gradient_partitions", "C1.4");
    if (zero_.contiguous_gradients) {
      allocate(wire(zero_.reduce_bucket_size), MemoryClass::TemporaryBuffers, "ipg_bucket", "C1.5");
    }
    allocate(Bytes(trainable_partition_elements_) * 4, MemoryClass::OptimizerStates,
             "master_weights", "C1.6");
    if (steady_) {
      allocate_moments();
      coordinator_.gather_persistent();
      for (std::size_t i = 0; i < full_.size(); ++i) {
        // What no step changes keeps its secondary copy (rule 81).
        if (has_secondaries() && !model_.parameters[i].trainable) {
          make_secondary(ParameterId(i));
        }
        if (coordinator_.persistent()[i]) {
          allocate_full(ParameterId(i), kComputeStream, "C1.7");
        }
      }
    } else if (has_secondaries()) {
      for (std::size_t i = 0; i < full_.size(); ++i) {  // made when the model is partitioned
        make_secondary(ParameterId(i));
      }
    }
  }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    verify(coordinator_.begin_forward());
  }

  void pre_forward(ModuleId module) override { fetch(module, Pass::Forward); }
  void pre_backward(ModuleId module) override { fetch(module, Pass::Backward); }
  void post_forward(ModuleId module, bool recompute) override {
    release(module, recompute ? Pass::Recompute : Pass::Forward);
  }
  void post_backward(ModuleId module) override { release(module, Pass::Backward); }

  // C2.6: a parameter of another module is gathered on the spot unless it is there.
  void pre_operator(const Operator& op) override {
    if (op.parameters.empty() || !uses_others(op)) {
      return;
    }
    for (const ParameterId id : coordinator_.access(op.module, op.parameters)) {
      allocate_full(id, kComputeStream, "C2.6");
      if (!alone()) {
        collective(CollectiveKind::AllGather, partition(elements(id)), padded(elements(id)),
                   model_dtype(strategy_.precision), world_, kComputeStream, /*async=*/false,
                   "C2.6");
      }
    }
  }

  void gradient_ready(ParameterId id, BufferId gradient) override {
    builder_.host({HostWork::GradientHook}, "C6.1");
    const std::int64_t n = elements(id);
    if (bucket_elements_ > 0 && bucket_elements_ + n > zero_.reduce_bucket_size) {  // C6.2
      reduce_bucket();
    }
    builder_.stream_wait_stream(reduce_stream_, kComputeStream, "C6.3");
    if (zero_.contiguous_gradients && bucket_elements_ + n <= zero_.reduce_bucket_size) {
      side_kernel("copy_to_bucket", Bytes(n) * bytes_ * 2, "C6.3");
      builder_.free(gradient, "C6.3");
    }
    bucket_.push_back({id, gradient});
    bucket_elements_ += n;
  }

  void end_backward() override {  // C6.7, C4.8
    verify(coordinator_.finish_backward());
    reduce_bucket();
    builder_.host_wait_stream(reduce_stream_, "C6.7");
    free_parameters(coordinator_.end_backward(), "C4.8");
  }

  void optimizer_step() override {
    free_parameters(coordinator_.release_all(), "C8.1");
    if (strategy_.precision == Precision::Fp16) {
      check_overflow();
    }
    for (const SubGroup& group : sub_groups_) {
      gradient_norm(group);
    }
    for (const SubGroup& group : sub_groups_) {
      update(group);
    }
    drop_secondaries();
    gather_persistent();
  }

 private:
  using Pass = Zero3Coordinator::Pass;

  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return model_.parameters[id.index()].elements;
  }
  /// Elements of one rank's piece (C1.1).
  [[nodiscard]] std::int64_t partition(std::int64_t n) const {
    return (n + world_size_ - 1) / world_size_;
  }
  [[nodiscard]] std::int64_t padded(std::int64_t n) const { return partition(n) * world_size_; }
  [[nodiscard]] Bytes wire(std::int64_t n) const {
    return Bytes(n) * dtype_bytes(strategy_.communication_dtype);
  }
  [[nodiscard]] bool alone() const { return world_size_ == 1; }

  BufferId allocate(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                    std::string_view rule) {
    return builder_.allocate(bytes, memory_class, owner, kComputeStream, rule);
  }
  void allocate_moments() {
    allocate(Bytes(trainable_partition_elements_) * 8, MemoryClass::OptimizerStates, "adam_moments",
             "C1.6");
    moments_allocated_ = true;
  }
  void allocate_full(ParameterId id, StreamId pool, std::string_view rule) {
    full_[id.index()] =
        builder_.allocate(Bytes(padded(elements(id))) * bytes_, MemoryClass::LiveParameters,
                          "gathered_parameter", pool, rule);
  }
  OpId side_kernel(std::string_view name, Bytes bytes, std::string_view rule) {
    return builder_.kernel(reduce_stream_, memory_kernel(name, bytes), HostWork::BackwardLaunch,
                           rule);
  }
  OpId collective(CollectiveKind kind, std::int64_t input, std::int64_t output, Dtype dtype,
                  GroupId group, StreamId caller, bool async, std::string_view rule) {
    Collective collective;
    collective.kind = kind;
    collective.input_elements = input;
    collective.output_elements = output;
    collective.dtype = dtype;
    collective.group = group;
    collective.async = async;
    return builder_.collective(caller, collective, rule);
  }

  // C4.1: rank 0 broadcasts the length of each list and the list, and the host reads both.
  void verify(const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t length : lengths) {
      if (release_.verifies_list_lengths) {
        broadcast(1);
      }
      broadcast(length);
    }
  }

  void broadcast(std::int64_t elements) {
    if (alone()) {
      return;
    }
    Collective broadcast;
    broadcast.kind = CollectiveKind::Broadcast;
    broadcast.input_elements = broadcast.output_elements = elements;
    broadcast.dtype = Dtype::I64;
    broadcast.group = world_;
    broadcast.root = 0;
    builder_.host_wait(builder_.collective(kComputeStream, broadcast, "C4.1"), "C4.1");
  }

  [[nodiscard]] bool any_uses_others() const {
    return std::any_of(model_.operators.begin(), model_.operators.end(),
                       [this](const Operator& op) { return uses_others(op); });
  }

  // Where steady steps depend on what came before (rules 30, 31, 84), the coordinator goes through
  // two steps first; more than three micro batches of each add nothing.
  void warm_up(const std::vector<TrainingEvent>& events) {
    constexpr std::int64_t kMicroBatches = 3;
    for (int step = 0; step < 2; ++step) {
      for (std::int64_t i = 0; i < std::min(strategy_.grad_accum, kMicroBatches); ++i) {
        (void)coordinator_.begin_forward();
        for (const TrainingEvent& event : events) {
          rehearse(event);
        }
        (void)coordinator_.finish_backward();
        (void)coordinator_.end_backward();
      }
      (void)coordinator_.release_all();
      coordinator_.gather_persistent();
    }
  }

  void rehearse(const TrainingEvent& event) {
    switch (event.kind) {
      case TrainingEvent::Kind::PreForward:
        (void)coordinator_.fetch(event.module, Pass::Forward);
        break;
      case TrainingEvent::Kind::PreBackward:
        (void)coordinator_.fetch(event.module, Pass::Backward);
        break;
      case TrainingEvent::Kind::Forward: {
        const Operator& op = model_.operators[static_cast<std::size_t>(event.operation)];
        if (uses_others(op)) {
          (void)coordinator_.access(op.module, op.parameters);
        }
        break;
      }
      case TrainingEvent::Kind::PostForward:
        (void)coordinator_.release(event.module, event.recompute ? Pass::Recompute : Pass::Forward);
        break;
      case TrainingEvent::Kind::PostBackward:
        (void)coordinator_.release(event.module, Pass::Backward);
        break;
      case TrainingEvent::Kind::Backward:
        break;
    }
  }

  // Whether the operator's module, or the leaf that it is in, does not own all it computes with.
  [[nodiscard]] bool uses_others(const Operator& op) const {
    ModuleId owner = op.module;
    for (ModuleId m = op.module; m.valid(); m = model_.modules[m.index()].parent) {
      if (model_.modules[m.index()].leaf) {
        owner = m;
      }
    }
    const std::vector<ParameterId>& own = model_.modules[owner.index()].parameters;
    return std::any_of(op.parameters.begin(), op.parameters.end(), [&](ParameterId id) {
      return std::find(own.begin(), own.end(), id) == own.end();
    });
  }

  /// \name Parameters (C2 to C5)
  ///@{
  void fetch(ModuleId module, Pass pass) {
    builder_.host({HostWork::ModuleHook}, "C2.2");
    const Zero3Coordinator::Fetch fetch = coordinator_.fetch(module, pass);
    for (const ParameterId id : fetch.cancelled) {  // rule 87
      wait_for(id);
    }
    free_parameters(fetch.cancelled, "C4.1");
    issue(fetch.now, "C4.3");
    for (const ParameterId id : coordinator_.parameters_of(module)) {
      if (in_flight_[id.index()]) {
        wait_for(id);
      }
    }
    builder_.stream_wait_stream(kComputeStream, gather_stream_, "C4.3");
    issue(fetch.prefetched, "C5.4");
  }

  /// \name hpZ (C9)
  ///@{
  [[nodiscard]] bool has_secondaries() const { return hpz_size_ > 1; }

  void make_secondary(ParameterId id) {
    secondary_[id.index()] = allocate(Bytes(padded(elements(id)) / hpz_size_) * bytes_,
                                      MemoryClass::Parameters, "secondary_partition", "C9.2");
  }

  // At its first release after a step a parameter gets a secondary partition, and the host waits.
  void keep_secondary(ParameterId id) {
    if (!has_secondaries() || secondary_[id.index()].valid()) {
      return;
    }
    make_secondary(id);
    const OpId copy = builder_.kernel(
        kComputeStream,
        memory_kernel("copy_secondary", Bytes(padded(elements(id)) / hpz_size_) * bytes_ * 3, 2),
        HostWork::KernelLaunch, "C9.2");
    builder_.host_wait(copy, "C9.2");
  }

  // C9.4, rule 81: those of the optimizer's parameters.
  void drop_secondaries() {
    for (std::size_t i = 0; i < secondary_.size(); ++i) {
      if (model_.parameters[i].trainable) {
        builder_.free(secondary_[i], "C9.4");
      }
    }
  }
  ///@}

  // Parameters with a secondary partition are gathered apart, and first (rule 54).
  void issue(const std::vector<ParameterId>& parameters, std::string_view rule) {
    if (has_secondaries()) {
      std::vector<ParameterId> sorted = parameters;
      const auto first_global =
          std::stable_partition(sorted.begin(), sorted.end(),
                                [this](ParameterId id) { return secondary_[id.index()].valid(); });
      issue_alike({sorted.begin(), first_global}, rule);
      issue_alike({first_global, sorted.end()}, rule);
    } else {
      issue_alike(parameters, rule);
    }
  }

  void issue_alike(const std::vector<ParameterId>& parameters, std::string_view rule) {
    if (parameters.empty()) {
      return;
    }
    if (zero_.allgather_sequential) {
      for (const ParameterId id : parameters) {
        issue_gather({id}, rule);
      }
    } else {
      issue_gather(parameters, rule);
    }
  }

  // C3.1: one parameter is a view of the gathered buffer. C3.2: several go through a flat buffer.
  void issue_gather(const std::vector<ParameterId>& parameters, std::string_view rule) {
    const std::size_t index = gathers_.size();
    Gather& gather = gathers_.emplace_back();
    gather.parameters = parameters;
    gather.pending = parameters.size();
    std::int64_t whole = 0;
    for (const ParameterId id : parameters) {
      whole += padded(elements(id));
      in_flight_[id.index()] = index;
    }
    const bool local = secondary_[parameters.front().index()].valid();
    const std::int64_t pieces = whole / (local ? hpz_size_ : world_size_);
    const Dtype dtype = model_dtype(strategy_.precision);
    const bool by_all_reduce = zero_.use_all_reduce_for_fetch_params && parameters.size() > 1;
    if (parameters.size() == 1 || alone()) {
      for (const ParameterId id : parameters) {
        allocate_full(id, gather_stream_, "C3.1");
      }
    } else {
      gather.flat = builder_.allocate(Bytes(whole) * bytes_, MemoryClass::TemporaryBuffers,
                                      "gather_flat_buffer", gather_stream_, "C3.2");
      builder_.kernel(gather_stream_,
                      memory_kernel(by_all_reduce ? "fill_flat" : "concatenate",
                                    Bytes(pieces) * bytes_ * 2 +
                                        (by_all_reduce ? Bytes(whole) * bytes_ : Bytes())),
                      HostWork::KernelLaunch, "C3.2");
    }
    if (alone()) {  // C3.3
      gather.collective = builder_.kernel(
          gather_stream_, memory_kernel("copy_parameter", Bytes(whole) * bytes_ * 2),
          HostWork::KernelLaunch, "C3.3");
      builder_.host_wait(gather.collective, "C3.3");
      gather.copied_out = true;
    } else if (by_all_reduce) {
      gather.collective = collective(CollectiveKind::AllReduce, whole, whole, dtype, world_,
                                     gather_stream_, /*async=*/true, "C3.6");
    } else {
      gather.collective = collective(CollectiveKind::AllGather, pieces, whole, dtype,
                                     local ? hpz_ : world_, gather_stream_, /*async=*/true, rule);
    }
  }

  // C4.4: throttle, wait, copy out (first waiter of a set), record.
  void wait_for(ParameterId id) {
    const std::size_t index = *in_flight_[id.index()];
    in_flight_[id.index()].reset();
    fetch_throttle_.wait(builder_, "C4.4");
    builder_.stream_wait(gather_stream_, gathers_[index].collective, "C4.4");
    Gather& gather = gathers_[index];
    if (gather.flat.valid() && !gather.copied_out) {
      copy_out(gather);
    }
    gather.copied_out = true;
    builder_.host({HostWork::EventRecord}, "C4.4");
    fetch_throttle_.record(builder_.last(gather_stream_));
    if (--gather.pending == 0) {
      builder_.free(gather.flat, "C3.2");
    }
  }

  void copy_out(Gather& gather) {
    // Parameters are views of an all-reduced buffer (C3.6): its bytes become theirs, without a
    // copy.
    if (zero_.use_all_reduce_for_fetch_params) {
      builder_.free(gather.flat, "C3.6");
    }
    for (const ParameterId member : gather.parameters) {
      allocate_full(member, gather_stream_, "C3.2");
      if (!zero_.use_all_reduce_for_fetch_params) {
        builder_.kernel(gather_stream_,
                        memory_kernel("copy_out", Bytes(elements(member)) * bytes_ * 2),
                        HostWork::KernelLaunch, "C3.2");
      }
    }
  }

  void release(ModuleId module, Pass pass) {
    builder_.host({HostWork::ModuleHook}, "C2.3");
    free_parameters(coordinator_.release(module, pass), "C4.6");
  }

  void free_parameters(const std::vector<ParameterId>& parameters, std::string_view rule) {
    for (const ParameterId id : parameters) {
      keep_secondary(id);
      builder_.free(full_[id.index()], rule);
    }
  }
  ///@}

  /// \name Gradients (C6)
  ///@{
  void reduce_bucket() {
    if (bucket_.empty()) {
      return;
    }
    reduce_throttle_.wait(builder_, "C6.5");
    std::sort(bucket_.begin(), bucket_.end(),
              [](const BucketEntry& a, const BucketEntry& b) { return a.parameter < b.parameter; });
    if (!alone()) {
      const bool fits = bucket_elements_ <= zero_.reduce_bucket_size;
      if (!zero_.reduce_scatter && zero_.contiguous_gradients && fits) {
        all_reduce_bucket();
      } else {
        reduce_scatter_bucket();
      }
    }
    for (BucketEntry& entry : bucket_) {
      keep_partition(entry);
    }
    builder_.host({HostWork::EventRecord}, "C6.5");
    reduce_throttle_.record(builder_.last(reduce_stream_));
    bucket_.clear();
    bucket_elements_ = 0;
  }

  void all_reduce_bucket() {
    side_kernel("divide", Bytes(bucket_elements_) * bytes_ * 2, "C6.4");
    collective(CollectiveKind::AllReduce, bucket_elements_, bucket_elements_,
               strategy_.communication_dtype, world_, reduce_stream_, /*async=*/false, "C6.4");
  }

  void reduce_scatter_bucket() {
    std::int64_t pieces = 0;
    for (const BucketEntry& entry : bucket_) {
      pieces += partition(elements(entry.parameter));
    }
    const std::int64_t whole = pieces * world_size_;
    BufferId cast;
    if (strategy_.communication_dtype != model_dtype(strategy_.precision)) {
      cast = builder_.allocate(wire(bucket_elements_), MemoryClass::TemporaryBuffers,
                               "cast_gradients", reduce_stream_, "C6.4");
      side_kernel("cast", Bytes(bucket_elements_) * bytes_ + wire(bucket_elements_), "C6.4");
    }
    BufferId flat;
    const bool in_place = bucket_.size() == 1 && bucket_elements_ % world_size_ == 0;
    if (!in_place) {
      flat = builder_.allocate(wire(whole), MemoryClass::TemporaryBuffers, "reduce_scatter_flat",
                               reduce_stream_, "C6.4");
      side_kernel("flatten", wire(whole) * 2, "C6.4");
    }
    side_kernel("divide", wire(whole) * 2, "C6.4");
    collective(CollectiveKind::ReduceScatter, whole, pieces, strategy_.communication_dtype, world_,
               reduce_stream_, /*async=*/false, "C6.4");
    builder_.free(flat);
    builder_.free(cast);
  }

  // C6.6: the first micro batch copies, later ones add.
  void keep_partition(BucketEntry& entry) {
    const std::int64_t piece = partition(elements(entry.parameter));
    const int passes = micro_.index == 0 ? 1 : 2;
    side_kernel(micro_.index == 0 ? "copy_partition" : "add_partition",
                wire(piece) + Bytes(piece) * gradient_bytes_ * passes, "C6.6");
    builder_.free(entry.gradient, "C6.6");
  }
  ///@}

  /// \name Step (C8)
  ///@{
  [[nodiscard]] std::vector<SubGroup> cut_sub_groups() const {
    std::vector<SubGroup> groups;
    for (const std::vector<ParameterId>& members :
         optimizer_groups(model_, strategy_.optimizer_groups)) {
      bool open = false;
      for (const ParameterId id : members) {
        if (!open) {
          groups.emplace_back();
        }
        SubGroup& group = groups.back();
        const std::int64_t piece = partition(elements(id));
        group.elements += piece;
        group.largest = std::max(group.largest, piece);
        ++group.tensors;
        open = group.elements < zero_.sub_group_size;
      }
    }
    return groups;
  }

  void check_overflow() {
    BufferId masks = allocate(Bytes(trainable_partition_elements_) * (1 + gradient_bytes_),
                              MemoryClass::TemporaryBuffers, "overflow_masks", "C8.1");
    builder_.kernel(
        kComputeStream,
        optimizer_kernel("overflow_check",
                         Bytes(trainable_partition_elements_) * (3 * gradient_bytes_ + 3), 4),
        HostWork::KernelLaunch, "C8.1");
    builder_.free(masks);
    if (!alone()) {
      builder_.all_reduce(kComputeStream, data_parallel_, 1, Dtype::U8, "C8.1", ReduceOp::Max);
    }
    builder_.host_wait_stream(kComputeStream, "0.7");
  }

  void gradient_norm(const SubGroup& group) {  // C8.3
    BufferId fp64 =
        allocate(Bytes(group.largest) * 8, MemoryClass::TemporaryBuffers, "fp64_norm", "C8.3");
    builder_.kernel(
        kComputeStream,
        optimizer_kernel("gradient_norm", Bytes(group.elements) * (gradient_bytes_ + 16),
                         3 * group.tensors),
        HostWork::KernelLaunch, "C8.3");
    builder_.free(fp64);
    if (!alone()) {
      collective(CollectiveKind::AllReduce, 1, 1, Dtype::F64, world_, kComputeStream,
                 /*async=*/false, "C8.3");
    }
  }

  void update(const SubGroup& group) {  // C8.4
    const Bytes accumulated = Bytes(group.elements) * gradient_bytes_;
    BufferId flat = allocate(accumulated, MemoryClass::TemporaryBuffers, "flat_gradients", "C8.4");
    builder_.kernel(kComputeStream, optimizer_kernel("flatten", accumulated * 2),
                    HostWork::KernelLaunch, "C8.4");
    BufferId fp32 = flat;
    if (gradient_bytes_ != 4) {
      fp32 = allocate(Bytes(group.elements) * 4, MemoryClass::TemporaryBuffers, "fp32_gradients",
                      "C8.4");
      builder_.kernel(kComputeStream,
                      optimizer_kernel("cast", accumulated + Bytes(group.elements) * 4),
                      HostWork::KernelLaunch, "C8.4");
      builder_.free(flat);
    }
    builder_.kernel(kComputeStream, optimizer_kernel("scale", Bytes(group.elements) * 8),
                    HostWork::KernelLaunch, "C8.4");
    if (!moments_allocated_) {
      allocate_moments();
    }
    adam_step(builder_, adam_update(strategy_.optimizer, group.elements, 1), "C8.4");
    builder_.kernel(kComputeStream,
                    optimizer_kernel("copy_to_weights", Bytes(group.elements) * (4 + bytes_)),
                    HostWork::KernelLaunch, "C8.4");
    builder_.free(fp32);
  }

  // C8.5: one all-gather a parameter, back to back; wait for the last; device synchronise.
  void gather_persistent() {
    OpId last;
    for (std::size_t i = 0; i < full_.size(); ++i) {
      if (!coordinator_.persistent()[i]) {
        continue;
      }
      const ParameterId id(i);
      allocate_full(id, kComputeStream, "C8.5");
      const std::int64_t n = elements(id);
      if (alone()) {
        last =
            builder_.kernel(kComputeStream, memory_kernel("copy_parameter", Bytes(n) * bytes_ * 2),
                            HostWork::KernelLaunch, "C3.3");
      } else {
        last = collective(CollectiveKind::AllGather, partition(n), padded(n),
                          model_dtype(strategy_.precision), world_, kComputeStream,
                          /*async=*/true, "C8.5");
      }
    }
    if (last.valid()) {
      builder_.stream_wait(kComputeStream, last, "C8.5");
      builder_.device_synchronize("C8.5");
    }
    coordinator_.gather_persistent();
  }
  ///@}

  const Model& model_;
  const Strategy& strategy_;
  const ZeroOptions& zero_;
  RankProgramBuilder& builder_;
  GroupId world_;
  GroupId data_parallel_;
  int world_size_;
  int bytes_;           ///< of an element in the model's type
  int gradient_bytes_;  ///< in the accumulation type
  const DeepSpeedRelease& release_;
  Zero3Coordinator coordinator_;
  StreamId gather_stream_;
  StreamId reduce_stream_;
  MicroBatch micro_;
  std::vector<BufferId> full_;                         ///< gathered parameters
  std::vector<std::optional<std::size_t>> in_flight_;  ///< by parameter: index into gathers_ (C4.4)
  std::vector<Gather> gathers_;
  GroupId hpz_;
  std::int64_t hpz_size_;            ///< ranks; 1: none
  std::vector<BufferId> secondary_;  ///< by parameter (C9)
  Throttle fetch_throttle_;
  Throttle reduce_throttle_;
  std::vector<BucketEntry> bucket_;
  std::int64_t bucket_elements_ = 0;
  std::int64_t partition_elements_ = 0;
  std::int64_t trainable_partition_elements_ = 0;
  std::vector<SubGroup> sub_groups_;
  bool steady_;
  bool moments_allocated_ = false;
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_zero3(const FrameworkContext& context) {
  return std::make_unique<Zero3>(context);
}

}  // namespace zerosim
