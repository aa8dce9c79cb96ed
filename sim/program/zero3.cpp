// DeepSpeed ZeRO stage 3: spec C. What to gather and release is the coordinator's decision
// (zero3_coordinator.h). Here it is carried out, hook by hook: parameters by zero3_gathers.h (C3,
// C9, C11), gradients by zero3_gradients.h (C6), the step by zero3_step.h (C8).

#include <algorithm>
#include <array>
#include <map>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/frameworks.h"
#include "sim/program/zero3_coordinator.h"
#include "sim/program/zero3_gathers.h"
#include "sim/program/zero3_gradients.h"
#include "sim/program/zero3_partition.h"
#include "sim/program/zero3_step.h"

namespace zerosim {

namespace {

class Zero3 : public FrameworkHooks {
 public:
  explicit Zero3(const FrameworkContext& context)
      : model_(context.model),
        strategy_(context.strategy),
        builder_(context.builder),
        world_(context.world),
        world_size_(context.world_size),
        first_step_(context.first_step),
        release_(deepspeed_release(strategy_.version)),
        coordinator_(model_, strategy_.zero, release_),
        partition_(context),
        step_(context, partition_),
        gathers_(context, partition_, own_stream("all_gather")),
        gradients_(context, partition_, step_, own_stream("reduce")),
        linear_weight_(model_.parameters.size()) {
    for (const Operator& op : model_.operators) {
      for (const ParameterId id : op.parameters) {
        const bool matrix = model_.parameters[id.index()].shape.size() == 2;
        linear_weight_[id.index()] =
            linear_weight_[id.index()] || (op.kind == OperatorKind::Linear && matrix);
      }
    }
    if (first_step_ == 0) {
      return;
    }
    const std::vector<TrainingEvent> events =
        training_events(model_, strategy_.checkpointing, strategy_.checkpointed_share);
    if (release_.resets_before_forward && !any_uses_others() && !recording_releases_persistent()) {
      coordinator_.skip_recording(fetch_order(events));
    } else {
      warm_up(events);
    }
  }

  void initialize() override {
    const bool updated = first_step_ > 0 && !overflows(first_step_ - 1);
    if (updated) {
      coordinator_.gather_persistent();
    }
    gathers_.initialize(
        updated ? coordinator_.persistent() : std::vector<bool>(model_.parameters.size()), updated);
    step_.initialize(/*moments=*/first_step_ > overflow_steps());
    gradients_.initialize();
  }

  void begin_forward(const MicroBatch& micro) override {
    micro_ = micro;
    gradients_.begin(micro);
    if (release_.resets_before_forward) {
      cancel(coordinator_.cancel_in_flight());
    }
    verify(coordinator_.begin_forward());
  }

  void pre_forward(ModuleId module) override { fetch(module, Pass::Forward); }
  void pre_backward(ModuleId module) override { fetch(module, Pass::Backward); }
  void post_forward(ModuleId module, bool recompute) override {
    release(module, recompute ? Pass::Recompute : Pass::Forward);
  }
  void post_backward(ModuleId module) override {
    release(module, Pass::Backward);
    free_held(module);
  }

  // C2.6: a parameter of another module is gathered on the spot unless it is there.
  void pre_operator(const Operator& op) override {
    if (op.parameters.empty() || !uses_others(op)) {
      return;
    }
    for (const ParameterId id : coordinator_.access(op.module, op.parameters)) {
      gathers_.gather_now(id);
    }
  }

  void gradient_ready(ParameterId id, BufferId gradient) override { gradients_.add(id, gradient); }

  void end_backward() override {  // C6.7, C4.8
    if (!release_.resets_before_forward) {
      cancel(coordinator_.cancel_in_flight());
    }
    verify(coordinator_.finish_backward());
    gradients_.finish();
    release(coordinator_.end_backward(), "C4.8");
    while (!held_.empty()) {
      free_held(held_.begin()->first);
    }
  }

  void optimizer_step() override {
    release(coordinator_.release_all(), "C8.1");
    if (strategy_.precision == Precision::Fp16) {
      step_.check_overflow();
    }
    if (overflows(micro_.step)) {
      return;  // nothing is updated, and persistent parameters are gathered when they are used
    }
    step_.update();
    gathers_.gather_persistent(coordinator_.persistent());
    coordinator_.gather_persistent();
    gathers_.drop_secondaries();
  }

 private:
  using Pass = Zero3Coordinator::Pass;

  /// A stream of that name with `overlap_comm`, else the compute stream (0.6).
  StreamId own_stream(const char* name) {
    return strategy_.zero.overlap_comm ? builder_.add_stream(name) : kComputeStream;
  }

