// PyTorch fully_shard (FSDP2): spec D3.
//
// Each unit is a group of parameters that are sharded one by one on dimension 0 and gathered and
// reduced together. What follows here in the names of its steps is
// torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py.
//
// Not modelled: shard placements on other dimensions, unshard(async_op=True), checkpointing around
// units.

#include <algorithm>
#include <string>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/fsdp_shared.h"
#include "sim/program/fsdp_units.h"
#include "sim/program/local_pieces.h"
#include "sim/strategy/fsdp_release.h"

namespace zerosim {

namespace {

enum class State { Idle, Forward, PreBackward, PostBackward };
/// Over which ranks the next gather goes.
enum class Sharded { Fully, AfterForward, Not };

struct Gradient {
  ParameterId parameter;
  BufferId memory;
};

struct Group {
  ModuleId module;
  bool root = false;
  std::int64_t shard = 0;     ///< padded elements of one rank, all parameters
  std::int64_t elements = 0;  ///< of the whole parameters
  std::int64_t reduced = 0;   ///< padded elements of one rank, of those with a gradient
  int parameters = 0;

  State state = State::Idle;
  Sharded sharded = Sharded::Fully;
  std::vector<int> post_forward_indices;
  OpId gather;                        ///< pending; valid until its copy-out
  BufferId gather_output;             ///< N padded shards
  BufferId full;                      ///< unsharded parameters
  BufferId kept_shard;                ///< with an integer reshard_after_forward
  OpId kept_shard_copy;               ///< _reshard_after_forward_event
  std::vector<Gradient> arrived;      ///< in this backward
  std::vector<Gradient> accumulated;  ///< of micro batches that were not reduced
  BufferId partial;                   ///< reduced within a replica only (delays_all_reduce)
  BufferId sharded_gradient;
  bool on_host = false;  ///< the host has a gradient of this step
  OpId post_reduce;
};

class Fsdp2 : public FrameworkHooks {
 public:
  explicit Fsdp2(const FrameworkContext& context)
      : context_(context),
        model_(context.model),
        strategy_(context.strategy),
        options_(context.strategy.fsdp),
        builder_(context.builder),
        groups_(fsdp_groups(context)),
        hybrid_(is_hybrid(options_.sharding)),
        gather_type_(model_dtype(strategy_.precision)),
        reduce_type_(strategy_.communication_dtype),
        own_type_(options_.parameter_dtype),
        division_(gradient_division(context.world_size)),
        layout_(fsdp_units(model_, options_)),
        optimizer_(context, groups_.shard,
                   fsdp_optimizer_tensors(model_, strategy_, layout_, shard_place(context))) {
    check();
    make_groups();
    copy_in_stream_ = builder_.add_stream("all_gather_copy_in");
    gather_stream_ = builder_.add_stream("all_gather");
    reduce_stream_ = builder_.add_stream("reduce_scatter");
    all_reduce_stream_ = hybrid_ ? builder_.add_stream("all_reduce") : reduce_stream_;
  }

  void initialize() override {
    std::int64_t elements = 0;
    for (const Group& group : param_groups_) {
      elements += group.shard;
    }
    BufferId checkpoint = load_checkpoint_for_fsdp(context_);
    if (options_.cpu_offload) {
      builder_.allocate_on_host(own(elements), MemoryClass::Parameters, "parameter_shards",
                                /*pinned=*/true, "D3.1");
      builder_.allocate_on_host(own(elements), MemoryClass::Gradients, "cpu_gradients",
                                /*pinned=*/true, "D3.8");
    } else {
      builder_.allocate(own(elements), MemoryClass::Parameters, "parameter_shards", kComputeStream,
                        "D3.1");
    }
    builder_.free(checkpoint, "E6");
    optimizer_.initialize();
  }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    reduces_ = !options_.no_sync || micro.boundary;
    all_reduces_ = micro.boundary || !options_.delays_all_reduce;
  }

  // ---- forward (D3.3 to D3.5, D3.7) ----

