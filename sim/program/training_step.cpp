#include "sim/program/training_step.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim {

namespace {

using Kind = TrainingEvent::Kind;
using Step = ExecutionStep::Kind;

void append_forward(const ExecutionStep& step, bool recompute, std::vector<TrainingEvent>& events) {
  const Kind kind = step.kind == Step::Enter     ? Kind::PreForward
                    : step.kind == Step::Compute ? Kind::Forward
                                                 : Kind::PostForward;
  events.push_back({kind, step.module, step.operation, recompute});
}

void append_backward(const Model& model, const ExecutionStep& step,
                     std::vector<TrainingEvent>& events) {
  const Module& module = model.modules[step.module.index()];
  if (step.kind == Step::Compute) {
    if (!model.operators[static_cast<std::size_t>(step.operation)].output_gradient) return;
    events.push_back({Kind::Backward, step.module, step.operation, false});
  } else if (step.kind == Step::Exit && module.gradient_output) {
    events.push_back({Kind::PreBackward, step.module, -1, false});
  } else if (step.kind == Step::Enter && module.gradient_output) {
    if (module.positional_gradient_input) {
      events.push_back({Kind::PostBackward, step.module, -1, false});
    }
    events.push_back({Kind::LeaveBackward, step.module, -1, false});
  }
}

// Forward again, from the Enter of the block up to the step `last` in it.
void append_recompute(const Model& model, ModuleId block, std::size_t last,
                      std::vector<TrainingEvent>& events) {
  std::size_t enter = last;
  while (model.forward[enter].kind != Step::Enter || model.forward[enter].module != block) {
    --enter;
  }
  for (std::size_t i = enter; i <= last; ++i) {
    append_forward(model.forward[i], true, events);
  }
}

ModuleId block_root_above(const Model& model, ModuleId id) {
  while (!is_block_root(model, id)) {
    id = model.modules[id.index()].parent;
  }
  return id;
}

bool recomputes_when_unpacked(ActivationCheckpointing checkpointing) {
  return checkpointing == ActivationCheckpointing::NonReentrant ||
         checkpointing == ActivationCheckpointing::PerOperator;
}

// Operators whose results PerOperator keeps: torchtitan's list of saved operations, attention and
// each second matrix product of a block, from the first on (parallelize_llama.py).
std::vector<bool> kept_results(const Model& model) {
  std::vector<bool> kept(model.operators.size());
  int block = -1;
  int products = 0;
  for (const ExecutionStep& step : model.forward) {
    if (step.kind != Step::Compute) {
      continue;
    }
    const int own_block = model.modules[step.module.index()].block;
    if (own_block != block) {
      block = own_block;
      products = 0;
    }
    const auto operation = static_cast<std::size_t>(step.operation);
    const OperatorKind kind = model.operators[operation].kind;
    const bool product = kind == OperatorKind::Linear && products++ % 2 == 0;
    kept[operation] = block >= 0 && (product || kind == OperatorKind::Attention);
  }
  return kept;
}

// Whether the operator reads what its block was given, which a checkpoint keeps.
bool reads_block_input(const Model& model, const Operator& op) {
  const int block = model.modules[op.module.index()].block;
  return std::any_of(op.sources.begin(), op.sources.end(), [&](Value source) {
    const Operator& producer = model.operators[static_cast<std::size_t>(source)];
    return model.modules[producer.module.index()].block != block;
  });
}

// Whether backward reads a tensor that the operator's forward kept. Dropout is taken as off.
bool unpacks(const Model& model, const ExecutionStep& step) {
  if (step.kind != Step::Compute) {
    return false;
  }
  const Operator& op = model.operators[static_cast<std::size_t>(step.operation)];
  return op.output_gradient && op.kind != OperatorKind::ResidualAdd &&
         op.kind != OperatorKind::Scale && op.kind != OperatorKind::Dropout;
}

}  // namespace

bool is_block_root(const Model& model, ModuleId id) {
  const Module& module = model.modules[id.index()];
  return module.block >= 0 &&
         (!module.parent.valid() || model.modules[module.parent.index()].block != module.block);
}

