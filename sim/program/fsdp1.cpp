// PyTorch FullyShardedDataParallel: spec D2, rules 63 to 71 of deepspeed_recorded.md.
//
// Each unit has one flat parameter. It is gathered by a hook before its forward and, if it was
// freed, before its backward; its gradient is reduced when all of it has been accumulated. What
// follows here in the names of its steps is torch/distributed/fsdp/_runtime_utils.py (in 1.13:
// fully_sharded_data_parallel.py).
//
// Not modelled: ignored modules, communication hooks, summon_full_params.

#include <algorithm>
#include <array>
#include <deque>
#include <string>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/fsdp_shared.h"
#include "sim/program/fsdp_units.h"
#include "sim/program/local_pieces.h"
#include "sim/strategy/fsdp_release.h"

namespace zerosim {

namespace {

constexpr int kNone = -1;
// Frees that may be outstanding before a gather waits for the oldest (_FreeEventQueue).
constexpr std::size_t kOutstandingFrees = 2;

enum class State { Idle, Forward, BackwardPre, BackwardPost };

struct Unit {
  ModuleId module;
  bool root = false;
  bool trains = false;
  std::int64_t elements = 0;  ///< of the flat parameter, not padded to the ranks
  std::int64_t shard = 0;     ///< elements of one rank

  State state = State::Idle;
  bool gathered = false;
  bool uses_full = false;  ///< the flat parameter is the unsharded one; after a reshard its shard
  bool prefetched = false;
  bool needs_forward_gather = false;   ///< _needs_pre_forward_unshard
  bool needs_backward_gather = false;  ///< _needs_pre_backward_unshard
  bool ran_pre_backward = false;
  int place_in_forward = kNone;  ///< of the pre-forward order
  int post_forward_index = kNone;

  BufferId full;                 ///< the unsharded flat parameter
  std::vector<BufferId> pieces;  ///< gradients of its views
  int expected = 0;              ///< of those, in this backward
  BufferId gradient;             ///< unsharded; kept under no_sync
  BufferId sharded_gradient;
};

bool shards_parameters(FsdpSharding sharding) {
  return sharding != FsdpSharding::NoShard;
}
bool frees_after_forward(FsdpSharding sharding) {
  return sharding == FsdpSharding::FullShard || sharding == FsdpSharding::HybridShard;
}

class Fsdp1 : public FrameworkHooks {
 public:
  explicit Fsdp1(const FrameworkContext& context)
      : context_(context),
        model_(context.model),
        strategy_(context.strategy),
        options_(context.strategy.fsdp),
        release_(fsdp_release(strategy_.torch_version)),
        builder_(context.builder),
        groups_(fsdp_groups(context)),
        // D2.2: one rank alone shards nothing.
        sharding_(groups_.shard_ranks == 1 && !is_hybrid(options_.sharding) ? FsdpSharding::NoShard
                                                                            : options_.sharding),
        sharded_(shards_parameters(sharding_)),
        gather_type_(model_dtype(strategy_.precision)),
        reduce_type_(strategy_.communication_dtype),
        own_type_(options_.parameter_dtype),
        alignment_(fsdp1_alignment(strategy_)),
        division_(gradient_division(context.world_size)),
        layout_(fsdp_units(model_, options_)),
        optimizer_(context, groups_.shard,
                   fsdp_optimizer_tensors(model_, strategy_, layout_, shard_place(context))),
        around_(options_.checkpoints_around_units &&
                strategy_.checkpointing == ActivationCheckpointing::Full),
        steady_(context.first_step > 0),
        iteration_(context.first_step * strategy_.grad_accum) {
    check_release();
    make_units();
    unshard_stream_ = builder_.add_stream("unshard");
    pre_unshard_stream_ = builder_.add_stream("pre_unshard");
    post_backward_stream_ = builder_.add_stream("post_backward");
    all_reduce_stream_ =
        is_hybrid(sharding_) ? builder_.add_stream("all_reduce") : post_backward_stream_;
    use_model(model_);
    note_assumptions(context.program.assumptions);
  }