  void pre_forward(ModuleId module) override {
    if (builder_.phase() == Phase::Backward) {
      pre_backward(module);  // recomputation: its hook on the output fires first (D3.11)
      return;
    }
    if (module == param_groups_.front().module) {
      // Gathers read what the optimizer wrote.
      builder_.stream_wait_stream(copy_in_stream_, kComputeStream, "D3.2");
      builder_.stream_wait_stream(gather_stream_, kComputeStream, "D3.2");
    }
    Group* group = group_at(module);
    if (group == nullptr) {
      return;
    }
    builder_.host({HostWork::ModuleHook}, "D3.5");
    group->state = State::Forward;
    unshard(*group);
    wait_for_unshard(*group);
    if (options_.forward_prefetch) {
      prefetch_forward(*group);
    }
  }

  void post_forward(ModuleId module, bool recompute) override {
    Group* group = group_at(module);
    if (group != nullptr && group->state == State::Forward && !recompute) {
      builder_.host({HostWork::ModuleHook}, "D3.7");
      reshard_after_forward(*group);
      group->post_forward_indices.push_back(static_cast<int>(post_forward_order_.size()));
      post_forward_order_.push_back(group);
      group->state = State::Idle;
    }
    if (module == param_groups_.front().module && !recompute) {
      drop_deferred_output();
    }
  }

  // ---- backward (D3.6, D3.8, D3.9) ----

  void pre_backward(ModuleId module) override {
    Group* group = group_at(module);
    if (group == nullptr || group->state == State::PreBackward) {
      return;
    }
    builder_.host({HostWork::ModuleHook}, "D3.6");
    group->state = State::PreBackward;
    unshard(*group);
    wait_for_unshard(*group);
    prefetch_backward(*group);
  }

  // Autograd gets here once the gradients of the module's inputs are there.
  void post_backward(ModuleId module) override {
    if (Group* group = group_at(module)) {
      post_backward(*group);
    }
  }

  void gradient_ready(ParameterId parameter, BufferId gradient) override {
    const int index = layout_.of_parameter[parameter.index()];
    param_groups_[static_cast<std::size_t>(index)].arrived.push_back({parameter, gradient});
  }

  void end_backward() override {
    for (Group& group : param_groups_) {
      const ModuleScope scope(builder_, group.module);
      if (group.sharded == Sharded::Not) {
        post_backward(group);  // its inputs need no gradient (D3.10)
      }
      group.state = State::Idle;
      finalize(group);
    }
    post_forward_order_.clear();
    wait_for_reduce_scatter();
    if (options_.cpu_offload && reduces_ && all_reduces_) {
      builder_.host_wait_stream(all_reduce_stream_, "D3.9");
    }
  }

  void optimizer_step() override {
    optimizer_.step(micro_);
    for (Group& group : param_groups_) {  // zero_grad()
      builder_.free(group.sharded_gradient, "D3.8");
      group.on_host = false;
    }
  }

 private:
  // ---- set up ----

  void check() const {
    const auto refuse = [&](const std::string& what) {
      throw ConfigError(format("{}: {}", strategy_.name, what));
    };
    if (!fsdp_release(strategy_.torch_version).has_fully_shard) {
      refuse(format("PyTorch {} has no fully_shard, expected 2", strategy_.torch_version));
    }
    if (options_.sharding == FsdpSharding::NoShard) {
      refuse("fully_shard has no NO_SHARD; DistributedDataParallel does it");
    }
    if (options_.checkpoints_around_units &&
        strategy_.checkpointing == ActivationCheckpointing::Full) {
      refuse("checkpointing around the units of fully_shard is not simulated yet");
    }
  }

  void make_groups() {
    for (const FsdpUnit& unit : layout_.units) {
      Group& group = param_groups_.emplace_back();
      group.module = unit.module;
      group.root = param_groups_.size() == 1;
      group.parameters = static_cast<int>(unit.parameters.size());
      for (const ParameterId id : unit.parameters) {
        const Parameter& parameter = model_.parameters[id.index()];
        group.elements += parameter.elements;
        group.shard += dim0_shard_elements(parameter, groups_.shard_ranks);
      }
    }
    for (const ExecutionStep& step : model_.forward) {
      Group* group = step.kind == ExecutionStep::Kind::Enter ? group_at(step.module) : nullptr;
      const bool known =
          std::find(forward_order_.begin(), forward_order_.end(), group) != forward_order_.end();
      if (group != nullptr && !known) {
        forward_order_.push_back(group);
      }
    }
  }

