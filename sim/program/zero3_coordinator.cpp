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

Zero3Coordinator::Zero3Coordinator(const Model& model, const ZeroOptions& options,
                                   const DeepSpeedRelease& release)
    : model_(&model),
      options_(options),
      release_(&release),
      // The engine forces one parameter a hook (rule 35).
      prefetch_bucket_size_(options.allgather_sequential ? 1 : options.prefetch_bucket_size),
      persistent_(persistent_parameters(model, options)),
      gathered_(model.parameters.size(), false),
      active_(model.parameters.size()),
      fetched_for_(model.parameters.size(), kNever),
      in_flight_(model.parameters.size()),
      mode_(release.resets_before_forward ? Mode::Invalid : Mode::Record) {}

void Zero3Coordinator::skip_recording(const std::vector<ModuleId>& trace) {
  trace_ = trace;
  complete_trace();
}

const std::vector<ParameterId>& Zero3Coordinator::parameters_of(ModuleId module) const {
  const auto found = with_external_.find(module);
  return found != with_external_.end() ? found->second : model_->modules[module.index()].parameters;
}

// What modules own and use when the trace is complete counts, not when each was recorded (rule 84).
void Zero3Coordinator::complete_trace() {
  mode_ = Mode::Complete;
  trace_parameters_.clear();
  for (std::size_t step = 0; step < trace_.size(); ++step) {
    for (const ParameterId id : parameters_of(trace_[step])) {
      trace_parameters_.push_back({id, static_cast<std::int64_t>(step)});
    }
  }
}

std::vector<std::int64_t> Zero3Coordinator::reset_step() {
  std::vector<std::int64_t> lengths;
  if (mode_ == Mode::Invalid) {
    mode_ = Mode::Record;
    trace_.clear();
    lengths = {0};
  } else if (mode_ == Mode::Record) {
    complete_trace();
    const auto modules = static_cast<std::int64_t>(trace_.size());
    const auto parameters = static_cast<std::int64_t>(trace_parameters_.size());
    lengths = {modules, parameters, parameters};
  }
  step_id_ = 0;
  available_ = 0;
  queue_front_ = 0;
  std::fill(fetched_for_.begin(), fetched_for_.end(), kNever);
  return lengths;
}

std::vector<std::int64_t> Zero3Coordinator::begin_forward() {
  return release_->resets_before_forward ? reset_step() : std::vector<std::int64_t>();
}

std::vector<std::int64_t> Zero3Coordinator::finish_backward() {
  return release_->resets_before_forward ? std::vector<std::int64_t>() : reset_step();
}

// A parameter is held by a set of modules, each once.
void Zero3Coordinator::activate(ParameterId parameter, ModuleId module) {
  std::vector<ModuleId>& holders = active_[parameter.index()];
  if (std::find(holders.begin(), holders.end(), module) == holders.end()) {
    holders.push_back(module);
  }
}

void Zero3Coordinator::deactivate(ParameterId parameter, ModuleId module) {
  std::erase(active_[parameter.index()], module);
}

void Zero3Coordinator::request(const std::vector<ParameterId>& parameters) {
  for (const ParameterId parameter : parameters) {
    gathered_[parameter.index()] = true;
    in_flight_[parameter.index()] = true;
  }
}

Zero3Coordinator::Fetch Zero3Coordinator::fetch(ModuleId id, Pass pass) {
  Fetch fetch;
  const auto step = static_cast<std::size_t>(step_id_);
  if (mode_ == Mode::Complete && (step >= trace_.size() || trace_[step] != id)) {
    mode_ = Mode::Invalid;
    if (release_->releases_unused_prefetches) {
      fetch.cancelled = cancel_in_flight();
    }
  }
  if (pass == Pass::Backward) {
    active_backward_.push_back(id);
  }
  const std::vector<ParameterId>& parameters = parameters_of(id);
  for (const ParameterId parameter : parameters) {
    if (!gathered_[parameter.index()]) {
      available_ += elements(parameter);
      fetch.now.push_back(parameter);
    }
    activate(parameter, id);
  }
  std::sort(fetch.now.begin(), fetch.now.end());
  if (!fetch.now.empty()) {
    request(fetch.now);
  }
  for (const ParameterId parameter : parameters) {
    in_flight_[parameter.index()] = false;
  }
  if (mode_ == Mode::Record) {
    trace_.push_back(id);
  } else if (mode_ == Mode::Complete) {
    pop_own_parameters(parameters);
    fetch.prefetched = take_prefetch();
  }
  ++step_id_;
  return fetch;
}

// Rule 87, C4.1: what was fetched ahead is waited for and released unused, whether or not a wait
// for another of its gather has completed it (recorded: ds_s3_bf16_moe_some_w2).
std::vector<ParameterId> Zero3Coordinator::cancel_in_flight() {
  std::vector<ParameterId> cancelled;
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    if (in_flight_[i]) {
      in_flight_[i] = false;
      drop(cancelled, ParameterId(i));
    }
  }
  return cancelled;
}