std::vector<TrainingEvent> training_events(const Model& model,
                                           ActivationCheckpointing checkpointing,
                                           double checkpointed_share) {
  std::vector<TrainingEvent> events;
  events.reserve(model.forward.size() * 3);
  for (const ExecutionStep& step : model.forward) {
    append_forward(step, false, events);
  }
  ModuleId recomputed;
  for (std::size_t i = model.forward.size(); i-- > 0;) {
    const ExecutionStep& step = model.forward[i];
    // A block that no gradient comes to is not computed again (rule 79).
    const bool in_block =
        recomputes_block(checkpointed_share, model.modules[step.module.index()].block);
    if (checkpointing == ActivationCheckpointing::Full && in_block && step.kind == Step::Exit &&
        is_block_root(model, step.module) && model.modules[step.module.index()].gradient_output) {
      append_recompute(model, step.module, i, events);
    } else if (recomputes_when_unpacked(checkpointing) && in_block && unpacks(model, step) &&
               block_root_above(model, step.module) != recomputed) {
      recomputed = block_root_above(model, step.module);
      append_recompute(model, recomputed, i, events);
    }
    append_backward(model, step, events);
  }
  return events;
}

std::vector<ModuleId> fetch_order(const std::vector<TrainingEvent>& events) {
  std::vector<ModuleId> order;
  for (const TrainingEvent& event : events) {
    if (event.kind == Kind::PreForward || event.kind == Kind::PreBackward) {
      order.push_back(event.module);
    }
  }
  return order;
}

TrainingWalk::TrainingWalk(const Model& model, const Strategy& strategy, const BatchShape& batch,
                           RankProgramBuilder& builder, FrameworkHooks& hooks)
    : model_(model),
      strategy_(strategy),
      builder_(builder),
      hooks_(hooks),
      batch_(batch),
      saved_(model.operators.size()),
      autocast_((strategy.framework == Framework::Single || strategy.framework == Framework::Ddp) &&
                strategy.precision != Precision::Fp32 &&
                strategy.ddp.parameter_dtype == Dtype::F32) {
  batch_.autocast = autocast_;
  if (recomputes_blocks(strategy.checkpointing)) {
    // Under autocast embeddings and norms are fp32, and so is what is added to them.
    checkpoint_bytes_ = checkpoint_bytes(model, batch) * (autocast_ ? 2 : 1);
  }
  int blocks = 0;
  for (const Operator& op : model.operators) {
    blocks = std::max(blocks, model.modules[op.module.index()].block + 1);
  }
  checkpoints_.resize(static_cast<std::size_t>(blocks));
  kept_results_.resize(model.operators.size());
  gradient_of_.assign(model.operators.size(), kNoGradient);
  if (strategy.checkpointing == ActivationCheckpointing::PerOperator) {
    is_kept_ = kept_results(model);
  } else {
    is_kept_.assign(model.operators.size(), false);
  }
}

TrainingWalk::Course TrainingWalk::course_of(const Model& model) const {
  Course course{
      &model, training_events(model, strategy_.checkpointing, strategy_.checkpointed_share), {}};
  BatchShape attention_batch = batch_;
  // Selective checkpointing recomputes the attention core: it keeps what flash attention keeps.
  attention_batch.flash_attention |= strategy_.checkpointing == ActivationCheckpointing::Selective;
  course.costs.reserve(model.operators.size());
  for (const Operator& op : model.operators) {
    OperatorCost cost = operator_cost(model, op, batch_);
    if (op.kind == OperatorKind::Attention && attention_batch.flash_attention &&
        !batch_.flash_attention &&
        !attends_fused(model.attention_shapes[static_cast<std::size_t>(op.attention)], batch_)) {
      cost.saved = operator_cost(model, op, attention_batch).saved;
      cost.backward_input.insert(cost.backward_input.begin(), cost.forward.begin(),
                                 cost.forward.end());
    }
    course.costs.push_back(std::move(cost));
  }
  return course;
}

void TrainingWalk::select_course(const MicroBatch& micro) {
  const Model* model = model_of_ ? &model_of_(micro) : &model_;
  auto found = courses_.find(model);
  if (found == courses_.end()) {
    found = courses_.emplace(model, course_of(*model)).first;
  }
  course_ = &found->second;
  hooks_.select_model(*model);
}

void TrainingWalk::run(int first_step, int steps) {
  builder_.set_phase(Phase::Init);
  builder_.set_step(first_step, 0);
  hooks_.initialize();
  const int micro_batches = static_cast<int>(strategy_.grad_accum);
  for (int step = first_step; step < first_step + steps; ++step) {
    for (int i = 0; i < micro_batches; ++i) {
      micro_batch({step, i, i + 1 == micro_batches});
    }
  }
}

// DeepSpeed's throughput timer synchronises at both ends of a micro batch from step 2 on (0.7).
void TrainingWalk::synchronize_timer(int step) {
  if (strategy_.framework == Framework::DeepSpeed && strategy_.throughput_timer && step >= 2) {
    builder_.device_synchronize("0.7");
  }
}