  /// Null for a module that is no group, and for a root without parameters of its own.
  [[nodiscard]] Group* group_at(ModuleId module) {
    const int index = layout_.of_module[module.index()];
    if (index < 0) {
      return nullptr;
    }
    Group& group = param_groups_[static_cast<std::size_t>(index)];
    return group.parameters > 0 ? &group : nullptr;
  }

  [[nodiscard]] Bytes own(std::int64_t n) const { return Bytes(n) * dtype_bytes(own_type_); }
  [[nodiscard]] Bytes low(std::int64_t n) const { return Bytes(n) * dtype_bytes(gather_type_); }
  [[nodiscard]] Bytes wire(std::int64_t n) const { return Bytes(n) * dtype_bytes(reduce_type_); }
  [[nodiscard]] std::int64_t padded(const Group& group) const {
    return group.shard * groups_.shard_ranks;
  }
  [[nodiscard]] std::int64_t elements_of(ParameterId id) const {
    return model_.parameters[id.index()].elements;
  }

  BufferId temporary(Bytes bytes, std::string_view owner, StreamId pool, std::string_view rule) {
    return builder_.allocate(bytes, MemoryClass::TemporaryBuffers, owner, pool, rule);
  }
  void launch(StreamId stream, std::string_view name, Bytes bytes, std::string_view rule) {
    builder_.kernel(stream, memory_kernel(name, bytes), HostWork::KernelLaunch, rule);
  }

  // ---- gathering (D3.3, D3.4) ----

  void unshard(Group& group) {
    if (group.gather.valid() || group.sharded == Sharded::Not) {
      return;
    }
    const ModuleScope scope(builder_, group.module);
    if (group.kept_shard_copy.valid()) {  // of the default stream
      builder_.stream_wait(copy_in_stream_, group.kept_shard_copy, "D3.7");
      builder_.stream_wait(gather_stream_, group.kept_shard_copy, "D3.7");
      group.kept_shard_copy = OpId();
    }
    const bool kept = group.sharded == Sharded::AfterForward;
    const int ranks = kept ? groups_.reshard_ranks : groups_.shard_ranks;
    const std::int64_t piece = padded(group) / ranks;
    BufferId input = kept ? BufferId() : copy_in_source(group);
    group.gather_output =
        temporary(low(padded(group)), "all_gather_output", copy_in_stream_, "D3.3");
    launch(copy_in_stream_, "copy_in", low(piece) * 2, "D3.3");
    builder_.free(input, "D3.3");
    builder_.stream_wait_stream(gather_stream_, copy_in_stream_, "D3.3");
    if (ranks > 1) {
      const GroupId over = kept && groups_.reshard.valid() ? groups_.reshard : groups_.shard;
      builder_.all_gather(gather_stream_, over, piece, padded(group), gather_type_, "D3.3");
    }
    group.gather = builder_.last(gather_stream_);
  }

  /// The shards on the device in the type of gathers; not valid if they are so already.
  BufferId copy_in_source(const Group& group) {
    BufferId uploaded;
    if (options_.cpu_offload) {
      uploaded = temporary(own(group.shard), "uploaded_shard", copy_in_stream_, "D3.3");
      builder_.copy(copy_in_stream_, {Copy::Direction::HostToDevice, own(group.shard), true},
                    "D3.3");
    }
    if (gather_type_ == own_type_) {
      return uploaded;
    }
    const BufferId cast =
        temporary(low(group.shard), "low_precision_shard", copy_in_stream_, "D3.3");
    launch(copy_in_stream_, "cast_shard", own(group.shard) + low(group.shard), "D3.3");
    builder_.free(uploaded, "D3.3");
    return cast;
  }