// Rule 84: not counted as available.
std::vector<ParameterId> Zero3Coordinator::access(ModuleId module,
                                                  std::span<const ParameterId> parameters) {
  std::vector<ParameterId> now;
  const std::vector<ParameterId>& known = parameters_of(module);
  for (const ParameterId parameter : parameters) {
    const bool external = std::find(known.begin(), known.end(), parameter) == known.end();
    if (external && !gathered_[parameter.index()]) {
      now.push_back(parameter);
    }
  }
  if (now.empty()) {
    return now;
  }
  std::vector<ParameterId> all = known;
  all.insert(all.end(), now.begin(), now.end());
  std::sort(all.begin(), all.end());
  with_external_[module] = std::move(all);
  for (const ParameterId parameter : now) {
    gathered_[parameter.index()] = true;
    activate(parameter, module);
  }
  return now;
}

// C5.1: parameters that an earlier prefetch has popped are not searched again.
void Zero3Coordinator::pop_own_parameters(const std::vector<ParameterId>& parameters) {
  auto remaining = std::count_if(parameters.begin(), parameters.end(), [this](ParameterId id) {
    return fetched_for_[id.index()] < step_id_;
  });
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
  if (!taken.empty()) {
    request(taken);
  }
  return taken;
}

std::vector<ParameterId> Zero3Coordinator::release(ModuleId id, Pass pass) {
  for (const ParameterId parameter : parameters_of(id)) {
    deactivate(parameter, id);
  }
  if (pass == Pass::Recompute && release_->holds_recomputed_frozen) {
    hold(id);
  }
  std::vector<ParameterId> released;
  // Without a complete trace all goes, persistent ones too (C4.2).
  for (const ParameterId parameter : mode_ == Mode::Complete ? releasable(id) : parameters_of(id)) {
    drop(released, parameter);
  }
  if (pass == Pass::Backward) {
    std::erase(active_backward_, id);
    const auto held = held_.extract(id);
    if (!held.empty()) {
      for (const ParameterId parameter : held.mapped()) {
        deactivate(parameter, id);
        if (!persistent_[parameter.index()]) {
          drop(released, parameter);
        }
      }
    }
  }
  return released;
}

// Rule 80: to the module that is the last one active in the backward.
void Zero3Coordinator::hold(ModuleId module) {
  if (active_backward_.empty()) {
    return;
  }
  const ModuleId holder = active_backward_.back();
  for (const ParameterId parameter : parameters_of(module)) {
    if (!model_->parameters[parameter.index()].trainable) {
      activate(parameter, holder);
      held_[holder].push_back(parameter);
    }
  }
}

const std::vector<ParameterId>& Zero3Coordinator::releasable(ModuleId module) {
  const auto [found, is_new] = releasable_.try_emplace({module, step_id_});
  if (is_new) {
    for (const ParameterId parameter : parameters_of(module)) {
      if (!persistent_[parameter.index()]) {
        found->second.push_back(parameter);
      }
    }
    keep_reused(found->second);
  }
  return found->second;
}

// C4.7: (a) a scan has promised the parameter for a later step; (b) it is used within the reuse
// distance.
void Zero3Coordinator::keep_reused(std::vector<ParameterId>& candidates) const {
  std::erase_if(candidates, [this](ParameterId id) { return fetched_for_[id.index()] > step_id_; });
  std::int64_t traversed = 0;
  for (auto step = static_cast<std::size_t>(step_id_);
       step < trace_.size() && traversed < options_.max_reuse_distance && !candidates.empty();
       ++step) {
    for (const ParameterId met : parameters_of(trace_[step])) {
      std::erase(candidates, met);
      traversed += elements(met);
    }
  }
}

void Zero3Coordinator::drop(std::vector<ParameterId>& released, ParameterId id) {
  if (gathered_[id.index()] && active_[id.index()].empty()) {
    gathered_[id.index()] = false;
    available_ -= elements(id);
    released.push_back(id);
  }
}

std::vector<ParameterId> Zero3Coordinator::end_backward() {
  std::vector<ParameterId> released;
  active_backward_.clear();
  held_.clear();
  if (!release_->releases_leftovers) {
    return released;
  }
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    active_[i].clear();
    if (!persistent_[i]) {
      drop(released, ParameterId(i));
    }
  }
  return released;
}

std::vector<ParameterId> Zero3Coordinator::release_all() {
  std::vector<ParameterId> released;
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    active_[i].clear();
    in_flight_[i] = false;
    drop(released, ParameterId(i));
  }
  return released;
}

void Zero3Coordinator::gather_persistent() {
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    if (persistent_[i]) {
      gathered_[i] = true;
    }
  }
}

}  // namespace zerosim