void TrainingWalk::micro_batch(const MicroBatch& micro) {
  select_course(micro);
  builder_.set_step(micro.step, micro.index);
  builder_.set_phase(Phase::Forward);
  builder_.set_module(ModuleId(0));
  synchronize_timer(micro.step);
  hooks_.begin_forward(micro);
  for (const TrainingEvent& event : course_->events) {
    builder_.set_module(event.module);
    handle(event);
  }
  builder_.set_module(ModuleId());
  drop_gradients();
  for (BufferId& checkpoint : checkpoints_) {  // of blocks whose input needs no gradient
    builder_.free(checkpoint, "E5");
  }
  hooks_.end_backward();
  builder_.set_phase(Phase::Step);
  if (micro.boundary) {
    builder_.host({HostWork::StepOverhead}, "0.1");
    hooks_.optimizer_step();
  }
  if (strategy_.framework == Framework::DeepSpeed && strategy_.wall_clock_breakdown) {
    builder_.host_wait_stream(kComputeStream, "0.7");
  }
  synchronize_timer(micro.step);
}

bool TrainingWalk::checkpointed(ModuleId module) const {
  return recomputes_block(strategy_, model_.modules[module.index()].block);
}

bool TrainingWalk::is_in_leaf(ModuleId module) const {
  for (; module.valid(); module = model_.modules[module.index()].parent) {
    if (model_.modules[module.index()].leaf) {
      return true;
    }
  }
  return false;
}

void TrainingWalk::handle(const TrainingEvent& event) {
  const bool block_root = checkpointed(event.module) && is_block_root(model_, event.module);
  const int block = model_.modules[event.module.index()].block;
  switch (event.kind) {
    case Kind::PreForward:
      if (block_root && !event.recompute && model_.modules[event.module.index()].gradient_output) {
        checkpoints_[static_cast<std::size_t>(block)] = builder_.allocate(
            checkpoint_bytes_, MemoryClass::Activations, "checkpoint", kComputeStream, "E5");
      }
      if (block_root && model_.modules[event.module.index()].gradient_output) {
        builder_.host({HostWork::Checkpoint}, "C12.1");
      }
      builder_.host({HostWork::ModuleCall}, "0.1");
      hooks_.pre_forward(event.module);
      break;
    case Kind::Forward:
      forward(event);
      break;
    case Kind::PostForward:
      hooks_.post_forward(event.module, event.recompute);
      if (block_root && event.recompute &&
          strategy_.checkpointing == ActivationCheckpointing::Full) {
        // CheckpointFunction.backward holds what it has computed again.
        recomputed_output_ = builder_.allocate(checkpoint_bytes_, MemoryClass::Activations,
                                               "recomputed_output", kComputeStream, "C12.1");
      }
      if (event.module == ModuleId(0)) {  // the output is dropped, the loss stays
        for (BufferId& cache : caches_) {
          builder_.free(cache, "E5");
        }
        caches_.clear();
      }
      break;
    case Kind::PreBackward:
      builder_.set_phase(Phase::Backward);
      hooks_.pre_backward(event.module);
      break;
    case Kind::Backward:
      builder_.set_phase(Phase::Backward);
      backward(event);
      break;
    case Kind::PostBackward:
      hooks_.post_backward(event.module);
      if (block_root) {
        builder_.free(checkpoints_[static_cast<std::size_t>(block)], "E5");
      }
      break;
    case Kind::LeaveBackward:
      if (block_root) {
        builder_.free(recomputed_output_, "C12.1");
      }
      hooks_.leave_backward(event.module);
      break;
  }
}

void TrainingWalk::save_for_backward(std::size_t operation) {
  const OperatorCost& cost = course_->costs[operation];
  const Operator& op = course_->model->operators[operation];
  if (cost.saves_own_input && checkpointed(op.module) && reads_block_input(*course_->model, op)) {
    return;  // the checkpoint is that tensor
  }
  if (cost.logits.count() > 0) {
    saved_[operation].logits =
        builder_.allocate(cost.logits, MemoryClass::Logits, "logits", kComputeStream, "E5");
  }
  const Bytes rest = cost.saved - cost.logits;
  if (rest.count() > 0) {
    saved_[operation].activations =
        builder_.allocate(rest, MemoryClass::Activations, "saved_activation", kComputeStream, "E5");
  }
}