  [[nodiscard]] int overflow_steps() const {
    return strategy_.precision == Precision::Fp16 ? strategy_.overflow_steps : 0;
  }
  [[nodiscard]] bool overflows(int step) const { return step < overflow_steps(); }

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
    if (world_size_ == 1) {
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

  // Then the second micro batch of the first step finds persistent parameters released, unlike
  // later ones, and its decisions stay (rule 32b).
  [[nodiscard]] bool recording_releases_persistent() const {
    const std::vector<bool>& persistent = coordinator_.persistent();
    return (strategy_.grad_accum > 1 || overflows(0)) &&
           std::find(persistent.begin(), persistent.end(), true) != persistent.end();
  }

  // Where steady steps depend on what came before (rules 30, 31, 32b, 84), the coordinator goes
  // through two steps first; more than three micro batches of each add nothing.
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
      if (!overflows(first_step_ - 2 + step)) {
        coordinator_.gather_persistent();
      }
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
      case TrainingEvent::Kind::LeaveBackward:
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

  void fetch(ModuleId module, Pass pass) {
    const std::int64_t available = coordinator_.available_elements();
    builder_.host({HostWork::DeepSpeedHook}, "C2.2");
    const Zero3Coordinator::Fetch fetch = coordinator_.fetch(module, pass);
    cancel(fetch.cancelled);  // rule 87
    builder_.annotate(AnnotationKind::FetchSubModule, available, {});
    gathers_.issue(fetch.now, "C4.3");
    for (const ParameterId id : coordinator_.parameters_of(module)) {
      if (gathers_.in_flight(id)) {
        gathers_.wait_for(id);
      }
    }
    builder_.stream_wait_stream(kComputeStream, gathers_.stream(), "C4.3");
    gathers_.issue(fetch.prefetched, "C5.4");
  }

  void cancel(const std::vector<ParameterId>& ahead) {
    if (!ahead.empty() && !release_.releases_unused_prefetches) {
      throw ConfigError(
          format("{}: DeepSpeed {} stops in micro batch {} of step {}: its trace differs from the "
                 "recorded one, and {} was fetched ahead and not used (\"still have inflight "
                 "params\", rule 87)",
                 strategy_.name, release_.name, micro_.index, micro_.step,
                 model_.parameters[ahead.front().index()].name));
    }
    for (const ParameterId id : ahead) {
      gathers_.wait_for(id);
    }
    release(ahead, "C4.1");
  }

  void release(ModuleId module, Pass pass) {
    builder_.host({HostWork::DeepSpeedHook}, "C2.3");
    const std::vector<ParameterId> released = coordinator_.release(module, pass);
    if (pass != Pass::Backward && !strategy_.zero.memory_efficient_linear) {
      hold(module, pass, released);
    }
    release(released, "C4.6");
  }

  void release(const std::vector<ParameterId>& parameters, std::string_view rule) {
    if (parameters.empty()) {
      return;
    }
    std::int64_t released = 0;
    for (const ParameterId id : parameters) {
      released += model_.parameters[id.index()].elements;
    }
    builder_.annotate(AnnotationKind::Release, released, parameters);
    gathers_.release(parameters, rule);
  }

  // C2.7: autograd's own linear function keeps the gathered weight from forward to backward; where
  // it is gathered again, that is a second copy. Not so within a checkpointed forward.
  void hold(ModuleId module, Pass pass, const std::vector<ParameterId>& released) {
    const bool without_graph =
        pass == Pass::Forward && recomputes_block(strategy_, model_.modules[module.index()].block);
    std::vector<ParameterId> saved;
    for (const ParameterId id : released) {
      if (!without_graph && linear_weight_[id.index()]) {
        saved.push_back(id);
      }
    }
    if (saved.empty()) {
      return;
    }
    std::vector<BufferId>& held = held_[module];
    for (const BufferId buffer : gathers_.leave_to_autograd(saved)) {
      held.push_back(buffer);
    }
  }

  void free_held(ModuleId module) {
    const auto held = held_.find(module);
    if (held == held_.end()) {
      return;
    }
    for (BufferId& buffer : held->second) {
      builder_.free_recorded(buffer, std::array{kComputeStream}, "C2.7");
    }
    held_.erase(held);
  }

  const Model& model_;
  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  GroupId world_;
  int world_size_;
  int first_step_;
  const DeepSpeedRelease& release_;
  Zero3Coordinator coordinator_;
  Zero3Partition partition_;
  Zero3Step step_;
  Zero3Gathers gathers_;
  Zero3Gradients gradients_;
  MicroBatch micro_;
  std::vector<bool> linear_weight_;                 ///< by parameter
  std::map<ModuleId, std::vector<BufferId>> held_;  ///< by autograd (C2.7)
};

}  // namespace

std::unique_ptr<FrameworkHooks> make_zero3(const FrameworkContext& context) {
  return std::make_unique<Zero3>(context);
}

}  // namespace zerosim