  void initialize() override {
    std::int64_t elements = 0;
    for (const Unit& unit : units_) {
      elements += unit.shard;
    }
    BufferId checkpoint = load_checkpoint_for_fsdp(context_);
    allocate_own(own(elements), MemoryClass::Parameters, "parameter_shards", "D2.1");
    builder_.free(checkpoint, "E6");
    Bytes buffers;
    for (const ModuleBuffer& buffer : model_.buffers) {
      // Only floating point is cast.
      const Dtype dtype = buffer.dtype == Dtype::F32 ? options_.buffer_dtype : buffer.dtype;
      buffers += Bytes(buffer.elements) * dtype_bytes(dtype);
    }
    if (buffers.count() > 0) {
      builder_.allocate(buffers, MemoryClass::Parameters, "module_buffers", kComputeStream,
                        "D2.13");
    }
    optimizer_.initialize();
    if (options_.cpu_offload) {
      allocate_own(own(elements), MemoryClass::Gradients, "cpu_gradients", "D2.9");
    } else if (steady_ && release_.zeroes_gradients) {
      for (Unit& unit : units_) {
        if (unit.trains) {
          unit.sharded_gradient = sharded_buffer(unit);
        }
      }
    }
  }

  void select_model(const Model& model) override { use_model(model); }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    synchronises_ = !options_.no_sync || micro.boundary;
  }

  // ---- forward (D2.4 to D2.6) ----

  void pre_forward(ModuleId module) override {
    Unit* unit = unit_at(module);
    const bool recomputes = builder_.phase() == Phase::Backward;
    if (module == units_.front().module && !recomputes) {
      root_pre_forward();
    }
    if (unit == nullptr) {
      if (module == units_.front().module && !recomputes) {
        active_.push_back(&units_.front());  // a root without parameters: units run within it
      }
      return;
    }
    if (recomputes && !around_) {
      pre_backward(module);  // its hook on the output fires first
      return;
    }
    check_order();
    builder_.host({HostWork::ModuleHook}, "D2.4");
    unit->state = State::Forward;
    active_.push_back(unit);
    if (!unit->prefetched || release_.unshards_prefetched_again) {
      unshard(*unit);
    }
    unit->needs_forward_gather = false;
    builder_.stream_wait_stream(kComputeStream, unshard_stream_, "D2.4");
    prefetch_forward(*unit);
  }

  void post_forward(ModuleId module, bool recompute) override {
    Unit* unit = unit_at(module);
    if (unit == nullptr && module == units_.front().module && !recompute) {
      active_.pop_back();
    }
    if (unit == nullptr || unit->state != State::Forward) {
      return;
    }
    if (unit->post_forward_index == kNone) {  // first use only
      unit->post_forward_index = static_cast<int>(post_forward_order_.size());
      post_forward_order_.push_back(unit);
    }
    builder_.host({HostWork::ModuleHook}, "D2.6");
    reshard(*unit, !unit->root && frees_after_forward(sharding_));
    // Reentrant checkpointing computes without gradients at first: its outputs get no hook.
    const bool has_graph =
        recompute || !around_ || !recomputes_block(strategy_, model_.modules[module.index()].block);
    unit->needs_backward_gather = has_graph && selected_->modules[module.index()].gradient_output;
    unit->ran_pre_backward = false;
    unit->state = State::Idle;
    active_.pop_back();
  }

  // ---- backward (D2.7 to D2.9) ----

  void pre_backward(ModuleId module) override {
    Unit* unit = unit_at(module);
    if (unit == nullptr || unit->ran_pre_backward) {
      return;
    }
    builder_.host({HostWork::ModuleHook}, "D2.7");
    unit->state = State::BackwardPre;
    if (!unit->prefetched || release_.unshards_prefetched_again) {
      unshard(*unit);
    }
    builder_.stream_wait_stream(kComputeStream, unshard_stream_, "D2.7");
    unit->needs_backward_gather = false;
    prefetch_backward(*unit);
    unit->ran_pre_backward = true;
  }