void TrainingWalk::free_saved(std::size_t operation) {
  builder_.free(saved_[operation].logits);
  builder_.free(saved_[operation].activations);
  builder_.free(saved_[operation].cast_weight);
}

// Autocast makes a low-precision copy of each matrix, which backward needs again (E2, DDP row).
void TrainingWalk::cast_weight(std::size_t operation, bool keep) {
  const Operator& op = model_.operators[operation];
  if (!autocast_ || op.kind != OperatorKind::Linear) {
    return;
  }
  const Bytes elements(op.inputs * op.outputs);
  BufferId copy = builder_.allocate(elements * 2, MemoryClass::TemporaryBuffers, "autocast_weight",
                                    kComputeStream, "E2");
  builder_.kernel(kComputeStream, memory_kernel("autocast_weight", elements * 6),
                  HostWork::KernelLaunch, "E2");
  if (keep) {
    saved_[operation].cast_weight = copy;
  } else {
    caches_.push_back(copy);  // autocast's own, until its context ends with the forward
  }
}

void TrainingWalk::forward(const TrainingEvent& event) {
  const auto operation = static_cast<std::size_t>(event.operation);
  const OperatorCost& cost = course_->costs[operation];
  const Operator& op = course_->model->operators[operation];
  hooks_.pre_operator(op);
  const bool keep = !checkpointed(event.module) || event.recompute;
  BufferId working_set;
  if (keep) {
    save_for_backward(operation);
  } else {
    keep_results(operation);
    working_set = builder_.allocate(cost.input + cost.output, MemoryClass::Activations,
                                    "working_set", kComputeStream, "E5");
  }
  BufferId workspace;
  if (cost.forward_workspace.count() > 0) {
    workspace = builder_.allocate(cost.forward_workspace, MemoryClass::Logits, "logits_copies",
                                  kComputeStream, "E5");
  }
  if (event.recompute && kept_results_[operation].valid()) {
    // What was kept is now what the operators that read it have saved.
    builder_.free(kept_results_[operation], "E5");
  } else {
    cast_weight(operation, keep);
    for (const Kernel& kernel : cost.forward) {
      builder_.kernel(kComputeStream, kernel, HostWork::KernelLaunch, "F5");
    }
  }
  builder_.free(workspace);
  builder_.free(working_set);
}

// What a recomputed block's forward leaves behind besides its checkpoint.
void TrainingWalk::keep_results(std::size_t operation) {
  const OperatorCost& cost = course_->costs[operation];
  const Operator& op = course_->model->operators[operation];
  // A block that no gradient comes to is not computed again (rule 79): nothing is kept for it.
  if (is_kept_[operation] && op.output_gradient) {
    kept_results_[operation] = builder_.allocate(cost.output, MemoryClass::Activations,
                                                 "kept_result", kComputeStream, "E5");
  }
  if (op.caches_result && batch_.code == ModelCode::TransformersOld) {
    caches_.push_back(builder_.allocate(cost.output, MemoryClass::Activations, "key_value_cache",
                                        kComputeStream, "E5"));
  }
}

void TrainingWalk::backward(const TrainingEvent& event) {
  const auto operation = static_cast<std::size_t>(event.operation);
  const OperatorCost& cost = course_->costs[operation];
  const Operator& op = course_->model->operators[operation];
  const int own = std::exchange(gradient_of_[operation], kNoGradient);
  BufferId workspace;
  if (cost.backward_workspace.count() > 0) {
    const bool logits = cost.logits.count() > 0;
    workspace = builder_.allocate(
        cost.backward_workspace, logits ? MemoryClass::Logits : MemoryClass::TemporaryBuffers,
        logits ? "logits_gradient" : "backward_workspace", kComputeStream, "E5");
  }
  const std::vector<int> made = hand_on_gradient(operation, own);
  for (const Kernel& kernel : cost.backward_input) {
    builder_.kernel(kComputeStream, kernel, HostWork::BackwardLaunch, "F5");
  }
  for (const Kernel& kernel : cost.backward_weights) {
    builder_.kernel(kComputeStream, kernel, HostWork::BackwardLaunch, "F5");
  }
  produce_gradients(op);
  builder_.free(workspace);
  free_saved(operation);
  release_gradient(own);
  for (const int gradient : made) {
    release_gradient(gradient);
  }
}

