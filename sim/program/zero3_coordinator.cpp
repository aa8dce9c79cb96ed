#include "sim/program/zero3_coordinator.h"

#include <algorithm>
#include <limits>

#include "sim/base/error.h"

namespace zerosim {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

}  // namespace

std::vector<bool> persistent_parameters(const Model& model, const ZeroOptions& options) {
  std::vector<bool> persistent(model.parameters.size(), false);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const std::int64_t elements = model.parameters[i].elements;
    if (elements <= options.param_persistence_threshold &&
        total <= options.model_persistence_threshold - elements) {
      persistent[i] = true;
      total += elements;
    }
  }
  return persistent;
}

Zero3Coordinator::Zero3Coordinator(const Model& model, const ZeroOptions& options)
    : model_(&model),
      options_(options),
      // The engine forces one parameter a hook (rule 35).
      prefetch_bucket_size_(options.allgather_sequential ? 1 : options.prefetch_bucket_size),
      persistent_(persistent_parameters(model, options)),
      gathered_(model.parameters.size(), false),
      active_modules_(model.parameters.size(), 0),
      fetched_for_(model.parameters.size(), kNever) {}

void Zero3Coordinator::skip_recording(const std::vector<ModuleId>& trace) {
  trace_ = trace;
  complete_trace();
}

void Zero3Coordinator::complete_trace() {
  recording_ = false;
  trace_parameters_.clear();
  for (std::size_t step = 0; step < trace_.size(); ++step) {
    for (const ParameterId id : model_->modules[trace_[step].index()].parameters) {
      trace_parameters_.push_back({id, static_cast<std::int64_t>(step)});
    }
  }
}

void Zero3Coordinator::begin_forward() {
  step_id_ = 0;
  available_ = 0;
  queue_front_ = 0;
  std::fill(fetched_for_.begin(), fetched_for_.end(), kNever);
}

Zero3Coordinator::Fetch Zero3Coordinator::fetch(ModuleId id) {
  const Module& module = model_->modules[id.index()];
  Fetch fetch;
  for (const ParameterId parameter : module.parameters) {
    if (!gathered_[parameter.index()]) {
      gathered_[parameter.index()] = true;
      available_ += elements(parameter);
      fetch.now.push_back(parameter);
    }
    ++active_modules_[parameter.index()];
  }
  std::sort(fetch.now.begin(), fetch.now.end());
  if (recording_) {
    trace_.push_back(id);
  } else {
    ZS_CHECK(static_cast<std::size_t>(step_id_) < trace_.size() &&
                 trace_[static_cast<std::size_t>(step_id_)] == id,
             "module event does not match the recorded trace");
    pop_own_parameters(module);
    fetch.prefetched = take_prefetch();
  }
  ++step_id_;
  return fetch;
}

// C5.1: parameters that an earlier prefetch has popped are not searched again.
void Zero3Coordinator::pop_own_parameters(const Module& module) {
  auto remaining =
      std::count_if(module.parameters.begin(), module.parameters.end(),
                    [this](ParameterId id) { return fetched_for_[id.index()] < step_id_; });
  for (; remaining > 0; --remaining) {
    ZS_CHECK(queue_front_ < trace_parameters_.size(), "prefetch queue is empty");
    const TraceParameter& entry = trace_parameters_[queue_front_++];
    fetched_for_[entry.parameter.index()] = entry.step_id;
  }
}

// C5.2, C5.3: the test precedes each pop, so the sum overshoots by up to one parameter.
std::vector<ParameterId> Zero3Coordinator::take_prefetch() {
  std::vector<ParameterId> taken;
  if (prefetch_bucket_size_ <= 0) {
    return taken;
  }
  const std::int64_t limit =
      std::min(options_.max_live_parameters - available_, prefetch_bucket_size_);
  std::int64_t sum = 0;
  while (queue_front_ < trace_parameters_.size() && sum < limit) {
    const TraceParameter& entry = trace_parameters_[queue_front_++];
    std::int64_t& promised = fetched_for_[entry.parameter.index()];
    promised = std::max(promised, entry.step_id);
    if (!gathered_[entry.parameter.index()]) {
      gathered_[entry.parameter.index()] = true;
      taken.push_back(entry.parameter);
      sum += elements(entry.parameter);
    }
  }
  available_ += sum;
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::vector<ParameterId> Zero3Coordinator::release(ModuleId id) {
  const Module& module = model_->modules[id.index()];
  std::vector<ParameterId> candidates;
  for (const ParameterId parameter : module.parameters) {
    --active_modules_[parameter.index()];
    // While recording, persistent parameters are released too (C4.2).
    if (recording_ || !persistent_[parameter.index()]) {
      candidates.push_back(parameter);
    }
  }
  if (!recording_) {
    keep_reused(candidates);
  }
  std::vector<ParameterId> released;
  for (const ParameterId parameter : candidates) {
    drop(released, parameter);
  }
  return released;
}

// C4.7: (a) a scan has promised the parameter for a later step; (b) it is used within the reuse
// distance.
void Zero3Coordinator::keep_reused(std::vector<ParameterId>& candidates) const {
  std::erase_if(candidates, [this](ParameterId id) { return fetched_for_[id.index()] > step_id_; });
  std::int64_t traversed = 0;
  for (auto step = static_cast<std::size_t>(step_id_);
       step < trace_.size() && traversed < options_.max_reuse_distance && !candidates.empty();
       ++step) {
    for (const ParameterId met : model_->modules[trace_[step].index()].parameters) {
      std::erase(candidates, met);
      traversed += elements(met);
    }
  }
}

void Zero3Coordinator::drop(std::vector<ParameterId>& released, ParameterId id) {
  if (gathered_[id.index()] && active_modules_[id.index()] == 0) {
    gathered_[id.index()] = false;
    available_ -= elements(id);
    released.push_back(id);
  }
}

std::vector<ParameterId> Zero3Coordinator::end_backward() {
  std::fill(active_modules_.begin(), active_modules_.end(), 0);
  std::vector<ParameterId> released;
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    if (!persistent_[i]) {
      drop(released, ParameterId(i));
    }
  }
  if (recording_) {
    complete_trace();
  }
  return released;
}

std::vector<ParameterId> Zero3Coordinator::release_all() {
  std::vector<ParameterId> released;
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    drop(released, ParameterId(i));
  }
  return released;
}

void Zero3Coordinator::gather_persistent() {
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    gathered_[i] = gathered_[i] || persistent_[i];
  }
}

}  // namespace zerosim