  void wait_for_unshard(Group& group) {
    if (!group.gather.valid()) {
      return;
    }
    const ModuleScope scope(builder_, group.module);
    const bool forward = group.state == State::Forward;
    if (forward) {
      drop_deferred_output();
    }
    builder_.stream_wait(kComputeStream, group.gather, "D3.4");
    group.full = builder_.allocate(low(group.elements), MemoryClass::LiveParameters,
                                   "unsharded_parameters", kComputeStream, "D3.4");
    launch(kComputeStream, "copy_out", low(padded(group)) * 2, "D3.4");
    group.gather = OpId();
    group.sharded = Sharded::Not;
    builder_.free(group.kept_shard, "D3.7");
    deferred_output_ = group.gather_output;
    deferred_copy_out_ = builder_.last(kComputeStream);
    group.gather_output = BufferId();
    if (!forward) {
      drop_deferred_output();
    }
  }

  // The output of a gather is dropped once the gather streams wait for its copy-out.
  void drop_deferred_output() {
    if (!deferred_output_.valid()) {
      return;
    }
    builder_.stream_wait(copy_in_stream_, deferred_copy_out_, "D3.4");
    builder_.stream_wait(gather_stream_, deferred_copy_out_, "D3.4");
    builder_.free(deferred_output_, "D3.4");
  }

  void reshard(Group& group) {
    builder_.free(group.full, "D3.8");
    group.sharded = Sharded::Fully;
  }

  // D3.7
  void reshard_after_forward(Group& group) {
    if (!reshards_after_forward(group)) {
      return;
    }
    if (keeps_shard()) {
      group.kept_shard =
          builder_.allocate(low(padded(group) / groups_.reshard_ranks), MemoryClass::LiveParameters,
                            "kept_shard", kComputeStream, "D3.7");
      launch(kComputeStream, "keep_shard", low(padded(group) / groups_.reshard_ranks) * 2, "D3.7");
      group.kept_shard_copy = builder_.last(kComputeStream);
    }
    reshard(group);
    if (keeps_shard()) {
      group.sharded = Sharded::AfterForward;
    }
  }

  /// All ranks is the same as true, one rank as false (_get_post_forward_mesh_info).
  [[nodiscard]] bool keeps_shard() const {
    return groups_.reshard_ranks > 1 && groups_.reshard_ranks < groups_.shard_ranks;
  }

  [[nodiscard]] bool reshards_after_forward(const Group& group) const {
    const bool keeps_all = options_.sharding == FsdpSharding::ShardGradOp ||
                           options_.sharding == FsdpSharding::HybridShardZero2 ||
                           !options_.reshard_after_forward;
    const bool reshards = groups_.reshard_ranks > 0 ? groups_.reshard_ranks > 1 : !keeps_all;
    return reshards && !group.root &&
           !(options_.keeps_last_unit && &group == forward_order_.back());
  }

  // ---- prefetch ----

  // set_modules_to_forward_prefetch with the group that comes next.
  void prefetch_forward(const Group& group) {
    const auto here = std::find(forward_order_.begin(), forward_order_.end(), &group);
    if (here != forward_order_.end() && here + 1 != forward_order_.end()) {
      unshard(**(here + 1));
    }
  }

  // D3.6: the group whose forward ended before this one's.
  void prefetch_backward(Group& group) {
    if (group.post_forward_indices.empty()) {
      return;
    }
    const int index = group.post_forward_indices.back();
    group.post_forward_indices.pop_back();
    if (index > 0) {
      unshard(*post_forward_order_[static_cast<std::size_t>(index) - 1]);
    }
  }

  // ---- gradients (D3.8 to D3.10) ----

  void post_backward(Group& group) {
    if (group.state == State::PostBackward) {
      return;
    }
    builder_.host({HostWork::GradientHook}, "D3.8");
    group.state = State::PostBackward;
    add_to_accumulated(group);
    reshard(group);
    if (!reduces_) {
      keep_arrived(group);
    } else if (!group.arrived.empty() || !group.accumulated.empty()) {
      reduce(group);
    }
  }

  [[nodiscard]] std::int64_t elements_of(const std::vector<Gradient>& gradients) const {
    std::int64_t elements = 0;
    for (const Gradient& gradient : gradients) {
      elements += elements_of(gradient.parameter);
    }
    return elements;
  }

  /// Elements of one rank's padded pieces.
  [[nodiscard]] std::int64_t shard_of(const std::vector<Gradient>& gradients) const {
    std::int64_t elements = 0;
    for (const Gradient& gradient : gradients) {
      elements +=
          dim0_shard_elements(model_.parameters[gradient.parameter.index()], groups_.shard_ranks);
    }
    return elements;
  }