  // Nothing of a frozen unit is accumulated: a hook on its inputs.
  void post_backward(ModuleId module) override {
    Unit* unit = unit_at(module);
    if (unit == nullptr || unit->trains || !release_.reshards_frozen_units) {
      return;
    }
    unit->state = State::BackwardPost;
    reshard(*unit, frees_in_backward());
    prefetch_backward(*unit);
  }

  void gradient_ready(ParameterId parameter, BufferId gradient) override {
    units_[static_cast<std::size_t>(layout_.of_parameter[parameter.index()])].pieces.push_back(
        gradient);
  }

  // The views of a unit come from one split, made when its forward began: autograd gets to it, and
  // to the hook on what accumulates behind it, when nothing that came later is left.
  void leave_backward(ModuleId module) override {
    Unit* unit = unit_at(module);
    if (unit != nullptr && !unit->root) {
      take_gradient(*unit);
    }
  }

  void end_backward() override {
    if (units_.front().elements > 0) {
      take_gradient(units_.front());
    }
    if (synchronises_) {
      builder_.stream_wait_stream(kComputeStream, post_backward_stream_, "D2.9");
      builder_.stream_wait_stream(kComputeStream, all_reduce_stream_, "D2.9");
      if (options_.cpu_offload) {
        builder_.host_wait_stream(kComputeStream, "D2.9");
        for (Unit& unit : units_) {
          builder_.free(unit.sharded_gradient, "D2.9");
        }
      }
    }
    for (Unit& unit : units_) {
      if (unit.gathered && unit.uses_full) {  // _catch_all_reshard
        const ModuleScope scope(builder_, unit.module);
        reshard(unit, frees_in_backward());
      }
      unit.state = State::Idle;
      unit.prefetched = unit.needs_backward_gather = unit.ran_pre_backward = false;
      unit.post_forward_index = kNone;
    }
    post_forward_order_.clear();
    ++iteration_;
  }

  void optimizer_step() override {
    optimizer_.step(micro_);
    drop_gradients();
    starts_step_ = true;
  }

 private:
  // ---- set up ----

  void check_release() const {
    const auto refuse = [&](const std::string& what) {
      throw ConfigError(format("{}: {}", strategy_.name, what));
    };
    if (is_hybrid(options_.sharding) && !release_.has_hybrid) {
      refuse(format("PyTorch {} has no hybrid sharding, expected 2", release_.name));
    }
    if (options_.use_orig_params && !release_.has_original_parameters) {
      refuse(format("PyTorch {} has no use_orig_params, expected 2", release_.name));
    }
  }

  [[nodiscard]] int trainable_of(const FsdpUnit& unit) const {
    return static_cast<int>(
        std::count_if(unit.parameters.begin(), unit.parameters.end(),
                      [&](ParameterId id) { return model_.parameters[id.index()].trainable; }));
  }

  void make_units() {
    for (const FsdpUnit& given : layout_.units) {
      Unit& unit = units_.emplace_back();
      unit.module = given.module;
      unit.root = units_.size() == 1;
      const int trainable = trainable_of(given);
      unit.trains = trainable > 0;
      if (unit.trains && !options_.use_orig_params &&
          trainable < static_cast<int>(given.parameters.size())) {
        throw ConfigError(format(
            "{}: some parameters of unit {} train and some do not, which FSDP allows only with "
            "use_orig_params",
            strategy_.name, unit.root ? "(root)" : model_.modules[given.module.index()].name));
      }
      unit.elements = flat_elements(model_, given, alignment_);
      const int ranks = sharded_ ? groups_.shard_ranks : 1;
      unit.shard = (unit.elements + ranks - 1) / ranks;
    }
    for (const ExecutionStep& step : model_.forward) {
      Unit* unit = step.kind == ExecutionStep::Kind::Enter ? unit_at(step.module) : nullptr;
      if (unit != nullptr && unit->place_in_forward == kNone) {
        unit->place_in_forward = static_cast<int>(forward_order_.size());
        forward_order_.push_back(unit);
      }
    }
  }

