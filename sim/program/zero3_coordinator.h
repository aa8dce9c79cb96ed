/// \file
/// ZeRO-3's parameter coordinator: which parameters each module event gathers, prefetches and
/// releases (spec C4, C5; rules 21 to 37 of deepspeed_recorded.md). Decisions only: no streams, no
/// bytes, no ranks.
///
/// Life of a micro batch:
///
///     begin_forward();                       // root pre-forward (C4.1)
///     for each module event that fetches:    // pre-forward, pre-backward
///       fetch(m)                             // C4.3, then C5
///     ... release(m) after forward and after backward (C4.6)
///     end_backward();                        // leftovers (C4.8)
///
/// The first micro batch after construction records the trace: nothing is prefetched or kept
/// (C4.2). `skip_recording(trace)` starts with a complete trace instead, as every later step has
/// it.
///
/// Not modelled: traces that change (rule 87), NVMe, external parameters (C2.6).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sim/base/ids.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// Parameters that stay gathered between steps (C1.7), by ParameterId.
[[nodiscard]] std::vector<bool> persistent_parameters(const Model& model,
                                                      const ZeroOptions& options);

class Zero3Coordinator {
 public:
  Zero3Coordinator(const Model& model, const ZeroOptions& options);

  /// What one module event gathers; each list is one request, sorted by parameter id (C1.2).
  struct Fetch {
    std::vector<ParameterId> now;         ///< not yet available: gathered and waited for
    std::vector<ParameterId> prefetched;  ///< for later modules
  };

  /// Starts with `trace`: the modules in the order in which they fetch, forward then backward.
  void skip_recording(const std::vector<ModuleId>& trace);

  void begin_forward();
  [[nodiscard]] Fetch fetch(ModuleId module);
  /// Parameters to free after `module`'s forward or backward.
  [[nodiscard]] std::vector<ParameterId> release(ModuleId module);
  /// Frees what is still gathered and not persistent; completes a recording.
  [[nodiscard]] std::vector<ParameterId> end_backward();
  /// Frees everything, persistent ones included, before the optimizer step (C8.1).
  [[nodiscard]] std::vector<ParameterId> release_all();
  /// Persistent parameters are gathered again after the step (C8.5).
  void gather_persistent();

  [[nodiscard]] const std::vector<bool>& persistent() const { return persistent_; }
  [[nodiscard]] bool recording() const { return recording_; }
  [[nodiscard]] std::int64_t available_elements() const {
    return available_;
  }  ///< its own count (rule 30)
  [[nodiscard]] std::int64_t step_id() const { return step_id_; }

 private:
  struct TraceParameter {
    ParameterId parameter;
    std::int64_t step_id = 0;
  };

  void complete_trace();
  void pop_own_parameters(const Module& module);
  [[nodiscard]] std::vector<ParameterId> take_prefetch();
  void keep_reused(std::vector<ParameterId>& candidates) const;
  void drop(std::vector<ParameterId>& released, ParameterId parameter);
  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return model_->parameters[id.index()].elements;
  }

  const Model* model_;
  ZeroOptions options_;
  std::int64_t prefetch_bucket_size_;
  std::vector<bool> persistent_;
  std::vector<bool> gathered_;             ///< INFLIGHT or AVAILABLE (C1.8)
  std::vector<int> active_modules_;        ///< modules that hold the parameter (C4.6)
  std::vector<std::int64_t> fetched_for_;  ///< last step id that a scan has promised it for (C4.7a)
  bool recording_ = true;
  std::vector<ModuleId> trace_;  ///< modules by step id
  std::vector<TraceParameter> trace_parameters_;
  std::size_t queue_front_ = 0;  ///< next entry of trace_parameters_ to scan
  std::int64_t step_id_ = 0;
  std::int64_t available_ = 0;
};

}  // namespace zerosim