  void drop(std::vector<Gradient>& gradients) {
    for (Gradient& gradient : gradients) {
      builder_.free(gradient.memory, "D3.8");
    }
    gradients.clear();
  }

  // Adds to what earlier micro batches left (accumulate_unsharded_grad_if_needed).
  void add_to_accumulated(Group& group) {
    std::vector<Gradient> added;
    for (const Gradient& kept : group.accumulated) {
      const auto same =
          std::find_if(group.arrived.begin(), group.arrived.end(),
                       [&](const Gradient& g) { return g.parameter == kept.parameter; });
      if (same != group.arrived.end()) {
        added.push_back(*same);
        group.arrived.erase(same);
      }
    }
    if (added.empty()) {
      return;
    }
    const std::int64_t n = elements_of(added);
    builder_.kernel(
        kComputeStream,
        memory_kernel("accumulate", low(n) + wire(n) * 2, static_cast<int>(added.size())),
        HostWork::BackwardLaunch, "D3.10");
    drop(added);
  }

  // to_accumulated_grad_if_needed: whole gradients stay, in the type of reductions (D3.10).
  void keep_arrived(Group& group) {
    if (reduce_type_ != gather_type_ && !group.arrived.empty()) {
      const std::int64_t n = elements_of(group.arrived);
      for (Gradient& gradient : group.arrived) {
        const BufferId cast =
            builder_.allocate(wire(elements_of(gradient.parameter)), MemoryClass::Gradients,
                              "accumulated_gradient", kComputeStream, "D3.10");
        builder_.free(gradient.memory, "D3.10");
        gradient.memory = cast;
      }
      builder_.kernel(
          kComputeStream,
          memory_kernel("cast_gradients", low(n) + wire(n), static_cast<int>(group.arrived.size())),
          HostWork::BackwardLaunch, "D3.10");
    }
    group.accumulated.insert(group.accumulated.end(), group.arrived.begin(), group.arrived.end());
    group.arrived.clear();
  }

  // Compute waits for the reduce-scatter before, whose input is dropped as the next one is made:
  // two of them live on the device at most (D3.8).
  void wait_for_reduce_scatter() {
    builder_.stream_wait(kComputeStream, reduce_scatter_, "D3.8");
    reduce_scatter_ = OpId();
    builder_.free(reduce_scatter_input_, "D3.8");
  }

  // foreach_reduce.
  void reduce(Group& group) {
    wait_for_reduce_scatter();
    std::vector<Gradient> gradients = std::move(group.accumulated);
    const std::int64_t kept = elements_of(gradients);
    const std::int64_t fresh = elements_of(group.arrived);
    gradients.insert(gradients.end(), group.arrived.begin(), group.arrived.end());
    group.accumulated.clear();
    group.arrived.clear();
    group.reduced = shard_of(gradients);
    const std::int64_t whole = group.reduced * groups_.shard_ranks;
    reduce_scatter_input_ = temporary(wire(whole), "reduce_scatter_input", kComputeStream, "D3.8");
    fsdp_kernel(builder_, kComputeStream, "chunk_cat", wire(kept) + low(fresh) + wire(whole),
                "D3.8");
    drop(gradients);
    builder_.stream_wait_stream(reduce_stream_, kComputeStream, "D3.8");
    BufferId output = builder_.allocate(wire(group.reduced), MemoryClass::Gradients,
                                        "reduced_gradient", reduce_stream_, "D3.8");
    divide(reduce_stream_, whole, division_.before);
    builder_.reduce_scatter(reduce_stream_, groups_.shard, whole, group.reduced, reduce_type_,
                            "D3.8", reduction());
    reduce_scatter_ = builder_.last(reduce_stream_);
    if (hybrid_ && !join_replicas(group, output)) {
      return;
    }
    divide(all_reduce_stream_, group.reduced, division_.after);
    keep(group, output);
    group.post_reduce = builder_.last(all_reduce_stream_);
  }