  void use_model(const Model& model) {
    if (selected_ == &model) {
      return;
    }
    selected_ = &model;
    const std::vector<int> counts = arriving_gradients(model, layout_);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      units_[i].expected = counts[i];
    }
  }

  void note_assumptions(std::vector<std::string>& assumptions) const {
    if (options_.cpu_offload && strategy_.grad_accum > 1 && !options_.no_sync) {
      assumptions.emplace_back(
          "FSDP with offloaded parameters does not add up gradients over micro batches outside "
          "no_sync(): PyTorch keeps the last one");
    }
    if (groups_.replicas == 1 && is_hybrid(sharding_)) {
      assumptions.emplace_back("hybrid sharding with one replica: its all-reduces move nothing");
    }
  }

  // ---- sizes and buffers ----

  /// Null for a module that is no unit, and for a root without parameters of its own.
  [[nodiscard]] Unit* unit_at(ModuleId module) {
    const int index = layout_.of_module[module.index()];
    if (index < 0) {
      return nullptr;
    }
    Unit& unit = units_[static_cast<std::size_t>(index)];
    return unit.elements > 0 ? &unit : nullptr;
  }

  [[nodiscard]] Bytes own(std::int64_t n) const { return Bytes(n) * dtype_bytes(own_type_); }
  [[nodiscard]] Bytes low(std::int64_t n) const { return Bytes(n) * dtype_bytes(gather_type_); }
  [[nodiscard]] Bytes wire(std::int64_t n) const { return Bytes(n) * dtype_bytes(reduce_type_); }
  [[nodiscard]] std::int64_t padded(const Unit& unit) const {
    return sharded_ ? unit.shard * groups_.shard_ranks : unit.shard;
  }

  /// Where the shards are.
  void allocate_own(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                    std::string_view rule) {
    if (options_.cpu_offload) {
      builder_.allocate_on_host(bytes, memory_class, owner, /*pinned=*/true, rule);
    } else {
      builder_.allocate(bytes, memory_class, owner, kComputeStream, rule);
    }
  }

  BufferId temporary(Bytes bytes, std::string_view owner, StreamId pool, std::string_view rule) {
    return builder_.allocate(bytes, MemoryClass::TemporaryBuffers, owner, pool, rule);
  }

  BufferId sharded_buffer(const Unit& unit) {
    return builder_.allocate(own(unit.shard), MemoryClass::Gradients, "sharded_gradient",
                             post_backward_stream_, "D2.8");
  }

  // ---- gathering ----

  // Both streams wait for what the default stream holds: the optimizer.
  void root_pre_forward() {
    if (options_.use_orig_params && !release_.zeroes_gradients && starts_step_) {
      free_gradients();  // _reset_flat_param_grad_info_if_needed
    }
    starts_step_ = false;
    builder_.stream_wait_stream(unshard_stream_, kComputeStream, "D2.3");
    if (has_low_shard()) {
      builder_.stream_wait_stream(pre_unshard_stream_, kComputeStream, "D2.3");
    }
    for (Unit& unit : units_) {
      unit.needs_forward_gather = options_.forward_prefetch;
    }
  }

  // Rule 71: how many units come next and which, on every rank; the host compares.
  void check_order() {
    if (!release_.checks_order || iteration_ > 0) {
      return;
    }
    const ModuleScope scope(builder_, active_.empty() ? ModuleId() : active_.back()->module);
    for (int i = 0; i < 2; ++i) {
      builder_.all_gather(kComputeStream, groups_.shard, 1, groups_.shard_ranks, Dtype::I32,
                          "D2.4");
      builder_.host_wait_stream(kComputeStream, "D2.4");
    }
  }

  [[nodiscard]] bool has_low_shard() const {
    return options_.cpu_offload || gather_type_ != own_type_;
  }