// Gradients of what the operator read: its own result's where each part of a sum gets that, else
// new ones, which are there for as long as its backward runs. \returns those.
std::vector<int> TrainingWalk::hand_on_gradient(std::size_t operation, int own) {
  const OperatorCost& cost = course_->costs[operation];
  const Operator& op = course_->model->operators[operation];
  if (cost.input.count() == 0) {
    return {};
  }
  const bool passes_on = op.kind == OperatorKind::ResidualAdd ||
                         (op.kind == OperatorKind::Dropout && cost.backward_input.empty());
  if (passes_on && own != kNoGradient) {
    for (const Value source : op.sources) {
      add_gradient(source, own);
    }
    return {};
  }
  if (cost.gradient_over_saved) {
    return {give_gradient(std::exchange(saved_[operation].activations, BufferId()), op.sources)};
  }
  // The factors of a product have one each; what else reads several tensors gets one for all.
  const std::size_t parts = op.kind == OperatorKind::Multiply ? op.sources.size() : 1;
  const bool of_logits = op.kind == OperatorKind::CrossEntropy;
  const std::span<const Value> sources = op.sources;
  std::vector<int> made;
  for (std::size_t i = 0; i < parts; ++i) {
    const Bytes bytes(cost.input.count() / static_cast<std::int64_t>(parts));
    made.push_back(give_gradient(
        builder_.allocate(bytes, of_logits ? MemoryClass::Logits : MemoryClass::Activations,
                          "activation_gradient", kComputeStream, "E1"),
        parts > 1 ? sources.subspan(i, 1) : sources));
  }
  return made;
}

int TrainingWalk::give_gradient(BufferId memory, std::span<const Value> results) {
  flowing_.push_back({memory, 1});
  const auto made = static_cast<int>(flowing_.size()) - 1;
  for (const Value result : results) {
    add_gradient(result, made);
  }
  return made;
}

// A second gradient of one result is added to the first.
void TrainingWalk::add_gradient(Value result, int gradient) {
  const auto producer = static_cast<std::size_t>(result);
  if (!course_->model->operators[producer].output_gradient ||
      gradient_of_[producer] != kNoGradient) {
    return;
  }
  gradient_of_[producer] = gradient;
  ++flowing_[static_cast<std::size_t>(gradient)].holders;
}

void TrainingWalk::release_gradient(int gradient) {
  if (gradient == kNoGradient) {
    return;
  }
  FlowingGradient& flowing = flowing_[static_cast<std::size_t>(gradient)];
  if (--flowing.holders == 0) {
    builder_.free(flowing.memory);
  }
}

// Those that no operator's backward took: of experts without tokens.
void TrainingWalk::drop_gradients() {
  for (FlowingGradient& flowing : flowing_) {
    builder_.free(flowing.memory);
  }
  flowing_.clear();
  gradient_of_.assign(gradient_of_.size(), kNoGradient);
}

void TrainingWalk::produce_gradients(const Operator& op) {
  // ZeRO-3's own linear function hands the weight's gradient over before the bias' (C2.7; flushes
  // of the stage-3 recordings), PyTorch's the other way round.
  // Gradients of a leaf arrive in order of registration (rule 89).
  const bool weight_first = strategy_.framework == Framework::DeepSpeed &&
                            strategy_.zero.stage == 3 && strategy_.zero.memory_efficient_linear &&
                            deepspeed_release(strategy_.version).linear_hands_weight_first &&
                            op.kind == OperatorKind::Linear && !is_in_leaf(op.module);
  if (weight_first) {
    std::for_each(op.gradients.rbegin(), op.gradients.rend(),
                  [&](ParameterId id) { produce_gradient(op, id); });
  } else {
    std::for_each(op.gradients.begin(), op.gradients.end(),
                  [&](ParameterId id) { produce_gradient(op, id); });
  }
}

void TrainingWalk::produce_gradient(const Operator& op, ParameterId id) {
  const Parameter& parameter = model_.parameters[id.index()];
  if (!parameter.trainable) {
    return;
  }
  const int bytes = dtype_bytes(autocast_ ? Dtype::F32 : model_dtype(strategy_.precision));
  const BufferId gradient =
      builder_.allocate(Bytes(parameter.elements) * bytes, MemoryClass::Gradients, "gradient",
                        kComputeStream, "C6.1");
  if (autocast_ && op.kind == OperatorKind::Linear) {
    BufferId low = builder_.allocate(Bytes(parameter.elements) * 2, MemoryClass::TemporaryBuffers,
                                     "autocast_gradient");
    builder_.kernel(kComputeStream,
                    memory_kernel("autocast_gradient", Bytes(parameter.elements) * 6),
                    HostWork::BackwardLaunch, "D1.8");
    builder_.free(low);
  }
  hooks_.gradient_ready(id, gradient);
}

}  // namespace zerosim