  // HSDP: sums over replicas, on a stream and a communicator of its own.
  // \returns whether they were joined in this micro batch.
  bool join_replicas(Group& group, BufferId& output) {
    if (group.partial.valid()) {
      fsdp_kernel(builder_, reduce_stream_, "accumulate", wire(group.reduced) * 3, "D3.10");
      builder_.free(all_reduces_ ? group.partial : output, "D3.10");
    } else if (!all_reduces_) {
      group.partial = output;
    }
    if (!all_reduces_) {
      group.post_reduce = builder_.last(reduce_stream_);
      return false;
    }
    builder_.stream_wait_stream(all_reduce_stream_, reduce_stream_, "D3.8");
    builder_.all_reduce(all_reduce_stream_, groups_.replicate, group.reduced, reduce_type_, "D3.8",
                        reduction());
    return true;
  }

  // Into the parameters' type; kept, or added to what is there.
  void keep(Group& group, BufferId shard) {
    if (reduce_type_ != own_type_) {
      const BufferId cast = builder_.allocate(own(group.reduced), MemoryClass::Gradients,
                                              "sharded_gradient", all_reduce_stream_, "D3.8");
      fsdp_kernel(builder_, all_reduce_stream_, "cast_gradient",
                  wire(group.reduced) + own(group.reduced), "D3.8");
      builder_.free(shard, "D3.8");
      shard = cast;
    }
    if (options_.cpu_offload) {
      offload(group, shard);
    } else if (group.sharded_gradient.valid()) {
      fsdp_kernel(builder_, all_reduce_stream_, "accumulate", own(group.reduced) * 3, "D3.8");
      builder_.free(shard, "D3.8");
    } else {
      group.sharded_gradient = shard;
    }
  }

  // A sum on the CPU must wait for its copy.
  void offload(Group& group, BufferId shard) {
    const OpId copy = builder_.copy(
        all_reduce_stream_, {Copy::Direction::DeviceToHost, own(group.reduced), true}, "D3.8");
    builder_.free(shard, "D3.8");
    if (group.on_host) {
      builder_.host_wait(copy, "D3.8");
      builder_.host_pass({"accumulate", own(group.reduced) * 3}, "D3.8");
    }
    group.on_host = true;
  }

  void finalize(Group& group) {
    if (group.gather.valid()) {  // gathered ahead and never used
      builder_.stream_wait(kComputeStream, group.gather, "D3.9");
      group.gather = OpId();
      builder_.free(group.gather_output, "D3.9");
    }
    builder_.stream_wait(kComputeStream, group.post_reduce, "D3.9");
    group.post_reduce = OpId();
    group.post_forward_indices.clear();
  }

  void divide(StreamId stream, std::int64_t elements, double factor) {
    if (divides() && factor > 1) {
      fsdp_kernel(builder_, stream, "divide", wire(elements) * 2, "D3.8");
    }
  }
  /// fp16 is divided before and after; wider types are averaged by NCCL.
  [[nodiscard]] bool divides() const { return reduce_type_ == Dtype::F16; }
  [[nodiscard]] ReduceOp reduction() const { return divides() ? ReduceOp::Sum : ReduceOp::Average; }

  FrameworkContext context_;
  const Model& model_;
  const Strategy& strategy_;
  const FsdpOptions& options_;
  RankProgramBuilder& builder_;
  FsdpGroups groups_;
  bool hybrid_;
  Dtype gather_type_;
  Dtype reduce_type_;
  Dtype own_type_;
  GradientDivision division_;
  FsdpUnits layout_;
  FsdpOptimizer optimizer_;
  std::vector<Group> param_groups_;
  std::vector<Group*> forward_order_;
  std::vector<Group*> post_forward_order_;
  BufferId deferred_output_;  ///< of the last gather whose copy-out was issued
  OpId deferred_copy_out_;
  OpId reduce_scatter_;  ///< the last one, until compute has waited for it
  BufferId reduce_scatter_input_;
  MicroBatch micro_;
  bool reduces_ = true;
  bool all_reduces_ = true;
  StreamId copy_in_stream_;
  StreamId gather_stream_;
  StreamId reduce_stream_;
  StreamId all_reduce_stream_;  ///< the one above unless hybrid
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_fsdp2(const FrameworkContext& context) {
  return std::make_unique<Fsdp2>(context);
}

}  // namespace zerosim