  void unshard(Unit& unit) {
    const ModuleScope scope(builder_, unit.module);
    unit.uses_full = true;
    BufferId shard;
    if (!unit.gathered && has_low_shard()) {
      shard = low_shard(unit);
      builder_.stream_wait_stream(unshard_stream_, pre_unshard_stream_, "D2.4");
    }
    limit();
    if (unit.gathered) {
      return;
    }
    unit.gathered = true;
    if (!sharded_) {
      unit.full = shard;  // what has the type is used as it is
      return;
    }
    unit.full = builder_.allocate(low(padded(unit)), MemoryClass::LiveParameters, "unsharded_flat",
                                  unshard_stream_, "D2.4");
    builder_.all_gather(unshard_stream_, groups_.shard, unit.shard, padded(unit), gather_type_,
                        "D2.4");
    builder_.free_recorded(shard, std::array{unshard_stream_}, "D2.4");
  }

  /// The shard on the device, in the type of gathers.
  BufferId low_shard(const Unit& unit) {
    const MemoryClass kind = sharded_ ? MemoryClass::TemporaryBuffers : MemoryClass::LiveParameters;
    BufferId uploaded;
    if (options_.cpu_offload) {
      uploaded =
          builder_.allocate(own(unit.shard), kind, "uploaded_shard", pre_unshard_stream_, "D2.4");
      builder_.copy(pre_unshard_stream_, {Copy::Direction::HostToDevice, own(unit.shard), true},
                    "D2.4");
    }
    if (gather_type_ == own_type_) {
      return uploaded;
    }
    const BufferId cast = builder_.allocate(low(unit.shard), kind, "low_precision_shard",
                                            pre_unshard_stream_, "D2.4");
    builder_.kernel(pre_unshard_stream_,
                    memory_kernel("cast_shard", own(unit.shard) + low(unit.shard)),
                    HostWork::KernelLaunch, "D2.4");
    builder_.free(uploaded, "D2.4");
    return cast;
  }

  // D2.5: whether or not the unit will be gathered.
  void limit() {
    if (!options_.limit_all_gathers || free_events_.size() < kOutstandingFrees) {
      return;
    }
    builder_.host_wait(free_events_.front(), "D2.5");
    free_events_.pop_front();
  }

  // record_stream of what compute has read (D2.8, E7.8).
  void reshard(Unit& unit, bool frees) {
    unit.uses_full = false;
    if (!sharded_) {
      builder_.free_recorded(unit.full, std::array{kComputeStream}, "D2.6");
      unit.gathered = false;
    } else if (frees) {
      builder_.free_recorded(unit.full, std::array{kComputeStream}, "D2.6");
      unit.gathered = false;
      if (options_.limit_all_gathers) {
        builder_.host({HostWork::EventRecord}, "D2.5");
        free_events_.push_back(builder_.last(kComputeStream));
      }
    }
    if (frees || !release_.stays_prefetched_until_freed) {
      unit.prefetched = false;
    }
  }

  /// _should_free_in_backward.
  [[nodiscard]] bool frees_in_backward() const {
    return sharded_ && (synchronises_ || frees_after_forward(sharding_));
  }

  void prefetch(Unit* target) {
    if (target == nullptr || target->prefetched) {
      return;
    }
    unshard(*target);
    target->prefetched = true;
  }

  void prefetch_forward(const Unit& unit) {
    // The order is known once an iteration is over.
    const bool knows_next = options_.forward_prefetch && iteration_ > 0 &&
                            (unit.root || release_.prefetches_every_forward);
    const auto next = static_cast<std::size_t>(unit.place_in_forward) + 1;
    if (knows_next && next < forward_order_.size() && forward_order_[next]->needs_forward_gather) {
      prefetch(forward_order_[next]);
    }
  }

  void prefetch_backward(const Unit& unit) {
    const BackwardPrefetch when = options_.backward_prefetch;
    const bool now = (unit.state == State::BackwardPre && when == BackwardPrefetch::Pre) ||
                     (unit.state == State::BackwardPost && when == BackwardPrefetch::Post);
    if (!now || unit.post_forward_index < 1) {
      return;
    }
    Unit* target = post_forward_order_[static_cast<std::size_t>(unit.post_forward_index) - 1];
    if (target->needs_backward_gather) {
      prefetch(target);
    }
  }

