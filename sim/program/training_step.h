/// \file
/// Walks training steps of a model and calls a framework's hooks where PyTorch would.
///
/// The walk itself issues what every framework shares: the model's kernels, saved activations,
/// recomputation, gradients as autograd allocates them. What a framework adds (gathers, buckets,
/// reductions, the optimizer step) is in its FrameworkHooks: ddp.cpp, zero0.cpp, zero12.cpp,
/// zero3.cpp.
///
/// Not modelled: tensors that only live inside one operator's forward, but for those of the loss,
/// and under checkpointing, where nothing else is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/ids.h"
#include "sim/model/model.h"
#include "sim/model/operators.h"
#include "sim/program/builder.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// One thing that happens in a micro batch, in host order.
struct TrainingEvent {
  enum class Kind {
    PreForward,
    Forward,
    PostForward,
    PreBackward,
    Backward,
    PostBackward,   ///< where DeepSpeed's hook fires (C2.5)
    LeaveBackward,  ///< all that the module's forward has issued is behind, hook or not
  };
  Kind kind = Kind::PreForward;
  ModuleId module;
  std::int32_t operation = -1;  ///< of Forward and Backward
  bool recompute = false;       ///< inside backward: checkpointing (C12)
};

/// Whether the module is a transformer block, the whole of it.
[[nodiscard]] bool is_block_root(const Model& model, ModuleId id);

/// All events of one micro batch: forward, then backward. Full checkpointing recomputes each block
/// (of `checkpointed_share` of them)
/// when backward reaches it, before the hooks of its backward (C12.1); NonReentrant and PerOperator
/// when backward first needs a tensor that the block's forward has kept, up to that tensor: the
/// modules that are open there have no post-forward (C12.3).
[[nodiscard]] std::vector<TrainingEvent> training_events(const Model& model,
                                                         ActivationCheckpointing checkpointing,
                                                         double checkpointed_share = 1);

/// The modules whose hooks fetch under ZeRO-3, in order: pre-forward and pre-backward events
/// (C4.1).
[[nodiscard]] std::vector<ModuleId> fetch_order(const std::vector<TrainingEvent>& events);

/// Place in the training loop.
struct MicroBatch {
  int step = 0;
  int index = 0;
  bool boundary = true;  ///< last micro batch of its step
};

/// What a framework does at each point of a step. Called with the builder's context set.
class FrameworkHooks {
 public:
  virtual ~FrameworkHooks() = default;

  /// Allocates what lives between steps; phase init.
  virtual void initialize() = 0;
  /// Before a micro batch begins: the model that it runs, alike ones being one; ids are the same in
  /// all.
  virtual void select_model(const Model&) {}
  virtual void begin_forward(const MicroBatch&) {}
  virtual void pre_forward(ModuleId) {}
  /// \param recompute  within the backward (C12.1)
  virtual void post_forward(ModuleId, [[maybe_unused]] bool recompute) {}
  /// An operator is about to compute forward, or again.
  virtual void pre_operator(const Operator&) {}
  virtual void pre_backward(ModuleId) {}
  virtual void post_backward(ModuleId) {}
  /// Backward has come to where the module's forward began: autograd has no node of it left.
  virtual void leave_backward(ModuleId) {}
  /// The gradient of `parameter` has been produced into `gradient`, which the framework now owns.
  virtual void gradient_ready(ParameterId parameter, BufferId gradient) = 0;
  virtual void end_backward() {}
  /// At the boundary, after backward.
  virtual void optimizer_step() = 0;
};

class TrainingWalk {
 public:
  TrainingWalk(const Model& model, const Strategy& strategy, const BatchShape& batch,
               RankProgramBuilder& builder, FrameworkHooks& hooks);

  /// Micro batches differ (changing experts): `model_of` gives the model of each, with the ids of
  /// the constructor's and another `forward`.
  void vary(std::function<const Model&(const MicroBatch&)> model_of) {
    model_of_ = std::move(model_of);
  }

  void run(int first_step, int steps);

 private:
  /// What happens in a micro batch, and at what cost.
  struct Course {
    const Model* model = nullptr;
    std::vector<TrainingEvent> events;
    std::vector<OperatorCost> costs;  ///< by operator
  };
  [[nodiscard]] Course course_of(const Model& model) const;
  void select_course(const MicroBatch& micro);
  void micro_batch(const MicroBatch& micro);
  void handle(const TrainingEvent& event);
  void forward(const TrainingEvent& event);
  void backward(const TrainingEvent& event);
  void keep_results(std::size_t operation);
  std::vector<int> hand_on_gradient(std::size_t operation, int own);
  int give_gradient(BufferId memory, std::span<const Value> results);
  void add_gradient(Value result, int gradient);
  void release_gradient(int gradient);
  void drop_gradients();
  void save_for_backward(std::size_t operation);
  void free_saved(std::size_t operation);
  void cast_weight(std::size_t operation, bool keep);
  void produce_gradients(const Operator& op);
  void produce_gradient(const Operator& op, ParameterId id);
  void synchronize_timer(int step);
  [[nodiscard]] bool checkpointed(ModuleId module) const;
  [[nodiscard]] bool is_in_leaf(ModuleId module) const;

  struct Saved {
    BufferId activations, logits, cast_weight;
  };
  /// A gradient between two operators' backwards: of one result, or, where a sum handed it on, of
  /// several.
  struct FlowingGradient {
    BufferId memory;
    int holders = 0;
  };
  static constexpr int kNoGradient = -1;

  const Model& model_;
  const Strategy& strategy_;
  RankProgramBuilder& builder_;
  FrameworkHooks& hooks_;
  BatchShape batch_;
  std::function<const Model&(const MicroBatch&)> model_of_;
  std::map<const Model*, Course> courses_;
  const Course* course_ = nullptr;      ///< of this micro batch
  std::vector<Saved> saved_;            ///< by operator
  std::vector<BufferId> checkpoints_;   ///< by block
  std::vector<bool> is_kept_;           ///< by operator: PerOperator keeps its result
  std::vector<BufferId> kept_results_;  ///< by operator
  std::vector<BufferId> caches_;        ///< keys and values that the forward returns
  Bytes checkpoint_bytes_;
  std::vector<FlowingGradient> flowing_;  ///< of this micro batch
  std::vector<int> gradient_of_;          ///< by operator: its result's, of `flowing_`
  BufferId recomputed_output_;            ///< of the block whose backward runs
  bool autocast_;                         ///< fp32 weights, low-precision compute (DDP and single)
};

}  // namespace zerosim
