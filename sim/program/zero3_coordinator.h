/// \file
/// ZeRO-3's parameter coordinator: which parameters each module event gathers, prefetches and
/// releases (spec C4, C5; rules 21 to 37, 80, 84, 87 of deepspeed_recorded.md). Decisions only: no
/// streams, no bytes, no ranks.
///
/// Life of a micro batch:
///
///     begin_forward();                          // root pre-forward (C4.1)
///     for each module event that fetches:       // pre-forward, pre-backward
///       fetch(m, pass)                          // C4.3, then C5
///     ... access(m, p) where m uses a parameter that it does not own (C2.6)
///     ... release(m, pass) after forward and after backward (C4.6)
///     finish_backward(); end_backward();        // before and after the last reduction (C4.8)
///
/// The first micro batch after construction records the trace: nothing is prefetched or kept
/// (C4.2). `skip_recording(trace)` starts with a complete trace instead, as every later step has
/// it. An event that the trace does not have drops it (rule 87).
///
/// Not modelled: NVMe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "sim/base/ids.h"
#include "sim/model/model.h"
#include "sim/strategy/deepspeed_release.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Parameters that stay gathered between steps (C1.7), by ParameterId.
[[nodiscard]] std::vector<bool> persistent_parameters(const Model& model,
                                                      const ZeroOptions& options);

class Zero3Coordinator {
 public:
  /// \param release  of DeepSpeed; lives on
  Zero3Coordinator(const Model& model, const ZeroOptions& options,
                   const DeepSpeedRelease& release = deepspeed_release("0.19"));

  /// Where a module event comes from.
  enum class Pass { Forward, Recompute, Backward };

  /// What one module event gathers; each list is one request, sorted by parameter id (C1.2).
  struct Fetch {
    std::vector<ParameterId> cancelled;   ///< fetched ahead for a trace that is dropped here
    std::vector<ParameterId> now;         ///< not yet available: gathered and waited for
    std::vector<ParameterId> prefetched;  ///< for later modules
  };

  /// Starts with `trace`: the modules in the order in which they fetch, forward then backward.
  void skip_recording(const std::vector<ModuleId>& trace);

  /// Before `begin_forward`: what was fetched ahead and never used is let go (C4.1). \returns it.
  [[nodiscard]] std::vector<ParameterId> cancel_in_flight();
  /// \returns the lengths of the lists whose equality the ranks verify here (C4.1, rule 22): one,
  ///          empty, when a recording begins; modules, parameters and their positions of the trace
  ///          when it is complete; else none.
  std::vector<std::int64_t> begin_forward();
  [[nodiscard]] Fetch fetch(ModuleId module, Pass pass);
  /// `module` uses parameters of others. Those that are not gathered are gathered on the spot, and
  /// from then on with the module's own (rule 84). \returns them.
  [[nodiscard]] std::vector<ParameterId> access(ModuleId module,
                                                std::span<const ParameterId> parameters);
  /// Parameters to free after `module`'s forward or backward.
  [[nodiscard]] std::vector<ParameterId> release(ModuleId module, Pass pass);
  /// After the last module event, before the last reduction: lists as of `begin_forward`, of
  /// releases that reset here.
  [[nodiscard]] std::vector<std::int64_t> finish_backward();
  /// Frees what is still gathered and not persistent, where the release does so.
  [[nodiscard]] std::vector<ParameterId> end_backward();
  /// Frees everything, persistent ones included, before the optimizer step (C8.1).
  [[nodiscard]] std::vector<ParameterId> release_all();
  /// Persistent parameters are gathered again after the step (C8.5).
  void gather_persistent();

  /// Own parameters and those registered by `access`, by id.
  [[nodiscard]] const std::vector<ParameterId>& parameters_of(ModuleId module) const;
  [[nodiscard]] const std::vector<bool>& persistent() const { return persistent_; }
  [[nodiscard]] bool recording() const { return mode_ == Mode::Record; }
  [[nodiscard]] std::int64_t available_elements() const {
    return available_;
  }  ///< its own count (rule 30)
  [[nodiscard]] std::int64_t step_id() const { return step_id_; }

 private:
  enum class Mode { Invalid, Record, Complete };  ///< C4.1

  struct TraceParameter {
    ParameterId parameter;
    std::int64_t step_id = 0;
  };

  [[nodiscard]] std::vector<std::int64_t> reset_step();
  void complete_trace();
  void request(const std::vector<ParameterId>& parameters);
  void pop_own_parameters(const std::vector<ParameterId>& parameters);
  [[nodiscard]] std::vector<ParameterId> take_prefetch();
  [[nodiscard]] const std::vector<ParameterId>& releasable(ModuleId module);
  void keep_reused(std::vector<ParameterId>& candidates) const;
  void hold(ModuleId module);
  void drop(std::vector<ParameterId>& released, ParameterId parameter);
  void activate(ParameterId parameter, ModuleId module);
  void deactivate(ParameterId parameter, ModuleId module);
  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return model_->parameters[id.index()].elements;
  }

  const Model* model_;
  ZeroOptions options_;
  const DeepSpeedRelease* release_;
  std::int64_t prefetch_bucket_size_;
  std::vector<bool> persistent_;
  std::vector<bool> gathered_;                 ///< INFLIGHT or AVAILABLE (C1.8)
  std::vector<std::vector<ModuleId>> active_;  ///< by parameter: modules that hold it (C4.6)
  std::vector<std::int64_t> fetched_for_;      ///< last step id that a scan has promised (C4.7a)
  std::vector<bool> in_flight_;                ///< not yet popped by its own module's fetch (C4.4)
  std::map<ModuleId, std::vector<ParameterId>> with_external_;
  std::vector<ModuleId> active_backward_;              ///< in order of their pre-backward hooks
  std::map<ModuleId, std::vector<ParameterId>> held_;  ///< by module that holds them (rule 80)
  Mode mode_;
  std::vector<ModuleId> trace_;  ///< modules by step id
  std::vector<TraceParameter> trace_parameters_;
  std::size_t queue_front_ = 0;  ///< next entry of trace_parameters_ to scan
  /// By (module, step id), for the whole training (rule 32b).
  std::map<std::pair<ModuleId, std::int64_t>, std::vector<ParameterId>> releasable_;
  std::int64_t step_id_ = 0;
  std::int64_t available_ = 0;
};

}  // namespace zerosim