  // ---- gradients ----

  void take_gradient(Unit& unit) {
    if (unit.expected == 0 || static_cast<int>(unit.pieces.size()) < unit.expected) {
      return;
    }
    const ModuleScope scope(builder_, unit.module);
    accumulate(unit);
    post_accumulate(unit);
  }

  // Autograd joins the gradients of the views, then AccumulateGrad keeps or adds the whole.
  void accumulate(Unit& unit) {
    const BufferId joined = builder_.allocate(low(unit.elements), MemoryClass::Gradients,
                                              "unsharded_gradient", kComputeStream, "D2.8");
    fsdp_kernel(builder_, kComputeStream, "join_gradients", low(unit.elements) * 2, "D2.8");
    for (BufferId& piece : unit.pieces) {
      builder_.free(piece, "D2.8");
    }
    unit.pieces.clear();
    if (!unit.gradient.valid()) {
      unit.gradient = joined;
      return;
    }
    fsdp_kernel(builder_, kComputeStream, "accumulate", low(unit.elements) * 3, "D2.12");
    BufferId added = joined;
    builder_.free(added, "D2.12");
  }

  /// _post_backward_hook.
  void post_accumulate(Unit& unit) {
    builder_.host({HostWork::GradientHook}, "D2.8");
    unit.state = State::BackwardPost;
    reshard(unit, frees_in_backward());
    prefetch_backward(unit);
    if (!synchronises_) {
      return;  // D2.12
    }
    builder_.stream_wait_stream(post_backward_stream_, kComputeStream, "D2.8");
    if (sharded_) {
      reduce_scatter(unit);
    } else {
      all_reduce(unit);
    }
  }

  // Into the type of reductions.
  void cast_gradient(Unit& unit) {
    if (reduce_type_ == gather_type_) {
      return;
    }
    const BufferId cast =
        temporary(wire(unit.elements), "cast_gradient", post_backward_stream_, "D2.8");
    fsdp_kernel(builder_, post_backward_stream_, "cast_gradient",
                low(unit.elements) + wire(unit.elements), "D2.8");
    builder_.free_recorded(unit.gradient, std::array{post_backward_stream_}, "D2.8");
    unit.gradient = cast;
  }

  void pad_gradient(Unit& unit) {
    if (padded(unit) == unit.elements && !release_.always_pads) {
      return;
    }
    const BufferId whole =
        temporary(wire(padded(unit)), "padded_gradient", post_backward_stream_, "D2.8");
    fsdp_kernel(builder_, post_backward_stream_, "pad_gradient",
                wire(unit.elements) + wire(padded(unit)), "D2.8");
    builder_.free_recorded(unit.gradient, std::array{post_backward_stream_}, "D2.8");
    unit.gradient = whole;
  }

  void divide(StreamId stream, std::int64_t elements, double factor) {
    if (factor > 1) {
      fsdp_kernel(builder_, stream, "divide", wire(elements) * 2, "D2.8");
    }
  }

  // _reduce_grad.
  void reduce_scatter(Unit& unit) {
    cast_gradient(unit);
    pad_gradient(unit);
    divide(post_backward_stream_, padded(unit), division_.before);
    BufferId shard = builder_.allocate(wire(unit.shard), MemoryClass::Gradients, "reduced_gradient",
                                       post_backward_stream_, "D2.8");
    builder_.reduce_scatter(post_backward_stream_, groups_.shard, padded(unit), unit.shard,
                            reduce_type_, "D2.8");
    builder_.free_recorded(unit.gradient, std::array{post_backward_stream_}, "D2.8");
    if (is_hybrid(sharding_)) {
      builder_.stream_wait_stream(all_reduce_stream_, post_backward_stream_, "D2.10");
      builder_.all_reduce(all_reduce_stream_, groups_.replicate, unit.shard, reduce_type_, "D2.10");
    }
    divide(all_reduce_stream_, unit.shard, division_.after);
    keep(unit, shard);
  }

  // Casts the shard into the parameters' type and keeps or adds it (_accumulate_sharded_grad).
  void keep(Unit& unit, BufferId shard) {
    if (reduce_type_ != own_type_) {
      const BufferId cast = sharded_buffer(unit);
      fsdp_kernel(builder_, all_reduce_stream_, "cast_gradient", wire(unit.shard) + own(unit.shard),
                  "D2.13");
      builder_.free_recorded(shard, std::array{all_reduce_stream_}, "D2.13");
      shard = cast;
    }
    if (unit.sharded_gradient.valid()) {
      fsdp_kernel(builder_, all_reduce_stream_, "accumulate", own(unit.shard) * 3, "D2.8");
      builder_.free_recorded(shard, std::array{all_reduce_stream_}, "D2.8");
    } else {
      unit.sharded_gradient = shard;
    }
    if (options_.cpu_offload) {
      builder_.copy(all_reduce_stream_, {Copy::Direction::DeviceToHost, own(unit.shard), true},
                    "D2.9");
    }
  }

  // _reduce_grad_no_shard: the gradient stays where it is, and later ones are added to it.
  void all_reduce(Unit& unit) {
    cast_gradient(unit);
    divide(post_backward_stream_, unit.elements, division_.before);
    builder_.all_reduce(post_backward_stream_, groups_.shard, unit.elements, reduce_type_, "D2.8");
    divide(post_backward_stream_, unit.elements, division_.after);
    BufferId whole = unit.gradient;
    unit.gradient = BufferId();
    keep(unit, whole);
  }

  void free_gradients() {
    for (Unit& unit : units_) {
      builder_.free(unit.sharded_gradient, "D2.8");
    }
  }

  // zero_grad()
  void drop_gradients() {
    if (!release_.zeroes_gradients) {
      // It reaches the original parameters only; the flat one forgets at the next forward.
      if (!options_.use_orig_params || !sharded_) {
        free_gradients();
      }
      return;
    }
    Bytes bytes;
    int tensors = 0;
    for (const Unit& unit : units_) {
      if (unit.sharded_gradient.valid()) {
        bytes += own(unit.shard);
        ++tensors;
      }
    }
    if (tensors > 0) {
      builder_.kernel(kComputeStream, memory_kernel("zero_gradients", bytes, tensors),
                      HostWork::KernelLaunch, "D2.8");
    }
  }

  FrameworkContext context_;
  const Model& model_;
  const Strategy& strategy_;
  const FsdpOptions& options_;
  const FsdpRelease& release_;
  RankProgramBuilder& builder_;
  FsdpGroups groups_;
  FsdpSharding sharding_;
  bool sharded_;
  Dtype gather_type_;
  Dtype reduce_type_;
  Dtype own_type_;  ///< of shards and optimizer states
  std::int64_t alignment_;
  GradientDivision division_;
  FsdpUnits layout_;
  FsdpOptimizer optimizer_;
  bool around_;  ///< reentrant checkpointing around the units
  bool steady_;
  std::int64_t iteration_;  ///< backwards so far
  const Model* selected_ = nullptr;
  std::vector<Unit> units_;
  std::vector<Unit*> forward_order_;
  std::vector<Unit*> post_forward_order_;
  std::vector<Unit*> active_;  ///< in their forward, the innermost last
  std::deque<OpId> free_events_;
  MicroBatch micro_;
  bool synchronises_ = true;
  bool starts_step_ = false;  ///< zero_grad() was called since the last forward
  StreamId unshard_stream_;
  StreamId pre_unshard_stream_;
  StreamId post_backward_stream_;
  StreamId all_reduce_stream_;  ///< the one above unless hybrid
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_fsdp1(const FrameworkContext& context) {
  return std::make_unique<Fsdp1>(context);
}

}  // namespace zerosim
